//! How a container goes away: when its last name is gone and nobody has it open.

use std::any::Any;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

use plfs_format::index_log::decode_block;
use plfs_format::name::{self, Name};

use super::marks::may_be_held_by_mark;
use crate::container::Container;
use crate::error::{At, Error, Result};
use crate::log::{self, LogSet, Piece};
use crate::store::writers::Writers;
use crate::store::{Errno, Kind, Links, LockKind, Open, Stat, Store, StoreFile, shm};
use crate::sync::{Arc, thread};
use crate::write::Identity;

/// Held while a process uses a container, so that whoever removes its last name leaves the data to
/// it.
///
/// On a local file system it is a lock on the container's directory, by the descriptor that an open
/// file has of it anyway. The founder of a log set in a crowd has only its mark
/// ([`LogSet::is_of_crowd`]): who removes a container looks at marks, too. Elsewhere locks are slow
/// or do not reach other clients anyway: there a file in the node's shared memory serves, and a
/// removal by another node takes the data away, as on NFS.
#[derive(Debug)]
pub struct Hold(#[allow(dead_code)] HoldKind);

#[derive(Debug)]
enum HoldKind {
    Dir(#[allow(dead_code)] Arc<dyn StoreFile>),
    View(#[allow(dead_code)] Box<dyn Any + Send + Sync>),
    Node(#[allow(dead_code)] Option<shm::Presence>),
}

impl Hold {
    /// Holds the container; ESTALE if it is being removed or gone. A lock and a stat on a local
    /// file system, two calls on shared memory elsewhere.
    pub fn take(container: &Container, shared_memory: Option<&Path>) -> Result<Hold> {
        if container.local {
            let mut own = None;
            for _ in 0..HOLD_TRIES {
                if let Some(held) = Hold::lock(container, &mut own)? {
                    // Who removes it has the lock until all is gone: it is there whole, or not at
                    // all.
                    container
                        .store
                        .stat(&container.dir, Links::Stay)
                        .map_err(gone)
                        .at("stat", &container.dir)?;
                    return Ok(Hold(held));
                }
                // Somebody removes it; or has looked whether it may go, and it may not.
                thread::sleep(std::time::Duration::from_millis(1));
            }
            return Err(Error::refused(Errno::STALE, "use", &container.dir, "it is being removed"));
        }
        Ok(Hold(HoldKind::Node(
            shared_memory.and_then(|dir| shm::Presence::join(&presence_path(container, dir)).ok()),
        )))
    }

    /// One try to lock the directory, by the view's descriptor or else by `own`. `None` if somebody
    /// has it alone.
    fn lock(
        container: &Container,
        own: &mut Option<Arc<dyn StoreFile>>,
    ) -> Result<Option<HoldKind>> {
        let dir = match own.take() {
            Some(dir) => dir,
            None => match container.store.hold() {
                Some(Ok(held)) => return Ok(Some(HoldKind::View(held))),
                Some(Err(Errno::AGAIN)) => return Ok(None),
                Some(Err(errno)) => return Err(errno).at("lock", &container.dir),
                None => container
                    .store
                    .open(&container.dir, Open::READ)
                    .map_err(gone)
                    .at("open", &container.dir)?,
            },
        };
        if dir.try_lock(LockKind::Shared).at("lock", &container.dir)? {
            return Ok(Some(HoldKind::Dir(dir)));
        }
        *own = Some(dir);
        Ok(None)
    }

    /// For who removes the container: keeps others from beginning to use it, on a local file
    /// system. `None` if a process holds it, as far as this node can know.
    fn take_alone(container: &Container, shared_memory: Option<&Path>) -> Result<Option<Hold>> {
        if container.local {
            let dir = match container.store.open(&container.dir, Open::READ.briefly()) {
                Err(Errno::NOENT) => return Ok(None),
                other => other.at("open", &container.dir)?,
            };
            let is_free = dir.try_lock(LockKind::Exclusive).at("lock", &container.dir)?
                && !may_be_held_by_mark(container, shared_memory)?;
            return Ok(is_free.then_some(Hold(HoldKind::Dir(dir))));
        }
        Ok(shared_memory
            .is_none_or(|dir| shm::Presence::is_free(&presence_path(container, dir)))
            .then_some(Hold(HoldKind::Node(None))))
    }
}

/// How often a process tries to hold a container that another one has alone, a millisecond apart:
/// that looks whether it may go, and may be stopped, or removes it.
const HOLD_TRIES: u32 = if cfg!(feature = "shuttle") { 100 } else { 2_000 };

/// A container that is not there was removed under who has it open.
fn gone(errno: Errno) -> Errno {
    if errno == Errno::NOENT { Errno::STALE } else { errno }
}

fn presence_path(container: &Container, dir: &Path) -> PathBuf {
    dir.join(format!("plfs-hold-{}", container.key()))
}

/// Removes the container if its superblock has no name left and no process holds it open. Whether
/// it did.
///
/// A container that is open stays; the last one to close it calls this again. A crash in between
/// leaves garbage that `check` takes out.
pub fn remove_if_nameless(container: &Container, shared_memory: Option<&Path>) -> Result<bool> {
    unless_theirs(if_nameless(container, shared_memory, || remove_container(container)))
}

/// What other users have written is theirs. The name is gone all the same, and a check names what
/// is left: they remove it, or root.
fn unless_theirs(removed: Result<bool>) -> Result<bool> {
    match removed {
        Err(error) if matches!(error.errno(), Errno::ACCESS | Errno::PERM) => Ok(false),
        other => other,
    }
}

/// Runs `act`, which takes the container away, if its superblock has no name left and no process
/// holds it open. Whether it did.
pub(crate) fn if_nameless(
    container: &Container,
    shared_memory: Option<&Path>,
    act: impl FnOnce() -> Result<()>,
) -> Result<bool> {
    let inode = container.inode_path();
    match container.store.stat(&inode, Links::Stay) {
        Ok(stat) if stat.nlink > 1 => return Ok(false),
        Ok(_) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno).at("stat", &inode),
    }
    if_unused(container, shared_memory, act)
}

/// [`remove_if_nameless`] for who has looked whether there is a name.
pub fn remove_nameless(container: &Container, shared_memory: Option<&Path>) -> Result<bool> {
    unless_theirs(if_unused(container, shared_memory, || remove_container(container)))
}

fn if_unused(
    container: &Container,
    shared_memory: Option<&Path>,
    act: impl FnOnce() -> Result<()>,
) -> Result<bool> {
    if container.copied || container.original().is_some() {
        return Ok(false);
    }
    let Some(mut _alone) = Hold::take_alone(container, shared_memory)? else { return Ok(false) };
    while is_open_as_plain(container, shared_memory) {
        // Who has closed it meanwhile has left the removal to who was alone.
        drop(_alone);
        if is_open_as_plain(container, shared_memory) {
            return Ok(false);
        }
        let Some(again) = Hold::take_alone(container, shared_memory)? else { return Ok(false) };
        _alone = again;
    }
    act()?;
    if let Some(dir) = shared_memory {
        LogSet::forget_page(container, dir);
    }
    Ok(true)
}

/// Whether a process may have the file open as a plain one, from before it had a container: when it
/// looks again it finds what is in the container.
pub(super) fn is_open_as_plain(container: &Container, shared_memory: Option<&Path>) -> bool {
    if !container.superblock.has_base {
        return false;
    }
    if container.local {
        return match container.store.open(&container.path(name::BASE), Open::READ.briefly()) {
            Ok(base) => base.is_open_elsewhere(),
            // What nobody can tell is not taken away.
            Err(errno) => errno != Errno::NOENT,
        };
    }
    // Of other nodes nobody knows, nor who reads. A handle of this process that has gone on to the
    // container is closed before anybody asks.
    let writers = |dir| Writers::join(dir, container.store.user()).ok();
    shared_memory.and_then(writers).is_some_and(|table| table.has(container.identity))
}

/// Removes all that is the container's [own](Container::own_dirs) on its backends, the root's part
/// last.
pub(crate) fn remove_container(container: &Container) -> Result<()> {
    container
        .own_dirs()?
        .iter()
        .rev()
        .try_for_each(|dir| remove_tree(container.store.as_ref(), dir))
}

/// Removes a directory with all that is in it, by a store that follows no links there. A link is
/// removed, not followed, and so is one that comes in a directory's place meanwhile.
pub(crate) fn remove_tree(store: &dyn Store, dir: &Path) -> Result<()> {
    let unlink = |path: &Path| match store.unlink(path) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno).at("remove", path),
    };
    // The superblock goes last: while it is there, `check` can tell what this was.
    let mut left = match store.unlink_files(dir, name::SUPER) {
        Ok(left) => left,
        Err(Errno::NOENT) => return Ok(()),
        Err(Errno::LOOP | Errno::NOTDIR) => return unlink(dir),
        Err(errno) => return Err(errno).at("empty", dir),
    };
    left.sort_by_key(|entry| entry.name == name::SUPER);
    let mut failed = Ok(());
    for entry in left {
        // What cannot be removed is nothing without it.
        if entry.name == name::SUPER && failed.is_err() {
            break;
        }
        let path = dir.join(&entry.name);
        let done = match entry.kind {
            // Not every file system says.
            Some(Kind::Dir) | None => remove_tree(store, &path),
            Some(_) => unlink(&path),
        };
        failed = failed.and(done);
    }
    failed?;
    match store.rmdir(dir) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno).at("remove", dir),
    }
}

