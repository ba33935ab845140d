/* Names of packs (docs/decisions/0019). The kernel does not have them, so calls that the kernel
 * answers for other files are answered here.
 *
 * As long as a process has found no pack, a name that the kernel has is the kernel's, and costs
 * nothing more than without PLFS; what it does not have is looked for in the pack of its directory.
 * From then on packs come first, in managed directories. */
#include "door.h"

#include <string.h>

bool packs_are_known(void)
{
	return !door_thread.inside && PLFS_ALWAYS(plfs_door_knows_packs()) == 1;
}

/* Calls libplfs on a path, unless it cannot be read. */
#define ON_NAME(path, call) \
	(door_thread.inside || !path_is_there(path) ? PLFS_NOT_PACKED : PLFS(call))

/* What a call of libplfs on a name said; errno stays where it is none of a pack. */
static bool is_packed(int said, int saved, int *rc)
{
	errno = saved;
	if (said == PLFS_IS_FLAT)
		flat_found();
	if (said == PLFS_NOT_PACKED || said == PLFS_NOT_MANAGED || said == PLFS_IS_FLAT)
		return false;
	*rc = (int)to_errno(said);
	return true;
}

/* Flags that the kernel refuses: it is to say so. */
static bool is_refused(int at_flags)
{
	return at_flags &
	       ~(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH | AT_NO_AUTOMOUNT | AT_STATX_SYNC_TYPE);
}

bool packed_stat(int dirfd, const char *path, struct stat *st, int at_flags, int *rc)
{
	if (is_refused(at_flags))
		return false;
	int saved = errno;
	struct stat found;
	int said = ON_NAME(path, plfs_door_packed_stat(dirfd, path, at_flags, &found));
	if (!is_packed(said, saved, rc))
		return false;
	if (*rc == 0 && !memory_is_there(st, sizeof *st, true))
		*rc = (int)to_errno(-EFAULT);
	if (*rc == 0)
		*st = found;
	return true;
}

bool packed_utimens(
	int dirfd, const char *path, const struct timespec times[2], int at_flags, int *rc)
{
	if (at_flags & ~(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH))
		return false;
	/* The kernel says EFAULT. */
	if (times && !memory_is_there(times, 2 * sizeof *times, false))
		return false;
	int saved = errno,
	    said = ON_NAME(path, plfs_door_packed_utimens(dirfd, path, times, at_flags));
	return is_packed(said, saved, rc);
}

bool path_is_packed(int dirfd, const char *path, int at_flags)
{
	int saved = errno, rc = 0, said = ON_NAME(path, plfs_door_packed_is(dirfd, path, at_flags));
	bool yes = is_packed(said, saved, &rc) && rc == 0;
	errno = saved;
	return yes;
}

bool path_is_hidden(int dirfd, const char *path)
{
	char name[NAME_MAX + 1];
	int saved = errno;
	bool is_there = path_is_there(path);
	errno = saved;
	/* Most have no dot, and that is soon seen. */
	size_t len = path && is_there && strchr(path, '.') ? strlen(path) : 0, from;
	while (len > 0 && path[len - 1] == '/')
		len--;
	for (from = len; from > 0 && path[from - 1] != '/'; from--)
		;
	/* Most names begin with something else. */
	if (len == from || path[from] != '.' || len - from >= sizeof name || door_thread.inside)
		return false;
	memcpy(name, path + from, len - from);
	name[len - from] = 0;
	return PLFS_ALWAYS(plfs_door_hidden(name)) >= PLFS_HIDDEN_PACK &&
	       path_is_managed(dirfd, path);
}

