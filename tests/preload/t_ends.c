/* A signal that ends the program: what write returned for is there, as on a plain file. A log of a
 * simulation was empty after SIGTERM, SIGSEGV or abort: its last second, or all of it, was in the
 * memory of the process. */
#include "t.h"
#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>

enum { THREADS = 4, RECORD = 40, ROUNDS = 12 };

/* Records of each thread that write has returned for; shared with the parent. */
static _Atomic long *done;

static const int endings[] = {SIGHUP, SIGINT, SIGQUIT, SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE,
	SIGUSR1, SIGSEGV, SIGUSR2, SIGPIPE, SIGALRM, SIGTERM, SIGSTKFLT, SIGXCPU, SIGXFSZ,
	SIGVTALRM, SIGPROF, SIGIO, SIGPWR, SIGSYS};

static void no_core(void)
{
	struct rlimit none = {0, 0};
	setrlimit(RLIMIT_CORE, &none);
}

static int begin(void)
{
	no_core();
	int fd = open("log", O_RDWR | O_CREAT | O_TRUNC, 0644);
	/* A second writer, so that a file that was plain has a container. */
	int other = open("log", O_WRONLY);
	return fd < 0 || other < 0 || write(fd, "first ", 6) != 6 ||
			       pwrite(other, "second ", 7, 6) != 7 || lseek(fd, 13, SEEK_SET) != 13
		       ? -1
		       : fd;
}

static void by_raise(int sig)
{
	raise(sig);
}

static void by_kill(int sig)
{
	kill(getpid(), sig);
	for (;;)
		pause();
}

static void by_abort(int sig)
{
	(void)sig;
	abort();
}

static void by_fault(int sig)
{
	(void)sig;
	*(volatile int *)16 = 1;
}

static void *pulls(void *thread)
{
	(void)thread;
	for (;;)
		pause();
}

static void by_breakpoint(int sig)
{
	(void)sig;
#if defined(__x86_64__)
	__asm__ volatile("int3");
#else
	raise(SIGTRAP);
#endif
}

static void by_trap(int sig)
{
	(void)sig;
	__builtin_trap();
}

static void by_division(int sig)
{
	volatile int zero = sig - SIGFPE;
	/* Not a fault on every machine. */
	zero = 1 / zero;
	raise(sig);
}

static void by_end_of_map(int sig)
{
	(void)sig;
	int fd = memfd_create("short", 0);
	volatile char *map = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE, fd, 0);
	(void)map[4096];
}

static void by_thread(int sig)
{
	pthread_t thread;
	pthread_create(&thread, NULL, pulls, NULL);
	pthread_kill(thread, sig);
	for (;;)
		pause();
}

static void by_pipe(int sig)
{
	int fds[2];
	(void)sig;
	if (pipe(fds) == 0 && close(fds[0]) == 0)
		write(fds[1], "x", 1);
}

static void by_limit(int sig)
{
	(void)sig;
	struct rlimit limit = {100000, 100000};
	setrlimit(RLIMIT_FSIZE, &limit);
	int fd = open("limited", O_WRONLY | O_CREAT, 0644);
	pwrite(fd, "x", 1, 200000);
}

static void by_timer(int sig)
{
	(void)sig;
	ualarm(10000, 0);
	for (;;)
		pause();
}

static void again(int sig)
{
	int fd = open("log", O_WRONLY);
	pwrite(fd, "handler ", 8, 19);
	signal(sig, SIG_DFL);
	raise(sig);
}

static void by_handler(int sig)
{
	signal(sig, again);
	raise(sig);
}

static void only_once(int sig)
{
	(void)sig;
}

static void by_reset(int sig)
{
	struct sigaction action = {.sa_handler = only_once, .sa_flags = (int)SA_RESETHAND};
	sigaction(sig, &action, NULL);
	raise(sig);
	int fd = open("log", O_WRONLY);
	pwrite(fd, "once ", 5, 19);
	raise(sig);
}

