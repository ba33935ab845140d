#!/usr/bin/env python3
"""Reads a PLFS container with nothing but docs/FORMAT.md and the Python standard library.

    plfs_decode.py stat NAME           what the container holds, as JSON
    plfs_decode.py records NAME        every record in order, one JSON line each
    plfs_decode.py cat NAME > out      the logical bytes, through the index logs (the flat index is ignored)
    plfs_decode.py cat --flat NAME     the same through the flat index and the blocks that it does not cover

It is a second opinion on the engine: written from the document alone, slow and simple. § marks a section of the document.
Exit status: 0, or 1 if the file cannot be read or a block, summary or flat index contradicts the document. A region that a
crash tore is reported on stderr and is no error.
"""
import array, fcntl, heapq, json, os, re, stat, struct, sys

MAX = 2**63 - 1
NAME_BYTES, BLOCK_ALIGN, PAYLOAD_MAX = 4093, 64, 16 << 20


class Bad(Exception):
    """Bytes that contradict the document. The text names file and offset."""
    def __init__(self, path, offset, what):
        super().__init__(f"{path}: at byte {offset}: {what}")
        self.place = {"kind": "corrupt", "file": path, "offset": offset, "what": what}


# ---- CRC-32C: byte by byte for short inputs, four bytes a step through two tables of 65,536 for long ones
def _shift(crc, bits):
    for _ in range(bits):
        crc = (crc >> 1) ^ (0x82F63B78 & -(crc & 1))
    return crc

BYTE = [_shift(i, 8) for i in range(256)]
WIDE = []

def crc32c(data):
    crc, done = 0xFFFFFFFF, 0
    if len(data) > 1 << 16 and sys.byteorder == "little":
        if not WIDE:
            step = lambda c: BYTE[c & 255] ^ (c >> 8)
            high = [step(step(i)) for i in range(1 << 16)]
            WIDE.extend(([step(step(c)) for c in high], high))
        low, high = WIDE
        done = len(data) & ~3
        for word in array.array("I", bytes(data[:done])):
            word ^= crc
            crc = low[word & 0xFFFF] ^ high[word >> 16]
    for byte in data[done:]:
        crc = BYTE[(crc ^ byte) & 255] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


# ---- §2 superblock, §5 summary
class Super:
    def __init__(self, path):
        with open(path, "rb") as f:
            raw, self.inode = f.read(NAME_BYTES + 1), os.fstat(f.fileno())
        if not stat.S_ISREG(self.inode.st_mode) or len(raw) != NAME_BYTES:
            raise Bad(path, 0, f"not a PLFS name: its length is not {NAME_BYTES}")
        if raw[64:72] != b"\x89PLFS\r\n\x1a":
            raise Bad(path, 64, "not a PLFS name: wrong magic")
        crc, major, self.minor, incompatible, _ = struct.unpack_from("<IHHQQ", raw, 72)
        if crc != crc32c(raw[76:3072]):
            raise Bad(path, 72, "superblock: wrong CRC")
        if major != 1:
            raise Bad(path, 76, f"format version {major} is unknown")
        if incompatible:
            raise Bad(path, 80, f"unknown incompatible features {incompatible:#x}")
        if raw[63:64] != b"\n":
            raise Bad(path, 63, "banner does not end in a newline")
        self.uuid = raw[96:112]
        self.streams, subdirs, backends = struct.unpack_from("<HHH", raw, 134)
        if not 1 <= self.streams <= 256 or subdirs != 1 or backends < 1:
            raise Bad(path, 134, f"streams {self.streams}, subdirs {subdirs}, backends {backends}")
        self.segment_bytes, table = struct.unpack_from("<QH", raw, 144)
        self.paths, at = [], 154
        for _ in range(backends):
            end = at + 2 + struct.unpack_from("<H", raw, at)[0]
            if end > min(154 + table, 3072):
                raise Bad(path, at, "path table: an entry does not fit")
            self.paths.append(os.fsdecode(raw[at + 2:end]))
            at = end
        if at != 154 + table:
            raise Bad(path, 152, f"path table has {at - 154} bytes, not {table}")
        self.path, self.summary = path, raw[3072:3200]

    def read_summary(self, directory_mtime_ns):
        """The valid summary as a dict, or a text that says why there is none."""
        magic, crc, uuid, sec, nsec, sets = struct.unpack_from("<4sI8sqII", self.summary)
        if not any(self.summary):
            return "none"
        if magic != b"PLSM" or crc != crc32c(self.summary[8:]) or uuid != self.uuid[:8]:
            return "damaged"
        if sec * 10**9 + nsec != directory_mtime_ns:
            return "void: the token is not the directory's time"
        keys = ("size", "stored_bytes", "hlc", "index_bytes", "records")
        return {"log_sets": sets, **dict(zip(keys, struct.unpack_from("<5Q", self.summary, 32)))}


