//! Open files: their bytes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard};

use plfs_core::store::{Errno, PosixFile, stat_of};
use plfs_core::{File, NameFile};
use rustix::fs::{FallocateFlags, Mode, OFlags, SeekFrom};

use super::{
    BLOCK_BYTES, COPY_MAX_BYTES, Cache, Door, Found, Handle, Opened, READ_WRITE, Result, dir_of,
    errno_of, magic, may_be_name, open_super,
};
use crate::creds::{Acting, Caller, as_caller};
use crate::inode::{Inode, OpenState, Version, lock};

impl Door {
    /// The logical file behind a descriptor, open for reading and writing; `None` if it is another
    /// file. The kernel has checked permissions.
    pub(super) fn adopt(&self, found: &Found) -> Result<Option<File>> {
        let stat = rustix::fs::fstat(&*found.fd)?;
        if !may_be_name(&stat) {
            return Ok(None);
        }
        // Only its owner and root may leave the time of access alone.
        let open = |flags| {
            rustix::fs::open(
                magic(&*found.fd),
                OFlags::RDONLY | OFlags::CLOEXEC | flags,
                Mode::empty(),
            )
        };
        let fd = open(OFlags::NOATIME).or_else(|_| open(OFlags::empty()))?;
        let path = self.engine_path(found)?;
        self.plfs
            .adopt_known(
                &PosixFile::from_fd(fd),
                NameFile::Closes,
                &path,
                &stat_of(&stat),
                READ_WRITE,
            )
            .map_err(errno_of)
    }

    /// [`Door::adopt`]; the file lives as long as it is open, whoever removes its name. Costs three
    /// calls more than without, which the first read or write would make.
    pub(super) fn adopt_and_hold(&self, found: &Found) -> Result<Option<File>> {
        let file = self.adopt(found)?;
        if let Some(file) = &file {
            file.hold().map_err(errno_of)?;
        }
        Ok(file)
    }

    /// Opens a file.
    pub fn open(&self, caller: Caller, id: u64, flags: i32) -> Result<Opened> {
        let inode = self.inode(id)?;
        let names = inode.names();
        let opened = self.open_inode(caller, &inode, flags);
        if opened.as_ref().is_err_and(|errno| *errno == Errno::STALE) {
            self.contend(names);
        }
        opened
    }

