/* no_memory DIR: calls that need memory for their data, where there is none, fail with NC_ENOMEM on
 * all ranks that they concern, and leave the dataset as good as it was. They ended the program.
 *
 * The data is one int, told to be everywhere in the array: so the program itself needs no memory.
 */
#include "t.h"

#include <sys/resource.h>

#define EDGE 4096
#define LITTLE (16L << 20) /* less than a delegate's share of the array */

/* No more memory than the process has, and a little. */
static void limit(bool on)
{
	long pages = 0;
	struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
	FILE *statm = fopen("/proc/self/statm", "r");
	CHECK(statm && fscanf(statm, "%ld", &pages) == 1);
	fclose(statm);
	if (on)
		limit.rlim_cur = (rlim_t)(pages * 4096 + LITTLE);
	CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
}

int main(int argc, char **argv)
{
	char path[4096];
	int ncid, dims[2], v, value = 0x12345678, got = 0, id = NC_REQ_NULL;
	t_start(&argc, &argv);
	CHECK(argc == 2);
	snprintf(path, sizeof path, "%s/no_memory.nc", argv[1]);
	MPI_Info info = t_hints(1, NULL);
	MPI_Info_set(info, "nc_partition_buffer", "134217728");
	FINE(ncmpi_create(MPI_COMM_WORLD, path, NC_64BIT_DATA, info, &ncid));
	t_free(&info);
	FINE(ncmpi_def_dim(ncid, "y", EDGE, &dims[0]));
	FINE(ncmpi_def_dim(ncid, "x", EDGE, &dims[1]));
	FINE(ncmpi_def_var(ncid, "a", NC_INT, 2, dims, &v));
	FINE(ncmpi_enddef(ncid));
	MPI_Offset each = EDGE / ranks, start[2] = {rank * each, 0}, count[2] = {each, EDGE};
	const MPI_Offset everywhere[2] = {0, 0};

	/* What the program's datatype describes is packed. */
	MPI_Datatype same;
	MPI_Type_create_hvector((int)(each * EDGE), 1, 0, MPI_INT, &same);
	MPI_Type_commit(&same);
	limit(true);
	SAME(ncmpi_put_vara_all(ncid, v, start, count, &value, 1, same), NC_ENOMEM);
	SAME(ncmpi_iput_vara(ncid, v, start, count, &value, 1, same, &id), NC_ENOMEM);
	limit(false);
	MPI_Type_free(&same);

	/* A buffered put is copied. */
	FINE(ncmpi_buffer_attach(ncid, (MPI_Offset)EDGE * EDGE * 8));
	limit(true);
	SAME(ncmpi_bput_varm_int(ncid, v, start, count, NULL, everywhere, &value, &id), NC_ENOMEM);
	limit(false);
	FINE(ncmpi_buffer_detach(ncid));

	/* A delegate has no buffer: rank 0, which serves the first half of the array. */
	MPI_Offset column[2] = {0, rank}, whole[2] = {EDGE, 1};
	int *mine = calloc(EDGE, sizeof *mine), *back = calloc(EDGE, sizeof *back);
	CHECK(mine && back);
	if (ranks > 1) {
		start[0] = 0, start[1] = rank * each;
		count[0] = EDGE, count[1] = each;
		if (rank == 0)
			limit(true);
		SAME(ncmpi_put_varm_int_all(ncid, v, start, count, NULL, everywhere, &value),
			NC_ENOMEM);
		SAME(ncmpi_get_varm_int_all(ncid, v, start, count, NULL, everywhere, &got),
			NC_ENOMEM);
		limit(false);
	}

	/* It goes on. */
	for (int i = 0; i < EDGE; i++)
		mine[i] = i * ranks + rank;
	FINE(ncmpi_put_vara_int_all(ncid, v, column, whole, mine));
	FINE(ncmpi_get_vara_int_all(ncid, v, column, whole, back));
	CHECK(memcmp(mine, back, EDGE * sizeof *mine) == 0);
	FINE(ncmpi_close(ncid));
	free(mine);
	free(back);
	MPI_Finalize();
	return 0;
}