/// Removes the log sets that nobody owns and in which nothing is younger than `dead`, the stamp of
/// a durable truncate to 0 in the caller's own set `keep`.
///
/// Owns each set while it removes it, so that no other node takes it over meanwhile. Sets of other
/// users stay: the truncate hides their bytes.
pub fn remove_stale_sets(container: &Container, keep: u32, dead: u64) -> Result<()> {
    let store = container.store.as_ref();
    let names = container.list()?;
    remove(store, &container.path(name::FLAT))?;
    let mut owned = Vec::new();
    let identity = Identity::of_this_process(store.user());
    let marked: HashSet<&Name> = names.iter().collect();
    for name in &names {
        let Name::LogSet(set) = *name else { continue };
        if set == keep || marked.contains(&Name::OpenMark(set)) {
            continue;
        }
        // A fenced set has no owner, and never gets one. That it is fenced is said as long as there
        // is the container.
        if marked.contains(&Name::Fenced(set)) {
            owned.push((set, false));
        } else if log::claim(container, set, &identity.mark()).unwrap_or(false) {
            owned.push((set, true));
        }
    }
    // Somebody may have taken a set over since the truncate, written, and left again.
    let dead = owned
        .iter()
        .map(|(set, _)| Ok(is_dead(container, *set, dead)?.then_some(*set)))
        .collect::<Result<Vec<_>>>();
    let removed = dead.and_then(|sets| remove_log_sets(container, sets.into_iter().flatten()));
    let claimed = owned.iter().filter(|(_, is_claimed)| *is_claimed);
    claimed
        .map(|(set, _)| remove(store, &container.path(&name::open_mark(*set))))
        .fold(removed, Result::and)
}

