/* Plain files that somebody writes whom PLFS does not see: another program that inherits or is sent
 * a descriptor, or the kernel by itself (libaio, io_uring).
 *
 * A file that is plain is pinned: it stays so for ever. One that has got a container meanwhile has
 * a descriptor that can write its base, below all logs, where nobody would find it. That is
 * replaced by a placeholder, as every descriptor on a container is one: who writes there gets
 * EBADF. */
#include "door.h"

#include <dlfcn.h>
#include <string.h>
#include <sys/socket.h>

/* The kernel writes for this program by itself. */
static _Atomic bool writes_unseen;

int make_placeholder(int fd)
{
	char name[FD_PATH_ROOM];
	fd_path(name, fd);
	int flags = (int)RAW(SYS_fcntl, (long)fd, (long)F_GETFL);
	int close = (int)RAW(SYS_fcntl, (long)fd, (long)F_GETFD) & FD_CLOEXEC ? O_CLOEXEC : 0;
	flags = O_RDONLY | O_CLOEXEC | (flags & (O_APPEND | O_NONBLOCK));
	int reader = (int)RAW(SYS_openat, (long)AT_FDCWD, name, (long)flags, 0L);
	/* A file that may not be read: this one can do nothing at all. */
	if (reader < 0)
		reader = (int)RAW(SYS_openat, (long)AT_FDCWD, name, (long)(O_PATH | O_CLOEXEC), 0L);
	if (reader < 0)
		return -errno;
	int rc = (int)RAW(SYS_dup3, (long)reader, (long)fd, (long)close);
	RAW(SYS_close, (long)reader);
	return rc < 0 ? -errno : 0;
}

void hand_over(int fd, struct ofd *o, const char *why)
{
	DEFER_SIGNALS();
	if ((ofd_flags(o) & O_ACCMODE) == O_RDONLY)
		return;
	if (OFD_IS_PLAIN(o) && PLFS(plfs_door_pin(o->file, why)) == 1)
		return;
	if (OFD_IS_PLAIN(o) || (RAW(SYS_fcntl, (long)fd, (long)F_GETFL) & O_ACCMODE) == O_RDONLY)
		return;
	/* Locks of flock are the description's, which may be others' as well. */
	if (door_own(o, fd) >= 0)
		flock_stays();
	/* The position was in the descriptor that goes. */
	description_lock(o->shared);
	fd_hold_numbers();
	int64_t at = atomic_load(&o->shared->position);
	if (at == POSITION_IN_KERNEL)
		at = RAW(SYS_lseek, (long)fd, 0L, (long)SEEK_CUR);
	if (fd_is_at(fd, o) && make_placeholder(fd) == 0 && at >= 0) {
		atomic_store(&o->shared->is_replaced, true);
		atomic_store(&o->shared->position, at);
	}
	fd_release_numbers();
	description_unlock(o->shared);
}

void hand_over_all(enum shared shared, const char *why)
{
	int limit = atomic_load(&fd_limit);
	for (int fd = 0; fd < limit; fd++) {
		struct ofd *o = fd_is_reader(fd) ? NULL : ofd_get(fd);
		if (!o)
			continue;
		if (shared == SHARED_ALL || !(RAW(SYS_fcntl, (long)fd, (long)F_GETFD) & FD_CLOEXEC))
			hand_over(fd, o, why);
		ofd_put(o);
	}
}

/* --- Descriptors in messages --- */

/* Calls `call` for each descriptor that goes with a message, until one fails. Gives its error, a
 * negative errno, or 0, also where there is no memory: the kernel says so. */
static int64_t for_each_sent(const struct msghdr *message, int64_t (*call)(int))
{
	if (door_thread.inside || !message || !memory_is_there(message, sizeof *message, false) ||
		!message->msg_control ||
		!memory_is_there(message->msg_control, message->msg_controllen, false))
		return 0;
	int saved = errno;
	int64_t rc = 0;
	struct msghdr *all = (struct msghdr *)message;
	const char *end = (char *)all->msg_control + all->msg_controllen;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(all); c && rc == 0; c = CMSG_NXTHDR(all, c)) {
		/* The kernel refuses such a message. */
		if (c->cmsg_len < CMSG_LEN(0) || c->cmsg_len > (size_t)(end - (char *)c))
			break;
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < count && rc == 0; i++) {
			int fd;
			memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
			rc = call(fd);
		}
	}
	errno = saved;
	return rc;
}

