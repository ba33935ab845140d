//! The least that shows a directory through FUSE, with the same library, threads and kind of
//! caching as a mount of PLFS: what bench/fuse.py compares with.
//!
//! `passthrough DIR MOUNTPOINT`. Names are remembered for ever, nothing is checked: good for
//! measuring alone.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, InitFlags, KernelConfig, LockOwner, MountOption, OpenFlags, RenameFlags,
    ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry,
    ReplyOpen, ReplyWrite, ReplyXattr, Request, SessionACL, TimeOrNow, WriteFlags,
};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_NOW, utimensat};

const TTL: Duration = Duration::from_secs(1);

/// Names in a directory, with number and kind.
type Names = Vec<(OsString, u64, FileType)>;

struct Passthrough {
    root: PathBuf,
    paths: RwLock<HashMap<u64, PathBuf>>,
    files: RwLock<HashMap<u64, Arc<File>>>,
    listings: RwLock<HashMap<u64, Arc<Names>>>,
    next: AtomicU64,
}

fn errno(error: std::io::Error) -> Errno {
    Errno::from_i32(error.raw_os_error().unwrap_or(5))
}

fn attr(root: bool, meta: &Metadata) -> FileAttr {
    let time = |sec: i64, nsec: i64| UNIX_EPOCH + Duration::new(sec as u64, nsec as u32);
    let kind = FileType::from_std(meta.file_type()).unwrap_or(FileType::RegularFile);
    FileAttr {
        ino: INodeNo(if root { 1 } else { meta.ino() }),
        size: meta.len(),
        blocks: meta.blocks(),
        atime: time(meta.atime(), meta.atime_nsec()),
        mtime: time(meta.mtime(), meta.mtime_nsec()),
        ctime: time(meta.ctime(), meta.ctime_nsec()),
        crtime: UNIX_EPOCH,
        kind,
        perm: (meta.mode() & 0o7777) as u16,
        nlink: meta.nlink() as u32,
        uid: meta.uid(),
        gid: meta.gid(),
        rdev: meta.rdev() as u32,
        blksize: meta.blksize() as u32,
        flags: 0,
    }
}

impl Passthrough {
    fn path(&self, ino: INodeNo) -> std::io::Result<PathBuf> {
        if ino.0 == 1 {
            return Ok(self.root.clone());
        }
        let known = self.paths.read().ok().and_then(|paths| paths.get(&ino.0).cloned());
        known.ok_or_else(|| std::io::Error::from_raw_os_error(libc::ESTALE))
    }

    fn look(&self, path: PathBuf) -> std::io::Result<FileAttr> {
        let attr = attr(false, &std::fs::symlink_metadata(&path)?);
        if let Ok(mut paths) = self.paths.write() {
            paths.insert(attr.ino.0, path);
        }
        Ok(attr)
    }

    fn add(&self, file: File) -> FileHandle {
        let fh = self.next.fetch_add(1, Ordering::Relaxed);
        if let Ok(mut files) = self.files.write() {
            files.insert(fh, Arc::new(file));
        }
        FileHandle(fh)
    }

    fn names(&self, ino: INodeNo) -> Arc<Names> {
        self.listings
            .read()
            .ok()
            .and_then(|listings| listings.get(&ino.0).cloned())
            .unwrap_or_default()
    }

    fn file(&self, fh: FileHandle) -> std::io::Result<Arc<File>> {
        let known = self.files.read().ok().and_then(|files| files.get(&fh.0).cloned());
        known.ok_or_else(|| std::io::Error::from_raw_os_error(libc::EBADF))
    }
}

fn caching(flags: i32) -> FopenFlags {
    match flags & libc::O_ACCMODE {
        libc::O_RDONLY => FopenFlags::FOPEN_KEEP_CACHE,
        _ => FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES,
    }
}

