/* Which paths are ours: those in managed directories, which libplfs knows, and names of PLFS files
 * elsewhere, recognised by their size or a second name. */
#include "door.h"

bool path_is_managed(int dirfd, const char *path)
{
	int saved = errno;
	bool yes = path_is_there(path) && PLFS_ALWAYS(plfs_door_below_managed(dirfd, path)) == 1;
	errno = saved;
	return yes;
}

bool path_opens_managed(int dirfd, const char *path)
{
	int saved = errno;
	bool yes = PLFS_ALWAYS(plfs_door_opens_managed(dirfd, path)) == 1;
	errno = saved;
	return yes;
}

bool path_may_be_name(int dirfd, const char *path, int at_flags)
{
	struct stat st;
	int saved = errno;
	bool yes = path && REAL(fstatat)(dirfd, path, &st, at_flags) == 0 && stat_may_be_name(&st);
	errno = saved;
	return yes;
}

bool path_is_ours(int dirfd, const char *path, int at_flags)
{
	int saved = errno;
	bool yes = !door_thread.inside &&
		   (path_is_managed(dirfd, path) || path_may_be_name(dirfd, path, at_flags));
	errno = saved;
	return yes;
}

/* Opens do not ask for the working directory each time. */
EXPORT int chdir(const char *path)
{
	int rc = REAL(chdir)(path);
	plfs_door_moved();
	return rc;
}

EXPORT int fchdir(int fd)
{
	int rc = REAL(fchdir)(fd);
	plfs_door_moved();
	return rc;
}
