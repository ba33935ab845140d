#!/usr/bin/env python3
"""A shared file on storage targets of known, unequal speed: what of it is achieved.

    targets.py [--targets 8] [--rate 40] [--ranks 8] [--mib 48] [--size-mib 1024] [--reps 3]
               [--dir DIR] [--build BUILD[,BUILD...]] [--cases alike,slow,slows,stalls] [--out JSON]
               [--cold] [--deadline S] [--probe SIZE[,SIZE...]] [--expect]

Makes the targets itself: loop-mounted ext4 file systems with a limit of their bandwidth each (blkio
of cgroup v1), so it needs root. The limits hold for what is written back as well. Each rank writes
--mib MiB of one file in pieces of 47,001 bytes, fsync and close included, through PLFS with the
targets as backends; each case beside a file a rank, spread over the targets by hand (N-N).

alike: all targets have --rate MiB/s. slow: two of eight have a tenth of it. slows: one falls to a
tenth when a third of the time is over. The oracle knows the rates, and uses them all from the first
to the last byte.

stalls: the last target takes nothing any more when a third of the time is over, and the deadline
after which an append is given up is --deadline. Without fsync, which says then that the target was
given up; and without N-N, which would wait for ever. Once the ranks have ended, or after a minute,
the target takes bytes again, so that all of them can be read and compared.

--cold: each run has shared memory of its own, so that nobody knows anything of the targets.
--probe: also with a probe of SIZE bytes for each target before the ranks begin (`plfs probe`), in
memory of their own as well; its time counts as part of the run, and is shown.
--expect: also with the file's bytes in PLFS_EXPECTED_BYTES, in memory of its own: who makes it
probes with a hundredth of them, in the time of the run.
"""

import argparse, os, shutil, subprocess, sys, tempfile, threading
from common import build_c, machine, median, plfs_run, run, run_json, table, TOP, write_json

# One byte a second.
NOTHING = 1 / 1048576
# A target that stalls takes bytes again after so many seconds.
STALLS_S = 60
BLKIO = "/sys/fs/cgroup/blkio/blkio.throttle.%s_bps_device"


