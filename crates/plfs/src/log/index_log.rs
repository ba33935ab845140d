//! Reading index logs: whole, or from where the last look ended (FORMAT.md section 3, "Torn
//! tails").
//!
//! A log is read in windows, so that what it takes in memory does not depend on its length, which
//! may say anything. A window grows to the length of a block if the block's header is right, and
//! the format bounds that to 16 MiB. Holes of the file are not read.

use std::path::{Path, PathBuf};
use std::time::Duration;

use plfs_format::index_log::{
    ALIGN, At as Place, HEADER_BYTES, Header, LogId, align_up, begins_at, block_at, header_at,
    is_torn,
};
use plfs_format::{Bad, name};

use crate::container::Container;
use crate::error::{At, Error, Result};
use crate::store::{self, Errno, Links, Open, StoreFile};
use crate::sync::thread;

/// Bytes that are read at once. 4 MiB: an object of CephFS; most logs are shorter.
const WINDOW_BYTES: usize = 4 << 20;

/// What a reader puts up with before it refuses a log as corrupt.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Bytes that are there, follow each other, and have no valid block in them. 4 GiB: more than
    /// any node loses at once in a power cut; they take a second or two to read.
    barren_bytes: u64,
    /// Bytes of payloads whose checksum does not fit behind a header that is right, as long as
    /// they are not more than four times the log: 1 GiB. A crash leaves one such block of at most
    /// 16 MiB; a log of nothing but headers that claim as much would cost the square of its
    /// length.
    failed_bytes: u64,
}

const LIMITS: Limits = Limits { barren_bytes: 4 << 30, failed_bytes: 1 << 30 };

/// What stands at an offset of an index log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// A valid block, and the bytes from its header on.
    Block(Header, &'a [u8]),
    /// This many bytes in which no valid block starts. If `torn` they are what a crash left of an
    /// append; else they were a block once.
    Gap { bytes: u64, torn: bool },
    /// The rest of the log, which nobody looked at, and why.
    Refused(&'static str),
}

/// How far an index log was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scan {
    /// Where it ends for now: a later look starts there.
    pub end: u64,
    /// Its length; where the look started, if it is shorter.
    pub length: u64,
}

/// Calls `visit(offset, header, bytes from the block on)` for every valid block of an index log
/// from `offset` on. Bytes that are no block are skipped. `None` if there is no such log:
/// nothing was appended yet, or the set is gone. A new listing tells which.
pub fn scan(
    container: &Container,
    set: u32,
    offset: u64,
    mut visit: impl FnMut(u64, Header, &[u8]) -> Result<()>,
) -> Result<Option<Scan>> {
    scan_pieces(container, set, offset, |at, piece| match piece {
        Piece::Block(header, bytes) => visit(at, header, bytes),
        Piece::Gap { .. } | Piece::Refused(_) => Ok(()),
    })
}

/// A data log with bytes whose log set has no index log. That is made before the first data log, so
/// it is lost: nobody may take the bytes for garbage, or begin another index log in its place.
///
/// `None` if there is an index log, or there are no bytes. A stat; without an index log a listing
/// on each backend.
pub fn unexplained(container: &Container, set: u32) -> Result<Option<PathBuf>> {
    let store = container.store.as_ref();
    let index = container.path(&name::index_log(set));
    match store.stat(&index, Links::Stay) {
        Err(Errno::NOENT) => {}
        other => return other.at("stat", &index).map(|_| None),
    }
    for dir in container.backend_dirs()? {
        let dir = dir.join(name::log_set(set));
        let entries = match store.list(&dir) {
            Err(Errno::NOENT) => continue,
            other => other.at("list", &dir)?,
        };
        for entry in entries {
            let path = dir.join(&entry.name);
            let is_data =
                entry.name.to_str().is_some_and(|name| name::parse_data_log(name).is_some());
            if is_data && store.stat(&path, Links::Stay).is_ok_and(|stat| stat.len > 0) {
                return Ok(Some(path));
            }
        }
    }
    Ok(None)
}

