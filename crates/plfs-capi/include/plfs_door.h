/* plfs_door.h: what preload/, mpi/ and netcdf/ use of libplfs beyond plfs.h. Generated
 * from crates/plfs-capi; do not edit.
 *
 * Private: it is not installed, and may change with every version. libplfs and its doors are built
 * and installed together. The conventions are those of plfs.h. */
#ifndef PLFS_DOOR_H
#define PLFS_DOOR_H

#include <plfs.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- The start of a process (preload/) --- */

/**
 * The process begins, with the environment `envp`: what the program takes away of that counts for
 * settings as it was. `later`, if not NULL, is called when libplfs's constructor runs: after the
 * program's `.preinit_array`, and before any constructor of its own. The first call counts.
 *
 * Requires:
 * `envp` is NULL, or a list of C strings that ends with NULL.
 */
void plfs_door_start(const char *const *envp, void (*later)(void));

/* --- Which paths lie in managed directories (preload/, mpi/) --- */

/**
 * What [`plfs_door_opens_managed`] says of a path beside which new files are known to be plain.
 */
#define PLFS_OPENS_PLAIN 2

/**
 * What it says where they are known to be containers.
 */
#define PLFS_OPENS_SHARED 3

/**
 * 1 if `path`, taken from `dirfd` (AT_FDCWD included) if it is relative, is a managed directory or
 * lies below one (PLFS_MOUNTS), by its text; else 0. After the first call it opens nothing, and
 * uses less than 700 bytes of stack.
 *
 * Requires:
 * `path` is NULL or a C string.
 */
int plfs_door_below_managed(int dirfd, const char *path);

/**
 * [`plfs_door_below_managed`] of the name of an open file; 1 as well if it lies where flat
 * directories keep it.
 */
int plfs_door_fd_below_managed(int fd);

/**
 * [`plfs_door_below_managed`] for an open. Of a relative path a yes may be as old as a second, for
 * who moved without [`plfs_door_moved`]. PLFS_OPENS_PLAIN and PLFS_OPENS_SHARED say besides that
 * packs need not be asked before the kernel: this process has found none yet, and what new files
 * beside the path are it found out half a second ago at most.
 *
 * Requires:
 * `path` is NULL or a C string.
 */
int plfs_door_opens_managed(int dirfd, const char *path);

/**
 * The working directory may have been changed, or a directory renamed.
 */
int plfs_door_moved(void);

/* --- The managed directory that nobody has named (preload/) --- */

/**
 * The path is that of the directory itself, and the call is about that.
 */
#define PLFS_NAMES_DIR 1

/**
 * The call makes something at the path, which may lie below the directory.
 */
#define PLFS_MAKES_BELOW 2

/**
 * Before a call on `path`, taken from `dirfd`, by which a program may want the directory that
 * `plfs run` takes if nobody names one: makes that, if it is not there. `how` is PLFS_NAMES_DIR,
 * PLFS_MAKES_BELOW or both. 1 if no further call needs to ask, else 0.
 *
 * Requires:
 * `path` is a C string.
 */
int plfs_door_before(int dirfd, const char *path, int how);

/* --- Opens of any file, where PLFS files are recognised (preload/, mpi/) --- */

/**
 * [`plfs_door_open`]: nobody has opened the path.
 */
#define PLFS_NOT_OPENED -5001

/**
 * [`plfs_door_open`]: nobody has opened the path, and nothing may be there. Said back: something
 * is, or a new file is no plain one; so open it first.
 */
#define PLFS_PERHAPS_NEW -5004

/**
 * What a first open of a path gave.
 */
typedef struct {
  /**
   * A descriptor, a negative errno, or a word of [`plfs_door_open`].
   */
  int fd;
  /**
   * What fstat(2) has said of the descriptor since; or NULL.
   */
  const struct stat *stat;
  /**
   * Descriptors that the files need that are open; 0 if all are plain. They have to be left
   * behind the one that is given, and if that is a placeholder, at least PLFS_LOG_DESCRIPTORS
   * and what its file needs.
   */
  unsigned int spare;
} plfs_first_open;

/**
 * 1 if `path`, followed through links, is a PLFS file, 0 if it is anything else, -ENOENT if
 * nothing is there.
 *
 * Requires:
 * `path` is a C string.
 */
int plfs_door_is_plfs(int dirfd, const char *path);

/**
 * Opens `path` as openat(2), except that a regular file that it creates is a PLFS file, or will be
 * one when others write it. Gives a descriptor, which is the caller's.
 *
 * `*out` is NULL for what is no business of PLFS: the descriptor was opened with exactly `flags`.
 * Else `*out` is a handle. On a plain file ([`plfs_door_is_plain`]) it uses the descriptor, which
 * was opened with `flags` too: close the handle first, and if the number goes while the handle
 * stays, say so before ([`plfs_door_own`]). On a file with a container the descriptor is a
 * placeholder: open for reading on the file's inode, it holds the number and answers stat, locks
 * and F_GETFL; close both.
 *
 * `first.fd` is what openat(2) gave the caller for the same path and flags, but without O_CREAT,
 * O_EXCL and O_TRUNC: a descriptor, which is taken over, or a negative errno; or PLFS_NOT_OPENED.
 * The open of a FIFO waits for the other end, and what waits should not be here. With
 * PLFS_PERHAPS_NEW and O_CREAT a new plain file costs no such open, an existing one two.
 *
 * -EMFILE if too few descriptors would be left: then nothing is made or cut.
 *
 * Requires:
 * `path` is a C string, `first` points to what it says, with a descriptor that is nobody else's;
 * `out` is a place for a pointer.
 */
