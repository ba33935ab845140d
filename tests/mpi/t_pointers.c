/* The three kinds of pointers, and the ways to wait: blocking, non-blocking, split. */
#include "t.h"

static void individual(MPI_File f)
{
	int out[10], in[10];
	MPI_Status status;
	MPI_Offset at = -1;
	for (int i = 0; i < 10; i++)
		out[i] = rank * 100 + i;
	OK(MPI_File_set_view(f, rank * 40, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
	for (int i = 0; i < 10; i += 2)
		OK(MPI_File_write(f, out + i, 2, MPI_INT, &status));
	OK(MPI_File_get_position(f, &at));
	CHECK(at == 10);
	OK(MPI_File_seek(f, -4, MPI_SEEK_CUR));
	OK(MPI_File_read(f, in, 2, MPI_INT, &status));
	CHECK(in[0] == out[6] && in[1] == out[7] && count_of(&status, MPI_INT) == 2);
	GIVES(MPI_ERR_ARG, MPI_File_seek(f, -100, MPI_SEEK_CUR));
	GIVES(MPI_ERR_ARG, MPI_File_seek(f, 0, 12345));
	OK(MPI_File_get_position(f, &at));
	CHECK(at == 8);
	OK(MPI_File_sync(f));

	/* The end is counted in the view: behind the holes that the view leaves out. */
	MPI_Datatype every_other, t;
	MPI_Type_contiguous(1, MPI_INT, &t);
	MPI_Type_create_resized(t, 0, 8, &every_other);
	MPI_Type_commit(&every_other);
	OK(MPI_File_set_view(f, 0, MPI_INT, every_other, "native", MPI_INFO_NULL));
	OK(MPI_File_seek(f, 0, MPI_SEEK_END));
	OK(MPI_File_get_position(f, &at));
	CHECK(at == ranks * 5);
	OK(MPI_File_seek(f, -1, MPI_SEEK_END));
	int last = -1;
	OK(MPI_File_read(f, &last, 1, MPI_INT, &status));
	CHECK(last == (ranks - 1) * 100 + 8);
	/* At the end there is nothing, and less than was asked for before it. */
	OK(MPI_File_read(f, &last, 1, MPI_INT, &status));
	CHECK(count_of(&status, MPI_INT) == 0);
	OK(MPI_File_read_at(f, ranks * 5 - 2, in, 10, MPI_INT, &status));
	CHECK(count_of(&status, MPI_INT) == 2 && in[1] == last);
	MPI_Type_free(&t);
	MPI_Type_free(&every_other);
	/* In a view that begins past the end, the end is its first etype. */
	OK(MPI_File_set_view(f, 1000000, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
	OK(MPI_File_seek(f, 9, MPI_SEEK_END));
	OK(MPI_File_get_position(f, &at));
	CHECK(at == 9);
	GIVES(MPI_ERR_ARG, MPI_File_seek(f, -1, MPI_SEEK_END));
	OK(MPI_File_set_view(f, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL));
}

static void nonblocking(MPI_File f)
{
	int out[8], in[8] = {0};
	MPI_Request requests[4];
	MPI_Status statuses[4];
	OK(MPI_File_set_view(f, rank * 4096, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
	for (int i = 0; i < 8; i++)
		out[i] = rank * 1000 + i;
	OK(MPI_File_iwrite_at(f, 0, out, 2, MPI_INT, &requests[0]));
	OK(MPI_File_iwrite_at_all(f, 2, out + 2, 2, MPI_INT, &requests[1]));
	OK(MPI_File_seek(f, 4, MPI_SEEK_SET));
	OK(MPI_File_iwrite(f, out + 4, 3, MPI_INT, &requests[2]));
	OK(MPI_File_iwrite_all(f, out + 7, 1, MPI_INT, &requests[3]));
	OK(MPI_Waitall(4, requests, statuses));
	CHECK(count_of(&statuses[0], MPI_INT) == 2 && count_of(&statuses[2], MPI_INT) == 3);
	CHECK(requests[1] == MPI_REQUEST_NULL);
	OK(MPI_File_seek(f, 6, MPI_SEEK_SET));
	OK(MPI_File_iread_at(f, 0, in, 2, MPI_INT, &requests[0]));
	OK(MPI_File_iread_at_all(f, 2, in + 2, 4, MPI_INT, &requests[1]));
	OK(MPI_File_iread(f, in + 6, 1, MPI_INT, &requests[2]));
	OK(MPI_File_iread_all(f, in + 7, 1, MPI_INT, &requests[3]));
	int done = 0, cancelled = 1;
	OK(MPI_Test(&requests[0], &done, &statuses[0]));
	CHECK(done);
	MPI_Test_cancelled(&statuses[0], &cancelled);
	CHECK(!cancelled && count_of(&statuses[0], MPI_INT) == 2);
	OK(MPI_Waitall(3, requests + 1, MPI_STATUSES_IGNORE));
	CHECK(memcmp(out, in, sizeof in) == 0);
	requests[0] = MPI_REQUEST_NULL;
	GIVES(MPI_ERR_ARG, MPI_File_iwrite_at(f, -1, out, 1, MPI_INT, &requests[0]));
}

static void split(MPI_File f)
{
	int out[8], in[8] = {0};
	MPI_Status status;
	OK(MPI_File_set_view(f, rank * 4096, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
	for (int i = 0; i < 8; i++)
		out[i] = rank * 7000 + i;
	OK(MPI_File_write_all_begin(f, out, 4, MPI_INT));
	/* One at a time, and the end is that of what was begun. */
	GIVES(MPI_ERR_OTHER, MPI_File_read_all_begin(f, in, 4, MPI_INT));
	GIVES(MPI_ERR_OTHER, MPI_File_read_all_end(f, in, &status));
	OK(MPI_File_write_all_end(f, out, &status));
	CHECK(count_of(&status, MPI_INT) == 4);
	GIVES(MPI_ERR_OTHER, MPI_File_write_all_end(f, out, &status));
	OK(MPI_File_write_at_all_begin(f, 4, out + 4, 4, MPI_INT));
	OK(MPI_File_write_at_all_end(f, out + 4, &status));
	OK(MPI_File_read_at_all_begin(f, 0, in, 4, MPI_INT));
	OK(MPI_File_read_at_all_end(f, in, &status));
	OK(MPI_File_read_all_begin(f, in + 4, 4, MPI_INT));
	OK(MPI_File_read_all_end(f, in + 4, &status));
	CHECK(memcmp(out, in, sizeof in) == 0);
}

/* Every rank's pieces are whole, none is lost, and the pointer is behind them all. */
static void shared(MPI_File f)
{
	enum { PIECES = 20 };
	int piece[3];
	MPI_Status status;
	MPI_Request request;
	MPI_Offset at = -1;
	OK(MPI_File_set_view(f, 12, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
	for (int i = 0; i < PIECES; i++) {
		for (int k = 0; k < 3; k++)
			piece[k] = rank * 1000 + i;
		if (i % 2) {
			OK(MPI_File_write_shared(f, piece, 3, MPI_INT, &status));
			CHECK(count_of(&status, MPI_INT) == 3);
		} else {
			OK(MPI_File_iwrite_shared(f, piece, 3, MPI_INT, &request));
			OK(MPI_Wait(&request, &status));
		}
	}
	OK(MPI_File_sync(f));
	OK(MPI_File_get_position_shared(f, &at));
	CHECK(at == ranks * PIECES * 3);
	int *all = calloc((size_t)ranks * PIECES * 3, sizeof *all);
	OK(MPI_File_read_at(f, 0, all, ranks * PIECES * 3, MPI_INT, &status));
	int next[64] = {0}, bad = 0;
	for (int i = 0; i < ranks * PIECES; i++) {
		int who = all[3 * i] / 1000;
		bad += all[3 * i] != all[3 * i + 1] || all[3 * i] != all[3 * i + 2] || who < 0 ||
		       who >= ranks;
		if (!bad)
			bad += all[3 * i] % 1000 != next[who]++;
	}
	CHECK(bad == 0);
	free(all);

	/* Read by all from the start: each piece by one. */
	MPI_Barrier(MPI_COMM_WORLD);
	OK(MPI_File_seek_shared(f, 0, MPI_SEEK_SET));
	int got = 0, total = 0, sum = 0;
	for (;;) {
		OK(MPI_File_read_shared(f, piece, 3, MPI_INT, &status));
		if (count_of(&status, MPI_INT) != 3)
			break;
		got++;
		sum += piece[0];
	}
	MPI_Allreduce(&got, &total, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	CHECK(total == ranks * PIECES);
	MPI_Allreduce(&sum, &total, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	CHECK(total == ranks * (ranks - 1) / 2 * 1000 * PIECES + ranks * PIECES * (PIECES - 1) / 2);

	OK(MPI_File_seek_shared(f, 5, MPI_SEEK_SET));
	OK(MPI_File_seek_shared(f, -3, MPI_SEEK_CUR));
	OK(MPI_File_get_position_shared(f, &at));
	CHECK(at == 2);
	OK(MPI_File_seek_shared(f, 0, MPI_SEEK_END));
	OK(MPI_File_get_position_shared(f, &at));
	CHECK(at == ranks * PIECES * 3);
	GIVES(MPI_ERR_ARG, MPI_File_seek_shared(f, -10000000, MPI_SEEK_CUR));
	/* The individual pointer has not moved. */
	OK(MPI_File_get_position(f, &at));
	CHECK(at == 0);
	/* A new view sets all to 0. */
	OK(MPI_File_set_view(f, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
	OK(MPI_File_get_position_shared(f, &at));
	CHECK(at == 0);
}

static void ordered(MPI_File f)
{
	int out[64], in[64];
	MPI_Status status;
	MPI_Offset at = -1;
	int n = rank + 1, before = rank * (rank + 1) / 2, all = ranks * (ranks + 1) / 2;
	OK(MPI_File_set_view(f, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < n; i++)
			out[i] = round * 1000 + rank * 10 + i;
		if (round == 1) {
			OK(MPI_File_write_ordered_begin(f, out, n, MPI_INT));
			OK(MPI_File_write_ordered_end(f, out, &status));
		} else {
			OK(MPI_File_write_ordered(f, out, n, MPI_INT, &status));
		}
		CHECK(count_of(&status, MPI_INT) == n);
		OK(MPI_File_read_at(f, round * all + before, in, n, MPI_INT, &status));
		CHECK(memcmp(out, in, (size_t)n * 4) == 0);
	}
	OK(MPI_File_get_position_shared(f, &at));
	CHECK(at == 3 * all);
	OK(MPI_File_sync(f));
	OK(MPI_File_seek_shared(f, 0, MPI_SEEK_SET));
	OK(MPI_File_read_ordered(f, in, n, MPI_INT, &status));
	CHECK(count_of(&status, MPI_INT) == n && in[0] == rank * 10 &&
		in[n - 1] == rank * 10 + n - 1);
	OK(MPI_File_read_ordered_begin(f, in, n, MPI_INT));
	OK(MPI_File_read_ordered_end(f, in, &status));
	CHECK(in[0] == 1000 + rank * 10);
	/* An error of one rank does not keep the others. */
	int count = rank == ranks - 1 ? -1 : 1;
	GIVES(count < 0 ? MPI_ERR_COUNT : MPI_SUCCESS,
		MPI_File_write_ordered(f, out, count, MPI_INT, &status));
}

int main(int argc, char **argv)
{
	start(argc, argv);
	void (*const parts[])(MPI_File) = {individual, nonblocking, split, shared, ordered};
	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
		MPI_File f = open_new("pointers", MPI_MODE_RDWR);
		parts[i](f);
		OK(MPI_File_close(&f));
	}
	return finish();
}
