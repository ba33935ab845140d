/* Starting and ending processes.
 *
 * A child shares our open file descriptions. Before it exists, data is committed (it opens the
 * files itself after exec). After exec the constructor of the child finds the descriptors again
 * (init.c), and their descriptions by tags (description.h). */
#include "door.h"
#include "own_stack.h"

#include <linux/futex.h>
#include <pthread.h>
#include <pty.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>

int64_t share_with_process(enum shared shared)
{
	if (PLFS_ALWAYS(plfs_door_knows_flat()) == 1)
		PLFS(plfs_door_flat_forget());
	if (door_thread.inside || atomic_load(&fd_limit) == 0)
		return 0;
	int saved = errno;
	int64_t rc = commit_all();
	/* An exec would let go of them; others have them still, and are told later. */
	if (shared != SHARED_BY_EXEC) {
		PLFS(plfs_door_hold_all());
		rc = 0;
	}
	int handed = hand_over_all(shared, "inherited by another program");
	locks_before_fork();
	int found = fd_share_descriptions();
	locks_pass(shared);
	rc = rc < 0 ? rc : handed < 0 ? handed : found;
	if (rc < 0)
		shared_with_process();
	errno = saved;
	return rc;
}

void shared_with_process(void)
{
	int saved = errno;
	if (!door_thread.inside && atomic_load(&fd_limit) != 0) {
		locks_passed();
		fd_shared_descriptions();
	}
	errno = saved;
}

/* libplfs's handler around the fork commits. Handlers of signals wait, as all locks are held. */
static void before_fork(void)
{
	locks_before_fork();
	path_know_managed();
	_IO_list_lock();
	writers_describe();
	description_before_fork();
}

static void after_fork(bool in_child)
{
	if (in_child) {
		_IO_list_resetlock();
		spawn_after_fork_in_child();
	} else {
		description_after_fork();
		_IO_list_unlock();
	}
}

static intptr_t fork_in_libc(void *unused)
{
	(void)unused;
	return REAL(fork)();
}

/* On the thread's own stack, which the child has as well: libplfs commits in it. */
EXPORT pid_t fork(void)
{
	DEFER_SIGNALS();
	before_fork();
	pid_t pid = (pid_t)own_stack_call(fork_in_libc, NULL);
	after_fork(pid == 0);
	return pid;
}
ALIAS(fork, __fork);

/* A mutex that the child of a vfork holds: the kernel gives it up for the child, and wakes who
 * waits, when the child leaves this memory by exec or ends, whatever ends it. It takes no
 * descriptor, which the child might close, and other children inherit. NULL: there is none, or an
 * emulator has no such kernel. */
static pthread_mutex_t *vfork_mutex(void)
{
	void *list = NULL;
	size_t list_bytes;
	if (RAW(SYS_get_robust_list, 0L, &list, &list_bytes) < 0 || !list)
		return NULL;
	pthread_mutex_t *held = (pthread_mutex_t *)RAW(SYS_mmap, NULL, sizeof *held,
		(long)(PROT_READ | PROT_WRITE), (long)(MAP_SHARED | MAP_ANONYMOUS), -1L, 0L);
	if (held == MAP_FAILED)
		return NULL;
	pthread_mutexattr_t kind;
	pthread_mutexattr_init(&kind);
	pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(held, &kind);
	pthread_mutexattr_destroy(&kind);
	return held;
}

/* The child may end before it has the mutex. */
static bool has_ended(pid_t child)
{
	siginfo_t info = {0};
	return RAW(SYS_waitid, (long)P_PID, (long)child, &info, (long)(WEXITED | WNOHANG | WNOWAIT),
		       NULL) < 0 ||
	       info.si_pid == child;
}

static void wait_for_child(pthread_mutex_t *held, pid_t child)
{
	_Atomic uint32_t *word = (_Atomic uint32_t *)&held->__data.__lock;
	struct timespec some_time = {.tv_nsec = 50000000};
	for (uint32_t seen; !((seen = atomic_load(word)) & FUTEX_OWNER_DIED);) {
		/* The kernel wakes only if the word says that somebody waits. */
		if (seen && !(seen & FUTEX_WAITERS) &&
			!atomic_compare_exchange_strong(word, &seen, seen | FUTEX_WAITERS))
			continue;
		seen = seen ? seen | FUTEX_WAITERS : 0;
		if (RAW(SYS_futex, word, (long)FUTEX_WAIT, (long)seen, &some_time) < 0 &&
			errno == ETIMEDOUT && has_ended(child))
			break;
	}
}

/* vfork is a fork here: its child would share the parent's memory, and its open, close and dup2
 * would change the parent's table. So what it stores is not seen; but the parent waits. Handlers of
 * signals run meanwhile. */
EXPORT pid_t vfork(void)
{
	int saved = errno;
	pthread_mutex_t *held = vfork_mutex();
	pid_t pid = fork();
	saved = pid < 0 ? errno : saved;
	if (held && pid == 0) {
		pthread_mutex_lock(held);
		RAW(SYS_futex, &held->__data.__lock, (long)FUTEX_WAKE, 1L);
	} else if (held) {
		if (pid > 0)
			wait_for_child(held, pid);
		RAW(SYS_munmap, held, sizeof *held);
	}
	errno = saved;
	return pid;
}
ALIAS(vfork, __vfork);

/* _Fork runs no atfork handlers, without which the child would use the parent's writers. */
EXPORT pid_t _Fork(void)
{
	return atomic_load(&fd_limit) ? fork() : REAL(_Fork)();
}

