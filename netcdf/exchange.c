/* To the partitions by delegates, in collective calls.
 *
 * The processes are in K groups, one for each partition; if there are fewer processes than
 * partitions, each serves several. A partition's array is divided into cells, boxes that are
 * contiguous in the file, and each cell has one process of the group as its delegate: the cells are
 * dealt out in runs, so a delegate has one region of the array, always the same, and all have the
 * same amount. Pieces are chopped at cells and go to the delegates, which
 * issue them with non-blocking calls: together they are whole cells, however finely the processes
 * have divided the array among themselves.
 *
 * One call goes so:
 *   1. each process tells each delegate what it has for it (descriptors, without data);
 *   2. the delegate puts them in the order of the file, makes rounds of at most `buffer` bytes, and
 *      tells each process in which round each of its pieces is;
 *   3. round by round, data goes from the program's memory to the delegate, which then writes, or
 *      the delegate reads, and data goes back. Nobody waits for processes that it has nothing to do
 *      with;
 *   4. the delegate tells what became of each piece.
 * Data is described to MPI where it lies, so the only memory that is needed for it is the
 * delegate's buffer, and what MPI takes itself. */
#include "door.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum tag { DESCRIPTORS, ROUNDS, DATA, STATUSES };

/* A part of a piece that is in one cell: one that is sent, or one that a delegate has been told of.
 */
struct sub {
	int peer;	      /* the delegate, or who sent it */
	int varid, k, number; /* of the datatype */
	int size;
	int round, status;
	MPI_Offset *start, *count, *stride; /* in the partition */
	MPI_Offset *imap;
	char *data;
	int64_t bytes;
	struct request *request; /* of the sender */
};

struct subs {
	struct sub *sub;
	int count, room;
};

static struct sub *sub_add(struct subs *subs, int ndims, int numbers)
{
	if (subs->count == subs->room) {
		subs->room = subs->room ? subs->room * 2 : 64;
		subs->sub = must(realloc(subs->sub, (size_t)subs->room * sizeof *subs->sub));
	}
	struct sub *s = &subs->sub[subs->count++];
	*s = (struct sub){0};
	s->start = must(malloc((size_t)(ndims * numbers) * sizeof *s->start));
	s->count = s->start + ndims;
	s->stride = s->count + ndims;
	s->imap = numbers > 3 ? s->stride + ndims : NULL;
	return s;
}

static void subs_free(struct subs *subs)
{
	for (int i = 0; i < subs->count; i++)
		free(subs->sub[i].start);
	free(subs->sub);
}

/* --- cells --- */

/* No smaller than this, where a delegate would have less. */
#define CELL_BYTES (64 << 10)

/* How the part of a variable that is in partition k is divided; a record at a time. */
struct cells {
	MPI_Offset length[MOST_DIMS], cell[MOST_DIMS]; /* of the part, of a cell */
	int64_t count;
};

static void cells_of(const struct file *f, const struct variable *v, int k, struct cells *c)
{
	int first, members;
	MPI_Offset low, length;
	group_of(f, k, &first, &members);
	part_of(v, k, &low, &length);
	double bytes = v->size;
	for (int d = 0; d < v->ndims; d++) {
		c->length[d] = d == v->dim ? length : v->length[d];
		if (d == 0 && v->is_record)
			c->length[d] = 1;
		bytes *= (double)c->length[d];
	}
	double share = bytes / members;
	int64_t target = f->settings.buffer;
	if (share < (double)target)
		target = share < CELL_BYTES ? CELL_BYTES : (int64_t)share;
	int64_t inner = v->size;
	bool is_full = false;
	c->count = 1;
	for (int d = v->ndims - 1; d >= 0; d--) {
		MPI_Offset cell = is_full || inner > target ? 1 : target / inner;
		c->cell[d] = cell < c->length[d] ? cell : c->length[d];
		if (c->cell[d] < 1)
			c->cell[d] = 1;
		is_full |= c->cell[d] < c->length[d];
		inner *= c->cell[d];
		c->count *= (c->length[d] + c->cell[d] - 1) / c->cell[d];
	}
}

