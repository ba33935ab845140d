//! The runs of a file as patterns, writer by writer: what the programs did, in few lines.
//!
//! Pure. A [`Finder`] gets a writer's runs in their order. It joins those that regions, blocks and
//! the decoding of nests have split, and finds nests that no index record can hold (FORMAT.md
//! section 3). What is left of random writes becomes one line: how many, how long, between which
//! offsets.

use std::collections::HashMap;
use std::fmt;

use plfs_core::index::Run;
use plfs_core::{IndexRecord, RecordKind, Records, WrittenBy};

use crate::out::count;

/// How something recurs: `count` times, each `stride` bytes behind the one before. A stride of 0
/// writes the same bytes again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    pub count: u64,
    pub stride: i64,
}

/// Pieces of `length` bytes: the first at `first`, and all that the levels make of it, innermost
/// first. What is contiguous is one piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    pub first: u64,
    pub length: u64,
    pub levels: Vec<Level>,
}

impl Pattern {
    fn of(run: &Run) -> Pattern {
        match (run.count, run.stride.unsigned_abs() == run.length) {
            (1, _) => Pattern { first: run.logical, length: run.length, levels: Vec::new() },
            (_, true) if run.stride > 0 => {
                Pattern { first: run.logical, length: run.bytes(), levels: Vec::new() }
            }
            (count, _) => Pattern {
                first: run.logical,
                length: run.length,
                levels: vec![Level { count: count.into(), stride: run.stride }],
            },
        }
    }

    pub fn pieces(&self) -> u64 {
        self.levels.iter().fold(1, |pieces, level| pieces.saturating_mul(level.count))
    }

    pub fn bytes(&self) -> u64 {
        self.pieces().saturating_mul(self.length)
    }

    /// Lowest byte and one past the highest. Saturates where offsets of a damaged index would
    /// overflow.
    fn range(&self) -> (u64, u64) {
        let reach = |level: &Level| (level.stride.unsigned_abs()).saturating_mul(level.count - 1);
        let sum = |down: bool| {
            self.levels
                .iter()
                .filter(|level| (level.stride < 0) == down)
                .fold(0u64, |sum, level| sum.saturating_add(reach(level)))
        };
        (
            self.first.saturating_sub(sum(true)),
            self.first.saturating_add(self.length).saturating_add(sum(false)),
        )
    }

    fn moved(&self, distance: i64) -> Pattern {
        Pattern { first: self.first.wrapping_add_signed(distance), ..self.clone() }
    }

    /// Without its outermost level, which says that it comes twice.
    fn half(&self) -> Option<Pattern> {
        let (outer, inner) = self.levels.split_last()?;
        (outer.count == 2).then(|| Pattern { levels: inner.to_vec(), ..self.clone() })
    }

    fn has_shape_of(&self, other: &Pattern) -> bool {
        self.length == other.length && self.levels == other.levels
    }

    /// This and then `next`, as one pattern.
    fn with(&self, next: &Pattern) -> Option<Pattern> {
        // Offsets are at most 2^63-1.
        let distance = next.first.wrapping_sub(self.first) as i64;
        if self.levels.is_empty()
            && next.levels.is_empty()
            && distance.unsigned_abs() == self.length
            && distance > 0
        {
            return Some(Pattern { length: self.length + next.length, ..self.clone() });
        }
        if self.length != next.length {
            return None;
        }
        let follows = |level: &Level| {
            i128::from(level.stride) * i128::from(level.count) == i128::from(distance)
        };
        let longer = |inner: &[Level], level: &Level, more: u64| {
            let levels =
                [inner, &[Level { count: level.count + more, stride: level.stride }]].concat();
            Some(Pattern { levels, ..self.clone() })
        };
        match (self.levels.split_last(), next.levels.split_last()) {
            // It goes on.
            (Some((a, inner)), Some((b, other)))
                if inner == other && a.stride == b.stride && follows(a) =>
            {
                longer(inner, a, b.count)
            }
            // One more.
            (Some((a, inner)), _) if inner == next.levels && follows(a) => longer(inner, a, 1),
            // It was the first of what comes.
            (_, Some((b, other))) if other == self.levels && b.stride == distance => {
                longer(other, b, 1)
            }
            // It comes again.
            _ if self.levels == next.levels => {
                longer(&self.levels, &Level { count: 1, stride: distance }, 1)
            }
            _ => None,
        }
    }

