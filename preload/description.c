/* Open file descriptions in shared memory. See description.h. */
#include "description.h"

#include "door.h"

#include <linux/futex.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

/* Bytes of a process's first arena, and of those it makes when it is full. Two sizes, so that few
 * need a descriptor. RLIMIT_FSIZE counts for files in memory, too: if one cannot be made the arena
 * is memory that only children share. */
#define ARENA_FIRST ((size_t)256 << 10)
#define ARENA_MORE ((size_t)4 << 20)

/* The most arenas that a process uses: its own, and those of ancestors that it has files of. */
#define ARENAS_MAX 256

#define ARENA_NAME "plfs-descriptions"

static const char magic[8] = "plfsofd2";

/* The first description's place in an arena. */
struct head {
	char magic[sizeof magic];
	uint32_t id;
	/* Not 0: who gets the arena by exec has had locks of descriptions (lock.c). */
	_Atomic uint32_t has_locks;
};

_Static_assert(sizeof(struct description) >= sizeof(struct head), "the head takes one place");

struct arena {
	_Atomic int fd; /* -1: memory without a descriptor */
	bool is_own;	/* made by this process */
	bool is_used;	/* keep_used leaves it */
	uint32_t id;
	uint32_t places;
	struct description *base;
};

static struct arena arenas[ARENAS_MAX];
static _Atomic int arena_count;
/* Which of them is this process's own to take descriptions from, -1 while there is none; the first
 * place that never was used, and the first free one. */
static int own = -1;
static uint32_t unused, free_place;
/* Whose table the arenas' descriptors are in. */
static pid_t process;
/* Forks under way in this process: what is made meanwhile the child may have. */
static _Atomic int forking;
/* Programs that threads are about to start: as long as there are any, exec leaves arenas open. */
static int inheriting;

/* A tag is a position that every file system takes: below 2^41 (ext3 ends at 2 TiB). It has the
 * arena's id, 24 bits, and the place, 16 bits. */
#define TAG_BIT ((int64_t)1 << 40)
#define TAG_ID_MAX ((1 << 24) - 1)
#define TAG_PLACES ((uint32_t)1 << 16)

static struct arena *arena_of(const struct description *d)
{
	for (int i = atomic_load(&arena_count); i-- > 0;)
		if (arenas[i].base && d >= arenas[i].base && d < arenas[i].base + arenas[i].places)
			return &arenas[i];
	return NULL;
}

bool description_owns_fd(int fd)
{
	for (int i = atomic_load(&arena_count); i-- > 0;)
		if (arenas[i].fd == fd && fd >= 0)
			return true;
	return false;
}

/* Out of the way of the program's low numbers, where libplfs has its own: from half of the limit
 * on, 1,024 at most. */
static int move_up(int fd)
{
	struct rlimit limit;
	if (RAW(SYS_prlimit64, 0L, (long)RLIMIT_NOFILE, NULL, &limit) < 0)
		return fd;
	long least = limit.rlim_cur / 2 < 1024 ? (long)(limit.rlim_cur / 2) : 1024;
	long high = RAW(SYS_fcntl, (long)fd, (long)F_DUPFD_CLOEXEC, least);
	if (high < 0 && fd > 2)
		return fd;
	if (high < 0)
		high = RAW(SYS_fcntl, (long)fd, (long)F_DUPFD_CLOEXEC, 3L);
	RAW(SYS_close, (long)fd);
	return (int)high;
}

/* Other programs may look for descriptions of this process: it has made some. Set with the lock
 * held, before the first tag. */
static _Atomic bool is_looked_for;

/* The own arenas have lost their descriptors. Files that are opened later get an arena with one, if
 * there is much room; not for ever, as each takes an arena. */
static bool wants_file;
static int given_up;
#define GIVEN_UP_MAX 8
#define MUCH_ROOM 16

/* A child after vfork has its parent's memory, and a table of its own. The lock is held. */
static bool is_of_process(const struct arena *a)
{
	return process == (pid_t)RAW(SYS_getpid) && atomic_load(&a->fd) >= 0;
}

/* Goes on without the descriptors of own arenas: with the number `only`, which the caller closes,
 * or all, which are closed. The lock is held, and the numbers (plfs_door_hold_numbers). */
static bool give_up(int only)
{
	bool gives = false;
	for (int i = atomic_load(&arena_count); !atomic_load(&is_looked_for) && i-- > 0;) {
		struct arena *a = &arenas[i];
		if (!a->is_own || !is_of_process(a) || (only >= 0 && atomic_load(&a->fd) != only))
			continue;
		int fd = atomic_exchange(&a->fd, -1);
		if (only < 0)
			RAW(SYS_close, (long)fd);
		gives = true;
	}
	if (gives)
		wants_file = given_up++ < GIVEN_UP_MAX;
	return gives;
}

