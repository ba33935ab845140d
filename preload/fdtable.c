/* Descriptor table and open file descriptions. See fdtable.h. */
#include "fdtable.h"

#include "door.h"
#include "word_lock.h"

#include <errno.h>
#include <sched.h>

_Atomic(struct ofd *) fd_table[FD_TABLE_LEN];
_Atomic int fd_limit;
_Atomic unsigned fd_installs;

static _Atomic uint32_t free_lock, number_lock;
static struct ofd *free_list;

static _Atomic unsigned forks, descriptors, entries_with_logs;

/* The number of the next reader, and what that was before the last fork. */
static _Atomic uintptr_t next_reader = 1;
static uintptr_t reader_at_fork;

void fd_hold_numbers(void)
{
	signals_defer();
	word_lock(&number_lock);
}

void fd_release_numbers(void)
{
	word_unlock(&number_lock);
	signals_resume();
}

bool fd_is_at(int fd, struct ofd *o)
{
	return atomic_load(&fd_table[fd]) == o;
}

void fd_lock(void)
{
	signals_defer();
	word_lock(&free_lock);
}

void fd_unlock(void)
{
	word_unlock(&free_lock);
	signals_resume();
}

/* Bytes that are got from the system at once; not from malloc, which a handler of a signal may have
 * interrupted. */
#define POOL_BYTES 16384

/* The lock is held. */
static struct ofd *take_entry(void)
{
	if (!free_list) {
		struct ofd *pool = (struct ofd *)RAW(SYS_mmap, NULL, (long)POOL_BYTES,
			(long)(PROT_READ | PROT_WRITE), (long)(MAP_PRIVATE | MAP_ANONYMOUS), -1L,
			0L);
		for (size_t i = 0; pool != MAP_FAILED && i < POOL_BYTES / sizeof *pool; i++) {
			pool[i].next_free = free_list;
			free_list = &pool[i];
		}
	}
	struct ofd *o = free_list;
	if (o)
		free_list = o->next_free;
	return o;
}

/* The lock is held: others only read it. */
static void count(_Atomic unsigned *all, unsigned more)
{
	unsigned n = atomic_load_explicit(all, memory_order_relaxed);
	atomic_store_explicit(all, n + more, memory_order_relaxed);
}

/* The lock is held. */
static struct ofd *new_entry(plfs_file *file, struct description *shared)
{
	struct ofd *o = take_entry();
	if (!o)
		return NULL;
	o->file = file;
	o->shared = shared;
	o->forks = atomic_load(&forks) - 1;
	o->is_packed = shared->packed.length > 0;
	o->has_logs = o->is_packed || !OFD_IS_PLAIN(o);
	o->descriptors = !o->has_logs || o->is_packed		  ? 0
			 : (ofd_flags(o) & O_ACCMODE) == O_RDONLY ? 1
								  : 2;
	count(&descriptors, o->descriptors);
	count(&entries_with_logs, o->has_logs);
	/* Others see it when it is in the table. */
	atomic_store_explicit(&o->refs, 1, memory_order_relaxed);
	return o;
}

struct ofd *ofd_new_shared(plfs_file *file, struct description *shared)
{
	fd_lock();
	struct ofd *o = new_entry(file, shared);
	fd_unlock();
	return o;
}

