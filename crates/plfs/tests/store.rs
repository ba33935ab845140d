//! One list of behaviours, which every store must show alike; then what is special to each.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use plfs::store::{Errno, Kind, MemStore, Open, PosixFile, PosixStore, Store, StoreFile, Time, read_full, write_full};
use plfs_testkit::FaultStore;

/// A directory of the real file system that vanishes with the value.
struct Scratch(PathBuf);

impl Scratch {
    fn below(base: &Path) -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("plfs-store-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        // Without symbolic links on the way, so that the path means the same in a store that has only this directory.
        let path = std::fs::canonicalize(base).unwrap().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn shm() -> Option<&'static Path> {
    let path = Path::new("/dev/shm");
    if !path.is_dir() {
        eprintln!("skipped: no /dev/shm here");
        return None;
    }
    Some(path)
}

fn make_dirs(store: &dyn Store, path: &Path) {
    if let Some(parent) = path.parent() {
        make_dirs(store, parent);
        match store.mkdir(path, 0o755) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => panic!("mkdir {}: {errno}", path.display()),
        }
    }
}

fn put(store: &dyn Store, path: &Path, bytes: &[u8]) {
    let file = store.open(path, Open::create(0o644)).unwrap();
    write_full(&*file, bytes, 0).unwrap();
}

fn get(store: &dyn Store, path: &Path) -> Vec<u8> {
    content(&*store.open(path, Open::READ).unwrap())
}

fn content(file: &dyn StoreFile) -> Vec<u8> {
    let mut bytes = vec![0xaa; file.stat().unwrap().len as usize + 3];
    let n = read_full(file, &mut bytes, 0).unwrap();
    assert_eq!(n, bytes.len() - 3);
    bytes.truncate(n);
    bytes
}

fn names(store: &dyn Store, path: &Path) -> BTreeSet<String> {
    store.list(path).unwrap().into_iter().map(|entry| entry.name.into_string().unwrap()).collect()
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| name.to_string()).collect()
}

/// The list. Each behaviour gets a store and an empty directory in it.
macro_rules! behaviours {
    ($($name:ident),* $(,)?) => {
        const BEHAVIOURS: &[(&str, fn(&dyn Store, &Path))] = &[$((stringify!($name), $name)),*];
    };
}

behaviours![
    files_are_created_opened_and_refused,
    bytes_are_read_back_with_zeros_in_holes,
    the_length_can_be_set,
    opens_allow_only_what_they_asked_for,
    maps_show_the_whole_file,
    directories_are_made_listed_and_removed,
    directories_get_their_mode_less_the_umask,
    names_and_links_count_and_files_outlive_them,
    symlinks_are_followed_or_not,
    symlink_loops_and_long_chains_end,
    renames_replace_atomically_or_refuse,
    renames_move_directories,
    missing_paths_and_wrong_kinds_have_their_errors,
    odd_paths_mean_what_posix_says,
    modes_and_owners_are_set,
    times_are_set_exactly_and_move_forward,
    syncs_succeed,
    there_is_room,
    locks_belong_to_the_open_file,
];

fn run_all(store: &dyn Store, root: &Path) {
    make_dirs(store, root);
    for (name, behaviour) in BEHAVIOURS {
        eprintln!("  {name}");
        let dir = root.join(name);
        store.mkdir(&dir, 0o755).unwrap();
        behaviour(store, &dir);
    }
}

#[test]
fn posix_store_in_the_temporary_directory() {
    let scratch = Scratch::below(&std::env::temp_dir());
    run_all(&PosixStore::new(), &scratch.0);
}

#[test]
fn posix_store_in_shared_memory() {
    let Some(base) = shm() else { return };
    let scratch = Scratch::below(base);
    run_all(&PosixStore::new(), &scratch.0);
}

#[test]
fn mem_store() {
    run_all(&MemStore::new(), Path::new("/some/where"));
}

#[test]
fn fault_store_without_faults() {
    let store = FaultStore::new(Arc::new(MemStore::new()));
    run_all(&store, Path::new("/some/where"));
    assert!(store.calls() > 100);
}

/// What survives a crash after everything was synced behaves like any other store.
#[test]
fn mem_store_after_a_crash() {
    let store = MemStore::new();
    put(&store, Path::new("/unsynced"), b"x");
    run_all(&store.crash(), Path::new("/some/where"));
}

