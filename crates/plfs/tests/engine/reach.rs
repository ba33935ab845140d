//! Nothing outside a container is reached through what lies in it: a symbolic link in the place of
//! any of its files and directories, or of a directory above that users share, gives an error or is
//! removed, and what it leads to is not read, changed, emptied or created. And what is open stays
//! open when a directory above is renamed.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use plfs::store::{
    Entry, Errno, Keep, Kind, Links, Open, Place, PosixStore, Result, Stat, Store, StoreFile,
    write_full,
};
use plfs::{Config, File, NameFile, OpenOptions, Opened, Plfs};
use plfs_format::clock::{Clock, Covers};
use plfs_testkit::{MemStore, delegate_names};

/// A directory that vanishes with the value, if it is on a real file system.
struct Scratch {
    base: PathBuf,
    real: bool,
}

impl Scratch {
    fn new(below: Option<&Path>) -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name =
            format!("plfs-reach-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let base = below
            .map_or(PathBuf::from("/some"), |dir| std::fs::canonicalize(dir).unwrap())
            .join(name);
        Scratch { base, real: below.is_some() }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.real {
            let _ = std::fs::remove_dir_all(&self.base);
        }
    }
}

fn make_dirs(store: &dyn Store, path: &Path) {
    if let Some(parent) = path.parent() {
        make_dirs(store, parent);
        let _ = store.mkdir(path, 0o755);
    }
}

fn bytes(store: &dyn Store, path: &Path) -> Vec<u8> {
    let file = store.open(path, Open::READ).unwrap();
    let mut bytes = vec![0; file.stat().unwrap().len as usize];
    file.read_at(&mut bytes, 0).unwrap();
    bytes
}

fn put(store: &dyn Store, path: &Path, bytes: &[u8]) {
    let file = store.open(path, Open::create(0o644)).unwrap();
    write_full(&*file, bytes, 0).unwrap();
}

/// What a tree holds, but for the times of access.
type Held = BTreeMap<PathBuf, (Stat, Vec<u8>)>;

fn held(store: &dyn Store, path: &Path, all: &mut Held) {
    let stat = Stat { atime: Default::default(), ..store.stat(path, Links::Stay).unwrap() };
    let what = match stat.kind {
        Kind::Dir => {
            store
                .list(path)
                .unwrap()
                .iter()
                .for_each(|entry| held(store, &path.join(&entry.name), all));
            Vec::new()
        }
        _ => bytes(store, path),
    };
    all.insert(path.to_path_buf(), (stat, what));
}

/// Copies a file or a directory, as the bait that somebody who wants it followed would lay: all
/// bytes of data are `S`.
fn bait(store: &dyn Store, from: &Path, to: &Path) {
    match store.stat(from, Links::Stay).unwrap().kind {
        Kind::Dir => {
            store.mkdir(to, 0o755).unwrap();
            store
                .list(from)
                .unwrap()
                .iter()
                .for_each(|entry| bait(store, &from.join(&entry.name), &to.join(&entry.name)));
        }
        _ => {
            let mut bytes = bytes(store, from);
            bytes.iter_mut().filter(|byte| matches!(**byte, b'a'..=b'p')).for_each(|byte| {
                if is_data(from) {
                    *byte = b'S';
                }
            });
            put(store, to, &bytes);
        }
    }
}

fn is_data(path: &Path) -> bool {
    !["index", "super", "flat", "clock"].contains(&path.file_name().unwrap().to_str().unwrap())
}

struct Fixture {
    store: Arc<dyn Store>,
    base: PathBuf,
    config: Config,
    name: PathBuf,
    /// The container on the root and on the other backend.
    dirs: [PathBuf; 2],
    /// A log set with data on the other backend, and one of its files there; one with data on the
    /// root.
    sets: [String; 2],
    data: [PathBuf; 2],
}

