//! The parts of a flat index, made of all that a map holds.
//!
//! Singles go through one sweep, source by source, from blocks into blocks; runs are cut and
//! dropped as in any merge. An image may keep the order of everything; or it is *settled*, which is
//! much smaller: orders are left out where nothing overlaps any more, and runs and singles fold
//! across writers.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use plfs_format::Bad;
use plfs_format::flat_index::{Axis, Blocks, BlocksView, Extent, NewShape};
use plfs_format::index_log::NEST_RUNS_MAX;

use super::base::Base;
use super::bulk::{Bulk, Packer, Source, sweep_into_blocks};
use super::entry::Entry;
use super::fold::{self, Group, Once};
use super::level::{make_tree, walk};
use super::merge::{Span, clip_of, cut_on_lattices, is_hidden};
use super::shape::{Footprint, are_disjoint};
use super::{ExtentMap, Run};
use crate::{HOLE, Order, renumbered};

/// Pieces of a run up to which it is held as singles where orders are left out: they cost some 6
/// bytes each, an entry 72.
const SHORT_RUN: u32 = 8;
/// Neighbouring singles of equal length and distance that are worth trying to fold.
const STRETCH: usize = 64;
/// Pairs and pieces that are looked at, for each entry, to find out what overlaps.
const BUDGET: usize = 64;

/// Runs that entries of a flat index may become again when what they have is overwritten: 2^26 are
/// 4 GiB; and no more than as many nests as there were records. What has more is read from the logs
/// anew.
const EXPANDED_MAX: u64 = 1 << 26;

/// The parts of a flat index.
#[derive(Debug, Default)]
pub struct Image {
    /// Entries, sorted, with max_end.
    pub entries: Vec<Entry>,
    /// What entries' shapes mean.
    pub shapes: Vec<NewShape>,
    /// Singles.
    pub blocks: Blocks,
    /// Old number of each segment.
    pub segments: Vec<u32>,
}

/// How a map's numbers relate to those of the index around it.
pub struct Numbers<'a> {
    /// For each segment the number of its log set in `sets`.
    pub set_of: &'a [u32],
    /// The log sets, in the order in which a flat index lists them.
    pub sets: &'a [u32],
}

/// Blocks, with what their numbers mean.
struct Packed {
    blocks: Blocks,
    segments: Vec<u32>,
    /// Numbers and ids of sets.
    sets: Vec<(u32, u32)>,
}

impl Packed {
    /// Blocks that have the numbers of the index around.
    fn numbered(blocks: Blocks, numbers: &Numbers<'_>) -> Packed {
        let sets = numbers.sets.iter().enumerate().map(|(i, set)| (i as u32, *set)).collect();
        Packed { blocks, segments: (0..numbers.set_of.len() as u32).collect(), sets }
    }
}

