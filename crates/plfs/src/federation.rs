//! L5: the backends of a root in use: added, moved, drained, removed (docs/decisions/0018).
//!
//! To drain a backend is to compact each file that has data there onto others. That needs no
//! journal: a file that still has a data log there is not done, so whoever does it again goes on.

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use plfs_format::Uuid;
use plfs_format::backend::{Backend, State};
use plfs_format::name::{self, Name};
use plfs_format::spread;
use plfs_format::superblock::{FILE_BYTES, Superblock};

use crate::compact::compact_to;
use crate::config::Config;
use crate::container::{Container, Table, in_roots, make_backend, read_name};
use crate::error::{At, Error, Result};
use crate::lifecycle;
use crate::pack::Pack;
use crate::store::{Errno, Kind, Links, Open, Space, Store, read_full};
use crate::sync::{Arc, thread};

/// For how long whoever has begun to use a backend may not know that it is being drained: what a
/// process believes, and a little.
pub const SETTLES: std::time::Duration = std::time::Duration::from_millis(1200);

/// Whether a backend is where the table says.
#[derive(Clone, Debug)]
pub enum Presence {
    /// It is.
    There,
    /// It is not, or what is there is not it, or that cannot be known.
    Not(Error),
}

/// A row of the table of backends, and what lies there.
#[derive(Clone, Debug)]
pub struct BackendStatus {
    /// Its id; 0 is the root.
    pub id: u16,
    /// Where it is to be.
    pub path: PathBuf,
    /// What may be done with it; `None` if its entry cannot be read.
    pub state: Option<State>,
    /// Whether it is there.
    pub presence: Presence,
    /// Room on its file system.
    pub space: Option<Space>,
    /// What lies there of files of the root.
    pub held: Held,
    /// What lies there of no file of the root: of another root, or of files that were removed
    /// while it was not there.
    pub foreign: Held,
    /// Directories there that have names of flat directories, or are to have one.
    pub shadows: u64,
}

/// What lies on a backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Files that have data logs there.
    pub files: u64,
    /// Data logs.
    pub segments: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Held {
    fn add(&mut self, part: &Part) {
        self.files += 1;
        self.segments += part.logs.len() as u64;
        self.bytes += part.bytes();
    }
}

/// What a drain did, or the part of it that [`Plfs::drain_flat`](crate::Plfs::drain_flat) did.
#[derive(Clone, Debug, Default)]
pub struct Drained {
    /// Files that have nothing there any more, and had.
    pub files: u64,
    /// Bytes copied.
    pub copied_bytes: u64,
    /// What could not be moved now.
    pub left: Vec<Left>,
}

/// A file of which data is still on a backend, or a name that is there.
#[derive(Clone, Debug)]
pub struct Left {
    /// Its names; none if it has none below the root.
    pub names: Vec<PathBuf>,
    /// Its container; of a name what has it, as it lies on the storage.
    pub container: PathBuf,
    /// Bytes there.
    pub bytes: u64,
    /// Why.
    pub why: Error,
}

/// How far a drain is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// Bytes of the files that are done, and of the one under way.
    pub done_bytes: u64,
    /// Bytes of all files that have data there.
    pub all_bytes: u64,
}

/// A container's part on a backend.
struct Part {
    uuid: Uuid,
    /// Log set, and length.
    logs: Vec<(u32, u64)>,
}

impl Part {
    fn bytes(&self) -> u64 {
        self.logs.iter().map(|(_, len)| len).sum()
    }
}

/// The table of a root, and the ways into it and its backends that follow no links.
struct Root<'a> {
    store: Arc<dyn Store>,
    view: Arc<dyn Store>,
    config: &'a Config,
    path: &'a Path,
    dev: u64,
}

