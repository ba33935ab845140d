/* Opening, closing and duplicating descriptors. */
#include "door.h"

#include <linux/kcmp.h>
#include <linux/openat2.h>
#include <sched.h>
#include <stdarg.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/sysmacros.h>

void door_begin_table(void)
{
	if (atomic_load(&fd_limit) == 0) {
		DEFER_SIGNALS();
		signals_see_faults();
		stdio_take_over();
		learn_size_limit();
	}
}

/* Makes fd, which libplfs opened as `file`, a container of the table: with the description that
 * other processes have, or a new one of an open with `flags`. On failure both are gone. */
static int install(int fd, plfs_file *file, struct description *shared, int flags)
{
	struct ofd *o = fd >= FD_TABLE_LEN ? NULL
			: shared	   ? ofd_new_shared(file, shared)
					   : ofd_new(file, flags & ~OPEN_ONLY, 0);
	if (!o) {
		PLFS(plfs_close(file));
		RAW(SYS_close, fd);
		errno = fd < FD_TABLE_LEN ? ENOMEM : EMFILE;
		return -1;
	}
	door_begin_table();
	hand_over_new(fd, o);
	fd_install(fd, o);
	/* Descriptors of one file know of each other in libplfs. */
	if ((ofd_flags(o) & O_ACCMODE) != O_RDONLY) {
		signals_see_endings();
		writers_describe();
	}
	return fd;
}

bool door_has_room(int fd)
{
	unsigned spare = ofd_descriptors();
	return spare == 0 || PLFS_ALWAYS(plfs_door_has_room(fd, spare)) != 0;
}

static int opened_by_door(int fd, plfs_file *file, int flags)
{
	if (fd < 0)
		return (int)to_errno(fd);
	door_forget(fd);
	if (!file)
		return fd;
	return install(fd, file, NULL, flags);
}

bool door_is_local(int fd, dev_t dev)
{
	static _Atomic dev_t known[2];
	for (int yes = 0; yes < 2; yes++)
		if (atomic_load_explicit(&known[yes], memory_order_relaxed) == dev)
			return yes;
	int yes = PLFS(plfs_door_is_local(fd, dev));
	if (yes >= 0)
		atomic_store_explicit(&known[yes], dev, memory_order_relaxed);
	return yes == 1;
}

/* A file system whose opens ask for attributes (plfs_door_open_asks), if there is one. */
static _Atomic dev_t asks_at_open;

/* Is it one? */
static bool open_asks(int fd, dev_t dev)
{
	static _Atomic dev_t does_not;
	if (atomic_load_explicit(&asks_at_open, memory_order_relaxed) == dev)
		return true;
	if (atomic_load_explicit(&does_not, memory_order_relaxed) == dev)
		return false;
	int yes = PLFS(plfs_door_open_asks(fd));
	if (yes >= 0)
		atomic_store_explicit(yes ? &asks_at_open : &does_not, dev, memory_order_relaxed);
	return yes == 1;
}

/* What was asked of a file. */
enum known {
	KNOWN_NOT,
	KNOWN_KIND, /* its kind, links, size and device */
	KNOWN_ALL
};

/* stat_opened where a stat is a message to a daemon, which takes as long as the open. */
__attribute__((noinline)) static bool stat_by_asking(int fd, struct stat *st, dev_t asks)
{
	enum { NEEDED = STATX_TYPE | STATX_NLINK | STATX_SIZE };
	struct statx found;
	if (RAW(SYS_statx, (long)fd, "", (long)(AT_EMPTY_PATH | AT_STATX_DONT_SYNC), (long)NEEDED,
		    &found) < 0 ||
		(found.stx_mask & NEEDED) != NEEDED ||
		makedev(found.stx_dev_major, found.stx_dev_minor) != asks)
		return false;
	st->st_mode = found.stx_mode;
	st->st_nlink = found.stx_nlink;
	st->st_size = (off_t)found.stx_size;
	st->st_dev = asks;
	return true;
}

/* The stat of what was opened as fd, by its path and a moment ago. */
static enum known stat_opened(int fd, struct stat *st)
{
	dev_t asks = atomic_load_explicit(&asks_at_open, memory_order_relaxed);
	if (asks && stat_by_asking(fd, st, asks))
		return KNOWN_KIND;
	/* Not libc's fstat, which on some versions is a stat of an empty path, and dearer. */
	return RAW(SYS_fstat, (long)fd, st) == 0 ? KNOWN_ALL : KNOWN_NOT;
}

bool door_install_reader(int fd, const struct stat *st)
{
	if (fd >= FD_TABLE_LEN || !door_has_room(fd) ||
		!(door_is_local(fd, st->st_dev) || open_asks(fd, st->st_dev)))
		return false;
	door_begin_table();
	fd_install_reader(fd);
	return true;
}

bool door_describe_reader(int fd, struct ofd *reader)
{
	DEFER_SIGNALS();
	int saved = errno, flags = (int)RAW(SYS_fcntl, (long)fd, (long)F_GETFL);
	plfs_file *file = NULL;
	struct ofd *o = NULL;
	if (PLFS(plfs_door_read_in_place(fd, &file)) == 0 &&
		!(o = ofd_new(file, flags, POSITION_IN_KERNEL)))
		PLFS(plfs_close(file));
	/* Another thread may have been faster, or have closed it. */
	if (o && !fd_replace(fd, reader, o))
		ofd_put(o);
	errno = saved;
	return o;
}

bool door_is_plain(int fd)
{
	int saved = errno;
	bool yes = RAW(SYS_fgetxattr, (long)fd, "user.plfs", NULL, 0L) < 0 &&
		   (errno == ENODATA || errno == EOPNOTSUPP);
	errno = saved;
	return yes;
}

