//! Directories of small files by their paths: names, what stands beside a pack, moving files in and
//! out, and deaths and power cuts at each call of that.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use plfs::store::{
    self, Entry, Errno, Links, Open, OpenDir, PosixStore, Stat, Store, StoreFile, Time, write_full,
};
use plfs::{Access, Config, File, Layout, OpenOptions, PackPlace, Plfs, Repacked, Workload};
use plfs_format::mark::Mark;
use plfs_format::pack;
use plfs_format::superblock::FILE_BYTES;
use plfs_testkit::{Call, FaultStore, MemStore, Op, explored};

use crate::scratch::fresh_dir;

const DIR: &str = "/m/small";

/// A store with a small directory, and the shared memory of a node.
struct World {
    memory: MemStore,
    node: PathBuf,
}

impl World {
    fn new() -> World {
        World::of(MemStore::new())
    }

    /// Where storage travels.
    fn shared() -> World {
        World::of(MemStore::new().shared())
    }

    fn of(memory: MemStore) -> World {
        let world = World { memory, node: fresh_dir() };
        world.memory.mkdir(Path::new("/m"), 0o755).unwrap();
        world.memory.mkdir(Path::new("/m/.plfs"), 0o1777).unwrap();
        world.memory.mkdir(Path::new(DIR), 0o755).unwrap();
        let layout = Layout { workload: Some(Workload::Small), ..Layout::default() };
        world.plfs().set_directory_layout(Path::new(DIR), Some(&layout)).unwrap();
        world.memory.sync_dir(Path::new("/")).unwrap();
        world.memory.sync_dir(Path::new("/m")).unwrap();
        world
    }

    /// A process.
    fn plfs(&self) -> Plfs {
        self.on(Arc::new(self.memory.clone()))
    }

    fn on(&self, store: Arc<dyn Store>) -> Plfs {
        Plfs::new(store, Config { shared_memory: Some(self.node.clone()), ..Config::shared() })
    }

    /// An ordinary file.
    fn put(&self, name: &str, bytes: &[u8]) {
        let path = at(name);
        let file = self.memory.open(&path, Open::create_new(0o640)).unwrap();
        write_full(file.as_ref(), bytes, 0).unwrap();
        self.memory.set_times(&path, Some(time(5)), Some(time(7))).unwrap();
        file.sync_all().unwrap();
        self.memory.sync_dir(Path::new(DIR)).unwrap();
    }

    fn is_ordinary(&self, name: &str) -> bool {
        self.memory.stat(&at(name), Links::Stay).is_ok()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.node);
    }
}

fn time(sec: i64) -> Time {
    Time { sec, nsec: 9 }
}

fn at(name: &str) -> PathBuf {
    Path::new(DIR).join(name)
}

const WRITE: OpenOptions = OpenOptions {
    access: Access { read: true, write: true },
    create: true,
    exclusive: false,
    truncate: false,
    mode: 0o640,
    writers: plfs::Writers::Unknown,
};

fn create(plfs: &Plfs, name: &str) -> plfs::Result<File> {
    plfs.create_packed(&at(name), WRITE, (7, 8))
}

fn put(plfs: &Plfs, name: &str, bytes: &[u8]) {
    let file = create(plfs, name).unwrap();
    assert_eq!(file.write_at(bytes, 0).unwrap(), bytes.len());
    file.close().unwrap();
}

fn content(plfs: &Plfs, name: &str) -> plfs::Result<Vec<u8>> {
    let file = plfs.open(&at(name), OpenOptions::read())?.file();
    let mut bytes = vec![0; file.len()? as usize + 10];
    let n = file.read_at(&mut bytes, 0)?;
    bytes.truncate(n);
    Ok(bytes)
}

fn names(plfs: &Plfs) -> Vec<String> {
    let entries = plfs.list(Path::new(DIR)).unwrap();
    let mut names: Vec<String> =
        entries.into_iter().map(|entry| entry.name.into_string().unwrap()).collect();
    names.sort();
    names
}

/// All names, each with its bytes, mode and modification time.
fn all(plfs: &Plfs) -> BTreeMap<String, (Vec<u8>, u32, Time)> {
    let entry = |name: String| {
        let stat = plfs.stat(&at(&name), Links::Stay).unwrap().stat;
        let bytes = content(plfs, &name).unwrap();
        (name, (bytes, stat.mode, stat.mtime))
    };
    names(plfs).into_iter().map(entry).collect()
}

fn errno<T: std::fmt::Debug>(result: plfs::Result<T>) -> Errno {
    result.unwrap_err().errno()
}

fn go_on(_: &Repacked) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

#[test]
fn a_small_directory_has_its_files_in_a_pack() {
    let world = World::new();
    let (one, other) = (world.plfs(), world.plfs());
    put(&one, "a", b"first");
    put(&one, "b", b"second");
    assert!(!world.is_ordinary("a") && world.is_ordinary(".plfs-pack"));
    assert_eq!(names(&other), ["a", "b"]);
    assert_eq!(content(&other, "a").unwrap(), b"first");
    let stat = other.stat(&at("a"), Links::Stay).unwrap().stat;
    assert_eq!((stat.len, stat.mode, stat.uid, stat.gid, stat.nlink), (5, 0o640, 7, 8, 1));
    let (mode, owner) = (0o600, (Some(1), Some(2)));
    other.chmod(&at("a"), mode).unwrap();
    other.chown(&at("a"), owner.0, owner.1, Links::Stay).unwrap();
    other.set_times(&at("a"), None, Some(time(3))).unwrap();
    let stat = one.stat(&at("a"), Links::Stay).unwrap().stat;
    assert_eq!((stat.mode, stat.uid, stat.gid, stat.mtime), (mode, 1, 2, time(3)));
    one.rename(&at("a"), &at("b")).unwrap();
    assert_eq!(content(&other, "b").unwrap(), b"first");
    assert_eq!(errno(other.open(&at("a"), OpenOptions::read())), Errno::NOENT);
    one.truncate(&at("b"), 2).unwrap();
    assert_eq!(content(&other, "b").unwrap(), b"fi");
    assert_eq!(errno(one.rename(&at("b"), Path::new("/m/b"))), Errno::XDEV);
    let exclusive = OpenOptions { exclusive: true, ..WRITE };
    assert_eq!(errno(one.create_packed(&at("b"), exclusive, (0, 0))), Errno::EXIST);
    assert_eq!(errno(create(&one, ".plfs-pack")), Errno::PERM);
    assert_eq!(errno(create(&one, &"n".repeat(256))), Errno::NAMETOOLONG);
    assert_eq!(errno(one.rmdir(Path::new(DIR))), Errno::NOTEMPTY);
    one.unlink(&at("b")).unwrap();
    assert_eq!(errno(other.unlink(&at("b"))), Errno::NOENT);
    let container = one.pack(Path::new(DIR)).unwrap().unwrap().container().dir.clone();
    other.leave_all().unwrap();
    one.rmdir(Path::new(DIR)).unwrap();
    assert_eq!(world.memory.stat(Path::new(DIR), Links::Stay), Err(Errno::NOENT));
    assert_eq!(world.memory.stat(&container, Links::Stay), Err(Errno::NOENT));
}

/// A door that does not know of packs would make a file that the pack may hide.
#[test]
fn nobody_makes_a_container_in_a_small_directory() {
    let world = World::new();
    let plfs = world.plfs();
    let file = plfs.open(&at("f"), WRITE).unwrap().file();
    assert!(file.is_packed() && !world.is_ordinary("f"));
    file.close().unwrap();
    assert_eq!(errno(plfs.open(&at("f"), OpenOptions { exclusive: true, ..WRITE })), Errno::EXIST);
    let several = OpenOptions { writers: plfs::Writers::Several, ..WRITE };
    let error = plfs.open(&at("g"), several).unwrap_err();
    assert_eq!(error.errno(), Errno::OPNOTSUPP);
    assert!(error.to_string().contains("small files"), "{error}");
    assert_eq!(errno(plfs.create(&at("g"), WRITE)), Errno::OPNOTSUPP);
    assert!(!world.is_ordinary("g"));
}

#[test]
fn links_lead_to_files_of_a_pack() {
    let world = World::new();
    let plfs = world.plfs();
    put(&plfs, "f", b"small");
    world.memory.symlink(&at("f"), Path::new("/m/link")).unwrap();
    world.memory.symlink(Path::new("/m/link"), &at("again")).unwrap();
    let path = at("again");
    let file = plfs.open(&path, OpenOptions::read()).unwrap().file();
    assert!(file.is_packed() && file.len().unwrap() == 5);
    assert_eq!(plfs.stat(&path, Links::Follow).unwrap().stat.len, 5);
    assert_eq!(plfs.packed_behind(&path, Links::Follow).unwrap().unwrap().0, at("f"));
    assert_eq!(plfs.packed_behind(&path, Links::Stay).unwrap(), None);
    plfs.unlink(&at("f")).unwrap();
    assert_eq!(errno(plfs.open(&path, OpenOptions::read())), Errno::NOENT);
}

