//! Mode and owner of the logical file, and of the directories that let its users in.

use super::clock;
use super::layout::Container;
use crate::error::{At, Result};
use crate::store::{Errno, Links, Stat};

/// The mode of the container directory that lets in the classes of users that `mode` lets read
/// (search, list) or write (add logs) the file. The owner always may, so that owners can repair.
pub fn dir_mode(mode: u32) -> u32 {
    let class = |shift: u32| {
        let bits = mode >> shift & 7;
        let (read, write) = (bits & 4 != 0, bits & 2 != 0);
        (if read { 5 } else { 0 } | if write { 3 } else { 0 }) << shift
    };
    0o700 | class(3) | class(0)
}

/// Sets the mode of the logical file: of its inode, and of the directories that let users in.
/// Restricts before it relaxes.
pub fn chmod(container: &Container, mode: u32) -> Result<()> {
    let inode = container.inode_path();
    let store = &container.store;
    let before = store.stat(&inode, Links::Stay).at("stat", &inode)?.mode;
    let all = container.own_dirs()?;
    let dirs = |mode: u32| {
        all.iter().try_for_each(|dir| match store.chmod(dir, dir_mode(mode)) {
            Err(Errno::NOENT) if **dir != *container.dir => Ok(()),
            other => other.at("set the mode of", dir),
        })
    };
    dirs(mode & before)?;
    store.chmod(&inode, mode).at("set the mode of", &inode)?;
    dirs(mode)?;
    clock::follow(container)
}

/// Sets owner and group of the logical file: of its inode, and of its directories as far as
/// this user may.
pub fn chown(container: &Container, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
    let inode = container.inode_path();
    container.store.chown(&inode, uid, gid, Links::Stay).at("set the owner of", &inode)?;
    for dir in container.own_dirs()? {
        match container.store.chown(&dir, uid, gid, Links::Stay) {
            Err(Errno::NOENT) if *dir != *container.dir => {}
            other => other.at("set the owner of", &dir)?,
        }
    }
    clock::follow(container)
}

/// Gives the directories of a container with a base what its inode has. For who changed that and
/// did not know of the container; and for who made the container, and knows what `applied` is: he
/// may not have known of the change. Who does not own it any more leaves it to the others.
pub fn follow_base(container: &Container, applied: Option<&Stat>) -> Result<()> {
    let (store, inode) = (&container.store, container.inode_path());
    let rights = |stat: &Stat| (stat.mode, stat.uid, stat.gid);
    let mut applied = applied.map(rights);
    loop {
        let now = rights(&store.stat(&inode, Links::Stay).at("stat", &inode)?);
        if applied == Some(now) {
            return Ok(());
        }
        let (mode, uid, gid) = now;
        for dir in container.own_dirs()? {
            let done = store
                .chown(&dir, Some(uid), Some(gid), Links::Stay)
                .and(store.chmod(&dir, dir_mode(mode)));
            match done {
                Err(Errno::NOENT) if *dir != *container.dir => {}
                Err(Errno::PERM) => {}
                other => other.at("set the mode of", &dir)?,
            }
        }
        applied = Some(now);
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn directory_modes_follow_the_file() {
        for (file, dir) in [
            (0o644, 0o755),
            (0o600, 0o700),
            (0o664, 0o775),
            (0o640, 0o750),
            (0o666, 0o777),
            (0o444, 0o755),
            (0o000, 0o700),
            (0o620, 0o730),
        ] {
            assert_eq!(super::dir_mode(file), dir, "{file:o}");
        }
    }
}
