//! L6: the packs that a process has open: found by their directories, left when nobody writes them.
//!
//! A directory without a pack is believed to have none for a second, so that files elsewhere pay
//! nothing. Not one that is for small files: another process makes the pack with its first file,
//! which is to be seen at once. One that is known is asked for at each call by a stat, because
//! directories are renamed.
//!
//! Where storage travels, who makes files in a pack that he writes, or only reads names of it,
//! believes for a moment what he has seen of its directory: there such a stat costs more than a
//! file of the pack (docs/decisions/0023). Who changes or removes what is there asks, as by that
//! name another directory may be meant by now; unless he has the directory open.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lru::LruCache;
use plfs_format::pack::{CHANGING, NAME, NAME_MAX};

use crate::autocommit::{self, Autocommit};
use crate::config::Config;
use crate::error::{At, Error, Result};
use crate::lifecycle::remove_if_nameless;
use crate::pack::{FileId, Pack, PackOptions, Since};
use crate::store::machine::{OpenDir, boot_time_ns};
use crate::store::shm::{NOTE_UNIT, NOTES_BYTES, Notes};
use crate::store::{Errno, Links, Open, Store, StoreFile};
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::{Arc, Mutex, PoisonError, lock};

/// How long a directory is believed to have no pack: as long as a layout is believed.
const BELIEVED_NS: u64 = 1_000_000_000;

/// Directories that are remembered. 4,096: some 1 MB.
const DIRS_MAX: usize = 4096;

/// How long a process believes that a pack on storage that travels is where it was found. 0.1 s: a
/// look in so many files costs none of them anything.
const FOUND_NS: u64 = 100_000_000;

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

/// Packs that stay open though nobody has a file of them open. 64: a few descriptors and a page
/// each.
const IDLE_MAX: usize = 64;

/// How long what the node has said of a pack waits in its memory before the thread that commits
/// carries it to the storage; twice that at most, since the thread looks as often. 50 ms: some
/// hundred files that a process makes meanwhile share two appends (docs/decisions/0023).
const HOLD: Duration = Duration::from_millis(50);

/// How a process opens them.
fn options() -> PackOptions {
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
    /// See [`OpenPack::is_changing`].
    is_changing: AtomicBool,
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
const STAND_IN: &[u8; 8] = b"PLFSPACK";

/// Bytes of one.
pub const STAND_IN_BYTES: usize = NOTES_BYTES;

/// Its bytes that say of which pack it is: the longest paths.
pub const STAND_IN_HEAD: usize = STAND_IN.len() + 16 + 2 * 4096;

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
        let (dev, rest) = bytes.strip_prefix(STAND_IN)?.split_first_chunk()?;
        let (ino, rest) = rest.split_first_chunk()?;
        let mut paths = rest.split(|byte| *byte == 0).map(|path| OsStr::from_bytes(path).into());
        Some(PackPlace {
            identity: (u64::from_le_bytes(*dev), u64::from_le_bytes(*ino)),
            dir: paths.next()?,
            container: paths.next()?,
        })
    }

    fn write(&self) -> Vec<u8> {
        let mut bytes = STAND_IN.to_vec();
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
        Pace { since: Duration::ZERO, wait: autocommit::FIRST }
    }
}

impl std::ops::Deref for OpenPack {
    type Target = Pack;

    fn deref(&self) -> &Pack {
        &self.pack
    }
}

impl OpenPack {
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

    fn forget_seen(&self) {
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
        let place = PackPlace { identity, dir: dir.clone(), container: path };
        let file = Arc::new(StandIn(Notes::new("plfs-pack", &place.write()).ok()?));
        *known = Some((dir, file.clone()));
        Some(file)
    }

    /// Whether files of the directory moved into the pack, or out of it, when its name was looked
    /// at last: then ordinary ones come first.
    pub fn is_changing(&self) -> bool {
        self.is_changing.load(Ordering::Acquire)
    }

