#!/usr/bin/env python3
"""Reads a PLFS container through its flat index (docs/FORMAT.md §6); all else is plfs_decode.py's.

    flat_index.py records NAME         what the flat index has and the records that it does not
                                       cover, one JSON line each
    flat_index.py cat NAME > out       the logical bytes through these

If there is no flat index, or it is stale or damaged, the index logs are read. Exit status: as that
of plfs_decode.py, and 1 if the flat index is damaged.
"""

import itertools, math, os, pathlib, sys
import plfs_decode
from plfs_decode import (
    MAX,
    REFERENCE,
    Record,
    Table,
    need,
    place,
    replay,
    round_up,
    run,
    span,
    truncate,
)

FLAT = Table(
    "magic:8s crc:I body_crc:I uuid:16s size:Q records:Q stamp:Q sets:I segments:I truncates:I shapes:I entries:Q shape_bytes:Q "
    "blocks:I owners:I extents:Q block_bytes:Q table_bytes:Q floor:Q"
)
CUT = Table("stamp:Q log_set:I zero:I size:Q")
SHAPE = Table("axes:I bytes:I")
AXIS = Table("stride:Q physical:q segment:q count:I flags:I")
ENTRY = Table(
    "first:Q end:Q max_end:Q length:Q stride:q physical:Q stamp:Q log_set:I shape:I count:I segment:I"
)
FENCE = Table("first:Q offset:I crc:I")
HOLE = 2**32 - 1
MAGIC_BEFORE = b"PLFSFLT3"


