#!/usr/bin/env python3
"""Reads a PLFS container with nothing but docs/FORMAT.md and the Python standard library.

    plfs_decode.py stat NAME           what the container holds, as JSON
    plfs_decode.py records NAME        every record in order, one JSON line each
    plfs_decode.py cat NAME > out      the logical bytes, through the index logs (the flat index is ignored)
    plfs_decode.py cat --flat NAME     the same through the flat index and the blocks that it does not cover

It is a second opinion on the engine: written from the document alone, slow and simple. § marks a section of the document.
Exit status: 0, or 1 if the file cannot be read or a block, summary or flat index contradicts the document (`cat` then writes
nothing). A region that a crash tore is reported on stderr and is no error.
"""
import bisect, collections, itertools, json, math, os, pathlib, re, struct, sys
from types import SimpleNamespace

MAX, PAYLOAD_MAX, SEGMENT_MAX, HOLE = 2**63 - 1, 16 << 20, 65535, 2**32 - 1


class Bad(Exception):
    """Bytes that contradict the document. The text names file and offset."""
    def __init__(self, path, offset, what, kind="corrupt"):
        super().__init__(f"{path}: at byte {offset}: {what}")
        self.place = {"kind": kind, "file": path, "offset": offset, "what": what}


class Table:
    """One table of the document: fields as name:form, the forms as in struct."""
    def __init__(self, fields):
        names, forms = zip(*(field.split(":") for field in fields.split()))
        self.row, self.struct = collections.namedtuple("Row", names), struct.Struct("<" + "".join(forms))

    def at(self, raw, offset=0):
        return self.row(*self.struct.unpack_from(raw, offset))

    def each(self, raw, offset, n):
        """n rows, and the offset behind them."""
        return [self.at(raw, offset + i * self.struct.size) for i in range(n)], offset + n * self.struct.size


SUPERBLOCK = Table("banner:64s magic:8s crc:I major:H minor:H incompatible:Q compatible:Q uuid:16s created:Q mode:I uid:I gid:I "
                   "workload:H streams:H subdirs:H backends:H zero:I segment_bytes:Q path_bytes:H")
BLOCK = Table("magic:4s crc:I payload:I log_set:I uuid:8s stamp:Q version:Q offset:Q eof:Q records:I references:H flags:H")
REFERENCE = Table("log_set:I stream:H backend:H segment:I zero:I")
RECORD = Table("kind:B units:B reference:H count:I")
RUN = Table("kind:B units:B reference:H count:I logical:Q length:Q stride:q physical:Q writer:I zero:I stamp:Q")
NEST = Table("run:56s row_stride:q plane_stride:q rows:I planes:I")
HOLES = Table("kind:B units:B reference:H count:I logical:Q length:Q writer:I zero:I stamp:Q")
TRUNCATE = Table("kind:B units:B reference:H count:I size:Q stamp:Q")
WRITER = Table("kind:B units:B reference:H count:I writer:I pid:I uid:I zero:I attached_ns:Q host_bytes:H")
SUMMARY = Table("magic:4s crc:I uuid:8s seconds:q nanoseconds:I index_logs:I size:Q stored_bytes:Q stamp:Q index_bytes:Q "
                "records:Q data_logs:I flat:I flat_bytes:H")
FLAT = Table("magic:8s crc:I body_crc:I uuid:16s size:Q records:Q stamp:Q sets:I segments:I truncates:I shapes:I entries:Q shape_bytes:Q "
             "blocks:I owners:I extents:Q block_bytes:Q table_bytes:Q floor:Q")
CUT = Table("stamp:Q log_set:I zero:I size:Q")
AXIS = Table("stride:Q physical:q segment:q count:I tabled:I")
ENTRY = Table("first:Q end:Q max_end:Q length:Q stride:q physical:Q stamp:Q log_set:I shape:I count:I segment:I")
FENCE = Table("first:Q offset:I crc:I")


CRC = list(range(256))
for _ in range(8):
    CRC = [crc >> 1 ^ (0x82F63B78 & -(crc & 1)) for crc in CRC]

def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = CRC[(crc ^ byte) & 255] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF

def need(true, what, path=None, offset=0):
    if not true:
        raise Bad(path, offset, what) if path else ValueError(what)

