#!/usr/bin/env python3
"""The independent decoder and the engine read the same bytes and the same numbers out of the same
containers.

    agree.py BUILD_DIR [--seed N] [--rounds 1] [--only WORD] [--keep]
    agree.py --stat NAME        what the decoder finds in one container, as JSON, and whether
                                summary, flat index and logs agree

Ordinary Python programs write below `BUILD_DIR/bin/plfs run`, some are killed, some index logs are
torn by hand. After every step all readers must agree: the program's own `cat` under `plfs run`,
`plfs cat`, `plfs_decode.py cat` and `flat_index.py cat`; where the bytes are determined also a
plain file written by the same program. `plfs stat --json` must hold the decoder's numbers.
Containers made by hand that contradict docs/FORMAT.md must be refused by both. A failure names the
seed that repeats it.
"""

import argparse, ctypes, hashlib, json, os, random, shutil, signal, subprocess, sys, tempfile, time
import child, flat_index, plfs_decode

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from turns import in_turn


def stat(name):
    """What the decoder finds in a container. `places`: where it is damaged, and where its parts say
    different things."""
    c = plfs_decode.Container(name)
    state, flat, tail = flat_index.find(c)
    ends = {}
    for r in c.records:
        if r.kind == "run" and r.segment:
            ends[r.segment] = max(ends.get(r.segment, 0), r.physical_end)
    if c.sb.has_base:
        ends[plfs_decode.BASE] = c.base  # whatever records say (section 11)
    for ref, end in ends.items():
        path = c.segment_path(ref)
        have = os.stat(path).st_size if os.path.exists(path) else -1
        if have < end:
            c.places.append(
                plfs_decode.place(
                    path,
                    max(have, 0),
                    f"records point at {end} bytes",
                    "missing" if have < 0 else "short",
                )
            )
    found = {
        "index_logs": len(c.logs),
        "data_logs": len(ends),
        "size": c.size,
        "stored_bytes": sum(ends.values()),
        "stamp": max((log.stamp for log in c.logs), default=0),
        "index_bytes": sum(len(log.raw) for log in c.logs),
        "records": sum(log.count for log in c.logs),
    }
    whole, parts = state == "valid" and not any(log.blocks for log in tail), {}
    if flat:
        head = flat.head
        parts = {
            "entries": head.entries,
            "shapes": head.shapes,
            "tabled": flat.tabled,
            "blocks": head.blocks,
            "ordered": flat.ordered,
            "truncates": head.truncates,
            "floor": head.floor,
            "tail": sum(log.blocks for log in tail),
        }
        totals = {
            "size": head.size,
            "stored_bytes": sum(end for _, end in flat.segments),
            "stamp": head.stamp,
            "records": head.records,
            "data_logs": head.segments,
        }
        if whole and totals.items() - found.items():
            c.places.append(
                plfs_decode.place(flat.path, 32, f"flat index says {totals}, the logs {found}")
            )
    summary = c.summary()
    if not isinstance(summary, str):
        if found.items() - summary._asdict().items():
            c.places.append(
                plfs_decode.place(
                    c.sb.path, 3072, f"summary says {summary._asdict()}, the logs {found}"
                )
            )
        if summary.flat and state != "damaged" and not (whole and flat.head.crc == summary.flat):
            c.places.append(
                plfs_decode.place(
                    c.sb.path,
                    3148,
                    "the flat index that the summary names is not there or lacks something",
                )
            )
    return {
        **found,
        "uuid": c.sb.uuid.hex(),
        "container": c.dir,
        "copy": c.copy,
        "open_marks": c.marks,
        "sets": c.sets,
        "blocks": sum(log.blocks for log in c.logs),
        "flat": state,
        "flat_parts": parts,
        "summary": summary if isinstance(summary, str) else "valid",
        "places": c.places,
    }


# ---- programs: each runs as `agree.py --do NAME FILE SEED RANK RANKS` and knows nothing of PLFS
def print_stat():
    """agree.py --stat NAME"""
    try:
        found = stat(sys.argv[1])
    except (ValueError, OSError) as e:
        sys.exit(f"plfs_decode: {e}")
    print(json.dumps(found, indent=1))
    return plfs_decode.report(found["places"])


def open_file(path, flags=0):
    return os.open(path, os.O_RDWR | os.O_CREAT | flags, 0o666)


def strided(path, rng, rank, ranks):
    fd = open_file(path)
    for i in range(150):
        os.pwrite(fd, rng.randbytes(1777), (i * ranks + rank) * 1777)


def backwards(path, rng, rank, ranks):
    fd = open_file(path)
    for i in reversed(range(100)):
        os.pwrite(fd, rng.randbytes(900), (i * ranks + rank) * 1000)


