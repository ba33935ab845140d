//! The names of a pack: opening and creating files by them, removing and renaming.

use std::time::Instant;

use plfs_format::pack::{self as format, FileId, GONE_MAX, NAME_MAX, Place, Record};
use plfs_pack::{FileState, Found};

use super::index::PackIndex;
use super::writer::Writer;
use super::{Pack, PackFile, PackOpen, PackStat, State};
use crate::error::{Error, Result};
use crate::log::Durability;
use crate::store::Errno;
use crate::sync::lock;

/// What there was when somebody looked for an ordinary name, and how to look again.
pub type Beside<'a> = (Option<Since>, &'a dyn Fn() -> Result<()>);

/// What processes of a node had done when somebody looked for an ordinary name: if it is the same
/// later, none of them has made it since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Since {
    /// Ordinary names that they had made.
    beside: u64,
    /// When the process came to them: in another page others are counted.
    joined: Instant,
    /// Removals that the process knew of: who moves a file out makes its ordinary name first.
    removals: u64,
}

impl Pack {
    /// Opens a file, or creates it. Of processes of a node that create a name at once one does.
    pub fn open_file(&self, name: &[u8], how: PackOpen) -> Result<PackFile> {
        self.open_file_beside(name, how, (None, &|| Ok(())))
    }

    /// The same for who has looked that the directory has no ordinary name like this, and asked
    /// [`Pack::since`] before: a new file is made if `is_free` finds that there is none, or nobody
    /// made one since.
    pub fn open_file_beside(
        &self,
        name: &[u8],
        how: PackOpen,
        beside: Beside<'_>,
    ) -> Result<PackFile> {
        self.must_be_name(name)?;
        let state = &mut *lock(&self.state);
        self.look_if_due(state)?;
        let found = self.lookup(state, name)?;
        let is_there = !found.is_empty();
        if is_there && how.create && how.exclusive {
            return Err(self.refuse(Errno::EXIST, "create", name));
        }
        if !is_there && !how.create {
            return Err(self.refuse(Errno::NOENT, "open", name));
        }
        let file = match found.into_iter().next() {
            Some(found) => self.handle(state, name, found),
            None => self.create(state, name, how, beside)?,
        };
        // Of a file that is empty it sets the times.
        if how.truncate && (is_there || file.view().state().size() > 0) {
            self.cut(state, &file, 0)?;
        }
        Ok(file)
    }

    /// Opens a file by its id, whether it has a name or not, for who heard of it from somebody that
    /// has it open. `name`: one that it had. ESTALE if nothing is known of it any more.
    pub fn open_id(&self, id: FileId, name: &[u8]) -> Result<PackFile> {
        let state = &mut *lock(&self.state);
        self.look_if_due(state)?;
        let now = self.ask(state, |index| index.by_id(id, name))?;
        match now.is_created {
            true => Ok(self.handle(state, name, (id, now))),
            false => Err(self.refuse(Errno::STALE, "open", name)),
        }
    }

    fn handle(&self, state: &mut State, name: &[u8], (id, now): Found) -> PackFile {
        PackFile { id, name: name.into(), known: state.index.opened(id, now) }
    }

    /// For who is about to look for an ordinary name. `None`: the process does not write the pack,
    /// and cannot say it.
    pub fn since(&self) -> Option<Since> {
        let state = lock(&self.state);
        state.writer.as_ref().map(|writer| Since::now(&state.index, writer))
    }

    /// Somebody has made an ordinary name: whether it is none of the pack. Who makes a file of the
    /// pack with this name from now on finds it.
    pub fn may_be_beside(&self, name: &[u8]) -> Result<bool> {
        let state = &mut *lock(&self.state);
        self.join(state)?;
        self.say(state, Durability::Visible, |index, writer| {
            writer.set.count_beside();
            Ok((Vec::new(), Vec::new(), index.lookup(name)?.is_empty()))
        })
    }

