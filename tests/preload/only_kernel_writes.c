/* libaio and liburing, by whose calls the kernel writes files itself: plain files stay plain from
 * then on. Prints nothing but what is wrong. */
#include "t.h"

#include <dlfcn.h>
#include <sys/syscall.h>

static int is_pinned(const char *path)
{
	char said[200] = "";
	/* libc's own call hides it. */
	int fd = open(path, O_RDONLY);
	long n = syscall(SYS_fgetxattr, fd, "user.plfs", said, sizeof said - 1);
	close(fd);
	return n > 0 && memmem(said, sizeof said, "libaio or io_uring", 18);
}

/* Each in a process of its own, which has not done it before. */
static int in_child(const char *name)
{
	pid_t pid = fork();
	if (pid > 0) {
		int status = -1;
		waitpid(pid, &status, 0);
		return status;
	}
	char before[40], after[40];
	void *context = NULL;
	char ring[1000] = "";
	int (*call)() = (int (*)())dlsym(RTLD_DEFAULT, name);
	snprintf(before, sizeof before, "%s.before", name);
	snprintf(after, sizeof after, "%s.after", name);
	close(make(before, "plain"));
	WANT(!is_pinned(before));
	int fd = open(before, O_RDWR);
	if (strcmp(name, "io_setup") == 0) {
		WANT(call(-1, &context) < 0);
		WANT(call(1, &context) == 0);
	} else {
		/* ENOSYS where the program has no liburing. */
		int none = dlopen("liburing.so.2", RTLD_LAZY) == NULL;
		int rc = strcmp(name, "io_uring_queue_init") == 0 ? call(1, ring, 0)
								  : call(0, ring, ring, ring, 0L);
		WANT(none ? rc == -ENOSYS : rc != -ENOSYS);
	}
	WANT(is_pinned(before));
	WANT(write(fd, "PLAIN", 5) == 5);
	close(fd);
	fd = make(after, "plain");
	WANT(is_pinned(after));
	close(fd);
	_exit(wrong);
}

int main(int argc, char **argv)
{
	if (strcmp(getenv("PLFS_WORKLOAD"), "auto")) {
		setenv("PLFS_WORKLOAD", "auto", 1);
		execv(argv[0], argv);
		return 1;
	}
	WANT(in_child("io_setup") == 0);
	WANT(in_child("io_uring_queue_init") == 0);
	WANT(in_child("io_uring_queue_init_params") == 0);
	WANT(in_child("io_uring_queue_init_mem") == 0);
	return wrong;
}
