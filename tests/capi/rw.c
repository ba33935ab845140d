/* Open flags, reading and writing at offsets and at the position, append. */
#include "t.h"

int main(void)
{
	char buf[64];
	plfs_file *f = NULL, *g = NULL;
	IS(plfs_open("f", O_RDWR, 0, &f), -ENOENT);
	TRUE(f == NULL && *plfs_last_error());
	f = t_open("f", O_RDWR | O_CREAT | O_EXCL);
	IS(plfs_open("f", O_RDWR | O_CREAT | O_EXCL, 0644, &g), -EEXIST);
	IS(plfs_pwrite(f, "world", 5, 6), 5);
	IS(plfs_pwrite(f, "hello ", 6, 0), 6);
	IS(plfs_pread(f, buf, sizeof buf, 0), 11);
	TRUE(memcmp(buf, "hello world", 11) == 0);
	IS(plfs_pread(f, buf, 4, 8), 3);
	IS(plfs_pread(f, buf, 4, 11), 0);
	IS(plfs_pread(f, buf, 4, 1 << 30), 0);
	IS(plfs_pread(f, buf, 0, 0), 0);
	IS(plfs_pwrite(f, "x", 0, 5000), 0);

	/* the position */
	IS(plfs_read(f, buf, 5), 5);
	IS(plfs_lseek(f, 0, SEEK_CUR), 5);
	IS(plfs_write(f, "_", 1), 1);
	IS(plfs_lseek(f, -1, SEEK_END), 10);
	IS(plfs_lseek(f, 0, SEEK_CUR), 10);
	IS(plfs_lseek(f, -1, SEEK_SET), -EINVAL);
	IS(plfs_pwrite(f, "far", 3, 100000), 3);
	IS(plfs_lseek(f, 20, SEEK_DATA), 100000);
	IS(plfs_lseek(f, 0, SEEK_HOLE), 11);
	IS(plfs_lseek(f, 100003, SEEK_DATA), -ENXIO);
	IS(plfs_pread(f, buf, 10, 50000), 10);
	TRUE(memcmp(buf, "\0\0\0\0\0\0\0\0\0\0", 10) == 0);
	OK(plfs_close(f));

	/* access modes */
	f = t_open("f", O_RDONLY);
	IS(plfs_pwrite(f, "x", 1, 0), -EBADF);
	IS(plfs_ftruncate(f, 0) < 0, 1);
	OK(plfs_close(f));
	f = t_open("f", O_WRONLY);
	IS(plfs_pread(f, buf, 1, 0), -EBADF);
	OK(plfs_close(f));

	f = t_open("f", O_RDWR | O_TRUNC);
	IS(plfs_pread(f, buf, 1, 0), 0);
	OK(plfs_close(f));

	/* append */
	f = t_open("f", O_WRONLY | O_APPEND);
	g = t_open("f", O_WRONLY | O_APPEND);
	IS(plfs_write(f, "ab", 2), 2);
	IS(plfs_write(g, "cd", 2), 2);
	int64_t at = -1;
	struct iovec iov[] = {{"e", 1}, {"", 0}, {"fg", 2}};
	IS(plfs_append(f, iov, 3, &at), 3);
	IS(at, 4);
	OK(plfs_close(f));
	OK(plfs_close(g));
	t_bytes("f", "abcdefg", 7);
	return 0;
}
