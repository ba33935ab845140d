//! Compaction: what is dead is freed, and nobody sees any of it happen (FORMAT.md section 7).

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use plfs::store::{Errno, Links, Size, Store, Time};
use plfs::{Access, Config, File, Health, OpenOptions, Opened, Plfs, Report, Severity};
use plfs_testkit::{Call, FaultStore, MemStore, Op, an_hour_ahead, seed};

use crate::scratch::fresh_dir;

const NAME: &str = "/m/f";

/// A store in memory, and directories where the processes of nodes meet.
struct Fixture {
    memory: MemStore,
    shared: PathBuf,
}

impl Fixture {
    fn new() -> Fixture {
        let shared = fresh_dir();
        let memory = MemStore::new();
        for dir in ["/m", "/n"] {
            memory.mkdir(Path::new(dir), 0o755).unwrap();
        }
        memory.sync_dir(Path::new("/")).unwrap();
        Fixture { memory, shared }
    }

    /// A process of `node`; processes of nodes of no name have log sets of their own.
    fn config(&self, node: &str) -> Config {
        let dir = self.shared.join(node);
        std::fs::create_dir_all(&dir).unwrap();
        Config { shared_memory: (!node.is_empty()).then_some(dir), ..Config::shared() }
    }

    fn process(&self) -> Plfs {
        self.process_on(Arc::new(self.memory.clone()))
    }

    fn process_on(&self, store: Arc<dyn Store>) -> Plfs {
        Plfs::new(store, self.config(""))
    }

    fn content(&self) -> Vec<u8> {
        content(&self.process())
    }

    fn dead_bytes(&self) -> u64 {
        self.process().usage(Path::new(NAME)).unwrap().dead_bytes()
    }

    fn report(&self) -> Report {
        plfs::check_name(&(Arc::new(self.memory.clone()) as Arc<dyn Store>), Path::new(NAME), &[])
    }

    fn health(&self) -> Health {
        self.report().health()
    }

    /// Names in the container.
    fn names(&self) -> Vec<String> {
        let (container, _) = self.process().container(Path::new(NAME)).unwrap().unwrap();
        self.memory
            .list(&container.dir)
            .unwrap()
            .into_iter()
            .map(|entry| entry.name.into_string().unwrap())
            .collect()
    }

    fn sets(&self) -> Vec<String> {
        self.names().into_iter().filter(|name| name.len() == 8).collect()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.shared);
    }
}

fn open_with(plfs: &Plfs, options: OpenOptions) -> File {
    match plfs.open(Path::new(NAME), options).unwrap() {
        Opened::Logical(file) => file,
        Opened::Plain(_) => panic!("it is plain"),
    }
}

fn open(plfs: &Plfs) -> File {
    open_with(plfs, OpenOptions::create())
}

fn content(plfs: &Plfs) -> Vec<u8> {
    all(&open_with(plfs, OpenOptions::read()))
}

fn all(file: &File) -> Vec<u8> {
    let mut bytes = vec![0xee; file.len().unwrap() as usize];
    let n = file.read_at(&mut bytes, 0).unwrap();
    bytes.truncate(n);
    bytes
}

fn write(plfs: &Plfs, pieces: &[(u64, u8, usize)]) {
    let file = open(plfs);
    for (offset, byte, len) in pieces {
        file.write_at(&vec![*byte; *len], *offset).unwrap();
    }
    file.sync().unwrap();
    file.close().unwrap();
}

/// Two log sets, bytes under others, a hole, and a size beyond the last byte. Gives what the file
/// says.
fn well_used(fixture: &Fixture) -> Vec<u8> {
    let (one, two) = (fixture.process(), fixture.process());
    let (a, b) = (open(&one), open(&two));
    a.write_at(&[1; 30_000], 0).unwrap();
    a.sync().unwrap();
    b.refresh().unwrap();
    b.write_at(&[2; 10_000], 5_000).unwrap();
    b.write_at(&[3; 100], 50_000).unwrap();
    b.sync().unwrap();
    a.refresh().unwrap();
    a.set_len(27_000).unwrap();
    a.write_at(&[4; 100], 10_000).unwrap();
    a.write_at(&[5; 100], 40_000).unwrap();
    a.zero(20_000, 2_000).unwrap();
    a.set_len(60_000).unwrap();
    a.sync().unwrap();
    a.close().unwrap();
    b.close().unwrap();
    let mut expect = vec![0; 60_000];
    expect[..27_000].fill(1);
    expect[5_000..15_000].fill(2);
    expect[10_000..10_100].fill(4);
    expect[40_000..40_100].fill(5);
    expect[20_000..22_000].fill(0);
    assert_eq!(fixture.content(), expect);
    assert_eq!(fixture.sets().len(), 2);
    expect
}

