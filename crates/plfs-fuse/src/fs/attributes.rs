//! Attributes: read and set. Those of a file with a container are its inode's, but for size, blocks
//! and links.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, FileType, INodeNo};
use plfs_core::File;
use plfs_core::store::{Errno, Links, Time, stat_of};
use rustix::fs::{AtFlags, CWD, Mode, Stat, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};

use super::{
    BLOCK_BYTES, Changes, Door, Found, Result, SET_GROUP_ID, SET_USER_ID, When, errno_of, magic,
    may_be_name, type_of,
};
use crate::creds::{Caller, as_caller, as_caller_with_groups};
use crate::inode::{Inode, lock};

impl Door {
    /// Attributes of a file with this stat; asks the engine if it can be a logical one.
    pub(super) fn attr(
        &self,
        inode: &Inode,
        stat: &Stat,
        path: impl FnOnce() -> Result<PathBuf>,
    ) -> Result<FileAttr> {
        inode.mode.store(stat.st_mode & 0o7777, Ordering::Relaxed);
        if inode.dir.is_some() {
            return Ok(attr_of_dir(inode, stat));
        }
        if !may_be_name(stat) {
            return Ok(attr_of(inode, stat));
        }
        let file = lock(&inode.open).file.clone();
        if let Some(file) = file {
            return Ok(logical_attr(inode, &file.stat().map_err(errno_of)?));
        }
        let stat_of_name = stat_of(stat);
        let found = match self.plfs.resolve_known(&stat_of_name) {
            Some(found) => found,
            None => self.plfs.resolve(&path()?, stat_of_name),
        };
        match found {
            Ok(found) if found.totals.is_some() => Ok(logical_attr(inode, &found.stat)),
            Ok(_) => Ok(attr_of(inode, stat)),
            Err(error) if error.is_of_the_moment() => Err(errno_of(error)),
            Err(error) => {
                // A name whose container is gone or damaged is listed and can be removed; opening
                // it gives the error.
                errno_of(error);
                Ok(attr_of(inode, stat))
            }
        }
    }

    /// Attributes of a file.
    pub fn getattr(&self, id: u64) -> Result<FileAttr> {
        let inode = self.inode(id)?;
        if let Some(dir) = &inode.dir {
            let stat = rustix::fs::fstat(dir)?;
            inode.mode.store(stat.st_mode & 0o7777, Ordering::Relaxed);
            return Ok(attr_of_dir(&inode, &stat));
        }
        let (file, fd) = {
            let open = lock(&inode.open);
            (open.file.clone(), open.path_fd.clone())
        };
        if let Some(file) = file {
            let stat = file.stat().map_err(errno_of)?;
            inode.mode.store(stat.mode, Ordering::Relaxed);
            return Ok(logical_attr(&inode, &stat));
        }
        if let Some(fd) = fd {
            return self.attr(&inode, &rustix::fs::fstat(&*fd)?, || Ok(magic(&*fd)));
        }
        if inode.is_packed() {
            return self.attr_in_pack(&inode);
        }
        let (name, stat) = self.name_of(&inode)?.ok_or(Errno::STALE)?;
        self.attr(&inode, &stat, || self.path_of(&name.parent, &name.name))
    }

    /// Changes attributes.
    pub fn setattr(&self, caller: Caller, id: u64, changes: Changes) -> Result<FileAttr> {
        let inode = self.inode(id)?;
        if let Some(size) = changes.size {
            self.set_size(caller, &inode, size)?;
        }
        if changes.mode.is_some()
            || changes.uid.is_some()
            || changes.gid.is_some()
            || changes.atime.is_some()
            || changes.mtime.is_some()
        {
            self.set_meta(caller, &inode, changes)?;
        }
        self.getattr(id)
    }

    fn set_size(&self, caller: Caller, inode: &Arc<Inode>, size: u64) -> Result<()> {
        if inode.dir.is_some() {
            return Err(Errno::ISDIR);
        }
        let open = lock(&inode.open);
        let file = match &open.file {
            Some(file) if file.access().write => file.clone(),
            _ if inode.is_packed() => Arc::new(self.open_in_pack(inode)?),
            _ => Arc::new(self.open_found(caller, &self.find(inode, &open)?, true)?),
        };
        file.set_len(size).map_err(errno_of)?;
        if caller.uid != 0 {
            self.strip(inode, &file);
        }
        drop(open);
        self.moves_out_if_large(inode, &file, size);
        if let Some(file) = Arc::into_inner(file) {
            file.close().map_err(errno_of)?;
        }
        Ok(())
    }

