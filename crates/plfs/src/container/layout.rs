//! Where a container's files are, and how a name leads to them.

use std::borrow::Borrow;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::ops::{ControlFlow, Deref};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use plfs_format::backend::State;
use plfs_format::index_log::LogId;
use plfs_format::layout::Placement;
use plfs_format::name::{self, Name, SegmentRef};
use plfs_format::spread;
use plfs_format::superblock::{FILE_BYTES, SuperError, Superblock};
use plfs_format::{Bad, Uuid};
use plfs_format::{summary, summary::Summary};

use super::backends::Table;
use crate::config::{Config, INDEX_BYTES, is_at_or_below};
use crate::error::{At, Error, Result};
use crate::store::{self, Errno, Keep, Links, Open, Place, Stat, Store, StoreFile, Time};
use crate::sync::{Arc, Mutex, lock};

/// A container: its superblock and its directory on the root backend.
#[derive(Debug)]
pub struct Container {
    /// Where everything of it is stored.
    pub store: Arc<dyn Store>,
    facts: Arc<Facts>,
    /// See [`Container::opened_later`].
    pub(super) waits: bool,
}

/// What a container is through each view of its store.
#[derive(Clone, Debug)]
pub struct Facts {
    /// What its superblock says.
    pub superblock: Superblock,
    /// Its directory on the root backend.
    pub dir: Arc<Path>,
    /// Bytes of `dir` that are the root: who asks for that at each open takes no path apart.
    root_len: usize,
    /// `dev` and `ino` of the names: of `super`, or of `base` if there is one.
    pub identity: (u64, u64),
    /// Whether writes end in this machine's page cache (see [`Store::is_local`]).
    pub local: bool,
    /// The name that led here is a copy of the superblock, not a link to it: others may be, too,
    /// so nobody can tell when the last one is gone.
    pub copied: bool,
    /// Bytes of an index that a process holds in its own memory; a longer one lies in a file (see
    /// [`Config`](crate::Config)).
    pub index_bytes: u64,
    /// Where the processes of the node meet (see [`Config`](crate::Config)).
    pub shared_memory: Option<Arc<Path>>,
    /// By what writers of this process choose between targets.
    pub placement: Placement,
    /// The file of the site with what nodes know of targets (see [`Config`](crate::Config)).
    pub rates: Option<Arc<Path>>,
    /// When an append to a storage target is given up (see [`Config`](crate::Config)).
    pub deadline: Option<Duration>,
    /// The last listing that [`Container::list_at`] may give again.
    pub(super) listed: Arc<Mutex<Option<Listing>>>,
}

impl Deref for Container {
    type Target = Facts;

    fn deref(&self) -> &Facts {
        &self.facts
    }
}

/// A time of the directory, and the names that it had.
type Listing = (Time, Arc<[Name]>);

/// Names of a listing that is kept: a process remembers tens of thousands of containers.
const LISTED_MAX: usize = 1024;

/// What [`SegmentRef::BASE`] has for its backend: it is in the container.
const BASE_BACKEND: u16 = SegmentRef::BASE.backend;

/// The directory of container `uuid` below `root`. Made for each stat of a file: in one piece of
/// memory, with room for the name of a file in it.
pub(super) fn container_dir(root: &Path, uuid: Uuid) -> PathBuf {
    let (shard, rest) = uuid.dirs();
    let below = name::ROOT_DIR.len() + shard.len() + rest.len() + name::SUPER.len() + 4;
    let mut dir = PathBuf::with_capacity(root.as_os_str().len() + below);
    dir.extend([root, Path::new(name::ROOT_DIR), Path::new(&shard), Path::new(&rest)]);
    dir
}

/// The root of the container whose directory is `dir`.
pub(crate) fn root_of(dir: &Path) -> &Path {
    dir.ancestors().nth(3).unwrap_or(dir)
}

/// Where container `uuid` lies on the root backend, which is looked up from a descriptor. Its parts
/// on other backends, wherever those are by the table, are reached without following links as well,
/// as all that lies below a `.plfs`.
pub(super) fn places(root: &Path, uuid: Uuid) -> Vec<Place> {
    vec![Place { root: root.to_path_buf(), dir: container_dir(root, uuid) }]
}

