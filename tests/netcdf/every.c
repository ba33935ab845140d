/* every DIR: each typed and flexible call of each shape, blocking (collective and independent),
 * non-blocking, buffered, and of several variables, on a partitioned variable. */
#include "t.h"

enum { Y = 6, X = 5 };

static int ncid, numbers, text;

/* Variables are 2 * ranks * Y by X; each rank has its own rows. */
static MPI_Offset first;

#define COUNT (Y * X)

/* What is read after what was put; `n` elements from `data`. */
#define BACK(ctype, id, GET, n) \
	do { \
		ctype got[COUNT * 2]; \
		memset(got, 0, sizeof got); \
		GET; \
		for (int j = 0; j < (n); j++) \
			if (got[j] != (ctype)(j + 1)) \
				t_fail(__FILE__, __LINE__, "%s: element %d is %d", #GET, j, \
					(int)got[j]); \
	} while (0)

#define SHAPES(name, ctype, id, MORE) \
	{ \
		ctype data[COUNT * 2]; \
		for (int i = 0; i < COUNT * 2; i++) \
			data[i] = (ctype)(i + 1); \
		MPI_Offset start[2] = {first, 0}, count[2] = {Y, X}, stride[2] = {1, 1}; \
		MPI_Offset imap[2] = {X, 1}; \
		MPI_Offset more[2] = {first + Y, 0}, *starts[2] = {start, more}; \
		MPI_Offset *counts[2] = {count, count}; \
		int varid = id, varids[1] = {id}, request; \
		ctype *several[1] = {data}, got_several[COUNT], *got_list[1] = {got_several}; \
		MPI_Offset *one_start[1] = {start}, *one_count[1] = {count}; \
		MPI_Offset *one_stride[1] = {stride}, *one_imap[1] = {imap}; \
		(void)starts, (void)counts, (void)varids, (void)several, (void)got_list; \
		(void)one_start, (void)one_count, (void)one_stride, (void)one_imap; \
		MORE(name, ctype) \
	}