def find_container(name):
    """§1: (superblock, container directory, root, is a copy). An equal inode anywhere beats a copy's container."""
    sb = Super(name)
    hexa, copy, d = sb.uuid.hex(), None, os.path.dirname(os.path.realpath(name))
    roots = [d]
    while os.path.dirname(roots[-1]) != roots[-1]:
        roots.append(os.path.dirname(roots[-1]))
    for root in roots + sb.paths[:1]:
        there = os.path.join(root, ".plfs", hexa[:2], hexa[2:])
        try:
            s = os.stat(os.path.join(there, "super"))
        except OSError:
            continue
        if os.path.samestat(s, sb.inode):
            if s.st_nlink < 2:
                raise Bad(name, 0, "the superblock has no name (link count 1)")
            return sb, there, root, False
        if copy is None:
            other = Super(os.path.join(there, "super"))
            if other.uuid == sb.uuid:
                copy = other, there, root, True
    if copy is None:
        raise Bad(name, 96, f"no container {hexa} beside or above it, nor in {sb.paths[0]}")
    return copy


# ---- §3 index log
class Run:
    __slots__ = "order logical length stride count physical segment clip".split()

    def __init__(self, order, logical, length, stride, count, physical, segment):
        self.order, self.logical, self.length, self.stride = order, logical, length, stride
        self.count, self.physical, self.segment, self.clip = count, physical, segment, None

    def check(self, path, at, streams, backends):
        last = self.logical + (self.count - 1) * self.stride
        log_set, stream, backend, _ = self.segment
        if self.count < 1 or self.length < 1 or (self.stride != 0 if self.count == 1 else abs(self.stride) < self.length):
            raise Bad(path, at, f"run: count {self.count}, length {self.length}, stride {self.stride}")
        if min(self.logical, last) < 0 or max(self.logical, last) + self.length > MAX:
            raise Bad(path, at, "run: logical range outside 0 to 2^63-1")
        if self.physical + self.count * self.length > MAX:
            raise Bad(path, at, "run: physical range past 2^63-1")
        if stream >= streams or backend != (log_set + stream) % backends:
            raise Bad(path, at, f"segment reference: stream {stream}, backend {backend}")

    def end(self):
        return max(self.logical, self.logical + (self.count - 1) * self.stride) + self.length

    def pieces(self):
        """(start, end, physical) from the lowest logical byte up, cut at the clip."""
        for i in range(self.count) if self.stride >= 0 else range(self.count - 1, -1, -1):
            start = self.logical + i * self.stride
            if self.clip is not None and start >= self.clip:
                return
            end = start + self.length
            yield start, end if self.clip is None else min(end, self.clip), self.physical + i * self.length


class Truncate:
    def __init__(self, order, size):
        self.order, self.size, self.clip = order, size, None


