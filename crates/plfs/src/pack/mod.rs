//! L5: packs: the small files of a directory in one container (docs/decisions/0019).
//!
//! A [`Pack`] is one process's view of the pack of one directory. Names and attributes come from
//! memory and a sorted tree; a file that is made and written is some bytes in a data log and a
//! record or two in a block that many files share. Here is how one is opened. What is done to
//! `names`, and to the `data` of open files, when it `look`s at others' logs, how it `commit`s,
//! what it has read (`index`) and is about to say (`writer`), and how a `fold` makes the tree, have
//! a file each.
//!
//! Nobody checks permissions here, nor types of names beside the pack's: doors do.
//!
//! One lock for all calls of a process on a pack: they are short, but for commits and syncs.

mod bell;
mod commit;
mod compact;
mod data;
mod fold;
mod index;
mod look;
mod names;
mod tree;
mod writer;

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use plfs_format::name::SegmentRef;
use plfs_format::pack;
pub use plfs_format::pack::{Attributes, FileId, When};
use plfs_pack::{FileState, View};

use self::bell::Bell;
pub use self::compact::PackUsage;
pub use self::data::OUTGROWN_BYTES;
use self::index::PackIndex;
pub use self::names::Since;
use self::writer::Writer;
use crate::catalog;
use crate::config::Config;
use crate::container::{Container, find_pack, make_pack, pack_in_container};
use crate::error::{At, Result};
use crate::lifecycle;
use crate::log::{DataLog, LogSet, Moved};
use crate::read::SegmentFiles;
use crate::store::{Errno, Kind, Links, Stat, Store, Time};
use crate::sync::atomic::AtomicBool;
use crate::sync::{Arc, Mutex, MutexGuard, lock};

/// When a process says what it did, and when it asks what others did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackOptions {
    /// A call looks at other nodes' logs if the last look is so old. 1 s.
    pub look_every: Duration,
    /// Creations that are not exclusive, removals, truncates and attributes wait for
    /// [`Pack::commit`], or for the next record that cannot wait. Else each is said at once.
    pub batch: bool,
    /// What is said waits so long in the node's memory, at most, before a call or
    /// [`Pack::carry`] gives it to the storage with all that came meanwhile
    /// (docs/decisions/0023). `None`: each call that says something does. For who calls
    /// [`Pack::carry`] as often.
    pub hold: Option<Duration>,
}

impl Default for PackOptions {
    fn default() -> PackOptions {
        PackOptions { look_every: Duration::from_secs(1), batch: false, hold: None }
    }
}

/// How to open a file of a pack, as `open(2)`'s flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PackOpen {
    /// Create it if it is missing.
    pub create: bool,
    /// With `create`: it must be missing.
    pub exclusive: bool,
    /// Cut to 0 bytes.
    pub truncate: bool,
    /// Permission bits of a new file, as they shall be.
    pub mode: u32,
    /// Owner of a new file.
    pub uid: u32,
    /// Group of a new file.
    pub gid: u32,
}

/// What `stat` says of a file of a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackStat {
    /// The file; no other file of the pack ever has it.
    pub id: FileId,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes.
    pub size: u64,
    /// It is removed: nothing but open handles leads to it.
    pub is_gone: bool,
    /// Last access.
    pub atime: Time,
    /// Last modification.
    pub mtime: Time,
    /// Last change of anything.
    pub ctime: Time,
}

impl PackStat {
    fn of(id: FileId, state: &FileState) -> PackStat {
        let time = |when: When| Time { sec: when.sec, nsec: when.nsec };
        PackStat {
            id,
            mode: state.mode(),
            uid: state.uid(),
            gid: state.gid(),
            size: state.size(),
            is_gone: state.is_gone,
            atime: time(state.atime(id)),
            mtime: time(state.mtime(id)),
            ctime: time(state.ctime(id)),
        }
    }

