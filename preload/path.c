/* Which paths are ours: lexically below one of PLFS_MOUNTS. */
#include "door.h"

#include <pthread.h>
#include <string.h>

/* A path longer than this with its directory is refused by the kernel (PATH_MAX is 4,096), so it is not ours. */
#define PATH_ROOM 8192

struct mount {
	char *dir; /* without a slash at the end; "" is the root */
	size_t len;
};

static struct mount *mounts;
static int mount_count;
static pthread_once_t mounts_once = PTHREAD_ONCE_INIT;

/* Appends the parts of `path` to the normal path out[0..len). Returns the new length or -1 if there is no room.
 * "." and empty parts vanish, ".." takes the last part away. */
static int append_normal(char *out, int len, const char *path)
{
	while (*path) {
		while (*path == '/')
			path++;
		const char *end = strchrnul(path, '/');
		size_t n = (size_t)(end - path);
		if (n == 2 && path[0] == '.' && path[1] == '.') {
			while (len > 0 && out[--len] != '/')
				;
		} else if (n > 0 && !(n == 1 && path[0] == '.')) {
			if (len + n + 2 > PATH_ROOM)
				return -1;
			out[len++] = '/';
			memcpy(out + len, path, n);
			len += (int)n;
		}
		path = end;
	}
	out[len] = 0;
	return len;
}

/* PLFS_MOUNTS is DIR:DIR...; a backslash makes the next character literal. Relative entries are ignored: they have no fixed meaning. */
static void read_mounts(void)
{
	const char *s = getenv("PLFS_MOUNTS");
	if (!s || !*s)
		return;
	int room = 1;
	for (const char *p = s; *p; p++)
		room += *p == ':';
	struct mount *list = calloc((size_t)room, sizeof *list);
	char *part = malloc(strlen(s) + 1), *normal = malloc(PATH_ROOM);
	int count = 0;
	if (list && part && normal) {
		for (bool more = true; more;) {
			size_t n = 0;
			for (; *s && *s != ':'; s++) {
				if (*s == '\\' && s[1])
					s++;
				part[n++] = *s;
			}
			part[n] = 0;
			more = *s++ == ':';
			int len = part[0] == '/' ? append_normal(normal, 0, part) : -1;
			if (len >= 0 && (list[count].dir = strdup(normal)))
				list[count++].len = (size_t)len;
		}
	}
	free(part);
	free(normal);
	mounts = list;
	mount_count = count;
}

bool path_below_mount(int dirfd, const char *path)
{
	pthread_once(&mounts_once, read_mounts);
	if (mount_count == 0 || !path || !*path)
		return false;

	char full[PATH_ROOM];
	int len = 0;
	if (*path != '/') {
		if (dirfd == AT_FDCWD) {
			len = (int)RAW(SYS_getcwd, full, (long)PATH_ROOM - 1) - 1;
		} else {
			char link[40];
			snprintf(link, sizeof link, "/proc/self/fd/%d", dirfd);
			len = (int)RAW(SYS_readlinkat, AT_FDCWD, link, full, (long)PATH_ROOM - 1);
		}
		if (len <= 0 || full[0] != '/')
			return false;
		if (len == 1)
			len = 0;
	}
	len = append_normal(full, len, path);
	if (len < 0)
		return false;
	for (int i = 0; i < mount_count; i++) {
		size_t n = mounts[i].len;
		if ((size_t)len >= n && memcmp(full, mounts[i].dir, n) == 0 && (full[n] == '/' || full[n] == 0))
			return true;
	}
	return false;
}

bool path_may_be_name(int dirfd, const char *path, int at_flags)
{
	struct stat st;
	int saved = errno;
	bool yes = path && REAL(fstatat)(dirfd, path, &st, at_flags) == 0 && S_ISREG(st.st_mode) && st.st_size == PLFS_SUPER_BYTES;
	errno = saved;
	return yes;
}

bool path_is_ours(int dirfd, const char *path, int at_flags)
{
	int saved = errno;
	bool yes = !inside_plfs && (path_below_mount(dirfd, path) || path_may_be_name(dirfd, path, at_flags));
	errno = saved;
	return yes;
}
