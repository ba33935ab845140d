//! The storage targets (OSTs) of a Lustre file system: which there are, and how a file is made with
//! one stripe on one of them (docs/decisions/0028).
//!
//! What is needed the kernel's client says: the name of the file system is in the table of mounts,
//! its targets are directories in /sys or /proc, and a file that was made by mknod(2) has no
//! objects until its first write, so that the attribute `lustre.lov` can say where they shall be:
//! tar(1) restores files so. Where the client does not say it, or refuses the attribute,
//! liblustreapi is asked, if `PLFS_LUSTRE_API` names it. It goes through libc, so never in a
//! program with the preload library, whose calls those are.
//!
//! No real Lustre has seen this: tests have the attribute under another name, and a library that
//! records its calls.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_ulonglong, c_void};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::targets::{StorageTarget, TARGET_MAX, TargetProvider};
use super::{Errno, Open, PosixStore, Result, Store, StoreFile, fd_path};
use crate::environment;
use crate::sync::{Arc, OnceLock};

/// The attribute in which a file's layout is.
const LAYOUT: &str = "lustre.lov";
/// First word of a layout with stripes, and of one that names a pool as well.
const MAGIC_V1: u32 = 0x0bd1_0bd0;
const MAGIC_V3: u32 = 0x0bd3_0bd0;
/// Stripes one after the other, which is all there is with one.
const RAID0: u32 = 1;
/// Length of a stripe, which with one stripe means nothing; the client wants a multiple of 64 KiB.
const STRIPE_BYTES: u32 = 1 << 20;
/// Bytes of a layout before its objects, with and without a pool, and the place of the target's
/// number in an object.
const HEAD_V1: usize = 32;
const HEAD_V3: usize = 48;
const OBJECT_TARGET: usize = 20;
/// The variable that names the library.
const API: &str = "PLFS_LUSTRE_API";

/// The layout of a file with one stripe, on target `on`: `struct lov_user_md_v1` without objects.
/// Clients take it in their own byte order; this is that of all on which Lustre's runs.
fn layout_on(on: u16) -> [u8; HEAD_V1] {
    let mut layout = [0; HEAD_V1];
    layout[..4].copy_from_slice(&MAGIC_V1.to_le_bytes());
    layout[4..8].copy_from_slice(&RAID0.to_le_bytes());
    layout[24..28].copy_from_slice(&STRIPE_BYTES.to_le_bytes());
    layout[28..30].copy_from_slice(&1_u16.to_le_bytes());
    layout[30..32].copy_from_slice(&on.to_le_bytes());
    layout
}

/// The target of a file with one stripe, by its layout.
fn target_in(layout: &[u8]) -> Option<u16> {
    let word = |at: usize| layout.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes);
    let head = match word(0)? {
        MAGIC_V1 => HEAD_V1,
        MAGIC_V3 => HEAD_V3,
        // Of several parts, each with a layout of its own.
        _ => return None,
    };
    let count = u16::from_le_bytes(layout.get(28..30)?.try_into().ok()?);
    let target = word(head + OBJECT_TARGET)?;
    (count == 1).then(|| u16::try_from(target).ok()).flatten()
}

/// The name of the Lustre that is mounted where `path` is, by a text as of proc_pid_mountinfo(5):
/// what stands behind the servers, as in `10.0.0.1@tcp:/NAME/directory`.
fn name_in(mounts: &str, path: &Path) -> Option<String> {
    let mut best: Option<(usize, String)> = None;
    for line in mounts.lines() {
        let Some((head, tail)) = line.split_once(" - ") else { continue };
        let (Some(at), mut tail) = (head.split(' ').nth(4), tail.split(' ')) else { continue };
        let (kind, source) = (tail.next().unwrap_or_default(), tail.next().unwrap_or_default());
        let at = at.replace("\\040", " ");
        if !path.starts_with(&at) || best.as_ref().is_some_and(|(length, _)| *length > at.len()) {
            continue;
        }
        let name = source
            .rsplit_once(":/")
            .filter(|_| kind == "lustre")
            .map(|(_, name)| name.split('/').next().unwrap_or_default().to_string());
        // Of another kind: what is below it is no Lustre.
        best = Some((at.len(), name.unwrap_or_default()));
    }
    best.map(|(_, name)| name).filter(|name| !name.is_empty())
}

