/* Threads that write, read, seek, dup2, fork, print to streams, leave handlers by siglongjmp and
 * start programs, all at random, while a timer's handler opens, writes and closes: each knows what
 * its files must hold, and says where they do not. What is random comes from PLFS_SEED. It takes
 * PLFS_STRESS_S seconds, by default 4. */
#include "t.h"
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/file.h>
#include <sys/time.h>
#include <time.h>

enum { THREADS = 4, ROOM = 1 << 16, PIECE = 3000 };

static _Atomic long signals, mismatches, operations;
static _Atomic int stop;
static int signal_log;
static unsigned long seed;

struct file {
	char name[20];
	int fd;
	long at, len;
	char holds[ROOM + PIECE];
};

struct work {
	unsigned long random;
	int number;
	struct file files[2];
	/* A third number, on one of the two. */
	int copy, of;
	FILE *stream;
	long lines;
};

static unsigned long next(struct work *w)
{
	w->random ^= w->random << 13;
	w->random ^= w->random >> 7;
	w->random ^= w->random << 17;
	return w->random;
}

#define CHECK(w, e) \
	do { \
		if (!(e)) { \
			mismatches++; \
			fprintf(stderr, "seed %lu, thread %d, line %d: not %s (%s)\n", seed, \
				(w)->number, __LINE__, #e, strerrorname_np(errno)); \
		} \
	} while (0)

static void on_timer(int sig)
{
	int saved = errno;
	long n = signals++;
	int fd = n % 8 ? signal_log : open("signals", O_WRONLY | O_APPEND);
	if (fd < 0 || write(fd, "signal.\n", 8) != 8)
		mismatches++;
	if (fd != signal_log && close(fd) < 0)
		mismatches++;
	errno = saved;
}

static __thread sigjmp_buf back;
static __thread int is_jumping;

static void on_jump(int sig)
{
	if (is_jumping)
		siglongjmp(back, 1);
}

static void fill(struct work *w, char *piece, long n)
{
	for (long i = 0; i < n; i++)
		piece[i] = 'a' + next(w) % 26;
}

static void put(struct file *f, long at, const char *piece, long n)
{
	if (at > f->len)
		memset(f->holds + f->len, 0, at - f->len);
	memcpy(f->holds + at, piece, n);
	if (at + n > f->len)
		f->len = at + n;
}

/* Another process has written the file: a lock that is granted shows it (S2). */
static void acquire(struct work *w, int fd)
{
	CHECK(w, flock(fd, LOCK_SH) == 0 && flock(fd, LOCK_UN) == 0);
}

static void step(struct work *w)
{
	char piece[PIECE], got[PIECE];
	struct file *f = &w->files[next(w) % 2];
	long n = 1 + next(w) % (next(w) % 4 ? 64 : PIECE - 1), at = next(w) % (ROOM - PIECE);
	int fd = w->of == f - w->files && next(w) % 2 ? w->copy : f->fd;
	fill(w, piece, n);
	switch (next(w) % 24) {
	case 0 ... 4:
		if (f->at + n > ROOM)
			CHECK(w, lseek(fd, f->at = 0, SEEK_SET) == 0);
		CHECK(w, write(fd, piece, n) == n);
		put(f, f->at, piece, n);
		f->at += n;
		break;
	case 5 ... 7:
		CHECK(w, pwrite(fd, piece, n, at) == n);
		put(f, at, piece, n);
		break;
	case 8 ... 11: {
		long there = f->at >= f->len ? 0 : f->len - f->at < n ? f->len - f->at : n;
		CHECK(w, read(fd, got, n) == there);
		CHECK(w, memcmp(got, f->holds + f->at, there) == 0);
		f->at += there;
		break;
	}
	case 12 ... 13: {
		long there = at >= f->len ? 0 : f->len - at < n ? f->len - at : n;
		CHECK(w, pread(fd, got, n, at) == there);
		CHECK(w, memcmp(got, f->holds + at, there) == 0);
		break;
	}
	case 14:
		CHECK(w, lseek(fd, at, SEEK_SET) == at);
		f->at = at;
		break;
	case 15:
		w->of = next(w) % 2;
		CHECK(w, dup2(w->files[w->of].fd, w->copy) == w->copy);
		break;
	case 16:
		CHECK(w, close(f->fd) == 0);
		CHECK(w, (f->fd = open(f->name, O_RDWR)) >= 0);
		f->at = 0;
		if (w->of == f - w->files)
			CHECK(w, dup2(f->fd, w->copy) == w->copy);
		break;
	case 17:
		at %= f->len + 1;
		CHECK(w, ftruncate(fd, at) == 0);
		f->len = at;
		break;
	case 18 ... 20:
		CHECK(w, fprintf(w->stream, "%d %7ld\n", w->number, w->lines) == 10);
		w->lines++;
		if (next(w) % 64 == 0)
			CHECK(w, fflush(next(w) % 2 ? NULL : w->stream) == 0);
		break;
	case 21: {
		if (next(w) % 4)
			break;
		/* The child moves the position of what it shares. */
		if (f->at + n > ROOM)
			break;
		pid_t pid = fork();
		if (pid == 0)
			_exit(write(fd, piece, n) != n);
		int status = -1;
		CHECK(w, waitpid(pid, &status, 0) == pid && status == 0);
		acquire(w, fd);
		put(f, f->at, piece, n);
		f->at += n;
		break;
	}
	case 22: {
		struct stat st;
		CHECK(w, fstat(fd, &st) == 0 && st.st_size == f->len);
		is_jumping = 1;
		if (!sigsetjmp(back, 1)) {
			pthread_kill(pthread_self(), SIGUSR1);
			for (;;)
				pread(fd, got, n, at);
		}
		is_jumping = 0;
		break;
	}
	case 23: {
		/* The shell knows numbers of one digit. */
		if (next(w) % 32 || f->at + 4 > ROOM || f->fd >= 10)
			break;
		char command[60];
		sprintf(command, "printf more >&%d", f->fd);
		CHECK(w, system(command) == 0);
		acquire(w, f->fd);
		put(f, f->at, "more", 4);
		f->at += 4;
		break;
	}
	}
	operations++;
}

static void *work(void *argument)
{
	struct work *w = argument;
	while (!stop)
		step(w);
	return NULL;
}

int main(void)
{
	const char *s = getenv("PLFS_SEED"), *seconds = getenv("PLFS_STRESS_S");
	seed = s ? strtoul(s, NULL, 10) : (unsigned long)time(NULL);
	static struct work all[THREADS];
	pthread_t threads[THREADS];
	signal_log = open("signals", O_WRONLY | O_CREAT | O_APPEND, 0644);
	for (int t = 0; t < THREADS; t++) {
		struct work *w = &all[t];
		w->random = (seed + 1) * 0x9e3779b97f4a7c15 + t * 0xd1b54a32d192ed03;
		w->number = t;
		for (int i = 0; i < 2; i++) {
			sprintf(w->files[i].name, "f%d.%d", t, i);
			w->files[i].fd = open(w->files[i].name, O_RDWR | O_CREAT, 0644);
		}
		w->copy = dup(w->files[0].fd);
		char name[20];
		sprintf(name, "lines.%d", t);
		w->stream = fopen(name, "w");
	}
	struct sigaction action = {.sa_handler = on_timer, .sa_flags = SA_RESTART};
	sigaction(SIGALRM, &action, NULL);
	action.sa_handler = on_jump;
	sigaction(SIGUSR1, &action, NULL);
	struct itimerval timer = {{0, 5000}, {0, 5000}};
	setitimer(ITIMER_REAL, &timer, NULL);
	for (int t = 0; t < THREADS; t++)
		pthread_create(&threads[t], NULL, work, &all[t]);
	time_t end = time(NULL) + (seconds ? atoi(seconds) : 4);
	while (time(NULL) < end)
		usleep(50000);
	stop = 1;
	for (int t = 0; t < THREADS; t++)
		pthread_join(threads[t], NULL);
	timer = (struct itimerval){0};
	setitimer(ITIMER_REAL, &timer, NULL);

	struct stat st;
	for (int t = 0; t < THREADS; t++) {
		struct work *w = &all[t];
		static char got[ROOM + PIECE];
		for (int i = 0; i < 2; i++) {
			struct file *f = &w->files[i];
			CHECK(w, pread(f->fd, got, sizeof got, 0) == f->len);
			CHECK(w, memcmp(got, f->holds, f->len) == 0);
			CHECK(w, ftruncate(f->fd, 0) == 0);
		}
		CHECK(w, fflush(w->stream) == 0);
		char name[20];
		sprintf(name, "lines.%d", t);
		CHECK(w, stat(name, &st) == 0 && st.st_size == w->lines * 10);
		CHECK(w, ftruncate(fileno(w->stream), 0) == 0);
	}
	if (fstat(signal_log, &st) < 0 || st.st_size != signals * 8)
		printf("%ld signals, %ld bytes\n", (long)signals, (long)st.st_size);
	truncate("signals", 0);
	fprintf(stderr, "%ld operations, %ld signals\n", (long)operations, (long)signals);
	printf("%ld mismatches\n", (long)mismatches);
	return mismatches != 0 || operations < 100;
}
