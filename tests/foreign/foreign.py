"""Runs the test-suites of others in a plain directory and through PLFS, and compares.

A unit is one program of a suite. It runs in an empty directory of its own, once for each door, with
TMPDIR there. What it says (its exit status, or the outcome of each of its checks) has to be the
same through each door as in a plain directory. What differs is a line of the file `differences`,
with the reason; a line there that nothing needs any more is an error, too.
"""

import argparse
import collections
import concurrent.futures
import ctypes
import fnmatch
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

import suites

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))
import turns

HERE = pathlib.Path(__file__).parent
DOORS = {"shared": "run", "auto": "run", "mount": "mount"}


class Doors:
    """Where the directories of each door are, and how a program is started there."""

    def __init__(self, plfs, work, names):
        self.plfs, self.work, self.mounted = plfs, work, "mount" in names
        for name in ["plain", *names]:
            (work / name).mkdir()
        if self.mounted:
            (work / "backend").mkdir()
            subprocess.run(
                [plfs, "mount", work / "mount", "--backend", work / "backend"], check=True
            )

    def close(self):
        if self.mounted:
            subprocess.run([self.plfs, "umount", self.work / "mount"], check=False)

    def run(self, door, unit, number):
        root = self.work / door / str(number)
        shutil.rmtree(root, ignore_errors=True)
        here, report = root / "d", self.work / f"report.{door}.{number}"
        root.mkdir()
        prefix, env = [], dict(os.environ, **unit.env)
        if DOORS.get(door) == "run":
            prefix, env["PLFS_WORKLOAD"] = [self.plfs, "run", "--mount", root, "--"], door
        # Made through the door, so that what a suite brings along is in PLFS as well.
        subprocess.run([*prefix, "mkdir", here], check=True, env=env)
        if unit.tree:
            subprocess.run([*prefix, "cp", "-r", f"{unit.tree}/.", here], check=True, env=env)
        env.update(TMPDIR=str(here), FOREIGN_HERE=str(here), FOREIGN_REPORT=str(report))
        report.unlink(missing_ok=True)
        with tempfile.TemporaryFile() as output:
            child = subprocess.Popen(
                [*prefix, *unit.argv],
                cwd=here / unit.cwd,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                status = child.wait(timeout=unit.seconds)
            except subprocess.TimeoutExpired:
                status = "timeout"
            child.kill()
            child.wait()
            end_all(f"FOREIGN_REPORT={report}".encode())
            output.seek(0)
            text = output.read().decode(errors="replace").replace(str(root), "ROOT")
        shutil.rmtree(root, ignore_errors=True)
        outcomes = {"": str(status)}
        if unit.parse:
            outcomes |= unit.parse(text, report)
        return outcomes, text


def adopt_orphans():
    """Processes whose parents have ended become this one's children (PR_SET_CHILD_SUBREAPER)."""
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)


def end_all(mark):
    """Ends what a unit left running: children of this process with this in their environment."""
    ended = True
    while ended:
        ended = False
        for path in pathlib.Path("/proc/self/task").glob("*/children"):
            for pid in map(int, path.read_text().split()):
                try:
                    if mark in pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                        os.kill(pid, signal.SIGKILL)
                        os.waitpid(pid, 0)
                        ended = True
                except OSError:
                    pass


def differing(plain, other):
    return {k for k in plain.keys() | other.keys() if plain.get(k) != other.get(k)}


class Known:
    """The lines of `differences`: SUITE UNIT CHECK DOOR, then the reason; names may be patterns."""

    def __init__(self):
        self.lines = []
        for line in (HERE / "differences").read_text().splitlines():
            if line and not line.startswith("#"):
                *names, reason = line.split(None, 4)
                self.lines.append((names, reason))
        self.used = [0] * len(self.lines)

    def covers(self, *names):
        found = False
        for i, (patterns, _) in enumerate(self.lines):
            if all(fnmatch.fnmatchcase(n, p) for n, p in zip(names, patterns, strict=True)):
                self.used[i] += 1
                found = True
        return found


