"""Tests of plfs_decode.py and flat_index.py on containers made here, by an encoder written from
docs/FORMAT.md alone.

python3 -m unittest discover -s tests/decoder
"""

import json, os, random, re, struct, subprocess, sys, tempfile, unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import agree, child, flat_index, plfs_decode
from plfs_decode import crc32c

PROGRAMS = {
    "records": [plfs_decode.main, "plfs_decode", "records"],
    "cat": [plfs_decode.main, "plfs_decode", "cat"],
    "cat through flat": [flat_index.main, "flat_index", "cat"],
    "stat": [agree.print_stat, "stat"],
}

UUID = bytes.fromhex("00112233445566778899aabbccddeeff")
SET, OTHER = 0x0BADCAFE, 0x1BADCAFE
TOKEN = 300_000_000  # a second of 1979


def superblock(root, major=1, incompatible=0, streams=4, workload=1, names=1, backends=(0,)):
    path = os.fsencode(root)
    part = (
        struct.pack(
            "<HHQQ16sQIIIHHHHIQH",
            major,
            0,
            incompatible,
            0,
            UUID,
            1,
            0o644,
            0,
            0,
            workload,
            streams,
            0,
            names,
            0,
            1 << 30,
            len(backends),
        )
        + struct.pack(f"<{len(backends)}HH", *backends, len(path))
        + path
    )
    part = part.ljust(3072 - 76, b"\0")
    banner = b"A PLFS file; its bytes are in .plfs.".ljust(63) + b"\n"
    return (banner + b"\x89PLFS\r\n\x1a" + struct.pack("<I", crc32c(part)) + part).ljust(
        4093, b"\0"
    )


def ref(log_set=SET, stream=0, segment=0, backend=0, kind=0, codec=0):
    return struct.pack("<IIHHBBH", log_set, segment, stream, backend, kind, codec, 0)


def run(logical, length, physical, stride=0, count=1, segref=0, stamp=None):
    """Without a stamp the block gives its own."""
    return lambda own: struct.pack(
        "<BBHIQQqQIIQ",
        1,
        7,
        segref,
        count,
        logical,
        length,
        stride,
        physical,
        7,
        0,
        own if stamp is None else stamp,
    )


def hole(logical, length, stamp=None, segref=0, count=0):
    return lambda own: struct.pack(
        "<BBHIQQIIQ", 4, 5, segref, count, logical, length, 7, 0, own if stamp is None else stamp
    )


def truncate(size, stamp=None):
    return lambda own: struct.pack("<BBHIQQ", 2, 3, 0, 0, size, own if stamp is None else stamp)