/* Who gets fd shares its position with us: by the kernel, as he does not have our memory. And he
 * finds what was written. */
static int64_t send_descriptor(int fd)
{
	struct ofd *o = fd_is_container(fd) && !fd_is_reader(fd) ? ofd_get(fd) : NULL;
	if (!o)
		return 0;
	hand_over(fd, o, "sent to another program");
	DEFER_SIGNALS();
	int64_t rc = PLFS(plfs_commit(o->file));
	description_lock(o->shared);
	if (rc == 0 && o->is_packed)
		rc = fd_pass_packed(fd, o);
	else if (rc == 0)
		fd_give_position(fd, o);
	description_unlock(o->shared);
	ofd_put(o);
	return rc;
}

EXPORT ssize_t sendmsg(int socket, const struct msghdr *message, int flags)
{
	int64_t rc = atomic_load(&fd_limit) > 0 ? for_each_sent(message, send_descriptor) : 0;
	return rc < 0 ? (ssize_t)to_errno(rc) : REAL(sendmsg)(socket, message, flags);
}

EXPORT int sendmmsg(int socket, struct mmsghdr *messages, unsigned count, int flags)
{
	for (unsigned i = 0; atomic_load(&fd_limit) > 0 && messages && i < count; i++) {
		if (!memory_is_there(&messages[i], sizeof *messages, false))
			break;
		int64_t rc = for_each_sent(&messages[i].msg_hdr, send_descriptor);
		/* Those before it are sent. */
		if (rc < 0 && i == 0)
			return (int)to_errno(rc);
		count = rc < 0 ? i : count;
	}
	return REAL(sendmmsg)(socket, messages, count, flags);
}

static int64_t receive_descriptor(int fd)
{
	DEFER_SIGNALS();
	door_forget(fd);
	adopt_passed(fd);
	return 0;
}

EXPORT ssize_t recvmsg(int socket, struct msghdr *message, int flags)
{
	ssize_t n = REAL(recvmsg)(socket, message, flags);
	if (n >= 0)
		for_each_sent(message, receive_descriptor);
	return n;
}

EXPORT int recvmmsg(
	int socket, struct mmsghdr *messages, unsigned count, int flags, struct timespec *limit)
{
	int n = REAL(recvmmsg)(socket, messages, count, flags, limit);
	for (int i = 0; i < n; i++)
		for_each_sent(&messages[i].msg_hdr, receive_descriptor);
	return n;
}

/* --- The kernel as a writer --- */

void kernel_writes(void)
{
	static _Atomic bool done;
	if (door_thread.inside || atomic_load(&done))
		return;
	int saved = errno;
	atomic_store(&writes_unseen, true);
	/* Who comes at the same time does it, too. */
	hand_over_all(SHARED_ALL, "written by libaio or io_uring");
	atomic_store(&done, true);
	errno = saved;
}

bool kernel_is_writer(void)
{
	return atomic_load(&writes_unseen);
}

void hand_over_new(int fd, struct ofd *o)
{
	if (kernel_is_writer())
		hand_over(fd, o, "written by libaio or io_uring");
}

/* libaio's, as it is. */
EXPORT int io_setup(int events, void *context)
{
	kernel_writes();
	return RAW(SYS_io_setup, (long)events, context) < 0 ? -errno : 0;
}

/* A function of liburing, which may be loaded where only its user sees it. */
static void *of_liburing(const char *name)
{
	void *found = dlsym(RTLD_NEXT, name);
	void *library = found ? NULL : dlopen("liburing.so.2", RTLD_LAZY | RTLD_NOLOAD);
	return library ? dlsym(library, name) : found;
}

#define URING(name, declared, given) \
	EXPORT int name declared \
	{ \
		kernel_writes(); \
		int(*theirs) declared = (int(*) declared)of_liburing(#name); \
		return theirs ? theirs given : -ENOSYS; \
	}

URING(io_uring_queue_init, (unsigned entries, void *ring, unsigned flags), (entries, ring, flags))
URING(io_uring_queue_init_params, (unsigned entries, void *ring, void *params),
	(entries, ring, params))
URING(io_uring_queue_init_mem,
	(unsigned entries, void *ring, void *params, void *memory, size_t bytes),
	(entries, ring, params, memory, bytes))
