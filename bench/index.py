#!/usr/bin/env python3
"""What an index costs: merging, size, opening, lookups, memory, against a map and a sorted array of
all pieces.

    index.py [--small] [--dir DIR] [--cases strided,many,…] [--reps 5] [--seconds 2]
             [--racing SEED] [--scale 0.1] [--limit 900] [--memory 12] [--no-baselines]
             [--out JSON] [--program FILE]

The test kit makes the index logs as the writers of each case leave them
(crates/plfs-testkit/src/index_cases.rs), without data.
Then, each in a process of its own: the merge (what `plfs flatten` does); the opening of the flat
index, up to the first answer; lookups of one byte at random offsets on one core; the memory of that
reader, above that of a reader of an empty file. Lookups are counted for each second of the
processor, because others may use it, too; other times are shown both ways, and what counts is the
clock on the wall. The targets are of the full sizes; --small and --scale show none of size or time.
The baselines hold at most 20 M pieces, the first in time. A step that takes longer than --limit
seconds or more than --memory GiB is given up, and said so.
"""

import argparse, json, os, resource, signal, subprocess, sys, tempfile
from common import cargo_example, machine, median, MIB, remove_tree, table, write_json

# Pieces of a baseline: 20 M are 1 GB as records of 48 bytes, and some 1.5 GB in a map.
BASELINE_MAX = 20_000_000
KIB = 1024

# Name: what it is, the case at full size (fields that --scale shrinks are in braces), the small
# one, ranks a node, targets.
# flat_x is a limit in bytes for each record of the logs, or each surviving extent.
CASES = {
    "strided": (
        "strided, 65,536 writers x 1,000 x 47,001 B",
        "strided:65536:{1000}:47001",
        "strided:1024:100:47001",
        64,
        {"flat_bytes": 64 * KIB, "open_ms": 10, "lookups_cpu_s": 10e6, "reader_mib": 8},
    ),
    "many": (
        "strided, 1,048,576 writers x 100",
        "strided:1048576:{100}:47001",
        "strided:8192:20:47001",
        64,
        {"flat_bytes": 1024 * KIB, "open_ms": 50, "lookups_cpu_s": 10e6},
    ),
    "block3d": (
        "3-D blocks, 4,096 writers, 512^3 doubles",
        "block3d:16:512:8",
        "block3d:8:128:8",
        64,
        {"flat_bytes": 256 * KIB, "open_ms": 20, "lookups_cpu_s": 5e6},
    ),
    "block3d-large": (
        "3-D blocks, 4,096 writers, 4,096^3 doubles",
        "block3d:16:4096:8",
        "block3d:4:256:8",
        64,
        {"flat_bytes": 256 * KIB, "open_ms": 20, "lookups_cpu_s": 5e6},
    ),
    # One rank a node: 1,024 index logs. Neighbours in a row become one record, so that logs have
    # some 3/4 as many records as writes.
    "irregular": (
        "irregular, 1,024 logs",
        "irregular:{20000000}:1024",
        "irregular:200000:64",
        1,
        {"flat_bytes_record": 4, "open_ms": 100, "lookups_cpu_s": 1e6},
    ),
    "irregular-merge": (
        "irregular, 1,024 logs, 20 M records in them",
        "irregular:{27000000}:1024",
        "irregular:270000:64",
        1,
        {"merge_s": 10, "peak_mib": 1024},
    ),
    "irregular-nodes": (
        "irregular, 16 logs of 64 writers",
        "irregular:{20000000}:1024",
        "irregular:200000:64",
        64,
        {"flat_bytes_record": 4, "open_ms": 100, "lookups_cpu_s": 1e6},
    ),
    "overwrites": (
        "random overwrites, 1 GiB, 8 writers",
        "overwrites:{5000000}:1073741824:8",
        "overwrites:50000:16777216:8",
        64,
        {"flat_bytes_extent": 10, "open_ms": 200, "lookups_cpu_s": 1e6},
    ),
}
MERGE_ONLY = {"irregular-merge"}
NO_BASELINE = {"irregular-merge", "irregular-nodes", "block3d-large"}
# Measure: name for people, larger is better.
MEASURES = {
    "flat_bytes": ("flat index, bytes", False),
    "flat_bytes_record": ("flat bytes a record", False),
    "flat_bytes_extent": ("flat bytes an extent", False),
    "open_ms": ("open, ms", False),
    "lookups_cpu_s": ("lookups/s", True),
    "reader_mib": ("reader, MiB more", False),
    "merge_s": ("merge, s", False),
    "peak_mib": ("merge, peak MiB", False),
}