/// A view of the directories in which containers are, below these roots.
pub(crate) fn in_roots<'a>(
    store: &Arc<dyn Store>,
    roots: impl IntoIterator<Item = &'a Path>,
) -> Arc<dyn Store> {
    let place = |root: &Path| Place { root: root.to_path_buf(), dir: root.join(name::ROOT_DIR) };
    store
        .inside(roots.into_iter().map(place).collect(), Keep::Nothing)
        .unwrap_or_else(|| store.clone())
}

impl Container {
    /// The container, for a process with these settings.
    pub fn configured(self, config: &Config) -> Container {
        let placement = self.superblock.placement.unwrap_or(config.placement);
        self.with(|facts| Facts {
            index_bytes: config.index_bytes,
            shared_memory: config.shared_memory.as_deref().map(Into::into),
            placement,
            rates: config.rates.as_deref().map(Into::into),
            deadline: config.deadline,
            ..facts
        })
    }

    fn with(self, change: impl FnOnce(Facts) -> Facts) -> Container {
        Container { facts: Arc::new(change(Facts::clone(&self.facts))), ..self }
    }

    /// The container, for who opens its file: as the owner of the file, if the store serves several
    /// users, and from a descriptor of its directory, which leads to its files whatever is renamed
    /// above. An open on the root backend.
    pub fn opened(&self, uid: u32, gid: u32) -> Container {
        let keep = if self.local { Keep::ToHold } else { Keep::Now };
        self.viewed(uid, gid, |store| store.inside(self.places(), keep))
    }

    /// [`Container::opened`] of one that was seen before, for a caller who has its superblock open
    /// as long as the container: its directory is opened by the first call that needs it.
    pub fn opened_later(&self, uid: u32, gid: u32) -> Container {
        if !self.local || self.copied || self.superblock.has_base {
            return self.opened(uid, gid);
        }
        let (dev, ino) = self.identity;
        let keep = Keep::Later { dev, ino };
        let later = |store: &Arc<dyn Store>| {
            store.again(keep).or_else(|| store.inside(self.places(), keep))
        };
        Container { waits: true, ..self.viewed(uid, gid, later) }
    }

    /// The container as the owner of the file, through a view of that store, if it has one.
    fn viewed(
        &self,
        uid: u32,
        gid: u32,
        view: impl FnOnce(&Arc<dyn Store>) -> Option<Arc<dyn Store>>,
    ) -> Container {
        let owned = self.as_owner(uid, gid);
        let store = &owned.as_ref().unwrap_or(self).store;
        self.through(view(store).unwrap_or_else(|| store.clone()))
    }

    /// Makes the superblock durable, the directories between it and the root, and the directory
    /// `named` of the name, if that is another. `open` is the superblock, if this process has it
    /// open already, with a mode that would not let it open it again.
    pub fn sync_names(&self, open: Option<&dyn StoreFile>, named: Option<&Path>) -> Result<()> {
        let store = &self.store;
        // Who may only write it may sync it.
        let open_one = |path: &Path| match store.open(path, Open::READ) {
            Err(Errno::ACCESS) => store.open(path, Open { read: false, write: true, ..Open::READ }),
            other => other,
        };
        let path = self.path(name::SUPER);
        match open {
            Some(file) => file.sync_data(),
            None => open_one(&path).at("open", &path)?.sync_data(),
        }
        .at("sync", &path)?;
        if self.superblock.has_base {
            // With the attribute that says so.
            let path = self.path(name::BASE);
            open_one(&path).at("open", &path)?.sync_all().at("sync", &path)?;
        }
        let above: Vec<&Path> = self.dir.ancestors().take(4).collect();
        let below = named.filter(|dir| !above.contains(dir));
        for dir in above.iter().copied().chain(below) {
            match store.sync_dir(dir) {
                // A directory that we may not open was made by someone else, before; and the name
                // may have moved.
                Ok(()) | Err(Errno::ACCESS | Errno::PERM) => {}
                Err(Errno::NOENT | Errno::NOTDIR) if Some(dir) == below => {}
                Err(errno) => return Err(errno).at("sync", dir),
            }
        }
        Ok(())
    }