enum maker maker_of(int dirfd, const char *path)
{
	before_name(dirfd, path, PLFS_MAKES_BELOW);
	int saved = errno, rc = 0,
	    said = ON_NAME(path, plfs_door_packed_is(dirfd, path, AT_SYMLINK_NOFOLLOW));
	bool known = is_packed(said, saved, &rc);
	/* None is below a file, nor where nobody can tell what directory it is. */
	if (known && rc < 0 && (errno == ENOTDIR || errno == ESTALE || errno == EIO)) {
		size_t len = strlen(path);
		/* It has the name, but the path ends as that of a directory. */
		if (errno == ENOTDIR && len > 0 && path[len - 1] == '/')
			errno = EEXIST;
		return NOT_MADE;
	}
	bool yes = known && rc == 0;
	bool own = !yes && path_is_hidden(dirfd, path);
	errno = yes ? EEXIST : own ? EPERM : saved;
	if (yes || own)
		return NOT_MADE;
	/* One that is taken from a directory in a flat one may lead elsewhere. */
	return said == PLFS_IS_FLAT || flat_is_known() ? MADE_BY_PLFS : MADE_BY_KERNEL;
}

int made_beside(int dirfd, const char *path, int rc)
{
	int saved = errno,
	    said = rc != 0 || door_thread.inside ? 0 : PLFS(plfs_door_packed_beside(dirfd, path));
	errno = saved;
	return said == -EEXIST ? (int)to_errno(said) : rc;
}

bool path_is_unknown(int dirfd, const char *path, int at_flags)
{
	if (errno != ENOENT)
		return false;
	int rc = -1, said = ON_NAME(path, plfs_door_packed_is(dirfd, path, at_flags));
	if (is_packed(said, ENOENT, &rc) && rc < 0 && errno != ENOTDIR)
		errno = ENOENT;
	return rc == 0;
}

static int fail(int error)
{
	errno = error;
	return -1;
}

/* --- Permissions --- */

/* By mode and owner of the file of a pack that fd is open on, as access(2) has it. */
static bool may_access(int fd, int mode, bool effective)
{
	struct stat st;
	if (fstat(fd, &st) != 0)
		return false;
	uid_t uid = effective ? geteuid() : getuid();
	gid_t gid = effective ? getegid() : getgid();
	if (uid == 0)
		return !(mode & X_OK) || (st.st_mode & 0111);
	int shift = uid == st.st_uid ? 6 : gid == st.st_gid || group_member(st.st_gid) ? 3 : 0;
	return (((int)st.st_mode >> shift) & mode) == mode;
}

EXPORT int faccessat(int dirfd, const char *path, int mode, int at_flags)
{
	before_name(dirfd, path, PLFS_NAMES_DIR);
	FLAT_FIRST(-1, dirfd, path, PLACE_OF(at_flags), faccessat(AT_FDCWD, at, mode, at_flags));
	int was = errno, rc = REAL(faccessat)(dirfd, path, mode, at_flags), saved = errno;
	FLAT_AFTER(
		-1, rc, dirfd, path, PLACE_OF(at_flags), faccessat(AT_FDCWD, at, mode, at_flags));
	if (rc == 0 && path_is_hidden(dirfd, path))
		return fail(ENOENT);
	if (rc < 0 && saved == ENOENT) {
		is_packed(ON_NAME(path, plfs_door_packed_access(dirfd, path, mode, at_flags)),
			saved, &rc);
	} else if ((rc == 0 || saved == EACCES) && !(at_flags & AT_SYMLINK_NOFOLLOW)) {
		int of = path_to_packed(dirfd, path);
		if (of >= 0)
			rc = may_access(of, mode, at_flags & AT_EACCESS) ? 0 : fail(EACCES);
	}
	return leaving_errno(was, rc);
}

EXPORT int access(const char *path, int mode)
{
	return faccessat(AT_FDCWD, path, mode, 0);
}

EXPORT int eaccess(const char *path, int mode)
{
	return faccessat(AT_FDCWD, path, mode, AT_EACCESS);
}
ALIAS(eaccess, euidaccess);

/* --- Other kinds of names --- */

