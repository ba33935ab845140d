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
import collections, heapq, json, os, re, struct, sys

MAX = 2**63 - 1
NAME_BYTES, ALIGN, PAYLOAD_MAX = 4093, 64, 16 << 20
Ref = collections.namedtuple("Ref", "log_set stream backend segment")


class Bad(Exception):
    """Bytes that contradict the document. The text names file and offset."""
    def __init__(self, path, offset, what, kind="corrupt"):
        super().__init__(f"{path}: at byte {offset}: {what}")
        self.place = {"kind": kind, "file": path, "offset": offset, "what": what}


def _table(crc):
    for _ in range(8):
        crc = (crc >> 1) ^ (0x82F63B78 & -(crc & 1))
    return crc

TABLE = [_table(i) for i in range(256)]

def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 255] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


# ---- §2 superblock, §5 summary
class Super:
    def __init__(self, path):
        with open(path, "rb") as f:
            raw, self.inode = f.read(NAME_BYTES + 1), os.fstat(f.fileno())
        if len(raw) != NAME_BYTES or raw[64:72] != b"\x89PLFS\r\n\x1a":
            raise Bad(path, 64, f"not a PLFS name: not {NAME_BYTES} bytes, or another magic")
        crc, major, _, incompatible = struct.unpack_from("<IHHQ", raw, 72)
        if crc != crc32c(raw[76:3072]):
            raise Bad(path, 72, "superblock: wrong CRC")
        if major != 1 or incompatible:
            raise Bad(path, 76, f"format version {major} or features {incompatible:#x} are unknown")
        self.uuid = raw[96:112]
        self.streams, subdirs, backends = struct.unpack_from("<HHH", raw, 134)
        if not 1 <= self.streams <= 256 or subdirs != 1 or backends < 1:
            raise Bad(path, 134, f"streams {self.streams}, subdirs {subdirs}, backends {backends}")
        self.paths, at, end = [], 154, 154 + struct.unpack_from("<H", raw, 152)[0]
        while at + 2 <= min(end, 3072):
            length, = struct.unpack_from("<H", raw, at)
            self.paths.append(os.fsdecode(raw[at + 2:at + 2 + length]))
            at += 2 + length
        if at != end or at > 3072 or len(self.paths) != backends:
            raise Bad(path, 152, "path table: its entries do not fit")
        self.path, self.summary = path, raw[3072:3200]

    def read_summary(self, directory_mtime_ns):
        """The valid summary as a dict, or a text that says why there is none."""
        magic, crc, uuid, sec, nsec, index_logs, *rest, data_logs, self.flat_id = struct.unpack_from("<4sI8sqII5QII", self.summary)
        if not any(self.summary):
            return "none"
        if magic != b"PLSM" or crc != crc32c(self.summary[8:]) or uuid != self.uuid[:8]:
            return "damaged"
        if sec * 10**9 + nsec != directory_mtime_ns:
            return "void: the token is not the directory's time"
        names = "size", "stored_bytes", "stamp", "index_bytes", "records"
        return {"index_logs": index_logs, "data_logs": data_logs, **dict(zip(names, rest))}


def find_container(name):
    """§1: (superblock, container directory, root, is a copy). An equal inode anywhere beats a copy's container."""
    sb, copy, roots = Super(name), None, [os.path.dirname(os.path.realpath(name))]
    while os.path.dirname(roots[-1]) != roots[-1]:
        roots.append(os.path.dirname(roots[-1]))
    for root in roots + sb.paths[:1]:
        there = os.path.join(root, ".plfs", sb.uuid.hex()[:2], sb.uuid.hex()[2:])
        try:
            other = Super(os.path.join(there, "super"))
        except FileNotFoundError:
            continue
        if os.path.samestat(other.inode, sb.inode):
            return sb, there, root, False
        if other.uuid == sb.uuid:
            copy = copy or (other, there, root, True)
    if copy is None:
        raise Bad(name, 96, f"no container {sb.uuid.hex()} beside or above it, nor in {sb.paths[0]}")
    return copy


