//! What the processes of a node share of a log set: the words of the page and what each says, where
//! the page is, and who lives in it.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use plfs_format::fnv_1a;
use plfs_format::mark::Mark;
use plfs_format::name::{self, SegmentRef};
use plfs_format::superblock::STREAMS_MAX;
use plfs_index::REGION_ALIGN;

use super::LogSet;
use super::journals::{look as look_at_journals, remove_journals};
use super::tray::{HeldData, LogsBelow, Tray};
use crate::config::Config;
use crate::container::Container;
use crate::error::{At, Error, Result};
use crate::store::machine::boot_time_ns;
use crate::store::shm::{PageGuard, SharedPage, WORDS};
use crate::store::{self, Errno, Keep, Links, Place, Store};
use crate::sync::plain::atomic::Ordering;
use crate::sync::{Mutex, MutexGuard, Word, lock};

// Places in the shared page. Word 0 is 0 until the owner has set the page up.
pub(super) const SET: usize = 0;
pub(super) const CLOCK: usize = 1;
pub(super) const NEXT_STREAM: usize = 2;
/// The largest stamp of a record of data that a process has begun.
pub(super) const WRITTEN: usize = 3;
pub(super) const SYNCED: usize = 4;
pub(super) const INDEX_NAMED: usize = 5;
/// The nonce of the tenancy.
pub(super) const NONCE: usize = 6;
/// Stamp of the last truncate that the end of file takes into account.
pub(super) const CUT: usize = 7;
/// Where the last block that a process of the node appended ends.
pub(super) const INDEX_END: usize = 8;
/// The index log is durable up to here.
pub(super) const INDEX_SYNCED: usize = 9;
/// All data that blocks below this offset of the index log point to is durable.
pub(super) const DATA_DURABLE: usize = 10;
/// A sync failed: nobody knows whose bytes or blocks are lost.
pub(super) const SYNC_FAILED: usize = 11;
/// The file's clock covers all commits up to this stamp; 0: as far as the node knows nobody goes by
/// it.
pub(super) const COVERED: usize = 12;
/// Goes up when a truncate begins and when it ends: odd while one is under way, or where one has
/// failed or its process has died.
pub(super) const CUTS: usize = 13;
/// How many truncates have counted.
pub(super) const CUTS_DONE: usize = 14;
/// How many O_APPEND writes have their stamp. Not the largest stamp: who has that may say it before
/// one with an earlier stamp, whose place nobody knows of then.
pub(super) const APPENDED: usize = 15;
/// What [`CLOCK`] was when the last truncate began.
pub(super) const CUT_SINCE: usize = 16;
/// What [`INDEX_END`] was then: its block lies behind that, if it has one.
pub(super) const CUT_FROM: usize = 17;
/// Where what the tray has of the index log begins: up to here the storage has it. What is behind,
/// up to [`INDEX_END`], is in the tray (see [`tray`](super::tray)).
pub(super) const TRAY_FROM: usize = 18;
/// Bytes of data in the tray.
pub(super) const TRAY_DATA: usize = 19;
/// When the oldest of what is in the tray came there, as the machine's clock says.
pub(super) const TRAY_SINCE: usize = 20;
/// Not 0: the storage did not take what is in the tray.
pub(super) const TRAY_REFUSED: usize = 21;
/// Names that were made beside a pack.
pub(super) const BESIDE: usize = 22;
/// A number of the root's own directory, [`root_number`]; 0: nobody knows.
pub(super) const ROOT: usize = 23;
/// For each journal of the node a bit: [`JOURNALS`] numbers of them. See
/// [`journals`](super::journals).
pub(super) const JOURNAL_BITS: usize = 24;
/// More processes of a node than write one file, as a rule; the others have no journal.
pub(super) const JOURNALS: usize = 8 * 64;
/// Where the file ends; after each truncate that counts it is the next of so many words. What
/// somebody says who has not noticed the truncate is said to a word that counts no more. The
/// highest bit changes each time that a word comes to count again: who was away so long sees it.
pub(super) const EOFS: usize = 32;
pub(super) const EOF_WORDS: usize = 32;
pub(super) const TAILS: usize = EOFS + EOF_WORDS;
/// For each stream what was written and is not durable yet: see
/// [`Unsynced`](super::durable::Unsynced).
pub(super) const UNSYNCED: usize = TAILS + STREAMS_MAX as usize;
/// For each stream the last segment that was decided, and its backend: see
/// [`PlaceOf`](super::place::PlaceOf).
pub(super) const PLACES: usize = UNSYNCED + STREAMS_MAX as usize;
/// When somebody first found what dead processes had left and not their container, as the machine's
/// clock says.
pub(super) const ASTRAY_SINCE: usize = PLACES + STREAMS_MAX as usize;
/// The container's directory: its length, then its bytes. For whoever finds the page of dead
/// processes; length 0 if it is too long.
pub(super) const DIR: usize = ASTRAY_SINCE + 1;
const _: () = assert!(DIR < WORDS);
/// Word 0 = this bit + the set's number: set 0 is a valid number.
pub(super) const READY: u64 = 1 << 32;
/// Word 0 = this bit + the set's number, while a process founds the set: if it dies, its mark is
/// found by the nonce.
pub(super) const FOUNDING: u64 = 1 << 33;
/// A tail is segment << 32 | offset in units of [`REGION_ALIGN`].
const OFFSET_BITS: u32 = 32;

