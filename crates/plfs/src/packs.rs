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

mod open_pack;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use lru::LruCache;
use plfs_format::pack::{CHANGING, NAME};

use open_pack::options;
pub use open_pack::{OpenPack, PackPlace, STAND_IN_BEGINS, STAND_IN_BYTES, STAND_IN_HEAD, StandIn};

use crate::config::Config;
use crate::error::{At, Error, Result};
use crate::pack::Pack;
use crate::store::machine::{OpenDir, boot_time_ns};
use crate::store::{Errno, Links, Store};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Arc, Mutex, lock};

/// How long a directory is believed to have no pack: as long as a layout is believed.
const BELIEVED_NS: u64 = 1_000_000_000;

/// Directories that are remembered. 4,096: some 1 MB.
const DIRS_MAX: usize = 4096;

/// How long a process believes that a pack on storage that travels is where it was found. 0.1 s: a
/// look in so many files costs none of them anything.
const FOUND_NS: u64 = 100_000_000;

/// Packs that stay open though nobody has a file of them open. 64: a few descriptors and a page
/// each.
const IDLE_MAX: usize = 64;

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
    /// [`OpenDir::identity`] of the directory, if it was found through a descriptor of it.
    dir: Option<(u64, u64)>,
}

impl Found {
    /// Whether the pack was there a moment ago. Nobody removes one that this process writes; what
    /// processes of the node do to another one is heard.
    fn is_there(self, open: &OpenPack, wanted: Wanted, now: u64) -> bool {
        let is_silent = || self.rings.is_some() && self.rings == open.rings();
        let is_there = match wanted {
            Wanted::Change(None) => false,
            Wanted::Change(Some(dir)) => {
                open.is_writer() && self.dir.is_some() && self.dir == dir.identity()
            }
            Wanted::Make => open.is_writer(),
            Wanted::Know => open.is_writer() || is_silent(),
        };
        is_there && now.saturating_sub(self.at) < FOUND_NS && !open.has_failed()
    }
}

/// What somebody wants of a pack that he looks for.
#[derive(Debug, Clone, Copy)]
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
            known.set_changing(is_changing);
            if !known.container().local && !is_changing {
                let open_dir = open_dir_of(store, wanted, key);
                let mut table = lock(&self.table);
                if table.forgotten == forgotten {
                    table.remember(dir, Found { key, at: now, rings, dir: open_dir });
                }
            }
            return Ok(Some(known));
        }
        let pack = match Pack::find(store, config, dir, options()) {
            Ok(Some(pack)) => pack,
            Ok(None) => return Ok(None),
            Err(error) => match store.stat(&path, Links::Stay) {
                Ok(now) if (now.dev, now.ino) == key => return Err(error),
                // It was unpacked meanwhile, and another one may be in its place.
                Ok(_) | Err(Errno::NOENT) => {
                    return self.find(store, config, (dir, wanted), gets_one);
                }
                Err(_) => return Err(error),
            },
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
        let key = pack.container().identity;
        let open = Arc::new(OpenPack::new(store, pack));
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
        let untold = known.and_then(OpenPack::take_untold);
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

/// Which directory is open to who wants to change a pack, if the pack with the name `key` is in it.
fn open_dir_of(store: &Arc<dyn Store>, wanted: Wanted, key: (u64, u64)) -> Option<(u64, u64)> {
    let Wanted::Change(Some(dir)) = wanted else { return None };
    let stat = store.stat(&dir.path().join(NAME), Links::Stay).ok()?;
    ((stat.dev, stat.ino) == key).then(|| dir.identity()).flatten()
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
