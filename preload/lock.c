/* fcntl, record locks, flock and ioctl.
 *
 * The holder of a lock must see what earlier holders wrote. So a granted lock refreshes the file,
 * and data is committed before a lock is released.
 *
 * Record locks are taken on a file in the container, which whoever may write the file makes at his
 * first lock. Who may only read it and finds none locks the name itself, for reading: as an open
 * file description, because a close of any descriptor would drop a lock of the process, and libplfs
 * opens and closes the name. Who wants to write looks there, once the lock file is there; who has
 * locked the name looks for the lock file again. So one of the two sees the other. */
#include "door.h"

#include <linux/fs.h>
#include <limits.h>
#include <stdarg.h>
#include <string.h>

int door_dup_at_least(int fd, int command, int least);

/* Set when this process first asks for a record lock on a container: from then on closing a
 * descriptor has to drop locks. The same of locks on names; and of those of open file descriptions,
 * of which the program before exec tells this one (description.h). */
static _Atomic int record_locks_used, name_locks_used, ofd_locks_used;

/* Set when this process first has a record lock on a plain file that it cannot pin. */
static _Atomic int plain_locks_used;

/* Set when this process first has a handle with a flock_fd. */
static _Atomic int flocks_kept;

/* The lock file's descriptor for a command. Locks of the process are on one for all its descriptors
 * of the file: where any of them is closed they are lost. */
static int lock_fd_of(struct ofd *o, int command)
{
	bool of_process = command == F_GETLK || command == F_SETLK || command == F_SETLKW;
	return of_process ? PLFS(plfs_door_process_lock_fd(o->file, 1))
			  : PLFS(plfs_lock_fd(o->file));
}

/* Is this the answer of libplfs to who may only read, and finds no lock file? */
static bool has_no_lock_file(int lock_fd)
{
	return lock_fd == -EACCES || lock_fd == -EPERM || lock_fd == -EROFS;
}

static bool same_file(int fd, const struct stat *st)
{
	struct stat other;
	return REAL(fstat)(fd, &other) == 0 && other.st_dev == st->st_dev &&
	       other.st_ino == st->st_ino;
}

/* Unlocks the range on all descriptors of the file that fd is open on: to the program it is one
 * process that holds the locks. */
static void unlock_name(int fd, const struct flock *range)
{
	struct stat st;
	if (!atomic_load(&name_locks_used) || REAL(fstat)(fd, &st) < 0)
		return;
	struct flock l = *range;
	l.l_type = F_UNLCK;
	l.l_pid = 0;
	RAW(SYS_fcntl, (long)fd, (long)F_OFD_SETLK, &l);
	int limit = atomic_load(&fd_limit);
	for (int other = 0; other < limit; other++)
		if (fd_is_container(other) && same_file(other, &st))
			RAW(SYS_fcntl, (long)other, (long)F_OFD_SETLK, &l);
}

bool ofd_locks_are_used(void)
{
	return atomic_load(&ofd_locks_used);
}

void ofd_locks_begin(void)
{
	atomic_store(&ofd_locks_used, 1);
}

bool locks_are_used(void)
{
	return atomic_load_explicit(&record_locks_used, memory_order_relaxed);
}

void lock_drop(struct ofd *o, int fd)
{
	if (!locks_are_used())
		return;
	PLFS(plfs_commit(o->file));
	struct flock all = {.l_type = F_UNLCK, .l_whence = SEEK_SET};
	unlock_name(fd, &all);
	int lock_fd = PLFS(plfs_door_process_lock_fd(o->file, 0));
	if (lock_fd >= 0)
		RAW(SYS_fcntl, lock_fd, (long)F_SETLK, &all);
}

/* Do others hold locks for reading on the name that keep a lock for writing out? */
static bool name_is_locked(int fd, struct flock *l)
{
	l->l_pid = 0;
	return RAW(SYS_fcntl, (long)fd, (long)F_OFD_GETLK, l) == 0 && l->l_type != F_UNLCK;
}

/* How often that is asked by who waits. Locks of those who may only read are rare, those that were
 * there before the lock file more so. */
#define ASK_AGAIN_NS 10000000

static int64_t wait_for_readers(int fd, int command, const struct flock *lock)
{
	for (;;) {
		struct flock l = *lock;
		if (!name_is_locked(fd, &l))
			return 0;
		if (command != F_SETLKW && command != F_OFD_SETLKW)
			return -EAGAIN;
		struct timespec pause = {0, ASK_AGAIN_NS};
		if (RAW(SYS_clock_nanosleep, (long)CLOCK_MONOTONIC, 0L, &pause, NULL) < 0)
			return -errno;
	}
}

