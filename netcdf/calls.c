/* The 812 calls that transfer data, all alike: a variable that is not cut is PnetCDF's; the rest is
 * one function, transfer. */
#include "door.h"

#include <stdlib.h>
#include <string.h>

#define PARAMETERS_var
#define PARAMETERS_var1 , const MPI_Offset *start
#define PARAMETERS_vara , const MPI_Offset *start, const MPI_Offset *count
#define PARAMETERS_vars , const MPI_Offset *start, const MPI_Offset *count, const MPI_Offset *stride
#define PARAMETERS_varm \
	, const MPI_Offset *start, const MPI_Offset *count, const MPI_Offset *stride, \
		const MPI_Offset *imap
#define PARAMETERS_varn , int num, MPI_Offset *const *starts, MPI_Offset *const *counts

#define ARGUMENTS_var
#define ARGUMENTS_var1 , start
#define ARGUMENTS_vara , start, count
#define ARGUMENTS_vars , start, count, stride
#define ARGUMENTS_varm , start, count, stride, imap
#define ARGUMENTS_varn , num, starts, counts

#define SHAPE_var {.kind = VAR}
#define SHAPE_var1 {.kind = VAR1, .start = start}
#define SHAPE_vara {.kind = VARA, .start = start, .count = count}
#define SHAPE_vars {.kind = VARS, .start = start, .count = count, .stride = stride}
#define SHAPE_varm {.kind = VARM, .start = start, .count = count, .stride = stride, .imap = imap}
#define SHAPE_varn {.kind = VARN, .num = num, .starts = starts, .counts = counts}

#define FLEXIBLE_PARAMETERS , MPI_Offset bufcount, MPI_Datatype buftype
#define FLEXIBLE_ARGUMENTS , bufcount, buftype
#define TYPED_PARAMETERS
#define TYPED_ARGUMENTS

/* Does a get of all of a variable that is whole ask for records that the master does not have? Only
 * partitions have them: those that this process has appended by itself, or a killed writer. PnetCDF
 * would read as many as there are, and leave the rest of the memory as it is. */
static bool is_short(int ncid, int varid, int how)
{
	struct file *f = how & PUT ? NULL : file_of(ncid);
	MPI_Offset known = 0;
	if (!f || varid < 0 || varid >= f->nvars || !f->vars[varid].is_record)
		return false;
	real->inq_dim(ncid, f->record_dim, NULL, &known);
	return known < f->records;
}

/* Such a get as PnetCDF has one of records that are not there: an error on this rank, which takes
 * part. */
static int get_short(
	int ncid, int varid, int how, void *buffer, MPI_Offset count, MPI_Datatype type, int *id)
{
	struct file *f = file_of(ncid);
	const struct variable *v = &f->vars[varid];
	MPI_Offset *start = must(calloc((size_t)v->ndims * 2, sizeof *start));
	MPI_Offset *number = start + v->ndims;
	memcpy(number, v->length, (size_t)v->ndims * sizeof *number);
	number[0] = f->records;
	int rc = how & LATER ? real->iget_vara(ncid, varid, start, number, buffer, count, type, id)
		 : how & ALL ? real->get_vara_all(ncid, varid, start, number, buffer, count, type)
			     : real->get_vara(ncid, varid, start, number, buffer, count, type);
	free(start);
	return rc;
}

/* Other forms say what they ask for. */
#define IS_SHORT_var(ncid, varid, how) is_short(ncid, varid, how)
#define IS_SHORT_var1(ncid, varid, how) false
#define IS_SHORT_vara(ncid, varid, how) false
#define IS_SHORT_vars(ncid, varid, how) false
#define IS_SHORT_varm(ncid, varid, how) false
#define IS_SHORT_varn(ncid, varid, how) false

