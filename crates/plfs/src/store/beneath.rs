//! Directories below which no symbolic link is followed, reached by descriptors: how
//! [`PosixStore`](super::PosixStore) looks up what lies inside a container.
//!
//! What is looked up never depends on a check that came before. Each call resolves its path from a
//! descriptor, by openat2(2) with `RESOLVE_NO_SYMLINKS`, or part by part with `O_NOFOLLOW`, and
//! acts on what that found: by the descriptor, or on one name in a directory that is open. So a
//! link that appears between two calls, or during one, is refused or is not met; it is never
//! followed.

use std::ffi::{CString, OsStr, OsString};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use plfs_format::name::{self, ROOT_DIR};
use rustix::fs::{
    AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, ResolveFlags, StatxFlags, makedev,
};
use rustix::io::retry_on_intr;

use super::file_cache::{with_room, with_room_to_keep};
use super::machine::{fd_path, in_own_proc};
use super::posix::{BareFd, HighFd, Passing, visit_fd};
use super::{Errno, Keep, Links, Place, Result};
use crate::sync::plain::atomic::{AtomicBool, AtomicU8, Ordering};
use crate::sync::{Arc, OnceLock};

/// A descriptor of somebody who keeps it open.
pub type Kept = Arc<dyn AsFd + Send + Sync>;

/// What is known of openat2(2): an old kernel (before 5.6) lacks it, and so does a sandbox that
/// does not know it.
static OPENAT2: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const THERE: u8 = 1;
const MISSING: u8 = 2;

fn is_missing() -> bool {
    OPENAT2.load(Ordering::Relaxed) == MISSING
}

/// What a view of the file system does not follow links in.
#[derive(Debug)]
pub struct Inside {
    anchors: Vec<Anchor>,
    keep: Keep,
    walk: bool,
    /// The directory of the first place is locked by the descriptor that is kept.
    is_held: AtomicBool,
}

struct Anchor {
    at: Arc<Where>,
    /// The root, if somebody has it open.
    root: Option<Kept>,
    /// The place's directory, as soon as it is kept.
    dir: OnceLock<Arc<PlaceFd>>,
    /// The root's own path has links, so that it has to be opened by itself.
    is_linked: AtomicBool,
    /// Device and inode of the place's directory, for a view that keeps nothing and has found it.
    found: OnceLock<(CString, (u64, u64))>,
}

/// Where an anchor is; one for all views of it.
#[derive(Debug)]
struct Where {
    place: Place,
    /// The first directory below the root in which links are not followed.
    guard: PathBuf,
}

/// The directory of a place.
#[derive(Debug)]
pub enum PlaceFd {
    /// For a view that lives as long as a call.
    Brief(BareFd),
    /// For one that is kept.
    Kept(HighFd),
}

impl AsFd for PlaceFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            PlaceFd::Brief(fd) => fd.as_fd(),
            PlaceFd::Kept(fd) => fd.as_fd(),
        }
    }
}

impl Anchor {
    fn new(guard: &Path) -> Anchor {
        let place =
            Place { root: guard.parent().unwrap_or(guard).to_path_buf(), dir: guard.to_path_buf() };
        Anchor::at(Arc::new(Where { place, guard: guard.to_path_buf() }), None)
    }

    fn at(at: Arc<Where>, root: Option<Kept>) -> Anchor {
        Anchor {
            at,
            root,
            dir: OnceLock::new(),
            is_linked: AtomicBool::new(false),
            found: OnceLock::new(),
        }
    }
}

/// The first directory on the way to `path` that is called as those are in which containers lie, if
/// there is one.
fn guard_of(path: &Path) -> Option<&Path> {
    path.ancestors().filter(|dir| dir.file_name() == Some(OsStr::new(ROOT_DIR))).last()
}

