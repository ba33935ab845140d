/* Record locks and access that go to a child, to another program or through a message, also where
 * the file gets a container meanwhile (auto): another process opens it for writing. */
#include "t.h"

#include <stdbool.h>
#include <sys/socket.h>

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

/* --- Messages */

static void send_fd(int socket, int fd)
{
	R(pass(socket, fd));
}

static int receive_fd(int socket)
{
	int fd;
	R((fd = pass(socket, -1)) >= 0);
	return fd;
}

static int sent_to_oneself(int fd)
{
	int pair[2];
	socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
	send_fd(pair[0], fd);
	fd = receive_fd(pair[1]);
	close(pair[0]);
	close(pair[1]);
	return fd;
}

/* What a descriptor is good for, and where it is. */
static void used(int fd)
{
	char byte = '-';
	R(fcntl(fd, F_GETFL) & O_ACCMODE);
	R(pread(fd, &byte, 1, 3));
	R(byte);
	R(pwrite(fd, "p", 1, 8));
	R(lseek(fd, 0, SEEK_CUR));
}

/* Of a descriptor that its process had sent, exec took all locks of the process on its file, if
 * that had a lock of a description anywhere; and those of the description. */
static void sent_and_locked(int command, int copy)
{
	int fd = make("f", "0123456789");
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		int sent = sent_to_oneself(fd), again = open("f", O_RDWR);
		if (copy)
			dup2(fd, copy);
		R(lock(sent, command, F_WRLCK, 0));
		R(lock(fd, command, F_WRLCK, 1));
		R(lock(again, F_OFD_SETLK, F_WRLCK, 5));
		run_again(command == F_SETLK ? "has_p" : "has_d", "f", fd);
	}
	close(fd);
	R(reap(pid));
	R(other_gets("f", 0));
}

static void has_locks(const char *path, int fd, int command)
{
	R(other_gets(path, 0));
	R(other_gets(path, 1));
	R(other_gets(path, 2));
	R(other_gets(path, 5));
	R(lock(fd, command, F_UNLCK, 1));
	R(other_gets(path, 1));
	/* And the next program. */
	if (path[1] == 0)
		run_again(command == F_SETLK ? "has_p" : "has_d", "./f", fd);
}

/* A descriptor of a file that has got a container was read-only after exec if its process had sent
 * it to itself, or had sent what it had opened then; and at once, at a position of its own, if it
 * had been opened before. It gets one if somebody has it open for writing all the time. */
static void sent_to_oneself_and_exec(int flags, bool later, bool is_kept)
{
	close(make("g", "0123456789"));
	int fd = open("g", flags);
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		opened_by_another("g");
		if (later)
			fd = open("g", flags);
		int received = sent_to_oneself(fd);
		used(fd);
		lseek(received, 4, SEEK_SET);
		used(fd);
		used(received);
		R(system("true"));
		used(received);
		if (later)
			close(received), received = fd;
		run_again("uses", "g", received);
	}
	if (!is_kept)
		close(fd);
	R(reap(pid));
	if (is_kept)
		close(fd);
	show("g");
	unlink("g");
}

/* And so for another process. */
static void sent_to_another(void)
{
	static const int modes[] = {O_RDONLY, O_WRONLY, O_RDWR};
	int pair[2];
	unlink("h");
	int had = make("h", "0123456789");
	opened_by_another("h");
	socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
	dup2(pair[1], 70);
	pid_t pid = other_process();
	if (pid == 0) {
		for (int i = 0; i < 3; i++)
			used(receive_fd(70));
		fflush(stdout);
		_exit(0);
	}
	fflush(stdout);
	int fds[3];
	for (int i = 0; i < 3; i++) {
		fds[i] = open("h", modes[i]);
		lseek(fds[i], i, SEEK_SET);
		send_fd(pair[0], fds[i]);
	}
	R(reap(pid));
	for (int i = 0; i < 3; i++)
		used(fds[i]), close(fds[i]);
	close(had);
	close(pair[0]);
	close(pair[1]);
	close(70);
	show("h");
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
	if (argc > 1 && strncmp(argv[1], "has", 3) == 0)
		return has_locks(argv[2], fd, argv[1][4] == 'p' ? F_SETLK : F_OFD_SETLK), 0;
	if (argc > 1)
		return used(fd), 0;
	for (int i = 0; i < 8; i++)
		sent_to_oneself_and_exec(i & 4 ? O_WRONLY : O_RDWR, i & 1, i & 2);
	sent_to_another();
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
	sent_and_locked(F_SETLK, 0);
	sent_and_locked(F_SETLK, 30);
	sent_and_locked(F_OFD_SETLK, 0);
	sent_and_locked(F_OFD_SETLK, 30);
	return 0;
}
