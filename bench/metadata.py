#!/usr/bin/env python3
"""What a small file costs, direct and through PLFS, on the same storage in one run.

    metadata.py --storage tmpfs|ext4|ceph [--dir DIR] [--build BUILD] [--out JSON]
                [--files 2000] [--bytes 1024] [--reps 5] [--fsync] [--small [--door run|mount]]

One process creates, writes and closes files, opens, reads and closes each, stats each, and removes
each. Direct and PLFS alternate, in turn from the first and from the last; the first repetition
warms up. The table holds medians of microseconds a file, and of the
ratios direct : PLFS within a repetition: 1 is as fast as direct. --dir as run.py has it; of several
clients it uses the first.

--small: eight processes and one shared directory, direct and through PLFS, where it is of the
workload small (`plfs layout`), under `plfs run` or in a mount: they create, write and close --files
in all; then each stats and reads what another one wrote, through another client where there are
several; `ls -l`; `rm -r`. Times are of the slowest process, and as a user sees them, with the start
of the programs."""

import argparse
import os
import subprocess
import sys
import time

from common import build_c, machine, median, plfs_run, run_json, table, TOP, write_json
from run import SIZES, storage

PASSES = ("create", "read", "stat", "unlink")
SMALL = ("create", "read", "ls", "rm")
PROCESSES = 8


def seconds(commands):
    """How long these take side by side."""
    start = time.monotonic()
    running = [subprocess.Popen(words, stdout=subprocess.DEVNULL) for words in commands]
    if any([one.wait() for one in running]):
        sys.exit(f"failed: {commands[0]}")
    return time.monotonic() - start


def small(a, program, doors, variant):
    """The passes over one directory, in microseconds a file."""
    door = {"direct": False, "plfs": "mount" if a.door == "mount" else True}[variant]
    places, each = doors[door], a.files // PROCESSES
    through = [plfs_run(a.build, [place]) if door is True else [] for place in places]
    made = os.path.join(places[0], "small")
    if variant == "plfs":
        below = os.path.join(doors["backends" if door == "mount" else door][0], "small")
        os.mkdir(below)
        layout = [os.path.join(a.build, "bin", "plfs"), "layout", "--workload", "small", below]
        subprocess.run(layout, check=True, stdout=subprocess.DEVNULL)
    else:
        os.mkdir(made)
    dirs = [os.path.join(place, "small") for place in places]
    while not all(map(os.path.isdir, dirs)):
        time.sleep(0.1)
    time.sleep(1.1 if variant == "plfs" else 0)

    def of_all(passes, behind):
        command = [program, "--files", str(each), "--bytes", str(a.bytes), "--only", passes]
        command += ["--fsync"] if a.fsync else []
        return seconds(
            [
                [
                    *through[i % len(dirs)],
                    *command,
                    *("--names", f"p{(i + behind) % PROCESSES}.", dirs[i % len(dirs)]),
                ]
                for i in range(PROCESSES)
            ]
        )

    took = {"create": of_all("c", 0)}
    if len(dirs) > 1:
        time.sleep(1.1)
    took["read"] = of_all("sr", 1)
    took["ls"] = seconds([[*through[-1], "ls", "-l", dirs[-1]]])
    took["rm"] = seconds([[*through[0], "rm", "-r", dirs[0]]])
    return {f"{name}_us": took[name] / (each * PROCESSES) * 1e6 for name in SMALL}


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
    p.add_argument("--small", action="store_true", help="one small directory of several processes")
    p.add_argument("--door", choices=("run", "mount"), default="run", help="of --small")
    a = p.parse_args()
    a.build = os.path.abspath(a.build)
    a.variants = "n1-mount" if a.small and a.door == "mount" else ""
    program, raw = build_c("bench/metadata.c", a.build), []
    command = [program, "--files", str(a.files), "--bytes", str(a.bytes)]
    command += ["--fsync"] if a.fsync else []
    with storage(a) as doors:
        for rep in range(a.reps + 1):
            row = {}
            for variant in ("direct", "plfs") if rep % 2 else ("plfs", "direct"):
                if a.small:
                    row[variant] = small(a, program, doors, variant)
                    continue
                directory = doors[variant == "plfs"][0]
                through = plfs_run(a.build, [directory]) if variant == "plfs" else []
                row[variant] = run_json([*through, *command, directory])
            raw.append(row)
            print("warm-up" if rep == 0 else f"{rep}/{a.reps}", file=sys.stderr)
        about = {"machine": machine(doors[False][0]), "storage": a.storage, "fsync": a.fsync}
        about |= {"small": True, "processes": PROCESSES, "door": a.door} if a.small else {}
    rows, medians = [], {}
    for name in SMALL if a.small else PASSES:
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
