/* Open file descriptions: what all descriptors share that come from one open, in whatever process.
 *
 * fork, dup and exec share a description in the kernel; ours lie in memory that does the same. A
 * process has an **arena**, a file in memory (memfd) that it maps: its children after fork have the
 * mapping, and a program that it executes gets the descriptor of the arena, if it gets one of a
 * container. There the kernel's position of the container's placeholder, which nobody else needs,
 * says which arena and which description are meant (`tag`).
 *
 * Each process takes descriptions from an arena of its own; one that another process may know is
 * not used again. */
#ifndef PLFS_PRELOAD_DESCRIPTION_H
#define PLFS_PRELOAD_DESCRIPTION_H

#include "word_lock.h"

#include <plfs_door.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Value of `position`: the position is the kernel's. So it is for a plain file that a program
 * without us may use, too. */
#define POSITION_IN_KERNEL INT64_MIN

/* Where the kernel's position of a placeholder is that has no tag: behind all superblocks, and no
 * tag. */
#define PLACEHOLDER_POSITION (((int64_t)1 << 40) - 1)

struct description {
	/* Held while a read or a write moves the position. As long as no other process knows of the
	 * description that is `own_lock` (word_lock.h): whoever dies with it takes along all who
	 * could wait. From then on it is `lock`, which is robust: the kernel gives it back if its
	 * owner dies. Who sets `is_shared` holds `own_lock`. */
	_Atomic uint32_t own_lock;
	_Atomic bool is_shared;
	pthread_mutex_t lock;
	_Atomic int64_t position;
	_Atomic int flags; /* as of open(2) and F_SETFL */
	/* A placeholder has come in the place of a descriptor that can write a plain file: others
	 * may have that one still, and it is not the kernel's position of both. */
	_Atomic bool is_replaced;
	/* That placeholder has gone in a message. */
	_Atomic bool is_sent;
	/* Free ones of an arena are a list; 0 is its end. */
	uint32_t next_free;
	/* The inode of the name, to tell a tag from a position; known from the first tag on. */
	uint64_t dev, ino;
	/* Which file of that pack, if the name is a pack's. */
	plfs_packed packed;
};

/* A new one, on a file of a pack if `packed` says so. NULL: no memory. fd_lock is held here, and
 * when it is given back. */
struct description *description_new(int flags, int64_t position, const plfs_packed *packed);

/* Gives it back. `shared`: another process may know it. */
void description_free(struct description *d, bool shared);

/* May the kernel's position of fd be a tag? */
bool description_is_tagged(int fd);

/* The description whose tag the kernel's position of fd is. NULL: it is none. */
struct description *description_of(int fd);

/* From here on other processes may know of it. Waits for a read or a write under way. */
void description_share(struct description *d);

/* Makes the kernel's position of fd the tag of d, which is shared. False: d's arena has no
 * descriptor, so no other program can find it. */
bool description_tag(struct description *d, int fd);

/* The same for its lock file (lock.c). What description_tag makes the position; -1: nothing. */
bool description_tag_lock(struct description *d, int lock_fd);
int64_t description_tag_of(const struct description *d);

/* What description_lock and description_unlock do where it takes more than two atomic operations.
 */
void description_wait(struct description *d, bool has_own_lock);
void description_unlock_shared(struct description *d);

static inline void description_lock(struct description *d)
{
	bool has_own_lock = !atomic_load_explicit(&d->is_shared, memory_order_acquire) &&
			    word_try_lock(&d->own_lock);
	if (!has_own_lock || atomic_load_explicit(&d->is_shared, memory_order_acquire))
		description_wait(d, has_own_lock);
}

static inline void description_unlock(struct description *d)
{
	if (atomic_load_explicit(&d->is_shared, memory_order_acquire))
		description_unlock_shared(d);
	else
		word_unlock(&d->own_lock);
}

/* Is fd an arena's? */
bool description_owns_fd(int fd);

/* The number of an arena is to be another file's: the arena has another one from here on, or none
 * if none is free, as after description_gives_up. The caller puts the other file there, or closes
 * the number; it has fd_lock and the numbers. False: it cannot be. */
bool description_leaves(int fd);

/* The table is full: closes the descriptors of this process's arenas. What was opened before is not
 * found by another program any more, so not if the process has made any. False: nothing was closed.
 */
bool description_gives_up(void);

/* Takes over the descriptor of an arena that the program before exec had, if fd is one. */
bool description_take_arena(int fd);

/* The same of what `path` of /proc leads to. */
void description_take_arena_at(const char *path);

/* Closes what description_take_arena took and nobody needed. */
void description_drop_unused(void);

/* Another program is about to be made, which finds descriptions by their tags: from here on arenas
 * keep their descriptors. */
void description_is_looked_for(void);

/* Does exec leave the arenas open? */
void description_inherit(bool yes);

/* Before a fork, and after it in the parent: all that is open, or is opened in between, has a lock
 * for several processes. Waits for reads and writes under way, so no lock of libplfs is held. */
void description_before_fork(void);
void description_after_fork(void);

/* In the child of a fork: it takes descriptions from an arena of its own. Of many it keeps those
 * that it has files of. */
void description_after_fork_in_child(void);

#endif