int plfs_door_open(int dirfd,
                   const char *path,
                   int flags,
                   mode_t mode,
                   const plfs_first_open *first,
                   plfs_file **out);

/**
 * [`plfs_door_open`] for a file that openat(2) has found by a path outside of all managed
 * directories, with exactly `flags`, but for O_CREAT, O_EXCL and O_TRUNC: a symbolic link may have
 * led into one. It is opened as by its own path.
 *
 * PLFS_NOT_MANAGED: it lies on no file system of a managed directory, and `first.fd`, which needs
 * its stat, stays the caller's; cut, if that was to be. A readlink of /proc tells the other files.
 *
 * Requires:
 * As [`plfs_door_open`].
 */
int plfs_door_open_linked(int flags, const plfs_first_open *first, plfs_file **out);

/**
 * plfs_open by one of several processes that will write the file: it gets a container at once, if
 * it can have one.
 *
 * Requires:
 * As plfs_open.
 */
int plfs_door_open_shared(const char *path, int flags, mode_t mode, plfs_file **out);

/**
 * Makes a handle for `fd` if it is open on a PLFS file: 1 and the handle in `*out`; 0 for any
 * other. The access mode is `flags`'s, as is O_APPEND. `fd` stays the caller's.
 *
 * Requires:
 * `fd` is open, `out` a place for a pointer.
 */
int plfs_door_adopt(int fd, int flags, plfs_file **out);

/**
 * 1 if the descriptor number is one of PLFS's own, which a program must not close or replace.
 * Cheap; safe in signal handlers.
 */
int plfs_door_owns_fd(int fd);

/**
 * For who is to dup2 to a number of the program's choice, which may be free: waits until libplfs
 * has no descriptors at such numbers for a moment, and lets it have none until
 * [`plfs_door_release_numbers`]. Handlers of signals must not run meanwhile. 0: some are still
 * there after ten seconds, and nothing is to be released.
 */
int plfs_door_hold_numbers(void);

/**
 * Ends what [`plfs_door_hold_numbers`] began.
 */
void plfs_door_release_numbers(void);

/**
 * plfs_lock_fd for locks of F_SETLK: all handles of a file have the same one, so none is lost.
 * Without `open` only if there is one, else -ENOLCK: then the process has no locks on the file.
 *
 * Requires:
 * `file` is a handle.
 */
int plfs_door_process_lock_fd(plfs_file *file, int open);

/**
 * What plfs_lock_fd gave for this handle, if it was called, else -ENOLCK.
 *
 * Requires:
 * `file` is a handle.
 */
int plfs_door_kept_lock_fd(plfs_file *file);

/**
 * `fd` was left open by the program before exec, and may be what plfs_lock_fd, or with
 * `of_process` plfs_door_process_lock_fd, gave it for this file. 1: it is, and belongs to the
 * handle from now on. 0: it is another file.
 *
 * Requires:
 * `file` is a handle, and nobody uses `fd` for anything else.
 */
int plfs_door_adopt_lock_fd(plfs_file *file, int fd, int of_process);

/**
 * What has the locks of flock(2) of a handle on a container, if the program's descriptor was open
 * for writing on the plain file before, and a placeholder has come in its place: what
 * plfs_door_own gave, on the old description. -ENOLCK: there is none.
 *
 * Requires:
 * `file` is a handle.
 */
int plfs_door_flock_fd(plfs_file *file);

/**
 * `fd` was left open by the program before exec, as its plfs_door_flock_fd. 1: it belongs to the
 * handle from now on. 0: that has one.
 *
 * Requires:
 * `file` is a handle, and nobody uses `fd` for anything else.
 */
int plfs_door_adopt_flock_fd(plfs_file *file, int fd);

/**
 * 1 if the file that `path` leads to, a link of an open descriptor below /proc, is plain and stays
 * so for ever. Opens nothing.
 *
 * Requires:
 * `path` is a C string.
 */
int plfs_door_stays_plain(const char *path);

/**
 * exit(3) calls `leave` in place of plfs_exit, which `leave` is to call: the caller chooses the
 * stack, and sees to it that no handler of a signal runs meanwhile.
 */
void plfs_door_at_exit(void (*leave)(void));

/**
 * plfs_exit for a signal that ends the process: all calls that have begun end before, and all
 * others wait for ever. So nothing is written that is lost, and the caller has to end the process.
 * -EBUSY if one that has begun does not end in 5 s.
 */
int plfs_door_end(void);

/**
 * The process is about to start a program, which may remove the last name of a file that is open
 * here: that one keeps its data.
 */
