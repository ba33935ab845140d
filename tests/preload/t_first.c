/* Two threads open the first files of the program at once, and one of them prints to its own. Once
 * the second found libc's table of functions "taken over", while the first was still at it: so the
 * text went by libc's own write to the placeholder, and was lost (EBADF). In the same way it found
 * "faults are seen" where they were not yet, and a path that is no memory ended the program. And a
 * child that was forked meanwhile waited for ever for the thread that read the settings, and which
 * it did not have. */
#include "t.h"
#include <pthread.h>

static pthread_barrier_t both;

static void *open_first(void *unused)
{
	/* Its heap is there before. */
	free(malloc(100));
	pthread_barrier_wait(&both);
	return (void *)(intptr_t)(open("one", O_RDWR | O_CREAT, 0644) >= 0);
}

/* Runs this program again with a system call that takes long. */
static int run_slowly(char *self, const char *call, char *what)
{
	char trace[40], slow[60];
	snprintf(trace, sizeof trace, "trace=%s", call);
	snprintf(slow, sizeof slow, "inject=%s:delay_enter=150000", call);
	int rc = -1;
	/* strace at times forgets a process that it delays ("delayed wait data set already"), which
	 * waits for ever then. What the test is for happens each time. */
	for (int tries = 0; tries < 3 && rc != 0 && rc != 77; tries++) {
		pid_t pid = fork();
		if (pid == 0) {
			execlp("strace", "strace", "-f", "-o", "/dev/null", "-e", trace, "-e", slow,
				self, what, NULL);
			_exit(77);
		}
		rc = reap(pid);
	}
	return rc;
}

/* The second comes before the first one's handler for SIGSEGV is there, and between that and the
 * one for SIGBUS. */
static int faults(void)
{
	pthread_t thread;
	pthread_barrier_init(&both, NULL, 2);
	pthread_create(&thread, NULL, open_first, NULL);
	pthread_barrier_wait(&both);
	usleep(75000);
	R(open((char *)8, O_RDONLY));
	void *opened;
	pthread_join(thread, &opened);
	R(opened);
	return 0;
}

/* A fork in the middle of the first question, which asks for the clock. */
static int forks(void)
{
	pthread_t thread;
	pthread_barrier_init(&both, NULL, 2);
	pthread_create(&thread, NULL, open_first, NULL);
	pthread_barrier_wait(&both);
	usleep(75000);
	pid_t pid = fork();
	if (pid == 0) {
		alarm(30);
		_exit(open("two", O_RDWR | O_CREAT, 0644) < 0);
	}
	if (reap(pid))
		return 1;
	void *opened;
	pthread_join(thread, &opened);
	R(opened);
	return 0;
}

int main(int argc, char **argv)
{
	/* By mprotect the table is made one that can be written. */
	if (argc == 1) {
		int rc = run_slowly(argv[0], "mprotect", "streams");
		rc = rc ? rc : R(run_slowly(argv[0], "rt_sigaction", "faults"));
		return rc ? rc : R(run_slowly(argv[0], "prctl", "forks"));
	}
	if (!strcmp(argv[1], "forks"))
		return forks();
	if (!strcmp(argv[1], "faults"))
		return faults();
	pthread_t thread;
	pthread_barrier_init(&both, NULL, 2);
	pthread_create(&thread, NULL, open_first, NULL);
	pthread_barrier_wait(&both);
	/* The first has its own stack, and is at the table. */
	usleep(225000);
	int fd = open("two", O_RDWR | O_CREAT, 0644);
	R(dup2(fd, 2));
	R(fprintf(stderr, "text\n"));
	void *opened;
	pthread_join(thread, &opened);
	R(opened);
	show("two");
	return 0;
}