/* The part of box dimension d that is in [low, high): elements [*from, *to) of the box. */
static void clip(const struct piece *p, int d, MPI_Offset low, MPI_Offset high, MPI_Offset *from,
	MPI_Offset *to)
{
	MPI_Offset start = p->start[d], stride = p->stride[d];
	*from = low > start ? (low - start + stride - 1) / stride : 0;
	*to = high > start ? (high - 1 - start) / stride + 1 : 0;
	*to = *to < p->count[d] ? *to : p->count[d];
}

/* Chops a piece from dimension d on; `from` and `to` say what of it is left of the others. */
static void chop(struct file *f, const struct piece *p, const struct cells *c, int d,
	int64_t number, MPI_Offset *from, MPI_Offset *to, struct subs *out)
{
	struct request *r = p->request;
	const struct variable *v = &f->vars[r->varid];
	if (d == v->ndims) {
		int first, members;
		group_of(f, p->k, &first, &members);
		struct sub *s = sub_add(out, v->ndims, 4);
		s->peer = first + (int)(number * members / c->count);
		s->varid = r->varid;
		s->k = p->k;
		s->number = type_number(r->type);
		s->size = r->size;
		s->request = r;
		s->bytes = r->size;
		MPI_Offset at = p->at;
		for (int i = 0; i < v->ndims; i++) {
			s->start[i] = p->start[i] + from[i] * p->stride[i];
			s->count[i] = to[i] - from[i];
			s->stride[i] = p->stride[i];
			s->imap[i] = p->imap[i];
			s->bytes *= s->count[i];
			at += from[i] * p->imap[i];
		}
		s->data = r->data + at * r->size;
		return;
	}
	MPI_Offset last = p->start[d] + (p->count[d] - 1) * p->stride[d];
	MPI_Offset cell = c->cell[d], across = (c->length[d] + cell - 1) / cell;
	bool is_record = d == 0 && v->is_record;
	for (MPI_Offset i = p->start[d] / cell; i <= last / cell; i++) {
		clip(p, d, i * cell, (i + 1) * cell, &from[d], &to[d]);
		if (from[d] < to[d])
			chop(f, p, c, d + 1, number * across + (is_record ? 0 : i), from, to, out);
	}
}

static int by_peer(const void *a, const void *b)
{
	const struct sub *x = a, *y = b;
	return x->peer - y->peer;
}

/* In the order of the file, about; those that are the same are neighbours. */
static int by_place(const struct file *f, const struct sub *x, const struct sub *y)
{
	if (x->k != y->k)
		return x->k < y->k ? -1 : 1;
	if (x->varid != y->varid)
		return x->varid < y->varid ? -1 : 1;
	int n = 3 * f->vars[x->varid].ndims;
	for (int i = 0; i < n; i++)
		if (x->start[i] != y->start[i])
			return x->start[i] < y->start[i] ? -1 : 1;
	return x->number - y->number;
}

/* qsort has no room for the dataset. */
static void sort_places(const struct file *f, struct sub **list, struct sub **room, int n)
{
	if (n < 2)
		return;
	int half = n / 2;
	sort_places(f, list, room, half);
	sort_places(f, list + half, room, n - half);
	memcpy(room, list, (size_t)half * sizeof *room);
	for (int i = 0, j = half, at = 0; i < half;)
		if (j < n && by_place(f, list[j], room[i]) < 0)
			list[at++] = list[j++];
		else
			list[at++] = room[i++];
}

/* --- messages --- */

struct requests {
	MPI_Request *list;
	int count, room;
};

static MPI_Request *message(struct requests *m)
{
	if (m->count == m->room) {
		m->room = m->room ? m->room * 2 : 64;
		m->list = must(realloc(m->list, (size_t)m->room * sizeof *m->list));
	}
	return &m->list[m->count++];
}

