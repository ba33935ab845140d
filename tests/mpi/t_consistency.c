/* Who sees what when: own writes, sync, atomic mode, sizes, close and open; without an edit to what
 * codes do. */
#include "t.h"

static void sync_barrier_sync(void)
{
	MPI_File f = open_new("sync", MPI_MODE_RDWR);
	int value, back;
	for (int round = 1; round <= 3; round++) {
		value = round * 100 + rank;
		OK(MPI_File_write_at(f, rank * 4, &value, 1, MPI_INT, MPI_STATUS_IGNORE));
		/* Own writes at once. */
		OK(MPI_File_read_at(f, rank * 4, &back, 1, MPI_INT, MPI_STATUS_IGNORE));
		CHECK(back == value);
		OK(MPI_File_sync(f));
		MPI_Barrier(MPI_COMM_WORLD);
		OK(MPI_File_sync(f));
		OK(MPI_File_read_at(
			f, (rank + 1) % ranks * 4, &back, 1, MPI_INT, MPI_STATUS_IGNORE));
		CHECK(back == round * 100 + (rank + 1) % ranks);
		MPI_Barrier(MPI_COMM_WORLD);
	}
	OK(MPI_File_close(&f));
}

/* What HDF5 and PnetCDF rely on and MPI does not promise: on a file for reading and writing, what a
 * rank wrote is there for the others after a barrier, and for any collective read. (PnetCDF moved
 * zeros where data was, and it was lost.) */
static void without_sync(void)
{
	MPI_File f = open_new("without", MPI_MODE_RDWR);
	int next = (rank + 1) % ranks, back;
	for (int round = 1; round <= 5; round++) {
		int value = round * 100 + rank, expect = round * 100 + next;
		OK(MPI_File_write_at_all(f, rank * 4, &value, 1, MPI_INT, MPI_STATUS_IGNORE));
		back = 0;
		OK(MPI_File_read_at_all(f, next * 4, &back, 1, MPI_INT, MPI_STATUS_IGNORE));
		CHECK(back == expect);
		OK(MPI_File_seek(f, 100 + rank * 4, MPI_SEEK_SET));
		OK(MPI_File_write(f, &value, 1, MPI_INT, MPI_STATUS_IGNORE));
		MPI_Barrier(MPI_COMM_WORLD);
		back = 0;
		OK(MPI_File_read_at(f, 100 + next * 4, &back, 1, MPI_INT, MPI_STATUS_IGNORE));
		CHECK(back == expect);
		OK(MPI_File_seek(f, next * 4, MPI_SEEK_SET));
		back = 0;
		OK(MPI_File_read_all_begin(f, &back, 1, MPI_INT));
		OK(MPI_File_read_all_end(f, &back, MPI_STATUS_IGNORE));
		CHECK(back == expect);
		MPI_Barrier(MPI_COMM_WORLD);
	}
	OK(MPI_File_close(&f));
}

/* Each rank overwrites what its neighbour wrote: the later one wins, round after round. */
static void overwrite(void)
{
	MPI_File f = open_new("over", MPI_MODE_RDWR);
	for (int round = 0; round < 5; round++) {
		for (int turn = 0; turn < ranks; turn++) {
			int value = round * 100 + turn, back = -1;
			if (turn == rank)
				OK(MPI_File_write_at(f, 0, &value, 1, MPI_INT, MPI_STATUS_IGNORE));
			OK(MPI_File_sync(f));
			OK(MPI_File_read_at(f, 0, &back, 1, MPI_INT, MPI_STATUS_IGNORE));
			CHECK(back == value);
			OK(MPI_File_sync(f));
		}
	}
	OK(MPI_File_close(&f));
}

