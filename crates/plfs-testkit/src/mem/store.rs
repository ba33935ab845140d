//! The calls of a store in memory and of its open files, on the tree.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use plfs::store::{
    Bytes, Entry, Errno, Keep, Links, LockKind, Open, Place, Result, Space, Stat, Store, StoreFile,
    Time,
};

use super::{Body, Content, Dir, Last, MemStore, Node, PAGE, PATH_MAX, Tree, lock, parts_reversed};

/// Largest length and offset: off_t is signed.
const LEN_MAX: u64 = i64::MAX as u64;
/// Longest map: it is a copy here, and sparse files can claim any length.
const MAP_MAX: u64 = 1 << 34;

/// What `space` claims as size, 1 TiB.
const SPACE_TOTAL: u64 = 1 << 40;
/// The usual umask; a library must not ask for the process's real one, since the only call for it
/// changes it.
const UMASK: u32 = 0o022;

impl Store for MemStore {
    fn open(&self, path: &Path, how: Open) -> Result<Arc<dyn StoreFile>> {
        let mut tree = self.lock();
        let exclusive = how.create && how.exclusive;
        let found = self.walk(
            &tree,
            path,
            if exclusive {
                Last::CreateNew
            } else if how.create {
                Last::Create
            } else {
                Last::Follow
            },
        )?;
        let ino = match found.ino {
            Some(_) if exclusive => return Err(Errno::EXIST),
            Some(ino) if tree.node(ino).is_dir() && (how.write || how.create) => {
                return Err(Errno::ISDIR);
            }
            Some(ino) => ino,
            None if !how.create => return Err(Errno::NOENT),
            None => {
                let (dir, name) = found.vacant(false)?;
                tree.add(dir, &name, Body::File(Content::default()), how.mode & 0o7777 & !UMASK)?
            }
        };
        tree.next_open += 1;
        let id = tree.next_open;
        tree.node_mut(ino).opens += 1;
        drop(tree);
        Ok(Arc::new(MemFile {
            tree: Arc::clone(&self.tree),
            ino,
            id,
            read: how.read || !how.write,
            write: how.write,
        }))
    }

    fn stat(&self, path: &Path, links: Links) -> Result<Stat> {
        let tree = self.lock();
        let ino = self.walk(&tree, path, Last::of(links))?.exists()?;
        Ok(tree.node(ino).stat(tree.dev, ino))
    }

    fn list(&self, path: &Path) -> Result<Vec<Entry>> {
        let tree = self.lock();
        let ino = self.walk(&tree, path, Last::Follow)?.exists()?;
        Ok(tree
            .dir(ino)?
            .names
            .iter()
            .map(|(name, &ino)| Entry {
                name: name.clone(),
                kind: Some(tree.node(ino).kind()),
                ino,
            })
            .collect())
    }

    fn mkdir(&self, path: &Path, mode: u32) -> Result<()> {
        let mut tree = self.lock();
        let (dir, name) = self.walk(&tree, path, Last::Entry)?.vacant(true)?;
        tree.add(dir, &name, Body::Dir(Dir::new(dir)), mode & 0o7777 & !UMASK).map(drop)
    }

    fn rmdir(&self, path: &Path) -> Result<()> {
        let mut tree = self.lock();
        let found = self.walk(&tree, path, Last::Entry)?;
        let ino = found.exists()?;
        let Some(name) = &found.name else {
            return Err(match parts_reversed(path.as_os_str().as_bytes()).next() {
                Some(last) if last == "." => Errno::INVAL,
                Some(_) => Errno::NOTEMPTY,
                None => Errno::BUSY,
            });
        };
        if !tree.dir(ino)?.names.is_empty() {
            return Err(Errno::NOTEMPTY);
        }
        tree.remove(found.dir, name)
    }

    fn unlink(&self, path: &Path) -> Result<()> {
        let mut tree = self.lock();
        let found = self.walk(&tree, path, Last::Entry)?;
        let ino = found.exists()?;
        match &found.name {
            Some(_) if found.slash && !tree.node(ino).is_dir() => Err(Errno::NOTDIR),
            Some(name) if !tree.node(ino).is_dir() => tree.remove(found.dir, name),
            _ => Err(Errno::ISDIR),
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let mut tree = self.lock();
        let (from, to) = (self.walk(&tree, from, Last::Entry)?, self.walk(&tree, to, Last::Entry)?);
        tree.rename(&from, &to)
    }

    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        let mut tree = self.lock();
        let ino = self.walk(&tree, from, Last::Stay)?.exists()?;
        let (dir, name) = self.walk(&tree, to, Last::Entry)?.vacant(false)?;
        if tree.node(ino).is_dir() {
            return Err(Errno::PERM);
        }
        let now = tree.now();
        let id = tree.change_id();
        tree.change(id, dir, &name, Some(ino), now).map(drop)
    }

