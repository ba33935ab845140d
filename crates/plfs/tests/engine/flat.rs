//! Directories of the workload flat: names on several backends that are one directory for
//! everybody (docs/decisions/0022), whoever dies or comes in between.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use plfs::store::{Errno, Kind, Links, Open, PosixStore, Store};
use plfs::{
    Backends, Config, Error, Finding, Layout, OpenOptions, Plfs, Result, Workload, add_backend,
};
use plfs_testkit::{FaultStore, MemStore, Op, Rng, explored, in_turn, rounds, seeds};

use crate::scratch::fresh_dir;

const DIR: &str = "/m/d";
const BACKENDS: [&str; 4] = ["/m", "/n", "/o", "/p"];

fn config() -> Config {
    Config { shared_memory: None, workload: Workload::Auto, ..Config::shared() }
}

fn node(store: impl Store + 'static) -> Plfs {
    Plfs::new(Arc::new(store), config())
}

/// A root /m with three more backends, and a flat directory in it.
fn memory() -> MemStore {
    let memory = MemStore::new();
    let store: Arc<dyn Store> = Arc::new(memory.clone());
    for dir in BACKENDS.iter().chain([&DIR]) {
        memory.mkdir(Path::new(dir), 0o755).unwrap();
    }
    for backend in &BACKENDS[1..] {
        make_plfs(&memory, backend);
        add_backend(&store, &config(), Path::new("/m"), Path::new(backend)).unwrap();
    }
    node(memory.clone()).make_flat(Path::new(DIR), &Layout::default()).unwrap();
    for dir in BACKENDS.iter().chain([&"/"]) {
        memory.sync_dir(Path::new(dir)).unwrap();
    }
    memory
}

fn make_plfs(memory: &MemStore, backend: &str) {
    let plfs = Path::new(backend).join(".plfs");
    memory.mkdir(&plfs, 0o1777).unwrap();
    memory.chmod(&plfs, 0o1777).unwrap();
}

fn at(name: impl AsRef<OsStr>) -> PathBuf {
    Path::new(DIR).join(name.as_ref())
}

fn put(plfs: &Plfs, path: &Path, bytes: &[u8]) -> Result<()> {
    let file = plfs.open(path, OpenOptions { truncate: true, ..OpenOptions::create() })?.file();
    file.write_at(bytes, 0)?;
    file.close()
}

fn put_new(plfs: &Plfs, path: &Path, bytes: &[u8]) -> Result<()> {
    let file = plfs.open(path, OpenOptions { exclusive: true, ..OpenOptions::create() })?.file();
    file.write_at(bytes, 0)?;
    file.close()
}

fn get(plfs: &Plfs, path: &Path) -> Result<Vec<u8>> {
    let file = plfs.open(path, OpenOptions::read())?.file();
    let mut bytes = vec![0; 64];
    let n = file.read_at(&mut bytes, 0)?;
    bytes.truncate(n);
    Ok(bytes)
}

fn names(plfs: &Plfs, dir: &Path) -> BTreeSet<PathBuf> {
    let names: Vec<_> = plfs.list(dir).unwrap().into_iter().map(|entry| entry.name).collect();
    let set: BTreeSet<PathBuf> = names.iter().map(PathBuf::from).collect();
    assert_eq!(set.len(), names.len(), "a name is there twice: {names:?}");
    set
}

fn errno<T>(result: Result<T>) -> Option<Errno> {
    result.err().map(|error| error.errno())
}

/// The backend on which a name lies, by its path on the storage.
fn backend(plfs: &Plfs, path: &Path) -> PathBuf {
    plfs.placed(path, Links::Stay).unwrap().iter().take(2).collect()
}

/// Two names on different backends, and one on the first's.
fn apart(plfs: &Plfs) -> (PathBuf, PathBuf, PathBuf) {
    let mut by_backend = BTreeMap::<PathBuf, Vec<PathBuf>>::new();
    for i in 0..40 {
        let path = at(format!("apart{i}"));
        put(plfs, &path, b"").unwrap();
        by_backend.entry(backend(plfs, &path)).or_default().push(path.clone());
        plfs.unlink(&path).unwrap();
    }
    assert_eq!(by_backend.len(), BACKENDS.len());
    let mut lists = by_backend.into_values().filter(|list| list.len() > 1);
    let (first, second) = (lists.next().unwrap(), lists.next().unwrap());
    (first[0].clone(), second[0].clone(), first[1].clone())
}

/// Nothing is left of a directory that was emptied but its map and one shadow on each backend.
fn must_be_clean(memory: &MemStore) {
    for backend in BACKENDS {
        let spread = Path::new(backend).join(".plfs/spread");
        let left = memory.list(&spread).unwrap();
        assert!(left.len() <= 1, "{}: {left:?}", spread.display());
    }
}

/// After a repair a check finds nothing but what somebody may want to have, and all the rest is in
/// use.
fn must_be_repaired(memory: &MemStore) {
    let check = |repair| node(memory.clone()).check_flat(Path::new("/m"), repair).unwrap();
    check(Some(0));
    for (report, done) in check(None).reports {
        assert!(done.is_empty(), "{done:?}");
        for Finding { path, what, .. } in report.findings {
            let holds_files = memory.list(&path).is_ok_and(|entries| !entries.is_empty());
            assert!(holds_files || what.contains("in hand"), "{}: {what}", path.display());
        }
    }
}

#[test]
fn names_lie_on_all_backends_and_are_one_directory() {
    let memory = memory();
    let (plfs, other) = (node(memory.clone()), node(memory.clone()));
    let mut all: Vec<PathBuf> = (0..200).map(|i| at(format!("ckpt.{i:05}"))).collect();
    all.push(at("x".repeat(255)));
    all.push(at(OsStr::from_bytes(b"\xff\xfe\n")));
    for (i, path) in all.iter().enumerate() {
        put_new(&plfs, path, format!("{i}").as_bytes()).unwrap();
    }
    let mut counts = BTreeMap::<PathBuf, usize>::new();
    for (i, path) in all.iter().enumerate() {
        assert_eq!(get(&other, path).unwrap(), format!("{i}").as_bytes());
        assert_eq!(errno(put_new(&other, path, b"")), Some(Errno::EXIST));
        *counts.entry(backend(&other, path)).or_default() += 1;
    }
    assert!(counts.len() == 4 && counts.values().all(|count| *count > 25), "{counts:?}");
    let wanted: BTreeSet<PathBuf> =
        all.iter().map(|path| path.file_name().unwrap().into()).collect();
    assert_eq!(names(&other, Path::new(DIR)), wanted);
    assert_eq!(errno(get(&plfs, &at("none"))), Some(Errno::NOENT));
    assert_eq!(errno(put(&plfs, &at("x".repeat(256)), b"")), Some(Errno::NAMETOOLONG));
    assert_eq!(errno(other.rmdir(Path::new(DIR))), Some(Errno::NOTEMPTY));
    assert_eq!(names(&plfs, Path::new(DIR)), wanted);
    for path in &all {
        other.unlink(path).unwrap();
        assert_eq!(errno(plfs.unlink(path)), Some(Errno::NOENT));
    }
    assert!(names(&plfs, Path::new(DIR)).is_empty());
    must_be_clean(&memory);
    plfs.rmdir(Path::new(DIR)).unwrap();
    assert_eq!(errno(plfs.stat(Path::new(DIR), Links::Stay)), Some(Errno::NOENT));
}

#[test]
fn directories_are_flat_in_flat_ones() {
    let memory = memory();
    let (plfs, other) = (node(memory.clone()), node(memory.clone()));
    let sub = at("sub");
    plfs.mkdir(&sub, 0o755).unwrap();
    assert_eq!(errno(other.mkdir(&sub, 0o755)), Some(Errno::EXIST));
    assert_eq!(errno(put(&other, &sub, b"")), Some(Errno::ISDIR));
    assert_eq!(errno(put_new(&other, &sub, b"")), Some(Errno::EXIST));
    assert_eq!(errno(other.unlink(&sub)), Some(Errno::ISDIR));
    assert_eq!(other.stat(&sub, Links::Stay).unwrap().stat.kind, Kind::Dir);
    assert!(names(&other, &sub).is_empty() && other.is_flat(&sub).unwrap());
    for i in 0..40 {
        put(&other, &sub.join(format!("f{i}")), b"deep").unwrap();
    }
    let used: BTreeSet<_> = (0..40).map(|i| backend(&plfs, &sub.join(format!("f{i}")))).collect();
    assert_eq!((used.len(), names(&plfs, &sub).len()), (4, 40));
    assert_eq!(errno(plfs.rmdir(&sub)), Some(Errno::NOTEMPTY));
    assert_eq!(get(&plfs, &sub.join("f7")).unwrap(), b"deep");
    // A rename of it takes one call, or a few if its new name lies elsewhere, whatever it has.
    for to in ["a", "b", "c", "d", "e", "f", "sub"] {
        let from = names(&plfs, Path::new(DIR)).pop_first().unwrap();
        plfs.rename(&at(&from), &at(to)).unwrap();
        let other = node(memory.clone());
        assert_eq!(names(&other, Path::new(DIR)), BTreeSet::from([to.into()]));
        assert_eq!(names(&other, &at(to)).len(), 40);
        assert_eq!(get(&other, &at(to).join("f39")).unwrap(), b"deep");
    }
    assert_eq!(errno(plfs.rename(&sub, &sub.join("x/y"))), Some(Errno::NOENT));
    assert_eq!(errno(plfs.rename(&sub, &sub.join("x"))), Some(Errno::INVAL));
    // Over an empty one, and not over another.
    plfs.mkdir(&at("empty"), 0o700).unwrap();
    plfs.mkdir(&at("full"), 0o700).unwrap();
    plfs.mkdir(&at("full").join("x"), 0o700).unwrap();
    assert_eq!(errno(plfs.rename(&sub, &at("full"))), Some(Errno::NOTEMPTY));
    plfs.rename(&sub, &at("empty")).unwrap();
    assert_eq!(names(&plfs, &at("empty")).len(), 40);
    assert_eq!(plfs.stat(&sub, Links::Stay).err().unwrap().errno(), Errno::NOENT);
    for i in 0..40 {
        plfs.unlink(&at("empty").join(format!("f{i}"))).unwrap();
    }
    for dir in [at("full").join("x"), at("full"), at("empty")] {
        plfs.rmdir(&dir).unwrap();
    }
    must_be_clean(&memory);
}

