/* Run with "write", the last rank dies while the others are in MPI_File_close; with "read", what
 * all ranks had synced is there. */
#include <signal.h>

#include "t.h"

enum { LENGTH = 4096 };

int main(int argc, char **argv)
{
	start(argc, argv);
	MPI_File f;
	static char block[LENGTH], back[LENGTH];
	if (strcmp(argv[2], "write") == 0) {
		f = open_new("killed", MPI_MODE_RDWR);
		memset(block, 'a' + rank, LENGTH);
		OK(MPI_File_write_at(f, rank * LENGTH, block, LENGTH, MPI_BYTE, MPI_STATUS_IGNORE));
		OK(MPI_File_sync(f));
		OK(MPI_File_write_at(
			f, (ranks + rank) * LENGTH, block, LENGTH, MPI_BYTE, MPI_STATUS_IGNORE));
		if (rank == ranks - 1) {
			usleep(300000);
			raise(SIGKILL);
		}
		MPI_File_close(&f);
		return finish();
	}
	OK(MPI_File_open(MPI_COMM_WORLD, path_of("killed"), MPI_MODE_RDWR, MPI_INFO_NULL, &f));
	for (int r = 0; r < 4; r++) {
		memset(block, 'a' + r, LENGTH);
		OK(MPI_File_read_at(f, r * LENGTH, back, LENGTH, MPI_BYTE, MPI_STATUS_IGNORE));
		CHECK(memcmp(block, back, LENGTH) == 0);
	}
	/* Not before all have read. */
	MPI_Barrier(MPI_COMM_WORLD);
	OK(MPI_File_write_at(f, rank * LENGTH, block, LENGTH, MPI_BYTE, MPI_STATUS_IGNORE));
	OK(MPI_File_close(&f));
	return finish();
}
