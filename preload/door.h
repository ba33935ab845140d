/* What the files of the door share. The door translates libc calls to libplfs; the meaning of files
 * is in libplfs. */
#ifndef PLFS_PRELOAD_DOOR_H
#define PLFS_PRELOAD_DOOR_H

#include "fdtable.h"
#include "real.h"

#include <errno.h>
#include <limits.h>
#include <sys/stat.h>
#include <wchar.h>

/* Above 0 while this thread is inside libplfs. The Rust runtime in it may call libc (threads,
 * /proc), which must not call libplfs again: wrappers call libc directly while it is set. */
extern __thread int inside_plfs __attribute__((tls_model("initial-exec")));

/* Calls libplfs with inside_plfs raised. */
#define PLFS(call) \
	({ \
		inside_plfs++; \
		__typeof__(call) plfs_result_ = (call); \
		inside_plfs--; \
		plfs_result_; \
	})

/* Is the file of o a plain one, as far as this process knows? Then what is in the descriptor is the
 * file, and calls that change no bytes are libc's. */
#define OFD_IS_PLAIN(o) (PLFS(plfs_door_is_plain((o)->file)) == 1)

/* Can a file with this stat have a container? It has the length of a superblock, or a second name.
 */
static inline bool stat_may_be_name(const struct stat *st)
{
	return S_ISREG(st->st_mode) && (st->st_size == PLFS_SUPER_BYTES || st->st_nlink > 1);
}

/* init.c: with PLFS_DEBUG=1 prints why the last call of libplfs failed. */
void debug_last_error(int64_t rc);
/* init.c: says on descriptor 2 that the last call of libplfs has lost bytes, if rc is an error,
 * where the program cannot be told. */
void tell_loss(int64_t rc);

/* Result of libplfs (>= 0 or negative errno) as libc gives it. */
static inline int64_t to_errno(int64_t rc)
{
	if (__builtin_expect(rc >= 0, 1))
		return rc;
	debug_last_error(rc);
	errno = (int)-rc;
	return -1;
}

/* path.c */
/* Is `path`, by its text, a managed directory or below one? Relative paths are taken from dirfd. */
bool path_is_managed(int dirfd, const char *path);
/* Does the file have the size of a name? at_flags: 0 or AT_SYMLINK_NOFOLLOW. */
bool path_may_be_name(int dirfd, const char *path, int at_flags);
/* Is a call on this path for libplfs? In a managed directory, or perhaps a name elsewhere. */
bool path_is_ours(int dirfd, const char *path, int at_flags);

/* open.c */
int door_openat(int dirfd, const char *path, int flags, mode_t mode);
int door_close(int fd);
/* Puts fd, which the kernel opened or which was inherited, into the table if it is open on a name.
 * 1: it was, 0: it is plain, or a negative errno. */
int door_adopt(int fd, int flags, int64_t position);
/* Takes the entry of fd out, with what goes with a closed descriptor: record locks, a standard
 * stream. The caller gets its reference. */
struct ofd *door_detach(int fd);
/* Removes the entry of a descriptor that libc replaced without calling a wrapper. */
void door_forget(int fd);

/* io.c: on a description; >= 0 or a negative errno. */
ssize_t ofd_readv(struct ofd *o, int fd, const struct iovec *iov, int n);
ssize_t ofd_writev(struct ofd *o, int fd, const struct iovec *iov, int n, int rwf);
ssize_t ofd_preadv(struct ofd *o, const struct iovec *iov, int n, int64_t offset);
ssize_t ofd_pwritev(struct ofd *o, const struct iovec *iov, int n, int64_t offset, int rwf);

/* lock.c */
/* Drops the process's record locks of the file, as close(2) of any descriptor does. */
void lock_drop(struct ofd *o);

/* mmap.c */
/* mmap by system call if fd is plain; for callers that must not go through the exported mmap. */
void *door_mmap(void *where, size_t len, int prot, int flags, int fd, off_t offset);

/* stdio.c */
/* Makes stdin, stdout or stderr fit what descriptor 0, 1 or 2 is now. Other descriptors: nothing.
 */
void stdio_follow(int fd);
void stdio_flush_all(void);
/* What wide.c keeps for a stream of ours; NULL for others. */
struct wide_state {
	mbstate_t in, out;
	int orientation; /* as fwide() */
};
struct wide_state *stdio_wide_state(FILE *fp);
/* Around fork, as fd_lock. */
void stdio_lock(void);
void stdio_unlock(void);

/* meta.c */
ssize_t hide_entries(int fd, char *buf, ssize_t n);

/* spawn.c */
/* Called before another program shares our descriptions: commits, gives the positions to the
 * kernel, and lets plain files stay plain that it may write: all, or those that an exec leaves
 * open. Gives the error of the commit. */
enum shared { SHARED_ALL, SHARED_BY_EXEC };
int64_t share_with_process(enum shared shared);
/* Around fork, as fd_lock. */
void spawn_lock(void);
void spawn_unlock(void);

/* init.c */
/* Commits all files and leaves their log sets; they stay usable. Nothing if there are none. */
int64_t commit_all(void);
void leave_process(void);

#endif
