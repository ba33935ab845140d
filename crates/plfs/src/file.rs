//! L6: one handle on a logical file, with its own access mode and read-ahead. A plain file is one
//! that has no container yet: each call goes to it in place, or, from a look on that finds one, to
//! the container. What a handle on a file of a pack does is in `packed`.

mod index;
mod packed;

use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use plfs_format::{Bad, MAX_OFFSET, name};
use plfs_index::{Found, Run};

pub(crate) use self::packed::Packed;
use crate::catalog::{self, Index, Totals};
use crate::container::{self, Container, base};
use crate::error::{At, Error, Result};
use crate::in_place::Here;
use crate::log::Durability;
use crate::logical::LogicalFile;
use crate::pack::FileId;
use crate::plain::{Done, Entered, Found as Look, PlainFile};
use crate::process::Process;
use crate::read::{IndexState, Pieces, Prefetch, Short, fetch};
use crate::store::{Errno, Links, Size, Stat, StoreFile, Time, fd_path};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, TryLockError, lock};

/// What a handle may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Read.
    pub read: bool,
    /// Write.
    pub write: bool,
}

/// One visible piece of a logical file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Offset in the file.
    pub logical: u64,
    /// Bytes.
    pub length: u64,
    /// Offset in the data log.
    pub physical: u64,
    /// The data log.
    pub data_log: PathBuf,
}

/// One handle on a logical file. Thread-safe; calls name their offsets.
///
/// Closing commits. Dropping closes too, but nobody hears of its errors.
#[derive(Debug)]
pub struct File {
    /// What it is, if the handle was opened on a plain file.
    plain: Option<PlainHandle>,
    /// What it is, if the file is one of a pack; then it is nothing else.
    packed: Option<Packed>,
    /// Not there as long as the file is plain.
    logical: OnceLock<Arc<LogicalFile>>,
    path: Arc<Path>,
    access: Access,
    reader: Mutex<Reader>,
    wrote: AtomicBool,
}

#[derive(Debug)]
struct PlainHandle {
    process: Arc<Process>,
    /// Device and inode.
    identity: (u64, u64),
    /// Of a handle that only reads: from its first look on.
    shared: OnceLock<Arc<PlainFile>>,
    file: RwLock<Arc<dyn StoreFile>>,
    /// What [`Process::based`] was at the last look.
    based: AtomicU64,
    /// Others leave the container to this handle, as long as it takes the file for a plain one.
    here: Mutex<Option<Here>>,
}

impl PlainHandle {
    fn shared(&self) -> &Arc<PlainFile> {
        self.shared.get_or_init(|| Arc::new(PlainFile::new(self.identity, Entered::Alone)))
    }

    /// A path that leads to the open file, whatever its name is by now.
    fn path(&self, path: &Path) -> PathBuf {
        match self.file().fd() {
            Some(fd) => PathBuf::from(fd_path(fd.as_raw_fd())),
            None => path.to_path_buf(),
        }
    }

    /// The open file, which stays that as long as the guard is there: it may be on a number of the
    /// program's. Held by a thread once only.
    fn file(&self) -> RwLockReadGuard<'_, Arc<dyn StoreFile>> {
        self.file.read().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct Reader {
    prefetch: Prefetch,
    pieces: Pieces,
}

impl File {
    #[inline]
    pub(crate) fn new(logical: Arc<LogicalFile>, path: Arc<Path>, access: Access) -> File {
        let reader =
            Reader { prefetch: Prefetch::new(logical.container.local), pieces: Pieces::default() };
        File {
            plain: None,
            packed: None,
            logical: OnceLock::from(logical),
            path,
            access,
            reader: Mutex::new(reader),
            wrote: AtomicBool::new(false),
        }
    }

    /// A handle on a plain file, open as `file`, which all handles of the process that write it
    /// share as `shared`; one that only reads brings none.
    pub(crate) fn in_place(
        process: Arc<Process>,
        identity: (u64, u64),
        shared: Option<Arc<PlainFile>>,
        file: Arc<dyn StoreFile>,
        path: Arc<Path>,
        access: Access,
    ) -> File {
        if let Some(shared) = &shared {
            shared.opened_as(&file, &path);
        }
        let here = (!process.is_local(identity.0, &path)).then(|| process.in_place.enter(identity));
        File {
            plain: Some(PlainHandle {
                here: Mutex::new(here),
                based: AtomicU64::new(process.based.load(Ordering::Acquire)),
                process,
                identity,
                shared: shared.map_or_else(OnceLock::new, OnceLock::from),
                file: RwLock::new(file),
            }),
            packed: None,
            logical: OnceLock::new(),
            path,
            access,
            reader: Mutex::new(Reader { prefetch: Prefetch::new(true), pieces: Pieces::default() }),
            wrote: AtomicBool::new(false),
        }
    }

    /// A handle on a file of a pack.
    pub(crate) fn of_pack(packed: Packed, path: PathBuf, access: Access) -> File {
        File {
            plain: None,
            packed: Some(packed),
            logical: OnceLock::new(),
            path: path.into(),
            access,
            reader: Mutex::new(Reader { prefetch: Prefetch::new(true), pieces: Pieces::default() }),
            wrote: AtomicBool::new(false),
        }
    }

