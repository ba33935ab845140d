/* Opening, closing and removing; which files are the door's. */
#include "door.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define PREFIX "plfs:"

static const char *without_prefix(const char *name)
{
	return strncmp(name, PREFIX, sizeof PREFIX - 1) == 0 ? name + sizeof PREFIX - 1 : NULL;
}

/* Is a file of this name the door's? By its prefix, because it is a PLFS file, or because it would
 * be created in a managed directory. Also where it cannot be created: then the error comes from the
 * door. */
static bool is_ours(const char *name, int amode)
{
	if (without_prefix(name))
		return true;
	int kind = plfs_door_is_plfs(AT_FDCWD, name);
	return kind == 1 || (kind < 0 && (amode & MPI_MODE_CREATE) &&
				    plfs_door_below_managed(AT_FDCWD, name) == 1);
}

static int check_amode(int amode)
{
	int access = amode & (MPI_MODE_RDONLY | MPI_MODE_WRONLY | MPI_MODE_RDWR);
	if (access != MPI_MODE_RDONLY && access != MPI_MODE_WRONLY && access != MPI_MODE_RDWR)
		return MPI_ERR_AMODE;
	if (access == MPI_MODE_RDONLY && (amode & (MPI_MODE_CREATE | MPI_MODE_EXCL)))
		return MPI_ERR_AMODE;
	if (access == MPI_MODE_RDWR && (amode & MPI_MODE_SEQUENTIAL))
		return MPI_ERR_AMODE;
	return MPI_SUCCESS;
}

static int open_flags(int amode)
{
	return O_CLOEXEC | (amode & MPI_MODE_RDWR	     ? O_RDWR
				   : amode & MPI_MODE_WRONLY ? O_WRONLY
							     : O_RDONLY);
}

static int create_flags(int amode)
{
	return (amode & MPI_MODE_CREATE ? O_CREAT : 0) | (amode & MPI_MODE_EXCL ? O_EXCL : 0);
}

static bool amode_writes(int amode)
{
	return !(amode & MPI_MODE_RDONLY);
}

static void file_free(struct file *f)
{
	if (f->plfs)
		plfs_close(f->plfs);
	if (f->fh != MPI_FILE_NULL)
		real->close(&f->fh);
	view_free(&f->view);
	if (f->comm != MPI_COMM_NULL)
		PMPI_Comm_free(&f->comm);
	pthread_mutex_destroy(&f->lock);
	free(f->path);
	free(f);
}

/* Several ranks that may write a file want a container from the beginning. */
static int open_engine(struct file *f, int flags)
{
	return f->ranks > 1 && amode_writes(f->amode)
		       ? plfs_door_open_shared(f->path, flags, 0666, &f->plfs)
		       : plfs_open(f->path, flags, 0666, &f->plfs);
}

/* What rank 0 sends to the others when it has opened the file. */
enum { HEARD_CODE, HEARD_END, HEARD_ID, HEARD_PENDING, HEARD_STAMP, HEARD_NEW, HEARD };

/* With one rank there is nothing to agree on: in a managed directory it opens the file at once,
 * which saves the look before. If that fails, is_ours decides. */
static bool open_alone(struct file *f)
{
	return plfs_door_below_managed(AT_FDCWD, f->path) == 1 &&
	       plfs_open(f->path, open_flags(f->amode) | create_flags(f->amode), 0666, &f->plfs) ==
		       0;
}

/* Rank 0 opens or creates. All ranks have entered the call, so what any of them wrote before is
 * committed, and rank 0 reads the commits for all. */
