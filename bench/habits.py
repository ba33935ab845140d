#!/usr/bin/env python3
"""Everyday habits that cost more than they look: tiny writes, an fsync each, maps, a mount.

    habits.py [--dir /dev/shm] [--build BUILD] [--writes 1600000] [--synced 2000] [--mib 1024]
              [--files 1000] [--reps 3] [--only tiny,synced,map,mount] [--example PROGRAM]
              [--out JSON]

Direct and through PLFS take turns; medians, and ratios of them, PLFS : direct, so 1 is as fast as
direct and more is slower.

tiny    eight processes write 8 bytes each time into one shared file, --writes in all, each process
        every eighth element: in order (row), which is a pattern, or in an order that has none
        (any); and by MPI-IO, if there is an MPICH. Then a program opens the file and reads one
        byte, and then all. And the bytes of index in the container by those of data.
synced  writes of 4 KiB, each with an fsync
map     one element of a mapped file of --mib, in time and in memory of the process alone; then
        pages at random, nanoseconds each
        Both of a container, and of a file that is plain because one process alone writes it.
mount   in a mount of PLFS, the least that a FUSE file system can be (passthrough.rs), and direct:
        unbuffered writes of 100 bytes and of 8, cp -a and rm -rf of --files files. Needs root. The
        last column is PLFS : passthrough.
"""

import argparse
import contextlib
import os
import shutil
import subprocess
import tempfile
import time

from common import build_c, cargo_example, machine, median, plfs_run, run, run_json, table, TOP
from common import write_json

PROCESSES = 8
PARTS = ("tiny", "synced", "map", "mount")
SMALL_WRITES = 20_000
KINDS = {"container": "shared", "plain": "auto"}


class Rows:
    """What was measured, by what it is and through which door."""

    def __init__(self):
        self.values = {}

    def add(self, what, door, value):
        self.values.setdefault(what, {}).setdefault(door, []).append(value)

    def medians(self):
        return {
            what: {door: median(values) for door, values in by.items()}
            for what, by in self.values.items()
        }


def with_mpi(build):
    """The words in front of the program's own that start its ranks. None without MPICH."""
    compiler, mpiexec = shutil.which("mpicc.mpich"), shutil.which("mpiexec.mpich")
    if not compiler or not mpiexec:
        return None
    os.environ["MPIR_CVAR_POLLS_BEFORE_YIELD"] = "1"
    return [
        mpiexec,
        "-n",
        str(PROCESSES),
        build_c("bench/habits.c", build, compiler, ["-DWITH_MPI"]),
    ]


def tiny(a, program, dirs, rows):
    os.environ["PLFS_WORKLOAD"] = "auto"
    for how in ("row", "any", "MPI row", "MPI any"):
        *by_mpi, order = how.split()
        if by_mpi and not a.mpi:
            continue
        for door, prefix in turns(a, dirs):
            path = os.path.join(dirs[door], f"tiny.{order}")
            words = [*a.mpi, "mpi", path] if by_mpi else [program, "tiny", path, str(PROCESSES)]
            said = run_json([*prefix, *words, str(a.writes), order])
            rows.add(f"8-byte writes, {how}, s", door, said["write_s"])
            said = run_json([*prefix, program, "look", path])
            rows.add(f"reopened, {how}, first byte, s", door, said["open_s"])
            rows.add(f"reopened, {how}, all bytes, s", door, said["read_s"])
            if door == "plfs":
                stat = run_json([os.path.join(a.build, "bin", "plfs"), "stat", "--json", path])
                flat = stat["flat_index"]["bytes"] if stat["flat_index"] else 0
                index = stat["index_bytes"] + flat
                rows.add(f"index : data, {how}", door, index / said["size"])
                os.unlink(path)
                shutil.rmtree(os.path.join(dirs[door], ".plfs"))
            else:
                os.unlink(path)


def synced(a, program, dirs, rows):
    for kind, workload in KINDS.items():
        os.environ["PLFS_WORKLOAD"] = workload
        for door, prefix in turns(a, dirs):
            path = os.path.join(dirs[door], f"synced.{workload}")
            said = run_json([*prefix, program, "synced", path, str(a.synced), "4096"])
            rows.add(f"4 KiB and fsync, {kind}, s", door, said["synced_s"])


def mapped(a, program, dirs, rows):
    for kind, workload in KINDS.items():
        os.environ["PLFS_WORKLOAD"] = workload
        one_map(a, program, dirs, rows, kind)


def one_map(a, program, dirs, rows, kind):
    for door, prefix in turns(a, dirs):
        path = os.path.join(dirs[door], f"map.{kind}")
        if not os.path.exists(path):
            run(
                [*prefix, "dd", "if=/dev/urandom", f"of={path}", "bs=4M", f"count={a.mib // 4}"]
                + ["status=none"]
            )
        said = run_json([*prefix, program, "map", path, "100000"])
        rows.add(f"one element of a map, {kind}, s", door, said["one_s"])
        rows.add(f"private memory then, {kind}, MiB", door, said["private_bytes"] / (1 << 20))
        rows.add(f"pages at random after it, {kind}, ns", door, said["touch_ns"])


