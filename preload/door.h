/* What the files of the door share. The door translates libc calls to libplfs; the meaning of files
 * is in libplfs. */
#ifndef PLFS_PRELOAD_DOOR_H
#define PLFS_PRELOAD_DOOR_H

#include "fdtable.h"
#include "real.h"

#include <errno.h>
#include <limits.h>
#include <sys/stat.h>

/* What the door keeps for each thread. */
struct thread_state {
	/* Above 0 while the thread is inside libplfs. The Rust runtime in it may call libc
	 * (threads, /proc), which must not call libplfs again: wrappers call libc directly while it
	 * is set. */
	int inside;
	/* Above 0 while handlers of signals wait (signals.c). */
	int depth;
	/* Cancellation is forbidden since then, and what it was before. */
	bool forbids_cancel;
	int cancel_state;
	/* One is waiting; then `mask` is what the thread's was, and all are blocked. */
	bool waiting;
	uint64_t mask;
	/* In the handler of a fault inside libplfs: it cannot be entered. */
	bool closed;
	/* A signal that ends the program, after the call of ours; or the program ends here. */
	int ending;
#define ENDS_HERE (-1)
};
extern __thread struct thread_state door_thread __attribute__((tls_model("initial-exec")));

/* Room for paths and the like, to the end of the block: neither on the stack, which may be small,
 * nor from malloc, which a handler of a signal may have interrupted. NULL: there is none. By libc's
 * munmap, so that ThreadSanitizer does not take the next thread that gets this memory for one that
 * races with us. */
#define ROOM_BYTES ((size_t)64 << 10)

static inline void *room_get(void)
{
	void *room = (void *)RAW(SYS_mmap, NULL, ROOM_BYTES, (long)(PROT_READ | PROT_WRITE),
		(long)(MAP_PRIVATE | MAP_ANONYMOUS), -1L, 0L);
	return room == MAP_FAILED ? NULL : room;
}

static inline void room_free(void *room)
{
	if (room)
		munmap(room, ROOM_BYTES);
}

static inline void room_leave(char **room)
{
	int saved = errno;
	room_free(*room);
	errno = saved;
}
#define ROOM(name) __attribute__((cleanup(room_leave))) char *name = room_get()

/* pthread_setspecific takes no memory from malloc, which a handler of a signal may have
 * interrupted, for the first 32 keys (glibc, PTHREAD_KEY_2NDLEVEL_SIZE). */
#define KEYS_WITHOUT_MALLOC 32

/* threads.c */
void threads_start(void);
void threads_after_fork_in_child(void);
/* A thread that used libplfs ends. */
void threads_one_ends(void);
/* Has libplfs threads, which would be all that is left if the caller ended? */
bool threads_end_with_caller(void);

/* served.c */
/* The process begins, with this environment. */
void served_start(char *const envp[]);
/* Puts there, if `words` is not NULL, the words of ours that an environment lacks which has none of
 * PLFS, as that of `env -i`. Returns how many they are. */
size_t served_fill(char *words[], char *const envp[]);
/* What libc starts between the two has the words of ours, if the program's own environment lacks
 * them. */
void served_lend(void);
void served_take_back(void);
void served_after_fork_in_child(void);
/* Can PLFS serve the program? By its path, or by a descriptor that has it; dirfd is where the
 * process is then. If not it has been told, and errno is EPERM: it must not be started. */
bool served_at(int dirfd, const char *path, int at_flags, char *const envp[]);
bool served_fd(int fd, const char *path, char *const envp[]);

/* signals.c */
/* Lets the handlers run that waited. */
void signals_deliver(void);
/* Blocks what can be blocked, by system call; the set is the kernel's. */
void signals_block_all(uint64_t *old);
void signals_restore(const uint64_t *old);
/* From now on memory_is_there can tell. Called when the first file is opened, or a path looked at.
 */
void signals_see_faults(void);
/* From now on a signal that ends the program lets it commit before. Called when the first file is
 * opened for writing. */
void signals_see_endings(void);
/* True if such a signal has come to this thread, and waits for the end of this call. Does not
 * return if it has come to another one. */