#[test]
fn links_are_of_the_directory_and_not_of_a_backend() {
    let memory = memory();
    let plfs = node(memory.clone());
    let (a, b, _) = apart(&plfs);
    put(&plfs, &a, b"one").unwrap();
    plfs.link(&a, &b).unwrap();
    let identity = |path: &Path| {
        let stat = plfs.stat(path, Links::Stay).unwrap().stat;
        (stat.ino, stat.nlink)
    };
    assert_eq!((identity(&a), identity(&a).1), (identity(&b), 2));
    assert_eq!(errno(plfs.link(&a, &b)), Some(Errno::EXIST));
    plfs.rename(&a, &b).unwrap();
    assert_eq!(names(&plfs, Path::new(DIR)).len(), 2);
    put(&plfs, &b, b"two!").unwrap();
    assert_eq!(get(&plfs, &a).unwrap(), b"two!");
    plfs.unlink(&a).unwrap();
    assert_eq!(get(&plfs, &b).unwrap(), b"two!");
    // A symbolic link leads where its text says in the directory, wherever its own name lies.
    let base = b.file_name().unwrap();
    for i in 0..20 {
        let link = at(format!("link{i}"));
        plfs.symlink(Path::new(base), &link).unwrap();
        assert_eq!(plfs.readlink(&link).unwrap(), Path::new(base));
        assert_eq!(get(&plfs, &link).unwrap(), b"two!");
        let stat = |links| plfs.stat(&link, links).unwrap().stat;
        assert_eq!((stat(Links::Follow).len, stat(Links::Stay).kind), (4, Kind::Symlink));
        assert_eq!(stat(Links::Stay).len, base.len() as u64);
        plfs.rename(&link, &at(format!("moved{i}"))).unwrap();
        assert_eq!(get(&plfs, &at(format!("moved{i}"))).unwrap(), b"two!");
        plfs.unlink(&at(format!("moved{i}"))).unwrap();
    }
    plfs.symlink(Path::new("x"), &at("y")).unwrap();
    plfs.symlink(Path::new("y"), &at("x")).unwrap();
    assert_eq!(errno(get(&plfs, &at("x"))), Some(Errno::LOOP));
    plfs.unlink(&at("x")).unwrap();
    // What a link leads to is made.
    put(&plfs, &at("y"), b"made").unwrap();
    assert_eq!(get(&plfs, &at("x")).unwrap(), b"made");
    plfs.mkdir(&at("sub"), 0o755).unwrap();
    plfs.symlink(Path::new("../y"), &at("sub").join("up")).unwrap();
    assert_eq!(get(&plfs, &at("sub").join("up")).unwrap(), b"made");
    plfs.symlink(Path::new("sub"), &at("way")).unwrap();
    assert_eq!(get(&plfs, &at("way").join("up")).unwrap(), b"made");
    assert_eq!(names(&plfs, &at("way")), BTreeSet::from(["up".into()]));
}

/// A file that several processes write has its container on its backend.
#[test]
fn a_file_that_is_shared_gets_a_container() {
    let memory = memory();
    let (plfs, other) = (node(memory.clone()), node(memory.clone()));
    let (a, b, _) = apart(&plfs);
    let several = OpenOptions { writers: plfs::Writers::Several, ..OpenOptions::create() };
    let (one, two) =
        (plfs.open(&a, several).unwrap().file(), other.open(&a, several).unwrap().file());
    one.write_at(b"one", 0).unwrap();
    two.write_at(b"two", 3).unwrap();
    one.close().unwrap();
    two.close().unwrap();
    let logical = plfs.stat(&a, Links::Stay).unwrap();
    assert!(logical.totals.is_some() && logical.stat.len == 6);
    plfs.rename(&a, &b).unwrap();
    assert_eq!(get(&other, &b).unwrap(), b"onetwo");
    put(&plfs, &a, b"plain").unwrap();
    plfs.rename(&a, &b).unwrap();
    assert_eq!(get(&other, &b).unwrap(), b"plain");
    plfs.unlink(&b).unwrap();
    must_be_clean(&memory);
}

/// Nobody takes names for missing that lie where he cannot look.
#[test]
fn a_backend_that_is_not_there_is_an_error() {
    let memory = memory();
    let plfs = node(memory.clone());
    for i in 0..40 {
        put(&plfs, &at(format!("f{i}")), b"x").unwrap();
    }
    memory.rename(Path::new("/o"), Path::new("/away")).unwrap();
    for plfs in [plfs, node(memory.clone())] {
        let outcome = |i: i32| errno(get(&plfs, &at(format!("f{i}"))));
        let outcomes: Vec<_> = (0..60).map(outcome).collect();
        assert!(outcomes.contains(&Some(Errno::IO)), "{outcomes:?}");
        assert!((0..40).all(|i| outcome(i) != Some(Errno::NOENT)));
        assert_eq!(errno(plfs.list(Path::new(DIR))), Some(Errno::IO));
        let removed = errno(plfs.rmdir(Path::new(DIR)));
        assert!(matches!(removed, Some(Errno::IO | Errno::NOTEMPTY)), "{removed:?}");
    }
    memory.rename(Path::new("/away"), Path::new("/o")).unwrap();
    assert_eq!(names(&node(memory), Path::new(DIR)).len(), 40);
}

/// The places of the names of a directory do not change when backends come.
#[test]
fn a_backend_that_is_added_later_has_no_names_of_old_directories() {
    let memory = memory();
    let plfs = node(memory.clone());
    for i in 0..20 {
        put(&plfs, &at(format!("f{i}")), b"x").unwrap();
    }
    memory.mkdir(Path::new("/q"), 0o755).unwrap();
    make_plfs(&memory, "/q");
    let store: Arc<dyn Store> = Arc::new(memory.clone());
    add_backend(&store, &config(), Path::new("/m"), Path::new("/q")).unwrap();
    let plfs = node(memory.clone());
    assert_eq!(names(&plfs, Path::new(DIR)).len(), 20);
    let used = |dir: &Path| -> BTreeSet<PathBuf> {
        (0..60)
            .map(|i| {
                let path = dir.join(format!("f{i}"));
                put(&plfs, &path, b"x").unwrap();
                backend(&plfs, &path)
            })
            .collect()
    };
    plfs.mkdir(&at("sub"), 0o755).unwrap();
    assert_eq!((used(Path::new(DIR)).len(), used(&at("sub")).len()), (4, 5));
}

/// Drains backend 1, /n, as `plfs backend drain` does: data, then names.
fn drain_as(plfs: &Plfs, store: Arc<dyn Store>, settles: Duration) -> Result<plfs::Drained> {
    let go_on = |_| ControlFlow::Continue(());
    plfs::drain(&store, &config(), Path::new("/m"), 1, &[], go_on)?;
    plfs.drain_flat(Path::new("/m"), 1, &[], settles, go_on)
}

fn drain(store: impl Store + Clone + 'static) -> Result<plfs::Drained> {
    drain_as(&node(store.clone()), Arc::new(store), Duration::ZERO)
}

fn remove(memory: &MemStore) -> Result<()> {
    let store: Arc<dyn Store> = Arc::new(memory.clone());
    plfs::remove_backend(&store, &config(), Path::new("/m"), 1, Duration::ZERO)
}

/// Files of each kind on all backends; those of [`apart`] were renamed across. What is there.
fn of_each_kind(memory: &MemStore) -> BTreeMap<PathBuf, Vec<u8>> {
    let plfs = node(memory.clone());
    for i in 0..24 {
        put(&plfs, &at(format!("f{i}")), format!("bytes of {i}").as_bytes()).unwrap();
        put(&plfs, &at(format!("tmp{i}")), format!("renamed {i}").as_bytes()).unwrap();
        plfs.rename(&at(format!("tmp{i}")), &at(format!("r{i}"))).unwrap();
        plfs.symlink(Path::new(&format!("f{i}")), &at(format!("link{i}"))).unwrap();
    }
    for i in 0..8 {
        // Over another one, across or not.
        put(&plfs, &at(format!("tmp{i}")), format!("again {i}").as_bytes()).unwrap();
        plfs.rename(&at(format!("tmp{i}")), &at(format!("f{i}"))).unwrap();
    }
    plfs.chmod(&at("f9"), 0o640).unwrap();
    thread::sleep(Duration::from_millis(25));
    tree(&plfs, Path::new(DIR))
}

/// The names on a backend move with their files, and others make, rename and remove them after
/// that as before it; then the backend goes.
#[test]
fn a_drain_moves_names_with_their_files() {
    let memory = memory();
    let before = of_each_kind(&memory);
    let old = node(memory.clone());
    assert_eq!(tree(&old, Path::new(DIR)), before);
    let on_it = |plfs: &Plfs| {
        let all = before.keys().filter(|path| backend(plfs, path) == Path::new("/n"));
        all.count()
    };
    assert!(on_it(&old) > 10);
    let time = |plfs: &Plfs| {
        let stat = plfs.stat(&at("f9"), Links::Stay).unwrap().stat;
        (stat.mtime, stat.mode, stat.uid)
    };
    let time_before = time(&old);
    assert_eq!(errno(remove(&memory)), Some(Errno::BUSY));
    let done = drain(memory.clone()).unwrap();
    assert!(done.left.is_empty(), "{done:?}");
    assert!(done.files > 10 && done.copied_bytes > 100, "{done:?}");
    assert!(memory.list(Path::new("/n/.plfs/spread")).unwrap().is_empty());
    for plfs in [&node(memory.clone()), &old] {
        assert_eq!(tree(plfs, Path::new(DIR)), before);
        assert_eq!((on_it(plfs), time(plfs)), (0, time_before));
    }
    assert_eq!(drain(memory.clone()).unwrap().files, 0);
    remove(&memory).unwrap();
    memory.rename(Path::new("/n"), Path::new("/gone")).unwrap();
    let plfs = node(memory.clone());
    for (i, path) in before.keys().enumerate() {
        assert_eq!(errno(put_new(&old, path, b"")), Some(Errno::EXIST));
        match i % 3 {
            0 => plfs.unlink(path).unwrap(),
            1 => plfs.rename(path, &at("moved")).unwrap(),
            _ => plfs.rename(path, &at(format!("new{i}"))).unwrap(),
        }
    }
    assert_eq!(names(&old, Path::new(DIR)).len(), 1 + before.len() / 3);
    must_be_repaired(&memory);
}