/// Who only looks asked the page of the node's log set whether there is something new. That goes
/// with the last process that writes, so what a short program had made was not seen for a second:
/// a shell did not find what its command had written.
#[test]
fn what_a_process_made_that_is_gone_is_seen_at_once() {
    let world = World::new();
    let looker = world.plfs();
    put(&looker, "before", b"1");
    looker.leave_all().unwrap();
    assert_eq!(names(&looker), ["before"]);
    for name in ["one", "two"] {
        let program = world.plfs();
        put(&program, name, b"new");
        program.exit().unwrap();
        drop(program);
        assert_eq!(content(&looker, name).unwrap(), b"new");
    }
    world.plfs().unlink(&at("one")).unwrap();
    assert_eq!(errno(looker.stat(&at("one"), Links::Stay)), Errno::NOENT);
}

/// A directory without a pack was believed to have none for a second, also one that gets it with
/// its first file: git did not find what its own command had written.
#[test]
fn the_first_file_of_a_directory_is_seen_at_once() {
    let world = World::new();
    let (looker, other) = (world.plfs(), world.plfs());
    assert_eq!(errno(looker.stat(&at("f"), Links::Stay)), Errno::NOENT);
    put(&other, "f", b"first");
    assert_eq!(content(&looker, "f").unwrap(), b"first");
}

/// A program hands a file of a pack over by its id: it may have lost its name.
#[test]
fn a_file_of_a_pack_is_found_by_its_id() {
    let world = World::new();
    let (plfs, other) = (world.plfs(), world.plfs());
    put(&plfs, "f", b"small");
    let file = plfs.open(&at("f"), OpenOptions::create()).unwrap().file();
    let place = place_of(&plfs, &file);
    let (id, name) = file.packed_name().unwrap();
    let inherit = |plfs: &Plfs, name: &[u8]| {
        plfs.open_inherited(&place, (id, name), Access { read: true, write: true })
    };
    plfs.rename(&at("f"), &at("g")).unwrap();
    plfs.unlink(&at("g")).unwrap();
    let inherited = inherit(&other, name).unwrap();
    inherited.write_at(b"S", 0).unwrap();
    inherited.close().unwrap();
    let again = plfs.open_again(&file, OpenOptions::read()).unwrap().unwrap();
    let mut bytes = [0; 9];
    assert_eq!((again.read_at(&mut bytes, 0).unwrap(), &bytes[..5]), (5, &b"Small"[..]));
    let unknown = plfs::pack::FileId { stamp: id.stamp + 1, ..id };
    let access = Access { read: true, write: false };
    let missing = plfs.open_inherited(&place, (unknown, b"f"), access);
    assert_eq!(errno(missing), Errno::STALE);
}

fn place_of(plfs: &Plfs, file: &File) -> PackPlace {
    let dir = file.packed_dir().unwrap();
    let container = plfs.pack(&dir).unwrap().unwrap().container().dir.to_path_buf();
    PackPlace { identity: file.packed_id().unwrap().0, dir, container }
}

/// And the directory may have another name by then.
#[test]
fn a_file_of_a_pack_is_found_where_its_directory_was_renamed() {
    let world = World::new();
    let (plfs, other, third) = (world.plfs(), world.plfs(), world.plfs());
    put(&plfs, "f", b"small");
    let file = plfs.open(&at("f"), OpenOptions::create()).unwrap().file();
    let place = place_of(&plfs, &file);
    let (id, name) = file.packed_name().unwrap();
    let read = Access { read: true, write: false };
    plfs.rename(Path::new(DIR), Path::new("/m/moved")).unwrap();
    let inherited = other.open_inherited(&place, (id, name), read).unwrap();
    let mut bytes = [0; 9];
    assert_eq!((inherited.read_at(&mut bytes, 0).unwrap(), &bytes[..5]), (5, &b"small"[..]));
    let nowhere = PackPlace { container: PathBuf::new(), ..place };
    assert_eq!(errno(third.open_inherited(&nowhere, (id, name), read)), Errno::NOENT);
}

#[test]
fn ordinary_files_stay_beside_a_pack() {
    let world = World::new();
    let plfs = world.plfs();
    world.put("plain", b"ordinary");
    world.memory.mkdir(&at("sub"), 0o755).unwrap();
    put(&plfs, "packed", b"small");
    assert_eq!(names(&plfs), ["packed", "plain", "sub"]);
    assert_eq!(content(&plfs, "plain").unwrap(), b"ordinary");
    assert_eq!(errno(create(&plfs, "plain")), Errno::EXIST);
    assert_eq!(errno(plfs.rename(&at("packed"), &at("sub"))), Errno::ISDIR);
    assert_eq!(errno(plfs.rename(&at("sub"), &at("packed"))), Errno::NOTDIR);
    // Somebody who does not know of the pack.
    world.put("packed", b"hidden");
    assert_eq!(names(&plfs), ["packed", "plain", "sub"]);
    assert_eq!(content(&plfs, "packed").unwrap(), b"small");
    plfs.unlink(&at("packed")).unwrap();
    assert_eq!(names(&plfs), ["plain", "sub"]);
    put(&plfs, "packed", b"small");
    plfs.rename(&at("packed"), &at("plain")).unwrap();
    assert_eq!(content(&plfs, "plain").unwrap(), b"small");
    assert!(!world.is_ordinary("plain"));
    world.put("new", b"ordinary");
    plfs.rename(&at("new"), &at("plain")).unwrap();
    assert_eq!(content(&plfs, "plain").unwrap(), b"ordinary");
    assert_eq!(names(&plfs), ["plain", "sub"]);
}

/// On CephFS the two looks of each creation, for the pack's name and for an ordinary one, cost more
/// than the creation, and 17 times less than a plain file was out of reach.
#[test]
fn where_storage_travels_a_creation_costs_no_look() {
    let world = World::shared();
    let store = Arc::new(FaultStore::new(Arc::new(world.memory.clone())));
    let plfs = world.on(store.clone());
    put(&plfs, "first", b"1");
    let begin = Instant::now();
    let before = store.calls_of(Op::Stat) + store.calls_of(Op::List);
    for i in 0..1000 {
        put(&plfs, &format!("f{i}"), b"small");
    }
    let looks = store.calls_of(Op::Stat) + store.calls_of(Op::List) - before;
    // Its name is believed to be there for a tenth of a second.
    let tenths = 2 + begin.elapsed().as_millis() as u64 / 100;
    assert!(looks <= 10 * tenths, "{looks} looks in {tenths} tenths of a second");
    assert_eq!(names(&plfs).len(), 1001);
}

#[test]
fn where_storage_travels_names_are_read_without_looks_and_removed_with_one() {
    let world = World::shared();
    let writer = world.plfs();
    for i in 0..1000 {
        put(&writer, &format!("f{i}"), b"small");
    }
    writer.exit().unwrap();
    let store = Arc::new(FaultStore::new(Arc::new(world.memory.clone())));
    let plfs = world.on(store.clone());
    let looks = || store.calls_of(Op::Stat) + store.calls_of(Op::List);
    let costs = |each: u64, what: &str, act: &dyn Fn(&str)| {
        act("f0");
        let (begin, before) = (Instant::now(), looks());
        for i in 1..1000 {
            act(&format!("f{i}"));
        }
        let tenths = 2 + begin.elapsed().as_millis() as u64 / 100;
        let looks = looks() - before;
        let most = each * 999 + 10 * tenths;
        assert!(looks <= most, "{what}: {looks} looks in {tenths} tenths of a second");
    };
    costs(0, "stat", &|name| assert_eq!(plfs.packed_stat(&at(name)).unwrap().unwrap().size, 5));
    costs(0, "open", &|name| assert_eq!(content(&plfs, name).unwrap(), b"small"));
    costs(1, "unlink", &|name| plfs.unlink(&at(name)).unwrap());
    // What processes of the node say is heard at once.
    let other = world.plfs();
    put(&other, "late", b"small");
    let reader = world.plfs();
    for _ in 0..100 {
        assert_eq!(content(&reader, "late").unwrap(), b"small");
        other.unlink(&at("late")).unwrap();
        assert_eq!(errno(reader.stat(&at("late"), Links::Stay)), Errno::NOENT);
        put(&other, "late", b"small");
    }
    other.unlink(&at("late")).unwrap();
    other.exit().unwrap();
    plfs.exit().unwrap();
    assert!(reader.packed_stat(&at("late")).unwrap().is_none());
    plfs.remove_pack(Path::new(DIR)).unwrap();
    assert!(reader.pack(Path::new(DIR)).unwrap().is_none());
    assert!(reader.packed_stat(&at("late")).unwrap().is_none());
}

#[test]
fn what_was_seen_of_a_directory_is_believed_for_a_moment_only() {
    let world = World::shared();
    let plfs = world.plfs();
    for i in 0..2 {
        put(&plfs, &format!("a{i}"), b"small");
        world.put(&format!("late{i}"), b"ordinary");
        std::thread::sleep(Duration::from_millis(1010));
        assert_eq!(errno(create(&plfs, &format!("late{i}"))), Errno::EXIST);
    }
    // Its own rename is known at once.
    put(&plfs, "a", b"small");
    let moved = Path::new("/m/moved");
    plfs.rename(Path::new(DIR), moved).unwrap();
    assert!(plfs.pack(Path::new(DIR)).unwrap().is_none());
    assert!(plfs.pack(moved).unwrap().is_some());
}