impl Fixture {
    /// A closed file of several log sets, with data on two backends, a flat index and a clock.
    fn new(store: Arc<dyn Store>, base: &Path) -> Fixture {
        let (root, backend) = (base.join("m"), base.join("b"));
        [&root, &backend].into_iter().for_each(|dir| make_dirs(&*store, dir));
        make_dirs(&*store, &base.join("victim"));
        let config =
            Config { shared_memory: None, backends: vec![backend.clone()], ..Config::shared() };
        let name = root.join("f");
        let plfs = || Plfs::new(store.clone(), config.clone());
        let mut files = Vec::new();
        let (dirs, data) = loop {
            let file = open(&plfs(), &name).unwrap();
            file.write_at(&[b'a' + files.len() as u8; 3000], 1000 * files.len() as u64).unwrap();
            file.commit().unwrap();
            files.push(file);
            let dir = files[0].container().unwrap().dir.to_path_buf();
            let dirs = [dir.clone(), backend.join(dir.strip_prefix(&root).unwrap())];
            let data = dirs.each_ref().map(|dir| find_data(&*store, dir));
            if let [Some(on_root), Some(on_other)] = data {
                break (dirs, [on_root, on_other]);
            }
            assert!(files.len() < 30, "the backends take turns by chance");
        };
        files.into_iter().for_each(|file| file.close().unwrap());
        let plfs = plfs();
        plfs.flatten(&name).unwrap();
        let set = |path: &PathBuf| {
            path.parent().unwrap().file_name().unwrap().to_str().unwrap().to_owned()
        };
        let sets = data.each_ref().map(set);
        put(
            &*store,
            &dirs[0].join("clock"),
            &Clock { stamp: 1 << 60, covers: Covers::Some }.encode(),
        );
        Fixture { store, base: base.to_path_buf(), config, name, dirs, sets, data }
    }

    fn plfs(&self) -> Plfs {
        Plfs::new(self.store.clone(), self.config.clone())
    }

    fn victim(&self) -> PathBuf {
        self.base.join("victim/it")
    }

    /// Puts a link to the victim at `path`. What was there is kept beside, and copied to be the
    /// victim; if there was nothing, `otherwise` makes one.
    fn plant(&self, path: &Path, otherwise: impl FnOnce(&dyn Store, &Path)) {
        match self.store.stat(path, Links::Stay) {
            Ok(_) => {
                bait(&*self.store, path, &self.victim());
                self.store.rename(path, &self.base.join("kept")).unwrap();
            }
            Err(_) => otherwise(&*self.store, &self.victim()),
        }
        self.store.symlink(&self.victim(), path).unwrap();
    }
}

fn find_data(store: &dyn Store, dir: &Path) -> Option<PathBuf> {
    for set in store.list(dir).unwrap_or_default() {
        for file in store.list(&dir.join(&set.name)).unwrap_or_default() {
            if file.name != "index" {
                return Some(dir.join(&set.name).join(file.name));
            }
        }
    }
    None
}

fn open(plfs: &Plfs, path: &Path) -> plfs::Result<File> {
    match plfs.open(path, OpenOptions::create())? {
        Opened::Logical(file) => Ok(file),
        Opened::Plain(_) => panic!("{} is plain", path.display()),
    }
}

/// Where a link is planted: a name for it, and its path.
fn plants(fixture: &Fixture) -> Vec<(&'static str, PathBuf)> {
    let [root, other] = &fixture.dirs;
    let [on_root, on_other] = &fixture.sets;
    vec![
        ("the container", root.clone()),
        ("the shard", root.parent().unwrap().to_path_buf()),
        (".plfs", fixture.base.join("m/.plfs")),
        ("a log set", root.join(on_root)),
        ("an index log", root.join(on_root).join("index")),
        ("a data log", fixture.data[0].clone()),
        ("super", root.join("super")),
        ("flat", root.join("flat")),
        ("clock", root.join("clock")),
        ("an open mark", root.join(format!("{on_root}.open"))),
        ("a log set that goes", root.join("0badcafe.gone")),
        ("an unfinished file", root.join("flat.tmp.00000000")),
        ("the container on a backend", other.clone()),
        ("the shard on a backend", other.parent().unwrap().to_path_buf()),
        (".plfs of a backend", fixture.base.join("b/.plfs")),
        ("a log set on a backend", other.join(on_other)),
        ("a data log on a backend", fixture.data[1].clone()),
    ]
}

