/* Views: every type constructor as file type and as memory type. Where each element has to be is
 * asked of the MPI itself, on a plain file with the same view. */
#include "t.h"

#define KINDS 14
#define MOST 4096 /* elements of one access */

/* A type of ints with extent at least its data, whose displacements grow. The i-th kind; each rank
 * may get its own. */
static MPI_Datatype make(int kind)
{
	MPI_Datatype t, u, result = MPI_DATATYPE_NULL;
	int lengths[] = {1, 3, 2}, places[] = {1, 4, 9}, even[] = {0, 5, 10};
	MPI_Aint bytes[] = {4, 24, 48};
	int sizes[] = {4, 6, 5}, subsizes[] = {2, 3, 2}, starts[] = {1, 2, 3};
	int grid[] = {2, 2}, gsizes[] = {13, 9},
	    block[] = {MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_CYCLIC},
	    args[] = {MPI_DISTRIBUTE_DFLT_DARG, 2};
	int none[] = {MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_NONE},
	    noneargs[] = {3, MPI_DISTRIBUTE_DFLT_DARG}, line[] = {4, 1};
	switch (kind) {
	case 0:
		MPI_Type_contiguous(5, MPI_INT, &result);
		break;
	case 1:
		MPI_Type_vector(4, 2, 5, MPI_INT, &result);
		break;
	case 2:
		MPI_Type_create_hvector(3, 2, 20, MPI_INT, &result);
		break;
	case 3:
		MPI_Type_indexed(3, lengths, places, MPI_INT, &result);
		break;
	case 4:
		MPI_Type_create_hindexed(3, lengths, bytes, MPI_INT, &result);
		break;
	case 5:
		MPI_Type_create_indexed_block(3, 2, even, MPI_INT, &result);
		break;
	case 6:
		MPI_Type_create_hindexed_block(3, 2, bytes, MPI_INT, &result);
		break;
	case 7: {
		MPI_Datatype types[] = {MPI_INT, MPI_INT, MPI_INT};
		MPI_Type_vector(2, 1, 2, MPI_INT, &types[1]);
		MPI_Type_create_struct(3, lengths, (MPI_Aint[]){0, 8, 64}, types, &t);
		MPI_Type_create_resized(t, 0, 100, &result);
		MPI_Type_free(&t);
		MPI_Type_free(&types[1]);
		break;
	}
	case 8:
		MPI_Type_create_subarray(3, sizes, subsizes, starts, MPI_ORDER_C, MPI_INT, &result);
		break;
	case 9:
		MPI_Type_create_subarray(
			3, sizes, subsizes, starts, MPI_ORDER_FORTRAN, MPI_INT, &result);
		break;
	case 10:
		MPI_Type_create_darray(
			4, rank % 4, 2, gsizes, block, args, grid, MPI_ORDER_C, MPI_INT, &result);
		break;
	case 11:
		MPI_Type_create_darray(4, rank % 4, 2, gsizes, none, noneargs, line,
			MPI_ORDER_FORTRAN, MPI_INT, &result);
		break;
	case 12: /* nested: vectors of a list, with a gap at the end */
		MPI_Type_indexed(3, lengths, places, MPI_INT, &t);
		MPI_Type_vector(3, 2, 3, t, &u);
		MPI_Type_create_resized(u, 0, 600, &result);
		MPI_Type_free(&t);
		MPI_Type_free(&u);
		break;
	case 13: /* N-1 strided */
		MPI_Type_contiguous(7, MPI_INT, &t);
		MPI_Type_create_resized(t, 0, 7 * 4 * ranks, &u);
		MPI_Type_dup(u, &result);
		MPI_Type_free(&t);
		MPI_Type_free(&u);
		break;
	}
	MPI_Type_commit(&result);
	return result;
}

static int ints_in(MPI_Datatype type)
{
	int size;
	MPI_Type_size(type, &size);
	return size / 4;
}

