/* Who has made a plain file and writes it has no handle as long as that is all, and has to find who
 * shares the file all the same, by whatever call: another process of the node, one that another
 * table knows, this process. Workload auto. Prints nothing but what is wrong. */
#include "t.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/xattr.h>

/* Processes that were there before: a fork would make all files handles. `far` has another
 * directory of shared memory, as another node has; `bare` has no library. */
struct helper {
	int to, from;
} near, far, bare;

static int held = -1;

/* What a helper does: promotes a file by a second writer or keeps it so, does it as of several
 * ranks, pins, unlinks, reads. */
static int does(char what, const char *name, char *answer)
{
	int (*open_shared)(const char *, int, mode_t, void **) = dlsym(
		RTLD_DEFAULT, "plfs_door_open_shared");
	long (*put)(void *, const void *, size_t, off_t) = dlsym(RTLD_DEFAULT, "plfs_pwrite");
	int (*end)(void *) = dlsym(RTLD_DEFAULT, "plfs_close");
	void *file;
	char path[600];
	int fd = -1;
	ssize_t n;
	if (what == 'p') {
		fd = open(name, O_RDWR);
		return fd >= 0 && pwrite(fd, "LATER", 5, 8) == 5 && close(fd) == 0;
	}
	if (what == 'o')
		return (held = open(name, O_RDWR)) >= 0;
	if (what == 'c')
		return close(held) == 0;
	if (what == 's') {
		snprintf(path, sizeof path, "%s/%s", getenv("T_HERE"), name);
		return open_shared(path, O_RDWR, 0, &file) == 0 &&
		       put(file, "abcdefghij", 10, 0) == 10 && end(file) == 0;
	}
	if (what == 'a')
		return (fd = open(name, O_WRONLY | O_APPEND)) >= 0 && close(fd) == 0;
	if (what == 'u')
		return unlink(name) == 0;
	if ((fd = open(name, O_RDONLY)) < 0 || (n = read(fd, answer, 90)) < 0)
		return 0;
	answer[n] = 0;
	return close(fd) == 0;
}

static int help(int to, int from)
{
	char ask[100], answer[100];
	while (read(from, ask, sizeof ask) == sizeof ask) {
		memset(answer, 0, sizeof answer);
		int ok = does(ask[0], ask + 1, answer + 1);
		answer[0] = ok ? '1' : '0';
		if (write(to, answer, sizeof answer) != sizeof answer)
			break;
	}
	return 0;
}

static struct helper begin(const char *program, bool has_library)
{
	int to[2], from[2];
	pipe(to);
	pipe(from);
	if (fork() == 0) {
		close(to[1]);
		close(from[0]);
		if (program) {
			char a[20], b[20];
			sprintf(a, "%d", from[1]);
			sprintf(b, "%d", to[0]);
			char table[600];
			snprintf(table, sizeof table, "%s.table", getenv("T_MANAGED"));
			mkdir(table, 0700);
			setenv("PLFS_SHARED_MEMORY", table, 1);
			if (!has_library)
				unsetenv("LD_PRELOAD");
			execl(program, program, a, b, NULL);
			_exit(9);
		}
		_exit(help(from[1], to[0]));
	}
	close(to[0]);
	close(from[1]);
	return (struct helper){to[1], from[0]};
}

static const char *ask(struct helper h, char what, const char *name)
{
	static char answer[100];
	char text[100] = {what};
	strcpy(text + 1, name);
	if (write(h.to, text, sizeof text) != sizeof text ||
		read(h.from, answer, sizeof answer) != sizeof answer || answer[0] != '1') {
		printf("%c %s failed\n", what, name);
		wrong = 1;
	}
	return answer + 1;
}

#define HAS(name, text) \
	do { \
		const char *got_ = ask(near, 'r', name); \
		if (strcmp(got_, text)) { \
			printf("%d: %s has %s, not %s\n", __LINE__, name, got_, text); \
			wrong = 1; \
		} \
	} while (0)

/* Is that what a program without the library finds? */
#define IN_PLACE(name, text) (strcmp(ask(bare, 'r', name), text) == 0)

