/* A child of clone(2), or of fork by its number, wrote with its parent's writers: its bytes were
 * zeros in the file, or the parent was told ESTALE; and when its function returned a thread of
 * libplfs kept it, so that its parent waited for ever. What one with its parent's memory did with
 * its own descriptors, until it ran a program, was done with the parent's. */
#include "t.h"

#include <linux/sched.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>

int __clone(int (*)(void *), void *, int, void *, ...);

static char stack[256 << 10] __attribute__((aligned(16)));
static int fd;

static int writes(void *bytes)
{
	return write(fd, bytes, strlen(bytes)) == (ssize_t)strlen(bytes) ? 7 : 1;
}

/* On the stack that it was given, of which it needs the most part. */
static int makes(void *name)
{
	char bytes[200 << 10];
	memset(bytes, 'b', sizeof bytes);
	if (bytes < stack || bytes + sizeof bytes > stack + sizeof stack)
		return 2;
	int made = open(name, O_WRONLY | O_CREAT, 0644);
	ssize_t n = write(made, bytes, sizeof bytes);
	return made >= 0 && n == sizeof bytes && dup2(made, 40) == 40 && close(made) == 0 ? 7 : 1;
}

/* As programs spawn: a table of its own, and the parent's memory until the exec. */
static int spawns(void *log)
{
	int to = open(log, O_WRONLY | O_APPEND);
	dup2(to, 1);
	for (int i = 3; i < 30; i++)
		close(i);
	execlp("echo", "echo", "from the child", NULL);
	return 1;
}

static int cloned(int (*function)(void *), const char *argument)
{
	return reap(clone(function, stack + sizeof stack, SIGCHLD, (void *)argument));
}

static void *nothing(void *none)
{
	return none;
}

int main(void)
{
	alarm(60);
	R(cloned(makes, "first"));
	R(fd = open("f", O_RDWR | O_CREAT, 0644));
	for (int i = 0; i < 3; i++) {
		writes("parent ");
		R(cloned(writes, "child "));
	}
	pid_t pid = (pid_t)syscall(SYS_fork);
	if (pid == 0)
		_exit(writes("fork "));
	R(reap(pid));
	pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
	if (pid == 0)
		_exit(writes("clone "));
	R(reap(pid));
	struct clone_args how = {.exit_signal = SIGCHLD};
	pid = (pid_t)syscall(SYS_clone3, &how, sizeof how);
	if (pid == 0)
		_exit(writes("clone3 "));
	R(reap(pid));
	pthread_t thread;
	pthread_create(&thread, NULL, nothing, NULL);
	R(cloned(makes, "second"));
	pthread_join(thread, NULL);
	writes("parent\n");
	R(fsync(fd));
	close(make("log", ""));
	R(reap(clone(spawns, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, "log")));
	show("log");
	writes("parent again\n");
	R(fsync(fd));
	R(close(fd));
	show("f");
	struct stat st;
	R(stat("first", &st) + stat("second", &st));
	R(st.st_size);
	R(reap(__clone(makes, stack + sizeof stack, SIGCHLD, "third")));
	R(clone(NULL, stack + sizeof stack, SIGCHLD, NULL));
	R(clone(writes, NULL, SIGCHLD, NULL));
	return 0;
}