/* Writes through the door with the view, and compares with a model made from where a plain file's
 * handle says that each int is. */
static void view(MPI_File f, MPI_File plain, int kind, int memory_kind, int collective)
{
	MPI_Datatype file_type = make(kind),
		     memory_type = memory_kind < 0 ? MPI_INT : make(memory_kind);
	MPI_Offset disp = 8 + (kind == 13 ? rank * 28 : rank * (1 << 20));
	OK(MPI_File_set_view(f, disp, MPI_INT, file_type, "native", MPI_INFO_NULL));
	MPI_File_set_view(plain, disp, MPI_INT, file_type, "native", MPI_INFO_NULL);
	int each = ints_in(memory_type), count = 200 / each + 1, n = each * count;
	MPI_Aint lb, extent, low, true_extent;
	MPI_Type_get_extent(memory_type, &lb, &extent);
	MPI_Type_get_true_extent(memory_type, &low, &true_extent);
	size_t room = (size_t)(extent * count + true_extent + low);
	char *memory = calloc(1, room), *back = calloc(1, room);
	int *packed = malloc(MOST * sizeof *packed), position = 0;
	for (int i = 0; i < n; i++)
		packed[i] = (rank + 1) * 1000000 + kind * 10000 + i;
	MPI_Unpack(packed, n * 4, &position, memory, count, memory_type, MPI_COMM_SELF);
	MPI_Status status;

	/* Not from the beginning: with the pointer in the middle of a tile. */
	MPI_Offset begin = 3, at = -1;
	OK(MPI_File_seek(f, begin, MPI_SEEK_SET));
	OK(collective ? MPI_File_write_all(f, memory, count, memory_type, &status)
		      : MPI_File_write(f, memory, count, memory_type, &status));
	CHECK(count_of(&status, memory_type) == count);
	OK(MPI_File_get_position(f, &at));
	CHECK(at == begin + n);
	OK(MPI_File_read_at(f, begin, back, count, memory_type, &status));
	CHECK(count_of(&status, memory_type) == count);
	CHECK(memcmp(memory, back, room) == 0);

	MPI_Offset got_disp = -1;
	MPI_Datatype etype, filetype;
	char datarep[MPI_MAX_DATAREP_STRING];
	OK(MPI_File_get_view(f, &got_disp, &etype, &filetype, datarep));
	CHECK(got_disp == disp && etype == MPI_INT && strcmp(datarep, "native") == 0);
	int same_size = ints_in(filetype) == ints_in(file_type);
	CHECK(same_size);
	MPI_Type_free(&filetype);

	/* The same ints, one by one, as bytes. */
	MPI_Offset *offsets = malloc((size_t)n * sizeof *offsets);
	int bad = 0;
	for (int i = 0; i < n; i++) {
		MPI_Offset own = -1;
		MPI_File_get_byte_offset(plain, begin + i, &offsets[i]);
		OK(MPI_File_get_byte_offset(f, begin + i, &own));
		bad += own != offsets[i];
	}
	CHECK(bad == 0);
	OK(MPI_File_set_view(f, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL));
	for (int i = 0; i < n; i++) {
		int value = 0;
		OK(MPI_File_read_at(f, offsets[i], &value, 4, MPI_BYTE, &status));
		bad += value != packed[i];
	}
	if (bad) {
		printf("rank %d: kind %d from memory kind %d: %d ints are wrong\n", rank, kind,
			memory_kind, bad);
		failures++;
	}
	free(offsets);
	free(packed);
	free(memory);
	free(back);
	MPI_Type_free(&file_type);
	if (memory_kind >= 0)
		MPI_Type_free(&memory_type);
}