int plfs_door_hold_all(void);

/**
 * The program has changed RLIMIT_FSIZE.
 */
void plfs_door_size_limit_changed(void);

/**
 * Where plfs_lseek would move a position that is `position`; changes nothing.
 *
 * Requires:
 * `file` is a handle.
 */
int64_t plfs_door_seek(plfs_file *file, int64_t position, int64_t offset, int whence);

/* --- Plain files that are used through the kernel (preload/, mpi/) --- */

/**
 * Bytes after which who writes in place looks.
 */
#define PLFS_LOOK_BYTES (1 << 20)

/**
 * A plain file that the preload library has made, and writes in place without a handle: by the
 * rules of one (docs/decisions/0013), of which this is what has to be known.
 */
typedef struct {
  /**
   * Device and inode.
   */
  uint64_t dev;
  /**
   * The same.
   */
  uint64_t ino;
  /**
   * Not 0 there: the next call must look, as somebody has said that there is a container. NULL:
   * the process is not in the node's table for it, and a handle is to be made.
   */
  const uint64_t *flag;
  /**
   * Which entry of the table.
   */
  size_t slot;
  /**
   * The same.
   */
  uint64_t key;
  /**
   * The same.
   */
  uint64_t me;
  /**
   * What was written since the last look: from where on.
   */
  uint64_t start;
  /**
   * How many bytes.
   */
  uint64_t bytes;
  /**
   * From when on: nanoseconds since 1970, asked for before the first of them was written.
   */
  uint64_t since_ns;
  /**
   * Not 0: something was written, be it before the last look.
   */
  int is_written;
  /**
   * Not 0: the next call must look.
   */
  int must_look;
} plfs_in_place;

/**
 * A handle on a plain file that only reads, for a descriptor that was opened so: it is lent `fd`,
 * which stays open as long as the handle, and looks at its first call whether the file has a
 * container.
 *
 * Requires:
 * `fd` is open, `out` a place for a pointer.
 */
int plfs_door_read_in_place(int fd, plfs_file **out);

/**
 * Enters the process in the node's table as the writer of a plain file that it has made, of which
 * `at` has device and inode, and nothing else yet. 0: it needs a handle, as the first one of the
 * process. Some atomic operations, behind no gate.
 *
 * Requires:
 * `at` points to a plfs_in_place.
 */
int plfs_door_enter(plfs_in_place *at);

/**
 * The file is closed, and there is nothing to be handed over. Takes no lock.
 *
 * Requires:
 * `at` points to a plfs_in_place.
 */
void plfs_door_leave(const plfs_in_place *at);

/**
 * A handle on the file of `at`, which is open as `fd` with these flags: it is lent `fd`, as by
 * plfs_door_open, and goes on from what was written. `at` is of no use any more.
 *
 * Requires:
 * `fd` is open, `at` points to a plfs_in_place, `out` is a place for a pointer.
 */
int plfs_door_write_in_place(int fd, int flags, const plfs_in_place *at, plfs_file **out);

/**
 * 1 if this machine is the only client of the file system `dev`, on which `fd` is open.
 *
 * Requires:
 * `fd` is open.
 */
int plfs_door_is_local(int fd, uint64_t dev);

/**
 * 1 if each open of a path on the file system of `fd` asks the servers for attributes and leaves
 * them with the kernel, where statx(2) with AT_STATX_DONT_SYNC finds them right after it.
 *
 * Requires:
 * `fd` is open.
 */
int plfs_door_open_asks(int fd);

/**
 * 1 once this process has used a container that was a plain file: its descriptors on such files
 * may be on one. Cheap.
 */
int plfs_door_uses_bases(void);

/**
 * 1 if this process has a file open whose container has the inode `ino` of the device `dev` as its
 * base. Only the paths of descriptors (/proc/self/fd/N, /dev/stdin) lead there. Cheap.
 */
int plfs_door_has_base(uint64_t dev, uint64_t ino);

/**
 * 1 if this process has had a plain file open on the device `dev`: somebody may have made a
 * container of it since. Cheap.
 */
int plfs_door_knows_device(uint64_t dev);

/**
 * 1 if the file of a handle is plain, as far as this process knows: what is in the descriptor is
 * the file. It can become one with a container at any call but never the other way.
 *
 * Requires:
 * `file` is a handle.
 */
int plfs_door_is_plain(plfs_file *file);

/**
 * 1 if the last name of the file of a handle is gone, and it has a container that was a plain
 * file: a descriptor on what was that hinders the removal, so it goes before the handle does.
 * Looks whether the file is plain still.
 *
 * Requires:
 * `file` is a handle.
 */
int plfs_door_is_base_without_name(plfs_file *file);

/**
 * Decides that a plain file stays plain for ever, because it is written from now on in a way that
 * PLFS does not see; `why` is for people. 1 if it is plain then, 0 if it has a container.
 *
 * Requires:
 * `file` is a handle, `why` a C string.
 */
int plfs_door_pin(plfs_file *file, const char *why);

