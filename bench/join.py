#!/usr/bin/env python3
"""What it costs a node to come to a file, and to leave it, beside 10,000 others.

    join.py [--dir /dev/shm] [--build BUILD] [--nodes 10000] [--share 100] [--out JSON]

A process for each node, under `plfs run`, with a directory of shared memory of its own: it opens
the container, writes 1,000 bytes, calls fsync, and stays until the last one has come. Compared are
the first --share of them, but for the one that makes the file, and the last. 10,000 take a minute,
some 5 GB of memory and 10,000 process numbers.
"""

import argparse, os, tempfile
from common import build_c, machine, median, plfs_run, run, run_json, table, TOP, write_json


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--dir", default="/dev/shm")
    p.add_argument("--build", default=os.path.join(TOP, "build"))
    p.add_argument("--nodes", type=int, default=10000)
    p.add_argument("--share", type=int, default=100)
    p.add_argument("--out")
    a = p.parse_args()
    a.build = os.path.abspath(a.build)
    program = build_c("bench/join.c", a.build)
    with (
        tempfile.TemporaryDirectory(prefix="plfs-join.", dir=a.dir) as base,
        tempfile.TemporaryDirectory(prefix="plfs-join-nodes.", dir="/dev/shm") as nodes,
    ):
        door, path = plfs_run(a.build, [base]), os.path.join(base, "f")
        # To processes of one machine with a plain file there is nothing to join.
        os.environ["PLFS_WORKLOAD"] = "shared"
        found = run_json([*door, program, path, nodes, str(a.nodes)])
        size = int(run([*door, "stat", "-c", "%s", path]))
        if size != a.nodes * 1000:
            raise SystemExit(f"the file has {size} bytes")
        about = machine(base)
    rows, medians = [], {}
    for name, ns in (
        ("open, first write, fsync", found["join_ns"]),
        ("close", found["leave_ns"]),
    ):
        first, last = (median(part) / 1e6 for part in (ns[1 : a.share + 1], ns[-a.share - 1 : -1]))
        medians[name] = {"first_ms": first, "last_ms": last}
        rows.append([name, f"{first:.2f}", f"{last:.2f}", f"{last / first:.2f}"])
    print(f"{', '.join(about['file_system'])}, {about['cpus']} processors, {about['commit']}")
    print(f"{a.nodes:,} nodes; ms, medians of {a.share}")
    print(table(["", "first", "last", "last:first"], rows))
    if a.out:
        write_json(a.out, {"machine": about, "nodes": a.nodes, "medians": medians})


if __name__ == "__main__":
    main()
