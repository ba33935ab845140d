//! A store in memory that can forget what was not synced.
//!
//! [`MemStore`] behaves as a local Linux file system seen by root: the same error numbers, hard and
//! symbolic links, names that vanish under open files. Nobody is refused for lack of permission;
//! new files get their mode less the umask 022; new things belong to 0:0. Times come from a clock
//! of its own that moves one nanosecond per change, so that later is always larger and runs repeat
//! exactly. Reading leaves the access time alone.
//!
//! Each file and directory has two states: what programs see, and what a power loss would leave.
//! `sync_data` copies the first to the second for a file's bytes and length, `sync_dir` for a
//! directory's names. [`MemStore::crash`] gives a store made of the second state,
//! [`MemStore::crash_with`] one in which each change in between made it or not by chance. Modes,
//! owners and times are durable at once; no rule of PLFS depends on them. What a crash leaves is of
//! another [boot](plfs::store::Store::boot).
//!
//! Names are durable one directory at a time. A rename within a directory happens as a whole or not
//! at all; one between two directories counts for each when that directory is synced, so between
//! the two syncs a crash may show a file at both names or at none. (A subdirectory is never in two
//! places: its new one wins.)
//!
//! What a crash could bring back stays in memory until `sync_dir`.

mod power_cut;
mod store;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plfs::store::{Errno, Kind, Links, LockKind, Place, Result, Stat, Time};

/// The unit in which bytes are kept and lost: the page of the Linux page cache.
const PAGE_BYTES: usize = 4096;
/// The same for arithmetic on offsets.
const PAGE: u64 = PAGE_BYTES as u64;

/// `stat` counts in units of 512 bytes, whatever the file system (stat(2)).
const BLOCKS_PER_PAGE: u64 = PAGE / 512;

/// Symbolic links followed in one path before ELOOP, as in Linux (path_resolution(7)).
const LINKS_MAX: u32 = 40;
/// PATH_MAX of Linux, with the terminating zero.
const PATH_MAX: usize = 4096;
/// NAME_MAX of Linux.
const NAME_MAX: usize = 255;

/// The set-group-ID bit: on a directory, new things inherit its group, and new directories the bit.
const SETGID: u32 = 0o2000;
/// Device number of the next store.
static NEXT_DEV: AtomicU64 = AtomicU64::new(0x6d65_6d00);
/// Inode number of `/`.
const ROOT: u64 = 1;
/// The clock starts here, 2001-09-09, far from zero and from the present.
const CLOCK_START_SEC: i64 = 1_000_000_000;

type Names = BTreeMap<OsString, u64>;
type Pages = BTreeMap<u64, Arc<Vec<u8>>>;

/// A store in memory; see the module's head. Clones share one tree.
#[derive(Clone)]
pub struct MemStore {
    tree: Arc<Mutex<Tree>>,
    /// See [`Store::inside`](plfs::store::Store::inside).
    places: Arc<[Place]>,
    /// See [`MemStore::shared`].
    is_shared: bool,
    /// See [`MemStore::elsewhere`].
    boot: Option<u64>,
    /// See [`MemStore::writing_over`].
    writes_over: bool,
}

impl std::fmt::Debug for MemStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemStore").finish_non_exhaustive()
    }
}

impl Default for MemStore {
    fn default() -> MemStore {
        MemStore::new()
    }
}

impl MemStore {
    /// An empty store: only `/`.
    pub fn new() -> MemStore {
        MemStore::of(Tree::new())
    }

    fn of(tree: Tree) -> MemStore {
        MemStore {
            tree: Arc::new(Mutex::new(tree)),
            places: Arc::default(),
            is_shared: false,
            boot: None,
            writes_over: false,
        }
    }

    /// The same tree, as storage that other machines use too
    /// ([`Store::is_local`](plfs::store::Store::is_local)).
    pub fn shared(&self) -> MemStore {
        MemStore { is_shared: true, ..self.clone() }
    }

    /// The same tree, on a disk where bytes that lie over others go to their place: after a power
    /// cut they are those or the old ones, never zeros. So do file systems that do not copy on
    /// write, with ordered data.
    pub fn writing_over(&self) -> MemStore {
        MemStore { writes_over: true, ..self.clone() }
    }