/// Where a stream ends, as a word of the page. `None`: the segment is longer than a tail can say,
/// 16 TiB.
pub(super) fn pack_tail((segment, offset): (u32, u64)) -> Option<u64> {
    let units = u32::try_from(offset.div_ceil(REGION_ALIGN)).ok()?;
    Some(u64::from(segment) << OFFSET_BITS | u64::from(units))
}

/// Segment and offset.
pub(super) fn unpack_tail(tail: u64) -> (u32, u64) {
    ((tail >> OFFSET_BITS) as u32, u64::from(tail as u32) * REGION_ALIGN)
}

pub(super) fn too_long() -> Error {
    Error::invalid(
        Errno::FBIG,
        "a segment of the file's last number is as long as one can be: compact the file",
    )
}

pub(super) enum Shared {
    Page(SharedPage),
    Private(Box<Private>),
}

/// What a process has that shares with nobody.
pub(super) struct Private {
    words: [Word; WORDS],
    short: Mutex<()>,
    gate: Mutex<()>,
    cut: Mutex<()>,
}

/// Holds a lock of a page or of what stands for one.
#[allow(dead_code, reason = "held for its drop")]
pub(super) enum Guard<'a> {
    Page(PageGuard<'a>),
    Private(MutexGuard<'a, ()>),
}

impl Shared {
    /// The page, if it has a tray.
    pub(super) fn tray(&self) -> Option<&SharedPage> {
        match self {
            Shared::Page(page) if page.tray_bytes() > 0 => Some(page),
            _ => None,
        }
    }

    pub(super) fn words(&self) -> &[Word; WORDS] {
        match self {
            Shared::Page(page) => page.words(),
            Shared::Private(private) => &private.words,
        }
    }

    /// Where the processes meet, as marks have it; 0 if a process shares with nobody.
    pub(super) fn place(&self) -> store::Result<u32> {
        match self {
            Shared::Page(page) => page.place().map(|(dev, ino)| Mark::place_of(dev, ino)),
            Shared::Private(_) => Ok(0),
        }
    }

    /// The short lock: one append at a time.
    pub(super) fn lock(&self) -> store::Result<Guard<'_>> {
        match self {
            Shared::Page(page) => page.lock().map(Guard::Page),
            Shared::Private(private) => Ok(Guard::Private(lock(&private.short))),
        }
    }

    pub(super) fn gate(&self) -> store::Result<Guard<'_>> {
        match self {
            Shared::Page(page) => page.gate().map(Guard::Page),
            Shared::Private(private) => Ok(Guard::Private(lock(&private.gate))),
        }
    }

    pub(super) fn cut(&self) -> store::Result<Guard<'_>> {
        match self {
            Shared::Page(page) => page.cut().map(Guard::Page),
            Shared::Private(private) => Ok(Guard::Private(lock(&private.cut))),
        }
    }
}

