//! L6: the packs that a process has open: found by their directories, left when nobody writes them.
//!
//! A directory without a pack is believed to have none for a second, so that files elsewhere pay
//! nothing. One that is known is asked for at each call by a stat, because directories are renamed.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use lru::LruCache;
use plfs_format::pack::NAME;

use crate::autocommit::{self, Autocommit};
use crate::config::Config;
use crate::error::Result;
use crate::pack::{Pack, PackOptions};
use crate::store::machine::boot_time_ns;
use crate::store::{Links, Store};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Arc, Mutex, lock};

/// How long a directory is believed to have no pack: as long as a layout is believed.
const BELIEVED_NS: u64 = 1_000_000_000;

/// Directories that are remembered. 4,096: some 1 MB.
const DIRS_MAX: usize = 4096;

/// Packs that stay open though nobody has a file of them open. 64: a few descriptors and a page
/// each.
const IDLE_MAX: usize = 64;

/// A pack that the process has open.
#[derive(Debug)]
pub struct OpenPack {
    pack: Pack,
    /// Something was done to it since the last look of the thread that commits.
    has_changed: AtomicBool,
    is_watched: AtomicBool,
    committing: Arc<Mutex<()>>,
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
        if !self.is_watched.swap(true, Ordering::AcqRel) {
            autocommit::watch(self);
        }
    }
}

impl Autocommit for OpenPack {
    fn committing(&self) -> &Arc<Mutex<()>> {
        &self.committing
    }

    fn autocommit(&self) -> bool {
        if self.has_changed.swap(false, Ordering::AcqRel) {
            // Who is told of an error is who calls next.
            let _ = self.pack.commit();
            return true;
        }
        self.is_watched.store(false, Ordering::Release);
        let _ = self.pack.rest();
        false
    }
}

/// The open packs of a process.
#[derive(Debug)]
pub(crate) struct Packs(Mutex<Table>);

#[derive(Debug)]
struct Table {
    /// By device and inode of their names.
    packs: HashMap<(u64, u64), Arc<OpenPack>>,
    /// Directories without one, and when that was found.
    packless: LruCache<PathBuf, u64>,
}

impl Default for Packs {
    fn default() -> Packs {
        Packs(Mutex::new(Table { packs: HashMap::new(), packless: LruCache::unbounded() }))
    }
}

impl Packs {
    /// The pack of `dir`, if it has one.
    pub(crate) fn find(
        &self,
        store: &Arc<dyn Store>,
        config: &Arc<Config>,
        dir: &Path,
    ) -> Result<Option<Arc<OpenPack>>> {
        let now = boot_time_ns();
        if let Some(then) = lock(&self.0).packless.get(dir)
            && now.saturating_sub(*then) < BELIEVED_NS
        {
            return Ok(None);
        }
        let path = dir.join(NAME);
        let Ok(stat) = store.stat(&path, Links::Stay) else {
            let mut table = lock(&self.0);
            table.packless.put(dir.to_path_buf(), now);
            if table.packless.len() > DIRS_MAX {
                table.packless.pop_lru();
            }
            return Ok(None);
        };
        let known = lock(&self.0).packs.get(&(stat.dev, stat.ino)).cloned();
        if let Some(known) = known.filter(|known| known.container().is_below_root(&path)) {
            // One that has failed is told to who has it open; who comes begins anew.
            if !known.has_failed() {
                known.moved(dir);
                return Ok(Some(known));
            }
        }
        let Some(pack) = Pack::find(store, config, dir, PackOptions::default())? else {
            return Ok(None);
        };
        let key = pack.container().identity;
        let open = Arc::new(OpenPack {
            pack,
            has_changed: AtomicBool::new(false),
            is_watched: AtomicBool::new(false),
            committing: Arc::default(),
        });
        let mut table = lock(&self.0);
        let old = table.packs.insert(key, open.clone());
        let idle = table.take_idle(key);
        drop(table);
        // All that they were told is committed.
        idle.into_iter().chain(old).filter_map(Arc::into_inner).for_each(|open| {
            let _ = open.pack.close();
        });
        Ok(Some(open))
    }

    /// Directories were renamed or removed, or get a pack.
    pub(crate) fn forget_dirs(&self) {
        lock(&self.0).packless.clear();
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<Arc<OpenPack>> {
        lock(&self.0).packs.values().cloned().collect()
    }

    /// Gives up the pack with this name, whose directory is about to go.
    pub(crate) fn give_up(&self, key: (u64, u64)) {
        lock(&self.0).packs.remove(&key);
    }
}

impl Table {
    /// Takes out packs that nobody uses, if there are many.
    fn take_idle(&mut self, but: (u64, u64)) -> Vec<Arc<OpenPack>> {
        if self.packs.len() <= IDLE_MAX {
            return Vec::new();
        }
        let is_idle = |key: &(u64, u64), open: &mut Arc<OpenPack>| {
            *key != but && Arc::strong_count(open) == 1
        };
        self.packs.extract_if(is_idle).map(|(_, open)| open).collect()
    }
}
