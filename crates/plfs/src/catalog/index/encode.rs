//! An index as the bytes of a flat index and back: for a file, for other processes, and packed in
//! memory.

use std::collections::{HashMap, HashSet};

use plfs_format::Bad;
use plfs_format::flat_index::{self, Covered, FlatIndex, Segment, Truncate};
use plfs_format::index_log::align_up;
use plfs_format::name;
use plfs_format::summary::Summary;
use plfs_index::{Base, Bulk, ExtentMap, Numbers, Order, Overlaps};
use zerocopy::IntoBytes;

use super::flat::Flat;
use super::load::token_of;
use super::{Fault, Index, Scanned};
use crate::container::Container;
use crate::error::{Error, Result};
use crate::store::machine::random_u64;
use crate::store::{self, Bytes, Errno, Open};
use crate::sync::Arc;

impl Index {
    /// Everything that was read, as a flat index, which counts as the one in use from now on.
    /// `settled` makes it small: for files that nobody is writing, because it is good only
    /// until a record comes that is older than the youngest in it.
    ///
    /// The error is of a file whose index is longer than a flat index can be.
    pub(crate) fn encode(&mut self, container: &Container, settled: bool) -> Result<Vec<u8>> {
        let (sets, set_of) = self.sets();
        let numbers = Numbers { set_of: &set_of, sets: &sets };
        let corrupt = |bad| Error::Corrupt { path: container.path(name::FLAT), bad };
        let image = self.extents.image(Vec::new(), &numbers, settled).map_err(corrupt)?;
        if let Some(why) = self.is_broken() {
            return Err(Error::invalid(Errno::AGAIN, why));
        }
        // A log is covered as far as blocks were found, but not past its length: the last block's
        // padding may be missing.
        let covered = |set: &u32| match self.scanned.get(set) {
            Some(log) => Covered { set: *set, from: log.from, bytes: log.end.min(log.length) },
            None => Covered { set: *set, from: 0, bytes: 0 },
        };
        let segment = |old: &u32| Segment {
            at: self.segments[*old as usize],
            bytes: self.ends[*old as usize],
        };
        let mut flat = FlatIndex {
            covered: sets.iter().map(covered).collect(),
            segments: image.segments.iter().map(segment).collect(),
            ..self.bare(container)
        };
        if settled {
            // Whoever goes on from here has to know which cut was the last.
            let earlier = flat.truncates.len().saturating_sub(1);
            flat.truncates.drain(..earlier);
            flat.floor = flat.max_stamp;
        }
        let bytes =
            flat_index::encode(&flat, &image.shapes, image.entries.as_bytes(), &image.blocks);
        flat.id = flat_index::id(&bytes);
        self.flat = Some(Flat {
            id: flat.id,
            covered: flat.covered.iter().map(|covered| (covered.set, covered.bytes)).collect(),
        });
        Ok(bytes)
    }

    /// What a flat index says beside its tables of logs.
    fn bare(&self, container: &Container) -> FlatIndex {
        FlatIndex {
            uuid: container.superblock.uuid,
            size: self.eof(),
            records: self.records,
            max_stamp: self.max_stamp,
            floor: self.floor,
            may_lack_cut: self.may_lack_cut,
            truncates: self
                .extents
                .truncates()
                .iter()
                .map(|(order, size)| Truncate { stamp: order.stamp, set: order.set, size: *size })
                .collect(),
            ..FlatIndex::default()
        }
    }

    /// The log sets, those of the flat index below first, and for each segment which of them it
    /// belongs to.
    fn sets(&self) -> (Vec<u32>, Vec<u32>) {
        let mut sets: Vec<u32> = self.extents.base().map_or(Vec::new(), |base| {
            base.flat().covered.iter().map(|covered| covered.set).collect()
        });
        let known: HashSet<u32> = sets.iter().copied().collect();
        let mut more: Vec<u32> = self
            .scanned
            .keys()
            .copied()
            .chain(self.segments.iter().map(|at| at.set))
            .filter(|set| !known.contains(set))
            .collect();
        more.sort_unstable();
        more.dedup();
        sets.extend(more);
        let by_id: HashMap<u32, u32> =
            sets.iter().enumerate().map(|(i, set)| (*set, i as u32)).collect();
        let set_of = self.segments.iter().map(|at| by_id[&at.set]).collect();
        (sets, set_of)
    }

