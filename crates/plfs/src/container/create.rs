//! A new container and its first name. The name appears last and whole, by one link(2): it is there
//! with a complete superblock, or not at all.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use plfs_format::attribute::{self, Decision};
use plfs_format::layout::Backends;
use plfs_format::superblock::{self, Superblock};
use plfs_format::{Uuid, name};

use super::attributes::dir_mode;
use super::backends::Table;
use super::coherent::must_be_coherent;
use super::directory::{DirectoryLayout, Layouts};
use super::layout::{Container, container_dir, in_roots, places};
use crate::config::Config;
use crate::error::{At, Error, Result};
use crate::store::machine::{boot_id, clocks, fill_random, host_name, random_u64};
use crate::store::{self, Errno, Keep, Kind, Links, Open, Store, StoreFile, shm};
use crate::sync::{Arc, plain};

/// Makes a container below `root` and links it to `path`. `mode` is cut by the umask; a root with
/// the set-group-id bit gives its group. What the directory of `path` says in its layout goes
/// before what `config` says. Gives the open superblock too. `before` is told what that will say,
/// when nothing of the file is there: other processes of the node that make it wait.
///
/// Io with EEXIST if `path` exists (a dangling symlink counts); nothing is left behind then.
/// [`Error::CloseToOpen`] and [`Error::Unfit`] where the file system is not fit for PLFS. Costs
/// about seven metadata operations on the root backend.
pub fn create_laid_out(
    store: &Arc<dyn Store>,
    config: &Config,
    layouts: &Layouts,
    root: &Path,
    path: &Path,
    mode: u32,
    before: impl FnOnce(&Superblock),
) -> Result<(Container, Arc<dyn StoreFile>)> {
    // Processes of a node that all create the same file take turns: one builds a container, the
    // others find its name.
    let _turn = config.shared_memory.as_deref().map(|dir| shm::turn(dir, hash_of(path)));
    if store.stat(path, Links::Stay).is_ok() {
        return Err(Errno::EXIST).at("create", path);
    }
    let planned = plan(store, config, layouts, root, path)?;
    let local = store.is_local(root);
    // Opened before anything changes in it: looking it up afterwards could wait for what we
    // changed.
    let parent =
        path.parent().filter(|_| !local).and_then(|parent| store.open(parent, Open::READ).ok());
    let uuid = new_uuid(store.as_ref(), root);
    let store = &store.inside(places(root, uuid), Keep::WhenUsed).unwrap_or_else(|| store.clone());
    let mut superblock = planned.superblock(store, config, root, path, uuid)?;
    superblock.mode = mode;
    before(&superblock);
    let dir = container_dir(root, uuid);
    make_dir(store.as_ref(), root, &dir, dir_mode(mode))?;
    let super_path = dir.join(name::SUPER);
    let made = (|| {
        let file = store.open(&super_path, Open::create_new(mode)).at("create", &super_path)?;
        let stat = file.stat().at("stat", &super_path)?;
        (superblock.mode, superblock.uid, superblock.gid) = (stat.mode, stat.uid, stat.gid);
        superblock.inode = stat.ino;
        // The umask cut the directory's mode as it cut the file's, if it treats searching as it
        // treats reading; all usual ones do.
        let cut = mode & !stat.mode;
        if dir_mode(mode) & !(cut | (cut & 0o444) >> 2) != dir_mode(stat.mode) {
            store.chmod(&dir, dir_mode(stat.mode)).at("set the mode of", &dir)?;
        }
        let bytes = superblock.encode().map_err(|bad| Error::of_bytes(&super_path, bad))?;
        store::write_full(file.as_ref(), &bytes, 0).at("write", &super_path)?;
        // For who puts right what a program without PLFS wrote over it. Without attributes, or room
        // for them, there is none.
        let copy = Decision::Superblock(superblock::copy_of(&bytes));
        let _ = file.set_new_attribute(attribute::NAME, &copy.encode());
        match store.link(&super_path, path) {
            // A directory that takes no new names gives EPERM, too.
            Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS)
                if !has_links(store.as_ref(), &super_path, &dir) =>
            {
                return Err(no_links(path));
            }
            // The file's own directory is on the root's file system, whatever that is made of: AFS
            // has hard links within a directory only.
            Err(Errno::XDEV) if path.parent() == Some(root) => return Err(no_links(path)),
            other => other.at("create", path)?,
        }
        publish(parent.as_deref());
        Ok((file, stat))
    })();
    match made {
        Ok((file, stat)) => {
            let identity = (stat.dev, stat.ino);
            let made = Container::of_parts(store.clone(), superblock, dir, identity, local);
            Ok((made.configured(config), file))
        }
        Err(error) => {
            // What could not be finished has no name: garbage at worst, which `check` finds.
            let _ = store.unlink(&super_path);
            let _ = store.rmdir(&dir);
            Err(error)
        }
    }
}

