/* beside DIR N: in each of N rounds one process makes DIR/name.I exclusively as a file, and another
 * one at the same moment as a directory, a link, a fifo or by link(2). Prints the rounds that did
 * not have one winner. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int make(int kind, const char *path)
{
	switch (kind) {
	case 0:
		return mkdir(path, 0755);
	case 1:
		return symlink("nothing", path);
	case 2:
		return mkfifo(path, 0644);
	default:
		return link("ordinary", path);
	}
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	int n = atoi(argv[2]), failed = 0, won[2] = {0, 0};
	close(open("ordinary", O_CREAT | O_WRONLY, 0644));
	_Atomic int *there = mmap(
		NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	char *wins = mmap(
		NULL, 2 * (size_t)n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	for (int who = 0; who < 2; who++) {
		if (fork() != 0)
			continue;
		char path[4096];
		for (int i = 0; i < n; i++) {
			snprintf(path, sizeof path, "%s/name.%d", argv[1], i);
			atomic_fetch_add(there, 1);
			while (atomic_load(there) < 2 * (i + 1))
				;
			/* One of them is a little later. */
			for (volatile int wait = who == i % 2 ? i % 64 * 200 : 0; wait > 0; wait--)
				;
			int rc = who == 0 ? open(path, O_CREAT | O_EXCL | O_WRONLY, 0644)
					  : make(i / 2 % 4, path);
			wins[2 * i + who] = rc >= 0 ? 1 : errno == EEXIST ? 0 : 2;
			if (who == 0 && rc >= 0)
				close(rc);
		}
		_exit(0);
	}
	while (wait(NULL) > 0)
		;
	for (int i = 0; i < n; i++) {
		won[0] += wins[2 * i] == 1, won[1] += wins[2 * i + 1] == 1;
		if (wins[2 * i] + wins[2 * i + 1] != 1) {
			printf("name.%d: %d and %d\n", i, wins[2 * i], wins[2 * i + 1]);
			failed = 1;
		}
	}
	fprintf(stderr, "%d files, %d others\n", won[0], won[1]);
	return failed;
}