/* Locks the name. *lock_fd is the lock file's if there is one now. */
static int64_t lock_name(struct ofd *o, int fd, int command, struct flock *l, int *lock_fd)
{
	atomic_store(&name_locks_used, 1);
	atomic_store(&record_locks_used, 1);
	l->l_pid = 0;
	if (RAW(SYS_fcntl, (long)fd, (long)F_OFD_SETLK, l) < 0)
		return -errno;
	*lock_fd = lock_fd_of(o, command);
	return 0;
}

/* What the kernel says of a range before it looks at the lock: 0 or a negative errno. `l` gets it
 * from the start of the file. */
static int64_t check_range(struct flock *l, int64_t base)
{
	if (l->l_start > 0 && l->l_start > INT64_MAX - base)
		return -EOVERFLOW;
	l->l_whence = SEEK_SET;
	l->l_start += base;
	if (l->l_start < 0 || (l->l_len < 0 && l->l_start + l->l_len < 0))
		return -EINVAL;
	if (l->l_len > 0 && l->l_len - 1 > INT64_MAX - l->l_start)
		return -EOVERFLOW;
	return l->l_type == F_RDLCK || l->l_type == F_WRLCK || l->l_type == F_UNLCK ? 0 : -EINVAL;
}

/* One of the six lock commands. The kernel keeps the lock, on libplfs's lock file. That file's size
 * and position are not the container's, so offsets are made absolute here. */
static int64_t record_lock(struct ofd *o, int fd, int command, struct flock *lock)
{
	if (!memory_is_there(lock, sizeof *lock, command == F_GETLK || command == F_OFD_GETLK))
		return -EFAULT;
	struct flock l = *lock;
	int64_t base = 0;
	if (l.l_whence == SEEK_CUR)
		base = ofd_position(o, fd);
	else if (l.l_whence == SEEK_END)
		base = PLFS(plfs_door_seek(o->file, 0, 0, SEEK_END));
	else if (l.l_whence != SEEK_SET)
		return -EINVAL;
	if (base >= 0)
		base = check_range(&l, base);
	if (base < 0)
		return base;
	bool asks = command == F_GETLK || command == F_OFD_GETLK,
	     of_process = command == F_SETLK || command == F_SETLKW;
	int access = ofd_flags(o) & O_ACCMODE;
	if (!asks && ((l.l_type == F_RDLCK && access == O_WRONLY) ||
			     (l.l_type == F_WRLCK && access == O_RDONLY)))
		return -EBADF;
	struct flock named = l;
	int lock_fd = lock_fd_of(o, command);
	if (!asks && l.l_type == F_UNLCK) {
		int rc = PLFS(plfs_commit(o->file));
		if (rc < 0)
			return rc;
		unlock_name(fd, &l);
		/* From before it got a container. */
		if (of_process && atomic_load(&plain_locks_used) && !OFD_IS_PLAIN(o))
			RAW(SYS_fcntl, (long)fd, (long)F_SETLK, &l);
	}
	bool is_plain = OFD_IS_PLAIN(o), locks_name = !is_plain && has_no_lock_file(lock_fd);
	/* Of a plain file it is the program's, and libplfs may know it by a number that is closed.
	 */
	if (is_plain && lock_fd >= 0)
		lock_fd = fd;
	if (locks_name && asks) {
		/* Nobody can have a lock for writing. */
		if (l.l_type == F_RDLCK || !name_is_locked(fd, &l))
			l.l_type = F_UNLCK;
		*lock = l;
		return 0;
	}
	if (locks_name && l.l_type == F_UNLCK)
		return 0;
	if (locks_name) {
		int64_t rc = lock_name(o, fd, command, &l, &lock_fd);
		if (rc < 0)
			return rc;
		if (has_no_lock_file(lock_fd))
			return PLFS(plfs_refresh(o->file));
	}
	if (lock_fd < 0)
		return lock_fd;
	if (!asks && l.l_type == F_WRLCK && !is_plain) {
		int64_t rc = wait_for_readers(fd, command, &l);
		if (rc < 0)
			return rc;
	}
	if (of_process)
		atomic_store(&record_locks_used, 1);
	if (of_process && is_plain)
		atomic_store(&plain_locks_used, 1);
	/* libc's fcntl and not a raw call: waiting for a lock is a cancellation point. */
	int rc = REAL(fcntl)(lock_fd, command, &l), error = errno;
	if (locks_name)
		unlock_name(fd, &named);
	if (rc < 0)
		return -error;
	if (asks) {
		if (l.l_type == F_UNLCK && named.l_type == F_WRLCK && !is_plain &&
			name_is_locked(fd, &named))
			l = named;
		*lock = l;
		return 0;
	}
	return l.l_type == F_UNLCK ? 0 : PLFS(plfs_refresh(o->file));
}

