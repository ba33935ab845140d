/* micro: nanoseconds of single calls.
 *
 *     micro DIR OTHER [CALLS]        DIR: the directory under test (a PLFS mount or not); OTHER: a
 * directory outside of it
 *
 * Prints one line of JSON: for each call the median over 9 rounds of CALLS calls each (default
 * 20,000; open and stat a tenth). It knows nothing of PLFS: what differs between a direct run and
 * one under `plfs run` is what PLFS costs.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 9, BLOCK = 4096 };

static char small[4096], big[4096], outside[4096], block[BLOCK];
static int null_fd, outside_fd, big_fd, first = 1;

static void die(const char *what)
{
	fprintf(stderr, "micro: %s: %s\n", what, strerror(errno));
	exit(1);
}

static int create(const char *path)
{
	unlink(path);
	int fd = open(path, O_RDWR | O_CREAT, 0644);
	if (fd < 0 || pwrite(fd, block, BLOCK, 0) != BLOCK)
		die(path);
	return fd;
}

static void open_close(long i)
{
	(void)i;
	int fd = open(small, O_RDONLY);
	if (fd < 0 || close(fd))
		die(small);
}

static void stat_name(long i)
{
	struct stat s;
	(void)i;
	if (stat(small, &s) || s.st_size != BLOCK)
		die(small);
}

static void null_pwrite(long i)
{
	if (pwrite(null_fd, block, 1, i) != 1)
		die("/dev/null");
}

static void other_pwrite(long i)
{
	(void)i;
	if (pwrite(outside_fd, block, BLOCK, 0) != BLOCK)
		die(outside);
}

/* Wraps after 16 MiB, so that memory does not grow without end on tmpfs. */
static void pwrite_4k(long i)
{
	if (pwrite(big_fd, block, BLOCK, i % 4096 * BLOCK) != BLOCK)
		die(big);
}

static void pread_4k(long i)
{
	if (pread(big_fd, block, BLOCK, i % 4096 * BLOCK) != BLOCK)
		die(big);
}

/* At the position that the descriptor has; all 4,096 calls go to the start again. */
static void write_64(long i)
{
	if ((i % 4096 == 0 && lseek(big_fd, 0, SEEK_SET)) || write(big_fd, block, 64) != 64)
		die(big);
}

static void read_64(long i)
{
	if ((i % 4096 == 0 && lseek(big_fd, 0, SEEK_SET)) || read(big_fd, block, 64) != 64)
		die(big);
}

static int by_value(const void *a, const void *b)
{
	double d = *(const double *)a - *(const double *)b;
	return (d > 0) - (d < 0);
}

static void measure(const char *name, void (*call)(long), long calls)
{
	double ns[ROUNDS];
	struct timespec from, to;
	for (int round = -1; round < ROUNDS; round++) { /* round -1 warms up */
		clock_gettime(CLOCK_MONOTONIC, &from);
		for (long i = 0; i < calls; i++)
			call(i);
		clock_gettime(CLOCK_MONOTONIC, &to);
		if (round >= 0)
			ns[round] = ((to.tv_sec - from.tv_sec) * 1e9 +
					    (to.tv_nsec - from.tv_nsec)) /
				    calls;
	}
	qsort(ns, ROUNDS, sizeof *ns, by_value);
	printf("%s\"%s_ns\": %.1f", first ? "{" : ", ", name, ns[ROUNDS / 2]);
	first = 0;
}

int main(int argc, char **argv)
{
	long calls = argc > 3 ? atol(argv[3]) : 20000;
	if (argc < 3 || calls < 10) {
		fprintf(stderr, "usage: micro DIR OTHER [CALLS]\n");
		return 2;
	}
	snprintf(small, sizeof small, "%s/micro.small", argv[1]);
	snprintf(big, sizeof big, "%s/micro.big", argv[1]);
	snprintf(outside, sizeof outside, "%s/micro.outside", argv[2]);
	outside_fd = create(outside);
	null_fd = open("/dev/null", O_WRONLY);
	measure("null_pwrite_1", null_pwrite, calls * 10);
	measure("other_pwrite_4k", other_pwrite, calls);

	close(create(small));
	big_fd = create(big);
	sleep(2); /* What is opened and looked at is a file that was there before, not one of this
		     moment. */

	/* A thread of PLFS writes in the background now, and libc's calls cost more in a process
	 * with threads. */
	measure("other_pwrite_4k_beside", other_pwrite, calls);
	measure("open_close", open_close, calls / 10);
	measure("stat", stat_name, calls / 10);
	measure("pwrite_4k", pwrite_4k, calls);
	measure("pread_4k", pread_4k, 4096);
	measure("write_64", write_64, calls);
	measure("read_64", read_64, calls);
	printf("}\n");

	close(big_fd);
	if (unlink(small) || unlink(big) || unlink(outside))
		die("unlink");
	return 0;
}