    fn open_inode(&self, caller: Caller, inode: &Arc<Inode>, flags: i32) -> Result<Opened> {
        let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
        let mut open = lock(&inode.open);
        let found = match (&open.file, self.find(inode, &open)) {
            (_, Ok(found)) => found,
            // Without a name, through /proc.
            (Some(file), Err(_)) => {
                let file = file.clone();
                return Ok(self.opened(inode, open, file, writes));
            }
            (None, Err(errno)) => return Err(errno),
        };
        if let Some(file) = self.adopt_and_hold(&found)? {
            return Ok(self.opened(inode, open, Arc::new(file), writes));
        }
        let how = OFlags::from_bits_retain((flags & (libc::O_ACCMODE | libc::O_APPEND)) as u32)
            | OFlags::CLOEXEC;
        let fd = Arc::new(as_caller(caller, || {
            rustix::fs::open(magic(&*found.fd), how - OFlags::APPEND, Mode::empty())
        })?);
        open.path_fd.get_or_insert_with(|| found.fd.clone());
        (open.handles, open.kept) = (open.handles + 1, false);
        open.writers += u32::from(writes);
        drop(open);
        let fh = self.add_handle(Handle::Plain { fd, inode: inode.clone(), writes });
        // Reading is enough: for the program's calls the kernel opens the file again, with the
        // program's access.
        let backing = Acting::as_daemon();
        let readable =
            rustix::fs::open(magic(&*found.fd), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        drop(backing);
        Ok(Opened {
            fh,
            cache: Cache::Plain,
            plain: readable.ok().map(|fd| (inode.clone(), Arc::new(fd))),
        })
    }

    pub(super) fn opened(
        &self,
        inode: &Arc<Inode>,
        mut open: MutexGuard<'_, OpenState>,
        file: Arc<File>,
        writes: bool,
    ) -> Opened {
        (open.handles, open.kept) = (open.handles + 1, false);
        open.writers += u32::from(writes);
        open.file.get_or_insert_with(|| file.clone());
        let cache = if open.writers > 0 {
            open.seen = None;
            Cache::Direct
        } else {
            let version = version_of(&file);
            let same = version.is_some() && open.seen == version;
            open.seen = version;
            if same { Cache::Keep } else { Cache::Fresh }
        };
        drop(open);
        let fh = self.add_handle(Handle::Logical {
            file,
            inode: inode.clone(),
            writes,
            stripped: AtomicBool::new(false),
        });
        Opened { fh, cache, plain: None }
    }

    /// Reads into `buf`; fewer bytes at the end of the file.
    pub fn read(&self, fh: u64, buf: &mut [u8], offset: u64) -> Result<usize> {
        match &*self.handle(fh)? {
            Handle::Logical { file, .. } => file.read_at(buf, offset).map_err(errno_of),
            Handle::Plain { fd, .. } => {
                let mut done = 0;
                while done < buf.len() {
                    match rustix::io::retry_on_intr(|| {
                        rustix::io::pread(&**fd, &mut buf[done..], offset + done as u64)
                    }) {
                        Ok(0) => break,
                        Ok(n) => done += n,
                        Err(errno) if done == 0 => return Err(errno),
                        Err(_) => break,
                    }
                }
                Ok(done)
            }
            Handle::Dir { .. } => Err(Errno::ISDIR),
        }
    }

    /// Writes at `offset`, or with `append` at the end. With `strip` the writer may not keep
    /// set-user-ID bits and capabilities.
    pub fn write(
        &self,
        fh: u64,
        bytes: &[u8],
        offset: u64,
        append: bool,
        strip: bool,
    ) -> Result<usize> {
        let handle = self.handle(fh)?;
        match &*handle {
            Handle::Logical { file, inode, stripped, .. } => {
                if strip {
                    self.strip(inode, file);
                    if !stripped.swap(true, Ordering::Relaxed) {
                        let _ = open_super(&self.root, file).and_then(|fd| {
                            rustix::fs::removexattr(magic(&fd), "security.capability")
                        });
                    }
                }
                let (mut at, mut done) = (offset, 0);
                if append {
                    let (begin, n) = file.append(bytes).map_err(errno_of)?;
                    (at, done) = (begin + n as u64, n);
                }
                while done < bytes.len() {
                    match file.write_at(&bytes[done..], at) {
                        Ok(0) => break,
                        Ok(n) => (at, done) = (at + n as u64, done + n),
                        Err(error) if done == 0 => return Err(errno_of(error)),
                        Err(error) => {
                            errno_of(error);
                            break;
                        }
                    }
                }
                Ok(done)
            }
            Handle::Plain { fd, .. } => {
                rustix::io::retry_on_intr(|| rustix::io::pwrite(&**fd, bytes, offset))
            }
            Handle::Dir { .. } => Err(Errno::ISDIR),
        }
    }

    /// A descriptor was closed: what was written is visible everywhere.
    pub fn flush(&self, fh: u64) -> Result<()> {
        match &*self.handle(fh)? {
            Handle::Logical { file, writes: true, .. } => {
                let committed =
                    if self.plfs.config().sync_on_close { file.sync() } else { file.commit() };
                committed.map_err(errno_of)
            }
            _ => Ok(()),
        }
    }

    /// The last descriptor of a handle was closed.
    pub fn release(&self, fh: u64) {
        let Some(handle) = self.take_handle(fh) else { return };
        let (inode, writes) = match &*handle {
            Handle::Logical { inode, writes, .. } | Handle::Plain { inode, writes, .. } => {
                (inode.clone(), *writes)
            }
            Handle::Dir { .. } => return,
        };
        let file = match Arc::into_inner(handle) {
            Some(Handle::Logical { file, .. }) => Some(file),
            _ => None,
        };
        let mut open = lock(&inode.open);
        open.handles = open.handles.saturating_sub(1);
        open.writers = open.writers.saturating_sub(u32::from(writes));
        file.into_iter().for_each(close_last);
        Self::close_if_unused(&mut open);
    }

    /// Closes what is kept for a file that nobody has open. Under the file's lock, so that the next
    /// open finds it closed.
    pub(super) fn close_if_unused(open: &mut OpenState) {
        if open.handles == 0 && !open.kept {
            open.file.take().into_iter().for_each(close_last);
            (open.path_fd, open.backing) = (None, None);
        }
    }

    /// Makes a file durable.
    pub fn fsync(&self, fh: u64, data_only: bool) -> Result<()> {
        match &*self.handle(fh)? {
            Handle::Logical { file, .. } => file.sync().map_err(errno_of),
            Handle::Plain { fd, .. } if data_only => rustix::fs::fdatasync(&**fd),
            Handle::Plain { fd, .. } => rustix::fs::fsync(&**fd),
            Handle::Dir { inode, .. } => {
                let fd = rustix::fs::open(
                    magic(dir_of(inode)?),
                    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
                    Mode::empty(),
                )?;
                match rustix::fs::fsync(fd) {
                    // Not supported by the backend: nothing to do.
                    Err(Errno::INVAL) => Ok(()),
                    other => other,
                }
            }
        }
    }

    /// Reserves, zeroes or punches.
    pub fn fallocate(&self, fh: u64, offset: u64, length: u64, mode: i32) -> Result<()> {
        let flags = FallocateFlags::from_bits_retain(mode as u32);
        match &*self.handle(fh)? {
            Handle::Logical { file, .. } => {
                let end = offset.checked_add(length).ok_or(Errno::FBIG)?;
                let known = FallocateFlags::KEEP_SIZE
                    | FallocateFlags::PUNCH_HOLE
                    | FallocateFlags::ZERO_RANGE;
                if !known.contains(flags) {
                    return Err(Errno::OPNOTSUPP);
                }
                if flags.intersects(FallocateFlags::PUNCH_HOLE | FallocateFlags::ZERO_RANGE) {
                    file.zero(offset, length).map_err(errno_of)?;
                }
                if !flags.contains(FallocateFlags::KEEP_SIZE) && file.len().map_err(errno_of)? < end
                {
                    file.set_len(end).map_err(errno_of)?;
                }
                Ok(())
            }
            Handle::Plain { fd, .. } => rustix::fs::fallocate(&**fd, flags, offset, length),
            Handle::Dir { .. } => Err(Errno::ISDIR),
        }
    }

    /// SEEK_DATA and SEEK_HOLE.
    pub fn lseek(&self, fh: u64, offset: i64, whence: i32) -> Result<i64> {
        let from = u64::try_from(offset).map_err(|_| Errno::NXIO)?;
        match &*self.handle(fh)? {
            Handle::Logical { file, .. } => {
                if from >= file.len().map_err(errno_of)? {
                    return Err(Errno::NXIO);
                }
                let found = match whence {
                    libc::SEEK_DATA => {
                        file.next_data(from).map_err(errno_of)?.ok_or(Errno::NXIO)?
                    }
                    libc::SEEK_HOLE => file.next_hole(from).map_err(errno_of)?,
                    _ => return Err(Errno::INVAL),
                };
                i64::try_from(found).map_err(|_| Errno::OVERFLOW)
            }
            Handle::Plain { fd, .. } => {
                let at = match whence {
                    libc::SEEK_DATA => SeekFrom::Data(from),
                    libc::SEEK_HOLE => SeekFrom::Hole(from),
                    _ => return Err(Errno::INVAL),
                };
                rustix::fs::seek(&**fd, at).map(|found| found as i64)
            }
            Handle::Dir { .. } => Err(Errno::INVAL),
        }
    }

    /// Copies inside the mount; gives how many bytes, which may be fewer.
    pub fn copy(
        &self,
        from: u64,
        from_offset: u64,
        to: u64,
        to_offset: u64,
        length: u64,
    ) -> Result<usize> {
        let mut buf = vec![0; length.min(u64::from(BLOCK_BYTES)) as usize];
        let length = length.min(COPY_MAX_BYTES);
        let mut done = 0;
        while done < length {
            let want = (length - done).min(buf.len() as u64) as usize;
            let step =
                self.read(from, &mut buf[..want], from_offset + done).and_then(|n| match n {
                    0 => Ok(0),
                    n => self.write(to, &buf[..n], to_offset + done, false, false),
                });
            match step {
                Ok(0) => break,
                Ok(n) => done += n as u64,
                Err(errno) if done == 0 => return Err(errno),
                Err(_) => break,
            }
        }
        Ok(done as usize)
    }
}

/// Closes a file unless others use it.
fn close_last(file: Arc<File>) {
    if let Some(Err(error)) = Arc::into_inner(file).map(File::close) {
        errno_of(error);
    }
}

fn version_of(file: &File) -> Option<Version> {
    let (stat, totals) = (file.stat().ok()?, file.totals().ok()?);
    Some(Version {
        size: stat.len,
        mtime: (stat.mtime.sec, stat.mtime.nsec),
        ctime: (stat.ctime.sec, stat.ctime.nsec),
        stamp: totals.max_stamp,
    })
}