impl ExtentMap {
    /// Merges everything into the parts of a flat index; `bulks` come on top, with what their
    /// segment numbers mean here. The map stays as it is, and its truncates belong to the image
    /// unless it is settled.
    ///
    /// O(n log n). Beside the image it needs about 12 bytes for each single and 64 for each run.
    /// Errors past 32 GiB of blocks.
    pub fn image(
        &self,
        bulks: Vec<(Bulk, Vec<u32>)>,
        numbers: &Numbers<'_>,
        settled: bool,
    ) -> Result<Image, Bad> {
        let by_id: HashMap<u32, u32> =
            numbers.sets.iter().enumerate().map(|(i, set)| (*set, i as u32)).collect();
        let mut own = Bulk::numbered(numbers.sets);
        for entry in self.levels.iter().flat_map(super::Level::entries).chain(&self.buffer) {
            own.push(entry.run(), entry.order());
        }
        own.pack();
        let mut runs = std::mem::take(&mut own.runs);
        let mut sources: Vec<Packed> =
            own.packed.drain(..).map(|blocks| Packed::numbered(blocks, numbers)).collect();
        for (mut bulk, segments) in bulks {
            bulk.pack();
            bulk.singles = Vec::new();
            runs.extend(bulk.runs.drain(..).map(|(run, order)| {
                (Run { segment: renumbered(run.segment, &segments), ..run }, order)
            }));
            let sets: Vec<(u32, u32)> =
                bulk.sets.iter().map(|set| (by_id.get(set).copied().unwrap_or(0), *set)).collect();
            sources.extend(bulk.packed.drain(..).map(|blocks| Packed {
                blocks,
                segments: segments.clone(),
                sets: sets.clone(),
            }));
        }
        // The base's entries: what nothing new touches stays folded.
        let (mut kept, mut expanded): (Vec<Entry>, u64) = (Vec::new(), 0);
        let has_shapes = self.base.as_ref().is_some_and(|base| !base.flat().shapes.is_empty());
        let tree = if has_shapes { tree_of(&runs) } else { Vec::new() };
        for (base, entry) in
            self.base.iter().flat_map(|base| base.entries().iter().map(move |entry| (base, entry)))
        {
            if entry.shape.get() != 0 && self.is_untouched(base, entry, &tree, &sources) {
                kept.push(*entry);
                continue;
            }
            expanded =
                expanded.saturating_add(base.shaped(entry).map_or(0, |shaped| shaped.expanded()));
            if expanded
                > EXPANDED_MAX
                    .min(base.flat().records.saturating_add(1).saturating_mul(NEST_RUNS_MAX.into()))
            {
                return Err(Bad::new(
                    0,
                    "too many records of the flat index were overwritten in part",
                ));
            }
            let order = base.order_of(entry);
            base.expand(entry, &mut |run| own.push(run, order));
        }
        runs.append(&mut own.runs);
        let runs = runs.into_iter().flat_map(|(run, order)| {
            run.clipped(clip_of(&self.truncates, order))
                .into_iter()
                .flatten()
                .map(move |run| (run, order))
        });
        let (runs, cut): (Vec<_>, Vec<_>) = runs.partition(|(run, _)| run.count > 1);
        cut.into_iter().for_each(|(run, order)| own.push(run, order));
        own.pack();
        sources.extend(own.packed.drain(..).map(|blocks| Packed::numbered(blocks, numbers)));
        // A damaged flat index may name any segment.
        let is_listed = |segment: u32| (segment as usize) < numbers.set_of.len();
        let (mut has_holes, mut are_listed) =
            (false, runs.iter().all(|(run, _)| is_listed(run.segment)));
        let mut singles = self.merge_singles(self.base.as_ref(), &sources, |s| {
            has_holes |= s.tag.0 == HOLE;
            are_listed &= s.tag.0 == HOLE || is_listed(s.tag.0);
            true
        })?;
        drop(sources);
        if !are_listed {
            return Err(Bad::new(0, "an entry names a segment that is not listed"));
        }
        let mut runs = cut_on_lattices(runs);
        let mut budget = 4 * (singles.extents() as usize + runs.len()) + 1024;
        {
            let view = singles.view();
            let ids = |set: u32| numbers.sets.get(set as usize).copied().unwrap_or(u32::MAX);
            let mut cover = Covers { view, ids: &ids, block: usize::MAX, extents: Vec::new() };
            runs.retain(|(run, order)| {
                !is_hidden(|pos| cover.behind(pos), run, *order, &mut budget)
            });
        }
        if !settled {
            let mut shapes = Once::default();
            let mut entries = self.keep(&kept, &mut shapes);
            entries.extend(runs.into_iter().map(|(run, order)| Entry::new(run, order)));
            entries.sort_unstable_by_key(Entry::key);
            make_tree(&mut entries);
            return Ok(Image {
                entries,
                shapes: shapes.all,
                blocks: singles,
                segments: (0..numbers.set_of.len() as u32).collect(),
            });
        }
        if has_holes {
            singles = self.without_idle_holes(&[Packed::numbered(singles, numbers)], &runs)?;
        }
        self.settle(runs, singles, kept, numbers)
    }

    /// The singles without the holes that hide nothing: singles hide each other for good, so a hole
    /// is needed where it covers an older one of `runs` only.
    fn without_idle_holes(&self, singles: &[Packed], runs: &[(Run, Order)]) -> Result<Blocks, Bad> {
        let tree = tree_of(runs);
        self.merge_singles(None, singles, |s| {
            s.tag.0 != HOLE || is_reached(&tree, s.start, s.end, Some(s.order))
        })
    }

