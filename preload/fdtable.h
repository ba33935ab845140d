/* Which descriptors of this process are containers, and where they stand.
 *
 * A container's descriptor is a real one (the placeholder that libplfs returned), so its number,
 * dup, poll, fork and close-on-exec are the kernel's. The table adds, for each number, the libplfs
 * handle and the open file description (description.h). Descriptors made by dup share both.
 *
 * Invariants:
 * - An entry of the table holds one reference; a call in progress holds another. The handle is
 * closed when the last goes.
 * - Entries are never given back, only reused. So a thread that read an entry while
 * another thread closes it may still touch the count: it either takes a reference or sees that the
 * entry changed.
 * - The plain path is one bounds check and one load, without a lock. */
#ifndef PLFS_PRELOAD_FDTABLE_H
#define PLFS_PRELOAD_FDTABLE_H

#include "description.h"

#include <plfs_door.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Descriptor numbers served. 1,048,576 is the kernel's default upper limit (fs.nr_open); the unused
 * part of the table is never touched. */
#define FD_TABLE_LEN (1 << 20)

struct ofd {
	_Atomic int refs;
	/* Forks of this process before it was made: if there are more by now, other processes have
	 * it, too. */
	unsigned forks;
	struct description *shared;
	plfs_file *file;
	/* It is a file of a pack; then the placeholder is open on what stands for the pack. */
	bool is_packed;
	/* Descriptors of its own that libplfs may need for it, besides those of logs, if it has
	 * logs. */
	unsigned descriptors;
	bool has_logs;
	struct ofd *next_free;
};

extern _Atomic(struct ofd *) fd_table[FD_TABLE_LEN];

/* 1 + the largest number that was ever a container; 0 while there was none. */
extern _Atomic int fd_limit;

/* How often a container was put at a number, or closed. */
extern _Atomic unsigned fd_installs;

/* An entry that is an odd number and no address is a **reader**: its file is open for reading only,
 * and was plain when it was opened. Nothing is kept of it, as most are read and closed: position
 * and flags are the kernel's, and the number tells one open from the next. Calls that know of
 * readers are the kernel's, and look where a handle would; for all others ofd_get makes it an entry
 * like any. */
static inline bool entry_is_reader(const struct ofd *o)
{
	return (uintptr_t)o & 1;
}

/* An entry with this mark and no other is a **writer** (writers.c). */
#define ENTRY_WRITER 2
#define ENTRY_MARKS 3

static inline bool entry_is_writer(const struct ofd *o)
{
	return ((uintptr_t)o & ENTRY_MARKS) == ENTRY_WRITER;
}

static inline bool entry_is_marked(const struct ofd *o)
{
	return (uintptr_t)o & ENTRY_MARKS;
}

/* Is fd a container, or a plain file that may become one? Without taking a reference. */
static inline bool fd_is_container(int fd)
{
	return __builtin_expect(
		(unsigned)fd < FD_TABLE_LEN &&
			atomic_load_explicit(&fd_table[fd], memory_order_acquire) != NULL,
		0);
}

static inline bool fd_is_reader(int fd)
{
	return (unsigned)fd < FD_TABLE_LEN &&
	       entry_is_reader(atomic_load_explicit(&fd_table[fd], memory_order_acquire));
}

static inline bool fd_is_writer(int fd)
{
	return (unsigned)fd < FD_TABLE_LEN &&
	       entry_is_writer(atomic_load_explicit(&fd_table[fd], memory_order_acquire));
}

/* Is fd a reader or a writer? */
static inline bool fd_is_marked(int fd)
{
	return (unsigned)fd < FD_TABLE_LEN &&
	       entry_is_marked(atomic_load_explicit(&fd_table[fd], memory_order_acquire));
}

/* Makes fd, which is in no entry, a reader; or another entry with a mark. */
void fd_install_reader(int fd);
void fd_install_marked(int fd, struct ofd *entry);

/* Puts o, or NULL, where an entry with a mark is. False: that is not there any more. */
bool fd_replace(int fd, struct ofd *marked, struct ofd *o);

/* Is fd a file of a pack? */
bool fd_is_packed(int fd);

/* The description of fd with a reference taken, or NULL if it is plain. */
struct ofd *ofd_get(int fd);
/* The same, but NULL also for an entry that is a mark only: it stays one. */
struct ofd *container_at(int fd);

/* Gives a reference back; the last one closes the handle and returns its error (0 or a negative
 * errno). */
int ofd_close(struct ofd *o);
static inline int ofd_put(struct ofd *o)
{
	return __builtin_expect(atomic_fetch_sub(&o->refs, 1) == 1, 0) ? ofd_close(o) : 0;
}

/* A new entry with one reference, for a description of its own (flags and position) or one that
 * other processes have. NULL: no memory. */
