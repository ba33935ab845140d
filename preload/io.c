/* Reading, writing, seeking, syncing and sizes of open containers. */
#include "door.h"

#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <endian.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/sendfile.h>

/* MAX_RW_COUNT of Linux: what one read or write moves at most. */
#define MOVE_MAX ((size_t)0x7ffff000)

#define RWF_SYNC_ANY (RWF_DSYNC | RWF_SYNC)
#define RWF_KNOWN (RWF_HIPRI | RWF_DSYNC | RWF_SYNC | RWF_APPEND)

/* PLFS of a read or a write, for which handlers wait already. */
#define PLFS_IO(call) \
	({ \
		door_thread.inside++; \
		__typeof__(call) plfs_result_ = __builtin_expect(door_thread.closed, 0) ? -EIO \
											: (call); \
		door_thread.inside--; \
		plfs_result_; \
	})

static bool readable(struct ofd *o)
{
	return (ofd_flags(o) & O_ACCMODE) != O_WRONLY;
}

static bool writable(struct ofd *o)
{
	return (ofd_flags(o) & O_ACCMODE) != O_RDONLY;
}

/* Is it in the kernel's half, where no program has memory? The bit below the sign is looked at for
 * AArch64, where the upper byte may be the program's. */
static inline bool is_kernels(const void *at)
{
	const uintptr_t both = (uintptr_t)1 << 63 | (uintptr_t)1 << 55;
	return ((uintptr_t)at & both) == both;
}

/* What a call moves of these bytes at most. More than a program can have reach into the kernel's.
 */
static inline struct iovec piece_of(const void *buf, size_t n)
{
	if (__builtin_expect(n <= MOVE_MAX, 1))
		return (struct iovec){(void *)buf, n};
	return (struct iovec){n >> 62 ? (void *)-1 : (void *)buf, MOVE_MAX};
}

/* Bytes of the vector; or -EINVAL as readv(2), and -EFAULT where the kernel says so whatever there
 * is to be moved. */
static inline ssize_t iov_bytes(const struct iovec *iov, int n)
{
	if (n == 1 && !is_kernels(iov->iov_base))
		return iov->iov_len > SSIZE_MAX ? -EINVAL : (ssize_t)iov->iov_len;
	if (n < 0 || n > IOV_MAX)
		return -EINVAL;
	size_t sum = 0;
	bool any_kernels = false;
	for (int i = 0; i < n; i++) {
		if (iov[i].iov_len > SSIZE_MAX || (sum += iov[i].iov_len) > SSIZE_MAX)
			return -EINVAL;
		any_kernels = any_kernels || is_kernels(iov[i].iov_base);
	}
	return any_kernels ? -EFAULT : (ssize_t)sum;
}

/* Reads of more bytes than this look first how many there are. A buffer of 1 MiB is touched in the
 * time of its copy's tenth. */
#define TOUCH_MAX ((ssize_t)1 << 20)

/* How many pieces of a vector have memory, of those that `len` bytes need. */
static inline int pieces_there(const struct iovec *iov, int n, ssize_t len, bool written)
{
	if (n == 1)
		return memory_is_there(iov->iov_base, (size_t)len, written);
	for (int i = 0; i < n && len > 0; i++) {
		size_t part = (size_t)len < iov[i].iov_len ? (size_t)len : iov[i].iov_len;
		if (!memory_is_there(iov[i].iov_base, part, written))
			return i;
		len -= (ssize_t)part;
	}
	return n;
}

/* How many pieces can be read into, for `len` bytes in all from `offset`? There must be room for
 * what the file has. -1: it has nothing there, and no piece is touched. */
static int pieces_with_room(
	struct ofd *o, const struct iovec *iov, int n, ssize_t len, int64_t offset)
{
	if (len <= TOUCH_MAX && pieces_there(iov, n, len, true) == n)
		return n;
	int64_t end = PLFS(plfs_door_seek(o->file, 0, 0, SEEK_END));
	if (end < 0 || end <= offset)
		return end < 0 ? n : -1;
	return pieces_there(iov, n, end - offset < len ? (ssize_t)(end - offset) : len, true);
}

ssize_t ofd_preadv(struct ofd *o, const struct iovec *iov, int n, int64_t offset)
{
	if (offset < 0)
		return -EINVAL;
	if (!readable(o))
		return -EBADF;
	ssize_t len = iov_bytes(iov, n);
	if (len <= 0)
		return len;
	/* As the kernel: what is before the first piece that has no memory is read. */
	n = pieces_with_room(o, iov, n, len, offset);
	if (n < 0)
		return 0;
	len = iov_bytes(iov, n);
	if (len <= 0)
		return -EFAULT;
	if (n == 1)
		return PLFS_IO(plfs_pread(o->file, iov->iov_base,
			(size_t)len > MOVE_MAX ? MOVE_MAX : (size_t)len, offset));
	return PLFS_IO(plfs_preadv(o->file, iov, n, offset));
}

static ssize_t append(struct ofd *o, const struct iovec *iov, int n, int64_t *at)
{
	struct iovec one;
	if (n == 1 && iov->iov_len > MOVE_MAX) {
		one = (struct iovec){iov->iov_base, MOVE_MAX};
		iov = &one;
	}
	return PLFS_IO(plfs_append(o->file, iov, n, at));
}

/* What O_SYNC and RWF_SYNC add to a write. */
static inline ssize_t finish_write(struct ofd *o, ssize_t done, int rwf)
{
	int rc = 0;
	if (done > 0 && ((rwf & RWF_SYNC_ANY) || (ofd_flags(o) & O_DSYNC)))
		rc = PLFS(plfs_sync(o->file));
	return rc < 0 ? rc : done;
}

/* RLIMIT_FSIZE, which the kernel cannot hold against a file whose bytes are in logs. As it was when
 * the first file was opened or at the program's last setrlimit. */
static _Atomic uint64_t size_limit = UINT64_MAX;

