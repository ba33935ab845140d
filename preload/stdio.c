/* stdio on containers.
 *
 * A FILE of libc reads and writes with system calls that are inside libc, through a table of
 * functions that all its files share. Once the process has a container, five of them are ours:
 * those that libc's documentation of the table calls read, write, seek, close and stat
 * (libio/libioP.h, struct _IO_jump_t). They do on a container what is to be done, and else call
 * libc's. So a FILE is what it always was, whatever its descriptor is by now: dup2 onto 0, 1 and 2,
 * freopen, the streams of C++, wide characters and copies of the pointer need nothing else.
 *
 * The places in the table are those of glibc since 2.2 (1999). Where they do not hold the functions
 * that glibc exports under their names, nothing is changed, and streams on containers fail. */
#include "door.h"

#include <execinfo.h>
#include <mntent.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio_ext.h>
#include <string.h>

/* Buffer of a stream that is opened on a container. 64 KiB: at that size a call costs little
 * compared with copying its bytes, and each write is one record of the index log. */
#define STREAM_BUFFER 65536

/* Flags of a FILE (libio/libio.h), part of the ABI since putc was a macro. */
#define FILE_USER_BUFFER 0x1
#define FILE_NO_READS 0x4
#define FILE_NO_WRITES 0x8
#define FILE_ERROR 0x20
#define FILE_APPENDS 0x1000
/* Of its second set of flags. A freopen keeps that exec closes it, if fopen was told so. */
#define FILE_NOT_CANCELLED 0x2
#define FILE_CLOSED_BY_EXEC 0x40

/* Places in the table. */
enum { FILE_READ = 14, FILE_WRITE, FILE_SEEK, FILE_CLOSE, FILE_STAT };

extern void *_IO_file_jumps[] __attribute__((weak)), *_IO_wfile_jumps[] __attribute__((weak));
extern ssize_t _IO_file_read(FILE *fp, void *buf, ssize_t n) __attribute__((weak));
extern ssize_t _IO_file_write(FILE *fp, const void *buf, ssize_t n) __attribute__((weak));
extern off64_t _IO_file_seek(FILE *fp, off64_t offset, int whence) __attribute__((weak));
extern int _IO_file_close(FILE *fp) __attribute__((weak));
extern int _IO_file_stat(FILE *fp, void *st) __attribute__((weak));

/* libc's list of open streams. */
extern FILE *_IO_iter_begin(void), *_IO_iter_end(void);
extern FILE *_IO_iter_next(FILE *at), *_IO_iter_file(FILE *at);

/* Functions of libc that are no cancellation points (getopt, error) say so while they print. */
static int stay(FILE *fp)
{
	int state = PTHREAD_CANCEL_ENABLE;
	if (fp->_flags2 & FILE_NOT_CANCELLED)
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	return state;
}

static void may_leave(FILE *fp, int state)
{
	if (fp->_flags2 & FILE_NOT_CANCELLED)
		pthread_setcancelstate(state, NULL);
}

static ssize_t file_read(FILE *fp, void *buf, ssize_t n)
{
	if (!fd_is_container(fp->_fileno))
		return _IO_file_read(fp, buf, n);
	int state = stay(fp);
	n = read(fp->_fileno, buf, (size_t)n);
	may_leave(fp, state);
	return n;
}

/* All of it, or an error: that is what libc's does. */
static ssize_t file_write(FILE *fp, const void *buf, ssize_t n)
{
	if (!fd_is_container(fp->_fileno))
		return _IO_file_write(fp, buf, n);
	ssize_t done = 0;
	int state = stay(fp);
	while (done < n) {
		ssize_t put = write(fp->_fileno, (const char *)buf + done, (size_t)(n - done));
		if (put < 0) {
			fp->_flags |= FILE_ERROR;
			break;
		}
		done += put;
	}
	may_leave(fp, state);
	if (fp->_offset >= 0)
		fp->_offset += done;
	return done;
}

