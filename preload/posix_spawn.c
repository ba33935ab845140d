/* posix_spawn, its file actions, and the child that does those that are PLFS's. */
#include "exec.h"

#include <linux/sched.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

/* posix_spawn runs its file actions inside libc, on kernel descriptors; for placeholders that is
 * right. Only an open of one of our paths is not: it would create a plain file or truncate a
 * superblock. libc's list of actions cannot be read, so we keep our own beside it. If it holds such
 * an open, the child is ours instead of libc's: see start_ours.
 *
 * The key is where libc has its list, which a copy of the program's structure has as well: who
 * returns one by value, or moves it, goes on with another structure. */
enum action_kind {
	ADD_OPEN,
	ADD_CLOSE,
	ADD_DUP2,
	ADD_CHDIR,
	ADD_FCHDIR,
	ADD_CLOSEFROM,
	ADD_TCSETPGRP
};

struct action {
	enum action_kind kind;
	int fd, to, flags;
	mode_t mode;
	char *path;
};

struct actions {
	const void *key;
	struct action *v;
	int n;
	struct actions *next;
};

static pthread_mutex_t actions_lock = PTHREAD_MUTEX_INITIALIZER;
static struct actions *all_actions;

void spawn_lock(void)
{
	signals_defer();
	pthread_mutex_lock(&actions_lock);
}

void spawn_unlock(void)
{
	pthread_mutex_unlock(&actions_lock);
	signals_resume();
}

/* The list of `fa`; the lock is held. */
static struct actions *find_actions(const posix_spawn_file_actions_t *fa)
{
	struct actions *a = fa && fa->__actions ? all_actions : NULL;
	while (a && a->key != fa->__actions)
		a = a->next;
	return a;
}

EXPORT int posix_spawn_file_actions_destroy(posix_spawn_file_actions_t *fa)
{
	spawn_lock();
	struct actions *a = find_actions(fa);
	for (struct actions **p = &all_actions; a && *p; p = &(*p)->next)
		if (*p == a) {
			*p = a->next;
			for (int i = 0; i < a->n; i++)
				free(a->v[i].path);
			free(a->v);
			free(a);
			break;
		}
	int rc = REAL(posix_spawn_file_actions_destroy)(fa);
	spawn_unlock();
	return rc;
}

/* Notes an action that libc has accepted: an errno. */
static int note_action(
	struct actions *a, const posix_spawn_file_actions_t *fa, const struct action *action)
{
	if (!a) {
		a = calloc(1, sizeof *a);
		if (!a)
			return ENOMEM;
		a->next = all_actions;
		all_actions = a;
	}
	a->key = fa->__actions;
	struct action *v = realloc(a->v, (size_t)(a->n + 1) * sizeof *v);
	if (!v)
		return ENOMEM;
	a->v = v;
	char *path = action->path ? strdup(action->path) : NULL;
	v[a->n] = *action;
	v[a->n++].path = path;
	return action->path && !path ? ENOMEM : 0;
}

/* What libc's call `add` gives, which adds an action to `fa`. With the lock: libc may move its
 * list, and another one may come to lie where it was. */
#define ADD(fa, add, ...) \
	({ \
		spawn_lock(); \
		struct actions *list_ = find_actions(fa); \
		int rc_ = add; \
		rc_ = rc_ ? rc_ : note_action(list_, fa, &(struct action){__VA_ARGS__}); \
		spawn_unlock(); \
		rc_; \
	})

EXPORT int posix_spawn_file_actions_addopen(posix_spawn_file_actions_t *restrict fa, int fd,
	const char *restrict path, int flags, mode_t mode)
{
	return ADD(fa, REAL(posix_spawn_file_actions_addopen)(fa, fd, path, flags, mode), ADD_OPEN,
		fd, -1, flags, mode, (char *)path);
}

EXPORT int posix_spawn_file_actions_addclose(posix_spawn_file_actions_t *fa, int fd)
{
	return ADD(
		fa, REAL(posix_spawn_file_actions_addclose)(fa, fd), .kind = ADD_CLOSE, .fd = fd);
}

EXPORT int posix_spawn_file_actions_adddup2(posix_spawn_file_actions_t *fa, int fd, int to)
{
	return ADD(fa, REAL(posix_spawn_file_actions_adddup2)(fa, fd, to), .kind = ADD_DUP2,
		.fd = fd, .to = to);
}

EXPORT int posix_spawn_file_actions_addchdir_np(
	posix_spawn_file_actions_t *restrict fa, const char *restrict path)
{
	before_name(AT_FDCWD, path, PLFS_NAMES_DIR);
	return ADD(fa, REAL(posix_spawn_file_actions_addchdir_np)(fa, path), .kind = ADD_CHDIR,
		.path = (char *)path);
}