/**
 * A handle that was opened on a plain file gets a descriptor of its own, a copy of `fd`: from now
 * on the number that it was opened with may go before the handle does. Waits for calls that use
 * that. A negative `fd`: it gets none, and what needs one fails with EBADF. 1: it has got one, 0:
 * it needs none, or has one. Error: -EMFILE, and then nothing has changed.
 *
 * Requires:
 * `file` is a handle that uses `fd`, which is open or negative.
 */
int plfs_door_own(plfs_file *file, int fd);

/**
 * Where [`plfs_door_own`] finds no descriptor: the handle goes on with `fd`, as if it had been
 * opened with that number. `keeps` is not 0: the number is PLFS's from now on, and closed with the
 * handle. Waits for calls that use the other number. 1: it does, 0: it needs none, or has one of
 * its own.
 *
 * Requires:
 * `file` is a handle, `fd` is open on its file by the same open. Unless it keeps the number that
 * stays open until plfs_door_own or this is called again; if it does, the program uses it no more.
 */
int plfs_door_go_on(plfs_file *file, int fd, int keeps);

/**
 * Takes back what [`plfs_door_own`] gave a handle on a file that is plain still: it uses `fd` as
 * if it had been opened with that. For who is about to take a lock of the process on the file,
 * which a close of any descriptor, by exec too, would drop.
 *
 * Requires:
 * `file` is a handle, `fd` is open on its file by the same open, and stays so until plfs_door_own.
 */
int plfs_door_lend(plfs_file *file, int fd);

/* --- Calls on names of any file, where PLFS files are recognised (preload/, mpi/) --- */

/**
 * What [`plfs_door_unlink_managed`] says of other paths: no negative errno.
 */
#define PLFS_NOT_MANAGED -5000

/**
 * What [`plfs_door_hidden`] says of a directory's `.plfs`, and of its layout.
 */
#define PLFS_HIDDEN_STORE 1

/**
 * See [`PLFS_HIDDEN_STORE`].
 */
#define PLFS_HIDDEN_LAYOUT 2

/**
 * What [`plfs_door_hidden`] says of the name of a directory's pack, and of what lies beside it for
 * a moment.
 */
#define PLFS_HIDDEN_PACK 3

/**
 * See [`PLFS_HIDDEN_PACK`].
 */
#define PLFS_HIDDEN_BESIDE_PACK 4

/**
 * What [`plfs_door_hidden`] says of the map of a flat directory.
 */
#define PLFS_HIDDEN_MAP 5

/**
 * Length of a superblock file: the st_size that the system gives for every PLFS file.
 */
#define PLFS_SUPER_BYTES 4093

/**
 * The first eight bytes of a superblock file, `PLFS con`, as a little-endian number.
 */
#define PLFS_SUPER_BEGINS 7957688057074175056

/**
 * Corrects what a stat of the system gave for `path` (NULL or empty: for `dirfd` itself) if that
 * is a PLFS file: size, blocks, block size, link count; then 1, else 0. Only regular files of
 * PLFS_SUPER_BYTES can be.
 *
 * Requires:
 * `path` is NULL or a C string, `st` points to a filled struct stat.
 */
int plfs_door_fix_stat(int dirfd, const char *path, int at_flags, struct stat *st);

/**
 * unlinkat(2) without flags, for any file; the data of a PLFS file goes with its last name.
 *
 * Requires:
 * `path` is a C string.
 */
int plfs_door_unlink(int dirfd, const char *path);

/**
 * [`plfs_door_unlink`] of a path that [lies below](plfs_door_below_managed) a managed directory;
 * PLFS_NOT_MANAGED for others, which are not touched.
 *
 * Requires:
 * `path` is NULL or a C string.
 */
int plfs_door_unlink_managed(int dirfd, const char *path);

/**
 * renameat2(2), for any file; the data of a PLFS file that it replaces goes if that was the last
 * name.
 *
 * Requires:
 * The paths are C strings.
 */
int plfs_door_rename(int olddirfd,
                     const char *old,
                     int newdirfd,
                     const char *new_,
                     unsigned int flags);

/**
 * A file has come to `path`, in a managed directory, from outside: by rename(2) or link(2). Who
 * opened it there, or opens it by the name that it keeps there, is not known; if there may be such
 * a one the file stays plain. Not those that lie below a directory that comes.
 *
 * A look at each descriptor of the process, an open and a lease.
 *
 * Requires:
 * `path` is a C string.
 */
int plfs_door_came_in(int dirfd, const char *path);

/**
 * The file at `path`, in a managed directory, is about to get a name outside: by link(2), or with
 * `moves` by rename(2), after which it has no other. Who opens it by that is not known. So it
 * stays plain, or is a container before it has the name: one that somebody is making at this
 * moment would get what is written by descriptors from before, and who opened the new name
 * meanwhile would have what is in place. A file that moves and that nobody has open is left alone.
 *
 * An open, a look at each descriptor of the process, and a call on the attribute or a lease.
 *
 * Requires:
 * `path` is a C string.
 */
int plfs_door_goes_out(int dirfd, const char *path, int at_flags, int moves);

