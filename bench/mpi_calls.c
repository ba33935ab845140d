/* mpi_calls: nanoseconds of single MPI-IO calls on one rank.
 *
 *     mpi_calls FILE [CALLS]
 *
 * Prints one line of JSON: for MPI_File_write_at and MPI_File_read_at of 64, 4,096 and 47,001 bytes
 * the median over 99 rounds of CALLS calls each (default 200, each behind the one before, so that
 * all writes are to new places), and for MPI_File_open with MPI_File_close over 99 rounds of a
 * tenth. Rounds are short: most are not interrupted. It knows nothing of PLFS.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS = 99 };
static const int SIZES[] = {64, 4096, 47001};
static char block[47001];

static void check(int rc)
{
	if (rc != MPI_SUCCESS)
		MPI_Abort(MPI_COMM_WORLD, 1);
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static MPI_File open_file(const char *path, int mode)
{
	MPI_File f;
	check(MPI_File_open(MPI_COMM_WORLD, path, mode, MPI_INFO_NULL, &f));
	return f;
}

/* One round of writes, or of reads of what they wrote. */
static double round_of(MPI_File f, int write, MPI_Offset first, int n, int calls)
{
	double begin = MPI_Wtime();
	for (MPI_Offset i = first; i < first + calls; i++)
		check(write ? MPI_File_write_at(f, i * n, block, n, MPI_BYTE, MPI_STATUS_IGNORE)
			    : MPI_File_read_at(f, i * n, block, n, MPI_BYTE, MPI_STATUS_IGNORE));
	return (MPI_Wtime() - begin) / calls * 1e9;
}

static double median(double *rounds)
{
	qsort(rounds, ROUNDS, sizeof *rounds, ascending);
	return rounds[ROUNDS / 2];
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	const char *path = argc > 1 ? argv[1] : "";
	int calls = argc > 2 ? atoi(argv[2]) : 200;
	double rounds[ROUNDS];
	putchar('{');
	for (int s = 0; s < 3; s++)
		for (int write = 1; write >= 0; write--) {
			MPI_File f = open_file(
				path, write ? MPI_MODE_WRONLY | MPI_MODE_CREATE : MPI_MODE_RDONLY);
			for (int r = 0; r < ROUNDS; r++)
				rounds[r] = round_of(
					f, write, (MPI_Offset)r * calls, SIZES[s], calls);
			check(MPI_File_close(&f));
			printf("\"%s_at_%d_ns\": %.1f, ", write ? "write" : "read", SIZES[s],
				median(rounds));
		}
	for (int r = 0; r < ROUNDS; r++) {
		int opens = calls / 10 + 1;
		double begin = MPI_Wtime();
		for (int i = 0; i < opens; i++) {
			MPI_File f = open_file(path, MPI_MODE_RDONLY);
			check(MPI_File_close(&f));
		}
		rounds[r] = (MPI_Wtime() - begin) / opens * 1e9;
	}
	printf("\"open_close_ns\": %.1f}\n", median(rounds));
	MPI_Finalize();
	return 0;
}
