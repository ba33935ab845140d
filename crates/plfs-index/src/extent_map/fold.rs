//! Folding across writers: runs of many writers whose pieces lie on one lattice become one entry
//! with a shape.
//!
//! N ranks that write a shared file in turns leave N runs of one length, stride and count, whose
//! first bytes are equally far apart; and as their processes took places in the logs of their nodes
//! in turns too, so are segment and physical offset, along one axis for the ranks of a stream, one
//! for the streams of a node, one for the nodes. Vectors (logical, segment, physical) in arithmetic
//! progression become one vector and an axis, and what came of it is folded again, until nothing
//! folds. Where processes raced for their places only the logical offsets are regular; then a
//! *table* holds segments and physical offsets in few bits each.

use std::collections::HashMap;
use std::hash::Hash;

use plfs_format::flat_index::{AXES_MAX, Axis, NewShape};

use super::entry::Entry;
use super::shape::{Footprint, span};
use crate::{Order, Run};

/// Bytes of an entry without what a shape or a table adds (FORMAT.md section 6).
const ENTRY_BYTES: usize = plfs_format::flat_index::ENTRY_BYTES;

/// Pieces on one lattice.
#[derive(Clone, Debug)]
pub(super) struct Group {
    /// Lowest logical byte.
    pub(super) first: u64,
    /// Bytes in a piece.
    pub(super) length: u64,
    /// Of the first piece; 0 with a table.
    pub(super) segment: u32,
    /// Of the first piece; 0 with a table.
    pub(super) physical: u64,
    /// How the pieces lie. A group of one run has its axis; one of a single piece has none.
    pub(super) shape: NewShape,
    /// Which of the runs that were folded are in it.
    pub(super) members: Vec<u32>,
}

impl Group {
    /// Where its pieces are.
    pub(super) fn footprint(&self) -> Footprint<'_> {
        Footprint { axes: &self.shape.axes, length: self.length, first: self.first }
    }

    /// One past its last byte.
    pub(super) fn end(&self) -> u64 {
        self.first + span(&self.shape.axes, self.length).unwrap_or(self.length)
    }

    /// The entry of a group of several, sorted among others as if it had `order`.
    pub(super) fn into_entry(self, order: Order, shapes: &mut Once<NewShape>) -> Entry {
        let end = self.end();
        Entry {
            length: self.length.into(),
            shape: (shapes.number(self.shape) + 1).into(),
            ..Entry::new(
                Run::single(self.first, end - self.first, self.segment, self.physical),
                order,
            )
        }
    }
}

/// A vector with the axes that were folded into it.
#[derive(Clone, Copy)]
struct Node {
    first: u64,
    segment: i64,
    physical: i64,
    /// Index into the lists of axes.
    axes: u32,
    /// Where in the list of members its own begin, and how many they are.
    from: u32,
    count: u32,
}

/// Values, each once, with numbers from 0 on.
#[derive(Debug)]
pub(super) struct Once<T> {
    pub(super) all: Vec<T>,
    numbers: HashMap<T, u32>,
}

impl<T> Default for Once<T> {
    fn default() -> Once<T> {
        Once { all: Vec::new(), numbers: HashMap::new() }
    }
}

impl<T: Clone + Eq + Hash> Once<T> {
    /// The number of a value, a new one if it was not there.
    pub(super) fn number(&mut self, value: T) -> u32 {
        if let Some(number) = self.numbers.get(&value) {
            return *number;
        }
        let number = self.all.len() as u32;
        self.all.push(value.clone());
        self.numbers.insert(value, number);
        number
    }
}

/// Lists of axes.
type Lists = Once<Vec<Axis>>;

impl Lists {
    /// The number of a list with one more axis, if pieces of `length` cannot overlap then.
    fn with(&mut self, axes: u32, axis: Axis, length: u64) -> Option<u32> {
        let mut list = self.all[axes as usize].clone();
        if list.len() == AXES_MAX {
            return None;
        }
        let at = list.partition_point(|other| other.stride > axis.stride);
        // A table counts its places from the outside in, and so do members.
        if axis.tabled && list[..at].iter().any(|other| other.tabled) {
            return None;
        }
        list.insert(at, axis);
        span(&list, length)?;
        Some(self.number(list))
    }
}

