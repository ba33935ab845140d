/* Requests: from the arguments of one of the 700 calls to boxes of a variable and where their data
 * is, and from there to pieces that lie in one partition.
 *
 * All forms are one: (start, count, stride) of the variable, and an imap that says how far apart in
 * memory the elements of each dimension are. Memory of derived datatypes is packed first. */
#include "door.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* --- types --- */

MPI_Datatype type_numbered(int number, int *size)
{
	switch (number) {
#define TYPE(number, type, ctype) \
	case number: \
		*size = (int)sizeof(ctype); \
		return type;
		TYPE(0, MPI_CHAR, char)
		TYPE(1, MPI_SIGNED_CHAR, signed char)
		TYPE(2, MPI_UNSIGNED_CHAR, unsigned char)
		TYPE(3, MPI_SHORT, short)
		TYPE(4, MPI_UNSIGNED_SHORT, unsigned short)
		TYPE(5, MPI_INT, int)
		TYPE(6, MPI_UNSIGNED, unsigned int)
		TYPE(7, MPI_LONG, long)
		TYPE(8, MPI_FLOAT, float)
		TYPE(9, MPI_DOUBLE, double)
		TYPE(10, MPI_LONG_LONG_INT, long long)
		TYPE(11, MPI_UNSIGNED_LONG_LONG, unsigned long long)
		TYPE(12, MPI_UNSIGNED_LONG, unsigned long)
#undef TYPE
	default:
		return MPI_DATATYPE_NULL;
	}
}

#define TYPES 13

int type_number(MPI_Datatype type)
{
	int unused;
	for (int i = 0; i < TYPES; i++)
		if (type_numbered(i, &unused) == type)
			return i;
	/* Those of Fortran and of sizes, as C has them. */
	const struct {
		MPI_Datatype type;
		int number;
	} SAME[] = {
		{MPI_CHARACTER, 0},
		{MPI_INT8_T, 1},
		{MPI_INTEGER1, 1},
		{MPI_BYTE, 2},
		{MPI_UINT8_T, 2},
		{MPI_INT16_T, 3},
		{MPI_INTEGER2, 3},
		{MPI_UINT16_T, 4},
		{MPI_INT32_T, 5},
		{MPI_INTEGER, 5},
		{MPI_INTEGER4, 5},
		{MPI_UINT32_T, 6},
		{MPI_REAL, 8},
		{MPI_REAL4, 8},
		{MPI_DOUBLE_PRECISION, 9},
		{MPI_REAL8, 9},
		{MPI_INT64_T, 10},
		{MPI_INTEGER8, 10},
		{MPI_OFFSET, 10},
		{MPI_AINT, 10},
		{MPI_UINT64_T, 11},
	};
	for (size_t i = 0; i < sizeof SAME / sizeof *SAME; i++)
		if (SAME[i].type != MPI_DATATYPE_NULL && SAME[i].type == type)
			return SAME[i].number;
	return -1;
}

static MPI_Datatype type_of_file(nc_type type)
{
	static const int NUMBERS[] = {-1, 1, 0, 3, 5, 8, 9, 2, 4, 6, 10, 11};
	int unused;
	return type_numbered(NUMBERS[type], &unused);
}

/* The one type that a datatype is made of. */
static int element_of(MPI_Datatype type, int *number)
{
	int integers, addresses, types, combiner;
	*number = type_number(type);
	if (*number >= 0)
		return NC_NOERR;
	if (PMPI_Type_get_envelope(type, &integers, &addresses, &types, &combiner) != MPI_SUCCESS)
		return NC_EMPI;
	if (combiner == MPI_COMBINER_NAMED || types < 1)
		return NC_EUNSPTETYPE;
	int *i = must(calloc((size_t)integers + 1, sizeof *i));
	MPI_Aint *a = must(calloc((size_t)addresses + 1, sizeof *a));
	MPI_Datatype *inner = must(calloc((size_t)types, sizeof *inner));
	int rc = PMPI_Type_get_contents(type, integers, addresses, types, i, a, inner) ==
				 MPI_SUCCESS
			 ? NC_NOERR
			 : NC_EMPI;
	int first = -1;
	for (int t = 0; rc == NC_NOERR && t < types; t++) {
		rc = element_of(inner[t], number);
		if (rc == NC_NOERR && first >= 0 && first != *number)
			rc = NC_EMULTITYPES;
		first = *number;
		int n1, n2, n3, kind;
		/* Those that get_contents has made for us. */
		if (PMPI_Type_get_envelope(inner[t], &n1, &n2, &n3, &kind) == MPI_SUCCESS &&
			kind != MPI_COMBINER_NAMED)
			PMPI_Type_free(&inner[t]);
	}
	free(i);
	free(a);
	free(inner);
	return rc;
}

