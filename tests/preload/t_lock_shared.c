/* Record locks of descriptors that a program has duplicated, or shares with another process. */
#include "t.h"

#include <spawn.h>
#include <stdbool.h>
#include <sys/file.h>

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

/* --- exec: a program began without the locks that the one before had, though it had the file. */

static void run_again(const char *what, int fd)
{
	char number[20];
	fflush(stdout);
	sprintf(number, "%d", fd);
	execl("/proc/self/exe", "t_lock_shared", what, number, NULL);
	_exit(99);
}

/* Has fd, and with it the locks on bytes 0 to 4, and by what. */
static int after_exec(const char *what, int fd)
{
	int command = what[0] == 'p' ? F_SETLK : F_OFD_SETLK;
	R(probe_of("f", 0, 5));
	R(probe_of("f", 5, 0));
	R(lock(fd, command, F_WRLCK, 7, 1));
	R(probe_of("f", 7, 1));
	R(lock(fd, command, F_UNLCK, 0, 2));
	R(probe_of("f", 0, 2));
	R(probe_of("f", 2, 3));
	int other = open("f", O_RDWR);
	R(lock(other, F_OFD_SETLK, F_WRLCK, 2, 1));
	R(probe_of("f", 3, 1));
	R(close(other));
	R(probe_of("f", 3, 1));
	R(close(fd));
	R(probe_of("f", 0, 0));
	fflush(stdout);
	return 0;
}

static void by_exec(const char *what, int command)
{
	/* Of a file of which exec closes a descriptor the process loses its locks. */
	int fd = make("f", "0123456789"), second = open("f", O_RDWR | (what[1] ? 0 : O_CLOEXEC));
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		R(lock(fd, command, F_WRLCK, 0, 5));
		if (execl("./nothing", "nothing", NULL) < 0)
			R(probe_of("f", 0, 5));
		run_again(what, fd);
	}
	R(reap(pid));
	R(probe_of("f", 0, 0));
	close(second);
	close(fd);
}

/* A lock that two numbers of one description had was the first one's: the other one could not
 * unlock it, and was kept out by it, and when the first was closed it was gone. Auto: the file is
 * plain, and libplfs had a descriptor of its own for a file with two numbers. Exec closed that,
 * which cost the process its locks, whatever came before: a close of one number, another open of
 * the file. */
enum { COPY = 30 };

static void two_after_exec(const char *what, int fd)
{
	int command = what[4] == 'p' ? F_SETLK : F_OFD_SETLK;
	R(probe_of("f", 0, 5));
	if (what[4] == 'p' && what[5] == '3') {
		/* Of a file that it has inherited plain libplfs knew no locks. */
		dup2(open("f", O_RDWR), 60);
		run_again("two_p2", fd);
	}
	R(lock(COPY, command, F_WRLCK, 0, 3));
	R(lock(COPY, command, F_UNLCK, 0, 2));
	R(probe_of("f", 0, 2));
	R(probe_of("f", 2, 3));
	R(lseek(COPY, 3, SEEK_SET));
	R(lseek(fd, 0, SEEK_CUR));
	R(close(what[5] ? COPY : fd));
	R(probe_of("f", 2, 3));
	R(lock(what[5] ? fd : COPY, command, F_WRLCK, 7, 1));
	R(probe_of("f", 7, 1));
	R(close(what[5] ? fd : COPY));
	R(probe_of("f", 0, 0));
}

/* Locks by one of many numbers, when others have come and gone. */
static void after_closes(void)
{
	for (int how = 0; how < 6; how++) {
		int fd = make("f", "0123456789"), other = open("f", O_RDWR);
		R(lseek(fd, 5, SEEK_SET));
		fflush(stdout);
		pid_t pid = fork();
		if (pid == 0) {
			int first = fd;
			R(lock(how & 1 ? fd : other, F_SETLK, F_WRLCK, 0, 1));
			R(dup2(fd, COPY));
			if (how == 1)
				R(close(fd)), fd = dup(COPY);
			if (how == 2)
				R(dup2(other, fd)), fd = other, other = dup2(COPY, 40);
			if (how == 3)
				R(dup2(COPY, 40)), R(close(COPY)), R(close(fd)), R(dup2(40, COPY)),
					fd = dup2(40, 41);
			if (how == 4)
				R(close(fd)), fd = dup2(other, 42);
			/* Each number is the file still. */
			R(write(COPY, "x", 1));
			R(write(fd, "y", 1));
			R(write(other, "z", 1));
			R(fd == first);
			if (how == 5)
				R(dup2(other, 40)), R(close(other));
			R(lock(COPY, F_SETLK, F_WRLCK, 0, 5));
			dup2(COPY, 50);
			dup2(other, 51);
			R(probe_of("f", 0, 5));
			run_again("two_p", fd);
		}
		close(fd);
		close(other);
		R(reap(pid));
		show("f");
	}
}