bool description_gives_up(void)
{
	if (atomic_load(&is_looked_for))
		return false;
	fd_lock();
	bool is_held = plfs_door_hold_numbers(), gives = is_held && give_up(-1);
	if (is_held)
		plfs_door_release_numbers();
	fd_unlock();
	return gives;
}

bool description_leaves(int fd)
{
	bool is_left = false;
	for (int i = atomic_load(&arena_count); i-- > 0 && !is_left;) {
		struct arena *a = &arenas[i];
		if (!is_of_process(a) || atomic_load(&a->fd) != fd)
			continue;
		int other = (int)RAW(SYS_fcntl, (long)fd, (long)F_DUPFD_CLOEXEC, 3L);
		is_left = other >= 0;
		if (is_left)
			atomic_store(&a->fd, move_up(other));
		if (is_left && inheriting > 0)
			RAW(SYS_fcntl, (long)a->fd, (long)F_SETFD, 0L);
	}
	return is_left || give_up(fd);
}

static bool has_much_room(void)
{
	struct rlimit limit;
	return RAW(SYS_prlimit64, 0L, (long)RLIMIT_NOFILE, NULL, &limit) == 0 &&
	       RAW(SYS_fcntl, (long)limit.rlim_cur - MUCH_ROOM, (long)F_GETFD) < 0;
}

/* A file of this length in memory. -1: there can be none. */
static int make_file(size_t bytes)
{
	int fd = (int)RAW(SYS_memfd_create, ARENA_NAME, (long)MFD_CLOEXEC);
	if (fd < 0)
		return -1;
	struct rlimit limit;
	/* Past it ftruncate would be SIGXFSZ. */
	if (RAW(SYS_prlimit64, 0L, (long)RLIMIT_FSIZE, NULL, &limit) < 0 ||
		limit.rlim_cur < bytes || RAW(SYS_ftruncate, (long)fd, (long)bytes) < 0) {
		RAW(SYS_close, (long)fd);
		return -1;
	}
	return move_up(fd);
}

/* Adds an arena of our own and takes descriptions from it. The lock is held. `with_file`: not
 * without a descriptor. */
static bool add_arena(bool with_file)
{
	int count = atomic_load(&arena_count);
	if (count == ARENAS_MAX)
		return false;
	size_t bytes = own < 0 ? ARENA_FIRST : ARENA_MORE;
	int fd = make_file(bytes);
	if (fd < 0 && with_file)
		return false;
	void *base = (void *)RAW(SYS_mmap, NULL, bytes, (long)(PROT_READ | PROT_WRITE),
		(long)(MAP_SHARED | (fd < 0 ? MAP_ANONYMOUS : 0)), (long)fd, 0L);
	if (base == MAP_FAILED) {
		if (fd >= 0)
			RAW(SYS_close, (long)fd);
		return false;
	}
	struct stat st = {0};
	if (fd >= 0)
		REAL(fstat)(fd, &st);
	struct head *head = base;
	memcpy(head->magic, magic, sizeof magic);
	head->id = (uint32_t)st.st_ino & TAG_ID_MAX;
	uint32_t places = (uint32_t)(bytes / sizeof(struct description));
	arenas[count] = (struct arena){.fd = fd,
		.is_own = true,
		.id = head->id,
		.places = places < TAG_PLACES ? places : TAG_PLACES,
		.base = base};
	process = (pid_t)RAW(SYS_getpid);
	own = count;
	unused = 1;
	free_place = 0;
	atomic_store(&arena_count, count + 1);
	return true;
}

void word_wait(_Atomic uint32_t *lock)
{
	int saved = errno;
	while (atomic_exchange(lock, 2) != 0)
		RAW(SYS_futex, lock, (long)FUTEX_WAIT_PRIVATE, 2L, NULL);
	/* A read at the end of a file leaves it as it was: programs look there. */
	errno = saved;
}

void word_wake(_Atomic uint32_t *lock)
{
	RAW(SYS_futex, lock, (long)FUTEX_WAKE_PRIVATE, 1L);
}

/* Others have it: own_lock, which is held and with which only threads of one process can wait for
 * each other, is nobody's any more. */
static void share_and_unlock(struct description *d)
{
	if (!atomic_load(&d->is_shared)) {
		pthread_mutexattr_t kind;
		pthread_mutexattr_init(&kind);
		pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
		pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
		pthread_mutex_init(&d->lock, &kind);
		pthread_mutexattr_destroy(&kind);
		atomic_store(&d->is_shared, true);
	}
	word_unlock(&d->own_lock);
}

void description_share(struct description *d)
{
	if (atomic_load_explicit(&d->is_shared, memory_order_acquire))
		return;
	word_lock(&d->own_lock);
	share_and_unlock(d);
}

