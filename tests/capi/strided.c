/* Many pieces of one length at equal distances in one call. */
#include "t.h"

enum { BLOCK = 47, N = 100000, RANKS = 4 };

int main(void)
{
	/* an array in blocks, cyclic over four ranks, each rank's share in one call */
	char *array = malloc(RANKS * N * BLOCK), *mine = malloc(N * BLOCK),
	     *back = malloc(RANKS * N * BLOCK);
	for (int i = 0; i < RANKS * N * BLOCK; i++)
		array[i] = (char)(i * 7 ^ i >> 9);
	plfs_file *f = t_open("f", O_RDWR | O_CREAT);
	for (int rank = 0; rank < RANKS; rank++) {
		for (int i = 0; i < N; i++)
			memcpy(mine + i * BLOCK, array + (i * RANKS + rank) * BLOCK, BLOCK);
		if (rank % 2 == 0) {
			IS(plfs_pwrite_strided(f, mine, BLOCK, RANKS * BLOCK, N, rank * BLOCK),
				N * BLOCK);
		} else {
			/* backwards */
			for (int i = 0; i < N; i++)
				memcpy(mine + i * BLOCK,
					array + ((N - 1 - i) * RANKS + rank) * BLOCK, BLOCK);
			IS(plfs_pwrite_strided(f, mine, BLOCK, -RANKS * BLOCK, N,
				   ((N - 1) * RANKS + rank) * BLOCK),
				N * BLOCK);
		}
	}
	IS(plfs_pread(f, back, RANKS * N * BLOCK, 0), RANKS * N * BLOCK);
	TRUE(memcmp(back, array, RANKS * N * BLOCK) == 0);
	OK(plfs_close(f));

	/* another process's shape: every tenth piece, and the file ends inside the last */
	f = t_open("f", O_RDONLY);
	IS(plfs_pread_strided(f, back, 100, 1000, 50, 30), 5000);
	for (int i = 0; i < 50; i++)
		TRUE(memcmp(back + i * 100, array + 30 + i * 1000, 100) == 0);
	IS(plfs_pread_strided(f, back, 100, 200, 3, RANKS * N * BLOCK - 250), 150);
	TRUE(memcmp(back, array + RANKS * N * BLOCK - 250, 100) == 0);
	TRUE(memcmp(back + 100, array + RANKS * N * BLOCK - 50, 50) == 0);
	IS(plfs_pread_strided(f, back, 100, 200, 3, RANKS * N * BLOCK), 0);
	IS(plfs_pread_strided(f, back, 100, -200, 3, RANKS * N * BLOCK), 0);
	IS(plfs_pwrite_strided(f, array, 1, 2, 2, 0), -EBADF);
	OK(plfs_close(f));

	/* arguments */
	f = t_open("g", O_RDWR | O_CREAT);
	IS(plfs_pwrite_strided(f, array, 10, 9, 2, 0), -EINVAL);
	TRUE(strstr(plfs_last_error(), "overlap"));
	IS(plfs_pwrite_strided(f, array, 10, -9, 2, 100), -EINVAL);
	IS(plfs_pwrite_strided(f, array, 10, -20, 2, 19), -EINVAL);
	IS(plfs_pwrite_strided(f, array, 10, 20, 2, -1), -EINVAL);
	IS(plfs_pwrite_strided(f, array, SIZE_MAX / 2, 20, 3, 0), -EINVAL);
	IS(plfs_pwrite_strided(f, array, 10, INT64_MAX, 2, 0), -EFBIG);
	IS(plfs_pwrite_strided(f, array, 10, 20, 2, INT64_MAX - 29), -EFBIG);
	IS(plfs_pread_strided(f, back, 10, 9, 2, 0), -EINVAL);
	IS(plfs_pwrite_strided(f, NULL, 10, 20, 2, 0), -EFAULT);
	IS(plfs_pwrite_strided(NULL, array, 10, 20, 2, 0), -EFAULT);
	IS(plfs_pread_strided(f, NULL, 10, 20, 2, 0), -EFAULT);
	IS(plfs_pwrite_strided(f, array, 10, 20, 0, 0), 0);
	IS(plfs_pwrite_strided(f, array, 0, 20, 10, 0), 0);
	IS(plfs_pread_strided(f, back, 0, 0, 0, 0), 0);
	IS(plfs_lseek(f, 0, SEEK_END), 0);
	IS(plfs_pwrite_strided(f, array, 10, 0, 1, 5), 10);
	IS(plfs_pwrite_strided(f, array + 10, 10, 10, 3, 15), 30);
	IS(plfs_pwrite_strided(f, array + 40, 10, -50, 2, 55), 20);
	IS(plfs_pread(f, back, 100, 5), 60);
	TRUE(memcmp(back, array + 50, 10) == 0 && memcmp(back + 10, array + 10, 30) == 0 &&
		memcmp(back + 50, array + 40, 10) == 0);
	OK(plfs_close(f));
	return 0;
}
