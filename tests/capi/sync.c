/* What another process sees, and when: commit, sync and refresh between two processes. */
#include "t.h"

static void tell(int fd)
{
	IS(write(fd, "x", 1), 1);
}
static void wait_for(int fd)
{
	char c;
	IS(read(fd, &c, 1), 1);
}

static plfs_file *at_exit;

static void write_at_exit(void)
{
	IS(plfs_write(at_exit, "late", 4), 4);
}

int main(void)
{
	int to[2], from[2];
	OK(pipe(to));
	OK(pipe(from));
	plfs_file *f = t_open("f", O_RDWR | O_CREAT);
	OK(plfs_commit(f));
	pid_t child = fork();
	char buf[16];
	if (child == 0) {
		plfs_file *mine = t_open("f", O_RDWR);
		IS(plfs_pread(mine, buf, 16, 0), 0);
		tell(from[1]);
		wait_for(to[0]);
		OK(plfs_refresh(mine));
		IS(plfs_pread(mine, buf, 16, 0), 5);
		TRUE(memcmp(buf, "first", 5) == 0);
		IS(plfs_pwrite(mine, "second", 6, 5), 6);
		OK(plfs_sync(mine));
		tell(from[1]);
		wait_for(to[0]);
		IS(plfs_pwrite(mine, "FIRST", 5, 0), 5);
		OK(plfs_close(mine));
		tell(from[1]);
		_exit(0);
	}
	wait_for(from[0]);
	IS(plfs_pwrite(f, "first", 5, 0), 5);
	OK(plfs_sync(f));
	tell(to[1]);
	wait_for(from[0]);
	OK(plfs_refresh(f));
	IS(plfs_pread(f, buf, 16, 0), 11);
	TRUE(memcmp(buf, "firstsecond", 11) == 0);
	tell(to[1]);
	wait_for(from[0]);
	OK(plfs_refresh(f));
	IS(plfs_pread(f, buf, 16, 0), 11);
	TRUE(memcmp(buf, "FIRSTsecond", 11) ==
		0); /* what was seen is older than what was written after it */
	int status;
	IS(waitpid(child, &status, 0), child);
	IS(status, 0);
	IS(plfs_pwrite(f, "!", 1, 11), 1);
	OK(plfs_commit_all());
	t_bytes("f", "FIRSTsecond!", 12);
	OK(plfs_close(f));

	/* exit(3) commits what is open; the child of a fork has no part in its parent's writes */
	child = fork();
	if (child == 0) {
		f = t_open("g", O_RDWR | O_CREAT);
		IS(plfs_pwrite(f, "kept", 4, 0), 4);
		exit(0);
	}
	IS(waitpid(child, &status, 0), child);
	IS(status, 0);
	t_bytes("g", "kept", 4);

	/* what a handler of exit(3) writes is kept, whether it was set before the library began or
	   after it: the first runs last, when the library has committed what was open */
	for (int before = 0; before < 2; before++) {
		child = fork();
		if (child == 0) {
			if (before)
				OK(atexit(write_at_exit));
			at_exit = t_open("h", O_RDWR | O_CREAT | O_TRUNC);
			IS(plfs_write(at_exit, "soon", 4), 4);
			if (!before)
				OK(atexit(write_at_exit));
			exit(0);
		}
		IS(waitpid(child, &status, 0), child);
		IS(status, 0);
		t_bytes("h", "soonlate", 8);
	}
	return 0;
}
