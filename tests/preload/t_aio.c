/* POSIX asynchronous I/O. */
#include "t.h"

#include <aio.h>
#include <signal.h>

static volatile sig_atomic_t signals, value;

static void on_signal(int number, siginfo_t *info, void *context)
{
	(void)number;
	(void)context;
	signals++;
	value = info->si_value.sival_int + (info->si_code == SI_ASYNCIO ? 1000 : 0);
}

static volatile int called;

static void on_thread(union sigval v)
{
	called = v.sival_int;
}

static long finish(struct aiocb *cb)
{
	const struct aiocb *list[1] = {cb};
	while (aio_error(cb) == EINPROGRESS)
		aio_suspend(list, 1, NULL);
	int error = aio_error(cb);
	return error ? -error : aio_return(cb);
}

int main(void)
{
	char in[16] = "", out[] = "asynchronous";
	int fd = make("f", "");
	struct aiocb cb = {.aio_fildes = fd, .aio_buf = out, .aio_nbytes = 12, .aio_offset = 4};
	cb.aio_sigevent.sigev_notify = SIGEV_NONE;
	R(aio_write(&cb));
	R(finish(&cb));
	cb.aio_buf = in;
	R(aio_read(&cb));
	R(finish(&cb));
	R(strcmp(in, out));
	cb.aio_offset = 10;
	R(aio_read(&cb));
	R(finish(&cb));
	R(aio_fsync(O_SYNC, &cb));
	R(finish(&cb));
	R(aio_cancel(fd, NULL));
	R(aio_fsync(99, &cb));

	struct sigaction sa = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};
	sigaction(SIGUSR1, &sa, NULL);
	cb.aio_sigevent.sigev_notify = SIGEV_SIGNAL;
	cb.aio_sigevent.sigev_signo = SIGUSR1;
	cb.aio_sigevent.sigev_value.sival_int = 42;
	R(aio_write(&cb));
	R(finish(&cb));
	for (int i = 0; i < 1000 && !signals; i++)
		usleep(1000);
	R(signals);
	R(value);
	cb.aio_sigevent.sigev_notify = SIGEV_THREAD;
	cb.aio_sigevent.sigev_notify_function = on_thread;
	cb.aio_sigevent.sigev_notify_attributes = NULL;
	R(aio_read(&cb));
	R(finish(&cb));
	for (int i = 0; i < 1000 && !called; i++)
		usleep(1000);
	R(called);

	int plain = open("/dev/null", O_WRONLY);
	struct aiocb a = {.aio_fildes = fd,
		.aio_buf = "AAAA",
		.aio_nbytes = 4,
		.aio_offset = 100,
		.aio_lio_opcode = LIO_WRITE};
	struct aiocb b = {.aio_fildes = plain,
		.aio_buf = "BBBB",
		.aio_nbytes = 4,
		.aio_offset = 0,
		.aio_lio_opcode = LIO_WRITE};
	struct aiocb n = {.aio_lio_opcode = LIO_NOP};
	a.aio_sigevent.sigev_notify = b.aio_sigevent.sigev_notify = SIGEV_NONE;
	struct aiocb *list[] = {&a, NULL, &n, &b};
	R(lio_listio(LIO_WAIT, list, 4, NULL));
	R(finish(&a));
	R(finish(&b));
	int ro = open("f", O_RDONLY);
	a.aio_fildes = ro;
	struct aiocb *one[] = {&a};
	R(lio_listio(LIO_WAIT, one, 1, NULL));
	R(aio_error(&a));
	R(lio_listio(LIO_NOWAIT, one, 1, NULL));
	R(finish(&a));
	close(fd);
	show("f");
	return 0;
}