    /// One index of several encoded ones ([`Index::encode`]). EAGAIN if they do not follow each
    /// other, because somebody flattened the file between one load and another.
    pub(crate) fn merge(container: &Container, parts: &[&[u8]]) -> Result<Index> {
        Index::merge_with(container, parts, |_, _| Ok(()))
    }

    /// [`Index::merge`] of parts that have no byte of the file in common: whatever a power cut
    /// takes of one, it hides nothing of another. EAGAIN if they may have.
    pub(crate) fn merge_apart(container: &Container, parts: &[&[u8]]) -> Result<Index> {
        let mut occupied = None;
        Index::merge_with(container, parts, |first, bulk| {
            let occupied = occupied.get_or_insert_with(|| {
                let mut occupied = Overlaps::default();
                // What has shapes is looked up as it lies: it may have millions of pieces.
                if !has_shapes(first) {
                    first.for_each(|run, _| occupied.add(&run));
                }
                occupied
            });
            let mut are_apart = true;
            bulk.for_each(|run, _| {
                let is_over_shapes = has_shapes(first) && first.base_below(&run).is_some();
                are_apart &= occupied.over(&run).is_none() && !is_over_shapes;
            });
            // Not before: a part may lie over itself, which was looked at when it was read.
            bulk.for_each(|run, _| occupied.add(&run));
            match are_apart {
                true => Ok(()),
                false => Err(Error::invalid(
                    Errno::AGAIN,
                    "parts of the index whose data may not be durable lie over each other",
                )),
            }
        })
    }

    /// [`Index::merge`], after `look` at each part but the first, and at that.
    fn merge_with(
        container: &Container,
        parts: &[&[u8]],
        mut look: impl FnMut(&ExtentMap, &Bulk) -> Result<()>,
    ) -> Result<Index> {
        let corrupt = |bad| Error::Corrupt { path: container.path(name::FLAT), bad };
        let decode = |bytes: &&[u8]| -> Result<FlatIndex> {
            flat_index::decode(bytes, &container.superblock.uuid).map_err(corrupt)
        };
        let mut flats =
            parts.iter().map(|bytes| Ok((*bytes, decode(bytes)?))).collect::<Result<Vec<_>>>()?;
        // What has no orders goes below the others.
        flats.sort_by_key(|(_, flat)| std::cmp::Reverse((flat.floor, flat.shapes.len())));
        let mut shares: Vec<Covered> = flats
            .iter()
            .flat_map(|(_, flat)| flat.covered.iter().filter(|share| share.bytes > 0).copied())
            .collect();
        let (mut all, mut bulks) = (Index::default(), Vec::new());
        for (i, (bytes, flat)) in flats.into_iter().enumerate() {
            // A copy, because a map holds on to what it looks at.
            let base = Base::new(Arc::new(bytes.to_vec()), flat.clone());
            base.check().map_err(corrupt)?;
            if i == 0 {
                all.take_flat(base);
                all.flat = None;
                continue;
            }
            if !flat.shapes.is_empty() {
                return Err(corrupt(Bad::new(
                    68,
                    "two parts of an index have shapes: only one can have the flat index",
                )));
            }
            let mut bulk = Bulk::default();
            for segment in &flat.segments {
                bulk.number(segment.at);
                let number = all.number(segment.at) as usize;
                all.ends[number] = all.ends[number].max(segment.bytes);
            }
            ExtentMap::with_base(base).for_each(|run, order| bulk.push(run, order));
            flat.truncates.iter().for_each(|cut| {
                bulk.push_truncate(cut.size, Order { stamp: cut.stamp, set: cut.set })
            });
            (all.max_stamp, all.records) =
                (all.max_stamp.max(flat.max_stamp), all.records.saturating_add(flat.records));
            look(&all.extents, &bulk)?;
            bulks.push(bulk);
        }
        shares.sort_unstable_by_key(|share| (share.set, share.from, share.bytes));
        for share in shares {
            let (end, length) = (align_up(share.bytes), share.bytes);
            let log = all.scanned.entry(share.set).or_insert(Scanned {
                from: share.from,
                end: share.from,
                length,
            });
            if log.end != share.from {
                return Err(Error::invalid(
                    Errno::AGAIN,
                    "the parts of the index do not follow each other: somebody flattened the file \
                     meanwhile",
                ));
            }
            *log = Scanned { end, length, ..*log };
        }
        all.take_bulks(container, bulks)?;
        if all.fault == Some(Fault::Overtaken) {
            return Err(Error::invalid(
                Errno::AGAIN,
                "a part of the index is older than the flat index, which has no place for it",
            ));
        }
        all.extents.compact();
        Ok(all)
    }

