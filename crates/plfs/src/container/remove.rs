//! How a container goes away: when its last name is gone and nobody has it open.

use std::path::Path;

use plfs_format::name::{self, Name};

use super::layout::Container;
use crate::error::{At, Result};
use crate::store::{Errno, Kind, Open, Store};

/// Removes the container if its superblock has no name left and no process holds it open. Whether it did.
///
/// A container that is open stays; the last one to close it calls this again. A crash in between leaves garbage that `check` removes.
pub fn remove_if_nameless(container: &Container) -> Result<bool> {
    let super_path = container.path(name::SUPER);
    match container.store.stat(&super_path, false) {
        Ok(stat) if stat.nlink > 1 => return Ok(false),
        Ok(_) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno).at("stat", &super_path),
    }
    let dir = match container.store.open(&container.dir, Open::READ) {
        Ok(dir) => dir,
        Err(Errno::NOENT) => return Ok(false),
        Err(errno) => return Err(errno).at("open", &container.dir),
    };
    if !dir.try_lock(true).at("lock", &container.dir)? {
        return Ok(false);
    }
    for backend in (0..container.superblock.backends.len() as u16).rev() {
        remove_tree(container.store.as_ref(), &container.backend_dir(backend))?;
    }
    // The shard directory usually serves others; if this was the last, an empty directory is not worth keeping.
    if let Some(shard) = container.dir.parent() {
        let _ = container.store.rmdir(shard);
    }
    Ok(true)
}

fn remove_tree(store: &dyn Store, dir: &Path) -> Result<()> {
    let entries = match store.list(dir) {
        Ok(entries) => entries,
        Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(errno).at("list", dir),
    };
    // The superblock goes last: while it is there, `check` can tell what this was.
    let (supers, others): (Vec<_>, Vec<_>) = entries.into_iter().partition(|entry| entry.name == name::SUPER);
    for entry in others.into_iter().chain(supers) {
        let path = dir.join(&entry.name);
        if entry.kind == Some(Kind::Dir) {
            remove_tree(store, &path)?;
            continue;
        }
        match store.unlink(&path) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno).at("remove", &path),
        }
    }
    match store.rmdir(dir) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno).at("remove", dir),
    }
}

/// Removes the log sets that nobody owns, after a durable truncate to 0 made all their bytes dead. `keep` is the caller's own set.
///
/// Owns each set while it removes it, so that no other node takes it over meanwhile. Sets of other users stay: the truncate hides their bytes.
pub fn remove_stale_sets(container: &Container, keep: u32) -> Result<()> {
    let store = container.store.as_ref();
    let names = container.list()?;
    remove(store, &container.path(name::FLAT))?;
    for name in &names {
        let Name::LogSet(set) = *name else { continue };
        let mark = container.path(&name::open_mark(set));
        if set == keep || names.contains(&Name::OpenMark(set)) || store.open(&mark, Open::create_new(0o644)).is_err() {
            continue;
        }
        // The index log first: a data log without records is garbage, records without data would be damage.
        let removed = remove(store, &container.path(&name::index_log(set))).and_then(|()| remove_log_set(container, set));
        remove(store, &mark)?;
        removed?;
    }
    Ok(())
}

fn remove_log_set(container: &Container, set: u32) -> Result<()> {
    for backend in 0..container.superblock.backends.len() as u16 {
        match remove_tree(container.store.as_ref(), &container.backend_dir(backend).join(name::log_set(set))) {
            // Another user's set: its bytes are hidden, not freed.
            Err(error) if matches!(error.errno(), Errno::ACCESS | Errno::PERM) => {}
            other => other?,
        }
    }
    Ok(())
}

fn remove(store: &dyn Store, path: &Path) -> Result<()> {
    match store.unlink(path) {
        Ok(()) | Err(Errno::NOENT | Errno::ACCESS | Errno::PERM) => Ok(()),
        Err(errno) => Err(errno).at("remove", path),
    }
}
