/* Second names of calls: those with 64-bit offsets, those that libraries built against old libcs
 * use, and those of programs that are compiled with _FORTIFY_SOURCE. Each does on a container what
 * the first name does. Once posix_fadvise, sync_file_range and the old stat took anything. */
#include "t.h"

#include <aio.h>
#include <dirent.h>
#include <stdarg.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>

int __open(const char *, int, ...), __open64(const char *, int, ...);
int __open_2(const char *, int), __open64_2(const char *, int);
int __openat_2(int, const char *, int), __openat64_2(int, const char *, int);
int __close(int), __dup2(int, int), __fcntl(int, int, ...);
ssize_t __read(int, void *, size_t), __read_chk(int, void *, size_t, size_t);
ssize_t __write(int, const void *, size_t);
ssize_t __pread64(int, void *, size_t, off_t), __pwrite64(int, const void *, size_t, off_t);
ssize_t __pread_chk(int, void *, size_t, off_t, size_t);
ssize_t __pread64_chk(int, void *, size_t, off_t, size_t);
off_t __lseek(int, off_t, int);
int __dprintf_chk(int, int, const char *, ...), __vdprintf_chk(int, int, const char *, va_list);
int __xstat(int, const char *, struct stat *), __xstat64(int, const char *, struct stat64 *);
int __lxstat(int, const char *, struct stat *), __lxstat64(int, const char *, struct stat64 *);
int __fxstat(int, int, struct stat *), __fxstat64(int, int, struct stat64 *);
int __fxstatat(int, int, const char *, struct stat *, int);
int __fxstatat64(int, int, const char *, struct stat64 *, int);

static void printed(int fd, const char *format, ...)
{
	va_list ap;
	va_start(ap, format);
	R(__vdprintf_chk(fd, 1, format, ap));
	va_end(ap);
}

static void opened(void)
{
	char c[8] = "", from[] = "fromXXXXXX", from2[] = "fromXXXXXX", from3[] = "fromXXXXXX.c",
	     from4[] = "fromXXXXXX.c", from5[] = "fromXXXXXX", from6[] = "fromXXXXXX.c";
	int fd = R(__open("old", O_CREAT | O_EXCL | O_RDWR, 0640));
	R(__write(fd, "0123456789", 10));
	R(__lseek(fd, 2, SEEK_SET));
	R(__read(fd, c, 3));
	R(strcmp(c, "234"));
	R(__read_chk(fd, c, 2, sizeof c));
	R(strcmp(c, "564"));
	R(__pread64(fd, c, 3, 7));
	R(strcmp(c, "789"));
	R(__pread_chk(fd, c, 1, 0, sizeof c));
	R(__pread64_chk(fd, c + 1, 1, 1, sizeof c - 1));
	R(strcmp(c, "019"));
	R(__pwrite64(fd, "XY", 2, 4));
	R(__fcntl(fd, F_GETFL) & O_ACCMODE);
	R(__dup2(fd, 40));
	R(__lseek(40, 0, SEEK_CUR));
	R(__close(fd));
	R(__write(40, "Z", 1));
	R(__close(40));
	R(__close(40));
	show("old");
	fd = R(__open64("old", O_RDWR));
	R(__dprintf_chk(fd, 1, "%d of %s", 7, "nine"));
	printed(fd, " and %ld", 12345678L);
	R(close(fd));
	show("old");
	fd = R(__open_2("old", O_RDONLY));
	R(close(fd));
	fd = R(__open64_2("old", O_WRONLY | O_APPEND));
	R(write(fd, "!", 1));
	R(close(fd));
	fd = R(__openat_2(AT_FDCWD, "old", O_WRONLY | O_TRUNC));
	R(write(fd, "cut", 3));
	R(close(fd));
	fd = R(__openat64_2(AT_FDCWD, "none", O_RDONLY));
	fd = R(__openat64_2(AT_FDCWD, "old", O_RDONLY));
	R(read(fd, c, 8));
	R(close(fd));
	fd = R(openat64(AT_FDCWD, "new", O_CREAT | O_RDWR, 0600));
	R(close(fd));
	fd = R(creat64("new", 0600));
	R(write(fd, "new", 3));
	R(close(fd));
	int made[] = {R(mkstemp64(from)), R(mkostemp(from2, O_APPEND)), R(mkstemps(from3, 2)),
		R(mkstemps64(from4, 2)), R(mkostemp64(from5, O_CLOEXEC)),
		R(mkostemps64(from6, 2, O_APPEND))};
	char *names[] = {from, from2, from3, from4, from5, from6};
	for (int i = 0; i < 6; i++) {
		R(write(made[i], "temporary", 9));
		R(lseek(made[i], 4, SEEK_SET));
		R(write(made[i], "?", 1));
		R(fcntl(made[i], F_GETFL) & O_APPEND);
		R(fcntl(made[i], F_GETFD));
		struct stat st;
		R(stat(names[i], &st) ? -1 : (long)(st.st_size + st.st_mode));
		R(strlen(names[i]) > 10 ? strcmp(names[i] + 10, ".c") : 0);
		R(close(made[i]));
		R(unlink(names[i]));
	}
	FILE *f = fopen64("stream", "w");
	R(fputs("one\n", f) >= 0);
	R((f = freopen64("stream", "r+", f)) != NULL);
	R(fgetc(f));
	R(fseek(f, 0, SEEK_END));
	R(fputs("two\n", f) >= 0);
	R(fclose(f));
	show("stream");
}