void learn_size_limit(void)
{
	struct rlimit limit;
	if (RAW(SYS_prlimit64, 0L, (long)RLIMIT_FSIZE, NULL, &limit) == 0)
		atomic_store(&size_limit, limit.rlim_cur);
}

/* May a file have this size? If not, SIGXFSZ waits for the end of the call. */
static bool size_is_allowed(uint64_t size)
{
	if (__builtin_expect(size <= atomic_load_explicit(&size_limit, memory_order_relaxed), 1))
		return true;
	RAW(SYS_tgkill, (long)getpid(), RAW(SYS_gettid), (long)SIGXFSZ);
	return false;
}

static void size_limit_changed(void)
{
	learn_size_limit();
	PLFS_ALWAYS((plfs_door_size_limit_changed(), 0));
}

EXPORT int setrlimit(__rlimit_resource_t resource, const struct rlimit *limit)
{
	if (resource != RLIMIT_FSIZE || door_thread.inside)
		return REAL(setrlimit)(resource, limit);
	/* libplfs has places in the logs for what is written next, where it may not go then. */
	commit_all();
	int rc = REAL(setrlimit)(resource, limit);
	size_limit_changed();
	return rc;
}
ALIAS(setrlimit, setrlimit64);

EXPORT int prlimit(
	pid_t pid, __rlimit_resource_t resource, const struct rlimit *limit, struct rlimit *old)
{
	if (resource != RLIMIT_FSIZE || !limit || door_thread.inside)
		return REAL(prlimit)(pid, resource, limit, old);
	commit_all();
	int rc = REAL(prlimit)(pid, resource, limit, old);
	size_limit_changed();
	return rc;
}
ALIAS(prlimit, prlimit64);

static inline ssize_t write_or_append(
	struct ofd *o, const struct iovec *iov, int n, int64_t *at, bool appends)
{
	if (appends)
		return append(o, iov, n, at);
	if (n == 1)
		return PLFS_IO(plfs_pwrite(o->file, iov->iov_base,
			iov->iov_len > MOVE_MAX ? MOVE_MAX : iov->iov_len, *at));
	return PLFS_IO(plfs_pwritev(o->file, iov, n, *at));
}

/* What there is room for below the limit. */
static __attribute__((noinline)) ssize_t write_to_limit(struct ofd *o, const struct iovec *iov,
	int n, ssize_t len, int64_t *at, bool appends, uint64_t limit)
{
	int64_t from = appends ? PLFS(plfs_door_seek(o->file, 0, 0, SEEK_END)) : *at;
	if (from < 0 || (uint64_t)from + (uint64_t)len <= limit)
		return write_or_append(o, iov, n, at, appends);
	if ((uint64_t)from >= limit)
		return size_is_allowed((uint64_t)from + 1) ? 0 : -EFBIG;
	len = (ssize_t)(limit - (uint64_t)from);
	int whole = 0;
	while (whole < n && (size_t)len >= iov[whole].iov_len)
		len -= (ssize_t)iov[whole++].iov_len;
	if (len == 0)
		return write_or_append(o, iov, whole, at, appends);
	ROOM(room);
	struct iovec *cut = (struct iovec *)room;
	if (!cut)
		return -ENOMEM;
	memcpy(cut, iov, ((size_t)whole + 1) * sizeof *cut);
	cut[whole].iov_len = (size_t)len;
	return write_or_append(o, cut, whole + 1, at, appends);
}

/* Linux appends whatever the offset if O_APPEND is set. */
static inline bool ofd_appends(struct ofd *o, int rwf)
{
	return (ofd_flags(o) & O_APPEND) || (rwf & RWF_APPEND);
}

/* Writes `len` bytes, and where from is in *at then: with O_APPEND not where it said. */
static inline ssize_t write_at(
	struct ofd *o, const struct iovec *iov, int n, ssize_t len, int64_t *at, int rwf)
{
	int there = pieces_there(iov, n, len, false);
	if (there < n) {
		n = there;
		len = iov_bytes(iov, n);
		if (len <= 0)
			return -EFAULT;
	}
	bool appends = ofd_appends(o, rwf);
	uint64_t limit = atomic_load_explicit(&size_limit, memory_order_relaxed);
	return __builtin_expect(limit == UINT64_MAX, 1)
		       ? write_or_append(o, iov, n, at, appends)
		       : write_to_limit(o, iov, n, len, at, appends, limit);
}

ssize_t ofd_pwritev(struct ofd *o, int fd, const struct iovec *iov, int n, int64_t offset, int rwf)
{
	if (offset < 0)
		return -EINVAL;
	if (!writable(o))
		return -EBADF;
	ssize_t len = iov_bytes(iov, n);
	if (len <= 0)
		return len;
	ofd_learn_flags(o, fd);
	return finish_write(o, write_at(o, iov, n, len, &offset, rwf), rwf);
}

/* A reader has read `done` of n bytes in place. Is that all there is to it? At the end of the file
 * others may have gone on, in a container; so may this process anywhere, if it uses containers that
 * files have become. Where another thread has put another file the call is that one's. */
static bool read_in_place(int fd, ssize_t done, size_t n, unsigned installs)
{
	if (done < 0)
		return true;
	if ((size_t)done == n && plfs_door_uses_bases() == 0)
		return true;
	return installs == atomic_load(&fd_installs) && door_is_plain(fd);
}

/* Reads a plain file from the kernel's position, which other programs move without our lock: in one
 * step, as they do. OFD_IS_GONE: nothing was read, or what was there is not the file. */
static ssize_t read_from_kernels(struct ofd *o, int fd, const struct iovec *iov, int n, size_t len)
{
	unsigned installs = atomic_load(&fd_installs);
	ssize_t done = RAW(SYS_readv, (long)fd, iov, (long)n);
	if (done < 0)
		return -errno;
	if (read_in_place(fd, done, len < MOVE_MAX ? len : MOVE_MAX, installs))
		return done;
	ofd_move_kernel_position(o, fd, -done);
	return OFD_IS_GONE;
}

