/* Which paths are ours: those in managed directories, which libplfs knows, and names of PLFS files
 * elsewhere, recognised by their size or a second name. */
#include "door.h"
#include "own_stack.h"

#include <string.h>

static const char *own_proc = "/proc/self";

void path_start(void)
{
	own_proc = PLFS_ALWAYS(plfs_door_own_proc());
}

/* Copies a text without its end, and gives where it ends. By no function of libc, which a program
 * with ThreadSanitizer may have in its place: see `start`. */
static char *put(char *at, const char *text)
{
	while (*text)
		*at++ = *text++;
	return at;
}

/* snprintf takes more stack than a call of ours may. */
static char *put_number(char *at, int number)
{
	char digits[10];
	int n = 0;
	for (unsigned left = (unsigned)number; n == 0 || left > 0; left /= 10)
		digits[n++] = (char)('0' + left % 10);
	while (n > 0)
		*at++ = digits[--n];
	return at;
}

static char *put_parent(char *at)
{
	return put(put_number(put(at, "/proc/"), (int)RAW(SYS_getppid)), "/fd");
}

char *fd_path(char path[FD_PATH_ROOM], int fd)
{
	*put_number(put(put(path, own_proc), "/fd/"), fd) = 0;
	return path;
}

char *fd_path_of_parent(char path[FD_PATH_ROOM], int fd)
{
	*put_number(put(put_parent(path), "/"), fd) = 0;
	return path;
}