fn on(_: u64) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// By another process, at a moment to come.
fn compaction(fixture: &Fixture) -> impl FnOnce() + Send + 'static {
    let other = fixture.process();
    move || {
        other.compact(Path::new(NAME), on).unwrap();
    }
}

#[test]
fn what_is_dead_is_freed_and_all_else_stays() {
    let fixture = Fixture::new();
    let expect = well_used(&fixture);
    let path = Path::new(NAME);
    let plfs = fixture.process();
    plfs.set_times(path, Some(Time { sec: 1_000, nsec: 5 }), Some(Time { sec: 2_000, nsec: 6 }))
        .unwrap();
    plfs.chmod(path, 0o640).unwrap();
    let before = plfs.stat(path, Links::Follow).unwrap().stat;
    let usage = plfs.usage(path).unwrap();
    assert_eq!(usage.live_bytes, 25_100);
    assert!(usage.stored_bytes >= 40_300, "{usage:?}");
    let mut told = 0;
    let tell = |copied| {
        told = copied;
        ControlFlow::Continue(())
    };
    let done = plfs.compact(path, tell).unwrap();
    assert_eq!((told, done.copied_bytes, done.stored_before), (25_100, 25_100, usage.stored_bytes));
    assert!(done.stored_after < 25_100 + 4096, "{done:?}");
    assert_eq!(fixture.content(), expect);
    let after = plfs.stat(path, Links::Follow).unwrap();
    assert_eq!(
        (after.stat.mtime, after.stat.mode, after.stat.nlink, after.stat.len),
        (before.mtime, before.mode, before.nlink, 60_000)
    );
    let totals = after.totals.unwrap();
    assert!(totals.from_summary && totals.log_sets == 1, "{totals:?}");
    assert_eq!(fixture.health(), Health::Healthy);
    assert_eq!(fixture.sets().len(), 1);
    // And once more, over what compaction made.
    write(&plfs, &[(0, 9, 500)]);
    plfs.compact(path, on).unwrap();
    let content = fixture.content();
    assert!(content[..500] == [9; 500] && content[500..] == expect[500..]);
    assert!(fixture.dead_bytes() < 4096);
}

/// A file lost its last name while it was compacted, or drained from a backend. Who removed the
/// name left the container to whoever held it, which was the compaction; and that did not look: all
/// the data stayed, without a crash.
#[test]
fn a_file_that_loses_its_name_in_a_compaction_leaves_nothing() {
    let fixture = Fixture::new();
    well_used(&fixture);
    let (plfs, other) = (fixture.process(), fixture.process());
    let (container, _) = plfs.container(Path::new(NAME)).unwrap().unwrap();
    let mut removed = false;
    let unlink = |_| {
        if !std::mem::replace(&mut removed, true) {
            other.unlink(Path::new(NAME)).unwrap();
        }
        ControlFlow::Continue(())
    };
    let _ = plfs.compact(Path::new(NAME), unlink);
    assert!(removed);
    assert_eq!(fixture.memory.list(&container.dir), Err(Errno::NOENT));
}

/// What was punched takes room until a compaction; then it is a hole like any other, and has no
/// record.
#[test]
fn what_was_punched_is_freed() {
    let fixture = Fixture::new();
    let plfs = fixture.process();
    write(&plfs, &[(0, 1, 100_000)]);
    let file = open(&plfs);
    file.zero(10_000, 90_000).unwrap();
    file.close().unwrap();
    let before = plfs.stat(Path::new(NAME), Links::Follow).unwrap();
    assert!(before.stat.blocks * 512 >= 100_000, "{before:?}");
    plfs.compact(Path::new(NAME), on).unwrap();
    let after = plfs.stat(Path::new(NAME), Links::Follow).unwrap();
    assert!(after.stat.len == 100_000 && after.stat.blocks * 512 < 20_000, "{after:?}");
    assert_eq!(fixture.content(), [vec![1; 10_000], vec![0; 90_000]].concat());
    let records = |fixture: &Fixture| {
        let (container, _) = fixture.process().container(Path::new(NAME)).unwrap().unwrap();
        plfs::records(&container).unwrap().records
    };
    assert!(
        !records(&fixture)
            .iter()
            .any(|record| matches!(record.said, plfs::RecordKind::Hole { .. }))
    );
    // And all of it.
    let file = open(&plfs);
    file.zero(0, u64::MAX).unwrap();
    file.close().unwrap();
    assert_eq!(
        records(&fixture).last().map(|record| record.said),
        Some(plfs::RecordKind::Hole { logical: 0, length: 100_000 })
    );
    plfs.compact(Path::new(NAME), on).unwrap();
    assert_eq!((fixture.content(), fixture.health()), (vec![0; 100_000], Health::Healthy));
    assert!(fixture.dead_bytes() == 0 && open(&plfs).next_data(0).unwrap().is_none());
}