/// What a new container of a file will be like.
pub(super) struct Plan<'a> {
    layout: Arc<DirectoryLayout>,
    /// Backends that the file's directory does not name by their ids.
    backends: &'a [PathBuf],
    /// Those that it does.
    listed: Option<Vec<u16>>,
}

/// What the directory of `path` and the settings say of it, if all that may be written to.
pub(super) fn plan<'a>(
    store: &Arc<dyn Store>,
    config: &'a Config,
    layouts: &Layouts,
    root: &Path,
    path: &Path,
) -> Result<Plan<'a>> {
    let layout = layouts.find(store.as_ref(), path.parent().unwrap_or(root), root)?;
    layout.must_be_built()?;
    layout.must_have_containers(path)?;
    let backends = match &layout.backends {
        // The table has them.
        Some(_) => &[],
        None => config.backends_of(path),
    };
    let listed = match &layout.backends {
        Some(setting) => Some(of_table(store.as_ref(), config, root, &setting.value)?),
        None => None,
    };
    for dir in std::iter::once(root).chain(backends.iter().map(PathBuf::as_path)) {
        must_be_coherent(store.as_ref(), config, dir)?;
    }
    Ok(Plan { layout, backends, listed })
}

impl Plan<'_> {
    /// The superblock, as far as it does not come from an inode. Makes the backends ready.
    pub(super) fn superblock(
        self,
        store: &Arc<dyn Store>,
        config: &Config,
        root: &Path,
        path: &Path,
        uuid: Uuid,
    ) -> Result<Superblock> {
        prepare_backends(store.as_ref(), &[root], self.backends)?;
        let streams = self.layout.streams.as_ref();
        let clocks = clocks();
        Ok(Superblock {
            uuid,
            created_ns: clocks.wall.ns() as u64,
            boot: boot_id(),
            created_boot_ns: clocks.boot_ns,
            mode: 0,
            uid: 0,
            gid: 0,
            has_base: false,
            streams: streams.map_or(config.streams_of(path), |setting| setting.value),
            segment_bytes: config.segment_bytes,
            backends: match self.listed {
                Some(ids) => ids,
                None => register(store.as_ref(), root, self.backends)?,
            },
            placement: self.layout.placement.as_ref().map(|setting| setting.value),
            root: root.as_os_str().as_bytes().to_vec(),
            inode: 0,
        })
    }
}

/// The identity of a new container. Those of one client share a directory, and have it for
/// themselves.
pub(super) fn new_uuid(store: &dyn Store, root: &Path) -> Uuid {
    let mut uuid = Uuid([0; 16]);
    fill_random(&mut uuid.0);
    uuid.0[0] = client_byte(store, root);
    uuid
}

/// [`create_laid_out`] by a process that has not looked at layouts before.
#[cfg(test)]
pub(crate) fn create(
    store: &Arc<dyn Store>,
    config: &Config,
    root: &Path,
    path: &Path,
    mode: u32,
) -> Result<(Container, Arc<dyn StoreFile>)> {
    create_laid_out(store, config, &Layouts::default(), root, path, mode, |_| ())
}

/// The ids of the backends that a layout names, all fit to be written to.
fn of_table(
    store: &dyn Store,
    config: &Config,
    root: &Path,
    backends: &Backends,
) -> Result<Vec<u16>> {
    let table = Table { store, root, dev: store.stat(root, Links::Follow).at("stat", root)?.dev };
    let ids = table.of_layout(backends)?;
    for id in ids.iter().filter(|id| **id != 0) {
        must_be_coherent(store, config, &table.find(*id)?)?;
    }
    Ok(ids)
}

/// Whether a second name can be given to `file` in its own directory.
fn has_links(store: &dyn Store, file: &Path, dir: &Path) -> bool {
    let other = dir.join("link");
    let made = store.link(file, &other).is_ok();
    made && store.unlink(&other).is_ok()
}

