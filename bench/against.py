#!/usr/bin/env python3
"""Two builds against each other, with a benchmark of this directory: what a change costs.

    against.py OLD NEW [--rounds 5] [--out JSON] -- run.py --storage tmpfs --reps 3 --transfer 47001
    against.py OLD NEW -- mpi.py --storage ceph --dir DIR

Runs the benchmark with --build OLD and --build NEW in turn, so that a slow minute hits both. Each
rate through PLFS is taken by the file a rank (nn-direct) of its own run; the table has the medians
of these ratios, and of new by old within each round. Microseconds and nanoseconds
are taken as they are. Exits with 1 if one is more than --worse (0.05) worse and the rounds agree on
it: three of four do."""

import argparse
import json
import os
import subprocess
import sys
import tempfile

from common import HERE, machine, median, table, write_json


def ratios(medians):
    """{what: (value, whether more is better)} of one run, from what run.py or mpi.py said."""
    found = {}
    for outer, row in medians.items():
        for inner, number in row.items():
            # run.py has "47001 write" of each variant, mpi.py of each variant "write_mib_s".
            variant, metric = (inner, outer) if " " in outer else (outer, inner)
            found[variant, metric] = number
    result = {}
    for (variant, metric), number in found.items():
        if "plfs" in variant or "mount" in variant:
            is_rate = not metric.endswith(("_us", "_ns"))
            base = found.get(("nn-direct", metric), 1) if is_rate else 1
            result[f"{variant} {metric}"] = (number / base, is_rate)
    return result


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("old", help="build directory, with bin/plfs")
    p.add_argument("new")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--worse", type=float, default=0.05)
    p.add_argument("--out", help="raw JSON of all rounds")
    p.add_argument("benchmark", help="run.py or mpi.py, and its options behind --")
    p.add_argument("options", nargs=argparse.REMAINDER)
    a = p.parse_args()
    rounds = []
    with tempfile.TemporaryDirectory() as scratch:
        out = os.path.join(scratch, "out.json")
        for i in range(a.rounds):
            row = {}
            for which in ("old", "new") if i % 2 == 0 else ("new", "old"):
                command = [sys.executable, os.path.join(HERE, a.benchmark), *a.options]
                command += ["--build", os.path.abspath(getattr(a, which)), "--out", out]
                done = subprocess.run(command, capture_output=True, text=True)
                if done.returncode:
                    sys.exit(f"{which}, round {i + 1}: {done.stdout[-2000:]}{done.stderr[-4000:]}")
                with open(out) as f:
                    row[which] = ratios(json.load(f)["medians"])
            rounds.append(row)
            print(f"round {i + 1}/{a.rounds}", file=sys.stderr)
    rows, is_worse = [], False
    for what, (_, is_rate) in rounds[0]["old"].items():
        side = {which: [row[which][what][0] for row in rounds] for which in ("old", "new")}
        quotients = [new / old for old, new in zip(side["old"], side["new"])]
        limit = 1 - a.worse if is_rate else 1 + a.worse
        bad = [q < limit if is_rate else q > limit for q in quotients]
        middle = median(quotients)
        agreed = (middle < limit if is_rate else middle > limit) and sum(bad) >= 0.75 * len(bad)
        is_worse |= agreed
        cells = [f"{median(side[which]):.3g}" for which in ("old", "new")]
        span = f"{min(quotients):.2f} to {max(quotients):.2f}"
        rows.append([what, *cells, f"{middle:.2f}", span, "worse" if agreed else ""])
    print(f"{a.benchmark} {' '.join(a.options)}; {a.rounds} rounds, {machine()['commit']}")
    print(table(["", "old", "new", "new : old", "", ""], rows))
    if a.out:
        write_json(a.out, {"machine": machine(), "options": a.options, "rounds": rounds})
    return int(is_worse)


if __name__ == "__main__":
    sys.exit(main())
