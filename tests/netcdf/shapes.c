/* shapes SHAPE write|read FILE: what known programs write, with contents that say where they are.
 *
 *   coll_perf  a cube, each rank a block of it
 *   flash      24 variables of (blocks, z, y, x), rows of blocks of each rank, by iput and
 * wait_all, and what describes them s3d        a record each step: yspecies(t, 11, z, y, x), u(t,
 * 3, z, y, x), temp(t, z, y, x) */
#include "t.h"

static double value(int v, const MPI_Offset *at, int n)
{
	double x = v;
	for (int i = 0; i < n; i++)
		x = x * 64 + (double)at[i];
	return x;
}

/* The elements of a box, in order. */
static void fill(double *out, int v, int n, const MPI_Offset *start, const MPI_Offset *count)
{
	MPI_Offset at[5] = {0}, index[5];
	for (;;) {
		for (int i = 0; i < n; i++)
			index[i] = start[i] + at[i];
		*out++ = value(v, index, n);
		int i = n - 1;
		for (; i >= 0 && ++at[i] == count[i]; i--)
			at[i] = 0;
		if (i < 0)
			return;
	}
}

static double data[64 * 64 * 64], expected[64 * 64 * 64];
static bool is_write;

static void transfer(int ncid, int v, int n, const MPI_Offset *start, const MPI_Offset *count)
{
	MPI_Offset total = 1;
	for (int i = 0; i < n; i++)
		total *= count[i];
	CHECK(total <= (MPI_Offset)(sizeof data / sizeof *data));
	if (total > 0)
		fill(expected, v, n, start, count);
	if (is_write) {
		FINE(ncmpi_put_vara_double_all(ncid, v, start, count, expected));
		return;
	}
	FINE(ncmpi_get_vara_double_all(ncid, v, start, count, data));
	for (MPI_Offset i = 0; i < total; i++)
		if (data[i] != expected[i])
			t_fail(__FILE__, __LINE__, "variable %d: element %lld is %g, not %g", v, i,
				data[i], expected[i]);
}

/* The part of a dimension that process `at` of `n` has. */
static void part(MPI_Offset length, int at, int n, MPI_Offset *start, MPI_Offset *count)
{
	*start = length * at / n;
	*count = length * (at + 1) / n - *start;
}

static int open_or_create(const char *path)
{
	int ncid;
	if (is_write)
		FINE(ncmpi_create(MPI_COMM_WORLD, path, NC_64BIT_DATA, MPI_INFO_NULL, &ncid));
	else
		FINE(ncmpi_open(MPI_COMM_WORLD, path, NC_NOWRITE, MPI_INFO_NULL, &ncid));
	return ncid;
}

static void coll_perf(const char *path)
{
	int ncid = open_or_create(path), dims[3], v = 0, grid[3] = {0};
	MPI_Offset start[3], count[3];
	const MPI_Offset length[3] = {24, 20, 16};
	if (is_write) {
		FINE(ncmpi_def_dim(ncid, "z", length[0], &dims[0]));
		FINE(ncmpi_def_dim(ncid, "y", length[1], &dims[1]));
		FINE(ncmpi_def_dim(ncid, "x", length[2], &dims[2]));
		FINE(ncmpi_def_var(ncid, "cube", NC_DOUBLE, 3, dims, &v));
		FINE(ncmpi_enddef(ncid));
	}
	MPI_Dims_create(ranks, 3, grid);
	part(length[0], rank / (grid[1] * grid[2]), grid[0], &start[0], &count[0]);
	part(length[1], rank / grid[2] % grid[1], grid[1], &start[1], &count[1]);
	part(length[2], rank % grid[2], grid[2], &start[2], &count[2]);
	transfer(ncid, v, 3, start, count);
	FINE(ncmpi_close(ncid));
}

#define UNKNOWNS 24
#define BLOCKS 40 /* of all ranks */

