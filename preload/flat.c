/* Names in flat directories (docs/decisions/0022). The kernel finds them only where they lie, in
 * shadows, so a call on one is made with the path of that place; what makes, renames or removes a
 * name is libplfs's.
 *
 * As long as a process has found no flat directory, a name that the kernel has is the kernel's, and
 * costs nothing more than without PLFS; what it does not have is looked for. From then on, and from
 * the start if the working directory lies in a shadow, libplfs is asked first: `..` and names that
 * are taken from a directory in a flat one mean another thing to the kernel. */
#include "door.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

/* Where names lie (FORMAT.md section 13), and what begins the text of a symbolic link there. */
#define SHADOWS "/.plfs/spread/"
#define LINK_TEXT "/.plfs-spread/link/"

static _Atomic bool known;

bool flat_is_known(void)
{
	return atomic_load_explicit(&known, memory_order_relaxed) && !door_thread.inside;
}

void flat_found(void)
{
	atomic_store_explicit(&known, true, memory_order_relaxed);
}

bool flat_may_be(void)
{
	int saved = errno;
	bool may = !door_thread.inside && PLFS_ALWAYS(plfs_door_has_flat()) == 1;
	errno = saved;
	return may;
}

int sync_directory(int fd)
{
	struct stat st;
	bool may_be_packed = packs_are_known();
	if ((!flat_may_be() && !may_be_packed) || REAL(fstat)(fd, &st) < 0 ||
		!S_ISDIR(st.st_mode) || (!may_be_packed && path_is_flat(fd, ".") <= 0))
		return 0;
	return (int)to_errno(PLFS(plfs_door_sync_directory(fd)));
}

/* Is it a path of what lies in a shadow, as the kernel says it? */
static bool is_place(const char *path)
{
	return strstr(path, SHADOWS);
}

void flat_start(void)
{
	char here[PATH_MAX];
	if (RAW(SYS_getcwd, here, sizeof here) > 0 && is_place(here))
		flat_found();
}

/* How often a name is looked for that moves. */
#define TRIES 100

void place_free(struct place *p)
{
	int saved = errno;
	if (p->at)
		PLFS_ALWAYS(plfs_door_free_text(p->at));
	p->at = NULL;
	errno = saved;
}

bool place_next(struct place *p, int dirfd, const char *path, int how)
{
	int saved = errno;
	place_free(p);
	if (door_thread.inside || !path || !path_is_there(path)) {
		errno = saved;
		return false;
	}
	if (p->tries++ == TRIES || p->is_out) {
		errno = ENOENT;
		return false;
	}
	int rc = PLFS(plfs_door_place(dirfd, path, how, &p->at));
	errno = saved;
	if (rc == PLFS_NOT_FLAT)
		return false;
	flat_found();
	p->is_flat = true;
	p->is_out = rc == 1;
	if (rc < 0) {
		p->at = NULL;
		to_errno(rc);
	}
	return rc >= 0;
}

int path_is_flat(int dirfd, const char *path)
{
	int saved = errno, rc = 0;
	if (!door_thread.inside && path && path_is_there(path))
		rc = PLFS(plfs_door_is_flat(dirfd, path));
	if (rc > 0)
		flat_found();
	errno = saved;
	return rc;
}

bool fd_is_flat(int fd)
{
	return flat_is_known() && path_is_flat(fd, ".") > 0;
}

/* Directories have names elsewhere: a link count of 2 would say that none of them is a directory.
 * Of the text of a link the kernel counts what comes before it. */
