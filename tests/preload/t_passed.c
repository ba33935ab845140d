/* Calls that are left to libc, which is right on containers. */
#include "t.h"

#include <aio.h>
#include <dirent.h>
#include <poll.h>
#include <pty.h>
#include <semaphore.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <wchar.h>

/* The headers' own getline is another function. */
ssize_t line_of(char **, size_t *, FILE *) __asm__("getline");
int eaccess(const char *, int);
char *mktemp(char *), *tmpnam_r(char *), *getwd(char *), *__getcwd_chk(char *, size_t, size_t);

static void names(int dir)
{
	char text[PATH_MAX], template[] = "dirXXXXXX", unused[] = "nameXXXXXX", *path;
	struct stat st;
	R(eaccess("f", R_OK | W_OK));
	R(eaccess("f", X_OK) < 0 || geteuid() == 0);
	R(euidaccess("none", F_OK));
	R(faccessat(dir, "f", R_OK, AT_EACCESS));
	R(linkat(dir, "f", dir, "second", 0));
	R(linkat(dir, "f", dir, "second", 0));
	R(stat("second", &st) ? -1 : (long)(st.st_nlink * 1000 + st.st_size));
	show("second");
	R(unlink("second"));
	R(symlinkat("f", dir, "link"));
	R(linkat(dir, "link", dir, "followed", AT_SYMLINK_FOLLOW));
	R(lstat("followed", &st) ? -1 : (long)st.st_size);
	R(unlink("followed"));
	R(readlink("link", text, sizeof text));
	R(readlinkat(dir, "f", text, sizeof text));
	R(mkdirat(dir, "made", 0700));
	R(mkfifoat(dir, "fifo", 0600));
	R(mkfifo("fifo", 0600));
	R(stat("fifo", &st) ? -1 : (long)st.st_mode);
	R(mkdtemp(template) != NULL);
	R(rmdir(template));
	path = realpath("made/../link", NULL);
	R(strcmp(strrchr(path, '/'), "/f"));
	free(path);
	path = canonicalize_file_name("link");
	R(strcmp(strrchr(path, '/'), "/f"));
	free(path);
	R(strlen(mktemp(unused)));
	R(tmpnam(text) != NULL);
	R(tmpnam_r(text) != NULL);
	R(tempnam(".", "x") != NULL);
	/* In a directory of the directory: where that is a flat one it lies elsewhere. */
	R(chdir("made"));
	path = getcwd(NULL, 0);
	R(strcmp(strrchr(path, '/'), "/made"));
	R(strcmp(getwd(text), path));
	R(strcmp(__getcwd_chk(text, sizeof text, sizeof text), path));
	setenv("PWD", path, 1);
	R(strcmp(get_current_dir_name(), path));
	setenv("PWD", "/", 1);
	R(strcmp(get_current_dir_name(), path));
	R(getcwd(text, 2) != NULL);
	free(path);
	R(fchdir(dir));
	struct sockaddr_un address = {AF_UNIX, "socket"};
	int bound = socket(AF_UNIX, SOCK_STREAM, 0);
	R(bind(bound, (struct sockaddr *)&address, sizeof address) == 0 || errno == EOPNOTSUPP);
	unlink("socket");
	close(bound);
	R(lchmod("f", 0644));
	R(lchmod("link", 0644) < 0);
	R(fchdir(dir));
}

static void directories(int dir)
{
	DIR *d = fdopendir(dup(dir));
	R(fcntl(dirfd(d), F_GETFD) >= 0);
	rewinddir(d);
	readdir(d);
	long place = telldir(d);
	char first[300];
	strcpy(first, readdir(d)->d_name);
	readdir(d);
	seekdir(d, place);
	R(strcmp(first, readdir(d)->d_name));
	R(closedir(d));
}