/**
 * truncate(2), for any file.
 *
 * Requires:
 * `path` is a C string.
 */
int plfs_door_truncate(const char *path, int64_t size);

/**
 * fchmodat(2), for any file.
 *
 * Requires:
 * `path` is a C string.
 */
int plfs_door_chmod(int dirfd, const char *path, mode_t mode, int at_flags);

/**
 * fchownat(2), for any file.
 *
 * Requires:
 * `path` is a C string.
 */
int plfs_door_chown(int dirfd, const char *path, uid_t uid, gid_t gid, int at_flags);

/**
 * Which of PLFS's own a directory entry is, that programs should not see; 0: it is none.
 *
 * Requires:
 * `name` is a C string.
 */
int plfs_door_hidden(const char *name);

/* --- Files of packs, which have no inode of their own (preload/) --- */

/**
 * What calls on names say of those that are in no pack: no negative errno.
 */
#define PLFS_NOT_PACKED -5002

/**
 * What plfs_door_open says of a name of a pack that is to be made: to be opened there.
 */
#define PLFS_IS_PACKED -5003

/**
 * Length of a placeholder in memory; no arena of the preload library is as long.
 */
#define PLFS_STAND_IN_BYTES (192 << 10)

/**
 * The first eight bytes of one, `PLFSPACK`, as a little-endian number.
 */
#define PLFS_STAND_IN_BEGINS 5423250189534514256

/**
 * Set in the kernel's position of a placeholder that went in a message. The access mode of the
 * file (O_ACCMODE) is above PLFS_PASSED_ACCESS, the number of the note that says which file of the
 * pack it is above PLFS_PASSED_NOTE, and the position itself below that.
 */
#define PLFS_PASSED 4611686018427387904

/**
 * See [`PLFS_PASSED`].
 */
#define PLFS_PASSED_ACCESS 60

/**
 * See [`PLFS_PASSED`]. Files of packs that go in messages end at 16 TiB.
 */
#define PLFS_PASSED_NOTE 44

/**
 * How a file of a pack is opened.
 */
typedef struct {
  /**
   * As of openat(2).
   */
  int flags;
  /**
   * As of openat(2), of a new file.
   */
  mode_t mode;
  /**
   * Not 0 where the file system has nothing at the path: then links that lead to nothing are
   * followed, too.
   */
  int follow;
  /**
   * Descriptors that the files need that are open; 0 if all are plain. They have to be left, or
   * PLFS_LOG_DESCRIPTORS if they are fewer.
   */
  unsigned int spare;
} plfs_packed_how;

/**
 * Which file of its pack a handle is on, for a program that inherits the placeholder.
 */
typedef struct {
  /**
   * Device of the pack's name, on which the placeholder is open.
   */
  uint64_t dev;
  /**
   * Its inode.
   */
  uint64_t ino;
  /**
   * The file's id: the place of its creation.
   */
  uint64_t stamp;
  /**
   * The same.
   */
  uint32_t set;
  /**
   * Bytes of `name`; 0: the handle is on no file of a pack.
   */
  uint32_t length;
  /**
   * A name that it had; not ended by a zero.
   */
  uint8_t name[256];
} plfs_packed;

/**
 * 1 once the process has found a pack. Cheap. As long as it has not, a name that the file system
 * has is not looked for in packs.
 */
int plfs_door_knows_packs(void);

/**
 * The umask is `mask` from now on; -1: as it is, and later calls tell each change.
 */
void plfs_door_umask(int mask);

/**
 * The directory of /proc that has what this process has open, as `fd/3`, also once main has left
 * by pthread_exit: `/proc/thread-self`, or what there is before Linux 3.17.
 */
const char *plfs_door_own_proc(void);

/**
 * openat(2) of a file of a pack, or a new one: gives the placeholder, and the handle in `*out`.
 * PLFS_NOT_PACKED: it is none, and goes to none; PLFS_IS_FLAT: it is in a flat directory.
 * -EMFILE if too few descriptors would be left: then nothing is made or cut.
 *
 * Requires:
 * `path` is a C string, `how` points to what it says, `out` is a place for a pointer.
 */
int plfs_door_packed_open(int dirfd, const char *path, const plfs_packed_how *how, plfs_file **out);

/**
 * Which file of its pack a handle is on: 1, and it is in `*out`; 0: it is on no file of a pack.
 *
 * Requires:
 * `file` is a handle, `out` a place for a plfs_packed.
 */
int plfs_door_packed(plfs_file *file, plfs_packed *out);

/**
 * A handle for an inherited placeholder: 1 and the handle in `*out`. -ESTALE or -ENOENT if the
 * pack does not have the file any more.
 *
 * Requires:
 * `fd` is open on the name of a pack, `which` points to what [`plfs_door_packed`] gave for it in
 * another process, `out` is a place for a pointer.
 */
int plfs_door_packed_adopt(int fd, int flags, const plfs_packed *which, plfs_file **out);