/* Reads a container from the kernel's position: that is moved first, in one step, as far as there
 * are bytes, so that nobody else reads or writes there, and back by what was not read. */
static ssize_t read_at_kernels(struct ofd *o, int fd, const struct iovec *iov, int n, size_t len)
{
	int64_t most = len < MOVE_MAX ? (int64_t)len : (int64_t)MOVE_MAX;
	int64_t at = ofd_position(o, fd),
		end = at < 0 ? at : PLFS(plfs_door_seek(o->file, 0, 0, SEEK_END));
	if (end < 0)
		return end;
	int64_t taken = end - at < most ? end - at : most;
	ssize_t done;
	if (taken <= 0) {
		/* It may have grown meanwhile; or it was cut, and bytes that were there are read
		 * until the next look (S20). */
		done = ofd_preadv(o, iov, n, at);
		if (done > 0)
			ofd_move_kernel_position(o, fd, done);
		return done;
	}
	int64_t moved = ofd_move_kernel_position(o, fd, taken);
	if (moved < 0)
		return moved;
	at = moved - taken;
	/* Another one was faster: what is behind the end is a writer's. */
	if (moved > end) {
		int64_t over = moved - end < taken ? moved - end : taken;
		ofd_move_kernel_position(o, fd, -over);
		taken -= over;
	}
	done = ofd_preadv(o, iov, n, at);
	done = done < taken ? done : taken;
	if (done < taken)
		ofd_move_kernel_position(o, fd, (done > 0 ? done : 0) - taken);
	return done;
}

ssize_t ofd_readv(struct ofd *o, int fd, const struct iovec *iov, int n)
{
	if (!readable(o))
		return -EBADF;
	ssize_t len = iov_bytes(iov, n);
	if (len <= 0)
		return len;
	/* The position moves by what was read, and nobody else reads from there meanwhile. */
	description_lock(o->shared);
	ssize_t done = OFD_IS_GONE;
	if (ofd_position_is_kernels(o)) {
		if (!o->is_packed && OFD_IS_PLAIN(o))
			done = read_from_kernels(o, fd, iov, n, (size_t)len);
		if (done == OFD_IS_GONE)
			done = read_at_kernels(o, fd, iov, n, (size_t)len);
	} else {
		int64_t at = ofd_position(o, fd);
		done = at < 0 ? at : ofd_preadv(o, iov, n, at);
		if (done > 0)
			ofd_set_position(o, fd, at + done);
	}
	description_unlock(o->shared);
	return done;
}

ssize_t ofd_writev(struct ofd *o, int fd, const struct iovec *iov, int n, int rwf)
{
	if (!writable(o))
		return -EBADF;
	ssize_t len = iov_bytes(iov, n);
	if (len <= 0)
		return len;
	description_lock(o->shared);
	ofd_learn_flags(o, fd);
	bool appends = ofd_appends(o, rwf);
	/* Other programs move the kernel's without our lock: it is moved first, in one step, so
	 * that nobody else writes there, and back by what was not written. */
	ssize_t most = (size_t)len < MOVE_MAX ? len : (ssize_t)MOVE_MAX;
	ssize_t taken = appends || !ofd_position_is_kernels(o) ? 0 : most;
	int64_t end = taken > 0 ? ofd_move_kernel_position(o, fd, taken) : -1;
	/* It cannot be moved past what a file may have. */
	taken = end < 0 ? 0 : taken;
	int64_t at = taken > 0 ? end - taken : ofd_position(o, fd);
	ssize_t done = at < 0 ? at : at == INT64_MAX ? -EFBIG : write_at(o, iov, n, len, &at, rwf);
	if (taken > 0 && done < taken)
		ofd_move_kernel_position(o, fd, (done > 0 ? done : 0) - taken);
	else if (taken == 0 && done > 0)
		ofd_set_position(o, fd, at + done);
	description_unlock(o->shared);
	return finish_write(o, done, rwf);
}

/* With the access mode 3 the kernel lets nobody read or write. */
static bool can_write(int flags)
{
	return flags >= 0 && ((flags & O_ACCMODE) == O_WRONLY || (flags & O_ACCMODE) == O_RDWR);
}

/* Was EBADF the answer of a placeholder that another thread had put there, by dup2, since fd was
 * found to be plain? Then fd is now a container or something else that can be written; or it became
 * a container after we came here, and what F_GETFL saw is a placeholder again. */
static bool was_replaced(int fd)
{
	if (errno != EBADF || door_thread.inside || atomic_load(&fd_limit) == 0)
		return false;
	unsigned installs = atomic_load(&fd_installs);
	long flags = fd_is_container(fd) ? O_RDWR : RAW(SYS_fcntl, (long)fd, (long)F_GETFL);
	errno = EBADF;
	return (!(flags & O_PATH) && can_write((int)flags)) ||
	       installs != atomic_load(&fd_installs);
}

/* A write to what is plain. */
#define WRITE_IF_PLAIN(fd, plain) \
	do { \
		while (door_thread.inside || !fd_is_container(fd)) { \
			ssize_t done_ = plain; \
			if (done_ >= 0 || !was_replaced(fd)) \
				return done_; \
		} \
	} while (0)

/* The answer where a reader or a writer cannot be made an entry like others. */
static ssize_t no_entry(void)
{
	errno = ENOMEM;
	return -1;
}

/* The slow part of each call: fd was a container a moment ago. `plain` is what libc does if it no
 * longer is; it may wait, so handlers of signals do not. A position that is the kernel's cannot be
 * had any more when another thread has put another file at fd: then the call is that one's. What
 * succeeds leaves errno as it was, as the kernel does: fscanf at the end of a file shows it. */
