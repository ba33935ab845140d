/* Files that are open when their process forks, and lose their names: the data goes away, but not
 * before the child has closed, too. Prints nothing but what is wrong. */
#include "t.h"

/* The parent removes the name and closes before the child does: what keeps the data for the child
 * is what it has from its parent, which must not give that up for both. */
int main(void)
{
	char c[32];
	for (int reads = 0; reads < 2; reads++) {
		int go[2], end, fd = make("f", "kept for the child");
		if (reads)
			WANT(pread(fd, c, 4, 0) == 4);
		WANT(containers() == 1);
		pipe(go);
		fflush(stdout);
		pid_t pid = fork();
		if (!pid) {
			close(go[1]);
			read(go[0], c, 1);
			WANT(pread(fd, c, sizeof c, 0) == 18 &&
				!memcmp(c, "kept for the child", 18));
			WANT(pwrite(fd, "KEPT", 4, 0) == 4);
			WANT(pread(fd, c, sizeof c, 0) == 18 &&
				!memcmp(c, "KEPT for the child", 18));
			WANT(close(fd) == 0);
			fflush(stdout);
			_exit(wrong);
		}
		WANT(unlink("f") == 0);
		WANT(close(fd) == 0);
		WANT(containers() == 1);
		close(go[1]);
		close(go[0]);
		WANT(waitpid(pid, &end, 0) == pid && end == 0);
		WANT(containers() == 0);
	}
	return wrong;
}