/// What of `path` lies below `dir`, if it does. By bytes, because it is asked at each call: a path
/// that is written in another way ends at the slower lookup, which is as right.
fn rest_of<'a>(path: &'a Path, dir: &Path) -> Option<&'a Path> {
    let dir = dir.as_os_str().as_bytes();
    let dir = dir.strip_suffix(b"/").unwrap_or(dir);
    match path.as_os_str().as_bytes().strip_prefix(dir)? {
        [] => Some(Path::new("")),
        [b'/', rest @ ..] => Some(Path::new(OsStr::from_bytes(rest))),
        _ => None,
    }
}

impl std::fmt::Debug for Anchor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Anchor")
            .field("place", &self.at.place)
            .field("dir", &self.dir)
            .finish_non_exhaustive()
    }
}

/// Where a path inside is looked up from.
enum Base<'a> {
    /// One of the view's places.
    Place(&'a Anchor),
    /// The directory with the `.plfs` that the path goes through.
    Found(Box<Anchor>),
}

impl std::ops::Deref for Base<'_> {
    type Target = Anchor;
    fn deref(&self) -> &Anchor {
        match self {
            Base::Place(anchor) => anchor,
            Base::Found(anchor) => anchor,
        }
    }
}

/// A path inside.
pub struct Spot<'a> {
    inside: &'a Inside,
    anchor: Base<'a>,
    path: &'a Path,
    /// What is to be looked up from the place's directory; `None` if it lies above that.
    rest: Option<&'a Path>,
}

/// A directory to look one name up in.
pub enum Dir<'a> {
    Kept(BorrowedFd<'a>),
    Own(BareFd),
}

impl AsFd for Dir<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Dir::Kept(fd) => *fd,
            Dir::Own(fd) => fd.as_fd(),
        }
    }
}

impl Inside {
    /// A view of these places. `roots` are descriptors of their roots, as far as there are some.
    /// With `walk` it does without openat2(2).
    pub fn new(places: Vec<Place>, roots: Vec<Option<Kept>>, keep: Keep, walk: bool) -> Inside {
        Inside::without_descriptors(places, roots, keep, walk).with_descriptors()
    }

    fn without_descriptors(
        places: Vec<Place>,
        mut roots: Vec<Option<Kept>>,
        keep: Keep,
        walk: bool,
    ) -> Inside {
        roots.resize_with(places.len(), || None);
        let anchor = |(place, root): (Place, Option<Kept>)| {
            let first = rest_of(&place.dir, &place.root).and_then(|rest| rest.components().next());
            let guard = first.map_or_else(|| place.dir.clone(), |first| place.root.join(first));
            Anchor::at(Arc::new(Where { place, guard }), root)
        };
        Inside {
            anchors: places.into_iter().zip(roots).map(anchor).collect(),
            keep,
            walk,
            is_held: AtomicBool::new(false),
        }
    }

    fn with_descriptors(self) -> Inside {
        if let (Keep::Now | Keep::ToHold, Some(first)) = (self.keep, self.anchors.first()) {
            // What is not there, or cannot be opened now, is an error of the first call that needs
            // it.
            let _ = self.dir(first);
        }
        self
    }

    /// Whether it is a view of these places already.
    pub fn is(&self, places: &[Place], keep: Keep) -> bool {
        let does = match keep {
            Keep::Nothing => self.keep == Keep::Nothing,
            Keep::WhenUsed => self.keep != Keep::Nothing,
            Keep::Now | Keep::ToHold => {
                let first = self.anchors.first().and_then(|first| first.dir.get());
                first.is_some_and(|dir| matches!(**dir, PlaceFd::Kept(_)))
            }
            Keep::Later { .. } => self.keep == keep,
        };
        does && self.anchors.iter().map(|anchor| &anchor.at.place).eq(places)
    }

