//! The store below a mount: the real one, seen through descriptors of the backend directories, and
//! able to act for the owners of files.
//!
//! * Paths below a backend are looked up from a descriptor that was opened before the mount. So
//!   nobody needs rights in the directories above the backend, a mount may cover its own backend,
//!   and no backend's file system can be unmounted while it is used.
//! * What lies in the directories of the containers is looked up without following links, as
//!   everywhere (`Store::inside`); here from the backends' descriptors.
//! * A logical file's container is used as the file's owner, whoever writes and whichever thread it
//!   is: the bytes of a file are its owner's, as in any file system. Before the request the kernel
//!   has checked whether the caller may write the file.

use std::any::Any;
use std::ffi::OsStr;
use std::fmt::{self, Debug, Formatter};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use plfs_core::store::{
    Entry, Errno, Keep, Kept, Links, Open, Place, PosixStore, Result, Space, Stat, Store,
    StoreFile, Time,
};
use rustix::fs::{Access, AtFlags, OFlags};

use crate::creds::{self, Acting};

/// Where containers are, below a root.
const ROOT_DIR: &str = ".plfs";

/// A directory, opened before anything is mounted on it.
#[derive(Debug)]
pub struct Root {
    /// Its path.
    pub path: PathBuf,
    /// The way that does not lead through mounts made later.
    through: PathBuf,
    fd: OwnedFd,
}

impl Root {
    /// `fd` is open on the directory at `path`.
    pub fn new(path: PathBuf, fd: OwnedFd) -> Root {
        Root { path, through: PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd())), fd }
    }

    /// The descriptor.
    pub fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// A path for the engine of `name` in a directory that is open as `dir`, for when the
    /// directory's own path is too long to be one: below the root by its text, and with a part that
    /// no real path has.
    pub fn by_fd(&self, dir: impl AsFd, name: &OsStr) -> PathBuf {
        self.path.join("..").join(dir.as_fd().as_raw_fd().to_string()).join(name)
    }

    fn reach(&self, path: &Path) -> PathBuf {
        match path.strip_prefix(&self.path) {
            Ok(rest) if rest.starts_with("..") => {
                Path::new("/proc/self/fd").join(rest.strip_prefix("..").unwrap_or(rest))
            }
            // An empty rest leaves a slash at the end: the directory, not the link to it.
            Ok(rest) => self.through.join(rest),
            Err(_) => path.to_path_buf(),
        }
    }
}

impl AsFd for Root {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Makes the directories that hold the containers, which the users of a mount cannot make, and sees
/// that files can be made in them.
pub fn prepare(
    config: &plfs_core::Config,
    roots: &Arc<[Arc<Root>]>,
) -> std::result::Result<(), (Errno, String)> {
    let Some((first, others)) = roots.split_first() else { return Ok(()) };
    let others: Vec<PathBuf> = others.iter().map(|root| root.path.clone()).collect();
    let refused = |errno: Errno, what: String| match errno {
        Errno::ROFS | Errno::ACCESS | Errno::PERM | Errno::OPNOTSUPP => {
            (errno, format!("{what}; mount with -o ro to read only"))
        }
        _ => (errno, what),
    };
    let store: Arc<dyn Store> = Arc::new(MountStore::new(roots.clone()));
    let made = plfs_core::prepare(&store, config, &[&first.path], &others);
    made.map_err(|error| refused(error.errno(), error.to_string()))?;
    roots.iter().try_for_each(|root| {
        let writable = rustix::fs::accessat(
            root.fd(),
            ROOT_DIR,
            Access::WRITE_OK | Access::EXEC_OK,
            AtFlags::EACCESS,
        );
        writable.map_err(|errno| {
            refused(errno, format!("cannot make files in backend {}: {errno}", root.path.display()))
        })
    })
}

/// The backend that a path is in: the innermost, because one may lie in another.
pub fn root_of<'a>(roots: &'a [Arc<Root>], path: &Path) -> Option<&'a Root> {
    let above = roots.iter().filter(|root| path.starts_with(&root.path));
    above.max_by_key(|root| root.path.as_os_str().len()).map(|root| &**root)
}

