//! Backends in use: added, moved, drained, removed (docs/decisions/0018). Nobody loses a byte,
//! whoever dies, and whatever is missing.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use plfs::pack::Pack;
use plfs::store::{Errno, Links, Open, Store};
use plfs::{
    BackendState, BackendStatus, Config, Drained, Error, File, Health, Held, OpenOptions, Opened,
    Plfs, Presence, Result, Severity, Workload, Writers,
};
use plfs_testkit::{FaultStore, MemStore, Op, in_turn, seed};

use crate::pack::{AT_ONCE, CREATE, content, names};

const ROOT: &str = "/m";
const NO_TIME: Duration = Duration::ZERO;

fn memory() -> MemStore {
    let memory = MemStore::new();
    for dir in ["/m", "/n", "/o", "/p"] {
        memory.mkdir(Path::new(dir), 0o755).unwrap();
    }
    memory.sync_dir(Path::new("/")).unwrap();
    memory
}

fn config(backends: &[&str]) -> Config {
    Config {
        shared_memory: None,
        streams: 2,
        backends: backends.iter().map(PathBuf::from).collect(),
        ..Config::shared()
    }
}

fn process(store: &MemStore, backends: &[&str]) -> Plfs {
    Plfs::new(Arc::new(store.clone()), config(backends))
}

/// A file that was plain cannot be compacted, so a drain leaves it where it is; and did not say its
/// name, because it looked for files of the length of a superblock.
#[test]
fn a_drain_names_the_files_that_were_plain() {
    let memory = memory();
    let backends = ["/n".into(), "/o".into()];
    let config = Config { workload: Workload::Auto, backends: backends.into(), ..config(&[]) };
    let plfs = Plfs::new(Arc::new(memory.clone()), config);
    let several = OpenOptions { writers: Writers::Several, ..OpenOptions::create() };
    let mut is_there = |i: u32| {
        let name = PathBuf::from(format!("/m/f{i}"));
        let first = plfs.open(&name, OpenOptions::create()).unwrap().file();
        first.write_at(b"in place", 0).unwrap();
        let file = plfs.open(&name, several).unwrap().file();
        file.write_at(&[7; 20_000], 10).unwrap();
        [file, first].into_iter().for_each(|file| file.close().unwrap());
        (status(&memory)[&1].held.files > 0).then_some(name)
    };
    let name = (0..64).find_map(&mut is_there).expect("one of 64 has data on 0001");
    let done = drain(&memory, 1, &[]).unwrap();
    assert_eq!(done.left.len(), 1, "{done:?}");
    assert_eq!(done.left[0].names, [name]);
}

/// The storage did not say for a moment whether a directory above is a root. It was taken for none,
/// and the file got a root of its own, without the backends.
#[test]
fn a_root_that_cannot_be_looked_at_is_not_passed_by() {
    let memory = memory();
    memory.mkdir(Path::new("/m/d"), 0o755).unwrap();
    open(&process(&memory, &["/n"]), "/m/first").close().unwrap();
    let faults = FaultStore::new(Arc::new(memory.clone()));
    let plfs = Plfs::new(Arc::new(faults.clone()), config(&[]));
    let create = || plfs.open(Path::new("/m/d/f"), OpenOptions::create());
    faults.fail_matching("/m/.plfs", Op::Stat, Errno::IO);
    assert_eq!(create().unwrap_err().errno(), Errno::IO);
    assert_eq!(memory.stat(Path::new("/m/d/.plfs"), Links::Stay), Err(Errno::NOENT));
    faults.reset();
    create().unwrap().file().close().unwrap();
    assert_eq!(memory.stat(Path::new("/m/d/.plfs"), Links::Stay), Err(Errno::NOENT));
}

/// An entry of the table could not be read. It was taken for one of another directory, which then
/// got a second id. And a table that could not be listed was taken for empty: a sync left out the
/// backends that the file does not list, and the sign that a log set is dead went before its data.
#[test]
fn a_table_that_cannot_be_read_is_not_taken_for_empty() {
    let memory = memory();
    let plfs = process(&memory, &["/n", "/o"]);
    let file = open(&plfs, "/m/f");
    file.write_at(b"there", 0).unwrap();
    file.close().unwrap();
    let faults = FaultStore::new(Arc::new(memory.clone()));
    let store: Arc<dyn Store> = Arc::new(faults.clone());
    let add = || plfs::join_backend(&store, &config(&[]), Path::new(ROOT), Path::new("/n"));
    faults.fail_matching("backends/0001", None, Errno::IO);
    assert_eq!(add().unwrap_err().errno(), Errno::IO);
    faults.reset();
    assert_eq!(add().unwrap(), 1);
    assert_eq!(status(&memory).len(), 3);
    let file = open(&Plfs::new(store.clone(), config(&[])), "/m/f");
    faults.fail_matching(".plfs/backends", Op::List, Errno::IO);
    assert_eq!(file.sync().unwrap_err().errno(), Errno::IO);
}

fn open(plfs: &Plfs, name: &str) -> File {
    match plfs.open(Path::new(name), OpenOptions::create()).unwrap() {
        Opened::Logical(file) => file,
        Opened::Plain(_) => panic!("it is plain"),
    }
}

fn all(file: &File) -> Result<Vec<u8>> {
    let mut bytes = vec![0xee; file.len()? as usize];
    let n = file.read_at(&mut bytes, 0)?;
    bytes.truncate(n);
    Ok(bytes)
}