/// Who moves a file out makes the ordinary name first; who hears that the pack has it no more, and
/// believes what he saw of the directory before, would make a second one that hides it.
#[test]
fn who_hears_that_a_file_has_moved_out_looks_for_it() {
    let world = World::shared();
    let (plfs, other) = (world.plfs(), world.plfs());
    for i in 0..10 {
        let name = format!("large{i}");
        let file = create(&other, &name).unwrap();
        file.write_at(&vec![1; 3 << 19], 0).unwrap();
        put(&plfs, &format!("a{i}"), b"small");
        assert!(other.move_out(&file).unwrap());
        assert_eq!(errno(create(&plfs, &name)), Errno::EXIST);
        file.close().unwrap();
        assert_eq!(content(&plfs, &name).unwrap().len(), 3 << 19);
    }
}

/// For 0.1 s a process that writes a pack believed that its directory has the old name, and cut,
/// wrote and removed files there that nobody had named any more: another directory has the name.
#[test]
fn who_changes_a_file_by_a_path_changes_none_of_a_directory_that_had_it() {
    let world = World::shared();
    let (plfs, other) = (world.plfs(), world.plfs());
    let moved = Path::new("/m/moved");
    let old = || {
        let names = ["a", "b", "c", "d", "e"];
        names.iter().for_each(|name| put(&plfs, name, b"old"));
        world.memory.rename(Path::new(DIR), moved).unwrap();
        world.memory.mkdir(Path::new(DIR), 0o755).unwrap();
        let layout = Layout { workload: Some(Workload::Small), ..Layout::default() };
        other.set_directory_layout(Path::new(DIR), Some(&layout)).unwrap();
        names
    };
    let names = old();
    let cut = OpenOptions { truncate: true, ..WRITE };
    plfs.open(&at("a"), cut).unwrap().file().close().unwrap();
    let file = plfs.open(&at("b"), WRITE).unwrap().file();
    file.write_at(b"new", 0).unwrap();
    file.close().unwrap();
    assert_eq!(errno(plfs.unlink(&at("c"))), Errno::NOENT);
    assert_eq!(errno(plfs.rename(&at("d"), &at("c"))), Errno::NOENT);
    assert_eq!(errno(plfs.chmod(&at("e"), 0o777)), Errno::NOENT);
    put(&plfs, "e", b"new");
    plfs.exit().unwrap();
    let reader = world.plfs();
    for name in names {
        let file = reader.open(&moved.join(name), OpenOptions::read()).unwrap().file();
        let mut bytes = [0; 9];
        assert_eq!((file.read_at(&mut bytes, 0).unwrap(), &bytes[..3]), (3, &b"old"[..]), "{name}");
        assert_eq!(file.stat().unwrap().mode, 0o640);
    }
    assert_eq!(content(&reader, "b").unwrap(), b"new");
}

/// Real files where storage travels. Counts who asks for the name of a pack.
#[derive(Debug)]
struct Far {
    inner: PosixStore,
    asked: AtomicUsize,
}

impl Store for Far {
    fn open(&self, path: &Path, how: Open) -> store::Result<Arc<dyn StoreFile>> {
        self.inner.open(path, how)
    }
    fn stat(&self, path: &Path, links: Links) -> store::Result<Stat> {
        let is_of_pack = path.ends_with(plfs_format::pack::NAME);
        self.asked.fetch_add(usize::from(is_of_pack), Ordering::Relaxed);
        self.inner.stat(path, links)
    }
    fn list(&self, path: &Path) -> store::Result<Vec<Entry>> {
        self.inner.list(path)
    }
    plfs_testkit::delegate_names!(inner);
    fn is_local(&self, _path: &Path) -> bool {
        false
    }
    fn boot(&self, path: &Path) -> Option<u64> {
        self.inner.boot(path)
    }
}

/// `rm -r` has the directory open. Each removal in it asked the storage whether it has the pack
/// still, which was all that it cost; and must not go to another directory that has the name.
#[test]
fn a_removal_in_an_open_directory_asks_rarely_and_goes_to_that_one() {
    let node = fresh_dir();
    let (dir, moved) = (node.join("m/small"), node.join("m/moved"));
    std::fs::create_dir_all(node.join("m/.plfs")).unwrap();
    let far = Arc::new(Far { inner: PosixStore::new(), asked: AtomicUsize::new(0) });
    let process = || {
        let config = Config { shared_memory: Some(node.clone()), ..Config::shared() };
        Plfs::new(far.clone(), config)
    };
    let (plfs, other) = (process(), process());
    let layout = Layout { workload: Some(Workload::Small), ..Layout::default() };
    let make = |plfs: &Plfs, names: &[String]| {
        std::fs::create_dir(&dir).unwrap();
        plfs.set_directory_layout(&dir, Some(&layout)).unwrap();
        let create = |name| plfs.create_packed(&dir.join(name), WRITE, (0, 0)).unwrap();
        names.iter().for_each(|name| create(name).close().unwrap());
        let fd = std::fs::File::open(&dir).unwrap();
        (OpenDir::of(fd.as_fd()), fd)
    };
    let all: Vec<String> = (0..100).map(|i| format!("f{i}")).collect();
    let (old, _fd) = make(&plfs, &all);
    plfs.unlink_at(Some(old), &dir.join("f0")).unwrap();
    let (before, begun) = (far.asked.load(Ordering::Relaxed), Instant::now());
    all[1..50].iter().for_each(|name| plfs.unlink_at(Some(old), &dir.join(name)).unwrap());
    let asked = far.asked.load(Ordering::Relaxed) - before;
    let most = 5 * (1 + begun.elapsed().as_millis() as usize / 100);
    assert!(asked <= most, "{asked} looks for 49 files, {most} are due");
    // Another process moves the directory away, and makes another one.
    std::fs::rename(&dir, &moved).unwrap();
    let (new, _fd) = make(&other, &all);
    other.exit().unwrap();
    let is_there =
        |dir: &Path, name: &str| process().packed_stat(&dir.join(name)).unwrap().is_some();
    plfs.unlink_at(Some(old), &dir.join("f50")).unwrap();
    plfs.commit_all().unwrap();
    assert_eq!((is_there(&dir, "f50"), is_there(&moved, "f50")), (true, false));
    plfs.unlink_at(Some(new), &dir.join("f51")).unwrap();
    plfs.commit_all().unwrap();
    assert_eq!((is_there(&dir, "f51"), is_there(&moved, "f51")), (false, true));
    plfs.exit().unwrap();
    std::fs::remove_dir_all(node).unwrap();
}

/// A process that left its node's log set and came again compared what was counted in a page that
/// was gone with what is counted in the new one: it saw no file that another one had made
/// meanwhile, and hid it.
#[test]
fn what_was_made_while_a_process_had_left_is_not_hidden() {
    let world = World::shared();
    let (plfs, other) = (world.plfs(), world.plfs());
    for name in ["a", "b"] {
        put(&plfs, name, b"small");
    }
    plfs.leave_all().unwrap();
    world.put("f", b"ordinary");
    other.made_beside(&at("f")).unwrap();
    other.exit().unwrap();
    assert_eq!(errno(create(&plfs, "f")), Errno::EXIST);
    assert_eq!(content(&plfs, "f").unwrap(), b"ordinary");
}

/// A stat that failed counted as "there is no pack", for a second.
#[test]
fn who_cannot_look_for_a_pack_is_told() {
    let world = World::new();
    put(&world.plfs(), "f", b"small");
    world.plfs().set_directory_layout(Path::new(DIR), None).unwrap();
    let store = FaultStore::new(Arc::new(world.memory.clone()));
    let plfs = world.on(Arc::new(store.clone()));
    store.fail_matching(plfs_format::pack::NAME, Op::Stat, Errno::IO);
    assert_eq!(errno(plfs.stat(&at("f"), Links::Stay)), Errno::IO);
    assert_eq!(errno(plfs.open(&at("f"), WRITE)), Errno::IO);
    store.reset();
    assert_eq!(content(&plfs, "f").unwrap(), b"small");
    assert!(!world.is_ordinary("f"));
}

#[test]
fn a_pack_follows_its_directory() {
    let world = World::new();
    let plfs = world.plfs();
    put(&plfs, "f", b"there");
    let moved = Path::new("/m/moved");
    plfs.rename(Path::new(DIR), moved).unwrap();
    let path = moved.join("f");
    assert_eq!(plfs.stat(&path, Links::Stay).unwrap().stat.len, 5);
    // A new directory in its place has no pack.
    world.memory.mkdir(Path::new(DIR), 0o755).unwrap();
    assert_eq!(names(&plfs), [""; 0]);
    assert_eq!(errno(plfs.stat(&at("f"), Links::Stay)), Errno::NOENT);
    plfs.unlink(&path).unwrap();
    assert_eq!(errno(plfs.stat(&path, Links::Stay)), Errno::NOENT);
}

