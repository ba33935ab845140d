//! What a file system is like: whether this machine is its only client, how its clients cache, and
//! whether it is in memory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxFlags};
use rustix::io::retry_on_intr;

use super::PosixStore;
use super::fd::HighFd;
use super::file::{Fd, PosixFile};
use crate::store::machine::in_own_proc;
use crate::store::{Errno, Open, Result, StoreFile};
use crate::sync::plain::{Mutex, lock};

/// What is asked of a file system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FileSystem {
    /// See `Store::is_local`.
    pub(super) local: bool,
    /// See `Store::close_to_open`.
    pub(super) close_to_open: Option<String>,
    /// See `Store::open_asks`.
    pub(super) open_asks: bool,
    /// It is in memory: see `Store::boot`.
    pub(super) volatile: bool,
    /// It is a Lustre.
    pub(super) lustre: bool,
}

pub(super) fn file_system(path: &Path) -> FileSystem {
    // Asked for the same few roots again and again; on a network file system a statfs can wait for
    // other clients.
    static KNOWN: Mutex<BTreeMap<PathBuf, FileSystem>> = Mutex::new(BTreeMap::new());
    let mut known = lock(&KNOWN);
    if let Some(found) = known.get(path) {
        return found.clone();
    }
    let found = ask_file_system(path);
    if known.len() >= 1024 {
        known.clear();
    }
    known.insert(path.to_path_buf(), found.clone());
    found
}

fn ask_file_system(path: &Path) -> FileSystem {
    for path in path.ancestors() {
        let mount = mount_of(path);
        // The daemon of a FUSE file system would have to answer a statfs, which may ask servers in
        // turn: 5 to 10 ms on CephFS when several clients open at once.
        if let Some((kind, options)) = mount.as_ref().filter(|(kind, _)| is_fuse(kind)) {
            return of_type(kind, options);
        }
        // The magic numbers are 32 bits wide; the field is signed or not, wider or not, depending
        // on the architecture.
        let magic = retry_on_intr(|| rustix::fs::statfs(path)).map(|stat| stat.f_type as u32);
        if let Some(found) = of_answer(magic, mount.as_ref()) {
            return found;
        }
    }
    FileSystem::default()
}

/// By the answer of statfs(2), if there is a file system; by the table of mounts if a server does
/// not answer now: it is one all the same.
fn of_answer(magic: Result<u32>, mount: Option<&(String, String)>) -> Option<FileSystem> {
    match (magic, mount) {
        (Ok(magic), mount) => Some(of_magic(magic, mount)),
        (Err(Errno::NOENT | Errno::NOTDIR), _) => None,
        (Err(_), Some((kind, options))) => Some(of_type(kind, options)),
        (Err(_), None) => Some(FileSystem::default()),
    }
}

/// By `f_type` of statfs(2), and by type and options where they are known.
fn of_magic(magic: u32, mount: Option<&(String, String)>) -> FileSystem {
    if let Some(&(_, kind)) = LOCAL_MAGIC.iter().find(|&&(local, _)| local == magic) {
        let volatile = ["tmpfs", "ramfs"].contains(&kind);
        return FileSystem { local: true, volatile, ..FileSystem::default() };
    }
    if let Some((kind, options)) = mount {
        return of_type(kind, options);
    }
    // Without /proc.
    let kind = CLOSE_TO_OPEN_MAGIC.iter().find(|&&(other, _)| other == magic);
    let close_to_open = kind.map(|&(_, kind)| kind.to_string());
    FileSystem { close_to_open, lustre: magic == LUSTRE_MAGIC, ..FileSystem::default() }
}

/// By type and options as the table of mounts has them, of file systems that are not local.
fn of_type(kind: &str, options: &str) -> FileSystem {
    let caches = match kind {
        // Without its option `cache` a 9p client keeps nothing.
        "9p" => options.split(',').any(|option| {
            option.strip_prefix("cache=").is_some_and(|how| !["none", "0"].contains(&how))
        }),
        _ if is_fuse(kind) => !COHERENT_FUSE.contains(&kind),
        _ => CLOSE_TO_OPEN.contains(&kind),
    };
    let close_to_open = caches.then(|| kind.to_string());
    let open_asks = OPEN_ASKS.contains(&kind);
    FileSystem { close_to_open, open_asks, lustre: kind == "lustre", ..FileSystem::default() }
}

/// What statfs(2) says of a Lustre.
const LUSTRE_MAGIC: u32 = 0x0bd0_0bd0;

