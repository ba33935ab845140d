/* Large counts: the _c calls and constructors of MPI 4, offsets past 32 bits; and what an MPI
 * without them gets. */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "t.h"

#if MPI_VERSION >= 4
/* The i-th type, by the constructor with large counts or by the plain one. */
static MPI_Datatype make(int i, int large)
{
	MPI_Datatype t = MPI_DATATYPE_NULL, result;
	MPI_Count lengths[] = {1, 3, 2}, places[] = {1, 4, 9}, bytes[] = {4, 24, 48},
		  sizes[] = {4, 6}, subsizes[] = {2, 3}, starts[] = {1, 2}, gsizes[] = {7, 9};
	int few[] = {1, 3, 2}, near[] = {1, 4, 9}, small[] = {4, 6}, smaller[] = {2, 3},
	    early[] = {1, 2}, global[] = {7, 9};
	MPI_Aint addresses[] = {4, 24, 48};
	MPI_Datatype ints[] = {MPI_INT, MPI_INT, MPI_INT};
	int distribution[] = {MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_CYCLIC},
	    arguments[] = {MPI_DISTRIBUTE_DFLT_DARG, 2}, grid[] = {2, 2};
#define EITHER(name, args, large_args) large ? MPI_Type_##name##_c large_args : MPI_Type_##name args
	switch (i) {
	case 0:
		EITHER(contiguous, (6, MPI_INT, &t), (6, MPI_INT, &t));
		break;
	case 1:
		EITHER(vector, (3, 2, 4, MPI_INT, &t), (3, 2, 4, MPI_INT, &t));
		break;
	case 2:
		EITHER(create_hvector, (3, 2, 20, MPI_INT, &t), (3, 2, 20, MPI_INT, &t));
		break;
	case 3:
		EITHER(indexed, (3, few, near, MPI_INT, &t), (3, lengths, places, MPI_INT, &t));
		break;
	case 4:
		EITHER(create_hindexed, (3, few, addresses, MPI_INT, &t),
			(3, lengths, bytes, MPI_INT, &t));
		break;
	case 5:
		EITHER(create_indexed_block, (3, 2, near, MPI_INT, &t),
			(3, 2, places, MPI_INT, &t));
		break;
	case 6:
		EITHER(create_hindexed_block, (3, 2, addresses, MPI_INT, &t),
			(3, 2, bytes, MPI_INT, &t));
		break;
	case 7:
		EITHER(create_struct, (3, few, addresses, ints, &t), (3, lengths, bytes, ints, &t));
		break;
	case 8:
		EITHER(create_subarray, (2, small, smaller, early, MPI_ORDER_FORTRAN, MPI_INT, &t),
			(2, sizes, subsizes, starts, MPI_ORDER_FORTRAN, MPI_INT, &t));
		break;
	case 9:
		EITHER(create_darray,
			(4, rank % 4, 2, global, distribution, arguments, grid, MPI_ORDER_C,
				MPI_INT, &t),
			(4, rank % 4, 2, gsizes, distribution, arguments, grid, MPI_ORDER_C,
				MPI_INT, &t));
		break;
	default:
		return t;
	}
	EITHER(create_resized, (t, 0, 400, &result), (t, 0, 400, &result));
	MPI_Type_commit(&result);
	MPI_Type_free(&t);
	return result;
}

static void large_types(MPI_File f)
{
	int out[24], in[24];
	MPI_File plain;
	MPI_File_open(MPI_COMM_SELF, "/dev/null", MPI_MODE_RDONLY, MPI_INFO_NULL, &plain);
	for (int i = 0; i < 10; i++) {
		/* Not all MPIs understand their own large types as file types. */
		MPI_Datatype pieces = make(i, 1), same = make(i, 0);
		MPI_Offset disp = (MPI_Offset)rank << 33, own, theirs;
		OK(MPI_File_set_view(f, disp, MPI_INT, pieces, "native", MPI_INFO_NULL));
		MPI_File_set_view(plain, disp, MPI_INT, same, "native", MPI_INFO_NULL);
		for (int k = 0; k < 24; k++) {
			out[k] = i * 100 + k;
			OK(MPI_File_get_byte_offset(f, k, &own));
			MPI_File_get_byte_offset(plain, k, &theirs);
			CHECK(own == theirs);
		}
		MPI_Status status;
		OK(MPI_File_write_at_c(f, 0, out, 24, MPI_INT, &status));
		MPI_Count count = 0;
		MPI_Get_count_c(&status, MPI_INT, &count);
		CHECK(count == 24);
		OK(MPI_File_read_at_all_c(f, 0, in, 24, MPI_INT, &status));
		CHECK(memcmp(out, in, sizeof in) == 0);
		MPI_Type_free(&pieces);
		MPI_Type_free(&same);
	}
	MPI_File_close(&plain);
	OK(MPI_File_set_view(f, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL));
	MPI_Request request;
	OK(MPI_File_iwrite_at_c(f, rank * 96, out, 24, MPI_INT, &request));
	OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
	OK(MPI_File_read_at_all_begin_c(f, rank * 96, in, 24, MPI_INT));
	OK(MPI_File_read_at_all_end(f, in, MPI_STATUS_IGNORE));
	CHECK(memcmp(out, in, sizeof in) == 0);
	/* More than 2^31 of nothing. */
	MPI_Datatype nothing;
	MPI_Type_contiguous(0, MPI_INT, &nothing);
	MPI_Type_commit(&nothing);
	OK(MPI_File_write_at_c(f, 0, out, (MPI_Count)1 << 40, nothing, MPI_STATUS_IGNORE));
	MPI_Type_free(&nothing);
	MPI_Count extent = 0;
	OK(MPI_File_get_type_extent_c(f, MPI_DOUBLE, &extent));
	CHECK(extent == 8);
}
#endif

