//! What the kernel knows: inodes by number, each with a count of lookups.
//!
//! A directory is held by a descriptor, so that renames above it change nothing. Another file is
//! found by the names that it was looked up by, and only while it is open by a descriptor: a mount
//! may know millions of files. A name that leads to another file by now is forgotten; a file
//! without a valid name is stale (ESTALE), and the kernel looks its path up again.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use fuser::{BackingId, FileType};
use plfs_core::{File, FlatDir};

/// Number of the root, fixed by the protocol.
pub const ROOT_ID: u64 = 1;
/// Shards of the tables: enough that threads, of which there are fewer, seldom meet.
const SHARDS: usize = 64;
/// Numbers from here on are ours, for files whose own number another file has: other file systems
/// below the backend, and numbers that the backend gave again.
const FIRST_OWN_ID: u64 = 1 << 63;
/// Numbers from here on are of files in flat directories that lie on other file systems than the
/// root: made of both numbers, so that a file has the same one when it is looked up again.
const FIRST_FLAT_ID: u64 = 1 << 61;
/// In the first half of a key: it is of a file of a pack, and no device.
const OF_PACK: u64 = 1 << 63;
/// Names remembered of one file.
const NAMES_MAX: usize = 8;

/// When a file was made, as the backend says, if it does: two that had one number have other times.
pub type Birth = Option<(i64, u32)>;

/// A lock whose holders leave no invalid state: it is used again after a panic.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A name of a file.
#[derive(Clone, Debug)]
pub struct Name {
    /// Its directory.
    pub parent: Arc<Inode>,
    /// The name in it.
    pub name: OsString,
}

/// What lasts while a file is open.
#[derive(Debug, Default)]
pub struct OpenState {
    /// Open handles.
    pub handles: u32,
    /// Kept open for a program whose open is to come.
    pub kept: bool,
    /// Those of them that may write.
    pub writers: u32,
    /// The engine's file: what asks by inode uses it. Open for reading and writing if it has a
    /// container, or if a program may write it.
    pub file: Option<Arc<File>>,
    /// A file that is kept though no handle is open, by path only.
    pub path_fd: Option<Arc<OwnedFd>>,
    /// What the kernel reads and writes itself. As long as it is there, all handles must have it.
    pub backing: Option<Arc<BackingId>>,
    /// What the kernel's cache has, as of the last open: kept past the close.
    pub seen: Option<Version>,
}

impl OpenState {
    /// Whether a program has it open.
    pub fn is_open(&self) -> bool {
        self.file.is_some() || self.path_fd.is_some()
    }
}

/// Differs whenever the contents may differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// Size.
    pub size: u64,
    /// Modification time.
    pub mtime: (i64, u32),
    /// Change time.
    pub ctime: (i64, u32),
    /// Largest stamp of an index block; 0 for plain files.
    pub stamp: u64,
}

/// A file or directory that the kernel knows.
#[derive(Debug)]
pub struct Inode {
    /// Its number, towards the kernel and programs.
    pub id: u64,
    /// [`Inode::key`] when it was looked up first.
    born: (u64, u64),
    birth: Birth,
    /// The same of a file that has moved out of its pack since.
    moved: OnceLock<(u64, u64)>,
    /// What it is.
    pub kind: FileType,
    /// A directory's descriptor.
    pub dir: Option<OwnedFd>,
    /// Of a directory in a flat one, which is flat as well.
    pub flat: Option<FlatDir>,
    /// Whether another one is flat, and until when that is believed.
    pub flatness: Mutex<Option<(Instant, Option<FlatDir>)>>,
    /// Permission bits as last seen.
    pub mode: AtomicU32,
    /// The size that the kernel was told last, as far as anybody noted: it believes that for a
    /// while, also where the file, or another one that has its number now, is longer.
    pub told: AtomicU64,
    /// Of a directory in a flat one: the name by which it was found last.
    pub found_as: Mutex<Option<Name>>,
    /// What lasts while it is open.
    pub open: Mutex<OpenState>,
    /// Of a directory: until when it is believed to have no pack.
    pub packless: Mutex<Option<Instant>>,
    lookups: AtomicU64,
    names: Mutex<Names>,
}

/// Names of a file, the latest first.
#[derive(Debug, Default)]
struct Names {
    known: Vec<Name>,
    /// When the first of them was last found to lead to the file; never, if it is not known.
    found: Option<Instant>,
    /// The file's extended attributes, each name with a zero behind it, as they were listed since.
    attributes: Option<Vec<u8>>,
}

impl Names {
    /// When the first was found to lead to the file, if that is less than `ttl` ago.
    fn believed_since(&self, ttl: Duration) -> Option<Instant> {
        self.found.filter(|found| found.elapsed() < ttl)
    }
}