/* --- what is asked for --- */

/* As PnetCDF checks it, in its order. */
static int check(struct file *f, const struct variable *v, bool put, bool has_count,
	const MPI_Offset *start, const MPI_Offset *count, const MPI_Offset *stride,
	MPI_Offset records)
{
	if (!start || start[0] < 0)
		return NC_EINVALCOORDS;
	if (v->is_record && f->format != NC_FORMAT_CDF5 && start[0] > UINT_MAX)
		return NC_EINVALCOORDS;
	for (int d = 0; d < v->ndims; d++) {
		MPI_Offset length = d == 0 && v->is_record ? records : v->length[d];
		MPI_Offset n = count ? count[d] : 1;
		if (d == 0 && v->is_record && put)
			continue;
		if (start[d] < 0 || start[d] > length || (start[d] == length && n > 0))
			return NC_EINVALCOORDS;
	}
	if (!count)
		return has_count ? NC_EEDGE : NC_NOERR;
	for (int d = 0; d < v->ndims; d++) {
		MPI_Offset length = d == 0 && v->is_record ? records : v->length[d];
		if (count[d] < 0)
			return NC_ENEGATIVECNT;
		if (d == 0 && v->is_record && put)
			continue;
		if (count[d] > length || start[d] + count[d] > length)
			return NC_EEDGE;
		if (stride && count[d] > 0 && start[d] + (count[d] - 1) * stride[d] >= length)
			return NC_EEDGE;
	}
	for (int d = 0; stride && d < v->ndims; d++)
		if (stride[d] <= 0)
			return NC_ESTRIDE;
	return NC_NOERR;
}

static void box_add(const struct variable *v, struct request *r, const MPI_Offset *start,
	const MPI_Offset *count, const MPI_Offset *stride, const MPI_Offset *imap)
{
	size_t n = (size_t)v->ndims;
	struct box *b = &r->boxes[r->count];
	b->start = r->numbers + (size_t)r->count * 4 * n;
	b->count = b->start + n;
	b->stride = b->count + n;
	b->imap = b->stride + n;
	b->at = r->elements;
	MPI_Offset run = 1;
	for (int d = v->ndims - 1; d >= 0; d--) {
		b->start[d] = start ? start[d] : 0;
		b->count[d] = count ? count[d] : 1;
		b->stride[d] = stride ? stride[d] : 1;
		b->imap[d] = imap ? imap[d] : run;
		run *= b->count[d];
	}
	r->elements += run;
	if (v->is_record && run > 0) {
		MPI_Offset end = b->start[0] + (b->count[0] - 1) * b->stride[0] + 1;
		r->record_end = end > r->record_end ? end : r->record_end;
	}
	if (run > 0)
		r->count++;
}

