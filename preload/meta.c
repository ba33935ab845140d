/* Names and attributes: the stat family, owners, modes, times, unlink, rename, rmdir. */
#include "door.h"

#include <string.h>
#include <sys/sysmacros.h>

/* After a native stat: replaces the size by the logical one if the file is a name. If this user may
 * not read the container, the kernel's answer stays; it is no answer where there was only no
 * descriptor for a look. */
static int fix_stat(int rc, int dirfd, const char *path, int at_flags, struct stat *st)
{
	if (rc == 0 && (S_ISDIR(st->st_mode) || S_ISLNK(st->st_mode))) {
		uint64_t nlink = st->st_nlink, size = (uint64_t)st->st_size;
		flat_fix(dirfd, path, at_flags, st->st_mode, &nlink, &size);
		st->st_nlink = (nlink_t)nlink;
		st->st_size = (off_t)size;
		return rc;
	}
	if (rc != 0 || door_thread.inside || !path_may_be_name_by(dirfd, path, st))
		return rc;
	int saved = errno;
	int64_t fixed = PLFS(plfs_door_fix_stat(dirfd, path, at_flags, st));
	errno = saved;
	return fixed == -EMFILE || fixed == -ENFILE || fixed == -ENOMEM ? (int)to_errno(fixed) : 0;
}

/* What is said of what no program sees. */
static int not_there(void)
{
	errno = ENOENT;
	return -1;
}

EXPORT int fstat(int fd, struct stat *st)
{
	struct ofd *o = NULL;
	if (!fd_is_container(fd) || door_thread.inside)
		return fix_stat(REAL(fstat)(fd, st), fd, NULL, AT_EMPTY_PATH, st);
	if (fd_is_marked(fd) || !(o = ofd_get(fd)) || OFD_IS_PLAIN(o)) {
		int rc = REAL(fstat)(fd, st);
		if (rc != 0 || !fd_is_nameless_base(fd, st) || !(o = o ? o : ofd_get(fd))) {
			if (o)
				ofd_put(o);
			return fix_stat(rc, fd, NULL, AT_EMPTY_PATH, st);
		}
	}
	int rc = memory_is_there(st, sizeof *st, true) ? PLFS(plfs_fstat(o->file, st)) : -EFAULT;
	ofd_put(o);
	return (int)to_errno(rc);
}
ALIAS(fstat, fstat64);

/* Is that a container's own descriptor (AT_EMPTY_PATH)? */
static bool is_descriptors(int dirfd, const char *path, int at_flags)
{
	int saved = errno;
	bool yes = (at_flags & AT_EMPTY_PATH) && path && path_is_there(path) && !*path &&
		   fd_is_container(dirfd);
	errno = saved;
	return yes;
}

/* A path of a descriptor, `of` if it is this process's, has led to *st, which becomes what fstat
 * says of the file. The kernel's answer stays for who may not read it, as in fix_stat. */
static int stat_through_descriptor(int dirfd, const char *path, int of, struct stat *st)
{
	int saved = errno, rc = 0;
	int fd = of >= 0 ? of : door_openat(dirfd, path, O_RDONLY | O_CLOEXEC, 0);
	struct stat found;
	if (fd >= 0 && fstat(fd, &found) == 0)
		*st = found;
	else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM)
		rc = -errno;
	if (of < 0 && fd >= 0)
		door_close(fd);
	errno = saved;
	return (int)to_errno(rc);
}

/* fstatat. A name of a pack is looked for before the kernel is asked, if there are packs; else only
 * where the kernel has nothing, as behind a link that leads to one. */
