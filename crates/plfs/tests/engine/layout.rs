//! The layouts of directories (FORMAT.md section 1): who says how new files are laid out, and what
//! happens if nobody can tell. SEMANTICS S30.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use plfs::store::{Errno, Links, Open, Store, write_full};
use plfs::{
    Backends, Config, Error, Health, Layout, OpenOptions, Opened, Plfs, Report, Result, Setting,
    Workload, check_tree,
};
use plfs_testkit::MemStore;

fn memory() -> MemStore {
    let memory = MemStore::new();
    for dir in ["/m", "/m/a", "/m/a/b", "/m/c", "/n", "/o"] {
        memory.mkdir(Path::new(dir), 0o755).unwrap();
    }
    for dir in ["/", "/m", "/m/a"] {
        memory.sync_dir(Path::new(dir)).unwrap();
    }
    memory
}

fn process(memory: &MemStore, backends: &[&str]) -> Plfs {
    let config = Config {
        mounts: vec![PathBuf::from("/m")],
        shared_memory: None,
        streams: 3,
        backends: backends.iter().map(PathBuf::from).collect(),
        ..Config::shared()
    };
    Plfs::new(Arc::new(memory.clone()), config)
}

fn create(plfs: &Plfs, name: &str) -> Result<()> {
    match plfs.open(Path::new(name), OpenOptions::create())? {
        Opened::Logical(file) => {
            file.write_at(b"data", 0)?;
            file.close()
        }
        Opened::Plain(_) => panic!("{name} is plain"),
    }
}

/// Streams and backends of a new file.
fn made(plfs: &Plfs, name: &str) -> (u16, Vec<u16>) {
    create(plfs, name).unwrap();
    let superblock = plfs.container(Path::new(name)).unwrap().unwrap().1;
    (superblock.streams, superblock.backends)
}

fn put(memory: &MemStore, path: &str, text: &[u8]) {
    let file = memory.open(Path::new(path), Open::create(0o644)).unwrap();
    file.set_len(0).unwrap();
    write_full(file.as_ref(), text, 0).unwrap();
}

fn streams(n: u16) -> Layout {
    Layout { streams: Some(n), ..Layout::default() }
}

#[test]
fn the_nearest_directory_that_says_it_counts() {
    let memory = memory();
    let plfs = process(&memory, &["/n"]);
    assert_eq!(made(&plfs, "/m/a/b/f0"), (3, vec![0, 1]), "the settings");
    plfs.set_directory_layout(Path::new("/m"), Some(&streams(7))).unwrap();
    let root_alone = Layout { backends: Some(Backends::Listed(vec![0])), ..Layout::default() };
    plfs.set_directory_layout(Path::new("/m/a"), Some(&root_alone)).unwrap();
    assert_eq!(made(&plfs, "/m/a/b/f1"), (7, vec![0]));
    assert_eq!(made(&plfs, "/m/c/f"), (7, vec![0, 1]));
    plfs.set_directory_layout(Path::new("/m/a/b"), Some(&streams(9))).unwrap();
    assert_eq!(made(&plfs, "/m/a/b/f2"), (9, vec![0]));
    let found = plfs.directory_layout(Path::new("/m/a/b")).unwrap();
    assert_eq!(found.root, Path::new("/m"));
    assert_eq!(found.streams, Some(Setting { value: 9, by: "/m/a/b".into() }));
    assert_eq!(
        found.backends,
        Some(Setting { value: Backends::Listed(vec![0]), by: "/m/a".into() })
    );
    plfs.set_directory_layout(Path::new("/m/a/b"), None).unwrap();
    plfs.set_directory_layout(Path::new("/m/a/b"), None).unwrap();
    assert_eq!(made(&plfs, "/m/a/b/f3"), (7, vec![0]));
    // What was made before stays as it is.
    let old = plfs.container(Path::new("/m/a/b/f0")).unwrap().unwrap().1;
    assert_eq!((old.streams, old.backends), (3, vec![0, 1]));
    // Another process, after a crash of all: what was set is durable.
    let later = process(&memory.crash(), &[]);
    assert_eq!(made(&later, "/m/a/b/f4"), (7, vec![0]));
}

#[test]
fn a_directory_keeps_its_layout_when_it_is_renamed() {
    let memory = memory();
    let plfs = process(&memory, &[]);
    plfs.set_directory_layout(Path::new("/m/a"), Some(&streams(5))).unwrap();
    plfs.rename(Path::new("/m/a"), Path::new("/m/z")).unwrap();
    assert_eq!(made(&plfs, "/m/z/b/f"), (5, vec![0]));
    memory.mkdir(Path::new("/m/a"), 0o755).unwrap();
    assert_eq!(made(&process(&memory, &[]), "/m/a/f"), (3, vec![0]));
}

