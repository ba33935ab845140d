/* Signals: a handler of the program never runs in the middle of a call of ours.
 *
 * libplfs has locks and a heap, so it cannot be entered again by a handler that interrupted it, and
 * a handler that leaves by siglongjmp would leave the locks taken. So the kernel calls on_signal
 * instead of the program's handler. If the thread is in a call of ours, on_signal blocks all
 * signals for the interrupted context and sends the signal to the thread again: the kernel keeps
 * it, with all that it knows of it, until the call ends and puts the mask back. Else it calls the
 * handler. Calls that nothing interrupts cost two additions and a test.
 *
 * A signal that ends the program by default comes to on_signal too, once a file is open for
 * writing: what the program has written is committed before.
 *
 * A fault inside a call of ours (SIGSEGV and its kin) cannot wait. The handler runs at once, and
 * libplfs is closed to the thread as long as it runs: calls on PLFS files fail with EIO. If the
 * handler does not return, it stays closed to the thread.
 *
 * Handlers that are installed without libc are not seen (Go's; those make no calls of ours), and
 * libc's own (thread cancellation, SIGRTMIN - 2 and - 1) interrupt no call of ours. */
#include "door.h"
#include "own_stack.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

__thread struct thread_state door_thread __attribute__((tls_model("initial-exec")));

/* What the program has asked for each signal; the rest (mask, flags) the kernel has. */
static struct {
	_Atomic(void (*)(int, siginfo_t *, void *)) handler;
	_Atomic int flags; /* OUR_FLAGS of the program's */
} asked[NSIG];

/* What we set, or emulate, ourselves. */
#define OUR_FLAGS (SA_SIGINFO | SA_ONSTACK | (int)SA_RESETHAND)

/* probe.S. */
extern const char probe_begin[], probe_end[], probe_failed[];
_Atomic bool faults_are_seen;

/* Signals that on_signal gets for their default action, too. */
static _Atomic uint64_t seen;

static bool is_fault(int sig, const siginfo_t *info)
{
	switch (sig) {
	case SIGSEGV:
	case SIGBUS:
	case SIGFPE:
	case SIGILL:
	case SIGTRAP:
	case SIGSYS:
		return info->si_code > 0;
	}
	return false;
}

#define SIGNAL_BIT(sig) ((uint64_t)1 << ((sig) - 1))

/* All signals but faults, which cannot be blocked, and the two that libc keeps to itself. */
#define BLOCKABLE \
	(~(SIGNAL_BIT(SIGSEGV) | SIGNAL_BIT(SIGBUS) | SIGNAL_BIT(SIGFPE) | SIGNAL_BIT(SIGILL) | \
		SIGNAL_BIT(SIGTRAP) | SIGNAL_BIT(SIGSYS) | SIGNAL_BIT(32) | SIGNAL_BIT(33)))

/* Those without a handler end the program (signal(7)); SIGKILL does it unseen, and for the signals
 * of real time nobody leaves it at that. */
#define ENDING \
	(SIGNAL_BIT(SIGHUP) | SIGNAL_BIT(SIGINT) | SIGNAL_BIT(SIGQUIT) | SIGNAL_BIT(SIGILL) | \
		SIGNAL_BIT(SIGTRAP) | SIGNAL_BIT(SIGABRT) | SIGNAL_BIT(SIGBUS) | \
		SIGNAL_BIT(SIGFPE) | SIGNAL_BIT(SIGUSR1) | SIGNAL_BIT(SIGSEGV) | \
		SIGNAL_BIT(SIGUSR2) | SIGNAL_BIT(SIGPIPE) | SIGNAL_BIT(SIGALRM) | \
		SIGNAL_BIT(SIGTERM) | SIGNAL_BIT(SIGSTKFLT) | SIGNAL_BIT(SIGXCPU) | \
		SIGNAL_BIT(SIGXFSZ) | SIGNAL_BIT(SIGVTALRM) | SIGNAL_BIT(SIGPROF) | \
		SIGNAL_BIT(SIGIO) | SIGNAL_BIT(SIGPWR) | SIGNAL_BIT(SIGSYS))