static int stat_at(int dirfd, const char *path, struct stat *st, int at_flags)
{
	before_name(dirfd, path, PLFS_NAMES_DIR);
	int rc, was = errno, of = at_flags & AT_SYMLINK_NOFOLLOW ? -1 : path_of_packed(path);
	if (of >= 0)
		return fstat(of, st);
	FLAT_FIRST(-1, dirfd, path, PLACE_OF(at_flags), stat_at(AT_FDCWD, at, st, at_flags));
	bool first = packs_are_known();
	if (first && packed_stat(dirfd, path, st, at_flags | AT_SYMLINK_NOFOLLOW, &rc))
		return rc;
	rc = REAL(fstatat)(dirfd, path, st, at_flags);
	/* It may have moved into its pack meanwhile. */
	if (rc < 0 && errno == ENOENT && packed_stat(dirfd, path, st, at_flags, &rc))
		return leaving_errno(was, rc);
	/* Packs were asked, and have found a flat directory. */
	if (flat_is_known())
		FLAT_AFTER(-1, rc, dirfd, path, PLACE_OF(at_flags),
			stat_at(AT_FDCWD, at, st, at_flags));
	if (rc == 0 && path_is_hidden(dirfd, path))
		return not_there();
	if (rc == 0 && !door_thread.inside && !(at_flags & AT_SYMLINK_NOFOLLOW) &&
		path_is_through_descriptor(dirfd, path, st, false, &of))
		return stat_through_descriptor(dirfd, path, of, st);
	return fix_stat(rc, dirfd, path, at_flags, st);
}

EXPORT int stat(const char *path, struct stat *st)
{
	return stat_at(AT_FDCWD, path, st, 0);
}
ALIAS(stat, stat64);

EXPORT int lstat(const char *path, struct stat *st)
{
	return stat_at(AT_FDCWD, path, st, AT_SYMLINK_NOFOLLOW);
}
ALIAS(lstat, lstat64);

EXPORT int fstatat(int dirfd, const char *path, struct stat *st, int at_flags)
{
	if (is_descriptors(dirfd, path, at_flags))
		return fstat(dirfd, st);
	return stat_at(dirfd, path, st, at_flags);
}
ALIAS(fstatat, fstatat64);

/* What programs built against glibc before 2.33 call. `version` says which struct stat they mean;
 * on 64-bit machines there is one, with the numbers 0 and 1. */
static bool is_stat_version(int version)
{
	if (version == 0 || version == 1)
		return true;
	errno = EINVAL;
	return false;
}

EXPORT int __xstat(int version, const char *path, struct stat *st);
EXPORT int __lxstat(int version, const char *path, struct stat *st);
EXPORT int __fxstat(int version, int fd, struct stat *st);
EXPORT int __fxstatat(int version, int dirfd, const char *path, struct stat *st, int at_flags);

int __xstat(int version, const char *path, struct stat *st)
{
	return is_stat_version(version) ? stat(path, st) : -1;
}
ALIAS(__xstat, __xstat64);

int __lxstat(int version, const char *path, struct stat *st)
{
	return is_stat_version(version) ? lstat(path, st) : -1;
}
ALIAS(__lxstat, __lxstat64);

int __fxstat(int version, int fd, struct stat *st)
{
	return is_stat_version(version) ? fstat(fd, st) : -1;
}
ALIAS(__fxstat, __fxstat64);

int __fxstatat(int version, int dirfd, const char *path, struct stat *st, int at_flags)
{
	return is_stat_version(version) ? fstatat(dirfd, path, st, at_flags) : -1;
}
ALIAS(__fxstatat, __fxstatat64);

static struct statx_timestamp statx_time(struct timespec time)
{
	return (struct statx_timestamp){.tv_sec = time.tv_sec, .tv_nsec = (uint32_t)time.tv_nsec};
}

/* What a stat of a file of a pack says, as statx says it. */
static void fill_statx(struct statx *x, const struct stat *st)
{
	*x = (struct statx){
		.stx_mask = STATX_BASIC_STATS,
		.stx_blksize = (uint32_t)st->st_blksize,
		.stx_nlink = (uint32_t)st->st_nlink,
		.stx_uid = st->st_uid,
		.stx_gid = st->st_gid,
		.stx_mode = (uint16_t)st->st_mode,
		.stx_ino = st->st_ino,
		.stx_size = (uint64_t)st->st_size,
		.stx_blocks = (uint64_t)st->st_blocks,
		.stx_atime = statx_time(st->st_atim),
		.stx_ctime = statx_time(st->st_ctim),
		.stx_mtime = statx_time(st->st_mtim),
		.stx_dev_major = major(st->st_dev),
		.stx_dev_minor = minor(st->st_dev),
	};
}

