//! Extended attributes: those of the file's inode, and `user.plfs.*`, which are computed when they
//! are read. These are not listed, so that tools that copy all attributes do not try to set them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use log::LevelFilter;
use plfs_core::store::Errno;
use rustix::buffer::{SpareCapacity, spare_capacity};
use rustix::fs::XattrFlags;

use crate::creds::{Acting, Caller, as_caller};
use crate::fs::{Door, Result, errno_of};
use crate::inode::{ROOT_ID, is_listed};
use crate::status::{LEVEL_ATTRIBUTE, LOG_ATTRIBUTE, MOUNT_ATTRIBUTE, Status, journal};

/// The prefix of those that are computed.
const OURS: &str = "user.plfs.";
/// Room for a value or a list: Linux allows no more (XATTR_SIZE_MAX, XATTR_LIST_MAX).
const ROOM_BYTES: usize = 64 << 10;

/// The engine's, of files that may have a container: no business of programs, and not to be copied
/// (plfs_format::attribute).
const DECISION: &str = "user.plfs";

/// Reads one.
pub fn get(door: &Door, status: &Status, caller: Caller, id: u64, name: &OsStr) -> Result<Vec<u8>> {
    if let Some(ours) = name.to_str().filter(|name| name.starts_with(OURS)) {
        return made_up(door, status, caller, id, ours).map(String::into_bytes);
    }
    if name == DECISION || door.inode(id)?.is_packed() {
        return Err(Errno::NODATA);
    }
    // `ls -l` asks for two of each file, which few have.
    if (name.as_bytes().starts_with(b"security.") || is_acl(name)) && !may_have(door, id, name)? {
        return Err(Errno::NODATA);
    }
    // Values below trusted. are for root alone.
    let _acting =
        name.as_bytes().starts_with(b"trusted.").then(|| Acting::as_user(caller.uid, caller.gid));
    door.ask(id, |path, follow| {
        fill(256, |into| {
            if follow {
                rustix::fs::getxattr(path, name, into)
            } else {
                rustix::fs::lgetxattr(path, name, into)
            }
        })
    })
}

/// What `read` puts into `room` bytes, or into all the room that there can be if it wants more.
fn fill(room: usize, read: impl Fn(SpareCapacity<u8>) -> Result<usize>) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(room);
    match read(spare_capacity(&mut bytes)) {
        Err(Errno::RANGE) if room < ROOM_BYTES => fill(ROOM_BYTES, read),
        other => other.map(|_| bytes),
    }
}

/// False if the file had no such attribute when all were listed, a moment ago. Only file systems of
/// this machine are known to list all that they have.
fn may_have(door: &Door, id: u64, name: &OsStr) -> Result<bool> {
    if !door.local {
        return Ok(true);
    }
    let inode = door.inode(id)?;
    match inode.has_attribute(name, door.ttl) {
        None => Ok(true),
        Some(Ok(has)) => Ok(has),
        Some(Err(since)) => {
            let Ok(all) = list(door, id) else { return Ok(true) };
            let has = is_listed(&all, name);
            inode.list_attributes(since, all);
            Ok(has)
        }
    }
}