static int messages_wait(struct requests *m)
{
	int rc = PMPI_Waitall(m->count, m->list, MPI_STATUSES_IGNORE);
	m->count = 0;
	return rc == MPI_SUCCESS ? NC_NOERR : NC_EMPI;
}

/* Where the data of a sub is in the program's memory, as bytes. */
static int type_of(const struct sub *s, int ndims, MPI_Datatype *type)
{
	MPI_Offset run = s->size;
	int d = ndims - 1;
	/* What is contiguous at the inner end. */
	for (; d >= 0 && (s->count[d] == 1 || s->imap[d] * s->size == run); d--)
		run *= s->count[d];
	if (run > INT_MAX)
		return NC_EMAX_REQ;
	int rc = PMPI_Type_contiguous((int)run, MPI_BYTE, type);
	for (; rc == MPI_SUCCESS && d >= 0; d--) {
		MPI_Datatype outer;
		if (s->count[d] == 1)
			continue;
		rc = PMPI_Type_create_hvector(
			(int)s->count[d], 1, (MPI_Aint)(s->imap[d] * s->size), *type, &outer);
		PMPI_Type_free(type);
		*type = outer;
	}
	return rc == MPI_SUCCESS ? NC_NOERR : NC_EMPI;
}

/* The data of subs [from, from + n) that are in a round, as one datatype at MPI_BOTTOM. */
static int type_of_round(struct file *f, struct sub *from, int n, int round, MPI_Datatype *type)
{
	int count = 0, rc = NC_NOERR;
	int *ones = must(calloc((size_t)n, sizeof *ones));
	MPI_Aint *where = must(calloc((size_t)n, sizeof *where));
	MPI_Datatype *types = must(calloc((size_t)n, sizeof *types));
	for (int i = 0; i < n && rc == NC_NOERR; i++) {
		if (from[i].round != round)
			continue;
		rc = type_of(&from[i], f->vars[from[i].varid].ndims, &types[count]);
		PMPI_Get_address(from[i].data, &where[count]);
		ones[count] = 1;
		count += rc == NC_NOERR;
	}
	if (rc == NC_NOERR &&
		(PMPI_Type_create_struct(count, ones, where, types, type) != MPI_SUCCESS ||
			PMPI_Type_commit(type) != MPI_SUCCESS))
		rc = NC_EMPI;
	for (int i = 0; i < count; i++)
		PMPI_Type_free(&types[i]);
	free(ones);
	free(where);
	free(types);
	return rc;
}

/* --- the delegate --- */

/* Writes or reads those of list[0..n), which are of one round. */
static void issue(struct file *f, bool put, struct sub **list, int n)
{
	double start = PMPI_Wtime();
	struct batch batch = {0};
	for (int i = 0, end; i < n; i = end) {
		int k = list[i]->k, ncid = -1;
		MPI_Offset needed = 0;
		for (end = i; end < n && list[end]->k == k; end++)
			if (f->vars[list[end]->varid].is_record)
				needed = records_of(f);
		int rc = handle_of(f, k, needed, &ncid);
		for (int j = i; j < end; j++) {
			struct sub *s = list[j];
			int unused, ndims = f->vars[s->varid].ndims;
			/* What several processes read is read once. */
			if (!put && j > i && by_place(f, list[j - 1], s) == 0)
				continue;
			MPI_Datatype type = type_numbered(s->number, &unused);
			if (rc == NC_NOERR)
				batch_add(&batch, ncid, put, f->vars[s->varid].ids[k], ndims,
					s->start, NULL, s->data, type, &s->status);
			else
				s->status = rc;
		}
		batch_end(&batch, ncid);
		for (int j = i + 1; j < end && !put; j++)
			if (by_place(f, list[j - 1], list[j]) == 0) {
				list[j]->status = list[j - 1]->status;
				memcpy(list[j]->data, list[j - 1]->data, (size_t)list[j]->bytes);
			}
	}
	batch_free(&batch);
	f->is_written |= put;
	f->io_s += PMPI_Wtime() - start;
}

