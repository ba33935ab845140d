#!/usr/bin/env python3
"""What docs/decisions/0013 takes for granted of a file system that machines share, tried.

    bench/assumptions.py MOUNT0 MOUNT1 [--requests COMMAND] [--ahead MOUNT]

MOUNT0 and MOUNT1 are directories on two clients of one file system. COMMAND prints the number of
requests that the client of MOUNT0 has sent to its servers: what a call costs is then counted, else
it is timed. MOUNT of --ahead belongs to a client whose clock is ahead by an hour.

One line for each assumption: holds, does not, or what was measured. The exit status says whether
all that was asked holds."""

import argparse
import ctypes
import fcntl
import os
import pathlib
import shutil
import statistics
import struct
import subprocess
import sys
import threading
import time

ATTRIBUTE = "user.plfs"
failed = False


def say(what, holds, detail=""):
    global failed
    failed |= holds is False
    word = {True: "holds", False: "DOES NOT HOLD", None: "measured"}[holds]
    print(f"{word:14}{what}{': ' + detail if detail else ''}", flush=True)


def fgetxattr(fd):
    try:
        return os.getxattr(fd, ATTRIBUTE)
    except OSError:
        return None


class Requests:
    """Counts requests of the client, or times calls if nobody can."""

    def __init__(self, command):
        self.command = command

    def count(self):
        done = subprocess.run(self.command, shell=True, capture_output=True, text=True, check=True)
        return int(done.stdout)

    def cost(self, call, each):
        """What `call` costs for each of a list, in requests or in µs, and in words."""
        before = self.count() if self.command else 0
        times = []
        for one in each:
            start = time.perf_counter()
            call(one)
            times.append((time.perf_counter() - start) * 1e6)
        micros = statistics.median(times)
        if not self.command:
            return None, f"{micros:.1f} µs"
        requests = (self.count() - before) / len(times)
        return requests, f"{requests:.2f} requests, {micros:.1f} µs"


def look_of_a_new_file(here, requests):
    """A look at the close of a file that was made here."""
    fds = []
    for i in range(200):
        fd = os.open(here / f"new{i}", os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o644)
        os.write(fd, b"x" * 1024)
        fds.append(fd)
    number, words = requests.cost(fgetxattr, fds)
    free = None if number is None else number < 0.05
    say("a look at a file that was made here sends no request", free, words)
    number, words = requests.cost(os.fstat, fds)
    say("nor does an fstat", None if number is None else number < 0.05, words)
    for fd in fds:
        os.close(fd)


def look_of_an_old_file(here, there, requests):
    """A look at the open of a file that another client made."""
    for i in range(200):
        (there / f"old{i}").write_bytes(b"x" * 1024)
    fds = [os.open(here / f"old{i}", os.O_RDONLY) for i in range(200)]
    _, words = requests.cost(fgetxattr, fds)
    say("a look at a file that another client made", None, words)
    _, words = requests.cost(fgetxattr, fds)
    say("a second look at it", None, words)
    for fd in fds:
        os.close(fd)