def read(path):
    with open(path, "rb") as f:
        return f.read()


# ---- §1 names, §2 superblock
class Super:
    def __init__(self, path):
        self.path, self.inode, raw = path, os.stat(path), read(path)
        need(len(raw) == 4093 and raw[64:72] == b"\x89PLFS\r\n\x1a", "not a PLFS name: not 4093 bytes, or another magic", path, 64)
        head = SUPERBLOCK.at(raw)
        need(head.crc == crc32c(raw[76:3072]), "superblock: wrong CRC", path, 72)
        need(head.major == 1 and not head.incompatible, f"format version {head.major} or features {head.incompatible:#x} are unknown", path, 76)
        need(1 <= head.streams <= 256 and head.subdirs == 1 and head.backends >= 1,
             f"streams {head.streams}, subdirs {head.subdirs}, backends {head.backends}", path, 134)
        self.paths, at = [], 154
        while at < 154 + head.path_bytes:
            length = int.from_bytes(raw[at:at + 2], "little")
            self.paths.append(os.fsdecode(raw[at + 2:at + 2 + length]))
            at += 2 + length
        need(at == 154 + head.path_bytes <= 3072 and len(self.paths) == head.backends, "path table: its entries do not fit", path, 152)
        self.uuid, self.streams, self.summary, self.behind = head.uuid, head.streams, raw[3072:3200], raw[3200:4092]

    def allows(self, ref):
        return ref.stream < self.streams and ref.segment <= SEGMENT_MAX and ref.backend == (ref.log_set + ref.stream) % len(self.paths)


def find_container(name):
    """§1: (superblock, container directory, root, is a copy). An equal inode anywhere beats a copy's container."""
    sb, found = Super(name), []
    for root in [*pathlib.Path(os.path.realpath(name)).parents, sb.paths[0]]:
        there = os.path.join(root, ".plfs", sb.uuid.hex()[:2], sb.uuid.hex()[2:])
        try:
            other = Super(os.path.join(there, "super"))
        except FileNotFoundError:
            continue
        if other.uuid == sb.uuid:
            found.append((other, there, str(root), not os.path.samestat(other.inode, sb.inode)))
    need(found, f"no container {sb.uuid.hex()} beside or above it, nor in {sb.paths[0]}", name, 96)
    return min(found, key=lambda candidate: candidate[3])


# ---- §3 index log
def run(order, logical, length, stride, count, physical, segment, **more):
    last = logical + (count - 1) * stride
    end, physical_end = max(logical, last) + length, physical + count * length
    need(count >= 1 and length >= 1 and (abs(stride) >= length if count > 1 else stride == 0) and min(logical, last, physical) >= 0
         and end <= MAX and physical_end <= MAX, f"run: logical {logical}, length {length}, stride {stride}, count {count}, physical {physical}")
    return SimpleNamespace(kind="run", order=order, logical=logical, length=length, stride=stride, count=count, physical=physical,
                           segment=segment, end=end, physical_end=physical_end, **more)

def hole(order, logical, length, **more):
    """In all but where its bytes are a run of one piece."""
    return run(order, logical, length, 0, 1, 0, None, **more)

def nest(order, logical, length, stride, count, physical, segment, by, **more):
    """The runs of a nest."""
    axes = sorted([(abs(stride), count), (abs(by.row_stride), by.rows)] + [(abs(by.plane_stride), by.planes)] * (by.planes > 1))
    fits, span = count >= 2 and by.rows >= 2 and by.planes >= 1 and (by.planes > 1) == (by.plane_stride != 0) and by.rows * by.planes <= 65536, length
    for step, n in axes:
        fits, span = fits and step >= span, span + step * (n - 1)
    need(fits, f"nest: strides {stride} {by.row_stride} {by.plane_stride}, counts {count} {by.rows} {by.planes}, length {length}")
    return [run(order, logical + a * by.plane_stride + b * by.row_stride, length, stride, count, physical + (a * by.rows + b) * length * count, segment, **more)
            for a in range(by.planes) for b in range(by.rows)]

def truncate(order, size):
    need(size <= MAX, f"truncate: size {size}")
    return SimpleNamespace(kind="truncate", order=order, end=size)


