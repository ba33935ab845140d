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
import bisect, collections, json, os, pathlib, re, struct, sys
from types import SimpleNamespace

MAX, PAYLOAD_MAX, SEGMENT_MAX = 2**63 - 1, 16 << 20, 65535


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
TRUNCATE = Table("kind:B units:B reference:H count:I size:Q stamp:Q")
WRITER = Table("kind:B units:B reference:H count:I writer:I pid:I uid:I zero:I attached_ns:Q host_bytes:H")
SUMMARY = Table("magic:4s crc:I uuid:8s seconds:q nanoseconds:I index_logs:I size:Q stored_bytes:Q stamp:Q index_bytes:Q "
                "records:Q data_logs:I flat:I")
FLAT = Table("magic:8s crc:I body_crc:I uuid:16s size:Q records:Q stamp:Q covered:I segments:I truncates:I zero:I entries:Q")
COVERED = Table("log_set:I zero:I length:Q")
SEGMENT = Table("log_set:I stream:H backend:H segment:I zero:I physical_end:Q")
CUT = Table("stamp:Q log_set:I position:I size:Q")
ENTRY = Table("first:Q end:Q max_end:Q length:Q stride:q physical:Q stamp:Q log_set:I position:I count:I reference:I")


CRC = list(range(256))
for _ in range(8):
    CRC = [crc >> 1 ^ (0x82F63B78 & -(crc & 1)) for crc in CRC]

def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = CRC[(crc ^ byte) & 255] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF

def read(path):
    with open(path, "rb") as f:
        return f.read()


# ---- §1 names, §2 superblock
class Super:
    def __init__(self, path):
        self.path, self.inode, raw = path, os.stat(path), read(path)
        if len(raw) != 4093 or raw[64:72] != b"\x89PLFS\r\n\x1a":
            raise Bad(path, 64, "not a PLFS name: not 4093 bytes, or another magic")
        head = SUPERBLOCK.at(raw)
        if head.crc != crc32c(raw[76:3072]):
            raise Bad(path, 72, "superblock: wrong CRC")
        if head.major != 1 or head.incompatible:
            raise Bad(path, 76, f"format version {head.major} or features {head.incompatible:#x} are unknown")
        if not 1 <= head.streams <= 256 or head.subdirs != 1 or head.backends < 1:
            raise Bad(path, 134, f"streams {head.streams}, subdirs {head.subdirs}, backends {head.backends}")
        self.paths, at = [], 154
        while at < 154 + head.path_bytes:
            length = int.from_bytes(raw[at:at + 2], "little")
            self.paths.append(os.fsdecode(raw[at + 2:at + 2 + length]))
            at += 2 + length
        if at != 154 + head.path_bytes or at > 3072 or len(self.paths) != head.backends:
            raise Bad(path, 152, "path table: its entries do not fit")
        self.uuid, self.streams, self.summary = head.uuid, head.streams, raw[3072:3200]


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
    if not found:
        raise Bad(name, 96, f"no container {sb.uuid.hex()} beside or above it, nor in {sb.paths[0]}")
    return min(found, key=lambda candidate: candidate[3])


# ---- §3 index log
def run(order, logical, length, stride, count, physical, segment, **more):
    last = logical + (count - 1) * stride
    end, physical_end = max(logical, last) + length, physical + count * length
    if (count < 1 or length < 1 or (stride != 0 if count == 1 else abs(stride) < length)
            or min(logical, last) < 0 or end > MAX or physical_end > MAX):
        raise ValueError(f"run: logical {logical}, length {length}, stride {stride}, count {count}, physical {physical}")
    return SimpleNamespace(kind="run", order=order, logical=logical, length=length, stride=stride, count=count, physical=physical,
                           segment=segment, end=end, physical_end=physical_end, **more)