EXPORT int posix_spawn_file_actions_addfchdir_np(posix_spawn_file_actions_t *fa, int fd)
{
	return ADD(fa, REAL(posix_spawn_file_actions_addfchdir_np)(fa, fd), .kind = ADD_FCHDIR,
		.fd = fd);
}

EXPORT int posix_spawn_file_actions_addclosefrom_np(posix_spawn_file_actions_t *fa, int fd)
{
	return ADD(fa, REAL(posix_spawn_file_actions_addclosefrom_np)(fa, fd),
		.kind = ADD_CLOSEFROM, .fd = fd);
}

EXPORT int posix_spawn_file_actions_addtcsetpgrp_np(posix_spawn_file_actions_t *fa, int fd)
{
	return ADD(fa, REAL(posix_spawn_file_actions_addtcsetpgrp_np)(fa, fd),
		.kind = ADD_TCSETPGRP, .fd = fd);
}

/* Descriptors that the child is to have get numbers from here on, if there are such. */
#define SPAWN_FD_LEAST 200

static bool is_named(const struct actions *a, int fd)
{
	for (int i = 0; a && i < a->n; i++)
		if (a->v[i].fd == fd || a->v[i].to == fd)
			return true;
	return false;
}

/* Gives fd another number, which no action has, so that none finds it there or puts something else
 * in its place. Returns it, or -1 with fd closed. It is closed by exec. */
static int set_aside(const struct actions *a, int fd)
{
	int n = -1;
	for (int from = SPAWN_FD_LEAST; n < 0 && from >= 0; from -= SPAWN_FD_LEAST)
		for (long least = from;
			(n = (int)RAW(SYS_fcntl, (long)fd, (long)F_DUPFD_CLOEXEC, least)) >= 0;
			least = n + 1L) {
			if (!is_named(a, n))
				break;
			RAW(SYS_close, (long)n);
		}
	int saved = n < 0 ? EMFILE : errno;
	RAW(SYS_close, (long)fd);
	errno = saved;
	return n;
}

/* The descriptor of this process that action i has as fd, or -1. */
static int parents_number(const struct actions *a, int i, int fd)
{
	while (--i >= 0) {
		const struct action *x = &a->v[i];
		if (x->kind == ADD_DUP2 && x->to == fd)
			fd = x->fd;
		else if ((x->kind == ADD_CLOSEFROM && fd >= x->fd) ||
			 ((x->kind == ADD_OPEN || x->kind == ADD_CLOSE) && x->fd == fd))
			return -1;
	}
	return fd;
}

/* Action i is a change of the directory: *dir becomes where relative paths begin after it, as a
 * descriptor of this process that takes the place of the one before, or -1 if that cannot be known:
 * the child does not get there, or from a directory that the child itself opens. */
static void follow(const struct actions *a, int i, int *dir)
{
	const struct action *x = &a->v[i];
	__attribute__((cleanup(place_free))) struct place place = {0};
	const char *path = x->path;
	int from = path ? *dir : parents_number(a, i, x->fd);
	if (path && (*dir != -1 || *path == '/') &&
		place_next(&place, *dir, path, PLFS_PLACE_FOLLOW))
		path = place.at;
	int next = (int)RAW(SYS_openat, (long)from, path ? path : ".",
		(long)(O_PATH | O_DIRECTORY | O_CLOEXEC));
	if (*dir >= 0)
		RAW(SYS_close, (long)*dir);
	*dir = next < 0 ? -1 : set_aside(a, next);
}

/* Where the child is when it starts its program, as a descriptor that is to be closed, or AT_FDCWD
 * if that is where this process is; -1 if nobody knows. */
static int directory_after(const struct actions *a)
{
	int dir = AT_FDCWD;
	for (int i = 0; a && i < a->n; i++)
		if (a->v[i].kind == ADD_CHDIR || a->v[i].kind == ADD_FCHDIR)
			follow(a, i, &dir);
	return dir;
}

/* Descriptors that a call of posix_spawn has for itself: where the child is when it starts its
 * program (directory_after), the program if that is a copy in memory, this end of the socket
 * through which a child of ours asks, and what was opened for that. Who forks meanwhile in another
 * thread closes them in its child, which would otherwise have a number more, and keep a child of
 * ours waiting whose parent is gone. The lock guards the list and what is in it; nothing of libplfs
 * is called with it, because who forks has libplfs's gate before. */
struct own_fds {
	int dir, image, socket, *opened, opened_count;
	struct own_fds *next;
};
static struct own_fds *all_own_fds;