/// A database in a mount: 40 KB that are written again and again grew without end, and each MiB of
/// index log was one more log to look at.
#[test]
fn the_last_writer_compacts_a_small_file_of_which_most_is_dead() {
    let fixture = Fixture::new();
    let config = Config { compact_bytes: 100_000, ..fixture.config("") };
    let session = |config: &Config, byte: u8| {
        write(
            &Plfs::new(Arc::new(fixture.memory.clone()), config.clone()),
            &[(0, byte, 40_000), (50_000, byte, 1)],
        )
    };
    let mut most = 0;
    for turn in 1..50 {
        session(&config, turn);
        let reader = open_with(&fixture.process(), OpenOptions::read());
        assert_eq!(all(&reader), [vec![turn; 40_000], vec![0; 10_000], vec![turn]].concat());
        most = most.max(fixture.process().usage(Path::new(NAME)).unwrap().stored_bytes);
        assert_eq!(fixture.health(), Health::Healthy);
    }
    assert!((200_000..300_000 + 50_000).contains(&most), "{most}");
    // Not where it is switched off, nor a file that is larger than that.
    for compact_bytes in [0, 50_000] {
        for turn in 50..70 {
            session(&Config { compact_bytes, ..config.clone() }, turn);
        }
    }
    assert!(fixture.dead_bytes() > 40 * 40_000, "{}", fixture.dead_bytes());
    session(&config, 70);
    assert!(fixture.dead_bytes() < 50_000, "{}", fixture.dead_bytes());
}

/// The times are those that were set, though the file was compacted after that, and a reader that
/// has it open goes on.
#[test]
fn a_compaction_by_the_last_writer_is_not_seen() {
    let fixture = Fixture::new();
    write(&fixture.process(), &[(0, 1, 90_000)]);
    let reading = fixture.process();
    let (reader, late) = (open_with(&reading, OpenOptions::read()), fixture.process());
    assert_eq!(all(&reader), [1; 90_000]);
    let late = open_with(&late, OpenOptions::read());
    let plfs = Plfs::new(
        Arc::new(fixture.memory.clone()),
        Config { compact_bytes: 10_000, ..fixture.config("") },
    );
    let (file, kept) = (open(&plfs), open_with(&plfs, OpenOptions::read()));
    file.set_len(10).unwrap();
    file.write_at(&[2; 5], 0).unwrap();
    file.set_times(None, Some(Time { sec: 2_000, nsec: 6 })).unwrap();
    file.close().unwrap();
    kept.close().unwrap();
    assert!(fixture.dead_bytes() < 100, "{}", fixture.dead_bytes());
    let expect = [2, 2, 2, 2, 2, 1, 1, 1, 1, 1];
    assert_eq!(
        plfs.stat(Path::new(NAME), Links::Follow).unwrap().stat.mtime,
        Time { sec: 2_000, nsec: 6 }
    );
    for reader in [&reader, &late] {
        reader.refresh().unwrap();
        assert_eq!(all(reader), expect);
    }
}

/// Bytes of another user cannot be freed, only hidden: to copy the file at each close would free
/// nothing.
#[test]
fn a_file_with_log_sets_of_others_is_not_compacted_by_the_last_writer() {
    let fixture = Fixture::new();
    write(&fixture.process(), &[(0, 1, 90_000)]);
    let (container, _) = fixture.process().container(Path::new(NAME)).unwrap().unwrap();
    let give_to = |uid| {
        for path in fixture
            .sets()
            .iter()
            .flat_map(|set| [container.dir.join(set), container.dir.join(set).join("index")])
        {
            fixture.memory.chown(&path, Some(uid), None, Links::Stay).unwrap();
        }
    };
    let user = Arc::new(FaultStore::new(Arc::new(fixture.memory.clone())).acting_as(1000));
    let plfs = Plfs::new(user, Config { compact_bytes: 10_000, ..fixture.config("") });
    let session = |size| {
        let file = open(&plfs);
        file.set_len(size).unwrap();
        file.close().unwrap();
    };
    give_to(4711);
    let before = fixture.sets();
    session(10);
    assert!(
        before.iter().all(|set| fixture.sets().contains(set)),
        "{before:?} {:?}",
        fixture.sets()
    );
    assert!(fixture.dead_bytes() >= 89_000);
    give_to(1000);
    session(9);
    assert!(fixture.dead_bytes() == 0 && fixture.content() == [1; 9], "{}", fixture.dead_bytes());
}