    fn set_meta(&self, caller: Caller, inode: &Inode, changes: Changes) -> Result<()> {
        if inode.is_packed() {
            return self.set_meta_in_pack(inode, changes);
        }
        let open = lock(&inode.open);
        let found = match &inode.dir {
            Some(dir) => {
                let fd = Arc::new(rustix::io::fcntl_dupfd_cloexec(dir, 0)?);
                Found { stat: rustix::fs::fstat(&*fd)?, fd, name: None }
            }
            None => match (&open.file, self.find(inode, &open)) {
                (_, Ok(found)) => found,
                // Without a name the container has all.
                (Some(file), Err(_)) => return self.set_meta_nameless(file, changes),
                (None, Err(errno)) => return Err(errno),
            },
        };
        let by_fd = magic(&*found.fd);
        let file = open.file.clone().filter(|file| !file.is_plain());
        let engine = match found.name {
            Some(_) if may_be_name(&found.stat) => Some(self.engine_path(&found)?),
            _ => None,
        };
        if changes.uid.is_some() || changes.gid.is_some() {
            match &engine {
                Some(path) => self.as_caller_in_engine(caller, true, || {
                    self.plfs.chown(path, changes.uid, changes.gid, Links::Stay)
                })?,
                None => {
                    let (uid, gid) = (
                        changes.uid.map(rustix::fs::Uid::from_raw),
                        changes.gid.map(rustix::fs::Gid::from_raw),
                    );
                    as_caller(caller, || {
                        rustix::fs::chownat(CWD, &by_fd, uid, gid, AtFlags::empty())
                    })?;
                }
            }
        }
        if let Some(mode) = changes.mode {
            let mode = mode & 0o7777;
            // Without the caller's groups the backend would take this bit away, silently.
            let groups = mode & SET_GROUP_ID != 0;
            match &engine {
                Some(path) => {
                    self.as_caller_in_engine(caller, groups, || self.plfs.chmod(path, mode))?
                }
                None if groups => as_caller_with_groups(caller, || {
                    rustix::fs::chmod(&by_fd, Mode::from_raw_mode(mode))
                })?,
                None => as_caller(caller, || rustix::fs::chmod(&by_fd, Mode::from_raw_mode(mode)))?,
            }
            inode.mode.store(mode, Ordering::Relaxed);
        }
        if inode.dir.is_some()
            && (changes.uid.is_some() || changes.gid.is_some() || changes.mode.is_some())
        {
            self.shadows_follow(caller, inode)?;
        }
        if changes.atime.is_some() || changes.mtime.is_some() {
            match &file {
                Some(file) => set_file_times(file, changes)?,
                None => {
                    let times = Timestamps {
                        last_access: timespec(changes.atime),
                        last_modification: timespec(changes.mtime),
                    };
                    as_caller(caller, || {
                        rustix::fs::utimensat(CWD, &by_fd, &times, AtFlags::empty())
                    })?;
                }
            }
        }
        Ok(())
    }

    fn set_meta_nameless(&self, file: &File, changes: Changes) -> Result<()> {
        if changes.uid.is_some() || changes.gid.is_some() {
            file.chown(changes.uid, changes.gid).map_err(errno_of)?;
        }
        if let Some(mode) = changes.mode {
            file.chmod(mode & 0o7777).map_err(errno_of)?;
        }
        set_file_times(file, changes)
    }

    /// Removes set-user-ID and set-group-ID from a file that another user than root wrote to.
    pub(super) fn strip(&self, inode: &Inode, file: &File) {
        let mode = inode.mode.load(Ordering::Relaxed);
        let group = if mode & 0o010 != 0 { SET_GROUP_ID } else { 0 };
        if mode & (SET_USER_ID | group) != 0 {
            let mode = mode & !(SET_USER_ID | group);
            match file.chmod(mode) {
                Ok(()) => inode.mode.store(mode, Ordering::Relaxed),
                Err(error) => drop(errno_of(error)),
            }
        }
    }