/// Folds runs, and gives all of them as groups: those that nothing was found for as groups of their
/// own.
pub(super) fn across(runs: &[Run]) -> Vec<Group> {
    let class = |run: &Run| (run.length, run.stride, run.count);
    let mut order: Vec<u32> = (0..runs.len() as u32).collect();
    order.sort_unstable_by_key(|i| {
        let run = &runs[*i as usize];
        (class(run), run.first())
    });
    order
        .chunk_by(|a, b| class(&runs[*a as usize]) == class(&runs[*b as usize]))
        .flat_map(|members| fold_class(runs, members))
        .collect()
}

/// Folds runs of one length, stride and count, ascending.
fn fold_class(runs: &[Run], members: &[u32]) -> Vec<Group> {
    let of = &runs[members[0] as usize];
    let mut lists = Lists::default();
    let step = of.stride.unsigned_abs();
    let own = if of.count == 1 {
        Vec::new()
    } else {
        vec![Axis {
            stride: step,
            physical: if of.stride > 0 { of.length as i64 } else { -(of.length as i64) },
            count: of.count,
            ..Axis::default()
        }]
    };
    let own = lists.number(own);
    let node = |(at, i): (usize, &u32)| {
        let (segment, physical) = lowest(&runs[*i as usize]);
        Node {
            first: runs[*i as usize].first(),
            segment: segment as i64,
            physical: physical as i64,
            axes: own,
            from: at as u32,
            count: 1,
        }
    };
    let nodes: Vec<Node> = members.iter().enumerate().map(node).collect();
    let affine = fold(nodes.clone(), of.length, &mut lists, false);
    let bytes = |nodes: &[Node], lists: &Lists, table_bits: usize| {
        let mut shapes: Vec<u32> =
            nodes.iter().filter(|node| node.count > 1).map(|node| node.axes).collect();
        shapes.sort_unstable();
        shapes.dedup();
        let tabled: usize = if table_bits == 0 {
            0
        } else {
            nodes
                .iter()
                .filter(|node| node.count > 1)
                .map(|node| 32 + node.count as usize * table_bits / 8)
                .sum()
        };
        nodes.len() * ENTRY_BYTES
            + shapes.iter().map(|shape| 8 + 32 * lists.all[*shape as usize].len()).sum::<usize>()
            + tabled
    };
    let bits = |value: &dyn Fn(&Node) -> i64| {
        let (least, most) = nodes
            .iter()
            .map(value)
            .fold((i64::MAX, i64::MIN), |(least, most), value| (least.min(value), most.max(value)));
        64 - (most.wrapping_sub(least) as u64).leading_zeros() as usize
    };
    // Good enough is not compared: a hundredth of the entries.
    let tabled = (affine.len() > 1 + nodes.len() / 100)
        .then(|| fold(nodes.clone(), of.length, &mut lists, true));
    let table_bits = bits(&|node| node.segment) + bits(&|node| node.physical);
    // The shortest of: as they are, folded in all three, folded with a table.
    let mut choices =
        vec![(bytes(&nodes, &lists, 0), false, nodes), (bytes(&affine, &lists, 0), false, affine)];
    choices.extend(tabled.map(|tabled| (bytes(&tabled, &lists, table_bits.max(1)), true, tabled)));
    let (_, is_tabled, nodes) =
        choices.into_iter().min_by_key(|choice| choice.0).expect("there are two at least");
    let group = |node: &Node| {
        let members = members[node.from as usize..(node.from + node.count) as usize].to_vec();
        let axes = lists.all[node.axes as usize].clone();
        let (mut shape, mut segment, mut physical) =
            (NewShape { axes, ..NewShape::default() }, node.segment as u32, node.physical as u64);
        if is_tabled && node.count > 1 {
            (segment, physical) = (0, 0);
            (shape.segments, shape.physicals) =
                members.iter().map(|i| lowest(&runs[*i as usize])).unzip();
        }
        Group { first: node.first, length: of.length, segment, physical, shape, members }
    };
    nodes.iter().map(group).collect()
}

/// Segment and physical offset of the piece that is logically first: a run that goes backwards
/// stores it last.
fn lowest(run: &Run) -> (u64, u64) {
    (
        run.segment.into(),
        if run.stride >= 0 {
            run.physical
        } else {
            run.physical + run.length * u64::from(run.count - 1)
        },
    )
}