static void two_by_exec(const char *what, int command)
{
	int fd = make("f", "0123456789");
	R(dup2(fd, COPY));
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		R(lock(fd, command, F_WRLCK, 0, 5));
		run_again(what, fd);
	}
	close(fd);
	close(COPY);
	R(reap(pid));
	R(probe_of("f", 0, 0));
}

/* Who starts a program and goes leaves it the locks of the description. */
static void by_spawn(void)
{
	int fd = make("f", "0123456789"), go[2];
	fcntl(fd, F_SETFD, FD_CLOEXEC);
	char number[20], *argv[] = {"t_lock_shared", "spawned", number, NULL};
	R(lock(fd, F_OFD_SETLK, F_WRLCK, 0, 5));
	posix_spawn_file_actions_t actions;
	posix_spawn_file_actions_init(&actions);
	pipe(go);
	/* The file comes to be standard error, which stays open. */
	posix_spawn_file_actions_adddup2(&actions, fd, 2);
	posix_spawn_file_actions_adddup2(&actions, go[0], 0);
	posix_spawn_file_actions_addclose(&actions, go[1]);
	pid_t pid;
	fflush(stdout);
	sprintf(number, "%d", 2);
	R(posix_spawn(&pid, "/proc/self/exe", &actions, NULL, argv, environ));
	posix_spawn_file_actions_destroy(&actions);
	close(fd);
	R(probe_of("f", 0, 5));
	write(go[1], "x", 1);
	R(reap(pid));
	R(probe_of("f", 0, 5));
	close(go[0]);
	close(go[1]);
}

/* --- fork: what the first one had locked by a description, the other could not unlock, and who
 * ended took its locks along. */

static void by_fork(void)
{
	int fd = make("f", "0123456789"), later, go[2], done[2];
	char byte;
	R(lock(fd, F_OFD_SETLK, F_WRLCK, 9, 1));
	R(lock(fd, F_OFD_SETLK, F_UNLCK, 9, 1));
	later = open("f", O_RDWR);
	pipe(go);
	pipe(done);
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		read(go[0], &byte, 1);
		R(lock(later, F_OFD_SETLK, F_WRLCK, 0, 1));
		R(lock(later, F_OFD_SETLK, F_UNLCK, 0, 1));
		R(lock(later, F_OFD_SETLK, F_WRLCK, 2, 1));
		fflush(stdout);
		_exit(0);
	}
	R(lock(later, F_OFD_SETLK, F_WRLCK, 0, 2));
	fflush(stdout);
	write(go[1], "x", 1);
	R(reap(pid));
	R(probe_of("f", 0, 1));
	R(probe_of("f", 1, 1));
	R(probe_of("f", 2, 1));
	R(close(later));
	R(probe_of("f", 0, 0));
	close(fd);
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

/* --- flock by a descriptor that was open for writing when the file got a container (auto): it was
 * lost when a program was started, or had a lock of its own in that. Another process opens the file
 * for writing first. */

static int asks, told;

static void answer(void)
{
	char byte;
	while (read(asks, &byte, 1) == 1) {
		int fd = open("f", O_RDWR);
		byte = flock(fd, LOCK_EX | LOCK_NB) == 0   ? 'e'
		       : flock(fd, LOCK_SH | LOCK_NB) == 0 ? 's'
							   : 'n';
		close(fd);
		write(told, &byte, 1);
	}
	_exit(0);
}

