//! L5: packs: the small files of a directory in one container (docs/decisions/0019).
//!
//! A [`Pack`] is one process's view of the pack of one directory. Names and attributes come from
//! memory and a sorted tree; a file that is made and written is some bytes in a data log and a
//! record or two in a block that many files share. What `known` has read, what `writer` is about to
//! say, and how a `fold` makes the tree, have a file each.
//!
//! Nobody checks permissions here, nor types of names beside the pack's: doors do.
//!
//! One lock for all calls of a process on a pack: they are short, but for commits and syncs.

mod compact;
mod fold;
mod known;
mod tree;
mod writer;

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use plfs_format::name::SegmentRef;
use plfs_format::pack::{self as format, GONE_MAX, NAME_MAX, Piece, Place, Record};
pub use plfs_format::pack::{Attributes, FileId, When};
use plfs_format::{MAX_OFFSET, sum, sum_on};
use plfs_pack::{FileState, Found, Write};

pub use self::compact::PackUsage;
use self::known::{Known, complete};
use self::writer::{OWNED, Writer};
use crate::catalog;
use crate::config::Config;
use crate::container::{Container, find_pack, make_pack};
use crate::error::{At, Error, Result};
use crate::log::{CommitHorizon, DataLog, Durability, LogSet, Moved, Wanted, log_of_node};
use crate::read::SegmentFiles;
use crate::store::{Errno, Store, Time};
use crate::sync::{Arc, Mutex, lock};
use crate::write::Identity;

/// Size past which a file is better kept by itself. 1 MiB: its creation, some 1 ms, costs as much
/// as its bytes.
const OUTGROWN_BYTES: u64 = 1 << 20;

/// Bytes of one piece at most: its length is 32 bits.
const PIECE_BYTES: usize = 1 << 30;

/// When a process says what it did, and when it asks what others did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackOptions {
    /// A call looks at other nodes' logs if the last look is so old. 1 s.
    pub look_every: Duration,
    /// Creations that are not exclusive, removals, truncates and attributes wait for
    /// [`Pack::commit`], or for the next record that cannot wait. Else each is said at once.
    pub batch: bool,
}

impl Default for PackOptions {
    fn default() -> PackOptions {
        PackOptions { look_every: Duration::from_secs(1), batch: false }
    }
}

/// How to open a file of a pack, as `open(2)`'s flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PackOpen {
    /// Create it if it is missing.
    pub create: bool,
    /// With `create`: it must be missing.
    pub exclusive: bool,
    /// Cut to 0 bytes.
    pub truncate: bool,
    /// Permission bits of a new file, as they shall be.
    pub mode: u32,
    /// Owner of a new file.
    pub uid: u32,
    /// Group of a new file.
    pub gid: u32,
}

/// What `stat` says of a file of a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackStat {
    /// The file; no other file of the pack ever has it.
    pub id: FileId,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes.
    pub size: u64,
    /// Last access.
    pub atime: Time,
    /// Last modification.
    pub mtime: Time,
    /// Last change of anything.
    pub ctime: Time,
}

impl PackStat {
    fn of(id: FileId, state: &FileState) -> PackStat {
        let time = |when: When| Time { sec: when.sec, nsec: when.nsec };
        PackStat {
            id,
            mode: state.mode(),
            uid: state.uid(),
            gid: state.gid(),
            size: state.size(),
            atime: time(state.atime(id)),
            mtime: time(state.mtime(id)),
            ctime: time(state.ctime(id)),
        }
    }

    /// A number for the file, as inodes have one. Two files of a pack may share one: their nodes
    /// made them in the same 15 ns.
    pub fn ino(&self) -> u64 {
        (self.id.stamp ^ (u64::from(self.id.set) << 40)).max(1)
    }
}

/// An open file of a pack. It keeps what it knows of the file: a file that is removed, or replaced,
/// can be read and written as long as it is open, until a compaction.
#[derive(Debug)]
pub struct PackFile {
    id: FileId,
    name: Box<[u8]>,
    known: Arc<Mutex<FileState>>,
}

impl PackFile {
    /// The file.
    pub fn id(&self) -> FileId {
        self.id
    }
}