/* Pairs have the hole of a C struct. */
static void pairs(MPI_File f)
{
	struct {
		double value;
		int place;
	} out[5], in[5];
	memset(out, 0, sizeof out);
	memset(in, 0, sizeof in);
	for (int i = 0; i < 5; i++)
		out[i].value = rank + i / 8.0, out[i].place = i;
	OK(MPI_File_set_view(f, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL));
	OK(MPI_File_write_at(f, rank * 60, out, 5, MPI_DOUBLE_INT, MPI_STATUS_IGNORE));
	char bytes[60];
	OK(MPI_File_read_at(f, rank * 60, bytes, 60, MPI_BYTE, MPI_STATUS_IGNORE));
	CHECK(memcmp(bytes + 12, &out[1].value, 8) == 0 &&
		memcmp(bytes + 20, &out[1].place, 4) == 0);
	OK(MPI_File_read_at(f, rank * 60, in, 5, MPI_DOUBLE_INT, MPI_STATUS_IGNORE));
	CHECK(memcmp(in, out, sizeof in) == 0);
	struct {
		short value;
		int place;
	} small[3] = {{1, 2}, {3, 4}, {5, 6}}, small_in[3];
	memset(small_in, 0, sizeof small_in);
	OK(MPI_File_write_at(f, 10000 + rank * 18, small, 3, MPI_SHORT_INT, MPI_STATUS_IGNORE));
	OK(MPI_File_read_at(f, 10000 + rank * 18, small_in, 3, MPI_SHORT_INT, MPI_STATUS_IGNORE));
	CHECK(small_in[2].value == 5 && small_in[2].place == 6 && small_in[1].place == 4);
}

/* Memory from an address that is not the buffer's, backwards, and none at all. */
static void memory(MPI_File f)
{
	int values[] = {10, 11, 12, 13}, in[4] = {0};
	MPI_Datatype t;
	MPI_Aint address;
	MPI_Get_address(values, &address);
	MPI_Type_create_hindexed(1, (int[]){4}, &address, MPI_INT, &t);
	MPI_Type_commit(&t);
	MPI_Offset base = 20000 + rank * 100;
	OK(MPI_File_write_at(f, base, MPI_BOTTOM, 1, t, MPI_STATUS_IGNORE));
	MPI_Type_free(&t);
	OK(MPI_File_read_at(f, base, in, 4, MPI_INT, MPI_STATUS_IGNORE));
	CHECK(memcmp(in, values, sizeof in) == 0);
	MPI_Type_create_hvector(4, 1, -4, MPI_INT, &t);
	MPI_Type_commit(&t);
	OK(MPI_File_write_at(f, base, &values[3], 1, t, MPI_STATUS_IGNORE));
	MPI_Type_free(&t);
	OK(MPI_File_read_at(f, base, in, 4, MPI_INT, MPI_STATUS_IGNORE));
	CHECK(in[0] == 13 && in[1] == 12 && in[2] == 11 && in[3] == 10);
	MPI_Status status;
	OK(MPI_File_write_at(f, base, NULL, 0, MPI_INT, &status));
	CHECK(count_of(&status, MPI_INT) == 0);
	MPI_Type_contiguous(0, MPI_INT, &t);
	MPI_Type_commit(&t);
	OK(MPI_File_write_at_all(f, base, values, 3, t, &status));
	MPI_Type_free(&t);
}

