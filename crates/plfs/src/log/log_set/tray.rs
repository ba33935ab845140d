//! What the processes of a node have said of a pack and the storage does not have yet: bytes of the
//! node's logs, in the page that the processes share (docs/decisions/0023).
//!
//! The tray is the end of the node's index log, from [`TRAY_FROM`] to [`INDEX_END`], at its start;
//! and bytes of data logs, each with its place, from its end downwards. Bytes have their places
//! when they come. So to *carry* the tray is to write them there, data first, and to do so twice,
//! or after somebody who died in it, does no harm. Who of the node reads logs reads the tray behind
//! them.
//!
//! All of it happens under the page's short lock, but for looks at how much there is.

use std::path::{Path, PathBuf};

use plfs_format::index_log::align_up;
use plfs_format::name::{self, SegmentRef};

use super::durable::{FileName, mark_unsynced};
use super::page::{INDEX_END, SET, TRAY_DATA, TRAY_FROM, TRAY_REFUSED, TRAY_SINCE};
use crate::container::Container;
use crate::error::{At, Error, Result};
use crate::store::machine::boot_time_ns;
use crate::store::shm::SharedPage;
use crate::store::{self, Errno, Open, Store, StoreFile};
use crate::sync::Arc;
use crate::sync::plain::atomic::Ordering;

/// In front of the bytes of a data log: their number, stream, backend, segment, whether its name is
/// new, and where they lie in it.
const HEADER: usize = 32;

/// The tray of a page; whoever does more than ask for its words holds the short lock.
pub(super) struct Tray<'a>(pub(super) &'a SharedPage);

/// Bytes of a data log in a tray.
struct Held {
    at: SegmentRef,
    file_name: FileName,
    physical: u64,
    /// Where they are in the tray.
    from: usize,
    length: usize,
}

/// Bytes of a data log, and where they are among those that were asked for.
pub type HeldData = (usize, Vec<u8>);

/// The logs that a tray is carried to.
pub(super) trait Logs {
    /// The index log, and its path.
    fn index(&self) -> Result<(Arc<dyn StoreFile>, PathBuf)>;
    /// A segment, and its path.
    fn segment(&self, at: &SegmentRef) -> Result<(Arc<dyn StoreFile>, PathBuf)>;
}