    /// There is a handle on a file of it, until [`OpenPack::close_handle`].
    pub(crate) fn open_handle(&self) {
        self.handles.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn close_handle(&self) {
        if self.handles.fetch_sub(1, Ordering::SeqCst) == 1 && self.is_gone.load(Ordering::SeqCst) {
            // Nobody is there to be told: what stays is garbage that a check finds.
            let _ = self.pack.leave().and_then(|()| self.take_away());
        }
    }

    /// The directory was removed. Who has a file open keeps the bytes until it is closed.
    pub(crate) fn went(&self) -> Result<()> {
        self.is_gone.store(true, Ordering::SeqCst);
        match self.handles.load(Ordering::SeqCst) {
            0 => self.take_away(),
            _ => Ok(()),
        }
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
    fn close(self) -> Result<()> {
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

    fn every(&self) -> Option<Duration> {
        Some(HOLD)
    }

    fn autocommit(&self) -> bool {
        self.hear(self.pack.carry(HOLD));
        let mut pace = lock(&self.pace);
        pace.since += HOLD;
        // Who moves the files out waits until nobody writes them.
        let wait = if self.is_changing() { autocommit::FIRST } else { pace.wait };
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

/// The open packs of a process.
#[derive(Debug)]
pub(crate) struct Packs {
    table: Mutex<Table>,
    /// There was one.
    found: AtomicBool,
}

/// The pack that a directory had.
#[derive(Debug, Clone, Copy)]
struct Found {
    key: (u64, u64),
    /// When, by the clock since boot.
    at: u64,
    /// [`Pack::rings`] before.
    rings: Option<u64>,
    /// In this directory, whatever its name is.
    open: Option<OpenDir>,
}

impl Found {
    /// Whether the pack was there a moment ago. Nobody removes one that this process writes; what
    /// processes of the node do to another one is heard.
    fn is_there(self, open: &OpenPack, wanted: Wanted, now: u64) -> bool {
        let is_silent = || self.rings.is_some() && self.rings == open.rings();
        let is_there = match wanted {
            Wanted::Change(None) => false,
            Wanted::Change(Some(dir)) => {
                open.is_writer() && self.open.is_some_and(|known| known.is_same(dir))
            }
            Wanted::Make => open.is_writer(),
            Wanted::Know => open.is_writer() || is_silent(),
        };
        is_there && now.saturating_sub(self.at) < FOUND_NS && !open.has_failed()
    }
}

/// What somebody wants of a pack that he looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// To change or remove what it has, or it: it must be the pack of this directory now. Who has
    /// the directory open means that one, whatever has its name.
    Change(Option<OpenDir>),
    /// To make a name in it: nobody may have removed it.
    Make,
    /// To know a name of it, as it was a moment ago.
    Know,
}

#[derive(Debug)]
struct Table {
    /// By device and inode of their names.
    packs: HashMap<(u64, u64), Arc<OpenPack>>,
    /// Packs in whose place another view of the same pack has come: one that failed, or one that
    /// was found from another root. Who has files of them open goes on with them.
    replaced: Vec<Arc<OpenPack>>,
    /// Directories without one, and when that was found.
    packless: LruCache<PathBuf, u64>,
    /// Those with one where storage travels.
    packed: LruCache<PathBuf, Found>,
    /// How often what was found of directories was forgotten: who looks meanwhile remembers
    /// nothing.
    forgotten: u64,
    /// What was lost when a pack was given up that nobody used: the next one who comes is told.
    lost: HashMap<(u64, u64), Error>,
}

impl Default for Packs {
    fn default() -> Packs {
        let table = Table {
            packs: HashMap::new(),
            replaced: Vec::new(),
            packless: LruCache::unbounded(),
            packed: LruCache::unbounded(),
            forgotten: 0,
            lost: HashMap::new(),
        };
        Packs { table: Mutex::new(table), found: AtomicBool::new(false) }
    }
}

impl Packs {
    /// The pack of `dir`, if it has one. `gets_one`: somebody may make it at any time.
    pub(crate) fn find(
        &self,
        store: &Arc<dyn Store>,
        config: &Arc<Config>,
        (dir, wanted): (&Path, Wanted),
        gets_one: impl FnOnce() -> bool,
    ) -> Result<Option<Arc<OpenPack>>> {
        let now = boot_time_ns();
        let mut table = lock(&self.table);
        if let Some(then) = table.packless.get(dir)
            && now.saturating_sub(*then) < BELIEVED_NS
        {
            return Ok(None);
        }
        let (last, forgotten) = (table.found(dir), table.forgotten);
        drop(table);
        // Before the look.
        let rings = last.as_ref().and_then(|(_, open)| open.rings());
        if let Some((found, open)) = last {
            if found.is_there(&open, wanted, now) {
                self.tell(found.key, Some(&open))?;
                return Ok(Some(open));
            }
            // What the storage says now counts, whatever that is.
            lock(&self.table).packed.pop(dir);
        }
        let path = dir.join(NAME);
        let stat = match store.stat(&path, Links::Stay) {
            // Who may not search the directory gets nothing of it.
            Err(
                Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::LOOP | Errno::NAMETOOLONG,
            ) => {
                if gets_one() {
                    return Ok(None);
                }
                let mut table = lock(&self.table);
                if table.forgotten == forgotten {
                    table.packless.put(dir.to_path_buf(), now);
                }
                if table.packless.len() > DIRS_MAX {
                    table.packless.pop_lru();
                }
                return Ok(None);
            }
            other => other.at("look for the pack of", dir)?,
        };
        // One that has failed is told to who has it open; who comes begins anew.
        let is_good =
            |known: &Arc<OpenPack>| known.container().is_below_root(&path) && !known.has_failed();
        let key = (stat.dev, stat.ino);
        let known = lock(&self.table).packs.get(&key).cloned();
        let is_changing = stat.mode & CHANGING != 0;
        self.tell(key, known.as_deref())?;
        if let Some(known) = known.filter(is_good) {
            known.moved(dir);
            known.is_changing.store(is_changing, Ordering::Release);
            if !known.container().local && !is_changing {
                let open = open_dir_of(store, wanted, key);
                let mut table = lock(&self.table);
                if table.forgotten == forgotten {
                    table.remember(dir, Found { key, at: now, rings, open });
                }
            }
            return Ok(Some(known));
        }
        let Some(pack) = Pack::find(store, config, dir, options())? else {
            return Ok(None);
        };
        let (open, is_new) = self.put(store, pack, is_good);
        if !is_new {
            open.moved(dir);
        }
        Ok(Some(open))
    }

    /// The pack at this place, whose directory may have another name by now; if that was removed,
    /// it has none any more.
    pub(crate) fn find_by_container(
        &self,
        store: &Arc<dyn Store>,
        config: &Arc<Config>,
        place: &PackPlace,
    ) -> Result<Option<Arc<OpenPack>>> {
        let is_good = |known: &Arc<OpenPack>| !known.has_failed();
        let known = lock(&self.table).packs.get(&place.identity).cloned();
        if let Some(known) = known.filter(is_good) {
            return Ok(Some(known));
        }
        if place.container.as_os_str().is_empty() {
            return Ok(None);
        }
        let pack = Pack::in_container(store, config, (&place.container, &place.dir), options())?;
        let pack = pack.filter(|pack| pack.container().identity == place.identity);
        Ok(pack.map(|pack| self.put(store, pack, is_good).0))
    }

    /// Adds a pack, if there is none that is good; whether it did.
    fn put(
        &self,
        store: &Arc<dyn Store>,
        pack: Pack,
        is_good: impl Fn(&Arc<OpenPack>) -> bool,
    ) -> (Arc<OpenPack>, bool) {
        let (key, name) = (pack.container().identity, pack.dir().join(NAME));
        let is_changing =
            store.stat(&name, Links::Stay).is_ok_and(|stat| stat.mode & CHANGING != 0);
        let open = Arc::new(OpenPack {
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
            is_changing: AtomicBool::new(is_changing),
            untold: Mutex::default(),
            _name: store.open(&name, Open::READ).ok(),
        });
        self.found.store(true, Ordering::Release);
        let mut table = lock(&self.table);
        // Another thread may have been faster. A process has one view of a pack: what is written
        // through a second one is neither seen by the first nor committed at the process's end.
        if let Some(known) = table.packs.get(&key).cloned().filter(is_good) {
            return (known, false);
        }
        let old = table.packs.insert(key, open.clone());
        table.replaced.extend(old);
        let idle = table.take_idle(key);
        drop(table);
        // All that they were told is committed.
        for open in idle.into_iter().filter_map(Arc::into_inner) {
            let key = open.container().identity;
            if let Err(error) = open.close() {
                lock(&self.table).lost.insert(key, error);
            }
        }
        (open, true)
    }

    /// An error that nobody was told of yet, of a pack that `known` is, if there is one.
    fn tell(&self, key: (u64, u64), known: Option<&OpenPack>) -> Result<()> {
        let untold = known.and_then(|known| lock(&known.untold).take());
        untold.or_else(|| lock(&self.table).lost.remove(&key)).map_or(Ok(()), Err)
    }

    /// [`Packs::tell`], of all.
    pub(crate) fn tell_all(&self) -> Result<()> {
        let all = self.all().into_iter();
        let told = all.map(|open| self.tell(open.container().identity, Some(&open)));
        let lost = std::mem::take(&mut lock(&self.table).lost);
        told.chain(lost.into_values().map(Err)).fold(Ok(()), Result::and)
    }

    /// Directories were renamed or removed, or get a pack.
    pub(crate) fn forget_dirs(&self) {
        let mut table = lock(&self.table);
        table.packless.clear();
        table.packed.clear();
        table.forgotten += 1;
        for open in table.packs.values() {
            open.forget_seen();
        }
    }

    /// Whether there ever was one.
    pub(crate) fn any(&self) -> bool {
        self.found.load(Ordering::Acquire)
    }

    /// All of them, those as well that were replaced and have open files.
    pub(crate) fn all(&self) -> Vec<Arc<OpenPack>> {
        let table = lock(&self.table);
        table.packs.values().chain(&table.replaced).cloned().collect()
    }

    /// Gives up the pack with this name, whose directory is about to go. Who has files of it open
    /// goes on with them.
    pub(crate) fn give_up(&self, key: (u64, u64)) {
        let mut table = lock(&self.table);
        let given_up = table.packs.remove(&key);
        table.replaced.extend(given_up);
    }
}

/// The open directory of who wants to change a pack, if the pack with the name `key` is in that.
fn open_dir_of(store: &Arc<dyn Store>, wanted: Wanted, key: (u64, u64)) -> Option<OpenDir> {
    let Wanted::Change(Some(dir)) = wanted else { return None };
    let stat = store.stat(&dir.path().join(NAME), Links::Stay).ok()?;
    ((stat.dev, stat.ino) == key).then_some(dir)
}

impl Table {
    /// The pack that a directory had when somebody looked last.
    fn found(&mut self, dir: &Path) -> Option<(Found, Arc<OpenPack>)> {
        if self.packed.is_empty() {
            return None;
        }
        let found = *self.packed.get(dir)?;
        Some((found, self.packs.get(&found.key)?.clone()))
    }

    /// Which pack a directory has.
    fn remember(&mut self, dir: &Path, found: Found) {
        match self.packed.get_mut(dir) {
            Some(known) => *known = found,
            None => drop(self.packed.put(dir.to_path_buf(), found)),
        }
        if self.packed.len() > DIRS_MAX {
            self.packed.pop_lru();
        }
    }

    /// Takes out packs that nobody uses: those that were replaced, and of the others if there are
    /// many.
    fn take_idle(&mut self, but: (u64, u64)) -> Vec<Arc<OpenPack>> {
        let mut idle: Vec<_> =
            self.replaced.extract_if(.., |open| Arc::strong_count(open) == 1).collect();
        if self.packs.len() <= IDLE_MAX {
            return idle;
        }
        let is_idle = |key: &(u64, u64), open: &mut Arc<OpenPack>| {
            *key != but && Arc::strong_count(open) == 1
        };
        idle.extend(self.packs.extract_if(is_idle).map(|(_, open)| open));
        idle
    }
}
