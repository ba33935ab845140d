#!/usr/bin/env python3
"""Arrays of a PnetCDF program in one file, and cut into one for each storage target.

    netcdf.py [--targets 8] [--rate 40] [--ranks 8] [--mib 192] [--reps 3] [--dir DIR]
              [--build BUILD] [--cases alike,half,tenth] [--shape coll_perf|flash] [--out JSON]
    netcdf.py --ceph DIR [--shape flash] [--mib 60] ...

The targets are those of targets.py, each with a limit of its bandwidth: it needs root. alike: all
have --rate MiB/s; half, tenth: two of eight have that part of it. What is compared: one file on one
target that is not slow; one file striped over all targets (RAID 0 of btrfs, if mkfs.btrfs is
there), as a parallel file system has it; partitioned on all targets, and on those that the library
chooses, which knows nothing before it looks. Writing ends with a sync; before reading the page
cache forgets the files. The exchange is that of the rank that waits least for others
(PLFS_NC_TIMES).

--ceph: DIR has mnt0, mnt1 and so on, each a client of one CephFS, for which rank i uses number i
mod them. One file by PnetCDF alone, where ROMIO takes one aggregator, as it sees one host, and with
one for each client, as it takes on hosts of their own; the same through the MPI-IO door of PLFS;
and partitioned, a file for each client. A read that fails or finds other bytes is counted, and not
in the medians: ceph-fuse may show a client old pages of a file that another one writes.

PnetCDF is the system's, so the MPI is Open MPI, with ROMIO, as for tests/netcdf.
"""

import argparse, glob, os, re, shutil, subprocess, sys, tempfile
from common import build_c, machine, median, plfs_run, run, table, TOP, write_json
from targets import Targets

SLOW = {"alike": 1, "half": 2, "tenth": 10}
TIMES = re.compile(r"(\d+) partitions.*exchange ([0-9.]+) to")


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--targets", type=int, default=8)
    p.add_argument("--rate", type=float, default=40)
    p.add_argument("--ranks", type=int, default=8)
    p.add_argument("--mib", type=float)
    p.add_argument("--reps", type=int, default=3)
    p.add_argument("--dir", default="/tmp")
    p.add_argument("--build", default=os.path.join(TOP, "build"))
    p.add_argument("--cases", default="alike,half,tenth")
    p.add_argument("--shape", choices=["coll_perf", "flash"])
    p.add_argument("--ceph")
    p.add_argument("--out")
    a = p.parse_args()
    a.build = os.path.abspath(a.build)
    a.shape = a.shape or ("flash" if a.ceph else "coll_perf")
    a.mib = a.mib or (60 if a.ceph else 192)
    program = build_c("bench/netcdf.c", a.build, "mpicc.openmpi", ["-lpnetcdf"])
    load = os.getloadavg()[0]
    results = on_ceph(a, program) if a.ceph else on_targets(a, program)
    about = {**machine(a.ceph + "/mnt0" if a.ceph else a.dir), "load_before": load}
    print(
        f"{a.shape}, {a.ranks} ranks, {about['cpus']} processors, load {load:.1f} before,"
        f" {about['commit']}; medians of {a.reps}"
    )
    rows = []
    for case, doors in results.items():
        rates = {
            (door, way): median([one["mib"] / one["seconds"] for one in runs[way]])
            for door, runs in doors.items()
            for way in ("write", "read")
        }
        first = next(iter(doors))
        for door, runs in doors.items():
            row = [case, door, max(one["parts"] for one in runs["write"]) or ""]
            for way in ("write", "read"):
                row += [f"{median([one['seconds'] for one in runs[way]]):.2f}"]
                row += [f"{rates[door, way]:.0f}", f"{rates[door, way] / rates[first, way]:.2f}"]
                shares = [one["exchange_s"] / one["seconds"] for one in runs[way] if one["parts"]]
                row += [f"{median(shares) * 100:.1f} %" if shares else ""]
            rows.append(row)
    head = ["case", "", "files"]
    for way in ("write", "read"):
        head += [f"{way} s", "MiB/s", "ratio", "exchange"]
    print(table(head, rows))
    if a.out:
        write_json(a.out, {"machine": about, "options": vars(a), "results": results})


def once(a, program, way, before, hints, dirs, memory=None):
    """One run, with what the library says of its times."""
    env = {
        **os.environ,
        "OMPI_MCA_io": "^ompio",
        "OMPI_MCA_mpi_yield_when_idle": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PLFS_NC_TIMES": "1",
        "PNETCDF_HINTS": hints,
    }
    if memory:
        env["PLFS_SHARED_MEMORY"] = memory
    words = [
        "mpiexec.openmpi",
        "-n",
        str(a.ranks),
        program,
        a.shape,
        way,
        "--mib",
        str(a.mib),
        "x.nc",
    ]
    done = subprocess.run([*before, *words, *dirs], env=env, capture_output=True, text=True)
    if done.returncode and a.ceph:
        return None
    if done.returncode:
        sys.exit(f"failed: {done.stdout}{done.stderr[-4000:]}")
    seconds, size = (float(x) for x in re.findall(r": ([0-9.]+)", done.stdout))
    told = TIMES.search(done.stderr)
    return {
        "seconds": seconds,
        "mib": size,
        "parts": int(told[1]) if told else 0,
        "exchange_s": float(told[2]) if told else 0,
    }


