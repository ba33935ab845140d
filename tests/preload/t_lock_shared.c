/* Record locks of descriptors that a program has duplicated, or shares with another process. */
#include "t.h"

/* What a second process finds for bytes [start, start+len) of a file. */
static long probe_of(const char *path, off_t start, off_t len)
{
	int status;
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		int fd = open(path, O_RDWR);
		struct flock l = {.l_type = F_WRLCK, .l_start = start, .l_len = len};
		_exit(fcntl(fd, F_SETLK, &l) == 0 ? 1 : errno == EAGAIN || errno == EACCES ? 2 : 3);
	}
	waitpid(pid, &status, 0);
	return WEXITSTATUS(status);
}

static int lock(int fd, int command, int type, off_t start, off_t len)
{
	struct flock l = {.l_type = (short)type, .l_start = start, .l_len = len};
	return fcntl(fd, command, &l);
}

/* Locks of a plain file went to the number that its first lock was asked by. When that was closed,
 * and a duplicate went on, they were EBADF, or were taken on what else came to be at the number. */
static void by_a_duplicate(int command)
{
	int fd = make("f", "0123456789");
	R(lock(fd, command, F_WRLCK, 0, 2));
	int copy = dup(fd);
	R(close(fd));
	R(lock(copy, command, F_WRLCK, 4, 2));
	int other = make("other", "0123456789");
	R(other == fd);
	R(lock(copy, command, F_WRLCK, 6, 2));
	R(probe_of("f", 0, 2));
	R(probe_of("f", 4, 2));
	R(probe_of("f", 6, 2));
	R(probe_of("other", 0, 0));
	R(lock(copy, command, F_UNLCK, 6, 2));
	R(probe_of("f", 6, 2));
	R(close(other));
	R(probe_of("f", 4, 2));
	R(close(copy));
	R(probe_of("f", 0, 0));
}

/* --- Calls on the file's name, which must not cost the process its locks: truncate did. */

static void by_name(void)
{
	int fd = make("f", "0123456789");
	R(lock(fd, F_SETLK, F_WRLCK, 0, 5));
	R(truncate("f", 7));
	R(probe_of("f", 0, 5));
	R(lseek(fd, 0, SEEK_END));
	R(truncate("f", -1));
	symlink("f", "link");
	R(truncate("link", 4));
	R(probe_of("f", 0, 5));
	R(lseek(fd, 0, SEEK_END));
	unlink("link");
	close(fd);
}

/* --- A lock file came to have a number of the program's: 0, if that was free. */

static void numbers(void)
{
	fflush(stdout);
	int keep = dup(0), fd = make("f", "0123456789"), other = open("f", O_RDWR);
	close(0);
	long rc = lock(fd, F_SETLK, F_WRLCK, 0, 5), rc2 = lock(other, F_OFD_SETLK, F_WRLCK, 6, 1);
	struct stat st;
	long closed = fstat(0, &st), first = open("/dev/null", O_RDONLY),
	     second = open("/dev/null", O_RDONLY);
	R(rc);
	R(rc2);
	R(closed);
	R(first);
	R(second - other);
	R(probe_of("f", 0, 5));
	R(probe_of("f", 6, 1));
	R(close(second));
	R(close(other));
	R(probe_of("f", 0, 0));
	close(fd);
	dup2(keep, 0);
	close(keep);
}

int main(int argc, char **argv)
{
	by_a_duplicate(F_SETLK);
	by_a_duplicate(F_OFD_SETLK);
	by_name();
	numbers();
	return 0;
}
