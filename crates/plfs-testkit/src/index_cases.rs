//! Index logs of large files without the files: who writes what in typical parallel programs
//! ([`IndexCase`]), and the logs that it leaves ([`write_index_logs`]).
//!
//! For tests of the index and for `bench/index`, which needs what a million ranks leave.

mod logs;

pub use logs::{Placed, Turns, Written, write_index_logs};

use crate::Rng;

/// Which pieces the writers of a file write, each in its order.
#[derive(Clone, Debug)]
pub enum IndexCase {
    /// Piece i of writer r is at `(i * writers + r) * length`: N-1 strided.
    Strided {
        /// Number of writers.
        writers: u32,
        /// Pieces of each.
        pieces: u64,
        /// Bytes of a piece.
        length: u64,
    },
    /// A cube of cells in row-major order, cut into cubes, one a writer, who writes the rows of its
    /// cube in ascending order.
    Block3d {
        /// Cubes along an axis; writers are its third power.
        writers_per_axis: u32,
        /// Cells along an axis, a multiple of `writers_per_axis`.
        cells_per_axis: u64,
        /// Bytes of a cell.
        cell_bytes: u64,
    },
    /// Cells of different lengths in row-major order, dealt to the writers as stretches of a
    /// space-filling curve, in whose order they write them.
    Irregular(Irregular),
    /// Pieces at random offsets.
    RandomOverwrites(RandomOverwrites),
}

/// The cells of [`IndexCase::Irregular`].
#[derive(Clone, Debug)]
pub struct Irregular {
    writers: u32,
    /// Where each cell begins, in row-major order, and the end of the last.
    offsets: Vec<u64>,
    /// The cells in the order of the curve.
    curve: Vec<u32>,
}

/// What is written in [`IndexCase::RandomOverwrites`].
#[derive(Clone, Copy, Debug)]
pub struct RandomOverwrites {
    writers: u32,
    records: u64,
    span: u64,
    seed: u64,
}

/// Longest cell of an irregular map, and what all lengths are multiples of.
const CELL_MAX_BYTES: u64 = 2048;
const CELL_UNIT_BYTES: u64 = 8;
/// Longest random overwrite.
const OVERWRITE_MAX_BYTES: u64 = 8192;

impl IndexCase {
    /// N-1 strided.
    pub fn strided(writers: u32, pieces: u64, length: u64) -> IndexCase {
        IndexCase::Strided { writers, pieces, length }
    }

    /// A block decomposition in three dimensions.
    pub fn block3d(writers_per_axis: u32, cells_per_axis: u64, cell_bytes: u64) -> IndexCase {
        assert!(
            writers_per_axis > 0 && cells_per_axis.is_multiple_of(u64::from(writers_per_axis)),
            "cubes of equal size"
        );
        IndexCase::Block3d { writers_per_axis, cells_per_axis, cell_bytes }
    }

    /// An irregular map of `records` cells of 8 to 2,048 bytes, multiples of 8, on a square grid
    /// whose last row may be short. The curve is Hilbert's, generalised to rectangles.
    /// Costs 12 bytes a cell.
    pub fn irregular(records: u32, writers: u32, seed: u64) -> IndexCase {
        let mut rng = Rng::new(seed);
        let mut end = 0;
        let mut offsets = Vec::with_capacity(records as usize + 1);
        for _ in 0..records {
            offsets.push(end);
            end += CELL_UNIT_BYTES * (1 + rng.below(CELL_MAX_BYTES / CELL_UNIT_BYTES));
        }
        offsets.push(end);
        let width = records.isqrt().max(1);
        let (width, height) = (i64::from(width), i64::from(records.div_ceil(width)));
        let mut curve = Vec::with_capacity(records as usize);
        hilbert((0, 0), (width, 0), (0, height), &mut |(x, y)| {
            let cell = y * width + x;
            if cell < i64::from(records) {
                curve.push(cell as u32);
            }
        });
        IndexCase::Irregular(Irregular { writers, offsets, curve })
    }

    /// `records` pieces of 1 to 8,192 bytes, all lengths and all offsets below `span` alike, dealt
    /// to the writers in turn. None reaches past `span`, which is at least 8,192.
    pub fn random_overwrites(records: u64, span: u64, writers: u32, seed: u64) -> IndexCase {
        assert!(span >= OVERWRITE_MAX_BYTES);
        IndexCase::RandomOverwrites(RandomOverwrites { writers, records, span, seed })
    }

