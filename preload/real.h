/* The functions of libc behind ours.
 *
 * Each is looked up once with dlsym(RTLD_NEXT): by the constructor or at the first call, see
 * real.def. A call that comes before the constructor looks up its own. */
#ifndef PLFS_PRELOAD_REAL_H
#define PLFS_PRELOAD_REAL_H

#include <aio.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <pthread.h>
#include <pty.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>
#include <utime.h>
#include <wordexp.h>
#include <sys/inotify.h>
#include <stdarg.h>
#include <stdbool.h>
#include <execinfo.h>

_Static_assert(sizeof(off_t) == 8, "the door aliases every 64-bit variant to the plain call");

/* Entry points that only the headers of _FORTIFY_SOURCE declare. */
ssize_t __read_chk(int fd, void *buf, size_t n, size_t room);
ssize_t __pread_chk(int fd, void *buf, size_t n, off_t offset, size_t room);
int __vdprintf_chk(int fd, int flag, const char *format, va_list ap);
int __dprintf_chk(int fd, int flag, const char *format, ...);
char *__getcwd_chk(char *buf, size_t n, size_t room);
char *__realpath_chk(const char *path, char *resolved, size_t room);
int __open_2(const char *path, int flags);
int __openat_2(int dirfd, const char *path, int flags);

enum real_id {
#define REAL_FN(name) REAL_##name,
#define REAL_EARLY(name) REAL_##name,
#include "real.def"
#undef REAL_EARLY
#undef REAL_FN
	REAL_COUNT
};

extern _Atomic(void *) real_table[REAL_COUNT];

/* Looks one function up; a function that this libc lacks becomes one that fails with ENOSYS. */
void *real_resolve(enum real_id id);
void real_resolve_early(void);
/* REAL(openat) is libc's own: no other library wraps it. */
extern bool real_openat_is_libcs;
/* From then on no call waits for the dynamic linker. */
void real_resolve_all(void);

static inline void *real_get(enum real_id id)
{
	void *p = atomic_load_explicit(&real_table[id], memory_order_relaxed);
	return __builtin_expect(p != NULL, 1) ? p : real_resolve(id);
}

#define REAL(name) ((__typeof__(&name))real_get(REAL_##name))

/* A system call that no wrapper sees. Sets errno as libc does. Made here and not in libc's syscall:
 * each call that the kernel returns into costs a return that no processor foresees, of which an
 * open and close had three. */
#define RAW(...) RAW_OF(__VA_ARGS__, 0, 0, 0, 0, 0, 0, 0)
#define RAW_OF(number, a, b, c, d, e, f, ...) \
	raw_call((long)(number), (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))

static inline long raw_call(long number, long a, long b, long c, long d, long e, long f)
{
#if defined __x86_64__
	register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
	long rc;
	__asm__ volatile("syscall"
		: "=a"(rc)
		: "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
		: "rcx", "r11", "memory");
#elif defined __aarch64__
	register long x8 __asm__("x8") = number, rc __asm__("x0") = a, x1 __asm__("x1") = b,
			 x2 __asm__("x2") = c, x3 __asm__("x3") = d, x4 __asm__("x4") = e,
			 x5 __asm__("x5") = f;
	__asm__ volatile("svc 0"
		: "+r"(rc)
		: "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
		: "memory");
#else
	return REAL(syscall)(number, a, b, c, d, e, f);
#endif
	/* The last page of addresses is that of errors. */
	if ((unsigned long)rc > -4096UL) {
		errno = (int)-rc;
		return -1;
	}
	return rc;
}

#define EXPORT __attribute__((visibility("default")))

/* `other` is a second exported name of `name`, for the variants with 64-bit offsets. */
#define ALIAS(name, other) \
	__asm__(".globl " #other "\n\t.type " #other ",@function\n\t.set " #other "," #name)

#endif
