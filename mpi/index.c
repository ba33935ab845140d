/* What the ranks of one open do together: load one index for all ranks of a node, and write one for
 * all later readers.
 *
 * All of it saves time and memory and changes no result. So nothing here fails: where a step does
 * not work, each rank loads or leaves the index by itself. */
#include "door.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Bytes of one message: counts are ints. */
#define MESSAGE_BYTES (1 << 30)

/* Bytes of index logs from which on ranks load them together by default. 1 MiB, some 20,000
 * irregular records, takes one process about as long as the exchange of messages takes all. */
#define PENDING_BYTES (1 << 20)

/* Ranks from which on a close gathers the index by default. Gathering makes three communicators;
 * rank 0, which closes last, reads the logs of a few nodes in less time. */
#define GATHER_RANKS 128

/* --- Ranks of a node, and one of each --- */

struct nodes {
	MPI_Comm node;
	MPI_Comm leaders; /* MPI_COMM_NULL at all but one rank of a node, and rank 0 */
	int leader;	  /* the leader's rank in `node`; -1: none */
};

/* A number for the client mount through which this rank reaches the file. Two mounts of one file
 * system on one machine are two nodes to PLFS. Tests set another number by PLFS_MPI_NODE. */
static int mount_of(const struct file *f)
{
	const char *given = getenv("PLFS_MPI_NODE");
	if (given && *given)
		return atoi(given) & INT_MAX;
	char dir[PATH_MAX];
	struct stat st;
	const char *slash = strrchr(f->path, '/');
	int n = snprintf(dir, sizeof dir, "%.*s", slash > f->path ? (int)(slash - f->path) : 1,
		slash ? f->path : ".");
	if (n < 0 || (size_t)n >= sizeof dir || plfs_stat(dir, &st) < 0)
		return 0;
	return (int)(((uint64_t)st.st_dev ^ (uint64_t)st.st_dev >> 32) & INT_MAX);
}

/* The leader of a node is its first rank that `can`; rank 0 is among the leaders in any case, as
 * the first. */
static int find_nodes(struct file *f, bool can, struct nodes *nodes)
{
	*nodes = (struct nodes){MPI_COMM_NULL, MPI_COMM_NULL, -1};
	MPI_Comm machine = MPI_COMM_NULL;
	int rc = PMPI_Comm_split_type(
		f->comm, MPI_COMM_TYPE_SHARED, f->rank, MPI_INFO_NULL, &machine);
	if (rc != MPI_SUCCESS)
		return rc;
	rc = PMPI_Comm_split(machine, mount_of(f), f->rank, &nodes->node);
	PMPI_Comm_free(&machine);
	if (rc != MPI_SUCCESS)
		return rc;
	int own = INT_MAX, first;
	if (can)
		PMPI_Comm_rank(nodes->node, &own);
	rc = PMPI_Allreduce(&own, &first, 1, MPI_INT, MPI_MIN, nodes->node);
	if (rc != MPI_SUCCESS)
		return rc;
	nodes->leader = first == INT_MAX ? -1 : first;
	bool leads = f->rank == 0 || (can && own == first);
	return PMPI_Comm_split(f->comm, leads ? 0 : MPI_UNDEFINED, f->rank, &nodes->leaders);
}

static void free_nodes(struct nodes *nodes)
{
	if (nodes->leaders != MPI_COMM_NULL)
		PMPI_Comm_free(&nodes->leaders);
	if (nodes->node != MPI_COMM_NULL)
		PMPI_Comm_free(&nodes->node);
}

/* --- Index bytes in messages; a negative length means that there are none --- */

struct bytes {
	void *data; /* from malloc, as plfs_door_free requires */
	int64_t length;
};

static void drop(struct bytes *b)
{
	plfs_door_free(b->data);
	*b = (struct bytes){NULL, -1};
}

static int piece_of(int64_t length, int64_t at)
{
	return (int)(length - at < MESSAGE_BYTES ? length - at : MESSAGE_BYTES);
}

/* The receiver first sends whether it has memory, so that no sender waits for one that has none. */
static int send_bytes(const struct bytes *b, int to, MPI_Comm comm)
{
	int room = 0;
	int rc = PMPI_Send(&b->length, 1, MPI_INT64_T, to, 0, comm);
	if (rc == MPI_SUCCESS && b->length >= 0)
		rc = PMPI_Recv(&room, 1, MPI_INT, to, 0, comm, MPI_STATUS_IGNORE);
	for (int64_t at = 0; rc == MPI_SUCCESS && room && at < b->length; at += MESSAGE_BYTES)
		rc = PMPI_Send(
			(char *)b->data + at, piece_of(b->length, at), MPI_BYTE, to, 0, comm);
	return rc;
}

