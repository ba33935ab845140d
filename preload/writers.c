/* Plain files that this process has made, and writes in place: **writers**. Most files are created,
 * written from front to back and closed, and a handle of libplfs was half of what that cost. A
 * writer has none. It keeps what a handle keeps (docs/decisions/0013): its entry in the node's
 * table, from before its first byte on; what it has written since its last look, one piece, and
 * when; its position. write, pwrite and close know it, and do in place what a handle does. Whatever
 * else comes, a call or somebody who shares the file, makes it a handle first, which goes on from
 * there.
 *
 * Who writes holds the writer's lock, and so does who makes it something else: nothing is written
 * in place that the handle does not know. Whoever has taken the lock looks whether the writer is
 * at the number still. Writers are never given back, only reused. */
#include "door.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

struct writer {
	_Atomic uint32_t lock;
	plfs_in_place at;
	int flags;
	int64_t position;
	struct writer *next_free;
};

/* How many there are. */
static _Atomic int count;

/* The process ends: each write is committed by itself. */
static _Atomic bool ending;

/* One that is free, and all others that are. */
static _Atomic(struct writer *) spare;
static struct writer *free_list;

/* What is got from the system at once. */
#define POOL_BYTES 16384

static struct ofd *entry_of(struct writer *w)
{
	return (struct ofd *)((uintptr_t)w | ENTRY_WRITER);
}

static struct writer *writer_of(struct ofd *entry)
{
	return (struct writer *)((uintptr_t)entry & ~(uintptr_t)ENTRY_MARKS);
}

static struct writer *take(void)
{
	struct writer *w = atomic_exchange(&spare, NULL);
	if (w)
		return w;
	fd_lock();
	if (!free_list) {
		struct writer *pool = (struct writer *)RAW(SYS_mmap, NULL, (long)POOL_BYTES,
			(long)(PROT_READ | PROT_WRITE), (long)(MAP_PRIVATE | MAP_ANONYMOUS), -1L,
			0L);
		for (size_t i = 0; pool != MAP_FAILED && i < POOL_BYTES / sizeof *pool; i++) {
			pool[i].next_free = free_list;
			free_list = &pool[i];
		}
	}
	w = free_list;
	if (w)
		free_list = w->next_free;
	fd_unlock();
	return w;
}

static void put(struct writer *w)
{
	w = atomic_exchange(&spare, w);
	if (!w)
		return;
	fd_lock();
	w->next_free = free_list;
	free_list = w;
	fd_unlock();
}

static void give(struct writer *w)
{
	atomic_fetch_sub(&count, 1);
	put(w);
}

#define KNOWN_FLAGS \
	(O_ACCMODE | O_CREAT | O_EXCL | O_TRUNC | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK)

bool writer_may_be(const char *path, int flags)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	return (flags & O_CREAT) && (flags & O_ACCMODE) != O_RDONLY && !(flags & ~KNOWN_FLAGS) &&
	       !atomic_load(&ending) && plfs_door_uses_bases() == 0 &&
	       (*name != '.' || PLFS_ALWAYS(plfs_door_hidden(name)) == 0);
}

/* fd is a new file, of which nobody knows, and w is to be its writer. */
static int begin(struct writer *w, int fd, int flags)
{
	struct stat st;
	if (fd >= FD_TABLE_LEN || RAW(SYS_fstat, (long)fd, &st) < 0) {
		put(w);
		RAW(SYS_close, (long)fd);
		errno = EMFILE;
		return -1;
	}
	w->at = (plfs_in_place){.dev = st.st_dev, .ino = st.st_ino};
	w->flags = flags & ~OPEN_ONLY;
	w->position = 0;
	door_begin_table();
	signals_see_endings();
	word_lock(&w->lock);
	/* Here before it is in the node's table. Who makes a handle on the file enters that there,
	 * and then looks here: one sees the other. */
	atomic_fetch_add(&count, 1);
	fd_install_marked(fd, entry_of(w));
	bool is_writer = door_is_local(fd, st.st_dev) && plfs_door_enter(&w->at) == 1;
	word_unlock(&w->lock);
	if (!is_writer || kernel_is_writer() || atomic_load(&ending)) {
		struct ofd *o = ofd_get(fd);
		if (o) {
			hand_over_new(fd, o);
			ofd_put(o);
		}
	}
	return fd;
}

int writer_create(const char *path, int flags, mode_t mode)
{
	int fd;
	/* What it needs is there before the file is. */
	if (!door_has_room(-1)) {
		errno = EMFILE;
		return -1;
	}
	signals_defer_io();
	struct writer *w = take();
	if (!w) {
		signals_resume_io();
		errno = ENOMEM;
		return -1;
	}
	do
		fd = (int)RAW(SYS_openat, (long)AT_FDCWD, path, (long)(flags | O_EXCL), (long)mode);
	while (fd < 0 && errno == EINTR);
	if (fd >= 0)
		fd = begin(w, fd, flags);
	else
		put(w);
	signals_resume_io();
	return fd;
}

/* May it go on in place without a look? */
static bool goes_on(const struct writer *w)
{
	return w->at.flag && !w->at.must_look &&
	       __atomic_load_n(w->at.flag, __ATOMIC_SEQ_CST) == 0 && plfs_door_uses_bases() == 0;
}

/* The writer of an entry, locked, if the entry is at fd. Who would have to wait makes it a handle,
 * which threads use side by side. */
