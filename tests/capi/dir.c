/* Directories. */
#include "t.h"

int main(void)
{
	OK(plfs_mkdir("d", 0755));
	IS(plfs_mkdir("d", 0755), -EEXIST);
	char name[32];
	for (int i = 0; i < 300; i++) {
		snprintf(name, sizeof name, "d/file.%d", i);
		OK(plfs_close(t_open(name, O_WRONLY | O_CREAT)));
	}
	plfs_dir *dir = NULL;
	OK(plfs_opendir("d", &dir));
	const char *entry;
	char seen[300] = {0};
	int n = 0;
	while ((entry = plfs_readdir(dir))) {
		int i = -1;
		TRUE(sscanf(entry, "file.%d", &i) == 1 && i >= 0 && i < 300 && !seen[i]++);
		n++;
	}
	IS(n, 300);
	TRUE(plfs_readdir(dir) == NULL);
	OK(plfs_closedir(dir));
	IS(plfs_opendir("absent", &dir), -ENOENT);
	IS(plfs_opendir("d/file.0", &dir), -ENOTDIR);
	IS(plfs_rmdir("d"), -ENOTEMPTY);
	for (int i = 0; i < 300; i++) {
		snprintf(name, sizeof name, "d/file.%d", i);
		OK(plfs_unlink(name));
	}
	OK(plfs_mkdir("d/sub", 0700));
	OK(plfs_rmdir("d/sub"));
	OK(plfs_opendir("d", &dir));
	TRUE(plfs_readdir(dir) == NULL);
	OK(plfs_closedir(dir));
	return 0;
}
