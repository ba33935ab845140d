/* The shared file pointer: a counter in the container's lock file, under a lock of its own.
 *
 * Each open has a random number that is the same at all its ranks; it chooses the counter's place
 * and is stored beside the value. If the place holds another number, this open has not used it yet:
 * the pointer is where the ranks last set it, which each of them has stored. So nothing has to be
 * made at open or cleaned up after a crash; to set the pointer, which is collective, all ranks take
 * the next number. Two opens get the same place with a probability of one in a million. */
#include "door.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#define PLACES (1 << 20) /* 16 MiB of a sparse file */

struct counter {
	uint64_t id;
	int64_t bytes;
};

void shared_restart(struct file *f, int64_t at)
{
	/* The low bits, which choose the place, stay. */
	f->shared_id += PLACES;
	f->shared_start = at;
}

/* Open file description locks: not dropped when another handle of the file is closed. Record locks
 * where the file system has only these. */
static int lock_counter(int fd, off_t at, short kind)
{
	struct flock lock = {.l_type = kind,
		.l_whence = SEEK_SET,
		.l_start = at,
		.l_len = sizeof(struct counter)};
	int rc;
	do
		rc = fcntl(fd, F_OFD_SETLKW, &lock);
	while (rc < 0 && errno == EINTR);
	return rc < 0 ? -errno : 0;
}

static int advance(struct file *f, int fd, int64_t bytes, int64_t *before)
{
	off_t at = (off_t)(f->shared_id % PLACES * sizeof(struct counter));
	int rc = lock_counter(fd, at, F_WRLCK);
	if (rc < 0)
		return rc;
	struct counter c = {0};
	ssize_t n = pread(fd, &c, sizeof c, at);
	if (n < 0)
		rc = -errno;
	else if ((size_t)n < sizeof c || c.id != f->shared_id)
		c = (struct counter){f->shared_id, f->shared_start};
	if (rc == 0) {
		*before = c.bytes;
		c.bytes += bytes;
		if (bytes != 0 && pwrite(fd, &c, sizeof c, at) != sizeof c)
			rc = errno ? -errno : -EIO;
	}
	lock_counter(fd, at, F_UNLCK);
	return rc;
}

int shared_advance(struct file *f, int64_t bytes, int64_t *before)
{
	int fd = plfs_lock_fd(f->plfs);
	if (fd < 0)
		return error_class(fd);
	/* The lock is between descriptors; threads of a rank share one. */
	pthread_mutex_lock(&f->lock);
	int rc = advance(f, fd, bytes, before);
	pthread_mutex_unlock(&f->lock);
	return error_class(rc);
}