impl<'a> Root<'a> {
    fn new(store: &Arc<dyn Store>, config: &'a Config, path: &'a Path) -> Result<Root<'a>> {
        let dir = path.join(name::ROOT_DIR);
        match store.stat(&dir, Links::Follow) {
            Ok(stat) if stat.kind == Kind::Dir => {}
            _ => {
                return Err(Error::refused(
                    Errno::NOENT,
                    "use the root",
                    path,
                    "it has no .plfs: name the directory that has the PLFS files",
                ));
            }
        }
        let dev = store.stat(path, Links::Follow).at("stat", path)?.dev;
        let view = in_roots(store, [path]);
        Ok(Root { store: store.clone(), view, config, path, dev })
    }

    fn table(&self) -> Table<'_> {
        Table { store: self.view.as_ref(), root: self.path, dev: self.dev }
    }

    /// The entry of a backend, which is not the root.
    fn entry(&self, id: u16) -> Result<Backend> {
        if id == 0 {
            return Err(Error::invalid(
                Errno::INVAL,
                "0000 is the root itself, which has the names and index logs of all files; it \
                 cannot be moved, drained or removed as a backend",
            ));
        }
        self.table().read_entry(id).map(|(backend, _)| backend)
    }

    /// Ids of the directory that `id` is: it may have been registered twice.
    fn twins(&self, id: u16) -> Result<Vec<u16>> {
        let (table, identity) = (self.table(), self.entry(id)?.identity);
        let mut twins = Vec::new();
        for other in table.all()? {
            if table.find_entry(other)?.is_some_and(|backend| backend.identity == identity) {
                twins.push(other);
            }
        }
        Ok(twins)
    }

    /// Calls `visit` with each part of a container that has data logs on the backend at `path`.
    fn parts(&self, path: &Path, mut visit: impl FnMut(Part) -> Result<()>) -> Result<()> {
        let view = in_roots(&self.store, [path]);
        let top = path.join(name::ROOT_DIR);
        for shard in dirs_of(view.as_ref(), &top, 2)? {
            for dir in dirs_of(view.as_ref(), &shard, 30)? {
                let Some(uuid) = lifecycle::uuid_of(&dir) else { continue };
                let part = part_at(view.as_ref(), &dir, uuid)?;
                if !part.logs.is_empty() {
                    visit(part)?;
                }
            }
        }
        Ok(())
    }

    /// The directory that a container has on the root.
    fn dir_of(&self, uuid: Uuid) -> PathBuf {
        let (shard, rest) = uuid.dirs();
        self.path.join(name::ROOT_DIR).join(shard).join(rest)
    }

    /// Whether the container is of this root.
    fn has(&self, uuid: Uuid) -> Result<bool> {
        let dir = self.dir_of(uuid);
        match self.view.stat(&dir, Links::Stay) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(false),
            Err(errno) => Err(errno).at("stat", &dir),
        }
    }

    /// The parts that are of files of this root.
    fn own_parts(&self, path: &Path) -> Result<Vec<Part>> {
        let mut parts = Vec::new();
        self.parts(path, |part| {
            if self.has(part.uuid)? {
                parts.push(part);
            }
            Ok(())
        })?;
        Ok(parts)
    }

    /// What is left on the backend at `path` of one container.
    fn part_of(&self, path: &Path, uuid: Uuid) -> Result<Part> {
        let view = in_roots(&self.store, [path]);
        let (shard, rest) = uuid.dirs();
        let dir = path.join(name::ROOT_DIR).join(shard).join(rest);
        part_at(view.as_ref(), &dir, uuid)
    }

    /// The container, and whether it is a pack; `None` if it is not there any more.
    fn container(&self, uuid: Uuid) -> Result<Option<(Arc<Container>, bool)>> {
        let path = self.dir_of(uuid).join(name::SUPER);
        let (file, stat) = match self
            .view
            .open(&path, Open::READ.briefly())
            .and_then(|file| file.stat().map(|stat| (file, stat)))
        {
            Err(Errno::NOENT) if !self.has(uuid)? => return Ok(None),
            Err(Errno::NOENT) => {
                return Err(Error::refused(
                    Errno::IO,
                    "read",
                    &path,
                    "it is not there: the power went while the file was being removed, or the \
                     container is damaged (`plfs check`): put it back, or remove the directory \
                     that it was in",
                ));
            }
            other => other.at("open", &path)?,
        };
        let found = match read_name(file.as_ref(), &stat, &path) {
            Err(error @ Error::UnknownFormat { .. }) => {
                let mut bytes = [0; FILE_BYTES];
                let n = read_full(file.as_ref(), &mut bytes, 0).at("read", &path)?;
                match Superblock::decode_pack(&bytes[..n]) {
                    Ok(superblock) => Some((superblock, true)),
                    Err(_) => return Err(error),
                }
            }
            other => other?.map(|(superblock, _)| (superblock, false)),
        };
        match found {
            Some((superblock, is_pack)) => {
                let container = Container::in_root(&self.store, &superblock, self.path)?;
                Ok(Some((Arc::new(container.configured(self.config)), is_pack)))
            }
            None => Err(Error::refused(Errno::IO, "read", &path, "it is no superblock")),
        }
    }

    /// Moves what a file has on the backend `from` to others. The bytes copied.
    fn rewrite(
        &self,
        (container, is_pack): (&Arc<Container>, bool),
        from: (&Path, &[u16]),
        to: &[u16],
        progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<u64> {
        let (path, ids) = from;
        let uuid = container.superblock.uuid;
        container.must_be_coherent(self.config)?;
        let config = Arc::new(self.config.clone());
        let pack = is_pack.then(|| Pack::of_container(container.remembered(), &config));
        // What a compaction or a truncate could not remove while a backend was not there.
        match &pack {
            Some(pack) => pack.remove_what_has_gone()?,
            None => lifecycle::remove_what_has_gone(container)?,
        }
        let part = self.part_of(path, uuid)?;
        let names = container.list()?;
        for (set, _) in &part.logs {
            let dir = container.path(&name::log_set(*set));
            if !names.contains(&Name::LogSet(*set)) {
                if self.part_of(path, uuid)?.logs.iter().any(|(other, _)| other == set) {
                    let dir = path.join(dir.strip_prefix(self.path).unwrap_or(&dir));
                    return Err(Error::refused(Errno::IO, "move", &dir, lifecycle::UNEXPLAINED));
                }
                continue;
            }
            let stat = container.store.stat(&dir, Links::Stay).at("stat", &dir)?;
            if !lifecycle::is_removable(container.store.as_ref(), &stat) {
                return Err(Error::refused(
                    Errno::PERM,
                    "move",
                    &dir,
                    "the log set is another user's: drain the backend as that user or as root",
                ));
            }
        }
        if part.logs.is_empty() {
            return Ok(0);
        }
        let to = match to {
            [] => container.targets(0, 0)?.into_iter().filter(|id| !ids.contains(id)).collect(),
            to => to.to_vec(),
        };
        let to = if to.is_empty() { vec![0] } else { to };
        let copied = match pack {
            Some(pack) => {
                let turn = part.logs[0].0 as usize % to.len();
                pack.compact_to(Some(to[turn]), progress)?
            }
            None => compact_to(container, self.config, Some(&to), progress)?.copied_bytes,
        };
        if !self.part_of(path, uuid)?.logs.is_empty() {
            return Err(Error::refused(
                Errno::BUSY,
                "move all of",
                &container.dir,
                "somebody wrote to it meanwhile",
            ));
        }
        Ok(copied)
    }

    /// Names below the root of the files with these identities. A walk over all names.
    fn names(&self, wanted: &mut HashMap<(u64, u64), Vec<PathBuf>>) {
        let mut todo = vec![self.path.to_path_buf()];
        while let Some(dir) = todo.pop() {
            for entry in self.store.list(&dir).unwrap_or_default() {
                let path = dir.join(&entry.name);
                let Ok(stat) = self.store.stat(&path, Links::Stay) else { continue };
                match stat.kind {
                    Kind::Dir if entry.name == name::ROOT_DIR || stat.dev != self.dev => {}
                    Kind::Dir => todo.push(path),
                    // The name of a container is a link of what is in it.
                    Kind::File if stat.nlink > 1 => {
                        if let Some(names) = wanted.get_mut(&(stat.dev, stat.ino)) {
                            names.push(path);
                        }
                    }
                    _ => {}
                }
            }
        }
    }
}

