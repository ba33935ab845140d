/* The data representation external32: big-endian, of the standard's sizes, through every kind of
 * call. What has to be in the file is computed here, byte by byte. */
#include "t.h"

#include <stdbool.h>
#include <stddef.h>

#define ROOM 65536

/* The bytes of an integer there. */
static void big(unsigned char *to, int bytes, long long value)
{
	for (int i = bytes - 1; i >= 0; i--, value >>= 8)
		to[i] = (unsigned char)value;
}

static void view_of(MPI_File f, MPI_Offset disp, MPI_Datatype etype, MPI_Datatype filetype)
{
	OK(MPI_File_set_view(f, disp, etype, filetype, "external32", MPI_INFO_NULL));
}

/* The file has these bytes from `at` on. Collective. */
static bool has(MPI_File f, MPI_Offset at, const void *bytes, int n)
{
	unsigned char *got = calloc(1, (size_t)n + 1);
	OK(MPI_File_sync(f));
	MPI_Barrier(MPI_COMM_WORLD);
	OK(MPI_File_set_view(f, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL));
	OK(MPI_File_read_at(f, at, got, n, MPI_BYTE, MPI_STATUS_IGNORE));
	bool same = memcmp(got, bytes, (size_t)n) == 0;
	for (int i = 0; !same && i < n; i++)
		if (got[i] != ((unsigned char *)bytes)[i]) {
			printf("rank %d: byte %d is %02x, not %02x\n", rank, i, got[i],
				((unsigned char *)bytes)[i]);
			break;
		}
	free(got);
	return same;
}

/* --- Every call, on ints that are two of three in the file --- */

enum form { AT, AT_ALL, POINTER, POINTER_ALL, IAT, IPOINTER, IAT_ALL, SPLIT_AT, SPLIT, FORMS };

static void move(
	MPI_File f, enum form form, bool write, MPI_Offset at, int *buf, int n, MPI_Status *status)
{
	MPI_Request request = MPI_REQUEST_NULL;
	bool is_pointer = form == POINTER || form == POINTER_ALL || form == IPOINTER ||
			  form == SPLIT;
	if (is_pointer)
		OK(MPI_File_seek(f, at, MPI_SEEK_SET));
	switch (form) {
	case AT:
		OK(write ? MPI_File_write_at(f, at, buf, n, MPI_INT, status)
			 : MPI_File_read_at(f, at, buf, n, MPI_INT, status));
		break;
	case AT_ALL:
		OK(write ? MPI_File_write_at_all(f, at, buf, n, MPI_INT, status)
			 : MPI_File_read_at_all(f, at, buf, n, MPI_INT, status));
		break;
	case POINTER:
		OK(write ? MPI_File_write(f, buf, n, MPI_INT, status)
			 : MPI_File_read(f, buf, n, MPI_INT, status));
		break;
	case POINTER_ALL:
		OK(write ? MPI_File_write_all(f, buf, n, MPI_INT, status)
			 : MPI_File_read_all(f, buf, n, MPI_INT, status));
		break;
	case IAT:
		OK(write ? MPI_File_iwrite_at(f, at, buf, n, MPI_INT, &request)
			 : MPI_File_iread_at(f, at, buf, n, MPI_INT, &request));
		break;
	case IPOINTER:
		OK(write ? MPI_File_iwrite(f, buf, n, MPI_INT, &request)
			 : MPI_File_iread(f, buf, n, MPI_INT, &request));
		break;
	case IAT_ALL:
		OK(write ? MPI_File_iwrite_at_all(f, at, buf, n, MPI_INT, &request)
			 : MPI_File_iread_at_all(f, at, buf, n, MPI_INT, &request));
		break;
	case SPLIT_AT:
		OK(write ? MPI_File_write_at_all_begin(f, at, buf, n, MPI_INT)
			 : MPI_File_read_at_all_begin(f, at, buf, n, MPI_INT));
		OK(write ? MPI_File_write_at_all_end(f, buf, status)
			 : MPI_File_read_at_all_end(f, buf, status));
		break;
	case SPLIT:
		OK(write ? MPI_File_write_all_begin(f, buf, n, MPI_INT)
			 : MPI_File_read_all_begin(f, buf, n, MPI_INT));
		OK(write ? MPI_File_write_all_end(f, buf, status)
			 : MPI_File_read_all_end(f, buf, status));
		break;
	default:
		break;
	}
	if (request != MPI_REQUEST_NULL)
		OK(MPI_Wait(&request, status));
	if (is_pointer) {
		MPI_Offset now = -1;
		OK(MPI_File_get_position(f, &now));
		CHECK(now == at + n);
	}
}

