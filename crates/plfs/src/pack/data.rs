//! The bytes and attributes of a pack's open files.

use std::collections::HashMap;

use plfs_format::name::SegmentRef;
use plfs_format::pack::{Attributes, FileId, Piece, Record};
use plfs_format::{MAX_OFFSET, sum, sum_on};
use plfs_pack::{FileState, Write};

use super::index::Node;
use super::{Pack, PackFile, PackStat, State, nothing_moves};
use crate::error::{Error, Result};
use crate::log::Durability;
use crate::store::Errno;
use crate::sync::lock;

/// Size past which a file is better kept by itself. 1 MiB: its creation, some 1 ms, costs as much
/// as its bytes.
pub const OUTGROWN_BYTES: u64 = 1 << 20;

/// Bytes of one piece at most: its length is 32 bits.
const PIECE_BYTES: usize = 1 << 30;

impl Pack {
    /// What an open file is, whatever its name is now.
    pub fn stat_file(&self, file: &PackFile) -> Result<PackStat> {
        let state = &mut *lock(&self.state);
        self.look_if_due(state)?;
        Ok(PackStat::of(file.id, file.view().state()))
    }

    /// The name that shows the file; `None` as for [`Pack::is_shown`].
    pub fn name_of(&self, file: &PackFile) -> Result<Option<Box<[u8]>>> {
        let state = &mut *lock(&self.state);
        self.look_if_due(state)?;
        let home = {
            let view = file.view();
            view.state().home.clone().filter(|_| !view.state().is_gone)
        };
        let Some((_, name)) = home else { return Ok(None) };
        let shown = self.lookup(state, &name)?.first().is_some_and(|(id, _)| *id == file.id);
        Ok(shown.then(|| name.as_ref().into()))
    }

    /// Whether a name shows the file: false if it is removed, or if another node has made one of
    /// the same name that is later.
    pub fn is_shown(&self, file: &PackFile) -> Result<bool> {
        Ok(self.name_of(file)?.is_some())
    }

    /// The last name of a file that another process has removed; `None` for others.
    pub fn name_of_gone(&self, file: &PackFile) -> Result<Option<Box<[u8]>>> {
        let state = &mut *lock(&self.state);
        self.look_if_due(state)?;
        let view = file.view();
        let now = view.state();
        if !now.is_gone || state.removed.contains(&file.id) {
            return Ok(None);
        }
        Ok(now.home.as_ref().map(|(_, name)| name.clone()))
    }

    /// Whether the file is so large that it is better kept by itself, and this node alone has
    /// written it: then a door moves it.
    pub fn outgrown(&self, file: &PackFile) -> Result<bool> {
        let state = &mut *lock(&self.state);
        let Some(own) = state.writer.as_ref().map(|writer| writer.set.id()) else {
            return Ok(false);
        };
        let view = file.view();
        let (now, is_own) = (view.state(), |set: &u32| *set == own);
        Ok(now.size() > OUTGROWN_BYTES && is_own(&file.id.set) && now.sets().iter().all(is_own))
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
        let size = file.view().state().size();
        if offset >= size || buf.is_empty() {
            return Ok(0);
        }
        // What a full store does not take, or a writer that has failed has not given it, cannot be
        // read, and says why. All else can.
        let given = self.hand_over(state);
        let n = buf.len().min(usize::try_from(size - offset).unwrap_or(usize::MAX));
        let (buf, end) = (&mut buf[..n], offset + n as u64);
        let mut view = file.view();
        let shown =
            view.shown(|write| self.is_sound(&mut state.sound, &state.index.node, write))?;
        let mut at = offset;
        for extent in shown.within(offset, end) {
            let (from, to) = (extent.logical.max(at), (extent.logical + extent.length).min(end));
            let part = |from: u64, to: u64| (from - offset) as usize..(to - offset) as usize;
            buf[part(at, from)].fill(0);
            let physical = extent.physical + (from - extent.logical);
            let out = &mut buf[part(from, to)];
            if let Err(error) = &given
                && let Some(writer) = &state.writer
                && writer.waits_at(extent.segment, physical)
            {
                return Err(error.clone());
            }
            if self.read_log(&state.index.node, extent.segment, physical, out)? < out.len() {
                // Which says what is missing.
                self.segments.read(&self.container, extent.segment, physical, out)?;
            }
            at = to;
        }
        buf[(at - offset) as usize..].fill(0);
        Ok(n)
    }