impl Tray<'_> {
    fn word(&self, word: usize) -> u64 {
        self.0.words()[word].load(Ordering::SeqCst)
    }

    fn set_word(&self, word: usize, to: u64) {
        self.0.words()[word].store(to, Ordering::SeqCst);
    }

    fn index_bytes(&self) -> u64 {
        align_up(self.word(INDEX_END)).saturating_sub(self.word(TRAY_FROM))
    }

    /// Bytes that still find room.
    pub(super) fn room(&self) -> usize {
        let used = self.index_bytes().saturating_add(self.word(TRAY_DATA));
        self.0.tray_bytes().saturating_sub(usize::try_from(used).unwrap_or(usize::MAX))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.index_bytes() == 0 && self.word(TRAY_DATA) == 0
    }

    pub(super) fn has_data(&self) -> bool {
        self.word(TRAY_DATA) != 0
    }

    /// Since when the oldest of it is there.
    pub(super) fn since(&self) -> Option<u64> {
        (!self.is_empty()).then(|| self.word(TRAY_SINCE))
    }

    /// The storage did not take it the last time.
    pub(super) fn is_refused(&self) -> bool {
        self.word(TRAY_REFUSED) != 0
    }

    /// Where the next block of the index log lies. `length`: how long the log is on the storage.
    pub(super) fn next_block(&self, length: impl FnOnce() -> Result<u64>) -> Result<u64> {
        match self.word(INDEX_END) {
            0 => {
                let offset = align_up(length()?);
                self.set_word(TRAY_FROM, offset);
                Ok(offset)
            }
            end => Ok(align_up(end)),
        }
    }

    fn begin(&self) {
        if self.is_empty() {
            self.set_word(TRAY_SINCE, boot_time_ns());
        }
    }

    /// Takes a block of the index log, for which there is room: gives where it ends.
    pub(super) fn put_block(&self, block: &[u8], offset: u64) -> Option<u64> {
        self.begin();
        let at = usize::try_from(offset.checked_sub(self.word(TRAY_FROM))?).ok()?;
        let end = offset + block.len() as u64;
        self.0.write_tray(at, block)?;
        self.0.write_tray(at + block.len(), &[0; 64][..(align_up(end) - end) as usize])?;
        self.set_word(INDEX_END, end);
        Some(end)
    }

    /// Takes bytes of a data log, for which there is room with a header.
    pub(super) fn put_data(
        &self,
        at: &SegmentRef,
        file_name: FileName,
        physical: u64,
        bytes: &[u8],
    ) -> Option<()> {
        self.begin();
        let data = self.word(TRAY_DATA);
        let size = Tray::size_of(bytes.len());
        let from = self.0.tray_bytes().checked_sub(usize::try_from(data).ok()? + size)?;
        let mut header = [0; HEADER];
        header[..8].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
        header[8..16].copy_from_slice(&physical.to_le_bytes());
        header[16..20].copy_from_slice(&at.segment.to_le_bytes());
        header[20..22].copy_from_slice(&at.stream.to_le_bytes());
        header[22..24].copy_from_slice(&at.backend.to_le_bytes());
        header[24] = u8::from(file_name == FileName::New);
        self.0.write_tray(from, &header)?;
        self.0.write_tray(from + HEADER, bytes)?;
        self.set_word(TRAY_DATA, data + size as u64);
        Some(())
    }

    /// What so many bytes of a data log take.
    pub(super) fn size_of(bytes: usize) -> usize {
        HEADER + bytes.next_multiple_of(8)
    }

    /// All bytes of data logs, in no order. What lies about its length ends it.
    fn held(&self) -> Vec<Held> {
        let (all, data) = (self.0.tray_bytes(), self.word(TRAY_DATA) as usize);
        let (mut at, mut held) = (all.saturating_sub(data), Vec::new());
        while at < all {
            let mut header = [0; HEADER];
            let Some(()) = self.0.read_tray(at, &mut header) else { break };
            let number = |range: std::ops::Range<usize>| {
                let mut bytes = [0; 8];
                bytes[..range.len()].copy_from_slice(&header[range]);
                u64::from_le_bytes(bytes)
            };
            let length = number(0..8) as usize;
            if length > all - at {
                break;
            }
            held.push(Held {
                at: SegmentRef {
                    set: self.word(SET) as u32,
                    stream: number(20..22) as u16,
                    segment: number(16..20) as u32,
                    backend: number(22..24) as u16,
                },
                file_name: if header[24] == 1 { FileName::New } else { FileName::Known },
                physical: number(8..16),
                from: at + HEADER,
                length,
            });
            at += Tray::size_of(length);
        }
        held
    }

    /// The index log from `from` on, as far as it is in the tray: where that begins, and its bytes.
    /// `None`: as long as the node has said nothing, nobody knows where it would.
    pub(super) fn index_from(&self, from: u64) -> Option<(u64, Vec<u8>)> {
        let (begin, end) = (self.word(TRAY_FROM), self.word(INDEX_END));
        if end == 0 {
            return None;
        }
        let first = from.max(begin);
        let mut bytes = vec![0; usize::try_from(end.saturating_sub(first)).ok()?];
        if !bytes.is_empty() {
            self.0.read_tray(usize::try_from(first - begin).ok()?, &mut bytes)?;
        }
        Some((first, bytes))
    }

    /// What there is of `length` bytes of a data log: offsets among them, and bytes.
    pub(super) fn data_of(&self, of: &SegmentRef, physical: u64, length: usize) -> Vec<HeldData> {
        let (mut found, end) = (Vec::new(), physical + length as u64);
        for held in self.held().iter().filter(|held| held.at == *of) {
            let first = held.physical.max(physical);
            let last = (held.physical + held.length as u64).min(end);
            if first < last {
                let mut bytes = vec![0; (last - first) as usize];
                let from = held.from + (first - held.physical) as usize;
                if self.0.read_tray(from, &mut bytes).is_some() {
                    found.push(((first - physical) as usize, bytes));
                }
            }
        }
        found
    }

    /// Gives all of it to the storage. What fails leaves it as it is, for the next one.
    pub(super) fn carry(&self, logs: &dyn Logs) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        let carried = self.carry_all(logs);
        // RLIMIT_FSIZE of this process says nothing to others.
        if !carried.as_ref().is_err_and(|error| error.errno() == Errno::FBIG) {
            self.set_word(TRAY_REFUSED, u64::from(carried.is_err()));
        }
        carried
    }

    fn carry_all(&self, logs: &dyn Logs) -> Result<()> {
        let damaged = || Error::invalid(Errno::IO, "what lies in shared memory is no tray");
        let mut held = self.held();
        held.sort_unstable_by_key(|held| (held.at, held.physical));
        let follows =
            |a: &Held, b: &Held| a.at == b.at && a.physical + a.length as u64 == b.physical;
        for run in held.chunk_by(follows) {
            let mut bytes = vec![0; run.iter().map(|held| held.length).sum()];
            let mut to = 0;
            for held in run {
                let part = &mut bytes[to..to + held.length];
                self.0.read_tray(held.from, part).ok_or_else(damaged)?;
                to += held.length;
            }
            let (first, at) = (&run[0], &run[0].at);
            let (file, path) = logs.segment(at)?;
            store::write_full(file.as_ref(), &bytes, first.physical)
                .at("write the data log", &path)?;
            let is_new = run.iter().any(|held| held.file_name == FileName::New);
            let file_name = if is_new { FileName::New } else { FileName::Known };
            mark_unsynced(self.0.words(), at.stream, at.segment, file_name);
        }
        if self.index_bytes() > 0 {
            let (from, bytes) = self.index_from(0).ok_or_else(damaged)?;
            let (file, path) = logs.index()?;
            store::write_full(file.as_ref(), &bytes, from).at("append to the index log", &path)?;
        }
        self.set_word(TRAY_DATA, 0);
        // One word, so that whoever dies here has carried it or has not.
        self.set_word(TRAY_FROM, align_up(self.word(INDEX_END)));
        Ok(())
    }
}