    /// Where `path` lies inside; `None` if it does not.
    pub fn find<'a>(&'a self, path: &'a Path) -> Option<Spot<'a>> {
        let spot = |anchor, rest| Spot { inside: self, anchor, path, rest };
        let kept = |anchor: &'a Anchor| {
            Some(spot(Base::Place(anchor), Some(rest_of(path, &anchor.at.place.dir)?)))
        };
        let guarded = || {
            self.anchors
                .iter()
                .find(|anchor| rest_of(path, &anchor.at.guard).is_some())
                .map(|anchor| spot(Base::Place(anchor), None))
        };
        // Another root or backend, of which this view was not told.
        let other =
            || guard_of(path).map(|guard| spot(Base::Found(Box::new(Anchor::new(guard))), None));
        self.anchors.iter().find_map(kept).or_else(guarded).or_else(other)
    }

    /// The descriptor of `dir`, between a root and a place whose directory is kept: by the way up,
    /// which is there whatever was renamed.
    pub fn above(&self, dir: &Path, flags: OFlags) -> Option<Result<OwnedFd>> {
        let (fd, up) = self.way_up(dir)?;
        let flags = flags | OFlags::CLOEXEC;
        Some(retry_on_intr(|| rustix::fs::openat(fd, &up, flags, Mode::empty())))
    }

    /// Opens `rest` below the directory that [`Inside::above`] finds; `None` if it finds none.
    fn by_way_up(
        &self,
        dir: &Path,
        rest: &Path,
        flags: OFlags,
        mode: Mode,
    ) -> Option<Result<OwnedFd>> {
        let (fd, up) = self.way_up(dir)?;
        if !self.walk && !is_missing() && is_downward(rest) {
            // In one step, but where that finds nothing: is it the way up that does?
            let is_there = || retry_on_intr(|| rustix::fs::statat(fd, &up, AtFlags::empty()));
            match openat2(fd, &up.join(rest), flags, mode, ResolveFlags::NO_SYMLINKS) {
                None => {}
                Some(Err(Errno::NOENT)) if is_there().is_err() => return None,
                Some(opened) => return Some(opened),
            }
        }
        let dir = BareFd::new(self.above(dir, DIR)?.ok()?);
        Some(beneath(dir.as_fd(), rest, flags, mode, self.walk))
    }

    /// From where, and by which path of `..`, [`Inside::above`] goes to `dir`.
    fn way_up(&self, dir: &Path) -> Option<(BorrowedFd<'_>, PathBuf)> {
        let way = |anchor| {
            let fd = match self.keep {
                Keep::Later { .. } => self.dir(anchor).ok()?,
                _ => anchor.dir.get()?.as_fd(),
            };
            let down = anchor
                .at
                .place
                .dir
                .strip_prefix(dir)
                .ok()
                .filter(|_| dir.starts_with(&anchor.at.place.root))?;
            let up: PathBuf = [Path::new(".")]
                .into_iter()
                .chain(down.components().map(|_| Path::new("..")))
                .collect();
            Some((fd, up))
        };
        self.anchors.iter().find_map(way)
    }

    fn dir<'a>(&self, anchor: &'a Anchor) -> Result<BorrowedFd<'a>> {
        if let Some(fd) = anchor.dir.get() {
            return Ok(fd.as_fd());
        }
        let _passing = Passing::new();
        let fd = match self.keep {
            Keep::Later { dev, ino } => self.find_place(anchor, (dev, ino)),
            _ => self.open_place(anchor, Inside::far_now),
        }?;
        let fd = match self.keep.is_to_stay() {
            true => PlaceFd::Kept(HighFd::new(fd)),
            false => PlaceFd::Brief(BareFd::new(fd)),
        };
        Ok(anchor.dir.get_or_init(|| Arc::new(fd)).as_fd())
    }

    /// Opens the directory of a place.
    fn open_place(
        &self,
        anchor: &Anchor,
        open: impl Fn(&Inside, &Anchor, &Path, OFlags, Mode) -> Result<OwnedFd>,
    ) -> Result<OwnedFd> {
        let open = |flags| {
            let open = || open(self, anchor, &anchor.at.place.dir, flags, Mode::empty());
            match self.keep {
                // Its file is open, and comes before those that are to be opened.
                Keep::Later { .. } => with_room(open),
                _ => with_room_to_keep(open),
            }
        };
        match self.keep.is_to_hold() {
            // Who may not read it may look names up in it.
            true => match open(READ_DIR) {
                Err(Errno::ACCESS) => open(DIR),
                other => other,
            },
            false => open(DIR),
        }
    }

    /// Opens the directory of a place whose superblock this is, wherever it is by now: below the
    /// root, or below a directory above the name by which the process has the superblock open.
    fn find_place(&self, anchor: &Anchor, superblock: (u64, u64)) -> Result<OwnedFd> {
        // NOENT: it is another's.
        let open = |anchor: &Anchor| -> Result<OwnedFd> {
            let dir = BareFd::open(|| self.open_place(anchor, Inside::far_by_path))?;
            let stat =
                retry_on_intr(|| rustix::fs::statat(&dir, name::SUPER, AtFlags::SYMLINK_NOFOLLOW))?;
            match (stat.st_dev, stat.st_ino) == superblock {
                true => Ok(dir.into_owned()),
                false => Err(Errno::NOENT),
            }
        };
        let errno = match open(anchor) {
            Err(errno) if !matches!(errno, Errno::MFILE | Errno::NFILE) => errno,
            other => return other,
        };
        let inside = rest_of(&anchor.at.place.dir, &anchor.at.place.root).ok_or(Errno::NOENT)?;
        for opened in names_of(superblock) {
            for root in opened.ancestors().skip(1) {
                let place = Place { root: root.to_path_buf(), dir: root.join(inside) };
                let moved = Arc::new(Where { place, guard: root.join(ROOT_DIR) });
                if let Ok(fd) = open(&Anchor::at(moved, None)) {
                    return Ok(fd);
                }
            }
        }
        Err(errno)
    }

    /// The same view, with descriptors of its own.
    pub fn again(&self, keep: Keep) -> Inside {
        let again = |anchor: &Anchor| Anchor::at(anchor.at.clone(), anchor.root.clone());
        let anchors = self.anchors.iter().map(again).collect();
        Inside { anchors, keep, walk: self.walk, is_held: AtomicBool::new(false) }
            .with_descriptors()
    }

    /// The same view for who keeps it: the directory of the first place, if it is open here, is not
    /// looked up again.
    pub fn kept(&self, places: Vec<Place>, roots: Vec<Option<Kept>>, keep: Keep) -> Inside {
        let is_same = self.anchors.iter().map(|anchor| &anchor.at.place).eq(&places);
        let open = self.anchors.first().filter(|_| is_same).and_then(|first| first.dir.get());
        let fd = open.and_then(|fd| match keep {
            // A lock of one view must not be the other's, too.
            keep if keep.is_to_hold() => {
                let open = || with_room_to_keep(|| open_again(fd.as_fd(), READ_DIR));
                HighFd::open(open).ok()
            }
            _ => HighFd::copy_of(fd.as_fd()).ok(),
        });
        let inside = Inside::without_descriptors(places, roots, keep, self.walk);
        if let (Some(first), Some(fd)) = (inside.anchors.first(), fd) {
            let _ = first.dir.set(Arc::new(PlaceFd::Kept(fd)));
        }
        inside.with_descriptors()
    }

    /// [`Store::kept_dir`](super::Store::kept_dir).
    pub fn kept_dir(&self) -> Option<Result<Arc<PlaceFd>>> {
        let first = self.anchors.first().filter(|_| self.keep == Keep::Now)?;
        Some(self.readable(first))
    }

    fn readable(&self, anchor: &Anchor) -> Result<Arc<PlaceFd>> {
        self.dir(anchor)?;
        let dir = anchor.dir.get().ok_or(Errno::BADF)?;
        if let PlaceFd::Kept(fd) = dir.as_ref()
            && rustix::fs::fcntl_getfl(fd)?.contains(OFlags::PATH)
        {
            let readable = BareFd::open(|| with_room(|| open_again(fd.as_fd(), READ_DIR)))?;
            fd.replace(readable)?;
        }
        Ok(dir.clone())
    }

    /// [`Store::hold`](super::Store::hold).
    pub fn hold(self: &Arc<Self>) -> Option<Result<Held>> {
        let first = self.anchors.first().filter(|_| self.keep.is_to_hold())?;
        if self.is_held.swap(true, Ordering::AcqRel) {
            return None;
        }
        let locked = self.lock(first);
        if !matches!(locked, Some(Ok(()))) {
            self.is_held.store(false, Ordering::Release);
        }
        locked.map(|locked| locked.map(|()| Held(self.clone())))
    }

    fn lock(&self, anchor: &Anchor) -> Option<Result<()>> {
        self.dir(anchor).ok()?;
        let PlaceFd::Kept(dir) = anchor.dir.get()?.as_ref() else { return None };
        match lock_shared(dir.as_fd()) {
            // It was only looked up, as the one that a release leaves.
            Err(Errno::BADF) => {
                let open = || open_again(dir.as_fd(), READ_DIR);
                let readable = BareFd::open(|| with_room(open)).ok()?;
                Some(lock_shared(readable.as_fd()).and_then(|()| dir.replace(readable)))
            }
            locked => Some(locked),
        }
    }

    /// Ends the hold without a call that unlocks: a child of a fork that happened meanwhile shares
    /// what is open here, and its hold is to last. So what is locked is closed, and another
    /// descriptor of the directory takes its place.
    fn release(&self) {
        let first = self.anchors.first().and_then(|first| first.dir.get());
        if let Some(PlaceFd::Kept(dir)) = first.map(Arc::as_ref)
            && let Ok(other) = BareFd::open(|| with_room(|| open_again(dir.as_fd(), DIR)))
        {
            // What cannot be replaced stays locked until the view goes, and its place is garbage
            // then if it has no name.
            let _ = dir.replace(other);
        }
        self.is_held.store(false, Ordering::Release);
    }

    /// Opens `path` from the root on.
    fn far(&self, anchor: &Anchor, path: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd> {
        self.with_room(|| self.far_now(anchor, path, flags, mode))
    }

    /// Calls what needs a descriptor for a moment. Who has a file open comes before who opens one.
    fn with_room<T>(&self, call: impl FnMut() -> Result<T>) -> Result<T> {
        match self.keep.is_to_stay() {
            true => with_room(call),
            false => with_room_to_keep(call),
        }
    }

    fn far_now(&self, anchor: &Anchor, path: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd> {
        // What lies beside the place is found by the way up, whatever was renamed above.
        let rest = rest_of(path, &anchor.at.guard);
        match rest.and_then(|rest| self.by_way_up(&anchor.at.guard, rest, flags, mode)) {
            Some(opened) => opened,
            None => self.far_by_path(anchor, path, flags, mode),
        }
    }

    fn far_by_path(
        &self,
        anchor: &Anchor,
        path: &Path,
        flags: OFlags,
        mode: Mode,
    ) -> Result<OwnedFd> {
        let rest = || path.strip_prefix(&anchor.at.place.root).map_err(|_| Errno::INVAL);
        if let Some(root) = &anchor.root {
            return beneath((**root).as_fd(), rest()?, flags, mode, self.walk);
        }
        if !self.walk && !anchor.is_linked.load(Ordering::Relaxed) && !is_missing() {
            // In one step if the root's path has no links either, as most have none.
            match openat2(CWD, path, flags, mode, ResolveFlags::NO_SYMLINKS) {
                Some(Err(Errno::LOOP)) | None => {}
                Some(other) => return other,
            }
        }
        let root = open_root(&anchor.at.place.root)?;
        let opened = beneath(root.as_fd(), rest()?, flags, mode, self.walk);
        if opened.is_ok() {
            anchor.is_linked.store(true, Ordering::Relaxed);
        }
        opened
    }
}

/// The names by which this process has a file open.
fn names_of(file: (u64, u64)) -> Vec<PathBuf> {
    let mut names = Vec::new();
    let open = || rustix::fs::open(in_own_proc("fd"), READ_DIR | OFlags::CLOEXEC, Mode::empty());
    let Ok(opened) = BareFd::open(|| retry_on_intr(open)) else {
        return names;
    };
    // What cannot be asked is not it.
    let _ = visit_fd(opened.as_fd(), &mut |entry| {
        let link = entry.name.as_os_str();
        if file_behind(opened.as_fd(), link).is_ok_and(|found| found == file)
            && let Ok(name) = rustix::fs::readlinkat(&opened, link, Vec::new())
        {
            names.push(PathBuf::from(OsString::from_vec(name.into_bytes())));
        }
        ControlFlow::Continue(())
    });
    names
}

/// Device and inode of what an entry of that directory leads to, as it is known here: another's
/// file may be on a server that does not answer.
fn file_behind(opened: BorrowedFd<'_>, link: &OsStr) -> Result<(u64, u64)> {
    let (flags, mask) = (AtFlags::STATX_DONT_SYNC, StatxFlags::INO);
    match retry_on_intr(|| rustix::fs::statx(opened, link, flags, mask)) {
        Ok(stat) => Ok((makedev(stat.stx_dev_major, stat.stx_dev_minor), stat.stx_ino)),
        // Linux before 4.11, or a sandbox.
        Err(Errno::NOSYS) => retry_on_intr(|| rustix::fs::statat(opened, link, AtFlags::empty()))
            .map(|stat| (stat.st_dev, stat.st_ino)),
        Err(errno) => Err(errno),
    }
}

/// A lock on the directory of a view's first place, until it is dropped.
#[derive(Debug)]
pub struct Held(Arc<Inside>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.release();
    }
}

