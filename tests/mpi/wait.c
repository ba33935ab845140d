/* Ranks that wait sleep now and then, as tests have more ranks than processors: preloaded by
 * environment.sh. An MPI that spins keeps its processor until the kernel takes it away, four
 * milliseconds and more, and Debian's MPICH never gives it up by itself. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Which turn of a loop waits cannot be seen here. */
static void turn(void)
{
	static _Thread_local unsigned turns;
	if (++turns % 100 == 0)
		nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
}

/* What Open MPI and newer MPICHs call when they wait. */
int sched_yield(void)
{
	turn();
	return (int)syscall(SYS_sched_yield);
}

/* What Debian's MPICH calls in each turn of its loop. */
unsigned ucp_worker_progress(void *worker)
{
	static unsigned (*real)(void *);
	/* By its name, as Python loads an MPI where RTLD_NEXT does not look. */
	if (!real)
		*(void **)&real = dlsym(dlopen("libucp.so.0", RTLD_LAZY | RTLD_NOLOAD), __func__);
	turn();
	return real(worker);
}