    pub(crate) fn packed(&self) -> Option<&Packed> {
        self.packed.as_ref()
    }

    pub(crate) fn logical(&self) -> &Arc<LogicalFile> {
        // INVARIANT: only a handle on a plain file has none, and whoever comes here has asked
        // `plain`.
        self.logical.get().expect("the file has a container")
    }

    /// The handle's plain file; `None` if it has a container, as far as this process knows.
    fn plain(&self) -> Result<Option<&PlainHandle>> {
        match &self.plain {
            Some(plain) if self.logical.get().is_none() => {
                let based = plain.process.based.load(Ordering::Acquire);
                let is_news = based != plain.based.load(Ordering::Acquire);
                let must_look = is_news
                    || plain.shared.get().is_some_and(|shared| shared.has_left_or_must_look());
                if must_look && self.look(plain)? {
                    return Ok(None);
                }
                // Behind the look: another thread would go on in place meanwhile, and the next call
                // behind one that failed.
                if is_news {
                    plain.based.store(based, Ordering::Release);
                }
                Ok(Some(plain))
            }
            _ => Ok(None),
        }
    }

    /// Looks whether the file has a container by now; true if the handle goes on in it.
    fn look(&self, plain: &PlainHandle) -> Result<bool> {
        let found = plain.shared().look(&plain.process, &**plain.file(), &self.path)?;
        Ok(self.goes_on(found))
    }

    /// [`File::look`] for who wants to know the size then; `None` if it goes on in a container. Not
    /// by the link count: one link can be a name, or the base of a file whose last name is gone.
    fn look_and_stat(&self, plain: &PlainHandle) -> Result<Option<Stat>> {
        if self.look(plain)? {
            return Ok(None);
        }
        plain.file().stat().at("stat", &self.path).map(Some)
    }

    fn goes_on(&self, found: Look) -> bool {
        match found {
            Look::Plain => false,
            Look::Container(logical) => {
                logical.acquire();
                logical.look_for_name();
                let _ = self.logical.set(logical);
                self.plain.iter().for_each(|plain| drop(lock(&plain.here).take()));
                true
            }
        }
    }

    /// Of a handle on a plain file that stands for one that was there before: its next call looks.
    pub fn look_first(&self) {
        self.plain.iter().for_each(|plain| plain.based.store(u64::MAX, Ordering::Relaxed));
    }

    /// Whether its last name is gone, and it has a container that was a plain file. Whoever closes
    /// such a handle closes what else he has open on that file before: it hinders the removal.
    /// Looks whether the file is plain still, as every call does; a stat if it has been one.
    pub fn is_base_without_name(&self) -> bool {
        // What hinders the look, the close says.
        let _ = self.plain();
        let logical = self.logical.get();
        logical.is_some_and(|file| file.container.superblock.has_base && !file.has_name())
    }

    /// Whether it is a plain file, as far as this process knows.
    pub fn is_plain(&self) -> bool {
        self.logical.get().is_none() && self.packed.is_none()
    }

    /// Whether it was a plain file when it was opened, and a call under way may still take it for
    /// one.
    pub fn was_plain(&self) -> bool {
        self.plain.is_some()
    }

    /// Which file of which pack, by device and inode of the pack's name, it was opened as.
    pub fn packed_id(&self) -> Option<((u64, u64), FileId)> {
        let packed = self.packed.as_ref()?;
        Some((packed.pack.container().identity, packed.file.id()))
    }

    /// The file of a pack that it was opened as, and the name that it was opened by.
    pub fn packed_name(&self) -> Option<(FileId, &[u8])> {
        let packed = self.packed.as_ref()?;
        Some((packed.file.id(), packed.file.name()))
    }

    /// The directory of the pack that it was opened in.
    pub fn packed_dir(&self) -> Option<PathBuf> {
        Some(self.packed.as_ref()?.pack.dir())
    }

    /// Whether it was opened as a file of a pack. It may be one of its own by now.
    pub fn is_packed(&self) -> bool {
        self.packed.is_some()
    }

    /// For a handle on a plain file: it goes on with this open file of it, and gives the other one
    /// back. For who lends it a descriptor that is about to be closed: waits for the calls that use
    /// that.
    pub fn replace_open(&self, file: Arc<dyn StoreFile>) -> Option<Arc<dyn StoreFile>> {
        let plain = self.plain.as_ref()?;
        if self.access.write {
            plain.shared().opened_as(&file, &self.path);
        }
        let mut slot = plain.file.write().unwrap_or_else(PoisonError::into_inner);
        Some(std::mem::replace(&mut *slot, file))
    }

    /// The open file of a handle that was opened on a plain one.
    pub fn opened_file(&self) -> Option<Arc<dyn StoreFile>> {
        self.plain.as_ref().map(|plain| plain.file().clone())
    }

