//! How a process joins its node's log set, founds one or takes one over that nobody owns, and
//! leaves.

use std::collections::HashSet;
use std::path::PathBuf;

use plfs_format::clock::{Clock, Covers};
use plfs_format::index_log::SEGMENT_MAX;
use plfs_format::mark::Mark;
use plfs_format::name::{self, Name};

use super::durable::{FileName, Unsynced};
use super::mark::{claim, is_closed, read_mark, remove_mark};
use super::page::{
    APPENDED, CLOCK, COVERED, CUT, CUTS, CUTS_DONE, DATA_DURABLE, DIR, EOF_WORDS, EOFS, FOUNDING,
    INDEX_END, INDEX_NAMED, INDEX_SYNCED, NONCE, PLACES, READY, SET, SYNC_FAILED, SYNCED, Shared,
    TAILS, TRAY_DATA, TRAY_FROM, TRAY_REFUSED, TRAY_SINCE, UNSYNCED, WRITTEN, pack_tail, put_dir,
    share, too_long,
};
use super::place::PlaceOf;
use super::{GROWTHS, LogSet, open_to_readers};
use crate::config::Config;
use crate::container::{Container, cover_all, log_sets, publish, read_clock, write_clock};
use crate::error::{At, Error, Result};
use crate::log::index_log::{scan, unexplained};
use crate::store::machine::random_u64;
use crate::store::shm::WORDS;
use crate::store::{CachedFile, Errno, Links, Open};
use crate::sync::plain::atomic::Ordering;
use crate::sync::{Arc, Mutex, Word};

/// An index log longer than this is not taken over: whoever does reads it. 1 MiB: some 5,000 short
/// sessions.
const TAKEOVER_MAX_BYTES: u64 = 1 << 20;

/// Names in a container up to which somebody who comes looks for a log set to take over: some 200
/// log sets. A listing of so many is two calls.
const TAKEOVER_NAMES_MAX: usize = 400;

/// Names in a container from which on its founders are held to be there by their marks: some 64
/// log sets. Linux keeps the locks of a directory in a list, and walks it at each lock and at each
/// close: 0.7 ms for 10,000.
const CROWD_NAMES: usize = 128;

/// What only the process knows that founded a tenancy.
struct Founder {
    is_of_crowd: bool,
}

/// What was known about the container when the process joined.
#[derive(Clone, Copy, Debug)]
pub struct CommitHorizon {
    /// Largest stamp in any index log.
    pub max_stamp: u64,
    /// No set was there to take over.
    pub is_new: bool,
}

/// Whether an old log set that nobody owns will do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// It will.
    Any,
    /// It will, and what the node commits may wait in a tray: that of a pack.
    WithTray,
    /// Only a new one will, unless the node has one already.
    New,
}

impl LogSet {
    /// Joins the node's log set, or founds it: takes over a set that nobody owns, unless a new one
    /// is `wanted`, else makes one.
    ///
    /// `complete` is asked of a set before it is taken over: `None` if nobody may append to it,
    /// else a stamp that none of its blocks exceeds.
    ///
    /// [`Error::CloseToOpen`] where the file must not be written.
    ///
    /// Founding costs a listing and the creation of the open mark (docs/decisions/0009); joining
    /// costs a look at the mark.
    pub fn join(
        container: Arc<Container>,
        config: &Config,
        seen: CommitHorizon,
        wanted: Wanted,
        owner: impl Fn() -> Mark,
        complete: impl Fn(&Container, u32) -> Result<Option<u64>>,
    ) -> Result<LogSet> {
        container.must_be_coherent(config)?;
        let with_tray = wanted == Wanted::WithTray;
        let mut shared = share(&container, config, with_tray)?;
        // Opened before anything is created in it: looking it up afterwards could wait for what we
        // created.
        let open = || container.store.open(&container.dir, Open::READ);
        let dir = (!container.local)
            .then(|| container.store.kept_dir().unwrap_or_else(open))
            .transpose()
            .at("open", &container.dir)?;
        let (set, founder) = loop {
            match LogSet::join_locked(&container, &shared, seen, wanted, &owner, &complete)? {
                Some((set, founder)) => {
                    if founder.is_some() {
                        publish(dir.as_deref());
                    }
                    break (set, founder);
                }
                // Whoever still lives there will find out. Nobody else shall meet them.
                None => {
                    if let Shared::Page(page) = &shared {
                        let _guard = page.lock().at("lock the shared page of", &container.dir)?;
                        page.remove();
                    }
                    shared = share(&container, config, with_tray)?;
                }
            }
        };
        let nonce = shared.words()[NONCE].load(Ordering::SeqCst);
        let is_of_crowd = founder.is_some_and(|founder| founder.is_of_crowd);
        Ok(LogSet { dir, is_of_crowd, ..LogSet::of_parts(container, shared, set, nonce) })
    }

