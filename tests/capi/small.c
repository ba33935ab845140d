/* Files of a directory with the workload small, which are in its pack (SEMANTICS P1 to P14). */
#include "t.h"

#include <sys/stat.h>
#include <sys/statvfs.h>

static int names_in(const char *path)
{
	plfs_dir *dir = NULL;
	OK(plfs_opendir(path, &dir));
	int n = 0;
	while (plfs_readdir(dir))
		n++;
	OK(plfs_closedir(dir));
	return n;
}

int main(void)
{
	/* The root of what is here. */
	OK(mkdir(".plfs", 0755));
	OK(mkdir("s", 0755));
	OK(system("plfs layout --workload small s > layout"));
	umask(027);
	plfs_file *file = NULL;
	OK(plfs_open("s/a", O_RDWR | O_CREAT | O_EXCL, 0666, &file));
	IS(plfs_pwrite(file, "hello", 5, 0), 5);
	OK(plfs_close(file));
	struct stat st;
	OK(plfs_stat("s/a", &st));
	IS(st.st_size, 5);
	IS(st.st_mode, S_IFREG | 0640);
	TRUE(st.st_uid == geteuid() && st.st_gid == getegid() && st.st_nlink == 1);
	IS(access("s/a", F_OK), -1);
	IS(plfs_open("s/a", O_RDWR | O_CREAT | O_EXCL, 0666, &file), -EEXIST);
	t_bytes("s/a", "hello", 5);

	/* A child has a place of its own among the writers. */
	pid_t child = fork();
	if (child == 0) {
		file = t_open("s/a", O_WRONLY | O_APPEND);
		IS(plfs_write(file, " child", 6), 6);
		OK(plfs_close(file));
		exit(0);
	}
	int status;
	TRUE(waitpid(child, &status, 0) == child && status == 0);
	t_bytes("s/a", "hello child", 11);

	OK(plfs_symlink("s/a", "link"));
	t_bytes("link", "hello child", 11);
	OK(plfs_chmod("link", 0500));
	IS(plfs_access("s/a", X_OK | R_OK), 0);
	IS(plfs_access("s/b", F_OK), -ENOENT);
	OK(plfs_lstat("s/a", &st));
	IS(st.st_mode, S_IFREG | 0500);
	IS(plfs_link("s/a", "s/b"), -EPERM);
	IS(plfs_mkdir("s/a", 0755), -EEXIST);
	IS(plfs_symlink("x", "s/a"), -EEXIST);
	char text[8];
	IS(plfs_readlink("s/a", text, sizeof text), -EINVAL);
	struct statvfs room;
	OK(plfs_statvfs("s/a", &room));
	OK(plfs_truncate("s/a", 2));
	OK(plfs_rename("s/a", "s/b"));
	t_bytes("s/b", "he", 2);
	IS(plfs_rename("s/b", "b"), -EXDEV);
	OK(plfs_mkdir("s/sub", 0755));
	IS(names_in("s"), 2);
	OK(plfs_rmdir("s/sub"));
	IS(plfs_rmdir("s"), -ENOTEMPTY);
	OK(plfs_unlink("s/b"));
	IS(names_in("s"), 0);
	OK(plfs_rmdir("s"));
	return 0;
}