class Log:
    """The valid blocks of one index log from `start` on; `places` lists what lies between and behind them."""
    def __init__(self, path, log_set, sb, is_open, start=0):
        self.path, self.set, self.sb = path, log_set, sb
        self.blocks, self.records, self.rows, self.places = 0, [], [], []
        self.headers = []                                # (order, is truncate, eof)
        with open(path, "rb") as f:
            raw = memoryview(f.read())
        self.bytes, at, hlc, bad = len(raw), -(-start // BLOCK_ALIGN) * BLOCK_ALIGN, 0, None
        while at < len(raw):
            header = self.header(raw, at)
            if header is None:
                bad = at if bad is None else bad
                at += BLOCK_ALIGN
                continue
            if bad is not None:
                self.place("skipped", bad, f"no valid block in {at - bad} bytes in front of one")
                bad = None
            try:
                if header[5] <= hlc:
                    raise Bad(path, at, "block: its HLC stamp is not above the last one")
                hlc = header[5]
                self.block(raw, at, header)
            except Bad as e:
                self.places.append(e.place)
            self.blocks += 1
            at += -(-(64 + header[2]) // BLOCK_ALIGN) * BLOCK_ALIGN
        if bad is not None:
            self.place("unfinished" if is_open else "torn", bad, "no valid block from here to the end")

    def place(self, kind, at, what):
        self.places.append({"kind": kind, "file": self.path, "offset": at, "what": what})

    def header(self, raw, at):
        if len(raw) - at < 64 or raw[at:at + 4] != b"PLIX":
            return None
        h = struct.unpack_from("<4sIII8sQQQQIHH", raw, at)
        _, crc, payload, log_set, uuid, _, _, offset = h[:8]
        if (payload > PAYLOAD_MAX or at + 64 + payload > len(raw) or log_set != self.set or offset != at
                or uuid != self.sb.uuid[:8] or crc != crc32c(raw[at + 8:at + 64 + payload])):
            return None
        return h

    def block(self, raw, at, header):
        payload, (hlc, version, _, eof, count, refs, flags) = header[2], header[5:]
        if version != 0 or flags & ~1:
            raise Bad(self.path, at, f"block: version {version}, flags {flags:#x}")
        pos, stop = at + 64 + 16 * refs, at + 64 + payload
        if pos > stop:
            raise Bad(self.path, at, f"block: no room for {refs} segment references")
        table = [struct.unpack_from("<IHHI", raw, at + 64 + 16 * i) for i in range(refs)]
        records, rows, end = [], [], 0
        for position in range(count):
            if stop - pos < 8 or not (units := raw[pos + 1]) or pos + 8 * units > stop:
                raise Bad(self.path, pos, "record does not fit its block")
            kind, _, ref, n = struct.unpack_from("<BBHI", raw, pos)
            order, row = (version, hlc, self.set, position), {}
            if kind == 1 and units == 6 and ref < refs:
                logical, length, stride, physical, writer = struct.unpack_from("<QQqQI", raw, pos + 8)
                run = Run(order, logical, length, stride, n, physical, table[ref])
                run.check(self.path, pos, self.sb.streams, len(self.sb.paths))
                records.append(run)
                end = max(end, run.end())
                row = {"kind": "run", "logical": logical, "length": length, "stride": stride, "count": n,
                       "physical": physical, "segment": segment_name(table[ref]), "writer": writer}
            elif kind == 2 and units == 2 and ref == n == 0:
                end = struct.unpack_from("<Q", raw, pos + 8)[0]
                if end > MAX or not flags & 1:
                    raise Bad(self.path, pos, "truncate record: too large, or not in a truncate block")
                records.append(Truncate(order, end))
                row = {"kind": "truncate", "size": end}
            elif kind == 128 and units >= 5:
                writer, pid, uid, _, ns, text = struct.unpack_from("<IIIIQH", raw, pos + 8)
                if 34 + text > 8 * units:
                    raise Bad(self.path, pos, "writer record: its text does not fit")
                host = bytes(raw[pos + 34:pos + 34 + text]).decode("utf-8", "replace")
                row = {"kind": "writer", "writer": writer, "pid": pid, "uid": uid, "host": host, "attached_ns": ns}
            elif kind < 128:
                raise Bad(self.path, pos, f"record of unknown kind {kind} or wrong form")
            else:
                row = {"kind": kind}
            rows.append((order, {"set": f"{self.set:08x}", "hlc": hlc, "block": at, "position": position, **row}))
            pos += 8 * units
        if pos != stop or end != eof or (flags & 1 and (len(records) != 1 or isinstance(records[0], Run))):
            raise Bad(self.path, at, f"block: payload, eof {eof} or flags {flags} do not fit its records")
        self.records += records
        self.rows += rows
        self.headers.append(((version, hlc, self.set), flags & 1, eof))


def segment_name(ref):
    return f"{ref[0]:08x}.{ref[1]:02x}.{ref[3]:04x}.data"


# ---- §6 flat index
class Flat:
    def __init__(self, path, sb):
        with open(path, "rb") as f:
            raw = f.read()
        if len(raw) < 128 or raw[:8] != b"PLFSFLAT":
            raise Bad(path, 0, "not a flat index")
        if struct.unpack_from("<I", raw, 8)[0] != crc32c(raw[12:128]):
            raise Bad(path, 8, "flat index: wrong CRC of the header")
        if struct.unpack_from("<I", raw, 12)[0] != crc32c(raw[128:]):
            raise Bad(path, 12, "flat index: wrong CRC of the body")
        if raw[16:32] != sb.uuid:
            raise Bad(path, 16, "flat index of another container")
        self.size, self.stored, self.hlc, c, s, t, _, e = struct.unpack_from("<QQQIIIIQ", raw, 32)
        if len(raw) != 128 + 16 * c + 16 * s + 24 * t + 72 * e:
            raise Bad(path, 56, "flat index: the counts do not fit its length")
        body, at = memoryview(raw), 128
        def part(form, n):
            nonlocal at
            begin, at = at, at + n * struct.calcsize(form)
            return list(struct.iter_unpack(form, body[begin:at]))
        self.covered = {log_set: length for log_set, _, length in part("<IIQ", c)}
        refs = [(a, b, k, seg) for a, b, k, seg, _ in part("<IHHII", s)]
        cuts, entries = part("<QIIQ", t), part("<QQQQqQQIIII", e)
        if cuts != sorted(cuts, key=lambda x: x[:3]) or entries != sorted(entries, key=lambda x: (x[0], *x[6:9])):
            raise Bad(path, 128, "flat index: truncates or entries are not sorted")
        self.records = [Truncate((0, *x[:3]), x[3]) for x in cuts]
        begin = at - 72 * e
        for i, (first, end, _, length, stride, physical, hlc, log_set, pos, count, ref) in enumerate(entries):
            if ref >= s:
                raise Bad(path, begin + 72 * i, "flat index: entry without segment reference")
            run = Run((0, hlc, log_set, pos), first if stride >= 0 else end - length, length, stride, count, physical, refs[ref])
            run.check(path, begin + 72 * i, sb.streams, len(sb.paths))
            if first + (count - 1) * abs(stride) + length != end or hlc > self.hlc:
                raise Bad(path, begin + 72 * i, "flat index: entry's end or HLC does not fit")
            self.records.append(run)
        def tree(a, b):
            if a >= b:
                return 0
            m = (a + b) // 2
            if max(entries[m][1], tree(a, m), tree(m + 1, b)) != entries[m][2]:
                raise Bad(path, begin + 72 * m + 16, "flat index: wrong max_end")
            return entries[m][2]
        tree(0, e)
        if logical_size(self.records) != self.size:
            raise Bad(path, 32, f"flat index: size {self.size} does not fit its entries")


# ---- §4 order
def logical_size(records):
    """Sorts the records, sets every clip, returns the size."""
    records.sort(key=lambda r: r.order)
    clip, size = None, 0
    for r in reversed(records):
        r.clip = clip
        end = r.size if isinstance(r, Truncate) else r.end()
        size = max(size, end if clip is None else min(end, clip))
        if isinstance(r, Truncate):
            clip = end if clip is None else min(clip, end)
    return size


def extents(records):
    """(start, end, segment, physical) of every byte that is no hole, ascending, the newest record's. Runs unfold one piece at a
    time: pieces of a run never overlap, so at most one piece a run is active."""
    todo, active, pos, held = [], [], 0, None
    def push(rank, pieces):
        piece = next(pieces, None)
        if piece:
            heapq.heappush(todo, (piece[0], rank, piece, pieces))
    for rank, r in enumerate(records):
        if isinstance(r, Run):
            push(rank, r.pieces())
    while todo or active:
        while active and active[0][1] <= pos:
            heapq.heappop(active)
        if not active and todo:
            pos = max(pos, todo[0][0])
        while todo and todo[0][0] <= pos:
            _, rank, (start, end, physical), pieces = heapq.heappop(todo)
            heapq.heappush(active, (-rank, end, start, physical))
            push(rank, pieces)
        while active and active[0][1] <= pos:
            heapq.heappop(active)
        if not active:
            continue
        rank, end, start, physical = active[0]
        stop = min(end, todo[0][0]) if todo else end
        segment, physical = records[-rank].segment, physical + pos - start
        if held and held[1] == pos and held[2] == segment and held[3] + pos - held[0] == physical:
            held = held[0], stop, segment, held[3]
        else:
            if held:
                yield held
            held = pos, stop, segment, physical
        pos = stop
    if held:
        yield held


# ---- the container as a whole
class Container:
    """`flat`: "ignore" it, "check" it, or "use" it."""
    def __init__(self, name, flat="check"):
        self.sb, self.dir, self.root, self.copy = find_container(name)
        names = sorted(os.listdir(self.dir))
        pick = lambda form: [n for n in names if re.fullmatch(form, n)]
        self.marks = [n[:8] for n in pick(r"[0-9a-f]{8}\.open")]
        sets = {int(n[:8], 16): os.path.join(self.dir, n) for n in pick(r"[0-9a-f]{8}\.index")}
        self.records, self.places, self.flat, self.flat_state = [], [], None, "none"
        if "flat" in names and flat != "ignore":
            try:
                self.flat, self.flat_state = Flat(os.path.join(self.dir, "flat"), self.sb), "valid"
                if any(s not in sets or os.stat(sets[s]).st_size < n for s, n in self.flat.covered.items()):
                    self.flat_state = "stale"
            except Bad as e:
                self.flat_state = "damaged"
                self.places.append(e.place)
        use_flat = flat == "use" and self.flat_state == "valid"
        covered = self.flat.covered if use_flat else {}
        self.records = list(self.flat.records) if use_flat else []
        self.logs = [Log(p, s, self.sb, f"{s:08x}" in self.marks, covered.get(s, 0)) for s, p in sets.items()]
        for log in self.logs:
            self.records += log.records
            self.places += log.places
        self.size = logical_size(self.records)

    def segment_path(self, ref):
        root = self.sb.paths[ref[2]] if ref[2] else self.root
        return os.path.join(root, os.path.relpath(self.dir, self.root), segment_name(ref))

    def stat(self):
        runs = [r for r in self.records if isinstance(r, Run)]
        ends, headers = {}, 0
        for r in runs:
            ends[r.segment] = max(ends.get(r.segment, 0), r.physical + r.count * r.length)
        for ref, end in ends.items():
            path = self.segment_path(ref)
            have = os.stat(path).st_size if os.path.exists(path) else -1
            if have < end:
                self.places.append({"kind": "missing" if have < 0 else "short", "file": path, "offset": max(have, 0),
                                    "what": f"records point at {end} bytes"})
        for _, truncates, eof in sorted(h for log in self.logs for h in log.headers):
            headers = eof if truncates else max(headers, eof)
        if headers != self.size:
            self.places.append(Bad(self.dir, 0, f"size {headers} from block headers, {self.size} from records").place)
        found = {"log_sets": len(self.logs), "size": self.size, "stored_bytes": sum(r.count * r.length for r in runs),
                 "hlc": max((r[0][1] for log in self.logs for r in log.rows), default=0),
                 "index_bytes": sum(log.bytes for log in self.logs), "records": len(self.records)}
        summary = self.sb.read_summary(os.stat(self.dir).st_mtime_ns)
        if isinstance(summary, dict) and summary != found:
            self.places.append(Bad(self.sb.path, 3072, f"summary says {summary}").place)
        return {**found, "uuid": self.sb.uuid.hex(), "copy": self.copy, "open_marks": self.marks, "segments": len(ends),
                "sets": [{"set": f"{log.set:08x}", "blocks": log.blocks, "bytes": log.bytes} for log in self.logs],
                "blocks": sum(log.blocks for log in self.logs), "flat": self.flat_state,
                "summary": "valid" if isinstance(summary, dict) else summary, "places": self.places}

    def write_to(self, fd):
        """Holes are left out if fd can seek, and are zeros if not."""
        seeks = stat.S_ISREG(os.fstat(fd).st_mode) and not fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_APPEND
        at, fds = 0, {}
        def put(data):
            while data:
                data = data[os.write(fd, data):]
        def hole(to):
            if seeks:
                return os.lseek(fd, to, os.SEEK_SET)
            for off in range(at, to, 1 << 20):
                put(bytes(min(1 << 20, to - off)))
        for start, end, ref, physical in extents(self.records):
            hole(start)
            at, path = start, self.segment_path(ref)
            if path not in fds:
                fds[path] = os.open(path, os.O_RDONLY)
            while at < end:
                data = os.pread(fds[path], min(end - at, 8 << 20), physical + at - start)
                if not data:
                    raise Bad(path, physical + at - start, "segment ends before the bytes of a record")
                put(data)
                at += len(data)
        hole(self.size)
        if seeks:
            os.ftruncate(fd, self.size)


def main(args):
    command, name = [a for a in args if a != "--flat"]
    c = Container(name, "use" if "--flat" in args else "check" if command == "stat" else "ignore")
    if command == "stat":
        print(json.dumps(c.stat(), indent=1))
    elif command == "records":
        for _, row in sorted((r for log in c.logs for r in log.rows), key=lambda r: r[0]):
            print(json.dumps(row))
    elif command == "cat":
        c.write_to(1)
    else:
        raise ValueError(command)
    for place in c.places:
        print("plfs_decode: {kind}: {file}: at byte {offset}: {what}".format(**place), file=sys.stderr)
    return int(any(p["kind"] not in ("torn", "unfinished", "skipped") for p in c.places))


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (Bad, OSError) as e:
        sys.exit(f"plfs_decode: {e}")
    except ValueError:
        sys.exit(__doc__)
