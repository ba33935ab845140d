/* Start, fork and end of the process. */
#include "door.h"
#include "own_stack.h"

#include <link.h>
#include <pthread.h>
#include <string.h>
#include <sys/xattr.h>

static bool debug;

/* AddressSanitizer's library asks for it, and would end a program in which another library comes
 * before it. What the program itself has of that name, or ASAN_OPTIONS says, goes before. */
EXPORT const char *__asan_default_options(void)
{
	return "verify_asan_link_order=0";
}

/* So does ThreadSanitizer's. It sees libplfs's reads and writes, by what it has in the place of
 * libc's functions, but not its locks, which are no functions; and it forbids a child of fork to
 * start threads, of which libplfs has one. */
EXPORT const char *__tsan_default_options(void)
{
	return "ignore_noninstrumented_modules=1:die_after_fork=0";
}

/* With PLFS_DEBUG=1: writes the text of a failure to descriptor 2 by system call. */
void debug_last_error(int64_t rc)
{
	if (!debug || door_thread.inside || fd_is_container(2))
		return;
	const char *text = PLFS_ALWAYS(plfs_last_error());
	char line[1024];
	int n = snprintf(
		line, sizeof line, "plfs preload: error %d: %s\n", (int)-rc, text ? text : "");
	if (n > 0)
		RAW(SYS_write, 2L, line,
			(long)((size_t)n < sizeof line ? n : (int)sizeof line - 1));
}

void tell_loss(int64_t rc)
{
	if (rc >= 0 || fd_is_container(2))
		return;
	const char *text = PLFS_ALWAYS(plfs_last_error());
	char line[1024];
	int n = snprintf(line, sizeof line, "plfs: bytes that were written are lost: %s\n",
		text ? text : strerror((int)-rc));
	if (n > 0)
		RAW(SYS_write, 2L, line,
			(long)((size_t)n < sizeof line ? n : (int)sizeof line - 1));
}

/* Has libplfs nothing of this process that others wait for? It may have said something of names in
 * packs, without a descriptor. */
static bool is_idle(void)
{
	return door_thread.inside || (atomic_load(&fd_limit) == 0 && !packs_are_known());
}

int64_t commit_all(void)
{
	if (is_idle())
		return 0;
	int saved = errno;
	writers_describe();
	int64_t rc = PLFS(plfs_commit_all());
	to_errno(rc);
	errno = saved;
	return rc;
}

void end_process(void)
{
	door_close_nameless();
	tell_loss(PLFS(plfs_door_end()));
}

void leave_process(void)
{
	if (is_idle())
		return;
	writers_describe();
	door_close_nameless();
	int64_t rc = PLFS(plfs_exit());
	tell_loss(rc);
	to_errno(rc);
}

static void leave_at_exit(void)
{
	if (!door_thread.inside)
		writers_end();
	leave_process();
}

/* Who becomes another user may not open afterwards what is open as the one before. So what was
 * written is given to the storage, and its log sets are left, before. */
#define CHANGES_USER(name, declared, given) \
	EXPORT int name declared \
	{ \
		commit_all(); \
		return REAL(name) given; \
	}

CHANGES_USER(setuid, (uid_t uid), (uid))
CHANGES_USER(setgid, (gid_t gid), (gid))
CHANGES_USER(seteuid, (uid_t uid), (uid))
CHANGES_USER(setegid, (gid_t gid), (gid))
CHANGES_USER(setreuid, (uid_t real, uid_t effective), (real, effective))
CHANGES_USER(setregid, (gid_t real, gid_t effective), (real, effective))
CHANGES_USER(setresuid, (uid_t real, uid_t effective, uid_t kept), (real, effective, kept))
CHANGES_USER(setresgid, (gid_t real, gid_t effective, gid_t kept), (real, effective, kept))
CHANGES_USER(setgroups, (size_t n, const gid_t *groups), (n, groups))
CHANGES_USER(initgroups, (const char *user, gid_t group), (user, group))

static void before_fork(void)
{
	fd_count_fork();
	spawn_lock();
	listing_lock();
	fd_before_fork();
	fd_lock();
}

static void after_fork(void);

static void after_fork_in_child(void)
{
	signals_after_fork_in_child();
	description_after_fork_in_child();
	locks_after_fork_in_child();
	door_lend_after_fork_in_child();
	writers_after_fork_in_child();
	fd_after_fork_in_child();
	library_after_fork_in_child();
	served_after_fork_in_child();
	threads_after_fork_in_child();
	after_fork();
}

static void after_fork(void)
{
	fd_unlock();
	fd_release_numbers();
	listing_unlock();
	spawn_unlock();
}

/* fd is open on a name that libplfs cannot open (another user's, or damaged). Reads would give the
 * superblock's bytes as if they were the file's; an O_PATH descriptor in its place makes them fail
 * with EBADF. */
static void make_unreadable(int fd)
{
	char link[FD_PATH_ROOM];
	int path = (int)RAW(SYS_openat, AT_FDCWD, fd_path(link, fd), (long)(O_PATH | O_CLOEXEC));
	if (path >= 0) {
		bool closes = RAW(SYS_fcntl, (long)fd, (long)F_GETFD) & FD_CLOEXEC;
		RAW(SYS_dup3, path, fd, closes ? (long)O_CLOEXEC : 0L);
		RAW(SYS_close, path);
	}
}