/* One shape: collective, independent, non-blocking, buffered. */
#define FOUR(shape, name, ctype, n, ...) \
	FINE(ncmpi_put_##shape##_##name##_all(ncid, varid, __VA_ARGS__, data)); \
	BACK(ctype, varid, FINE(ncmpi_get_##shape##_##name##_all(ncid, varid, __VA_ARGS__, got)), \
		n); \
	FINE(ncmpi_begin_indep_data(ncid)); \
	FINE(ncmpi_put_##shape##_##name(ncid, varid, __VA_ARGS__, data)); \
	BACK(ctype, varid, FINE(ncmpi_get_##shape##_##name(ncid, varid, __VA_ARGS__, got)), n); \
	FINE(ncmpi_end_indep_data(ncid)); \
	FINE(ncmpi_iput_##shape##_##name(ncid, varid, __VA_ARGS__, data, &request)); \
	FINE(ncmpi_wait_all(ncid, 1, &request, NULL)); \
	FINE(ncmpi_bput_##shape##_##name(ncid, varid, __VA_ARGS__, data, &request)); \
	FINE(ncmpi_wait_all(ncid, 1, &request, NULL)); \
	BACK(ctype, varid, \
		FINE(ncmpi_iget_##shape##_##name(ncid, varid, __VA_ARGS__, got, &request)); \
		FINE(ncmpi_wait_all(ncid, 1, &request, NULL)), n);

#define MANY(shape, name, ctype, n, ...) \
	FINE(ncmpi_mput_##shape##_##name##_all(ncid, 1, varids __VA_ARGS__, several)); \
	BACK(ctype, varid, \
		FINE(ncmpi_mget_##shape##_##name##_all(ncid, 1, varids __VA_ARGS__, got_list)); \
		memcpy(got, got_several, (n) * sizeof *got), n);

#define BOXES(name, ctype) \
	FOUR(var1, name, ctype, 1, start) \
	FOUR(vara, name, ctype, COUNT, start, count) \
	FOUR(vars, name, ctype, COUNT, start, count, stride) \
	FOUR(varm, name, ctype, COUNT, start, count, stride, imap) \
	FOUR(varn, name, ctype, COUNT * 2, 2, starts, counts) \
	MANY(var1, name, ctype, 1, , one_start) \
	MANY(vara, name, ctype, COUNT, , one_start, one_count) \
	MANY(vars, name, ctype, COUNT, , one_start, one_count, one_stride) \
	MANY(varm, name, ctype, COUNT, , one_start, one_count, one_stride, one_imap)

/* The whole variable: all ranks put the same. */
#define WHOLES(name, ctype) \
	FINE(ncmpi_put_var_##name##_all(ncid, varid, data)); \
	BACK(ctype, varid, FINE(ncmpi_get_var_##name##_all(ncid, varid, got)), COUNT); \
	FINE(ncmpi_begin_indep_data(ncid)); \
	FINE(ncmpi_put_var_##name(ncid, varid, data)); \
	BACK(ctype, varid, FINE(ncmpi_get_var_##name(ncid, varid, got)), COUNT); \
	FINE(ncmpi_end_indep_data(ncid)); \
	FINE(ncmpi_iput_var_##name(ncid, varid, data, &request)); \
	FINE(ncmpi_wait_all(ncid, 1, &request, NULL)); \
	FINE(ncmpi_bput_var_##name(ncid, varid, data, &request)); \
	FINE(ncmpi_wait_all(ncid, 1, &request, NULL)); \
	BACK(ctype, varid, FINE(ncmpi_iget_var_##name(ncid, varid, got, &request)); \
		FINE(ncmpi_wait_all(ncid, 1, &request, NULL)), COUNT); \
	MANY(var, name, ctype, COUNT, )

#define EACH(id, MORE) \
	SHAPES(schar, signed char, id, MORE) \
	SHAPES(uchar, unsigned char, id, MORE) \
	SHAPES(short, short, id, MORE) \
	SHAPES(int, int, id, MORE) \
	SHAPES(long, long, id, MORE) \
	SHAPES(float, float, id, MORE) \
	SHAPES(double, double, id, MORE) \
	SHAPES(ushort, unsigned short, id, MORE) \
	SHAPES(uint, unsigned int, id, MORE) \
	SHAPES(longlong, long long, id, MORE) \
	SHAPES(ulonglong, unsigned long long, id, MORE)

int main(int argc, char **argv)
{
	char path[512];
	t_start(&argc, &argv);
	CHECK(argc == 2);
	snprintf(path, sizeof path, "%s/every.nc", argv[1]);
	for (int parts = 1; parts <= 3; parts += 2) {
		MPI_Info info = t_hints(parts, NULL);
		int dims[2], small[2], numbers_small, text_small, ndims;
		FINE(ncmpi_create(MPI_COMM_WORLD, path, NC_64BIT_DATA, info, &ncid));
		FINE(ncmpi_def_dim(ncid, "y", 2 * ranks * Y, &dims[0]));
		FINE(ncmpi_def_dim(ncid, "x", X, &dims[1]));
		FINE(ncmpi_def_dim(ncid, "v", Y, &small[0]));
		small[1] = dims[1];
		FINE(ncmpi_def_var(ncid, "numbers", NC_DOUBLE, 2, dims, &numbers));
		FINE(ncmpi_def_var(ncid, "text", NC_CHAR, 2, dims, &text));
		FINE(ncmpi_def_var(ncid, "small", NC_INT, 2, small, &numbers_small));
		FINE(ncmpi_def_var(ncid, "small_text", NC_CHAR, 2, small, &text_small));
		FINE(ncmpi_enddef(ncid));
		FINE(ncmpi_inq_att(ncid, numbers, "num_partitions", NULL, NULL));
		FINE(ncmpi_inq_att(ncid, numbers_small, "num_partitions", NULL, NULL));
		FINE(ncmpi_inq_varndims(ncid, numbers, &ndims));
		SAME(ndims, 2);
		FINE(ncmpi_buffer_attach(ncid, 1 << 20));
		first = 2 * rank * Y;
		EACH(numbers, BOXES)
		SHAPES(text, char, text, BOXES)
		EACH(numbers_small, WHOLES)
		SHAPES(text, char, text_small, WHOLES)
		FINE(ncmpi_buffer_detach(ncid));
		FINE(ncmpi_close(ncid));
		t_free(&info);
	}
	MPI_Finalize();
	return 0;
}