static bool packed_statx(int dirfd, const char *path, int at_flags, struct statx *x, int *rc)
{
	struct stat st;
	if (!path && fd_is_packed(dirfd))
		*rc = fstat(dirfd, &st);
	else if (!packed_stat(dirfd, path, &st, at_flags, rc))
		return false;
	if (*rc == 0 && !memory_is_there(x, sizeof *x, true))
		*rc = (int)to_errno(-EFAULT);
	if (*rc == 0)
		fill_statx(x, &st);
	return true;
}

EXPORT int statx(
	int dirfd, const char *restrict path, int at_flags, unsigned mask, struct statx *restrict x)
{
	int rc, was = errno, of = -1;
	before_name(dirfd, path, PLFS_NAMES_DIR);
	if ((at_flags & AT_EMPTY_PATH) && path_is_there(path) && !(path && *path))
		of = fd_is_packed(dirfd) ? dirfd : -1;
	else if (!(at_flags & AT_SYMLINK_NOFOLLOW))
		of = path_of_packed(path);
	FLAT_FIRST(-1, dirfd, path, PLACE_OF(at_flags), statx(AT_FDCWD, at, at_flags, mask, x));
	bool first = packs_are_known();
	if (of >= 0 && packed_statx(of, NULL, 0, x, &rc))
		return rc;
	if (first && packed_statx(dirfd, path, at_flags | AT_SYMLINK_NOFOLLOW, x, &rc))
		return rc;
	rc = REAL(statx)(dirfd, path, at_flags,
		mask | STATX_TYPE | STATX_SIZE | STATX_NLINK | STATX_BLOCKS | STATX_INO |
			STATX_CTIME,
		x);
	if (rc < 0 && errno == ENOENT && packed_statx(dirfd, path, at_flags, x, &rc))
		return leaving_errno(was, rc);
	if (flat_is_known())
		FLAT_AFTER(-1, rc, dirfd, path, PLACE_OF(at_flags),
			statx(AT_FDCWD, at, at_flags, mask, x));
	if (rc == 0 && path_is_hidden(dirfd, path))
		return not_there();
	if (rc == 0 && (S_ISDIR(x->stx_mode) || S_ISLNK(x->stx_mode))) {
		uint64_t nlink = x->stx_nlink, size = x->stx_size;
		flat_fix(dirfd, path, at_flags, x->stx_mode, &nlink, &size);
		x->stx_nlink = (uint32_t)nlink;
		x->stx_size = size;
	}
	bool by_number = (at_flags & AT_EMPTY_PATH) && !(path && *path);
	bool is_nameless = rc == 0 && by_number && !door_thread.inside && fd_is_container(dirfd) &&
			   fd_is_nameless_base(dirfd, &(struct stat){.st_mode = x->stx_mode,
							      .st_nlink = x->stx_nlink});
	if (rc != 0 || door_thread.inside || !S_ISREG(x->stx_mode))
		return rc;
	struct stat st = {
		.st_dev = makedev(x->stx_dev_major, x->stx_dev_minor),
		.st_ino = x->stx_ino,
		.st_mode = x->stx_mode,
		.st_nlink = x->stx_nlink,
		.st_uid = x->stx_uid,
		.st_gid = x->stx_gid,
		.st_size = (off_t)x->stx_size,
		.st_blocks = (blkcnt_t)x->stx_blocks,
		.st_blksize = x->stx_blksize,
		.st_atim = {x->stx_atime.tv_sec, x->stx_atime.tv_nsec},
		.st_mtim = {x->stx_mtime.tv_sec, x->stx_mtime.tv_nsec},
		.st_ctim = {x->stx_ctime.tv_sec, x->stx_ctime.tv_nsec},
	};
	if (!by_number && !(at_flags & AT_SYMLINK_NOFOLLOW) &&
		path_is_through_descriptor(dirfd, path, &st, false, &of)) {
		rc = stat_through_descriptor(dirfd, path, of, &st);
		if (rc == 0)
			fill_statx(x, &st);
		return rc;
	}
	if (!is_nameless && !path_may_be_name_by(dirfd, path, &st))
		return rc;
	struct ofd *o = by_number && (is_nameless || !fd_is_reader(dirfd)) ? ofd_get(dirfd) : NULL;
	if (o && !is_nameless && OFD_IS_PLAIN(o)) {
		ofd_put(o);
		rc = fix_stat(0, dirfd, NULL, AT_EMPTY_PATH, &st);
	} else if (o) {
		rc = (int)to_errno(PLFS(plfs_fstat(o->file, &st)));
		ofd_put(o);
	} else {
		rc = fix_stat(0, dirfd, path, at_flags, &st);
	}
	if (rc < 0)
		return rc;
	x->stx_size = (uint64_t)st.st_size;
	x->stx_blocks = (uint64_t)st.st_blocks;
	x->stx_blksize = (uint32_t)st.st_blksize;
	x->stx_nlink = (uint32_t)st.st_nlink;
	x->stx_mtime.tv_sec = st.st_mtim.tv_sec;
	x->stx_mtime.tv_nsec = (uint32_t)st.st_mtim.tv_nsec;
	return 0;
}