static void set_mask(const uint64_t *mask, uint64_t *old)
{
	RAW(SYS_rt_sigprocmask, (long)SIG_SETMASK, mask, old, sizeof *mask);
}

void signals_block_all(uint64_t *old)
{
	uint64_t all = BLOCKABLE;
	set_mask(&all, old);
}

void signals_restore(const uint64_t *old)
{
	set_mask(old, NULL);
}

void signals_deliver(void)
{
	door_thread.waiting = false;
	int saved = errno, ending = door_thread.ending;
	uint64_t mask = door_thread.mask;
	/* First, because a handler may leave by siglongjmp. */
	if (ending > 0)
		RAW(SYS_tgkill, (long)getpid(), RAW(SYS_gettid), (long)ending);
	/* The kernel calls on_signal before this returns. */
	set_mask(&mask, NULL);
	errno = saved;
}

/* Sends the signal to this thread again, with what is known of it. */
static void send_again(int sig, siginfo_t *info)
{
	long process = getpid(), thread = RAW(SYS_gettid);
	if (RAW(SYS_rt_tgsigqueueinfo, process, thread, (long)sig, info) < 0)
		RAW(SYS_tgkill, process, thread, (long)sig);
}

/* Another signal can interrupt this before all are blocked, and does the same; what it notes of the
 * mask is wrong, and corrected here, because it returns first. */
static void defer(int sig, siginfo_t *info, ucontext_t *context)
{
	uint64_t all = BLOCKABLE;
	set_mask(&all, NULL);
	memcpy(&door_thread.mask, &context->uc_sigmask, sizeof all);
	memcpy(&context->uc_sigmask, &all, sizeof all);
	door_thread.waiting = true;
	send_again(sig, info);
}

/* --- Signals that end the program --- */

/* When the first one came, CLOCK_MONOTONIC, and whether a thread commits because of it. */
static _Atomic int64_t ending_since;
static _Atomic bool commits;
/* The process whose files libplfs has: not a child that somebody made without fork. */
static _Atomic pid_t process;
/* From now on those signals are seen. */
static _Atomic bool endings_are_seen;

/* After this time another one ends the program at once. Soon after the first comes what the same
 * sender sends as well: SIGTERM and SIGHUP of a session that ends. */
#define SECOND_NS ((int64_t)1000000000)
/* And this long a commit may take, or a call that has to end before. */
#define END_WAIT_S 10

static bool sees_default(int sig)
{
	return (atomic_load(&seen) & SIGNAL_BIT(sig)) ||
	       ((ENDING & SIGNAL_BIT(sig)) && atomic_load(&endings_are_seen));
}

/* What the kernel does without a handler. The signal is pending when this returns, and no other one
 * is delivered before. */
static void end_now(int sig, siginfo_t *info, ucontext_t *context)
{
	struct sigaction action = {.sa_handler = SIG_DFL};
	REAL(sigaction)(sig, &action, NULL);
	uint64_t others = BLOCKABLE & ~SIGNAL_BIT(sig);
	memcpy(&context->uc_sigmask, &others, sizeof others);
	send_again(sig, info);
}

/* Handlers wait from now on, for ever. Other signals that end the program do not. */
static void block_handlers(void)
{
	uint64_t blocked = BLOCKABLE;
	for (int sig = 1; sig < 32; sig++)
		if ((ENDING & SIGNAL_BIT(sig)) &&
			atomic_load(&asked[sig].handler) == (void *)SIG_DFL)
			blocked &= ~SIGNAL_BIT(sig);
	set_mask(&blocked, NULL);
}