EXPORT int mkdirat(int dirfd, const char *path, mode_t mode)
{
	MAKE(dirfd, path, plfs_door_flat_mkdir(dirfd, path, mode),
		REAL(mkdirat)(dirfd, path, mode));
}

EXPORT int mkdir(const char *path, mode_t mode)
{
	return mkdirat(AT_FDCWD, path, mode);
}

EXPORT int mkfifoat(int dirfd, const char *path, mode_t mode)
{
	MAKE(dirfd, path, plfs_door_flat_mknod(dirfd, path, (mode & 07777) | S_IFIFO, 0),
		REAL(mkfifoat)(dirfd, path, mode));
}

EXPORT int mkfifo(const char *path, mode_t mode)
{
	return mkfifoat(AT_FDCWD, path, mode);
}

EXPORT int symlinkat(const char *target, int dirfd, const char *path)
{
	if (!path_is_there(target))
		return -1;
	MAKE(dirfd, path, plfs_door_flat_symlink(target, dirfd, path),
		REAL(symlinkat)(target, dirfd, path));
}

EXPORT int symlink(const char *target, const char *path)
{
	return symlinkat(target, AT_FDCWD, path);
}

/* Whether a file of ours has lost its names. The kernel would give it one again, because what it
 * sees still has one: a superblock that of its container. A plain file without names gets none. */
static bool is_nameless(int dirfd, const char *path, int at_flags, bool packed)
{
	struct stat st;
	int was = errno;
	bool ours = packed ||
		    (REAL(fstatat)(dirfd, path, &st, at_flags) == 0 && stat_may_be_name(&st));
	return leaving_errno(
		was, ours && fstatat(dirfd, path, &st, at_flags) == 0 && st.st_nlink == 0);
}

/* A file of a pack has one name. A link to its placeholder would be one more name of the pack. */
EXPORT int linkat(int old_dir, const char *old, int new_dir, const char *new, int at_flags)
{
	if (!path_is_there(old) || !path_is_there(new))
		return -1;
	bool by_descriptor = (at_flags & AT_EMPTY_PATH) && old && !*old ? fd_is_packed(old_dir)
									: path_of_packed(old) >= 0;
	int follow = at_flags & AT_SYMLINK_FOLLOW ? 0 : AT_SYMLINK_NOFOLLOW;
	if (path_is_hidden(old_dir, old))
		return fail(ENOENT);
	enum maker maker = maker_of(new_dir, new);
	if (maker == NOT_MADE)
		return -1;
	if ((at_flags & (AT_EMPTY_PATH | AT_SYMLINK_FOLLOW)) &&
		is_nameless(old_dir, old, follow | (at_flags & AT_EMPTY_PATH), by_descriptor))
		return fail(ENOENT);
	if (by_descriptor || path_is_packed(old_dir, old, follow))
		return fail(EPERM);
	/* What has no name gets none in a flat directory. */
	if ((at_flags & ~AT_SYMLINK_FOLLOW) && maker == MADE_BY_PLFS)
		return path_is_flat(new_dir, new) == 1
			       ? fail(EXDEV)
			       : REAL(linkat)(old_dir, old, new_dir, new, at_flags);
	if (maker != MADE_BY_PLFS)
		look_what_goes(old_dir, old, new_dir, new, at_flags, false);
	int rc = maker == MADE_BY_PLFS ? -1 : REAL(linkat)(old_dir, old, new_dir, new, at_flags);
	if (rc == 0) {
		look_who_came(old_dir, old, new_dir, new);
		return made_beside(new_dir, new, rc);
	}
	if (door_thread.inside || (maker != MADE_BY_PLFS && errno != ENOENT))
		return rc;
	int failed = errno, made = PLFS(plfs_door_flat_link(
				    old_dir, old, new_dir, new, at_flags & AT_SYMLINK_FOLLOW));
	errno = failed;
	if (made != PLFS_NOT_FLAT)
		return (int)to_errno(made);
	if (maker == MADE_BY_PLFS)
		return REAL(linkat)(old_dir, old, new_dir, new, at_flags);
	/* It may go on behind a file of a pack: ENOTDIR. */
	path_is_unknown(old_dir, old, follow);
	return rc;
}