impl Inode {
    /// `dev` and `ino` on the backend; of a file of a pack what [`key_in_pack`] says.
    pub fn key(&self) -> (u64, u64) {
        self.moved.get().copied().unwrap_or(self.born)
    }

    /// Whether it is a file of a pack.
    pub fn is_packed(&self) -> bool {
        self.key().0 & OF_PACK != 0
    }

    /// The names that it was found by, the latest first.
    pub fn names(&self) -> Vec<Name> {
        lock(&self.names).known.clone()
    }

    /// The latest name, if it was found to lead here within the time `ttl`, for which the kernel
    /// caches names as well.
    pub fn believed_name(&self, ttl: Duration) -> Option<Name> {
        let names = lock(&self.names);
        names.believed_since(ttl)?;
        names.known.first().cloned()
    }

    /// Whether it has the extended attribute, by a listing that is valid for as long as
    /// [`Inode::believed_name`]. The error says that there is none: it goes to
    /// [`Inode::list_attributes`] with a listing made now. `None`: no name of the file is valid
    /// either, so a listing would not be.
    pub fn has_attribute(
        &self,
        name: &OsStr,
        ttl: Duration,
    ) -> Option<std::result::Result<bool, Instant>> {
        let names = lock(&self.names);
        let found = names.believed_since(ttl)?;
        Some(names.attributes.as_ref().map(|list| is_listed(list, name)).ok_or(found))
    }

    /// Stores the list of extended attributes, unless one has changed since.
    pub fn list_attributes(&self, since: Instant, list: Vec<u8>) {
        let mut names = lock(&self.names);
        if names.found == Some(since) {
            names.attributes = Some(list);
        }
    }

    /// Forgets the list: a caller has changed an extended attribute.
    pub fn attributes_changed(&self) {
        let mut names = lock(&self.names);
        (names.found, names.attributes) = (None, None);
    }

    /// Stores a name that was found to lead here.
    pub fn add_name(&self, parent: &Arc<Inode>, name: &OsStr) {
        if self.dir.is_some() {
            if self.flat.is_some() {
                *lock(&self.found_as) =
                    Some(Name { parent: parent.clone(), name: name.to_owned() });
            }
            return;
        }
        let mut names = lock(&self.names);
        (names.found, names.attributes) = (Some(Instant::now()), None);
        let names = &mut names.known;
        match names.iter().position(|known| known.parent.id == parent.id && known.name == name) {
            Some(0) => {}
            Some(at) => names[..=at].rotate_right(1),
            None => {
                names.truncate(NAMES_MAX - 1);
                names.insert(0, Name { parent: parent.clone(), name: name.to_owned() });
            }
        }
    }

    /// Forgets a name.
    pub fn remove_name(&self, parent: u64, name: &OsStr) {
        let mut names = lock(&self.names);
        (names.found, names.attributes) = (None, None);
        names.known.retain(|known| known.parent.id != parent || known.name != name);
    }
}

/// The key of a file of a pack: the pack's number, below 2^31, and the file's id.
pub fn key_in_pack(pack: u32, stamp: u64, set: u32) -> (u64, u64) {
    (OF_PACK | u64::from(pack) << 32 | u64::from(set), stamp)
}

/// Whether a list as of listxattr(2) has the name.
pub fn is_listed(list: &[u8], name: &OsStr) -> bool {
    list.split(|byte| *byte == 0).any(|listed| listed == name.as_bytes())
}

/// The number that a file of this key has towards programs, seen through a flat directory on the
/// file system `root_dev`.
pub fn number_in_flat(root_dev: u64, (dev, ino): (u64, u64)) -> u64 {
    if dev == root_dev && ino > ROOT_ID && ino < FIRST_FLAT_ID {
        return ino;
    }
    let mixed = [dev, ino].into_iter().flat_map(u64::to_le_bytes);
    let hash = mixed.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    FIRST_FLAT_ID | hash & (FIRST_FLAT_ID - 1)
}

/// Inodes by `dev` and `ino`.
type ByKey = HashMap<(u64, u64), Arc<Inode>>;

/// All inodes that the kernel knows.
#[derive(Debug)]
pub struct Inodes {
    /// The file system of the root.
    pub root_dev: u64,
    ids: Vec<RwLock<HashMap<u64, Arc<Inode>>>>,
    keys: Vec<Mutex<ByKey>>,
    next: AtomicU64,
    known: AtomicU64,
}

