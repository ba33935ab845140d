//! The table of backends (FORMAT.md section 1): how directories get ids, and what is said when one
//! is not what the table says. Data is never zeros then.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use plfs::store::{Errno, Links, Open, Store, read_full, write_full};
use plfs::{Config, Error, File, OpenOptions, Opened, Plfs, Result, Severity};
use plfs_testkit::{FaultStore, MemStore};

use crate::scratch::{Scratch, open};

const TABLE: &str = "/m/.plfs/backends";

fn memory() -> MemStore {
    let memory = MemStore::new();
    for dir in ["/m", "/n", "/o"] {
        memory.mkdir(Path::new(dir), 0o755).unwrap();
    }
    memory.sync_dir(Path::new("/")).unwrap();
    memory
}

fn process(store: Arc<dyn Store>, backends: &[&str]) -> Plfs {
    let config = Config {
        shared_memory: None,
        streams: 1,
        backends: backends.iter().map(PathBuf::from).collect(),
        ..Config::shared()
    };
    Plfs::new(store, config)
}

fn logical(opened: Result<Opened>) -> Result<File> {
    match opened? {
        Opened::Logical(file) => Ok(file),
        Opened::Plain(_) => panic!("it is plain"),
    }
}

fn write(plfs: &Plfs, name: &str, byte: u8) -> Result<()> {
    let file = logical(plfs.open(Path::new(name), OpenOptions::create()))?;
    file.write_at(&[byte; 100], 0)?;
    file.sync()?;
    file.close()
}

fn read(plfs: &Plfs, name: &str) -> Result<Vec<u8>> {
    let file = logical(plfs.open(Path::new(name), OpenOptions::read()))?;
    let mut bytes = [0; 200];
    let n = file.read_at(&mut bytes, 0)?;
    Ok(bytes[..n].to_vec())
}

fn bytes(store: &MemStore, path: &str) -> Vec<u8> {
    let file = store.open(Path::new(path), Open::READ).unwrap();
    let mut bytes = vec![0; 10_000];
    let n = read_full(file.as_ref(), &mut bytes, 0).unwrap();
    bytes.truncate(n);
    bytes
}

/// As an administrator does it: a new file, renamed over the old one.
fn replace(store: &MemStore, path: &str, text: &[u8]) {
    let new = format!("{path}.new");
    write_full(store.open(Path::new(&new), Open::create(0o644)).unwrap().as_ref(), text, 0)
        .unwrap();
    store.rename(Path::new(&new), Path::new(path)).unwrap();
}

fn backends_of(plfs: &Plfs, name: &str) -> Vec<u16> {
    plfs.container(Path::new(name)).unwrap().unwrap().1.backends
}

/// Files on the root and on /n, and the name of one whose data is on /n.
fn on_two(memory: &MemStore) -> String {
    let plfs = process(Arc::new(memory.clone()), &["/n"]);
    for i in 0..64 {
        let name = format!("/m/f{i}");
        write(&plfs, &name, i + 1).unwrap();
        let file = logical(plfs.open(Path::new(&name), OpenOptions::read())).unwrap();
        if file.extents(0, 100).unwrap()[0].data_log.starts_with("/n") {
            return name;
        }
    }
    panic!("64 log sets, and none has its data on the second of two backends");
}

