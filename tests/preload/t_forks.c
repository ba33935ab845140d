/* A thread makes files and writes them while another one starts programs. Of a file that was made
 * when the fork had begun the child had the position of that moment, and gave it to the kernel when
 * it executed the program: the next write of the thread went to the beginning of its file. The
 * stress found it, as a position of 0. */
#include "t.h"
#include <pthread.h>
#include <stdatomic.h>

#define FORKS 500
#define PIECES 3
#define GENERATIONS 150

static _Atomic int done;

static void *make_files(void *wrong)
{
	char text[PIECES * 10 + 1];
	while (!atomic_load(&done)) {
		int fd = open("new", O_RDWR | O_CREAT | O_EXCL, 0644);
		for (int i = 0; i < PIECES; i++) {
			write(fd, "0123456789", 10);
			usleep(300);
		}
		ssize_t n = pread(fd, text, sizeof text, 0);
		*(int *)wrong += n != PIECES * 10 || lseek(fd, 0, SEEK_CUR) != PIECES * 10;
		close(fd);
		unlink("new");
	}
	return NULL;
}

/* A chdir in a process that knows a directory of small files took a lock which a fork beside it
 * left to the child, that waited for it for ever. */
static void *change_directory(void *failed)
{
	for (int i = 0; !atomic_load(&done); i++) {
		*(int *)failed += chdir(".") != 0;
		if (i % 100 == 0)
			usleep(100);
	}
	return NULL;
}

/* A process kept the memory of the positions of all before it, each with a memory of its own, and
 * had no room for more than 64. All write by one descriptor. */
static int generations(int trail, int left)
{
	int own = open("own", O_RDWR | O_CREAT, 0644);
	if (own < 0 || write(own, "1", 1) != 1 || close(own) < 0 || write(trail, "2", 1) != 1)
		return 1;
	pid_t child = left > 0 ? fork() : -1;
	if (child == 0)
		_exit(generations(trail, left - 1));
	return child > 0 ? reap(child) : left;
}

/* Who forked held the lock of the table while it waited for a read under way, that waited for the
 * numbers, and those a dup2 held, that waited for the table. The stress found it. */
static int from;

static void *duplicate(void *failed)
{
	while (!atomic_load(&done))
		*(int *)failed += dup2(from, 90) != 90;
	close(90);
	return NULL;
}

/* By descriptors that no child has yet: their locks are the process's own. */
static void *seek(void *failed)
{
	while (!atomic_load(&done)) {
		int fd = open("position", O_RDWR);
		for (int i = 0; i < 20; i++)
			*(int *)failed += lseek(fd, 0, SEEK_CUR) != 0;
		close(fd);
	}
	return NULL;
}

static int forks_beside_dup2(void)
{
	pthread_t threads[3];
	int failed[4] = {0};
	char name[] = "position0";
	from = open("position", O_RDWR | O_CREAT, 0644);
	atomic_store(&done, 0);
	for (int i = 0; i < 3; i++)
		pthread_create(&threads[i], NULL, i < 2 ? seek : duplicate, &failed[i]);
	for (int i = 0; i < FORKS; i++) {
		name[8] = (char)('0' + i % 8);
		int fd = open(name, O_RDWR | O_CREAT, 0644);
		pid_t pid = fork();
		if (pid == 0)
			_exit(0);
		failed[3] += reap(pid) != 0;
		close(fd);
	}
	atomic_store(&done, 1);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	return failed[0] + failed[1] + failed[2] + failed[3];
}

int main(void)
{
	pthread_t thread, other;
	int wrong = 0, failed = 0, stayed = 0;
	pthread_create(&thread, NULL, make_files, &wrong);
	pthread_create(&other, NULL, change_directory, &stayed);
	for (int i = 0; i < FORKS; i++) {
		pid_t pid = fork();
		if (pid == 0) {
			execlp("true", "true", NULL);
			_exit(1);
		}
		failed += reap(pid) != 0;
	}
	atomic_store(&done, 1);
	pthread_join(thread, NULL);
	pthread_join(other, NULL);
	R(stayed);
	R(failed);
	R(wrong);
	R(forks_beside_dup2());
	int trail = open("trail", O_RDWR | O_CREAT, 0644);
	fflush(stdout);
	R(generations(trail, GENERATIONS));
	R(lseek(trail, 0, SEEK_CUR));
	return 0;
}
