//! Where the pieces of an entry with a shape lie: arithmetic along the axes, longest stride first,
//! and nothing is expanded outside the range that is asked for.

use std::sync::OnceLock;

use plfs_format::column::Column;
use plfs_format::flat_index::{AXES_MAX, Axis, NewShape, Shape};

use super::entry::Entry;
use super::{Found, Row};
use crate::{MAX_END, Run};

/// A piece: logical bytes `[start, end)`, the segment's number, and physical minus logical offset,
/// wrapping.
pub(super) type Piece = (u64, u64, u32, u64);

/// What the axes span, from each on: `spans[i]` is the distance from the first byte of a piece to
/// one past the last along axes `i` and those behind it. `None` if pieces could overlap or
/// the entry's bounds say otherwise.
#[inline]
fn spans(axes: &[Axis], length: u64) -> Option<[u64; AXES_MAX + 1]> {
    let mut spans = [0; AXES_MAX + 1];
    *spans.get_mut(axes.len())? = length;
    for (i, axis) in axes.iter().enumerate().rev() {
        let inner = spans[i + 1];
        if axis.stride < inner || axis.count == 0 {
            return None;
        }
        spans[i] = axis.stride.checked_mul(u64::from(axis.count) - 1)?.checked_add(inner)?;
    }
    (length > 0 && spans[0] <= MAX_END).then_some(spans)
}

/// What the pieces span, if they cannot overlap: each stride at least what the axes behind it span.
pub(super) fn span(axes: &[Axis], length: u64) -> Option<u64> {
    spans(axes, length).map(|spans| spans[0])
}

/// An entry and its shape, both of a file that may say anything.
pub(super) struct Shaped<'a> {
    pub(super) entry: &'a Entry,
    pub(super) shape: &'a Shape,
    /// The flat index, in which a table lies.
    pub(super) file: &'a [u8],
    /// Where the spans of the shape are kept.
    pub(super) spans: Option<&'a OnceLock<Spans>>,
}

/// What the axes of a shape [span](spans) if pieces are of this length.
pub(super) type Spans = (u64, Option<[u64; AXES_MAX + 1]>);

/// Where the way along the axes has come.
#[derive(Clone, Copy)]
struct At {
    logical: u64,
    segment: i64,
    physical: i64,
    place: usize,
}

impl At {
    /// `i` steps along an axis; the logical offset stays.
    #[inline]
    fn moved(self, axis: &Axis, i: u64) -> At {
        At {
            segment: self.segment.wrapping_add(axis.segment.wrapping_mul(i as i64)),
            physical: self.physical.wrapping_add(axis.physical.wrapping_mul(i as i64)),
            place: if axis.tabled {
                self.place.wrapping_mul(axis.count as usize).wrapping_add(i as usize)
            } else {
                self.place
            },
            ..self
        }
    }
}