    /// The same tree, as a machine sees it that is in another [boot](plfs::store::Store::boot).
    pub fn elsewhere(&self) -> MemStore {
        MemStore { boot: Some(7), ..self.clone() }
    }

    /// The root of the place in which `path` lies, or else the directory with the `.plfs` that it
    /// goes through; `None` too if this is no view of places.
    fn place<'a>(&'a self, path: &'a Path) -> Option<&'a Path> {
        let known = self.places.iter().find(|place| {
            let first =
                place.dir.strip_prefix(&place.root).ok().and_then(|rest| rest.components().next());
            first.is_some_and(|first| {
                path.strip_prefix(&place.root).is_ok_and(|rest| rest.starts_with(first))
            })
        });
        let is_guard = |dir: &&Path| dir.file_name() == Some(OsStr::new(".plfs"));
        let other = || path.ancestors().filter(is_guard).last().and_then(Path::parent);
        known
            .map(|place| place.root.as_path())
            .or_else(|| if self.places.is_empty() { None } else { other() })
    }

    /// [`Tree::walk`], which meets no link in the places of this view but a last one that is not
    /// followed.
    fn walk(&self, tree: &Tree, path: &Path, how: Last) -> Result<Found> {
        let inside = self.place(path);
        for part in inside
            .iter()
            .flat_map(|root| path.ancestors().take_while(move |part| part != root))
            .collect::<Vec<_>>()
            .into_iter()
            .rev()
        {
            let is_last = part == path;
            match tree.walk(part, Last::Stay) {
                Ok(Found { ino: Some(ino), .. })
                    if matches!(tree.node(ino).body, Body::Link(_)) =>
                {
                    return if is_last && !matches!(how, Last::Follow | Last::Create) {
                        tree.walk(path, how)
                    } else {
                        Err(Errno::LOOP)
                    };
                }
                // What else is wrong with it, the whole walk says.
                Ok(Found { ino: Some(_), .. }) => {}
                Ok(Found { ino: None, .. }) | Err(_) => break,
            }
        }
        tree.walk(path, how)
    }

    fn lock(&self) -> MutexGuard<'_, Tree> {
        lock(&self.tree)
    }
}

fn lock(tree: &Mutex<Tree>) -> MutexGuard<'_, Tree> {
    // A thread that panicked here left a bug behind anyway; hiding it behind a second panic in each
    // other thread would help nobody.
    tree.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Everything in a store.
struct Tree {
    /// Of no other store of the process, so that what is remembered of one is not taken for what
    /// another has.
    dev: u64,
    nodes: HashMap<u64, Node>,
    next_ino: u64,
    next_change: u64,
    next_open: u64,
    ticks: u64,
}

/// A file, directory or link. It lives while anything counted here refers to it.
struct Node {
    body: Body,
    mode: u32,
    uid: u32,
    gid: u32,
    atime: Time,
    mtime: Time,
    ctime: Time,
    /// Names that lead here.
    names: u64,
    /// Names that would lead here after some crash: durable ones, and those in changes not synced.
    kept: u64,
    opens: u64,
    /// Opens that hold a lock, and which.
    locks: Vec<(u64, LockKind)>,
    /// The open that has the gate.
    gate: Option<u64>,
    /// Attributes, and whether they were synced.
    attributes: BTreeMap<String, (Vec<u8>, bool)>,
}

enum Body {
    File(Content),
    Dir(Dir),
    Link(PathBuf),
}

struct Dir {
    parent: u64,
    names: Names,
    subdirs: u64,
    /// The names of the last sync. With all of `changes` applied, it equals `names`.
    saved: Names,
    /// What happened since, in order.
    changes: Vec<Change>,
}

/// `name` got to mean `ino`, or nothing. The two halves of a rename share an `id`.
struct Change {
    id: u64,
    name: OsString,
    ino: Option<u64>,
}

/// Bytes of a file. A page may be short or missing: the rest is zeros. No page has bytes at or past
/// the length.
#[derive(Default)]
struct Content {
    pages: Pages,
    len: u64,
    saved_pages: Pages,
    saved_len: u64,
    /// Pages that differ between the two, perhaps.
    dirty: BTreeSet<u64>,
}

/// Where a path leads: an entry of a directory, which may be missing, or (without a name) the
/// directory itself, for paths that end in `/`, `.` or `..`.
struct Found {
    dir: u64,
    name: Option<OsString>,
    ino: Option<u64>,
    /// The path ended in a slash: only a directory will do.
    slash: bool,
}

