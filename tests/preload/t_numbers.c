/* A thread puts files of its own at numbers that are free, by dup2, while others use files: a
 * program may, if nothing of it opens anything meanwhile. libplfs does, for a moment each: such a
 * descriptor was replaced by the program's, used in its place (blocks of a file went to /dev/null),
 * and closed. */
#include "t.h"
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#define FILES 4
#define BLOCK 5000

static int files[FILES];
static _Atomic int stops;
static long written[FILES];

static char letter(int file, long block)
{
	return (char)('a' + (block + file) % 26);
}

static void *uses_files(void *unused)
{
	static char block[BLOCK];
	(void)unused;
	for (int i = 0; !atomic_load(&stops); i = (i + 1) % FILES) {
		struct stat st;
		struct flock lock = {.l_type = i % 2 ? F_WRLCK : F_UNLCK, .l_whence = SEEK_SET};
		memset(block, letter(i, written[i]), BLOCK);
		if (pwrite(files[i], block, BLOCK, written[i] * BLOCK) != BLOCK ||
			fstat(files[i], &st) < 0 || fcntl(files[i], F_SETLK, &lock) < 0 ||
			(written[i] % 64 == 0 && fsync(files[i]) < 0) ||
			pread(files[i], block, BLOCK, written[i] / 2 * BLOCK) != BLOCK)
			printf("a call failed: %s\n", strerrorname_np(errno));
		written[i]++;
	}
	return NULL;
}

static long milliseconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int main(void)
{
	static char block[BLOCK];
	char name[8];
	int null = open("/dev/null", O_RDWR);
	for (int i = 0; i < FILES; i++) {
		snprintf(name, sizeof name, "f%d", i);
		files[i] = open(name, O_RDWR | O_CREAT, 0644);
	}
	int number = dup(null);
	close(number);
	pthread_t thread;
	pthread_create(&thread, NULL, uses_files, NULL);
	long failed = 0, closed = 0, until = milliseconds() + 2000;
	while (milliseconds() < until) {
		failed += dup2(null, number) != number;
		for (int i = 0; i < 20; i++)
			closed += fcntl(number, F_GETFD) < 0;
		close(number);
	}
	atomic_store(&stops, 1);
	pthread_join(thread, NULL);
	long other = 0;
	for (int i = 0; i < FILES; i++) {
		for (long at = 0; at < written[i]; at++) {
			char is = letter(i, at);
			other += pread(files[i], block, BLOCK, at * BLOCK) != BLOCK ||
				 block[0] != is || block[BLOCK - 1] != is;
		}
		snprintf(name, sizeof name, "f%d", i);
		close(files[i]);
		/* How much there is is chance. */
		unlink(name);
	}
	printf("%ld calls failed, %ld times closed by somebody else, %ld blocks are other ones\n",
		failed, closed, other);
	return 0;
}