def overwrites(path, rng, rank, ranks):
    """Within a part of the file of its own, so that the bytes are determined."""
    fd, part = open_file(path), 60_000
    for _ in range(300):
        at = rng.randrange(part)
        os.pwrite(fd, rng.randbytes(rng.randrange(1, min(4000, part - at) + 1)), rank * part + at)
        if rng.random() < 0.02:
            os.fsync(fd)


def conflicts(path, rng, rank, ranks):
    fd = open_file(path)
    for _ in range(200):
        os.pwrite(fd, bytes([65 + rank]) * rng.randrange(1, 3000), rng.randrange(50_000))
        if rng.random() < 0.05:
            os.ftruncate(fd, rng.randrange(60_000))


def truncates(path, rng, rank, ranks):
    fd = open_file(path)
    for _ in range(200):
        if rng.random() < 0.3:
            os.ftruncate(fd, rng.randrange(40_000))
        else:
            os.pwrite(fd, rng.randbytes(rng.randrange(1, 2000)), rng.randrange(40_000))
        if rng.random() < 0.1:
            os.close(fd)
            fd = open_file(path)


def punches(path, rng, rank, ranks):
    """Patterns with holes in them, in a part of the file of its own."""
    fd, part, fallocate = (
        open_file(path),
        rank * 60_000,
        ctypes.CDLL(None, use_errno=True).fallocate,
    )
    fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]
    for _ in range(4):
        for i in range(40):
            os.pwrite(fd, rng.randbytes(700), part + i * 1000)
        for _ in range(10):
            assert fallocate(fd, 3, part + rng.randrange(50_000), rng.randrange(1, 9000)) == 0, (
                ctypes.get_errno()
            )
            os.pwrite(fd, rng.randbytes(rng.randrange(1, 900)), part + rng.randrange(50_000))
        os.fsync(fd)


def sparse(path, rng, rank, ranks):
    fd = open_file(path)
    for _ in range(20):
        os.pwrite(fd, rng.randbytes(rng.randrange(1, 5000)), rng.randrange(20 << 20))
    os.ftruncate(fd, 21 << 20)


def appends(path, rng, rank, ranks):
    fd = open_file(path, os.O_APPEND)
    for i in range(200):
        os.write(fd, b"%d:%d;" % (rank, i) * rng.randrange(1, 30))


def rewrite(path, rng, rank, ranks):
    with open(path, "wb") as f:
        f.write(rng.randbytes(rng.randrange(200_000)))
    with open(path, "r+b") as f:
        f.seek(1000)
        f.write(b"again")


def large(path, rng, rank, ranks):
    fd, block = open_file(path), rng.randbytes(1 << 20)
    for i in range(12):
        os.pwritev(fd, [block, block[:77]], i * (1 << 20) + rng.randrange(1 << 18))


def turns(path, rng, rank, ranks):
    """A piece each in turns, as fast as it goes: whose bytes come first in a data log is chance."""
    fd = open_file(path)
    for i in range(40):
        os.pwrite(fd, rng.randbytes(777), (i * ranks + rank) * 777)
        time.sleep(random.random() / 1000)


def singles(path, rng, rank, ranks):
    """Pieces of many lengths, each byte once, in no order."""
    fd = open_file(path)
    for i in rng.sample(range(300), 300):
        os.pwrite(fd, rng.randbytes(100 + i % 50), (i * ranks + rank) * 150)


def waits(path, rng, rank, ranks):
    """Has the file open until it hears something, and goes on."""
    fd = open_file(path)
    for _ in range(2):
        for _ in range(5):
            os.pwrite(fd, rng.randbytes(500), rng.randrange(20_000))
        os.fsync(fd)
        os.write(1, b".")
        os.read(0, 1)


def truncates_and_waits(path, rng, rank, ranks):
    truncates(path, rng, rank, ranks)
    fd = open_file(path)
    for size in (9_000, 30_000, 20_000):
        os.pwrite(fd, rng.randbytes(10_000), rng.randrange(10_000))
        os.ftruncate(fd, size)
    waits(path, rng, rank, ranks)


def endless(path, rng, rank, ranks):
    fd = open_file(path)
    while True:  # slowly: the decoder is slow too
        time.sleep(0.001)
        os.pwrite(fd, bytes([97 + rank]) * rng.randrange(1, 5000), rng.randrange(300_000))
        if rng.random() < 0.03:
            os.fsync(fd)
        if rng.random() < 0.01:
            os.ftruncate(fd, rng.randrange(200_000, 300_000))


# ---- cases: a name and steps. A step is a program and options, or the name of a method of Agree
def program(name, ranks=1, plain=True, nodes=1, kill=0, **env):
    return {
        "program": name,
        "ranks": ranks,
        "plain": plain,
        "nodes": nodes,
        "kill": kill,
        "env": env,
    }