def writer(host=b"node1"):
    text = struct.pack("<IIIIQQH", 7, 4711, 0, 0, 1, 2, len(host)) + host
    units = -(-(8 + len(text)) // 8)
    return (struct.pack("<BBHI", 128, units, 0, 0) + text).ljust(8 * units, b"\0")


def sums(physical, length, unit, *crcs, boot=1, segref=0, count=None):
    n = len(crcs) if count is None else count
    text = struct.pack("<QQQII", boot, physical, length, unit, 0) + struct.pack(
        f"<{len(crcs)}I", *crcs
    )
    units = -(-(8 + len(text)) // 8)
    return (struct.pack("<BBHI", 129, units, segref, n) + text).ljust(8 * units, b"\0")


def block(at, stamp, records, eof, refs=None, flags=0, log_set=SET, durable=0, count=None):
    if refs is None:
        refs = [] if flags & 1 else [ref(log_set)]
    body = b"".join(refs) + b"".join(r if isinstance(r, bytes) else r(stamp) for r in records)
    rest = struct.pack(
        "<II8sQQQIIHHI",
        crc32c(body),
        len(body),
        UUID[:8],
        stamp,
        at,
        eof,
        log_set,
        len(records) if count is None else count,
        len(refs),
        flags,
        durable,
    )
    return b"PLIX" + struct.pack("<I", crc32c(rest)) + rest + body


def pad(raw):
    return raw + bytes(-len(raw) % 64)


def log(*blocks, log_set=SET):
    """Blocks are the arguments of block() after `at`, or raw bytes."""
    raw = b""
    for b in blocks:
        raw = pad(raw)
        raw += b if isinstance(b, bytes) else block(len(raw), *b[0], log_set=log_set, **b[1])
    return raw


def B(*args, **kw):
    return args, kw


def column(values, shift=0):
    values = list(values)
    base = min(values, default=0)
    fields = [v - base >> shift for v in values]
    bits, low = (
        max((f.bit_length() for f in fields), default=0),
        base.to_bytes((base.bit_length() + 7) // 8, "little"),
    )
    number = sum(f << i * bits for i, f in enumerate(fields))
    return (
        struct.pack("<H", bits | shift << 7 | len(low) << 12)
        + low
        + number.to_bytes((len(fields) * bits + 7) // 8, "little")
    )


def pad8(raw):
    return raw + bytes(-len(raw) % 8)


def axis(stride, count, physical=0, segment=0, tabled=0):
    return struct.pack("<QqqII", stride, physical, segment, count, tabled)


def shape(*axes, table=()):
    body = pad8(b"".join(axes) + b"".join(column(values) for values in zip(*table)))
    return struct.pack("<II", len(axes), 8 + len(body)) + body


def extents(*rows):
    """A block. A row: gap length segment physical, and stamp, index of the log set if it is
    ordered."""
    return pad8(
        bytes([len(rows) - 1, len(rows[0]) == 6])
        + b"".join(column(values) for values in zip(*rows))
    )


def flat(
    entries,
    refs,
    covered,
    cuts=(),
    size=0,
    newest=99,
    stored=11,
    records=3,
    shapes=(),
    blocks=(),
    n=0,
    floor=0,
    **head,
):
    """An entry: first end length stride physical stamp set shape count segment; a block: first,
    bytes; n: extents in the blocks; head: wrong numbers."""
    rows = sorted(entries, key=lambda x: (x[0], *x[5:7]))
    top = [0] * len(rows)

    def tree(a, b):
        if a >= b:
            return 0
        m = (a + b) // 2
        top[m] = max(rows[m][1], tree(a, m), tree(m + 1, b))
        return top[m]

    tree(0, len(rows))
    segments, sets = [struct.unpack_from("<IIHH", r) for r in refs], [s for s, _ in covered]
    owners = sorted({x[0] for x in segments})
    columns = (
        sets,
        [0] * len(sets),
        [length for _, length in covered],
        [sets.index(o) for o in owners],
        [sum(x[0] == o for x in segments) for o in owners],
        [x[2] for x in segments],
        [x[3] for x in segments],
        [x[1] for x in segments],
        [stored] * len(segments),
    )
    tables = pad8(b"".join(map(column, columns)) + b"".join(struct.pack("<QIIQ", *c) for c in cuts))
    body = (
        tables
        + b"".join(shapes)
        + b"".join(struct.pack("<QQQQqQQIIII", r[0], r[1], t, *r[2:]) for r, t in zip(rows, top))
    )
    packed = b"".join(raw for _, raw in blocks)
    for i, (first, raw) in enumerate(blocks):
        body += struct.pack("<QII", first, sum(len(raw) for _, raw in blocks[:i]) // 8, crc32c(raw))
    numbers = {
        "size": size,
        "records": records,
        "newest": newest,
        "sets": len(sets),
        "segments": len(segments),
        "cuts": len(cuts),
        "shapes": len(shapes),
        "entries": len(rows),
        "shape_bytes": sum(map(len, shapes)),
        "blocks": len(blocks),
        "owners": len(owners),
        "extents": n,
        "block_bytes": len(packed),
        "table_bytes": len(tables),
        "floor": floor,
    } | head
    head = struct.pack("<I16sQQQIIIIQQIIQQQQ", crc32c(body), UUID, *numbers.values())
    return b"PLFSFLT4" + struct.pack("<I", crc32c(head)) + head + body + packed


# Two log sets in turns: a piece of one, a piece of the other, three times; the same again at 20.
TURNS = b"aaAAbbBBccCC" + bytes(8) + b"ddDDeeEEffFF"
TURNS_LOGS = [
    (SET, log(B(10, [run(i * 20, 2, i * 6, 4, 3) for i in (0, 1)], 30)), b"aabbccddeeff"),
    (
        OTHER,
        log(B(11, [run(i * 20 + 2, 2, i * 6, 4, 3) for i in (0, 1)], 32), log_set=OTHER),
        b"AABBCCDDEEFF",
    ),
]

# What a writer who lags behind adds: its stamp, whether the flat index can be used with it, the
# bytes.
LATE = (
    (10, "stale", b"XXAA" + TURNS[4:]),
    (11, "stale", b"XXXX" + TURNS[4:]),
    (12, "valid", b"XXXX" + TURNS[4:]),
)


def late(stamp):
    return log(B(stamp, [run(0, 4, 0)], 4), log_set=OTHER + 1)


def flats():
    """Flat indexes of these logs: (what, bytes, None or what the decoder says against it)."""

    def make(entries, shapes=(), **parts):
        return flat(
            entries,
            [ref(), ref(OTHER)],
            [(log_set, len(index)) for log_set, index, _ in TURNS_LOGS],
            shapes=shapes,
            **{"size": 32, "newest": 11, "stored": 12, "records": 4, "floor": 11} | parts,
        )

    def entry(first, end, physical=0, segment=0, shape=1):
        return (first, end, 2, 0, physical, 0, 0, shape, 1, segment)

    both, half = entry(0, 32), entry(0, 12)
    far, near, sets = axis(20, 2, 6), axis(4, 3, 2), axis(2, 2, 0, 1)
    rows = [[(0, 2, i % 2, j * 6 + i // 2 * 2) for i in range(6)] for j in (0, 1)]
    blocks = [(0, extents(*rows[0])), (20, extents(*rows[1]))]
    yield "axes", make([both], [shape(far, near, sets)]), None
    yield "two entries", make([half, entry(20, 32, 6)], [shape(near, sets)]), None
    yield (
        "table",
        make([both], [shape(far, near, axis(2, 2, tabled=1), table=[(0, 0), (1, 0)])]),
        None,
    )
    two = axis(20, 2, tabled=1), near, axis(2, 2, tabled=1)
    yield (
        "table of two axes",
        make([both], [shape(*two, table=[(0, 0), (1, 0), (0, 6), (1, 6)])]),
        None,
    )
    yield (
        "table and axis",
        make([both], [shape(far, near, axis(2, 2, -9, -1, 1), table=[(0, 0), (2, 9)])]),
        None,
    )
    yield (
        "axis, backwards",
        make([both], [shape(axis(20, 2, -6, tabled=1), near, sets, table=[(0, 0), (0, 12)])]),
        None,
    )
    yield "blocks", make([], blocks=blocks, n=12), None
    ordered = [(20, extents(*(r + (10 + i % 2, i % 2) for i, r in enumerate(rows[1]))))]
    yield (
        "a shape and an ordered block",
        make([half], [shape(near, sets)], blocks=ordered, n=6),
        None,
    )
    runs = [
        (at + 2 * i, at + 2 * i + 10, 2, 4, at * 6 // 20, 11, 2**32 - 1, 0, 3, i)
        for i in (0, 1)
        for at in (0, 20)
    ]
    yield "entries without order", make(runs), None
    damaged = bytearray(make([], blocks=blocks, n=12))
    damaged[-20] ^= 1
    yield "a bit of a block flipped", bytes(damaged), "wrong CRC of a block"
    gap = 0, extents((9,) + rows[0][0][1:], *rows[0][1:])
    yield (
        "a gap in front of the first extent",
        make([], blocks=[gap, blocks[1]], n=12),
        "first extent",
    )
    yield "floor 0", make([both], [shape(far, near, sets)], floor=0), "does not fit its shape"
    yield "overlapping pieces", make([both], [shape(far, near, axis(1, 2, 0, 1))]), "overlap"
    yield (
        "shape and block overlap",
        make([both], [shape(far, near, sets)], blocks=blocks[1:], n=6),
        "share a byte",
    )
    yield "blocks in another order", make([], blocks=blocks[::-1], n=12), "not sorted"
    yield "fewer extents than it says", make([], blocks=blocks, n=13), "behind the blocks"
    yield "more extents than it says", make([], blocks=blocks, n=11), "behind the blocks"
    yield "no axis", make([both], [shape()]), "shape of 0 axes"
    yield "nine axes", make([both], [shape(*[sets] * 9)]), "shape of 9 axes"
    yield "axis of one", make([both], [shape(axis(20, 1, 6), near, sets)]), "axis or table"
    yield (
        "huge table",
        make([both], [shape(axis(20, 10**9, tabled=1), table=[(0, 0)])]),
        "axis or table",
    )
    yield "no such shape", make([entry(0, 32, shape=2)], [shape(far, near, sets)]), "out of range"
    yield "no such segment", make([both], [shape(far, near, axis(2, 2, 0, 2))]), "no segment"
    yield (
        "segment in front of the first",
        make([both], [shape(far, near, axis(2, 2, 0, -1))]),
        "no segment",
    )
    yield "bytes behind a segment", make([both], [shape(axis(20, 2, 8), near, sets)]), "more bytes"
    yield (
        "bytes in front of a segment",
        make([both], [shape(axis(20, 2, -6), near, sets)]),
        "physical -6",
    )
    yield "another end", make([entry(0, 33)], [shape(far, near, sets)]), "does not fit its shape"
    yield "too many log sets", make([both], [shape(far, near, sets)], sets=10**9), "too many"
    yield "too many segments", make([both], [shape(far, near, sets)], segments=10**9), "too many"
    young = [(0, extents(*(r + (12, 0) for r in rows[0])))]
    yield (
        "a record younger than the largest stamp",
        make([], blocks=young, n=6, size=12),
        "above the largest",
    )


class Decoder(unittest.TestCase):
    def setUp(self):
        temp = tempfile.TemporaryDirectory()
        self.addCleanup(temp.cleanup)
        self.root, self.name = temp.name, os.path.join(temp.name, "out", "f")
        self.dir = os.path.join(self.root, ".plfs", UUID.hex()[:2], UUID.hex()[2:])
        os.makedirs(self.dir)
        os.mkdir(os.path.dirname(self.name))
        self.put("super", superblock(self.root))
        os.link(os.path.join(self.dir, "super"), self.name)

    def put(self, name, data):
        path = os.path.join(self.dir, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            f.write(data)

    def fill(self, index, data, log_set=SET):
        self.put(f"{log_set:08x}/index", index)
        self.put(f"{log_set:08x}/00.00000000.data", data)

    def decode(self, command, name=None, code=0):
        """stdout and stderr of one run."""
        done = child.run(*PROGRAMS[command], name or self.name)
        self.assertEqual(done.returncode, code, done.stderr.decode())
        return done.stdout, done.stderr.decode()

    def cat(self, **kw):
        return self.decode("cat", **kw)[0]

    def cat_flat(self, **kw):
        return self.decode("cat through flat", **kw)[0]

    def stat(self, **kw):
        return json.loads(self.decode("stat", **kw)[0])

    def worked_example(self):
        self.fill(log(B(1 << 16, [run(0, 3, 0, 10, 3)], 23, flags=2)), b"aaabbbccc")

    def test_crc(self):
        self.assertEqual(crc32c(b"123456789"), 0xE3069283)

    def test_worked_example(self):
        self.worked_example()
        self.assertEqual(self.cat(), b"aaa" + bytes(7) + b"bbb" + bytes(7) + b"ccc")
        s = self.stat()
        self.assertEqual(
            (
                s["size"],
                s["stored_bytes"],
                s["index_logs"],
                s["blocks"],
                s["records"],
                s["index_bytes"],
                s["data_logs"],
            ),
            (23, 9, 1, 1, 1, 136, 1),
        )
        self.assertEqual(
            (s["places"], s["summary"], s["flat"], s["uuid"]), ([], "none", "none", UUID.hex())
        )

    def test_bytes_of_the_worked_example(self):
        """§10, as it stands in the document."""
        with open(os.path.join(HERE, "..", "..", "docs", "FORMAT.md"), encoding="utf-8") as f:
            dump = f.read().split("## 10. Worked example")[1].split("```")[1]
        rows = [
            re.match(r" *\d+  ((?:[0-9a-f]{2} +){8,16})", line + " ")[1]
            for line in dump.strip("\n").split("\n")
        ]
        self.assertEqual(
            bytes.fromhex("".join(rows)), log(B(1 << 16, [run(0, 3, 0, 10, 3)], 23, flags=2))
        )

    def put_backend(self, path, number=1, identity=b"ab" * 16, there=b"ab" * 16, state=b"active"):
        """An entry of the table, and the directory."""
        os.makedirs(os.path.join(self.root, ".plfs", "backends"), exist_ok=True)
        with open(os.path.join(self.root, ".plfs", "backends", f"{number:04x}"), "wb") as f:
            f.write(
                b"plfs-backend 1\nidentity "
                + identity
                + b"\nstate "
                + state
                + b"\npath "
                + os.fsencode(path).replace(b"\\", b"\\\\").replace(b"\n", b"\\n")
                + b"\n"
            )
        os.makedirs(os.path.join(path, ".plfs"), exist_ok=True)
        with open(os.path.join(path, ".plfs", "identity"), "wb") as f:
            f.write(b"plfs-identity 1\nidentity " + there + b"\n")

    def test_backends(self):
        with tempfile.TemporaryDirectory() as temp:
            for number, name in ((1, "plain"), (0xFFFE, "a\nb\\c")):
                other = os.path.join(temp, name)
                data = os.path.join(
                    other, ".plfs", UUID.hex()[:2], UUID.hex()[2:], f"{SET:08x}", "07.ffffffff.data"
                )
                self.put_backend(other, number)
                os.makedirs(os.path.dirname(data))
                with open(data, "wb") as f:
                    f.write(b"there")
                self.fill(
                    log(
                        B(
                            10,
                            [run(0, 5, 0)],
                            5,
                            refs=[ref(stream=7, segment=2**32 - 1, backend=number)],
                        )
                    ),
                    b"",
                )
                self.assertEqual(self.cat(), b"there")
            self.put_backend(other, number, there=b"cd" * 16)
            self.assertIn("is another backend than fffe", self.decode("cat", code=1)[1])
            os.unlink(os.path.join(other, ".plfs", "identity"))
            self.assertIn("is not at", self.decode("cat", code=1)[1])
            for wrong in ({"identity": b"00" * 16}, {"state": b"new"}, {"identity": b"AB" * 16}):
                self.put_backend(other, number, **wrong)
                self.assertIn("fffe: ", self.decode("cat", code=1)[1])
            os.unlink(os.path.join(self.root, ".plfs", "backends", "fffe"))
            self.assertIn("fffe is unknown", self.decode("cat", code=1)[1])

    def test_empty_file(self):
        self.assertEqual(self.cat(), b"")
        self.assertEqual(self.stat()["size"], 0)

    def test_overlap_newest_wins(self):
        self.fill(
            log(
                B(8, [writer()], 0),
                B(10, [run(0, 10, 0, stamp=9), run(4, 2, 10)], 10),
                B(11, [run(8, 4, 12)], 12),
            ),
            b"a" * 10 + b"bbcccc",
        )
        self.assertEqual(self.cat(), b"aaaabbaacccc")
        rows = [json.loads(line) for line in self.decode("records")[0].splitlines()]
        self.assertEqual([r["kind"] for r in rows], ["writer", "run", "run", "run"])
        self.assertEqual(rows[0]["host"], "node1")

    def test_old_block_in_another_log_loses(self):
        self.fill(log(B(20, [run(0, 4, 0)], 4)), b"AAAA")
        self.fill(log(B(10, [run(0, 8, 0)], 8), log_set=OTHER), b"bbbbbbbb", OTHER)
        self.assertEqual(self.cat(), b"AAAAbbbb")

    def test_record_stamps_decide_not_the_blocks(self):
        """The order is fixed when a run begins: a block that comes late does not make its runs
        newer."""
        self.fill(log(B(30, [run(0, 4, 0, stamp=5)], 4)), b"AAAA")
        self.fill(log(B(10, [run(2, 4, 0)], 6), log_set=OTHER), b"bbbb", OTHER)
        self.assertEqual(self.cat(), b"AAbbbb")
        self.fill(
            log(
                B(30, [run(0, 1, 0, stamp=9), run(0, 1, 1, stamp=8)], 1),
                B(40, [truncate(1, 7)], 1, flags=1),
            ),
            b"xy",
        )
        self.fill(b"", b"", OTHER)
        self.assertEqual(self.cat(), b"x")
        self.assertEqual(
            [json.loads(r)["order"][0] for r in self.decode("records")[0].splitlines()], [7, 8, 9]
        )

    def test_equal_stamp_larger_set_wins(self):
        self.fill(log(B(10, [run(0, 4, 0)], 4)), b"AAAA")
        self.fill(log(B(10, [run(2, 4, 0)], 6), log_set=OTHER), b"bbbb", OTHER)
        self.assertEqual(self.cat(), b"AAbbbb")

    def test_negative_stride(self):
        self.fill(log(B(10, [run(8, 2, 0, -4, 3)], 10)), b"xxyyzz")
        self.assertEqual(self.cat(), b"zz\0\0yy\0\0xx")

    def test_truncate_down_then_up(self):
        self.fill(
            log(
                B(10, [run(0, 3, 0, 5, 4)], 18),
                B(11, [truncate(6)], 6, flags=1),
                B(12, [truncate(20)], 20, flags=1),
                B(13, [run(16, 1, 12)], 17),
            ),
            b"aaabbbcccdddE",
        )
        self.assertEqual(self.cat(), b"aaa\0\0b" + bytes(10) + b"E" + bytes(3))
        self.assertEqual(self.stat()["size"], 20)

    def test_truncate_cuts_a_late_log_too(self):
        self.fill(log(B(11, [truncate(2)], 2, flags=1)), b"")
        self.fill(log(B(10, [run(0, 4, 0)], 4), log_set=OTHER), b"bbbb", OTHER)
        self.assertEqual(self.cat(), b"bb")

    def test_random_against_a_model(self):
        for seed in range(20):
            rng, data, model, blocks = random.Random(seed), b"", bytearray(), []
            for stamp in range(1, 40):
                if rng.random() < 0.15:
                    size = rng.randrange(400)
                    model = model[:size].ljust(size, b"\0")
                    blocks.append(B(stamp, [truncate(size)], size, flags=1))
                    continue
                length, count = rng.randrange(1, 20), rng.randrange(1, 6)
                stride = rng.choice((1, -1)) * (length + rng.randrange(9)) if count > 1 else 0
                logical = rng.randrange(200) + (0 if stride >= 0 else -stride * (count - 1))
                bytes_ = rng.randbytes(length * count)
                end = max(logical, logical + stride * (count - 1)) + length
                blocks.append(B(stamp, [run(logical, length, len(data), stride, count)], end))
                model.extend(bytes(max(0, end - len(model))))
                for i in range(count):
                    at = logical + i * stride
                    model[at : at + length] = bytes_[i * length : (i + 1) * length]
                data += bytes_
            self.fill(log(*blocks), data)
            c = plfs_decode.Container(self.name)
            with open(os.path.join(self.root, "model"), "w+b") as out:
                c.write_to(out.fileno())
                self.assertEqual(out.seek(0) or out.read(), bytes(model), f"seed {seed}")
            self.assertEqual(self.stat()["places"], [], f"seed {seed}")

    def test_sparse_to_the_end_of_the_range(self):
        self.fill(log(B(10, [run(2**63 - 2, 1, 0)], 2**63 - 1)), b"z")
        self.assertEqual(self.stat()["size"], 2**63 - 1)

    def test_torn_block_between_valid_ones(self):
        whole = log(B(10, [run(0, 2, 0)], 2))
        torn = block(len(pad(whole)), 11, [run(0, 2, 2)], 2)[:100]
        self.fill(log(whole, torn, B(12, [run(1, 2, 4)], 3)), b"aabbcc")
        out, text = self.decode("cat")
        self.assertEqual(out, b"acc")
        self.assertIn("at byte 192: no valid block in 128 bytes", text)
        self.assertEqual([p["kind"] for p in self.stat()["places"]], ["skipped"])

    def test_torn_tail(self):
        self.fill(log(B(10, [run(0, 2, 0)], 2), block(192, 11, [run(0, 2, 2)], 2)[:-1]), b"aabb")
        self.assertEqual(self.cat(), b"aa")
        self.assertEqual([p["kind"] for p in self.stat()["places"]], ["torn"])
        self.put(f"{SET:08x}.open", b"")
        self.assertEqual([p["kind"] for p in self.stat()["places"]], ["unfinished"])

    def test_bit_flip_in_a_block(self):
        raw = bytearray(log(B(1 << 60, [run(0, 2, 0)], 2), B((1 << 60) + 1, [run(0, 2, 2)], 2)))
        raw[64 + 20] ^= 1
        self.fill(bytes(raw), b"aabb")
        self.assertEqual(self.cat(code=1), b"")
        self.assertIn("corrupt", self.decode("cat", code=1)[1])

    def test_what_crashes_leave(self):
        whole = pad(log(B(10, [run(0, 2, 0)], 2)))
        late = pad(block(len(whole), 1 << 60, [run(i, 1, 2) for i in range(40)], 40))
        hole = late[:320] + bytes(512) + late[832:]
        for tail in (late[:3], late[:50], late[:64], late[:700], hole, bytes(500)):
            for end in (b"", block(len(pad(whole + tail)), 1 << 61, [run(1, 1, 3)], 2)):
                self.fill((pad(whole + tail) if end else whole + tail) + end, b"aabb")
                self.assertEqual(self.cat(), b"ab" if end else b"aa")
        for junk in (b"PLIX" * 20, b"hello", late[64:], late[:100] + b"?" + late[101:]):
            self.fill(whole + junk, b"aabb")
            self.assertEqual(self.cat(code=1), b"")

    def test_nests(self):
        def nest(count, rows, planes, stride=3, row=10, plane=30):
            return lambda own: (
                b"\3\n"
                + run(0, 1, 0, stride, count)(own)[2:]
                + struct.pack("<qqII", row, plane, rows, planes)
            )

        want = bytearray(44)
        for i, at in enumerate([0, 3, 10, 13, 30, 33, 40, 43]):
            want[at] = ord("a") + i
        self.fill(log(B(10, [nest(2, 2, 2)], 44)), b"abcdefgh")
        self.assertEqual(self.cat(), bytes(want))
        for wrong in (
            nest(1, 2, 2, stride=0),
            nest(2, 1, 2),
            nest(2, 2, 1),
            nest(2, 2, 2, row=3),
            nest(2, 2, 2, plane=13),
            nest(2, 65536, 2, row=10, plane=10**6),
        ):
            self.fill(log(B(10, [wrong], 44)), b"abcdefgh")
            self.cat(code=1)

    def test_holes(self):
        self.fill(
            log(B(10, [run(0, 6, 0, stamp=8), hole(1, 2, stamp=9), run(2, 1, 6)], 6)), b"abcdefg"
        )
        self.assertEqual(self.cat(), b"a\0gdef")
        self.fill(
            log(
                B(10, [run(0, 1, 0, 2, 3, stamp=8), hole(1, 2, stamp=9)], 5),
                B(11, [hole(8, 2)], 10, refs=[]),
            ),
            b"abc",
        )
        self.assertEqual(
            self.cat(),
            b"a\0\0\0c\0\0\0\0\0",
            "a hole hides a part of a pattern, and its end counts",
        )
        late = log(B(8, [run(0, 4, 0)], 4), log_set=OTHER)
        self.fill(log(B(9, [hole(1, 2)], 3, refs=[])), b"")
        self.fill(late, b"late", OTHER)
        self.assertEqual(self.cat(), b"l\0\0e", "what comes later and is older is hidden")

    def test_record_kinds(self):
        skipped = struct.pack("<BBHIQ", 200, 2, 0, 0, 0)
        self.fill(log(B(10, [skipped, run(0, 2, 0)], 2)), b"aa")
        self.assertEqual(self.cat(), b"aa")
        self.fill(
            log(B(10, [run(0, 2, 0)], 2), B(11, [struct.pack("<BBHIQ", 5, 2, 0, 0, 0)], 0)), b"aa"
        )
        out, text = self.decode("cat", code=1)
        self.assertEqual(out, b"")
        self.assertIn("unknown kind 5", text)

    def test_data_in_doubt(self):
        old, new = B(10, [run(0, 8, 0)], 8, flags=2), [run(2, 8, 8)]
        rights = [crc32c(b"EFGH"), crc32c(b"IJKL")]
        wrong = [sums(8, 8, 4, 5, rights[1])]
        data = b"abcdefghEFGHIJKL"
        self.fill(log(old, B(11, new + [sums(8, 8, 4, *rights)], 10)), data)
        self.assertEqual(self.cat(), b"abEFGHIJKL")
        self.fill(log(old, B(11, new + wrong, 10)), data)
        self.assertEqual(self.cat(), b"abcdefIJKL")
        # What nothing older has stays as it is, and so does the size.
        self.fill(log(old, B(11, new + [sums(8, 8, 4, rights[0], 5)], 10)), data)
        self.assertEqual(self.cat(), b"abEFGHghKL")
        self.fill(log(old, B(11, new + wrong, 10)), data[:8])
        self.assertIn("segment ends", self.decode("cat", code=1)[1])
        # An older hole counts.
        hidden = B(10, [hole(0, 8)], 8, flags=2, refs=[])
        self.fill(log(hidden, B(11, new + wrong, 10)), data)
        self.assertEqual(self.cat(), bytes(6) + b"IJKL")
        # A later block of the same boot vouches; another does not.
        for boot, text in (1, b"abEFGHIJKL"), (2, b"abcdefIJKL"):
            later = B(12, [sums(0, 0, 1, boot=boot)], 0, durable=6)
            self.fill(log(old, B(11, new + wrong, 10), later), data)
            self.assertEqual(self.cat(), text)
        self.fill(log(old, B(11, new + wrong, 10, flags=2)), data)
        self.assertEqual(self.cat(), b"abEFGHIJKL")

    def test_contradictions(self):
        for what, args in {
            "eof": B(10, [run(0, 2, 0)], 3),
            "durable 1": B(10, [run(0, 2, 0)], 2, durable=1),
            "count 2": B(10, [run(0, 2, 0, 1, 2)], 3),
            "flags 0": B(10, [truncate(2)], 2, refs=[]),
            "flags 0x4: this needs a newer PLFS": B(10, [], 0, flags=4),
            "logical 9223372036854775807": B(10, [run(2**63 - 1, 1, 0)], 2**63),
            "wrong form": B(10, [run(0, 2, 0, segref=1)], 2),
            "stream=256": B(10, [run(0, 2, 0)], 2, refs=[ref(stream=256)]),
            "kind=1": B(10, [run(0, 2, 0)], 2, refs=[ref(kind=1)]),
            "kind=2": B(10, [run(0, 2, 0)], 2, refs=[ref(kind=2)]),
            "backend=65535": B(10, [run(0, 2, 0)], 2, refs=[ref(backend=65535)]),
            "codec=1": B(10, [run(0, 2, 0)], 2, refs=[ref(codec=1)]),
            "sums: count 1": B(10, [run(0, 2, 0), sums(0, 5, 4, 7)], 2),
            "sums: count 3": B(10, [run(0, 2, 0), sums(0, 9, 4, 7, count=3)], 2),
            "unit 0": B(10, [run(0, 2, 0), sums(0, 0, 0)], 2),
            "sums of a segment": B(10, [run(0, 2, 0), sums(0, 5, 4, 7, 7, segref=1)], 2),
            "payload, stamp": B(10, [run(0, 2, 0, stamp=11)], 2),
        }.items():
            self.fill(log(args), b"aaaa")
            self.assertIn(what, self.decode("stat", code=1)[1])
        self.fill(log(B(10, [run(0, 2, 0)], 2), B(10, [run(0, 2, 2)], 2)), b"aabb")
        self.assertIn("stamp 0xa", self.decode("stat", code=1)[1])

    def make_base(self, data, ino=None, whole=True):
        """§11: the name becomes a link of a base."""
        os.unlink(self.name)
        with open(self.name, "wb") as f:
            f.write(data)
        os.link(self.name, os.path.join(self.dir, "base"))
        said = f"plfs 1 c {UUID.hex()} {ino or os.stat(self.name).st_ino} "
        os.setxattr(self.name, "user.plfs", said.encode() + os.fsencode(self.root))
        self.put("super", superblock(self.root, incompatible=1))
        if not whole:
            os.unlink(os.path.join(self.dir, "super"))

    def test_a_plain_file_with_a_container(self):
        """§11: the base is below all; its records have their places."""
        self.make_base(b"pppppppppp")
        self.assertEqual(self.cat(), b"pppppppppp")
        base = ref(log_set=0, kind=1)
        self.fill(
            log(
                B(10, [run(2, 2, 0)], 4),
                B(12, [run(3, 4, 3, stamp=11)], 7, refs=[base]),
                B(20, [run(6, 1, 2)], 7),
            ),
            b"aab",
        )
        self.assertEqual(self.cat(), b"ppapppbppp")
        found = self.stat()
        self.assertEqual((found["size"], found["data_logs"], found["stored_bytes"]), (10, 2, 13))
        # A program without PLFS cuts it.
        os.truncate(self.name, 4)
        self.assertEqual(self.cat(), b"ppap\0\0b")
        os.truncate(self.name, 0)
        self.assertEqual(self.cat(), b"\0\0a\0\0\0b")

    def test_a_truncate_hides_a_base(self):
        self.make_base(b"pppppppppp")
        self.fill(log(B(10, [truncate(3)], 3, refs=[], flags=1), B(20, [run(5, 1, 0)], 6)), b"a")
        self.assertEqual(self.cat(), b"ppp\0\0a")

    def test_a_plain_file_without_its_container(self):
        for whole in (True, False):
            self.setUp()
            self.make_base(b"pp", ino=1 if whole else None, whole=whole)
            if whole:  # a copy, with a second name that is no base
                os.rename(os.path.join(self.dir, "base"), self.name + "2")
                self.put("base", b"pp")
            self.assertIn("not a PLFS name", self.decode("cat", code=1)[1])

    def test_missing_and_short_segment(self):
        self.worked_example()
        self.put(f"{SET:08x}/00.00000000.data", b"aaabbb")
        self.assertIn("0badcafe/00.00000000.data: at byte 6", self.decode("cat", code=1)[1])
        self.assertEqual(self.stat(code=1)["places"][0]["kind"], "short")
        os.unlink(os.path.join(self.dir, f"{SET:08x}/00.00000000.data"))
        self.assertEqual(self.stat(code=1)["places"][0]["kind"], "missing")

    def test_superblock_refused(self):
        flipped = bytearray(superblock(self.root))
        flipped[200] ^= 4
        for raw, text in (
            (bytes(flipped), "wrong CRC"),
            (superblock(self.root, major=2), "version 2"),
            (b"hello", "4093"),
            (superblock(self.root, incompatible=8), "0x8"),
            (superblock(self.root)[:4000], "4093"),
            (superblock(self.root, streams=0), "streams 0"),
            (superblock(self.root, names=2), "newer"),
            (superblock(self.root, workload=3), "newer"),
            (superblock(self.root, backends=()), "backends 0"),
        ):
            self.put("super", raw)
            self.assertIn(text, self.decode("stat", code=1)[1])

    def test_copy_of_a_superblock(self):
        self.worked_example()
        with open(self.name + ".copy", "wb") as f:
            f.write(superblock(self.root))
        self.assertEqual(self.cat(name=self.name + ".copy"), self.cat())
        self.assertTrue(self.stat(name=self.name + ".copy")["copy"])
        self.assertFalse(self.stat()["copy"])

    def test_name_without_container(self):
        with tempfile.TemporaryDirectory() as other:
            with open(os.path.join(other, "f"), "wb") as f:
                f.write(superblock(other))
            self.assertIn(
                "no container", self.decode("stat", name=os.path.join(other, "f"), code=1)[1]
            )

    def test_root_moved(self):
        """The superblock's path is a hint: a root works wherever it is."""
        self.worked_example()
        os.rename(self.root, self.root + ".moved")
        os.mkdir(self.root)
        self.addCleanup(lambda: subprocess.run(["rm", "-r", self.root + ".moved"]))
        self.assertEqual(len(self.cat(name=self.root + ".moved/out/f")), 23)

    def summary(self, size=23, crc=None, stored=9, stamp=1 << 16, index=136, records=1, flat=b""):
        body = UUID[:8] + struct.pack(
            "<QIIQQQQQI4sH46x",
            TOKEN,
            5,
            1,
            size,
            stored,
            stamp,
            index,
            records,
            1,
            flat[8:12],
            len(flat),
        )
        with open(self.name, "r+b") as f:
            f.seek(3072)
            f.write(b"PLSM" + struct.pack("<I", crc32c(body) if crc is None else crc) + body + flat)

    def test_summary(self):
        self.worked_example()
        self.summary()
        self.assertIn("void", self.stat()["summary"])
        os.utime(self.dir, ns=(0, TOKEN * 10**9 + 5))
        self.assertEqual(self.stat()["summary"], "valid")
        self.put(f"{SET:08x}.open", b"")
        self.assertIn("void", self.stat()["summary"])
        os.utime(self.dir, ns=(0, TOKEN * 10**9 + 5))
        self.summary(size=24)
        self.assertIn("summary says", self.decode("stat", code=1)[1])
        self.summary(crc=1)
        self.assertEqual(self.stat()["summary"], "damaged")

    def test_flat_behind_the_summary(self):
        index = log(B(10, [run(0, 2, 0, 4, 3), run(8, 2, 6, -4, 2)], 10))
        self.fill(index, b"aabbccddee")
        entries = [(0, 10, 2, 4, 0, 10, SET, 0, 3, 0), (4, 10, 2, -4, 6, 10, SET, 0, 2, 0)]
        numbers = {"newest": 10, "stored": 10, "records": 2, "size": 10}
        good = flat(entries, [ref()], [(SET, len(index))], **numbers)
        other = flat(entries[:1], [ref()], [(SET, len(index))], **numbers)
        totals = {"size": 10, "stored": 10, "stamp": 10, "index": len(index), "records": 2}
        self.put("flat", b"no flat index")
        self.summary(**totals, flat=good)
        os.utime(self.dir, ns=(0, TOKEN * 10**9 + 5))
        self.assertEqual(
            [self.stat()[key] for key in ("summary", "flat", "places")], ["valid", "valid", []]
        )
        self.assertEqual(self.cat_flat(), self.cat())
        self.summary(**totals, flat=other)  # it is what is read, and checked
        self.assertNotEqual(self.cat_flat(), self.cat())
        self.summary(**totals, flat=good[:-1] + b"\1")
        self.assertIn("wrong length or CRC", self.decode("stat", code=1)[1])
        self.summary(**totals, flat=good)
        os.utime(self.dir)  # void, with all that is behind it
        self.assertEqual(
            [self.stat(code=1)[key] for key in ("summary", "flat")],
            ["void: the token is not the directory's time", "damaged"],
        )

    def test_flat(self):
        index = log(
            B(10, [run(0, 2, 0, 4, 3), run(8, 2, 6, -4, 2)], 10), B(11, [truncate(9)], 9, flags=1)
        )
        newer = log(index, B(12, [run(1, 1, 10)], 2))
        self.fill(newer, b"aabbccddeeX")
        entries = [(0, 10, 2, 4, 0, 10, SET, 0, 3, 0), (4, 10, 2, -4, 6, 10, SET, 0, 2, 0)]
        good = flat(entries, [ref()], [(SET, len(index))], [(11, SET, 0, 9)], size=9)
        self.put("flat", good)
        self.assertEqual(self.cat_flat(), b"aX\0\0ee\0\0d")
        self.assertEqual(self.cat_flat(), self.cat())
        self.assertEqual(self.stat()["flat"], "valid")
        self.fill(index, b"aabbccddeeX")  # a flat index that covers all must have the logs' numbers
        self.assertIn(
            "flat index says {'size': 9, 'stored_bytes': 11, 'stamp': 99, 'records': 3, 'data_logs': 1}, the logs {'index_logs': 1",
            self.decode("stat", code=1)[1],
        )
        self.fill(newer, b"aabbccddeeX")
        self.put("flat", good[:-1] + b"\1")
        self.assertIn("wrong length or CRC", self.decode("cat through flat", code=1)[1])
        self.put("flat", flat(entries, [ref()], [(SET, 10**6)], [(11, SET, 0, 9)], size=9))
        self.assertEqual(self.stat()["flat"], "stale")
        self.assertEqual(self.cat_flat(), self.cat())
        for what, args in {
            "size 10": {"size": 10},
            "log sets or segments": {"cuts": [(11, SET, 0, 9)], "covered": [(SET, 2**63)]},
            "too many": {"sets": 10**9},
            "idle": {"cuts": [(11, SET, 0, 9), (12, SET, 0, 8)]},
        }.items():
            self.put(
                "flat",
                flat(
                    **(
                        {
                            "entries": entries,
                            "refs": [ref()],
                            "covered": [(SET, len(index))],
                            "cuts": [(11, SET, 0, 9)],
                            "size": 9,
                        }
                        | args
                    )
                ),
            )
            self.assertIn(what, self.decode("stat", code=1)[1])

    def test_flat_of_patterns(self):
        for log_set, index, data in TURNS_LOGS:
            self.fill(index, data, log_set)
        for what, raw, wrong in flats():
            self.put("flat", raw)
            out, text = self.decode("cat through flat", code=int(wrong is not None))
            self.assertEqual(out, TURNS, what)
            self.assertIn(wrong or "", text, what)
            self.assertEqual(
                self.stat(code=int(wrong is not None))["flat"],
                "damaged" if wrong else "valid",
                what,
            )
        self.put("flat", next(flats())[1])
        for stamp, state, want in LATE:
            self.fill(late(stamp), b"XXXX", OTHER + 1)
            self.assertEqual(self.stat()["flat"], state)
            self.assertEqual(self.cat_flat(), want)


if __name__ == "__main__":
    unittest.main()
