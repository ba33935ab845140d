/* libplfs.so of the null store: every call succeeds at once and moves nothing. With it below the
 * MPI-IO door, what is left of a call is the door.
 *
 *     cc -shared -fPIC -Wl,-soname,libplfs.so.0 -o DIR/libplfs.so.0 mpi_null.c
 *     LD_LIBRARY_PATH=DIR LD_PRELOAD=libplfs_mpi.so mpi_calls FILE          any FILE is a PLFS file
 * then
 */
#include <plfs_door.h>
#include <string.h>

static char handle;

const char *plfs_last_error(void)
{
	return "";
}
void plfs_door_free(void *bytes)
{
	(void)bytes;
}
int plfs_door_below_managed(int dirfd, const char *path)
{
	return (void)dirfd, (void)path, 1;
}
int plfs_door_is_plfs(int dirfd, const char *path)
{
	return (void)dirfd, (void)path, 1;
}

int plfs_open(const char *path, int flags, mode_t mode, plfs_file **out)
{
	(void)path, (void)flags, (void)mode;
	*out = (plfs_file *)&handle;
	return 0;
}

int plfs_close(plfs_file *f)
{
	return (void)f, 0;
}
int plfs_unlink(const char *path)
{
	return (void)path, 0;
}
int plfs_commit(plfs_file *f)
{
	return (void)f, 0;
}
int plfs_sync(plfs_file *f)
{
	return (void)f, 0;
}
int plfs_refresh(plfs_file *f)
{
	return (void)f, 0;
}
int plfs_ftruncate(plfs_file *f, int64_t size)
{
	return (void)f, (void)size, 0;
}
int plfs_fallocate(plfs_file *f, int mode, int64_t offset, int64_t n)
{
	return (void)f, (void)mode, (void)offset, (void)n, 0;
}
int plfs_lock_fd(plfs_file *f)
{
	return (void)f, -1;
}
int plfs_fstat(plfs_file *f, struct stat *out)
{
	return (void)f, memset(out, 0, sizeof *out), 0;
}
int plfs_stat(const char *path, struct stat *out)
{
	return (void)path, memset(out, 0, sizeof *out), 0;
}

ssize_t plfs_pread(plfs_file *f, void *buf, size_t n, int64_t offset)
{
	return (void)f, (void)buf, (void)offset, (ssize_t)n;
}
ssize_t plfs_pwrite(plfs_file *f, const void *buf, size_t n, int64_t offset)
{
	return (void)f, (void)buf, (void)offset, (ssize_t)n;
}

ssize_t plfs_pread_strided(
	plfs_file *f, void *buf, size_t length, int64_t stride, size_t count, int64_t offset)
{
	return (void)f, (void)buf, (void)stride, (void)offset, (ssize_t)(length * count);
}

ssize_t plfs_pwrite_strided(
	plfs_file *f, const void *buf, size_t length, int64_t stride, size_t count, int64_t offset)
{
	return (void)f, (void)buf, (void)stride, (void)offset, (ssize_t)(length * count);
}

static ssize_t sum(const plfs_extent *list, size_t n)
{
	size_t bytes = 0;
	for (size_t i = 0; i < n; i++)
		bytes += list[i].length;
	return (ssize_t)bytes;
}

ssize_t plfs_read_list(plfs_file *f, const plfs_extent *list, size_t n, void *buf)
{
	return (void)f, (void)buf, sum(list, n);
}
ssize_t plfs_write_list(plfs_file *f, const plfs_extent *list, size_t n, const void *buf)
{
	return (void)f, (void)buf, sum(list, n);
}

/* The index of nothing. */
int64_t plfs_door_index_pending(plfs_file *f)
{
	return (void)f, 0;
}
ssize_t plfs_door_index_part(plfs_file *f, uint32_t part, uint32_t parts, int *standing, void **out)
{
	return (void)f, (void)part, (void)parts, *standing = 0, *out = NULL, 0;
}
ssize_t plfs_door_index_own(plfs_file *f, int with_base, int *doubtful, void **out)
{
	return (void)f, (void)with_base, *doubtful = 0, *out = NULL, 0;
}
ssize_t plfs_door_index_merge(plfs_file *f, const void *const *part, const size_t *length,
	uint32_t n, int doubtful, void **out)
{
	return (void)f, (void)part, (void)length, (void)n, (void)doubtful, *out = NULL, 0;
}
int plfs_door_index_use(plfs_file *f, int fd)
{
	return (void)f, (void)fd, 0;
}
int plfs_door_index_store(plfs_file *f, const void *data, size_t length)
{
	return (void)f, (void)data, (void)length, 0;
}
int plfs_door_horizon_get(plfs_file *f, plfs_horizon *out)
{
	return (void)f, memset(out, 0, sizeof *out), 0;
}
int plfs_door_horizon_set(plfs_file *f, const plfs_horizon *seen)
{
	return (void)f, (void)seen, 0;
}
