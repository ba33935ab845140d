/* syscall(2): programs that do not call libc's file functions, but its syscall() (node's statx,
 * Python's ctypes).
 *
 * A call number that has a wrapper is sent to it; any other goes to the kernel with its six
 * arguments. Programs with their own system call instructions (Go, static binaries) are not seen
 * here: they need the FUSE mount. */
#include "door.h"

#include <linux/sched.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>

/* Is it all zeros? */
static bool is_empty(const char *bytes, size_t n)
{
	while (n > 0 && !*bytes)
		bytes++, n--;
	return n == 0;
}

/* False for what openat2 refuses and open takes: flags that nobody knows, a mode where nothing is
 * made, and more than there is. O_LARGEFILE is 0 in libc. */
static bool how_is_known(const uint64_t *how, size_t size)
{
	return size >= 24 && size <= 4096 && memory_is_there(how, size, false) &&
	       is_empty((const char *)(how + 3), size - 24) &&
	       !(how[0] & ~(uint64_t)OPEN_FLAGS_KNOWN) && !(how[1] & ~07777ULL) &&
	       (!(how[0] & O_PATH) ||
		       !(how[0] & ~(uint64_t)(O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC))) &&
	       (!how[1] || (how[0] & (O_CREAT | (O_TMPFILE & ~O_DIRECTORY))));
}

/* openat2 may limit how the path is followed (RESOLVE_*), which libplfs cannot do. Without such a
 * limit the call is openat. With one the kernel opens the path, and only a name that exists is
 * recognised afterwards: a file that such a call creates in a managed directory stays plain. */
static long door_openat2(int dirfd, const char *path, uint64_t *how, size_t size)
{
	if (!how_is_known(how, size))
		return RAW(SYS_openat2, dirfd, path, how, size);
	if (how[2] == 0)
		return door_openat(dirfd, path, (int)how[0], (mode_t)how[1]);
	if ((how[0] & O_TRUNC) && path_may_be_name(dirfd, path, 0)) {
		errno = EOPNOTSUPP;
		return -1;
	}
	if (path_is_flat(dirfd, path) == 1) {
		errno = EOPNOTSUPP;
		return -1;
	}
	long fd = RAW(SYS_openat2, dirfd, path, how, size);
	if (fd < 0 && path_is_unknown(dirfd, path, 0)) {
		errno = EOPNOTSUPP;
		return -1;
	}
	bool is_open = fd >= 0 && !(how[0] & O_PATH);
	if (is_open && !door_thread.inside && path_may_be_name((int)fd, "", AT_EMPTY_PATH)) {
		long rc = door_adopt((int)fd, (int)how[0], NULL);
		if (rc < 0) {
			RAW(SYS_close, fd);
			return to_errno(rc);
		}
	}
	return fd;
}

/* A call on a plain descriptor goes to the kernel and not to our exported function: tools that
 * patch libc's functions (UCX, which most MPI libraries contain, patches mmap) use syscall() to
 * reach the original, and would call themselves. */
#define ON_CONTAINER_ONLY(fd, call) \
	if (!fd_is_container((int)(fd))) \
		break; \
	return call