/* What others have told, as subs in the order of the tellers. */
static int understand(struct file *f, const int64_t *words, const int *counts, struct subs *in)
{
	for (int peer = 0; peer < f->ranks; peer++)
		for (const int64_t *end = words + counts[peer]; words < end;) {
			const struct variable *v = &f->vars[words[0]];
			struct sub *s = sub_add(in, v->ndims, 3);
			s->peer = peer;
			s->varid = (int)words[0];
			s->k = (int)words[1];
			s->number = (int)words[2];
			if (type_numbered(s->number, &s->size) == MPI_DATATYPE_NULL)
				return NC_EINTERNAL;
			s->bytes = s->size;
			memcpy(s->start, words + 3, (size_t)v->ndims * 3 * sizeof *words);
			for (int d = 0; d < v->ndims; d++)
				s->bytes *= s->count[d];
			words += 3 + 3 * v->ndims;
		}
	return NC_NOERR;
}

/* Is told for a piece of which no data is to come: there is no memory for it. */
#define NO_ROUND (-1)

/* Rounds of at most the buffer's size, in the order of the file; the number of them. `*buffer` has
 * room for each of them, with zeros, as what is beyond the end of a file is not read. */
static int rounds_make(struct file *f, struct subs *in, struct sub **list, char **buffer)
{
	struct sub **room = must(calloc((size_t)in->count + 1, sizeof *room));
	for (int i = 0; i < in->count; i++)
		list[i] = &in->sub[i];
	sort_places(f, list, room, in->count);
	free(room);
	int round = 0;
	int64_t bytes = 0, most = 0;
	for (int i = 0; i < in->count; i++) {
		if (bytes > 0 && bytes + list[i]->bytes > f->settings.buffer)
			round++, bytes = 0;
		bytes += list[i]->bytes;
		most = bytes > most ? bytes : most;
		list[i]->round = round;
	}
	*buffer = calloc((size_t)most + 1, 1);
	if (*buffer)
		return in->count ? round + 1 : 0;
	for (int i = 0; i < in->count; i++) {
		in->sub[i].round = NO_ROUND;
		in->sub[i].status = NC_ENOMEM;
	}
	return 0;
}

/* In the buffer, what is from or for one process is in one place. */
static void places_find(struct subs *in, int round, char *buffer)
{
	for (int i = 0; i < in->count; i++)
		if (in->sub[i].round == round) {
			in->sub[i].data = buffer;
			buffer += in->sub[i].bytes;
		}
}

/* The messages of a round between this process as a delegate and those that it serves. */
static int serve(struct file *f, struct subs *in, int round, bool receive, char *buffer,
	struct requests *messages)
{
	int64_t at = 0;
	int rc = MPI_SUCCESS;
	for (int i = 0; i < in->count;) {
		int peer = in->sub[i].peer;
		int64_t from = at;
		for (; i < in->count && in->sub[i].peer == peer; i++)
			if (in->sub[i].round == round)
				at += in->sub[i].bytes;
		if (at == from || rc != MPI_SUCCESS)
			continue;
		rc = receive ? PMPI_Irecv(buffer + from, (int)(at - from), MPI_BYTE, peer, DATA,
				       f->comm, message(messages))
			     : PMPI_Isend(buffer + from, (int)(at - from), MPI_BYTE, peer, DATA,
				       f->comm, message(messages));
	}
	return rc == MPI_SUCCESS ? NC_NOERR : NC_EMPI;
}

