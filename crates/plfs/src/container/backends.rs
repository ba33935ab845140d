//! The backends of a root: which directory an id of its table means, and how a directory gets an id
//! (FORMAT.md section 1).
//!
//! A process remembers the directories that it has found to be what the table says. It looks again
//! before it says that one is not there, so that a backend that was moved is found.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use plfs_format::backend::{BYTES_MAX, Backend, Identity, State};
use plfs_format::layout::Backends;
use plfs_format::name;
use plfs_format::superblock::BACKENDS_MAX;

use super::create::make_shared;
use crate::error::{At, Error, Result};
use crate::store::machine::{fill_random, random_u64};
use crate::store::{self, Errno, Open, Store};
use crate::sync::plain;

/// Device and path of the root, id: where the backend is. A root's path alone is not enough:
/// another file system may be mounted there.
static KNOWN: plain::Mutex<BTreeMap<(u64, PathBuf, u16), PathBuf>> =
    plain::Mutex::new(BTreeMap::new());

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
        if let Some(path) = plain::lock(&KNOWN).get(&(self.dev, self.root.to_path_buf(), id)) {
            return Ok(path.clone());
        }
        let entry = self.entry(id);
        let backend = match read(self.store, &entry)? {
            Some(text) => Backend::decode(&text).map_err(|bad| Error::of_bytes(&entry, bad))?,
            None => return Err(Error::UnknownBackend { id, table: entry }),
        };
        let path = PathBuf::from(OsStr::from_bytes(&backend.path));
        match identity_of(self.store, &path)? {
            Some(identity) if identity == backend.identity => {}
            Some(_) => return Err(Error::WrongBackend { id, table: entry, path }),
            None => return Err(Error::MissingBackend { id, table: entry, path }),
        }
        self.remember(id, &path);
        Ok(path)
    }

    /// [`Table::find`] for who did not find there what it looked for: the table is read again, and
    /// whether the backend is there.
    pub fn find_again(&self, id: u16) -> Result<PathBuf> {
        plain::lock(&KNOWN).remove(&(self.dev, self.root.to_path_buf(), id));
        self.find(id)
    }

    /// The id of the backend at `path`, a directory that has a `.plfs`; gives it one if it has
    /// none. `None`: nothing new may be put there. Durable on return.
    ///
    /// Costs nothing if the process knows it, else a read for each backend of the root, and once in
    /// the life of a root three files.
    pub fn register(&self, path: &Path) -> Result<Option<u16>> {
        let known = plain::lock(&KNOWN)
            .iter()
            .find(|((dev, root, _), at)| *dev == self.dev && root == self.root && *at == path)
            .map(|((.., id), _)| *id);
        if known.is_some() {
            return Ok(known);
        }
        let plfs = self.root.join(name::ROOT_DIR);
        let dir = plfs.join(name::BACKENDS);
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
                let dir = self.root.join(name::ROOT_DIR).join(name::BACKENDS);
                let mut ids = match self.ids(&dir) {
                    Err(Error::Io { errno: Errno::NOENT, .. }) => Vec::new(),
                    other => other?,
                };
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
            false => Ok(usable),
        }
    }

    /// Whether new data may be put on backend `id`, which is not 0. Sees that it is there.
    fn is_active(&self, id: u16) -> Result<bool> {
        if plain::lock(&KNOWN).contains_key(&(self.dev, self.root.to_path_buf(), id)) {
            return Ok(true);
        }
        let entry = self.entry(id);
        let state = match read(self.store, &entry)? {
            Some(text) => Backend::decode(&text).map_err(|bad| Error::of_bytes(&entry, bad))?.state,
            None => return Err(Error::UnknownBackend { id, table: entry }),
        };
        if state == State::Active {
            self.find(id)?;
        }
        Ok(state == State::Active)
    }

    fn entry(&self, id: u16) -> PathBuf {
        self.root.join(name::ROOT_DIR).join(name::BACKENDS).join(name::backend(id))
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
        plain::lock(&KNOWN).insert((self.dev, self.root.to_path_buf(), id), path.to_path_buf());
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

fn identity_path(backend: &Path) -> PathBuf {
    backend.join(name::ROOT_DIR).join(name::IDENTITY)
}

/// What the backend at `path` says that it is, if there is one.
fn identity_of(store: &dyn Store, path: &Path) -> Result<Option<Identity>> {
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
pub(super) fn read(store: &dyn Store, path: &Path) -> Result<Option<Vec<u8>>> {
    let file = match store.open(path, Open::READ) {
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        other => other.at("open", path)?,
    };
    let mut text = vec![0; BYTES_MAX + 1];
    let n = store::read_full(file.as_ref(), &mut text, 0).at("read", path)?;
    text.truncate(n);
    Ok(Some(text))
}
