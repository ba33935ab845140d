//! Which file has which name: what logs have said since the last fold, over a sorted tree.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::convert::Infallible;
use std::ops::Bound;

use plfs_format::name::SegmentRef;
use plfs_format::pack::tree::key_by_id;
use plfs_format::pack::{FileId, Record};

use crate::FileState;
use crate::tree::{Entry, Keyed};

/// What lies below: a sorted tree, or nothing.
pub trait Base {
    /// What goes wrong when a block is fetched.
    type Error;
    /// All that it has under a key.
    fn at(&mut self, key: &[u8]) -> Result<Vec<Entry>, Self::Error>;
    /// The first key behind `key`, or not before it if `inclusive`, and what is under it.
    fn behind(&mut self, key: &[u8], inclusive: bool) -> Result<Option<Keyed>, Self::Error>;
}

/// Nothing lies below.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoBase;

impl Base for NoBase {
    type Error = Infallible;
    fn at(&mut self, _: &[u8]) -> Result<Vec<Entry>, Infallible> {
        Ok(Vec::new())
    }
    fn behind(&mut self, _: &[u8], _: bool) -> Result<Option<Keyed>, Infallible> {
        Ok(None)
    }
}

/// A file, and all that is known of it.
pub type Found = (FileId, FileState);

/// The join of what logs have said since the last fold.
#[derive(Clone, Debug, Default)]
pub struct Names {
    files: HashMap<FileId, FileState>,
    by_name: BTreeMap<Box<[u8]>, Vec<FileId>>,
    /// Files whose creation came since the last [`Names::mark`].
    fresh: HashSet<FileId>,
    /// Segments with data that this boot has not made durable, perhaps.
    unsynced: HashSet<SegmentRef>,
    clear: u64,
}

impl Names {
    /// Adds what a block says. `own_boot`: data of that boot is not in doubt for who asks.
    pub fn apply(&mut self, segments: &[SegmentRef], records: &[Record], own_boot: u64) {
        for record in records {
            match record {
                Record::File { id, bound, name, .. } => {
                    let id = *id;
                    if *bound == id {
                        self.fresh.insert(id);
                    }
                    let state = self.files.entry(id).or_default();
                    let before = state.home.clone();
                    state.add(segments, record, own_boot);
                    if before != state.home {
                        if let Some((_, old)) = before {
                            self.forget_name(&old, id);
                        }
                        let ids = self.by_name.entry(name.clone()).or_default();
                        if !ids.contains(&id) {
                            ids.push(id);
                        }
                    }
                }
                Record::Write { id, boot, segment, .. } => {
                    if *boot != 0 && *boot == own_boot {
                        self.unsynced.insert(segments[usize::from(*segment)]);
                    }
                    self.files.entry(*id).or_default().add(segments, record, own_boot);
                }
                Record::Cut { id, .. } | Record::Attributes { id, .. } => {
                    self.files.entry(*id).or_default().add(segments, record, own_boot);
                }
                Record::Gone { ids } => {
                    for id in ids {
                        let state = self.files.entry(*id).or_default();
                        state.is_gone = true;
                        if let Some((_, name)) = state.home.clone() {
                            self.forget_name(&name, *id);
                        }
                    }
                }
                Record::Clear { stamp } => self.clear = self.clear.max(*stamp),
                Record::ById { .. } => {}
            }
        }
    }

    fn forget_name(&mut self, name: &[u8], id: FileId) {
        if let Some(ids) = self.by_name.get_mut(name) {
            ids.retain(|known| *known != id);
            if ids.is_empty() {
                self.by_name.remove(name);
            }
        }
    }

    /// Files that something is known of.
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// The largest stamp of a record that clears; 0: there was none.
    pub fn clear(&self) -> u64 {
        self.clear
    }

    /// What was said of a file since the last fold.
    pub fn said_of(&self, id: FileId) -> Option<&FileState> {
        self.files.get(&id)
    }

    /// From here on creations are new: see [`fold`](crate::fold).
    pub fn mark(&mut self) {
        self.fresh.clear();
    }