CASES = [
    ("empty", [program("rewrite"), "empty"]),
    ("strided by 4", [program("strided", ranks=4), "flatten", program("strided", ranks=4)]),
    (
        "strided, 3 nodes",
        [program("strided", ranks=6, nodes=3), "flatten", program("overwrites", ranks=3, nodes=3)],
    ),
    ("backwards", [program("backwards", ranks=2), program("backwards"), "flatten"]),
    (
        "overwrites",
        [
            program("overwrites", ranks=3),
            program("overwrites", ranks=2),
            "flatten",
            program("overwrites"),
        ],
    ),
    (
        "conflicts",
        [
            program("conflicts", ranks=4, plain=False),
            "flatten",
            program("conflicts", ranks=4, nodes=2, plain=False),
        ],
    ),
    ("truncates", [program("truncates"), "flatten", program("truncates"), "flatten"]),
    (
        "truncates, then other node",
        [
            program("truncates"),
            program("truncates", nodes=2),
            program("truncates", nodes=3),
            "flatten",
        ],
    ),
    (
        "holes",
        [
            program("punches", ranks=2),
            "flatten",
            "has ordered",
            program("punches", ranks=3, nodes=2),
            "hold waits",
            "flatten",
            "has ordered",
            "release",
            program("punches"),
            "compact",
            program("punches"),
            "flatten",
        ],
    ),
    ("sparse", [program("sparse"), "flatten", program("sparse")]),
    (
        "plain before",
        [
            "promote",
            "flatten",
            "release",
            "flatten",
            program("truncates"),
            "flatten",
            program("strided", ranks=4),
            "flatten",
        ],
    ),
    (
        "compacted",
        [
            program("overwrites", ranks=3, nodes=2),
            "compact",
            program("truncates"),
            "compact",
            "flatten",
            program("sparse", nodes=3),
            "compact",
            program("strided", ranks=2),
        ],
    ),
    (
        "appends",
        [
            program("appends"),
            program("appends", ranks=3, plain=False),
            "flatten",
            program("appends", ranks=2, nodes=2, plain=False),
        ],
    ),
    (
        "O_TRUNC",
        [
            program("overwrites"),
            program("rewrite"),
            program("strided"),
            "flatten",
            program("rewrite"),
            program("appends"),
        ],
    ),
    (
        "small segments",
        [
            program("large", PLFS_SEGMENT_BYTES="65536", PLFS_STREAMS="2"),
            program("overwrites", ranks=2, PLFS_SEGMENT_BYTES="65536"),
            "flatten",
        ],
    ),
    (
        "small buffer",
        [
            program("large", PLFS_BUFFER_BYTES="65536"),
            program("overwrites", PLFS_BUFFER_BYTES="65536"),
        ],
    ),
    (
        "backends",
        [
            program("strided", ranks=4, PLFS_BACKENDS="%1:%2"),
            program("overwrites", ranks=4, nodes=3),
            "flatten",
        ],
    ),
    (
        "kill -9",
        [
            program("endless", kill=0.4, plain=False),
            program("overwrites", plain=False),
            "flatten",
            program("endless", ranks=3, nodes=2, kill=0.6, plain=False),
            program("strided", plain=False),
            "flatten",
        ],
    ),
    (
        "kill -9 of one in four",
        [
            program("endless", ranks=4, kill=0.5, plain=False),
            program("endless", kill=0.1, plain=False),
            program("truncates", plain=False),
        ],
    ),
    (
        "torn",
        [
            program("strided", ranks=2, plain=False),
            "tear",
            program("overwrites", ranks=2, plain=False),
            "tear",
            "junk",
            program("strided", plain=False),
            "flatten",
            "junk",
            program("overwrites", nodes=2, plain=False),
            "tear",
        ],
    ),
    (
        "patterns",
        [
            program("strided", ranks=4),
            "flatten",
            "has shapes",
            program("overwrites"),
            "has tail",
            program("turns", ranks=4, nodes=3),
        ],
    ),
    (
        "racing",
        [
            program("turns", ranks=12, PLFS_STREAMS="2"),
            "flatten",
            "has tabled",
            program("turns", ranks=8, nodes=3, PLFS_STREAMS="1"),
            program("strided", ranks=2),
            "flatten",
        ],
    ),
    (
        "singles",
        [
            program("singles"),
            "flatten",
            "has blocks",
            program("singles", ranks=2),
            "has tail",
            "flatten",
            program("truncates"),
            "has tail",
            "flatten",
            "has blocks",
        ],
    ),
    (
        "open, truncated",
        [
            program("conflicts", ranks=3, nodes=2, plain=False),
            "hold truncates_and_waits",
            "flatten",
            "has ordered",
            "has truncates",
            "has tail 0",
            "release",
            "void",
            "has tail",
            "hold waits",
            "flatten",
            program("truncates", nodes=2, plain=False),
            "void",
            "has tail",
            "release",
            "flatten",
            "has blocks",
            "has ordered 0",
        ],
    ),
    (
        "open, patterns",
        [
            program("strided", ranks=3, nodes=2),
            program("backwards"),
            "hold waits",
            "flatten",
            "has entries",
            program("overwrites", plain=False),
            "release",
            "flatten",
            "has floor",
        ],
    ),
    (
        "open, after a flat index",
        [
            program("strided", ranks=4),
            program("singles", ranks=2),
            "flatten",
            "has floor",
            "hold waits",
            "flatten",
            "has entries",
            "has floor",
            program("truncates", nodes=3, plain=False),
            "flatten",
            "release",
        ],
    ),
    (
        "flat damaged",
        [
            program("overwrites"),
            "flatten",
            "flip_flat",
            program("overwrites"),
            "flip_flat",
            program("truncates"),
        ],
    ),
    (
        "block damaged",
        [
            program("singles"),
            "flatten",
            "flip_block",
            program("overwrites"),
            program("strided"),
            "flip_block",
            "flip_block",
        ],
    ),
    (
        "block damaged, many logs",
        [
            program("singles", ranks=3, nodes=3),
            "flatten",
            "has blocks",
            "flip_block",
            program("overwrites", ranks=3, nodes=3),
            program("singles", ranks=3, nodes=3),
        ],
    ),
    (
        "block damaged, flattened",
        [
            program("singles"),
            "flatten",
            "flip_block",
            "flatten",
            "has blocks",
            program("overwrites"),
            "flip_block",
            "flatten",
        ],
    ),
    ("flat stale", [program("strided", plain=False), "flatten", "tear"]),
]


