//! L5: where the names of a directory are whose workload is flat (docs/decisions/0022).
//!
//! Each name lies in one **shadow** of its directory, a directory on a backend, by its hash; there
//! it is what it is: a file, a link, a directory, whose own names lie in shadows again. So whatever
//! concerns one name is one call of the file system, and atomic. What spans backends, a rename or a
//! link, gives the name a symbolic link that leads to a **slot** on the other backend; the name is
//! what is in the slot from the moment on when the one call is made that puts it there.
//!
//! Names of shadows and slots are random and never made twice: what is gone is gone for ever. So
//! nobody who comes late can make something reachable again that others have given up.

mod check;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use lru::LruCache;
use plfs_format::layout::{Backends, Workload};
use plfs_format::name::{self, Uuid};
use plfs_format::spread::{self as format, Map, Moved, Target};

use crate::container::{Table, find_root, is_hidden, is_map, make_shared, own_layout, read_text};
use crate::error::{At, Error, Result};
use crate::store::machine::{boot_time_ns, fill_random};
use crate::store::{self, Entry, Errno, Kind, Links, Open, Stat, Store, StoreFile};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Arc, Mutex, lock, thread};

pub use check::FlatReport;
pub(crate) use check::Walked;

/// How long a directory is believed to be where it was, and to be flat or not: as a layout.
const BELIEVED_NS: u64 = 500_000_000;
/// Directories that are remembered. 4,096: some MB.
const KNOWN_MAX: usize = 4096;
/// PATH_MAX of Linux: the kernel refuses what is longer.
const PATH_MAX: usize = 4096;
/// Symbolic links followed in one path (path_resolution(7)).
const LINKS_MAX: u32 = 40;
/// Slots that a name leads through: one, and one for each rename that died.
const HOPS_MAX: u32 = 100;
/// How often something is tried again because others have changed it in between.
const TRIES: u32 = 1000;
/// How often somebody asks for his turn, a millisecond apart.
const TURN_TRIES: u32 = 30_000;
/// How often the shadow of a new name may be missing.
const MISSING_MAX: u32 = 20;

/// Directories on the storage whose names are remembered, for who comes back with a descriptor of
/// one, or works in it. 65,536: some 20 MB.
const NAMED_MAX: usize = 65_536;

/// What a directory was found to be, and when; `None`: an ordinary one, or none.
type Seen = (u64, Option<Arc<Dir>>);

/// The directories that a process knows.
#[derive(Debug)]
pub(crate) struct Known {
    dirs: Mutex<LruCache<PathBuf, Seen>>,
    /// Some were spread.
    any: AtomicBool,
    /// By the path on the storage of a directory in a spread one, or of a shadow: the path that
    /// programs know it by, or whose shadow it is. It may be of something else by now.
    named: Mutex<LruCache<PathBuf, PathBuf>>,
}

impl Default for Known {
    fn default() -> Known {
        Known {
            dirs: Mutex::new(LruCache::unbounded()),
            any: AtomicBool::new(false),
            named: Mutex::new(LruCache::unbounded()),
        }
    }
}

impl Known {
    /// The next look asks the storage.
    pub(crate) fn forget(&self) {
        lock(&self.dirs).clear();
    }

    fn put(&self, path: &Path, now: u64, found: Option<Arc<Dir>>) {
        let mut dirs = lock(&self.dirs);
        dirs.put(path.to_path_buf(), (now, found));
        if dirs.len() > KNOWN_MAX {
            dirs.pop_lru();
        }
    }

    /// Whether there has been a spread directory.
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// What was last at `place` has the path `name`.
    pub(crate) fn remember(&self, place: &Path, name: &Path) {
        let mut named = lock(&self.named);
        if named.get(place).is_some_and(|known| known == name) {
            return;
        }
        named.put(place.to_path_buf(), name.to_path_buf());
        if named.len() > NAMED_MAX {
            named.pop_lru();
        }
    }

    /// The path that [`Known::remember`] was told for `place`.
    pub(crate) fn name_of(&self, place: &Path) -> Option<PathBuf> {
        lock(&self.named).get(place).cloned()
    }

    /// The directory `from` is `to` now, with all below it.
    pub(crate) fn renamed(&self, from: &Path, to: &Path) {
        self.forget();
        for (_, name) in lock(&self.named).iter_mut() {
            if let Ok(rest) = name.strip_prefix(from) {
                *name = match rest.as_os_str().is_empty() {
                    true => to.to_path_buf(),
                    false => to.join(rest),
                };
            }
        }
    }
}

/// A backend's directory of shadows and slots.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Base {
    backend: u16,
    path: PathBuf,
}

impl Base {
    fn at(&self, uuid: &Uuid) -> PathBuf {
        self.path.join(format::hex(uuid))
    }
}

/// A directory whose names are spread.
#[derive(Debug)]
pub(crate) struct Dir {
    /// The directory itself, which has the map and no names: the one with the layout, or one in a
    /// shadow.
    pub(crate) home: PathBuf,
    /// Device and inode of `home`.
    id: (u64, u64),
    above: Above,
    root: PathBuf,
    dev: u64,
    backends: Backends,
    /// The number of the map; `None`: there is none, and no name.
    number: Option<u32>,
    map: Map,
    bases: Vec<Base>,
}

/// What a directory lay in when it was found.
#[derive(Clone, Debug)]
enum Above {
    /// It has the layout.
    Top,
    /// A directory in another one.
    In(Arc<Dir>),
    /// Whoever has it open knows it by its inode.
    Unknown,
}

/// A flat directory that somebody has open and knows by its inode. Its path may be one in a shadow,
/// which says nothing of the tree that it is in.
#[derive(Clone, Debug)]
pub struct FlatDir {
    home: PathBuf,
    tree: Arc<Tree>,
}

/// The outermost flat directory, and the names that lead from there to another one.
pub type Line = (FlatDir, Vec<OsString>);

#[derive(Debug)]
struct Tree {
    root: PathBuf,
    dev: u64,
    backends: Backends,
}

impl FlatDir {
    /// A directory in this one, or this one itself, that is at `home` on the storage now.
    pub fn at(&self, home: PathBuf) -> FlatDir {
        FlatDir { home, tree: self.tree.clone() }
    }

    pub(crate) fn of(dir: &Dir) -> FlatDir {
        let Dir { home, root, dev, backends, .. } = dir;
        let tree = Tree { root: root.clone(), dev: *dev, backends: backends.clone() };
        FlatDir { home: home.clone(), tree: Arc::new(tree) }
    }

    pub(crate) fn at_home(&self) -> &Path {
        &self.home
    }

    pub(crate) fn join(&self, name: &OsStr) -> PathBuf {
        self.home.join(name)
    }
}

/// Where a name is, or would be.
#[derive(Clone, Debug)]
struct Spot {
    path: PathBuf,
    base: Base,
}

impl Dir {
    fn place(&self, name: &OsStr) -> Spot {
        let index = self.map.index_of(name.as_bytes());
        let (base, (_, shadow)) = (self.bases[index].clone(), &self.map.shadows[index]);
        Spot { path: base.at(shadow).join(name), base }
    }

