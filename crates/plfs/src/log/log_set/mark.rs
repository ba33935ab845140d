//! The mark that says who owns a log set: created, read and removed.

use std::collections::BTreeSet;
use std::path::Path;

use plfs_format::mark::Mark;
use plfs_format::{Uuid, name};

use crate::container::Container;
use crate::error::{At, Error, Result};
use crate::store::machine::{ProcessFacts, host_name, random_u64};
use crate::store::{Errno, Links, Store};
use crate::sync::plain::{Mutex, lock};

/// Whether a log set has had its last owner. For an owner: a listing from before the creation of
/// its mark may be old.
pub(super) fn is_closed(container: &Container, set: u32) -> bool {
    // What cannot be looked at is not gone on with.
    let is_there = |mark: String| {
        container.store.stat(&container.path(&mark), Links::Stay) != Err(Errno::NOENT)
    };
    is_there(name::fenced_mark(set))
        || is_there(name::unsynced_mark(set))
        || lock(&UNTOLD).contains(&key_of(container, set))
}

/// Says in the container that a sync of a log set failed on this host. The kernel tells each
/// failure once: whoever syncs the set later would hear that all is well.
///
/// Where that finds no room this process remembers it, and whoever writes the set has it in the
/// page and renames its mark to it (docs/decisions/0009).
pub(crate) fn note_failed_sync(container: &Container, set: u32) {
    let ProcessFacts { boot, machine, pid_namespace, start } = ProcessFacts::of_this_process();
    let mark = Mark {
        nonce: random_u64(),
        boot,
        machine,
        pid_namespace,
        place: 0,
        pid: std::process::id(),
        start,
        uid: container.store.user(),
        host: host_name().to_string_lossy().into_owned(),
    };
    let path = container.path(&name::unsynced_mark(set));
    match container.store.symlink(Path::new(&mark.text()), &path) {
        // What does nothing any more syncs nothing either.
        Ok(()) | Err(Errno::EXIST | Errno::IO) => {}
        Err(_) => drop(lock(&UNTOLD).insert(key_of(container, set))),
    }
}

type Key = (Uuid, (u64, u64), u32);

/// Log sets of which a sync failed for this process, and the container does not say so.
static UNTOLD: Mutex<BTreeSet<Key>> = Mutex::new(BTreeSet::new());

fn key_of(container: &Container, set: u32) -> Key {
    (container.superblock.uuid, container.identity, set)
}

/// An error if a sync of a log set that is there has failed in this boot of the host: its data is
/// not durable, whatever a sync says. One readlink.
pub(crate) fn must_be_synced(container: &Container, set: u32) -> Result<()> {
    let path = container.path(&name::unsynced_mark(set));
    let is_of_another_boot = match container.store.readlink(&path) {
        // Another boot lost what was not durable: what its blocks point to is looked at by its
        // sums.
        Ok(text) => text.to_str().and_then(Mark::parse).is_some_and(|mark| {
            let own = ProcessFacts::of_this_process().boot;
            mark.boot != 0 && own != 0 && mark.boot != own
        }),
        Err(Errno::NOENT | Errno::INVAL) if lock(&UNTOLD).contains(&key_of(container, set)) => {
            false
        }
        Err(Errno::NOENT | Errno::INVAL) => return Ok(()),
        Err(errno) => return Err(errno).at("read", &path),
    };
    let dir = container.path(&name::log_set(set));
    if is_of_another_boot || container.store.stat(&dir, Links::Stay) == Err(Errno::NOENT) {
        return Ok(());
    }
    Err(Error::refused(Errno::IO, "sync", &dir, "an earlier sync of this log set failed"))
}

/// Creates the mark of a log set, unless somebody owns the set: whether it did.
pub(crate) fn claim(container: &Container, set: u32, mark: &Mark) -> Result<bool> {
    claim_in(container.store.as_ref(), &container.dir, set, mark)
}

/// [`claim`] in a container's directory on the root backend.
pub(crate) fn claim_in(store: &dyn Store, dir: &Path, set: u32, mark: &Mark) -> Result<bool> {
    let path = dir.join(name::open_mark(set));
    match store.symlink(Path::new(&mark.text()), &path) {
        Ok(()) => Ok(true),
        // A network file system may have repeated the call.
        Err(Errno::EXIST) => {
            Ok(read_mark_in(store, dir, set)?.is_some_and(|there| there.nonce == mark.nonce))
        }
        Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS) => {
            Err(Error::Unfit { path, what: "symbolic links" })
        }
        Err(errno) => Err(errno).at("create", &path),
    }
}

/// The mark of a log set. `None` if there is none, or none that this version can read: then the set
/// has an owner of whom nothing is known.
pub(crate) fn read_mark(container: &Container, set: u32) -> Result<Option<Mark>> {
    read_mark_in(container.store.as_ref(), &container.dir, set)
}

fn read_mark_in(store: &dyn Store, dir: &Path, set: u32) -> Result<Option<Mark>> {
    let path = dir.join(name::open_mark(set));
    match store.readlink(&path) {
        Ok(text) => Ok(text.to_str().and_then(Mark::parse)),
        // EINVAL: it is no link.
        Err(Errno::NOENT | Errno::INVAL) => Ok(None),
        Err(errno) => Err(errno).at("read", &path),
    }
}

pub(crate) fn remove_mark(container: &Container, set: u32) -> Result<()> {
    let path = container.path(&name::open_mark(set));
    match container.store.unlink(&path) {
        // Fenced at once: then it is another's word that counts.
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno).at("remove", &path),
    }
}