def turns(a, dirs):
    doors = list(dirs.items())
    a.turn = not a.turn
    for door, where in doors if a.turn else doors[::-1]:
        yield door, plfs_run(a.build, [where]) if door == "plfs" else []


@contextlib.contextmanager
def mounts(a, base):
    """A directory through a mount of PLFS, one through the least file system, and a direct one."""
    plfs = os.path.join(a.build, "bin", "plfs")
    example = a.example or cargo_example("plfs-fuse", "passthrough")
    points = tempfile.mkdtemp(prefix="plfs-habits-mounts.")
    doors = {"direct": os.path.join(base, "mount.direct")}
    os.mkdir(doors["direct"])
    for door in ("plfs", "passthrough"):
        doors[door] = os.path.join(points, door)
        os.mkdir(doors[door])
        os.mkdir(os.path.join(base, f"mount.{door}"))
    other = subprocess.Popen(
        [example, os.path.join(base, "mount.passthrough"), doors["passthrough"]]
    )
    try:
        # In this session, as the other one.
        one = subprocess.Popen(
            [plfs, "mount", "--foreground", "-o", "log=warn", doors["plfs"]]
            + ["--backend", os.path.join(base, "mount.plfs")]
        )
        for _ in range(200):
            if all(os.path.ismount(doors[door]) for door in ("plfs", "passthrough")):
                break
            time.sleep(0.05)
        yield doors
    finally:
        subprocess.run([plfs, "umount", doors["plfs"]], timeout=120)
        subprocess.run(["umount", doors["passthrough"]], timeout=60)
        one.wait(60)
        other.wait(60)
        shutil.rmtree(points, ignore_errors=True)


def mount(a, base, rows):
    source = os.path.join(base, "files")
    os.mkdir(source)
    for i in range(a.files):
        with open(os.path.join(source, f"{i:06}"), "wb") as file:
            file.write(os.urandom(1024))
    with mounts(a, base) as doors:
        for rep in range(a.reps):
            for door, where in list(doors.items())[:: -1 if rep % 2 else 1]:
                for size in (100, 8):
                    path, data = os.path.join(where, "small"), bytes(size)
                    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
                    begun = time.perf_counter()
                    for _ in range(SMALL_WRITES):
                        os.write(fd, data)
                    os.close(fd)
                    spent = time.perf_counter() - begun
                    rows.add(f"mount: {size}-byte writes, us", door, spent * 1e6 / SMALL_WRITES)
                    os.unlink(path)
                for what, words in (
                    ("cp -a", ["cp", "-a", source, os.path.join(where, "copy")]),
                    ("rm -rf", ["rm", "-rf", os.path.join(where, "copy")]),
                ):
                    begun = time.perf_counter()
                    run(words)
                    rows.add(f"mount: {what}, ms", door, (time.perf_counter() - begun) * 1e3)


def shown(value):
    return "" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def ratio(by, door, to):
    return f"{by[door] / by[to]:.2f}" if by.get(to) and door in by else ""


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--dir", default="/dev/shm")
    p.add_argument("--build", default=os.path.join(TOP, "build"))
    p.add_argument("--writes", type=int, default=1_600_000)
    p.add_argument("--synced", type=int, default=2000)
    p.add_argument("--mib", type=int, default=1024)
    p.add_argument("--files", type=int, default=1000)
    p.add_argument("--reps", type=int, default=3)
    p.add_argument("--only", default=",".join(PARTS))
    p.add_argument("--example", help="the passthrough program; built with cargo if not given")
    p.add_argument("--out")
    a = p.parse_args()
    a.build, a.turn = os.path.abspath(a.build), False
    a.mpi = with_mpi(a.build)
    wanted = a.only.split(",")
    program, rows = build_c("bench/habits.c", a.build), Rows()
    with tempfile.TemporaryDirectory(prefix="plfs-habits.", dir=a.dir) as base:
        dirs = {door: os.path.join(base, door) for door in ("direct", "plfs")}
        for where in dirs.values():
            os.mkdir(where)
        for _ in range(a.reps):
            for part, work in (("tiny", tiny), ("synced", synced), ("map", mapped)):
                if part in wanted:
                    work(a, program, dirs, rows)
        if "mount" in wanted:
            mount(a, base, rows)
        about = machine(base)
    medians = rows.medians()
    print(
        f"{', '.join(about['file_system'])}, {about['cpus']} processors, {about['commit']}; "
        f"medians of {a.reps}"
    )
    print(
        table(
            ["", "direct", "PLFS", "passthrough", "PLFS:direct", "PLFS:passthrough"],
            [
                [what, *(shown(by.get(door)) for door in ("direct", "plfs", "passthrough"))]
                + [ratio(by, "plfs", "direct"), ratio(by, "plfs", "passthrough")]
                for what, by in medians.items()
            ],
        )
    )
    if a.out:
        write_json(a.out, {"machine": about, "medians": medians, "runs": rows.values})


if __name__ == "__main__":
    main()