/* --- Other processes ---
 *
 * A record lock outlives an exec if its descriptor does, and one of an open file description is the
 * description's in all processes. Both are locks of the lock file, so that is left open, too: the
 * new program finds by the kernel's position of it, which has no other use, whose it is. So is the
 * description of a plain file that got a container, in whose place a placeholder has come
 * (hand_over.c): it has the locks of flock, and is open for writing, as no placeholder is. */

/* Where the position is if it has the locks of the process. Else it is the description's tag, or,
 * of one whose placeholder has none, this and its number in the new program. */
#define LOCKS_OF_PROCESS (PLACEHOLDER_POSITION - 1)
#define LOCKS_OF_NUMBER ((int64_t)1 << 39)

/* Who starts programs at this moment. */
static int passing;

/* What the processes that come to share descriptions shall share of their locks is opened before. A
 * plain file that they can write stays plain: if it got a container after that, each would open a
 * lock file of its own. Not for who has no such locks: most have none, and it is a file more. */
void locks_before_fork(void)
{
	bool are_used = atomic_load(&ofd_locks_used) && !door_thread.inside;
	int limit = are_used ? atomic_load(&fd_limit) : 0;
	for (int fd = 0; fd < limit; fd++) {
		struct ofd *o = ofd_get(fd);
		if (!o)
			continue;
		bool writes = (ofd_flags(o) & O_ACCMODE) != O_RDONLY;
		/* Others may have made it a container. */
		if (!writes && OFD_IS_PLAIN(o))
			PLFS(plfs_refresh(o->file));
		if (!o->is_packed && (writes || !OFD_IS_PLAIN(o)))
			PLFS(plfs_lock_fd(o->file));
		ofd_put(o);
	}
}

static void keep_open(int lock_fd, bool yes)
{
	if (lock_fd >= 0)
		RAW(SYS_fcntl, (long)lock_fd, (long)F_SETFD, (long)(yes ? 0 : FD_CLOEXEC));
}

/* Does exec close another descriptor of the file whose lock file this is? Then it drops the locks,
 * as a close does. */
static bool loses_locks(int lock_fd)
{
	int limit = atomic_load(&fd_limit);
	bool loses = false;
	for (int fd = 0; fd < limit && !loses; fd++) {
		struct ofd *o = container_at(fd);
		if (!o)
			continue;
		loses = (RAW(SYS_fcntl, (long)fd, (long)F_GETFD) & FD_CLOEXEC) &&
			PLFS(plfs_door_process_lock_fd(o->file, 0)) == lock_fd;
		ofd_put(o);
	}
	return loses;
}

static bool is_writable(int fd)
{
	long flags = RAW(SYS_fcntl, (long)fd, (long)F_GETFL);
	return flags >= 0 && !(flags & O_PATH) && (flags & O_ACCMODE) != O_RDONLY;
}

void flock_stays(void)
{
	atomic_store(&flocks_kept, 1);
}

/* What has the locks of flock of o in the place of its number, or -1. */
static int flock_fd(struct ofd *o)
{
	int fd = atomic_load(&flocks_kept) ? PLFS(plfs_door_flock_fd(o->file)) : -1;
	return fd >= 0 && is_writable(fd) && atomic_load(&o->shared->is_replaced) ? fd : -1;
}

static bool locks_are_shared(void)
{
	return atomic_load(&ofd_locks_used) || atomic_load(&flocks_kept);
}

static bool say_number(int lock_fd, int number)
{
	int64_t at = LOCKS_OF_NUMBER + number;
	return RAW(SYS_lseek, (long)lock_fd, at, (long)SEEK_SET) == at;
}