/// [`scan`] for who relies on the records: also fails, with Corrupt, where a block is damaged that
/// was whole once, or is not younger than the one before it, past `offset`. What a crash
/// tore is skipped as ever.
pub fn scan_whole(
    container: &Container,
    set: u32,
    offset: u64,
    mut visit: impl FnMut(u64, Header, &[u8]) -> Result<()>,
) -> Result<Option<Scan>> {
    let corrupt = |at_bytes, what| {
        Err(Error::Corrupt {
            path: container.path(&name::index_log(set)),
            bad: Bad::new(at_bytes, what),
        })
    };
    let mut youngest = None;
    scan_pieces(container, set, offset, |at, piece| match piece {
        Piece::Block(header, _) if youngest.replace(header.stamp) >= Some(header.stamp) => {
            corrupt(at, "an index block is not younger than the one before it")
        }
        Piece::Block(header, bytes) => visit(at, header, bytes),
        Piece::Gap { torn: true, .. } => Ok(()),
        Piece::Gap { torn: false, .. } => corrupt(
            at,
            "an index block does not match its checksum; the writes that it recorded are lost",
        ),
        Piece::Refused(why) => corrupt(at, why),
    })
}

/// Calls `visit` for all that an index log consists of from `offset` on, in order. `None` as from
/// [`scan`].
pub fn scan_pieces(
    container: &Container,
    set: u32,
    offset: u64,
    visit: impl FnMut(u64, Piece<'_>) -> Result<()>,
) -> Result<Option<Scan>> {
    scan_pieces_at(container, &container.path(&name::index_log(set)), set, offset, visit)
}

/// How long a reader waits, in milliseconds, before it reads again what looks damaged, where
/// lookups travel. A client of Ceph 16 that reads a file at its end while another one appends gives
/// what was appended in place of what was asked for; most second looks are right.
const AGAIN_MS: [u64; 4] = [1, 4, 16, 64];

/// [`scan_pieces`] of an index log of `set` that lies elsewhere in the container.
pub fn scan_pieces_at(
    container: &Container,
    path: &Path,
    set: u32,
    mut offset: u64,
    mut visit: impl FnMut(u64, Piece<'_>) -> Result<()>,
) -> Result<Option<Scan>> {
    if !container.local {
        for wait_ms in AGAIN_MS {
            let mut damaged = None;
            let scan = scan_once(container, path, set, offset, |at, piece| match piece {
                Piece::Gap { torn: false, .. } => {
                    damaged = Some(at);
                    Err(Error::Corrupt { path: path.to_owned(), bad: Bad::new(at, "") })
                }
                _ => visit(at, piece),
            });
            let Some(at) = damaged else { return scan };
            offset = at;
            thread::sleep(Duration::from_millis(wait_ms));
        }
    }
    scan_once(container, path, set, offset, visit)
}

fn scan_once(
    container: &Container,
    path: &Path,
    set: u32,
    offset: u64,
    mut visit: impl FnMut(u64, Piece<'_>) -> Result<()>,
) -> Result<Option<Scan>> {
    // Where lookups travel, only an open makes sure that what is known of a file is not old.
    if container.local
        && offset > 0
        && container.store.stat(path, Links::Follow).is_ok_and(|stat| stat.len <= offset)
    {
        return Ok(Some(Scan { end: offset, length: offset }));
    }
    let file = match container.store.open(path, Open::READ.briefly()) {
        Err(Errno::NOENT) => return Ok(None),
        other => other.at("open the index log", path)?,
    };
    let length = file.stat().at("stat the index log", path)?.len;
    let window = Window { file: file.as_ref(), path, bytes: Vec::new(), start: offset, length };
    walk(window, container.log_id(set), LIMITS, &mut visit).map(Some)
}

/// A part of an index log.
struct Window<'a> {
    file: &'a dyn StoreFile,
    path: &'a Path,
    bytes: Vec<u8>,
    /// Where the bytes are in the log.
    start: u64,
    /// Length of the log, when it was opened, or less if it has become shorter.
    length: u64,
}

impl Window<'_> {
    /// The end of what was read.
    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// What is at `offset`, `want` bytes at least unless the log ends there. Offsets ascend from
    /// call to call.
    fn at(&mut self, offset: u64, want: usize) -> Result<&[u8]> {
        if self.end() < self.length.min(offset.saturating_add(want as u64)) {
            let behind =
                usize::try_from(offset - self.start).unwrap_or(usize::MAX).min(self.bytes.len());
            self.bytes.drain(..behind);
            self.start = offset;
            // At least a whole window more, so that what is kept is moved once in so many bytes.
            let target = offset
                .saturating_add(want as u64)
                .max(self.end().saturating_add(WINDOW_BYTES as u64))
                .min(self.length);
            while self.end() < target {
                let (have, end) = (self.bytes.len(), self.end());
                let more = usize::try_from(target - end).unwrap_or(usize::MAX).min(WINDOW_BYTES);
                self.bytes.reserve_exact(more);
                self.bytes.resize(have + more, 0);
                let n = store::read_full(self.file, &mut self.bytes[have..], end)
                    .at("read the index log", self.path)?;
                self.bytes.truncate(have + n);
                if n < more {
                    self.length = self.end();
                }
            }
        }
        Ok(&self.bytes
            [usize::try_from(offset - self.start).unwrap_or(usize::MAX).min(self.bytes.len())..])
    }

    /// Where data begins at or after `offset`, which was not read yet: what lies between is a hole
    /// of the file.
    fn next_data(&self, offset: u64) -> Result<u64> {
        let next = self.file.next_data(offset).at("look for data in the index log", self.path)?;
        Ok(next.map_or(self.length, |next| (next - next % ALIGN).clamp(offset, self.length)))
    }
}

fn walk(
    mut window: Window<'_>,
    log: LogId,
    limits: Limits,
    visit: &mut dyn FnMut(u64, Piece<'_>) -> Result<()>,
) -> Result<Scan> {
    let from = window.start;
    let (mut at, mut end, mut gap) = (from, from, None::<Gap>);
    let (mut barren, mut failed) = (0u64, 0u64);
    while at < window.length {
        if at >= window.end()
            && barren >= WINDOW_BYTES as u64
            && let Some(gap) = &mut gap
        {
            let data = window.next_data(at)?;
            gap.skip(data - at);
            at = data;
            if at >= window.length {
                break;
            }
        }
        let bytes = window.at(at, HEADER_BYTES)?;
        if bytes.is_empty() {
            break;
        }
        let (is_ours, header) = (begins_at(log, at, bytes), header_at(log, at, bytes));
        if let Some(header) = header.filter(|header| at + header.bytes() as u64 <= window.length) {
            let bytes = window.at(at, header.bytes())?;
            if let Place::Block(header) = block_at(log, at, bytes) {
                if let Some(gap) = gap.take() {
                    gap.end(log, visit)?;
                }
                visit(at, Piece::Block(header, bytes))?;
                at += header.block_bytes;
                (end, barren) = (at, 0);
                continue;
            }
            failed += header.bytes() as u64;
        }
        let bytes = window.at(at, HEADER_BYTES)?;
        let bytes = &bytes[..bytes.len().min(ALIGN as usize)];
        if (is_ours || gap.is_none())
            && let Some(gap) = gap.replace(Gap::new(at, header))
        {
            gap.end(log, visit)?;
        }
        if let Some(gap) = &mut gap {
            gap.push(bytes);
        }
        barren += ALIGN;
        let refused = match () {
            () if barren > limits.barren_bytes => Some(
                "the index log is longer than its blocks explain: nothing in the next gigabytes \
                 is a block; put it back from a copy",
            ),
            () if failed > limits.failed_bytes && failed / 4 > at - from => Some(
                "the index log is full of headers without their blocks; put it back from a copy",
            ),
            () => None,
        };
        if let Some(why) = refused {
            visit(gap.map_or(at, |gap| gap.start), Piece::Refused(why))?;
            // The last block's padding may be cut off; the next block starts aligned all the same.
            return Ok(Scan { end: align_up(end), length: window.length.max(from) });
        }
        at += ALIGN;
    }
    if let Some(gap) = gap {
        gap.end(log, visit)?;
    }
    Ok(Scan { end: align_up(end), length: window.length.max(from) })
}

/// Bytes in which no valid block starts: from the first of them, or from where a header begins, to
/// the next such place or a valid block.
struct Gap {
    start: u64,
    length: u64,
    /// How far it goes without its last zeros.
    written: u64,
    /// Its first bytes, as many as it takes to tell what it was.
    kept: Vec<u8>,
    keep: usize,
}

impl Gap {
    fn new(start: u64, header: Option<Header>) -> Gap {
        Gap {
            start,
            length: 0,
            written: 0,
            kept: Vec::new(),
            keep: header.map_or(HEADER_BYTES, |header| header.bytes()),
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        self.kept.extend_from_slice(&bytes[..bytes.len().min(self.keep - self.kept.len())]);
        if let Some(last) = bytes.iter().rposition(|byte| *byte != 0) {
            self.written = self.length + last as u64 + 1;
        }
        self.length += bytes.len() as u64;
    }

    /// Adds so many zeros.
    fn skip(&mut self, zeros: u64) {
        let kept = usize::try_from(self.kept.len() as u64 + zeros).unwrap_or(usize::MAX);
        self.kept.resize(kept.min(self.keep), 0);
        self.length += zeros;
    }

    fn end(self, log: LogId, visit: &mut dyn FnMut(u64, Piece<'_>) -> Result<()>) -> Result<()> {
        let torn = is_torn(log, self.start, &self.kept, self.written);
        visit(self.start, Piece::Gap { bytes: self.length, torn })
    }
}

#[cfg(test)]
mod tests {
    use crate::sync::Mutex;
    use std::collections::BTreeMap;

    use plfs_format::Uuid;
    use plfs_format::index_log::{Append, Record, encode_block};

    use super::*;
    use crate::store::{Bytes, LockKind, Stat};

    const LOG: LogId = LogId { uuid: Uuid([7; 16]), set: 3 };

    /// A file of any length that has bytes in some places.
    #[derive(Debug, Default)]
    struct Sparse {
        parts: BTreeMap<u64, Vec<u8>>,
        knows_holes: bool,
        read: Mutex<u64>,
    }

    impl StoreFile for Sparse {
        fn read_at(&self, buf: &mut [u8], offset: u64) -> store::Result<usize> {
            *self.read.lock().unwrap() += buf.len() as u64;
            buf.fill(0);
            for (at, part) in &self.parts {
                for (i, byte) in part.iter().enumerate() {
                    if let Some(to) =
                        (at + i as u64).checked_sub(offset).and_then(|to| buf.get_mut(to as usize))
                    {
                        *to = *byte;
                    }
                }
            }
            Ok(buf.len())
        }
        fn next_data(&self, offset: u64) -> store::Result<Option<u64>> {
            match self.knows_holes {
                false => Ok(Some(offset)),
                true => Ok(self
                    .parts
                    .iter()
                    .find(|(at, part)| **at + part.len() as u64 > offset)
                    .map(|(at, _)| offset.max(*at))),
            }
        }
        fn write_at(&self, _: &[u8], _: u64) -> store::Result<usize> {
            Err(Errno::BADF)
        }
        fn stat(&self) -> store::Result<Stat> {
            Err(Errno::BADF)
        }
        fn set_len(&self, _: u64) -> store::Result<()> {
            Err(Errno::BADF)
        }
        fn sync_data(&self) -> store::Result<()> {
            Err(Errno::BADF)
        }
        fn try_lock(&self, _: LockKind) -> store::Result<bool> {
            Ok(true)
        }
        fn map(&self) -> store::Result<Bytes> {
            Err(Errno::NODEV)
        }
    }

    /// A block with `writers` records that mean nothing, 288 bytes each, the last of which is not
    /// zero.
    fn block(offset: u64, writers: usize) -> Vec<u8> {
        let record = Record::Writer {
            writer: 1,
            pid: 1,
            uid: 1,
            attached_ns: 1,
            boot_id: 1,
            host: "h".repeat(245),
        };
        encode_block(
            LOG,
            Append { offset, stamp: offset + 1, ..Append::default() },
            &[],
            &vec![record; writers],
        )
        .unwrap()
    }

    /// What is seen of a log, as text, and the scan.
    fn seen(file: &Sparse, length: u64, limits: Limits) -> (Vec<String>, Scan) {
        let mut all = Vec::new();
        let window = Window { file, path: Path::new("/log"), bytes: Vec::new(), start: 0, length };
        let scan = walk(window, LOG, limits, &mut |at, piece| {
            all.push(match piece {
                Piece::Block(..) => format!("block {at}"),
                Piece::Gap { bytes, torn } => {
                    format!("gap {at}+{bytes} {}", if torn { "torn" } else { "damaged" })
                }
                Piece::Refused(why) => format!("refused {at} {}", &why[..40]),
            });
            Ok(())
        });
        (all, scan.unwrap())
    }

    /// An index log of 15 TiB, all of it a hole but two blocks, was read into memory of that
    /// length: every program that looked at the file was aborted, and so was a mount's daemon.
    #[test]
    fn a_hole_of_terabytes_is_not_read() {
        const FAR: u64 = 10 << 40;
        let mut file = Sparse { knows_holes: true, ..Sparse::default() };
        file.parts.insert(0, block(0, 1));
        file.parts.insert(FAR, block(FAR, 1));
        let len = file.parts[&0].len() as u64;
        let (all, scan) = seen(&file, 15 << 40, LIMITS);
        assert_eq!(
            all,
            [
                "block 0",
                &format!("gap {len}+{} torn", FAR - len),
                &format!("block {FAR}"),
                &format!("gap {}+{} torn", FAR + len, (5 << 40) - len)
            ]
        );
        assert_eq!(scan, Scan { end: FAR + len, length: 15 << 40 });
        assert!(*file.read.lock().unwrap() < 64 << 20);
    }

    /// Where the file system does not know its holes, a reader gives up after as many bytes as
    /// nobody loses in a crash.
    #[test]
    fn a_log_that_is_longer_than_its_blocks_explain_is_refused() {
        let mut file = Sparse::default();
        file.parts.insert(0, block(0, 1));
        let len = file.parts[&0].len() as u64;
        let limits = Limits { barren_bytes: 10 << 20, ..LIMITS };
        let (all, scan) = seen(&file, 15 << 40, limits);
        assert_eq!(
            all,
            ["block 0", &format!("refused {len} the index log is longer than its blocks ")]
        );
        assert_eq!(scan, Scan { end: len, length: 15 << 40 });
        assert!(*file.read.lock().unwrap() < 32 << 20);
        assert_eq!(
            seen(&file, 9 << 20, limits).0.len(),
            2,
            "a tail of zeros that a power cut left is no reason"
        );
    }

    /// Each 64 bytes begin with a header that claims a block of 16 MiB: the checksum of each was
    /// computed over all of it, 8 TiB for a log of 32 MiB. Headers have a checksum of their
    /// own by now, which takes as many to get right on purpose; nobody shall have to wait for them
    /// either.
    #[test]
    fn headers_that_claim_much_do_not_make_a_scan_quadratic() {
        let mut bytes = vec![0; 1 << 20];
        for at in (0..32 << 10).step_by(64) {
            bytes[at..at + 64].copy_from_slice(&block(at as u64, 200)[..64]);
        }
        let length = bytes.len() as u64;
        let file = Sparse { parts: [(0, bytes.clone())].into(), ..Sparse::default() };
        let (all, scan) = seen(&file, length, Limits { failed_bytes: 8 << 20, ..LIMITS });
        assert!(
            all.last().unwrap().contains("refused") && (100..200).contains(&all.len()),
            "{}",
            all.len()
        );
        assert_eq!(scan.end, 0);
        // Damaged ones cost nothing: what they claim is not looked at.
        for header in bytes.chunks_mut(64) {
            header[12] ^= 1;
        }
        let file = Sparse { parts: [(0, bytes)].into(), ..Sparse::default() };
        let (all, _) = seen(&file, length, Limits { failed_bytes: 0, ..LIMITS });
        assert!(!all.last().unwrap().contains("refused"));
    }

    /// Blocks longer than a window, blocks and cut appends over the edges of windows.
    #[test]
    fn windows_do_not_show() {
        let (mut bytes, mut expect) = (Vec::new(), Vec::new());
        for (i, writers) in
            [1, 15_000, 3, 14_600, 14_563, 14_564, 30_000, 5, 29_200, 2].into_iter().enumerate()
        {
            let at = bytes.len() as u64;
            let block = block(at, writers);
            match i % 3 {
                2 => {
                    // Cut in the middle; the next is appended behind it.
                    bytes.extend_from_slice(&block[..block.len() / 2]);
                    bytes.resize(bytes.len().next_multiple_of(64), 0);
                    expect.push(format!("gap {at}+{} torn", bytes.len() as u64 - at));
                }
                _ => {
                    bytes.extend_from_slice(&block);
                    expect.push(format!("block {at}"));
                }
            }
        }
        let damaged = bytes.len() as u64;
        bytes.extend_from_slice(&block(damaged, 20_000));
        let middle = damaged as usize + (5 << 20);
        bytes[middle] ^= 1;
        expect.push(format!("gap {damaged}+{} damaged", bytes.len() as u64 - damaged));
        let length = bytes.len() as u64;
        assert!(length > 30 << 20);
        let file = Sparse { parts: [(0, bytes)].into(), ..Sparse::default() };
        assert_eq!(seen(&file, length, LIMITS), (expect, Scan { end: damaged, length }));
    }
}