    /// The open file, if it is plain as far as this process knows.
    pub fn plain_file(&self) -> Option<Arc<dyn StoreFile>> {
        self.plain.as_ref().filter(|_| self.is_plain()).map(|plain| plain.file().clone())
    }

    /// A plain file stays plain for ever, unless it has a container already; `why` is for people.
    /// For who is about to write it in a way that PLFS does not see. Whether it is plain.
    pub fn pin(&self, why: &str) -> Result<bool> {
        let Some(plain) = self.plain()? else { return Ok(false) };
        if plain.shared().is_pinned() {
            return Ok(true);
        }
        let found = plain.shared().pin(&plain.process, &**plain.file(), &self.path, why)?;
        Ok(!self.goes_on(found))
    }

    /// The container, for tools; `None` for a plain file.
    pub fn container(&self) -> Option<&Container> {
        self.logical.get().map(|logical| logical.container.as_ref())
    }

    fn container_or_refuse(&self) -> Result<&Container> {
        self.container().ok_or_else(|| Error::NotAContainer { path: self.path.to_path_buf() })
    }

    /// The path that the handle was opened with, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the handle may do.
    pub fn access(&self) -> Access {
        self.access
    }

    /// Reads into `buf` at `offset`; returns the bytes read, fewer than asked only at the end of
    /// the file, and before bytes that cannot be read: a read that begins there gives the error.
    /// Sees all own writes, and others' commits as of the last open, refresh or read at the end of
    /// the file.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        self.read(buf, offset, Whole::IfItCan)
    }