    /// One sweep over all sources of singles, for those that are to be kept.
    fn merge_singles(
        &self,
        base: Option<&Base>,
        packed: &[Packed],
        keep: impl FnMut(&Span<Source>) -> bool,
    ) -> Result<Blocks, Bad> {
        let mut readers: Vec<Reader<'_>> = packed.iter().map(Reader::of_packed).collect();
        readers.extend(base.map(Reader::of_base));
        let mut heap: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
        for (i, reader) in readers.iter_mut().enumerate() {
            if let Some(start) = reader.peek() {
                heap.push(Reverse((start, i)));
            }
        }
        let truncates = &self.truncates;
        let spans = std::iter::from_fn(|| {
            loop {
                let mut top = heap.peek_mut()?;
                let reader = &mut readers[top.0.1];
                let (extent, order) = reader.take();
                match reader.peek() {
                    Some(start) => top.0.0 = start,
                    None => drop(std::collections::binary_heap::PeekMut::pop(top)),
                }
                let clip = clip_of(truncates, order);
                if extent.logical < clip {
                    let tag: Source =
                        (extent.segment, extent.physical.wrapping_sub(extent.logical), extent.set);
                    return Some(Span {
                        order,
                        start: extent.logical,
                        end: (extent.logical + extent.length).min(clip),
                        tag,
                    });
                }
            }
        });
        sweep_into_blocks(spans, keep)
    }

    /// Whether nothing but the base has a byte where this entry of it has one, and no truncate cuts
    /// it.
    fn is_untouched(&self, base: &Base, entry: &Entry, runs: &[Entry], sources: &[Packed]) -> bool {
        let (Some(shaped), (first, end)) =
            (base.shaped(entry), (entry.first.get(), entry.end.get()))
        else {
            return false;
        };
        if !shaped.is_sound() || clip_of(&self.truncates, base.order()) < end {
            return false;
        }
        let mine = Footprint { axes: &shaped.shape.axes, length: entry.length.get(), first };
        let mut budget = BUDGET * 1024;
        let mut is_free = true;
        walk(runs, first, &mut { end }, &mut |near: &Entry, to: &mut u64| {
            let run = near.run();
            let theirs = Footprint { axes: &axis_of(&run), length: run.length, first: run.first() };
            budget = budget.saturating_sub(1);
            is_free &= budget > 0 && are_disjoint(mine, theirs);
            if !is_free {
                *to = 0;
            }
        });
        if !is_free {
            return false;
        }
        let mut extents = Vec::new();
        for packed in sources {
            let view = packed.blocks.view();
            for i in view.reaching(first) {
                if view.first(i) >= end {
                    break;
                }
                extents.clear();
                // Blocks that were just made are sound.
                let Ok(block) = view.block(i) else { return false };
                block.collect_into(&mut extents);
                budget = budget.saturating_sub(extents.len());
                if budget == 0
                    || extents
                        .iter()
                        .any(|e| shaped.next_byte(e.logical, e.logical + e.length).is_some())
                {
                    return false;
                }
            }
        }
        true
    }

    /// Folds what does not overlap, and leaves orders out where they decide nothing any more.
    fn settle(
        &self,
        mut runs: Vec<(Run, Order)>,
        mut singles: Blocks,
        kept: Vec<Entry>,
        numbers: &Numbers<'_>,
    ) -> Result<Image, Bad> {
        // Segments are numbered as the file comes upon them, set by set, so that those of ranks in
        // turns are in turns; what stayed folded keeps its numbers.
        let old = if kept.is_empty() {
            appearance(&runs, &singles, numbers)
        } else {
            (0..numbers.set_of.len() as u32).collect()
        };
        let mut new = vec![0; numbers.set_of.len()];
        old.iter().enumerate().for_each(|(i, old)| new[*old as usize] = i as u32);
        runs.iter_mut().for_each(|(run, _)| run.segment = new[run.segment as usize]);

        let plain: Vec<Run> = runs.iter().map(|(run, _)| *run).collect();
        let mut groups = fold::across(&plain);
        drop(plain);
        let mut shapes = Once::default();
        let mut entries = self.keep(&kept, &mut shapes);
        let touching = touching(&groups, &entries, &shapes.all, &singles);
        let order = self.max_order;
        let mut left: Vec<(Run, Order)> = Vec::new();
        for (group, touches) in groups.drain(..).zip(touching) {
            if touches || group.members.len() == 1 {
                left.extend(group.members.iter().map(|i| runs[*i as usize]));
                continue;
            }
            entries.push(group.into_entry(order, &mut shapes));
        }
        drop(runs);
        // What is too short for an entry becomes singles again.
        let (short, left): (Vec<_>, Vec<_>) =
            left.into_iter().partition(|(run, _)| run.count <= SHORT_RUN);
        if !short.is_empty() {
            let mut bulk = Bulk::numbered(numbers.sets);
            for (run, order) in short {
                // The numbers of the singles there are the old ones.
                let run = Run { segment: old[run.segment as usize], ..run };
                (0..run.count).for_each(|i| bulk.push(run.ascending(i, i + 1), order));
            }
            bulk.pack();
            let packed = bulk.packed.drain(..).chain([singles]);
            let sources: Vec<Packed> =
                packed.map(|blocks| Packed::numbered(blocks, numbers)).collect();
            singles = self.without_idle_holes(&sources, &left)?;
        }
        let mut left = tree_of(&left);
        let blocks = repack(&singles, &left, &new, &mut |group: Group| {
            entries.push(group.into_entry(order, &mut shapes));
        })?;
        entries.append(&mut left);
        entries.sort_unstable_by_key(Entry::key);
        make_tree(&mut entries);
        Ok(Image { entries, shapes: shapes.all, blocks, segments: old })
    }
}