/* A container that a plain file has got has the rights of its inode. Looked at before these are
 * changed, and after: who takes his own right to look leaves the rest to who makes the container.
 */
static int rights_followed(struct ofd *o, int rc)
{
	int saved = errno;
	PLFS(plfs_door_inode_has_changed(o->file));
	errno = saved;
	return rc;
}

EXPORT int fchmod(int fd, mode_t mode)
{
	struct ofd *o;
	if (!fd_is_container(fd) || door_thread.inside || !(o = ofd_get(fd)))
		return fd_is_flat(fd) ? fchmodat(fd, ".", mode, 0) : REAL(fchmod)(fd, mode);
	if (OFD_IS_PLAIN(o))
		rights_followed(o, 0);
	int rc = OFD_IS_PLAIN(o) ? rights_followed(o, REAL(fchmod)(fd, mode))
				 : (int)to_errno(PLFS(plfs_fchmod(o->file, mode)));
	ofd_put(o);
	return rc;
}

EXPORT int chmod(const char *path, mode_t mode)
{
	int of = path_to_packed(AT_FDCWD, path);
	if (of >= 0)
		return fchmod(of, mode);
	if (path_is_hidden(AT_FDCWD, path))
		return not_there();
	if (!path_is_ours(AT_FDCWD, path, 0))
		return REAL(chmod)(path, mode);
	return (int)to_errno(PLFS(plfs_door_chmod(AT_FDCWD, path, mode, 0)));
}

EXPORT int fchmodat(int dirfd, const char *path, mode_t mode, int at_flags)
{
	if (path_is_hidden(dirfd, path))
		return not_there();
	bool follows = !(at_flags & AT_SYMLINK_NOFOLLOW);
	int of = at_flags ? -1 : path_to_packed(dirfd, path);
	if (of >= 0)
		return fchmod(of, mode);
	/* Of a flat directory libplfs changes the shadows as well. */
	if (!follows)
		FLAT_FIRST(-1, dirfd, path, 0, fchmodat(AT_FDCWD, at, mode, at_flags));
	/* Without AT_SYMLINK_NOFOLLOW, as a name is not a link. */
	if (door_thread.inside || (at_flags & ~AT_SYMLINK_NOFOLLOW) ||
		!(follows ? path_is_ours(dirfd, path, 0)
			  : path_may_be_name(dirfd, path, AT_SYMLINK_NOFOLLOW) ||
					path_is_packed(dirfd, path, at_flags))) {
		int rc = REAL(fchmodat)(dirfd, path, mode, at_flags);
		FLAT_AFTER(-1, rc, dirfd, path, PLACE_OF(at_flags),
			fchmodat(AT_FDCWD, at, mode, at_flags));
		return rc;
	}
	at_flags &= ~AT_SYMLINK_NOFOLLOW;
	return (int)to_errno(PLFS(plfs_door_chmod(dirfd, path, mode, at_flags)));
}

EXPORT int fchown(int fd, uid_t uid, gid_t gid)
{
	struct ofd *o;
	if (!fd_is_container(fd) || door_thread.inside || !(o = ofd_get(fd)))
		return fd_is_flat(fd) ? fchownat(fd, ".", uid, gid, 0) : REAL(fchown)(fd, uid, gid);
	if (OFD_IS_PLAIN(o))
		rights_followed(o, 0);
	int rc = OFD_IS_PLAIN(o) ? rights_followed(o, REAL(fchown)(fd, uid, gid))
				 : (int)to_errno(PLFS(plfs_fchown(o->file, uid, gid)));
	ofd_put(o);
	return rc;
}