#define ON_CONTAINER_BETWEEN(defer, resume, fd, plain, call) \
	do { \
		int saved_ = errno; \
		for (;;) { \
			struct ofd *o = NULL; \
			defer(); \
			if (door_thread.inside || !(o = ofd_get(fd))) { \
				resume(); \
				return !door_thread.inside && fd_is_marked(fd) ? no_entry() \
									       : plain; \
			} \
			__auto_type rc_ = (call); \
			ofd_put(o); \
			resume(); \
			if (rc_ >= 0) \
				errno = saved_; \
			if (rc_ != OFD_IS_GONE) \
				return (__typeof__(plain))to_errno(rc_); \
		} \
	} while (0)

#define ON_CONTAINER(fd, plain, call) \
	ON_CONTAINER_BETWEEN(signals_defer, signals_resume, fd, plain, call)

/* ON_CONTAINER of a call in which a thread can be cancelled (pthreads(7)). */
#define CANCEL_ON_CONTAINER(fd, plain, call) \
	do { \
		if (cancellation_is_used() && !door_thread.inside) \
			pthread_testcancel(); \
		ON_CONTAINER(fd, plain, call); \
	} while (0)

/* CANCEL_ON_CONTAINER of a read or a write. */
#define IO_ON_CONTAINER(fd, plain, call) \
	do { \
		if (cancellation_is_used() && !door_thread.inside) \
			pthread_testcancel(); \
		ON_CONTAINER_BETWEEN(signals_defer_io, signals_resume_io, fd, plain, call); \
	} while (0)

/* IO_ON_CONTAINER of a call with a vector of the program's. */
#define VECTOR_ON_CONTAINER(fd, iov, n, plain, call) \
	IO_ON_CONTAINER(fd, plain, \
		n > 0 && n <= IOV_MAX && !memory_is_there(iov, (size_t)n * sizeof *iov, false) \
			? -EFAULT \
			: (call))

/* Does a file with this stat begin as a placeholder does? `held` are its first eight bytes. */
static bool is_placeholder(const struct stat *st, uint64_t held)
{
	return st->st_size == PLFS_SUPER_BYTES
		       ? held == PLFS_SUPER_BEGINS
		       : st->st_nlink == 0 && st->st_size == PLFS_STAND_IN_BYTES &&
				 held == PLFS_STAND_IN_BEGINS;
}

/* Are the bytes at iov the beginning of a placeholder? They were read from fd, which may be another
 * file by now: then a container was put or closed somewhere since. Of a plain file, which may have
 * such bytes, too, they are where its position is, and pipes are believed. Where a placeholder is,
 * nobody reads more of it. */
static bool is_of_placeholder(int fd, unsigned installs, const struct iovec *iov, size_t done)
{
	uint64_t got = 0, held = 0;
	struct stat st, again;
	size_t there = done < iov->iov_len ? done : iov->iov_len,
	       n = there < sizeof got ? there : sizeof got;
	memcpy(&got, iov->iov_base, n);
	uint64_t mask = n == sizeof got ? UINT64_MAX : ((uint64_t)1 << 8 * n) - 1;
	got = le64toh(got);
	if (got != (PLFS_SUPER_BEGINS & mask) && got != (PLFS_STAND_IN_BEGINS & mask))
		return false;
	/* Who opens and closes all the time may deceive one look. */
	for (int look = 0; look < 3; look++) {
		if (RAW(SYS_fstat, (long)fd, &st) < 0)
			return n == sizeof got;
		if (!S_ISREG(st.st_mode))
			return false;
		int64_t at = RAW(SYS_lseek, (long)fd, 0L, (long)SEEK_CUR) - (int64_t)done;
		bool is_first = RAW(SYS_pread64, (long)fd, &held, sizeof held, 0L) > 0 &&
				is_placeholder(&st, le64toh(held));
		bool is_there = at >= 0 &&
				RAW(SYS_pread64, (long)fd, &held, sizeof held, (long)at) > 0 &&
				(le64toh(held) & mask) == got;
		bool is_open = RAW(SYS_fstat, (long)fd, &again) == 0,
		     is_same = is_open && st.st_dev == again.st_dev && st.st_ino == again.st_ino;
		bool is_gone = n == sizeof got &&
			       (!is_open || installs != atomic_load(&fd_installs));
		/* Who read a placeholder moved its position, from 0 to where the bytes end. That of
		 * another one is 0, or behind all if dup2 put it there. */
		if (is_same && is_first && at == 0)
			RAW(SYS_lseek, (long)fd, PLACEHOLDER_POSITION, (long)SEEK_SET);
		if (is_same && is_first)
			return at == 0 || (at == -(int64_t)done && is_gone);
		if (!is_same || !is_there)
			return is_gone;
	}
	return false;
}

/* Was `done` what a placeholder gives, that another thread had put there since fd was found to be
 * plain? Then the call is made again. If dup2 put it there that is the end of a file
 * (fd_park_held), and containers have come somewhere since then. If another file was closed and the
 * number used again it is what the placeholder holds, which no plain file has. */
static bool read_placeholder(int fd, unsigned installs, const struct iovec *iov, ssize_t done)
{
	if (__builtin_expect(done > 0, 1))
		return __builtin_expect(iov->iov_len > 0 && *(const char *)iov->iov_base ==
								    (char)PLFS_SUPER_BEGINS,
			       0) &&
		       !door_thread.inside && is_of_placeholder(fd, installs, iov, (size_t)done);
	return done == 0 && installs != atomic_load(&fd_installs) && !door_thread.inside;
}

/* A read from what is plain, at a position of its own: it can be made again. */
#define READ_IF_PLAIN(fd, plain) \
	do { \
		for (;;) { \
			unsigned installs_ = atomic_load(&fd_installs); \
			if (!door_thread.inside && fd_is_container(fd)) \
				break; \
			ssize_t done_ = plain; \
			if (done_ < 0 || door_thread.inside || \
				__builtin_expect(installs_ == atomic_load(&fd_installs), 1)) \
				return done_; \
		} \
	} while (0)

