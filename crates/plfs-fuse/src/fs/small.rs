//! Files of packs: directories with the workload small. Their inodes are known by the pack and the
//! file's id; all that is done to an open one goes through the engine's handle, as for other files.
//!
//! Owners and modes are the pack's, the kernel checks them. All programs of a mount share the
//! daemon's view of a pack, so each sees at once what others do.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};

use fuser::{FileAttr, FileType};
use plfs_core::pack::{FileId, OUTGROWN_BYTES, PackStat};
use plfs_core::store::Errno;
use plfs_core::{File, OpenOptions, OpenPack};
use rustix::fs::{AtFlags, RenameFlags};

use super::attributes::{logical_attr, set_file_times};
use super::names::{NewFile, new_file};
use super::{
    Changes, Door, Entry, Listing, READ_WRITE, Result, SET_GROUP_ID, SET_USER_ID, dir_of, errno_of,
};
use crate::creds::{Acting, Caller};
use crate::inode::{Inode, key_in_pack, lock};

/// How long a directory is believed to have no pack, as the engine does.
const BELIEVED: Duration = Duration::from_secs(1);
/// Names that are taken from a pack at once.
const NAMES: usize = 4096;

/// Numbers of packs, for the keys of inodes; and who looks up files while one moves out.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    known: Mutex<HashMap<(u64, u64), u32>>,
    moving: RwLock<()>,
}

impl Numbers {
    pub(super) fn key(&self, pack: (u64, u64), id: FileId) -> (u64, u64) {
        let mut known = lock(&self.known);
        let next = known.len() as u32;
        key_in_pack(*known.entry(pack).or_insert(next), id.stamp, id.set)
    }
}

fn is_missing(error: &plfs_core::Error) -> bool {
    matches!(error.errno(), Errno::NOENT | Errno::NAMETOOLONG | Errno::INVAL)
}

impl Door {
    pub(super) fn dir_path(&self, dir: &Inode) -> Result<PathBuf> {
        let mut path = self.path_below(dir, OsStr::new("name"))?;
        path.pop();
        Ok(path)
    }

    /// The pack of a directory, as it was a moment ago: what changes something in it asks again.
    /// Costs nothing for one that had none.
    pub(super) fn pack_of(&self, dir: &Inode) -> Result<Option<Arc<OpenPack>>> {
        if lock(&dir.packless).is_some_and(|until| Instant::now() < until) {
            return Ok(None);
        }
        if self.flat(dir)?.is_some() {
            return Ok(None);
        }
        let _acting = Acting::as_daemon();
        let path = self.dir_path(dir)?;
        if path.starts_with(self.root.path.join("..")) {
            // By the number of a descriptor, which may be another directory's in a moment.
            self.plfs.forget_packs_seen();
        }
        let found = self.plfs.pack_as_seen(&path).map_err(errno_of)?;
        *lock(&dir.packless) = found.is_none().then(|| Instant::now() + BELIEVED);
        Ok(found)
    }

    /// Makes the files of a directory's pack durable, if it has one.
    pub(super) fn sync_pack(&self, dir: &Inode) -> Result<()> {
        if self.pack_of(dir)?.is_none() {
            return Ok(());
        }
        let _acting = Acting::as_daemon();
        match self.plfs.pack(&self.dir_path(dir)?).map_err(errno_of)? {
            Some(pack) => pack.sync().map_err(errno_of),
            None => Ok(()),
        }
    }

    /// What a name is in the pack of its directory.
    fn stat_in_pack(&self, dir: &Inode, name: &OsStr) -> Result<Option<(Arc<OpenPack>, PackStat)>> {
        let Some(pack) = self.pack_of(dir)? else { return Ok(None) };
        let path = self.path_of(dir, name)?;
        let _acting = Acting::as_daemon();
        match self.plfs.shown_in(&pack, &path) {
            Ok(stat) => Ok(stat.map(|stat| (pack, stat))),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(errno_of(error)),
        }
    }

    /// Whether files move into the pack of a directory, or out of it.
    pub(super) fn is_changing(&self, dir: &Inode) -> Result<bool> {
        Ok(self.pack_of(dir)?.is_some_and(|pack| pack.is_changing()))
    }

    pub(super) fn is_in_pack(&self, dir: &Inode, name: &OsStr) -> Result<bool> {
        Ok(self.stat_in_pack(dir, name)?.is_some())
    }

    /// EEXIST if a pack has the name.
    pub(super) fn must_be_free(&self, dir: &Inode, name: &OsStr) -> Result<()> {
        if self.is_in_pack(dir, name)? { Err(Errno::EXIST) } else { Ok(()) }
    }