    fn create(
        &self,
        state: &mut State,
        name: &[u8],
        how: PackOpen,
        (looked, is_free): Beside<'_>,
    ) -> Result<PackFile> {
        self.join(state)?;
        let file = |place: Place| Record::File {
            id: place,
            bound: place,
            mode: how.mode & 0o7777,
            uid: how.uid,
            gid: how.gid,
            name: name.into(),
            former: Box::default(),
        };
        if self.options.batch && !how.exclusive {
            let writer = self.writer(state)?;
            let id = writer.place();
            writer.say(file(id));
            self.added(state, &[], &[file(id)]);
            let known = self.ask(state, |index| index.by_id(id, name))?;
            self.commit_if_crowded(state)?;
            return Ok(self.handle(state, name, (id, known)));
        }
        let found = self.say_now(state, |index, writer| {
            let found = index.lookup(name)?;
            match found.into_iter().next() {
                Some(_) if how.exclusive => Err(self.refuse(Errno::EXIST, "create", name)),
                // Another process of the node was faster.
                Some(found) => Ok((Vec::new(), found)),
                None => {
                    if looked != Some(Since::now(index, writer)) {
                        is_free()?;
                    }
                    let id = writer.place();
                    Ok((vec![file(id)], (id, FileState::default())))
                }
            }
        })?;
        let known = self.ask(state, |index| index.by_id(found.0, name))?;
        Ok(self.handle(state, name, (found.0, known)))
    }

    /// Who has just made an ordinary name of a file of the pack, which is to lose it there, tells
    /// processes of the node: that the directory has none is not believed any more.
    pub fn makes_beside(&self) -> Result<()> {
        let state = &mut *lock(&self.state);
        self.join_as_mover(state)?;
        self.writer(state)?.set.count_beside();
        Ok(())
    }

    /// Removes a file.
    pub fn unlink(&self, name: &[u8]) -> Result<()> {
        self.must_be_name(name)?;
        let state = &mut *lock(&self.state);
        self.look_if_due(state)?;
        if self.lookup(state, name)?.is_empty() {
            return Err(self.refuse(Errno::NOENT, "remove", name));
        }
        self.join(state)?;
        if self.options.batch {
            let ids = ids_of(&self.lookup(state, name)?);
            for record in gone(&ids) {
                self.writer(state)?.say(record.clone());
                self.added(state, &[], &[record]);
            }
            removes(state, &ids);
            return self.commit_if_crowded(state);
        }
        let ids = self.say_now(state, |index, _| {
            let ids = ids_of(&index.lookup(name)?);
            match ids.is_empty() {
                true => Err(self.refuse(Errno::NOENT, "remove", name)),
                false => Ok((gone(&ids), ids)),
            }
        })?;
        removes(state, &ids);
        Ok(())
    }

    /// Removes a file if it is as it was when `expected` was asked for, as far as this node knows;
    /// whether it was. Nobody of the node changes it in between. For who has moved it out, also if
    /// [all move out](Pack::is_leaving): then this process writes no other one.
    pub fn unlink_if(&self, name: &[u8], expected: &PackStat) -> Result<bool> {
        self.must_be_name(name)?;
        let state = &mut *lock(&self.state);
        self.look(state)?;
        let was_member = state.writer.is_some();
        self.join_as_mover(state)?;
        let was_same = self.say_now(state, |index, _| {
            let found = index.lookup(name)?;
            let is_same =
                found.first().is_some_and(|(id, now)| PackStat::of(*id, now) == *expected);
            Ok(match is_same {
                true => (gone(&ids_of(&found)), true),
                false => (Vec::new(), false),
            })
        })?;
        if !was_member && self.is_leaving()? {
            self.leave_locked(state)?;
        }
        Ok(was_same)
    }

