/* A file without a name is there as long as it is open. A process that changes its user, or the
 * limit of a file's size, gives up what it has in the logs, as at its end: that took the files
 * without a name away, and what was in them. */
#include "t.h"
#include <sys/resource.h>

static int nameless(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0644);
	R(pwrite(fd, "text", 4, 0));
	R(unlink(path));
	return fd;
}

static void is_there(int fd)
{
	char buf[8] = "";
	R(pwrite(fd, "x", 1, 3));
	R(pread(fd, buf, sizeof buf, 0));
	puts(buf);
}

int main(void)
{
	int fd = nameless("user"), more = nameless("limit");
	FILE *stream = tmpfile();
	R(seteuid(geteuid()));
	is_there(fd);
	R(setegid(getegid()));
	R(setgid(getgid()));
	is_there(more);
	struct rlimit limit;
	R(getrlimit(RLIMIT_FSIZE, &limit));
	R(setrlimit(RLIMIT_FSIZE, &limit));
	is_there(fd);
	R(prlimit(0, RLIMIT_FSIZE, &limit, NULL));
	is_there(more);
	R(stream && fputs("of stdio", stream) >= 0 && fclose(stream) == 0);
	R(close(fd));
	is_there(more);
	return 0;
}