static int boxes_make(
	struct file *f, const struct variable *v, struct request *r, const struct shape *s)
{
	MPI_Offset records = f->is_writable ? records_of(f) : f->records;
	int n = s->kind == VARN ? s->num : 1, rc = NC_NOERR;
	if (s->kind == VARN && n != 0 && !s->starts)
		return NC_ENULLSTART;
	/* Fewer than none are none. */
	n = n > 0 ? n : 0;
	r->boxes = calloc((size_t)n + 1, sizeof *r->boxes);
	r->numbers = calloc(((size_t)n + 1) * 4 * (size_t)v->ndims, sizeof *r->numbers);
	if (!r->boxes || !r->numbers)
		return NC_ENOMEM;
	if (s->kind == VAR) {
		MPI_Offset *first = must(calloc((size_t)v->ndims * 2, sizeof *first));
		MPI_Offset *whole = first + v->ndims;
		memcpy(whole, v->length, (size_t)v->ndims * sizeof *whole);
		/* Those that the program is told of, but that may be the master's alone. */
		if (v->is_record)
			whole[0] = records_of(f);
		if (v->is_record && whole[0] > records)
			rc = check(f, v, r->is_put, true, first, whole, NULL, records);
		if (rc == NC_NOERR)
			box_add(v, r, first, whole, NULL, NULL);
		free(first);
		return rc;
	}
	if (s->kind != VARN) {
		bool has_count = s->kind != VAR1;
		rc = check(f, v, r->is_put, has_count, s->start, s->count, s->stride, records);
		if (rc == NC_NOERR)
			box_add(v, r, s->start, s->count, s->stride, s->imap);
		return rc;
	}
	for (int i = 0; rc == NC_NOERR && i < n; i++) {
		const MPI_Offset *count = s->counts ? s->counts[i] : NULL;
		if (!s->starts[i])
			return NC_ENULLSTART;
		rc = check(f, v, r->is_put, false, s->starts[i], count, NULL, records);
		if (rc == NC_NOERR)
			box_add(v, r, s->starts[i], count, NULL, NULL);
	}
	return rc;
}

/* Copies `count` elements that are mapped to where they are dense. */
static char *gather(char *to, const char *from, int size, int ndims, const MPI_Offset *count,
	const MPI_Offset *imap)
{
	if (ndims == 0) {
		memcpy(to, from, (size_t)size);
		return to + size;
	}
	for (MPI_Offset i = 0; i < *count; i++)
		to = gather(to, from + i * *imap * size, size, ndims - 1, count + 1, imap + 1);
	return to;
}

/* A buffered put is done with the program's memory when it returns. */
static int keep(const struct variable *v, struct request *r)
{
	char *copy = malloc((size_t)r->elements * (size_t)r->size + 1), *to = copy;
	if (!copy)
		return NC_ENOMEM;
	for (int i = 0; i < r->count; i++) {
		struct box *b = &r->boxes[i];
		const char *from = r->data + b->at * r->size;
		b->at = (to - copy) / r->size;
		to = gather(to, from, r->size, v->ndims, b->count, b->imap);
		MPI_Offset run = 1;
		for (int d = v->ndims - 1; d >= 0; d--) {
			b->imap[d] = run;
			run *= b->count[d];
		}
	}
	free(r->own);
	r->own = r->data = copy;
	return NC_NOERR;
}

static void request_free(struct request *r)
{
	if (!r)
		return;
	free(r->boxes);
	free(r->numbers);
	free(r->own);
	if (r->user_data)
		PMPI_Type_free(&r->user_type);
	free(r);
}

/* The program's memory, as elements of one type. */
static int memory_find(const struct variable *v, struct request *r, const void *buffer,
	MPI_Offset count, MPI_Datatype type)
{
	int number, rc = NC_NOERR;
	bool is_named = true;
	r->data = (char *)buffer;
	if (type == MPI_DATATYPE_NULL && count != -1) {
		type = type_of_file(v->type);
		count = -1;
	}
	if (count == -1) {
		number = type_number(type);
		rc = number < 0 ? NC_EUNSPTETYPE : NC_NOERR;
	} else {
		rc = element_of(type, &number);
		is_named = rc == NC_NOERR && type_number(type) >= 0;
	}
	if (rc != NC_NOERR)
		return rc;
	r->type = type_numbered(number, &r->size);
	if ((number == 0) != (v->type == NC_CHAR))
		return NC_ECHAR;
	if (count == -1)
		return NC_NOERR;
	int bytes;
	MPI_Offset elements;
	PMPI_Type_size(type, &bytes);
	if (__builtin_mul_overflow(bytes / r->size, count, &elements) || elements != r->elements)
		return NC_EIOMISMATCH;
	if (count > INT_MAX)
		return NC_EINTOVERFLOW;
	if (is_named || r->elements == 0)
		return NC_NOERR;
	/* An imap is of the packed elements, which have no gaps. */
	for (int i = 0; i < r->count; i++) {
		MPI_Offset last = r->boxes[i].at;
		for (int d = 0; d < v->ndims; d++)
			last += (r->boxes[i].count[d] - 1) * r->boxes[i].imap[d];
		if (last >= r->elements)
			return NC_EIOMISMATCH;
	}
	int packed = 0, at = 0;
	if (PMPI_Pack_size((int)count, type, MPI_COMM_SELF, &packed) != MPI_SUCCESS)
		return NC_EINTOVERFLOW;
	r->own = malloc((size_t)packed + 1);
	if (!r->own)
		return NC_ENOMEM;
	if (r->is_put) {
		if (PMPI_Pack(buffer, (int)count, type, r->own, packed, &at, MPI_COMM_SELF) !=
			MPI_SUCCESS)
			return NC_EMPI;
	} else {
		r->user_data = (void *)buffer;
		r->user_count = count;
		PMPI_Type_dup(type, &r->user_type);
	}
	r->data = r->own;
	return NC_NOERR;
}

