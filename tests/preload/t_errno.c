/* What succeeds leaves errno as it was: who reads a directory, or a stream, asks it at the end
 * whether that was an error. A read that had waited for a lock of libplfs left EAGAIN, and fscanf
 * at the end of a file gave it. Here what libplfs looks for on its way is not there, or is no file
 * of it, which are errors of its own calls. */
#include "t.h"
#include <dirent.h>
#include <ftw.h>
#include <glob.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <sys/xattr.h>

/* Prints the call, whether it succeeded and the errno that it left. */
#define LEAVES(e) \
	do { \
		errno = EXFULL; \
		long r_ = (long)(e); \
		int left_ = errno; \
		printf("%d: %s %s, errno %s\n", __LINE__, #e, r_ == -1 ? "fails" : "succeeds", \
			strerrorname_np(left_)); \
	} while (0)

static char bytes[100];
static struct stat st;

static int visit(const char *path, const struct stat *stat, int type, struct FTW *at)
{
	(void)path, (void)stat, (void)type, (void)at;
	return 0;
}

static void descriptors(void)
{
	int fd = -1;
	LEAVES(fd = open("f", O_RDWR | O_CREAT, 0644));
	LEAVES(write(fd, "some text\n", 10));
	LEAVES(pwrite(fd, "more", 4, 1000));
	struct iovec iov[2] = {{bytes, 3}, {bytes + 3, 4}};
	LEAVES(writev(fd, iov, 2));
	LEAVES(lseek(fd, 0, SEEK_SET));
	LEAVES(read(fd, bytes, 10));
	LEAVES(pread(fd, bytes, 10, 4000));
	LEAVES(readv(fd, iov, 2));
	LEAVES(lseek(fd, 0, SEEK_END));
	LEAVES(read(fd, bytes, 10));
	LEAVES(fstat(fd, &st));
	LEAVES(ftruncate(fd, 500));
	LEAVES(posix_fallocate(fd, 0, 600));
	LEAVES(fsync(fd));
	LEAVES(fdatasync(fd));
	LEAVES(fcntl(fd, F_GETFL));
	LEAVES(fcntl(fd, F_SETFL, O_APPEND));
	LEAVES(fchmod(fd, 0600));
	struct timespec times[2] = {{5, 0}, {6, 0}};
	LEAVES(futimens(fd, times));
	int other = -1;
	LEAVES(other = dup(fd));
	LEAVES(dup2(fd, other));
	LEAVES(close(other));
	LEAVES(other = open("f", O_RDONLY));
	LEAVES(write(fd, "appended", 8));
	LEAVES(read(other, bytes, 100));
	LEAVES(posix_fadvise(other, 0, 0, POSIX_FADV_DONTNEED));
	LEAVES(close(other));
	LEAVES(other = open("f", O_WRONLY | O_APPEND));
	LEAVES(write(other, "again", 5));
	LEAVES(close(other));
	LEAVES(close(fd));
	LEAVES(close(open("f", O_WRONLY | O_TRUNC)));
}

static void names(void)
{
	LEAVES(stat("f", &st));
	LEAVES(lstat("f", &st));
	LEAVES(stat(".", &st));
	LEAVES(access("f", R_OK));
	LEAVES(chmod("f", 0644));
	LEAVES(truncate("f", 3000));
	LEAVES(utimes("f", NULL));
	LEAVES(rename("f", "g"));
	LEAVES(mkdir("d", 0755));
	LEAVES(symlink("g", "s"));
	LEAVES(stat("s", &st));
	LEAVES(readlink("s", bytes, sizeof bytes));
	LEAVES(close(open("s", O_RDONLY)));
	struct statvfs space;
	LEAVES(statvfs(".", &space));
	LEAVES(unlink("g"));
	LEAVES(unlink("s"));
	LEAVES(rmdir("d"));
	LEAVES(close(open("h", O_CREAT | O_EXCL | O_WRONLY, 0644)));
	LEAVES(chdir("."));
}

static void directories(void)
{
	DIR *dir = NULL;
	LEAVES((dir = opendir(".")) ? 0 : -1);
	errno = EXFULL;
	while (readdir(dir))
		;
	printf("the end of a directory, errno %s\n", strerrorname_np(errno));
	LEAVES(closedir(dir));
	LEAVES(nftw(".", visit, 5, FTW_PHYS));
	glob_t found;
	LEAVES(glob("*", 0, NULL, &found));
	globfree(&found);
	struct dirent **all = NULL;
	LEAVES(scandir(".", &all, NULL, alphasort) < 0 ? -1 : 0);
}

static void streams(void)
{
	FILE *fp = NULL;
	int number;
	LEAVES((fp = fopen("h", "w+")) ? 0 : -1);
	LEAVES(fprintf(fp, "%d\n", 12));
	LEAVES(fflush(fp));
	rewind(fp);
	LEAVES(fscanf(fp, "%d", &number));
	errno = EXFULL;
	int at_end = fscanf(fp, "%d", &number);
	printf("fscanf at the end: %d, errno %s\n", at_end, strerrorname_np(errno));
	LEAVES(fseek(fp, 0, SEEK_SET));
	LEAVES(fgets(bytes, sizeof bytes, fp) ? 0 : -1);
	LEAVES(ftell(fp));
	LEAVES(fclose(fp));
	LEAVES((fp = fopen("h", "a")) ? 0 : -1);
	LEAVES(fputs("appended", fp));
	LEAVES(fclose(fp));
}

static void of_children(void)
{
	int fd = open("h", O_RDWR), status = 0;
	pid_t pid = 0;
	fflush(stdout);
	errno = EXFULL;
	pid = fork();
	if (pid == 0)
		_exit(errno != EXFULL || write(fd, "child", 5) != 5 || errno != EXFULL);
	printf("fork, errno %s\n", strerrorname_np(errno));
	LEAVES(waitpid(pid, &status, 0) == pid ? 0 : -1);
	printf("the child's: %d\n", status);
	LEAVES(write(fd, "parent", 6));
	void *at = NULL;
	LEAVES((at = mmap(NULL, 5, PROT_READ, MAP_PRIVATE, fd, 0)) == MAP_FAILED ? -1 : 0);
	if (at != MAP_FAILED)
		LEAVES(munmap(at, 5));
	LEAVES(close(fd));
}

int main(void)
{
	descriptors();
	names();
	directories();
	streams();
	of_children();
	return 0;
}