/* Opens or makes a file of a pack, or gives PLFS_NOT_PACKED or PLFS_NOT_MANAGED. `follow`: the
 * kernel has nothing there, so that links lead to nothing, or into a pack. */
static int open_in_pack(int dirfd, const char *path, int flags, mode_t mode, bool follow)
{
	DEFER_SIGNALS();
	plfs_file *file = NULL;
	plfs_packed_how how = {flags, mode, follow, ofd_descriptors()};
	int fd = PLFS(plfs_door_packed_open(dirfd, path, &how, &file));
	if (fd == PLFS_IS_FLAT)
		flat_found();
	bool elsewhere = fd == PLFS_NOT_PACKED || fd == PLFS_NOT_MANAGED || fd == PLFS_IS_FLAT;
	return elsewhere ? fd : opened_by_door(fd, file, flags);
}

/* Opens again what descriptor `of` is open on, a file of a pack. */
__attribute__((noinline)) static int open_again(int of, int flags)
{
	DEFER_SIGNALS();
	struct ofd *o = ofd_get(of);
	plfs_file *file = NULL;
	int fd = o ? PLFS(plfs_door_packed_reopen(o->file, of, flags, ofd_descriptors(), &file))
		   : -EBADF;
	if (o)
		ofd_put(o);
	return opened_by_door(fd, file, flags);
}

/* Opens or makes a file of a flat directory, or what leads to one; `how` as for place_next. False:
 * it is in none, and errno stays. */
static bool open_in_flat(int dirfd, const char *path, int flags, mode_t mode, int how, int *opened)
{
	bool create = (flags & O_CREAT) && !(flags & O_PATH),
	     exclusive = create && (flags & O_EXCL);
	how |= flags & O_NOFOLLOW || exclusive ? 0 : PLFS_PLACE_FOLLOW;
	__attribute__((cleanup(place_free))) struct place place = {0};
	bool asked = false;
	*opened = -1;
	for (;;) {
		if (!exclusive || asked) {
			if (place_next(&place, dirfd, path, how)) {
				/* By such a path the kernel makes no file, and says why. */
				const char *last = strrchr(place.at, '/');
				bool is_dir = !strcmp(last, "/") || !strcmp(last, "/.");
				int how_now = place.is_out || exclusive || is_dir
						      ? flags
						      : flags & ~O_CREAT;
				*opened = door_openat(AT_FDCWD, place.at, how_now, mode);
				if (*opened >= 0 || errno != ENOENT || place.is_out)
					return true;
				continue;
			}
			if (!place.is_flat)
				return false;
			if (!create || (errno != ENOENT && errno != ELOOP))
				return true;
		}
		DEFER_SIGNALS();
		plfs_file *file = NULL;
		int saved = errno, fd = PLFS(plfs_door_flat_create(
					   dirfd, path, flags, mode, ofd_descriptors(), &file));
		if (fd == PLFS_NOT_FLAT && !asked) {
			/* Where links lead to. */
			asked = true;
			errno = saved;
			continue;
		}
		if (fd == -EEXIST && !exclusive && place.tries < 100)
			continue;
		*opened = opened_by_door(fd, file, flags);
		return true;
	}
}

static const plfs_first_open not_opened = {.fd = PLFS_NOT_OPENED};

static int open_through_door(
	int dirfd, const char *path, int flags, mode_t mode, plfs_first_open first)
{
	DEFER_SIGNALS();
	plfs_file *file = NULL;
	int fd = PLFS_IS_PACKED;
	/* Without room for the descriptors that reads and writes of the open files will need, every
	 * write would fail where the open had not. */
	first.spare = ofd_descriptors();
	/* Others may make and remove what is beside the pack. */
	for (int tries = 0; tries < 100 && fd == PLFS_IS_PACKED; tries++) {
		fd = PLFS(plfs_door_open(dirfd, path, flags, mode, &first, &file));
		if (fd == PLFS_PERHAPS_NEW)
			return fd;
		first.fd = PLFS_NOT_OPENED;
		plfs_packed_how how = {flags, mode, 0, first.spare};
		for (; how.follow < 2 && (fd == PLFS_IS_PACKED || fd == PLFS_NOT_PACKED);
			how.follow++)
			fd = PLFS(plfs_door_packed_open(dirfd, path, &how, &file));
		fd = fd == PLFS_NOT_PACKED ? PLFS_IS_PACKED : fd;
	}
	fd = fd == PLFS_IS_PACKED ? (flags & O_EXCL ? -EEXIST : -ENOENT) : fd;
	return opened_by_door(fd, file, flags);
}

/* fd came by a path of a descriptor that the text does not show (path_of_packed): the file of the
 * pack is opened in its place, in *opened. */
__attribute__((noinline)) static bool open_stand_in(
	int fd, int dirfd, const char *path, int flags, int *opened)
{
	int of = path_to_packed(dirfd, path);
	if (of < 0)
		return false;
	RAW(SYS_close, fd);
	*opened = open_again(of, flags);
	return true;
}

/* `first` is open on what `path` leads to, in a managed directory. */
static int open_found(int dirfd, const char *path, int flags, mode_t mode, int first)
{
	struct stat st;
	enum known known = stat_opened(first, &st);
	int fd;
	if (known && stat_is_stand_in(&st) && open_stand_in(first, dirfd, path, flags, &fd))
		return fd;
	if (known && !(flags & (O_ACCMODE | O_TRUNC)) && S_ISREG(st.st_mode) &&
		!stat_may_be_name(&st) && door_install_reader(first, &st))
		return first;
	return open_through_door(dirfd, path, flags, mode,
		(plfs_first_open){.fd = first, .stat = known == KNOWN_ALL ? &st : NULL});
}

