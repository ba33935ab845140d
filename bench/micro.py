#!/usr/bin/env python3
"""Single calls, direct and under `plfs run`, alternating: medians and ratios.

    micro.py [--dir /dev/shm] [--build BUILD] [--reps 5] [--calls 20000] [--out JSON]

null_pwrite_1 and other_pwrite_4k are calls on descriptors that are none of PLFS's business: they
show what the preload costs everybody. The others are on a file of the mount; write_64 and read_64
use the position of its descriptor.
"""

import argparse, os, tempfile
from common import build_c, machine, median, plfs_run, run_json, table, TOP, write_json


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--dir", default="/dev/shm")
    p.add_argument("--build", default=os.path.join(TOP, "build"))
    p.add_argument("--reps", type=int, default=5)
    p.add_argument("--calls", type=int, default=20000)
    p.add_argument("--out")
    a = p.parse_args()
    a.build = os.path.abspath(a.build)
    program, runs = build_c("bench/micro.c", a.build), {"direct": [], "plfs": []}
    with tempfile.TemporaryDirectory(prefix="plfs-micro.", dir=a.dir) as base:
        dirs = {d: os.path.join(base, d) for d in ("direct", "plfs", "outside")}
        for d in dirs.values():
            os.mkdir(d)
        for _ in range(a.reps):
            for door in runs:
                prefix = plfs_run(a.build, [dirs["plfs"]]) if door == "plfs" else []
                runs[door].append(
                    run_json([*prefix, program, dirs[door], dirs["outside"], str(a.calls)])
                )
        about = machine(base)
    m = {door: {k: median([r[k] for r in rows]) for k in rows[0]} for door, rows in runs.items()}
    print(
        f"{', '.join(about['file_system'])}, {about['cpus']} processors, {about['commit']}; ns a call, medians of {a.reps}"
    )
    print(
        table(
            ["call", "direct", "PLFS", "PLFS:direct"],
            [
                [k[:-3], f"{d:,.0f}", f"{m['plfs'][k]:,.0f}", f"{m['plfs'][k] / d:.2f}"]
                for k, d in m["direct"].items()
            ],
        )
    )
    if a.out:
        write_json(a.out, {"machine": about, "medians": m, "runs": runs})


if __name__ == "__main__":
    main()
