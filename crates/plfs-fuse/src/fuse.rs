//! Requests of the kernel, translated to calls of the [`Door`] and back. The only decision made
//! here is how the kernel may cache.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, Filesystem, FopenFlags,
    Generation, INodeNo, InitFlags, IoctlFlags, KernelConfig, LockOwner, Notifier, OpenFlags,
    RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty,
    ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request,
    TimeOrNow, WriteFlags,
};
use plfs_core::store::Time;

use crate::creds::Caller;
use crate::fs::{Cache, Changes, Door, Opened, Passthrough, Result, When};
use crate::inode::lock;
use crate::xattr;

/// Largest write of one request, and read-ahead: what the kernel allows by default
/// (fs.fuse.max_pages_limit, 256 pages).
pub const MAX_WRITE_BYTES: u32 = 1 << 20;

/// The door, as fuser calls it.
pub struct Fuse {
    /// The file system.
    pub door: Arc<Door>,
    /// Status of the mount, for [`xattr`].
    pub status: Arc<crate::status::Status>,
    /// Whether the kernel may use plain files by itself.
    pub passthrough: AtomicBool,
    /// Access lists are checked by the kernel.
    pub acl: bool,
    /// Tells the kernel what it did not ask; there once the file system is mounted.
    pub notifier: Arc<OnceLock<Notifier>>,
}

fn caller(request: &Request) -> Caller {
    Caller { uid: request.uid(), gid: request.gid(), pid: request.pid() }
}

/// Does the work of a request. A bug in it is this request's error, not the end of a worker.
fn run<T>(what: &str, work: impl FnOnce() -> Result<T>) -> std::result::Result<T, Errno> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(errno)) => {
            log::trace!("{what}: {errno}");
            Err(Errno::from_i32(errno.raw_os_error()))
        }
        Err(_) => {
            log::error!("{what}: a bug: it panicked; the request gets EIO");
            Err(Errno::EIO)
        }
    }
}

/// Answers with the value, or with the error.
macro_rules! answer {
    ($reply:expr, $what:expr, $work:expr, $send:expr) => {
        match run($what, || $work) {
            Ok(value) => $send($reply, value),
            Err(errno) => $reply.error(errno),
        }
    };
}

fn when(time: TimeOrNow) -> When {
    match time {
        TimeOrNow::Now => When::Now,
        TimeOrNow::SpecificTime(at) => When::At(match at.duration_since(UNIX_EPOCH) {
            Ok(since) => Time { sec: since.as_secs() as i64, nsec: since.subsec_nanos() },
            // fuser takes the nanoseconds of times before 1970 away where the protocol adds them;
            // this puts it right.
            Err(before) => Time {
                sec: -(before.duration().as_secs() as i64),
                nsec: before.duration().subsec_nanos(),
            },
        }),
    }
}