/// What to do at the last part of a path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Last {
    /// Follow a symbolic link.
    Follow,
    /// Take a symbolic link itself, unless a slash comes after it.
    Stay,
    /// Find the entry for a call that makes, removes or moves it: a link is not followed, a slash
    /// is left to the call.
    Entry,
    /// As `Follow`, for a call that may make a file: with a slash it cannot, even if the path
    /// exists.
    Create,
    /// As `Create`, for a call that must make a file, so that a link is as bad as a file.
    CreateNew,
}

impl Last {
    fn of(links: Links) -> Last {
        match links {
            Links::Follow => Last::Follow,
            Links::Stay => Last::Stay,
        }
    }

    fn follows(self, slash: bool) -> bool {
        match self {
            Last::Follow | Last::Create => true,
            Last::Stay => slash,
            Last::Entry | Last::CreateNew => false,
        }
    }
}

impl Found {
    fn exists(&self) -> Result<u64> {
        self.ino.ok_or(Errno::NOENT)
    }

    /// The place for a new name.
    fn vacant(self, is_dir: bool) -> Result<(u64, OsString)> {
        match (self.ino, self.name) {
            (None, Some(_)) if self.slash && !is_dir => Err(Errno::NOENT),
            (None, Some(name)) => Ok((self.dir, name)),
            _ => Err(Errno::EXIST),
        }
    }
}

impl Content {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> usize {
        let n =
            usize::try_from(self.len.saturating_sub(offset)).unwrap_or(usize::MAX).min(buf.len());
        let buf = &mut buf[..n];
        if n == 0 {
            return 0;
        }
        buf.fill(0);
        let end = offset + n as u64;
        for (&number, page) in self.pages.range(offset / PAGE..=(end - 1) / PAGE) {
            let start = number * PAGE;
            let from = offset.max(start);
            let to = end.min(start + page.len() as u64);
            if from < to {
                buf[(from - offset) as usize..(to - offset) as usize]
                    .copy_from_slice(&page[(from - start) as usize..(to - start) as usize]);
            }
        }
        n
    }

    fn write_at(&mut self, mut buf: &[u8], mut offset: u64) {
        while !buf.is_empty() {
            let number = offset / PAGE;
            let start = (offset % PAGE) as usize;
            let n = buf.len().min(PAGE_BYTES - start);
            let page = Arc::make_mut(self.pages.entry(number).or_default());
            if page.len() < start + n {
                page.resize(start + n, 0);
            }
            page[start..start + n].copy_from_slice(&buf[..n]);
            self.dirty.insert(number);
            offset += n as u64;
            buf = &buf[n..];
            self.len = self.len.max(offset);
        }
    }

    fn set_len(&mut self, len: u64) {
        if len < self.len {
            let gone = cut(&mut self.pages, len);
            self.dirty.extend(gone);
        }
        self.len = len;
    }

    /// Makes what it has of `[from, to)` zeros, without storing them.
    fn punch(&mut self, from: u64, to: u64) {
        let to = to.min(self.len);
        if from >= to {
            return;
        }
        let numbers: Vec<u64> =
            self.pages.range(from / PAGE..=(to - 1) / PAGE).map(|(number, _)| *number).collect();
        for number in numbers {
            let start = number * PAGE;
            if let Some(page) = self.pages.get_mut(&number) {
                let page = Arc::make_mut(page);
                let end = (to - start).min(page.len() as u64) as usize;
                let begin = (from.saturating_sub(start) as usize).min(end);
                page[begin..end].fill(0);
            }
            self.dirty.insert(number);
        }
    }

    fn sync(&mut self) {
        for number in std::mem::take(&mut self.dirty) {
            match self.pages.get(&number) {
                Some(page) => self.saved_pages.insert(number, Arc::clone(page)),
                None => self.saved_pages.remove(&number),
            };
        }
        self.saved_len = self.len;
    }
}

/// Removes the bytes at and past `len`; returns the numbers of the pages touched.
fn cut(pages: &mut Pages, len: u64) -> Vec<u64> {
    let mut touched: Vec<u64> = pages.split_off(&len.div_ceil(PAGE)).into_keys().collect();
    let keep = (len % PAGE) as usize;
    if let Some(page) = pages.get_mut(&(len / PAGE))
        && keep < page.len()
        && keep > 0
    {
        Arc::make_mut(page).truncate(keep);
        touched.push(len / PAGE);
    }
    touched
}

