/* The other ways to become another process or program, and to end: each goes on with the
 * descriptors that the first ones give (t_process), and what was written before is there. */
#include "t.h"

#include <pthread.h>
#include <pty.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/time.h>

extern char **environ;
pid_t __fork(void), _Fork(void), __vfork(void);

static void child_of_exec(int fd)
{
	char c[8] = "";
	const char *told = getenv("T_TOLD");
	printf("child: at %ld", (long)lseek(fd, 0, SEEK_CUR));
	ssize_t n = read(fd, c, 3);
	printf(" read %ld %s", (long)n, c);
	printf(" write %ld %s\n", (long)write(fd, "EXEC", 4), told ? told : "");
	exit(7);
}

static void programs(char *self)
{
	char number[16];
	int fd = make("f", "0123456789abcdefghijklmnopqrstuvwxyz0123456789"),
	    me = open(self, O_RDONLY);
	sprintf(number, "%d", fd);
	char *args[] = {self, "child", number, NULL}, *env[] = {"T_TOLD=by exec", NULL};
	char *with[100];
	int n = 0;
	for (char **at = environ; *at && n < 98; at++)
		with[n++] = *at;
	with[n++] = env[0];
	with[n] = NULL;
	for (int how = 0; how < 6; how++) {
		fflush(stdout);
		pid_t pid = fork();
		if (pid == 0) {
			how == 0   ? execle(self, self, "child", number, (char *)NULL, with)
			: how == 1 ? execv(self, args)
			: how == 2 ? execveat(AT_FDCWD, self, args, with, 0)
			: how == 3 ? execveat(me, "", args, with, AT_EMPTY_PATH)
			: how == 4 ? execvpe(self, args, with)
				   : fexecve(me, args, with);
			_exit(99);
		}
		R(reap(pid));
		R(lseek(fd, 0, SEEK_CUR));
	}
	/* None of these is a program; the process goes on as it was. */
	R(write(fd, "still", 5));
	R(execv("f", args));
	R(execle("none", "none", (char *)NULL, with));
	R(execveat(fd, "", args, with, 0));
	R(execveat(fd, "", args, with, AT_EMPTY_PATH));
	R(execveat(AT_FDCWD, "none", args, with, 0));
	R(execvpe("none", args, with));
	R(fexecve(fd, args, with));
	R(write(fd, " here", 5));
	close(me);
	close(fd);
	show("f");
}

static void *forks_and_waits(void *until)
{
	while (!*(_Atomic int *)until) {
		pid_t pid = fork();
		if (pid == 0) {
			usleep(100000);
			_exit(0);
		}
		waitpid(pid, NULL, 0);
	}
	return NULL;
}

static volatile int alarms;

static void on_alarm(int sig)
{
	alarms++;
}

/* Once the parent went on beside the child of a vfork. It waits until the child has ended, however
 * that is, or runs another program: also with the descriptors closed, while another thread forks
 * and signals come. */
static void vforks(int fd)
{
	static _Atomic int done;
	pthread_t other;
	char *sleeps[] = {"sleep", "100", NULL};
	struct itimerval often = {{0, 5000}, {0, 5000}};
	pthread_create(&other, NULL, forks_and_waits, &done);
	signal(SIGALRM, on_alarm);
	setitimer(ITIMER_REAL, &often, NULL);
	for (int how = 0; how < 5; how++) {
		pid_t pid = vfork();
		if (pid == 0) {
			int null = open("/dev/null", O_RDONLY);
			struct timespec some = {.tv_nsec = 100000000};
			nanosleep(&some, NULL);
			write(fd, "v", 1);
			dup2(null, 0);
			closefrom(3);
			if (how == 0)
				_exit(1);
			if (how == 1)
				raise(SIGKILL);
			if (how == 2)
				abort();
			if (how == 3)
				_exit(execv("./none", sleeps) < 0 ? 4 : 5);
			execvp("sleep", sleeps);
			_exit(9);
		}
		R(lseek(fd, 0, SEEK_CUR));
		if (how == 4)
			R(kill(pid, SIGTERM));
		R(reap(pid));
	}
	setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL);
	signal(SIGALRM, SIG_DFL);
	done = 1;
	pthread_join(other, NULL);
	/* Nobody hears of the end of the child. */
	signal(SIGCHLD, SIG_IGN);
	pid_t pid = vfork();
	if (pid == 0)
		_exit(1);
	R(pid > 0);
	signal(SIGCHLD, SIG_DFL);
}

