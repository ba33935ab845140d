//! A pack that a process has open: what was seen of its directory, when what waits is carried and
//! committed, what stands for its name, and what becomes of it when its directory goes.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use plfs_format::pack::{CHANGING, NAME, NAME_MAX};

use super::BELIEVED_NS;
use crate::autocommit::{self, Autocommit};
use crate::error::{Error, Result};
use crate::lifecycle::{Hold, remove_if_nameless};
use crate::pack::{FileId, Pack, PackOptions, Since};
use crate::store::machine::boot_time_ns;
use crate::store::shm::{NOTE_UNIT, NOTES_BYTES, Notes};
use crate::store::{Links, Open, Store, StoreFile};
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::{Arc, Mutex, PoisonError, lock, pause};

/// How long it believes that the directory has no ordinary names but those that it has seen. 1 s:
/// as long as names that other nodes say of the pack.
const SEEN_NS: u64 = 1_000_000_000;

/// Ordinary names of a directory that are [seen](OpenPack::has_not) at most. 4,096: a few calls.
const LISTED_MAX: usize = 4096;

/// A directory with more is listed once a minute: a client of CephFS that has listed one says by
/// itself that a name is not there, as long as no other client makes one (0.06 ms), and asks the
/// metadata server otherwise, each time.
const LIST_RESTS_NS: u64 = 60_000_000_000;

/// A listing rests twenty times as long as it took, so that it costs a twentieth at most.
const LIST_RESTS_TIMES: u64 = 20;

/// How long what the node has said of a pack waits in its memory before the thread that commits
/// carries it to the storage; twice that at most, since the thread looks as often. 50 ms: some
/// hundred files that a process makes meanwhile share two appends (docs/decisions/0023).
const HOLD: Duration = Duration::from_millis(50);

/// Time from a change to its commit, at first; as long as there are more it doubles.
const FIRST: Duration = pause(Duration::from_secs(1));

/// How a process opens packs.
pub(super) fn options() -> PackOptions {
    PackOptions { hold: Some(HOLD), ..PackOptions::default() }
}

/// A pack that the process has open.
#[derive(Debug)]
pub struct OpenPack {
    pack: Pack,
    /// Something was done to it since the last look of the thread that commits.
    has_changed: AtomicBool,
    is_watched: AtomicBool,
    pace: Mutex<Pace>,
    committing: Arc<Mutex<()>>,
    /// Of [`OpenPack::group_of_new`], and when it was asked.
    group: Mutex<Option<(u64, Option<u32>)>>,
    seen: Mutex<Seen>,
    /// Of [`OpenPack::stand_in`], and the directory that it names.
    stand_in: Mutex<Option<(PathBuf, Arc<StandIn>)>>,
    /// Handles of this process on files of it.
    handles: AtomicUsize,
    /// Its directory was removed, and who closes the last file takes it away.
    is_gone: AtomicBool,
    /// From then on: a repair takes what has no name for garbage.
    hold: Mutex<Option<Hold>>,
    /// What made it fail when nobody called: the next one who comes is told.
    untold: Mutex<Option<Error>>,
    /// The pack's name. As long as it is open no other file gets its inode, by which the pack is
    /// known.
    _name: Option<Arc<dyn StoreFile>>,
}

/// What a process has seen of the directory of a pack.
#[derive(Debug, Default)]
struct Seen {
    dir: PathBuf,
    /// When it began to look.
    at: u64,
    /// Of [`Pack::since`], before. `None`: it has not seen all.
    since: Option<Since>,
    names: HashSet<OsString>,
    /// When it looks again.
    due: u64,
}

/// A file in memory that stands for the name of a pack, see [`OpenPack::stand_in`].
#[derive(Debug)]
pub struct StandIn(Notes);

/// What it begins with. Device and inode of the pack's name follow, the directory of the pack, a
/// zero, that of its container, and zeros.
pub const STAND_IN_BEGINS: [u8; 8] = *b"PLFSPACK";

/// Bytes of one.
pub const STAND_IN_BYTES: usize = NOTES_BYTES;

/// Its bytes that say of which pack it is: the longest paths.
pub const STAND_IN_HEAD: usize = STAND_IN_BEGINS.len() + 16 + 2 * 4096;

/// What a stand-in says: how to find its pack.
#[derive(Debug)]
pub struct PackPlace {
    /// Device and inode of the pack's name.
    pub identity: (u64, u64),
    /// The directory, as it was called then.
    pub dir: PathBuf,
    /// That of the container; empty if it is not known.
    pub container: PathBuf,
}

impl PackPlace {
    /// `None`: these bytes are none of a stand-in.
    pub fn read(bytes: &[u8]) -> Option<PackPlace> {
        let (dev, rest) = bytes.strip_prefix(&STAND_IN_BEGINS)?.split_first_chunk()?;
        let (ino, rest) = rest.split_first_chunk()?;
        let mut paths = rest.split(|byte| *byte == 0).map(|path| OsStr::from_bytes(path).into());
        Some(PackPlace {
            identity: (u64::from_le_bytes(*dev), u64::from_le_bytes(*ino)),
            dir: paths.next()?,
            container: paths.next()?,
        })
    }

