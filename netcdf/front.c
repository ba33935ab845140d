/* libplfs_netcdf.so: finds PnetCDF and the MPI of the process at its first ncmpi_ call, and sends
 * the calls to the adapter for that MPI.
 *
 * This library is preloaded into every process of a job, so it depends on nothing, as
 * libplfs_mpi.so does: mpi/front.c says why. A program may also be linked to it, before it is
 * linked to PnetCDF. */
#include "front.h"
#include "../mpi/libraries.h"

#include <dlfcn.h>
#include <elf.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What the trampolines jump to. */
void *plfs_netcdf_calls[FUNCTIONS] __attribute__((visibility("hidden")));
void *plfs_netcdf_find(unsigned index) __attribute__((visibility("hidden")));

static void *real_calls[FUNCTIONS];

/* Sonames of MPI libraries, and the adapter built for each. */
static const struct abi {
	const char *soname, *adapter;
} ABIS[] = {
	{"libmpich.so.12", "libplfs_netcdf_mpich12.so"},
	{"libmpi.so.12", "libplfs_netcdf_mpi12.so"},
	{"libmpi.so.40", "libplfs_netcdf_ompi40.so"},
};

static const char *const NAMES[FUNCTIONS] = {
#define NAME(name) "ncmpi_" #name,
#include "functions.h"
};

/* With PLFS_DEBUG=1, one line on standard error. */
static void say(const char *what, const char *detail)
{
	const char *debug = getenv("PLFS_DEBUG");
	if (!debug || !*debug || strcmp(debug, "0") == 0)
		return;
	char line[1024];
	int n = snprintf(line, sizeof line, "plfs netcdf: %s%s\n", what, detail ? detail : "");
	if (n > 0 && write(2, line, (size_t)n < sizeof line ? (size_t)n : sizeof line - 1) < 0)
		return;
}

/* NC_ENOTSUPPORT of pnetcdf.h. */
#define NOT_THERE (-214)

static int without_pnetcdf(void)
{
	return NOT_THERE;
}

static struct {
	const struct abi *abi;
	char pnetcdf[PATH_MAX]; /* the path of the library, "" if it is not loaded */
} found;

/* Records the first loaded libraries that are a known MPI and PnetCDF. */
static int look_at(struct dl_phdr_info *object, size_t size, void *unused)
{
	(void)size, (void)unused;
	const char *soname = object->dlpi_name && *object->dlpi_name ? soname_of(object) : NULL;
	if (!soname)
		return 0;
	for (size_t i = 0; !found.abi && i < sizeof ABIS / sizeof *ABIS; i++)
		if (strcmp(soname, ABIS[i].soname) == 0)
			found.abi = &ABIS[i];
	if (!*found.pnetcdf && strncmp(soname, "libpnetcdf.so", 13) == 0 &&
		strlen(object->dlpi_name) < sizeof found.pnetcdf)
		strcpy(found.pnetcdf, object->dlpi_name);
	return 0;
}

/* PnetCDF's own. RTLD_NEXT does not find a library that Python has loaded for itself. */
static void *find(const char *name)
{
	static void *handle;
	void *call = dlsym(RTLD_NEXT, name);
	if (call)
		return call;
	if (!handle && *found.pnetcdf)
		handle = dlopen(found.pnetcdf, RTLD_LAZY | RTLD_NOLOAD);
	return handle ? dlsym(handle, name) : NULL;
}

static void connect(void)
{
	dl_iterate_phdr(look_at, NULL);
	for (int i = 0; i < FUNCTIONS; i++) {
		real_calls[i] = find(NAMES[i]);
		if (!real_calls[i])
			real_calls[i] = (void *)without_pnetcdf;
	}
	void *const *calls = real_calls;
	if (real_calls[FN_create] == (void *)without_pnetcdf) {
		say("a program without PnetCDF called ncmpi_ functions", NULL);
	} else if (!found.abi) {
		say("left alone, because no adapter is for the MPI of ", found.pnetcdf);
	} else {
		void *adapter = load_beside((void *)plfs_netcdf_find, found.abi->adapter);
		adapter_fn *start = adapter ? (adapter_fn *)dlsym(adapter, "plfs_netcdf_adapter")
					    : NULL;
		if (start)
			calls = start(real_calls, find);
		else
			say("left alone, because its adapter cannot be loaded: ", dlerror());
	}
	for (int i = 0; i < FUNCTIONS; i++)
		__atomic_store_n(&plfs_netcdf_calls[i], calls[i], __ATOMIC_RELEASE);
}

void *plfs_netcdf_find(unsigned index)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, connect);
	return __atomic_load_n(&plfs_netcdf_calls[index], __ATOMIC_ACQUIRE);
}