/* The same between this process and its delegates. */
static int ask(struct file *f, struct subs *out, int round, bool receive, struct requests *messages)
{
	int rc = NC_NOERR;
	for (int i = 0, end; i < out->count && rc == NC_NOERR; i = end) {
		int peer = out->sub[i].peer;
		bool is_any = false;
		MPI_Datatype type;
		for (end = i; end < out->count && out->sub[end].peer == peer; end++)
			is_any |= out->sub[end].round == round;
		if (!is_any)
			continue;
		rc = type_of_round(f, out->sub + i, end - i, round, &type);
		if (rc != NC_NOERR)
			break;
		int result = receive ? PMPI_Irecv(MPI_BOTTOM, 1, type, peer, DATA, f->comm,
					       message(messages))
				     : PMPI_Isend(MPI_BOTTOM, 1, type, peer, DATA, f->comm,
					       message(messages));
		PMPI_Type_free(&type);
		rc = result == MPI_SUCCESS ? NC_NOERR : NC_EMPI;
	}
	return rc;
}

/* An int for each sub, from those that serve it to those that asked. */
static int numbers_exchange(struct file *f, struct subs *out, struct subs *in, enum tag tag,
	int *for_out, const int *for_in, struct requests *messages)
{
	int rc = MPI_SUCCESS;
	for (int i = 0, end; i < out->count && rc == MPI_SUCCESS; i = end) {
		for (end = i; end < out->count && out->sub[end].peer == out->sub[i].peer;)
			end++;
		rc = PMPI_Irecv(for_out + i, end - i, MPI_INT, out->sub[i].peer, tag, f->comm,
			message(messages));
	}
	for (int i = 0, end; i < in->count && rc == MPI_SUCCESS; i = end) {
		for (end = i; end < in->count && in->sub[end].peer == in->sub[i].peer;)
			end++;
		rc = PMPI_Isend(for_in + i, end - i, MPI_INT, in->sub[i].peer, tag, f->comm,
			message(messages));
	}
	return rc == MPI_SUCCESS ? messages_wait(messages) : NC_EMPI;
}

/* Step 1. */
static int tell(struct file *f, const struct subs *out, struct subs *in, struct requests *messages)
{
	int *counts = must(calloc((size_t)f->ranks * 2, sizeof *counts)), *from = counts + f->ranks;
	int64_t total = 0, incoming = 0;
	for (int i = 0; i < out->count; i++) {
		int n = 3 + 3 * f->vars[out->sub[i].varid].ndims;
		counts[out->sub[i].peer] += n;
		total += n;
	}
	int rc = PMPI_Alltoall(counts, 1, MPI_INT, from, 1, MPI_INT, f->comm);
	for (int i = 0; i < f->ranks; i++)
		incoming += from[i];
	int64_t *sent = must(calloc((size_t)total + 1, sizeof *sent)), *to = sent;
	int64_t *heard = must(calloc((size_t)incoming + 1, sizeof *heard)), *at = heard;
	for (int i = 0; i < out->count; i++) {
		const struct sub *s = &out->sub[i];
		size_t n = (size_t)f->vars[s->varid].ndims * 3;
		*to++ = s->varid;
		*to++ = s->k;
		*to++ = s->number;
		memcpy(to, s->start, n * sizeof *to);
		to += n;
	}
	for (int peer = 0; peer < f->ranks && rc == MPI_SUCCESS; peer++)
		if (from[peer]) {
			rc = PMPI_Irecv(at, from[peer], MPI_INT64_T, peer, DESCRIPTORS, f->comm,
				message(messages));
			at += from[peer];
		}
	to = sent;
	for (int peer = 0; peer < f->ranks && rc == MPI_SUCCESS; peer++)
		if (counts[peer]) {
			rc = PMPI_Isend(to, counts[peer], MPI_INT64_T, peer, DESCRIPTORS, f->comm,
				message(messages));
			to += counts[peer];
		}
	rc = rc == MPI_SUCCESS ? messages_wait(messages) : NC_EMPI;
	if (rc == NC_NOERR)
		rc = understand(f, heard, from, in);
	free(sent);
	free(heard);
	free(counts);
	return rc;
}