def one_winner(here, there):
    """XATTR_CREATE from two clients at once."""
    rounds, both, none = 300, 0, 0
    for i in range(rounds):
        path = here / f"race{i}"
        path.write_bytes(b"")
        fds = [os.open(path, os.O_RDWR), os.open(there / path.name, os.O_RDWR)]
        won = []
        gate = threading.Barrier(2)

        def promote(k, fd):
            gate.wait()
            try:
                os.setxattr(fd, ATTRIBUTE, b"%d" % k, os.XATTR_CREATE)
                won.append(k)
            except FileExistsError:
                pass

        threads = [threading.Thread(target=promote, args=pair) for pair in enumerate(fds)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        seen = {fgetxattr(fd) for fd in fds}
        both += len(won) > 1
        none += len(won) == 1 and seen != {b"%d" % won[0]}
        [os.close(fd) for fd in fds]
    say("XATTR_CREATE of two clients has one winner", both == 0, f"{both} of {rounds} had two")
    say("both see at once who won", none == 0, f"{none} of {rounds} did not")


def seen_at_once(here, there):
    """A look finds what another client set before, though it has looked already."""
    stale = 0
    for i in range(200):
        path = here / f"seen{i}"
        path.write_bytes(b"x")
        mine, other = os.open(path, os.O_RDWR), os.open(there / path.name, os.O_RDWR)
        fgetxattr(mine)
        os.setxattr(other, ATTRIBUTE, b"c", os.XATTR_CREATE)
        stale += fgetxattr(mine) != b"c"
        os.close(mine), os.close(other)
    say("a look finds what another client has set", stale == 0, f"{stale} of 200 were old")


def link_of_a_descriptor(here, there):
    path = here / "linked"
    path.write_bytes(b"x")
    fd = os.open(path, os.O_RDWR)
    try:
        # os.link does not follow the link to what is open.
        libc = ctypes.CDLL(None, use_errno=True)
        at_fdcwd, follow = -100, 0x400
        old, new = f"/proc/self/fd/{fd}".encode(), os.fsencode(here / "base")
        if libc.linkat(at_fdcwd, old, at_fdcwd, new, follow) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        same = (here / "base").stat().st_ino == os.fstat(fd).st_ino
        say("a descriptor can be linked", same)
        say("another client sees both links", (there / "linked").stat().st_nlink == 2)
        say("who has it open sees both links", os.fstat(fd).st_nlink == 2)
    except OSError as error:
        say("a descriptor can be linked", False, str(error))
    os.close(fd)


def dirty_pages(here, there):
    """What one client has written and not synced, another one reads through another name."""
    wrong = 0
    for i in range(50):
        path = here / f"dirty{i}"
        fd = os.open(path, os.O_CREAT | os.O_RDWR, 0o644)
        os.link(path, here / f"base{i}")
        os.write(fd, b"a" * 300_000)
        os.pwrite(fd, b"b" * 5, 100_000)
        got = (there / f"base{i}").read_bytes()
        wrong += len(got) != 300_000 or got[100_000:100_005] != b"b" * 5
        os.close(fd)
    say("a reader elsewhere gets what is not synced", wrong == 0, f"{wrong} of 50 were old")


def gate(here, there):
    """Record locks of open files exclude two clients, and a kill lets go."""
    path = here / "gate"
    path.write_bytes(b"")
    mine, other = os.open(path, os.O_RDWR), os.open(there / "gate", os.O_RDWR)
    lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 2**63 - 2, 1, 0)
    ofd_setlk = 37
    try:
        fcntl.fcntl(mine, ofd_setlk, lock)
    except OSError as error:
        say("the gate can be had", False, str(error))
        return
    try:
        fcntl.fcntl(other, ofd_setlk, lock)
        say("the gate excludes another client", False)
    except OSError:
        say("the gate excludes another client", True)
    os.close(mine)
    try:
        fcntl.fcntl(other, ofd_setlk, lock)
        say("a close opens the gate", True)
    except OSError as error:
        say("a close opens the gate", False, str(error))
    os.close(other)


def clock_of_times(ahead, there):
    path = ahead / "time"
    path.write_bytes(b"x")
    age_s = time.time() - (there / "time").stat().st_mtime
    say("the modification time is the writer's clock", age_s < -3000, f"{-age_s:.0f} s ahead")
    # A client with a right clock writes next: the time must not go back behind what it covers.
    with open(there / "time", "r+b") as f:
        f.write(b"y")
        f.flush()
        os.fsync(f.fileno())
    age_s = time.time() - (ahead / "time").stat().st_mtime
    say("a later write with an earlier clock", None, f"{-age_s:.0f} s ahead")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("mount", nargs=2, type=pathlib.Path)
    parser.add_argument("--requests", metavar="COMMAND")
    parser.add_argument("--ahead", metavar="MOUNT", type=pathlib.Path)
    args = parser.parse_args()
    name = f"assumptions.{os.getpid()}"
    here, there = (mount / name for mount in args.mount)
    here.mkdir()
    try:
        requests = Requests(args.requests)
        look_of_a_new_file(here, requests)
        look_of_an_old_file(here, there, requests)
        one_winner(here, there)
        seen_at_once(here, there)
        link_of_a_descriptor(here, there)
        dirty_pages(here, there)
        gate(here, there)
        if args.ahead:
            clock_of_times(args.ahead / name, there)
    finally:
        shutil.rmtree(here, ignore_errors=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