impl ExtentMap {
    /// Entries of the base with their shapes, for another image.
    fn keep(&self, kept: &[Entry], shapes: &mut Once<NewShape>) -> Vec<Entry> {
        let shaped = kept.iter().filter_map(|entry| self.base.as_ref()?.shaped(entry));
        shaped
            .map(|shaped| Entry {
                shape: (shapes.number(shaped.to_new()) + 1).into(),
                ..*shaped.entry
            })
            .collect()
    }
}

/// The axis of a run.
fn axis_of(run: &Run) -> Vec<Axis> {
    match run.count {
        1 => Vec::new(),
        _ => vec![Axis { stride: run.stride.unsigned_abs(), count: run.count, ..Axis::default() }],
    }
}

/// Old numbers of all segments, by where the file first comes upon their set, and then upon them.
fn appearance(runs: &[(Run, Order)], singles: &Blocks, numbers: &Numbers<'_>) -> Vec<u32> {
    let mut first = vec![u64::MAX; numbers.set_of.len()];
    for (run, _) in runs {
        let of = &mut first[run.segment as usize];
        *of = run.first().min(*of);
    }
    let view = singles.view();
    for block in (0..view.len()).filter_map(|i| view.block(i).ok()) {
        block.visit(0, |i, start, _| {
            if let Some(of) = first.get_mut(block.place(i).0 as usize) {
                *of = start.min(*of);
            }
            true
        });
    }
    let mut of_set = vec![u64::MAX; numbers.sets.len()];
    for (first, set) in first.iter().zip(numbers.set_of) {
        let of = &mut of_set[*set as usize];
        *of = (*first).min(*of);
    }
    let mut order: Vec<u32> = (0..numbers.set_of.len() as u32).collect();
    order.sort_by_key(|segment| {
        let set = numbers.set_of[*segment as usize];
        (of_set[set as usize], set, first[*segment as usize])
    });
    order
}