static void file_system(int fd)
{
	struct statfs fs, of_dir;
	struct statfs64 fs64;
	struct statvfs vfs;
	struct statvfs64 vfs64;
	R(statfs(".", &of_dir));
	R(statfs("f", &fs) || fs.f_type != of_dir.f_type);
	R(statfs64("f", &fs64) || fs64.f_type != of_dir.f_type);
	R(fstatfs(fd, &fs) || fs.f_type != of_dir.f_type);
	R(fstatfs64(fd, &fs64) || fs64.f_type != of_dir.f_type);
	R(statvfs("f", &vfs) || vfs.f_bsize != (unsigned long)of_dir.f_bsize);
	R(statvfs64("f", &vfs64) || vfs64.f_blocks != (unsigned long)of_dir.f_blocks);
	R(fstatvfs(fd, &vfs) || vfs.f_namemax != (unsigned long)of_dir.f_namelen);
	R(fstatvfs64(fd, &vfs64) || vfs64.f_bsize != (unsigned long)of_dir.f_bsize);
	R(pathconf("f", _PC_NAME_MAX));
	R(fpathconf(fd, _PC_LINK_MAX));
	struct {
		struct file_handle head;
		char rest[128];
	} handle = {{.handle_bytes = 128}};
	int mount;
	R(name_to_handle_at(AT_FDCWD, "none", &handle.head, &mount, 0));
	R(name_to_handle_at(AT_FDCWD, "f", &handle.head, &mount, 0) == 0 || errno == EOPNOTSUPP);
}

/* PLFS's own attribute, of promoted files, is not the program's. */
static int lists(ssize_t n, const char *list, const char *name)
{
	for (const char *at = list; n > 0 && at < list + n; at += strlen(at) + 1)
		if (strcmp(at, name) == 0)
			return 1;
	return 0;
}

static void attributes(int fd)
{
	char value[100] = "", list[1000];
	R(setxattr("f", "user.one", "first", 5, 0));
	R(setxattr("f", "user.one", "again", 5, XATTR_CREATE));
	R(lsetxattr("f", "user.two", "second", 6, 0));
	R(fsetxattr(fd, "user.three", "third", 5, 0));
	R(getxattr("f", "user.one", value, sizeof value));
	R(strcmp(value, "first"));
	R(lgetxattr("f", "user.two", value, sizeof value));
	R(strcmp(value, "second"));
	R(fgetxattr(fd, "user.three", value, sizeof value));
	R(strncmp(value, "third", 5));
	R(lists(listxattr("f", list, sizeof list), list, "user.two"));
	R(lists(llistxattr("f", list, sizeof list), list, "user.three"));
	R(lists(flistxattr(fd, list, sizeof list), list, "user.one"));
	R(removexattr("f", "user.one"));
	R(lremovexattr("f", "user.two"));
	R(fremovexattr(fd, "user.three"));
	R(fgetxattr(fd, "user.three", value, sizeof value));
}

static void memory(int fd)
{
	unsigned char there[2];
	char *p = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	R(p != MAP_FAILED && memcmp(p, "some text", 9) == 0);
	R(madvise(p, 4096, MADV_WILLNEED));
	R(mlock(p, 4096) == 0 || errno == ENOMEM || errno == EPERM);
	R(munlock(p, 4096));
	R(mincore(p, 4096, there));
	p = mremap(p, 4096, 8192, MREMAP_MAYMOVE);
	R(p != MAP_FAILED && memcmp(p, "some text", 9) == 0);
	R(munmap(p, 8192));
}

static void waiting(int fd)
{
	struct pollfd one = {fd, POLLIN | POLLOUT, 0};
	fd_set set;
	FD_ZERO(&set);
	FD_SET(fd, &set);
	R(ppoll(&one, 1, NULL, NULL));
	R(one.revents);
	R(pselect(fd + 1, &set, NULL, NULL, NULL, NULL));
	struct epoll_event event = {.events = EPOLLIN};
	int epoll = epoll_create1(0);
	R(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event));
	close(epoll);
	char c[4] = "";
	struct aiocb cb = {.aio_fildes = fd, .aio_buf = c, .aio_nbytes = 4};
	const struct aiocb *list[] = {&cb};
	R(aio_read(&cb));
	R(aio_suspend(list, 1, NULL));
	R(aio_cancel64(fd, (struct aiocb64 *)&cb));
	R(aio_error(&cb));
	R(aio_return(&cb));
	R(memcmp(c, "some", 4));
}

