//! The container of a pack (FORMAT.md section 12): how a directory leads to it, and how it comes to
//! be. Its name in the directory appears last and whole, as a file's does.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use plfs_format::superblock::{FILE_BYTES, SuperError, Superblock};
use plfs_format::{Uuid, name, pack, spread};

use super::attributes::dir_mode;
use super::backends::Table;
use super::coherent::must_be_coherent;
use super::create::{make_dir, prepare, publish};
use super::directory::{Layouts, is_layout};
use super::layout::{Container, container_dir, find_root, places};
use crate::config::Config;
use crate::error::{At, Error, Result};
use crate::store::machine::{boot_id, clocks, fill_random};
use crate::store::{self, Errno, Keep, Kind, Links, Open, Stat, Store};
use crate::sync::Arc;

/// Whether a directory entry is PLFS's own and none of a program's business.
pub fn is_hidden(entry: &std::ffi::OsStr) -> bool {
    entry == name::ROOT_DIR || is_layout(entry) || is_of_pack(entry) || is_map(entry)
}

/// Whether a directory entry is a map of the flat directory, or becomes one.
pub fn is_map(entry: &std::ffi::OsStr) -> bool {
    entry.as_bytes().starts_with(spread::MAP.as_bytes())
}

/// Whether a directory entry is the name of the directory's pack.
pub fn is_pack(entry: &std::ffi::OsStr) -> bool {
    entry == pack::NAME
}

/// Whether a directory entry is the name of the directory's pack, or beside it for a moment.
pub fn is_of_pack(entry: &std::ffi::OsStr) -> bool {
    entry.as_bytes().starts_with(pack::NAME.as_bytes())
}

/// The pack of the directory `dir`; `None` if it has none. Costs what opening a name costs.
pub fn find_pack(store: &Arc<dyn Store>, config: &Config, dir: &Path) -> Result<Option<Container>> {
    open(store, config, dir.join(pack::NAME), |_| true)
}

/// The pack with the container `dir`; `None` if no directory has it any more.
pub fn pack_in_container(
    store: &Arc<dyn Store>,
    config: &Config,
    dir: &Path,
) -> Result<Option<Container>> {
    open(store, config, dir.join(name::SUPER), |stat| stat.nlink > 1)
}

/// The pack whose superblock has the name `path`.
fn open(
    store: &Arc<dyn Store>,
    config: &Config,
    path: PathBuf,
    is_wanted: impl FnOnce(&Stat) -> bool,
) -> Result<Option<Container>> {
    let Some((superblock, stat)) = superblock_at(store.as_ref(), &path, is_wanted)? else {
        return Ok(None);
    };
    let found = Container::locate(store.clone(), superblock, &path, &stat, &config.mounts)?;
    Ok(Some(found.opened(stat.uid, stat.gid)))
}

/// Whether a file is a name of a pack, or may be one.
pub fn is_pack_at(store: &dyn Store, path: &Path) -> bool {
    let found = superblock_at(store, path, |_| true);
    !matches!(found, Ok(None) | Err(Error::NotAContainer { .. }))
}

fn superblock_at(
    store: &dyn Store,
    path: &Path,
    is_wanted: impl FnOnce(&Stat) -> bool,
) -> Result<Option<(Superblock, Stat)>> {
    let not_one = || Error::NotAContainer { path: path.to_path_buf() };
    let file = match store.open(path, Open::READ.briefly()) {
        Err(Errno::NOENT) => return Ok(None),
        other => other.at("open", path)?,
    };
    let stat = file.stat().at("stat", path)?;
    if !is_wanted(&stat) {
        return Ok(None);
    }
    if stat.kind != Kind::File || stat.len != FILE_BYTES as u64 {
        return Err(not_one());
    }
    let mut bytes = [0; FILE_BYTES];
    let n = store::read_full(file.as_ref(), &mut bytes, 0).at("read", path)?;
    match Superblock::decode_pack(&bytes[..n]) {
        Ok(superblock) => Ok(Some((superblock, stat))),
        Err(SuperError::NotASuperblock) => Err(not_one()),
        Err(SuperError::Unknown { major, features }) => {
            Err(Error::UnknownFormat { path: path.to_path_buf(), major, features })
        }
        Err(SuperError::Bad(bad)) => Err(Error::of_bytes(path, bad)),
    }
}

