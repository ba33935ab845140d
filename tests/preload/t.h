/* Shared by the test programs. Each runs twice in an empty directory, once plain and once in a
 * managed directory, and must print the same. */
#ifndef T_H
#define T_H
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

/* Prints the call and what it gave. */
#define R(e) \
	({ \
		errno = 0; \
		long r_ = (long)(e); \
		int errno_ = errno; \
		printf("%d: %s = %ld %s\n", __LINE__, #e, r_, \
			r_ < 0 ? strerrorname_np(errno_) : ""); \
		errno = errno_; \
		r_; \
	})

/* For what runs in a managed directory only (only_*.c): prints the expression if it is not so, and
 * main returns `wrong`. */
static int wrong __attribute__((unused));
#define WANT(e) \
	do { \
		errno = 0; \
		if (!(e)) { \
			printf("%d: not %s (%s)\n", __LINE__, #e, strerrorname_np(errno)); \
			wrong = 1; \
		} \
	} while (0)

/* How a child ended: its exit status, or the signal as a negative number. */
static inline int reap(pid_t pid)
{
	int status = -1;
	fflush(stdout);
	waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* Prints the bytes of a file, read by descriptor 'at' in pieces. */
static inline void show(const char *path)
{
	char buf[300];
	int fd = open(path, O_RDONLY);
	ssize_t n = fd < 0 ? -1 : pread(fd, buf, sizeof buf, 0);
	printf("%s:", path);
	for (ssize_t i = 0; i < n; i++)
		printf(buf[i] >= ' ' && buf[i] <= '~' ? "%c" : "<%02x>", (unsigned char)buf[i]);
	printf(n < 0 ? " %s\n" : "\n", strerrorname_np(errno));
	if (fd >= 0)
		close(fd);
}

static inline int make(const char *path, const char *text)
{
	int fd = open(path, O_CREAT | O_TRUNC | O_RDWR, 0644);
	if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		perror(path);
	lseek(fd, 0, SEEK_SET);
	return fd;
}

/* Sends fd by the socket: 0 or -1. A negative fd: gets one, or -1, if none came. */
static inline int pass(int socket, int fd)
{
	char room[CMSG_SPACE(sizeof fd)] = "", byte = 0;
	struct iovec iov = {&byte, 1};
	struct msghdr m = {.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = room,
		.msg_controllen = sizeof room};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	if (fd < 0) {
		if (recvmsg(socket, &m, 0) != 1 || !(c = CMSG_FIRSTHDR(&m)) ||
			c->cmsg_len != CMSG_LEN(sizeof fd))
			return -1;
		memcpy(&fd, CMSG_DATA(c), sizeof fd);
		return fd;
	}
	*c = (struct cmsghdr){CMSG_LEN(sizeof fd), SOL_SOCKET, SCM_RIGHTS};
	memcpy(CMSG_DATA(c), &fd, sizeof fd);
	return sendmsg(socket, &m, 0) == 1 ? 0 : -1;
}

/* Another program, which shares no descriptor of this one's files: runs `serve` with its end of a
 * socket, until this one's end, which is given, is closed. */
static inline int start_other(void (*serve)(int socket))
{
	int ends[2];
	socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends);
	if (fork() == 0) {
		close(ends[0]);
		serve(ends[1]);
		_exit(0);
	}
	close(ends[1]);
	return ends[0];
}

/* Such a one that opens for writing what it is told, and says when. */
static inline void opens_for_writing(int socket)
{
	char name[100];
	while (recv(socket, name, sizeof name, 0) > 0) {
		close(open(name, O_RDWR));
		send(socket, "x", 1, 0);
	}
}

/* Containers below the managed directory, which is seen without the library. */
static inline int containers(void)
{
	int n = -1;
	FILE *out = popen("env -u LD_PRELOAD find \"$T_MANAGED\"/.plfs -name super | wc -l", "r");
	fscanf(out, "%d", &n);
	pclose(out);
	return n;
}
#endif