static int receive_bytes(struct bytes *b, int from, MPI_Comm comm)
{
	*b = (struct bytes){NULL, -1};
	int64_t length;
	int rc = PMPI_Recv(&length, 1, MPI_INT64_T, from, 0, comm, MPI_STATUS_IGNORE);
	if (rc != MPI_SUCCESS || length < 0)
		return rc;
	b->data = malloc((size_t)length + 1);
	int room = b->data != NULL;
	rc = PMPI_Send(&room, 1, MPI_INT, from, 0, comm);
	for (int64_t at = 0; rc == MPI_SUCCESS && room && at < length; at += MESSAGE_BYTES)
		rc = PMPI_Recv((char *)b->data + at, piece_of(length, at), MPI_BYTE, from, 0, comm,
			MPI_STATUS_IGNORE);
	b->length = room ? length : -1;
	return rc;
}

/* Merges all leaders' parts into rank 0's, in a tree: patterns become fewer at every level, and no
 * rank holds more than two parts. Doubtful ones only as far as they do not touch. */
static int merge_up(struct file *f, struct bytes *own, bool doubtful, MPI_Comm comm)
{
	int rank, ranks, rc = MPI_SUCCESS;
	PMPI_Comm_rank(comm, &rank);
	PMPI_Comm_size(comm, &ranks);
	for (int step = 1; rc == MPI_SUCCESS && step < ranks; step *= 2) {
		if (rank & step) {
			rc = send_bytes(own, rank - step, comm);
			drop(own);
			break;
		}
		if (rank + step >= ranks)
			continue;
		struct bytes other, both = {NULL, -1};
		rc = receive_bytes(&other, rank + step, comm);
		if (rc == MPI_SUCCESS && own->length >= 0 && other.length >= 0) {
			const void *parts[] = {own->data, other.data};
			size_t lengths[] = {(size_t)own->length, (size_t)other.length};
			both.length = plfs_door_index_merge(
				f->plfs, parts, lengths, 2, doubtful, &both.data);
		}
		drop(&other);
		drop(own);
		*own = both;
	}
	return rc;
}

/* Rank 0's bytes, at all. */
static int spread(struct bytes *b, MPI_Comm comm)
{
	int rank, ok;
	PMPI_Comm_rank(comm, &rank);
	int rc = PMPI_Bcast(&b->length, 1, MPI_INT64_T, 0, comm);
	if (rc != MPI_SUCCESS || b->length < 0)
		return rc;
	if (rank != 0)
		b->data = malloc((size_t)b->length + 1);
	ok = b->data != NULL;
	rc = PMPI_Allreduce(MPI_IN_PLACE, &ok, 1, MPI_INT, MPI_MIN, comm);
	if (rc == MPI_SUCCESS && !ok)
		rc = MPI_ERR_NO_MEM;
	for (int64_t at = 0; rc == MPI_SUCCESS && at < b->length; at += MESSAGE_BYTES)
		rc = PMPI_Bcast((char *)b->data + at, piece_of(b->length, at), MPI_BYTE, 0, comm);
	return rc;
}

/* --- One copy for a node --- */

/* A file in memory with these bytes, or -1. */
static int file_in_memory(const struct bytes *b)
{
	int fd = memfd_create("plfs-index", MFD_CLOEXEC);
	for (int64_t at = 0; fd >= 0 && at < b->length;) {
		ssize_t n = write(fd, (const char *)b->data + at, (size_t)(b->length - at));
		if (n <= 0) {
			close(fd);
			return -1;
		}
		at += n;
	}
	return fd;
}

/* Opens the leader's file through /proc of its process. In another PID namespace the number may be
 * another process's, so the file is compared with the one meant. */
static int open_of_process(int64_t pid, int64_t fd, int64_t device, int64_t inode)
{
	char path[64];
	struct stat st;
	snprintf(path, sizeof path, "/proc/%lld/fd/%lld", (long long)pid, (long long)fd);
	int mine = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (mine >= 0 && (fstat(mine, &st) < 0 || (int64_t)st.st_dev != device ||
				 (int64_t)st.st_ino != inode)) {
		close(mine);
		mine = -1;
	}
	return mine;
}