static off64_t file_seek(FILE *fp, off64_t offset, int whence)
{
	return fd_is_container(fp->_fileno) ? lseek(fp->_fileno, offset, whence)
					    : _IO_file_seek(fp, offset, whence);
}

static int file_close(FILE *fp)
{
	return fd_is_container(fp->_fileno) ? door_close(fp->_fileno) : _IO_file_close(fp);
}

static int file_stat(FILE *fp, void *st)
{
	return fd_is_container(fp->_fileno) ? fstat(fp->_fileno, st) : _IO_file_stat(fp, st);
}

/* Puts ours into a table, which libc keeps in memory that cannot be written. */
static bool take_places(void **table)
{
	void *const theirs[] = {(void *)_IO_file_read, (void *)_IO_file_write,
		(void *)_IO_file_seek, (void *)_IO_file_close, (void *)_IO_file_stat};
	void *const ours[] = {(void *)file_read, (void *)file_write, (void *)file_seek,
		(void *)file_close, (void *)file_stat};
	if (!table || !theirs[0] || memcmp(table + FILE_READ, theirs, sizeof theirs) != 0)
		return false;
	long page = sysconf(_SC_PAGESIZE);
	long first = (long)(table + FILE_READ) & -page, last = (long)(table + FILE_STAT + 1);
	if (RAW(SYS_mprotect, first, last - first, (long)(PROT_READ | PROT_WRITE)) < 0)
		return false;
	for (int i = 0; i < 5; i++)
		__atomic_store_n(&table[FILE_READ + i], ours[i], __ATOMIC_RELEASE);
	RAW(SYS_mprotect, first, last - first, (long)PROT_READ);
	return true;
}

void stdio_take_over(void)
{
	static _Atomic bool done;
	if (atomic_load_explicit(&done, memory_order_acquire))
		return;
	int saved = errno;
	/* Who opens a file at the same time waits, and so does a fork: a container that libc takes
	 * for a plain file would lose what is printed. */
	fd_hold_numbers();
	if (!atomic_load(&done)) {
		take_places(_IO_file_jumps);
		take_places(_IO_wfile_jumps);
		atomic_store(&done, true);
	}
	fd_release_numbers();
	errno = saved;
}

/* exit() flushes streams after the last exit handlers, when libplfs has committed for the last
 * time. So those on containers are flushed before. A stream that another thread holds is left
 * alone, as waiting for it could last for ever; and so could waiting for the list, which exit()
 * does not lock either. */
void stdio_flush_all(void)
{
	if (atomic_load(&fd_limit) == 0)
		return;
	for (FILE *at = _IO_iter_begin(); at != _IO_iter_end(); at = _IO_iter_next(at)) {
		FILE *fp = _IO_iter_file(at);
		if (!fd_is_container(fp->_fileno) || ftrylockfile(fp) != 0)
			continue;
		if (__fpending(fp) > 0)
			fflush_unlocked(fp);
		funlockfile(fp);
	}
}

/* Flags of open(2) for a mode of fopen(3), or -1. */
static int mode_flags(const char *mode)
{
	int flags;
	switch (*mode) {
	case 'r':
		flags = O_RDONLY;
		break;
	case 'w':
		flags = O_WRONLY | O_CREAT | O_TRUNC;
		break;
	case 'a':
		flags = O_WRONLY | O_CREAT | O_APPEND;
		break;
	default:
		return -1;
	}
	for (mode++; *mode && *mode != ','; mode++) {
		if (*mode == '+')
			flags = (flags & ~O_ACCMODE) | O_RDWR;
		else if (*mode == 'x')
			flags |= O_EXCL;
		else if (*mode == 'e')
			flags |= O_CLOEXEC;
	}
	return flags;
}

