"""Ranks write and read their parts of one file: rows, columns, and single elements."""

import sys

from mpi4py import MPI
import h5py
import numpy as np

path, how, what = sys.argv[1:]
comm = MPI.COMM_WORLD
ROWS, COLUMNS, ELEMENTS = 240, 120, 600


def mine(n):
    return slice(n * comm.rank // comm.size, n * (comm.rank + 1) // comm.size)


def value(dataset, at):
    return np.arange(at.start, at.stop) * 1.5 + len(dataset.name)


with h5py.File(path, "w" if what == "write" else "r", driver="mpio", comm=comm) as f:
    if what == "write":
        f.create_dataset("rows", (ROWS, COLUMNS))
        f.create_dataset("columns", (ROWS, COLUMNS), chunks=(40, 40), dtype="f8")
        f.create_dataset("elements", (ELEMENTS,), dtype="f8")
    for name, n in (("rows", ROWS), ("columns", COLUMNS)):
        d, at = f[name], mine(n)
        key = (at, slice(None)) if name == "rows" else (slice(None), at)
        want = value(d, at)[:, None] if name == "rows" else value(d, at)[None, :]
        if how == "collective":
            with d.collective:
                if what == "write":
                    d[key] = np.broadcast_to(want, d[key].shape)
                else:
                    assert (d[key] == want.astype(d.dtype)).all()
        elif what == "write":
            d[key] = np.broadcast_to(want, d[key].shape)
        else:
            assert (d[key] == want.astype(d.dtype)).all()
    d = f["elements"]
    # 8 bytes each time.
    for i in range(comm.rank, ELEMENTS, comm.size):
        if what == "write":
            d[i] = i * 2.5
        else:
            assert d[i] == i * 2.5
    if what == "read" and comm.rank == 0:
        print(path, f["rows"][:].sum(), f["columns"][:].sum(), d[:].sum())