    /// The same as what a store says of its files, in the pack whose name has this device and
    /// inode.
    pub fn stat(&self, pack: (u64, u64)) -> Stat {
        let PackStat { mode, uid, gid, size: len, atime, mtime, ctime, .. } = *self;
        let (ino, blocks) = (self.ino(pack), len.div_ceil(512));
        Stat {
            dev: pack.0,
            ino,
            kind: Kind::File,
            mode,
            nlink: u64::from(!self.is_gone),
            uid,
            gid,
            len,
            blocks,
            atime,
            mtime,
            ctime,
        }
    }

    /// A number for the file, as inodes have one. Two files of a pack may share one: their nodes
    /// made them in the same 15 ns.
    ///
    /// From 2^62 to 2^63, where file systems have none. The pack has a part in it: in a copy of a
    /// tree the files have the ids that they had, and are others.
    pub fn ino(&self, (_, of_pack): (u64, u64)) -> u64 {
        let of_file = self.id.stamp ^ (u64::from(self.id.set) << 40);
        // The golden ratio, so that all bits depend on the number.
        let mixed = of_file ^ of_pack.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (1 << 62) | (mixed & ((1 << 62) - 1))
    }
}

/// An open file of a pack. It keeps what it knows of the file: a file that is removed, or replaced,
/// can be read and written as long as it is open, until a compaction.
#[derive(Debug)]
pub struct PackFile {
    id: FileId,
    name: Box<[u8]>,
    known: Arc<Mutex<View>>,
}

impl PackFile {
    /// The file.
    pub fn id(&self) -> FileId {
        self.id
    }

    /// All that is known of it. Not to be held while records are added.
    fn view(&self) -> MutexGuard<'_, View> {
        lock(&self.known)
    }

    /// The name by which it was opened.
    pub fn name(&self) -> &[u8] {
        &self.name
    }
}

/// One process's view of the pack of a directory. Thread-safe.
///
/// Dropping it commits and leaves, but nobody hears of errors: use [`Pack::close`].
pub struct Pack {
    container: Arc<Container>,
    config: Arc<Config>,
    dir: Mutex<PathBuf>,
    options: PackOptions,
    /// See [`Pack::hold_nothing`].
    holds_nothing: AtomicBool,
    /// See [`Pack::set_changing`].
    is_changing: AtomicBool,
    /// What this process's data is held by until it is durable; 0: it is lost with nothing else.
    boot: u64,
    segments: SegmentFiles,
    bell: Bell,
    state: Mutex<State>,
}

struct State {
    index: PackIndex,
    /// [`PackIndex::generation`] when what waits was last added to it.
    added: u64,
    /// When the logs of all nodes were read last.
    looked: Option<Instant>,
    writer: Option<Writer>,
    /// What [`Bell::rings`] was at the last look of one who is not a member.
    rings: Option<u64>,
    /// The log of the node, and its end, as one who is not a member saw it.
    seen_of_node: Option<(u32, u64)>,
    /// Log sets that this process does not own and that a sync makes durable: they have records of
    /// files that it has written to, or it has left them.
    others: HashSet<u32>,
    /// Open files whose names this process has removed.
    removed: HashSet<FileId>,
    /// Of writes in doubt, whether their data fits.
    sound: HashMap<(SegmentRef, u64, u32), bool>,
}

impl std::fmt::Debug for Pack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pack").field("dir", &self.dir()).finish_non_exhaustive()
    }
}

impl Drop for Pack {
    fn drop(&mut self) {
        let _ = self.leave();
    }
}

impl Pack {
    /// The pack of the directory `dir`; `None` if it has none.
    pub fn find(
        store: &Arc<dyn Store>,
        config: &Arc<Config>,
        dir: &Path,
        options: PackOptions,
    ) -> Result<Option<Pack>> {
        let found = find_pack(store, config, dir)?;
        Ok(found.map(|container| Pack::of(container, config, dir, options)))
    }

    /// The pack that has its container at this place, for who may have an old name of the directory
    /// only, the second one. `None`: it has no name any more.
    pub fn in_container(
        store: &Arc<dyn Store>,
        config: &Arc<Config>,
        (container, dir): (&Path, &Path),
        options: PackOptions,
    ) -> Result<Option<Pack>> {
        let found = pack_in_container(store, config, container)?;
        Ok(found.map(|container| Pack::of(container, config, dir, options)))
    }

