//! Turns the writes of one process into few records as they happen.
//!
//! The [`Folder`] keeps the records that are finished and one *piece* that still grows: writes that
//! continue it, logically and physically, only make it longer. A piece is complete when a write
//! comes that does not continue it; only then is it known how long it is, and only then does it
//! fold with the records before it. So a program that writes its pieces in small contiguous steps
//! folds as well as one that writes each piece in one call.
//!
//! **Order.** Later records win over earlier ones, so no write may move in front of another one
//! that it overlaps. A piece only ever joins the *last* records (the last run, or the last two
//! singles), so nothing lies between the records that become one; and the pieces of one run never
//! overlap, because a fold wants |distance| >= length. So a fold changes no byte of the file.

use plfs_format::index_log::{Repeat, nest_end};

use crate::Run;

/// A run, how it recurs, and when its first piece was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamped {
    /// The pieces, or the first of the runs.
    pub run: Run,
    /// How the run recurs: as rows, and these as planes. In the segment all follow each other.
    pub repeat: [Repeat; 2],
    /// Place in the order of all writes of the node (FORMAT.md section 4).
    pub stamp: u64,
}

impl Stamped {
    /// A run that does not recur.
    pub fn new(run: Run, stamp: u64) -> Stamped {
        Stamped { run, repeat: [Repeat::ONCE; 2], stamp }
    }

    /// How many runs it is.
    pub fn runs(&self) -> u32 {
        self.repeat[0].count * self.repeat[1].count
    }

    /// All its runs, in the order of their bytes in the segment.
    pub fn each(&self) -> impl Iterator<Item = Run> + use<> {
        let (run, [rows, planes]) = (self.run, self.repeat);
        (0..self.runs()).map(move |i| {
            let moved =
                i64::from(i / rows.count) * planes.stride + i64::from(i % rows.count) * rows.stride;
            Run {
                logical: run.logical.wrapping_add_signed(moved),
                physical: run.physical + u64::from(i) * run.bytes(),
                ..run
            }
        })
    }

    fn is_one_run(&self) -> bool {
        self.repeat == [Repeat::ONCE; 2]
    }

    /// With one more row: `next`, a run.
    fn with_row(&self, next: &Stamped) -> Option<Stamped> {
        let [rows, planes] = self.repeat;
        let stride = if rows.count == 1 { distance(self, next) } else { rows.stride };
        let repeat = [Repeat { stride, count: rows.count.checked_add(1)? }, planes];
        let fits = planes.count == 1
            && next.is_one_run()
            && distance(self, next) == stride.checked_mul(rows.count.into())?;
        self.grown(next, repeat, fits)
    }

    /// With one more plane: `next`, some rows.
    fn with_plane(&self, next: &Stamped) -> Option<Stamped> {
        let [rows, planes] = self.repeat;
        let stride = if planes.count == 1 { distance(self, next) } else { planes.stride };
        let repeat = [rows, Repeat { stride, count: planes.count.checked_add(1)? }];
        let fits = rows.count > 1
            && next.repeat == [rows, Repeat::ONCE]
            && distance(self, next) == stride.checked_mul(planes.count.into())?;
        self.grown(next, repeat, fits)
    }

    fn grown(&self, next: &Stamped, repeat: [Repeat; 2], fits: bool) -> Option<Stamped> {
        let (a, b) = (&self.run, &next.run);
        let alike = (a.length, a.stride, a.count, a.segment)
            == (b.length, b.stride, b.count, b.segment)
            && a.count > 1;
        let follows = b.physical == a.physical + u64::from(self.runs()) * a.bytes();
        (fits
            && alike
            && follows
            && nest_end(a.logical, a.length, a.stride, a.count, a.physical, repeat).is_some())
        .then_some(Stamped { repeat, ..*self })
    }
}

/// Logical distance of two first pieces. Offsets are at most 2^63-1, so it fits.
fn distance(a: &Stamped, b: &Stamped) -> i64 {
    b.run.logical as i64 - a.run.logical as i64
}

/// Folds a stream of writes into runs: constant time a write, and no allocation for a write that
/// folds.
#[derive(Clone, Debug, Default)]
pub struct Folder {
    items: Vec<Stamped>,
    /// The piece that the next write may still extend; always a single.
    piece: Option<Run>,
    /// The piece's stamp; `None` if it is what the last run expects next, into which it folds: a
    /// piece that may yet turn out otherwise has one from its first write on.
    piece_stamp: Option<u64>,
    /// Items before this one no longer fold.
    barrier: usize,
}

