/* join FILE SHARED_MEMORY NODES: processes of so many nodes come to one file, one after the other,
 * and stay; then they close it, one after the other.
 *
 * Each is a node of its own, because it has a directory of shared memory of its own. Prints JSON:
 * nanoseconds of each one's open, first write and fsync, and of each close. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BYTES = 1000 };

static void die(const char *what)
{
	fprintf(stderr, "join: %s: %s\n", what, strerror(errno));
	exit(1);
}

static int64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void tell(int64_t ns)
{
	if (write(STDOUT_FILENO, &ns, sizeof ns) != sizeof ns)
		die("write to the parent");
}

/* What a node does: its parent reads the standard output, and a byte of the standard input tells
 * it, or another one, to close. */
static int node(const char *file, int number)
{
	char bytes[BYTES], go;
	memset(bytes, 'a' + number % 26, sizeof bytes);
	int64_t begin = now();
	int fd = open(file, O_RDWR | O_CREAT, 0644);
	if (fd < 0)
		die("open");
	if (pwrite(fd, bytes, sizeof bytes, (off_t)number * BYTES) != BYTES)
		die("pwrite");
	if (fsync(fd))
		die("fsync");
	tell(now() - begin);
	if (read(STDIN_FILENO, &go, 1) != 1)
		return 1;
	begin = now();
	if (close(fd))
		die("close");
	tell(now() - begin);
	return 0;
}

static int64_t told(int from)
{
	int64_t ns;
	if (read(from, &ns, sizeof ns) != sizeof ns)
		die("a node ended");
	return ns;
}

static void print(const char *name, const int64_t *all, int n)
{
	printf("\"%s\": [", name);
	for (int i = 0; i < n; i++)
		printf("%s%jd", i ? ", " : "", (intmax_t)all[i]);
	printf("]");
}

int main(int argc, char **argv)
{
	if (argc == 4 && !strcmp(argv[1], "--node"))
		return node(argv[2], atoi(argv[3]));
	if (argc != 4) {
		fprintf(stderr, "join FILE SHARED_MEMORY NODES\n");
		return 2;
	}
	int n = atoi(argv[3]), results[2], go[2];
	int64_t *joins = calloc(n, sizeof *joins), *leaves = calloc(n, sizeof *leaves);
	if (!joins || !leaves || pipe2(results, O_CLOEXEC) || pipe2(go, O_CLOEXEC))
		die("prepare");
	for (int i = 0; i < n; i++) {
		char dir[PATH_MAX], number[16];
		snprintf(dir, sizeof dir, "%s/%d", argv[2], i);
		snprintf(number, sizeof number, "%d", i);
		pid_t child = fork();
		if (child < 0)
			die("fork");
		if (child == 0) {
			if (mkdir(dir, 0700) || setenv("PLFS_SHARED_MEMORY", dir, 1) ||
				dup2(go[0], STDIN_FILENO) < 0 ||
				dup2(results[1], STDOUT_FILENO) < 0)
				die("begin a node");
			execl("/proc/self/exe", argv[0], "--node", argv[1], number, (char *)NULL);
			die("exec");
		}
		/* Only children write: when the last one is gone, so is the pipe. */
		if (i == n - 1)
			close(results[1]);
		joins[i] = told(results[0]);
	}
	for (int i = 0; i < n; i++) {
		if (write(go[1], "x", 1) != 1)
			die("write to a node");
		leaves[i] = told(results[0]);
	}
	while (wait(NULL) > 0)
		;
	printf("{");
	print("join_ns", joins, n);
	printf(", ");
	print("leave_ns", leaves, n);
	printf("}\n");
	return 0;
}