/// The pack of the directory `dir`, which is made if there is none. It is for all whom the
/// directory is for: who may list that may read the pack, who may make names there may write it.
///
/// Of those who make one at once, one does, and all get that. The same errors as creating a file.
pub fn make_pack(store: &Arc<dyn Store>, config: &Config, dir: &Path) -> Result<Container> {
    loop {
        if let Some(found) = find_pack(store, config, dir)? {
            return Ok(found);
        }
        match create(store, config, dir) {
            Err(Error::Io { errno: Errno::EXIST, path, .. }) if path.parent() == Some(dir) => {}
            other => other?,
        }
    }
}

fn create(store: &Arc<dyn Store>, config: &Config, dir: &Path) -> Result<()> {
    let path = dir.join(pack::NAME);
    let root = &find_root(store.as_ref(), &path, &config.mounts)?;
    let of_dir = store.stat(dir, Links::Follow).at("stat", dir)?;
    if of_dir.kind != Kind::Dir {
        return Err(Errno::NOTDIR).at("make a pack in", dir);
    }
    let (mode, local) = (of_dir.mode & 0o666, store.is_local(root));
    let parent = if local { None } else { store.open(dir, Open::READ).ok() };
    let (backends, streams) = laid_out(store, config, root, dir)?;
    let mut uuid = Uuid([0; 16]);
    fill_random(&mut uuid.0);
    let store = &store.inside(places(root, uuid), Keep::WhenUsed).unwrap_or_else(|| store.clone());
    let clocks = clocks();
    let mut superblock = Superblock {
        uuid,
        created_ns: clocks.wall.ns() as u64,
        boot: boot_id(),
        created_boot_ns: clocks.boot_ns,
        mode,
        uid: of_dir.uid,
        gid: of_dir.gid,
        has_base: false,
        streams,
        segment_bytes: config.segment_bytes,
        backends,
        placement: None,
        root: root.as_os_str().as_bytes().to_vec(),
        inode: 0,
    };
    let place = container_dir(root, uuid);
    let super_path = place.join(name::SUPER);
    make_dir(store.as_ref(), root, &place, dir_mode(mode))?;
    let made = (|| {
        let file = store.open(&super_path, Open::create_new(mode)).at("create", &super_path)?;
        // The directory says whom it is for, and not who made it with which umask.
        store.chmod(&super_path, mode).at("set the mode of", &super_path)?;
        store.chmod(&place, dir_mode(mode)).at("set the mode of", &place)?;
        let stat = file.stat().at("stat", &super_path)?;
        (superblock.uid, superblock.gid) = (stat.uid, stat.gid);
        superblock.inode = stat.ino;
        let bytes = superblock.encode_pack().map_err(|bad| Error::of_bytes(&super_path, bad))?;
        store::write_full(file.as_ref(), &bytes, 0).at("write", &super_path)?;
        // Durable before it has its name: after a power cut a name that leads nowhere would keep
        // the directory from having a pack.
        file.sync_data().at("sync", &super_path)?;
        for dir in super_path.ancestors().skip(1).take(4) {
            match store.sync_dir(dir) {
                // A directory that we may not open was made by someone else, before.
                Ok(()) | Err(Errno::ACCESS | Errno::PERM) => {}
                Err(errno) => return Err(errno).at("sync", dir),
            }
        }
        store.link(&super_path, &path).at("create", &path)
    })();
    match made {
        Ok(()) => publish(parent.as_deref()),
        Err(_) => {
            // What could not be finished has no name: garbage at worst, which `check` finds.
            let _ = store.unlink(&super_path);
            let _ = store.rmdir(&place);
        }
    }
    made
}

/// The backends and the streams of a new pack, as the layout of its directory says, else `config`.
fn laid_out(
    store: &Arc<dyn Store>,
    config: &Config,
    root: &Path,
    dir: &Path,
) -> Result<(Vec<u16>, u16)> {
    let path = dir.join(pack::NAME);
    let layout = Layouts::default().find(store.as_ref(), dir, root)?;
    must_be_coherent(store.as_ref(), config, root)?;
    let streams = layout.streams.as_ref().map_or(config.streams_of(&path), |setting| setting.value);
    let dev = store.stat(root, Links::Follow).at("stat", root)?.dev;
    let table = Table { store: store.as_ref(), root, dev };
    let ids = match &layout.backends {
        Some(setting) => table.of_layout(&setting.value)?,
        None => {
            let backends = config.backends_of(&path);
            if !backends.is_empty() {
                prepare(store, config, &[root], backends)?;
            }
            let mut ids = vec![0];
            for backend in backends {
                ids.extend(table.register(backend)?.filter(|id| !ids.contains(id)));
            }
            ids
        }
    };
    for id in ids.iter().filter(|id| **id != 0) {
        must_be_coherent(store.as_ref(), config, &table.find(*id)?)?;
    }
    Ok((ids, streams))
}
