/* plfs.h: the C API of PLFS. Generated from crates/plfs-capi/src; do not edit.
 *
 * Conventions. Every function gives a value >= 0 on success and a negative error number on failure (-ENOENT ...); plfs_last_error() then has a sentence
 * that names file, offset and cause. Handles are opaque; a NULL handle or a NULL pointer where one is needed gives -EFAULT, never a crash. All functions are
 * thread-safe. Offsets and sizes are 64-bit bytes. No function exits, aborts, prints or changes signal handlers; an internal error gives -EIO.
 * Files behind paths: a PLFS file is handled as such, any other as the system would, unless a function says otherwise.
 *
 * Consistency (docs/SEMANTICS.md): a process sees its own writes at once; plfs_commit, plfs_sync and plfs_close make them visible to every later
 * plfs_open and plfs_refresh; plfs_sync also makes them durable. */
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>


#ifndef PLFS_H
#define PLFS_H

/*
 Length of a superblock file: the st_size that the system gives for every PLFS file.
 */
#define PLFS_SUPER_BYTES 4093

/*
 An open directory listing.
 */
typedef struct plfs_dir plfs_dir;

/*
 An open PLFS file.
 */
typedef struct plfs_file plfs_file;

/*
 One piece of a list: bytes [offset, offset + length) of the file.
 */
typedef struct {
  /*
   Offset in the file.
   */
  int64_t offset;
  /*
   Bytes.
   */
  size_t length;
} plfs_extent;

/*
 One visible piece of a file.
 */
typedef struct {
  /*
   Offset in the file.
   */
  uint64_t logical;
  /*
   Bytes.
   */
  uint64_t length;
  /*
   Offset in the data log.
   */
  uint64_t physical;
  /*
   Path of the data log. Valid during the callback.
   */
  const char *data_log;
} plfs_mapping;

/*
 What a process that writes must know of what others committed before.
 */
typedef struct {
  /*
   Largest stamp of a commit.
   */
  uint64_t stamp;
  /*
   Not 0 if nothing was ever written.
   */
  int is_new;
} plfs_seen;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 The sentence of this thread's last failed call; empty if none failed. Valid until the thread's
 next failing call.
 */
const char *plfs_last_error(void);

/*
 The version, such as "0.1.0". Static.
 */
const char *plfs_version(void);

/*
 Lists a directory as of now, without `.`, `..` and PLFS's own directory. The listing goes to
 `*out`; free it with plfs_closedir.

 # Safety
 `path` is a C string, `out` a place for a pointer.
 */
int plfs_opendir(const char *path, plfs_dir **out);

/*
 The next name, or NULL behind the last one. Valid until the next call on the listing.

 # Safety
 `dir` is a listing that one thread uses at a time, or NULL.
 */
const char *plfs_readdir(plfs_dir *dir);

/*
 Frees a listing.

 # Safety
 `dir` is a listing, not used afterwards, or NULL.
 */
int plfs_closedir(plfs_dir *dir);

/*
 1 if `path`, taken from `dirfd` (AT_FDCWD included) if it is relative, is one of PLFS_MOUNTS or
 lies below one, by its text; else 0. Opens nothing and allocates nothing after the first call.

 # Safety
 `path` is NULL or a C string.
 */
int plfs_door_below_mount(int dirfd, const char *path);

/*
 1 if `path`, followed through links, is a PLFS file, 0 if it is anything else, -ENOENT if
 nothing is there.

 # Safety
 `path` is a C string.
 */
int plfs_door_is_plfs(int dirfd, const char *path);

/*
 Opens `path` as openat(2), except that a regular file that it creates is a PLFS file. Gives a
 descriptor, which is the caller's.

 `*out` is NULL for anything but a PLFS file: the descriptor was opened with exactly `flags`.
 Else `*out` is a handle and the descriptor a placeholder: open for reading on the superblock, it
 holds the number and answers stat, locks and F_GETFL; close both.

 # Safety
 `path` is a C string, `out` a place for a pointer.
 */
int plfs_door_open(int dirfd, const char *path, int flags, mode_t mode, plfs_file **out);