/**
 * Notes for other processes which file the placeholder `fd` is open on, that has these `flags`.
 * Gives what the kernel's position of `fd` is to be, whose own part is `position`.
 *
 * Errors: -EOPNOTSUPP if there is no place for that: another process made the placeholder, or very
 * many of the pack were passed.
 *
 * Requires:
 * `file` is a handle.
 */
int64_t plfs_door_packed_pass(plfs_file *file, int fd, int flags, int64_t position);

/**
 * The directory of the pack that has the file of a handle, in `out`, which has room for PATH_MAX
 * bytes.
 *
 * Requires:
 * `file` is a handle on a file of a pack, `out` has room for PATH_MAX bytes.
 */
int plfs_door_packed_dir(plfs_file *file, char *out);

/**
 * open(2) of the path of a descriptor (/dev/stdin, /proc/self/fd/N) that has the placeholder `fd`
 * and the handle `file`: a placeholder and a handle of their own. `spare` as in plfs_packed_how.
 *
 * Requires:
 * `file` is a handle on a file of a pack, `fd` its placeholder, `out` a place for a pointer.
 */
int plfs_door_packed_reopen(plfs_file *file,
                            int fd,
                            int flags,
                            unsigned int spare,
                            plfs_file **out);

/**
 * fstatat(2) of a name of a pack: 0, or PLFS_NOT_PACKED. Links are followed as `at_flags` says.
 *
 * Requires:
 * `path` is a C string, `st` a place for a struct stat.
 */
int plfs_door_packed_stat(int dirfd, const char *path, int at_flags, struct stat *st);

/**
 * faccessat(2) of a name of a pack, by its mode: 0, or PLFS_NOT_PACKED.
 *
 * Requires:
 * `path` is a C string.
 */
int plfs_door_packed_access(int dirfd, const char *path, int mode, int at_flags);

/**
 * utimensat(2) of a name of a pack: 0, or PLFS_NOT_PACKED.
 *
 * Requires:
 * `path` is a C string, `times` is NULL or points to two timespecs.
 */
int plfs_door_packed_utimens(int dirfd,
                             const char *path,
                             const struct timespec *times,
                             int at_flags);

/**
 * 0 if `path` is a name of a pack, or leads to one as `at_flags` says; else PLFS_NOT_PACKED.
 *
 * Requires:
 * `path` is a C string.
 */
int plfs_door_packed_is(int dirfd, const char *path, int at_flags);

/**
 * For who has just made `path`, which is to be no file of a pack: 0; or -EEXIST if one was made at
 * the same moment, and `path` is gone again. PLFS_NOT_MANAGED of what is in no managed directory.
 *
 * Requires:
 * `path` is a C string.
 */
int plfs_door_packed_beside(int dirfd, const char *path);

/**
 * Where the file of a pack is that `path` is a name of, or leads to by links: 0, and its absolute
 * path in `out`, which has room for PATH_MAX bytes; or PLFS_NOT_PACKED.
 *
 * Requires:
 * `path` is a C string, `out` has room for PATH_MAX bytes.
 */
int plfs_door_packed_where(int dirfd, const char *path, char *out);

/**
 * 1 if the directory `dirfd` has a file by the name of a pack, else 0. One system call.
 */
int plfs_door_has_pack(int dirfd);

/**
 * The names that the pack of the directory `dirfd` has, for [`plfs_door_packed_name`];
 * plfs_closedir frees them. Those that ordinary files of the directory have as well are not among
 * them. With `whole`, or if the directory is flat, all of its names but "." and "..".
 * PLFS_NOT_PACKED: it has no pack.
 *
 * Requires:
 * `out` is a place for a pointer.
 */
int plfs_door_packed_list(int dirfd, int whole, plfs_dir **out);

/**
 * The name with this number, from 0, of a list, the number of its file in `*ino` and what readdir
 * says of its kind in `*kind`; NULL behind the last one. Valid as long as the list.
 *
 * Requires:
 * `list` is a list; `ino` and `kind` are places for numbers.
 */
const char *plfs_door_packed_name(const plfs_dir *list,
                                  size_t number,
                                  uint64_t *ino,
                                  uint8_t *kind);

/**
 * Removes the pack of the directory `path`, which has to be empty, for who is about to remove the
 * directory. -ENOTEMPTY if it is not, -EBUSY if another process writes it.
 *
 * Requires:
 * `path` is a C string.
 */
int plfs_door_packed_remove(int dirfd, const char *path);

/* --- Descriptors that an open has to leave (preload/) --- */

/**
 * Descriptors that logs need at least; those of all files share them.
 */
#define PLFS_LOG_DESCRIPTORS 16

/**
 * 1 if `spare` descriptors are left behind `fd`, which was the lowest that was free; else 0. With
 * -1 for `fd`: behind the next one that is opened.
 */
int plfs_door_has_room(int fd, unsigned int spare);

/* --- Names in flat directories, which the system does not find (preload/) --- */

/**
 * What calls on names say of those in flat directories: no negative errno.
 */
#define PLFS_IS_FLAT -5005

/**
 * What calls of this section say of names that are in none, and as the system knows them.
 */
#define PLFS_NOT_FLAT -5006

