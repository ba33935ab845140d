//! Names that other mounts and doors replace while they are opened here.
//!
//! The kernel opens in two steps: a lookup, then an open of the inode. What another mount or door
//! does in between makes the open fail with ESTALE; the kernel then repeats both, once. So after
//! such a failure the file is opened at the lookup already, and kept for a moment: the repetition
//! cannot fail.

use std::ffi::{OsStr, OsString};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fuser::FileAttr;
use plfs_core::store::Errno;

use super::{Door, Result};
use crate::inode::{Inode, Name, lock};

/// How long a name is treated as contended, and a file kept open for an open to come. The kernel
/// repeats at once; a second allows for loaded machines.
const CARE: Duration = Duration::from_secs(1);
/// At most so many names are treated as contended; each may keep a file open.
const NAMES_MAX: usize = 64;
/// How often one lookup tries to open what it found. Each failure takes another file in a window of
/// some calls.
const TRIES: usize = 100;

/// A name whose file changed while it was being opened.
#[derive(Debug)]
pub(super) struct Contended {
    parent: u64,
    name: OsString,
    until: Instant,
    /// What was opened at the lookup.
    kept: Option<Arc<Inode>>,
}

impl Door {
    /// What `name` in the directory is; counts as a lookup.
    pub(super) fn look_up_in(&self, parent: &Arc<Inode>, name: &OsStr) -> Result<FileAttr> {
        let care = {
            let mut contended = lock(&self.contended);
            !contended.is_empty() && {
                self.drop_kept(&mut contended, Instant::now());
                contended.iter().any(|one| one.parent == parent.id && one.name == name)
            }
        };
        for _ in 0..if care { TRIES } else { 0 } {
            let attr = self.look_up_once(parent, name)?;
            match self.keep(parent, name, attr.ino.0) {
                Err(Errno::STALE) => self.inodes.forget(attr.ino.0, 1),
                // Other errors are the open's.
                _ => return Ok(attr),
            }
        }
        self.look_up_once(parent, name)
    }

    /// An open of a file that had these names failed because they lead elsewhere by now.
    pub(super) fn contend(&self, names: Vec<Name>) {
        let mut contended = lock(&self.contended);
        self.drop_kept(&mut contended, Instant::now());
        let until = Instant::now() + CARE;
        for Name { parent, name } in names {
            match contended.iter().position(|one| one.parent == parent.id && one.name == name) {
                Some(at) => contended[at].until = until,
                None if contended.len() < NAMES_MAX => {
                    contended.push(Contended { parent: parent.id, name, until, kept: None })
                }
                None => {}
            }
        }
    }

    /// Opens the file, so that it lives until the program's open comes.
    fn keep(&self, parent: &Inode, name: &OsStr, id: u64) -> Result<()> {
        let inode = self.inode(id)?;
        let mut open = lock(&inode.open);
        if !open.is_open() && inode.is_packed() {
            open.file = Some(Arc::new(self.open_in_pack(&inode)?));
        } else if !open.is_open() {
            let found = self.find(&inode, &open)?;
            match self.adopt_and_hold(&found)? {
                Some(file) => open.file = Some(Arc::new(file)),
                None => open.path_fd = Some(found.fd),
            }
        }
        open.kept = true;
        drop(open);
        let mut contended = lock(&self.contended);
        let given_up =
            match contended.iter_mut().find(|one| one.parent == parent.id && one.name == name) {
                Some(one) => {
                    one.kept.replace(inode.clone()).filter(|before| !Arc::ptr_eq(before, &inode))
                }
                None => Some(inode),
            };
        drop(contended);
        given_up.iter().for_each(|inode| give_up(inode));
        Ok(())
    }

    /// Forgets contended names that expired before `now`, and closes the files that were kept for
    /// them.
    fn drop_kept(&self, contended: &mut Vec<Contended>, now: Instant) {
        contended.retain(|one| {
            if one.until <= now {
                one.kept.iter().for_each(|inode| give_up(inode));
            }
            one.until > now
        });
    }

    /// Closes all files that were kept.
    pub(super) fn keep_nothing(&self) {
        self.drop_kept(&mut lock(&self.contended), Instant::now() + CARE);
    }
}

fn give_up(inode: &Inode) {
    let mut open = lock(&inode.open);
    open.kept = false;
    Door::close_if_unused(&mut open);
}
