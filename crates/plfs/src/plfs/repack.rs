//! Moves the files of a directory into its pack, and out of it.
//!
//! A file is durable where it goes before its name goes where it was. In between both are there,
//! with the same bytes: the pack's counts, and who runs the same again goes on from there.

use std::ffi::{OsStr, OsString};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use plfs_format::pack;

use super::small::attributes;
use super::{Plfs, is_young, may_be_logical};
use crate::container;
use crate::error::{At, Result};
use crate::pack::{Attributes, OUTGROWN_BYTES, Pack, PackOpen, PackOptions, PackStat, When};
use crate::store::{self, Errno, Kind, Links, Open, Stat, Store, StoreFile};
use crate::sync::Arc;

/// Files that are made durable at once: some 64 syncs less for each sync of the pack.
const BATCH_FILES: usize = 64;
/// Bytes of them, which are kept in memory. 4 MiB.
const BATCH_BYTES: u64 = 4 << 20;

/// What moving the files of a directory has come to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repacked {
    /// Files that were moved.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Files that stay where they are, and why.
    pub left: Vec<(OsString, String)>,
}

/// A plain file on its way into the pack.
struct Incoming {
    name: OsString,
    file: Arc<dyn StoreFile>,
    stat: Stat,
    bytes: Vec<u8>,
}

impl Plfs {
    /// Moves the small plain files of a directory into its pack, which is made if there is none.
    /// Files that are open, have several names, are larger than 1 MiB or no regular files stay, and
    /// are named. `progress` is told what has been moved so far, and may end it.
    ///
    /// Where nobody can tell whether other nodes have a file open, one that was written within the
    /// last minute stays.
    pub fn pack_dir(
        &self,
        dir: &Path,
        mut progress: impl FnMut(&Repacked) -> ControlFlow<()>,
    ) -> Result<Repacked> {
        self.take_back(dir)?;
        drop(self.make_pack(dir)?);
        let pack = self.own_view(dir)?;
        let (mut done, aside) = (Repacked::default(), beside(dir, "in"));
        let store = self.process.store.as_ref();
        self.take_up(Some(&pack), dir, &mut done)?;
        let mut names: Vec<OsString> = store
            .list(dir)
            .at("list", dir)?
            .into_iter()
            .map(|entry| entry.name)
            .filter(|name| !container::is_hidden(name))
            .collect();
        names.sort_unstable();
        let (mut batch, mut bytes) = (Vec::new(), 0);
        for name in names {
            match self.take_in(dir, &name)? {
                Taken::Other => continue,
                Taken::Stays(why) => {
                    done.left.push((name, why.into()));
                    continue;
                }
                Taken::In(incoming) => {
                    bytes += incoming.stat.len;
                    batch.push(incoming);
                }
            }
            if batch.len() >= BATCH_FILES || bytes >= BATCH_BYTES {
                self.bring_in(&pack, dir, &aside, std::mem::take(&mut batch), &mut done)?;
                bytes = 0;
                if progress(&done).is_break() {
                    break;
                }
            }
        }
        self.bring_in(&pack, dir, &aside, batch, &mut done)?;
        let _ = progress(&done);
        let _ = store.rmdir(&aside);
        pack.close()?;
        Ok(done)
    }

    /// A view of the pack that says nothing before all of a file is there.
    fn own_view(&self, dir: &Path) -> Result<Pack> {
        let options = PackOptions { batch: true, ..PackOptions::default() };
        let found = Pack::find(&self.process.store, &self.process.config, dir, options)?;
        found.map_or_else(|| Err(Errno::NOENT).at("open the pack of", dir), Ok)
    }