/* The same with fd_lock, which is not held while another thread has own_lock: that one may wait for
 * the numbers, and who has those for fd_lock (dup_to_number). */
static void share_without_waiting(struct description *d)
{
	while (!atomic_load_explicit(&d->is_shared, memory_order_acquire)) {
		if (word_try_lock(&d->own_lock)) {
			share_and_unlock(d);
			return;
		}
		fd_unlock();
		word_lock(&d->own_lock);
		word_unlock(&d->own_lock);
		fd_lock();
	}
}

struct description *description_new(int flags, int64_t position, const plfs_packed *packed)
{
	struct description *d = NULL;
	if (wants_file && has_much_room())
		wants_file = !add_arena(true);
	if ((own >= 0 && (free_place || unused < arenas[own].places)) || add_arena(false)) {
		d = arenas[own].base + (free_place ? free_place : unused);
		if (free_place)
			free_place = d->next_free;
		else
			unused++;
	}
	if (!d)
		return NULL;
	/* Others see it when it is in the table, and a fork has the lock. */
	atomic_store_explicit(&d->own_lock, 0, memory_order_relaxed);
	atomic_store_explicit(&d->is_shared, false, memory_order_relaxed);
	if (atomic_load(&forking))
		description_share(d);
	if (packed->length > 0)
		d->packed = *packed;
	else
		d->packed.length = 0;
	atomic_store_explicit(&d->flags, flags, memory_order_relaxed);
	atomic_store_explicit(&d->is_replaced, false, memory_order_relaxed);
	atomic_store_explicit(&d->is_sent, false, memory_order_relaxed);
	atomic_store_explicit(&d->position, position, memory_order_relaxed);
	return d;
}

void description_free(struct description *d, bool shared)
{
	/* A thread that starts a program may have shared it since it was made. */
	if (shared || atomic_load(&d->is_shared))
		return;
	/* Of an arena before the own one: it was full, and is not looked at again. */
	if (own >= 0 && arena_of(d) == &arenas[own]) {
		d->next_free = free_place;
		free_place = (uint32_t)(d - arenas[own].base);
	}
}

int64_t description_tag_of(const struct description *d)
{
	struct arena *a = arena_of(d);
	return a && a->fd >= 0 ? TAG_BIT | (int64_t)a->id << 16 | (d - a->base) : -1;
}

bool description_tag_lock(struct description *d, int lock_fd)
{
	int64_t tag = description_tag_of(d);
	return tag >= 0 && RAW(SYS_lseek, (long)lock_fd, tag, (long)SEEK_SET) == tag;
}

bool description_tag(struct description *d, int fd)
{
	struct stat st;
	if (description_tag_of(d) < 0 || REAL(fstat)(fd, &st) < 0)
		return false;
	d->dev = st.st_dev;
	d->ino = st.st_ino;
	return description_tag_lock(d, fd);
}

/* The position of fd if it may be a tag, else -1. */
static int64_t tag_of(int fd)
{
	int64_t at = RAW(SYS_lseek, (long)fd, 0L, (long)SEEK_CUR);
	return at >= TAG_BIT && at < 2 * TAG_BIT ? at : -1;
}

bool description_is_tagged(int fd)
{
	return tag_of(fd) >= 0;
}

struct description *description_of(int fd)
{
	struct stat st;
	int64_t tag = tag_of(fd);
	if (tag < 0 || REAL(fstat)(fd, &st) < 0)
		return NULL;
	uint32_t id = (uint32_t)(tag >> 16) & TAG_ID_MAX, place = (uint32_t)tag & (TAG_PLACES - 1);
	for (int i = atomic_load(&arena_count); i-- > 0;) {
		struct arena *a = &arenas[i];
		if (a->id != id || place == 0 || place >= a->places)
			continue;
		if (!a->base) {
			long base = RAW(SYS_mmap, NULL, a->places * sizeof *a->base,
				(long)(PROT_READ | PROT_WRITE), (long)MAP_SHARED, (long)a->fd, 0L);
			if (base == -1)
				return NULL;
			a->base = (struct description *)base;
		}
		struct description *d = a->base + place;
		if (d->dev == st.st_dev && d->ino == st.st_ino)
			return d;
	}
	return NULL;
}