/// One process's view of the pack of a directory. Thread-safe.
///
/// Dropping it commits and leaves, but nobody hears of errors: use [`Pack::close`].
pub struct Pack {
    container: Arc<Container>,
    config: Arc<Config>,
    dir: PathBuf,
    options: PackOptions,
    /// What this process's data is held by until it is durable; 0: it is lost with nothing else.
    boot: u64,
    segments: SegmentFiles,
    state: Mutex<State>,
}

struct State {
    known: Known,
    /// [`Known::generation`] when what waits was last added to it.
    added: u64,
    /// When the logs of all nodes were read last.
    looked: Option<Instant>,
    writer: Option<Writer>,
    /// The log of the node, and its end, as one who is not a member saw it.
    seen_of_node: Option<(u32, u64)>,
    /// Log sets that this process does not own and that a sync makes durable: they have records of
    /// files that it has written to, or it has left them.
    others: HashSet<u32>,
    /// Of writes in doubt, whether their data fits.
    sound: HashMap<(SegmentRef, u64, u32), bool>,
}

impl std::fmt::Debug for Pack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pack").field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl Drop for Pack {
    fn drop(&mut self) {
        let _ = self.leave();
    }
}

impl Pack {
    /// The pack of the directory `dir`; `None` if it has none.
    pub fn find(
        store: &Arc<dyn Store>,
        config: &Arc<Config>,
        dir: &Path,
        options: PackOptions,
    ) -> Result<Option<Pack>> {
        let found = find_pack(store, config, dir)?;
        Ok(found.map(|container| Pack::of(container, config, dir, options)))
    }

    /// The pack of the directory `dir`, which is made if there is none. Costs some ten calls on the
    /// storage the first time, and for who only opens it three.
    pub fn open(
        store: &Arc<dyn Store>,
        config: &Arc<Config>,
        dir: &Path,
        options: PackOptions,
    ) -> Result<Pack> {
        let made = make_pack(store, config, dir)?;
        Pack::find(store, config, dir, options)?.map_or_else(
            // Somebody has removed it since.
            || Err(Errno::NOENT).at("open the pack of", &made.dir),
            Ok,
        )
    }

    fn of(container: Container, config: &Arc<Config>, dir: &Path, options: PackOptions) -> Pack {
        let container = Arc::new(container);
        let boot = match container.store.boot(container.root()) {
            None => 0,
            Some(0) => u64::MAX,
            Some(boot) => boot,
        };
        let state = State {
            known: Known::new(container.clone()),
            added: 0,
            looked: None,
            writer: None,
            seen_of_node: None,
            others: HashSet::new(),
            sound: HashMap::new(),
        };
        Pack {
            container,
            config: config.clone(),
            dir: dir.to_path_buf(),
            options,
            boot,
            segments: SegmentFiles::default(),
            state: Mutex::new(state),
        }
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Its container, for tools.
    pub fn container(&self) -> &Container {
        &self.container
    }

    // --- names -------------------------------------------------------------------------------

    /// Opens a file, or creates it. Of processes of a node that create a name at once one does.
    pub fn open_file(&self, name: &[u8], how: PackOpen) -> Result<PackFile> {
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
            None => self.create(state, name, how)?,
        };
        if how.truncate && lock(&file.known).size() > 0 {
            self.cut(state, &file, 0)?;
        }
        Ok(file)
    }

    fn handle(&self, state: &mut State, name: &[u8], (id, now): Found) -> PackFile {
        PackFile { id, name: name.into(), known: state.known.opened(id, now) }
    }