static void open_first(struct file *f, int64_t heard[HEARD])
{
	struct stat st = {0};
	plfs_horizon seen = {0};
	int rc = f->plfs ? 0 : open_engine(f, open_flags(f->amode) | create_flags(f->amode));
	if (rc == 0 && (f->amode & MPI_MODE_APPEND))
		rc = plfs_fstat(f->plfs, &st);
	if (rc == 0 && amode_writes(f->amode))
		rc = plfs_door_horizon_get(f->plfs, &seen);
	heard[HEARD_CODE] = error_class(rc);
	heard[HEARD_END] = st.st_size;
	heard[HEARD_STAMP] = (int64_t)seen.stamp;
	heard[HEARD_NEW] = seen.is_new;
	if (getrandom(&heard[HEARD_ID], sizeof heard[HEARD_ID], GRND_NONBLOCK) !=
		sizeof heard[HEARD_ID])
		heard[HEARD_ID] = (int64_t)(uintptr_t)f ^ (int64_t)getpid() << 32;
	if (rc == 0)
		heard[HEARD_PENDING] = index_pending(f);
}

/* Opens at all ranks. */
static int open_all(struct file *f, bool one_name)
{
	int64_t heard[HEARD] = {[HEARD_PENDING] = -1};
	if (f->rank == 0)
		open_first(f, heard);
	int rc = hear(f->comm, heard, HEARD);
	if (rc == MPI_SUCCESS)
		rc = (int)heard[HEARD_CODE];
	if (rc != MPI_SUCCESS)
		return rc;
	/* All pointers are at the end with MPI_MODE_APPEND, and the first view has etypes of one
	 * byte. */
	f->position = heard[HEARD_END];
	f->shared_start = heard[HEARD_END];
	f->shared_id = (uint64_t)heard[HEARD_ID];
	if (f->rank != 0)
		rc = error_class(open_engine(f, open_flags(f->amode)));
	if (rc == MPI_SUCCESS && amode_writes(f->amode)) {
		/* Otherwise each rank would read all index logs before it writes. */
		plfs_horizon seen = {(uint64_t)heard[HEARD_STAMP], (int)heard[HEARD_NEW]};
		rc = error_class(plfs_door_horizon_set(f->plfs, &seen));
	}
	/* The program's handle. Each rank opens it alone, because a collective open would cost more
	 * than all the rest. Never with the program's mode: MPI_MODE_DELETE_ON_CLOSE would remove
	 * /dev/null. */
	if (rc == MPI_SUCCESS)
		rc = real->open(MPI_COMM_SELF, "/dev/null", MPI_MODE_RDONLY, MPI_INFO_NULL, &f->fh);
	/* Are all ranks' names one file? Names may differ where the file does not, and inode
	 * numbers are the same on all nodes. */
	struct stat st = {0};
	if (rc == MPI_SUCCESS && !one_name)
		rc = error_class(plfs_fstat(f->plfs, &st));
	int64_t ino = (int64_t)st.st_ino;
	rc = agree_same(f->comm, rc, &ino, 1, MPI_ERR_NOT_SAME);
	if (rc == MPI_SUCCESS)
		index_load_together(f, heard[HEARD_PENDING]);
	return rc;
}

/* The state of a file before it is opened; NULL without memory. */
static struct file *file_new(const char *path, int amode, const struct hints *hints)
{
	struct file *f = calloc(1, sizeof *f);
	if (!f)
		return NULL;
	f->comm = MPI_COMM_NULL;
	f->fh = MPI_FILE_NULL;
	f->amode = amode;
	f->hints = *hints;
	pthread_mutex_init(&f->lock, NULL);
	f->path = strdup(path);
	if (!f->path || view_init(&f->view) != MPI_SUCCESS) {
		file_free(f);
		return NULL;
	}
	return f;
}

/* Opens at all ranks of `comm`; after an error, at none. */
static int open_ours(MPI_Comm comm, struct file *f, bool one_name)
{
	int rc = duplicate(comm, &f->comm);
	if (rc != MPI_SUCCESS)
		return rc;
	PMPI_Comm_rank(f->comm, &f->rank);
	PMPI_Comm_size(f->comm, &f->ranks);
	return open_all(f, one_name);
}

