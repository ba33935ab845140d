/* The flags of open, descriptor numbers, and what an open file allows. */
#include "t.h"

#include <limits.h>

int __open_2(const char *, int);

/* /proc says of a descriptor the path that it was opened by; of a new file it said where the
 * container lies. */
static void says_its_path(const char *path, int flags)
{
	char proc[40], link[PATH_MAX];
	const char *here = getenv("T_HERE");
	int fd = open(path, flags, 0640);
	sprintf(proc, "/proc/self/fd/%d", fd);
	ssize_t n = readlink(proc, link, sizeof link - 1);
	link[n > 0 ? n : 0] = 0;
	const char *last = strrchr(link, '/');
	if (strncmp(link, here, strlen(here)) == 0)
		last = link + strlen(here);
	R(fd >= 0);
	puts(last ? last : link);
	close(fd);
}

/* A new file at the end of a chain of links, as by `how`; through two links the open never
 * returned. */
static void makes_behind_links(int how, const char *path, const char *target)
{
	char bytes[4] = "";
	struct stat st;
	alarm(20);
	int fd = R(open(path, O_CREAT | O_RDWR | how, 0640));
	R(write(fd, "new", 3));
	R(pread(fd, bytes, 3, 0));
	R(stat(target, &st) < 0 ? -1 : (long)st.st_size);
	R(close(fd));
	unlink(target);
	alarm(0);
}

static void links_in_a_row(void)
{
	char name[20], last[20] = "end";
	const int ways[] = {0, O_TRUNC, O_APPEND, O_NOFOLLOW, O_EXCL};
	mkdir("rows", 0755);
	mkdir("rows/below", 0755);
	symlink("one", "rows/two");
	symlink("below/up", "rows/one");
	symlink("../end", "rows/below/up");
	for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
		makes_behind_links(ways[i], "rows/below/up", "rows/end");
		makes_behind_links(ways[i], "rows/two", "rows/end");
	}
	symlink("none/x", "rows/nowhere");
	makes_behind_links(0, "rows/nowhere", "rows/none/x");
	symlink("circle", "rows/circle");
	makes_behind_links(0, "rows/circle", "rows/circle");
	/* The kernel follows 40 at most. */
	chdir("rows");
	for (int i = 1; i <= 42; i++) {
		sprintf(name, "row%d", i);
		symlink(last, name);
		strcpy(last, name);
	}
	makes_behind_links(0, "row40", "end");
	makes_behind_links(0, "row41", "end");
	chdir("..");
}

/* What only an open has is not among the flags of its description: O_CREAT and its like stayed
 * there where the path was a link from elsewhere. */
static void flags_by_link(void)
{
	static const int flags[] = {O_RDONLY | O_CREAT, O_RDONLY | O_CREAT | O_NOCTTY,
		O_RDWR | O_CREAT | O_TRUNC, O_WRONLY | O_CLOEXEC | O_APPEND};
	char link[4096], target[4096];
	snprintf(link, sizeof link, "%s-link", getenv("T_MANAGED"));
	getcwd(target, sizeof target - 16);
	strcat(target, "/again");
	unlink(link);
	symlink(target, link);
	for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
		int fd = open(link, flags[i], 0644);
		R(fcntl(fd, F_GETFL));
		R(fcntl(fd, F_GETFD));
		close(fd);
	}
	unlink(link);
}

