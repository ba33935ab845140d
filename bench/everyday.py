#!/usr/bin/env python3
"""What everyday work takes in a directory of PLFS, and what it takes without.

    bench/everyday.py [--build BUILD] [--storage DIR] [--reps 3] [--out JSON] [--no-mount]

A clone of this repository, a tar of /usr/include unpacked, a build of 60 C files with make -j2,
find over that tree, and ls -l of 10,000 files. `run` is under `plfs run` against the same directory
without it; `mount` is a mount against the least that a FUSE file system can be
(crates/plfs-fuse/examples/passthrough.rs), which needs root and /dev/fuse. The four take turns; the
first round warms up. The table holds medians of seconds and of the ratios within a round: 1 is
as fast as without PLFS."""

import argparse
import os
import subprocess
import sys
import tempfile
import time

from common import TOP, cargo_example, machine, median, plfs_run, run, table, write_json

C_FILES = 60
LISTED = 10_000
C_SOURCE = """#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int f{i}(int n, char **v) {{ char b[99]; snprintf(b, 99, "%d %s", n, v[0]); return (int)strlen(b); }}
"""
MAKEFILE = """all: program
program: $(patsubst %.c,%.o,$(wildcard *.c))
\tcc -o $@ $^
%.o: %.c
\tcc -O1 -c -o $@ $<
"""


def prepare(scratch):
    """What all variants begin with."""
    run(["tar", "-cf", f"{scratch}/include.tar", "-C", "/usr", "include"])
    run(["git", "clone", "-q", "--bare", TOP, f"{scratch}/repository"])
    os.mkdir(f"{scratch}/sources")
    for i in range(C_FILES):
        with open(f"{scratch}/sources/f{i}.c", "w") as out:
            out.write(C_SOURCE.format(i=i))
    with open(f"{scratch}/sources/main.c", "w") as out:
        out.write("int main(void) { return 0; }\n")
    with open(f"{scratch}/sources/Makefile", "w") as out:
        out.write(MAKEFILE)


def tasks(scratch):
    """Each with the words that do it in the working directory, and words that prepare it."""
    many = f"mkdir many && cd many && seq -f f%05.0f {LISTED} | xargs touch"
    return {
        "git clone": (None, f"git clone -q {scratch}/repository clone"),
        "tar -x": (None, f"tar -xf {scratch}/include.tar"),
        "make": (f"cp -r {scratch}/sources .", "make -s -j2 -C sources"),
        "find": (None, "find . -newer sources/main.c -size +1k > /dev/null"),
        "ls -l": (many, "ls -l many > /dev/null"),
    }


def one_round(scratch, variants):
    """{variant: {task: seconds}}"""
    found = {name: {} for name in variants}
    for task, (before, words) in tasks(scratch).items():
        for name, (wrapper, directory) in variants.items():
            if before:
                run([*wrapper, "sh", "-c", before], cwd=directory)
            start = time.perf_counter()
            run([*wrapper, "sh", "-c", words], cwd=directory)
            found[name][task] = time.perf_counter() - start
    for wrapper, directory in variants.values():
        run([*wrapper, "sh", "-c", "rm -rf ./*"], cwd=directory)
    return found


def mounts(build, backend, scratch):
    """A mount of PLFS and a pass-through, side by side in this session."""
    started, points = [], {}
    example = cargo_example("plfs-fuse", "passthrough")
    for name in ("mount", "passthrough"):
        point = f"{scratch}/{name}"
        os.mkdir(point)
        os.mkdir(f"{backend}/{name}")
        command = [example, f"{backend}/{name}", point]
        if name == "mount":
            command = [f"{build}/bin/plfs", "mount", "--foreground", "-o", "log=warn", point]
            command += ["--backend", f"{backend}/{name}"]
        started.append(subprocess.Popen(command))
        points[name] = ([], point)
        for _ in range(200):
            if os.path.ismount(point):
                break
            time.sleep(0.05)
        else:
            sys.exit(f"{point}: nothing was mounted")
    return started, points


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--build", default=os.path.join(TOP, "build"))
    p.add_argument("--storage", default="/dev/shm", help="a directory on the file system")
    p.add_argument("--reps", type=int, default=3)
    p.add_argument("--out", help="raw JSON of all rounds")
    p.add_argument("--no-mount", action="store_true")
    a = p.parse_args()
    build = os.path.abspath(a.build)
    with (
        tempfile.TemporaryDirectory() as scratch,
        tempfile.TemporaryDirectory(dir=a.storage) as backend,
    ):
        prepare(scratch)
        variants = {}
        for name in ("direct", "run"):
            directory = f"{backend}/{name}"
            os.mkdir(directory)
            variants[name] = (plfs_run(build, [directory]) if name == "run" else [], directory)
        started = []
        try:
            if not a.no_mount:
                started, points = mounts(build, backend, scratch)
                variants.update(points)
            rounds = []
            for i in range(a.reps + 1):
                rounds.append(one_round(scratch, variants))
                print(f"round {i}/{a.reps}", file=sys.stderr)
        finally:
            for name, (_, point) in variants.items():
                if name in ("mount", "passthrough"):
                    subprocess.run(["umount", point])
            for process in started:
                process.wait()
        about = machine(a.storage)
    rows = []
    for task in tasks(""):
        taken = {n: [r[n][task] for r in rounds[1:]] for n in variants}
        row = [task] + [f"{median(taken[n]):.2f}" for n in variants]
        pairs = [("run", "direct")] + ([] if a.no_mount else [("mount", "passthrough")])
        for ours, base in pairs:
            row.append(f"{median([x / y for x, y in zip(taken[ours], taken[base])]):.2f}")
        rows.append(row)
    head = ["seconds", *variants, "run : direct"] + ([] if a.no_mount else ["mount : passthrough"])
    print(
        f"{a.storage} ({', '.join(about['file_system'])}), {about['cpus']} processors, {about['commit']}"
    )
    print(table(head, rows))
    if a.out:
        write_json(a.out, {"machine": about, "rounds": rounds})


if __name__ == "__main__":
    main()