    pub(super) fn look_up_in_pack(
        &self,
        parent: &Arc<Inode>,
        name: &OsStr,
    ) -> Result<Option<FileAttr>> {
        let _still = self.packs.moving.read();
        let Some((pack, stat)) = self.stat_in_pack(parent, name)? else { return Ok(None) };
        let key = self.packs.key(pack.container().identity, stat.id);
        let inode = self.inodes.look_up_in_pack(key, stat.ino(pack.container().identity));
        inode.add_name(parent, name);
        Ok(Some(Self::attr_of_packed(&inode, &stat)))
    }

    fn attr_of_packed(inode: &Inode, stat: &PackStat) -> FileAttr {
        inode.mode.store(stat.mode, Ordering::Relaxed);
        logical_attr(inode, &stat.stat((0, 0)))
    }

    /// A name of the file, with its directory's pack and what that says.
    fn name_in_pack(&self, inode: &Inode) -> Result<(PathBuf, PackStat)> {
        for name in inode.names() {
            if let Some((pack, stat)) = self.stat_in_pack(&name.parent, &name.name)?
                && self.packs.key(pack.container().identity, stat.id) == inode.key()
            {
                return Ok((self.path_of(&name.parent, &name.name)?, stat));
            }
            inode.remove_name(name.parent.id, &name.name);
        }
        Err(Errno::STALE)
    }

    /// Attributes of a file that is not open.
    pub(super) fn attr_in_pack(&self, inode: &Inode) -> Result<FileAttr> {
        let (_, stat) = self.name_in_pack(inode)?;
        Ok(Self::attr_of_packed(inode, &stat))
    }

    /// The engine's handle.
    pub(super) fn open_in_pack(&self, inode: &Inode) -> Result<File> {
        let (path, _) = self.name_in_pack(inode)?;
        let options = OpenOptions { access: READ_WRITE, ..OpenOptions::read() };
        let _acting = Acting::as_daemon();
        let file = self.plfs.open_packed(&path, options).map_err(errno_of)?;
        let file = file.ok_or(Errno::STALE)?;
        match file.packed_id() {
            Some((pack, id)) if self.packs.key(pack, id) == inode.key() => Ok(file),
            _ => Err(Errno::STALE),
        }
    }

    /// Creates a file in the pack of its directory, with what that says of the group and the mode.
    /// Access lists are not kept, but their part in the mode is.
    pub(super) fn make_in_pack(
        &self,
        caller: Caller,
        parent: &Inode,
        path: &Path,
        options: OpenOptions,
        umask: u32,
    ) -> Result<File> {
        let NewFile { gid, mode, .. } = new_file(caller, parent, options.mode, umask)?;
        let _acting = Acting::as_daemon();
        let options = OpenOptions { mode, ..options };
        let made = self.plfs.create_packed(path, options, (caller.uid, gid)).map_err(errno_of);
        *lock(&parent.packless) = None;
        made
    }

    /// Changes attributes, whose rights the kernel has checked.
    pub(super) fn set_meta_in_pack(&self, inode: &Inode, changes: Changes) -> Result<()> {
        let open = lock(&inode.open);
        let file = match &open.file {
            Some(file) => file.clone(),
            None => Arc::new(self.open_in_pack(inode)?),
        };
        if changes.uid.is_some() || changes.gid.is_some() {
            file.chown(changes.uid, changes.gid).map_err(errno_of)?;
            let mode = file.stat().map_err(errno_of)?.mode;
            let group = if mode & 0o010 != 0 { SET_GROUP_ID } else { 0 };
            if changes.mode.is_none() && mode & (SET_USER_ID | group) != 0 {
                file.chmod(mode & !(SET_USER_ID | group)).map_err(errno_of)?;
            }
        }
        if let Some(mode) = changes.mode {
            file.chmod(mode & 0o7777).map_err(errno_of)?;
            inode.mode.store(mode & 0o7777, Ordering::Relaxed);
        }
        set_file_times(&file, changes)
    }

    /// Removes a name, if a pack has it.
    pub(super) fn unlink_in_pack(&self, parent: &Inode, name: &OsStr) -> Result<bool> {
        let Some((pack, stat)) = self.stat_in_pack(parent, name)? else {
            if !self.is_changing(parent)? {
                return Ok(false);
            }
            let stat = rustix::fs::statat(dir_of(parent)?, name, AtFlags::SYMLINK_NOFOLLOW)?;
            let path = self.path_of(parent, name)?;
            let _acting = Acting::as_daemon();
            self.plfs.unlink(&path).map_err(errno_of)?;
            self.name_is_gone(parent, name, &stat, 1);
            return Ok(true);
        };
        let _acting = Acting::as_daemon();
        self.plfs.unlink(&self.path_of(parent, name)?).map_err(errno_of)?;
        self.is_gone_from_pack(&pack, &stat, parent, name);
        Ok(true)
    }

    fn is_gone_from_pack(&self, pack: &OpenPack, stat: &PackStat, parent: &Inode, name: &OsStr) {
        let key = self.packs.key(pack.container().identity, stat.id);
        if let Some(inode) = self.inodes.find(key) {
            inode.remove_name(parent.id, name);
        }
    }