impl Dir {
    fn new(parent: u64) -> Dir {
        Dir { parent, names: Names::new(), subdirs: 0, saved: Names::new(), changes: Vec::new() }
    }
}

fn put(names: &mut Names, name: &OsStr, ino: Option<u64>) -> Option<u64> {
    match ino {
        Some(ino) => names.insert(name.to_owned(), ino),
        None => names.remove(name),
    }
}

impl Node {
    fn new(body: Body, mode: u32, now: Time) -> Node {
        Node {
            body,
            mode,
            uid: 0,
            gid: 0,
            atime: now,
            mtime: now,
            ctime: now,
            names: 0,
            kept: 0,
            opens: 0,
            locks: Vec::new(),
            gate: None,
            attributes: BTreeMap::new(),
        }
    }

    fn is_dir(&self) -> bool {
        matches!(self.body, Body::Dir(_))
    }

    fn kind(&self) -> Kind {
        match self.body {
            Body::File(_) => Kind::File,
            Body::Dir(_) => Kind::Dir,
            Body::Link(_) => Kind::Symlink,
        }
    }

    fn stat(&self, dev: u64, ino: u64) -> Stat {
        let (nlink, len, pages) = match &self.body {
            Body::File(content) => (self.names, content.len, content.pages.len() as u64),
            Body::Dir(dir) => (if self.names == 0 { 0 } else { 2 + dir.subdirs }, PAGE, 1),
            Body::Link(target) => (self.names, target.as_os_str().len() as u64, 0),
        };
        Stat {
            dev,
            ino,
            kind: self.kind(),
            mode: self.mode,
            nlink,
            uid: self.uid,
            gid: self.gid,
            len,
            blocks: pages * BLOCKS_PER_PAGE,
            atime: self.atime,
            mtime: self.mtime,
            ctime: self.ctime,
        }
    }
}

/// The parts of a path, last first.
fn parts_reversed(path: &[u8]) -> impl Iterator<Item = OsString> {
    path.rsplit(|&byte| byte == b'/')
        .filter(|part| !part.is_empty())
        .map(|part| OsString::from_vec(part.to_vec()))
}

impl Tree {
    fn new() -> Tree {
        let start = Time { sec: CLOCK_START_SEC, nsec: 0 };
        let mut root = Node::new(Body::Dir(Dir::new(ROOT)), 0o755, start);
        root.names = 1;
        Tree {
            dev: NEXT_DEV.fetch_add(1, Ordering::Relaxed),
            nodes: HashMap::from([(ROOT, root)]),
            next_ino: ROOT + 1,
            next_change: 0,
            next_open: 0,
            ticks: 0,
        }
    }

    fn node(&self, ino: u64) -> &Node {
        self.nodes
            .get(&ino)
            .expect("invariant: a node lives while a name, a change or an open file refers to it")
    }

    fn node_mut(&mut self, ino: u64) -> &mut Node {
        self.nodes
            .get_mut(&ino)
            .expect("invariant: a node lives while a name, a change or an open file refers to it")
    }

    fn dir(&self, ino: u64) -> Result<&Dir> {
        match &self.node(ino).body {
            Body::Dir(dir) => Ok(dir),
            _ => Err(Errno::NOTDIR),
        }
    }

    fn dir_mut(&mut self, ino: u64) -> Result<&mut Dir> {
        match &mut self.node_mut(ino).body {
            Body::Dir(dir) => Ok(dir),
            _ => Err(Errno::NOTDIR),
        }
    }

    fn now(&mut self) -> Time {
        self.ticks += 1;
        Time {
            sec: CLOCK_START_SEC + (self.ticks / 1_000_000_000) as i64,
            nsec: (self.ticks % 1_000_000_000) as u32,
        }
    }