void lock_pass(int fd, int as)
{
	struct ofd *o = locks_are_shared() ? container_at(fd) : NULL;
	if (!o)
		return;
	int kept = PLFS(plfs_door_kept_lock_fd(o->file)), of_flock = flock_fd(o);
	bool has_tag = atomic_load(&o->shared->position) != POSITION_IN_KERNEL;
	if (kept >= 0 &&
		((has_tag && description_tag_lock(o->shared, kept)) || say_number(kept, as)))
		keep_open(kept, true);
	if (of_flock >= 0 && description_tag_lock(o->shared, of_flock))
		keep_open(of_flock, true);
	ofd_put(o);
}

/* No child has those of the process. */
static void pass_of_process(struct ofd *o)
{
	int lock_fd = PLFS(plfs_door_process_lock_fd(o->file, 0));
	if (lock_fd >= 0 && !loses_locks(lock_fd) &&
		RAW(SYS_lseek, (long)lock_fd, LOCKS_OF_PROCESS, (long)SEEK_SET) == LOCKS_OF_PROCESS)
		keep_open(lock_fd, true);
}

void locks_pass(enum shared shared)
{
	fd_lock();
	passing++;
	fd_unlock();
	int limit = locks_are_used() || locks_are_shared() ? atomic_load(&fd_limit) : 0;
	for (int fd = 0; fd < limit; fd++) {
		struct ofd *o = container_at(fd);
		if (!o)
			continue;
		if (!(RAW(SYS_fcntl, (long)fd, (long)F_GETFD) & FD_CLOEXEC)) {
			lock_pass(fd, fd);
			if (shared == SHARED_BY_EXEC)
				pass_of_process(o);
		}
		ofd_put(o);
	}
}

void locks_passed(void)
{
	fd_lock();
	bool are_used = --passing == 0 && (locks_are_used() || locks_are_shared());
	fd_unlock();
	int limit = are_used ? atomic_load(&fd_limit) : 0;
	for (int fd = 0; fd < limit; fd++) {
		struct ofd *o = container_at(fd);
		if (!o)
			continue;
		keep_open(PLFS(plfs_door_kept_lock_fd(o->file)), false);
		keep_open(flock_fd(o), false);
		keep_open(PLFS(plfs_door_process_lock_fd(o->file, 0)), false);
		ofd_put(o);
	}
}

void locks_after_fork_in_child(void)
{
	passing = 0;
}

static bool is_flock_fd(int fd)
{
	struct description *d = is_writable(fd) ? description_of(fd) : NULL;
	return d && atomic_load(&d->is_replaced);
}

static bool is_of_number(int64_t at)
{
	return at >= LOCKS_OF_NUMBER && at < LOCKS_OF_NUMBER + FD_TABLE_LEN;
}

bool lock_may_be_passed(int fd)
{
	char link[FD_PATH_ROOM];
	int64_t at = RAW(SYS_lseek, (long)fd, 0L, (long)SEEK_CUR);
	if (at != LOCKS_OF_PROCESS && !is_of_number(at) && !description_is_tagged(fd))
		return false;
	if (is_flock_fd(fd))
		return true;
	fd_path(link, fd);
	ROOM(path);
	long n = path ? RAW(SYS_readlinkat, AT_FDCWD, link, path, (long)PATH_MAX) : 0;
	return n > 5 && memcmp(path + n - 5, "/lock", 5) == 0 && memmem(path, n, "/.plfs/", 7);
}

void lock_adopt(int lock_fd)
{
	if (!lock_may_be_passed(lock_fd))
		return;
	int64_t at = RAW(SYS_lseek, (long)lock_fd, 0L, (long)SEEK_CUR);
	bool of_process = at == LOCKS_OF_PROCESS, is_flock = is_flock_fd(lock_fd), found = false;
	int limit = atomic_load(&fd_limit);
	for (int fd = 0; fd < limit && !found; fd++) {
		struct ofd *o = container_at(fd);
		if (!o)
			continue;
		if (of_process || at == LOCKS_OF_NUMBER + fd || description_tag_of(o->shared) == at)
			found = (is_flock ? PLFS(plfs_door_adopt_flock_fd(o->file, lock_fd))
					  : PLFS(plfs_door_adopt_lock_fd(
						    o->file, lock_fd, of_process))) == 1;
		ofd_put(o);
	}
	if (!found)
		RAW(SYS_close, (long)lock_fd);
	else
		atomic_store(is_flock	  ? &flocks_kept
			     : of_process ? &record_locks_used
					  : &ofd_locks_used,
			1);
}