#[test]
fn backends_of_a_layout_are_those_of_the_table() {
    let memory = memory();
    create(&process(&memory, &["/n", "/o"]), "/m/f").unwrap();
    let plfs = process(&memory, &[]);
    let set = |backends| {
        let layout = Layout { backends: Some(backends), ..Layout::default() };
        plfs.set_directory_layout(Path::new("/m/a"), Some(&layout))
    };
    set(Backends::All).unwrap();
    assert_eq!(made(&plfs, "/m/a/all"), (3, vec![0, 1, 2]));
    set(Backends::Listed(vec![2])).unwrap();
    assert_eq!(made(&plfs, "/m/a/one"), (3, vec![2]));
    let file = match plfs.open(Path::new("/m/a/one"), OpenOptions::read()).unwrap() {
        Opened::Logical(file) => file,
        Opened::Plain(_) => panic!("it is plain"),
    };
    assert!(file.extents(0, 4).unwrap()[0].data_log.starts_with("/o"));
    assert!(matches!(set(Backends::Listed(vec![3])), Err(Error::UnknownBackend { id: 3, .. })));
    assert_eq!(made(&plfs, "/m/a/still"), (3, vec![2]), "what was refused changed nothing");
    // An id that the table loses is an error, not the root instead.
    memory.unlink(Path::new("/m/.plfs/backends/0001")).unwrap();
    put(&memory, "/m/c/.plfs-layout", b"plfs-layout 1\nbackends 0077\n");
    let error = create(&process(&memory, &[]), "/m/c/g").unwrap_err();
    assert!(matches!(error, Error::UnknownBackend { id: 0x77, .. }), "{error}");
    assert_eq!(memory.stat(Path::new("/m/c/g"), Links::Stay).err(), Some(Errno::NOENT));
}

/// What is being emptied gets nothing new, whatever a layout says.
#[test]
fn a_backend_that_is_drained_is_left_out() {
    let memory = memory();
    create(&process(&memory, &["/n"]), "/m/f").unwrap();
    // A root that this process has not looked at: what a process has found to be active it
    // believes.
    memory.rename(Path::new("/m"), Path::new("/r")).unwrap();
    let file = memory.open(Path::new("/r/.plfs/backends/0001"), Open::READ).unwrap();
    let mut text = vec![0; 500];
    let n = plfs::store::read_full(file.as_ref(), &mut text, 0).unwrap();
    let text = String::from_utf8_lossy(&text[..n]).replace("active", "draining");
    put(&memory, "/r/.plfs/backends/0001", text.as_bytes());
    put(&memory, "/r/a/.plfs-layout", b"plfs-layout 1\nbackends all\n");
    put(&memory, "/r/c/.plfs-layout", b"plfs-layout 1\nbackends 0001\n");
    let config = Config { shared_memory: None, ..Config::shared() };
    let plfs = Plfs::new(Arc::new(memory.clone()), config);
    assert_eq!(made(&plfs, "/r/a/f"), (8, vec![0]));
    let error = create(&plfs, "/r/c/f").unwrap_err();
    assert!(error.errno() == Errno::NOSPC && error.to_string().contains("drained"), "{error}");
}

/// A layout that cannot be read makes no file, because each file would be made in a way that nobody
/// asked for; files that are there are not concerned.
#[test]
fn what_is_no_layout_is_refused_and_never_guessed() {
    let memory = memory();
    create(&process(&memory, &[]), "/m/a/old").unwrap();
    for (text, newer, says) in [
        (&b""[..], false, "there is nothing in it"),
        (b"plfs-layout 1\nstreams 4", false, "the last line does not end"),
        (b"plfs-layout 1\nstreams 0\n", false, "a value is none that its key can have"),
        (
            b"plfs-layout 1\nstripes 4\n",
            false,
            "a key is none of workload, streams, backends and placement",
        ),
        (b"plfs-layout 2\nstreams 4\n", true, "needs a newer PLFS"),
        (&[b'\n'; 10_000], false, "too long"),
    ] {
        put(&memory, "/m/a/.plfs-layout", text);
        let plfs = process(&memory, &[]);
        let error = create(&plfs, "/m/a/b/new").unwrap_err();
        let sentence = error.to_string();
        assert!(sentence.contains(says) && sentence.contains("/m/a/.plfs-layout"), "{sentence}");
        assert_eq!(matches!(error, Error::NeedsNewer { .. }), newer, "{sentence}");
        assert_eq!(memory.stat(Path::new("/m/a/b/new"), Links::Stay).err(), Some(Errno::NOENT));
        create(&plfs, "/m/a/old").unwrap();
        create(&plfs, "/m/c/elsewhere").unwrap();
    }
    // The way out.
    let plfs = process(&memory, &[]);
    plfs.set_directory_layout(Path::new("/m/a"), None).unwrap();
    create(&plfs, "/m/a/b/new").unwrap();
    // A link could lead anywhere.
    memory.symlink(Path::new("/m/a/old"), Path::new("/m/a/.plfs-layout")).unwrap();
    let error = create(&process(&memory, &[]), "/m/a/newer").unwrap_err();
    assert!(error.to_string().contains("not a regular file"), "{error}");
}

