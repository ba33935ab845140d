/* A program ends when its last thread has: main leaves by pthread_exit, and the others by whatever
 * way they like. libplfs's threads were counted among them, so that such a program went on for
 * ever, and SIGTERM, which they block, did not end it: no handler of exit ran, and what stdio held
 * was not written. The thread that then ended it opened a descriptor for each look: it took numbers
 * that the program counted on, and with a full table or a limit of 0 it never saw anything. It saw
 * too much while a thread of the program began one of libplfs's, and ended the program under it.
 * And where there was no memory for it at that moment nobody made it later. Nor did a program end
 * that left by SYS_exit. */
#include "t.h"
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>

static int fd;
static pthread_key_t key;

static void last_words(void)
{
	write(fd, "exit ", 5);
}

static void of_thread(void *word)
{
	write(fd, word, strlen(word));
}

static void *writes(void *word)
{
	pthread_setspecific(key, "key ");
	if (word)
		usleep(50000);
	write(fd, "thread ", 7);
	return NULL;
}

static void *forks(void *unused)
{
	(void)unused;
	/* Main has ended by then: a child of the moment when it loads libgcc for that aborts. */
	usleep(100000);
	pid_t pid = fork();
	if (pid == 0) {
		write(fd, "child ", 6);
		pthread_exit(NULL);
	}
	int status = -1;
	waitpid(pid, &status, 0);
	dprintf(fd, "status %x ", status);
	return NULL;
}

/* glibc's pthread_create calls it: here a thread that is begun on this one is slow to come. */
extern void *__libc_calloc(size_t n, size_t size);
static __thread volatile int is_slow;

void *calloc(size_t n, size_t size)
{
	if (is_slow)
		usleep(20000);
	return __libc_calloc(n, size);
}

/* The first write of the process begins a thread of libplfs's. */
static void *begins_another(void *unused)
{
	is_slow = 1;
	write(fd, "thread ", 7);
	is_slow = 0;
	usleep(100000);
	write(fd, "goes on ", 8);
	return unused;
}

static void limit(int resource, rlim_t soft)
{
	struct rlimit limits;
	getrlimit(resource, &limits);
	limits.rlim_cur = soft;
	setrlimit(resource, &limits);
}

static void *fills_table(void *unused)
{
	limit(RLIMIT_NOFILE, 40);
	while (dup(fd) >= 0)
		;
	return unused;
}

static void *takes_table(void *unused)
{
	write(fd, "thread ", 7);
	limit(RLIMIT_NOFILE, 0);
	return unused;
}

static rlim_t memory;

static void no_memory(void *unused)
{
	(void)unused;
	struct rlimit limits;
	getrlimit(RLIMIT_AS, &limits);
	memory = limits.rlim_cur;
	limit(RLIMIT_AS, 1);
}

static void *gives_memory(void *unused)
{
	usleep(50000);
	limit(RLIMIT_AS, memory);
	write(fd, "thread ", 7);
	return unused;
}

static double seconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Nobody else opens or closes anything. */
static void *counts_on_numbers(void *unused)
{
	/* Main opens libgcc to end. */
	usleep(100000);
	int closed = 0, others = 0, given = dup(fd), next = dup(fd);
	close(next);
	for (double end = seconds() + 1.5; seconds() < end;) {
		dup2(given, next);
		for (volatile int i = 0; i < 100; i++)
			;
		closed += fcntl(next, F_GETFD) < 0;
		close(next);
		int got = dup(given);
		others += got != next;
		close(got);
	}
	dprintf(fd, "%s closed, %s others ", closed ? "some" : "none", others ? "some" : "no");
	return unused;
}

static void *waits(void *unused)
{
	(void)unused;
	for (;;)
		pause();
}

static void blocked(int unused)
{
	(void)unused;
	write(fd, "handler ", 8);
}

static void *leaves(void *unused)
{
	(void)unused;
	pthread_exit(NULL);
}

/* Has libc load libgcc for pthread_exit, for which there is no room once the table is full: it
 * would abort the program, a plain one, too. */
static void know_libgcc(void)
{
	pthread_t thread;
	pthread_create(&thread, NULL, leaves, NULL);
	pthread_join(thread, NULL);
}

