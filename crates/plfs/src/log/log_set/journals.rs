//! The journals of the processes of a node (docs/decisions/0024): a file each, beside the page that
//! they share, which has a bit for each of them.
//!
//! A process that writes sets a bit and makes the file; when it leaves it removes the file and
//! clears the bit. So who finds a bit and gets the lock of the file is the heir of a dead process.
//! He joins the tenancy and says for it what it can say no more. Who is the last to leave looks for
//! such before the mark goes.

use std::path::{Path, PathBuf};

use plfs_format::name::SegmentRef;
use plfs_index::{block_of, in_blocks};

use super::durable::{FileName, mark_unsynced};
use super::mark::read_mark;
use super::page::{JOURNAL_BITS, JOURNALS, NONCE, READY, SET, Shared, dir_of, page_path};
use super::tray::Logs;
use super::{Durability, LogSet};
use crate::container::{Container, touch_dir};
use crate::error::{At, Error, Result, is_of_descriptors};
use crate::log::journal::{Found, Journal, Left, SPARE_NAME, inherit};
use crate::store::locked_memory::{Inherited, LockedMemory};
use crate::store::shm::{SharedPage, WORDS};
use crate::store::{self, Errno, PosixStore, Store as _};
use crate::sync::plain::atomic::Ordering;
use crate::sync::{Arc, Word};

/// What became of what the dead left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carried {
    /// There was nothing.
    Nothing,
    /// The logs have it.
    InLogs,
    /// The logs have it, and nobody of the node is left: the caller owes a summary.
    InLogsAsLast,
}

fn path_of(page: &Path, number: usize) -> PathBuf {
    let mut name = page.file_name().unwrap_or_default().to_os_string();
    name.push(format!("-{number:x}"));
    page.with_file_name(name)
}

fn bit_of(number: usize) -> (usize, u64) {
    (JOURNAL_BITS + number / 64, 1 << (number % 64))
}

fn set_bits(words: &[Word; WORDS]) -> impl Iterator<Item = usize> + '_ {
    (0..JOURNALS / 64).flat_map(|i| {
        let word = words[JOURNAL_BITS + i].load(Ordering::SeqCst);
        (0..64).filter(move |bit| word & 1 << bit != 0).map(move |bit| i * 64 + bit)
    })
}

impl LogSet {
    /// A journal for a writer of this process; `None` where the processes of the node share no
    /// memory, or too little, or commit all at once. An error if there is only no descriptor to
    /// make it with: without one what is written would go with the process.
    pub fn begin_journal(&self, writer: u32, budget_bytes: usize) -> Result<Option<Arc<Journal>>> {
        // Who explores schedules would explore little else.
        if cfg!(feature = "shuttle") {
            return Ok(None);
        }
        let Shared::Page(page) = &self.shared else { return Ok(None) };
        if page.tray_bytes() > 0 {
            return Ok(None);
        }
        let uid = self.container.store.user();
        let _acting = self.container.store.act();
        for number in 0..JOURNALS {
            let (word, bit) = bit_of(number);
            if page.words()[word].load(Ordering::SeqCst) & bit != 0
                || page.words()[word].fetch_or(bit, Ordering::SeqCst) & bit != 0
            {
                continue;
            }
            let path = path_of(page.path(), number);
            match Journal::create(&path, number, uid, (self.nonce, writer), budget_bytes) {
                Ok(journal) => return Ok(Some(Arc::new(journal))),
                // Of a process that lives in another tenancy, and will find out.
                Err(Errno::EXIST) => {
                    page.words()[word].fetch_and(!bit, Ordering::SeqCst);
                }
                Err(errno) => {
                    page.words()[word].fetch_and(!bit, Ordering::SeqCst);
                    return LogSet::does_without_journal(errno, &path).map(|()| None);
                }
            }
        }
        Ok(None)
    }

    /// Whether a writer goes on though its journal cannot be made at `path`: an error if there is
    /// only no descriptor.
    pub fn does_without_journal(errno: Errno, path: &Path) -> Result<()> {
        match is_of_descriptors(errno) {
            true => Err(errno).at("make the journal", path),
            false => Ok(()),
        }
    }