fn no_links(path: &Path) -> Error {
    Error::Unfit { path: path.to_path_buf(), what: "hard links between directories" }
}

/// Makes roots and backends ready for files of all users, as far as they are not: gives them a
/// `.plfs` that anybody may make directories in. [`create`](crate::Plfs::create) does it by itself;
/// this is for who acts before users that may not, or wants to know before the work begins.
///
/// [`Error::CloseToOpen`], nothing made, if files must not be written there by this `config`. The
/// same with EIO if a backend has no `.plfs` but a root has: its file system may not
/// be mounted. Costs a stat a backend and a mkdir a root, and for backends that a root
/// does not know what [`Table::register`] costs.
pub fn prepare(
    store: &Arc<dyn Store>,
    config: &Config,
    roots: &[&Path],
    backends: &[PathBuf],
) -> Result<()> {
    for dir in roots.iter().copied().chain(backends.iter().map(PathBuf::as_path)) {
        must_be_coherent(store.as_ref(), config, dir)?;
    }
    let store = in_roots(store, roots.iter().copied());
    let store = store.as_ref();
    prepare_backends(store, roots, backends)?;
    roots.iter().try_for_each(|root| {
        make_shared(store, &root.join(name::ROOT_DIR))?;
        register(store, root, backends).map(drop)
    })
}

/// The id of the directory `backend` in the table of `root`, which gets one if it has none; `None`
/// if nothing new may be put there. Makes both ready as [`prepare`] does, and fails as that does.
pub fn add_backend(
    store: &Arc<dyn Store>,
    config: &Config,
    root: &Path,
    backend: &Path,
) -> Result<Option<u16>> {
    prepare(store, config, &[root], &[backend.to_path_buf()])?;
    let table = Table {
        store: store.as_ref(),
        root,
        dev: store.stat(root, Links::Follow).at("stat", root)?.dev,
    };
    table.register(backend)
}

/// Gives the directory `backend` a `.plfs`, durably, for who says that it is to be a backend of
/// `root`. [`Error::CloseToOpen`] if files must not be written there by this `config`.
pub(crate) fn make_backend(
    store: &Arc<dyn Store>,
    config: &Config,
    root: &Path,
    backend: &Path,
) -> Result<()> {
    for dir in [root, backend] {
        must_be_coherent(store.as_ref(), config, dir)?;
    }
    make_shared(store.as_ref(), &backend.join(name::ROOT_DIR))?;
    store.sync_dir(backend).at("sync", backend)
}

/// The ids of the backends that a new file of `root` uses: the root's, and those of `backends`,
/// which get one if they have none. One that takes nothing new is left out.
fn register(store: &dyn Store, root: &Path, backends: &[PathBuf]) -> Result<Vec<u16>> {
    let mut ids = vec![0];
    if backends.is_empty() {
        return Ok(ids);
    }
    let table = Table { store, root, dev: store.stat(root, Links::Follow).at("stat", root)?.dev };
    for backend in backends {
        ids.extend(table.register(backend)?.filter(|id| !ids.contains(id)));
    }
    Ok(table.with_room(ids))
}

/// Makes the `.plfs` of the backends, durably, if no root has one either. The roots' come after and
/// say that all are ready.
fn prepare_backends(store: &dyn Store, roots: &[&Path], backends: &[PathBuf]) -> Result<()> {
    for backend in backends {
        match must_be_there(store, backend) {
            Err(_)
                if roots
                    .iter()
                    .all(|root| store.stat(&root.join(name::ROOT_DIR), Links::Stay).is_err()) =>
            {
                make_shared(store, &backend.join(name::ROOT_DIR))?;
                store.sync_dir(backend).at("sync", backend)?;
            }
            // Once a root is ready all backends are: another process may have made both since the
            // first look.
            Err(_) => must_be_there(store, backend)?,
            Ok(()) => {}
        }
    }
    Ok(())
}

/// EIO for a backend that has no `.plfs`: it may be a file system that is not mounted. Logs that
/// began anew below its mount point would be in the way of those in it.
fn must_be_there(store: &dyn Store, backend: &Path) -> Result<()> {
    let dir = backend.join(name::ROOT_DIR);
    match store.stat(&dir, Links::Follow) {
        Err(Errno::LOOP) => Err(Errno::LOOP).at("use the backend by", &dir),
        Err(Errno::NOENT | Errno::NOTDIR) => Err(Error::refused(
            Errno::IO,
            "use the backend",
            backend,
            "it has no .plfs (is its file system mounted? if it is to be a new backend: mkdir -m \
             1777 .plfs in it)",
        )),
        other => other.map(drop).at("use the backend", backend),
    }
}

