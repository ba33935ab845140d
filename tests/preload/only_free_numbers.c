/* All numbers are the program's as long as its files are plain: libplfs had two, to which dup2 was
 * EBUSY, and with which its table was full that much earlier. With containers it has those that D6
 * says; the number of the memory that descriptions are in goes to whom the program gives it. */
#include "t.h"

#include <spawn.h>
#include <sys/resource.h>

#define LIMIT 200

static int open_now(void)
{
	int n = 0;
	for (int fd = 0; fd < LIMIT; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

/* The number of what descriptions are in. */
static int number_of_memory(void)
{
	char link[64], to[64];
	for (int fd = 0; fd < LIMIT; fd++) {
		snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
		ssize_t n = readlink(link, to, sizeof to - 1);
		to[n > 0 ? n : 0] = 0;
		if (strstr(to, "plfs-descriptions"))
			return fd;
	}
	return -1;
}

/* At 4. */
static int ten_bytes(const char *name)
{
	int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
	WANT(fd >= 0 && write(fd, "0123456789", 10) == 10 && lseek(fd, 4, SEEK_SET) == 4);
	return fd;
}

/* Opens files until the table is full. */
static void fill(int before)
{
	char name[20];
	int fds[LIMIT], n = 0;
	for (; n < LIMIT; n++) {
		sprintf(name, "g%d", n);
		if ((fds[n] = open(name, O_RDWR | O_CREAT, 0644)) < 0)
			break;
	}
	int error = errno;
	WANT(error == EMFILE && n == LIMIT - before && number_of_memory() == -1);
	for (int i = 0; i < n; i++)
		WANT(write(fds[i], "line\n", 5) == 5 && close(fds[i]) == 0);
}

static void plain(void)
{
	int before = open_now(), fd = ten_bytes("f"), null = open("/dev/null", O_RDWR);
	WANT(number_of_memory() > null);
	for (int to = null + 1; to < LIMIT; to++)
		WANT(dup2(null, to) == to);
	WANT(number_of_memory() == -1);
	for (int to = null; to < LIMIT; to++)
		WANT(close(to) == 0);
	WANT(write(fd, "x", 1) == 1 && lseek(fd, 0, SEEK_CUR) == 5 && close(fd) == 0);
	for (int i = 0; i < 3; i++)
		fill(before);

	/* What is opened when there is room is found by children again, and from then on they are
	 * not cut off. */
	fd = ten_bytes("f");
	pid_t child = fork();
	if (child == 0)
		_exit(write(fd, "y", 1) != 1);
	WANT(reap(child) == 0 && lseek(fd, 0, SEEK_CUR) == 5 && number_of_memory() >= 0);
	while (open("/dev/null", O_RDONLY) >= 0)
		;
	WANT(open("one more", O_RDWR | O_CREAT, 0644) == -1 && number_of_memory() >= 0);
	for (int to = fd; to < LIMIT; to++)
		close(to);
}

/* A program that it starts has the position still. */
static void with_container(char *self)
{
	int fd = ten_bytes("c"), null = open("/dev/null", O_RDWR), memory = number_of_memory();
	/* What fails leaves it there. */
	WANT(dup2(LIMIT - 1, memory) == -1 && errno == EBADF);
	memory = number_of_memory();
	WANT(memory >= 0 && dup2(null, memory) == memory && number_of_memory() >= 0);
	WANT(number_of_memory() != memory && write(memory, "nowhere", 7) == 7);
	char number[20];
	sprintf(number, "%d", fd);
	pid_t child = fork();
	if (child == 0)
		_exit(execl(self, self, "child", number, NULL));
	WANT(reap(child) == 0 && lseek(fd, 0, SEEK_CUR) == 6);

	/* So has one that starts with all numbers closed, or with another file at this one: it
	 * wrote near 2^40. */
	char *const argv[] = {self, "child", number, NULL};
	posix_spawn_file_actions_t closes, replaces;
	posix_spawn_file_actions_init(&closes);
	for (int to = fd + 1; to < LIMIT; to++)
		posix_spawn_file_actions_addclose(&closes, to);
	posix_spawn_file_actions_init(&replaces);
	posix_spawn_file_actions_adddup2(&replaces, null, number_of_memory());
	WANT(posix_spawn(&child, self, &closes, NULL, argv, environ) == 0 && reap(child) == 0);
	WANT(lseek(fd, 0, SEEK_CUR) == 8);
	WANT(posix_spawn(&child, self, &replaces, NULL, argv, environ) == 0 && reap(child) == 0);
	WANT(lseek(fd, 0, SEEK_CUR) == 10 && close(fd) == 0);
}

int main(int argc, char **argv)
{
	struct rlimit limit = {LIMIT, LIMIT};
	if (argc == 3)
		return write(atoi(argv[2]), "xy", 2) != 2;
	if (argc == 1) {
		setrlimit(RLIMIT_NOFILE, &limit);
		setenv("PLFS_WORKLOAD", "auto", 1);
		plain();
		setenv("PLFS_WORKLOAD", "shared", 1);
		if (!wrong)
			execl(argv[0], argv[0], "shared", NULL);
		return 1;
	}
	with_container(argv[0]);
	return wrong;
}