/* A request that can be carried out, or an error. One for later whose buffer has no elements is
 * checked and forgotten, whatever it says of the variable, and one of no boxes: so PnetCDF does. */
static int request_make(struct file *f, int varid, int how, const struct shape *shape,
	const void *buffer, MPI_Offset count, MPI_Datatype type, struct request **out)
{
	const struct variable *v = &f->vars[varid];
	struct request *r = must(calloc(1, sizeof *r));
	r->varid = varid;
	r->is_put = how & PUT;
	int rc = r->is_put && !f->is_writable ? NC_EPERM : NC_NOERR;
	/* The types first, of those calls that name one: so PnetCDF does. */
	int number = count == -1 ? type_number(type) : -1;
	if (rc == NC_NOERR && number >= 0 && (number == 0) != (v->type == NC_CHAR))
		rc = NC_ECHAR;
	bool is_empty = how & LATER && count == 0 && type != MPI_DATATYPE_NULL;
	int num = shape->kind == VARN ? shape->num : 1;
	bool is_none = num == 0 || (is_empty && num < 0);
	if (rc == NC_NOERR && !is_none)
		rc = boxes_make(f, v, r, shape);
	if (rc != NC_NOERR || is_empty || is_none) {
		request_free(r);
		return rc;
	}
	rc = memory_find(v, r, buffer, count, type);
	if (rc == NC_NOERR && how & BUFFERED) {
		MPI_Offset used = 0;
		r->buffered = r->elements * v->size;
		rc = real->inq_buffer_usage(f->ncid, &used);
		if (rc == NC_NOERR && used + f->attached_used + r->buffered > f->attached)
			rc = NC_EINSUFFBUF;
		if (rc == NC_NOERR)
			rc = keep(v, r);
	}
	if (rc != NC_NOERR) {
		request_free(r);
		return rc;
	}
	f->attached_used += r->buffered;
	*out = r;
	return NC_NOERR;
}

/* Takes a request to its end; gives its status. */
static int request_end(struct file *f, struct request *r)
{
	int status = r->status, at = 0;
	if (r->user_data) {
		int bytes = (int)(r->elements * r->size);
		if (status == NC_NOERR || status == NC_ERANGE)
			PMPI_Unpack(r->own, bytes, &at, r->user_data, (int)r->user_count,
				r->user_type, MPI_COMM_SELF);
	}
	MPI_Offset bytes = r->elements * f->vars[r->varid].size;
	*(r->is_put ? &f->put_bytes : &f->got_bytes) += bytes;
	f->attached_used -= r->buffered;
	request_free(r);
	return status;
}

struct request *request_take(struct file *f, int id)
{
	for (struct request **at = &f->first; *at; at = &(*at)->next)
		if ((*at)->id == id) {
			struct request *r = *at;
			*at = r->next;
			if (!*at)
				f->last = at;
			r->next = NULL;
			return r;
		}
	return NULL;
}

void requests_drop(struct file *f)
{
	while (f->first) {
		struct request *r = request_take(f, f->first->id);
		f->attached_used -= r->buffered;
		request_free(r);
	}
}

/* --- pieces --- */