/* Step 3. */
static int rounds_run(struct file *f, bool put, struct subs *out, struct subs *in,
	struct sub **list, char *buffer, int rounds, struct requests *messages)
{
	int rc = NC_NOERR, at = 0;
	for (int i = 0; i < out->count; i++)
		if (out->sub[i].round >= rounds)
			rounds = out->sub[i].round + 1;
	for (int round = 0; round < rounds && rc == NC_NOERR; round++) {
		int end = at;
		while (end < in->count && list[end]->round == round)
			end++;
		double start = PMPI_Wtime();
		if (put) {
			places_find(in, round, buffer);
			rc = serve(f, in, round, true, buffer, messages);
			if (rc == NC_NOERR)
				rc = ask(f, out, round, false, messages);
			if (rc == NC_NOERR)
				rc = messages_wait(messages);
			f->exchange_s += PMPI_Wtime() - start;
			if (rc == NC_NOERR && end > at)
				issue(f, put, list + at, end - at);
		} else {
			rc = ask(f, out, round, true, messages);
			places_find(in, round, buffer);
			f->exchange_s += PMPI_Wtime() - start;
			if (end > at)
				issue(f, put, list + at, end - at);
			start = PMPI_Wtime();
			if (rc == NC_NOERR)
				rc = serve(f, in, round, false, buffer, messages);
			if (rc == NC_NOERR)
				rc = messages_wait(messages);
			f->exchange_s += PMPI_Wtime() - start;
		}
		at = end;
	}
	return rc;
}

int issue_by_delegates(struct file *f, bool put, const struct pieces *pieces)
{
	struct subs out = {0}, in = {0};
	struct requests messages = {0};
	double start = PMPI_Wtime();
	for (int i = 0; i < pieces->count; i++) {
		const struct piece *p = &pieces->piece[i];
		struct cells cells;
		MPI_Offset from[MOST_DIMS], to[MOST_DIMS];
		cells_of(f, &f->vars[p->request->varid], p->k, &cells);
		chop(f, p, &cells, 0, 0, from, to, &out);
	}
	/* Stable, as chop goes through partitions in order and qsort of glibc merges; nothing
	   depends on it but the order of reads. */
	qsort(out.sub, (size_t)out.count, sizeof *out.sub, by_peer);
	int rc = tell(f, &out, &in, &messages);
	struct sub **list = must(calloc((size_t)in.count + 1, sizeof *list));
	int *mine = must(calloc((size_t)out.count + 1, sizeof *mine));
	int *theirs = must(calloc((size_t)in.count + 1, sizeof *theirs));
	int rounds = 0;
	char *buffer = NULL;
	if (rc == NC_NOERR) {
		rounds = rounds_make(f, &in, list, &buffer);
		for (int i = 0; i < in.count; i++)
			theirs[i] = in.sub[i].round;
		rc = numbers_exchange(f, &out, &in, ROUNDS, mine, theirs, &messages);
	}
	for (int i = 0; i < out.count; i++)
		out.sub[i].round = mine[i];
	f->exchange_s += PMPI_Wtime() - start;
	if (rc == NC_NOERR)
		rc = rounds_run(f, put, &out, &in, list, buffer, rounds, &messages);
	start = PMPI_Wtime();
	for (int i = 0; i < in.count; i++)
		theirs[i] = in.sub[i].status;
	if (rc == NC_NOERR)
		rc = numbers_exchange(f, &out, &in, STATUSES, mine, theirs, &messages);
	for (int i = 0; i < out.count && rc == NC_NOERR; i++)
		if (out.sub[i].request->status == NC_NOERR)
			out.sub[i].request->status = mine[i];
	f->exchange_s += PMPI_Wtime() - start;
	free(buffer);
	free(messages.list);
	free(list);
	free(mine);
	free(theirs);
	subs_free(&out);
	subs_free(&in);
	return rc;
}