class Failed(Exception):
    pass


class Agree:
    def __init__(self, build, base, seed):
        self.plfs, self.base, self.rng = (
            os.path.join(build, "bin", "plfs"),
            base,
            random.Random(seed),
        )
        for d in ("root", "plain", "b1", "b2", "node0", "node1", "node2"):
            os.mkdir(os.path.join(base, d))
        self.file, self.model, self.plain, self.holder = (
            os.path.join(base, "root", "f"),
            os.path.join(base, "plain", "f"),
            True,
            None,
        )
        self.door = [self.plfs, "run", "--mount", os.path.join(base, "root"), "--"]

    def run(self, *command):
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True)
        # It gives what there is, and says that an index log lacks what a close had counted.
        is_torn = b"what its last close counted is not all there" in done.stderr
        if done.returncode and not (is_torn and command[1] == "cat"):
            raise Failed(
                f"{os.path.basename(command[0])} {command[1]}: status {done.returncode}: {done.stderr.decode()[-600:]}"
            )
        return done.stdout

    def words(self, name, file, seed, rank, ranks):
        return [
            sys.executable,
            os.path.abspath(__file__),
            "--do",
            name,
            file,
            f"{seed + rank}",
            f"{rank}",
            f"{ranks}",
        ]

    def program(self, step):
        seed = self.rng.randrange(1 << 30)
        words = lambda file, r: self.words(step["program"], file, seed, r, step["ranks"])
        env = {k: v.replace("%", self.base + "/b") for k, v in step["env"].items()}
        first = self.rng.randrange(3)
        children = []
        for r in range(step["ranks"]):
            node = os.path.join(self.base, f"node{(first + r) % step['nodes']}")
            children.append(
                subprocess.Popen(
                    [*self.door, *words(self.file, r)],
                    env={**os.environ, **env, "PLFS_SHARED_MEMORY": node},
                )
            )
        if step["kill"]:
            while not os.path.exists(self.file) and children[0].poll() is None:
                time.sleep(0.01)
            time.sleep(step["kill"])
            for child in children:
                child.send_signal(signal.SIGKILL)
                time.sleep(self.rng.random() / 20)
        want = -signal.SIGKILL if step["kill"] else 0
        if [c.wait() for c in children] != [want] * len(children):
            raise Failed(f"{step['program']} failed")
        self.plain = self.plain and step["plain"]
        if self.plain:
            for r in range(step["ranks"]):
                self.run(*words(self.model, r))

    # steps without a program
    def empty(self):
        self.run(*self.door, "truncate", "-s", "0", self.file)
        open(self.model, "w").close()

    def compact(self):
        self.run(self.plfs, "compact", "--force", self.file)

    def flatten(self):
        self.run(self.plfs, "flatten", self.file)

    def hold(self, name, workload="shared"):
        self.run(self.plfs, "layout", "--workload", workload, os.path.dirname(self.file))
        words = self.words(name, self.file, self.rng.randrange(1 << 30), 0, 1)
        env = {**os.environ, "PLFS_SHARED_MEMORY": os.path.join(self.base, "node0")}
        self.holder, self.plain = (
            subprocess.Popen(
                [*self.door, *words], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            ),
            False,
        )
        self.holder.stdout.read(1)

    def promote(self):
        """A plain file that somebody has open and that another one writes."""
        self.hold("waits", "auto")
        self.program(program("punches"))

    def release(self):
        self.holder.communicate(b"..")
        if self.holder.returncode:
            raise Failed("it failed")

    def has(self, part, number=None):
        """The flat index shows what the case is for."""
        parts = self.stat()["flat_parts"]
        if not (parts.get(part) == int(number) if number else parts.get(part)):
            raise Failed(f"the flat index has {parts}")

    def logs(self):
        there = self.stat()["container"]
        return [
            os.path.join(there, d, "index")
            for d in sorted(os.listdir(there))
            if os.path.isfile(os.path.join(there, d, "index"))
        ]

    def tear(self):
        """An append that a crash cut short."""
        path = self.rng.choice(self.logs())
        # At words: an append that lacks its last byte alone is damage (FORMAT.md, "Torn tails").
        os.truncate(path, max(0, os.stat(path).st_size - 8 * self.rng.randrange(1, 8)))
        self.touched()

    def junk(self):
        with open(self.rng.choice(self.logs()), "ab") as f:
            f.write(bytes(-f.tell() % 64) + b"PLIX"[: self.rng.randrange(1, 5)])
        self.touched()

    def touched(self):
        """Logs do not change behind the back of a container that nobody has open: its summary would
        still count."""
        os.utime(self.stat()["container"])

    def flip_block(self):
        self.flip_flat(in_blocks=True)

    def flip_flat(self, in_blocks=False):
        path = os.path.join(self.stat()["container"], "flat")
        with open(path, "r+b") as f:
            head, length = f.read(128), os.stat(path).st_size
            self.blocks_at = length - int.from_bytes(head[104:112], "little")
            f.seek(self.rng.randrange(self.blocks_at if in_blocks else 8, length))
            byte = f.read(1)
            f.seek(-1, os.SEEK_CUR)
            f.write(bytes([byte[0] ^ 4]))

    def void(self):
        """The summary and a flat index behind it do not count any more."""
        os.utime(self.stat()["container"])

    def stat(self):
        done = child.run(print_stat, "stat", self.file)
        return json.loads(done.stdout or "{}")

    def decoded(self, decoder, status=0):
        done = child.run(decoder.main, decoder.__name__, "cat", self.file)
        if done.returncode != status:
            raise Failed(
                f"{decoder.__name__} cat: status {done.returncode}: {done.stderr.decode()[-600:]}"
            )
        return done.stdout

    def compare(self):
        ours, theirs = self.stat(), json.loads(self.run(self.plfs, "stat", "--json", self.file))
        damaged = ours["flat"] == "damaged"
        readers = {
            "cat under plfs run": self.run(*self.door, "cat", self.file),
            "plfs cat": self.run(self.plfs, "cat", self.file),
            "decoder": self.decoded(plfs_decode),
            "flat decoder": self.decoded(flat_index, int(damaged)),
        }  # damaged: reported and not used
        if self.plain:
            readers["plain file"] = self.run("cat", self.model)
        sums = {name: (len(data), hashlib.md5(data).hexdigest()) for name, data in readers.items()}
        if len(set(sums.values())) != 1:
            a, b = (
                readers["plfs cat"],
                readers["decoder" if sums["decoder"] != sums["plfs cat"] else "flat decoder"],
            )
            first = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
            raise Failed(f"bytes differ: {sums}; plfs cat and decoder at byte {first}")
        for key in (
            "size",
            "stored_bytes",
            "data_logs",
            "index_logs",
            "index_bytes",
            "records",
            "uuid",
            "container",
        ):
            if ours[key] != theirs[key]:
                raise Failed(f"stat: {key}: decoder {ours[key]}, plfs {theirs[key]}")
        marks = sorted(m["set"] for m in theirs["open_marks"])
        states = {"none": "none", "valid": "used"}.get(ours["flat"], "ignored")
        if damaged and any("of a block" in p["what"] for p in ours["places"]):
            states = ("used", "ignored")  # a reader checks a block when it uses it
        if (
            marks != ours["open_marks"]
            or not theirs["flat"].startswith(states)
            or (ours["summary"] == "valid") != (theirs["summary"] == "valid")
        ):
            raise Failed(
                f"stat: decoder {ours['open_marks']}, {ours['flat']}, {ours['summary']}; "
                f"plfs {marks}, {theirs['flat']}, {theirs['summary']}"
            )
        damage = [
            p
            for p in ours["places"]
            if p["kind"] not in ("torn", "skipped", "unfinished")
            and not (damaged and p["file"].endswith("/flat"))
        ]
        if damage:
            raise Failed(f"decoder finds damage: {damage}")