impl Shaped<'_> {
    fn spans(&self) -> Option<[u64; AXES_MAX + 1]> {
        let (first, end, length) =
            (self.entry.first.get(), self.entry.end.get(), self.entry.length.get());
        let find = || spans(&self.shape.axes, length);
        let spans = match self.spans.map(|kept| kept.get_or_init(|| (length, find()))) {
            Some((of, spans)) if *of == length => *spans,
            _ => find(),
        };
        spans.filter(|spans| {
            end <= MAX_END
                && first < end
                && end - first == spans[0]
                && (self.entry.stride.get(), self.entry.count.get()) == (0, 1)
        })
    }

    /// The shape with its table, to be written again.
    pub(super) fn to_new(&self) -> NewShape {
        let axes = self.shape.axes.clone();
        let places =
            axes.iter().filter(|axis| axis.tabled).map(|axis| axis.count as usize).product();
        let column = |column: Column| (0..places).map(|i| column.get(self.file, i)).collect();
        let (segments, physicals) = self
            .shape
            .table
            .map_or_else(Default::default, |table| (column(table.segment), column(table.physical)));
        NewShape { axes, segments, physicals }
    }

    /// Whether the entry keeps the limits.
    pub(super) fn is_sound(&self) -> bool {
        self.spans().is_some()
    }

    /// Calls `f` for the part of each piece inside `[from, to)`, ascending. False if the entry does
    /// not keep the limits: then it has no pieces.
    #[inline]
    pub(super) fn pieces(&self, from: u64, to: u64, f: &mut impl FnMut(Piece)) -> bool {
        let Some(spans) = self.spans() else { return false };
        if from >= to {
            return true;
        }
        match self.locate(&spans, from) {
            Some(piece) if piece.1 >= to => {
                f((piece.0, to, piece.2, piece.3));
                return true;
            }
            // A byte that no piece has.
            None if to - from <= 1 => return true,
            _ => {}
        }
        let start = At {
            logical: self.entry.first.get(),
            segment: i64::from(self.entry.segment.get()),
            physical: self.entry.physical.get() as i64,
            place: 0,
        };
        self.descend(0, &spans, start, from, to, f);
        true
    }

    /// How many runs [`expand`](Shaped::expand) gives.
    pub(super) fn expanded(&self) -> u64 {
        let along = self.along();
        let counts = self
            .shape
            .axes
            .iter()
            .enumerate()
            .filter(|(i, _)| Some(*i) != along)
            .map(|(_, axis)| u64::from(axis.count));
        counts.fold(1, u64::saturating_mul)
    }

    /// The axis in which both offsets go on piece by piece, as one writer writes.
    fn along(&self) -> Option<usize> {
        let length = self.entry.length.get();
        self.shape.axes.iter().rposition(|axis| {
            !axis.tabled && axis.segment == 0 && axis.physical.unsigned_abs() == length
        })
    }

    /// Calls for all pieces as runs along [that axis](Shaped::along), as singles if there is none.
    /// The entry [is sound](Shaped::is_sound); false if a run is none.
    pub(super) fn expand(&self, f: &mut impl FnMut(Run)) -> bool {
        let length = self.entry.length.get();
        let mut rest = self.shape.axes.clone();
        let along = self.along().map(|i| rest.remove(i));
        // Without that axis, what is left gives the first piece of each run.
        let shape = Shape { axes: rest, table: self.shape.table };
        let Some(span) = span(&shape.axes, length) else { return false };
        let (mut entry, mut are_valid) = (*self.entry, true);
        entry.end = (entry.first.get() + span).into();
        Shaped { entry: &entry, shape: &shape, file: self.file, spans: None }.pieces(
            0,
            u64::MAX,
            &mut |(start, _, segment, shift)| {
                let run = Run::single(start, length, segment, start.wrapping_add(shift));
                let run = along.map_or(run, |axis| {
                    let reach = u64::from(axis.count) - 1;
                    match axis.physical > 0 {
                        true => Run { stride: axis.stride as i64, count: axis.count, ..run },
                        // Written backwards: what is stored first is what is logically last.
                        false => Run {
                            logical: run.logical + reach * axis.stride,
                            stride: -(axis.stride as i64),
                            count: axis.count,
                            physical: run.physical.wrapping_sub(reach * length),
                            ..run
                        },
                    }
                });
                match run.is_valid() {
                    true => f(run),
                    false => are_valid = false,
                }
            },
        );
        are_valid
    }

    /// The piece that has byte `from`, from there on.
    #[inline]
    fn locate(&self, spans: &[u64; AXES_MAX + 1], from: u64) -> Option<Piece> {
        let (at, _) = self.way(spans, from)?;
        Some(self.piece(at, from, at.logical + self.entry.length.get()))
    }

    /// The piece that has byte `from`, and those behind it along the axis with this stride, if
    /// they all lie in one segment.
    pub(super) fn row(&self, from: u64, stride: u64) -> Option<Row> {
        let spans = self.spans()?;
        let (at, index) = self.way(&spans, from)?;
        let of_row = |axis: &Axis| axis.stride == stride && !axis.tabled && axis.segment == 0;
        let along = self.shape.axes.iter().position(of_row)?;
        let axis = &self.shape.axes[along];
        let length = self.entry.length.get();
        let (logical, _, segment, shift) = self.piece(at, at.logical, at.logical + length);
        let physical = logical.wrapping_add(shift);
        // Below count.
        let more = axis.count - 1 - index[along] as u32;
        let last =
            axis.physical.checked_mul(more.into())?.checked_add(physical.try_into().ok()?)?;
        let fits = last >= 0 && last as u64 <= MAX_END - length;
        let piece = Found { logical, length, segment, physical };
        fits.then_some(Row { piece, stride, step: axis.physical, more })
    }

    /// The way along the axes to the piece that has byte `from`, and how many steps it is along
    /// each.
    #[inline]
    fn way(&self, spans: &[u64; AXES_MAX + 1], from: u64) -> Option<(At, [u64; AXES_MAX])> {
        let mut rest = from.checked_sub(self.entry.first.get()).filter(|rest| *rest < spans[0])?;
        let mut index = [0; AXES_MAX];
        for (i, axis) in self.shape.axes.iter().enumerate() {
            // Below count, because the rest is below what the axes from here on span.
            index[i] = rest / axis.stride;
            rest -= index[i] * axis.stride;
            if rest >= spans[i + 1] {
                return None;
            }
        }
        let mut at = At {
            logical: from - rest,
            segment: i64::from(self.entry.segment.get()),
            physical: self.entry.physical.get() as i64,
            place: 0,
        };
        for (axis, i) in self.shape.axes.iter().zip(index) {
            at = at.moved(axis, i);
        }
        Some((at, index))
    }

    /// What lies at the end of the way: the piece at `at`, cut to `[from, to)`.
    #[inline]
    fn piece(&self, at: At, from: u64, to: u64) -> Piece {
        let (mut segment, mut physical) = (at.segment, at.physical);
        if let Some(table) = self.shape.table {
            segment = segment.wrapping_add(table.segment.get(self.file, at.place) as i64);
            physical = physical.wrapping_add(table.physical.get(self.file, at.place) as i64);
        }
        // What leaves the limits is of a file that lies: a piece of a segment that nobody has.
        let fits = physical >= 0 && physical as u64 <= MAX_END - self.entry.length.get();
        let (segment, physical) = if fits {
            (u32::try_from(segment).unwrap_or(u32::MAX), physical as u64)
        } else {
            (u32::MAX, 0)
        };
        (from, to, segment, physical.wrapping_sub(at.logical))
    }

    fn descend(
        &self,
        depth: usize,
        spans: &[u64; AXES_MAX + 1],
        at: At,
        from: u64,
        to: u64,
        f: &mut impl FnMut(Piece),
    ) {
        let (lo, hi) = (from.max(at.logical), to.min(at.logical + spans[depth]));
        if lo >= hi {
            return;
        }
        let Some(axis) = self.shape.axes.get(depth) else { return f(self.piece(at, lo, hi)) };
        let inner = spans[depth + 1];
        let last = ((hi - 1 - at.logical) / axis.stride).min(u64::from(axis.count) - 1);
        // Mostly the range begins in the last one, which spares a division.
        let first = match at.logical + last * axis.stride {
            start if lo >= start => last,
            _ if lo < at.logical + inner => 0,
            _ => (lo - at.logical - inner) / axis.stride + 1,
        };
        for i in first..=last {
            let next = At { logical: at.logical + i * axis.stride, ..at.moved(axis, i) };
            self.descend(depth + 1, spans, next, from, to, f);
        }
    }

    /// Lowest byte of a piece in `[from, to)`.
    pub(super) fn next_byte(&self, from: u64, to: u64) -> Option<u64> {
        let spans = self.spans()?;
        let byte = next_byte(&self.shape.axes, &spans, self.entry.first.get(), from)?;
        (byte < to).then_some(byte)
    }
}