static int64_t set_status_flags(struct ofd *o, int fd, int flags)
{
	/* O_DIRECT concerns the alignment of buffers, which libplfs does not need; the
	 * placeholder's file system might refuse it. */
	bool plain = OFD_IS_PLAIN(o);
	if (plain && (flags & O_APPEND))
		PLFS(plfs_door_pin(o->file, "opened with O_APPEND"));
	if (REAL(fcntl)(fd, F_SETFL, plain ? flags : flags & ~O_DIRECT) < 0)
		return -errno;
	ofd_set_flags(o, flags);
	return 0;
}

/* The flags that have a name in libc: what F_GETFL gives beside them is O_LARGEFILE, which the
 * kernel adds to each open of a program with 64 bits, and which has none there. */
#define NAMED_FLAGS \
	(O_ACCMODE | O_CREAT | O_EXCL | O_NOCTTY | O_TRUNC | O_APPEND | O_NONBLOCK | O_SYNC | \
		O_DSYNC | O_ASYNC | O_DIRECT | O_DIRECTORY | O_NOFOLLOW | O_NOATIME | O_CLOEXEC | \
		O_PATH | O_TMPFILE)

static int64_t status_flags(struct ofd *o, int fd)
{
	ofd_learn_flags(o, fd);
	int in_kernel = REAL(fcntl)(fd, F_GETFL);
	return in_kernel < 0 ? -errno : ofd_flags(o) | (in_kernel & ~NAMED_FLAGS);
}

EXPORT int fcntl(int fd, int command, ...)
{
	va_list ap;
	va_start(ap, command);
	void *argument = va_arg(ap, void *);
	va_end(ap);

	struct ofd *o;
	bool of_flags = command == F_GETFL || command == F_SETFL || command == F_GETFD ||
			command == F_SETFD;
	/* Of a file that it has inherited plain, too, which is in no entry. */
	if ((command == F_SETLK || command == F_SETLKW) && !door_thread.inside)
		door_lend_numbers();
	/* Of any file. */
	if ((command == F_OFD_SETLK || command == F_OFD_SETLKW) && !door_thread.inside)
		ofd_locks_begin();
	if (!fd_is_container(fd) || door_thread.inside ||
		(of_flags && (fd_is_reader(fd) || (command != F_SETFL && fd_is_writer(fd)))))
		return REAL(fcntl)(fd, command, argument);
	if (command == F_DUPFD || command == F_DUPFD_CLOEXEC)
		return door_dup_at_least(fd, command, (int)(intptr_t)argument);
	if (!(o = ofd_get(fd)))
		return REAL(fcntl)(fd, command, argument);

	int64_t rc;
	switch (command) {
	case F_GETFL:
		rc = status_flags(o, fd);
		break;
	case F_SETFL:
		rc = set_status_flags(o, fd, (int)(intptr_t)argument);
		break;
	case F_SETFD:
		/* Who puts a placeholder there keeps it. */
		fd_hold_numbers();
		rc = REAL(fcntl)(fd, command, argument) < 0 ? -errno : 0;
		fd_release_numbers();
		break;
	case F_GETLK:
	case F_SETLK:
	case F_SETLKW:
	case F_OFD_GETLK:
	case F_OFD_SETLK:
	case F_OFD_SETLKW:
		rc = record_lock(o, fd, command, argument);
		break;
	case F_SETLEASE:
		/* As where others have the file open: nobody would break it. */
		rc = (intptr_t)argument == F_RDLCK || (intptr_t)argument == F_WRLCK ||
				     (intptr_t)argument == F_UNLCK
			     ? -EAGAIN
			     : -EINVAL;
		break;
	case F_ADD_SEALS:
	case F_GET_SEALS:
		/* The placeholder is memory, which can have them. */
		if (!OFD_IS_PLAIN(o)) {
			rc = -EINVAL;
			break;
		}
		__attribute__((fallthrough));
	default:
		rc = REAL(fcntl)(fd, command, argument);
		if (rc < 0)
			rc = -errno;
	}
	ofd_put(o);
	return (int)to_errno(rc);
}
ALIAS(fcntl, fcntl64);
ALIAS(fcntl, __fcntl);

