/* The names of packs and of flat directories in listings of directories.
 *
 * The kernel lists a pack as one hidden file, and of a flat directory the map. Where that comes,
 * its names follow, taken from libplfs at that moment; then the kernel goes on. So a directory
 * without costs one look for a pack. libc's streams and getdents64 alike.
 *
 * A file that outgrows its pack, or that plfs pack or unpack moves, may come to where the kernel's
 * listing has been, and be gone where the pack's is taken. So if there is a pack when a listing
 * begins all names are libplfs's, of one moment. Those of a pack that is made afterwards come as
 * above: plfs pack waits for two seconds before it moves the first file. */
#include "door.h"

#include <limits.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>

/* A listing that has come to the names of a pack: of a stream, or of a descriptor. That of a stream
 * stays until it is rewound or closed, so that a position among the names means the same name
 * whatever is removed meanwhile. */
struct listing {
	DIR *dir;
	int fd;
	plfs_dir *names;
	size_t next;
	/* All were given, or the program went elsewhere: the kernel goes on. */
	bool ended;
	/* All names but "." and ".." are libplfs's. */
	bool whole;
	/* The program went to where the names may come once more. For a moment a flat directory has
	 * two maps, so that they come is no sign of that. */
	bool again;
	/* The kernel's position behind the pack's own name. */
	long behind;
	struct dirent entry;
	struct listing *other;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct listing *all;
static _Atomic int count;

void listing_lock(void)
{
	signals_defer();
	pthread_mutex_lock(&lock);
}

void listing_unlock(void)
{
	pthread_mutex_unlock(&lock);
	signals_resume();
}

/* The listing of a stream, or if `dir` is NULL of a descriptor. A program uses neither in two
 * threads at once. */
static struct listing *find(DIR *dir, int fd)
{
	if (atomic_load_explicit(&count, memory_order_relaxed) == 0 || door_thread.inside)
		return NULL;
	listing_lock();
	struct listing *l = all;
	while (l && (l->dir != dir || (!dir && l->fd != fd)))
		l = l->other;
	listing_unlock();
	return l;
}

static void drop(struct listing *l)
{
	if (!l)
		return;
	listing_lock();
	for (struct listing **p = &all; *p; p = &(*p)->other)
		if (*p == l) {
			*p = l->other;
			atomic_fetch_sub(&count, 1);
			break;
		}
	listing_unlock();
	PLFS(plfs_closedir(l->names));
	free(l);
}

/* The pack's own name has come: its names are next. 1: there are some; 0: it is none; -1 as ever.
 */
static int begin(DIR *dir, int fd, bool whole, struct listing **made)
{
	plfs_dir *names = NULL;
	int saved = errno, rc = PLFS(plfs_door_packed_list(fd, whole, &names));
	if (rc < 0) {
		errno = saved;
		return rc == PLFS_NOT_PACKED ? 0 : (int)to_errno(rc);
	}
	struct listing *l = calloc(1, sizeof *l);
	if (!l) {
		PLFS(plfs_closedir(names));
		errno = ENOMEM;
		return -1;
	}
	l->dir = dir;
	l->fd = fd;
	l->whole = whole;
	l->names = names;
	l->behind = dir ? REAL(telldir)(dir) : 0;
	listing_lock();
	l->other = all;
	all = l;
	atomic_fetch_add(&count, 1);
	listing_unlock();
	*made = l;
	return 1;
}

/* What telldir says among the names of a pack: how many were given. File systems have no positions
 * below 0; ext4's are 63 bits of a hash. */
#define TOLD LONG_MIN

/* The next entry of a pack; NULL behind the last one. */
static struct dirent *next_entry(struct listing *l)
{
	uint64_t ino;
	uint8_t kind;
	const char *name = l->ended ? NULL
				    : PLFS_ALWAYS(plfs_door_packed_name(
					      l->names, l->next, &ino, &kind));
	if (!name) {
		l->ended = true;
		return NULL;
	}
	l->next++;
	size_t len = strnlen(name, NAME_MAX);
	l->entry.d_ino = ino;
	l->entry.d_type = kind;
	l->entry.d_off = TOLD | (long)l->next;
	l->entry.d_reclen = (unsigned short)((offsetof(struct dirent, d_name) + len + 1 + 7) &
					     ~(size_t)7);
	memcpy(l->entry.d_name, name, len);
	l->entry.d_name[len] = 0;
	return &l->entry;
}

/* Is this entry of directory fd to be hidden? Elsewhere a ".plfs" may be anything, so only in
 * managed directories. */
static bool hidden(int fd, const char *name)
{
	return name[0] == '.' && name[1] != 0 && name[1] != '.' && !door_thread.inside &&
	       PLFS_ALWAYS(plfs_door_hidden(name)) && path_is_managed(fd, name);
}

/* Or the map of a flat directory, whose names libplfs gives as well. */
static bool is_pack(const char *name)
{
	int what = PLFS_ALWAYS(plfs_door_hidden(name));
	return what == PLFS_HIDDEN_PACK || what == PLFS_HIDDEN_MAP;
}

/* Has this directory a pack? */
static bool has_pack(int fd)
{
	return !door_thread.inside && PLFS_ALWAYS(plfs_door_has_pack(fd)) &&
	       path_is_managed(fd, "name");
}

/* What the kernel lists and this listing does not give. */
static bool skipped(const struct listing *l, int fd, const char *name)
{
	if (!l || !l->whole)
		return hidden(fd, name);
	return strcmp(name, ".") && strcmp(name, "..");
}

EXPORT struct dirent *readdir(DIR *dir)
{
	struct listing *l = find(dir, -1);
	bool first = (!l || (l->whole && l->again)) && REAL(telldir)(dir) == 0;
	if (first && l) {
		l->next = 0;
		l->ended = l->again = false;
	} else if (first && has_pack(dirfd(dir)) && begin(dir, dirfd(dir), true, &l) < 0) {
		return NULL;
	}
	struct dirent *e = l ? next_entry(l) : NULL;
	while (!e && (e = REAL(readdir)(dir)) && skipped(l, dirfd(dir), e->d_name)) {
		bool pack = is_pack(e->d_name);
		e = NULL;
		if (!pack || (l && l->whole))
			continue;
		if (l && !l->again)
			continue;
		if (!l && begin(dir, dirfd(dir), false, &l) < 0)
			return NULL;
		if (!l)
			continue;
		l->next = 0;
		l->ended = l->again = false;
		e = next_entry(l);
	}
	return e;
}
ALIAS(readdir, readdir64);

EXPORT int readdir_r(DIR *dir, struct dirent *entry, struct dirent **result)
{
	int saved = errno;
	errno = 0;
	struct dirent *e = readdir(dir);
	int rc = e ? 0 : errno;
	errno = saved;
	*result = e ? memcpy(entry, e, e->d_reclen < sizeof *e ? e->d_reclen : sizeof *e) : NULL;
	return rc;
}
ALIAS(readdir_r, readdir64_r);

EXPORT int closedir(DIR *dir)
{
	drop(find(dir, -1));
	return REAL(closedir)(dir);
}

EXPORT void rewinddir(DIR *dir)
{
	drop(find(dir, -1));
	REAL(rewinddir)(dir);
}

EXPORT long telldir(DIR *dir)
{
	struct listing *l = find(dir, -1);
	return l && !l->ended ? TOLD | (long)l->next : REAL(telldir)(dir);
}

/* Begins the names of a stream anew, as readdir does. NULL: it has no pack. */
static struct listing *find_names(DIR *dir)
{
	struct listing *l = NULL;
	struct dirent *e;
	REAL(rewinddir)(dir);
	if (has_pack(dirfd(dir)))
		return begin(dir, dirfd(dir), true, &l) > 0 ? l : NULL;
	while ((e = REAL(readdir)(dir)))
		if (is_pack(e->d_name))
			return begin(dir, dirfd(dir), false, &l) > 0 ? l : NULL;
	return NULL;
}

EXPORT void seekdir(DIR *dir, long position)
{
	struct listing *l = find(dir, -1);
	if (position < 0 && !l && !door_thread.inside)
		l = find_names(dir);
	bool told = l && position < 0;
	if (l)
		l->ended = l->again = !told;
	if (told)
		l->next = (size_t)(position & ~TOLD);
	REAL(seekdir)(dir, told ? l->behind : position);
}

/* Takes hidden entries out of what getdents64 gave. Whether the pack's was among them is in
 * *pack. */
static ssize_t hide_entries(const struct listing *l, int fd, char *buf, ssize_t n, bool *pack)
{
	for (ssize_t at = 0; at < n;) {
		struct dirent64 *e = (struct dirent64 *)(buf + at);
		ssize_t len = e->d_reclen;
		if (skipped(l, fd, e->d_name)) {
			*pack = *pack || is_pack(e->d_name);
			memmove(buf + at, buf + at + len, (size_t)(n - at - len));
			n -= len;
		} else {
			at += len;
		}
	}
	return n;
}

/* Fills a buffer of getdents64 with names of a pack. 0: there are no more. */
static ssize_t fill(struct listing *l, char *buf, size_t room)
{
	size_t used = 0;
	for (;;) {
		struct dirent *e = next_entry(l);
		if (!e)
			return (ssize_t)used;
		if (used + e->d_reclen > room) {
			l->next--;
			return used ? (ssize_t)used : -EINVAL;
		}
		memcpy(buf + used, e, e->d_reclen);
		used += e->d_reclen;
	}
}

EXPORT ssize_t getdents64(int fd, void *buf, size_t room)
{
	for (;;) {
		struct listing *l = find(NULL, fd);
		if (!l && RAW(SYS_lseek, (long)fd, 0L, (long)SEEK_CUR) == 0 && has_pack(fd) &&
			begin(NULL, fd, true, &l) < 0)
			return -1;
		ssize_t n = l ? fill(l, buf, room) : 0;
		if (n != 0)
			return to_errno(n);
		n = REAL(getdents64)(fd, buf, room);
		bool pack = false;
		ssize_t left = n > 0 ? hide_entries(l, fd, buf, n, &pack) : n;
		if (pack && !l && begin(NULL, fd, false, &l) < 0)
			return -1;
		if (n <= 0 || left > 0)
			return left;
	}
}

void listing_forget(int fd)
{
	int saved = errno;
	drop(find(NULL, fd));
	errno = saved;
}

/* libc's own scandir reads the directory without calling the exported readdir. */
EXPORT int scandirat(int at, const char *path, struct dirent ***list,
	int (*wanted)(const struct dirent *),
	int (*compare)(const struct dirent **, const struct dirent **))
{
	int was = errno, fd = door_openat(at, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	if (!dir)
		return -1;
	struct dirent **v = NULL, *e;
	int n = 0, room = 0;
	bool failed = false;
	for (errno = 0; !failed && (e = readdir(dir)); errno = 0) {
		if (wanted && !wanted(e))
			continue;
		if (n == room) {
			struct dirent **more = realloc(
				v, (size_t)(room = room ? 2 * room : 32) * sizeof *v);
			if (!more) {
				failed = true;
				break;
			}
			v = more;
		}
		if ((v[n] = malloc(e->d_reclen)))
			memcpy(v[n++], e, e->d_reclen);
		else
			failed = true;
	}
	int saved = failed ? ENOMEM : errno;
	closedir(dir);
	if (saved) {
		while (n > 0)
			free(v[--n]);
		free(v);
		errno = saved;
		return -1;
	}
	if (n > 0 && compare)
		qsort(v, (size_t)n, sizeof *v, (int (*)(const void *, const void *))compare);
	*list = v;
	return leaving_errno(was, n);
}
ALIAS(scandirat, scandirat64);

EXPORT int scandir(const char *path, struct dirent ***list, int (*wanted)(const struct dirent *),
	int (*compare)(const struct dirent **, const struct dirent **))
{
	return scandirat(AT_FDCWD, path, list, wanted, compare);
}
ALIAS(scandir, scandir64);

static void *glob_open(const char *path)
{
	return opendir(path);
}

static struct dirent *glob_read(void *dir)
{
	return readdir(dir);
}

static void glob_close(void *dir)
{
	closedir(dir);
}

/* libc's glob reads directories by itself, unless it is told by what. */
EXPORT int glob(const char *restrict pattern, int flags, int (*failed)(const char *, int),
	glob_t *restrict found)
{
	if (door_thread.inside || (flags & GLOB_ALTDIRFUNC))
		return REAL(glob)(pattern, flags, failed, found);
	found->gl_opendir = glob_open;
	found->gl_readdir = glob_read;
	found->gl_closedir = glob_close;
	found->gl_stat = stat;
	found->gl_lstat = lstat;
	int rc = REAL(glob)(pattern, flags | GLOB_ALTDIRFUNC, failed, found);
	found->gl_flags &= ~GLOB_ALTDIRFUNC;
	return rc;
}
ALIAS(glob, glob64);
