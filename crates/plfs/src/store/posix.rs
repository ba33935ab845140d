//! The real file system, through system calls of rustix alone.
//!
//! The preload shim puts itself between a program and libc, so nothing here may go through libc's
//! file calls: PLFS would call itself. That covers closing, too: dropping an [`OwnedFd`] calls
//! libc's close, therefore every descriptor of this module is closed by [`rustix::io::close`], a
//! bare system call.
//!
//! Descriptors that PLFS keeps for itself are [high ones](HighFd). Descriptors that are meant for
//! the program ([`PosixFile::open`], [`PosixFile::from_fd`]) keep the number they have and are not
//! recorded.

mod calls;
mod fd;
mod file;
mod file_system;

use std::any::Any;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, Timestamps, Uid};
use rustix::io::retry_on_intr;

pub use calls::stat_of;
pub(super) use calls::visit_fd;
use calls::{mode_bits, open_fd, timespec};
use fd::{BASE, hold_numbers, release_numbers};
pub use fd::{BEHIND_STANDARD, HighFd, Passing, owns_fd};
pub(super) use fd::{BareFd, soft_limit};
use file::Fd;
pub use file::PosixFile;
pub(crate) use file::{copy_attributes, has_attributes};
use file_system::file_system;
pub(super) use file_system::mounts as mounts_of_this_process;

use super::beneath::{Dir, Inside, Kept, READ_DIR, Spot, beneath, chmod};
use super::file_cache::{with_room, with_room_to_keep};
use super::lustre::Lustre;
use super::{
    Entry, Errno, Keep, Kind, Links, Number, Open, Place, PlainDirectory, Result, Space, Stat,
    Store, StoreFile, TargetProvider, Time, fd_path, machine,
};
use crate::sync::Arc;
use crate::sync::plain::{Mutex, lock};

/// The file system of this machine.
#[derive(Clone, Debug, Default)]
pub struct PosixStore {
    /// See [`Store::inside`].
    inside: Option<Arc<Inside>>,
    walk: bool,
}

impl PosixStore {
    /// The one there is.
    pub const fn new() -> PosixStore {
        PosixStore { inside: None, walk: false }
    }

    /// The same, as on a kernel without openat2(2), or in a sandbox that refuses it.
    pub const fn without_openat2() -> PosixStore {
        PosixStore { inside: None, walk: true }
    }

    /// [`Store::inside`] for who has roots of the places open.
    pub fn inside_of(
        &self,
        places: Vec<Place>,
        roots: Vec<Option<Kept>>,
        keep: Keep,
    ) -> PosixStore {
        match &self.inside {
            Some(inside) if inside.is(&places, keep) => self.clone(),
            Some(inside) if keep.is_to_stay() => {
                let inside = inside.kept(places, roots, keep);
                PosixStore { inside: Some(Arc::new(inside)), walk: self.walk }
            }
            _ => PosixStore {
                inside: Some(Arc::new(Inside::new(places, roots, keep, self.walk))),
                walk: self.walk,
            },
        }
    }

    /// Opens `path` below the directory `base`, following no symbolic link: a link is ELOOP. The
    /// descriptor has the lowest free number.
    pub fn open_beneath(
        &self,
        base: BorrowedFd<'_>,
        path: &Path,
        flags: OFlags,
    ) -> Result<OwnedFd> {
        beneath(base, path, flags, Mode::empty(), self.walk)
    }

    /// Where `path` lies in a place in which links are not followed.
    fn spot<'a>(&'a self, path: &'a Path) -> Option<Spot<'a>> {
        self.inside.as_ref()?.find(path)
    }

    fn open_fd(&self, path: &Path, how: Open) -> Result<OwnedFd> {
        open_fd(how, |flags, mode| self.open_at(path, flags, mode))
    }

