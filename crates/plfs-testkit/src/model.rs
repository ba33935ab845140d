//! What the contents of a file may be: the reference that random tests compare PLFS with.
//!
//! A [`FileModel`] remembers what each process did and when, on a clock that counts steps. It
//! follows the documents, not the code:
//!
//! * A process sees its own writes at once, and others' commits as of its last open or refresh (it
//!   may see later ones).
//! * Of two writes to the same byte the one later in order wins, for every reader. Order is known
//!   if one process made both, or both were made on one node, or the second one's process had
//!   looked (opened or refreshed) after the first one's commit. Otherwise either may win
//!   (docs/decisions/0003).
//! * A write that goes on a pattern has the order of the pattern's first piece, unless its process
//!   committed, opened or refreshed in between.
//! * A truncate is in the same order, and visible at once.
//!
//! So the model answers with the set of values that a byte may have. When all have committed and
//! looked, [`FileModel::settle`] takes what they agree on as the content, and from then on nothing
//! else is right.

use std::collections::BTreeMap;

/// Who does something: a process, and the node that it runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Who {
    /// The process, never used again.
    pub process: u32,
    /// Its node.
    pub node: u32,
}

/// Values that a byte may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Values([u64; 4]);

impl Values {
    /// Whether `value` is one of them.
    pub fn has(&self, value: u8) -> bool {
        self.0[value as usize / 64] >> (value % 64) & 1 == 1
    }

    fn add(&mut self, value: u8) {
        self.0[value as usize / 64] |= 1 << (value % 64);
    }

    /// All of them.
    pub fn all(&self) -> Vec<u8> {
        (0..=255).filter(|value| self.has(*value)).collect()
    }
}

/// Bytes with holes.
#[derive(Clone, Debug, Default)]
pub struct Sparse {
    pages: BTreeMap<u64, Vec<u8>>,
}

const PAGE: u64 = 4096;

impl Sparse {
    /// The byte at `offset`; 0 in holes.
    pub fn get(&self, offset: u64) -> u8 {
        self.pages.get(&(offset / PAGE)).map_or(0, |page| page[(offset % PAGE) as usize])
    }

    /// Overwrites.
    pub fn write(&mut self, mut offset: u64, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let at = (offset % PAGE) as usize;
            let n = bytes.len().min(PAGE as usize - at);
            self.pages.entry(offset / PAGE).or_insert_with(|| vec![0; PAGE as usize])[at..at + n]
                .copy_from_slice(&bytes[..n]);
            offset += n as u64;
            bytes = &bytes[n..];
        }
    }

    /// Bytes at and past `size` become 0.
    pub fn truncate(&mut self, size: u64) {
        let _ = self.pages.split_off(&size.div_ceil(PAGE));
        if let Some(page) = self.pages.get_mut(&(size / PAGE)) {
            page[(size % PAGE) as usize..].fill(0);
        }
    }

    /// Ranges that may hold bytes other than 0, ascending.
    pub fn ranges(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.pages.keys().map(|page| (page * PAGE, (page + 1) * PAGE))
    }
}

/// The number of a write of zeros.
pub const ZEROS: u32 = u32::MAX;

/// The byte that write number `seed` puts at its `i`-th place: neighbours differ, and so do writes.
/// [`ZEROS`] puts zeros.
pub fn byte_of(seed: u32, i: u64) -> u8 {
    if seed == ZEROS {
        return 0;
    }
    (seed as u8).wrapping_mul(37).wrapping_add((i as u8).wrapping_mul(11)) | 1
}

#[derive(Clone, Copy, Debug)]
enum What {
    Write { offset: u64, len: u64, seed: u32 },
    Truncate { size: u64, perhaps: bool },
}

#[derive(Clone, Copy, Debug)]
struct Record {
    who: Who,
    /// Its order is between these times.
    low: u64,
    high: u64,
    /// When its process had last looked.
    seen: u64,
    committed: Option<u64>,
    what: What,
}

impl Record {
    /// Whether `self` is certainly earlier in order.
    fn before(&self, other: &Record) -> bool {
        if self.who.process == other.who.process {
            return self.high < other.high;
        }
        self.who.node == other.who.node && self.high < other.low
            || self.committed.is_some_and(|at| at <= other.seen)
    }

