#!/usr/bin/env python3
"""N-1 and N-N writing and reading, direct and through PLFS, on the same storage in one run.

    run.py --storage tmpfs|ext4|ceph [--dir DIR] [--build BUILD] [--out JSON]
           [--transfer 47001,4096,1024] [--ranks 8] [--reps 3] [--settle S] [--size MIB]
           [--direct-n1-size MIB] [--variants n1-direct,nn-direct,n1-plfs]

The variants alternate within each repetition, in turn from the first and from the last, so a slow
minute of the machine hits all of them; the first repetition warms up and does not count; the table
holds medians, of rates. A file of another size is fair where only N-1 direct is slow (ceph).
--storage ceph wants --dir with mnt0, mnt1, …: clients of one file system, each a node; rank i works
in mnt(i mod M), and reads go through another client than the one that wrote, 3 seconds later: until
then the OSDs go on with what they were given, the more the faster it was written. Every byte is
checked after each timed read. Files are removed.
"""

import argparse, contextlib, glob, os, signal, subprocess, sys, tempfile, time
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

VARIANTS = {
    "n1-direct": ("strided", False),
    "nn-direct": ("nn", False),
    "n1-plfs": ("strided", True),
    "n1seg-direct": ("segmented", False),
    "n1seg-plfs": ("segmented", True),
    "nn-plfs": ("nn", True),
    "n1-mount": ("strided", "mount"),
}

# MiB a rank by transfer size: a few seconds a variant on two cores, far above what caches of
# programs hold.
SIZES = {
    "tmpfs": {47001: 64, 4096: 32, 1024: 16},
    "ext4": {47001: 64, 4096: 32, 1024: 16},
    "ceph": {47001: 64, 4096: 16, 1024: 16},
}
# N-1 direct on CephFS moves 2 MiB/s (1,024 B) to 39 MiB/s (47,001 B) with 8 ranks.
SLOW = {"ceph": {47001: 16, 4096: 4, 1024: 0.5}}


def nearest(sizes, transfer):
    return sizes[min(sizes, key=lambda t: abs(t - transfer))]


@contextlib.contextmanager
def storage(a):
    """One fresh directory per client and door: direct, preload, mount; removed at the end, whatever
    happens. n1-mount has `plfs mount` over each client's."""
    if a.storage == "ceph":
        mounts = sorted(glob.glob(os.path.join(a.dir or "", "mnt[0-9]*")))
        if not mounts:
            sys.exit("run.py: --storage ceph wants --dir DIR with DIR/mnt0, DIR/mnt1, …")
    else:
        mounts = [a.dir or ("/dev/shm" if a.storage == "tmpfs" else tempfile.gettempdir())]
    mounts = [os.path.abspath(m) for m in mounts]
    name = f"plfs-bench.{os.getpid()}"
    doors = {
        door: [os.path.join(m, name, of) for m in mounts]
        for door, of in ((False, "direct"), (True, "plfs"), ("mount", "mount"))
    }
    points, plfs = [], os.path.join(a.build, "bin", "plfs")
    try:
        for door in doors.values():
            os.makedirs(door[0], exist_ok=True)
            for d in door:
                for _ in range(50):  # another client may see a new directory a moment later
                    if os.path.isdir(d):
                        break
                    time.sleep(0.1)
        if "n1-mount" in a.variants:
            backends = doors["backends"] = doors["mount"]
            doors["mount"] = [tempfile.mkdtemp(prefix="plfs-bench-mount.") for _ in backends]
            for point, backend in zip(doors["mount"], backends):
                run([plfs, "mount", point, "--backend", backend])
                points.append(point)
        yield doors
    finally:
        for point in points:
            subprocess.run([plfs, "umount", point])
            os.rmdir(point)
        remove_tree(os.path.join(mounts[0], name))


