/* Two threads open the first files of the program at once, and one of them prints to its own. Once
 * the second found libc's table of functions "taken over", while the first was still at it: so the
 * text went by libc's own write to the placeholder, and was lost (EBADF). */
#include "t.h"
#include <pthread.h>

static pthread_barrier_t both;

static void *open_first(void *unused)
{
	/* Its heap is there before. */
	free(malloc(100));
	pthread_barrier_wait(&both);
	return (void *)(intptr_t)(open("one", O_RDWR | O_CREAT, 0644) >= 0);
}

int main(int argc, char **argv)
{
	/* What makes the moment long: mprotect, by which the table can be written. */
	if (argc == 1) {
		execlp("strace", "strace", "-f", "-o", "/dev/null", "-e", "trace=mprotect", "-e",
			"inject=mprotect:delay_enter=150000", argv[0], "go", NULL);
		return 77;
	}
	pthread_t thread;
	pthread_barrier_init(&both, NULL, 2);
	pthread_create(&thread, NULL, open_first, NULL);
	pthread_barrier_wait(&both);
	/* The first has its own stack, and is at the table. */
	usleep(225000);
	int fd = open("two", O_RDWR | O_CREAT, 0644);
	R(dup2(fd, 2));
	R(fprintf(stderr, "text\n"));
	void *opened;
	pthread_join(thread, &opened);
	R(opened);
	show("two");
	return 0;
}