    /// After the access rules of a file were changed by an attribute: its container follows.
    pub(crate) fn follow_mode(&self, id: u64) -> Result<()> {
        let inode = self.inode(id)?;
        if inode.kind != FileType::RegularFile {
            return Ok(());
        }
        let found = self.find(&inode, &lock(&inode.open))?;
        let stat = &found.stat;
        inode.mode.store(stat.st_mode & 0o7777, Ordering::Relaxed);
        match may_be_name(stat) && found.name.is_some() {
            true => {
                self.plfs.chmod(&self.engine_path(&found)?, stat.st_mode & 0o7777).map_err(errno_of)
            }
            false => Ok(()),
        }
    }
}

fn system_time(sec: i64, nsec: u32) -> SystemTime {
    let whole = Duration::from_secs(sec.unsigned_abs());
    let base = if sec < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) };
    base.and_then(|base| base.checked_add(Duration::from_nanos(nsec.into()))).unwrap_or(UNIX_EPOCH)
}

/// Of a directory. The links of a flat one do not tell how many directories it has, and programs
/// know that one link says nothing.
fn attr_of_dir(inode: &Inode, stat: &Stat) -> FileAttr {
    let attr = attr_of(inode, stat);
    let is_flat = inode.flat.is_some() || matches!(&*lock(&inode.flatness), Some((_, Some(_))));
    let nlink = if is_flat && attr.nlink > 0 { 1 } else { attr.nlink };
    FileAttr { nlink, ..attr }
}

#[allow(clippy::unnecessary_cast)]
pub(super) fn attr_of(inode: &Inode, stat: &Stat) -> FileAttr {
    let kind = type_of(stat.st_mode);
    inode.told.store(stat.st_size as u64, Ordering::Relaxed);
    FileAttr {
        ino: INodeNo(inode.id),
        size: stat.st_size as u64,
        blocks: stat.st_blocks as u64,
        atime: system_time(stat.st_atime as i64, stat.st_atime_nsec as u32),
        mtime: system_time(stat.st_mtime as i64, stat.st_mtime_nsec as u32),
        ctime: system_time(stat.st_ctime as i64, stat.st_ctime_nsec as u32),
        crtime: UNIX_EPOCH,
        kind,
        perm: (stat.st_mode & 0o7777) as u16,
        nlink: stat.st_nlink as u32,
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: stat.st_rdev as u32,
        // Also of plain files, which may become others while they are open: a call is a request.
        blksize: match kind {
            FileType::RegularFile => BLOCK_BYTES,
            _ => stat.st_blksize as u32,
        },
        flags: 0,
    }
}

pub(super) fn logical_attr(inode: &Inode, stat: &plfs_core::store::Stat) -> FileAttr {
    inode.told.store(stat.len, Ordering::Relaxed);
    FileAttr {
        ino: INodeNo(inode.id),
        size: stat.len,
        blocks: stat.blocks,
        atime: system_time(stat.atime.sec, stat.atime.nsec),
        mtime: system_time(stat.mtime.sec, stat.mtime.nsec),
        ctime: system_time(stat.ctime.sec, stat.ctime.nsec),
        crtime: UNIX_EPOCH,
        kind: FileType::RegularFile,
        perm: (stat.mode & 0o7777) as u16,
        nlink: stat.nlink as u32,
        uid: stat.uid,
        gid: stat.gid,
        rdev: 0,
        blksize: BLOCK_BYTES,
        flags: 0,
    }
}

fn timespec(when: Option<When>) -> Timespec {
    match when {
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        Some(When::Now) => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        Some(When::At(time)) => Timespec { tv_sec: time.sec, tv_nsec: time.nsec.into() },
    }
}

pub(super) fn set_file_times(file: &File, changes: Changes) -> Result<()> {
    if changes.atime.is_none() && changes.mtime.is_none() {
        return Ok(());
    }
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    let time = |when: Option<When>| {
        when.map(|when| match when {
            When::Now => Time { sec: now.tv_sec, nsec: now.tv_nsec as u32 },
            When::At(time) => time,
        })
    };
    file.set_times(time(changes.atime), time(changes.mtime)).map_err(errno_of)
}
