/* Turns error numbers into MPI error classes, and calls the program's error handlers.
 *
 * Error classes are valid error codes with texts. Codes of our own would need MPI_Add_error_code,
 * whose codes cannot be freed. */
#include "door.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* With PLFS_DEBUG=1: libplfs's sentence, on standard error. */
static void say(void)
{
	const char *debug = getenv("PLFS_DEBUG");
	if (!debug || !*debug || strcmp(debug, "0") == 0)
		return;
	char line[1024];
	int n = snprintf(line, sizeof line, "plfs mpi: %s\n", plfs_last_error());
	if (n > 0 && write(2, line, (size_t)n < sizeof line ? (size_t)n : sizeof line - 1) < 0)
		return;
}

int error_class(int64_t rc)
{
	if (rc >= 0)
		return MPI_SUCCESS;
	say();
	switch ((int)-rc) {
	case ENOENT:
		return MPI_ERR_NO_SUCH_FILE;
	case EEXIST:
		return MPI_ERR_FILE_EXISTS;
	case EACCES:
	case EPERM:
		return MPI_ERR_ACCESS;
	case EROFS:
		return MPI_ERR_READ_ONLY;
	case ENOSPC:
		return MPI_ERR_NO_SPACE;
	case EDQUOT:
		return MPI_ERR_QUOTA;
	case EISDIR:
	case ENOTDIR:
	case ENAMETOOLONG:
	case ELOOP:
	case EMEDIUMTYPE:
		return MPI_ERR_BAD_FILE;
	case EBUSY:
	case ETXTBSY:
		return MPI_ERR_FILE_IN_USE;
	case EINVAL:
	case EFBIG:
	case EFAULT:
		return MPI_ERR_ARG;
	case EOPNOTSUPP:
	case ENOSYS:
	case ENOLCK:
		return MPI_ERR_UNSUPPORTED_OPERATION;
	case ENOMEM:
		return MPI_ERR_NO_MEM;
	default:
		return MPI_ERR_IO;
	}
}

int fail(const struct file *file, int code)
{
	if (code != MPI_SUCCESS)
		real->call_errhandler(file->fh, code);
	return code;
}

#ifndef OMPI_MAJOR_VERSION

int fail_without_file(int code)
{
	if (code != MPI_SUCCESS)
		real->call_errhandler(MPI_FILE_NULL, code);
	return code;
}

int door_create_errhandler(MPI_File_errhandler_function *call, MPI_Errhandler *handler)
{
	return real->create_errhandler(call, handler);
}

#else

/* Open MPI refuses to call the error handler of MPI_FILE_NULL, so it is called here, for which the
 * functions behind handlers must be kept. They are kept for ever: a handler that was freed is still
 * used by the files where it was set, and programs have few. */
static struct known {
	struct known *next;
	MPI_Errhandler handler;
	MPI_File_errhandler_function *call;
} *known;
static pthread_mutex_t known_lock = PTHREAD_MUTEX_INITIALIZER;

int door_create_errhandler(MPI_File_errhandler_function *call, MPI_Errhandler *handler)
{
	int rc = real->create_errhandler(call, handler);
	struct known *k = rc == MPI_SUCCESS ? malloc(sizeof *k) : NULL;
	if (k) {
		pthread_mutex_lock(&known_lock);
		*k = (struct known){known, *handler, call};
		known = k;
		pthread_mutex_unlock(&known_lock);
	}
	return rc;
}

int fail_without_file(int code)
{
	MPI_Errhandler handler;
	if (code == MPI_SUCCESS || real->get_errhandler(MPI_FILE_NULL, &handler) != MPI_SUCCESS)
		return code;
	if (handler == MPI_ERRORS_RETURN)
		return code;
	pthread_mutex_lock(&known_lock);
	struct known *k = known;
	while (k && k->handler != handler)
		k = k->next;
	pthread_mutex_unlock(&known_lock);
	if (k) {
		MPI_File none = MPI_FILE_NULL;
		k->call(&none, &code);
	} else {
		PMPI_Abort(MPI_COMM_WORLD, code);
	}
	PMPI_Errhandler_free(&handler);
	return code;
}

#endif

int door_get_errhandler(MPI_File fh, MPI_Errhandler *handler)
{
	return real->get_errhandler(fh, handler);
}

int door_set_errhandler(MPI_File fh, MPI_Errhandler handler)
{
	return real->set_errhandler(fh, handler);
}

int door_call_errhandler(MPI_File fh, int code)
{
	return real->call_errhandler(fh, code);
}