    fn covers(&self, from: u64, to: u64) -> bool {
        match self.what {
            What::Write { offset, len, .. } => offset < to && from < offset + len,
            What::Truncate { size, .. } => size < to,
        }
    }

    fn end(&self) -> u64 {
        match self.what {
            What::Write { offset, len, .. } => offset + len,
            What::Truncate { size, .. } => size,
        }
    }

    fn truncates(&self) -> Option<u64> {
        match self.what {
            What::Truncate { size, .. } => Some(size),
            What::Write { .. } => None,
        }
    }
}

#[derive(Clone, Debug)]
struct View {
    who: Who,
    seen: u64,
    /// Pieces since the last commit or look: start, end, and the records in it.
    pieces: Vec<(u64, u64, Vec<usize>)>,
    writes: bool,
}

/// One file.
#[derive(Clone, Debug, Default)]
pub struct FileModel {
    base: Sparse,
    base_size: u64,
    records: Vec<Record>,
    views: Vec<View>,
}

/// Whose eyes to look through.
#[derive(Clone, Copy, Debug)]
pub enum Eyes {
    /// Those of a process that has the file open, as of its last look.
    Of(Who),
    /// Those of a process that looks now.
    Now(Who),
    /// Those of everybody once all has been committed and looked at.
    All,
}

impl FileModel {
    fn view(&mut self, who: Who) -> &mut View {
        let at = self.views.iter().position(|view| view.who == who);
        let at = at.unwrap_or_else(|| {
            self.views.push(View { who, seen: 0, pieces: Vec::new(), writes: false });
            self.views.len() - 1
        });
        &mut self.views[at]
    }

    /// `who` opens or refreshes.
    pub fn look(&mut self, who: Who, now: u64) {
        let view = self.view(who);
        view.seen = now;
        view.pieces.clear();
    }

    /// `who` has closed its last handle; commit first.
    pub fn forget(&mut self, who: Who) {
        self.views.retain(|view| view.who != who);
    }

    /// `who` writes.
    pub fn write(&mut self, who: Who, now: u64, offset: u64, len: u64, seed: u32) {
        let at = self.records.len();
        let view = self.view(who);
        view.writes = true;
        let seen = view.seen;
        let mut older: Vec<usize> = Vec::new();
        match view.pieces.last_mut() {
            Some((_, end, records)) if *end == offset => {
                *end += len;
                older = records.clone();
                records.push(at);
            }
            _ => view.pieces.push((offset, offset + len, vec![at])),
        }
        if let [.., (a, _, first), (b, _, second), (c, _, third)] = &view.pieces[..]
            && b.wrapping_sub(*a) == c.wrapping_sub(*b)
        {
            older = [&first[..], &second[..], &third[..]].concat();
        }
        self.records.push(Record {
            who,
            low: now,
            high: now,
            seen,
            committed: None,
            what: What::Write { offset, len, seed },
        });
        // The pieces may have become one record, with the order of the first.
        let low = older.iter().map(|i| self.records[*i].low).min().unwrap_or(now);
        for i in older.into_iter().chain([at]) {
            self.records[i].low = low;
        }
    }

    /// `who` makes a hole in what the file has: as a write of zeros.
    pub fn zero(&mut self, who: Who, now: u64, offset: u64, len: u64) {
        self.write(who, now, offset, len, ZEROS);
    }

    /// `who` truncates: also a commit.
    pub fn truncate(&mut self, who: Who, now: u64, size: u64) {
        let (low, high) = self.size(Eyes::Now(who), now);
        let view = self.view(who);
        let perhaps = !view.writes && (low..=high).contains(&size);
        view.writes |= !perhaps;
        let seen = view.seen;
        self.commit(who, now);
        self.records.push(Record {
            who,
            low: now,
            high: now,
            seen,
            committed: Some(now),
            what: What::Truncate { size, perhaps },
        });
    }

    /// `who` commits all that it wrote.
    pub fn commit(&mut self, who: Who, now: u64) {
        for record in self.records.iter_mut().filter(|record| record.who == who) {
            record.committed.get_or_insert(now);
        }
        self.view(who).pieces.clear();
    }

    /// `who` commits and gives up its log set.
    pub fn leave(&mut self, who: Who, now: u64) {
        self.commit(who, now);
        self.view(who).writes = false;
    }