/// The numbers of a file system's targets, by the names that the client has for them, as
/// `scratch-OST000a-osc-ffff8800`.
fn numbers_in<'a>(name: &str, clients: impl Iterator<Item = &'a str>) -> Vec<u16> {
    let of = |client: &str| {
        let number = client.strip_prefix(name)?.strip_prefix("-OST")?.split('-').next()?;
        u16::from_str_radix(number, 16).ok().filter(|number| *number < TARGET_MAX)
    };
    let mut numbers: Vec<u16> = clients.filter_map(of).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

/// The targets of one Lustre.
#[derive(Debug)]
pub(super) struct Lustre {
    attribute: &'static str,
    api: Option<&'static Api>,
    targets: Vec<StorageTarget>,
}

impl Lustre {
    fn new(name: &str, numbers: &[u16], api: Option<&'static Api>) -> Lustre {
        let target = |number: &u16| StorageTarget {
            number: *number,
            key: PathBuf::from(format!("lustre:/{name}-OST{number:04x}")),
        };
        Lustre { attribute: LAYOUT, api, targets: numbers.iter().map(target).collect() }
    }

    /// That of a directory; `None` if it is on no Lustre that tells its targets. `is_lustre` by its
    /// file system's type.
    pub(super) fn at(dir: &Path, is_lustre: bool) -> Option<Lustre> {
        let api = api();
        if !is_lustre && api.is_none() {
            return None;
        }
        if is_lustre && let Some(name) = name_in(&mounts(), dir) {
            let store = PosixStore::new();
            for clients in ["/sys/fs/lustre/osc", "/proc/fs/lustre/osc"] {
                let entries = store.list(Path::new(clients)).unwrap_or_default();
                let names = entries.iter().filter_map(|entry| entry.name.to_str());
                let numbers = numbers_in(&name, names);
                if !numbers.is_empty() {
                    return Some(Lustre::new(&name, &numbers, api));
                }
            }
        }
        let api = api?;
        let name = api.name_at(dir)?;
        // It says how many there are, and nobody takes a number away from one that is gone.
        let numbers: Vec<u16> = (0..api.count_at(dir)?.min(TARGET_MAX)).collect();
        (!numbers.is_empty()).then(|| Lustre::new(&name, &numbers, Some(api)))
    }
}

impl TargetProvider for Lustre {
    fn kind(&self) -> &'static str {
        "lustre"
    }

    fn targets(&self) -> &[StorageTarget] {
        &self.targets
    }

    /// The file is made by mknod(2), so that it has no objects, then it gets its layout, then it is
    /// opened. Who opens it for writing in between gives it objects anywhere: then the layout is
    /// refused, and it stays so.
    fn create(
        &self,
        store: &dyn Store,
        path: &Path,
        how: Open,
        on: u16,
    ) -> Result<Arc<dyn StoreFile>> {
        match store.make_node(path, how.mode) {
            Ok(()) => {
                let Ok(file) = store.open(path, Open::READ) else {
                    // A umask that takes the owner's rights: only who makes a file may write to it.
                    store.unlink(path)?;
                    return store.open(path, how);
                };
                let laid_out = file.set_new_attribute(self.attribute, &layout_on(on));
                if let (Err(errno), Some(api), Some(fd)) = (laid_out, self.api, file.fd())
                    && errno != Errno::EXIST
                {
                    // By the descriptor: whatever is at the path by now.
                    api.lay_out(&fd_path(fd.as_raw_fd()), on);
                }
            }
            // It is there, or no node can be made: it lies where the file system puts it.
            Err(Errno::EXIST | Errno::PERM | Errno::OPNOTSUPP | Errno::INVAL) => {}
            Err(errno) => return Err(errno),
        }
        store.open(path, how)
    }

    fn target_of(&self, file: &dyn StoreFile) -> Option<u16> {
        target_in(&file.attribute(self.attribute).ok()??)
    }
}

