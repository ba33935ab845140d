#!/usr/bin/env python3
"""What a small file costs, direct and through PLFS, on the same storage in one run.

    metadata.py --storage tmpfs|ext4|ceph [--dir DIR] [--build BUILD] [--out JSON]
                [--files 2000] [--bytes 1024] [--reps 5] [--fsync]

One process creates, writes and closes files, opens, reads and closes each, stats each, and removes
each. Direct and PLFS alternate, in turn from the first and from the last; the first repetition
warms up. The table holds medians of microseconds a file, and of the
ratios direct : PLFS within a repetition: 1 is as fast as direct. --dir as run.py has it; of several
clients it uses the first."""

import argparse
import os
import sys

from common import build_c, machine, median, plfs_run, run_json, table, TOP, write_json
from run import SIZES, storage

PASSES = ("create", "read", "stat", "unlink")


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--storage", choices=SIZES, default="tmpfs")
    p.add_argument("--dir")
    p.add_argument("--build", default=os.path.join(TOP, "build"))
    p.add_argument("--out")
    p.add_argument("--files", type=int, default=2000)
    p.add_argument("--bytes", type=int, default=1024)
    p.add_argument("--reps", type=int, default=5)
    p.add_argument("--fsync", action="store_true", help="fsync each file before its close")
    a = p.parse_args()
    a.build, a.variants = os.path.abspath(a.build), ""
    program, raw = build_c("bench/metadata.c", a.build), []
    command = [program, "--files", str(a.files), "--bytes", str(a.bytes)]
    command += ["--fsync"] if a.fsync else []
    with storage(a) as doors:
        for rep in range(a.reps + 1):
            row = {}
            for variant in ("direct", "plfs") if rep % 2 else ("plfs", "direct"):
                directory = doors[variant == "plfs"][0]
                through = plfs_run(a.build, [directory]) if variant == "plfs" else []
                row[variant] = run_json([*through, *command, directory])
            raw.append(row)
            print("warm-up" if rep == 0 else f"{rep}/{a.reps}", file=sys.stderr)
        about = {"machine": machine(doors[False][0]), "storage": a.storage, "fsync": a.fsync}
    rows, medians = [], {}
    for name in PASSES:
        times = {v: [row[v][f"{name}_us"] for row in raw[1:]] for v in ("direct", "plfs")}
        ratio = median([d / q for d, q in zip(times["direct"], times["plfs"])])
        for v in times:
            medians.setdefault(v, {})[f"{name}_us"] = median(times[v])
        rows.append([name, *(f"{median(times[v]):.1f}" for v in times), f"{ratio:.2f}"])
    print(
        f"{a.storage} ({', '.join(about['machine']['file_system'])}), files of {a.bytes} bytes, "
        f"{about['machine']['cpus']} processors, {about['machine']['commit']}; medians of {a.reps}"
    )
    print(table(["", "direct us", "PLFS us", "direct : PLFS"], rows))
    if a.out:
        write_json(a.out, {**about, "medians": medians, "runs": raw})


if __name__ == "__main__":
    main()