bool signals_let_end(void);
void signals_after_fork_in_child(void);
/* For an exec, which would swallow a signal that on_signal has: from now on the kernel ends the
 * program. What writes have returned for is in their journals. False: signals_let_end is true. */
bool signals_leave_endings(void);
/* The exec has failed. */
void signals_see_endings_again(void);
/* system(3) has changed the actions of signals, unseen. */
void signals_after_system(void *unused);
/* Can these bytes be read, or written? Touches each page of them. The answer for memory that
 * another thread unmaps meanwhile is as good as the kernel's. */
bool pages_are_there(const void *memory, size_t n, bool written);
/* Has the kernel's SIGSEGV and SIGBUS come to us from then on? */
extern _Atomic bool faults_are_seen;
/* One byte: probe.S. */
bool probe_read(const void *at), probe_write(void *at);
/* The kernel's pages have at least this size on every machine. */
#define SMALL_PAGE 4096

static inline bool memory_is_there(const void *memory, size_t n, bool written)
{
	uintptr_t at = (uintptr_t)memory;
	if (n == 0 || !atomic_load_explicit(&faults_are_seen, memory_order_relaxed))
		return true;
	if (n > SMALL_PAGE || ((at ^ (at + (n - 1))) >= SMALL_PAGE))
		return pages_are_there(memory, n, written);
	return written ? probe_write((void *)at) : probe_read(memory);
}

/* Can the string be read? Yes for NULL, which callees tell apart. If not, errno is EFAULT. */
bool path_is_there(const char *path);
/* Can the list and its words be read? */
bool environment_is_there(char *const envp[]);

/* Has the program ever asked for a cancellation of a thread? As long as it has not, reads and
 * writes need not look for one, which takes a fortieth of them, and other calls need not forbid it.
 * The call that a thread is in at the first one of all has no cancellation point of libplfs. */
extern _Atomic bool cancellation_used;
static inline bool cancellation_is_used(void)
{
	return __builtin_expect(atomic_load_explicit(&cancellation_used, memory_order_acquire), 0);
}

void signals_forbid_cancel(void);
void signals_allow_cancel(void);

/* Around a read or a write handlers wait. To forbid cancellation and to allow it again would be an
 * eighth of it, and is not needed: nothing that it calls is a cancellation point (signals.c,
 * "Cancellation"). */
static inline void signals_defer_io(void)
{
	door_thread.depth++;
	atomic_signal_fence(memory_order_seq_cst);
}

static inline void signals_resume_io(void)
{
	atomic_signal_fence(memory_order_seq_cst);
	int depth = --door_thread.depth;
	atomic_signal_fence(memory_order_seq_cst);
	if (__builtin_expect(depth == 0 && door_thread.waiting, 0))
		signals_deliver();
}

/* Around any other call. Nor is the thread cancelled in it, in a program that cancels threads:
 * libplfs is not made to be unwound. */
static inline void signals_defer(void)
{
	if (door_thread.depth++ == 0 && cancellation_is_used())
		signals_forbid_cancel();
	atomic_signal_fence(memory_order_seq_cst);
}

static inline void signals_resume(void)
{
	atomic_signal_fence(memory_order_seq_cst);
	if (__builtin_expect(door_thread.forbids_cancel, 0) && door_thread.depth == 1)
		signals_allow_cancel();
	signals_resume_io();
}

static inline void signals_resume_scope(const int *unused)
{
	(void)unused;
	signals_resume();
}

/* Handlers wait until the end of the block. */
#define DEFER_SIGNALS() \
	signals_defer(); \
	__attribute__((cleanup(signals_resume_scope), unused)) int deferred_ = 0

/* Calls libplfs, while handlers wait. -EIO if it is closed. */
#define PLFS(call) \
	({ \
		signals_defer(); \
		door_thread.inside++; \
		__typeof__(call) plfs_result_ = __builtin_expect(door_thread.closed, 0) ? -EIO \
											: (call); \
		door_thread.inside--; \
		signals_resume(); \
		plfs_result_; \
	})

