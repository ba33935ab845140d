//! The working directory, for opens of relative paths: to ask the kernel costs an eighth of the
//! open of a small file.
//!
//! A thread believes what it was told until a call that moves a process ([`moved`]) or names, or
//! for [`BELIEVED_NS`]. So what is believed can be old: somebody else renamed a directory above, or
//! the program went elsewhere by a system call of its own. Hence it serves for one thing only: to
//! give out a handle on a plain file, which its descriptor leads to and not its path. A file that
//! is made, promoted or pinned is looked up by a path that the kernel said just now; so is one that
//! is removed, unless its directory is believed to have no containers. And only that a path is
//! managed is believed, never that it is not: without a handle a program could write below the logs
//! of a file that others share.

use std::cell::RefCell;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use plfs_core::Workload;
use rustix::time::{ClockId, clock_gettime};

/// Longest directory that is kept.
const ROOM: usize = 256;

/// Directories of a thread's opens of which is kept what new files there are.
const DIRS: usize = 4;
/// The longest text by which one is known.
const DIR_ROOM: usize = 128;

/// 0.5 s: with as much for what directories say of their files, a change of that is seen within a
/// second.
const BELIEVED_NS: u64 = 500_000_000;

/// 100 ms, as libplfs believes it of a directory.
const BARREN_NS: u64 = 100_000_000;

/// Counts calls after which the working directory may be another, or have another name.
static MOVES: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Without a destructor, which would be registered with libc's malloc.
    static HERE: RefCell<Here> = const { RefCell::new(Here::NOWHERE) };
}

struct Here {
    moves: u64,
    until_ns: u64,
    /// It is a managed directory, or lies below one.
    is_managed: bool,
    len: usize,
    text: [u8; ROOM],
    /// How often the working directory was asked for.
    asked: u64,
    /// What is known of directories that opens went to; the place of the next one.
    dirs: [Dir; DIRS],
    next: usize,
}

/// A directory, as paths of opens name it: all up to the last slash, nothing for the working
/// directory.
#[derive(Clone, Copy)]
struct Dir {
    /// What `asked` was: a relative one is below what that gave.
    asked: u64,
    moves: u64,
    until_ns: u64,
    /// What new files in it are.
    workload: Workload,
    /// Until when it is believed to have no containers, as long as the process has made so many.
    barren: (u64, u64),
    len: usize,
    text: [u8; DIR_ROOM],
}

impl Dir {
    const UNKNOWN: Dir = Dir {
        asked: 0,
        moves: 0,
        until_ns: 0,
        workload: Workload::Auto,
        barren: (0, 0),
        len: 0,
        text: [0; DIR_ROOM],
    };
}

impl Here {
    const NOWHERE: Here = Here {
        moves: 0,
        until_ns: 0,
        is_managed: false,
        len: 0,
        text: [0; ROOM],
        asked: 0,
        dirs: [Dir::UNKNOWN; DIRS],
        next: 0,
    };

    fn is_believed(&self) -> bool {
        self.len > 0 && self.moves == MOVES.load(Ordering::Acquire) && now_ns() < self.until_ns
    }

    /// The place of what is known of the directory of `path`, if that is believed.
    fn known(&self, path: &[u8]) -> Option<usize> {
        let dir = dir_of(path)?;
        let place = self.dirs.iter().position(|known| &known.text[..known.len] == dir)?;
        let known = &self.dirs[place];
        let is_below = || dir.first() == Some(&b'/') || known.asked == self.asked;
        (known.moves == moves() && is_below() && now_ns() < known.until_ns).then_some(place)
    }
}

/// The directory of a path of a file. `None` if that ends as one of a directory, or is too long.
fn dir_of(path: &[u8]) -> Option<&[u8]> {
    let end = path.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    let is_name = !matches!(&path[end..], b"" | b"." | b"..");
    (is_name && end <= DIR_ROOM).then_some(&path[..end])
}

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The first look at the clock finds out where the kernel has it, which takes much more stack than
/// later ones.
pub(crate) fn know_the_clock() {
    now_ns();
}

/// The working directory may be another now, or have another name.
pub(crate) fn moved() {
    MOVES.fetch_add(1, Ordering::AcqRel);
}