/* The signal comes again when it has taken too long. */
static void limit_wait(int sig)
{
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = sig};
	struct itimerspec wait = {.it_value = {.tv_sec = END_WAIT_S}};
	int timer;
	if (RAW(SYS_timer_create, (long)CLOCK_MONOTONIC, &event, &timer) == 0)
		RAW(SYS_timer_settime, (long)timer, 0L, &wait, NULL);
}

/* In the thread of another one the process ends, or goes on to end. */
static void wait_for_end(void)
{
	for (;;)
		RAW(SYS_ppoll, NULL, 0L, NULL, NULL, 0L);
}

bool signals_let_end(void)
{
	if (!atomic_load_explicit(&ending_since, memory_order_relaxed) ||
		getpid() != atomic_load(&process))
		return false;
	if (!door_thread.ending)
		wait_for_end();
	return true;
}

/* The signal has no handler. In a call of ours it waits for the end of that. */
static void default_action(int sig, siginfo_t *info, ucontext_t *context)
{
	pid_t pid = getpid();
	bool is_due = door_thread.depth == 0 && door_thread.ending == sig;
	/* The kernel spares the first process of a container. */
	if (pid == 1 && !is_fault(sig, info))
		return;
	if (!(ENDING & SIGNAL_BIT(sig)) || door_thread.closed || pid != atomic_load(&process)) {
		end_now(sig, info, context);
		return;
	}
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	int64_t now = time.tv_sec * (int64_t)1000000000 + time.tv_nsec, since = 0;
	if (atomic_compare_exchange_strong(&ending_since, &since, now)) {
		limit_wait(sig);
	} else if (!is_due && now - since > SECOND_NS) {
		end_now(sig, info, context);
		return;
	}
	if (door_thread.depth > 0) {
		if (door_thread.ending)
			return;
		door_thread.ending = sig;
		if (!door_thread.waiting)
			memcpy(&door_thread.mask, &context->uc_sigmask, sizeof door_thread.mask);
		door_thread.waiting = true;
		return;
	}
	block_handlers();
	if (atomic_exchange(&commits, true)) {
		if (door_thread.ending != ENDS_HERE)
			wait_for_end();
		return;
	}
	door_thread.ending = ENDS_HERE;
	end_process();
	end_now(sig, info, context);
}

void signals_after_fork_in_child(void)
{
	atomic_store(&process, getpid());
	atomic_store(&ending_since, 0);
	atomic_store(&commits, false);
	door_thread.ending = 0;
}

static void call_handler(int sig, siginfo_t *info, void *context)
{
	void (*handler)(int, siginfo_t *, void *) = atomic_load(&asked[sig].handler);
	if (handler == (void *)SIG_DFL) {
		default_action(sig, info, context);
		return;
	}
	/* Since the kernel sent it here. */
	if (handler == (void *)SIG_IGN)
		return;
	int flags = atomic_load(&asked[sig].flags);
	struct sigaction action;
	if ((flags & SA_RESETHAND) && sees_default(sig)) {
		atomic_store(&asked[sig].handler, NULL);
	} else if ((flags & SA_RESETHAND) && REAL(sigaction)(sig, NULL, &action) == 0) {
		/* Mask and flags stay, as the kernel has it. */
		action.sa_handler = SIG_DFL;
		action.sa_flags = (action.sa_flags & ~OUR_FLAGS) | flags;
		REAL(sigaction)(sig, &action, NULL);
	}
	handler(sig, info, context);
	/* abort goes on to end the program, with SIG_DFL that nobody sees. */
	if (sig == SIGABRT)
		commit_all();
}

/* A look at memory that is not there: it goes on with that. */
static bool fails_probe(int sig, ucontext_t *context)
{
#if defined(__x86_64__)
	greg_t *next = &context->uc_mcontext.gregs[REG_RIP];
#else
	unsigned long long *next = &context->uc_mcontext.pc;
#endif
	if ((sig != SIGSEGV && sig != SIGBUS) || (uintptr_t)*next < (uintptr_t)probe_begin ||
		(uintptr_t)*next >= (uintptr_t)probe_end)
		return false;
	*next = (__typeof__(*next))(uintptr_t)probe_failed;
	return true;
}

