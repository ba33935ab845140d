/* What lies outside, beside the managed directory, is the kernel's; unless a symbolic link leads
 * in. Who opened a file by such a link for reading had what it was before others wrote it, for
 * ever; and what was written by such a descriptor was lost, later the file stayed plain. A write
 * with the access mode 3, to any file, never returned. */
#include "t.h"

#include <pthread.h>

static int other;

static void writes_elsewhere(int socket)
{
	char path[4096], text[100];
	off_t at;
	while (recv(socket, path, sizeof path, 0) > 0) {
		recv(socket, text, sizeof text, 0);
		recv(socket, &at, sizeof at, 0);
		int fd = open(path, O_WRONLY),
		    is_bad = fd < 0 || pwrite(fd, text, strlen(text), at) < 0 || fsync(fd) < 0;
		close(fd);
		send(socket, &is_bad, sizeof is_bad, 0);
	}
}

static void write_elsewhere(const char *path, const char *text, off_t at)
{
	int is_bad = 1;
	send(other, path, strlen(path) + 1, 0);
	send(other, text, strlen(text) + 1, 0);
	send(other, &at, sizeof at, 0);
	if (recv(other, &is_bad, sizeof is_bad, 0) < 0 || is_bad)
		printf("%s is not written\n", path);
}

static void tell(int fd)
{
	char text[100] = "";
	ssize_t n = pread(fd, text, sizeof text - 1, 0);
	struct stat st = {0};
	fstat(fd, &st);
	printf("%zd of %lld: %s\n", n, (long long)st.st_size, text);
}

/* All open one file by `linked`, and others write it by `path` meanwhile. */
static void by_link(const char *linked, const char *path)
{
	printf("by %s\n", strrchr(linked, '/'));
	int made = open(linked, O_RDWR | O_CREAT | O_TRUNC, 0644);
	R(write(made, "0123456789", 10));
	int reader = open(linked, O_RDONLY), writer = open(linked, O_WRONLY),
	    appends = open(linked, O_RDWR | O_APPEND);
	tell(reader);
	write_elsewhere(path, "xx", 2);
	tell(reader);
	R(pwrite(writer, "yy", 2, 6));
	tell(reader);
	R(write(appends, "end", 3));
	R(pwrite(made, "MADE", 4, 0));
	write_elsewhere(path, "zz", 20);
	tell(reader);
	tell(made);
	int late = open(linked, O_RDONLY), cuts = open(linked, O_WRONLY | O_TRUNC);
	tell(late);
	R(pwrite(cuts, "new", 3, 0));
	tell(reader);
	tell(appends);
	R(open(linked, O_RDWR | O_CREAT | O_EXCL, 0644));
	R(lseek(made, 0, SEEK_CUR));
	const int all[] = {made, reader, writer, appends, late, cuts};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		close(all[i]);
	int last = open(path, O_RDONLY);
	tell(last);
	close(last);
}

/* Reads by a link what only others write, by its own path. */
static void read_by_link(const char *linked, const char *path)
{
	int made = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
	R(write(made, "0123456789", 10));
	int reader = open(linked, O_RDONLY);
	write_elsewhere(path, "xx", 2);
	R(pwrite(made, "MADE", 4, 4));
	R(fsync(made));
	tell(reader);
	close(reader);
	close(made);
	R(unlink(path));
}

/* A file comes in by rename or link, and is locked, and written, by whom it was opened outside. */
static void comes_in(const char *path, int (*by)(const char *, const char *))
{
	struct flock lock = {.l_type = F_WRLCK, .l_len = 10};
	int fd = make("comes", "0123456789");
	R(fcntl(fd, F_SETLK, &lock));
	R(by("comes", path));
	unlink("comes");
	write_elsewhere(path, "xx", 2);
	R(pwrite(fd, "NEW", 3, 4));
	tell(fd);
	if (fork() == 0)
		_exit(fcntl(fd, F_GETLK, &lock) < 0 || lock.l_type != F_WRLCK);
	int status;
	wait(&status);
	R(status);
	int late = open(path, O_RDWR);
	tell(late);
	close(late);
	close(fd);
	R(unlink(path));
}

