/* A program that is not root's makes a file of mode 0, which nobody may open again, or takes the
 * rights of one away that it has open. It goes on with what it has open all the same, and so does a
 * child of a fork; and a program that it becomes, unless the file never let it open it. fsync gave
 * EACCES for a file of mode 0, when all was durable but the superblock. */
#include "t.h"

#define USER 65534

static long size_of(int fd)
{
	struct stat st;
	return fstat(fd, &st) < 0 ? -1 : st.st_size;
}

static void go_on(const char *name, mode_t before, mode_t after)
{
	char buf[64] = "";
	int fd = R(open(name, O_RDWR | O_CREAT | O_EXCL | O_APPEND, before));
	R(write(fd, "first ", 6));
	R(fchmod(fd, after));
	R(write(fd, "second ", 7));
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		if (write(fd, "child ", 6) != 6)
			_exit(1);
		if (before & 0400)
			execlp("sh", "sh", "-c", "printf 'shell ' >&$FD", (char *)NULL);
		_exit(write(fd, "shell ", 6) == 6 ? 0 : 2);
	}
	R(reap(pid));
	R(write(fd, "last", 4));
	/* Whose mode has changed since cannot open the superblock, to make that durable. */
	if (before == after)
		R(fsync(fd));
	R(size_of(fd));
	R(pread(fd, buf, sizeof buf - 1, 0));
	puts(buf);
	R(open(name, O_RDONLY));
	if (!(after & 0200))
		R(open(name, O_WRONLY));
	R(close(fd));
	R(open(name, O_RDWR));
	struct stat st;
	R(stat(name, &st));
	/* Who may not read a container sees the size of its superblock. */
	printf("%o %ld\n", st.st_mode, before & after & 0400 ? (long)st.st_size : 0);
	R(chmod(name, 0600));
	show(name);
	R(unlink(name));
}

int main(void)
{
	if (geteuid() != 0) {
		fputs("only root becomes another user\n", stderr);
		return 77;
	}
	/* The first who makes a container makes the place of all: here the mount's owner. */
	R(close(make("of_root", "")));
	R(mkdir("of_all", 0777));
	R(chmod("of_all", 0777));
	R(chdir("of_all"));
	R(setgid(USER));
	R(setuid(USER));
	umask(0);
	/* The lowest that is free. */
	setenv("FD", "3", 1);
	go_on("born", 0, 0);
	go_on("write_only", 0200, 0200);
	go_on("later", 0644, 0);
	go_on("by_others", 0666, 0066);
	return 0;
}