static void on_signal(int sig, siginfo_t *info, void *context)
{
	bool fault = is_fault(sig, info);
	if (fault && fails_probe(sig, context))
		return;
	int saved = errno;
	if (door_thread.depth == 0) {
		/* It may be on an alternate stack. After siglongjmp the question stays. */
		uintptr_t stack = own_stack;
		own_stack = stack == OWN_STACK_BUSY ? stack : OWN_STACK_ASK;
		call_handler(sig, info, context);
		own_stack = stack;
	} else if (!fault && atomic_load(&asked[sig].handler) == (void *)SIG_DFL) {
		default_action(sig, info, context);
		errno = saved;
	} else if (!fault) {
		defer(sig, info, context);
		errno = saved;
	} else {
		struct thread_state state = door_thread;
		uintptr_t stack = own_stack;
		door_thread = (struct thread_state){.closed = true};
		own_stack = OWN_STACK_BUSY;
		call_handler(sig, info, context);
		own_stack = stack;
		door_thread = state;
	}
}

static bool has_handlers(int sig)
{
	return sig > 0 && sig < NSIG && sig != SIGKILL && sig != SIGSTOP && (sig < 32 || sig > 33);
}

EXPORT int sigaction(int sig, const struct sigaction *restrict act, struct sigaction *restrict old)
{
	if (!has_handlers(sig))
		return REAL(sigaction)(sig, act, old);
	void *handler = (void *)atomic_load(&asked[sig].handler);
	int flags = atomic_load(&asked[sig].flags);
	struct sigaction mine, prior;
	if (act) {
		/* It would take that back. */
		signals_let_end();
		mine = *act;
		void *wanted = (void *)mine.sa_sigaction;
		bool is_seen = wanted == (void *)SIG_DFL && sees_default(sig);
		atomic_store(&asked[sig].flags, mine.sa_flags & OUR_FLAGS);
		atomic_store(&asked[sig].handler, mine.sa_sigaction);
		if (is_seen || (wanted != (void *)SIG_DFL && wanted != (void *)SIG_IGN)) {
			mine.sa_sigaction = on_signal;
			mine.sa_flags = (mine.sa_flags & ~(int)SA_RESETHAND) | SA_SIGINFO;
			if (is_seen)
				mine.sa_flags |= SA_ONSTACK;
		}
	}
	if (REAL(sigaction)(sig, act ? &mine : NULL, &prior) < 0)
		return -1;
	if (old) {
		*old = prior;
		if (prior.sa_sigaction == on_signal) {
			old->sa_sigaction = (void (*)(int, siginfo_t *, void *))handler;
			old->sa_flags = (prior.sa_flags & ~OUR_FLAGS) | flags;
		}
	}
	return 0;
}
ALIAS(sigaction, __sigaction);

/* Signals that siginterrupt(3) has said interrupt system calls, for signal(3). */
static sigset_t interrupting;

/* The forms of signal(2), by which flags and mask they have. */
static sighandler_t set_handler(int sig, sighandler_t handler, int flags, bool masks_itself)
{
	struct sigaction action = {.sa_handler = handler, .sa_flags = flags}, old;
	sigemptyset(&action.sa_mask);
	if (handler == SIG_ERR || (masks_itself && sigaddset(&action.sa_mask, sig) < 0)) {
		errno = EINVAL;
		return SIG_ERR;
	}
	return sigaction(sig, &action, &old) < 0 ? SIG_ERR : old.sa_handler;
}

EXPORT sighandler_t signal(int sig, sighandler_t handler)
{
	bool interrupts = sig > 0 && sig < NSIG && sigismember(&interrupting, sig) == 1;
	return set_handler(sig, handler, interrupts ? 0 : SA_RESTART, true);
}
ALIAS(signal, bsd_signal);
ALIAS(signal, ssignal);