    /// The log set of a tenancy, of which this process is a member.
    pub(super) fn of_parts(
        container: Arc<Container>,
        shared: Shared,
        set: u32,
        nonce: u64,
    ) -> LogSet {
        LogSet {
            index: CachedFile::for_writing(container.local),
            index_path: container.path(&name::index_log(set)),
            mark_path: container.path(&name::open_mark(set)),
            container,
            shared,
            set,
            nonce,
            dir: None,
            is_of_crowd: false,
            carried_to: Mutex::default(),
        }
    }

    /// Joins or founds with the page's lock held: the set, and what its founder knows. `None` if
    /// the page is that of a tenancy that has ended: processes that do not know yet still reserve
    /// regions of its set by the page's numbers, which must not become another set's.
    fn join_locked(
        container: &Arc<Container>,
        shared: &Shared,
        seen: CommitHorizon,
        wanted: Wanted,
        owner: impl Fn() -> Mark,
        complete: impl Fn(&Container, u32) -> Result<Option<u64>>,
    ) -> Result<Option<(u32, Option<Founder>)>> {
        let _guard = shared.lock().at("lock the shared page of", &container.dir)?;
        let words = shared.words();
        observe(words, seen.max_stamp);
        let (state, nonce) =
            (words[SET].load(Ordering::SeqCst), words[NONCE].load(Ordering::SeqCst));
        let is_ours = state & (READY | FOUNDING) != 0
            && read_mark(container, state as u32)?.is_some_and(|mark| mark.nonce == nonce);
        match is_ours {
            true if state & READY != 0 => {
                // Other nodes may have set it since this one came; what cannot be read says nothing
                // to a member, whose node knows its own stamps.
                if let Ok(clock) = read_clock(container) {
                    heed(words, clock);
                }
                return Ok(Some((state as u32, None)));
            }
            // Its founder died before it was done, so nobody else is in the page: we are its heir.
            true => remove_mark(container, state as u32)?,
            false if state & READY != 0 => return Ok(None),
            false => {}
        }
        let (set, founder) = {
            let mark = Mark {
                place: shared
                    .place()
                    .at("stat the directory of shared memory for", &container.dir)?,
                ..owner()
            };
            let claim = |set: u32| {
                words[NONCE].store(mark.nonce, Ordering::SeqCst);
                words[SET].store(FOUNDING | u64::from(set), Ordering::SeqCst);
                claim(container, set, &mark)
            };
            put_dir(words, container);
            let wanted = if seen.is_new { Wanted::New } else { wanted };
            let OwnedSet { set, youngest, is_of_crowd } =
                take_over_or_create_set(container, wanted, claim, complete)?;
            // Fenced before the set's directory was there: the set may have been removed, and
            // somebody else's by now.
            if read_mark(container, set)?.is_none_or(|there| there.nonce != mark.nonce) {
                return Err(Error::Fenced { path: container.dir.to_path_buf(), set });
            }
            // Only now that the mark is there: who found none takes it that we know.
            let clock = match read_clock(container) {
                // A power cut tore it. Then the logs have to say what it said.
                Err(Error::Corrupt { .. }) => {
                    newest(container).map(|stamp| Clock { stamp, covers: Covers::Begun })
                }
                other => other,
            };
            let clock = clock.or_else(|error| remove_mark(container, set).and(Err(error)))?;
            if is_of_crowd && clock.stamp == 0 {
                // It tells who wants to remove the container that marks count.
                let stamp = words[CLOCK].load(Ordering::SeqCst).max(1);
                write_clock(container, stamp, false)
                    .or_else(|error| remove_mark(container, set).and(Err(error)))?;
            }
            observe(words, youngest.unwrap_or(0));
            words[COVERED].store(0, Ordering::SeqCst);
            heed(words, clock);
            words[SYNCED].store(0, Ordering::SeqCst);
            // CUTS goes up for ever, so that it never says again what it said once. Nobody is left
            // to ask what became of a truncate that an earlier tenancy did not end.
            let cuts = words[CUTS].load(Ordering::SeqCst);
            words[CUTS].store(cuts.next_multiple_of(2), Ordering::SeqCst);
            for word in [SYNC_FAILED, INDEX_NAMED, INDEX_END, INDEX_SYNCED, DATA_DURABLE]
                .into_iter()
                .chain([CUT, CUTS_DONE, APPENDED, WRITTEN])
                .chain([TRAY_FROM, TRAY_DATA, TRAY_SINCE, TRAY_REFUSED])
                .chain(EOFS..EOFS + EOF_WORDS)
                .chain(UNSYNCED..DIR)
            {
                words[word].store(0, Ordering::SeqCst);
            }
            let tails = if youngest.is_none() {
                vec![(0, None); container.superblock.streams as usize]
            } else {
                tails(container, set)
                    .or_else(|error| remove_mark(container, set).and(Err(error)))?
            };
            for (stream, (tail, place)) in tails.into_iter().enumerate() {
                words[TAILS + stream].store(tail, Ordering::SeqCst);
                words[PLACES + stream].store(place.map_or(0, PlaceOf::pack), Ordering::SeqCst);
                // What earlier owners left may not be durable, and the next sync makes durable what
                // points to it.
                let unsynced = match tail {
                    0 => Unsynced(0),
                    _ => Unsynced(0).with(0, FileName::New),
                };
                words[UNSYNCED + stream].store(unsynced.0, Ordering::SeqCst);
            }
            words[SET].store(READY | u64::from(set), Ordering::SeqCst);
            (set, Founder { is_of_crowd })
        };
        Ok(Some((set, Some(founder))))
    }