impl Folder {
    /// Makes an empty folder. Allocates nothing.
    pub fn new() -> Folder {
        Folder::default()
    }

    /// Adds one write: `length` bytes at `logical` of the file lie at `physical` of segment
    /// `segment`. A write of 0 bytes changes nothing. `stamp` gives a new stamp; it is called for
    /// the first write of a record only.
    ///
    /// Both ends must be at most 2^63-1; the caller refuses longer writes with EFBIG before any
    /// byte is stored.
    pub fn push(
        &mut self,
        logical: u64,
        length: u64,
        segment: u32,
        physical: u64,
        mut stamp: impl FnMut() -> u64,
    ) {
        if length == 0 {
            return;
        }
        let write = Run::single(logical, length, segment, physical);
        debug_assert!(write.is_valid(), "{write:?}");
        match &mut self.piece {
            // A piece without a stamp is whole: what goes on behind it is a piece of its own, or it
            // would take its stamp too late.
            Some(p)
                if self.piece_stamp.is_some()
                    && p.segment == segment
                    && p.logical + p.length == logical
                    && p.physical + p.length == physical =>
            {
                p.length += length;
            }
            _ => {
                self.finish(&mut stamp);
                self.piece_stamp =
                    if self.continues_run(&write) && self.run_length() == Some(length) {
                        None
                    } else {
                        Some(stamp())
                    };
                self.piece = Some(write);
            }
        }
    }

    /// Adds one write of many pieces, as [`push`](Folder::push) adds one of one piece. Constant
    /// time: it becomes one record, or makes the last one longer if it goes on with its pattern.
    ///
    /// `run` must be valid; the segment and physical offset are those of its first piece.
    pub fn push_run(&mut self, run: Run, mut stamp: impl FnMut() -> u64) {
        debug_assert!(run.is_valid(), "{run:?}");
        if run.count == 1 {
            return self.push(run.logical, run.length, run.segment, run.physical, stamp);
        }
        self.finish(&mut stamp);
        if let Some(Stamped { run: last, .. }) =
            self.items[self.barrier..].last_mut().filter(|last| last.is_one_run())
            && (last.count == 1 || last.stride == run.stride)
            && (last.segment, last.length) == (run.segment, run.length)
            && last.physical + last.bytes() == run.physical
            && i128::from(last.logical) + i128::from(last.count) * i128::from(run.stride)
                == i128::from(run.logical)
            && let Some(count) = last.count.checked_add(run.count)
        {
            *last = Run { stride: run.stride, count, ..*last };
            return;
        }
        self.begin(Stamped::new(run, stamp()));
    }

    /// Ends the records under way: what is pushed from now on gets stamps of its own.
    pub fn seal(&mut self, mut stamp: impl FnMut() -> u64) {
        self.finish(&mut stamp);
        self.nest();
        self.barrier = self.items.len();
    }

    /// Adds a record as it is, behind all that was pushed. Nothing folds with it.
    pub fn put(&mut self, item: Stamped, stamp: impl FnMut() -> u64) {
        self.seal(stamp);
        self.items.push(item);
        self.barrier = self.items.len();
    }

    /// Says that bytes lie elsewhere than was pushed: those of `length` from `from` (segment,
    /// physical) on lie at `to`. Records that have some of them are split, and go on with nothing
    /// that comes; each part keeps its stamp.
    pub fn relocate(
        &mut self,
        from: (u32, u64),
        length: u64,
        to: (u32, u64),
        stamp: impl FnMut() -> u64,
    ) {
        self.seal(stamp);
        let (start, end) = (from.1, from.1 + length);
        let mut items = Vec::with_capacity(self.items.len());
        for item in self.items.drain(..) {
            let bytes = item.run.bytes() * u64::from(item.runs());
            let meets = item.run.segment == from.0
                && item.run.physical < end
                && item.run.physical + bytes > start;
            if !meets {
                items.push(item);
                continue;
            }
            for run in item.each() {
                let last = run.bytes();
                let (a, b) = (
                    start.saturating_sub(run.physical).min(last),
                    end.saturating_sub(run.physical).min(last),
                );
                items.extend(
                    run.part(0, a)
                        .chain(run.part(b, last))
                        .map(|run| Stamped::new(run, item.stamp)),
                );
                items.extend(run.part(a, b).map(|run| {
                    let physical = run.physical - start + to.1;
                    Stamped::new(Run { segment: to.0, physical, ..run }, item.stamp)
                }));
            }
        }
        self.items = items;
        self.barrier = self.items.len();
    }

