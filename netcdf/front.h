/* The interface between libplfs_netcdf.so, which is independent of MPI and PnetCDF, and its
 * adapters, each compiled for one MPI. */
#ifndef PLFS_NETCDF_FRONT_H
#define PLFS_NETCDF_FRONT_H

enum function {
#define NAME(name) FN_##name,
#include "functions.h"
	FUNCTIONS
};

_Static_assert(FUNCTIONS == 868, "functions.def lists all of PnetCDF");

/* Finds a function of PnetCDF's own, by its name with ncmpi_; NULL if it has none. */
typedef void *find_fn(const char *name);

/* What an adapter exports as plfs_netcdf_adapter: takes PnetCDF's own functions, and what finds
 * others, and gives the door's, in the order of functions.def. A function that the PnetCDF lacks
 * has a stand-in. */
typedef void *const *adapter_fn(void *const real[FUNCTIONS], find_fn *find);

#endif
