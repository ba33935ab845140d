/* The data access calls, made from functions.def, and the table of all calls that the front gets.
 */
#include "door.h"

#include <stdlib.h>
#include <string.h>

#ifndef PLFS_MPI_STATIC
const struct real *real;
#endif

static void set_status(MPI_Status *status, MPI_Count bytes)
{
	if (status == MPI_STATUS_IGNORE)
		return;
	PMPI_Status_set_elements_x(status, MPI_BYTE, bytes);
	PMPI_Status_set_cancelled(status, 0);
}

/* A collective read of a coherent file begins with a barrier, so that the writes that all ranks
 * made before are done: PnetCDF writes and reads collectively without one. Whether a call is
 * collective follows from `name`, at compile time. Non-blocking calls must not wait for other
 * ranks. */
static inline struct file *meet(
	struct file *f, enum direction direction, enum where where, const char *name)
{
	if (direction == READ && (where == ORDERED || strstr(name, "_all")) && is_coherent(f))
		PMPI_Barrier(f->comm);
	return f;
}

static int blocking(struct file *f, enum direction direction, enum where where, MPI_Offset offset,
	void *buf, MPI_Count count, MPI_Datatype type, MPI_Status *status)
{
	MPI_Count bytes = 0;
	int rc = transfer(f, direction, where, offset, buf, count, type, &bytes);
	set_status(status, bytes);
	return fail(f, rc);
}

/* --- Non-blocking: done at once, as a generalized request that is complete. A write into a log
 * does not wait for storage anyway. --- */

static int query_request(void *bytes, MPI_Status *status)
{
	status->MPI_SOURCE = MPI_UNDEFINED;
	status->MPI_TAG = MPI_UNDEFINED;
	set_status(status, *(MPI_Count *)bytes);
	return MPI_SUCCESS;
}

static int free_request(void *bytes)
{
	free(bytes);
	return MPI_SUCCESS;
}

static int cancel_request(void *bytes, int complete)
{
	(void)bytes, (void)complete;
	return MPI_SUCCESS;
}

static int nonblocking(struct file *f, enum direction direction, enum where where,
	MPI_Offset offset, void *buf, MPI_Count count, MPI_Datatype type, MPI_Request *request)
{
	MPI_Count *bytes = calloc(1, sizeof *bytes);
	int rc = bytes ? transfer(f, direction, where, offset, buf, count, type, bytes)
		       : MPI_ERR_NO_MEM;
	*request = MPI_REQUEST_NULL;
	if (rc == MPI_SUCCESS)
		rc = PMPI_Grequest_start(
			query_request, free_request, cancel_request, bytes, request);
	if (rc == MPI_SUCCESS)
		return fail(f, PMPI_Grequest_complete(*request));
	free(bytes);
	return fail(f, rc);
}

/* --- Split: done in begin; end gives the status. `name` is one address for both. --- */

static int begin(struct file *f, const void *name, enum direction direction, enum where where,
	MPI_Offset offset, void *buf, MPI_Count count, MPI_Datatype type)
{
	if (f->split)
		return fail(f, MPI_ERR_OTHER);
	f->split_bytes = 0;
	int rc = transfer(f, direction, where, offset, buf, count, type, &f->split_bytes);
	if (rc == MPI_SUCCESS)
		f->split = name;
	return fail(f, rc);
}

static int end(struct file *f, const void *name, MPI_Status *status)
{
	if (f->split != name)
		return fail(f, MPI_ERR_OTHER);
	f->split = NULL;
	set_status(status, f->split_bytes);
	return MPI_SUCCESS;
}

/* Trampolines of a static program call them by name. */
#ifdef PLFS_MPI_STATIC
#define LINKAGE __attribute__((visibility("hidden")))
#else
#define LINKAGE static
#endif

/* A call: the door's for its own files, else the MPI's. */
#define CALL(name, params, args, ours) \
	LINKAGE int door_##name params; \
	LINKAGE int door_##name params \
	{ \
		struct file *f = file_of(fh); \
		return f ? ours : real->name args; \
	}