static void by_unblock(int sig)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, sig);
	sigprocmask(SIG_BLOCK, &set, NULL);
	raise(sig);
	int fd = open("log", O_WRONLY);
	pwrite(fd, "blocked ", 8, 19);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
}

/* On an alternate stack as small as they come. */
static void by_small_stack(int sig)
{
	static char memory[1 << 14];
	stack_t stack = {.ss_sp = memory, .ss_size = (size_t)sysconf(_SC_MINSIGSTKSZ)};
	sigaltstack(&stack, NULL);
	raise(sig);
}

/* What a stranger broke it with. */

static void writes_handler(int sig)
{
	(void)sig;
	if (write(1, "", 0) == 0)
		close(open("log", O_WRONLY | O_APPEND));
}

/* A handler ran in the middle of the commit, and waited for its own thread. */
static void beside_a_handler(int sig)
{
	signal(SIGUSR1, writes_handler);
	setitimer(ITIMER_REAL, &(struct itimerval){{0, 300}, {0, 300}}, NULL);
	signal(SIGALRM, writes_handler);
	if (fork() == 0) {
		signal(SIGALRM, SIG_IGN);
		usleep(50000);
		kill(getppid(), sig);
		_exit(0);
	}
	int fd = open("beside", O_RDWR | O_CREAT | O_TRUNC, 0644), other = open("beside", O_WRONLY);
	for (long i = 0;; i++)
		pwrite(i % 2 ? fd : other, "beside", 6, i * 7919 % 100000 * 100);
}

static sigjmp_buf back;

static void jumps(int sig)
{
	(void)sig;
	siglongjmp(back, 1);
}

/* A handler that had waited for the same call left by siglongjmp, and the signal was forgotten. */
static void before_a_jump(int sig)
{
	signal(SIGUSR1, jumps);
	size_t n = 64 << 20;
	char *much = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memset(much, 1, n);
	int fd = open("beside", O_RDWR | O_CREAT | O_TRUNC, 0644);
	volatile bool is_asked = false;
	while (sigsetjmp(back, 1) == 0) {
		/* Not before the handler has a place to jump to. */
		if (!is_asked) {
			is_asked = true;
			if (fork() == 0) {
				usleep(3000);
				kill(getppid(), sig);
				usleep(1000);
				kill(getppid(), SIGUSR1);
				_exit(0);
			}
		}
		pwrite(fd, much, n, 0);
	}
	sleep(1);
}

static char *page;

static atomic_bool faults;