/* PLFS of a call that takes no lock, and is made where libplfs is closed, too. */
#define PLFS_ALWAYS(call) \
	({ \
		signals_defer(); \
		door_thread.inside++; \
		__typeof__(call) plfs_result_ = (call); \
		door_thread.inside--; \
		signals_resume(); \
		plfs_result_; \
	})

/* Is the file of o a plain one, as far as this process knows? Then what is in the descriptor is the
 * file, and calls that change no bytes are libc's. */
#define OFD_IS_PLAIN(o) (PLFS(plfs_door_is_plain((o)->file)) == 1)

/* Can a file with this stat have a container? It has a superblock's length, or a second name. */
static inline bool stat_may_be_name(const struct stat *st)
{
	return S_ISREG(st->st_mode) && (st->st_size == PLFS_SUPER_BYTES || st->st_nlink > 1);
}

/* That of a placeholder in memory, as files of packs have them? */
static inline bool stat_is_stand_in(const struct stat *st)
{
	return S_ISREG(st->st_mode) && st->st_nlink == 0 && st->st_size == PLFS_STAND_IN_BYTES;
}

/* That of a base without a name, perhaps? It has one link, in its container, as plain files have
 * one in a directory. */
static inline bool stat_may_be_base(const struct stat *st)
{
	return S_ISREG(st->st_mode) && st->st_nlink == 1;
}

/* That of a base without a name, of a container which this process has open? */
static inline bool stat_is_base(const struct stat *st)
{
	return stat_may_be_base(st) && plfs_door_uses_bases() != 0 &&
	       PLFS_ALWAYS(plfs_door_has_base(st->st_dev, st->st_ino)) == 1;
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
	rc = rc == OFD_IS_GONE ? -EBADF : rc;
	debug_last_error(rc);
	errno = (int)-rc;
	return -1;
}

/* The result of a call that another one, in vain, came before: what succeeds leaves errno as it
 * was. */
static inline int leaving_errno(int was, int rc)
{
	if (rc >= 0)
		errno = was;
	return rc;
}

/* path.c */
/* Is `path`, by its text, a managed directory or below one? Relative paths are taken from dirfd. */
bool path_is_managed(int dirfd, const char *path);
/* The same for an open, which does not always ask for the working directory: PLFS_OPENS_PLAIN and
 * PLFS_OPENS_SHARED are a yes, too. The path is there. */
int path_opens_managed(int dirfd, const char *path);
/* Does the file have the size of a name? at_flags: 0 or AT_SYMLINK_NOFOLLOW. */
bool path_may_be_name(int dirfd, const char *path, int at_flags);
/* The same, for what the kernel's stat of it is known. */
bool path_may_be_name_by(int dirfd, const char *path, const struct stat *st);
/* Begins the path as one of a descriptor of any process? */
bool path_is_of_descriptor(const char *path);
/* Does the path lead to a base without a name, or to a placeholder in memory, to which only paths
 * of descriptors lead (/dev/stdin, /proc/self/fd/0, links to them)? What is there is not the file.
 * st is what the kernel says of it; *of becomes the number, or -1 if the descriptor is another
 * process's. A file of which this process does not know yet that it has got a container is found by
 * its attribute: for `all`, also behind links. That costs calls outside of managed directories a
 * look at each file on the same file system. */
bool path_is_through_descriptor(
	int dirfd, const char *path, const struct stat *st, bool all, int *of);
/* The same for `all`, with a stat. */
bool path_leads_through_descriptor(int dirfd, const char *path, int *of);
/* The descriptor of a file of a pack to which the path leads, by whatever links, or -1. */
int path_to_packed(int dirfd, const char *path);
/* Is the file of fd, with this stat, a base without a name? */
bool fd_is_nameless_base(int fd, const struct stat *st);
/* The same, and fd was opened by `path`: what path_is_through_descriptor says for `all`. */
bool path_led_to_base(int fd, const char *path, const struct stat *st);
/* The number that a path as /proc/self/fd/3 or /dev/stdin names, or -1; takes no lock. */
int path_descriptor(const char *path);
/* The same if it is a file of a pack. */
int path_of_packed(const char *path);
/* Is a call on this path for libplfs? In a managed directory, or perhaps a name elsewhere. */
bool path_is_ours(int dirfd, const char *path, int at_flags);
void path_start(void);
/* So that no other thread is about to: the child of a fork would wait for it. */
void path_know_managed(void);
/* The working directory may be another one, or have another name. */
void path_moved(void);
/* Writes and gives the path of /proc that leads to what is open as `fd`. */
#define FD_PATH_ROOM sizeof "/proc/thread-self/fd/2147483647"
char *fd_path(char path[FD_PATH_ROOM], int fd);
/* The same of what the parent process has open. */
char *fd_path_of_parent(char path[FD_PATH_ROOM], int fd);
/* Opens the directory of those paths. */
int open_fd_paths(bool of_parent);