# ---- §3 records
class Run:
    def __init__(self, order, logical, length, stride, count, physical, segment, writer=0):
        self.order, self.logical, self.length, self.stride, self.count = order, logical, length, stride, count
        self.physical, self.segment, self.writer, self.clip = physical, segment, writer, MAX
        last = logical + (count - 1) * stride
        self.end, self.physical_end = max(logical, last) + length, physical + count * length
        ref_fits = segment.stream < 256 and segment.segment < 1 << 16
        if (count < 1 or length < 1 or min(logical, last) < 0 or self.end > MAX or self.physical_end > MAX or not ref_fits
                or (stride != 0 if count == 1 else abs(stride) < length)):
            raise ValueError(f"run: logical {logical}, length {length}, stride {stride}, count {count}, physical {physical}, {segment}")

    def pieces(self):
        """(start, end, physical) from the lowest logical byte up, cut at the clip."""
        for i in range(self.count) if self.stride >= 0 else range(self.count - 1, -1, -1):
            start = self.logical + i * self.stride
            if start >= self.clip:
                return
            yield start, min(start + self.length, self.clip), self.physical + i * self.length


class Truncate:
    def __init__(self, order, end):
        self.order, self.end, self.clip = order, end, MAX
        if end > MAX:
            raise ValueError(f"truncate: size {end}")