/// Stands for the type of a file system on a block device: this machine is its only client, or it
/// is a cluster's (GFS2, OCFS2), which has locks for that. `fuseblk` is one, too.
const ON_A_DEVICE: &str = "a device";

/// Whether a daemon serves file systems of this type, and nothing else.
fn is_fuse(kind: &str) -> bool {
    kind == "fuse" || kind.starts_with("fuse.")
}

/// Type and options of the file system at `path`, by the kernel's table of mounts, which asks
/// nobody else. [`ON_A_DEVICE`] for what has one. `None` if it cannot be told.
fn mount_of(path: &Path) -> Option<(String, String)> {
    let stat = rustix::fs::statx(CWD, path, AtFlags::STATX_DONT_SYNC, StatxFlags::MNT_ID).ok()?;
    if stat.stx_dev_major != 0 {
        return Some((ON_A_DEVICE.into(), String::new()));
    }
    // Linux before 5.8 does not know the number of the mount. One device is one file system.
    let id = (stat.stx_mask & StatxFlags::MNT_ID.bits() != 0).then_some(stat.stx_mnt_id);
    let device = format!("{}:{}", stat.stx_dev_major, stat.stx_dev_minor);
    let mounts = mounts()?;
    let (kind, options) = type_of_mount(&mounts, id, &device)?;
    Some((kind.to_string(), options.to_string()))
}

/// Type and options of mount `id`, or of one of `device`, by a text as of proc_pid_mountinfo(5).
pub(super) fn type_of_mount<'a>(
    mounts: &'a str,
    id: Option<u64>,
    device: &str,
) -> Option<(&'a str, &'a str)> {
    let id = id.map(|id| id.to_string());
    // Blanks in paths are written `\040`.
    let line = mounts.lines().find(|line| match &id {
        Some(id) => line.split(' ').next() == Some(id),
        None => line.split(' ').nth(2) == Some(device),
    })?;
    let mut fields = line.split_once(" - ")?.1.split(' ');
    let kind = fields.next()?;
    Some((kind, fields.nth(1).unwrap_or_default()))
}

pub(in crate::store) fn mounts() -> Option<String> {
    let open = || PosixStore::new().open_fd(Path::new(&in_own_proc("mountinfo")), Open::READ);
    let file = PosixFile(Fd::Own(HighFd::open(open).ok()?));
    let (mut text, mut filled) = (vec![0; 16 << 10], 0);
    loop {
        match file.read_at(&mut text[filled..], filled as u64).ok()? {
            0 => break,
            n => filled += n,
        }
        if filled == text.len() {
            text.resize(2 * filled, 0);
        }
    }
    text.truncate(filled);
    Some(String::from_utf8_lossy(&text).into_owned())
}

/// `f_type` of the file systems whose writes end in this machine's page cache. All others count as
/// remote: FUSE, Ceph, NFS, Lustre, GPFS, BeeGFS and what we do not know. Numbers from Linux
/// include/uapi/linux/magic.h unless another source is named.
const LOCAL_MAGIC: [(u32, &str); 8] = [
    (0x0102_1994, "tmpfs"), // TMPFS_MAGIC
    (0x8584_58f6, "ramfs"), // RAMFS_MAGIC
    (0x0000_ef53, "ext4"),  // EXT4_SUPER_MAGIC; ext2 and ext3 have the same
    (0x5846_5342, "XFS"),   // XFS_SUPER_MAGIC
    (0x9123_683e, "Btrfs"), // BTRFS_SUPER_MAGIC
    (0xf2f5_2010, "F2FS"),  // F2FS_SUPER_MAGIC
    (0x2fc1_2fc1, "ZFS"),   // ZFS_SUPER_MAGIC in OpenZFS include/sys/fs/zfs.h
    (0x794c_7630, "overlayfs"), /* OVERLAYFS_SUPER_MAGIC; containers of the docker kind lie on a
                             * local file system */
];

/// Types of file systems whose clients cache as `Store::close_to_open` says, by the kernel's
/// names. What serves a virtual machine from its host caches as its daemon was told.
const CLOSE_TO_OPEN: [&str; 13] = [
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "afs",
    "openafs",
    "auristorfs",
    "coda",
    "ncpfs",
    "virtiofs",
    "vboxsf",
    "prl_fs",
];