/// For each group whether it shares a byte with another, with what is there already, or with a
/// single; true also if that takes too long to find out.
fn touching(
    groups: &[Group],
    entries: &[Entry],
    shapes: &[NewShape],
    singles: &Blocks,
) -> Vec<bool> {
    let mut touching = vec![false; groups.len()];
    // Groups and entries in the order of their first bytes.
    let mut all: Vec<(u64, u64, usize)> =
        groups.iter().enumerate().map(|(i, group)| (group.first, group.end(), i)).collect();
    all.extend(
        entries
            .iter()
            .enumerate()
            .map(|(i, entry)| (entry.first.get(), entry.end.get(), groups.len() + i)),
    );
    all.sort_unstable();
    let footprint = |i: usize| match groups.get(i) {
        Some(group) => group.footprint(),
        None => {
            let entry = &entries[i - groups.len()];
            Footprint {
                axes: &shapes[entry.shape.get() as usize - 1].axes,
                length: entry.length.get(),
                first: entry.first.get(),
            }
        }
    };
    let mut budget = BUDGET * (all.len() + singles.extents() as usize) + (1 << 20);
    let alone = |i: usize| groups.get(i).is_none_or(|group| group.members.len() == 1);
    // By their ends, what may reach further: groups of several, and what is alone. That keeps its
    // order, and may overlap others of its kind, with which it is not compared.
    let mut several: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
    let mut single = several.clone();
    // Of `several`, those that touch nothing yet.
    let mut untouched = 0;
    for (first, end, i) in all {
        while let Some(&Reverse((end, j))) = several.peek()
            && end <= first
        {
            several.pop();
            untouched -= usize::from(!touching[j]);
        }
        let is_alone = alone(i);
        for &Reverse((_, j)) in &several {
            let is_done = is_alone || touching[i];
            if is_done && untouched == 0 {
                break;
            }
            budget = budget.saturating_sub(1);
            if is_done && touching[j] || budget > 0 && are_disjoint(footprint(i), footprint(j)) {
                continue;
            }
            untouched -= usize::from(!std::mem::replace(&mut touching[j], true));
            if !is_alone {
                touching[i] = true;
            }
        }
        if is_alone {
            single.push(Reverse((end, i)));
            continue;
        }
        while single.peek().is_some_and(|Reverse((end, _))| *end <= first) {
            single.pop();
        }
        touching[i] |= single.iter().any(|Reverse((_, j))| {
            budget = budget.saturating_sub(1);
            budget == 0 || !are_disjoint(footprint(i), footprint(*j))
        });
        untouched += usize::from(!touching[i]);
        several.push(Reverse((end, i)));
    }
    let view = singles.view();
    for (group, touching) in groups
        .iter()
        .zip(&mut touching)
        .filter(|(group, touching)| group.members.len() > 1 && !**touching)
    {
        let (first, end) = (group.first, group.end());
        'blocks: for i in view.reaching(first) {
            if view.first(i) >= end {
                break;
            }
            let Ok(block) = view.block(i) else { continue };
            block.visit(first, |_, start, stop| {
                budget = budget.saturating_sub(1);
                *touching |= start < end
                    && (budget == 0
                        || !are_disjoint(
                            group.footprint(),
                            Footprint { axes: &[], length: stop - start, first: start },
                        ));
                start < end && !*touching
            });
            if *touching {
                break 'blocks;
            }
        }
    }
    touching
}

/// Runs as a tree.
fn tree_of(runs: &[(Run, Order)]) -> Vec<Entry> {
    let mut tree: Vec<Entry> = runs.iter().map(|(run, order)| Entry::new(*run, *order)).collect();
    tree.sort_unstable_by_key(Entry::key);
    make_tree(&mut tree);
    tree
}

/// Whether an entry of the tree, older than `order` if there is one, has a byte in `[from, to)`.
fn is_reached(tree: &[Entry], from: u64, to: u64, order: Option<Order>) -> bool {
    let mut reached = false;
    walk(tree, from, &mut { to }, &mut |entry: &Entry, to: &mut u64| {
        reached |=
            order.is_none_or(|order| entry.order() < order) && entry.next_byte(from, *to).is_some();
    });
    reached
}

/// Packs singles anew: without orders in blocks that no run of `left` reaches into, joined where
/// they go on, with new numbers of segments. Long stretches of equal ones that fold go to `fold`.
fn repack(
    singles: &Blocks,
    left: &[Entry],
    new: &[u32],
    fold: &mut impl FnMut(Group),
) -> Result<Blocks, Bad> {
    let view = singles.view();
    let mut packer = Packer::new(false);
    let mut stretch: Vec<Extent> = Vec::new();
    let flush = |packer: &mut Packer| {
        let waiting = packer.waiting();
        let (Some(first), Some(last)) = (waiting.first(), waiting.last()) else { return };
        let ordered =
            !left.is_empty() && is_reached(left, first.logical, last.logical + last.length, None);
        packer.flush(ordered);
    };
    let mut put = |extent: Extent| {
        // Where runs could lie between in the order, pieces stay apart.
        if let Some(last) = packer.waiting().last_mut().filter(|_| left.is_empty())
            && (last.segment, last.logical + last.length, last.physical + last.length)
                == (extent.segment, extent.logical, extent.physical)
        {
            last.length += extent.length;
            return;
        }
        if packer.waiting().len() == plfs_format::flat_index::BLOCK_EXTENTS {
            flush(&mut packer);
        }
        packer.push(extent);
    };
    let mut end_stretch = |stretch: &mut Vec<Extent>, put: &mut dyn FnMut(Extent)| {
        if stretch.len() >= STRETCH && left.is_empty() {
            let runs: Vec<Run> = stretch
                .iter()
                .map(|e| Run::single(e.logical, e.length, e.segment, e.physical))
                .collect();
            let groups = fold::across(&runs);
            // A table holds what a block does, in as many bits.
            if groups.len() * 16 <= stretch.len()
                && groups.iter().all(|group| group.shape.segments.is_empty())
            {
                stretch.clear();
                for group in groups {
                    match group.members.len() {
                        1 => {
                            let run = &runs[group.members[0] as usize];
                            stretch.push(Extent {
                                logical: run.logical,
                                length: run.length,
                                segment: run.segment,
                                set: 0,
                                physical: run.physical,
                                stamp: 0,
                            });
                        }
                        _ => fold(group),
                    }
                }
            }
        }
        stretch.drain(..).for_each(&mut *put);
    };
    let mut extents = Vec::new();
    for i in 0..view.len() {
        extents.clear();
        view.block(i)?.collect_into(&mut extents);
        for extent in &extents {
            let extent = Extent { segment: renumbered(extent.segment, new), ..*extent };
            if let [.., a, b] = stretch.as_slice()
                && (extent.length != b.length
                    || extent.logical - b.logical != b.logical - a.logical
                    || a.length != b.length)
            {
                end_stretch(&mut stretch, &mut put);
            }
            stretch.push(extent);
        }
    }
    end_stretch(&mut stretch, &mut put);
    flush(&mut packer);
    packer.finish()
}

