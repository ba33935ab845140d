/* Bad arguments and bad files give an error number and a sentence, never a crash. */
#include "t.h"

int main(void)
{
	char buf[8];
	struct stat st;
	plfs_file *f = NULL;
	IS(plfs_open(NULL, O_RDONLY, 0, &f), -EFAULT);
	IS(plfs_open("f", O_RDONLY, 0, NULL), -EFAULT);
	IS(plfs_open("", O_RDWR | O_CREAT, 0644, &f), -ENOENT);
	IS(plfs_open("absent/f", O_RDWR | O_CREAT, 0644, &f), -ENOENT);
	TRUE(strstr(plfs_last_error(), "absent"));
	IS(plfs_pread(NULL, buf, 1, 0), -EFAULT);
	IS(plfs_pwrite(NULL, buf, 1, 0), -EFAULT);
	IS(plfs_preadv(NULL, NULL, 1, 0), -EFAULT);
	IS(plfs_sync(NULL), -EFAULT);
	IS(plfs_commit(NULL), -EFAULT);
	IS(plfs_refresh(NULL), -EFAULT);
	IS(plfs_ftruncate(NULL, 0), -EFAULT);
	IS(plfs_fstat(NULL, &st), -EFAULT);
	IS(plfs_lseek(NULL, 0, SEEK_SET), -EFAULT);
	IS(plfs_map(NULL, 0, 1, NULL, NULL), -EFAULT);
	IS(plfs_stat(NULL, &st), -EFAULT);
	IS(plfs_stat(".", NULL), -EFAULT);
	IS(plfs_unlink(NULL), -EFAULT);
	IS(plfs_rename("f", NULL), -EFAULT);
	IS(plfs_opendir(".", NULL), -EFAULT);
	IS(plfs_flatten(NULL), -EFAULT);
	IS(plfs_compact(NULL), -EFAULT);
	TRUE(plfs_close(NULL) <= 0 && plfs_closedir(NULL) <= 0 && plfs_readdir(NULL) == NULL);

	f = t_open("f", O_RDWR | O_CREAT);
	IS(plfs_pread(f, NULL, 1, 0), -EFAULT);
	IS(plfs_pwrite(f, NULL, 1, 0), -EFAULT);
	IS(plfs_pread(f, buf, 1, -1), -EINVAL);
	IS(plfs_pwrite(f, buf, 1, -1), -EINVAL);
	IS(plfs_pwrite(f, buf, 1, INT64_MAX), -EFBIG);
	IS(plfs_pwrite(f, "ab", 2, INT64_MAX - 1), 1); /* as far as a file can go */
	IS(plfs_lseek(f, INT64_MAX, SEEK_SET), INT64_MAX);
	IS(plfs_lseek(f, 1, SEEK_CUR) < 0, 1);
	IS(plfs_lseek(f, 0, 99), -EINVAL);
	IS(plfs_fstat(f, NULL), -EFAULT);
	OK(plfs_close(f));

	/* a name that is too long, a directory, a dangling link */
	char name[300];
	memset(name, 'n', sizeof name);
	name[299] = 0;
	IS(plfs_open(name, O_RDWR | O_CREAT, 0644, &f), -ENAMETOOLONG);
	OK(mkdir("d", 0755));
	TRUE(plfs_open("d", O_RDWR, 0, &f) < 0);
	IS(plfs_open("f/g", O_RDONLY, 0, &f), -ENOTDIR);

	/* a damaged superblock */
	int fd = open("f", O_RDWR);
	IS(pwrite(fd, "X", 1, 100), 1);
	IS(plfs_open("f", O_RDONLY, 0, &f), -EIO);
	TRUE(strstr(plfs_last_error(), "damaged"));
	OK(plfs_unlink("f"));
	close(fd);
	TRUE(strlen(plfs_version()) >= 5);
	return 0;
}