void flat_fix(
	int dirfd, const char *path, int at_flags, unsigned mode, uint64_t *nlink, uint64_t *size)
{
	if (door_thread.inside)
		return;
	int saved = errno;
	if (S_ISDIR(mode) && *nlink == 2 && flat_may_be()) {
		bool is_fd = (at_flags & AT_EMPTY_PATH) && !(path && *path);
		if (path_is_flat(dirfd, is_fd ? "." : path) > 0 ||
			(path && is_place(path) && flat_is_known()))
			*nlink = 1;
	}
	if (S_ISLNK(mode) && *size >= strlen(LINK_TEXT) && flat_is_known()) {
		char text[sizeof LINK_TEXT];
		ssize_t n = REAL(readlinkat)(dirfd, path ? path : "", text, sizeof text);
		if (n >= (ssize_t)strlen(LINK_TEXT) && !memcmp(text, LINK_TEXT, strlen(LINK_TEXT)))
			*size -= strlen(LINK_TEXT);
	}
	errno = saved;
}

ssize_t flat_link_text(char *buf, ssize_t n, size_t room)
{
	static const size_t before = sizeof LINK_TEXT - 1;
	if (n < (ssize_t)before || door_thread.inside)
		return n;
	if (memcmp(buf, LINK_TEXT, before) == 0) {
		memmove(buf, buf + before, (size_t)n - before);
		return n - (ssize_t)before;
	}
	if (n >= PATH_MAX || !memmem(buf, (size_t)n, SHADOWS, strlen(SHADOWS)))
		return n;
	/* Of a descriptor, or /proc/self/cwd: what the kernel says of what lies in a shadow. */
	int saved = errno;
	char *text = strndup(buf, (size_t)n), *name = NULL;
	if (text && text[0] == '/' && PLFS(plfs_door_flat_name(text, &name)) == 1) {
		size_t len = strlen(name);
		n = (ssize_t)(len < room ? len : room);
		memcpy(buf, name, (size_t)n);
		PLFS_ALWAYS(plfs_door_free_text(name));
	}
	free(text);
	errno = saved;
	return n;
}

/* What programs call a path of the kernel's; NULL: the same. False, and errno: nobody knows. */
static bool name_of(const char *path, char **name)
{
	*name = NULL;
	if (door_thread.inside || !is_place(path))
		return true;
	int rc = PLFS(plfs_door_flat_name(path, name));
	if (rc == -ESTALE)
		rc = -ENOENT;
	return to_errno(rc) >= 0;
}

/* Puts a text into `buf`, or new memory if that is NULL. */
static char *hand_out(const char *text, char *buf, size_t room)
{
	size_t n = strlen(text) + 1;
	if (room && n > room) {
		errno = ERANGE;
		return NULL;
	}
	buf = buf ? buf : malloc(room ? room : n);
	return buf ? memcpy(buf, text, n) : NULL;
}

EXPORT char *getcwd(char *buf, size_t room)
{
	char *name;
	if (!flat_is_known())
		return REAL(getcwd)(buf, room);
	ROOM(here);
	if (!here)
		return NULL;
	if (buf && room == 0) {
		errno = EINVAL;
		return NULL;
	}
	/* One that is longer is not ours to change. */
	if (RAW(SYS_getcwd, here, PATH_MAX) < 0 || here[0] != '/')
		return REAL(getcwd)(buf, room);
	if (!name_of(here, &name))
		return NULL;
	char *out = name ? hand_out(name, buf, room) : REAL(getcwd)(buf, room);
	if (name)
		PLFS_ALWAYS(plfs_door_free_text(name));
	return out;
}

EXPORT char *__getcwd_chk(char *buf, size_t n, size_t room)
{
	/* If the buffer is too small, libc ends the program. */
	return n > room ? REAL(__getcwd_chk)(buf, n, room) : getcwd(buf, n);
}

EXPORT char *get_current_dir_name(void)
{
	if (!flat_is_known())
		return REAL(get_current_dir_name)();
	const char *said = getenv("PWD");
	struct stat there, here;
	if (said && stat(".", &here) == 0 && stat(said, &there) == 0 &&
		here.st_dev == there.st_dev && here.st_ino == there.st_ino)
		return strdup(said);
	return getcwd(NULL, 0);
}