/// The page of the node, which gets a tray `with_tray` if it is new.
pub(super) fn share(container: &Container, config: &Config, with_tray: bool) -> Result<Shared> {
    if let Some(dir) = &config.shared_memory {
        let path = page_path(container, dir);
        let _acting = container.store.act();
        let join = if with_tray { SharedPage::join_with_tray } else { SharedPage::join };
        match join(&path, container.store.user()) {
            // Without shared memory a process has a set of its own: slower to read, never wrong. So
            // too if it is full, or something else is in the way.
            Err(
                Errno::NOENT
                | Errno::NOTDIR
                | Errno::ACCESS
                | Errno::PERM
                | Errno::ROFS
                | Errno::NODEV
                | Errno::NOSPC
                | Errno::DQUOT
                | Errno::NOMEM,
            ) => {}
            other => return other.map(Shared::Page).at("share memory through", &path),
        }
    }
    Ok(Shared::Private(Box::new(Private {
        words: [const { Word::new(0) }; WORDS],
        short: Mutex::default(),
        gate: Mutex::default(),
        cut: Mutex::default(),
    })))
}

/// Writes the container's directory into the page.
pub(super) fn put_dir(words: &[Word; WORDS], container: &Container) {
    let top = container.root().join(name::ROOT_DIR);
    words[ROOT].store(root_number(container.store.as_ref(), &top), Ordering::SeqCst);
    words[ASTRAY_SINCE].store(0, Ordering::SeqCst);
    let bytes = container.dir.as_os_str().as_bytes();
    let room = &words[DIR + 1..];
    if bytes.len() > room.len() * 8 {
        return;
    }
    for (word, chunk) in room.iter().zip(bytes.chunks(8)) {
        let mut value = [0; 8];
        value[..chunk.len()].copy_from_slice(chunk);
        word.store(u64::from_le_bytes(value), Ordering::SeqCst);
    }
    words[DIR].store(bytes.len() as u64, Ordering::SeqCst);
}

/// A number of the directory at `top`, as long as it is there and the machine is up: a path says
/// nothing of who has it, where directories are renamed and mounted. 0 if nothing is there.
fn root_number(store: &dyn Store, top: &Path) -> u64 {
    store.stat(top, Links::Stay).map_or(0, |stat| {
        fnv_1a([stat.dev, stat.ino].into_iter().flat_map(u64::to_le_bytes)).max(1)
    })
}

/// What [`put_dir`] wrote.
pub(super) fn dir_of(words: &[Word; WORDS]) -> Option<PathBuf> {
    let room = &words[DIR + 1..];
    let len = usize::try_from(words[DIR].load(Ordering::SeqCst))
        .ok()
        .filter(|len| (1..=room.len() * 8).contains(len))?;
    let mut bytes: Vec<u8> = room
        .iter()
        .take(len.div_ceil(8))
        .flat_map(|word| word.load(Ordering::SeqCst).to_le_bytes())
        .collect();
    bytes.truncate(len);
    Some(PathBuf::from(OsString::from_vec(bytes)))
}

impl LogSet {
    /// Removes what killed writers of a container left in shared memory. For a container that is
    /// gone.
    pub fn forget_page(container: &Container, dir: &Path) {
        let path = page_path(container, dir);
        match SharedPage::find_file(&path, container.store.user()) {
            Err(Errno::NOENT) => return,
            Ok(Some(page)) => remove_journals(&page),
            _ => {}
        }
        SharedPage::remove_file(&path);
    }
}