/* One call. `memory` is FLEXIBLE or TYPED; `number` and `type` are what transfer gets of it. */
#define BLOCKING(name, form, how, ctype, memory, number, type) \
	int door_##name(int ncid, int varid PARAMETERS_##form, ctype *buffer memory##_PARAMETERS) \
	{ \
		struct file *f = file_of(ncid); \
		struct shape s = SHAPE_##form; \
		int rc = f ? transfer(f, varid, how, &s, buffer, number, type, NULL) : NOT_CUT; \
		if (rc != NOT_CUT) \
			return rc; \
		if (IS_SHORT_##form(ncid, varid, how)) \
			return get_short(ncid, varid, how, (void *)buffer, number, type, NULL); \
		return real->name(ncid, varid ARGUMENTS_##form, buffer memory##_ARGUMENTS); \
	}
#define LATER_CALL(name, form, how, ctype, memory, number, type) \
	int door_##name( \
		int ncid, int varid PARAMETERS_##form, ctype *buffer memory##_PARAMETERS, int *id) \
	{ \
		struct file *f = file_of(ncid); \
		struct shape s = SHAPE_##form; \
		int rc = f ? transfer(f, varid, (how) | LATER, &s, buffer, number, type, id) \
			   : NOT_CUT; \
		if (rc != NOT_CUT) \
			return rc; \
		if (IS_SHORT_##form(ncid, varid, how)) \
			return get_short( \
				ncid, varid, (how) | LATER, (void *)buffer, number, type, id); \
		return real->name(ncid, varid ARGUMENTS_##form, buffer memory##_ARGUMENTS, id); \
	}

#define SEVEN(form, suffix, ctype, memory, number, type) \
	BLOCKING(put_##form##suffix, form, PUT, const ctype, memory, number, type) \
	BLOCKING(put_##form##suffix##_all, form, PUT | ALL, const ctype, memory, number, type) \
	BLOCKING(get_##form##suffix, form, 0, ctype, memory, number, type) \
	BLOCKING(get_##form##suffix##_all, form, ALL, ctype, memory, number, type) \
	LATER_CALL(iput_##form##suffix, form, PUT, const ctype, memory, number, type) \
	LATER_CALL(iget_##form##suffix, form, 0, ctype, memory, number, type) \
	LATER_CALL(bput_##form##suffix, form, PUT | BUFFERED, const ctype, memory, number, type)

/* The types of C, of MPI, and the names that calls have of them. An analyzer that has followed one
 * has followed all. */
#define ONE_TYPE(CALL, what) CALL(what, _int, int, MPI_INT)
#define OTHER_TYPES(CALL, what) \
	CALL(what, _text, char, MPI_CHAR) \
	CALL(what, _schar, signed char, MPI_SIGNED_CHAR) \
	CALL(what, _uchar, unsigned char, MPI_UNSIGNED_CHAR) \
	CALL(what, _short, short, MPI_SHORT) \
	CALL(what, _long, long, MPI_LONG) \
	CALL(what, _float, float, MPI_FLOAT) \
	CALL(what, _double, double, MPI_DOUBLE) \
	CALL(what, _ushort, unsigned short, MPI_UNSIGNED_SHORT) \
	CALL(what, _uint, unsigned int, MPI_UNSIGNED) \
	CALL(what, _longlong, long long, MPI_LONG_LONG_INT) \
	CALL(what, _ulonglong, unsigned long long, MPI_UNSIGNED_LONG_LONG)
#ifdef PLFS_ONE_TYPE
#define EACH_TYPE ONE_TYPE
#else
#define EACH_TYPE(CALL, what) ONE_TYPE(CALL, what) OTHER_TYPES(CALL, what)
#endif

#define ACCESS_TYPED(form, suffix, ctype, type) SEVEN(form, suffix, ctype, TYPED, -1, type)
#define ACCESS(form) \
	SEVEN(form, , void, FLEXIBLE, bufcount, buftype) \
	EACH_TYPE(ACCESS_TYPED, form)

ACCESS(var)
ACCESS(var1)
ACCESS(vara)
ACCESS(vars)
ACCESS(varm)
ACCESS(varn)

/* --- several variables in a call --- */

struct several {
	int how, num;
	const int *varids;
	MPI_Offset *const *starts, *const *counts, *const *strides, *const *imaps;
	int kind;
	void *const *buffers;
	const MPI_Offset *bufcounts;
	const MPI_Datatype *types;
	MPI_Datatype type; /* if there are no `types` */
};

/* Posts one of them, of a variable that is whole. */
static int post_whole(
	int ncid, const struct several *s, int i, MPI_Offset count, MPI_Datatype type, int *id)
{
	int varid = s->varids[i];
	const MPI_Offset *start = s->starts ? s->starts[i] : NULL;
	const MPI_Offset *number = s->counts ? s->counts[i] : NULL;
	const MPI_Offset *stride = s->strides ? s->strides[i] : NULL;
	const MPI_Offset *imap = s->imaps ? s->imaps[i] : NULL;
	void *data = s->buffers[i];
	bool put = s->how & PUT;
	switch (s->kind) {
	case VAR:
		if (is_short(ncid, varid, s->how))
			return get_short(ncid, varid, LATER, data, count, type, id);
		return put ? real->iput_var(ncid, varid, data, count, type, id)
			   : real->iget_var(ncid, varid, data, count, type, id);
	case VAR1:
		return put ? real->iput_var1(ncid, varid, start, data, count, type, id)
			   : real->iget_var1(ncid, varid, start, data, count, type, id);
	default:
		return put ? real->iput_varm(ncid, varid, start, number, stride, imap, data, count,
				     type, id)
			   : real->iget_varm(ncid, varid, start, number, stride, imap, data, count,
				     type, id);
	}
}

/* As PnetCDF does it: all are posted and waited for. */
static int multiple(struct file *f, const struct several *s)
{
	int rc = mode_allows(f, s->how);
	if (rc != NC_NOERR)
		return rc;
	bool all = s->how & ALL;
	int n = s->num > 0 ? s->num : 0, count = 0;
	int *ids = must(calloc((size_t)n + 1, sizeof *ids));
	for (int i = 0; i < n && rc == NC_NOERR; i++) {
		int varid = s->varids[i];
		MPI_Offset bufcount = s->types ? s->bufcounts[i] : -1;
		MPI_Datatype type = s->types ? s->types[i] : s->type;
		struct shape shape = {.kind = (unsigned)s->kind,
			.start = s->starts ? s->starts[i] : NULL,
			.count = s->counts ? s->counts[i] : NULL,
			.stride = s->strides ? s->strides[i] : NULL,
			.imap = s->imaps ? s->imaps[i] : NULL};
		ids[count] = NC_REQ_NULL;
		rc = transfer(f, varid, (s->how & PUT) | LATER, &shape, s->buffers[i], bufcount,
			type, &ids[count]);
		if (rc == NOT_CUT)
			rc = post_whole(f->ncid, s, i, bufcount, type, &ids[count]);
		if (ids[count] != NC_REQ_NULL)
			count++;
	}
	int result = all ? door_wait_all(f->ncid, count, ids, NULL)
			 : door_wait(f->ncid, count, ids, NULL);
	free(ids);
	return rc != NC_NOERR ? rc : result;
}

#define MANY_var
#define MANY_var1 , MPI_Offset *const *starts
#define MANY_vara , MPI_Offset *const *starts, MPI_Offset *const *counts
#define MANY_vars , MPI_Offset *const *starts, MPI_Offset *const *counts, MPI_Offset *const *strides
#define MANY_varm \
	, MPI_Offset *const *starts, MPI_Offset *const *counts, MPI_Offset *const *strides, \
		MPI_Offset *const *imaps
#define GIVEN_var
#define GIVEN_var1 , starts
#define GIVEN_vara , starts, counts
#define GIVEN_vars , starts, counts, strides
#define GIVEN_varm , starts, counts, strides, imaps
#define FIELDS_var .kind = VAR
#define FIELDS_var1 .kind = VAR1, .starts = starts
#define FIELDS_vara .kind = VARA, .starts = starts, .counts = counts
#define FIELDS_vars .kind = VARS, .starts = starts, .counts = counts, .strides = strides
#define FIELDS_varm \
	.kind = VARM, .starts = starts, .counts = counts, .strides = strides, .imaps = imaps
#define MANY_FLEXIBLE_PARAMETERS , const MPI_Offset *bufcounts, const MPI_Datatype *types
#define MANY_FLEXIBLE_ARGUMENTS , bufcounts, types
#define MANY_FLEXIBLE_FIELDS .bufcounts = bufcounts, .types = types
#define MANY_TYPED_PARAMETERS
#define MANY_TYPED_ARGUMENTS
#define MANY_TYPED_FIELDS .types = NULL

#define MANY(name, form, flags, pointer, memory, mpitype) \
	int door_##name(int ncid, int num, int *varids MANY_##form, \
		pointer buffers MANY_##memory##_PARAMETERS) \
	{ \
		struct file *f = file_of(ncid); \
		if (!f) \
			return real->name(ncid, num, varids GIVEN_##form, \
				buffers MANY_##memory##_ARGUMENTS); \
		struct several s = {.how = flags, \
			.num = num, \
			.varids = varids, \
			FIELDS_##form, \
			.buffers = (void *const *)buffers, \
			.type = mpitype, \
			MANY_##memory##_FIELDS}; \
		return multiple(f, &s); \
	}
#define FOUR(form, suffix, ctype, memory, type) \
	MANY(mput_##form##suffix, form, PUT, ctype *const *, memory, type) \
	MANY(mput_##form##suffix##_all, form, PUT | ALL, ctype *const *, memory, type) \
	MANY(mget_##form##suffix, form, 0, ctype **, memory, type) \
	MANY(mget_##form##suffix##_all, form, ALL, ctype **, memory, type)
#define MULTIPLE_TYPED(form, suffix, ctype, type) FOUR(form, suffix, ctype, TYPED, type)
#define MULTIPLE(form) \
	FOUR(form, , void, FLEXIBLE, MPI_DATATYPE_NULL) \
	EACH_TYPE(MULTIPLE_TYPED, form)

MULTIPLE(var)
MULTIPLE(var1)
MULTIPLE(vara)
MULTIPLE(vars)
MULTIPLE(varm)

/* --- by file types --- */

/* A file type says where bytes are in one file, not which elements of an array they are. */
static int refuse(struct file *f, int varid, int how)
{
	int named = varid;
	MPI_Offset end = 0;
	int rc = whose(f, how, &named, &end);
	if (rc == NC_NOERR)
		rc = wrong_variable(f, varid);
	if (rc != NC_NOERR)
		return rc;
	if (f->rank == 0)
		say(f, "ncmpi_put_vard and get_vard are not for partitioned variables, as a file "
		       "type is of one file; use vara, vars or varn");
	return NC_ENOTSUPPORT;
}

#define BY_FILE_TYPE(name, how, ctype) \
	int door_##name(int ncid, int varid, MPI_Datatype filetype, ctype *buffer, \
		MPI_Offset bufcount, MPI_Datatype buftype) \
	{ \
		struct file *f = file_of(ncid); \
		int rc = f ? refuse(f, varid, how) : NOT_CUT; \
		return rc != NOT_CUT \
			       ? rc \
			       : real->name(ncid, varid, filetype, buffer, bufcount, buftype); \
	}
BY_FILE_TYPE(put_vard, PUT, const void)
BY_FILE_TYPE(put_vard_all, PUT | ALL, const void)
BY_FILE_TYPE(get_vard, 0, void)
BY_FILE_TYPE(get_vard_all, ALL, void)