/*
 Makes a handle for `fd` if it is open on a PLFS file: 1 and the handle in `*out`; 0 for any
 other. The access mode is `flags`'s, as is O_APPEND. `fd` stays the caller's.

 # Safety
 `fd` is open, `out` a place for a pointer.
 */
int plfs_door_adopt(int fd, int flags, plfs_file **out);

/*
 Corrects what a stat of the system gave for `path` (NULL or empty: for `dirfd` itself) if that
 is a PLFS file: size, blocks, block size, link count; then 1, else 0. Only regular files of
 PLFS_SUPER_BYTES can be.

 # Safety
 `path` is NULL or a C string, `st` points to a filled struct stat.
 */
int plfs_door_fix_stat(int dirfd, const char *path, int at_flags, struct stat *st);

/*
 unlinkat(2) without flags, for any file; the data of a PLFS file goes with its last name.

 # Safety
 `path` is a C string.
 */
int plfs_door_unlink(int dirfd, const char *path);

/*
 renameat2(2), for any file; the data of a PLFS file that it replaces goes if that was the last
 name.

 # Safety
 The paths are C strings.
 */
int plfs_door_rename(int olddirfd,
                     const char *old,
                     int newdirfd,
                     const char *new_,
                     unsigned int flags);

/*
 truncate(2), for any file.

 # Safety
 `path` is a C string.
 */
int plfs_door_truncate(const char *path, int64_t size);

/*
 fchmodat(2), for any file.

 # Safety
 `path` is a C string.
 */
int plfs_door_chmod(int dirfd, const char *path, mode_t mode, int at_flags);

/*
 fchownat(2), for any file.

 # Safety
 `path` is a C string.
 */
int plfs_door_chown(int dirfd, const char *path, uid_t uid, gid_t gid, int at_flags);

/*
 1 if the descriptor number is one of PLFS's own, which a program must not close or replace.
 Cheap; safe in signal handlers.
 */
int plfs_door_owns_fd(int fd);

/*
 1 for directory entries that programs should not see.

 # Safety
 `name` is a C string.
 */
int plfs_door_hidden(const char *name);

/*
 Opens a PLFS file; O_CREAT makes one if nothing is there. `flags` and `mode` as open(2). The
 handle goes to `*out`; close it with plfs_close.

 -EMEDIUMTYPE if the path names a file that is not PLFS's. Cost: three calls on the name, one on
 the container.

 # Safety
 `path` is a C string, `out` a place for a pointer.
 */
int plfs_open(const char *path, int flags, mode_t mode, plfs_file **out);

/*
 Commits and closes. The handle is gone even if an error is returned; an error means that bytes
 written through it may be lost.

 # Safety
 `file` is a handle, not used afterwards, or NULL.
 */
int plfs_close(plfs_file *file);

/*
 Reads up to `n` bytes at `offset`. 0 at the end of the file.

 # Safety
 `file` is a handle, `buf` has room for `n` bytes.
 */
ssize_t plfs_pread(plfs_file *file, void *buf, size_t n, int64_t offset);

/*
 Writes `n` bytes at `offset`; gives the bytes written, fewer only if the storage is full behind
 them.

 # Safety
 `file` is a handle, `buf` has `n` bytes.
 */
ssize_t plfs_pwrite(plfs_file *file, const void *buf, size_t n, int64_t offset);

/*
 plfs_pread into `n` vectors, at most 1,024.

 # Safety
 `file` is a handle, `iov` points to `n` vectors with room.
 */
ssize_t plfs_preadv(plfs_file *file, const struct iovec *iov, int n, int64_t offset);

/*
 plfs_pwrite from `n` vectors, at most 1,024.

 # Safety
 `file` is a handle, `iov` points to `n` vectors.
 */
ssize_t plfs_pwritev(plfs_file *file, const struct iovec *iov, int n, int64_t offset);

/*
 Writes `count` pieces of `length` bytes, one after the other from `buf`: piece i goes to `offset
 + i * stride`. Gives the bytes written, as plfs_pwrite.

 `stride` is in bytes and may be negative. -EINVAL if there are several pieces and its magnitude
 is less than `length`, or if a piece would begin before the file; -EFBIG if one would end past
 2^63-1; then nothing is written. Costs what one plfs_pwrite of `length * count` bytes costs,
 whatever `count` is: the bytes go to the storage in one piece, and the index gets one record,
 which a call that goes on with the pattern of the one before makes longer.

 # Safety
 `file` is a handle, `buf` has `length * count` bytes.
 */
