/* Calls made with syscall(2). */
#include "t.h"

#include <linux/openat2.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/time.h>

int main(void)
{
	char c[32] = "";
	struct stat st;
	struct statx x;
	int fd = (int)R(syscall(SYS_openat, AT_FDCWD, "f", O_CREAT | O_RDWR, 0644));
	R(syscall(SYS_write, fd, "0123456789", 10));
	R(syscall(SYS_pwrite64, fd, "ab", 2, 4));
	R(syscall(SYS_lseek, fd, 2, SEEK_SET));
	R(syscall(SYS_read, fd, c, 4));
	R(strcmp(c, "23ab"));
	R(syscall(SYS_pread64, fd, c, 3, 7));
	R(syscall(SYS_fstat, fd, &st) ? -1 : (long)st.st_size);
	R(syscall(SYS_newfstatat, AT_FDCWD, "f", &st, 0) ? -1 : (long)st.st_size);
	R(syscall(SYS_statx, AT_FDCWD, "f", 0, STATX_SIZE, &x) ? -1 : (long)x.stx_size);
	R(syscall(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_SIZE, &x) ? -1 : (long)x.stx_size);
	R(syscall(SYS_ftruncate, fd, 6));
	R(syscall(SYS_fcntl, fd, F_GETFL) & O_ACCMODE);
	int two = (int)R(syscall(SYS_dup, fd));
	R(syscall(SYS_lseek, two, 0, SEEK_CUR));
	R(syscall(SYS_close, two));
	struct open_how how = {.flags = O_RDONLY};
	two = (int)R(syscall(SYS_openat2, AT_FDCWD, "f", &how, sizeof how));
	R(syscall(SYS_read, two, c, 3));
	R(memcmp(c, "012", 3));
	R(syscall(SYS_close, two));
	how.resolve = RESOLVE_BENEATH;
	two = (int)R(syscall(SYS_openat2, AT_FDCWD, "f", &how, sizeof how));
	R(syscall(SYS_read, two, c, 3));
	R(memcmp(c, "012", 3));
	R(syscall(SYS_close, two));
	R(syscall(SYS_openat2, AT_FDCWD, "../f", &how, sizeof how));
	how.flags = O_PATH;
	two = (int)R(syscall(SYS_openat2, AT_FDCWD, "f", &how, sizeof how));
	R(syscall(SYS_read, two, c, 3));
	R(syscall(SYS_close, two));
	/* What openat2 refuses and open does not. */
	how = (struct open_how){.flags = O_RDONLY, .mode = 0644};
	R(syscall(SYS_openat2, AT_FDCWD, "f", &how, sizeof how));
	how = (struct open_how){.flags = O_PATH | O_RDWR};
	R(syscall(SYS_openat2, AT_FDCWD, "f", &how, sizeof how));
	how = (struct open_how){.flags = 1ULL << 40};
	R(syscall(SYS_openat2, AT_FDCWD, "f", &how, sizeof how));
	R(syscall(SYS_openat2, AT_FDCWD, "f", (void *)1, sizeof how));
	struct {
		struct open_how how;
		char rest[76];
	} longer = {.how = {.flags = O_RDONLY}};
	close((int)R(syscall(SYS_openat2, AT_FDCWD, "f", &longer, sizeof longer)));
	longer.rest[75] = 1;
	R(syscall(SYS_openat2, AT_FDCWD, "f", &longer, sizeof longer));
	/* Headers say that these cannot be NULL, and the checks for it were compiled away. */
	struct timespec times[2] = {{1000, 0}, {2000, 0}};
	const char *volatile none = NULL;
	R(utimensat(fd, none, times, 0));
	R(syscall(SYS_utimensat, fd, NULL, times, 0));
	R(syscall(SYS_fstat, fd, &st) ? -1 : (long)st.st_mtim.tv_sec);
	R(syscall(SYS_statx, fd, NULL, 0, STATX_SIZE, &x));
	/* What is no memory is EFAULT in each call. */
	const char *volatile bad = (const char *)1;
	R(fstatat(fd, bad, &st, AT_EMPTY_PATH));
	R(fchownat(fd, bad, 0, 0, AT_EMPTY_PATH));
	R(futimens(fd, (void *)bad));
	R(utimes(none, NULL));
	R(fcntl(fd, F_GETLK, bad));
	R(fcntl(fd, F_OFD_SETLK, bad));
	R(ioctl(fd, FIONREAD, bad));
	struct iovec v[2] = {{"xy", 2}, {"z", 1}};
	R(syscall(SYS_pwritev, fd, v, 2, 20L, 0L));
	R(syscall(SYS_fsync, fd));
	R(syscall(SYS_renameat2, AT_FDCWD, "f", AT_FDCWD, "g", 0));
	R(syscall(SYS_close, fd));
	R(syscall(SYS_close, fd));
	R(syscall(SYS_getppid) > 0);
	R(syscall(SYS_mmap, NULL, 4096L, 3L, 0x22L, -1L, 0L) != -1);
	show("g");
	R(syscall(SYS_unlinkat, AT_FDCWD, "g", 0));
	R(syscall(SYS_faccessat, AT_FDCWD, "g", F_OK));
	return 0;
}