class Log:
    """The valid blocks of one index log from `start` on. `places` lists what lies between and behind them, and the refused."""
    def __init__(self, path, log_set, sb, is_open, start=0):
        self.path, self.set, self.sb, self.raw, self.records, self.places = path, log_set, sb, read(path), [], []
        self.bytes, self.blocks, self.count, self.stamp, at, gap = len(self.raw), 0, 0, 0, -(-start // 64) * 64, None
        while at < self.bytes:
            head = self.header(at)
            if head is None:
                gap, at = at if gap is None else gap, at + 64
                continue
            self.judge(gap, at, "skipped")
            try:
                self.block(at, head)
            except ValueError as e:
                self.places.append(Bad(path, at, str(e)).place)
            gap, at = None, at + -(-(64 + head.payload) // 64) * 64
        self.judge(gap, self.bytes, "unfinished" if is_open else "torn")

    def header(self, at):
        """None if no valid block starts here."""
        if self.fits(at) and self.bytes - at >= 64:
            head = BLOCK.at(self.raw, at)
            stop = at + 64 + head.payload
            if head.payload <= PAYLOAD_MAX and stop <= self.bytes and head.crc == crc32c(self.raw[at + 8:stop]):
                return head

    def fits(self, at, n=48):
        """Whether magic, set, uuid and offset are those of a block here, as far as they are in its first n bytes."""
        fields = {0: b"PLIX", 12: struct.pack("<I8s", self.set, self.sb.uuid[:8]), 40: struct.pack("<Q", at)}
        return all(self.raw[at + i:at + min(n, i + len(field))] == field[:max(0, n - i)] for i, field in fields.items())

    def judge(self, start, end, kind):
        if start is not None:
            starts = [start] + [at for at in range(start + 64, end, 64) if self.fits(at)]
            torn = all(self.torn(at, self.raw[at:stop]) for at, stop in zip(starts, starts[1:] + [end]))
            self.places.append(Bad(self.path, start, f"no valid block in {end - start} bytes", kind if torn else "corrupt").place)

    def torn(self, at, piece):
        """Whether a crash leaves that of an append: a cut beginning of a block, or a block with zeros for sectors."""
        written = len(piece.rstrip(b"\0"))
        if not any(piece[:64]):
            return True
        if written < 62:                                            # cut inside the header, whose last field is mostly zero
            return self.fits(at, written)
        stop = 64 + BLOCK.at(piece.ljust(64, b"\0")).payload
        sectors = (piece[i:i + 512] for i in range(-at % 512, min(stop, len(piece)) - 511, 512))
        return self.fits(at) and (stop > len(piece) or piece[stop - 2:stop] == b"\0\0" or not all(map(any, sectors)))

    def block(self, at, head):
        stop, records, nested = at + 64 + head.payload, [], 0
        need(head.version == 0 and head.flags <= 1 and 16 * head.references <= head.payload and head.stamp > self.stamp,
             f"block: version {head.version}, flags {head.flags:#x}, {head.references} references, stamp {head.stamp:#x}")
        references, pos = REFERENCE.each(self.raw, at + 64, head.references)
        need(all(map(self.sb.allows, references)), f"block: segment references {references}")
        for _ in range(head.records):
            found, units = self.record(pos, stop, references, head.stamp)
            records += found
            pos += 8 * units
            nested += len(found) * (len(found) > 1)
        runs, cuts = ([r for r in records if r.kind == kind] for kind in ("run", "truncate"))
        need(pos == stop and all(r.order[0] <= head.stamp for r in records) and max((r.end for r in runs + cuts), default=0) == head.eof
             and len(cuts) == head.flags and not (cuts and runs) and nested <= 2**20, f"block: payload, stamp, eof {head.eof} or flags {head.flags} do not fit its records")
        self.records += records
        self.blocks, self.count, self.stamp = self.blocks + 1, self.count + head.records, head.stamp

    def record(self, pos, stop, references, stamp):
        """The record, or the runs of a nest, and its length in units of 8 bytes."""
        kind, units, reference, count = RECORD.at(self.raw, pos) if pos + 8 <= stop else (0, 0, 0, 0)
        need(units >= 1 and pos + 8 * units <= stop, "record does not fit its block")
        if (kind, units) in ((1, 7), (3, 10)) and reference < len(references):
            r = RUN.at(self.raw, pos)
            it = (r.stamp, self.set), r.logical, r.length, r.stride, count, r.physical, references[reference]
            return nest(*it, NEST.at(self.raw, pos), writer=r.writer) if kind == 3 else [run(*it, writer=r.writer)], units
        if (kind, units) == (4, 5) and reference == count == 0:
            r = HOLES.at(self.raw, pos)
            return [hole((r.stamp, self.set), r.logical, r.length, writer=r.writer)], units
        if (kind, units) == (2, 3) and reference == count == 0:
            r = TRUNCATE.at(self.raw, pos)
            return [truncate((r.stamp, self.set), r.size)], units
        who = {}
        if kind == 128 and units >= 5:
            r = WRITER.at(self.raw, pos)
            need(34 + r.host_bytes <= 8 * units, "host name does not fit its record")
            host = self.raw[pos + 34:pos + 34 + r.host_bytes].decode("utf-8", "replace")
            kind, who = "writer", {"writer": r.writer, "pid": r.pid, "uid": r.uid, "host": host, "attached_ns": r.attached_ns}
        need(who or kind > 128, f"record of unknown kind {kind} or wrong form")
        return [SimpleNamespace(kind=kind, order=(stamp, self.set), **who)], units


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

    for r in sorted((r for r in records if r.kind in ("run", "truncate")), key=lambda r: r.order):
        if r.kind == "truncate":
            put(r.end, MAX)
            size = r.end
            continue
        for i in range(r.count):
            start = r.logical + i * r.stride
            put(start, start + r.length, *[(start, start + r.length, r.segment, r.physical + i * r.length)] * (r.segment is not None))
        size = max(size, r.end)
    return size, pieces


# ---- §6 flat index
class Flat:
    """`records` has the truncates and a run for each entry of shape 0, each piece of other entries and each extent of a block."""
    def __init__(self, path, raw, sb):
        self.path, self.raw, self.at, self.records, self.ordered = path, raw, 0, [], 0
        try:
            self.parse(FLAT.at(self.raw), sb)
        except (ValueError, IndexError, struct.error) as e:
            raise Bad(path, self.at, f"flat index: {e}") from None

    def parse(self, head, sb):
        need(head.magic == b"PLFSFLT2" and head.uuid == sb.uuid, "not one of this container")
        need(head.crc == crc32c(self.raw[12:128]), "wrong CRC of the header")
        self.id, self.floor, self.unordered, end = head.crc, head.floor, (head.floor, 2**32 - 1), 128 + head.table_bytes
        first_block = end + head.shape_bytes + 72 * head.entries + 16 * head.blocks
        need(len(self.raw) == first_block + head.block_bytes and head.body_crc == crc32c(self.raw[128:first_block]), "wrong length or CRC")
        self.at = 128
        self.tables(head, sb, end)
        shapes = [self.shape() for _ in range(head.shapes)]
        self.align(end + head.shape_bytes)
        entries, fences = self.rows(ENTRY, head.entries), self.rows(FENCE, head.blocks)
        need(entries == sorted(entries, key=lambda e: (e.first, e.stamp, e.log_set)), "entries are not sorted")
        need(fences == sorted(fences), "fences are not sorted")
        def tree(a, b):
            m = (a + b) // 2
            need(a >= b or entries[m].max_end == max(entries[m].end, tree(a, m), tree(m + 1, b)), f"wrong max_end of entry {m}")
            return entries[m].max_end if a < b else 0
        tree(0, len(entries))
        for e in sorted(entries, key=lambda e: e.shape > 0):
            self.entry(e, e.shape and shapes[e.shape - 1])
        pieces = len(self.records)
        for fence, stop in zip(fences, [8 * f.offset for f in fences[1:]] + [head.block_bytes]):
            need(self.at == first_block + 8 * fence.offset, "fences: a block begins elsewhere")
            self.block(fence, first_block + stop)
        need(self.at == len(self.raw) and len(self.records) - pieces == head.extents, "bytes or extents behind the blocks")
        apart = sorted((r.logical, r.end) for r in self.records[sum(e.shape == 0 for e in entries):])
        need(all(a[1] <= b[0] for a, b in zip(apart, apart[1:])), "pieces of shapes and extents share a byte")
        need(not self.records or max(r.order[0] for r in self.records) <= head.stamp, "stamps above the largest")
        self.records += self.cuts
        if self.floor:                                              # a truncate that made the file longer may be left out
            self.records.append(SimpleNamespace(kind="run", order=self.unordered, count=0, end=head.size))
        need(replay(self.records)[0] == head.size, f"size {head.size} does not fit its entries")
        self.totals = {"size": head.size, "stored_bytes": sum(end for _, end in self.segments), "stamp": head.stamp,
                       "records": head.records, "data_logs": head.segments}
        self.parts = {"entries": len(entries), "shapes": len(shapes), "tabled": sum(len(table) > 1 for _, table in shapes),
                      "blocks": len(fences), "ordered": self.ordered, "truncates": len(self.cuts), "floor": self.floor}

    def rows(self, table, n):
        rows, self.at = table.each(self.raw, self.at, n)
        return rows

    def column(self, n):
        """n values, and the cursor behind them."""
        number = lambda start, stop: int.from_bytes(self.raw[start:stop], "little")
        head, low = number(self.at, self.at + 2), self.at + 2
        bits, shift, begin = head & 127, head >> 7 & 31, low + (head >> 12)
        self.at = begin + (n * bits + 7) // 8
        need(bits + shift <= 64 and begin - low <= 8 and self.at <= len(self.raw), f"column {head:#x}")
        field = lambda bit: number(begin + bit // 8, begin + (bit + bits + 7) // 8) >> bit % 8 & (1 << bits) - 1
        return [number(low, begin) + (field(i * bits) << shift) for i in range(n)]

    def align(self, end):
        """Skips the zeros behind a part that ends at `end`."""
        self.at += -self.at % 8
        need(self.at == end, f"this part should end at {end}")

    def tables(self, head, sb, end):
        c, s, o = head.sets, head.segments, head.owners
        need(c <= 8 * head.table_bytes and s <= 8 * head.table_bytes and o <= s, "too many log sets or segments")
        sets, begin, covered, owner, owned, *names, ends = map(self.column, (c, c, c, o, o, s, s, s, s))
        self.cuts = [truncate((cut.stamp, cut.log_set), cut.size) for cut in self.rows(CUT, head.truncates)]
        self.align(end)
        need(not any(begin) and sum(owned) == s and max(ends + covered, default=0) <= MAX, "log sets or segments")
        owners = [sets[i] for i, n in zip(owner, owned) for _ in range(n)]
        refs = [REFERENCE.row(*fields, 0) for fields in zip(owners, *names)]
        need(all(map(sb.allows, refs)), "a segment that the superblock does not allow")
        need(all(a.order < b.order and a.end < b.end for a, b in zip(self.cuts, self.cuts[1:])), "idle or unsorted truncates")
        self.sets, self.segments, self.covered = sets, list(zip(refs, ends)), {s: n for s, n in zip(sets, covered) if n}

    def shape(self):
        """Its axes, and (segment, physical) for each place in the tabled ones."""
        begin, (axes, size) = self.at, struct.unpack_from("<II", self.raw, self.at)
        self.at += 8
        need(1 <= axes <= 8, f"shape of {axes} axes")
        axes = self.rows(AXIS, axes)
        tabled = [axis.count for axis in axes if axis.tabled]
        need(all(a.count >= 2 and a.tabled <= 1 for a in axes) and math.prod(tabled) <= 8 * size, "shape: axis or table")
        table = list(zip(*map(self.column, [math.prod(tabled)] * 2))) if tabled else [(0, 0)]
        self.align(begin + size)
        return axes, table

    def entry(self, e, shape):
        if not shape:
            self.add((e.stamp, e.log_set), e.first if e.stride >= 0 else e.end - e.length, e.length, e.stride, e.count, e.physical, e.segment)
            need(e.first + (e.count - 1) * abs(e.stride) + e.length == e.end, "entry: its first or end does not fit")
            return
        axes, table = shape
        span = e.length
        for axis in reversed(axes):
            need(axis.stride >= span, "shape: pieces overlap")
            span += axis.stride * (axis.count - 1)
        need(self.floor and span == e.end - e.first and (e.stride, e.count) == (0, 1), "entry: floor, end, stride or count does not fit its shape")
        for place in itertools.product(*(range(axis.count) for axis in axes)):
            logical, physical, segment, row = e.first, e.physical, e.segment, 0
            for i, axis in zip(place, axes):
                logical, physical, segment = logical + i * axis.stride, physical + i * axis.physical, segment + i * axis.segment
                row = row * axis.count + i if axis.tabled else row
            self.add(self.unordered, logical, e.length, 0, 1, physical + table[row][1], segment + table[row][0])

    def block(self, fence, end):
        need(crc32c(self.raw[self.at:end]) == fence.crc, "wrong CRC of a block")
        n, flags, logical = self.raw[self.at] + 1, self.raw[self.at + 1], fence.first
        self.at += 2
        need(n <= 128 and (flags == 1 or flags == 0 and self.floor), "block: number of extents, or flags")
        gaps, lengths, segments, physicals, *order = map(self.column, [n] * (6 if flags else 4))
        self.align(end)
        self.ordered += flags
        need(gaps[0] == 0, "fences: the first extent begins elsewhere")
        stamps = [(stamp, self.sets[i]) for stamp, i in zip(*order)] or [self.unordered] * n
        for gap, length, segment, physical, stamp in zip(gaps, lengths, segments, physicals, stamps):
            if segment == HOLE:
                need(physical == logical + gap, "a hole that lies somewhere")
                self.records.append(hole(stamp, logical + gap, length))
            else:
                self.add(stamp, logical + gap, length, 0, 1, physical, segment)
            logical += gap + length

    def add(self, order, logical, length, stride, count, physical, segment):
        need(0 <= segment < len(self.segments), f"no segment {segment}")
        ref, physical_end = self.segments[segment]
        self.records.append(run(order, logical, length, stride, count, physical, ref))
        need(self.records[-1].physical_end <= physical_end, "more bytes than its segment has")


# ---- the container as a whole
class Container:
    """`flat`: "ignore" it, "check" it, or "use" it."""
    def __init__(self, name, flat="check"):
        self.sb, self.dir, self.root, self.copy = find_container(name)
        names = sorted(os.listdir(self.dir))
        self.marks = [n[:8] for n in names if re.fullmatch(r"[0-9a-f]{8}\.open", n)]
        self.sets = [n for n in names if re.fullmatch(r"[0-9a-f]{8}", n)]
        paths = {int(n, 16): p for n in self.sets if os.path.exists(p := os.path.join(self.dir, n, "index"))}
        self.places, self.flat, self.flat_state, self.logs, self.records = [], None, "none", None, []
        load = lambda covered: [Log(p, s, self.sb, f"{s:08x}" in self.marks, covered.get(s, 0)) for s, p in paths.items()]
        summary, path = self.summary(), os.path.join(self.dir, "flat")
        short = self.sb.behind[:summary["flat_bytes"]] if isinstance(summary, dict) else b""
        if (short or "flat" in names) and flat != "ignore":
            try:
                self.flat = Flat(self.sb.path, short, self.sb) if short else Flat(path, read(path), self.sb)
                tail, floor, fits = load(self.flat.covered), self.flat.floor, True
                for s, length in self.flat.covered.items():
                    fits = fits and s in paths and os.stat(paths[s]).st_size >= length
                for record in (r for log in tail for r in log.records if r.kind in ("run", "truncate")):
                    fits = fits and (record.order[0] > floor or not floor)
                self.flat_state, self.flat.parts["tail"] = "valid" if fits else "stale", sum(log.blocks for log in tail)
                if fits and flat == "use":
                    self.logs, self.records = tail, self.flat.records
            except Bad as e:
                self.flat_state, self.flat = "damaged", None
                self.places.append(e.place)
        self.logs = self.logs or load({})
        for log in self.logs:
            self.records = self.records + log.records
            self.places += log.places
        self.size, self.pieces = replay(self.records)

    def damage(self):
        return [p for p in self.places if p["kind"] not in ("torn", "unfinished", "skipped")]

    def segment_path(self, ref):
        root = self.sb.paths[ref.backend] if ref.backend else self.root
        return os.path.join(root, os.path.relpath(self.dir, self.root), f"{ref.log_set:08x}/{ref.stream:02x}.{ref.segment:04x}.data")

    def summary(self):
        """§5: the valid summary as a dict, or a text that says why there is none."""
        s = SUMMARY.at(self.sb.summary)
        if not any(self.sb.summary):
            return "none"
        if s.magic != b"PLSM" or s.crc != crc32c(self.sb.summary[8:]) or s.uuid != self.sb.uuid[:8]:
            return "damaged"
        if s.seconds * 10**9 + s.nanoseconds != os.stat(self.dir).st_mtime_ns:
            return "void: the token is not the directory's time"
        return s._asdict()

    def stat(self):
        ends = {}
        for r in self.records:
            if r.kind == "run" and r.segment:
                ends[r.segment] = max(ends.get(r.segment, 0), r.physical_end)
        for ref, end in ends.items():
            path = self.segment_path(ref)
            have = os.stat(path).st_size if os.path.exists(path) else -1
            if have < end:
                self.places.append(Bad(path, max(have, 0), f"records point at {end} bytes", "missing" if have < 0 else "short").place)
        found = {"index_logs": len(self.logs), "data_logs": len(ends), "size": self.size, "stored_bytes": sum(ends.values()),
                 "stamp": max((log.stamp for log in self.logs), default=0),
                 "index_bytes": sum(log.bytes for log in self.logs), "records": sum(log.count for log in self.logs)}
        whole = self.flat_state == "valid" and not self.flat.parts["tail"]
        if whole and self.flat.totals.items() - found.items():
            self.places.append(Bad(self.flat.path, 32, f"flat index says {self.flat.totals}, the logs {found}").place)
        summary = self.summary()
        if isinstance(summary, dict) and found.items() - summary.items():
            self.places.append(Bad(self.sb.path, 3072, f"summary says {summary}, the logs {found}").place)
        named = isinstance(summary, dict) and summary["flat"] and self.flat_state != "damaged"
        if named and not (whole and self.flat.id == summary["flat"]):
            self.places.append(Bad(self.sb.path, 3148, "the flat index that the summary names is not there or lacks something").place)
        return {**found, "uuid": self.sb.uuid.hex(), "container": self.dir, "copy": self.copy, "open_marks": self.marks,
                "sets": self.sets, "blocks": sum(log.blocks for log in self.logs), "flat": self.flat_state,
                "flat_parts": self.flat.parts if self.flat else {},
                "summary": "valid" if isinstance(summary, dict) else summary, "places": self.places}

    def write_to(self, fd):
        with open(fd, "wb", closefd=False) as out:
            at = 0
            for start, end, ref, physical in self.pieces + [(self.size, self.size, None, 0)]:
                for hole in range(at, start, 1 << 20):
                    out.write(bytes(min(1 << 20, start - hole)))
                if ref:
                    with open(self.segment_path(ref), "rb") as log:
                        log.seek(physical)
                        data = log.read(end - start)
                    out.write(data)
                    if len(data) < end - start:
                        raise Bad(log.name, physical + len(data), "segment ends before the bytes of a record")
                at = end


def main(args):
    command, name = [a for a in args if a != "--flat"]
    if command not in ("stat", "records", "cat"):
        raise ValueError(command)
    c = Container(name, "use" if "--flat" in args else "check" if command == "stat" else "ignore")
    if command == "stat":
        print(json.dumps(c.stat(), indent=1))
    elif command == "records":
        for record in sorted(c.records, key=lambda record: record.order):
            print(json.dumps(vars(record)))
    elif not [p for p in c.damage() if p["kind"] == "corrupt" and "flat index" not in p["what"]]:
        c.write_to(1)
    for place in c.places:
        print("plfs_decode: {kind}: {file}: at byte {offset}: {what}".format(**place), file=sys.stderr)
    return bool(c.damage())


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (Bad, OSError) as e:
        sys.exit(f"plfs_decode: {e}")
    except ValueError:
        sys.exit(__doc__)
