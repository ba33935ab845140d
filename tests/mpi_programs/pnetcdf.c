// pnetcdf FILE write|grow|read: a netCDF file by PnetCDF: blocking and nonblocking puts, an array
// with records; checked by any number of ranks. grow: as write, and then the header grows and ranks
// move the data of other ranks, which they never synced.
#include <mpi.h>
#include <pnetcdf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(call) \
	do { \
		int e_ = (call); \
		if (e_ != NC_NOERR) { \
			fprintf(stderr, "line %d: %s\n", __LINE__, ncmpi_strerror(e_)); \
			MPI_Abort(MPI_COMM_WORLD, 1); \
		} \
	} while (0)
#define EXPECT(what) \
	do { \
		if (!(what)) { \
			fprintf(stderr, "line %d: not %s\n", __LINE__, #what); \
			MPI_Abort(MPI_COMM_WORLD, 1); \
		} \
	} while (0)
enum { ROWS = 48, COLUMNS = 100, RECORDS = 5 };

int main(int argc, char **argv)
{
	int rank, ranks, nc, row, column, record, grid, late, series;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	EXPECT(argc == 3 && ROWS % ranks == 0);
	int mine = ROWS / ranks, first = rank * mine, value[ROWS * COLUMNS];
	MPI_Offset start[3] = {first, 0, 0}, count[3] = {mine, COLUMNS, 0};
	int grow = strcmp(argv[2], "grow") == 0;
	if (grow || strcmp(argv[2], "write") == 0) {
		CHECK(ncmpi_create(
			MPI_COMM_WORLD, argv[1], NC_CLOBBER | NC_64BIT_DATA, MPI_INFO_NULL, &nc));
		CHECK(ncmpi_def_dim(nc, "row", ROWS, &row));
		CHECK(ncmpi_def_dim(nc, "column", COLUMNS, &column));
		CHECK(ncmpi_def_dim(nc, "record", NC_UNLIMITED, &record));
		CHECK(ncmpi_def_var(nc, "grid", NC_INT, 2, (int[]){row, column}, &grid));
		CHECK(ncmpi_def_var(nc, "series", NC_DOUBLE, 2, (int[]){record, row}, &series));
		CHECK(ncmpi_def_var(nc, "late", NC_INT, 1, (int[]){row}, &late));
		CHECK(ncmpi_put_att_text(nc, NC_GLOBAL, "title", 4, "test"));
		CHECK(ncmpi_enddef(nc));
		for (int i = 0; i < mine * COLUMNS; i++)
			value[i] = first * COLUMNS + i;
		CHECK(ncmpi_put_vara_int_all(nc, grid, start, count, value));
		// Every second record at once, the others one by one.
		double row_of[RECORDS][ROWS];
		int request[RECORDS], status[RECORDS], n = 0;
		for (int r = 0; r < RECORDS; r++) {
			MPI_Offset s[2] = {r, first}, c[2] = {1, mine};
			for (int i = 0; i < mine; i++)
				row_of[r][i] = r + (first + i) / 1000.0;
			if (r % 2 == 0)
				CHECK(ncmpi_iput_vara_double(
					nc, series, s, c, row_of[r], &request[n++]));
			else
				CHECK(ncmpi_put_vara_double_all(nc, series, s, c, row_of[r]));
		}
		CHECK(ncmpi_wait_all(nc, n, request, status));
		if (grow) {
			char text[5000];
			memset(text, 'x', sizeof text);
			CHECK(ncmpi_redef(nc));
			CHECK(ncmpi_put_att_text(nc, NC_GLOBAL, "long", sizeof text, text));
			CHECK(ncmpi_enddef(nc));
		}
		for (int i = 0; i < mine; i++)
			value[i] = -(first + i);
		CHECK(ncmpi_begin_indep_data(nc));
		CHECK(ncmpi_put_vara_int(nc, late, start, count, value));
		CHECK(ncmpi_end_indep_data(nc));
		CHECK(ncmpi_sync(nc));
	} else {
		double d[RECORDS][ROWS];
		CHECK(ncmpi_open(MPI_COMM_WORLD, argv[1], NC_NOWRITE, MPI_INFO_NULL, &nc));
		CHECK(ncmpi_inq_varid(nc, "grid", &grid));
		CHECK(ncmpi_inq_varid(nc, "series", &series));
		CHECK(ncmpi_inq_varid(nc, "late", &late));
		CHECK(ncmpi_get_vara_int_all(nc, grid, start, count, value));
		for (int i = 0; i < mine * COLUMNS; i++)
			EXPECT(value[i] == first * COLUMNS + i);
		MPI_Offset s[2] = {0, 0}, c[2] = {RECORDS, ROWS};
		CHECK(ncmpi_get_vara_double_all(nc, series, s, c, &d[0][0]));
		for (int r = 0; r < RECORDS; r++)
			for (int i = 0; i < ROWS; i++)
				EXPECT(d[r][i] == r + i / 1000.0);
		CHECK(ncmpi_get_vara_int_all(nc, late, start, count, value));
		for (int i = 0; i < mine; i++)
			EXPECT(value[i] == -(first + i));
	}
	MPI_Info info;
	char text[MPI_MAX_INFO_VAL];
	int found;
	CHECK(ncmpi_inq_file_info(nc, &info));
	MPI_Info_get(info, "plfs_flatten_on_close", sizeof text - 1, text, &found);
	CHECK(ncmpi_close(nc));
	if (rank == 0)
		printf("done\n%s", found ? "door\n" : "");
	MPI_Finalize();
	return 0;
}