    /// [`read_at`](File::read_at) for who takes fewer bytes than asked for the end of the file: if
    /// some cannot be read that is an error.
    pub fn read_whole_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        self.read(buf, offset, Whole::OrError)
    }

    fn read(&self, buf: &mut [u8], offset: u64, whole: Whole) -> Result<usize> {
        self.may_read()?;
        if let Some(packed) = &self.packed {
            return packed.read_at(buf, offset);
        }
        if let Some(plain) = self.plain()? {
            let n = plain.file().read_once(buf, offset).at("read", &self.path)?;
            // At the end: others may have gone on, in a container.
            if n == buf.len() || !self.look(plain)? {
                return Ok(n);
            }
        }
        self.read_pieces(buf, buf.len(), 0, offset, whole)
    }

    /// Reads pieces of `length` bytes into `buf`, one after the other: piece i comes from `offset +
    /// i * stride`. Returns the bytes read; stops at the first piece that the file does not fill,
    /// or that fails when others have been read: then the next call that begins there gives the
    /// error. Otherwise as [`read_at`](File::read_at).
    ///
    /// The arguments are [`write_strided`](File::write_strided)'s, with the same errors. Costs one
    /// lookup a piece; pieces that are neighbours in a data log are fetched together.
    pub fn read_strided(
        &self,
        buf: &mut [u8],
        length: usize,
        stride: i64,
        offset: u64,
    ) -> Result<usize> {
        self.may_read()?;
        if is_contiguous(buf.len(), length, stride, offset)? {
            return self.read_at(buf, offset);
        }
        if self.packed.is_some() || self.plain()?.is_some() {
            let pieces = buf.chunks_mut(length);
            return one_by_one(pieces, stride, offset, |piece, at| self.read_at(piece, at));
        }
        self.read_pieces(buf, length, stride, offset, Whole::IfItCan)
    }

    fn read_pieces(
        &self,
        buf: &mut [u8],
        length: usize,
        stride: i64,
        offset: u64,
        whole: Whole,
    ) -> Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        let (n, known) = self.read_known(buf, length, stride, offset, whole)?;
        if n == buf.len() {
            return Ok(n);
        }
        // At the end: others may have gone on.
        self.logical().acquire();
        if self.with_index(state_of)? == known {
            return Ok(n);
        }
        self.read_known(buf, length, stride, offset, whole).map(|(n, _)| n)
    }

    /// The bytes read, and the state of the index that they were read with.
    fn read_known(
        &self,
        buf: &mut [u8],
        length: usize,
        stride: i64,
        offset: u64,
        whole: Whole,
    ) -> Result<(usize, IndexState)> {
        let (mut missing, mut was_broken) = (PathBuf::new(), false);
        loop {
            let Tried { done, known, stopped } = self.try_read(buf, length, stride, offset)?;
            match stopped.map_or(Ok(()), Err) {
                Err(_)
                    if !was_broken && self.with_index(|index| index.is_broken().is_some())? =>
                {
                    was_broken = true;
                    self.logical().do_without_flat()?;
                }
                // The logs were removed under us: after a truncate to nothing or a compaction there
                // are new ones, and they can go again before we have opened them. One that is
                // missing twice is lost.
                Err(Error::MissingData { errno: Errno::NOENT, path, .. }) if path != missing => {
                    missing = path;
                    self.logical().acquire();
                    self.logical().segments.clear();
                }
                Err(Error::MissingData { .. }) if self.logical().doubt_flat()? => {}
                Err(error) if done == 0 || whole == Whole::OrError => return Err(error),
                _ => return Ok((done, known)),
            }
        }
    }

    fn try_read(&self, buf: &mut [u8], length: usize, stride: i64, offset: u64) -> Result<Tried> {
        let index = self.logical().index()?;
        // INVARIANT: `index()` loads it.
        let known = index.as_ref().expect("the index is loaded");
        let mut reader = match self.reader.try_lock() {
            Ok(reader) => Some(reader),
            Err(TryLockError::Poisoned(reader)) => Some(reader.into_inner()),
            // Another thread is reading through this handle: side by side beats read-ahead.
            Err(TryLockError::WouldBlock) => None,
        };
        let mut tried = Tried { done: 0, known: state_of(known), stopped: None };
        let mut at = offset;
        for piece in buf.chunks_mut(length) {
            let n = match self.read_piece(known, reader.as_deref_mut(), piece, at) {
                Ok(n) => n,
                Err(Short { bytes, error }) => {
                    tried.stopped = Some(error);
                    bytes
                }
            };
            tried.done += n;
            if n < piece.len() || tried.stopped.is_some() {
                break;
            }
            at = at.wrapping_add_signed(stride);
        }
        Ok(tried)
    }

    fn read_piece(
        &self,
        known: &Index,
        reader: Option<&mut Reader>,
        buf: &mut [u8],
        offset: u64,
    ) -> std::result::Result<usize, Short> {
        let logical = self.logical();
        let eof = known.eof();
        if offset >= eof {
            return Ok(0);
        }
        let n = buf.len().min(usize::try_from(eof - offset).unwrap_or(usize::MAX));
        let buf = &mut buf[..n];
        let corrupt = || Error::Corrupt {
            path: logical.container.path(name::FLAT),
            bad: Bad::new(0, "an entry names a segment that is not listed"),
        };
        let sound = || match known.is_broken() {
            Some(what) => Err(Error::Corrupt {
                path: logical.container.path(name::FLAT),
                bad: Bad::new(0, what),
            }),
            None => Ok(()),
        };
        let read = |piece: &Found, out: &mut [u8]| {
            let at = known.segment(piece.segment).ok_or_else(corrupt)?;
            logical.segments.read(&logical.container, at, piece.physical, out)
        };
        match reader {
            Some(Reader { prefetch, pieces }) => {
                let pieces =
                    pieces.get(state_of(known), (offset, offset + n as u64), known.extents());
                sound()?;
                fetch(offset, buf, pieces, |piece, out| {
                    let at = known.segment(piece.segment).ok_or_else(corrupt)?;
                    let ahead = |physical, buf: &mut [u8]| {
                        logical.segments.read_some(&logical.container, at, physical, buf)
                    };
                    match prefetch.read(
                        known.generation(),
                        piece,
                        known.segment_end(piece.segment),
                        out,
                        ahead,
                    )? {
                        got if got < out.len() => read(piece, out),
                        _ => Ok(()),
                    }
                })?;
            }
            None => {
                let mut pieces = Vec::new();
                known.lookup(offset, offset + n as u64, &mut pieces);
                sound()?;
                fetch(offset, buf, pieces, read)?;
            }
        }
        Ok(n)
    }

    /// Writes `buf` at `offset`; returns the bytes written. Visible to this process at once, to
    /// others after a commit.
    ///
    /// EFBIG past 2^63-1. A short count means that the store is full behind it.
    pub fn write_at(&self, buf: &[u8], offset: u64) -> Result<usize> {
        self.may_write()?;
        if buf.is_empty() {
            return Ok(0);
        }
        if offset >= MAX_OFFSET {
            return Err(Error::too_far());
        }
        let n = buf.len().min(usize::try_from(MAX_OFFSET - offset).unwrap_or(usize::MAX));
        self.mark_written();
        if let Some(packed) = &self.packed {
            return packed.write_at(&buf[..n], offset);
        }
        if let Some(plain) = self.plain()? {
            let written = {
                let file = plain.file();
                plain.shared().write(offset, || file.write_at(&buf[..n], offset))
            };
            match written.at("write", &self.path)? {
                Done::InPlace((n, is_due)) => {
                    if is_due {
                        self.look(plain)?;
                    }
                    return Ok(n);
                }
                Done::Left => self.must_go_on(plain)?,
            }
        }
        self.logical().write(offset, &buf[..n])
    }

    /// Writes `buf` as pieces of `length` bytes: piece i goes to `offset + i * stride`. Returns the
    /// bytes written, in the order of `buf`; otherwise as [`write_at`](File::write_at).
    ///
    /// `buf` is a whole number of pieces. `stride` may be negative; if there are several pieces its
    /// magnitude must be at least `length` (EINVAL). EINVAL if a piece would begin before the file,
    /// EFBIG if one would end past 2^63-1; then nothing is written. All pieces have the same place
    /// in the order of writes (SEMANTICS S9).
    ///
    /// Costs what one contiguous write of `buf` costs: the bytes go to the data log in one piece,
    /// and the index gets one record; a call that goes on with the pattern of the one before adds
    /// none.
    pub fn write_strided(
        &self,
        buf: &[u8],
        length: usize,
        stride: i64,
        offset: u64,
    ) -> Result<usize> {
        self.may_write()?;
        if is_contiguous(buf.len(), length, stride, offset)? {
            return self.write_at(buf, offset);
        }
        self.mark_written();
        if self.packed.is_some() || self.plain()?.is_some() {
            let pieces = buf.chunks(length);
            return one_by_one(pieces, stride, offset, |piece, at| self.write_at(piece, at));
        }
        let (mut done, mut logical) = (0, offset);
        // The count of a record is 32 bits.
        for part in buf.chunks(length.saturating_mul(u32::MAX as usize)) {
            let count = (part.len() / length) as u32;
            let run = Run {
                logical,
                length: length as u64,
                stride: if count == 1 { 0 } else { stride },
                count,
                segment: 0,
                physical: 0,
            };
            let n = match self.logical().write_pieces(run, part) {
                Err(error) if done == 0 => return Err(error),
                result => result.unwrap_or(0),
            };
            done += n;
            if n < part.len() {
                break;
            }
            logical = logical.wrapping_add_signed(stride.wrapping_mul(i64::from(count)));
        }
        Ok(done)
    }

    /// Writes `buf` at the end of the file, atomically among the processes of this node; gives the
    /// offset where it went and the bytes written.
    ///
    /// The end is where the last truncate by anybody left it: on a local file system at each call,
    /// elsewhere as of some 10 ms ago.
    pub fn append(&self, buf: &[u8]) -> Result<(u64, usize)> {
        self.may_write()?;
        if buf.is_empty() {
            return Ok((self.len()?, 0));
        }
        self.mark_written();
        if let Some(packed) = &self.packed {
            return packed.append(buf);
        }
        // What it appends there has no place before it is written.
        if self.pin("appended to")?
            && let Some(plain) = self.plain()?
        {
            let file = plain.file();
            let n = file.append(buf).at("append to", &self.path)?;
            return Ok((file.stat().at("stat", &self.path)?.len.saturating_sub(n as u64), n));
        }
        self.logical().append(buf)
    }

    /// Another thread went on in the container between two calls of this one.
    fn must_go_on(&self, plain: &PlainHandle) -> Result<()> {
        match self.logical.get().is_some() || self.look(plain)? {
            true => Ok(()),
            false => Err(Error::refused(Errno::STALE, "use", &self.path, "it was removed")),
        }
    }

    /// From here on its close commits; also that of an empty file that was to be truncated at the
    /// open.
    pub(crate) fn mark_written(&self) {
        if !self.wrote.load(Ordering::Relaxed) {
            self.wrote.store(true, Ordering::Release);
        }
    }

    /// Makes all writes through this process visible to later opens and refreshes elsewhere. Not
    /// forced to storage.
    pub fn commit(&self) -> Result<()> {
        if let Some(packed) = &self.packed {
            return packed.commit(self.wrote.load(Ordering::Acquire));
        }
        match self.plain()? {
            Some(plain) if !self.look(plain)? => Ok(()),
            _ => self.logical().commit(Durability::Visible),
        }
    }

    /// What a close says, for who keeps the handle: [`File::commit`], but what was written to a
    /// file of a pack may wait in the node's memory for a moment (SEMANTICS P2).
    pub fn commit_as_close(&self) -> Result<()> {
        match &self.packed {
            Some(packed) => packed.commit_as_close(self.wrote.load(Ordering::Acquire)),
            None => self.commit(),
        }
    }

    /// Makes all writes through this process visible and durable. Later reads see what others have
    /// committed until now: processes that sync, meet, and read expect it.
    pub fn sync(&self) -> Result<()> {
        if let Some(packed) = &self.packed {
            return packed.sync(self.wrote.load(Ordering::Acquire));
        }
        if let Some(plain) = self.plain()? {
            plain.file().sync_all().at("sync", &self.path)?;
            if !self.look(plain)? {
                return Ok(());
            }
        }
        self.logical().commit(Durability::Durable)?;
        // An acquire as any: what is written next is behind what others have committed, whether it
        // was read or not.
        self.logical().acquire();
        Ok(())
    }

    /// The next reads see what others have committed until now.
    pub fn refresh(&self) -> Result<()> {
        if let Some(packed) = &self.packed {
            return packed.refresh();
        }
        if let Some(plain) = self.plain()?
            && !self.look(plain)?
        {
            return Ok(());
        }
        self.logical().acquire();
        self.logical().index().map(drop)
    }

    /// Keeps the data until this handle and all others of the process on this file are closed,
    /// though somebody removes the last name; ESTALE if it is gone already. The first read or write
    /// does the same (S17). On a local file system an open, a lock and a stat.
    pub fn hold(&self) -> Result<()> {
        // A plain file is kept by its descriptor, what is known of one of a pack by its handle.
        if self.packed.is_some() || self.plain()?.is_some() {
            Ok(())
        } else {
            self.logical().hold()
        }
    }

    /// Sets the size: cuts, or extends with a hole. Visible at once everywhere.
    pub fn set_len(&self, size: u64) -> Result<()> {
        self.may_write()?;
        if size > MAX_OFFSET {
            return Err(Error::too_far());
        }
        self.mark_written();
        if let Some(packed) = &self.packed {
            return packed.set_len(size);
        }
        if let Some(plain) = self.plain()? {
            let (shared, file) = (plain.shared(), plain.file());
            let found = shared.set_len(&plain.process, &**file, &self.path, size)?;
            if !self.goes_on(found) {
                return Ok(());
            }
        }
        self.logical().truncate(size)
    }

    /// Reserves room for `[offset, offset + length)`, as fallocate(2) does; bytes stay as they are.
    /// A container and a pack reserve none, and storage that cannot does not. With [`Size::Grows`]
    /// the file reaches to the end of the room, and what others of the node write behind it
    /// meanwhile is not cut.
    pub fn allocate(&self, offset: u64, length: u64, size: Size) -> Result<()> {
        self.may_write()?;
        let end = offset.saturating_add(length);
        if end > MAX_OFFSET {
            return Err(Error::too_far());
        }
        self.mark_written();
        if let Some(packed) = &self.packed {
            return packed.allocate(offset, length, size);
        }
        if let Some(plain) = self.plain()? {
            let (shared, file) = (plain.shared(), plain.file());
            let room = (offset, length);
            let found = shared.allocate(&plain.process, &**file, &self.path, room, size)?;
            if !self.goes_on(found) {
                return Ok(());
            }
        }
        match size {
            Size::Grows => self.logical().grow(end),
            Size::Stays => Ok(()),
        }
    }

    /// Size of the logical file: all commits, and this process's own writes.
    pub fn len(&self) -> Result<u64> {
        if let Some(packed) = &self.packed {
            return packed.stat().map(|stat| stat.len);
        }
        if let Some(plain) = self.plain()?
            && let Some(stat) = self.look_and_stat(plain)?
        {
            return Ok(stat.len);
        }
        Ok(self.logical().size()?.0)
    }

    /// Whether the file has no bytes.
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Stat of the logical file.
    pub fn stat(&self) -> Result<Stat> {
        if let Some(packed) = &self.packed {
            return packed.stat();
        }
        if let Some(plain) = self.plain()?
            && let Some(stat) = self.look_and_stat(plain)?
        {
            return Ok(stat);
        }
        let container = &self.logical().container;
        let path = container.inode_path();
        if self.logical().owes_times() {
            self.logical().touch()?;
        }
        let stat = container.store.stat(&path, Links::Stay).at("stat", &path)?;
        let (size, totals) = self.logical().size()?;
        Ok(logical_stat(stat, size, totals.stored_bytes))
    }

    /// What the container's logs add up to.
    pub fn totals(&self) -> Result<Totals> {
        if self.packed.is_some() || self.plain()?.is_some() {
            let stat = self.stat()?;
            let stored_bytes = stat.blocks * 512;
            return Ok(Totals { size: stat.len, stored_bytes, ..Totals::default() });
        }
        self.logical().totals()
    }

    /// Offset of the first written byte at or after `from` (SEEK_DATA); `None` if there is none.
    pub fn next_data(&self, from: u64) -> Result<Option<u64>> {
        if let Some(packed) = &self.packed {
            return packed.next_data(from);
        }
        if let Some(plain) = self.plain()?
            && self.look_and_stat(plain)?.is_some()
        {
            let end = self.len()?;
            let next = plain.file().next_data(from).at("look for data in", &self.path)?;
            return Ok(next.filter(|next| *next < end));
        }
        self.with_sound_index(|index| index.next_data(from))
    }

    /// Offset of the first hole at or after `from` (SEEK_HOLE); the end of the file is one.
    pub fn next_hole(&self, from: u64) -> Result<u64> {
        if let Some(packed) = &self.packed {
            return packed.next_hole(from);
        }
        if let Some(plain) = self.plain()?
            && self.look_and_stat(plain)?.is_some()
        {
            return plain.file().next_hole(from).at("look for a hole in", &self.path);
        }
        self.with_sound_index(|index| index.next_hole(from))
    }

    /// Whether index logs are not there that the last close counted: lost, or never durable when
    /// power was cut. Reads give what the others have, so who copies the file has not all of it.
    /// Costs a read of the superblock; if there seem to be fewer records, of the logs.
    pub fn lacks_logs(&self) -> Result<bool> {
        if self.packed.is_some() || self.plain()?.is_some() {
            return Ok(false);
        }
        let totals = self.with_index(Index::totals)?;
        catalog::lacks_logs(&self.logical().container, &totals)
    }

    /// Calls `visit` with the index as a read would use it. [`Error::NotAContainer`] for a plain
    /// file, as from all calls below that are about indexes.
    pub fn with_index<T>(&self, visit: impl FnOnce(&Index) -> T) -> Result<T> {
        self.container_or_refuse()?;
        let index = self.logical().index()?;
        // INVARIANT: `index()` loads it.
        Ok(visit(index.as_ref().expect("the index is loaded")))
    }

    /// [`with_index`](File::with_index), again without the flat index if `visit` came upon a
    /// damaged block of it.
    fn with_sound_index<T>(&self, visit: impl Fn(&Index) -> T) -> Result<T> {
        let (seen, broken) =
            self.with_index(|index| (visit(index), index.is_broken().is_some()))?;
        if !broken {
            return Ok(seen);
        }
        self.logical().do_without_flat()?;
        self.with_index(visit)
    }

    /// Sets times; they stay as set until data is written again.
    pub fn set_times(&self, atime: Option<Time>, mtime: Option<Time>) -> Result<()> {
        if let Some(packed) = &self.packed {
            return packed.set_times(atime, mtime);
        }
        if let Some(plain) = self.plain()? {
            let path = plain.path(&self.path);
            let store = &plain.process.store;
            return store.set_times(&path, atime, mtime).at("set the times of", &self.path);
        }
        let container = &self.logical().container;
        let path = container.inode_path();
        container.store.set_times(&path, atime, mtime).at("set the times of", &path)?;
        if mtime.is_some() {
            self.logical().times_were_set();
        }
        Ok(())
    }

    /// Sets permission bits, of the superblock and of what lets users into the container.
    pub fn chmod(&self, mode: u32) -> Result<()> {
        if let Some(packed) = &self.packed {
            return packed.chmod(mode);
        }
        match self.plain()? {
            Some(plain) => {
                let store = &plain.process.store;
                store.chmod(&plain.path(&self.path), mode).at("set the mode of", &self.path)?;
                self.inode_has_changed()
            }
            None => container::chmod(&self.logical().container, mode),
        }
    }

    /// Sets owner and group, of the superblock and of the container; logs stay their writers'.
    pub fn chown(&self, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        if let Some(packed) = &self.packed {
            return packed.chown(uid, gid);
        }
        match self.plain()? {
            Some(plain) => {
                let (store, path) = (&plain.process.store, plain.path(&self.path));
                store.chown(&path, uid, gid, Links::Follow).at("set the owner of", &self.path)?;
                self.inode_has_changed()
            }
            None => container::chown(&self.logical().container, uid, gid),
        }
    }

    /// Mode or owner of a file that was plain have been changed, by who did not know of a container
    /// that it may have got meanwhile: that gets them, too. Nothing but a stat while it has none.
    pub fn inode_has_changed(&self) -> Result<()> {
        if let Some(plain) = self.plain()? {
            let stat = plain.file().stat().at("stat", &self.path)?;
            let find = || Ok(self.look(plain)?.then_some(()));
            let is_begun = || base::is_begun(&**plain.file(), &stat);
            if stat.nlink <= 1 || base::when_made(find, is_begun)?.is_none() {
                return Ok(());
            }
        }
        container::follow_base(&self.logical().container, None)
    }

    /// The visible pieces of `[from, to)`, ascending; what they leave out is holes. Memory for all
    /// of them: a file may have one for each byte.
    pub fn extents(&self, from: u64, to: u64) -> Result<Vec<Extent>> {
        self.extents_some(from, to, u64::MAX).map(|(pieces, _)| pieces)
    }

    /// [`File::extents`] of the beginning of `[from, to)`, which has no more than some `most`
    /// pieces; and where it ends. Costs a look at what reaches into the range: who goes through a
    /// file asks for ranges not much longer than those that came.
    pub fn extents_some(&self, from: u64, to: u64, most: u64) -> Result<(Vec<Extent>, u64)> {
        self.with_sound_index(|index| {
            let mut pieces = Vec::new();
            let end = index.extents().window(from, to.min(index.eof()), most);
            index.lookup(from, end, &mut pieces);
            let extent = |piece: Found| {
                let data_log = index
                    .segment(piece.segment)
                    .map_or(Ok(PathBuf::new()), |at| self.logical().container.segment_path(&at))?;
                Ok(Extent {
                    logical: piece.logical,
                    length: piece.length,
                    physical: piece.physical,
                    data_log,
                })
            };
            let pieces = pieces.into_iter().map(extent).collect::<Result<Vec<_>>>()?;
            // Behind the end of the file there is nothing.
            Ok((pieces, if end < index.eof() { end } else { to }))
        })?
    }

    /// Makes `[offset, offset + length)` a hole, as far as the file reaches, without changing the
    /// size. Visible and ordered as a write of zeros: to this process at once, to others
    /// after a commit; durable after a sync.
    ///
    /// Costs a look at the size (a commit, if it reaches into what this process has added and not
    /// committed) and a record of 40 bytes at the next commit, however long it is; a hole that goes
    /// on where the last one ended costs nothing. What it hides takes room in the logs until a
    /// compaction.
    pub fn zero(&self, offset: u64, length: u64) -> Result<()> {
        self.may_write()?;
        self.mark_written();
        if let Some(packed) = &self.packed {
            return packed.zero(offset, length);
        }
        // Behind a look: a hole must end where somebody else has cut the file, and would be taken
        // for bytes written past that.
        if let Some(plain) = self.plain()?
            && !self.look(plain)?
        {
            let punched = plain.shared().punch(&**plain.file(), &self.path, offset, length)?;
            match punched {
                Done::InPlace(()) => return Ok(()),
                Done::Left => self.must_go_on(plain)?,
            }
        }
        self.logical().punch(offset, offset.saturating_add(length))
    }

    /// Commits and ends the handle; the last handle of the last process on the node also leaves a
    /// summary.
    pub fn close(mut self) -> Result<()> {
        self.end()
    }

    /// [`File::close`] for who has the handle in a place of his own, and does not use it any more.
    pub fn end(&mut self) -> Result<()> {
        if let Some(packed) = self.packed.take() {
            return packed.end(self.wrote.load(Ordering::Acquire));
        }
        // Who has heard of the container gives that up, too.
        let mut looked = self.plain().map(drop);
        let plain = self.plain.take();
        if let Some(plain) = &plain
            && self.logical.get().is_none()
            && self.wrote.load(Ordering::Acquire)
        {
            looked = looked.and(self.end_in_place(plain));
        }
        // Who removes a file looks whether anybody still has it open as a plain one.
        drop(plain);
        let Some(logical) = self.logical.take() else { return looked };
        let committed = match self.wrote.load(Ordering::Acquire) {
            true => logical.commit(Durability::on_close(&logical.config)),
            false => Ok(()),
        };
        // The thread of `autocommit` may look at the file just now: were it the last to let go, the
        // end would come some time after this call, or, in a program that ends, never.
        let committing = logical.committing.get().cloned();
        let alone = committing.as_ref().map(|committing| lock(committing));
        let last = Arc::into_inner(logical);
        drop(alone);
        match last {
            // It commits once more.
            Some(mut last) => looked.and(Error::unless_passing(committed)).and(last.finish()),
            None => looked.and(committed),
        }
    }

    fn end_in_place(&self, plain: &PlainHandle) -> Result<()> {
        if plain.process.config.sync_on_close {
            plain.file().sync_all().at("sync", &self.path)?;
        }
        self.look(plain).map(drop)
    }

    fn may_read(&self) -> Result<()> {
        if self.access.read {
            Ok(())
        } else {
            Err(Error::invalid(Errno::BADF, "the file is not open for reading"))
        }
    }

    fn may_write(&self) -> Result<()> {
        if self.access.write {
            Ok(())
        } else {
            Err(Error::invalid(Errno::BADF, "the file is not open for writing"))
        }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// What a read does that comes upon bytes that cannot be read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Whole {
    /// It gives those before.
    IfItCan,
    /// It fails.
    OrError,
}

