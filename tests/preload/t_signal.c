/* Handlers of signals that read, write, open, fork, leave by siglongjmp and exit, while the program
 * is in the middle of writes, opens and mallocs of its own. Once such a call went around libplfs:
 * an open gave a writable descriptor of the superblock, a read the superblock's bytes, a write was
 * EBADF; exit and fork hung. */
#include "t.h"
#include <stdbool.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/time.h>
#include <time.h>

enum { ROUNDS = 40 };

static int data, other;
static volatile int calls, bad;
static sigjmp_buf back;

static void start_timer(int us)
{
	struct itimerval timer = {{0, us}, {0, us}};
	setitimer(ITIMER_REAL, &timer, NULL);
}

static void in_write(int sig)
{
	bad += write(other, "handler\n", 8) != 8;
	calls++;
}

static void in_read(int sig)
{
	char buf[8];
	bad += pread(other, buf, 8, 0) != 8 || memcmp(buf, "original", 8);
	calls++;
}

static void in_open(int sig)
{
	int fd = open("log", O_WRONLY | O_APPEND);
	bad += fd < 0 || write(fd, "again\n", 6) != 6 || close(fd) < 0;
	calls++;
}

static void in_create(int sig)
{
	char name[20];
	snprintf(name, sizeof name, "new.%d", calls);
	int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	bad += fd < 0 || write(fd, name, strlen(name)) != strlen(name) || close(fd) < 0;
	bad += calls % 2 == 1 && unlink(name) < 0;
	calls++;
}

static void in_fork(int sig)
{
	pid_t pid = fork();
	if (pid == 0) {
		int fd = open("log", O_WRONLY | O_APPEND);
		_exit(fd < 0 || write(fd, "child\n", 6) != 6);
	}
	int status = -1;
	bad += waitpid(pid, &status, 0) != pid || status != 0;
	calls++;
}

static void in_jump(int sig)
{
	calls++;
	siglongjmp(back, 1);
}

static void in_exit(int sig)
{
	exit(7);
}

static void in_abort(int sig)
{
	int fd = open("log", O_WRONLY | O_APPEND);
	if (fd < 0 || write(fd, "last\n", 5) != 5)
		_exit(1);
	abort();
}

/* What the program does meanwhile. Not malloc if the handler forks, or jumps away: fork waits for
 * malloc's lock in every program that has threads, of which libplfs is one, and who jumps out of
 * malloc leaves it locked. */
static void busy(int i, bool leaves_malloc)
{
	static char block[4096];
	bad += pwrite(data, block, sizeof block, i % 64 * 4096) != sizeof block;
	if (i % 16 == 0 && !leaves_malloc)
		free(malloc(100000));
	if (i % 64 == 0) {
		int fd = open("data", O_RDONLY);
		bad += fd < 0 || close(fd) < 0;
	}
	if (i % 512 == 0)
		bad += fsync(data) < 0;
}

/* The timer comes once for each: it may be shorter than the handler takes. */
static void during(const char *what, void (*handler)(int))
{
	struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
	sigaction(SIGALRM, &action, NULL);
	calls = bad = 0;
	for (int i = 0; calls < ROUNDS; i++) {
		int before = calls;
		struct itimerval once = {{0, 0}, {0, 200 + i * 37 % 1000}};
		/* Who jumps knows where to before the timer can come. */
		bool jumps = handler == in_jump && !sigsetjmp(back, 1);
		if (handler == in_jump && !jumps)
			continue;
		setitimer(ITIMER_REAL, &once, NULL);
		for (int k = 0; jumps || calls == before; k++)
			busy(k, handler == in_fork || handler == in_jump);
	}
	printf("%s: %d calls, %d bad\n", what, calls, bad);
}

static int end_of(void (*handler)(int))
{
	pid_t pid = fork();
	if (pid == 0) {
		signal(SIGALRM, handler);
		start_timer(3000);
		for (int i = 0;; i++)
			busy(i, false);
	}
	int status = -1;
	for (int ms = 0; ms < 20000; ms++, usleep(1000))
		if (waitpid(pid, &status, WNOHANG) == pid)
			return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
	kill(pid, SIGKILL);
	return 1000;
}

static void in_the_end(int sig)
{
	bad += pwrite(other, "original", 8, 0) != 8 || pwrite(data, "handler", 7, 0) != 7;
}

/* Signals come while exit commits. The handlers of exit once ran outside of the
 * door, and a call in a handler waited for what its own thread had locked. */
static void ends_beside_signals(void)
{
	int right = 0;
	for (int i = 0; i < ROUNDS; i++) {
		pid_t pid = fork();
		if (pid == 0) {
			signal(SIGALRM, in_the_end);
			for (int k = 0; k < 8; k++) {
				char name[20];
				snprintf(name, sizeof name, "end.%d", k);
				int fd = open(name, O_RDWR | O_CREAT, 0644);
				bad += fd < 0 || pwrite(fd, name, 5, i * 10) != 5;
			}
			/* The first one comes soon, the next ones when its handler is through. */
			struct itimerval timer = {{0, 3000}, {0, 1 + i * 15}};
			setitimer(ITIMER_REAL, &timer, NULL);
			exit(bad ? 1 : 6);
		}
		int status = -1;
		for (int ms = 0; ms < 20000 && waitpid(pid, &status, WNOHANG) != pid; ms++)
			usleep(1000);
		right += status == 6 << 8;
		if (status == -1) {
			kill(pid, SIGKILL);
			break;
		}
	}
	printf("ends beside signals: %d\n", right);
}

static void queued(int sig, siginfo_t *info, void *context)
{
	static int next = 1;
	bad += info->si_value.sival_int != next++ || info->si_code != SI_QUEUE ||
	       info->si_pid != getppid();
	calls++;
}

