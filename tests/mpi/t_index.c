/* Indexes that ranks load and write together: the same bytes with and without, on one node and on
 * several. */
#include "t.h"

enum { PIECES = 300 };

/* Lengths and places that make no pattern; every piece is some rank's. */
static int length_of(int piece)
{
	return 40 + piece * 7919 % 97;
}

static MPI_Offset place_of(int piece)
{
	return (MPI_Offset)(piece * 37 % PIECES) * 200 + piece * 31 % 60;
}

static char letter_of(int piece, int round)
{
	return (char)(1 + (piece * 13 + round * 101) % 250);
}

static MPI_Info hints(const char *flatten, const char *parallel)
{
	MPI_Info info;
	MPI_Info_create(&info);
	MPI_Info_set(info, "plfs_flatten_on_close", flatten);
	MPI_Info_set(info, "plfs_parallel_index_read", parallel);
	return info;
}

static void write_round(const char *name, int amode, const char *flatten, int round, int writers)
{
	MPI_File f;
	char block[200];
	MPI_Info info = hints(flatten, "automatic");
	OK(MPI_File_open(MPI_COMM_WORLD, path_of(name), amode, info, &f));
	MPI_Info_free(&info);
	for (int piece = 0; piece < PIECES; piece++)
		if (piece % writers == rank - (ranks - writers)) {
			memset(block, letter_of(piece, round), sizeof block);
			OK(MPI_File_write_at(f, place_of(piece), block, length_of(piece), MPI_BYTE,
				MPI_STATUS_IGNORE));
		}
	OK(MPI_File_close(&f));
}

static void read_round(const char *name, int amode, const char *parallel, int round)
{
	MPI_File f;
	char block[200];
	int bad = 0;
	MPI_Info info = hints("automatic", parallel);
	MPI_Barrier(MPI_COMM_WORLD);
	OK(MPI_File_open(MPI_COMM_WORLD, path_of(name), amode, info, &f));
	MPI_Info_free(&info);
	for (int piece = 0; piece < PIECES; piece++) {
		MPI_Status status;
		OK(MPI_File_read_at(
			f, place_of(piece), block, length_of(piece), MPI_BYTE, &status));
		bad += count_of(&status, MPI_BYTE) != length_of(piece);
		for (int i = 0; i < length_of(piece); i++)
			bad += block[i] != letter_of(piece, round);
	}
	CHECK(bad == 0);
	/* What is committed after the index was shared is seen as ever. */
	if (!(amode & MPI_MODE_RDONLY)) {
		char value = (char)(rank + 1), next = 0;
		OK(MPI_File_write_at(f, 1000000 + rank, &value, 1, MPI_BYTE, MPI_STATUS_IGNORE));
		OK(MPI_File_sync(f));
		OK(MPI_File_read_at(
			f, 1000000 + (rank + 1) % ranks, &next, 1, MPI_BYTE, MPI_STATUS_IGNORE));
		CHECK(next == (rank + 1) % ranks + 1);
	}
	OK(MPI_File_close(&f));
}

/* So few pieces that the last closer puts their index behind the summary, and makes no file of it:
 * if there is one, the ranks have gathered it. tests/mpi/run.sh looks. */
static void write_few(const char *name, const char *flatten)
{
	MPI_File f;
	MPI_Info info = hints(flatten, "automatic");
	OK(MPI_File_open(
		MPI_COMM_WORLD, path_of(name), MPI_MODE_WRONLY | MPI_MODE_CREATE, info, &f));
	MPI_Info_free(&info);
	for (int piece = 0; piece < 3; piece++) {
		char value = (char)(rank + 1);
		OK(MPI_File_write_at(
			f, 1000 * piece + 7 * rank, &value, 1, MPI_BYTE, MPI_STATUS_IGNORE));
	}
	OK(MPI_File_close(&f));
}

int main(int argc, char **argv)
{
	/* Before PLFS begins: one log set a process, as if each were on a node of its own. */
	const char *nodes = argc > 2 ? argv[2] : "one";
	if (strcmp(nodes, "one") != 0)
		setenv("PLFS_SHARED_MEMORY", "", 1);
	start(argc, argv);
	char number[20];
	snprintf(number, sizeof number, "%d", strcmp(nodes, "pairs") == 0 ? rank / 2 : rank);
	if (strcmp(nodes, "one") != 0)
		setenv("PLFS_MPI_NODE", number, 1);
	write_few("few.enable", "enable");
	write_few("few.disable", "disable");
	static const char *const choices[] = {"enable", "disable", "automatic"};
	for (int i = 0; i < 3; i++)
		for (int k = 0; k < 2; k++) {
			char name[40];
			snprintf(name, sizeof name, "index.%s.%d%d", nodes, i, k);
			/* First all write, then all but rank 0, over what is there. */
			for (int round = 0; round < 2; round++) {
				int writers = round && ranks > 1 ? ranks - 1 : ranks;
				write_round(name,
					round ? MPI_MODE_RDWR : MPI_MODE_WRONLY | MPI_MODE_CREATE,
					choices[i], round, writers);
				read_round(name, MPI_MODE_RDONLY, choices[k], round);
				read_round(name, MPI_MODE_RDWR, choices[k], round);
			}
		}
	return finish();
}
