/* A program that opens files until it has no descriptors left is told by an open, and not by each
 * write after that. */
#include "t.h"
#include <sys/resource.h>

int main(void)
{
	struct rlimit limit = {256, 256};
	static int fds[256];
	int n = 0;
	char name[20];
	if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
		return 1;
	for (; n < 256; n++) {
		sprintf(name, "f%d", n);
		if ((fds[n] = open(name, O_RDWR | O_CREAT, 0644)) < 0)
			break;
	}
	int error = errno, bad = 0;
	for (int round = 0; round < 2; round++)
		for (int i = 0; i < n; i++)
			bad += write(fds[i], "line\n", 5) != 5 || fsync(fds[i]) < 0;
	for (int i = 0; i < n; i++) {
		char line[5];
		bad += pread(fds[i], line, 5, 5) != 5 || close(fds[i]) < 0;
	}
	if (n < 64 || n == 256 || error != EMFILE || bad) {
		printf("%d open, then %s; %d failed\n", n, strerror(error), bad);
		return 1;
	}
	return 0;
}
