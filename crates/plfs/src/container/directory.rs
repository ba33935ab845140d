//! What directories say of their new files: layouts (FORMAT.md section 1), found for a create,
//! shown and set.
//!
//! A layout is a file beside the names of its directory: it goes where the directory goes, by
//! rename or copy, and whoever may make names there may set it.

use std::path::{Path, PathBuf};

use lru::LruCache;
use plfs_format::layout::{Backends, Layout, Placement, Workload};
use plfs_format::{Bad, name};

use super::backends::{Table, read};
use super::create::make_shared;
use super::layout::find_root;
use crate::config::{Config, is_built};
use crate::error::{At, Error, Result};
use crate::store::machine::{boot_time_ns, random_u64};
use crate::store::{self, Errno, Kind, Links, LockKind, Open, Store, StoreFile};
use crate::sync::{Arc, Mutex, lock, thread};

/// How long what was found is believed, 0.5 s: with as much at a door, files that are created for a
/// second after a change may have what was said before. The directory's times would tell, but each
/// create changes them, and to ask for those of the layout is to look it up.
const BELIEVED_NS: u64 = 500_000_000;

/// Directories that are remembered. 4,096: some 1 MB.
const KNOWN_MAX: usize = 4096;

/// A setting of new files, and the directory whose layout has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting<T> {
    /// Its value.
    pub value: T,
    /// The directory: the one asked for, or one above.
    pub by: PathBuf,
}

/// What the new files of a directory are laid out by: what it says, and what it inherits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DirectoryLayout {
    /// The root of the files, whose table has the backends.
    pub root: PathBuf,
    /// What they are used for.
    pub workload: Option<Setting<Workload>>,
    /// Data logs of a node for each.
    pub streams: Option<Setting<u16>>,
    /// Where data goes.
    pub backends: Option<Setting<Backends>>,
    /// By what writers choose between those.
    pub placement: Option<Setting<Placement>>,
}

impl DirectoryLayout {
    /// An error if files are to be made for a workload that this version does not have.
    pub(super) fn must_be_built(&self) -> Result<()> {
        match &self.workload {
            Some(setting) if setting.value == Workload::Flat => Err(Error::refused(
                Errno::OPNOTSUPP,
                "create a file in",
                &setting.by,
                "its names are spread over backends (`plfs layout`), and this way to make a file \
                 does not know where they lie",
            )),
            Some(setting) if !is_built(setting.value) => {
                Err(Error::of_bytes(&setting.by.join(name::LAYOUT), not_built(setting.value)))
            }
            _ => Ok(()),
        }
    }

    /// An error where a new file has to go to the directory's pack.
    pub(super) fn must_have_containers(&self, path: &Path) -> Result<()> {
        match &self.workload {
            Some(setting) if setting.value == Workload::Small => Err(Error::refused(
                Errno::OPNOTSUPP,
                "create",
                path,
                "its directory is for small files (`plfs layout`), and no place for one that several \
                 processes write",
            )),
            _ => Ok(()),
        }
    }

    fn add(&mut self, layout: Layout, by: &Path) {
        fn keep<T>(place: &mut Option<Setting<T>>, value: Option<T>, by: &Path) {
            if place.is_none() {
                *place = value.map(|value| Setting { value, by: by.to_path_buf() });
            }
        }
        keep(&mut self.workload, layout.workload, by);
        keep(&mut self.streams, layout.streams, by);
        keep(&mut self.backends, layout.backends, by);
        keep(&mut self.placement, layout.placement, by);
    }
}

fn not_built(workload: Workload) -> Bad {
    Bad::newer(
        0,
        match workload {
            Workload::Auto => "the workload auto is not in this version",
            Workload::Shared => "the workload shared is not in this version",
            Workload::Flat => "the workload flat is not in this version",
            Workload::Small => "the workload small is not in this version",
        },
    )
}

/// The layouts of the directories in which a process creates files.
#[derive(Debug)]
pub struct Layouts(Mutex<LruCache<PathBuf, (u64, Arc<DirectoryLayout>)>>);

impl Default for Layouts {
    fn default() -> Layouts {
        Layouts(Mutex::new(LruCache::unbounded()))
    }
}

impl Layouts {
    /// The layout of `dir`, which is `root` or below it. Costs a stat for each directory from one
    /// to the other, a read where one has a layout, and nothing within a second after that.
    pub fn find(&self, store: &dyn Store, dir: &Path, root: &Path) -> Result<Arc<DirectoryLayout>> {
        let now = boot_time_ns();
        if let Some((then, found)) = lock(&self.0).get(dir)
            && now.saturating_sub(*then) < BELIEVED_NS
            && found.root == root
        {
            return Ok(found.clone());
        }
        let mut found = DirectoryLayout { root: root.to_path_buf(), ..Default::default() };
        for above in dir.ancestors() {
            if above.file_name().is_some_and(|name| name == name::ROOT_DIR) {
                // A shadow of a flat directory, which has said all.
                break;
            }
            if let Some(layout) = own_layout(store, above)? {
                found.add(layout, above);
            }
            if above == root {
                break;
            }
        }
        let found = Arc::new(found);
        let mut known = lock(&self.0);
        known.put(dir.to_path_buf(), (now, found.clone()));
        if known.len() > KNOWN_MAX {
            known.pop_lru();
        }
        Ok(found)
    }

    /// The next look asks the storage.
    pub fn forget(&self) {
        lock(&self.0).clear();
    }
}