/// Makes a directory that every user may put things into.
pub(crate) fn make_shared(store: &dyn Store, dir: &Path) -> Result<()> {
    match store.mkdir(dir, 0o1777) {
        Ok(()) => match store.chmod(dir, 0o1777) {
            // Its owner may: there are no modes.
            Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS) => {
                let _ = store.rmdir(dir);
                Err(Error::Unfit { path: dir.to_path_buf(), what: "permissions" })
            }
            other => other.at("set the mode of", dir),
        },
        Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(errno).at("create", dir),
    }
}

/// Makes `root/.plfs`, the shard directory and the container's directory, as far as they are
/// missing.
pub(crate) fn make_dir(store: &dyn Store, root: &Path, dir: &Path, mode: u32) -> Result<()> {
    match store.mkdir(dir, mode) {
        Err(Errno::NOENT) => {}
        other => return other.at("create", dir),
    }
    let mut above: Vec<PathBuf> =
        dir.ancestors().skip(1).take_while(|above| *above != root).map(Path::to_path_buf).collect();
    above.reverse();
    above.iter().try_for_each(|dir| make_shared(store, dir))?;
    match store.mkdir(dir, mode) {
        Err(Errno::NOENT)
            if store.stat(root, Links::Follow).is_ok_and(|stat| stat.kind != Kind::Dir) =>
        {
            Err(Errno::NOTDIR).at("create", dir)
        }
        other => other.at("create", dir),
    }
}

/// Writes a file of the container whole, or leaves the one that is there: under a name of its own
/// that begins with `tmp`, renamed to `name`. With `durable` it is when this returns.
pub(crate) fn put_file(
    container: &Container,
    name: &str,
    tmp: &str,
    bytes: &[u8],
    durable: bool,
) -> Result<()> {
    let tmp = container.path(&format!("{tmp}{:08x}", random_u64() as u32));
    let store = &container.store;
    let written = (|| {
        let file = store.open(&tmp, Open::create_new(0o644)).at("create", &tmp)?;
        // As the logs: a strict umask must not keep out whom the container's directory lets in.
        if file.stat().at("stat", &tmp)?.mode & 0o044 != 0o044 {
            store.chmod(&tmp, 0o644).at("set the mode of", &tmp)?;
        }
        store::write_full(file.as_ref(), bytes, 0).at("write", &tmp)?;
        if durable {
            file.sync_data().at("sync", &tmp)?;
        }
        store.rename(&tmp, &container.path(name)).at("rename", &tmp)?;
        match durable {
            true => store.sync_dir(&container.dir).at("sync", &container.dir),
            false => Ok(()),
        }
    })();
    if written.is_err() {
        let _ = store.unlink(&tmp);
    }
    written
}

/// Lets other clients see without delay what was just created or removed in `dir`, a directory on a
/// file system that has other clients. A metadata server may make others wait for its next journal
/// flush (CephFS: its tick, up to 5 s) where one client asks about what another has just changed; a
/// sync of the directory flushes now, in about a millisecond. The directory must be open already:
/// to look it up would wait as well.
pub(crate) fn publish(dir: Option<&dyn StoreFile>) {
    if let Some(dir) = dir {
        // Only a matter of speed: durability is asked for elsewhere.
        let _ = dir.sync_data();
    }
}

/// A number for this client of the file system: the same for all processes of a host that use the
/// same mount.
fn client_byte(store: &dyn Store, root: &Path) -> u8 {
    // Asked for the same few roots again and again; on a network file system a stat can wait for
    // other clients.
    static KNOWN: plain::Mutex<BTreeMap<PathBuf, u8>> = plain::Mutex::new(BTreeMap::new());
    if let Some(byte) = plain::lock(&KNOWN).get(root) {
        return *byte;
    }
    let dev = store.stat(root, Links::Follow).map_or(0, |stat| stat.dev);
    let byte = hash_of((host_name().as_c_str(), dev)) as u8;
    plain::lock(&KNOWN).insert(root.to_path_buf(), byte);
    byte
}

fn hash_of(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