fn files_are_created_opened_and_refused(store: &dyn Store, dir: &Path) {
    let path = dir.join("f");
    assert_eq!(store.open(&path, Open::READ).unwrap_err(), Errno::NOENT);
    let file = store.open(&path, Open::create_new(0o640)).unwrap();
    let stat = file.stat().unwrap();
    assert_eq!((stat.kind, stat.len, stat.nlink, stat.mode & !0o077), (Kind::File, 0, 1, 0o600));
    assert_eq!(store.stat(&path, true).unwrap(), stat);
    assert_eq!(store.open(&path, Open::create_new(0o640)).unwrap_err(), Errno::EXIST);
    store.open(&path, Open::create(0o640)).unwrap();
    store.open(&path, Open::READ_WRITE).unwrap();
    assert_eq!(names(store, dir), set(&["f"]));
    // Without `create`, `exclusive` means nothing.
    store.open(&path, Open { exclusive: true, ..Open::READ }).unwrap();
    if let Some(fd) = file.fd() {
        assert!(rustix::io::fcntl_getfd(fd).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
    }
}

fn bytes_are_read_back_with_zeros_in_holes(store: &dyn Store, dir: &Path) {
    let file = store.open(&dir.join("f"), Open::create_new(0o600)).unwrap();
    let data: Vec<u8> = (0..20_000u32).map(|n| n as u8 | 1).collect();
    write_full(&*file, &data, 10_001).unwrap();
    write_full(&*file, b"abc", 3).unwrap();
    let mut expected = vec![0; 10_001];
    expected[3..6].copy_from_slice(b"abc");
    expected.extend_from_slice(&data);
    assert_eq!(content(&*file), expected);
    write_full(&*file, b"xyz", 12_287).unwrap();
    expected[12_287..12_290].copy_from_slice(b"xyz");
    assert_eq!(content(&*file), expected);
    let mut buf = [7; 10];
    assert_eq!(file.read_at(&mut buf, 29_996), Ok(5));
    assert_eq!((&buf[..5], &buf[5..]), (&expected[29_996..], &[7; 5][..]));
    assert_eq!(file.read_at(&mut buf, 30_001), Ok(0));
    assert_eq!(file.read_at(&mut buf, 1 << 40), Ok(0));
    assert_eq!(file.read_at(&mut [], 0), Ok(0));
    assert_eq!(file.write_at(&[], 1 << 40), Ok(0));
    assert_eq!(file.stat().unwrap().len, 30_001);
    assert_eq!(file.read_at(&mut buf, u64::MAX), Err(Errno::INVAL));
    assert_eq!(file.write_at(b"x", u64::MAX), Err(Errno::INVAL));
    // A hole costs nothing.
    write_full(&*file, b"end", 1 << 40).unwrap();
    assert_eq!(file.read_at(&mut buf, (1 << 40) - 2), Ok(5));
    assert_eq!(&buf[..5], b"\0\0end");
    assert!(file.stat().unwrap().blocks < 1000);
}

fn the_length_can_be_set(store: &dyn Store, dir: &Path) {
    let file = store.open(&dir.join("f"), Open::create_new(0o600)).unwrap();
    write_full(&*file, &[1; 9000], 0).unwrap();
    file.set_len(8193).unwrap();
    file.set_len(4097).unwrap();
    file.set_len(9000).unwrap();
    let mut expected = vec![1; 4097];
    expected.resize(9000, 0);
    assert_eq!(content(&*file), expected);
    file.set_len(4096).unwrap();
    file.set_len(4098).unwrap();
    expected.truncate(4098);
    expected[4096] = 0;
    assert_eq!(content(&*file), expected);
    file.set_len(0).unwrap();
    assert_eq!(content(&*file), b"");
    assert_eq!(file.set_len(u64::MAX), Err(Errno::INVAL));
    file.set_len(1 << 40).unwrap();
    assert_eq!(file.stat().unwrap().len, 1 << 40);
}

fn opens_allow_only_what_they_asked_for(store: &dyn Store, dir: &Path) {
    let path = dir.join("f");
    put(store, &path, b"abc");
    let reader = store.open(&path, Open::READ).unwrap();
    assert_eq!(reader.write_at(b"x", 0), Err(Errno::BADF));
    assert_eq!(reader.set_len(0), Err(Errno::INVAL));
    let writer = store.open(&path, Open { read: false, ..Open::READ_WRITE }).unwrap();
    assert_eq!(writer.read_at(&mut [0], 0), Err(Errno::BADF));
    assert_eq!(writer.map().err(), Some(Errno::ACCESS));
    writer.write_at(b"x", 0).unwrap();
    assert_eq!(content(&*reader), b"xbc");
}

fn maps_show_the_whole_file(store: &dyn Store, dir: &Path) {
    let path = dir.join("f");
    let file = store.open(&path, Open::create_new(0o600)).unwrap();
    assert_eq!((*file.map().unwrap()).as_ref(), b"");
    write_full(&*file, &[5; 5000], 0).unwrap();
    let map = file.map().unwrap();
    drop(file);
    store.unlink(&path).unwrap();
    assert_eq!((*map).as_ref(), [5; 5000]);
}

fn directories_are_made_listed_and_removed(store: &dyn Store, dir: &Path) {
    let sub = dir.join("sub");
    store.mkdir(&sub, 0o700).unwrap();
    assert_eq!(store.mkdir(&sub, 0o700), Err(Errno::EXIST));
    assert_eq!(store.stat(&sub, true).unwrap().kind, Kind::Dir);
    assert_eq!(names(store, &sub), set(&[]));
    let many: BTreeSet<String> = (0..1500).map(|n| format!("a-rather-long-name-to-fill-buffers-{n:05}")).collect();
    for name in &many {
        store.open(&sub.join(name), Open::create_new(0o600)).unwrap();
    }
    assert_eq!(names(store, &sub), many);
    assert_eq!(store.rmdir(&sub), Err(Errno::NOTEMPTY));
    for name in &many {
        store.unlink(&sub.join(name)).unwrap();
    }
    put(store, &sub.join("file"), b"");
    store.mkdir(&sub.join("dir"), 0o700).unwrap();
    store.symlink(Path::new("x"), &sub.join("link")).unwrap();
    for entry in store.list(&sub).unwrap() {
        let kind = store.stat(&sub.join(&entry.name), false).unwrap().kind;
        assert_eq!(entry.kind.unwrap_or(kind), kind);
    }
    for name in ["file", "link"] {
        assert_eq!(store.rmdir(&sub.join(name)), Err(Errno::NOTDIR));
        store.unlink(&sub.join(name)).unwrap();
    }
    assert_eq!(store.unlink(&sub.join("dir")), Err(Errno::ISDIR));
    store.rmdir(&sub.join("dir")).unwrap();
    store.rmdir(&sub).unwrap();
    assert_eq!(store.list(&sub), Err(Errno::NOENT));
    assert_eq!(store.rmdir(&sub), Err(Errno::NOENT));
}

fn directories_get_their_mode_less_the_umask(store: &dyn Store, dir: &Path) {
    for mode in [0o700, 0o777, 0o1777, 0o000] {
        let path = dir.join(format!("{mode:o}"));
        store.mkdir(&path, mode).unwrap();
        assert_eq!(store.stat(&path, true).unwrap().mode, mode & !0o022);
    }
}

fn names_and_links_count_and_files_outlive_them(store: &dyn Store, dir: &Path) {
    let (a, b) = (dir.join("a"), dir.join("b"));
    let file = store.open(&a, Open::create_new(0o600)).unwrap();
    store.link(&a, &b).unwrap();
    assert_eq!(store.link(&a, &b), Err(Errno::EXIST));
    assert_eq!(store.link(&dir.join("missing"), &dir.join("c")), Err(Errno::NOENT));
    assert_eq!(store.link(dir, &dir.join("c")), Err(Errno::PERM));
    assert_eq!(store.stat(&a, true).unwrap().ino, store.stat(&b, true).unwrap().ino);
    assert_eq!(file.stat().unwrap().nlink, 2);
    put(store, &b, b"through b");
    assert_eq!(content(&*file), b"through b");
    store.unlink(&a).unwrap();
    store.unlink(&b).unwrap();
    assert_eq!(store.unlink(&b), Err(Errno::NOENT));
    assert_eq!(file.stat().unwrap().nlink, 0);
    file.write_at(b"T", 0).unwrap();
    assert_eq!(content(&*file), b"Through b");
    put(store, &a, b"another");
    assert_eq!(content(&*file), b"Through b");
    assert_ne!(store.stat(&a, true).unwrap().ino, file.stat().unwrap().ino);
    // A link to a link, not to what it leads to; and none over a dangling one.
    store.symlink(Path::new("nowhere"), &dir.join("s")).unwrap();
    store.link(&dir.join("s"), &dir.join("t")).unwrap();
    assert_eq!(store.readlink(&dir.join("t")).unwrap(), Path::new("nowhere"));
    assert_eq!(store.stat(&dir.join("t"), false).unwrap().nlink, 2);
    assert_eq!(store.link(&a, &dir.join("s")), Err(Errno::EXIST));
    store.mkdir(&dir.join("d"), 0o700).unwrap();
    store.mkdir(&dir.join("d/e"), 0o700).unwrap();
    assert_eq!(store.link(&dir.join("s"), &dir.join("d/e/s")), Ok(()));
}

fn symlinks_are_followed_or_not(store: &dyn Store, dir: &Path) {
    let (target, link) = (dir.join("target"), dir.join("link"));
    store.symlink(Path::new("target"), &link).unwrap();
    assert_eq!(store.symlink(Path::new("x"), &link), Err(Errno::EXIST));
    assert_eq!(store.symlink(Path::new(""), &dir.join("empty")), Err(Errno::NOENT));
    assert_eq!(store.readlink(&link).unwrap(), Path::new("target"));
    assert_eq!(store.stat(&link, true), Err(Errno::NOENT));
    let stat = store.stat(&link, false).unwrap();
    assert_eq!((stat.kind, stat.len, stat.mode), (Kind::Symlink, 6, 0o777));
    assert_eq!(store.open(&link, Open::READ).unwrap_err(), Errno::NOENT);
    assert_eq!(store.open(&link, Open::create_new(0o600)).unwrap_err(), Errno::EXIST);
    assert_eq!(store.mkdir(&link, 0o700), Err(Errno::EXIST));
    put(store, &link, b"through the link");
    assert_eq!(get(store, &target), b"through the link");
    assert_eq!(store.readlink(&target), Err(Errno::INVAL));
    store.mkdir(&dir.join("d"), 0o700).unwrap();
    store.symlink(&dir.join("d"), &dir.join("abs")).unwrap();
    store.symlink(Path::new("../abs"), &dir.join("d/up")).unwrap();
    put(store, &dir.join("d/up/up/up/f"), b"deep");
    assert_eq!(get(store, &dir.join("d/f")), b"deep");
    assert_eq!(store.stat(&dir.join("d/up/.."), false).unwrap().ino, store.stat(dir, true).unwrap().ino);
    assert_eq!(names(store, &dir.join("abs")), set(&["up", "f"]));
    assert_eq!(store.rmdir(&dir.join("abs")), Err(Errno::NOTDIR));
    store.unlink(&dir.join("abs")).unwrap();
    assert_eq!(names(store, &dir.join("d")), set(&["up", "f"]));
}

fn symlink_loops_and_long_chains_end(store: &dyn Store, dir: &Path) {
    store.symlink(Path::new("b"), &dir.join("a")).unwrap();
    store.symlink(Path::new("a"), &dir.join("b")).unwrap();
    assert_eq!(store.stat(&dir.join("a"), true), Err(Errno::LOOP));
    assert_eq!(store.open(&dir.join("a"), Open::create(0o600)).unwrap_err(), Errno::LOOP);
    assert_eq!(store.stat(&dir.join("a/x"), false), Err(Errno::LOOP));
    put(store, &dir.join("0"), b"end");
    for n in 1..=41 {
        store.symlink(Path::new(&format!("{}", n - 1)), &dir.join(n.to_string())).unwrap();
    }
    assert_eq!(get(store, &dir.join("40")), b"end");
    assert_eq!(store.open(&dir.join("41"), Open::READ).unwrap_err(), Errno::LOOP);
}

fn renames_replace_atomically_or_refuse(store: &dyn Store, dir: &Path) {
    let path = |name: &str| dir.join(name);
    put(store, &path("a"), b"a");
    put(store, &path("b"), b"b");
    let old = store.open(&path("b"), Open::READ).unwrap();
    store.rename(&path("a"), &path("b")).unwrap();
    assert_eq!(get(store, &path("b")), b"a");
    assert_eq!(content(&*old), b"b");
    assert_eq!(old.stat().unwrap().nlink, 0);
    assert_eq!(store.rename(&path("a"), &path("b")), Err(Errno::NOENT));
    assert_eq!(store.rename(&path("b"), &path("none/b")), Err(Errno::NOENT));
    assert_eq!(store.rename(&path("b"), &path("b")), Ok(()));
    // Two names of one file: nothing happens, both stay.
    store.link(&path("b"), &path("c")).unwrap();
    store.rename(&path("b"), &path("c")).unwrap();
    store.unlink(&path("b")).unwrap();
    store.mkdir(&path("d"), 0o700).unwrap();
    store.mkdir(&path("e"), 0o700).unwrap();
    put(store, &path("e/x"), b"x");
    assert_eq!(store.rename(&path("c"), &path("d")), Err(Errno::ISDIR));
    assert_eq!(store.rename(&path("d"), &path("c")), Err(Errno::NOTDIR));
    assert_eq!(store.rename(&path("d"), &path("e")), Err(Errno::NOTEMPTY));
    assert_eq!(store.rename(&path("e"), &path("d")), Ok(()));
    assert_eq!(names(store, dir), set(&["c", "d"]));
    // The link itself moves, and is replaced itself.
    store.symlink(Path::new("c"), &path("s")).unwrap();
    store.rename(&path("s"), &path("t")).unwrap();
    assert_eq!(store.readlink(&path("t")).unwrap(), Path::new("c"));
    store.rename(&path("c"), &path("t")).unwrap();
    assert_eq!(store.stat(&path("t"), false).unwrap().kind, Kind::File);
}

fn renames_move_directories(store: &dyn Store, dir: &Path) {
    let path = |name: &str| dir.join(name);
    make_dirs(store, &path("a/b/c"));
    assert_eq!(store.rename(&path("a"), &path("a/b/d")), Err(Errno::INVAL));
    assert_eq!(store.rename(&path("a"), &path("a/d")), Err(Errno::INVAL));
    assert_eq!(store.rename(&path("a/b/c"), &path("a")), Err(Errno::NOTEMPTY));
    put(store, &path("a/b/f"), b"f");
    assert_eq!(store.rename(&path("a/b/f"), &path("a")), Err(Errno::NOTEMPTY));
    store.rename(&path("a/b"), &path("b")).unwrap();
    assert_eq!(get(store, &path("b/c/../f")), b"f");
    assert_eq!(store.stat(&path("b/.."), true).unwrap().ino, store.stat(dir, true).unwrap().ino);
    assert_eq!(names(store, &path("a")), set(&[]));
    assert_eq!(names(store, dir), set(&["a", "b"]));
}

fn missing_paths_and_wrong_kinds_have_their_errors(store: &dyn Store, dir: &Path) {
    let file = dir.join("f");
    put(store, &file, b"");
    for (below, errno) in [(dir.join("none/x"), Errno::NOENT), (file.join("x"), Errno::NOTDIR)] {
        assert_eq!(store.open(&below, Open::create(0o600)).unwrap_err(), errno);
        assert_eq!(store.stat(&below, true), Err(errno));
        assert_eq!(store.list(&below), Err(errno));
        assert_eq!(store.mkdir(&below, 0o700), Err(errno));
        assert_eq!(store.rmdir(&below), Err(errno));
        assert_eq!(store.unlink(&below), Err(errno));
        assert_eq!(store.rename(&below, &file), Err(errno));
        assert_eq!(store.rename(&file, &below), Err(errno));
        assert_eq!(store.link(&below, &dir.join("l")), Err(errno));
        assert_eq!(store.link(&file, &below), Err(errno));
        assert_eq!(store.symlink(Path::new("x"), &below), Err(errno));
        assert_eq!(store.readlink(&below), Err(errno));
        assert_eq!(store.chmod(&below, 0o600), Err(errno));
        assert_eq!(store.chown(&below, None, None, true), Err(errno));
        assert_eq!(store.set_times(&below, None, None), Err(errno));
        assert_eq!(store.set_times(&below, Some(Time::default()), None), Err(errno));
        assert_eq!(store.sync_dir(&below), Err(errno));
        assert_eq!(store.space(&below), Err(errno));
    }
    assert_eq!(store.list(&file), Err(Errno::NOTDIR));
    assert_eq!(store.sync_dir(&file), Err(Errno::NOTDIR));
    assert_eq!(store.open(dir, Open::READ_WRITE).unwrap_err(), Errno::ISDIR);
    assert_eq!(store.open(dir, Open::create(0o600)).unwrap_err(), Errno::ISDIR);
    assert_eq!(store.open(dir, Open::create_new(0o600)).unwrap_err(), Errno::EXIST);
    let opened = store.open(dir, Open::READ).unwrap();
    assert_eq!(opened.stat().unwrap().kind, Kind::Dir);
    assert_eq!(opened.read_at(&mut [0; 10], 0), Err(Errno::ISDIR));
}

fn odd_paths_mean_what_posix_says(store: &dyn Store, dir: &Path) {
    let path = |name: &str| PathBuf::from(format!("{}/{name}", dir.display()));
    put(store, &path("f"), b"f");
    assert_eq!(store.stat(Path::new(""), true), Err(Errno::NOENT));
    assert_eq!(store.stat(&path("f/"), true), Err(Errno::NOTDIR));
    assert_eq!(store.stat(&path("f/."), true), Err(Errno::NOTDIR));
    assert_eq!(store.stat(&path("none/.."), true), Err(Errno::NOENT));
    assert_eq!(store.stat(&path("f/.."), true), Err(Errno::NOTDIR));
    assert_eq!(get(store, &path(".//./f")), b"f");
    assert_eq!(store.open(&path("none/"), Open::create(0o600)).unwrap_err(), Errno::ISDIR);
    assert_eq!(store.rename(&path("f"), &path("g/")), Err(Errno::NOTDIR));
    store.mkdir(&path("d/"), 0o700).unwrap();
    store.rename(&path("d/"), &path("e/")).unwrap();
    assert_eq!(store.rename(&path("e/."), &path("g")), Err(Errno::BUSY));
    assert_eq!(store.rmdir(&path("e/.")), Err(Errno::INVAL));
    assert_eq!(store.rmdir(&path("e/..")), Err(Errno::NOTEMPTY));
    assert_eq!(store.mkdir(&path("."), 0o700), Err(Errno::EXIST));
    assert_eq!(store.stat(Path::new("/.."), true).unwrap().ino, store.stat(Path::new("/"), true).unwrap().ino);
    assert_eq!(store.rmdir(Path::new("/")), Err(Errno::BUSY));
    let long = "n".repeat(255);
    put(store, &path(&long), b"");
    assert_eq!(store.open(&path(&format!("{long}n")), Open::create(0o600)).unwrap_err(), Errno::NAMETOOLONG);
    assert_eq!(store.stat(&path(&"x/".repeat(2500)), true), Err(Errno::NAMETOOLONG));
    assert_eq!(store.stat(&path("a\0b"), true), Err(Errno::INVAL));
    store.rmdir(&path("e/")).unwrap();
}

fn modes_and_owners_are_set(store: &dyn Store, dir: &Path) {
    let (file, link) = (dir.join("f"), dir.join("l"));
    put(store, &file, b"");
    store.symlink(Path::new("f"), &link).unwrap();
    store.chmod(&link, 0o4751).unwrap();
    assert_eq!(store.stat(&file, true).unwrap().mode, 0o4751);
    store.chmod(&link, 0o640).unwrap();
    let before = store.stat(&file, true).unwrap();
    store.chown(&file, Some(before.uid), None, true).unwrap();
    store.chown(&file, None, Some(before.gid), true).unwrap();
    if before.uid != 0 {
        eprintln!("skipped: giving files away, only root may");
        return;
    }
    store.chown(&link, Some(77), Some(88), true).unwrap();
    store.chown(&link, Some(99), None, false).unwrap();
    store.chown(&link, None, None, true).unwrap();
    let (stat, lstat) = (store.stat(&file, true).unwrap(), store.stat(&link, false).unwrap());
    assert_eq!((stat.uid, stat.gid, stat.mode), (77, 88, 0o640));
    assert_eq!((lstat.uid, lstat.gid), (99, before.gid));
}

fn times_are_set_exactly_and_move_forward(store: &dyn Store, dir: &Path) {
    let path = dir.join("f");
    put(store, &path, b"");
    let (a, m) = (Time { sec: 1_234_567_890, nsec: 123_456_789 }, Time { sec: -5, nsec: 999_999_999 });
    store.set_times(&path, Some(a), Some(m)).unwrap();
    let stat = store.stat(&path, true).unwrap();
    assert_eq!((stat.atime, stat.mtime), (a, m));
    store.set_times(&path, None, Some(a)).unwrap();
    store.set_times(&path, None, None).unwrap();
    assert_eq!(store.stat(&path, true).unwrap().mtime, a);
    store.set_times(&path, Some(m), None).unwrap();
    let stat = store.stat(&path, true).unwrap();
    assert_eq!((stat.atime, stat.mtime), (m, a));
    for nsec in [1_000_000_000, (1 << 30) - 1, (1 << 30) - 2] {
        assert_eq!(store.set_times(&path, Some(Time { sec: 0, nsec }), None), Err(Errno::INVAL));
    }
    store.set_times(dir, Some(m), Some(m)).unwrap();
    store.set_times(&path, Some(m), Some(m)).unwrap();
    put(store, &path, b"new");
    assert!(store.stat(&path, true).unwrap().mtime > m);
    assert_eq!(store.stat(dir, true).unwrap().mtime, m);
    put(store, &dir.join("g"), b"");
    assert!(store.stat(dir, true).unwrap().mtime > m);
}

fn syncs_succeed(store: &dyn Store, dir: &Path) {
    let file = store.open(&dir.join("f"), Open::create_new(0o600)).unwrap();
    write_full(&*file, b"abc", 0).unwrap();
    file.sync_data().unwrap();
    store.open(&dir.join("f"), Open::READ).unwrap().sync_data().unwrap();
    store.sync_dir(dir).unwrap();
    assert_eq!(content(&*file), b"abc");
}

fn there_is_room(store: &dyn Store, dir: &Path) {
    let space = store.space(dir).unwrap();
    assert!(space.available > 0 && space.total >= space.available);
}

fn locks_belong_to_the_open_file(store: &dyn Store, dir: &Path) {
    let path = dir.join("f");
    put(store, &path, b"");
    store.mkdir(&dir.join("d"), 0o700).unwrap();
    for path in [&path, &dir.join("d")] {
        let a = store.open(path, Open::READ).unwrap();
        let b = store.open(path, Open::READ).unwrap();
        assert_eq!(a.try_lock(true), Ok(true));
        assert_eq!(a.try_lock(true), Ok(true));
        assert_eq!(b.try_lock(true), Ok(false));
        assert_eq!(b.try_lock(false), Ok(false));
        assert_eq!(a.try_lock(false), Ok(true));
        assert_eq!(b.try_lock(false), Ok(true));
        // The failed attempt loses what a held.
        assert_eq!(a.try_lock(true), Ok(false));
        assert_eq!(b.try_lock(true), Ok(true));
        drop(b);
        assert_eq!(a.try_lock(true), Ok(true));
    }
}

/// The same random calls on the memory store and on the kernel's tmpfs have the same results.
#[test]
fn mem_store_agrees_with_the_kernel_on_random_calls() {
    let Some(base) = shm() else { return };
    for seed in 0..60 {
        let scratch = Scratch::below(base);
        let posix = PosixStore::new();
        let mem = MemStore::new();
        // Two levels, so that links to `..` lead nowhere else.
        let root = scratch.0.join("outer/inner");
        make_dirs(&mem, &root);
        make_dirs(&posix, &root);
        let mut random = Random(seed);
        let mut done = Vec::new();
        for _ in 0..400 {
            let call = random_call(&mut random, &root);
            let (real, ours) = (perform(&posix, &call), perform(&mem, &call));
            done.push(format!("{call:?} = {real}"));
            assert_eq!(ours, real, "seed {seed}:\n{}", done[done.len().saturating_sub(30)..].join("\n"));
        }
        assert_eq!(tree(&mem, &scratch.0), tree(&posix, &scratch.0), "seed {seed}");
    }
}

/// Whatever happened before, a crash leaves a sound tree, and one that equals the store if all was synced.
#[test]
fn crashes_at_random_leave_sound_trees() {
    let root = Path::new("/outer/inner");
    for seed in 0..60 {
        let store = MemStore::new();
        make_dirs(&store, root);
        let mut random = Random(seed);
        for _ in 0..300 {
            perform(&store, &random_call(&mut random, root));
            if random.below(4) == 0 {
                let _ = store.sync_dir(&random_path(&mut random, root));
            }
        }
        for crash in 0..5 {
            let crashed = store.crash_with(crash);
            assert_eq!(tree(&crashed, Path::new("/")), tree(&crashed.crash(), Path::new("/")));
        }
        tree(&store.crash(), Path::new("/"));
        sync_all(&store, Path::new("/"));
        let all = tree(&store, Path::new("/"));
        assert_eq!(tree(&store.crash(), Path::new("/")), all, "seed {seed}");
        assert_eq!(tree(&store.crash_with(seed), Path::new("/")), all, "seed {seed}");
    }
}

fn sync_all(store: &dyn Store, path: &Path) {
    for entry in store.list(path).unwrap() {
        let path = path.join(entry.name);
        match store.stat(&path, false).unwrap().kind {
            Kind::Dir => sync_all(store, &path),
            Kind::File => store.open(&path, Open::READ).unwrap().sync_data().unwrap(),
            Kind::Symlink | Kind::Other => {}
        }
    }
    store.sync_dir(path).unwrap();
}

/// A linear congruential generator (Knuth, MMIX) of which the high bits are used.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

#[derive(Debug)]
enum Call {
    Create(PathBuf, bool),
    Write(PathBuf, u64, u8),
    SetLen(PathBuf, u64),
    Read(PathBuf),
    Stat(PathBuf, bool),
    List(PathBuf),
    Mkdir(PathBuf),
    Rmdir(PathBuf),
    Unlink(PathBuf),
    Rename(PathBuf, PathBuf),
    Link(PathBuf, PathBuf),
    Symlink(PathBuf, PathBuf),
    Readlink(PathBuf),
}

fn random_path(random: &mut Random, root: &Path) -> PathBuf {
    let mut path = root.as_os_str().to_owned();
    for _ in 0..=random.below(3) {
        path.push("/");
        path.push(["a", "b", "c", "a", "b", "c", "a", "b", "c", "."][random.below(10) as usize]);
    }
    if random.below(20) == 0 {
        path.push("/");
    }
    path.into()
}

fn random_call(random: &mut Random, root: &Path) -> Call {
    let one = random_path(random, root);
    match random.below(15) {
        0 => Call::Create(one, random.below(2) == 0),
        1 => Call::Write(one, random.below(20_000), random.below(256) as u8),
        2 => Call::SetLen(one, random.below(20_000)),
        3 => Call::Read(one),
        4 => Call::Stat(one, random.below(2) == 0),
        5 => Call::List(one),
        6 | 7 => Call::Mkdir(one),
        8 => Call::Rmdir(one),
        9 => Call::Unlink(one),
        10 | 11 => Call::Rename(one, random_path(random, root)),
        12 => Call::Link(one, random_path(random, root)),
        13 => {
            let target = match random.below(4) {
                0 => random_path(random, root),
                1 => "../a".into(),
                2 => "b".into(),
                _ => "a/c".into(),
            };
            Call::Symlink(target, one)
        }
        _ => Call::Readlink(one),
    }
}

fn perform(store: &dyn Store, call: &Call) -> String {
    match call {
        Call::Create(path, exclusive) => format!("{:?}", store.open(path, Open { exclusive: *exclusive, ..Open::create(0o644) }).map(drop)),
        Call::Write(path, offset, byte) => {
            format!("{:?}", store.open(path, Open::READ_WRITE).and_then(|file| write_full(&*file, &vec![*byte; usize::from(*byte) * 40], *offset)))
        }
        Call::SetLen(path, len) => format!("{:?}", store.open(path, Open::READ_WRITE).and_then(|file| file.set_len(*len))),
        Call::Read(path) => {
            let mut bytes = vec![0; 40_000];
            let read = store.open(path, Open::READ).and_then(|file| read_full(&*file, &mut bytes, 0));
            format!("{read:?} {:x}", bytes.iter().fold(0u64, |sum, &byte| sum.wrapping_mul(31).wrapping_add(byte.into())))
        }
        Call::Stat(path, follow) => format!("{:?}", store.stat(path, *follow).map(|stat| describe(&stat))),
        Call::List(path) => {
            let listed = store.list(path).map(|entries| entries.into_iter().map(|entry| (entry.name, format!("{:?}", entry.kind))).collect::<BTreeSet<_>>());
            format!("{listed:?}")
        }
        Call::Mkdir(path) => format!("{:?}", store.mkdir(path, 0o755)),
        Call::Rmdir(path) => format!("{:?}", store.rmdir(path)),
        Call::Unlink(path) => format!("{:?}", store.unlink(path)),
        Call::Rename(from, to) => format!("{:?}", store.rename(from, to)),
        Call::Link(from, to) => format!("{:?}", store.link(from, to)),
        Call::Symlink(target, path) => format!("{:?}", store.symlink(target, path)),
        Call::Readlink(path) => format!("{:?}", store.readlink(path)),
    }
}

fn describe(stat: &plfs::store::Stat) -> (String, u64, u64) {
    (format!("{:?}", stat.kind), stat.nlink, if stat.kind == Kind::Dir { 0 } else { stat.len })
}

/// Everything below `path`, as text.
fn tree(store: &dyn Store, path: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for name in names(store, path) {
        let path = path.join(name);
        let stat = store.stat(&path, false).unwrap();
        let bytes = if stat.kind == Kind::File { get(store, &path) } else { Vec::new() };
        found.push(format!("{} {:?} {:?}", path.display(), describe(&stat), bytes));
        if stat.kind == Kind::Dir {
            found.extend(tree(store, &path));
        }
    }
    found
}

// The real file system.

#[test]
fn descriptors_that_plfs_keeps_are_high_and_known() {
    let scratch = Scratch::below(&std::env::temp_dir());
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    let base = (limit / 2).clamp(64, 65_536) as i32;
    let file = PosixStore::new().open(&scratch.0.join("f"), Open::create_new(0o600)).unwrap();
    let number = file.fd().unwrap().as_raw_fd();
    assert!(number >= base, "{number} < {base}");
    assert!(PosixStore::owns_fd(number));
    // Another test may get the number at once, so look at all but the last of many.
    let many: Vec<_> = (0..50).map(|_| PosixStore::new().open(&scratch.0.join("f"), Open::READ).unwrap()).collect();
    let numbers: BTreeSet<i32> = many.iter().map(|file| file.fd().unwrap().as_raw_fd()).collect();
    assert_eq!(numbers.len(), 50);
    assert!(numbers.iter().all(|&number| PosixStore::owns_fd(number)));
    drop(many);
    assert!(numbers.iter().filter(|&&number| PosixStore::owns_fd(number)).count() < 50);
    for strange in [-1, 0, 1, 2, 131_071, 131_072, i32::MAX, i32::MIN] {
        assert!(!PosixStore::owns_fd(strange), "{strange}");
    }
}

#[test]
fn descriptors_for_the_program_are_its_own() {
    let scratch = Scratch::below(&std::env::temp_dir());
    let path = scratch.0.join("f");
    let file = PosixFile::open(&path, Open::create_new(0o600)).unwrap();
    let number = file.as_fd().as_raw_fd();
    assert!(!PosixStore::owns_fd(number));
    file.write_at(b"abc", 0).unwrap();
    let fd = file.into_fd();
    assert_eq!(fd.as_raw_fd(), number);
    let file = PosixFile::from_fd(fd);
    assert!(!PosixStore::owns_fd(number));
    assert_eq!(content(&file), b"abc");
}

#[test]
fn local_file_systems_are_known() {
    let store = PosixStore::new();
    if let Some(base) = shm() {
        assert!(store.is_local(base));
        assert!(store.is_local(&base.join("not/yet/there")));
    }
    assert!(!store.is_local(Path::new("/proc")));
    assert!(MemStore::new().is_local(Path::new("/")));
}

/// Locks of the real store exclude other processes and vanish with them. The other process is this test program, asked to run `lock_helper` alone.
#[test]
fn posix_locks_exclude_other_processes() {
    let scratch = Scratch::below(&std::env::temp_dir());
    let path = scratch.0.join("f");
    let file = PosixStore::new().open(&path, Open::create_new(0o600)).unwrap();
    let other = |exclusive: &str| {
        let program = std::env::current_exe().unwrap();
        let output = Command::new(program)
            .args(["--exact", "lock_helper", "--nocapture", "--test-threads=1"])
            .env("PLFS_TEST_LOCK", &path)
            .env("PLFS_TEST_LOCK_EXCLUSIVE", exclusive)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let got = text.split("lock granted: ").nth(1).unwrap_or_else(|| panic!("no answer in {text:?}"));
        got.starts_with("true")
    };
    assert!(other("1"));
    assert!(file.try_lock(false).unwrap());
    assert!(other("0"));
    assert!(!other("1"));
    assert!(file.try_lock(true).unwrap());
    assert!(!other("0"));
    drop(file);
    assert!(other("1"));
}

#[test]
fn lock_helper() {
    let Some(path) = std::env::var_os("PLFS_TEST_LOCK") else { return };
    let exclusive = std::env::var("PLFS_TEST_LOCK_EXCLUSIVE").unwrap() == "1";
    let file = PosixStore::new().open(Path::new(&path), Open::READ_WRITE).unwrap();
    println!("lock granted: {}", file.try_lock(exclusive).unwrap());
}

// The store in memory.

#[test]
fn mem_files_may_be_as_long_as_offsets_go() {
    let store = MemStore::new();
    let file = store.open(Path::new("/f"), Open::create_new(0o600)).unwrap();
    write_full(&*file, b"far", 1 << 60).unwrap();
    let mut buf = [1; 8];
    assert_eq!(file.read_at(&mut buf, (1 << 60) - 3), Ok(6));
    assert_eq!(&buf[..6], b"\0\0\0far");
    assert_eq!(file.stat().unwrap().len, (1 << 60) + 3);
    assert_eq!(file.stat().unwrap().blocks, 8);
    assert_eq!(file.map().err(), Some(Errno::NOMEM));
    let max = i64::MAX as u64;
    assert_eq!(file.write_at(b"ab", max - 1), Ok(1));
    assert_eq!(file.write_at(b"b", max), Err(Errno::FBIG));
    assert_eq!(file.stat().unwrap().len, max);
    file.sync_data().unwrap();
    store.sync_dir(Path::new("/")).unwrap();
    for seed in 0..10 {
        assert_eq!(store.crash_with(seed).stat(Path::new("/f"), true).unwrap().len, max);
    }
}

#[test]
fn mem_store_serves_many_threads() {
    let store = MemStore::new();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let store = &store;
            scope.spawn(move || {
                let shared = store.open(Path::new("/shared"), Open::create(0o600)).unwrap();
                for n in 0..200u64 {
                    write_full(&*shared, &[thread as u8 + 1; 100], (n * 4 + thread) * 100).unwrap();
                    let path = PathBuf::from(format!("/{thread}-{n}"));
                    put(store, &path, b"x");
                    store.rename(&path, Path::new("/last")).unwrap();
                }
            });
        }
    });
    assert_eq!(names(&store, Path::new("/")), set(&["last", "shared"]));
    let expected: Vec<u8> = (0..800).flat_map(|n| [n as u8 % 4 + 1; 100]).collect();
    assert_eq!(get(&store, Path::new("/shared")), expected);
}

