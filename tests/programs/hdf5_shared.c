/* hdf5_shared: every MPI rank writes interleaved rows of one two-dimensional dataset of one shared
 * HDF5 file, then all ranks open the file again, read other ranks' rows and check every value.
 *
 *     mpiexec -n 4 hdf5_shared FILE [independent|collective] [ROWS-PER-RANK] [COLUMNS]
 *
 * Row i of rank r is row i*ranks + r of the dataset: the strided pattern of a shared checkpoint.
 * Rank 0 prints one line of JSON. Parallel HDF5 built for MPICH is all it needs; it knows nothing
 * of PLFS.
 */
#include <hdf5.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, ranks;

static void fail(const char *what)
{
	fprintf(stderr, "hdf5_shared: rank %d: %s\n", rank, what);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Ends the job at a negative result; HDF5 has printed its own error stack by then. */
static hid_t check(int64_t result, const char *call)
{
	if (result < 0)
		fail(call);
	return result;
}
#define CHECK(call) check(call, #call)

static double value(hsize_t row, hsize_t column)
{
	return (double)(row * 1000003 + column);
}

static hid_t open_file(const char *path, int create)
{
	hid_t access = CHECK(H5Pcreate(H5P_FILE_ACCESS));
	CHECK(H5Pset_fapl_mpio(access, MPI_COMM_WORLD, MPI_INFO_NULL));
	hid_t file = create ? CHECK(H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access))
			    : CHECK(H5Fopen(path, H5F_ACC_RDONLY, access));
	H5Pclose(access);
	return file;
}

/* Moves the rows of rank `who` in one call, independently or collectively. */
static void transfer(
	hid_t set, int who, hsize_t rows, hsize_t columns, double *buf, int collective, int write)
{
	hsize_t start[2] = {who, 0}, stride[2] = {ranks, 1}, count[2] = {rows, columns};
	hid_t space = CHECK(H5Dget_space(set)), memory = CHECK(H5Screate_simple(2, count, NULL)),
	      plist = CHECK(H5Pcreate(H5P_DATASET_XFER));
	CHECK(H5Sselect_hyperslab(space, H5S_SELECT_SET, start, stride, count, NULL));
	CHECK(H5Pset_dxpl_mpio(plist, collective ? H5FD_MPIO_COLLECTIVE : H5FD_MPIO_INDEPENDENT));
	if (write)
		CHECK(H5Dwrite(set, H5T_NATIVE_DOUBLE, memory, space, plist, buf));
	else
		CHECK(H5Dread(set, H5T_NATIVE_DOUBLE, memory, space, plist, buf));
	H5Pclose(plist);
	H5Sclose(memory);
	H5Sclose(space);
}

static double step(double *since)
{
	MPI_Barrier(MPI_COMM_WORLD);
	double now = MPI_Wtime(), took = now - *since;
	*since = now;
	return took;
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	const char *path = argc > 1 ? argv[1] : NULL, *mode = argc > 2 ? argv[2] : "independent";
	int collective = !strcmp(mode, "collective");
	hsize_t rows = argc > 3 ? strtoull(argv[3], NULL, 0) : 256,
		columns = argc > 4 ? strtoull(argv[4], NULL, 0) : 5875;
	if (!path || (!collective && strcmp(mode, "independent")) || !rows || !columns)
		fail("usage: hdf5_shared FILE [independent|collective] [ROWS-PER-RANK] [COLUMNS]");
	double *buf = malloc(rows * columns * sizeof *buf);
	if (!buf)
		fail("no memory");
	for (hsize_t i = 0; i < rows; i++)
		for (hsize_t j = 0; j < columns; j++)
			buf[i * columns + j] = value(i * ranks + rank, j);

	double clock = 0;
	step(&clock);
	hid_t file = open_file(path, 1);
	hsize_t size[2] = {rows * ranks, columns};
	hid_t space = CHECK(H5Screate_simple(2, size, NULL));
	hid_t create = CHECK(H5Pcreate(H5P_DATASET_CREATE));
	CHECK(H5Pset_obj_track_times(
		create, 0)); /* without time stamps two runs give equal bytes */
	hid_t set = CHECK(H5Dcreate2(
		file, "checkpoint", H5T_NATIVE_DOUBLE, space, H5P_DEFAULT, create, H5P_DEFAULT));
	H5Pclose(create);
	transfer(set, rank, rows, columns, buf, collective, 1);
	CHECK(H5Dclose(set));
	CHECK(H5Sclose(space));
	CHECK(H5Fclose(file));
	double write_s = step(&clock);

	memset(buf, 0, rows * columns * sizeof *buf);
	int who = (rank + 1) % ranks;
	step(&clock);
	file = open_file(path, 0);
	set = CHECK(H5Dopen2(file, "checkpoint", H5P_DEFAULT));
	transfer(set, who, rows, columns, buf, collective, 0);
	CHECK(H5Dclose(set));
	CHECK(H5Fclose(file));
	double read_s = step(&clock);

	for (hsize_t i = 0; i < rows; i++)
		for (hsize_t j = 0; j < columns; j++)
			if (buf[i * columns + j] != value(i * ranks + who, j)) {
				fprintf(stderr,
					"hdf5_shared: rank %d: row %llu column %llu holds %.17g\n",
					rank, (unsigned long long)(i * ranks + who),
					(unsigned long long)j, buf[i * columns + j]);
				fail("wrong value");
			}
	step(&clock);
	double mib = (double)rows * columns * ranks * sizeof *buf / (1 << 20);
	if (rank == 0)
		printf("{\"mode\": \"%s\", \"ranks\": %d, \"rows\": %llu, \"columns\": %llu, "
		       "\"mib\": %.1f, \"write_mib_s\": %.1f, \"read_mib_s\": %.1f, "
		       "\"verified\": true}\n",
			mode, ranks, (unsigned long long)(rows * ranks),
			(unsigned long long)columns, mib, mib / write_s, mib / read_s);
	free(buf);
	MPI_Finalize();
	return 0;
}
