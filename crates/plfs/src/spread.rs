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

mod across;
mod cache;
mod change;
mod check;
mod drain;
mod find;
mod list;
mod map;
mod tree;
mod turn;

pub(crate) use turn::Turn;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use plfs_format::layout::Backends;
use plfs_format::name::Uuid;
use plfs_format::spread::{self as format, Map, Move, Moved, Stage, Target};

use crate::error::Result;
use crate::store::machine::fill_random;
use crate::store::{Errno, Kind, Stat, Store};
use crate::sync::Arc;

pub(crate) use cache::NameCache;
pub use check::FlatReport;
pub(crate) use check::Walked;
pub(crate) use drain::{Drain, Moved as Drained};

/// How long a directory is believed to be where it was, and to be flat or not: as a layout.
const BELIEVED_NS: u64 = 500_000_000;
/// How old the map may be by which a rename puts a name somewhere: how long it may be believed,
/// and what the looks before take. See [`drain::SETTLES`].
const MAP_NS: u64 = 700_000_000;
/// PATH_MAX of Linux: the kernel refuses what is longer.
const PATH_MAX: usize = 4096;
/// Symbolic links followed in one path (path_resolution(7)).
const LINKS_MAX: u32 = 40;
/// Slots that a name leads through: one, and one for each rename that died.
const HOPS_MAX: u32 = 100;
/// How often something is tried again because others have changed it in between.
const TRIES: u32 = 1000;
/// How often the shadow of a new name may be missing.
const MISSING_MAX: u32 = 20;

/// A backend's directory of shadows and slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Base {
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
    /// As a look has to use it: with new and old shadows as the next map has them, because that may
    /// be there while this one is believed. Those of [`Stage::To`] get no names yet.
    map: Map,
    bases: Vec<Base>,
    /// Those of [`Map::moves`] and of [`Map::asides`].
    other_bases: Vec<Base>,
    aside_bases: Vec<Base>,
    /// When it was read, by the machine's clock.
    read_ns: u64,
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

    /// What moves of the names that lie with this one.
    fn move_of(&self, name: &OsStr) -> Option<(&Move, &Base)> {
        let index = self.map.index_of(name.as_bytes());
        self.map.moves.iter().zip(&self.other_bases).find(|(of, _)| of.index == index)
    }

    /// Whether no name is made at this place until the next map.
    fn is_closed(&self, name: &OsStr) -> bool {
        self.move_of(name).is_some_and(|(of, _)| of.stage == Stage::To)
    }

    /// Where a name is that is not at its place.
    fn old_place(&self, name: &OsStr) -> Option<Spot> {
        let (of, base) = self.move_of(name)?;
        Some(Spot { path: base.at(&of.shadow).join(name), base: base.clone() })
    }

    /// The places in the asides.
    fn aside_places(&self, name: &OsStr) -> impl Iterator<Item = Spot> {
        let asides = self.aside_bases.iter().zip(&self.map.asides);
        asides.map(move |(base, (_, aside))| Spot {
            path: base.at(aside).join(name),
            base: base.clone(),
        })
    }

    /// Whether a name may be elsewhere than at its place.
    fn is_drained(&self) -> bool {
        !self.map.asides.is_empty()
    }

    /// Where its names are: old shadows, asides, old shadows again, and then those that get new
    /// names. Who lists them in this order misses no name that moves meanwhile.
    pub(crate) fn shadows(&self) -> impl Iterator<Item = (&Base, PathBuf)> {
        let old = || {
            let others = self.map.moves.iter().zip(&self.other_bases);
            others.map(|(of, base)| (base, base.at(&of.shadow)))
        };
        let asides = self.aside_bases.iter().zip(&self.map.asides);
        let asides = asides.map(|(base, (_, aside))| (base, base.at(aside)));
        let own = self.bases.iter().zip(&self.map.shadows);
        let own = own.map(|(base, (_, uuid))| (base, base.at(uuid)));
        old().chain(asides).chain(old()).chain(own)
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
    /// It is not at its place, and no link there leads to it.
    is_old: bool,
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

    /// It, for who looks at its place only.
    fn hidden(self) -> Found {
        Found { stat: None, link: None, via: Vec::new(), is_old: false, ..self }
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
    pub(crate) cache: &'a NameCache,
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
    pub(crate) make_durable: &'a dyn Fn(&Path, &Path) -> Result<()>,
}
