//! The backends of a root: which directory an id of its table means, and how a directory gets an id
//! (FORMAT.md section 1).
//!
//! A process remembers the directories that it has found to be what the table says. It looks again
//! before it says that one is not there, so that a backend that was moved is found. What may be
//! done with a backend, and whether it has room, it believes for a second.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use plfs_format::backend::{BYTES_MAX, Backend, Identity, State};
use plfs_format::layout::Backends;
use plfs_format::name;
use plfs_format::superblock::BACKENDS_MAX;

use super::create::make_shared;
use super::directory::DirTurn;
use crate::error::{At, Error, Result};
use crate::store::machine::{boot_time_ns, fill_random, random_u64};
use crate::store::{self, Errno, Open, Store};
use crate::sync::plain;

/// Device and path of the root, id. A root's path alone is not enough: another file system may be
/// mounted there.
type Key = (u64, PathBuf, u16);

/// Where the backend is.
static KNOWN: plain::Mutex<BTreeMap<Key, PathBuf>> = plain::Mutex::new(BTreeMap::new());
/// What its entry said, and when.
static STATES: plain::Mutex<BTreeMap<Key, (u64, State)>> = plain::Mutex::new(BTreeMap::new());
/// Whether it had room, and when.
static ROOM: plain::Mutex<BTreeMap<Key, (u64, bool)>> = plain::Mutex::new(BTreeMap::new());

/// How long a state is believed, and whether there is room (docs/decisions/0018): new data is
/// placed at each create, and a backend is drained once in its life.
pub(crate) const BELIEVED_NS: u64 = 1_000_000_000;
/// A backend with less room than this gets nothing new, if another has more. 1 GiB: 32 of the
/// largest regions, what the eight streams of a node take before they look four times.
const ROOM_BYTES: u64 = 1 << 30;
/// Or with less than this part of its file system: a small one is not full from the beginning.
const ROOM_PART: u64 = 100;

/// The table of one root.
pub(crate) struct Table<'a> {
    /// Where the root and the backends are stored.
    pub store: &'a dyn Store,
    /// The root.
    pub root: &'a Path,
    /// The device that it is on.
    pub dev: u64,
}