static struct piece *piece_add(struct pieces *out, int ndims)
{
	if (out->count == out->room) {
		out->room = out->room ? out->room * 2 : 16;
		out->piece = must(realloc(out->piece, (size_t)out->room * sizeof *out->piece));
	}
	struct piece *p = &out->piece[out->count++];
	p->start = must(malloc((size_t)ndims * 4 * sizeof *p->start));
	p->count = p->start + ndims;
	p->stride = p->count + ndims;
	p->imap = p->stride + ndims;
	return p;
}

void pieces_cut(struct file *f, struct request *r, struct pieces *out)
{
	const struct variable *v = &f->vars[r->varid];
	size_t bytes = (size_t)v->ndims * sizeof(MPI_Offset);
	for (int i = 0; i < r->count; i++) {
		const struct box *b = &r->boxes[i];
		MPI_Offset start = b->start[v->dim], stride = b->stride[v->dim];
		MPI_Offset last = start + (b->count[v->dim] - 1) * stride;
		for (int k = 0; k < v->parts; k++) {
			MPI_Offset low, length, from = 0, to;
			part_of(v, k, &low, &length);
			if (low > last || low + length <= start)
				continue;
			/* Those elements of the box, [from, to), that are in the part. */
			if (low > start)
				from = (low - start + stride - 1) / stride;
			to = (low + length - 1 - start) / stride + 1;
			to = to < b->count[v->dim] ? to : b->count[v->dim];
			if (from >= to)
				continue;
			struct piece *p = piece_add(out, v->ndims);
			p->request = r;
			p->k = k;
			memcpy(p->start, b->start, bytes);
			memcpy(p->count, b->count, bytes);
			memcpy(p->stride, b->stride, bytes);
			memcpy(p->imap, b->imap, bytes);
			p->start[v->dim] = start + from * stride - low;
			p->count[v->dim] = to - from;
			p->at = b->at + from * b->imap[v->dim];
		}
	}
}

void pieces_free(struct pieces *pieces)
{
	for (int i = 0; i < pieces->count; i++)
		free(pieces->piece[i].start);
	free(pieces->piece);
	*pieces = (struct pieces){0};
}

/* --- the calls --- */

/* Carries out those of the list [r, NULL) that are puts or gets. Collective if `all`. */
static int carry_out(struct file *f, struct request *r, bool put, bool all)
{
	struct pieces pieces = {0};
	for (; r; r = r->next)
		if (r->is_put == put)
			pieces_cut(f, r, &pieces);
	int rc = NC_NOERR;
	if (all && f->ranks > 1 && f->settings.exchange)
		rc = issue_by_delegates(f, put, &pieces);
	else
		issue_directly(f, put, &pieces);
	pieces_free(&pieces);
	return rc;
}

int mode_allows(const struct file *f, int how)
{
	bool all = how & ALL;
	if ((how & PUT) && !f->is_writable)
		return NC_EPERM;
	if (f->mode == DEFINE)
		return NC_EINDEFINE;
	/* Ranks need not be in the same mode then. */
	if (f->is_undefined)
		return NC_EMULTIDEFINE;
	if (all && f->mode == INDEPENDENT)
		return NC_EINDEP;
	if (!all && f->mode != INDEPENDENT)
		return NC_ENOTINDEP;
	return NC_NOERR;
}

int wrong_variable(const struct file *f, int varid)
{
	if (varid == NC_GLOBAL)
		return NC_EGLOBAL;
	return cut_of(f->ncid, varid) ? NC_NOERR : NC_ENOTVAR;
}

int whose(struct file *f, int how, int *varid, MPI_Offset *end)
{
	bool is_there = *varid >= 0 && *varid < f->nvars;
	bool is_cut = is_there && f->vars[*varid].is_cut;
	int rc = mode_allows(f, how);
	if (rc != NC_NOERR || !(how & ALL))
		return is_cut ? rc : NOT_CUT;
	int64_t mine[3] = {is_cut ? *varid : -1, is_there && !is_cut, *end}, any[3];
	if (PMPI_Allreduce(mine, any, 3, MPI_INT64_T, MPI_MAX, f->comm) != MPI_SUCCESS)
		return NC_EMPI;
	if (any[0] < 0)
		return NOT_CUT;
	*varid = (int)any[0];
	*end = any[2];
	if (!any[1])
		return NC_NOERR;
	if (f->rank == 0)
		say(f, "a collective call names a partitioned variable on some ranks, and on "
		       "others one that is not; make it two calls");
	return NC_EMULTIDEFINE_FNC_ARGS;
}