EXPORT long syscall(long number, ...)
{
	va_list ap;
	va_start(ap, number);
	long a = va_arg(ap, long), b = va_arg(ap, long), c = va_arg(ap, long);
	long d = va_arg(ap, long), e = va_arg(ap, long), f = va_arg(ap, long);
	va_end(ap);

	if (door_thread.inside)
		return REAL(syscall)(number, a, b, c, d, e, f);
	switch (number) {
#ifdef SYS_open
	case SYS_open:
		return door_openat(AT_FDCWD, (const char *)a, (int)b, (mode_t)c);
	case SYS_creat:
		return door_openat(
			AT_FDCWD, (const char *)a, O_CREAT | O_WRONLY | O_TRUNC, (mode_t)b);
	case SYS_stat:
		return stat((const char *)a, (struct stat *)b);
	case SYS_lstat:
		return lstat((const char *)a, (struct stat *)b);
	case SYS_dup2:
		return dup2((int)a, (int)b);
	case SYS_access:
		return access((const char *)a, (int)b);
	case SYS_mkdir:
		return mkdir((const char *)a, (mode_t)b);
	case SYS_mknod:
		return mknod((const char *)a, (mode_t)b, (dev_t)c);
	case SYS_link:
		return link((const char *)a, (const char *)b);
	case SYS_symlink:
		return symlink((const char *)a, (const char *)b);
	case SYS_readlink:
		return readlink((const char *)a, (char *)b, (size_t)c);
	case SYS_unlink:
		return unlink((const char *)a);
	case SYS_rename:
		return rename((const char *)a, (const char *)b);
	case SYS_rmdir:
		return rmdir((const char *)a);
	case SYS_chmod:
		return chmod((const char *)a, (mode_t)b);
	case SYS_chown:
		return chown((const char *)a, (uid_t)b, (gid_t)c);
	case SYS_lchown:
		return lchown((const char *)a, (uid_t)b, (gid_t)c);
	case SYS_renameat:
		return renameat((int)a, (const char *)b, (int)c, (const char *)d);
#endif
	case SYS_openat:
		return door_openat((int)a, (const char *)b, (int)c, (mode_t)d);
	case SYS_openat2:
		return door_openat2((int)a, (const char *)b, (uint64_t *)c, (size_t)d);
	case SYS_close:
		return door_close((int)a);
	case SYS_close_range:
		return close_range((unsigned)a, (unsigned)b, (int)c);
	case SYS_dup:
		return dup((int)a);
	case SYS_dup3:
		return dup3((int)a, (int)b, (int)c);
	case SYS_fcntl:
		ON_CONTAINER_ONLY(a, fcntl((int)a, (int)b, (void *)c));
	case SYS_flock:
		ON_CONTAINER_ONLY(a, flock((int)a, (int)b));
	case SYS_ioctl:
		return ioctl((int)a, (unsigned long)b, (void *)c);
	case SYS_read:
		ON_CONTAINER_ONLY(a, read((int)a, (void *)b, (size_t)c));
	case SYS_write:
		ON_CONTAINER_ONLY(a, write((int)a, (const void *)b, (size_t)c));
	case SYS_pread64:
		ON_CONTAINER_ONLY(a, pread((int)a, (void *)b, (size_t)c, d));
	case SYS_pwrite64:
		ON_CONTAINER_ONLY(a, pwrite((int)a, (const void *)b, (size_t)c, d));
	case SYS_readv:
		ON_CONTAINER_ONLY(a, readv((int)a, (const struct iovec *)b, (int)c));
	case SYS_writev:
		ON_CONTAINER_ONLY(a, writev((int)a, (const struct iovec *)b, (int)c));
	/* The kernel takes the offset of the vector calls in two words; on 64-bit machines the
	 * first is all of it. */
	case SYS_preadv:
		ON_CONTAINER_ONLY(a, preadv((int)a, (const struct iovec *)b, (int)c, d));
	case SYS_pwritev:
		ON_CONTAINER_ONLY(a, pwritev((int)a, (const struct iovec *)b, (int)c, d));
	case SYS_preadv2:
		ON_CONTAINER_ONLY(a, preadv2((int)a, (const struct iovec *)b, (int)c, d, (int)f));
	case SYS_pwritev2:
		ON_CONTAINER_ONLY(a, pwritev2((int)a, (const struct iovec *)b, (int)c, d, (int)f));
	case SYS_lseek:
		ON_CONTAINER_ONLY(a, lseek((int)a, b, (int)c));
	case SYS_fsync:
		ON_CONTAINER_ONLY(a, fsync((int)a));
	case SYS_fdatasync:
		ON_CONTAINER_ONLY(a, fdatasync((int)a));
	case SYS_ftruncate:
		ON_CONTAINER_ONLY(a, ftruncate((int)a, b));
	case SYS_truncate:
		return truncate((const char *)a, b);
	case SYS_fallocate:
		ON_CONTAINER_ONLY(a, fallocate((int)a, (int)b, c, d));
	case SYS_copy_file_range:
		return copy_file_range(
			(int)a, (off64_t *)b, (int)c, (off64_t *)d, (size_t)e, (unsigned)f);
	case SYS_sendfile:
		return sendfile((int)a, (int)b, (off_t *)c, (size_t)d);
	case SYS_splice:
		return splice((int)a, (off64_t *)b, (int)c, (off64_t *)d, (size_t)e, (unsigned)f);
	case SYS_mmap:
		if ((d & MAP_ANONYMOUS) || !fd_is_container((int)e))
			break;
		return (long)door_mmap((void *)a, (size_t)b, (int)c, (int)d, (int)e, f);
	case SYS_fstat:
		return fstat((int)a, (struct stat *)b);
	case SYS_newfstatat:
		return fstatat((int)a, (const char *)b, (struct stat *)c, (int)d);
	case SYS_statx:
		return statx((int)a, (const char *)b, (int)c, (unsigned)d, (struct statx *)e);
	case SYS_fchmod:
		ON_CONTAINER_ONLY(a, fchmod((int)a, (mode_t)b));
	case SYS_fchmodat:
		return fchmodat((int)a, (const char *)b, (mode_t)c, 0);
	case SYS_fchown:
		ON_CONTAINER_ONLY(a, fchown((int)a, (uid_t)b, (gid_t)c));
	case SYS_fchownat:
		return fchownat((int)a, (const char *)b, (uid_t)c, (gid_t)d, (int)e);
	case SYS_utimensat:
		if (!b && fd_is_container((int)a))
			return futimens((int)a, (const struct timespec *)c);
		if (!b)
			break;
		return utimensat((int)a, (const char *)b, (const struct timespec *)c, (int)d);
	case SYS_unlinkat:
		return unlinkat((int)a, (const char *)b, (int)c);
	case SYS_faccessat:
		return faccessat((int)a, (const char *)b, (int)c, 0);
	case SYS_faccessat2:
		return faccessat((int)a, (const char *)b, (int)c, (int)d);
	case SYS_mknodat:
		return mknodat((int)a, (const char *)b, (mode_t)c, (dev_t)d);
#ifdef SYS_fork
	case SYS_fork:
		return fork();
	case SYS_vfork:
		return vfork();
#endif
	case SYS_clone:
		if (b || !clone_is_fork((uint64_t)(a & ~CSIGNAL), (uint64_t)(a & CSIGNAL)))
			break;
		return a & CLONE_VFORK ? vfork() : fork();
	case SYS_clone3: {
		const struct clone_args *how = (const struct clone_args *)a;
		if ((size_t)b < CLONE_ARGS_SIZE_VER0 ||
			!memory_is_there(how, CLONE_ARGS_SIZE_VER0, false) || how->stack ||
			!clone_is_fork(how->flags, how->exit_signal))
			break;
		return how->flags & CLONE_VFORK ? vfork() : fork();
	}
	case SYS_bind:
		return bind((int)a, (const struct sockaddr *)b, (socklen_t)c);
	case SYS_mkdirat:
		return mkdirat((int)a, (const char *)b, (mode_t)c);
	case SYS_linkat:
		return linkat((int)a, (const char *)b, (int)c, (const char *)d, (int)e);
	case SYS_symlinkat:
		return symlinkat((const char *)a, (int)b, (const char *)c);
	case SYS_readlinkat:
		return readlinkat((int)a, (const char *)b, (char *)c, (size_t)d);
	case SYS_umask:
		return umask((mode_t)a);
	case SYS_getxattr:
		return getxattr((const char *)a, (const char *)b, (void *)c, (size_t)d);
	case SYS_lgetxattr:
		return lgetxattr((const char *)a, (const char *)b, (void *)c, (size_t)d);
	case SYS_setxattr:
		return setxattr((const char *)a, (const char *)b, (void *)c, (size_t)d, (int)e);
	case SYS_lsetxattr:
		return lsetxattr((const char *)a, (const char *)b, (void *)c, (size_t)d, (int)e);
	case SYS_fsetxattr:
		return fsetxattr((int)a, (const char *)b, (void *)c, (size_t)d, (int)e);
	case SYS_removexattr:
		return removexattr((const char *)a, (const char *)b);
	case SYS_lremovexattr:
		return lremovexattr((const char *)a, (const char *)b);
	case SYS_fremovexattr:
		return fremovexattr((int)a, (const char *)b);
	case SYS_listxattr:
		return listxattr((const char *)a, (char *)b, (size_t)c);
	case SYS_llistxattr:
		return llistxattr((const char *)a, (char *)b, (size_t)c);
	case SYS_renameat2:
		return renameat2((int)a, (const char *)b, (int)c, (const char *)d, (unsigned)e);
	case SYS_getdents64:
		return getdents64((int)a, (void *)b, (size_t)c);
	case SYS_execve:
		return execve((const char *)a, (char *const *)b, (char *const *)c);
	case SYS_execveat:
		return execveat(
			(int)a, (const char *)b, (char *const *)c, (char *const *)d, (int)e);
	case SYS_sendmsg:
		return sendmsg((int)a, (const struct msghdr *)b, (int)c);
	case SYS_sendmmsg:
		return sendmmsg((int)a, (struct mmsghdr *)b, (unsigned)c, (int)d);
	case SYS_recvmsg:
		return recvmsg((int)a, (struct msghdr *)b, (int)c);
	case SYS_recvmmsg:
		return recvmmsg(
			(int)a, (struct mmsghdr *)b, (unsigned)c, (int)d, (struct timespec *)e);
	case SYS_chdir:
		return chdir((const char *)a);
	case SYS_getcwd:
		if (flat_is_known()) {
			if (!getcwd((char *)a, (size_t)b))
				return -1;
			return (long)strlen((char *)a) + 1;
		}
		break;
	case SYS_fchdir:
		return fchdir((int)a);
	case SYS_io_setup:
	case SYS_io_uring_setup:
		kernel_writes();
		break;
	case SYS_exit:
		/* Libplfs's threads would go on without the program. */
		if (threads_end_with_caller())
			_exit((int)a);
		break;
	case SYS_exit_group:
		leave_process();
		break;
	}
	return REAL(syscall)(number, a, b, c, d, e, f);
}
