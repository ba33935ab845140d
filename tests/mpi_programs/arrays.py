# A numpy array of two dimensions, in parts of a process grid, written and read back by mpi4py; the
# file name is the first argument.
import sys
import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
dims = MPI.Compute_dims(comm.size, 2)
shape = [12 * d for d in dims]
rank_at = np.unravel_index(comm.rank, dims)
start = [12 * r for r in rank_at]
whole = np.arange(np.prod(shape), dtype="f8").reshape(shape)
mine = np.ascontiguousarray(whole[start[0] : start[0] + 12, start[1] : start[1] + 12])
kind = MPI.DOUBLE.Create_subarray(shape, [12, 12], start).Commit()

f = MPI.File.Open(comm, sys.argv[1], MPI.MODE_CREATE | MPI.MODE_RDWR)
f.Set_view(256, MPI.DOUBLE, kind)
f.Write_all(mine)
f.Sync()
comm.Barrier()
f.Sync()
back = np.zeros_like(mine)
f.Read_at_all(0, back)
assert (back == mine).all()
# Everything, by each rank, into every second column.
wide = np.full((shape[0], shape[1] * 2), -1.0)
columns = MPI.DOUBLE.Create_vector(int(np.prod(shape)), 1, 2).Commit()
f.Set_view(256, MPI.DOUBLE, MPI.DOUBLE)
f.Iread_at(0, [wide, 1, columns]).Wait()
assert (wide[:, ::2] == whole).all() and (wide[:, 1::2] == -1).all()
# Ordered: a line from each rank behind the array.
line = np.full(comm.rank + 1, comm.rank, dtype="f8")
f.Seek_shared(int(np.prod(shape)))
f.Write_ordered(line)
f.Sync()
comm.Barrier()
size = f.Get_size()
assert size == 256 + 8 * (np.prod(shape) + comm.size * (comm.size + 1) // 2), size
if comm.rank == 0:
    print("size", size)
    if "plfs_flatten_on_close" in dict(f.Get_info().items()):
        print("door")
f.Close()