/* Is ./plfs.d, which `plfs run` takes if nobody names a directory, still to be made? */
extern _Atomic bool default_dir_waits;
void default_dir_start(void);
void default_dir_make(int dirfd, const char *path, int how);
/* Before a call on a path that may want it: `how` is PLFS_NAMES_DIR, PLFS_MAKES_BELOW or both. */
static inline void before_name(int dirfd, const char *path, int how)
{
	if (__builtin_expect(atomic_load_explicit(&default_dir_waits, memory_order_relaxed), 0))
		default_dir_make(dirfd, path, how);
}

/* open.c */
/* The flags that open(2) and openat2(2) know. O_LARGEFILE is 0 in libc. */
#define OPEN_FLAGS_KNOWN \
	(O_ACCMODE | O_CREAT | O_EXCL | O_NOCTTY | O_TRUNC | O_APPEND | O_NONBLOCK | O_SYNC | \
		O_ASYNC | O_DIRECT | 0100000 | O_DIRECTORY | O_NOFOLLOW | O_NOATIME | O_CLOEXEC | \
		O_PATH | O_TMPFILE)
int door_openat(int dirfd, const char *path, int flags, mode_t mode);
int door_close(int fd);
/* The process is about to end: what is open on containers that have no name and were plain files
 * hinders their removal. */
void door_close_nameless(void);
/* Flags of an open that its description does not keep. */
#define OPEN_ONLY (O_CREAT | O_EXCL | O_TRUNC | O_NOCTTY | O_CLOEXEC)
/* Puts fd, which the kernel opened or which was inherited, into the table if it is open on a name.
 * The description is the one given, or a new one of an open with `flags`. 1: it was, 0: it is
 * plain, or a negative errno. */
int door_adopt(int fd, int flags, struct description *shared);
/* Makes the entry of another number that has this description that of fd; NULL: the one that the
 * kernel has for fd, which has no tag. False: there is none. */
bool door_share(int fd, const struct description *shared);
/* Takes the entry of fd out, with what goes with a closed descriptor: record locks. The caller gets
 * its reference. */
struct ofd *door_detach(int fd);
/* fd reads a plain file of a managed directory, or one whose container is not whole yet, and this
 * is its stat. True: fd is a reader. */
bool door_install_reader(int fd, const struct stat *st);
/* Makes the reader at fd, which the table has as `reader`, an entry like any. False: it cannot. */
bool door_describe_reader(int fd, struct ofd *reader);
/* Is the file of a reader or a writer plain still? A look, as a handle has it: one call. */
bool door_is_plain(int fd);
/* Before the first entry of the table. */
void door_begin_table(void);
/* Is there room for what reads and writes of the open files will need, behind fd, or with -1 behind
 * what is opened next? All of them plain: they need nothing. */
bool door_has_room(int fd);
/* On other file systems libplfs counts who has a plain file open. */
bool door_is_local(int fd, dev_t dev);
/* A handle that was opened on a plain file keeps the description of fd, which is o's. */
int door_own(struct ofd *o, int fd);
/* Before a lock of the process on any file: handles on plain ones have no descriptors of their own.
 */
void door_lend_numbers(void);
void door_lend_after_fork_in_child(void);
/* libc is about to put something at fd, without our dup2. */
void door_leave_number(int fd);
/* Is it one of our own descriptors? The program did not open it and must not close it. */
bool fd_is_owned(int fd);
/* Removes the entry of a descriptor that libc replaced without calling a wrapper. */
void door_forget(int fd);

