/* A program whose table of descriptors is full closes copies of one, puts another file in the place
 * of the last, or closes it while a thread writes: with the workload auto libplfs wrote by the
 * number that went, found none to copy it to, and the file was EBADF for ever, with what was
 * written lost. */
#include "t.h"

#include <pthread.h>
#include <sys/resource.h>

#define LIMIT 64
static int taken[LIMIT], n;

/* Takes all numbers that are left, by copies of `fd`. */
static void fill(int fd)
{
	int copy;
	while ((copy = dup(fd)) >= 0)
		taken[n++] = copy;
	if (errno != EMFILE)
		perror("dup");
}

static void make_room(void)
{
	while (n > 0)
		close(taken[--n]);
}

/* All are copies of the one that is written. */
static void copies(const char *name)
{
	int fd = open(name, O_RDWR | O_CREAT, 0644), failed = 0;
	R(write(fd, "first", 5));
	fill(fd);
	R(write(fd, "more", 4));
	for (int i = 0; i < 20; i++) {
		failed += close(taken[--n]) != 0;
		failed += write(fd, "y", 1) != 1;
	}
	/* Full again, of another file: the copies that are left are all that there is. */
	int half = n, null = open("/dev/null", O_RDWR);
	fill(null);
	int last = taken[0];
	for (int i = 1; i < half; i++)
		failed += close(taken[i]) != 0;
	failed += close(fd) != 0;
	R(write(last, "z", 1) != 1);
	for (int i = half; i < n; i++)
		failed += close(taken[i]) != 0;
	failed += close(null) != 0;
	n = 0;
	printf("%d failed\n", failed);
	char bytes[100] = "";
	R(write(last, "end", 3));
	R(pread(last, bytes, 12, 0));
	printf("%s\n", bytes);
	R(fsync(last));
	R(close(last));
	show(name);
}

/* The one number of a file becomes another's. */
static void replaced(const char *name)
{
	int fd = open(name, O_RDWR | O_CREAT, 0644), null = open("/dev/null", O_RDWR);
	R(write(fd, "first", 5));
	fill(null);
	R(write(fd, "more", 4));
	R(dup2(null, fd) == fd);
	R(write(fd, "nowhere", 7));
	make_room();
	close(fd);
	close(null);
	show(name);
}

static _Atomic long written;

static void *write_until_closed(void *at)
{
	int fd = *(int *)at;
	while (pwrite(fd, "0123456789", 10, 10 * written) == 10)
		written++;
	return errno == EBADF ? NULL : at;
}

/* Closed under a thread that writes it. What was acknowledged is there. */
static void threads(const char *name)
{
	int bad = 0;
	for (int round = 0; round < 50; round++) {
		int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
		int null = open("/dev/null", O_RDONLY);
		pthread_t thread;
		void *wrong;
		written = 0;
		bad += fsync(fd) != 0;
		pthread_create(&thread, NULL, write_until_closed, &fd);
		while (written < 10)
			;
		fill(null);
		bad += close(fd) != 0;
		pthread_join(thread, &wrong);
		bad += wrong != NULL;
		make_room();
		close(null);
		struct stat st;
		bad += stat(name, &st) != 0 || st.st_size < 10 * written;
	}
	unlink(name);
	printf("%d bad\n", bad);
}

int main(void)
{
	struct rlimit limit = {LIMIT, LIMIT};
	if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
		return 1;
	copies("copies");
	replaced("replaced");
	threads("threads");
	return 0;
}
