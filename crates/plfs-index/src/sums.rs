//! Sums of what a process writes to data logs, until an index block takes them.

use plfs_format::index_log::SUMS_MAX;
use plfs_format::{sum, sum_of_both, sum_on};

/// Bytes of a segment that have a sum, at first. What fails its sum is lost as a whole, and read as
/// a whole to find out: 64 KiB is what a disk reads in about the time of a seek's tenth.
const UNIT_BYTES: u32 = 64 << 10;
/// Bytes that have a sum in long stretches: a TiB has 4 MiB of sums.
const UNIT_MAX_BYTES: u32 = 1 << 20;

/// Bytes of a segment that follow each other, and their sums (FORMAT.md section 3, kind 129).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// The segment, in the numbers of who writes.
    pub segment: u32,
    /// Where it begins.
    pub physical: u64,
    /// Its bytes.
    pub length: u64,
    /// A sum is of what it has between two neighbouring multiples of this.
    pub unit: u32,
    /// The sums, [`SUMS_MAX`] at most.
    pub sums: Vec<u32>,
}

impl Stretch {
    /// One past its last byte.
    pub fn end(&self) -> u64 {
        self.physical + self.length
    }

    /// What its `i`-th sum is of: beginning and end.
    pub fn part(&self, i: usize) -> (u64, u64) {
        let unit = u64::from(self.unit);
        let from = (self.physical / unit + i as u64) * unit;
        (from.max(self.physical), (from + unit).min(self.end()))
    }

    /// Makes its units twice as long.
    fn fold(&mut self) {
        let first = self.physical / u64::from(self.unit);
        let mut sums: Vec<u32> = Vec::with_capacity(self.sums.len() / 2 + 1);
        for (i, sum) in self.sums.iter().enumerate() {
            let (from, to) = self.part(i);
            match sums.last_mut() {
                Some(last) if (first + i as u64) % 2 == 1 => {
                    *last = sum_of_both(*last, *sum, (to - from) as u32)
                }
                _ => sums.push(*sum),
            }
        }
        (self.unit, self.sums) = (self.unit * 2, sums);
    }

    /// Adds what follows it. It must: same segment, where this one ends.
    fn join(&mut self, mut next: Stretch) -> Result<(), Stretch> {
        while self.unit != next.unit {
            if self.unit < next.unit { self.fold() } else { next.fold() }
        }
        while self.sums.len() + next.sums.len() > SUMS_MAX {
            if self.unit >= UNIT_MAX_BYTES {
                return Err(next);
            }
            self.fold();
            next.fold();
        }
        let is_inside = !self.end().is_multiple_of(u64::from(self.unit));
        let (from, to) = next.part(0);
        match self.sums.last_mut() {
            Some(last) if is_inside => {
                *last = sum_of_both(*last, next.sums[0], (to - from) as u32);
                self.sums.extend_from_slice(&next.sums[1..]);
            }
            _ => self.sums.extend_from_slice(&next.sums),
        }
        self.length += next.length;
        Ok(())
    }
}

/// Sums of what was written.
#[derive(Clone, Debug, Default)]
pub struct Sums {
    stretches: Vec<Stretch>,
    /// See [`Sums::bytes`].
    bytes: usize,
}

impl Sums {
    /// Takes note of bytes that go to a segment. Costs their sum.
    pub fn push(&mut self, segment: u32, mut physical: u64, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let follows = |last: &&mut Stretch| last.segment == segment && last.end() == physical;
            let unit = match self.stretches.last_mut().filter(follows) {
                Some(last) => u64::from(last.unit),
                None => UNIT_BYTES.into(),
            };
            let n = bytes.len().min((unit - physical % unit) as usize);
            let (part, rest) = bytes.split_at(n);
            match self.stretches.last_mut().filter(follows) {
                Some(last) if !physical.is_multiple_of(unit) => {
                    let end = last.sums.len() - 1;
                    last.sums[end] = sum_on(last.sums[end], part);
                    last.length += n as u64;
                }
                Some(last) if last.sums.len() < SUMS_MAX => {
                    last.sums.push(sum(part));
                    last.length += n as u64;
                    self.bytes += 4;
                }
                _ => self.add(Stretch {
                    segment,
                    physical,
                    length: n as u64,
                    unit: unit as u32,
                    sums: vec![sum(part)],
                }),
            }
            (physical, bytes) = (physical + n as u64, rest);
        }
    }

    /// Takes note of what somebody else has summed.
    pub fn add(&mut self, next: Stretch) {
        let follows =
            |last: &&mut Stretch| (last.segment, last.end()) == (next.segment, next.physical);
        self.bytes += 4 * next.sums.len();
        let alone = match self.stretches.last_mut().filter(follows) {
            Some(last) => last.join(next).err(),
            None => Some(next),
        };
        if let Some(next) = alone {
            self.bytes += 40;
            self.stretches.push(next);
        }
    }

    /// How many bytes they take in an index block at most.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes all, ascending, and leaves none.
    pub fn take(&mut self) -> Vec<Stretch> {
        let mut taken = std::mem::take(&mut self.stretches);
        taken.sort_by_key(|stretch| (stretch.segment, stretch.physical));
        taken.into_iter().for_each(|stretch| self.add(stretch));
        self.bytes = 0;
        std::mem::take(&mut self.stretches)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever the order and the lengths in which bytes of segments are summed, each is in one
    /// stretch, and each sum is that of its part.
    #[test]
    fn sums_are_those_of_their_parts() {
        let mut state = 88172645463325252u64;
        let mut below = |n: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % n
        };
        for _ in 0..60 {
            let most = [100, 5_000, 300_000][below(3) as usize];
            let length = 1 + below(20 * most);
            let bytes: Vec<u8> = (0..length).map(|_| below(256) as u8).collect();
            let start = below(1 << 20);
            let (mut sums, mut late, mut at) = (Sums::default(), Vec::new(), 0);
            while at < length {
                let n = (1 + below(most)).min(length - at);
                let part = &bytes[at as usize..(at + n) as usize];
                match below(3) {
                    0 => sums.push(3, start + at, part),
                    _ => late.push((start + at, part)),
                }
                at += n;
            }
            while !late.is_empty() {
                let (at, part) = late.swap_remove(below(late.len() as u64) as usize);
                sums.push(3, at, part);
            }
            let taken = sums.take();
            assert!(taken.len() == 1 && sums.take().is_empty(), "{taken:?}");
            let all = &taken[0];
            assert_eq!((all.segment, all.physical, all.length), (3, start, length));
            for (i, have) in all.sums.iter().enumerate() {
                let (from, to) = all.part(i);
                let part = &bytes[(from - start) as usize..(to - start) as usize];
                assert_eq!(*have, sum(part), "{i} of {length} at {start}");
            }
            assert_eq!(all.part(all.sums.len() - 1).1, start + length);
        }
    }

    #[test]
    fn long_stretches_have_long_units_and_end() {
        let mut sums = Sums::default();
        let zeros = vec![0; 1 << 20];
        let count = 2 * SUMS_MAX as u64 + 1;
        (0..count).for_each(|i| sums.push(0, 77 + (i << 20), &zeros));
        let taken = sums.take();
        assert_eq!(taken.len(), 3, "{}", taken.len());
        assert!(taken.iter().all(|stretch| stretch.sums.len() <= SUMS_MAX));
        assert!(taken[..2].iter().all(|stretch| stretch.unit == UNIT_MAX_BYTES));
        assert_eq!(taken.iter().map(|stretch| stretch.length).sum::<u64>(), count << 20);
    }
}