static void *mends(void *unused)
{
	while (!atomic_load(&faults))
		;
	mmap(page, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	return unused;
}

/* Another thread mended the fault while this one committed. */
static void by_fault_that_is_mended(int sig)
{
	pthread_t thread;
	(void)sig;
	page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int fd = open("beside", O_RDWR | O_CREAT | O_TRUNC, 0644), other = open("beside", O_WRONLY);
	for (long i = 0; i < 50000; i++)
		pwrite(i % 2 ? fd : other, "beside", 6, i * 7919 % 50000 * 100);
	pthread_create(&thread, NULL, mends, NULL);
	atomic_store(&faults, true);
	*(volatile char *)page = 1;
}

static void says(int sig)
{
	int fd = open("log", O_WRONLY);
	(void)sig;
	pwrite(fd, "said ", 5, 19);
}

/* abort sets SIG_DFL in libc when the handler has returned. */
static void by_abort_behind_a_handler(int sig)
{
	signal(sig, says);
	assert(false);
}

static void *runs(void *unused)
{
	system("sleep 0.2");
	return unused;
}

/* system() had it ignored while the file was opened, and put SIG_DFL back in libc. */
static void after_system(int sig)
{
	pthread_t thread;
	pthread_create(&thread, NULL, runs, NULL);
	usleep(100000);
	int fd = begin();
	write(fd, "third ", 6);
	pthread_join(thread, NULL);
	raise(sig);
}

static void *executes(void *unused)
{
	usleep(500);
	execl("/bin/sleep", "sleep", "2", (char *)NULL);
	return unused;
}

static unsigned after_us;

/* An exec of another thread ended the one that committed, and with it the signal. If the exec comes
 * first it is the new program's. Between exec's own commit and the kernel's exec one was lost in
 * 60. */
static void beside_an_exec(int sig)
{
	pthread_t thread;
	int fd = open("beside", O_RDWR | O_CREAT | O_TRUNC, 0644), other = open("beside", O_WRONLY);
	for (long i = 0; i < 50000; i++)
		pwrite(i % 2 ? fd : other, "beside", 6, i * 7919 % 50000 * 100);
	if (fork() == 0) {
		usleep(after_us);
		kill(getppid(), sig);
		_exit(0);
	}
	pthread_create(&thread, NULL, executes, NULL);
	for (;;)
		pause();
}

/* The child of a clone has the handler, and not what the parent has open. */
static void in_a_clone(int sig)
{
	pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0L, 0L, 0L, 0L);
	if (pid == 0)
		for (;;)
			syscall(SYS_ppoll, NULL, 0L, NULL, NULL, 0L);
	usleep(1000);
	kill(pid, sig);
	int fd = open("log", O_WRONLY);
	pwrite(fd, reap(pid) == -sig ? "ended " : "lives ", 6, 19);
	if (close(fd) == 0)
		raise(sig);
}

/* The kernel spares the first process of a container; it hung. */
static void as_the_first_process(int sig)
{
	if (unshare(CLONE_NEWPID) < 0)
		_exit(77);
	pid_t pid = fork();
	if (pid == 0) {
		int fd = begin();
		raise(sig);
		_exit(write(fd, "spared ", 7) == 7 && close(fd) == 0 ? 3 : 4);
	}
	_exit(reap(pid));
}

static int ends(void (*how)(int), int sig)
{
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		int fd = begin();
		if (fd < 0 || write(fd, "third ", 6) != 6)
			_exit(1);
		how(sig);
		_exit(2);
	}
	return reap(pid);
}

static void dies(const char *name, void (*how)(int), int sig)
{
	int end = ends(how, sig);
	/* One in thousands is lost between the kernel and the handler's first instructions, as
	 * SEMANTICS says. */
	if (how == beside_an_exec && end == 0)
		end = ends(how, sig);
	printf("%s %d: %d, ", name, sig, end);
	show("log");
}

/* What the program asks of a signal is what it has said, whoever else has. */
static void asked(void)
{
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		signal(SIGHUP, SIG_IGN);
		struct sigaction action, after;
		sigaction(SIGUSR2, NULL, &action);
		begin();
		for (int i = 0; i < 3; i++) {
			int sig = (int[]){SIGTERM, SIGHUP, SIGUSR2}[i];
			sigaction(sig, NULL, &action);
			printf("%d: %s, %x\n", sig,
				action.sa_handler == SIG_DFL   ? "default"
				: action.sa_handler == SIG_IGN ? "ignored"
							       : "another",
				action.sa_flags & ~0x04000000);
		}
		raise(SIGHUP);
		R(signal(SIGTERM, SIG_IGN) == SIG_DFL);
		raise(SIGTERM);
		R(signal(SIGTERM, again) == SIG_IGN);
		R(signal(SIGTERM, SIG_DFL) == again);
		sigaction(SIGTERM, &(struct sigaction){.sa_handler = SIG_IGN}, &after);
		printf("%s\n", after.sa_handler == SIG_DFL ? "default" : "another");
		/* Those stay what they are. */
		raise(SIGCHLD);
		raise(SIGURG);
		raise(SIGWINCH);
		fflush(stdout);
		_exit(0);
	}
	printf("asked: %d\n", reap(pid));
}