    /// The pack that has this container, for tools that know no directory of it.
    pub(crate) fn of_container(container: Container, config: &Arc<Config>) -> Pack {
        let dir = container.dir.clone();
        Pack::of(container, config, &dir, PackOptions::default())
    }

    /// The pack of the directory `dir`, which is made if there is none. Costs some ten calls on the
    /// storage the first time, and for who only opens it three.
    pub fn open(
        store: &Arc<dyn Store>,
        config: &Arc<Config>,
        dir: &Path,
        options: PackOptions,
    ) -> Result<Pack> {
        let made = make_pack(store, config, dir)?;
        Pack::find(store, config, dir, options)?.map_or_else(
            // Somebody has removed it since.
            || Err(Errno::NOENT).at("open the pack of", &made.dir),
            Ok,
        )
    }

    fn of(container: Container, config: &Arc<Config>, dir: &Path, options: PackOptions) -> Pack {
        let container = Arc::new(container);
        let boot = match container.store.boot(container.root()) {
            None => 0,
            Some(0) => u64::MAX,
            Some(boot) => boot,
        };
        let bell = Bell::of(&container, config);
        let state = State {
            index: PackIndex::new(container.clone()),
            added: 0,
            looked: None,
            writer: None,
            rings: None,
            seen_of_node: None,
            others: HashSet::new(),
            removed: HashSet::new(),
            sound: HashMap::new(),
        };
        Pack {
            container,
            config: config.clone(),
            dir: Mutex::new(dir.to_path_buf()),
            options,
            holds_nothing: AtomicBool::new(false),
            is_changing: AtomicBool::new(false),
            boot,
            segments: SegmentFiles::default(),
            bell,
            state: Mutex::new(state),
        }
    }

    /// The directory, as it was found last.
    pub fn dir(&self) -> PathBuf {
        lock(&self.dir).clone()
    }

    /// The directory was found here: somebody has renamed it, or one above it.
    pub fn moved(&self, dir: &Path) {
        let mut known = lock(&self.dir);
        if *known != dir {
            *known = dir.to_path_buf();
        }
    }

    /// How often processes of the node have said something in it, or removed it. `None`: nobody
    /// hears them.
    pub fn rings(&self) -> Option<u64> {
        self.bell.rings()
    }

    /// Tells processes of the node that it was removed.
    pub fn ring(&self) {
        self.bell.ring();
    }

    /// Whether this process writes it: then nobody removes it.
    pub fn is_writer(&self) -> bool {
        lock(&self.state).writer.is_some()
    }

    /// The settings.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Whether a process writes it, this one included: a listing.
    pub fn is_written(&self) -> Result<bool> {
        let names = self.container.list()?;
        Ok(catalog::has_owner(&names)
            && (!lifecycle::end_the_dead(&self.container, &self.config, &names)?
                || catalog::has_owner(&self.container.list()?)))
    }

    /// Whether all files move out of it (`plfs unpack`): then nobody writes them. One call on the
    /// storage, or two.
    pub fn is_leaving(&self) -> Result<bool> {
        let (store, dir) = (&self.container.store, self.dir());
        match store.stat(&dir.join(pack::OUT), Links::Stay) {
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(false),
            other => other.at("stat", &dir.join(pack::OUT))?,
        };
        let of = store.stat(&dir.join(pack::NAME), Links::Stay);
        Ok(of.is_err() || of.is_ok_and(|stat| stat.mode & pack::CHANGING != 0))
    }

    /// Its container, for tools.
    pub fn container(&self) -> &Container {
        &self.container
    }
}

/// A data log on one backend that takes new data: records of a pack do not say that bytes went to
/// another one when that had no room.
fn data_log(container: &Arc<Container>, set: &Arc<LogSet>, budget_bytes: usize) -> DataLog {
    let first = container.targets(set.id(), 0).ok().and_then(|ids| ids.first().copied());
    let backend = first.unwrap_or_else(|| container.backend_of(set.id(), 0));
    DataLog::on(container.clone(), set.clone(), budget_bytes, vec![backend])
}

/// What a [`data_log`] says of bytes that it moved: it moves none.
fn nothing_moves(_: Moved) {}