static void enlarge_buffer(FILE *fp)
{
	char *buf = malloc(STREAM_BUFFER);
	if (!buf)
		return;
	setvbuf(fp, buf, _IOFBF, STREAM_BUFFER);
	/* libc frees it with the stream. */
	fp->_flags &= ~FILE_USER_BUFFER;
	/* As in a stream that nobody has used: setvbuf has made it one that reads (__freading). */
	fp->_IO_read_base = fp->_IO_read_ptr = fp->_IO_read_end = NULL;
	fp->_IO_write_base = fp->_IO_write_ptr = fp->_IO_write_end = NULL;
}

/* A stream whose bytes are converted (ccs=), on fd: fopen alone can make one. */
static FILE *converting_stream_on(int fd, const char *mode)
{
	/* Not by a mode that wants a new file. */
	char how[strlen(mode) + 1], *to = how;
	const char *letters = strchrnul(mode, ',');
	for (const char *from = mode; *from; from++)
		if (*from != 'x' || from > letters)
			*to++ = *from;
	*to = 0;
	FILE *fp = REAL(fopen)("/dev/null", how);
	if (!fp)
		return NULL;
	RAW(SYS_close, (long)fp->_fileno);
	fp->_fileno = fd;
	enlarge_buffer(fp);
	return fp;
}

/* A stream on container fd. libc holds the mode against the access mode of the descriptor, and a
 * placeholder can only be read; a plain file's own descriptor perhaps only be written. So the
 * stream is opened for what the descriptor allows first. */
static FILE *stream_on(int fd, const char *mode)
{
	char how[64];
	bool writes_only = (RAW(SYS_fcntl, (long)fd, (long)F_GETFL) & O_ACCMODE) == O_WRONLY;
	snprintf(how, sizeof how, "%c%s", writes_only ? 'w' : 'r', strchrnul(mode, ','));
	FILE *fp = REAL(fdopen)(fd, how);
	if (!fp)
		return NULL;
	int flags = mode_flags(mode), access = flags & O_ACCMODE;
	fp->_flags = (fp->_flags & ~(FILE_NO_READS | FILE_NO_WRITES)) |
		     (access == O_RDONLY ? FILE_NO_WRITES : 0) |
		     (access == O_WRONLY ? FILE_NO_READS : 0) |
		     (flags & O_APPEND ? FILE_APPENDS : 0);
	enlarge_buffer(fp);
	return fp;
}

/* A stream that only appends is at the end from the start. */
static void start_at_end(FILE *fp, int flags)
{
	if ((flags & O_APPEND) && (flags & O_ACCMODE) == O_WRONLY)
		lseek(fp->_fileno, 0, SEEK_END);
}

EXPORT FILE *fopen(const char *restrict path, const char *restrict mode)
{
	int flags = door_thread.inside || !path || !mode ? -1 : mode_flags(mode);
	if (flags < 0)
		return REAL(fopen)(path, mode);
	int of;
	if (!path_is_managed(AT_FDCWD, path) && path_of_packed(path) < 0 &&
		!((flags & O_TRUNC) &&
			(path_may_be_name(AT_FDCWD, path, 0) ||
				path_leads_through_descriptor(AT_FDCWD, path, &of)))) {
		FILE *fp = REAL(fopen)(path, mode);
		struct stat st;
		if (!fp || REAL(fstat)(fp->_fileno, &st) < 0)
			return fp;
		bool is_name = stat_may_be_name(&st) &&
			       (st.st_size == PLFS_SUPER_BYTES ||
				       PLFS(plfs_door_is_plfs(AT_FDCWD, path)) == 1);
		if (!is_name && !stat_is_stand_in(&st) && !path_led_to_base(fp->_fileno, path, &st))
			return fp;
		fclose(fp);
		flags &= ~O_EXCL;
	}
	int fd = door_openat(AT_FDCWD, path, flags, 0666);
	if (fd < 0)
		return NULL;
	FILE *fp = strstr(mode, ",ccs=")  ? converting_stream_on(fd, mode)
		   : !fd_is_container(fd) ? REAL(fdopen)(fd, mode)
					  : stream_on(fd, mode);
	if (!fp) {
		int saved = errno;
		door_close(fd);
		errno = saved;
		return NULL;
	}
	start_at_end(fp, flags);
	if (flags & O_CLOEXEC)
		fp->_flags2 |= FILE_CLOSED_BY_EXEC;
	return fp;
}
ALIAS(fopen, fopen64);

