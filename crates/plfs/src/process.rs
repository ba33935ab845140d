//! L6: what PLFS in one process keeps: its store, its settings, and which files are open, so that
//! all handles on one file agree.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::path::Path;

use plfs_format::summary::Summary;

use crate::config::Config;
use crate::container::{Container, Layouts};
use crate::in_place::InPlace;
use crate::logical::LogicalFile;
use crate::packs::Packs;
use crate::sessions::Sessions;
use crate::spread;
use crate::store::Store;
use crate::store::writers::Writers;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak, lock};

/// File systems that are remembered.
const DEVICES_MAX: usize = 64;

/// PLFS in one process.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) config: Arc<Config>,
    pub(crate) open: Mutex<OpenFiles<LogicalFile>>,
    /// File systems, and whether they are local.
    local: RwLock<Vec<(u64, bool)>>,
    /// The node's table of who writes plain files; `None` as long as nobody asked, and inside if
    /// there is no shared memory.
    writers: OnceLock<Option<Arc<Writers>>>,
    /// Counts containers with a base that it has begun to use: other handles of it on the same file
    /// may take that for a plain one.
    pub(crate) based: AtomicU64,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) in_place: Arc<InPlace>,
    pub(crate) layouts: Layouts,
    pub(crate) packs: Packs,
    pub(crate) spread: spread::NameCache,
}

impl Process {
    pub(crate) fn new(store: Arc<dyn Store>, config: Arc<Config>) -> Process {
        Process {
            store,
            config,
            open: Mutex::default(),
            local: RwLock::default(),
            writers: OnceLock::new(),
            based: AtomicU64::new(0),
            sessions: Arc::default(),
            in_place: Arc::default(),
            layouts: Layouts::default(),
            packs: Packs::default(),
            spread: spread::NameCache::default(),
        }
    }

    /// The node's table of who writes plain files, if there is shared memory.
    pub(crate) fn writers(&self) -> Option<&Arc<Writers>> {
        let join = || {
            let dir = self.config.shared_memory.as_deref()?;
            Writers::join(dir, self.store.user()).ok().map(Arc::new)
        };
        self.writers.get_or_init(join).as_ref()
    }

    /// [`Process::writers`], if somebody has asked.
    pub(crate) fn known_writers(&self) -> Option<&Arc<Writers>> {
        self.writers.get()?.as_ref()
    }

    /// [`Store::is_local`] of the file system `dev`, on which `path` is. Asked once for each.
    pub(crate) fn is_local(&self, dev: u64, path: &Path) -> bool {
        let known =
            |all: &[(u64, bool)]| all.iter().find(|(at, _)| *at == dev).map(|found| found.1);
        if let Some(local) = known(&self.local.read().unwrap_or_else(PoisonError::into_inner)) {
            return local;
        }
        let local = self.store.is_local(path);
        let mut all = self.local.write().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= DEVICES_MAX {
            all.clear();
        }
        all.push((dev, local));
        local
    }

    /// Whether [`Process::is_local`] has been asked of the file system.
    pub(crate) fn knows_device(&self, dev: u64) -> bool {
        let all = self.local.read().unwrap_or_else(PoisonError::into_inner);
        all.iter().any(|(at, _)| *at == dev)
    }

    /// The logical file of a container: the one that the process has open, if it has.
    pub(crate) fn share(
        &self,
        container: Arc<Container>,
        summary: Option<Summary>,
        path: &Arc<Path>,
    ) -> Arc<LogicalFile> {
        if container.superblock.has_base {
            self.based.fetch_add(1, Ordering::AcqRel);
            // Who still writes in place on this node goes on behind what is written from now on.
            self.writers().inspect(|writers| writers.flag(container.identity));
        }
        let mut open = lock(&self.open);
        // A file that was removed may be in use still, and its number be that of a new one.
        let uuid = container.superblock.uuid;
        let is_it = |logical: &Arc<LogicalFile>| logical.container.superblock.uuid == uuid;
        let there = open.get(&container.identity).and_then(Weak::upgrade).filter(is_it);
        if let Some(logical) = there {
            logical.acquire();
            return logical;
        }
        let key = container.identity;
        let (config, sessions) = (self.config.clone(), self.sessions.clone());
        let logical = LogicalFile::new(container, config, sessions, summary, path);
        if logical.container.superblock.has_base {
            let _ = logical.in_place.set(self.in_place.clone());
        }
        open.insert(key, &logical);
        logical
    }
}

/// A hash of a file's numbers: one multiplication each. Who could make many of one hash could as
/// well open many files.
#[derive(Default)]
pub(crate) struct Mixer(u64);

impl Hasher for Mixer {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, number: u64) {
        let mixed = (self.0.rotate_left(32) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 29);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The open files of a process of one kind, by device and inode of their names.
///
/// A file that was closed leaves its entry, whose weak reference keeps the memory of the file,
/// until as many again have been added as were open at the last look. So the table takes
/// at most twice what the open files need, and adding one costs the same however many there are.
#[derive(Debug)]
pub(crate) struct OpenFiles<T> {
    files: HashMap<(u64, u64), Weak<T>, BuildHasherDefault<Mixer>>,
    /// Entries at which those of closed files go.
    limit: usize,
}

/// Entries of closed files that are not worth a look. 64: some 80 KiB.
const CLOSED_MAX: usize = 64;

impl<T> Default for OpenFiles<T> {
    fn default() -> OpenFiles<T> {
        OpenFiles { files: HashMap::default(), limit: 0 }
    }
}

impl<T> OpenFiles<T> {
    pub(crate) fn get(&self, key: &(u64, u64)) -> Option<&Weak<T>> {
        self.files.get(key)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &Weak<T>> {
        self.files.values()
    }

    pub(crate) fn insert(&mut self, key: (u64, u64), file: &Arc<T>) {
        if self.files.len() >= self.limit.max(CLOSED_MAX) {
            self.files.retain(|_, file| file.strong_count() > 0);
            self.limit = 2 * self.files.len();
            self.files.shrink_to(self.limit);
        }
        self.files.insert(key, Arc::downgrade(file));
    }
}
