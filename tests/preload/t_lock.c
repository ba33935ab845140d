/* Record locks, flock and lockf, seen from another process. */
#include "t.h"

#include <sys/file.h>

/* What a second process finds for bytes [start, start+len). */
static long probe(int type, off_t start, off_t len)
{
	int status;
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		int fd = open("f", O_RDWR);
		struct flock l = {.l_type = (short)type,
			.l_whence = SEEK_SET,
			.l_start = start,
			.l_len = len};
		_exit(fcntl(fd, F_SETLK, &l) == 0 ? 1 : errno == EAGAIN || errno == EACCES ? 2 : 3);
	}
	waitpid(pid, &status, 0);
	return WEXITSTATUS(status);
}

static long probe_flock(int operation)
{
	int status;
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0)
		_exit(flock(open("f", O_RDWR), operation | LOCK_NB) == 0 ? 1
			: errno == EWOULDBLOCK				 ? 2
									 : 3);
	waitpid(pid, &status, 0);
	return WEXITSTATUS(status);
}

/* A user who may read the file and not write it. Read locks needed the right to write: they are
 * taken on a file that such a user cannot make. */
static void who_may_only_read(void)
{
	if (geteuid() != 0) {
		puts("only root can be another user");
		return;
	}
	int asked[2], told[2], fd = make("read", "0123456789");
	char byte;
	R(close(fd));
	pipe(asked);
	pipe(told);
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		struct flock l = {
			.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = 2, .l_len = 3};
		int reader = open("read", O_RDONLY), other = open("read", O_RDONLY);
		R(read(reader, &byte, 1));
		R(setresgid(65534, 65534, 65534));
		R(setresuid(65534, 65534, 65534));
		R(fcntl(reader, F_SETLK, &l));
		l.l_type = F_WRLCK;
		R(fcntl(reader, F_SETLK, &l));
		R(fcntl(reader, F_GETLK, &l));
		R(l.l_type == F_UNLCK);
		fflush(stdout);
		write(told[1], "x", 1);
		read(asked[0], &byte, 1);
		/* Half of it, by another descriptor. */
		l = (struct flock){
			.l_type = F_UNLCK, .l_whence = SEEK_SET, .l_start = 2, .l_len = 2};
		R(fcntl(other, F_SETLK, &l));
		fflush(stdout);
		write(told[1], "x", 1);
		read(asked[0], &byte, 1);
		/* The writer has the first byte. */
		l = (struct flock){
			.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
		R(fcntl(reader, F_SETLK, &l));
		l.l_type = F_RDLCK;
		R(fcntl(reader, F_GETLK, &l));
		R(l.l_type == F_WRLCK);
		R(close(other));
		fflush(stdout);
		write(told[1], "x", 1);
		read(asked[0], &byte, 1);
		_exit(0);
	}
	read(told[0], &byte, 1);
	struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 4, .l_len = 1};
	fd = open("read", O_RDWR);
	R(fcntl(fd, F_SETLK, &l));
	l = (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 0};
	R(fcntl(fd, F_GETLK, &l));
	R(l.l_type == F_RDLCK);
	R(l.l_start);
	R(l.l_len);
	l = (struct flock){.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 0};
	R(fcntl(fd, F_SETLK, &l));
	l = (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
	R(fcntl(fd, F_SETLK, &l));
	fflush(stdout);
	write(asked[1], "x", 1);
	read(told[0], &byte, 1);
	l = (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 2, .l_len = 2};
	R(fcntl(fd, F_SETLK, &l));
	l = (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 2, .l_len = 3};
	R(fcntl(fd, F_SETLK, &l));
	fflush(stdout);
	write(asked[1], "x", 1);
	read(told[0], &byte, 1);
	/* Closing a descriptor of the file has dropped the locks of its process. */
	R(fcntl(fd, F_SETLKW, &l));
	fflush(stdout);
	write(asked[1], "x", 1);
	R(reap(pid));
	R(close(fd));
}

/* Locks by one descriptor were lost when the next lock was asked for by another one, which opened
 * the lock file once more, and closed what it had opened. */
static void by_two_descriptors(void)
{
	int first = make("f", "0123456789"), second = open("f", O_RDWR);
	struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 2};
	R(fcntl(first, F_SETLK, &l));
	l.l_start = 5;
	R(fcntl(second, F_SETLK, &l));
	R(probe(F_WRLCK, 0, 1));
	R(probe(F_WRLCK, 5, 1));
	R(probe(F_WRLCK, 2, 3));
	l.l_start = 1;
	l.l_type = F_UNLCK;
	R(fcntl(second, F_SETLK, &l));
	R(probe(F_WRLCK, 0, 1));
	R(probe(F_WRLCK, 1, 1));
	R(close(first));
	R(probe(F_WRLCK, 0, 0));
	R(close(second));
}

/* The first lock of an open file description cost the process those that it had: another process
 * got the same one. */