    /// Leaves the set. True if this was the node's last process: then the open mark is gone and the
    /// caller owes a summary.
    pub fn leave(self) -> Result<bool> {
        if let Shared::Page(page) = &self.shared {
            let lock = || page.lock().at("lock the shared page of", &self.container.dir);
            let mut guard = lock()?;
            loop {
                if !page.try_be_last() {
                    page.leave();
                    return Ok(false);
                }
                match self.journals_left()? {
                    (false, false) => break,
                    // Of a process that has just died, and its child has not dropped it yet. The
                    // next process of the node comes to it.
                    (false, true) => {
                        page.leave();
                        return Ok(false);
                    }
                    (true, _) => {
                        page.stay().at("lock the shared page of", &self.container.dir)?;
                        drop(guard);
                        self.carry_left()?;
                        guard = lock()?;
                    }
                }
            }
            // What the storage does not take stays where the next process of the node finds it.
            if let Some(tray) = self.tray()
                && let Err(error) = tray.carry(&self)
            {
                page.leave();
                return Err(error);
            }
            // In this order: who dies in between leaves a page whose nonce no mark has, not a mark
            // whose owner nobody knows.
            let left = self.unmark();
            page.remove();
            drop(guard);
            return left;
        }
        self.unmark()
    }

    fn unmark(&self) -> Result<bool> {
        let store = &self.container.store;
        let ended = match self.shared.words()[SYNC_FAILED].load(Ordering::SeqCst) {
            0 => store.unlink(&self.mark_path),
            // Nobody goes on with a set whose syncs say nothing any more.
            _ => {
                store.rename(&self.mark_path, &self.container.path(&name::unsynced_mark(self.set)))
            }
        };
        match ended {
            Ok(()) => {
                publish(self.dir.as_deref());
                Ok(true)
            }
            // The container was removed, or we were fenced: nothing to sum up for us.
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(errno).at("remove", &self.mark_path),
        }
    }
}