/* Atomic: a write is seen when it returned, and whole, whatever the view. */
static void atomic(void)
{
	enum { N = 3000, ROUNDS = 10 };
	MPI_File f = open_new("atomic", MPI_MODE_RDWR);
	int flag = -1, buf[N];
	OK(MPI_File_get_atomicity(f, &flag));
	CHECK(flag == 0);
	OK(MPI_File_set_atomicity(f, 1));
	OK(MPI_File_get_atomicity(f, &flag));
	CHECK(flag == 1);
	if (rank == 0) {
		memset(buf, 0, sizeof buf);
		OK(MPI_File_write_at(f, 0, buf, N, MPI_INT, MPI_STATUS_IGNORE));
	}
	MPI_Barrier(MPI_COMM_WORLD);
	OK(MPI_File_read_at(f, 0, buf, N, MPI_INT, MPI_STATUS_IGNORE));
	CHECK(buf[N - 1] == 0);
	MPI_Datatype scattered;
	/* Without a pattern: many records, which must not mix with others'. */
	static int places[N];
	for (int i = 0; i < N; i++)
		places[i] = 5 * i + i * i % 4;
	MPI_Type_create_indexed_block(N, 1, places, MPI_INT, &scattered);
	MPI_Type_commit(&scattered);
	OK(MPI_File_set_view(f, 0, MPI_INT, scattered, "native", MPI_INFO_NULL));
	MPI_Type_free(&scattered);
	/* All write the same pieces at once: nobody ever sees two writers' values side by side. */
	for (int i = 0; i < N; i++)
		buf[i] = 77;
	if (rank == 0)
		OK(MPI_File_write_at(f, 0, buf, N, MPI_INT, MPI_STATUS_IGNORE));
	MPI_Barrier(MPI_COMM_WORLD);
	for (int round = 0; round < ROUNDS; round++) {
		int mixed = 0;
		for (int i = 0; i < N; i++)
			buf[i] = 1000 + rank * 100 + round;
		OK(MPI_File_write_at(f, 0, buf, N, MPI_INT, MPI_STATUS_IGNORE));
		OK(MPI_File_read_at(f, 0, buf, N, MPI_INT, MPI_STATUS_IGNORE));
		for (int i = 1; i < N; i++)
			mixed += buf[i] != buf[0];
		CHECK(mixed == 0);
	}
	OK(MPI_File_set_atomicity(f, 0));
	/* A message is enough for the next to see it. */
	OK(MPI_File_set_atomicity(f, 1));
	OK(MPI_File_set_view(f, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
	for (int turn = 0; turn < ranks; turn++) {
		int value = 5000 + turn, back = -1;
		if (rank == turn)
			OK(MPI_File_write_at(f, 1, &value, 1, MPI_INT, MPI_STATUS_IGNORE));
		MPI_Barrier(MPI_COMM_WORLD);
		OK(MPI_File_read_at(f, 1, &back, 1, MPI_INT, MPI_STATUS_IGNORE));
		CHECK(back == value);
		MPI_Barrier(MPI_COMM_WORLD);
	}
	OK(MPI_File_close(&f));
}

static void sizes(void)
{
	MPI_File f = open_new("sizes", MPI_MODE_RDWR);
	MPI_Offset size = -1;
	char block[1000];
	MPI_Status status;
	memset(block, 'a' + rank, sizeof block);
	OK(MPI_File_write_at_all(f, rank * 1000, block, 1000, MPI_BYTE, MPI_STATUS_IGNORE));
	/* Cuts what all wrote before, without a sync. */
	OK(MPI_File_set_size(f, 500));
	OK(MPI_File_get_size(f, &size));
	CHECK(size == 500);
	OK(MPI_File_read_at(f, 0, block, 1000, MPI_BYTE, &status));
	CHECK(count_of(&status, MPI_BYTE) == 500 && block[499] == 'a');
	OK(MPI_File_preallocate(f, 300));
	OK(MPI_File_get_size(f, &size));
	CHECK(size == 500);
	OK(MPI_File_preallocate(f, 5000));
	OK(MPI_File_get_size(f, &size));
	CHECK(size == 5000);
	OK(MPI_File_read_at(f, 0, block, 1000, MPI_BYTE, &status));
	CHECK(block[499] == 'a' && block[500] == 0 && block[999] == 0);
	OK(MPI_File_set_size(f, (MPI_Offset)1 << 40));
	OK(MPI_File_get_size(f, &size));
	CHECK(size == (MPI_Offset)1 << 40);
	/* What is written after the cut stays. */
	OK(MPI_File_set_size(f, 0));
	block[0] = 'z';
	OK(MPI_File_write_at(f, rank, block, 1, MPI_BYTE, &status));
	OK(MPI_File_sync(f));
	OK(MPI_File_get_size(f, &size));
	CHECK(size == ranks);
	OK(MPI_File_read_at(f, 0, block, ranks, MPI_BYTE, &status));
	CHECK(block[ranks - 1] == 'z');
	GIVES(MPI_ERR_ARG, MPI_File_set_size(f, -1));
	/* One rank alone may ask: programs have rank 0 tell the others. */
	if (rank == 0)
		OK(MPI_File_get_size(f, &size));
	OK(MPI_File_close(&f));
}

/* Written by all, scattered, closed; opened again and read by others, also by fewer. */
static void close_to_open(void)
{
	enum { PIECES = 50, LENGTH = 4701 };
	MPI_File f = open_new("ckpt", MPI_MODE_WRONLY);
	char *piece = malloc(LENGTH);
	for (int i = 0; i < PIECES; i++) {
		memset(piece, 1 + (i * ranks + rank) % 250, LENGTH);
		OK(MPI_File_write_at(f, (MPI_Offset)(i * ranks + rank) * LENGTH, piece, LENGTH,
			MPI_BYTE, MPI_STATUS_IGNORE));
	}
	OK(MPI_File_close(&f));
	OK(MPI_File_open(MPI_COMM_WORLD, path_of("ckpt"), MPI_MODE_RDONLY, MPI_INFO_NULL, &f));
	MPI_Offset size = 0;
	OK(MPI_File_get_size(f, &size));
	CHECK(size == (MPI_Offset)PIECES * ranks * LENGTH);
	int bad = 0;
	for (int i = rank; i < PIECES * ranks; i += 3) {
		OK(MPI_File_read_at(
			f, (MPI_Offset)i * LENGTH, piece, LENGTH, MPI_BYTE, MPI_STATUS_IGNORE));
		bad += piece[0] != (char)(1 + i % 250) || piece[LENGTH - 1] != piece[0];
	}
	CHECK(bad == 0);
	OK(MPI_File_close(&f));
	if (rank == 0) {
		/* The same file, as the POSIX door sees it. */
		FILE *stream = fopen(path_of("ckpt"), "r");
		CHECK(stream && fseek(stream, 0, SEEK_END) == 0 && ftell(stream) == (long)size);
		if (stream)
			fclose(stream);
	}
	free(piece);
}

int main(int argc, char **argv)
{
	start(argc, argv);
	sync_barrier_sync();
	without_sync();
	overwrite();
	atomic();
	sizes();
	close_to_open();
	return finish();
}
