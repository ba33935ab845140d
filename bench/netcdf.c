/* netcdf SHAPE write|read --mib MIB NAME DIR...: what PnetCDF programs write, and how long it takes
 * from create or open to close. Rank i uses the file NAME below the directory i mod their number.
 *
 *   coll_perf  a cube of doubles, each rank a block of it
 *   flash      24 variables of (blocks, 8, 8, 8) doubles, rows of blocks of each rank, by iput and
 *              wait_all
 *
 * MIB is for all ranks together, about. What is written is synced before the close. A rank reads
 * what another one wrote, and compares every element. Rank 0 prints a line of JSON. */
#include <mpi.h>
#include <pnetcdf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VARIABLES 24
#define EDGE 8

static int rank, ranks, is_write;

static void fine(int rc, const char *what)
{
	if (rc == NC_NOERR)
		return;
	fprintf(stderr, "netcdf: rank %d: %s: %s\n", rank, what, ncmpi_strerror(rc));
	MPI_Abort(MPI_COMM_WORLD, 1);
}
#define FINE(call) fine(call, #call)

/* What this rank has of each variable. */
struct part {
	int ndims, variables;
	MPI_Offset length[4], start[4], count[4], elements;
};

static void cut(MPI_Offset length, int at, int n, MPI_Offset *start, MPI_Offset *count)
{
	*start = length * at / n;
	*count = length * (at + 1) / n - *start;
}

static struct part part_of(const char *shape, double mib, int who)
{
	struct part p = {.variables = 1, .ndims = 3};
	int grid[3] = {0}, edge = 1;
	double elements = mib * 1048576 / sizeof(double);
	if (strcmp(shape, "coll_perf") == 0) {
		while ((double)(edge + 1) * (edge + 1) * (edge + 1) <= elements)
			edge++;
		MPI_Dims_create(ranks, 3, grid);
		for (int d = 0; d < 3; d++)
			p.length[d] = edge;
		cut(edge, who / (grid[1] * grid[2]), grid[0], &p.start[0], &p.count[0]);
		cut(edge, who / grid[2] % grid[1], grid[1], &p.start[1], &p.count[1]);
		cut(edge, who % grid[2], grid[2], &p.start[2], &p.count[2]);
	} else {
		int each = (int)(elements / ranks / VARIABLES / (EDGE * EDGE * EDGE));
		p = (struct part){.variables = VARIABLES,
			.ndims = 4,
			.length = {(MPI_Offset)(each + !each) * ranks, EDGE, EDGE, EDGE},
			.count = {0, EDGE, EDGE, EDGE}};
		cut(p.length[0], who, ranks, &p.start[0], &p.count[0]);
	}
	p.elements = 1;
	for (int d = 0; d < p.ndims; d++)
		p.elements *= p.count[d];
	return p;
}

/* The elements of variable v, in order: each says where it is. */
static void fill(const struct part *p, int v, double *out)
{
	MPI_Offset at[4] = {0};
	for (MPI_Offset i = 0; i < p->elements; i++) {
		double place = v;
		for (int d = 0; d < p->ndims; d++)
			place = place * (double)p->length[d] + (double)(p->start[d] + at[d]);
		out[i] = place;
		for (int d = p->ndims - 1; d >= 0 && ++at[d] == p->count[d]; d--)
			at[d] = 0;
	}
}

static void write_or_read(const char *path, const struct part *p, double *data)
{
	int ncid, dims[4], requests[VARIABLES], statuses[VARIABLES];
	char name[16];
	if (is_write) {
		FINE(ncmpi_create(MPI_COMM_WORLD, path, NC_64BIT_DATA, MPI_INFO_NULL, &ncid));
		for (int d = 0; d < p->ndims; d++) {
			snprintf(name, sizeof name, "dim%d", d);
			FINE(ncmpi_def_dim(ncid, name, p->length[d], &dims[d]));
		}
		for (int v = 0; v < p->variables; v++) {
			snprintf(name, sizeof name, "u%03d", v);
			FINE(ncmpi_def_var(ncid, name, NC_DOUBLE, p->ndims, dims, &(int){0}));
		}
		FINE(ncmpi_enddef(ncid));
	} else {
		FINE(ncmpi_open(MPI_COMM_WORLD, path, NC_NOWRITE, MPI_INFO_NULL, &ncid));
	}
	if (p->variables == 1) {
		FINE((is_write ? ncmpi_put_vara_double_all(ncid, 0, p->start, p->count, data)
			       : ncmpi_get_vara_double_all(ncid, 0, p->start, p->count, data)));
	} else {
		for (int v = 0; v < p->variables; v++) {
			double *at = data + v * p->elements;
			FINE((is_write ? ncmpi_iput_vara_double(
						 ncid, v, p->start, p->count, at, &requests[v])
				       : ncmpi_iget_vara_double(
						 ncid, v, p->start, p->count, at, &requests[v])));
		}
		FINE(ncmpi_wait_all(ncid, p->variables, requests, statuses));
		for (int v = 0; v < p->variables; v++)
			FINE(statuses[v]);
	}
	if (is_write)
		FINE(ncmpi_sync(ncid));
	FINE(ncmpi_close(ncid));
}

int main(int argc, char **argv)
{
	char path[4096];
	double seconds, slowest;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (argc < 7 || strcmp(argv[3], "--mib") != 0) {
		fprintf(stderr, "netcdf SHAPE write|read --mib MIB NAME DIR...\n");
		MPI_Abort(MPI_COMM_WORLD, 2);
	}
	is_write = strcmp(argv[2], "write") == 0;
	struct part p = part_of(argv[1], atof(argv[4]), is_write ? rank : (rank + 1) % ranks);
	snprintf(path, sizeof path, "%s/%s", argv[6 + rank % (argc - 6)], argv[5]);
	size_t bytes = (size_t)(p.variables * p.elements) * sizeof(double);
	double *data = calloc(bytes + 1, 1), *wanted = malloc(bytes + 1);
	if (!data || !wanted)
		MPI_Abort(MPI_COMM_WORLD, 1);
	for (int v = 0; v < p.variables; v++)
		fill(&p, v, wanted + v * p.elements);
	MPI_Barrier(MPI_COMM_WORLD);
	seconds = MPI_Wtime();
	write_or_read(path, &p, is_write ? wanted : data);
	seconds = MPI_Wtime() - seconds;
	MPI_Reduce(&seconds, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
	if (!is_write && memcmp(data, wanted, bytes) != 0) {
		fprintf(stderr, "netcdf: rank %d read something else\n", rank);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	if (rank == 0) {
		double all = p.variables * (double)sizeof(double);
		for (int d = 0; d < p.ndims; d++)
			all *= (double)p.length[d];
		printf("{\"seconds\": %.6f, \"mib\": %.3f}\n", slowest, all / 1048576);
	}
	free(data);
	free(wanted);
	MPI_Finalize();
	return 0;
}