int door_adopt(int fd, int flags, struct description *shared)
{
	plfs_file *file = NULL;
	bool packed = shared && shared->packed.length > 0;
	if (shared)
		flags = atomic_load(&shared->flags);
	int rc = packed ? PLFS(plfs_door_packed_adopt(fd, flags, &shared->packed, &file))
			: PLFS(plfs_door_adopt(fd, flags, &file));
	if (rc <= 0 || !file)
		return rc;
	return install(fd, file, shared, flags) < 0 ? -errno : 1;
}

/* Has an open outside of all managed directories led to a file system of one? */
static atomic_bool opens_beside;

/* The open is the kernel's. *linked: a symbolic link on the way may lead into a managed directory;
 * then O_TRUNC is left to open_linked, as it may have led to a container.
 *
 * To ask where a descriptor leads takes as long as the open; that there was no link the kernel says
 * for nothing (openat2(2)). But another library that wraps openat is to see the call, and a thread
 * can be cancelled while a FIFO waits for its other end. */
static int open_natively(int dirfd, const char *path, int flags, mode_t mode, bool *linked)
{
	static atomic_bool is_missing;
	bool asks = (flags & O_TRUNC) || atomic_load_explicit(&opens_beside, memory_order_relaxed);
	*linked = true;
	if (!asks || (flags & ~OPEN_FLAGS_KNOWN) || !real_openat_is_libcs ||
		atomic_load_explicit(&is_missing, memory_order_relaxed))
		return REAL(openat)(dirfd, path, flags & ~O_TRUNC, mode);
	bool makes = flags & (O_CREAT | (O_TMPFILE & ~O_DIRECTORY));
	struct open_how how = {.flags = (unsigned)flags,
		.mode = makes ? mode & 07777 : 0,
		.resolve = RESOLVE_NO_SYMLINKS};
	int type, saved = errno;
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &type);
	int fd = (int)RAW(SYS_openat2, (long)dirfd, path, &how, sizeof how);
	pthread_setcanceltype(type, NULL);
	*linked = fd < 0;
	/* EPERM is what some sandboxes say to calls that they do not know. */
	if (fd >= 0 || (errno != ELOOP && errno != ENOSYS && errno != EPERM))
		return fd;
	if (errno == ENOSYS)
		atomic_store(&is_missing, true);
	errno = saved;
	return REAL(openat)(dirfd, path, flags & ~O_TRUNC, mode);
}

/* fd came from a native open of a file that is no name. If a symbolic link led into a managed
 * directory it is opened as by its own path. */
__attribute__((noinline)) static int open_linked(int fd, int flags, const struct stat *st)
{
	plfs_file *file = NULL;
	plfs_first_open first = {.fd = fd, .stat = st, .spare = ofd_descriptors()};
	int opened = PLFS(plfs_door_open_linked(flags, &first, &file));
	if (opened == PLFS_NOT_MANAGED)
		return fd;
	if (!file)
		atomic_store_explicit(&opens_beside, true, memory_order_relaxed);
	return opened_by_door(opened, file, flags);
}

/* fd is open on a file by the path of a descriptor. Of one without a name that was plain before it
 * got a container only its attribute says so. */
static int adopt_nameless(int fd, int flags, const struct stat *st)
{
	char link[FD_PATH_ROOM];
	int rc = door_adopt(fd, flags, NULL);
	/* A container that is being made, perhaps. */
	if (rc == 0)
		return open_linked(fd, flags, st);
	if (rc > 0 && (flags & O_ACCMODE) != O_RDONLY)
		rc = make_placeholder(fd);
	if (rc >= 0 && (flags & O_TRUNC)) {
		bool can_write = flags & O_ACCMODE && (flags & O_ACCMODE) != O_ACCMODE;
		fd_path(link, fd);
		rc = (can_write ? ftruncate(fd, 0) : truncate(link, 0)) < 0 ? -errno : 0;
	}
	if (rc < 0) {
		door_close(fd);
		return (int)to_errno(rc);
	}
	return fd;
}

/* fd came from a native open. It may still be a name: through a symbolic link into a managed
 * directory, /dev/stdin, or a container outside of all managed directories. Not inlined: calls on
 * other files would have its stack. */
__attribute__((noinline)) static int adopt_if_name(
	int fd, int dirfd, const char *path, int flags, mode_t mode, bool linked)
{
	if (fd < 0)
		return fd;
	DEFER_SIGNALS();
	door_forget(fd);
	struct stat st;
	if (REAL(fstat)(fd, &st) < 0)
		return fd;
	if (stat_is_stand_in(&st) && open_stand_in(fd, dirfd, path, flags, &fd))
		return fd;
	if (!stat_may_be_name(&st)) {
		if (path_led_to_base(fd, path, &st))
			return adopt_nameless(fd, flags, &st);
		if (S_ISDIR(st.st_mode) && (flags & O_TRUNC)) {
			RAW(SYS_close, fd);
			return (int)to_errno(-EISDIR);
		}
		return linked && S_ISREG(st.st_mode) ? open_linked(fd, flags, &st) : fd;
	}
	if ((flags & O_ACCMODE) == O_RDONLY) {
		int rc = door_adopt(fd, flags, NULL);
		if (rc > 0)
			return fd;
		if (rc == 0)
			return linked ? open_linked(fd, flags, &st) : fd;
		RAW(SYS_close, fd);
		return (int)to_errno(rc);
	}
	if (st.st_size != PLFS_SUPER_BYTES && PLFS(plfs_door_is_plfs(dirfd, path)) != 1)
		return linked ? open_linked(fd, flags, &st) : fd;
	/* The application must not keep a writable descriptor of a superblock: a write that is not
	 * wrapped would destroy it. */
	RAW(SYS_close, fd);
	return open_through_door(dirfd, path, flags & ~(O_CREAT | O_EXCL), mode, not_opened);
}

