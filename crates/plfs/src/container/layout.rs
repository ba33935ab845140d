//! Where a container's files are, and how a name leads to them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use plfs_format::index_log::LogId;
use plfs_format::name::{self, Name, SegmentRef};
use plfs_format::superblock::{FILE_BYTES, SuperError, Superblock};
use plfs_format::{summary, summary::Summary};

use crate::config::INDEX_BYTES;
use crate::error::{At, Error, Result};
use crate::store::{self, Stat, Store, StoreFile, Time};
use crate::sync::lock;

/// A container: its superblock and its directory on the root backend.
#[derive(Debug)]
pub struct Container {
    /// Where everything of it is stored.
    pub store: Arc<dyn Store>,
    /// What its superblock says.
    pub superblock: Superblock,
    /// Its directory on the root backend.
    pub dir: PathBuf,
    /// `dev` and `ino` of `super` (and of each name).
    pub identity: (u64, u64),
    /// Whether writes end in this machine's page cache (see [`Store::is_local`]).
    pub local: bool,
    /// The name that led here is a copy of the superblock, not a link to it: others may be, too, so nobody can tell when the last one is gone.
    pub copied: bool,
    /// Bytes of an index that a process holds in its own memory; a longer one lies in a file (see [`Config`](crate::Config)).
    pub index_bytes: u64,
    /// The last listing that [`Container::list_at`] may give again; one for all views.
    pub(super) listed: Arc<Mutex<Option<Listing>>>,
}

/// A time of the directory, and the names that it had.
type Listing = (Time, Arc<[Name]>);

/// Names of a listing that is kept: a process remembers tens of thousands of containers.
const LISTED_MAX: usize = 1024;

/// The directory of container `superblock.uuid` below `root`.
pub(super) fn container_dir(root: &Path, superblock: &Superblock) -> PathBuf {
    let (shard, rest) = superblock.uuid.dirs();
    root.join(name::ROOT_DIR).join(shard).join(rest)
}

impl Container {
    /// The container, used as the owner of the file, if the store serves several users.
    pub fn for_owner(&self, uid: u32, gid: u32) -> Option<Container> {
        Some(self.through(self.store.for_owner(uid, gid)?))
    }

    /// The container, for who uses its files: where each lookup may travel, from a descriptor of its directory. `None`: it is so already, or would gain nothing.
    pub fn near(&self) -> Option<Container> {
        let store = if self.local { None } else { self.store.below(&self.dir) };
        store.map(|store| self.through(store))
    }

    /// The same container through another view of its store.
    pub fn through(&self, store: Arc<dyn Store>) -> Container {
        Container { store, superblock: self.superblock.clone(), dir: self.dir.clone(), listed: self.listed.clone(), ..*self }
    }

    /// Path of a file on the root backend.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The backend on which the segments of a stream lie.
    pub fn backend_of(&self, set: u32, stream: u16) -> u16 {
        ((set as u64 + stream as u64) % self.superblock.backends.len() as u64) as u16
    }

    /// What the blocks of a log set's index log must say.
    pub fn log_id(&self, set: u32) -> LogId {
        LogId { uuid: self.superblock.uuid, set, streams: self.superblock.streams, backends: self.superblock.backends.len() as u16 }
    }

    /// The container's directory on a backend.
    pub fn backend_dir(&self, backend: u16) -> PathBuf {
        match self.superblock.backends.get(backend as usize) {
            Some(path) if backend > 0 => container_dir(Path::new(OsStr::from_bytes(path)), &self.superblock),
            _ => self.dir.clone(),
        }
    }

    /// Path of a segment.
    pub fn segment_path(&self, at: &SegmentRef) -> PathBuf {
        self.backend_dir(at.backend).join(name::data_log(at))
    }

    /// The files on the root backend whose names the format knows.
    pub fn list(&self) -> Result<Vec<Name>> {
        let entries = self.store.list(&self.dir).at("list the container", &self.dir)?;
        Ok(entries.iter().filter_map(|entry| entry.name.to_str().and_then(Name::parse)).collect())
    }

    /// When the last name came or went, or the token of a summary (FORMAT.md section 5): the modification time of the directory.
    pub fn time(&self) -> Result<Time> {
        Ok(self.store.stat(&self.dir, true).at("stat", &self.dir)?.mtime)
    }