    /// If this is a pair, and its second half is better the first of `next`: both, cut differently.
    /// Any two things have a distance; three at equal distances are a pattern.
    fn cut_before(&self, next: &Pattern) -> Option<[Pattern; 2]> {
        let (half, own) = (self.half()?, self.levels.last()?);
        let (outer, inner) = next.levels.split_last()?;
        let second = half.moved(own.stride);
        let fits = inner == half.levels
            && next.length == half.length
            && outer.stride != own.stride
            && second.first.wrapping_add_signed(outer.stride) == next.first;
        let levels = [inner, &[Level { count: outer.count + 1, ..*outer }]].concat();
        fits.then_some([half, Pattern { levels, ..second }])
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = count(self.length);
        let Some((inner, outer)) = self.levels.split_first() else {
            return write!(f, "{bytes} B in one piece, from {}", count(self.first));
        };
        write!(
            f,
            "{} pieces of {bytes} B, {}, from {}",
            count(inner.count),
            inner.every(),
            count(self.first)
        )?;
        for (level, name) in
            outer.iter().zip(["rows", "planes"].into_iter().chain(std::iter::repeat("blocks")))
        {
            match level.stride {
                0 => write!(f, "; all {} times over", count(level.count))?,
                _ => write!(f, "; {} such {name}, {}", count(level.count), level.every())?,
            }
        }
        Ok(())
    }
}

impl Level {
    fn every(&self) -> String {
        match self.stride {
            0 => "one over the other".into(),
            stride if stride < 0 => format!("every {} B backwards", count(stride.unsigned_abs())),
            stride => format!("every {} B", count(stride.unsigned_abs())),
        }
    }
}

/// A line about a writer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// A pattern.
    Regular(Pattern),
    /// What is alike, or single, but follows no rule: each is `shape` moved, or for singles a piece
    /// of `shortest` to `longest` bytes.
    Irregular {
        shape: Pattern,
        times: u64,
        shortest: u64,
        longest: u64,
        bytes: u64,
        from: u64,
        to: u64,
    },
}

impl Line {
    pub fn pieces(&self) -> u64 {
        match self {
            Line::Regular(pattern) => pattern.pieces(),
            Line::Irregular { shape, times, .. } => shape.pieces().saturating_mul(*times),
        }
    }

    pub fn bytes(&self) -> u64 {
        match self {
            Line::Regular(pattern) => pattern.bytes(),
            Line::Irregular { bytes, .. } => *bytes,
        }
    }

    fn first(&self) -> u64 {
        match self {
            Line::Regular(pattern) => pattern.first,
            Line::Irregular { from, .. } => *from,
        }
    }

    /// Whether it is `other` moved by `distance`.
    fn is_moved(&self, other: &Line, distance: u64) -> bool {
        match (self, other) {
            (Line::Regular(a), Line::Regular(b)) => {
                a.has_shape_of(b) && a.first.wrapping_sub(b.first) == distance
            }
            _ => false,
        }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Line::Regular(pattern) => pattern.fmt(f),
            Line::Irregular { shape, times, shortest, longest, from, to, .. } => {
                let lengths = if shortest == longest {
                    count(*shortest)
                } else {
                    format!("{} to {}", count(*shortest), count(*longest))
                };
                match shape.levels.split_first() {
                    None => write!(f, "{} pieces of {lengths} B", count(*times))?,
                    Some((inner, outer)) => {
                        let within: u64 = outer.iter().map(|level| level.count).product();
                        write!(f, "{} times ", count(*times))?;
                        if within > 1 {
                            write!(f, "{} rows of ", count(within))?;
                        }
                        write!(
                            f,
                            "{} pieces of {lengths} B, {}",
                            count(inner.count),
                            inner.every()
                        )?;
                    }
                }
                write!(f, ", at irregular offsets between {} and {}", count(*from), count(*to))
            }
        }
    }
}