/// What a drain cannot move is named and stays whole, new names go elsewhere, and it is moved when
/// it can be.
#[test]
fn what_a_drain_of_names_leaves_is_named() {
    let memory = memory();
    let plfs = node(memory.clone());
    let mut on_n = (0..200).map(|i| at(format!("x{i}"))).filter(|path| {
        put(&plfs, path, b"x").unwrap();
        let is_there = backend(&plfs, path) == Path::new("/n");
        plfs.unlink(path).unwrap();
        is_there
    });
    let mut next = || on_n.next().unwrap();
    let (open, linked, other, dir, shared, free) = (next(), next(), next(), next(), next(), next());
    for path in [&open, &linked] {
        put(&plfs, path, b"bytes").unwrap();
    }
    plfs.link(&linked, &other).unwrap();
    plfs.mkdir(&dir, 0o755).unwrap();
    put(&plfs, &dir.join("in it"), b"in it").unwrap();
    let several = OpenOptions { writers: plfs::Writers::Several, ..OpenOptions::create() };
    let two =
        [plfs.open(&shared, several).unwrap().file(), plfs.open(&shared, several).unwrap().file()];
    let twice = node(memory.clone()).open(&shared, several).unwrap().file();
    twice.write_at(b"shared", 0).unwrap();
    two.into_iter().chain([twice]).for_each(|file| file.close().unwrap());
    thread::sleep(Duration::from_millis(25));
    let before = tree(&plfs, Path::new(DIR));
    let held = plfs.open(&open, OpenOptions::create()).unwrap().file();
    let done = drain(memory.clone()).unwrap();
    let left: BTreeSet<_> = done.left.iter().flat_map(|left| left.names.clone()).collect();
    let wanted = [&open, &linked, &other, &dir, &shared].map(Clone::clone);
    assert_eq!(left, BTreeSet::from(wanted), "{done:?}");
    assert!(done.left.iter().all(|left| left.why.errno() == Errno::BUSY), "{done:?}");
    assert_eq!(errno(remove(&memory)), Some(Errno::BUSY));
    assert_eq!(tree(&node(memory.clone()), Path::new(DIR)), before);
    // Nothing new is put there, and what is there is written, renamed and removed.
    let plfs = node(memory.clone());
    put_new(&plfs, &free, b"new").unwrap();
    assert_ne!(backend(&plfs, &free), Path::new("/n"));
    held.write_at(b"BYTES", 0).unwrap();
    held.close().unwrap();
    assert_eq!(get(&plfs, &open).unwrap(), b"BYTES");
    assert_eq!(errno(put_new(&plfs, &open, b"")), Some(Errno::EXIST));
    plfs.unlink(&other).unwrap();
    plfs.rename(&shared, &at("was shared")).unwrap();
    plfs.rename(&dir, &at("dir")).unwrap();
    assert_eq!(get(&plfs, &at("dir").join("in it")).unwrap(), b"in it");
    thread::sleep(Duration::from_millis(25));
    let done = drain(memory.clone()).unwrap();
    let left: BTreeSet<_> = done.left.iter().flat_map(|left| left.names.clone()).collect();
    assert_eq!(left, BTreeSet::from([at("dir"), at("was shared")]), "{done:?}");
    assert_eq!(get(&plfs, &open).unwrap(), b"BYTES");
    assert_eq!(get(&plfs, &linked).unwrap(), b"bytes");
    plfs.unlink(&at("was shared")).unwrap();
    plfs.unlink(&at("dir").join("in it")).unwrap();
    plfs.rmdir(&at("dir")).unwrap();
    assert!(drain(memory.clone()).unwrap().left.is_empty());
    remove(&memory).unwrap();
}

/// The drain dies at each of its calls, and there the power goes, too. All names are what they were
/// for all who look, can be changed by all, and when it is run again nothing is left.
#[test]
fn whoever_dies_in_a_drain_of_names_has_lost_none() {
    let source = memory();
    let plfs = node(source.clone());
    let (mut here, mut there) = (Vec::new(), Vec::new());
    for i in 0..60 {
        let path = at(format!("f{i}"));
        put(&plfs, &path, format!("bytes of {i}").as_bytes()).unwrap();
        match backend(&plfs, &path) == Path::new("/n") {
            true => here.push(path),
            false => there.push(path),
        }
    }
    // Two on it, one of which is renamed to elsewhere; one from elsewhere with its place there.
    let keep = [here[0].clone(), here[1].clone(), there[0].clone()];
    for path in here[2..].iter().chain(&there[1..]) {
        plfs.unlink(path).unwrap();
    }
    plfs.rename(&keep[1], &there[1]).unwrap();
    plfs.rename(&keep[2], &here[2]).unwrap();
    plfs.symlink(Path::new("x"), &here[3]).unwrap();
    put(&plfs, Path::new("/m/d/x"), b"of the link").unwrap();
    for path in [&keep[0], &there[1], &here[2], &at("x")] {
        plfs.open(path, OpenOptions::create()).unwrap().file().sync().unwrap();
    }
    plfs.sync_flat(Path::new(DIR)).unwrap();
    for backend in BACKENDS {
        let spread = Path::new(backend).join(".plfs/spread");
        for entry in source.list(&spread).unwrap() {
            source.sync_dir(&spread.join(entry.name)).unwrap();
        }
        for dir in spread.ancestors() {
            source.sync_dir(dir).unwrap();
        }
    }
    source.sync_dir(Path::new(DIR)).unwrap();
    thread::sleep(Duration::from_millis(25));
    let before = tree(&plfs, Path::new(DIR));
    assert_eq!(before.len(), 5, "{before:?}");
    let first = plfs_testkit::seed();
    for (points, cut) in in_turn(1..).enumerate() {
        let memory = source.crash();
        let faults = FaultStore::new(Arc::new(memory.clone()));
        faults.kill_at(cut);
        let done = drain(faults.clone());
        let is_done = done.as_ref().is_ok_and(|done| done.left.is_empty()) && faults.calls() < cut;
        let last = faults.log().last().map(|call| call.to_string()).unwrap_or_default();
        drop(done);
        let story = format!("dead at {cut}: {last}");
        let must_be = |memory: &MemStore, story: &str| {
            let plfs = node(memory.clone());
            for (path, bytes) in &before {
                let found = get(&plfs, path).unwrap_or_else(|error| panic!("{story}: {error}"));
                assert_eq!(&found, bytes, "{story}: {}", path.display());
            }
            assert_eq!(tree(&plfs, Path::new(DIR)), before, "{story}");
        };
        let go_on = |memory: &MemStore, story: &str| {
            let done = drain(memory.clone()).unwrap_or_else(|error| panic!("{story}: {error}"));
            assert!(done.left.is_empty(), "{story}: {done:?}");
            must_be(memory, story);
            remove(memory).unwrap_or_else(|error| {
                let left = memory.list(Path::new("/n/.plfs/spread")).unwrap();
                panic!("{story}: {error}: {left:?}")
            });
            let copies = |root: &&str| {
                let entries = memory.list(&Path::new(root).join(".plfs")).unwrap();
                entries.iter().any(|entry| entry.name.to_string_lossy().contains("copy"))
            };
            assert!(!BACKENDS.iter().any(copies), "{story}");
        };
        must_be(&memory, &story);
        for seed in 0..3 {
            let left = match seed {
                0 => memory.crash(),
                seed => memory.crash_with(first + cut * 100 + seed),
            };
            let story = format!("{story}, power lost by seed {seed}");
            must_be(&left, &story);
            go_on(&left, &story);
        }
        // Somebody changes all names before the drain goes on. Those that are closed he has to wait
        // for: once is enough.
        if points % 3 == 0 && !is_closed(&memory) {
            let plfs = node(memory.clone());
            for (i, path) in before.keys().enumerate() {
                let to = at(format!("changed{i}"));
                match (points / 3 + i) % 4 {
                    0 => plfs.unlink(path).and_then(|()| put_new(&plfs, &to, b"new")),
                    1 => plfs.rename(path, &to),
                    2 => put_new(&plfs, &to, b"other").and_then(|()| plfs.rename(&to, path)),
                    _ => put(&plfs, path, b"written"),
                }
                .unwrap_or_else(|error| panic!("{story}: {}: {error}", path.display()));
            }
            let changed = tree_of_links(&plfs);
            thread::sleep(Duration::from_millis(25));
            let done = drain(memory.clone()).unwrap_or_else(|error| panic!("{story}: {error}"));
            assert!(done.left.is_empty(), "{story}: {done:?}");
            assert_eq!(tree_of_links(&node(memory.clone())), changed, "{story}");
            remove(&memory).unwrap();
        } else {
            go_on(&memory, &story);
        }
        if is_done {
            assert!(cut > 100, "{cut}");
            explored(points as u64 + 1, "crash points");
            return;
        }
    }
}

/// The backends that names move to are full from each call on that takes room there: all names are
/// what they were, those that stay are told, and when there is room again the drain goes on.
#[test]
fn a_drain_of_names_that_finds_no_room_costs_nothing() {
    for n in 1.. {
        let memory = memory();
        let plfs = node(memory.clone());
        for i in 0..24 {
            put(&plfs, &at(format!("f{i}")), format!("bytes of {i}").as_bytes()).unwrap();
        }
        for i in 0..4 {
            plfs.rename(&at(format!("f{i}")), &at(format!("r{i}"))).unwrap();
        }
        thread::sleep(Duration::from_millis(25));
        let before = tree(&plfs, Path::new(DIR));
        let faults = FaultStore::new(Arc::new(memory.clone()));
        for backend in BACKENDS.iter().filter(|backend| **backend != "/n") {
            faults.full_at(backend, n);
        }
        let done = drain(faults.clone());
        let story = format!("no room from call {n} on: {done:?}");
        let was_full = faults.log().iter().any(|call| call.error == Some(Errno::NOSPC));
        match &done {
            Ok(done) => {
                assert!(done.left.iter().all(|left| left.why.errno() == Errno::NOSPC), "{story}");
            }
            Err(error) => assert_eq!(error.errno(), Errno::NOSPC, "{story}"),
        }
        assert_eq!(tree(&node(memory.clone()), Path::new(DIR)), before, "{story}");
        thread::sleep(Duration::from_millis(25));
        let done = drain(memory.clone()).unwrap_or_else(|error| panic!("{story}: {error}"));
        assert!(done.left.is_empty(), "{story}, then {done:?}");
        assert_eq!(tree(&node(memory.clone()), Path::new(DIR)), before, "{story}");
        remove(&memory).unwrap_or_else(|error| panic!("{story}: {error}"));
        must_be_repaired(&memory);
        if !was_full {
            assert!(n > 10, "{n} calls");
            return;
        }
    }
}