fn lock_shared(dir: BorrowedFd<'_>) -> Result<()> {
    match retry_on_intr(|| rustix::fs::flock(dir, FlockOperation::NonBlockingLockShared)) {
        // No such locks here: see `StoreFile::try_lock`.
        Err(Errno::NOSYS | Errno::OPNOTSUPP) => Ok(()),
        other => other,
    }
}

/// Another descriptor of a directory that is open, which shares nothing with it.
fn open_again(dir: BorrowedFd<'_>, flags: OFlags) -> Result<OwnedFd> {
    retry_on_intr(|| rustix::fs::openat(dir, ".", flags | OFlags::CLOEXEC, Mode::empty()))
}

fn open_root(root: &Path) -> Result<BareFd> {
    let how = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    BareFd::open(|| retry_on_intr(|| rustix::fs::open(root, how, Mode::empty())))
}

impl Spot<'_> {
    /// Opens it. A link is ELOOP, at any part of the path; the last one, with `PATH | NOFOLLOW`, is
    /// opened itself.
    pub fn open(&self, flags: OFlags, mode: Mode) -> Result<OwnedFd> {
        match self.rest {
            Some(rest) if self.inside.keep != Keep::Nothing => {
                let dir = self.inside.dir(&self.anchor)?;
                self.inside.with_room(|| beneath(dir, rest, flags, mode, self.inside.walk))
            }
            _ => self.inside.far(&self.anchor, self.path, flags, mode),
        }
    }

    /// The stat of a place's directory by its path, if it is the one that was found there before:
    /// so no link led elsewhere. One call, for a view that keeps nothing.
    pub fn found_before(&self, links: Links) -> Option<rustix::fs::Stat> {
        let (path, found) =
            (links == Links::Follow && self.is_place()).then(|| self.anchor.found.get())??;
        let stat = retry_on_intr(|| rustix::fs::stat(path)).ok()?;
        (*found == (stat.st_dev, stat.st_ino)).then_some(stat)
    }

    /// Notes what was found for [`Spot::found_before`].
    pub fn note_found(&self, stat: &rustix::fs::Stat) {
        if self.is_place() {
            let path = CString::new(self.path.as_os_str().as_bytes());
            let _ = path.map(|path| self.anchor.found.set((path, (stat.st_dev, stat.st_ino))));
        }
    }

    fn is_place(&self) -> bool {
        // Whoever has the root open may have mounted something over its path.
        self.inside.keep == Keep::Nothing
            && self.anchor.root.is_none()
            && self.rest.is_some_and(|rest| rest.as_os_str().is_empty())
    }

    /// The directory that it is in, and its name there.
    pub fn parent(&self) -> Result<(Dir<'_>, &Path)> {
        // Most often, and without a parser of paths.
        if let Some(rest) =
            self.rest.filter(|rest| self.inside.keep != Keep::Nothing && is_name(rest))
        {
            return Ok((Dir::Kept(self.inside.dir(&self.anchor)?), rest));
        }
        let name = Path::new(self.path.file_name().ok_or(Errno::XDEV)?);
        if let Some(rest) = self
            .rest
            .filter(|rest| self.inside.keep != Keep::Nothing && !rest.as_os_str().is_empty())
        {
            let dir = self.inside.dir(&self.anchor)?;
            return match rest.parent().filter(|above| !above.as_os_str().is_empty()) {
                None => Ok((Dir::Kept(dir), name)),
                Some(above) => {
                    let open = || beneath(dir, above, DIR, Mode::empty(), self.inside.walk);
                    Ok((Dir::Own(BareFd::open(|| self.inside.with_room(open))?), name))
                }
            };
        }
        if self.path == self.anchor.at.guard {
            return match &self.anchor.root {
                Some(root) => Ok((Dir::Kept((**root).as_fd()), name)),
                None => Ok((Dir::Kept(CWD), self.path)),
            };
        }
        let above = self.path.parent().ok_or(Errno::XDEV)?;
        let open = || self.inside.far(&self.anchor, above, DIR, Mode::empty());
        Ok((Dir::Own(BareFd::open(open)?), name))
    }

    /// A directory and a name in it, for calls that do not follow a last link: `.` for a directory
    /// that is kept.
    pub fn at(&self) -> Result<(Dir<'_>, &Path)> {
        match self.is_kept() {
            true => Ok((Dir::Kept(self.inside.dir(&self.anchor)?), Path::new("."))),
            false => self.parent(),
        }
    }

    /// Whether it is a directory that is kept open.
    pub fn is_kept(&self) -> bool {
        self.inside.keep != Keep::Nothing
            && self.rest.is_some_and(|rest| rest.as_os_str().is_empty())
    }

    /// Whether [`Spot::at`] costs nothing.
    pub fn is_near(&self) -> bool {
        let is_child = self.inside.keep != Keep::Nothing
            && self.rest.is_some_and(|rest| is_name(rest) || rest.components().nth(1).is_none());
        is_child || self.path == self.anchor.at.guard
    }
}

