/* POSIX asynchronous I/O on containers: done at once, in the caller.
 *
 * glibc's aio threads call pread and pwrite inside libc. A write to a container is an append to a
 * log in the page cache, so there is little to wait for. The result is stored in the members of
 * struct aiocb in which glibc keeps its own (__error_code, __return_value), so glibc's aio_error,
 * aio_return, aio_suspend and aio_cancel are right as they are. */
#include "door.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>

static void set_result(struct aiocb *cb, ssize_t rc)
{
	cb->__return_value = rc < 0 ? -1 : rc;
	cb->__error_code = rc < 0 ? (int)-rc : 0;
}

struct notice {
	void (*call)(union sigval);
	union sigval value;
};

static void *notice_thread(void *argument)
{
	struct notice n = *(struct notice *)argument;
	free(argument);
	n.call(n.value);
	return NULL;
}

static void notify(const struct sigevent *ev)
{
	if (ev->sigev_notify == SIGEV_SIGNAL) {
		siginfo_t info;
		memset(&info, 0, sizeof info);
		info.si_signo = ev->sigev_signo;
		info.si_code = SI_ASYNCIO;
		info.si_pid = getpid();
		info.si_uid = getuid();
		info.si_value = ev->sigev_value;
		RAW(SYS_rt_sigqueueinfo, (long)getpid(), (long)ev->sigev_signo, &info);
	} else if (ev->sigev_notify == SIGEV_THREAD) {
		struct notice *n = malloc(sizeof *n);
		if (!n)
			return;
		*n = (struct notice){ev->sigev_notify_function, ev->sigev_value};
		pthread_attr_t own, *attr = ev->sigev_notify_attributes;
		if (!attr) {
			pthread_attr_init(&own);
			pthread_attr_setdetachstate(&own, PTHREAD_CREATE_DETACHED);
		}
		pthread_t thread;
		if (pthread_create(&thread, attr ? attr : &own, notice_thread, n) != 0)
			free(n);
		if (!attr)
			pthread_attr_destroy(&own);
	}
}

/* Does the request and stores its result in it. */
static void do_request(struct ofd *o, struct aiocb *cb, int opcode)
{
	DEFER_SIGNALS();
	struct iovec iov = {(void *)cb->aio_buf, cb->aio_nbytes};
	if (opcode == LIO_READ)
		set_result(cb, ofd_preadv(o, &iov, 1, cb->aio_offset));
	else if (opcode == LIO_WRITE)
		set_result(cb, ofd_pwritev(o, cb->aio_fildes, &iov, 1, cb->aio_offset, 0));
	else
		set_result(cb, PLFS(plfs_sync(o->file)));
}

/* NULL: not a container. */
static struct ofd *container_of(const struct aiocb *cb)
{
	return cb && !door_thread.inside && fd_is_container(cb->aio_fildes)
		       ? ofd_get(cb->aio_fildes)
		       : NULL;
}

static int at_once(struct ofd *o, struct aiocb *cb, int opcode)
{
	do_request(o, cb, opcode);
	ofd_put(o);
	notify(&cb->aio_sigevent);
	return 0;
}

EXPORT int aio_read(struct aiocb *cb)
{
	struct ofd *o = container_of(cb);
	return o ? at_once(o, cb, LIO_READ) : REAL(aio_read)(cb);
}
ALIAS(aio_read, aio_read64);

EXPORT int aio_write(struct aiocb *cb)
{
	struct ofd *o = container_of(cb);
	return o ? at_once(o, cb, LIO_WRITE) : REAL(aio_write)(cb);
}
ALIAS(aio_write, aio_write64);

EXPORT int aio_fsync(int op, struct aiocb *cb)
{
	struct ofd *o = op == O_SYNC || op == O_DSYNC ? container_of(cb) : NULL;
	return o ? at_once(o, cb, LIO_NOP) : REAL(aio_fsync)(op, cb);
}
ALIAS(aio_fsync, aio_fsync64);

/* Requests on containers are done first. The others go to libc, which also sends the notification
 * for the whole list. */
EXPORT int lio_listio(
	int mode, struct aiocb *const list[restrict], int n, struct sigevent *restrict ev)
{
	bool any = false;
	for (int i = 0; n > 0 && !door_thread.inside && i < n; i++)
		any = any || (list[i] && list[i]->aio_lio_opcode != LIO_NOP &&
				     fd_is_container(list[i]->aio_fildes));
	if (!any || (mode != LIO_WAIT && mode != LIO_NOWAIT))
		return REAL(lio_listio)(mode, list, n, ev);
	struct aiocb **rest = calloc((size_t)n, sizeof *rest);
	if (!rest) {
		errno = EAGAIN;
		return -1;
	}
	int left = 0;
	bool failed = false;
	for (int i = 0; i < n; i++) {
		struct aiocb *cb = list[i];
		if (!cb || cb->aio_lio_opcode == LIO_NOP)
			continue;
		struct ofd *o = container_of(cb);
		if (!o) {
			rest[left++] = cb;
			continue;
		}
		at_once(o, cb, cb->aio_lio_opcode);
		failed = failed || cb->__error_code != 0;
	}
	int rc = 0;
	if (left > 0)
		rc = REAL(lio_listio)(mode, rest, left, ev);
	else if (mode == LIO_NOWAIT && ev)
		notify(ev);
	free(rest);
	if (rc == 0 && failed && mode == LIO_WAIT) {
		errno = EIO;
		rc = -1;
	}
	return rc;
}
ALIAS(lio_listio, lio_listio64);