fn read(plfs: &Plfs, name: &str) -> Result<Vec<u8>> {
    match plfs.open(Path::new(name), OpenOptions::read())? {
        Opened::Logical(file) => all(&file),
        Opened::Plain(_) => panic!("it is plain"),
    }
}

/// What a file has that is made here: some bytes under others, and a hole.
fn make(plfs: &Plfs, name: &str, byte: u8) -> Vec<u8> {
    for turn in 0..3 {
        let file = open(plfs, name);
        file.write_at(&vec![byte + turn; 20_000], u64::from(turn) * 15_000).unwrap();
        file.write_at(&[byte; 10], 90_000).unwrap();
        file.sync().unwrap();
        file.close().unwrap();
    }
    read(plfs, name).unwrap()
}

/// Files on the root, /n (0001) and /o (0002), at least 8, so that each has some.
fn files(memory: &MemStore) -> BTreeMap<String, Vec<u8>> {
    let (plfs, mut files) = (process(memory, &["/n", "/o"]), BTreeMap::new());
    for i in 0..64 {
        let name = format!("/m/f{i}");
        let bytes = make(&plfs, &name, i * 3 + 1);
        files.insert(name, bytes);
        if i >= 7 && status(memory).values().all(|row| row.held.files > 0) {
            return files;
        }
    }
    panic!("64 log sets, and none has its data on one of three backends");
}