fn is_dead(container: &Container, set: u32, dead: u64) -> Result<bool> {
    let mut youngest = 0;
    log::scan(container, set, 0, |_, header, _| {
        youngest = youngest.max(header.stamp);
        Ok(())
    })?;
    // What a lost index log said may be younger.
    Ok(youngest < dead && log::unexplained(container, set)?.is_none())
}

/// Whether this user may remove the log set whose directory has this stat.
pub fn is_removable(store: &dyn Store, set: &Stat) -> bool {
    store.user() == 0 || set.uid == store.user()
}

/// Removes log sets that the caller owns. Readers find one whole or not at all, after a power cut
/// too.
pub fn remove_log_sets(container: &Container, sets: impl IntoIterator<Item = u32>) -> Result<()> {
    let store = container.store.as_ref();
    let mut going = Vec::new();
    for set in sets {
        let (dir, gone) = (container.path(&name::log_set(set)), container.path(&name::gone(set)));
        match store.stat(&dir, Links::Stay) {
            // Another user's: its bytes are hidden, not freed.
            Ok(stat) if !is_removable(store, &stat) => continue,
            Ok(_) => {}
            Err(Errno::NOENT) => continue,
            Err(errno) => return Err(errno).at("stat", &dir),
        }
        remove_tree(store, &gone)?;
        store.rename(&dir, &gone).at("rename", &dir)?;
        going.push(set);
    }
    if !going.is_empty() {
        store.sync_dir(&container.dir).at("sync", &container.dir)?;
    }
    going.into_iter().try_for_each(|set| remove_gone(container, set))
}