/// The way to a path from the backend's descriptor.
pub fn reach(roots: &[Arc<Root>], path: &Path) -> PathBuf {
    root_of(roots, path).map_or_else(|| path.to_path_buf(), |root| root.reach(path))
}

/// See the module.
#[derive(Clone)]
pub struct MountStore {
    inner: PosixStore,
    roots: Arc<[Arc<Root>]>,
    /// Owner to act for: uid << 32 | gid.
    owner: Option<Arc<AtomicU64>>,
}

impl Debug for MountStore {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("MountStore")
            .field("roots", &self.roots)
            .field("owner", &self.owner())
            .finish()
    }
}

impl MountStore {
    /// The store of a mount of these backends, which acts as the thread does.
    pub fn new(roots: Arc<[Arc<Root>]>) -> MountStore {
        MountStore { inner: PosixStore::new(), roots, owner: None }
    }

    fn root_of(&self, path: &Path) -> Option<&Root> {
        root_of(&self.roots, path)
    }

    fn reach(&self, path: &Path) -> PathBuf {
        reach(&self.roots, path)
    }

    fn owner(&self) -> Option<(u32, u32)> {
        let owner = self.owner.as_ref()?.load(Ordering::Relaxed);
        Some(((owner >> 32) as u32, owner as u32))
    }

    /// Removes what the owner of a file may not remove: what other users wrote into it through
    /// other doors. The daemon may, but the owner can put links there: so the directory is opened
    /// without following any, and only inside containers.
    fn in_container<T>(
        &self,
        dir: &Path,
        how: OFlags,
        call: impl FnOnce(&OwnedFd) -> Result<T>,
    ) -> Result<T> {
        let root = self.root_of(dir).ok_or(Errno::ACCESS)?;
        let inside = dir
            .strip_prefix(&root.path)
            .ok()
            .filter(|inside| inside.starts_with(ROOT_DIR))
            .ok_or(Errno::ACCESS)?;
        let _acting = Acting::as_daemon();
        call(&self.inner.open_beneath(root.fd.as_fd(), inside, how | OFlags::DIRECTORY)?)
    }

    /// Removes as the owner, and if that is refused by [`MountStore::in_container`].
    fn remove(
        &self,
        path: &Path,
        flags: AtFlags,
        call: impl FnOnce(&PosixStore, &Path) -> Result<()>,
    ) -> Result<()> {
        match (self.call(path, call), path.parent(), path.file_name()) {
            (Err(Errno::ACCESS | Errno::PERM), Some(dir), Some(name)) if self.owner.is_some() => {
                self.in_container(dir, OFlags::PATH, |dir| rustix::fs::unlinkat(dir, name, flags))
            }
            (other, ..) => other,
        }
    }

    /// Calls the real store by the way through the descriptor, as whom it should be.
    fn call<T>(
        &self,
        path: &Path,
        call: impl FnOnce(&PosixStore, &Path) -> Result<T>,
    ) -> Result<T> {
        let _acting = self.owner().map(|(uid, gid)| Acting::as_user(uid, gid));
        call(&self.inner, &self.reach(path))
    }
}

impl Store for MountStore {
    fn open(&self, path: &Path, how: Open) -> Result<Arc<dyn StoreFile>> {
        self.call(path, |store, path| store.open(path, how))
    }

    fn stat(&self, path: &Path, links: Links) -> Result<Stat> {
        self.call(path, |store, path| store.stat(path, links))
    }

    fn reach(&self, path: &Path, links: Links) -> Result<Option<Arc<dyn StoreFile>>> {
        self.call(path, |store, path| store.reach(path, links))
    }

    fn list(&self, path: &Path) -> Result<Vec<Entry>> {
        match self.call(path, |store, path| store.list(path)) {
            Err(Errno::ACCESS | Errno::PERM) if self.owner.is_some() => {
                self.in_container(path, OFlags::RDONLY, |dir| {
                    self.inner.list(Path::new(&format!("/proc/self/fd/{}", dir.as_raw_fd())))
                })
            }
            other => other,
        }
    }

    fn mkdir(&self, path: &Path, mode: u32) -> Result<()> {
        self.call(path, |store, path| store.mkdir(path, mode))
    }