def forget(paths):
    """The page cache has them no more."""
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def files_below(dirs):
    return [path for d in dirs for path in glob.glob(os.path.join(d, "x.nc*"))]


def on_targets(a, program):
    if os.geteuid() != 0:
        sys.exit("it needs root")
    results = {case: {} for case in a.cases.split(",")}
    run_plfs = [os.path.join(a.build, "bin", "plfs"), "run", "--"]
    with tempfile.TemporaryDirectory(prefix="plfs-netcdf.", dir=a.dir) as base:
        targets = Targets(base, a.targets, 1024)
        dirs = targets.dirs
        on = "nc_partitioning_enabled=true"
        os.environ["PLFS_NC_PARTITION_DIRS"] = ":".join(dirs)
        doors = {
            "one file, one target": (dirs[-1:], [], ""),
            "partitioned on all": (dirs[-1:], run_plfs, f"{on};nc_num_partitions={len(dirs)}"),
            "partitioned on chosen": (dirs[-1:], run_plfs, on),
        }
        try:
            turn(a, program, targets, dirs, doors, results)
            if shutil.which("mkfs.btrfs"):
                for d in dirs:
                    run(["umount", d])
                run(["mkfs.btrfs", "-q", "-f", "-d", "raid0", "-m", "raid1", *targets.loops])
                devices = ",".join(f"device={loop}" for loop in targets.loops)
                run(["mount", "-t", "btrfs", "-o", devices, targets.loops[0], dirs[0]])
                targets.dirs = dirs[:1]
                doors = {"one file, striped over all": (dirs[:1], [], "")}
                turn(a, program, targets, dirs[:1], doors, results)
        finally:
            targets.end()
    return results


def turn(a, program, targets, all_dirs, doors, results):
    for case, found in results.items():
        slow = max(1, a.targets // 4) if SLOW[case] > 1 else 0
        for i in range(a.targets):
            targets.limit(i, a.rate / SLOW[case] if i < slow else a.rate)
        for rep in range(a.reps):
            for door, (dirs, before, hints) in doors.items():
                runs = found.setdefault(door, {"write": [], "read": []})
                with tempfile.TemporaryDirectory(prefix="plfs-netcdf.", dir="/dev/shm") as memory:
                    for way in ("write", "read"):
                        runs[way].append(once(a, program, way, before, hints, dirs, memory))
                        forget(files_below(all_dirs))
                for path in files_below(all_dirs):
                    os.remove(path)
                print(rep, case, door, runs["write"][-1], runs["read"][-1], file=sys.stderr)


def on_ceph(a, program):
    mounts = sorted(glob.glob(os.path.join(os.path.abspath(a.ceph), "mnt[0-9]*")))
    if not mounts:
        sys.exit("no mnt0 and so on there")
    name = f"plfs-netcdf.{os.getpid()}"
    dirs = {of: [os.path.join(m, name, of) for m in mounts] for of in ("plain", "plfs", "parts")}
    plfs = os.path.join(a.build, "bin", "plfs")
    hints = f"nc_partitioning_enabled=true;nc_num_partitions={len(mounts)}"
    all_write = f"cb_config_list=*:{len(mounts)};cb_nodes={len(mounts)}"
    doors = {
        "one file, PnetCDF": ("plain", [], ""),
        "the same, an aggregator each": ("plain", [], all_write),
        "one file, PLFS by MPI-IO": ("plfs", plfs_run(a.build, dirs["plfs"]), ""),
        "partitioned": ("parts", [plfs, "run", "--"], hints),
    }
    found = {door: {"write": [], "read": []} for door in doors}
    try:
        for each in dirs.values():
            os.makedirs(each[0])
        for rep in range(a.reps):
            for door, (of, before, hints) in doors.items():
                for way in ("write", "read"):
                    one = once(a, program, way, before, hints, dirs[of])
                    if one:
                        found[door][way].append(one)
                    else:
                        print(f"FAILED: {door}, {way}")
                        break
                for path in files_below(dirs[of][:1]):
                    if of == "plfs":
                        run([plfs, "rm", path])
                    else:
                        os.remove(path)
                print(rep, door, *(found[door][way][-1:] for way in found[door]), file=sys.stderr)
    finally:
        shutil.rmtree(os.path.join(mounts[0], name), ignore_errors=True)
    return {"ceph": found}


if __name__ == "__main__":
    main()