/// An old checkpoint file of a thousand overwritten strided pieces: one run says it all afterwards.
#[test]
fn a_regular_file_becomes_one_record() {
    let fixture = Fixture::new();
    for turn in 0..3u8 {
        let plfs = fixture.process();
        let file = open(&plfs);
        for i in 0..1000u64 {
            file.write_at(&[turn * 10 + (i % 7) as u8; 470], (i * 389 % 1000) * 470).unwrap();
        }
        file.close().unwrap();
    }
    let expect = fixture.content();
    fixture.process().compact(Path::new(NAME), on).unwrap();
    assert_eq!(fixture.content(), expect);
    let totals = fixture.process().stat(Path::new(NAME), Links::Follow).unwrap().totals.unwrap();
    // Who wrote it, the run, and the truncate that makes the rest dead.
    assert_eq!((totals.records, totals.stored_bytes), (3, 470_000), "{totals:?}");
}

#[test]
fn readers_are_not_disturbed() {
    let fixture = Fixture::new();
    let expect = well_used(&fixture);
    let (fresh, half, whole) = (fixture.process(), fixture.process(), fixture.process());
    let [fresh, half, whole] =
        [&fresh, &half, &whole].map(|plfs| open_with(plfs, OpenOptions::read()));
    let mut some = [0; 10];
    half.read_at(&mut some, 0).unwrap();
    assert_eq!(all(&whole), expect);
    fixture.process().compact(Path::new(NAME), on).unwrap();
    for reader in [&fresh, &half, &whole] {
        assert_eq!(all(reader), expect);
    }
    write(&fixture.process(), &[(20_000, 7, 10)]);
    for reader in [&fresh, &half, &whole] {
        reader.refresh().unwrap();
        assert_eq!(all(reader)[20_000..20_010], [7; 10]);
    }
}

/// A reader has listed the container and read one index log when the file is compacted: the other
/// one is gone. To take that for a log that was never begun gave a mixture of bytes that nobody had
/// ever written, and sizes of no moment.
#[test]
fn a_reader_whose_logs_go_while_it_reads_them_begins_anew() {
    for which in 0..2 {
        for look in ["read", "stat", "refresh"] {
            let fixture = Fixture::new();
            let expect = well_used(&fixture);
            let set = fixture.sets()[which].clone();
            let faults = FaultStore::new(Arc::new(fixture.memory.clone()));
            let plfs = fixture.process_on(Arc::new(faults.clone()));
            let reader = open_with(&plfs, OpenOptions::read());
            if look == "refresh" {
                assert_eq!(all(&reader), expect);
                // Nobody's: the summary is void, so the reader looks at all logs again.
                write(&fixture.process(), &[(59_999, 0, 1)]);
            }
            let (container, _) = fixture.process().container(Path::new(NAME)).unwrap().unwrap();
            fixture.memory.set_times(&container.dir, None, Some(Time { sec: 5, nsec: 5 })).unwrap();
            faults.before(&format!("{set}/index"), Op::Open, compaction(&fixture));
            match look {
                "stat" => {
                    assert_eq!(plfs.stat(Path::new(NAME), Links::Follow).unwrap().stat.len, 60_000)
                }
                "refresh" => reader.refresh().unwrap(),
                _ => {}
            }
            assert_eq!(all(&reader), expect, "{look}, log set {which}");
            assert!(!fixture.sets().contains(&set), "{look}: the compaction did not come between");
        }
    }
}

/// A reader was so slow that the file had been compacted again by the time that it had looked
/// again: it gave up with "data is missing".
#[test]
fn a_reader_that_is_slower_than_compactions_reads_on() {
    let fixture = Fixture::new();
    let expect = well_used(&fixture);
    let faults = FaultStore::new(Arc::new(fixture.memory.clone()));
    let plfs = fixture.process_on(Arc::new(faults.clone()));
    let reader = open_with(
        &plfs,
        OpenOptions { access: Access { read: true, write: false }, ..OpenOptions::read() },
    );
    reader.refresh().unwrap();
    assert_eq!(reader.read_at(&mut [0; 1], 0).unwrap(), 1);
    let acts: Vec<_> = (0..3).map(|_| compaction(&fixture)).collect();
    fn queue(faults: &FaultStore, mut acts: Vec<impl FnOnce() + Send + 'static>) {
        let (Some(act), again) = (acts.pop(), faults.clone()) else { return };
        faults.before(".data", Op::Open, move || {
            act();
            queue(&again, acts);
        });
    }
    queue(&faults, acts);
    let before = fixture.sets();
    assert_eq!(all(&reader), expect);
    assert_ne!(fixture.sets(), before);
}