ssize_t plfs_pwrite_strided(plfs_file *file,
                            const void *buf,
                            size_t length,
                            int64_t stride,
                            size_t count,
                            int64_t offset);

/*
 Reads `count` pieces of `length` bytes, one after the other into `buf`: piece i comes from
 `offset + i * stride`. Gives the bytes read; stops at the first piece that the file does not
 fill, or that cannot be read when others before it were: then the next call that begins there
 gives the error.

 Arguments and errors are plfs_pwrite_strided's. Costs one lookup in the index for each piece;
 pieces that were written one after the other are fetched together.

 # Safety
 `file` is a handle, `buf` has room for `length * count` bytes.
 */
ssize_t plfs_pread_strided(plfs_file *file,
                           void *buf,
                           size_t length,
                           int64_t stride,
                           size_t count,
                           int64_t offset);

/*
 Writes `n` vectors at the end of the file, as one piece, atomically among the processes of this
 node. `*at` (may be NULL) gets the offset.

 # Safety
 `file` is a handle, `iov` points to `n` vectors, `at` is NULL or a place for a number.
 */
ssize_t plfs_append(plfs_file *file, const struct iovec *iov, int n, int64_t *at);

/*
 Reads `n` pieces of the file, one after the other into `buf`. Gives the bytes read; stops at the
 first piece that the file does not fill, or that fails when others before it were read: then the
 next call that begins there gives the error.

 # Safety
 `file` is a handle, `list` points to `n` extents, `buf` has room for all of them.
 */
ssize_t plfs_read_list(plfs_file *file, const plfs_extent *list, size_t n, void *buf);

/*
 Writes `n` pieces of the file, one after the other from `buf`. Gives the bytes written; stops at
 the first piece for which the storage is full, or that fails when others before it were written:
 then the next call that begins there gives the error. Pieces at regular distances cost less with
 plfs_pwrite_strided.

 # Safety
 `file` is a handle, `list` points to `n` extents, `buf` has the bytes of all of them.
 */
ssize_t plfs_write_list(plfs_file *file, const plfs_extent *list, size_t n, const void *buf);

/*
 Reads at the handle's position and moves it.

 # Safety
 As plfs_pread.
 */
ssize_t plfs_read(plfs_file *file, void *buf, size_t n);

/*
 Writes at the handle's position, with O_APPEND at the end of the file, and moves it.

 # Safety
 As plfs_pwrite.
 */
ssize_t plfs_write(plfs_file *file, const void *buf, size_t n);

/*
 Moves the handle's position; SEEK_SET, SEEK_CUR, SEEK_END, SEEK_DATA, SEEK_HOLE. Gives the new
 one.

 # Safety
 `file` is a handle.
 */
int64_t plfs_lseek(plfs_file *file, int64_t offset, int whence);

/*
 Where lseek would go from `position`; changes nothing. For callers that keep positions
 themselves.

 # Safety
 `file` is a handle.
 */
int64_t plfs_seek(plfs_file *file, int64_t position, int64_t offset, int whence);

/*
 Makes everything that this process wrote to the file visible and durable; later reads see what
 others committed until now.

 # Safety
 `file` is a handle.
 */
int plfs_sync(plfs_file *file);

/*
 Makes everything that this process wrote to the file visible to later opens and refreshes. Not
 forced to storage.

 # Safety
 `file` is a handle.
 */
int plfs_commit(plfs_file *file);

/*
 Later reads see what others committed until now.

 # Safety
 `file` is a handle.
 */
int plfs_refresh(plfs_file *file);

/*
 Commits every open file of the process, as closing would; handles stay usable. For the moments
 before exec and _exit; exit(3) and fork(2) do it by themselves.
 */
int plfs_commit_all(void);

/*
 What exit(3) does by itself, for the moment before _exit: commits every open file, and removes
 the data of files that have no name any more.
 */
int plfs_exit(void);

/*
 Sets the size: cuts, or extends with a hole.

 # Safety
 `file` is a handle.
 */