void spawn_after_fork_in_child(void)
{
	for (struct own_fds *own = all_own_fds; own; own = own->next) {
		int fds[] = {own->dir, own->image, own->socket};
		for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
			if (fds[i] >= 0)
				RAW(SYS_close, (long)fds[i]);
		for (int i = 0; i < own->opened_count; i++)
			door_close(own->opened[i]);
	}
	all_own_fds = NULL;
}

/* Closes one of them. */
static void own_close(int *fd)
{
	spawn_lock();
	if (*fd >= 0)
		RAW(SYS_close, (long)*fd);
	*fd = -1;
	spawn_unlock();
}

typedef int spawn_call(pid_t *restrict, const char *restrict,
	const posix_spawn_file_actions_t *restrict, const posix_spawnattr_t *restrict,
	char *const[restrict], char *const[restrict]);

/* A call of posix_spawn or posix_spawnp. */
struct start {
	spawn_call *call;
	pid_t *pid;
	const posix_spawn_file_actions_t *fa;
	const posix_spawnattr_t *attr;
	/* What `fa` holds. */
	const struct actions *actions;
	/* Is the child ours? */
	bool by_us;
	/* The errno of its exec, if it is known that there is no such program; else 0. */
	int no_program;
	struct own_fds *own;
};

/* Those that the child gets by dup2, whether exec would close them or not. */
static void pass_locks(const struct actions *a)
{
	for (int i = 0; a && i < a->n; i++)
		if (a->v[i].kind == ADD_DUP2)
			lock_pass(a->v[i].fd, a->v[i].to);
}

/* --- The child of a list with opens of ours --- */

/* What an action does, it does only if all before it, and the attributes, have succeeded: a file is
 * made or cut then, and the first failure is the caller's. So they happen where and when libc has
 * them happen, in the child and in order; but what only libplfs can do the child asks of its
 * parent, which waits for it, and gets as a descriptor in a message.
 *
 * The child has a copy of the memory, in which others may have held any lock, or the memory itself:
 * it makes system calls and nothing else. Handlers registered for fork do not run, as for libc's
 * child. */
struct child {
	const struct start *start;
	char *path;
	char *const *argv, *const *envp;
	/* Where it asks: no action has the number. And its parent's end. */
	int socket, parents;
	/* Of the program's thread. */
	uint64_t mask;
	/* Room for a path. */
	char *room;
	bool has_moved;
};

/* From the child: the number of an action, and what comes with it; or ENDS, and an errno. From the
 * parent: an errno, 0 and a descriptor, or BY_CHILD. */
struct note {
	int action, says;
};
#define ENDS (-1)
#define BY_CHILD (-1)

enum passes {
	PASSES_NOTHING,
	/* Where relative paths begin. */
	PASSES_DIRECTORY,
	/* The directory of a path like /proc/self/cwd/name: the process is the child. */
	PASSES_PARENT,
	/* What the path names, as /dev/fd/3: the number is the child's. */
	PASSES_FILE
};

struct letter {
	struct msghdr head;
	struct iovec text;
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(sizeof(int))];
	} passed;
};

static struct msghdr *address(struct letter *letter, struct note *note)
{
	memset(letter, 0, sizeof *letter);
	letter->text = (struct iovec){note, sizeof *note};
	letter->head = (struct msghdr){.msg_iov = &letter->text,
		.msg_iovlen = 1,
		.msg_control = letter->passed.room,
		.msg_controllen = sizeof letter->passed.room};
	return &letter->head;
}

/* The same with a descriptor; -1: none. */
static struct msghdr *address_with(struct letter *letter, struct note *note, int fd)
{
	struct msghdr *head = address(letter, note);
	if (fd < 0) {
		head->msg_control = NULL;
		head->msg_controllen = 0;
		return head;
	}
	struct cmsghdr *c = CMSG_FIRSTHDR(head);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof fd);
	memcpy(CMSG_DATA(c), &fd, sizeof fd);
	return head;
}

/* False: there is nobody at the other end. *fd is what came with the note, or -1. */
static bool receive(int socket, struct note *note, int flags, int *fd)
{
	struct letter letter;
	struct msghdr *head = address(&letter, note);
	long n;
	*fd = -1;
	while ((n = RAW(SYS_recvmsg, (long)socket, head, (long)flags)) < 0 && errno == EINTR)
		;
	struct cmsghdr *c = n > 0 ? CMSG_FIRSTHDR(head) : NULL;
	if (c && c->cmsg_len == CMSG_LEN(sizeof *fd))
		memcpy(fd, CMSG_DATA(c), sizeof *fd);
	return n == sizeof *note;
}

/* Does the path lead through what a process is, or has open, so that it is another one in another
 * process? Not by links. */