def by_hand():
    """(what, index log, whether readers must refuse it). The data log holds b"aaaa"."""
    import test_decode as t

    B, run, truncate, pack = t.B, t.run, t.truncate, t.struct.pack
    nest = lambda at, length, physical, stride, count, row, rows: (
        lambda own: (
            b"\3\n"
            + run(at, length, physical, stride, count)(own)[2:]
            + pack("<qqII", row, 0, rows, 1)
        )
    )
    wrong = {
        "run past eof": B(10, [run(0, 2, 0)], 1),
        "eof past the runs": B(10, [run(0, 2, 0)], 3),
        "durable past the block": B(10, [run(0, 2, 0)], 2, durable=1),
        "flag 4": B(10, [], 0, flags=4),
        "segment kind 1 of a data log": B(10, [run(0, 2, 0)], 2, refs=[t.ref(kind=1)]),
        "segment kind 2": B(10, [run(0, 2, 0)], 2, refs=[t.ref(kind=2)]),
        "backend ffff": B(10, [run(0, 2, 0)], 2, refs=[t.ref(backend=65535)]),
        "segment kind 2 that nothing names": B(10, [], 0, refs=[t.ref(kind=2)]),
        "codec 1": B(10, [run(0, 2, 0)], 2, refs=[t.ref(codec=1)]),
        "unknown backend": B(10, [run(0, 2, 0)], 2, refs=[t.ref(backend=1)]),
        "overlapping pieces": B(10, [run(0, 2, 0, 1, 2)], 3),
        "count 0": B(10, [run(0, 2, 0, 0, 0)], 2),
        "length 0": B(10, [run(0, 0, 0)], 0),
        "stride of one piece": B(10, [run(0, 2, 0, 9, 1)], 2),
        "below 0": B(10, [run(1, 2, 0, -2, 2)], 3),
        "past 2^63-1": B(10, [run(2**63 - 1, 1, 0)], 2**63),
        "physical past 2^63": B(10, [run(0, 2, 2**63 - 1)], 2),
        "no such reference": B(10, [run(0, 2, 0, segref=1)], 2),
        "stream 256": B(10, [run(0, 2, 0)], 2, refs=[t.ref(stream=256)]),
        "stream 256 that nothing names": B(10, [], 0, refs=[t.ref(stream=256)]),
        "run newer than its block": B(10, [run(0, 2, 0, stamp=11)], 2),
        "truncate without flag": B(10, [truncate(2)], 2, refs=[]),
        "truncate newer than its block": B(10, [truncate(2, 11)], 2, flags=1),
        "truncate past 2^63-1": B(10, [truncate(2**63)], 2**63, flags=1),
        "truncate with another eof": B(10, [truncate(2)], 3, flags=1),
        "two truncates": B(10, [truncate(2, 9), truncate(2)], 2, flags=1),
        "flag 1 without truncate": B(10, [], 0, flags=1),
        "truncate and run": B(10, [truncate(2, 9), run(0, 2, 0)], 2, refs=[t.ref()], flags=1),
        "truncate with a count": B(10, [pack("<BBHIQQ", 2, 3, 0, 1, 2, 10)], 2, flags=1),
        "truncate with a segment": B(10, [pack("<BBHIQQ", 2, 3, 1, 0, 2, 10)], 2, flags=1),
        "eof without records": B(10, [], 1),
        "run with flag 1": B(10, [run(0, 2, 0)], 2, refs=[t.ref()], flags=1),
        "kind 5": B(10, [pack("<BBHIQ", 5, 2, 0, 0, 0)], 0),
        "hole of 16 bytes": B(10, [pack("<BBHIQ", 4, 2, 0, 0, 0)], 0),
        "hole of no bytes": B(10, [t.hole(0, 0)], 0),
        "hole past eof": B(10, [t.hole(0, 2)], 1),
        "eof past the holes": B(10, [t.hole(0, 2)], 3),
        "hole past 2^63-1": B(10, [t.hole(2**63 - 1, 1)], 2**63),
        "hole newer than its block": B(10, [t.hole(0, 2, 11)], 2),
        "hole with a count": B(10, [t.hole(0, 2, count=1)], 2),
        "hole with a segment": B(10, [t.hole(0, 2, segref=1)], 2),
        "truncate and hole": B(10, [truncate(2, 9), t.hole(0, 2)], 2, refs=[], flags=1),
        "nest of 16 bytes": B(10, [pack("<BBHIQ", 3, 2, 0, 0, 0)], 0),
        "nest that overlaps": B(10, [nest(0, 1, 0, 2, 2, 2, 2)], 5),
        "kind 0": B(10, [pack("<BBHIQ", 0, 2, 0, 0, 0)], 0),
        "run of 48 bytes": B(10, [pack("<BBHIQQqQII", 1, 6, 0, 1, 0, 2, 0, 0, 7, 0)], 2),
        "record of length 0": B(10, [pack("<BBHI", 200, 0, 0, 0)], 0),
        "record past the payload": B(10, [pack("<BBHI", 200, 2, 0, 0)], 0),
        "host name past its record": B(
            10, [pack("<BBHIIIIIQQHHI", 128, 6, 0, 0, 7, 1, 0, 0, 1, 2, 60, 0, 0)], 0
        ),
        "fewer records than the payload": B(
            10, [run(0, 2, 0), bytes([200, 1]) + bytes(6)], 2, count=1
        ),
        "more records than the payload": B(10, [run(0, 2, 0)], 2, count=2),
    }
    right = {
        "nothing in a block": [B(10, [], 0)],
        "a nest": [B(10, [nest(0, 1, 0, 2, 2, 5, 2)], 8)],
        "unknown kind 200": [B(10, [bytes([200, 2]) + bytes(14), run(0, 2, 0)], 2)],
        "writer in a truncate block": [
            B(10, [run(0, 4, 0)], 4),
            B(11, [t.writer(), truncate(3)], 3, flags=1),
        ],
        "holes": [
            B(10, [run(0, 4, 0, stamp=9), t.hole(1, 2)], 4),
            B(11, [t.hole(9, 1)], 10, refs=[]),
        ],
        "negative stride": [B(10, [run(8, 1, 0, -3, 3)], 9)],
        "stamps below the block's": [B(10, [run(0, 2, 0, stamp=9), run(1, 2, 2, stamp=8)], 3)],
        "truncate older than its run": [
            B(10, [run(0, 4, 0)], 4),
            B(11, [truncate(1, 9)], 1, flags=1),
        ],
        "durable data": [
            B(10, [run(0, 2, 0)], 2, flags=2),
            B(11, [run(2, 2, 2)], 4, durable=3),
            B(12, [truncate(3)], 3, flags=3),
        ],
        "far names that nothing names": [
            B(
                10,
                [run(0, 2, 0)],
                2,
                refs=[t.ref(), t.ref(stream=255, segment=2**32 - 1, backend=0xFFFE)],
            )
        ],
        "references to another set": [B(10, [run(0, 2, 0)], 2, refs=[t.ref(), t.ref(t.OTHER)])],
    }
    for what, block in wrong.items():
        yield what, t.log(block), True
    flipped = bytearray(t.log(B(1 << 60, [run(0, 2, 0)], 2), B((1 << 60) + 1, [run(0, 2, 2)], 2)))
    for at in (0, 5, 20, 70, 130):
        yield (
            f"bit of byte {at} flipped",
            bytes(flipped[:at]) + bytes([flipped[at] ^ 16]) + bytes(flipped[at + 1 :]),
            True,
        )
    for what, tail in (
        ("cut", t.block(len(t.pad(bytes(flipped))), 1 << 62, [run(0, 1, 0)], 1)[:90]),
        ("zeros", bytes(300)),
    ):
        yield (
            f"{what} at the end",
            bytes(flipped).ljust(len(t.pad(bytes(flipped))), b"\0") + tail,
            False,
        )
    for what, stamp in (("the same stamp twice", 10), ("a block older than the one before", 9)):
        yield what, t.log(B(10, [run(0, 2, 0)], 2), B(stamp, [run(2, 2, 2)], 4)), True
    for what, blocks in right.items():
        yield what, t.log(*blocks), False


