/* Truncate, stat, times, modes, owners, fallocate. */
#include "t.h"

int main(void)
{
	struct stat st;
	plfs_file *f = t_open("f", O_RDWR | O_CREAT);
	char buf[16];
	IS(plfs_pwrite(f, "0123456789", 10, 0), 10);
	OK(plfs_fstat(f, &st));
	TRUE(st.st_size == 10 && S_ISREG(st.st_mode) && st.st_nlink == 1);
	OK(plfs_ftruncate(f, 4));
	OK(plfs_fstat(f, &st));
	IS(st.st_size, 4);
	OK(plfs_ftruncate(f, 8));
	IS(plfs_pread(f, buf, 16, 0), 8);
	TRUE(memcmp(buf, "0123\0\0\0\0", 8) == 0);
	IS(plfs_ftruncate(f, -1), -EINVAL);
	OK(plfs_ftruncate(f, INT64_MAX));
	OK(plfs_fstat(f, &st));
	IS(st.st_size, INT64_MAX);
	OK(plfs_ftruncate(f, 8));
	OK(plfs_fallocate(f, 0, 0, 20));
	OK(plfs_fstat(f, &st));
	IS(st.st_size, 20);
	OK(plfs_fallocate(f, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 1, 2));
	IS(plfs_pread(f, buf, 4, 0), 4);
	TRUE(memcmp(buf,
		     "0\0\0"
		     "3",
		     4) == 0);
	IS(plfs_lseek(f, 0, SEEK_HOLE), 1);
	IS(plfs_lseek(f, 1, SEEK_DATA), 3);
	OK(plfs_fallocate(f, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 18, INT64_MAX - 18));
	OK(plfs_fallocate(f, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, 20, 5));
	OK(plfs_fstat(f, &st));
	IS(st.st_size, 20);
	OK(plfs_fallocate(f, FALLOC_FL_ZERO_RANGE, 3, 20));
	OK(plfs_fstat(f, &st));
	IS(st.st_size, 23);
	IS(plfs_lseek(f, 1, SEEK_DATA), -ENXIO);
	OK(plfs_ftruncate(f, 20));
	IS(plfs_fallocate(f, FALLOC_FL_COLLAPSE_RANGE, 0, 4096), -EOPNOTSUPP);

	OK(plfs_fchmod(f, 0600));
	OK(plfs_fchown(f, -1, -1));
	struct timespec times[] = {{1000, 5}, {2000, 7}};
	OK(plfs_futimens(f, times));
	OK(plfs_close(f));
	OK(plfs_stat("f", &st));
	TRUE((st.st_mode & 07777) == 0600 && st.st_mtim.tv_sec == 2000 && st.st_mtim.tv_nsec == 7 &&
		st.st_atim.tv_sec == 1000);
	IS(st.st_size, 20);

	OK(plfs_truncate("f", 3));
	OK(plfs_chmod("f", 0640));
	OK(plfs_chown("f", getuid(), getgid()));
	times[0].tv_nsec = UTIME_OMIT;
	times[1].tv_sec = 3000;
	OK(plfs_utimens("f", times));
	OK(plfs_stat("f", &st));
	TRUE(st.st_size == 3 && (st.st_mode & 07777) == 0640 && st.st_mtim.tv_sec == 3000);
	OK(plfs_utimens("f", NULL));
	OK(plfs_stat("f", &st));
	TRUE(st.st_mtim.tv_sec > 1000000000);
	t_bytes("f", "0\0\0", 3);
	return 0;
}