def n1_command(a, n1, variant, transfer, doors):
    pattern, plfs = VARIANTS[variant]
    mib = a.size or nearest(SIZES[a.storage], transfer)
    if variant == "n1-direct":
        mib = a.direct_n1_size or a.size or nearest(SLOW.get(a.storage, SIZES[a.storage]), transfer)
    command = [
        n1,
        "--pattern",
        pattern,
        "--ranks",
        str(a.ranks),
        "--transfer",
        str(transfer),
        "--bytes",
        str(int(mib * MIB)),
        "--name",
        "n1.out",
    ]
    command += ["--settle", str(a.settle)]
    command += ["--fsync"] if a.fsync else []
    command += ["--no-verify"] if a.no_verify else []
    return (plfs_run(a.build, doors[True]) if plfs is True else []) + command + doors[plfs]


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--storage", choices=SIZES, default="tmpfs")
    p.add_argument(
        "--dir",
        help="directory on that storage (tmpfs: /dev/shm; ext4: the temporary directory; ceph: the one with mnt0…)",
    )
    p.add_argument(
        "--build",
        default=os.path.join(TOP, "build"),
        help="where bin/plfs is; C programs are built below it",
    )
    p.add_argument("--out", help="raw JSON of all repetitions")
    p.add_argument("--transfer", default="47001,4096,1024")
    p.add_argument("--ranks", type=int, default=8)
    p.add_argument("--reps", type=int, default=3)
    p.add_argument("--size", type=float, help="MiB a rank, all variants")
    p.add_argument("--direct-n1-size", type=float, help="MiB a rank for n1-direct alone")
    p.add_argument(
        "--fsync",
        action=argparse.BooleanOptionalAction,
        help="fsync before close (default: on ceph only)",
    )
    p.add_argument(
        "--settle",
        type=int,
        help="seconds between writing and reading (default: 3 on ceph, else 0)",
    )
    p.add_argument(
        "--variants", default="n1-direct,nn-direct,n1-plfs", help=f"some of {','.join(VARIANTS)}"
    )
    p.add_argument("--no-verify", action="store_true")
    a = p.parse_args()
    a.build = os.path.abspath(a.build)
    a.fsync = a.storage == "ceph" if a.fsync is None else a.fsync
    a.settle = (3 if a.storage == "ceph" else 0) if a.settle is None else a.settle
    variants, transfers = a.variants.split(","), [int(t) for t in a.transfer.split(",")]
    if set(variants) - set(VARIANTS):
        p.error(f"unknown variant in {a.variants}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the files are removed
    n1, raw = build_c("bench/n1.c", a.build, flags=["-pthread"]), []
    with storage(a) as doors:
        about = {
            "machine": machine(doors[False][0]),
            "storage": a.storage,
            "clients": len(doors[False]),
            "fsync": a.fsync,
            "settle_s": a.settle,
            "ranks": a.ranks,
        }
        for transfer in transfers:
            for rep in range(a.reps + 1):
                for variant in variants[:: -1 if rep % 2 else 1]:
                    os.sync()
                    row = run_json(n1_command(a, n1, variant, transfer, doors))
                    raw.append({"variant": variant, "rep": rep, "warm_up": rep == 0, **row})
                    print(
                        f"{transfer:>7} B  {'warm-up' if rep == 0 else f'{rep}/{a.reps}':>7}  {variant:12} "
                        f"write {rate(row['write_mib_s'])} read {rate(row['read_mib_s'])} MiB/s",
                        file=sys.stderr,
                    )
    rows = []
    medians = {}
    for transfer in transfers:
        for side in ("write", "read"):
            m = {
                v: median(
                    [
                        r[f"{side}_mib_s"]
                        for r in raw
                        if (r["variant"], r["transfer"]) == (v, transfer) and not r["warm_up"]
                    ]
                )
                for v in variants
            }
            medians[f"{transfer} {side}"] = m
            ours = next((v for v in ("n1-plfs", "n1-mount") if v in m), None)
            ratio = lambda over: f"{m[ours] / m[over]:.2f}" if ours and over in m else "-"
            rows.append(
                [
                    f"{transfer} B {side}",
                    *(rate(m[v]) for v in variants),
                    ratio("nn-direct"),
                    ratio("n1-direct"),
                ]
            )
    print(
        f"{a.storage} ({', '.join(about['machine']['file_system'])}), {a.ranks} ranks, {about['clients']} clients, "
        f"{about['machine']['cpus']} processors, {about['machine']['commit']}; MiB/s, medians of {a.reps}"
    )
    print(table(["transfer", *variants, "PLFS:N-N", "PLFS:N-1"], rows))
    if a.out:
        write_json(a.out, {**about, "medians": medians, "runs": raw})


if __name__ == "__main__":
    main()