static bool is_of_process(const char *path)
{
	const char *name = strrchr(path, '/');
	bool is_there = strncmp(path, "/proc/", 6) == 0 || strncmp(path, "/dev/fd/", 8) == 0;
	return is_there && name[1] && name - path < PATH_MAX && path_descriptor(path) < 0;
}

/* The parent does action i, or says why it does not; BY_CHILD: it is for the child. A descriptor
 * that comes has O_CLOEXEC if `flags` has it. */
static int ask(const struct child *child, int i, int flags, int *fd)
{
	struct letter letter;
	struct note note = {i, PASSES_NOTHING};
	const char *path = child->start->actions->v[i].path;
	int here = -1, passed = path_descriptor(path);
	*fd = -1;
	bool is_of_child = is_of_process(path);
	if (is_of_child || (child->has_moved && *path != '/')) {
		size_t n = is_of_child ? (size_t)(strrchr(path, '/') - path) : 0;
		memcpy(child->room, path, n);
		memcpy(child->room + n, "/.", 3);
		passed = here = (int)RAW(SYS_openat, (long)AT_FDCWD, child->room + (n == 0),
			(long)(O_PATH | O_CLOEXEC));
		if (here < 0)
			return errno;
		note.says = is_of_child ? PASSES_PARENT : PASSES_DIRECTORY;
	} else if (passed >= 0) {
		if (RAW(SYS_fcntl, (long)passed, (long)F_GETFD) < 0)
			return BY_CHILD;
		note.says = PASSES_FILE;
	}
	bool is_sent = RAW(SYS_sendmsg, (long)child->socket, address_with(&letter, &note, passed),
			       (long)MSG_NOSIGNAL) == sizeof note;
	if (here >= 0)
		RAW(SYS_close, (long)here);
	int how = flags & O_CLOEXEC ? MSG_CMSG_CLOEXEC : 0;
	if (!is_sent || !receive(child->socket, &note, how, fd))
		return ECHILD;
	/* It came, and there is no number for it. */
	return note.says == 0 && *fd < 0 ? EMFILE : note.says;
}

/* An action of the child: 0, or an errno. They do what libc's do (sysdeps/unix/sysv/linux/spawni.c
 * of glibc). */
static int child_opens(const struct child *child, int i)
{
	const struct action *x = &child->start->actions->v[i];
	RAW(SYS_close, (long)x->fd);
	int fd, failed = ask(child, i, x->flags, &fd);
	if (failed == BY_CHILD) {
		fd = (int)RAW(SYS_openat, (long)AT_FDCWD, x->path, (long)x->flags, (long)x->mode);
		failed = fd < 0 ? errno : 0;
	}
	if (failed || fd == x->fd)
		return failed;
	if (RAW(SYS_dup3, (long)fd, (long)x->fd, 0L) < 0)
		return errno;
	return RAW(SYS_close, (long)fd) < 0 ? errno : 0;
}

/* Only of a number that there cannot be an error is one. */
static int child_closes(int fd)
{
	struct rlimit limit;
	if (RAW(SYS_close, (long)fd) == 0)
		return 0;
	int failed = errno;
	RAW(SYS_prlimit64, 0L, (long)RLIMIT_NOFILE, NULL, &limit);
	return fd < 0 || (unsigned)fd >= limit.rlim_cur ? failed : 0;
}

static int child_duplicates(int fd, int to)
{
	if (fd != to)
		return RAW(SYS_dup3, (long)fd, (long)to, 0L) < 0 ? errno : 0;
	long flags = RAW(SYS_fcntl, (long)fd, (long)F_GETFD);
	return flags < 0 || RAW(SYS_fcntl, (long)fd, (long)F_SETFD, flags & ~FD_CLOEXEC) < 0 ? errno
											     : 0;
}

static int child_moves(struct child *child, int i)
{
	const struct action *x = &child->start->actions->v[i];
	int fd = x->fd, failed = BY_CHILD;
	if (x->kind == ADD_CHDIR)
		failed = ask(child, i, O_CLOEXEC, &fd);
	if (failed == BY_CHILD && x->kind == ADD_CHDIR)
		failed = RAW(SYS_chdir, x->path) < 0 ? errno : 0;
	else if (failed == BY_CHILD || failed == 0)
		failed = RAW(SYS_fchdir, (long)fd) < 0 ? errno : 0;
	if (x->kind == ADD_CHDIR && fd >= 0)
		RAW(SYS_close, (long)fd);
	child->has_moved = true;
	return failed;
}

/* But for libplfs's: its own are closed by exec, and with the arenas the program finds the
 * descriptions that it inherits. Closing changes the directory while it is read, so it is read
 * until a pass closes nothing. */