    /// Renames where a pack has one of the names: in one directory, or an ordinary file over one of
    /// a pack. EXDEV elsewhere: programs copy then.
    pub(super) fn rename_in_pack(
        &self,
        caller: Caller,
        (from_dir, name): (&Arc<Inode>, &OsStr),
        (to_dir, new_name): (&Arc<Inode>, &OsStr),
        flags: RenameFlags,
    ) -> Result<()> {
        let source = self.stat_in_pack(from_dir, name)?;
        let target = self.stat_in_pack(to_dir, new_name)?;
        let ordinary = |dir: &Inode, name| {
            Ok::<_, Errno>(rustix::fs::statat(dir_of(dir)?, name, AtFlags::SYMLINK_NOFOLLOW).ok())
        };
        if source.is_none() && ordinary(from_dir, name)?.is_none() {
            return Err(Errno::NOENT);
        }
        let replaced = ordinary(to_dir, new_name)?;
        if flags.contains(RenameFlags::NOREPLACE) && (target.is_some() || replaced.is_some()) {
            return Err(Errno::EXIST);
        }
        if flags.intersects(RenameFlags::EXCHANGE | RenameFlags::WHITEOUT) {
            return Err(Errno::INVAL);
        }
        let moved = ordinary(from_dir, name)?;
        let (from, to) = (self.path_of(from_dir, name)?, self.path_of(to_dir, new_name)?);
        self.as_caller_in_engine(caller, false, || self.plfs.rename(&from, &to))?;
        if from == to {
            return Ok(());
        }
        if let Some((pack, stat)) = &target {
            self.is_gone_from_pack(pack, stat, to_dir, new_name);
        }
        if let Some(replaced) = replaced.filter(|_| target.is_none()) {
            self.name_is_gone(to_dir, new_name, &replaced, 1);
        }
        let key = match (&source, moved) {
            (Some((pack, stat)), _) => self.packs.key(pack.container().identity, stat.id),
            (None, Some(stat)) => super::key_of(&stat),
            (None, None) => return Ok(()),
        };
        if let Some(inode) = self.inodes.find(key) {
            inode.remove_name(from_dir.id, name);
            inode.add_name(to_dir, new_name);
        }
        Ok(())
    }

    /// Removes the pack of a directory that is to be removed, if it is empty.
    pub(super) fn remove_pack(&self, dir: &Path) -> Result<()> {
        let _acting = Acting::as_daemon();
        self.plfs.remove_pack(dir).map_err(errno_of)
    }

    /// Adds what the pack of a directory has to its names.
    pub(super) fn list_pack(&self, dir: &Inode, listing: &mut Listing) -> Result<()> {
        let Some(pack) = self.pack_of(dir)? else { return Ok(()) };
        let mut both = Vec::new();
        for (_, entry) in listing.entries(0) {
            if !pack.is_changing() && pack.stat(entry.name.as_bytes()).is_ok() {
                both.push(entry.name.to_owned());
            }
        }
        if !both.is_empty() {
            let mut kept = Listing::default();
            for (_, entry) in listing.entries(0) {
                if !both.iter().any(|name| name == entry.name) {
                    kept.push(entry);
                }
            }
            *listing = kept;
        }
        let ordinary: HashSet<Vec<u8>> = match pack.is_changing() {
            true => listing.entries(0).map(|(_, entry)| entry.name.as_bytes().to_vec()).collect(),
            false => HashSet::new(),
        };
        let mut after = Vec::new();
        loop {
            let names = pack.list(&after, NAMES).map_err(errno_of)?;
            for (name, stat) in names.iter().filter(|(name, _)| !ordinary.contains(&**name)) {
                let name = OsStr::from_bytes(name);
                let ino = stat.ino(pack.container().identity);
                listing.push(Entry { name, ino, kind: FileType::RegularFile });
            }
            match names.last() {
                Some((last, _)) if names.len() == NAMES => after = last.to_vec(),
                _ => return Ok(()),
            }
        }
    }

    /// Moves a file of a pack out that has grown too large for it. Its inode stays.
    pub(super) fn moves_out_if_large(&self, inode: &Arc<Inode>, file: &File, end: u64) {
        if end <= OUTGROWN_BYTES || !inode.is_packed() {
            return;
        }
        let _alone = self.packs.moving.write();
        let _acting = Acting::as_daemon();
        let moved = self.plfs.move_out(file).and_then(|is_out| match is_out {
            true => file.stat().map(Some),
            false => Ok(None),
        });
        match moved {
            Ok(Some(stat)) => self.inodes.moves_out(inode, (stat.dev, stat.ino)),
            Ok(None) => {}
            // It stays where it is, whole.
            Err(error) => drop(errno_of(error)),
        }
    }
}