static void forms(void)
{
	MPI_Datatype two;
	MPI_Type_vector(2, 2, 3, MPI_INT, &two);
	MPI_Type_create_resized(two, 0, 24, &two);
	MPI_Type_commit(&two);
	for (enum form form = 0; form < FORMS; form++) {
		MPI_File f = open_new("forms", MPI_MODE_RDWR);
		MPI_Status status;
		int out[10], in[10];
		unsigned char bytes[60] = {0};
		/* Ten ints from etype 3 on: places 4, 6, 7, 9, 10, ... of ints in threes. */
		for (int i = 0; i < 10; i++) {
			out[i] = (rank + 1) * 1000000 + form * 1000 + i;
			int k = 3 + i;
			big(bytes + 4 * (k / 2 * 3 + k % 2 - 4), 4, out[i]);
		}
		memset(in, 0, sizeof in);
		view_of(f, rank * 1000, MPI_INT, two);
		move(f, form, true, 3, out, 10, &status);
		CHECK(count_of(&status, MPI_INT) == 10);
		move(f, form, false, 3, in, 10, &status);
		CHECK(count_of(&status, MPI_INT) == 10);
		CHECK(memcmp(in, out, sizeof in) == 0);
		MPI_Offset disp = -1, offset = -1;
		MPI_Datatype etype, filetype;
		char name[MPI_MAX_DATAREP_STRING] = "";
		OK(MPI_File_get_view(f, &disp, &etype, &filetype, name));
		CHECK(strcmp(name, "external32") == 0 && disp == rank * 1000 && etype == MPI_INT);
		MPI_Type_free(&filetype);
		OK(MPI_File_get_byte_offset(f, 4, &offset));
		CHECK(offset == rank * 1000 + 24);
		CHECK(has(f, rank * 1000 + 16, bytes, 48));
		OK(MPI_File_close(&f));
	}
	MPI_Type_free(&two);
}

/* By the shared pointer, in order of rank and not. */
static void shared(void)
{
	MPI_File f = open_new("shared", MPI_MODE_RDWR);
	MPI_Status status;
	MPI_Request request;
	long out[2] = {rank * 2 + 1, rank * 2 + 2}, in[2] = {0};
	unsigned char bytes[ROOM] = {0};
	view_of(f, 8, MPI_LONG, MPI_LONG);
	OK(MPI_File_write_ordered(f, out, 2, MPI_LONG, &status));
	CHECK(count_of(&status, MPI_LONG) == 2);
	OK(MPI_File_write_ordered_begin(f, out, 2, MPI_LONG));
	OK(MPI_File_write_ordered_end(f, out, &status));
	MPI_Offset at = -1;
	MPI_Barrier(MPI_COMM_WORLD);
	OK(MPI_File_get_position_shared(f, &at));
	CHECK(at == 4 * ranks);
	MPI_Barrier(MPI_COMM_WORLD);
	OK(MPI_File_write_shared(f, out, 2, MPI_LONG, &status));
	OK(MPI_File_iwrite_shared(f, out, 2, MPI_LONG, &request));
	OK(MPI_Wait(&request, &status));
	MPI_Barrier(MPI_COMM_WORLD);
	OK(MPI_File_get_position_shared(f, &at));
	CHECK(at == 8 * ranks);
	OK(MPI_File_seek_shared(f, 2 * ranks, MPI_SEEK_SET));
	OK(MPI_File_read_ordered(f, in, 2, MPI_LONG, &status));
	CHECK(in[0] == out[0] && in[1] == out[1]);
	MPI_Offset size = -1;
	MPI_Barrier(MPI_COMM_WORLD);
	OK(MPI_File_get_size(f, &size));
	CHECK(size == 8 + 8 * ranks * 4);
	for (int i = 0; i < 4 * ranks; i++)
		big(bytes + 4 * i, 4, i % (2 * ranks) + 1);
	CHECK(has(f, 8, bytes, 16 * ranks));
	OK(MPI_File_close(&f));
}

