/* Where locks of an open file description are not those of a plain file (SEMANTICS D9): in a
 * process that forks before its first one, and with a descriptor that came in a message. They keep
 * out all others even so. */
#include "t.h"

#include <sys/socket.h>

static int lock(int fd, int type, off_t start)
{
	struct flock l = {.l_type = (short)type, .l_start = start, .l_len = 1};
	errno = 0;
	return fcntl(fd, F_OFD_SETLK, &l) == 0 ? 0 : errno;
}

/* What another process gets that opens the file. */
static int others_get(off_t start)
{
	pid_t pid = fork();
	if (pid == 0)
		_exit(lock(open("f", O_RDWR), F_WRLCK, start));
	return reap(pid);
}

static void send_fd(int socket, int fd)
{
	WANT(pass(socket, fd) == 0);
}

static int receive_fd(int socket)
{
	int fd;
	WANT((fd = pass(socket, -1)) >= 0);
	return fd;
}

int main(void)
{
	int fd = make("f", "0123456789"), go[2], done[2], pair[2];
	char byte;
	pipe(go);
	pipe(done);
	socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
	pid_t pid = fork();
	if (pid == 0) {
		read(go[0], &byte, 1);
		/* The parent's. */
		WANT(lock(fd, F_WRLCK, 0) == EAGAIN);
		WANT(lock(fd, F_WRLCK, 1) == 0);
		WANT(others_get(0) == EAGAIN);
		WANT(others_get(1) == EAGAIN);
		write(done[1], "x", 1);
		read(go[0], &byte, 1);
		int sent = receive_fd(pair[1]);
		WANT(lock(sent, F_WRLCK, 5) == EAGAIN);
		WANT(lock(sent, F_WRLCK, 6) == 0);
		WANT(others_get(5) == EAGAIN);
		WANT(others_get(6) == EAGAIN);
		_exit(wrong);
	}
	WANT(lock(fd, F_WRLCK, 0) == 0);
	write(go[1], "x", 1);
	read(done[0], &byte, 1);
	WANT(lock(fd, F_WRLCK, 1) == EAGAIN);
	WANT(others_get(1) == EAGAIN);
	int sent = open("f", O_RDWR);
	WANT(lock(sent, F_WRLCK, 5) == 0);
	send_fd(pair[0], sent);
	write(go[1], "x", 1);
	WANT(reap(pid) == 0);
	/* What the child had is free. */
	WANT(others_get(1) == 0);
	WANT(others_get(6) == 0);
	WANT(others_get(0) == EAGAIN);
	WANT(others_get(5) == EAGAIN);
	return wrong;
}
