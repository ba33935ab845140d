/* What ranks do together: agree on results, and close with rank 0 last. */
#include "door.h"

#include <sched.h>

/* Waits for a collective call without keeping others from the processor. An MPI that spins until
 * its time slice ends (MPICH) would take it from the rank that all wait for, which still writes:
 * eight ranks on two processors took a tenth of a second for each message of a close. */
static int wait_for(int started, MPI_Request *request)
{
	int done = 0, rc = started;
	while (rc == MPI_SUCCESS && !done) {
		rc = PMPI_Test(request, &done, MPI_STATUS_IGNORE);
		if (rc == MPI_SUCCESS && !done)
			sched_yield();
	}
	return rc;
}

int reduce(MPI_Comm comm, void *values, int n, MPI_Datatype type, MPI_Op op)
{
	MPI_Request request;
	return wait_for(
		PMPI_Iallreduce(MPI_IN_PLACE, values, n, type, op, comm, &request), &request);
}

int duplicate(MPI_Comm comm, MPI_Comm *copy)
{
	MPI_Request request;
	return wait_for(PMPI_Comm_idup(comm, copy, &request), &request);
}

int agree(MPI_Comm comm, int code)
{
	int rc = reduce(comm, &code, 1, MPI_INT, MPI_MAX);
	return rc == MPI_SUCCESS ? code : rc;
}

int hear(MPI_Comm comm, int64_t *values, int n)
{
	MPI_Request request;
	return wait_for(PMPI_Ibcast(values, n, MPI_INT64_T, 0, comm, &request), &request);
}

int agree_same(MPI_Comm comm, int code, const int64_t *values, int n, int different)
{
	/* min(x) == ~min(~x) exactly if all x are equal. */
	int64_t all[2 * 8 + 1];
	if (n > 8)
		return MPI_ERR_INTERN;
	for (int i = 0; i < n; i++) {
		all[2 * i] = values[i];
		all[2 * i + 1] = ~values[i];
	}
	all[2 * n] = -(int64_t)code;
	int rc = reduce(comm, all, 2 * n + 1, MPI_INT64_T, MPI_MIN);
	if (rc != MPI_SUCCESS)
		return rc;
	if (all[2 * n] != 0)
		return (int)-all[2 * n];
	for (int i = 0; i < n; i++)
		if (all[2 * i] != ~all[2 * i + 1])
			return different;
	return MPI_SUCCESS;
}

int collective_close(struct file *f)
{
	int rc = MPI_SUCCESS;
	if (!(f->amode & MPI_MODE_RDONLY)) {
		/* Nobody leaves before all have written: a node's last process to leave ends its
		 * log set, and a rank that is late would begin another. */
		if (f->wrote)
			rc = error_class(plfs_commit(f->plfs));
		rc = agree(f->comm, rc);
		if (rc == MPI_SUCCESS && index_is_stored_together(f))
			index_store_together(f);
	}
	/* Rank 0 closes last: the last closer writes the summary, which costs least when nobody
	 * else has the file open. After reading there is no summary to write, but no rank returns
	 * before all have read, since the program may remove the file then. */
	bool in_order = !(f->amode & MPI_MODE_RDONLY) || (f->amode & MPI_MODE_DELETE_ON_CLOSE);
	if (f->rank != 0 || !in_order) {
		int own = error_class(plfs_close(f->plfs));
		if (rc == MPI_SUCCESS)
			rc = own;
	}
	rc = agree(f->comm, rc);
	if (!in_order) {
		f->plfs = NULL;
		return rc;
	}
	if (f->rank == 0) {
		int own = error_class(plfs_close(f->plfs));
		if (rc == MPI_SUCCESS)
			rc = own;
		if (f->amode & MPI_MODE_DELETE_ON_CLOSE) {
			own = error_class(plfs_unlink(f->path));
			if (rc == MPI_SUCCESS)
				rc = own;
		}
	}
	f->plfs = NULL;
	int64_t heard = rc;
	rc = hear(f->comm, &heard, 1);
	return rc == MPI_SUCCESS ? (int)heard : rc;
}
