//! Where the file ends for the processes of a node, which write, append and cut it side by side
//! (SEMANTICS S11).
//!
//! The index logs have an order, by stamps; the page has another, in which the end of file changes.
//! Both must be one, or an append goes over what another process has written, or leaves a gap. And
//! nobody may wait for anybody's data. So:
//!
//! - A write first asks which [era](Era) it is: how many truncates there were. It says how far it
//!   reaches, then takes its stamp, then asks whether a truncate has begun meanwhile. If none has,
//!   each later one has a later stamp, and sets the end of file after it. If one has, the write is
//!   said again behind it.
//! - An append gives its bytes to the log before it has a place in the file: what fails needs none.
//!   It takes its stamp, is counted, and takes its place at the end of file. Who reaches over it is
//!   later, and gets a later stamp, because it sees that somebody has appended since its record was
//!   begun.
//! - A truncate holds a lock while it takes its stamp and appends its record. It sets the end of
//!   file only then: if it fails or its process dies, the next who comes asks the index log.

use plfs_format::MAX_OFFSET;
use plfs_format::index_log::{Record, decode_block};

use super::LogSet;
use super::page::{
    APPENDED, CLOCK, CUT, CUT_FROM, CUT_SINCE, CUTS, CUTS_DONE, EOF_WORDS, EOFS, Guard, INDEX_END,
    WRITTEN,
};
use crate::error::{At, Error, Result};
use crate::log::index_log::scan;
use crate::store::shm::WORDS;
use crate::sync::Word;
use crate::sync::plain::atomic::Ordering;

/// A time between two truncates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Era {
    /// How many truncates have begun and ended, twice.
    cuts: u64,
    /// How many of them have cut the file.
    done: u64,
}

impl Era {
    /// Whether no truncate that counts lies between the two.
    pub fn is_uncut(self, other: Era) -> bool {
        self.done == other.done
    }

    /// The end of file as `next` makes it of what it is in this era. `None` if `next` says so, or
    /// if the word is a later era's.
    fn change_eof(
        self,
        words: &[Word; WORDS],
        mut next: impl FnMut(u64) -> Option<u64>,
    ) -> Option<u64> {
        let (word, turn) = eof_word(words, self.done);
        let mut now = word.load(Ordering::SeqCst);
        loop {
            // After the load: what is exchanged is this era's, unless the word has come round to
            // the same value meanwhile, after twice as many truncates as there are words.
            if now & TURN != turn || words[CUTS_DONE].load(Ordering::SeqCst) != self.done {
                return None;
            }
            let was = now & !TURN;
            let next = next(was)?.min(MAX_OFFSET) | turn;
            match word.compare_exchange(now, next, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return Some(was),
                Err(other) => now = other,
            }
        }
    }
}

/// In a word of an end of file: in which turn through the words it was set.
const TURN: u64 = 1 << 63;
const _: () = assert!(MAX_OFFSET < TURN);

/// The word of the end of file after so many truncates that count, and its turn.
fn eof_word(words: &[Word; WORDS], done: u64) -> (&Word, u64) {
    let turn = if (done / EOF_WORDS as u64).is_multiple_of(2) { 0 } else { TURN };
    (&words[EOFS + done as usize % EOF_WORDS], turn)
}

/// A truncate under way: who writes waits. Dropped before it is [done](Cutting::done), it leaves it
/// to the next who comes to ask the index log what became of it.
pub struct Cutting<'a> {
    words: &'a [Word; WORDS],
    _lock: Guard<'a>,
}

/// The file is made longer.
pub struct Growing<'a> {
    _lock: Guard<'a>,
}

impl<'a> Cutting<'a> {
    fn begin(words: &'a [Word; WORDS], lock: Guard<'a>) -> Cutting<'a> {
        for (word, of) in [(CUT_FROM, INDEX_END), (CUT_SINCE, CLOCK)] {
            words[word].store(words[of].load(Ordering::SeqCst), Ordering::SeqCst);
        }
        words[CUTS].fetch_add(1, Ordering::SeqCst);
        Cutting { words, _lock: lock }
    }

    /// Where the file ends for the node: for all who write, as nobody does meanwhile.
    fn eof(&self) -> u64 {
        let done = self.words[CUTS_DONE].load(Ordering::SeqCst);
        eof_word(self.words, done).0.load(Ordering::SeqCst) & !TURN
    }

    /// Says that the file was cut to `size`, with this stamp: the index log has it.
    pub fn done(self, size: u64, stamp: u64) {
        set(self.words, size, stamp);
        self.words[CUTS].fetch_add(1, Ordering::SeqCst);
    }
}