/// [`LogSet::observe`].
pub(super) fn observe(words: &[Word; WORDS], stamp: u64) {
    words[CLOCK].fetch_max(stamp.saturating_add(GROWTHS), Ordering::SeqCst);
}

/// Takes note of what the file's clock says.
fn heed(words: &[Word; WORDS], clock: Clock) {
    observe(words, clock.stamp);
    if clock.covers != Covers::Some {
        // Never 0, which says that nobody goes by it.
        words[COVERED].fetch_max(clock.stamp.max(1), Ordering::SeqCst);
    }
}

/// A stamp that no acknowledged commit of the file exceeds, without a look at each log set, if
/// there are so many that it pays: by the file's clock, which is made to say it.
pub fn horizon(container: &Container, config: &Config) -> Result<Option<u64>> {
    match read_clock(container) {
        Ok(Clock { stamp, covers: Covers::All }) => return Ok(Some(stamp)),
        Ok(_) | Err(Error::Corrupt { .. }) => {}
        Err(error) => return Err(error),
    }
    let (_, is_whole) = container.list_some(config.asked_names)?;
    if is_whole {
        return Ok(None);
    }
    Ok(cover_all(container, || newest(container))?.map(|clock| clock.stamp))
}

/// The largest stamp of a block in any index log. Reads them all.
fn newest(container: &Container) -> Result<u64> {
    let mut newest = 0;
    for set in log_sets(container.list()?) {
        scan(container, set, 0, |_, header, _| {
            newest = newest.max(header.stamp);
            Ok(())
        })?;
    }
    Ok(newest)
}

/// A log set that a process has become the founder of.
struct OwnedSet {
    set: u32,
    /// A stamp that none of its blocks exceeds; `None`: it is new.
    youngest: Option<u64>,
    /// The container has many log sets: see [`CROWD_NAMES`].
    is_of_crowd: bool,
}

/// Becomes owner of a set: one without a mark whose index log this user may write, else (or if only
/// that is `wanted`) a new one. Creating the mark exclusively is what makes us the owner.
fn take_over_or_create_set(
    container: &Container,
    wanted: Wanted,
    own: impl Fn(u32) -> Result<bool>,
    complete: impl Fn(&Container, u32) -> Result<Option<u64>>,
) -> Result<OwnedSet> {
    // A file with so many log sets gets no better by a look at all of them for each that comes.
    let (names, is_whole) = match wanted {
        Wanted::Any | Wanted::WithTray => container.list_some(TAKEOVER_NAMES_MAX)?,
        Wanted::New => (Vec::new(), true),
    };
    let is_of_crowd = names.len() > CROWD_NAMES;
    let marked: HashSet<&Name> = names.iter().collect();
    for name in names.iter().filter(|_| is_whole) {
        let Name::LogSet(set) = *name else { continue };
        let marks = [Name::OpenMark(set), Name::Fenced(set), Name::Unsynced(set)];
        if marks.iter().any(|mark| marked.contains(mark)) {
            continue;
        }
        let path = container.path(&name::index_log(set));
        let (uid, len) =
            match container.store.open(&path, Open::READ_WRITE).and_then(|file| file.stat()) {
                Ok(stat) => (stat.uid, stat.len),
                // Whoever made the set died before it had made anything in it; or the index log is
                // lost, and what there is may be put back.
                Err(Errno::NOENT) if unexplained(container, set)?.is_some() => continue,
                Err(Errno::NOENT) => {
                    match container.store.stat(&container.path(&name::log_set(set)), Links::Stay) {
                        Ok(dir) => (dir.uid, 0),
                        Err(_) => continue,
                    }
                }
                Err(_) => continue,
            };
        let ours = uid == container.store.user() && len <= TAKEOVER_MAX_BYTES;
        // The look comes before the mark, because who dies in between leaves a mark whose owner
        // nobody knows.
        if ours
            && let Some(youngest) = complete(container, set)?
            && own(set)?
        {
            // Owned and fenced since the listing: it has had its last owner.
            if is_closed(container, set) {
                remove_mark(container, set)?;
                continue;
            }
            // It may have gone, or got longer, before it was ours.
            let youngest = match container.store.stat(&path, Links::Follow) {
                Ok(now) if now.len == len => Ok(Some(youngest)),
                Ok(_) => complete(container, set),
                Err(Errno::NOENT) if len == 0 => Ok(container
                    .store
                    .stat(&container.path(&name::log_set(set)), Links::Stay)
                    .is_ok()
                    .then_some(youngest)),
                Err(Errno::NOENT) => Ok(None),
                Err(errno) => Err(errno).at("stat the index log", &path),
            };
            match youngest {
                Ok(Some(youngest)) => {
                    return Ok(OwnedSet { set, youngest: Some(youngest), is_of_crowd });
                }
                Ok(None) => remove_mark(container, set)?,
                Err(error) => return remove_mark(container, set).and(Err(error)),
            }
        }
    }
    loop {
        let set = random_u64() as u32;
        if !own(set)? {
            continue;
        }
        if is_closed(container, set) {
            remove_mark(container, set)?;
            continue;
        }
        let dir = container.path(&name::log_set(set));
        match container.store.mkdir(&dir, 0o755) {
            Ok(()) => {
                open_to_readers(container, &dir, container.store.stat(&dir, Links::Stay), 0o755)?;
                return Ok(OwnedSet { set, youngest: None, is_of_crowd });
            }
            Err(Errno::EXIST) => remove_mark(container, set)?,
            Err(errno) => return remove_mark(container, set).and(Err(errno).at("create", &dir)),
        }
    }
}

