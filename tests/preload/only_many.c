/* Many files open for writing below the usual limit of 1,024: three descriptors each, the program's
 * own among them, and an eighth of the limit for logs. Prints nothing but what is wrong. */
#include "t.h"

#include <dirent.h>
#include <sys/resource.h>

#define FILES 285

static int descriptors(void)
{
	int n = -3; /* ., .. and the directory itself */
	DIR *dir = opendir("/proc/self/fd");
	while (dir && readdir(dir))
		n++;
	closedir(dir);
	return n;
}

/* Waits until at most `limit` are open, for a minute at most. The thread that commits has others
 * for a moment, which is long where others write to the same disk. Returns the last count. */
static int settle(int limit)
{
	int many = descriptors();
	for (int ms = 0; ms < 60000 && many > limit; ms++, many = descriptors())
		usleep(1000);
	return many;
}

int main(int argc, char **argv)
{
	struct rlimit limit;
	getrlimit(RLIMIT_NOFILE, &limit);
	if (argc < 2) {
		limit.rlim_cur = 1024;
		WANT(setrlimit(RLIMIT_NOFILE, &limit) == 0);
		execl(argv[0], argv[0], "again", NULL);
		return 1;
	}
	static int fds[FILES];
	char name[16], want[32], c[32];
	int before = descriptors();
	for (int i = 0; i < FILES; i++) {
		sprintf(name, "f%d", i);
		WANT((fds[i] = open(name, O_CREAT | O_RDWR, 0644)) >= 0);
	}
	for (int round = 0; round < 3; round++)
		for (int i = 0; i < FILES; i++) {
			int n = sprintf(want, "%d in round %d;", i, round);
			WANT(write(fds[i], want, n) == n);
			if ((i + round) % 3 == 0)
				WANT(fsync(fds[i]) == 0);
		}
	for (int i = 0; i < FILES; i++) {
		int n = sprintf(want, "%d in round 0;", i);
		WANT(pread(fds[i], c, n, 0) == n && !memcmp(c, want, n));
	}
	/* And one for what is shared with children. */
	int limit_open = before + 3 * FILES + 1024 / 8 + 1;
	WANT(settle(limit_open) <= limit_open);
	int plain[16];
	for (int i = 0; i < 16; i++)
		WANT((plain[i] = open("/dev/null", O_RDONLY)) >= 0);
	for (int i = 0; i < FILES; i++)
		WANT(close(fds[i]) == 0);
	int limit_closed = before + 16 + 1024 / 8 + 1;
	WANT(settle(limit_closed) <= limit_closed);
	for (int i = 0; i < FILES; i++) {
		sprintf(name, "f%d", i);
		int n = sprintf(want, "%d in round 2;", i), fd = open(name, O_RDONLY);
		WANT(pread(fd, c, n, 2 * n) == n && !memcmp(c, want, n));
		WANT(close(fd) == 0);
	}
	return wrong;
}