    /// A case from text, as `bench/index.py` names them: `strided:WRITERS:PIECES:LENGTH`,
    /// `block3d:WRITERS_PER_AXIS:CELLS_PER_AXIS:CELL_BYTES`, `irregular:RECORDS:WRITERS`,
    /// `overwrites:RECORDS:SPAN:WRITERS`. `None` if it is none of them.
    pub fn parse(text: &str) -> Option<IndexCase> {
        let mut words = text.split(':');
        let kind = words.next()?;
        let numbers = words.map(|word| word.parse().ok()).collect::<Option<Vec<u64>>>()?;
        let small = |n: u64| u32::try_from(n).ok().filter(|n| *n > 0);
        match (kind, numbers.as_slice()) {
            ("strided", &[writers, pieces, length]) => {
                Some(IndexCase::strided(small(writers)?, pieces, length))
            }
            ("block3d", &[writers, cells, bytes]) if writers > 0 && cells % writers == 0 => {
                Some(IndexCase::block3d(small(writers)?, cells, bytes))
            }
            ("irregular", &[records, writers]) => {
                Some(IndexCase::irregular(small(records)?, small(writers)?, 1))
            }
            ("overwrites", &[records, span, writers]) if span >= OVERWRITE_MAX_BYTES => {
                Some(IndexCase::random_overwrites(records, span, small(writers)?, 1))
            }
            _ => None,
        }
    }

    /// Number of writers.
    pub fn writers(&self) -> u32 {
        match self {
            IndexCase::Strided { writers, .. } => *writers,
            IndexCase::Block3d { writers_per_axis, .. } => writers_per_axis.pow(3),
            IndexCase::Irregular(case) => case.writers,
            IndexCase::RandomOverwrites(case) => case.writers,
        }
    }

    /// Number of pieces of a writer.
    pub fn pieces(&self, writer: u32) -> u64 {
        match self {
            IndexCase::Strided { pieces, .. } => *pieces,
            IndexCase::Block3d { writers_per_axis, cells_per_axis, .. } => {
                (cells_per_axis / u64::from(*writers_per_axis)).pow(2)
            }
            IndexCase::Irregular(case) => case.start(writer + 1) - case.start(writer),
            IndexCase::RandomOverwrites(case) => {
                (case.records + u64::from(case.writers - 1 - writer)) / u64::from(case.writers)
            }
        }
    }

    /// Number of pieces of all writers.
    pub fn writes(&self) -> u64 {
        (0..self.writers()).map(|writer| self.pieces(writer)).sum()
    }

    /// Whether pieces overlap.
    pub fn overlaps(&self) -> bool {
        matches!(self, IndexCase::RandomOverwrites(_))
    }

    /// Offset and length of a piece.
    #[inline]
    pub fn piece(&self, writer: u32, piece: u64) -> (u64, u64) {
        match self {
            IndexCase::Strided { writers, length, .. } => {
                ((piece * u64::from(*writers) + u64::from(writer)) * length, *length)
            }
            IndexCase::Block3d { writers_per_axis, cells_per_axis, cell_bytes } => {
                let (n, cells, writer) =
                    (u64::from(*writers_per_axis), *cells_per_axis, u64::from(writer));
                let side = cells / n;
                let (plane, row) =
                    (writer / (n * n) * side + piece / side, writer / n % n * side + piece % side);
                (
                    ((plane * cells + row) * cells + writer % n * side) * cell_bytes,
                    side * cell_bytes,
                )
            }
            IndexCase::Irregular(case) => {
                let cell = case.curve[(case.start(writer) + piece) as usize] as usize;
                (case.offsets[cell], case.offsets[cell + 1] - case.offsets[cell])
            }
            IndexCase::RandomOverwrites(case) => {
                let mut rng = Rng::new(
                    case.seed
                        ^ (piece * u64::from(case.writers) + u64::from(writer))
                            .wrapping_mul(0xd134_2543_de82_ef95),
                );
                let length = 1 + rng.below(OVERWRITE_MAX_BYTES);
                (rng.below(case.span - length + 1), length)
            }
        }
    }

    /// Which piece the byte at `offset` is of, as (writer, piece): of several the last written,
    /// when the writers take [turns](Turns::Lockstep). By arithmetic, or by looking at all pieces:
    /// for tests.
    pub fn last_writer(&self, offset: u64) -> Option<(u32, u64)> {
        let found = match self {
            IndexCase::Strided { writers, length, .. } => {
                let slot = offset / length;
                ((slot % u64::from(*writers)) as u32, slot / u64::from(*writers))
            }
            IndexCase::Block3d { writers_per_axis, cells_per_axis, cell_bytes } => {
                let (n, cells) = (u64::from(*writers_per_axis), *cells_per_axis);
                let (cell, side) = (offset / cell_bytes, cells / n);
                let (x, y, z) = (cell % cells, cell / cells % cells, cell / cells / cells);
                if z >= cells {
                    return None;
                }
                (((z / side * n + y / side) * n + x / side) as u32, z % side * side + y % side)
            }
            IndexCase::Irregular(case) => {
                let cell = case.offsets.partition_point(|start| *start <= offset).checked_sub(1)?;
                let at = case.curve.iter().position(|other| *other as usize == cell)? as u64;
                let writer = (0..case.writers).find(|writer| case.start(writer + 1) > at)?;
                (writer, at - case.start(writer))
            }
            IndexCase::RandomOverwrites(case) => {
                let writers = u64::from(case.writers);
                let covers = |n: &u64| {
                    let (start, length) = self.piece((n % writers) as u32, n / writers);
                    (start..start + length).contains(&offset)
                };
                let last = (0..case.records).rev().find(covers)?;
                ((last % writers) as u32, last / writers)
            }
        };
        (found.1 < self.pieces(found.0)).then_some(found)
    }
}

