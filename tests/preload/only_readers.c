/* Who has opened a plain file for reading only has no handle as long as it stays plain, and has to
 * find what others put into a container of it all the same, by whatever call. Workload auto. Prints
 * nothing but what is wrong. */
#include "t.h"

#include <sys/file.h>
#include <sys/mman.h>
#include <sys/xattr.h>

/* Runs `does` in a process of its own, which ends well. */
#define ELSEWHERE(does) \
	do { \
		fflush(stdout); \
		pid_t pid_ = fork(); \
		if (!pid_) { \
			does; \
			fflush(stdout); \
			_exit(wrong); \
		} \
		WANT(reap(pid_) == 0); \
	} while (0)

static int has(const char *found, ssize_t n, const char *text)
{
	return n == (ssize_t)strlen(text) && !memcmp(found, text, strlen(text));
}

/* A second process writes the file: it becomes a container, and that has "LATER" from 8 on. */
static void promote(const char *name)
{
	char c, text[99] = "", command[200];
	int is_open[2], may_end[2];
	pipe(is_open);
	pipe(may_end);
	fflush(stdout);
	pid_t pid = fork();
	if (!pid) {
		int fd = open(name, O_RDWR);
		write(is_open[1], "", 1);
		close(may_end[1]);
		read(may_end[0], &c, 1);
		_exit(fd < 0);
	}
	close(may_end[0]);
	read(is_open[0], &c, 1);
	int fd = open(name, O_RDWR);
	WANT(pwrite(fd, "LATER", 5, 8) == 5 && close(fd) == 0);
	close(is_open[0]);
	close(is_open[1]);
	close(may_end[1]);
	WANT(reap(pid) == 0);
	snprintf(command, sizeof command, "env -u LD_PRELOAD stat -c %%h %s", name);
	FILE *said = popen(command, "r");
	fgets(text, sizeof text, said);
	pclose(said);
	WANT(atoi(text) == 2);
}

/* A plain file of 10 bytes, open for reading, of which 4 are read. */
static int opened(const char *name)
{
	char c[4];
	unlink(name);
	close(make(name, "0123456789"));
	int fd = open(name, O_RDONLY);
	WANT(read(fd, c, 4) == 4 && !memcmp(c, "0123", 4));
	return fd;
}

