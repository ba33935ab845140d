/* Descriptor table and open file descriptions. See fdtable.h. */
#include "fdtable.h"

#include "door.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>

_Atomic(struct ofd *) fd_table[FD_TABLE_LEN];
_Atomic int fd_limit;

static pthread_mutex_t free_lock = PTHREAD_MUTEX_INITIALIZER;
static struct ofd *free_list;

void fd_lock(void)
{
	signals_defer();
	pthread_mutex_lock(&free_lock);
}

void fd_unlock(void)
{
	pthread_mutex_unlock(&free_lock);
	signals_resume();
}

struct ofd *ofd_new(plfs_file *file, int flags, int64_t position)
{
	fd_lock();
	struct ofd *o = free_list;
	if (o)
		free_list = o->next_free;
	fd_unlock();
	if (!o && !(o = calloc(1, sizeof *o)))
		return NULL;
	o->file = file;
	atomic_store(&o->flags, flags);
	atomic_store(&o->position, position);
	atomic_store(&o->refs, 1);
	return o;
}

struct ofd *ofd_get(int fd)
{
	if ((unsigned)fd >= FD_TABLE_LEN)
		return NULL;
	for (;;) {
		struct ofd *o = atomic_load_explicit(&fd_table[fd], memory_order_acquire);
		if (!o)
			return NULL;
		int refs = atomic_load(&o->refs);
		while (refs > 0 && !atomic_compare_exchange_weak(&o->refs, &refs, refs + 1))
			;
		if (refs <= 0) {
			/* The entry is taken out before its reference is given back, so the next
			 * load sees another value. */
			sched_yield();
			continue;
		}
		if (atomic_load(&fd_table[fd]) == o)
			return o;
		ofd_put(o);
	}
}

int ofd_put(struct ofd *o)
{
	if (atomic_fetch_sub(&o->refs, 1) != 1)
		return 0;
	int rc = PLFS(plfs_close(o->file));
	o->file = NULL;
	fd_lock();
	o->next_free = free_list;
	free_list = o;
	fd_unlock();
	return rc;
}

void fd_install(int fd, struct ofd *o)
{
	int limit = atomic_load(&fd_limit);
	while (limit <= fd && !atomic_compare_exchange_weak(&fd_limit, &limit, fd + 1))
		;
	struct ofd *stale = atomic_exchange(&fd_table[fd], o);
	if (stale)
		ofd_put(stale);
}

struct ofd *fd_remove(int fd)
{
	if (!fd_is_container(fd))
		return NULL;
	return atomic_exchange(&fd_table[fd], NULL);
}

int64_t ofd_advance(struct ofd *o, int fd, int64_t delta)
{
	int64_t at = atomic_load(&o->position), next;
	while (at != POSITION_IN_KERNEL) {
		if (__builtin_add_overflow(at, delta, &next) || next < 0)
			return -EINVAL;
		if (atomic_compare_exchange_weak(&o->position, &at, next))
			return at;
	}
	next = RAW(SYS_lseek, fd, delta, SEEK_CUR);
	return next < 0 ? -errno : next - delta;
}

int64_t ofd_position(struct ofd *o, int fd)
{
	int64_t at = atomic_load(&o->position);
	if (at == POSITION_IN_KERNEL)
		at = RAW(SYS_lseek, fd, 0L, SEEK_CUR);
	return at < 0 ? -errno : at;
}

int ofd_set_position(struct ofd *o, int fd, int64_t position)
{
	int64_t at = atomic_load(&o->position);
	while (at != POSITION_IN_KERNEL)
		if (atomic_compare_exchange_weak(&o->position, &at, position))
			return 0;
	return RAW(SYS_lseek, fd, position, SEEK_SET) < 0 ? -errno : 0;
}

void fd_share_positions(void)
{
	int limit = atomic_load(&fd_limit);
	for (int fd = 0; fd < limit; fd++) {
		struct ofd *o = ofd_get(fd);
		if (!o)
			continue;
		int64_t at = atomic_load(&o->position);
		/* If another thread moves the position meanwhile, the exchange fails and the newer
		 * position is written. */
		while (at != POSITION_IN_KERNEL) {
			RAW(SYS_lseek, fd, at, SEEK_SET);
			if (atomic_compare_exchange_weak(&o->position, &at, POSITION_IN_KERNEL))
				break;
		}
		ofd_put(o);
	}
}
