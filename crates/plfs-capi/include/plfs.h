/* plfs.h: the C API of PLFS. Generated from crates/plfs-capi; do not edit.
 *
 * Results. Every function that gives a number gives one >= 0 on success (0 if nothing else is
 * said) and a negative error number on failure (-ENOENT ...); plfs_last_error() then has a sentence
 * that names file, offset and cause. A NULL handle, or a NULL pointer where one is needed, gives
 * -EFAULT. An internal error gives -EIO. No function exits, aborts, prints or changes signal
 * handlers.
 *
 * Units. Offsets, sizes and lengths are bytes, offsets at most 2^63-1.
 *
 * Threads. All functions may be called by many threads at once, also on one handle, except those on
 * a plfs_dir. A handle must not be used during or after its plfs_close. After fork(2) parent and
 * child may both use the handles that were open.
 *
 * Paths. A relative path begins at the current directory. Functions on paths and directories work
 * on any file: a PLFS file gets its logical answers, any other the system's.
 *
 * Consistency (docs/SEMANTICS.md). A process sees its own writes at once. plfs_commit, plfs_sync
 * and plfs_close make them visible to every later acquire, on any node: plfs_open, plfs_refresh,
 * plfs_sync. plfs_sync also makes them durable.
 *
 * Settings come from the environment and are read at the first call (docs/TUNING.md); none is
 * needed. One that is not valid makes every function that needs it fail with -EINVAL. */
#ifndef PLFS_H
#define PLFS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- Open --- */

/**
 * An open PLFS file.
 */
typedef struct plfs_file plfs_file;

/**
 * Opens the file `path`, or with O_CREAT makes it if nothing is there. `flags` and `mode` are
 * those of open(2); O_RDONLY, O_WRONLY, O_RDWR, O_CREAT, O_EXCL, O_TRUNC and O_APPEND have a
 * meaning, others are ignored. `*out` gets the handle, which plfs_close frees.
 *
 * An open is an acquire: the handle sees what every process has committed until now.
 *
 * Errors: those of open(2), and -EMEDIUMTYPE if the path names something that is not a regular
 * file.
 * Cost: three system calls on the name and one on the container; the index is loaded by the first
 * read.
 *
 * Requires:
 * `path` is a C string, `out` a place for a pointer.
 */
int plfs_open(const char *path, int flags, mode_t mode, plfs_file **out);

/* --- Read and write --- */

/**
 * Reads up to `n` bytes at `offset` into `buf`. Gives the bytes read: fewer than `n` only if the
 * file ends there, or the next ones cannot be read, which a call that begins there says; 0 at the
 * end. Holes read as zeros.
 *
 * Sees all writes of this process, and the commits of others as of the last acquire (plfs_open,
 * plfs_sync, plfs_refresh) or read at the end of the file. Errors: -EBADF if the handle is not
 * open for reading, -EINVAL for a negative offset, -EIO if data or index cannot be read or are
 * damaged. The first read loads the index.
 *
 * Requires:
 * `file` is a handle, `buf` has room for `n` bytes.
 */
ssize_t plfs_pread(plfs_file *file, void *buf, size_t n, int64_t offset);

/**
 * Writes `n` bytes from `buf` at `offset`. Gives the bytes written: fewer than `n` only if the
 * storage is full behind them.
 *
 * This process sees the bytes at once; others see them after a commit (plfs_commit, plfs_sync,
 * plfs_close), or when the background commit took them, about a second later. Errors: -EBADF if
 * the handle is not open for writing, -EINVAL for a negative offset, -EFBIG past 2^63-1, -ENOSPC,
 * -EDQUOT, -EIO. If bytes that an earlier call accepted could not be stored, every later call on
 * the file gives that error. Cost: one append to a log, which may be buffered; nothing depends on
 * the offset.
 *
 * Requires:
 * `file` is a handle, `buf` has `n` bytes.
 */
ssize_t plfs_pwrite(plfs_file *file, const void *buf, size_t n, int64_t offset);

/**
 * plfs_pread at the handle's position, which moves by the bytes read. The position belongs to the
 * handle and begins at 0.
 *
 * Requires:
 * As plfs_pread.
 */
ssize_t plfs_read(plfs_file *file, void *buf, size_t n);

/**
 * plfs_pwrite at the handle's position, or with O_APPEND plfs_append, and moves the position
 * behind the bytes written.
 *
 * Requires:
 * As plfs_pwrite.
 */