/* --- Sizes --- */

static void extent_is(MPI_File f, MPI_Datatype type, MPI_Aint right)
{
	MPI_Aint extent = -1;
	OK(MPI_File_get_type_extent(f, type, &extent));
	if (extent != right)
		printf("rank %d: extent %ld, not %ld\n", rank, (long)extent, (long)right);
	CHECK(extent == right);
}

/* What counts in extents becomes smaller with its elements, what counts in bytes stays. */
static void extents(void)
{
	MPI_File f = open_new("extents", MPI_MODE_RDWR);
	MPI_Datatype t, u;
	view_of(f, 0, MPI_BYTE, MPI_BYTE);
	extent_is(f, MPI_LONG, 4);
	extent_is(f, MPI_UNSIGNED_LONG, 4);
	extent_is(f, MPI_LONG_LONG, 8);
	extent_is(f, MPI_AINT, 8);
	extent_is(f, MPI_OFFSET, 8);
	extent_is(f, MPI_SHORT, 2);
	extent_is(f, MPI_DOUBLE, 8);
	extent_is(f, MPI_LONG_DOUBLE, 16);
	extent_is(f, MPI_C_DOUBLE_COMPLEX, 16);
	extent_is(f, MPI_DOUBLE_INT, 16);
	MPI_Type_vector(3, 2, 5, MPI_LONG, &t);
	extent_is(f, t, 12 * 4);
	MPI_Type_contiguous(3, t, &u);
	extent_is(f, u, 36 * 4);
	MPI_Type_free(&u);
	MPI_Type_create_hvector(3, 2, 40, MPI_LONG, &u);
	extent_is(f, u, 88);
	MPI_Type_free(&u);
	MPI_Type_create_resized(t, 0, 200, &u);
	extent_is(f, u, 200);
	MPI_Type_free(&u);
	MPI_Type_free(&t);
	MPI_Type_indexed(2, (int[]){1, 2}, (int[]){1, 4}, MPI_LONG, &t);
	extent_is(f, t, 5 * 4);
	MPI_Type_free(&t);
	MPI_Type_create_subarray(
		2, (int[]){4, 6}, (int[]){2, 3}, (int[]){1, 1}, MPI_ORDER_C, MPI_LONG, &t);
	extent_is(f, t, 24 * 4);
	MPI_Type_free(&t);
	/* No size differs: as in memory, with the padding of the struct. */
	MPI_Type_create_struct(
		2, (int[]){1, 1}, (MPI_Aint[]){0, 8}, (MPI_Datatype[]){MPI_DOUBLE, MPI_INT}, &t);
	MPI_Aint lb, native;
	MPI_Type_get_extent(t, &lb, &native);
	extent_is(f, t, native);
	MPI_Type_free(&t);
	OK(MPI_File_set_view(f, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL));
	extent_is(f, MPI_LONG, sizeof(long));
	OK(MPI_File_close(&f));
}

/* Longs in a view of longs with gaps. */
static void longs(void)
{
	MPI_File f = open_new("longs", MPI_MODE_RDWR);
	MPI_Datatype mine;
	MPI_Type_create_subarray(
		1, (int[]){3 * ranks}, (int[]){3}, (int[]){3 * rank}, MPI_ORDER_C, MPI_LONG, &mine);
	MPI_Type_commit(&mine);
	long out[9], in[9] = {0};
	unsigned char bytes[ROOM] = {0};
	for (int i = 0; i < 9; i++)
		out[i] = i % 2 ? -(rank * 9 + i) : rank * 9 + i;
	for (int r = 0; r < ranks; r++)
		for (int i = 0; i < 9; i++)
			big(bytes + 4 * (i / 3 * 3 * ranks + 3 * r + i % 3), 4,
				i % 2 ? -(r * 9 + i) : r * 9 + i);
	MPI_Status status;
	view_of(f, 0, MPI_LONG, mine);
	OK(MPI_File_write_all(f, out, 9, MPI_LONG, &status));
	CHECK(count_of(&status, MPI_LONG) == 9);
	MPI_Offset at = -1;
	OK(MPI_File_sync(f));
	MPI_Barrier(MPI_COMM_WORLD);
	OK(MPI_File_seek(f, 0, MPI_SEEK_END));
	OK(MPI_File_get_position(f, &at));
	CHECK(at == 9);
	OK(MPI_File_read_at_all(f, 0, in, 9, MPI_LONG, &status));
	CHECK(count_of(&status, MPI_LONG) == 9 && memcmp(in, out, sizeof in) == 0);
	/* Three of them are there. */
	memset(in, 7, sizeof in);
	OK(MPI_File_read_at_all(f, 6, in, 9, MPI_LONG, &status));
	CHECK(count_of(&status, MPI_LONG) == 3 && memcmp(in, out + 6, 3 * sizeof *in) == 0);
	CHECK(in[3] == 0x0707070707070707);
	CHECK(has(f, 0, bytes, 36 * ranks));
	MPI_Type_free(&mine);
	OK(MPI_File_close(&f));
}

