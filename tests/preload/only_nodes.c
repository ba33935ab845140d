/* A hundred nodes come to one file and stay, then ten more processes of the last one: what the last
 * node's open, first write and fsync cost, in system calls, is what the second one's did; so for
 * the processes of a node. Prints nothing but what is wrong. */
#include "t.h"

#include <sys/ptrace.h>

#define NODES 100
#define PROCESSES 10
/* A file with more than 64 log sets has a clock, which its founders read and once write. */
#define MORE 24

/* A process of a node: stops before and after what is counted. */
static int node(int number)
{
	char c = 'a' + number % 26;
	raise(SIGSTOP);
	int fd = open("f", O_RDWR | O_CREAT, 0644);
	if (fd < 0 || pwrite(fd, &c, 1, number) != 1 || fsync(fd))
		return 1;
	raise(SIGSTOP);
	/* The end of the file: all may close. */
	return read(0, &c, 1) != 0 || close(fd);
}

/* Lets a process run to its next SIGSTOP, and counts its main thread's system calls. */
static int calls_to_stop(pid_t pid)
{
	for (int stops = 0, status, sig = 0;; sig = 0) {
		if (ptrace(PTRACE_SYSCALL, pid, NULL, (long)sig) ||
			waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status))
			return -1;
		switch (WSTOPSIG(status)) {
		case SIGTRAP | 0x80:
			stops++;
			break;
		case SIGSTOP:
			return stops / 2;
		case SIGTRAP: /* exec */
			break;
		default:
			sig = WSTOPSIG(status);
		}
	}
}

int main(int argc, char **argv)
{
	if (argc == 2)
		return node(atoi(argv[1]));
	char memory[64], dir[96], number[16];
	int end[2], counts[NODES + PROCESSES];
	pid_t pids[NODES + PROCESSES];
	sprintf(memory, "/dev/shm/plfs-only-nodes-%d", getpid());
	WANT(mkdir(memory, 0700) == 0 && pipe2(end, O_CLOEXEC) == 0);
	setenv("PLFS_WORKLOAD", "shared", 1);
	for (int i = 0; i < NODES + PROCESSES; i++) {
		int status, of = i < NODES ? i : NODES - 1;
		sprintf(dir, "%s/%d", memory, of);
		sprintf(number, "%d", i);
		WANT(i != of || mkdir(dir, 0700) == 0);
		setenv("PLFS_SHARED_MEMORY", dir, 1);
		if (!(pids[i] = fork())) {
			dup2(end[0], 0);
			if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
				_exit(77);
			raise(SIGSTOP);
			execl(argv[0], argv[0], number, NULL);
			_exit(1);
		}
		if (waitpid(pids[i], &status, 0) == pids[i] && WIFEXITED(status) &&
			WEXITSTATUS(status) == 77)
			return 0; /* Nobody may trace here. */
		WANT(ptrace(PTRACE_SETOPTIONS, pids[i], NULL,
			     PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL) == 0);
		WANT(calls_to_stop(pids[i]) > 0);
		WANT((counts[i] = calls_to_stop(pids[i])) > 0);
		WANT(ptrace(PTRACE_DETACH, pids[i], NULL, NULL) == 0);
	}
	/* The first of all makes the file. */
	for (int i = 2; i < NODES; i++)
		if (counts[i] > counts[1] + MORE)
			wrong = printf("node 1: %d calls, node %d: %d\n", counts[1], i, counts[i]);
	for (int i = NODES; i < NODES + PROCESSES; i++)
		if (counts[i] > counts[NODES] + 2 || counts[i] >= counts[NODES - 1])
			wrong = printf(
				"a node's founder: %d calls, second process: %d, another: %d\n",
				counts[NODES - 1], counts[NODES], counts[i]);
	close(end[1]);
	for (int i = 0; i < NODES + PROCESSES; i++)
		WANT(reap(pids[i]) == 0);
	struct stat st;
	WANT(stat("f", &st) == 0 && st.st_size == NODES + PROCESSES);
	sprintf(dir, "rm -r %s", memory);
	WANT(system(dir) == 0);
	return wrong != 0;
}
