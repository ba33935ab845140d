/* libplfs_mpi.so: finds the MPI of the process at its first MPI_File call and sends the calls to
 * the adapter for it.
 *
 * This library is preloaded into every process of a job, so it depends on nothing: on no MPI
 * symbol, because some MPIs' constants are data symbols that only MPI programs have, and not on
 * libplfs, which the adapter loads. */
#include "front.h"
#include "libraries.h"

#include <dlfcn.h>
#include <elf.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What the trampolines jump to. */
void *plfs_mpi_calls[FUNCTIONS] __attribute__((visibility("hidden")));
void *plfs_mpi_find(unsigned index) __attribute__((visibility("hidden")));

static void *real_calls[FUNCTIONS];

/* Sonames of MPI libraries, and the adapter built for each. */
static const struct abi {
	const char *soname, *adapter;
} ABIS[] = {
	{"libmpich.so.12", "libplfs_mpi_mpich12.so"},
	{"libmpi.so.12", "libplfs_mpi_mpi12.so"},
	{"libmpi.so.40", "libplfs_mpi_ompi40.so"},
	{"libmpi_abi.so.1", "libplfs_mpi_abi.so"},
};

static const char *const NAMES[FUNCTIONS] = {
#define NAME(name) "PMPI_File_" #name,
#include "functions.h"
};

/* With PLFS_DEBUG=1, one line on standard error. */
static void say(const char *what, const char *detail)
{
	const char *debug = getenv("PLFS_DEBUG");
	if (!debug || !*debug || strcmp(debug, "0") == 0)
		return;
	char line[1024];
	int n = snprintf(line, sizeof line, "plfs mpi: %s%s\n", what, detail ? detail : "");
	if (n > 0 && write(2, line, (size_t)n < sizeof line ? (size_t)n : sizeof line - 1) < 0)
		return;
}

/* MPI_ERR_OTHER of most MPIs: the result where no MPI was found. */
#define NO_MPI 15
#define ERR_COUNT 2 /* the same in every ABI */

static int without_mpi(void)
{
	return NO_MPI;
}

/* Large-count calls for an MPI that lacks them, for programs that test whether the symbol exists
 * and find ours. The arguments are in the same registers as those of the plain call, so only the
 * count has to be checked. */