/* The locks that it can have. */
static char other_gets(void)
{
	char byte = '?';
	write(asks, "x", 1);
	read(told, &byte, 1);
	return byte;
}
#define OTHER_GETS() printf("%d: the other one gets %c\n", __LINE__, other_gets())

static void begin_other(void)
{
	int to[2], from[2];
	pipe(to);
	pipe(from);
	fflush(stdout);
	if (fork() == 0) {
		asks = to[0];
		told = from[1];
		close(to[1]);
		close(from[0]);
		answer();
	}
	close(to[0]);
	close(from[1]);
	asks = to[1];
	told = from[0];
}

static void run_with_other(const char *what, int fd)
{
	char text[60];
	snprintf(text, sizeof text, "%s %d %d", what, asks, told);
	run_again(text, fd);
}

static int flock_after_exec(const char *what, int fd)
{
	sscanf(what, "%*s %d %d", &asks, &told);
	if (strncmp(what, "flock_takes", 11) == 0) {
		R(flock(fd, LOCK_EX | LOCK_NB));
		return 0;
	}
	OTHER_GETS();
	R(write(fd, "x", 1));
	R(system("true"));
	OTHER_GETS();
	if (strncmp(what, "flock_again", 11) == 0)
		run_with_other("flock", fd);
	R(flock(COPY, LOCK_SH));
	OTHER_GETS();
	R(close(fd));
	OTHER_GETS();
	R(close(COPY));
	OTHER_GETS();
	return 0;
}

static void by_flock(int flags, bool before)
{
	/* What had record locks stays plain. */
	unlink("f");
	close(make("f", "0123456789"));
	begin_other();
	int fd = open("f", flags);
	if (before)
		R(flock(fd, LOCK_EX));
	OTHER_GETS();
	R(dup2(fd, COPY));
	R(flock(fd, LOCK_EX));
	OTHER_GETS();
	R(system("true"));
	OTHER_GETS();
	R(write(fd, "abc", 3));
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0)
		run_with_other("flock_again", fd);
	R(reap(pid));
	/* The child has the same lock. */
	OTHER_GETS();
	R(flock(fd, LOCK_UN));
	OTHER_GETS();
	/* As flock(1) does for a shell. */
	fflush(stdout);
	if ((pid = fork()) == 0)
		run_with_other("flock_takes", fd);
	R(reap(pid));
	OTHER_GETS();
	R(lseek(fd, 0, SEEK_CUR));
	R(close(COPY));
	OTHER_GETS();
	fflush(stdout);
	if ((pid = fork()) == 0) {
		R(dup2(fd, COPY));
		close(told);
		run_with_other("flock_takes", fd);
	}
	R(reap(pid));
	R(close(fd));
	OTHER_GETS();
	close(asks);
	close(told);
	wait(NULL);
	show("f");
}

int main(int argc, char **argv)
{
	if (argc > 1) {
		int fd = atoi(argv[2]);
		char byte;
		if (strncmp(argv[1], "flock", 5) == 0)
			return flock_after_exec(argv[1], fd);
		if (strncmp(argv[1], "two", 3) == 0)
			return two_after_exec(argv[1], fd), 0;
		if (strcmp(argv[1], "spawned") != 0)
			return after_exec(argv[1], fd);
		read(0, &byte, 1);
		R(probe_of("f", 0, 5));
		R(lock(fd, F_OFD_SETLK, F_UNLCK, 0, 1));
		R(probe_of("f", 0, 1));
		R(probe_of("f", 1, 4));
		return 0;
	}
	by_a_duplicate(F_SETLK);
	by_a_duplicate(F_OFD_SETLK);
	by_exec("process", F_SETLK);
	by_exec("description", F_OFD_SETLK);
	by_exec("p", F_SETLK);
	two_by_exec("two_d", F_OFD_SETLK);
	two_by_exec("two_d2", F_OFD_SETLK);
	two_by_exec("two_p", F_SETLK);
	two_by_exec("two_p2", F_SETLK);
	two_by_exec("two_p3", F_SETLK);
	after_closes();
	by_spawn();
	by_fork();
	by_name();
	for (int how = 0; how < 4; how++)
		by_flock(how & 1 ? O_WRONLY : O_RDWR, how & 2);
	numbers();
	return 0;
}
