/* forked FILE: parent and child share a descriptor, write by turns where the other has stopped, and
 * read what it wrote; then the child goes on through an exec. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void check(int is, const char *what)
{
	if (!is) {
		fprintf(stderr, "%s\n", what);
		_exit(1);
	}
}

static void turn(int fd, int round, const char *who)
{
	char text[32], want[32], got[32] = "";
	check(lseek(fd, 0, SEEK_CUR) == round * 8, "the position is not shared");
	if (round > 0) {
		snprintf(want, sizeof want, "%7d\n", round - 1);
		check(pread(fd, got, 8, (round - 1) * 8) == 8 && !strcmp(got, want), who);
	}
	snprintf(text, sizeof text, "%7d\n", round);
	check(write(fd, text, 8) == 8 && fsync(fd) == 0, "write");
}

int main(int argc, char **argv)
{
	if (argc != 2)
		return 2;
	int fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0644), to[2], from[2];
	check(fd >= 0 && pipe(to) == 0 && pipe(from) == 0, "open");
	char c = 0;
	pid_t child = fork();
	if (child == 0) {
		for (int round = 1; round < 20; round += 2) {
			check(read(to[0], &c, 1) == 1, "pipe");
			turn(fd, round, "the child does not see what its parent wrote");
			check(write(from[1], &c, 1) == 1, "pipe");
		}
		dup2(fd, 1);
		execl("/bin/echo", "echo", "the end", NULL);
		_exit(1);
	}
	for (int round = 0; round < 20; round += 2) {
		turn(fd, round, "the parent does not see what its child wrote");
		check(write(to[1], &c, 1) == 1 && read(from[0], &c, 1) == 1, "pipe");
	}
	int status;
	check(waitpid(child, &status, 0) == child && status == 0, "the child failed");
	char end[16] = "";
	check(pread(fd, end, sizeof end, 160) == 8 && !strcmp(end, "the end\n"), "after the exec");
	check(lseek(fd, 0, SEEK_CUR) == 168, "the position after the exec");
	return 0;
}
