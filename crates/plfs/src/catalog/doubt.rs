//! Data that a power cut may have taken (docs/decisions/0011): which records point to it, and
//! whether it is there.
//!
//! A block whose data nobody made durable has sums of it (FORMAT.md section 3, kind 129). It is in
//! *doubt* if a power cut may have come since. That matters only where it lies over something
//! older: a byte that nobody had before may be anything. So the data is read only there, and where
//! it does not have its sum the record is left out, and the older one shows.

use std::collections::HashMap;

use plfs_format::index_log::{self, Record};
use plfs_format::name::{self, SegmentRef};
use plfs_format::sum_on;
use plfs_index::{ExtentMap, Order, Overlaps, Ranges, Run, Stretch};

use super::Purpose;
use crate::container::Container;
use crate::error::{At, Error, Result, is_of_the_moment};
use crate::store::{self, Errno, Open, StoreFile};
use crate::sync::Arc;

/// What a reader makes of blocks whose data may not be durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Doubts {
    /// See [`Store::boot`](crate::store::Store::boot); `None`: there are none.
    boot: Option<u64>,
    /// Also look at blocks of this boot: for what shall outlast it.
    of_this_boot: bool,
}

impl Doubts {
    /// Those of a reader of the container. What shall outlast this boot of the machine has doubts
    /// about its blocks, too.
    pub(crate) fn of(container: &Container, purpose: Purpose) -> Doubts {
        Doubts {
            boot: container.store.boot(container.root()),
            of_this_boot: purpose == Purpose::Lasting,
        }
    }

    /// Which boot a block is from, if some of its data may not be there, or (to last) not be
    /// durable; also if a sync of its log set `has_failed`. What later blocks say is durable is not
    /// considered.
    pub(crate) fn about(self, block: &index_log::Block, has_failed: bool) -> Option<u64> {
        let has_sums = |(_, record): &(u32, Record)| match record {
            Record::Sums { sums, .. } => !sums.is_empty(),
            _ => false,
        };
        let is_open = !block.header.is_data_durable && block.records.iter().any(has_sums);
        let boot = if is_open { boot_of(block)? } else { return None };
        (self.boot.is_some() && (self.of_this_boot || has_failed || self.is_over(boot)))
            .then_some(boot)
    }

    /// Whether data of that boot may be gone.
    pub(super) fn is_over(self, boot: u64) -> bool {
        self.boot.is_some_and(|own| boot == 0 || own != boot)
    }
}

/// Which boot a block is from, if it says so.
fn boot_of(block: &index_log::Block) -> Option<u64> {
    block.records.iter().find_map(|(_, record)| match record {
        Record::Sums { boot, .. } => Some(*boot),
        _ => None,
    })
}

/// Up to where blocks of an index log say that data is durable, for each boot.
#[derive(Debug, Default)]
pub(crate) struct Durable(HashMap<u64, u64>);

impl Durable {
    /// Takes note of a block.
    pub(crate) fn push(&mut self, block: &index_log::Block) {
        if let Some(boot) = boot_of(block).filter(|boot| *boot != 0) {
            let durable = self.0.entry(boot).or_default();
            *durable = block.header.durable.max(*durable);
        }
    }

    /// Whether they say so of a block of that boot at `offset`.
    pub(crate) fn has(&self, boot: u64, offset: u64) -> bool {
        self.0.get(&boot).is_some_and(|durable| offset < *durable)
    }
}

/// The sums in a block, with other segment numbers, ascending by segment and place. Of stretches
/// that overlap only the first counts.
pub(super) fn sums_of(block: &index_log::Block, numbers: &[u32]) -> Vec<Stretch> {
    let stretch = |(_, record): &(u32, Record)| match record {
        Record::Sums { segment, physical, length, unit, sums, .. } if !sums.is_empty() => {
            let segment = *numbers.get(usize::from(*segment))?;
            let (physical, length, unit) = (*physical, *length, *unit);
            Some(Stretch { segment, physical, length, unit, sums: sums.clone() })
        }
        _ => None,
    };
    let mut all: Vec<Stretch> = block.records.iter().filter_map(stretch).collect();
    all.sort_by_key(|stretch| (stretch.segment, stretch.physical));
    let mut end = (0, 0);
    all.retain(|stretch| {
        let is_behind = (stretch.segment, stretch.physical) >= end;
        if is_behind {
            end = (stretch.segment, stretch.end());
        }
        is_behind
    });
    all
}