EXPORT ssize_t read(int fd, void *buf, size_t n)
{
	unsigned installs = atomic_load(&fd_installs);
	struct iovec iov = piece_of(buf, n);
	if (!fd_is_container(fd)) {
		ssize_t done = door_thread.inside ? RAW(SYS_read, (long)fd, buf, n)
						  : REAL(read)(fd, buf, n);
		return read_placeholder(fd, installs, &iov, done) ? read(fd, buf, n) : done;
	}
	if (fd_is_reader(fd)) {
		ssize_t done = REAL(read)(fd, buf, iov.iov_len);
		if (read_placeholder(fd, installs, &iov, done))
			return read(fd, buf, n);
		if (door_thread.inside || read_in_place(fd, done, iov.iov_len, installs))
			return done;
		if (done > 0)
			RAW(SYS_lseek, (long)fd, (long)-done, (long)SEEK_CUR);
	}
	IO_ON_CONTAINER(fd, read(fd, buf, n), ofd_readv(o, fd, &iov, 1));
}
ALIAS(read, __read);

EXPORT ssize_t write(int fd, const void *buf, size_t n)
{
	WRITE_IF_PLAIN(fd, REAL(write)(fd, buf, n));
	ssize_t done;
	if (fd_is_writer(fd) && writer_write(fd, buf, n, NULL, &done))
		return done;
	struct iovec iov = piece_of(buf, n);
	IO_ON_CONTAINER(fd, write(fd, buf, n), ofd_writev(o, fd, &iov, 1, 0));
}
ALIAS(write, __write);

EXPORT ssize_t pread(int fd, void *buf, size_t n, off_t offset)
{
	READ_IF_PLAIN(fd, REAL(pread)(fd, buf, n, offset));
	if (fd_is_reader(fd)) {
		unsigned installs = atomic_load(&fd_installs);
		size_t most = n > MOVE_MAX ? MOVE_MAX : n;
		ssize_t done = REAL(pread)(fd, buf, most, offset);
		if (door_thread.inside || read_in_place(fd, done, most, installs))
			return done;
	}
	struct iovec iov = piece_of(buf, n);
	IO_ON_CONTAINER(fd, pread(fd, buf, n, offset), ofd_preadv(o, &iov, 1, offset));
}
ALIAS(pread, __pread64);
ALIAS(pread, pread64);

EXPORT ssize_t pwrite(int fd, const void *buf, size_t n, off_t offset)
{
	WRITE_IF_PLAIN(fd, REAL(pwrite)(fd, buf, n, offset));
	ssize_t done;
	if (fd_is_writer(fd) && writer_write(fd, buf, n, &offset, &done))
		return done;
	struct iovec iov = piece_of(buf, n);
	IO_ON_CONTAINER(fd, pwrite(fd, buf, n, offset), ofd_pwritev(o, fd, &iov, 1, offset, 0));
}
ALIAS(pwrite, __pwrite64);
ALIAS(pwrite, pwrite64);

EXPORT ssize_t readv(int fd, const struct iovec *iov, int n)
{
	unsigned installs = atomic_load(&fd_installs);
	if (!fd_is_container(fd)) {
		ssize_t done = REAL(readv)(fd, iov, n);
		return read_placeholder(fd, installs, iov, done) ? readv(fd, iov, n) : done;
	}
	VECTOR_ON_CONTAINER(fd, iov, n, readv(fd, iov, n), ofd_readv(o, fd, iov, n));
}

EXPORT ssize_t writev(int fd, const struct iovec *iov, int n)
{
	WRITE_IF_PLAIN(fd, REAL(writev)(fd, iov, n));
	VECTOR_ON_CONTAINER(fd, iov, n, writev(fd, iov, n), ofd_writev(o, fd, iov, n, 0));
}

EXPORT ssize_t preadv(int fd, const struct iovec *iov, int n, off_t offset)
{
	READ_IF_PLAIN(fd, REAL(preadv)(fd, iov, n, offset));
	VECTOR_ON_CONTAINER(fd, iov, n, preadv(fd, iov, n, offset), ofd_preadv(o, iov, n, offset));
}
ALIAS(preadv, preadv64);

EXPORT ssize_t pwritev(int fd, const struct iovec *iov, int n, off_t offset)
{
	WRITE_IF_PLAIN(fd, REAL(pwritev)(fd, iov, n, offset));
	VECTOR_ON_CONTAINER(
		fd, iov, n, pwritev(fd, iov, n, offset), ofd_pwritev(o, fd, iov, n, offset, 0));
}
ALIAS(pwritev, pwritev64);

static ssize_t ofd_preadv2(
	struct ofd *o, int fd, const struct iovec *iov, int n, off_t offset, int rwf)
{
	if (rwf & ~RWF_KNOWN)
		return -EOPNOTSUPP;
	return offset == -1 ? ofd_readv(o, fd, iov, n) : ofd_preadv(o, iov, n, offset);
}

static ssize_t ofd_pwritev2(
	struct ofd *o, int fd, const struct iovec *iov, int n, off_t offset, int rwf)
{
	if (rwf & ~RWF_KNOWN)
		return -EOPNOTSUPP;
	return offset == -1 ? ofd_writev(o, fd, iov, n, rwf)
			    : ofd_pwritev(o, fd, iov, n, offset, rwf);
}

EXPORT ssize_t preadv2(int fd, const struct iovec *iov, int n, off_t offset, int rwf)
{
	if (!fd_is_container(fd))
		return REAL(preadv2)(fd, iov, n, offset, rwf);
	VECTOR_ON_CONTAINER(fd, iov, n, REAL(preadv2)(fd, iov, n, offset, rwf),
		ofd_preadv2(o, fd, iov, n, offset, rwf));
}
ALIAS(preadv2, preadv64v2);