EXPORT int fchownat(int dirfd, const char *path, uid_t uid, gid_t gid, int at_flags)
{
	if (is_descriptors(dirfd, path, at_flags))
		return fchown(dirfd, uid, gid);
	int of = at_flags & ~AT_EMPTY_PATH ? -1 : path_to_packed(dirfd, path);
	if (of >= 0)
		return fchown(of, uid, gid);
	if (path_is_hidden(dirfd, path))
		return not_there();
	if ((at_flags & ~(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH)) ||
		!path_is_ours(dirfd, path, at_flags & AT_SYMLINK_NOFOLLOW))
		return REAL(fchownat)(dirfd, path, uid, gid, at_flags);
	return (int)to_errno(PLFS(plfs_door_chown(dirfd, path, uid, gid, at_flags)));
}

EXPORT int chown(const char *path, uid_t uid, gid_t gid)
{
	return fchownat(AT_FDCWD, path, uid, gid, 0);
}

EXPORT int lchown(const char *path, uid_t uid, gid_t gid)
{
	return fchownat(AT_FDCWD, path, uid, gid, AT_SYMLINK_NOFOLLOW);
}

EXPORT int futimens(int fd, const struct timespec times[2])
{
	struct ofd *o;
	if (!fd_is_container(fd) || door_thread.inside || !(o = ofd_get(fd)))
		return REAL(futimens)(fd, times);
	if (OFD_IS_PLAIN(o)) {
		ofd_put(o);
		return REAL(futimens)(fd, times);
	}
	bool is_there = !times || memory_is_there(times, 2 * sizeof *times, false);
	int rc = is_there ? PLFS(plfs_futimens(o->file, times)) : -EFAULT;
	/* Who does not own the file, and may write it, may set this moment, as the kernel says it.
	 */
	if (rc == -EPERM && !o->is_packed &&
		(!times || (times[0].tv_nsec == UTIME_NOW && times[1].tv_nsec == UTIME_NOW)))
		rc = REAL(futimens)(fd, times) < 0 ? -errno : 0;
	ofd_put(o);
	return (int)to_errno(rc);
}

/* By path. Data still in memory is committed before, because a later commit would move the times
 * again; that of a pack would not. */
static int set_times(int dirfd, const char *path, const struct timespec times[2], int at_flags)
{
	int rc, was = errno;
	/* EINVAL of libc's utimensat, which utime and utimes do not use. */
	if (!path)
		return (int)to_errno(-EFAULT);
	int of = at_flags ? -1 : path_to_packed(dirfd, path);
	if (of >= 0)
		return futimens(of, times);
	if (path_is_hidden(dirfd, path))
		return not_there();
	FLAT_FIRST(-1, dirfd, path, PLACE_OF(at_flags), set_times(AT_FDCWD, at, times, at_flags));
	bool first = packs_are_known();
	if (first && packed_utimens(dirfd, path, times, at_flags | AT_SYMLINK_NOFOLLOW, &rc))
		return rc;
	commit_all();
	rc = REAL(utimensat)(dirfd, path, times, at_flags);
	FLAT_AFTER(
		-1, rc, dirfd, path, PLACE_OF(at_flags), set_times(AT_FDCWD, at, times, at_flags));
	if (rc < 0 && errno == ENOENT && !(first && (at_flags & AT_SYMLINK_NOFOLLOW)))
		packed_utimens(dirfd, path, times, at_flags, &rc);
	return leaving_errno(was, rc);
}

EXPORT int utimensat(int dirfd, const char *path, const struct timespec times[2], int at_flags)
{
	if (is_descriptors(dirfd, path, at_flags))
		return futimens(dirfd, times);
	return path ? set_times(dirfd, path, times, at_flags)
		    : REAL(utimensat)(dirfd, path, times, at_flags);
}

/* Microseconds as nanoseconds; NULL for NULL. False: they are none. */
static bool in_ns(const struct timeval times[2], struct timespec ns[2])
{
	for (int i = 0; times && i < 2; i++) {
		if (times[i].tv_usec < 0 || times[i].tv_usec >= 1000000) {
			errno = EINVAL;
			return false;
		}
		ns[i] = (struct timespec){times[i].tv_sec, times[i].tv_usec * 1000};
	}
	return true;
}