/// A process has looked at the logs, and before its open mark is there somebody else compacts the
/// file. By the logs that it saw its writes would be older than the truncate that makes the old
/// logs dead, since those were written by a node whose clock is an hour ahead: they were lost. So
/// it reads `clock` when its mark is there.
#[test]
fn a_writer_that_looked_before_a_compaction_and_comes_after_it_loses_nothing() {
    let fixture = Fixture::new();
    let ahead = Plfs::new(Arc::new(fixture.memory.clone()), fixture.config("ahead"));
    let file = open(&ahead);
    file.write_at(b"first", 0).unwrap();
    an_hour_ahead(&fixture.shared.join("ahead"));
    file.write_at(b"old words", 0).unwrap();
    file.write_at(b"more old words", 20).unwrap();
    file.close().unwrap();
    let faults = FaultStore::new(Arc::new(fixture.memory.clone()));
    let plfs = fixture.process_on(Arc::new(faults.clone()));
    let file = open(&plfs);
    faults.before(".open", Op::Symlink, compaction(&fixture));
    file.write_at(b"new", 0).unwrap();
    file.close().unwrap();
    assert_eq!(fixture.content(), b"new words\0\0\0\0\0\0\0\0\0\0\0more old words");
}

/// The same on the other side: whoever is there before the compactor looks is in its way, and who
/// comes while it copies wins.
#[test]
fn writers_stop_a_compaction_or_come_after_it() {
    let fixture = Fixture::new();
    let expect = well_used(&fixture);
    let plfs = fixture.process();
    let writer = open(&plfs);
    writer.write_at(b"x", 0).unwrap();
    let error = fixture.process().compact(Path::new(NAME), on).unwrap_err();
    assert_eq!(error.errno(), Errno::BUSY);
    assert!(error.to_string().contains("open for writing"), "{error}");
    writer.close().unwrap();
    let kept = fixture.names().len();
    // It came when the compactor had its mark: before the listing, and after it.
    for (when, comes_first) in [("clock", true), (".00000000.data", false)] {
        let faults = FaultStore::new(Arc::new(fixture.memory.clone()));
        let plfs = fixture.process_on(Arc::new(faults.clone()));
        let late = fixture.process();
        let (tell, told) = std::sync::mpsc::channel();
        faults.before(when, if comes_first { Op::Open } else { Op::WriteAt }, move || {
            let file = open(&late);
            file.write_at(b"late", 3).unwrap();
            file.commit().unwrap();
            tell.send(file).unwrap();
        });
        let done = plfs.compact(Path::new(NAME), on);
        let late = told.recv().unwrap();
        assert_eq!(done.is_err(), comes_first, "{done:?}");
        late.write_at(b"!", 7).unwrap();
        late.close().unwrap();
        let content = fixture.content();
        assert_eq!(&content[..8], b"x\x01\x01late!");
        assert!(content[8..] == expect[8..]);
        assert_eq!(fixture.health(), Health::Healthy);
    }
    assert!(fixture.names().len() <= kept + 1);
}

/// A file was as long as its last byte again after a compaction, though somebody had reserved room
/// behind that meanwhile: what says so has a stamp of before, so that it cuts nothing. Whenever the
/// room is reserved, the file has its length.
#[test]
fn room_that_is_reserved_in_a_compaction_stays() {
    let run = |at: u64| {
        let fixture = Fixture::new();
        let expect = well_used(&fixture);
        let faults = FaultStore::new(Arc::new(fixture.memory.clone()));
        let late = fixture.process();
        faults.before_call(at, move || {
            let file = open(&late);
            file.allocate(0, 70_000, Size::Grows).unwrap();
            file.close().unwrap();
        });
        let plfs = fixture.process_on(Arc::new(faults.clone()));
        match plfs.compact(Path::new(NAME), on) {
            Err(error) if error.errno() != Errno::BUSY => panic!("call {at}: {error}"),
            _ => {}
        }
        (fixture.content(), expect, faults.log())
    };
    let (.., calls) = run(u64::MAX);
    assert!(calls.len() > 50, "{}", calls.len());
    // Whoever holds the lock of the clock does not wait for others.
    let is_locked = |call: &Call| call.path.ends_with("clock") && call.op != Op::Open;
    for at in (1..=calls.len()).filter(|at| !is_locked(&calls[at - 1])) {
        let (content, expect, _) = run(at as u64);
        assert_eq!(content.len(), 70_000, "call {at}");
        assert!(content[..expect.len()] == expect, "call {at}");
        assert!(content[expect.len()..].iter().all(|byte| *byte == 0), "call {at}");
    }
}