impl Table<'_> {
    /// The directory of backend `id`, which is not 0. Costs nothing if the process has found it
    /// before, else two small reads.
    pub fn find(&self, id: u16) -> Result<PathBuf> {
        if let Some(path) = plain::lock(&KNOWN).get(&self.key(id)) {
            return Ok(path.clone());
        }
        let (backend, _) = self.read_entry(id)?;
        let path = path_of(&backend);
        self.must_be(id, &backend, &path)?;
        self.remember(id, &path);
        Ok(path)
    }

    /// Where the entry says that backend `id` is, and whether the process has seen it there. Asks
    /// nothing of the backend.
    pub fn look(&self, id: u16) -> Result<(PathBuf, bool)> {
        if let Some(path) = plain::lock(&KNOWN).get(&self.key(id)) {
            return Ok((path.clone(), true));
        }
        Ok((path_of(&self.read_entry(id)?.0), false))
    }

    /// [`Table::find`] for who did not find there what it looked for: the table is read again, and
    /// whether the backend is there.
    pub fn find_again(&self, id: u16) -> Result<PathBuf> {
        plain::lock(&KNOWN).remove(&self.key(id));
        self.find(id)
    }

    /// What the entry of backend `id` says, and its text.
    pub fn read_entry(&self, id: u16) -> Result<(Backend, Vec<u8>)> {
        let entry = self.entry(id);
        let Some(text) = read(self.store, &entry)? else {
            return Err(Error::UnknownBackend { id, table: entry });
        };
        let backend = Backend::decode(&text).map_err(|bad| Error::of_bytes(&entry, bad))?;
        let (key, path) = (self.key(id), OsStr::from_bytes(&backend.path));
        plain::lock(&STATES).insert(key.clone(), (boot_time_ns(), backend.state));
        let mut known = plain::lock(&KNOWN);
        if known.get(&key).is_some_and(|known| known != path) {
            known.remove(&key);
        }
        Ok((backend, text))
    }

    /// What the entry says; `None` if it has just been taken out of the table.
    pub fn find_entry(&self, id: u16) -> Result<Option<Backend>> {
        match self.read_entry(id) {
            Ok((backend, _)) => Ok(Some(backend)),
            Err(Error::UnknownBackend { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What may be done with backend `id`; the root is active. A small read, unless the process has
    /// asked within the last second.
    pub fn state(&self, id: u16) -> Result<State> {
        if id == 0 {
            return Ok(State::Active);
        }
        let now = boot_time_ns();
        let believed = plain::lock(&STATES).get(&self.key(id)).copied();
        match believed.filter(|(then, _)| now.saturating_sub(*then) < BELIEVED_NS) {
            Some((_, state)) => Ok(state),
            None => self.read_entry(id).map(|(backend, _)| backend.state),
        }
    }

    /// Whether something new should be put on backend `id`, going by its room. A call, unless the
    /// process has asked within the last second. One that cannot be asked has room: who needs it
    /// says what is wrong.
    pub fn has_room(&self, id: u16) -> bool {
        let (now, key) = (boot_time_ns(), self.key(id));
        let believed = plain::lock(&ROOM).get(&key).copied();
        if let Some((_, has)) = believed.filter(|(then, _)| now.saturating_sub(*then) < BELIEVED_NS)
        {
            return has;
        }
        let dir = if id == 0 { Ok(self.root.to_path_buf()) } else { self.find(id) };
        let space = dir.ok().and_then(|dir| self.store.space(&dir).ok());
        let has =
            space.is_none_or(|space| space.available >= ROOM_BYTES.min(space.total / ROOM_PART));
        plain::lock(&ROOM).insert(key, (now, has));
        has
    }

    /// Those of `ids` that have room, or all if none has.
    pub fn with_room(&self, ids: Vec<u16>) -> Vec<u16> {
        if ids.len() < 2 {
            return ids;
        }
        let with: Vec<u16> = ids.iter().copied().filter(|id| self.has_room(*id)).collect();
        if with.is_empty() { ids } else { with }
    }

    /// All ids of the table, ascending. A listing.
    pub fn all(&self) -> Result<Vec<u16>> {
        match self.ids(&self.dir()) {
            Err(Error::Io { errno: Errno::NOENT, .. }) => Ok(Vec::new()),
            other => other,
        }
    }

    /// Those in the table on which there may be something: all but those that are gone, of which
    /// nobody says it who has looked a second ago. One whose entry cannot be read counts.
    pub fn in_use(&self) -> Result<Vec<u16>> {
        let is_gone = |id: &u16| match self.state(*id) {
            Ok(State::Gone) => {
                self.read_entry(*id).is_ok_and(|(backend, _)| backend.state == State::Gone)
            }
            _ => false,
        };
        Ok(self.all()?.into_iter().filter(|id| !is_gone(id)).collect())
    }

    /// Those in the table that take new data.
    pub fn active(&self) -> Result<Vec<u16>> {
        let active = |id: &u16| self.state(*id).is_ok_and(|state| state == State::Active);
        Ok(self.all()?.into_iter().filter(active).collect())
    }

    /// Whether `path` is the backend that `backend` describes: [`Error::MissingBackend`] or
    /// [`Error::WrongBackend`] of `id` if not.
    pub fn must_be(&self, id: u16, backend: &Backend, path: &Path) -> Result<()> {
        let (table, path) = (self.entry(id), path.to_path_buf());
        match identity_of(self.store, &path)? {
            Some(identity) if identity == backend.identity => Ok(()),
            Some(_) => Err(Error::WrongBackend { id, table, path }),
            None => Err(Error::MissingBackend { id, table, path }),
        }
    }

    /// Changes the entry of backend `id`: `change` gets what it says, and changes it or fails.
    /// One at a time; the entry is the old one or the new one whole, and durable on return.
    pub fn change(
        &self,
        id: u16,
        change: impl FnOnce(&mut Backend) -> Result<()>,
    ) -> Result<Backend> {
        let (dir, entry) = (self.dir(), self.entry(id));
        let _turn = self.turn()?;
        let (mut backend, text) = self.read_entry(id)?;
        let before = backend.clone();
        change(&mut backend)?;
        if backend == before {
            return Ok(backend);
        }
        let text = backend.amend(&text).map_err(|bad| Error::of_bytes(&entry, bad))?;
        let tmp = dir.join(format!("{}{:08x}", name::BACKEND_TMP, random_u64() as u32));
        let written = (|| {
            let file = self.store.open(&tmp, Open::create_new(0o644)).at("create", &tmp)?;
            store::write_full(file.as_ref(), &text, 0).at("write", &tmp)?;
            // Whatever the umask says: everybody reads it.
            self.store.chmod(&tmp, 0o644).at("set the mode of", &tmp)?;
            file.sync_data().at("sync", &tmp)?;
            match self.store.rename(&tmp, &entry) {
                Err(errno @ (Errno::PERM | Errno::ACCESS)) => Err(Error::refused(
                    errno,
                    "change",
                    &entry,
                    "only who added the backend, the owner of the table's directory and root may",
                )),
                other => other.at("rename", &tmp),
            }
        })();
        match written {
            Ok(()) => self.store.sync_dir(&dir).at("sync", &dir)?,
            Err(error) => {
                let _ = self.store.unlink(&tmp);
                return Err(error);
            }
        }
        plain::lock(&KNOWN).remove(&self.key(id));
        plain::lock(&ROOM).remove(&self.key(id));
        plain::lock(&STATES).insert(self.key(id), (boot_time_ns(), backend.state));
        Ok(backend)
    }

    /// Removes all entries, and what is left of unfinished ones: nobody will use their ids.
    pub fn remove(&self) -> Result<()> {
        let dir = self.dir();
        for entry in self.store.list(&dir).at("list", &dir)? {
            let path = dir.join(entry.name);
            self.store.unlink(&path).at("remove", &path)?;
        }
        self.store.rmdir(&dir).at("remove", &dir)
    }

    /// Keeps others from changing entries while the result lives, where locks reach them.
    /// Where they do not, who changes an entry at the same time may win.
    fn turn(&self) -> Result<Option<DirTurn>> {
        let dir = self.dir();
        let file = self.store.open(&dir, Open::READ).at("open", &dir)?;
        DirTurn::wait_for(file, &dir)
    }

    /// The id of the backend at `path`, a directory that has a `.plfs`; gives it one if it has
    /// none. `None`: nothing new may be put there. Durable on return.
    ///
    /// Costs nothing if the process knows it, else a read for each backend of the root, and once in
    /// the life of a root three files.
    pub fn register(&self, path: &Path) -> Result<Option<u16>> {
        let known = || {
            let known = plain::lock(&KNOWN);
            let mut of_root =
                known.iter().filter(|((dev, root, _), _)| *dev == self.dev && root == self.root);
            of_root.find(|(_, at)| *at == path).map(|((.., id), _)| *id)
        };
        if let Some(id) = known()
            && let Ok(state) = self.state(id)
            && known() == Some(id)
        {
            return Ok((state == State::Active).then_some(id));
        }
        let plfs = self.root.join(name::ROOT_DIR);
        let dir = self.dir();
        make_shared(self.store, &plfs)?;
        make_shared(self.store, &dir)?;
        let mut ids = self.ids(&dir)?;
        let mut found = None;
        for id in &ids {
            if let Some(state) = self.describes(*id, path)? {
                found = Some((*id, state));
                break;
            }
        }
        if found.is_none() {
            let backend = Backend {
                identity: identify(self.store, path)?,
                state: State::Active,
                path: path.as_os_str().as_bytes().to_vec(),
            };
            let text = backend.encode().map_err(|bad| Error::of_bytes(path, bad))?;
            let free = |ids: &[u16]| (1..=name::BACKEND_MAX).find(|id| !ids.contains(id));
            while found.is_none() {
                let id = free(&ids).ok_or(Error::invalid(
                    Errno::NOSPC,
                    "the root has as many backends as it can have",
                ))?;
                if put_exclusive(self.store, &dir, name::BACKEND_TMP, &self.entry(id), &text)? {
                    found = Some((id, State::Active));
                } else {
                    // Another process was faster: perhaps with the same directory.
                    found = self.describes(id, path)?.map(|state| (id, state));
                    ids.push(id);
                }
            }
        }
        // Whoever made the entry may not have come to this.
        for dir in [&dir, &plfs, self.root] {
            self.store.sync_dir(dir).at("sync", dir)?;
        }
        match found {
            Some((id, State::Active)) => {
                self.find(id)?;
                Ok(Some(id))
            }
            _ => Ok(None),
        }
    }

    /// The ids for a new file whose directory has this in its layout: those that take new data.
    ///
    /// Costs what [`Table::find`] costs for each, and for [`Backends::All`] a listing.
    pub fn of_layout(&self, backends: &Backends) -> Result<Vec<u16>> {
        let wanted = match backends {
            Backends::Listed(ids) => ids.clone(),
            Backends::All => {
                let mut ids = self.all()?;
                ids.insert(0, 0);
                ids.truncate(BACKENDS_MAX);
                ids
            }
        };
        let mut usable = Vec::new();
        for id in wanted {
            if id == 0 || self.is_active(id)? {
                usable.push(id);
            }
        }
        match usable.is_empty() {
            true => Err(Error::invalid(
                Errno::NOSPC,
                "no backend of the directory's layout takes new data (see `plfs layout`): all are \
                 being drained, or are gone",
            )),
            false => Ok(self.with_room(usable)),
        }
    }

    /// Whether new data may be put on backend `id`, which is not 0. Sees that it is there.
    fn is_active(&self, id: u16) -> Result<bool> {
        let is_active = self.state(id)? == State::Active;
        if is_active {
            self.find(id)?;
        }
        Ok(is_active)
    }

    fn key(&self, id: u16) -> Key {
        (self.dev, self.root.to_path_buf(), id)
    }

    fn dir(&self) -> PathBuf {
        self.root.join(name::ROOT_DIR).join(name::BACKENDS)
    }

    /// The file that describes backend `id`.
    pub fn entry(&self, id: u16) -> PathBuf {
        self.dir().join(name::backend(id))
    }

    fn ids(&self, dir: &Path) -> Result<Vec<u16>> {
        let entries = self.store.list(dir).at("list", dir)?;
        let mut ids: Vec<u16> = entries
            .iter()
            .filter_map(|entry| entry.name.to_str().and_then(name::parse_backend))
            .collect();
        ids.sort_unstable();
        Ok(ids)
    }

    /// The state of backend `id`, if that is at `path` by its entry.
    fn describes(&self, id: u16, path: &Path) -> Result<Option<State>> {
        let entry = self.entry(id);
        let Some(text) = read(self.store, &entry)? else { return Ok(None) };
        // What cannot be read is not what we look for. It is an error for who needs it.
        Ok(Backend::decode(&text)
            .ok()
            .filter(|backend| backend.path == path.as_os_str().as_bytes())
            .map(|backend| backend.state))
    }

    fn remember(&self, id: u16, path: &Path) {
        plain::lock(&KNOWN).insert(self.key(id), path.to_path_buf());
    }
}

/// What is wrong with the table of backends of `root`. Whether the backends are there is not asked:
/// nobody may need them.
pub(crate) fn check_table(store: &dyn Store, root: &Path) -> Vec<Error> {
    let table = Table { store, root, dev: 0 };
    let ids = match table.ids(&root.join(name::ROOT_DIR).join(name::BACKENDS)) {
        Ok(ids) => ids,
        Err(Error::Io { errno: Errno::NOENT, .. }) => return Vec::new(),
        Err(error) => return vec![error],
    };
    let check = |id| {
        let entry = table.entry(id);
        match read(store, &entry)?.map(|text| Backend::decode(&text)) {
            Some(Err(bad)) => Err(Error::of_bytes(&entry, bad)),
            _ => Ok(()),
        }
    };
    ids.into_iter().filter_map(|id| check(id).err()).collect()
}

/// The path in an entry.
pub(crate) fn path_of(backend: &Backend) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(&backend.path))
}

fn identity_path(backend: &Path) -> PathBuf {
    backend.join(name::ROOT_DIR).join(name::IDENTITY)
}

/// What the backend at `path` says that it is, if there is one.
pub(crate) fn identity_of(store: &dyn Store, path: &Path) -> Result<Option<Identity>> {
    let path = identity_path(path);
    read(store, &path)?
        .map(|text| Identity::decode(&text).map_err(|bad| Error::of_bytes(&path, bad)))
        .transpose()
}

/// The identity of the backend at `path`, which gets one if it has none, durably.
fn identify(store: &dyn Store, path: &Path) -> Result<Identity> {
    if let Some(identity) = identity_of(store, path)? {
        return Ok(identity);
    }
    let (dir, file) = (path.join(name::ROOT_DIR), identity_path(path));
    let mut identity = [0; 16];
    fill_random(&mut identity);
    // Random bytes are not all zero; a source of them that is broken must not make two backends
    // one.
    identity[15] |= 1;
    put_exclusive(store, &dir, name::IDENTITY_TMP, &file, &Identity(identity).encode())?;
    store.sync_dir(&dir).at("sync", &dir)?;
    // Ours, or that of whoever was faster.
    identity_of(store, path)?.ok_or(Error::Io { op: "read", path: file, errno: Errno::NOENT })
}

/// Makes the file at `path` with these bytes, durable but for its name, unless there is one: by a
/// link to one in `dir` whose name begins with `tmp`. Whether it did.
fn put_exclusive(
    store: &dyn Store,
    dir: &Path,
    tmp: &str,
    path: &Path,
    bytes: &[u8],
) -> Result<bool> {
    let tmp = dir.join(format!("{tmp}{:08x}", random_u64() as u32));
    let made = (|| {
        let file = store.open(&tmp, Open::create_new(0o644)).at("create", &tmp)?;
        store::write_full(file.as_ref(), bytes, 0).at("write", &tmp)?;
        // Whatever the umask says: everybody reads it.
        store.chmod(&tmp, 0o644).at("set the mode of", &tmp)?;
        file.sync_data().at("sync", &tmp)?;
        match store.link(&tmp, path) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            Err(errno) => Err(errno).at("create", path),
        }
    })();
    let _ = store.unlink(&tmp);
    made
}

/// The bytes of a small file; `None` if there is none.
pub(crate) fn read(store: &dyn Store, path: &Path) -> Result<Option<Vec<u8>>> {
    let file = match store.open(path, Open::READ) {
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        other => other.at("open", path)?,
    };
    let mut text = vec![0; BYTES_MAX + 1];
    let n = store::read_full(file.as_ref(), &mut text, 0).at("read", path)?;
    text.truncate(n);
    Ok(Some(text))
}