/// Finds the patterns in runs that come one after the other.
#[derive(Clone, Debug, Default)]
pub struct Finder(Vec<Pattern>);

/// From so many on, things without a rule become one line.
const IRREGULAR_MIN: usize = 4;

impl Finder {
    /// Adds the next run.
    pub fn push(&mut self, run: &Run) {
        self.0.push(Pattern::of(run));
        while let [.., a, b] = self.0.as_mut_slice() {
            if let Some(both) = a.with(b) {
                *a = both;
                self.0.pop();
            } else if let Some(cut) = a.cut_before(b) {
                [*a, *b] = cut;
                break;
            } else {
                break;
            }
        }
    }

    /// What it found, in the order of the runs.
    pub fn lines(self) -> Vec<Line> {
        let patterns = without_chance_pairs(self.0);
        let mut lines = Vec::new();
        for alike in patterns
            .chunk_by(|a, b| a.levels == b.levels && (a.levels.is_empty() || a.length == b.length))
        {
            if alike.len() < IRREGULAR_MIN {
                lines.extend(alike.iter().cloned().map(Line::Regular));
                continue;
            }
            lines.push(Line::Irregular {
                shape: alike[0].clone(),
                times: alike.len() as u64,
                shortest: alike.iter().map(|pattern| pattern.length).min().unwrap_or(0),
                longest: alike.iter().map(|pattern| pattern.length).max().unwrap_or(0),
                bytes: alike.iter().fold(0, |sum, pattern| sum.saturating_add(pattern.bytes())),
                from: alike.iter().map(|pattern| pattern.range().0).min().unwrap_or(0),
                to: alike.iter().map(|pattern| pattern.range().1).max().unwrap_or(0),
            });
        }
        lines
    }
}

/// Pairs beside more of the same are no pattern: any two things have a distance.
fn without_chance_pairs(patterns: Vec<Pattern>) -> Vec<Pattern> {
    let element = |pattern: &Pattern| pattern.half().unwrap_or_else(|| pattern.clone());
    let alike = |a: &Pattern, b: &Pattern| {
        a.levels == b.levels && (a.levels.is_empty() || a.length == b.length)
    };
    let elements: Vec<Pattern> = patterns.iter().map(element).collect();
    let mut out = Vec::with_capacity(patterns.len());
    for (i, (pattern, element)) in patterns.into_iter().zip(&elements).enumerate() {
        let beside = i
            .checked_sub(1)
            .and_then(|before| elements.get(before))
            .into_iter()
            .chain(elements.get(i + 1));
        match pattern.levels.last() {
            Some(outer)
                if outer.count == 2 && beside.into_iter().any(|other| alike(element, other)) =>
            {
                out.extend([element.clone(), element.moved(outer.stride)]);
            }
            _ => out.push(pattern),
        }
    }
    out
}

/// What one process wrote.
#[derive(Clone, Debug)]
pub struct ByWriter<'a> {
    pub who: Option<&'a WrittenBy>,
    pub lines: Vec<Line>,
    pub pieces: u64,
    pub bytes: u64,
    /// Stamps: of its first record, and of the last block with one.
    pub begun: u64,
    pub committed: u64,
}

impl ByWriter<'_> {
    /// Whether it has the patterns of `other`, moved to other offsets.
    pub fn is_like(&self, other: &ByWriter) -> bool {
        let distance = |(a, b): (&Line, &Line)| a.first().wrapping_sub(b.first());
        let moved = self.lines.iter().zip(&other.lines).next().map(distance).unwrap_or(0);
        self.lines.len() == other.lines.len()
            && self.lines.iter().zip(&other.lines).all(|(a, b)| a.is_moved(b, moved))
    }
}

