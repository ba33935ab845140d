//! A client that caches as those of NFS may.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plfs::store::{
    Bytes, Entry, Errno, Links, LockKind, Open, Result, Space, Stat, Store, StoreFile, Time,
    read_full, write_full,
};

/// One client of `server` that keeps close-to-open consistency and nothing more. It believes the
/// names, attributes, texts of links and listings that it has seen until it changes them itself;
/// it asks for attributes and bytes of a file again when the file is opened; what is written stays
/// with it until flush, a sync, a stat or the last close. A real client forgets after some seconds
/// or minutes: here that time has not come yet.
///
/// Clones are one client.
#[derive(Clone, Debug)]
pub struct CloseToOpenStore {
    server: Arc<dyn Store>,
    cache: Arc<Mutex<Cache>>,
}

#[derive(Debug, Default)]
struct Cache {
    /// Inode numbers, or that there is none, of names looked up with or without following a link.
    names: HashMap<(PathBuf, Links), Result<u64>>,
    attributes: HashMap<u64, Stat>,
    lists: HashMap<PathBuf, Vec<Entry>>,
    links: HashMap<PathBuf, Result<PathBuf>>,
    contents: HashMap<u64, Content>,
}

/// What is known of the bytes of a file.
#[derive(Debug, Default)]
struct Content {
    bytes: Option<Vec<u8>>,
    /// Written and not given to the server.
    dirty: Vec<(Arc<dyn StoreFile>, u64, Vec<u8>)>,
}

impl Content {
    /// The bytes, asked for through `file` if they are not known.
    fn bytes(&mut self, file: &dyn StoreFile) -> Result<&mut Vec<u8>> {
        if self.bytes.is_none() {
            let mut bytes = vec![0; file.stat()?.len as usize];
            let n = read_full(file, &mut bytes, 0)?;
            bytes.truncate(n);
            for (_, offset, piece) in &self.dirty {
                put(&mut bytes, *offset as usize, piece);
            }
            self.bytes = Some(bytes);
        }
        self.bytes.as_mut().ok_or(Errno::IO)
    }

    fn write_back(&mut self) -> Result<()> {
        for (file, offset, piece) in self.dirty.drain(..) {
            write_full(file.as_ref(), &piece, offset)?;
        }
        Ok(())
    }
}

fn put(bytes: &mut Vec<u8>, offset: usize, piece: &[u8]) {
    bytes.resize(bytes.len().max(offset + piece.len()), 0);
    bytes[offset..offset + piece.len()].copy_from_slice(piece);
}

impl Cache {
    /// Writes back what is dirty of a file before its attributes are told.
    fn attributes(&mut self, ino: u64, ask: impl FnOnce() -> Result<Stat>) -> Result<Stat> {
        if let Some(content) = self.contents.get_mut(&ino)
            && !content.dirty.is_empty()
        {
            self.attributes.remove(&ino);
            content.write_back()?;
        }
        match self.attributes.get(&ino) {
            Some(stat) => Ok(*stat),
            None => {
                let stat = ask()?;
                self.attributes.insert(ino, stat);
                Ok(stat)
            }
        }
    }

    fn lookup(&mut self, server: &dyn Store, path: &Path, links: Links) -> Result<u64> {
        let key = (path.to_path_buf(), links);
        if let Some(known) = self.names.get(&key) {
            return *known;
        }
        let found = server.stat(path, links).map(|stat| {
            self.attributes.entry(stat.ino).or_insert(stat);
            stat.ino
        });
        if matches!(found, Ok(_) | Err(Errno::NOENT)) {
            self.names.insert(key, found);
        }
        found
    }

    /// Forgets what this client is about to change: the name, its directory and what is in both.
    fn changes(&mut self, server: &dyn Store, path: &Path) {
        let dir = path.parent();
        for path in [Some(path), dir].into_iter().flatten() {
            if let Ok(stat) = server.stat(path, Links::Stay) {
                self.attributes.remove(&stat.ino);
            }
        }
        let is_hit =
            |other: &Path| other.starts_with(path) || Some(other) == dir || other.parent() == dir;
        self.names.retain(|(other, _), _| !is_hit(other));
        self.lists.retain(|other, _| !is_hit(other));
        self.links.retain(|other, _| !is_hit(other));
    }
}

impl CloseToOpenStore {
    /// A new client, which has seen nothing.
    pub fn new(server: Arc<dyn Store>) -> CloseToOpenStore {
        CloseToOpenStore { server, cache: Arc::default() }
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, paths: &[&Path], call: impl Fn(&dyn Store) -> Result<T>) -> Result<T> {
        let mut cache = self.cache();
        // Before, for the inodes that go; after, for those that came.
        paths.iter().for_each(|path| cache.changes(self.server.as_ref(), path));
        let done = call(self.server.as_ref());
        paths.iter().for_each(|path| cache.changes(self.server.as_ref(), path));
        done
    }
}