int main(void)
{
	char c[8] = "1234567";
	struct stat st;
	int fd;
	umask(022);
	R(open("none", O_RDONLY));
	R(open("none", O_WRONLY | O_TRUNC));
	fd = R(open("a", O_CREAT | O_EXCL | O_WRONLY, 0640));
	R(write(fd, "hello world", 11));
	R(read(fd, c, 1));
	R(fcntl(fd, F_GETFL) & (O_ACCMODE | O_APPEND));
	R(fcntl(fd, F_GETFD));
	R(fstat(fd, &st) ? -1 : (long)st.st_size);
	R(stat("a", &st) ? -1 : (long)st.st_size);
	R(st.st_mode);
	R(close(fd));
	R(close(fd));
	R(open("a", O_CREAT | O_EXCL | O_WRONLY, 0640));
	fd = R(open("a", O_RDONLY | O_CLOEXEC));
	R(fcntl(fd, F_GETFD));
	R(write(fd, "x", 1));
	R(pwrite(fd, "x", 1, 0));
	R(ftruncate(fd, 0));
	R(read(fd, c, 3));
	R(c[0]);
	int fd2 = R(dup(fd));
	R(fcntl(fd2, F_GETFD));
	R(lseek(fd2, 0, SEEK_CUR));
	close(fd2);
	R(fcntl(fd, F_DUPFD, 40));
	R(fcntl(fd, F_DUPFD_CLOEXEC, 40));
	R(fcntl(41, F_GETFD));
	R(read(40, c, 2));
	R(lseek(41, 0, SEEK_CUR));
	R(close(40));
	R(read(41, c, 2));
	R(dup2(41, 50));
	R(dup3(41, 51, O_CLOEXEC));
	R(dup3(41, 41, 0));
	R(dup2(41, 41));
	R(dup2(999, 41));
	R(read(41, c, 1));
	R(dup2(1, 50));
	R(lseek(50, 0, SEEK_CUR) >= 0);
	closefrom(40);
	R(fcntl(51, F_GETFD));
	R(close(fd));

	R(open("a/", O_RDONLY));
	R(open("a/b", O_CREAT | O_RDWR, 0600));
	R(open("a", O_RDONLY | O_DIRECTORY));
	R(open(".", O_RDWR));
	R(open(".", O_RDONLY | O_CREAT, 0600));
	/* O_TRUNC asks for a file, whatever the rest says. */
	R(open(".", O_RDONLY | O_TRUNC));
	R(open(".", O_RDONLY | O_TRUNC | O_DIRECTORY));
	R(open(".", O_TMPFILE | O_RDONLY, 0600));
	R(open("nodir/x", O_CREAT | O_RDWR, 0600));
	R(open("", O_RDONLY));
	R(open(NULL, O_RDONLY));
	R(symlink("a", "link"));
	R(open("link", O_RDONLY | O_NOFOLLOW));
	fd = R(open("link", O_RDWR));
	R(read(fd, c, 5));
	R(close(fd));
	R(symlink("made", "dangling"));
	R(open("dangling", O_CREAT | O_EXCL | O_RDWR, 0600));
	fd = R(open("dangling", O_CREAT | O_RDWR, 0600));
	R(write(fd, "via link", 8));
	close(fd);
	show("made");

	R(mkdir("d", 0755));
	int dir = R(open("d", O_RDONLY | O_DIRECTORY));
	fd = R(openat(dir, "in", O_CREAT | O_RDWR, 0644));
	R(write(fd, "inside", 6));
	close(fd);
	show("d/in");
	fd = R(openat(dir, "../a", O_RDWR | O_APPEND));
	R(fcntl(fd, F_GETFL) & (O_ACCMODE | O_APPEND));
	R(write(fd, "++", 2));
	R(lseek(fd, 0, SEEK_CUR));
	R(fcntl(fd, F_SETFL, 0));
	R(fcntl(fd, F_GETFL) & (O_ACCMODE | O_APPEND));
	R(pwrite(fd, "J", 1, 0));
	R(fcntl(fd, F_SETFL, O_APPEND));
	R(pwrite(fd, "E", 1, 0));
	close(fd);
	close(dir);
	show("a");
	fd = R(creat("a", 0600));
	R(fstat(fd, &st) ? -1 : (long)st.st_size);
	close(fd);
	R(stat("a", &st) ? -1 : (long)st.st_mode);

	char name[] = "tmpXXXXXX", name2[] = "tmpXXXXXX.txt", bad[] = "tmpXXX";
	fd = R(mkstemp(name));
	R(write(fd, "temp", 4));
	R(fcntl(fd, F_GETFL) & O_ACCMODE);
	R(fstat(fd, &st) ? -1 : (long)st.st_mode);
	R(pread(fd, c, 4, 0));
	R(memcmp(c, "temp", 4));
	close(fd);
	R(unlink(name));
	fd = R(mkostemps(name2, 4, O_APPEND));
	R(strcmp(name2 + 9, ".txt"));
	close(fd);
	R(unlink(name2));
	R(mkstemp(bad));

	fd = make("again", "reopened");
	R(read(fd, c, 2));
	char proc[40];
	sprintf(proc, "/proc/self/fd/%d", fd);
	int again = R(open(proc, O_RDONLY));
	R(read(again, c, 4));
	R(memcmp(c, "reop", 4));
	close(again);
	again = R(open(proc, O_WRONLY | O_APPEND));
	R(write(again, "!", 1));
	close(again);
	R(open(proc, O_RDONLY | O_NOFOLLOW));
	R(open(proc, O_RDWR | O_CREAT | O_EXCL, 0600));
	R(truncate("again", 3));
	R(fstat(fd, &st) ? -1 : (long)st.st_size);
	close(fd);
	show("again");
	fd = R(__open_2("again", O_RDONLY));
	close(fd);
	R(mknod("node", S_IFREG | 0644, 0));
	R(stat("node", &st) ? -1 : (long)st.st_size);
	R(open("again", O_PATH) >= 0);
	/* IOR's --posix.odirect: a file could be created so, but not opened again. */
	static char aligned[4096] __attribute__((aligned(4096)));
	memset(aligned, 'd', sizeof aligned);
	fd = R(open("direct", O_CREAT | O_RDWR | O_DIRECT, 0644));
	R(pwrite(fd, aligned, sizeof aligned, 0));
	R(close(fd));
	int how[] = {O_RDONLY, O_RDWR, O_WRONLY};
	for (int i = 0; i < 3; i++) {
		fd = R(open("direct", how[i] | O_DIRECT));
		R((fcntl(fd, F_GETFL) & (O_ACCMODE | O_DIRECT)) == (how[i] | O_DIRECT));
		R(how[i] == O_WRONLY ? pwrite(fd, aligned, sizeof aligned, 4096)
				     : pread(fd, aligned, sizeof aligned, 0));
		R(close(fd));
	}
	fd = R(open("direct", O_WRONLY | O_TRUNC | O_DIRECT));
	R(close(fd));
	R(stat("direct", &st) ? -1 : (long)st.st_size);
	/* Numbers are the lowest free ones. */
	R(close(0));
	R(open("again", O_RDONLY));
	R(read(0, c, 2));
	says_its_path("new", O_CREAT | O_WRONLY);
	says_its_path("new", O_RDWR);
	says_its_path("exclusive", O_CREAT | O_EXCL | O_RDWR);
	says_its_path("only_read", O_CREAT | O_RDONLY | O_TRUNC);
	mkdir("below", 0755);
	says_its_path("below/../below/new", O_CREAT | O_RDWR | O_APPEND);
	links_in_a_row();
	symlink("below/target", "dangling");
	says_its_path("dangling", O_CREAT | O_RDWR);
	/* Of a name in a flat directory the kernel does not find what a link from elsewhere leads
	 * to. */
	if (!getenv("T_ALSO_TMPFS"))
		flags_by_link();
	return 0;
}
