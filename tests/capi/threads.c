/* Threads on one handle and on handles of their own; each thread has its own last error. */
#include "t.h"
#include <pthread.h>

enum { THREADS = 8, PIECES = 500, BYTES = 100 };
static plfs_file *shared;
static pthread_barrier_t barrier;

static void *work(void *arg)
{
	int me = (int)(long)arg;
	char buf[BYTES], back[BYTES];
	memset(buf, 'A' + me, BYTES);
	plfs_file *own = t_open("f", O_RDWR);
	for (int i = 0; i < PIECES; i++) {
		plfs_file *f = i % 2 ? own : shared;
		int64_t at = (int64_t)(i * THREADS + me) * BYTES;
		IS(plfs_pwrite(f, buf, BYTES, at), BYTES);
		IS(plfs_pread(i % 3 ? own : shared, back, BYTES, at), BYTES);
		TRUE(memcmp(buf, back, BYTES) == 0);
		if (i % 100 == me)
			OK(plfs_sync(f));
	}
	/* O_APPEND goes behind what is there: nobody writes at offsets any more */
	pthread_barrier_wait(&barrier);
	struct iovec line = {buf, BYTES};
	for (int i = 0; i < PIECES; i++)
		IS(plfs_append(shared, &line, 1, NULL), BYTES);
	OK(plfs_close(own));

	char name[16], text[256];
	snprintf(name, sizeof name, "absent.%d", me);
	plfs_file *none;
	IS(plfs_open(name, O_RDONLY, 0, &none), -ENOENT);
	snprintf(text, sizeof text, "%s", plfs_last_error());
	pthread_barrier_wait(&barrier);
	TRUE(strstr(text, name) && strcmp(text, plfs_last_error()) == 0);
	return NULL;
}

int main(void)
{
	pthread_t threads[THREADS];
	pthread_barrier_init(&barrier, NULL, THREADS);
	shared = t_open("f", O_RDWR | O_CREAT);
	for (long i = 0; i < THREADS; i++)
		OK(pthread_create(&threads[i], NULL, work, (void *)i));
	for (int i = 0; i < THREADS; i++)
		OK(pthread_join(threads[i], NULL));
	OK(plfs_close(shared));
	size_t n = 2 * THREADS * PIECES * BYTES;
	char *all = malloc(n + 1);
	int count[THREADS] = {0};
	plfs_file *f = t_open("f", O_RDONLY);
	struct stat st;
	OK(plfs_fstat(f, &st));
	IS(st.st_size, n);
	IS(plfs_pread(f, all, n + 1, 0), n);
	for (int64_t at = 0; at < st.st_size; at += BYTES) {
		for (int i = 1; i < BYTES; i++)
			TRUE(all[at + i] == all[at]);
		TRUE(all[at] >= 'A' &&
			all[at] < 'A' + THREADS); /* no hole, nothing torn, nothing lost */
		count[all[at] - 'A']++;
	}
	for (int i = 0; i < THREADS; i++)
		IS(count[i], 2 * PIECES);
	OK(plfs_close(f));
	return 0;
}