    fn link_open(&self, file: &dyn StoreFile, to: &Path) -> Result<()> {
        let stat = file.stat()?;
        let mut tree = self.lock();
        if stat.dev != tree.dev {
            return Err(Errno::XDEV);
        }
        let (dir, name) = self.walk(&tree, to, Last::Entry)?.vacant(false)?;
        if tree.node(stat.ino).names == 0 {
            return Err(Errno::NOENT);
        }
        let now = tree.now();
        let id = tree.change_id();
        tree.change(id, dir, &name, Some(stat.ino), now).map(drop)
    }

    fn symlink(&self, target: &Path, path: &Path) -> Result<()> {
        match target.as_os_str().len() {
            0 => return Err(Errno::NOENT),
            PATH_MAX.. => return Err(Errno::NAMETOOLONG),
            _ => {}
        }
        let mut tree = self.lock();
        let (dir, name) = self.walk(&tree, path, Last::Entry)?.vacant(false)?;
        tree.add(dir, &name, Body::Link(target.to_owned()), 0o777).map(drop)
    }

    fn readlink(&self, path: &Path) -> Result<PathBuf> {
        let tree = self.lock();
        let ino = self.walk(&tree, path, Last::Stay)?.exists()?;
        match &tree.node(ino).body {
            Body::Link(target) => Ok(target.clone()),
            _ => Err(Errno::INVAL),
        }
    }

    fn chmod(&self, path: &Path, mode: u32) -> Result<()> {
        let mut tree = self.lock();
        let ino = self.walk(&tree, path, Last::Follow)?.exists()?;
        let now = tree.now();
        let node = tree.node_mut(ino);
        node.mode = mode & 0o7777;
        node.ctime = now;
        Ok(())
    }

    fn chown(&self, path: &Path, uid: Option<u32>, gid: Option<u32>, links: Links) -> Result<()> {
        let mut tree = self.lock();
        let ino = self.walk(&tree, path, Last::of(links))?.exists()?;
        let now = tree.now();
        let node = tree.node_mut(ino);
        // chown(2) takes the number -1 as "leave as it is", which is what None says.
        node.uid = uid.filter(|&id| id != u32::MAX).unwrap_or(node.uid);
        node.gid = gid.filter(|&id| id != u32::MAX).unwrap_or(node.gid);
        node.ctime = now;
        Ok(())
    }

    fn set_times(&self, path: &Path, atime: Option<Time>, mtime: Option<Time>) -> Result<()> {
        if [atime, mtime].iter().flatten().any(|time| time.nsec > 999_999_999) {
            return Err(Errno::INVAL);
        }
        let mut tree = self.lock();
        let last = if self.place(path).is_none() { Last::Follow } else { Last::Stay };
        let ino = self.walk(&tree, path, last)?.exists()?;
        if atime.is_none() && mtime.is_none() {
            return Ok(());
        }
        let now = tree.now();
        let node = tree.node_mut(ino);
        node.atime = atime.unwrap_or(node.atime);
        node.mtime = mtime.unwrap_or(node.mtime);
        node.ctime = now;
        Ok(())
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        let mut tree = self.lock();
        let ino = self.walk(&tree, path, Last::Follow)?.exists()?;
        tree.sync_dir(ino)
    }

    fn space(&self, path: &Path) -> Result<Space> {
        let tree = self.lock();
        self.walk(&tree, path, Last::Follow)?.exists()?;
        let pages = |node: &Node| {
            if let Body::File(content) = &node.body { content.pages.len() as u64 } else { 0 }
        };
        let used = tree.nodes.values().map(pages).sum::<u64>() * PAGE;
        Ok(Space { total: SPACE_TOTAL, available: SPACE_TOTAL.saturating_sub(used) })
    }

    fn inside(&self, places: Vec<Place>, _keep: Keep) -> Option<Arc<dyn Store>> {
        Some(Arc::new(MemStore { places: places.into(), ..self.clone() }))
    }

    fn is_local(&self, _path: &Path) -> bool {
        !self.is_shared
    }

    fn boot(&self, _path: &Path) -> Option<u64> {
        // What a crash leaves is a store of its own.
        Some(self.boot.unwrap_or_else(|| self.lock().dev))
    }
}

/// An open file of a [`MemStore`]. Locks belong to it, not to the process: two opens exclude each
/// other wherever they are.
struct MemFile {
    tree: Arc<Mutex<Tree>>,
    ino: u64,
    id: u64,
    read: bool,
    write: bool,
}

impl std::fmt::Debug for MemFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemFile")
            .field("ino", &self.ino)
            .field("open", &self.id)
            .finish_non_exhaustive()
    }
}

impl Drop for MemFile {
    fn drop(&mut self) {
        let mut tree = lock(&self.tree);
        let node = tree.node_mut(self.ino);
        node.opens -= 1;
        node.locks.retain(|&(id, _)| id != self.id);
        node.gate = node.gate.filter(|&id| id != self.id);
        tree.release([self.ino]);
    }
}