static void offsets(void)
{
	char c[16] = "";
	int fd = R(open64("wide", O_CREAT | O_RDWR, 0644));
	struct iovec v[2] = {{"ab", 2}, {"cdef", 4}}, w[2] = {{c, 3}, {c + 3, 3}};
	R(pwrite64(fd, "tail", 4, (off64_t)1 << 33));
	R(lseek64(fd, -4, SEEK_END));
	R(pread64(fd, c, 4, (off64_t)1 << 33));
	R(strcmp(c, "tail"));
	R(pwritev64(fd, v, 2, 100));
	R(preadv64(fd, w, 2, 100));
	R(memcmp(c, "abcdef", 6));
	R(pwritev64v2(fd, v, 1, 106, RWF_DSYNC));
	R(preadv64v2(fd, w, 2, 102, 0));
	R(memcmp(c, "cdefab", 6));
	R(preadv64v2(fd, w, 2, -1, 0));
	R(memcmp(c, "tail", 4));
	R(ftruncate64(fd, 120));
	R(truncate64("wide", 110));
	R(fallocate64(fd, 0, 100, 20));
	R(lseek64(fd, 0, SEEK_END));
	R(fallocate64(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 100, 2));
	R(posix_fallocate64(fd, 110, 20));
	R(lseek64(fd, 0, SEEK_END));
	R(posix_fallocate64(fd, -1, 20));
	R(posix_fadvise64(fd, 0, 0, POSIX_FADV_DONTNEED));
	R(posix_fadvise64(fd, 0, 0, 77));
	R(readahead(fd, 0, 4096));
	R(readahead(1 << 20, 0, 4096));
	R(sync_file_range(fd, 0, 4096, SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER));
	R(sync_file_range(fd, 0, 4096, 1 << 10));
	R(sync_file_range(fd, -1, 4096, 0));
	R(syncfs(fd));
	sync();
	char *p = mmap64(NULL, 130, PROT_READ, MAP_SHARED, fd, 0);
	R(p != MAP_FAILED && memcmp(p + 100, "\0\0cdefab", 8) == 0);
	R(munmap(p, 130));
	R(fcntl64(fd, F_DUPFD, 60));
	R(fcntl64(60, F_SETFL, O_APPEND));
	R(fcntl64(fd, F_GETFL) & O_APPEND);
	R(fcntl64(fd, F_SETFL, 0));
	R(close(60));
	R(lseek64(fd, 0, SEEK_SET));
	R(lockf64(fd, F_LOCK, 10));
	R(lockf64(fd, F_TEST, 10));
	R(lockf64(fd, F_ULOCK, 10));
	R(lockf64(fd, 99, 10));
	int pipes[2];
	R(pipe(pipes));
	off64_t at = 100;
	R(sendfile64(pipes[1], fd, &at, 8));
	R(at);
	R(read(pipes[0], c, 8));
	R(memcmp(c, "\0\0cdefab", 8));
	close(pipes[0]);
	close(pipes[1]);
	close(fd);
	show("wide");
}

/* Of glibc's struct stat before 2.33. */
#ifdef __x86_64__
#define STAT_VERSION 1
#else
#define STAT_VERSION 0
#endif

static void stats(void)
{
	struct stat st;
	struct stat64 st64;
	int fd = make("stat", "length"), other = make("other", "four");
	R(symlink("stat", "link"));
	R(fstatat64(AT_FDCWD, "stat", &st64, 0) ? -1 : (long)st64.st_size);
	R(stat64("stat", &st64) ? -1 : (long)st64.st_size);
	R(lstat64("link", &st64) ? -1 : (long)st64.st_size);
	R(fstat64(fd, &st64) ? -1 : (long)st64.st_size);
	R(__xstat(STAT_VERSION, "link", &st) ? -1 : (long)st.st_size);
	R(__xstat64(STAT_VERSION, "other", &st64) ? -1 : (long)st64.st_size);
	R(__lxstat(STAT_VERSION, "link", &st) ? -1 : (long)st.st_size);
	R(__lxstat64(STAT_VERSION, "stat", &st64) ? -1 : (long)st64.st_size);
	R(__fxstat(STAT_VERSION, fd, &st) ? -1 : (long)st.st_size);
	R(__fxstat64(STAT_VERSION, other, &st64) ? -1 : (long)st64.st_size);
	R(__fxstatat(STAT_VERSION, AT_FDCWD, "stat", &st, 0) ? -1 : (long)st.st_size);
	R(__fxstatat64(STAT_VERSION, AT_FDCWD, "link", &st64, AT_SYMLINK_NOFOLLOW)
			? -1
			: (long)st64.st_size);
	R(st64.st_mode);
	R(__xstat(STAT_VERSION, "none", &st));
	R(__xstat(77, "stat", &st));
	R(__fxstat(77, fd, &st));
	close(fd);
	close(other);
}