/**
 * For [`plfs_door_place`]: links at the end of the path are followed.
 */
#define PLFS_PLACE_FOLLOW 1

/**
 * For [`plfs_door_place`]: the file system has found nothing, so that its links are looked at.
 */
#define PLFS_PLACE_ALL 2

/**
 * Frees a text that a function of this section gave.
 *
 * Requires:
 * `text` is one, not used afterwards, or NULL.
 */
int plfs_door_free_text(char *text);

/**
 * 1 once the process has found a flat directory. Cheap. As long as it has not, a name that the
 * file system has is not looked for in one.
 */
int plfs_door_knows_flat(void);

/**
 * Another program is about to begin, which may rename or replace flat directories.
 */
int plfs_door_flat_forget(void);

/**
 * Where a name of a flat directory lies: 0, and a path in `*out` by which the system finds what
 * the name is, for plfs_door_free_text. It may be elsewhere a moment later, and then the system
 * says ENOENT: ask again. 1: links lead to that path, which is in no flat directory. -ENOENT:
 * nothing has the name. PLFS_NOT_FLAT: it is in no flat directory, nor leads to one.
 *
 * Requires:
 * `path` is NULL or a C string, `out` a place for a pointer.
 */
int plfs_door_place(int dirfd, const char *path, int how, char **out);

/**
 * 1 if `path` lies below a flat directory, 2 if it is one itself, 0 if neither.
 *
 * Requires:
 * `path` is NULL or a C string.
 */
int plfs_door_is_flat(int dirfd, const char *path);

/**
 * 1 if there may be a flat directory: a managed one has shadows. Costs a call for each, and for
 * half a second after that nothing.
 */
int plfs_door_has_flat(void);

/**
 * openat(2) with O_CREAT of a name in a flat directory that nothing has: a descriptor, and in
 * `*out` a handle or NULL, as plfs_door_open, with `spare` as there. -EEXIST: something has it.
 *
 * Requires:
 * `path` is NULL or a C string, `out` a place for a pointer.
 */
int plfs_door_flat_create(int dirfd,
                          const char *path,
                          int flags,
                          mode_t mode,
                          unsigned int spare,
                          plfs_file **out);

/**
 * mkdirat(2) in a flat directory, or PLFS_NOT_FLAT.
 *
 * Requires:
 * `path` is NULL or a C string.
 */
int plfs_door_flat_mkdir(int dirfd, const char *path, mode_t mode);

/**
 * mknodat(2) in a flat directory of what is no regular file, or PLFS_NOT_FLAT.
 *
 * Requires:
 * `path` is NULL or a C string.
 */
int plfs_door_flat_mknod(int dirfd, const char *path, mode_t mode, uint64_t dev);

/**
 * symlinkat(2) in a flat directory, or PLFS_NOT_FLAT.
 *
 * Requires:
 * `target` is a C string, `path` one or NULL.
 */
int plfs_door_flat_symlink(const char *target, int dirfd, const char *path);

/**
 * linkat(2) where one of the names is in a flat directory, or PLFS_NOT_FLAT. `follow`: what a link
 * at `old` leads to.
 *
 * Requires:
 * The paths are C strings.
 */
int plfs_door_flat_link(int olddirfd, const char *old, int newdirfd, const char *new_, int follow);

/**
 * rmdir(2) of a directory that is flat, or PLFS_NOT_FLAT.
 *
 * Requires:
 * `path` is NULL or a C string.
 */
int plfs_door_flat_rmdir(int dirfd, const char *path);

/**
 * fsync(2) of what the kernel does not know of a directory: those in which the names of a flat one
 * lie, and what this process has said to the pack.
 */
int plfs_door_sync_directory(int fd);

/**
 * readlinkat(2) in a flat directory, or PLFS_NOT_FLAT.
 *
 * Requires:
 * `path` is NULL or a C string, `buf` has room for `n` bytes.
 */
ssize_t plfs_door_flat_readlink(int dirfd, const char *path, char *buf, size_t n);

/**
 * realpath(3) of what is in a flat directory: 0 and the path in `*out`, for plfs_door_free_text;
 * or PLFS_NOT_FLAT.
 *
 * Requires:
 * `path` is NULL or a C string, `out` a place for a pointer.
 */
int plfs_door_flat_realpath(const char *path, char **out);

/**
 * What programs call what the system says is at `path`, which is absolute: 1 and its name in
 * `*out`, for plfs_door_free_text, if it is in a flat directory; else 0. An error if it is, and
 * nobody knows its name.
 *
 * Requires:
 * `path` is a C string, `out` a place for a pointer.
 */
int plfs_door_flat_name(const char *path, char **out);

/**
 * What a program that this one becomes, or starts in the directory `dirfd` (AT_FDCWD included),
 * has to find in its environment to know where it is: 1 and `NAME=VALUE` in `*out`, for
 * plfs_door_free_text; 0: nothing.
 *
 * Requires:
 * `out` is a place for a pointer.
 */
int plfs_door_flat_environment(int dirfd, char **out);

/* --- One index for many processes that open or close a file together (mpi/) --- */