thread_local! {
    /// Where a worker reads to, kept from request to request.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

const NO_GENERATION: Generation = Generation(0);

impl Fuse {
    fn flags(&self, opened: &Opened) -> FopenFlags {
        match opened.cache {
            Cache::Direct => FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES,
            Cache::Keep => FopenFlags::FOPEN_KEEP_CACHE,
            Cache::Fresh => FopenFlags::empty(),
        }
    }
}

impl Filesystem for Fuse {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        let _ = config.set_max_write(MAX_WRITE_BYTES);
        let _ = config
            .set_max_readahead(MAX_WRITE_BYTES)
            .map_err(|most| config.set_max_readahead(most));
        let _ = config.set_max_background(64);
        // Kernels of the last ten years have most of these; those that this one lacks are left out.
        for wanted in [
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
            InitFlags::FUSE_AUTO_INVAL_DATA,
            InitFlags::FUSE_CACHE_SYMLINKS,
            InitFlags::FUSE_DONT_MASK,
            InitFlags::FUSE_HANDLE_KILLPRIV_V2,
            InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
        ] {
            if config.add_capabilities(wanted).is_err() {
                log::info!("this kernel has no {wanted:?}");
            }
        }
        if self.acl && config.add_capabilities(InitFlags::FUSE_POSIX_ACL).is_err() {
            log::warn!("this kernel checks no access lists of FUSE file systems");
        }
        if self.passthrough.load(Ordering::Relaxed) {
            let can = config.add_capabilities(InitFlags::FUSE_PASSTHROUGH).is_ok()
                && config.set_max_stack_depth(1).is_ok();
            self.passthrough.store(can, Ordering::Relaxed);
        }
        log::debug!(
            "FUSE {}, passthrough {}",
            config.kernel_abi(),
            self.passthrough.load(Ordering::Relaxed)
        );
        Ok(())
    }

    fn destroy(&mut self) {
        self.door.end();
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        answer!(reply, "lookup", self.door.lookup(parent.0, name), |reply: ReplyEntry, attr| reply
            .entry(&self.door.ttl, &attr, NO_GENERATION));
    }

    fn forget(&self, _request: &Request, ino: INodeNo, nlookup: u64) {
        let _ = run("forget", || {
            self.door.forget(ino.0, nlookup);
            Ok(())
        });
    }

    fn getattr(&self, _request: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        answer!(reply, "getattr", self.door.getattr(ino.0), |reply: ReplyAttr, attr| reply
            .attr(&self.door.ttl, &attr));
    }

    fn setattr(
        &self,
        request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let changes =
            Changes { mode, uid, gid, size, atime: atime.map(when), mtime: mtime.map(when) };
        let done = || self.door.setattr(caller(request), ino.0, changes);
        answer!(reply, "setattr", done(), |reply: ReplyAttr, attr| reply
            .attr(&self.door.ttl, &attr));
    }

    fn readlink(&self, _request: &Request, ino: INodeNo, reply: ReplyData) {
        answer!(reply, "readlink", self.door.readlink(ino.0), |reply: ReplyData, text: Vec<u8>| {
            reply.data(&text)
        });
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let made = || self.door.mknod(caller(request), parent.0, name, mode, umask, rdev);
        answer!(reply, "mknod", made(), |reply: ReplyEntry, attr| reply.entry(
            &self.door.ttl,
            &attr,
            NO_GENERATION
        ));
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let made = || self.door.mkdir(caller(request), parent.0, name, mode, umask);
        answer!(reply, "mkdir", made(), |reply: ReplyEntry, attr| reply.entry(
            &self.door.ttl,
            &attr,
            NO_GENERATION
        ));
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer!(
            reply,
            "unlink",
            self.door.unlink(caller(request), parent.0, name),
            |reply: ReplyEmpty, ()| reply.ok()
        );
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer!(
            reply,
            "rmdir",
            self.door.rmdir(caller(request), parent.0, name),
            |reply: ReplyEmpty, ()| reply.ok()
        );
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let made = || self.door.symlink(caller(request), parent.0, name, target);
        answer!(reply, "symlink", made(), |reply: ReplyEntry, attr| reply.entry(
            &self.door.ttl,
            &attr,
            NO_GENERATION
        ));
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let done = || {
            self.door.rename(caller(request), parent.0, name, newparent.0, newname, flags.bits())
        };
        answer!(reply, "rename", done(), |reply: ReplyEmpty, ()| reply.ok());
    }

    fn link(
        &self,
        request: &Request,
        ino: INodeNo,
        newparent: INodeNo,
        newname: &OsStr,
        reply: ReplyEntry,
    ) {
        let made = || self.door.link(caller(request), ino.0, newparent.0, newname);
        answer!(reply, "link", made(), |reply: ReplyEntry, attr| reply.entry(
            &self.door.ttl,
            &attr,
            NO_GENERATION
        ));
    }

    fn open(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let opened = match run("open", || self.door.open(caller(request), ino.0, flags.0)) {
            Ok(opened) => opened,
            Err(errno) => return reply.error(errno),
        };
        if opened.resized
            && let Some(notifier) = self.notifier.get()
        {
            // The attributes, not the pages. If it knows none it has nothing to forget.
            let _ = notifier.inval_inode(ino, -1, 0);
        }
        let (fh, flags) = (FileHandle(opened.fh), self.flags(&opened));
        let backing = match &opened.kernel {
            Passthrough::GoesOn(backing) => Some(backing.clone()),
            Passthrough::Begins(inode, file) if self.passthrough.load(Ordering::Relaxed) => {
                let mut open = lock(&inode.open);
                match (file.fd(), open.handles) {
                    // Files that are open without it must stay so: the kernel refuses a mixture.
                    (Some(fd), 1) => match reply.open_backing(fd) {
                        Ok(backing) => Some(open.backing.insert(Arc::new(backing)).clone()),
                        Err(error) => {
                            log::info!("the kernel does not use plain files by itself: {error}");
                            self.passthrough.store(false, Ordering::Relaxed);
                            None
                        }
                    },
                    _ => None,
                }
            }
            _ => None,
        };
        match backing {
            Some(backing) => reply.opened_passthrough(fh, flags, &backing),
            None => reply.opened(fh, flags),
        }
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let made = || self.door.create(caller(request), parent.0, name, mode, umask, flags);
        answer!(
            reply,
            "create",
            made(),
            |reply: ReplyCreate, (attr, opened): (fuser::FileAttr, Opened)| {
                let (ttl, fh) = (&self.door.ttl, FileHandle(opened.fh));
                let flags = self.flags(&opened);
                match &opened.kernel {
                    // It was there, after all.
                    Passthrough::GoesOn(backing) => {
                        reply.created_passthrough(ttl, &attr, NO_GENERATION, fh, flags, backing)
                    }
                    _ => reply.created(ttl, &attr, NO_GENERATION, fh, flags),
                }
            }
        );
    }

    fn read(
        &self,
        _request: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        BUFFER.with_borrow_mut(|buffer| {
            let size = size as usize;
            if buffer.len() < size {
                buffer.resize(size, 0);
            }
            match run("read", || self.door.read(fh.0, &mut buffer[..size], offset)) {
                Ok(n) => reply.data(&buffer[..n]),
                Err(errno) => reply.error(errno),
            }
        });
    }

    fn write(
        &self,
        _request: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        // A write from a memory map has its offset already.
        let append =
            flags.0 & libc::O_APPEND != 0 && !write_flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        let strip = write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        answer!(
            reply,
            "write",
            self.door.write(fh.0, data, offset, append, strip),
            |reply: ReplyWrite, n| reply.written(n as u32)
        );
    }

    fn flush(
        &self,
        _request: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        answer!(reply, "flush", self.door.flush(fh.0), |reply: ReplyEmpty, ()| reply.ok());
    }

    fn release(
        &self,
        _request: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        let _ = run("release", || {
            self.door.release(fh.0);
            Ok(())
        });
        reply.ok();
    }

    fn fsync(
        &self,
        _request: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        answer!(reply, "fsync", self.door.fsync(fh.0), |reply: ReplyEmpty, ()| reply.ok());
    }

    fn opendir(&self, _request: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        answer!(reply, "opendir", self.door.opendir(ino.0), |reply: ReplyOpen, fh| reply
            .opened(FileHandle(fh), FopenFlags::empty()));
    }

    fn readdir(
        &self,
        request: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let done = run("readdir", || {
            self.door.readdir(caller(request), fh.0, offset, |_, entry, next| {
                // 0 would mean that the name does not exist.
                !reply.add(INodeNo(entry.ino.max(1)), next, entry.kind, entry.name)
            })
        });
        match done {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    fn readdirplus(
        &self,
        request: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let done = run("readdirplus", || {
            self.door.readdir(caller(request), fh.0, offset, |parent, entry, next| {
                let is_of_dir = entry.name == "." || entry.name == "..";
                let found = (!is_of_dir).then(|| self.door.look_up_entry(parent, entry));
                let attr = match found {
                    Some(Ok(Some(attr))) => attr,
                    Some(Ok(None)) => return true,
                    // The kernel reads only the number and the type of these. A name that cannot be
                    // looked up now is there all the same.
                    None | Some(Err(_)) => {
                        let attr = crate::fs::bare_attr(entry);
                        return !reply.add(
                            INodeNo(0),
                            next,
                            entry.name,
                            &Duration::ZERO,
                            &attr,
                            NO_GENERATION,
                        );
                    }
                };
                let full =
                    reply.add(attr.ino, next, entry.name, &self.door.ttl, &attr, NO_GENERATION);
                if full {
                    self.door.forget(attr.ino.0, 1);
                }
                !full
            })
        });
        match done {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    fn releasedir(
        &self,
        _request: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.door.releasedir(fh.0);
        reply.ok();
    }

    fn fsyncdir(
        &self,
        _request: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        answer!(reply, "fsyncdir", self.door.fsync(fh.0), |reply: ReplyEmpty, ()| reply.ok());
    }

    fn statfs(&self, _request: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        answer!(
            reply,
            "statfs",
            self.door.statfs(),
            |reply: ReplyStatfs, room: rustix::fs::StatVfs| {
                reply.statfs(
                    room.f_blocks,
                    room.f_bfree,
                    room.f_bavail,
                    room.f_files,
                    room.f_ffree,
                    room.f_bsize as u32,
                    room.f_namemax as u32,
                    room.f_frsize as u32,
                )
            }
        );
    }

    fn setxattr(
        &self,
        request: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let done =
            || xattr::set(&self.door, &self.status, caller(request), ino.0, name, value, flags);
        answer!(reply, "setxattr", done(), |reply: ReplyEmpty, ()| reply.ok());
    }

    fn getxattr(
        &self,
        request: &Request,
        ino: INodeNo,
        name: &OsStr,
        size: u32,
        reply: ReplyXattr,
    ) {
        match run("getxattr", || xattr::get(&self.door, &self.status, caller(request), ino.0, name))
        {
            Ok(value) => send_xattr(reply, &value, size),
            Err(errno) => reply.error(errno),
        }
    }

    fn listxattr(&self, _request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        match run("listxattr", || xattr::list(&self.door, ino.0)) {
            Ok(names) => send_xattr(reply, &names, size),
            Err(errno) => reply.error(errno),
        }
    }

    fn removexattr(&self, request: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer!(
            reply,
            "removexattr",
            xattr::remove(&self.door, caller(request), ino.0, name),
            |reply: ReplyEmpty, ()| reply.ok()
        );
    }

    fn access(&self, _request: &Request, _ino: INodeNo, _mask: AccessFlags, reply: ReplyEmpty) {
        // The kernel answers by itself (default_permissions) and does not ask again.
        reply.error(Errno::ENOSYS);
    }

    fn ioctl(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _flags: IoctlFlags,
        _cmd: u32,
        _in_data: &[u8],
        _out_size: u32,
        reply: ReplyIoctl,
    ) {
        reply.error(Errno::ENOTTY);
    }

    fn fallocate(
        &self,
        _request: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        answer!(
            reply,
            "fallocate",
            self.door.fallocate(fh.0, offset, length, mode),
            |reply: ReplyEmpty, ()| reply.ok()
        );
    }

    fn lseek(
        &self,
        _request: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        answer!(reply, "lseek", self.door.lseek(fh.0, offset, whence), |reply: ReplyLseek, at| {
            reply.offset(at)
        });
    }

    fn copy_file_range(
        &self,
        _request: &Request,
        _ino_in: INodeNo,
        fh_in: FileHandle,
        offset_in: u64,
        _ino_out: INodeNo,
        fh_out: FileHandle,
        offset_out: u64,
        len: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let done = || self.door.copy(fh_in.0, offset_in, fh_out.0, offset_out, len);
        answer!(reply, "copy_file_range", done(), |reply: ReplyWrite, n| reply.written(n as u32));
    }
}

fn send_xattr(reply: ReplyXattr, value: &[u8], size: u32) {
    match size as usize {
        0 => reply.size(value.len() as u32),
        room if room < value.len() => reply.error(Errno::ERANGE),
        _ => reply.data(value),
    }
}
