//! Moves the files of a directory into its pack, and out of it.
//!
//! A file is durable where it goes before its name goes where it was. In between both are there,
//! with the same bytes: the pack's counts, and who runs the same again goes on from there.

use std::ffi::{OsStr, OsString};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use plfs_format::layout::Workload;
use plfs_format::pack;

use super::changing::{path_in, stat_in, take_out};
use super::in_place::is_young;
use super::small::attributes;
use super::{Plfs, may_be_logical};
use crate::container;
use crate::error::{At, Result};
use crate::pack::{Attributes, OUTGROWN_BYTES, Pack, PackOpen, PackOptions, PackStat, When};
use crate::store::{self, Errno, Kind, Links, Open, Stat, Store, StoreFile};
use crate::sync::{Arc, thread};

/// Files that are made durable at once: some 64 syncs less for each sync of the pack.
const BATCH_FILES: usize = 64;
/// Bytes of them, which are kept in memory. 4 MiB.
const BATCH_BYTES: u64 = 4 << 20;

/// How long a process believes that a directory has no pack, at most, or that its new files go to
/// one: a second, as much at a mount for a second view of the same, and some.
pub const REPACK_SETTLES: Duration = Duration::from_millis(2200);

/// As many times as long who has written files of a pack stays its writer without doing more, or
/// with what he does while its files move out. 5: ten seconds.
const LEAVING: u32 = 5;

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
    /// Moves the small plain files of a directory into its pack, which is made if there is none,
    /// and makes the directory one for small files. Files that are open, have several names, an
    /// access list or extended attributes, are larger than 1 MiB or no regular files stay, and are
    /// named. `progress` is told what has been moved so far, and may end it.
    ///
    /// Other processes may use the files meanwhile; `settles` ([`REPACK_SETTLES`]) is how long they
    /// believe what they have found out of the directory. Where nobody can tell whether other nodes
    /// have a file open, one that was written within the last minute stays.
    ///
    /// EEXIST, and nothing has changed, if the pack hides an ordinary file.
    pub fn pack_dir(
        &self,
        dir: &Path,
        settles: Duration,
        mut progress: impl FnMut(&Repacked) -> ControlFlow<()>,
    ) -> Result<Repacked> {
        // Others who pack it, unpack it or set its layout wait, or are told.
        let _alone = self.layout_turn(dir)?;
        self.take_back(dir)?;
        drop(self.make_pack(dir)?);
        let pack = self.own_view(dir)?;
        let (mut done, aside) = (Repacked::default(), dir.join(pack::IN));
        self.begin_to_change(&pack, dir)?;
        {
            let _turn = self.turn(dir)?;
            self.take_up(Some(&pack), dir, &mut done)?;
            remove_dir(self.process.store.as_ref(), &dir.join(pack::OUT))?;
        }
        if self.workload_of(&dir.join("file"))? != Workload::Small {
            let mut layout = self.own_layout(dir)?.unwrap_or_default();
            layout.workload = Some(Workload::Small);
            self.set_directory_layout(dir, Some(&layout))?;
        }
        // From now on all look for a file in the pack.
        thread::sleep(settles);
        let mut names = self.ordinary_names(dir)?;
        names.sort_unstable();
        let mut names = names.into_iter().peekable();
        while names.peek().is_some() {
            let turn = self.turn(dir)?;
            let (mut batch, mut bytes) = (Vec::new(), 0);
            while batch.len() < BATCH_FILES
                && bytes < BATCH_BYTES
                && let Some(name) = names.next()
            {
                match self.take_in(dir, &name)? {
                    Taken::Other => {}
                    Taken::Stays(why) => done.left.push((name, why.into())),
                    Taken::In(incoming) => {
                        bytes += incoming.stat.len;
                        batch.push(incoming);
                    }
                }
            }
            self.bring_in(&pack, dir, &aside, batch, &mut done)?;
            drop(turn);
            if progress(&done).is_break() {
                break;
            }
        }
        // Other nodes know of all that has moved when they do not look for ordinary files first.
        thread::sleep(settles);
        self.end_change(&pack, dir)?;
        remove_dir(self.process.store.as_ref(), &aside)?;
        pack.close()?;
        Ok(done)
    }

    /// From now on ordinary files come before those of the pack. EEXIST if the pack hides one.
    fn begin_to_change(&self, pack: &Pack, dir: &Path) -> Result<()> {
        let (store, path) = (self.process.store.as_ref(), dir.join(pack::NAME));
        let mode = store.stat(&path, Links::Stay).at("stat", &path)?.mode;
        if mode & pack::CHANGING != 0 {
            // Who began that was killed.
            return Ok(());
        }
        for name in self.ordinary_names(dir)? {
            if stat_in(pack, name.as_bytes())?.is_some() {
                let what = "move files (the pack hides this one: first move it away by a program \
                            without PLFS)";
                return Err(Errno::EXIST).at(what, &dir.join(name));
            }
        }
        set_mode(store, &path, mode | pack::CHANGING)
    }

    /// From now on files of the pack come before ordinary ones: there is no name that both have.
    fn end_change(&self, pack: &Pack, dir: &Path) -> Result<()> {
        let (store, path) = (self.process.store.as_ref(), dir.join(pack::NAME));
        let _turn = self.turn(dir)?;
        pack.refresh()?;
        for name in self.ordinary_names(dir)? {
            while let Some(stat) = stat_in(pack, name.as_bytes())? {
                pack.unlink_if(name.as_bytes(), &stat)?;
            }
        }
        pack.sync()?;
        let mode = store.stat(&path, Links::Stay).at("stat", &path)?.mode;
        set_mode(store, &path, mode & !pack::CHANGING)
    }

    fn ordinary_names(&self, dir: &Path) -> Result<Vec<OsString>> {
        let entries = self.process.store.list(dir).at("list", dir)?.into_iter();
        Ok(entries.map(|entry| entry.name).filter(|name| !container::is_hidden(name)).collect())
    }

    /// A view of the pack that says nothing before all of a file is there.
    fn own_view(&self, dir: &Path) -> Result<Pack> {
        let options = PackOptions { batch: true, ..PackOptions::default() };
        let found = Pack::find(&self.process.store, &self.process.config, dir, options)?;
        found.map_or_else(|| Err(Errno::NOENT).at("open the pack of", dir), Ok)
    }

    /// What earlier runs have left beside the pack. What was put aside goes: the pack has got its
    /// bytes before. Unless somebody who had it open has written it since: then it is an ordinary
    /// file again. Copies that were not finished go.
    fn take_up(&self, pack: Option<&Pack>, dir: &Path, done: &mut Repacked) -> Result<()> {
        let store = self.process.store.as_ref();
        let (aside, copies) = (dir.join(pack::IN), dir.join(pack::OUT));
        for name in names_in(store, &aside)? {
            let (path, plain) = (aside.join(&name), dir.join(&name));
            let stat = store.stat(&path, Links::Stay).at("stat", &path)?;
            // Who has it open may write it yet.
            let file = store.open(&path, Open::READ);
            let is_in_use = file.is_ok_and(|file| self.is_in_use(file.as_ref(), &stat, &path));
            let is_old = match pack.map(|pack| stat_in(pack, name.as_bytes())).transpose()? {
                _ if is_in_use => false,
                None => false,
                // Removed since, or renamed.
                Some(None) => true,
                Some(Some(packed)) => packed.mtime.ns() >= stat.mtime.ns(),
            };
            match store.stat(&plain, Links::Stay) {
                Ok(now) if (now.dev, now.ino) == (stat.dev, stat.ino) => {
                    store.unlink(&path).at("remove", &path)?;
                }
                _ if is_old => {
                    store.unlink(&path).at("remove", &path)?;
                    done.files += 1;
                    done.bytes += stat.len;
                }
                Err(Errno::NOENT) => store.rename(&path, &plain).at("rename", &path)?,
                _ => done.left.push((name, format!("an earlier one is in {}", aside.display()))),
            }
        }
        for name in names_in(store, &copies)? {
            let path = copies.join(name);
            store.unlink(&path).at("remove", &path)?;
        }
        remove_dir(store, &aside)
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
        if store::has_attributes(file.as_ref()).at("list the attributes of", &path)? {
            return Ok(Taken::Stays("it has an access list or extended attributes"));
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
        pack.refresh()?;
        for incoming in &batch {
            // What an earlier run has copied may be old.
            while let Some(stat) = stat_in(pack, incoming.name.as_bytes())? {
                pack.unlink_if(incoming.name.as_bytes(), &stat)?;
            }
            copy_in(pack, incoming)?;
        }
        pack.sync()?;
        match store.mkdir(aside, 0o700) {
            Err(Errno::EXIST) => {}
            other => other.at("make the directory", aside)?,
        }
        for Incoming { name, file, stat, bytes } in batch {
            let (path, moved) = (dir.join(&name), aside.join(&name));
            // Out of the way of who would open it now; whoever has opened it is found.
            match store.rename(&path, &moved) {
                // A program without PLFS has removed it.
                Err(Errno::NOENT) => {
                    take_out(pack, name.as_bytes())?;
                    continue;
                }
                other => other.at("rename", &path)?,
            }
            let now = store.stat(&moved, Links::Stay).at("stat", &moved)?;
            let is_same = (now.dev, now.ino, now.nlink) == (stat.dev, stat.ino, 1)
                && (now.mode, now.uid, now.gid, now.mtime)
                    == (stat.mode, stat.uid, stat.gid, stat.mtime)
                && whole(file.as_ref(), &moved)? == bytes
                && !store::has_attributes(file.as_ref()).at("list the attributes of", &moved)?
                && !self.is_in_use(file.as_ref(), &stat, &moved);
            if is_same {
                store.unlink(&moved).at("remove", &moved)?;
                done.files += 1;
                done.bytes += stat.len;
                continue;
            }
            // The plain one is the newer, and comes first.
            let why = match store.link(&moved, &path) {
                Ok(()) => {
                    take_out(pack, name.as_bytes())?;
                    store.unlink(&moved).at("remove", &moved)?;
                    "it was changed or opened meanwhile".to_owned()
                }
                Err(Errno::EXIST) => format!("an earlier one is in {}", aside.display()),
                Err(errno) => return Err(errno).at("rename", &moved),
            };
            done.left.push((name, why));
        }
        // Before anybody who was told that the file in the pack is durable loses the ordinary one.
        store.sync_dir(dir).at("sync", dir)
    }

    /// Moves the files of a directory's pack out, to ordinary files with the same names, owners,
    /// modes and times, and removes the pack. The directory is none for small files any more.
    ///
    /// Other processes may use the files meanwhile, as for [`Plfs::pack_dir`], but those that write
    /// files of the pack without end: then it is EBUSY, and all is as it was; and who has one open
    /// and writes it after it has moved is told. EEXIST, and nothing has changed, if the pack hides
    /// an ordinary file.
    pub fn unpack_dir(
        &self,
        dir: &Path,
        settles: Duration,
        mut progress: impl FnMut(&Repacked) -> ControlFlow<()>,
    ) -> Result<Repacked> {
        let (mut done, aside) = (Repacked::default(), dir.join(pack::OUT));
        let store = self.process.store.as_ref();
        let _alone = self.layout_turn(dir)?;
        self.leave_packs()?;
        self.take_back(dir)?;
        let options = PackOptions { batch: true, ..PackOptions::default() };
        let found = Pack::find(&self.process.store, &self.process.config, dir, options)?;
        if found.is_some() {
            let pack = self.own_view(dir)?;
            self.begin_to_change(&pack, dir)?;
        }
        // First, so that no program makes a new file in the pack meanwhile.
        let before = self.own_layout(dir)?;
        if self.workload_of(&dir.join("file"))? == Workload::Small {
            let mut layout = before.clone().unwrap_or_default();
            layout.workload = Some(Workload::Auto);
            self.set_directory_layout(dir, Some(&layout))?;
        }
        let Some(pack) = found else {
            self.take_up(None, dir, &mut done)?;
            remove_dir(store, &aside)?;
            return Ok(done);
        };
        thread::sleep(settles);
        match store.mkdir(&aside, 0o700) {
            Err(Errno::EXIST) => {}
            other => other.at("make the directory", &aside)?,
        }
        if !self.nobody_writes(&pack, settles)? {
            remove_dir(store, &aside)?;
            self.end_change(&pack, dir)?;
            self.set_directory_layout(dir, before.as_ref())?;
            pack.close()?;
            return Err(Errno::BUSY).at("unpack (a process writes files of its pack)", dir);
        }
        pack.take_part()?;
        {
            let _turn = self.turn(dir)?;
            self.take_up(Some(&pack), dir, &mut Repacked::default())?;
        }
        let mut after = Vec::new();
        loop {
            let turn = self.turn(dir)?;
            pack.refresh()?;
            let names = pack.list(&after, BATCH_FILES)?;
            let Some((last, _)) = names.last() else { break };
            after = last.to_vec();
            self.bring_out(&pack, dir, &aside, names, &mut done)?;
            drop(turn);
            if progress(&done).is_break() {
                break;
            }
        }
        pack.refresh()?;
        let is_empty = pack.list(b"", 1)?.is_empty();
        match is_empty {
            true => {
                pack.close()?;
                // Who has opened a file to read it a moment ago does so.
                thread::sleep(settles);
                let view = self.own_view(dir)?;
                self.nobody_writes(&view, settles)?;
                self.remove_pack(dir)?;
                remove_dir(store, &aside)?;
            }
            false => {
                remove_dir(store, &aside)?;
                self.end_change(&pack, dir)?;
                pack.close()?;
            }
        }
        Ok(done)
    }

    /// Whether nobody writes files of the pack, after a while at the latest.
    fn nobody_writes(&self, pack: &Pack, settles: Duration) -> Result<bool> {
        let end = Instant::now() + settles * LEAVING;
        loop {
            self.leave_packs()?;
            match pack.is_written()? {
                true if Instant::now() >= end => return Ok(false),
                true => thread::sleep(settles / 50),
                false => return Ok(true),
            }
        }
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
            let (path, tmp) = (path_in(dir, &name), path_in(aside, &name));
            // An ordinary one is newer. Its name may be that of a run that was killed a moment ago.
            if store.stat(&path, Links::Stay).is_ok() {
                out.push((name, stat, None));
                continue;
            }
            copy_out(store, pack, &name, &stat, &tmp)?;
            match store.link(&tmp, &path) {
                Ok(()) => out.push((name, stat, Some(tmp))),
                Err(Errno::EXIST) => {
                    store.unlink(&tmp).at("remove", &tmp)?;
                    out.push((name, stat, None));
                }
                Err(errno) => return Err(errno).at("create", &path),
            }
        }
        store.sync_dir(dir).at("sync", dir)?;
        for (name, stat, tmp) in out {
            let is_out = pack.unlink_if(&name, &stat)?;
            let Some(tmp) = tmp else { continue };
            if is_out {
                done.files += 1;
                done.bytes += stat.size;
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

/// Durable on return.
fn set_mode(store: &dyn Store, path: &Path, mode: u32) -> Result<()> {
    store.chmod(path, mode).at("set the mode of", path)?;
    store.open(path, Open::READ).at("open", path)?.sync_all().at("sync", path)
}

/// Removes a directory that may not be there, or may have something.
fn remove_dir(store: &dyn Store, dir: &Path) -> Result<()> {
    match store.rmdir(dir) {
        Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST) => Ok(()),
        Err(errno) => Err(errno).at("remove the directory", dir),
    }
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