    /// Whether `name` is below the root: then each directory above the root is above the name, too.
    pub fn is_below_root(&self, name: &Path) -> bool {
        let (name, root) = (name.as_os_str().as_bytes(), self.root().as_os_str().as_bytes());
        // By bytes, because it is asked at each open: what is written in another way is looked up.
        let rest = name.strip_prefix(root.strip_suffix(b"/").unwrap_or(root));
        rest.is_some_and(|rest| {
            rest.starts_with(b"/") && !rest.windows(4).any(|part| part == b"/../")
        })
    }

    /// Whether the file with stat `stat` at `name` is a copy of the superblock, to where no root
    /// has the container. By another mount of the same file system it has another device, and the
    /// same number.
    pub fn is_copied_away(&self, name: &Path, stat: &Stat) -> bool {
        self.copied && stat.ino != self.identity.1 && !self.is_below_root(name)
    }

    /// Opens the directory now, if that [waits](Container::opened_later) for the first use. What
    /// cannot be opened is an error of that.
    pub fn open_now(&self) {
        if self.waits {
            let _ = self.store.stat(&self.dir, Links::Stay);
        }
    }

    /// The container as the owner of the file, if the store serves several users.
    pub fn as_owner(&self, uid: u32, gid: u32) -> Option<Container> {
        self.store.for_owner(uid, gid).map(|store| self.through(store))
    }

    /// The container, for who remembers many: without a descriptor.
    pub fn remembered(&self) -> Container {
        self.through(
            self.store.inside(self.places(), Keep::Nothing).unwrap_or_else(|| self.store.clone()),
        )
    }

    fn places(&self) -> Vec<Place> {
        vec![Place { root: self.root().to_path_buf(), dir: self.dir.to_path_buf() }]
    }

    /// The same container through another view of its store.
    pub fn through(&self, store: Arc<dyn Store>) -> Container {
        Container { store, facts: self.facts.clone(), waits: self.waits }
    }

    /// Path of a file on the root backend.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The backend on which a new segment of a stream is put, if all are active and have room.
    pub fn backend_of(&self, set: u32, stream: u16) -> u16 {
        let backends = &self.superblock.backends;
        let turn = (u64::from(set) + u64::from(stream)) % (backends.len() as u64).max(1);
        backends.get(turn as usize).copied().unwrap_or(0)
    }

    /// The backends that take new data of the file, by turns from [`Container::backend_of`] on:
    /// those of the superblock that are active; if none is, those of the table; else the root
    /// (docs/decisions/0018). Costs a small read a second for each backend, nothing if the root is
    /// the only one.
    pub fn targets(&self, set: u32, stream: u16) -> Result<Vec<u16>> {
        let listed = &self.superblock.backends;
        if listed.iter().all(|id| *id == 0) {
            return Ok(vec![0]);
        }
        let table = self.table();
        // What the table does not know, or nobody understands, is an error of who needs it.
        let takes = |id: &u16| table.state(*id).map_or(true, |state| state == State::Active);
        let mut active: Vec<u16> = listed.iter().copied().filter(takes).collect();
        if active.is_empty() {
            active = table.active()?;
        }
        if active.is_empty() {
            active.push(0);
        }
        let turn = self.backend_of(set, stream);
        let first = active.iter().position(|id| *id == turn).unwrap_or_else(|| {
            ((u64::from(set) + u64::from(stream)) % active.len() as u64) as usize
        });
        active.rotate_left(first);
        Ok(active)
    }

    /// Whether a backend has room for something new. See [`Table::has_room`].
    pub fn has_room(&self, backend: u16) -> bool {
        self.table().has_room(backend)
    }

    /// What may be done with a backend; `None` if the table does not say.
    pub fn backend_state(&self, backend: u16) -> Option<State> {
        self.table().state(backend).ok()
    }

    /// Whether a backend takes new streams.
    pub fn is_active(&self, backend: u16) -> bool {
        self.table().state(backend).is_ok_and(|state| state == State::Active)
    }

    /// The backends on which data of it may lie, the root first, then those that its log sets use,
    /// then all others of the table. Costs a listing.
    pub fn backends(&self) -> Result<Vec<u16>> {
        let mut ids = vec![0];
        for id in self.superblock.backends.iter().copied().chain(self.table().in_use()?) {
            if !ids.contains(&id) {
                ids.push(id);
            }
        }
        Ok(ids)
    }