// Crashes.

#[test]
fn a_crash_loses_names_and_bytes_that_were_not_synced() {
    let store = MemStore::new();
    let root = Path::new("/");
    let file = store.open(Path::new("/f"), Open::create_new(0o600)).unwrap();
    write_full(&*file, b"synced", 0).unwrap();
    file.sync_data().unwrap();
    write_full(&*file, b"SY", 0).unwrap();
    write_full(&*file, b" and not", 6).unwrap();
    assert_eq!(names(&store.crash(), root), set(&[]));
    store.sync_dir(root).unwrap();
    let crashed = store.crash();
    assert_eq!(get(&crashed, Path::new("/f")), b"synced");
    // The old store and its files go on, apart from the new one.
    put(&crashed, Path::new("/f"), b"other!");
    assert_eq!(content(&*file), b"SYnced and not");
    file.sync_data().unwrap();
    assert_eq!(get(&store.crash(), Path::new("/f")), b"SYnced and not");
    assert_eq!(get(&crashed, Path::new("/f")), b"other!");
    // What survived is durable in the new store.
    assert_eq!(get(&store.crash().crash(), Path::new("/f")), b"SYnced and not");
    // A name that is durable without any sync of the file leads to nothing.
    put(&store, Path::new("/g"), b"lost");
    store.sync_dir(root).unwrap();
    assert_eq!(get(&store.crash(), Path::new("/g")), b"");
    // A shorter length is as volatile as a longer one.
    file.set_len(3).unwrap();
    file.set_len(8).unwrap();
    assert_eq!(get(&store.crash(), Path::new("/f")), b"SYnced and not");
    file.sync_data().unwrap();
    assert_eq!(get(&store.crash(), Path::new("/f")), b"SYn\0\0\0\0\0");
}