EXPORT int futimes(int fd, const struct timeval times[2])
{
	struct timespec ns[2];
	if (!fd_is_container(fd) || door_thread.inside)
		return REAL(futimes)(fd, times);
	return in_ns(times, ns) ? futimens(fd, times ? ns : NULL) : -1;
}

EXPORT int futimesat(int dirfd, const char *path, const struct timeval times[2])
{
	struct timespec ns[2];
	if (!path)
		return futimes(dirfd, times);
	return in_ns(times, ns) ? set_times(dirfd, path, times ? ns : NULL, 0) : -1;
}

EXPORT int utime(const char *path, const struct utimbuf *times)
{
	struct timespec ns[2];
	if (times) {
		ns[0] = (struct timespec){times->actime, 0};
		ns[1] = (struct timespec){times->modtime, 0};
	}
	return set_times(AT_FDCWD, path, times ? ns : NULL, 0);
}

EXPORT int utimes(const char *path, const struct timeval times[2])
{
	struct timespec ns[2];
	return in_ns(times, ns) ? set_times(AT_FDCWD, path, times ? ns : NULL, 0) : -1;
}

EXPORT int lutimes(const char *path, const struct timeval times[2])
{
	struct timespec ns[2];
	return in_ns(times, ns) ? set_times(AT_FDCWD, path, times ? ns : NULL, AT_SYMLINK_NOFOLLOW)
				: -1;
}

/* Takes away what a directory without files may still have of PLFS's, so that its rmdir succeeds:
 * its pack if that is empty, DIR/.plfs if it holds no container, and the directory's layout.
 * Whether there was any; errno says why a pack has to stay. For the second it uses rmdir alone,
 * which refuses directories that are not empty, so a container that appears meanwhile is safe. */
