/* The interface between libplfs_mpi.so, which is independent of MPI, and its adapters, each
 * compiled for one MPI. */
#ifndef PLFS_MPI_FRONT_H
#define PLFS_MPI_FRONT_H

enum function {
#define NAME(name) FN_##name,
#include "functions.h"
	FUNCTIONS
};

_Static_assert(FUNCTIONS == 92, "functions.def lists all of MPI-IO");

/* What an adapter exports as plfs_mpi_adapter: takes the MPI's own functions, which stay valid, and
 * gives the door's. Both are in the order of functions.def. A function that the MPI lacks has a
 * stand-in. */
typedef void *const *adapter_fn(void *const real[FUNCTIONS]);

#endif
