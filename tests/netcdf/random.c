/* random DIR SEED CASES: datasets of random shapes, types and hints, with each operation done
 * twice, on a partitioned dataset and on a plain one. Return codes and inquiries are the same; data
 * is that of a model, and of the plain dataset. That one may be wrong (PnetCDF 1.12 confuses the
 * memory of some non-blocking calls): then it is not asked any more, and the last line counts such
 * cases. */
#include "t.h"

/* A generator that all ranks share, and one for each. */
static uint64_t common, own;

static uint64_t next(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}
static int below(uint64_t *state, int n)
{
	return (int)(next(state) % (uint64_t)n);
}

#define DIMS 6
#define VARS 6
enum { CUT, WHOLE, BOTH };

static struct {
	int ncid[BOTH];
	int format, ndims, unlimited;
	MPI_Offset length[DIMS];
	int nvars, filled; /* the first of those that are not written yet */
	struct {
		nc_type type;
		int ndims, dims[4];
		bool is_record;
	} var[VARS];
	MPI_Offset records;
} d;

static const MPI_Datatype TYPES[] = {MPI_SIGNED_CHAR, MPI_UNSIGNED_CHAR, MPI_SHORT,
	MPI_UNSIGNED_SHORT, MPI_INT, MPI_UNSIGNED, MPI_FLOAT, MPI_DOUBLE, MPI_LONG_LONG_INT,
	MPI_UNSIGNED_LONG_LONG};
#define NTYPES 10

static int size_of(MPI_Datatype type)
{
	int size;
	MPI_Type_size(type, &size);
	return size;
}

/* What the variables have, and whether the plain dataset still has it. */
static int model[VARS][16 * 16 * 16 * 16];
static bool plain_is_right;
static int plain_wrong;

static size_t place(int v, const MPI_Offset *at)
{
	size_t where = 0;
	for (int i = 0; i < d.var[v].ndims; i++)
		where = where * 16 + (size_t)at[i];
	return where;
}

/* What element `at` of variable v has after operation `op`. Fits into every type. */
#define FROM_MODEL 0
static int value(int op, int v, const MPI_Offset *at)
{
	if (op == FROM_MODEL)
		return model[v][place(v, at)];
	uint64_t x = (uint64_t)op * 7 + (uint64_t)v;
	for (int i = 0; i < d.var[v].ndims; i++)
		x = x * 31 + (uint64_t)at[i];
	return 1 + (int)((x * 2654435761u >> 7) % 100);
}

static void store(void *memory, MPI_Offset i, MPI_Datatype type, int n)
{
	if (type == MPI_SIGNED_CHAR || type == MPI_UNSIGNED_CHAR || type == MPI_CHAR)
		((char *)memory)[i] = (char)n;
	else if (type == MPI_SHORT || type == MPI_UNSIGNED_SHORT)
		((short *)memory)[i] = (short)n;
	else if (type == MPI_INT || type == MPI_UNSIGNED)
		((int *)memory)[i] = n;
	else if (type == MPI_FLOAT)
		((float *)memory)[i] = (float)n;
	else if (type == MPI_DOUBLE)
		((double *)memory)[i] = n;
	else
		((long long *)memory)[i] = n;
}

static MPI_Offset length_of(int v, int i)
{
	return d.var[v].is_record && i == 0 ? d.records : d.length[d.var[v].dims[i]];
}

/* A box that is in the variable; empty sometimes. */
static MPI_Offset box(int v, bool strided, MPI_Offset *start, MPI_Offset *count, MPI_Offset *stride)
{
	MPI_Offset n = 1;
	for (int i = 0; i < d.var[v].ndims; i++) {
		MPI_Offset length = length_of(v, i);
		start[i] = below(&own, (int)length);
		stride[i] = strided ? 1 + below(&own, 3) : 1;
		MPI_Offset most = (length - 1 - start[i]) / stride[i] + 1;
		/* Not even the largest index may be passed by start + count, as PnetCDF has it. */
		if (most > length - start[i])
			most = length - start[i];
		count[i] = below(&own, 4) == 0 ? most : below(&own, (int)most + 1);
		n *= count[i];
	}
	return n;
}

