/* A program ends when its last thread has: main leaves by pthread_exit, and the others by whatever
 * way they like. libplfs's threads were counted among them, so that such a program went on for
 * ever, and SIGTERM, which they block, did not end it: no handler of exit ran, and what stdio held
 * was not written. */
#include "t.h"
#include <pthread.h>
#include <signal.h>

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

static void ends(const char *how)
{
	pthread_t thread;
	fd = open("log", O_RDWR | O_CREAT | O_TRUNC, 0644);
	/* A second one makes it a container, also with the workload auto. */
	pid_t pid = fork();
	if (pid == 0)
		_exit(open("log", O_RDWR) < 0);
	reap(pid);
	pthread_key_create(&key, of_thread);
	atexit(last_words);
	write(fd, "main ", 5);
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
	for (int i = 0; i < 10; i++)
		try("alone");
	return 0;
}
