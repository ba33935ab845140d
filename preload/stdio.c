/* stdio on containers.
 *
 * A FILE of libc reads and writes with calls inside libc, which cannot be wrapped. So a stream on a
 * container is a cookie stream, whose functions are ours; its _fileno is set so that fileno()
 * works.
 *
 * stdin, stdout and stderr exist before we know what descriptors 0, 1 and 2 are, and those can
 * change (dup2, redirections inherited over exec). So when one becomes a container, the global
 * variable gets a cookie stream, and the original comes back when it is plain again. */
#include "door.h"

#include <pthread.h>
#include <stdio_ext.h>
#include <string.h>

/* Buffer of a stream. 64 KiB: at that size a call costs little compared with copying its bytes, and
 * each write is one record of the index log. */
#define STREAM_BUFFER 65536

/* _IO_UNBUFFERED of glibc's libio.h, part of its ABI since putc was a macro. */
#define STREAM_UNBUFFERED 2

struct stream {
	int fd;
	int std; /* 0, 1 or 2 for the stand-in of stdin, stdout, stderr, else -1 */
	FILE *fp;
	char *buf;
	struct wide_state wide;
	struct stream *next, **link;
};

static pthread_mutex_t streams_lock = PTHREAD_MUTEX_INITIALIZER;
static struct stream *streams;

static FILE *original[3];	   /* what libc had in stdin, stdout, stderr */
static struct stream *stand_in[3]; /* kept once made: programs may hold the pointer */

void stdio_lock(void)
{
	signals_defer();
	pthread_mutex_lock(&streams_lock);
}

void stdio_unlock(void)
{
	pthread_mutex_unlock(&streams_lock);
	signals_resume();
}

static FILE **global_of(int fd)
{
	return fd == 0 ? &stdin : fd == 1 ? &stdout : &stderr;
}

static ssize_t stream_read(void *cookie, char *buf, size_t n)
{
	return read(((struct stream *)cookie)->fd, buf, n);
}

/* A cookie stream's write function reports an error by a smaller count and must not return a
 * negative one (fopencookie(3)). */
static ssize_t stream_write(void *cookie, const char *buf, size_t n)
{
	size_t done = 0;
	while (done < n) {
		ssize_t put = write(((struct stream *)cookie)->fd, buf + done, n - done);
		if (put <= 0)
			break;
		done += (size_t)put;
	}
	return (ssize_t)done;
}

static int stream_seek(void *cookie, off64_t *at, int whence)
{
	off_t to = lseek(((struct stream *)cookie)->fd, *at, whence);
	if (to < 0)
		return -1;
	*at = to;
	return 0;
}

static int stream_close(void *cookie)
{
	struct stream *s = cookie;
	stdio_lock();
	*s->link = s->next;
	if (s->next)
		s->next->link = s->link;
	stdio_unlock();
	if (s->std >= 0) {
		stand_in[s->std] = NULL;
		if (*global_of(s->std) == s->fp)
			*global_of(s->std) = original[s->std];
	}
	int fd = s->fd;
	free(s->buf);
	free(s);
	return door_close(fd);
}

/* A stream on container fd; `how` is the mode for fopencookie. */
static struct stream *stream_new(int fd, const char *how, int std)
{
	struct stream *s = calloc(1, sizeof *s);
	char *buf = malloc(STREAM_BUFFER);
	cookie_io_functions_t calls = {stream_read, stream_write, stream_seek, stream_close};
	FILE *fp = s && buf ? fopencookie(s, how, calls) : NULL;
	if (!fp) {
		free(s);
		free(buf);
		return NULL;
	}
	setvbuf(fp, buf, _IOFBF, STREAM_BUFFER);
	fp->_fileno = fd;
	*s = (struct stream){.fd = fd, .std = std, .fp = fp, .buf = buf};
	stdio_lock();
	s->next = streams;
	s->link = &streams;
	if (streams)
		streams->link = &s->next;
	streams = s;
	stdio_unlock();
	return s;
}

static struct stream *find_stream(FILE *fp)
{
	stdio_lock();
	struct stream *s = streams;
	while (s && s->fp != fp)
		s = s->next;
	stdio_unlock();
	return s;
}

struct wide_state *stdio_wide_state(FILE *fp)
{
	struct stream *s = find_stream(fp);
	return s ? &s->wide : NULL;
}

/* Bytes that are buffered in one stream belong to the descriptor, whatever that is when they are
 * flushed; so they move to the other stream. */
static void move_pending(FILE *from, FILE *to)
{
	size_t n = (size_t)(from->_IO_write_ptr - from->_IO_write_base);
	if (n > 0 && n <= 1 << 30)
		fwrite(from->_IO_write_base, 1, n, to);
	__fpurge(from);
}

void stdio_follow(int fd)
{
	if (fd < 0 || fd > 2)
		return;
	FILE **global = global_of(fd);
	struct stream *s = stand_in[fd];
	if (fd_is_container(fd)) {
		if ((s && *global == s->fp) || !*global || fileno(*global) != fd)
			return;
		if (!s) {
			/* A program may write to 0 and read from 1, but not through these streams.
			 */
			s = stream_new(fd, fd == 0 ? "r" : "w", fd);
			if (!s)
				return;
			stand_in[fd] = s;
		}
		FILE *old = *global;
		original[fd] = old;
		clearerr(s->fp);
		__fpurge(s->fp);
		if (fd > 0) {
			/* The mode of buffering stays what the program or its terminal made it. */
			int how = (old->_flags & STREAM_UNBUFFERED) ? _IONBF
				  : __flbf(old)			    ? _IOLBF
								    : _IOFBF;
			setvbuf(s->fp, s->buf, how, STREAM_BUFFER);
			move_pending(old, s->fp);
		}
		*global = s->fp;
	} else if (s && *global == s->fp) {
		*global = original[fd];
		if (fd > 0)
			move_pending(s->fp, original[fd]);
		else
			__fpurge(s->fp);
	}
}