class Flat(plfs_decode.Reader):
    """`records` has the truncates and a run for each entry of shape 0, each piece of other entries
    and each extent of a block."""

    def __init__(self, path, raw):
        super().__init__(raw, 0, len(raw))
        self.path, self.records, self.ordered = path, [], 0

    def parse(self, sb):
        # Those of builds before listed fewer truncates.
        magic = MAGIC_BEFORE if self.raw.startswith(MAGIC_BEFORE) else b"PLFSFLT4"
        self.head = head = FLAT.framed(self.raw, magic, 0, 128)
        need(head, "wrong magic or CRC of the header")
        need(head.uuid == sb.uuid, "not one of this container")
        tables_end = 128 + head.table_bytes
        shapes_end = tables_end + head.shape_bytes
        first_block = shapes_end + 72 * head.entries + 16 * head.blocks
        need(
            self.end == first_block + head.block_bytes
            and head.body_crc == plfs_decode.crc32c(self.raw[128:first_block]),
            "wrong length or CRC",
        )
        self.at, self.unordered = 128, (head.floor, 2**32 - 1)
        self.tables(sb, tables_end)
        shapes = [self.shape() for _ in range(head.shapes)]
        self.skip_to(shapes_end)
        self.tabled = sum(len(table) > 1 for _, table in shapes)
        entries, fences = self.rows(ENTRY, head.entries), self.rows(FENCE, head.blocks)
        need(
            entries == sorted(entries, key=lambda e: (e.first, e.stamp, e.log_set)),
            "entries are not sorted",
        )
        need(fences == sorted(fences), "fences are not sorted")
        self.tree(entries, 0, len(entries))
        for e in entries:
            if e.shape == 0:
                self.entry(e)
        overlapping = len(self.records)
        for e in entries:
            if e.shape:
                self.shaped(e, *shapes[e.shape - 1])
        pieces = len(self.records)
        for fence, stop in zip(
            fences, [8 * fence.offset for fence in fences[1:]] + [head.block_bytes]
        ):
            need(self.at == first_block + 8 * fence.offset, "fences: a block begins elsewhere")
            self.block(fence, first_block + stop)
        need(
            self.at == self.end and len(self.records) - pieces == head.extents,
            "bytes or extents behind the blocks",
        )
        apart = sorted((r.first, r.end) for r in self.records[overlapping:])
        need(
            all(a[1] <= b[0] for a, b in zip(apart, apart[1:])),
            "pieces of shapes and extents share a byte",
        )
        need(all(r.order[0] <= head.stamp for r in self.records), "stamps above the largest")
        self.records += self.cuts
        if head.floor:  # a truncate that made the file longer may be left out: a hole of no bytes
            self.records.append(
                Record(
                    kind="run",
                    order=self.unordered,
                    logical=head.size,
                    length=0,
                    axes=[],
                    physical=0,
                    segment=None,
                    end=head.size,
                )
            )
        need(replay(self.records)[0] == head.size, f"size {head.size} does not fit its entries")

    def skip_to(self, end):
        """Over the zeros behind a part that ends there."""
        self.at = round_up(self.at, 8)
        need(self.at == end, f"this part should end at {end}")

    def column(self, n):
        """n values."""
        head = self.number(2)
        bits, shift, base = head & 127, head >> 7 & 31, self.number(head >> 12)
        need(bits + shift <= 64 and head >> 12 <= 8, f"column {head:#x}")
        fields = self.number((n * bits + 7) // 8)
        return [base + ((fields >> i * bits & (1 << bits) - 1) << shift) for i in range(n)]

    def tables(self, sb, end):
        c, s, o = self.head.sets, self.head.segments, self.head.owners
        need(
            c <= 8 * self.head.table_bytes and s <= 8 * self.head.table_bytes and o <= s,
            "too many log sets or segments",
        )
        self.sets, begin, covered, owner, owned, *names, ends = map(
            self.column, (c, c, c, o, o, s, s, s, s)
        )
        self.cuts = [
            truncate((cut.stamp, cut.log_set), cut.size)
            for cut in self.rows(CUT, self.head.truncates)
        ]
        self.skip_to(end)
        need(
            not any(begin) and sum(owned) == s and max(ends + covered, default=0) <= MAX,
            "log sets or segments",
        )
        owners = [self.sets[i] for i, n in zip(owner, owned) for _ in range(n)]
        references = [
            REFERENCE.row(log_set, segment, stream, backend, 0, 0, 0)
            if backend < 65535
            else plfs_decode.BASE
            for log_set, stream, backend, segment in zip(owners, *names)
        ]
        need(
            all(r.stream <= 255 and r.backend <= 65535 and r.segment < 2**32 for r in references),
            "a segment that has no name",
        )
        need(
            all(a.order < b.order and a.end < b.end for a, b in zip(self.cuts, self.cuts[1:])),
            "idle or unsorted truncates",
        )
        self.segments, self.covered = (
            list(zip(references, ends)),
            {log_set: n for log_set, n in zip(self.sets, covered) if n},
        )

    def shape(self):
        """Its axes, and (segment, physical) for each place in the tabled ones."""
        begin, [head] = self.at, self.rows(SHAPE, 1)
        need(1 <= head.axes <= 8, f"shape of {head.axes} axes")
        axes = self.rows(AXIS, head.axes)
        tabled = [axis.count for axis in axes if axis.flags & 1]
        need(
            all(axis.count >= 2 for axis in axes) and math.prod(tabled) <= 8 * head.bytes,
            "shape: axis or table",
        )
        columns = [self.column(math.prod(tabled)) for _ in range(2)] if tabled else [[0], [0]]
        self.skip_to(begin + head.bytes)
        return axes, dict(zip(itertools.product(*map(range, tabled)), zip(*columns)))

    def tree(self, entries, a, b):
        """The largest end of entries [a, b), as their root says."""
        m = (a + b) // 2
        need(
            a == b
            or entries[m].max_end
            == max(entries[m].end, self.tree(entries, a, m), self.tree(entries, m + 1, b)),
            f"wrong max_end of entry {m}",
        )
        return entries[m].max_end if a < b else 0

    def entry(self, e):
        """Of shape 0."""
        self.add(
            (e.stamp, e.log_set),
            e.first if e.stride >= 0 else e.end - e.length,
            e.length,
            [(e.stride, e.count)],
            e.physical,
            e.segment,
        )
        need(
            (self.records[-1].first, self.records[-1].end) == (e.first, e.end),
            "entry: its first or end does not fit",
        )

    def shaped(self, e, axes, table):
        spanned = span(e.length, [(axis.stride, axis.count) for axis in reversed(axes)])
        need(
            self.head.floor and spanned == e.end - e.first and (e.stride, e.count) == (0, 1),
            "entry: floor, end, stride or count does not fit its shape",
        )
        for indices in itertools.product(*(range(axis.count) for axis in axes)):
            segment, physical = table[tuple(i for i, axis in zip(indices, axes) if axis.flags & 1)]
            logical, segment, physical = e.first, segment + e.segment, physical + e.physical
            for i, axis in zip(indices, axes):
                logical, segment, physical = (
                    logical + i * axis.stride,
                    segment + i * axis.segment,
                    physical + i * axis.physical,
                )
            self.add(self.unordered, logical, e.length, [], physical, segment)

    def block(self, fence, end):
        need(plfs_decode.crc32c(self.raw[self.at : end]) == fence.crc, "wrong CRC of a block")
        n, flags, logical = self.number(1) + 1, self.number(1), fence.first
        need(
            n <= 128 and (flags == 1 or flags == 0 and self.head.floor),
            "block: number of extents, or flags",
        )
        gaps, lengths, segments, physicals, *order = [
            self.column(n) for _ in range(6 if flags else 4)
        ]
        self.skip_to(end)
        self.ordered += flags
        need(gaps[0] == 0, "fences: the first extent begins elsewhere")
        orders = [(stamp, self.sets[i]) for stamp, i in zip(*order)] or [self.unordered] * n
        for gap, length, segment, physical, place_in_order in zip(
            gaps, lengths, segments, physicals, orders
        ):
            logical += gap
            if segment == HOLE:
                need(physical == logical, "a hole that lies somewhere")
                self.records.append(run(place_in_order, logical, length, [], 0, None))
            else:
                self.add(place_in_order, logical, length, [], physical, segment)
            logical += length

    def add(self, order, logical, length, axes, physical, number):
        """A run in the segment with this number."""
        need(0 <= number < len(self.segments), f"no segment {number}")
        segment, physical_end = self.segments[number]
        self.records.append(run(order, logical, length, axes, physical, segment))
        need(self.records[-1].physical_end <= physical_end, "more bytes than its segment has")


def find(container):
    """The flat index of a container: "none", "damaged", "stale" or "valid"; itself; the index logs
    behind what it covers."""
    summary, path = container.summary(), os.path.join(container.dir, "flat")
    if (
        not isinstance(summary, str) and summary.flat_bytes
    ):  # §5: behind the summary, as long as that counts
        flat = Flat(container.sb.path, container.sb.behind[: summary.flat_bytes])
    elif os.path.exists(path):
        flat = Flat(path, pathlib.Path(path).read_bytes())
    else:
        return "none", None, []
    try:
        flat.parse(container.sb)
    except (ValueError, IndexError) as e:
        container.places.append(place(flat.path, flat.at, str(e), "flat index"))
        return "damaged", None, []
    tail = container.index_logs(flat.covered)
    lengths = {log.set: len(log.raw) for log in tail}
    late = [r for log in tail for r in log.records if r.kind in ("run", "truncate")]
    there = all(lengths.get(log_set, -1) >= covered for log_set, covered in flat.covered.items())
    ordered = not flat.head.floor or all(r.order[0] > flat.head.floor for r in late)
    base = dict(flat.segments).get(plfs_decode.BASE, 0)
    same = not container.sb.has_base or container.base == base  # §11
    return "valid" if there and ordered and same else "stale", flat, tail


class Container(plfs_decode.Container):
    def load(self):
        state, flat, tail = find(self)
        if state != "valid":
            return super().load()
        self.records, self.below = self.records + flat.records, 0
        return tail


def main():
    return plfs_decode.main(Container, __doc__)


if __name__ == "__main__":
    sys.exit(main())