/// Folds neighbours in arithmetic progression until nothing folds; `tabled` looks at logical
/// offsets only.
fn fold(mut nodes: Vec<Node>, length: u64, lists: &mut Lists, tabled: bool) -> Vec<Node> {
    let step = |a: &Node, b: &Node| {
        let (segment, physical) = if tabled {
            (0, 0)
        } else {
            (b.segment - a.segment, b.physical.wrapping_sub(a.physical))
        };
        Axis { stride: b.first - a.first, physical, segment, count: 0, tabled }
    };
    loop {
        let mut folded: Vec<Node> = Vec::with_capacity(nodes.len() / 2 + 1);
        let mut rest = nodes.as_slice();
        while let [first, behind @ ..] = rest {
            let axis = behind
                .first()
                .filter(|second| second.axes == first.axes)
                .map(|second| step(first, second));
            let more = |axis: Axis| {
                rest.windows(2)
                    .take_while(|two| two[0].axes == two[1].axes && step(&two[0], &two[1]) == axis)
                    .count()
            };
            let n = axis.map_or(1, |axis| 1 + more(axis));
            let with = axis
                .and_then(|axis| lists.with(first.axes, Axis { count: n as u32, ..axis }, length));
            match with {
                Some(axes) => {
                    let count = rest[..n].iter().map(|node| node.count).sum();
                    folded.push(Node { axes, count, ..*first });
                    rest = &rest[n..];
                }
                None => {
                    folded.extend_from_slice(&rest[..n]);
                    rest = &rest[n..];
                }
            }
        }
        if folded.len() == nodes.len() {
            return nodes;
        }
        nodes = folded;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(logical: u64, length: u64, stride: i64, count: u32, segment: u32, physical: u64) -> Run {
        Run { logical, length, stride, count, segment, physical }
    }

    #[test]
    fn ranks_in_turns_are_one_group() {
        // 4 nodes of 3 streams with 2 ranks each, which wrote 5 pieces.
        let runs: Vec<Run> = (0..24)
            .map(|rank| {
                run(rank * 10, 10, 240, 5, (rank / 6 * 3 + rank % 3) as u32, rank / 3 % 2 * 4096)
            })
            .collect();
        let groups = across(&runs);
        assert_eq!(groups.len(), 1, "{groups:?}");
        let strides: Vec<(u64, u32)> =
            groups[0].shape.axes.iter().map(|axis| (axis.stride, axis.count)).collect();
        assert_eq!(strides, [(240, 5), (60, 4), (30, 2), (10, 3)]);
        assert_eq!(groups[0].members.len(), 24);
        assert_eq!(groups[0].end(), 1200);
    }

    #[test]
    fn ranks_that_raced_have_a_table() {
        let at = |rank: u64| rank.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60;
        let runs: Vec<Run> = (0..1000)
            .map(|rank| run(rank * 10, 10, 10_000, 5, at(rank) as u32, at(rank + 7) * 4096))
            .collect();
        let groups = across(&runs);
        assert_eq!(groups.len(), 1);
        assert_eq!(groups[0].shape.segments, (0..1000).map(at).collect::<Vec<_>>());
        assert_eq!(
            groups[0].shape.physicals,
            (0..1000).map(|rank| at(rank + 7) * 4096).collect::<Vec<_>>()
        );
    }

    #[test]
    fn a_block_of_three_dimensions_is_one_group() {
        // 2 x 2 x 2 writers of 4 x 4 rows of 8 bytes: a run of 4 rows for each plane.
        let mut runs = Vec::new();
        for writer in 0..8u64 {
            let (z, y, x) = (writer / 4, writer / 2 % 2, writer % 2);
            runs.extend((0..4).map(|plane| {
                run((z * 4 + plane) * 128 + y * 64 + x * 8, 8, 16, 4, writer as u32, plane * 32)
            }));
        }
        let groups = across(&runs);
        assert_eq!(groups.len(), 1, "{groups:?}");
        assert_eq!(span(&groups[0].shape.axes, 8), Some(1024));
    }

    #[test]
    fn backwards_runs_fold() {
        let runs: Vec<Run> =
            (0..8).map(|rank| run(1000 + rank * 10, 10, -100, 5, rank as u32, 0)).collect();
        let groups = across(&runs);
        assert_eq!((groups.len(), groups[0].physical, groups[0].first), (1, 40, 600));
    }

    #[test]
    fn what_is_irregular_stays_as_it_is() {
        let runs: Vec<Run> = (0..50u64)
            .map(|i| run(i * i * 100, 10, 20, 2 + (i % 3) as u32, 0, i * i * i * 40))
            .collect();
        let groups = across(&runs);
        assert_eq!(groups.iter().map(|group| group.members.len()).sum::<usize>(), 50);
        assert!(groups.len() > 40, "{}", groups.len());
    }
}