#[test]
fn a_directory_gets_an_id_once() {
    let memory = memory();
    let plfs = process(Arc::new(memory.clone()), &["/n", "/o"]);
    write(&plfs, "/m/a", 1).unwrap();
    let (first, second) =
        (bytes(&memory, &format!("{TABLE}/0001")), bytes(&memory, &format!("{TABLE}/0002")));
    assert!(
        first.starts_with(b"plfs-backend 1\nidentity ")
            && first.ends_with(b"\nstate active\npath /n\n"),
        "{}",
        String::from_utf8_lossy(&first)
    );
    assert!(second.ends_with(b"path /o\n") && first[24..56] != second[24..56]);
    assert_eq!(
        bytes(&memory, "/n/.plfs/identity"),
        [&b"plfs-identity 1\n"[..], &first[15..57]].concat()
    );
    // In another order, another process, and another root: the same backends.
    let later = process(Arc::new(memory.crash()), &["/o", "/n"]);
    write(&later, "/m/b", 1).unwrap();
    assert_eq!(
        (backends_of(&plfs, "/m/a"), backends_of(&later, "/m/b")),
        (vec![0, 1, 2], vec![0, 2, 1])
    );
    let identity = bytes(&memory, "/o/.plfs/identity");
    memory.mkdir(Path::new("/other"), 0o755).unwrap();
    write(&process(Arc::new(memory.clone()), &["/o"]), "/other/c", 1).unwrap();
    assert!(
        bytes(&memory, "/other/.plfs/backends/0001").ends_with(b"path /o\n")
            && bytes(&memory, "/o/.plfs/identity") == identity
    );
    assert_eq!(memory.list(Path::new(TABLE)).unwrap().len(), 2, "nothing is left of the making");
    assert_eq!(
        memory
            .list(Path::new("/n/.plfs"))
            .unwrap()
            .iter()
            .filter(|entry| entry.name.to_string_lossy().starts_with("identity"))
            .count(),
        1
    );
}

/// The path of a backend is changed after a move: who has the old one in mind looks again.
#[test]
fn a_backend_that_moved_is_found() {
    let memory = memory();
    let name = on_two(&memory);
    let plfs = process(Arc::new(memory.clone()), &[]);
    let before = read(&plfs, &name).unwrap();
    memory.rename(Path::new("/n"), Path::new("/moved")).unwrap();
    let error = read(&plfs, &name).unwrap_err();
    let Error::Unreachable { from: 0, to: 100, why } = &error else { panic!("{error}") };
    assert!(matches!(**why, Error::MissingBackend { id: 1, .. }), "{error}");
    let text = String::from_utf8(bytes(&memory, &format!("{TABLE}/0001"))).unwrap();
    replace(&memory, &format!("{TABLE}/0001"), text.replace("/n\n", "/moved\n").as_bytes());
    assert_eq!(read(&plfs, &name).unwrap(), before);
    write(&plfs, &name, 99).unwrap();
    assert_eq!(read(&plfs, &name).unwrap(), [99; 100]);
    assert!(memory.stat(Path::new("/n"), Links::Follow).is_err());
}

/// An id without an entry, an empty mount point, another file system at the same path, and an entry
/// that nobody understands: each has its own message, and none is read as zeros.
#[test]
fn what_is_not_what_the_table_says_is_an_error() {
    type Change = fn(&MemStore);
    let changes: [(&str, Change); 6] = [
        ("data lies on backend 0001, but /m/.plfs/backends/0001 is missing", |memory| {
            memory.unlink(Path::new("/m/.plfs/backends/0001")).unwrap()
        }),
        ("backend 0001 is not at /n: is its file system mounted?", |memory| {
            memory.rename(Path::new("/n"), Path::new("/away")).unwrap();
            memory.mkdir(Path::new("/n"), 0o755).unwrap();
        }),
        ("/n is another backend than 0001", |memory| {
            memory.rename(Path::new("/n"), Path::new("/away")).unwrap();
            memory.rename(Path::new("/o"), Path::new("/n")).unwrap();
        }),
        ("/m/.plfs/backends/0001 is damaged", |memory| {
            replace(memory, "/m/.plfs/backends/0001", b"plfs-backend 1\nstate active\npath /n\n")
        }),
        ("/m/.plfs/backends/0001 needs a newer PLFS", |memory| {
            replace(memory, "/m/.plfs/backends/0001", b"plfs-backend 2\n")
        }),
        ("/n/.plfs/identity is damaged", |memory| replace(memory, "/n/.plfs/identity", b"")),
    ];
    for (message, change) in changes {
        let before = memory();
        // /o becomes a backend, too.
        write(&process(Arc::new(before.clone()), &["/n", "/o"]), "/m/first", 1).unwrap();
        let name = on_two(&before);
        let memory = before.crash();
        change(&memory);
        let store: Arc<dyn Store> = Arc::new(memory.clone());
        let plfs = process(store.clone(), &[]);
        let error = read(&plfs, &name).unwrap_err();
        assert!(error.to_string().contains(message), "{error}");
        assert_eq!(
            error.errno(),
            if message.contains("newer") { Errno::OPNOTSUPP } else { Errno::IO },
            "{error}"
        );
        let report = plfs::check_name(&store, Path::new(&name), &[]);
        assert!(
            report
                .findings
                .iter()
                .any(|finding| finding.severity >= Severity::Unknown && !finding.what.is_empty()),
            "{message}: {report:?}"
        );
        // A new log set may do without, or says the same.
        if let Err(error) = write(&plfs, &name, 7) {
            assert!(error.to_string().contains(message), "{error}");
        }
        if let Ok(bytes) = read(&plfs, &name) {
            assert_eq!(bytes, [7; 100]);
        }
        // The name can be removed all the same.
        plfs.unlink(Path::new(&name)).unwrap();
    }
}