int main(void)
{
	char c[100];
	struct stat st;
	setenv("PLFS_WORKLOAD", "auto", 1);

	/* Names go by nothing but an unlink where there are no containers. One that this process
	 * has made since goes with its name all the same. */
	int fd, other, kept;
	for (int i = 0; i < 3; i++)
		close(opened("u"));
	promote("u");
	WANT(containers() == 1 && unlink("u") == 0 && containers() == 0);

	/* As long as it stays plain it is the kernel's. */
	fd = opened("f");
	WANT(fstat(fd, &st) == 0 && st.st_size == 10);
	WANT(has(c, read(fd, c, sizeof c), "456789") && read(fd, c, sizeof c) == 0);
	WANT(lseek(fd, 0, SEEK_CUR) == 10 && lseek(fd, -2, SEEK_END) == 8);
	WANT(has(c, read(fd, c, 2), "89"));
	WANT(has(c, pread(fd, c, sizeof c, 7), "789"));
	WANT(write(fd, "x", 1) == -1 && errno == EBADF);
	/* That was for a handle. */
	WANT(lseek(fd, 0, SEEK_CUR) == 10 && lseek(fd, 5, SEEK_SET) == 5);
	WANT(has(c, read(fd, c, sizeof c), "56789") && close(fd) == 0);
	WANT(read(fd, c, 1) == -1 && errno == EBADF && close(fd) == -1);

	/* What copies a descriptor shares its position. */
	fd = opened("f");
	other = dup(fd);
	WANT(has(c, read(other, c, 2), "45") && has(c, read(fd, c, 2), "67"));
	WANT(dup2(fd, 20) == 20 && close(fd) == 0 && close(other) == 0);
	WANT(has(c, read(20, c, sizeof c), "89"));
	WANT((fd = fcntl(20, F_DUPFD, 30)) == 30 && close(20) == 0);
	WANT(lseek(fd, 0, SEEK_CUR) == 10 && close(fd) == 0);
	fd = opened("f");
	ELSEWHERE(WANT(has(c, read(fd, c, 2), "45")));
	WANT(has(c, read(fd, c, 2), "67"));
	ELSEWHERE(WANT(dup2(fd, 0) == 0); execlp("head", "head", "-c1", NULL); wrong = 1);
	WANT(lseek(fd, 0, SEEK_CUR) >= 9 && close(fd) == 0);
	/* Over one, and away with many. */
	fd = opened("f");
	other = opened("g");
	WANT(dup2(fd, other) == other && close(fd) == 0);
	WANT(has(c, read(other, c, sizeof c), "456789"));
	WANT(close_range(other, other, 0) == 0 && read(other, c, 1) == -1 && errno == EBADF);

	/* Others go on in a container; 8 bytes are in place, 5 are not. */
	fd = opened("a");
	ELSEWHERE(promote("a"));
	WANT(has(c, read(fd, c, sizeof c), "4567LATER") && read(fd, c, sizeof c) == 0);
	WANT(lseek(fd, 0, SEEK_CUR) == 13 && close(fd) == 0);
	fd = opened("b");
	ELSEWHERE(promote("b"));
	WANT(has(c, pread(fd, c, sizeof c, 6), "67LATER"));
	WANT(has(c, read(fd, c, 6), "4567LA") && close(fd) == 0);
	fd = opened("c");
	ELSEWHERE(promote("c"));
	WANT(fstat(fd, &st) == 0 && st.st_size == 13);
	WANT(lseek(fd, -5, SEEK_END) == 8 && has(c, read(fd, c, sizeof c), "LATER"));
	WANT(close(fd) == 0);
	fd = opened("d");
	ELSEWHERE(promote("d"));
	struct iovec two[] = {{c, 6}, {c + 6, 90}};
	WANT(has(c, readv(fd, two, 2), "4567LATER") && close(fd) == 0);
	fd = opened("e");
	ELSEWHERE(promote("e"));
	WANT(flock(fd, LOCK_SH) == 0);
	WANT(has(c, read(fd, c, 9), "4567LATER") && close(fd) == 0);
	fd = opened("h");
	other = dup(fd);
	ELSEWHERE(promote("h"));
	WANT(has(c, read(other, c, sizeof c), "4567LATER") && read(fd, c, sizeof c) == 0);
	WANT(close(fd) == 0 && close(other) == 0);
	/* In the child of a fork, and in another program. */
	fd = opened("i");
	ELSEWHERE(promote("i"); WANT(has(c, read(fd, c, sizeof c), "4567LATER")));
	WANT(close(fd) == 0);
	fd = opened("j");
	ELSEWHERE(promote("j"));
	sprintf(c, "test \"$(cat <&%d)\" = 4567LATER", fd);
	WANT(system(c) == 0 && close(fd) == 0);
	/* In a stream. */
	unlink("k");
	close(make("k", "0123456789"));
	FILE *stream = fopen("k", "r");
	setvbuf(stream, NULL, _IONBF, 0);
	WANT(fread(c, 1, 4, stream) == 4);
	ELSEWHERE(promote("k"));
	WANT(has(c, fread(c, 1, sizeof c, stream), "4567LATER") && fclose(stream) == 0);

	/* The name goes then; or another file takes it. */
	fd = opened("l");
	ELSEWHERE(promote("l"));
	ELSEWHERE(WANT(unlink("l") == 0));
	WANT(has(c, read(fd, c, sizeof c), "4567LATER") && close(fd) == 0);
	fd = opened("m");
	ELSEWHERE(promote("m"); close(make("n", "another")); WANT(rename("n", "m") == 0));
	WANT(has(c, read(fd, c, sizeof c), "4567LATER") && close(fd) == 0);
	fd = opened("m");
	ELSEWHERE(WANT(unlink("m") == 0));
	WANT(has(c, read(fd, c, sizeof c), "456789") && close(fd) == 0);

	/* A copy has the attribute of what it was made of, and is plain. */
	close(opened("o"));
	ELSEWHERE(promote("o"));
	WANT(system("env -u LD_PRELOAD cp --preserve=all o p") == 0);
	fd = open("p", O_RDONLY);
	WANT(has(c, read(fd, c, sizeof c), "0123456789") && close(fd) == 0);
	/* One gets a second name, and has no container. */
	fd = opened("q");
	WANT(link("q", "r") == 0 && has(c, read(fd, c, sizeof c), "456789") && close(fd) == 0);

	/* This process itself goes on in the container: it sees what it writes, commit or not. */
	fd = opened("s");
	kept = opened("t");
	promote("s");
	other = open("s", O_RDWR);
	WANT(pwrite(other, "NOW", 3, 4) == 3);
	WANT(has(c, read(fd, c, 3), "NOW") && has(c, read(fd, c, sizeof c), "7LATER"));
	WANT(has(c, read(kept, c, 2), "45") && has(c, read(kept, c, sizeof c), "6789"));
	/* Its locks go with any descriptor of the file. */
	struct flock lock = {.l_type = F_WRLCK};
	WANT(fcntl(other, F_SETLK, &lock) == 0 && close(fd) == 0);
	ELSEWHERE(int fd = open("s", O_RDWR); WANT(fcntl(fd, F_SETLK, &lock) == 0));
	WANT(close(other) == 0 && close(kept) == 0);
	return wrong;
}