/// Whether the processes that shared the page of user `uid` at `path` are all dead; then what they
/// left in a tray is given to the storage, their mark in the container goes, if it has the nonce of
/// the page and is that user's, and the page.
///
/// The store has the container; nobody needs to have it open, unless logs of it lie on another
/// backend: then `of` is it, or it waits for who has. False also if there is no page, or if
/// the container is not where it was: then a page is removed, and a mark stays. But a page that
/// dead processes have left something in waits for who has the container open, for [`ASTRAY_NS`],
/// unless the root is where it was and has the container no more: the root was moved perhaps, or
/// another one has been mounted over it, and what is at its path now is another one's.
pub(crate) fn reclaim(
    store: &dyn Store,
    path: &Path,
    uid: u32,
    of: Option<&Container>,
) -> Result<bool> {
    let heir = |page: &SharedPage| -> Result<bool> {
        let words = page.words();
        let (state, nonce) =
            (words[SET].load(Ordering::SeqCst), words[NONCE].load(Ordering::SeqCst));
        let tray = (page.tray_bytes() > 0).then_some(Tray(page)).filter(|tray| !tray.is_empty());
        let has_journals = look_at_journals(page, uid)? != (false, false);
        if state & (READY | FOUNDING) != 0
            && let Some(dir) = dir_of(words)
            && let Some(root) = root_of_container(&dir)
        {
            // One directory for all that follows, whatever the page's user does to the way to it.
            let place = Place { root: root.to_path_buf(), dir: dir.clone() };
            let view = store.inside(vec![place], Keep::WhenUsed);
            let store = view.as_deref().unwrap_or(store);
            let mark = dir.join(name::open_mark(state as u32));
            let text = match store.readlink(&mark) {
                Ok(text) => Some(text),
                Err(Errno::NOENT | Errno::NOTDIR | Errno::INVAL | Errno::LOOP) => None,
                // Nobody can tell now. The page waits, with what is in its tray.
                Err(errno) => return Err(errno).at("read", &mark),
            };
            let is_left = tray.is_some() || has_journals;
            let whose = whose(store, &dir, page.path());
            let was_removed = || {
                let known = words[ROOT].load(Ordering::SeqCst);
                known != 0 && known == root_number(store, &root.join(name::ROOT_DIR))
            };
            let waits = match whose {
                Whose::Own => false,
                Whose::Others => is_left,
                Whose::Nobodys => is_left && !was_removed(),
            };
            if waits && !is_astray_for_long(words) {
                return Ok(false);
            }
            if text
                .as_ref()
                .and_then(|text| text.to_str())
                .and_then(Mark::parse)
                // Anybody can read the nonce of another user, and write it into a page of his own.
                .is_some_and(|mark| mark.nonce == nonce && mark.uid == uid)
                && whose == Whose::Own
            {
                if has_journals {
                    // That takes a member: see [`carry_left`](super::carry_left).
                    return Ok(false);
                }
                if let Some(tray) = tray {
                    tray.carry(&LogsBelow { store, dir: &dir, set: state as u32, uid, of })?;
                }
                let ended = match words[SYNC_FAILED].load(Ordering::SeqCst) {
                    0 => store.unlink(&mark),
                    _ => store.rename(&mark, &dir.join(name::unsynced_mark(state as u32))),
                };
                match ended {
                    Ok(()) | Err(Errno::NOENT) => {}
                    Err(errno) => return Err(errno).at("remove", &mark),
                }
            }
        } else if tray.is_some() || has_journals {
            return Ok(false);
        }
        remove_journals(page);
        page.remove();
        Ok(true)
    };
    match SharedPage::inherit(path, uid, heir) {
        Ok(Some(done)) => done,
        // Something that is not the user's page: nobody shares it, and nobody inherits it.
        Ok(None) | Err(Errno::PERM) => Ok(false),
        Err(errno) => Err(errno).at("look at the shared page", path),
    }
}

/// Of what container a directory is.
#[derive(PartialEq, Eq)]
enum Whose {
    /// That of a page.
    Own,
    /// Another one: a copy, perhaps.
    Others,
    /// None is there.
    Nobodys,
}

/// Whether the container in `dir` is that of the page at `path`, whose name has its inode.
fn whose(store: &dyn Store, dir: &Path, path: &Path) -> Whose {
    let found = [name::BASE, name::SUPER].map(|name| store.stat(&dir.join(name), Links::Stay));
    let key = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let is_own = |stat: &store::Stat| key.contains(&format!("-{:x}-{:x}-", stat.dev, stat.ino));
    match found.iter().flatten().any(is_own) {
        true => Whose::Own,
        false if found.iter().any(|stat| stat.is_ok()) => Whose::Others,
        false if store.stat(dir, Links::Stay).is_ok() => Whose::Own,
        false => Whose::Nobodys,
    }
}

/// So long what dead processes have left waits for its container. A week: who was told by a batch
/// system that a job is dead, moves its directory and looks at it after the weekend has it all.
const ASTRAY_NS: u64 = 7 * 24 * 3600 * 1_000_000_000;