    /// Where `path` leads. All but the last part must exist.
    fn walk(&self, path: &Path, how: Last) -> Result<Found> {
        let bytes = path.as_os_str().as_bytes();
        match bytes {
            b"" => return Err(Errno::NOENT),
            _ if bytes.contains(&0) => return Err(Errno::INVAL),
            _ if bytes.len() >= PATH_MAX => return Err(Errno::NAMETOOLONG),
            _ => {}
        }
        let mut slash = bytes.ends_with(b"/");
        let mut todo: Vec<OsString> = parts_reversed(bytes).collect();
        let mut here = ROOT;
        let mut links = 0;
        while let Some(name) = todo.pop() {
            let dir = self.dir(here)?;
            if name == "." {
                continue;
            }
            if name == ".." {
                here = dir.parent;
                continue;
            }
            if name.len() > NAME_MAX {
                return Err(Errno::NAMETOOLONG);
            }
            let last = todo.is_empty();
            if last && slash && matches!(how, Last::Create | Last::CreateNew) {
                return Err(Errno::ISDIR);
            }
            let Some(&ino) = dir.names.get(&name) else {
                return if last {
                    Ok(Found { dir: here, name: Some(name), ino: None, slash })
                } else {
                    Err(Errno::NOENT)
                };
            };
            match &self.node(ino).body {
                Body::Link(target) if !last || how.follows(slash) => {
                    links += 1;
                    if links > LINKS_MAX {
                        return Err(Errno::LOOP);
                    }
                    let target = target.as_os_str().as_bytes();
                    if target.starts_with(b"/") {
                        here = ROOT;
                    }
                    slash |= last && target.ends_with(b"/");
                    todo.extend(parts_reversed(target));
                }
                Body::Dir(_) if !last => here = ino,
                Body::Dir(_) => {
                    return Ok(Found { dir: here, name: Some(name), ino: Some(ino), slash });
                }
                _ if !last || (slash && how != Last::Entry) => return Err(Errno::NOTDIR),
                _ => return Ok(Found { dir: here, name: Some(name), ino: Some(ino), slash }),
            }
        }
        self.dir(here)?;
        Ok(Found { dir: here, name: None, ino: Some(here), slash })
    }

    /// Makes `name` in `dir` mean `ino`, or nothing. Returns what it meant before, which the caller
    /// hands to [`Tree::release`] when it is done.
    fn change(
        &mut self,
        id: u64,
        dir: u64,
        name: &OsStr,
        ino: Option<u64>,
        now: Time,
    ) -> Result<Option<u64>> {
        let entries = self.dir_mut(dir)?;
        let old = put(&mut entries.names, name, ino);
        entries.changes.push(Change { id, name: name.to_owned(), ino });
        let mut subdirs = 0;
        if let Some(ino) = ino {
            let node = self.node_mut(ino);
            node.names += 1;
            node.kept += 1;
            node.ctime = now;
            subdirs += i64::from(node.is_dir());
        }
        if let Some(old) = old {
            let node = self.node_mut(old);
            node.names -= 1;
            node.ctime = now;
            subdirs -= i64::from(node.is_dir());
        }
        let entries = self.dir_mut(dir)?;
        entries.subdirs = entries.subdirs.wrapping_add_signed(subdirs);
        let node = self.node_mut(dir);
        node.mtime = now;
        node.ctime = now;
        Ok(old)
    }

    fn change_id(&mut self) -> u64 {
        self.next_change += 1;
        self.next_change
    }

    /// Forgets nodes that nothing refers to.
    fn release(&mut self, inos: impl IntoIterator<Item = u64>) {
        let mut todo: Vec<u64> = inos.into_iter().collect();
        while let Some(ino) = todo.pop() {
            let Some(node) = self.nodes.get(&ino) else { continue };
            if ino == ROOT || node.names + node.kept + node.opens > 0 {
                continue;
            }
            let Some(Node { body: Body::Dir(dir), .. }) = self.nodes.remove(&ino) else { continue };
            // A removed directory is empty, but a crash could have brought back what was in it.
            for child in dir
                .saved
                .into_values()
                .chain(dir.changes.into_iter().filter_map(|change| change.ino))
            {
                self.node_mut(child).kept -= 1;
                todo.push(child);
            }
        }
    }

    fn add(&mut self, dir: u64, name: &OsStr, body: Body, mode: u32) -> Result<u64> {
        let now = self.now();
        let ino = self.next_ino;
        self.next_ino += 1;
        let mut node = Node::new(body, mode, now);
        let parent = self.node(dir);
        if parent.mode & SETGID != 0 {
            node.gid = parent.gid;
            if node.is_dir() {
                node.mode |= SETGID;
            }
        }
        self.nodes.insert(ino, node);
        let id = self.change_id();
        self.change(id, dir, name, Some(ino), now)?;
        Ok(ino)
    }