/* Fills memory for a box that is dense there, or mapped. */
static void fill(void *memory, MPI_Datatype type, int op, int v, const MPI_Offset *start,
	const MPI_Offset *count, const MPI_Offset *stride, const MPI_Offset *imap)
{
	MPI_Offset at[4] = {0}, index[4];
	int n = d.var[v].ndims;
	for (int i = 0; i < n; i++)
		if (count[i] == 0)
			return;
	for (;;) {
		MPI_Offset where = 0;
		for (int i = 0; i < n; i++) {
			index[i] = start[i] + at[i] * stride[i];
			where += at[i] * imap[i];
		}
		store(memory, where, type, value(op, v, index));
		int i = n - 1;
		for (; i >= 0 && ++at[i] == count[i]; i--)
			at[i] = 0;
		if (i < 0)
			return;
	}
}

/* Puts what all ranks have put into the model. */
static void learn(
	int op, int v, const MPI_Offset *start, const MPI_Offset *count, const MPI_Offset *stride)
{
	MPI_Offset mine[12], all[12 * 16];
	memcpy(mine, start, 4 * sizeof *mine);
	memcpy(mine + 4, count, 4 * sizeof *mine);
	memcpy(mine + 8, stride, 4 * sizeof *mine);
	MPI_Allgather(mine, 12, MPI_OFFSET, all, 12, MPI_OFFSET, MPI_COMM_WORLD);
	for (int r = 0; r < ranks; r++) {
		const MPI_Offset *s = all + 12 * r, *c = s + 4, *t = c + 4;
		MPI_Offset at[4] = {0}, index[4];
		int n = d.var[v].ndims, i = 0;
		for (int k = 0; k < n; k++)
			i = c[k] == 0 ? -1 : i;
		while (i >= 0) {
			for (int k = 0; k < n; k++)
				index[k] = s[k] + at[k] * t[k];
			model[v][place(v, index)] = value(op, v, index);
			for (i = n - 1; i >= 0 && ++at[i] == c[i]; i--)
				at[i] = 0;
		}
	}
}

static void dense(int v, const MPI_Offset *count, MPI_Offset *imap)
{
	MPI_Offset run = 1;
	for (int i = d.var[v].ndims - 1; i >= 0; i--) {
		imap[i] = run;
		run *= count[i];
	}
}

/* In memory the first dimension runs fastest, as in Fortran. */
static void transposed(int v, const MPI_Offset *count, MPI_Offset *imap)
{
	MPI_Offset run = 1;
	for (int i = 0; i < d.var[v].ndims; i++) {
		imap[i] = run;
		run *= count[i];
	}
}

#define MOST (16 * 16 * 16 * 16)
static char memory[BOTH][MOST * 16], kept[MOST * 16];

/* Of a variable that is whole all is PnetCDF's own. */
static bool is_cut(int v)
{
	return ncmpi_inq_att(d.ncid[CUT], v, "num_partitions", NULL, NULL) == NC_NOERR;
}

/* Is memory of both as `kept`? */
static void verify(int op, const char *what, int v, size_t from, size_t bytes)
{
	size_t at = from, end = from + bytes;
	while (at < end && memory[CUT][at] == kept[at])
		at++;
	if (at < end && is_cut(v))
		t_fail(__FILE__, __LINE__,
			"operation %d, %s: byte %zu of %zu is %02x, expected %02x", op, what,
			at - from, bytes, (unsigned char)memory[CUT][at], (unsigned char)kept[at]);
	if (at < end || memcmp(memory[WHOLE] + from, kept + from, bytes) != 0)
		plain_is_right = false;
}

/* A call that all ranks make, in its collective form if `all`, else on its own. `post` is NULL, or
 * where the number of a request goes. */
enum form { PLAIN, STRIDED, MAPPED, DERIVED, LIST, ONE };