/// What is in a container's directory on a backend.
fn part_at(store: &dyn Store, dir: &Path, uuid: Uuid) -> Result<Part> {
    let mut part = Part { uuid, logs: Vec::new() };
    for entry in list(store, dir)? {
        let Some(Name::LogSet(set)) = entry.to_str().and_then(Name::parse) else { continue };
        let set_dir = dir.join(&entry);
        for log in list(store, &set_dir)? {
            if log.to_str().and_then(name::parse_data_log).is_none() {
                continue;
            }
            let path = set_dir.join(&log);
            match store.stat(&path, Links::Stay) {
                Ok(stat) => part.logs.push((set, stat.len)),
                Err(Errno::NOENT | Errno::NOTDIR) => {}
                Err(errno) => return Err(errno).at("stat", &path),
            }
        }
    }
    Ok(part)
}

/// The names in a directory; none if it is not there, or a link that somebody planted.
fn list(store: &dyn Store, dir: &Path) -> Result<Vec<std::ffi::OsString>> {
    match store.list(dir) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(Vec::new()),
        other => Ok(other.at("list", dir)?.into_iter().map(|entry| entry.name).collect()),
    }
}

/// The directories in `dir` whose names are so many hex digits.
fn dirs_of(store: &dyn Store, dir: &Path, digits: usize) -> Result<Vec<PathBuf>> {
    let is_hex = |name: &std::ffi::OsString| {
        name.len() == digits
            && name.as_encoded_bytes().iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    };
    let mut names: Vec<_> = list(store, dir)?.into_iter().filter(is_hex).collect();
    names.sort();
    Ok(names.into_iter().map(|name| dir.join(name)).collect())
}

