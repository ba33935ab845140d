/* A file gets a name outside of the managed directory, by link or rename, at the moment when
 * another process makes it a container. Who opened it by that name had the plain file, while
 * descriptors from before went on in the container: what one of them wrote the other never read. */
#include "t.h"

enum { ROUNDS = 20 };

static int other;

static int is_read(int fd, const char *wanted)
{
	char text[20] = "";
	return pread(fd, text, sizeof text - 1, 0) == 10 && memcmp(text, wanted, 10) == 0;
}

static int give_link(const char *path, const char *outside)
{
	return link(path, outside) < 0 ? -1 : unlink(path);
}

static void goes(const char *how, int (*give)(const char *, const char *), const char *outside)
{
	int bad = 0;
	char name[20], byte;
	for (int i = 0; i < ROUNDS; i++) {
		sprintf(name, "f%d", i);
		int fd = make(name, "0123456789");
		send(other, name, strlen(name) + 1, 0);
		/* It takes some 10 ms, the longest tick of a clock of files. */
		usleep((useconds_t)i * 500);
		/* A container does not leave: EXDEV. */
		int is_gone = give(name, outside) == 0, late = is_gone ? open(outside, O_RDWR) : -1;
		recv(other, &byte, 1, 0);
		if (is_gone) {
			bad += pwrite(fd, "X", 1, 1) != 1 || !is_read(late, "0X23456789");
			bad += pwrite(late, "Y", 1, 2) != 1 || !is_read(fd, "0XY3456789");
			close(late);
		}
		close(fd);
		unlink(is_gone ? outside : name);
	}
	printf("%s: %d bad\n", how, bad);
}

int main(void)
{
	char outside[4096];
	snprintf(outside, sizeof outside, "%s/../beside.%d", getenv("T_MANAGED"), (int)getpid());
	other = start_other(opens_for_writing);
	goes("link", give_link, outside);
	goes("rename", rename, outside);
	close(other);
	return 0;
}