# ---- §3 index log
class Log:
    """The valid blocks of one index log from `start` on; `places` lists what lies between and behind them, and the refused."""
    def __init__(self, path, log_set, sb, is_open, start=0):
        self.path, self.set, self.sb, self.records, self.rows, self.places = path, log_set, sb, [], [], []
        self.blocks = self.count = self.stamp = 0
        with open(path, "rb") as f:
            raw = memoryview(f.read())
        self.bytes, at, bad = len(raw), -(-start // ALIGN) * ALIGN, None
        def place(kind, what):
            self.places.append(Bad(path, bad, what, kind).place)
        while at < len(raw):
            header = self.header(raw, at)
            if header is None:
                bad = at if bad is None else bad
                at += ALIGN
                continue
            if bad is not None:
                place("skipped" if self.torn(raw[:at], bad) else "corrupt", f"no valid block in {at - bad} bytes in front of one")
            bad = None
            try:
                self.block(raw, at, *header)
            except Bad as e:
                self.places.append(e.place)
            at += -(-(64 + header[0]) // ALIGN) * ALIGN
        if bad is not None:
            place("corrupt" if not self.torn(raw, bad) else "unfinished" if is_open else "torn", "no valid block from here to the end")

    def torn(self, raw, at):
        """Whether [at, end of raw) is what crashes leave of appends: cut beginnings of blocks, or blocks with zeros for sectors."""
        known = lambda at: {0: b"PLIX", 12: struct.pack("<I8s", self.set, self.sb.uuid[:8]), 40: struct.pack("<Q", at)}.items()
        fits = lambda at: all(raw[at + i:at + i + len(field)] == field for i, field in known(at))
        starts = [at] + [i for i in range(at + ALIGN, len(raw), ALIGN) if fits(i)] + [len(raw)]
        for at, end in zip(starts, starts[1:]):
            piece = bytes(raw[at:end])
            written = len(piece.rstrip(b"\0"))
            if not any(piece[:64]):
                continue
            if written < 62:                                        # cut inside the header, whose last field is mostly zero
                if not all(piece[i:min(written, i + len(f))] == f[:max(0, written - i)] for i, f in known(at)):
                    return False
                continue
            stop = 64 + struct.unpack_from("<I", piece, 8)[0]
            sectors = range(-at % 512, min(stop, len(piece)) - 511, 512)
            if not fits(at) or (stop <= len(piece) and piece[stop - 2:stop] != b"\0\0" and all(any(piece[i:i + 512]) for i in sectors)):
                return False
        return True

    def header(self, raw, at):
        """Payload bytes, stamp, version, eof, records, references, flags; None if no valid block starts here."""
        if len(raw) - at < 64 or raw[at:at + 4] != b"PLIX":
            return None
        crc, payload, log_set, uuid, stamp, version, offset, *rest = struct.unpack_from("<III8sQQQQIHH", raw, at + 4)
        if (payload > PAYLOAD_MAX or at + 64 + payload > len(raw) or log_set != self.set or offset != at
                or uuid != self.sb.uuid[:8] or crc != crc32c(raw[at + 8:at + 64 + payload])):
            return None
        return payload, stamp, version, *rest

    def block(self, raw, at, payload, stamp, version, eof, count, refs, flags):
        pos, stop = at + 64 + 16 * refs, at + 64 + payload
        if version != 0 or flags & ~1 or pos > stop or stamp <= self.stamp:
            raise Bad(self.path, at, f"block: version {version}, flags {flags:#x}, {refs} references, stamp {stamp:#x}")
        table = [Ref(*struct.unpack_from("<IHHI", raw, at + 64 + 16 * i)) for i in range(refs)]
        for ref in table:
            if ref.stream >= self.sb.streams or ref.segment >= 1 << 16 or ref.backend != (ref.log_set + ref.stream) % len(self.sb.paths):
                raise Bad(self.path, at, f"block: segment reference {ref}")
        records, rows = [], []
        for position in range(count):
            try:
                record, units = self.record(raw, pos, stop, table, (version, self.set, position))
            except (ValueError, struct.error) as e:
                raise Bad(self.path, pos, str(e)) from None
            row = record if isinstance(record, dict) else {"kind": type(record).__name__.lower(), **vars(record)}
            if row is not record:
                records.append(record)
            rows.append({"order": (version, stamp, self.set, position), "block": at, **row})
            pos += 8 * units
        kinds = [type(r) for r in records]
        if (pos != stop or max((r.end for r in records), default=0) != eof or any(r.order[1] > stamp for r in records)
                or (kinds != [Truncate] if flags else Truncate in kinds)):
            raise Bad(self.path, at, f"block: payload, stamp, eof {eof} or flags {flags} do not fit its records")
        self.records += records
        self.rows += rows
        self.blocks, self.count, self.stamp = self.blocks + 1, self.count + count, stamp

    def record(self, raw, pos, stop, table, place):
        """(a Run, a Truncate, or a dict for people; units of 8 bytes)"""
        kind, units, ref, n = struct.unpack_from("<BBHI", raw, pos)
        order = lambda stamp: (place[0], stamp, *place[1:])
        if units < 1 or pos + 8 * units > stop:
            raise ValueError("record does not fit its block")
        if kind == 1 and units == 7 and ref < len(table):
            logical, length, stride, physical, writer, _, stamp = struct.unpack_from("<QQqQIIQ", raw, pos + 8)
            return Run(order(stamp), logical, length, stride, n, physical, table[ref], writer), units
        if kind == 2 and units == 3 and ref == n == 0:
            size, stamp = struct.unpack_from("<QQ", raw, pos + 8)
            return Truncate(order(stamp), size), units
        if kind == 128 and units >= 5:
            writer, pid, uid, _, ns, text = struct.unpack_from("<IIIIQH", raw, pos + 8)
            if 34 + text <= 8 * units:
                host = bytes(raw[pos + 34:pos + 34 + text]).decode("utf-8", "replace")
                return {"kind": "writer", "writer": writer, "pid": pid, "uid": uid, "host": host, "attached_ns": ns}, units
        if kind <= 128:
            raise ValueError(f"record of unknown kind {kind} or wrong form")
        return {"kind": kind}, units


def segment_name(ref):
    return f"{ref.log_set:08x}/{ref.stream:02x}.{ref.segment:04x}.data"


# ---- §6 flat index
class Flat:
    def __init__(self, path, sb):
        with open(path, "rb") as f:
            raw = memoryview(f.read())
        if len(raw) < 128 or raw[:8] != b"PLFSFLAT" or raw[16:32] != sb.uuid:
            raise Bad(path, 0, "not a flat index of this container")
        if struct.unpack_from("<II", raw, 8) != (crc32c(raw[12:128]), crc32c(raw[128:])):
            raise Bad(path, 8, "flat index: wrong CRC of the header or the body")
        size, count, newest, c, s, t, _, e = struct.unpack_from("<QQQIIIIQ", raw, 32)
        forms, parts, at = (("<IIQ", c), ("<IHHIIQ", s), ("<QIIQ", t), ("<QQQQqQQIIII", e)), [], 128
        for form, n in forms:
            begin, at = at, at + n * struct.calcsize(form)
            if at > len(raw):
                raise Bad(path, 56, "flat index: the counts do not fit its length")
            parts.append(list(struct.iter_unpack(form, raw[begin:at])))
        covered, refs, cuts, entries = parts
        self.id, stored = struct.unpack_from("<I", raw, 8)[0], sum(r[5] for r in refs)
        self.covered, refs = {log_set: length for log_set, _, length in covered}, [Ref(*r[:4]) for r in refs]
        if at != len(raw) or cuts != sorted(cuts) or entries != sorted(entries, key=lambda x: (x[0], *x[6:9])):
            raise Bad(path, 56, "flat index: counts do not fit its length, or truncates or entries are not sorted")
        self.header = {"size": size, "stored_bytes": stored, "stamp": newest, "records": count}
        self.records = [Truncate((0, *x[:3]), x[3]) for x in cuts]
        for i, (first, end, _, length, stride, physical, stamp, log_set, pos, count, ref) in enumerate(entries):
            try:
                run = Run((0, stamp, log_set, pos), first if stride >= 0 else end - length, length, stride, count, physical, refs[ref])
                if first + (count - 1) * abs(stride) + length != end or stamp > newest:
                    raise ValueError("entry: its end or stamp does not fit")
            except (ValueError, IndexError) as e:
                raise Bad(path, begin + 72 * i, f"flat index: {e}") from None
            self.records.append(run)
        def tree(a, b):
            if a >= b:
                return 0
            m = (a + b) // 2
            if max(entries[m][1], tree(a, m), tree(m + 1, b)) != entries[m][2]:
                raise Bad(path, begin + 72 * m + 16, "flat index: wrong max_end")
            return entries[m][2]
        tree(0, e)
        if logical_size(self.records) != size:
            raise Bad(path, 32, f"flat index: size {size} does not fit its entries")


# ---- §4 order
def logical_size(records):
    """Sorts the records, sets every clip, returns the size."""
    records.sort(key=lambda r: r.order)
    clip, size = MAX, 0
    for r in reversed(records):
        r.clip = clip
        size = max(size, min(r.end, clip))
        if isinstance(r, Truncate):
            clip = min(clip, r.end)
    return size


def extents(records):
    """(start, end, segment, physical) of every byte that is no hole, ascending, the newest record's. Runs unfold one piece at a
    time: pieces of a run never overlap, so at most one piece a run is active."""
    todo, active, pos = [], [], 0
    def push(rank, pieces):
        piece = next(pieces, None)
        if piece:
            heapq.heappush(todo, (piece[0], rank, piece, pieces))
    for rank, r in enumerate(records):
        if isinstance(r, Run):
            push(rank, r.pieces())
    while todo or active:
        if not active:
            pos = max(pos, todo[0][0])
        while todo and todo[0][0] <= pos:
            _, rank, (start, end, physical), pieces = heapq.heappop(todo)
            heapq.heappush(active, (-rank, end, start, physical))
            push(rank, pieces)
        while active and active[0][1] <= pos:
            heapq.heappop(active)
        if active:
            rank, end, start, physical = active[0]
            stop = min(end, todo[0][0]) if todo else end
            yield pos, stop, records[-rank].segment, physical + pos - start
            pos = stop


# ---- the container as a whole
class Container:
    """`flat`: "ignore" it, "check" it, or "use" it."""
    def __init__(self, name, flat="check"):
        self.sb, self.dir, self.root, self.copy = find_container(name)
        names = sorted(os.listdir(self.dir))
        self.marks = [n[:8] for n in names if re.fullmatch(r"[0-9a-f]{8}\.open", n)]
        self.sets = [n for n in names if re.fullmatch(r"[0-9a-f]{8}", n)]
        paths = {int(n, 16): os.path.join(self.dir, n, "index") for n in self.sets}
        paths = {s: p for s, p in paths.items() if os.path.exists(p)}
        self.places, self.flat, self.flat_state, covered, self.records = [], None, "none", {}, []
        if "flat" in names and flat != "ignore":
            try:
                merged = self.flat = Flat(os.path.join(self.dir, "flat"), self.sb)
                fits = all(s in paths and os.stat(paths[s]).st_size >= n for s, n in merged.covered.items())
                self.flat_state = "valid" if fits else "stale"
                if fits and flat == "use":
                    covered, self.records = merged.covered, merged.records
            except Bad as e:
                self.flat_state = "damaged"
                self.places.append(e.place)
        self.logs = [Log(p, s, self.sb, f"{s:08x}" in self.marks, covered.get(s, 0)) for s, p in paths.items()]
        for log in self.logs:
            self.records += log.records
            self.places += log.places
        self.size = logical_size(self.records)

    def damage(self):
        return [p for p in self.places if p["kind"] not in ("torn", "unfinished", "skipped")]

    def segment_path(self, ref):
        root = self.sb.paths[ref.backend] if ref.backend else self.root
        return os.path.join(root, os.path.relpath(self.dir, self.root), segment_name(ref))

    def stat(self):
        ends = {}
        for r in self.records:
            if isinstance(r, Run):
                ends[r.segment] = max(ends.get(r.segment, 0), r.physical_end)
        for ref, end in ends.items():
            path = self.segment_path(ref)
            have = os.stat(path).st_size if os.path.exists(path) else -1
            if have < end:
                kind = "missing" if have < 0 else "short"
                self.places.append(Bad(path, max(have, 0), f"records point at {end} bytes", kind).place)
        found = {"index_logs": len(self.logs), "data_logs": len(ends), "size": self.size, "stored_bytes": sum(ends.values()),
                 "stamp": max((log.stamp for log in self.logs), default=0),
                 "index_bytes": sum(log.bytes for log in self.logs), "records": sum(log.count for log in self.logs)}
        whole = self.flat and self.flat.covered == {log.set: log.bytes for log in self.logs}
        if whole and self.flat.header.items() - found.items():
            self.places.append(Bad(os.path.join(self.dir, "flat"), 32, f"flat index says {self.flat.header}, the logs {found}").place)
        summary = self.sb.read_summary(os.stat(self.dir).st_mtime_ns)
        if isinstance(summary, dict) and summary != found:
            self.places.append(Bad(self.sb.path, 3072, f"summary says {summary}, the logs {found}").place)
        if isinstance(summary, dict) and self.sb.flat_id and not (whole and self.flat.id == self.sb.flat_id):
            self.places.append(Bad(self.sb.path, 3148, "the flat index that the summary names is not there or lacks something").place)
        return {**found, "uuid": self.sb.uuid.hex(), "container": self.dir, "copy": self.copy, "open_marks": self.marks,
                "sets": self.sets, "blocks": sum(log.blocks for log in self.logs), "flat": self.flat_state,
                "summary": "valid" if isinstance(summary, dict) else summary, "places": self.places}

    def write_to(self, fd):
        fds, at = {}, 0
        def put(data):
            while data:
                data = data[os.write(fd, data):]
        def zeros(n):
            for done in range(0, n, 1 << 20):
                put(bytes(min(1 << 20, n - done)))
        for start, end, ref, physical in extents(self.records):
            zeros(start - at)
            at, path = start, self.segment_path(ref)
            if path not in fds:
                fds[path] = os.open(path, os.O_RDONLY)
            while at < end:
                data = os.pread(fds[path], min(end - at, 8 << 20), physical + at - start)
                if not data:
                    raise Bad(path, physical + at - start, "segment ends before the bytes of a record")
                put(data)
                at += len(data)
        zeros(self.size - at)


def main(args):
    command, name = [a for a in args if a != "--flat"]
    if command not in ("stat", "records", "cat"):
        raise ValueError(command)
    c = Container(name, "use" if "--flat" in args else "check" if command == "stat" else "ignore")
    if command == "stat":
        print(json.dumps(c.stat(), indent=1))
    elif command == "records":
        for row in sorted((r for log in c.logs for r in log.rows), key=lambda r: r["order"]):
            print(json.dumps(row))
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