    /// Bytes of a data log, from the node's tray or the storage: how many there are.
    fn read_log(
        &self,
        node: &Node,
        at: SegmentRef,
        physical: u64,
        buf: &mut [u8],
    ) -> Result<usize> {
        // In this order: what is carried meanwhile is on the storage.
        let held = node.data_of(&at, physical, buf.len())?;
        let in_tray: usize = held.iter().map(|(_, bytes)| bytes.len()).sum();
        let mut found = match in_tray == buf.len() {
            true => 0,
            false => self.segments.read_some(&self.container, at, physical, buf)?,
        };
        for (from, bytes) in held {
            buf[from..from + bytes.len()].copy_from_slice(&bytes);
            found = found.max(from + bytes.len());
        }
        Ok(found)
    }

    /// Where the file has data: offsets and lengths, ascending. Between them are holes.
    pub fn data_of(&self, file: &PackFile) -> Result<Vec<(u64, u64)>> {
        let state = &mut *lock(&self.state);
        self.look_if_due(state)?;
        let mut view = file.view();
        let shown =
            view.shown(|write| self.is_sound(&mut state.sound, &state.index.node, write))?;
        Ok(shown.all().map(|extent| (extent.logical, extent.length)).collect())
    }

    /// Writes at `offset`; returns the bytes written, fewer than given if the store is full. Seen
    /// by this process at once, by others after a commit.
    pub fn write_at(&self, file: &PackFile, buf: &[u8], offset: u64) -> Result<usize> {
        let state = &mut *lock(&self.state);
        self.join(state)?;
        self.look_if_due(state)?;
        self.may_reach(offset, buf.len())?;
        self.note_others(state, file.view().state())?;
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
            return Ok((file.view().state().size(), 0));
        }
        // What waits is said first, so that the block has the pieces of this call alone.
        self.commit_locked(state, Durability::Visible)?;
        self.may_reach(file.view().state().size(), buf.len())?;
        self.note_others(state, file.view().state())?;
        let part = &buf[..buf.len().min(PIECE_BYTES)];
        let (segment, physical, n) = self.place(state, part)?;
        self.hand_over(state)?;
        let set = self.writer(state)?.set.clone();
        let _gate = (!set.has_tray()).then(|| set.gate()).transpose()?;
        let crc = sum(&part[..n]);
        let mut segments = vec![segment];
        let offset = self.say(state, Durability::Visible, |_, writer| {
            let logical = file.view().state().size();
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

    pub(super) fn cut(&self, state: &mut State, file: &PackFile, size: u64) -> Result<()> {
        self.join(state)?;
        self.note_others(state, file.view().state())?;
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
        self.note_others(state, file.view().state())?;
        let writer = self.writer(state)?;
        // What is written from now on moves the times again.
        writer.seal(file.id);
        let record = Record::Attributes { id: file.id, place: writer.place(), set };
        self.say_soon(state, record)
    }

    fn may_reach(&self, offset: u64, bytes: usize) -> Result<()> {
        let end = offset.checked_add(bytes as u64);
        match end.is_some_and(|end| end <= MAX_OFFSET) {
            true => Ok(()),
            false => Err(Error::too_far()),
        }
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
    pub(super) fn hand_over(&self, state: &mut State) -> Result<()> {
        let Some(writer) = state.writer.as_mut().filter(|writer| writer.is_buffered) else {
            return Ok(());
        };
        writer.check()?;
        let set = &writer.set;
        writer.data.put_by(|at, name, from, bytes| set.put_data(at, name, from, bytes))?;
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
    pub(super) fn note_others(&self, state: &mut State, file: &FileState) -> Result<()> {
        let writer = self.writer(state)?;
        let own = writer.set.id();
        let home = file.home.iter().map(|(place, _)| place.set);
        let sets = home.chain(file.sets().iter().copied());
        state.others.extend(sets.filter(|set| *set != own));
        Ok(())
    }

    /// Whether the data of a write in doubt is what it was.
    pub(super) fn is_sound(
        &self,
        sound: &mut HashMap<(SegmentRef, u64, u32), bool>,
        node: &Node,
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
            match self.read_log(node, write.segment, at, &mut bytes[..n]) {
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
