#!/usr/bin/env python3
"""Reads a PLFS container with nothing but docs/FORMAT.md and the Python standard library.

    plfs_decode.py records NAME        every record in order, one JSON line each
    plfs_decode.py cat NAME > out      the logical bytes

It is a second opinion on the engine: written from the document alone, slow and simple, to be read
beside it. § marks a section.
All is read from the index logs; flat_index.py reads the optional flat index (§6).
Exit status: 0, or 1 if the file cannot be read or a block contradicts the document (`cat` then
writes nothing). A region that a crash tore is reported on stderr and is no error.
"""

import bisect, collections, itertools, json, math, os, pathlib, re, struct, sys
from types import SimpleNamespace as Record

MAX = 2**63 - 1

CRC = list(range(256))
for _ in range(8):
    CRC = [crc >> 1 ^ (0x82F63B78 & -(crc & 1)) for crc in CRC]


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = CRC[(crc ^ byte) & 255] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def need(true, what):
    if not true:
        raise ValueError(what)


def place(path, offset, what, kind="corrupt"):
    return {"kind": kind, "file": path, "offset": offset, "what": what}


def round_up(n, unit):
    return -(-n // unit) * unit


class Table:
    """One table of the document: fields as name:form, the forms as in struct."""

    def __init__(self, fields):
        names, forms = zip(*(field.split(":") for field in fields.split()))
        self.row, self.struct = (
            collections.namedtuple("Row", names),
            struct.Struct("<" + "".join(forms)),
        )
        self.size = self.struct.size

    def at(self, raw, offset=0):
        return self.row(*self.struct.unpack_from(raw, offset))

    def framed(self, raw, magic, offset, end):
        """The row that begins with magic and the CRC of all from there to the end; None if they do
        not fit."""
        row = self.at(raw, offset) if offset + self.size <= len(raw) else None
        return (
            row
            if row and row.magic == magic and row.crc == crc32c(raw[offset + len(magic) + 4 : end])
            else None
        )


class Reader:
    """A cursor in bytes that does not go past an end."""

    def __init__(self, raw, at, end):
        self.raw, self.at, self.end = raw, at, end

    def take(self, n):
        need(
            self.at + n <= self.end,
            f"{n} bytes at {self.at} do not fit into what ends at {self.end}",
        )
        self.at += n
        return self.raw[self.at - n : self.at]

    def number(self, n):
        return int.from_bytes(self.take(n), "little")

    def rows(self, table, n):
        return [table.at(self.take(table.size)) for _ in range(n)]


# ---- §1 names, §2 superblock
MAGIC = b"\x89PLFS\r\n\x1a"
SUPERBLOCK = Table(
    "magic:8s crc:I major:H minor:H incompatible:Q compatible:Q uuid:16s created:Q mode:I uid:I gid:I workload:H streams:H "
    "zero:H names:H more_zero:I segment_bytes:Q backends:H"
)


class Newer(ValueError):
    """What only a later version of the format knows."""


def know(true, what):
    if not true:
        raise Newer(f"{what}: this needs a newer PLFS")


def text(path, kind, keys):
    """§1: the values of these keys in a text of the table of backends."""
    raw = pathlib.Path(path).read_bytes()
    need(
        raw.endswith(b"\n") and len(raw) <= 8192 and raw.startswith(kind + b" "),
        f"{path}: not a text of the table of backends",
    )
    first, *lines = raw[:-1].split(b"\n")
    know(first == kind + b" 1", f"{path}: {first!r}")
    need(all(b" " in line for line in lines), f"{path}: a line without key and value")
    found = [tuple(line.split(b" ", 1)) for line in lines]
    need(
        all(sum(key == k for k, _ in found) == 1 for key in keys),
        f"{path}: a key is missing or there twice",
    )
    found = dict(found)
    need(re.fullmatch(rb"(?!0{32})[0-9a-f]{32}", found[b"identity"]), f"{path}: identity")
    return [found[key] for key in keys]


def backend(root, number):
    """§1: the directory of a backend."""
    if number == 0:
        return root
    entry = os.path.join(root, ".plfs", "backends", f"{number:04x}")
    need(0 < number < 65535 and os.path.exists(entry), f"backend {number:04x} is unknown: {entry}")
    identity, state, path = text(entry, b"plfs-backend", (b"identity", b"state", b"path"))
    need(
        state in (b"active", b"draining", b"gone")
        and path.startswith(b"/")
        and b"\0" not in path
        and re.fullmatch(rb"([^\\]|\\\\|\\n)*", path),
        f"{entry}: state or path",
    )
    path = os.fsdecode(re.sub(rb"\\(.)", lambda m: b"\n" if m[1] == b"n" else b"\\", path))
    there = os.path.join(path, ".plfs", "identity")
    need(os.path.exists(there), f"backend {number:04x} is not at {path}, where {entry} says it is")
    need(
        text(there, b"plfs-identity", (b"identity",)) == [identity],
        f"{path} is another backend than {number:04x}: {there} and {entry} differ",
    )
    return path


class Super:
    def __init__(self, path):
        self.path, self.inode, raw = path, os.stat(path), pathlib.Path(path).read_bytes()
        need(
            len(raw) == 4093 and raw[64:72] == MAGIC,
            f"{path}: not a PLFS name: not 4093 bytes, or another magic",
        )
        head = SUPERBLOCK.framed(raw, MAGIC, 64, 3072)
        need(head, f"{path}: superblock: wrong CRC")
        need(
            head.major == 1 and not head.incompatible & ~1,
            f"{path}: format version {head.major} or features {head.incompatible:#x} are unknown",
        )
        know(
            head.workload == 1 and head.names == 1,
            f"{path}: workload {head.workload}, names {head.names}",
        )
        need(
            1 <= head.streams <= 256 and 1 <= head.backends <= 256,
            f"{path}: streams {head.streams}, backends {head.backends}",
        )
        table = Reader(raw, 154, 3072)
        self.backends = [table.number(2) for _ in range(head.backends)]
        self.root = os.fsdecode(table.take(table.number(2)))
        need(
            self.root.startswith("/")
            and "\0" not in self.root
            and len(os.fsencode(self.root)) <= 2404,
            f"{path}: path of the root",
        )
        self.has_base = head.incompatible == 1
        self.uuid, self.summary, self.behind = head.uuid, raw[3072:3200], raw[3200:4092]


def find_container(name):
    """§1: (superblock, container directory, root, is a copy). An equal inode anywhere beats a
    copy's container."""
    based = find_based(name)
    if based:
        return based
    sb, found = Super(name), []
    for root in [*pathlib.Path(os.path.realpath(name)).parents, sb.root]:
        there = os.path.join(root, ".plfs", sb.uuid.hex()[:2], sb.uuid.hex()[2:])
        if os.path.exists(os.path.join(there, "super")):
            other = Super(os.path.join(there, "super"))
            if other.uuid == sb.uuid:
                found.append((other, there, str(root), not os.path.samestat(other.inode, sb.inode)))
    need(found, f"{name}: no container {sb.uuid.hex()} beside or above it, nor in {sb.root}")
    return min(found, key=lambda candidate: candidate[3])


ATTRIBUTE = re.compile(
    rb"plfs 1 c (?P<uuid>[0-9a-f]{32}) (?P<ino>[0-9]+) (?P<root>/[^\0]{0,4095})", re.DOTALL
)


def find_based(name):
    """§11: the same of the container whose base the file is; None if there is none."""
    p = os.stat(name)
    try:
        said = ATTRIBUTE.fullmatch(os.getxattr(name, "user.plfs"))
    except OSError:
        return None
    if p.st_nlink == 1 or not said or int(said["ino"]) >= 2**64:
        return None
    uuid, recorded = said["uuid"].decode(), os.fsdecode(said["root"])
    for root in [*pathlib.Path(os.path.realpath(name)).parents, recorded]:
        there = os.path.join(root, ".plfs", uuid[:2], uuid[2:])
        base, head = (os.path.join(there, n) for n in ("base", "super"))
        if os.path.exists(base) and os.path.samestat(os.stat(base), p) and os.path.exists(head):
            sb = Super(head)
            need(sb.has_base and sb.uuid.hex() == uuid, f"{head}: it is of another container")
            return sb, there, str(root), False
    is_plain = int(said["ino"]) != p.st_ino or os.path.isdir(os.path.join(recorded, ".plfs"))
    need(is_plain, f"{name}: no container {uuid} beside or above it, nor in {recorded}")
    return None


# ---- §3 what runs, nests, holes and truncates say. Each has its place in the order, and an end
# that counts for the size
def span(length, axes):
    """What pieces along axes of (stride, count) span. By size, each stride is at least what the
    smaller ones span: pieces never overlap."""
    for stride, count in axes:
        need(
            count >= 2 and abs(stride) >= length,
            f"stride {stride}, count {count}: pieces of {length} overlap, or there are none",
        )
        length += abs(stride) * (count - 1)
    return length


def run(order, logical, length, axes, physical, segment, **more):
    """Pieces of one length, one behind the other in a segment. A run has one axis, a nest up to
    three; a hole is a piece in no segment."""
    axes = [axis for axis in axes if axis != (0, 1)]
    reach = [stride * (count - 1) for stride, count in axes]
    first, end = (
        logical + sum(r for r in reach if r < 0),
        logical + sum(r for r in reach if r > 0) + length,
    )
    physical_end = physical + length * math.prod(count for _, count in axes)
    need(
        length >= 1
        and span(length, sorted(axes, key=lambda axis: abs(axis[0])))
        and min(first, physical) >= 0
        and max(end, physical_end) <= MAX,
        f"run: logical {logical}, length {length}, strides and counts {axes}, physical {physical}",
    )
    return Record(
        kind="run",
        order=order,
        logical=logical,
        length=length,
        axes=axes,
        physical=physical,
        segment=segment,
        first=first,
        end=end,
        physical_end=physical_end,
        **more,
    )


def truncate(order, size):
    need(size <= MAX, f"truncate: size {size}")
    return Record(kind="truncate", order=order, end=size)


# ---- §3 index log
BLOCK = Table(
    "magic:4s crc:I payload_crc:I payload:I uuid:8s stamp:Q offset:Q eof:Q log_set:I records:I references:H flags:H durable:I"
)
REFERENCE = Table("log_set:I segment:I stream:H backend:H kind:B codec:B zero:H")
BASE = REFERENCE.row(0, 0, 0, 0, 1, 0, 0)  # §11
RECORD = Table("kind:B units:B reference:H count:I")
RUN = "logical:Q length:Q stride:q physical:Q writer:I zero:I stamp:Q"
WRITER = Table("writer:I pid:I uid:I zero:I attached_ns:Q boot:Q host_bytes:H")
BOOT = int(pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().replace("-", "")[:16], 16)
SUMS = Table("boot:Q physical:Q length:Q unit:I zero:I")
KINDS = {
    1: Table(RUN),
    2: Table("size:Q stamp:Q"),
    3: Table(RUN + " row_stride:q plane_stride:q rows:I planes:I"),
    4: Table("logical:Q length:Q writer:I zero:I stamp:Q"),
}  # what follows the first 8 bytes


class Log:
    """The blocks of an index log from `start` on. `places`: what lies between and behind them, and
    those that are corrupt."""

    def __init__(self, path, log_set, sb, is_open, start=0):
        self.path, self.set, self.sb, self.raw = path, log_set, sb, pathlib.Path(path).read_bytes()
        self.records, self.places, self.blocks, self.count, self.stamp = [], [], 0, 0, 0
        self.durable, self.unsynced = {}, []
        at = behind = round_up(start, 64)
        while at < len(self.raw):
            head = self.header(at)
            payload = head and self.raw[at + 64 : at + 64 + head.payload]
            if not head or len(payload) < head.payload or crc32c(payload) != head.payload_crc:
                at += 64
                continue
            self.judge(behind, at, "skipped")
            try:
                self.block(head, Reader(self.raw, at + 64, at + 64 + head.payload))
            except ValueError as e:
                self.places.append(
                    place(path, at, str(e), "newer" if isinstance(e, Newer) else "corrupt")
                )
            at = behind = at + round_up(64 + head.payload, 64)
        self.judge(behind, len(self.raw), "unfinished" if is_open else "torn")

    def header(self, at):
        """The header here, if it is right, or None."""
        head = BLOCK.framed(self.raw, b"PLIX", at, at + 64) if self.fits(at) else None
        return head if head and head.payload <= 16 << 20 else None

    def fits(self, at, n=52):
        """Whether magic, uuid, offset and set are those of a header here, as far as they are in its
        first n bytes."""
        fields = {
            0: b"PLIX",
            16: self.sb.uuid[:8],
            32: struct.pack("<Q", at),
            48: struct.pack("<I", self.set),
        }
        return all(
            self.raw[at + i : at + min(n, i + len(field))] == field[: max(0, n - i)]
            for i, field in fields.items()
        )

    def begins(self, at, end):
        """Whether the next 64 bytes are a beginning of a header, cut or not."""
        written = len(self.raw[at : min(at + 64, end)].rstrip(b"\0"))
        return written > 0 and self.fits(at, min(written, 52))

    def judge(self, start, end, kind):
        """§3, torn tails: bytes in which no valid block starts are of this kind if all their pieces
        are torn, else corrupt."""
        if start < end:
            starts = [start] + [at for at in range(start + 64, end, 64) if self.begins(at, end)]
            torn = all(map(self.torn, starts, starts[1:] + [end]))
            self.places.append(
                place(
                    self.path,
                    start,
                    f"no valid block in {end - start} bytes",
                    kind if torn else "corrupt",
                )
            )

    def torn(self, at, end):
        """Whether a crash leaves that of an append: a cut beginning of a block, or a block with
        zeros for sectors."""
        piece, head = self.raw[at:end], self.header(at) if end - at >= 64 else None
        if not any(piece[:64]):
            return True
        if not head:  # cut inside the header, with nothing behind it, or damaged
            written = len(piece.rstrip(b"\0"))
            return written < 64 and self.fits(at, written)
        stop = 64 + head.payload
        sectors = (piece[i : i + 512] for i in range(-at % 512, stop - 511, 512))
        return stop > len(piece) or piece[stop - 2 : stop] == b"\0\0" or not all(map(any, sectors))

    def block(self, head, payload):
        know(head.flags <= 3, f"block: flags {head.flags:#x}")
        need(
            head.stamp > self.stamp and 64 * head.durable <= head.offset,
            f"block: stamp {head.stamp:#x}, durable {head.durable}",
        )
        references = payload.rows(REFERENCE, head.references)
        know(
            not any(ref.kind > 1 or ref.codec for ref in references),
            f"block: segment references {references}",
        )
        need(
            all(
                ref._replace(zero=0) == BASE
                if ref.kind
                else ref.stream <= 255 and ref.backend < 65535
                for ref in references
            ),
            f"block: segment references {references}",
        )
        records = [self.record(payload, references, head.stamp) for _ in range(head.records)]
        runs, truncates = ([r for r in records if r.kind == kind] for kind in ("run", "truncate"))
        nested = sum(math.prod(count for _, count in r.axes[:-1]) for r in runs if len(r.axes) > 1)
        need(
            payload.at == payload.end
            and nested <= 2**20
            and all(r.order[0] <= head.stamp for r in records)
            and max((r.end for r in runs + truncates), default=0) == head.eof
            and len(truncates) == head.flags % 2
            and not (runs and truncates),
            f"block: payload, stamp, eof {head.eof} or flags {head.flags} do not fit its records",
        )
        sums = [r for r in records if r.kind == "sums"]
        for boot in {r.boot for r in sums}:
            self.durable[boot] = max(self.durable.get(boot, 0), 64 * head.durable)
        if head.flags & 2 == 0 and any(r.sums for r in sums):
            self.unsynced.append((head.offset, sums, [r for r in runs if r.segment is not None]))
        self.records += records
        self.blocks, self.count, self.stamp = self.blocks + 1, self.count + head.records, head.stamp

    def in_doubt(self, has_failed):
        """Sums and runs of the blocks whose data a power cut may have taken, or a failed sync."""
        for offset, sums, runs in self.unsynced:
            boot = sums[0].boot
            may_be_gone = boot != BOOT or has_failed
            if boot == 0 or may_be_gone and self.durable[boot] <= offset:
                yield sums, runs

    def record(self, payload, references, block_stamp):
        """The next record of a block with this stamp."""
        head = RECORD.at(payload.take(8))
        need(head.units >= 1, "record of length 0")
        body = payload.take(8 * head.units - 8)
        if head.kind == 128:
            need(
                len(body) >= 40 and 34 + WRITER.at(body).host_bytes <= len(body),
                "host name does not fit its record",
            )
            row = WRITER.at(body)
            return Record(
                kind="writer",
                order=(block_stamp, self.set),
                host=body[34 : 34 + row.host_bytes].decode("utf-8", "replace"),
                **row._asdict(),
            )
        if head.kind == 129:
            need(len(body) >= 32, "sums end inside their head")
            row = SUMS.at(body)
            end, n = row.physical + row.length, head.count
            units = row.unit and row.length and -(-end // row.unit) - row.physical // row.unit
            need(
                row.unit >= 1 and end <= MAX and n == units and len(body) == 32 + (n + n % 2) * 4,
                f"sums: count {n}, physical {row.physical}, length {row.length}, unit {row.unit}",
            )
            need(not n or head.reference < len(references), "sums of a segment that is not listed")
            sums = struct.unpack_from(f"<{n}I", body, 32)
            segment = references[head.reference] if n else None
            return Record(
                kind="sums",
                order=(block_stamp, self.set),
                segment=segment,
                sums=sums,
                **{k: v for k, v in row._asdict().items() if k != "zero"},
            )
        if head.kind > 128:
            return Record(kind=head.kind, order=(block_stamp, self.set))
        know(head.kind in KINDS, f"record of unknown kind {head.kind}")
        need(len(body) == KINDS[head.kind].size, f"record of kind {head.kind} and another length")
        row = KINDS[head.kind].at(body)
        order = row.stamp, self.set
        need(
            head.reference < len(references)
            if head.kind in (1, 3)
            else head.reference == head.count == 0,
            f"record of kind {head.kind}, but of wrong form: segment reference {head.reference}, count {head.count}",
        )
        if head.kind == 2:
            return truncate(order, row.size)
        if head.kind == 4:
            return run(order, row.logical, row.length, [], 0, None, writer=row.writer)
        axes = [(row.stride, head.count)]
        if head.kind == 3:
            need(
                min(head.count, row.rows) >= 2 and row.rows * row.planes <= 65536,
                f"nest: counts {head.count}, {row.rows}, {row.planes}",
            )
            axes = [(row.plane_stride, row.planes), (row.row_stride, row.rows)] + axes
        return run(
            order,
            row.logical,
            row.length,
            axes,
            row.physical,
            references[head.reference],
            writer=row.writer,
        )


# ---- §4 order
def replay(records):
    """The size, and what lies where: (start, end, segment, physical of start), ascending, apart."""
    size, pieces = 0, []

    def put(start, end, *new):
        """New pieces for all of [start, end)."""
        i, j = bisect.bisect_left(pieces, (start,)), bisect.bisect_left(pieces, (end,))
        i -= i > 0 and pieces[i - 1][1] > start
        left = [(a, start, segment, at) for a, b, segment, at in pieces[i:j] if a < start]
        right = [(end, b, segment, at + end - a) for a, b, segment, at in pieces[i:j] if b > end]
        pieces[i:j] = left + list(new) + right

    holes = []

    def put_lost(start, end, segment, at):
        """New pieces where nothing older is, be it a hole."""
        for a, b in sorted([p[:2] for p in pieces] + holes) + [(end, end)]:
            if start < min(a, end):
                put(start, min(a, end), (start, min(a, end), segment, at))
            if start < b:
                start, at = b, at + b - start

    for r in sorted((r for r in records if r.kind in ("run", "truncate")), key=lambda r: r.order):
        if r.kind == "truncate":
            put(r.end, MAX)
            holes = [(a, min(b, r.end)) for a, b in holes if a < r.end]
        else:
            for i, steps in enumerate(
                itertools.product(*(range(0, stride * count, stride) for stride, count in r.axes))
            ):
                start, end = r.logical + sum(steps), r.logical + sum(steps) + r.length
                if r.segment is None:
                    put(start, end)
                    holes.append((start, end))
                    continue
                at = r.physical + i * r.length
                cuts = {at, at + r.length}.union(*getattr(r, "lost", []))
                cuts = sorted(cut for cut in cuts if at <= cut <= at + r.length)
                for a, b in zip(cuts, cuts[1:]):
                    is_lost = any(x <= a < y for x, y in getattr(r, "lost", []))
                    piece = (start + a - at, start + b - at, r.segment, a)
                    put_lost(*piece) if is_lost else put(*piece[:2], piece)
        size = max(size, r.end) if r.kind == "run" else r.end
    return size, pieces


# ---- §5 summary, and the container as a whole
SUMMARY = Table(
    "magic:4s crc:I uuid:8s seconds:q nanoseconds:I index_logs:I size:Q stored_bytes:Q stamp:Q index_bytes:Q "
    "records:Q data_logs:I flat:I flat_bytes:H"
)


class Container:
    def __init__(self, name):
        self.sb, self.dir, self.root, self.copy = find_container(name)
        names = sorted(os.listdir(self.dir))
        self.marks = [n[:8] for n in names if re.fullmatch(r"[0-9a-f]{8}\.open", n)]
        self.sets = [n for n in names if re.fullmatch(r"[0-9a-f]{8}", n)]
        self.base = os.stat(self.segment_path(BASE)).st_size if self.sb.has_base else 0
        self.below = self.base
        self.records, self.places = [], []
        self.logs = self.load()
        for log in self.logs:
            self.records += log.records
            self.places += log.places
            for sums, runs in log.in_doubt(f"{log.set:08x}.unsynced" in names):
                self.look(sums, runs)
        lowest = [run((-1, 0), 0, self.below, [], 0, BASE)] if self.below else []
        self.size, self.pieces = replay(lowest + self.records)

    def look(self, sums, runs):
        """Which parts of the data of runs do not have their sums."""
        for s in sums:
            for i, crc in enumerate(s.sums):
                start = (s.physical // s.unit + i) * s.unit
                a, b = max(start, s.physical), min(start + s.unit, s.physical + s.length)
                path, data = self.segment_path(s.segment), b""
                if os.path.exists(path):
                    with open(path, "rb") as segment:
                        segment.seek(a)
                        data = segment.read(b - a)
                if len(data) < b - a or crc32c(data) != crc:
                    for r in runs:
                        if r.segment == s.segment and r.physical < b and a < r.physical_end:
                            r.lost = [*getattr(r, "lost", []), (a, b)]

    def load(self):
        """The index logs to replay."""
        return self.index_logs({})

    def index_logs(self, covered):
        """All of them, each from the offset on that is given for its set."""
        paths = {s: os.path.join(self.dir, s, "index") for s in self.sets}
        return [
            Log(path, int(s, 16), self.sb, s in self.marks, covered.get(int(s, 16), 0))
            for s, path in paths.items()
            if os.path.exists(path)
        ]

    def summary(self):
        """A row, or a text that says why there is none."""
        s = SUMMARY.framed(self.sb.summary, b"PLSM", 0, 128)
        if not s or s.uuid != self.sb.uuid[:8]:
            return "damaged" if any(self.sb.summary) else "none"
        if self.base > s.size:
            return "void: the base is longer"  # §11
        void = s.seconds * 10**9 + s.nanoseconds != os.stat(self.dir).st_mtime_ns
        return "void: the token is not the directory's time" if void else s

    def segment_path(self, ref):
        if ref.kind:
            return os.path.join(self.dir, "base")
        there = os.path.relpath(self.dir, self.root)
        return os.path.join(
            backend(self.root, ref.backend),
            there,
            f"{ref.log_set:08x}/{ref.stream:02x}.{ref.segment:08x}.data",
        )

    def write_to(self, fd):
        """The logical bytes."""
        with open(fd, "wb", closefd=False) as out:
            at = 0
            for start, end, ref, physical in self.pieces + [(self.size, self.size, None, 0)]:
                for hole in range(at, start, 1 << 20):
                    out.write(bytes(min(1 << 20, start - hole)))
                if ref:
                    with open(self.segment_path(ref), "rb") as segment:
                        segment.seek(physical)
                        data = segment.read(end - start)
                    if ref.kind:  # §11: a program may have cut it
                        data = data.ljust(end - start, b"\0")
                    out.write(data)
                    need(
                        len(data) == end - start,
                        f"{segment.name}: at byte {physical + len(data)}: segment ends before the bytes of a record",
                    )
                at = end


def report(places):
    """Names them on stderr; whether one is more than what a crash leaves."""
    for found in places:
        print(
            "plfs_decode: {kind}: {file}: at byte {offset}: {what}".format(**found), file=sys.stderr
        )
    return any(found["kind"] not in ("torn", "unfinished", "skipped") for found in places)


def main(container=Container, usage=__doc__):
    if len(sys.argv) != 3 or sys.argv[1] not in ("records", "cat"):
        sys.exit(usage)
    try:
        c = container(sys.argv[2])
        if sys.argv[1] == "records":
            for record in sorted(c.records, key=lambda record: record.order):
                print(json.dumps(vars(record)))
        elif all(found["kind"] not in ("corrupt", "newer") for found in c.places):
            c.write_to(1)
    except (ValueError, OSError) as e:
        sys.exit(f"plfs_decode: {e}")
    return report(c.places)


if __name__ == "__main__":
    sys.exit(main())