static int child_closes_from(const struct child *child, int least)
{
	int dir = open_fd_paths(false);
	if (dir < 0)
		return errno;
	char buf[1024];
	long n;
	for (bool again = true; again;) {
		again = false;
		RAW(SYS_lseek, (long)dir, 0L, (long)SEEK_SET);
		while ((n = RAW(SYS_getdents64, (long)dir, buf, sizeof buf)) > 0)
			for (long at = 0; at < n;) {
				struct dirent64 *e = (struct dirent64 *)(buf + at);
				at += e->d_reclen;
				int fd = e->d_name[0] == '.' ? -1 : atoi(e->d_name);
				if (fd >= least && fd != dir && fd != child->socket &&
					fd != child->start->own->image && !fd_is_owned(fd) &&
					RAW(SYS_close, (long)fd) == 0)
					again = true;
			}
	}
	RAW(SYS_close, (long)dir);
	return 0;
}

static pid_t group_of(const posix_spawnattr_t *attr)
{
	short flags = 0;
	pid_t group = 0;
	if (attr && posix_spawnattr_getflags(attr, &flags) == 0 && (flags & POSIX_SPAWN_SETPGROUP))
		posix_spawnattr_getpgroup(attr, &group);
	return group;
}

static int child_does(struct child *child, int i)
{
	const struct action *x = &child->start->actions->v[i];
	switch (x->kind) {
	case ADD_OPEN:
		return child_opens(child, i);
	case ADD_CLOSE:
		return child_closes(x->fd);
	case ADD_DUP2:
		return child_duplicates(x->fd, x->to);
	case ADD_CHDIR:
	case ADD_FCHDIR:
		return child_moves(child, i);
	case ADD_CLOSEFROM:
		return child_closes_from(child, x->fd);
	case ADD_TCSETPGRP:
		break;
	}
	pid_t group = group_of(child->start->attr);
	group = group ? group : (pid_t)RAW(SYS_getpgid, 0L);
	return RAW(SYS_ioctl, (long)x->fd, (long)TIOCSPGRP, &group) < 0 ? errno : 0;
}

/* The actions of signals: a handler of the program's must not run in the child, which has its
 * memory and its descriptors. All are blocked until exec. */
static void child_drops_handlers(const sigset_t *defaults)
{
	for (int sig = 1; sig < NSIG; sig++) {
		struct sigaction action;
		if (REAL(sigaction)(sig, NULL, &action) < 0 || action.sa_handler == SIG_DFL ||
			(action.sa_handler == SIG_IGN && sigismember(defaults, sig) != 1))
			continue;
		action = (struct sigaction){.sa_handler = SIG_DFL};
		REAL(sigaction)(sig, &action, NULL);
	}
}

/* 0, or an errno. *mask becomes what the program is to have. */
static int child_takes_attributes(const posix_spawnattr_t *attr, sigset_t *mask)
{
	sigset_t defaults;
	short flags = 0;
	struct sched_param parameters = {0};
	int policy = 0;
	sigemptyset(&defaults);
	if (attr)
		posix_spawnattr_getflags(attr, &flags);
	if (flags & POSIX_SPAWN_SETSIGDEF)
		posix_spawnattr_getsigdefault(attr, &defaults);
	child_drops_handlers(&defaults);
	if (flags & POSIX_SPAWN_SETSIGMASK)
		posix_spawnattr_getsigmask(attr, mask);
	if (flags & (POSIX_SPAWN_SETSCHEDPARAM | POSIX_SPAWN_SETSCHEDULER))
		posix_spawnattr_getschedparam(attr, &parameters);
	if (flags & POSIX_SPAWN_SETSCHEDULER) {
		posix_spawnattr_getschedpolicy(attr, &policy);
		if (RAW(SYS_sched_setscheduler, 0L, (long)policy, &parameters) < 0)
			return errno;
	} else if ((flags & POSIX_SPAWN_SETSCHEDPARAM) &&
		   RAW(SYS_sched_setparam, 0L, &parameters) < 0) {
		return errno;
	}
	if ((flags & POSIX_SPAWN_SETSID) && RAW(SYS_setsid) < 0)
		return errno;
	if ((flags & POSIX_SPAWN_SETPGROUP) && RAW(SYS_setpgid, 0L, (long)group_of(attr)) < 0)
		return errno;
	if ((flags & POSIX_SPAWN_RESETIDS) &&
		(RAW(SYS_setresuid, -1L, RAW(SYS_getuid), -1L) < 0 ||
			RAW(SYS_setresgid, -1L, RAW(SYS_getgid), -1L) < 0))
		return errno;
	return 0;
}

