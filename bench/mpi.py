#!/usr/bin/env python3
"""N-1 and N-N through MPI-IO, direct and through PLFS, on the same storage in one run.

    mpi.py --storage tmpfs|ext4|ceph [--dir DIR] [--build BUILD] [--out JSON]
           [--ranks 8] [--pieces 700] [--transfer 47001] [--reps 3]
           [--variants ...] [--opens] [--writers N] [--overhead]

Variants: nn-direct, a file a rank on MPI_COMM_SELF; n1-at, n1-at_all and n1-view, the MPI's own
independent and collective writes of one file (at_all and view with collective buffering); plfs-at,
plfs-at_all and plfs-view, the same program under plfs run. They alternate within each repetition;
the first one warms up. N-1 direct moves a twentieth of the pieces on CephFS.
--opens measures instead what opening and closing costs on 1, 2, 4, 8 and 16 ranks: a container that
8 ranks made with 10,000 writes each, against a plain file of the same size. A turn is the time that
passes, by the ranks that take turns on a processor.
With strace it also counts PLFS's calls on the storage for an open and close and another with a
read: rank 0's, and the most of another.
An MPI whose waiting ranks spin until their time slice ends (Debian's MPICH) measures the scheduler,
where ranks are more than processors: --mpicc mpicc.openmpi --mpiexec mpiexec.openmpi is told to
yield.
--writers N measures what --ranks ranks (4, say) need to open a container that N writers left who
were all nodes of their own: N log sets of 64 pieces, and no flat index; with the index loaded by
all ranks together and by each alone, and by how much a rank grows.
--overhead measures single calls of one rank on tmpfs: direct on a file and on /dev/null, through
PLFS, and through the door alone with the null store (mpi_null.c) below it. They alternate; ratios
are medians of the ratios within each repetition.
"""

import argparse, os, shutil, sys, tempfile
from common import (
    build_c,
    cargo_example,
    machine,
    median,
    plfs_run,
    rate,
    run,
    run_json,
    table,
    TOP,
    write_json,
)
from run import storage

VARIANTS = {
    "nn-direct": (False, ["--nn"]),
    "n1-at": (False, []),
    "n1-at_all": (False, ["--access", "at_all"]),
    "n1-view": (False, ["--access", "view"]),
    "plfs-at": (True, []),
    "plfs-at_all": (True, ["--access", "at_all"]),
    "plfs-view": (True, ["--access", "view"]),
}
# ROMIO decides by itself whether a collective call exchanges data first; here it always does.
COLLECTIVE = ["--hints", "romio_cb_write=enable,romio_cb_read=enable"]
# Ranks that wait spin otherwise, and steal the processors from the servers. The rest lets Open MPI
# run more ranks than processors, and as root.
ENV = {
    **os.environ,
    "MPIR_CVAR_POLLS_BEFORE_YIELD": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}


def mpi(a, program, plfs, dirs, ranks, *flags):
    return run_json(
        [
            *(plfs_run(a.build, dirs) if plfs else []),
            a.mpiexec,
            "-n",
            str(ranks),
            program,
            *flags,
            *dirs,
        ],
        env=ENV,
    )


def clear(dirs):
    for name in os.listdir(dirs[0]):
        if name.startswith("mpi.out"):
            os.unlink(os.path.join(dirs[0], name))