    fn rmdir(&self, path: &Path) -> Result<()> {
        self.remove(path, AtFlags::REMOVEDIR, |store, path| store.rmdir(path))
    }

    fn unlink(&self, path: &Path) -> Result<()> {
        self.remove(path, AtFlags::empty(), |store, path| store.unlink(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let to = self.reach(to);
        self.call(from, |store, from| store.rename(from, &to))
    }

    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        let to = self.reach(to);
        self.call(from, |store, from| store.link(from, &to))
    }

    fn link_open(&self, file: &dyn StoreFile, to: &Path) -> Result<()> {
        self.call(to, |store, to| store.link_open(file, to))
    }

    fn symlink(&self, target: &Path, path: &Path) -> Result<()> {
        self.call(path, |store, path| store.symlink(target, path))
    }

    fn readlink(&self, path: &Path) -> Result<PathBuf> {
        self.call(path, |store, path| store.readlink(path))
    }

    fn chmod(&self, path: &Path, mode: u32) -> Result<()> {
        self.call(path, |store, path| store.chmod(path, mode))
    }

    fn chown(&self, path: &Path, uid: Option<u32>, gid: Option<u32>, links: Links) -> Result<()> {
        self.call(path, |store, path| store.chown(path, uid, gid, links))
    }

    fn set_times(&self, path: &Path, atime: Option<Time>, mtime: Option<Time>) -> Result<()> {
        self.call(path, |store, path| store.set_times(path, atime, mtime))
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        self.call(path, |store, path| store.sync_dir(path))
    }

    fn space(&self, path: &Path) -> Result<Space> {
        self.call(path, |store, path| store.space(path))
    }

    fn inside(&self, places: Vec<Place>, keep: Keep) -> Option<Arc<dyn Store>> {
        let roots = places.iter().map(|place| {
            let root: Kept = self.roots.iter().find(|root| root.path == place.root)?.clone();
            Some(root)
        });
        let roots = roots.collect();
        let places = places
            .into_iter()
            .map(|place| Place { root: self.reach(&place.root), dir: self.reach(&place.dir) })
            .collect();
        let _acting = self.owner().map(|(uid, gid)| Acting::as_user(uid, gid));
        Some(Arc::new(MountStore {
            inner: self.inner.inside_of(places, roots, keep),
            ..self.clone()
        }))
    }

    fn hold(&self) -> Option<Result<Box<dyn Any + Send + Sync>>> {
        let _acting = self.owner().map(|(uid, gid)| Acting::as_user(uid, gid));
        self.inner.hold()
    }

    fn kept_dir(&self) -> Option<Result<Arc<dyn StoreFile>>> {
        let _acting = self.owner().map(|(uid, gid)| Acting::as_user(uid, gid));
        self.inner.kept_dir()
    }

    fn is_local(&self, path: &Path) -> bool {
        self.inner.is_local(&self.reach(path))
    }

    fn close_to_open(&self, path: &Path) -> Option<String> {
        self.inner.close_to_open(&self.reach(path))
    }

    fn boot(&self, path: &Path) -> Option<u64> {
        self.inner.boot(&self.reach(path))
    }

    fn user(&self) -> u32 {
        self.owner().map_or_else(|| self.inner.user(), |(uid, _)| uid)
    }

    fn for_owner(&self, uid: u32, gid: u32) -> Option<Arc<dyn Store>> {
        if !creds::is_root() {
            return None;
        }
        let owner = Arc::new(AtomicU64::new(u64::from(uid) << 32 | u64::from(gid)));
        Some(Arc::new(MountStore { owner: Some(owner), ..self.clone() }))
    }

    fn owner_changed(&self, uid: Option<u32>, gid: Option<u32>) {
        if let (Some(owner), Some((old_uid, old_gid))) = (&self.owner, self.owner()) {
            let (uid, gid) = (uid.unwrap_or(old_uid), gid.unwrap_or(old_gid));
            owner.store(u64::from(uid) << 32 | u64::from(gid), Ordering::Relaxed);
        }
    }

    fn act(&self) -> Box<dyn Any> {
        match self.owner() {
            Some((uid, gid)) => Box::new(Acting::as_user(uid, gid)),
            None => Box::new(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use plfs_core::store::Kind;
    use plfs_core::{Config, OpenOptions, Opened, Plfs};

    use super::*;

    /// The daemon acts for all users, and whatever lies in a container its owner may have replaced
    /// by a link. It reached all but what it removed for others by a path behind its descriptor of
    /// the backend.
    #[test]
    fn a_mount_follows_no_link_in_a_container() {
        let base = std::env::temp_dir().join(format!("plfs-mount-store-{}", std::process::id()));
        let (dir, victim) = (base.join("root"), base.join("victim"));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::create_dir_all(victim.join("sub")).unwrap();
        std::fs::write(victim.join("sub/data"), b"precious").unwrap();
        let fd = rustix::fs::open(
            &dir,
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            rustix::fs::Mode::empty(),
        )
        .unwrap();
        let roots: Arc<[Arc<Root>]> = [Arc::new(Root::new(dir.clone(), fd))].into();
        let store: Arc<dyn Store> = Arc::new(MountStore::new(roots.clone()));
        prepare(&plfs_core::Config::default(), &roots).unwrap();
        let config = Config { mounts: vec![dir.clone()], shared_memory: None, ..Config::shared() };
        let plfs = Plfs::new(store.clone(), config.clone());
        let open = |plfs: &Plfs| match plfs.open(&dir.join("f"), OpenOptions::create()) {
            Ok(Opened::Logical(file)) => Ok(file),
            Ok(Opened::Plain(_)) => panic!("it is plain"),
            Err(error) => Err(error),
        };
        let file = open(&plfs).unwrap();
        file.write_at(b"abc", 0).unwrap();
        let container = file.container().unwrap().dir.clone();

        // Who renames a directory above loses nothing, here for a second reason: the root is a
        // descriptor.
        std::fs::rename(&base, base.with_extension("moved")).unwrap();
        file.sync().unwrap();
        file.write_at(b"def", 3).unwrap();
        file.close().unwrap();
        std::fs::rename(base.with_extension("moved"), &base).unwrap();

        let set = std::fs::read_dir(&container)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .find(|path| path.is_dir())
            .unwrap();
        std::os::unix::fs::symlink(&victim, container.join("0badcafe.gone")).unwrap();
        for owner in [None, store.for_owner(0, 0)] {
            let store = owner.as_ref().unwrap_or(&store);
            for keep in [Keep::Nothing, Keep::WhenUsed, Keep::Now] {
                let view = store
                    .inside(vec![Place { root: dir.clone(), dir: container.to_path_buf() }], keep)
                    .unwrap();
                let link = container.join("0badcafe.gone");
                assert_eq!(view.list(&link).err(), Some(Errno::LOOP));
                assert_eq!(view.unlink(&link.join("sub/data")).err(), Some(Errno::LOOP));
                assert_eq!(view.rmdir(&link.join("sub")).err(), Some(Errno::LOOP));
                assert_eq!(
                    view.open(&link.join("new"), Open::create(0o600)).err(),
                    Some(Errno::LOOP)
                );
                assert_eq!(view.stat(&link, Links::Stay).unwrap().kind, Kind::Symlink);
                assert_eq!(view.stat(&set.join("index"), Links::Follow).unwrap().kind, Kind::File);
            }
        }
        for report in plfs_core::check_tree(&store, &dir, &[], |_| {}).unwrap() {
            plfs_core::repair(&store, &config, &report, 0).unwrap();
        }
        assert!(!container.join("0badcafe.gone").is_symlink());
        std::fs::rename(&set, victim.join("set")).unwrap();
        std::os::unix::fs::symlink(victim.join("set"), &set).unwrap();
        let file = open(&Plfs::new(store.clone(), config)).unwrap();
        let refused = file.read_at(&mut [0; 6], 0).unwrap_err().to_string();
        assert!(refused.contains("is a symbolic link"), "{refused}");
        drop(file);
        plfs.unlink(&dir.join("f")).unwrap();
        assert!(!container.exists());
        assert_eq!(std::fs::read(victim.join("sub/data")).unwrap(), b"precious");
        assert!(victim.join("set/index").exists());
        std::fs::remove_dir_all(&base).unwrap();
    }
}