#[test]
fn nothing_new_is_put_on_a_backend_that_is_being_emptied() {
    let before = memory();
    let name = on_two(&before);
    let memory = before.crash();
    memory.mkdir(Path::new("/o/.plfs"), 0o1777).unwrap();
    let text = String::from_utf8(bytes(&memory, &format!("{TABLE}/0001"))).unwrap();
    replace(&memory, &format!("{TABLE}/0001"), text.replace("active", "draining").as_bytes());
    let plfs = process(Arc::new(memory.clone()), &["/n", "/o"]);
    write(&plfs, "/m/new", 1).unwrap();
    assert_eq!(backends_of(&plfs, "/m/new"), [0, 2]);
    assert!(!read(&plfs, &name).unwrap().is_empty(), "what is there is read");
    // Who takes over a log set that has a data log there goes on elsewhere. That it was closed is
    // not durable.
    let (container, _) = plfs.container(Path::new(&name)).unwrap().unwrap();
    for entry in memory.list(&container.dir).unwrap() {
        if entry.name.to_string_lossy().ends_with(".open") {
            memory.unlink(&container.dir.join(entry.name)).unwrap();
        }
    }
    let sets = |plfs: &Plfs| plfs.stat(Path::new(&name), Links::Follow).unwrap().totals.unwrap();
    let before = sets(&plfs).log_sets;
    let file = logical(plfs.open(Path::new(&name), OpenOptions::create())).unwrap();
    file.write_at(&[9; 50], 0).unwrap();
    file.sync().unwrap();
    file.close().unwrap();
    let file = logical(plfs.open(Path::new(&name), OpenOptions::read())).unwrap();
    let extents = file.extents(0, 100).unwrap();
    assert!(!extents[0].data_log.starts_with("/n") && extents[1].data_log.starts_with("/n"));
    assert_eq!((sets(&plfs).log_sets, &read(&plfs, &name).unwrap()[..50]), (before, &[9; 50][..]));
}

/// Two nodes register one directory at once: whatever ids come of it, all files are read by all.
#[test]
fn a_backend_may_have_two_ids() {
    let before = memory();
    let name = on_two(&before);
    let memory = before.crash();
    let text = bytes(&memory, &format!("{TABLE}/0001"));
    memory
        .rename(Path::new(&format!("{TABLE}/0001")), Path::new(&format!("{TABLE}/0007")))
        .unwrap();
    let store: Arc<dyn Store> = Arc::new(memory.clone());
    let plfs = process(store.clone(), &["/n"]);
    write(&plfs, "/m/seven", 7).unwrap();
    assert_eq!(backends_of(&plfs, "/m/seven"), [0, 7]);
    replace(&memory, &format!("{TABLE}/0001"), &text);
    assert_eq!(
        (read(&plfs, &name).unwrap().len(), read(&plfs, "/m/seven").unwrap()),
        (100, vec![7; 100])
    );
    for name in [name.as_str(), "/m/seven"] {
        let report = plfs::check_name(&store, Path::new(name), &[]);
        assert!(
            report.findings.iter().all(
                |finding| finding.path.ends_with("super") || finding.severity == Severity::Busy
            ),
            "{report:?}"
        );
    }
}

