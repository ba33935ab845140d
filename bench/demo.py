#!/usr/bin/env python3
"""What `make demo` runs: the main job direct and through PLFS on the same storage in one run, bytes
compared, one table.

    demo.py [--build BUILD] [--dir DIR] [--mib-per-rank 32] [--reps 3] [--ranks 8]
            [--out JSON] [--keep]

fio: 8 processes write one shared file in strided blocks of 47,001 bytes, fsync, and read it back
(bench/fio_n1.py explains the job). HDF5: 4 MPI ranks write interleaved rows of one dataset of one
shared file, independently and collectively. The variants alternate; the first repetition warms up
and does not count; the table holds medians.
Bytes: md5sum through PLFS, and the file that `plfs export` gives back, must equal the direct file.
Exit status 1 if any byte differs.
"""

import argparse, hashlib, os, shutil, signal, subprocess, sys, tempfile
from common import (
    build_c,
    machine,
    median,
    MIB,
    plfs_run,
    rate,
    remove_tree,
    run,
    run_json,
    table,
    TOP,
    write_json,
)
import fio_n1

BLOCK = 47001


def md5(path):
    with open(path, "rb") as f:
        return hashlib.file_digest(f, "md5").hexdigest()


def default_dir():
    """Memory shows the locks of the file system without its disk; a container's small /dev/shm
    would not hold the files."""
    s = os.statvfs("/dev/shm") if os.path.isdir("/dev/shm") else None
    return "/dev/shm" if s and s.f_bavail * s.f_frsize > 2 << 30 else tempfile.gettempdir()