/// How far a read came.
struct Tried {
    done: usize,
    known: IndexState,
    /// Why not to the end of what was asked for, or of the file.
    stopped: Option<Error>,
}

fn state_of(index: &Index) -> IndexState {
    (index.generation(), index.eof())
}

/// Does `act`, which gives how many bytes it took or gave, with each of the pieces of a strided
/// call and its offset, up to one that is not done whole. All bytes; an error only if there were
/// none.
fn one_by_one<T: AsRef<[u8]>>(
    pieces: impl Iterator<Item = T>,
    stride: i64,
    offset: u64,
    act: impl Fn(T, u64) -> Result<usize>,
) -> Result<usize> {
    let mut done = 0;
    for (i, piece) in pieces.enumerate() {
        let wanted = piece.as_ref().len();
        let at = offset.wrapping_add_signed(stride.wrapping_mul(i as i64));
        let n = match act(piece, at) {
            Err(error) if done == 0 => return Err(error),
            result => result.unwrap_or(0),
        };
        done += n;
        if n < wanted {
            break;
        }
    }
    Ok(done)
}

/// Checks the arguments of a strided call on `total` bytes. True if the pieces follow each other
/// without gaps, or there is only one.
fn is_contiguous(total: usize, length: usize, stride: i64, offset: u64) -> Result<bool> {
    if total == 0 {
        return Ok(true);
    }
    if length == 0 || !total.is_multiple_of(length) {
        return Err(Error::invalid(Errno::INVAL, "the buffer is not a whole number of pieces"));
    }
    let (length, steps) = (length as u64, (total / length - 1) as u64);
    if steps == 0 {
        return Ok(true);
    }
    if stride.unsigned_abs() < length {
        return Err(Error::invalid(Errno::INVAL, "the pieces of a strided call overlap"));
    }
    let last = i128::from(offset) + i128::from(steps) * i128::from(stride);
    if last < 0 {
        return Err(Error::invalid(Errno::INVAL, "a piece begins before the file"));
    }
    if last.max(offset.into()) + i128::from(length) > MAX_OFFSET.into() {
        return Err(Error::too_far());
    }
    Ok(stride == length as i64)
}

/// A name's stat, turned into the logical file's.
pub(crate) fn logical_stat(stat: Stat, size: u64, stored_bytes: u64) -> Stat {
    Stat {
        len: size,
        blocks: stored_bytes.div_ceil(512),
        nlink: stat.nlink.saturating_sub(1),
        ..stat
    }
}