    /// Opens a file or directory.
    fn open_at(&self, path: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd> {
        match self.spot(path) {
            // Who opens a pipe that somebody planted would wait for ever, but for one who opens it
            // for reading and writing.
            Some(spot) if flags.intersects(OFlags::DIRECTORY | OFlags::RDWR) || spot.is_kept() => {
                spot.open(flags, mode)
            }
            Some(spot) => match spot.open(flags | OFlags::NONBLOCK, mode) {
                // Nobody reads and writes a log so: Lustre gives up where it should wait.
                Ok(fd) => rustix::fs::fcntl_setfl(&fd, flags).map(|()| fd),
                // A file with a lease, which is waited for.
                Err(Errno::AGAIN) => spot.open(flags, mode),
                Err(errno) => Err(errno),
            },
            None => with_room_to_keep(|| {
                retry_on_intr(|| rustix::fs::open(path, flags | OFlags::CLOEXEC, mode))
            }),
        }
    }

    /// For programs that know PLFS, as its command and its daemon do: descriptors keep the numbers
    /// they get, which spares two system calls at each open. To be called before the first.
    pub fn keep_fd_numbers() {
        let _ = BASE.set(0);
    }

    /// True if the descriptor number `fd` is PLFS's own, rather than one of the program's. Takes no
    /// lock and makes no system call.
    pub fn owns_fd(fd: RawFd) -> bool {
        owns_fd(fd)
    }

    /// For who puts a file at a number of the program's choice, by dup2: waits until PLFS has no
    /// descriptors at low numbers for a moment, and lets it have none until
    /// [`PosixStore::release_numbers`], to which no signal's handler may come. False: some are
    /// still there after ten seconds, and nothing is to be released.
    pub fn hold_numbers() -> bool {
        hold_numbers()
    }

    /// Ends what [`PosixStore::hold_numbers`] began, and in the child of a fork whatever others
    /// had begun.
    pub fn release_numbers() {
        release_numbers();
    }
}

/// Where a call that does not follow a last link looks `path` up: in which directory, by which
/// name.
fn parent<'a>(spot: &'a Option<Spot<'_>>, path: &'a Path) -> Result<(Dir<'a>, &'a Path)> {
    spot.as_ref().map_or(Ok((Dir::Kept(CWD), path)), Spot::parent)
}

impl Store for PosixStore {
    fn open(&self, path: &Path, how: Open) -> Result<Arc<dyn StoreFile>> {
        let _passing = Passing::new();
        if how.number == Number::Unmoved {
            let fd = HighFd::unmoved(|| self.open_fd(path, how))?;
            return Ok(Arc::new(PosixFile(Fd::Own(fd))));
        }
        let fd = self.open_fd(path, how)?;
        // What a thread of the program writes to a number that it believes to be its log, or that
        // it closed twice, must not go to a file of ours, nor what we write to one of the
        // program's.
        Ok(Arc::new(PosixFile(match how.number {
            Number::Brief if !how.write => Fd::Brief(BareFd::new(fd)),
            _ => Fd::Own(HighFd::new(fd)),
        })))
    }