/// Under the lock, while [`CUTS`] is odd.
fn set(words: &[Word; WORDS], size: u64, stamp: u64) {
    let done = words[CUTS_DONE].load(Ordering::SeqCst) + 1;
    let (word, turn) = eof_word(words, done);
    word.store(size.min(MAX_OFFSET) | turn, Ordering::SeqCst);
    // In this order: who dies in between has not said that the truncate counts, and it is done
    // again.
    words[CUTS_DONE].store(done, Ordering::SeqCst);
    words[CUT].fetch_max(stamp, Ordering::SeqCst);
}

/// The end of the file for the processes of a node, as who writes asks for it and moves it.
#[derive(Clone, Copy)]
pub struct Eof<'a> {
    set: &'a LogSet,
    words: &'a [Word; WORDS],
}

impl Eof<'_> {
    /// Which era it is. Waits for a truncate that is under way, which takes as long as one append
    /// to the index log; three loads else.
    #[inline]
    pub fn era(self) -> Result<Era> {
        match self.era_now() {
            Some(era) => Ok(era),
            None => self.wait_for_era(),
        }
    }

    /// `None` while somebody truncates.
    #[inline]
    fn era_now(self) -> Option<Era> {
        let cuts = self.words[CUTS].load(Ordering::SeqCst);
        let era = Era { cuts, done: self.words[CUTS_DONE].load(Ordering::SeqCst) };
        (cuts.is_multiple_of(2) && self.is_still(era)).then_some(era)
    }

    /// Waits for a truncate that is under way: one load if there is none.
    #[inline]
    pub fn let_cut_pass(self) -> Result<()> {
        match self.words[CUTS].load(Ordering::SeqCst).is_multiple_of(2) {
            true => Ok(()),
            false => self.wait_for_era().map(|_| ()),
        }
    }

    #[cold]
    fn wait_for_era(self) -> Result<Era> {
        loop {
            if !self.words[CUTS].load(Ordering::SeqCst).is_multiple_of(2) {
                drop(self.set.lock_for_cut()?);
            }
            if let Some(era) = self.era_now() {
                return Ok(era);
            }
        }
    }

    /// Whether no truncate has begun since it was this era.
    #[inline]
    pub fn is_still(self, era: Era) -> bool {
        self.words[CUTS].load(Ordering::SeqCst) == era.cuts
    }

    /// How many O_APPEND writes have their stamp, those that have their place among them. A write
    /// that [reaches](Eof::reached) over one must have a later stamp.
    #[inline]
    pub fn appended(self) -> u64 {
        self.words[APPENDED].load(Ordering::SeqCst)
    }

    /// The place of an O_APPEND write of up to `bytes` bytes in this era: offset and length. It is
    /// the node's end of file, moved on in the same step, and 0 in a new page until someone has
    /// said how far the file [reaches](LogSet::follow). No file is longer than `most`. Nothing if
    /// the era is over, and its word another's.
    pub fn append_position(self, era: Era, bytes: u64, most: u64) -> (u64, u64) {
        // A hostile summary may say a size that no file has.
        let fit = |at: u64| most.saturating_sub(at).min(bytes);
        match era.change_eof(self.words, |at| Some(at + fit(at))) {
            Some(at) => (at, fit(at)),
            None => (0, 0),
        }
    }

    /// Says that the file reaches `end` at least in this era. For a write: before it has its stamp.
    #[inline]
    pub fn reached(self, era: Era, end: u64) {
        let end = end.min(MAX_OFFSET);
        era.change_eof(self.words, |at| (at < end).then_some(end));
    }
}