def scaled(spec, scale):
    """The case with the numbers in braces multiplied."""
    head, *rest = spec.split("{")
    return head + "".join(
        str(max(1, int(int(number) * scale))) + tail
        for number, tail in (part.split("}") for part in rest)
    )


class Bench:
    def __init__(self, a, base):
        self.a, self.base, self.steps = a, base, []

    def step(self, *args):
        """The JSON of one command; an empty dict, with a note, if it fails or takes too much."""
        limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (int(self.a.memory * 2**30),) * 2)
        try:
            done = subprocess.run(
                [self.a.program, *map(str, args)],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                timeout=self.a.limit,
                preexec_fn=limit,
            )
        except subprocess.TimeoutExpired:
            return self.gave_up(args, f"took more than {self.a.limit:g} s")
        if done.returncode:
            said = done.stderr.strip().splitlines() or [""]
            return self.gave_up(args, f"failed ({done.returncode}): {said[-1]}")
        return json.loads(done.stdout) if done.stdout.strip() else {}

    def gave_up(self, args, why):
        print(f"  {args[0]}: {why}", file=sys.stderr)
        self.steps.append(f"{args[0]} {why}")
        return {}

    def read(self, path):
        """Medians over fresh processes."""
        runs = [self.step("read", path, self.a.seconds) for _ in range(self.a.reps)]
        return {k: median([r[k] for r in runs]) for k in runs[0]} if all(runs) else {}

    def case(self, name):
        what, full, small, ranks, targets = CASES[name]
        is_full = not self.a.small and self.a.scale == 1
        spec = small if self.a.small else scaled(full, self.a.scale)
        self.steps = []
        print(f"{name}: {spec}, {ranks} ranks a node", file=sys.stderr)
        directory = os.path.join(self.base, name)
        os.mkdir(directory)
        path = os.path.join(directory, "file")
        row = {
            "case": name,
            "what": what if is_full else spec,
            "spec": spec,
            "ranks_per_node": ranks,
        }
        row |= self.step(
            "make", path, spec, ranks, *([self.a.racing] if self.a.racing is not None else [])
        )
        row |= self.step("merge", path)
        if "flat_bytes" in row:
            row["flat_bytes_record"] = row["flat_bytes"] / max(1, row["writes"])
            if name not in MERGE_ONLY:
                row |= self.read(path)
                if name == "overwrites":
                    row |= self.step("extents", path)
            if "rss_mib" in row:
                row["reader_mib"] = row["rss_mib"] - self.empty["rss_mib"]
                row["reader_anon_mib"] = row["anon_mib"] - self.empty["anon_mib"]
            if row.get("extents"):
                row["flat_bytes_extent"] = row["flat_bytes"] / row["extents"]
        remove_tree(directory)
        row["gave_up"] = self.steps
        row["targets"] = targets if is_full else {}
        row["pass"] = {
            k: row.get(k) is not None and (row[k] >= v if MEASURES[k][1] else row[k] <= v)
            for k, v in row["targets"].items()
        }
        if not self.a.no_baselines and name not in NO_BASELINE:
            row["baselines"] = {
                kind: self.step(kind, spec, BASELINE_MAX, self.a.seconds)
                for kind in ("btree", "vec")
            }
        return row

    def measure_empty(self):
        path = os.path.join(self.base, "empty")
        self.step("empty", path)
        self.empty = self.read(path)
        if not self.empty:
            sys.exit("index.py: an empty file cannot be read")