/// A block whose data is in doubt.
#[derive(Debug)]
pub(super) struct Block {
    /// The log set that has it.
    pub(super) set: u32,
    /// Where it is in its index log.
    pub(super) offset: u64,
    /// Which boot had the data.
    pub(super) boot: u64,
    /// A sync of the log set has failed: the data may be gone whatever the boot.
    pub(super) has_failed: bool,
    /// Sums of the data, from [`sums_of`].
    pub(super) sums: Vec<Stretch>,
    /// Its runs.
    pub(super) runs: Vec<(Run, Order)>,
}

impl Block {
    /// Whether its data may not be what was written.
    pub(super) fn may_be_gone(&self, doubts: Doubts) -> bool {
        self.has_failed || doubts.is_over(self.boot)
    }
}

/// A part of a run whose data a power cut took: one stretch of a segment, which may be many pieces
/// of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    /// The segment.
    pub(crate) at: SegmentRef,
    /// Where in it.
    pub(crate) physical: u64,
    /// Where in the file, the first byte of it.
    pub(crate) logical: u64,
    /// Bytes.
    pub(crate) length: u64,
    /// The log set whose index log has the record.
    pub(crate) set: u32,
    /// The block, by its offset there.
    pub(crate) block: u64,
}

/// A record, for [`Case`].
#[derive(Clone, Copy, PartialEq, Eq)]
enum Whose {
    /// New, and believed.
    New,
    /// New, and in doubt: block and run.
    Doubted(usize, usize),
    /// It was in doubt when it came, with nothing older below it there.
    Unproven,
}

/// What there is to decide about new records.
#[derive(Default)]
pub(super) struct Case {
    items: Vec<(Order, Run, Whose)>,
}

/// What of a run is left out. A pattern may have millions of pieces: those that are gone whole are
/// ranges of numbers, and only those at the ends of lost parts are cut.
#[derive(Default)]
struct Cuts {
    /// Pieces, the lowest in the file first.
    pieces: Ranges,
    /// Bytes of the file, of other pieces.
    bytes: Ranges,
    /// The same, for people.
    taken: Vec<Taken>,
}

/// What came of it.
#[derive(Default)]
pub(super) struct Verdict {
    /// For blocks and runs: what of the run is left out.
    cuts: HashMap<(usize, usize), Cuts>,
    /// What that is, for people.
    pub(super) taken: Vec<Taken>,
    /// A record in doubt lies over an older one and is believed, because it is of this boot.
    pub(super) is_layered: bool,
}

impl Verdict {
    /// What is left of a run.
    pub(super) fn left(&self, block: usize, i: usize, run: Run) -> Vec<Run> {
        let Some(cuts) = self.cuts.get(&(block, i)) else { return vec![run] };
        let whole = cuts.pieces.within(0, u64::from(run.count));
        let mut gone: Vec<(u32, u32)> = whole.map(|(from, to)| (from as u32, to as u32)).collect();
        for (from, to) in cuts.bytes.within(run.first(), run.end()) {
            let (from, to) = pieces_within(&run, from, to);
            gone.extend((from..to).map(|i| (i, i + 1)));
        }
        gone.sort_unstable();
        let (mut left, mut at) = (Vec::new(), 0);
        for (from, to) in gone {
            if at < from {
                left.push(run.ascending(at, from));
            }
            if at < to && cuts.pieces.within(from.into(), to.into()).next().is_none() {
                let piece = run.ascending(from, to);
                let gaps = cuts.bytes.gaps(piece.logical, piece.end());
                left.extend(gaps.into_iter().map(|(from, to)| Run {
                    logical: from,
                    length: to - from,
                    physical: piece.physical + (from - piece.logical),
                    ..piece
                }));
            }
            at = at.max(to);
        }
        if at < run.count {
            left.push(run.ascending(at, run.count));
        }
        left
    }
}