    fn shadows(&self) -> impl Iterator<Item = (&Base, PathBuf)> {
        self.bases.iter().zip(&self.map.shadows).map(|(base, (_, uuid))| (base, base.at(uuid)))
    }

    /// Whether names lie in `path`.
    pub(crate) fn has_shadow(&self, path: &Path) -> bool {
        self.shadows().any(|(_, shadow)| shadow == path)
    }

    pub(crate) fn is_beside(&self, one: &OsStr, two: &OsStr) -> bool {
        self.map.index_of(one.as_bytes()) == self.map.index_of(two.as_bytes())
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The backends of its map; `None`: it has none.
    pub(crate) fn backends_of_names(&self) -> Option<Vec<(u16, PathBuf)>> {
        let root = |base: &Base| base.path.ancestors().nth(2).map(Path::to_path_buf);
        let of = |base: &Base| (base.backend, root(base).unwrap_or_default());
        self.number.map(|_| self.bases.iter().map(of).collect())
    }

    fn is_same(&self, other: &Dir) -> bool {
        self.home == other.home
            && self.id == other.id
            && self.number == other.number
            && self.map == other.map
    }

    /// It, what it lies in, and so on, as far as that is known.
    fn and_above(&self) -> impl Iterator<Item = &Dir> {
        std::iter::successors(Some(self), |dir| match &dir.above {
            Above::In(above) => Some(above.as_ref()),
            Above::Top | Above::Unknown => None,
        })
    }
}

/// What a name is.
#[derive(Debug)]
pub(crate) struct Found {
    spot: Spot,
    /// Of what is there; a program's symbolic link included.
    pub(crate) stat: Option<Stat>,
    /// The text of the symbolic link that it is.
    pub(crate) link: Option<Vec<u8>>,
    via: Vec<Via>,
}

impl Found {
    /// Its path on the storage.
    pub(crate) fn path(&self) -> &Path {
        &self.spot.path
    }

    /// Whether it is there, and such a thing.
    pub(crate) fn is_a(&self, kind: Kind) -> bool {
        self.stat.is_some_and(|stat| stat.kind == kind)
    }

    fn is_dir(&self) -> bool {
        self.is_a(Kind::Dir)
    }
}

/// A link to a slot that was met on the way to a name.
#[derive(Debug)]
struct Via {
    at: Spot,
    moved: Moved,
}

/// While it lives, others wait who ask for the same. It ends with the process at the latest.
struct Turn(Arc<dyn StoreFile>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.leave_gate();
    }
}

/// What a path leads to, or what is to be looked for instead.
enum Step {
    Dir(Option<Arc<Dir>>),
    Link(PathBuf),
}

/// What becomes of what is renamed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// It loses its old name.
    Rename,
    /// It keeps it.
    Link,
}

/// What a symbolic link with the text `target` says on the storage.
pub fn link_text(target: &Path) -> PathBuf {
    OsString::from_vec(Target::Text(target.as_os_str().as_bytes().to_vec()).encode()).into()
}

/// The directory of shadows and slots of a backend, as a part of a path.
const SHADOWS: &[u8] = b"/.plfs/spread/";

/// Whether a path is one in a shadow or a slot.
pub fn is_in_shadow(path: &Path) -> bool {
    path.as_os_str().as_bytes().windows(SHADOWS.len()).any(|part| part == SHADOWS)
}

/// Whether a path is one of a shadow, or of something else of PLFS's own.
pub(crate) fn is_own(path: &Path) -> bool {
    path.as_os_str().as_bytes().windows(7).any(|part| part == b"/.plfs/")
}

fn has_parent_dir(path: &Path) -> bool {
    path.components().any(|part| part == Component::ParentDir)
}

/// Parts of a path that are to be gone, the next one last.
fn steps(path: &Path) -> Vec<OsString> {
    let wanted = path.components().rev().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    });
    wanted.collect()
}

fn new_uuid() -> Uuid {
    let mut uuid = Uuid::default();
    fill_random(&mut uuid.0);
    uuid
}

fn is_gone(errno: Errno) -> bool {
    matches!(errno, Errno::NOENT | Errno::NOTDIR)
}

fn is_full(errno: Errno) -> bool {
    matches!(errno, Errno::NOTEMPTY | Errno::EXIST)
}

/// The names of spread directories, for one call.
pub(crate) struct Names<'a> {
    pub(crate) store: &'a dyn Store,
    pub(crate) known: &'a Known,
    pub(crate) mounts: &'a [PathBuf],
    /// Directories that need not be looked for by their paths.
    pub(crate) open: &'a [FlatDir],
    /// Where the one of these was found to which something is renamed: the outermost directory, and
    /// the names that led from there.
    pub(crate) line: Option<&'a Line>,
    /// No directory is moved to another one meanwhile.
    pub(crate) is_alone: bool,
    /// Removes what is no directory at a path on the storage, with its container.
    pub(crate) remove: &'a dyn Fn(&Path) -> Result<()>,
    /// Makes a file durable that is about to replace another one.
    pub(crate) make_durable: &'a dyn Fn(&Path) -> Result<()>,
}