/* An open of a directory, or of what is only named (O_PATH). Not inlined, as adopt_if_name. */
__attribute__((noinline)) static int open_no_file(
	int dirfd, const char *path, int flags, mode_t mode)
{
	int links = flags & O_NOFOLLOW ? 0 : PLFS_PLACE_FOLLOW;
	FLAT_FIRST(-1, dirfd, path, links, door_openat(AT_FDCWD, at, flags, mode));
	/* Old kernels make a file. */
	if ((flags & O_CREAT) && !(flags & O_PATH) && path_is_flat(dirfd, path) == 1) {
		errno = EINVAL;
		return -1;
	}
	int fd = REAL(openat)(dirfd, path, flags, mode);
	FLAT_AFTER(-1, fd, dirfd, path, links, door_openat(AT_FDCWD, at, flags, mode));
	/* A file of a pack has no inode that O_PATH could name. */
	if (fd < 0 && path_is_unknown(dirfd, path, flags & O_NOFOLLOW ? AT_SYMLINK_NOFOLLOW : 0))
		errno = flags & O_DIRECTORY ? ENOTDIR : EOPNOTSUPP;
	return fd;
}

/* An open in a managed directory; `managed` is what path_opens_managed says. PLFS_NOT_MANAGED: it
 * is none, and errno is as it was. Not inlined, as adopt_if_name. */
__attribute__((noinline)) static int open_managed(
	int dirfd, const char *path, int flags, mode_t mode, int managed)
{
	int saved = errno, fd = PLFS_NOT_PACKED;
	/* A name that a pack and the kernel have is the pack's. */
	bool asked = managed == 1;
	if (asked)
		fd = open_in_pack(dirfd, path, flags, mode, false);
	if (fd == PLFS_NOT_MANAGED) {
		errno = saved;
		return fd;
	}
	if (fd == PLFS_IS_FLAT && !open_in_flat(dirfd, path, flags, mode, PLFS_PLACE_ALL, &fd))
		errno = ENOENT;
	if (fd != PLFS_NOT_PACKED) {
		if (fd >= 0)
			errno = saved;
		return fd;
	}
	int first = PLFS_NOT_OPENED, kind = flags & (O_CREAT | O_EXCL);
	bool is_made = managed == PLFS_OPENS_PLAIN && writer_may_be(path, flags);
	if (is_made) {
		fd = writer_create(path, flags, mode);
		if (fd >= 0)
			errno = saved;
		if (fd >= 0 || errno != EEXIST || kind != O_CREAT)
			return fd;
		fd = PLFS_NOT_PACKED;
	}
	/* A plain file, so it is new as a rule: the others are opened once. */
	if (kind == O_CREAT && managed == PLFS_OPENS_PLAIN && !is_made) {
		fd = open_through_door(
			dirfd, path, flags, mode, (plfs_first_open){.fd = PLFS_PERHAPS_NEW});
		if (fd >= 0)
			errno = saved;
		if (fd != PLFS_PERHAPS_NEW)
			return fd;
		fd = PLFS_NOT_PACKED;
	}
	if (kind != (O_CREAT | O_EXCL)) {
		/* By libc, and while handlers of signals may run: a FIFO waits for its
		 * other end, and a thread may be cancelled there. */
		first = REAL(openat)(dirfd, path, flags & ~(O_CREAT | O_EXCL | O_TRUNC));
		if (first < 0 && errno == EINTR)
			return -1;
		if (first >= 0) {
			fd = open_found(dirfd, path, flags, mode, first);
			if (fd >= 0)
				errno = saved;
			return fd;
		}
		first = -errno;
	}
	/* Nothing is there for the kernel: it may have been packed meanwhile, or links lead
	 * to a pack. A new file comes to that in libplfs. */
	if (first == -ENOENT && !(flags & O_CREAT))
		fd = open_in_pack(dirfd, path, flags, mode, false);
	if (first == -ENOENT && fd == PLFS_NOT_PACKED && (asked || !(flags & O_CREAT)))
		fd = open_in_pack(dirfd, path, flags, mode, true);
	/* Behind a directory in a flat one the kernel does not find what `..` leads to. */
	bool is_unknown = fd == PLFS_NOT_PACKED || fd == PLFS_NOT_MANAGED,
	     may_be_above = is_unknown && flat_is_known() && strstr(path, "..") &&
			    (first == -ENOENT || first == PLFS_NOT_OPENED);
	int in_flat;
	if ((fd == PLFS_IS_FLAT || may_be_above) &&
		open_in_flat(dirfd, path, flags, mode, PLFS_PLACE_ALL, &in_flat)) {
		if (in_flat >= 0)
			errno = saved;
		return in_flat;
	}
	if (fd == PLFS_IS_FLAT) {
		errno = ENOENT;
		return -1;
	}
	if (is_unknown)
		fd = open_through_door(dirfd, path, flags, mode, (plfs_first_open){.fd = first});
	if (fd >= 0)
		errno = saved;
	return fd;
}