ssize_t plfs_write(plfs_file *file, const void *buf, size_t n);

/**
 * Moves the handle's position, as lseek(2): `whence` is SEEK_SET, SEEK_CUR, SEEK_END, SEEK_DATA or
 * SEEK_HOLE. Gives the new position in bytes.
 *
 * Errors: -EINVAL for a negative position or another `whence`, -EOVERFLOW past 2^63-1, -ENXIO for
 * SEEK_DATA and SEEK_HOLE at or past the end.
 *
 * Requires:
 * `file` is a handle.
 */
int64_t plfs_lseek(plfs_file *file, int64_t offset, int whence);

/**
 * Writes `n` vectors (at most 1,024) at the end of the file, as one piece: appends of this node's
 * processes never overlap. `*at` gets the offset where the piece begins, unless `at` is NULL.
 * Gives the bytes written; errors as plfs_pwrite.
 *
 * Appends of processes on different nodes can overlap. The end is where the last truncate by
 * anybody left it, on a network file system as of some 10 ms ago.
 *
 * Requires:
 * `file` is a handle, `iov` points to `n` vectors, `at` is NULL or a place for a number.
 */
ssize_t plfs_append(plfs_file *file, const struct iovec *iov, int n, int64_t *at);

/**
 * plfs_pread into `n` vectors, one after the other. -EINVAL if there are more than 1,024.
 *
 * Requires:
 * `file` is a handle, `iov` points to `n` vectors with room.
 */
ssize_t plfs_preadv(plfs_file *file, const struct iovec *iov, int n, int64_t offset);

/**
 * plfs_pwrite from `n` vectors, one after the other. -EINVAL if there are more than 1,024. Up to
 * 1 MiB in all is one write, which is copied together; of more, each vector is a write of its own:
 * others may read the first without the second, and write between the two.
 *
 * Requires:
 * `file` is a handle, `iov` points to `n` vectors.
 */
ssize_t plfs_pwritev(plfs_file *file, const struct iovec *iov, int n, int64_t offset);

/* --- Make visible, make durable, close --- */

/**
 * Makes everything that this process wrote to the file visible to every later acquire, on every
 * node. Not forced to storage: a power loss may take it (plfs_sync).
 *
 * Errors: -EIO, -ENOSPC, -EDQUOT if bytes could not be stored; -ESTALE if somebody declared this
 * node dead (`plfs check --clear-marks`) while it wrote: what it wrote since its last commit is
 * lost. Cost: one append to the index log, after the buffered data.
 *
 * Requires:
 * `file` is a handle.
 */
int plfs_commit(plfs_file *file);

/**
 * Makes everything that this process wrote to the file visible and durable, also through other
 * handles, and the file's name if it is new. It is an acquire as well: later reads see what others
 * committed until now.
 *
 * Errors as plfs_commit. Cost: one fsync of each data log with new bytes and one of the index log;
 * processes of a node that sync at once share them. Other threads read and write meanwhile.
 *
 * Requires:
 * `file` is a handle.
 */
int plfs_sync(plfs_file *file);

/**
 * Lets later reads see what others committed until now (an acquire). Cost: one look at each index
 * log of the file, and a read of what is new.
 *
 * Requires:
 * `file` is a handle.
 */
int plfs_refresh(plfs_file *file);

/**
 * Commits what was written through the handle, and frees it. Later opens by anybody see the bytes;
 * as with close(2) they need not be durable (plfs_sync, or PLFS_SYNC_ON_CLOSE=1).
 *
 * The handle is gone even if an error is returned. An error (-EIO, -ENOSPC, -EDQUOT, -ESTALE) says
 * that bytes written through it may be lost.
 *
 * Requires:
 * `file` is a handle, not used afterwards, or NULL.
 */
int plfs_close(plfs_file *file);

/**
 * plfs_commit for every open file of the process, and gives up its place among the node's writers
 * until the next write; handles stay usable. For the moment before exec or _exit, where nothing
 * would commit: exit(3) and fork(2) do this by themselves, and exit(3) says on stderr if bytes are
 * lost. Gives the first error.
 */
int plfs_commit_all(void);

/**
 * plfs_commit_all, and removes the data of open files whose last name is gone. exit(3) does this
 * by itself; for the moment before _exit.
 */
int plfs_exit(void);

/* --- Size, attributes and locks of an open file --- */