/// The logs of a container that nobody writes: those that lie in its directory, and if somebody has
/// it open those on other backends.
pub(super) struct LogsBelow<'a> {
    pub store: &'a dyn Store,
    pub dir: &'a Path,
    pub set: u32,
    /// Whose they are.
    pub uid: u32,
    pub of: Option<&'a Container>,
}

impl LogsBelow<'_> {
    fn open(&self, path: PathBuf) -> Result<(Arc<dyn StoreFile>, PathBuf)> {
        self.open_by(self.store, path)
    }

    fn open_by(&self, store: &dyn Store, path: PathBuf) -> Result<(Arc<dyn StoreFile>, PathBuf)> {
        let file = store.open(&path, Open::READ_WRITE).at("open", &path)?;
        // In a file that all may write anybody can make a mark for a log set of somebody else.
        let acts_for_another = store.user() != self.uid;
        if acts_for_another && file.stat().at("stat", &path)?.uid != self.uid {
            return Err(Errno::PERM).at("write what another user has in shared memory to", &path);
        }
        Ok((file, path))
    }
}

impl Logs for LogsBelow<'_> {
    fn index(&self) -> Result<(Arc<dyn StoreFile>, PathBuf)> {
        self.open(self.dir.join(name::index_log(self.set)))
    }

    fn segment(&self, at: &SegmentRef) -> Result<(Arc<dyn StoreFile>, PathBuf)> {
        match (at.backend, self.of.filter(|of| *of.dir == *self.dir)) {
            (0, _) => self.open(self.dir.join(name::data_log(at))),
            // By its own store, which knows the directory there.
            (_, Some(of)) => self.open_by(of.store.as_ref(), of.segment_path(at)?),
            // Only who has the container open knows where.
            _ => Err(Errno::XDEV).at("open a data log of", self.dir),
        }
    }
}