static void *waits(void *fifo)
{
	int fd = open(fifo, O_RDONLY);
	printf("the fifo is open: %d\n", fd);
	return NULL;
}

int main(void)
{
	char outside[4096], inside[4096], path[4096];
	snprintf(outside, sizeof outside, "%s/../beside.%d", getenv("T_MANAGED"), (int)getpid());
	getcwd(inside, sizeof inside);
	umask(027);
	other = start_other(writes_elsewhere);
	close(open("old", O_CREAT | O_WRONLY, 0644));
	R(mkdir(outside, 0755));
	R(chdir(outside));
	R(symlink(inside, "dir"));
	snprintf(path, sizeof path, "%s/file", inside);
	R(symlink(path, "file"));
	R(symlink("loop", "loop"));
	R(mkfifo("fifo", 0600));
	/* Twice: the second time it is known that there are files beside. */
	for (int round = 0; round < 2; round++) {
		int fd;
		struct stat st;
		unlink("plain");
		R((fd = open("plain", O_RDWR | O_CREAT | O_EXCL, 0666)) >= 0);
		R(fstat(fd, &st));
		printf("%o\n", st.st_mode);
		R(write(fd, "plain", 5));
		errno = E2BIG;
		close(open("plain", O_RDONLY));
		puts(strerrorname_np(errno));
		R(open("plain", O_RDWR | O_CREAT | O_EXCL, 0666));
		R(open("plain", O_RDWR | O_DIRECTORY));
		R(open("plain/", O_RDWR));
		R(open("none", O_RDWR));
		R(open("none/none", O_RDWR | O_CREAT, 0666));
		R(open("loop", O_RDWR));
		R(open("dir/file", O_RDWR | O_NOFOLLOW));
		R(open("dir", O_RDONLY | O_TRUNC));
		R(open("dir", O_RDONLY) >= 0);
		R(open("file", O_RDWR | O_NOFOLLOW));
		R(open(".", O_RDWR));
		R(open((char *)1, O_RDWR));
		R(open("", O_RDWR));
		R((fd = open(".", O_RDWR | O_TMPFILE, 0666)) >= 0);
		R(fstat(fd, &st));
		printf("%o\n", st.st_mode);
		R(open("plain", O_RDONLY | 0x20000000) >= 0);
		/* The access mode 3 allows neither. */
		R((fd = open("plain", O_ACCMODE)) >= 0);
		R(write(fd, "x", 1));
		R(read(fd, path, 1));
		R(open("plain", O_RDWR | O_TRUNC) >= 0);
		show("plain");
		R(open("fifo", O_WRONLY | O_NONBLOCK));
		snprintf(path, sizeof path, "%s/dir/file", outside);
		snprintf(inside + strlen(inside), sizeof inside - strlen(inside), "/file");
		read_by_link(path, inside);
		by_link(path, inside);
		snprintf(path, sizeof path, "%s/file", outside);
		by_link(path, inside);
		unlink(inside);
		snprintf(path, sizeof path, "%s/file", outside);
		by_link(path, inside);
		unlink(inside);
		comes_in(inside, rename);
		comes_in(inside, link);
		*strrchr(inside, '/') = 0;
	}
	pthread_t thread;
	void *result = NULL;
	pthread_create(&thread, NULL, waits, "fifo");
	usleep(50000);
	R(pthread_cancel(thread));
	R(pthread_join(thread, &result));
	printf("%d\n", result == PTHREAD_CANCELED);
	for (const char *const *name =
			(const char *const[]){"plain", "fifo", "dir", "file", "loop", NULL};
		*name; name++)
		R(unlink(*name));
	R(chdir(inside));
	R(rmdir(outside));
	return 0;
}
