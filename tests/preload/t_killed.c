/* Children write to a file that their parent has open for writing, and are killed. Workload auto:
 * when the parent had noticed that its plain file has a container, what the next ones had written
 * was seen by nobody until the parent closed it: it did not look into the node's shared memory. */
#include "t.h"

#include <signal.h>
#include <sys/mman.h>

static void look(const char *who, int fd)
{
	char bytes[40] = "";
	ssize_t n = pread(fd, bytes, sizeof bytes - 1, 0);
	printf("%s: %zd bytes %s\n", who, n, bytes);
	fflush(stdout);
}

/* The parent looks for others by fsync, by a write of its own, or not at all. */
enum how { NOT, SYNC, WRITE };

static void killed_by_turns(enum how how)
{
	_Atomic int *wrote = mmap(
		NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	char name[20];
	sprintf(name, "f%d", how);
	int own = open(name, O_RDWR | O_CREAT, 0644);
	for (int turn = 1; turn <= 3; turn++) {
		*wrote = 0;
		pid_t pid = fork();
		if (pid == 0) {
			close(own);
			char bytes[4] = {'0' + turn, '0' + turn, '0' + turn, '0' + turn};
			int fd = open(name, O_RDWR);
			*wrote = pwrite(fd, bytes, 4, 4 * (turn - 1)) == 4 ? 1 : -1;
			for (;;)
				pause();
		}
		while (!*wrote)
			usleep(10);
		WANT(*wrote == 1);
		kill(pid, SIGKILL);
		WANT(reap(pid) == -SIGKILL);
		int fd = open(name, O_RDONLY);
		look("opened anew", fd);
		close(fd);
		if (how == SYNC)
			WANT(fsync(own) == 0);
		if (how == WRITE)
			WANT(pwrite(own, "w", 1, 12 + turn) == 1);
		look("open before", own);
		fflush(stdout);
		if ((pid = fork()) == 0) {
			fd = open(name, O_RDONLY);
			look("another process", fd);
			_exit(0);
		}
		WANT(reap(pid) == 0);
	}
	WANT(close(own) == 0);
	int fd = open(name, O_RDONLY);
	look("in the end", fd);
	close(fd);
}

int main(void)
{
	for (enum how how = NOT; how <= WRITE; how++)
		killed_by_turns(how);
	return wrong;
}