/// Where each stream of a set goes on: behind the last byte of its last segment, which lies there;
/// in the next one, if its backend takes no new data any more.
fn tails(container: &Container, set: u32) -> Result<Vec<(u64, Option<PlaceOf>)>> {
    let mut last: Vec<Option<(u32, u16, PathBuf)>> =
        vec![None; container.superblock.streams as usize];
    // What lies on a backend that is not there has no record, or the set would not be taken over.
    for (backend, dir) in container.dirs_by_backend()? {
        let dir = dir.join(name::log_set(set));
        let entries = match container.store.list(&dir) {
            Err(Errno::NOENT) => continue,
            other => other.at("list", &dir)?,
        };
        for entry in entries {
            if let Some((stream, segment)) = entry.name.to_str().and_then(name::parse_data_log)
                && let Some(last) = last.get_mut(stream as usize)
                && last.as_ref().is_none_or(|(known, ..)| *known < segment)
            {
                *last = Some((segment, backend, dir.join(&entry.name)));
            }
        }
    }
    let mut tails = Vec::new();
    for last in last {
        tails.push(match last {
            Some((segment, backend, path)) => {
                let tail = match segment < SEGMENT_MAX && !container.is_active(backend) {
                    true => (segment + 1, 0),
                    false => {
                        let stat = container.store.stat(&path, Links::Follow);
                        (segment, stat.at("stat the data log", &path)?.len)
                    }
                };
                (
                    pack_tail(tail).ok_or_else(too_long)?,
                    Some(PlaceOf { segment, backend, target: None }),
                )
            }
            None => (0, None),
        });
    }
    Ok(tails)
}

#[cfg(test)]
mod tests {
    use plfs_format::index_log::Record;

    use super::super::tests::{DURABLE, Scratch, join};
    use super::*;

    /// A process looks at the logs, to take one over; before it does, another node whose clock is
    /// ahead takes it, appends and leaves. The stamps of the first went on from what it
    /// had seen, so the log's last block was older than the one before it, and what it wrote lost
    /// against what was there.
    #[test]
    fn who_takes_a_log_over_goes_on_behind_its_last_block() {
        let scratch = Scratch::new();
        let (config, container) = scratch.container();
        let old = join(&config, &container, CommitHorizon { max_stamp: 1 << 62, is_new: true });
        let cut = |set: &LogSet| {
            set.append_index(&[], &[Record::Truncate { size: 1, stamp: 1 }], DURABLE).unwrap().0
        };
        let stamp = cut(&old);
        assert!(stamp > 1 << 62);
        let id = old.id();
        assert!(old.leave().unwrap());
        let new = join(&config, &container, CommitHorizon { max_stamp: 0, is_new: false });
        assert_eq!(new.id(), id);
        assert!(cut(&new) > stamp);
    }
}