/// [`tree`] of names of which some are links that lead nowhere.
fn tree_of_links(plfs: &Plfs) -> BTreeMap<PathBuf, Vec<u8>> {
    let text = |path: &Path| match plfs.readlink(path) {
        Ok(text) => text.into_os_string().into_encoded_bytes(),
        Err(_) => get(plfs, path).unwrap(),
    };
    names(plfs, Path::new(DIR)).into_iter().map(|name| (at(&name), text(&at(&name)))).collect()
}

/// Whether names wait for the next map.
fn is_closed(memory: &MemStore) -> bool {
    memory.list(Path::new(DIR)).unwrap().iter().any(|entry| {
        let path = at(&entry.name);
        let mut text = [0; 4096];
        let n = memory.open(&path, plfs::store::Open::READ).unwrap().read_at(&mut text, 0).unwrap();
        String::from_utf8_lossy(&text[..n]).contains("\nto ")
    })
}

/// Names are made, replaced, renamed and removed by three nodes while a drain goes on, and the next
/// one, until all is moved: each name has one winner, each file the bytes that were written last,
/// and none is missing for a moment.
#[test]
fn names_are_used_while_they_are_drained() {
    let memory = memory();
    let plfs = node(memory.clone());
    for i in 0..200 {
        put(&plfs, &at(format!("stays{i}")), format!("{i}").as_bytes()).unwrap();
    }
    thread::sleep(Duration::from_millis(25));
    let (made, told) = (AtomicU64::new(0), AtomicU64::new(0));
    let turn = AtomicU64::new(0);
    let own = |plfs: &Plfs| {
        let me = turn.fetch_add(1, Ordering::Relaxed);
        let (one, two) = (at(format!("own{me}")), at(format!("renamed{me}")));
        put_new(plfs, &one, b"one").unwrap();
        assert_eq!(errno(put_new(plfs, &one, b"")), Some(Errno::EXIST));
        assert_eq!(get(plfs, &one).unwrap(), b"one");
        plfs.rename(&one, &two).unwrap();
        assert_eq!(errno(get(plfs, &one)), Some(Errno::NOENT));
        put(plfs, &one, b"again").unwrap();
        plfs.rename(&one, &two).unwrap();
        assert_eq!(get(plfs, &two).unwrap(), b"again");
        if me.is_multiple_of(2) {
            plfs.unlink(&two).unwrap();
            assert_eq!(errno(get(plfs, &two)), Some(Errno::NOENT));
        }
        made.fetch_add(1, Ordering::Relaxed);
    };
    let reads = |plfs: &Plfs| {
        let i = told.fetch_add(1, Ordering::Relaxed) % 200;
        let name = at(format!("stays{i}"));
        assert_eq!(get(plfs, &name).unwrap(), format!("{i}").as_bytes());
        plfs.stat(&name, Links::Stay).unwrap();
        if i == 0 {
            let all = names(plfs, Path::new(DIR));
            let missing = (0..200).find(|i| !all.contains(Path::new(&format!("stays{i}"))));
            assert_eq!(missing, None);
        }
    };
    let winners = AtomicU64::new(0);
    let races = |plfs: &Plfs| {
        // All make the same names; who has made one removes it.
        for i in 0..20 {
            let name = at(format!("race{i}"));
            match put_new(plfs, &name, b"") {
                Ok(()) => {
                    winners.fetch_add(1, Ordering::Relaxed);
                    plfs.unlink(&name).unwrap();
                }
                Err(error) => assert_eq!(error.errno(), Errno::EXIST, "{error}"),
            }
        }
    };
    race(
        &memory,
        |_| {
            for _ in 0..100 {
                let node = node(memory.clone());
                let settles = plfs::SETTLES;
                let done = drain_as(&node, Arc::new(memory.clone()), settles).unwrap();
                let open = |left: &plfs::Left| left.why.to_string().contains("it is open");
                assert!(done.left.iter().all(open), "{done:?}");
                if done.left.is_empty() && remove(&memory).is_ok() {
                    break;
                }
            }
        },
        &[&own, &own, &reads, &races, &races],
    );
    assert!(made.load(Ordering::Relaxed) > 0 && winners.load(Ordering::Relaxed) > 0);
    drain(memory.clone()).map(drop).or_else(|_| remove(&memory)).unwrap();
    let plfs = node(memory.clone());
    assert!(memory.list(Path::new("/n/.plfs/spread")).unwrap().is_empty());
    let all = names(&plfs, Path::new(DIR));
    for i in 0..turn.load(Ordering::Relaxed) {
        let name = format!("renamed{i}");
        assert_eq!(all.contains(Path::new(&name)), i % 2 == 1, "{name}");
        if i % 2 == 1 {
            assert_eq!(get(&plfs, &at(&name)).unwrap(), b"again");
        }
    }
    for i in 0..200 {
        assert_eq!(get(&plfs, &at(format!("stays{i}"))).unwrap(), format!("{i}").as_bytes());
    }
    assert_eq!(all.len() as u64, 200 + turn.load(Ordering::Relaxed) / 2);
}

/// A file was written after it was copied and before the copy got its name, by a program that set
/// its times back as rsync and tar do; another one got attributes then. Both were lost.
#[test]
fn what_is_written_with_its_old_time_while_a_drain_copies_it_is_there() {
    let memory = memory();
    let plfs = node(memory.clone());
    let name = (0..).map(|i| at(format!("f{i}"))).find(|name| {
        put(&plfs, name, b"old").unwrap();
        backend(&plfs, name) == Path::new("/n")
    });
    let name = name.unwrap();
    thread::sleep(Duration::from_millis(25));
    let before = plfs.stat(&name, Links::Stay).unwrap().stat;
    let faults = FaultStore::new(Arc::new(memory.clone()));
    let (other, path) = (node(memory.clone()), name.clone());
    let times = (Some(before.atime), Some(before.mtime));
    faults.before("spread.copy.", Op::SyncAll, move || {
        put(&other, &path, b"new").unwrap();
        other.set_times(&path, times.0, times.1).unwrap();
    });
    let done = drain(faults).unwrap();
    assert!(done.left.is_empty(), "{done:?}");
    assert_eq!(get(&plfs, &name).unwrap(), b"new");
    assert_ne!(backend(&plfs, &name), Path::new("/n"));
}

/// Who opened a file at the moment when a drain asked whether it is open ended the drain: the
/// kernel sends a signal to who has a lease.
#[test]
fn who_opens_a_file_does_not_end_who_asks_whether_it_is_open() {
    let (store, path) = (PosixStore::new(), fresh_dir().join("file"));
    let file = store.open(&path, Open::create_new(0o600)).unwrap();
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                drop(store.open(&path, Open::READ).unwrap());
            }
        });
        for _ in 0..200_000 {
            file.is_open_elsewhere();
        }
        is_done.store(true, Ordering::Relaxed);
    });
    assert!(!file.is_open_elsewhere());
}

/// A backend goes away while names are drained from it, or to it.
#[test]
fn a_backend_that_is_lost_in_a_drain_of_names_is_named() {
    for (lost, id) in [("/n", "0001"), ("/o", "0002"), ("/p", "0003")] {
        for (when, op) in
            [("spread.copy.", Op::Open), ("spread/", Op::Link), ("spread/", Op::Rmdir)]
        {
            let memory = memory();
            let before = of_each_kind(&memory);
            let faults = FaultStore::new(Arc::new(memory.clone()));
            let away = memory.clone();
            faults.before(when, op, move || {
                let _ = away.rename(Path::new(lost), Path::new("/away"));
            });
            let done = drain(faults.clone());
            let story = format!("{lost} lost before {op:?} of {when}: {done:?}");
            let is_lost = memory.stat(Path::new("/away"), Links::Stay).is_ok();
            let is_named = |error: &Error| error.to_string().contains(id);
            match &done {
                Ok(done) => assert!(done.left.is_empty() || is_lost, "{story}"),
                Err(error) => assert!(is_lost && is_named(error), "{story}"),
            }
            if is_lost {
                let plfs = node(memory.clone());
                for (path, bytes) in &before {
                    match get(&plfs, path) {
                        Ok(found) => assert_eq!(found, *bytes, "{story}"),
                        Err(error) => assert_eq!(error.errno(), Errno::IO, "{story}: {error}"),
                    }
                }
                memory.rename(Path::new("/away"), Path::new(lost)).unwrap();
            }
            assert_eq!(tree(&node(memory.clone()), Path::new(DIR)), before, "{story}");
            let done = drain(memory.clone()).unwrap();
            assert!(done.left.is_empty(), "{story}, then {done:?}");
            assert_eq!(tree(&node(memory.clone()), Path::new(DIR)), before, "{story}");
            remove(&memory).unwrap();
        }
    }
}

