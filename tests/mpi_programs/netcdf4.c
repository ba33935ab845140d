// netcdf4 FILE write|read: netCDF-4 (HDF5 with MPI-IO) in parallel: independent and collective, an
// unlimited dimension.
#include <mpi.h>
#include <netcdf.h>
#include <netcdf_par.h>
#include <stdio.h>
#include <string.h>

#define CHECK(call) \
	do { \
		int e_ = (call); \
		if (e_ != NC_NOERR) { \
			fprintf(stderr, "line %d: %s\n", __LINE__, nc_strerror(e_)); \
			MPI_Abort(MPI_COMM_WORLD, 1); \
		} \
	} while (0)
enum { ROWS = 48, COLUMNS = 50 };

int main(int argc, char **argv)
{
	int rank, ranks, nc, dims[2], grid, series;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	int mine = ROWS / ranks, value[ROWS * COLUMNS], wrong = argc != 3;
	size_t start[2] = {(size_t)(rank * mine), 0}, count[2] = {(size_t)mine, COLUMNS};
	int write = strcmp(argv[2], "write") == 0;
	if (write) {
		CHECK(nc_create_par(
			argv[1], NC_NETCDF4 | NC_CLOBBER, MPI_COMM_WORLD, MPI_INFO_NULL, &nc));
		CHECK(nc_def_dim(nc, "row", NC_UNLIMITED, &dims[0]));
		CHECK(nc_def_dim(nc, "column", COLUMNS, &dims[1]));
		CHECK(nc_def_var(nc, "series", NC_INT, 2, dims, &series));
		CHECK(nc_def_dim(nc, "fixed", ROWS, &dims[0]));
		CHECK(nc_def_var(nc, "grid", NC_INT, 2, dims, &grid));
		CHECK(nc_enddef(nc));
	} else {
		CHECK(nc_open_par(argv[1], NC_NOWRITE, MPI_COMM_WORLD, MPI_INFO_NULL, &nc));
		CHECK(nc_inq_varid(nc, "series", &series));
		CHECK(nc_inq_varid(nc, "grid", &grid));
	}
	CHECK(nc_var_par_access(nc, series, NC_COLLECTIVE));
	CHECK(nc_var_par_access(nc, grid, NC_INDEPENDENT));
	for (int k = 0; k < 2; k++) {
		for (int i = 0; i < mine * COLUMNS; i++)
			value[i] = write ? (rank * mine * COLUMNS + i) * (k + 1) : -1;
		if (write)
			CHECK(nc_put_vara_int(nc, k ? grid : series, start, count, value));
		else
			CHECK(nc_get_vara_int(nc, k ? grid : series, start, count, value));
		for (int i = 0; i < mine * COLUMNS; i++)
			wrong += value[i] != (rank * mine * COLUMNS + i) * (k + 1);
	}
	CHECK(nc_close(nc));
	MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	if (rank == 0)
		printf("%d wrong\n", wrong);
	MPI_Finalize();
	return wrong != 0;
}
