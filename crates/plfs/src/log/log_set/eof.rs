//! Where the file ends for the processes of a node, which append and cut it side by side
//! (SEMANTICS S11).
//!
//! Nobody waits for anybody's data, so writes are no holders of a lock. They ask how many truncates
//! there were ([`LogSet::cuts`]), say how far they reach, take their stamp, and then ask whether a
//! truncate has begun meanwhile ([`LogSet::is_uncut_since`]). If none has, each later one has a
//! later stamp, and sets the end of file after they did. If one has, they begin anew behind it. So
//! the end of file is what the logs will say, whatever came first.
//!
//! A truncate holds a lock while it takes its stamp and appends its record. It sets the end of file
//! only then: if it fails or its process dies, the next who comes asks the index log whether the
//! record is there.

use plfs_format::index_log::{Record, decode_block};

use super::{CUT, CUT_FROM, CUTS, EOF, FIRST_CUT, Guard, INDEX_END, LogSet, WORDS, scan};
use crate::error::{At, Error, Result};
use crate::sync::Word;
use crate::sync::plain::atomic::Ordering;

/// A truncate under way: who writes waits. Dropped before it is [done](Cutting::done), it leaves it
/// to the next who comes to ask the index log what became of it.
pub struct Cutting<'a> {
    words: &'a [Word; WORDS],
    _lock: Guard<'a>,
}

impl<'a> Cutting<'a> {
    fn begin(words: &'a [Word; WORDS], lock: Guard<'a>) -> Cutting<'a> {
        words[CUT_FROM].store(words[INDEX_END].load(Ordering::SeqCst), Ordering::SeqCst);
        words[CUTS].fetch_add(1, Ordering::SeqCst);
        Cutting { words, _lock: lock }
    }

    /// Says that the file was cut to `size`, with this stamp: the index log has it.
    pub fn done(self, size: u64, stamp: u64) {
        // In this order: who dies in between has not said that the truncate counts.
        self.words[EOF].store(size, Ordering::SeqCst);
        self.words[CUT].store(stamp, Ordering::SeqCst);
        self.words[CUTS].fetch_add(1, Ordering::SeqCst);
    }
}

impl LogSet {
    /// How many truncates have begun and ended, an even number: waits for one that is under way,
    /// which takes as long as one append to the index log. Two loads else.
    pub fn cuts(&self) -> Result<u64> {
        let cuts = self.shared.words()[CUTS].load(Ordering::SeqCst);
        if cuts.is_multiple_of(2) {
            return Ok(cuts);
        }
        let _lock = self.lock_for_cut()?;
        Ok(self.shared.words()[CUTS].load(Ordering::SeqCst))
    }

    /// Whether no truncate has begun since [`LogSet::cuts`] was this.
    pub fn is_uncut_since(&self, cuts: u64) -> bool {
        self.shared.words()[CUTS].load(Ordering::SeqCst) == cuts
    }

    /// Begins a truncate: to be called before it has a stamp. Waits for another one.
    pub fn begin_cut(&self) -> Result<Cutting<'_>> {
        Ok(Cutting::begin(self.shared.words(), self.lock_for_cut()?))
    }

    /// The lock of who truncates, with no truncate left that nobody has ended.
    fn lock_for_cut(&self) -> Result<Guard<'_>> {
        let lock = self.shared.cut().at("lock the shared page of", &self.container.dir)?;
        let words = self.shared.words();
        if words[CUTS].load(Ordering::SeqCst).is_multiple_of(2) {
            return Ok(lock);
        }
        // It failed, or its process died. What it did is done if the log says so.
        let (mut stamp, mut size) = (words[CUT].load(Ordering::SeqCst), None);
        let from = words[CUT_FROM].load(Ordering::SeqCst);
        scan(&self.container, self.set, from, |at, header, bytes| {
            if header.truncates {
                let block = decode_block(header, at, bytes)
                    .map_err(|bad| Error::of_bytes(&self.index_path, bad))?;
                for (_, record) in block.records {
                    if let Record::Truncate { size: to, stamp: then } = record
                        && then > stamp
                    {
                        (stamp, size) = (then, Some(to));
                    }
                }
            }
            Ok(())
        })?;
        if let Some(size) = size {
            words[EOF].store(size, Ordering::SeqCst);
            words[CUT].store(stamp, Ordering::SeqCst);
        }
        words[CUTS].fetch_add(1, Ordering::SeqCst);
        Ok(lock)
    }

    /// Where the next O_APPEND write of `bytes` bytes goes: the node's end of file, moved on in the
    /// same step. It is 0 in a new page until someone has said how far the file
    /// [reaches](LogSet::reached). `None` if a truncate has begun since [`LogSet::cuts`] was `cuts`.
    pub fn append_position(&self, bytes: u64, cuts: u64) -> Option<u64> {
        // In this order: an end of file from behind a truncate comes with another number of them.
        // A hostile summary may say a size that no file has.
        let add = |eof: u64| self.is_uncut_since(cuts).then(|| eof.saturating_add(bytes));
        self.shared.words()[EOF].fetch_update(Ordering::SeqCst, Ordering::SeqCst, add).ok()
    }

    /// Says that the file reaches `end` at least. For a write: after [`LogSet::cuts`], and before
    /// it has its stamp.
    pub fn reached(&self, end: u64) {
        let eof = &self.shared.words()[EOF];
        if eof.load(Ordering::SeqCst) < end {
            eof.fetch_max(end, Ordering::SeqCst);
        }
    }

    /// Takes back what an [append](LogSet::append_position) that ended at `end` did not fill: the
    /// file ends at `filled` instead, unless others have appended behind it, or a truncate has begun
    /// since [`LogSet::cuts`] was `cuts`: then the same place may be another's.
    pub fn give_back(&self, end: u64, filled: u64, cuts: u64) {
        // Who was behind stays there, and leaves a hole.
        let back = |eof: u64| (eof == end && self.is_uncut_since(cuts)).then_some(filled);
        let _ = self.shared.words()[EOF].fetch_update(Ordering::SeqCst, Ordering::SeqCst, back);
    }

    /// Says how long the logs say that the file is, and with which stamp it was cut last. A cut
    /// that the node did not know takes its end of file back: what its processes have appended
    /// and not committed is older, and will be cut. What was seen before a cut that the node knows
    /// says nothing. Else the file reaches so far at least.
    pub fn follow(&self, size: u64, cut: u64) -> Result<()> {
        let words = self.shared.words();
        loop {
            let cuts = self.cuts()?;
            let known = words[CUT].load(Ordering::SeqCst);
            if cut > known {
                let lock = self.lock_for_cut()?;
                // Whoever was faster has set the end of file, and others may have appended there.
                if words[CUT].load(Ordering::SeqCst) < cut {
                    Cutting::begin(words, lock).done(size, cut);
                    return Ok(());
                }
                continue;
            }
            if cut < known && known != words[FIRST_CUT].load(Ordering::SeqCst) {
                return Ok(());
            }
            let reach = |eof: u64| self.is_uncut_since(cuts).then(|| eof.max(size));
            let eof = &words[EOF];
            if eof.fetch_update(Ordering::SeqCst, Ordering::SeqCst, reach).is_ok() {
                return Ok(());
            }
        }
    }
}