    /// Returns the number of records that [`take`](Folder::take) would give now, give or take two.
    pub fn len(&self) -> usize {
        self.items.len() + usize::from(self.piece.is_some())
    }

    /// Returns true if nothing was pushed since the last [`take`](Folder::take).
    pub fn is_empty(&self) -> bool {
        self.items.is_empty() && self.piece.is_none()
    }

    /// Takes all records, the unfinished piece included, and leaves the folder empty.
    pub fn take(&mut self, mut stamp: impl FnMut() -> u64) -> Vec<Stamped> {
        self.finish(&mut stamp);
        self.nest();
        self.barrier = 0;
        std::mem::take(&mut self.items)
    }

    fn run_length(&self) -> Option<u64> {
        self.items.last().map(|item| item.run.length)
    }

    /// Whether a piece that starts like `write` stands where the last run expects its next one.
    fn continues_run(&self, write: &Run) -> bool {
        match self.items[self.barrier..].last() {
            Some(last @ Stamped { run, .. }) if run.count > 1 && last.is_one_run() => {
                let expected =
                    i128::from(run.logical) + i128::from(run.count) * i128::from(run.stride);
                write.segment == run.segment
                    && write.length <= run.length
                    && run.count < u32::MAX
                    && write.physical == run.physical + run.bytes()
                    && i128::from(write.logical) == expected
            }
            _ => false,
        }
    }

    /// The finished piece folds here and nowhere else.
    fn finish(&mut self, stamp: &mut impl FnMut() -> u64) {
        let Some(p) = self.piece.take() else { return };
        if self.continues_run(&p)
            && let Some(Stamped { run, .. }) = self.items.last_mut()
            && run.length == p.length
        {
            run.count += 1;
            return;
        }
        // Three, not two: any two writes have a distance, so pairs of random writes would fold by
        // accident and gain nothing.
        if let [.., Stamped { run: a, stamp: first, .. }, Stamped { run: b, .. }] =
            self.items[self.barrier..]
            && a.count == 1
            && b.count == 1
        {
            let follows = |x: &Run, y: &Run| {
                x.segment == y.segment
                    && x.length == y.length
                    && x.physical + x.length == y.physical
            };
            // Offsets are at most 2^63-1, so the differences fit.
            let stride = p.logical as i64 - b.logical as i64;
            if follows(&a, &b)
                && follows(&b, &p)
                && b.logical as i64 - a.logical as i64 == stride
                && stride.unsigned_abs() >= p.length
            {
                self.items.truncate(self.items.len() - 2);
                self.items.push(Stamped::new(Run { stride, count: 3, ..a }, first));
                return;
            }
        }
        let stamp = self.piece_stamp.take().unwrap_or_else(stamp);
        self.begin(Stamped::new(p, stamp));
    }

    /// Goes on with a new record: the last one is whole.
    fn begin(&mut self, next: Stamped) {
        self.row();
        self.items.push(next);
    }

    /// The last run is whole: it becomes a row of the rows before it, if it is one; if not, these
    /// are whole, and become a plane of what is before them, if they are one.
    fn row(&mut self) {
        let [.., before, last] = &mut self.items[self.barrier..] else { return };
        match before.with_row(last) {
            Some(grown) => {
                *before = grown;
                self.items.pop();
            }
            None => self.plane(1),
        }
    }

    /// Makes the last record but `behind` a plane of the one before it, if it is one.
    fn plane(&mut self, behind: usize) {
        let at = self.items.len() - behind;
        if let [.., before, last] = &mut self.items[self.barrier..at]
            && let Some(grown) = before.with_plane(last)
        {
            *before = grown;
            self.items.remove(at - 1);
        }
    }