/// How often that was so; for [`keep`].
pub(crate) fn moves() -> u64 {
    MOVES.load(Ordering::Acquire)
}

/// This thread's working directory is `text`, asked for when there had been so many `moves`.
pub(crate) fn keep(text: &[u8], is_managed: bool, moves: u64) {
    HERE.with(|here| {
        // It is taken in the handler of a fault of this thread.
        let Ok(mut here) = here.try_borrow_mut() else { return };
        let Some(room) = here.text.get_mut(..text.len()) else { return };
        room.copy_from_slice(text);
        (here.len, here.is_managed, here.moves) = (text.len(), is_managed, moves);
        here.asked += 1;
        here.until_ns = now_ns() + BELIEVED_NS;
    });
}

/// What `use_it` makes of the working directory as it is believed to be, and of whether that is a
/// managed directory or lies below one.
pub(crate) fn with<T>(use_it: impl FnOnce(&[u8], bool) -> T) -> Option<T> {
    HERE.with(|here| {
        let here = here.try_borrow().ok().filter(|here| here.is_believed())?;
        Some(use_it(&here.text[..here.len], here.is_managed))
    })
}

/// `path`, which is relative, below the working directory as it is believed to be.
pub(crate) fn join(path: &Path) -> Option<PathBuf> {
    with(|here, _| {
        let mut joined = Vec::with_capacity(here.len() + 1 + path.as_os_str().len());
        joined.extend_from_slice(here);
        if here.last() != Some(&b'/') {
            joined.push(b'/');
        }
        joined.extend_from_slice(path.as_os_str().as_bytes());
        PathBuf::from(OsString::from_vec(joined))
    })
}

/// What new files beside `path` are: what `ask` says, or said. Of a relative path as long as the
/// working directory is believed to be what it was.
pub(crate) fn workload<E>(
    path: &[u8],
    ask: impl FnOnce() -> Result<Workload, E>,
) -> Result<Workload, E> {
    if let Some(known) = known_workload(path) {
        return Ok(known);
    }
    let moves = moves();
    let said = ask()?;
    let Some(dir) = dir_of(path) else { return Ok(said) };
    HERE.with(|here| {
        let Ok(mut here) = here.try_borrow_mut() else { return };
        let here = &mut *here;
        let until_ns = match path[0] {
            b'/' => now_ns() + BELIEVED_NS,
            _ if here.is_believed() => here.until_ns,
            _ => return,
        };
        let same = here.dirs.iter().position(|known| &known.text[..known.len] == dir);
        let place = same.unwrap_or_else(|| {
            here.next = (here.next + 1) % DIRS;
            here.next
        });
        let known = &mut here.dirs[place];
        known.text[..dir.len()].copy_from_slice(dir);
        (known.len, known.workload) = (dir.len(), said);
        (known.asked, known.moves, known.until_ns) = (here.asked, moves, until_ns);
        known.barren = (0, 0);
    });
    Ok(said)
}

/// What [`workload`] would say without asking.
pub(crate) fn known_workload(path: &[u8]) -> Option<Workload> {
    HERE.with(|here| {
        let here = here.try_borrow().ok()?;
        here.known(path).map(|place| here.dirs[place].workload)
    })
}

/// Whether files beside `path` have no containers: what `ask` says, or said a moment ago, when the
/// process had `made` so many. No where nothing is known of the directory.
pub(crate) fn is_barren(path: &[u8], made: u64, ask: impl FnOnce() -> bool) -> bool {
    let known = |here: &Here| {
        here.known(path).map(|place| (here.dirs[place].barren, here.dirs[place].workload))
    };
    match HERE.with(|here| here.try_borrow().ok().and_then(|here| known(&here))) {
        Some(((until_ns, then), Workload::Auto)) if then == made && now_ns() < until_ns => {
            return true;
        }
        Some((_, Workload::Auto)) => {}
        _ => return false,
    }
    let is_barren = ask();
    if is_barren {
        HERE.with(|here| {
            let Ok(mut here) = here.try_borrow_mut() else { return };
            if let Some(place) = here.known(path) {
                here.dirs[place].barren = (now_ns() + BARREN_NS, made);
            }
        });
    }
    is_barren
}
