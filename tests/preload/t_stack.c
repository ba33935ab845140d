/* Opens, stats and writes to files that are none of PLFS's business, on little stack: in a signal
 * handler on a stack of MINSIGSTKSZ and more, and in a thread that has 16 KiB, the least that
 * pthread_attr_setstacksize(3) takes. The preload library once put 12 KiB of paths on the stack of
 * each open, and such programs ended with SIGSEGV outside managed directories, too. */
#include "t.h"
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>

static void work(void)
{
	struct stat st;
	char byte = 'x';
	int fd = open("/dev/null", O_WRONLY);
	if (fd < 0 || write(fd, &byte, 1) != 1 || close(fd) < 0 || stat("/tmp", &st) < 0 ||
		lstat("/", &st) < 0 || open("/no/such/../file", O_RDONLY) >= 0)
		abort();
}

static void handler(int sig)
{
	work();
}

static void *thread(void *argument)
{
	work();
	return argument;
}

/* What lies below it is not there: an overflow is SIGSEGV. */
static char *stack(size_t room)
{
	char *at = mmap(
		NULL, room + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	mprotect(at, 4096, PROT_NONE);
	return at + 4096;
}

int main(void)
{
	size_t room = 8192;
	stack_t alternate = {.ss_sp = stack(room), .ss_size = room};
	struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
	R(sigaltstack(&alternate, NULL));
	R(sigaction(SIGUSR1, &action, NULL));
	R(raise(SIGUSR1));

	pthread_attr_t attr;
	pthread_attr_init(&attr);
	R(pthread_attr_setstacksize(&attr, 16384));
	pthread_t t;
	R(pthread_create(&t, &attr, thread, NULL));
	R(pthread_join(t, NULL));
	return 0;
}