fn next_byte(axes: &[Axis], spans: &[u64], base: u64, from: u64) -> Option<u64> {
    if from >= base + spans[0] {
        return None;
    }
    let Some((axis, rest)) = axes.split_first() else { return Some(from.max(base)) };
    let i = (from.saturating_sub(base) / axis.stride).min(u64::from(axis.count) - 1);
    let start = base + i * axis.stride;
    match next_byte(rest, &spans[1..], start, from) {
        None if i + 1 < u64::from(axis.count) => {
            next_byte(rest, &spans[1..], start + axis.stride, from)
        }
        found => found,
    }
}

/// Some pieces without where they are stored: axes, length, first byte.
#[derive(Clone, Copy, Debug)]
pub(super) struct Footprint<'a> {
    pub(super) axes: &'a [Axis],
    pub(super) length: u64,
    pub(super) first: u64,
}

/// Rows of one footprint that are compared one by one with another, at most.
const ROWS: u64 = 64;

/// Whether two footprints share no byte. False also if that would take too long to find out.
pub(super) fn are_disjoint(a: Footprint<'_>, b: Footprint<'_>) -> bool {
    let (Some(span_a), Some(span_b)) = (span(a.axes, a.length), span(b.axes, b.length)) else {
        return false;
    };
    if a.first + span_a <= b.first || b.first + span_b <= a.first {
        return true;
    }
    let stride = |of: &Footprint<'_>| of.axes.first().map_or(0, |axis| axis.stride);
    if stride(&a) == stride(&b) {
        let (low, high) = if a.first <= b.first { (a, b) } else { (b, a) };
        let (Some((axis, rest)), Some((_, other))) =
            (low.axes.split_first(), high.axes.split_first())
        else {
            return false;
        };
        // Both go on in equal steps, and a row is no longer than a step: row j of the higher one
        // meets at most rows `shift` + j and the next of the lower one, always in the same way.
        let shift = (high.first - low.first) / axis.stride;
        let first_row = Footprint { axes: other, ..high };
        return [shift, shift + 1].into_iter().filter(|row| *row < u64::from(axis.count)).all(
            |row| {
                let row = Footprint { axes: rest, first: low.first + row * axis.stride, ..low };
                are_disjoint(row, first_row)
            },
        );
    }
    // The one with the longer stride row by row, if few rows are in reach.
    let (long, short, span_short) =
        if stride(&a) > stride(&b) { (a, b, span_b) } else { (b, a, span_a) };
    let Some((axis, rest)) = long.axes.split_first() else { return false };
    let inner = span(rest, long.length).unwrap_or(u64::MAX);
    let first = if short.first < long.first + inner {
        0
    } else {
        (short.first - long.first - inner) / axis.stride + 1
    };
    let last = ((short.first + span_short - 1).saturating_sub(long.first) / axis.stride)
        .min(u64::from(axis.count) - 1);
    last.saturating_sub(first) < ROWS
        && (first..=last).all(|row| {
            are_disjoint(
                Footprint { axes: rest, first: long.first + row * axis.stride, ..long },
                short,
            )
        })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::Order;

    fn axis(stride: u64, count: u32) -> Axis {
        Axis { stride, count, ..Axis::default() }
    }

    /// First bytes of pieces, by counting.
    fn starts(axes: &[Axis], first: u64) -> Vec<u64> {
        match axes.split_first() {
            None => vec![first],
            Some((axis, rest)) => (0..u64::from(axis.count))
                .flat_map(|i| starts(rest, first + i * axis.stride))
                .collect(),
        }
    }

    fn bytes(of: Footprint<'_>) -> BTreeSet<u64> {
        starts(of.axes, of.first).into_iter().flat_map(|start| start..start + of.length).collect()
    }

    /// All footprints of up to two axes in a small universe, each with each: what is called
    /// disjoint is, and what has equal strides is found out exactly.
    #[test]
    fn footprints_are_compared_exactly() {
        let mut all = Vec::new();
        for length in 1..4 {
            for axes in [
                vec![],
                vec![axis(4, 3)],
                vec![axis(4, 2)],
                vec![axis(6, 3)],
                vec![axis(12, 2), axis(4, 3)],
                vec![axis(12, 2), axis(6, 2)],
                vec![axis(13, 2), axis(4, 2)],
            ] {
                all.push((axes, length));
            }
        }
        let mut given_up = 0;
        for (axes_a, length_a) in &all {
            for (axes_b, length_b) in &all {
                for first_b in 0..40 {
                    let a = Footprint { axes: axes_a, length: *length_a, first: 13 };
                    let b = Footprint { axes: axes_b, length: *length_b, first: first_b };
                    let share = bytes(a).intersection(&bytes(b)).next().is_some();
                    assert!(!are_disjoint(a, b) || !share, "{a:?} {b:?}");
                    assert_eq!(are_disjoint(a, b), are_disjoint(b, a));
                    given_up += usize::from(!are_disjoint(a, b) && !share);
                }
            }
        }
        assert_eq!(given_up, 0, "rows are few here");
    }

    #[test]
    fn pieces_and_next_bytes_agree_with_counting() {
        for axes in [
            vec![axis(5, 4)],
            vec![axis(30, 3), axis(7, 4)],
            vec![axis(100, 2), axis(30, 3), axis(3, 9)],
            vec![axis(12, 2), axis(6, 2), axis(3, 2)],
        ] {
            for length in 1..=3 {
                let axes: Vec<Axis> = axes
                    .iter()
                    .enumerate()
                    .map(|(i, axis)| Axis {
                        physical: 1000 * (i as i64 + 1),
                        segment: i as i64,
                        ..*axis
                    })
                    .collect();
                let shape = Shape { axes: axes.clone(), table: None };
                let first = 17;
                let mut entry = Entry::new(
                    Run::single(first, span(&axes, length).unwrap(), 3, 50_000),
                    Order::default(),
                );
                entry.length = length.into();
                let shaped = Shaped { entry: &entry, shape: &shape, file: &[], spans: None };
                let starts = starts(&axes, first);
                for from in 0..150 {
                    for to in [from + 1, from + 2, from + 9, from + 300] {
                        let expected: Vec<(u64, u64)> = starts
                            .iter()
                            .map(|start| ((*start).max(from), (start + length).min(to)))
                            .filter(|(start, end)| start < end)
                            .collect();
                        let mut got = Vec::new();
                        shaped.pieces(from, to, &mut |(start, end, ..)| got.push((start, end)));
                        assert_eq!(got, expected, "{axes:?} {length} {from} {to}");
                        assert_eq!(
                            shaped.next_byte(from, to),
                            expected.first().map(|piece| piece.0)
                        );
                    }
                }
                let mut last = None;
                shaped.pieces(0, 1000, &mut |piece| last = Some(piece));
                let steps = |f: &dyn Fn(&Axis) -> i64| {
                    axes.iter().map(|axis| f(axis) * (i64::from(axis.count) - 1)).sum::<i64>()
                };
                let (start, _, segment, shift) = last.unwrap();
                assert_eq!(
                    (i64::from(segment), start.wrapping_add(shift) as i64),
                    (3 + steps(&|a| a.segment), 50_000 + steps(&|a| a.physical))
                );
            }
        }
    }

    #[test]
    fn pieces_that_could_overlap_are_no_shape() {
        assert_eq!(span(&[axis(30, 3), axis(7, 4)], 7), Some(60 + 21 + 7));
        assert_eq!(span(&[axis(28, 3), axis(7, 4)], 7), Some(56 + 28));
        assert_eq!(span(&[axis(27, 3), axis(7, 4)], 7), None);
        assert_eq!(span(&[axis(7, 4)], 8), None);
        assert_eq!(span(&[axis(u64::MAX / 2, 4)], 8), None);
        assert_eq!(span(&[axis(5, 2); 9], 1), None);
    }
}