    /// An index that other processes have merged, used where it lies. It counts as complete while
    /// `summary` does, if it has all that this sums up.
    pub(crate) fn use_encoded(
        container: &Container,
        bytes: Bytes,
        summary: Option<&Summary>,
        generation: u64,
    ) -> Result<Index> {
        let corrupt = |bad| Error::Corrupt { path: container.path(name::FLAT), bad };
        let flat =
            flat_index::decode((*bytes).as_ref(), &container.superblock.uuid).map_err(corrupt)?;
        let summary = summary.filter(|summary| {
            (summary.records, summary.max_stamp) == (flat.records, flat.max_stamp)
        });
        let token = match summary.map(token_of) {
            Some(token) if container.time()? == token => Some(token),
            _ => None,
        };
        let mut index = Index { token, generation, ..Index::default() };
        for covered in flat.covered.iter().filter(|covered| covered.bytes > 0) {
            index.scanned.insert(
                covered.set,
                Scanned { from: covered.from, end: align_up(covered.bytes), length: covered.bytes },
            );
        }
        index.must_be_whole()?;
        index.take_flat(Base::new(bytes, flat));
        Ok(index)
    }

    /// Refuses a part that lacks the beginning of some log.
    pub(crate) fn must_be_whole(&self) -> Result<()> {
        match self.scanned.values().all(|log| log.from == 0) {
            true => Ok(()),
            false => Err(Error::invalid(
                Errno::AGAIN,
                "a part of the index is missing: what the flat index has",
            )),
        }
    }

    /// Makes one packed index in memory of what is known and many records.
    pub(super) fn pack(
        &mut self,
        container: &Container,
        bulks: Vec<(Bulk, Vec<u32>)>,
    ) -> Result<()> {
        let corrupt = |bad| Error::Corrupt { path: container.path(name::FLAT), bad };
        let (sets, set_of) = self.sets();
        let numbers = Numbers { set_of: &set_of, sets: &sets };
        let newest = bulks.iter().map(|(bulk, _)| bulk.newest()).max().unwrap_or_default();
        let image = self.extents.image(bulks, &numbers, false).map_err(corrupt)?;
        // The new one would not know that it lacks something.
        if self.extents.is_damaged() {
            self.fault.get_or_insert(Fault::Damaged);
        }
        let covered = sets.iter().map(|set| Covered { set: *set, from: 0, bytes: 0 }).collect();
        let segments = self
            .segments
            .iter()
            .zip(&self.ends)
            .map(|(at, bytes)| Segment { at: *at, bytes: *bytes })
            .collect();
        let flat = FlatIndex {
            covered,
            segments,
            max_stamp: newest.max(self.extents.max_stamp()),
            ..self.bare(container)
        };
        let bytes =
            flat_index::encode(&flat, &image.shapes, image.entries.as_bytes(), &image.blocks);
        drop(image);
        let flat = flat_index::decode(&bytes, &container.superblock.uuid).map_err(corrupt)?;
        self.extents = ExtentMap::with_base(Base::new(hold(container, bytes), flat)).grown();
        self.occupied = None;
        Ok(())
    }
}

fn has_shapes(extents: &ExtentMap) -> bool {
    extents.base().is_some_and(|base| !base.flat().shapes.is_empty())
}

/// An index in memory, or if it is longer than the user wants there, in a file that goes with its
/// last user. Memory also if there is no room for the file.
fn hold(container: &Container, bytes: Vec<u8>) -> Bytes {
    if bytes.len() as u64 > container.index_bytes {
        let path = std::env::temp_dir().join(format!("plfs-index-{:016x}", random_u64()));
        let mapped = container.store.open(&path, Open::create_new(0o600)).and_then(|file| {
            let mapped = store::write_full(file.as_ref(), &bytes, 0).and_then(|()| file.map());
            container.store.unlink(&path)?;
            mapped
        });
        if let Ok(mapped) = mapped {
            return mapped;
        }
    }
    Arc::new(bytes)
}