static void *writes(void *argument)
{
	long thread = (long)argument;
	char record[RECORD + 1];
	int fd = open("many", O_WRONLY);
	for (long i = 0; fd >= 0; i++) {
		snprintf(record, sizeof record, "%*ld", RECORD, i);
		if (pwrite(fd, record, RECORD, (i * THREADS + thread) * RECORD) != RECORD)
			break;
		atomic_store(&done[thread], i + 1);
	}
	return NULL;
}

static bool is_there(int fd, long thread, long i)
{
	char wanted[RECORD + 1], record[RECORD + 1] = "";
	snprintf(wanted, sizeof wanted, "%*ld", RECORD, i);
	return pread(fd, record, RECORD, (i * THREADS + thread) * RECORD) == RECORD &&
	       strcmp(record, wanted) == 0;
}

/* While threads write, from outside. */
static void while_it_writes(void)
{
	unsigned seed = (unsigned)time(NULL);
	done = mmap(NULL, THREADS * sizeof *done, PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int wrong = 0;
	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < THREADS; i++)
			atomic_store(&done[i], 0);
		fflush(stdout);
		pid_t pid = fork();
		if (pid == 0) {
			no_core();
			int fd = open("many", O_RDWR | O_CREAT | O_TRUNC, 0644);
			pthread_t thread;
			for (long i = 0; fd >= 0 && i < THREADS; i++)
				pthread_create(&thread, NULL, writes, (void *)i);
			for (;;)
				pause();
		}
		/* Each has written, and some time more. */
		for (int i = 0; i < THREADS; i++)
			while (atomic_load(&done[i]) == 0)
				usleep(100);
		usleep(rand_r(&seed) % 20000);
		int sig = endings[rand_r(&seed) % (sizeof endings / sizeof *endings)];
		kill(pid, sig);
		int how = reap(pid);
		if (how != -sig) {
			wrong++;
			fprintf(stderr, "ended by %d, not %d\n", how, -sig);
		}
		int fd = open("many", O_RDONLY);
		for (long thread = 0; thread < THREADS; thread++)
			for (long i = 0; i < atomic_load(&done[thread]); i++)
				if (!is_there(fd, thread, i) && wrong++ < 10)
					fprintf(stderr,
						"signal %d, round %d: thread %ld, %ld of %ld\n",
						sig, round, thread, i, atomic_load(&done[thread]));
		close(fd);
	}
	unlink("many");
	printf("while it writes: %d wrong\n", wrong);
}

int main(void)
{
	for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
		dies("raise", by_raise, endings[i]);
	dies("kill", by_kill, SIGTERM);
	dies("abort", by_abort, SIGABRT);
	dies("fault", by_fault, SIGSEGV);
	dies("breakpoint", by_breakpoint, SIGTRAP);
	dies("trap", by_trap, SIGILL);
	dies("division", by_division, SIGFPE);
	dies("end of map", by_end_of_map, SIGBUS);
	dies("thread", by_thread, SIGTERM);
	dies("pipe", by_pipe, SIGPIPE);
	dies("limit", by_limit, SIGXFSZ);
	dies("timer", by_timer, SIGALRM);
	dies("handler", by_handler, SIGTERM);
	dies("reset", by_reset, SIGINT);
	dies("unblock", by_unblock, SIGUSR1);
	dies("small stack", by_small_stack, SIGTERM);
	dies("beside a handler", beside_a_handler, SIGTERM);
	dies("before a jump", before_a_jump, SIGTERM);
	dies("mended", by_fault_that_is_mended, SIGSEGV);
	dies("abort behind a handler", by_abort_behind_a_handler, SIGABRT);
	dies("system", after_system, SIGINT);
	for (after_us = 300; after_us <= 1000; after_us += 100)
		dies("exec", beside_an_exec, SIGTERM);
	dies("clone", in_a_clone, SIGTERM);
	dies("first", as_the_first_process, SIGTERM);
	unlink("beside");
	asked();
	while_it_writes();
	return 0;
}