def truncate(order, size):
    if size > MAX:
        raise ValueError(f"truncate: size {size}")
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
            except Bad as e:
                self.places.append(e.place)
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
        stop = at + 64 + head.payload
        if head.version != 0 or head.flags > 1 or 16 * head.references > head.payload or head.stamp <= self.stamp:
            raise Bad(self.path, at, f"block: version {head.version}, flags {head.flags:#x}, {head.references} references, stamp {head.stamp:#x}")
        references, pos = REFERENCE.each(self.raw, at + 64, head.references)
        for ref in references:
            if ref.stream >= self.sb.streams or ref.segment > SEGMENT_MAX or ref.backend != (ref.log_set + ref.stream) % len(self.sb.paths):
                raise Bad(self.path, at, f"block: segment reference {ref}")
        records = []
        for position in range(head.records):
            try:
                record, units = self.record(pos, stop, references, lambda stamp=head.stamp: (0, stamp, self.set, position))
            except ValueError as e:
                raise Bad(self.path, pos, str(e)) from None
            records.append(record)
            record.block, pos = at, pos + 8 * units
        runs, cuts = ([r for r in records if r.kind == kind] for kind in ("run", "truncate"))
        if (pos != stop or any(r.order[1] > head.stamp for r in records) or max((r.end for r in runs + cuts), default=0) != head.eof
                or len(cuts) != head.flags or cuts and runs):
            raise Bad(self.path, at, f"block: payload, stamp, eof {head.eof} or flags {head.flags} do not fit its records")
        self.records += records
        self.blocks, self.count, self.stamp = self.blocks + 1, self.count + len(records), head.stamp

    def record(self, pos, stop, references, order):
        """The record and its length in units of 8 bytes."""
        kind, units, reference, count = RECORD.at(self.raw, pos) if pos + 8 <= stop else (0, 0, 0, 0)
        if units < 1 or pos + 8 * units > stop:
            raise ValueError("record does not fit its block")
        if (kind, units) == (1, 7) and reference < len(references):
            r = RUN.at(self.raw, pos)
            return run(order(r.stamp), r.logical, r.length, r.stride, count, r.physical, references[reference], writer=r.writer), units
        if (kind, units) == (2, 3) and reference == count == 0:
            r = TRUNCATE.at(self.raw, pos)
            return truncate(order(r.stamp), r.size), units
        if kind == 128 and units >= 5:
            r = WRITER.at(self.raw, pos)
            if 34 + r.host_bytes <= 8 * units:
                host = self.raw[pos + 34:pos + 34 + r.host_bytes].decode("utf-8", "replace")
                who = {"writer": r.writer, "pid": r.pid, "uid": r.uid, "host": host, "attached_ns": r.attached_ns}
                return SimpleNamespace(kind="writer", order=order(), **who), units
        if kind <= 128:
            raise ValueError(f"record of unknown kind {kind} or wrong form")
        return SimpleNamespace(kind=kind, order=order()), units


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
            put(start, start + r.length, (start, start + r.length, r.segment, r.physical + i * r.length))
        size = max(size, r.end)
    return size, pieces


# ---- §6 flat index
class Flat:
    def __init__(self, path, sb):
        raw = read(path)
        if len(raw) < 128 or raw[:8] != b"PLFSFLAT" or raw[16:32] != sb.uuid:
            raise Bad(path, 0, "not a flat index of this container")
        head = FLAT.at(raw)
        if (head.crc, head.body_crc) != (crc32c(raw[12:128]), crc32c(raw[128:])):
            raise Bad(path, 8, "flat index: wrong CRC of the header or the body")
        if len(raw) != 128 + 16 * head.covered + 24 * (head.segments + head.truncates) + 72 * head.entries:
            raise Bad(path, 56, "flat index: the counts do not fit its length")
        covered, at = COVERED.each(raw, 128, head.covered)
        segments, at = SEGMENT.each(raw, at, head.segments)
        cuts, begin = CUT.each(raw, at, head.truncates)
        entries, _ = ENTRY.each(raw, begin, head.entries)
        if cuts != sorted(cuts) or entries != sorted(entries, key=lambda e: (e.first, e.stamp, e.log_set, e.position)):
            raise Bad(path, 128, "flat index: truncates or entries are not sorted")
        lengths = [c.length for c in covered] + [s.physical_end for s in segments] + [cut.size for cut in cuts]
        if max(lengths, default=0) > MAX:
            raise Bad(path, 128, "flat index: a length in the tables is out of range")
        self.id, self.covered = head.crc, {c.log_set: c.length for c in covered}
        self.totals = {"size": head.size, "stored_bytes": sum(s.physical_end for s in segments), "stamp": head.stamp, "records": head.records}
        self.records = [truncate((0, *cut[:3]), cut.size) for cut in cuts]
        for i, e in enumerate(entries):
            try:
                order, ref = (0, e.stamp, e.log_set, e.position), REFERENCE.row(*segments[e.reference][:5])
                logical = e.first if e.stride >= 0 else e.end - e.length
                self.records.append(run(order, logical, e.length, e.stride, e.count, e.physical, ref))
                if e.first + (e.count - 1) * abs(e.stride) + e.length != e.end or e.stamp > head.stamp:
                    raise ValueError("entry: its end or stamp does not fit")
            except (ValueError, IndexError) as error:
                raise Bad(path, begin + 72 * i, f"flat index: {error}") from None
        def tree(a, b):
            if a >= b:
                return 0
            m = (a + b) // 2
            if max(entries[m].end, tree(a, m), tree(m + 1, b)) != entries[m].max_end:
                raise Bad(path, begin + 72 * m + 16, "flat index: wrong max_end")
            return entries[m].max_end
        tree(0, len(entries))
        if replay(self.records)[0] != head.size:
            raise Bad(path, 32, f"flat index: size {head.size} does not fit its entries")