#[test]
fn a_crash_brings_removed_names_back() {
    let store = MemStore::new();
    let root = Path::new("/");
    make_dirs(&store, Path::new("/d/e"));
    put(&store, Path::new("/d/e/f"), b"1");
    put(&store, Path::new("/g"), b"2");
    for path in ["/d/e/f", "/g"] {
        store.open(Path::new(path), Open::READ).unwrap().sync_data().unwrap();
    }
    for path in ["/", "/d", "/d/e"] {
        store.sync_dir(Path::new(path)).unwrap();
    }
    store.unlink(Path::new("/d/e/f")).unwrap();
    store.rmdir(Path::new("/d/e")).unwrap();
    store.rmdir(Path::new("/d")).unwrap();
    store.link(Path::new("/g"), Path::new("/h")).unwrap();
    store.rename(Path::new("/g"), Path::new("/i")).unwrap();
    let crashed = store.crash();
    assert_eq!(get(&crashed, Path::new("/d/e/f")), b"1");
    assert_eq!(names(&crashed, root), set(&["d", "g"]));
    assert_eq!(crashed.stat(Path::new("/g"), true).unwrap().nlink, 1);
    assert_eq!(crashed.stat(root, true).unwrap().nlink, 3);
    store.sync_dir(root).unwrap();
    assert_eq!(names(&store.crash(), root), set(&["h", "i"]));
    assert_eq!(store.crash().stat(Path::new("/h"), true).unwrap().nlink, 2);
    // A removed file that a program holds open is gone all the same.
    let file = store.open(Path::new("/h"), Open::READ).unwrap();
    store.unlink(Path::new("/h")).unwrap();
    store.unlink(Path::new("/i")).unwrap();
    store.sync_dir(root).unwrap();
    assert_eq!(names(&store.crash(), root), set(&[]));
    assert_eq!(content(&*file), b"2");
}