int transfer(struct file *f, int varid, int how, const struct shape *shape, const void *buffer,
	MPI_Offset count, MPI_Datatype type, int *id)
{
	struct request *r = NULL;
	if (how & LATER) {
		if (!cut_of(f->ncid, varid))
			return NOT_CUT;
		if (id)
			*id = NC_REQ_NULL;
		/* PnetCDF looks whether there is a buffer. */
		MPI_Offset unused;
		int rc = how & BUFFERED ? other.inq_buffer_size(f->ncid, &unused) : NC_NOERR;
		if (rc == NC_NOERR)
			rc = request_make(f, varid, how, shape, buffer, count, type, &r);
		if (!r)
			return rc;
		r->id = f->next_id;
		f->next_id = f->next_id == INT_MAX ? FIRST_ID : f->next_id + 1;
		*f->last = r;
		f->last = &r->next;
		if (id)
			*id = r->id;
		return NC_NOERR;
	}
	bool all = how & ALL, put = how & PUT;
	int rc = wrong_variable(f, varid);
	if (rc == NC_NOERR)
		rc = request_make(f, varid, how, shape, buffer, count, type, &r);
	MPI_Offset end = put && r ? r->record_end : 0;
	int shared = whose(f, how, &varid, &end);
	if (shared != NC_NOERR || (!all && rc != NC_NOERR)) {
		request_free(r);
		return shared != NC_NOERR ? shared : rc;
	}
	/* In a collective call, one that is wrong takes part without data. */
	shared = carry_out(f, r, put, all);
	f->records = end > f->records ? end : f->records;
	if (all && end > 0) {
		int followed = master_follow(f);
		shared = shared == NC_NOERR ? followed : shared;
	}
	int status = r ? request_end(f, r) : NC_NOERR;
	return rc != NC_NOERR ? rc : status != NC_NOERR ? status : shared;
}

/* --- wait and its kin --- */

static bool is_meant(int count, const struct request *r)
{
	return count == NC_REQ_ALL || count == (r->is_put ? NC_PUT_REQ_ALL : NC_GET_REQ_ALL);
}

/* Those of ours among `ids`, taken from the list, in their order; the rest stays in `rest`. */
static struct request *take_all(struct file *f, int count, const int *ids, int *rest, int *others)
{
	struct request *first = NULL, **last = &first;
	*others = 0;
	if (count < 0) {
		for (struct request *r = f->first, *next; r; r = next) {
			next = r->next;
			if (!is_meant(count, r))
				continue;
			*last = request_take(f, r->id);
			last = &(*last)->next;
		}
		return first;
	}
	for (int i = 0; i < count; i++) {
		struct request *r = ids[i] >= FIRST_ID ? request_take(f, ids[i]) : NULL;
		if (!r) {
			rest[(*others)++] = ids[i];
			continue;
		}
		*last = r;
		last = &r->next;
	}
	return first;
}