/// Creates failed in such a directory, and `plfs check` of the tree said that all was healthy.
#[test]
fn a_check_names_the_layouts_by_which_no_file_can_be_made() {
    let memory = memory();
    let plfs = process(&memory, &[]);
    create(&plfs, "/m/f").unwrap();
    put(&memory, "/m/a/.plfs-layout", b"plfs-layout 1\nstreams 4\n");
    let said = || -> Vec<(PathBuf, Health)> {
        let reports = check_tree(plfs.store(), Path::new("/m"), &plfs.config().mounts, |_| ());
        let bad = |report: &Report| report.health() != Health::Healthy;
        let place = |report: Report| (report.findings[0].path.clone(), report.health());
        reports.unwrap().into_iter().filter(bad).map(place).collect()
    };
    assert_eq!(said(), []);
    for (text, health) in [
        (&b"plfs-layout 1\nstreams 0\n"[..], Health::Corrupt),
        (b"", Health::Corrupt),
        (b"plfs-layout 2\n", Health::Unknown),
        (b"plfs-layout 1\nbackends beef\n", Health::Unknown),
    ] {
        put(&memory, "/m/a/.plfs-layout", text);
        let words = String::from_utf8_lossy(text);
        assert!(create(&process(&memory, &[]), "/m/a/f").is_err(), "{words}");
        let said = said();
        assert_eq!(said.len(), 1, "{words}: {said:?}");
        assert_eq!(said[0].1, health, "{words}: {said:?}");
        assert!(said[0].0.starts_with("/m/a") || health == Health::Unknown, "{words}: {said:?}");
    }
}

#[test]
fn workloads_that_are_not_built_are_not_set() {
    let memory = memory();
    let plfs = process(&memory, &[]);
    for workload in Workload::ALL {
        let layout = Layout { workload: Some(workload), ..Layout::default() };
        let set = plfs.set_directory_layout(Path::new("/m/a"), Some(&layout));
        assert_eq!(set.is_ok(), plfs::is_built(workload), "{workload:?}");
    }
    assert!(plfs::is_built(Workload::Shared));
    let wrong = plfs.set_directory_layout(Path::new("/m/a"), Some(&streams(257)));
    assert!(wrong.is_err());
    plfs.set_directory_layout(Path::new("/m/a"), None).unwrap();
    create(&plfs, "/m/a/f").unwrap();
    let none = plfs.set_directory_layout(Path::new("/m/a/f"), Some(&streams(1)));
    assert_eq!(none.unwrap_err().errno(), Errno::NOTDIR);
}

/// A layout is no program's file: none is made in its place, and a directory that has nothing else
/// is empty.
#[test]
fn a_layout_is_in_nobodys_way() {
    let memory = memory();
    let plfs = process(&memory, &[]);
    plfs.set_directory_layout(Path::new("/m/c"), Some(&streams(2))).unwrap();
    for name in ["/m/a/.plfs-layout", "/m/a/.plfs-layout.00000001"] {
        assert_eq!(create(&plfs, name).unwrap_err().errno(), Errno::PERM);
    }
    create(&plfs, "/m/c/.plfs-layouts").unwrap();
    assert_eq!(plfs.rmdir(Path::new("/m/c")).unwrap_err().errno(), Errno::NOTEMPTY);
    assert!(plfs.own_layout(Path::new("/m/c")).unwrap().is_some(), "it stays with its directory");
    plfs.unlink(Path::new("/m/c/.plfs-layouts")).unwrap();
    put(&memory, "/m/c/.plfs-layout.0badcafe", b"what a crash left");
    plfs.rmdir(Path::new("/m/c")).unwrap();
}

/// Whatever interrupts a change, the directory has the old layout or the new one.
#[test]
fn a_change_is_whole_or_not_at_all() {
    let mut refused = 0;
    for at in 1.. {
        let memory = memory();
        let plfs = process(&memory, &[]);
        plfs.set_directory_layout(Path::new("/m/a"), Some(&streams(2))).unwrap();
        let store = plfs_testkit::FaultStore::new(Arc::new(memory.clone()));
        store.kill_at(at);
        let config = Config { mounts: vec!["/m".into()], shared_memory: None, ..Config::shared() };
        let faulty = Plfs::new(Arc::new(store), config);
        let done = faulty.set_directory_layout(Path::new("/m/a"), Some(&streams(6)));
        for seed in 0..16 {
            let later = process(&memory.crash_with(seed), &[]);
            let found = later.directory_layout(Path::new("/m/a")).unwrap().streams.unwrap().value;
            assert!(found == 6 || (found == 2 && done.is_err()), "{at}, {seed}: {found}");
        }
        if done.is_ok() {
            break;
        }
        refused += 1;
    }
    assert!(refused > 5, "{refused} calls");
}
