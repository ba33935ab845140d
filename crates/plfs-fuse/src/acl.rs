//! Access lists that new files get from their directory. The backend gives them to what it creates;
//! a logical file's inode it creates elsewhere, in the container.
//!
//! The attribute's value is that of the kernel's uapi/linux/posix_acl_xattr.h: a version, 2, then
//! entries of tag, permissions and id; little-endian.

use std::os::fd::{AsFd, AsRawFd};

/// Attribute of a file: its access list.
pub const ACCESS: &str = "system.posix_acl_access";
/// Attribute of a directory: the list that new files get.
const DEFAULT: &str = "system.posix_acl_default";

const VERSION_BYTES: usize = 4;
const ENTRY_BYTES: usize = 8;
const USER_OBJ: u16 = 0x01;
const GROUP_OBJ: u16 = 0x04;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

fn default_of(dir: impl AsFd) -> Option<Vec<u8>> {
    let mut list = Vec::with_capacity(4096);
    // The descriptor is one by path only, which the calls on descriptors refuse.
    rustix::fs::getxattr(
        format!("/proc/self/fd/{}", dir.as_fd().as_raw_fd()),
        DEFAULT,
        rustix::buffer::spare_capacity(&mut list),
    )
    .ok()?;
    (list.len() > VERSION_BYTES).then_some(list)
}

/// Whether a directory has a list for new files.
pub fn has_default(dir: impl AsFd) -> bool {
    default_of(dir).is_some()
}

/// Mode and list of a new file in `dir` that was asked for with `mode`; `None` if the directory has
/// no list for new files. The list is `None` if the mode expresses it.
pub fn of_new_file(dir: impl AsFd, mode: u32) -> Option<(u32, Option<Vec<u8>>)> {
    inherit(default_of(dir)?, mode)
}

/// POSIX 1003.1e draft 17, 23.3.4: the classes of the list and those of the mode limit each other.
fn inherit(mut list: Vec<u8>, mode: u32) -> Option<(u32, Option<Vec<u8>>)> {
    let tag = |entry: &[u8]| u16::from_le_bytes([entry[0], entry[1]]);
    let has_mask =
        list.get(VERSION_BYTES..)?.chunks_exact(ENTRY_BYTES).any(|entry| tag(entry) == MASK);
    let mut classes = 0;
    for entry in list[VERSION_BYTES..].chunks_exact_mut(ENTRY_BYTES) {
        let shift = match tag(entry) {
            USER_OBJ => 6,
            MASK => 3,
            GROUP_OBJ if !has_mask => 3,
            OTHER => 0,
            _ => continue,
        };
        entry[2] &= (mode >> shift & 7) as u8;
        classes |= u32::from(entry[2]) << shift;
    }
    let entries = (list.len() - VERSION_BYTES) / ENTRY_BYTES;
    Some((mode & !0o777 | classes, (entries > 3).then_some(list)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let entries = entries.iter().flat_map(|(tag, perm, id)| {
            [tag.to_le_bytes().to_vec(), perm.to_le_bytes().to_vec(), id.to_le_bytes().to_vec()]
                .concat()
        });
        2u32.to_le_bytes().into_iter().chain(entries).collect()
    }

    #[test]
    fn mode_and_list_limit_each_other() {
        let none = u32::MAX;
        // No more than a mode: owner rwx, group rx, others nothing; asked for 0666.
        assert_eq!(
            inherit(list(&[(USER_OBJ, 7, none), (GROUP_OBJ, 5, none), (OTHER, 0, none)]), 0o666),
            Some((0o640, None))
        );
        // A named user: the mask stands for the group in the mode, the group's own entry stays.
        let wide = [
            (USER_OBJ, 7, none),
            (2, 7, 1000),
            (GROUP_OBJ, 5, none),
            (MASK, 7, none),
            (OTHER, 5, none),
        ];
        let narrow = [
            (USER_OBJ, 6, none),
            (2, 7, 1000),
            (GROUP_OBJ, 5, none),
            (MASK, 4, none),
            (OTHER, 0, none),
        ];
        assert_eq!(inherit(list(&wide), 0o2640), Some((0o2640, Some(list(&narrow)))));
        assert_eq!(inherit(vec![], 0o640), None);
    }
}