EXPORT sighandler_t sysv_signal(int sig, sighandler_t handler)
{
	return set_handler(sig, handler, SA_RESETHAND | SA_NODEFER | SA_INTERRUPT, false);
}
ALIAS(sysv_signal, __sysv_signal);

EXPORT int siginterrupt(int sig, int flag)
{
	struct sigaction action;
	if (sigaction(sig, NULL, &action) < 0)
		return -1;
	if (flag) {
		sigaddset(&interrupting, sig);
		action.sa_flags &= ~SA_RESTART;
	} else {
		sigdelset(&interrupting, sig);
		action.sa_flags |= SA_RESTART;
	}
	return sigaction(sig, &action, NULL);
}

EXPORT sighandler_t sigset(int sig, sighandler_t handler)
{
	sigset_t one, before;
	sigemptyset(&one);
	if (handler == SIG_ERR || sigaddset(&one, sig) < 0) {
		errno = EINVAL;
		return SIG_ERR;
	}
	struct sigaction old;
	if (handler == SIG_HOLD) {
		if (sigprocmask(SIG_BLOCK, &one, &before) < 0 || sigaction(sig, NULL, &old) < 0)
			return SIG_ERR;
		return sigismember(&before, sig) ? SIG_HOLD : old.sa_handler;
	}
	sighandler_t prior = set_handler(sig, handler, 0, false);
	if (prior == SIG_ERR || sigprocmask(SIG_UNBLOCK, &one, &before) < 0)
		return SIG_ERR;
	return sigismember(&before, sig) ? SIG_HOLD : prior;
}

/* From now on on_signal gets the signal for its default action, too. False: it is ignored, or has a
 * handler of somebody who did not ask libc, such as a sanitizer's. */
static bool see(int sig)
{
	struct sigaction now, mine;
	if (REAL(sigaction)(sig, NULL, &now) < 0)
		return false;
	mine = now;
	mine.sa_sigaction = on_signal;
	mine.sa_flags = (mine.sa_flags & ~(int)SA_RESETHAND) | SA_SIGINFO | SA_ONSTACK;
	if (now.sa_handler == SIG_DFL && REAL(sigaction)(sig, &mine, &now) == 0 &&
		now.sa_sigaction == on_signal)
		/* Another thread asked for a handler at this moment. */
		REAL(sigaction)(sig, &now, NULL);
	if (now.sa_handler != SIG_DFL && now.sa_sigaction != on_signal)
		return false;
	atomic_fetch_or(&seen, SIGNAL_BIT(sig));
	return true;
}

static intptr_t see_faults(void *unused)
{
	(void)unused;
	bool segv = see(SIGSEGV), bus = see(SIGBUS);
	atomic_store(&faults_are_seen, segv && bus);
	return 0;
}

static intptr_t see_endings(void *unused)
{
	(void)unused;
	atomic_store(&process, getpid());
	atomic_store(&endings_are_seen, true);
	for (int sig = 1; sig < 32; sig++)
		if (ENDING & ~atomic_load(&seen) & SIGNAL_BIT(sig))
			see(sig);
	return 0;
}

/* Who comes at the same time waits, and so does a fork: without the handlers a bad address ends the
 * program. */
static void once(_Atomic bool *done, intptr_t (*call)(void *))
{
	if (atomic_load_explicit(done, memory_order_acquire))
		return;
	fd_hold_numbers();
	if (!atomic_load(done)) {
		own_stack_call(call, NULL);
		atomic_store(done, true);
	}
	fd_release_numbers();
}

void signals_see_faults(void)
{
	static _Atomic bool done;
	once(&done, see_faults);
}

void signals_see_endings(void)
{
	static _Atomic bool done;
	once(&done, see_endings);
}

/* Whether on_signal has the signal for its default action only. Not those that memory_is_there
 * needs. */