    /// What the blocks of a log set's index log must say.
    pub fn log_id(&self, set: u32) -> LogId {
        LogId { uuid: self.superblock.uuid, set }
    }

    /// The root: the directory that has the `.plfs` in which the container is.
    pub fn root(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.dir.as_os_str().as_bytes()[..self.root_len]))
    }

    fn table(&self) -> Table<'_> {
        Table { store: self.store.as_ref(), root: self.root(), dev: self.identity.0 }
    }

    /// The directory of a backend. Costs two small reads when the process first uses it, and
    /// nothing after that.
    pub fn backend_root(&self, backend: u16) -> Result<PathBuf> {
        match backend {
            0 | BASE_BACKEND => Ok(self.root().to_path_buf()),
            id => self.table().find(id),
        }
    }

    /// Where the table says that a backend is, and whether the process has seen that it is there.
    pub fn backend_entry(&self, backend: u16) -> Result<(PathBuf, bool)> {
        match backend {
            0 | BASE_BACKEND => Ok((self.root().to_path_buf(), true)),
            id => self.table().look(id),
        }
    }

    /// The container's directory on a backend.
    pub fn backend_dir(&self, backend: u16) -> Result<PathBuf> {
        match backend {
            0 | BASE_BACKEND => Ok(self.dir.to_path_buf()),
            id => Ok(container_dir(&self.table().find(id)?, self.superblock.uuid)),
        }
    }

    /// [`Container::backend_dir`] for who did not find there what it looked for: whether the
    /// backend is there, and where, is looked up again.
    pub fn backend_dir_again(&self, backend: u16) -> Result<PathBuf> {
        match backend {
            0 | BASE_BACKEND => Ok(self.dir.to_path_buf()),
            id => Ok(container_dir(&self.table().find_again(id)?, self.superblock.uuid)),
        }
    }

    /// The container's directories on all backends that are there, the root's first. Data on one
    /// that is not is missed by who needs it.
    pub fn backend_dirs(&self) -> Result<Vec<PathBuf>> {
        Ok(self.dirs_by_backend()?.into_iter().map(|(_, dir)| dir).collect())
    }

    /// [`Container::backend_dirs`], each with the id of its backend.
    pub fn dirs_by_backend(&self) -> Result<Vec<(u16, PathBuf)>> {
        let mut dirs: Vec<(u16, PathBuf)> = Vec::new();
        for backend in self.backends()? {
            let is_listed = self.superblock.backends.contains(&backend);
            match self.backend_dir(backend) {
                // Two ids may lead to one directory.
                Ok(dir) if dirs.iter().any(|(_, known)| *known == dir) => {}
                Ok(dir) => dirs.push((backend, dir)),
                // Of other files perhaps: a user who may not look there has nothing there.
                Err(error @ Error::Io { .. }) if is_listed => return Err(error),
                // The table has no such backend, or says nothing that is so: who needs what is
                // there says that.
                Err(_) => {}
            }
        }
        Ok(dirs)
    }

    /// Path of a segment.
    pub fn segment_path(&self, at: &SegmentRef) -> Result<PathBuf> {
        if *at == SegmentRef::BASE {
            return Ok(self.path(name::BASE));
        }
        Ok(self.backend_dir(at.backend)?.join(name::data_log(at)))
    }

    /// The files on the root backend whose names the format knows.
    pub fn list(&self) -> Result<Vec<Name>> {
        let entries = self.store.list(&self.dir).at("list the container", &self.dir)?;
        Ok(entries.iter().filter_map(|entry| entry.name.to_str().and_then(Name::parse)).collect())
    }

    /// [`Container::list`], but of `most` names at most, and whether that is all.
    pub fn list_some(&self, most: usize) -> Result<(Vec<Name>, bool)> {
        let (mut names, mut is_whole) = (Vec::new(), true);
        let visit = &mut |entry: &store::Entry| {
            is_whole = names.len() < most;
            if is_whole {
                names.extend(entry.name.to_str().and_then(Name::parse));
            }
            if is_whole { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        self.store.visit(&self.dir, visit).at("list the container", &self.dir)?;
        Ok((names, is_whole))
    }

    /// [`Container::list`], which ends when it has met `most` open marks: of a file with many
    /// owners far less is read than all names. It is whole if it has none.
    pub fn list_until_marks(&self, most: usize) -> Result<Vec<Name>> {
        let (mut names, mut marks) = (Vec::new(), 0);
        let visit = &mut |entry: &store::Entry| {
            let name = entry.name.to_str().and_then(Name::parse);
            marks += usize::from(matches!(name, Some(Name::OpenMark(_))));
            names.extend(name);
            if marks < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        self.store.visit(&self.dir, visit).at("list the container", &self.dir)?;
        Ok(names)
    }

    /// When the last name came or went, or the token of a summary (FORMAT.md section 5): the
    /// modification time of the directory.
    pub fn time(&self) -> Result<Time> {
        Ok(self.store.stat(&self.dir, Links::Follow).at("stat", &self.dir)?.mtime)
    }

    /// [`Container::list`] at a [`Container::time`]; costs nothing if there was a listing at that
    /// time before. Where lookups travel it is listed again if it had a log set: a time that is
    /// known there may be an old one.
    pub fn list_at(&self, time: Time) -> Result<Arc<[Name]>> {
        if let Some((_, names)) = lock(&self.listed).as_ref().filter(|(then, _)| *then == time) {
            return Ok(names.clone());
        }
        let names: Arc<[Name]> = self.list()?.into();
        let may_stay = self.local
            || !names.iter().any(|name| matches!(name, Name::LogSet(_) | Name::OpenMark(_)));
        *lock(&self.listed) = (may_stay && names.len() <= LISTED_MAX && time.is_long_past())
            .then(|| (time, names.clone()));
        Ok(names)
    }

    /// Whether one of these log sets, in which no index log was found, is gone: then so may be what
    /// other logs said, and a reader begins anew. Costs a listing, unless there are none.
    pub fn has_lost(&self, missing: &[u32]) -> Result<bool> {
        if missing.is_empty() {
            return Ok(false);
        }
        let sets = log_sets(&self.list()?);
        Ok(missing.iter().any(|set| !sets.contains(set)))
    }

    /// Finds the container of the name at `path` whose superblock was read from a file with stat
    /// `stat` (FORMAT.md section 1).
    ///
    /// Costs a lookup of the directory, from whose descriptor the container is used then, and a
    /// stat, if the nearest root is the right one.
    pub fn locate(
        store: Arc<dyn Store>,
        superblock: Superblock,
        path: &Path,
        stat: &Stat,
        mounts: &[PathBuf],
    ) -> Result<Container> {
        let recorded =
            Some(Path::new(OsStr::from_bytes(&superblock.root))).filter(|root| root.is_absolute());
        let above_mount =
            mounts.iter().map(PathBuf::as_path).filter(|mount| path.starts_with(mount));
        let roots = above_mount.chain(path.ancestors().skip(1)).chain(recorded);
        let (mut looked, mut copy_of) = (Vec::<PathBuf>::new(), None::<Container>);
        let (mut refused, mut unknown) = (None, None);
        for root in roots {
            let dir = container_dir(root, superblock.uuid);
            if looked.contains(&dir) {
                continue;
            }
            match Container::at(&store, &superblock, root, dir.clone()) {
                Ok(container) if container.identity == (stat.dev, stat.ino) => {
                    return Ok(container);
                }
                Ok(copy) => {
                    copy_of =
                        copy_of.or_else(|| Some(copy.with(|facts| Facts { copied: true, ..facts })))
                }
                Err(error) => match error.errno() {
                    Errno::NOENT | Errno::NOTDIR => {}
                    Errno::LOOP | Errno::ACCESS | Errno::PERM => refused = refused.or(Some(error)),
                    _ => unknown = unknown.or(Some(error)),
                },
            }
            looked.push(dir);
        }
        // Of a copy of the tree the original has other bytes.
        if let Some(error) = unknown {
            return Err(error);
        }
        match (copy_of, refused) {
            (Some(container), _) => Ok(container),
            (None, Some(error)) => Err(error),
            (None, None) => Err(Error::MissingContainer {
                name: path.to_path_buf(),
                uuid: superblock.uuid,
                looked,
            }),
        }
    }

    /// The container with this superblock below `root`. A stat, from a descriptor of its directory.
    pub fn in_root(
        store: &Arc<dyn Store>,
        superblock: &Superblock,
        root: &Path,
    ) -> Result<Container> {
        Container::at(store, superblock, root, container_dir(root, superblock.uuid))
    }

    /// [`Container::in_root`] for who knows its directory `dir`.
    fn at(
        store: &Arc<dyn Store>,
        superblock: &Superblock,
        root: &Path,
        dir: PathBuf,
    ) -> Result<Container> {
        let local = store.is_local(root);
        let places = vec![Place { root: root.to_path_buf(), dir: dir.clone() }];
        let store = store.inside(places, Keep::WhenUsed).unwrap_or_else(|| store.clone());
        let path = dir.join(if superblock.has_base { name::BASE } else { name::SUPER });
        let found = match store.stat(&path, Links::Stay) {
            Ok(found) if found.kind == store::Kind::Symlink => Err(Errno::LOOP),
            other => other,
        };
        let found = found.at("stat", &path)?;
        let identity = (found.dev, found.ino);
        Ok(Container::of_parts(store, superblock.clone(), dir, identity, local))
    }

    /// A container of which everything is known.
    pub(super) fn of_parts(
        store: Arc<dyn Store>,
        superblock: Superblock,
        dir: PathBuf,
        identity: (u64, u64),
        local: bool,
    ) -> Container {
        let facts = Facts {
            superblock,
            root_len: root_of(&dir).as_os_str().len(),
            dir: dir.into(),
            identity,
            local,
            copied: false,
            index_bytes: INDEX_BYTES,
            shared_memory: None,
            placement: Placement::Measured,
            rates: None,
            deadline: None,
            listed: Arc::default(),
        };
        Container { store, facts: Arc::new(facts), waits: false }
    }

    /// The name, in the container, of the inode that the file's names lead to: it has mode, owner,
    /// times and attributes of the file.
    pub fn inode_name(&self) -> &'static str {
        if self.superblock.has_base { name::BASE } else { name::SUPER }
    }

    /// Path of that inode.
    pub fn inode_path(&self) -> PathBuf {
        self.path(self.inode_name())
    }

    /// What files in shared memory that are about the container have in their names. A copy of a
    /// tree, hard links and all, has the uuid and may have the device: its containers are others.
    pub fn key(&self) -> String {
        let (dev, ino) = self.identity;
        format!("{dev:x}-{ino:x}-{}", self.superblock.uuid)
    }

    /// The root that the superblock records, if the original of this container is there: this one
    /// came with a copy of a tree, and what it has on other backends is the original's.
    ///
    /// Who has the inode number that the superblock records is the original, wherever it is. Who
    /// has another is a copy as long as there is a container where that was made (FORMAT.md section
    /// 2): without one nobody else is known who needs the data.
    ///
    /// Costs nothing for a file that is where it was made, or on its root alone, else a look at the
    /// table of backends and a stat; two more by another mount of its file system.
    pub fn original(&self) -> Option<&Path> {
        let recorded = Path::new(OsStr::from_bytes(&self.superblock.root));
        let is_alone = || self.backends().is_ok_and(|ids| ids.len() < 2);
        if recorded == self.root() || !recorded.is_absolute() || is_alone() {
            return None;
        }
        let (dev, ino) = self.identity;
        let there = container_dir(recorded, self.superblock.uuid).join(self.inode_name());
        let is_other = match self.store.stat(&there, Links::Stay) {
            Ok(there) if there.ino == ino => there.dev != dev && !self.is_same_root(recorded),
            Ok(_) => self.superblock.inode != ino,
            Err(Errno::NOENT | Errno::NOTDIR) => false,
            // Nobody can tell whether it is there. It was not made here.
            Err(_) => ![0, ino].contains(&self.superblock.inode),
        };
        is_other.then_some(recorded)
    }

    /// Whether a root whose device has another number is this one by another mount. A copy on a
    /// file system of its own may have the same inode numbers, but its table has a time of its own.
    fn is_same_root(&self, other: &Path) -> bool {
        let [own, other] = [self.root(), other].map(|root| {
            let table = root.join(name::ROOT_DIR).join(name::BACKENDS);
            self.store.stat(&table, Links::Stay).map(|table| (table.ino, table.ctime))
        });
        own == other
    }

    /// The container's directories on all backends where nobody else's data is: the root's alone if
    /// its [original](Container::original) has the others, or may have them, because the superblock
    /// that says so is lost.
    pub fn own_dirs(&self) -> Result<Vec<PathBuf>> {
        match self.superblock.root.is_empty() || self.original().is_some() {
            true => Ok(vec![self.dir.to_path_buf()]),
            false => self.backend_dirs(),
        }
    }

    /// Bytes of the plain file that the container was made of; `None` if it was made as one. A
    /// stat.
    pub fn base_len(&self) -> Result<Option<u64>> {
        if !self.superblock.has_base {
            return Ok(None);
        }
        let path = self.path(name::BASE);
        Ok(Some(self.store.stat(&path, Links::Stay).at("stat", &path)?.len))
    }
}

/// The log sets among names of a container.
pub(crate) fn log_sets(names: impl IntoIterator<Item = impl Borrow<Name>>) -> BTreeSet<u32> {
    let set_of = |name: &Name| if let Name::LogSet(set) = *name { Some(set) } else { None };
    names.into_iter().filter_map(|name| set_of(name.borrow())).collect()
}

/// What is wrong with a name whose superblock is right and has another length.
pub(crate) const WRITTEN_TO: &str = "a program that runs without PLFS has written to this name, \
    or cut it; the file's data is not touched: `plfs check --repair` takes out what was written";

/// Reads the superblock and the summary if `file` is a name. `None`: some other file. `path` is for
/// messages.
///
/// Costs one read, and none if the length is not that of a superblock and there is no other link.
/// Corrupt if a program without PLFS has written to the name: the data is in the container still.
pub fn read_name(
    file: &dyn StoreFile,
    stat: &Stat,
    path: &Path,
) -> Result<Option<(Superblock, Option<Summary>)>> {
    let has_length = stat.len == FILE_BYTES as u64;
    if stat.kind != store::Kind::File || !has_length && stat.nlink <= 1 {
        return Ok(None);
    }
    let mut bytes = [0; FILE_BYTES];
    let n = store::read_full(file, &mut bytes, 0).at("read", path)?;
    match Superblock::decode(&bytes[..n]) {
        Ok(_) if !has_length => {
            Err(Error::of_bytes(path, Bad::new(stat.len.min(FILE_BYTES as u64), WRITTEN_TO)))
        }
        // Somebody's own file, which begins like one.
        Err(_) if !has_length => Ok(None),
        Ok(superblock) => {
            let summary = bytes
                .get(summary::OFFSET as usize..n)
                .and_then(|bytes| Summary::decode(bytes, &superblock.uuid));
            Ok(Some((superblock, summary)))
        }
        Err(SuperError::NotASuperblock) => Ok(None),
        Err(SuperError::Unknown { major, features }) => {
            Err(Error::UnknownFormat { path: path.to_path_buf(), major, features })
        }
        Err(SuperError::Bad(bad)) => Err(Error::of_bytes(path, bad)),
    }
}

/// The root for a new file at `path`: the innermost configured mount above it, else the nearest
/// ancestor that has a `.plfs`, else its own directory. Of a name in a shadow its backend. Fails if
/// the storage does not say whether a directory is one.
pub fn find_root(store: &dyn Store, path: &Path, mounts: &[PathBuf]) -> Result<PathBuf> {
    let own = Path::new(name::ROOT_DIR).join(spread::DIR);
    if let Some(backend) = path.ancestors().find(|dir| dir.ends_with(&own)) {
        return Ok(backend.ancestors().nth(2).unwrap_or(backend).to_path_buf());
    }
    let inside =
        mounts.iter().filter(|mount| is_at_or_below(path, mount) && path != mount.as_path());
    if let Some(mount) = inside.max_by_key(|mount| mount.as_os_str().len()) {
        return Ok(mount.clone());
    }
    for dir in path.ancestors().skip(1) {
        let root_dir = dir.join(name::ROOT_DIR);
        match store.stat(&root_dir, Links::Stay) {
            Ok(stat) if stat.kind == store::Kind::Dir => return Ok(dir.to_path_buf()),
            // A directory that may not be searched is nobody's root, and a long name has none.
            Ok(_) | Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::NAMETOOLONG) => {}
            Err(errno) => return Err(errno).at("stat", &root_dir),
        }
    }
    Ok(path.parent().unwrap_or(Path::new("/")).to_path_buf())
}
