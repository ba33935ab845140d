/* The data representation external32 on FILE, through file types, memory types and calls of each
 * kind; prints what it is told and what it reads. Only types that are as long there as in memory:
 * with others both MPIs leave bytes of their own in plain files, and the door does not.
 *
 * external32 FILE */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N 24 /* elements of an access of a rank */

static int rank, ranks;

/* By rank 0, in order of rank. */
static void say(const char *what, int64_t value)
{
	int64_t *all = malloc(sizeof *all * (size_t)ranks);
	MPI_Gather(&value, 1, MPI_INT64_T, all, 1, MPI_INT64_T, 0, MPI_COMM_WORLD);
	if (rank == 0) {
		printf("%s", what);
		for (int i = 0; i < ranks; i++)
			printf(" %lld", (long long)all[i]);
		printf("\n");
	}
	free(all);
}

static int64_t sum(const void *bytes, size_t n)
{
	uint64_t h = 1469598103934665603u;
	for (size_t i = 0; i < n; i++)
		h = (h ^ ((const unsigned char *)bytes)[i]) * 1099511628211u;
	return (int64_t)(h >> 1);
}

static int class_of(int code)
{
	int class = 0;
	MPI_Error_class(code, &class);
	return class != MPI_SUCCESS;
}

/* The file types; each rank has its own part. */
#define KINDS 5
static MPI_Datatype file_type(int kind, MPI_Datatype element)
{
	MPI_Datatype t, u, v;
	MPI_Aint lb, extent, own;
	MPI_Type_get_extent(element, &lb, &extent);
	switch (kind) {
	case 0:
		MPI_Type_dup(element, &t);
		break;
	case 1:
		own = 2 * rank * extent;
		MPI_Type_vector(3, 2, 2 * ranks, element, &v);
		MPI_Type_create_hindexed(1, (int[]){1}, &own, v, &u);
		MPI_Type_create_resized(u, 0, 6 * ranks * extent, &t);
		MPI_Type_free(&v);
		MPI_Type_free(&u);
		break;
	case 2:
		MPI_Type_create_subarray(2, (int[]){4, 3 * ranks}, (int[]){2, 3},
			(int[]){1, 3 * rank}, MPI_ORDER_C, element, &t);
		break;
	case 3:
		MPI_Type_create_indexed_block(
			3, 1, (int[]){rank, ranks + rank, 3 * ranks + rank}, element, &u);
		MPI_Type_create_resized(u, 0, 4 * ranks * extent, &t);
		MPI_Type_free(&u);
		break;
	default:
		MPI_Type_create_darray(ranks, rank, 1, (int[]){6 * ranks},
			(int[]){MPI_DISTRIBUTE_CYCLIC}, (int[]){2}, (int[]){ranks}, MPI_ORDER_C,
			element, &t);
	}
	MPI_Type_commit(&t);
	return t;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int size;
	} NAMES[] = {{"char", 1}, {"short", 2}, {"int", 4}, {"int64", 8}, {"float", 4},
		{"double", 8}, {"complex", 16}, {"aint", 8}, {"bool", 1}, {"byte", 1}};
	MPI_Init(&argc, &argv);
	const MPI_Datatype TYPES[] = {MPI_CHAR, MPI_SHORT, MPI_INT, MPI_INT64_T, MPI_FLOAT,
		MPI_DOUBLE, MPI_C_DOUBLE_COMPLEX, MPI_AINT, MPI_C_BOOL, MPI_BYTE};
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	MPI_File f;
	MPI_Info info;
	MPI_Info_create(&info);
	/* With data sieving ROMIO leaves what it likes in holes. */
	MPI_Info_set(info, "romio_ds_write", "disable");
	MPI_Info_set(info, "romio_cb_write", "disable");
	if (MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_RDWR | MPI_MODE_CREATE, info, &f))
		MPI_Abort(MPI_COMM_WORLD, 1);
	MPI_Info used;
	char value[MPI_MAX_INFO_VAL];
	int found = 0;
	MPI_File_get_info(f, &used);
	MPI_Info_get(used, "plfs_flatten_on_close", sizeof value - 1, value, &found);
	MPI_Info_free(&used);
	if (rank == 0 && found)
		printf("door\n");

	MPI_Offset disp = 0;
	for (size_t t = 0; t < sizeof TYPES / sizeof *TYPES; t++) {
		int size = NAMES[t].size;
		for (int kind = 0; kind < KINDS; kind++) {
			MPI_Datatype type = file_type(kind, TYPES[t]), memory;
			char *out = malloc((size_t)(2 * N * size)), *in = calloc(2 * N, size);
			char name[100], datarep[MPI_MAX_DATAREP_STRING] = "";
			for (int i = 0; i < 2 * N * size; i++)
				out[i] = (char)(rank * 89 + kind * 31 + i * 7);
			/* Each element but the odd ones. More than one of these MPICH 4.0 converts
			 * beyond the end of its buffer. */
			MPI_Type_vector(N, 1, 2, TYPES[t], &memory);
			MPI_Type_commit(&memory);
			/* A plain type has each rank behind the other. */
			MPI_Offset own = kind ? 0 : rank * 3 * N;
			MPI_Status status;
			int code = MPI_File_set_view(f, disp, TYPES[t], type, "external32", info);
			snprintf(name, sizeof name, "%s %d", NAMES[t].name, kind);
			say(name, class_of(code));
			code = MPI_File_write_at(f, own, out, N, TYPES[t], &status);
			say("write", class_of(code));
			code = MPI_File_write_at_all(f, own + N, out, 1, memory, &status);
			say("write strided", class_of(code));
			MPI_File_seek(f, own + 2 * N, MPI_SEEK_SET);
			MPI_File_write_all_begin(f, out, N / 2, TYPES[t]);
			code = MPI_File_write_all_end(f, out, &status);
			MPI_File_write(f, out + N, N / 2, TYPES[t], &status);
			say("split", class_of(code));
			MPI_File_sync(f);
			MPI_Barrier(MPI_COMM_WORLD);
			MPI_File_sync(f);
			int count = -1;
			MPI_File_read_at_all(f, own, in, N, TYPES[t], &status);
			MPI_Get_count(&status, TYPES[t], &count);
			say("count", count);
			say("read", sum(in, N * size));
			MPI_File_read_at(f, own + 1, in, 1, memory, &status);
			say("read strided", sum(in, 2 * N * size));
			MPI_File_seek(f, own + N + N / 2, MPI_SEEK_SET);
			MPI_File_read(f, in, N, TYPES[t], &status);
			say("read on", sum(in, N * size));
#ifdef OPEN_MPI
			/* MPICH 4.0 does not convert here. */
			MPI_Request request;
			MPI_File_iread_at(f, own + 5, in, N, TYPES[t], &request);
			MPI_Wait(&request, &status);
			say("iread", sum(in, N * size));
#endif
			MPI_Offset where = -1, view = -1;
			MPI_Aint extent = -1;
			MPI_Datatype etype, filetype;
			MPI_File_get_byte_offset(f, own + 7, &where);
			say("offset", where);
			MPI_File_get_view(f, &view, &etype, &filetype, datarep);
			if (kind)
				MPI_Type_free(&filetype);
			say(datarep, view);
			MPI_File_get_type_extent(f, type, &extent);
			say("extent", extent);
			/* The same bytes without conversion. */
			MPI_File_set_view(f, disp, TYPES[t], type, "native", info);
			MPI_File_read_at(f, own, in, N, TYPES[t], &status);
			say("native", sum(in, N * size));
			MPI_Barrier(MPI_COMM_WORLD);
			disp += 40 * N * ranks * size;
			MPI_Type_free(&type);
			MPI_Type_free(&memory);
			free(out);
			free(in);
		}
	}
	MPI_File_close(&f);
	MPI_Info_free(&info);
	MPI_Finalize();
	return 0;
}