    /// Ends a journal with nothing in it that is needed.
    pub fn end_journal(&self, journal: Arc<Journal>) {
        let (word, bit) = bit_of(journal.number());
        journal.end();
        self.shared.words()[word].fetch_and(!bit, Ordering::SeqCst);
    }

    /// Whether a dead process of the node has left a journal, and whether one is held. For who is
    /// the last to leave: then only a child of a dead process can hold one, for a moment.
    pub(super) fn journals_left(&self) -> Result<(bool, bool)> {
        let Shared::Page(page) = &self.shared else { return Ok((false, false)) };
        let _acting = self.container.store.act();
        look(page, self.container.store.user())
    }

    /// Says for dead processes of the node what they had not said. Whether there was something.
    ///
    /// Costs a load if no process writes, three calls on shared memory for each that does.
    pub(crate) fn carry_left(&self) -> Result<bool> {
        let Shared::Page(page) = &self.shared else { return Ok(false) };
        let _heir = page.heir().at("lock the shared page of", &self.index_path)?;
        let (uid, mut carried) = (self.container.store.user(), false);
        for number in set_bits(page.words()) {
            let path = path_of(page.path(), number);
            let found = {
                let _acting = self.container.store.act();
                inherit(&path, uid, self.set, self.nonce)
            };
            match found.at("look at the journal", &path)? {
                // Without a file its process is about to make it, or died before.
                Found::None | Found::Held => continue,
                Found::Left(left) => {
                    if !left.is_empty() {
                        self.carry_one(&left)?;
                        carried = true;
                    }
                    left.remove();
                }
                Found::Void => {}
            }
            let (word, bit) = bit_of(number);
            page.words()[word].fetch_and(!bit, Ordering::SeqCst);
        }
        Ok(carried)
    }

    fn carry_one(&self, left: &Left) -> Result<()> {
        for (at, physical, bytes) in &left.bytes {
            let (file, path) = Logs::segment(self, at)?;
            store::write_full(file.as_ref(), bytes, *physical).at("write the data log", &path)?;
        }
        // All that the records point to: what its writer wrote itself may not be marked either.
        for SegmentRef { stream, segment, .. } in &left.segments {
            mark_unsynced(self.shared.words(), *stream, *segment, FileName::New);
        }
        if left.records.is_empty() {
            return Ok(());
        }
        // Nobody has sums of it, by which a reader finds what a power cut took. Without the gate,
        // which other threads hold when they want the index that the caller has locked.
        self.sync_data()?;
        for records in in_blocks(&left.records) {
            let (segments, records) = block_of(&left.segments, records, left.writer);
            self.append_index(&segments, &records, Durability::Durable)?;
        }
        touch_dir(&self.container);
        self.must_own()
    }

    /// The log set of the tenancy that the page at hand names, whose processes may all be dead;
    /// `None` if it is over.
    fn join_tenancy(container: &Arc<Container>, page: SharedPage) -> Result<Option<LogSet>> {
        let shared = Shared::Page(page);
        let words = shared.words();
        let (state, nonce) =
            (words[SET].load(Ordering::SeqCst), words[NONCE].load(Ordering::SeqCst));
        let set = state as u32;
        let is_there = state & READY != 0
            && read_mark(container, set)?.is_some_and(|mark| mark.nonce == nonce);
        Ok(is_there.then(|| LogSet::of_parts(container.clone(), shared, set, nonce)))
    }
}

/// The container's directory by a page of user `uid`, beside which a dead process has left a
/// journal.
pub(crate) fn dir_with_left(page: &Path, uid: u32) -> Result<Option<PathBuf>> {
    let found = SharedPage::peek(page, uid).at("look at the shared page", page)?;
    let Some(page) = found.filter(|page| set_bits(page.words()).next().is_some()) else {
        return Ok(None);
    };
    Ok(if look(&page, uid)?.0 { dir_of(page.words()) } else { None })
}