/// Several processes make the first files of a root at once. One of them looked for a backend
/// before another had made its `.plfs`, and for the root's after that: it took the backend for one
/// that is not mounted (EIO).
#[test]
fn threads_that_register_at_once_agree() {
    for _ in 0..20 {
        let memory = memory();
        std::thread::scope(|scope| {
            for i in 0..6 {
                let memory = memory.clone();
                scope.spawn(move || {
                    write(&process(Arc::new(memory), &["/n", "/o"]), &format!("/m/f{i}"), i + 1)
                        .unwrap()
                });
            }
        });
        // Nobody remembers anything.
        let left = memory.crash();
        for i in 0..6 {
            assert_eq!(
                read(&process(Arc::new(left.clone()), &[]), &format!("/m/f{i}")).unwrap(),
                [i + 1; 100]
            );
        }
    }
}

/// The first process to use a backend dies at each of its calls to storage, and the power goes: the
/// next one can use it, and no entry is half there.
#[test]
fn death_while_registering_leaves_no_half_entry() {
    for cut in 1.. {
        let memory = memory();
        let faults = FaultStore::new(Arc::new(memory.clone()));
        faults.kill_at(cut);
        let done = write(&process(Arc::new(faults.clone()), &["/n", "/o"]), "/m/f", 1);
        for seed in 0..4 {
            let left = if seed == 0 { memory.crash() } else { memory.crash_with(cut * 10 + seed) };
            for dir in ["/n", "/o"] {
                // What an administrator does who finds that a backend's directory was not made
                // durable.
                let _ = left.mkdir(&Path::new(dir).join(".plfs"), 0o1777);
            }
            let story = || {
                format!(
                    "cut at call {cut}, seed {seed}: {}",
                    faults.log().last().map(|call| call.to_string()).unwrap_or_default()
                )
            };
            let plfs = process(Arc::new(left.clone()), &["/n", "/o"]);
            write(&plfs, "/m/g", 2).unwrap_or_else(|error| panic!("{}: {error}", story()));
            assert_eq!(
                read(&process(Arc::new(left.crash()), &[]), "/m/g")
                    .unwrap_or_else(|error| panic!("{}: {error}", story())),
                [2; 100]
            );
        }
        if done.is_ok() {
            assert!(cut > 30, "{cut} calls: it does too little");
            return;
        }
    }
}

/// A process writes and closes, or commits, and another one syncs the file: it synced the logs on
/// other backends, and not the directories above them, so a power cut took the data with them.
#[test]
fn a_sync_of_what_others_wrote_has_the_directories_on_other_backends() {
    for round in 0..12 {
        let (scratch, memory) = (Scratch::new(), MemStore::new());
        for dir in ["/m", "/n", "/o"] {
            memory.mkdir(Path::new(dir), 0o755).unwrap();
        }
        memory.sync_dir(Path::new("/")).unwrap();
        let backends = vec![PathBuf::from("/n"), PathBuf::from("/o")];
        let config = Config { backends, streams: 3, ..scratch.config() };
        let process = || Plfs::new(Arc::new(memory.clone()), config.clone());
        let path = Path::new("/m/f");
        let file = open(&process(), path);
        file.write_at(&[7; 150], 0).unwrap();
        match round % 2 {
            0 => file.close().unwrap(),
            _ => {
                file.commit().unwrap();
                std::mem::forget(file);
            }
        }
        open(&process(), path).sync().unwrap();
        let after = Scratch::new();
        let later = Plfs::new(Arc::new(memory.crash()), after.config());
        assert_eq!(read(&later, "/m/f").unwrap(), [7; 150], "round {round}");
    }
}