/* Was fd opened on a file that was plain, or is so still? A superblock has the attribute as well,
 * which says so (docs/FORMAT.md section 11). */
static bool was_plain(int fd, const struct stat *st)
{
	static const char OF_SUPERBLOCK[] = "plfs 1 s ";
	if (st->st_size != PLFS_SUPER_BYTES)
		return RAW(SYS_fgetxattr, (long)fd, "user.plfs", NULL, 0L) > 0;
	ROOM(text);
	long n = text ? RAW(SYS_fgetxattr, (long)fd, "user.plfs", text, (long)ROOM_BYTES) : 0;
	return n > 0 && (n < (long)strlen(OF_SUPERBLOCK) ||
				memcmp(text, OF_SUPERBLOCK, strlen(OF_SUPERBLOCK)) != 0);
}

/* A file that was plain before it got a container, and has lost its name, looks like any other. Its
 * descriptor has a tag; or what other programs share is the position in it, and there is no place
 * for a tag. Then the attribute is asked. */
static bool may_be_inherited(int fd, const struct stat *st)
{
	return stat_may_be_name(st) || stat_is_stand_in(st) ||
	       (S_ISREG(st->st_mode) && (description_is_tagged(fd) || was_plain(fd, st)));
}

/* The flags of fd, if it is open on a plain file of a managed directory; else -1. That may become a
 * container. */
static int flags_of_plain(int fd, const struct stat *st)
{
	int flags = S_ISREG(st->st_mode) && st->st_nlink > 0
			    ? (int)RAW(SYS_fcntl, (long)fd, (long)F_GETFL)
			    : -1;
	return flags >= 0 && !(flags & O_PATH) && PLFS_ALWAYS(plfs_door_fd_below_managed(fd)) == 1
		       ? flags
		       : -1;
}

/* fd is open on a file that has no container, or none that is whole. Who reads it looks later. Who
 * can write it got it from a program without us, which may write it, too: the file stays plain.
 * True: something else is decided of it meanwhile. */
static bool take_plain(int fd, const struct stat *st)
{
	static const char PINNED[] = "plfs 1 p opened outside of PLFS";
	int flags = flags_of_plain(fd, st);
	if (flags < 0)
		return false;
	if ((flags & O_ACCMODE) != O_RDONLY)
		return RAW(SYS_fsetxattr, (long)fd, "user.plfs", PINNED, (long)strlen(PINNED),
			       (long)XATTR_CREATE) < 0 &&
		       errno == EEXIST;
	door_install_reader(fd, st);
	return false;
}

/* The access mode of the file of a pack whose placeholder came in a message. -1: fd is none. */
static int packed_mode(int fd, const struct stat *st)
{
	int64_t at = stat_is_stand_in(st) ? RAW(SYS_lseek, (long)fd, 0L, (long)SEEK_CUR) : 0;
	return at > 0 && (at & PLFS_PASSED) ? (int)(at >> PLFS_PASSED_ACCESS) & O_ACCMODE : -1;
}

/* The description of fd is that of the program before exec, or one that this program has. If there
 * is none to be found its position is the kernel's; so is its access mode, if who opened it took
 * the file for a plain one. Of others he has said it; that of a file of a pack is in the position.
 */
int adopt_passed(int fd)
{
	struct stat st;
	if (REAL(fstat)(fd, &st) < 0 || lock_may_be_passed(fd))
		return 0;
	if (!may_be_inherited(fd, &st) && !take_plain(fd, &st))
		return 0;
	int flags = (int)RAW(SYS_fcntl, (long)fd, (long)F_GETFL);
	if (flags < 0 || (flags & O_PATH))
		return 0;
	struct description *shared = description_of(fd);
	if (door_share(fd, shared))
		return 0;
	int packed = packed_mode(fd, &st), said = shared ? -1 : fd_access_said(fd);
	int mode = packed >= 0			   ? packed
		   : said >= 0			   ? said
		   : !shared && was_plain(fd, &st) ? flags & O_ACCMODE
						   : O_RDWR;
	int rc = door_adopt(fd, mode | (flags & (O_APPEND | O_NONBLOCK)), shared);
	if (!shared && (rc == -EACCES || rc == -EROFS))
		rc = door_adopt(fd, O_RDONLY | (flags & (O_APPEND | O_NONBLOCK)), NULL);
	if (rc == -EMFILE || rc == -ENFILE)
		return rc;
	if (rc < 0) {
		to_errno(rc);
		make_unreadable(fd);
	} else if (rc == 0) {
		/* By its links only, or decided and not whole yet. */
		take_plain(fd, &st);
	} else if (rc == 1 && !shared) {
		struct ofd *o = ofd_get(fd);
		atomic_store(&o->shared->position, POSITION_IN_KERNEL);
		ofd_put(o);
	}
	return 0;
}