static void asynchronous(void)
{
	char c[8] = "";
	int fd = make("aio", "0123456789");
	struct aiocb64 one = {.aio_fildes = fd, .aio_buf = c, .aio_nbytes = 4, .aio_offset = 3},
		       two = {.aio_fildes = fd, .aio_buf = "AB", .aio_nbytes = 2, .aio_offset = 8};
	const struct aiocb64 *wait[] = {&one};
	R(aio_read64(&one));
	R(aio_suspend64(wait, 1, NULL));
	R(aio_error64(&one));
	R(aio_return64(&one));
	R(strcmp(c, "3456"));
	R(aio_write64(&two));
	wait[0] = &two;
	R(aio_suspend64(wait, 1, NULL));
	R(aio_return64(&two));
	two.aio_buf = "CD";
	two.aio_offset = 20;
	two.aio_lio_opcode = LIO_WRITE;
	one.aio_lio_opcode = LIO_READ;
	one.aio_offset = 8;
	one.aio_nbytes = 2;
	struct aiocb64 *list[] = {&two, NULL, &one};
	R(lio_listio64(LIO_WAIT, list, 3, NULL));
	R(aio_return64(&one));
	R(aio_return64(&two));
	R(memcmp(c, "AB", 2));
	R(aio_fsync64(O_SYNC, &two));
	wait[0] = &two;
	R(aio_suspend64(wait, 1, NULL));
	R(aio_error64(&two));
	R(aio_fsync64(77, &two));
	close(fd);
	show("aio");
}

static int is_of_test(const struct dirent *entry)
{
	return entry->d_name[0] == 'o';
}

static int is_of_test64(const struct dirent64 *entry)
{
	return entry->d_name[0] == 'o';
}

/* All of it, in the order of names. */
static int count(DIR *dir, int wide)
{
	int n = 0;
	for (;; n++) {
		struct dirent one, *found = NULL;
		struct dirent64 one64, *found64 = NULL;
		if (wide ? readdir64_r(dir, &one64, &found64) : readdir_r(dir, &one, &found))
			return -1;
		if (wide ? !found64 : !found)
			return n;
	}
}

static void directories(void)
{
	struct dirent **v;
	struct dirent64 **v64;
	char above[4200];
	sprintf(above, "%s", getenv("T_MANAGED"));
	DIR *dir = opendir(above);
	R(count(dir, 0));
	rewinddir(dir);
	R(count(dir, 1));
	rewinddir(dir);
	int n = 0;
	while (readdir64(dir))
		n++;
	R(n);
	closedir(dir);
	R(scandir(above, &v, NULL, alphasort));
	R(scandir64(above, &v64, NULL, alphasort64));
	R(scandir64(".", &v64, is_of_test64, alphasort64));
	R(strcmp(v64[0]->d_name, "old"));
	R(scandirat(AT_FDCWD, ".", &v, is_of_test, alphasort));
	R(strcmp(v[1]->d_name, "other"));
	R(scandirat64(AT_FDCWD, above, &v64, NULL, alphasort64));
	R(scandirat64(AT_FDCWD, "none", &v64, NULL, alphasort64));
	char entries[4096];
	int fd = open(above, O_RDONLY | O_DIRECTORY);
	n = 0;
	for (ssize_t got; (got = getdents64(fd, entries, sizeof entries)) > 0;)
		for (ssize_t at = 0; at < got; n++)
			at += ((struct dirent64 *)(entries + at))->d_reclen;
	R(n);
	R(getdents64(fd, entries, sizeof entries));
	R(getdents64(1 << 20, entries, sizeof entries));
	close(fd);
}

static void limits(void)
{
	struct rlimit old;
	struct rlimit64 old64, limit = {100000, RLIM64_INFINITY};
	int fd = make("limited", "");
	getrlimit64(RLIMIT_FSIZE, &old64);
	getrlimit(RLIMIT_FSIZE, &old);
	limit.rlim_max = old64.rlim_max;
	R(setrlimit64(RLIMIT_FSIZE, &limit));
	R(pwrite(fd, "1234", 4, 99998));
	R(prlimit(0, RLIMIT_FSIZE, &old, NULL));
	R(pwrite(fd, "1234", 4, 99998));
	limit.rlim_cur = 200000;
	R(prlimit64(0, RLIMIT_FSIZE, &limit, &old64));
	R(old64.rlim_cur == old.rlim_cur);
	R(pwrite(fd, "1234", 4, 199998));
	R(prlimit(getpid(), RLIMIT_FSIZE, &old, NULL));
	R(pwrite(fd, "1234", 4, 199998));
	close(fd);
}

int main(void)
{
	opened();
	offsets();
	stats();
	asynchronous();
	directories();
	limits();
	return 0;
}