    /// What earlier runs have left beside the pack. What was put aside goes if the pack, or an
    /// ordinary file of its name, has the same bytes; else it gets its name back. Copies that were
    /// not finished go.
    fn take_up(&self, pack: Option<&Pack>, dir: &Path, done: &mut Repacked) -> Result<()> {
        let store = self.process.store.as_ref();
        let (aside, copies) = (beside(dir, "in"), beside(dir, "out"));
        for name in names_in(store, &aside)? {
            let (path, plain) = (aside.join(&name), dir.join(&name));
            let bytes = whole(store.open(&path, Open::READ).at("open", &path)?.as_ref(), &path)?;
            let is_packed = match pack {
                Some(pack) => has_same(pack, name.as_bytes(), &bytes)?,
                None => false,
            };
            match store.stat(&plain, Links::Stay) {
                _ if is_packed => {
                    store.unlink(&path).at("remove", &path)?;
                    done.files += 1;
                    done.bytes += bytes.len() as u64;
                }
                Err(Errno::NOENT) => store.rename(&path, &plain).at("rename", &path)?,
                _ if is_same_file(store, &path, &plain)? => {
                    store.unlink(&path).at("remove", &path)?;
                }
                _ => done.left.push((name, format!("an earlier one is in {}", aside.display()))),
            }
        }
        for name in names_in(store, &copies)? {
            let path = copies.join(name);
            store.unlink(&path).at("remove", &path)?;
        }
        for dir in [&aside, &copies] {
            match store.rmdir(dir) {
                Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY) => {}
                Err(errno) => return Err(errno).at("remove the directory", dir),
            }
        }
        Ok(())
    }

    /// What is to be done with a name of a directory.
    fn take_in(&self, dir: &Path, name: &OsStr) -> Result<Taken> {
        let (store, path) = (self.process.store.as_ref(), dir.join(name));
        let stat = match store.stat(&path, Links::Stay) {
            Err(Errno::NOENT) => return Ok(Taken::Other),
            other => other.at("stat", &path)?,
        };
        match stat.kind {
            Kind::Dir => return Ok(Taken::Other),
            Kind::Symlink | Kind::Other => return Ok(Taken::Stays("it is no regular file")),
            Kind::File => {}
        }
        if stat.nlink > 1 {
            return Ok(Taken::Stays("it has several names, or is a PLFS file"));
        }
        if may_be_logical(&stat) && self.is_logical(&path)? {
            return Ok(Taken::Stays("it is a PLFS file"));
        }
        if stat.len > OUTGROWN_BYTES {
            return Ok(Taken::Stays("it is larger than 1 MiB"));
        }
        let file = match store.open(&path, Open::READ) {
            Err(Errno::NOENT) => return Ok(Taken::Other),
            Err(Errno::ACCESS) => return Ok(Taken::Stays("it may not be read")),
            other => other.at("open", &path)?,
        };
        if self.is_in_use(file.as_ref(), &stat, &path) {
            return Ok(Taken::Stays("it is open"));
        }
        let bytes = whole(file.as_ref(), &path)?;
        Ok(Taken::In(Incoming { name: name.to_owned(), file, stat, bytes }))
    }

    /// Whether somebody may have the file open but us.
    fn is_in_use(&self, file: &dyn StoreFile, stat: &Stat, path: &Path) -> bool {
        match self.process.is_local(stat.dev, path) {
            true => file.is_open_elsewhere(),
            false => is_young(stat),
        }
    }

    /// Moves files into the pack, all durable at once.
    fn bring_in(
        &self,
        pack: &Pack,
        dir: &Path,
        aside: &Path,
        batch: Vec<Incoming>,
        done: &mut Repacked,
    ) -> Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        let store = self.process.store.as_ref();
        // In a block of their own: who looks sees no file without its bytes.
        pack.commit()?;
        let mut copied = Vec::new();
        for incoming in batch {
            let name = incoming.name.as_bytes();
            match pack.stat(name) {
                Ok(_) if has_same(pack, name, &incoming.bytes)? => copied.push(incoming),
                Ok(_) => {
                    let why = "the pack has another file of this name, which hides it";
                    done.left.push((incoming.name, why.into()));
                }
                Err(error) if error.errno() == Errno::NOENT => {
                    copy_in(pack, &incoming)?;
                    copied.push(incoming);
                }
                Err(error) => return Err(error),
            }
        }
        pack.sync()?;
        match store.mkdir(aside, 0o700) {
            Err(Errno::EXIST) => {}
            other => other.at("make the directory", aside)?,
        }
        for Incoming { name, file, stat, bytes } in copied {
            let (path, moved) = (dir.join(&name), aside.join(&name));
            let packed = pack.stat(name.as_bytes())?;
            // Out of the way of who would open it now; whoever has opened it is found.
            store.rename(&path, &moved).at("rename", &path)?;
            let now = store.stat(&moved, Links::Stay).at("stat", &moved)?;
            let is_same = (now.dev, now.ino, now.nlink) == (stat.dev, stat.ino, 1)
                && (now.mode, now.uid, now.gid, now.mtime)
                    == (stat.mode, stat.uid, stat.gid, stat.mtime)
                && whole(file.as_ref(), &moved)? == bytes
                && !self.is_in_use(file.as_ref(), &stat, &moved);
            if is_same {
                store.unlink(&moved).at("remove", &moved)?;
                done.files += 1;
                done.bytes += stat.len;
                continue;
            }
            // The plain one is the newer. If somebody has changed the packed one meanwhile, both
            // stay.
            let why = match pack.unlink_if(name.as_bytes(), &packed)? {
                true => "it was changed or opened meanwhile",
                false => "it was changed meanwhile, here and in the pack",
            };
            match store.link(&moved, &path) {
                Ok(()) => store.unlink(&moved).at("remove", &moved)?,
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno).at("rename", &moved),
            }
            done.left.push((name, why.into()));
        }
        Ok(())
    }

    /// Moves the files of a directory's pack out, to ordinary files with the same names, owners,
    /// modes and times, and removes the pack. Files whose names ordinary ones have, with other
    /// bytes, stay and are named, and so does the pack.
    ///
    /// EBUSY if another process writes it.
    pub fn unpack_dir(
        &self,
        dir: &Path,
        mut progress: impl FnMut(&Repacked) -> ControlFlow<()>,
    ) -> Result<Repacked> {
        let (mut done, aside) = (Repacked::default(), beside(dir, "out"));
        let store = self.process.store.as_ref();
        self.leave_packs()?;
        self.take_back(dir)?;
        let options = PackOptions { batch: true, ..PackOptions::default() };
        let Some(pack) = Pack::find(&self.process.store, &self.process.config, dir, options)?
        else {
            self.take_up(None, dir, &mut done)?;
            return Ok(done);
        };
        if pack.is_written()? {
            return Err(Errno::BUSY).at("unpack (a process has files of its pack open)", dir);
        }
        self.take_up(Some(&pack), dir, &mut Repacked::default())?;
        store.mkdir(&aside, 0o700).at("make the directory", &aside)?;
        let mut after = Vec::new();
        loop {
            let names = pack.list(&after, BATCH_FILES)?;
            let Some((last, _)) = names.last() else { break };
            after = last.to_vec();
            self.bring_out(&pack, dir, &aside, names, &mut done)?;
            if progress(&done).is_break() {
                break;
            }
        }
        self.take_up(Some(&pack), dir, &mut Repacked::default())?;
        let is_empty = pack.list(b"", 1)?.is_empty();
        pack.close()?;
        if is_empty {
            self.remove_pack(dir)?
        }
        Ok(done)
    }

    fn bring_out(
        &self,
        pack: &Pack,
        dir: &Path,
        aside: &Path,
        names: Vec<(Box<[u8]>, PackStat)>,
        done: &mut Repacked,
    ) -> Result<()> {
        let store = self.process.store.as_ref();
        let mut out = Vec::new();
        for (name, stat) in names {
            let (path, tmp) =
                (dir.join(OsStr::from_bytes(&name)), aside.join(OsStr::from_bytes(&name)));
            copy_out(store, pack, &name, &stat, &tmp)?;
            match store.link(&tmp, &path) {
                Ok(()) => out.push((name, stat, tmp)),
                Err(Errno::EXIST) if is_same_file(store, &tmp, &path)? => {
                    out.push((name, stat, tmp));
                }
                Err(Errno::EXIST) => {
                    let why = "an ordinary file has this name and other bytes";
                    done.left.push((OsStr::from_bytes(&name).to_owned(), why.into()));
                }
                Err(errno) => return Err(errno).at("create", &path),
            }
        }
        store.sync_dir(dir).at("sync", dir)?;
        for (name, stat, tmp) in out {
            match pack.unlink_if(&name, &stat)? {
                true => {
                    done.files += 1;
                    done.bytes += stat.size;
                }
                false => {
                    let path = dir.join(OsStr::from_bytes(&name));
                    store.unlink(&path).at("remove", &path)?;
                    let why = "it was changed meanwhile".to_owned();
                    done.left.push((OsStr::from_bytes(&name).to_owned(), why));
                }
            }
            store.unlink(&tmp).at("remove", &tmp)?;
        }
        pack.sync()
    }
}