type Act = fn(&Fixture) -> plfs::Result<()>;

/// What is done to the file.
const ACTS: &[(&str, Act)] = &[
    ("open and read", |fixture| {
        let file = open(&fixture.plfs(), &fixture.name)?;
        let mut bytes = vec![0; 100_000];
        let n = file.read_at(&mut bytes, 0)?;
        assert!(!bytes[..n].contains(&b'S'), "it reads what is outside");
        file.read_whole_at(&mut bytes, 0)?;
        file.close()
    }),
    ("write, fsync and close", |fixture| {
        let file = open(&fixture.plfs(), &fixture.name)?;
        for i in 0..4 {
            file.write_at(&[b'w'; 5000], i * 7000)?;
        }
        file.sync()?;
        file.close()
    }),
    ("write and close, several", |fixture| {
        // Each joins a log set of its own: some go to each backend.
        let files: Vec<File> =
            (0..6).map(|_| open(&fixture.plfs(), &fixture.name)).collect::<plfs::Result<_>>()?;
        let written: plfs::Result<()> =
            files.iter().try_for_each(|file| file.write_at(&[b'w'; 500], 0).map(drop));
        files.into_iter().map(File::close).fold(written, plfs::Result::and)
    }),
    ("create another", |fixture| {
        let file = open(&fixture.plfs(), &fixture.base.join("m/another"))?;
        file.write_at(b"w", 0)?;
        file.close()
    }),
    ("stat", |fixture| fixture.plfs().stat(&fixture.name, Links::Follow).map(drop)),
    ("truncate to 0", |fixture| fixture.plfs().truncate(&fixture.name, 0)),
    ("truncate", |fixture| fixture.plfs().truncate(&fixture.name, 10)),
    ("unlink", |fixture| fixture.plfs().unlink(&fixture.name)),
    ("rename over it", |fixture| {
        put(&*fixture.store, &fixture.base.join("m/plain"), b"plain");
        fixture.plfs().rename(&fixture.base.join("m/plain"), &fixture.name)
    }),
    ("chmod", |fixture| fixture.plfs().chmod(&fixture.name, 0o600)),
    ("chown", |fixture| fixture.plfs().chown(&fixture.name, Some(12), Some(13), Links::Follow)),
    ("check", |fixture| {
        let _ = plfs::check_name(&fixture.store, &fixture.name, &[]).health();
        plfs::check_tree(&fixture.store, &fixture.base, &[], |_| {})?
            .iter()
            .for_each(|report| _ = report.health());
        Ok(())
    }),
    ("check --repair", |fixture| {
        let reports = plfs::check_tree(&fixture.store, &fixture.base, &[], |_| {})?;
        reports
            .iter()
            .map(|report| plfs::repair(&fixture.store, &fixture.config, report, 0).map(drop))
            .fold(Ok(()), plfs::Result::and)
    }),
    ("unlink and check --repair", |fixture| {
        fixture.store.unlink(&fixture.name).unwrap();
        let reports = plfs::check_tree(&fixture.store, &fixture.base, &[], |_| {})?;
        reports
            .iter()
            .map(|report| plfs::repair(&fixture.store, &fixture.config, report, 0).map(drop))
            .fold(Ok(()), plfs::Result::and)
    }),
    ("clear marks", |fixture| match fixture.plfs().container(&fixture.name)? {
        Some((container, _)) => plfs::clear_marks(&container, &fixture.config).map(drop),
        None => Ok(()),
    }),
    ("compact", |fixture| {
        fixture.plfs().compact(&fixture.name, |_| ControlFlow::Continue(())).map(drop)
    }),
    ("flatten", |fixture| fixture.plfs().flatten(&fixture.name).map(drop)),
    ("export", |fixture| {
        let file = open(&fixture.plfs(), &fixture.name)?;
        for extent in file.extents(0, 1 << 40)? {
            if let Ok(log) = file.container().unwrap().store.open(&extent.data_log, Open::READ) {
                let mut bytes = vec![0; 100_000];
                let n = log.read_at(&mut bytes, 0).unwrap();
                assert!(!bytes[..n].contains(&b'S'), "it exports what is outside");
            }
        }
        file.close()
    }),
    ("records", |fixture| match fixture.plfs().container(&fixture.name)? {
        Some((container, _)) => plfs::records(&container).map(drop),
        None => Ok(()),
    }),
];

