/* Ranks of several nodes write one file, each its number; FILE is as long as there are ranks.
 *
 * nodes FILE */
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	int rank, ranks;
	char host[256] = "", text[MPI_MAX_ERROR_STRING];
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	gethostname(host, sizeof host - 1);
	printf("rank %d on %s\n", rank, host);
	fflush(stdout);
	MPI_File f;
	int code = MPI_File_open(
		MPI_COMM_WORLD, argv[1], MPI_MODE_RDWR | MPI_MODE_CREATE, MPI_INFO_NULL, &f);
	if (code != MPI_SUCCESS) {
		int n;
		MPI_Error_string(code, text, &n);
		printf("rank %d: %s\n", rank, text);
		/* The others say theirs. */
		sleep(2);
		MPI_Abort(MPI_COMM_WORLD, 3);
	}
	char c = 'a' + rank, all[100];
	MPI_File_write_at_all(f, rank, &c, 1, MPI_BYTE, MPI_STATUS_IGNORE);
	MPI_File_sync(f);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_File_read_at_all(f, 0, all, ranks, MPI_BYTE, MPI_STATUS_IGNORE);
	int wrong = 0;
	for (int i = 0; i < ranks; i++)
		wrong += all[i] != 'a' + i;
	MPI_File_close(&f);
	MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	MPI_Finalize();
	return wrong != 0;
}