impl Cuts {
    /// Adds the bytes `lost` of a segment, as far as they are of the pieces `[from, to)` of a run,
    /// which are those that have something in a window of the file.
    fn add(
        &mut self,
        run: &Run,
        (from, to): (u32, u32),
        window: (u64, u64),
        lost: (u64, u64),
        at: SegmentRef,
        of: &Block,
    ) {
        let physical = run.ascending(from, to).physical;
        let below = |bytes: u64| (bytes / run.length) as u32;
        // Some of the first and the last of these may not be lost.
        let (first, last) = (below(lost.0 - physical), below(lost.1 - 1 - physical));
        let (first, last) = if run.stride >= 0 {
            (from + first, from + last)
        } else {
            (to - 1 - last, to - 1 - first)
        };
        let mut length = u64::from((last - first).saturating_sub(1)) * run.length;
        if last - first > 1 {
            self.pieces.add(u64::from(first) + 1, last.into());
        }
        let ends = [Some(first), (last > first).then_some(last)];
        for i in ends.into_iter().flatten() {
            let piece = run.ascending(i, i + 1);
            let place = |physical: u64| piece.logical + (physical - piece.physical);
            let low = place(lost.0.max(piece.physical)).max(window.0);
            let high = place(lost.1.min(piece.physical + piece.length)).min(window.1);
            // A single piece may be what a truncate has left of one of many.
            match run.count > 1 && (low, high) == (piece.logical, piece.end()) {
                true => self.pieces.add(i.into(), u64::from(i) + 1),
                false => self.bytes.add(low, high),
            }
            length += high.saturating_sub(low);
        }
        if length > 0 {
            let lowest = run.ascending(first, first + 1);
            let logical = match run.stride >= 0 {
                true => lowest.logical + lost.0.saturating_sub(lowest.physical),
                false => lowest.logical,
            };
            self.taken.push(Taken {
                at,
                physical: lost.0,
                logical: logical.max(window.0),
                length,
                set: of.set,
                block: of.offset,
            });
        }
    }
}

impl Case {
    /// Adds a record that is believed.
    pub(super) fn believe(&mut self, run: Run, order: Order) {
        self.items.push((order, run, Whose::New));
    }

    /// Adds a record of a block in doubt.
    pub(super) fn doubt(&mut self, block: usize, i: usize, run: Run, order: Order) {
        self.items.push((order, run, Whose::Doubted(block, i)));
    }

    /// Adds one that was in doubt when it came.
    pub(super) fn unproven(&mut self, run: Run, order: Order) {
        self.items.push((order, run, Whose::Unproven));
    }

    /// Decides. `known` has what was known before, and all truncates, and where that is; blocks
    /// come with what their segment numbers mean. What is known counts as older, whatever its
    /// stamps: it hides what it is newer than anyway. So this costs what is new, and not what is
    /// known. `None` if all has to be read anew: something older came below a record that is known
    /// already, or a log set was removed meanwhile.
    pub(super) fn decide(
        mut self,
        container: &Container,
        (known, occupied): (&ExtentMap, &Overlaps),
        doubts: Doubts,
        blocks: &[(&Block, &[SegmentRef])],
    ) -> Result<Option<Verdict>> {
        self.items.sort_by_key(|(order, ..)| *order);
        let clip = |run: &Run, order: Order| {
            run.clipped(known.clip(order)).into_iter().flatten().collect::<Vec<Run>>()
        };
        let mut new = Overlaps::default();
        let mut windows: HashMap<(usize, usize), Ranges> = HashMap::new();
        for (order, run, whose) in &self.items {
            for run in clip(run, *order) {
                match *whose {
                    Whose::New => new.add(&run),
                    Whose::Doubted(block, i) => {
                        let over = [new.over(&run), occupied.over(&run), known.base_below(&run)];
                        for (from, to) in over.into_iter().flatten() {
                            windows.entry((block, i)).or_default().add(from, to);
                        }
                        new.add(&run);
                    }
                    // What is new below it may hide less than it seems, what is new above it
                    // is looked at as above anything: it may have been made durable since.
                    Whose::Unproven if new.over(&run).is_some() => return Ok(None),
                    Whose::Unproven => {}
                }
            }
        }
        let (mut verdict, mut decided) = (Verdict::default(), Ranges::default());
        let mut data = Data::new(container, doubts.of_this_boot);
        // The newest first: what it hides need not be there.
        for (order, run, whose) in self.items.iter().rev() {
            let looks = match whose {
                Whose::Doubted(block, i) => {
                    windows.get(&(*block, *i)).map(|over| (*block, *i, over))
                }
                _ => None,
            };
            for run in clip(run, *order) {
                let mut is_right = true;
                if let Some((block, i, over)) = looks {
                    let (of, segments) = blocks[block];
                    verdict.is_layered |= of.has_failed || !doubts.is_over(of.boot);
                    if of.may_be_gone(doubts) {
                        let cuts = verdict.cuts.entry((block, i)).or_default();
                        if !data.lost(of, segments, &run, over, &decided, cuts)? {
                            return Ok(None);
                        }
                        is_right = cuts.taken.is_empty();
                        verdict.taken.append(&mut cuts.taken);
                    }
                }
                if run.count == 1 && is_right {
                    decided.add(run.logical, run.end());
                }
            }
        }
        Ok(Some(verdict))
    }
}