def run_suite(suite, units, doors, args, known):
    """Prints what became of the suite's units, and gives its differences that have no reason."""
    counts, new, unsteady = collections.defaultdict(collections.Counter), [], []
    names = [door for door in suite.doors if door in args.doors]

    def work(pair):
        number, unit = pair
        plain, text = doors.run("plain", unit, f"{suite.name}.{number}")
        others = {door: doors.run(door, unit, f"{suite.name}.{number}") for door in names}
        return unit, plain, text, others

    pool = concurrent.futures.ThreadPoolExecutor(args.jobs)
    try:
        results = list(pool.map(work, enumerate(units)))
    finally:
        pool.shutdown(cancel_futures=True)
    for number, (unit, plain, text, others) in enumerate(results):
        fine = {k for k, v in plain.items() if unit.passed(k, v)}
        counts["plain"].update(passed=len(fine), other=len(plain) - len(fine))
        if not fine and args.verbose:
            print(f"    {unit.name}: {plain['']} in a plain directory: {text[-200:]!r}")
        for door, (outcomes, said) in others.items():
            differ = differing(plain, outcomes)
            # Programs that wait for each other by the clock fail now and then, everywhere: it
            # differs if it never comes out the same.
            for again in range(2):
                if not differ or all(
                    known.covers(suite.name, unit.name, k or "-", door) for k in differ
                ):
                    break
                unsteady.append(f"{unit.name} {door} {sorted(differ)[:3]}")
                plain2, _ = doors.run("plain", unit, f"{suite.name}.{number}.{again}")
                outcomes, said = doors.run(door, unit, f"{suite.name}.{number}.{again}")
                differ = {k for k in differing(plain2, outcomes) if k in differ}
            counts[door].update(
                passed=sum(unit.passed(k, v) for k, v in outcomes.items()), differ=len(differ)
            )
            for key in sorted(differ):
                if not known.covers(suite.name, unit.name, key or "-", door):
                    what = f"{unit.name} {key or '-'} {door}: {plain.get(key)} plain, {outcomes.get(key)}"
                    new.append(what)
                    if args.verbose:
                        print(f"    {what}\n{said[-1500:]}\n    --- plain:\n{text[-700:]}")
    total = counts["plain"]
    print(
        f"    {suite.name}, {suite.version}: {len(units)} programs, {total.total()} checks: "
        + ", ".join(
            f"{counts[door]['passed']} pass {'in a ' if door == 'plain' else ''}{door}"
            + (f" ({counts[door]['differ']} differ)" if counts[door]["differ"] else "")
            for door in ["plain", *names]
        )
    )
    if unsteady:
        print("    run again: " + "; ".join(unsteady))
    return new


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("tests", nargs="*", help="SUITE, or SUITE/PATTERN of a unit")
    parser.add_argument("--jobs", type=int, default=int(os.environ.get("T_JOBS", 1)))
    parser.add_argument(
        "--doors", type=str.split, default=os.environ.get("T_DOORS", "shared auto mount").split()
    )
    parser.add_argument("--verbose", action="store_true", default="T_VERBOSE" in os.environ)
    args = parser.parse_intermixed_args()
    # What is mounted goes with this program, also when it is ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    full = os.environ.get("T_FULL") == "1"
    adopt_orphans()
    if os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
        args.doors = [door for door in args.doors if door != "mount"]
    work = pathlib.Path(
        tempfile.mkdtemp(prefix="plfs-foreign.", dir=os.environ.get("T_DIR", "/tmp"))
    )
    known = Known()
    doors = Doors(args.build / "bin/plfs", work, args.doors)
    try:
        for make in suites.ALL:
            name = make.__name__
            asked = [t.partition("/")[2] or "*" for t in args.tests if t.partition("/")[0] == name]
            if args.tests and not asked:
                continue
            suite = make(full)
            if suite is None:
                continue
            if suite.missing:
                print(f"skip {name}: {suite.missing}", flush=True)
                continue
            if not set(suite.doors) & set(args.doors):
                print(f"skip {name}: needs root and /dev/fuse", flush=True)
                continue
            units = suite.units
            if asked:
                units = [u for u in units if any(fnmatch.fnmatchcase(u.name, p) for p in asked)]
            elif suite.by_turn:
                units = turns.in_turn(units)
            new = run_suite(suite, units, doors, args, known)
            # Where a check differs the exit status need not: the plain one failed by the clock.
            used_checks = [
                (*names[:2], names[3])
                for (names, _), used in zip(known.lines, known.used, strict=True)
                if used and names[2] != "-"
            ]
            unneeded = [
                " ".join(names)
                for (names, _), used in zip(known.lines, known.used, strict=True)
                if names[0] == name
                and not used
                and (names[2] != "-" or (*names[:2], names[3]) not in used_checks)
                and full
                and asked in ([], ["*"])
                and names[3] in args.doors
            ]
            if new or unneeded or not units:
                print(f"not ok {name}: {len(new)} differences without a reason")
                print(
                    "\n".join(
                        [f"    {line}" for line in new]
                        + [f"    no difference any more: {line}" for line in unneeded]
                    )
                )
            else:
                print(f"ok {name}")
            sys.stdout.flush()
    finally:
        doors.close()
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