/* writers.c */
/* May an open of this path, beside which new files are plain, make a writer? */
bool writer_may_be(const char *path, int flags);
/* Makes a new file; EEXIST if there is anything. */
int writer_create(const char *path, int flags, mode_t mode);
/* write, or with an offset pwrite; lseek; and what comes before close. False: fd is no writer, or
 * it must be something else for that, and nothing is done. */
bool writer_write(int fd, const void *buf, size_t n, const off_t *offset, ssize_t *done);
bool writer_seek(int fd, off_t offset, int whence, off_t *at);
bool writer_close(int fd);
/* Makes the writer at fd an entry like any, or all there are. False: it cannot. */
bool writer_describe(int fd, struct ofd *entry);
void writers_describe(void);
/* The same, for good. */
void writers_end(void);
/* Its number is another file's. */
void writer_forget(struct ofd *entry);
/* In the child of a fork. */
void writers_after_fork_in_child(void);

/* io.c: on a description; >= 0 or a negative errno. Handlers of signals wait. */
ssize_t ofd_readv(struct ofd *o, int fd, const struct iovec *iov, int n);
ssize_t ofd_writev(struct ofd *o, int fd, const struct iovec *iov, int n, int rwf);
ssize_t ofd_preadv(struct ofd *o, const struct iovec *iov, int n, int64_t offset);
ssize_t ofd_pwritev(struct ofd *o, int fd, const struct iovec *iov, int n, int64_t offset, int rwf);

/* Reads RLIMIT_FSIZE. Called when the first file is opened. */
void learn_size_limit(void);

/* lock.c */
/* Has this process asked for a record lock yet? */
bool locks_are_used(void);
/* And it or a program before it for one of an open file description? From now on. */
bool ofd_locks_are_used(void);
void ofd_locks_begin(void);
/* Drops the process's record locks of the file, as close(2) of any descriptor does. */
void lock_drop(struct ofd *o, int fd);
/* Before a fork: what descriptions have of their locks is open, so that the child shares it. */
void locks_before_fork(void);
/* Around the start of another program, for which exec leaves lock files open: those of descriptions
 * that it leaves open, and of the process if that is what execs. */
enum shared { SHARED_ALL, SHARED_BY_EXEC };
void locks_pass(enum shared shared);
void locks_passed(void);
/* In between: exec leaves the description of fd open, by the number `as`. */
void lock_pass(int fd, int as);
void locks_after_fork_in_child(void);
/* Is fd a lock file that the program before exec has left open? lock_adopt takes it over, if it is
 * one. */
bool lock_may_be_passed(int fd);
void lock_adopt(int fd);
/* A placeholder has come in the place of a descriptor of o, whose description the handle keeps. */
void flock_stays(void);

/* mmap.c */
/* mmap by system call if fd is plain; for callers that must not go through the exported mmap. */
void *door_mmap(void *where, size_t len, int prot, int flags, int fd, off_t offset);

/* stdio.c */
/* libc's streams come to us from now on. Called when the first file is opened. */
void stdio_take_over(void);
void stdio_flush_all(void);
/* libc's lock of its list of streams, which fork takes and fflush(NULL) holds while it writes: it
 * comes before every lock of ours. Recursive. */
void _IO_list_lock(void);
void _IO_list_unlock(void);
void _IO_list_resetlock(void);

/* packed.c */
/* Has this process found a pack? Then names are looked up there before the kernel is asked. */
bool packs_are_known(void);
/* fstatat of a name of a pack, with the result in *rc. False: it is none. */
bool packed_stat(int dirfd, const char *path, struct stat *st, int at_flags, int *rc);
/* utimensat, in the same way. */
bool packed_utimens(
	int dirfd, const char *path, const struct timespec times[2], int at_flags, int *rc);
/* Is it a name of a pack, or does it lead to one? */
bool path_is_packed(int dirfd, const char *path, int at_flags);
/* The same where the kernel has found nothing (ENOENT), for who says what is wrong with a name:
 * below a file of a pack errno is ENOTDIR then. */