#define PLAIN(name, ret, params)
#define BLOCKING_ONE(name, count_t, direction, where) \
	CALL(name, (MPI_File fh, void *buf, count_t count, MPI_Datatype type, MPI_Status *status), \
		(fh, buf, count, type, status), \
		blocking(meet(f, direction, where, #name), direction, where, 0, buf, count, type, \
			status))
#define BLOCKING(name, direction, where) \
	BLOCKING_ONE(name, int, direction, where) \
	BLOCKING_ONE(name##_c, MPI_Count, direction, where)
#define BLOCKING_AT_ONE(name, count_t, direction) \
	CALL(name, \
		(MPI_File fh, MPI_Offset offset, void *buf, count_t count, MPI_Datatype type, \
			MPI_Status *status), \
		(fh, offset, buf, count, type, status), \
		blocking(meet(f, direction, EXPLICIT, #name), direction, EXPLICIT, offset, buf, \
			count, type, status))
#define BLOCKING_AT(name, direction) \
	BLOCKING_AT_ONE(name, int, direction) \
	BLOCKING_AT_ONE(name##_c, MPI_Count, direction)
#define NONBLOCKING_ONE(name, count_t, direction, where) \
	CALL(name, \
		(MPI_File fh, void *buf, count_t count, MPI_Datatype type, MPI_Request *request), \
		(fh, buf, count, type, request), \
		nonblocking(f, direction, where, 0, buf, count, type, request))
#define NONBLOCKING(name, direction, where) \
	NONBLOCKING_ONE(name, int, direction, where) \
	NONBLOCKING_ONE(name##_c, MPI_Count, direction, where)
#define NONBLOCKING_AT_ONE(name, count_t, direction) \
	CALL(name, \
		(MPI_File fh, MPI_Offset offset, void *buf, count_t count, MPI_Datatype type, \
			MPI_Request *request), \
		(fh, offset, buf, count, type, request), \
		nonblocking(f, direction, EXPLICIT, offset, buf, count, type, request))
#define NONBLOCKING_AT(name, direction) \
	NONBLOCKING_AT_ONE(name, int, direction) \
	NONBLOCKING_AT_ONE(name##_c, MPI_Count, direction)
#define BEGIN_ONE(name, id, count_t, direction, where) \
	CALL(name, (MPI_File fh, void *buf, count_t count, MPI_Datatype type), \
		(fh, buf, count, type), \
		begin(meet(f, direction, where, "_all"), id, direction, where, 0, buf, count, \
			type))
#define BEGIN(name, direction, where) \
	static const char split_##name[1]; \
	BEGIN_ONE(name##_begin, split_##name, int, direction, where) \
	BEGIN_ONE(name##_begin_c, split_##name, MPI_Count, direction, where)
#define BEGIN_AT_ONE(name, id, count_t, direction) \
	CALL(name, (MPI_File fh, MPI_Offset offset, void *buf, count_t count, MPI_Datatype type), \
		(fh, offset, buf, count, type), \
		begin(meet(f, direction, EXPLICIT, "_all"), id, direction, EXPLICIT, offset, buf, \
			count, type))
#define BEGIN_AT(name, direction) \
	static const char split_##name[1]; \
	BEGIN_AT_ONE(name##_begin, split_##name, int, direction) \
	BEGIN_AT_ONE(name##_begin_c, split_##name, MPI_Count, direction)
#define END(name, direction) \
	CALL(name##_end, (MPI_File fh, void *buf, MPI_Status *status), (fh, buf, status), \
		end(f, split_##name, status))
#include "functions.def"

/* Conversions take the real handle. */
MPI_Fint door_c2f(MPI_File fh)
{
	return real->c2f(fh);
}

MPI_File door_f2c(MPI_Fint fh)
{
	return real->f2c(fh);
}

int door_toint(MPI_File fh)
{
	return real->toint(fh);
}

MPI_File door_fromint(int fh)
{
	return real->fromint(fh);
}

#undef PLAIN
#undef BLOCKING
#undef BLOCKING_AT
#undef NONBLOCKING
#undef NONBLOCKING_AT
#undef BEGIN
#undef BEGIN_AT
#undef END

#ifndef PLFS_MPI_STATIC

static void *const calls[FUNCTIONS] = {
#define NAME(name) (void *)door_##name,
#include "functions.h"
};

__attribute__((visibility("default"))) void *const *plfs_mpi_adapter(
	void *const functions[FUNCTIONS]);

void *const *plfs_mpi_adapter(void *const functions[FUNCTIONS])
{
	real = (const void *)functions;
	return calls;
}

#else

/* The MPI's own, by the names that the linker gives them under --wrap. A program cannot call what
 * its MPI does not have. */
#if MPI_VERSION < 5
#define __real_PMPI_File_toint __real_PMPI_File_c2f
#define __real_PMPI_File_fromint __real_PMPI_File_f2c
#endif
#if MPI_VERSION < 4
#define __real_PMPI_File_get_type_extent_c __real_PMPI_File_get_type_extent
#define DECLARE(name) extern void __real_PMPI_File_##name(void);
#define ENTRY(name) (void *)__real_PMPI_File_##name, NULL,
#else
#define DECLARE(name) extern void __real_PMPI_File_##name(void), __real_PMPI_File_##name##_c(void);
#define ENTRY(name) (void *)__real_PMPI_File_##name, (void *)__real_PMPI_File_##name##_c,
#endif

#define PLAIN(name, ret, params) extern void __real_PMPI_File_##name(void);
#define BLOCKING(name, direction, where) DECLARE(name)
#define BLOCKING_AT(name, direction) DECLARE(name)
#define NONBLOCKING(name, direction, where) DECLARE(name)
#define NONBLOCKING_AT(name, direction) DECLARE(name)
#define BEGIN(name, direction, where) DECLARE(name##_begin)
#define BEGIN_AT(name, direction) DECLARE(name##_begin)
#define END(name, direction) extern void __real_PMPI_File_##name##_end(void);
#include "functions.def"
#undef PLAIN
#undef BLOCKING
#undef BLOCKING_AT
#undef NONBLOCKING
#undef NONBLOCKING_AT
#undef BEGIN
#undef BEGIN_AT
#undef END

static void *const functions[FUNCTIONS] = {
#define PLAIN(name, ret, params) (void *)__real_PMPI_File_##name,
#define BLOCKING(name, direction, where) ENTRY(name)
#define BLOCKING_AT(name, direction) ENTRY(name)
#define NONBLOCKING(name, direction, where) ENTRY(name)
#define NONBLOCKING_AT(name, direction) ENTRY(name)
#define BEGIN(name, direction, where) ENTRY(name##_begin)
#define BEGIN_AT(name, direction) ENTRY(name##_begin)
#define END(name, direction) (void *)__real_PMPI_File_##name##_end,
#include "functions.def"
};

const struct real *real = (const void *)functions;

#endif