/* Programs ask whether the symbol is there, find the door's, and call it for files of any kind. */
static void found_by_name(MPI_File f, const char *what)
{
	int (*write_at_c)(MPI_File, MPI_Offset, const void *, MPI_Count, MPI_Datatype,
		MPI_Status *) = dlsym(RTLD_DEFAULT, "MPI_File_write_at_c");
	int (*read_c)(MPI_File, void *, MPI_Count, MPI_Datatype, MPI_Status *) = dlsym(
		RTLD_DEFAULT, "PMPI_File_read_c");
	int (*toint)(MPI_File) = dlsym(RTLD_DEFAULT, "MPI_File_toint");
	int out[3] = {rank, 2, 3}, in[3] = {0};
	MPI_Status status;
	CHECK(write_at_c && read_c && toint);
	if (!write_at_c || !read_c || !toint)
		return;
	OK(write_at_c(f, rank * 12, out, 3, MPI_INT, &status));
	OK(MPI_File_seek(f, rank * 12, MPI_SEEK_SET));
	OK(read_c(f, in, 3, MPI_INT, &status));
	CHECK(count_of(&status, MPI_INT) == 3);
	if (memcmp(in, out, sizeof in) != 0) {
		printf("rank %d: %s differs\n", rank, what);
		failures++;
	}
	CHECK(toint(f) == toint(f));
}

static void far(MPI_File f)
{
	char c = 'f', back = 0;
	MPI_Offset size = 0, at = ((MPI_Offset)1 << 60) + rank;
	MPI_Status status;
	OK(MPI_File_write_at(f, at, &c, 1, MPI_BYTE, &status));
	OK(MPI_File_read_at(f, at, &back, 1, MPI_BYTE, &status));
	CHECK(back == 'f');
	OK(MPI_File_sync(f));
	OK(MPI_File_get_size(f, &size));
	CHECK(size == ((MPI_Offset)1 << 60) + ranks);
	GIVES(MPI_ERR_ARG, MPI_File_write_at(f, INT64_MAX, "ab", 2, MPI_BYTE, &status));
	MPI_Datatype wide, t;
	MPI_Type_contiguous(1, MPI_INT, &t);
	MPI_Type_create_resized(t, 0, (MPI_Aint)1 << 40, &wide);
	MPI_Type_commit(&wide);
	OK(MPI_File_set_view(f, 0, MPI_INT, wide, "native", MPI_INFO_NULL));
	int value = 5;
	OK(MPI_File_write_at(f, (MPI_Offset)1 << 20, &value, 1, MPI_INT, &status));
	GIVES(MPI_ERR_ARG, MPI_File_write_at(f, (MPI_Offset)1 << 23, &value, 1, MPI_INT, &status));
	MPI_Type_free(&wide);
	MPI_Type_free(&t);
	OK(MPI_File_set_view(f, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL));
}

/* More than the door packs at a time. */
static void much(MPI_File f)
{
	enum { N = 5 << 20 };
	int *out = malloc(N * 8), *in = calloc(N, 8);
	MPI_Datatype every_other;
	MPI_Type_vector(N, 1, 2, MPI_INT, &every_other);
	MPI_Type_commit(&every_other);
	for (int i = 0; i < N; i++)
		out[2 * i] = i ^ rank, out[2 * i + 1] = 0;
	MPI_Status status;
	OK(MPI_File_set_view(f, rank * 4, MPI_INT, every_other, "native", MPI_INFO_NULL));
	OK(MPI_File_write_at(f, 0, out, 1, every_other, &status));
	CHECK(count_of(&status, every_other) == 1);
	OK(MPI_File_read_at(f, 0, in, 1, every_other, &status));
	CHECK(memcmp(out, in, (size_t)N * 8 - 4) == 0);
	MPI_Type_free(&every_other);
	free(out);
	free(in);
}

int main(int argc, char **argv)
{
	start(argc, argv);
	MPI_File f = open_new("large", MPI_MODE_RDWR);
#if MPI_VERSION >= 4
	large_types(f);
#endif
	OK(MPI_File_set_view(f, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL));
	found_by_name(f, "ours");
	far(f);
	OK(MPI_File_close(&f));
	if (rank < 2) {
		MPI_Comm comm = MPI_COMM_SELF;
		char name[40];
		snprintf(name, sizeof name, "much.%d", rank);
		OK(MPI_File_open(
			comm, path_of(name), MPI_MODE_RDWR | MPI_MODE_CREATE, MPI_INFO_NULL, &f));
		much(f);
		OK(MPI_File_close(&f));
	}
	const char *plain = getenv("T_PLAIN");
	if (plain) {
		char name[4200];
		snprintf(name, sizeof name, "%s/large", plain);
		OK(MPI_File_open(
			MPI_COMM_WORLD, name, MPI_MODE_RDWR | MPI_MODE_CREATE, MPI_INFO_NULL, &f));
		found_by_name(f, "plain");
		OK(MPI_File_close(&f));
	}
	return finish();
}