/// Whether a path is a name in its directory and nothing else.
fn is_name(path: &Path) -> bool {
    let bytes = path.as_os_str().as_bytes();
    !bytes.is_empty() && !bytes.starts_with(b".") && !bytes.contains(&b'/')
}

/// A directory, only to look names up in.
const DIR: OFlags = OFlags::PATH.union(OFlags::DIRECTORY);

/// A directory, to read or lock it as well.
pub(super) const READ_DIR: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY);

/// Opens what lies at `rest` below the directory `base`, following no link and leaving `base` in no
/// way. `walk`: without openat2(2).
pub fn beneath(
    base: BorrowedFd<'_>,
    rest: &Path,
    flags: OFlags,
    mode: Mode,
    walk: bool,
) -> Result<OwnedFd> {
    if !is_downward(rest) {
        return Err(Errno::XDEV);
    }
    let rest = if rest.as_os_str().is_empty() { Path::new(".") } else { rest };
    if !walk
        && !is_missing()
        && let Some(opened) =
            openat2(base, rest, flags, mode, ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS)
    {
        return opened;
    }
    by_parts(base, rest, flags, mode)
}

fn is_downward(path: &Path) -> bool {
    path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
}

/// `None` if there is no such call.
fn openat2(
    base: BorrowedFd<'_>,
    path: &Path,
    flags: OFlags,
    mode: Mode,
    resolve: ResolveFlags,
) -> Option<Result<OwnedFd>> {
    let call = |base, path, flags, mode, resolve| {
        retry_on_intr(|| rustix::fs::openat2(base, path, flags | OFlags::CLOEXEC, mode, resolve))
    };
    match call(base, path, flags, mode, resolve | ResolveFlags::NO_MAGICLINKS) {
        Ok(fd) => {
            if OPENAT2.load(Ordering::Relaxed) == UNKNOWN {
                OPENAT2.store(THERE, Ordering::Relaxed);
            }
            Some(Ok(fd))
        }
        // A path that changes while it is looked up.
        Err(Errno::AGAIN) => None,
        // What the file system says; or what a sandbox says of calls that it does not know, and
        // then it says it of this one, too.
        Err(errno @ (Errno::NOSYS | Errno::PERM)) if OPENAT2.load(Ordering::Relaxed) != THERE => {
            let (root, none) = (Path::new("/"), ResolveFlags::empty());
            match BareFd::open(|| call(CWD, root, OFlags::PATH, Mode::empty(), none)) {
                Ok(_) => Some(Err(errno)),
                Err(_) => {
                    OPENAT2.store(MISSING, Ordering::Relaxed);
                    None
                }
            }
        }
        other => Some(other),
    }
}