    /// Records that must be, and that may be, visible.
    fn visible(&self, eyes: Eyes, now: u64) -> Vec<(Record, bool)> {
        let must = |record: &Record| match eyes {
            Eyes::All => true,
            Eyes::Of(who) => {
                let seen =
                    self.views.iter().find(|view| view.who == who).map_or(0, |view| view.seen);
                record.who == who || record.committed.is_some_and(|at| at <= seen)
            }
            Eyes::Now(who) => record.who == who || record.committed.is_some_and(|at| at <= now),
        };
        // All may be: PLFS commits on its own after a while (SEMANTICS.md S3).
        let soft = |record: &Record| matches!(record.what, What::Truncate { perhaps: true, .. });
        self.records.iter().map(|record| (*record, must(record) && !soft(record))).collect()
    }

    /// The least and the largest size that the file may have.
    pub fn size(&self, eyes: Eyes, now: u64) -> (u64, u64) {
        let visible = self.visible(eyes, now);
        let cuts: Vec<_> = visible
            .iter()
            .filter_map(|(record, must)| record.truncates().map(|size| (*record, size, *must)))
            .collect();
        let clip = |end: u64, cuts: &mut dyn Iterator<Item = u64>| cuts.fold(end, u64::min);
        let mut low = clip(self.base_size, &mut cuts.iter().map(|cut| cut.1));
        let mut high = clip(self.base_size, &mut cuts.iter().filter(|cut| cut.2).map(|cut| cut.1));
        for (record, must) in &visible {
            let same = |cut: &Record| {
                cut.who == record.who && cut.high == record.high && record.truncates().is_some()
            };
            if *must {
                let mut later = cuts
                    .iter()
                    .filter(|(cut, ..)| !same(cut) && !cut.before(record))
                    .map(|cut| cut.1);
                low = low.max(clip(record.end(), &mut later));
            }
            let mut later =
                cuts.iter().filter(|(cut, _, must)| *must && record.before(cut)).map(|cut| cut.1);
            high = high.max(clip(record.end(), &mut later));
        }
        (low, high)
    }

    /// The end of what `who` wrote and has not committed.
    pub fn own_end(&self, who: Who) -> u64 {
        self.records
            .iter()
            .filter(|record| record.who == who && record.committed.is_none())
            .map(Record::end)
            .max()
            .unwrap_or(0)
    }

    /// What the bytes from `offset` on may be.
    pub fn values(&self, eyes: Eyes, now: u64, offset: u64, len: usize) -> Vec<Values> {
        let end = offset + len as u64;
        let visible: Vec<_> = self
            .visible(eyes, now)
            .into_iter()
            .filter(|(record, _)| record.covers(offset, end))
            .collect();
        let mut edges = vec![offset, end];
        for (record, _) in &visible {
            let (from, to) = match record.what {
                What::Write { offset, len, .. } => (offset, offset + len),
                What::Truncate { size, .. } => (size, end),
            };
            edges.extend([from, to].into_iter().filter(|edge| (offset..end).contains(edge)));
        }
        edges.sort_unstable();
        edges.dedup();
        let mut values = vec![Values::default(); len];
        for edge in edges.windows(2) {
            let here: Vec<_> =
                visible.iter().filter(|(record, _)| record.covers(edge[0], edge[1])).collect();
            let wins =
                |record: &Record| !here.iter().any(|(other, must)| *must && record.before(other));
            let base = !here.iter().any(|(_, must)| *must);
            for at in edge[0]..edge[1] {
                let value = &mut values[(at - offset) as usize];
                if base {
                    value.add(self.base.get(at));
                }
            }
            for (record, _) in here.iter().filter(|(record, _)| wins(record)) {
                for at in edge[0]..edge[1] {
                    let value = &mut values[(at - offset) as usize];
                    match record.what {
                        What::Write { offset, seed, .. } => value.add(byte_of(seed, at - offset)),
                        What::Truncate { .. } => value.add(0),
                    }
                }
            }
        }
        values
    }