bool path_is_unknown(int dirfd, const char *path, int at_flags);
/* Who makes a name? */
enum maker {
	/* The kernel. */
	MADE_BY_KERNEL,
	/* libplfs: it is in a flat directory. */
	MADE_BY_PLFS,
	/* Nobody. errno says why: a pack has it (EEXIST), no program sees it (EPERM), it is below a
	 * file (ENOTDIR). */
	NOT_MADE
};
enum maker maker_of(int dirfd, const char *path);
/* rename or link has brought a file: if it came into a managed directory it may be open outside
 * (plfs_door_came_in). */
void look_who_came(int old_dir, const char *old, int new_dir, const char *new);

/* link, or with `moves` rename, is about to give the file at `old` the name `new`: if that is
 * outside of all managed directories it stays plain (plfs_door_goes_out). */
void look_what_goes(
	int old_dir, const char *old, int new_dir, const char *new, int at_flags, bool moves);
/* The kernel has made a name, if rc is 0. -1 and EEXIST if a pack got a file of that name at the
 * same moment: then it is gone again. */
int made_beside(int dirfd, const char *path, int rc);
/* Returns what `by_plfs` gives, but for a name that is in no flat directory: then `by_kernel`. */
#define MAKE(dirfd, path, by_plfs, by_kernel) \
	do { \
		enum maker maker_ = maker_of(dirfd, path); \
		if (maker_ == NOT_MADE) \
			return -1; \
		int made_ = maker_ == MADE_BY_PLFS ? PLFS(by_plfs) : PLFS_NOT_FLAT; \
		return made_ == PLFS_NOT_FLAT ? made_beside(dirfd, path, by_kernel) \
					      : (int)to_errno(made_); \
	} while (0)
/* Is it the name of a pack, or of what lies beside one for a moment? No program sees it. */
bool path_is_hidden(int dirfd, const char *path);
/* Has the kernel a superblock by this name, or a pack a file? */
bool path_is_container(int dirfd, const char *path);

/* flat.c */
/* Where a name of a flat directory lies; zero to begin with. */
struct place {
	/* By which the kernel finds it. */
	char *at;
	/* It is in a flat directory, or links lead out of one to `at`. */
	bool is_flat, is_out;
	int tries;
};
/* Has this process found a flat directory? Then libplfs is asked for a name before the kernel. */
bool flat_is_known(void);
/* It has. */
void flat_found(void);
/* May there be one that this process has not found? */
bool flat_may_be(void);
/* The process begins. */
void flat_start(void);
/* After fsync of a descriptor: what the kernel does not know of it, if it is a directory. */
int sync_directory(int fd);
/* Looks for the name. True: it is at place->at. Else errno says why, and if it is in no flat
 * directory is what it was. */
bool place_next(struct place *place, int dirfd, const char *path, int how);
void place_free(struct place *place);
/* 1 if the path lies below a flat directory, 2 if it is one, 0 if neither; or a negative errno. */
int path_is_flat(int dirfd, const char *path);
/* Is it a flat directory, or one in such? */
bool fd_is_flat(int fd);
/* Link count of a flat directory, and size of a symbolic link in one, in what a stat gave. */
void flat_fix(
	int dirfd, const char *path, int at_flags, unsigned mode, uint64_t *nlink, uint64_t *size);
/* What readlink gave, in a buffer with that room, as programs are to see it. */
ssize_t flat_link_text(char *buf, ssize_t n, size_t room);
/* The environment for a program that is started in directory dirfd: `envp`, which has `count`
 * words, or a copy in `words`, which has room for two more. *text is for plfs_door_free_text. */
char *const *flat_environment(
	int dirfd, char *const envp[], char **words, size_t count, char **text);

/* Makes `call`, in which `at` is the path, if the name is in a flat directory, as often as it moves
 * meanwhile; then the function returns what it gave. */
#define ON_PLACE(failed, dirfd, path, how, call) \
	do { \
		__attribute__((cleanup(place_free))) struct place place_ = {0}; \
		const char *at = NULL; \
		__typeof__(call) rc_ = failed; \
		while (place_next(&place_, dirfd, path, how)) { \
			at = place_.at; \
			rc_ = call; \
			if (rc_ != failed || errno != ENOENT) \
				break; \
		} \
		if (place_.is_flat) \
			return rc_; \
	} while (0)