impl Inodes {
    /// A table with the root alone, which is never forgotten.
    pub fn new(key: (u64, u64), root: OwnedFd) -> Inodes {
        let table = Inodes {
            root_dev: key.0,
            ids: (0..SHARDS).map(|_| RwLock::default()).collect(),
            keys: (0..SHARDS).map(|_| Mutex::default()).collect(),
            next: AtomicU64::new(FIRST_OWN_ID),
            known: AtomicU64::new(1),
        };
        let inode = Arc::new(Inode {
            id: ROOT_ID,
            born: key,
            birth: None,
            moved: OnceLock::new(),
            packless: Mutex::default(),
            kind: FileType::Directory,
            dir: Some(root),
            flat: None,
            flatness: Mutex::default(),
            found_as: Mutex::default(),
            mode: AtomicU32::new(0),
            told: AtomicU64::new(0),
            open: Mutex::default(),
            lookups: AtomicU64::new(1),
            names: Mutex::default(),
        });
        lock(table.of_key(key)).insert(key, inode.clone());
        table.of_id(ROOT_ID).write().unwrap_or_else(PoisonError::into_inner).insert(ROOT_ID, inode);
        table
    }

    fn of_id(&self, id: u64) -> &RwLock<HashMap<u64, Arc<Inode>>> {
        &self.ids[id as usize % SHARDS]
    }

    fn of_key(&self, key: (u64, u64)) -> &Mutex<ByKey> {
        &self.keys[key.1 as usize % SHARDS]
    }

    /// How many there are.
    pub fn len(&self) -> u64 {
        self.known.load(Ordering::Relaxed)
    }

    /// The inode of that number.
    pub fn get(&self, id: u64) -> Option<Arc<Inode>> {
        self.of_id(id).read().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
    }

    /// The inode of that file, if the kernel knows it.
    pub fn find(&self, key: (u64, u64)) -> Option<Arc<Inode>> {
        lock(self.of_key(key)).get(&key).cloned()
    }

    /// The inode of that file, looked up once more. `dir` gives the descriptor of a directory that
    /// is new here.
    pub fn look_up<E>(
        &self,
        key: (u64, u64),
        birth: Birth,
        kind: FileType,
        dir: impl FnOnce() -> Result<Option<OwnedFd>, E>,
    ) -> Result<Arc<Inode>, E> {
        let is_own = key.0 == self.root_dev && key.1 > ROOT_ID && key.1 < FIRST_OWN_ID;
        self.look_up_as((key, birth), kind, is_own.then_some(key.1), None, dir)
    }

    /// The inode of a file in a flat directory, looked up once more; `flat` for a directory.
    pub fn look_up_in_flat<E>(
        &self,
        key: (u64, u64),
        birth: Birth,
        kind: FileType,
        flat: Option<FlatDir>,
        dir: impl FnOnce() -> Result<Option<OwnedFd>, E>,
    ) -> Result<Arc<Inode>, E> {
        let number = number_in_flat(self.root_dev, key);
        self.look_up_as((key, birth), kind, Some(number), flat, dir)
    }

    /// The inode of a file of a pack, looked up once more; `number` is its own, unless another file
    /// has that.
    pub fn look_up_in_pack(&self, key: (u64, u64), number: u64) -> Arc<Inode> {
        let none = || Ok::<_, std::convert::Infallible>(None);
        match self.look_up_as((key, None), FileType::RegularFile, Some(number), None, none) {
            Ok(inode) => inode,
            Err(never) => match never {},
        }
    }

    fn look_up_as<E>(
        &self,
        (key, birth): ((u64, u64), Birth),
        kind: FileType,
        number: Option<u64>,
        flat: Option<FlatDir>,
        dir: impl FnOnce() -> Result<Option<OwnedFd>, E>,
    ) -> Result<Arc<Inode>, E> {
        let mut keys = lock(self.of_key(key));
        // One that somebody has replaced, and the kernel may still know by its name, whose number
        // the backend has given again. Never that of a file which is open here.
        let is_another = |inode: &Inode| match (inode.birth, birth) {
            (Some(before), Some(now)) => {
                before != now && inode.open.try_lock().is_ok_and(|open| !open.is_open())
            }
            _ => false,
        };
        let is_it = |inode: &&Arc<Inode>| inode.kind == kind && !is_another(inode);
        if let Some(inode) = keys.get(&key).filter(is_it) {
            inode.lookups.fetch_add(1, Ordering::Relaxed);
            return Ok(inode.clone());
        }
        let dir = dir()?;
        let mut id = number.unwrap_or_else(|| self.next.fetch_add(1, Ordering::Relaxed));
        if self.get(id).is_some() {
            id = self.next.fetch_add(1, Ordering::Relaxed);
        }
        let inode = Arc::new(Inode {
            id,
            born: key,
            birth,
            moved: OnceLock::new(),
            packless: Mutex::default(),
            kind,
            dir,
            flat,
            flatness: Mutex::default(),
            found_as: Mutex::default(),
            mode: AtomicU32::new(0),
            told: AtomicU64::new(0),
            open: Mutex::default(),
            lookups: AtomicU64::new(1),
            names: Mutex::default(),
        });
        keys.insert(key, inode.clone());
        self.of_id(id).write().unwrap_or_else(PoisonError::into_inner).insert(id, inode.clone());
        self.known.fetch_add(1, Ordering::Relaxed);
        Ok(inode)
    }