class Targets:
    """Loop-mounted file systems below a directory."""

    def __init__(self, base, count, mib):
        self.dirs, self.loops = [], []
        for i in range(count):
            image, at = os.path.join(base, f"image{i}"), os.path.join(base, f"t{i}")
            os.mkdir(at)
            run(["truncate", "-s", f"{mib}M", image])
            run(["mkfs.ext4", "-q", "-E", "lazy_itable_init=0", image])
            loop = run(["losetup", "-f", "--show", "--direct-io=on", image]).strip()
            self.loops.append(loop)
            run(["mount", loop, at])
            self.dirs.append(at)

    def limit(self, i, mib_s):
        """MiB/s for reads and writes, each; 0: none."""
        with open(f"/sys/block/{os.path.basename(self.loops[i])}/dev") as f:
            number = f.read().strip()
        for kind in ("read", "write"):
            # What is read of a target that stalls is of no interest here.
            rate = 0 if kind == "read" and mib_s == NOTHING else mib_s
            with open(BLKIO % kind, "w") as f:
                f.write(f"{number} {round(rate * 1048576)}\n")

    def end(self):
        for i, loop in enumerate(self.loops):
            # They outlive the device otherwise.
            self.limit(i, 0)
            if i < len(self.dirs):
                subprocess.run(["umount", self.dirs[i]], check=False)
            subprocess.run(["losetup", "-d", loop], check=False)


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--targets", type=int, default=8)
    p.add_argument("--rate", type=float, default=40)
    p.add_argument("--ranks", type=int, default=8)
    p.add_argument("--mib", type=int, default=48)
    p.add_argument("--size-mib", type=int, default=1024)
    p.add_argument("--reps", type=int, default=3)
    p.add_argument("--dir", default="/tmp")
    p.add_argument("--build", default=os.path.join(TOP, "build"))
    p.add_argument("--cases", default="alike,slow,slows")
    p.add_argument("--deadline", type=int, default=2)
    p.add_argument("--cold", action="store_true")
    p.add_argument("--probe", default="")
    p.add_argument("--expect", action="store_true")
    p.add_argument("--out")
    a = p.parse_args()
    a.probe = [size for size in a.probe.split(",") if size]
    if os.geteuid() != 0 or not os.path.exists(BLKIO % "write"):
        sys.exit("it needs root, and blkio of cgroup v1")
    builds = [os.path.abspath(b) for b in a.build.split(",")]
    n1 = build_c("bench/n1.c", builds[0])
    pieces = max(1, a.mib * 1048576 // 47001)
    total_mib = pieces * a.ranks * 47001 / 1048576
    rows, results = [], {}
    with tempfile.TemporaryDirectory(prefix="plfs-targets.", dir=a.dir) as base:
        targets = Targets(base, a.targets, a.size_mib)
        try:
            for case in a.cases.split(","):
                rates = [a.rate] * a.targets
                after = list(rates)
                if case == "slow":
                    rates[: max(1, a.targets // 4)] = [a.rate / 10] * max(1, a.targets // 4)
                    after = list(rates)
                if case == "slows":
                    after[0] = a.rate / 10
                if case == "stalls":
                    after[-1] = NOTHING
                # Of all that is written in the time: where the rates change, from then on.
                turn = total_mib / sum(rates) / 3
                oracle = min(
                    total_mib / sum(rates) if case not in ("slows", "stalls") else float("inf"),
                    turn + (total_mib - turn * sum(rates)) / sum(after),
                )
                doors = [*(["N-N by hand"] if case != "stalls" else []), *builds]
                doors += [f"{build} probe {size}" for build in builds for size in a.probe]
                doors += [f"{build} expecting" for build in builds if a.expect]
                seconds = {door: [] for door in doors}
                probes = {door: [] for door in doors}
                for _ in range(a.reps):
                    for door in doors:
                        for i, rate in enumerate(rates):
                            targets.limit(i, rate)
                        took, probe = once(a, n1, targets, door, pieces, turn, rates, after)
                        seconds[door].append(took + probe)
                        probes[door].append(probe)
                for door in doors:
                    s, probe = median(seconds[door]), median(probes[door])
                    rows.append(
                        [
                            case,
                            door,
                            f"{s:.2f}",
                            f"{probe:.3f}" if probe else "",
                            f"{total_mib / s:.0f}",
                            f"{oracle / s:.2f}",
                        ]
                    )
                results[case] = {"oracle_s": oracle, "seconds": seconds, "probe_s": probes}
        finally:
            targets.end()
        about = machine(base)
    print(
        f"{a.targets} targets of {a.rate:g} MiB/s, {a.ranks} ranks, {total_mib:.0f} MiB, {about['cpus']} processors, {about['commit']}; medians of {a.reps}"
    )
    print(table(["case", "door", "seconds", "of that probe", "MiB/s", "oracle : it"], rows))
    if a.out:
        write_json(a.out, {"machine": about, "options": vars(a), "results": results})


def once(a, n1, targets, door, pieces, turn, rates, after):
    """Seconds of one write, and of the probe before it."""
    # What the run before removed is still on its way to targets that are limited.
    os.sync()
    door, _, size = door.partition(" probe ")
    probe, env = 0, dict(os.environ, PLFS_WORKLOAD="shared")
    memory, expects = None, door.endswith(" expecting")
    if expects:
        door = door.removesuffix(" expecting")
        env["PLFS_EXPECTED_BYTES"] = str(pieces * a.ranks * 47001)
    if a.cold or size or expects:
        memory = tempfile.mkdtemp(prefix="plfs-targets.", dir="/dev/shm")
        env["PLFS_SHARED_MEMORY"] = memory
    stalls = NOTHING in after
    words = ["--ranks", str(a.ranks), "--bytes", str(pieces * 47001)]
    if stalls:
        env["PLFS_DEADLINE_S"] = str(a.deadline)
    else:
        words += ["--fsync"]
    write = ["--only", "write"]
    if door == "N-N by hand":
        command = [n1, "--pattern", "nn", *words, *write, *targets.dirs]
    else:
        # The root is a backend, too.
        root = os.path.join(targets.dirs[0], "root")
        os.makedirs(root, exist_ok=True)
        backends = [word for d in targets.dirs[1:] for word in ("--backend", d)]
        at = plfs_run(door, [root])
        start = [*at[:-1], *backends, "--", n1, "--pattern", "strided", *words]
        command = [*start, *write, root]
        if size:
            # What it writes to is in the table of backends, once somebody has written.
            plfs = os.path.join(door, "bin", "plfs")
            run([*at[:-1], *backends, "--", "sh", "-c", f"echo > {root}/first"], env=env)
            run([plfs, "rm", os.path.join(root, "first")], env=env)
            probe = run_json([plfs, "probe", "--json", "--size", size, root], env=env)["seconds"]
    timer = None
    if rates != after:

        def change():
            for i, rate in enumerate(after):
                targets.limit(i, rate)

        timer = threading.Timer(turn, change)
        timer.start()
    if stalls:
        # A process ends when its threads have, and one waits for the target.
        again = threading.Timer(turn + STALLS_S, targets.limit, [len(after) - 1, rates[-1]])
        again.start()
    result = run_json(command, env=env)
    if timer:
        timer.cancel()
    if stalls:
        if result["write_s"] > turn + STALLS_S:
            sys.exit("the ranks waited for the target")
        again.join()
        read = run_json([*start, "--only", "read", root], env=env)
        if not read["verified"]:
            sys.exit("not all bytes were compared")
    if door == "N-N by hand":
        for i in range(a.ranks):
            os.remove(os.path.join(targets.dirs[i % len(targets.dirs)], f"n1.out.{i}"))
    elif not stalls:
        # Else who has read it has removed it.
        run(
            [
                os.path.join(door, "bin", "plfs"),
                "rm",
                os.path.join(targets.dirs[0], "root", "n1.out"),
            ]
        )
    if memory:
        shutil.rmtree(memory)
    return result["write_s"], probe


if __name__ == "__main__":
    main()