static void forks(void)
{
	char c[8] = "";
	int fd = make("forked", "0123456789"), status;
	pid_t pid = __fork();
	if (pid == 0)
		_Exit(read(fd, c, 2) != 2);
	R(reap(pid));
	pid = _Fork();
	if (pid == 0)
		_exit(read(fd, c, 2) != 2 || memcmp(c, "23", 2));
	R(reap(pid));
	pid = __vfork();
	if (pid == 0)
		_exit(write(fd, "X", 1) != 1);
	R(reap(pid));
	R(lseek(fd, 0, SEEK_CUR));
	vforks(fd);
	pid = fork();
	if (pid == 0) {
		write(fd, "Y", 1);
		quick_exit(write(fd, "Z", 1) + 4);
	}
	R(reap(pid));
	pid = fork();
	if (pid == 0) {
		pwrite(fd, "end", 3, 20);
		_Exit(6);
	}
	R(reap(pid));
	R(lseek(fd, 0, SEEK_CUR));
	show("forked");

	/* In the background, without a terminal. */
	int done[2];
	pipe(done);
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		if (daemon(1, 1) < 0)
			_exit(1);
		write(fd, "daemon", 6);
		_exit(0);
	}
	R(reap(pid));
	close(done[1]);
	R(read(done[0], c, 1));
	close(done[0]);
	R(lseek(fd, 0, SEEK_CUR));
	show("forked");

	/* With a terminal of its own. */
	int terminal;
	fflush(stdout);
	pid = forkpty(&terminal, NULL, NULL, NULL);
	if (pid == 0) {
		write(1, "hello\n", 6);
		_exit(isatty(0) && write(fd, "tty", 3) == 3 ? 3 : 4);
	}
	char text[100];
	ssize_t n, all = 0;
	while (pid > 0 && (n = read(terminal, text + all, sizeof text - 1 - (size_t)all)) > 0)
		all += n;
	text[all] = 0;
	R(strcmp(text, "hello\r\n"));
	R(reap(pid));
	R(lseek(fd, 0, SEEK_CUR));
	close(terminal);
	close(fd);
	show("forked");
}

/* Once an open of a relative path after a change of the directory was the child's own: it cut the
 * superblock of a container, or made a plain file. */
static void spawned(void)
{
	pid_t pid;
	int fd = make("spawned", "0123456789");
	R(mkdir("in", 0755));
	R(mkdir("in/there", 0755));
	int there = open("in/there", O_RDONLY | O_DIRECTORY);
	close(make("in/f", "of in"));
	close(make("in/there/f", "of there"));
	close(make("in/there/out", "longer than what is written there"));
	char *sh[] = {"sh", "-c", "cat; echo; cat f; pwd | sed 's/.*\\///'; echo >&9", NULL};
	posix_spawn_file_actions_t fa;
	posix_spawn_file_actions_init(&fa);
	R(posix_spawn_file_actions_addchdir_np(&fa, "in"));
	R(posix_spawn_file_actions_addopen(&fa, 0, "f", O_RDONLY, 0));
	R(posix_spawn_file_actions_addfchdir_np(&fa, there));
	R(posix_spawn_file_actions_addopen(&fa, 1, "out", O_TRUNC | O_WRONLY, 0600));
	R(posix_spawn_file_actions_addopen(&fa, 2, "err", O_CREAT | O_WRONLY, 0600));
	R(posix_spawn_file_actions_adddup2(&fa, fd, 9));
	R(posix_spawn_file_actions_addclose(&fa, fd));
	R(posix_spawn_file_actions_addclose(&fa, 9));
	R(posix_spawn_file_actions_addclose(&fa, 500));
	R(posix_spawn_file_actions_addclose(&fa, -1));
	R(posix_spawnp(&pid, "sh", &fa, NULL, sh, environ));
	R(reap(pid));
	posix_spawn_file_actions_destroy(&fa);
	show("in/there/out");
	struct stat st;
	R(stat("in/there/err", &st) ? -1 : st.st_size > 0);
	R(unlink("in/there/err"));
	R(pread(fd, (char[4]){0}, 4, 0));

	posix_spawn_file_actions_init(&fa);
	R(posix_spawn_file_actions_addchdir_np(&fa, "none"));
	R(posix_spawnp(&pid, "true", &fa, NULL, sh, environ));
	posix_spawn_file_actions_destroy(&fa);
	posix_spawn_file_actions_init(&fa);
	R(posix_spawn_file_actions_addfchdir_np(&fa, fd));
	R(posix_spawnp(&pid, "true", &fa, NULL, sh, environ));
	posix_spawn_file_actions_destroy(&fa);
	/* A file is no terminal. */
	posix_spawn_file_actions_init(&fa);
	R(posix_spawn_file_actions_addtcsetpgrp_np(&fa, fd));
	R(posix_spawnp(&pid, "true", &fa, NULL, sh, environ));
	posix_spawn_file_actions_destroy(&fa);
	close(there);
	close(fd);
}