# ---- the container as a whole
class Container:
    """`flat`: "ignore" it, "check" it, or "use" it."""
    def __init__(self, name, flat="check"):
        self.sb, self.dir, self.root, self.copy = find_container(name)
        names = sorted(os.listdir(self.dir))
        self.marks = [n[:8] for n in names if re.fullmatch(r"[0-9a-f]{8}\.open", n)]
        self.sets = [n for n in names if re.fullmatch(r"[0-9a-f]{8}", n)]
        paths = {int(n, 16): p for n in self.sets if os.path.exists(p := os.path.join(self.dir, n, "index"))}
        self.places, self.flat, self.flat_state, covered, self.records = [], None, "none", {}, []
        if "flat" in names and flat != "ignore":
            try:
                self.flat = Flat(os.path.join(self.dir, "flat"), self.sb)
                fits = all(s in paths and os.stat(paths[s]).st_size >= n for s, n in self.flat.covered.items())
                self.flat_state = "valid" if fits else "stale"
                if fits and flat == "use":
                    covered, self.records = self.flat.covered, self.flat.records
            except Bad as e:
                self.flat_state = "damaged"
                self.places.append(e.place)
        self.logs = [Log(p, s, self.sb, f"{s:08x}" in self.marks, covered.get(s, 0)) for s, p in paths.items()]
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
            if r.kind == "run":
                ends[r.segment] = max(ends.get(r.segment, 0), r.physical_end)
        for ref, end in ends.items():
            path = self.segment_path(ref)
            have = os.stat(path).st_size if os.path.exists(path) else -1
            if have < end:
                self.places.append(Bad(path, max(have, 0), f"records point at {end} bytes", "missing" if have < 0 else "short").place)
        found = {"index_logs": len(self.logs), "data_logs": len(ends), "size": self.size, "stored_bytes": sum(ends.values()),
                 "stamp": max((log.stamp for log in self.logs), default=0),
                 "index_bytes": sum(log.bytes for log in self.logs), "records": sum(log.count for log in self.logs)}
        whole = self.flat and self.flat.covered == {log.set: log.bytes for log in self.logs}
        if whole and self.flat.totals.items() - found.items():
            self.places.append(Bad(os.path.join(self.dir, "flat"), 32, f"flat index says {self.flat.totals}, the logs {found}").place)
        summary = self.summary()
        if isinstance(summary, dict) and found.items() - summary.items():
            self.places.append(Bad(self.sb.path, 3072, f"summary says {summary}, the logs {found}").place)
        named = isinstance(summary, dict) and summary["flat"] and self.flat_state != "damaged"
        if named and not (whole and self.flat.id == summary["flat"]):
            self.places.append(Bad(self.sb.path, 3148, "the flat index that the summary names is not there or lacks something").place)
        return {**found, "uuid": self.sb.uuid.hex(), "container": self.dir, "copy": self.copy, "open_marks": self.marks,
                "sets": self.sets, "blocks": sum(log.blocks for log in self.logs), "flat": self.flat_state,
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
    elif not [p for p in c.damage() if p["kind"] == "corrupt" and not p["file"].endswith("/flat")]:
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