    /// The kernel forgets `n` lookups.
    pub fn forget(&self, id: u64, n: u64) {
        let Some(inode) = self.get(id).filter(|_| id != ROOT_ID) else { return };
        let key = inode.key();
        let mut keys = lock(self.of_key(key));
        if inode.lookups.fetch_sub(n, Ordering::Relaxed) > n {
            return;
        }
        self.of_id(id).write().unwrap_or_else(PoisonError::into_inner).remove(&id);
        self.known.fetch_sub(1, Ordering::Relaxed);
        // Two that were moved by somebody else may seem to lie in each other.
        *lock(&inode.found_as) = None;
        if keys.get(&key).is_some_and(|known| Arc::ptr_eq(known, &inode)) {
            keys.remove(&key);
        }
    }

    /// The file of a pack is one of its own from now on, and has this key. The caller lets nobody
    /// look it up meanwhile.
    pub fn moves_out(&self, inode: &Arc<Inode>, key: (u64, u64)) {
        lock(self.of_key(inode.born)).remove(&inode.born);
        if inode.moved.set(key).is_ok() {
            lock(self.of_key(key)).insert(key, inode.clone());
        }
    }

    /// The file has lost its last name: whatever has its number from now on is another one.
    pub fn lost_its_names(&self, key: (u64, u64)) {
        lock(self.of_key(key)).remove(&key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_the_backend_gives_again_is_another_inode() {
        let dir =
            || rustix::fs::open("/", rustix::fs::OFlags::PATH, rustix::fs::Mode::empty()).map(Some);
        let table = Inodes::new((5, 1000), dir().unwrap().unwrap());
        let made = |ino, birth| {
            table.look_up::<()>((5, ino), birth, FileType::RegularFile, || Ok(None)).unwrap()
        };
        let file = |ino| made(ino, None);
        let first = file(7);
        assert_eq!((first.id, file(7).id, table.len()), (7, 7, 2));
        table.lost_its_names((5, 7));
        let second = file(7);
        assert!(second.id >= FIRST_OWN_ID);
        table.forget(first.id, 2);
        assert!(table.get(7).is_none());
        assert!(Arc::ptr_eq(&table.find((5, 7)).unwrap(), &second));
        table.forget(second.id, 1);
        assert_eq!(table.len(), 1);
        assert!(table.find((5, 7)).is_none());
        // Root is never forgotten; other file systems below have numbers of ours.
        table.forget(ROOT_ID, 5);
        assert!(table.get(ROOT_ID).is_some());
        assert!(
            table.look_up::<()>((6, 7), None, FileType::RegularFile, || Ok(None)).unwrap().id
                >= FIRST_OWN_ID
        );
        // One that was replaced past the mount.
        let before = made(8, Some((1, 0)));
        assert!(Arc::ptr_eq(&before, &made(8, Some((1, 0)))) && Arc::ptr_eq(&before, &file(8)));
        let after = made(8, Some((2, 0)));
        assert!(!Arc::ptr_eq(&before, &after) && Arc::ptr_eq(&after, &file(8)));
        let file = rustix::fs::open("/", rustix::fs::OFlags::PATH, rustix::fs::Mode::empty());
        lock(&after.open).path_fd = Some(Arc::new(file.unwrap()));
        assert!(Arc::ptr_eq(&after, &made(8, Some((3, 0)))));
    }

    #[test]
    fn names_come_and_go() {
        let dir =
            rustix::fs::open("/", rustix::fs::OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
        let table = Inodes::new((5, 1000), dir);
        let root = table.get(ROOT_ID).unwrap();
        let file = table.look_up::<()>((5, 7), None, FileType::RegularFile, || Ok(None)).unwrap();
        for name in ["a", "b", "a"] {
            file.add_name(&root, OsStr::new(name));
        }
        assert_eq!(
            file.names().iter().map(|name| name.name.clone()).collect::<Vec<_>>(),
            ["a", "b"]
        );
        let believed = |ttl| file.believed_name(ttl).map(|name| name.name);
        assert_eq!(
            (believed(Duration::from_secs(60)), believed(Duration::ZERO)),
            (Some("a".into()), None)
        );
        // What is left after one is gone was not looked at just now.
        file.remove_name(root.id, OsStr::new("a"));
        assert_eq!((file.names().len(), believed(Duration::from_secs(60))), (1, None));
    }
}