/// What is there of data in doubt.
struct Data<'a> {
    container: &'a Container,
    /// The segment that was read last.
    file: Option<(SegmentRef, Arc<dyn StoreFile>)>,
    buf: Vec<u8>,
    /// What was read: the sums of stretches of segments.
    known: HashMap<(SegmentRef, u64, u64), Seen>,
    /// Where that was.
    seen: HashMap<SegmentRef, Ranges>,
    /// Bytes that were read once, and those that were read again.
    once: u64,
    again: u64,
    /// What is decided outlasts what cannot be read now.
    lasts: bool,
}

/// What is there of the data that a sum is of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    /// All, with this sum.
    Sum(u32),
    /// Not all.
    Less,
    /// Nobody can tell now.
    Unknown,
}

impl<'a> Data<'a> {
    fn new(container: &'a Container, lasts: bool) -> Data<'a> {
        Data {
            container,
            file: None,
            buf: Vec::new(),
            known: HashMap::new(),
            seen: HashMap::new(),
            once: 0,
            again: 0,
            lasts,
        }
    }

    /// Adds the parts of a run, among those of `over` that are not `decided`, whose data does not
    /// have its sum. False if its log set is gone. Costs what is read, and a step for each lost
    /// part, not for each piece.
    #[allow(clippy::too_many_arguments)]
    fn lost(
        &mut self,
        of: &Block,
        segments: &[SegmentRef],
        run: &Run,
        over: &Ranges,
        decided: &Ranges,
        cuts: &mut Cuts,
    ) -> Result<bool> {
        let Some(at) = segments.get(run.segment as usize).copied() else { return Ok(true) };
        for (low, high) in over.within(run.first(), run.end()) {
            let (low, high) = (low.max(run.first()), high.min(run.end()));
            let mut open = decided.gaps(low, high);
            if run.count > 1 && !open.is_empty() {
                // What is decided is few of its bytes: pieces of it would be many.
                open = vec![(low, high)];
            }
            for window in open {
                let (from, to) = pieces_within(run, window.0, window.1);
                if from == to {
                    continue;
                }
                let pieces = run.ascending(from, to);
                let (first, bytes) = match run.count {
                    // Not more of it than the window has.
                    1 => (run.physical + (window.0 - run.logical), window.1 - window.0),
                    _ => (pieces.physical, pieces.bytes()),
                };
                let (start, stop) = (first, first + bytes);
                let is_before =
                    |stretch: &Stretch| (stretch.segment, stretch.end()) <= (run.segment, start);
                for stretch in &of.sums[of.sums.partition_point(is_before)..] {
                    if (stretch.segment, stretch.physical) >= (run.segment, stop) {
                        break;
                    }
                    let (first, end) = (start.max(stretch.physical), stop.min(stretch.end()));
                    let unit = u64::from(stretch.unit);
                    let base = stretch.physical / unit;
                    for part in first / unit - base..(end - 1) / unit - base + 1 {
                        let part = part as usize;
                        match self.is_right(at, of.set, part, stretch)? {
                            None => return Ok(false),
                            Some(true) => {}
                            Some(false) => {
                                let (start, stop) = stretch.part(part);
                                let lost = (start.max(first), stop.min(end));
                                cuts.add(run, (from, to), window, lost, at, of);
                            }
                        }
                    }
                }
            }
        }
        Ok(true)
    }

    fn open(&mut self, at: SegmentRef) -> store::Result<Arc<dyn StoreFile>> {
        if let Some((of, file)) = &self.file
            && *of == at
        {
            return Ok(file.clone());
        }
        let store = &self.container.store;
        // A backend that is not there says nothing about the data on it.
        let path = self.container.segment_path(&at).map_err(|_| Errno::IO)?;
        let file = match store.open(&path, Open::READ) {
            Err(Errno::NOENT | Errno::NOTDIR) if at.backend > 0 => {
                // It may have moved.
                let dir = self.container.backend_dir_again(at.backend).map_err(|_| Errno::IO)?;
                store.open(&dir.join(name::data_log(&at)), Open::READ)?
            }
            other => other?,
        };
        self.file = Some((at, file.clone()));
        Ok(file)
    }

    /// Whether a part of a stretch has its sum; `None` if `set`, whose index log says so, is gone.
    /// What cannot be read for another reason than that it is not there counts as right: whoever
    /// reads it is told. Not so where descriptors or memory are short, nor for a flat index: it
    /// would be believed when it can be read again.
    fn is_right(
        &mut self,
        at: SegmentRef,
        set: u32,
        part: usize,
        stretch: &Stretch,
    ) -> Result<Option<bool>> {
        let (from, to) = stretch.part(part);
        let Some(expected) = stretch.sums.get(part) else { return Ok(Some(true)) };
        let Some(seen) = self.look(at, set, from, to)? else { return Ok(None) };
        Ok(Some(match seen {
            Seen::Sum(sum) => sum == *expected,
            Seen::Less => false,
            Seen::Unknown => true,
        }))
    }

    /// What is there of `[from, to)` of a segment. Costs what the bytes cost, however many sums of
    /// them there are: what is read again, in other parts, is at most as much as was read once.
    fn look(&mut self, at: SegmentRef, set: u32, from: u64, to: u64) -> Result<Option<Seen>> {
        if let Some(known) = self.known.get(&(at, from, to)) {
            return Ok(Some(*known));
        }
        let ranges = self.seen.entry(at).or_default();
        let new = ranges.gaps(from, to).iter().map(|(from, to)| to - from).sum::<u64>();
        let again = to - from - new;
        if again > 0 && self.again + again > self.once {
            // Only a corrupt log has so many sums.
            return Ok(Some(Seen::Unknown));
        }
        (self.once, self.again) = (self.once + new, self.again + again);
        ranges.add(from, to);
        // A corrupt log may claim a unit of 4 GiB: memory is taken only for bytes that are there.
        let (mut sum_of, mut offset) = (0, from);
        let seen = loop {
            if offset == to {
                break Seen::Sum(sum_of);
            }
            self.buf.resize(PIECE_BYTES.min((to - offset) as usize), 0);
            let file = self.open(at);
            let read = file.and_then(|file| store::read_full(file.as_ref(), &mut self.buf, offset));
            match read {
                Ok(n) if n == self.buf.len() => {
                    sum_of = sum_on(sum_of, &self.buf);
                    offset += n as u64;
                }
                Ok(_) => break Seen::Less,
                Err(Errno::NOENT) => {
                    // Not the set that the data is in: one that never was there would be looked for
                    // again and again.
                    if self.container.has_lost(&[set])? {
                        return Ok(None);
                    }
                    break Seen::Less;
                }
                Err(errno) if is_of_the_moment(errno) => {
                    let path = self.container.segment_path(&at)?;
                    return Err(errno).at("read", &path);
                }
                Err(_) if self.lasts => {
                    let why = "data that may not be durable cannot be read now";
                    return Err(Error::invalid(Errno::AGAIN, why));
                }
                Err(_) => break Seen::Unknown,
            }
        };
        self.known.insert((at, from, to), seen);
        Ok(Some(seen))
    }
}

/// Bytes that are read at once.
const PIECE_BYTES: usize = 1 << 20;

/// Which of the pieces of a run, the lowest first, have a byte in `[low, high)`, which lies between
/// its ends.
fn pieces_within(run: &Run, low: u64, high: u64) -> (u32, u32) {
    if run.count == 1 {
        return (0, 1);
    }
    let (first, stride) = (run.first(), run.stride.unsigned_abs());
    let (low, high) = (low.max(first), high.min(run.end()));
    if low >= high {
        return (0, 0);
    }
    let from = (low - first) / stride;
    let from = if (low - first) % stride >= run.length { from + 1 } else { from };
    (from as u32, ((high - 1 - first) / stride + 1) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Random runs of which random parts are lost: what is left is, byte for byte, what a look at
    /// each piece would leave.
    #[test]
    fn what_is_left_is_what_was_not_lost() {
        // Not plfs_testkit's numbers: that is made of this crate, which would be compiled twice.
        let mut number = 0x9e37_79b9_7f4a_7c15_u64;
        let mut below = |n: u64| {
            number = number.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            ((u128::from(number) * u128::from(n)) >> 64) as u64
        };
        let at = SegmentRef { set: 1, stream: 0, segment: 0, backend: 0 };
        let of =
            Block { set: 1, offset: 0, boot: 1, has_failed: false, sums: vec![], runs: vec![] };
        for round in 0..20_000 {
            let (length, count) = (1 + below(5), 1 + below(12) as u32);
            let stride = (length + below(4)) as i64;
            let back = u64::from(count - 1) * stride as u64;
            let run = Run {
                logical: 100 + back * below(2),
                length,
                stride: 0,
                count,
                segment: 0,
                physical: 1000 + below(5),
            };
            let stride = if run.logical > 100 { -stride } else { stride };
            let run = Run { stride: if count == 1 { 0 } else { stride }, ..run };
            assert!(run.is_valid(), "{run:?}");
            let byte = |i: u32, k: u64| {
                let piece = run.ascending(i, i + 1);
                (piece.logical + k, piece.physical + k)
            };
            let pieces = (0..count).flat_map(|i| (0..length).map(move |k| (i, k)));
            let mut left: Vec<(u64, u64)> = pieces.map(|(i, k)| byte(i, k)).collect();
            let mut cuts = Cuts::default();
            let mut noted = 0;
            for _ in 0..below(4) {
                let (a, b) = (below(run.end() - run.first()), below(run.end() - run.first()));
                let window = (run.first() + a.min(b), run.first() + a.max(b) + 1);
                let (from, to) = pieces_within(&run, window.0, window.1);
                if from == to {
                    continue;
                }
                let (a, b) = (below(run.bytes()), below(run.bytes()));
                let pieces = run.ascending(from, to);
                let lost = (run.physical + a.min(b), run.physical + a.max(b) + 1);
                let lost =
                    (lost.0.max(pieces.physical), lost.1.min(pieces.physical + pieces.bytes()));
                if lost.0 >= lost.1 {
                    continue;
                }
                cuts.add(&run, (from, to), window, lost, at, &of);
                let is_lost = |(logical, physical): &(u64, u64)| {
                    (window.0..window.1).contains(logical) && (lost.0..lost.1).contains(physical)
                };
                noted += (0..count)
                    .flat_map(|i| (0..length).map(move |k| (i, k)))
                    .filter(|(i, k)| is_lost(&byte(*i, *k)))
                    .count() as u64;
                left.retain(|byte| !is_lost(byte));
            }
            assert_eq!(noted, cuts.taken.iter().map(|taken| taken.length).sum::<u64>());
            let verdict = Verdict { cuts: HashMap::from([((0, 0), cuts)]), ..Verdict::default() };
            let runs = verdict.left(0, 0, run);
            assert!(runs.iter().all(Run::is_valid), "{round}: {runs:?}");
            let mut shown: Vec<(u64, u64)> = runs
                .iter()
                .flat_map(|run| (0..run.count).map(|i| run.ascending(i, i + 1)))
                .flat_map(|piece| {
                    (0..piece.length).map(move |k| (piece.logical + k, piece.physical + k))
                })
                .collect();
            shown.sort_unstable();
            left.sort_unstable();
            assert_eq!(shown, left, "{round}: {run:?}");
        }
    }
}
