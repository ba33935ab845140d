/* The namespace: unlink, rename, link, symlink, access, statvfs; on PLFS files and on others. */
#include "t.h"
#include <sys/statvfs.h>

static void put(const char *path, const char *text)
{
	plfs_file *f = t_open(path, O_WRONLY | O_CREAT | O_TRUNC);
	IS(plfs_write(f, text, strlen(text)), strlen(text));
	OK(plfs_close(f));
}

int main(void)
{
	struct stat st;
	char buf[64];
	put("a", "one");
	put("b", "two");
	OK(plfs_rename("a", "b")); /* replaces */
	IS(plfs_stat("a", &st), -ENOENT);
	t_bytes("b", "one", 3);
	IS(plfs_rename("absent", "b"), -ENOENT);
	OK(plfs_link("b", "c"));
	OK(plfs_stat("c", &st));
	IS(st.st_nlink, 2);
	IS(plfs_link("b", "c"), -EEXIST);
	OK(plfs_unlink("b"));
	t_bytes("c", "one", 3);
	OK(plfs_symlink("c", "s"));
	t_bytes("s", "one", 3);
	IS(plfs_readlink("s", buf, sizeof buf), 1);
	OK(plfs_lstat("s", &st));
	TRUE(S_ISLNK(st.st_mode));
	OK(plfs_stat("s", &st));
	IS(st.st_size, 3);
	OK(plfs_access("c", R_OK | W_OK));
	IS(plfs_access("c", X_OK), -EACCES);
	IS(plfs_access("absent", F_OK), -ENOENT);
	struct statvfs vfs;
	OK(plfs_statvfs("c", &vfs));
	TRUE(vfs.f_bsize > 0 && vfs.f_blocks > 0);

	/* open files live on after their last name */
	plfs_file *f = t_open("c", O_RDWR);
	OK(plfs_unlink("c"));
	IS(plfs_pread(f, buf, 8, 0), 3);
	IS(plfs_pwrite(f, "more", 4, 3), 4);
	IS(plfs_pread(f, buf, 8, 0), 7);
	OK(plfs_close(f));
	IS(plfs_stat("c", &st), -ENOENT);

	/* a plain file stays one */
	int fd = open("plain", O_RDWR | O_CREAT, 0644);
	IS(write(fd, "plain", 5), 5);
	f = t_open("plain", O_RDONLY);
	IS(plfs_pread(f, buf, 8, 0), 5);
	OK(plfs_close(f));
	plfs_file *none = NULL;
	IS(plfs_open(".", O_RDONLY, 0, &none), -EMEDIUMTYPE);
	OK(plfs_stat("plain", &st));
	IS(st.st_size, 5);
	OK(plfs_rename("plain", "other"));
	OK(plfs_truncate("other", 2));
	OK(plfs_unlink("other"));
	close(fd);
	return 0;
}