fn mounts() -> String {
    super::posix::mounts_of_this_process().unwrap_or_default()
}

/// The functions of liblustreapi.
#[derive(Debug)]
struct Api {
    search_name: unsafe extern "C" fn(*const c_char, *mut c_char) -> c_int,
    count: unsafe extern "C" fn(*mut c_char, *mut c_int, c_int) -> c_int,
    create: unsafe extern "C" fn(*const c_char, c_ulonglong, c_int, c_int, c_int) -> c_int,
}

unsafe extern "C" {
    safe fn dlerror() -> *mut c_char;
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

const RTLD_NOW: c_int = 2;

/// The library that `PLFS_LUSTRE_API` names, loaded once; `None` without it.
fn api() -> Option<&'static Api> {
    static LOADED: OnceLock<Option<Api>> = OnceLock::new();
    LOADED.get_or_init(load).as_ref()
}

fn load() -> Option<Api> {
    let path = environment::variable(API).filter(|path| !path.is_empty())?;
    let preloaded = environment::variable("LD_PRELOAD").unwrap_or_default();
    if String::from_utf8_lossy(preloaded.as_bytes()).contains("libplfs_preload") {
        return None;
    }
    let path = CString::new(path.as_bytes()).ok()?;
    // SAFETY: a string that ends with a zero. What the library does when it is loaded is its own:
    // the user has named it.
    let library = unsafe { dlopen(path.as_ptr(), RTLD_NOW) };
    if library.is_null() {
        dlerror();
        return None;
    }
    let find = |name: &CStr| {
        // SAFETY: the library is never closed, and the name ends with a zero.
        let found = unsafe { dlsym(library, name.as_ptr()) };
        (!found.is_null()).then_some(found)
    };
    let search_name = find(c"llapi_search_fsname")?;
    let count = find(c"llapi_get_obd_count")?;
    let create = find(c"llapi_file_create")?;
    // SAFETY: these are the types that lustreapi.h has had for them since 2.0:
    // int llapi_search_fsname(const char *, char *), int llapi_get_obd_count(char *, int *, int),
    // int llapi_file_create(const char *, unsigned long long, int, int, int).
    unsafe {
        Some(Api {
            search_name: std::mem::transmute::<
                *mut c_void,
                unsafe extern "C" fn(*const c_char, *mut c_char) -> c_int,
            >(search_name),
            count: std::mem::transmute::<
                *mut c_void,
                unsafe extern "C" fn(*mut c_char, *mut c_int, c_int) -> c_int,
            >(count),
            create: std::mem::transmute::<
                *mut c_void,
                unsafe extern "C" fn(*const c_char, c_ulonglong, c_int, c_int, c_int) -> c_int,
            >(create),
        })
    }
}

impl Api {
    /// The name of the file system at `dir`.
    fn name_at(&self, dir: &Path) -> Option<String> {
        let path = CString::new(dir.as_os_str().as_bytes()).ok()?;
        // As long as a path, which the library takes for granted.
        let mut name = vec![0 as c_char; 4097];
        // SAFETY: a string that ends with a zero, and room for the longest name.
        let done = unsafe { (self.search_name)(path.as_ptr(), name.as_mut_ptr()) };
        if done != 0 {
            return None;
        }
        let bytes: Vec<u8> = name.iter().map(|c| *c as u8).take_while(|byte| *byte != 0).collect();
        let name = String::from_utf8(bytes).ok()?;
        (!name.is_empty()).then_some(name)
    }

    /// How many targets the file system at `dir` has.
    fn count_at(&self, dir: &Path) -> Option<u16> {
        let mut path = CString::new(dir.as_os_str().as_bytes()).ok()?.into_bytes_with_nul();
        let mut count: c_int = 0;
        // SAFETY: a string that ends with a zero, and a number to write to; 0: no MDTs.
        let done = unsafe { (self.count)(path.as_mut_ptr().cast(), &raw mut count, 0) };
        u16::try_from(count).ok().filter(|_| done == 0)
    }