impl MemFile {
    /// Runs `change` on the bytes, with new modification times.
    fn change(&self, not_open_for_writing: Errno, change: impl FnOnce(&mut Content)) -> Result<()> {
        if !self.write {
            return Err(not_open_for_writing);
        }
        let mut tree = lock(&self.tree);
        let now = tree.now();
        let node = tree.node_mut(self.ino);
        let Body::File(content) = &mut node.body else { return Err(Errno::ISDIR) };
        change(content);
        node.mtime = now;
        node.ctime = now;
        Ok(())
    }
}

impl StoreFile for MemFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        if !self.read {
            return Err(Errno::BADF);
        }
        if offset > LEN_MAX {
            return Err(Errno::INVAL);
        }
        match &lock(&self.tree).node(self.ino).body {
            Body::File(content) => Ok(content.read_at(buf, offset)),
            Body::Dir(_) | Body::Link(_) => Err(Errno::ISDIR),
        }
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<usize> {
        if offset > LEN_MAX {
            return Err(Errno::INVAL);
        }
        let room = usize::try_from(LEN_MAX - offset).unwrap_or(usize::MAX);
        if room == 0 && !buf.is_empty() {
            return Err(Errno::FBIG);
        }
        let buf = &buf[..buf.len().min(room)];
        if buf.is_empty() && self.write {
            return Ok(0);
        }
        self.change(Errno::BADF, |content| content.write_at(buf, offset))?;
        Ok(buf.len())
    }

    fn stat(&self) -> Result<Stat> {
        let tree = lock(&self.tree);
        Ok(tree.node(self.ino).stat(tree.dev, self.ino))
    }

    fn set_len(&self, len: u64) -> Result<()> {
        if len > LEN_MAX {
            return Err(Errno::INVAL);
        }
        self.change(Errno::INVAL, |content| content.set_len(len))
    }

    fn punch(&self, offset: u64, length: u64) -> Result<()> {
        self.change(Errno::BADF, |content| content.punch(offset, offset.saturating_add(length)))
    }

    fn sync_data(&self) -> Result<()> {
        let mut tree = lock(&self.tree);
        match &mut tree.node_mut(self.ino).body {
            Body::File(content) => {
                content.sync();
                Ok(())
            }
            Body::Dir(_) | Body::Link(_) => tree.sync_dir(self.ino),
        }
    }

    fn sync_all(&self) -> Result<()> {
        self.sync_data()?;
        let mut tree = lock(&self.tree);
        tree.node_mut(self.ino).attributes.values_mut().for_each(|(_, durable)| *durable = true);
        Ok(())
    }

    fn attribute(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let tree = lock(&self.tree);
        Ok(tree.node(self.ino).attributes.get(name).map(|(value, _)| value.clone()))
    }

    fn set_new_attribute(&self, name: &str, value: &[u8]) -> Result<()> {
        let mut tree = lock(&self.tree);
        let now = tree.now();
        let node = tree.node_mut(self.ino);
        if node.attributes.contains_key(name) {
            return Err(Errno::EXIST);
        }
        node.attributes.insert(name.to_owned(), (value.to_vec(), false));
        node.ctime = now;
        Ok(())
    }

    fn is_open_elsewhere(&self) -> bool {
        lock(&self.tree).node(self.ino).opens > 1
    }

    fn try_gate(&self) -> Result<bool> {
        let mut tree = lock(&self.tree);
        let gate = &mut tree.node_mut(self.ino).gate;
        Ok(*gate.get_or_insert(self.id) == self.id)
    }

    fn leave_gate(&self) {
        let mut tree = lock(&self.tree);
        let gate = &mut tree.node_mut(self.ino).gate;
        *gate = gate.filter(|&id| id != self.id);
    }

    /// As flock(2), a failed attempt to change the kind of lock loses the lock held before.
    fn try_lock(&self, kind: LockKind) -> Result<bool> {
        let mut tree = lock(&self.tree);
        let locks = &mut tree.node_mut(self.ino).locks;
        if locks.contains(&(self.id, kind)) {
            return Ok(true);
        }
        locks.retain(|&(id, _)| id != self.id);
        if locks.iter().any(|&(_, other)| [kind, other].contains(&LockKind::Exclusive)) {
            return Ok(false);
        }
        locks.push((self.id, kind));
        Ok(true)
    }

    fn map(&self) -> Result<Bytes> {
        if !self.read {
            return Err(Errno::ACCESS);
        }
        let tree = lock(&self.tree);
        let Body::File(content) = &tree.node(self.ino).body else { return Err(Errno::NODEV) };
        if content.len > MAP_MAX {
            return Err(Errno::NOMEM);
        }
        let mut bytes = vec![0; content.len as usize];
        content.read_at(&mut bytes, 0);
        Ok(Arc::new(bytes))
    }
}
