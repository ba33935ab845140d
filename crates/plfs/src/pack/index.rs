//! What a process knows of a pack: the join of what logs say, over a tree, and how far each log was
//! read.

use std::collections::{BTreeSet, HashMap};

use plfs_format::index_log::{At as Place, Header, LogId, block_at};
use plfs_format::name::{self, SegmentRef};
use plfs_format::pack::{FileId, Record, decode_block};
use plfs_pack::{FileState, Found, Names, View, is_fold_due};

use super::tree::{Below, Tree};
use crate::container::{Container, log_sets};
use crate::error::{Error, Result};
use crate::log::{HeldData, LogEnd, LogSet, NodeLog, scan_whole};
use crate::store::{Errno, Links};
use crate::sync::{Arc, Mutex, Weak, lock};

/// How often logs that change under a reader are begun anew before it gives up. A compaction makes
/// one begin once.
const TRIES: usize = 16;

/// The files that a process has open, with all that is known of each: who reads and writes them
/// need not ask the tree, and one that is gone is in none.
type Open = HashMap<FileId, Weak<Mutex<View>>>;

pub(super) struct PackIndex {
    container: Arc<Container>,
    pub names: Names,
    pub tree: Option<Tree>,
    /// A tree was damaged: none is used.
    is_treeless: bool,
    /// Up to where each index log was read.
    pub read: HashMap<u32, u64>,
    pub max_stamp: u64,
    /// Blocks with stamps up to this say nothing.
    pub clear: u64,
    /// What this machine's memory holds is not in doubt; 0: everything may be.
    pub own_boot: u64,
    open: Open,
    /// What the node has said and no log on the storage has.
    pub node: Node,
    /// Goes up when all was read anew: what is in no log must be added again.
    pub generation: u64,
    /// Goes up when files may be in the pack no more.
    pub removals: u64,
    /// All was read. If not, what was asked for would be missing: [`PackIndex::load`] first.
    pub is_whole: bool,
}

/// Where a process finds what its node has said of a pack last (docs/decisions/0023).
pub(super) enum Node {
    /// Nowhere.
    Nobody,
    /// It is one of those who say it.
    Member(Arc<LogSet>),
    /// It is none of them.
    Guest(NodeLog),
}

impl Node {
    /// What has not been carried of this log from `from` on, and where that begins.
    fn recent(&self, set: u32, from: u64) -> Result<Option<(u64, Vec<u8>)>> {
        match self {
            Node::Member(of) if of.id() == set => of.recent(from),
            Node::Guest(log) if log.end().0 == set => Ok(log.recent(from)),
            _ => Ok(None),
        }
    }

    /// What has not been carried of these bytes of a data log.
    pub fn data_of(&self, at: &SegmentRef, physical: u64, length: usize) -> Result<Vec<HeldData>> {
        match self {
            Node::Member(of) if of.id() == at.set => of.data_of(at, physical, length),
            Node::Guest(log) if log.end().0 == at.set => Ok(log.data_of(at, physical, length)),
            _ => Ok(Vec::new()),
        }
    }
}

/// The log sets of a pack changed so that what was read counts no more.
#[derive(Debug, PartialEq, Eq)]
enum Looked {
    Whole,
    Anew,
}

impl PackIndex {
    /// Nothing yet.
    pub fn new(container: Arc<Container>) -> PackIndex {
        // An unknown boot (0) holds nothing that anybody could rely on.
        let own_boot = container.store.boot(container.root()).unwrap_or(0);
        PackIndex {
            container,
            names: Names::default(),
            tree: None,
            is_treeless: false,
            read: HashMap::new(),
            max_stamp: 0,
            clear: 0,
            own_boot,
            open: HashMap::new(),
            node: Node::Nobody,
            generation: 0,
            removals: 0,
            is_whole: false,
        }
    }

    /// Forgets all, and reads the tree and all logs behind it.
    pub fn load(&mut self) -> Result<()> {
        self.is_whole = false;
        for _ in 0..TRIES {
            self.generation += 1;
            self.removals += 1;
            self.open.retain(|_, known| known.strong_count() > 0);
            (self.names, self.tree) = (Names::default(), None);
            self.read.clear();
            let sets = log_sets(&self.container.list()?);
            if let Some(tree) = self.usable_tree(&sets)? {
                self.read = tree.covers.iter().copied().collect();
                self.max_stamp = self.max_stamp.max(tree.header.stamp);
                self.clear = self.clear.max(tree.header.clear);
                self.tree = Some(tree);
            }
            if self.look_at(&sets)? == Looked::Whole && self.renew_open()? {
                self.is_whole = true;
                return Ok(());
            }
        }
        Err(Error::refused(
            Errno::AGAIN,
            "read",
            &self.container.dir,
            "its logs change faster than they can be read",
        ))
    }

    /// What is known of a file, for who opens it: the same for all of the process that have it
    /// open.
    pub fn opened(&mut self, id: FileId, now: FileState) -> Arc<Mutex<View>> {
        if let Some(known) = self.open.get(&id).and_then(Weak::upgrade) {
            return known;
        }
        if self.open.len().is_power_of_two() {
            self.open.retain(|_, known| known.strong_count() > 0);
        }
        let known = Arc::new(Mutex::new(View::of(now)));
        self.open.insert(id, Arc::downgrade(&known));
        known
    }