int door_openat(int dirfd, const char *path, int flags, mode_t mode)
{
	if (door_thread.inside)
		return (int)RAW(SYS_openat, (long)dirfd, path, (long)flags, (long)mode);
	before_name(
		dirfd, path, flags & O_CREAT ? PLFS_NAMES_DIR | PLFS_MAKES_BELOW : PLFS_NAMES_DIR);
	bool tmpfile = (flags & O_TMPFILE) == O_TMPFILE;
	if (!path || (flags & O_PATH) || ((flags & O_DIRECTORY) && !tmpfile))
		return open_no_file(dirfd, path, flags, mode);
	if (!path_is_there(path))
		return -1;
	/* Most names begin with something else, and that is soon seen. */
	if (strchr(path, '.') && path_is_hidden(dirfd, path)) {
		errno = flags & O_CREAT ? EPERM : ENOENT;
		return -1;
	}
	int saved = errno, of = path[0] == '/' && !tmpfile ? path_of_packed(path) : -1;
	if (of >= 0)
		return open_again(of, flags);
	int in_flat;
	if (!tmpfile && flat_is_known() && open_in_flat(dirfd, path, flags, mode, 0, &in_flat)) {
		errno = in_flat < 0 ? errno : saved;
		return in_flat;
	}
	int managed = tmpfile ? path_is_managed(dirfd, path) : path_opens_managed(dirfd, path);
	if (managed && tmpfile) {
		/* linkat could give it a name, and then there would be a plain file in a managed
		 * directory. Programs fall back to a named file. */
		errno = (flags & O_ACCMODE) == O_RDONLY || (flags & O_CREAT) ? EINVAL : EOPNOTSUPP;
		return -1;
	}
	if (managed) {
		errno = saved;
		int fd = open_managed(dirfd, path, flags, mode, managed);
		/* One that failed so has changed nothing. */
		if (fd == -1 && errno == EMFILE && description_gives_up()) {
			errno = saved;
			fd = open_managed(dirfd, path, flags, mode, managed);
		}
		if (fd != PLFS_NOT_MANAGED)
			return fd;
	}
	bool ours = (flags & O_TRUNC) && path_may_be_name(dirfd, path, 0);
	errno = saved;
	if (ours)
		return open_through_door(dirfd, path, flags, mode, not_opened);
	bool linked;
	int fd = open_natively(dirfd, path, flags, mode, &linked);
	return adopt_if_name(fd, dirfd, path, linked ? flags : flags & ~O_TRUNC, mode, linked);
}

/* Callers pass the mode only if the flags require it. va_arg may be read in any case; the value may
 * be used only then. */
#define MODE_ARGUMENT(flags) \
	({ \
		mode_t mode_ = 0; \
		if ((flags) & (O_CREAT | (O_TMPFILE & ~O_DIRECTORY))) { \
			va_list ap_; \
			va_start(ap_, flags); \
			mode_ = va_arg(ap_, mode_t); \
			va_end(ap_); \
		} \
		mode_; \
	})

EXPORT int open(const char *path, int flags, ...)
{
	return door_openat(AT_FDCWD, path, flags, MODE_ARGUMENT(flags));
}
ALIAS(open, open64);
/* Names that libraries built against old libcs use. */
ALIAS(open, __open);
ALIAS(open, __open64);

EXPORT int openat(int dirfd, const char *path, int flags, ...)
{
	return door_openat(dirfd, path, flags, MODE_ARGUMENT(flags));
}
ALIAS(openat, openat64);