/// Notes that the container was not found, and whether it has not been for so long.
fn is_astray_for_long(words: &[Word; WORDS]) -> bool {
    let (since, now) = (&words[ASTRAY_SINCE], boot_time_ns().max(1));
    match since.compare_exchange(0, now, Ordering::SeqCst, Ordering::SeqCst) {
        Ok(_) => false,
        Err(since) => now.saturating_sub(since) >= ASTRAY_NS,
    }
}

/// The root of a container's directory; `None` for a directory that is not where containers are,
/// whatever a page says.
fn root_of_container(dir: &Path) -> Option<&Path> {
    let top = dir.ancestors().nth(2)?;
    top.parent().filter(|_| top.file_name().is_some_and(|name| name == name::ROOT_DIR))
}

/// Whether a process lives that shares the page of user `uid` at `path` in the tenancy with this
/// nonce. PERM if something is there that is not the user's page.
pub fn lives(path: &Path, uid: u32, nonce: u64) -> Result<bool> {
    let page = match SharedPage::peek(path, uid) {
        // Another user's: who may not look cannot say that they are dead.
        Err(Errno::ACCESS | Errno::PERM) => return Ok(true),
        other => other.at("look at the shared page", path)?,
    };
    Ok(page.is_some_and(|page| {
        page.words()[NONCE].load(Ordering::SeqCst) == nonce && page.has_members()
    }))
}

/// Whether the page of user `uid` at `path` names the tenancy with this nonce, whoever lives there.
/// Who may not look cannot say that it does not.
pub(crate) fn names_tenancy(path: &Path, uid: u32, nonce: u64) -> Result<bool> {
    match SharedPage::peek(path, uid) {
        Err(Errno::ACCESS | Errno::PERM) => Ok(true),
        other => other.at("look at the shared page", path).map(|page| {
            page.is_some_and(|page| page.words()[NONCE].load(Ordering::SeqCst) == nonce)
        }),
    }
}

/// What the processes of this node say of a container, for who is not one of them.
pub struct NodeLog(SharedPage);

/// [`NodeLog`], if there are such processes, or the page of such that are dead. A few calls on
/// shared memory.
pub fn node_log(container: &Container, config: &Config) -> Option<NodeLog> {
    let path = page_path(container, config.shared_memory.as_deref()?);
    let _acting = container.store.act();
    let page = SharedPage::peek(&path, container.store.user()).ok()??;
    let is_ready = page.words()[SET].load(Ordering::SeqCst) & READY != 0;
    is_ready.then_some(NodeLog(page))
}

impl NodeLog {
    /// The log set, and where the last block ends that one of them has appended.
    pub fn end(&self) -> (u32, u64) {
        let words = self.0.words();
        (words[SET].load(Ordering::SeqCst) as u32, words[INDEX_END].load(Ordering::SeqCst))
    }

    fn tray<T>(&self, look: impl FnOnce(Tray<'_>) -> T) -> Option<T> {
        if self.0.tray_bytes() == 0 {
            return None;
        }
        let _short = self.0.lock().ok()?;
        Some(look(Tray(&self.0)))
    }

    /// Whether nothing is in the tray.
    pub fn is_carried(&self) -> bool {
        self.tray(|tray| tray.is_empty()) != Some(false)
    }

    /// Whether something is in the tray and nobody lives who could carry it.
    pub fn is_left(&self) -> bool {
        self.tray(|tray| !tray.is_empty()) == Some(true) && !self.0.has_members()
    }

    /// As [`LogSet::recent`].
    pub fn recent(&self, from: u64) -> Option<(u64, Vec<u8>)> {
        self.tray(|tray| tray.index_from(from))?
    }

    /// As [`LogSet::data_of`].
    pub fn data_of(&self, at: &SegmentRef, physical: u64, length: usize) -> Vec<HeldData> {
        match self.0.tray_bytes() > 0 && Tray(&self.0).has_data() {
            true => self.tray(|tray| tray.data_of(at, physical, length)).unwrap_or_default(),
            false => Vec::new(),
        }
    }
}

/// Where the processes of this node and user meet for a container.
pub(super) fn page_path(container: &Container, dir: &Path) -> PathBuf {
    page_path_of(container, dir, container.store.user())
}

/// Where the processes of this node and another user meet.
pub(crate) fn page_path_of(container: &Container, dir: &Path, uid: u32) -> PathBuf {
    dir.join(format!("plfs-{uid}-{}", container.key()))
}