/* Calls `call` for each open descriptor, of this process or of its parent. */
static void for_each_descriptor(bool of_parent, void (*call)(int))
{
	int dir = open_fd_paths(of_parent);
	if (dir < 0)
		return;
	char buf[1024];
	long n;
	while ((n = RAW(SYS_getdents64, dir, buf, sizeof buf)) > 0)
		for (long at = 0; at < n;) {
			struct dirent64 *e = (struct dirent64 *)(buf + at);
			at += e->d_reclen;
			int fd = e->d_name[0] >= '0' && e->d_name[0] <= '9' ? atoi(e->d_name) : dir;
			if (fd != dir)
				call(fd);
		}
	RAW(SYS_close, dir);
}

static void take_of_parent(int fd)
{
	char path[FD_PATH_ROOM];
	description_take_arena_at(fd_path_of_parent(path, fd));
}

/* Has fd a tag, and nothing is there to say which place in the file it stands for? A list of
 * posix_spawn, which libc does, can close the descriptor of an arena or put another file at its
 * number. The parent has it still. */
static bool is_lost(int fd)
{
	static bool is_asked;
	struct stat st;
	if (!description_is_tagged(fd) || fd_access_said(fd) >= 0 || REAL(fstat)(fd, &st) < 0 ||
		!(stat_may_be_name(&st) || stat_is_stand_in(&st)) || lock_may_be_passed(fd))
		return false;
	if (description_of(fd))
		return false;
	if (!is_asked)
		for_each_descriptor(true, take_of_parent);
	is_asked = true;
	return !description_of(fd);
}

/* At the start, when there are no other threads: one that cannot be adopted is no file. */
static void adopt_inherited_one(int fd)
{
	if (is_lost(fd))
		make_unreadable(fd);
	if (adopt_passed(fd) == 0)
		return;
	RAW(SYS_close, (long)fd);
	int path = (int)RAW(SYS_openat, (long)AT_FDCWD, "/dev/null", (long)O_PATH);
	if (path >= 0 && path != fd) {
		RAW(SYS_dup3, (long)path, (long)fd, 0L);
		RAW(SYS_close, (long)path);
	}
}

static bool any_names, any_locks;

static void look_at(int fd)
{
	struct stat st;
	if (REAL(fstat)(fd, &st) < 0)
		return;
	any_names = any_names || may_be_inherited(fd, &st) || flags_of_plain(fd, &st) >= 0;
	any_locks = any_locks || (S_ISREG(st.st_mode) && lock_may_be_passed(fd));
	if (S_ISREG(st.st_mode) && st.st_nlink == 0)
		description_take_arena(fd);
}

/* The last part of the start. */
static void adopt_inherited(void)
{
	int saved = errno;
	for_each_descriptor(false, look_at);
	if (any_names) {
		for_each_descriptor(false, adopt_inherited_one);
		/* As the program before exec held what it had read or written. */
		PLFS(plfs_door_hold_all());
	}
	/* Before anything opens and closes one. One for flock looks like a name at first. */
	if (any_names || any_locks)
		for_each_descriptor(false, lock_adopt);
	description_drop_unused();
	errno = saved;
}

/* Has the program functions that are to run before all constructors? Those of sanitizers that are
 * linked to it are, and few other programs have any. */
static bool has_preinit(void)
{
	for (const ElfW(Dyn) *entry = _r_debug.r_map->l_ld; entry->d_tag != DT_NULL; entry++)
		if (entry->d_tag == DT_PREINIT_ARRAY)
			return true;
	return false;
}

/* The library is linked with -z initfirst: libstdc++ copies stdout in its own constructor, which
 * must run after this one. A sanitizer that is linked to a program runs after it, too. The
 * program's functions then come before those of libc, and until they are ready ThreadSanitizer's
 * jump to 0, but for strlen, memcpy, strncmp and the like, malloc and pthread_mutex_lock. So
 * nothing that runs here may call others, as strcmp, snprintf or strdup (tests/preload `beside
 * tsan_static`); and what is inherited, which libplfs opens, waits for libplfs's own constructor
 * there. */
__attribute__((constructor)) static void start(int argc, char **argv, char **envp)
{
	(void)argc, (void)argv;
	int saved = errno;
	/* libc has not set `environ` this early, and libplfs reads its configuration from it. */
	if (!environ)
		environ = envp;
	real_resolve_early();
	const char *d = getenv("PLFS_DEBUG");
	debug = d && *d && (d[0] != '0' || d[1]);
	bool waits = has_preinit();
	PLFS_ALWAYS(
		(plfs_door_start((const char *const *)envp, waits ? adopt_inherited : NULL), 0));
	PLFS_ALWAYS((plfs_door_umask(-1), 0));
	path_start();
	own_stack_start();
	threads_start();
	PLFS_ALWAYS((plfs_door_at_exit(leave_at_exit), 0));
	pthread_atfork(before_fork, after_fork, after_fork_in_child);
	flat_start();
	default_dir_start();
	served_start(envp);
	library_start();
	if (!waits)
		adopt_inherited();
	errno = saved;
}

/* libplfs commits each write after this by itself, because its exit handler has run. */
__attribute__((destructor)) static void end(void)
{
	stdio_flush_all();
	commit_all();
}
