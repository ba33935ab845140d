/* Calls by which a program becomes another user: what it has written is given to the storage before
 * each, and it goes on with its files. Here it stays who it is, which anybody may. */
#include "t.h"
#include <grp.h>
#include <pwd.h>

int main(void)
{
	uid_t uid = geteuid();
	gid_t gid = getegid(), groups[64];
	int fd = open("file", O_RDWR | O_CREAT, 0644), n = getgroups(64, groups);
	long size = 0;
	WANT(fd >= 0 && n >= 0);
#define CHANGE(call) \
	do { \
		WANT(write(fd, "text", 4) == 4); \
		WANT((call) == 0); \
		size += 4; \
	} while (0)
	CHANGE(setuid(uid));
	CHANGE(setgid(gid));
	CHANGE(seteuid(uid));
	CHANGE(setegid(gid));
	CHANGE(setreuid(uid, uid));
	CHANGE(setregid(gid, gid));
	CHANGE(setresuid(uid, uid, uid));
	CHANGE(setresgid(gid, gid, gid));
	WANT(write(fd, "last", 4) == 4);
	size += 4;
	struct stat st;
	WANT(fstat(fd, &st) == 0 && st.st_size == size);
	/* These need a privilege. */
	WANT((setgroups((size_t)n, groups) == 0) == (uid == 0));
	struct passwd *user = getpwuid(uid);
	WANT(!user || (initgroups(user->pw_name, gid) == 0) == (uid == 0));
	WANT(close(fd) == 0);
	WANT(stat("file", &st) == 0 && st.st_size == size);
	return wrong;
}
