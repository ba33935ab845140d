// checkpoint PATTERN FILE write|read|rewrite [collective]: the shape of the benchmarks IOR and
// MADbench2, which no registry has.
//
// segmented: each rank one range (IOR -s 1). strided: ranks take turns in small pieces (IOR -b =
// -t, many segments). Both on one MPI_MODE_RDWR handle, and after writing each rank reads what its
// neighbour wrote (IOR -C) through the same handle. matrices: as MADbench2, on one handle write all
// matrices, read each and write it changed, read all. read: another run, with any number of ranks,
// checks every byte; it prints a sum.
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	PIECE = 47001,
	PIECES = 24,
	MATRICES = 6,
	ROWS = 12
}; // PIECES and ROWS are shared out over 1, 2, 3, 4, 8 ranks
static int rank, ranks, collective;

static void check(int error, const char *what)
{
	char text[MPI_MAX_ERROR_STRING];
	int length;
	if (error == MPI_SUCCESS)
		return;
	MPI_Error_string(error, text, &length);
	fprintf(stderr, "rank %d: %s: %s\n", rank, what, text);
	MPI_Abort(MPI_COMM_WORLD, 1);
}
static void fill(unsigned char *b, int piece, int generation)
{
	uint32_t x = (uint32_t)(piece * 40503 + generation * 9973 + 1);
	for (int i = 0; i < PIECE; i++) {
		x = x * 1664525 + 1013904223;
		b[i] = (unsigned char)(x >> 24);
	}
}
static void write_piece(MPI_File f, int piece, int generation)
{
	unsigned char b[PIECE];
	fill(b, piece, generation);
	MPI_Offset at = (MPI_Offset)piece * PIECE;
	check(collective ? MPI_File_write_at_all(f, at, b, PIECE, MPI_BYTE, MPI_STATUS_IGNORE)
			 : MPI_File_write_at(f, at, b, PIECE, MPI_BYTE, MPI_STATUS_IGNORE),
		"write");
}
static void expect_piece(MPI_File f, int piece, int generation)
{
	unsigned char b[PIECE], want[PIECE];
	MPI_Status status;
	int n;
	MPI_Offset at = (MPI_Offset)piece * PIECE;
	fill(want, piece, generation);
	check(collective ? MPI_File_read_at_all(f, at, b, PIECE, MPI_BYTE, &status)
			 : MPI_File_read_at(f, at, b, PIECE, MPI_BYTE, &status),
		"read");
	MPI_Get_count(&status, MPI_BYTE, &n);
	if (n == PIECE && memcmp(b, want, PIECE) == 0)
		return;
	for (n = 0; n < PIECE && b[n] == want[n];)
		n++;
	fprintf(stderr, "rank %d: piece %d: wrong from byte %d on\n", rank, piece, n);
	MPI_Abort(MPI_COMM_WORLD, 1);
}
static void meet(MPI_File f)
{
	check(MPI_File_sync(f), "sync");
	MPI_Barrier(MPI_COMM_WORLD);
	check(MPI_File_sync(f), "sync");
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	const char *pattern = argv[1], *file = argv[2], *what = argv[3];
	collective = argc > 4;
	int strided = strcmp(pattern, "strided") == 0, matrices = strcmp(pattern, "matrices") == 0,
	    all = matrices ? MATRICES * ROWS * 2 : PIECES * 8, mine = all / ranks;
	MPI_File f;
	// As IOR and MADbench2 do, also for a file that is only read.
	check(MPI_File_open(MPI_COMM_WORLD, file,
		      MPI_MODE_RDWR | (strcmp(what, "write") ? 0 : MPI_MODE_CREATE), MPI_INFO_NULL,
		      &f),
		"open");
#define PIECE_OF(r, i) (strided || matrices ? (i) * ranks + (r) : (r) * mine + (i))
	int generation = matrices; // the matrices are written twice
	if (strcmp(what, "read")) {
		for (int i = 0; i < mine; i++)
			write_piece(f, PIECE_OF(rank, i), 0);
		if (matrices)
			for (int i = 0; i < mine;
				i++) { // what a rank wrote itself it sees without sync
				expect_piece(f, PIECE_OF(rank, i), 0);
				write_piece(f, PIECE_OF(rank, i), 1);
			}
		meet(f);
		for (int i = 0; i < mine; i++)
			expect_piece(f, PIECE_OF((rank + 1) % ranks, i), generation);
	} else
		for (int i = rank; i < all; i += ranks)
			expect_piece(f, i, generation);
	MPI_Offset size;
	MPI_File_get_size(f, &size);
	check(MPI_File_close(&f), "close");
	if (rank == 0)
		printf("%s %s: %lld bytes\n", pattern, what, (long long)size);
	MPI_Finalize();
	return size == (MPI_Offset)all * PIECE ? 0 : 1;
}
