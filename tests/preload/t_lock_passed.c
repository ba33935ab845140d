/* Record locks and descriptions that go to a child, to another program or through a message, where
 * the file gets a container meanwhile (auto): another process opens it for writing. */
#include "t.h"

#include <stdbool.h>

static int lock(int fd, int command, int type, off_t start)
{
	struct flock l = {.l_type = (short)type, .l_start = start, .l_len = 1};
	return fcntl(fd, command, &l);
}

/* A process that has nothing of ours open. */
static pid_t other_process(void)
{
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0)
		for (int fd = 3; fd < 60; fd++)
			close(fd);
	return pid;
}

/* Whether another process can lock a byte. */
static long other_gets(const char *path, off_t start)
{
	pid_t pid = other_process();
	if (pid == 0)
		_exit(lock(open(path, O_RDWR), F_OFD_SETLK, F_WRLCK, start) == 0 ? 1 : 2);
	return reap(pid);
}

static void opened_by_another(const char *path)
{
	pid_t pid = other_process();
	if (pid == 0)
		_exit(close(open(path, O_RDWR)));
	reap(pid);
}

static void run_again(const char *what, const char *path, int fd)
{
	char number[20];
	fflush(stdout);
	sprintf(number, "%d", fd);
	execl("/proc/self/exe", "t_lock_passed", what, path, number, NULL);
	_exit(99);
}

/* --- What a child locks by its parent's description is the description's: it was free when the
 * child ended, if the file got a container before the fork and the parent had not looked, or after
 * it. */

static void child_locks(const char *path, int fd, bool before, bool by_program)
{
	if (before)
		opened_by_another(path);
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		if (!before)
			opened_by_another(path);
		if (by_program)
			run_again("locks", path, fd);
		R(lock(fd, F_OFD_SETLK, F_WRLCK, 0));
		fflush(stdout);
		_exit(0);
	}
	R(reap(pid));
	R(other_gets(path, 0));
	R(lock(fd, F_OFD_SETLK, F_WRLCK, 0));
	R(lock(fd, F_OFD_SETLK, F_UNLCK, 0));
	R(other_gets(path, 0));
}

static void by_child(const char *path, int flags, bool before, bool by_program)
{
	close(make(path, "0123456789"));
	int fd = open(path, flags);
	child_locks(path, fd, before, by_program);
	close(fd);
}

/* And so for the program that a process has become which had had such locks: it did not know. */
static void after_exec(void)
{
	by_child("before", O_RDWR, true, false);
	by_child("after", O_RDWR, false, false);
}

int main(int argc, char **argv)
{
	int fd = argc > 3 ? atoi(argv[3]) : -1;
	if (argc > 1 && strcmp(argv[1], "locks") == 0) {
		R(lock(fd, F_OFD_SETLK, F_WRLCK, 0));
		return 0;
	}
	if (argc > 1 && strcmp(argv[1], "exec") == 0)
		return after_exec(), 0;
	fd = make("locked", "x");
	R(lock(fd, F_OFD_SETLK, F_WRLCK, 0));
	by_child("f1", O_RDWR, true, false);
	by_child("f2", O_RDWR, false, false);
	by_child("f3", O_WRONLY, true, true);
	by_child("f4", O_RDWR | O_APPEND, false, true);
	pid_t pid = fork();
	if (pid == 0)
		run_again("exec", "locked", fd);
	R(reap(pid));
	return 0;
}
