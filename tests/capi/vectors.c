/* Vectors and lists of extents. */
#include "t.h"
#include <pthread.h>
#include <stdatomic.h>

enum { RECORDS = 300000, RECORD = 8 };
static atomic_int written;

static void *write_records(void *file)
{
	struct iovec parts[] = {{"abc", 3}, {"defgh", 5}};
	for (; written < RECORDS; written++)
		IS(plfs_pwritev(file, parts, 2, (int64_t)written * RECORD), RECORD);
	return NULL;
}

/* A reader saw the first vector without the second: 3 bytes of a record of 8. */
static void records_are_whole(void)
{
	plfs_file *f = t_open("records", O_RDWR | O_CREAT);
	pthread_t writer;
	OK(pthread_create(&writer, NULL, write_records, f));
	while (written < RECORDS) {
		char record[RECORD];
		ssize_t n = plfs_pread(f, record, RECORD, (int64_t)written * RECORD);
		TRUE(n == 0 || (n == RECORD && memcmp(record, "abcdefgh", RECORD) == 0));
	}
	OK(pthread_join(writer, NULL));
	OK(plfs_close(f));
}

int main(void)
{
	records_are_whole();
	plfs_file *f = t_open("f", O_RDWR | O_CREAT);
	struct iovec out[] = {{"abc", 3}, {NULL, 0}, {"defgh", 5}};
	IS(plfs_pwritev(f, out, 3, 10), 8);
	char a[4], b[8];
	struct iovec in[] = {{a, 4}, {b, 8}};
	IS(plfs_preadv(f, in, 2, 10), 8);
	TRUE(memcmp(a, "abcd", 4) == 0 && memcmp(b, "efgh", 4) == 0);
	IS(plfs_preadv(f, in, 0, 0), 0);
	IS(plfs_pwritev(f, out, -1, 0), -EINVAL);
	IS(plfs_preadv(f, in, 1025, 0), -EINVAL);

	/* one call for every second block of a strided file */
	enum { N = 1000, BLOCK = 100 };
	plfs_extent list[N];
	char *buf = malloc(N * BLOCK), *back = malloc(N * BLOCK);
	for (int i = 0; i < N; i++) {
		list[i] = (plfs_extent){.offset = 1000 + 2LL * i * BLOCK, .length = BLOCK};
		memset(buf + i * BLOCK, i, BLOCK);
	}
	IS(plfs_write_list(f, list, N, buf), N * BLOCK);
	IS(plfs_read_list(f, list, N, back), N * BLOCK);
	TRUE(memcmp(buf, back, N * BLOCK) == 0);
	IS(plfs_pread(f, back, BLOCK, 1000 + BLOCK), BLOCK);
	for (int i = 0; i < BLOCK; i++)
		TRUE(back[i] == 0);
	/* stops at the first piece that the file does not fill */
	plfs_extent past[] = {{1000, 10}, {1000 + 2 * N * BLOCK - BLOCK - 5, 10}, {1000, 10}};
	IS(plfs_read_list(f, past, 3, back), 15);
	IS(plfs_write_list(f, list, 0, buf), 0);
	plfs_extent wrong[] = {{-1, 10}};
	IS(plfs_read_list(f, wrong, 1, back), -EINVAL);
	/* what was done before a failure counts; the failure comes at the next call */
	plfs_extent half[] = {{1000, 10}, {-1, 10}, {1000, 10}};
	IS(plfs_read_list(f, half, 3, back), 10);
	IS(plfs_write_list(f, half, 3, buf), 10);
	IS(plfs_read_list(f, half + 1, 2, back), -EINVAL);
	IS(plfs_write_list(f, half + 1, 2, buf), -EINVAL);
	OK(plfs_close(f));
	return 0;
}