impl LogSet {
    /// The end of the file for the node.
    #[inline]
    pub fn eof(&self) -> Eof<'_> {
        Eof { set: self, words: self.shared.words() }
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
        // It failed, or its process died. It counts if the log has it.
        let (mut stamp, mut size) = (words[CUT_SINCE].load(Ordering::SeqCst), None);
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
            set(words, size, stamp);
        }
        words[CUTS].fetch_add(1, Ordering::SeqCst);
        Ok(lock)
    }

    /// The stamp of a record of data.
    pub fn stamp(&self) -> u64 {
        let stamp = self.tick();
        self.shared.words()[WRITTEN].fetch_max(stamp, Ordering::SeqCst);
        stamp
    }

    /// The stamp of an O_APPEND write, to be taken before its place, and how many had one before.
    pub fn stamp_of_append(&self) -> (u64, u64) {
        let stamp = self.stamp();
        (stamp, self.shared.words()[APPENDED].fetch_add(1, Ordering::SeqCst))
    }

    /// Says that the file reaches `end` at least. Nobody of the node truncates it, or says this,
    /// until the result is dropped.
    pub fn begin_growth(&self, end: u64) -> Result<Growing<'_>> {
        let growing = Growing { _lock: self.lock_for_cut()? };
        self.eof().reached(self.eof().era()?, end);
        Ok(growing)
    }

    /// Says how long the logs say that the file is, and with which stamp it was cut last. A cut
    /// that the node did not know takes its end of file back, unless a process of the node has
    /// begun a record behind the cut, which may reach as far. What was seen before a cut that the
    /// node knows says nothing. Else the file reaches so far at least.
    pub fn follow(&self, size: u64, cut: u64) -> Result<()> {
        let (words, eof) = (self.shared.words(), self.eof());
        // What is written from now on is behind the cut.
        self.observe(cut);
        loop {
            let era = eof.era()?;
            let known = words[CUT].load(Ordering::SeqCst);
            if cut < known {
                return Ok(());
            }
            if cut == known {
                eof.reached(era, size);
                if eof.is_still(era) {
                    return Ok(());
                }
                continue;
            }
            let lock = self.lock_for_cut()?;
            // Whoever was faster has set the end of file, and others may have appended there.
            if words[CUT].load(Ordering::SeqCst) < cut {
                let cutting = Cutting::begin(words, lock);
                let is_written = words[WRITTEN].load(Ordering::SeqCst) >= cut;
                let least = if is_written { cutting.eof() } else { 0 };
                cutting.done(size.max(least), cut);
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::CommitHorizon;
    use super::super::tests::{DURABLE, Scratch, join};
    use super::*;

    /// A damaged summary says that the file ends where numbers do. The end of file wrapped to 0,
    /// and an append went there, or panicked.
    #[test]
    fn the_end_of_file_does_not_wrap() {
        let scratch = Scratch::new();
        let (config, container) = scratch.container();
        let set = join(&config, &container, CommitHorizon { max_stamp: 0, is_new: true });
        let era = set.eof().era().unwrap();
        set.eof().reached(era, MAX_OFFSET - 1);
        assert_eq!(set.eof().append_position(era, 4, MAX_OFFSET), (MAX_OFFSET - 1, 1));
        assert_eq!(set.eof().append_position(era, 4, MAX_OFFSET), (MAX_OFFSET, 0));
        set.eof().reached(era, u64::MAX);
        assert_eq!(set.eof().append_position(era, 4, MAX_OFFSET), (MAX_OFFSET, 0));
    }

    /// A process died in a truncate, or its truncate failed. Appends go on where the file was cut
    /// to, if the log says that it was; else who had a place before keeps it.
    #[test]
    fn what_became_of_a_truncate_that_nobody_ended_is_in_the_log() {
        let scratch = Scratch::new();
        let (config, container) = scratch.container();
        let set = join(&config, &container, CommitHorizon { max_stamp: 0, is_new: true });
        let old = set.tick();
        // Takes a place, and then somebody dies, who has perhaps told the log.
        let die = |size: Option<u64>, stamp: Option<u64>| {
            let era = set.eof().era().unwrap();
            let (place, _) = set.eof().append_position(era, 10, MAX_OFFSET);
            let cutting = set.begin_cut().unwrap();
            if let Some(size) = size {
                let stamp = stamp.unwrap_or_else(|| set.tick());
                set.append_index(&[], &[Record::Truncate { size, stamp }], DURABLE).unwrap();
            }
            // Others commit before anybody looks.
            set.append_index(&[], &[], DURABLE).unwrap();
            drop(cutting);
            assert!(!set.eof().is_still(era));
            (place, set.eof().era().unwrap().is_uncut(era))
        };
        assert_eq!(die(None, None), (0, true));
        assert_eq!(die(Some(4), None), (10, false));
        // A truncate that was over before this one began.
        assert_eq!(die(Some(1), Some(old)), (4, true));
        assert_eq!(die(Some(7), None), (14, false));
        set.begin_cut().unwrap().done(2, set.tick());
        assert_eq!(set.eof().append_position(set.eof().era().unwrap(), 1, MAX_OFFSET).0, 2);
    }

    /// What the logs say of a cut that the node did not make: its end of file was taken back below
    /// what its processes had written since, or not at all if the cut was older than the tenancy;
    /// and the next stamp of a node whose clock is behind was older than the cut.
    #[test]
    fn a_cut_of_another_node_is_followed_by_its_stamp() {
        let scratch = Scratch::new();
        let (config, container) = scratch.container();
        let set = join(&config, &container, CommitHorizon { max_stamp: 1 << 20, is_new: true });
        let append = || set.eof().append_position(set.eof().era().unwrap(), 10, MAX_OFFSET).0;
        set.follow(100, 5).unwrap();
        set.follow(40, 7).unwrap();
        // From before the second cut.
        set.follow(100, 5).unwrap();
        let ahead = set.tick() + (1 << 40);
        set.follow(30, ahead).unwrap();
        let later = set.tick();
        assert!(later > ahead);
        set.stamp_of_append();
        assert_eq!(append(), 30);
        // Older than the append, which it does not cut.
        set.follow(0, later).unwrap();
        assert_eq!(append(), 40);
        set.follow(0, set.tick()).unwrap();
        assert_eq!(append(), 0);
    }
}