    /// Gives an empty file its layout. That it cannot is no error: the file is there.
    fn lay_out(&self, path: &str, on: u16) {
        let Ok(path) = CString::new(path) else { return };
        // SAFETY: a string that ends with a zero.
        unsafe { (self.create)(path.as_ptr(), STRIPE_BYTES.into(), on.into(), 1, 0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::machine::random_u64;

    const MOUNTS: &str = "\
22 1 253:0 / / rw shared:1 - ext4 /dev/vda1 rw
40 22 0:50 / /scratch rw - lustre 10.0.0.1@tcp:10.0.0.2@tcp:/work rw,flock
41 22 0:51 / /scratch/my\\040own rw - lustre 10.0.0.1@o2ib:/home/sub rw
42 40 0:52 / /scratch/tmp rw - tmpfs tmpfs rw
43 22 0:53 / /other rw - lustre nonsense rw
";

    #[test]
    fn the_table_of_mounts_has_the_name() {
        let name = |path| name_in(MOUNTS, Path::new(path));
        assert_eq!(name("/scratch/a/b").as_deref(), Some("work"));
        assert_eq!(name("/scratch/my own/x").as_deref(), Some("home"));
        for none in ["/scratch/tmp/x", "/home", "/", "/scratchy", "/other/x"] {
            assert_eq!(name(none), None, "{none}");
        }
        assert_eq!(name_in("", Path::new("/")), None);
    }

    #[test]
    fn clients_have_the_numbers() {
        let clients = [
            "work-OST000a-osc-ffff88",
            "work-OST0000-osc-ffff88",
            "work-OST0000-osc-ffff99",
            "workmore-OST0001-osc-ffff88",
            "work-OSTzz-osc-1",
            "work-MDT0000-mdc-1",
            "num_refs",
        ];
        assert_eq!(numbers_in("work", clients.into_iter()), [0, 10]);
        assert_eq!(numbers_in("none", clients.into_iter()), [0; 0]);
    }

    #[test]
    fn layouts_are_those_of_the_header() {
        let layout = layout_on(0x0123);
        let mut want = vec![0xd0, 0x0b, 0xd1, 0x0b, 1, 0, 0, 0];
        want.extend([0; 16]);
        want.extend([0, 0, 0x10, 0, 1, 0, 0x23, 0x01]);
        assert_eq!(layout[..], want[..]);
        // As a file has it: with its object, whose target it is.
        let mut object = [0; 24];
        object[OBJECT_TARGET] = 7;
        assert_eq!(target_in(&[&layout[..], &object].concat()), Some(7));
        let mut pool = layout.to_vec();
        pool[2] = 0xd3;
        assert_eq!(target_in(&[&pool[..], &[b'p'; 16], &object].concat()), Some(7));
        assert_eq!(target_in(&layout), None);
        let mut two = [&layout[..], &object, &object].concat();
        two[28] = 2;
        assert_eq!(target_in(&two), None);
        assert_eq!(target_in(&[]), None);
    }

    /// With an attribute that other file systems have as well.
    #[test]
    fn files_are_made_with_their_layout() {
        let dir = std::env::temp_dir().join(format!("plfs-lustre-{:016x}", random_u64()));
        std::fs::create_dir(&dir).unwrap();
        let mut lustre = Lustre::new("work", &[3, 9], None);
        lustre.attribute = "user.lustre.lov";
        assert_eq!(lustre.targets()[1].key, Path::new("lustre:/work-OST0009"));
        let store = PosixStore::new();
        let path = dir.join("f");
        let file = lustre.create(&store, &path, Open::create(0o640), 9).unwrap();
        assert_eq!(file.stat().unwrap().mode & 0o600, 0o600);
        file.write_at(b"x", 0).unwrap();
        match file.attribute(lustre.attribute) {
            Ok(layout) => assert_eq!(layout.unwrap(), layout_on(9)),
            // A file system without attributes: the file is there all the same.
            Err(errno) => assert_eq!(errno, Errno::OPNOTSUPP),
        }
        // One that is there stays as it is.
        let again = lustre.create(&store, &path, Open::create(0o640), 3).unwrap();
        assert_eq!(again.stat().unwrap().len, 1);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