int plfs_ftruncate(plfs_file *file, int64_t size);

/*
 As fallocate(2): mode 0 extends the file (a log reserves no space), FALLOC_FL_KEEP_SIZE does
 nothing, with PUNCH_HOLE or ZERO_RANGE the range becomes a hole, which costs no more than a
 record in the index, however long it is; what it hides takes room until a compaction.
 Other modes: -EOPNOTSUPP.

 # Safety
 `file` is a handle.
 */
int plfs_fallocate(plfs_file *file, int mode, int64_t offset, int64_t len);

/*
 Stat of the file.

 # Safety
 `file` is a handle, `out` a place for a struct stat.
 */
int plfs_fstat(plfs_file *file, struct stat *out);

/*
 Sets permission bits.

 # Safety
 `file` is a handle.
 */
int plfs_fchmod(plfs_file *file, mode_t mode);

/*
 Sets owner and group; -1 leaves one as it is.

 # Safety
 `file` is a handle.
 */
int plfs_fchown(plfs_file *file, uid_t uid, gid_t gid);

/*
 Sets access and modification time, as futimens(2): NULL means now, tv_nsec may be UTIME_NOW or
 UTIME_OMIT.

 # Safety
 `file` is a handle, `times` is NULL or points to two timespecs.
 */
int plfs_futimens(plfs_file *file, const struct timespec *times);

/*
 A descriptor on which fcntl(2) record locks of this file are to be taken. It belongs to the
 handle and is closed with it.

 The library does not hear of the locks: call plfs_refresh after a lock is granted and
 plfs_commit before an unlock, else others' writes are not seen under the lock.

 # Safety
 `file` is a handle.
 */
int plfs_lock_fd(plfs_file *file);

/*
 Calls `visit` for every piece of [offset, offset + length) that was written, ascending; what is
 left out is holes. A value other than 0 from `visit` ends the walk and is returned.

 # Safety
 `file` is a handle; `visit` may be called with `user` on this thread.
 */
int plfs_map(plfs_file *file,
             int64_t offset,
             int64_t length,
             int (*visit)(const plfs_mapping *piece, void *user),
             void *user);

/*
 Frees what plfs_index_part, plfs_index_own and plfs_index_merge gave. NULL: nothing.

 # Safety
 `bytes` came from one of them and is not used afterwards.
 */
void plfs_free(void *bytes);

/*
 For processes that could load an index together: how many bytes of index logs each would have to
 read at its first read. 0 if a flat index has everything.

 # Safety
 `file` is a handle.
 */
int64_t plfs_index_pending(plfs_file *file);

/*
 For processes that load an index together: the share `part` of `parts` (counted from 0), every
 parts-th index log, as bytes that plfs_index_merge takes. All shares merged are everything that
 was committed before the first was asked for. Part 0 has what the flat index has; the others may
 be nearly empty. Gives the length.

 # Safety
 `file` is a handle, `out` a place for a pointer; free it with plfs_free.
 */
ssize_t plfs_index_part(plfs_file *file, uint32_t part, uint32_t parts, void **out);

/*
 For processes that close a file together: what this node's processes committed and no flat index
 has yet, as bytes that plfs_index_merge takes; if `with_base` is not 0, also what the flat index
 has. One process of each node asks, one of all with the base. Gives the length.

 # Safety
 As plfs_index_part.
 */
ssize_t plfs_index_own(plfs_file *file, int with_base, void **out);

/*
 Merges `n` parts of the index of `file`; regular patterns stay patterns. Gives the length. -EIO
 if a part is damaged or of another file.

 # Safety
 `parts` and `lengths` have `n` elements, part i has lengths[i] bytes; `file` and `out` as for
 plfs_index_part.
 */
ssize_t plfs_index_merge(plfs_file *file,
                         const void *const *parts,
                         const size_t *lengths,
                         uint32_t n,
                         void **out);

/*
 Makes the handle read by a merged index that lies in the file `fd`, from its start to its end:
 of a node's processes one writes it (to a memfd, or below /dev/shm) and all map it. The caller
 closes `fd`; the file must not change. Refreshing later reads what was committed since.

 # Safety
 `file` is a handle, `fd` is open for reading.
 */