/// The backends of a root, the root itself first. Lists what lies on each: as long as a walk over
/// all its files.
pub fn backends(
    store: &Arc<dyn Store>,
    config: &Config,
    root: &Path,
) -> Result<Vec<BackendStatus>> {
    let root = Root::new(store, config, root)?;
    let table = root.table();
    let mut rows = Vec::new();
    for id in std::iter::once(0).chain(table.all()?) {
        let (path, state, presence) = match id {
            0 => (root.path.to_path_buf(), Some(State::Active), Presence::There),
            id => match table.read_entry(id) {
                Ok((backend, _)) => {
                    let path = crate::container::path_of(&backend);
                    let presence = match table.must_be(id, &backend, &path) {
                        Ok(()) => Presence::There,
                        Err(error) => Presence::Not(error),
                    };
                    (path, Some(backend.state), presence)
                }
                Err(error) => (PathBuf::new(), None, Presence::Not(error)),
            },
        };
        let (mut held, mut foreign, mut presence) = (Held::default(), Held::default(), presence);
        let is_there = matches!(presence, Presence::There);
        if is_there
            && let Err(error) = root.parts(&path, |part| {
                match root.has(part.uuid)? {
                    true => held.add(&part),
                    false => foreign.add(&part),
                }
                Ok(())
            })
        {
            presence = Presence::Not(error);
        }
        let space = is_there.then(|| store.space(&path).ok()).flatten();
        let spread = path.join(name::ROOT_DIR).join(spread::DIR);
        let shadows = list(store.as_ref(), &spread).map_or(0, |all| all.len() as u64);
        rows.push(BackendStatus { id, path, state, presence, space, held, foreign, shadows });
    }
    Ok(rows)
}

/// Where the backends in the table of the root are that are there; the root itself is none.
pub fn backend_dirs(store: &Arc<dyn Store>, config: &Config, root: &Path) -> Result<Vec<PathBuf>> {
    let root = Root::new(store, config, root)?;
    let table = root.table();
    let mut dirs = Vec::new();
    for id in table.all()? {
        let Ok((backend, _)) = table.read_entry(id) else { continue };
        let path = crate::container::path_of(&backend);
        if backend.state != State::Gone && table.must_be(id, &backend, &path).is_ok() {
            dirs.push(path);
        }
    }
    Ok(dirs)
}

