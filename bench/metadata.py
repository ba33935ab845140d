#!/usr/bin/env python3
"""What a small file costs, direct and through PLFS, on the same storage in one run.

    metadata.py --storage tmpfs|ext4|ceph [--dir DIR] [--build BUILD] [--out JSON]
                [--files 2000] [--bytes 1024] [--reps 5] [--fsync]
                [--small | --flat [--door run|mount]]

One process creates, writes and closes files, opens, reads and closes each, stats each, and removes
each. Direct and PLFS alternate, in turn from the first and from the last; the first repetition
warms up. The table holds medians of microseconds a file, and of the
ratios direct : PLFS within a repetition: 1 is as fast as direct. --dir as run.py has it; of several
clients it uses the first.

--small: eight processes and one shared directory, direct and through PLFS, where it is of the
workload small (`plfs layout`), under `plfs run` or in a mount: they create, write and close --files
in all; then each stats and reads what another one wrote, through another client where there are
several; `ls -l`; `rm -r`. Times are of the slowest process, and as a user sees them, with the start
of the programs.

--flat: the same of a directory of the workload flat, whose names are spread over four backends:
directories beside each other, which on ceph are pinned to the metadata servers 0 to 3 (setfattr
ceph.dir.pin), as far as there are such. Under `plfs run` or in a mount of each client. Several
clients are nodes: each has a mount namespace, where it finds the first one's paths through its own
client."""

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time

from common import build_c, machine, median, plfs_run, run_json, table, TOP, write_json
from run import SIZES, storage

PASSES = ("create", "read", "stat", "unlink")
SMALL = ("create", "read", "ls", "rm")
PROCESSES = 8
BACKENDS = 4


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
    places = doors[door]
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

    return passes_over(a, program, dirs, lambda node, command: [*through[node], *command])


def passes_over(a, program, dirs, on=lambda node, command: command):
    """The passes over one directory, which has a path on each node. `on`: a command there."""
    each = a.files // PROCESSES

    def of_all(passes, behind):
        command = [program, "--files", str(each), "--bytes", str(a.bytes), "--only", passes]
        command += ["--fsync"] if a.fsync else []
        words = []
        for i in range(PROCESSES):
            node, names = i % len(dirs), f"p{(i + behind) % PROCESSES}."
            words.append(on(node, [*command, "--names", names, dirs[node]]))
        return seconds(words)

    took = {"create": of_all("c", 0)}
    if len(dirs) > 1:
        time.sleep(1.1)
    took["read"] = of_all("sr", 1)
    took["ls"] = seconds([on(len(dirs) - 1, ["ls", "-l", dirs[-1]])])
    took["rm"] = seconds([on(0, ["rm", "-r", dirs[0]])])
    return {f"{name}_us": took[name] / (each * PROCESSES) * 1e6 for name in SMALL}


@contextlib.contextmanager
def flat_root(a, doors):
    """Makes a root with backends and shows it on all nodes. Gives the root, its paths there, and
    what a command there is."""
    plfs, root = os.path.join(a.build, "bin", "plfs"), doors[True][0]
    clients = [os.path.dirname(os.path.dirname(of)) for of in doors[True]]
    for i in range(BACKENDS):
        backend = root if i == 0 else f"{root}.{i}"
        os.makedirs(f"{backend}/.plfs", exist_ok=True)
        os.chmod(f"{backend}/.plfs", 0o1777)
        if a.storage == "ceph":
            with contextlib.suppress(OSError):
                os.setxattr(backend, "ceph.dir.pin", str(i).encode())
        if i:
            words = [plfs, "backend", "add", root, backend]
            subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    point, daemons = tempfile.mkdtemp(prefix="plfs-bench-mount."), []
    own = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'
    mount = [plfs, "mount", "--foreground", point, "--backend", root]

    def in_own_space(node, command):
        if node == 0 and a.door == "run":
            return command
        bind = ["sh", "-c", own, "sh", clients[node], clients[0]] if node else []
        return ["unshare", "--mount", "--propagation", "private", *bind, *command]

    def on(node, command):
        if a.door == "run":
            return in_own_space(node, [*plfs_run(a.build, [root]), *command])
        return ["nsenter", "--target", str(daemons[node].pid), "--mount", "--", *command]

    try:
        if a.door == "mount":
            for node in range(len(clients)):
                daemons.append(subprocess.Popen(in_own_space(node, mount)))
                while subprocess.run(on(node, ["mountpoint", "--quiet", point])).returncode:
                    if daemons[node].poll() is not None:
                        sys.exit("the mount did not come up")
                    time.sleep(0.1)
        shown = root if a.door == "run" else point
        yield root, [shown] * len(clients), on
    finally:
        for daemon in daemons:
            daemon.terminate()
            daemon.wait()
        os.rmdir(point)


def flat(a, program, doors, variant, spread, rep):
    """The passes over one directory, in microseconds a file."""
    if variant == "direct":
        os.mkdir(os.path.join(doors[False][0], "flat"))
        dirs = [os.path.join(place, "flat") for place in doors[False]]
        while not all(map(os.path.isdir, dirs)):
            time.sleep(0.1)
        return passes_over(a, program, dirs)
    root, places, on = spread
    # Another one each time: what is known of one that is gone is no matter.
    os.mkdir(f"{root}/flat{rep}")
    layout = [os.path.join(a.build, "bin", "plfs"), "layout", "--workload", "flat"]
    subprocess.run([*layout, f"{root}/flat{rep}"], check=True, stdout=subprocess.DEVNULL)
    time.sleep(1.1)
    return passes_over(a, program, [f"{place}/flat{rep}" for place in places], on)


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
    several = p.add_mutually_exclusive_group()
    several.add_argument(
        "--small", action="store_true", help="one small directory of several processes"
    )
    several.add_argument(
        "--flat", action="store_true", help="one flat directory of several processes"
    )
    p.add_argument("--door", choices=("run", "mount"), default="run", help="of --small and --flat")
    a = p.parse_args()
    a.build = os.path.abspath(a.build)
    a.variants = "n1-mount" if a.small and a.door == "mount" else ""
    program, raw = build_c("bench/metadata.c", a.build), []
    command = [program, "--files", str(a.files), "--bytes", str(a.bytes)]
    command += ["--fsync"] if a.fsync else []
    with contextlib.ExitStack() as stack:
        doors = stack.enter_context(storage(a))
        spread = stack.enter_context(flat_root(a, doors)) if a.flat else None
        for rep in range(a.reps + 1):
            row = {}
            for variant in ("direct", "plfs") if rep % 2 else ("plfs", "direct"):
                if a.small:
                    row[variant] = small(a, program, doors, variant)
                    continue
                if a.flat:
                    row[variant] = flat(a, program, doors, variant, spread, rep)
                    continue
                directory = doors[variant == "plfs"][0]
                through = plfs_run(a.build, [directory]) if variant == "plfs" else []
                row[variant] = run_json([*through, *command, directory])
            raw.append(row)
            print("warm-up" if rep == 0 else f"{rep}/{a.reps}", file=sys.stderr)
        about = {"machine": machine(doors[False][0]), "storage": a.storage, "fsync": a.fsync}
        about |= {"small": a.door, "processes": PROCESSES} if a.small else {}
        if a.flat:
            about |= {"flat": a.door, "processes": PROCESSES, "backends": BACKENDS}
            about |= {"clients": len(doors[False])}
    rows, medians = [], {}
    for name in SMALL if a.small or a.flat else PASSES:
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