EXPORT int creat(const char *path, mode_t mode)
{
	return door_openat(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}
ALIAS(creat, creat64);

EXPORT int __open_2(const char *path, int flags)
{
	/* libc ends the program if the mode is missing, so it gets the call. */
	if (flags & (O_CREAT | (O_TMPFILE & ~O_DIRECTORY)))
		return REAL(__open_2)(path, flags);
	return door_openat(AT_FDCWD, path, flags, 0);
}
ALIAS(__open_2, __open64_2);

EXPORT int __openat_2(int dirfd, const char *path, int flags)
{
	if (flags & (O_CREAT | (O_TMPFILE & ~O_DIRECTORY)))
		return REAL(__openat_2)(dirfd, path, flags);
	return door_openat(dirfd, path, flags, 0);
}
ALIAS(__openat_2, __openat64_2);

/* mknod can make a regular file too. */
EXPORT int mknodat(int dirfd, const char *path, mode_t mode, dev_t dev)
{
	before_name(dirfd, path, PLFS_MAKES_BELOW);
	if (((mode & S_IFMT) != S_IFREG && (mode & S_IFMT) != 0) || door_thread.inside ||
		!path_is_managed(dirfd, path))
		MAKE(dirfd, path, plfs_door_flat_mknod(dirfd, path, mode, dev),
			REAL(mknodat)(dirfd, path, mode, dev));
	int fd = door_openat(dirfd, path, O_CREAT | O_EXCL | O_WRONLY, mode & 07777);
	return fd < 0 ? -1 : door_close(fd);
}

EXPORT int mknod(const char *path, mode_t mode, dev_t dev)
{
	return mknodat(AT_FDCWD, path, mode, dev);
}

/* A file that mkstemp makes in a managed directory. `suffix` characters follow the six X. */
static int make_temporary(char *template, int suffix, int flags)
{
	static const char letters[62] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
	size_t len = strlen(template);
	if (suffix < 0 || len < 6 + (size_t)suffix ||
		memcmp(template + len - suffix - 6, "XXXXXX", 6) != 0) {
		errno = EINVAL;
		return -1;
	}
	char *x = template + len - suffix - 6;
	for (int tries = 0; tries < 1000; tries++) {
		unsigned char random[6];
		if (RAW(SYS_getrandom, random, sizeof random, 0L) != sizeof random)
			return -1;
		for (int i = 0; i < 6; i++)
			x[i] = letters[random[i] % sizeof letters];
		int fd = door_openat(
			AT_FDCWD, template, (flags & ~O_ACCMODE) | O_RDWR | O_CREAT | O_EXCL, 0600);
		if (fd >= 0 || errno != EEXIST)
			return fd;
	}
	return -1;
}

EXPORT int mkstemp(char *template)
{
	return path_is_managed(AT_FDCWD, template) ? make_temporary(template, 0, 0)
						   : REAL(mkstemp)(template);
}
ALIAS(mkstemp, mkstemp64);

EXPORT int mkostemp(char *template, int flags)
{
	return path_is_managed(AT_FDCWD, template) ? make_temporary(template, 0, flags)
						   : REAL(mkostemp)(template, flags);
}
ALIAS(mkostemp, mkostemp64);

EXPORT int mkstemps(char *template, int suffix)
{
	return path_is_managed(AT_FDCWD, template) ? make_temporary(template, suffix, 0)
						   : REAL(mkstemps)(template, suffix);
}
ALIAS(mkstemps, mkstemps64);

EXPORT int mkostemps(char *template, int suffix, int flags)
{
	return path_is_managed(AT_FDCWD, template) ? make_temporary(template, suffix, flags)
						   : REAL(mkostemps)(template, suffix, flags);
}
ALIAS(mkostemps, mkostemps64);

struct ofd *door_detach(int fd)
{
	struct ofd *o = fd_remove(fd);
	if (!o)
		return NULL;
	lock_drop(o, fd);
	return o;
}

void door_forget(int fd)
{
	struct ofd *stale = door_detach(fd);
	if (stale)
		tell_loss(ofd_put(stale));
}

bool fd_is_owned(int fd)
{
	return atomic_load(&fd_limit) > 0 &&
	       (description_owns_fd(fd) || PLFS_ALWAYS(plfs_door_owns_fd(fd)) == 1);
}

/* A handle on a plain file is lent the number that it was opened with. If that goes before the
 * handle it gets a descriptor of its own. But not on a file on which the process has record locks:
 * exec would close that, and drop them. So it gets its own at a close, which drops them as well,
 * and is lent a number again before the next lock. */
static _Atomic bool own_are_used;

/* Who closes a number, after it is in no entry, and who lends them. */
static _Atomic uint32_t lending;

int door_own(struct ofd *o, int fd)
{
	int rc = PLFS(plfs_door_own(o->file, fd));
	if (rc == 1)
		atomic_store(&own_are_used, true);
	return rc;
}

/* Another number of the program's that is o's; -1: there is none. */
static int number_beside(struct ofd *o, int fd)
{
	int limit = atomic_load(&fd_limit);
	for (int other = 0; other < limit; other++)
		if (other != fd && fd_is_at(other, o))
			return other;
	return -1;
}

/* fd is about to be closed, or to be something else, while another thread may be in a call on o, or
 * another number be its: if its file is plain, it gets a descriptor that stays. Where there is none
 * left it goes on with another number of the program's, until that is closed, which waits for
 * `lending`. False: it has neither. */
static bool own_before_close(struct ofd *o, int fd)
{
	if (door_own(o, fd) >= 0)
		return true;
	int other = number_beside(o, fd);
	return other >= 0 && PLFS(plfs_door_go_on(o->file, other, 0)) >= 0;
}

/* own_before_close has found nothing, and the caller has `mine` references. What others are about
 * to do with o is EBADF, as it is for who comes after a close: it must not be done to what comes to
 * be at fd. */
static void own_nothing(struct ofd *o, int mine)
{
	if (atomic_load(&o->refs) == mine)
		return;
	PLFS(plfs_commit(o->file));
	door_own(o, -1);
}

void door_lend_numbers(void)
{
	if (!atomic_exchange(&own_are_used, false))
		return;
	DEFER_SIGNALS();
	word_lock(&lending);
	int limit = atomic_load(&fd_limit);
	for (int fd = 0; fd < limit; fd++) {
		struct ofd *o = container_at(fd);
		if (!o)
			continue;
		PLFS(plfs_door_lend(o->file, fd));
		ofd_put(o);
	}
	word_unlock(&lending);
}

void door_lend_after_fork_in_child(void)
{
	atomic_store(&lending, 0);
}

void door_leave_number(int fd)
{
	struct ofd *o = container_at(fd);
	if (!o)
		return;
	/* One is the table's. Nobody else's: who forgets the number closes the handle. */
	if (!own_before_close(o, fd))
		own_nothing(o, 2);
	ofd_put(o);
}

/* A reader is forgotten when it is closed, unless that has to be told libplfs: of locks that go, or
 * of a container that this process may be the last to use. */
static bool close_reader(int fd)
{
	struct ofd *reader = atomic_load_explicit(&fd_table[fd], memory_order_acquire);
	if (!locks_are_used() && plfs_door_uses_bases() == 0 && entry_is_reader(reader))
		return fd_replace(fd, reader, NULL);
	struct ofd *o = ofd_get(fd);
	if (o)
		ofd_put(o);
	return false;
}

/* Has o's file a container that was a plain file, and no name any more? */
#define IS_BASE_WITHOUT_NAME(o) (PLFS(plfs_door_is_base_without_name((o)->file)) == 1)

/* Of a file that was plain when it was opened as fd, and has a container now, fd writes the base,
 * below all logs, for who finds no entry any more: it is to write nothing. If the file has no name
 * any more it is not even open there, which would keep the container. */
static void replace_with_placeholder(int fd, struct ofd *o, bool has_name)
{
	fd_hold_numbers();
	if (fd_is_at(fd, o) && has_name)
		make_placeholder(fd);
	else if (fd_is_at(fd, o))
		make_nothing(fd);
	fd_release_numbers();
}

static void disarm(int fd, struct ofd *o, bool has_name)
{
	if (door_own(o, fd) >= 0)
		replace_with_placeholder(fd, o, has_name);
}

/* door_detach for a close. A thread that writes to a plain file meanwhile writes where the position
 * is, or not at all: whoever finds no entry is the kernel's, and so is the position then. */
static struct ofd *detach_at_position(int fd)
{
	struct ofd *o = fd_is_container(fd) ? ofd_get(fd) : NULL;
	bool writes = o && !o->has_logs && (ofd_flags(o) & O_ACCMODE) != O_RDONLY;
	if (!o || (!writes && plfs_door_uses_bases() == 0)) {
		if (o)
			ofd_put(o);
		return door_detach(fd);
	}
	description_lock(o->shared);
	if (IS_BASE_WITHOUT_NAME(o))
		disarm(fd, o, false);
	else if (writes && OFD_IS_PLAIN(o))
		fd_give_position(fd, o);
	else if (writes)
		disarm(fd, o, true);
	struct ofd *detached = door_detach(fd);
	description_unlock(o->shared);
	ofd_put(o);
	return detached;
}

void door_close_nameless(void)
{
	int limit = atomic_load(&fd_limit);
	for (int fd = 0; fd < limit; fd++) {
		bool may_be = fd_is_reader(fd) && plfs_door_uses_bases() != 0;
		struct ofd *o = may_be ? ofd_get(fd) : container_at(fd);
		if (!o)
			continue;
		if (IS_BASE_WITHOUT_NAME(o))
			replace_with_placeholder(fd, o, false);
		ofd_put(o);
	}
}

int door_close(int fd)
{
	if (door_thread.inside)
		return (int)RAW(SYS_close, (long)fd);
	if ((fd_is_reader(fd) && close_reader(fd)) || (fd_is_writer(fd) && writer_close(fd)))
		return REAL(close)(fd);
	DEFER_SIGNALS();
	listing_forget(fd);
	struct ofd *o = detach_at_position(fd);
	if (!o) {
		if (fd_is_owned(fd)) {
			errno = EBADF;
			return -1;
		}
		return REAL(close)(fd);
	}
	word_lock(&lending);
	/* A thread is in a call on it, and there is no descriptor: libplfs keeps this one so long.
	 */
	bool is_kept = atomic_load(&o->refs) > 1 && !own_before_close(o, fd) &&
		       PLFS(plfs_door_go_on(o->file, fd, 1)) == 1;
	word_unlock(&lending);
	int rc = ofd_put(o);
	int closed = is_kept ? 0 : (int)RAW(SYS_close, (long)fd);
	/* Before the number can be another file's: who has read the placeholder meanwhile, which
	 * is in no entry any more, looks. */
	atomic_fetch_add(&fd_installs, 1);
	return rc < 0 ? (int)to_errno(rc) : closed;
}

EXPORT int close(int fd)
{
	return door_close(fd);
}
ALIAS(close, __close);

/* After the kernel made `fd` a copy of a descriptor of o. Takes over the reference. */
static int install_copy(int fd, struct ofd *o)
{
	if (fd < 0 || fd >= FD_TABLE_LEN) {
		if (o)
			ofd_put(o);
		if (fd >= 0) {
			RAW(SYS_close, fd);
			errno = EMFILE;
		}
		return -1;
	}
	door_forget(fd);
	if (o)
		fd_install(fd, o);
	return fd;
}

/* fcntl(2) of Linux 6.10 and later. Of older ones kcmp, which not everybody may call. */
#ifndef F_DUPFD_QUERY
#define F_DUPFD_QUERY 1027
#endif

/* Have both numbers one description? No, if the kernel does not say. */
static bool is_same_description(int fd, int other)
{
	long yes = RAW(SYS_fcntl, (long)fd, (long)F_DUPFD_QUERY, (long)other), me = getpid();
	return yes < 0 ? RAW(SYS_kcmp, me, me, (long)KCMP_FILE, (long)fd, (long)other) == 0
		       : yes == 1;
}

bool door_share(int fd, const struct description *shared)
{
	struct ofd *o = NULL;
	int limit = atomic_load(&fd_limit);
	for (int other = 0; other < limit && !o; other++) {
		o = other != fd ? container_at(other) : NULL;
		if (o && !(shared ? o->shared == shared : is_same_description(other, fd))) {
			ofd_put(o);
			o = NULL;
		}
	}
	if (o)
		install_copy(fd, o);
	return o;
}

EXPORT int dup(int fd)
{
	if (!fd_is_container(fd))
		return REAL(dup)(fd);
	DEFER_SIGNALS();
	struct ofd *o = ofd_get(fd);
	return install_copy(REAL(dup)(fd), o);
}

/* What is at fd, of which the caller has a reference, is closed before something else is put there:
 * there is no descriptor for its file. */
static void close_first(int fd, struct ofd *o)
{
	struct ofd *gone = detach_at_position(fd);
	if (gone)
		ofd_put(gone);
	own_nothing(o, 1);
	tell_loss(ofd_put(o));
}

/* The kernel's call. The number may be free to the program, and one that libplfs has for a moment
 * in another thread: a call that opens something, moves it up and closes the low number. */
static int dup_to_number(int from, int to, int flags, bool three)
{
	if (door_thread.inside)
		return three ? REAL(dup3)(from, to, flags) : REAL(dup2)(from, to);
	/* In this order: who makes an arena, or forks, has the lock while libplfs opens something.
	 */
	fd_lock();
	bool is_held = plfs_door_hold_numbers();
	int fd = -1;
	/* To the application the number of one of libplfs's descriptors is free. EBUSY is what dup2
	 * gives for a number that is being opened. */
	bool is_left = from != to && description_owns_fd(to) && description_leaves(to);
	if (!is_left && fd_is_owned(to) && from != to)
		errno = EBUSY;
	else
		fd = three ? REAL(dup3)(from, to, flags) : REAL(dup2)(from, to);
	if (fd < 0 && is_left)
		RAW(SYS_close, (long)to);
	int saved = errno;
	if (is_held)
		plfs_door_release_numbers();
	fd_unlock();
	errno = saved;
	return fd;
}

static int door_dup_to(int from, int to, int flags, bool three)
{
	DEFER_SIGNALS();
	if ((!fd_is_container(from) && !fd_is_container(to)) || door_thread.inside || from == to)
		return dup_to_number(from, to, flags, three);
	struct rlimit limit;
	if (flags & ~O_CLOEXEC) {
		errno = EINVAL;
		return -1;
	}
	if (RAW(SYS_prlimit64, 0L, (long)RLIMIT_NOFILE, NULL, &limit) < 0 || to < 0 ||
		(unsigned)to >= limit.rlim_cur || to >= FD_TABLE_LEN) {
		errno = EBADF;
		return -1;
	}
	if (RAW(SYS_fcntl, from, (long)F_GETFD) < 0)
		return -1;
	struct ofd *o = ofd_get(from);
	struct ofd *old = ofd_get(to);
	word_lock(&lending);
	if (old && own_before_close(old, to)) {
		lock_drop(old, to);
	} else if (old) {
		close_first(to, old);
		old = NULL;
	}
	/* For other threads it is one step: the table never says of a placeholder that it is a
	 * plain file. So a container is put there before the kernel does it, and taken out after.
	 * What could make the kernel refuse is ruled out above. */
	fd_hold_numbers();
	if (o)
		fd_park_held(from, o);
	struct ofd *gone = o ? fd_install_held(to, o) : NULL;
	int fd = dup_to_number(from, to, flags, three);
	int saved = errno;
	if (fd < 0 && o)
		gone = fd_install_held(to, gone);
	else if (fd >= 0 && !o)
		gone = fd_remove_held(to);
	fd_release_numbers();
	word_unlock(&lending);
	if (gone)
		ofd_put(gone);
	if (fd < 0 && old) {
		ofd_put(old);
		old = NULL;
	}
	/* POSIX: errors of this close are lost. */
	if (old)
		tell_loss(ofd_put(old));
	errno = saved;
	return fd;
}

EXPORT int dup2(int from, int to)
{
	return door_dup_to(from, to, 0, false);
}
ALIAS(dup2, __dup2);

EXPORT int dup3(int from, int to, int flags)
{
	return door_dup_to(from, to, flags, true);
}

/* The same without a descriptor for the look, for which there is no room: range by range, between
 * libplfs's own. */
static int close_between(unsigned first, unsigned last)
{
	/* No number above is one of those (RECORDED_FDS of libplfs). */
	const unsigned end = 131072;
	for (unsigned from = first; from <= last && from < end; from++) {
		unsigned to = from;
		while (to <= last && to < end && !fd_is_owned((int)to))
			to++;
		unsigned until = to < end && to <= last ? to - 1 : last;
		if (to > from && RAW(SYS_close_range, (long)from, (long)until, 0L) < 0)
			return -1;
		from = to;
	}
	return first < end ? 0 : (int)RAW(SYS_close_range, (long)first, (long)last, 0L);
}

/* Closes first..last natively, except libplfs's own descriptors. */
static int close_plain(unsigned first, unsigned last)
{
	if (atomic_load(&fd_limit) == 0)
		return REAL(close_range)(first, last, 0);
	DEFER_SIGNALS();
	/* What another thread of libplfs's has for a moment it would close once more, when the
	 * number is the program's. */
	bool is_held = plfs_door_hold_numbers();
	int dir = open_fd_paths(false);
	char buf[1024];
	long n;
	bool again = dir >= 0;
	/* Closing changes the directory while it is read, so it is read again until a pass closes
	 * nothing. */
	while (again) {
		again = false;
		RAW(SYS_lseek, dir, 0L, SEEK_SET);
		while ((n = RAW(SYS_getdents64, dir, buf, sizeof buf)) > 0) {
			for (long at = 0; at < n;) {
				struct dirent64 *e = (struct dirent64 *)(buf + at);
				at += e->d_reclen;
				if (e->d_name[0] < '0' || e->d_name[0] > '9')
					continue;
				unsigned fd = (unsigned)atoi(e->d_name);
				if (fd < first || fd > last || (int)fd == dir ||
					fd_is_owned((int)fd))
					continue;
				/* A close that fails (valgrind protects its own descriptors) does
				 * not count: it would fail in every pass. */
				if (RAW(SYS_close, (long)fd) == 0)
					again = true;
			}
		}
	}
	int rc = dir < 0 ? close_between(first, last) : (int)RAW(SYS_close, dir);
	if (is_held)
		plfs_door_release_numbers();
	return rc;
}

EXPORT int close_range(unsigned first, unsigned last, int flags)
{
	if (door_thread.inside || first > last || (flags & ~CLOSE_RANGE_UNSHARE))
		return REAL(close_range)(first, last, flags);
	/* Processes that clone made can share their descriptors; the others keep theirs. */
	if (flags && RAW(SYS_unshare, (long)CLONE_FILES) < 0)
		return -1;
	int limit = atomic_load(&fd_limit);
	for (int fd = (int)first; first < FD_TABLE_LEN && fd < limit && (unsigned)fd <= last; fd++)
		if (fd_is_container(fd) && door_close(fd) < 0)
			tell_loss(-errno);
	return close_plain(first, last);
}

EXPORT void closefrom(int first)
{
	close_range(first < 0 ? 0 : (unsigned)first, ~0U, 0);
}

/* fcntl(F_DUPFD) and F_DUPFD_CLOEXEC; lock.c has the other commands. */
int door_dup_at_least(int fd, int command, int least)
{
	DEFER_SIGNALS();
	struct ofd *o = ofd_get(fd);
	return install_copy(REAL(fcntl)(fd, command, least), o);
}