EXPORT ssize_t pwritev2(int fd, const struct iovec *iov, int n, off_t offset, int rwf)
{
	WRITE_IF_PLAIN(fd, REAL(pwritev2)(fd, iov, n, offset, rwf));
	VECTOR_ON_CONTAINER(fd, iov, n, pwritev2(fd, iov, n, offset, rwf),
		ofd_pwritev2(o, fd, iov, n, offset, rwf));
}
ALIAS(pwritev2, pwritev64v2);

/* If the buffer is too small for n, libc ends the program. */
EXPORT ssize_t __read_chk(int fd, void *buf, size_t n, size_t room)
{
	return n > room || !fd_is_container(fd) ? REAL(__read_chk)(fd, buf, n, room)
						: read(fd, buf, n);
}

EXPORT ssize_t __pread_chk(int fd, void *buf, size_t n, off_t offset, size_t room)
{
	return n > room || !fd_is_container(fd) ? REAL(__pread_chk)(fd, buf, n, offset, room)
						: pread(fd, buf, n, offset);
}
ALIAS(__pread_chk, __pread64_chk);

static int64_t ofd_lseek(struct ofd *o, int fd, int64_t offset, int whence)
{
	description_lock(o->shared);
	int64_t at = ofd_position(o, fd);
	int64_t next = at < 0 ? at : PLFS(plfs_door_seek(o->file, at, offset, whence));
	if (next >= 0 && next != at) {
		/* Where files end at last is for the file system to say; none ends below 2 GiB. */
		bool asks = next > INT32_MAX && OFD_IS_PLAIN(o);
		int rc = asks ? ofd_set_kernel_position(o, fd, next) : 0;
		rc = rc < 0 ? rc : ofd_set_position(o, fd, next);
		next = rc < 0 ? rc : next;
	}
	description_unlock(o->shared);
	return next;
}

EXPORT off_t lseek(int fd, off_t offset, int whence)
{
	if (!fd_is_container(fd)) {
		if (whence == SEEK_SET)
			listing_forget(fd);
		return REAL(lseek)(fd, offset, whence);
	}
	if (fd_is_reader(fd) && (whence == SEEK_SET || whence == SEEK_CUR || door_thread.inside ||
					door_is_plain(fd)))
		return REAL(lseek)(fd, offset, whence);
	off_t at;
	if (!door_thread.inside && writer_seek(fd, offset, whence, &at))
		return at;
	ON_CONTAINER(fd, REAL(lseek)(fd, offset, whence), ofd_lseek(o, fd, offset, whence));
}
ALIAS(lseek, __lseek);
ALIAS(lseek, lseek64);

EXPORT int fsync(int fd)
{
	if (!fd_is_container(fd))
		return REAL(fsync)(fd) < 0 ? -1 : sync_directory(fd);
	CANCEL_ON_CONTAINER(fd, REAL(fsync)(fd), PLFS(plfs_sync(o->file)));
}

EXPORT int fdatasync(int fd)
{
	if (!fd_is_container(fd))
		return REAL(fdatasync)(fd) < 0 ? -1 : sync_directory(fd);
	CANCEL_ON_CONTAINER(fd, REAL(fdatasync)(fd), PLFS(plfs_sync(o->file)));
}

static int ofd_sync_range(struct ofd *o, off64_t offset, off64_t n, unsigned flags)
{
	const unsigned known = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
			       SYNC_FILE_RANGE_WAIT_AFTER;
	if ((flags & ~known) || offset < 0 || n < 0 || n > INT64_MAX - offset)
		return -EINVAL;
	return (flags & SYNC_FILE_RANGE_WAIT_AFTER) ? PLFS(plfs_sync(o->file))
						    : PLFS(plfs_commit(o->file));
}

/* sync_file_range(2) promises no durability after a crash. A caller that asks to wait for the write
 * gets a full sync, the least that gives what it expects. */
EXPORT int sync_file_range(int fd, off64_t offset, off64_t n, unsigned flags)
{
	if (!fd_is_container(fd))
		return REAL(sync_file_range)(fd, offset, n, flags);
	ON_CONTAINER(fd, REAL(sync_file_range)(fd, offset, n, flags),
		ofd_sync_range(o, offset, n, flags));
}

EXPORT int syncfs(int fd)
{
	commit_all();
	/* What lies in a flat directory is on several file systems. */
	if (fd_is_flat(fd))
		REAL(sync)();
	return REAL(syncfs)(fd);
}

EXPORT void sync(void)
{
	commit_all();
	REAL(sync)();
}

static int ofd_truncate(struct ofd *o, off_t size)
{
	if (size < 0 || !writable(o))
		return -EINVAL;
	return size_is_allowed((uint64_t)size) ? PLFS(plfs_ftruncate(o->file, size)) : -EFBIG;
}

EXPORT int ftruncate(int fd, off_t size)
{
	if (!fd_is_container(fd))
		return REAL(ftruncate)(fd, size);
	ON_CONTAINER(fd, REAL(ftruncate)(fd, size), ofd_truncate(o, size));
}
ALIAS(ftruncate, ftruncate64);

/* Cuts a file that stays plain for ever, as one with record locks does. libplfs would open and
 * close it, and the close would drop those of this process. False: it is another one. */
static bool truncate_plain(const char *path, off_t size, int64_t *rc)
{
	char link[FD_PATH_ROOM];
	int saved = errno, fd = door_openat(AT_FDCWD, path, O_PATH | O_CLOEXEC, 0);
	fd_path(link, fd);
	bool done = fd >= 0 && PLFS(plfs_door_stays_plain(link)) == 1;
	if (done)
		*rc = REAL(truncate)(link, size) < 0 ? -errno : 0;
	if (fd >= 0)
		RAW(SYS_close, (long)fd);
	errno = saved;
	return done;
}

/* By the path of a descriptor, `of` if it is this process's. Who may not write the file may not by
 * a descriptor either that can. Not inlined: calls on other files would have its stack. */