    fn write(&self) -> Vec<u8> {
        let mut bytes = STAND_IN_BEGINS.to_vec();
        bytes.extend(self.identity.0.to_le_bytes());
        bytes.extend(self.identity.1.to_le_bytes());
        for path in [&self.dir, &self.container] {
            bytes.extend(path.as_os_str().as_bytes());
            bytes.push(0);
        }
        bytes
    }
}

impl StandIn {
    /// Notes there which file of the pack a placeholder is for that goes to another process. Gives
    /// the number of the note; `None`: there is no room.
    pub fn note(&self, id: FileId, name: &[u8]) -> Option<u32> {
        let mut note = id.stamp.to_le_bytes().to_vec();
        note.extend(id.set.to_le_bytes());
        note.extend((name.len() as u32).to_le_bytes());
        note.extend(name);
        self.0.add(&note)
    }

    /// Where the note with a number is, and how long one is at most.
    pub fn place_of_note(number: u32) -> (u64, usize) {
        (u64::from(number) * NOTE_UNIT as u64, NOTE_HEAD + NAME_MAX)
    }

    /// What a note says; `None`: it is none.
    pub fn read_note(note: &[u8]) -> Option<(FileId, &[u8])> {
        let (stamp, rest) = note.split_first_chunk()?;
        let (set, rest) = rest.split_first_chunk()?;
        let (length, name) = rest.split_first_chunk()?;
        let id = FileId { stamp: u64::from_le_bytes(*stamp), set: u32::from_le_bytes(*set) };
        let name = name.get(..u32::from_le_bytes(*length) as usize)?;
        (!name.is_empty()).then_some((id, name))
    }
}

/// Bytes of a note before the name.
const NOTE_HEAD: usize = 16;

impl AsFd for StandIn {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// How long the thread that commits has watched a pack: it commits as rarely as files, and carries
/// in between.
#[derive(Debug)]
struct Pace {
    since: Duration,
    /// When it commits.
    wait: Duration,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { since: Duration::ZERO, wait: FIRST }
    }
}

impl std::ops::Deref for OpenPack {
    type Target = Pack;

    fn deref(&self) -> &Pack {
        &self.pack
    }
}

impl OpenPack {
    pub(super) fn new(store: &Arc<dyn Store>, pack: Pack) -> OpenPack {
        let name = pack.dir().join(NAME);
        let is_changing =
            store.stat(&name, Links::Stay).is_ok_and(|stat| stat.mode & CHANGING != 0);
        pack.set_changing(is_changing);
        OpenPack {
            pack,
            has_changed: AtomicBool::new(false),
            is_watched: AtomicBool::new(false),
            pace: Mutex::default(),
            committing: Arc::default(),
            group: Mutex::default(),
            seen: Mutex::default(),
            stand_in: Mutex::default(),
            handles: AtomicUsize::new(0),
            is_gone: AtomicBool::new(false),
            hold: Mutex::default(),
            untold: Mutex::default(),
            _name: store.open(&name, Open::READ).ok(),
        }
    }

    /// Somebody changes something: what he does not commit is committed after a second, and the
    /// node's log set is left when nothing more comes.
    pub(crate) fn changes(self: &Arc<Self>) {
        self.has_changed.store(true, Ordering::Release);
        if !self.is_watched.swap(true, Ordering::AcqRel) && !autocommit::watch(self) {
            self.pack.hold_nothing();
        }
    }

    /// The group that the directory gives new files, if it does; `ask` is asked once a second.
    pub(crate) fn group_of_new(
        &self,
        ask: impl FnOnce(&Path) -> Result<Option<u32>>,
    ) -> Result<Option<u32>> {
        let (now, mut known) = (boot_time_ns(), lock(&self.group));
        match *known {
            Some((then, group)) if now.saturating_sub(then) < BELIEVED_NS => Ok(group),
            _ => {
                let group = ask(&self.pack.dir())?;
                *known = Some((now, group));
                Ok(group)
            }
        }
    }

    /// Whether this process has seen, a moment ago at most, that the directory has no ordinary name
    /// like this: what [`Pack::since`] was then. `None`: who wants to know it asks the storage.
    ///
    /// Costs a listing once in [`SEEN_NS`], where storage travels.
    pub(crate) fn has_not(&self, store: &dyn Store, dir: &Path, name: &[u8]) -> Option<Since> {
        if self.pack.container().local {
            return None;
        }
        let (now, mut seen) = (boot_time_ns(), lock(&self.seen));
        if now >= seen.due || seen.dir != dir {
            let since = self.pack.since()?;
            let names = store.list(dir).ok().filter(|names| names.len() < LISTED_MAX);
            // Another directory may have the name since the pack was found there.
            let of = store.stat(&dir.join(NAME), Links::Stay).ok()?;
            if (of.dev, of.ino) != self.pack.container().identity {
                return None;
            }
            let took = boot_time_ns() - now;
            let rests = match names {
                Some(_) => SEEN_NS.max(took * LIST_RESTS_TIMES),
                None => LIST_RESTS_NS,
            };
            *seen = Seen {
                dir: dir.to_path_buf(),
                at: now,
                since: names.is_some().then_some(since),
                names: names.into_iter().flatten().map(|entry| entry.name).collect(),
                due: now + took + rests,
            };
        }
        let is_free =
            now.saturating_sub(seen.at) < SEEN_NS && !seen.names.contains(OsStr::from_bytes(name));
        seen.since.filter(|_| is_free)
    }