static struct {
	int (*function)(void *);
	void *argument;
	ucontext_t context;
} cloned;

static void run_cloned(void)
{
	_exit(cloned.function(cloned.argument));
}

bool clone_is_fork(uint64_t flags, uint64_t signal)
{
	return signal == SIGCHLD && (flags == 0 || flags == (CLONE_VM | CLONE_VFORK));
}

/* A child with memory of its own is one of fork: else it would write with its parent's writers, and
 * threads of libplfs would keep it when its function returns. One that has its parent's memory, and
 * descriptors of its own, until it runs a program would change what the parent's numbers stand for.
 * What has other flags fork cannot make. */
EXPORT int clone(int (*function)(void *), void *stack, int flags, void *argument, ...)
{
	va_list ap;
	va_start(ap, argument);
	pid_t *tid = va_arg(ap, pid_t *);
	void *tls = va_arg(ap, void *);
	pid_t *child_tid = va_arg(ap, pid_t *);
	va_end(ap);
	if (!clone_is_fork((unsigned)flags & ~CSIGNAL, (unsigned)flags & CSIGNAL) || !function ||
		!stack)
		return REAL(clone)(function, stack, flags, argument, tid, tls, child_tid);
	pid_t pid = flags & CLONE_VFORK ? vfork() : fork();
	if (pid != 0)
		return pid;
	cloned.function = function;
	cloned.argument = argument;
	getcontext(&cloned.context);
	cloned.context.uc_stack.ss_sp = (char *)stack - SMALL_PAGE;
	cloned.context.uc_stack.ss_size = SMALL_PAGE;
	makecontext(&cloned.context, run_cloned, 0);
	setcontext(&cloned.context);
	__builtin_unreachable();
}
ALIAS(clone, __clone);

/* libc puts /dev/null on 0, 1 and 2 without our dup2. */
EXPORT int daemon(int nochdir, int noclose)
{
	DEFER_SIGNALS();
	pid_t parent = getpid();
	before_fork();
	for (int fd = 0; fd < 3 && !noclose; fd++)
		door_leave_number(fd);
	int rc = REAL(daemon)(nochdir, noclose);
	path_moved();
	after_fork(getpid() != parent);
	if (rc == 0 && !noclose)
		for (int fd = 0; fd < 3; fd++)
			door_forget(fd);
	return rc;
}

EXPORT int forkpty(int *pty, char *name, const struct termios *settings, const struct winsize *size)
{
	DEFER_SIGNALS();
	before_fork();
	for (int fd = 0; fd < 3; fd++)
		door_leave_number(fd);
	pid_t pid = REAL(forkpty)(pty, name, settings, size);
	after_fork(pid == 0);
	for (int fd = 0; pid == 0 && fd < 3; fd++)
		door_forget(fd);
	return pid;
}

/* What libc starts with the program's own environment has what loads libplfs, and says where it is
 * in a flat directory. */
static void lend_environment(void)
{
	served_lend();
	char *text = NULL;
	if (!flat_is_known())
		return;
	if (PLFS(plfs_door_flat_environment(AT_FDCWD, &text)) != 1) {
		unsetenv("PLFS_FLAT_CWD");
		return;
	}
	char *value = strchr(text, '=');
	if (value) {
		*value++ = 0;
		setenv(text, value, 1);
	}
	PLFS_ALWAYS(plfs_door_free_text(text));
}

static void end_start(void *unused)
{
	(void)unused;
	shared_with_process();
	served_take_back();
}

/* What `call` gives, which starts programs in libc, or `failed`. The thread may be cancelled in it.
 */
#define START_IN_LIBC(call, failed) \
	({ \
		int64_t shared_ = share_with_process(SHARED_ALL); \
		__typeof__(call) given_ = failed; \
		if (shared_ < 0) { \
			errno = (int)-shared_; \
		} else { \
			lend_environment(); \
			pthread_cleanup_push(end_start, NULL); \
			given_ = call; \
			pthread_cleanup_pop(1); \
		} \
		given_; \
	})

static int system_in_libc(const char *command)
{
	int rc;
	pthread_cleanup_push(signals_after_system, NULL);
	rc = REAL(system)(command);
	pthread_cleanup_pop(1);
	return rc;
}

EXPORT int system(const char *command)
{
	/* As where there is no shell. */
	if (command && !served_at(AT_FDCWD, "/bin/sh", 0, environ))
		return 127 << 8;
	return START_IN_LIBC(system_in_libc(command), -1);
}

EXPORT FILE *popen(const char *command, const char *mode)
{
	if (!served_at(AT_FDCWD, "/bin/sh", 0, environ))
		return NULL;
	return START_IN_LIBC(REAL(popen)(command, mode), NULL);
}

/* Its commands are programs, too. */
EXPORT int wordexp(const char *words, wordexp_t *result, int flags)
{
	bool starts = path_is_there(words) && strpbrk(words, "`(") && !(flags & WRDE_NOCMD);
	return starts ? START_IN_LIBC(REAL(wordexp)(words, result, flags), WRDE_NOSPACE)
		      : REAL(wordexp)(words, result, flags);
}

EXPORT void _exit(int status)
{
	leave_process();
	REAL(_exit)(status);
	__builtin_unreachable();
}
ALIAS(_exit, _Exit);

EXPORT void quick_exit(int status)
{
	leave_process();
	REAL(quick_exit)(status);
	__builtin_unreachable();
}

EXPORT void abort(void)
{
	commit_all();
	REAL(abort)();
	__builtin_unreachable();
}