fn on(_: plfs::Progress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn drain_on(store: Arc<dyn Store>, id: u16, to: &[u16]) -> Result<Drained> {
    plfs::drain(&store, &config(&[]), Path::new(ROOT), id, to, on)
}

fn drain(memory: &MemStore, id: u16, to: &[u16]) -> Result<Drained> {
    drain_on(Arc::new(memory.clone()), id, to)
}

fn remove(memory: &MemStore, id: u16) -> Result<()> {
    let store: Arc<dyn Store> = Arc::new(memory.clone());
    plfs::remove_backend(&store, &config(&[]), Path::new(ROOT), id, NO_TIME)
}

fn join(memory: &MemStore, dir: &str) -> Result<u16> {
    let store: Arc<dyn Store> = Arc::new(memory.clone());
    plfs::join_backend(&store, &config(&[]), Path::new(ROOT), Path::new(dir))
}

fn move_to(memory: &MemStore, id: u16, dir: &str) -> Result<()> {
    let store: Arc<dyn Store> = Arc::new(memory.clone());
    plfs::move_backend(&store, &config(&[]), Path::new(ROOT), id, Path::new(dir))
}

fn status(memory: &MemStore) -> BTreeMap<u16, BackendStatus> {
    let store: Arc<dyn Store> = Arc::new(memory.clone());
    let rows = plfs::backends(&store, &config(&[]), Path::new(ROOT)).unwrap();
    rows.into_iter().map(|row| (row.id, row)).collect()
}

fn held(memory: &MemStore, id: u16) -> Held {
    status(memory)[&id].held
}

fn must_be(memory: &MemStore, expect: &BTreeMap<String, Vec<u8>>, story: &str) {
    let plfs = process(memory, &[]);
    for (name, bytes) in expect {
        let found = read(&plfs, name).unwrap_or_else(|error| panic!("{story}: {name}: {error}"));
        assert!(found == *bytes, "{story}: {name} is another");
    }
}

fn must_be_healthy(memory: &MemStore, expect: &BTreeMap<String, Vec<u8>>) {
    let store: Arc<dyn Store> = Arc::new(memory.clone());
    for name in expect.keys() {
        let report = plfs::check_name(&store, Path::new(name), &[]);
        assert_eq!(report.health(), Health::Healthy, "{report:?}");
    }
}

/// The whole life of a backend, with readers that have the files open all the time.
#[test]
fn a_backend_is_drained_and_removed_under_readers() {
    let memory = memory();
    let expect = files(&memory);
    let before = status(&memory);
    assert_eq!(before.len(), 3);
    assert!(before.values().all(|row| row.held.files > 0 && row.held.bytes > 0), "{before:?}");
    let reading = process(&memory, &[]);
    let readers: Vec<_> = expect.keys().map(|name| open(&reading, name)).collect();
    for (reader, bytes) in readers.iter().zip(expect.values()).step_by(2) {
        assert_eq!(&all(reader).unwrap(), bytes);
    }
    let error = remove(&memory, 1).unwrap_err();
    assert!(error.to_string().contains("`plfs backend drain`"), "{error}");
    let done = drain(&memory, 1, &[]).unwrap();
    assert!(done.left.is_empty(), "{done:?}");
    assert_eq!(done.files, before[&1].held.files);
    assert_eq!(held(&memory, 1), Held::default());
    assert_eq!(status(&memory)[&1].state, Some(BackendState::Draining));
    must_be(&memory, &expect, "drained");
    must_be_healthy(&memory, &expect);
    // Again: there is nothing to do.
    assert_eq!(drain(&memory, 1, &[]).unwrap().files, 0);
    // Nothing new is put there, of new files or old ones.
    let plfs = process(&memory, &["/n", "/o"]);
    make(&plfs, "/m/new", 200);
    for (name, bytes) in &expect {
        let file = open(&plfs, name);
        file.write_at(&bytes[..10], 0).unwrap();
        file.close().unwrap();
    }
    assert_eq!(held(&memory, 1), Held::default());
    remove(&memory, 1).unwrap();
    assert_eq!(status(&memory)[&1].state, Some(BackendState::Gone));
    assert!(memory.list(Path::new("/n/.plfs")).unwrap().iter().all(|entry| entry.name.len() != 2));
    // Its directory goes, and nobody misses it.
    memory.rename(Path::new("/n"), Path::new("/gone")).unwrap();
    must_be(&memory, &expect, "removed");
    must_be_healthy(&memory, &expect);
    for (reader, bytes) in readers.iter().zip(expect.values()) {
        reader.refresh().unwrap();
        assert_eq!(&all(reader).unwrap(), bytes);
    }
    for name in expect.keys() {
        plfs.unlink(Path::new(name)).unwrap();
    }
    // The same directory again: the same id.
    memory.rename(Path::new("/gone"), Path::new("/n")).unwrap();
    assert_eq!(join(&memory, "/n").unwrap(), 1);
    assert_eq!(status(&memory)[&1].state, Some(BackendState::Active));
}

/// The usual case: another directory takes the place of one, and files that were made before it
/// was there go to it. It is theirs like any other: to write, cut, change and remove.
#[test]
fn data_goes_to_a_backend_that_was_added_later() {
    let memory = memory();
    let expect = files(&memory);
    assert_eq!(join(&memory, "/p").unwrap(), 3);
    assert_eq!(join(&memory, "/p").unwrap(), 3, "it is one already");
    drain(&memory, 1, &[3]).unwrap();
    let there = held(&memory, 3);
    assert!(there.files > 0, "{there:?}");
    remove(&memory, 1).unwrap();
    must_be(&memory, &expect, "elsewhere");
    must_be_healthy(&memory, &expect);
    let plfs = process(&memory, &[]);
    let moved = expect
        .keys()
        .find(|name| {
            let extents = open(&plfs, name).extents(0, u64::MAX).unwrap();
            extents.iter().any(|extent| extent.data_log.starts_with("/p"))
        })
        .unwrap();
    // Who goes on with it appends where it is; what was there stays.
    for turn in 0..4u8 {
        let file = open(&process(&memory, &[]), moved);
        file.write_at(&[turn; 30_000], 100_000).unwrap();
        file.close().unwrap();
        let bytes = read(&plfs, moved).unwrap();
        assert!(bytes[..90_010] == expect[moved][..] && bytes[100_000..] == [turn; 30_000]);
    }
    plfs.chmod(Path::new(moved), 0o600).unwrap();
    let (container, _) = plfs.container(Path::new(moved)).unwrap().unwrap();
    let there = Path::new("/p").join(container.dir.strip_prefix(ROOT).unwrap());
    assert_eq!(memory.stat(&there, Links::Stay).unwrap().mode & 0o777, 0o700);
    plfs.compact(Path::new(moved), |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(&read(&plfs, moved).unwrap()[..90_010], &expect[moved][..]);
    plfs.truncate(Path::new(moved), 0).unwrap();
    for name in expect.keys() {
        plfs.unlink(Path::new(name)).unwrap();
    }
    for id in [2, 3] {
        let row = &status(&memory)[&id];
        assert_eq!((row.held, row.foreign), (Held::default(), Held::default()), "{id}");
    }
}

/// If no other backend takes data, the root does.
#[test]
fn the_last_backend_is_drained_to_the_root() {
    let memory = memory();
    let plfs = process(&memory, &["/n"]);
    let names: Vec<String> = (0..4).map(|i| format!("/m/f{i}")).collect();
    let layout =
        plfs::Layout { backends: Some(plfs::Backends::Listed(vec![1])), ..plfs::Layout::default() };
    make(&plfs, "/m/first", 1);
    plfs.set_directory_layout(Path::new(ROOT), Some(&layout)).unwrap();
    let expect: BTreeMap<_, _> =
        names.iter().map(|name| (name.clone(), make(&plfs, name, 7))).collect();
    drain(&memory, 1, &[]).unwrap();
    assert_eq!(held(&memory, 1), Held::default());
    must_be(&memory, &expect, "on the root");
    for name in &names {
        assert_eq!(make(&process(&memory, &[]), name, 7), expect[name]);
    }
    assert_eq!(held(&memory, 1), Held::default());
    remove(&memory, 1).unwrap();
    // A directory whose layout says nothing else makes no files now, and says why.
    let error = plfs.open(Path::new("/m/more"), OpenOptions::create()).unwrap_err();
    assert_eq!(error.errno(), Errno::NOSPC);
}

/// A file that somebody writes stays where it is, is named, and is moved when it is closed; what is
/// written meanwhile is kept.
#[test]
fn a_file_that_is_open_for_writing_is_named_and_moved_later() {
    let memory = memory();
    let mut expect = files(&memory);
    let plfs = process(&memory, &["/n", "/o"]);
    let name = expect
        .keys()
        .find(|name| {
            let extents = open(&plfs, name).extents(0, u64::MAX).unwrap();
            extents.iter().any(|extent| extent.data_log.starts_with("/n"))
        })
        .unwrap()
        .clone();
    let writer = open(&plfs, &name);
    writer.write_at(b"written before", 5).unwrap();
    let done = drain(&memory, 1, &[]).unwrap();
    assert_eq!(done.left.len(), 1, "{done:?}");
    assert_eq!(done.left[0].names, [PathBuf::from(&name)]);
    assert_eq!(done.left[0].why.errno(), Errno::BUSY);
    assert!(done.left[0].bytes > 0 && done.left[0].why.to_string().contains("open for writing"));
    assert_eq!(held(&memory, 1).files, 1);
    let error = remove(&memory, 1).unwrap_err();
    assert!(error.to_string().contains("files have data there"), "{error}");
    writer.write_at(b"written meanwhile", 500).unwrap();
    writer.close().unwrap();
    let bytes = expect.get_mut(&name).unwrap();
    bytes[5..][..14].copy_from_slice(b"written before");
    bytes[500..][..17].copy_from_slice(b"written meanwhile");
    assert!(drain(&memory, 1, &[]).unwrap().left.is_empty());
    assert_eq!(held(&memory, 1), Held::default());
    must_be(&memory, &expect, "closed and moved");
    remove(&memory, 1).unwrap();
}

/// A backend is where its identity is, and nowhere else.
#[test]
fn a_backend_moves_by_one_entry_and_only_to_itself() {
    let memory = memory();
    let expect = files(&memory);
    let reading = process(&memory, &[]);
    must_be(&memory, &expect, "before");
    memory.rename(Path::new("/n"), Path::new("/elsewhere")).unwrap();
    memory.mkdir(Path::new("/n"), 0o755).unwrap();
    assert!(matches!(
        status(&memory)[&1].presence,
        Presence::Not(Error::MissingBackend { id: 1, .. })
    ));
    let (empty, wrong) = (move_to(&memory, 1, "/n"), move_to(&memory, 1, "/o"));
    assert!(matches!(empty, Err(Error::MissingBackend { .. })), "{empty:?}");
    assert!(matches!(wrong, Err(Error::WrongBackend { .. })), "{wrong:?}");
    assert!(drain(&memory, 1, &[]).is_err() && remove(&memory, 1).is_err());
    assert_eq!(status(&memory)[&1].state, Some(BackendState::Active), "nothing was begun");
    let error = join(&memory, "/elsewhere").unwrap_err();
    assert!(error.to_string().contains("`plfs backend move`"), "{error}");
    let error = join(&memory, "/n").unwrap_err();
    assert!(matches!(error, Error::MissingBackend { id: 1, .. }), "{error}");
    move_to(&memory, 1, "/elsewhere").unwrap();
    assert!(matches!(status(&memory)[&1].presence, Presence::There));
    must_be(&memory, &expect, "moved");
    for (name, bytes) in &expect {
        assert_eq!(&read(&reading, name).unwrap(), bytes);
    }
    drain(&memory, 1, &[]).unwrap();
    must_be(&memory, &expect, "moved and drained");
    assert!(join(&memory, ROOT).is_err() && drain(&memory, 0, &[]).is_err());
    assert!(drain(&memory, 2, &[2]).is_err() && drain(&memory, 2, &[1]).is_err());
    assert!(matches!(drain(&memory, 9, &[]), Err(Error::UnknownBackend { id: 9, .. })));
    assert_eq!(status(&memory)[&2].state, Some(BackendState::Active));
}

/// A file on the root and backend 1, and so many on that alone, so that there is something to move
/// in each; and backend 2, which takes them.
fn files_to_drain(memory: &MemStore, count: u8) -> BTreeMap<String, Vec<u8>> {
    let plfs = process(memory, &["/n"]);
    let layout =
        plfs::Layout { backends: Some(plfs::Backends::Listed(vec![1])), ..plfs::Layout::default() };
    let on_both = make(&plfs, "/m/first", 1);
    plfs.set_directory_layout(Path::new(ROOT), Some(&layout)).unwrap();
    let mut expect: BTreeMap<_, _> =
        (0..count).map(|i| (format!("/m/f{i}"), make(&plfs, &format!("/m/f{i}"), i + 1))).collect();
    expect.insert("/m/first".into(), on_both);
    join(memory, "/o").unwrap();
    expect
}

/// The drain dies at each of its calls to storage, and there the power goes, too: each file is what
/// it was, and when the dead are cleared away the same command goes on to the end.
#[test]
fn death_at_every_call_of_a_drain_changes_no_byte() {
    let first = seed();
    let before = memory();
    let expect = files_to_drain(&before, 2);
    for cut in in_turn(1..) {
        let memory = before.crash();
        // Not all that closed it is durable.
        bury(&memory, &expect);
        let faults = FaultStore::new(Arc::new(memory.clone()));
        faults.kill_at(cut);
        let done = drain_on(Arc::new(faults.clone()), 1, &[2]);
        let is_done = done.is_ok_and(|done| done.left.is_empty());
        let story = || {
            format!(
                "cut at call {cut}: {}",
                faults.log().last().map(|call| call.to_string()).unwrap_or_default()
            )
        };
        must_be(&memory, &expect, &story());
        for seed in 0..3 {
            let left = match seed {
                0 => memory.crash(),
                seed => memory.crash_with(first + cut * 100 + seed),
            };
            must_be(&left, &expect, &format!("{}, power lost by seed {seed}", story()));
            go_on(&left, &expect, &format!("{}, power lost by seed {seed}", story()));
        }
        go_on(&memory, &expect, &story());
        if is_done {
            assert!(cut > 100, "{cut} calls");
            return;
        }
    }
}

/// Clears away who had the files open.
fn bury(memory: &MemStore, expect: &BTreeMap<String, Vec<u8>>) {
    for name in expect.keys() {
        let (container, _) = process(memory, &[]).container(Path::new(name)).unwrap().unwrap();
        // They live, in this process; a person says that they do not.
        for entry in memory.list(&container.dir).unwrap() {
            if let Some(set) = entry.name.to_str().unwrap().strip_suffix(".open") {
                let mark = |end: &str| container.path(&format!("{set}.{end}"));
                memory.rename(&mark("open"), &mark("fenced")).unwrap();
            }
        }
    }
}

/// Drains to the end, as the next process does when those that died are known to be dead.
fn go_on(memory: &MemStore, expect: &BTreeMap<String, Vec<u8>>, story: &str) {
    let store: Arc<dyn Store> = Arc::new(memory.clone());
    bury(memory, expect);
    let done = drain(memory, 1, &[2]).unwrap_or_else(|error| panic!("{story}: {error}"));
    assert!(done.left.is_empty(), "{story}: {done:?}");
    assert_eq!(held(memory, 1), Held::default(), "{story}");
    must_be(memory, expect, story);
    remove(memory, 1).unwrap_or_else(|error| panic!("{story}: {error}"));
    for name in expect.keys() {
        let report = plfs::check_name(&store, Path::new(name), &[]);
        let lost = report.findings.iter().find(|finding| finding.severity == Severity::Corrupt);
        assert!(lost.is_none(), "{story}: {lost:?}");
    }
}

/// The backend that a drain copies to is full from each call on that takes room there: no byte is
/// another, all that stays is named, and when there is room again the drain goes on.
#[test]
fn a_drain_that_finds_no_room_costs_nothing() {
    let before = memory();
    let expect = files_to_drain(&before, 3);
    for n in 1.. {
        let memory = before.crash();
        bury(&memory, &expect);
        let faults = FaultStore::new(Arc::new(memory.clone()));
        faults.full_at("/o/", n);
        let done = drain_on(Arc::new(faults.clone()), 1, &[2]);
        let story = format!("no room from call {n} on: {done:?}");
        let was_full = faults.log().iter().any(|call| call.error == Some(Errno::NOSPC));
        let done = done.unwrap_or_else(|error| panic!("{story}: {error}"));
        assert!(done.left.iter().all(|left| left.why.errno() == Errno::NOSPC), "{story}");
        assert_eq!(held(&memory, 1) != Held::default(), !done.left.is_empty(), "{story}");
        must_be(&memory, &expect, &story);
        must_be_healthy(&memory, &expect);
        // Nobody is in the way of the next one.
        let done = drain(&memory, 1, &[2]).unwrap_or_else(|error| panic!("{story}: {error}"));
        assert!(done.left.is_empty(), "{story}, then {done:?}");
        must_be(&memory, &expect, &story);
        assert_eq!(held(&memory, 1), Held::default(), "{story}");
        remove(&memory, 1).unwrap_or_else(|error| panic!("{story}: {error}"));
        must_be_healthy(&memory, &expect);
        if !was_full {
            assert!(n > 10, "{n} calls");
            return;
        }
    }
}

/// A backend goes away while a drain copies from it, or to it: what could not be read or written is
/// named with the backend, all else is done, and when it is back the drain goes on.
#[test]
fn a_backend_that_is_lost_in_the_middle_of_a_drain_costs_nothing() {
    for lost in ["/n", "/o"] {
        for (when, op) in [(".data", Op::Open), ("clock", Op::WriteAt), ("index", Op::SyncData)] {
            let memory = memory();
            let expect = files(&memory);
            let faults = FaultStore::new(Arc::new(memory.clone()));
            let away = memory.clone();
            faults.before(when, op, move || {
                away.rename(Path::new(lost), Path::new("/away")).unwrap();
                away.mkdir(Path::new(lost), 0o755).unwrap();
            });
            let done = drain_on(Arc::new(faults.clone()), 1, &[2]);
            let story = format!("{lost} lost before {op:?} of {when}: {done:?}");
            let is_named = |error: &Error| {
                let text = error.to_string();
                text.contains(if lost == "/n" { "0001" } else { "0002" }) && text.contains(lost)
            };
            match &done {
                Ok(done) => assert!(
                    done.left.iter().any(|left| is_named(&left.why)) || done.left.is_empty(),
                    "{story}"
                ),
                Err(error) => assert!(is_named(error), "{story}"),
            }
            // Never zeros.
            let plfs = process(&memory, &[]);
            for (name, bytes) in &expect {
                match read(&plfs, name) {
                    Ok(found) => assert!(found == *bytes, "{story}: {name}"),
                    Err(error) => assert!(is_named(&error), "{story}: {error}"),
                }
            }
            memory.rmdir(Path::new(lost)).unwrap();
            memory.rename(Path::new("/away"), Path::new(lost)).unwrap();
            must_be(&memory, &expect, &story);
            let done = drain(&memory, 1, &[2]).unwrap();
            assert!(done.left.is_empty(), "{story}, then {done:?}");
            must_be(&memory, &expect, &story);
            assert_eq!(held(&memory, 1), Held::default(), "{story}");
            remove(&memory, 1).unwrap();
        }
    }
}

/// What is cut or compacted while a backend is not there is removed from it when it is back.
#[test]
fn what_goes_while_a_backend_is_away_is_removed_later() {
    let memory = memory();
    let mut expect = files(&memory);
    let held_before = held(&memory, 1);
    memory.rename(Path::new("/n"), Path::new("/away")).unwrap();
    let names: Vec<String> = expect.keys().cloned().collect();
    let mut cut = 0;
    for name in &names {
        if process(&memory, &[]).truncate(Path::new(name), 0).is_ok() {
            cut += 1;
            expect.insert(name.clone(), Vec::new());
        }
    }
    assert!(cut > 0);
    memory.rename(Path::new("/away"), Path::new("/n")).unwrap();
    assert_eq!(held(&memory, 1), held_before, "nobody could remove it");
    assert!(drain(&memory, 1, &[]).unwrap().left.is_empty());
    assert_eq!(held(&memory, 1), Held::default());
    must_be(&memory, &expect, "cut meanwhile");
    remove(&memory, 1).unwrap();
}

/// Data that no index log explains is nobody's to remove: it is named, and keeps the backend.
#[test]
fn data_without_an_index_log_is_named_and_stays() {
    let memory = memory();
    let expect = files(&memory);
    let (container, _) = process(&memory, &[]).container(Path::new("/m/f0")).unwrap().unwrap();
    let dir = Path::new("/n").join(container.dir.strip_prefix(ROOT).unwrap());
    let _ = memory.mkdir(dir.parent().unwrap(), 0o755);
    let _ = memory.mkdir(&dir, 0o755);
    memory.mkdir(&dir.join("01234567"), 0o755).unwrap();
    let log = dir.join("01234567/00.00000000.data");
    memory.open(&log, Open::create(0o644)).unwrap().write_at(b"whose?", 0).unwrap();
    let done = drain(&memory, 1, &[]).unwrap();
    assert_eq!(done.left.len(), 1, "{done:?}");
    assert!(done.left[0].why.to_string().contains("no index log"), "{done:?}");
    assert_eq!(done.left[0].names, [PathBuf::from("/m/f0")]);
    assert!(remove(&memory, 1).is_err());
    must_be(&memory, &expect, "one strange log");
    memory.unlink(&log).unwrap();
    drain(&memory, 1, &[]).unwrap();
    remove(&memory, 1).unwrap();
    must_be(&memory, &expect, "all moved");
}

/// A backend is not there: what lies elsewhere is read, what lies there is an error that says which
/// bytes, which backend and where, and the tools say the same.
#[test]
fn what_lies_on_a_missing_backend_is_named_and_all_else_is_read() {
    let memory = memory();
    let expect = files(&memory);
    let plfs = process(&memory, &["/n", "/o"]);
    // A file of which one log set is on /n and others are not.
    let name = "/m/mixed";
    let (mut there, mut elsewhere) = (0, 0);
    for i in 0..64 {
        let writer = process(&memory, &["/n", "/o"]);
        let file = open(&writer, name);
        file.write_at(&vec![i + 1; 1000], u64::from(i) * 1000).unwrap();
        file.sync().unwrap();
        std::mem::forget(file);
        let extents = open(&process(&memory, &[]), name).extents(0, u64::MAX).unwrap();
        there = extents.iter().filter(|extent| extent.data_log.starts_with("/n")).count();
        elsewhere = extents.len() - there;
        if there > 0 && elsewhere > 0 && i > 8 {
            break;
        }
    }
    assert!(there > 0 && elsewhere > 0);
    let size = plfs.stat(Path::new(name), Links::Follow).unwrap().stat.len;
    memory.rename(Path::new("/n"), Path::new("/away")).unwrap();
    let fresh = process(&memory, &[]);
    let file = open(&fresh, name);
    let (mut read, mut refused) = (0, Vec::new());
    for block in 0..size / 1000 {
        let mut bytes = [0; 1000];
        match file.read_at(&mut bytes, block * 1000) {
            Ok(1000) => {
                assert_eq!(bytes, [block as u8 + 1; 1000]);
                read += 1;
            }
            Err(Error::Unreachable { from, to, why }) => {
                assert!(from == block * 1000 && to == from + 1000, "{from} {to}");
                assert!(matches!(*why, Error::MissingBackend { id: 1, .. }), "{why}");
                assert!(why.to_string().contains("/n"), "{why}");
                refused.push((from, to));
            }
            other => panic!("block {block}: {other:?}"),
        }
    }
    assert!(read > 0 && !refused.is_empty());
    let (container, _) = fresh.container(Path::new(name)).unwrap().unwrap();
    let found = plfs::unreachable(&container).unwrap();
    assert_eq!((found.len(), found[0].backend), (1, 1));
    assert_eq!(found[0].bytes, refused.len() as u64 * 1000);
    let mut told = Vec::new();
    for (from, to) in &found[0].ranges {
        told.extend((from / 1000..to / 1000).map(|block| (block * 1000, block * 1000 + 1000)));
    }
    assert_eq!(told, refused[..told.len()]);
    let store: Arc<dyn Store> = Arc::new(memory.clone());
    let report = plfs::check_name(&store, Path::new(name), &[]);
    let said = report.findings.iter().map(|finding| finding.what.as_str()).collect::<Vec<_>>();
    assert!(said.iter().any(|what| what.contains("0001 is not at /n")), "{said:?}");
    assert!(said.iter().any(|what| what.contains(&found[0].in_words())), "{said:?}");
    assert!(said.iter().all(|what| !what.contains("are missing")), "{said:?}");
    // Other files are all there, but for those that lie on it as well.
    let whole = expect.iter().filter(|(name, bytes)| match self::read(&fresh, name) {
        Ok(found) => {
            assert!(found == **bytes);
            true
        }
        Err(error) => {
            assert!(matches!(error, Error::Unreachable { .. }), "{error}");
            false
        }
    });
    assert!(whole.count() > 0);
    memory.rename(Path::new("/away"), Path::new("/n")).unwrap();
    must_be(&memory, &expect, "back");
    assert!(plfs::unreachable(&container).unwrap().is_empty());
}

/// A pack whose data logs all lie on backend 1, with some bytes that are dead; and what it has.
fn pack(memory: &MemStore) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let plfs = process(memory, &["/n"]);
    make(&plfs, "/m/first", 1);
    memory.mkdir(Path::new("/m/small"), 0o755).unwrap();
    let layout = plfs::Layout {
        backends: Some(plfs::Backends::Listed(vec![1])),
        workload: Some(Workload::Small),
        ..plfs::Layout::default()
    };
    plfs.set_directory_layout(Path::new("/m/small"), Some(&layout)).unwrap();
    plfs.unlink(Path::new("/m/first")).unwrap();
    // A power cut must not bring some of it back.
    for top in ["/m/.plfs", "/n/.plfs"].map(Path::new) {
        for entry in memory.list(top).unwrap() {
            let _ = memory.sync_dir(&top.join(entry.name));
        }
    }
    let mut expect = BTreeMap::new();
    for turn in 0..2u8 {
        let pack = open_pack(Arc::new(memory.clone())).unwrap();
        for n in 0..20u8 {
            let (name, bytes) = (format!("f{n}").into_bytes(), vec![n + turn; 500]);
            let file = pack.open_file(&name, CREATE).unwrap();
            pack.write_at(&file, &bytes, 0).unwrap();
            expect.insert(name, bytes);
        }
        pack.unlink(b"f3").unwrap();
        expect.remove(b"f3".as_slice());
        pack.sync().unwrap();
        pack.close().unwrap();
    }
    expect
}

fn open_pack(store: Arc<dyn Store>) -> Result<Pack> {
    Pack::open(&store, &Arc::new(config(&[])), Path::new("/m/small"), AT_ONCE)
}

fn pack_must_be(memory: &MemStore, expect: &BTreeMap<Vec<u8>, Vec<u8>>, story: &str) {
    let pack = open_pack(Arc::new(memory.clone())).unwrap();
    let found: BTreeMap<_, _> = names(&pack)
        .into_iter()
        .map(|name| {
            (name.clone(), content(&pack, &name).unwrap_or_else(|e| panic!("{story}: {e}")))
        })
        .collect();
    assert!(found == *expect, "{story}: {found:?}");
}

/// Packs are moved as files are: readers go on, who writes one is named, and new data of old packs
/// goes elsewhere.
#[test]
fn packs_are_drained_under_readers() {
    let memory = memory();
    let mut expect = pack(&memory);
    assert_eq!(join(&memory, "/o").unwrap(), 2);
    assert!(held(&memory, 1).bytes > 10_000);
    let reader = open_pack(Arc::new(memory.clone())).unwrap();
    let writer = open_pack(Arc::new(memory.clone())).unwrap();
    let file = writer.open_file(b"new", CREATE).unwrap();
    writer.write_at(&file, b"before", 0).unwrap();
    writer.commit().unwrap();
    let done = drain(&memory, 1, &[]).unwrap();
    assert_eq!(done.left.len(), 1, "{done:?}");
    assert_eq!(done.left[0].names, [PathBuf::from("/m/small/.plfs-pack")]);
    assert_eq!(done.left[0].why.errno(), Errno::BUSY);
    assert!(remove(&memory, 1).is_err());
    writer.write_at(&file, b" and after", 6).unwrap();
    expect.insert(b"new".to_vec(), b"before and after".to_vec());
    writer.leave().unwrap();
    let mut told = Vec::new();
    let store: Arc<dyn Store> = Arc::new(memory.clone());
    let done = plfs::drain(&store, &config(&[]), Path::new(ROOT), 1, &[], |now| {
        told.push(now);
        ControlFlow::Continue(())
    });
    let done = done.unwrap();
    assert!(done.left.is_empty() && done.files == 1 && done.copied_bytes > 9000, "{done:?}");
    assert!(told.len() > 10 && told.iter().all(|now| now.done_bytes <= now.all_bytes), "{told:?}");
    assert_eq!(held(&memory, 1), Held::default());
    assert!(held(&memory, 2).files == 1);
    pack_must_be(&memory, &expect, "moved");
    for (name, bytes) in &expect {
        assert_eq!(&content(&reader, name).unwrap(), bytes);
        assert_eq!(&content(&writer, name).unwrap(), bytes);
    }
    // The pack lists backend 1 alone, and gets nothing there.
    writer.write_at(&file, b"!", 16).unwrap();
    expect.get_mut(b"new".as_slice()).unwrap().push(b'!');
    writer.close().unwrap();
    for turn in 0..5u8 {
        let pack = open_pack(Arc::new(memory.clone())).unwrap();
        let name = vec![b'a' + turn; 3];
        let file = pack.open_file(&name, CREATE).unwrap();
        pack.write_at(&file, &name, 0).unwrap();
        pack.close().unwrap();
        expect.insert(name.clone(), name);
    }
    assert_eq!(held(&memory, 1), Held::default());
    remove(&memory, 1).unwrap();
    memory.rename(Path::new("/n"), Path::new("/gone")).unwrap();
    pack_must_be(&memory, &expect, "removed");
}

/// The power went in a removal, and of the container all is there but the superblock. A drain said
/// "No such file" of that and not what to do.
#[test]
fn a_drain_says_what_to_do_of_a_removal_that_a_power_cut_ended() {
    let memory = memory();
    let mut expect = files(&memory);
    let plfs = process(&memory, &[]);
    let is_on = |container: &plfs::Container| {
        let at = Path::new("/n").join(container.dir.strip_prefix(ROOT).unwrap());
        memory.stat(&at, Links::Stay).is_ok()
    };
    let half: Vec<_> = (0..64)
        .map(|i| format!("/m/half{i}"))
        .filter_map(|name| {
            expect.insert(name.clone(), make(&process(&memory, &["/n"]), &name, 7));
            let (container, _) = plfs.container(Path::new(&name)).unwrap().unwrap();
            is_on(&container).then_some((name, container))
        })
        .take(2)
        .collect();
    assert_eq!(half.len(), 2);
    for (nth, (name, container)) in half.iter().enumerate() {
        expect.remove(name);
        memory.unlink(Path::new(name)).unwrap();
        memory.unlink(&container.dir.join("super")).unwrap();
        // And of the second nothing is left on the root but directories.
        for set in memory.list(&container.dir).unwrap().iter().filter(|_| nth == 1) {
            let _ = memory.unlink(&container.dir.join(&set.name).join("index"));
        }
    }
    let done = drain(&memory, 1, &[]).unwrap();
    assert_eq!(done.left.len(), 2, "{done:?}");
    for left in &done.left {
        assert!(left.why.to_string().contains("remove the directory"), "{}", left.why);
    }
    assert!(remove(&memory, 1).is_err());
    for (_, container) in &half {
        for entry in memory.list(&container.dir).unwrap() {
            let set = container.dir.join(entry.name);
            let _ = memory.unlink(&set.join("index"));
            memory.rmdir(&set).unwrap();
        }
        memory.rmdir(&container.dir).unwrap();
    }
    let done = drain(&memory, 1, &[]).unwrap();
    assert!(done.left.is_empty(), "{done:?}");
    remove(&memory, 1).unwrap();
    must_be(&memory, &expect, "removed");
}

/// Clears away who had the pack open.
fn bury_pack(memory: &MemStore) {
    let pack = open_pack(Arc::new(memory.clone())).unwrap();
    let dir = pack.container().dir.clone();
    for entry in memory.list(&dir).unwrap() {
        if let Some(set) = entry.name.to_str().unwrap().strip_suffix(".open") {
            let mark = |end: &str| dir.join(format!("{set}.{end}"));
            memory.rename(&mark("open"), &mark("fenced")).unwrap();
        }
    }
}

/// The drain of a pack dies at each of its calls, and there the power goes, too.
#[test]
fn death_at_every_call_of_a_drain_of_a_pack_changes_no_byte() {
    let first = seed();
    let before = memory();
    let expect = pack(&before);
    join(&before, "/o").unwrap();
    let go_on = |memory: &MemStore, story: &str| {
        bury_pack(memory);
        let done = drain(memory, 1, &[2]).unwrap_or_else(|error| panic!("{story}: {error}"));
        assert!(done.left.is_empty(), "{story}: {done:?}");
        assert_eq!(held(memory, 1), Held::default(), "{story}");
        pack_must_be(memory, &expect, story);
        remove(memory, 1).unwrap_or_else(|error| panic!("{story}: {error}"));
    };
    for cut in in_turn(1..) {
        let memory = before.crash();
        bury_pack(&memory);
        let faults = FaultStore::new(Arc::new(memory.clone()));
        faults.kill_at(cut);
        let done = drain_on(Arc::new(faults.clone()), 1, &[2]);
        let is_done = done.is_ok_and(|done| done.left.is_empty());
        let last = faults.log().last().map(|call| call.to_string()).unwrap_or_default();
        let story = format!("cut at call {cut}: {last}");
        pack_must_be(&memory, &expect, &story);
        for seed in 0..3 {
            let left = match seed {
                0 => memory.crash(),
                seed => memory.crash_with(first + cut * 100 + seed),
            };
            let story = format!("{story}, power lost by seed {seed}");
            pack_must_be(&left, &expect, &story);
            go_on(&left, &story);
        }
        go_on(&memory, &story);
        if is_done {
            assert!(cut > 100, "{cut} calls");
            return;
        }
    }
}

/// The same for the drain of a pack.
#[test]
fn a_drain_of_a_pack_that_finds_no_room_costs_nothing() {
    let before = memory();
    let expect = pack(&before);
    join(&before, "/o").unwrap();
    for n in 1.. {
        let memory = before.crash();
        bury_pack(&memory);
        let faults = FaultStore::new(Arc::new(memory.clone()));
        faults.full_at("/o/", n);
        let done = drain_on(Arc::new(faults.clone()), 1, &[2]);
        let story = format!("no room from call {n} on: {done:?}");
        let was_full = faults.log().iter().any(|call| call.error == Some(Errno::NOSPC));
        let done = done.unwrap_or_else(|error| panic!("{story}: {error}"));
        assert!(done.left.iter().all(|left| left.why.errno() == Errno::NOSPC), "{story}");
        pack_must_be(&memory, &expect, &story);
        let done = drain(&memory, 1, &[2]).unwrap_or_else(|error| panic!("{story}: {error}"));
        assert!(done.left.is_empty(), "{story}, then {done:?}");
        pack_must_be(&memory, &expect, &story);
        remove(&memory, 1).unwrap_or_else(|error| panic!("{story}: {error}"));
        if !was_full {
            assert!(n > 3, "{n} calls");
            return;
        }
    }
}
