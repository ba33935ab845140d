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
	return 0;
}