static int finish(int ncid, int count, int *ids, int *statuses, bool all)
{
	struct file *f = file_of(ncid);
	if (!f)
		return all ? real->wait_all(ncid, count, ids, statuses)
			   : real->wait(ncid, count, ids, statuses);
	int wrong = mode_allows(f, all ? ALL : 0);
	if (wrong != NC_NOERR)
		return wrong;
	int n = count > 0 ? count : 0, others = 0;
	int *rest = must(calloc((size_t)n + 1, sizeof *rest));
	int *told = must(calloc((size_t)n + 1, sizeof *told));
	struct request *r = take_all(f, count, ids, rest, &others);
	/* Are there puts, gets, others; up to which record. */
	int64_t mine[4] = {0, 0, count < 0 || others > 0, 0}, any[4];
	for (struct request *at = r; at; at = at->next) {
		mine[at->is_put ? 0 : 1] = 1;
		if (at->is_put && at->record_end > mine[3])
			mine[3] = at->record_end;
	}
	memcpy(any, mine, sizeof any);
	int rc = NC_NOERR, result;
	if (all && PMPI_Allreduce(mine, any, 4, MPI_INT64_T, MPI_MAX, f->comm) != MPI_SUCCESS)
		rc = NC_EMPI;
	if (rc == NC_NOERR && any[2])
		rc = all ? real->wait_all(ncid, count < 0 ? count : others, rest, told)
			 : real->wait(ncid, count < 0 ? count : others, rest, told);
	for (int put = 1; put >= 0; put--) {
		if (!any[put ? 0 : 1])
			continue;
		result = carry_out(f, r, put, all);
		rc = rc == NC_NOERR ? result : rc;
		if (put && any[3] > f->records)
			f->records = any[3];
		result = put && all && any[3] > 0 ? master_follow(f) : NC_NOERR;
		rc = rc == NC_NOERR ? result : rc;
	}
	/* Back to the places that the program has them in. */
	for (int i = 0, other = 0; i < n; i++) {
		if (r && ids[i] == r->id) {
			struct request *next = r->next;
			told[n] = request_end(f, r);
			r = next;
			ids[i] = NC_REQ_NULL;
			if (statuses)
				statuses[i] = told[n];
			rc = rc == NC_NOERR ? told[n] : rc;
			continue;
		}
		if (statuses)
			statuses[i] = told[other];
		ids[i] = rest[other++];
	}
	while (r) {
		struct request *next = r->next;
		result = request_end(f, r);
		rc = rc == NC_NOERR ? result : rc;
		r = next;
	}
	free(rest);
	free(told);
	return rc;
}

int door_wait(int ncid, int count, int *ids, int *statuses)
{
	return finish(ncid, count, ids, statuses, false);
}

int door_wait_all(int ncid, int count, int *ids, int *statuses)
{
	return finish(ncid, count, ids, statuses, true);
}

int door_cancel(int ncid, int count, int *ids, int *statuses)
{
	struct file *f = file_of(ncid);
	if (!f)
		return real->cancel(ncid, count, ids, statuses);
	int n = count > 0 ? count : 0, others = 0;
	int *rest = must(calloc((size_t)n + 1, sizeof *rest));
	int *told = must(calloc((size_t)n + 1, sizeof *told));
	struct request *r = take_all(f, count, ids, rest, &others);
	int rc = count < 0 || others > 0
			 ? real->cancel(ncid, count < 0 ? count : others, rest, told)
			 : NC_NOERR;
	for (int i = 0, other = 0; i < n; i++) {
		bool is_ours = r && ids[i] == r->id;
		if (statuses)
			statuses[i] = is_ours ? NC_NOERR : told[other];
		ids[i] = is_ours ? NC_REQ_NULL : rest[other++];
		if (is_ours) {
			struct request *next = r->next;
			f->attached_used -= r->buffered;
			request_free(r);
			r = next;
		}
	}
	while (r) {
		struct request *next = r->next;
		f->attached_used -= r->buffered;
		request_free(r);
		r = next;
	}
	free(rest);
	free(told);
	return rc;
}

int door_inq_nreqs(int ncid, int *count)
{
	struct file *f = file_of(ncid);
	int rc = real->inq_nreqs(ncid, count);
	if (f && rc == NC_NOERR && count)
		for (const struct request *r = f->first; r; r = r->next)
			++*count;
	return rc;
}

int door_buffer_attach(int ncid, MPI_Offset size)
{
	struct file *f = file_of(ncid);
	int rc = real->buffer_attach(ncid, size);
	if (f && rc == NC_NOERR)
		f->attached = size;
	return rc;
}

int door_buffer_detach(int ncid)
{
	struct file *f = file_of(ncid);
	if (f && f->attached_used > 0)
		return NC_EPENDINGBPUT;
	return real->buffer_detach(ncid);
}

int door_inq_buffer_usage(int ncid, MPI_Offset *usage)
{
	struct file *f = file_of(ncid);
	int rc = real->inq_buffer_usage(ncid, usage);
	if (f && rc == NC_NOERR && usage)
		*usage += f->attached_used;
	return rc;
}
