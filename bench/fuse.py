#!/usr/bin/env python3
"""What a mount of PLFS costs, against the least that a FUSE file system can be
(crates/plfs-fuse/examples/passthrough.rs) on the same backend, in one run.

    bench/fuse.py --build BUILD [--storage DIR] [--mib 512] [--files 10000] [--reps 3] [--json FILE]

Each number is the median of the repetitions, which take turns, or with --best the best of them.
Needs root and /dev/fuse. With --direct the strided shared file is also written past FUSE, by four
processes: on a network file system that is what a mount replaces.
"""

import argparse
import json
import mmap
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from common import cargo_example

STRIDED_BYTES = 47001


def run(*words, **more):
    return subprocess.run(
        list(map(str, words)),
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        timeout=900,
        **more,
    )


def seconds(work):
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


class Sides:
    def __init__(self, build, example, storage):
        self.plfs, self.work = (
            os.path.join(build, "bin/plfs"),
            tempfile.mkdtemp(prefix="plfs-bench-fuse.", dir=storage),
        )
        self.points = tempfile.mkdtemp(prefix="plfs-bench-fuse-mounts.")
        self.dirs = {}
        for side in ("plfs", "passthrough"):
            for path in (f"{self.work}/{side}", f"{self.points}/{side}"):
                os.mkdir(path)
            self.dirs[side] = f"{self.points}/{side}"
        # Both in this session: the scheduler shares the processors among sessions, and a daemon of
        # its own would wait for others' turns.
        subprocess.Popen(
            [
                self.plfs,
                "mount",
                "--foreground",
                "-o",
                "log=warn",
                self.dirs["plfs"],
                "--backend",
                f"{self.work}/plfs",
            ]
        )
        self.other = subprocess.Popen(
            [example, f"{self.work}/passthrough", self.dirs["passthrough"]]
        )
        for _ in range(100):
            if all(map(os.path.ismount, self.dirs.values())):
                break
            time.sleep(0.05)

        status = json.loads(os.getxattr(self.dirs["plfs"], "user.plfs.mount"))
        self.pids = {"plfs": status["pid"], "passthrough": self.other.pid}

    def cpu_s(self, side):
        """Processor seconds of a side's daemon and of our ended children: say more than the clock
        where others use the machine."""
        tasks = f"/proc/{self.pids[side]}/task"
        daemon_ns = 0
        for task in os.listdir(tasks):
            with open(f"{tasks}/{task}/schedstat") as file:
                daemon_ns += int(file.read().split()[0])
        ours = resource.getrusage(resource.RUSAGE_CHILDREN)
        return daemon_ns / 1e9, ours.ru_utime + ours.ru_stime

    def end(self):
        subprocess.run([self.plfs, "umount", self.dirs["plfs"]], timeout=120)
        subprocess.run(["umount", self.dirs["passthrough"]], timeout=60)
        self.other.wait(30)
        shutil.rmtree(self.work, ignore_errors=True)
        shutil.rmtree(self.points, ignore_errors=True)


def drop_caches():
    with open("/proc/sys/vm/drop_caches", "w") as file:
        file.write("2")


def aligned(size):
    """Memory at a page: a request holds 256 pages, so a block of 1 MiB that begins inside one would
    be two requests."""
    memory = mmap.mmap(-1, size)
    memory.write(os.urandom(size))
    return memory


def write_sequential(path, mib, data, block=1 << 20):
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    for _ in range((mib << 20) // block):
        assert os.write(fd, data) == block
    os.close(fd)


def read_sequential(path, buffer):
    fd, total = os.open(path, os.O_RDONLY), 0
    while n := os.readv(fd, [buffer]):
        total += n
    os.close(fd)
    return total


def write_strided(path, mib, ranks=4):
    pieces = (mib << 20) // STRIDED_BYTES // ranks
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644))
    children = []
    for rank in range(ranks):
        pid = os.fork()
        if pid == 0:
            data = bytes([rank]) * STRIDED_BYTES
            fd = os.open(path, os.O_WRONLY)
            for i in range(pieces):
                os.pwrite(fd, data, (i * ranks + rank) * STRIDED_BYTES)
            os.fsync(fd)
            os._exit(0)
        children.append(pid)
    assert all(os.waitpid(pid, 0)[1] == 0 for pid in children)