/* --- Memory in pieces, of several types --- */

struct thing {
	char c;
	long l;
	double d[2];
	short s;
};

static void things(void)
{
	MPI_File f = open_new("things", MPI_MODE_RDWR);
	MPI_Datatype t, thing;
	MPI_Type_create_struct(4, (int[]){1, 1, 2, 1},
		(MPI_Aint[]){offsetof(struct thing, c), offsetof(struct thing, l),
			offsetof(struct thing, d), offsetof(struct thing, s)},
		(MPI_Datatype[]){MPI_CHAR, MPI_LONG, MPI_DOUBLE, MPI_SHORT}, &t);
	MPI_Type_create_resized(t, 0, sizeof(struct thing), &thing);
	MPI_Type_commit(&thing);
	struct thing out[3], in[4];
	unsigned char bytes[3 * 23];
	memset(out, 0, sizeof out);
	memset(in, 0x55, sizeof in);
	for (int i = 0; i < 3; i++) {
		unsigned char *b = bytes + i * 23;
		out[i] = (struct thing){'a' + i, -5 - i, {1.5, -3.25}, 258 + i};
		b[0] = 'a' + i;
		big(b + 1, 4, -5 - i);
		big(b + 5, 8, 0x3ff8000000000000);
		big(b + 13, 8, 0xc00a000000000000);
		big(b + 21, 2, 258 + i);
	}
	MPI_Status status;
	MPI_Offset base = rank * 100;
	view_of(f, base, MPI_BYTE, MPI_BYTE);
	OK(MPI_File_write_at(f, 0, out, 3, thing, &status));
	CHECK(count_of(&status, thing) == 3);
	OK(MPI_File_read_at(f, 0, in, 3, thing, &status));
	CHECK(count_of(&status, thing) == 3);
	for (int i = 0; i < 3; i++)
		CHECK(in[i].c == out[i].c && in[i].l == out[i].l && in[i].d[0] == 1.5 &&
			in[i].d[1] == -3.25 && in[i].s == out[i].s);
	/* Between them nothing is touched. */
	CHECK(((char *)in)[1] == 0x55 && in[3].l == 0x5555555555555555);
	CHECK(has(f, base, bytes, sizeof bytes));
	OK(MPI_File_close(&f));
	MPI_Type_free(&t);
	MPI_Type_free(&thing);
}

/* The end of a file in the middle of a struct: whole elements are read, and nothing else. */
static void ends(void)
{
	MPI_File f = open_new("ends", MPI_MODE_RDWR);
	MPI_Datatype pair;
	struct {
		int i;
		double d;
	} in[3];
	MPI_Type_create_struct(
		2, (int[]){1, 1}, (MPI_Aint[]){0, 8}, (MPI_Datatype[]){MPI_INT, MPI_DOUBLE}, &pair);
	MPI_Type_commit(&pair);
	view_of(f, 0, MPI_BYTE, MPI_BYTE);
	if (rank == 0) {
		int i = 7;
		double d = 1.5;
		OK(MPI_File_write_at(f, 0, &i, 1, MPI_INT, MPI_STATUS_IGNORE));
		OK(MPI_File_write_at(f, 4, &d, 1, MPI_DOUBLE, MPI_STATUS_IGNORE));
		OK(MPI_File_write_at(f, 12, &i, 1, MPI_INT, MPI_STATUS_IGNORE));
		OK(MPI_File_write_at(f, 16, &i, 1, MPI_INT, MPI_STATUS_IGNORE));
	}
	OK(MPI_File_sync(f));
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Status status;
	memset(in, 0x55, sizeof in);
	OK(MPI_File_read_at(f, 0, in, 3, pair, &status));
	int elements = -1;
	MPI_Get_elements(&status, pair, &elements);
	CHECK(elements == 3);
	CHECK(in[0].i == 7 && in[0].d == 1.5 && in[1].i == 7);
	CHECK(((char *)&in[1].d)[0] == 0x55 && in[2].i == 0x55555555);
	OK(MPI_File_close(&f));
	MPI_Type_free(&pair);
}

