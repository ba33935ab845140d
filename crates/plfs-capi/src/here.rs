//! The working directory, for opens of relative paths: to ask the kernel costs an eighth of the
//! open of a small file.
//!
//! A thread believes what it was told until a call that moves a process ([`moved`]) or names, or
//! for [`BELIEVED_NS`]. So what is believed can be old: somebody else renamed a directory above, or
//! the program went elsewhere by a system call of its own. Hence it serves for one thing only: to
//! give out a handle on a plain file, which its descriptor leads to and not its path. A file that
//! is made, promoted, pinned or removed is looked up by a path that the kernel said just now. And
//! only that a path is managed is believed, never that it is not: without a handle a program could
//! write below the logs of a file that others share.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::time::{ClockId, clock_gettime};

/// Longest directory that is kept.
const ROOM: usize = 256;

/// 0.5 s: with as much for what directories say of their files, a change of that is seen within a
/// second.
const BELIEVED_NS: u64 = 500_000_000;

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
    /// Whether new files in it are born plain, once somebody has found out.
    is_for_plain: Option<bool>,
    len: usize,
    text: [u8; ROOM],
}

impl Here {
    const NOWHERE: Here = Here {
        moves: 0,
        until_ns: 0,
        is_managed: false,
        is_for_plain: None,
        len: 0,
        text: [0; ROOM],
    };

    fn is_believed(&self) -> bool {
        self.len > 0 && self.moves == MOVES.load(Ordering::Acquire) && now_ns() < self.until_ns
    }
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
        here.is_for_plain = None;
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
        let mut joined = PathBuf::with_capacity(here.len() + 1 + path.as_os_str().len());
        joined.push(OsStr::from_bytes(here));
        joined.push(path);
        joined
    })
}

/// Whether new files in the working directory, as it is believed to be, are born plain: what `ask`
/// says, or said.
pub(crate) fn is_for_plain<E>(ask: impl FnOnce() -> Result<bool, E>) -> Result<bool, E> {
    HERE.with(|here| {
        let Ok(mut here) = here.try_borrow_mut() else { return ask() };
        match here.is_for_plain {
            Some(known) if here.is_believed() => Ok(known),
            _ => ask().inspect(|said| here.is_for_plain = Some(*said)),
        }
    })
}

/// Whether [`is_for_plain`] would say yes without asking.
pub(crate) fn is_known_for_plain() -> bool {
    HERE.with(|here| {
        let here = here.try_borrow();
        here.is_ok_and(|here| here.is_for_plain == Some(true) && here.is_believed())
    })
}