static void scanned_from(FILE *f, const wchar_t *format, ...)
{
	va_list ap;
	va_start(ap, format);
	R(f ? vfwscanf(f, format, ap) : vwscanf(format, ap));
	va_end(ap);
}

static void printed_to(FILE *f, const wchar_t *format, ...)
{
	va_list ap;
	va_start(ap, format);
	R(vfwprintf(f, format, ap) > 0);
	va_end(ap);
}

static void streams(void)
{
	char *line = NULL, word[20] = "";
	size_t room = 0;
	int number = 0;
	FILE *f = fopen("lines", "w+");
	fputs("first 1\nsecond 2\n", f);
	rewind(f);
	R(line_of(&line, &room, f));
	R(strcmp(line, "first 1\n"));
	R(fscanf(f, "%19s %d", word, &number));
	R(strcmp(word, "second"));
	R(number);
	fclose(f);
	f = fopen("wide", "w+");
	printed_to(f, L"%d %ls\n", 5, L"wide");
	fwprintf(f, L"7 last 9 8\n");
	rewind(f);
	R(fwscanf(f, L"%d %19s", &number, word));
	R(number);
	scanned_from(f, L"%d %19s", &number, word);
	R(number);
	R(strcmp(word, "last"));
	fflush(f);
	int in = dup(0), wide = open("wide", O_RDONLY);
	lseek(wide, 14, SEEK_SET);
	dup2(wide, 0);
	R(wscanf(L"%d", &number));
	R(number);
	scanned_from(NULL, L"%d", &number);
	R(number);
	dup2(in, 0);
	close(in);
	close(wide);
	fclose(f);
	char *memory = NULL;
	size_t size;
	f = fmemopen(word, sizeof word, "r");
	R(fgetc(f));
	fclose(f);
	f = open_memstream(&memory, &size);
	fputs("in memory", f);
	fclose(f);
	R(strcmp(memory, "in memory"));
	f = tmpfile64();
	R(fputs("no name", f) >= 0);
	rewind(f);
	R(fgetc(f));
	fclose(f);
}

/* Numbers of descriptors go on as ever. */
static void others(void)
{
	char name[40];
	eventfd_t value = 0;
	sigset_t none;
	sigemptyset(&none);
	snprintf(name, sizeof name, "/t_passed.%d", getpid());
	int event = R(eventfd(3, 0));
	R(eventfd_write(event, 4));
	R(eventfd_read(event, &value));
	R(value);
	R(signalfd(-1, &none, 0));
	R(memfd_create("memory", 0));
	R(socket(AF_UNIX, SOCK_STREAM, 0));
	int both[2];
	R(pipe2(both, O_CLOEXEC));
	R(vmsplice(both[1], &(struct iovec){"pipe", 4}, 1, 0));
	R(shm_open(name, O_CREAT | O_EXCL | O_RDWR, 0600));
	R(shm_unlink(name));
	sem_t *semaphore = sem_open(name, O_CREAT | O_EXCL, 0600, 1);
	R(semaphore != SEM_FAILED);
	R(sem_unlink(name));
	closefrom(event);
	int terminal, side;
	R(openpty(&terminal, &side, NULL, NULL, NULL));
	R(posix_openpt(O_RDWR | O_NOCTTY) >= 0);
	R(getpt() >= 0);
	closefrom(event);
}

static int last;

static void at_the_end(int status, void *text)
{
	(void)status;
	R(write(last, text, strlen(text)));
}

int main(void)
{
	int fd = make("f", "some text"), dir = open(".", O_RDONLY | O_DIRECTORY);
	names(dir);
	directories(dir);
	file_system(fd);
	attributes(fd);
	memory(fd);
	waiting(fd);
	streams();
	others();
	last = open("last", O_CREAT | O_WRONLY, 0644);
	R(on_exit(at_the_end, "said at the end"));
	return 0;
}