static int child_executes(void *with, const char *path)
{
	const struct child *child = with;
	RAW(SYS_execve, path, child->argv, child->envp);
	return errno;
}

/* Becomes the program, or returns an errno. */
static int child_runs(struct child *child)
{
	const struct start *s = child->start;
	sigset_t mask;
	sigemptyset(&mask);
	memcpy(&mask, &child->mask, sizeof child->mask);
	int failed = child_takes_attributes(s->attr, &mask);
	for (int i = 0; s->actions && i < s->actions->n && failed == 0; i++)
		failed = child_does(child, i);
	if (failed || s->no_program)
		return failed ? failed : s->no_program;
	RAW(SYS_rt_sigprocmask, (long)SIG_SETMASK, &mask, NULL, sizeof child->mask);
	return s->call == REAL(posix_spawnp)
		       ? along_path(child->path, child->room, child_executes, child)
		       : child_executes(child, child->path);
}

/* What the child asks for, with what it has passed: 0 and *fd, an errno, or BY_CHILD. */
static int do_for_child(const struct action *x, enum passes passes, int passed, int *fd)
{
	const char *path = x->path;
	char of_file[FD_PATH_ROOM];
	int dir = passes == PASSES_DIRECTORY || passes == PASSES_PARENT ? passed : AT_FDCWD;
	if (passes != PASSES_NOTHING && passed < 0)
		return EMFILE;
	if (passes == PASSES_FILE)
		path = fd_path(of_file, passed);
	if (passes == PASSES_PARENT)
		path = strrchr(path, '/') + 1;
	if (x->kind == ADD_OPEN) {
		bool is_ours = path_is_ours(dir, path, 0);
		if (!is_ours && passes == PASSES_FILE) {
			/* A file of a pack. */
			int rc = adopt_passed(passed);
			if (rc < 0)
				return -rc;
			is_ours = fd_is_packed(passed);
		}
		if (!is_ours)
			return BY_CHILD;
		*fd = door_openat(dir, path, x->flags | O_CLOEXEC, x->mode);
		return *fd < 0 ? errno : 0;
	}
	__attribute__((cleanup(place_free))) struct place place = {0};
	if (!place_next(&place, dir, path, PLFS_PLACE_FOLLOW))
		return BY_CHILD;
	*fd = (int)RAW(
		SYS_openat, (long)AT_FDCWD, place.at, (long)(O_PATH | O_DIRECTORY | O_CLOEXEC));
	return *fd < 0 ? errno : 0;
}

/* Until the child has its program, which closes the other end, or says why not. What is opened for
 * it stays open as long, so that the files are in use. */
static int serve_child(const struct actions *a, struct own_fds *own)
{
	struct note note;
	int passed;
	int socket = own->socket;
	while (receive(socket, &note, MSG_CMSG_CLOEXEC, &passed)) {
		if (note.action == ENDS)
			return note.says;
		struct letter letter;
		int fd = -1;
		note.says = do_for_child(&a->v[note.action], (enum passes)note.says, passed, &fd);
		if (passed >= 0)
			door_close(passed);
		if (fd >= 0) {
			spawn_lock();
			own->opened[own->opened_count++] = fd;
			spawn_unlock();
		}
		/* By our sendmsg, which commits, and gives the position to the kernel. */
		if (sendmsg(socket, address_with(&letter, &note, fd), MSG_NOSIGNAL) < 0) {
			note.says = errno;
			if (RAW(SYS_sendmsg, (long)socket, address_with(&letter, &note, -1),
				    (long)MSG_NOSIGNAL) < 0)
				break;
		}
	}
	return 0;
}

/* Of glibc 2.39. */
#ifndef POSIX_SPAWN_SETCGROUP
#define POSIX_SPAWN_SETCGROUP 0x100
#endif
extern int posix_spawnattr_getcgroup_np(const posix_spawnattr_t *, int *) __attribute__((weak));

static int run_child(void *argument)
{
	struct child *child = argument;
	struct letter letter;
	RAW(SYS_close, (long)child->parents);
	struct note note = {ENDS, child_runs(child)};
	RAW(SYS_sendmsg, (long)child->socket, address_with(&letter, &note, -1), (long)MSG_NOSIGNAL);
	RAW(SYS_exit_group, 127L);
	return 0;
}

/* A fork without handlers, into the control group that the attributes have. A child that asks
 * nothing has the memory itself, as libc's: a copy takes long if that is large. */
