"""Chunked, compressed, resized and virtual datasets, and one writer beside readers (SWMR)."""

import os
import subprocess
import sys

import h5py
import numpy as np

if len(sys.argv) > 1:
    with h5py.File(sys.argv[1], "r", libver="latest", swmr=True) as f:
        print(f["grows"].shape, f["grows"][:].sum())
    sys.exit()
r = np.random.default_rng(2)
for part in range(3):
    with h5py.File(f"part{part}.h5", "w") as f:
        f["d"] = r.random((100, 50))
layout = h5py.VirtualLayout(shape=(3, 100, 50), dtype="f8")
for part in range(3):
    layout[part] = h5py.VirtualSource(f"part{part}.h5", "d", shape=(100, 50))
with h5py.File("virtual.h5", "w") as f:
    f.create_virtual_dataset("d", layout)
with h5py.File("all.h5", "w") as f:
    f.create_dataset(
        "c", data=r.random((400, 300)), chunks=(32, 32), compression="gzip", shuffle=True
    )
    f["c"].attrs["unit"] = "m"
    f["names"] = np.array([b"a", b"bcd"])
with h5py.File("all.h5", "r+") as f:
    f["c"][10:300:7, 5] = 1
    del f["names"]
with h5py.File("all.h5") as f, h5py.File("virtual.h5") as v:
    print(v["d"][:].sum(), f["c"][:].sum(), f["c"].attrs["unit"], sorted(f))
# It has the time.
os.remove("virtual.h5")
with h5py.File("swmr.h5", "w", libver="latest") as f:
    d = f.create_dataset("grows", (0, 10), maxshape=(None, 10), chunks=(10, 10), dtype="f8")
    f.swmr_mode = True
    for i in range(5):
        d.resize(10 * (i + 1), 0)
        d[10 * i :] = i
        d.flush()
        subprocess.run([sys.executable, __file__, "swmr.h5"], check=True)