/// A temporary directory is removed with a file in it that is open: that could not be read or
/// written any more (ENOENT). Its last close takes the pack away.
#[test]
fn an_open_file_outlives_its_directory() {
    let world = World::new();
    let plfs = world.plfs();
    let store: Arc<dyn Store> = Arc::new(world.memory.clone());
    let containers =
        || plfs::check_tree(&store, Path::new("/m"), &[PathBuf::from("/m")], |_| {}).unwrap().len();
    for is_removed_first in [true, false] {
        let file = create(&plfs, "f").unwrap();
        file.write_at(b"one", 0).unwrap();
        if is_removed_first {
            plfs.unlink(&at("f")).unwrap();
            plfs.rmdir(Path::new(DIR)).unwrap();
        } else {
            plfs.remove_packed(Path::new(DIR)).unwrap();
        }
        assert_eq!(errno(plfs.stat(&at("f"), Links::Stay)), Errno::NOENT);
        file.write_at(b"two", 3).unwrap();
        file.set_len(5).unwrap();
        file.sync().unwrap();
        let mut bytes = [0; 9];
        assert_eq!(file.read_at(&mut bytes, 0).unwrap(), 5);
        assert_eq!(&bytes[..5], b"onetw");
        assert_eq!(containers(), 1);
        file.close().unwrap();
        assert_eq!(containers(), 0);
        if is_removed_first {
            world.memory.mkdir(Path::new(DIR), 0o755).unwrap();
            let layout = Layout { workload: Some(Workload::Small), ..Layout::default() };
            plfs.set_directory_layout(Path::new(DIR), Some(&layout)).unwrap();
        }
    }
}

/// A repair moved the pack of a directory that was removed to lost+found, while who had removed it
/// went on with a file of it.
#[test]
fn a_repair_leaves_the_pack_of_an_open_file() {
    for world in [World::new(), World::shared()] {
        let (plfs, other) = (world.plfs(), world.plfs());
        let file = create(&plfs, "f").unwrap();
        file.write_at(b"one", 0).unwrap();
        plfs.remove_packed(Path::new(DIR)).unwrap();
        let store: Arc<dyn Store> = Arc::new(world.memory.clone());
        let repair = || {
            let mounts = [PathBuf::from("/m")];
            let reports = plfs::check_tree(&store, Path::new("/m"), &mounts, |_| {}).unwrap();
            let done =
                reports.iter().map(|it| plfs::repair(&store, other.config(), it, 0).unwrap());
            done.flatten().count()
        };
        assert_eq!(repair(), 0);
        file.write_at(b"two", 3).unwrap();
        file.sync().unwrap();
        let mut bytes = [0; 9];
        assert_eq!(file.read_at(&mut bytes, 0).unwrap(), 6);
        assert_eq!(&bytes[..6], b"onetwo");
        file.close().unwrap();
        assert_eq!(repair(), 0, "the last close took it away");
    }
}

/// Of the name of a pack, which has all files of its directory, nobody is told who removes or
/// renames files: it went, and the files with it.
#[test]
fn the_name_of_a_pack_is_no_file() {
    let world = World::new();
    let plfs = world.plfs();
    put(&plfs, "f", b"text");
    assert_eq!(errno(plfs.unlink(&at(".plfs-pack"))), Errno::NOENT);
    assert_eq!(errno(plfs.rename(&at(".plfs-pack"), &at("g"))), Errno::NOENT);
    assert_eq!(errno(plfs.rename(&at("f"), &at(".plfs-pack"))), Errno::PERM);
    assert_eq!(content(&plfs, "f").unwrap(), b"text");
}

/// A check said of a pack without a name that a newer PLFS is needed.
#[test]
fn a_check_says_that_a_pack_has_lost_its_name() {
    let world = World::new();
    let plfs = world.plfs();
    put(&plfs, "f", b"text");
    plfs.leave_all().unwrap();
    world.memory.unlink(&at(".plfs-pack")).unwrap();
    let store: Arc<dyn Store> = Arc::new(world.memory.clone());
    let reports =
        plfs::check_tree(&store, Path::new("/m"), &[PathBuf::from("/m")], |_| {}).unwrap();
    let said: Vec<String> =
        reports.iter().flat_map(|one| one.findings.iter().map(|f| f.what.clone())).collect();
    assert!(said.iter().any(|what| what.contains("its name is gone")), "{said:?}");
    assert!(!said.iter().any(|what| what.contains("newer")), "{said:?}");
}

#[test]
fn a_file_that_outgrows_its_pack_moves_out_unnoticed() {
    let world = World::new();
    let plfs = world.plfs();
    let file = create(&plfs, "f").unwrap();
    let bytes: Vec<u8> = (0..3 << 19).map(|n| (n / 7) as u8).collect();
    file.write_at(&bytes[..1 << 20], 0).unwrap();
    assert!(!plfs.move_out(&file).unwrap());
    file.write_at(&bytes[1 << 20..], 1 << 20).unwrap();
    file.chmod(0o604).unwrap();
    plfs.rename(&at("f"), &at("g")).unwrap();
    assert!(plfs.move_out(&file).unwrap());
    assert!(world.is_ordinary("g"));
    let stat = plfs.stat(&at("g"), Links::Stay).unwrap().stat;
    assert_eq!((stat.len, stat.mode, stat.uid, stat.gid), (bytes.len() as u64, 0o604, 7, 8));
    assert_eq!(names(&plfs), ["g"]);
    // The handle goes on.
    file.write_at(b"more", bytes.len() as u64).unwrap();
    let mut found = vec![0; bytes.len() + 10];
    assert_eq!(file.read_at(&mut found, 0).unwrap(), bytes.len() + 4);
    assert_eq!(found[..bytes.len()], bytes);
    file.close().unwrap();
    assert_eq!(content(&world.plfs(), "g").unwrap()[bytes.len()..], *b"more");
    // One of which most is a hole stays where it is.
    let sparse = create(&plfs, "sparse").unwrap();
    sparse.write_at(b"end", i64::MAX as u64 - 3).unwrap();
    assert!(!plfs.move_out(&sparse).unwrap());
    // So does one without a name.
    let file = create(&plfs, "gone").unwrap();
    file.write_at(&bytes, 0).unwrap();
    plfs.unlink(&at("gone")).unwrap();
    assert!(!plfs.move_out(&file).unwrap());
    assert_eq!(file.read_at(&mut found, 0).unwrap(), bytes.len());
}

/// A listing took the ordinary names, and then those of the pack: a file that moved out in between
/// was in neither.
#[test]
fn a_listing_has_a_file_that_moves_out_at_any_call_of_it() {
    let mut calls: Vec<Call> = Vec::new();
    // First without a disturbance, to know the calls.
    for n in 0_usize.. {
        let world = World::new();
        let mover = world.plfs();
        put(&mover, "other", b"");
        put(&mover, "f", &vec![1; (1 << 20) + 1]);
        let file = mover.open(&at("f"), OpenOptions::create()).unwrap().file();
        file.sync().unwrap();
        let store = FaultStore::new(Arc::new(world.memory.clone()));
        let node = fresh_dir();
        let shared_memory = Some(node.clone());
        let lister =
            Plfs::new(Arc::new(store.clone()), Config { shared_memory, ..Config::shared() });
        if let Some(Call { op, path, .. }) = n.checked_sub(1).map(|n| calls[n].clone()) {
            let path = path.to_str().unwrap();
            store.before(path, op, move || assert!(mover.move_out(&file).unwrap()));
        }
        assert_eq!(names(&lister), ["f", "other"], "before call {n} of {calls:?}");
        std::fs::remove_dir_all(node).unwrap();
        if n == 0 {
            calls = store.log();
        }
        if n == calls.len() {
            break;
        }
    }
    assert!(calls.len() > 5, "{calls:?}");
}