    /// [`Container::list`] at a [`Container::time`]; costs nothing if there was a listing at that time before. Where lookups travel it is listed again if it had a log
    /// set: a time that is known there may be an old one.
    pub fn list_at(&self, time: Time) -> Result<Arc<[Name]>> {
        if let Some((_, names)) = lock(&self.listed).as_ref().filter(|(then, _)| *then == time) {
            return Ok(names.clone());
        }
        let names: Arc<[Name]> = self.list()?.into();
        let may_stay = self.local || !names.iter().any(|name| matches!(name, Name::LogSet(_) | Name::OpenMark(_)));
        *lock(&self.listed) = (may_stay && names.len() <= LISTED_MAX && time.is_long_past()).then(|| (time, names.clone()));
        Ok(names)
    }

    /// Whether one of these log sets, in which no index log was found, is gone: then so may be what other logs said, and a reader begins anew. Costs a listing, unless there are
    /// none.
    pub fn has_lost(&self, missing: &[u32]) -> Result<bool> {
        if missing.is_empty() {
            return Ok(false);
        }
        let names = self.list()?;
        Ok(missing.iter().any(|set| !names.contains(&Name::LogSet(*set))))
    }

    /// Finds the container of the name at `path` whose superblock was read from a file with stat `stat` (FORMAT.md section 1).
    ///
    /// Costs one stat if the nearest root is the right one, and where lookups travel a lookup of the directory, from whose descriptor the container is used then.
    pub fn locate(store: Arc<dyn Store>, superblock: Superblock, path: &Path, stat: &Stat, mounts: &[PathBuf]) -> Result<Container> {
        let recorded = superblock.backends.first().map(|path| Path::new(OsStr::from_bytes(path)));
        let above_mount = mounts.iter().map(PathBuf::as_path).filter(|mount| path.starts_with(mount));
        let roots = above_mount.chain(path.ancestors().skip(1)).chain(recorded);
        let (mut looked, mut copy_of) = (Vec::<PathBuf>::new(), None::<Container>);
        for root in roots {
            let dir = container_dir(root, &superblock);
            if looked.contains(&dir) {
                continue;
            }
            let local = store.is_local(root);
            let near = if local { None } else { store.below(&dir) };
            let store = near.unwrap_or_else(|| store.clone());
            looked.push(dir.clone());
            let Ok(found) = store.stat(&dir.join(name::SUPER), false) else { continue };
            let copied = (found.dev, found.ino) != (stat.dev, stat.ino);
            let superblock = superblock.clone();
            let container =
                Container { store, superblock, dir, identity: (found.dev, found.ino), local, copied, index_bytes: INDEX_BYTES, listed: Arc::default() };
            if !copied {
                return Ok(container);
            }
            copy_of = copy_of.or(Some(container));
        }
        match copy_of {
            Some(container) => Ok(container),
            None => Err(Error::MissingContainer { name: path.to_path_buf(), uuid: superblock.uuid, looked }),
        }
    }
}

/// Reads the superblock and the summary if `file` is a name. `None`: some other file. `path` is for messages.
///
/// Costs one read, and none if the length is not that of a superblock.
pub fn read_name(file: &dyn StoreFile, stat: &Stat, path: &Path) -> Result<Option<(Superblock, Option<Summary>)>> {
    if stat.kind != store::Kind::File || stat.len != FILE_BYTES as u64 {
        return Ok(None);
    }
    let mut bytes = [0; FILE_BYTES];
    let n = store::read_full(file, &mut bytes, 0).at("read", path)?;
    match Superblock::decode(&bytes[..n]) {
        Ok(superblock) => {
            let summary = bytes.get(summary::OFFSET as usize..n).and_then(|bytes| Summary::decode(bytes, &superblock.uuid));
            Ok(Some((superblock, summary)))
        }
        Err(SuperError::NotASuperblock) => Ok(None),
        Err(SuperError::Unknown { major, features }) => Err(Error::UnknownFormat { path: path.to_path_buf(), major, features }),
        Err(SuperError::Bad(bad)) => Err(Error::Corrupt { path: path.to_path_buf(), bad }),
    }
}

/// The root for a new file at `path`: the innermost configured mount above it, else the nearest ancestor that has a `.plfs`, else its own directory.
pub fn find_root(store: &dyn Store, path: &Path, mounts: &[PathBuf]) -> PathBuf {
    let inside = mounts.iter().filter(|mount| path.starts_with(mount) && path != mount.as_path());
    if let Some(mount) = inside.max_by_key(|mount| mount.as_os_str().len()) {
        return mount.clone();
    }
    let marked = path.ancestors().skip(1).find(|dir| store.stat(&dir.join(name::ROOT_DIR), true).is_ok_and(|stat| stat.kind == store::Kind::Dir));
    marked.or(path.parent()).unwrap_or(Path::new("/")).to_path_buf()
}