def measure(args, sides):
    found, block = {}, aligned(1 << 20)

    def note(what, side, work, per=None):
        """Seconds of `work`, or `per` divided by them; and the processor seconds of the daemon, and
        of it and the programs together."""
        before = sides.cpu_s(side) if side in sides.pids else ()
        spent = seconds(work)
        add(what, side, per / spent if per else spent)
        if before:
            daemon, ours = (after - then for after, then in zip(sides.cpu_s(side), before))
            add(what.rsplit(",", 1)[0] + ", daemon's CPU s", side, daemon)
            if ours:
                add(what.rsplit(",", 1)[0] + ", all CPU s", side, daemon + ours)

    def add(what, side, value):
        found.setdefault(what, {}).setdefault(side, []).append(value)
        print(f"{what:36} {side:12} {value:10.4f}", file=sys.stderr, flush=True)

    def touch():
        """Memory that a virtual machine has not used lately costs who gets it first a fault in the
        host: each side gets what was just freed."""
        write_sequential(f"{sides.work}/touch", args.mib, block)
        os.unlink(f"{sides.work}/touch")

    many = (("empty", b""), ("of 1 KiB", bytes(1024)))
    for side, where in sides.dirs.items():
        for kind, data in many:
            os.mkdir(f"{where}/{kind}")
            for i in range(args.files):
                fd = os.open(f"{where}/{kind}/{i:06}", os.O_WRONLY | os.O_CREAT, 0o644)
                if data:
                    os.write(fd, data)
                os.close(fd)
    time.sleep(2)
    for rep in range(args.reps):
        # Who comes first pays for what the machine did before.
        turns = list(sides.dirs.items())[:: -1 if rep % 2 else 1]
        for side, where in turns:
            path = f"{where}/sequential"
            if os.path.exists(path):
                os.unlink(path)
            touch()
            note(
                "write 1 MiB, MiB/s",
                side,
                lambda: write_sequential(path, args.mib, block),
                args.mib,
            )
        for side, where in turns:
            path = f"{where}/sequential"
            drop_caches()
            # The kernel's cache of the mount alone: the backend's stays for both.
            fd = os.open(path, os.O_RDONLY)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)
            note("read 1 MiB, MiB/s", side, lambda: read_sequential(path, block), args.mib)
            note("read again, MiB/s", side, lambda: read_sequential(path, block), args.mib)
        for side, where in turns:
            path = f"{where}/strided"
            touch()
            note("strided N-1 write, MiB/s", side, lambda: write_strided(path, args.mib), args.mib)
            os.unlink(path)
        if args.direct:
            path = f"{sides.work}/strided"
            note(
                "strided N-1 write, MiB/s",
                "direct",
                lambda: write_strided(path, args.mib),
                args.mib,
            )
            os.unlink(path)
        for words in (["find"], ["ls", "-l"]):
            for kind, _ in many:
                for side, where in turns:
                    # Names and attributes are forgotten, the backend's as well.
                    time.sleep(1.2)
                    drop_caches()
                    note(
                        f"{' '.join(words)}, {kind}, cold, s",
                        side,
                        lambda: run(*words, f"{where}/{kind}"),
                    )
                    time.sleep(1.2)
                    note(
                        f"{' '.join(words)}, {kind}, warm, s",
                        side,
                        lambda: run(*words, f"{where}/{kind}"),
                    )
    # A stat that loaded the index would cost what the index is large: many records that do not
    # fold.
    path = f"{sides.dirs['plfs']}/records"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    for i in range(20_000):
        os.pwrite(fd, b"x", (i * 7919 * 13) % (1 << 30))
    os.close(fd)
    time.sleep(1.2)
    note("stat, many records, s", "plfs", lambda: os.stat(path))
    time.sleep(1.2)
    note("stat, no records, s", "plfs", lambda: os.stat(f"{sides.dirs['plfs']}/empty/000000"))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--example", help="the passthrough program; built with cargo if not given")
    parser.add_argument("--storage", default="/dev/shm")
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--reps", type=int, default=3)
    parser.add_argument(
        "--best",
        action="store_true",
        help="print the best of the repetitions instead: for machines that others use, too",
    )
    parser.add_argument("--direct", action="store_true", help="the strided file also past FUSE")
    parser.add_argument("--json")
    args = parser.parse_args()
    sides = Sides(
        os.path.abspath(args.build),
        args.example or cargo_example("plfs-fuse", "passthrough"),
        args.storage,
    )
    try:
        found = measure(args, sides)
    finally:
        sides.end()
    best = {
        what: {side: (max if "MiB/s" in what else min)(values) for side, values in by.items()}
        for what, by in found.items()
    }
    medians = {
        what: {side: statistics.median(values) for side, values in by.items()}
        for what, by in found.items()
    }
    for what, by in (best if args.best else medians).items():
        if "passthrough" in by:
            ratio = by["plfs"] / by["passthrough"] if by["passthrough"] else float("nan")
            print(
                f"{what:36} plfs {by['plfs']:10.3f}  passthrough {by['passthrough']:10.3f}  ratio {ratio:6.2f}"
                + (f"  direct {by['direct']:10.3f}" if "direct" in by else "")
            )
        else:
            print(f"{what:36} plfs {by['plfs']:10.6f}")
    if args.json:
        with open(args.json, "w") as file:
            json.dump(
                {
                    "storage": args.storage,
                    "mib": args.mib,
                    "files": args.files,
                    "reps": args.reps,
                    "medians": medians,
                    "runs": found,
                },
                file,
                indent=1,
            )


main()
