/* libplfs's own threads, and the end of a process whose threads have all ended.
 *
 * Where main ends by pthread_exit the process goes on, and libc calls exit when its last thread has
 * ended. libplfs's threads never do, and libc counts them. So a thread of ours, the heir, does it
 * in the place of libc: when none but the heir and libplfs's are left it calls exit. */
#include "door.h"

#include <pthread.h>
#include <stdlib.h>

/* Of libplfs's: whether one was ever asked for, and how many were made, have begun and have ended.
 * Each counts itself when it begins and ends, so that there never are fewer than those two say. */
static _Atomic bool has_own;
static _Atomic long own_made, own_begun, own_ended;
static _Atomic bool main_has_ended, has_heir;

/* The heir looks after so long, and waits twice as long each time, up to the second. */
#define FIRST_LOOK_NS 1000000L
#define LAST_LOOK_NS 50000000L

/* How many threads the process has; a large number if nobody can know. No descriptor is needed:
 * there may be no room for one, and the program may count on the numbers that are free. */
static long all_threads(void)
{
	struct stat tasks;
	/* A directory has two links, and one for each that is in it. */
	return REAL(stat)("/proc/self/task", &tasks) < 0 ? LONG_MAX : (long)tasks.st_nlink - 2;
}

/* Has the process no threads but libplfs's, the caller and main, which has gone? When the kernel
 * has taken its memory it has done all that the end of a thread does, and /proc/self/exe leads
 * nowhere. */
static bool only_ours_are_left(void)
{
	char byte;
	if (RAW(SYS_readlinkat, AT_FDCWD, "/proc/self/exe", &byte, 1L) >= 0 || errno != ENOENT)
		return false;
	/* Those of ours that had begun before the look and have not ended after it, at the least,
	 * are in what it counts. */
	long own = atomic_load(&own_begun), all = all_threads();
	return all <= own - atomic_load(&own_ended) + 2;
}

bool threads_end_with_caller(void)
{
	const struct timespec pause = {0, FIRST_LOOK_NS};
	/* One that has ended is counted a moment longer. */
	for (int looks = 0; looks < 20 && atomic_load(&has_own); looks++) {
		long made = atomic_load(&own_made), others = all_threads() - 1;
		if (others <= made - atomic_load(&own_ended))
			return true;
		if (others > made)
			return false;
		RAW(SYS_clock_nanosleep, (long)CLOCK_MONOTONIC, 0L, &pause, NULL);
	}
	return false;
}

/* `given` is the mask of signals of who made it. */
static void *wait_and_exit(void *given)
{
	uint64_t mask = (uintptr_t)given;
	struct timespec pause = {0, FIRST_LOOK_NS};
	while (!only_ours_are_left()) {
		RAW(SYS_clock_nanosleep, (long)CLOCK_MONOTONIC, 0L, &pause, NULL);
		if (pause.tv_nsec < LAST_LOOK_NS)
			pause.tv_nsec *= 2;
	}
	signals_restore(&mask);
	exit(0);
}

/* Once main has ended and there are threads of libplfs. If no thread can be made the next that ends
 * tries again. */
static void need_heir(void)
{
	if (!atomic_load(&main_has_ended) || !atomic_load(&has_own) ||
		atomic_exchange(&has_heir, true))
		return;
	uint64_t mask;
	pthread_t thread;
	signals_block_all(&mask);
	if (REAL(pthread_create)(&thread, NULL, wait_and_exit, (void *)(uintptr_t)mask) == 0)
		pthread_detach(thread);
	else
		atomic_store(&has_heir, false);
	signals_restore(&mask);
}

/* Of main alone: destructors of keys run where a thread ends, and not in exit. */
static pthread_key_t of_main;
static bool has_key;

static void end_of_main(void *unused)
{
	(void)unused;
	atomic_store(&main_has_ended, true);
	need_heir();
}

void threads_one_ends(void)
{
	need_heir();
}

void threads_start(void)
{
	has_key = pthread_key_create(&of_main, end_of_main) == 0 && of_main < KEYS_WITHOUT_MALLOC &&
		  pthread_setspecific(of_main, &of_main) == 0;
}

void threads_after_fork_in_child(void)
{
	atomic_store(&has_own, false);
	atomic_store(&own_made, 0);
	atomic_store(&own_begun, 0);
	atomic_store(&own_ended, 0);
	atomic_store(&main_has_ended, false);
	atomic_store(&has_heir, false);
	/* Who forked is main now. */
	if (has_key)
		pthread_setspecific(of_main, &of_main);
}

EXPORT int pthread_join(pthread_t thread, void **result)
{
	if (!door_thread.inside)
		return REAL(pthread_join)(thread, result);
	int state;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	int rc = REAL(pthread_join)(thread, result);
	pthread_setcancelstate(state, NULL);
	return rc;
}

/* No handler of the program runs on libplfs's threads, and what their runtime calls in libc is not
 * for libplfs. */
struct own_thread {
	void *(*run)(void *);
	void *argument;
};

static void *run_own_thread(void *argument)
{
	struct own_thread own = *(struct own_thread *)argument;
	free(argument);
	door_thread.inside = 1;
	atomic_fetch_add(&own_begun, 1);
	void *result = own.run(own.argument);
	atomic_fetch_add(&own_ended, 1);
	return result;
}

EXPORT int pthread_create(pthread_t *restrict thread, const pthread_attr_t *restrict attr,
	void *(*run)(void *), void *restrict argument)
{
	if (!door_thread.inside)
		return REAL(pthread_create)(thread, attr, run, argument);
	struct own_thread *own = malloc(sizeof *own);
	if (!own)
		return EAGAIN;
	*own = (struct own_thread){run, argument};
	atomic_store(&has_own, true);
	uint64_t mask;
	signals_block_all(&mask);
	int rc = REAL(pthread_create)(thread, attr, run_own_thread, own);
	signals_restore(&mask);
	if (rc == 0)
		atomic_fetch_add(&own_made, 1);
	else
		free(own);
	need_heir();
	return rc;
}