#[test]
fn a_crash_takes_each_directory_for_itself() {
    let store = MemStore::new();
    make_dirs(&store, Path::new("/a/sub"));
    make_dirs(&store, Path::new("/b"));
    put(&store, Path::new("/a/f"), b"");
    put(&store, Path::new("/a/sub/g"), b"");
    for path in ["/", "/a", "/b", "/a/sub"] {
        store.sync_dir(Path::new(path)).unwrap();
    }
    store.rename(Path::new("/a/f"), Path::new("/b/f")).unwrap();
    store.rename(Path::new("/a/sub"), Path::new("/b/sub")).unwrap();
    assert_eq!(names(&store.crash(), Path::new("/a")), set(&["f", "sub"]));
    let target_first = {
        store.sync_dir(Path::new("/b")).unwrap();
        store.crash()
    };
    // The file has two names; the directory cannot, and has the new one.
    assert_eq!(names(&target_first, Path::new("/a")), set(&["f"]));
    assert_eq!(names(&target_first, Path::new("/b")), set(&["f", "sub"]));
    assert_eq!(target_first.stat(Path::new("/b/f"), true).unwrap().nlink, 2);
    assert_eq!(names(&target_first, Path::new("/b/sub/../sub")), set(&["g"]));
    store.sync_dir(Path::new("/a")).unwrap();
    assert_eq!(names(&store.crash(), Path::new("/a")), set(&[]));
    // A directory moved into one that is lost stays where it was.
    make_dirs(&store, Path::new("/new"));
    store.rename(Path::new("/b/sub"), Path::new("/new/sub")).unwrap();
    store.sync_dir(Path::new("/new")).unwrap();
    assert_eq!(names(&store.crash(), Path::new("/")), set(&["a", "b"]));
    assert_eq!(names(&store.crash(), Path::new("/b/sub")), set(&["g"]));
}

