/* Flat directories: names that lie on several backends. */
#include "t.h"

static int entries(const char *path)
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
	OK(system("for b in m n o; do mkdir -m 755 $b; mkdir -m 1777 $b/.plfs; done;"
		  "plfs backend add m n && plfs backend add m o"));
	OK(plfs_mkdir("m/d", 0755));
	OK(plfs_make_flat("m/d"));
	OK(plfs_mkdir("m/d/sub", 0755));
	char name[32], other[32];
	for (int i = 0; i < 60; i++) {
		snprintf(name, sizeof name, "m/d/sub/f%d", i);
		OK(plfs_close(t_open(name, O_RDWR | O_CREAT | O_EXCL)));
	}
	IS(entries("m/d/sub"), 60);
	IS(entries("m/d"), 1);
	struct stat st;
	for (int i = 0; i < 60; i++) {
		snprintf(name, sizeof name, "m/d/sub/f%d", i);
		snprintf(other, sizeof other, "m/d/sub/g%d", i);
		OK(plfs_rename(name, other));
		IS(plfs_stat(name, &st), -ENOENT);
		OK(plfs_stat(other, &st));
		OK(plfs_access(other, R_OK | W_OK));
		OK(plfs_link(other, name));
		OK(plfs_stat(name, &st));
		IS(st.st_nlink, 2);
		OK(plfs_unlink(other));
	}
	OK(plfs_symlink("sub/f7", "m/d/way"));
	char text[32] = "";
	IS(plfs_readlink("m/d/way", text, sizeof text), 6);
	TRUE(!strcmp(text, "sub/f7"));
	OK(plfs_truncate("m/d/way", 5));
	OK(plfs_stat("m/d/sub/f7", &st));
	IS(st.st_size, 5);
	OK(plfs_chmod("m/d/way", 0600));
	OK(plfs_lstat("m/d/sub/f7", &st));
	IS(st.st_mode & 07777, 0600);
	IS(plfs_rmdir("m/d/sub"), -ENOTEMPTY);
	IS(plfs_make_flat("m"), -ENOTEMPTY);
	/* And by the commands, and by programs under `plfs run`. */
	OK(system("[ $(plfs ls m/d/sub | wc -l) = 60 ] && [ $(plfs cat m/d/sub/f7 | wc -c) = 5 ]"));
	OK(system("plfs run --mount $PWD/m -- sh -ec '"
		  "[ $(ls m/d/sub | wc -l) = 60 ]; [ $(cat m/d/way | wc -c) = 5 ]; "
		  "touch m/d/new; mv m/d/new m/d/sub/newer; rm m/d/sub/newer; mkdir m/d/one; "
		  "[ \"$(ls m/d)\" = \"$(printf \"one\\nsub\\nway\")\" ]; rmdir m/d/one'"));
	OK(plfs_unlink("m/d/way"));
	for (int i = 0; i < 60; i++) {
		snprintf(name, sizeof name, "m/d/sub/f%d", i);
		OK(plfs_unlink(name));
	}
	OK(plfs_rmdir("m/d/sub"));
	OK(plfs_rmdir("m/d"));
	return 0;
}
