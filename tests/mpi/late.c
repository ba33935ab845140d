/* Each rank is done with its few writes before the next begins, as when ranks share a processor. */
#include <mpi.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	int rank;
	MPI_File f;
	char piece[100] = {1};
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_File_open(MPI_COMM_WORLD, argv[argc - 1], MPI_MODE_CREATE | MPI_MODE_WRONLY,
		MPI_INFO_NULL, &f);
	usleep(30000 * rank);
	MPI_File_write_at(f, rank * 100, piece, 100, MPI_BYTE, MPI_STATUS_IGNORE);
	MPI_File_close(&f);
	return MPI_Finalize();
}