#[test]
fn chance_never_touches_what_was_synced() {
    let store = MemStore::new();
    let file = store.open(Path::new("/f"), Open::create_new(0o600)).unwrap();
    let synced: Vec<u8> = (0..10_000u32).map(|n| n as u8 | 1).collect();
    write_full(&*file, &synced, 0).unwrap();
    file.sync_data().unwrap();
    store.sync_dir(Path::new("/")).unwrap();
    let appended = [0xee; 9000];
    write_full(&*file, &appended, synced.len() as u64).unwrap();
    let mut lengths = BTreeSet::new();
    let (mut whole, mut zeros, mut torn) = (0, 0, 0);
    for seed in 0..200 {
        let crashed = store.crash_with(seed);
        assert_eq!(tree(&crashed, Path::new("/")), tree(&store.crash_with(seed), Path::new("/")));
        let bytes = get(&crashed, Path::new("/f"));
        assert_eq!(bytes[..synced.len()], synced);
        let tail = &bytes[synced.len()..];
        assert!(tail.iter().all(|&byte| byte == 0 || byte == 0xee));
        lengths.insert(bytes.len());
        whole += usize::from(tail == appended);
        zeros += usize::from(tail.contains(&0));
        torn += usize::from(tail.windows(2).any(|pair| pair == [0xee, 0] || pair == [0, 0xee]));
    }
    assert!(lengths.contains(&10_000) && lengths.contains(&19_000) && lengths.len() > 30);
    assert!(whole > 0 && zeros > 20 && torn > 20, "{whole} {zeros} {torn}");
}