/// Removes what is left of a log set that has gone. If a backend that has data of it is not there
/// the rest stays, for who finds it again.
pub fn remove_gone(container: &Container, set: u32) -> Result<()> {
    let store = container.store.as_ref();
    let (dir, gone) = (container.path(&name::log_set(set)), container.path(&name::gone(set)));
    // What somebody planted says nothing of the set's data: a link, or what stands beside the set.
    let is_link = store.stat(&gone, Links::Stay).is_ok_and(|stat| stat.kind == Kind::Symlink);
    if is_link || store.stat(&dir, Links::Stay) != Err(Errno::NOENT) {
        return remove_tree(store, &gone);
    }
    let mut missing = Vec::new();
    for backend in container.backends()? {
        let (mut is_there, found) = (true, container.backend_dir(backend));
        let found = found.and_then(|dir| {
            match store.stat(&dir.join(name::log_set(set)), Links::Stay) {
                // It has none there, or it is not there itself.
                Err(Errno::NOENT | Errno::NOTDIR) => {
                    is_there = false;
                    container.backend_dir_again(backend)
                }
                _ => Ok(dir),
            }
        });
        match found {
            Ok(dir) if *dir == *container.dir => {}
            Ok(dir) if is_there => {
                remove_tree(store, &dir.join(name::log_set(set)))?;
                // Or a power cut would leave data of which nothing says any more that it is dead.
                store.sync_dir(&dir).at("sync", &dir)?;
            }
            Ok(_) => {}
            Err(error @ Error::Io { .. }) if container.superblock.backends.contains(&backend) => {
                return Err(error);
            }
            Err(_) => missing.push(backend),
        }
    }
    if !missing.is_empty() && has_data_on(container, set, &missing) {
        return Ok(());
    }
    // Last, because it is what says that there is something to remove.
    remove_tree(store, &gone)
}

/// Whether a log set that has gone has records of data on one of these backends, or cannot be read.
fn has_data_on(container: &Container, set: u32, backends: &[u16]) -> bool {
    let path = container.path(&name::gone(set)).join("index");
    let mut has = false;
    let scanned = log::scan_pieces_at(container, &path, set, 0, |offset, piece| {
        has |= match piece {
            Piece::Block(header, bytes) => decode_block(header, offset, bytes)
                .map_or(true, |block| {
                    block.segments.iter().any(|at| backends.contains(&at.backend))
                }),
            Piece::Gap { .. } | Piece::Refused(_) => false,
        };
        Ok(())
    });
    has || scanned.is_err_and(|error| error.errno() != Errno::LOOP)
}

fn remove(store: &dyn Store, path: &Path) -> Result<()> {
    match store.unlink(path) {
        Ok(()) | Err(Errno::NOENT | Errno::ACCESS | Errno::PERM) => Ok(()),
        Err(errno) => Err(errno).at("remove", path),
    }
}