def show(rows, reps):
    n = lambda row, key, form: format(row[key], form) if row.get(key) is not None else "-"
    each = lambda row: n(
        row, "flat_bytes_extent" if row.get("flat_bytes_extent") else "flat_bytes_record", ".2f"
    )
    print(
        table(
            [
                "case",
                "writes",
                "in logs",
                "log bytes",
                "merge s",
                "cpu s",
                "peak MiB",
                "flat bytes",
                "B/record*",
                "open ms",
                "cpu ms",
                "lookups/s",
                "reader +MiB",
                "anon +MiB",
            ],
            [
                [
                    r["what"],
                    n(r, "writes", ","),
                    n(r, "records", ","),
                    n(r, "log_bytes", ","),
                    n(r, "merge_s", ".2f"),
                    n(r, "merge_cpu_s", ".2f"),
                    n(r, "peak_mib", ",.0f"),
                    n(r, "flat_bytes", ","),
                    each(r),
                    n(r, "open_ms", ".2f"),
                    n(r, "open_cpu_ms", ".2f"),
                    n(r, "lookups_cpu_s", ",.0f"),
                    n(r, "reader_mib", ",.1f"),
                    n(r, "reader_anon_mib", ",.1f"),
                ]
                for r in rows
            ],
        )
    )
    survive = ", ".join(f"{r['extents']:,}" for r in rows if r.get("extents"))
    print(
        "* bytes of the flat index for each record that the programs wrote (some of them fold as they are written: see in logs)"
        + (f"; of overwrites, for each of the {survive} extents that survive" if survive else "")
        + f". open, lookups, reader: medians of {reps} processes; lookups for each second of the processor."
    )
    baselines = [(r, kind, b) for r in rows for kind, b in r.get("baselines", {}).items() if b]
    if baselines:
        print(
            "\nAll pieces in memory (at most 20 M, the first in time): a BTreeMap of extents, a sorted Vec of 48-byte records\n"
        )
        print(
            table(
                ["case", "pieces", "extents", "build s", "cpu s", "lookups/s", "MiB", "B/piece"],
                [
                    [
                        f"{r['what']}, {kind}",
                        n(b, "pieces", ","),
                        n(b, "extents", ","),
                        n(b, "build_s", ".2f"),
                        n(b, "build_cpu_s", ".2f"),
                        n(b, "lookups_cpu_s", ",.0f"),
                        n(b, "rss_mib", ",.0f"),
                        f"{b['rss_mib'] * MIB / max(1, b['pieces']):.1f}",
                    ]
                    for r, kind, b in baselines
                ],
            )
        )
    judged = [(r, k, v) for r in rows for k, v in r["targets"].items()]
    if judged:
        print("\nTargets\n")
        print(
            table(
                ["case", "measure", "here", "target", ""],
                [
                    [
                        r["what"],
                        MEASURES[k][0],
                        n(r, k, ",.2f" if (r.get(k) or 0) < 1000 else ",.0f"),
                        f"{'>=' if MEASURES[k][1] else '<='} {v:,.0f}",
                        "pass" if r["pass"][k] else "FAIL",
                    ]
                    for r, k, v in judged
                ],
            )
        )
        print(f"{sum(r['pass'][k] for r, k, _ in judged)} of {len(judged)} targets met")
    for r in rows:
        for step in r["gave_up"]:
            print(f"{r['what']}: {step}")


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--small", action="store_true", help="all cases in a size that takes seconds")
    p.add_argument("--scale", type=float, default=1, help="a part of the full size: fewer pieces")
    p.add_argument("--cases", default=",".join(CASES), help="some of %(default)s")
    p.add_argument(
        "--dir",
        help="where the logs are made, in a directory of its own that is removed (default: /dev/shm if there is one)",
    )
    p.add_argument("--reps", type=int, default=5)
    p.add_argument("--seconds", type=int, default=2, help="time for the lookups of a process")
    p.add_argument(
        "--racing",
        type=int,
        metavar="SEED",
        help="the ranks of a node write their pieces in an order of chance",
    )
    p.add_argument("--limit", type=float, default=900, help="seconds a step may take")
    p.add_argument(
        "--memory", type=float, default=12, help="GiB of address space that a step may have"
    )
    p.add_argument("--no-baselines", action="store_true")
    p.add_argument("--program", help="index_bench (default: built with cargo)")
    p.add_argument("--out", help="raw JSON")
    a = p.parse_args()
    names = a.cases.split(",")
    if set(names) - set(CASES):
        p.error(f"unknown case in {a.cases}; there are {','.join(CASES)}")
    a.program = os.path.abspath(a.program or cargo_example("plfs-testkit", "index_bench"))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the files are removed
    base = tempfile.mkdtemp(
        prefix="plfs-index.",
        dir=os.path.abspath(
            a.dir or ("/dev/shm" if os.path.isdir("/dev/shm") else tempfile.gettempdir())
        ),
    )
    try:
        about, bench, rows = machine(base), Bench(a, base), []
        bench.measure_empty()
        for name in names:
            rows.append(bench.case(name))
    finally:
        remove_tree(base)
    print(
        f"{', '.join(about['file_system'])}, {about['cpus']} processors, {about['commit']}; an empty file's reader has {bench.empty['rss_mib']:.1f} MiB and opens in "
        f"{bench.empty['open_ms']:.2f} ms\n"
    )
    show(rows, a.reps)
    if a.out:
        write_json(
            a.out,
            {
                "machine": about,
                "small": a.small,
                "scale": a.scale,
                "racing": a.racing,
                "empty": bench.empty,
                "rows": rows,
            },
        )


if __name__ == "__main__":
    main()