/* Messages that descriptors go with: who sends goes on with his. */
static void sent(void)
{
	char c[8] = "", control[CMSG_SPACE(sizeof(int))] = "";
	int fd = make("sent", "0123456789"), both[2];
	socketpair(AF_UNIX, SOCK_STREAM, 0, both);
	struct iovec part = {"message", 7}, into = {c, 7};
	struct mmsghdr many[2] = {{{.msg_iov = &part,
					  .msg_iovlen = 1,
					  .msg_control = control,
					  .msg_controllen = sizeof control}},
		{{.msg_iov = &part, .msg_iovlen = 1}}};
	struct cmsghdr *head = CMSG_FIRSTHDR(&many[0].msg_hdr);
	head->cmsg_level = SOL_SOCKET;
	head->cmsg_type = SCM_RIGHTS;
	head->cmsg_len = CMSG_LEN(sizeof fd);
	memcpy(CMSG_DATA(head), &fd, sizeof fd);
	R(sendmsg(both[0], &many[0].msg_hdr, 0));
	R(sendmmsg(both[0], many, 2, 0));
	R(sendmsg(-1, &many[0].msg_hdr, 0));
	R(sendmmsg(both[0], NULL, 1, 0));
	/* What is no message, and one that says it has more descriptors than there is room for. */
	struct mmsghdr *nowhere = (void *)8, bad[2] = {many[1], many[0]};
	R(sendmsg(both[0], &nowhere->msg_hdr, 0));
	R(sendmmsg(both[0], nowhere, 2, 0));
	bad[0].msg_hdr.msg_control = nowhere;
	bad[0].msg_hdr.msg_controllen = sizeof control;
	R(sendmsg(both[0], &bad[0].msg_hdr, 0));
	head->cmsg_len = CMSG_LEN(sizeof fd * 100000);
	R(sendmsg(both[0], &bad[1].msg_hdr, 0));
	head->cmsg_len = CMSG_LEN(sizeof fd);
	for (int i = 0; i < 3; i++) {
		char room[CMSG_SPACE(sizeof(int))] = "";
		struct msghdr got = {.msg_iov = &into,
			.msg_iovlen = 1,
			.msg_control = room,
			.msg_controllen = sizeof room};
		R(recvmsg(both[1], &got, MSG_WAITALL));
		R(strcmp(c, "message"));
		head = CMSG_FIRSTHDR(&got);
		R(head != NULL);
		if (!head)
			continue;
		/* It is a copy: position and all. */
		int copy = *(int *)CMSG_DATA(head);
		char text[4] = "";
		R(lseek(fd, 1, SEEK_SET));
		R(read(copy, text, 3));
		puts(text);
		R(lseek(fd, 0, SEEK_CUR));
		struct stat st;
		R(fstat(copy, &st));
		R(st.st_size);
		R(pwrite(copy, "abc", 3, 12));
		R(close(copy));
	}
	R(lseek(fd, 0, SEEK_SET));
	/* Another process gets it. */
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		close(fd);
		char room[CMSG_SPACE(sizeof(int))] = "", text[4] = "";
		struct mmsghdr got = {{.msg_iov = &into,
			.msg_iovlen = 1,
			.msg_control = room,
			.msg_controllen = sizeof room}};
		R(recvmmsg(both[1], &got, 1, 0, NULL));
		int copy = *(int *)CMSG_DATA(CMSG_FIRSTHDR(&got.msg_hdr));
		R(read(copy, text, 3));
		R(strcmp(text, "012"));
		/* Written after the fork: it was not there. */
		R(pread(copy, text, 3, 30));
		R(strcmp(text, "new"));
		R(pwrite(copy, "xyz", 3, 20));
		R(close(copy));
		fflush(stdout);
		_exit(0);
	}
	R(pwrite(fd, "new", 3, 30));
	R(sendmmsg(both[0], many, 1, 0));
	R(reap(pid));
	R(read(fd, c, 3));
	R(write(fd, "345", 3));
	close(fd);
	show("sent");
}

int main(int argc, char **argv)
{
	if (argc > 2 && !strcmp(argv[1], "child"))
		child_of_exec(atoi(argv[2]));
	programs(argv[0]);
	forks();
	spawned();
	sent();
	return 0;
}