int plfs_index_use(plfs_file *file, int fd);

/*
 Puts a merged index in the container, where every later reader finds it. Atomic, and never
 wrong: what is committed later is read from the logs. Not forced to storage.

 # Safety
 `file` is a handle open for writing, `data` has `length` bytes.
 */
int plfs_index_store(plfs_file *file, const void *data, size_t length);

/*
 For processes that open a file together to write: one of them looks, and tells the others, which
 would each look at all index logs otherwise.

 # Safety
 `file` is a handle, `out` a place for a plfs_seen.
 */
int plfs_seen_get(plfs_file *file, plfs_seen *out);

/*
 What this process writes is ordered behind what another has seen. Before the first write through
 any handle of the file; later it has no effect.

 # Safety
 `file` is a handle, `seen` points to a plfs_seen.
 */
int plfs_seen_set(plfs_file *file, const plfs_seen *seen);

/*
 Stat; follows links. The size of a PLFS file comes from its summary, or from its index logs'
 block headers if it is being written.

 # Safety
 `path` is a C string, `out` a place for a struct stat.
 */
int plfs_stat(const char *path, struct stat *out);

/*
 Stat of a link itself.

 # Safety
 As plfs_stat.
 */
int plfs_lstat(const char *path, struct stat *out);

/*
 Sets the size of a file.

 # Safety
 `path` is a C string.
 */
int plfs_truncate(const char *path, int64_t size);

/*
 Removes a name. The data goes with the last name, when nobody has the file open.

 # Safety
 `path` is a C string.
 */
int plfs_unlink(const char *path);

/*
 Renames, replacing atomically.

 # Safety
 `from` and `to` are C strings.
 */
int plfs_rename(const char *from, const char *to);

/*
 Adds a name (hard link).

 # Safety
 `from` and `to` are C strings.
 */
int plfs_link(const char *from, const char *to);

/*
 Makes a symbolic link at `path` with text `target`.

 # Safety
 `target` and `path` are C strings.
 */
int plfs_symlink(const char *target, const char *path);

/*
 The text of a symbolic link, cut at `n` bytes, not terminated. Gives its length.

 # Safety
 `path` is a C string, `buf` has room for `n` bytes.
 */
ssize_t plfs_readlink(const char *path, char *buf, size_t n);

/*
 Makes a directory; `mode` is cut by the umask.

 # Safety
 `path` is a C string.
 */
int plfs_mkdir(const char *path, mode_t mode);

/*
 Removes an empty directory.

 # Safety
 `path` is a C string.
 */
int plfs_rmdir(const char *path);

/*
 Sets permission bits.

 # Safety
 `path` is a C string.
 */
int plfs_chmod(const char *path, mode_t mode);

/*
 Sets owner and group; -1 leaves one as it is. Follows links.

 # Safety
 `path` is a C string.
 */
int plfs_chown(const char *path, uid_t uid, gid_t gid);

/*
 Sets access and modification time, as utimensat(2) with AT_FDCWD and no flags.

 # Safety
 `path` is a C string, `times` is NULL or points to two timespecs.
 */
int plfs_utimens(const char *path, const struct timespec *times);

/*
 Whether this user may read (R_OK), write (W_OK), execute (X_OK) the file, or whether it exists
 (F_OK). With the effective ids.

 # Safety
 `path` is a C string.
 */
int plfs_access(const char *path, int mode);

/*
 Room on the file system of the root.

 # Safety
 `path` is a C string, `out` a place for a struct statvfs.
 */
int plfs_statvfs(const char *path, struct statvfs *out);

/*
 Merges the file's index logs into one flat index that readers map. Readers and writers are not
 disturbed.

 # Safety
 `path` is a C string.
 */
int plfs_flatten(const char *path);

/*
 Frees the bytes of a file that were overwritten or cut: copies what it has to new logs, in
 order, and removes the old ones. The name, times and mode stay. Readers are not disturbed,
 and writers may come meanwhile; -EBUSY if another process has the file open for writing already.
 Until it is done it takes room for a second copy. Durable on return; whatever ends it
 before leaves the file as it was.

 # Safety
 `path` is a C string.
 */
int plfs_compact(const char *path);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* PLFS_H */