struct ofd *ofd_new(plfs_file *file, int flags, int64_t position);
struct ofd *ofd_new_shared(plfs_file *file, struct description *shared);

/* In between no number becomes that of another entry or of none. For who makes system calls by a
 * number and has looked what is there: a seek, or a placeholder put in its place, would hit another
 * thread's file. Short: nothing but system calls that do not wait. */
void fd_hold_numbers(void);
void fd_release_numbers(void);
/* Is o at fd? The numbers are held. */
bool fd_is_at(int fd, struct ofd *o);

/* Moves the kernel's position of a placeholder, unless that is a tag or the program's, behind all
 * that can be read there: for who is about to put it, by dup2, where others may be reading
 * something else. The numbers are held. */
void fd_park_held(int fd, struct ofd *o);

/* Puts o at fd and takes over the caller's reference. Drops what was there (it can only be stale).
 */
void fd_install(int fd, struct ofd *o);
/* The same for who holds the numbers: the caller gets what was there. */
struct ofd *fd_install_held(int fd, struct ofd *o);

/* Takes the entry out; the caller gets its reference. NULL: fd was plain. The second one for who
 * holds the numbers. */
struct ofd *fd_remove(int fd);
struct ofd *fd_remove_held(int fd);

/* The flags of open(2) and F_SETFL. */
static inline int ofd_flags(struct ofd *o)
{
	return atomic_load_explicit(&o->shared->flags, memory_order_relaxed);
}

/* Takes over those of the flags that F_SETFL changes. */
void ofd_set_flags(struct ofd *o, int flags);

/* Is the position of o the kernel's? */
static inline bool ofd_position_is_kernels(struct ofd *o)
{
	return atomic_load_explicit(&o->shared->position, memory_order_relaxed) ==
	       POSITION_IN_KERNEL;
}

/* Another program may have changed the flags of a plain file that it shares with us: those are the
 * kernel's, as its position is. So are those of a placeholder that went in a message. */
void ofd_learn_kernel_flags(struct ofd *o, int fd);
static inline void ofd_learn_flags(struct ofd *o, int fd)
{
	if (ofd_position_is_kernels(o) ||
		atomic_load_explicit(&o->shared->is_sent, memory_order_relaxed))
		ofd_learn_kernel_flags(o, fd);
}

/* How many descriptors of its own libplfs may need for all entries, logs included: none as long as
 * all are plain. */
unsigned ofd_descriptors(void);

/* In the place of a negative errno: the position is the kernel's, and o is no longer at fd. For the
 * program that is EBADF. */
#define OFD_IS_GONE (-4096)

/* The position, or a negative errno, or OFD_IS_GONE. Its lock is held, or the answer may be old. */
int64_t ofd_kernel_position(struct ofd *o, int fd);
static inline int64_t ofd_position(struct ofd *o, int fd)
{
	return ofd_position_is_kernels(o)
		       ? ofd_kernel_position(o, fd)
		       : atomic_load_explicit(&o->shared->position, memory_order_relaxed);
}

/* Moves the position, which is the kernel's, in one step; gives it, or as ofd_kernel_position. */
int64_t ofd_move_kernel_position(struct ofd *o, int fd, int64_t by);
int ofd_set_kernel_position(struct ofd *o, int fd, int64_t position);
static inline int ofd_set_position(struct ofd *o, int fd, int64_t position)
{
	if (ofd_position_is_kernels(o))
		return ofd_set_kernel_position(o, fd, position);
	atomic_store_explicit(&o->shared->position, position, memory_order_relaxed);
	return 0;
}

/* Makes the position of o, at fd, the kernel's, for who has the descriptor alone. Its description
 * is locked. 0, or -EMFILE: there is none for that. */
int fd_give_position(int fd, struct ofd *o);

/* The access mode of a container whose placeholder fd is, if another program has said so by it; or
 * -1. */
int fd_access_said(int fd);

/* The same of a file of a pack: whoever gets the placeholder finds in its position which one it is.
 * 0 or a negative errno. */
int64_t fd_pass_packed(int fd, struct ofd *o);

/* Another program is about to have our descriptors: lets it find their descriptions. 0, or -EMFILE:
 * there is no descriptor for that, and it would not find one of them. */
int fd_share_descriptions(void);
/* That is over, in this process: descriptors of ours are closed by exec again. */
void fd_shared_descriptions(void);
/* A fork, or what is like it: what is open now, others know. */
void fd_count_fork(void);
/* Before a fork: the numbers are held. */
void fd_before_fork(void);
void fd_after_fork_in_child(void);

/* Around fork: no other thread may hold the list of free descriptions, or the numbers. */
void fd_lock(void);
void fd_unlock(void);

#endif