/// Makes the directory `dir` a backend of the root that takes new data, and gives its id. One that
/// was drained or removed becomes active again. Durable on return.
///
/// An error if it is in the table by another path ([`move_backend`]).
pub fn join_backend(
    store: &Arc<dyn Store>,
    config: &Config,
    root: &Path,
    dir: &Path,
) -> Result<u16> {
    let of = Root::new(store, config, root)?;
    let stat = store.stat(dir, Links::Follow).at("use the backend", dir)?;
    if stat.kind != Kind::Dir {
        return Err(Errno::NOTDIR).at("use the backend", dir);
    }
    let root_stat = store.stat(root, Links::Follow).at("stat", root)?;
    if (stat.dev, stat.ino) == (root_stat.dev, root_stat.ino) {
        return Err(Error::refused(
            Errno::INVAL,
            "add",
            dir,
            "it is the root itself, which has the id 0000",
        ));
    }
    let table = of.table();
    let identity = crate::container::identity_at(store.as_ref(), dir)?;
    let mut again = None;
    for id in table.all()? {
        let Some(backend) = table.find_entry(id)? else { continue };
        match (crate::container::path_of(&backend) == dir, identity == Some(backend.identity)) {
            (true, true) => again = again.or(Some(id)),
            // Its file system may not be mounted; or there is another one now, which gets an id of
            // its own, once nothing is left of the old one.
            (true, false) if backend.state != State::Gone => {
                table.must_be(id, &backend, dir)?;
            }
            (false, true) if backend.state != State::Gone => {
                return Err(Error::refused(
                    Errno::EXIST,
                    "add",
                    dir,
                    "it is in the table by another path: `plfs backend status` shows its id, \
                     `plfs backend move` changes its path",
                ));
            }
            _ => {}
        }
    }
    if let Some(id) = again {
        table.change(id, |backend| {
            backend.state = State::Active;
            Ok(())
        })?;
        return Ok(id);
    }
    make_backend(store, config, root, dir)?;
    match crate::container::add_backend(store, config, root, dir)? {
        Some(id) => Ok(id),
        None => Err(Error::refused(
            Errno::AGAIN,
            "add",
            dir,
            "another process is taking it out of the table: try again",
        )),
    }
}

/// Says that backend `id` is at `dir` now. An error, and nothing done, unless what is there has its
/// identity. Processes that have it open go on; others find it at the new path at once.
pub fn move_backend(
    store: &Arc<dyn Store>,
    config: &Config,
    root: &Path,
    id: u16,
    dir: &Path,
) -> Result<()> {
    let root = Root::new(store, config, root)?;
    root.entry(id)?;
    for id in root.twins(id)? {
        root.table().change(id, |backend| {
            root.table().must_be(id, backend, dir)?;
            backend.path = dir.as_os_str().as_encoded_bytes().to_vec();
            Ok(())
        })?;
    }
    Ok(())
}

/// The ids of the directory that backend `id` is, which must be there and takes nothing new, as
/// after [`drain`]; and where it is.
pub(crate) fn drained_ids(
    store: &Arc<dyn Store>,
    config: &Config,
    root: &Path,
    id: u16,
) -> Result<(Vec<u16>, PathBuf)> {
    let of = Root::new(store, config, root)?;
    let (table, entry) = (of.table(), of.entry(id)?);
    let path = crate::container::path_of(&entry);
    table.must_be(id, &entry, &path)?;
    if entry.state != State::Draining {
        return Err(Error::refused(Errno::BUSY, "drain", &path, "it takes new names"));
    }
    Ok((of.twins(id)?, path))
}