/// [`beneath`], one part after the other, each opened without following it.
fn by_parts(base: BorrowedFd<'_>, rest: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd> {
    let mut above: Option<BareFd> = None;
    let mut parts = rest.components().map(Component::as_os_str).peekable();
    while let Some(part) = parts.next() {
        let dir = above.as_ref().map_or(base, |fd| fd.as_fd());
        let (how, mode) = if parts.peek().is_some() { (DIR, Mode::empty()) } else { (flags, mode) };
        let opened = retry_on_intr(|| {
            rustix::fs::openat(dir, part, how | OFlags::NOFOLLOW | OFlags::CLOEXEC, mode)
        });
        let opened = opened.map_err(|errno| {
            if errno == Errno::NOTDIR && is_link(dir, part) { Errno::LOOP } else { errno }
        })?;
        if parts.peek().is_none() {
            let opened = BareFd::new(opened);
            // This alone opens a link.
            let may_be_link = flags.contains(OFlags::PATH) && !flags.contains(OFlags::NOFOLLOW);
            if may_be_link
                && FileType::from_raw_mode(retry_on_intr(|| rustix::fs::fstat(&opened))?.st_mode)
                    == FileType::Symlink
            {
                return Err(Errno::LOOP);
            }
            return Ok(opened.into_owned());
        }
        above = Some(BareFd::new(opened));
    }
    Err(Errno::NOENT)
}

fn is_link(dir: BorrowedFd<'_>, name: &OsStr) -> bool {
    let stat = retry_on_intr(|| rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW));
    stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink)
}

/// chmod(2) of what is open as `fd`, with whatever rights: fchmod(2) refuses a descriptor that was
/// only looked up.
pub fn chmod(spot: &Spot<'_>, mode: Mode) -> Result<()> {
    if spot.is_kept() {
        let (dir, name) = spot.at()?;
        return retry_on_intr(|| rustix::fs::chmodat(&dir, name, mode, AtFlags::empty()));
    }
    let fd = BareFd::open(|| spot.open(OFlags::PATH, Mode::empty()))?;
    match retry_on_intr(|| rustix::fs::chmod(fd_path(fd.as_fd().as_raw_fd()), mode)) {
        // No /proc here.
        Err(Errno::NOENT | Errno::NOTDIR) => {
            let how = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
            let fd = BareFd::open(|| spot.open(how, Mode::empty()))?;
            retry_on_intr(|| rustix::fs::fchmod(&fd, mode))
        }
        other => other,
    }
}