/* exit() flushes streams after the last exit handlers, when libplfs has committed for the last
 * time. So ours are flushed before. A stream that another thread holds is left alone, as waiting
 * for it could last for ever. */
void stdio_flush_all(void)
{
	if (pthread_mutex_trylock(&streams_lock) != 0)
		return;
	for (struct stream *s = streams; s; s = s->next)
		if (ftrylockfile(s->fp) == 0) {
			fflush_unlocked(s->fp);
			funlockfile(s->fp);
		}
	pthread_mutex_unlock(&streams_lock);
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

/* What fopencookie understands of a mode: "r", "w", "a" and "+". */
static void cookie_mode(char how[3], const char *mode)
{
	const char *end = strchrnul(mode, ',');
	how[0] = mode[0];
	how[1] = memchr(mode, '+', (size_t)(end - mode)) ? '+' : 0;
	how[2] = 0;
}

static FILE *stream_on(int fd, const char *mode)
{
	char how[3];
	cookie_mode(how, mode);
	struct stream *s = stream_new(fd, how, -1);
	return s ? s->fp : NULL;
}

EXPORT FILE *fopen(const char *restrict path, const char *restrict mode)
{
	int flags = door_thread.inside || !path || !mode ? -1 : mode_flags(mode);
	if (flags < 0)
		return REAL(fopen)(path, mode);
	if (!path_is_managed(AT_FDCWD, path) &&
		!((flags & O_TRUNC) && path_may_be_name(AT_FDCWD, path, 0))) {
		FILE *fp = REAL(fopen)(path, mode);
		struct stat st;
		if (!fp || REAL(fstat)(fp->_fileno, &st) < 0 || !stat_may_be_name(&st) ||
			(st.st_size != PLFS_SUPER_BYTES &&
				PLFS(plfs_door_is_plfs(AT_FDCWD, path)) != 1))
			return fp;
		REAL(fclose)(fp);
		flags &= ~O_EXCL;
	}
	int fd = door_openat(AT_FDCWD, path, flags, 0666);
	if (fd < 0)
		return NULL;
	FILE *fp = fd_is_container(fd) ? stream_on(fd, mode) : REAL(fdopen)(fd, mode);
	if (!fp) {
		int saved = errno;
		door_close(fd);
		errno = saved;
	}
	return fp;
}
ALIAS(fopen, fopen64);

EXPORT FILE *fdopen(int fd, const char *mode)
{
	struct ofd *o;
	if (!fd_is_container(fd) || door_thread.inside || !(o = ofd_get(fd)))
		return REAL(fdopen)(fd, mode);
	int want = mode_flags(mode), have = atomic_load(&o->flags) & O_ACCMODE;
	ofd_put(o);
	if (want < 0 || (have != O_RDWR && have != (want & O_ACCMODE))) {
		errno = EINVAL;
		return NULL;
	}
	if (want & O_APPEND)
		fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_APPEND);
	if (want & O_CLOEXEC)
		fcntl(fd, F_SETFD, FD_CLOEXEC);
	return stream_on(fd, mode);
}

EXPORT int fclose(FILE *fp)
{
	/* A stream of libc whose descriptor became a container (by dup2): libc closes it without
	 * us. */
	int fd = fp->_fileno;
	if (!door_thread.inside && fd_is_container(fd) && !find_stream(fp)) {
		int rc = REAL(fclose)(fp);
		door_forget(fd);
		return rc;
	}
	return REAL(fclose)(fp);
}

/* A FILE of libc cannot become a cookie stream. For stdin, stdout and stderr the global variable
 * changes; for others the result is another stream than the argument, which programs that use the
 * result do not notice. */
EXPORT FILE *freopen(const char *restrict path, const char *restrict mode, FILE *restrict fp)
{
	int flags = mode_flags(mode), fd = fp->_fileno;
	bool ours = path && path_is_ours(AT_FDCWD, path, 0);
	if (door_thread.inside || flags < 0 || (!ours && !fd_is_container(fd)))
		return REAL(freopen)(path, mode, fp);
	if (!path) {
		/* A new mode for the same file. The descriptor's own access mode stays. */
		fflush(fp);
		if (flags & O_APPEND)
			fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_APPEND);
		return fp;
	}
	int std = fp == stdin ? 0 : fp == stdout ? 1 : fp == stderr ? 2 : -1;
	if (std < 0) {
		fclose(fp);
		return fopen(path, mode);
	}
	fflush(fp);
	int opened = door_openat(AT_FDCWD, path, flags & ~O_CLOEXEC, 0666);
	if (opened < 0)
		return NULL;
	if (opened != std) {
		int rc = dup2(opened, std);
		door_close(opened);
		if (rc < 0)
			return NULL;
	}
	fp = *global_of(std);
	clearerr(fp);
	return fp;
}
ALIAS(freopen, freopen64);
