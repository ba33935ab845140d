"""Arrays in files of their own, in archives, and as text; parts of them written in place."""

import numpy as np

r = np.random.default_rng(1)
a = r.random((500, 700))
np.save("a.npy", a)
np.savez("all.npz", a=a, b=np.arange(1000))
np.savez_compressed("small.npz", a=a.astype("f4"), names=np.array(["x", "yy"]))
np.savetxt("a.txt", a[:50, :20])
a.tofile("raw")
with open("raw", "r+b") as f:
    for row in range(0, 500, 7):
        f.seek(row * 700 * 8)
        a[row] = row
        a[row].tofile(f)
assert (np.fromfile("raw").reshape(a.shape) == a).all()
seen = np.memmap("raw", mode="r", shape=a.shape, dtype="f8")
print(seen.sum(), np.load("a.npy", mmap_mode="r")[3, 4], np.loadtxt("a.txt").shape)
with np.load("all.npz") as z, np.load("small.npz") as s:
    print(sorted(z), z["b"].sum(), s["names"], s["a"].mean())