EXPORT int lockf(int fd, int command, off_t len)
{
	if (!fd_is_container(fd)) {
		door_lend_numbers();
		return REAL(lockf)(fd, command, len);
	}
	/* As glibc does, which asks whether it could be read. */
	short type = command == F_TEST ? F_RDLCK : F_WRLCK;
	struct flock lock = {.l_type = type, .l_whence = SEEK_CUR, .l_len = len};
	switch (command) {
	case F_ULOCK:
		lock.l_type = F_UNLCK;
		return fcntl(fd, F_SETLK, &lock);
	case F_LOCK:
		return fcntl(fd, F_SETLKW, &lock);
	case F_TLOCK:
		return fcntl(fd, F_SETLK, &lock);
	case F_TEST:
		if (fcntl(fd, F_GETLK, &lock) < 0)
			return -1;
		if (lock.l_type == F_UNLCK || lock.l_pid == getpid())
			return 0;
		errno = EACCES;
		return -1;
	}
	errno = EINVAL;
	return -1;
}
ALIAS(lockf, lockf64);

EXPORT int flock(int fd, int operation)
{
	struct ofd *o;
	if (!fd_is_container(fd) || door_thread.inside || !(o = ofd_get(fd)))
		return REAL(flock)(fd, operation);
	if (o->is_packed) {
		/* Its inode is that of all files of the pack. */
		ofd_put(o);
		errno = ENOLCK;
		return -1;
	}
	bool unlocks = (operation & ~LOCK_NB) == LOCK_UN;
	int kept = flock_fd(o), lock_fd = kept >= 0 ? kept : fd;
	int64_t rc = unlocks ? PLFS(plfs_commit(o->file)) : 0;
	if (rc >= 0 && REAL(flock)(lock_fd, operation) < 0)
		rc = -errno;
	if (rc >= 0 && !unlocks)
		rc = PLFS(plfs_refresh(o->file));
	ofd_put(o);
	return (int)to_errno(rc);
}

static int64_t container_ioctl(struct ofd *o, int fd, unsigned long request, void *argument)
{
	int64_t rc;
	switch (request) {
	case FIOCLEX:
	case FIONCLEX:
		fd_hold_numbers();
		rc = REAL(ioctl)(fd, request, argument) < 0 ? -errno : 0;
		fd_release_numbers();
		return rc;
	case FIONBIO:
	case FIOASYNC:
		return REAL(ioctl)(fd, request, argument) < 0 ? -errno : 0;
	case FIONREAD: {
		int64_t end = PLFS(plfs_door_seek(o->file, 0, 0, SEEK_END)),
			at = ofd_position(o, fd);
		if (end < 0 || at < 0)
			return end < 0 ? end : at;
		if (!memory_is_there(argument, sizeof(int), true))
			return -EFAULT;
		*(int *)argument = end - at > INT32_MAX ? INT32_MAX
							: (int)(end > at ? end - at : 0);
		return 0;
	}
	case FICLONE:
	case FICLONERANGE:
	case FIDEDUPERANGE:
		return -EOPNOTSUPP;
	default:
		return -ENOTTY;
	}
}

EXPORT int ioctl(int fd, unsigned long request, ...)
{
	va_list ap;
	va_start(ap, request);
	void *argument = va_arg(ap, void *);
	va_end(ap);

	/* The argument holds the source of a clone, too. Cloning a placeholder would copy the
	 * superblock. */
	int source = -1;
	if (request == FICLONE)
		source = (int)(intptr_t)argument;
	else if (request == FICLONERANGE && argument)
		source = (int)((struct file_clone_range *)argument)->src_fd;
	struct ofd *from = !door_thread.inside && source >= 0 && !fd_is_reader(source)
				   ? ofd_get(source)
				   : NULL;
	if (from) {
		bool plain = OFD_IS_PLAIN(from);
		ofd_put(from);
		if (!plain) {
			errno = EOPNOTSUPP;
			return -1;
		}
	}
	struct ofd *o;
	if (!fd_is_container(fd) || door_thread.inside ||
		(fd_is_marked(fd) && source < 0 && request != FIONREAD) || !(o = ofd_get(fd)))
		return REAL(ioctl)(fd, request, argument);
	/* The position of a plain file is kept here, too. */
	if (request != FIONREAD && OFD_IS_PLAIN(o)) {
		int done = REAL(ioctl)(fd, request, argument), saved = errno;
		/* Nobody has noted what a clone wrote. Most file systems cannot. */
		if (source >= 0 && done == 0)
			PLFS(plfs_door_pin(o->file, "written by a clone"));
		ofd_put(o);
		errno = saved;
		return done;
	}
	int64_t rc = container_ioctl(o, fd, request, argument);
	ofd_put(o);
	return (int)to_errno(rc);
}