impl Irregular {
    /// Where a writer's stretch begins on the curve.
    fn start(&self, writer: u32) -> u64 {
        self.curve.len() as u64 * u64::from(writer) / u64::from(self.writers)
    }
}

type Vector = (i64, i64);

/// Visits the cells of the rectangle that the axis-parallel vectors `a` and `b` span at `corner`,
/// along a curve that fills it: from `corner` in the direction of `a`, at last. Hilbert's
/// curve where the sides are equal powers of two; Červený's generalisation ("gilbert") elsewhere.
/// Each step is to a neighbour, but for one diagonal step if a side is odd.
fn hilbert((x, y): Vector, a: Vector, b: Vector, visit: &mut impl FnMut(Vector)) {
    let (width, height) = ((a.0 + a.1).abs(), (b.0 + b.1).abs());
    let (da, db) = ((a.0.signum(), a.1.signum()), (b.0.signum(), b.1.signum()));
    if height == 1 || width == 1 {
        let (step, count) = if height == 1 { (da, width) } else { (db, height) };
        (0..count).for_each(|i| visit((x + i * step.0, y + i * step.1)));
        return;
    }
    // Rounded down, also below 0.
    let half = |v: Vector| (v.0.div_euclid(2), v.1.div_euclid(2));
    let even = |v: Vector, step: Vector, side: i64| {
        if (v.0 + v.1) % 2 != 0 && side > 2 { (v.0 + step.0, v.1 + step.1) } else { v }
    };
    let less = |v: Vector, w: Vector| (v.0 - w.0, v.1 - w.1);
    if 2 * width > 3 * height {
        let part = even(half(a), da, width);
        hilbert((x, y), part, b, visit);
        hilbert((x + part.0, y + part.1), less(a, part), b, visit);
    } else {
        let (across, part) = (half(a), even(half(b), db, height));
        hilbert((x, y), part, across, visit);
        hilbert((x + part.0, y + part.1), a, less(b, part), visit);
        let last = (x + a.0 - da.0 + part.0 - db.0, y + a.1 - da.1 + part.1 - db.1);
        hilbert(last, (-part.0, -part.1), less(across, a), visit);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_curve_visits_each_cell_once_and_steps_to_neighbours() {
        for (width, height) in
            [(1, 1), (5, 1), (1, 6), (8, 8), (64, 64), (13, 9), (30, 31), (100, 7), (7, 100)]
        {
            let mut cells = Vec::new();
            hilbert((0, 0), (width, 0), (0, height), &mut |cell| cells.push(cell));
            assert_eq!(cells.len() as i64, width * height);
            assert!(cells.iter().all(|(x, y)| (0..width).contains(x) && (0..height).contains(y)));
            assert_eq!(cells.iter().collect::<HashSet<_>>().len(), cells.len());
            let longest = cells
                .windows(2)
                .map(|w| (w[0].0 - w[1].0).abs().max((w[0].1 - w[1].1).abs()))
                .max();
            assert!(longest <= Some(1), "{width} x {height}: {longest:?}");
        }
    }

    #[test]
    fn every_piece_is_found_by_its_bytes() {
        for text in ["strided:6:5:7", "block3d:2:8:3", "irregular:1000:7", "irregular:3:5"] {
            let case = IndexCase::parse(text).unwrap();
            let (mut end, mut bytes) = (0, 0);
            for writer in 0..case.writers() {
                for piece in 0..case.pieces(writer) {
                    let (offset, length) = case.piece(writer, piece);
                    assert_eq!(case.last_writer(offset), Some((writer, piece)), "{text}");
                    assert_eq!(
                        case.last_writer(offset + length - 1),
                        Some((writer, piece)),
                        "{text}"
                    );
                    (end, bytes) = (end.max(offset + length), bytes + length);
                }
            }
            assert_eq!(end, bytes, "{text} has holes or overlaps");
            assert_eq!(case.last_writer(end), None, "{text}");
        }
    }

    #[test]
    fn random_overwrites_stay_in_their_span_and_are_dealt_evenly() {
        let case = IndexCase::random_overwrites(1001, 10_000, 8, 3);
        assert_eq!(
            (0..8).map(|writer| case.pieces(writer)).collect::<Vec<_>>(),
            [126, 125, 125, 125, 125, 125, 125, 125]
        );
        assert_eq!(case.writes(), 1001);
        let (offset, length) = case.piece(0, 125);
        assert_eq!(case.last_writer(offset), Some((0, 125)), "the last of all");
        assert!(offset + length <= 10_000);
        assert_eq!(case.last_writer(10_000), None);
    }

    #[test]
    fn text_that_means_no_case() {
        for text in [
            "",
            "strided",
            "strided:1:2",
            "strided:0:1:1",
            "strided:1:x:1",
            "block3d:3:8:8",
            "block3d:0:8:8",
            "overwrites:1:1:1",
            "other:1:1:1",
        ] {
            assert!(IndexCase::parse(text).is_none(), "{text}");
        }
    }
}