/// A compaction said again how long the file had become by a truncate. That cut what somebody else
/// had reserved since it looked, who had been told that there is room.
#[test]
fn room_that_two_reserve_in_a_compaction_stays() {
    let run = |first: u64, second: u64| {
        let fixture = Fixture::new();
        well_used(&fixture);
        let faults = FaultStore::new(Arc::new(fixture.memory.clone()));
        let came = Arc::new(AtomicU32::new(0));
        for (at, size) in [(first, 70_000), (second, 80_000)] {
            let (late, came) = (fixture.process(), came.clone());
            faults.before_call(at, move || {
                let file = open(&late);
                file.allocate(0, size, Size::Grows).unwrap();
                file.close().unwrap();
                came.fetch_add(1, Ordering::Relaxed);
            });
        }
        let plfs = fixture.process_on(Arc::new(faults.clone()));
        match plfs.compact(Path::new(NAME), on) {
            Err(error) if error.errno() != Errno::BUSY => panic!("{first}, {second}: {error}"),
            _ => {}
        }
        (fixture.content().len(), faults.log(), came.load(Ordering::Relaxed))
    };
    let (_, calls, _) = run(u64::MAX, u64::MAX);
    let is_index = |call: &Call| call.op == Op::WriteAt && call.path.ends_with("index");
    // The truncate to nothing is the last one that it says where nobody comes.
    let last = calls.iter().rposition(is_index).unwrap() as u64;
    let mut cut = Vec::new();
    for second in last.. {
        let (len, _, came) = run(last, second);
        if came < 2 {
            break;
        }
        if len != 80_000 {
            cut.push((second, len));
        }
    }
    assert!(cut.is_empty(), "{cut:?}");
}

/// A process cut a file to nothing and was about to free a log set, when another one took the set
/// over, wrote, and closed: its bytes went with the set.
#[test]
fn a_log_set_that_somebody_went_on_with_since_a_truncate_stays() {
    let fixture = Fixture::new();
    write(&fixture.process(), &[(0, 1, 1000)]);
    let old = fixture.sets()[0].clone();
    let faults = FaultStore::new(Arc::new(fixture.memory.clone()));
    let plfs = fixture.process_on(Arc::new(faults.clone()));
    let file = open(&plfs);
    let late = fixture.process();
    faults.before(&format!("{old}.open"), Op::Symlink, move || {
        let file = open(&late);
        file.write_at(b"late", 0).unwrap();
        file.close().unwrap();
    });
    file.set_len(0).unwrap();
    file.close().unwrap();
    assert_eq!(fixture.content(), b"late");
}

#[test]
fn a_full_device_leaves_the_file_as_it_was() {
    for room in [0, 100, 20_000, 25_300, 25_600] {
        let fixture = Fixture::new();
        let expect = well_used(&fixture);
        let before = (
            fixture.names().into_iter().filter(|name| name != "clock").collect::<Vec<_>>(),
            fixture.process().usage(Path::new(NAME)).unwrap(),
        );
        let faults = FaultStore::new(Arc::new(fixture.memory.clone()));
        faults.full_after(room);
        let error =
            fixture.process_on(Arc::new(faults.clone())).compact(Path::new(NAME), on).unwrap_err();
        assert_eq!(error.errno(), Errno::NOSPC, "{error}");
        assert_eq!(fixture.content(), expect);
        let after = (
            fixture.names().into_iter().filter(|name| name != "clock").collect::<Vec<_>>(),
            fixture.process().usage(Path::new(NAME)).unwrap(),
        );
        assert_eq!(after, before, "room for {room} bytes");
        fixture.process().compact(Path::new(NAME), on).unwrap();
        assert_eq!(fixture.content(), expect);
    }
}

/// Who is asked to stop leaves nothing behind.
#[test]
fn an_interrupted_compaction_leaves_the_file_as_it_was() {
    let fixture = Fixture::new();
    let expect = well_used(&fixture);
    let (names, usage) = (fixture.names(), fixture.process().usage(Path::new(NAME)).unwrap());
    let error = fixture.process().compact(Path::new(NAME), |_| ControlFlow::Break(())).unwrap_err();
    assert_eq!(error.errno(), Errno::INTR);
    assert_eq!(fixture.content(), expect);
    assert_eq!(fixture.process().usage(Path::new(NAME)).unwrap(), usage);
    assert_eq!(fixture.names().len(), names.len() + 1, "clock stays: {:?}", fixture.names());
}