def compare_by_hand(plfs, index, refuse):
    """None, or how the readers differ from what they should do."""
    import test_decode as t

    case = t.Decoder("test_crc")
    case.setUp()
    try:
        case.fill(index, b"aaaa")
        decoder = child.run(plfs_decode.main, "plfs_decode", "cat", case.name)
        engine = subprocess.run([plfs, "cat", case.name], capture_output=True)
    finally:
        case.doCleanups()
    texts = [done.stderr.decode().strip()[-300:] or done.stdout for done in (decoder, engine)]
    if (decoder.returncode != 0, engine.returncode != 0) != (refuse, refuse) or (
        not refuse and decoder.stdout != engine.stdout
    ):
        return f"must be {'refused' if refuse else 'read'}: decoder {decoder.returncode} {texts[0]}; plfs cat {engine.returncode} {texts[1]}"


def compare_flat(plfs, raw, wrong, late=None):
    """The same for a flat index made by hand: used if it is right, ignored if a CRC is wrong or a
    late block has no place in it.
    The engine survives one that contradicts the document."""
    import test_decode as t

    case = t.Decoder("test_crc")
    stamp, state, want = late or (None, "damaged" if wrong else "valid", t.TURNS)
    case.setUp()
    try:
        for log_set, index, data in t.TURNS_LOGS + (
            [(t.OTHER + 1, t.late(stamp), b"XXXX")] if late else []
        ):
            case.fill(index, data, log_set)
        case.put("flat", raw)
        ours = child.run(flat_index.main, "flat_index", "cat", case.name)
        our_stat = child.run(print_stat, "stat", case.name)
        theirs, their_stat = [
            subprocess.run([*command, case.name], capture_output=True)
            for command in ([plfs, "cat"], [plfs, "stat", "--json"])
        ]
    finally:
        case.doCleanups()
    if ours.stdout != want or json.loads(our_stat.stdout)["flat"] != state:
        return f"decoder: {ours.stdout}, {our_stat.stdout.decode()}"
    unused = b'"flat": "used"' not in their_stat.stdout  # a stat looks at no records
    if (
        not wrong
        and unused
        or theirs.stdout != want
        and (not wrong or "CRC" in wrong)
        or {theirs.returncode, their_stat.returncode} - {0, 1}
    ):
        return f"plfs: status {theirs.returncode}, {theirs.stdout}, {their_stat.stdout.decode()}, {theirs.stderr.decode()}"