static struct writer *lock_at(int fd, struct ofd *entry)
{
	struct writer *w = writer_of(entry);
	if (!word_try_lock(&w->lock))
		return NULL;
	if (atomic_load(&fd_table[fd]) == entry)
		return w;
	word_unlock(&w->lock);
	return NULL;
}

static bool write_piece(
	struct writer *w, int fd, const void *buf, size_t n, const off_t *offset, ssize_t *done)
{
	plfs_in_place *at = &w->at;
	int64_t from = offset ? *offset : w->position;
	if (from < 0 || (at->bytes > 0 && (uint64_t)from != at->start + at->bytes))
		return false;
	if (at->bytes == 0) {
		struct timespec now;
		clock_gettime(CLOCK_REALTIME, &now);
		at->since_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
		at->start = (uint64_t)from;
	}
	at->is_written = true;
	/* The kernel's position is the file's, for a thread that writes beside a close. */
	*done = offset ? RAW(SYS_pwrite64, (long)fd, buf, n, from)
		       : RAW(SYS_write, (long)fd, buf, n);
	if (*done <= 0)
		return true;
	at->bytes += (uint64_t)*done;
	if (!offset)
		w->position += *done;
	if (at->bytes >= PLFS_LOOK_BYTES) {
		at->must_look = !door_is_plain(fd);
		at->bytes = at->must_look ? at->bytes : 0;
	}
	return true;
}

bool writer_write(int fd, const void *buf, size_t n, const off_t *offset, ssize_t *done)
{
	struct ofd *entry = atomic_load_explicit(&fd_table[fd], memory_order_acquire);
	if (!entry_is_writer(entry) || n == 0)
		return false;
	if (cancellation_is_used())
		pthread_testcancel();
	signals_defer_io();
	struct writer *w = lock_at(fd, entry);
	bool is_done = w && goes_on(w) && write_piece(w, fd, buf, n, offset, done);
	if (w)
		word_unlock(&w->lock);
	signals_resume_io();
	return is_done;
}

bool writer_seek(int fd, off_t offset, int whence, off_t *at)
{
	struct ofd *entry = atomic_load_explicit(&fd_table[fd], memory_order_acquire);
	if (!entry_is_writer(entry) || (whence != SEEK_SET && whence != SEEK_CUR) ||
		(whence == SEEK_CUR && offset != 0) || offset < 0)
		return false;
	signals_defer_io();
	struct writer *w = lock_at(fd, entry);
	bool is_done = w && (whence == SEEK_CUR ||
				    RAW(SYS_lseek, (long)fd, offset, (long)SEEK_SET) == offset);
	if (is_done) {
		w->position = whence == SEEK_SET ? offset : w->position;
		*at = w->position;
	}
	if (w)
		word_unlock(&w->lock);
	signals_resume_io();
	return is_done;
}

bool writer_close(int fd)
{
	struct ofd *entry = atomic_load_explicit(&fd_table[fd], memory_order_acquire);
	if (!entry_is_writer(entry))
		return false;
	signals_defer_io();
	struct writer *w = lock_at(fd, entry);
	bool is_gone = w && goes_on(w) && !locks_are_used() &&
		       (!w->at.is_written || door_is_plain(fd)) && fd_replace(fd, entry, NULL);
	if (is_gone)
		plfs_door_leave(&w->at);
	if (w)
		word_unlock(&w->lock);
	if (is_gone)
		give(w);
	signals_resume_io();
	/* A handle tells what was written. */
	struct ofd *o = is_gone ? NULL : ofd_get(fd);
	if (o)
		ofd_put(o);
	return is_gone;
}

bool writer_describe(int fd, struct ofd *entry)
{
	DEFER_SIGNALS();
	int saved = errno;
	struct writer *w = writer_of(entry);
	struct ofd *o = NULL;
	plfs_file *file = NULL;
	word_lock(&w->lock);
	bool is_there = atomic_load(&fd_table[fd]) == entry, is_done = !is_there;
	if (is_there && PLFS(plfs_door_write_in_place(fd, w->flags, &w->at, &file)) == 0) {
		/* Entry and piece are the handle's. */
		w->at.flag = NULL;
		w->at.bytes = 0;
		o = ofd_new(file, w->flags, w->position);
		if (!o)
			PLFS(plfs_close(file));
		else if (!(is_done = fd_replace(fd, entry, o)))
			ofd_put(o);
	}
	word_unlock(&w->lock);
	if (is_there && is_done)
		give(w);
	errno = saved;
	return is_done;
}

void writer_forget(struct ofd *entry)
{
	struct writer *w = writer_of(entry);
	word_lock(&w->lock);
	plfs_door_leave(&w->at);
	w->at.flag = NULL;
	word_unlock(&w->lock);
	give(w);
}

void writers_describe(void)
{
	int limit = atomic_load(&count) > 0 ? atomic_load(&fd_limit) : 0;
	for (int fd = 0; fd < limit; fd++) {
		struct ofd *o = fd_is_writer(fd) ? ofd_get(fd) : NULL;
		if (o)
			ofd_put(o);
	}
}

void writers_end(void)
{
	atomic_store(&ending, true);
	writers_describe();
}

/* The child has none: who forks makes them handles before, and what another thread has made since
 * is not the child's. It has the position of no other process. Threads that the child does not have
 * may have locked any of them. The list is whole: fd_lock is held over a fork. */
void writers_after_fork_in_child(void)
{
	atomic_store(&count, 0);
	atomic_store(&spare, NULL);
	for (struct writer *w = free_list; w; w = w->next_free)
		atomic_store(&w->lock, 0);
}