/* Real-time signals: none is lost, their order and values stay. */
static void real_time(void)
{
	int ready[2];
	pipe(ready);
	pid_t pid = fork();
	if (pid == 0) {
		struct sigaction action = {.sa_sigaction = queued, .sa_flags = SA_SIGINFO};
		sigaction(SIGRTMIN + 3, &action, NULL);
		write(ready[1], "x", 1);
		for (int i = 0; calls < 200; i++)
			busy(i, false);
		_exit(bad);
	}
	char byte;
	read(ready[0], &byte, 1);
	for (int i = 1; i <= 200; i++)
		while (sigqueue(pid, SIGRTMIN + 3, (union sigval){.sival_int = i}) < 0)
			usleep(100);
	int status;
	waitpid(pid, &status, 0);
	printf("200 real-time signals: %d\n", status);
}

static void nothing(int sig)
{
	calls++;
}

/* What sigaction and signal say of handlers that were set before. */
static void answers(void)
{
	struct sigaction action = {.sa_handler = nothing, .sa_flags = SA_RESETHAND | SA_NODEFER},
			 old;
	sigemptyset(&action.sa_mask);
	sigaddset(&action.sa_mask, SIGUSR2);
	R(sigaction(SIGUSR1, &action, NULL));
	R(sigaction(SIGUSR1, NULL, &old));
	printf("%d %x %d\n", old.sa_handler == nothing, old.sa_flags & ~0x04000000,
		sigismember(&old.sa_mask, SIGUSR2));
	calls = 0;
	raise(SIGUSR1);
	sigaction(SIGUSR1, NULL, &old);
	printf("%d %d\n", calls, old.sa_handler == SIG_DFL);
	printf("%d\n", signal(SIGUSR1, nothing) == SIG_DFL);
	sigaction(SIGUSR1, NULL, &old);
	printf("%x\n", old.sa_flags & ~0x04000000);
	R(siginterrupt(SIGUSR1, 1));
	sigaction(SIGUSR1, NULL, &old);
	printf("%x\n", old.sa_flags & ~0x04000000);
	printf("%d\n", signal(SIGUSR1, SIG_IGN) == nothing);
	printf("%d\n", signal(SIGUSR1, SIG_DFL) == SIG_IGN);
	sigaction(SIGSEGV, NULL, &old);
	printf("%d %x\n", old.sa_handler == SIG_DFL, old.sa_flags & ~0x04000000);
	R(sigaction(SIGKILL, &action, NULL));
	R(sigaction(65, &action, NULL));
	R((long)signal(0, nothing));
}

/* Bad pointers are EFAULT, and what dies of its own fault dies as ever. */
static void faults(void)
{
	int fd = make("small", "hello");
	struct stat st;
	R(write(fd, (void *)8, 100));
	R(pwrite(fd, (void *)8, 5, 0));
	R(pread(fd, (void *)8, 5, 0));
	R(read(fd, (void *)"constant", 5));
	R(readv(fd, (void *)16, 2));
	R(fstat(fd, (void *)8));
	R(open((char *)8, O_RDONLY));
	R(stat((char *)8, &st));
	R(unlink((char *)8));
	R(rename((char *)8, "x"));
	R(pread(fd, (void *)8, 5, 100));
	R(lseek(fd, 0, SEEK_CUR));
	close(fd);
	show("small");
	pid_t pid = fork();
	if (pid == 0) {
		*(volatile char *)8 = 1;
		_exit(0);
	}
	int status;
	waitpid(pid, &status, 0);
	printf("%d\n", WTERMSIG(status));
}

static void *writes_for_ever(void *argument)
{
	for (;;)
		pwrite(data, "x", 1, 0);
}

static void *goes_on_for_ever(void *argument)
{
	for (;;)
		write(data, "x", 1);
}

static void *gathers_for_ever(void *argument)
{
	struct iovec part = {"x", 1};
	for (;;)
		writev(data, &part, 1);
}

static void *reads_for_ever(void *argument)
{
	char byte;
	for (;;)
		pread(data, &byte, 1, 0);
}

static void cancelled(void *(*run)(void *))
{
	pthread_t thread;
	void *result = NULL;
	pthread_create(&thread, NULL, run, NULL);
	usleep(20000);
	pthread_cancel(thread);
	pthread_join(thread, &result);
	printf("cancelled: %d\n", result == PTHREAD_CANCELED);
}

int main(void)
{
	setvbuf(stdout, NULL, _IONBF, 0);
	data = open("data", O_RDWR | O_CREAT | O_TRUNC, 0644);
	other = open("other", O_RDWR | O_CREAT | O_TRUNC, 0644);
	write(other, "original", 8);
	close(make("log", "first\n"));
	during("write", in_write);
	during("read", in_read);
	during("open", in_open);
	during("create", in_create);
	during("fork", in_fork);
	during("siglongjmp", in_jump);
	printf("exit: %d\n", end_of(in_exit));
	printf("abort: %d\n", end_of(in_abort));
	ends_beside_signals();
	real_time();
	answers();
	faults();
	cancelled(writes_for_ever);
	cancelled(goes_on_for_ever);
	cancelled(gathers_for_ever);
	cancelled(reads_for_ever);

	/* A FIFO that nobody opens: the signal ends the wait. */
	struct sigaction action = {.sa_handler = nothing};
	sigaction(SIGALRM, &action, NULL);
	mkfifo("fifo", 0600);
	start_timer(20000);
	R(open("fifo", O_RDONLY));
	start_timer(0);
	ftruncate(data, 0);
	return 0;
}