    fn create(&self, state: &mut State, name: &[u8], how: PackOpen) -> Result<PackFile> {
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
            let known = self.ask(state, |known| known.by_id(id, name))?;
            self.commit_if_crowded(state)?;
            return Ok(self.handle(state, name, (id, known)));
        }
        let found = self.say_now(state, |known, writer| {
            let found = known.lookup(name)?;
            match found.into_iter().next() {
                Some(_) if how.exclusive => Err(self.refuse(Errno::EXIST, "create", name)),
                // Another process of the node was faster.
                Some(found) => Ok((Vec::new(), found)),
                None => {
                    let id = writer.place();
                    Ok((vec![file(id)], (id, FileState::default())))
                }
            }
        })?;
        let known = self.ask(state, |known| known.by_id(found.0, name))?;
        Ok(self.handle(state, name, (found.0, known)))
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
            return self.commit_if_crowded(state);
        }
        self.say_now(state, |known, _| {
            let ids = ids_of(&known.lookup(name)?);
            match ids.is_empty() {
                true => Err(self.refuse(Errno::NOENT, "remove", name)),
                false => Ok((gone(&ids), ())),
            }
        })
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
        self.say_now(state, |known, writer| {
            let mut found = known.lookup(from)?.into_iter();
            let Some((id, moved)) = found.next() else {
                return Err(self.refuse(Errno::NOENT, "rename", from));
            };
            let mut ids: Vec<FileId> = found.map(|(id, _)| id).collect();
            ids.extend(ids_of(&known.lookup(to)?));
            let Some(Record::File { mode, uid, gid, .. }) =
                moved.records(id, |_| 0).into_iter().next()
            else {
                return Err(self.refuse(Errno::NOENT, "rename", from));
            };
            let (bound, name, former) = (writer.place(), to.into(), from.into());
            let mut records = vec![Record::File { id, bound, mode, uid, gid, name, former }];
            records.extend(gone(&ids));
            Ok((records, ()))
        })
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
            && let Some((name, (id, known))) = self.ask(state, |known| known.next(&after))?
        {
            names.push((name.clone().into_boxed_slice(), PackStat::of(id, &known)));
            after = name;
        }
        Ok(names)
    }

    // --- open files --------------------------------------------------------------------------

    /// What an open file is, whatever its name is now.
    pub fn stat_file(&self, file: &PackFile) -> Result<PackStat> {
        let state = &mut *lock(&self.state);
        self.look_if_due(state)?;
        Ok(PackStat::of(file.id, &self.state_of(state, file)?))
    }

    /// Whether a name shows the file: false if it is removed, or if another node has made one of
    /// the same name that is later.
    pub fn is_shown(&self, file: &PackFile) -> Result<bool> {
        let state = &mut *lock(&self.state);
        self.look_if_due(state)?;
        let now = self.state_of(state, file)?;
        let Some((_, name)) = now.home.filter(|_| !now.is_gone) else { return Ok(false) };
        Ok(self.lookup(state, &name)?.first().is_some_and(|(id, _)| *id == file.id))
    }

    /// Whether the file is so large that it is better kept by itself, and this node alone has
    /// written it: then a door moves it.
    pub fn outgrown(&self, file: &PackFile) -> Result<bool> {
        let state = &mut *lock(&self.state);
        let now = self.state_of(state, file)?;
        let Some(own) = state.writer.as_ref().map(|writer| writer.set.id()) else {
            return Ok(false);
        };
        let is_own = |write: &Write| write.place.set == own;
        Ok(now.size() > OUTGROWN_BYTES && file.id.set == own && now.writes().iter().all(is_own))
    }

    /// Reads into `buf` at `offset`; returns the bytes read, fewer than asked only at the end of
    /// the file.
    pub fn read_at(&self, file: &PackFile, buf: &mut [u8], offset: u64) -> Result<usize> {
        let state = &mut *lock(&self.state);
        match self.try_read(state, file, buf, offset) {
            // A compaction has removed the logs; then others have the bytes.
            Err(Error::MissingData { .. }) => {
                self.look(state)?;
                self.segments.clear();
                self.try_read(state, file, buf, offset)
            }
            other => other,
        }
    }

    fn try_read(
        &self,
        state: &mut State,
        file: &PackFile,
        buf: &mut [u8],
        offset: u64,
    ) -> Result<usize> {
        self.look_if_due(state)?;
        let now = self.state_of(state, file)?;
        let size = now.size();
        if offset >= size || buf.is_empty() {
            return Ok(0);
        }
        self.hand_over(state)?;
        let n = buf.len().min(usize::try_from(size - offset).unwrap_or(usize::MAX));
        let (buf, end) = (&mut buf[..n], offset + n as u64);
        let extents = now.extents(|write| self.is_sound(&mut state.sound, write))?;
        let mut at = offset;
        for extent in extents {
            let (from, to) = (extent.logical.max(at), (extent.logical + extent.length).min(end));
            if from >= to {
                continue;
            }
            let part = |from: u64, to: u64| (from - offset) as usize..(to - offset) as usize;
            buf[part(at, from)].fill(0);
            let physical = extent.physical + (from - extent.logical);
            let out = &mut buf[part(from, to)];
            self.segments.read(&self.container, extent.segment, physical, out)?;
            at = to;
        }
        buf[(at - offset) as usize..].fill(0);
        Ok(n)
    }

    /// Writes at `offset`; returns the bytes written, fewer than given if the store is full. Seen
    /// by this process at once, by others after a commit.
    pub fn write_at(&self, file: &PackFile, buf: &[u8], offset: u64) -> Result<usize> {
        let state = &mut *lock(&self.state);
        self.join(state)?;
        self.look_if_due(state)?;
        self.may_reach(offset, buf.len())?;
        let now = self.state_of(state, file)?;
        self.note_others(state, &now)?;
        let mut done = 0;
        for part in buf.chunks(PIECE_BYTES) {
            let (segment, physical, n) = match self.place(state, part) {
                Err(_) if done > 0 => break,
                other => other?,
            };
            let writer = self.writer(state)?;
            let logical = offset + done as u64;
            let piece = writer.wrote(file.id, logical, segment, physical, &part[..n]);
            self.add_piece(state, file.id, segment, piece);
            done += n;
            if n < part.len() {
                break;
            }
        }
        self.commit_if_crowded(state)?;
        Ok(done)
    }

    /// Writes at the end of the file, behind all that processes of this node have committed of it
    /// and this one has written: gives where, and the bytes written. Committed on return.
    pub fn append(&self, file: &PackFile, buf: &[u8]) -> Result<(u64, usize)> {
        let state = &mut *lock(&self.state);
        self.join(state)?;
        self.look_if_due(state)?;
        if buf.is_empty() {
            return Ok((self.state_of(state, file)?.size(), 0));
        }
        // What waits is said first, so that the block has the pieces of this call alone.
        self.commit_locked(state, Durability::Visible)?;
        let now = self.state_of(state, file)?;
        self.may_reach(now.size(), buf.len())?;
        self.note_others(state, &now)?;
        let part = &buf[..buf.len().min(PIECE_BYTES)];
        let (segment, physical, n) = self.place(state, part)?;
        self.hand_over(state)?;
        let set = self.writer(state)?.set.clone();
        let _gate = set.gate()?;
        let crc = sum(&part[..n]);
        let mut segments = vec![segment];
        let offset = self.say(state, Durability::Visible, |known, writer| {
            let mut now = known.by_id(file.id, &file.name)?;
            if !now.is_created {
                now.join(lock(&file.known).clone());
            }
            let logical = now.size();
            let (id, set, boot) = (file.id, writer.set.id(), self.boot);
            let stamp = writer.place().stamp;
            let piece = Piece { logical, physical, stamp, length: n as u32, crc };
            let pieces = vec![piece];
            let record = Record::Write { id, set, boot, segment: 0, pieces };
            Ok((std::mem::take(&mut segments), vec![record], logical))
        })?;
        Ok((offset, n))
    }

    /// Sets the size: cuts, or extends with zeros.
    pub fn set_len(&self, file: &PackFile, size: u64) -> Result<()> {
        if size > MAX_OFFSET {
            return Err(Error::too_far());
        }
        let state = &mut *lock(&self.state);
        self.join(state)?;
        self.look_if_due(state)?;
        self.cut(state, file, size)
    }

    fn cut(&self, state: &mut State, file: &PackFile, size: u64) -> Result<()> {
        self.join(state)?;
        let now = self.state_of(state, file)?;
        self.note_others(state, &now)?;
        let writer = self.writer(state)?;
        let record = Record::Cut { id: file.id, place: writer.place(), size };
        writer.seal(file.id);
        self.say_soon(state, record)
    }

    /// Sets attributes; what is `None` stays.
    pub fn set_attributes(&self, file: &PackFile, set: Attributes) -> Result<()> {
        if set == Attributes::default() {
            return Ok(());
        }
        let state = &mut *lock(&self.state);
        self.join(state)?;
        self.look_if_due(state)?;
        let now = self.state_of(state, file)?;
        self.note_others(state, &now)?;
        let writer = self.writer(state)?;
        // What is written from now on moves the times again.
        writer.seal(file.id);
        let record = Record::Attributes { id: file.id, place: writer.place(), set };
        self.say_soon(state, record)
    }

    // --- commits and looks -------------------------------------------------------------------

    /// Makes all that this process did visible to others: to those of the node at once, to other
    /// nodes when they look. Not forced to storage. Costs at most two appends.
    pub fn commit(&self) -> Result<()> {
        self.commit_locked(&mut lock(&self.state), Durability::Visible)
    }

    /// Makes all that this process did visible and durable, with all files that it did it to.
    pub fn sync(&self) -> Result<()> {
        self.commit_locked(&mut lock(&self.state), Durability::Durable)
    }

    /// Looks for what others have committed until now.
    pub fn refresh(&self) -> Result<()> {
        self.look(&mut lock(&self.state))
    }

    /// Makes the sorted tree of all that is committed, durably: who opens the pack then reads that.
    pub fn fold(&self) -> Result<()> {
        let state = &mut *lock(&self.state);
        self.commit_locked(state, Durability::Visible)?;
        self.fold_locked(state)
    }

    /// Commits, and leaves the node's log set. The next call that writes joins again.
    pub fn leave(&self) -> Result<()> {
        self.leave_locked(&mut lock(&self.state))
    }

    fn leave_locked(&self, state: &mut State) -> Result<()> {
        if state.writer.is_none() {
            return Ok(());
        }
        let promise = Durability::on_close(&self.config);
        let mut done = self.commit_locked(state, promise);
        if done.is_ok() && state.known.is_fold_due() {
            // A tree is a cache: who may not write one leaves it to others.
            let _ = self.fold_locked(state);
        }
        let Some(writer) = state.writer.take() else { return done };
        if done.is_ok() {
            done = writer.data.close().and_then(|()| writer.set.close_index());
        }
        let Writer { set, data, unsynced, .. } = writer;
        if unsynced != 0 {
            state.others.insert(set.id());
        }
        drop(data);
        match Arc::into_inner(set) {
            Some(set) => done.and(set.leave().map(drop)),
            None => done,
        }
    }

    /// [`Pack::leave`] for who is done.
    pub fn close(self) -> Result<()> {
        self.leave()
    }

    // --- inside ------------------------------------------------------------------------------

    fn must_be_name(&self, name: &[u8]) -> Result<()> {
        match name {
            _ if name.len() > NAME_MAX => Err(self.refuse(Errno::NAMETOOLONG, "use", name)),
            _ if !format::is_name(name) => Err(self.refuse(Errno::INVAL, "use", name)),
            _ => Ok(()),
        }
    }

    fn refuse(&self, errno: Errno, op: &'static str, name: &[u8]) -> Error {
        use std::os::unix::ffi::OsStrExt;
        let path = self.dir.join(std::ffi::OsStr::from_bytes(name));
        Error::Io { op, path, errno }
    }

    fn may_reach(&self, offset: u64, bytes: usize) -> Result<()> {
        let end = offset.checked_add(bytes as u64);
        match end.is_some_and(|end| end <= MAX_OFFSET) {
            true => Ok(()),
            false => Err(Error::too_far()),
        }
    }

    /// What `ask` finds. If the tree turns out to be damaged, all is read from the logs first.
    fn ask<T>(&self, state: &mut State, mut ask: impl FnMut(&mut Known) -> Result<T>) -> Result<T> {
        match ask(&mut state.known) {
            Err(error) if state.known.doubt_tree(&error) => {
                state.known.load()?;
                self.add_again(state);
                ask(&mut state.known)
            }
            other => other,
        }
    }

    fn lookup(&self, state: &mut State, name: &[u8]) -> Result<Vec<Found>> {
        self.ask(state, |known| known.lookup(name))
    }

    /// All that is known of an open file.
    fn state_of(&self, state: &mut State, file: &PackFile) -> Result<FileState> {
        let now = self.ask(state, |known| known.by_id(file.id, &file.name))?;
        let mut known = lock(&file.known);
        if now.is_created {
            // All that there is; a compaction may have put its bytes elsewhere.
            *known = now;
        } else {
            known.join(now);
        }
        Ok(known.clone())
    }

    fn writer<'a>(&self, state: &'a mut State) -> Result<&'a mut Writer> {
        match &mut state.writer {
            Some(writer) => Ok(writer),
            None => Err(Error::invalid(Errno::BADF, "the pack is not open for writing")),
        }
    }

    /// Joins the node's log set, unless the process has.
    fn join(&self, state: &mut State) -> Result<()> {
        if let Some(writer) = &state.writer {
            return writer.check();
        }
        // Behind all that was there: see FORMAT.md section 4, "Who need not ask the logs".
        self.look(state)?;
        let seen =
            CommitHorizon { max_stamp: state.known.max_stamp, is_new: state.known.read.is_empty() };
        let identity = Identity::of_this_process(self.container.store.user());
        let set = Arc::new(LogSet::join(
            self.container.clone(),
            &self.config,
            seen,
            Wanted::Any,
            || identity.mark(),
            complete,
        )?);
        let data = data_log(&self.container, &set, self.config.buffer_bytes);
        state.writer = Some(Writer::new(set, data));
        self.look_at_node(state)
    }

    /// Reads the logs of other nodes if the last look is old, and that of the own node.
    fn look_if_due(&self, state: &mut State) -> Result<()> {
        let is_fresh = |looked: Instant| looked.elapsed() < self.options.look_every;
        match state.looked.is_some_and(is_fresh) {
            true => self.look_at_node(state),
            false => self.look(state),
        }
    }

    fn look(&self, state: &mut State) -> Result<()> {
        // Before: what comes while logs are read is perhaps not read.
        let node_end = state.writer.as_ref().map(|writer| writer.set.index_end());
        let of_node = self.seen_of_node(state);
        match state.looked {
            None => state.known.load()?,
            Some(_) => state.known.look()?,
        }
        state.looked = Some(Instant::now());
        state.seen_of_node = of_node;
        if let (Some(writer), Some(end)) = (&mut state.writer, node_end) {
            writer.node_end = end;
            writer.seal_all();
        }
        self.heed(state);
        Ok(())
    }

    fn seen_of_node(&self, state: &State) -> Option<(u32, u64)> {
        match &state.writer {
            Some(_) => None,
            None => log_of_node(&self.container, &self.config),
        }
    }

    /// Reads what processes of the node have appended. Costs a look at the shared page if they have
    /// not.
    fn look_at_node(&self, state: &mut State) -> Result<()> {
        if let Some(writer) = &mut state.writer {
            let end = writer.set.index_end();
            if end == writer.node_end {
                return Ok(());
            }
            writer.node_end = end;
            writer.seal_all();
            state.known.look_at_log(writer.set.id())?;
        } else {
            let seen = self.seen_of_node(state);
            if seen == state.seen_of_node {
                return Ok(());
            }
            state.seen_of_node = seen;
            if let Some((set, _)) = seen {
                state.known.look_at_log(set)?;
            }
        }
        self.heed(state);
        Ok(())
    }

    /// What is said from now on is behind all that was seen.
    fn heed(&self, state: &mut State) {
        if let Some(writer) = &state.writer {
            writer.set.observe(state.known.max_stamp);
        }
        self.add_again(state);
    }

    /// Adds what waits to what was read, if all was read anew.
    fn add_again(&self, state: &mut State) {
        if state.added != state.known.generation {
            state.added = state.known.generation;
            if let Some(writer) = &state.writer {
                let (segments, records) = writer.records(self.boot);
                state.known.add(&segments, &records);
            }
        }
    }

    fn added(&self, state: &mut State, segments: &[SegmentRef], records: &[Record]) {
        state.known.add(segments, records);
    }

    fn add_piece(&self, state: &mut State, id: FileId, segment: SegmentRef, piece: Piece) {
        let Some(set) = state.writer.as_ref().map(|writer| writer.set.id()) else { return };
        let (boot, pieces) = (self.boot, vec![piece]);
        let record = Record::Write { id, set, boot, segment: 0, pieces };
        self.added(state, &[segment], &[record]);
    }

    /// Gives bytes to the data log: where they are, and how many it took.
    fn place(&self, state: &mut State, bytes: &[u8]) -> Result<(SegmentRef, u64, usize)> {
        let writer = self.writer(state)?;
        writer.check()?;
        writer.is_buffered = true;
        let placed = match writer.data.buffer(bytes, &mut nothing_moves) {
            Ok(placed) => placed,
            Err(error) if writer.data.has_lost() => return Err(writer.poison(error)),
            Err(error) => return Err(error),
        };
        let mut segments = writer.data.segments();
        let Some(segment) = segments.nth(placed.segment as usize) else {
            return Err(Error::invalid(Errno::IO, "the data log has no such segment"));
        };
        Ok((segment, placed.physical, placed.length as usize))
    }

    /// Gives what is buffered to the store.
    fn hand_over(&self, state: &mut State) -> Result<()> {
        let Some(writer) = state.writer.as_mut().filter(|writer| writer.is_buffered) else {
            return Ok(());
        };
        writer.check()?;
        match writer.data.flush(&mut nothing_moves) {
            Err(error) if writer.data.has_lost() => return Err(writer.poison(error)),
            other => other?,
        }
        // The records have sums of their own.
        drop(writer.data.take_sums());
        writer.is_buffered = false;
        Ok(())
    }

    /// Notes whose logs a sync must make durable: those that know the file.
    fn note_others(&self, state: &mut State, file: &FileState) -> Result<()> {
        let writer = self.writer(state)?;
        let own = writer.set.id();
        let home = file.home.iter().map(|(place, _)| place.set);
        let writes = file.writes().iter().flat_map(|write| [write.place.set, write.segment.set]);
        let others: Vec<u32> = home.chain(writes).filter(|set| *set != own).collect();
        state.others.extend(others);
        Ok(())
    }

    /// Says a record without data with the next commit, or at once.
    fn say_soon(&self, state: &mut State, record: Record) -> Result<()> {
        self.writer(state)?.say(record.clone());
        self.added(state, &[], &[record]);
        match self.options.batch {
            true => self.commit_if_crowded(state),
            false => self.commit_locked(state, Durability::Visible),
        }
    }

    /// Says what `build` decides, with all records without data that wait: nobody of the node says
    /// anything meanwhile, and what they have said is known.
    fn say_now<T>(
        &self,
        state: &mut State,
        build: impl FnOnce(&mut Known, &mut Writer) -> Result<(Vec<Record>, T)>,
    ) -> Result<T> {
        let given = self.say(state, Durability::Durable, |known, writer| {
            let (new, given) = build(known, writer)?;
            let mut records = writer.records_without_data();
            records.extend(new);
            Ok((Vec::new(), records, given))
        })?;
        self.writer(state)?.is_said_without_data();
        self.must_own(state, Durability::Visible)?;
        Ok(given)
    }

    /// Appends a block to the node's log. What `build` gives is known when this returns.
    fn say<T>(
        &self,
        state: &mut State,
        data: Durability,
        build: impl FnOnce(&mut Known, &mut Writer) -> Result<(Vec<SegmentRef>, Vec<Record>, T)>,
    ) -> Result<T> {
        let State { known, writer, added, .. } = state;
        let Some(writer) = writer else {
            return Err(Error::invalid(Errno::BADF, "the pack is not open for writing"));
        };
        writer.check()?;
        let (set, boot) = (writer.set.clone(), self.boot);
        let mut refused = None;
        let mut is_building = true;
        let said = set.append_pack(data, |end| {
            let build = || {
                if known.read.get(&set.id()).copied().unwrap_or(0) < end {
                    known.look_at_log(set.id())?;
                    writer.seal_all();
                    set.observe(known.max_stamp);
                    if *added != known.generation {
                        *added = known.generation;
                        let (segments, records) = writer.records(boot);
                        known.add(&segments, &records);
                    }
                }
                build(known, writer)
            };
            match build() {
                Ok((segments, records, given)) => {
                    known.add(&segments, &records);
                    is_building = false;
                    Ok((segments, records, given))
                }
                Err(error) => {
                    refused = Some(error.clone());
                    Err(error)
                }
            }
        });
        let (given, appended) = match said {
            Ok(said) => said,
            Err(error) if refused.is_some() => return Err(error),
            // Nothing was built, so nothing is known that no log has.
            Err(error) if is_building => return Err(error),
            Err(error) => return Err(writer.poison(error)),
        };
        if let Some((stamp, end)) = appended {
            known.max_stamp = known.max_stamp.max(stamp);
            known.read.insert(set.id(), end);
            (writer.node_end, writer.unsynced) = (end, end);
        }
        Ok(given)
    }

    fn commit_if_crowded(&self, state: &mut State) -> Result<()> {
        match state.writer.as_ref().is_some_and(Writer::is_crowded) {
            true => self.commit_locked(state, Durability::Visible),
            false => Ok(()),
        }
    }

    fn commit_locked(&self, state: &mut State, promise: Durability) -> Result<()> {
        let Some(writer) = &mut state.writer else {
            if promise == Durability::Durable && !state.others.is_empty() {
                for other in std::mem::take(&mut state.others) {
                    catalog::sync_logs(&self.container, Some(other))?;
                }
                self.container.sync_names(Some(&self.dir))?;
            }
            return Ok(());
        };
        writer.check()?;
        let set = writer.set.clone();
        if writer.has_waiting() {
            self.hand_over(state)?;
            let durable = promise == Durability::Durable;
            if durable {
                set.sync_data().map_err(|error| self.poisoned(state, error))?;
            }
            // Held until the block is there: no sync makes it durable without its data.
            let _gate = (!durable).then(|| set.gate()).transpose()?;
            let boot = if durable { 0 } else { self.boot };
            self.say(state, promise, |_, writer| {
                let (segments, records) = writer.records(boot);
                Ok((segments, records, ()))
            })?;
            self.writer(state)?.is_said();
        }
        if promise == Durability::Durable {
            self.sync_locked(state, &set).map_err(|error| self.poisoned(state, error))?;
        }
        self.must_own(state, promise)?;
        if state.known.is_fold_due() {
            // Another process may have made a tree, which takes what is in memory.
            self.look(state)?;
        }
        if state.known.is_fold_due() {
            // A tree is a cache: who may not write one leaves it to others.
            let _ = self.fold_locked(state);
        }
        Ok(())
    }

    fn poisoned(&self, state: &mut State, error: Error) -> Error {
        match &mut state.writer {
            Some(writer) => writer.poison(error),
            None => error,
        }
    }

    fn sync_locked(&self, state: &mut State, set: &LogSet) -> Result<()> {
        let writer = self.writer(state)?;
        if writer.unsynced != 0 {
            set.sync_index(writer.unsynced)?;
            writer.unsynced = 0;
        }
        for other in std::mem::take(&mut state.others) {
            match other == set.id() {
                true => set.sync_index(u64::MAX)?,
                false => catalog::sync_logs(&self.container, Some(other))?,
            }
        }
        set.sync_names_once(|| self.container.sync_names(Some(&self.dir)))
    }

    /// That the node still owns its log set: always before a sync is called a success, and once in
    /// a while.
    fn must_own(&self, state: &mut State, promise: Durability) -> Result<()> {
        let writer = self.writer(state)?;
        if promise == Durability::Visible && writer.owned.elapsed() < OWNED {
            return Ok(());
        }
        let owned = writer.set.must_have_mark();
        let checked =
            owned.and_then(|()| writer.data.failure()).and_then(|()| writer.set.index_failure());
        match checked {
            Ok(()) => {
                writer.owned = Instant::now();
                Ok(())
            }
            Err(error) => Err(writer.poison(error)),
        }
    }

    /// Whether the data of a write in doubt is what it was.
    fn is_sound(
        &self,
        sound: &mut HashMap<(SegmentRef, u64, u32), bool>,
        write: &Write,
    ) -> Result<bool> {
        let key = (write.segment, write.physical, write.length);
        if let Some(known) = sound.get(&key) {
            return Ok(*known);
        }
        // What a record says of lengths makes nobody allocate.
        let mut bytes = vec![0; (write.length as usize).min(1 << 20)];
        let (mut crc, mut done) = (0, 0);
        while done < write.length {
            let n = bytes.len().min((write.length - done) as usize);
            let at = write.physical + u64::from(done);
            match self.segments.read_some(&self.container, write.segment, at, &mut bytes[..n]) {
                Ok(found) if found == n => {}
                Ok(_) | Err(Error::MissingData { errno: Errno::NOENT, .. }) => {
                    sound.insert(key, false);
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
            crc = sum_on(crc, &bytes[..n]);
            done += n as u32;
        }
        let fits = crc == write.crc;
        sound.insert(key, fits);
        Ok(fits)
    }
}

fn ids_of(found: &[Found]) -> Vec<FileId> {
    found.iter().map(|(id, _)| *id).collect()
}

/// Records that these are removed.
fn gone(ids: &[FileId]) -> Vec<Record> {
    ids.chunks(GONE_MAX).map(|ids| Record::Gone { ids: ids.to_vec() }).collect()
}

/// A data log on one backend: records of a pack do not say that bytes went to another one when that
/// had no room.
fn data_log(container: &Arc<Container>, set: &Arc<LogSet>, budget_bytes: usize) -> DataLog {
    let backends = vec![container.backend_of(set.id(), 0)];
    DataLog::on(container.clone(), set.clone(), budget_bytes, backends)
}

/// What a [`data_log`] says of bytes that it moved: it moves none.
fn nothing_moves(_: Moved) {}