static void flash(const char *path)
{
	int ncid = open_or_create(path), dims[5], ids[UNKNOWNS + 2], coordinates, size;
	static double kept[UNKNOWNS][BLOCKS * 8 * 8 * 8];
	MPI_Offset start[4] = {0}, count[4] = {0, 8, 8, 8};
	if (is_write) {
		char name[8];
		FINE(ncmpi_def_dim(ncid, "dim_tot_blocks", BLOCKS, &dims[0]));
		FINE(ncmpi_def_dim(ncid, "dim_nzb", 8, &dims[1]));
		FINE(ncmpi_def_dim(ncid, "dim_nyb", 8, &dims[2]));
		FINE(ncmpi_def_dim(ncid, "dim_nxb", 8, &dims[3]));
		FINE(ncmpi_def_dim(ncid, "dim_NDIM", 3, &dims[4]));
		for (int i = 0; i < UNKNOWNS; i++) {
			snprintf(name, sizeof name, "u%03d", i);
			FINE(ncmpi_def_var(ncid, name, NC_DOUBLE, 4, dims, &ids[i]));
		}
		int two[2] = {dims[0], dims[4]};
		FINE(ncmpi_def_var(ncid, "coordinates", NC_DOUBLE, 2, two, &coordinates));
		FINE(ncmpi_def_var(ncid, "block_size", NC_DOUBLE, 1, dims, &size));
		FINE(ncmpi_put_att_text(ncid, NC_GLOBAL, "file_creation_time", 4, "then"));
		FINE(ncmpi_enddef(ncid));
	}
	part(BLOCKS, rank, ranks, &start[0], &count[0]);
	int requests[UNKNOWNS], statuses[UNKNOWNS];
	for (int i = 0; i < UNKNOWNS; i++) {
		if (count[0] > 0 && is_write)
			fill(kept[i], i, 4, start, count);
		if (is_write)
			FINE(ncmpi_iput_vara_double(ncid, i, start, count, kept[i], &requests[i]));
		else
			FINE(ncmpi_iget_vara_double(ncid, i, start, count, kept[i], &requests[i]));
	}
	FINE(ncmpi_wait_all(ncid, UNKNOWNS, requests, statuses));
	for (int i = 0; i < UNKNOWNS; i++) {
		SAME(statuses[i], NC_NOERR);
		if (count[0] == 0)
			continue;
		fill(expected, i, 4, start, count);
		CHECK(memcmp(kept[i], expected, (size_t)count[0] * 512 * sizeof(double)) == 0);
	}
	MPI_Offset small_start[2] = {start[0], 0}, small_count[2] = {count[0], 3};
	transfer(ncid, UNKNOWNS, 2, small_start, small_count);
	transfer(ncid, UNKNOWNS + 1, 1, small_start, small_count);
	FINE(ncmpi_close(ncid));
}

static void s3d(const char *path)
{
	int ncid = open_or_create(path), t, dims[5], id, grid[3] = {0};
	const MPI_Offset length[3] = {12, 10, 16};
	if (is_write) {
		int z, y, x, species, three;
		FINE(ncmpi_def_dim(ncid, "t", NC_UNLIMITED, &t));
		FINE(ncmpi_def_dim(ncid, "species", 11, &species));
		FINE(ncmpi_def_dim(ncid, "three", 3, &three));
		FINE(ncmpi_def_dim(ncid, "z", length[0], &z));
		FINE(ncmpi_def_dim(ncid, "y", length[1], &y));
		FINE(ncmpi_def_dim(ncid, "x", length[2], &x));
		dims[0] = t, dims[1] = species, dims[2] = z, dims[3] = y, dims[4] = x;
		FINE(ncmpi_def_var(ncid, "yspecies", NC_DOUBLE, 5, dims, &id));
		dims[1] = three;
		FINE(ncmpi_def_var(ncid, "u", NC_DOUBLE, 5, dims, &id));
		dims[1] = z, dims[2] = y, dims[3] = x;
		FINE(ncmpi_def_var(ncid, "temp", NC_DOUBLE, 4, dims, &id));
		FINE(ncmpi_enddef(ncid));
	}
	MPI_Offset start[5], count[5];
	MPI_Dims_create(ranks, 3, grid);
	for (int step = 0; step < 3; step++) {
		start[0] = step, count[0] = 1;
		part(length[0], rank / (grid[1] * grid[2]), grid[0], &start[2], &count[2]);
		part(length[1], rank / grid[2] % grid[1], grid[1], &start[3], &count[3]);
		part(length[2], rank % grid[2], grid[2], &start[4], &count[4]);
		start[1] = 0, count[1] = 11;
		transfer(ncid, 0, 5, start, count);
		count[1] = 3;
		transfer(ncid, 1, 5, start, count);
		memmove(start + 1, start + 2, 3 * sizeof *start);
		memmove(count + 1, count + 2, 3 * sizeof *count);
		transfer(ncid, 2, 4, start, count);
	}
	MPI_Offset records;
	FINE(ncmpi_inq_dimlen(ncid, 0, &records));
	SAME(records, 3);
	FINE(ncmpi_close(ncid));
}

int main(int argc, char **argv)
{
	t_start(&argc, &argv);
	CHECK(argc == 4);
	is_write = strcmp(argv[2], "write") == 0;
	if (strcmp(argv[1], "coll_perf") == 0)
		coll_perf(argv[3]);
	else if (strcmp(argv[1], "flash") == 0)
		flash(argv[3]);
	else
		s3d(argv[3]);
	MPI_Finalize();
	return 0;
}