static int put_or_get(int ncid, int v, bool put, bool all, enum form form, const MPI_Offset *start,
	const MPI_Offset *count, const MPI_Offset *stride, const MPI_Offset *imap, void *data,
	MPI_Datatype type, MPI_Offset n, int *post, bool buffered)
{
	MPI_Datatype user = type;
	MPI_Offset times = n;
	int rc;
	MPI_Offset *starts[2], *counts[2], second[4];
	if (form == DERIVED && n > 0) {
		MPI_Type_vector((int)n, 1, 2, type, &user);
		MPI_Type_commit(&user);
		times = 1;
	}
#define CALL(name, ...) \
	(post ? (put ? (buffered ? ncmpi_bput_##name(__VA_ARGS__, data, times, user, post) \
				 : ncmpi_iput_##name(__VA_ARGS__, data, times, user, post)) \
		     : ncmpi_iget_##name(__VA_ARGS__, data, times, user, post)) \
		: all ? (put ? ncmpi_put_##name##_all(__VA_ARGS__, data, times, user) \
			     : ncmpi_get_##name##_all(__VA_ARGS__, data, times, user)) \
		      : (put ? ncmpi_put_##name(__VA_ARGS__, data, times, user) \
			     : ncmpi_get_##name(__VA_ARGS__, data, times, user)))
	switch (form) {
	case STRIDED:
		rc = CALL(vars, ncid, v, start, count, stride);
		break;
	case MAPPED:
		rc = CALL(varm, ncid, v, start, count, stride, imap);
		break;
	case LIST:
		/* The box in two, along its first dimension. */
		starts[0] = (MPI_Offset *)start;
		counts[0] = (MPI_Offset *)count;
		starts[1] = second;
		counts[1] = second;
		/* PnetCDF 1.12 confuses the memory of lists of several records each. */
		if (d.var[v].is_record) {
			rc = CALL(vara, ncid, v, start, count);
		} else if (count[0] > 1) {
			MPI_Offset one[4], rest[4];
			memcpy(one, count, sizeof one);
			memcpy(rest, count, sizeof rest);
			memcpy(second, start, sizeof second);
			one[0] = count[0] / 2;
			rest[0] = count[0] - one[0];
			second[0] += one[0];
			counts[0] = one;
			counts[1] = rest;
			rc = CALL(varn, ncid, v, 2, starts, counts);
		} else {
			rc = CALL(varn, ncid, v, 1, starts, counts);
		}
		break;
	case ONE:
		times = 1;
		rc = CALL(var1, ncid, v, start);
		break;
	default:
		rc = CALL(vara, ncid, v, start, count);
	}
	if (user != type)
		MPI_Type_free(&user);
	return rc;
}

static void whole(int op, int v, MPI_Offset from_record, MPI_Offset records)
{
	/* Each rank has a part of the last dimension. */
	int n = d.var[v].ndims, last = n - 1;
	MPI_Offset start[4] = {0}, count[4], stride[4] = {1, 1, 1, 1}, imap[4];
	for (int i = 0; i < n; i++)
		count[i] = length_of(v, i);
	if (d.var[v].is_record)
		start[0] = from_record, count[0] = records;
	if (last > 0 || !d.var[v].is_record) {
		MPI_Offset all = count[last];
		start[last] = all * rank / ranks;
		count[last] = all * (rank + 1) / ranks - start[last];
	}
	dense(v, count, imap);
	MPI_Datatype type = d.var[v].type == NC_CHAR ? MPI_CHAR : MPI_INT;
	MPI_Offset total = 1;
	for (int i = 0; i < n; i++)
		total *= count[i];
	fill(memory[0], type, op, v, start, count, stride, imap);
	memcpy(memory[1], memory[0], (size_t)(total * size_of(type)));
	for (int f = 0; f < BOTH; f++)
		FINE(ncmpi_put_vara_all(d.ncid[f], v, start, count, memory[f], total, type));
	learn(op, v, start, count, stride);
}

static MPI_Datatype memory_type(int v)
{
	return d.var[v].type == NC_CHAR ? MPI_CHAR : TYPES[below(&common, NTYPES)];
}

static void settle(void)
{
	for (int f = 0; f < BOTH; f++)
		FINE(ncmpi_sync(d.ncid[f]));
	MPI_Barrier(MPI_COMM_WORLD);
}

/* One operation on both. */
static void operate(int op)
{
	int v = below(&common, d.filled), how = below(&common, 10);
	bool put = below(&common, 2), all = true;
	enum form form = (enum form)below(&common, 6);
	MPI_Datatype type = memory_type(v);
	MPI_Offset start[4] = {0}, count[4] = {0}, stride[4] = {1, 1, 1, 1}, imap[4], n;
	char what[128];
	if (d.var[v].is_record && d.records == 0)
		return;
	int requests = how < 4 ? 1 + below(&common, 4) : 0;
	bool buffered = how == 3 && put;
	if (how == 9) {
		/* By some, on their own. */
		all = false;
		for (int f = 0; f < BOTH; f++)
			FINE(ncmpi_begin_indep_data(d.ncid[f]));
	}
	if (buffered)
		for (int f = 0; f < BOTH; f++)
			FINE(ncmpi_buffer_attach(d.ncid[f], MOST * 8));
	if (!requests) {
		if (all || below(&own, 2)) {
			int rc[BOTH];
			n = box(v, form == STRIDED || form == MAPPED, start, count, stride);
			if (form == ONE)
				for (int i = 0; i < 4; i++)
					count[i] = 1, n = 1;
			if (form == MAPPED)
				transposed(v, count, imap);
			else
				dense(v, count, imap);
			if (form == DERIVED)
				for (int i = 0; i < 4; i++)
					imap[i] *= 2;
			size_t bytes = (size_t)n * 16 + 64;
			memset(memory[0], 0x55, bytes);
			memset(kept, 0x55, bytes);
			if (put)
				fill(memory[0], type, op, v, start, count, stride, imap);
			memcpy(memory[1], memory[0], bytes);
			fill(kept, type, put ? op : FROM_MODEL, v, start, count, stride, imap);
			for (int f = 0; f < BOTH; f++)
				rc[f] = put_or_get(d.ncid[f], v, put, all, form, start, count,
					stride, imap, memory[f], type, n, NULL, false);
			/* What PnetCDF confuses may be out of range as well. */
			if (is_cut(v))
				SAME(rc[CUT], NC_NOERR);
			plain_is_right &= rc[WHOLE] == NC_NOERR;
			snprintf(what, sizeof what, "%s of variable %d, form %d%s",
				put ? "put" : "get", v, form, all ? "" : ", independent");
			verify(op, what, v, 0, bytes);
		} else {
			memset(count, 0, sizeof count);
		}
		if (put)
			learn(op, v, start, count, stride);
	} else {
		/* Several at once, of several variables. */
		int ids[BOTH][8], statuses[BOTH][8], count_ids = 0;
		unsigned taken = 0;
		int of[8];
		size_t used = 0, at[9] = {0};
		for (int i = 0; i < requests; i++) {
			if (i > 0) {
				v = below(&common, d.filled);
				type = memory_type(v);
				form = (enum form)below(&common, 6);
			}
			if (d.var[v].is_record && d.records == 0)
				continue;
			/* PnetCDF 1.12 does not fill the memory of a get that reads what another of
			 * the same wait reads. */
			if (!put && taken & 1 << v)
				continue;
			taken |= 1 << v;
			if (form == ONE)
				form = PLAIN;
			n = box(v, form == STRIDED || form == MAPPED, start, count, stride);
			size_t bytes = (size_t)n * 16 + 64;
			if (used + bytes > sizeof kept)
				n = 0, memset(count, 0, sizeof count);
			if (put)
				learn(op, v, start, count, stride);
			if (n == 0)
				continue;
			if (form == MAPPED)
				transposed(v, count, imap);
			else
				dense(v, count, imap);
			if (form == DERIVED)
				for (int j = 0; j < 4; j++)
					imap[j] *= 2;
			memset(kept + used, 0x55, (bytes + 63) / 64 * 64);
			fill(kept + used, type, put ? op : FROM_MODEL, v, start, count, stride,
				imap);
			for (int f = 0; f < BOTH; f++) {
				memset(memory[f] + used, 0x55, (bytes + 63) / 64 * 64);
				/* The same value, whichever of several puts is last. */
				if (put)
					fill(memory[f] + used, type, op, v, start, count, stride,
						imap);
				FINE(put_or_get(d.ncid[f], v, put, false, form, start, count,
					stride, imap, memory[f] + used, type, n, &ids[f][count_ids],
					buffered));
			}
			used += (bytes + 63) / 64 * 64;
			of[count_ids++] = v;
			at[count_ids] = used;
		}
		int pending[BOTH];
		for (int f = 0; f < BOTH; f++)
			FINE(ncmpi_inq_nreqs(d.ncid[f], &pending[f]));
		SAME(pending[CUT], pending[WHOLE]);
		bool every = below(&common, 2);
		for (int f = 0; f < BOTH; f++) {
			int given = every ? NC_REQ_ALL : count_ids;
			int rc = !all ? ncmpi_wait(d.ncid[f], given, ids[f], statuses[f])
				      : ncmpi_wait_all(d.ncid[f], given, ids[f], statuses[f]);
			bool cut = f == CUT;
			for (int i = 0; i < count_ids; i++)
				cut &= is_cut(of[i]);
			if (cut)
				SAME(rc, NC_NOERR);
			plain_is_right &= rc == NC_NOERR;
			for (int i = 0; i < count_ids && !every; i++) {
				if (f == CUT && is_cut(of[i]))
					SAME(statuses[f][i], NC_NOERR);
				SAME(ids[f][i], NC_REQ_NULL);
			}
		}
		for (int i = 0; i < count_ids; i++)
			verify(op,
				buffered ? "bput"
				: put	 ? "iput"
					 : "iget",
				of[i], at[i], at[i + 1] - at[i]);
	}
	if (buffered)
		for (int f = 0; f < BOTH; f++)
			FINE(ncmpi_buffer_detach(d.ncid[f]));
	if (!all)
		for (int f = 0; f < BOTH; f++)
			FINE(ncmpi_end_indep_data(d.ncid[f]));
	settle();
}

static void compare(bool is_new)
{
	int n[BOTH][4];
	for (int f = 0; f < BOTH; f++)
		FINE(ncmpi_inq(d.ncid[f], &n[f][0], &n[f][1], &n[f][2], &n[f][3]));
	for (int i = 0; i < 4; i++)
		SAME(n[CUT][i], n[WHOLE][i]);
	for (int i = 0; i < d.ndims; i++) {
		MPI_Offset length[BOTH];
		for (int f = 0; f < BOTH; f++)
			FINE(ncmpi_inq_dimlen(d.ncid[f], i, &length[f]));
		SAME(length[CUT], length[WHOLE]);
	}
	MPI_Offset size[BOTH];
	int nrec[BOTH], nfix[BOTH];
	for (int f = 0; f < BOTH; f++) {
		FINE(ncmpi_inq_recsize(d.ncid[f], &size[f]));
		FINE(ncmpi_inq_num_rec_vars(d.ncid[f], &nrec[f]));
		FINE(ncmpi_inq_num_fix_vars(d.ncid[f], &nfix[f]));
	}
	SAME(size[CUT], size[WHOLE]);
	/* PnetCDF 1.12 counts from what ncmpi_open has not initialised. */
	int records = 0;
	for (int v = 0; v < d.nvars; v++)
		records += d.var[v].is_record;
	if (is_new) {
		SAME(nrec[CUT], records);
		SAME(nfix[CUT], d.nvars - records);
	}
	for (int v = 0; v < d.nvars; v++) {
		char name[BOTH][NC_MAX_NAME + 1], att[BOTH][NC_MAX_NAME + 1];
		nc_type type[BOTH];
		int ndims[BOTH], dims[BOTH][4], natts[BOTH];
		for (int f = 0; f < BOTH; f++)
			FINE(ncmpi_inq_var(
				d.ncid[f], v, name[f], &type[f], &ndims[f], dims[f], &natts[f]));
		CHECK(strcmp(name[CUT], name[WHOLE]) == 0);
		SAME(type[CUT], type[WHOLE]);
		SAME(ndims[CUT], ndims[WHOLE]);
		SAME(natts[CUT], natts[WHOLE]);
		CHECK(memcmp(dims[CUT], dims[WHOLE], (size_t)ndims[CUT] * sizeof(int)) == 0);
		for (int a = 0; a < natts[CUT]; a++) {
			int id[BOTH];
			for (int f = 0; f < BOTH; f++) {
				FINE(ncmpi_inq_attname(d.ncid[f], v, a, att[f]));
				FINE(ncmpi_inq_attid(d.ncid[f], v, att[f], &id[f]));
			}
			CHECK(strcmp(att[CUT], att[WHOLE]) == 0);
			SAME(id[CUT], id[WHOLE]);
		}
		MPI_Offset total = 1, start[4] = {0}, count[4], stride[4] = {1, 1, 1, 1}, imap[4];
		for (int i = 0; i < ndims[CUT]; i++)
			total *= count[i] = length_of(v, i);
		dense(v, count, imap);
		MPI_Datatype memory_of = type[CUT] == NC_CHAR ? MPI_CHAR : MPI_DOUBLE;
		for (int f = 0; f < BOTH; f++)
			FINE(ncmpi_get_var_all(d.ncid[f], v, memory[f], total, memory_of));
		fill(kept, memory_of, FROM_MODEL, v, start, count, stride, imap);
		if (v < d.filled)
			verify(0, name[CUT], v, 0, (size_t)(total * size_of(memory_of)));
	}
	int right = plain_is_right, all;
	MPI_Allreduce(&right, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
	plain_is_right = all;
}

static void define_var(int v)
{
	char name[32];
	static const nc_type OF_FILE[] = {NC_BYTE, NC_CHAR, NC_SHORT, NC_INT, NC_FLOAT, NC_DOUBLE,
		NC_UBYTE, NC_USHORT, NC_UINT, NC_INT64, NC_UINT64};
	d.var[v].type = OF_FILE[below(&common, d.format == NC_64BIT_DATA ? 11 : 6)];
	d.var[v].ndims = 1 + below(&common, 4);
	d.var[v].is_record = false;
	for (int i = 0; i < d.var[v].ndims; i++)
		d.var[v].dims[i] = below(&common, d.unlimited >= 0 ? d.ndims - 1 : d.ndims);
	if (d.unlimited >= 0 && below(&common, 3) == 0) {
		d.var[v].dims[0] = d.unlimited;
		d.var[v].is_record = true;
	}
	snprintf(name, sizeof name, "var.%d", v);
	bool filled = below(&common, 3) == 0, described = below(&common, 2);
	for (int f = 0; f < BOTH; f++) {
		int id;
		FINE(ncmpi_def_var(
			d.ncid[f], name, d.var[v].type, d.var[v].ndims, d.var[v].dims, &id));
		SAME(id, v);
		if (filled)
			FINE(ncmpi_def_var_fill(d.ncid[f], v, 0, NULL));
		if (described)
			FINE(ncmpi_put_att_text(d.ncid[f], v, "units", 1, "m"));
	}
	d.nvars = v + 1;
}

static void one(const char *dir, uint64_t seed)
{
	char path[BOTH][512], text[64];
	common = seed;
	own = seed * 1000003 + (uint64_t)rank + 1;
	memset(&d, 0, sizeof d);
	d.unlimited = -1;
	static const int FORMATS[] = {0, NC_64BIT_OFFSET, NC_64BIT_DATA};
	d.format = FORMATS[below(&common, 3)];
	int parts = 1 + below(&common, 8);
	snprintf(path[CUT], sizeof path[CUT], "%s/cut.nc", dir);
	snprintf(path[WHOLE], sizeof path[WHOLE], "%s/whole.nc", dir);
	snprintf(text, sizeof text, "d%d", below(&common, DIMS));
	MPI_Info info = t_hints(parts, below(&common, 2) ? text : NULL);
	if (below(&common, 2)) {
		snprintf(text, sizeof text, "%d", 4096 << below(&common, 4));
		MPI_Info_set(info, "nc_partition_buffer", text);
	}
	MPI_Info_set(info, "nc_partition_min_bytes", "1");
	if (below(&common, 4) == 0)
		MPI_Info_set(info, "nc_partition_exchange", "false");
	FINE(ncmpi_create(MPI_COMM_WORLD, path[CUT], d.format, info, &d.ncid[CUT]));
	FINE(ncmpi_create(MPI_COMM_WORLD, path[WHOLE], d.format, MPI_INFO_NULL, &d.ncid[WHOLE]));
	d.ndims = 2 + below(&common, DIMS - 1);
	for (int i = 0; i < d.ndims; i++)
		d.length[i] = 1 + below(&common, 16);
	if (below(&common, 2)) {
		d.unlimited = d.ndims - 1;
		/* The hint may not name it. */
		d.length[d.unlimited] = 0;
	}
	for (int i = 0; i < d.ndims; i++)
		for (int f = 0; f < BOTH; f++) {
			int id;
			snprintf(text, sizeof text, i == d.unlimited ? "time" : "d%d", i);
			FINE(ncmpi_def_dim(d.ncid[f], text, d.length[i], &id));
			SAME(id, i);
		}
	for (int v = 0, n = 1 + below(&common, VARS - 1); v < n; v++)
		define_var(v);
	for (int f = 0; f < BOTH; f++)
		FINE(ncmpi_enddef(d.ncid[f]));
	int op = 1;
	plain_is_right = true;
	for (int round = 0; round < 3; round++) {
		/* All is written once, as what nobody wrote is anything. */
		if (d.unlimited >= 0) {
			bool has = false;
			MPI_Offset more = 1 + below(&common, 3), old = d.records;
			for (int v = 0; v < d.nvars; v++)
				has |= d.var[v].is_record;
			if (has)
				d.records += more;
			for (int v = 0; v < d.nvars; v++)
				if (d.var[v].is_record)
					whole(op, v, v < d.filled ? old : 0,
						v < d.filled ? more : d.records);
		}
		for (int v = d.filled; v < d.nvars; v++)
			if (!d.var[v].is_record)
				whole(op, v, 0, 0);
		d.filled = d.nvars;
		settle();
		for (int i = 0; i < 5; i++)
			operate(++op);
		compare(round < 2);
		if (round < 2 && d.nvars < VARS && below(&common, 2)) {
			for (int f = 0; f < BOTH; f++)
				FINE(ncmpi_redef(d.ncid[f]));
			define_var(d.nvars);
			for (int f = 0; f < BOTH; f++)
				FINE(ncmpi_enddef(d.ncid[f]));
		}
		if (round == 1) {
			for (int f = 0; f < BOTH; f++) {
				FINE(ncmpi_close(d.ncid[f]));
				FINE(ncmpi_open(MPI_COMM_WORLD, path[f], NC_WRITE, MPI_INFO_NULL,
					&d.ncid[f]));
			}
			/* One that was defined at the end of this round is not written yet. */
		}
	}
	/* The last may not be written, if it was defined behind that. */
	for (int f = 0; f < BOTH; f++)
		FINE(ncmpi_close(d.ncid[f]));
	for (int f = 0; f < BOTH; f++)
		FINE(ncmpi_open(MPI_COMM_WORLD, path[f], NC_NOWRITE, MPI_INFO_NULL, &d.ncid[f]));
	compare(false);
	for (int f = 0; f < BOTH; f++)
		FINE(ncmpi_close(d.ncid[f]));
	MPI_Info_free(&info);
	plain_wrong += !plain_is_right;
}

int main(int argc, char **argv)
{
	t_start(&argc, &argv);
	CHECK(argc == 4);
	uint64_t seed = strtoull(argv[2], NULL, 10);
	for (int i = 0; i < atoi(argv[3]); i++) {
		if (rank == 0)
			fprintf(stderr, "case %llu\n",
				(unsigned long long)seed + (unsigned long long)i);
		one(argv[1], seed + (uint64_t)i);
	}
	if (rank == 0)
		printf("%s cases, in %d the plain dataset was wrong\n", argv[3], plain_wrong);
	MPI_Finalize();
	return 0;
}