    fn stat(&self, path: &Path, links: Links) -> Result<Stat> {
        let Some(spot) = self.spot(path) else {
            let flags = match links {
                Links::Follow => AtFlags::empty(),
                Links::Stay => AtFlags::SYMLINK_NOFOLLOW,
            };
            return retry_on_intr(|| rustix::fs::statat(CWD, path, flags))
                .map(|stat| stat_of(&stat));
        };
        let stat = if let Some(stat) = spot.found_before(links) {
            stat
        } else if spot.is_near() {
            let (dir, name) = match spot.at() {
                // A link where the directory should be that is to be kept.
                Err(Errno::LOOP) if links == Links::Stay => spot.parent(),
                other => other,
            }?;
            match name.as_os_str() == "." {
                true => retry_on_intr(|| rustix::fs::fstat(&dir))?,
                false => {
                    retry_on_intr(|| rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW))?
                }
            }
        } else {
            let how = OFlags::PATH | OFlags::NOFOLLOW;
            let fd = BareFd::open(|| spot.open(how, Mode::empty()))?;
            let stat = retry_on_intr(|| rustix::fs::fstat(&fd))?;
            spot.note_found(&stat);
            stat
        };
        match stat_of(&stat) {
            // A directory that was removed lives on behind its descriptor.
            stat if stat.nlink == 0 && spot.is_kept() => Err(Errno::NOENT),
            stat if stat.kind == Kind::Symlink && links == Links::Follow => Err(Errno::LOOP),
            stat => Ok(stat),
        }
    }

    fn inside(&self, places: Vec<Place>, keep: Keep) -> Option<Arc<dyn Store>> {
        Some(Arc::new(self.inside_of(places, Vec::new(), keep)))
    }

    fn again(&self, keep: Keep) -> Option<Arc<dyn Store>> {
        let inside = Some(Arc::new(self.inside.as_ref()?.again(keep)));
        Some(Arc::new(PosixStore { inside, walk: self.walk }))
    }

    fn hold(&self) -> Option<Result<Box<dyn Any + Send + Sync>>> {
        self.inside.as_ref()?.hold().map(|held| held.map(|held| Box::new(held) as _))
    }

    fn kept_dir(&self) -> Option<Result<Arc<dyn StoreFile>>> {
        let dir = self.inside.as_ref()?.kept_dir()?;
        Some(dir.map(|dir| Arc::new(PosixFile(Fd::View(dir))) as _))
    }

    fn list(&self, path: &Path) -> Result<Vec<Entry>> {
        let mut found = Vec::new();
        self.visit(path, &mut |entry| {
            found.push(entry.clone());
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }

    fn visit(&self, path: &Path, visit: &mut dyn FnMut(&Entry) -> ControlFlow<()>) -> Result<()> {
        let dir = BareFd::open(|| self.open_at(path, READ_DIR, Mode::empty()))?;
        visit_fd(dir.as_fd(), visit)
    }

    /// From one descriptor of the directory.
    fn unlink_files(&self, dir: &Path, but: &str) -> Result<Vec<Entry>> {
        let dir = BareFd::open(|| self.open_at(dir, READ_DIR, Mode::empty()))?;
        let mut entries = Vec::new();
        visit_fd(dir.as_fd(), &mut |entry| {
            entries.push(entry.clone());
            ControlFlow::Continue(())
        })?;
        let mut failed = None;
        entries.retain(|entry| {
            let is_file = matches!(entry.kind, Some(Kind::File | Kind::Symlink));
            if entry.name == but || !is_file || failed.is_some() {
                return true;
            }
            let unlink = || rustix::fs::unlinkat(&dir, &entry.name, AtFlags::empty());
            match retry_on_intr(unlink) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(errno) => failed = Some(errno),
            }
            false
        });
        failed.map_or(Ok(entries), Err)
    }

    fn make_node(&self, path: &Path, mode: u32) -> Result<()> {
        let spot = self.spot(path);
        let (dir, name) = parent(&spot, path)?;
        let (kind, mode) = (FileType::RegularFile, mode_bits(mode));
        retry_on_intr(|| rustix::fs::mknodat(&dir, name, kind, mode, 0))
    }

    fn targets(&self, dir: &Path) -> Arc<dyn TargetProvider> {
        type All = Mutex<BTreeMap<PathBuf, Arc<dyn TargetProvider>>>;
        static KNOWN: All = Mutex::new(BTreeMap::new());
        if let Some(known) = lock(&KNOWN).get(dir) {
            return known.clone();
        }
        let found: Arc<dyn TargetProvider> = match Lustre::at(dir, file_system(dir).lustre) {
            Some(lustre) => Arc::new(lustre),
            None => Arc::new(PlainDirectory::new(dir)),
        };
        lock(&KNOWN).insert(dir.to_path_buf(), found.clone());
        found
    }

    /// The kernel applies the umask, which belongs to the whole process and is not ours to change;
    /// bits it cut are put back by a chmod. Bits it added stay: a directory below one with the
    /// set-group-ID bit inherits it, as from mkdir(2).
    fn mkdir(&self, path: &Path, mode: u32) -> Result<()> {
        let spot = self.spot(path);
        let (dir, name) = parent(&spot, path)?;
        retry_on_intr(|| rustix::fs::mkdirat(&dir, name, mode_bits(mode)))
    }

    fn rmdir(&self, path: &Path) -> Result<()> {
        let spot = self.spot(path);
        let (dir, name) = parent(&spot, path)?;
        retry_on_intr(|| rustix::fs::unlinkat(&dir, name, AtFlags::REMOVEDIR))
    }

    fn unlink(&self, path: &Path) -> Result<()> {
        let spot = self.spot(path);
        let (dir, name) = parent(&spot, path)?;
        retry_on_intr(|| rustix::fs::unlinkat(&dir, name, AtFlags::empty()))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let (from_spot, to_spot) = (self.spot(from), self.spot(to));
        let ((from_dir, from), (to_dir, to)) = (parent(&from_spot, from)?, parent(&to_spot, to)?);
        retry_on_intr(|| rustix::fs::renameat(&from_dir, from, &to_dir, to))
    }

    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        let (from_spot, to_spot) = (self.spot(from), self.spot(to));
        let ((from_dir, from), (to_dir, to)) = (parent(&from_spot, from)?, parent(&to_spot, to)?);
        retry_on_intr(|| rustix::fs::linkat(&from_dir, from, &to_dir, to, AtFlags::empty()))
    }

    fn link_open(&self, file: &dyn StoreFile, to: &Path) -> Result<()> {
        let fd = file.fd().ok_or(Errno::OPNOTSUPP)?;
        let from = fd_path(fd.as_raw_fd());
        let spot = self.spot(to);
        let (dir, to) = parent(&spot, to)?;
        let call = || rustix::fs::linkat(CWD, from.as_str(), &dir, to, AtFlags::SYMLINK_FOLLOW);
        retry_on_intr(call)
    }

    fn symlink(&self, target: &Path, path: &Path) -> Result<()> {
        let spot = self.spot(path);
        let (dir, name) = parent(&spot, path)?;
        retry_on_intr(|| rustix::fs::symlinkat(target, &dir, name))
    }

    fn readlink(&self, path: &Path) -> Result<PathBuf> {
        let spot = self.spot(path);
        let (dir, name) = parent(&spot, path)?;
        let text = retry_on_intr(|| rustix::fs::readlinkat(&dir, name, Vec::new()))?;
        Ok(OsString::from_vec(text.into_bytes()).into())
    }

    fn reach(&self, path: &Path, links: Links) -> Result<Option<Arc<dyn StoreFile>>> {
        let stays = if links == Links::Stay { OFlags::NOFOLLOW } else { OFlags::empty() };
        let fd = BareFd::open(|| self.open_at(path, OFlags::PATH | stays, Mode::empty()))?;
        Ok(Some(Arc::new(PosixFile(Fd::Brief(fd)))))
    }

    fn chmod(&self, path: &Path, mode: u32) -> Result<()> {
        match self.spot(path) {
            Some(spot) => chmod(&spot, mode_bits(mode)),
            None => retry_on_intr(|| rustix::fs::chmod(path, mode_bits(mode))),
        }
    }

    fn chown(&self, path: &Path, uid: Option<u32>, gid: Option<u32>, links: Links) -> Result<()> {
        // chown(2) takes the number -1 as "leave as it is", which is what None says.
        let uid = uid.filter(|&id| id != u32::MAX).map(Uid::from_raw);
        let gid = gid.filter(|&id| id != u32::MAX).map(Gid::from_raw);
        let spot = self.spot(path);
        if links == Links::Follow
            && spot.is_some()
            && self.stat(path, Links::Stay)?.kind == Kind::Symlink
        {
            return Err(Errno::LOOP);
        }
        let (dir, name) = spot.as_ref().map_or(Ok((Dir::Kept(CWD), path)), Spot::at)?;
        let flags = match links {
            Links::Follow if spot.is_none() => AtFlags::empty(),
            _ => AtFlags::SYMLINK_NOFOLLOW,
        };
        retry_on_intr(|| rustix::fs::chownat(&dir, name, uid, gid, flags))
    }

    fn set_times(&self, path: &Path, atime: Option<Time>, mtime: Option<Time>) -> Result<()> {
        if atime.is_none() && mtime.is_none() {
            // With nothing to set, utimensat(2) does not even look whether the path exists.
            return self.stat(path, Links::Follow).map(drop);
        }
        let times =
            Timestamps { last_access: timespec(atime)?, last_modification: timespec(mtime)? };
        let spot = self.spot(path);
        let (dir, name) = spot.as_ref().map_or(Ok((Dir::Kept(CWD), path)), Spot::at)?;
        let flags = if spot.is_some() { AtFlags::SYMLINK_NOFOLLOW } else { AtFlags::empty() };
        retry_on_intr(|| rustix::fs::utimensat(&dir, name, &times, flags))
    }

    /// A file system that does not know fsync on directories (EINVAL) has nothing to offer here and
    /// counts as done.
    fn sync_dir(&self, path: &Path) -> Result<()> {
        let above = || self.inside.as_ref().and_then(|inside| inside.above(path, READ_DIR));
        // It has it for long.
        let dir = HighFd::open(|| match with_room(|| above().transpose())? {
            Some(dir) => Ok(dir),
            None => self.open_at(path, READ_DIR, Mode::empty()),
        })?;
        match retry_on_intr(|| rustix::fs::fsync(&dir)) {
            Err(Errno::INVAL) => Ok(()),
            other => other,
        }
    }

    fn space(&self, path: &Path) -> Result<Space> {
        let stat = retry_on_intr(|| rustix::fs::statvfs(path))?;
        Ok(Space {
            total: stat.f_blocks.saturating_mul(stat.f_frsize),
            available: stat.f_bavail.saturating_mul(stat.f_frsize),
        })
    }

    /// Asks the nearest ancestor that exists. False if that cannot be asked.
    fn is_local(&self, path: &Path) -> bool {
        file_system(path).local
    }

    /// Asks the nearest ancestor that exists. `None` if that cannot be asked.
    fn close_to_open(&self, path: &Path) -> Option<String> {
        file_system(path).close_to_open
    }

    /// Asks the nearest ancestor that exists. False if that cannot be asked.
    fn open_asks(&self, path: &Path) -> bool {
        file_system(path).open_asks
    }

    fn boot(&self, path: &Path) -> Option<u64> {
        (!file_system(path).volatile).then(machine::boot_id)
    }
}