#[test]
fn chance_lets_overwritten_pages_be_old_new_zero_or_torn() {
    let store = MemStore::new();
    let file = store.open(Path::new("/f"), Open::create_new(0o600)).unwrap();
    write_full(&*file, &[1; 8192], 0).unwrap();
    file.sync_data().unwrap();
    store.sync_dir(Path::new("/")).unwrap();
    write_full(&*file, &[2; 4000], 100).unwrap();
    let mut seen = BTreeSet::new();
    for seed in 0..100 {
        let bytes = get(&store.crash_with(seed), Path::new("/f"));
        assert_eq!(bytes.len(), 8192);
        assert!(bytes[..100].iter().chain(&bytes[4100..]).all(|&byte| byte == 1));
        let kinds: BTreeSet<u8> = bytes[100..4096].iter().copied().collect();
        seen.insert(kinds);
    }
    let expected: BTreeSet<BTreeSet<u8>> = [&[0][..], &[1], &[2], &[1, 2]].iter().map(|kinds| kinds.iter().copied().collect()).collect();
    assert_eq!(seen, expected);
}

#[test]
fn chance_keeps_or_loses_each_change_of_a_name() {
    let store = MemStore::new();
    let root = Path::new("/");
    put(&store, Path::new("/old"), b"");
    put(&store, Path::new("/gone"), b"");
    store.sync_dir(root).unwrap();
    store.rename(Path::new("/old"), Path::new("/new")).unwrap();
    store.unlink(Path::new("/gone")).unwrap();
    store.mkdir(Path::new("/dir"), 0o700).unwrap();
    let seen: BTreeSet<BTreeSet<String>> = (0..200).map(|seed| names(&store.crash_with(seed), root)).collect();
    // Three changes; the rename as one, so there is always exactly one of its names.
    assert_eq!(seen.len(), 8);
    assert!(seen.iter().all(|names| names.contains("old") != names.contains("new")));
}

#[test]
fn chance_may_undo_a_truncation_but_not_half_of_it() {
    let store = MemStore::new();
    let file = store.open(Path::new("/f"), Open::create_new(0o600)).unwrap();
    write_full(&*file, &[1; 20_000], 0).unwrap();
    file.sync_data().unwrap();
    store.sync_dir(Path::new("/")).unwrap();
    file.set_len(5000).unwrap();
    let mut lengths = BTreeSet::new();
    for seed in 0..100 {
        let bytes = get(&store.crash_with(seed), Path::new("/f"));
        assert!(bytes.len() >= 5000 && bytes.iter().all(|&byte| byte == 1));
        lengths.insert(bytes.len());
    }
    assert!(lengths.contains(&5000) && lengths.contains(&20_000));
}