static bool remove_empty_store(int dirfd, const char *path)
{
	int saved = errno;
	int dir = (int)RAW(
		SYS_openat, dirfd, path, (long)(O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
	errno = saved;
	if (dir < 0)
		return false;
	/* Its rmdir is libplfs's; and who renames over one gets ENOTEMPTY. */
	if (path_is_flat(dir, ".") != 0) {
		RAW(SYS_close, dir);
		errno = saved;
		return false;
	}
	char buf[1024];
	long n;
	bool only = true, has_store = false, has_layout = false, has_pack = false;
	while (only && (n = RAW(SYS_getdents64, dir, buf, sizeof buf)) > 0)
		for (long at = 0; at < n;) {
			struct dirent64 *e = (struct dirent64 *)(buf + at);
			at += e->d_reclen;
			int own = PLFS_ALWAYS(plfs_door_hidden(e->d_name));
			has_store = has_store || own == PLFS_HIDDEN_STORE;
			has_layout = has_layout || own == PLFS_HIDDEN_LAYOUT;
			has_pack = has_pack || own >= PLFS_HIDDEN_PACK;
			only = only && (own || !strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."));
		}
	bool removed = only && has_pack;
	int rc = removed ? PLFS(plfs_door_packed_remove(dirfd, path)) : 0;
	if (rc < 0) {
		RAW(SYS_close, dir);
		to_errno(rc);
		return false;
	}
	int store = only && has_store
			    ? (int)RAW(SYS_openat, dir, ".plfs",
				      (long)(O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC))
			    : -1;
	if (store >= 0) {
		while ((n = RAW(SYS_getdents64, store, buf, sizeof buf)) > 0)
			for (long at = 0; at < n;) {
				struct dirent64 *e = (struct dirent64 *)(buf + at);
				at += e->d_reclen;
				if (e->d_name[0] != '.')
					RAW(SYS_unlinkat, store, e->d_name, (long)AT_REMOVEDIR);
			}
		RAW(SYS_close, store);
		has_store = RAW(SYS_unlinkat, dir, ".plfs", (long)AT_REMOVEDIR) != 0;
		removed = removed || !has_store;
	}
	/* Last, and only if nothing else is in the way: a directory that stays keeps it. */
	if (only && has_layout && !has_store && RAW(SYS_lseek, dir, 0L, (long)SEEK_SET) == 0)
		while ((n = RAW(SYS_getdents64, dir, buf, sizeof buf)) > 0)
			for (long at = 0; at < n;) {
				struct dirent64 *e = (struct dirent64 *)(buf + at);
				at += e->d_reclen;
				if (PLFS_ALWAYS(plfs_door_hidden(e->d_name)) ==
						PLFS_HIDDEN_LAYOUT &&
					RAW(SYS_unlinkat, dir, e->d_name, 0L) == 0)
					removed = true;
			}
	RAW(SYS_close, dir);
	errno = saved;
	return removed;
}

/* Of a directory that is flat. False: it is none, and errno is anything. */
static bool rmdir_flat(int dirfd, const char *path, int *rc)
{
	if (!path_is_there(path))
		return false;
	int said = PLFS(plfs_door_flat_rmdir(dirfd, path));
	if (said == PLFS_NOT_FLAT)
		return false;
	*rc = (int)to_errno(said);
	return true;
}

EXPORT int unlinkat(int dirfd, const char *path, int flags)
{
	if (path_is_hidden(dirfd, path))
		return not_there();
	int rc;
	if (flags & AT_REMOVEDIR) {
		int saved = errno;
		if (flat_is_known() && rmdir_flat(dirfd, path, &rc))
			return rc;
		errno = saved;
		rc = REAL(unlinkat)(dirfd, path, flags);
		if (rc < 0 && (errno == ENOENT || errno == ENOTEMPTY || errno == EEXIST) &&
			!door_thread.inside) {
			int failed = errno;
			if (rmdir_flat(dirfd, path, &rc)) {
				if (rc == 0)
					errno = saved;
				return rc;
			}
			errno = failed;
		}
		if (rc < 0 && path_is_unknown(dirfd, path, AT_SYMLINK_NOFOLLOW))
			errno = ENOTDIR;
		if (rc == 0 || (errno != ENOTEMPTY && errno != EEXIST) || door_thread.inside)
			return rc;
		if (remove_empty_store(dirfd, path))
			return REAL(unlinkat)(dirfd, path, flags);
		return -1;
	}
	if (flags || door_thread.inside)
		return REAL(unlinkat)(dirfd, path, flags);
	if (!path_is_there(path))
		return -1;
	int saved = errno;
	rc = PLFS(plfs_door_unlink_managed(dirfd, path));
	if (rc == PLFS_NOT_MANAGED) {
		bool ours = path_may_be_name(dirfd, path, AT_SYMLINK_NOFOLLOW);
		errno = saved;
		if (!ours)
			return REAL(unlinkat)(dirfd, path, flags);
		rc = PLFS(plfs_door_unlink(dirfd, path));
	}
	if (rc >= 0)
		errno = saved;
	return (int)to_errno(rc);
}

EXPORT int unlink(const char *path)
{
	return unlinkat(AT_FDCWD, path, 0);
}

EXPORT int rmdir(const char *path)
{
	return unlinkat(AT_FDCWD, path, AT_REMOVEDIR);
}

EXPORT int remove(const char *path)
{
	int rc = unlink(path);
	return rc < 0 && errno == EISDIR ? rmdir(path) : rc;
}

/* Before a rename: is one of the names hidden? Then errno says what it gives. */
static bool rename_is_hidden(int old_dir, const char *old, int new_dir, const char *new)
{
	before_name(new_dir, new, PLFS_MAKES_BELOW);
	bool is_old = path_is_hidden(old_dir, old),
	     is_new = !is_old && path_is_hidden(new_dir, new);
	if (is_old || is_new)
		errno = is_old ? ENOENT : EPERM;
	return is_old || is_new;
}

static bool rename_is_ours(int old_dir, const char *old, int new_dir, const char *new)
{
	return path_is_there(old) && path_is_there(new) &&
	       (path_is_ours(old_dir, old, AT_SYMLINK_NOFOLLOW) ||
		       path_is_ours(new_dir, new, AT_SYMLINK_NOFOLLOW));
}

void look_who_came(int old_dir, const char *old, int new_dir, const char *new)
{
	if (door_thread.inside || !path_is_managed(new_dir, new) || path_is_managed(old_dir, old))
		return;
	int saved = errno;
	PLFS(plfs_door_came_in(new_dir, new));
	errno = saved;
}

void look_what_goes(
	int old_dir, const char *old, int new_dir, const char *new, int at_flags, bool moves)
{
	if (door_thread.inside || (!at_flags && !path_is_managed(old_dir, old)) ||
		path_is_managed(new_dir, new))
		return;
	int saved = errno;
	PLFS(plfs_door_goes_out(old_dir, old, at_flags, moves));
	errno = saved;
}

static int rename_ours(int old_dir, const char *old, int new_dir, const char *new, unsigned flags)
{
	int64_t rc = to_errno(PLFS(plfs_door_rename(old_dir, old, new_dir, new, flags)));
	/* A directory that has nothing of the program's is empty. */
	if (rc < 0 && !flags && (errno == ENOTEMPTY || errno == EEXIST) &&
		remove_empty_store(new_dir, new))
		rc = to_errno(PLFS(plfs_door_rename(old_dir, old, new_dir, new, flags)));
	return (int)rc;
}

/* `kernels`: the call that the program has made. */
#define RENAME(old_dir, old, new_dir, new, flags, kernels) \
	do { \
		if (rename_is_hidden(old_dir, old, new_dir, new)) \
			return -1; \
		look_what_goes(old_dir, old, new_dir, new, 0, true); \
		if ((flags) & RENAME_EXCHANGE) \
			look_what_goes(new_dir, new, old_dir, old, 0, true); \
		int rc = rename_is_ours(old_dir, old, new_dir, new) \
				 ? rename_ours(old_dir, old, new_dir, new, flags) \
				 : (kernels); \
		if (rc == 0) \
			look_who_came(old_dir, old, new_dir, new); \
		if (rc == 0 && ((flags) & RENAME_EXCHANGE)) \
			look_who_came(new_dir, new, old_dir, old); \
		/* A directory above the working directory may have been renamed. */ \
		path_moved(); \
		return rc; \
	} while (0)

EXPORT int renameat2(int old_dir, const char *old, int new_dir, const char *new, unsigned flags)
{
	RENAME(old_dir, old, new_dir, new, flags,
		REAL(renameat2)(old_dir, old, new_dir, new, flags));
}

EXPORT int renameat(int old_dir, const char *old, int new_dir, const char *new)
{
	RENAME(old_dir, old, new_dir, new, 0, REAL(renameat)(old_dir, old, new_dir, new));
}

EXPORT int rename(const char *old, const char *new)
{
	RENAME(AT_FDCWD, old, AT_FDCWD, new, 0, REAL(rename)(old, new));
}

bool path_is_container(int dirfd, const char *path)
{
	struct stat st;
	if (path_is_packed(dirfd, path, 0))
		return true;
	return !door_thread.inside && REAL(fstatat)(dirfd, path, &st, 0) == 0 &&
	       path_may_be_name_by(dirfd, path, &st) &&
	       PLFS(plfs_door_fix_stat(dirfd, path, 0, &st)) == 1;
}

/* Writes go to logs, so the inode of a name gets no events, and a program would wait for them for
 * ever. ENOSPC makes programs (tail -f) poll. */
EXPORT int inotify_add_watch(int fd, const char *path, uint32_t mask)
{
	before_name(AT_FDCWD, path, PLFS_NAMES_DIR);
	/* Nor does a flat directory. */
	if (path_is_container(AT_FDCWD, path) || path_is_flat(AT_FDCWD, path) == 2) {
		errno = ENOSPC;
		return -1;
	}
	FLAT_FIRST(-1, AT_FDCWD, path, PLFS_PLACE_FOLLOW, inotify_add_watch(fd, at, mask));
	int rc = REAL(inotify_add_watch)(fd, path, mask);
	FLAT_AFTER(-1, rc, AT_FDCWD, path, PLFS_PLACE_FOLLOW, inotify_add_watch(fd, at, mask));
	return rc;
}

/* libc itself opens the file of logins, and would write its entries over the superblock. */
EXPORT int utmpname(const char *path)
{
	if (!path_is_container(AT_FDCWD, path))
		return REAL(utmpname)(path);
	errno = EOPNOTSUPP;
	return -1;
}
ALIAS(utmpname, utmpxname);