/// Unpacks the directory, whose maker has closed all and may be at its end still.
fn unpacked_soon(plfs: &Plfs) -> plfs::Result<()> {
    for _ in 0..1000 {
        match plfs.unpack_dir(Path::new(DIR), Duration::ZERO, go_on) {
            Err(error) if error.errno() == Errno::BUSY => {}
            other => return other.map(drop),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("its maker does not end");
}

/// A directory is unpacked while somebody lists it, to the end at any call of the listing: who had
/// found the pack and came back to it late got an error instead of names.
#[test]
fn a_listing_has_all_names_of_a_directory_that_is_unpacked_at_any_call_of_it() {
    // Whether the lister knows the pack before.
    for is_known in [false, true] {
        let mut calls = 1;
        for n in 1.. {
            let world = World::new();
            let maker = world.plfs();
            for name in ["a", "b", "c"] {
                put(&maker, name, name.as_bytes());
            }
            drop(maker);
            let store = FaultStore::new(Arc::new(world.memory.clone()));
            let node = fresh_dir();
            let shared_memory = Some(node.clone());
            let lister =
                Plfs::new(Arc::new(store.clone()), Config { shared_memory, ..Config::shared() });
            if is_known {
                assert_eq!(names(&lister), ["a", "b", "c"]);
            }
            store.reset();
            let unpacker = world.plfs();
            store.before_call(n, move || {
                unpacked_soon(&unpacker).unwrap();
            });
            let found = lister.list(Path::new(DIR));
            let log = store.log();
            let found =
                found.unwrap_or_else(|error| panic!("{is_known}, call {n}: {error}: {log:?}"));
            let found: BTreeSet<_> = found.into_iter().map(|entry| entry.name).collect();
            assert_eq!(
                found.len(),
                3,
                "{is_known}, unpacked before call {n} of {log:?}: {found:?}"
            );
            std::fs::remove_dir_all(node).unwrap();
            calls = n;
            if n > log.len() as u64 {
                break;
            }
        }
        assert!(calls > 2, "{calls} calls");
    }
}

/// An unpacking was killed, and another node packs the directory. A program had renamed a file of
/// the pack a moment before, and made an ordinary one with the old name: that was taken for a copy
/// of the file that it hides, and the file was removed, by its new name.
#[test]
fn what_another_node_has_just_renamed_stays_when_files_move() {
    let world = World::new();
    let other = World { memory: world.memory.clone(), node: fresh_dir() };
    for i in 0..20 {
        let (old, new, bytes) = (format!("old{i}"), format!("new{i}"), format!("bytes {i}"));
        put(&world.plfs(), &old, bytes.as_bytes());
        let writer = world.plfs();
        // What an unpacking has done before its first file moves.
        let (packer, name) = (other.plfs(), at(pack::NAME));
        let layout = Layout { workload: Some(Workload::Auto), ..Layout::default() };
        packer.set_directory_layout(Path::new(DIR), Some(&layout)).unwrap();
        let mode = world.memory.stat(&name, Links::Stay).unwrap().mode;
        world.memory.chmod(&name, mode | pack::CHANGING).unwrap();
        writer.rename(&at(&old), &at(&new)).unwrap();
        world.put(&old, b"ordinary");
        packer.pack_dir(Path::new(DIR), Duration::ZERO, go_on).unwrap();
        assert_eq!(content(&world.plfs(), &new).unwrap(), bytes.as_bytes());
        assert_eq!(content(&world.plfs(), &old).unwrap(), b"ordinary");
    }
}

/// Runs `act` beside another thread, for a moment: it may have to wait for the one that calls.
fn begin(act: impl FnOnce() + Send + 'static) -> std::thread::JoinHandle<()> {
    let (done, is_done) = std::sync::mpsc::channel();
    let beside = std::thread::spawn(move || {
        act();
        let _ = done.send(());
    });
    let _ = is_done.recv_timeout(Duration::from_millis(20));
    beside
}

type Act = fn(&Plfs) -> plfs::Result<Option<Vec<u8>>>;

/// Changes the file "b", which has the byte b, beside "a". Gives what it has from then on.
const ACTS: [(&str, Act); 5] = [
    ("truncate", |plfs| write_b(plfs, OpenOptions { truncate: true, ..WRITE }, b"new")),
    ("append", |plfs| write_b(plfs, WRITE, b"bnew")),
    ("unlink", |plfs| plfs.unlink(&at("b")).map(|()| None)),
    ("rename", |plfs| plfs.rename(&at("a"), &at("b")).map(|()| Some(b"a".to_vec()))),
    ("create", |plfs| {
        let there = write_b(plfs, OpenOptions { exclusive: true, ..WRITE }, b"new");
        assert_eq!(errno(there), Errno::EXIST);
        Ok(Some(b"b".to_vec()))
    }),
];

/// Opens "b" and writes what is missing of `bytes`.
fn write_b(plfs: &Plfs, options: OpenOptions, bytes: &[u8]) -> plfs::Result<Option<Vec<u8>>> {
    let file = plfs.open(&at("b"), options)?.file();
    let from = file.len()?;
    let missing = &bytes[from as usize..];
    assert_eq!(file.write_at(missing, from)?, missing.len());
    file.close().map(|()| Some(bytes.to_vec()))
}

/// Unpacks the directory, unless somebody writes a file of it at the moment.
fn unpack(world: &World) -> Box<dyn FnOnce() + Send> {
    let unpacker = world.plfs();
    Box::new(move || {
        let done = unpacker.unpack_dir(Path::new(DIR), Duration::ZERO, go_on);
        assert!(done.is_ok() || errno(done) == Errno::BUSY);
    })
}

/// Runs each act with `meanwhile` beside it, begun at each of its calls in turn: what the process
/// was told holds, and of failures that the file moves, or has moved away below it.
fn acts_beside(
    fill: impl Fn(&World),
    meanwhile: impl Fn(&World) -> Box<dyn FnOnce() + Send>,
    is_known: bool,
) {
    let mut tried = 0;
    for (act, does) in ACTS {
        for n in 1.. {
            let world = World::new();
            fill(&world);
            let store = FaultStore::new(Arc::new(world.memory.clone()));
            let plfs = world.on(Arc::new(store.clone()));
            if is_known {
                assert_eq!(content(&plfs, "b").unwrap(), b"b");
            }
            store.reset();
            let (begun, others) = std::sync::mpsc::channel();
            let other = meanwhile(&world);
            store.before_call(n, move || begun.send(begin(other)).unwrap());
            let said = does(&plfs);
            drop(plfs);
            let log = store.log();
            let Ok(other) = others.try_recv() else { break };
            other.join().unwrap();
            let what = || format!("{act}, known {is_known}, at call {n} of {log:?}");
            let found = match content(&world.plfs(), "b") {
                Err(error) if error.errno() == Errno::NOENT => None,
                found => Some(found.unwrap_or_else(|error| panic!("{error}: {}", what()))),
            };
            match said {
                Ok(now) => assert_eq!(found, now, "{}", what()),
                Err(error) => {
                    let is_moving = matches!(error.errno(), Errno::STALE | Errno::BUSY);
                    assert!(is_moving, "{error}: {}", what());
                }
            }
            tried += 1;
        }
    }
    assert!(tried > 30, "{tried}");
}

/// A directory is unpacked to the end while a process comes to a file of it, which takes longer
/// than `plfs unpack` waits for it: it was told ENOENT of a file that was there all the time.
#[test]
fn who_comes_to_a_file_while_its_pack_is_removed_goes_on_with_the_ordinary_one() {
    let fill = |world: &World| {
        let maker = world.plfs();
        ["a", "b", "c"].iter().for_each(|name| put(&maker, name, name.as_bytes()));
    };
    for is_known in [false, true] {
        acts_beside(fill, unpack, is_known);
    }
}

/// `plfs unpack` was killed, so who opens a file to write it moves it out. `plfs pack` or `plfs
/// unpack` begins to go on at any call of that, and took the copy for one that the killed one had
/// left: he was told ENOENT of a file that was there.
#[test]
fn a_mover_keeps_his_copy_when_another_one_clears_up_what_a_killed_one_left() {
    let fill = |world: &World| {
        let maker = world.plfs();
        ["a", "b", "c"].iter().for_each(|name| put(&maker, name, name.as_bytes()));
        drop(maker);
        let store = FaultStore::new(Arc::new(world.memory.clone()));
        store.fail_matching(&format!("{DIR}/.plfs-pack.out/a"), Op::Open, Errno::IO);
        let killed = world.on(Arc::new(store.clone()));
        assert_eq!(errno(unpacked_soon(&killed)), Errno::IO);
    };
    acts_beside(fill, unpack, true);
}

/// A file that is as long as the name of a pack, of a mover that was killed, was kept for one: its
/// directory could not be removed any more.
#[test]
fn a_copy_as_long_as_the_name_of_a_pack_is_none() {
    let world = World::new();
    let plfs = world.plfs();
    put(&plfs, "f", b"f");
    world.put(".plfs-pack.0123456789abcdef", &[0; FILE_BYTES]);
    plfs.unlink(&at("f")).unwrap();
    plfs.rmdir(Path::new(DIR)).unwrap();
}

/// Who had a file open that another process moved out went on with what is removed, and heard of
/// nothing.
#[test]
fn who_writes_what_another_process_moves_out_is_told() {
    let world = World::new();
    let (plfs, mover) = (world.plfs(), world.plfs());
    put(&plfs, "f", &vec![1; (1 << 20) + 1]);
    let open = |plfs: &Plfs| plfs.open(&at("f"), OpenOptions::create()).unwrap().file();
    let (file, same, reader) = (open(&plfs), open(&plfs), open(&plfs));
    let moved = open(&mover);
    moved.write_at(b"moved", 0).unwrap();
    assert!(mover.move_out(&moved).unwrap());
    moved.close().unwrap();
    for file in [&file, &same] {
        file.write_at(b"lost", 0).unwrap();
    }
    assert_eq!(errno(file.sync()), Errno::STALE);
    assert_eq!(errno(file.close()), Errno::STALE);
    assert_eq!(errno(same.close()), Errno::STALE);
    reader.close().unwrap();
    assert!(content(&plfs, "f").unwrap().starts_with(b"moved"));
    // What this process removes or replaces itself is as ever.
    let (removed, replaced) =
        (create(&plfs, "removed").unwrap(), create(&plfs, "replaced").unwrap());
    plfs.unlink(&at("removed")).unwrap();
    world.put("other", b"ordinary");
    plfs.rename(&at("other"), &at("replaced")).unwrap();
    world.put("removed", b"ordinary");
    for file in [removed, replaced] {
        file.write_at(b"nobody wants it", 0).unwrap();
        file.close().unwrap();
    }
}

#[test]
fn a_death_at_each_call_of_moving_out_loses_nothing() {
    let bytes: Vec<u8> = (0..(1 << 20) + 5).map(|n| (n / 7) as u8).collect();
    let mut calls = u64::MAX;
    let mut kill = 0;
    while kill <= calls {
        let world = World::new();
        let fault = FaultStore::new(Arc::new(world.memory.clone()));
        let plfs = world.on(Arc::new(fault.clone()));
        let file = create(&plfs, "f").unwrap();
        file.write_at(&bytes, 0).unwrap();
        file.sync().unwrap();
        fault.reset();
        if kill > 0 {
            fault.kill_at(kill);
        }
        let _ = plfs.move_out(&file);
        if kill == 0 {
            calls = fault.calls();
        }
        for (how, memory) in [("death", world.memory.clone()), ("cut", world.memory.crash())] {
            let left = World { memory, node: fresh_dir() };
            let plfs = left.plfs();
            assert_eq!(names(&plfs), ["f"], "{how}, call {kill} of {calls}");
            assert!(content(&plfs, "f").unwrap() == bytes, "{how}, call {kill} of {calls}");
            plfs.unlink(&at("f")).unwrap();
            assert_eq!(names(&plfs), [""; 0], "{how}, call {kill} of {calls}");
        }
        kill += 1;
    }
    explored(calls, "crash points of a file that moves out of its pack");
}

/// A process that had listed the directory before removed a file from the pack only: the copy that
/// a killed mover had made came to light.
#[test]
fn a_copy_of_a_killed_mover_goes_with_the_file() {
    let bytes = vec![1; (1 << 20) + 5];
    let mut calls = u64::MAX;
    let mut kill = 0;
    while kill <= calls {
        let world = World::shared();
        let fault = FaultStore::new(Arc::new(world.memory.clone()));
        let (mover, plfs) = (world.on(Arc::new(fault.clone())), world.plfs());
        let file = create(&mover, "f").unwrap();
        file.write_at(&bytes, 0).unwrap();
        file.sync().unwrap();
        for name in ["a", "b"] {
            put(&plfs, name, b"small");
            plfs.unlink(&at(name)).unwrap();
        }
        fault.reset();
        if kill > 0 {
            fault.kill_at(kill);
        }
        let _ = mover.move_out(&file);
        if kill == 0 {
            calls = fault.calls();
        }
        plfs.unlink(&at("f")).unwrap();
        assert_eq!(names(&plfs), [""; 0], "call {kill} of {calls}");
        kill += 1;
    }
}

/// A call that failed behind the removal from the pack made the copy go as well: the file was
/// nowhere.
#[test]
fn a_call_of_moving_out_that_fails_loses_nothing() {
    let bytes: Vec<u8> = (0..(1 << 20) + 5).map(|n| (n / 7) as u8).collect();
    let mut calls = u64::MAX;
    let mut failing = 0;
    while failing <= calls {
        let world = World::new();
        let fault = FaultStore::new(Arc::new(world.memory.clone()));
        let plfs = world.on(Arc::new(fault.clone()));
        let file = create(&plfs, "f").unwrap();
        file.write_at(&bytes, 0).unwrap();
        file.sync().unwrap();
        fault.reset();
        if failing > 0 {
            fault.fail_at(failing, Errno::IO);
        }
        let _ = plfs.move_out(&file);
        if failing == 0 {
            calls = fault.calls();
        }
        fault.reset();
        let _ = plfs.exit();
        let reader = world.plfs();
        assert_eq!(names(&reader), ["f"], "call {failing} of {calls}");
        assert!(content(&reader, "f").unwrap() == bytes, "call {failing} of {calls}");
        failing += 1;
    }
}

/// The mover removed the name of its copy when the pack had the file no more: another process had
/// put its own file there, by a rename.
#[test]
fn a_file_that_replaces_one_that_moves_out_stays() {
    let world = World::new();
    let store = FaultStore::new(Arc::new(world.memory.clone()));
    let (mover, other) = (world.on(Arc::new(store.clone())), world.plfs());
    let file = create(&mover, "f").unwrap();
    file.write_at(&vec![1; (1 << 20) + 5], 0).unwrap();
    world.put("new", b"new");
    store.before(DIR, Op::SyncDir, move || other.rename(&at("new"), &at("f")).unwrap());
    assert!(!mover.move_out(&file).unwrap());
    let reader = world.plfs();
    assert_eq!(names(&reader), ["f"]);
    assert_eq!(content(&reader, "f").unwrap(), b"new");
}

/// The mover went by the path that the directory had when it was found: the file went to another
/// directory, which has it now.
#[test]
fn a_file_moves_out_into_its_own_directory_only() {
    let world = World::new();
    let plfs = world.plfs();
    let file = create(&plfs, "f").unwrap();
    file.write_at(&vec![1; (1 << 20) + 5], 0).unwrap();
    let moved = Path::new("/m/moved");
    world.memory.rename(Path::new(DIR), moved).unwrap();
    world.memory.mkdir(Path::new(DIR), 0o755).unwrap();
    assert!(!plfs.move_out(&file).unwrap());
    assert!(!world.is_ordinary("f"));
    let stat = plfs.stat(&moved.join("f"), Links::Stay).unwrap().stat;
    assert_eq!(stat.len, (1 << 20) + 5);
    assert!(plfs.move_out(&file).unwrap());
    assert!(world.memory.stat(&moved.join("f"), Links::Stay).is_ok());
}

#[test]
fn what_cannot_be_packed_stays_and_is_named() {
    let world = World::new();
    let plfs = world.plfs();
    let long = "n".repeat(255);
    for (name, bytes) in [("a", &b"one"[..]), ("empty", b""), (&long, b"two"), ("open", b"3")] {
        world.put(name, bytes);
    }
    world.put("twice", b"4");
    world.memory.link(&at("twice"), &at("again")).unwrap();
    world.put("large", &vec![1; (1 << 20) + 1]);
    world.put("full", &vec![2; 1 << 20]);
    let before = all(&plfs);
    world.memory.symlink(Path::new("a"), &at("link")).unwrap();
    world.memory.mkdir(&at("sub"), 0o755).unwrap();
    let open = world.memory.open(&at("open"), Open::READ_WRITE).unwrap();
    let done = plfs.pack_dir(Path::new(DIR), Duration::ZERO, go_on).unwrap();
    assert_eq!((done.files, done.bytes), (4, 6 + (1 << 20)));
    let mut left: Vec<&[u8]> = done.left.iter().map(|(name, _)| name.as_bytes()).collect();
    left.sort_unstable();
    assert_eq!(left, [&b"again"[..], b"large", b"link", b"open", b"twice"]);
    for name in ["a", "empty", &long, "full"] {
        assert!(!world.is_ordinary(name), "{name}");
    }
    drop(open);
    world.memory.unlink(&at("link")).unwrap();
    world.memory.rmdir(&at("sub")).unwrap();
    let done = plfs.pack_dir(Path::new(DIR), Duration::ZERO, go_on).unwrap();
    assert_eq!((done.files, done.left.len()), (1, 3));
    assert_eq!(all(&world.plfs()), before);
    let done = plfs.unpack_dir(Path::new(DIR), Duration::ZERO, go_on).unwrap();
    assert_eq!((done.files, done.left), (5, vec![]));
    assert!(!world.is_ordinary(".plfs-pack"));
    assert_eq!(all(&world.plfs()), before);
}

/// Runs `act` on a directory of 70 files, killed at each call or at some; then the files are as
/// they were, after a power cut as well, and to run it again ends it: gives how many calls there
/// are.
fn dies_at_each_call(act: impl Fn(&Plfs) -> plfs::Result<Repacked>, is_packed: bool) -> u64 {
    let fill = |world: &World| {
        for n in 0..70 {
            world.put(&format!("f{n:02}"), &vec![n as u8; n * 50]);
        }
        if is_packed {
            world.plfs().pack_dir(Path::new(DIR), Duration::ZERO, go_on).unwrap();
        }
    };
    let world = World::new();
    fill(&world);
    let before = all(&world.plfs());
    let fault = FaultStore::new(Arc::new(world.memory.clone()));
    let whole = act(&world.on(Arc::new(fault.clone()))).unwrap();
    assert_eq!((whole.files, &whole.left), (70, &vec![]));
    let calls = fault.calls();
    let step = 1 + calls / 60;
    let mut kill = 1 + plfs_testkit::seed() % step;
    while kill <= calls {
        let world = World::new();
        fill(&world);
        let fault = FaultStore::new(Arc::new(world.memory.clone()));
        fault.kill_at(kill);
        let _ = act(&world.on(Arc::new(fault.clone())));
        drop(fault);
        // The least that a power cut leaves; what of a log it may leave besides, `pack` explores.
        let cut = world.memory.crash();
        for (how, memory) in [("death", &world.memory), ("cut", &cut)] {
            let left = World { memory: ended(memory), node: fresh_dir() };
            let what = format!("{how} at call {kill} of {calls}");
            assert!(all(&left.plfs()) == before, "{what}");
            let done = act(&left.plfs()).unwrap();
            assert_eq!(done.left, [], "{what}");
            assert!(all(&left.plfs()) == before, "{what}, run again");
            assert_eq!(left.is_ordinary("f07"), is_packed, "{what}, run again");
            let is_hidden = |entry: &plfs::store::Entry| {
                let name = entry.name.as_bytes();
                name.starts_with(b".plfs-pack") && name != b".plfs-pack"
            };
            let beside = left.memory.list(Path::new(DIR)).unwrap();
            assert!(!beside.iter().any(is_hidden), "{what}: {beside:?}");
        }
        kill += step;
    }
    calls
}

/// The store, with the open marks of another process that has ended: those of the one that died say
/// that this one lives.
fn ended(memory: &MemStore) -> MemStore {
    let top = Path::new("/m/.plfs");
    for shard in memory.list(top).unwrap() {
        for container in memory.list(&top.join(&shard.name)).unwrap_or_default() {
            let dir = top.join(&shard.name).join(container.name);
            for entry in memory.list(&dir).unwrap_or_default() {
                let path = dir.join(&entry.name);
                if entry.name.as_bytes().ends_with(b".open") {
                    let text = memory.readlink(&path).unwrap();
                    let mark = Mark::parse(text.to_str().unwrap()).unwrap();
                    let mark = Mark { start: mark.start ^ 1, place: 0, ..mark };
                    memory.unlink(&path).unwrap();
                    memory.symlink(Path::new(&mark.text()), &path).unwrap();
                }
            }
        }
    }
    memory.clone()
}

#[test]
fn a_death_while_files_are_packed_loses_nothing() {
    let calls =
        dies_at_each_call(|plfs| plfs.pack_dir(Path::new(DIR), Duration::ZERO, go_on), false);
    explored(calls, "crash points of packing a directory");
}

#[test]
fn a_death_while_files_are_unpacked_loses_nothing() {
    let calls =
        dies_at_each_call(|plfs| plfs.unpack_dir(Path::new(DIR), Duration::ZERO, go_on), true);
    explored(calls, "crash points of unpacking a directory");
}

/// A directory whose files moved into its pack, or out of it, was not to be written meanwhile: who
/// still believed that there was no pack, or one, wrote names that were hidden or gone afterwards.
/// Here another process writes between two batches; `preload_small/repacked` has real ones.
#[test]
fn what_is_written_while_files_move_is_there() {
    let world = World::new();
    for n in 0..140 {
        world.put(&format!("f{n:03}"), &vec![n as u8; n]);
    }
    let (plfs, other) = (world.plfs(), world.plfs());
    let mut known: BTreeMap<String, Vec<u8>> =
        (0..140).map(|n| (format!("f{n:03}"), vec![n as u8; n])).collect();
    let contents = |plfs: &Plfs| -> BTreeMap<String, Vec<u8>> {
        all(plfs).into_iter().map(|(name, (bytes, _, _))| (name, bytes)).collect()
    };
    let write = |name: &str, bytes: &[u8], options: OpenOptions| {
        let file = other.open(&at(name), options).unwrap().file();
        file.append(bytes).unwrap();
        file.close().unwrap();
    };
    for turn in 0..3 {
        let mut known_now = known.clone();
        let mut during = |done: &Repacked| {
            if done.files >= 64 && done.files < 100 {
                // Of those that have moved, and of those that have not.
                for n in [turn * 10, 130 - turn * 10] {
                    let name = |n: usize| format!("f{n:03}");
                    write(&name(n), b"cut", OpenOptions { truncate: true, ..WRITE });
                    known_now.insert(name(n), b"cut".to_vec());
                    write(&name(n + 1), b"more", WRITE);
                    known_now.get_mut(&name(n + 1)).unwrap().extend(b"more");
                    other.unlink(&at(&name(n + 2))).unwrap();
                    known_now.remove(&name(n + 2));
                    other.rename(&at(&name(n + 3)), &at(&name(n + 4))).unwrap();
                    let moved = known_now.remove(&name(n + 3)).unwrap();
                    known_now.insert(name(n + 4), moved);
                    write(&format!("new{turn}.{n}"), b"new", WRITE);
                    known_now.insert(format!("new{turn}.{n}"), b"new".to_vec());
                    write("tmp", b"over", WRITE);
                    other.rename(&at("tmp"), &at(&name(n + 5))).unwrap();
                    known_now.insert(name(n + 5), b"over".to_vec());
                    assert_eq!(contents(&other), known_now);
                }
            }
            ControlFlow::Continue(())
        };
        // As long as the other one believes that there is no pack.
        let (dir, settles) = (Path::new(DIR), Duration::from_millis(1100));
        let done = match turn % 2 {
            0 => plfs.pack_dir(dir, settles, &mut during),
            _ => plfs.unpack_dir(dir, settles, &mut during),
        };
        let done = done.unwrap();
        assert_eq!(done.left, []);
        assert!(done.files > 100, "{turn}: {done:?}");
        known = known_now;
        assert_eq!(contents(&world.plfs()), known);
        other.leave_all().unwrap();
    }
}

/// An unpack that was refused had made the directory one for ordinary files.
#[test]
fn an_unpack_that_is_refused_leaves_all_as_it_was() {
    let world = World::new();
    let (plfs, other) = (world.plfs(), world.plfs());
    put(&other, "f", b"text");
    let left = || {
        let path = at(".plfs-pack");
        let beside = world.memory.list(Path::new(DIR)).unwrap();
        let mut names: Vec<_> = beside.into_iter().map(|entry| entry.name).collect();
        names.sort();
        (
            names,
            plfs.own_layout(Path::new(DIR)).unwrap(),
            world.memory.stat(&path, Links::Stay).unwrap().mode,
        )
    };
    let before = left();
    assert_eq!(errno(plfs.unpack_dir(Path::new(DIR), Duration::ZERO, go_on)), Errno::BUSY);
    assert_eq!(left(), before);
    other.leave_all().unwrap();
    // An ordinary file that the pack hides would show instead.
    world.put("f", b"hidden");
    let before = left();
    for refused in [
        plfs.unpack_dir(Path::new(DIR), Duration::ZERO, go_on),
        plfs.pack_dir(Path::new(DIR), Duration::ZERO, go_on),
    ] {
        assert_eq!(errno(refused), Errno::EXIST);
        assert_eq!(left(), before);
    }
    world.memory.unlink(&at("f")).unwrap();
    let done = plfs.unpack_dir(Path::new(DIR), Duration::ZERO, go_on).unwrap();
    assert_eq!((done.files, done.left), (1, vec![]));
    assert_eq!(content(&plfs, "f").unwrap(), b"text");
}

/// A new pack may get the inode of the name of one that is gone: a process that had known that one
/// took it for the same, and wrote where nobody looks.
#[test]
fn who_has_a_file_of_a_pack_that_moves_out_is_told_and_finds_the_next_pack() {
    let world = World::new();
    let (plfs, other) = (world.plfs(), world.plfs());
    put(&other, "f", b"text");
    let open = other.open(&at("f"), OpenOptions::create()).unwrap().file();
    other.leave_all().unwrap();
    let done = plfs.unpack_dir(Path::new(DIR), Duration::ZERO, go_on).unwrap();
    assert_eq!((done.files, done.left), (1, vec![]));
    let told = open.write_at(b"lost", 0).map(drop).and_then(|()| open.close());
    assert!(told.is_err(), "{told:?}");
    assert_eq!(content(&other, "f").unwrap(), b"text");
    plfs.pack_dir(Path::new(DIR), Duration::ZERO, go_on).unwrap();
    put(&other, "g", b"next");
    other.leave_all().unwrap();
    assert_eq!(content(&world.plfs(), "g").unwrap(), b"next");
    assert_eq!(content(&world.plfs(), "f").unwrap(), b"text");
}

/// Two threads each found the pack for themselves, both the process's first call there. What was
/// written through the first view was not seen through the second, and not committed when the
/// process ended; after a fork, parent and child had one region of the data log.
#[test]
fn threads_that_find_a_pack_at_once_have_one_view_of_it() {
    let world = World::new();
    let other = world.plfs();
    put(&other, "old", b"old");
    other.exit().unwrap();
    let fault = FaultStore::new(Arc::new(world.memory.clone()));
    let plfs = Arc::new(world.on(Arc::new(fault.clone())));
    let first = Arc::new(Mutex::new(None));
    let (faster, slot) = (plfs.clone(), first.clone());
    fault.before(".plfs-pack", Op::Open, move || {
        let file = create(&faster, "first").unwrap();
        assert_eq!(file.write_at(b"first", 0).unwrap(), 5);
        *slot.lock().unwrap() = Some(file);
    });
    let second = create(&plfs, "second").unwrap();
    assert_eq!(second.write_at(b"second", 0).unwrap(), 6);
    let first = first.lock().unwrap().take().expect("the pack is opened by its name");
    assert_eq!(content(&plfs, "first").unwrap(), b"first");
    assert_eq!(content(&plfs, "second").unwrap(), b"second");
    plfs.exit().unwrap();
    assert_eq!(content(&other, "first").unwrap(), b"first");
    assert_eq!(content(&other, "second").unwrap(), b"second");
    first.close().unwrap();
    second.close().unwrap();
}

/// S1. A thread writes to a file of a pack while another one forks. What came between the commit of
/// the fork and the fork itself the child knew of, and could not read (EIO) until its parent
/// committed: the bytes were in a buffer of the parent's.
#[test]
fn a_child_has_what_was_written_while_the_fork_began() {
    let world = World::new();
    let plfs = world.plfs();
    let file = create(&plfs, "f").unwrap();
    plfs.before_fork().unwrap();
    assert_eq!(file.write_at(b"text", 0).unwrap(), 4);
    plfs.before_fork_alone().unwrap();
    plfs.after_fork_in_child();
    assert_eq!(content(&plfs, "f").unwrap(), b"text");
}

/// A fork that finds no room for what was written to a pack goes on, and the child reads what the
/// logs have, as of any other file. It had the records of its parent without their bytes: EIO, or
/// zeros where others had written behind them.
#[test]
fn a_child_reads_nothing_that_its_parent_could_not_commit() {
    for room in [0, 1000] {
        let world = World::new();
        let fault = FaultStore::new(Arc::new(world.memory.clone()));
        let plfs = world.on(Arc::new(fault.clone()));
        let file = create(&plfs, "f").unwrap();
        file.write_at(b"old", 0).unwrap();
        plfs.commit_all().unwrap();
        fault.full_below(".data", room);
        assert_eq!(file.write_at(&[b'n'; 200_000], 0).unwrap(), 200_000);
        assert_eq!(plfs.before_fork().unwrap_err().errno(), Errno::NOSPC);
        plfs.after_fork_in_child();
        fault.reset();
        assert_eq!(content(&plfs, "f").unwrap(), b"old");
        let mut byte = [0; 4];
        assert_eq!((file.len().unwrap(), file.read_at(&mut byte, 0).unwrap()), (3, 3));
    }
}

/// An ordinary file that replaces one of a pack was not made durable before that went: after a
/// power cut the name showed neither the old bytes nor the new ones.
#[test]
fn an_ordinary_file_over_one_of_a_pack_without_a_sync_keeps_the_old_or_the_new() {
    for moves in [false, true] {
        let (world, mut were_new) = (World::new(), 0);
        let plfs = world.plfs();
        put(&plfs, "f", b"old");
        plfs.open(&at("f"), WRITE).unwrap().file().sync().unwrap();
        let plain = world.memory.open(Path::new("/m/tmp"), Open::create(0o640)).unwrap();
        write_full(plain.as_ref(), b"new", 0).unwrap();
        drop(plain);
        if moves {
            let mode = 0o644 | plfs_format::pack::CHANGING;
            world.memory.chmod(&at(plfs_format::pack::NAME), mode).unwrap();
            world.memory.sync_dir(Path::new(DIR)).unwrap();
        }
        plfs.rename(Path::new("/m/tmp"), &at("f")).unwrap();
        plfs.exit().unwrap();
        for seed in 0..200 {
            let left = World { memory: world.memory.crash_with(seed), node: fresh_dir() };
            let found = content(&left.plfs(), "f").unwrap();
            assert!(found == b"old" || found == b"new", "{moves}, seed {seed}: {found:?}");
            were_new += u64::from(found == b"new");
        }
        assert!(were_new > 0);
    }
}

/// An unpack was killed when a file had its ordinary name, and that was not durable yet. The next
/// one took the file out of the pack at once: a power cut then could leave it nowhere.
#[test]
fn an_unpack_that_goes_on_makes_names_durable_before_it_takes_them_out_of_the_pack() {
    let fill = || {
        let world = World::new();
        ["a", "b", "c"].iter().for_each(|name| world.put(name, name.as_bytes()));
        world.plfs().pack_dir(Path::new(DIR), Duration::ZERO, go_on).unwrap();
        world
    };
    let unpack = |world: &World, fault: &FaultStore| {
        world.on(Arc::new(fault.clone())).unpack_dir(Path::new(DIR), Duration::ZERO, go_on)
    };
    let world = fill();
    let fault = FaultStore::new(Arc::new(world.memory.clone()));
    unpack(&world, &fault).unwrap();
    let log = fault.log();
    let linked = log.iter().rposition(|call| call.op == Op::Link).unwrap();
    let world = fill();
    let before = all(&world.plfs());
    let fault = FaultStore::new(Arc::new(world.memory.clone()));
    fault.kill_at(linked as u64 + 2);
    unpack(&world, &fault).unwrap_err();
    assert!(world.is_ordinary("c"));
    let memory = ended(&world.memory);
    let next = FaultStore::new(Arc::new(memory.clone()));
    let cuts = Arc::new(Mutex::new(Vec::new()));
    let (of, to) = (memory.clone(), cuts.clone());
    next.before(DIR, Op::SyncDir, move || {
        to.lock().unwrap().extend((0..100).map(|seed| of.crash_with(seed)));
    });
    let world = World { memory, node: fresh_dir() };
    unpack(&world, &next).unwrap();
    let cuts = std::mem::take(&mut *cuts.lock().unwrap());
    assert_eq!(cuts.len(), 100);
    for (seed, cut) in cuts.into_iter().enumerate() {
        let left = World { memory: ended(&cut), node: fresh_dir() };
        assert_eq!(all(&left.plfs()), before, "seed {seed}");
    }
}

/// A file was opened while it was put aside, and the pack was killed. The next run removed what it
/// found there, and what its program wrote from then on with it.
#[test]
fn what_is_open_and_was_put_aside_is_an_ordinary_file_again() {
    let world = World::new();
    world.put("f", b"old");
    let fault = FaultStore::new(Arc::new(world.memory.clone()));
    let opened = Arc::new(Mutex::new(None));
    let (memory, slot, dying) = (world.memory.clone(), opened.clone(), fault.clone());
    fault.before("small/f", Op::Rename, move || {
        *slot.lock().unwrap() = Some(memory.open(&at("f"), Open::READ_WRITE).unwrap());
        dying.kill_at(2);
    });
    let pack = |plfs: &Plfs| plfs.pack_dir(Path::new(DIR), Duration::ZERO, go_on);
    pack(&world.on(Arc::new(fault.clone()))).unwrap_err();
    drop(fault);
    assert!(!world.is_ordinary("f"));
    let left = World { memory: ended(&world.memory), node: fresh_dir() };
    let done = pack(&left.plfs()).unwrap();
    assert_eq!((done.files, done.left.len()), (0, 1));
    let file = opened.lock().unwrap().take().unwrap();
    write_full(file.as_ref(), b"new", 0).unwrap();
    drop(file);
    assert_eq!(content(&left.plfs(), "f").unwrap(), b"new");
    assert_eq!(pack(&left.plfs()).unwrap().files, 1);
    assert_eq!(content(&left.plfs(), "f").unwrap(), b"new");
}

/// What closing the logs of a pack says that nobody uses any more was told to nobody: on a network
/// file system that is where a full quota shows, and bytes of files that were closed are lost.
#[test]
fn what_closing_the_logs_of_a_quiet_pack_says_is_told() {
    for (is_crowd, is_synced) in [(true, false), (true, true), (false, false), (false, true)] {
        let mut world = World::new();
        world.memory = world.memory.shared();
        let fault = FaultStore::new(Arc::new(world.memory.clone()));
        let plfs = world.on(Arc::new(fault.clone()));
        put(&plfs, "f", b"lost");
        let pack = plfs.pack(Path::new(DIR)).unwrap().unwrap();
        fault.fail_matching(pack.container().dir.to_str().unwrap(), Op::Flush, Errno::DQUOT);
        drop(pack);
        if is_crowd {
            // More than stay open.
            let layout = Layout { workload: Some(Workload::Small), ..Layout::default() };
            plfs.set_directory_layout(Path::new("/m"), Some(&layout)).unwrap();
            for n in 0..70 {
                let dir = PathBuf::from(format!("/m/d{n}"));
                world.memory.mkdir(&dir, 0o755).unwrap();
                plfs.create_packed(&dir.join("f"), WRITE, (7, 8)).unwrap().close().unwrap();
            }
        } else {
            // A few seconds without a call.
            let end = std::time::Instant::now() + Duration::from_secs(60);
            while fault.calls_of(Op::Flush) == 0 && std::time::Instant::now() < end {
                std::thread::sleep(Duration::from_millis(20));
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        fault.reset();
        let read = || plfs.open(&at("f"), OpenOptions::read()).map(drop);
        let told = if is_synced { plfs.commit_all() } else { read() };
        assert_eq!(errno(told), Errno::DQUOT, "crowd: {is_crowd}, synced: {is_synced}");
        // Once; then all begin anew.
        read().unwrap();
    }
}