static int64_t digest(int64_t h, const void *bytes, size_t n)
{
	uint64_t x = (uint64_t)h;
	for (size_t i = 0; i < n; i++)
		x = (x ^ ((const unsigned char *)bytes)[i]) * 0x100000001B3u;
	return (int64_t)x;
}

/* The digest of the name, with the current directory in front if it is relative. */
static int64_t digest_name(const char *name)
{
	char cwd[PATH_MAX];
	int64_t h = 0;
	if (*name != '/' && getcwd(cwd, sizeof cwd))
		h = digest(h, cwd, strlen(cwd));
	return digest(h, name, strlen(name));
}

int door_open(MPI_Comm comm, const char *name, int amode, MPI_Info info, MPI_File *fh)
{
	int inter = 0, rank = 0, ranks = 0;
	if (comm == MPI_COMM_NULL || !name || !fh ||
		PMPI_Comm_test_inter(comm, &inter) != MPI_SUCCESS || inter)
		return real->open(comm, name, amode, info, fh);
	PMPI_Comm_rank(comm, &rank);
	PMPI_Comm_size(comm, &ranks);

	struct hints hints;
	hints_default(&hints);
	int hints_rc = hints_read(&hints, info);
	const char *path = without_prefix(name);
	/* One message: rank 0's decision, and whether all ranks have the same arguments: min(x) ==
	 * ~min(~x) exactly if all x are equal. */
	int64_t mode = amode, hint = digest(hints_rc, &hints, sizeof hints),
		at = digest_name(path ? path : name);
	struct file *f = file_new(path ? path : name, amode, &hints);
	bool opened = ranks == 1 && f && hints_rc == MPI_SUCCESS &&
		      check_amode(amode) == MPI_SUCCESS && open_alone(f);
	int64_t say[] = {rank == 0 && !opened ? is_ours(name, amode) : 1, mode, ~mode, hint, ~hint,
		at, ~at, f ? 1 : 0};
	int rc = ranks == 1 ? MPI_SUCCESS : reduce_first(comm, say, sizeof say / sizeof *say, name);
	if (rc == MPI_SUCCESS && !say[0]) {
		if (f)
			file_free(f);
		return real->open(comm, name, amode, info, fh);
	}
	*fh = MPI_FILE_NULL;
	if (rc == MPI_SUCCESS) {
		if (say[1] != ~say[2])
			rc = MPI_ERR_AMODE;
		else if (say[3] != ~say[4])
			rc = MPI_ERR_NOT_SAME;
		else if (check_amode(amode) != MPI_SUCCESS)
			rc = MPI_ERR_AMODE;
		else
			rc = hints_rc != MPI_SUCCESS ? hints_rc
			     : say[7] && f	     ? MPI_SUCCESS
						     : MPI_ERR_NO_MEM;
	}
	if (rc == MPI_SUCCESS)
		rc = open_ours(comm, f, say[5] == ~say[6]);
	if (rc != MPI_SUCCESS) {
		if (f)
			file_free(f);
		return fail_without_file(rc);
	}
	*fh = f->fh;
	file_add(f);
	return MPI_SUCCESS;
}

int door_close(MPI_File *fh)
{
	struct file *f = fh ? file_of(*fh) : NULL;
	if (!f)
		return real->close(fh);
	if (f->split)
		return fail(f, MPI_ERR_OTHER);
	int rc = collective_close(f);
	/* Before the handle is closed, because the error handler needs one. */
	fail(f, rc);
	file_remove(f);
	file_free(f);
	*fh = MPI_FILE_NULL;
	return rc;
}

int door_delete(const char *name, MPI_Info info)
{
	const char *path = name ? without_prefix(name) : NULL;
	if (!name || (!path && plfs_door_is_plfs(AT_FDCWD, name) != 1))
		return real->delete(name, info);
	return fail_without_file(error_class(plfs_unlink(path ? path : name)));
}
