/* The other ways to say what a signal does. What they install is what was asked for, with the flags
 * that each of them gives, and is called; a thread sleeps as long as it asked. Once a handler that
 * is for one signal took flags and mask with it when it was called. */
#include "t.h"

#include <signal.h>
#include <sys/random.h>
#include <time.h>

typedef void handler(int);
int __sigaction(int, const struct sigaction *, struct sigaction *);
handler *bsd_signal(int, handler *), *__sysv_signal(int, handler *);

static int calls, fd;

static void count(int sig)
{
	calls += write(fd, "x", 1);
}

static handler *by_sigaction(int sig, handler *wanted)
{
	struct sigaction action = {.sa_handler = wanted, .sa_flags = SA_NODEFER}, old;
	return __sigaction(sig, &action, &old) < 0 ? SIG_ERR : old.sa_handler;
}

static const char *name_of(handler *is)
{
	return is == count	? "count"
	       : is == SIG_DFL	? "default"
	       : is == SIG_IGN	? "ignored"
	       : is == SIG_ERR	? "error"
	       : is == SIG_HOLD ? "held"
				: "another";
}

static void asked(const char *what)
{
	struct sigaction is;
	sigset_t blocked;
	sigaction(SIGUSR1, NULL, &is);
	sigprocmask(SIG_BLOCK, NULL, &blocked);
	printf("%s: %s restarts %d resets %d defers %d blocked %d, %d calls\n", what,
		name_of(is.sa_handler), (is.sa_flags & SA_RESTART) != 0,
		(is.sa_flags & SA_RESETHAND) != 0, (is.sa_flags & SA_NODEFER) == 0,
		sigismember(&blocked, SIGUSR1), calls);
}

/* A call by its name, not by a pointer: `tested_calls` sees those. */
#define INSTALLS(install) \
	do { \
		printf("before: %s\n", name_of(install(SIGUSR1, count))); \
		asked(#install); \
		raise(SIGUSR1); \
		asked("raised"); \
		printf("was: %s\n", name_of(install(SIGUSR1, SIG_IGN))); \
		raise(SIGUSR1); \
		asked("ignored"); \
		printf("was: %s\n", name_of(install(SIGUSR1, SIG_DFL))); \
		R(install(SIGKILL, count) == SIG_ERR); \
		R(errno); \
		R(install(-1, count) == SIG_ERR); \
		R(errno); \
	} while (0)

int main(void)
{
	fd = make("f", "");
	INSTALLS(signal);
	INSTALLS(bsd_signal);
	INSTALLS(ssignal);
	INSTALLS(sysv_signal);
	INSTALLS(__sysv_signal);
	INSTALLS(sigset);
	INSTALLS(by_sigaction);
	/* Held, and let go. */
	sigset(SIGUSR1, count);
	printf("was: %s\n", name_of(sigset(SIGUSR1, SIG_HOLD)));
	raise(SIGUSR1);
	asked("held");
	printf("was: %s\n", name_of(sigset(SIGUSR1, count)));
	asked("let go");
	signal(SIGUSR1, count);
	R(siginterrupt(SIGUSR1, 1));
	asked("interrupts");
	R(siginterrupt(SIGUSR1, 0));
	asked("does not");

	struct timespec ms = {0, 1000000}, bad = {0, -1}, before, after;
	clock_gettime(CLOCK_MONOTONIC, &before);
	R(clock_nanosleep(CLOCK_MONOTONIC, 0, &ms, NULL));
	clock_gettime(CLOCK_MONOTONIC, &after);
	R((after.tv_sec - before.tv_sec) * 1000000000 + after.tv_nsec - before.tv_nsec >= 1000000);
	R(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &before, NULL));
	R(clock_nanosleep(CLOCK_MONOTONIC, 0, &bad, NULL));
	char random[16] = "";
	R(getrandom(random, sizeof random, 0));
	R(getrandom(random, sizeof random, 1 << 20));
	close(fd);
	show("f");
	return 0;
}
