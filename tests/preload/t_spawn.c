/* posix_spawn of a program that lies in the directory itself, which starts from a copy in memory:
 * the copy had a low number, so that an action of the caller on that number closed it (ENOENT,
 * EACCES) or put another program there, and that one was started. With a change of the directory
 * among the actions such a program was none at all (ENOEXEC). */
#include "t.h"

#include <spawn.h>
#include <sys/resource.h>

extern char **environ;

enum { NUMBERS = 24 };

static posix_spawn_file_actions_t actions;
static char *words[] = {"zero", "as asked", NULL};

static void begin(void)
{
	posix_spawn_file_actions_init(&actions);
}

/* Starts it and ends the actions. */
static int start(const char *path)
{
	pid_t pid;
	fflush(stdout);
	int rc = posix_spawn(&pid, path, &actions, NULL, words, environ);
	posix_spawn_file_actions_destroy(&actions);
	errno = rc;
	return rc ? -rc : reap(pid);
}

static int start_along_path(const char *name)
{
	pid_t pid;
	fflush(stdout);
	int rc = posix_spawnp(&pid, name, &actions, NULL, words, environ);
	posix_spawn_file_actions_destroy(&actions);
	errno = rc;
	return rc ? -rc : reap(pid);
}

/* An action on each number, for a program and for a script. */
static void each_number(const char *path)
{
	int other = open("/bin/pwd", O_RDONLY | O_CLOEXEC), wrong = 0;
	for (int i = 0; i < NUMBERS; i++) {
		/* Below the first two hundred and above. */
		int n = i < NUMBERS / 2 ? i + 3 : i + 200 - NUMBERS / 2;
		if (n == other)
			continue;
		begin();
		posix_spawn_file_actions_adddup2(&actions, other, n);
		wrong += start(path) != 7;
		begin();
		posix_spawn_file_actions_addclose(&actions, n);
		wrong += start(path) != 7;
		begin();
		posix_spawn_file_actions_addopen(&actions, n, "/dev/null", O_RDONLY, 0);
		wrong += start(path) != 7;
		begin();
		posix_spawn_file_actions_addopen(&actions, n, "opened", O_RDWR | O_CREAT, 0644);
		posix_spawn_file_actions_adddup2(&actions, n, 0);
		wrong += start(path) != 7;
		/* A file that is opened for the child has a number on the way, too. */
		begin();
		posix_spawn_file_actions_adddup2(&actions, other, n);
		posix_spawn_file_actions_addopen(&actions, 1, "out", O_RDWR | O_CREAT, 0644);
		posix_spawn_file_actions_addclose(&actions, n);
		wrong += start(path) != 7;
		begin();
		posix_spawn_file_actions_addclosefrom_np(&actions, n);
		wrong += start(path) != 7;
	}
	close(other);
	printf("%s: %d wrong\n", path, wrong);
	struct stat st;
	R(stat("out", &st) ? -1 : st.st_size);
	R(unlink("out"));
}

/* No number from two hundred on can be had. */
static void few_numbers(void)
{
	struct rlimit old, few = {64, 64};
	getrlimit(RLIMIT_NOFILE, &old);
	few.rlim_max = old.rlim_max;
	R(setrlimit(RLIMIT_NOFILE, &few));
	begin();
	for (int n = 3; n < 40; n++)
		posix_spawn_file_actions_adddup2(&actions, 1, n);
	R(start("./program"));
	R(setrlimit(RLIMIT_NOFILE, &old));
}

static void moved_to(const char *dir, int fd)
{
	begin();
	if (dir)
		posix_spawn_file_actions_addchdir_np(&actions, dir);
	else
		posix_spawn_file_actions_addfchdir_np(&actions, fd);
}

static void moves(void)
{
	char absolute[4096], path[8192];
	int in = open("in", O_RDONLY | O_DIRECTORY);
	getcwd(absolute, sizeof absolute);
	strcat(absolute, "/program");
	for (int by_fd = 0; by_fd < 2; by_fd++) {
#define IN moved_to(by_fd ? NULL : "in", in)
		IN, R(start(absolute));
		IN, R(start("../program"));
		IN, R(start("./inner"));
		IN, R(start("inner"));
		IN, R(start("./script"));
		IN, R(start("script"));
		IN, R(start("by_inner"));
		IN, R(start("./program"));
		IN, R(start("closed"));
		IN, R(start_along_path("./inner"));
		IN, R(start_along_path("../program"));
		IN, R(start_along_path("by_inner"));
		IN, posix_spawn_file_actions_addchdir_np(&actions, "..");
		R(start("./program"));
		IN, posix_spawn_file_actions_addopen(&actions, 0, "opened", O_RDWR | O_CREAT, 0644);
		posix_spawn_file_actions_addclosefrom_np(&actions, 3);
		R(start("./inner"));
	}
	/* The directory by a number that an action gives to it; and one that is not there. */
	begin();
	posix_spawn_file_actions_adddup2(&actions, in, 30);
	posix_spawn_file_actions_addclose(&actions, in);
	posix_spawn_file_actions_addfchdir_np(&actions, 30);
	R(start("inner"));
	moved_to("none", -1);
	R(start("./inner"));
	moved_to(NULL, 77);
	R(start(absolute));
	snprintf(path, sizeof path, ".:%s", getenv("PATH"));
	setenv("PATH", path, 1);
	moved_to("in", -1);
	R(start_along_path("inner"));
	moved_to("in", -1);
	R(start_along_path("script"));
	moved_to("in", -1);
	R(start_along_path("program"));
	close(in);
}