struct ofd *ofd_new(plfs_file *file, int flags, int64_t position)
{
	plfs_packed packed;
	packed.length = 0;
	PLFS(plfs_door_packed(file, &packed));
	fd_lock();
	struct description *d = description_new(flags, position, &packed);
	struct ofd *o = d ? new_entry(file, d) : NULL;
	if (o)
		o->forks++;
	else if (d)
		description_free(d, false);
	fd_unlock();
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
		if (entry_is_reader(o)) {
			if (!door_describe_reader(fd, o))
				return NULL;
			continue;
		}
		if (entry_is_writer(o)) {
			if (!writer_describe(fd, o))
				return NULL;
			continue;
		}
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

struct ofd *container_at(int fd)
{
	return fd_is_container(fd) && !fd_is_marked(fd) ? ofd_get(fd) : NULL;
}

bool fd_is_packed(int fd)
{
	bool may_be = fd_is_container(fd) && !fd_is_marked(fd) && !door_thread.inside;
	struct ofd *o = may_be ? ofd_get(fd) : NULL;
	bool yes = o && o->is_packed;
	if (o)
		ofd_put(o);
	return yes;
}

/* Its last reference has been given back. */
int ofd_close(struct ofd *o)
{
	int rc = PLFS(plfs_close(o->file));
	fd_lock();
	count(&descriptors, -o->descriptors);
	count(&entries_with_logs, -(unsigned)o->has_logs);
	description_free(o->shared, o->forks != atomic_load(&forks));
	o->file = NULL;
	o->shared = NULL;
	o->next_free = free_list;
	free_list = o;
	fd_unlock();
	return rc;
}

/* The numbers are held: a child of a fork looks at all entries below it. */
static void raise_limit(int fd)
{
	if (atomic_load(&fd_limit) <= fd)
		atomic_store(&fd_limit, fd + 1);
}

/* What was in the table, if there is a reference to be given back. */
static struct ofd *with_reference(struct ofd *was)
{
	if (entry_is_writer(was))
		writer_forget(was);
	return entry_is_marked(was) ? NULL : was;
}

void fd_install_marked(int fd, struct ofd *entry)
{
	if (atomic_load(&fd_limit) <= fd) {
		fd_hold_numbers();
		raise_limit(fd);
		fd_release_numbers();
	}
	struct ofd *stale = with_reference(atomic_exchange(&fd_table[fd], entry));
	if (stale)
		ofd_put(stale);
}

void fd_install_reader(int fd)
{
	uintptr_t reader = atomic_fetch_add_explicit(&next_reader, 2, memory_order_relaxed);
	fd_install_marked(fd, (struct ofd *)reader);
}

bool fd_replace(int fd, struct ofd *marked, struct ofd *o)
{
	bool done = atomic_compare_exchange_strong(&fd_table[fd], &marked, o);
	if (done && o)
		atomic_fetch_add(&fd_installs, 1);
	return done;
}

struct ofd *fd_install_held(int fd, struct ofd *o)
{
	raise_limit(fd);
	struct ofd *was = with_reference(atomic_exchange(&fd_table[fd], o));
	/* After it: who has seen the old number finds another one when the kernel has the new file.
	 */
	atomic_fetch_add(&fd_installs, 1);
	return was;
}

void fd_install(int fd, struct ofd *o)
{
	fd_hold_numbers();
	struct ofd *stale = fd_install_held(fd, o);
	fd_release_numbers();
	if (stale)
		ofd_put(stale);
}

struct ofd *fd_remove_held(int fd)
{
	return fd_is_container(fd) ? with_reference(atomic_exchange(&fd_table[fd], NULL)) : NULL;
}

struct ofd *fd_remove(int fd)
{
	if (!fd_is_container(fd))
		return NULL;
	fd_hold_numbers();
	struct ofd *o = fd_remove_held(fd);
	fd_release_numbers();
	return o;
}

unsigned ofd_descriptors(void)
{
	/* Else one that is plain as far as its entry knows may have a container by now. */
	bool are_plain = atomic_load(&entries_with_logs) == 0 && plfs_door_uses_bases() == 0;
	return are_plain ? 0 : PLFS_LOG_DESCRIPTORS + atomic_load(&descriptors);
}

/* The position of a placeholder that went in a message says more than that (PLFS_PASSED). */
#define PASSED_POSITION (((int64_t)1 << PLFS_PASSED_NOTE) - 1)

/* lseek of fd while o is there. */
static int64_t seek_in_kernel(struct ofd *o, int fd, int64_t offset, int whence)
{
	fd_hold_numbers();
	int64_t at = OFD_IS_GONE, passed = 0;
	if (fd_is_at(fd, o)) {
		if (o->is_packed)
			passed = RAW(SYS_lseek, (long)fd, 0L, (long)SEEK_CUR) & ~PASSED_POSITION;
		if (whence == SEEK_SET)
			offset = passed && offset > PASSED_POSITION ? -1 : passed | offset;
		at = RAW(SYS_lseek, (long)fd, offset, (long)whence);
		at = at < 0 ? -errno : at & ~passed;
	}
	fd_release_numbers();
	return at;
}

/* Can fd write? Then it is no placeholder: of a file that has a container it writes the base, and
 * the position in it is that of who has not noticed. No other program gets it (hand_over). */
static bool writes_base(int fd)
{
	return (RAW(SYS_fcntl, (long)fd, (long)F_GETFL) & O_ACCMODE) != O_RDONLY;
}

/* A placeholder that came in the place of a plain file (hand_over) may have gone in a message: who
 * got it has his position there, while the sender's stays in memory. So who writes another one
 * there takes a new placeholder first, as our children may have the same. 0, or a negative errno:
 * there is no room for one. The numbers are held. */
static int take_own_placeholder(int fd, struct ofd *o)
{
	bool is_one = atomic_load(&o->shared->is_sent) && !writes_base(fd);
	return is_one ? make_placeholder(fd) : 0;
}

void fd_park_held(int fd, struct ofd *o)
{
	/* hand_over has parked what it replaced. Who got that in a message has his position there.
	 */
	if (!OFD_IS_PLAIN(o) && fd_is_at(fd, o) && !atomic_load(&o->shared->is_replaced) &&
		atomic_load(&o->shared->position) != POSITION_IN_KERNEL &&
		!description_is_tagged(fd))
		RAW(SYS_lseek, (long)fd, PLACEHOLDER_POSITION, (long)SEEK_SET);
}

int64_t ofd_kernel_position(struct ofd *o, int fd)
{
	return seek_in_kernel(o, fd, 0, SEEK_CUR);
}

int64_t ofd_move_kernel_position(struct ofd *o, int fd, int64_t by)
{
	return seek_in_kernel(o, fd, by, SEEK_CUR);
}

int ofd_set_kernel_position(struct ofd *o, int fd, int64_t position)
{
	int64_t at = seek_in_kernel(o, fd, position, SEEK_SET);
	/* What moved it is done. Other programs that share it are told by the next one. */
	if (at == OFD_IS_GONE) {
		atomic_store(&o->shared->position, position);
		return 0;
	}
	return at < 0 ? (int)at : 0;
}

void ofd_set_flags(struct ofd *o, int flags)
{
	/* Not O_ASYNC, which regular files leave out. */
	int settable = O_APPEND | O_NONBLOCK | O_NOATIME | O_DIRECT;
	int old = ofd_flags(o);
	while (!atomic_compare_exchange_weak(
		&o->shared->flags, &old, (old & ~settable) | (flags & settable)))
		;
}

void ofd_learn_kernel_flags(struct ofd *o, int fd)
{
	/* The placeholder of a container that went in a message has those of F_SETFL; not what it
	 * came in the place of. */
	if (atomic_load(&o->shared->is_sent) && writes_base(fd))
		return;
	const int kernels = OFD_IS_PLAIN(o) ? ~0 : O_APPEND | O_NONBLOCK;
	fd_hold_numbers();
	int flags = fd_is_at(fd, o) ? (int)RAW(SYS_fcntl, (long)fd, (long)F_GETFL) : -1;
	fd_release_numbers();
	if (flags >= 0)
		ofd_set_flags(o, (flags & kernels) | (ofd_flags(o) & ~kernels));
}

void fd_count_fork(void)
{
	atomic_fetch_add(&forks, 1);
}

void fd_before_fork(void)
{
	fd_hold_numbers();
	reader_at_fork = atomic_load(&next_reader);
}

/* Marks are put into the table without a lock, and the kernel copies descriptors before memory. So
 * what another thread has opened meanwhile the child may have in its table and not open, or with
 * what was at the number before. None of it is the child's, and so no writer is (writers.c). */
void fd_after_fork_in_child(void)
{
	int limit = atomic_load(&fd_limit);
	for (int fd = 0; fd < limit; fd++) {
		struct ofd *entry = atomic_load(&fd_table[fd]);
		if (entry_is_writer(entry) ||
			(entry_is_reader(entry) && (uintptr_t)entry >= reader_at_fork))
			atomic_store(&fd_table[fd], NULL);
	}
}

/* A placeholder without a tag says how its file is open by the signal of F_SETSIG, which has no
 * other use for a regular file: the last one is O_RDWR's. */
#define ACCESS_SIGNAL 62

int fd_access_said(int fd)
{
	long signal = RAW(SYS_fcntl, (long)fd, (long)F_GETSIG);
	return signal < ACCESS_SIGNAL ? -1 : (int)(signal - ACCESS_SIGNAL) & O_ACCMODE;
}

/* Another program gets fd: by its tag it finds the description, and with that the position. What is
 * in the descriptor of a plain file is the file, for programs without us, too; and who got a
 * container from such a program shares its position with it. Those are the kernel's, and stay
 * there: others look there. Without a tag the other program finds the file by its stat or
 * attribute. */
static int share_position(struct ofd *o, int fd, bool is_plain, bool by_tag)
{
	struct description *d = o->shared;
	int64_t at = atomic_load(&d->position);
	int rc = at == POSITION_IN_KERNEL ? 0 : take_own_placeholder(fd, o);
	if (at == POSITION_IN_KERNEL || rc < 0 || (!is_plain && writes_base(fd)))
		return rc;
	if ((by_tag && description_tag(d, fd)) ||
		RAW(SYS_lseek, (long)fd, at, (long)SEEK_SET) != at)
		return 0;
	if (!is_plain)
		RAW(SYS_fcntl, (long)fd, (long)F_SETSIG,
			(long)(ACCESS_SIGNAL + (ofd_flags(o) & O_ACCMODE)));
	if (!atomic_load(&d->is_replaced))
		atomic_store(&d->position, POSITION_IN_KERNEL);
	else if (!by_tag)
		atomic_store(&d->is_sent, true);
	return 0;
}

int fd_give_position(int fd, struct ofd *o)
{
	bool is_plain = OFD_IS_PLAIN(o);
	fd_hold_numbers();
	int rc = fd_is_at(fd, o) ? share_position(o, fd, is_plain, false) : 0;
	fd_release_numbers();
	return rc;
}

int64_t fd_pass_packed(int fd, struct ofd *o)
{
	int64_t at = atomic_load(&o->shared->position);
	if (at == POSITION_IN_KERNEL)
		return 0;
	at = PLFS(plfs_door_packed_pass(o->file, fd, ofd_flags(o), at));
	if (at < 0)
		return at;
	fd_hold_numbers();
	if (fd_is_at(fd, o) && RAW(SYS_lseek, (long)fd, at, (long)SEEK_SET) == at)
		atomic_store(&o->shared->position, POSITION_IN_KERNEL);
	fd_release_numbers();
	return 0;
}

int fd_share_descriptions(void)
{
	fd_count_fork();
	description_is_looked_for();
	int limit = atomic_load(&fd_limit), failed = 0;
	for (int fd = 0; fd < limit; fd++) {
		/* The position of a reader is the kernel's as it is. */
		struct ofd *o = fd_is_reader(fd) ? NULL : ofd_get(fd);
		if (!o)
			continue;
		/* A handler that writes to it would wait for this thread for ever. */
		DEFER_SIGNALS();
		bool is_plain = OFD_IS_PLAIN(o);
		description_share(o->shared);
		description_lock(o->shared);
		fd_hold_numbers();
		int rc = fd_is_at(fd, o) ? share_position(o, fd, is_plain, !is_plain) : 0;
		fd_release_numbers();
		failed = failed ? failed : rc;
		description_unlock(o->shared);
		ofd_put(o);
	}
	description_inherit(true);
	return failed;
}

void fd_shared_descriptions(void)
{
	description_inherit(false);
}
