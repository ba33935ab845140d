"""A group of arrays in chunks, of both formats, written by several processes."""

import subprocess
import sys

import numpy as np
import zarr

if len(sys.argv) > 1:
    part = int(sys.argv[1])
    a = zarr.open_group("g.zarr", mode="r+")["a"]
    a[part * 100 : part * 100 + 100] = np.random.default_rng(part).random((100, 200))
    sys.exit()
g = zarr.open_group("g.zarr", mode="w")
g.create_array("a", shape=(400, 200), chunks=(50, 50), dtype="f8")
g.attrs["title"] = "test"
parts = [subprocess.Popen([sys.executable, __file__, str(i)]) for i in range(4)]
assert not any([part.wait() for part in parts])
old = zarr.open_group("old.zarr", mode="w", zarr_format=2)
old.create_array("b", shape=(1000,), chunks=(100,), dtype="i4")[:] = np.arange(1000)
old["b"][::3] = 0
g = zarr.open_group("g.zarr", mode="a")
g["a"].resize((300, 250))
print(g["a"][:].sum(), g["a"].shape, dict(g.attrs), old["b"][:].sum(), old["b"].nchunks_initialized)