static void pairs(void)
{
	struct {
		double value;
		int place;
	} out[2] = {{1.5, 7}, {-3.25, 8}}, in[2];
	struct {
		short value;
		int place;
	} small[2] = {{1, 2}, {3, 4}}, small_in[2];
	wchar_t wide[2] = {0x263a, 65}, wide_in[2] = {0};
	unsigned char bytes[32] = {0};
	MPI_File f = open_new("pairs", MPI_MODE_RDWR);
	MPI_Offset base = rank * 100;
	memset(in, 0, sizeof in);
	memset(small_in, 0, sizeof small_in);
	view_of(f, base, MPI_BYTE, MPI_BYTE);
	OK(MPI_File_write_at(f, 0, out, 2, MPI_DOUBLE_INT, MPI_STATUS_IGNORE));
	OK(MPI_File_read_at(f, 0, in, 2, MPI_DOUBLE_INT, MPI_STATUS_IGNORE));
	CHECK(in[0].value == 1.5 && in[0].place == 7 && in[1].value == -3.25 && in[1].place == 8);
	big(bytes, 8, 0x3ff8000000000000);
	big(bytes + 8, 4, 7);
	big(bytes + 12, 8, 0xc00a000000000000);
	big(bytes + 20, 4, 8);
	CHECK(has(f, base, bytes, 24));
	view_of(f, base, MPI_BYTE, MPI_BYTE);
	OK(MPI_File_write_at(f, 0, small, 2, MPI_SHORT_INT, MPI_STATUS_IGNORE));
	OK(MPI_File_read_at(f, 0, small_in, 2, MPI_SHORT_INT, MPI_STATUS_IGNORE));
	CHECK(small_in[0].value == 1 && small_in[0].place == 2 && small_in[1].place == 4);
	OK(MPI_File_write_at(f, 50, wide, 2, MPI_WCHAR, MPI_STATUS_IGNORE));
	OK(MPI_File_read_at(f, 50, wide_in, 2, MPI_WCHAR, MPI_STATUS_IGNORE));
	CHECK(wide_in[0] == 0x263a && wide_in[1] == 65);
	/* As etype they keep the hole that they have in memory. */
	view_of(f, base, MPI_DOUBLE_INT, MPI_DOUBLE_INT);
	OK(MPI_File_write_at(f, 0, out, 2, MPI_DOUBLE_INT, MPI_STATUS_IGNORE));
	memset(in, 0, sizeof in);
	OK(MPI_File_read_at(f, 1, in, 1, MPI_DOUBLE_INT, MPI_STATUS_IGNORE));
	CHECK(in[0].value == -3.25 && in[0].place == 8);
	OK(MPI_File_close(&f));
}

/* What an MPI does not convert is refused, as long doubles of Open MPI, which gives other values
 * back on a plain file. */
static void long_doubles(void)
{
	long double out[2] = {1.5L, -3.25L}, in[2] = {0};
	MPI_File f = open_new("longer", MPI_MODE_RDWR);
	view_of(f, rank * 32, MPI_BYTE, MPI_BYTE);
	int code = MPI_File_write_at(f, 0, out, 2, MPI_LONG_DOUBLE, MPI_STATUS_IGNORE);
	if (code == MPI_SUCCESS) {
		OK(MPI_File_read_at(f, 0, in, 2, MPI_LONG_DOUBLE, MPI_STATUS_IGNORE));
		CHECK(in[0] == 1.5L && in[1] == -3.25L);
		unsigned char bytes[32] = {0x3f, 0xff, 0x80, [16] = 0xc0, 0x00, 0xa0};
		CHECK(has(f, rank * 32, bytes, 32));
	} else {
		CHECK(class_of(code) == MPI_ERR_CONVERSION);
		MPI_Offset size = -1;
		OK(MPI_File_get_size(f, &size));
		CHECK(size == 0);
		CHECK(has(f, 0, "", 0));
	}
	OK(MPI_File_close(&f));
}