/// What `dir` says by itself. A stat if it says nothing.
pub fn own_layout(store: &dyn Store, dir: &Path) -> Result<Option<Layout>> {
    let path = dir.join(name::LAYOUT);
    match store.stat(&path, Links::Stay) {
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        // A link may lead anywhere, and a pipe would never end.
        Ok(stat) if stat.kind != Kind::File => {
            return Err(Error::of_bytes(&path, Bad::new(0, "it is not a regular file")));
        }
        other => other.at("stat", &path)?,
    };
    let Some(text) = read(store, &path)? else { return Ok(None) };
    Layout::decode(&text).map(Some).map_err(|bad| Error::of_bytes(&path, bad))
}

/// What keeps files from being made as the layout of `dir` says, if it has one. Costs a read, and
/// what [`Table::of_layout`] costs.
pub fn check_layout(store: &dyn Store, dir: &Path, mounts: &[PathBuf]) -> Result<()> {
    let Some(layout) = own_layout(store, dir)? else { return Ok(()) };
    let root = find_root(store, &dir.join(name::LAYOUT), mounts)?;
    let mut found = DirectoryLayout::default();
    found.add(layout, dir);
    if found.workload.as_ref().is_none_or(|setting| setting.value != Workload::Flat) {
        found.must_be_built()?;
    }
    if let Some(setting) = &found.backends {
        let dev = store.stat(&root, Links::Follow).at("stat", &root)?.dev;
        Table { store, root: &root, dev }.of_layout(&setting.value)?;
    }
    Ok(())
}

/// Whether a directory entry is the layout of its directory, or one that was not finished: nothing
/// that a program put there.
pub fn is_layout(entry: &std::ffi::OsStr) -> bool {
    entry == name::LAYOUT || entry.as_encoded_bytes().starts_with(name::LAYOUT_TMP.as_bytes())
}

/// The lock of a directory. While it lives, others wait who ask for the same one. It ends with the
/// process at the latest.
#[derive(Debug)]
pub struct DirTurn(#[allow(dead_code)] Arc<dyn StoreFile>);

/// How often somebody asks for his turn, a millisecond apart.
const TURN_TRIES: u32 = 30_000;

impl DirTurn {
    /// Waits for the lock of the directory `dir`, which is open as `file`. `None`: there are no
    /// locks there. BUSY after half a minute: a program has locked the directory.
    pub(super) fn wait_for(file: Arc<dyn StoreFile>, dir: &Path) -> Result<Option<DirTurn>> {
        for _ in 0..TURN_TRIES {
            match file.try_lock(LockKind::Exclusive) {
                Ok(true) => return Ok(Some(DirTurn(file))),
                Ok(false) => thread::sleep(std::time::Duration::from_millis(1)),
                Err(Errno::NOLCK | Errno::INVAL) => return Ok(None),
                Err(errno) => return Err(errno).at("lock", dir),
            }
        }
        Err(Error::refused(Errno::BUSY, "lock", dir, "another process has it for long"))
    }
}

/// Waits until nobody else changes the layout of `dir`; who changes a part of it reads it
/// afterwards. `None` also where the directory cannot be opened.
pub fn layout_turn(store: &dyn Store, dir: &Path) -> Result<Option<DirTurn>> {
    let Ok(file) = store.open(dir, Open::READ) else { return Ok(None) };
    DirTurn::wait_for(file, dir)
}

/// Writes the layout of `dir`, whose files have the root `root`, or removes it. Durable on return;
/// until then, and after whatever interrupts it, the old one is there whole.
pub fn set_layout(
    store: &Arc<dyn Store>,
    config: &Config,
    root: &Path,
    dir: &Path,
    layout: Option<&Layout>,
) -> Result<()> {
    let (store, path) = (store.as_ref(), dir.join(name::LAYOUT));
    let stat = store.stat(dir, Links::Follow).at("stat", dir)?;
    if stat.kind != Kind::Dir {
        return Err(Errno::NOTDIR).at("set the layout of", dir);
    }
    let Some(layout) = layout else {
        return match store.unlink(&path) {
            Err(Errno::NOENT) => Ok(()),
            other => {
                other.at("remove", &path)?;
                store.sync_dir(dir).at("sync", dir)
            }
        };
    };
    if layout.workload.is_some_and(|workload| !is_built(workload) && workload != Workload::Flat) {
        return Err(Error::invalid(
            Errno::INVAL,
            "this workload is not in this version, which has auto, shared, flat and small",
        ));
    }
    super::coherent::must_be_coherent(store, config, dir)?;
    let bytes = layout.encode().map_err(|bad| Error::of_bytes(&path, bad))?;
    if let Some(backends) = &layout.backends {
        let dev = store.stat(root, Links::Follow).at("stat", root)?.dev;
        Table { store, root, dev }.of_layout(backends)?;
    }
    // Without a root above them the files would have their own directory as one, which inherits
    // from none.
    make_shared(store, &root.join(name::ROOT_DIR))?;
    let tmp = dir.join(format!("{}{:08x}", name::LAYOUT_TMP, random_u64() as u32));
    let written = (|| {
        let file = store.open(&tmp, Open::create_new(0o644)).at("create", &tmp)?;
        store::write_full(file.as_ref(), &bytes, 0).at("write", &tmp)?;
        // Whatever the umask says: who creates files here reads it.
        store.chmod(&tmp, 0o644).at("set the mode of", &tmp)?;
        file.sync_data().at("sync", &tmp)?;
        store.rename(&tmp, &path).at("rename", &tmp)
    })();
    match written {
        Ok(()) => store.sync_dir(dir).at("sync", dir),
        Err(error) => {
            let _ = store.unlink(&tmp);
            Err(error)
        }
    }
}