/// Bytes that are lost are not taken for holes.
#[test]
fn a_damaged_file_is_not_compacted() {
    let fixture = Fixture::new();
    well_used(&fixture);
    let (container, _) = fixture.process().container(Path::new(NAME)).unwrap().unwrap();
    let set = container.dir.join(&fixture.sets()[0]);
    let data = fixture
        .memory
        .list(&set)
        .unwrap()
        .into_iter()
        .find(|entry| entry.name.to_string_lossy().ends_with(".data"))
        .unwrap();
    fixture
        .memory
        .open(&set.join(data.name), plfs::store::Open::READ_WRITE)
        .unwrap()
        .set_len(10)
        .unwrap();
    let sets = fixture.sets();
    let error = fixture.process().compact(Path::new(NAME), on).unwrap_err();
    assert!(matches!(error, plfs::Error::MissingData { .. }), "{error:?}");
    assert_eq!(fixture.sets(), sets);
}

#[test]
fn data_on_other_backends_is_freed_and_spread_again() {
    let fixture = Fixture::new();
    let config = Config { backends: vec!["/n".into()], ..fixture.config("") };
    for turn in 0..2u8 {
        let plfs = Plfs::new(Arc::new(fixture.memory.clone()), config.clone());
        let file = open(&plfs);
        file.write_at(&vec![turn + 1; 20 << 20], 0).unwrap();
        file.close().unwrap();
    }
    let files = |root: &str| {
        let (container, _) = fixture.process().container(Path::new(NAME)).unwrap().unwrap();
        let dir = Path::new(root).join(container.dir.strip_prefix("/m").unwrap());
        let sets =
            fixture.memory.list(&dir).unwrap().into_iter().filter(|entry| entry.name.len() == 8);
        let logs = sets.flat_map(|set| fixture.memory.list(&dir.join(&set.name)).unwrap());
        logs.filter(|log| log.name.to_string_lossy().ends_with(".data")).count()
    };
    fixture.process().compact(Path::new(NAME), on).unwrap();
    assert!(fixture.content() == vec![2; 20 << 20]);
    assert_eq!((files("/m"), files("/n")), (1, 1));
    assert!(fixture.dead_bytes() < 8192);
    assert_eq!(fixture.health(), Health::Healthy);
}

/// The compactor dies at each of its calls to storage, and there the power goes too: the file reads
/// the same, and when the mark is cleared another compaction frees all that is dead.
#[test]
fn death_at_every_call_changes_no_byte() {
    let first = seed();
    for cut in 1.. {
        let fixture = Fixture::new();
        let expect = well_used(&fixture);
        let faults = FaultStore::new(Arc::new(fixture.memory.clone()));
        faults.kill_at(cut);
        let done = fixture.process_on(Arc::new(faults.clone())).compact(Path::new(NAME), on);
        let story = || {
            format!(
                "cut at call {cut}: {}",
                faults.log().last().map(|call| call.to_string()).unwrap_or_default()
            )
        };
        assert!(fixture.content() == expect, "{}", story());
        for seed in 0..5 {
            let left = if seed == 0 {
                fixture.memory.crash()
            } else {
                fixture.memory.crash_with(first + cut * 100 + seed)
            };
            let left = Fixture { memory: left, shared: fixture.shared.join(format!("{seed}")) };
            assert!(left.content() == expect, "{}, power lost by seed {seed}", story());
            // A flat index that was not synced may be torn: readers do without.
            let lost = left.report().findings.into_iter().find(|finding| {
                finding.severity == Severity::Corrupt && !finding.path.ends_with("flat")
            });
            assert!(lost.is_none(), "{}, power lost by seed {seed}: {lost:?}", story());
        }
        assert!(fixture.health() != Health::Corrupt, "{}", story());
        // A writer comes before anybody has cleaned up.
        write(&fixture.process(), &[(1_000, 8, 10)]);
        let store: Arc<dyn Store> = Arc::new(fixture.memory.clone());
        let (container, _) = fixture.process().container(Path::new(NAME)).unwrap().unwrap();
        // It lives, in this process; a person says that it does not.
        for name in fixture.names().iter().filter_map(|name| name.strip_suffix(".open")) {
            let mark = |end: &str| container.path(&format!("{name}.{end}"));
            fixture.memory.rename(&mark("open"), &mark("fenced")).unwrap();
        }
        fixture.process().compact(Path::new(NAME), on).unwrap();
        let report = plfs::check_name(&store, Path::new(NAME), &[]);
        plfs::repair(&store, &fixture.config(""), &report, 0).unwrap();
        let mut expect = expect;
        expect[1_000..1_010].fill(8);
        assert!(fixture.content() == expect, "{}", story());
        assert!(
            fixture.dead_bytes() < 4096,
            "{}: {} bytes are dead",
            story(),
            fixture.dead_bytes()
        );
        let mut names = fixture.names();
        names.retain(|name| {
            !["super", "clock", "flat"].contains(&name.as_str()) && !name.ends_with(".fenced")
        });
        assert_eq!(names, fixture.sets(), "{}", story());
        if done.is_ok() {
            assert!(cut > 50, "{cut} calls");
            return;
        }
    }
}