/// Reads the extents of blocks or of a base one after the other.
struct Reader<'a> {
    from: From<'a>,
    next: usize,
    extents: Vec<(Extent, Order)>,
    at: usize,
}

enum From<'a> {
    Packed(BlocksView<'a>, &'a Packed),
    Base(&'a Base),
}

impl<'a> Reader<'a> {
    fn of_packed(packed: &'a Packed) -> Reader<'a> {
        Reader {
            from: From::Packed(packed.blocks.view(), packed),
            next: 0,
            extents: Vec::new(),
            at: 0,
        }
    }

    fn of_base(base: &'a Base) -> Reader<'a> {
        Reader { from: From::Base(base), next: 0, extents: Vec::new(), at: 0 }
    }

    /// Where the next extent begins; `None` behind the last.
    fn peek(&mut self) -> Option<u64> {
        while self.at == self.extents.len() {
            let len = match &self.from {
                From::Packed(view, _) => view.len(),
                From::Base(base) => base.blocks().len(),
            };
            if self.next == len {
                return None;
            }
            self.extents.clear();
            self.at = 0;
            match &self.from {
                From::Packed(view, packed) => {
                    if let Ok(block) = view.block(self.next) {
                        block.visit(0, |i, start, end| {
                            let ((segment, physical), (stamp, set)) =
                                (block.place(i), block.order(i).unwrap_or_default());
                            let (set, id) =
                                packed.sets.get(set as usize).copied().unwrap_or_default();
                            let segment = renumbered(segment, &packed.segments);
                            self.extents.push((
                                Extent {
                                    logical: start,
                                    length: end - start,
                                    segment,
                                    set,
                                    physical,
                                    stamp,
                                },
                                Order { stamp, set: id },
                            ));
                            true
                        });
                    }
                }
                From::Base(base) => base.extents_of(self.next, &mut self.extents),
            }
            self.next += 1;
        }
        Some(self.extents[self.at].0.logical)
    }

    /// The next extent, which [`peek`](Reader::peek) has found.
    fn take(&mut self) -> (Extent, Order) {
        self.at += 1;
        self.extents[self.at - 1]
    }
}

/// Finds the single that covers a byte or comes after it, mostly in the block of the last search.
struct Covers<'a> {
    view: BlocksView<'a>,
    ids: &'a dyn Fn(u32) -> u32,
    block: usize,
    extents: Vec<Extent>,
}

impl Covers<'_> {
    /// First byte, end and order of the first single that ends behind `pos`.
    fn behind(&mut self, pos: u64) -> Option<(u64, u64, Order)> {
        for i in self.view.reaching(pos) {
            if self.block != i {
                self.extents.clear();
                self.view.block(i).ok()?.collect_into(&mut self.extents);
                self.block = i;
            }
            let at = self.extents.partition_point(|e| e.logical + e.length <= pos);
            if let Some(e) = self.extents.get(at) {
                return Some((
                    e.logical,
                    e.logical + e.length,
                    Order { stamp: e.stamp, set: (self.ids)(e.set) },
                ));
            }
        }
        None
    }
}