EXPORT int link(const char *old, const char *new)
{
	return linkat(AT_FDCWD, old, AT_FDCWD, new, 0);
}

EXPORT ssize_t readlinkat(int dirfd, const char *restrict path, char *restrict buf, size_t n)
{
	before_name(dirfd, path, PLFS_NAMES_DIR);
	ssize_t rc = PLFS_NOT_FLAT;
	int saved = errno;
	bool first = flat_is_known();
	for (int again = first ? 0 : 1; again < 2; again++) {
		if (again)
			rc = REAL(readlinkat)(dirfd, path, buf, n);
		bool asks = !again || (rc < 0 && errno == ENOENT && !first);
		if (!asks || door_thread.inside || !path_is_there(path))
			continue;
		if (!memory_is_there(buf, n < PATH_MAX ? n : PATH_MAX, true))
			return fail(EFAULT);
		ssize_t said = PLFS(plfs_door_flat_readlink(dirfd, path, buf, n));
		if (said != PLFS_NOT_FLAT)
			return (ssize_t)to_errno(said);
		errno = again ? ENOENT : saved;
	}
	if (rc > 0)
		return flat_link_text(buf, rc, n);
	return rc < 0 && path_is_unknown(dirfd, path, AT_SYMLINK_NOFOLLOW) ? fail(EINVAL) : rc;
}

EXPORT ssize_t readlink(const char *restrict path, char *restrict buf, size_t n)
{
	return readlinkat(AT_FDCWD, path, buf, n);
}

EXPORT DIR *opendir(const char *path)
{
	before_name(AT_FDCWD, path, PLFS_NAMES_DIR);
	FLAT_FIRST(NULL, AT_FDCWD, path, PLFS_PLACE_FOLLOW, opendir(at));
	DIR *dir = REAL(opendir)(path);
	FLAT_AFTER(NULL, dir, AT_FDCWD, path, PLFS_PLACE_FOLLOW, opendir(at));
	if (!dir && path_is_unknown(AT_FDCWD, path, 0))
		errno = ENOTDIR;
	return dir;
}

/* --- Extended attributes, of which a file of a pack has none --- */

/* Once there are packs the kernel is not asked for what they have: `ls -l` asks for each file. */
static bool path_is_in_pack(const char *path)
{
	return packs_are_known() && path_is_packed(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW);
}

/* What says that a file has a container (plfs_format::attribute). No business of programs: who
 * removed it, as tools do that make a file's attributes those of another one, would lose all that
 * is in the container. */
#define DECISION "user.plfs"

/* The error of a call about it, or 0. */
static int refused(const char *name, int error)
{
	bool is_it = !door_thread.inside && path_is_there(name) && name && !strcmp(name, DECISION);
	return is_it ? error : 0;
}

/* Gives the names in `all` but that one to a list of n bytes. */
static ssize_t leave_out_decision(const char *all, ssize_t len, char *list, size_t n)
{
	size_t kept = 0;
	for (const char *at = all; at < all + len; at += strlen(at) + 1) {
		size_t part = strlen(at) + 1;
		if (!strcmp(at, DECISION))
			continue;
		if (part > n - kept)
			return fail(ERANGE);
		memcpy(list + kept, at, part);
		kept += part;
	}
	return (ssize_t)kept;
}

/* The kernel's list without it. Who asks how long a list is gives no room, and then just so much.
 */