    fn remove(&mut self, dir: u64, name: &OsStr) -> Result<()> {
        let now = self.now();
        let id = self.change_id();
        let old = self.change(id, dir, name, None, now)?;
        self.release(old);
        Ok(())
    }

    fn sync_dir(&mut self, ino: u64) -> Result<()> {
        let dir = self.dir_mut(ino)?;
        let mut dropped = Vec::new();
        for change in std::mem::take(&mut dir.changes) {
            // The change's own claim on the node passes to the saved name.
            dropped.extend(put(&mut dir.saved, &change.name, change.ino));
        }
        for &old in &dropped {
            self.node_mut(old).kept -= 1;
        }
        self.release(dropped);
        Ok(())
    }

    fn is_ancestor(&self, above: u64, mut below: u64) -> Result<bool> {
        loop {
            if below == above {
                return Ok(true);
            }
            if below == ROOT {
                return Ok(false);
            }
            below = self.dir(below)?.parent;
        }
    }

    fn rename(&mut self, from: &Found, to: &Found) -> Result<()> {
        let (Some(from_name), Some(to_name)) = (&from.name, &to.name) else {
            return Err(Errno::BUSY);
        };
        let ino = from.exists()?;
        let moves_dir = self.node(ino).is_dir();
        if !moves_dir && (from.slash || to.slash) {
            return Err(Errno::NOTDIR);
        }
        if moves_dir && self.is_ancestor(ino, to.dir)? {
            return Err(Errno::INVAL);
        }
        match to.ino {
            Some(target) if target == ino => return Ok(()),
            Some(target) => match (moves_dir, &self.node(target).body) {
                (true, Body::Dir(dir)) if !dir.names.is_empty() => return Err(Errno::NOTEMPTY),
                (false, Body::Dir(dir)) => {
                    // A directory above the source is not empty, which Linux notices first.
                    let above = !dir.names.is_empty() && self.is_ancestor(target, from.dir)?;
                    return Err(if above { Errno::NOTEMPTY } else { Errno::ISDIR });
                }
                (true, Body::File(_) | Body::Link(_)) => return Err(Errno::NOTDIR),
                (true, Body::Dir(_)) | (false, _) => {}
            },
            None => {}
        }
        let now = self.now();
        let id = self.change_id();
        let replaced = self.change(id, to.dir, to_name, Some(ino), now)?;
        self.change(id, from.dir, from_name, None, now)?;
        if let Ok(dir) = self.dir_mut(ino) {
            dir.parent = to.dir;
        }
        self.release(replaced);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use plfs::store::{Open, Store};

    use super::*;

    #[test]
    fn what_no_crash_could_bring_back_is_forgotten() {
        let store = MemStore::new();
        let path = |name: &str| PathBuf::from(format!("/{name}"));
        for round in 0..3 {
            store.mkdir(&path("d"), 0o700).unwrap();
            store.mkdir(&path("d/e"), 0o700).unwrap();
            let file = store.open(&path("d/e/f"), Open::create_new(0o600)).unwrap();
            store.link(&path("d/e/f"), &path("g")).unwrap();
            store.symlink(Path::new("x"), &path("d/s")).unwrap();
            if round > 0 {
                store.sync_dir(&path("d")).unwrap();
                store.sync_dir(Path::new("/")).unwrap();
            }
            store.rename(&path("d/e/f"), &path("g2")).unwrap();
            store.rename(&path("g"), &path("g2")).unwrap();
            store.unlink(&path("g")).unwrap();
            store.unlink(&path("g2")).unwrap();
            store.rename(&path("d/e"), &path("e")).unwrap();
            store.unlink(&path("d/s")).unwrap();
            store.rename(&path("e"), &path("d")).unwrap();
            store.rmdir(&path("d")).unwrap();
            assert!(store.lock().nodes.len() > 4);
            store.sync_dir(Path::new("/")).unwrap();
            assert_eq!(store.lock().nodes.len(), 2, "the root and the open file");
            drop(file);
            assert_eq!(store.lock().nodes.len(), 1);
        }
    }
}