def main():
    if sys.argv[1:2] == ["--do"]:
        name, path, seed, rank, ranks = sys.argv[2:]
        return globals()[name](path, random.Random(int(seed)), int(rank), int(ranks))
    if sys.argv[1:2] == ["--stat"]:
        del sys.argv[1]
        return print_stat()
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("build")
    p.add_argument("--seed", type=int, default=int(os.environ.get("PLFS_SEED", "1")))
    p.add_argument("--rounds", type=int, default=1, help="repeat with the following seeds")
    p.add_argument("--only", default="", help="cases with this word in their names")
    p.add_argument("--keep", action="store_true", help="leave the files of failed cases behind")
    a = p.parse_args()

    def result(name, why):
        print(f"not ok {name}: {why}" if why else f"ok {name}", flush=True)

    for seed in range(a.seed, a.seed + a.rounds):
        for name, steps in CASES if a.only else in_turn(CASES, seed):
            if a.only not in name:
                continue
            begin = time.monotonic()
            # Chance may leave a flat index without the part that the case is for: then another seed
            # has to show it.
            for turn in range(5):
                base, why, is_chance = tempfile.mkdtemp(prefix="plfs-agree."), None, False
                try:
                    agree = Agree(
                        os.path.abspath(a.build),
                        base,
                        f"{seed} {name}" + (f" {turn}" if turn else ""),
                    )
                    for i, step in enumerate(steps):
                        is_chance = isinstance(step, str) and step.startswith("has ")
                        if isinstance(step, dict):
                            agree.program(step)
                        else:
                            method, *words = step.split()
                            getattr(agree, method)(*words)
                        is_chance = False
                        agree.compare()
                except (Failed, OSError, ValueError, KeyError) as e:
                    why = (
                        f"seed {seed}, step {i + 1} ({step if isinstance(step, str) else step['program']}): {e!r}"
                        + (f"; kept {base}" if a.keep else "")
                    )
                    if agree.holder:
                        agree.holder.kill()
                if not (why and a.keep):
                    shutil.rmtree(base, ignore_errors=True)
                if not (why and is_chance):
                    break
            result(f"{name} ({time.monotonic() - begin:.1f} s)", why)
    for what, index, refuse in by_hand():
        if a.only in f"by hand: {what}":
            result(
                f"by hand: {what}",
                compare_by_hand(os.path.join(a.build, "bin", "plfs"), index, refuse),
            )
    import test_decode

    for what, raw, wrong in test_decode.flats():
        if a.only in f"flat index by hand: {what}":
            result(
                f"flat index by hand: {what}",
                compare_flat(os.path.join(a.build, "bin", "plfs"), raw, wrong),
            )
    for late in test_decode.LATE:
        if a.only in "flat index by hand: late":
            result(
                f"flat index by hand: late by {late[0]}",
                compare_flat(
                    os.path.join(a.build, "bin", "plfs"), next(test_decode.flats())[1], None, late
                ),
            )


if __name__ == "__main__":
    sys.exit(main())