__attribute__((noinline)) static int truncate_through_descriptor(
	const char *path, int of, off_t size)
{
	char link[FD_PATH_ROOM];
	bool is_packed = of >= 0 && fd_is_packed(of);
	if (!is_packed && REAL(faccessat)(AT_FDCWD, path, W_OK, AT_EACCESS) != 0)
		return -1;
	/* The close of another one would drop record locks. */
	int mode = of >= 0 && !is_packed ? fcntl(of, F_GETFL) & O_ACCMODE : O_RDONLY;
	if (mode == O_WRONLY || mode == O_RDWR)
		return ftruncate(of, size);
	if (is_packed)
		path = fd_path(link, of);
	int fd = door_openat(AT_FDCWD, path, O_WRONLY | O_CLOEXEC, 0);
	int rc = fd < 0 ? -1 : ftruncate(fd, size), saved = errno;
	if (fd >= 0 && door_close(fd) == 0)
		errno = saved;
	return rc;
}

EXPORT int truncate(const char *path, off_t size)
{
	if (!path_is_there(path))
		return -1;
	if (path_is_hidden(AT_FDCWD, path)) {
		errno = ENOENT;
		return -1;
	}
	int of;
	if (path_leads_through_descriptor(AT_FDCWD, path, &of))
		return truncate_through_descriptor(path, of, size);
	if (!path_is_ours(AT_FDCWD, path, 0))
		return REAL(truncate)(path, size);
	int64_t rc = size < 0 ? -EINVAL : size_is_allowed((uint64_t)size) ? 0 : -EFBIG;
	if (rc == 0 && !truncate_plain(path, size, &rc))
		rc = PLFS(plfs_door_truncate(path, size));
	return (int)to_errno(rc);
}
ALIAS(truncate, truncate64);

static int ofd_fallocate(struct ofd *o, int mode, off_t offset, off_t len)
{
	const int keeps = FALLOC_FL_KEEP_SIZE | FALLOC_FL_COLLAPSE_RANGE | FALLOC_FL_INSERT_RANGE,
		  known = keeps | FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE |
			  FALLOC_FL_UNSHARE_RANGE;
	if (offset < 0 || len <= 0)
		return -EINVAL;
	if ((mode & ~known) ||
		(mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE)) == FALLOC_FL_PUNCH_HOLE)
		return -EOPNOTSUPP;
	if (!writable(o))
		return -EBADF;
	if (!(mode & keeps) && !size_is_allowed((uint64_t)offset + (uint64_t)len))
		return -EFBIG;
	return PLFS(plfs_fallocate(o->file, mode, offset, len));
}

EXPORT int fallocate(int fd, int mode, off_t offset, off_t len)
{
	if (!fd_is_container(fd))
		return REAL(fallocate)(fd, mode, offset, len);
	ON_CONTAINER(
		fd, REAL(fallocate)(fd, mode, offset, len), ofd_fallocate(o, mode, offset, len));
}
ALIAS(fallocate, fallocate64);

EXPORT int posix_fallocate(int fd, off_t offset, off_t len)
{
	struct ofd *o;
	if (!fd_is_container(fd) || door_thread.inside || !(o = ofd_get(fd)))
		return REAL(posix_fallocate)(fd, offset, len);
	int rc = ofd_fallocate(o, 0, offset, len);
	ofd_put(o);
	return -rc;
}
ALIAS(posix_fallocate, posix_fallocate64);

/* The placeholder's pages are not the file's, so advice is not passed to the kernel. */
static bool has_no_pages(int fd)
{
	bool may_be = fd_is_container(fd) && !fd_is_marked(fd) && !door_thread.inside;
	struct ofd *o = may_be ? ofd_get(fd) : NULL;
	bool none = o && !OFD_IS_PLAIN(o);
	if (o)
		ofd_put(o);
	return none;
}

EXPORT int posix_fadvise(int fd, off_t offset, off_t len, int advice)
{
	if (!has_no_pages(fd))
		return REAL(posix_fadvise)(fd, offset, len, advice);
	return len < 0 || advice < POSIX_FADV_NORMAL || advice > POSIX_FADV_NOREUSE ? EINVAL : 0;
}
ALIAS(posix_fadvise, posix_fadvise64);

EXPORT ssize_t readahead(int fd, off64_t offset, size_t n)
{
	if (!has_no_pages(fd))
		return REAL(readahead)(fd, offset, n);
	return (fcntl(fd, F_GETFL) & O_ACCMODE) == O_WRONLY ? to_errno(-EBADF) : 0;
}

/* Bytes that one step of a copy through memory moves. 256 KiB, as coreutils' cp since 9.2
 * (ioblksize.h). */
#define COPY_STEP ((size_t)256 << 10)

/* Copies through memory as copy_file_range and sendfile do. An offset pointer that is NULL means
 * the descriptor's own position. */
static ssize_t copy_bytes(int in, off_t *in_at, int out, off_t *out_at, size_t len)
{
	char *buf = malloc(len < COPY_STEP ? len + 1 : COPY_STEP);
	if (!buf) {
		errno = ENOMEM;
		return -1;
	}
	size_t done = 0;
	bool failed = false;
	while (done < len) {
		size_t want = len - done < COPY_STEP ? len - done : COPY_STEP;
		ssize_t got = in_at ? pread(in, buf, want, *in_at) : read(in, buf, want);
		if (got <= 0) {
			failed = got < 0;
			break;
		}
		ssize_t put = 0, n = 0;
		while (put < got) {
			n = out_at ? pwrite(out, buf + put, (size_t)(got - put), *out_at)
				   : write(out, buf + put, (size_t)(got - put));
			if (n <= 0)
				break;
			put += n;
			if (out_at)
				*out_at += n;
		}
		if (in_at)
			*in_at += put;
		else if (put < got)
			lseek(in, put - got, SEEK_CUR);
		done += (size_t)put;
		if (put < got) {
			failed = true;
			break;
		}
		/* Ends at a short step: the next could block if the input is a pipe, and the caller
		 * can continue. */
		if ((size_t)got < want)
			break;
	}
	int saved = errno;
	free(buf);
	errno = saved;
	return failed && done == 0 ? -1 : (ssize_t)done;
}