    /// The last record is whole, and nothing comes behind it.
    fn nest(&mut self) {
        self.row();
        if self.items.len() > self.barrier {
            self.plane(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock() -> impl FnMut() -> u64 {
        let mut now = 0;
        move || {
            now += 1;
            now
        }
    }

    fn fold(writes: &[(u64, u64)]) -> Vec<Run> {
        let (mut folder, mut clock, mut physical) = (Folder::new(), clock(), 0);
        for &(logical, length) in writes {
            folder.push(logical, length, 0, physical, &mut clock);
            physical += length;
        }
        let items = folder.take(&mut clock);
        assert!(items.is_sorted_by(|a, b| a.stamp < b.stamp), "{items:?}");
        items.into_iter().flat_map(|item| item.each().collect::<Vec<_>>()).collect()
    }

    fn run(logical: u64, length: u64, stride: i64, count: u32, physical: u64) -> Run {
        Run { logical, length, stride, count, segment: 0, physical }
    }

    /// Every byte has one place before and after, and only those that moved have another.
    #[test]
    fn what_moves_is_split_off_and_nothing_else() {
        let place_of = |items: &[Stamped]| {
            let mut places = std::collections::BTreeMap::new();
            for item in items {
                for run in item.each() {
                    for i in 0..u64::from(run.count) {
                        let at = run.logical.wrapping_add_signed(i as i64 * run.stride);
                        for byte in 0..run.length {
                            let place = (run.segment, run.physical + i * run.length + byte);
                            let known = places.insert(at + byte, (place, item.stamp));
                            assert!(known.is_none(), "byte {} twice", at + byte);
                        }
                    }
                }
            }
            places
        };
        let fill = || {
            let (mut folder, mut clock, mut physical) = (Folder::new(), clock(), 100);
            // A nest, a run that goes back, and singles.
            for plane in 0..3 {
                for row in 0..3 {
                    for piece in 0..4 {
                        let at = plane * 1000 + row * 100 + piece * 10;
                        folder.push(at, 7, 1, physical, &mut clock);
                        physical += 7;
                    }
                }
            }
            folder.push_run(
                Run { logical: 9000, length: 5, stride: -9, count: 6, segment: 1, physical },
                &mut clock,
            );
            physical += 30;
            for at in [20_000, 30_000, 50_000] {
                folder.push(at, 11, 1, physical, &mut clock);
                physical += 11;
            }
            folder.push(60_000, 11, 2, 100, &mut clock);
            (folder, clock, physical)
        };
        let (mut folder, mut now, end) = fill();
        let before = place_of(&folder.take(&mut now));
        for from in (90..end + 5).step_by(3) {
            for length in [1, 6, 7, 8, 30, 500] {
                let (mut folder, mut now, _) = fill();
                folder.relocate((1, from), length, (7, 4096), &mut now);
                folder.push(70_000, 3, 7, 4096 + length, &mut now);
                let mut after = place_of(&folder.take(&mut now));
                assert!(after.remove(&70_002).is_some() && after.remove(&70_001).is_some());
                after.remove(&70_000);
                assert_eq!(after.len(), before.len());
                for (at, ((segment, physical), stamp)) in &before {
                    let moves = *segment == 1 && (from..from + length).contains(physical);
                    let place = match moves {
                        true => (7, physical - from + 4096),
                        false => (*segment, *physical),
                    };
                    assert_eq!(after[at], (place, *stamp), "byte {at}, {length} from {from}");
                }
            }
        }
    }

    #[test]
    fn a_million_strided_writes_are_one_record_and_few_stamps() {
        let (mut folder, mut stamps) = (Folder::new(), 0);
        for i in 0..1_000_000u64 {
            let stamp = || {
                stamps += 1;
                stamps
            };
            folder.push(7 + i * 47_001 * 64, 47_001, 3, 100 + i * 47_001, stamp);
            assert!(folder.len() <= 3);
        }
        let run = Run {
            logical: 7,
            length: 47_001,
            stride: 47_001 * 64,
            count: 1_000_000,
            segment: 3,
            physical: 100,
        };
        assert_eq!(folder.take(|| 99), [Stamped::new(run, 1)]);
        assert!(folder.is_empty());
        assert!(stamps <= 4, "{stamps}");
    }

    /// A block of a three-dimensional array, written row by row, is one record; each further plane
    /// and row costs no more than a write.
    #[test]
    fn a_block_of_an_array_is_one_record() {
        for (planes, rows, pieces) in [(5u64, 7u64, 9u64), (4, 256, 3), (2, 2, 300)] {
            let (mut folder, mut clock, mut physical) = (Folder::new(), clock(), 10);
            for i in 0..planes * rows * pieces {
                let (plane, row, piece) = (i / rows / pieces, i / pieces % rows, i % pieces);
                folder.push(
                    plane * 100_000_000 + row * 100_000 + piece * 100,
                    8,
                    0,
                    physical,
                    &mut clock,
                );
                physical += 8;
                assert!(folder.len() <= 6, "{i}: {:?}", folder.items);
            }
            let items = folder.take(&mut clock);
            let repeat = [
                Repeat { stride: 100_000, count: rows as u32 },
                Repeat { stride: 100_000_000, count: planes as u32 },
            ];
            assert_eq!(
                items,
                [Stamped { run: run(0, 8, 100, pieces as u32, 10), repeat, stamp: 1 }]
            );
        }
    }

    /// A row that was skipped, one that is short and one that is written twice split what is
    /// folded, and lose nothing.
    #[test]
    fn rows_that_do_not_fit_split_a_nest() {
        let row = |at: u64, n: u64| (0..n).map(move |i| (at + i * 100, 8));
        let skipped: Vec<_> =
            [0, 1, 2, 4, 5].into_iter().flat_map(|y| row(y * 10_000, 5)).collect();
        let short: Vec<_> = [5, 5, 4, 5, 5]
            .into_iter()
            .enumerate()
            .flat_map(|(y, n)| row(y as u64 * 10_000, n))
            .collect();
        let twice: Vec<_> = [0, 1, 1, 2, 3].into_iter().flat_map(|y| row(y * 10_000, 5)).collect();
        for (writes, records) in [(skipped, 2), (short, 3), (twice, 2)] {
            let (mut folder, mut clock, mut physical) = (Folder::new(), clock(), 0);
            let mut placed = Vec::new();
            for &(logical, length) in &writes {
                folder.push(logical, length, 0, physical, &mut clock);
                placed.push((logical, physical));
                physical += length;
            }
            let items = folder.take(&mut clock);
            assert_eq!(items.len(), records, "{items:?}");
            let pieces = |run: Run| {
                (0..u64::from(run.count)).map(move |i| {
                    (
                        (run.logical as i64 + i as i64 * run.stride) as u64,
                        run.physical + i * run.length,
                    )
                })
            };
            assert_eq!(
                items.iter().flat_map(Stamped::each).flat_map(pieces).collect::<Vec<_>>(),
                placed
            );
        }
    }

    #[test]
    fn contiguous_writes_are_one_piece() {
        assert_eq!(fold(&[(5, 1), (6, 10), (16, 4)]), [run(5, 15, 0, 1, 0)]);
    }

    #[test]
    fn pieces_written_in_small_steps_fold() {
        let writes: Vec<_> = (0..10u64)
            .flat_map(|piece| (0..5).map(move |step| (piece * 1_000_000 + step * 10_240, 10_240)))
            .collect();
        assert_eq!(fold(&writes), [run(0, 51_200, 1_000_000, 10, 0)]);
    }

    #[test]
    fn a_tail_that_grows_leaves_the_run() {
        assert_eq!(
            fold(&[(0, 2), (10, 2), (20, 2), (30, 2), (32, 1)]),
            [run(0, 2, 10, 4, 0), run(32, 1, 0, 1, 8)]
        );
        assert_eq!(
            fold(&[(0, 2), (10, 2), (20, 2), (22, 1)]),
            [run(0, 2, 0, 1, 0), run(10, 2, 0, 1, 2), run(20, 3, 0, 1, 4)]
        );
    }

    /// A run that goes backwards, whose next piece grows over the run's last one: what grows is
    /// later and must win.
    #[test]
    fn a_piece_that_grows_over_its_run_is_younger() {
        assert_eq!(
            fold(&[(40, 5), (30, 5), (20, 5), (10, 5), (15, 6)]),
            [run(40, 5, -10, 4, 0), run(15, 6, 0, 1, 20)]
        );
        assert_eq!(
            fold(&[(40, 5), (30, 5), (20, 5), (10, 4), (14, 7)]),
            [run(40, 5, -10, 3, 0), run(10, 11, 0, 1, 15)]
        );
    }

    /// The short last piece of a run, and one that grows past its length, are records of their own.
    /// Their stamps were put off until that was known, and then were younger than what other
    /// processes had written in between.
    #[test]
    fn a_piece_that_does_not_fold_has_the_stamp_of_its_first_write() {
        for last in [&[(30, 1)][..], &[(30, 2), (32, 1)], &[(30, 1), (31, 3)]] {
            let (mut folder, mut now, mut physical) = (Folder::new(), 0, 0);
            for &(logical, length) in [(0, 2), (10, 2), (20, 2)].iter().chain(last) {
                now += 100;
                folder.push(logical, length, 0, physical, || now);
                physical += length;
            }
            let items = folder.take(|| 9999);
            assert!(items[1].stamp <= now && items[1].stamp >= 400, "{items:?}");
        }
    }

    #[test]
    fn backwards_writes_fold() {
        assert_eq!(fold(&[(30, 10), (20, 10), (10, 10), (0, 10)]), [run(30, 10, -10, 4, 0)]);
    }

    #[test]
    fn overlapping_distances_do_not_fold() {
        assert_eq!(fold(&[(0, 4), (3, 4), (6, 4), (9, 4)]).len(), 4);
        assert_eq!(fold(&[(5, 4), (5, 4), (5, 4)]).len(), 3);
    }

    #[test]
    fn nothing_folds_across_a_seal_or_a_segment_or_a_gap() {
        let (mut folder, mut clock) = (Folder::new(), clock());
        for i in 0..4 {
            folder.push(i * 10, 1, 0, i, &mut clock);
        }
        folder.seal(&mut clock);
        folder.push(40, 1, 0, 4, &mut clock);
        folder.push(50, 1, 1, 0, &mut clock);
        folder.push(60, 1, 1, 5, &mut clock);
        let items = folder.take(&mut clock);
        assert_eq!(items.len(), 4);
        assert_eq!(items[0].run, run(0, 1, 10, 4, 0));
    }

    #[test]
    fn a_full_count_starts_a_new_run() {
        let full =
            Run { logical: 0, length: 1, stride: 2, count: u32::MAX, segment: 0, physical: 0 };
        let mut folder = Folder { items: vec![Stamped::new(full, 0)], ..Folder::new() };
        let n = u64::from(u32::MAX);
        for i in n..n + 3 {
            folder.push(i * 2, 1, 0, i, || i);
        }
        let items = folder.take(|| 0);
        assert_eq!(
            items.iter().map(|item| item.run).collect::<Vec<_>>(),
            [full, run(n * 2, 1, 2, 3, n)]
        );
    }

    #[test]
    fn runs_that_go_on_with_a_pattern_are_one_record() {
        let fold = |pushes: &[Run]| {
            let (mut folder, mut clock, mut physical) = (Folder::new(), clock(), 0);
            for push in pushes {
                folder.push_run(Run { physical, ..*push }, &mut clock);
                physical += push.bytes();
            }
            folder.take(&mut clock)
        };
        let one = |run: Run, stamp| [Stamped::new(run, stamp)];
        let ahead =
            |from: u64, count: u32| run(from * 10, 4, if count == 1 { 0 } else { 10 }, count, 0);
        let back = |from: u64, count: u32| {
            run(1000 - from * 10, 4, if count == 1 { 0 } else { -10 }, count, 0)
        };
        for shape in [&ahead as &dyn Fn(u64, u32) -> Run, &back] {
            assert_eq!(
                fold(&[shape(0, 5), shape(5, 5), shape(10, 1), shape(11, 2)]),
                one(shape(0, 13), 1),
                "the last run goes on"
            );
            assert_eq!(
                fold(&[shape(0, 1), shape(1, 2)]),
                one(shape(0, 3), 1),
                "a single is a run's first piece"
            );
            assert_eq!(
                fold(&[shape(0, 1), shape(1, 1), shape(2, 1), shape(3, 4)]),
                one(shape(0, 7), 1)
            );
        }
        let apart = [
            ahead(0, 3),
            ahead(4, 3),
            run(70, 3, 10, 3, 0),
            run(100, 3, 11, 3, 0),
            run(133, 3, -11, 2, 0),
        ];
        assert_eq!(
            fold(&apart).iter().map(Stamped::runs).sum::<u32>(),
            5,
            "a gap, a length, a stride, a direction"
        );
        assert_eq!(
            fold(&[run(0, 1, 2, u32::MAX, 0), run(2 * u64::from(u32::MAX), 1, 2, 2, 0)]).len(),
            2,
            "a count is 32 bits"
        );
    }

    #[test]
    fn a_write_of_no_bytes_changes_nothing() {
        assert!(fold(&[(5, 0)]).is_empty());
    }
}
