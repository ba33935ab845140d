//! Open files: their bytes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard};

use plfs_core::store::{Errno, PosixFile, Size, Stat, StoreFile, Time, stat_of};
use plfs_core::{Access, File, NameFile, OpenOptions, is_too_long_to_promote};
use rustix::fs::{FallocateFlags, Mode, OFlags};

use super::{
    BLOCK_BYTES, COPY_MAX_BYTES, Cache, Door, Found, Handle, Opened, Passthrough, READ_WRITE,
    Result, dir_of, errno_of, magic, may_be_name,
};
use crate::creds::{Caller, as_caller};
use crate::inode::{Inode, OpenState, Version, lock};

/// The longest tick of Linux (CONFIG_HZ=100), by which file systems of this machine give times.
const TICK_NS: i128 = 10_000_000;

impl Door {
    /// The logical file behind a descriptor, open for reading and writing; `None` if it is another
    /// file. The kernel has checked permissions.
    pub(super) fn adopt(&self, found: &Found) -> Result<Option<File>> {
        if !may_be_name(&found.stat) {
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
                &stat_of(&found.stat),
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

    /// The engine's file behind a descriptor. A plain one is open for writing only if that
    /// `writes`: others count who may write it. As the daemon, as the kernel has checked
    /// permissions; where that has no rights, as the caller.
    pub(super) fn open_found(&self, caller: Caller, found: &Found, writes: bool) -> Result<File> {
        if let Some(file) = self.adopt_and_hold(found)? {
            return Ok(file);
        }
        let path = magic(&*found.fd);
        let open = |how| rustix::fs::open(&path, how | OFlags::CLOEXEC, Mode::empty());
        let least = if writes { OFlags::WRONLY } else { OFlags::RDONLY };
        let most = if writes { OFlags::RDWR } else { OFlags::RDONLY };
        let (fd, read) = match open(most) {
            Err(Errno::ACCESS | Errno::PERM) => match as_caller(caller, || open(most)) {
                Err(Errno::ACCESS) if writes => (as_caller(caller, || open(least))?, false),
                other => (other?, true),
            },
            other => (other?, true),
        };
        let options = OpenOptions { access: Access { read, write: writes }, ..OpenOptions::read() };
        let (file, stat) = (Arc::new(PosixFile::from_fd(fd)), stat_of(&found.stat));
        let path = self.engine_path(found)?;
        let file = self.plfs.opened_plain(file, &stat, &path, options).map_err(errno_of)?.file();
        file.hold().map_err(errno_of)?;
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
        let open = lock(&inode.open);
        let serves = |file: &File| file.access().write || !writes;
        // All handles of a file of a pack use one, which knows when it moves out.
        if let Some(file) = open.file.clone().filter(|file| file.is_packed()) {
            return Ok(self.opened(inode, open, file, writes));
        }
        if inode.is_packed() {
            let file = Arc::new(self.open_in_pack(inode)?);
            return Ok(self.opened(inode, open, file, writes));
        }
        // All handles of a plain file use one, or two if the first only reads.
        if let Some(file) = open.file.clone().filter(|file| file.is_plain()) {
            file.refresh().map_err(errno_of)?;
            if file.is_plain() && serves(&file) {
                return Ok(self.opened(inode, open, file, writes));
            }
        }
        let found = match (&open.file, self.find(inode, &open)) {
            (_, Ok(found)) => found,
            // Without a name, through /proc.
            (Some(file), Err(_)) if serves(file) => {
                let file = file.clone();
                return Ok(self.opened(inode, open, file, writes));
            }
            (_, Err(errno)) => return Err(errno),
        };
        let file = Arc::new(self.open_found(caller, &found, writes)?);
        Ok(self.opened(inode, open, file, writes))
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
        if !open.file.as_ref().is_some_and(|known| known.access().write || !file.access().write) {
            open.file = Some(file.clone());
        }
        let mut kernel = match &open.backing {
            Some(backing) => Passthrough::GoesOn(backing.clone()),
            None => Passthrough::None,
        };
        let stat = if open.backing.is_some() { None } else { file.stat().ok() };
        let told = inode.told.load(Ordering::Relaxed);
        let resized = stat.as_ref().is_some_and(|stat| stat.len != told);
        let cache = if open.backing.is_some() && self.kernel_may_use(&file, writes) {
            Cache::Fresh
        } else if open.writers > 0 || open.backing.is_some() {
            open.seen = None;
            Cache::Direct
        } else {
            let plain = stat.and_then(|stat| Self::kernel_may_read(&file, &stat));
            match plain.filter(|_| open.handles == 1) {
                Some(plain) => {
                    kernel = Passthrough::Begins(inode.clone(), plain);
                    open.seen = None;
                    Cache::Fresh
                }
                None => {
                    let version = stat.and_then(|stat| self.version_of(&file, &stat));
                    let same = version.is_some() && open.seen == version;
                    open.seen = version;
                    if same { Cache::Keep } else { Cache::Fresh }
                }
            }
        };
        drop(open);
        let inode = inode.clone();
        let fh =
            self.add_handle(Handle::File { file, inode, writes, stripped: AtomicBool::new(false) });
        Opened { fh, cache, resized, kernel }
    }

    /// The plain file that the kernel may read by itself (SEMANTICS F20): a long one, which hardly
    /// ever becomes a container, since this handle would not see it. Others the kernel caches,
    /// which is as fast.
    fn kernel_may_read(file: &File, stat: &Stat) -> Option<Arc<dyn StoreFile>> {
        file.plain_file().filter(|plain| is_too_long_to_promote(plain.as_ref(), stat))
    }

    /// Whether the kernel, which reads a plain file by itself for another handle, may use it for
    /// this one, too. Nobody notes what it writes, so such a file must stay plain.
    fn kernel_may_use(&self, file: &File, writes: bool) -> bool {
        let why = "written in a mount while the kernel read it by itself";
        file.is_plain() && (!writes || file.pin(why).map_err(errno_of).unwrap_or(false))
    }

    /// Reads into `buf`; fewer bytes at the end of the file.
    pub fn read(&self, fh: u64, buf: &mut [u8], offset: u64) -> Result<usize> {
        match &*self.handle(fh)? {
            // What is missing the kernel would take for zeros.
            Handle::File { file, .. } => file.read_whole_at(buf, offset).map_err(errno_of),
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
            Handle::File { file, inode, stripped, .. } => {
                if strip {
                    self.strip(inode, file);
                    if !stripped.swap(true, Ordering::Relaxed) {
                        let _ = self.way_to(file).and_then(|way| {
                            rustix::fs::removexattr(&way.path, "security.capability")
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
                inode.told.fetch_max(at, Ordering::Relaxed);
                self.moves_out_if_large(inode, file, at);
                Ok(done)
            }
            Handle::Dir { .. } => Err(Errno::ISDIR),
        }
    }

    /// A descriptor was closed: what was written is visible everywhere.
    pub fn flush(&self, fh: u64) -> Result<()> {
        match &*self.handle(fh)? {
            Handle::File { file, writes: true, .. } => {
                let committed = match self.plfs.config().sync_on_close {
                    true => file.sync(),
                    false => file.commit_as_close(),
                };
                committed.map_err(errno_of)
            }
            _ => Ok(()),
        }
    }

    /// The last descriptor of a handle was closed.
    pub fn release(&self, fh: u64) {
        let Some(handle) = self.take_handle(fh) else { return };
        let (inode, writes) = match &*handle {
            Handle::File { inode, writes, .. } => (inode.clone(), *writes),
            Handle::Dir { .. } => return,
        };
        let file = match Arc::into_inner(handle) {
            Some(Handle::File { file, .. }) => Some(file),
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
    pub fn fsync(&self, fh: u64) -> Result<()> {
        match &*self.handle(fh)? {
            Handle::File { file, .. } => file.sync().map_err(errno_of),
            Handle::Dir { inode, .. } => {
                if let Some(flat) = self.flat(inode)? {
                    return self.sync_flat(&flat);
                }
                self.sync_pack(inode)?;
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
            Handle::File { file, .. } => {
                offset.checked_add(length).ok_or(Errno::FBIG)?;
                let known = FallocateFlags::KEEP_SIZE
                    | FallocateFlags::PUNCH_HOLE
                    | FallocateFlags::ZERO_RANGE;
                if !known.contains(flags) {
                    return Err(Errno::OPNOTSUPP);
                }
                let keep = flags.contains(FallocateFlags::KEEP_SIZE);
                let zero =
                    flags.intersects(FallocateFlags::PUNCH_HOLE | FallocateFlags::ZERO_RANGE);
                if zero {
                    file.zero(offset, length).map_err(errno_of)?;
                }
                if !(zero && keep) {
                    let size = if keep { Size::Stays } else { Size::Grows };
                    file.allocate(offset, length, size).map_err(errno_of)?;
                }
                Ok(())
            }
            Handle::Dir { .. } => Err(Errno::ISDIR),
        }
    }

    /// SEEK_DATA and SEEK_HOLE.
    pub fn lseek(&self, fh: u64, offset: i64, whence: i32) -> Result<i64> {
        let from = u64::try_from(offset).map_err(|_| Errno::NXIO)?;
        match &*self.handle(fh)? {
            Handle::File { file, .. } => {
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

    /// `None` if the contents may change and the version not: of a plain file, which has its times
    /// alone, when it has changed a moment ago.
    fn version_of(&self, file: &File, stat: &Stat) -> Option<Version> {
        let stamp = match file.is_plain() {
            true if !self.is_past(stat.ctime) => return None,
            true => 0,
            false => file.totals().ok()?.max_stamp,
        };
        Some(Version {
            size: stat.len,
            mtime: (stat.mtime.sec, stat.mtime.nsec),
            ctime: (stat.ctime.sec, stat.ctime.nsec),
            stamp,
        })
    }

    /// Whether what changes the file now gives it another time than this one, which it has.
    fn is_past(&self, time: Time) -> bool {
        match self.local {
            true => Time::now().ns() - time.ns() > 2 * TICK_NS,
            false => time.is_long_past(),
        }
    }
}

/// Closes a file unless others use it.
fn close_last(file: Arc<File>) {
    if let Some(Err(error)) = Arc::into_inner(file).map(File::close) {
        errno_of(error);
    }
}