    /// Segments with data that this boot wrote and perhaps did not make durable. Who folds makes it
    /// so: what lies below such data may be left out.
    pub fn unsynced(&self) -> impl Iterator<Item = &SegmentRef> {
        self.unsynced.iter()
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (&FileId, &FileState)> {
        self.files.iter()
    }

    pub(crate) fn is_fresh(&self, id: FileId) -> bool {
        self.fresh.contains(&id)
    }

    /// The next name, behind `name`, that something was said of.
    pub(crate) fn name_behind(&self, name: &[u8], inclusive: bool) -> Option<&[u8]> {
        let from = if inclusive { Bound::Included(name) } else { Bound::Excluded(name) };
        self.by_name.range::<[u8], _>((from, Bound::Unbounded)).next().map(|(name, _)| &**name)
    }

    /// All that is known of a file; `hint` is a name that it may have, or had.
    pub fn by_id<B: Base>(
        &self,
        id: FileId,
        hint: Option<&[u8]>,
        base: &mut B,
    ) -> Result<FileState, B::Error> {
        let mut state = self.files.get(&id).cloned().unwrap_or_default();
        let hints = hint.into_iter().chain(state.home.as_ref().map(|(_, name)| &**name));
        let names: Vec<&[u8]> = hints.chain(state.former.iter().map(|name| &**name)).collect();
        if let Some(below) = in_base(id, &names, base)? {
            state.join(below);
        }
        Ok(state)
    }

    /// The live files that have a name: the one that shows first, then those that it hides.
    pub fn lookup<B: Base>(&self, name: &[u8], base: &mut B) -> Result<Vec<Found>, B::Error> {
        let below = base.at(name)?;
        self.with_name(name, below, base)
    }

    /// [`Names::lookup`] with what the base has under the name.
    pub(crate) fn with_name<B: Base>(
        &self,
        name: &[u8],
        below: Vec<Entry>,
        base: &mut B,
    ) -> Result<Vec<Found>, B::Error> {
        let mut found = Vec::<Found>::new();
        for entry in below {
            let Entry::File(id, mut state) = entry else { continue };
            if let Some(above) = self.files.get(&id) {
                state.join(above.clone());
            }
            found.push((id, state));
        }
        for id in self.by_name.get(name).into_iter().flatten() {
            if found.iter().all(|(known, _)| known != id) {
                // Under its name the base does not have it. It may know the file all the same: what
                // is covered and what is read again overlap.
                let mut state = self.files.get(id).cloned().unwrap_or_default();
                let former: Vec<&[u8]> = state.former.iter().map(|name| &**name).collect();
                if let Some(below) = in_base(*id, &former, base)? {
                    state.join(below);
                }
                found.push((*id, state));
            }
        }
        let has_name =
            |state: &FileState| state.home.as_ref().is_some_and(|(_, home)| **home == *name);
        found.retain(|(_, state)| state.is_created && !state.is_gone && has_name(state));
        let since = |state: &FileState| state.home.as_ref().map(|(place, _)| *place);
        found.sort_by(|(a_id, a), (b_id, b)| (since(b), b_id).cmp(&(since(a), a_id)));
        Ok(found)
    }

    /// Files of `below`, which the base has under one name, that got another by a record from which
    /// this one cannot be found: the record of a name between the two was not read yet. With this
    /// name, and all else that was said.
    pub(crate) fn out_of_reach<B: Base>(
        &self,
        below: &[Entry],
        base: &mut B,
    ) -> Result<Vec<Found>, B::Error> {
        let mut found = Vec::new();
        for entry in below {
            let Entry::File(id, known) = entry else { continue };
            let Some(above) = self.files.get(id) else { continue };
            let has_moved = above.home > known.home && !above.is_gone;
            if has_moved && !self.by_id(*id, None, base)?.is_created {
                let mut state = above.clone();
                (state.home, state.former) = (None, Vec::new());
                state.join(known.clone());
                found.push((*id, state));
            }
        }
        Ok(found)
    }

    /// The next name behind `after` that a file has, and the file that shows.
    pub fn next<B: Base>(
        &self,
        after: &[u8],
        base: &mut B,
    ) -> Result<Option<(Vec<u8>, Found)>, B::Error> {
        // Keys by id begin with a zero byte, which is not the beginning of a name.
        let (mut key, mut inclusive) = match after.is_empty() {
            true => (vec![1], true),
            false => (after.to_vec(), false),
        };
        loop {
            let below = base.behind(&key, inclusive)?;
            let above = self.name_behind(&key, inclusive);
            let (name, entries) = match (below, above) {
                (None, None) => return Ok(None),
                (Some(below), None) => below,
                (Some(below), Some(above)) if *above >= *below.0 => below,
                (_, Some(above)) => (above.to_vec(), Vec::new()),
            };
            let found = self.with_name(&name, entries, base)?;
            if let Some(first) = found.into_iter().next() {
                return Ok(Some((name, first)));
            }
            (key, inclusive) = (name, false);
        }
    }
}

/// What the base knows of a file that may be under one of these names, or was renamed.
fn in_base<B: Base>(
    id: FileId,
    names: &[&[u8]],
    base: &mut B,
) -> Result<Option<FileState>, B::Error> {
    let of = |entries: Vec<Entry>| {
        entries.into_iter().find_map(|entry| match entry {
            Entry::File(found, state) if found == id => Some(state),
            _ => None,
        })
    };
    for name in names {
        if let Some(state) = of(base.at(name)?) {
            return Ok(Some(state));
        }
    }
    for entry in base.at(&key_by_id(id))? {
        let Entry::ById(_, name) = entry else { continue };
        if name.is_empty() {
            return Ok(Some(FileState::gone()));
        }
        return Ok(of(base.at(&name)?));
    }
    Ok(None)
}
