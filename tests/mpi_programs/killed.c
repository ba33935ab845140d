// killed FILE run|close|reader: ranks write and sync, then the last one dies by SIGKILL in the
// middle of writing more, or while all close. reader checks what was synced.
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PIECE = 30011, PIECES = 20 };

int main(int argc, char **argv)
{
	int rank, ranks, wrong = 0;
	char b[PIECE], back[PIECE];
	MPI_File f;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	int reader = strcmp(argv[2], "reader") == 0, victim = rank == ranks - 1;
	if (MPI_File_open(MPI_COMM_WORLD, argv[1],
		    reader ? MPI_MODE_RDONLY : MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &f))
		MPI_Abort(MPI_COMM_WORLD, 1);
	for (int i = 0; i < PIECES; i++) {
		int piece = i * ranks + rank;
		memset(b, 1 + piece % 200, sizeof b);
		if (reader) {
			MPI_File_read_at(f, (MPI_Offset)piece * PIECE, back, PIECE, MPI_BYTE,
				MPI_STATUS_IGNORE);
			wrong += memcmp(b, back, PIECE) != 0;
		} else
			MPI_File_write_at(f, (MPI_Offset)piece * PIECE, b, PIECE, MPI_BYTE,
				MPI_STATUS_IGNORE);
	}
	if (!reader) {
		MPI_File_sync(f);
		MPI_Barrier(MPI_COMM_WORLD);
		if (rank == 0) {
			printf("synced\n");
			fflush(stdout);
		}
		// Never synced; may or may not be there.
		MPI_File_write_at(f, (MPI_Offset)(PIECES + 1 + rank) * ranks * PIECE, b, PIECE,
			MPI_BYTE, MPI_STATUS_IGNORE);
		if (victim && strcmp(argv[2], "close") == 0) {
			if (fork() == 0) { // dies a moment after its close began
				usleep(200);
				kill(getppid(), SIGKILL);
				_exit(0);
			}
		} else if (victim)
			kill(getpid(), SIGKILL);
	}
	MPI_File_close(&f);
	if (reader && wrong) {
		fprintf(stderr, "rank %d: %d pieces wrong\n", rank, wrong);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	if (!reader && victim)
		pause();
	MPI_Finalize();
	return 0;
}
