"""Runs the behaviours through the doors: run.py WORK PLFS SERVERS [NAME...], as run.sh calls it.
NAME: only these doors and behaviours."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import traceback

import behaviours
from doors import DOORS, Refused, World

ROOT = pathlib.Path(__file__).resolve().parents[2]
# In the words of the suites.
SAID = {"differs": "ok", "fail": "not ok"}


def run(behaviour, door):
    """What became of a behaviour at a door: ok, differs, cannot, skip or fail, and why."""
    lacking = [door.lacks[need] for need in behaviour.needs if need in door.lacks]
    if lacking:
        return "cannot", lacking[0]
    if (
        "users" in behaviour.needs
        and os.getuid() != 0
        or "small" in behaviour.needs
        and not door.has_small
    ):
        return "skip", "needs root"
    row = behaviour.differs.get(door.name)
    # What may be seen late is seen at once if the machine is slow: only a difference that never
    # shows is none.
    for attempt in range(3 if row else 1):
        world = World(door, f"{behaviour.name}.{attempt}")
        if "small" in behaviour.needs:
            world.wait_for_room()
        try:
            behaviour.run(world)
        except Exception as error:
            world.end(keep=False)
            if row and isinstance(error, (AssertionError, Refused)):
                return "differs", row
            traceback.print_exc()
            sys.stderr.flush()
            return "fail", f"{type(error).__name__} {error}"
        world.end(keep=True)
    return ("fail", f"this is not so any more: {row}") if row else ("ok", "")


def through(door, listed):
    """All behaviours at a door, and then `plfs check` on what they left."""
    column = {}
    try:
        for behaviour in listed:
            what, why = column[behaviour.name] = run(behaviour, door)
            if what != "cannot":
                print(
                    SAID.get(what, what),
                    f"{door.name}: {behaviour.name}" + (f": {why}" if why else ""),
                    flush=True,
                )
        if door.is_plfs:
            said = subprocess.run(
                [door.plfs, "check", door.storage()], capture_output=True, text=True
            ).stdout
            corrupt = [line for line in said.splitlines() if "corrupt" in line]
            print(
                "not ok" if corrupt else "ok",
                f"{door.name}: what is left is sound" + "".join(f": {one}" for one in corrupt[:3]),
                flush=True,
            )
    finally:
        door.stop()
    return column


def show(table, listed):
    """Behaviours by doors; each reason has a number."""
    reasons = []
    width = max(len(one.name) for one in listed)
    print("\n" + " " * width, *(f"{name:>10}" for name in table))
    for behaviour in listed:
        cells = []
        for column in table.values():
            what, why = column.get(behaviour.name, ("skip", ""))
            if what in ("cannot", "differs"):
                if (what, why) not in reasons:
                    reasons.append((what, why))
                what += f" {reasons.index((what, why)) + 1}"
            cells.append(f"{what:>10}")
        print(f"{behaviour.name:{width}}", *cells)
    for number, (what, why) in enumerate(reasons, 1):
        print(f"{number:>3} {what}: {why}")


def exists(test):
    """Whether a test that SEMANTICS.md names is there."""
    suite, separator, name = re.fullmatch(r"(\w+)(/|::|)([\w.]*)", test).groups()
    if suite == "doors":
        return any(one.name == name for one in behaviours.LIST)
    if suite == "fuse":
        file, _, function = name.partition(".")
        return f"\ndef t_{function}" in (ROOT / f"tests/fuse/{file}.py").read_text()
    if suite in ("cli", "preload_small", "preload_flat"):
        return f"\nt_{name}() {{" in (ROOT / f"tests/{suite}/run.sh").read_text()
    if separator == "/":
        return any((ROOT / f"tests/{suite}/{name}{kind}").exists() for kind in (".c", ".sh"))
    dirs = ("plfs/tests/engine", "plfs/tests", "plfs-index/tests", "plfs-pack/tests")
    files = (ROOT / f"crates/{where}/{suite}.rs" for where in dirs)
    return any(file.exists() and f"fn {name}" in file.read_text() for file in files)


def semantics():
    """SEMANTICS.md and the tests know each other: each sentence has a label of its own and names a
    test, each test that is named is there, each behaviour is named, each difference has a row."""
    text = (ROOT / "docs/SEMANTICS.md").read_text()
    tests = r"`((?:doors|fuse|preload|preload_small|preload_flat|mpi|cli)/(?!NAME|FILE)[\w.]+|(?!FILE)\w+::(?!NAME)\w+)`"
    sentences = re.findall(r"^\* \*\*(\w+)\*\*(.*(?:\n  .*)*)", text, re.M)
    labels = [label for label, _ in sentences]
    wrong = [f"{label} is twice" for label in sorted(set(labels)) if labels.count(label) > 1]
    wrong += [
        f"no test {test}" for test in sorted(set(re.findall(tests, text))) if not exists(test)
    ]
    wrong += [
        f"{sentence} names no test" for sentence, words in sentences if not re.search(tests, words)
    ]
    wrong += [
        f"doors/{one.name} is not named"
        for one in behaviours.LIST
        if f"`doors/{one.name}`" not in text
    ]
    wrong += [
        f"no row: {row}"
        for one in behaviours.LIST
        for row in one.differs.values()
        if f"\n| {row}" not in text
    ]
    return wrong if len(sentences) > 40 else ["no sentences found"]


def main():
    work, plfs, servers, *asked = sys.argv[1:]
    doors = [name for name in DOORS if name in asked] or list(DOORS)
    listed = [one for one in behaviours.LIST if one.name in asked] or behaviours.LIST
    wrong = semantics()
    print(
        "not ok" if wrong else "ok",
        "SEMANTICS.md names its tests" + (": " + "; ".join(wrong) if wrong else ""),
    )
    table = {}
    for name in doors:
        why = DOORS[name].missing(name, servers)
        if why:
            print(f"skip {name}: {why}")
        table[name] = {} if why else through(DOORS[name](name, work, plfs, servers), listed)
    show(table, listed)


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    main()
