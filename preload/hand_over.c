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

void make_nothing(int fd)
{
	int nothing = (int)RAW(SYS_openat, (long)AT_FDCWD, "/", (long)(O_PATH | O_CLOEXEC), 0L);
	if (nothing < 0)
		return;
	RAW(SYS_dup3, (long)nothing, (long)fd, (long)O_CLOEXEC);
	RAW(SYS_close, (long)nothing);
}

/* What hinders others than a want of descriptors does not hinder who gets the file. */
static int want_of_descriptors(int rc)
{
	return rc == -EMFILE || rc == -ENFILE ? rc : 0;
}

int hand_over(int fd, struct ofd *o, const char *why)
{
	DEFER_SIGNALS();
	int rc = 0;
	if ((ofd_flags(o) & O_ACCMODE) == O_RDONLY)
		return 0;
	if (OFD_IS_PLAIN(o) && (rc = PLFS(plfs_door_pin(o->file, why))) == 1)
		return 0;
	if (OFD_IS_PLAIN(o) || (RAW(SYS_fcntl, (long)fd, (long)F_GETFL) & O_ACCMODE) == O_RDONLY)
		return want_of_descriptors(rc);
	bool is_own = door_own(o, fd) >= 0;
	/* The position was in the descriptor that goes. */
	description_lock(o->shared);
	fd_hold_numbers();
	int64_t at = atomic_load(&o->shared->position);
	if (at == POSITION_IN_KERNEL)
		at = RAW(SYS_lseek, (long)fd, 0L, (long)SEEK_CUR);
	rc = fd_is_at(fd, o) ? make_placeholder(fd) : -EBADF;
	if (rc == 0 && at >= 0) {
		RAW(SYS_lseek, (long)fd, PLACEHOLDER_POSITION, (long)SEEK_SET);
		atomic_store(&o->shared->is_replaced, true);
		atomic_store(&o->shared->position, at);
		/* Locks of flock are the description's, which may be others' as well. */
		if (is_own)
			flock_stays();
	}
	fd_release_numbers();
	description_unlock(o->shared);
	return want_of_descriptors(rc);
}

int hand_over_all(enum shared shared, const char *why)
{
	int limit = atomic_load(&fd_limit), failed = 0;
	for (int fd = 0; fd < limit; fd++) {
		struct ofd *o = fd_is_reader(fd) ? NULL : ofd_get(fd);
		if (!o)
			continue;
		int rc = 0;
		if (shared == SHARED_ALL || !(RAW(SYS_fcntl, (long)fd, (long)F_GETFD) & FD_CLOEXEC))
			rc = hand_over(fd, o, why);
		failed = failed ? failed : rc;
		ofd_put(o);
	}
	return failed;
}

/* --- Descriptors in messages --- */

/* Which descriptor of a message comes next. */
struct sent {
	struct msghdr *message;
	struct cmsghdr *c;
	size_t i;
};

static struct sent first_sent(const struct msghdr *message)
{
	struct sent s = {NULL, NULL, 0};
	int saved = errno;
	/* What is no memory the kernel says. */
	if (!door_thread.inside && message && memory_is_there(message, sizeof *message, false) &&
		message->msg_control &&
		memory_is_there(message->msg_control, message->msg_controllen, false)) {
		s.message = (struct msghdr *)message;
		s.c = CMSG_FIRSTHDR(s.message);
	}
	errno = saved;
	return s;
}

static int *next_sent(struct sent *s)
{
	for (; s->c; s->c = CMSG_NXTHDR(s->message, s->c), s->i = 0) {
		const char *end = (char *)s->message->msg_control + s->message->msg_controllen;
		/* The kernel refuses such a message. */
		if (s->c->cmsg_len < CMSG_LEN(0) || s->c->cmsg_len > (size_t)(end - (char *)s->c))
			return NULL;
		if (s->c->cmsg_level == SOL_SOCKET && s->c->cmsg_type == SCM_RIGHTS &&
			s->i < (s->c->cmsg_len - CMSG_LEN(0)) / sizeof(int))
			return (int *)CMSG_DATA(s->c) + s->i++;
	}
	return NULL;
}

/* Who gets fd shares its position with us: by the kernel, as he does not have our memory. And he
 * finds what was written. */
static int64_t send_descriptor(int fd)
{
	struct ofd *o = fd_is_container(fd) && !fd_is_reader(fd) ? ofd_get(fd) : NULL;
	if (!o)
		return 0;
	DEFER_SIGNALS();
	int64_t rc = hand_over(fd, o, "sent to another program");
	if (rc == 0)
		rc = PLFS(plfs_commit(o->file));
	description_lock(o->shared);
	if (rc == 0)
		rc = o->is_packed ? fd_pass_packed(fd, o) : fd_give_position(fd, o);
	description_unlock(o->shared);
	ofd_put(o);
	return rc;
}

static int64_t send_descriptors(const struct msghdr *message)
{
	int saved = errno, *fd;
	int64_t rc = 0;
	for (struct sent s = first_sent(message); rc == 0 && (fd = next_sent(&s));)
		rc = send_descriptor(*fd);
	errno = saved;
	return rc;
}

EXPORT ssize_t sendmsg(int socket, const struct msghdr *message, int flags)
{
	int64_t rc = atomic_load(&fd_limit) > 0 ? send_descriptors(message) : 0;
	return rc < 0 ? (ssize_t)to_errno(rc) : REAL(sendmsg)(socket, message, flags);
}

EXPORT int sendmmsg(int socket, struct mmsghdr *messages, unsigned count, int flags)
{
	for (unsigned i = 0; atomic_load(&fd_limit) > 0 && messages && i < count; i++) {
		if (!memory_is_there(&messages[i], sizeof *messages, false))
			break;
		int64_t rc = send_descriptors(&messages[i].msg_hdr);
		/* Those before it are sent. */
		if (rc < 0 && i == 0)
			return (int)to_errno(rc);
		count = rc < 0 ? i : count;
	}
	return REAL(sendmmsg)(socket, messages, count, flags);
}

/* There is no descriptor for what came at *first. As the kernel has it for a full table, it and
 * those behind it are closed, and the message says so. */
static void cut_message(struct sent s, int *first)
{
	struct cmsghdr *c = s.c;
	size_t kept = s.i - 1;
	for (int *fd = first; fd; fd = next_sent(&s))
		RAW(SYS_close, (long)*fd);
	c->cmsg_len = CMSG_LEN(kept * sizeof(int));
	char *end = kept > 0 ? (char *)c + CMSG_SPACE(kept * sizeof(int)) : (char *)c;
	s.message->msg_controllen = (size_t)(end - (char *)s.message->msg_control);
	s.message->msg_flags |= MSG_CTRUNC;
}

static void receive_descriptors(struct msghdr *message)
{
	int saved = errno, *fd;
	for (struct sent s = first_sent(message); (fd = next_sent(&s));) {
		DEFER_SIGNALS();
		door_forget(*fd);
		if (adopt_passed(*fd) < 0) {
			cut_message(s, fd);
			break;
		}
	}
	errno = saved;
}

EXPORT ssize_t recvmsg(int socket, struct msghdr *message, int flags)
{
	ssize_t n = REAL(recvmsg)(socket, message, flags);
	if (n >= 0)
		receive_descriptors(message);
	return n;
}

EXPORT int recvmmsg(
	int socket, struct mmsghdr *messages, unsigned count, int flags, struct timespec *limit)
{
	int n = REAL(recvmmsg)(socket, messages, count, flags, limit);
	for (int i = 0; i < n; i++)
		receive_descriptors(&messages[i].msg_hdr);
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