/* ON_PLACE before the kernel is asked; `how` is 0 or PLFS_PLACE_FOLLOW. */
#define FLAT_FIRST(failed, dirfd, path, how, call) \
	do { \
		if (__builtin_expect(flat_is_known(), 0)) \
			ON_PLACE(failed, dirfd, path, how, call); \
	} while (0)

/* ON_PLACE where the kernel has found nothing. */
#define FLAT_AFTER(failed, rc, dirfd, path, how, call) \
	do { \
		if ((rc) == failed && errno == ENOENT && flat_may_be()) \
			ON_PLACE(failed, dirfd, path, (how) | PLFS_PLACE_ALL, call); \
	} while (0)

/* The links of a call with these flags. */
#define PLACE_OF(at_flags) ((at_flags) & AT_SYMLINK_NOFOLLOW ? 0 : PLFS_PLACE_FOLLOW)

/* listing.c */
/* Descriptor fd is closed, in the middle of a listing perhaps. */
void listing_forget(int fd);
/* Around fork, as fd_lock. */
void listing_lock(void);
void listing_unlock(void);

/* library.c */
/* The process begins. */
void library_start(void);
void library_after_fork_in_child(void);
/* Does the program at fd, with this environment, need a library, whose name is in `name` then, that
 * lies in a container? Nobody sees the dynamic linker open that. */
bool library_is_out_of_reach(int fd, const char *path, char *const envp[], char name[256]);

/* process.c */
/* Does clone with these flags make what fork makes, or vfork? */
bool clone_is_fork(uint64_t flags, uint64_t signal);
/* Called before another program shares our descriptions: commits, lets the program find them, and
 * lets plain files stay plain that it may write: all, or those that an exec leaves open. Holds the
 * files, whose names the program may remove, if this one goes on. Gives the error of the commit. */
int64_t share_with_process(enum shared shared);
/* After it, where this process goes on. */
void shared_with_process(void);

/* exec.c */
/* How many words a list has, of arguments or an environment, which ends with NULL or is NULL. */
size_t count_of(char *const argv[]);
/* What the kernel looks at of a script. */
#define SCRIPT_BYTES 256
/* Interpreters of interpreters that it follows. */
#define INTERPRETERS_MOST 5
/* Splits "#! INTERPRETER ARGUMENT", as the kernel does; *argument is NULL if there is none. Behind
 * the end of the file are zeros. False: it is no script. */
bool split_script(char head[SCRIPT_BYTES], const char **interpreter, const char **argument);
/* The bytes of fd from its position on, in a file without a name; -1 and errno. */
int copy_in_memory(int fd, const char *name);

/* posix_spawn.c */
/* Around fork, as fd_lock. */
void spawn_lock(void);
void spawn_unlock(void);
/* After all handlers of a fork. */
void spawn_after_fork_in_child(void);

/* hand_over.c: descriptors that somebody writes to whom PLFS does not see */
/* Lets the file of o stay plain, or replaces its descriptor if it is not. `why` is for people.
 * -EMFILE: there is none for that, and who gets fd could write below the logs. */
int hand_over(int fd, struct ofd *o, const char *why);
int hand_over_all(enum shared shared, const char *why);
/* The same for a new descriptor, if the kernel writes for this program by itself. */
void hand_over_new(int fd, struct ofd *o);
/* It does, from now on. */
void kernel_writes(void);
bool kernel_is_writer(void);
/* Puts a descriptor that cannot write over fd. 0, or a negative errno. */
int make_placeholder(int fd);
/* Puts one there that can do nothing at all, and is on no file of PLFS: for what is about to be
 * closed. */
void make_nothing(int fd);

/* init.c */
/* Adopts fd, which another program opened, if it is a name. -EMFILE: there is no descriptor for
 * that, and what is at fd is not the file. */
int adopt_passed(int fd);
/* Commits all files and leaves their log sets; they stay usable. Nothing if there are none. */
int64_t commit_all(void);
/* The same for a process that is about to end: files without a name are no more. */
void leave_process(void);
/* The same for ever: for who has a signal end the process. */
void end_process(void);

#endif