#[test]
fn what_would_hide_names_is_refused() {
    let memory = memory();
    let plfs = node(memory.clone());
    let flat = Layout { workload: Some(Workload::Flat), ..Layout::default() };
    memory.mkdir(Path::new("/m/e"), 0o755).unwrap();
    put(&plfs, Path::new("/m/e/f"), b"x").unwrap();
    assert_eq!(errno(plfs.make_flat(Path::new("/m/e"), &flat)), Some(Errno::NOTEMPTY));
    memory.link(&at(".plfs-layout"), Path::new("/m/e/.plfs-layout")).unwrap();
    let by_hand = node(memory.clone());
    for said in [
        by_hand.list(Path::new("/m/e")).map(drop),
        get(&by_hand, Path::new("/m/e/f")).map(drop),
        put(&by_hand, Path::new("/m/e/new"), b""),
    ] {
        assert_eq!(errno(said), Some(Errno::OPNOTSUPP));
    }
    memory.unlink(Path::new("/m/e/.plfs-layout")).unwrap();
    assert_eq!(get(&node(memory.clone()), Path::new("/m/e/f")).unwrap(), b"x");
    put(&plfs, &at("f"), b"x").unwrap();
    assert_eq!(errno(plfs.set_directory_layout(Path::new(DIR), None)), Some(Errno::NOTEMPTY));
    assert_eq!(get(&plfs, &at("f")).unwrap(), b"x");
    // To the same with other backends: those of directories that are made from now on.
    let listed = Layout { backends: Some(Backends::Listed(vec![0, 1])), ..flat.clone() };
    plfs.make_flat(Path::new(DIR), &listed).unwrap();
    assert_eq!(get(&plfs, &at("f")).unwrap(), b"x");
    plfs.mkdir(&at("sub"), 0o755).unwrap();
    assert!(plfs.make_flat(&at("sub"), &flat).is_err());
    assert_eq!(errno(plfs.rename(&at("f"), Path::new("/m/f"))), Some(Errno::XDEV));
    let plfs = node(memory.clone());
    assert_eq!(errno(plfs.rename(Path::new("/m/e/f"), &at("g"))), Some(Errno::XDEV));
    plfs.unlink(&at("f")).unwrap();
    plfs.rmdir(&at("sub")).unwrap();
    plfs.set_directory_layout(Path::new(DIR), None).unwrap();
    put(&plfs, &at("f"), b"ordinary").unwrap();
    assert_eq!(backend(&plfs, &at("f")), Path::new("/m"));
}

/// What a directory has, with what is in it: a file's bytes, or what is in a subdirectory.
fn tree(plfs: &Plfs, dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for name in names(plfs, dir) {
        let path = dir.join(name);
        let stat = plfs.stat(&path, Links::Stay).unwrap().stat;
        if stat.kind == Kind::Dir {
            all.insert(path.clone(), b"dir".to_vec());
            all.extend(tree(plfs, &path));
        } else {
            all.insert(path.clone(), get(plfs, &path).unwrap());
        }
    }
    all
}

/// One call on a flat directory that somebody dies in.
type Act = (&'static str, fn(&Plfs, &Names3) -> Result<()>);
type Names3 = (PathBuf, PathBuf, PathBuf);

/// What there is before: `a` and `b` on two backends, `c` is free and on the one of `a`; two
/// directories, one of which is empty.
fn before(plfs: &Plfs, (a, b, _): &Names3) {
    put(plfs, a, b"old a").unwrap();
    put(plfs, b, b"old b").unwrap();
    for dir in ["empty", "full"] {
        plfs.mkdir(&at(dir), 0o755).unwrap();
    }
    put(plfs, &at("full").join("f"), b"in full").unwrap();
    put(plfs, &at("empty").join("f"), b"").unwrap();
    plfs.unlink(&at("empty").join("f")).unwrap();
}

const ACTS: &[Act] = &[
    ("create", |plfs, (_, _, c)| put_new(plfs, c, b"")),
    ("create in a new directory", |plfs, _| put_new(plfs, &at("empty").join("x"), b"")),
    ("unlink", |plfs, (a, ..)| plfs.unlink(a)),
    ("mkdir", |plfs, (_, _, c)| plfs.mkdir(c, 0o755)),
    ("rmdir", |plfs, _| plfs.rmdir(&at("empty"))),
    ("rename over across", |plfs, (a, b, _)| plfs.rename(a, b)),
    ("rename over back", |plfs, (a, b, _)| plfs.rename(b, a)),
    ("rename across", |plfs, (_, b, c)| plfs.rename(b, c)),
    ("rename beside", |plfs, (a, _, c)| plfs.rename(a, c)),
    ("link across", |plfs, (_, b, c)| plfs.link(b, c)),
    ("rename a directory", |plfs, (_, _, c)| plfs.rename(&at("full"), c)),
    ("move a directory", |plfs, _| plfs.rename(&at("empty"), &at("full").join("x"))),
    ("move it elsewhere", |plfs, _| plfs.rename(&at("empty"), &at("full").join("z"))),
    ("move one with a name", |plfs, _| plfs.rename(&at("full"), &at("empty").join("y"))),
    ("rename into a directory", |plfs, (a, ..)| plfs.rename(a, &at("full").join("y"))),
];

/// Someone dies at each call of each operation; then, if `moved` is set, another one on the same
/// names. All others see it done or not begun, and can go on.
#[test]
fn whoever_dies_in_a_call_has_done_it_or_not_begun() {
    let mut points = 0;
    for (what, act) in ACTS {
        // The same done whole elsewhere.
        let whole = {
            let memory = memory();
            let plfs = node(memory.clone());
            let three = apart(&plfs);
            before(&plfs, &three);
            act(&plfs, &three).unwrap();
            tree(&node(memory), Path::new(DIR))
        };
        for n in in_turn(1..) {
            let memory = memory();
            let three = apart(&node(memory.clone()));
            before(&node(memory.clone()), &three);
            let old = tree(&node(memory.clone()), Path::new(DIR));
            let store = FaultStore::new(Arc::new(memory.clone()));
            let dying = node(store.clone());
            // It knows the directory already.
            let _ = dying.stat(&three.2, Links::Stay);
            store.reset();
            store.kill_at(n);
            let done = act(&dying, &three).is_ok() && store.calls() < n;
            let seen = tree(&node(memory.clone()), Path::new(DIR));
            assert!(seen == old || seen == whole, "{what}, dead at {n}: {seen:?} of {old:?}");
            assert!(!done || seen == whole, "{what}: {seen:?}");
            points += 1;
            if n % 2 == 0 {
                // A repair changes nothing that anybody sees, and what it leaves holds files.
                must_be_repaired(&memory);
                assert_eq!(tree(&node(memory.clone()), Path::new(DIR)), seen, "{what} at {n}");
            }
            // Who comes next does it, if it was not done.
            let next = node(memory.clone());
            if seen == old {
                act(&next, &three).unwrap_or_else(|error| panic!("{what}, dead at {n}: {error}"));
            }
            assert_eq!(tree(&next, Path::new(DIR)), whole, "{what} after a death at {n}");
            // Then all can be removed.
            let mut paths: Vec<_> = whole.iter().collect();
            paths.reverse();
            for (path, bytes) in paths {
                let removed = match &bytes[..] {
                    b"dir" => next.rmdir(path),
                    _ => next.unlink(path),
                };
                removed.unwrap_or_else(|error| panic!("{what}, dead at {n}: {error}"));
            }
            next.rmdir(Path::new(DIR)).unwrap();
            must_be_repaired(&memory);
            if done {
                break;
            }
        }
    }
    explored(points, "crash points");
}

/// A power cut after an operation that returned: what was there before stays, renames across
/// backends are durable, and none leaves a name without anything.
#[test]
fn a_power_cut_leaves_one_of_two_names() {
    for seed in seeds(rounds("PLFS_FLAT_CUTS", 30)) {
        let memory = memory();
        let three = apart(&node(memory.clone()));
        let (a, b, _) = &three;
        let plfs = node(memory.clone());
        for (path, bytes) in [(a, b"old a"), (b, b"old b")] {
            put(&plfs, path, bytes).unwrap();
            plfs.open(path, OpenOptions::create()).unwrap().file().sync().unwrap();
            let place = plfs.placed(path, Links::Stay).unwrap().into_owned();
            memory.sync_dir(place.parent().unwrap()).unwrap();
        }
        let mut rng = Rng::new(seed);
        let store = FaultStore::new(Arc::new(memory.clone()));
        let dying = node(store.clone());
        let n = 1 + rng.below(60);
        store.kill_at(n);
        let done = dying.rename(a, b).is_ok();
        let left = node(memory.crash_with(rng.next_u64()));
        let (at_a, at_b) = (get(&left, a), get(&left, b));
        match (at_a.as_deref(), at_b.as_deref()) {
            (Ok(b"old a"), Ok(b"old b")) if !done => {}
            // To this store a rename between two directories is two changes, until both are synced.
            (Ok(b"old a"), Ok(b"old a")) if !done => {}
            (Err(error), Ok(b"old a")) if error.errno() == Errno::NOENT => {}
            other => panic!("seed {seed}, dead at {n}, done {done}: {other:?}"),
        }
    }
    explored(rounds("PLFS_FLAT_CUTS", 30), "power losses");
}

/// Threads of nodes of their own that do this until the first is done.
fn race(memory: &MemStore, first: impl FnOnce(&Plfs) + Send, others: &[&(dyn Fn(&Plfs) + Sync)]) {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for other in others {
            let done = &done;
            scope.spawn(move || {
                let plfs = node(memory.clone());
                while !done.load(Ordering::Relaxed) {
                    other(&plfs);
                }
            });
        }
        first(&node(memory.clone()));
        done.store(true, Ordering::Relaxed);
    });
}

/// Who looks while others rename over a name finds what it was or what it becomes.
#[test]
fn a_name_that_is_replaced_is_always_there() {
    let memory = memory();
    let (a, b, c) = apart(&node(memory.clone()));
    for target in [&a, &b] {
        put(&node(memory.clone()), target, b"first").unwrap();
        let looks = AtomicU64::new(0);
        race(
            &memory,
            |plfs| {
                // And on until the other one has run at all.
                let least = rounds("PLFS_FLAT_RACES", 200);
                for i in (0..).take_while(|i| *i < least || looks.load(Ordering::Relaxed) == 0) {
                    let from = if i % 2 == 0 { &c } else { &at(format!("tmp{i}")) };
                    put(plfs, from, b"other").unwrap();
                    plfs.rename(from, target).unwrap();
                    assert_eq!(errno(get(plfs, from)), Some(Errno::NOENT));
                }
            },
            &[&|plfs| {
                let bytes = get(plfs, target).unwrap();
                assert!(bytes == b"first" || bytes == b"other", "{bytes:?}");
                assert_eq!(plfs.stat(target, Links::Stay).unwrap().stat.len, 5);
                // What comes and goes may be seen or not; this is always there.
                let listed = names(plfs, Path::new(DIR));
                assert!(listed.contains(Path::new(target.file_name().unwrap())), "{listed:?}");
                looks.fetch_add(1, Ordering::Relaxed);
            }],
        );
        node(memory.clone()).unlink(target).unwrap();
    }
    must_be_clean(&memory);
}

