/* RLIMIT_FSIZE is held against a file's size, with SIGXFSZ, where once a write past it succeeded;
 * and not against what libplfs keeps: a program that wrote 512 KiB some times over, with a limit of
 * 1 MiB, was ended by SIGXFSZ for its log. And a child that posix_spawn starts with all descriptors
 * closed and then a file opened has that file. */
#include "t.h"
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>

extern char **environ;
static volatile int signals;

static void count(int sig)
{
	signals++;
}

static void file_size(void)
{
	static char block[3000];
	memset(block, 'x', sizeof block);
	signal(SIGXFSZ, count);
	struct rlimit limit = {100000, RLIM_INFINITY}, old;
	int fd = open("limited", O_RDWR | O_CREAT, 0644);
	getrlimit(RLIMIT_FSIZE, &old);
	limit.rlim_max = old.rlim_max;
	R(setrlimit(RLIMIT_FSIZE, &limit));
	R(pwrite(fd, block, 3000, 0));
	R(pwrite(fd, block, 3000, 98000));
	R(pwrite(fd, block, 1, 100000));
	R(pwrite(fd, block, 1, 200000));
	printf("%d signals\n", signals);
	struct iovec iov[] = {{block, 1000}, {block, 1000}};
	R(pwritev(fd, iov, 2, 98000));
	/* The piece that crosses the limit was left out whole. */
	struct iovec small[] = {{block, 100}, {block, 100}, {block, 100}};
	R(pwritev(fd, small, 3, 99850));
	R(lseek(fd, 99750, SEEK_SET));
	R(writev(fd, small, 3));
	R(lseek(fd, 0, SEEK_CUR));
	R(ftruncate(fd, 100001));
	R(ftruncate(fd, 50000));
	R(fallocate(fd, 0, 0, 100001));
	R(lseek(fd, 99999, SEEK_SET));
	R(write(fd, block, 2));
	R(write(fd, block, 2));
	R(lseek(fd, 0, SEEK_CUR));
	fcntl(fd, F_SETFL, O_APPEND);
	R(write(fd, block, 2));
	printf("%d signals\n", signals);
	fcntl(fd, F_SETFL, 0);
	/* What there is room for is copied, and no signal comes: that ended the program. */
	int from = make("from", "0123456789");
	R(ftruncate(fd, 99996));
	R(lseek(fd, 0, SEEK_END));
	R(copy_file_range(from, NULL, fd, NULL, 10, 0));
	printf("%d signals\n", signals);
	R(copy_file_range(from, NULL, fd, NULL, 6, 0));
	R(lseek(from, 0, SEEK_CUR));
	printf("%d signals\n", signals);
	close(from);
	/* On tmpfs the limit holds for that as well. */
	if (!getenv("T_ALSO_TMPFS"))
		R(fallocate(fd, FALLOC_FL_KEEP_SIZE, 99990, 20));
	printf("%d signals\n", signals);
	pid_t pid = fork();
	if (pid == 0) {
		signal(SIGXFSZ, SIG_DFL);
		pwrite(fd, block, 1, 200000);
		_exit(0);
	}
	int status;
	waitpid(pid, &status, 0);
	printf("%d\n", WIFSIGNALED(status) ? WTERMSIG(status) : 0);
	R(setrlimit(RLIMIT_FSIZE, &old));
	R(write(fd, block, 2));
	close(fd);
}

/* Writes `blocks` blocks of `bytes` all over the first half MiB, for the size of a file far below
 * the limit, and looks. */