/// Moves all data that files of the root have on backend `id` to the backends `to`; if that names
/// none, to the active ones of each file, else those of the table, else the root. From now on
/// nothing new is put there, also if this fails.
///
/// Files may be read and written meanwhile. One that is open for writing, or cannot be moved for
/// another reason, is told and stays; to call it again goes on. Whatever ends it, also `progress`
/// (EINTR), each file has all that it had.
pub fn drain(
    store: &Arc<dyn Store>,
    config: &Config,
    root: &Path,
    id: u16,
    to: &[u16],
    mut progress: impl FnMut(Progress) -> ControlFlow<()>,
) -> Result<Drained> {
    let of = Root::new(store, config, root)?;
    let (table, entry) = (of.table(), of.entry(id)?);
    let path = crate::container::path_of(&entry);
    table.must_be(id, &entry, &path)?;
    let ids = of.twins(id)?;
    for to in to {
        if ids.contains(to) {
            return Err(Error::invalid(Errno::INVAL, "a backend cannot be drained to itself"));
        }
        if table.state(*to)? != State::Active {
            return Err(Error::invalid(
                Errno::INVAL,
                "a backend that is named to take the data is being drained itself, or is gone",
            ));
        }
        if *to != 0 {
            table.find_again(*to)?;
        }
    }
    for id in &ids {
        table.change(*id, |backend| {
            if backend.state == State::Active {
                backend.state = State::Draining;
            }
            Ok(())
        })?;
    }
    let mut parts: BTreeMap<Uuid, (Part, u64)> = BTreeMap::new();
    let mut told = Progress::default();
    for part in of.own_parts(&path)? {
        // What it takes on all backends: all of it is copied.
        let size = match of.container(part.uuid) {
            Ok(Some((container, _))) => crate::compact::stored_bytes(&container).unwrap_or(0),
            _ => 0,
        };
        told.all_bytes += size;
        parts.insert(part.uuid, (part, size));
    }
    let (mut drained, mut wanted) = (Drained::default(), HashMap::new());
    let mut identities = Vec::new();
    for (uuid, (part, size)) in parts {
        let begun = told.done_bytes;
        let mut tell = |copied: u64| {
            told.done_bytes = begun + copied.min(size);
            progress(told)
        };
        if tell(0).is_break() {
            return Err(interrupted());
        }
        let container = of.container(uuid);
        let done = match &container {
            Ok(Some((container, is_pack))) => {
                of.rewrite((container, *is_pack), (&path, &ids), to, &mut tell)
            }
            Ok(None) => Ok(0),
            Err(error) => Err(error.clone()),
        };
        told.done_bytes = begun + size;
        match done {
            Ok(copied) => {
                drained.files += 1;
                drained.copied_bytes += copied;
            }
            Err(error) if error.errno() == Errno::INTR => return Err(interrupted()),
            // Removed meanwhile.
            Err(_) if !of.has(uuid)? => {}
            Err(why) => {
                let identity = container.ok().flatten().map(|(found, _)| found.identity);
                wanted.extend(identity.map(|identity| (identity, Vec::new())));
                identities.push(identity);
                let container = of.dir_of(uuid);
                let bytes = of.part_of(&path, uuid).map_or(part.bytes(), |part| part.bytes());
                drained.left.push(Left { names: Vec::new(), container, bytes, why });
            }
        }
    }
    if !wanted.is_empty() {
        of.names(&mut wanted);
    }
    for (left, identity) in drained.left.iter_mut().zip(identities) {
        left.names = identity.and_then(|identity| wanted.remove(&identity)).unwrap_or_default();
        left.names.sort();
    }
    Ok(drained)
}

pub(crate) fn interrupted() -> Error {
    Error::invalid(
        Errno::INTR,
        "interrupted; all files are whole, and the same command goes on where it ended",
    )
}

