/* Threads on one descriptor, and descriptors that are closed while others use them. */
#include "t.h"

#include <pthread.h>
#include <stdatomic.h>

static int shared_fd;
static _Atomic long sum, pieces, odd;
static _Atomic int stop;

static void *reader(void *unused)
{
	char c[100];
	ssize_t n;
	while ((n = read(shared_fd, c, sizeof c)) > 0) {
		pieces += n;
		for (ssize_t i = 0; i < n; i++)
			sum += (unsigned char)c[i];
	}
	return unused;
}

static void *writer(void *number)
{
	char c[64];
	memset(c, 'a' + (int)(intptr_t)number, sizeof c);
	c[63] = '\n';
	for (int i = 0; i < 200; i++)
		if (write(shared_fd, c, sizeof c) != sizeof c)
			odd++;
	return NULL;
}

static void *at_writer(void *number)
{
	uint64_t v[8];
	for (uint64_t i = (uint64_t)(intptr_t)number; i < 4000; i += 8) {
		for (int k = 0; k < 8; k++)
			v[k] = i;
		if (pwrite(shared_fd, v, sizeof v, (off_t)(i * sizeof v)) != sizeof v)
			odd++;
	}
	return NULL;
}

/* Uses a descriptor that another thread closes and opens again. That is the program's error and any
 * bytes will do (in a managed directory it may see the placeholder), but not a crash, a hang, or
 * more bytes than asked. */
static void *prober(void *unused)
{
	char c[4];
	while (!stop) {
		ssize_t n = pread(shared_fd, c, 4, 0);
		if (n > 4)
			odd++;
	}
	return unused;
}

/* Until it is cancelled. */
static void *endless(void *unused)
{
	for (char byte = 'x';; stop++)
		pwrite(shared_fd, &byte, 1, 0);
	return unused;
}

int main(void)
{
	pthread_t t[8];
	int fd = make("in", "");
	long expect = 0;
	for (int i = 0; i < 50000; i++) {
		unsigned char b = (unsigned char)(i * 31);
		expect += b;
		if (i % 1000 == 0) {
			unsigned char block[1000];
			for (int k = 0; k < 1000; k++)
				block[k] = (unsigned char)((i + k) * 31);
			write(fd, block, 1000);
		}
	}
	lseek(fd, 0, SEEK_SET);
	shared_fd = fd;
	for (int i = 0; i < 8; i++)
		pthread_create(&t[i], NULL, reader, NULL);
	for (int i = 0; i < 8; i++)
		pthread_join(t[i], NULL);
	R(pieces);
	R(sum == expect);
	R(lseek(fd, 0, SEEK_CUR));
	close(fd);

	shared_fd = make("out", "");
	for (int i = 0; i < 8; i++)
		pthread_create(&t[i], NULL, writer, (void *)(intptr_t)i);
	for (int i = 0; i < 8; i++)
		pthread_join(t[i], NULL);
	R(odd);
	R(lseek(shared_fd, 0, SEEK_END));
	close(shared_fd);
	fflush(stdout);
	R(system("sort out | uniq -c | tr -s ' '; rm out"));

	shared_fd = make("at", "");
	for (int i = 0; i < 8; i++)
		pthread_create(&t[i], NULL, at_writer, (void *)(intptr_t)i);
	for (int i = 0; i < 8; i++)
		pthread_join(t[i], NULL);
	R(odd);
	close(shared_fd);

	close(make("probe", "good"));
	shared_fd = open("probe", O_RDONLY);
	int number = shared_fd;
	for (int i = 0; i < 4; i++)
		pthread_create(&t[i], NULL, prober, NULL);
	for (int i = 0; i < 3000; i++) {
		close(number);
		number = open("probe", O_RDONLY);
	}
	stop = 1;
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	R(odd);

	shared_fd = make("endless", "");
	stop = 0;
	pthread_create(&t[0], NULL, endless, NULL);
	while (stop < 100)
		sched_yield();
	void *ended;
	R(pthread_cancel(t[0]));
	R(pthread_join(t[0], &ended));
	R(ended == PTHREAD_CANCELED);
	close(shared_fd);
	return 0;
}