/* More than is converted at a time, dense and not. */
static void many(void)
{
	int n = 5000000 / ranks, bad = 0;
	int *out = malloc(2 * sizeof *out * (size_t)n), *in = calloc((size_t)n, 2 * sizeof *in);
	for (int i = 0; i < 2 * n; i++)
		out[i] = i * 7 + rank;
	MPI_File f = open_new("many", MPI_MODE_RDWR);
	MPI_Status status;
	view_of(f, (MPI_Offset)rank * n * 4, MPI_INT, MPI_INT);
	OK(MPI_File_write_at(f, 0, out, n, MPI_INT, &status));
	CHECK(count_of(&status, MPI_INT) == n);
	OK(MPI_File_read_at(f, 0, in, n, MPI_INT, &status));
	CHECK(count_of(&status, MPI_INT) == n);
	CHECK(memcmp(in, out, sizeof *in * (size_t)n) == 0);
	MPI_Datatype every_other;
	MPI_Type_create_resized(MPI_INT, 0, 8, &every_other);
	MPI_Type_commit(&every_other);
	OK(MPI_File_write_at(f, 0, out, n, every_other, &status));
	memset(in, 0, sizeof *in * (size_t)n);
	OK(MPI_File_read_at(f, 0, in, n, every_other, &status));
	CHECK(count_of(&status, every_other) == n);
	for (int i = 0; i < n; i++)
		bad += in[2 * i] != out[2 * i] || (i > n / 2 && in[2 * i + 1] != 0);
	CHECK(bad == 0);
	/* One datatype that is larger than the buffer. */
	MPI_Datatype all;
	MPI_Type_contiguous(n, every_other, &all);
	MPI_Type_commit(&all);
	memset(in, 0, 2 * sizeof *in * (size_t)n);
	OK(MPI_File_read_at(f, 0, in, 1, all, &status));
	CHECK(count_of(&status, all) == 1);
	for (int i = 0; i < n; i++)
		bad += in[2 * i] != out[2 * i] || in[2 * i + 1] != 0;
	CHECK(bad == 0);
	MPI_Type_free(&all);
	MPI_Type_free(&every_other);
	OK(MPI_File_close(&f));
	free(out);
	free(in);
}

/* --- What is refused --- */

static int extent_fn(MPI_Datatype type, MPI_Aint *extent, void *state)
{
	MPI_Aint lb;
	return MPI_Type_get_extent(type, &lb, extent);
}

static void refused(void)
{
	MPI_File f = open_new("refused", MPI_MODE_RDWR);
	GIVES(MPI_ERR_UNSUPPORTED_DATAREP,
		MPI_File_set_view(f, 0, MPI_INT, MPI_INT, "external64", MPI_INFO_NULL));
	/* One that the program registered is not served by the MPIs either. */
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	MPI_Register_datarep(
		"ours", MPI_CONVERSION_FN_NULL, MPI_CONVERSION_FN_NULL, extent_fn, NULL);
	GIVES(MPI_ERR_UNSUPPORTED_DATAREP,
		MPI_File_set_view(f, 0, MPI_INT, MPI_INT, "ours", MPI_INFO_NULL));
	/* The representation is to be the same everywhere. */
	if (ranks > 1)
		GIVES(MPI_ERR_NOT_SAME,
			MPI_File_set_view(f, 0, MPI_INT, MPI_INT,
				rank == 0 ? "external32" : "internal", MPI_INFO_NULL));
	/* A long is one etype of 4 bytes; a byte is part of one. */
	char byte = 0;
	view_of(f, 0, MPI_LONG, MPI_LONG);
	GIVES(MPI_ERR_IO, MPI_File_write_at(f, 0, &byte, 1, MPI_BYTE, MPI_STATUS_IGNORE));
	OK(MPI_File_close(&f));
}

int main(int argc, char **argv)
{
	start(argc, argv);
	forms();
	shared();
	extents();
	longs();
	things();
	ends();
	pairs();
	long_doubles();
	many();
	refused();
	return finish();
}
