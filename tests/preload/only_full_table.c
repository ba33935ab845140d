/* A program that takes all descriptors, and gives them back: a sync in between, which found none,
 * failed, and so did each later call on the file, whose acknowledged bytes were lost. Now the first
 * call that finds one goes on with all of them. */
#include "t.h"

#include <stdbool.h>
#include <sys/resource.h>

#define LIMIT 64
static int taken[LIMIT], n;

static void make_room(void)
{
	while (n > 0)
		close(taken[--n]);
}

static void content(const char *name, const char *wanted)
{
	char bytes[100] = "";
	int fd = open(name, O_RDONLY);
	WANT(read(fd, bytes, sizeof bytes - 1) == (ssize_t)strlen(wanted) &&
		!strcmp(bytes, wanted));
	close(fd);
}

int main(void)
{
	struct rlimit limit = {LIMIT, LIMIT};
	if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
		return 1;
	/* Each bit of `how` is something that the program does in a full table. */
	for (int how = 0; how < 16; how++) {
		char name[20], bytes[100] = "", wanted[100] = "first";
		sprintf(name, "f%d", how);
		int fd = open(name, O_RDWR | O_CREAT, 0644), null = open("/dev/null", O_RDONLY),
		    copy;
		WANT(write(fd, "first", 5) == 5);
		if (how & 1)
			WANT(fsync(fd) == 0);
		while ((copy = dup(how & 2 ? fd : null)) >= 0)
			taken[n++] = copy;
		bool is_taken = write(fd, "second", 6) == 6, is_full = errno == EMFILE;
		if (is_taken)
			strcat(wanted, "second");
		else
			WANT(is_full);
		if (how & 4)
			WANT(fsync(fd) == 0 || errno == EMFILE);
		if (how & 8)
			WANT(pread(fd, bytes, 50, 0) == (ssize_t)strlen(wanted) || errno == EMFILE);
		make_room();
		WANT(write(fd, "third", 5) == 5);
		strcat(wanted, "third");
		memset(bytes, 0, sizeof bytes);
		WANT(pread(fd, bytes, 50, 0) == (ssize_t)strlen(wanted) && !strcmp(bytes, wanted));
		WANT(fsync(fd) == 0);
		WANT(close(fd) == 0);
		close(null);
		content(name, wanted);
	}
	return wrong;
}