/// The calls of a mount, which knows directories by their inodes.
#[test]
fn a_directory_that_is_open_is_one_by_its_path() {
    let memory = memory();
    let (plfs, other) = (node(memory.clone()), node(memory.clone()));
    let top = plfs.flat_dir(Path::new(DIR)).unwrap().unwrap();
    assert!(plfs.flat_dir(Path::new("/m")).unwrap().is_none());
    let name = OsStr::new;
    let dir = |path: &Path| memory.mkdir(path, 0o755);
    let made = |done: std::result::Result<(), Errno>| {
        done.map_err(|errno| Error::Io { op: "make", path: PathBuf::new(), errno })
    };
    plfs.make_in(&top, name("sub"), &mut |path| made(dir(path))).unwrap();
    let sub = top.at(plfs.place_in(&top, name("sub")).unwrap());
    for i in 0..20 {
        let file = format!("f{i}");
        plfs.make_in(&sub, name(&file), &mut |path| made(memory.symlink(Path::new("x"), path)))
            .unwrap();
        let again = plfs.make_in(&sub, name(&file), &mut |path| made(dir(path)));
        assert_eq!(errno(again), Some(Errno::EXIST));
        plfs.link_in((&sub, name(&file)), (&top, name(&file))).unwrap();
        plfs.rename_in((&sub, name(&file)), (&sub, name(&format!("g{i}"))), None).unwrap();
        assert_eq!(other.readlink(&at("sub").join(format!("g{i}"))).unwrap(), Path::new("x"));
        assert_eq!(other.readlink(&at(&file)).unwrap(), Path::new("x"));
        assert_eq!(errno(plfs.place_in(&sub, name(&file))), Some(Errno::NOENT));
    }
    assert_eq!(names(&other, &at("sub")).len(), plfs.list_in(&sub).unwrap().len());
    // Elsewhere it is the same one, and what has its path is another.
    other.rename(&at("sub"), &at("moved")).unwrap();
    other.mkdir(&at("sub"), 0o700).unwrap();
    plfs.forget_flat();
    let moved = top.at(plfs.place_in(&top, name("moved")).unwrap());
    assert_eq!(plfs.list_in(&moved).unwrap().len(), 20);
    assert_eq!(errno(plfs.rmdir_in(&top, name("moved"))), Some(Errno::NOTEMPTY));
    plfs.like_home(&moved, 0o711, (0, 0)).unwrap();
    let mut modes = BTreeSet::new();
    plfs.on_flat(&moved, |path| {
        modes.insert(memory.stat(path, Links::Stay).unwrap().mode & 0o777);
        Ok(())
    })
    .unwrap();
    assert_eq!(modes.into_iter().collect::<Vec<_>>(), [0o711, 0o755]);
    for i in 0..20 {
        plfs.unlink_in(&moved, name(&format!("g{i}"))).unwrap();
        plfs.unlink_in(&top, name(&format!("f{i}"))).unwrap();
    }
    for dir in ["moved", "sub"] {
        plfs.rmdir_in(&top, name(dir)).unwrap();
    }
    assert!(names(&other, Path::new(DIR)).is_empty());
    must_be_clean(&memory);
}

/// The ids of backends are a root's own: a file went to the backend that has the same id in the
/// other root, where nobody looked.
#[test]
fn a_rename_to_a_flat_directory_of_another_root_is_refused() {
    let memory = memory();
    let store: Arc<dyn Store> = Arc::new(memory.clone());
    for dir in ["/other", "/other/d", "/q", "/r"] {
        memory.mkdir(Path::new(dir), 0o755).unwrap();
    }
    for dir in ["/other", "/q", "/r"] {
        make_plfs(&memory, dir);
    }
    for backend in ["/r", "/q"] {
        add_backend(&store, &config(), Path::new("/other"), Path::new(backend)).unwrap();
    }
    let plfs = node(memory.clone());
    plfs.make_flat(Path::new("/other/d"), &Layout::default()).unwrap();
    for i in 0..20 {
        let (from, to) = (at(format!("f{i}")), Path::new("/other/d").join(format!("f{i}")));
        put(&plfs, &from, b"x").unwrap();
        assert_eq!(errno(plfs.rename(&from, &to)), Some(Errno::XDEV));
        assert_eq!(errno(plfs.link(&from, &to)), Some(Errno::XDEV));
        assert_eq!(get(&plfs, &from).unwrap(), b"x");
        assert_eq!(errno(get(&plfs, &to)), Some(Errno::NOENT));
    }
}

/// What a node tries.
type Try<'a> = dyn Fn(&Plfs) -> Result<()> + Sync + 'a;