enum Taken {
    In(Incoming),
    Stays(&'static str),
    Other,
}

fn copy_in(pack: &Pack, incoming: &Incoming) -> Result<()> {
    let Incoming { name, stat, bytes, .. } = incoming;
    let how = PackOpen {
        create: true,
        mode: stat.mode,
        uid: stat.uid,
        gid: stat.gid,
        ..PackOpen::default()
    };
    let file = pack.open_file(name.as_bytes(), how)?;
    let mut at = 0;
    while at < bytes.len() {
        match pack.write_at(&file, &bytes[at..], at as u64)? {
            0 => return Err(Errno::NOSPC).at("write", Path::new(name)),
            n => at += n,
        }
    }
    let when = |time: store::Time| Some(When { sec: time.sec, nsec: time.nsec });
    let (atime, mtime) = (when(stat.atime), when(stat.mtime));
    pack.set_attributes(&file, Attributes { atime, mtime, ..Attributes::default() })
}

fn copy_out(
    store: &dyn Store,
    pack: &Pack,
    name: &[u8],
    stat: &PackStat,
    tmp: &Path,
) -> Result<()> {
    let from = pack.open_file(name, PackOpen::default())?;
    let to = store.open(tmp, Open::create_new(0o600)).at("create", tmp)?;
    let (mut buffer, mut at) = (vec![0; (stat.size as usize).min(1 << 20)], 0);
    while at < stat.size {
        let n = pack.read_at(&from, &mut buffer, at)?;
        if n == 0 {
            break;
        }
        store::write_full(to.as_ref(), &buffer[..n], at).at("write", tmp)?;
        at += n as u64;
    }
    attributes(store, tmp, stat)?;
    to.sync_all().at("sync", tmp)
}

fn beside(dir: &Path, what: &str) -> PathBuf {
    dir.join(format!("{}.{what}", pack::NAME))
}

/// The names in a directory that may not be there.
fn names_in(store: &dyn Store, dir: &Path) -> Result<Vec<OsString>> {
    match store.list(dir) {
        Err(Errno::NOENT) => Ok(Vec::new()),
        other => Ok(other.at("list", dir)?.into_iter().map(|entry| entry.name).collect()),
    }
}

/// All bytes of a small file.
fn whole(file: &dyn StoreFile, path: &Path) -> Result<Vec<u8>> {
    let mut bytes = vec![0; OUTGROWN_BYTES as usize + 1];
    let n = store::read_full(file, &mut bytes, 0).at("read", path)?;
    bytes.truncate(n);
    bytes.shrink_to_fit();
    Ok(bytes)
}

/// Whether the pack has a file of this name with these bytes.
fn has_same(pack: &Pack, name: &[u8], bytes: &[u8]) -> Result<bool> {
    let file = match pack.open_file(name, PackOpen::default()) {
        Err(error) if error.errno() == Errno::NOENT => return Ok(false),
        other => other?,
    };
    let mut packed = vec![0; bytes.len() + 1];
    let n = pack.read_at(&file, &mut packed, 0)?;
    Ok(packed[..n] == *bytes)
}

fn is_same_file(store: &dyn Store, one: &Path, other: &Path) -> Result<bool> {
    if store.stat(other, Links::Stay).at("stat", other)?.kind != Kind::File {
        return Ok(false);
    }
    let open = |path: &Path| store.open(path, Open::READ).at("open", path);
    let (a, b): (Arc<dyn StoreFile>, Arc<dyn StoreFile>) = (open(one)?, open(other)?);
    let (mut left, mut right, mut at) = (vec![0; 1 << 20], vec![0; 1 << 20], 0);
    loop {
        let n = store::read_full(a.as_ref(), &mut left, at).at("read", one)?;
        let m = store::read_full(b.as_ref(), &mut right, at).at("read", other)?;
        if left[..n] != right[..m] {
            return Ok(false);
        }
        if n < left.len() {
            return Ok(true);
        }
        at += n as u64;
    }
}