/* The file of a later action was made or cut, though one before it fails. */
static void fail_first(void)
{
	R(system("echo precious > kept"));
	for (int i = 0; i < 4; i++) {
		begin();
		if (i < 2)
			posix_spawn_file_actions_addopen(&actions, 0, "/none/there", O_RDONLY, 0);
		else
			posix_spawn_file_actions_adddup2(&actions, 77, 78);
		posix_spawn_file_actions_addopen(
			&actions, 1, i % 2 ? "made" : "kept", O_WRONLY | O_TRUNC | O_CREAT, 0644);
		R(start("/bin/true"));
	}
	show("kept");
	R(access("made", F_OK));
	/* Made by the action before, in a directory of nobody's. */
	char other[] = "/tmp/t_spawn.XXXXXX";
	close(mkstemp(other));
	unlink(other);
	begin();
	posix_spawn_file_actions_addopen(&actions, 5, other, O_WRONLY | O_CREAT, 0644);
	posix_spawn_file_actions_addopen(&actions, 6, other, O_WRONLY | O_APPEND, 0);
	posix_spawn_file_actions_addopen(&actions, 7, "kept", O_RDONLY, 0);
	R(start("/bin/true"));
	R(unlink(other));
}

/* The numbers below a thousand: libplfs has its own above. */
static void lists(void)
{
	static char *list[] = {"sh", "-c", "ls /proc/self/fd | grep -Ex '.{1,3}' | xargs", NULL};
	pid_t pid;
	fflush(stdout);
	int rc = posix_spawn(&pid, "/bin/sh", &actions, NULL, list, environ), ended = reap(pid);
	/* Not while the child writes. */
	R(rc);
	R(ended);
	posix_spawn_file_actions_destroy(&actions);
}

/* What actions before it had put there stayed open. */
static void close_what_was_put(void)
{
	begin();
	posix_spawn_file_actions_adddup2(&actions, 1, 300);
	posix_spawn_file_actions_addopen(&actions, 5, "kept", O_RDONLY, 0);
	posix_spawn_file_actions_addopen(&actions, 310, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_addclosefrom_np(&actions, 3);
	lists();
}

/* Opened with O_CLOEXEC it is closed by exec if it got the number that was asked for at once, which
 * is the lowest free one; a dup2 leaves it open. All stayed open. */
static void close_on_exec(void)
{
	int lowest = dup(0), flags = O_RDWR | O_CREAT | O_CLOEXEC;
	close(lowest);
	for (int how = 0; how < 9; how++) {
		begin();
		int fd = lowest + (how == 1);
		if (how == 2)
			posix_spawn_file_actions_addopen(&actions, fd++, "other", flags, 0644);
		if (how == 3)
			posix_spawn_file_actions_addclose(&actions, fd = 0);
		if (how == 4)
			posix_spawn_file_actions_adddup2(&actions, 1, fd++);
		if (how == 5)
			posix_spawn_file_actions_addclose(&actions, 0);
		posix_spawn_file_actions_addopen(&actions, fd, "opened", flags, 0644);
		if (how == 6)
			posix_spawn_file_actions_adddup2(&actions, fd, fd);
		if (how == 7)
			posix_spawn_file_actions_adddup2(&actions, fd, fd + 1);
		if (how == 8)
			posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", O_RDWR, 0);
		lists();
	}
	unlink("other");
}

int main(void)
{
	/* Before this process has a file open here. */
	R(system("printf '#include <stdio.h>\nint main(int n, char **v) { printf(\"%%s %%s\\\\n\", "
		 "v[0], v[1]); return 7; }\n' > p.c && gcc -o program p.c && mkdir in && "
		 "cp program in/inner && cp program in/closed && chmod 644 in/closed && "
		 "printf '#!/bin/sh\necho $0 $1; pwd | sed s,.*/,,; exit 7\n' | tee script "
		 "in/script "
		 "> /dev/null && printf '#!inner\n' > in/by_inner && "
		 "chmod 755 script in/script in/by_inner && rm p.c"));
	begin();
	posix_spawn_file_actions_addclosefrom_np(&actions, 3);
	R(start("./program"));
	few_numbers();
	each_number("./program");
	each_number("./script");
	moves();
	fail_first();
	close_what_was_put();
	close_on_exec();
	return 0;
}