/**
 * Fills `*out` for the file: st_size is the logical size in bytes with this process's writes,
 * st_blocks what the logs take, in units of 512 bytes, st_blksize 1 MiB; mode, owner and times as
 * stat(2) gives them.
 *
 * Requires:
 * `file` is a handle, `out` a place for a struct stat.
 */
int plfs_fstat(plfs_file *file, struct stat *out);

/**
 * Sets the size to `size` bytes: cuts, or extends with a hole. Visible and durable as a write is.
 * Errors: -EBADF if the handle is not open for writing, -EINVAL for a negative size. Cost: one
 * record in the index; the bytes cut take room until a compaction, or until the size is set to 0.
 *
 * Requires:
 * `file` is a handle.
 */
int plfs_ftruncate(plfs_file *file, int64_t size);

/**
 * fallocate(2) for `len` bytes at `offset`. Mode 0 makes the file reach the end of the range, and
 * FALLOC_FL_KEEP_SIZE leaves its size as it is; both reserve room for a plain file, if the storage
 * can, and none in a log; with FALLOC_FL_PUNCH_HOLE or FALLOC_FL_ZERO_RANGE the
 * range becomes a hole. -EOPNOTSUPP for other modes, -EBADF if the handle is not open for writing.
 *
 * Cost: one record in the index, whatever the length. The bytes hidden take room until a
 * compaction.
 *
 * Requires:
 * `file` is a handle.
 */
int plfs_fallocate(plfs_file *file, int mode, int64_t offset, int64_t len);

/**
 * Sets the permission bits, as fchmod(2).
 *
 * Requires:
 * `file` is a handle.
 */
int plfs_fchmod(plfs_file *file, mode_t mode);

/**
 * fchmod(2) or fchown(2) was called for a descriptor that was taken for that of a plain file: a
 * container that the file has got meanwhile lets in whom its mode and owner let in now. A stat of
 * a plain file.
 *
 * Requires:
 * `file` is a handle.
 */
int plfs_door_inode_has_changed(plfs_file *file);

/**
 * Sets owner and group, as fchown(2); -1 leaves one as it is.
 *
 * Requires:
 * `file` is a handle.
 */
int plfs_fchown(plfs_file *file, uid_t uid, gid_t gid);

/**
 * Sets access and modification time, as futimens(2): `times` NULL means now, tv_nsec may be
 * UTIME_NOW or UTIME_OMIT.
 *
 * Requires:
 * `file` is a handle, `times` is NULL or points to two timespecs.
 */
int plfs_futimens(plfs_file *file, const struct timespec *times);

/**
 * Gives a descriptor on which fcntl(2) record locks of this file are to be taken. It belongs to
 * the handle and is closed with it: do not close it. Another handle has another one, and as with
 * every file, where one is opened or closed the process loses its locks of F_SETLK; those of
 * F_OFD_SETLK stay.
 *
 * Taking a lock through it changes nothing about what is visible: call plfs_refresh after a lock
 * is granted, and plfs_commit before it is released.
 *
 * Requires:
 * `file` is a handle.
 */
int plfs_lock_fd(plfs_file *file);

/* --- Files by name --- */

/**
 * Fills `*out` for `path`, following links, as plfs_fstat. Cost for a PLFS file: one read of its
 * summary; while it is being written, of the block headers of its index logs.
 *
 * Requires:
 * `path` is a C string, `out` a place for a struct stat.
 */
int plfs_stat(const char *path, struct stat *out);

/**
 * plfs_stat that does not follow a link at the end of the path.
 *
 * Requires:
 * As plfs_stat.
 */
int plfs_lstat(const char *path, struct stat *out);

/**
 * 0 if this user, by the effective ids, may read (R_OK), write (W_OK) or execute (X_OK) the file,
 * or if it exists (F_OK); else a negative error number as access(2).
 *
 * Requires:
 * `path` is a C string.
 */
int plfs_access(const char *path, int mode);

/**
 * plfs_ftruncate of the file `path`, followed by a commit.
 *
 * Requires:
 * `path` is a C string.
 */
int plfs_truncate(const char *path, int64_t size);

/**
 * Sets the permission bits, as chmod(2).
 *
 * Requires:
 * `path` is a C string.
 */
int plfs_chmod(const char *path, mode_t mode);

/**
 * Sets owner and group, as chown(2); -1 leaves one as it is. Follows links.
 *
 * Requires:
 * `path` is a C string.
 */