/// The same by `f_type`, for when the table of mounts is not there. Numbers from Linux
/// include/uapi/linux/magic.h unless another source is named.
const CLOSE_TO_OPEN_MAGIC: [(u32, &str); 10] = [
    (0x0000_6969, "nfs"),    // NFS_SUPER_MAGIC
    (0x0000_517b, "smbfs"),  // SMB_SUPER_MAGIC
    (0xff53_4d42, "cifs"),   // CIFS_SUPER_MAGIC
    (0xfe53_4d42, "smb3"),   // SMB2_SUPER_MAGIC
    (0x5346_414f, "afs"),    // AFS_SUPER_MAGIC
    (0x6b41_4653, "afs"),    // AFS_FS_MAGIC
    (0x7375_7245, "coda"),   // CODA_SUPER_MAGIC
    (0x0102_1997, "9p"),     // V9FS_MAGIC; its options cannot be asked
    (0x786f_4256, "vboxsf"), // VBOXSF_SUPER_MAGIC
    (0x6573_5546, "fuse"),   // FUSE_SUPER_MAGIC; fuseblk is not, it has a device
];

/// FUSE file systems whose clients tell each other (docs/decisions/0014). Of all others nobody can
/// tell: the daemon decides how long the kernel believes what it has cached.
const COHERENT_FUSE: [&str; 4] = [
    "fuse.ceph-fuse",      // capabilities of CephFS
    "fuse.ceph",           // the same, mounted by mount.fuse.ceph
    "fuse.glusterfs",      // names and attributes are cached for a second
    "fuse.fuse-overlayfs", // the root of containers of an ordinary user: one client
];

/// FUSE file systems that let the kernel believe names and attributes for 0 s (`entry_timeout` and
/// `attr_timeout` in `fuse_ll_lookup`, src/client/fuse_ll.cc of Ceph): each lookup asks for both.
const OPEN_ASKS: [&str; 2] = ["fuse.ceph-fuse", "fuse.ceph"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;

    #[test]
    fn the_table_of_mounts_is_understood() {
        let text = "21 28 0:20 / /sys rw,nosuid - sysfs sysfs rw\n271 29 0:45 / \
                    /with\\040blank\\040-\\040x rw,relatime shared:5 master:1 - fuse.ceph-fuse \
                    ceph-fuse rw,user_id=0\n27 29 0:46 / /dev/shm rw - tmpfs tmpfs rw\n";
        let kind = |id| type_of_mount(text, Some(id), "").map(|(kind, _)| kind);
        assert_eq!(kind(271), Some("fuse.ceph-fuse"));
        assert_eq!(kind(27), Some("tmpfs"));
        assert_eq!(kind(2), None);
        assert_eq!(type_of_mount(text, Some(271), ""), Some(("fuse.ceph-fuse", "rw,user_id=0")));
        assert_eq!(type_of_mount(text, None, "0:46"), Some(("tmpfs", "rw")));
        assert_eq!(type_of_mount("27 no dash", Some(27), ""), None);
        assert!(mounts().is_some_and(|text| text.lines().count() > 0 && text.ends_with('\n')));
    }

    /// docs/decisions/0014
    #[test]
    fn file_systems_that_cache_are_told_from_those_that_do_not() {
        let caches = |kind: &str, options: &str| of_type(kind, options).close_to_open.is_some();
        for kind in ["nfs", "nfs4", "cifs", "smb3", "afs", "virtiofs", "fuse", "fuse.sshfs"] {
            assert!(caches(kind, "rw"), "{kind}");
        }
        for kind in ["ceph", "lustre", "gpfs", "beegfs", "fuseblk", "fuse.ceph-fuse", "new"] {
            assert!(!caches(kind, "rw"), "{kind}");
        }
        assert!(!caches("9p", "rw,trans=virtio") && !caches("9p", "rw,cache=none"));
        assert!(caches("9p", "rw,cache=f,trans=virtio") && caches("9p", "cache=loose"));
        let nfs = ("nfs4".to_string(), "rw,vers=4.2".to_string());
        assert_eq!(of_magic(0x6969, Some(&nfs)).close_to_open.as_deref(), Some("nfs4"));
        assert_eq!(of_magic(0x6969, None).close_to_open.as_deref(), Some("nfs"));
        // It was written to if the server did not answer at the first look.
        assert_eq!(of_answer(Err(Errno::STALE), Some(&nfs)), Some(of_magic(0x6969, Some(&nfs))));
        assert_eq!(of_answer(Err(Errno::NOENT), Some(&nfs)), None);
        assert_eq!(
            of_magic(0x0102_1994, None),
            FileSystem { local: true, volatile: true, ..FileSystem::default() }
        );
        let store = PosixStore::new();
        assert_eq!(store.close_to_open(Path::new("/dev/shm/a/b")), None);
        assert!(store.is_local(Path::new("/dev/shm/a/b")));
    }
}