/// Somebody compacts all the time while others write, close, and read: every block is the last that
/// was written.
#[test]
fn compactions_among_writers_and_readers_lose_nothing() {
    let fixture = Fixture::new();
    write(&fixture.process(), &[(0, 0, 64_000)]);
    let ended = std::sync::atomic::AtomicBool::new(false);
    let compacted = AtomicU32::new(0);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2u64)
            .map(|writer| {
                let fixture = &fixture;
                scope.spawn(move || {
                    for turn in 1..=60u8 {
                        let plfs = fixture.process();
                        let file = open(&plfs);
                        for block in (writer..64).step_by(2) {
                            file.write_at(&[turn; 1000], block * 1000).unwrap();
                        }
                        file.close().unwrap();
                        let bytes = fixture.content();
                        for block in (writer..64).step_by(2) {
                            assert!(
                                bytes[block as usize * 1000..][..1000] == [turn; 1000],
                                "writer {writer}, turn {turn}, block {block}"
                            );
                        }
                        std::thread::sleep(std::time::Duration::from_millis(2));
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                match fixture.process().compact(Path::new(NAME), on) {
                    Ok(_) => drop(compacted.fetch_add(1, Ordering::Relaxed)),
                    Err(error) => assert_eq!(error.errno(), Errno::BUSY, "{error}"),
                }
            }
        });
        scope.spawn(|| {
            let plfs = fixture.process();
            let file = open_with(
                &plfs,
                OpenOptions { access: Access { read: true, write: false }, ..OpenOptions::read() },
            );
            let mut last = [0; 64];
            while !ended.load(Ordering::Relaxed) {
                file.refresh().unwrap();
                let bytes = all(&file);
                assert_eq!(bytes.len(), 64_000);
                for (block, last) in last.iter_mut().enumerate() {
                    let bytes = &bytes[block * 1000..][..1000];
                    assert!(
                        bytes.iter().all(|byte| byte == &bytes[0]) && bytes[0] >= *last,
                        "block {block}: {} after {last}",
                        bytes[0]
                    );
                    *last = bytes[0];
                }
            }
        });
        let ends: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        ended.store(true, Ordering::Relaxed);
        ends.into_iter().for_each(|end| end.unwrap());
    });
    assert!(fixture.content() == vec![60; 64_000]);
    assert!(compacted.load(Ordering::Relaxed) > 0, "no compaction ever came through");
}

/// Who may only read a file could write its clock, and so decide which of its writes win.
#[test]
fn who_may_only_read_a_file_does_not_set_its_clock() {
    let fixture = Fixture::new();
    let (plfs, name) = (fixture.process(), Path::new(NAME));
    let make = || {
        let file = open(&plfs);
        file.write_at(b"one", 0).unwrap();
        file.close().unwrap();
        plfs.chmod(name, 0o644).unwrap();
        plfs.compact(name, |_| ControlFlow::Continue(())).unwrap();
        plfs.container(name).unwrap().unwrap().0.dir.join("clock")
    };
    let clock = make();
    let stat = || fixture.memory.stat(&clock, Links::Stay).unwrap();
    assert_eq!(stat().mode & 0o777, 0o644);
    // Whom the file lets write must raise it, whatever his group.
    for (mode, of_clock) in [(0o664, 0o666), (0o600, 0o644), (0o622, 0o666), (0o444, 0o644)] {
        plfs.chmod(name, mode).unwrap();
        assert_eq!(stat().mode & 0o777, of_clock, "{mode:o}");
    }
    plfs.chown(name, Some(5), Some(6), Links::Stay).unwrap();
    assert_eq!((stat().uid, stat().gid), (5, 6));
    // Root makes one for its owner.
    fixture.memory.unlink(&clock).unwrap();
    assert_eq!(make(), clock);
    assert_eq!((stat().uid, stat().mode & 0o777), (5, 0o644));
}
