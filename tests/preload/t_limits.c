/* RLIMIT_FSIZE is held against a file's size, with SIGXFSZ, where once a write past it succeeded;
 * and a child that posix_spawn starts with all descriptors closed and then a file opened has that
 * file. */
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

int main(void)
{
	setvbuf(stdout, NULL, _IONBF, 0);
	spawned();
	file_size();
	return 0;
}