def measure(a, program, doors, variants):
    raw = []
    for rep in range(a.reps + 1):
        for variant in variants:
            plfs, flags = VARIANTS[variant]
            pieces = (
                max(10, a.pieces // 20)
                if a.storage == "ceph" and variant.startswith("n1-")
                else a.pieces
            )
            hints = COLLECTIVE if variant in ("n1-at_all", "n1-view") else []
            row = mpi(
                a,
                program,
                plfs,
                doors[plfs],
                a.ranks,
                "--transfer",
                str(a.transfer),
                "--pieces",
                str(pieces),
                *flags,
                *hints,
                *(["--sync"] if a.sync else []),
            )
            if plfs:
                run(
                    [
                        os.path.join(a.build, "bin", "plfs"),
                        "rm",
                        os.path.join(doors[1][0], "mpi.out"),
                    ]
                )
            else:
                clear(doors[0])
            raw.append({"variant": variant, "rep": rep, "warm_up": rep == 0, **row})
            print(
                f"{'warm-up' if rep == 0 else f'{rep}/{a.reps}':>7}  {variant:12} write {rate(row['write_mib_s'])} read {rate(row['read_mib_s'])} MiB/s "
                f"open {row['write_open_us']:,.0f} close {row['write_close_us']:,.0f} us",
                file=sys.stderr,
            )
    m = {
        v: {
            k: median([r[k] for r in raw if r["variant"] == v and not r["warm_up"]])
            for k in ("write_mib_s", "read_mib_s", "write_open_us", "write_close_us")
        }
        for v in variants
    }
    base = m.get("nn-direct", {})
    ratio = lambda v, k: f"{m[v][k] / base[k]:.2f}" if base else "-"
    print(
        table(
            ["variant", "write MiB/s", "read MiB/s", "write:N-N", "read:N-N"],
            [
                [
                    v,
                    rate(m[v]["write_mib_s"]),
                    rate(m[v]["read_mib_s"]),
                    ratio(v, "write_mib_s"),
                    ratio(v, "read_mib_s"),
                ]
                for v in variants
            ],
        )
    )
    return m, raw


def calls(a, program, dirs, ranks, *flags):
    """Calls of PLFS on the storage that an open and close and another with a read cost: rank 0's,
    who prints, and the most that another rank makes."""

    def of_each(times, scratch):
        mpiexec = [
            a.mpiexec,
            "-n",
            str(ranks),
            "strace",
            "-ff",
            "--seccomp-bpf",
            "-y",
            "-qq",
            "-e",
            "trace=%file,%desc",
            "-o",
            os.path.join(scratch, "t"),
        ]
        run(
            [
                *plfs_run(a.build, dirs),
                *mpiexec,
                program,
                *flags,
                "--opens",
                str(times),
                "--only",
                "read",
                *dirs,
            ],
            env=ENV,
        )
        counts = []
        for name in os.listdir(scratch):
            with open(os.path.join(scratch, name), errors="replace") as f:
                lines = f.read().split("\n")
            if any("execve(" in line for line in lines[:1]):
                ours = [
                    line
                    for line in lines
                    if any(d in line for d in dirs) and not line.startswith(("execve(", "fcntl("))
                ]
                counts.append((not any("write(1<" in line for line in lines), len(ours)))
            os.unlink(os.path.join(scratch, name))
        return sorted(counts)

    with tempfile.TemporaryDirectory() as scratch:
        few, many = of_each(2, scratch), of_each(12, scratch)
    each = [(m[1] - f[1]) / 10 for f, m in zip(few, many)]
    return {"rank_0": each[0], "another": max(each[1:], default=0)}


def opens(a, program, doors):
    shape = ["--transfer", "470", "--pieces", "10000"]
    for plfs in (False, True):
        mpi(
            a,
            program,
            plfs,
            doors[plfs],
            8,
            *shape,
            "--only",
            "write",
            *(["--access", "view"] if not plfs else []),
        )
    rows, raw, processors = [], [], len(os.sched_getaffinity(0))
    for ranks in (1, 2, 4, 8, 16):
        r = {}
        for door, plfs in (("direct", False), ("plfs", True)):
            r[door] = mpi(
                a,
                program,
                plfs,
                doors[plfs],
                ranks,
                *shape,
                "--only",
                "read",
                "--opens",
                str(a.open_reps),
            )
            r[door]["turn_us"] = r[door]["open_close_us"] / max(1, ranks / processors)
        r["plfs"]["calls"] = (
            calls(a, program, doors[True], ranks, *shape) if shutil.which("strace") else {}
        )
        raw.append({"ranks": ranks, **r})
        rows.append(
            [
                str(ranks),
                *(
                    f"{r[d][k]:,.0f}"
                    for k in ("open_close_us", "open_read_close_us", "turn_us")
                    for d in r
                ),
                *(
                    f"{r['plfs'][k] / r['direct'][k]:.2f}"
                    for k in ("open_close_us", "open_read_close_us")
                ),
                " / ".join(f"{n:.1f}" for n in r["plfs"]["calls"].values()),
            ]
        )
    print(
        table(
            [
                "ranks",
                "open+close us direct",
                "PLFS",
                "with a read direct",
                "PLFS",
                "turn direct",
                "PLFS",
                "ratio",
                "ratio with a read",
                "calls",
            ],
            rows,
        )
    )
    return {}, raw


def writers(a, program, doors):
    rows, raw, name = [], [], os.path.join(doors[True][0], "mpi.out")
    transfer, pieces = 470, 64
    run(
        [
            cargo_example("plfs-testkit", "many_writers"),
            name,
            str(a.writers),
            str(pieces),
            str(transfer),
        ]
    )
    for together in ("enable", "disable"):
        r = mpi(
            a,
            program,
            True,
            doors[True],
            a.ranks,
            "--transfer",
            str(transfer),
            "--pieces",
            str(pieces),
            "--only",
            "read",
            "--opens",
            str(a.open_reps),
            "--hints",
            f"plfs_parallel_index_read={together}",
        )
        raw.append({"writers": a.writers, "parallel_index_read": together, **r})
        rows.append(
            [
                together,
                *(f"{r[k] / 1e6:.3f}" for k in ("open_close_us", "open_read_close_us")),
                f"{r['grown_kib'] / 1024:.1f}",
            ]
        )
    run([os.path.join(a.build, "bin", "plfs"), "rm", name])
    print(table(["loaded together", "open+close s", "with a read s", "MiB a rank grew"], rows))
    return {}, raw


def overhead(a, doors):
    program, null = (
        build_c("bench/mpi_calls.c", a.build, a.mpicc),
        os.path.join(a.build, "bench", "null"),
    )
    os.makedirs(null, exist_ok=True)
    run(
        [
            "cc",
            "-O2",
            "-shared",
            "-fPIC",
            f"-I{TOP}/crates/plfs-capi/include",
            "-Wl,-soname,libplfs.so.0",
            "-o",
            f"{null}/libplfs.so.0",
            os.path.join(TOP, "bench/mpi_null.c"),
        ]
    )
    plain, ours = (os.path.join(doors[plfs][0], "calls") for plfs in (False, True))
    door_alone = ["env", f"LD_LIBRARY_PATH={null}", f"LD_PRELOAD={a.build}/lib/plfs/libplfs_mpi.so"]
    variants = {
        "direct": ([], plain),
        "direct on /dev/null": ([], "/dev/null"),
        "PLFS": (plfs_run(a.build, doors[True]), ours),
        "null store": (door_alone, ours),
    }
    raw = []
    for rep in range(a.reps + 1):
        rows = {
            v: run_json([*prefix, a.mpiexec, "-n", "1", program, path], env=ENV)
            for v, (prefix, path) in variants.items()
        }
        run([os.path.join(a.build, "bin", "plfs"), "rm", ours])
        os.unlink(plain)
        raw.append({"rep": rep, "warm_up": rep == 0, **rows})
    counted = [r for r in raw if not r["warm_up"]]
    m = {v: {k: median([r[v][k] for r in counted]) for k in counted[0][v]} for v in variants}
    m["null store - direct on /dev/null"] = {
        k: median([r["null store"][k] - r["direct on /dev/null"][k] for r in counted])
        for k in m["direct"]
    }
    m["PLFS : direct"] = {
        k: median([r["PLFS"][k] / r["direct"][k] for r in counted]) for k in m["direct"]
    }
    print(
        table(
            ["ns a call", *m],
            [
                [k[:-3], *(f"{m[v][k]:,.2f}" if ":" in v else f"{m[v][k]:,.0f}" for v in m)]
                for k in m["direct"]
            ],
        )
    )
    return m, raw


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--storage", choices=("tmpfs", "ext4", "ceph"), default="tmpfs")
    p.add_argument(
        "--dir",
        help="directory on that storage (tmpfs: /dev/shm; ext4: the temporary directory; ceph: the one with mnt0…)",
    )
    p.add_argument("--build", default=os.path.join(TOP, "build"))
    p.add_argument("--mpicc", default="mpicc.mpich")
    p.add_argument("--mpiexec", default="mpiexec.mpich")
    p.add_argument("--out", help="raw JSON of all repetitions")
    p.add_argument("--ranks", type=int, default=8)
    p.add_argument("--transfer", type=int, default=47001)
    p.add_argument("--pieces", type=int, default=700)
    p.add_argument("--reps", type=int, default=3)
    p.add_argument(
        "--sync",
        action=argparse.BooleanOptionalAction,
        help="MPI_File_sync before close (default: on ceph only)",
    )
    p.add_argument("--variants", default=",".join(VARIANTS))
    p.add_argument("--opens", action="store_true")
    p.add_argument("--open-reps", type=int, default=10)
    p.add_argument("--writers", type=int)
    p.add_argument("--overhead", action="store_true")
    a = p.parse_args()
    a.build = os.path.abspath(a.build)
    a.sync = a.storage == "ceph" if a.sync is None else a.sync
    a.ranks = 1 if a.overhead else a.ranks
    variants = a.variants.split(",")
    if set(variants) - set(VARIANTS):
        p.error(f"unknown variant in {a.variants}")
    program = build_c("bench/mpi_n1.c", a.build, a.mpicc)
    with storage(a) as doors:
        about = {
            "machine": machine(doors[0][0]),
            "storage": a.storage,
            "clients": len(doors[0]),
            "sync": a.sync,
            "ranks": a.ranks,
            "transfer": a.transfer,
        }
        print(
            f"{a.storage} ({', '.join(about['machine']['file_system'])}), {a.ranks} ranks, {about['clients']} clients, {about['machine']['cpus']} processors, "
            f"{about['machine']['commit']}; medians of {a.open_reps if a.opens or a.writers else a.reps}"
        )
        if a.overhead:
            medians, raw = overhead(a, doors)
        elif a.writers:
            medians, raw = writers(a, program, doors)
        else:
            medians, raw = (
                opens(a, program, doors) if a.opens else measure(a, program, doors, variants)
            )
    if a.out:
        write_json(a.out, {**about, "medians": medians, "runs": raw})


if __name__ == "__main__":
    main()