#define LIST(list_of, get_of, of, list, n) \
	({ \
		int was_ = errno; \
		ssize_t rc_ = list_of(of, list, n); \
		int error_ = errno; \
		bool has_ = !door_thread.inside && (rc_ > 0 || (rc_ < 0 && error_ == ERANGE)) && \
			    get_of(of, DECISION, NULL, 0) >= 0; \
		errno = rc_ < 0 ? error_ : was_; \
		if (has_ && n == 0) { \
			rc_ -= (ssize_t)sizeof DECISION; \
		} else if (has_) { \
			char *all_ = malloc(n + sizeof DECISION); \
			rc_ = !all_ ? fail(ENOMEM) : list_of(of, all_, n + sizeof DECISION); \
			if (rc_ > 0) \
				rc_ = memory_is_there(list, n, true) \
					      ? leave_out_decision(all_, rc_, list, n) \
					      : fail(EFAULT); \
			free(all_); \
		} \
		rc_; \
	})
#define ONE(call, get_of, ...) call(__VA_ARGS__)

/* libc's call of one kind: by path, by path of what may be a link, and by descriptor. */
#define XATTR(result, on_packed, refusal, ask, name, declared, given) \
	EXPORT result name(const char *path declared) \
	{ \
		if (refusal) \
			return fail(refusal); \
		if (path_is_in_pack(path)) \
			return (on_packed); \
		FLAT_FIRST(-1, AT_FDCWD, path, PLFS_PLACE_FOLLOW, name(at given)); \
		result rc = ask(REAL(name), REAL(getxattr), path given); \
		FLAT_AFTER(-1, rc, AT_FDCWD, path, PLFS_PLACE_FOLLOW, name(at given)); \
		return rc < 0 && path_is_unknown(AT_FDCWD, path, 0) ? (on_packed) : rc; \
	} \
	EXPORT result l##name(const char *path declared) \
	{ \
		if (refusal) \
			return fail(refusal); \
		if (path_is_in_pack(path)) \
			return (on_packed); \
		FLAT_FIRST(-1, AT_FDCWD, path, 0, l##name(at given)); \
		result rc = ask(REAL(l##name), REAL(lgetxattr), path given); \
		FLAT_AFTER(-1, rc, AT_FDCWD, path, 0, l##name(at given)); \
		return rc < 0 && path_is_unknown(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW) \
			       ? (on_packed) \
			       : rc; \
	} \
	EXPORT result f##name(int fd declared) \
	{ \
		if (refusal) \
			return fail(refusal); \
		return fd_is_packed(fd) ? (on_packed) \
					: ask(REAL(f##name), REAL(fgetxattr), fd given); \
	}
#define DECLARED(...) , ##__VA_ARGS__

XATTR(ssize_t, fail(ENODATA), refused(name, ENODATA), ONE, getxattr,
	DECLARED(const char *name, void *value, size_t n), DECLARED(name, value, n))
XATTR(ssize_t, 0, 0, LIST, listxattr, DECLARED(char *list, size_t n), DECLARED(list, n))
XATTR(int, fail(EOPNOTSUPP), refused(name, EPERM), ONE, setxattr,
	DECLARED(const char *name, const void *value, size_t n, int flags),
	DECLARED(name, value, n, flags))
XATTR(int, fail(ENODATA), refused(name, EPERM), ONE, removexattr, DECLARED(const char *name),
	DECLARED(name))

/* --- What is asked of the file system that a file is on --- */

/* Where the kernel found nothing: the directory, in `at`, of the file of a pack that a path leads
 * to, and in *name the rest. False: it leads to none, and errno stays. */
static bool find_packed(const char *path, char at[PATH_MAX], const char **name)
{
	int saved = errno, rc = 0;
	if (saved != ENOENT ||
		!is_packed(ON_NAME(path, plfs_door_packed_where(AT_FDCWD, path, at)), saved, &rc) ||
		rc < 0)
		return false;
	errno = saved;
	char *slash = strrchr(at, '/');
	*name = slash + 1;
	*slash = 0;
	return true;
}

#define OF_FILE_SYSTEM(name, type) \
	EXPORT int name(const char *restrict path, struct type *restrict out) \
	{ \
		char at[PATH_MAX]; \
		const char *rest; \
		before_name(AT_FDCWD, path, PLFS_NAMES_DIR); \
		FLAT_FIRST(-1, AT_FDCWD, path, PLFS_PLACE_FOLLOW, name(at, out)); \
		int rc = REAL(name)(path, out); \
		FLAT_AFTER(-1, rc, AT_FDCWD, path, PLFS_PLACE_FOLLOW, name(at, out)); \
		if (rc == 0 || !find_packed(path, at, &rest)) \
			return rc; \
		return REAL(name)(*at ? at : "/", out); \
	} \
	ALIAS(name, name##64)

OF_FILE_SYSTEM(statfs, statfs);
OF_FILE_SYSTEM(statvfs, statvfs);

/* The placeholder lies in memory. */
#define OF_OPEN_FILE(name, by_path, type) \
	EXPORT int name(int fd, struct type *out) \
	{ \
		char at[PATH_MAX]; \
		struct ofd *o = fd_is_packed(fd) ? ofd_get(fd) : NULL; \
		if (!o) \
			return REAL(name)(fd, out); \
		int rc = PLFS(plfs_door_packed_dir(o->file, at)); \
		ofd_put(o); \
		return rc < 0 ? (int)to_errno(rc) : REAL(by_path)(at, out); \
	} \
	ALIAS(name, name##64)

OF_OPEN_FILE(fstatfs, statfs, statfs);
OF_OPEN_FILE(fstatvfs, statvfs, statvfs);

/* realpath of a name of a pack: its directory's, and the name. */
static char *packed_realpath(const char *dir, const char *name, char *resolved)
{
	char *above = REAL(realpath)(*dir ? dir : "/", NULL), *whole = NULL;
	if (!above)
		return NULL;
	int len = asprintf(&whole, "%s%s%s", above, strcmp(above, "/") ? "/" : "", name);
	free(above);
	if (len < 0)
		return NULL;
	if (len >= PATH_MAX) {
		free(whole);
		errno = ENAMETOOLONG;
		return NULL;
	}
	if (!resolved)
		return whole;
	memcpy(resolved, whole, (size_t)len + 1);
	free(whole);
	return resolved;
}

EXPORT char *realpath(const char *restrict path, char *restrict resolved)
{
	char at[PATH_MAX], *flat = NULL;
	const char *name;
	before_name(AT_FDCWD, path, PLFS_NAMES_DIR);
	int saved = errno;
	bool first = flat_is_known();
	char *found = first ? NULL : REAL(realpath)(path, resolved);
	if (!found && (first || errno == ENOENT) && !door_thread.inside && path &&
		path_is_there(path)) {
		int failed = errno, rc = PLFS(plfs_door_flat_realpath(path, &flat));
		errno = failed;
		if (rc != PLFS_NOT_FLAT && (to_errno(rc) < 0 || !flat))
			return NULL;
		if (rc == 0) {
			size_t len = strlen(flat) + 1;
			found = resolved ? resolved : malloc(len);
			if (found && len <= PATH_MAX)
				memcpy(found, flat, len);
			PLFS_ALWAYS(plfs_door_free_text(flat));
			errno = saved;
			return found;
		}
	}
	if (first)
		found = REAL(realpath)(path, resolved);
	return found || !find_packed(path, at, &name) ? found : packed_realpath(at, name, resolved);
}

EXPORT char *canonicalize_file_name(const char *path)
{
	return realpath(path, NULL);
}

EXPORT char *__realpath_chk(const char *path, char *resolved, size_t room)
{
	/* If the buffer is too small, libc ends the program. */
	return room < PATH_MAX ? REAL(__realpath_chk)(path, resolved, room)
			       : realpath(path, resolved);
}

/* libplfs cannot ask the kernel what it is without changing it. */
EXPORT mode_t umask(mode_t mask)
{
	mode_t old = REAL(umask)(mask);
	PLFS_ALWAYS((plfs_door_umask((int)(mask & 0777)), 0));
	return old;
}
