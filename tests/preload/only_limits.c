/* What libplfs keeps of a file and cannot keep in several files meets RLIMIT_FSIZE with EFBIG, and
 * never with SIGXFSZ: the superblock of a new file, the index log of one that is committed
 * thousands of times, and the copy of a program. What was committed before is there. */
#include "t.h"
#include <dlfcn.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>

static volatile int signals;

static void count(int sig)
{
	signals++;
}

static void limit(rlim_t bytes)
{
	struct rlimit limit;
	getrlimit(RLIMIT_FSIZE, &limit);
	limit.rlim_cur = bytes;
	setrlimit(RLIMIT_FSIZE, &limit);
}

int main(void)
{
	signal(SIGXFSZ, count);
	limit(1000);
	WANT(open("none", O_RDWR | O_CREAT, 0644) < 0 && errno == EFBIG);
	limit(65536);
	int fd = open("committed", O_RDWR | O_CREAT, 0644), i = 0;
	for (; i < 5000; i++)
		if (pwrite(fd, &i, sizeof i, i * sizeof i) < 0 || fsync(fd) < 0)
			break;
	int error = errno;
	WANT(error == EFBIG);
	WANT(i > 200 && i < 5000);
	WANT(signals == 0);
	WANT(close(fd) < 0 && errno == EFBIG);
	limit(RLIM_INFINITY);
	fd = open("committed", O_RDONLY);
	for (int at = 0; at < i; at++) {
		int got = -1;
		WANT(pread(fd, &got, sizeof got, at * sizeof got) == sizeof got && got == at);
	}
	close(fd);
	WANT(unlink("committed") == 0);

	/* A program or a library that lies here is copied to memory, which is a file for the
	 * kernel, too: who started one ended by SIGXFSZ. */
	WANT(system("cp /bin/true program") == 0);
	limit(8192);
	char *none[] = {NULL};
	pid_t pid;
	WANT(execv("./program", none) < 0 && errno == EFBIG);
	WANT(posix_spawn(&pid, "./program", NULL, NULL, none, environ) == EFBIG);
	WANT(dlopen("./program", RTLD_NOW) == NULL && dlerror());
	WANT(signals == 0);
	limit(RLIM_INFINITY);
	WANT(system("./program") == 0);
	return wrong;
}