/**
 * Up to where others have committed: what a writer must know before its first write.
 */
typedef struct {
  /**
   * Largest stamp of a commit.
   */
  uint64_t stamp;
  /**
   * Not 0 if nothing was ever written.
   */
  int is_new;
} plfs_horizon;

/**
 * The bytes of index logs that the first read of the file would load, so that processes can decide
 * whether to load them together. 0 if a flat index has everything.
 *
 * Requires:
 * `file` is a handle.
 */
int64_t plfs_door_index_pending(plfs_file *file);

/**
 * For processes that load an index together: the share `part` of `parts` (counted from 0), every
 * parts-th index log, as bytes that plfs_door_index_merge takes. All shares merged are everything
 * that was committed before the first call. Part 0 contains the flat index; the others may be
 * nearly empty. Gives the length. Shares may be merged if not one of them is doubtful and one (the
 * same or another) durable: bits 0 and 1 of `*standing`.
 *
 * Requires:
 * `file` is a handle, `out` a place for a pointer; free it with plfs_door_free. `standing` is a
 * place for an int.
 */
ssize_t plfs_door_index_part(plfs_file *file,
                             uint32_t part,
                             uint32_t parts,
                             int *standing,
                             void **out);

/**
 * For processes that close a file together: what this node's processes committed and no flat index
 * has yet, as bytes that plfs_door_index_merge takes; if `with_base` is not 0, the flat index as
 * well. To be called by one process of each node, with the base by one of all. Gives the length.
 * `*doubtful` is not 0 if some of the data may not be durable: if that is so for any part, all are
 * to be merged as such. -EAGAIN if only who has the whole index can tell what it is worth.
 *
 * Requires:
 * As plfs_door_index_part; `doubtful` is a place for an int.
 */
ssize_t plfs_door_index_own(plfs_file *file, int with_base, int *doubtful, void **out);

/**
 * Merges `n` parts of the index of `file`; regular patterns stay patterns. Gives the length. -EIO
 * if a part is damaged or of another file. If `doubtful` is not 0, -EAGAIN if the parts may have a
 * byte of the file in common.
 *
 * Requires:
 * `parts` and `lengths` have `n` elements, part i has lengths[i] bytes; `file` and `out` as for
 * plfs_door_index_part.
 */
ssize_t plfs_door_index_merge(plfs_file *file,
                              const void *const *parts,
                              const size_t *lengths,
                              uint32_t n,
                              int doubtful,
                              void **out);

/**
 * Makes the handle read by a merged index that lies in the file `fd`, from its start to its end:
 * of a node's processes one writes it (to a memfd, or below /dev/shm) and all map it. The caller
 * closes `fd`; the file must not change. Refreshing later reads what was committed since.
 *
 * Requires:
 * `file` is a handle, `fd` is open for reading.
 */
int plfs_door_index_use(plfs_file *file, int fd);

/**
 * Stores a merged index in the container as its flat index. Atomic. What is committed later is
 * read from the logs, so it does not become wrong. Not forced to storage.
 *
 * Requires:
 * `file` is a handle open for writing, `data` has `length` bytes.
 */
int plfs_door_index_store(plfs_file *file, const void *data, size_t length);

/**
 * Frees what plfs_door_index_part, plfs_door_index_own and plfs_door_index_merge gave. NULL:
 * nothing.
 *
 * Requires:
 * `bytes` came from one of them and is not used afterwards.
 */
void plfs_door_free(void *bytes);

/**
 * For processes that open a file together to write: reads from all index logs what a writer must
 * know. One process does so and sends the result to the others, which pass it to
 * plfs_door_horizon_set and read no logs.
 *
 * Requires:
 * `file` is a handle, `out` a place for a plfs_horizon.
 */
int plfs_door_horizon_get(plfs_file *file, plfs_horizon *out);

/**
 * Orders what this process writes behind the commits that another process has read
 * (plfs_door_horizon_get). To be called before the first write through any handle of the file;
 * later it has no effect.
 *
 * Requires:
 * `file` is a handle, `seen` points to a plfs_horizon.
 */
int plfs_door_horizon_set(plfs_file *file, const plfs_horizon *seen);

/* --- Which storage targets to use (netcdf/) --- */

/**
 * Chooses between `n` directories, each a storage target, for files that are alike in size: as
 * many as the measured rates say, or `wanted`, if that is not 0. Gives how many, and puts their
 * places into `chosen`, ascending. `bytes_s` gets what one writer more can expect of each of the
 * `n`; 0: it cannot be measured, and is not chosen unless nothing can, or so many are wanted.
 *
 * Rates are those of this node's writers and probes; where there is none of the last 30 s the
 * target is probed, all at once, which takes 0.3 s; a second more if one has stalled.
 *
 * Requires:
 * `dirs` has `n` C strings, `chosen` and `bytes_s` have room for `n` numbers.
 */
int plfs_door_choose_dirs(const char *const *dirs,
                          size_t n,
                          size_t wanted,
                          uint32_t *chosen,
                          double *bytes_s);

#ifdef __cplusplus
}
#endif
#endif