int plfs_chown(const char *path, uid_t uid, gid_t gid);

/**
 * Sets access and modification time, as utimensat(2) with AT_FDCWD and no flags; `times` as
 * plfs_futimens.
 *
 * Requires:
 * `path` is a C string, `times` is NULL or points to two timespecs.
 */
int plfs_utimens(const char *path, const struct timespec *times);

/**
 * Removes a name, as unlink(2). The data goes with the last name, when nobody has the file open
 * any more. Cost for a PLFS file: the removal of its logs, if this was the last name.
 *
 * Requires:
 * `path` is a C string.
 */
int plfs_unlink(const char *path);

/**
 * Renames, as rename(2): a file at `to` is replaced atomically.
 *
 * Requires:
 * `from` and `to` are C strings.
 */
int plfs_rename(const char *from, const char *to);

/**
 * Adds the name `to` for `from` (a hard link), as link(2). -EPERM for a file of a pack, which has
 * one name.
 *
 * Requires:
 * `from` and `to` are C strings.
 */
int plfs_link(const char *from, const char *to);

/**
 * Makes a symbolic link at `path` with the text `target`.
 *
 * Requires:
 * `target` and `path` are C strings.
 */
int plfs_symlink(const char *target, const char *path);

/**
 * Puts the text of a symbolic link in `buf`, cut at `n` bytes and without a zero at the end. Gives
 * the bytes put there.
 *
 * Requires:
 * `path` is a C string, `buf` has room for `n` bytes.
 */
ssize_t plfs_readlink(const char *path, char *buf, size_t n);

/**
 * Makes a directory; the umask counts, as for mkdir(2).
 *
 * Requires:
 * `path` is a C string.
 */
int plfs_mkdir(const char *path, mode_t mode);

/**
 * Removes an empty directory.
 *
 * Requires:
 * `path` is a C string.
 */
int plfs_rmdir(const char *path);

/**
 * Fills `*out` with the size and free space of the file system that `path` is on, as statvfs(3).
 * Backends elsewhere are not counted.
 *
 * Requires:
 * `path` is a C string, `out` a place for a struct statvfs.
 */
int plfs_statvfs(const char *path, struct statvfs *out);

/* --- Directories --- */

/**
 * An open directory listing.
 */
typedef struct plfs_dir plfs_dir;

/**
 * Lists the directory `path` as of now, in no order, without `.`, `..` and PLFS's own directory.
 * `*out` gets the listing, which plfs_closedir frees. Memory: all names.
 *
 * Requires:
 * `path` is a C string, `out` a place for a pointer.
 */
int plfs_opendir(const char *path, plfs_dir **out);

/**
 * Gives the next name, or NULL after the last one. Valid until the next call on the listing, which
 * one thread uses at a time.
 *
 * Requires:
 * `dir` is a listing that one thread uses at a time, or NULL.
 */
const char *plfs_readdir(plfs_dir *dir);

/**
 * Makes the directory `path`, which has to be empty, a flat one: the names of files in it, and in
 * directories that are made in it, are spread over all backends of its root, so that creates do
 * not wait for one metadata server. From then on its names are found by these functions and by
 * programs under `plfs run`, not by the system's calls, nor in a mount, which refuses them.
 * -ENOTEMPTY if it is not empty. Durable on return; other processes know it within a second.
 *
 * Requires:
 * `path` is a C string.
 */
int plfs_make_flat(const char *path);

/**
 * Frees a listing.
 *
 * Requires:
 * `dir` is a listing, not used afterwards, or NULL.
 */
int plfs_closedir(plfs_dir *dir);

/* --- Many pieces in one call: strided, or as a list --- */

/**
 * One piece of a list: bytes [offset, offset + length) of the file.
 */
typedef struct {
  /**
   * Where it begins in the file, in bytes.
   */
  int64_t offset;
  /**
   * Its length in bytes.
   */
  size_t length;
} plfs_extent;

/**
 * Writes `count` pieces of `length` bytes each, which lie one after the other in `buf`: piece i
 * goes to `offset + i * stride`. Gives the bytes written, in the order of `buf`; otherwise as
 * plfs_pwrite.
 *
 * `stride` is in bytes, from the start of one piece to the start of the next, and may be negative.
 * -EINVAL if there are several pieces and the magnitude of `stride` is less than `length`, or if a
 * piece would begin before the file; -EFBIG if one would end past 2^63-1; then nothing is written.
 * Cost: that of one plfs_pwrite of `length * count` bytes: one append to a log, and one record in
 * the index, which the next call that continues the pattern makes longer.
 *
 * Requires:
 * `file` is a handle, `buf` has `length * count` bytes.
 */
