/* What ranks do together: agree on results, and close with rank 0 last. */
#include "door.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* Waits for a collective call without keeping others from the processor. An MPI that spins until
 * its time slice ends (MPICH) would take it from the rank that all wait for, which still writes:
 * eight ranks on two processors took a tenth of a second for each message of a close. If it takes
 * long, `late` is called, once. */
static int wait_and_tell(int started, MPI_Request *request, void (*late)(MPI_Comm, const char *),
	MPI_Comm comm, const char *name)
{
	struct timespec begin, now;
	int done = 0, rc = started;
	clock_gettime(CLOCK_MONOTONIC, &begin);
	while (rc == MPI_SUCCESS && !done) {
		rc = PMPI_Test(request, &done, MPI_STATUS_IGNORE);
		if (rc != MPI_SUCCESS || done)
			break;
		sched_yield();
		clock_gettime(CLOCK_MONOTONIC, &now);
		if (late && now.tv_sec - begin.tv_sec >= LATE_S) {
			late(comm, name);
			late = NULL;
		}
	}
	return rc;
}

static int wait_for(int started, MPI_Request *request)
{
	return wait_and_tell(started, request, NULL, MPI_COMM_NULL, NULL);
}

/* --- Jobs of which some ranks have the door and some not ---
 *
 * Those without it call the MPI's own MPI_File_open, whose messages are others: ranks wait for
 * ever, or take one for the other. Nobody can ask a rank that does not answer; so who waits long
 * says what it may be, once on each node, and what is garbled is an error. */

static const char MEND[] =
	"Start the job with `plfs run -- mpiexec ...`, which hands PLFS on to other nodes, or with "
	"`mpiexec ... plfs run ... PROGRAM`; PLFS has to be at the same path on all of them "
	"(docs/TUNING.md, \"Several nodes\")";

static void tell(MPI_Comm comm, const char *name, const char *what)
{
	char host[256] = "?", line[2048];
	int rank = -1, ranks = 0;
	PMPI_Comm_rank(comm, &rank);
	PMPI_Comm_size(comm, &ranks);
	gethostname(host, sizeof host - 1);
	int n = snprintf(line, sizeof line,
		"plfs mpi: MPI_File_open of %s, rank %d of %d on %s: %s. %s\n", name, rank, ranks,
		host, what, MEND);
	if (n > 0 && write(2, line, (size_t)n < sizeof line ? (size_t)n : sizeof line - 1) < 0)
		return;
}

/* Has no other rank of this node said it? The name goes with the process. */
static bool is_first_of_node(void)
{
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	int n = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "plfs-mpi-late.%d.%d",
		getuid(), getppid());
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	return fd < 0 ||
	       bind(fd, (const struct sockaddr *)&name,
		       (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)) == 0;
}

static void tell_late(MPI_Comm comm, const char *name)
{
	if (is_first_of_node())
		tell(comm, name,
			"has waited long for other ranks. If they are not late, they run without "
			"PLFS, "
			"on hosts that do not say this");
}

/* No message of an MPI-IO has this. */
#define WORD INT64_C(0x504c46536f70656e)

int reduce_first(MPI_Comm comm, int64_t *values, int n, const char *name)
{
	int64_t all[FIRST_MOST + 4], *last = all + 2 + n;
	if (n > FIRST_MOST)
		return MPI_ERR_INTERN;
	/* At both ends: a shorter message leaves what is behind it in the buffer of the MPI, where
	 * that of another rank may have been. */
	all[0] = last[0] = WORD;
	all[1] = last[1] = ~WORD;
	memcpy(all + 2, values, (size_t)n * sizeof *values);
	MPI_Request request;
	int rc = wait_and_tell(
		PMPI_Iallreduce(MPI_IN_PLACE, all, n + 4, MPI_INT64_T, MPI_MIN, comm, &request),
		&request, tell_late, comm, name);
	if (rc != MPI_SUCCESS || all[0] != WORD || all[1] != ~WORD || last[0] != WORD ||
		last[1] != ~WORD) {
		tell(comm, name,
			"other ranks have sent something else: they run without PLFS, on hosts "
			"that do "
			"not say this");
		return MPI_ERR_OTHER;
	}
	memcpy(values, all + 2, (size_t)n * sizeof *values);
	return MPI_SUCCESS;
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
