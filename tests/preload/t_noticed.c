/* Who only reads a file notices that others have made it longer, though it was plain when it was
 * opened and is a container now (workload auto): a map had the old part only, and its end was
 * SIGBUS; a descriptor that came by exec or in a message, or was opened with O_TRUNC as well, never
 * saw what was written. */
#include "t.h"

#include <stdbool.h>
#include <sys/mman.h>
#include <sys/socket.h>

#define NEW 8190

/* Two other processes have it open for writing and write it. */
static void others_write(const char *path)
{
	int begun[2], done[2];
	char bytes[NEW];
	memset(bytes, 'B', sizeof bytes);
	pipe(begun);
	pipe(done);
	fflush(stdout);
	pid_t first = fork();
	if (first == 0) {
		int fd = open(path, O_RDWR);
		pwrite(fd, bytes, 1, 5);
		fsync(fd);
		write(begun[1], "", 1);
		read(done[0], bytes, 1);
		_exit(0);
	}
	read(begun[0], bytes, 1);
	bytes[0] = 'B';
	pid_t second = fork();
	if (second == 0) {
		int fd = open(path, O_RDWR);
		_exit(pwrite(fd, bytes, NEW, 5) != NEW || fsync(fd) < 0);
	}
	R(reap(second));
	write(done[1], "", 1);
	R(reap(first));
	for (int i = 0; i < 2; i++)
		close(begun[i]), close(done[i]);
}

static void maps(int fd, int how)
{
	char *map = mmap(NULL, 5 + NEW, PROT_READ, how, fd, 0);
	R(map != MAP_FAILED);
	if (map != MAP_FAILED) {
		printf("%d %d\n", map[0], map[4 + NEW]);
		munmap(map, 5 + NEW);
	}
}

static void reads(int fd)
{
	struct stat st;
	char bytes[2 * NEW];
	R(fsync(fd));
	R(fstat(fd, &st) ? -1 : (long)st.st_size);
	R(pread(fd, bytes, sizeof bytes, 0));
	printf("%d %d\n", bytes[0], bytes[4 + NEW]);
	maps(fd, MAP_PRIVATE);
	maps(fd, MAP_SHARED);
	R(lseek(fd, 0, SEEK_CUR));
	R(read(fd, bytes, sizeof bytes));
}

/* Who is told by the socket that the file is longer. */
static int is_short(int fd, int socket)
{
	struct stat st;
	char byte;
	if (read(socket, &byte, 1) != 1 || fstat(fd, &st) < 0 || st.st_size != 5 + NEW)
		return 2;
	char *map = mmap(NULL, 5 + NEW, PROT_READ, MAP_PRIVATE, fd, 0);
	return map == MAP_FAILED || map[0] != '0' || map[4 + NEW] != 'B';
}

/* The file gets a container just when a program starts that inherits it, or a process gets it in a
 * message: they found one that was not whole, and never looked again. */
static void got_meanwhile(bool by_exec)
{
	int bad = 0;
	char bytes[NEW], fd_number[12], socket_number[12];
	memset(bytes, 'B', sizeof bytes);
	for (int round = 0; round < 40; round++) {
		int writer = make("f", "0AAA4"), fd = open("f", O_RDONLY), sockets[2], status = -1;
		socketpair(AF_UNIX, SOCK_STREAM, 0, sockets);
		fflush(stdout);
		pid_t other = fork();
		if (other == 0) {
			close(writer);
			usleep(round * (by_exec ? 100 : 20));
			_exit(close(open("f", O_RDWR)));
		}
		pid_t pid = fork();
		if (pid == 0) {
			close(writer);
			snprintf(fd_number, sizeof fd_number, "%d", fd);
			snprintf(socket_number, sizeof socket_number, "%d", sockets[1]);
			if (by_exec)
				execl("/proc/self/exe", "t_noticed", fd_number, socket_number,
					NULL);
			_exit(is_short(pass(sockets[1], -1), sockets[1]));
		}
		if (!by_exec)
			bad += pass(sockets[0], fd) != 0;
		waitpid(other, NULL, 0);
		bad += pwrite(writer, bytes, NEW, 5) != NEW || fsync(writer) < 0;
		bad += write(sockets[0], "", 1) != 1;
		waitpid(pid, &status, 0);
		bad += status != 0;
		close(writer), close(fd), close(sockets[0]), close(sockets[1]);
		unlink("f");
	}
	R(bad);
}

int main(int argc, char **argv)
{
	if (argc > 2)
		return is_short(atoi(argv[1]), atoi(argv[2]));
	if (argc > 1) {
		others_write("f");
		reads(atoi(argv[1]));
		return 0;
	}
	static const int flags[] = {
		O_RDONLY, O_RDWR, O_RDONLY | O_TRUNC, O_RDONLY | O_CREAT | O_TRUNC};
	for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
		for (int maps_only = 0; maps_only < 2; maps_only++) {
			close(make("f", "0AAA4"));
			int fd = R(open("f", flags[i], 0644));
			others_write("f");
			if (maps_only)
				maps(fd, MAP_PRIVATE);
			else
				reads(fd);
			close(fd);
			unlink("f");
		}
	}
	/* By exec. */
	close(make("f", "0AAA4"));
	int fd = open("f", O_RDONLY), sockets[2];
	char number[12], byte;
	read(fd, &byte, 1);
	snprintf(number, sizeof number, "%d", fd);
	pid_t pid = fork();
	if (pid == 0) {
		execl("/proc/self/exe", "t_noticed", number, NULL);
		_exit(1);
	}
	R(reap(pid));
	unlink("f");
	/* In a message. */
	close(make("f", "0AAA4"));
	socketpair(AF_UNIX, SOCK_STREAM, 0, sockets);
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		int got = R(pass(sockets[1], -1));
		others_write("f");
		reads(got);
		fflush(stdout);
		_exit(0);
	}
	fd = open("f", O_RDONLY);
	int passed = pass(sockets[0], fd);
	close(fd);
	R(reap(pid));
	R(passed);
	/* Status flags are the description's, whoever sets them. */
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		int got = pass(sockets[1], -1);
		R(fcntl(got, F_SETFL, O_APPEND));
		fflush(stdout);
		_exit(0);
	}
	fd = open("g", O_RDWR | O_CREAT, 0644);
	write(fd, "0123456789", 10);
	passed = pass(sockets[0], fd);
	R(reap(pid));
	R(passed);
	R(fcntl(fd, F_GETFL) & O_APPEND);
	R(lseek(fd, 2, SEEK_SET));
	R(write(fd, "XX", 2));
	show("g");
	got_meanwhile(true);
	got_meanwhile(false);
	return 0;
}