static pid_t clone_child(struct child *child)
{
	const struct actions *a = child->start->actions;
	const posix_spawnattr_t *attr = child->start->attr;
	struct clone_args how = {.flags = CLONE_INTO_CGROUP, .exit_signal = SIGCHLD};
	short flags = 0;
	int group;
	if (attr)
		posix_spawnattr_getflags(attr, &flags);
	bool asks = false,
	     has_group = (flags & POSIX_SPAWN_SETCGROUP) && posix_spawnattr_getcgroup_np;
	for (int i = 0; a && i < a->n; i++)
		asks = asks || a->v[i].kind == ADD_OPEN || a->v[i].kind == ADD_CHDIR;
	if (!asks && !has_group) {
		/* The child may be killed in a call. */
		struct thread_state state = door_thread;
		pid_t pid = REAL(clone)(run_child, child->room + ROOM_BYTES,
			CLONE_VM | CLONE_VFORK | SIGCHLD, child);
		door_thread = state;
		return pid;
	}
	if (has_group) {
		posix_spawnattr_getcgroup_np(attr, &group);
		how.cgroup = (uint64_t)group;
	}
	pid_t pid = has_group ? (pid_t)RAW(SYS_clone3, &how, sizeof how)
			      : (pid_t)RAW(SYS_clone, (long)SIGCHLD, NULL, NULL, NULL, NULL);
	if (pid == 0)
		run_child(child);
	return pid;
}

/* Sets the process off that runs child_runs. Returns an errno. No fork of another thread is to have
 * the child's end: this process would wait for it. */
static int begin_child(struct child *child, pid_t *pid)
{
	int ends[2], failed = 0;
	spawn_lock();
	if (RAW(SYS_socketpair, (long)AF_UNIX, (long)(SOCK_SEQPACKET | SOCK_CLOEXEC), 0L, ends) < 0)
		failed = errno;
	if (!failed) {
		child->parents = ends[0];
		child->socket = set_aside(child->start->actions, ends[1]);
		*pid = child->socket < 0 ? -1 : clone_child(child);
		failed = *pid < 0 ? errno : 0;
		if (child->socket >= 0)
			RAW(SYS_close, (long)child->socket);
		if (failed)
			RAW(SYS_close, (long)ends[0]);
		else
			child->start->own->socket = ends[0];
	}
	spawn_unlock();
	return failed;
}

static int start_ours(
	const struct start *s, const char *path, char *const argv[], char *const envp[])
{
	ROOM(room);
	size_t count = s->actions ? (size_t)s->actions->n : 0;
	int *opened = calloc(count + 1, sizeof *opened);
	struct child child = {s, (char *)path, argv, envp, -1, -1, 0, room, false};
	int rc = room && opened ? 0 : ENOMEM, cancel;
	pid_t pid = -1;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	if (rc == 0)
		rc = (int)-share_with_process(SHARED_ALL);
	if (rc == 0) {
		pass_locks(s->actions);
		/* As long as libc blocks them. */
		signals_block_all(&child.mask);
		s->own->opened = opened;
		rc = begin_child(&child, &pid);
		if (rc == 0) {
			rc = serve_child(s->actions, s->own);
			own_close(&s->own->socket);
			if (rc != 0)
				while (RAW(SYS_wait4, (long)pid, NULL, 0L, NULL) < 0 &&
					errno == EINTR)
					;
			else if (s->pid)
				*s->pid = pid;
		}
		spawn_lock();
		int opened_count = s->own->opened_count;
		s->own->opened_count = 0;
		spawn_unlock();
		while (opened_count > 0)
			door_close(opened[--opened_count]);
		signals_restore(&child.mask);
		shared_with_process();
	}
	pthread_setcancelstate(cancel, NULL);
	free(opened);
	return rc;
}

static int start(const struct start *s, const char *path, char *const argv[], char *const envp[])
{
	if (s->by_us)
		return start_ours(s, path, argv, envp);
	int64_t shared = share_with_process(SHARED_ALL);
	if (shared < 0)
		return (int)-shared;
	pass_locks(s->actions);
	int rc = s->call(s->pid, path, s->fa, s->attr, argv, envp);
	shared_with_process();
	return rc;
}

/* What comes before the exec is done, and that fails. */
static int start_in_vain(const struct start *s, const char *path, int failed)
{
	struct start in_vain = *s;
	in_vain.no_program = failed;
	return start_ours(&in_vain, path, NULL, NULL);
}