static void of_both_kinds(void)
{
	int mine = open("both", O_RDWR | O_CREAT, 0644), another = open("both", O_RDWR);
	write(mine, "0123456789", 10);
	struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 5}, of_process = l;
	R(fcntl(mine, F_SETLK, &l));
	l = (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 50, .l_len = 1};
	R(fcntl(another, F_OFD_GETLK, &l));
	R(l.l_type);
	l.l_type = F_WRLCK;
	R(fcntl(mine, F_OFD_SETLK, &l));
	l = of_process;
	R(fcntl(another, F_OFD_SETLK, &l));
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		R(fcntl(mine, F_SETLK, &of_process));
		exit(0);
	}
	R(reap(pid));
	close(another);
	close(mine);
}

/* Ranges that there are not are EINVAL or EOVERFLOW, before anybody looks at the lock or how the
 * file is open: those were EBADF. F_TEST said EACCES of what others had locked for reading. */
static void bad_ranges(void)
{
	int writes = open("f", O_WRONLY), fd = open("f", O_RDWR);
	struct flock l = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = 3, .l_len = -4};
	R(fcntl(writes, F_SETLK, &l));
	l.l_len = -3;
	R(fcntl(writes, F_SETLK, &l));
	R(fcntl(fd, F_SETLK, &l));
	l = (struct flock){.l_type = F_RDLCK, .l_whence = SEEK_END, .l_start = -11};
	R(fcntl(writes, F_OFD_SETLK, &l));
	l = (struct flock){.l_type = F_RDLCK, .l_whence = SEEK_END, .l_start = INT64_MAX};
	R(fcntl(writes, F_SETLK, &l));
	l = (struct flock){.l_type = F_RDLCK, .l_start = INT64_MAX, .l_len = 2};
	R(fcntl(writes, F_SETLK, &l));
	l = (struct flock){.l_type = 77};
	R(fcntl(writes, F_SETLK, &l));
	l = (struct flock){.l_type = F_RDLCK};
	R(fcntl(fd, F_SETLK, &l));
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		R(lockf(fd, F_TEST, 10));
		R(lockf(fd, F_TLOCK, 10));
		exit(0);
	}
	R(reap(pid));
	close(writes);
	close(fd);
}

int main(void)
{
	int fd = make("f", "0123456789");
	struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 2, .l_len = 3};
	R(fcntl(fd, F_SETLK, &l));
	R(probe(F_WRLCK, 0, 2));
	R(probe(F_WRLCK, 0, 3));
	R(probe(F_RDLCK, 4, 1));
	R(probe(F_RDLCK, 5, 0));
	l.l_type = F_UNLCK;
	R(fcntl(fd, F_SETLKW, &l));
	R(probe(F_WRLCK, 0, 0));
	/* From the end and from the position. */
	l = (struct flock){.l_type = F_RDLCK, .l_whence = SEEK_END, .l_start = -2, .l_len = 0};
	R(fcntl(fd, F_SETLK, &l));
	R(probe(F_WRLCK, 7, 1));
	R(probe(F_WRLCK, 8, 1));
	R(probe(F_RDLCK, 8, 1));
	R(probe(F_WRLCK, 1000, 1));
	/* Closing any descriptor of the file drops the locks. */
	int other = open("f", O_RDONLY);
	R(close(other));
	R(probe(F_WRLCK, 8, 1));
	R(lseek(fd, 5, SEEK_SET));
	R(lockf(fd, F_TLOCK, 2));
	R(probe(F_RDLCK, 5, 1));
	R(probe(F_RDLCK, 7, 1));
	R(lockf(fd, F_TEST, 2));
	R(lockf(fd, F_ULOCK, 2));
	R(probe(F_RDLCK, 5, 1));
	R(lockf(fd, 77, 2));
	int ro = open("f", O_RDONLY);
	l = (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET};
	R(fcntl(ro, F_SETLK, &l));
	l.l_whence = 9;
	R(fcntl(fd, F_SETLK, &l));
	close(ro);
	/* Open file description locks: two opens of one process are against each other. */
	other = open("f", O_RDWR);
	l = (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 4};
	R(fcntl(fd, F_OFD_SETLK, &l));
	R(fcntl(other, F_OFD_SETLK, &l));
	R(fcntl(other, F_OFD_GETLK, &l));
	R(l.l_pid);
	l.l_type = F_UNLCK;
	R(fcntl(fd, F_OFD_SETLK, &l));
	l = (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 4};
	R(fcntl(other, F_OFD_SETLK, &l));
	close(other);
	R(flock(fd, LOCK_EX));
	R(probe_flock(LOCK_SH));
	R(flock(fd, LOCK_SH));
	R(probe_flock(LOCK_SH));
	R(probe_flock(LOCK_EX));
	R(flock(fd, LOCK_UN));
	R(probe_flock(LOCK_EX));
	R(flock(fd, LOCK_EX));
	close(dup(fd));
	R(probe_flock(LOCK_SH));
	close(fd);
	R(probe_flock(LOCK_SH));
	bad_ranges();
	by_two_descriptors();
	of_both_kinds();
	who_may_only_read();
	return 0;
}