/* libc's own would call its own fopen. The letters are those that it adds. */
EXPORT FILE *setmntent(const char *path, const char *mode)
{
	char how[64];
	snprintf(how, sizeof how, "%sce", mode);
	FILE *fp = fopen(path, how);
	if (fp)
		__fsetlocking(fp, FSETLOCKING_BYCALLER);
	return fp;
}
ALIAS(setmntent, __setmntent);

EXPORT FILE *fdopen(int fd, const char *mode)
{
	struct ofd *o;
	if (!fd_is_container(fd) || door_thread.inside || !(o = ofd_get(fd)))
		return REAL(fdopen)(fd, mode);
	int want = mode_flags(mode), flags = ofd_flags(o), have = flags & O_ACCMODE;
	ofd_put(o);
	if (want < 0 || (have != O_RDWR && have != (want & O_ACCMODE))) {
		errno = EINVAL;
		return NULL;
	}
	/* The letter e says nothing here. */
	bool starts_to_append = (want & O_APPEND) && !(flags & O_APPEND);
	if (starts_to_append)
		fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_APPEND);
	FILE *fp = stream_on(fd, mode);
	if (fp && starts_to_append)
		start_at_end(fp, want);
	return fp;
}

static int open_null(void)
{
	return (int)RAW(SYS_openat, (long)AT_FDCWD, "/dev/null", (long)(O_RDWR | O_CLOEXEC));
}

/* Puts /dev/null where a container is. libc's own dup3 is not ours: other threads would take what
 * it puts there for the container. */
static void leave_number(int fd)
{
	int null = open_null();
	if (null < 0 || dup3(null, fd, O_CLOEXEC) < 0) {
		door_leave_number(fd);
		door_forget(fd);
	}
	if (null >= 0)
		RAW(SYS_close, (long)null);
}

/* libc's freopen opens by itself, and puts what it opened where the stream was (dup3). So where the
 * new file is ours it opens /dev/null, whose place the file then takes. And where ours cannot be
 * opened libc fails, too, by a name that nothing has: the stream is closed then, and still there
 * for fclose and for the next freopen. */
#define NO_FILE ""
/* How often it tries again when ours is open, and cut: each time there was a free number. */
#define FREOPENS 100

