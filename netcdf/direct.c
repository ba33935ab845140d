/* To the partitions by the process that asks: in independent calls, which cannot count on others,
 * and where there is one process. */
#include "door.h"

#include <stdlib.h>

static bool is_dense(const struct variable *v, const struct piece *p)
{
	MPI_Offset run = 1;
	for (int d = v->ndims - 1; d >= 0; d--) {
		if (p->count[d] != 1 && p->imap[d] != run)
			return false;
		run *= p->count[d];
	}
	return true;
}

/* --- non-blocking calls to one partition --- */

static void batch_wait(struct batch *b, int ncid)
{
	if (b->count == 0)
		return;
	int rc = real->wait_all(ncid, b->count, b->ids, b->told);
	bool is_told = rc == NC_NOERR;
	/* Each has its own error; if none has, all have that of the call. */
	for (int i = 0; i < b->count; i++) {
		is_told |= b->told[i] != NC_NOERR;
		if (*b->status[i] == NC_NOERR)
			*b->status[i] = b->told[i];
	}
	for (int i = 0; i < b->count && !is_told; i++)
		*b->status[i] = rc;
	b->count = 0;
}

/* May two boxes have an element in common? */
static bool is_common(int ndims, const MPI_Offset *a, const MPI_Offset *b)
{
	for (int d = 0; d < ndims; d++) {
		MPI_Offset last_a = a[d] + (a[ndims + d] - 1) * a[2 * ndims + d];
		MPI_Offset last_b = b[d] + (b[ndims + d] - 1) * b[2 * ndims + d];
		if (last_a < b[d] || last_b < a[d])
			return false;
	}
	return true;
}

void batch_add(struct batch *b, int ncid, bool put, int id, int ndims, const MPI_Offset *box,
	const MPI_Offset *imap, void *data, MPI_Datatype type, int *status)
{
	/* PnetCDF 1.12 leaves memory as it is if another get of the same wait reads the same bytes
	 * of the file. */
	for (int i = 0; !put && i < b->count; i++)
		if (b->id[i] == id && is_common(ndims, b->box[i], box))
			batch_wait(b, ncid);
	if (b->count == BATCH)
		batch_wait(b, ncid);
	const MPI_Offset *count = box + ndims, *stride = count + ndims;
	int request = NC_REQ_NULL;
	int rc = put ? real->iput_varm(ncid, id, box, count, stride, imap, data, -1, type, &request)
		     : real->iget_varm(
			       ncid, id, box, count, stride, imap, data, -1, type, &request);
	if (*status == NC_NOERR)
		*status = rc;
	if (request == NC_REQ_NULL)
		return;
	if (!b->ids) {
		b->ids = must(calloc(BATCH * 3, sizeof *b->ids));
		b->told = b->ids + BATCH;
		b->id = b->told + BATCH;
		b->status = must(calloc(BATCH, sizeof(void *)));
		b->box = must(calloc(BATCH, sizeof(void *)));
	}
	b->ids[b->count] = request;
	b->id[b->count] = id;
	b->box[b->count] = box;
	b->status[b->count] = status;
	b->told[b->count++] = NC_NOERR;
}

void batch_end(struct batch *b, int ncid)
{
	batch_wait(b, ncid);
}

void batch_free(struct batch *b)
{
	free(b->ids);
	free(b->status);
	free(b->box);
}

void issue_directly(struct file *f, bool put, const struct pieces *pieces)
{
	double start = PMPI_Wtime();
	struct batch batch = {0};
	for (int k = 0; k < f->parts; k++) {
		int ncid = -1;
		/* A handle must not be closed while it has requests: so it is ready for all. */
		MPI_Offset needed = 0;
		for (int i = 0; i < pieces->count; i++)
			if (pieces->piece[i].k == k &&
				f->vars[pieces->piece[i].request->varid].is_record)
				needed = records_of(f);
		for (int i = 0; i < pieces->count; i++) {
			const struct piece *p = &pieces->piece[i];
			struct request *r = p->request;
			const struct variable *v = &f->vars[r->varid];
			if (p->k != k)
				continue;
			int rc = ncid < 0 ? handle_of(f, k, needed, &ncid) : NC_NOERR;
			if (rc == NC_NOERR)
				batch_add(&batch, ncid, put, v->ids[k], v->ndims, p->start,
					is_dense(v, p) ? NULL : p->imap, r->data + p->at * r->size,
					r->type, &r->status);
			else if (r->status == NC_NOERR)
				r->status = rc;
		}
		batch_end(&batch, ncid);
	}
	batch_free(&batch);
	f->is_written |= put;
	f->io_s += PMPI_Wtime() - start;
}