class Demo:
    def __init__(self, a, base):
        self.a, self.plfs = a, os.path.join(a.build, "bin", "plfs")
        self.direct, self.mount = os.path.join(base, "direct"), os.path.join(base, "plfs.d")
        os.mkdir(self.direct)
        os.mkdir(self.mount)
        self.prefix = plfs_run(a.build, [self.mount])
        self.runs, self.logs, self.bytes = {}, {}, {}

    def note(self, variant, result):
        self.runs.setdefault(variant, []).append(result)
        print(
            f"  {variant:28} write {rate(result['write_mib_s']):>6}  read {rate(result['read_mib_s']):>6} MiB/s",
            file=sys.stderr,
        )

    def compare(self, variant, name):
        """Checks the PLFS file against the direct one of the same name and notes its logs."""
        direct, ours, plain = (
            os.path.join(self.direct, name),
            os.path.join(self.mount, name),
            os.path.join(self.direct, "exported"),
        )
        want = md5(direct)
        seen = run([*self.prefix, "md5sum", ours]).split()[0]
        run([self.plfs, "export", ours, plain])
        self.bytes[variant] = "equal" if seen == want == md5(plain) else "DIFFER"
        os.unlink(plain)
        self.logs[variant] = run_json([self.plfs, "stat", "--json", ours])

    def remove(self, *names):
        run(["rm", "-f", *(os.path.join(self.direct, n) for n in names)])
        run([*self.prefix, "rm", "-f", *(os.path.join(self.mount, n) for n in names)])

    def fio(self):
        pieces = max(1, int(self.a.mib_per_rank * MIB) // BLOCK)
        args = ("ckpt", self.a.ranks, BLOCK, pieces)
        for rep in range(self.a.reps + 1):
            self.note("fio N-N direct", fio_n1.measure(self.direct, *args, nn=True))
            self.remove(*(f"ckpt.{r}" for r in range(self.a.ranks)))
            self.note("fio N-1 direct", fio_n1.measure(self.direct, *args))
            self.note("fio N-1 PLFS", fio_n1.measure(self.mount, *args, prefix=self.prefix))
            if rep == self.a.reps:
                self.compare("fio N-1 PLFS", "ckpt")
            self.remove("ckpt")

    def hdf5(self):
        """A reason if it cannot run here, else None."""
        tool = lambda name: shutil.which(f"{name}.mpich") or shutil.which(name)
        flags = subprocess.run(
            ["pkg-config", "--cflags", "--libs", "hdf5-mpich"], capture_output=True, text=True
        )
        if flags.returncode or not tool("mpicc") or not tool("mpiexec"):
            return "HDF5 skipped: needs mpich, libmpich-dev, libhdf5-mpich-dev"
        program = build_c(
            "tests/programs/hdf5_shared.c", self.a.build, tool("mpicc"), flags.stdout.split()
        )
        mpiexec = [tool("mpiexec"), "-n", "4", program]
        env = {
            **os.environ,
            "MPIR_CVAR_POLLS_BEFORE_YIELD": "1",
        }  # ranks that wait leave the processors to others
        rows = max(1, int(self.a.mib_per_rank * MIB / 2) // (5875 * 8))
        for mode in ("independent", "collective"):
            for rep in range(self.a.reps + 1):
                for door, directory, prefix in (
                    ("direct", self.direct, []),
                    ("PLFS", self.mount, self.prefix),
                ):
                    command = [*prefix, *mpiexec, os.path.join(directory, "f.h5"), mode, str(rows)]
                    self.note(f"HDF5 {mode} {door}", run_json(command, env=env))
                if rep == self.a.reps:
                    self.compare(f"HDF5 {mode} PLFS", "f.h5")
                self.remove("f.h5")

    def rows(self):
        m = {
            v: {side: median([r[f"{side}_mib_s"] for r in runs[1:]]) for side in ("write", "read")}
            for v, runs in self.runs.items()
        }

        def ratios(v, to):
            return [
                f"{m[v][s] / m[to][s]:.2f}" if to in m and to != v else "-"
                for s in ("write", "read")
            ]

        for v in sorted(
            m, key=lambda v: (v.split()[0] != "fio", v == "fio N-1 PLFS", v == "fio N-N direct")
        ):
            shared = "fio N-1 direct" if v.startswith("fio") else v.replace("PLFS", "direct")
            logs = self.logs.get(v, {})
            yield [
                v,
                rate(m[v]["write"]),
                rate(m[v]["read"]),
                *ratios(v, shared),
                *(ratios(v, "fio N-N direct") if v.startswith("fio") else "--"),
                logs.get("data_logs", "-"),
                logs.get("index_bytes", "-"),
                self.bytes.get(v, "-"),
            ]


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--build", default=os.path.join(TOP, "build"))
    p.add_argument(
        "--dir",
        help="storage to work on, in a directory of its own that is removed (default: /dev/shm if large enough)",
    )
    p.add_argument("--ranks", type=int, default=8, help="processes of fio")
    p.add_argument("--mib-per-rank", type=float, default=32)
    p.add_argument("--reps", type=int, default=3)
    p.add_argument("--out", help="raw JSON")
    p.add_argument("--keep", action="store_true", help="leave the directory behind")
    a = p.parse_args()
    a.build = os.path.abspath(a.build)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the files are removed
    base = tempfile.mkdtemp(prefix="plfs-demo.", dir=os.path.abspath(a.dir or default_dir()))
    try:
        about, demo = machine(base), Demo(a, base)
        demo.fio()
        skipped = demo.hdf5()
    finally:
        print(f"  kept: {base}", file=sys.stderr) if a.keep else remove_tree(base)
    print(
        f"\n{', '.join(about['file_system'])}, {about['cpus']} processors, kernel {about['kernel']}, commit {about['commit']}; "
        f"fio: {a.ranks} processes x {a.mib_per_rank:g} MiB in {BLOCK:,}-byte blocks; medians of {a.reps}\n"
    )
    print(
        table(
            [
                "MiB/s",
                "write",
                "read",
                "write:N-1",
                "read:N-1",
                "write:N-N",
                "read:N-N",
                "data logs",
                "index bytes",
                "bytes",
            ],
            demo.rows(),
        )
    )
    print(
        "\n'write:N-1' is the rate over the direct shared file of the same program; 'write:N-N' over a direct file per process."
    )
    if skipped:
        print(skipped)
    if a.out:
        write_json(
            a.out,
            {
                "machine": about,
                "runs": demo.runs,
                "logs": demo.logs,
                "bytes": demo.bytes,
                "skipped": skipped,
            },
        )
    if "DIFFER" in demo.bytes.values():
        sys.exit("demo: bytes through PLFS differ from the direct file")


if __name__ == "__main__":
    main()