EXPORT FILE *freopen(const char *restrict path, const char *restrict mode, FILE *restrict fp)
{
	int flags = mode_flags(mode);
	if (door_thread.inside || flags < 0 || (!path && !fd_is_container(fp->_fileno)))
		return REAL(freopen)(path, mode, fp);
	char link[FD_PATH_ROOM];
	int of;
	bool is_ours = !path || path_is_ours(AT_FDCWD, path, 0) ||
		       path_leads_through_descriptor(AT_FDCWD, path, &of);
	if (!path) {
		/* A new mode for the same file. */
		path = fd_path(link, fp->_fileno);
	}
	flockfile(fp);
	int opened = -1, error = 0, old = fp->_fileno;
	bool was_ours = fd_is_container(old);
	if ((is_ours || was_ours) && __fpending(fp) > 0)
		fflush_unlocked(fp);
	const char *for_libc = path;
	if (is_ours) {
		/* Libc's, before the file is made or cut. */
		int null = open_null();
		opened = null < 0 ? -1 : door_openat(AT_FDCWD, path, flags | O_CLOEXEC, 0666);
		error = opened < 0 ? errno : 0;
		if (null >= 0)
			RAW(SYS_close, (long)null);
		if (opened >= 0 && opened == old) {
			/* The program has closed the stream's descriptor. Its number is libc's to
			 * take. */
			opened = fcntl(old, F_DUPFD_CLOEXEC, old + 1);
			error = opened < 0 ? EMFILE : 0;
			door_close(old);
		}
		for_libc = error ? NO_FILE : "/dev/null";
	}
	if (was_ours)
		leave_number(old);
	FILE *same = REAL(freopen)(for_libc, mode, fp);
	/* Another thread took the descriptor that libc needs for a moment. It has closed the old
	 * one. */
	for (int i = 0; !same && opened >= 0 && errno == EMFILE && i < FREOPENS; i++)
		same = REAL(freopen)(for_libc, mode, fp);
	int saved = error ? error : errno;
	funlockfile(fp);
	if (opened < 0) {
		errno = saved;
		return same;
	}
	bool closed_by_exec = same &&
			      (RAW(SYS_fcntl, (long)fp->_fileno, (long)F_GETFD) & FD_CLOEXEC);
	if (same && dup3(opened, fp->_fileno, closed_by_exec ? O_CLOEXEC : 0) < 0) {
		saved = errno;
		same = REAL(freopen)(NO_FILE, mode, fp);
	}
	door_close(opened);
	if (same && fd_is_container(fp->_fileno) && fp != stderr && fp != stdout)
		enlarge_buffer(fp);
	if (same)
		start_at_end(fp, flags);
	errno = saved;
	return same;
}
ALIAS(freopen, freopen64);

/* Writes all of it to fd, as libc's own functions do that write to a descriptor. */
static bool write_all(int fd, const char *text, size_t n)
{
	while (n > 0) {
		ssize_t put = write(fd, text, n);
		if (put < 0)
			return false;
		text += put;
		n -= (size_t)put;
	}
	return true;
}

static int print_to(int fd, const char *format, va_list ap)
{
	char *text;
	int n = vasprintf(&text, format, ap);
	if (n < 0)
		return n;
	bool done = write_all(fd, text, (size_t)n);
	int saved = errno;
	free(text);
	errno = saved;
	return done ? n : -1;
}

EXPORT int vdprintf(int fd, const char *restrict format, va_list ap)
{
	return fd_is_container(fd) ? print_to(fd, format, ap) : REAL(vdprintf)(fd, format, ap);
}

EXPORT int dprintf(int fd, const char *restrict format, ...)
{
	va_list ap;
	va_start(ap, format);
	int n = vdprintf(fd, format, ap);
	va_end(ap);
	return n;
}

/* The fortified forms; `flag` forbids %n in writable memory, which libc's own form checks. */
EXPORT int __vdprintf_chk(int fd, int flag, const char *format, va_list ap)
{
	return fd_is_container(fd) ? print_to(fd, format, ap)
				   : REAL(__vdprintf_chk)(fd, flag, format, ap);
}

EXPORT int __dprintf_chk(int fd, int flag, const char *format, ...)
{
	va_list ap;
	va_start(ap, format);
	int n = __vdprintf_chk(fd, flag, format, ap);
	va_end(ap);
	return n;
}

/* It is made for handlers of signals, and does not allocate. So its text goes through a file in
 * memory. */
EXPORT void backtrace_symbols_fd(void *const *frames, int n, int fd)
{
	if (!fd_is_container(fd)) {
		REAL(backtrace_symbols_fd)(frames, n, fd);
		return;
	}
	int text = (int)RAW(SYS_memfd_create, "plfs-backtrace", (long)MFD_CLOEXEC);
	if (text < 0)
		return;
	REAL(backtrace_symbols_fd)(frames, n, text);
	RAW(SYS_lseek, (long)text, 0L, (long)SEEK_SET);
	char part[256];
	long got;
	while ((got = RAW(SYS_read, (long)text, part, sizeof part)) > 0)
		if (!write_all(fd, part, (size_t)got))
			break;
	RAW(SYS_close, (long)text);
}