typedef intptr_t any;
#define NARROW(name, params, args, count) \
	static int narrow_##name params \
	{ \
		if (count < 0 || count > INT_MAX) \
			return ERR_COUNT; \
		return ((int(*) params)real_calls[FN_##name])args; \
	}
#define BUFFER (any fh, any buf, any count, any type, any out), (fh, buf, count, type, out), count
#define OFFSET \
	(any fh, any offset, any buf, any count, any type, any out), \
		(fh, offset, buf, count, type, out), count
#define NARROW2(...) NARROW(__VA_ARGS__)
#define PLAIN(name, ret, params)
#define BLOCKING(name, direction, where) NARROW2(name, BUFFER)
#define BLOCKING_AT(name, direction) NARROW2(name, OFFSET)
#define NONBLOCKING(name, direction, where) NARROW2(name, BUFFER)
#define NONBLOCKING_AT(name, direction) NARROW2(name, OFFSET)
#define BEGIN(name, direction, where) NARROW2(name##_begin, BUFFER)
#define BEGIN_AT(name, direction) NARROW2(name##_begin, OFFSET)
#define END(name, direction)
#include "functions.def"
#undef PLAIN
#undef BLOCKING
#undef BLOCKING_AT
#undef NONBLOCKING
#undef NONBLOCKING_AT
#undef BEGIN
#undef BEGIN_AT
#undef END

static void *const STAND_INS[FUNCTIONS] = {
#define PLAIN(name, ret, params)
#define BLOCKING(name, direction, where) [FN_##name##_c] = (void *)narrow_##name,
#define BLOCKING_AT(name, direction) [FN_##name##_c] = (void *)narrow_##name,
#define NONBLOCKING(name, direction, where) [FN_##name##_c] = (void *)narrow_##name,
#define NONBLOCKING_AT(name, direction) [FN_##name##_c] = (void *)narrow_##name,
#define BEGIN(name, direction, where) [FN_##name##_begin_c] = (void *)narrow_##name##_begin,
#define BEGIN_AT(name, direction) [FN_##name##_begin_c] = (void *)narrow_##name##_begin,
#define END(name, direction)
#include "functions.def"
};

#define OTHERS 8

struct found {
	const struct abi *abi;
	char path[PATH_MAX]; /* of the library of `abi` */
	char others[OTHERS]
		   [PATH_MAX]; /* libraries that may be an unknown MPI, or bindings of an MPI */
	int count;
};

/* Records the first loaded library that is a known MPI. By name, because a search by symbol would
 * find this library. */
static int look_at(struct dl_phdr_info *object, size_t size, void *out)
{
	(void)size;
	struct found *found = out;
	if (!object->dlpi_name || !*object->dlpi_name ||
		strlen(object->dlpi_name) >= sizeof found->path)
		return 0;
	const char *soname = soname_of(object);
	if (!soname || strncmp(soname, "libmpi", 6) != 0)
		return 0;
	for (size_t i = 0; i < sizeof ABIS / sizeof *ABIS; i++)
		if (strcmp(soname, ABIS[i].soname) == 0) {
			strcpy(found->path, object->dlpi_name);
			found->abi = &ABIS[i];
			return 1;
		}
	if (found->count < OTHERS)
		strcpy(found->others[found->count++], object->dlpi_name);
	return 0;
}

/* The MPI of this process, or NULL. By handle, never by RTLD_NEXT, which does not find a libmpi
 * that Python has loaded. */
static void *find_mpi(struct found *found)
{
	dl_iterate_phdr(look_at, found);
	if (found->abi)
		return dlopen(found->path, RTLD_LAZY | RTLD_NOLOAD);
	for (int i = 0; i < found->count; i++) {
		/* Bindings, such as libmpichfort, find MPI_File_open in a library that they need.
		 */
		void *handle = dlopen(found->others[i], RTLD_LAZY | RTLD_NOLOAD);
		void *open = handle ? dlsym(handle, NAMES[FN_open]) : NULL;
		if (open) {
			strcpy(found->path, found->others[i]);
			return handle;
		}
		if (handle)
			dlclose(handle);
	}
	return NULL;
}

static void connect(void)
{
	static struct found found;
	void *mpi = find_mpi(&found);
	for (int i = 0; i < FUNCTIONS; i++) {
		void *call = mpi ? dlsym(mpi, NAMES[i]) : (void *)without_mpi;
		real_calls[i] = call ? call : STAND_INS[i];
	}
	/* On 64-bit machines these differ in name only. */
	static const struct {
		enum function missing, same;
	} TWINS[] = {
		{FN_toint, FN_c2f},
		{FN_fromint, FN_f2c},
		{FN_c2f, FN_toint},
		{FN_f2c, FN_fromint},
		{FN_get_type_extent_c, FN_get_type_extent},
	};
	for (size_t i = 0; i < sizeof TWINS / sizeof *TWINS; i++)
		if (!real_calls[TWINS[i].missing])
			real_calls[TWINS[i].missing] = real_calls[TWINS[i].same];
	for (int i = 0; i < FUNCTIONS; i++)
		if (!real_calls[i])
			real_calls[i] = (void *)without_mpi;

	void *const *calls = real_calls;
	if (!mpi) {
		say("a program without an MPI library called MPI-IO", NULL);
	} else if (!found.abi) {
		say("left alone, because no adapter is for this MPI: ", found.path);
	} else {
		void *adapter = load_beside((void *)plfs_mpi_find, found.abi->adapter);
		adapter_fn *start = adapter ? (adapter_fn *)dlsym(adapter, "plfs_mpi_adapter")
					    : NULL;
		if (start)
			calls = start(real_calls);
		else
			say("left alone, because its adapter cannot be loaded: ", dlerror());
	}
	for (int i = 0; i < FUNCTIONS; i++)
		__atomic_store_n(&plfs_mpi_calls[i], calls[i], __ATOMIC_RELEASE);
}

void *plfs_mpi_find(unsigned index)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, connect);
	return __atomic_load_n(&plfs_mpi_calls[index], __ATOMIC_ACQUIRE);
}