/// Removes what dead processes of user `uid` have left that is nobody's: journals of no writer, and
/// those whose page somebody has removed, so that nobody knows their containers.
pub(crate) fn remove_stray_journals(dir: &Path, uid: u32) {
    let Ok(entries) = PosixStore::new().list(dir) else { return };
    let names = entries.iter().filter_map(|entry| entry.name.to_str());
    for name in names.filter(|name| name.starts_with(&format!("plfs-{uid}-"))) {
        let Some((page, number)) = name.rsplit_once('-') else { continue };
        let is_journal = page.split('-').count() == 5 && usize::from_str_radix(number, 16).is_ok();
        let has_no_page =
            || SharedPage::peek(&dir.join(page), uid).is_ok_and(|page| page.is_none());
        let is_spare = name.starts_with(&format!("plfs-{uid}-{SPARE_NAME}-"));
        let path = dir.join(name);
        if (is_spare || (is_journal && has_no_page()))
            && matches!(LockedMemory::look(&path, uid), Ok(Inherited::Left(())))
        {
            SharedPage::remove_file(&path);
        }
    }
}

/// Removes the journals beside a page whose tenancy is over.
pub(super) fn remove_journals(page: &SharedPage) {
    set_bits(page.words()).for_each(|number| {
        SharedPage::remove_file(&path_of(page.path(), number));
    });
}

/// Whether one of the journals beside a page was left by a dead process, and whether one is held.
pub(super) fn look(page: &SharedPage, uid: u32) -> Result<(bool, bool)> {
    let (mut is_left, mut is_held) = (false, false);
    for number in set_bits(page.words()) {
        let path = path_of(page.path(), number);
        match LockedMemory::look(&path, uid).at("look at the journal", &path)? {
            Inherited::Left(()) => is_left = true,
            Inherited::Held => is_held = true,
            Inherited::Nothing => {}
        }
    }
    Ok((is_left, is_held))
}

/// Says for processes of this node and user that are dead what they had written to the container
/// and not committed. Waits for another heir that is at it.
///
/// What the store does not take stays, and is an error; but who may not write reads without it.
/// Costs some calls on shared memory, and four for each process that writes.
pub(crate) fn carry_left(container: &Container) -> Result<Carried> {
    let Some(dir) = &container.shared_memory else { return Ok(Carried::Nothing) };
    let (path, uid) = (page_path(container, dir), container.store.user());
    let page = {
        let _acting = container.store.act();
        match SharedPage::peek(&path, uid) {
            Ok(Some(page)) if set_bits(page.words()).next().is_some() => {
                if !look(&page, uid)?.0 {
                    if !page.has_heir() {
                        return Ok(Carried::Nothing);
                    }
                    drop(page.heir());
                    return Ok(Carried::InLogs);
                }
                SharedPage::join_if_there(&path, uid)
            }
            Ok(_) => return Ok(Carried::Nothing),
            Err(errno) => Err(errno),
        }
    };
    let page = match page {
        Ok(Some(page)) => page,
        // There may be something.
        Err(errno) if is_of_descriptors(errno) => {
            return Err(errno).at("look at the shared page", &path);
        }
        _ => return Ok(Carried::Nothing),
    };
    let container = Arc::new(container.through(container.store.clone()));
    let Some(set) = LogSet::join_tenancy(&container, page)? else {
        return Ok(Carried::Nothing);
    };
    match set.carry_left() {
        Ok(_) => {}
        // Dropped and not left: it would end the tenancy.
        Err(Error::Io { errno: Errno::ROFS | Errno::ACCESS | Errno::PERM, .. }) => {
            return Ok(Carried::Nothing);
        }
        Err(error) => return Err(error),
    }
    match set.leave()? {
        true => Ok(Carried::InLogsAsLast),
        false => Ok(Carried::InLogs),
    }
}

/// Removes the journals of this process that no writer has: before it ends, forks or becomes
/// another program.
pub(crate) fn forget_spare_journals() {
    Journal::forget_spare();
}