/* A new file of 10 bytes, in a directory of which is known that new files are plain. */
static int made(const char *name)
{
	close(open("warm", O_WRONLY | O_CREAT | O_TRUNC, 0644));
	unlink(name);
	int fd = open(name, O_RDWR | O_CREAT | O_EXCL, 0644);
	WANT(write(fd, "0123", 4) == 4 && write(fd, "456789", 6) == 6);
	return fd;
}

static void *write_many(void *argument)
{
	int *job = argument;
	for (int i = 0; i < 2000; i++)
		if (pwrite(job[0], job[1] ? "b" : "a", 1, 2 * (i % 500) + job[1]) != 1)
			job[2]++;
	return NULL;
}

/* What follows is done by a process that has used no container yet: only such a one makes files
 * without a handle. It ends with ends(). */
static bool alone(void)
{
	fflush(stdout);
	pid_t pid = fork();
	if (pid && reap(pid) != 0)
		wrong = 1;
	return !pid;
}

static void ends(void)
{
	fflush(stdout);
	_exit(wrong);
}

int main(int argc, char **argv)
{
	char c[2000];
	struct stat st;
	if (argc == 3)
		return help(atoi(argv[1]), atoi(argv[2]));
	setenv("PLFS_WORKLOAD", "auto", 1);
	near = begin(NULL, true);
	far = begin(argv[0], true);
	bare = begin(argv[0], false);

	/* As long as that is all, it is as any file. */
	int fd = made("f"), other;
	WANT(lseek(fd, 0, SEEK_CUR) == 10 && fstat(fd, &st) == 0 && st.st_size == 10);
	WANT(lseek(fd, 2, SEEK_SET) == 2 && write(fd, "xy", 2) == 2 && lseek(fd, 0, SEEK_CUR) == 4);
	WANT(pwrite(fd, "z", 1, 9) == 1 && write(fd, "", 0) == 0);
	WANT(read(fd, c, 9) == 6 && !memcmp(c, "45678z", 6) && lseek(fd, 0, SEEK_END) == 10);
	WANT(close(fd) == 0 && close(fd) == -1 && errno == EBADF);
	HAS("f", "01xy45678z");
	fd = open("w", O_WRONLY | O_CREAT | O_TRUNC, 0600);
	WANT(read(fd, c, 1) == -1 && errno == EBADF && write(fd, "w", 1) == 1 && close(fd) == 0);
	WANT(open("w", O_WRONLY | O_CREAT | O_EXCL, 0600) == -1 && errno == EEXIST);
	fd = open("w", O_WRONLY | O_CREAT | O_TRUNC, 0600);
	WANT(fstat(fd, &st) == 0 && st.st_size == 0 && close(fd) == 0);
	fd = made("g");
	WANT(write(fd, (void *)8, 5) == -1 && errno == EFAULT);
	WANT(pwrite(fd, "x", 1, -1) == -1 && errno == EINVAL && close(fd) == 0);
	HAS("g", "0123456789");

	/* A process of the node writes it, too: what comes then is not in place. */
	if (alone()) {
		fd = made("a");
		ask(near, 'p', "a");
		WANT(pwrite(fd, "X", 1, 0) == 1 && IN_PLACE("a", "0123456789"));
		WANT(read(fd, c, sizeof c) == 3 && !memcmp(c, "TER", 3) && close(fd) == 0);
		HAS("a", "X1234567LATER");
		ends();
	}
	/* Who takes all attributes from a file that became a container, as tools do that make them
	 * those of another file, took what said so, and what the container had was gone. */
	if (alone()) {
		char list[100];
		fd = made("attributes");
		ask(near, 'p', "attributes");
		WANT(pwrite(fd, "X", 1, 0) == 1);
		WANT(syscall(SYS_fgetxattr, fd, "user.plfs", list, 100L) > 0);
		WANT(listxattr("attributes", NULL, 0) == 0 && flistxattr(fd, list, 100) == 0);
		WANT(getxattr("attributes", "user.plfs", list, 100) == -1 && errno == ENODATA);
		WANT(removexattr("attributes", "user.plfs") == -1 && errno == EPERM);
		WANT(fremovexattr(fd, "user.plfs") == -1 && errno == EPERM);
		WANT(setxattr("attributes", "user.plfs", "x", 1, 0) == -1 && errno == EPERM);
		WANT(fsetxattr(fd, "user.mine", "x", 1, 0) == 0);
		WANT(llistxattr("attributes", NULL, 0) == 10);
		WANT(listxattr("attributes", list, 10) == 10 && !strcmp(list, "user.mine"));
		WANT(listxattr("attributes", list, 9) == -1 && errno == ERANGE);
		WANT(listxattr("attributes", (char *)1, 10) == -1 && errno == EFAULT);
		WANT(close(fd) == 0);
		HAS("attributes", "X1234567LATER");
		ends();
	}
	if (alone()) {
		fd = made("b");
		ask(near, 'o', "b");
		WANT(write(fd, "next", 4) == 4 && IN_PLACE("b", "0123456789") && close(fd) == 0);
		HAS("b", "0123456789next");
		ask(near, 'c', "b");
		ends();
	}
	if (alone()) {
		fd = made("c");
		ask(near, 'p', "c");
		WANT(close(fd) == 0);
		HAS("c", "01234567LATER");
		ends();
	}
	/* One of another table does: nobody says so. What comes last stays last, and a close says
	 * what was written until then. */
	if (alone()) {
		fd = made("d");
		ask(far, 's', "d");
		WANT(pwrite(fd, "XY", 2, 10) == 2 && IN_PLACE("d", "0123456789XY") &&
			close(fd) == 0);
		HAS("d", "abcdefghijXY");
		ends();
	}
	if (alone()) {
		fd = made("e0");
		WANT(fsync(fd) == 0 && close(fd) == 0);
		ends();
	}
	if (alone()) {
		fd = made("e");
		ask(far, 's', "e");
		WANT(fsync(fd) == 0 && pwrite(fd, "XY", 2, 0) == 2 && close(fd) == 0);
		HAS("e", "XYcdefghij");
		ends();
	}
	if (alone()) {
		close(open("warm", O_WRONLY | O_CREAT | O_TRUNC, 0644));
		unlink("h");
		fd = open("h", O_WRONLY | O_CREAT | O_EXCL, 0644);
		ask(far, 's', "h");
		WANT(write(fd, "XY", 2) == 2 && IN_PLACE("h", "XY") && close(fd) == 0);
		HAS("h", "XYcdefghij");
		ends();
	}
	/* After a MiB it looks by itself. */
	if (alone()) {
		fd = made("i");
		ask(far, 's', "i");
		char *much = calloc(1, 2 << 20);
		WANT(write(fd, much, 2 << 20) == 2 << 20 && write(fd, "end", 3) == 3);
		/* "end" is not in place. */
		sprintf(c, "test $(env -u LD_PRELOAD stat -c %%s i) = %d", (2 << 20) + 10);
		WANT(system(c) == 0);
		WANT(stat("i", &st) == 0 && st.st_size == (2 << 20) + 13 && close(fd) == 0);
		ends();
	}
	/* It is pinned. */
	int before = containers();
	if (alone()) {
		fd = made("j");
		ask(near, 'a', "j");
		ask(near, 'p', "j");
		WANT(write(fd, "more!", 5) == 5 && close(fd) == 0 && containers() == before);
		HAS("j", "01234567LAmore!");
		ends();
	}
	/* This process opens it once more. */
	fd = made("k");
	other = open("k", O_RDWR);
	WANT(pwrite(other, "x", 1, 0) == 1 && pwrite(fd, "y", 1, 0) == 1);
	WANT(pwrite(fd, "x", 1, 1) == 1 && pwrite(other, "y", 1, 1) == 1);
	WANT(write(fd, "more", 4) == 4 && close(fd) == 0 && close(other) == 0);
	HAS("k", "yy23456789more");
	fd = made("l");
	other = dup(fd);
	WANT(write(other, "a", 1) == 1 && close(fd) == 0 && write(other, "b", 1) == 1);
	WANT(dup2(other, 30) == 30 && close(other) == 0 && write(30, "c", 1) == 1);
	WANT(close_range(30, 30, 0) == 0 && write(30, "", 1) == -1 && errno == EBADF);
	HAS("l", "0123456789abc");
	/* Another file comes to its number. */
	fd = made("m");
	other = made("n");
	WANT(dup2(other, fd) == fd && write(fd, "n", 1) == 1 && write(other, "N", 1) == 1);
	WANT(close(fd) == 0 && close(other) == 0);
	HAS("m", "0123456789");
	HAS("n", "0123456789nN");
	fd = made("o");
	WANT(syscall(SYS_close, fd) == 0 && made("p") == fd && write(fd, "p", 1) == 1);
	WANT(close_range(fd, fd, 0) == 0);
	HAS("o", "0123456789");
	HAS("p", "0123456789p");
	/* The name goes. */
	fd = made("q");
	ask(near, 'u', "q");
	WANT(write(fd, "more", 4) == 4 && fstat(fd, &st) == 0 && st.st_size == 14);
	WANT(st.st_nlink == 0 && close(fd) == 0);
	/* Other calls. */
	fd = made("r");
	WANT(ftruncate(fd, 5) == 0 && write(fd, "x", 1) == 1 && close(fd) == 0);
	WANT(stat("r", &st) == 0 && st.st_size == 11);
	fd = made("s");
	WANT(fcntl(fd, F_SETFL, O_APPEND) == 0 && lseek(fd, 0, SEEK_SET) == 0);
	WANT(write(fd, "x", 1) == 1 && (fcntl(fd, F_GETFL) & O_APPEND) && close(fd) == 0);
	HAS("s", "0123456789x");
	fd = made("t");
	char *map = mmap(NULL, 10, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ask(near, 'p', "t");
	map[0] = 'm';
	WANT(write(fd, "more", 4) == 4 && close(fd) == 0 && munmap(map, 10) == 0);
	HAS("t", "m1234567LAmore");
	WANT(containers() == before);

	/* How far a file can reach its file system says: an lseek past that succeeded. */
	fd = made("u");
	WANT(lseek(fd, INT64_MAX, SEEK_SET) < 0 && errno == EINVAL);
	WANT(lseek(fd, INT64_MAX - 10, SEEK_END) < 0 && errno == EINVAL);
	WANT(lseek(fd, 0, SEEK_CUR) == 10 && write(fd, "u", 1) == 1 && close(fd) == 0);
	HAS("u", "0123456789u");

	/* Other processes have the descriptor. */
	fd = made("v");
	pid_t pid = fork();
	if (!pid)
		_exit(write(fd, "child", 5) != 5);
	WANT(reap(pid) == 0 && write(fd, "parent", 6) == 6 && close(fd) == 0);
	HAS("v", "0123456789childparent");
	fd = made("x");
	sprintf(c, "bash -c 'echo shell >&%d'", fd);
	WANT(system(c) == 0 && write(fd, "x", 1) == 1 && close(fd) == 0);
	HAS("x", "0123456789shell\nx");
	/* One dies without a word: its file is plain, and belongs to nobody. */
	before = containers();
	pid = fork();
	if (!pid) {
		made("y");
		kill(getpid(), SIGKILL);
	}
	WANT(reap(pid) == -SIGKILL);
	ask(near, 'p', "y");
	WANT(containers() == before);
	HAS("y", "01234567LATER");
	/* One ends without a close, when another table's process has gone on. */
	pid = fork();
	if (!pid) {
		close(open("warm", O_WRONLY | O_CREAT | O_TRUNC, 0644));
		fd = open("z", O_WRONLY | O_CREAT | O_EXCL, 0644);
		ask(far, 's', "z");
		_exit(write(fd, "XY", 2) != 2);
	}
	WANT(reap(pid) == 0);
	HAS("z", "XYcdefghij");

	/* Two threads write when the file becomes a container. */
	for (int i = 0; i < 20; i++) {
		if (!alone())
			continue;
		pthread_t threads[2];
		fd = made("threads");
		int jobs[2][3] = {{fd, 0, 0}, {fd, 1, 0}};
		for (int t = 0; t < 2; t++)
			pthread_create(&threads[t], NULL, write_many, jobs[t]);
		ask(near, 'o', "threads");
		for (int t = 0; t < 2; t++)
			pthread_join(threads[t], NULL);
		WANT(jobs[0][2] + jobs[1][2] == 0 && close(fd) == 0);
		ask(near, 'c', "threads");
		fd = open("threads", O_RDONLY);
		WANT(read(fd, c, sizeof c) == 1000 && close(fd) == 0);
		for (int at = 0; at < 1000; at++)
			if (c[at] != "ab"[at % 2]) {
				printf("%d is %c\n", at, c[at]);
				wrong = 1;
				break;
			}
		ends();
	}
	return wrong;
}