/* The flags of an end of a copy, or -EBADF. */
static int end_of_copy(int fd)
{
	int flags = fcntl(fd, F_GETFL);
	return flags < 0 || (flags & O_PATH) ? -EBADF : flags;
}

static bool can_read(int flags)
{
	return flags >= 0 && ((flags & O_ACCMODE) == O_RDONLY || (flags & O_ACCMODE) == O_RDWR);
}

static bool is_position(const off_t *at)
{
	return !at || memory_is_there(at, sizeof *at, true);
}

/* What the kernel says of a copy, in its order: 0 or a negative errno. Regular files only, and of
 * one file no bytes over themselves. Who copies from a pipe is told to read: it could wait for
 * ever. */
static int may_copy_range(
	int in, const off_t *in_at, int out, const off_t *out_at, size_t n, unsigned flags)
{
	int from_flags = end_of_copy(in), to_flags = end_of_copy(out);
	struct stat from, to;
	if (from_flags < 0 || to_flags < 0)
		return -EBADF;
	if (!is_position(in_at) || !is_position(out_at))
		return -EFAULT;
	if (flags)
		return -EINVAL;
	if (fstat(in, &from) < 0 || fstat(out, &to) < 0)
		return -errno;
	if (S_ISDIR(from.st_mode) || S_ISDIR(to.st_mode))
		return -EISDIR;
	if (!S_ISREG(from.st_mode) || !S_ISREG(to.st_mode))
		return -EINVAL;
	if (!can_read(from_flags) || !can_write(to_flags) || (to_flags & O_APPEND))
		return -EBADF;
	uint64_t begin = (uint64_t)(in_at ? *in_at : lseek(in, 0, SEEK_CUR));
	uint64_t to_begin = (uint64_t)(out_at ? *out_at : lseek(out, 0, SEEK_CUR));
	if (begin + n < begin || to_begin + n < to_begin)
		return -EOVERFLOW;
	uint64_t size = (uint64_t)from.st_size, left = begin < size ? size - begin : 0;
	uint64_t len = n < left ? n : left;
	if (from.st_dev == to.st_dev && from.st_ino == to.st_ino && to_begin < begin + len &&
		begin < to_begin + len)
		return -EINVAL;
	return begin > INT64_MAX || to_begin > INT64_MAX ? -EINVAL : 0;
}

EXPORT ssize_t copy_file_range(
	int in, off64_t *in_at, int out, off64_t *out_at, size_t n, unsigned flags)
{
	if ((!fd_is_container(in) && !fd_is_container(out)) || door_thread.inside)
		return REAL(copy_file_range)(in, in_at, out, out_at, n, flags);
	int rc = may_copy_range(in, in_at, out, out_at, n, flags);
	if (rc < 0)
		return to_errno(rc);
	/* As the kernel, which copies what there is room for below RLIMIT_FSIZE and stops there. */
	uint64_t limit = atomic_load(&size_limit);
	uint64_t to = (uint64_t)(out_at ? *out_at : lseek(out, 0, SEEK_CUR));
	if (to < limit && n > limit - to)
		n = limit - to;
	return copy_bytes(in, in_at, out, out_at, n > MOVE_MAX ? MOVE_MAX : n);
}

/* As may_copy_range. What was read from a pipe or a socket could not be given back. */
static int may_send(int out, int in, const off_t *in_at, size_t n)
{
	struct stat from;
	if (!is_position(in_at))
		return -EFAULT;
	if (!can_read(end_of_copy(in)))
		return -EBADF;
	bool is_pipe = lseek(in, 0, SEEK_CUR) < 0 && errno == ESPIPE;
	if (is_pipe && in_at)
		return -ESPIPE;
	if ((in_at && *in_at < 0) || n > SSIZE_MAX)
		return -EINVAL;
	int to = end_of_copy(out);
	if (!can_write(to))
		return -EBADF;
	bool is_dir = n > 0 && fstat(in, &from) == 0 && S_ISDIR(from.st_mode);
	return is_pipe || is_dir || (to & O_APPEND) ? -EINVAL : 0;
}

/* Have both numbers one position? */
static bool is_one_position(int in, int out)
{
	struct ofd *from = ofd_get(in), *to = ofd_get(out);
	bool yes = from && to && from->shared == to->shared;
	if (from)
		ofd_put(from);
	if (to)
		ofd_put(to);
	return yes;
}

EXPORT ssize_t sendfile(int out, int in, off_t *in_at, size_t n)
{
	if ((!fd_is_container(in) && !fd_is_container(out)) || door_thread.inside)
		return REAL(sendfile)(out, in, in_at, n);
	int saved = errno, rc = may_send(out, in, in_at, n);
	if (rc < 0)
		return to_errno(rc);
	errno = saved;
	/* As the kernel, which moves it once, by what it read and wrote there. */
	off_t own = !in_at && is_one_position(in, out) ? lseek(in, 0, SEEK_CUR) : -1;
	return copy_bytes(in, own >= 0 ? &own : in_at, out, NULL, n > MOVE_MAX ? MOVE_MAX : n);
}
ALIAS(sendfile, sendfile64);

/* EINVAL is what a file system without splice gives; programs then read and write. */
EXPORT ssize_t splice(int in, off64_t *in_at, int out, off64_t *out_at, size_t n, unsigned flags)
{
	if (!fd_is_container(in) && !fd_is_container(out))
		return REAL(splice)(in, in_at, out, out_at, n, flags);
	errno = EINVAL;
	return -1;
}

EXPORT ssize_t tee(int in, int out, size_t n, unsigned flags)
{
	if (!fd_is_container(in) && !fd_is_container(out))
		return REAL(tee)(in, out, n, flags);
	errno = EINVAL;
	return -1;
}