static void ends(const char *how)
{
	pthread_t thread;
	/* What libplfs says of bytes that are lost would be a difference. */
	dup2(1, 2);
	fd = open("log", O_RDWR | O_CREAT | O_TRUNC, 0644);
	/* A second one makes it a container, also with the workload auto. */
	pid_t pid = fork();
	if (pid == 0)
		_exit(open("log", O_RDWR) < 0);
	reap(pid);
	pthread_key_create(&key, of_thread);
	atexit(last_words);
	if (strcmp(how, "begins") == 0) {
		pthread_create(&thread, NULL, begins_another, NULL);
		usleep(10000);
		pthread_exit(NULL);
	}
	write(fd, "main ", 5);
	if (strcmp(how, "full table") == 0) {
		know_libgcc();
		pthread_create(&thread, NULL, fills_table, NULL);
		pthread_exit(NULL);
	}
	if (strcmp(how, "no table") == 0) {
		know_libgcc();
		pthread_create(&thread, NULL, takes_table, NULL);
		pthread_exit(NULL);
	}
	FILE *stream = fopen("out", "w");
	fprintf(stream, "buffered");
	if (strcmp(how, "alone") == 0)
		pthread_exit(NULL);
	if (strcmp(how, "key") == 0) {
		pthread_setspecific(key, "key ");
		pthread_exit(NULL);
	}
	if (strcmp(how, "before") == 0) {
		pthread_create(&thread, NULL, writes, NULL);
		pthread_join(thread, NULL);
		pthread_exit(NULL);
	}
	if (strcmp(how, "after") == 0) {
		pthread_create(&thread, NULL, writes, "");
		pthread_exit(NULL);
	}
	if (strcmp(how, "forks") == 0) {
		pthread_create(&thread, NULL, forks, NULL);
		pthread_exit(NULL);
	}
	if (strcmp(how, "waits") == 0) {
		pthread_create(&thread, NULL, waits, NULL);
		pthread_exit(NULL);
	}
	if (strcmp(how, "by system call") == 0)
		syscall(SYS_exit, 7);
	if (strcmp(how, "numbers") == 0) {
		pthread_create(&thread, NULL, counts_on_numbers, NULL);
		pthread_exit(NULL);
	}
	if (strcmp(how, "no memory") == 0) {
		/* When libc has loaded what it needs for that. */
		pthread_create(&thread, NULL, gives_memory, NULL);
		pthread_cleanup_push(no_memory, NULL);
		pthread_exit(NULL);
		pthread_cleanup_pop(0);
	}
	if (strcmp(how, "pending") == 0) {
		sigset_t set;
		sigemptyset(&set);
		sigaddset(&set, SIGUSR1);
		signal(SIGUSR1, blocked);
		pthread_sigmask(SIG_BLOCK, &set, NULL);
		kill(getpid(), SIGUSR1);
		pthread_exit(NULL);
	}
	_exit(3);
}

static void try(const char *how)
{
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0)
		ends(how);
	int status = 0, looks = 0;
	if (strcmp(how, "waits") == 0) {
		struct stat st = {0};
		while ((stat("log", &st) < 0 || st.st_size == 0) && looks++ < 1000)
			usleep(10000);
		usleep(200000);
		kill(pid, SIGTERM);
	}
	while (waitpid(pid, &status, WNOHANG) == 0 && looks++ < 1000)
		usleep(10000);
	if (looks >= 1000) {
		kill(pid, SIGKILL);
		waitpid(pid, &status, 0);
	}
	char text[200] = "";
	struct stat st = {0};
	int log = open("log", O_RDONLY);
	read(log, text, sizeof text - 1);
	close(log);
	stat("out", &st);
	printf("%s: %s, status %x, \"%s\", %lld bytes of a stream\n", how,
		looks >= 1000 ? "goes on for ever" : "ends", status, text, (long long)st.st_size);
	unlink("log");
	unlink("out");
}

int main(void)
{
	try("alone");
	try("key");
	try("before");
	try("after");
	try("forks");
	try("waits");
	try("pending");
	try("begins");
	try("full table");
	try("no table");
	try("numbers");
	try("by system call");
	try("no memory");
	for (int i = 0; i < 10; i++)
		try("alone");
	return 0;
}