    /// Renames a file in the directory; replaces atomically. What replaces another file is durable
    /// first, so that after a power cut the name shows one of them (SEMANTICS S16).
    pub fn rename(&self, from: &[u8], to: &[u8]) -> Result<()> {
        self.must_be_name(from)?;
        self.must_be_name(to)?;
        let state = &mut *lock(&self.state);
        self.look_if_due(state)?;
        let Some((_, moved)) = self.lookup(state, from)?.into_iter().next() else {
            return Err(self.refuse(Errno::NOENT, "rename", from));
        };
        if from == to {
            return Ok(());
        }
        self.join(state)?;
        if !self.lookup(state, to)?.is_empty() {
            self.note_others(state, &moved)?;
            // Whoever of the node wrote it, and when.
            let own = self.writer(state)?.set.id();
            state.others.insert(own);
            self.commit_locked(state, Durability::Durable)?;
        }
        let ids = self.say_now(state, |index, writer| {
            let mut found = index.lookup(from)?.into_iter();
            let Some((id, moved)) = found.next() else {
                return Err(self.refuse(Errno::NOENT, "rename", from));
            };
            let mut ids: Vec<FileId> = found.map(|(id, _)| id).collect();
            ids.extend(ids_of(&index.lookup(to)?));
            let Some(Record::File { mode, uid, gid, .. }) =
                moved.records(id, |_| 0).into_iter().next()
            else {
                return Err(self.refuse(Errno::NOENT, "rename", from));
            };
            let (bound, name, former) = (writer.place(), to.into(), from.into());
            let mut records = vec![Record::File { id, bound, mode, uid, gid, name, former }];
            records.extend(gone(&ids));
            Ok((records, ids))
        })?;
        removes(state, &ids);
        Ok(())
    }

    /// What a name is; ENOENT if it is none of the pack.
    pub fn stat(&self, name: &[u8]) -> Result<PackStat> {
        self.must_be_name(name)?;
        let state = &mut *lock(&self.state);
        self.look_if_due(state)?;
        match self.lookup(state, name)?.first() {
            Some((id, known)) => Ok(PackStat::of(*id, known)),
            None => Err(self.refuse(Errno::NOENT, "stat", name)),
        }
    }

    /// Up to `most` names behind `after` (empty: from the first), in the order of their bytes, with
    /// what they are. Fewer: there are no more.
    pub fn list(&self, after: &[u8], most: usize) -> Result<Vec<(Box<[u8]>, PackStat)>> {
        let state = &mut *lock(&self.state);
        self.look_if_due(state)?;
        let (mut after, mut names) = (after.to_vec(), Vec::new());
        while names.len() < most
            && let Some((name, (id, known))) = self.ask(state, |index| index.next(&after))?
        {
            names.push((name.clone().into_boxed_slice(), PackStat::of(id, &known)));
            after = name;
        }
        Ok(names)
    }

    pub(super) fn must_be_name(&self, name: &[u8]) -> Result<()> {
        match name {
            _ if name.len() > NAME_MAX => Err(self.refuse(Errno::NAMETOOLONG, "use", name)),
            _ if !format::is_name(name) => Err(self.refuse(Errno::INVAL, "use", name)),
            _ => Ok(()),
        }
    }

    pub(super) fn refuse(&self, errno: Errno, op: &'static str, name: &[u8]) -> Error {
        use std::os::unix::ffi::OsStrExt;
        let path = self.dir().join(std::ffi::OsStr::from_bytes(name));
        Error::Io { op, path, errno }
    }
}

impl Since {
    fn now(known: &PackIndex, writer: &Writer) -> Since {
        let (beside, joined) = (writer.set.made_beside(), writer.joined);
        Since { beside, joined, removals: known.removals }
    }

    /// Whether processes of the node have made an ordinary name since, whatever was removed.
    pub fn has_same_names(self, now: Since) -> bool {
        (self.beside, self.joined) == (now.beside, now.joined)
    }
}

fn ids_of(found: &[Found]) -> Vec<FileId> {
    found.iter().map(|(id, _)| *id).collect()
}

/// Notes that this process has removed files that it has open: who writes them knows it.
fn removes(state: &mut State, ids: &[FileId]) {
    let State { index, removed, .. } = state;
    if removed.len().is_power_of_two() {
        removed.retain(|id| index.is_open(*id));
    }
    removed.extend(ids.iter().filter(|id| index.is_open(**id)));
}

/// Records that these are removed.
fn gone(ids: &[FileId]) -> Vec<Record> {
    ids.chunks(GONE_MAX).map(|ids| Record::Gone { ids: ids.to_vec() }).collect()
}