/* What does not fit the etype or is no view. */
static void refused(MPI_File f)
{
	int value = 0;
	MPI_Datatype back;
	MPI_Type_indexed(2, (int[]){1, 1}, (int[]){3, 0}, MPI_INT, &back);
	MPI_Type_commit(&back);
	GIVES(MPI_ERR_IO, MPI_File_set_view(f, 0, MPI_INT, back, "native", MPI_INFO_NULL));
	GIVES(MPI_ERR_IO, MPI_File_set_view(f, 0, back, back, "native", MPI_INFO_NULL));
	/* What is twice in a view may be read, and not written. */
	MPI_Datatype twice, before;
	MPI_File reader;
	MPI_Type_vector(3, 2, 1, MPI_INT, &twice);
	MPI_Type_commit(&twice);
	MPI_Type_indexed(2, (int[]){1, 1}, (int[]){-2, 2}, MPI_INT, &before);
	MPI_Type_commit(&before);
	OK(MPI_File_open(
		MPI_COMM_WORLD, path_of("views"), MPI_MODE_RDONLY, MPI_INFO_NULL, &reader));
	GIVES(MPI_ERR_IO, MPI_File_set_view(f, 0, MPI_INT, twice, "native", MPI_INFO_NULL));
	OK(MPI_File_set_view(reader, 0, MPI_INT, twice, "native", MPI_INFO_NULL));
	GIVES(MPI_ERR_IO, MPI_File_set_view(reader, 0, MPI_INT, back, "native", MPI_INFO_NULL));
	GIVES(MPI_ERR_IO, MPI_File_set_view(f, 64, MPI_INT, before, "native", MPI_INFO_NULL));
	OK(MPI_File_close(&reader));
	MPI_Type_free(&twice);
	MPI_Type_free(&before);
	GIVES(MPI_ERR_ARG, MPI_File_set_view(f, 0, MPI_DOUBLE, MPI_INT, "native", MPI_INFO_NULL));
	GIVES(MPI_ERR_ARG, MPI_File_set_view(f, -5, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
	MPI_Type_free(&back);
	OK(MPI_File_set_view(f, 0, MPI_DOUBLE, MPI_DOUBLE, "internal", MPI_INFO_NULL));
	GIVES(MPI_ERR_IO, MPI_File_write_at(f, 0, &value, 1, MPI_INT, MPI_STATUS_IGNORE));
	MPI_Aint extent = 0;
	OK(MPI_File_get_type_extent(f, MPI_DOUBLE, &extent));
	CHECK(extent == 8);
	/* An error on one rank alone is one on all, and no rank waits. */
	GIVES(MPI_ERR_ARG, MPI_File_set_view(f, rank == ranks - 1 ? -1 : 0, MPI_INT, MPI_INT,
				   "native", MPI_INFO_NULL));
}

/* A part of a file type may begin below the part before it if its data does not: what begins with a
 * gap was taken for going back, and refused. */
static void gap_first(MPI_File f)
{
	MPI_Datatype piece, wide, t;
	MPI_Offset offset[3] = {-1, -1, -1};
	MPI_Type_create_hindexed_block(1, 1, (MPI_Aint[]){48}, MPI_INT, &piece);
	MPI_Type_create_resized(piece, 0, 64, &wide);
	MPI_Type_create_hindexed(2, (int[]){1, 2}, (MPI_Aint[]){0, 16}, wide, &t);
	MPI_Type_commit(&t);
	OK(MPI_File_set_view(f, 0, MPI_INT, t, "native", MPI_INFO_NULL));
	for (int i = 0; i < 3; i++)
		OK(MPI_File_get_byte_offset(f, i, &offset[i]));
	CHECK(offset[0] == 48 && offset[1] == 64 && offset[2] == 128);
	MPI_Type_free(&t);
	MPI_Type_free(&wide);
	MPI_Type_free(&piece);
}

int main(int argc, char **argv)
{
	start(argc, argv);
	MPI_File plain, f;
	/* Only asked, never written. */
	MPI_File_open(MPI_COMM_SELF, "/dev/null", MPI_MODE_RDONLY, MPI_INFO_NULL, &plain);
	for (int kind = 0; kind < KINDS; kind++) {
		f = open_new("views", MPI_MODE_RDWR);
		view(f, plain, kind, -1, kind % 2);
		view(f, plain, kind, (kind + 5) % KINDS, 1);
		view(f, plain, kind, kind, 0);
		OK(MPI_File_close(&f));
	}
	f = open_new("views", MPI_MODE_RDWR);
	pairs(f);
	memory(f);
	refused(f);
	gap_first(f);
	OK(MPI_File_close(&f));
	MPI_File_close(&plain);
	return finish();
}
