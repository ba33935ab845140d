//! The mark that says who owns a log set: created, read and removed.

use std::path::Path;

use plfs_format::mark::Mark;
use plfs_format::name;

use crate::container::Container;
use crate::error::{At, Error, Result};
use crate::store::{Errno, Links, Store};

/// Whether a log set has had its last owner. For an owner: a listing from before the creation of
/// its mark may be old.
pub(super) fn is_fenced(container: &Container, set: u32) -> bool {
    // What cannot be looked at is not gone on with.
    container.store.stat(&container.path(&name::fenced_mark(set)), Links::Stay) != Err(Errno::NOENT)
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