EXPORT char *getwd(char *buf)
{
	if (buf)
		return getcwd(buf, PATH_MAX);
	errno = EINVAL;
	return NULL;
}

/* libc makes the directory without our mkdir. */
EXPORT char *mkdtemp(char *template)
{
	static const char letters[62] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
	before_name(AT_FDCWD, template, PLFS_MAKES_BELOW);
	size_t len = strlen(template);
	if (len < 6 || memcmp(template + len - 6, "XXXXXX", 6) != 0 ||
		path_is_flat(AT_FDCWD, template) != 1)
		return REAL(mkdtemp)(template);
	for (int tries = 0; tries < 1000; tries++) {
		unsigned char random[6];
		if (RAW(SYS_getrandom, random, sizeof random, 0L) != sizeof random)
			return NULL;
		for (int i = 0; i < 6; i++)
			template[len - 6 + i] = letters[random[i] % sizeof letters];
		if (mkdir(template, 0700) == 0)
			return template;
		if (errno != EEXIST)
			return NULL;
	}
	return NULL;
}

/* A socket would get its name where nobody looks. */
EXPORT int bind(int fd, const struct sockaddr *address, socklen_t n)
{
	size_t head = offsetof(struct sockaddr_un, sun_path);
	char path[sizeof(struct sockaddr_un)] = "";
	if (n > head && n <= sizeof(struct sockaddr_un) && !door_thread.inside &&
		memory_is_there(address, n, false) && address->sa_family == AF_UNIX)
		memcpy(path, (const char *)address + head, n - head);
	before_name(AT_FDCWD, path, PLFS_MAKES_BELOW);
	if (!*path || path_is_flat(AT_FDCWD, path) != 1)
		return REAL(bind)(fd, address, n);
	errno = EOPNOTSUPP;
	return -1;
}

EXPORT long pathconf(const char *path, int name)
{
	FLAT_FIRST(-1, AT_FDCWD, path, PLFS_PLACE_FOLLOW, REAL(pathconf)(at, name));
	long rc = REAL(pathconf)(path, name);
	FLAT_AFTER(-1, rc, AT_FDCWD, path, PLFS_PLACE_FOLLOW, REAL(pathconf)(at, name));
	return rc;
}

EXPORT int lchmod(const char *path, mode_t mode)
{
	FLAT_FIRST(-1, AT_FDCWD, path, 0, REAL(lchmod)(at, mode));
	int rc = REAL(lchmod)(path, mode);
	FLAT_AFTER(-1, rc, AT_FDCWD, path, 0, REAL(lchmod)(at, mode));
	return rc;
}

EXPORT int name_to_handle_at(
	int dirfd, const char *path, struct file_handle *handle, int *mount, int flags)
{
	int how = flags & AT_SYMLINK_FOLLOW ? PLFS_PLACE_FOLLOW : 0;
	FLAT_FIRST(
		-1, dirfd, path, how, REAL(name_to_handle_at)(AT_FDCWD, at, handle, mount, flags));
	int rc = REAL(name_to_handle_at)(dirfd, path, handle, mount, flags);
	FLAT_AFTER(-1, rc, dirfd, path, how,
		REAL(name_to_handle_at)(AT_FDCWD, at, handle, mount, flags));
	return rc;
}

char *const *flat_environment(
	int dirfd, char *const envp[], char **words, size_t count, char **text)
{
	int saved = errno;
	*text = NULL;
	if (!flat_is_known() || PLFS(plfs_door_flat_environment(dirfd, text)) != 1) {
		errno = saved;
		return envp;
	}
	size_t n = 0, name = (size_t)(strchr(*text, '=') - *text) + 1;
	words[n++] = *text;
	for (size_t i = 0; i < count; i++)
		if (strncmp(envp[i], *text, name) != 0)
			words[n++] = envp[i];
	words[n] = NULL;
	errno = saved;
	return words;
}
