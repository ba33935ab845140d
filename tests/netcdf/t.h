/* What the programs of tests/netcdf share: checks that say where, on which rank, and end the job.
 */
#ifndef T_H
#define T_H

#include <mpi.h>
#include <pnetcdf.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, ranks;

static void t_fail(const char *file, int line, const char *format, ...)
{
	char text[512];
	va_list list;
	va_start(list, format);
	vsnprintf(text, sizeof text, format, list);
	va_end(list);
	fprintf(stderr, "%s:%d: rank %d of %d: %s\n", file, line, rank, ranks, text);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

#define CHECK(what) \
	do { \
		if (!(what)) \
			t_fail(__FILE__, __LINE__, "%s", #what); \
	} while (0)
#define FINE(call) \
	do { \
		int t_rc = (call); \
		if (t_rc != NC_NOERR) \
			t_fail(__FILE__, __LINE__, "%s: %s", #call, ncmpi_strerror(t_rc)); \
	} while (0)
#define GIVES(code, call) \
	do { \
		int t_rc = (call); \
		if (t_rc != (code)) \
			t_fail(__FILE__, __LINE__, "%s: %d, expected %d", #call, t_rc, (code)); \
	} while (0)
#define SAME(a, b) \
	do { \
		long long t_a = (long long)(a), t_b = (long long)(b); \
		if (t_a != t_b) \
			t_fail(__FILE__, __LINE__, "%s is %lld, %s is %lld", #a, t_a, #b, t_b); \
	} while (0)

static void t_start(int *argc, char ***argv)
{
	MPI_Init(argc, argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
}

/* Hints for `parts` partitions, cut along `dim` if that is not NULL; MPI_INFO_NULL for none. */
static inline MPI_Info t_hints(int parts, const char *dim)
{
	MPI_Info info;
	char text[32];
	if (!parts)
		return MPI_INFO_NULL;
	snprintf(text, sizeof text, "%d", parts);
	MPI_Info_create(&info);
	MPI_Info_set(info, "nc_partitioning_enabled", "true");
	MPI_Info_set(info, "nc_num_partitions", text);
	if (dim)
		MPI_Info_set(info, "nc_partition_dim", dim);
	return info;
}

static inline void t_free(MPI_Info *info)
{
	if (*info != MPI_INFO_NULL)
		MPI_Info_free(info);
}

#endif