bool description_take_arena(int fd)
{
	struct stat st;
	struct head head;
	int count = atomic_load(&arena_count);
	if (count == ARENAS_MAX || REAL(fstat)(fd, &st) < 0 || !S_ISREG(st.st_mode) ||
		st.st_nlink != 0 || (st.st_size != ARENA_FIRST && st.st_size != ARENA_MORE) ||
		RAW(SYS_pread64, (long)fd, &head, sizeof head, 0L) != sizeof head ||
		memcmp(head.magic, magic, sizeof magic) != 0)
		return false;
	if (head.has_locks)
		ofd_locks_begin();
	RAW(SYS_fcntl, (long)fd, (long)F_SETFD, (long)FD_CLOEXEC);
	uint32_t places = (uint32_t)((size_t)st.st_size / sizeof(struct description));
	arenas[count] = (struct arena){
		.fd = fd, .id = head.id, .places = places < TAG_PLACES ? places : TAG_PLACES};
	process = (pid_t)RAW(SYS_getpid);
	atomic_store(&arena_count, count + 1);
	return true;
}

void description_take_arena_at(const char *path)
{
	static const char IS_ARENA[] = "/memfd:" ARENA_NAME " (deleted)";
	char target[sizeof IS_ARENA];
	long n = RAW(SYS_readlinkat, AT_FDCWD, path, target, sizeof target);
	if (n != sizeof IS_ARENA - 1 || memcmp(target, IS_ARENA, (size_t)n) != 0)
		return;
	int fd = (int)RAW(SYS_openat, AT_FDCWD, path, (long)(O_RDWR | O_CLOEXEC));
	fd = fd < 0 ? fd : move_up(fd);
	if (fd >= 0 && !description_take_arena(fd))
		RAW(SYS_close, (long)fd);
}

/* The others go. */
static void keep_used(void)
{
	int kept = 0;
	for (int i = 0; i < atomic_load(&arena_count); i++) {
		struct arena *a = &arenas[i];
		if (a->is_used) {
			own = own == i ? kept : own;
			arenas[kept++] = *a;
			continue;
		}
		if (a->base)
			RAW(SYS_munmap, a->base, a->places * sizeof *a->base);
		if (a->fd >= 0)
			RAW(SYS_close, (long)a->fd);
	}
	atomic_store(&arena_count, kept);
}

void description_drop_unused(void)
{
	for (int i = atomic_load(&arena_count); i-- > 0;)
		arenas[i].is_used = arenas[i].base;
	keep_used();
}

void description_is_looked_for(void)
{
	fd_lock();
	atomic_store(&is_looked_for, true);
	fd_unlock();
}

void description_inherit(bool yes)
{
	fd_lock();
	inheriting += yes ? 1 : -1;
	for (int i = atomic_load(&arena_count); (yes || inheriting == 0) && i-- > 0;) {
		struct arena *a = &arenas[i];
		if (yes && a->base && ofd_locks_are_used())
			atomic_store(&((struct head *)a->base)->has_locks, 1);
		if (a->fd >= 0)
			RAW(SYS_fcntl, (long)a->fd, (long)F_SETFD, (long)(yes ? 0 : FD_CLOEXEC));
	}
	fd_unlock();
}

void description_before_fork(void)
{
	fd_lock();
	atomic_store(&is_looked_for, true);
	atomic_fetch_add(&forking, 1);
	for (int i = atomic_load(&arena_count); i-- > 0;) {
		struct arena *a = &arenas[i];
		uint32_t used = i == own ? unused : a->places;
		for (uint32_t place = 1; a->is_own && place < used; place++)
			share_without_waiting(a->base + place);
	}
	fd_unlock();
}

void description_after_fork(void)
{
	atomic_fetch_sub(&forking, 1);
}

static void keep_those_with_files(void)
{
	for (int i = atomic_load(&arena_count); i-- > 0;)
		arenas[i].is_used = false;
	for (int fd = atomic_load(&fd_limit); fd-- > 0;) {
		struct ofd *o = atomic_load(&fd_table[fd]);
		struct arena *a = o && !entry_is_marked(o) ? arena_of(o->shared) : NULL;
		if (a)
			a->is_used = true;
	}
	keep_used();
}

void description_after_fork_in_child(void)
{
	own = -1;
	inheriting = 0;
	process = (pid_t)RAW(SYS_getpid);
	for (int i = atomic_load(&arena_count); i-- > 0;)
		arenas[i].is_own = false;
	if (atomic_load(&arena_count) >= ARENAS_MAX / 2)
		keep_those_with_files();
	atomic_store(&forking, 0);
}

void description_wait(struct description *d, bool has_own_lock)
{
	if (has_own_lock || !atomic_load_explicit(&d->is_shared, memory_order_acquire)) {
		if (!has_own_lock)
			word_lock(&d->own_lock);
		if (!atomic_load_explicit(&d->is_shared, memory_order_acquire))
			return;
		word_unlock(&d->own_lock);
	}
	/* What the one before did not finish is a position that has not moved. */
	if (pthread_mutex_lock(&d->lock) == EOWNERDEAD)
		pthread_mutex_consistent(&d->lock);
}

void description_unlock_shared(struct description *d)
{
	pthread_mutex_unlock(&d->lock);
}
