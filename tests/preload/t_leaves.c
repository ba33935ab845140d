/* Threads write while another one makes calls by which the library gives to the storage all that
 * the process has written, whatever file they are for: those that set times, sync file systems,
 * start programs, change the user. That was to commit, and then to drop the writer with what had
 * been written in between: writes had returned, fsync and close returned 0, and hundreds of
 * them read as zeros. Here each is there, at once and in the end. */
#include "t.h"

#include <pthread.h>
#include <spawn.h>
#include <utime.h>

enum { WRITES = 20000, RECORD = 48 };

extern char **environ;
static _Atomic int writers;
static int at_offsets, appended;
static char outside[300];

static void by_utime(void)
{
	utime(outside, NULL);
}

static void by_utimensat(void)
{
	struct timespec times[2] = {{5, 0}, {6, 0}};
	utimensat(AT_FDCWD, outside, times, 0);
}

static void by_syncfs(void)
{
	static int memory = -1;
	if (memory < 0)
		memory = open("/dev/shm", O_RDONLY | O_DIRECTORY);
	syncfs(memory);
}

/* They fail after all was given away. */
static void by_spawn(void)
{
	pid_t pid;
	char *none[] = {"none", NULL};
	posix_spawn(&pid, "./none", NULL, NULL, none, environ);
}

static void by_exec(void)
{
	char *none[] = {"none", NULL};
	execv("./none", none);
}

static void by_user(void)
{
	seteuid(geteuid());
}

static void make_record(char *record, int i)
{
	memset(record, 'a' + i % 26, RECORD);
	memcpy(record, &i, sizeof i);
}

/* How many of the records of a file are not what was written. */
static int wrong_records(int fd, int n)
{
	int bad = 0;
	for (int i = 0; i < n; i++) {
		char record[RECORD], got[RECORD];
		make_record(record, i);
		bad += pread(fd, got, RECORD, (off_t)i * RECORD) != RECORD ||
		       memcmp(got, record, RECORD) != 0;
	}
	return bad;
}

static void *writer(void *appends)
{
	long bad = 0;
	for (int i = 0; i < WRITES; i++) {
		char record[RECORD], got[RECORD];
		make_record(record, i);
		ssize_t n = appends ? write(appended, record, RECORD)
				    : pwrite(at_offsets, record, RECORD, (off_t)i * RECORD);
		bad += n != RECORD;
		if (i % 64 == 0)
			bad += pread(appends ? appended : at_offsets, got, RECORD,
				       (off_t)i * RECORD) != RECORD ||
			       memcmp(got, record, RECORD) != 0;
	}
	writers--;
	return (void *)bad;
}

static void beside(const char *what, void (*leave)(void))
{
	at_offsets = open("at_offsets", O_RDWR | O_CREAT | O_TRUNC, 0644);
	appended = open("appended", O_RDWR | O_CREAT | O_TRUNC | O_APPEND, 0644);
	writers = 2;
	pthread_t threads[2];
	for (int t = 0; t < 2; t++)
		pthread_create(&threads[t], NULL, writer, t ? &appended : NULL);
	do
		leave();
	while (writers > 0);
	long bad = 0;
	for (int t = 0; t < 2; t++) {
		void *of_thread;
		pthread_join(threads[t], &of_thread);
		bad += (long)of_thread;
	}
	printf("%s: %ld failed, %d and %d lost", what, bad, wrong_records(at_offsets, WRITES),
		wrong_records(appended, WRITES));
	printf(", fsync %d %d", fsync(at_offsets), fsync(appended));
	printf(", close %d %d", close(at_offsets), close(appended));
	at_offsets = open("at_offsets", O_RDONLY);
	appended = open("appended", O_RDONLY);
	printf(", %d and %d lost later\n", wrong_records(at_offsets, WRITES),
		wrong_records(appended, WRITES));
	close(at_offsets);
	close(appended);
}

int main(void)
{
	setvbuf(stdout, NULL, _IONBF, 0);
	snprintf(outside, sizeof outside, "%s/t_leaves.outside", getenv("T_BIN"));
	close(make(outside, ""));
	beside("utime", by_utime);
	beside("utimensat", by_utimensat);
	beside("syncfs", by_syncfs);
	beside("posix_spawn", by_spawn);
	beside("exec", by_exec);
	beside("seteuid", by_user);
	unlink(outside);
	return 0;
}