impl Store for CloseToOpenStore {
    fn open(&self, path: &Path, how: Open) -> Result<Arc<dyn StoreFile>> {
        let mut cache = self.cache();
        if how.create {
            cache.changes(self.server.as_ref(), path);
        } else if cache.names.get(&(path.to_path_buf(), Links::Follow)) == Some(&Err(Errno::NOENT))
        {
            return Err(Errno::NOENT);
        }
        let file = self.server.open(path, how)?;
        let stat = file.stat()?;
        cache.attributes.insert(stat.ino, stat);
        let content = cache.contents.entry(stat.ino).or_default();
        if content.dirty.is_empty() {
            content.bytes = None;
        }
        Ok(Arc::new(CachedFile { client: self.clone(), ino: stat.ino, file }))
    }

    fn stat(&self, path: &Path, links: Links) -> Result<Stat> {
        let mut cache = self.cache();
        let ino = cache.lookup(self.server.as_ref(), path, links)?;
        cache.attributes(ino, || self.server.stat(path, links))
    }

    fn list(&self, path: &Path) -> Result<Vec<Entry>> {
        let mut cache = self.cache();
        if let Some(known) = cache.lists.get(path) {
            return Ok(known.clone());
        }
        let list = self.server.list(path)?;
        cache.lists.insert(path.to_path_buf(), list.clone());
        Ok(list)
    }

    fn mkdir(&self, path: &Path, mode: u32) -> Result<()> {
        self.change(&[path], |server| server.mkdir(path, mode))
    }

    fn rmdir(&self, path: &Path) -> Result<()> {
        self.change(&[path], |server| server.rmdir(path))
    }

    fn unlink(&self, path: &Path) -> Result<()> {
        self.change(&[path], |server| server.unlink(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.change(&[from, to], |server| server.rename(from, to))
    }

    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        self.change(&[from, to], |server| server.link(from, to))
    }

    fn symlink(&self, target: &Path, path: &Path) -> Result<()> {
        self.change(&[path], |server| server.symlink(target, path))
    }

    fn readlink(&self, path: &Path) -> Result<PathBuf> {
        let mut cache = self.cache();
        if let Some(known) = cache.links.get(path) {
            return known.clone();
        }
        let text = self.server.readlink(path);
        cache.links.insert(path.to_path_buf(), text.clone());
        text
    }

    fn chmod(&self, path: &Path, mode: u32) -> Result<()> {
        self.change(&[path], |server| server.chmod(path, mode))
    }

    fn chown(&self, path: &Path, uid: Option<u32>, gid: Option<u32>, links: Links) -> Result<()> {
        self.change(&[path], |server| server.chown(path, uid, gid, links))
    }

    fn set_times(&self, path: &Path, atime: Option<Time>, mtime: Option<Time>) -> Result<()> {
        // What is written later must not change the time again.
        self.stat(path, Links::Follow)?;
        self.change(&[path], |server| server.set_times(path, atime, mtime))
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        self.server.sync_dir(path)
    }

    fn space(&self, path: &Path) -> Result<Space> {
        self.server.space(path)
    }

    fn is_local(&self, _path: &Path) -> bool {
        false
    }

    fn boot(&self, path: &Path) -> Option<u64> {
        self.server.boot(path)
    }

    fn close_to_open(&self, _path: &Path) -> Option<String> {
        Some("nfs".into())
    }
}

#[derive(Debug)]
struct CachedFile {
    client: CloseToOpenStore,
    ino: u64,
    file: Arc<dyn StoreFile>,
}

impl CachedFile {
    fn with<T>(&self, call: impl FnOnce(&mut Content) -> Result<T>) -> Result<T> {
        call(self.client.cache().contents.entry(self.ino).or_default())
    }

    fn write_back(&self) -> Result<()> {
        let mut cache = self.client.cache();
        cache.attributes.remove(&self.ino);
        cache.contents.entry(self.ino).or_default().write_back()
    }
}

impl StoreFile for CachedFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        self.with(|content| {
            let bytes = content.bytes(self.file.as_ref())?;
            let rest = bytes.get(offset as usize..).unwrap_or_default();
            let n = rest.len().min(buf.len());
            buf[..n].copy_from_slice(&rest[..n]);
            Ok(n)
        })
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<usize> {
        self.with(|content| {
            if let Some(bytes) = content.bytes.as_mut() {
                put(bytes, offset as usize, buf);
            }
            content.dirty.push((self.file.clone(), offset, buf.to_vec()));
            Ok(buf.len())
        })
    }

    fn flush(&self) -> Result<()> {
        self.write_back()?;
        self.file.flush()
    }

    fn stat(&self) -> Result<Stat> {
        self.client.cache().attributes(self.ino, || self.file.stat())
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.write_back()?;
        self.with(|content| {
            self.file.set_len(len)?;
            content.bytes = None;
            Ok(())
        })
    }

    fn sync_data(&self) -> Result<()> {
        self.write_back()?;
        self.file.sync_data()
    }

    fn try_lock(&self, kind: LockKind) -> Result<bool> {
        self.file.try_lock(kind)
    }

    fn map(&self) -> Result<Bytes> {
        self.with(|content| {
            let bytes: Bytes = Arc::new(content.bytes(self.file.as_ref())?.clone());
            Ok(bytes)
        })
    }
}

impl Drop for CachedFile {
    fn drop(&mut self) {
        let _ = self.write_back();
    }
}