    pub(super) fn forget_seen(&self) {
        lock(&self.seen).since = None;
    }

    /// A file in memory that stands for the pack's name where a door needs a descriptor for each
    /// file that is open: to open that costs no call on the storage. It says where the pack was
    /// when it was made. Once there are many notes in it later files get another one. `None`: there
    /// is none.
    pub fn stand_in(&self) -> Option<Arc<StandIn>> {
        let (dir, mut known) = (self.pack.dir(), lock(&self.stand_in));
        if let Some((of, file)) = &*known
            && *of == dir
            && !file.0.is_half_full()
        {
            return Some(file.clone());
        }
        let container = self.pack.container();
        let (identity, path) = (container.identity, container.dir.clone());
        let place = PackPlace { identity, dir: dir.clone(), container: path.to_path_buf() };
        let file = Arc::new(StandIn(Notes::new("plfs-pack", &place.write()).ok()?));
        *known = Some((dir, file.clone()));
        Some(file)
    }

    /// What made it fail when nobody called.
    pub(super) fn take_untold(&self) -> Option<Error> {
        lock(&self.untold).take()
    }

    /// There is a handle on a file of it, until [`OpenPack::close_handle`].
    pub(crate) fn open_handle(&self) {
        self.handles.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn close_handle(&self) {
        if self.handles.fetch_sub(1, Ordering::SeqCst) == 1 && self.is_gone.load(Ordering::SeqCst) {
            lock(&self.hold).take();
            // Nobody is there to be told: what stays is garbage that a check finds.
            let _ = self.pack.leave().and_then(|()| self.take_away());
        }
    }

    /// The directory was removed. Who has a file open keeps the bytes until it is closed.
    pub(crate) fn went(&self) -> Result<()> {
        self.is_gone.store(true, Ordering::SeqCst);
        if self.handles.load(Ordering::SeqCst) == 0 {
            return self.take_away();
        }
        let shared_memory = self.pack.config().shared_memory.as_deref();
        *lock(&self.hold) = Hold::take(self.pack.container(), shared_memory).ok();
        Ok(())
    }

    /// What the thread that commits was told. Whoever has a file open hears of what is lost by his
    /// next call.
    fn hear(&self, told: Result<()>) {
        if let Err(error) = told
            && self.pack.has_failed()
        {
            lock(&self.untold).get_or_insert(error);
        }
    }

    /// Gives it up; an error if that, or something before, has lost what nobody was told of.
    pub(super) fn close(self) -> Result<()> {
        let has_failed = self.pack.has_failed();
        let closed = self.pack.close();
        let untold = self.untold.into_inner().unwrap_or_else(PoisonError::into_inner);
        untold.map_or(if has_failed { Ok(()) } else { closed }, Err)
    }

    fn take_away(&self) -> Result<()> {
        let shared_memory = self.pack.config().shared_memory.as_deref();
        remove_if_nameless(self.pack.container(), shared_memory).map(drop)
    }

    /// In the child of a fork, which has no thread that commits.
    pub(crate) fn forget_writer(&self) {
        self.has_changed.store(false, Ordering::Release);
        self.is_watched.store(false, Ordering::Release);
        self.pack.forget_writer();
    }
}

impl Autocommit for OpenPack {
    fn committing(&self) -> &Arc<Mutex<()>> {
        &self.committing
    }

    fn every(&self) -> Duration {
        HOLD
    }

    fn autocommit(&self) -> bool {
        self.hear(self.pack.carry(HOLD));
        let mut pace = lock(&self.pace);
        pace.since += HOLD;
        // Who moves the files out waits until nobody writes them.
        let wait = if self.is_changing() { FIRST } else { pace.wait };
        if pace.since < wait {
            return true;
        }
        pace.since = Duration::ZERO;
        if self.has_changed.swap(false, Ordering::AcqRel) {
            pace.wait = (pace.wait * 2).min(autocommit::LAST);
            self.hear(self.pack.commit());
            return true;
        }
        *pace = Pace::default();
        // What the storage did not take is tried again.
        let rested = self.pack.rest();
        let is_tried_again = rested.is_err() && !self.pack.has_failed();
        self.hear(rested);
        if is_tried_again {
            return true;
        }
        self.is_watched.store(false, Ordering::Release);
        false
    }
}
