/* vfork is a fork whose parent waits: what the child stores, the parent does not see, nor what
 * errno an exec left. What the child did with files is there. */
#include "t.h"

int main(void)
{
	int fd = open("f", O_RDWR | O_CREAT, 0644);
	volatile int stored = 0;
	pid_t pid = vfork();
	if (pid == 0) {
		execl("./none", "none", (char *)NULL);
		stored = errno;
		/* Would be the parent's descriptor, if the memory were. */
		close(fd);
		_exit(stored);
	}
	WANT(stored == 0);
	WANT(reap(pid) == ENOENT);
	pid = vfork();
	if (pid == 0) {
		usleep(50000);
		_exit(write(fd, "child", 5) != 5);
	}
	WANT(lseek(fd, 0, SEEK_CUR) == 5);
	WANT(reap(pid) == 0);
	WANT(write(fd, "parent", 6) == 6);
	return wrong;
}
