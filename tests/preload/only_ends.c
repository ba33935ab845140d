/* A signal that ends the program, in the middle of a call of the C API, where handlers do not wait:
 * that call has libplfs's locks, and never ends. The program ends all the same. */
#include "t.h"
#include <dlfcn.h>
#include <signal.h>
#include <time.h>

static int (*plfs_open)(const char *, int, mode_t, void **);
static ssize_t (*plfs_pwrite)(void *, const void *, size_t, int64_t);

static void writes(void)
{
	void *file = NULL;
	char bytes[4096] = "";
	int fd = open("by_posix", O_WRONLY | O_CREAT, 0644), other = open("by_posix", O_WRONLY);
	if (fd < 0 || other < 0 || write(fd, "x", 1) != 1 || write(other, "x", 1) != 1 ||
		plfs_open("by_the_api", O_RDWR | O_CREAT, 0644, &file) < 0)
		_exit(1);
	for (int64_t at = 0;; at = (at + sizeof bytes) % (1 << 24))
		if (plfs_pwrite(file, bytes, sizeof bytes, at) != sizeof bytes)
			_exit(2);
}

int main(void)
{
	plfs_open = dlsym(RTLD_DEFAULT, "plfs_open");
	plfs_pwrite = dlsym(RTLD_DEFAULT, "plfs_pwrite");
	WANT(plfs_open && plfs_pwrite);
	if (wrong)
		return wrong;
	pid_t pid = fork();
	if (pid == 0)
		writes();
	usleep(200000);
	time_t begun = time(NULL);
	kill(pid, SIGTERM);
	WANT(reap(pid) == -SIGTERM);
	WANT(time(NULL) - begun < 30);
	return wrong;
}