static void write_over(int fd, int blocks, int bytes)
{
	static char block[1 << 19], got[1 << 19];
	int failed = 0, span = sizeof block / bytes;
	for (int i = 0; i < blocks; i++) {
		memset(block, 'a' + i % 26, (size_t)bytes);
		failed += pwrite(fd, block, (size_t)bytes, (off_t)(i % span) * bytes) != bytes;
		if (i % 97 == 0)
			failed += fsync(fd) < 0;
	}
	printf("%d failed, %d signals\n", failed, signals);
	failed = 0;
	for (int i = blocks > span ? blocks - span : 0; i < blocks; i++) {
		memset(block, 'a' + i % 26, (size_t)bytes);
		failed += pread(fd, got, (size_t)bytes, (off_t)(i % span) * bytes) != bytes ||
			  memcmp(got, block, (size_t)bytes);
	}
	printf("%d wrong\n", failed);
}

static void rewrites_pass_the_limit(void)
{
	signals = 0;
	signal(SIGXFSZ, count);
	struct rlimit limit = {1 << 20, RLIM_INFINITY}, odd = {700001, RLIM_INFINITY}, old;
	getrlimit(RLIMIT_FSIZE, &old);
	limit.rlim_max = odd.rlim_max = old.rlim_max;
	int fd = open("rewritten", O_RDWR | O_CREAT, 0644);
	/* Where the log is longer than the limit that comes. */
	write_over(fd, 40, 65536);
	write_over(fd, 10, 1000);
	R(setrlimit(RLIMIT_FSIZE, &limit));
	write_over(fd, 100, 65536);
	write_over(fd, 20, 1 << 19);
	write_over(fd, 5000, 1000);
	R(setrlimit(RLIMIT_FSIZE, &odd));
	write_over(fd, 200, 47001);
	fcntl(fd, F_SETFL, O_APPEND);
	R(ftruncate(fd, 700000));
	R(write(fd, "xyz", 3));
	R(write(fd, "xyz", 3));
	printf("%d signals\n", signals);
	pid_t pid = fork();
	if (pid == 0) {
		fcntl(fd, F_SETFL, 0);
		write_over(fd, 100, 65536);
		_exit(0);
	}
	R(reap(pid));
	R(close(fd));
	R(setrlimit(RLIMIT_FSIZE, &old));
	show("rewritten");
}

static void spawned(void)
{
	int fd = open("inherited", O_RDWR | O_CREAT, 0644);
	posix_spawn_file_actions_t actions;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, fd, 2);
	posix_spawn_file_actions_addclosefrom_np(&actions, 3);
	posix_spawn_file_actions_addopen(
		&actions, 1, "spawned", O_WRONLY | O_CREAT | O_TRUNC, 0644);
	char *arguments[] = {"sh", "-c",
		"echo out; echo err >&2; echo more; ls /proc/self/fd | head -3 | wc -l", NULL};
	pid_t pid;
	R(posix_spawnp(&pid, "sh", &actions, NULL, arguments, environ));
	int status = -1;
	waitpid(pid, &status, 0);
	printf("%d\n", status);
	posix_spawn_file_actions_destroy(&actions);
	R(write(fd, "after\n", 6));
	close(fd);
	show("spawned");
	show("inherited");
}

/* A full table is emptied, which once needed a descriptor. */
static void full_table(void)
{
	struct rlimit old, limit;
	int fd = make("kept", "kept"), last = fd, next;
	getrlimit(RLIMIT_NOFILE, &old);
	limit = old;
	limit.rlim_cur = 300;
	setrlimit(RLIMIT_NOFILE, &limit);
	while ((next = open("/dev/null", O_RDONLY)) >= 0)
		last = next > last ? next : last;
	R(errno == EMFILE);
	R(close_range((unsigned)fd + 1, ~0U, 0));
	R(fcntl(last, F_GETFD));
	R(pwrite(fd, "K", 1, 0));
	R(close(open("/dev/null", O_RDONLY)));
	setrlimit(RLIMIT_NOFILE, &old);
	close(fd);
	show("kept");
}

int main(void)
{
	setvbuf(stdout, NULL, _IONBF, 0);
	spawned();
	file_size();
	rewrites_pass_the_limit();
	full_table();
	return 0;
}