    /// Whether the process has the file open.
    pub fn is_open(&self, id: FileId) -> bool {
        self.open.get(&id).is_some_and(|known| known.strong_count() > 0)
    }

    /// What open files are now: a compaction has put their bytes elsewhere, perhaps, and when they
    /// are removed nobody can be asked any more. False: the tree is damaged, and all is to be read
    /// without it.
    fn renew_open(&mut self) -> Result<bool> {
        let open: Vec<_> = self.open.iter().map(|(id, known)| (*id, known.clone())).collect();
        for (id, known) in open {
            let Some(known) = known.upgrade() else { continue };
            let home = lock(&known).state().home.clone();
            match self.by_id(id, &home.map(|(_, name)| name).unwrap_or_default()) {
                Ok(now) if now.is_created => *lock(&known) = View::of(now),
                Ok(_) => {}
                Err(error) if self.doubt_tree(&error) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// The tree, if all that it covers is there.
    fn usable_tree(&self, sets: &BTreeSet<u32>) -> Result<Option<Tree>> {
        if self.is_treeless {
            return Ok(None);
        }
        let Some(tree) = Tree::open(&self.container)? else { return Ok(None) };
        if tree.header.clear < self.clear {
            return Ok(None);
        }
        let store = &self.container.store;
        let is_there = |(set, covered): &(u32, u64)| {
            let path = self.container.path(&name::index_log(*set));
            let is_long = || store.stat(&path, Links::Stay).is_ok_and(|stat| stat.len >= *covered);
            *covered == 0 || sets.contains(set) && is_long()
        };
        Ok(tree.covers.iter().all(is_there).then_some(tree))
    }

    /// Reads what has come to all logs. Costs a listing, and an open or a stat for each log.
    pub fn look(&mut self) -> Result<()> {
        let sets = log_sets(&self.container.list()?);
        // Where a fold has made most of what is in memory part of a tree, memory is given back.
        let in_tree = self.tree.as_ref().map_or(0, |tree| tree.header.files);
        let may_shrink = is_fold_due(self.names.len() as u64, in_tree)
            && self.usable_tree(&sets)?.is_some_and(|new| {
                self.tree.as_ref().is_none_or(|old| old.header.stamp < new.header.stamp)
            });
        if may_shrink || self.look_at(&sets)? == Looked::Anew {
            return self.load();
        }
        Ok(())
    }

    fn look_at(&mut self, sets: &BTreeSet<u32>) -> Result<Looked> {
        let is_gone = |(set, read): (&u32, &u64)| *read > 0 && !sets.contains(set);
        if self.read.iter().any(is_gone) {
            return Ok(Looked::Anew);
        }
        for set in sets {
            if self.read_log(*set)? == Looked::Anew {
                return Ok(Looked::Anew);
            }
        }
        Ok(Looked::Whole)
    }

    /// Reads what has come to one log.
    pub fn look_at_log(&mut self, set: u32) -> Result<()> {
        match self.read_log(set)? {
            Looked::Whole => Ok(()),
            Looked::Anew => self.load(),
        }
    }

    /// [`PackIndex::look_at_log`] of the node's own log, for the caller that builds a block. False:
    /// all is to be read anew, and not now.
    pub fn look_at_own(&mut self, set: u32, end: &LogEnd<'_>) -> Result<bool> {
        let from = self.read.get(&set).copied().unwrap_or(0);
        Ok(self.read_log_with(set, end.recent(from))? == Looked::Whole)
    }

    fn read_log(&mut self, set: u32) -> Result<Looked> {
        let from = self.read.get(&set).copied().unwrap_or(0);
        // Before the log: what is carried meanwhile is in both.
        let recent = self.node.recent(set, from)?;
        self.read_log_with(set, recent)
    }

    fn read_log_with(&mut self, set: u32, recent: Option<(u64, Vec<u8>)>) -> Result<Looked> {
        let from = self.read.get(&set).copied().unwrap_or(0);
        let container = self.container.clone();
        let (names, open) = (&mut self.names, &self.open);
        let (max_stamp, clear) = (&mut self.max_stamp, self.clear);
        let (own_boot, removals) = (self.own_boot, &mut self.removals);
        let mut visit = |offset, header: Header, bytes: &[u8]| {
            *max_stamp = (*max_stamp).max(header.stamp);
            if header.stamp <= clear {
                return Ok(());
            }
            let block = decode_block(header, offset, bytes)
                .map_err(|bad| Error::of_bytes(&container.path(&name::index_log(set)), bad))?;
            *removals += u64::from(block.records.iter().any(is_removal));
            names.apply(&block.segments, &block.records, own_boot);
            apply(open, &block.segments, &block.records, own_boot);
            Ok(())
        };
        let is_carried = recent.as_ref().is_none_or(|(begin, _)| *begin > from);
        let mut read = None;
        if is_carried {
            match scan_whole(&container, set, from, &mut visit)? {
                None if from > 0 => return Ok(Looked::Anew),
                None => {}
                Some(scan) => read = Some(scan.end),
            }
        }
        if let Some((begin, bytes)) = recent
            && !bytes.is_empty()
        {
            let known = read.unwrap_or(0).max(from);
            read = Some(visit_blocks(container.log_id(set), (begin, &bytes), known, visit)?);
        }
        if let Some(read) = read {
            self.read.insert(set, read);
        }
        if self.names.clear() > self.clear {
            self.clear = self.names.clear();
            return Ok(Looked::Anew);
        }
        Ok(Looked::Whole)
    }

    /// Adds records that this process is about to say.
    pub fn add(&mut self, segments: &[SegmentRef], records: &[Record]) {
        self.removals += u64::from(records.iter().any(is_removal));
        self.names.apply(segments, records, self.own_boot);
        apply(&self.open, segments, records, self.own_boot);
    }

    /// Whether an error says that the tree is damaged: then it is not used any more, and all is to
    /// be [loaded](PackIndex::load).
    pub fn doubt_tree(&mut self, error: &Error) -> bool {
        let is_damage = self.tree.is_some() && Tree::is_damage(error);
        self.is_treeless |= is_damage;
        is_damage
    }

    /// The live files with a name: the one that shows first.
    pub fn lookup(&mut self, name: &[u8]) -> Result<Vec<Found>> {
        self.names.lookup(name, &mut Below(self.tree.as_mut()))
    }

    /// The next name behind `after`, and its file.
    pub fn next(&mut self, after: &[u8]) -> Result<Option<(Vec<u8>, Found)>> {
        self.names.next(after, &mut Below(self.tree.as_mut()))
    }

    /// All that is known of a file that had the name `hint` once.
    pub fn by_id(&mut self, id: FileId, hint: &[u8]) -> Result<FileState> {
        self.names.by_id(id, Some(hint), &mut Below(self.tree.as_mut()))
    }
}

/// Calls `visit` for the blocks of a tray, whose first byte lies at `begin` in the log, that are
/// not known: gives where they end.
fn visit_blocks(
    log: LogId,
    (begin, bytes): (u64, &[u8]),
    known: u64,
    mut visit: impl FnMut(u64, Header, &[u8]) -> Result<()>,
) -> Result<u64> {
    let mut at = begin;
    while let Some(rest) = bytes.get((at - begin) as usize..).filter(|rest| !rest.is_empty()) {
        let Place::Block(header) = block_at(log, at, rest) else {
            return Err(Error::invalid(Errno::IO, "what lies in shared memory is no tray"));
        };
        if at >= known {
            visit(at, header, rest)?;
        }
        at += header.block_bytes;
    }
    Ok(at.max(known))
}

fn is_removal(record: &Record) -> bool {
    matches!(record, Record::Gone { .. })
}

/// Adds to open files what a block says of them.
fn apply(open: &Open, segments: &[SegmentRef], records: &[Record], own_boot: u64) {
    let view = |id: &FileId| open.get(id).and_then(Weak::upgrade);
    for record in records {
        match record {
            Record::File { id, .. }
            | Record::Write { id, .. }
            | Record::Cut { id, .. }
            | Record::Attributes { id, .. } => {
                if let Some(known) = view(id) {
                    lock(&known).add(segments, record, own_boot);
                }
            }
            Record::Gone { ids } => {
                for known in ids.iter().filter_map(view) {
                    lock(&known).remove();
                }
            }
            Record::Clear { .. } | Record::ById { .. } => {}
        }
    }
}

/// A stamp that no block of a set exceeds, if its data logs are as long as its records say, and its
/// index log as a tree covers; [`LogSet::join`](crate::log::LogSet::join) asks it. Elsewhere
/// nobody goes on: what a power cut took must not come back as other bytes.
pub(super) fn complete(container: &Container, set: u32) -> Result<Option<u64>> {
    let (mut ends, mut youngest) = (HashMap::<SegmentRef, u64>::new(), 0);
    let scanned = scan_whole(container, set, 0, |offset, header, bytes| {
        let path = container.path(&name::index_log(set));
        let block =
            decode_block(header, offset, bytes).map_err(|bad| Error::of_bytes(&path, bad))?;
        youngest = youngest.max(header.stamp);
        for record in &block.records {
            let Record::Write { segment, pieces, .. } = record else { continue };
            let end = ends.entry(block.segments[usize::from(*segment)]).or_default();
            for piece in pieces {
                *end = (*end).max(piece.physical + u64::from(piece.length));
            }
        }
        Ok(())
    });
    let Ok(scan) = scanned else { return Ok(None) };
    let length = scan.map_or(0, |scan| scan.length);
    let covered = Tree::open(container)?.is_some_and(|tree| {
        tree.covers.iter().any(|(other, covered)| *other == set && *covered > length)
    });
    let len =
        |at| Some(container.store.stat(&container.segment_path(at).ok()?, Links::Follow).ok()?.len);
    let is_whole = !covered && ends.iter().all(|(at, end)| len(at) >= Some(*end));
    Ok(is_whole.then_some(youngest))
}
