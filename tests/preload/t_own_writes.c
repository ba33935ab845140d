/* Two threads read by one descriptor that was opened for reading before the file became a
 * container, what their process has written to that: the one looked whether the file is a
 * container, and the other read meanwhile what is in place, which is older. */
#include "t.h"

#include <pthread.h>
#include <stdatomic.h>

enum { ROUNDS = 200 };

static int reader;
static _Atomic int ready, bad;

static void *reads(void *unused)
{
	char text[11] = "";
	atomic_fetch_add(&ready, 1);
	while (atomic_load(&ready) < 2)
		;
	if (pread(reader, text, 10, 0) != 10 || memcmp(text, "ABCDE56789", 10) != 0)
		atomic_fetch_add(&bad, 1);
	return unused;
}

int main(void)
{
	char name[20], byte;
	int other = start_other(opens_for_writing);
	for (int i = 0; i < ROUNDS; i++) {
		sprintf(name, "f%d", i);
		int fd = make(name, "0123456789");
		reader = open(name, O_RDONLY);
		send(other, name, strlen(name) + 1, 0);
		recv(other, &byte, 1, 0);
		pwrite(fd, "ABCDE", 5, 0);
		pthread_t threads[2];
		atomic_store(&ready, 0);
		for (int k = 0; k < 2; k++)
			pthread_create(&threads[k], NULL, reads, NULL);
		for (int k = 0; k < 2; k++)
			pthread_join(threads[k], NULL);
		close(reader);
		close(fd);
		unlink(name);
	}
	printf("%d bad\n", atomic_load(&bad));
	return 0;
}