impl Names<'_> {
    /// The spread directory `path`; `None`: it is an ordinary one, or none. What it was half a
    /// second ago at most.
    ///
    /// Costs a stat for each directory above it, and for one that is spread a listing of it and a
    /// small read; for half a second after that nothing, but two calls for each symbolic link in a
    /// spread directory that the path leads through.
    pub(crate) fn dir(&self, path: &Path) -> Result<Option<Arc<Dir>>> {
        let mut at = Cow::Borrowed(path);
        for _ in 0..=LINKS_MAX {
            if let Some(open) = self.open.iter().find(|open| open.home == *at) {
                return self.dir_of(open).map(Some);
            }
            if is_own(&at) || at.as_os_str().len() > PATH_MAX {
                return Ok(None);
            }
            match self.dir_or_link(&at)? {
                Step::Dir(dir) => return Ok(dir),
                Step::Link(to) => at = Cow::Owned(to),
            }
        }
        Err(Errno::LOOP).at("open", path)
    }

    /// [`Names::dir`], and what it and those above it are was asked now.
    ///
    /// Costs a stat for each spread directory of the path.
    fn dir_now(&self, path: &Path) -> Result<Option<Arc<Dir>>> {
        match self.dir(path) {
            Ok(Some(dir)) if !self.is_as_it_was(&dir) => {}
            Err(error) if is_gone(error.errno()) && !self.above_is_as_it_was(path) => {}
            other => return other,
        }
        self.known.forget();
        self.dir(path)
    }

    fn above_is_as_it_was(&self, path: &Path) -> bool {
        let above = path.ancestors().skip(1).find_map(|above| self.dir(above).ok());
        above.flatten().is_none_or(|dir| self.is_as_it_was(&dir))
    }

    fn is_as_it_was(&self, dir: &Dir) -> bool {
        dir.and_above().all(|dir| {
            let stat = self.store.stat(&dir.home, Links::Follow);
            stat.is_ok_and(|stat| (stat.dev, stat.ino) == dir.id)
        })
    }

    /// A directory that is remembered. Paths that lead through links of spread directories never
    /// are: so whoever changes a link changes nothing that is remembered.
    fn dir_or_link(&self, path: &Path) -> Result<Step> {
        let now = boot_time_ns();
        let (mut unknown, mut above) = (Vec::new(), None);
        for dir in path.ancestors() {
            match lock(&self.known.dirs).get(dir) {
                Some((then, found)) if now.saturating_sub(*then) < BELIEVED_NS => {
                    above = found.clone();
                    break;
                }
                _ => unknown.push(dir),
            }
        }
        for dir in unknown.into_iter().rev() {
            above = match self.dir_in(above, dir)? {
                Step::Dir(found) => found,
                Step::Link(to) => {
                    let rest = path.strip_prefix(dir).unwrap_or(Path::new(""));
                    return Ok(Step::Link(to.join(rest)));
                }
            };
            self.known.put(dir, now, above.clone());
        }
        Ok(Step::Dir(above))
    }

    fn dir_of(&self, open: &FlatDir) -> Result<Arc<Dir>> {
        let now = boot_time_ns();
        if let Some((then, Some(found))) = lock(&self.known.dirs).get(&open.home)
            && now.saturating_sub(*then) < BELIEVED_NS
        {
            return Ok(found.clone());
        }
        let Tree { root, dev, backends } = open.tree.as_ref();
        let dir = self.load(open.home.clone(), Above::Unknown, root, *dev, backends.clone())?;
        self.known.put(&open.home, now, Some(dir.clone()));
        Ok(dir)
    }

    /// The directory `path`, that it lies in being known, or where a link there leads.
    fn dir_in(&self, above: Option<Arc<Dir>>, path: &Path) -> Result<Step> {
        let (Some(above), Some(parent)) = (above, path.parent()) else {
            return self.top(path).map(Step::Dir);
        };
        let Some(name) = path.file_name() else {
            // It ends in `..`.
            return self.real(path, Links::Follow).map(Step::Link);
        };
        let (above, found) = self.find_in(above, parent, name, false)?;
        match (&found.link, found.stat) {
            (Some(text), _) => Ok(Step::Link(parent.join(OsStr::from_bytes(text)))),
            (None, None) => Err(Errno::NOENT).at("open", path),
            (None, Some(stat)) if stat.kind != Kind::Dir => Err(Errno::NOTDIR).at("open", path),
            (None, Some(_)) => {
                self.load_in(&above, found.spot.path).map(|dir| Step::Dir(Some(dir)))
            }
        }
    }

    /// What a link in the directory `above` with the text `text` leads to. A `..` is the directory
    /// above the one that the way before it leads to.
    pub(crate) fn target(&self, above: &Path, text: &[u8]) -> Result<PathBuf> {
        let target = above.join(OsStr::from_bytes(text));
        match has_parent_dir(&target) {
            true => self.real(&target, Links::Stay),
            false => Ok(target),
        }
    }

    /// `path` without links and `..`; a link at its end stays if `links` says so, or nothing.
    pub(crate) fn real(&self, path: &Path, links: Links) -> Result<PathBuf> {
        let (mut real, mut todo, mut followed) = (PathBuf::from("/"), steps(path), 0);
        while let Some(step) = todo.pop() {
            if step == ".." {
                real.pop();
                continue;
            }
            let next = real.join(&step);
            if todo.is_empty() && links == Links::Stay {
                return Ok(next);
            }
            let text = match self.readlink(&next) {
                Ok(text) => text,
                // No link.
                Err(error) if error.errno() == Errno::INVAL => {
                    real = next;
                    continue;
                }
                Err(error) => return Err(error),
            };
            followed += 1;
            if followed > LINKS_MAX {
                return Err(Errno::LOOP).at("open", path);
            }
            if text.is_absolute() {
                real = PathBuf::from("/");
            }
            todo.extend(steps(&text));
        }
        Ok(real)
    }

    /// The text of a symbolic link. EINVAL for what is none.
    pub(crate) fn readlink(&self, path: &Path) -> Result<PathBuf> {
        match self.find(path, false)? {
            None => self.store.readlink(path).at("read the link", path),
            Some((_, Found { link: Some(text), .. })) => Ok(OsString::from_vec(text).into()),
            Some((_, found)) => {
                let errno = if found.stat.is_some() { Errno::INVAL } else { Errno::NOENT };
                Err(errno).at("read the link", path)
            }
        }
    }

    /// The directory itself, if it has a layout that says flat.
    fn top(&self, path: &Path) -> Result<Option<Arc<Dir>>> {
        let layout = match own_layout(self.store, path) {
            Ok(Some(layout)) if layout.workload == Some(Workload::Flat) => layout,
            // Of one that cannot be read nobody knows where its names are.
            Err(error) if self.last_map(path).is_ok_and(|last| last.is_some()) => {
                return Err(error);
            }
            _ => return Ok(None),
        };
        // `plfs layout` asks for an empty directory; people may edit the file.
        let entries = self.store.list(path).at("list", path)?;
        if !entries.iter().any(|entry| is_map(&entry.name))
            && !entries.iter().all(|entry| is_hidden(&entry.name))
        {
            return Err(Error::refused(
                Errno::OPNOTSUPP,
                "use",
                path,
                "its layout says flat, and it has files that are not spread: move them away, or \
                 take the workload out of its .plfs-layout",
            ));
        }
        let root = find_root(self.store, &path.join(name::LAYOUT), self.mounts);
        let dev = self.store.stat(&root, Links::Follow).at("stat", &root)?.dev;
        let backends = layout.backends.unwrap_or(Backends::All);
        self.known.any.store(true, Ordering::Relaxed);
        self.load(path.to_path_buf(), Above::Top, &root, dev, backends).map(Some)
    }

    /// The highest number of a map in `home`. A listing of something that has no other names.
    fn last_map(&self, home: &Path) -> Result<Option<u32>> {
        let entries = self.store.list(home).at("list", home)?;
        Ok(entries.iter().filter_map(|entry| format::parse_map_name(entry.name.as_bytes())).max())
    }

    fn read_map(&self, home: &Path) -> Result<(Option<u32>, Map)> {
        for _ in 0..TRIES {
            let Some(number) = self.last_map(home)? else { return Ok((None, Map::default())) };
            let path = home.join(format::map_name(number));
            let Some(text) = read_text(self.store, &path)? else { continue };
            let map = Map::decode(&text).map_err(|bad| Error::of_bytes(&path, bad))?;
            return Ok((Some(number), map));
        }
        Err(Errno::BUSY).at("read the map of", home)
    }

    fn load(
        &self,
        home: PathBuf,
        above: Above,
        root: &Path,
        dev: u64,
        backends: Backends,
    ) -> Result<Arc<Dir>> {
        // Before the map: one that is put there meanwhile is not what is remembered.
        let stat = self.store.stat(&home, Links::Follow).at("open", &home)?;
        let (number, map) = self.read_map(&home)?;
        let (root, bases) = (root.to_path_buf(), Vec::new());
        let id = (stat.dev, stat.ino);
        let mut dir = Dir { home, id, above, root, dev, backends, number, map, bases };
        let bases: Result<_> =
            dir.map.shadows.iter().map(|(backend, _)| self.base(&dir, *backend, false)).collect();
        dir.bases = bases?;
        Ok(Arc::new(dir))
    }

    /// The directory in `above` that is at `home`.
    fn load_in(&self, above: &Arc<Dir>, home: PathBuf) -> Result<Arc<Dir>> {
        let Dir { root, dev, backends, .. } = above.as_ref();
        self.load(home, Above::In(above.clone()), root, *dev, backends.clone())
    }

    fn table<'b>(&'b self, dir: &'b Dir) -> Table<'b> {
        Table { store: self.store, root: &dir.root, dev: dir.dev }
    }

    /// Where a backend has what is spread. `again`: whether it is there is asked.
    fn base(&self, dir: &Dir, backend: u16, again: bool) -> Result<Base> {
        let root = match backend {
            0 => dir.root.clone(),
            id if again => self.table(dir).find_again(id)?,
            id => self.table(dir).find(id)?,
        };
        Ok(Base { backend, path: root.join(name::ROOT_DIR).join(format::DIR) })
    }

    /// The name `path` and its directory, if that is spread. `settle`: for who changes something:
    /// what was begun by others and is not done is decided.
    pub(crate) fn find(&self, path: &Path, settle: bool) -> Result<Option<(Arc<Dir>, Found)>> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Ok(None);
        };
        let Some(dir) = self.dir_now(parent)? else { return Ok(None) };
        self.find_in(dir, parent, name, settle).map(Some)
    }

    /// [`Names::find`] in a directory that may be another by now.
    fn find_in(
        &self,
        mut dir: Arc<Dir>,
        parent: &Path,
        name: &OsStr,
        settle: bool,
    ) -> Result<(Arc<Dir>, Found)> {
        if name.len() > 255 {
            return Err(Errno::NAMETOOLONG).at("open", &parent.join(name));
        }
        for _ in 0..TRIES {
            if dir.number.is_some() {
                let found = self.look(&dir, dir.place(name), settle)?;
                if found.stat.is_some() || !found.via.is_empty() {
                    return Ok((dir, found));
                }
                // Nothing, or a shadow that is not there.
                let shadow = found.spot.path.parent().unwrap_or(&dir.home);
                match self.store.stat(shadow, Links::Stay) {
                    Ok(_) => return Ok((dir, found)),
                    Err(errno) if is_gone(errno) => {
                        self.base(&dir, found.spot.base.backend, true)?;
                    }
                    Err(errno) => return Err(errno).at("stat", shadow),
                }
            }
            self.known.forget();
            let fresh = self.dir(parent)?;
            let fresh = fresh.map_or_else(|| Err(Errno::NOENT).at("open", parent), Ok)?;
            if fresh.is_same(&dir) {
                // It has no names yet, or not there: a removal has died half way.
                let spot = match dir.number {
                    Some(_) => dir.place(name),
                    None => Spot {
                        path: dir.home.join(name),
                        base: Base { backend: 0, path: PathBuf::new() },
                    },
                };
                let found = Found { spot, stat: None, link: None, via: Vec::new() };
                return Ok((dir, found));
            }
            dir = fresh;
        }
        Err(Errno::BUSY).at("look up", &parent.join(name))
    }

    /// What is at a place, or where the links there lead.
    fn look(&self, dir: &Dir, place: Spot, settle: bool) -> Result<Found> {
        let (mut spot, mut via) = (place.clone(), Vec::<Via>::new());
        // Slots that were empty when they were looked at, to be looked at again.
        let mut empty = Vec::<PathBuf>::new();
        for _ in 0..HOPS_MAX {
            let stat = match self.store.stat(&spot.path, Links::Stay) {
                Ok(stat) => stat,
                Err(errno) if is_gone(errno) => {
                    // It may have come there between the looks, when what was before went; or the
                    // name has become something else.
                    let has_come = |entry: &PathBuf| self.store.stat(entry, Links::Stay).is_ok();
                    if empty.iter().any(has_come)
                        || via.first().is_some_and(|via| !self.leads(&via.at, &via.moved))
                    {
                        (spot, via, empty) = (place.clone(), Vec::new(), Vec::new());
                        continue;
                    }
                    return Ok(Found { spot, stat: None, link: None, via });
                }
                Err(errno) => return Err(errno).at("stat", &spot.path),
            };
            if stat.kind != Kind::Symlink {
                return Ok(Found { spot, stat: Some(stat), link: None, via });
            }
            let text = match self.store.readlink(&spot.path) {
                Ok(text) => text.into_os_string().into_vec(),
                // It is something else by now.
                Err(Errno::NOENT | Errno::INVAL) => continue,
                Err(errno) => return Err(errno).at("read the link", &spot.path),
            };
            let moved = match Target::decode(&text) {
                Target::Text(text) => {
                    return Ok(Found { spot, stat: Some(stat), link: Some(text), via });
                }
                Target::Moved(moved) => moved,
            };
            let base = self.base(dir, moved.backend, false)?;
            let slot = base.at(&moved.slot);
            let entry = slot.join(format::ENTRY);
            let is_there = match self.store.stat(&entry, Links::Stay) {
                Ok(_) => true,
                Err(errno) if is_gone(errno) => false,
                Err(errno) => return Err(errno).at("stat", &entry),
            };
            let aside = spot.base.at(&moved.aside);
            if is_there {
                if settle {
                    self.drop_aside(dir, &spot.base, &aside, &slot)?;
                }
                via.push(Via { at: spot, moved });
                spot = Spot { path: entry, base };
                continue;
            }
            if !settle {
                self.must_be_there(dir, &base)?;
                empty.push(entry);
            } else {
                match self.store.rmdir(&slot) {
                    Ok(()) => {}
                    Err(errno) if is_gone(errno) => self.must_be_there(dir, &base)?,
                    // It has come.
                    Err(errno) if is_full(errno) => continue,
                    Err(errno) => return Err(errno).at("remove", &slot),
                }
                if self.store.stat(&aside, Links::Stay).is_err_and(is_gone) {
                    self.retire(dir, &spot, &moved)?;
                    (spot, via) = (place.clone(), Vec::new());
                    continue;
                }
            }
            let base = spot.base.clone();
            via.push(Via { at: spot, moved });
            spot = Spot { path: aside.join(format::ENTRY), base };
        }
        Err(Errno::LOOP).at("look up", &place.path)
    }

    /// Whether a link leads where it did.
    fn leads(&self, at: &Spot, moved: &Moved) -> bool {
        let text = self.store.readlink(&at.path).map(|text| text.into_os_string().into_vec());
        text.is_ok_and(|text| Target::decode(&text) == Target::Moved(*moved))
    }

    /// Nothing was found on a backend: an error if that is not there.
    fn must_be_there(&self, dir: &Dir, base: &Base) -> Result<()> {
        self.base(dir, base.backend, true).map(drop)
    }

    /// Removes what a name was before it was what is in `slot`.
    fn drop_aside(&self, dir: &Dir, base: &Base, aside: &Path, slot: &Path) -> Result<()> {
        match self.store.rmdir(aside) {
            Ok(()) => return Ok(()),
            Err(errno) if is_gone(errno) => return Ok(()),
            Err(errno) if is_full(errno) => {}
            Err(errno) => return Err(errno).at("remove", aside),
        }
        // After a power cut the name must be one or the other.
        match self.store.sync_dir(slot) {
            // What was in it has gone on, and whoever did that has done this before.
            Err(errno) if is_gone(errno) => return Ok(()),
            other => other.at("sync", slot)?,
        }
        let old = Spot { path: aside.join(format::ENTRY), base: base.clone() };
        let found = self.look(dir, old.clone(), true)?;
        if found.stat.is_some() && !found.is_dir() {
            self.remove_gone(found.path())?;
        }
        self.tidy(dir, &found.via)?;
        match self.store.rmdir(aside) {
            Err(errno) if !is_gone(errno) && !is_full(errno) => Err(errno).at("remove", aside),
            _ => Ok(()),
        }
    }

    fn remove_gone(&self, path: &Path) -> Result<()> {
        match (self.remove)(path) {
            Err(error) if is_gone(error.errno()) => Ok(()),
            other => other,
        }
    }

    /// Takes away the slots that led to what is gone, and the links to them.
    fn tidy(&self, dir: &Dir, via: &[Via]) -> Result<()> {
        for Via { at, moved } in via.iter().rev() {
            let slot = self.base(dir, moved.backend, false)?.at(&moved.slot);
            for slot in [slot, at.base.at(&moved.aside)] {
                match self.store.rmdir(&slot) {
                    Ok(()) => {}
                    Err(errno) if is_gone(errno) => {}
                    // Somebody uses it again.
                    Err(errno) if is_full(errno) => return Ok(()),
                    Err(errno) => return Err(errno).at("remove", &slot),
                }
            }
            self.retire(dir, at, moved)?;
        }
        Ok(())
    }

    /// Removes a link both of whose slots are gone.
    ///
    /// Others may have done so, and something else may have the name by now: of those who do this,
    /// or put something in the place of a link, one at a time does it. A rename that has looked at
    /// the name before there was a link does not wait, so what is taken away is looked at.
    fn retire(&self, dir: &Dir, at: &Spot, moved: &Moved) -> Result<()> {
        let _turn = match at.path.parent().is_some_and(|shadow| dir.has_shadow(shadow)) {
            true => self.turn(&at.base.path, format::LINKS_LOCK)?,
            // In a slot nothing else comes.
            false => None,
        };
        if !self.leads(at, moved) {
            return Ok(());
        }
        let out = at.base.at(&new_uuid());
        match self.store.rename(&at.path, &out) {
            Err(errno) if is_gone(errno) => return Ok(()),
            other => other.at("rename", &at.path)?,
        }
        if self.leads(&Spot { path: out.clone(), base: at.base.clone() }, moved) {
            return self.store.unlink(&out).at("remove", &out);
        }
        match self.store.stat(&out, Links::Stay).at("stat", &out)?.kind {
            Kind::Dir => self.store.rename(&out, &at.path).at("rename", &out),
            _ => {
                self.store.link(&out, &at.path).at("put back", &out)?;
                self.store.unlink(&out).at("remove", &out)
            }
        }
    }

    /// Makes something new at `path` by `make`, which gets its path on the storage and fails with
    /// EEXIST if there is something. `None`: its directory is not spread.
    ///
    /// Costs nothing but `make` and [`Names::dir_now`], if the directory is known.
    pub(crate) fn create<T>(
        &self,
        path: &Path,
        make: &mut dyn FnMut(&Path) -> Result<T>,
    ) -> Result<Option<T>> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Ok(None);
        };
        let mut missing = 0;
        for _ in 0..TRIES {
            let Some(dir) = self.dir_now(parent)? else { return Ok(None) };
            if dir.number.is_none() {
                self.renew(&dir)?;
                continue;
            }
            let place = dir.place(name);
            match make(&place.path) {
                Err(error) if error.errno() == Errno::EXIST => {
                    let found = self.look(&dir, place.clone(), true)?;
                    if found.stat.is_some() {
                        return Err(Errno::EXIST).at("create", path);
                    }
                    if found.spot.path == place.path {
                        continue;
                    }
                    match make(&found.spot.path) {
                        Err(error) if error.errno() == Errno::EXIST => {}
                        Err(error) if is_gone(error.errno()) => {}
                        other => return other.map(Some),
                    }
                }
                Err(error) if error.errno() == Errno::NOENT && missing < MISSING_MAX => {
                    missing += 1;
                    self.renew(&dir)?;
                }
                other => return other.map(Some),
            }
        }
        Err(Errno::BUSY).at("create", path)
    }

    /// The directory, with a map.
    pub(crate) fn dir_with_shadows(&self, path: &Path) -> Result<Option<Arc<Dir>>> {
        match self.dir(path)? {
            Some(dir) if dir.number.is_none() => {
                self.renew(&dir)?;
                self.dir(path)
            }
            other => Ok(other),
        }
    }

    /// Makes the shadows of a directory that are not there, and a map with them. Whoever else does
    /// it at the same time: one map counts, and all look again.
    fn renew(&self, dir: &Dir) -> Result<()> {
        let mut made = Vec::new();
        let renewed = self.renew_as(dir, &mut made);
        if !matches!(renewed, Ok(true)) {
            for shadow in made {
                let _ = self.store.rmdir(&shadow);
            }
        }
        self.known.forget();
        renewed.map(drop)
    }

    /// Whether `made` is in the map.
    fn renew_as(&self, dir: &Dir, made: &mut Vec<PathBuf>) -> Result<bool> {
        let store = self.store;
        let (number, old) = match self.read_map(&dir.home) {
            // It was removed.
            Err(error) if is_gone(error.errno()) => return Ok(true),
            other => other?,
        };
        let wanted = match number {
            Some(_) => old.shadows,
            None => {
                let ids = self.table(dir).of_layout(&dir.backends)?;
                ids.into_iter().map(|id| (id, new_uuid())).collect()
            }
        };
        let of_home = match store.stat(&dir.home, Links::Follow) {
            Err(errno) if is_gone(errno) => return Ok(true),
            other => other.at("stat", &dir.home)?,
        };
        let mut map = Map::default();
        for (backend, shadow) in wanted {
            let base = self.base(dir, backend, true)?;
            let is_there = number.is_some()
                && match store.stat(&base.at(&shadow), Links::Stay) {
                    Ok(_) => true,
                    Err(errno) if is_gone(errno) => false,
                    Err(errno) => return Err(errno).at("stat", &base.at(&shadow)),
                };
            map.shadows.push((backend, shadow));
            if is_there {
                continue;
            }
            let shadow = new_uuid();
            map.shadows.pop();
            map.shadows.push((backend, shadow));
            let path = self.make(&base, &shadow, &of_home)?;
            made.push(path);
            for dir in base.path.ancestors().take(3) {
                match store.sync_dir(dir) {
                    // Who may not open it has not made anything in it.
                    Ok(()) | Err(Errno::ACCESS | Errno::PERM) => {}
                    Err(errno) => return Err(errno).at("sync", dir),
                }
            }
        }
        if made.is_empty() {
            return Ok(true);
        }
        let next = number.map_or(0, |number| number.saturating_add(1));
        if !self.put_map(dir, next, &map)? {
            return Ok(false);
        }
        match self.last_map(&dir.home) {
            Ok(Some(last)) if last == next => {}
            // Others have gone on meanwhile.
            _ => {
                let _ = store.unlink(&dir.home.join(format::map_name(next)));
                return Ok(false);
            }
        }
        store.sync_dir(&dir.home).at("sync", &dir.home)?;
        if let Some(number) = number {
            let _ = store.unlink(&dir.home.join(format::map_name(number)));
        }
        Ok(true)
    }

    /// Whether there was no map with this number. Durable but for its name.
    fn put_map(&self, dir: &Dir, number: u32, map: &Map) -> Result<bool> {
        let store = self.store;
        let path = dir.home.join(format::map_name(number));
        let text = map.encode().map_err(|bad| Error::of_bytes(&path, bad))?;
        let tmp = dir.home.join(format!("{}{}", format::MAP_TMP, format::hex(&new_uuid())));
        let put = (|| {
            let file = store.open(&tmp, Open::create_new(0o644)).at("create", &tmp)?;
            store::write_full(file.as_ref(), &text, 0).at("write", &tmp)?;
            store.chmod(&tmp, 0o644).at("set the mode of", &tmp)?;
            file.sync_data().at("sync", &tmp)?;
            match store.link(&tmp, &path) {
                Ok(()) => Ok(true),
                Err(Errno::EXIST) => Ok(false),
                Err(errno) => Err(errno).at("create", &path),
            }
        })();
        let _ = store.unlink(&tmp);
        match put {
            Err(error) if is_gone(error.errno()) => Ok(false),
            other => other,
        }
    }

    /// Waits until nobody else has this turn. `None`: there are no locks there.
    fn turn(&self, base: &Path, name: &str) -> Result<Option<Turn>> {
        let path = base.with_file_name(name);
        let file = match self.store.open(&path, Open::READ_WRITE.briefly()) {
            Err(Errno::NOENT) => self.make_lock(&path)?,
            other => other.at("open", &path)?,
        };
        for _ in 0..TURN_TRIES {
            match file.try_gate() {
                Ok(true) => return Ok(Some(Turn(file))),
                Ok(false) => thread::sleep(Duration::from_millis(1)),
                Err(_) => return Ok(None),
            }
        }
        Err(Error::refused(Errno::BUSY, "lock", &path, "another process has it for long"))
    }

    /// A file that everybody may lock, who or whatever made it.
    fn make_lock(&self, path: &Path) -> Result<Arc<dyn StoreFile>> {
        let store = self.store;
        let tmp = path.with_file_name(format!("{}{}", format::LOCK_TMP, format::hex(&new_uuid())));
        let made = (|| {
            drop(store.open(&tmp, Open::create_new(0o666).briefly()).at("create", &tmp)?);
            store.chmod(&tmp, 0o666).at("set the mode of", &tmp)?;
            match store.link(&tmp, path) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno).at("create", path),
            }
            store.open(path, Open::READ_WRITE.briefly()).at("open", path)
        })();
        let _ = store.unlink(&tmp);
        made
    }

    fn make_shared_dirs(&self, base: &Path) -> Result<()> {
        if let Some(plfs) = base.parent() {
            make_shared(self.store, plfs)?;
        }
        make_shared(self.store, base)
    }

    /// Makes what a root has if there are flat directories.
    pub(crate) fn make_base(&self, root: &Path) -> Result<()> {
        self.make_shared_dirs(&root.join(name::ROOT_DIR).join(format::DIR))
    }

    /// Makes a shadow or a slot, with the mode and the owner of a directory.
    fn make(&self, base: &Base, uuid: &Uuid, like: &Stat) -> Result<PathBuf> {
        let (store, path) = (self.store, base.at(uuid));
        self.make_shared_dirs(&base.path)?;
        store.mkdir(&path, like.mode & 0o3777).at("create", &path)?;
        store.chmod(&path, like.mode & 0o3777).at("set the mode of", &path)?;
        let stat = store.stat(&path, Links::Stay).at("stat", &path)?;
        if (stat.uid, stat.gid) != (like.uid, like.gid) {
            match store.chown(&path, Some(like.uid), Some(like.gid), Links::Stay) {
                Err(Errno::PERM) => {}
                other => other.at("set the owner of", &path)?,
            }
        }
        Ok(path)
    }

    /// What the directory has, in no order. `None`: it is not spread.
    pub(crate) fn list(&self, path: &Path) -> Result<Option<Vec<Entry>>> {
        let entry = |(entry, _)| entry;
        Ok(self.list_with_dev(path)?.map(|all| all.into_iter().map(entry).collect()))
    }

    /// [`Names::list`], each with its file system's number.
    pub(crate) fn list_with_dev(&self, path: &Path) -> Result<Option<Vec<(Entry, u64)>>> {
        for _ in 0..TRIES {
            let Some(dir) = self.dir_now(path)? else { return Ok(None) };
            let (mut names, mut missing) = (BTreeMap::<OsString, (Entry, u64)>::new(), false);
            for (base, shadow) in dir.shadows() {
                let entries = match self.store.list(&shadow) {
                    Err(errno) if is_gone(errno) => {
                        self.must_be_there(&dir, base)?;
                        missing = true;
                        continue;
                    }
                    other => other.at("list", &shadow)?,
                };
                let dev = self.store.stat(&shadow, Links::Stay).map_or(0, |stat| stat.dev);
                for entry in entries {
                    let name = entry.name.clone();
                    let is_plain = matches!(entry.kind, Some(Kind::File | Kind::Dir | Kind::Other));
                    if is_plain {
                        names.insert(name, (entry, dev));
                        continue;
                    }
                    if let Some(stat) = self.look(&dir, dir.place(&name), false)?.stat {
                        let found = Entry { name, kind: Some(stat.kind), ino: stat.ino };
                        names.insert(found.name.clone(), (found, stat.dev));
                    }
                }
            }
            if missing || dir.number.is_none() {
                self.known.forget();
                let fresh = self.dir(path)?;
                if !fresh.is_some_and(|fresh| fresh.is_same(&dir)) {
                    continue;
                }
            }
            return Ok(Some(names.into_values().collect()));
        }
        Err(Errno::BUSY).at("list", path)
    }

    /// Removes a name of something that is no directory. Whether its directory is spread.
    pub(crate) fn unlink(&self, path: &Path) -> Result<bool> {
        for _ in 0..TRIES {
            let Some((dir, found)) = self.find(path, true)? else { return Ok(false) };
            match found.stat {
                None => return Err(Errno::NOENT).at("remove", path),
                Some(stat) if stat.kind == Kind::Dir => {
                    return Err(Errno::ISDIR).at("remove", path);
                }
                Some(_) => {}
            }
            match (self.remove)(found.path()) {
                // It is elsewhere by now, or gone.
                Err(error) if error.errno() == Errno::NOENT => continue,
                other => other?,
            }
            self.tidy(&dir, &found.via)?;
            return Ok(true);
        }
        Err(Errno::BUSY).at("remove", path)
    }

    /// Removes a directory in a spread directory, if it is empty. Whether it was in one.
    pub(crate) fn rmdir(&self, path: &Path) -> Result<bool> {
        for _ in 0..TRIES {
            let Some((above, found)) = self.find(path, true)? else { return Ok(false) };
            match found.stat {
                None => return Err(Errno::NOENT).at("remove the directory", path),
                Some(stat) if stat.kind != Kind::Dir => {
                    return Err(Errno::NOTDIR).at("remove the directory", path);
                }
                Some(_) => {}
            }
            let home = found.spot.path.clone();
            let dir = match self.load_in(&above, home.clone()) {
                Err(error) if is_gone(error.errno()) => continue,
                other => other?,
            };
            self.empty(&dir, path)?;
            match self.store.rmdir(&home) {
                Err(errno) if is_gone(errno) => continue,
                other => other.at("remove the directory", path)?,
            }
            self.known.forget();
            self.tidy(&above, &found.via)?;
            return Ok(true);
        }
        Err(Errno::BUSY).at("remove the directory", path)
    }

    /// Takes the shadows and the map of a directory away that has no names; ENOTEMPTY if it has.
    /// Who makes a name there afterwards makes new ones.
    pub(crate) fn empty(&self, dir: &Dir, path: &Path) -> Result<()> {
        let not_empty = || Err(Errno::NOTEMPTY).at("remove the directory", path);
        for (base, shadow) in dir.shadows() {
            let entries = match self.store.list(&shadow) {
                Err(errno) if is_gone(errno) => {
                    self.must_be_there(dir, base)?;
                    continue;
                }
                other => other.at("list", &shadow)?,
            };
            for entry in entries {
                let found = self.look(dir, dir.place(&entry.name), true)?;
                if found.stat.is_some() {
                    return not_empty();
                }
                self.tidy(dir, &found.via)?;
            }
        }
        for (_, shadow) in dir.shadows() {
            match self.store.rmdir(&shadow) {
                Ok(()) => {}
                Err(errno) if is_gone(errno) => {}
                Err(errno) if is_full(errno) => return not_empty(),
                Err(errno) => return Err(errno).at("remove", &shadow),
            }
        }
        self.known.forget();
        for entry in self.store.list(&dir.home).at("list", &dir.home)? {
            let name = entry.name.as_bytes();
            let is_tmp = name.starts_with(format::MAP_TMP.as_bytes());
            // A later one has shadows.
            let is_map = format::parse_map_name(name).is_some_and(|it| dir.number >= Some(it));
            if is_tmp || is_map {
                let path = dir.home.join(&entry.name);
                match self.store.unlink(&path) {
                    Err(errno) if is_gone(errno) => {}
                    other => other.at("remove", &path)?,
                }
            }
        }
        Ok(())
    }

    /// Gives what is at `from` the name `to` as well, or instead. `rename` is the ordinary rename
    /// of two paths on the storage that lie beside each other. Whether one of the two directories
    /// is spread.
    pub(crate) fn rename(
        &self,
        from: &Path,
        to: &Path,
        how: How,
        rename: &dyn Fn(&Path, &Path) -> Result<()>,
    ) -> Result<bool> {
        let op = if how == How::Link { "link" } else { "rename" };
        let refuse = |errno: Errno, path: &Path| Err(errno).at(op, path);
        for _ in 0..TRIES {
            let (source, target) = match (self.find(from, true)?, self.find(to, true)?) {
                (None, None) => return Ok(false),
                (Some(source), Some(target)) => (source, target),
                // As between two file systems; most often it is so.
                _ => return refuse(Errno::XDEV, from),
            };
            let (above, source) = source;
            let (dir, target) = target;
            if above.root != dir.root {
                // The backends of each have ids of its own.
                return refuse(Errno::XDEV, from);
            }
            let Some(stat) = source.stat else { return refuse(Errno::NOENT, from) };
            if how == How::Link {
                if source.is_dir() {
                    return refuse(Errno::PERM, from);
                }
                if target.stat.is_some() {
                    return refuse(Errno::EXIST, to);
                }
            }
            // As the kernel has it, one directory at a time gets into another one: two of them
            // would each get into the other.
            if source.is_dir() && above.id != dir.id {
                if !self.is_alone {
                    return self.rename_alone(&dir.root, from, to, rename);
                }
                if self.has_in_it(&self.load_in(&above, source.spot.path.clone())?, &dir)? {
                    return refuse(Errno::INVAL, to);
                }
            }
            if let Some(there) = target.stat {
                if (there.dev, there.ino) == (stat.dev, stat.ino) {
                    return Ok(true);
                }
                match (source.is_dir(), target.is_dir()) {
                    (true, false) => return refuse(Errno::NOTDIR, to),
                    (false, true) => return refuse(Errno::ISDIR, to),
                    (true, true) => {
                        // An empty one goes first.
                        match self.rmdir(to) {
                            Err(error) if error.errno() == Errno::NOENT => {}
                            other => drop(other?),
                        }
                        continue;
                    }
                    (false, false) => (self.make_durable)(source.path())?,
                }
            } else if !target.via.is_empty() {
                self.tidy(&dir, &target.via)?;
                continue;
            }
            if dir.number.is_none() {
                self.renew(&dir)?;
                continue;
            }
            let name = to.file_name().unwrap_or_default();
            let place = dir.place(name);
            let done = match (source.spot.base == place.base, how) {
                (true, How::Rename) => {
                    let Some(_turn) = self.turn_at(&place, &target)? else { continue };
                    rename(source.path(), &place.path).map(|()| true)
                }
                (true, How::Link) => {
                    self.store.link(source.path(), &place.path).at(op, from).map(|()| true)
                }
                (false, how) => self.move_across(&dir, &source, &place, &target, how),
            };
            match done {
                Ok(true) => {}
                Ok(false) => continue,
                Err(error) if error.errno() == Errno::NOENT => {
                    self.renew(&dir)?;
                    continue;
                }
                Err(error) if error.errno() == Errno::EXIST && how == How::Link => continue,
                other => drop(other?),
            }
            if source.spot.base == place.base && !target.via.is_empty() {
                // The link that led to what was there is replaced.
                if target.stat.is_some() {
                    self.remove_gone(target.path())?;
                }
                for Via { at, moved } in target.via.iter().rev() {
                    let slot = self.base(&dir, moved.backend, false)?.at(&moved.slot);
                    let _ = self.store.rmdir(&slot);
                    let _ = self.store.rmdir(&at.base.at(&moved.aside));
                }
            }
            if how == How::Rename {
                self.tidy(&above, &source.via)?;
            }
            return Ok(true);
        }
        refuse(Errno::BUSY, from)
    }

    /// [`Names::rename`] of a directory to another one, while nobody else does such a thing.
    fn rename_alone(
        &self,
        root: &Path,
        from: &Path,
        to: &Path,
        rename: &dyn Fn(&Path, &Path) -> Result<()>,
    ) -> Result<bool> {
        let base = root.join(name::ROOT_DIR).join(format::DIR);
        let turn = self.turn(&base, format::TREE_LOCK)?;
        let Some(_turn) = turn.filter(|turn| turn.0.locks_are_shared()) else {
            return Err(Error::refused(
                Errno::XDEV,
                "rename",
                from,
                "a directory is moved to another one where all nodes know of locks: see flock in \
                 the options of the file system that the root is on; copy it",
            ));
        };
        // What was believed before is of before.
        let known = Known::default();
        let done = Names { known: &known, is_alone: true, ..*self };
        let done = done.rename(from, to, How::Rename, rename);
        self.known.forget();
        done
    }

    /// Whether `dir` is `moved`, or lies in it, while nobody moves directories.
    fn has_in_it(&self, moved: &Arc<Dir>, dir: &Dir) -> Result<bool> {
        let is_moved = |dir: &Dir| dir.id == moved.id;
        let is_known =
            |dir: &Dir| dir.and_above().last().is_some_and(|last| matches!(last.above, Above::Top));
        if is_known(dir) || dir.and_above().any(is_moved) {
            return Ok(dir.and_above().any(is_moved));
        }
        if let Some(found) = self.down_the_line()?
            && found.id == dir.id
            && is_known(&found)
        {
            return Ok(found.and_above().any(is_moved));
        }
        // Somebody else has renamed one of them.
        self.any_below(moved.clone(), &mut |below| below.id == dir.id)
    }

    /// The directory to which `line` leads.
    fn down_the_line(&self) -> Result<Option<Arc<Dir>>> {
        let Some((top, names)) = self.line else { return Ok(None) };
        let Tree { root, dev, backends } = top.tree.as_ref();
        let mut at = self.load(top.home.clone(), Above::Top, root, *dev, backends.clone())?;
        for name in names {
            let found = match at.number {
                Some(_) => self.look(&at, at.place(name), false)?,
                None => return Ok(None),
            };
            if !found.is_dir() {
                return Ok(None);
            }
            at = self.load_in(&at, found.spot.path)?;
        }
        Ok(Some(at))
    }

    /// Whether `test` says so of `dir` or of a directory in it. Costs a listing of all of them.
    fn any_below(&self, dir: Arc<Dir>, test: &mut dyn FnMut(&Dir) -> bool) -> Result<bool> {
        let (mut todo, mut seen) = (vec![dir], HashSet::new());
        while let Some(dir) = todo.pop() {
            // Those that lie in each other, which were made before renames looked for that, end.
            if !seen.insert(dir.id) {
                continue;
            }
            if test(&dir) {
                return Ok(true);
            }
            for (base, shadow) in dir.shadows() {
                let entries = match self.store.list(&shadow) {
                    Err(errno) if is_gone(errno) => {
                        self.must_be_there(&dir, base)?;
                        continue;
                    }
                    other => other.at("list", &shadow)?,
                };
                for entry in entries {
                    if matches!(entry.kind, Some(Kind::File | Kind::Other)) {
                        continue;
                    }
                    let found = self.look(&dir, dir.place(&entry.name), false)?;
                    if found.is_dir() {
                        match self.load_in(&dir, found.spot.path) {
                            Ok(below) => todo.push(below),
                            // Removed meanwhile.
                            Err(error) if is_gone(error.errno()) => {}
                            Err(error) => return Err(error),
                        }
                    }
                }
            }
        }
        Ok(false)
    }

    /// The turn to put something at a place where a link is, if that is there still; `None`: it is
    /// not. Where no link is nobody waits.
    fn turn_at(&self, place: &Spot, target: &Found) -> Result<Option<Option<Turn>>> {
        let Some(Via { at, moved }) = target.via.first() else { return Ok(Some(None)) };
        let turn = self.turn(&place.base.path, format::LINKS_LOCK)?;
        Ok(self.leads(at, moved).then_some(turn))
    }

    /// Gives what is at `source` the name whose place, on another backend, is `place`. False:
    /// others were there, to be looked at again.
    ///
    /// The name is a link to a slot that is empty, and so what it was before, until one rename (or
    /// link) puts the source into the slot. Who cannot wait for that takes the slot away.
    fn move_across(
        &self,
        dir: &Dir,
        source: &Found,
        place: &Spot,
        target: &Found,
        how: How,
    ) -> Result<bool> {
        let store = self.store;
        let like = store.stat(&dir.home, Links::Follow).at("stat", &dir.home)?;
        let (from, to) = (&source.spot.base, &place.base);
        let moved = Moved { backend: from.backend, slot: new_uuid(), aside: new_uuid() };
        let text = PathBuf::from(OsString::from_vec(Target::Moved(moved).encode()));
        let slot = self.make(from, &moved.slot, &like)?;
        let aside = self.make(to, &moved.aside, &like)?;
        let (entry, old) = (slot.join(format::ENTRY), aside.join(format::ENTRY));
        let via = [Via { at: place.clone(), moved }];
        let led = (|| {
            if target.stat.is_none() {
                return store.symlink(&text, &place.path).at("create", &place.path);
            }
            store.link(&place.path, &old).at("link", &place.path)?;
            // A power cut must not keep the link below and lose what it leads to.
            store.sync_dir(&aside).at("sync", &aside)?;
            store.sync_dir(&to.path).at("sync", &to.path)?;
            let tmp = to.at(&new_uuid());
            store.symlink(&text, &tmp).at("create", &tmp)?;
            let put = match self.turn_at(place, target) {
                Ok(Some(_turn)) => store.rename(&tmp, &place.path).at("rename", &tmp),
                Ok(None) => Err(Errno::EXIST).at("rename", &tmp),
                Err(error) => Err(error),
            };
            put.inspect_err(|_| {
                let _ = store.unlink(&tmp);
            })
        })();
        if let Err(error) = led {
            let _ = store.unlink(&old);
            let _ = (store.rmdir(&slot), store.rmdir(&aside));
            return match error.errno() {
                Errno::EXIST => Ok(false),
                _ => Err(error),
            };
        }
        // Before the source loses its name the new one must be there, whatever happens.
        for dir in [Some(to.path.as_path()), Some(&from.path), place.path.parent()] {
            let Some(dir) = dir else { continue };
            store.sync_dir(dir).at("sync", dir)?;
        }
        let put = match how {
            How::Rename => store.rename(source.path(), &entry),
            How::Link => store.link(source.path(), &entry),
        };
        if let Err(errno) = put {
            let _ = store.rmdir(&slot);
            if target.stat.is_none() {
                self.tidy(dir, &via)?;
            }
            return match is_gone(errno) {
                // The source, or the slot.
                true => Ok(false),
                false => Err(errno).at("rename", source.path()),
            };
        }
        for dir in [Some(slot.as_path()), source.path().parent()] {
            let Some(dir) = dir else { continue };
            match store.sync_dir(dir) {
                // It was renamed again.
                Err(errno) if !is_gone(errno) => return Err(errno).at("sync", dir),
                _ => {}
            }
        }
        self.drop_aside(dir, to, &aside, &slot)?;
        Ok(true)
    }

    /// Calls `change` on a directory itself and on all its shadows.
    pub(crate) fn on_all(
        &self,
        path: &Path,
        change: &mut dyn FnMut(&Path) -> Result<()>,
    ) -> Result<bool> {
        let Some(dir) = self.dir_now(path)? else { return Ok(false) };
        change(&dir.home)?;
        for (base, shadow) in dir.shadows() {
            match change(&shadow) {
                Err(error) if is_gone(error.errno()) => self.must_be_there(&dir, base)?,
                other => other?,
            }
        }
        Ok(true)
    }
}