/* A program in a container is made ready here. */
static int spawn_program(
	const struct start *s, const char *path, char *const argv[], char *const envp[])
{
	ROOM(room);
	struct program *p = (struct program *)room;
	if (!p || !program_find(s->own->dir, path, p))
		return start_in_vain(s, path, errno);
	if (p->interpreter) {
		WORDS(words, count_of(argv) + 4);
		if (!words)
			return ENOMEM;
		program_arguments(p, path, argv, words->at);
		bool is_hidden;
		int failed = program_foresee(s->own->dir, p->interpreter, &is_hidden);
		if (failed)
			return start_in_vain(s, path, failed);
		if (is_hidden)
			return spawn_program(s, p->interpreter, words->at, envp);
		return served_at(s->own->dir, p->interpreter, 0, envp)
			       ? start(s, p->interpreter, words->at, envp)
			       : EPERM;
	}
	spawn_lock();
	int image = s->own->image = set_aside(s->actions, p->image), failed = errno;
	spawn_unlock();
	if (image < 0)
		return failed;
	fd_path(p->head, image);
	int rc = served_fd(image, path, envp) ? start(s, p->head, argv, envp) : errno;
	own_close(&s->own->image);
	return rc;
}

/* The last path that was looked at, and whether it is hidden, or one of all is. */
struct sight {
	int dir;
	const char *path;
	bool is_hidden, some_are;
};

static int look_at(void *with, const char *path)
{
	struct sight *sight = with;
	sight->path = path;
	int foreseen = program_foresee(sight->dir, path, &sight->is_hidden);
	sight->some_are = sight->some_are || sight->is_hidden;
	return foreseen;
}

static int spawn(spawn_call *call, pid_t *pid, const char *path,
	const posix_spawn_file_actions_t *fa, const posix_spawnattr_t *attr, char *const argv[],
	char *const envp[])
{
	/* As long as libc blocks them; nor may one leave by siglongjmp what others find `own` in.
	 */
	DEFER_SIGNALS();
	spawn_lock();
	struct actions *a = find_actions(fa);
	spawn_unlock();
	struct own_fds own = {.dir = directory_after(a), .image = -1, .socket = -1};
	spawn_lock();
	own.next = all_own_fds;
	all_own_fds = &own;
	spawn_unlock();
	struct start s = {call, pid, fa, attr, a, false, 0, &own};
	ROOM(found);
	struct sight sight = {own.dir, path, false, false};
	int foreseen = 0, rc = EPERM;
	if (found && path && path_is_there(path))
		foreseen = call == REAL(posix_spawnp) ? along_path(path, found, look_at, &sight)
						      : look_at(&sight, path);
	/* EBADF: it is not known where the child is. */
	bool is_ours = sight.some_are && foreseen != EBADF;
	if (served_at(own.dir, sight.path, 0, envp)) {
		bool moves = false;
		for (int i = 0; a && i < a->n; i++) {
			const struct action *x = &a->v[i];
			moves = moves || x->kind == ADD_CHDIR || x->kind == ADD_FCHDIR;
			s.by_us = s.by_us ||
				  (x->kind == ADD_CHDIR && path_is_managed(AT_FDCWD, x->path)) ||
				  (x->kind == ADD_OPEN &&
					  (moves || path_descriptor(x->path) >= 0 ||
						  is_of_process(x->path) ||
						  path_is_ours(AT_FDCWD, x->path, 0))) ||
				  (x->kind == ADD_CLOSEFROM &&
					  (is_ours || atomic_load(&fd_limit) > 0));
		}
		/* The child is told where it is. */
		s.by_us = s.by_us || (moves && flat_is_known());
		/* libc would find another one. */
		s.call = is_ours ? REAL(posix_spawn) : call;
		path = is_ours ? sight.path : path;
		rc = WITH_ENVIRONMENT(own.dir, envp,
			is_ours && foreseen	     ? start_in_vain(&s, path, foreseen)
			: is_ours && sight.is_hidden ? spawn_program(&s, path, argv, given)
						     : start(&s, path, argv, given),
			ENOMEM);
	}
	spawn_lock();
	if (own.dir >= 0)
		RAW(SYS_close, (long)own.dir);
	struct own_fds **at = &all_own_fds;
	while (*at != &own)
		at = &(*at)->next;
	*at = own.next;
	spawn_unlock();
	return rc;
}

EXPORT int posix_spawn(pid_t *restrict pid, const char *restrict path,
	const posix_spawn_file_actions_t *restrict fa, const posix_spawnattr_t *restrict attr,
	char *const argv[restrict], char *const envp[restrict])
{
	return spawn(REAL(posix_spawn), pid, path, fa, attr, argv, envp);
}

EXPORT int posix_spawnp(pid_t *restrict pid, const char *restrict file,
	const posix_spawn_file_actions_t *restrict fa, const posix_spawnattr_t *restrict attr,
	char *const argv[restrict], char *const envp[restrict])
{
	return spawn(REAL(posix_spawnp), pid, file, fa, attr, argv, envp);
}