impl Filesystem for Passthrough {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        let _ = config.set_max_write(1 << 20);
        let _ = config.set_max_background(64);
        for wanted in [
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
        ] {
            let _ = config.add_capabilities(wanted);
        }
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.path(parent).and_then(|dir| self.look(dir.join(name))) {
            Ok(attr) => reply.entry(&TTL, &attr, Generation(0)),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.path(ino).and_then(std::fs::symlink_metadata) {
            Ok(meta) => reply.attr(&TTL, &attr(ino.0 == 1, &meta)),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let done = self.path(ino).and_then(|path| {
            if let Some(size) = size {
                OpenOptions::new().write(true).open(&path)?.set_len(size)?;
            }
            if mtime.is_some() {
                let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
                let times = Timestamps { last_access: now, last_modification: now };
                utimensat(CWD, &path, &times, AtFlags::SYMLINK_NOFOLLOW)?;
            }
            std::fs::symlink_metadata(path)
        });
        match done {
            Ok(meta) => reply.attr(&TTL, &attr(ino.0 == 1, &meta)),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn mkdir(&self, _: &Request, parent: INodeNo, name: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        let made = self.path(parent).and_then(|dir| {
            std::fs::create_dir(dir.join(name)).and_then(|()| self.look(dir.join(name)))
        });
        match made {
            Ok(attr) => reply.entry(&TTL, &attr, Generation(0)),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        match self.path(parent).and_then(|dir| std::fs::remove_file(dir.join(name))) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        match self.path(parent).and_then(|dir| std::fs::remove_dir(dir.join(name))) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(error)),
        }
    }

    /// Of a file: what is below a directory keeps the path that it had.
    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        _: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let renamed = || {
            let to = self.path(new_parent)?.join(new_name);
            std::fs::rename(self.path(parent)?.join(name), &to)?;
            self.look(to)
        };
        match renamed() {
            Ok(_) => reply.ok(),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn symlink(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let made = || {
            let path = self.path(parent)?.join(name);
            std::os::unix::fs::symlink(target, &path)?;
            self.look(path)
        };
        match made() {
            Ok(attr) => reply.entry(&TTL, &attr, Generation(0)),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        match self.path(ino).and_then(std::fs::read_link) {
            Ok(target) => reply.data(target.as_os_str().as_encoded_bytes()),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn open(&self, _: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let writes = flags.0 & libc::O_ACCMODE != libc::O_RDONLY;
        match self.path(ino).and_then(|path| OpenOptions::new().read(true).write(writes).open(path))
        {
            Ok(file) => reply.opened(self.add(file), caching(flags.0)),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let made = self.path(parent).and_then(|dir| {
            let path = dir.join(name);
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(mode)
                .open(&path)?;
            Ok((self.look(path)?, self.add(file)))
        });
        match made {
            Ok((attr, fh)) => reply.created(&TTL, &attr, Generation(0), fh, caching(flags)),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut bytes = vec![0; size as usize];
        match self.file(fh).and_then(|file| file.read_at(&mut bytes, offset)) {
            Ok(n) => reply.data(&bytes[..n]),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.file(fh).and_then(|file| file.write_at(data, offset)) {
            Ok(n) => reply.written(n as u32),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        fh: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        if let Ok(mut files) = self.files.write() {
            files.remove(&fh.0);
        }
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, fh: FileHandle, _: bool, reply: ReplyEmpty) {
        match self.file(fh).and_then(|file| file.sync_data()) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn getxattr(&self, _: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let mut value = Vec::with_capacity(64 << 10);
        let got = self.path(ino).and_then(|path| {
            Ok(rustix::fs::lgetxattr(path, name, rustix::buffer::spare_capacity(&mut value))?)
        });
        match got {
            Ok(_) if size == 0 => reply.size(value.len() as u32),
            Ok(_) if value.len() > size as usize => reply.error(Errno::ERANGE),
            Ok(_) => reply.data(&value),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn readdir(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        for (at, name) in self.names(ino).iter().enumerate().skip(offset as usize) {
            if reply.add(INodeNo(name.1), at as u64 + 1, name.2, &name.0) {
                break;
            }
        }
        reply.ok();
    }

    fn readdirplus(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let Ok(dir) = self.path(ino) else { return reply.error(Errno::ENOENT) };
        for (at, name) in self.names(ino).iter().enumerate().skip(offset as usize) {
            let Ok(attr) = self.look(dir.join(&name.0)) else { continue };
            if reply.add(attr.ino, at as u64 + 1, &name.0, &TTL, &attr, Generation(0)) {
                break;
            }
        }
        reply.ok();
    }

    fn opendir(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // Listed once for each open, as a file system that keeps its place would.
        let listed = self.path(ino).and_then(std::fs::read_dir).map(|dir| {
            let kind = |entry: &std::fs::DirEntry| {
                entry.file_type().ok().and_then(FileType::from_std).unwrap_or(FileType::RegularFile)
            };
            dir.flatten()
                .map(|entry| {
                    (entry.file_name(), std::os::unix::fs::DirEntryExt::ino(&entry), kind(&entry))
                })
                .collect::<Vec<_>>()
        });
        match listed {
            Ok(names) => {
                if let Ok(mut listings) = self.listings.write() {
                    listings.insert(ino.0, Arc::new(names));
                }
                reply.opened(FileHandle(0), FopenFlags::empty());
            }
            Err(error) => reply.error(errno(error)),
        }
    }
}

fn main() {
    let mut words = std::env::args_os().skip(1);
    let (Some(root), Some(mountpoint)) = (words.next(), words.next()) else {
        eprintln!("passthrough DIR MOUNTPOINT");
        std::process::exit(2);
    };
    let mut config = Config::default();
    config.mount_options =
        vec![MountOption::FSName("passthrough".into()), MountOption::DefaultPermissions];
    config.acl = SessionACL::All;
    config.n_threads = Some(4);
    config.clone_fd = true;
    let filesystem = Passthrough {
        root: root.into(),
        paths: RwLock::default(),
        files: RwLock::default(),
        listings: RwLock::default(),
        next: AtomicU64::new(1),
    };
    if let Err(error) = fuser::mount(filesystem, mountpoint, &config) {
        eprintln!("passthrough: {error}");
        std::process::exit(1);
    }
}