int open_fd_paths(bool of_parent)
{
	char path[FD_PATH_ROOM];
	*(of_parent ? put_parent(path) : put(put(path, own_proc), "/fd")) = 0;
	return (int)RAW(SYS_openat, AT_FDCWD, path, (long)(O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

static intptr_t ask(void *path)
{
	return plfs_door_below_managed(AT_FDCWD, path);
}

/* The first question reads the settings, for which the caller's stack may be too small. */
void path_know_managed(void)
{
	static _Atomic bool known;
	if (__builtin_expect(atomic_load_explicit(&known, memory_order_relaxed), 1))
		return;
	PLFS_ALWAYS(own_stack_call(ask, "/"));
	atomic_store(&known, true);
}

bool path_is_managed(int dirfd, const char *path)
{
	int saved = errno;
	path_know_managed();
	bool yes = path_is_there(path) && PLFS_ALWAYS(plfs_door_below_managed(dirfd, path)) == 1;
	errno = saved;
	return yes;
}

int path_opens_managed(int dirfd, const char *path)
{
	int saved = errno;
	path_know_managed();
	signals_defer_io();
	door_thread.inside++;
	int how = plfs_door_opens_managed(dirfd, path);
	door_thread.inside--;
	signals_resume_io();
	errno = saved;
	return how;
}

/* What follows `prefix` in a text, or NULL. */
static const char *after(const char *text, const char *prefix)
{
	size_t len = strlen(prefix);
	return strncmp(text, prefix, len) ? NULL : text + len;
}

/* The number of a process or a descriptor at *text, which moves behind it; or -1. */
static long number(const char **text)
{
	long n = -1;
	for (; **text >= '0' && **text <= '9' && n < FD_TABLE_LEN * 1000L; ++*text)
		n = (n < 0 ? 0 : n * 10) + (**text - '0');
	return n;
}

/* Whether the path begins like one of a descriptor. Most begin with something else, and few bytes
 * say so. */
static bool may_be_descriptors(const char *path)
{
	if (!path || !memory_is_there(path, sizeof "/dev/st" - 1, false))
		/* Perhaps it ends where memory does. */
		return path;
	return path[0] == '/' && (path[1] == 'p' || (path[1] == 'd' && path[2] == 'e' &&
							    (path[5] == 'f' || path[6] == 't')));
}

int path_descriptor(const char *path)
{
	static const char *const streams[] = {"/dev/stdin", "/dev/stdout", "/dev/stderr"};
	const char *device = after(path, "/dev/");
	if (device ? *device != 'f' && !after(device, "std") : path[0] != '/' || path[1] != 'p')
		return -1;
	for (int fd = 0; fd < 3; fd++)
		if (!strcmp(path, streams[fd]))
			return fd;
	const char *at = after(path, "/dev/fd/");
	at = at ? at : after(path, "/proc/self/fd/");
	at = at ? at : after(path, "/proc/thread-self/fd/");
	if (!at && (at = after(path, "/proc/"))) {
		const char *own = number(&at) == getpid() ? at : NULL, *task = own;
		if (own && (task = after(own, "/task/")) && number(&task) > 0)
			own = task;
		at = own ? after(own, "/fd/") : NULL;
	}
	if (!at)
		return -1;
	long fd = number(&at);
	return fd >= 0 && fd < FD_TABLE_LEN && !*at ? (int)fd : -1;
}

int path_of_packed(const char *path)
{
	if (atomic_load(&fd_limit) <= 0)
		return -1;
	int saved = errno;
	bool there = may_be_descriptors(path) && path_is_there(path);
	errno = saved;
	int fd = there && path ? path_descriptor(path) : -1;
	return fd >= 0 && fd_is_packed(fd) ? fd : -1;
}

/* The attribute of a file that stays plain begins so (docs/FORMAT.md section 11), and is rarely
 * longer than this many bytes; of others at least the path of a root follows. */
static const char STAYS_PLAIN[] = "plfs 1 p ";
enum { REASON_MAX = 160 };

/* Is what a call gave, n bytes or an error in errno, the attribute of a file that was plain before
 * it got a container? */
static bool is_of_container(long n, const char said[REASON_MAX])
{
	return n < 0 ? errno == ERANGE
		     : n > 0 && strncmp(said, STAYS_PLAIN, strlen(STAYS_PLAIN)) != 0;
}

/* Has the file such an attribute, or may this user not know? Path NULL or empty: that of dirfd. */
static bool path_has_attribute(int dirfd, const char *path)
{
	int saved = errno, fd = dirfd;
	char link[FD_PATH_ROOM];
	bool by_number = !path || !*path,
	     is_opened = !by_number && *path != '/' && dirfd != AT_FDCWD;
	/* One whose close drops no locks. */
	if (is_opened)
		fd = (int)RAW(SYS_openat, (long)dirfd, path, (long)(O_PATH | O_CLOEXEC), 0L);
	if (by_number || is_opened)
		path = fd_path(link, fd);
	char said[REASON_MAX] = "";
	long n = RAW(SYS_getxattr, path, "user.plfs", said, sizeof said);
	bool yes = is_of_container(n, said) || (n < 0 && errno == EACCES);
	if (is_opened && fd >= 0)
		RAW(SYS_close, (long)fd);
	errno = saved;
	return yes;
}

bool path_may_be_name_by(int dirfd, const char *path, const struct stat *st)
{
	return stat_may_be_name(st) &&
	       (st->st_size == PLFS_SUPER_BYTES || path_has_attribute(dirfd, path));
}

bool path_may_be_name(int dirfd, const char *path, int at_flags)
{
	struct stat st;
	int saved = errno;
	bool yes = path && REAL(fstatat)(dirfd, path, &st, at_flags) == 0 &&
		   path_may_be_name_by(dirfd, path, &st);
	errno = saved;
	return yes;
}

bool path_is_of_descriptor(const char *path)
{
	return path && path[0] == '/' &&
	       ((strncmp(path, "/proc/", 6) == 0 && strstr(path, "/fd/")) ||
		       strncmp(path, "/dev/fd/", 8) == 0 || strncmp(path, "/dev/std", 8) == 0);
}

bool fd_is_nameless_base(int fd, const struct stat *st)
{
	if (!stat_may_be_base(st))
		return false;
	int saved = errno;
	char said[REASON_MAX] = "";
	long n = RAW(SYS_fgetxattr, (long)fd, "user.plfs", said, sizeof said);
	bool is_base = is_of_container(n, said);
	errno = saved;
	return is_base;
}

/* May it be the base, without a name, of a container that this process does not know of? `all` as
 * for path_is_through_descriptor. */
static bool may_be_unknown_base(const char *path, const struct stat *st, bool all)
{
	return stat_may_be_base(st) &&
	       (path_is_of_descriptor(path) ||
		       (all && PLFS_ALWAYS(plfs_door_knows_device(st->st_dev)) == 1));
}

bool path_led_to_base(int fd, const char *path, const struct stat *st)
{
	return stat_is_base(st) ||
	       (may_be_unknown_base(path, st, true) && fd_is_nameless_base(fd, st));
}

/* Links on the way to a descriptor that are followed. */
enum { LINKS_MAX = 8 };

/* The number of the descriptor of this process to which the path leads, by whatever links and from
 * whatever directory. -1: none. */
static int path_to_descriptor(int dirfd, const char *path)
{
	char link[FD_PATH_ROOM], at[256], target[256];
	int saved = errno, found = -1;
	for (int i = 0; i < LINKS_MAX && found < 0; i++) {
		/* The last link itself: its path is that of a descriptor, or it leads on. */
		int fd = (int)RAW(
			SYS_openat, (long)dirfd, path, (long)(O_PATH | O_NOFOLLOW | O_CLOEXEC), 0L);
		if (fd < 0)
			break;
		long n = RAW(SYS_readlinkat, (long)AT_FDCWD, fd_path(link, fd), at, sizeof at - 1),
		     len = RAW(SYS_readlinkat, (long)fd, "", target, sizeof target - 1);
		RAW(SYS_close, (long)fd);
		at[n < 0 ? 0 : n] = 0;
		found = path_descriptor(at);
		if (found >= 0 || len <= 0 || n <= 0 || len == sizeof target - 1)
			break;
		target[len] = 0;
		path = target;
		if (target[0] == '/')
			continue;
		/* From the link's own directory. */
		char *last = strrchr(at, '/') + 1;
		if ((size_t)(last - at) + (size_t)len >= sizeof at)
			break;
		memcpy(last, target, (size_t)len + 1);
		memcpy(target, at, sizeof target);
	}
	errno = saved;
	return found;
}

/* The same if it is a file of a pack. */
static int path_to_placeholder(int dirfd, const char *path)
{
	int fd = path_to_descriptor(dirfd, path);
	return fd >= 0 && fd_is_packed(fd) ? fd : -1;
}

bool path_is_through_descriptor(
	int dirfd, const char *path, const struct stat *st, bool all, int *of)
{
	if (stat_is_stand_in(st)) {
		*of = path_to_placeholder(dirfd, path);
		return *of >= 0;
	}
	if (!stat_is_base(st) &&
		!(may_be_unknown_base(path, st, all) && path_has_attribute(dirfd, path)))
		return false;
	int fd = path_to_descriptor(dirfd, path);
	*of = fd >= 0 && fd_is_container(fd) ? fd : -1;
	return true;
}

/* Not inlined: calls on other files would have its stack. */
__attribute__((noinline)) bool path_leads_through_descriptor(int dirfd, const char *path, int *of)
{
	struct stat st;
	int saved = errno;
	bool yes = path && !door_thread.inside &&
		   (atomic_load(&fd_limit) > 0 || path_is_of_descriptor(path)) &&
		   REAL(fstatat)(dirfd, path, &st, 0) == 0 &&
		   path_is_through_descriptor(dirfd, path, &st, true, of);
	errno = saved;
	return yes;
}

int path_to_packed(int dirfd, const char *path)
{
	struct stat st;
	int saved = errno, of = path_of_packed(path);
	if (of < 0 && path && atomic_load(&fd_limit) > 0 && packs_are_known() &&
		path_is_there(path) && REAL(fstatat)(dirfd, path, &st, 0) == 0 &&
		stat_is_stand_in(&st))
		of = path_to_placeholder(dirfd, path);
	errno = saved;
	return of;
}

/* Is it a plain file with several names? libplfs would open and close it, and so drop locks. Not
 * inlined: calls on other files would have its stack. */
__attribute__((noinline)) static bool path_is_linked(int dirfd, const char *path, int at_flags)
{
	struct stat st;
	return REAL(fstatat)(dirfd, path, &st, at_flags) == 0 && S_ISREG(st.st_mode) &&
	       st.st_nlink > 1 && !path_may_be_name_by(dirfd, path, &st);
}

bool path_is_ours(int dirfd, const char *path, int at_flags)
{
	int saved = errno;
	bool yes = !door_thread.inside &&
		   (path_is_managed(dirfd, path) ? !path_is_linked(dirfd, path, at_flags)
						 : path_may_be_name(dirfd, path, at_flags));
	errno = saved;
	return yes;
}

_Atomic bool default_dir_waits;

/* What the directory is called: most paths do not have that in them. */
static char default_dir_name[NAME_MAX + 1];

void default_dir_start(void)
{
	const char *dir = getenv("PLFS_DEFAULT_DIR"), *name = dir ? strrchr(dir, '/') : NULL;
	if (!name || !name[1] || strlen(name + 1) >= sizeof default_dir_name)
		return;
	memcpy(default_dir_name, name + 1, strlen(name + 1) + 1);
	atomic_store(&default_dir_waits, true);
}

void default_dir_make(int dirfd, const char *path, int how)
{
	int saved = errno;
	if (!door_thread.inside && path && path_is_there(path) && strstr(path, default_dir_name) &&
		PLFS(plfs_door_before(dirfd, path, how)) == 1)
		atomic_store(&default_dir_waits, false);
	errno = saved;
}

static int chdir_at(const char *path)
{
	before_name(AT_FDCWD, path, PLFS_NAMES_DIR);
	FLAT_FIRST(-1, AT_FDCWD, path, PLFS_PLACE_FOLLOW, REAL(chdir)(at));
	int rc = REAL(chdir)(path);
	FLAT_AFTER(-1, rc, AT_FDCWD, path, PLFS_PLACE_FOLLOW, REAL(chdir)(at));
	return rc;
}

void path_moved(void)
{
	int saved = errno;
	PLFS(plfs_door_moved());
	errno = saved;
}

/* Opens do not ask for the working directory each time. */
EXPORT int chdir(const char *path)
{
	int rc = chdir_at(path);
	if (rc < 0 && path_is_unknown(AT_FDCWD, path, 0))
		errno = ENOTDIR;
	path_moved();
	return rc;
}

EXPORT int fchdir(int fd)
{
	int rc = REAL(fchdir)(fd);
	path_moved();
	return rc;
}