static bool ends_by_us(int sig)
{
	struct sigaction now;
	return (ENDING & SIGNAL_BIT(sig)) && sig != SIGSEGV && sig != SIGBUS &&
	       atomic_load(&asked[sig].handler) == (void *)SIG_DFL &&
	       REAL(sigaction)(sig, NULL, &now) == 0 && now.sa_sigaction == on_signal;
}

bool signals_leave_endings(void)
{
	if (!atomic_load(&endings_are_seen))
		return !signals_let_end();
	struct sigaction leave = {.sa_handler = SIG_DFL}, now;
	for (int sig = 1; sig < 32; sig++)
		if (ends_by_us(sig) && REAL(sigaction)(sig, &leave, &now) == 0 &&
			atomic_load(&asked[sig].handler) != (void *)SIG_DFL)
			/* Another thread asked for a handler at this moment. */
			REAL(sigaction)(sig, &now, NULL);
	/* One that came before. */
	return !signals_let_end();
}

void signals_see_endings_again(void)
{
	if (!atomic_load(&endings_are_seen))
		return;
	int saved = errno;
	for (int sig = 1; sig < 32; sig++)
		if ((ENDING & SIGNAL_BIT(sig)) &&
			atomic_load(&asked[sig].handler) == (void *)SIG_DFL)
			see(sig);
	errno = saved;
}

void signals_after_system(void *unused)
{
	(void)unused;
	if (atomic_load(&endings_are_seen))
		own_stack_call(see_endings, NULL);
}

static uintptr_t next_page(uintptr_t at)
{
	return (at | (SMALL_PAGE - 1)) + 1;
}

bool pages_are_there(const void *memory, size_t n, bool written)
{
	uintptr_t at = (uintptr_t)memory, last = at + (n - 1);
	if (last < at)
		return false;
	for (;;) {
		if (!(written ? probe_write((void *)at) : probe_read((void *)at)))
			return false;
		uintptr_t next = next_page(at);
		if (next <= at || next > last)
			return true;
		at = next;
	}
}

bool path_is_there(const char *path)
{
	if (!path)
		return true;
	signals_see_faults();
	if (!atomic_load_explicit(&faults_are_seen, memory_order_relaxed))
		return true;
	while (probe_read(path)) {
		size_t left = next_page((uintptr_t)path) - (uintptr_t)path;
		if (strnlen(path, left) < left)
			return true;
		path += left;
	}
	errno = EFAULT;
	return false;
}

bool environment_is_there(char *const envp[])
{
	signals_see_faults();
	for (size_t i = 0; envp; i++) {
		if (!memory_is_there(&envp[i], sizeof *envp, false))
			return false;
		if (!envp[i])
			break;
		if (!path_is_there(envp[i]))
			return false;
	}
	return true;
}

/* Cancellation. libplfs is not made to be unwound, and a read or a write does not forbid it. So
 * what libplfs calls of libc that is a cancellation point comes through a wrapper, which makes none
 * of it there; tests/preload `cancellation_points` reads what it imports. */

_Atomic bool cancellation_used;

void signals_forbid_cancel(void)
{
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &door_thread.cancel_state);
	door_thread.forbids_cancel = true;
}

void signals_allow_cancel(void)
{
	door_thread.forbids_cancel = false;
	pthread_setcancelstate(door_thread.cancel_state, NULL);
}

EXPORT int pthread_cancel(pthread_t thread)
{
	atomic_store(&cancellation_used, true);
	return REAL(pthread_cancel)(thread);
}

EXPORT int clock_nanosleep(
	clockid_t clock, int flags, const struct timespec *time, struct timespec *left)
{
	if (!door_thread.inside)
		return REAL(clock_nanosleep)(clock, flags, time, left);
	return RAW(SYS_clock_nanosleep, (long)clock, (long)flags, time, left) < 0 ? errno : 0;
}

EXPORT ssize_t getrandom(void *buf, size_t n, unsigned flags)
{
	return door_thread.inside ? RAW(SYS_getrandom, buf, n, (unsigned long)flags)
				  : REAL(getrandom)(buf, n, flags);
}