fn made_up(door: &Door, status: &Status, caller: Caller, id: u64, name: &str) -> Result<String> {
    if id == ROOT_ID {
        let trusted = caller.uid == 0 || caller.uid == status.uid;
        match name {
            MOUNT_ATTRIBUTE => {
                let (open, inodes, level) = (
                    door.open_handles.load(std::sync::atomic::Ordering::Relaxed),
                    door.inodes.len(),
                    log::max_level().to_string(),
                );
                let now = Status { open, inodes, level: level.to_lowercase(), ..status.clone() };
                return serde_json::to_string(&now).map_err(|_| Errno::IO);
            }
            // It names files that the caller may not see.
            LOG_ATTRIBUTE if trusted => return Ok(journal().tail()),
            LOG_ATTRIBUTE => return Err(Errno::PERM),
            LEVEL_ATTRIBUTE => return Ok(log::max_level().to_string().to_lowercase()),
            _ => {}
        }
    }
    let file = door.logical(id)?.ok_or(Errno::NODATA)?;
    let container = file.container().ok_or(Errno::NODATA)?;
    let superblock = &container.superblock;
    match name.strip_prefix(OURS).unwrap_or_default() {
        "layout" => {
            let path = |id| {
                container.backend_root(id).map_or_else(
                    |_| format!("{id:04x}"),
                    |path| path.to_string_lossy().into_owned(),
                )
            };
            let backends: Vec<_> = superblock.backends.iter().map(|id| path(*id)).collect();
            let shown = container.dir.strip_prefix(&door.root.path).unwrap_or(&container.dir);
            Ok(format!(
                "container={} segment_bytes={} backends={}",
                shown.display(),
                superblock.segment_bytes,
                backends.join(",")
            ))
        }
        "streams" => Ok(superblock.streams.to_string()),
        "patterns" => {
            let totals = file.totals().map_err(errno_of)?;
            let plfs_core::Totals {
                records, index_bytes, log_sets, data_logs, stored_bytes, ..
            } = totals;
            Ok(format!(
                "records={records} index_bytes={index_bytes} log_sets={log_sets} \
                 data_logs={data_logs} stored_bytes={stored_bytes}"
            ))
        }
        "version" => Ok(format!("format=1 plfs={}", env!("CARGO_PKG_VERSION"))),
        _ => Err(Errno::NODATA),
    }
}

/// Sets one.
pub fn set(
    door: &Door,
    status: &Status,
    caller: Caller,
    id: u64,
    name: &OsStr,
    value: &[u8],
    flags: i32,
) -> Result<()> {
    if id == ROOT_ID && name == LEVEL_ATTRIBUTE {
        if caller.uid != 0 && caller.uid != status.uid {
            return Err(Errno::PERM);
        }
        let level = std::str::from_utf8(value)
            .ok()
            .and_then(|text| text.trim().parse::<LevelFilter>().ok())
            .ok_or(Errno::INVAL)?;
        log::set_max_level(level);
        return Ok(());
    }
    if is_ours(name) {
        return Err(Errno::PERM);
    }
    if name.as_bytes().starts_with(b"system.posix_acl_") && door.is_flat(id)? {
        // Its shadows, in which the files are made, have none.
        return Err(Errno::OPNOTSUPP);
    }
    let flags = XattrFlags::from_bits_retain(flags as u32);
    let way = door.way(id)?;
    as_caller(caller, || {
        if way.follow {
            rustix::fs::setxattr(&way.path, name, value, flags)
        } else {
            rustix::fs::lsetxattr(&way.path, name, value, flags)
        }
    })?;
    door.inode(id)?.attributes_changed();
    if is_acl(name) { door.follow_mode(id) } else { Ok(()) }
}

/// Removes one.
pub fn remove(door: &Door, caller: Caller, id: u64, name: &OsStr) -> Result<()> {
    if is_ours(name) {
        return Err(Errno::PERM);
    }
    if door.inode(id)?.is_packed() {
        return Err(Errno::NODATA);
    }
    let way = door.way(id)?;
    as_caller(caller, || {
        if way.follow {
            rustix::fs::removexattr(&way.path, name)
        } else {
            rustix::fs::lremovexattr(&way.path, name)
        }
    })?;
    door.inode(id)?.attributes_changed();
    if is_acl(name) { door.follow_mode(id) } else { Ok(()) }
}

/// Names of all, each with a zero behind it.
pub fn list(door: &Door, id: u64) -> Result<Vec<u8>> {
    if door.inode(id)?.is_packed() {
        return Ok(Vec::new());
    }
    let mut all = door.ask(id, |path, follow| {
        fill(1024, |into| {
            if follow {
                rustix::fs::listxattr(path, into)
            } else {
                rustix::fs::llistxattr(path, into)
            }
        })
    })?;
    if is_listed(&all, OsStr::new(DECISION)) {
        let names = all.split_inclusive(|byte| *byte == 0);
        all = names.filter(|name| name.strip_suffix(b"\0") != Some(DECISION.as_bytes())).fold(
            Vec::new(),
            |mut others, name| {
                others.extend_from_slice(name);
                others
            },
        );
    }
    Ok(all)
}

/// Not for programs to change.
fn is_ours(name: &OsStr) -> bool {
    name == DECISION || name.as_bytes().starts_with(OURS.as_bytes())
}

fn is_acl(name: &OsStr) -> bool {
    name == "system.posix_acl_access"
}