/// The patterns of each writer of these records, which are in order; writers in the order of the
/// first byte that each wrote first.
pub fn by_writer<'a, 'r>(
    all: &'a Records,
    records: impl Iterator<Item = &'r IndexRecord>,
) -> Vec<ByWriter<'a>> {
    let mut places: HashMap<Option<&WrittenBy>, usize> = HashMap::new();
    let mut writers: Vec<(ByWriter, Finder)> = Vec::new();
    for record in records {
        let RecordKind::Run(run) = &record.said else { continue };
        let who = record.writer.and_then(|writer| all.writers.get(writer as usize));
        let place = *places.entry(who).or_insert(writers.len());
        if place == writers.len() {
            writers.push((
                ByWriter {
                    who,
                    lines: Vec::new(),
                    pieces: 0,
                    bytes: 0,
                    begun: record.stamp,
                    committed: 0,
                },
                Finder::default(),
            ));
        }
        let (writer, finder) = &mut writers[place];
        writer.committed = writer.committed.max(record.committed);
        finder.push(run);
    }
    let mut writers: Vec<ByWriter> = writers
        .into_iter()
        .map(|(mut writer, finder)| {
            writer.lines = finder.lines();
            writer.pieces =
                writer.lines.iter().fold(0, |sum, line| sum.saturating_add(line.pieces()));
            writer.bytes =
                writer.lines.iter().fold(0, |sum, line| sum.saturating_add(line.bytes()));
            writer
        })
        .collect();
    writers.sort_by_cached_key(|writer| {
        let by = writer.who.map(|by| (by.host.clone(), by.pid));
        (writer.lines.first().map(Line::first), by)
    });
    writers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(logical: u64, length: u64, stride: i64, count: u32) -> Run {
        Run { logical, length, stride, count, segment: 0, physical: 0 }
    }

    fn found(runs: impl IntoIterator<Item = Run>) -> Vec<String> {
        let mut finder = Finder::default();
        runs.into_iter().for_each(|run| finder.push(&run));
        finder.lines().iter().map(Line::to_string).collect()
    }

    fn singles(pieces: impl IntoIterator<Item = (u64, u64)>) -> Vec<String> {
        found(pieces.into_iter().map(|(logical, length)| run(logical, length, 0, 1)))
    }

    #[test]
    fn a_run_that_was_cut_is_one_pattern() {
        let whole = ["1,000 pieces of 47,001 B, every 3,008,064 B, from 47,001"];
        let step = 3_008_064;
        assert_eq!(found([run(47_001, 47_001, step, 1000)]), whole);
        let at = |i: u64| 47_001 + i * step as u64;
        assert_eq!(
            found([
                run(at(0), 47_001, 0, 1),
                run(at(1), 47_001, step, 5),
                run(at(6), 47_001, step, 993),
                run(at(999), 47_001, 0, 1)
            ]),
            whole
        );
        assert_eq!(singles((0..1000).map(|i| (at(i), 47_001))), whole);
    }

    #[test]
    fn contiguous_bytes_are_one_piece() {
        assert_eq!(singles([(0, 10), (10, 100), (110, 1)]), ["111 B in one piece, from 0"]);
        assert_eq!(found([run(5, 10, 10, 4)]), ["40 B in one piece, from 5"]);
        assert_eq!(
            singles([(20, 10), (10, 10), (0, 10)]),
            ["3 pieces of 10 B, every 10 B backwards, from 20"]
        );
    }

    /// As decoding a nest gives them, or a program that skips between rows.
    #[test]
    fn rows_and_planes_are_found() {
        for (planes, rows) in [(5, 4), (2, 2), (3, 2), (2, 7)] {
            let at = |plane: u64, row: u64| run(1000 + plane * 1_000_000 + row * 10_000, 8, 100, 9);
            let lines =
                found((0..planes).flat_map(|plane| (0..rows).map(move |row| at(plane, row))));
            assert_eq!(
                lines,
                [format!(
                    "9 pieces of 8 B, every 100 B, from 1,000; {rows} such rows, every 10,000 B; \
                     {planes} such planes, every 1,000,000 B"
                )]
            );
        }
        let again = found((0..3).flat_map(|_| (0..4).map(|row| run(row * 1000, 8, 10, 5))));
        assert_eq!(
            again,
            ["5 pieces of 8 B, every 10 B, from 0; 4 such rows, every 1,000 B; all 3 times over"]
        );
    }

    /// A pattern survives what stands before it, even of the same length, and in it.
    #[test]
    fn what_does_not_fit_splits_a_pattern() {
        let lines = singles([7_777].into_iter().chain((0..50).map(|i| i * 100)).map(|at| (at, 10)));
        assert_eq!(
            lines,
            ["10 B in one piece, from 7,777", "50 pieces of 10 B, every 100 B, from 0"]
        );
        let lines = singles((0..50).chain(60..99).map(|i| (i * 100, 10)));
        assert_eq!(
            lines,
            [
                "50 pieces of 10 B, every 100 B, from 0",
                "39 pieces of 10 B, every 100 B, from 6,000"
            ]
        );
        let lines = singles([(0, 512), (4096, 100), (8192, 100)]);
        assert_eq!(
            lines,
            [
                "512 B in one piece, from 0",
                "100 B in one piece, from 4,096",
                "100 B in one piece, from 8,192"
            ]
        );
    }

    #[test]
    fn random_pieces_are_one_line() {
        let mut state = 1u64;
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            state >> 33
        };
        let same: Vec<_> = (0..10_000).map(|_| (next() % (1 << 30), 512)).collect();
        let lines = singles(same);
        assert!(
            lines.len() == 1
                && lines[0].starts_with("10,000 pieces of 512 B, at irregular offsets between "),
            "{lines:?}"
        );
        let mixed: Vec<_> = (0..10_000).map(|_| (next() % (1 << 30), 1 + next() % 20)).collect();
        let lines = singles(mixed);
        assert!(
            lines.len() == 1
                && lines[0].contains(" pieces of 1 to 20 B, at irregular offsets between "),
            "{lines:?}"
        );
        let rows: Vec<_> = (0..100).map(|_| run(next(), 8, 64, 16)).collect();
        let lines = found(rows);
        assert!(
            lines.len() == 1
                && lines[0].starts_with(
                    "100 times 16 pieces of 8 B, every 64 B, at irregular offsets between "
                ),
            "{lines:?}"
        );
    }

    /// Nothing is lost: pieces and bytes are those of the runs. Nothing panics at the ends of the
    /// range of offsets.
    #[test]
    fn counts_are_those_of_the_runs() {
        let top = i64::MAX as u64;
        let runs = [
            run(0, 1, (top - 1) as i64, 2),
            run(top - 1, 1, 0, 1),
            run(0, top, 0, 1),
            run(0, top, 0, 1),
            run(top - 8, 2, -4, 3),
            run(0, 2, 4, u32::MAX),
            run(4 * u64::from(u32::MAX), 2, 4, u32::MAX),
        ];
        for n in 0..=runs.len() {
            let mut finder = Finder::default();
            runs[..n].iter().for_each(|run| finder.push(run));
            let lines = finder.lines();
            lines.iter().for_each(|line| drop(line.to_string()));
            assert!(
                lines.iter().map(Line::bytes).fold(0, u64::saturating_add)
                    == runs[..n].iter().map(Run::bytes).fold(0, u64::saturating_add),
                "{lines:?}"
            );
        }
    }

    #[test]
    fn writers_are_compared_by_what_they_did() {
        let by = |pid| WrittenBy { host: "n".into(), pid, uid: 0 };
        let mut all = Records { writers: (0..3).map(by).collect(), ..Records::default() };
        for stamp in 0..30u64 {
            let run = Run::single(stamp * 10, if stamp % 3 == 2 { 9 } else { 10 }, 0, 0);
            all.records.push(IndexRecord {
                stamp,
                committed: 100,
                set: 0,
                said: RecordKind::Run(run),
                writer: Some(stamp as u32 % 3),
            });
        }
        let writers = by_writer(&all, all.records.iter());
        assert_eq!(
            writers
                .iter()
                .map(|writer| (writer.who.unwrap().pid, writer.pieces, writer.bytes))
                .collect::<Vec<_>>(),
            [(0, 10, 100), (1, 10, 100), (2, 10, 90)]
        );
        assert!(writers[1].is_like(&writers[0]) && !writers[2].is_like(&writers[0]));
    }
}