/* All ranks of a node map the leader's bytes. */
static void share_on_node(struct file *f, const struct nodes *nodes, const struct bytes *b)
{
	int place, fd = -1;
	int64_t where[4] = {0, -1, 0, 0};
	PMPI_Comm_rank(nodes->node, &place);
	if (place == nodes->leader && b->length >= 0) {
		struct stat st;
		fd = file_in_memory(b);
		if (fd >= 0 && fstat(fd, &st) == 0) {
			where[0] = getpid();
			where[1] = fd;
			where[2] = (int64_t)st.st_dev;
			where[3] = (int64_t)st.st_ino;
		}
	}
	if (PMPI_Bcast(where, 4, MPI_INT64_T, nodes->leader, nodes->node) != MPI_SUCCESS ||
		where[1] < 0)
		goto end;
	if (place != nodes->leader)
		fd = open_of_process(where[0], where[1], where[2], where[3]);
	if (fd >= 0)
		plfs_door_index_use(f->plfs, fd);
	/* The leader keeps its descriptor open until all have opened the file through it. */
	PMPI_Barrier(nodes->node);
end:
	if (fd >= 0)
		close(fd);
}

/* --- What the door calls --- */

int64_t index_pending(const struct file *f)
{
	bool reads = !(f->amode & MPI_MODE_WRONLY);
	if (f->ranks == 1 || !reads || f->hints.parallel_index_read == HINT_DISABLE)
		return -1;
	if (f->hints.parallel_index_read == HINT_ENABLE)
		return INT64_MAX;
	/* A file open for reading and writing may never be read. */
	return f->amode & MPI_MODE_RDONLY ? plfs_door_index_pending(f->plfs) : -1;
}

void index_load_together(struct file *f, int64_t pending)
{
	if (pending < PENDING_BYTES)
		return;
	struct nodes nodes;
	struct bytes index = {NULL, -1};
	int rc = find_nodes(f, true, &nodes);
	if (rc == MPI_SUCCESS && nodes.leaders != MPI_COMM_NULL) {
		int part, parts, standing = 0, all = 0;
		PMPI_Comm_rank(nodes.leaders, &part);
		PMPI_Comm_size(nodes.leaders, &parts);
		index.length = plfs_door_index_part(
			f->plfs, (uint32_t)part, (uint32_t)parts, &standing, &index.data);
		rc = PMPI_Allreduce(&standing, &all, 1, MPI_INT, MPI_BOR, nodes.leaders);
		if (rc == MPI_SUCCESS && all != 3) {
			rc = merge_up(f, &index, false, nodes.leaders);
		} else if (rc == MPI_SUCCESS) {
			/* What a power cut took can lie over what is durable in another part. Only
			 * who has all of it can tell. */
			drop(&index);
			if (part == 0)
				index.length = plfs_door_index_part(
					f->plfs, 0, 1, &standing, &index.data);
		}
		if (rc == MPI_SUCCESS)
			rc = spread(&index, nodes.leaders);
	}
	if (rc != MPI_SUCCESS)
		index.length = -1;
	if (nodes.leader >= 0)
		share_on_node(f, &nodes, &index);
	drop(&index);
	free_nodes(&nodes);
}

bool index_is_stored_together(const struct file *f)
{
	if (f->ranks == 1 || (f->amode & MPI_MODE_RDONLY) ||
		f->hints.flatten_on_close == HINT_DISABLE)
		return false;
	return f->hints.flatten_on_close == HINT_ENABLE || f->ranks >= GATHER_RANKS;
}

void index_store_together(struct file *f)
{
	struct nodes nodes;
	struct bytes index = {NULL, -1};
	int rc = find_nodes(f, f->wrote, &nodes);
	if (rc == MPI_SUCCESS && nodes.leaders != MPI_COMM_NULL) {
		int doubtful = 0;
		index.length = plfs_door_index_own(f->plfs, f->rank == 0, &doubtful, &index.data);
		/* Whether any failed, the sum of bytes, the number of nodes that wrote, and whether
		 * any wrote what is not durable, as is usual. */
		int64_t sums[4] = {index.length < 0, index.length, f->wrote, doubtful}, all[4];
		rc = PMPI_Allreduce(sums, all, 4, MPI_INT64_T, MPI_SUM, nodes.leaders);
		/* If one node wrote all, rank 0, the last closer, does the same alone. */
		bool worth = f->hints.flatten_on_close == HINT_ENABLE || all[2] > 1;
		if (rc == MPI_SUCCESS && all[0] == 0 && worth &&
			all[1] <= f->hints.flatten_threshold) {
			rc = merge_up(f, &index, all[3] > 0, nodes.leaders);
			if (rc == MPI_SUCCESS && f->rank == 0 && index.length >= 0)
				plfs_door_index_store(f->plfs, index.data, (size_t)index.length);
		}
	}
	drop(&index);
	free_nodes(&nodes);
}
