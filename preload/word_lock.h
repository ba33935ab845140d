/* A lock between the threads of a process, of one word: 0 is free, 1 taken, 2 taken and waited for.
 * Two atomic operations if nobody waits; takes no memory, and leaves errno as it is. */
#ifndef PLFS_PRELOAD_WORD_LOCK_H
#define PLFS_PRELOAD_WORD_LOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* What the calls below do if they have to wait or to wake. */
void word_wait(_Atomic uint32_t *lock);
void word_wake(_Atomic uint32_t *lock);

static inline bool word_try_lock(_Atomic uint32_t *lock)
{
	uint32_t found = 0;
	return atomic_compare_exchange_strong(lock, &found, 1);
}

static inline void word_lock(_Atomic uint32_t *lock)
{
	if (!word_try_lock(lock))
		word_wait(lock);
}

static inline void word_unlock(_Atomic uint32_t *lock)
{
	if (atomic_exchange(lock, 0) == 2)
		word_wake(lock);
}

#endif