/// Takes a drained backend out of use, for ever unless it is added again: nobody looks there any
/// more. Its directory is left as it is but for what is empty.
///
/// An error, and nothing done, if it is not being drained, if any file of the root has data there,
/// or if repairs have put something into its lost+found. Looks twice, `settles` apart: somebody may
/// not know yet that it is being drained.
pub fn remove_backend(
    store: &Arc<dyn Store>,
    config: &Config,
    root: &Path,
    id: u16,
    settles: std::time::Duration,
) -> Result<()> {
    let of = Root::new(store, config, root)?;
    let (table, entry) = (of.table(), of.entry(id)?);
    let path = crate::container::path_of(&entry);
    if entry.state == State::Gone {
        return Ok(());
    }
    if entry.state != State::Draining {
        return Err(Error::refused(
            Errno::BUSY,
            "remove the backend",
            &path,
            "it takes new data: run `plfs backend drain` first",
        ));
    }
    table.must_be(id, &entry, &path)?;
    let must_be_empty = || match of.own_parts(&path)?.is_empty() {
        true => Ok(()),
        false => Err(Error::refused(
            Errno::BUSY,
            "remove the backend",
            &path,
            "files have data there (`plfs backend status` says how much): run `plfs backend \
             drain` until it has moved all",
        )),
    };
    must_be_empty()?;
    let must_have_no_names = || match list(
        store.as_ref(),
        &path.join(name::ROOT_DIR).join(spread::DIR),
    )?
    .is_empty()
    {
        true => Ok(()),
        false => Err(Error::refused(
            Errno::BUSY,
            "remove the backend",
            &path,
            "flat directories (`plfs layout`) have names in its .plfs/spread: `plfs backend drain` \
             moves them, and says which it cannot move; of what is then left there `plfs check` \
             says what it is",
        )),
    };
    must_have_no_names()?;
    if !lifecycle::lost_and_found(store, &path)?.is_empty() {
        return Err(Error::refused(
            Errno::BUSY,
            "remove the backend",
            &path,
            "repairs have moved something to its .plfs/lost+found: put it back with `plfs check \
             --undo` or remove it with `plfs check --discard`, and of this directory",
        ));
    }
    thread::sleep(settles);
    must_be_empty()?;
    must_have_no_names()?;
    for id in of.twins(id)? {
        table.change(id, |backend| match backend.state {
            State::Active => Err(Error::refused(
                Errno::BUSY,
                "remove the backend",
                &path,
                "somebody has made it active again",
            )),
            _ => {
                backend.state = State::Gone;
                Ok(())
            }
        })?;
    }
    remove_empty(&of, &path);
    Ok(())
}

/// Removes the table of backends of a root that has nothing else in its `.plfs` any more, so that
/// the root can be removed. The backends stay, with their identity: they may be those of other
/// roots.
///
/// ENOTEMPTY, and nothing done, if the root has anything else. Looks twice, `settles` apart, with
/// all backends out of use: somebody may be making a file.
pub fn remove_table(
    store: &Arc<dyn Store>,
    config: &Config,
    root: &Path,
    settles: std::time::Duration,
) -> Result<()> {
    let of = Root::new(store, config, root)?;
    let table = of.table();
    let must_be_alone = || {
        let top = root.join(name::ROOT_DIR);
        match list(of.view.as_ref(), &top)?.iter().all(|entry| entry == name::BACKENDS) {
            true => Ok(()),
            false => Err(Errno::NOTEMPTY).at("remove", &top),
        }
    };
    must_be_alone()?;
    let mut before = Vec::new();
    for id in table.all()? {
        table.change(id, |backend| {
            before.push((id, backend.clone()));
            backend.state = State::Gone;
            Ok(())
        })?;
    }
    if !before.is_empty() {
        thread::sleep(settles);
    }
    if let Err(error) = must_be_alone() {
        for (id, backend) in before {
            table.change(id, |entry| {
                entry.state = backend.state;
                Ok(())
            })?;
        }
        return Err(error);
    }
    for (_, backend) in &before {
        remove_empty(&of, &crate::container::path_of(backend));
    }
    table.remove()
}

/// Removes directories of containers of the root that have nothing in them any more. Best effort.
fn remove_empty(of: &Root<'_>, path: &Path) {
    let view = in_roots(&of.store, [path]);
    let top = path.join(name::ROOT_DIR);
    for shard in dirs_of(view.as_ref(), &top, 2).unwrap_or_default() {
        for dir in dirs_of(view.as_ref(), &shard, 30).unwrap_or_default() {
            if lifecycle::uuid_of(&dir).is_some_and(|uuid| of.has(uuid).unwrap_or(false)) {
                let _ = view.rmdir(&dir);
            }
        }
        let _ = view.rmdir(&shard);
    }
}