/// Where an act on a file cannot do without what the link stands for: it must fail, and say why.
fn must_fail(plant: &str, act: &str) -> bool {
    let is_lost = ["the container", "the shard", ".plfs", "super"].contains(&plant);
    match act {
        "open and read" => {
            is_lost || ["a log set", "an index log", "a data log", "flat"].contains(&plant)
        }
        "stat" | "write, fsync and close" | "truncate to 0" | "compact" | "flatten" => is_lost,
        "create another" => [".plfs", ".plfs of a backend"].contains(&plant),
        _ => false,
    }
}

fn every_act_with_every_link(store: impl Fn() -> Arc<dyn Store>, below: Option<&Path>) {
    let count = {
        let scratch = Scratch::new(below);
        plants(&Fixture::new(store(), &scratch.base)).len()
    };
    for i in 0..count {
        for (act, run) in ACTS {
            let scratch = Scratch::new(below);
            let fixture = Fixture::new(store(), &scratch.base);
            let (plant, path) = plants(&fixture).swap_remove(i);
            // A mark that says nothing, or a directory that an administrator would not want to
            // lose.
            fixture.plant(&path, |store, victim| match plant {
                "an open mark" | "an unfinished file" => put(store, victim, b"precious"),
                _ => {
                    make_dirs(store, &victim.join("sub"));
                    put(store, &victim.join("sub/data"), b"precious");
                }
            });
            let (mut before, mut after) = (Held::new(), Held::new());
            held(&*fixture.store, &fixture.base.join("victim"), &mut before);
            let done = run(&fixture);
            held(&*fixture.store, &fixture.base.join("victim"), &mut after);
            assert_eq!(before, after, "{act}, {plant} is a link");
            match done {
                Ok(()) => assert!(!must_fail(plant, act), "{act}, {plant} is a link: no error"),
                Err(error) => {
                    let text = error.to_string();
                    assert!(
                        text.contains("/m/") || text.contains("/b/"),
                        "{act}, {plant} is a link: {text}"
                    );
                    assert!(
                        !text.contains("Too many levels") && !text.contains("os error 40"),
                        "{act}, {plant} is a link: {text}"
                    );
                    if must_fail(plant, act) {
                        assert!(
                            text.contains("is a symbolic link"),
                            "{act}, {plant} is a link: {text}"
                        );
                    }
                }
            }
        }
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

/// `plfs check --repair` emptied a directory outside the tree: somebody had put a link
/// `0badcafe.gone` to it into a container. Recursive removals and creations went by paths, and
/// `.plfs` is a directory in which anybody may make names.
#[test]
fn a_link_in_a_container_leads_nowhere() {
    let Some(shm) = shm() else { return };
    every_act_with_every_link(|| Arc::new(PosixStore::new()), Some(shm));
}

/// The same without openat2(2): on kernels before 5.6, in sandboxes that refuse it.
#[test]
fn a_link_in_a_container_leads_nowhere_without_openat2() {
    let Some(shm) = shm() else { return };
    every_act_with_every_link(|| Arc::new(PosixStore::without_openat2()), Some(shm));
}

/// The same in the store that the other tests use.
#[test]
fn a_link_in_a_container_leads_nowhere_in_memory() {
    every_act_with_every_link(|| Arc::new(MemStore::new()), None);
}

/// The link itself is what a removal takes away, and the rest of the container with it.
#[test]
fn links_are_removed_themselves() {
    for (i, gone) in ["0badcafe.gone", "deadbeef"].into_iter().enumerate() {
        let scratch = Scratch::new(None);
        let fixture = Fixture::new(Arc::new(MemStore::new()), &scratch.base);
        let link = fixture.dirs[0].join(gone);
        fixture.plant(&link, |store, victim| put(store, victim, b"precious"));
        if i == 0 {
            let report = plfs::check_name(&fixture.store, &fixture.name, &[]);
            assert!(report.findings.iter().any(|finding| finding.path == link), "{report:?}");
            let done = plfs::repair(&fixture.store, &fixture.config, &report, 0).unwrap();
            assert!(done.iter().any(|done| done.contains("0badcafe.gone")), "{done:?}");
            assert_eq!(fixture.store.stat(&link, Links::Stay), Err(Errno::NOENT));
        } else {
            fixture.plfs().unlink(&fixture.name).unwrap();
            assert_eq!(fixture.store.stat(&fixture.dirs[0], Links::Stay), Err(Errno::NOENT));
            assert_eq!(fixture.store.stat(&fixture.dirs[1], Links::Stay), Err(Errno::NOENT));
        }
        assert_eq!(bytes(&*fixture.store, &fixture.victim()), b"precious");
    }
}

/// The real store, as one on which each lookup travels: buffers are larger there, and locks are
/// others.
#[derive(Clone, Debug)]
struct Remote {
    inner: Arc<dyn Store>,
}

impl Store for Remote {
    fn open(&self, path: &Path, how: Open) -> Result<Arc<dyn StoreFile>> {
        self.inner.open(path, how)
    }
    fn stat(&self, path: &Path, links: Links) -> Result<Stat> {
        self.inner.stat(path, links)
    }
    fn list(&self, path: &Path) -> Result<Vec<Entry>> {
        self.inner.list(path)
    }
    delegate_names!(inner);
    fn is_local(&self, _path: &Path) -> bool {
        false
    }
    fn boot(&self, path: &Path) -> Option<u64> {
        self.inner.boot(path)
    }
    fn inside(&self, places: Vec<Place>, keep: Keep) -> Option<Arc<dyn Store>> {
        Some(Arc::new(Remote { inner: self.inner.inside(places, keep)? }))
    }
}

/// A directory above the root was renamed while a file was open: close gave ENOENT, and what had
/// been written and not committed was gone. Readers lost the file, too. On the real file systems
/// that are here: the temporary directory's, and tmpfs.
#[test]
fn who_renames_a_directory_above_an_open_file_loses_nothing() {
    let real: [fn() -> Arc<dyn Store>; 4] = [
        || Arc::new(PosixStore::new()),
        || Arc::new(PosixStore::without_openat2()),
        || Arc::new(Remote { inner: Arc::new(PosixStore::new()) }),
        || Arc::new(Remote { inner: Arc::new(PosixStore::without_openat2()) }),
    ];
    let places = [Some(std::env::temp_dir()), shm().map(Path::to_path_buf)];
    for (i, (store, place)) in real
        .iter()
        .flat_map(|store| places.iter().flatten().map(move |place| (store, place)))
        .enumerate()
    {
        eprintln!("  {i}: {}", place.display());
        let scratch = Scratch::new(Some(place));
        let store = store();
        let (up, down) = (scratch.base.join("up"), scratch.base.join("down"));
        for dir in [up.join("m/sub"), scratch.base.join("b")] {
            make_dirs(&*store, &dir);
        }
        let config = Config { backends: vec![scratch.base.join("b")], ..Config::shared() };
        let plfs = Plfs::new(store.clone(), config.clone());
        let put = |name: &str| {
            let file = open(&plfs, &up.join(name)).unwrap();
            file.write_at(b"before", 0).unwrap();
            file
        };
        for name in ["m/sub/kept", "m/read", "m/remembered", "m/later", "m/last", "m/moved"] {
            put(name).close().unwrap();
        }
        // A name that was looked at long after it changed is remembered: opening it asks for
        // nothing by its path.
        std::thread::sleep(std::time::Duration::from_millis(1100));
        for name in ["m/remembered", "m/later", "m/last", "m/moved"] {
            plfs.stat(&up.join(name), Links::Follow).unwrap();
        }
        // As a program has it whose descriptor is the name's: nothing else is opened before it is
        // used.
        let adopt = |name: &str| {
            let path = up.join(name);
            let file = store.open(&path, Open::READ).unwrap();
            let (stat, access) = (file.stat().unwrap(), OpenOptions::create().access);
            let adopted = plfs.adopt_known(file.as_ref(), NameFile::Stays, &path, &stat, access);
            (adopted.unwrap().unwrap(), file)
        };
        let (later, last) = (adopt("m/later"), adopt("m/last"));
        let (kept, read, remembered) = (
            open(&plfs, &up.join("m/sub/kept")),
            open(&plfs, &up.join("m/read")),
            open(&plfs, &up.join("m/remembered")),
        );
        let (kept, read, remembered) = (kept.unwrap(), read.unwrap(), remembered.unwrap());
        let (new, synced, late) =
            (put("m/new"), put("m/sub/synced"), open(&plfs, &up.join("m/late")).unwrap());
        kept.write_at(b"kept", 3).unwrap();
        remembered.write_at(b"twice", 0).unwrap();

        store.rename(&up, &down).unwrap();
        let mut bytes = [0; 6];
        assert_eq!(later.0.read_at(&mut bytes, 0).unwrap(), 6);
        later.0.write_at(b"later", 6).unwrap();
        // Another tree, with copies of everything, comes to where it was.
        let copied = Command::new("cp").arg("-a").args([&down, &up]).status().unwrap();
        assert!(copied.success());
        last.0.write_at(b"last", 6).unwrap();
        // What was remembered of a name is not where the name is now, but its copy is.
        let moved = open(&plfs, &down.join("m/moved")).unwrap();
        moved.write_at(b"moved", 6).unwrap();
        moved.close().unwrap();
        assert_eq!(last.0.read_at(&mut bytes, 0).unwrap(), 6);
        std::fs::remove_dir_all(&up).unwrap();
        assert_eq!(read.read_at(&mut bytes, 0).unwrap(), 6);
        assert_eq!(&bytes, b"before");
        new.write_at(b"after", 6).unwrap();
        late.write_at(b"late", 0).unwrap();
        synced.sync().unwrap();
        synced.set_len(3).unwrap();
        for file in [kept, read, remembered, new, synced, late, later.0, last.0] {
            file.close().unwrap();
        }
        let look = Plfs::new(store.clone(), config);
        let all: [(&str, &[u8]); 9] = [
            ("m/moved", b"beforemoved"),
            ("m/later", b"beforelater"),
            ("m/last", b"beforelast"),
            ("m/sub/kept", b"befkept"),
            ("m/read", b"before"),
            ("m/remembered", b"twicee"),
            ("m/new", b"beforeafter"),
            ("m/sub/synced", b"bef"),
            ("m/late", b"late"),
        ];
        for (name, expect) in all {
            let file = open(&look, &down.join(name)).unwrap();
            let mut bytes = vec![0; 100];
            let n = file.read_at(&mut bytes, 0).unwrap();
            assert_eq!(
                String::from_utf8_lossy(&bytes[..n]),
                String::from_utf8_lossy(expect),
                "{name}"
            );
            file.close().unwrap();
            assert_eq!(
                plfs::check_name(&store, &down.join(name), &[]).health(),
                plfs::Health::Healthy,
                "{name}"
            );
        }
    }
}
