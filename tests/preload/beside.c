/* With ThreadSanitizer, by tests/preload `beside`: copies what it has inherited as its input, in
 * threads of which each has a file of its own, and in a child. A program that it was linked to
 * (-static-libtsan) jumped to 0 before main; others were told of races in libplfs, and the child
 * ended as it wrote. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char text[100];
static ssize_t n;

static void *copy(void *name)
{
	char back[100];
	int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
	for (int i = 0; i < 20; i++)
		if (write(fd, text, n) != n || pread(fd, back, n, 0) != n || memcmp(text, back, n))
			abort();
	close(fd);
	return NULL;
}

int main(void)
{
	pthread_t threads[2];
	int status = 0;
	n = read(0, text, sizeof text);
	pthread_create(&threads[0], NULL, copy, "a");
	pthread_create(&threads[1], NULL, copy, "b");
	pthread_join(threads[0], NULL);
	pthread_join(threads[1], NULL);
	if (fork() == 0) {
		copy("c");
		exit(0);
	}
	wait(&status);
	printf("%d %.*s", status, (int)n, text);
	return 0;
}