/// Of several that make, rename or remove the same name at once one does it.
#[test]
fn a_race_for_a_name_has_one_winner() {
    let memory = memory();
    let plfs = node(memory.clone());
    let (a, b, c) = apart(&plfs);
    let won = |acts: &[&Try<'_>]| -> usize {
        let barrier = std::sync::Barrier::new(acts.len());
        thread::scope(|scope| {
            let threads: Vec<_> = acts
                .iter()
                .map(|act| {
                    let (memory, barrier) = (&memory, &barrier);
                    scope.spawn(move || {
                        let plfs = node(memory.clone());
                        let _ = plfs.is_flat(Path::new(DIR));
                        barrier.wait();
                        act(&plfs)
                    })
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| match thread.join().unwrap() {
                    Ok(()) => 1,
                    Err(error) => {
                        let errno = error.errno();
                        assert!(
                            matches!(errno, Errno::EXIST | Errno::NOENT | Errno::ISDIR),
                            "{error}"
                        );
                        0
                    }
                })
                .sum()
        })
    };
    for _ in 0..rounds("PLFS_FLAT_RACES", 200) {
        assert_eq!(
            won(&[&|plfs| put_new(plfs, &a, b"1"), &|plfs| put_new(plfs, &a, b"2"), &|plfs| plfs
                .mkdir(&a, 0o755),]),
            1
        );
        if plfs.stat(&a, Links::Stay).unwrap().stat.kind == Kind::Dir {
            plfs.rmdir(&a).unwrap();
            put(&plfs, &a, b"3").unwrap();
        }
        // To two names, and away: beside it and across.
        assert_eq!(
            won(&[&|plfs| plfs.rename(&a, &b), &|plfs| plfs.rename(&a, &c), &|plfs| plfs
                .unlink(&a),]),
            1
        );
        let left = names(&plfs, Path::new(DIR));
        assert!(left.len() <= 1, "{left:?}");
        for name in left {
            plfs.unlink(&at(name)).unwrap();
        }
        // Two files to one name, on all ways.
        put(&plfs, &a, b"a").unwrap();
        put(&plfs, &c, b"c").unwrap();
        assert_eq!(won(&[&|plfs| plfs.rename(&a, &b), &|plfs| plfs.rename(&c, &b)]), 2);
        assert_eq!(names(&plfs, Path::new(DIR)).len(), 1);
        assert!(matches!(get(&plfs, &b).unwrap()[..], [b'a' | b'c']));
        plfs.unlink(&b).unwrap();
        assert!(names(&plfs, Path::new(DIR)).is_empty());
    }
    must_be_clean(&memory);
}

/// A directory that goes takes nothing with it that somebody was told is there.
#[test]
fn a_directory_is_removed_empty_or_not_at_all() {
    let memory = memory();
    let sub = at("sub");
    let (removed, made) = (AtomicU64::new(0), AtomicU64::new(0));
    race(
        &memory,
        |plfs| {
            while removed.load(Ordering::Relaxed) < rounds("PLFS_FLAT_RACES", 200)
                || made.load(Ordering::Relaxed) == 0
            {
                let name = sub.join(format!("f{}", made.load(Ordering::Relaxed) % 50));
                match put_new(plfs, &name, b"x") {
                    Ok(()) => {
                        made.fetch_add(1, Ordering::Relaxed);
                        assert_eq!(get(plfs, &name).unwrap(), b"x");
                        assert_eq!(names(plfs, &sub).len(), 1);
                        plfs.unlink(&name).unwrap();
                    }
                    Err(error) => assert_eq!(error.errno(), Errno::NOENT, "{error}"),
                }
            }
        },
        &[
            &|plfs| match plfs.rmdir(&sub) {
                Ok(()) => drop(removed.fetch_add(1, Ordering::Relaxed)),
                Err(error) => {
                    assert!(matches!(error.errno(), Errno::NOENT | Errno::NOTEMPTY), "{error}")
                }
            },
            &|plfs| match plfs.mkdir(&sub, 0o755) {
                Ok(()) => {}
                Err(error) => assert_eq!(error.errno(), Errno::EXIST, "{error}"),
            },
        ],
    );
    assert!(made.load(Ordering::Relaxed) > 0);
    let plfs = node(memory.clone());
    let _ = plfs.rmdir(&sub);
    assert!(names(&plfs, Path::new(DIR)).is_empty());
    plfs.rmdir(Path::new(DIR)).unwrap();
}

/// A directory got into itself by a name that a link leads to, and all in it was lost: only the
/// texts of the two names were compared.
#[test]
fn a_directory_is_not_moved_into_itself() {
    let memory = memory();
    let plfs = node(memory.clone());
    let (d, sub) = (at("d"), at("d").join("sub"));
    plfs.mkdir(&d, 0o755).unwrap();
    plfs.mkdir(&sub, 0o755).unwrap();
    put(&plfs, &sub.join("f"), b"important").unwrap();
    plfs.symlink(Path::new("d"), &at("l")).unwrap();
    plfs.symlink(Path::new("d/sub/../sub"), &at("deep")).unwrap();
    let top = plfs.flat_dir(Path::new(DIR)).unwrap().unwrap();
    let open = |path: &Path| top.at(plfs.placed(path, Links::Stay).unwrap().into_owned());
    let name = OsStr::new::<str>;
    for i in 0..20 {
        let new = format!("x{i}");
        for dir in [at("l"), at("deep"), d.clone(), sub.clone(), at("l").join("sub")] {
            assert_eq!(errno(plfs.rename(&d, &dir.join(&new))), Some(Errno::INVAL));
        }
        // As a mount does it, which may know where the other one is, or not, or wrongly.
        let known = (top.clone(), vec!["d".into(), "sub".into()]);
        let wrong = (top.clone(), vec!["d".into()]);
        for line in [None, Some(&known), Some(&wrong)] {
            let to = (&open(&sub), name(&new));
            assert_eq!(errno(plfs.rename_in((&top, name("d")), to, line)), Some(Errno::INVAL));
        }
    }
    // What only seems to lie in it does not.
    plfs.mkdir(&at("other"), 0o755).unwrap();
    plfs.symlink(Path::new("../other"), &d.join("out")).unwrap();
    plfs.rename(&sub, &at("l").join("out").join("sub")).unwrap();
    plfs.rename(&d, &d.join("out").join("d")).unwrap();
    assert_eq!(get(&plfs, &at("other").join("sub").join("f")).unwrap(), b"important");
    plfs.rename_in((&open(&at("other")), name("d")), (&top, name("d")), None).unwrap();
    assert_eq!(names(&plfs, &at("other")), BTreeSet::from(["sub".into()]));
    assert_eq!(names(&plfs, &d), BTreeSet::from(["out".into()]));
}

/// Of two directories each got into the other one, and both were lost.
#[test]
fn of_two_directories_one_gets_into_the_other() {
    let memory = memory();
    let plfs = node(memory.clone());
    for dir in ["a", "b"] {
        plfs.mkdir(&at(dir), 0o755).unwrap();
        put(&plfs, &at(dir).join("f"), dir.as_bytes()).unwrap();
    }
    let top = plfs.flat_dir(Path::new(DIR)).unwrap().unwrap();
    for round in 0..rounds("PLFS_FLAT_RACES", 200) {
        let barrier = std::sync::Barrier::new(2);
        let moves = |from: &str, to: &str, by_inode: bool| {
            let plfs = node(memory.clone());
            let open = top.at(plfs.placed(&at(to), Links::Stay).unwrap().into_owned());
            let (from, name) = (at(from), OsStr::new(from));
            barrier.wait();
            match by_inode {
                true => plfs.rename_in((&top, name), (&open, name), None),
                false => plfs.rename(&from, &at(to).join(name)),
            }
        };
        let (one, two) = thread::scope(|scope| {
            let one = scope.spawn(|| moves("a", "b", round % 2 == 1));
            let two = scope.spawn(|| moves("b", "a", round % 4 > 1));
            (one.join().unwrap(), two.join().unwrap())
        });
        let (inner, outer) = if one.is_ok() { ("a", "b") } else { ("b", "a") };
        assert!(one.is_ok() != two.is_ok(), "{one:?} {two:?}");
        let error = one.and(two).unwrap_err();
        assert!(matches!(error.errno(), Errno::INVAL | Errno::NOENT), "{error}");
        assert_eq!(names(&plfs, Path::new(DIR)), BTreeSet::from([outer.into()]));
        assert_eq!(get(&plfs, &at(outer).join(inner).join("f")).unwrap(), inner.as_bytes());
        plfs.rename(&at(outer).join(inner), &at(inner)).unwrap();
    }
}

/// What renames have lost before they looked for that has a name again after a repair.
#[test]
fn directories_that_lie_in_each_other_are_found_again() {
    let memory = memory();
    let plfs = node(memory.clone());
    let mut wanted = BTreeSet::new();
    for dir in ["a", "b", "itself", "itself/sub"] {
        plfs.mkdir(&at(dir), 0o755).unwrap();
        put(&plfs, &at(dir).join("f"), dir.as_bytes()).unwrap();
        wanted.insert(dir.as_bytes().to_vec());
    }
    let place = |name: &str| plfs.placed(&at(name), Links::Stay).unwrap().into_owned();
    // A file whose place is on the backend of the directory, to be replaced by that.
    let beside = |dir: &str, of: &str| {
        (0..40).map(|i| at(dir).join(format!("x{i}"))).find_map(|name| {
            put(&plfs, &name, b"").unwrap();
            let found = plfs.placed(&name, Links::Stay).unwrap().into_owned();
            plfs.unlink(&name).unwrap();
            (backend(&plfs, &at(of)) == found.iter().take(2).collect::<PathBuf>()).then_some(found)
        })
    };
    let (in_sub, in_b) = (beside("itself/sub", "itself").unwrap(), beside("b", "a").unwrap());
    memory.rename(&place("itself"), &in_sub).unwrap();
    // And by way of a slot: what a rename across backends makes, by hand.
    let (b, in_a) = (place("b"), beside("a", "a").unwrap());
    let all = b.ancestors().nth(2).unwrap();
    let (slot, aside) = ("1".repeat(32), "2".repeat(32));
    memory.mkdir(&all.join(&slot), 0o755).unwrap();
    let number = BACKENDS.iter().position(|root| b.starts_with(Path::new(root).join(".plfs")));
    let text = format!("/.plfs-spread/moved/{:04x}.{slot}.{aside}", number.unwrap());
    memory.symlink(Path::new(&text), &in_a).unwrap();
    memory.rename(&place("a"), &in_b).unwrap();
    memory.rename(&b, &all.join(&slot).join("e")).unwrap();
    assert!(names(&node(memory.clone()), Path::new(DIR)).is_empty());
    let check = |repair| node(memory.clone()).check_flat(Path::new("/m"), repair).unwrap().reports;
    let said = |reports: &[(plfs::Report, Vec<String>)]| -> Vec<String> {
        let all = reports.iter().flat_map(|(report, _)| &report.findings);
        all.map(|finding| finding.what.to_string()).collect()
    };
    let before = said(&check(None));
    assert!(before.iter().all(|what| what.contains("lies in itself")), "{before:?}");
    assert_eq!(before.len(), 2);
    let repaired: Vec<_> = check(Some(0)).into_iter().flat_map(|(_, done)| done).collect();
    assert_eq!(repaired.iter().filter(|what| what.contains("lost+found.")).count(), 2);
    let plfs = node(memory.clone());
    assert_eq!(names(&plfs, Path::new(DIR)).len(), 2);
    let left: BTreeSet<_> = tree(&plfs, Path::new(DIR)).into_values().collect();
    assert!(wanted.is_subset(&left), "{left:?}");
    // Of the link to the slot.
    check(Some(0));
    assert!(said(&check(None)).is_empty());
}

/// Where no locks are a directory stays in its own; all else goes on.
#[test]
fn without_locks_directories_stay_where_they_are() {
    let memory = memory();
    let store = FaultStore::new(Arc::new(memory.clone()));
    let plfs = node(store.clone());
    plfs.mkdir(&at("a"), 0o755).unwrap();
    plfs.mkdir(&at("b"), 0o755).unwrap();
    put(&plfs, &at("a").join("f"), b"x").unwrap();
    store.fail_matching("spread.", Op::TryGate, Errno::NOSYS);
    for i in 0..10 {
        let new = format!("x{i}");
        assert_eq!(errno(plfs.rename(&at("a"), &at("b").join(&new))), Some(Errno::XDEV));
        plfs.rename(&at("a").join("f"), &at("b").join(&new)).unwrap();
        plfs.rename(&at("b").join(&new), &at("a").join("f")).unwrap();
        plfs.rename(&at("a"), &at(&new)).unwrap();
        plfs.rename(&at(&new), &at("a")).unwrap();
    }
    assert_eq!(get(&node(memory), &at("a").join("f")).unwrap(), b"x");
}

/// A link with several `..` in its text led to a directory that is beside the way.
#[test]
fn dots_in_a_link_begin_where_the_link_is() {
    let plfs = node(memory());
    for dir in ["t", "x", "x/t", "x/y", "x/y/t", "p", "p/q", "p/q/r", "u"] {
        plfs.mkdir(&at(dir), 0o755).unwrap();
        put(&plfs, &at(dir).join("f"), dir.as_bytes()).unwrap();
    }
    let link = |text: &str, path: &str| plfs.symlink(Path::new(text), &at(path)).unwrap();
    link("../../t", "x/y/l");
    link("../../../u", "p/q/r/l");
    link("x/y", "far");
    link("far/../t", "beside");
    link("far/../../u/f", "file");
    link("..", "x/y/up");
    let read = |path: &str| String::from_utf8(get(&plfs, &at(path)).unwrap()).unwrap();
    for (path, dir) in [
        ("x/y/l/f", "t"),
        ("far/l/f", "t"),
        ("p/q/r/l/f", "u"),
        ("beside/f", "x/t"),
        ("file", "u"),
        ("x/y/up/f", "x"),
        ("far/up/f", "x"),
        ("far/up/up/../t/f", ""),
        ("far/../f", "x"),
        ("x/y/l/../f", ""),
    ] {
        match dir {
            "" => assert_eq!(errno(get(&plfs, &at(path))), Some(Errno::NOENT), "{path}"),
            dir => assert_eq!(read(path), dir, "{path}"),
        }
    }
    put_new(&plfs, &at("far/l/new"), b"new").unwrap();
    plfs.unlink(&at("x/y/l/f")).unwrap();
    plfs.mkdir(&at("x/y/l/dir"), 0o755).unwrap();
    plfs.rename(&at("p/q/r/l/f"), &at("far/l/moved")).unwrap();
    assert_eq!(names(&plfs, &at("t")), ["dir", "moved", "new"].map(PathBuf::from).into());
    assert_eq!(names(&plfs, &at("x/y/t")), BTreeSet::from(["f".into()]));
    assert_eq!(plfs.stat(&at("x/y/up"), Links::Follow).unwrap().stat.kind, Kind::Dir);
}

/// What was behind a link, or was a directory of a name, was believed for half a second, by who had
/// changed it as well: files were made in, and removed from, what it was before.
#[test]
fn a_name_on_the_way_that_changes_is_followed_at_once() {
    let memory = memory();
    let (here, there) = (node(memory.clone()), node(memory.clone()));
    for dir in ["v1", "v2"] {
        here.mkdir(&at(dir), 0o755).unwrap();
        here.mkdir(&at(dir).join("sub"), 0o755).unwrap();
        put(&here, &at(dir).join("keep"), dir.as_bytes()).unwrap();
    }
    let way = at("current");
    here.symlink(Path::new("v1"), &way).unwrap();
    for (i, other) in [&here, &there, &here, &there].into_iter().enumerate() {
        for plfs in [&here, &there] {
            put(plfs, &way.join("sub").join("known"), b"").unwrap();
        }
        let (old, new) = if i % 2 == 0 { ("v1", "v2") } else { ("v2", "v1") };
        other.symlink(Path::new(new), &at("tmp")).unwrap();
        other.rename(&at("tmp"), &way).unwrap();
        for (by, plfs) in [&here, &there].into_iter().enumerate() {
            let name = format!("made{i}{by}");
            assert_eq!(get(plfs, &way.join("keep")).unwrap(), new.as_bytes());
            put_new(plfs, &way.join(&name), b"").unwrap();
            put_new(plfs, &way.join("sub").join(&name), b"").unwrap();
            assert!(!names(plfs, &at(old)).contains(Path::new(&name)));
            plfs.unlink(&at(new).join(&name)).unwrap();
            plfs.unlink(&at(new).join("sub").join(&name)).unwrap();
        }
    }
    here.unlink(&way).unwrap();
    for plfs in [&here, &there] {
        assert_eq!(errno(put(plfs, &way.join("x"), b"")), Some(Errno::NOENT));
    }
    // A directory in the place of another one.
    for (i, other) in [&here, &there, &here, &there].into_iter().enumerate() {
        for plfs in [&here, &there] {
            put(plfs, &at("v1").join("sub").join("known"), b"").unwrap();
        }
        other.rename(&at("v1"), &at("v3")).unwrap();
        other.rename(&at("v2"), &at("v1")).unwrap();
        other.rename(&at("v3"), &at("v2")).unwrap();
        for (by, plfs) in [&there, &here].into_iter().enumerate() {
            let name = format!("other{i}{by}");
            put_new(plfs, &at("v1").join("sub").join(&name), b"").unwrap();
            let told = names(&node(memory.clone()), &at("v2").join("sub"));
            assert!(!told.contains(Path::new(&name)));
            plfs.unlink(&at("v1").join("sub").join(&name)).unwrap();
        }
    }
}

/// Who makes a name that nobody else removes or replaces has it, though others try to make it, too.
/// It was taken away for a moment, and at times for ever, by who had seen a link there before that
/// led to what is gone.
#[test]
fn a_name_that_was_made_stays() {
    let memory = memory();
    let (a, b, _) = apart(&node(memory.clone()));
    thread::scope(|scope| {
        for worker in 0..3 {
            let (memory, names) = (memory.clone(), [a.clone(), b.clone()]);
            scope.spawn(move || {
                let plfs = node(memory);
                let mut rng = Rng::new(worker);
                let mut got = 0;
                for round in 0.. {
                    if got == rounds("PLFS_FLAT_RACES", 200) {
                        break;
                    }
                    let name = &names[rng.below(2) as usize];
                    let own = at(format!("own{worker}.{}", rng.below(8)));
                    let bytes = format!("{worker}.{round}").into_bytes();
                    let made = match rng.below(3) {
                        0 => put_new(&plfs, name, &bytes),
                        _ => {
                            put(&plfs, &own, &bytes).unwrap();
                            let made = plfs.link(&own, name);
                            plfs.unlink(&own).unwrap();
                            made
                        }
                    };
                    match made {
                        Err(error) if error.errno() == Errno::EXIST => continue,
                        other => other.unwrap(),
                    }
                    got += 1;
                    if let Ok(found) = get(&plfs, name) {
                        assert!(found == bytes || found.is_empty(), "{found:?}, not {bytes:?}");
                    } else {
                        panic!("{} is gone", name.display());
                    }
                    if rng.below(2) == 0 {
                        put(&plfs, &own, &bytes).unwrap();
                        plfs.rename(&own, name).unwrap();
                        assert_eq!(get(&plfs, name).unwrap(), bytes);
                    }
                    match rng.below(3) {
                        0 => {
                            plfs.rename(name, &own).unwrap();
                            assert_eq!(get(&plfs, &own).unwrap(), bytes);
                            plfs.unlink(&own).unwrap();
                        }
                        _ => plfs.unlink(name).unwrap(),
                    }
                }
            });
        }
    });
    assert!(names(&node(memory.clone()), Path::new(DIR)).is_empty());
    must_be_clean(&memory);
}

/// Random calls of several nodes, against an ordinary directory in the same store.
#[test]
fn random_calls_are_those_of_an_ordinary_directory() {
    for seed in seeds(rounds("PLFS_FLAT_SEEDS", 20)) {
        let memory = memory();
        memory.mkdir(Path::new("/m/plain"), 0o755).unwrap();
        let mut rng = Rng::new(seed);
        let nodes: Vec<Plfs> = (0..3).map(|_| node(memory.clone())).collect();
        let model = node(memory.clone());
        let mut told = Vec::new();
        for step in 0..300 {
            let plfs = &nodes[rng.below(3) as usize];
            let mut any = || {
                let mut path = PathBuf::new();
                for _ in 0..1 + rng.below(2) {
                    path.push(["a", "b", "c", "d", "e", "f", "g"][rng.below(7) as usize]);
                }
                path
            };
            let (from, to) = (any(), any());
            let what = rng.below(8);
            let bytes = [b'0' + (step % 10) as u8];
            let act = |plfs: &Plfs, dir: &str| -> std::result::Result<(), Errno> {
                let (from, to) = (Path::new(dir).join(&from), Path::new(dir).join(&to));
                match what {
                    0 => put_new(plfs, &from, &bytes),
                    1 => put(plfs, &from, &bytes),
                    2 => plfs.unlink(&from),
                    3 => plfs.mkdir(&from, 0o755),
                    4 => plfs.rmdir(&from),
                    5 | 6 => plfs.rename(&from, &to),
                    _ => plfs.link(&from, &to),
                }
                .map_err(|error| error.errno())
            };
            let (got, wanted) = (act(plfs, DIR), act(&model, "/m/plain"));
            told.push(format!("{what} {} {}: {wanted:?}", from.display(), to.display()));
            let is_same = match (&got, &wanted) {
                (Ok(()), Ok(())) => true,
                // Which of several reasons a call fails for is the file system's to say.
                (Err(_), Err(_)) => true,
                _ => false,
            };
            assert!(is_same, "seed {seed}: {got:?}, not {wanted:?}: {told:#?}");
            let below = |plfs: &Plfs, dir: &str| -> BTreeMap<PathBuf, Vec<u8>> {
                let all = tree(plfs, Path::new(dir)).into_iter();
                all.map(|(path, it)| (path.strip_prefix(dir).unwrap().into(), it)).collect()
            };
            let plfs = &nodes[rng.below(3) as usize];
            assert_eq!(below(plfs, DIR), below(&model, "/m/plain"), "seed {seed}: {told:#?}");
        }
    }
}

/// What replaced a name that had come from another backend was not durable when the file there was
/// removed: a power cut brought back a link that led to nothing.
#[test]
fn a_name_from_another_backend_that_is_replaced_shows_the_old_or_the_new() {
    for seed in seeds(rounds("PLFS_FLAT_CUTS", 100)) {
        let memory = memory();
        let (a, b, c) = apart(&node(memory.clone()));
        let plfs = node(memory.clone());
        let put_durably = |path: &Path, bytes: &[u8]| {
            put(&plfs, path, bytes).unwrap();
            plfs.open(path, OpenOptions::create()).unwrap().file().sync().unwrap();
            let place = plfs.placed(path, Links::Stay).unwrap().into_owned();
            memory.sync_dir(place.parent().unwrap()).unwrap();
        };
        put_durably(&b, b"old");
        put_durably(&c, b"new");
        plfs.rename(&b, &a).unwrap();
        plfs.rename(&c, &a).unwrap();
        let found = get(&node(memory.crash_with(seed)), &a).unwrap();
        assert!(found == b"old" || found == b"new", "seed {seed}: {found:?}");
    }
}

/// Where neither the layout nor the directory could be read, because no descriptor was left, a
/// flat directory counted as an ordinary one: what was made in it nobody found.
#[test]
fn a_directory_that_cannot_be_read_now_is_no_ordinary_one() {
    let memory = memory();
    put(&node(memory.clone()), &at("f"), b"f").unwrap();
    let store = FaultStore::new(Arc::new(memory.clone()));
    let plfs = node(store.clone());
    plfs.workload_of(Path::new("/m/d/x")).unwrap();
    store.fail_matching(".plfs-layout", None, Errno::MFILE);
    store.fail_matching(DIR, Op::List, Errno::MFILE);
    assert_eq!(errno(plfs.is_flat(Path::new(DIR))), Some(Errno::MFILE));
    assert_eq!(errno(plfs.is_below_flat(&at("x"))), Some(Errno::MFILE));
    assert_eq!(errno(put(&plfs, &at("x"), b"x")), Some(Errno::MFILE));
    assert!(memory.stat(&at("x"), Links::Stay).is_err());
    store.reset();
    assert_eq!(get(&plfs, &at("f")).unwrap(), b"f");
}

/// A plain file that replaces one with a container, on another backend or where one that was
/// replaced from another backend is, was not made durable before the container went.
#[test]
fn a_plain_file_over_one_with_a_container_keeps_the_old_or_the_new() {
    for across in [true, false] {
        let memory = memory();
        let (a, b, c) = apart(&node(memory.clone()));
        let plfs = node(memory.clone());
        // What is at `b` lies on the backend of `a`, behind a link.
        let several = OpenOptions { writers: plfs::Writers::Several, ..OpenOptions::create() };
        let old = plfs.open(&c, several).unwrap().file();
        old.write_at(b"old", 0).unwrap();
        old.sync().unwrap();
        old.close().unwrap();
        let target = if across { b } else { a };
        plfs.rename(&c, &target).unwrap();
        for backend in BACKENDS {
            memory.sync_dir(&Path::new(backend).join(".plfs/spread")).unwrap();
        }
        let source = at("source");
        put_new(&plfs, &source, b"new").unwrap();
        plfs.rename(&source, &target).unwrap();
        for seed in 0..100 {
            let left = node(memory.crash_with(seed));
            let found = get(&left, &target).unwrap();
            assert!(found == b"old" || found == b"new", "{across}, seed {seed}: {found:?}");
        }
    }
}