    /// Ranges outside which all bytes are 0, ascending and apart.
    pub fn ranges(&self) -> Vec<(u64, u64)> {
        let writes = self.records.iter().filter_map(|record| match record.what {
            What::Write { offset, len, seed } if seed != ZEROS => Some((offset, offset + len)),
            What::Write { .. } | What::Truncate { .. } => None,
        });
        let mut ranges: Vec<_> = self.base.ranges().chain(writes).collect();
        ranges.sort_unstable();
        let mut merged: Vec<(u64, u64)> = Vec::new();
        for (from, to) in ranges {
            match merged.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(to),
                _ => merged.push((from, to)),
            }
        }
        merged
    }

    /// All have committed and looked: `content` is what it is from now on. Compare it with
    /// [`FileModel::values`] first.
    pub fn settle(&mut self, size: u64, content: &[(u64, Vec<u8>)], now: u64) {
        self.base = Sparse::default();
        for (offset, bytes) in content {
            self.base.write(*offset, bytes);
        }
        self.base_size = size;
        self.records.clear();
        for view in &mut self.views {
            view.seen = now;
            view.pieces.clear();
        }
    }

    /// Number of records since the content was settled.
    pub fn unsettled(&self) -> usize {
        self.records.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Who = Who { process: 1, node: 1 };
    const B: Who = Who { process: 2, node: 1 };
    const C: Who = Who { process: 3, node: 2 };

    fn value(file: &FileModel, eyes: Eyes, now: u64, at: u64) -> Vec<u8> {
        file.values(eyes, now, at, 1)[0].all()
    }

    #[test]
    fn own_writes_are_seen_and_others_after_commit_and_look() {
        let mut file = FileModel::default();
        [A, B].into_iter().for_each(|who| file.look(who, 1));
        file.write(A, 2, 0, 10, 5);
        assert_eq!(value(&file, Eyes::Of(A), 3, 4), [byte_of(5, 4)]);
        assert_eq!(value(&file, Eyes::Of(B), 3, 4).len(), 2, "perhaps");
        file.commit(A, 4);
        assert_eq!(value(&file, Eyes::Of(B), 5, 4).len(), 2, "perhaps");
        file.look(B, 6);
        assert_eq!(value(&file, Eyes::Of(B), 7, 4), [byte_of(5, 4)]);
        assert_eq!(file.size(Eyes::Of(B), 7), (10, 10));
    }

    #[test]
    fn a_node_orders_by_time_and_two_nodes_by_what_they_saw() {
        let mut file = FileModel::default();
        file.write(A, 2, 0, 10, 1);
        file.write(B, 3, 0, 10, 2);
        assert_eq!(value(&file, Eyes::All, 9, 0), [byte_of(2, 0)]);
        file.write(C, 4, 0, 10, 3);
        assert_eq!(value(&file, Eyes::All, 9, 0).len(), 2);
        [A, B].into_iter().for_each(|who| file.commit(who, 5));
        file.look(C, 6);
        file.write(C, 7, 0, 10, 4);
        assert_eq!(value(&file, Eyes::All, 9, 0), [byte_of(4, 0)]);
    }

    #[test]
    fn a_pattern_has_the_order_of_its_start() {
        let mut file = FileModel::default();
        file.write(A, 1, 0, 5, 1);
        file.write(A, 2, 10, 5, 2);
        file.write(B, 3, 20, 5, 3);
        file.write(A, 4, 20, 5, 4);
        assert_eq!(value(&file, Eyes::All, 9, 20).len(), 2);
        file.commit(A, 5);
        file.write(A, 6, 30, 5, 5);
        file.write(B, 7, 30, 5, 6);
        assert_eq!(value(&file, Eyes::All, 9, 30), [byte_of(6, 0)]);
    }

    #[test]
    fn truncates_cut_what_is_earlier() {
        let mut file = FileModel::default();
        file.write(A, 1, 0, 100, 1);
        file.write(C, 2, 0, 80, 2);
        file.truncate(A, 3, 50);
        assert_eq!(file.size(Eyes::Now(A), 4), (50, 80));
        assert_eq!(file.size(Eyes::All, 4), (50, 80));
        assert_eq!(value(&file, Eyes::Now(A), 4, 90), [0]);
        file.write(A, 5, 60, 1, 3);
        assert_eq!(file.size(Eyes::Now(A), 6), (61, 80));
        assert_eq!(value(&file, Eyes::Now(A), 6, 60).len(), 2);
        assert_eq!(value(&file, Eyes::Now(A), 6, 90), [0]);
    }
}