ssize_t plfs_pwrite_strided(plfs_file *file,
                            const void *buf,
                            size_t length,
                            int64_t stride,
                            size_t count,
                            int64_t offset);

/**
 * Reads `count` pieces of `length` bytes each, one after the other into `buf`: piece i comes from
 * `offset + i * stride`. Gives the bytes read. Stops at the first piece that the file does not
 * fill. An error is returned only if it concerns the first piece; otherwise the call stops before
 * it, and the next call that begins there returns it.
 *
 * Arguments and their errors as plfs_pwrite_strided. Cost: one lookup in the index for each piece;
 * pieces that were written one after the other are fetched together.
 *
 * Requires:
 * `file` is a handle, `buf` has room for `length * count` bytes.
 */
ssize_t plfs_pread_strided(plfs_file *file,
                           void *buf,
                           size_t length,
                           int64_t stride,
                           size_t count,
                           int64_t offset);

/**
 * Writes the `n` pieces of `list`, which lie one after the other in `buf`. Gives the bytes
 * written. Stops at the first piece for which the storage is full; errors as plfs_pread_strided.
 * Cost: a record in the index for each piece that continues no pattern. Pieces at equal distances
 * cost less with plfs_pwrite_strided.
 *
 * Requires:
 * `file` is a handle, `list` points to `n` extents, `buf` has the bytes of all of them.
 */
ssize_t plfs_write_list(plfs_file *file, const plfs_extent *list, size_t n, const void *buf);

/**
 * Reads the `n` pieces of `list`, one after the other into `buf`. Gives the bytes read. Stops at
 * the first piece that the file does not fill; errors as plfs_pread_strided.
 *
 * Requires:
 * `file` is a handle, `list` points to `n` extents, `buf` has room for all of them.
 */
ssize_t plfs_read_list(plfs_file *file, const plfs_extent *list, size_t n, void *buf);

/* --- Where the bytes are, and how to put them in order --- */

/**
 * One visible piece of a file.
 */
typedef struct {
  /**
   * Where it begins in the file, in bytes.
   */
  uint64_t logical;
  /**
   * Its length in bytes.
   */
  uint64_t length;
  /**
   * Where it begins in the data log, in bytes.
   */
  uint64_t physical;
  /**
   * Path of the data log. Valid during the callback.
   */
  const char *data_log;
} plfs_mapping;

/**
 * Calls `visit` for every piece of [offset, offset + length) that was written, in ascending order;
 * what is left out is holes. The walk ends when `visit` gives a value other than 0, and returns
 * that value. It shows the commits of others until now, and the process's own writes.
 *
 * `piece` is valid during the call of `visit`, which may call any function of PLFS. Cost: the
 * loaded index; memory for all pieces of the range.
 *
 * Requires:
 * `file` is a handle; `visit` may be called with `user` on this thread.
 */
int plfs_map(plfs_file *file,
             int64_t offset,
             int64_t length,
             int (*visit)(const plfs_mapping *piece, void *user),
             void *user);

/**
 * Merges the file's index logs into one flat index, which later opens map instead of reading the
 * logs. The last process that closes a file does this by itself where it is cheap. Readers and
 * writers are not disturbed. Not forced to storage: the flat index can be made again.
 *
 * Requires:
 * `path` is a C string.
 */
int plfs_flatten(const char *path);

/**
 * Frees the bytes of a file that were overwritten or cut: copies what it has to new logs, in the
 * order of the file, and removes the old ones. The name, times and mode stay. Readers are not
 * disturbed, and writers may come meanwhile; -EBUSY if another process has the file open for
 * writing already.
 *
 * Takes room for a second copy until it is done. Durable on return; an error or a crash leaves the
 * file as it was.
 *
 * Requires:
 * `path` is a C string.
 */
int plfs_compact(const char *path);

/* --- Errors and version --- */

/**
 * The sentence of this thread's last call that failed; empty if none did. It names the file, the
 * offset and the cause. Valid until the thread's next call that fails; never NULL.
 */
const char *plfs_last_error(void);

/**
 * The version, such as "0.1.0". Static.
 */
const char *plfs_version(void);

#ifdef __cplusplus
}
#endif
#endif
