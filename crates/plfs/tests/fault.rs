//! Bad input and failing storage: a clear error with the right number, nothing committed is lost,
//! and who lost bytes does not go on as if nothing had happened.

mod common {
    pub mod failing;
    pub mod scratch;
}

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use plfs::store::{Errno, Links, Open, PosixStore, Size, Store};
use plfs::{Config, Error, File, OpenOptions, Opened, Plfs};
use plfs_testkit::{MemStore, Op, explored};

use common::failing::{Fixture, NAME, content};
use common::scratch::{Scratch, fresh_dir, open};

/// The file refuses everything that would claim success, and says why.
fn refuses(file: File, errno: Errno) {
    let first = file.commit().unwrap_err();
    assert!(matches!(first, Error::Poisoned { .. }), "{first:?}");
    for error in [
        first,
        file.write_at(b"x", 0).unwrap_err(),
        file.sync().unwrap_err(),
        file.set_len(7).unwrap_err(),
        file.close().unwrap_err(),
    ] {
        assert_eq!(error.errno(), errno);
        assert!(
            error.to_string().contains("bytes are lost") && error.to_string().contains("/m/.plfs/"),
            "{error}"
        );
    }
}

/// The device fills up, or the quota is used up, or the disk breaks, while buffered bytes go to the
/// data log: the write that fills the buffer is short or fails with that number and names the data
/// log, and so does every later call. What was acknowledged before was dropped, and the writer was
/// of no use any more; now the first call after room was made writes it.
#[test]
fn what_was_acknowledged_waits_for_room() {
    let faults = [
        (Errno::NOSPC, None),
        (Errno::DQUOT, None),
        (Errno::IO, None),
        (Errno::NOSPC, Some(600_000)),
        (Errno::NOSPC, Some(600_123)),
    ];
    for ((errno, room), len, appends) in faults.iter().flat_map(|fault| {
        [(1000, false), (47_001, false), (100_000, true), (255_999, false)]
            .map(|(len, appends)| (*fault, len, appends))
    }) {
        let fixture = Fixture::new();
        let file = open(&fixture.process(), Path::new(NAME));
        file.write_at(&[1; 4000], 0).unwrap();
        file.commit().unwrap();
        match room {
            Some(room) => fixture.faults.full_after(room),
            None => fixture.faults.fail_matching(".data", Op::WriteAt, errno),
        }
        let mut expected = vec![1; 4000];
        let piece = |i: usize| -> Vec<u8> { (i..i + len).map(|byte| (byte >> 3) as u8).collect() };
        let error = loop {
            let (bytes, at) = (piece(expected.len()), expected.len() as u64);
            let taken = match appends {
                true => file.append(&bytes).map(|(offset, n)| {
                    assert_eq!(offset, at);
                    n
                }),
                false => file.write_at(&bytes, at),
            };
            match taken {
                Ok(n) => expected.extend_from_slice(&bytes[..n]),
                Err(error) => break error,
            }
            assert!(expected.len() < 2 << 20, "two million bytes do not fit");
        };
        assert_eq!(error.errno(), errno);
        assert!(
            error.to_string().contains(".00000000.data") && error.to_string().contains("write"),
            "{error}"
        );
        assert!(expected.len() as u64 >= 4000 + room.unwrap_or(0), "{len}");
        for error in [
            file.write_at(&piece(0), 0).unwrap_err(),
            file.append(b"x").unwrap_err(),
            file.commit().unwrap_err(),
            file.sync().unwrap_err(),
            file.set_len(7).unwrap_err(),
        ] {
            assert!(!matches!(error, Error::Poisoned { .. }), "{error:?}");
            assert_eq!(error.errno(), errno, "{error}");
        }
        assert_eq!(fixture.content(), [1; 4000]);
        fixture.faults.reset();
        match len {
            1000 => file.commit().unwrap(),
            47_001 => file.sync().unwrap(),
            _ => {
                assert_eq!(file.append(b"more").unwrap(), (expected.len() as u64, 4));
                expected.extend_from_slice(b"more");
                file.close().unwrap();
                assert!(fixture.content() == expected, "{errno} {room:?} {len}");
                continue;
            }
        }
        assert!(fixture.content() == expected, "{errno} {room:?} {len}");
        file.close().unwrap();
    }
}

/// The device is full, and so many small writes wait that one of them commits. The commit finds no
/// room and that write failed, though it was taken: who wrote it again appended it twice.
#[test]
fn a_write_that_fails_was_not_taken() {
    // On a busy machine the background commit finds no room before.
    assert!((0..10).any(|_| writes_before_one_fails() > 65_536));
}

/// One more than were taken.
fn writes_before_one_fails() -> usize {
    let fixture = Fixture::new();
    let file = open(&fixture.process(), Path::new(NAME));
    file.write_at(&[1; 100], 0).unwrap();
    file.commit().unwrap();
    fixture.faults.full_after(0);
    let (mut random, mut taken) = (7u64, Vec::new());
    let refused = loop {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let at = 100 + (random >> 24);
        match file.write_at(b"x", at) {
            Ok(n) => taken.push((at, n)),
            Err(error) => {
                assert_eq!(error.errno(), Errno::NOSPC);
                break at;
            }
        }
    };
    fixture.faults.reset();
    file.close().unwrap();
    let plfs = Plfs::new(Arc::new(fixture.memory.clone()), fixture.config.clone());
    let file = open(&plfs, Path::new(NAME));
    let byte = |at| {
        let mut byte = [0];
        file.read_at(&mut byte, at).unwrap();
        byte[0]
    };
    assert_eq!(byte(refused), 0);
    assert!(taken.iter().all(|&(at, n)| n == 1 && byte(at) == b'x'));
    taken.len() + 1
}

/// The device is full, and is so when the file is closed: the close says that bytes are lost, and
/// what was committed before is untouched.
#[test]
fn a_close_without_room_says_so() {
    let fixture = Fixture::new();
    let plfs = fixture.process();
    let file = open(&plfs, Path::new(NAME));
    file.write_at(&[1; 4000], 0).unwrap();
    file.commit().unwrap();
    fixture.faults.full_after(100_000);
    while file.write_at(&[2; 47_001], 0).is_ok() {}
    assert_eq!(file.close().unwrap_err().errno(), Errno::NOSPC);
    fixture.faults.reset();
    assert_eq!(fixture.content(), [1; 4000]);
    let file = open(&plfs, Path::new(NAME));
    file.write_at(&[3; 4000], 0).unwrap();
    file.close().unwrap();
    assert_eq!(fixture.content(), [3; 4000]);
}

/// The same on a network file system, where a thread writes while the application goes on: what it
/// could not write is lost. Some later call fails with that number and names the data log,
/// everything after it fails too, and what was committed before is untouched.
#[test]
fn a_failed_flush_poisons_and_loses_nothing_committed() {
    for (errno, large) in
        [(Errno::NOSPC, false), (Errno::DQUOT, false), (Errno::IO, false), (Errno::NOSPC, true)]
    {
        let fixture = Fixture::on(MemStore::new().shared());
        let plfs = fixture.process();
        let file = open(&plfs, Path::new(NAME));
        file.write_at(&[1; 4000], 0).unwrap();
        file.commit().unwrap();
        match large {
            true => fixture.faults.full_after(5_000_000),
            false => fixture.faults.fail_matching(".data", Op::WriteAt, errno),
        }
        let failed = (0..100_000u64).find_map(|i| file.write_at(&[2; 10_000], i % 1000).err());
        let error = failed.expect("a billion bytes do not fit");
        assert_eq!(error.errno(), errno);
        assert!(
            error.to_string().contains(".00000000.data") && error.to_string().contains("write"),
            "{error}"
        );
        refuses(file, errno);
        fixture.faults.reset();
        assert_eq!(fixture.content(), [1; 4000]);
    }
}

/// The same when the index block does not fit: its bytes are on storage, but the commit failed and
/// nobody sees them.
#[test]
fn a_failed_index_append_poisons_and_loses_nothing_committed() {
    for (errno, short) in
        [(Errno::NOSPC, None), (Errno::DQUOT, None), (Errno::IO, None), (Errno::NOSPC, Some(70))]
    {
        let fixture = Fixture::new();
        let plfs = fixture.process();
        let file = open(&plfs, Path::new(NAME));
        file.write_at(&[1; 100], 0).unwrap();
        file.commit().unwrap();
        file.write_at(&[2; 100], 50).unwrap();
        match short {
            // The data fit, and a part of the block.
            Some(room) => fixture.faults.full_after(100 + room),
            None => fixture.faults.fail_matching("/index", Op::WriteAt, errno),
        }
        let error = file.commit().unwrap_err();
        assert_eq!(error.errno(), errno);
        assert!(error.to_string().contains("/index"), "{error}");
        refuses(file, errno);
        fixture.faults.reset();
        assert_eq!(fixture.content(), [1; 100]);
        // The torn block is in nobody's way.
        let file = open(&plfs, Path::new(NAME));
        file.write_at(&[3; 10], 100).unwrap();
        file.close().unwrap();
        assert_eq!(fixture.content()[..], [[1; 100].as_slice(), &[3; 10]].concat());
    }
}

/// fdatasync fails: the sync says so, and no later call pretends that the bytes are safe (the
/// kernel may have dropped them).
#[test]
fn a_failed_sync_is_for_ever() {
    for path in [".data", "/index"] {
        let fixture = Fixture::new();
        let plfs = fixture.process();
        let file = open(&plfs, Path::new(NAME));
        file.write_at(&[1; 100], 0).unwrap();
        file.sync().unwrap();
        file.write_at(&[2; 100], 50).unwrap();
        fixture.faults.fail_matching(path, Op::SyncData, Errno::IO);
        let error = file.sync().unwrap_err();
        assert_eq!(error.errno(), Errno::IO);
        assert!(error.to_string().contains(path) && error.to_string().contains("sync"), "{error}");
        fixture.faults.reset();
        refuses(file, Errno::IO);
        assert_eq!(fixture.content()[..50], [1; 50]);
    }
}

/// Creating fails at any of its calls: the error has the call's number, no name and no container
/// stay behind, and the next try succeeds.
#[test]
fn a_failed_creation_leaves_nothing() {
    for errno in [Errno::NOSPC, Errno::DQUOT, Errno::ROFS, Errno::ACCESS, Errno::MFILE] {
        for op in [Op::Mkdir, Op::Open, Op::WriteAt, Op::Link] {
            let fixture = Fixture::new();
            let plfs = fixture.process();
            fixture.faults.fail_matching(
                if op == Op::Mkdir { ".plfs" } else { "/super" },
                op,
                errno,
            );
            let error = plfs.open(Path::new(NAME), OpenOptions::create()).unwrap_err();
            assert_eq!(error.errno(), errno, "{op:?} {error}");
            assert!(error.to_string().contains("/m/"), "{error}");
            fixture.faults.reset();
            assert_eq!(
                fixture.memory.stat(Path::new(NAME), Links::Stay).unwrap_err(),
                Errno::NOENT
            );
            assert_eq!(fixture.files(""), Vec::<PathBuf>::new(), "{op:?} {errno}");
            open(&plfs, Path::new(NAME)).close().unwrap();
        }
    }
}

/// Storage takes less than it was given, at any write: nothing is lost and nothing is doubled.
#[test]
fn short_writes_are_continued() {
    for n in 1..12 {
        let fixture = Fixture::new();
        let plfs = fixture.process();
        fixture.faults.short_write_at(n, 13);
        let file = open(&plfs, Path::new(NAME));
        let bytes: Vec<u8> = (0..100_000u32).map(|i| ((i * 7) >> 3) as u8).collect();
        let mut at = 0;
        for len in [100, 20_000, 3000, 70_000].into_iter().cycle() {
            let end = (at + len).min(bytes.len());
            at += file.write_at(&bytes[at..end], at as u64).unwrap();
            if at == bytes.len() {
                break;
            }
        }
        file.close().unwrap();
        assert_eq!(fixture.content(), bytes, "write {n}");
    }
}

/// A read-only or forbidden storage can be read; writing says EROFS or EACCES at the first write,
/// not at close.
#[test]
fn a_read_only_file_can_be_read_and_refuses_writes() {
    for errno in [Errno::ROFS, Errno::ACCESS] {
        let fixture = Fixture::new();
        let file = open(&fixture.process(), Path::new(NAME));
        file.write_at(b"there", 0).unwrap();
        file.close().unwrap();
        for (path, op) in [
            (".open", Op::Symlink),
            ("", Op::Mkdir),
            ("", Op::WriteAt),
            ("", Op::SetTimes),
            ("", Op::Unlink),
            ("", Op::Link),
        ] {
            fixture.faults.fail_matching(path, op, errno);
        }
        let plfs = fixture.process();
        let file = open(&plfs, Path::new(NAME));
        let mut bytes = [0; 5];
        assert_eq!(file.read_at(&mut bytes, 0).unwrap(), 5);
        assert_eq!(&bytes, b"there");
        let error = file.write_at(b"x", 0).unwrap_err();
        assert_eq!(error.errno(), errno, "{error}");
        file.close().unwrap();
        assert_eq!(plfs.unlink(Path::new(NAME)).unwrap_err().errno(), errno);
        fixture.faults.reset();
        assert_eq!(fixture.content(), b"there");
    }
}

/// Another program replaces the name while a handle is open: the handle goes on with the file it
/// opened, and the new one is untouched.
#[test]
fn a_file_replaced_under_an_open_handle_stays_its_own() {
    let fixture = Fixture::new();
    let (one, two) = (fixture.process(), fixture.process());
    let old = open(&one, Path::new(NAME));
    old.write_at(b"old", 0).unwrap();
    old.commit().unwrap();
    let new = open(&two, Path::new("/m/tmp"));
    new.write_at(b"new", 0).unwrap();
    new.close().unwrap();
    two.rename(Path::new("/m/tmp"), Path::new(NAME)).unwrap();
    old.write_at(b"OLD", 3).unwrap();
    old.sync().unwrap();
    let mut bytes = [0; 6];
    assert_eq!(old.read_at(&mut bytes, 0).unwrap(), 6);
    assert_eq!(&bytes, b"oldOLD");
    old.close().unwrap();
    assert_eq!(fixture.content(), b"new");
    // A plain file instead.
    let old = open(&one, Path::new(NAME));
    fixture.memory.unlink(Path::new(NAME)).unwrap();
    let plain = fixture.memory.open(Path::new(NAME), Open::create_new(0o644)).unwrap();
    plain.write_at(b"plain", 0).unwrap();
    assert_eq!(old.read_at(&mut bytes, 0).unwrap(), 3);
    old.write_at(b"x", 0).unwrap();
    old.close().unwrap();
    assert!(matches!(
        fixture.process().open(Path::new(NAME), OpenOptions::read()).unwrap(),
        Opened::Plain(_)
    ));
}

/// A hole cost as many bytes as it freed, because zeros were written into the logs.
#[test]
fn a_hole_of_a_gibibyte_costs_less_than_a_kibibyte() {
    let fixture = Fixture::new();
    let file = open(&fixture.process(), Path::new(NAME));
    file.write_strided(&[1; 1 << 20], 1 << 10, 1 << 20, 0).unwrap();
    file.write_at(&[2; 5000], 1 << 30).unwrap();
    file.commit().unwrap();
    fixture.faults.reset();
    file.zero(0, 1 << 30).unwrap();
    file.sync().unwrap();
    let writes: Vec<_> =
        fixture.faults.log().into_iter().filter(|call| call.op == Op::WriteAt).collect();
    assert!(writes.iter().all(|call| call.path.ends_with("index")), "{writes:?}");
    assert!(writes.iter().map(|call| call.len).sum::<usize>() <= 192, "{writes:?}");
    assert_eq!(
        (file.next_data(0).unwrap(), file.len().unwrap()),
        (Some(1 << 30), (1 << 30) + 5000)
    );
    // Thousands that go on with each other are one record, in each time between two commits.
    fixture.faults.reset();
    let begun = std::time::Instant::now();
    (0..5000).for_each(|i| file.zero((1 << 30) + i, 1).unwrap());
    file.close().unwrap();
    let written = fixture
        .faults
        .log()
        .into_iter()
        .filter(|call| call.op == Op::WriteAt && call.path.ends_with("index"))
        .map(|call| call.len)
        .sum::<usize>();
    let commits = 1 + begun.elapsed().as_millis() as usize / 100;
    assert!(written <= 128 * commits, "{written} in {commits} commits");
}

/// A hole on a full device fails, and then all of it is there or nothing; or it fits and is there.
/// What was committed before is untouched.
#[test]
fn a_hole_on_a_full_device_fails_or_is_there() {
    for room in (0..300).step_by(8) {
        let fixture = Fixture::new();
        write_ones(&fixture);
        fixture.faults.full_after(room);
        let file = open(&fixture.process(), Path::new(NAME));
        let zeroed = file.zero(1000, 2000);
        let done = zeroed.clone().and_then(|()| file.sync());
        let closed = file.close();
        if let Err(error) = &done {
            assert_eq!(error.errno(), Errno::NOSPC, "{error}");
            assert!(zeroed.is_err() || closed.is_err(), "{error}");
        }
        fixture.faults.reset();
        let (mut there, content) = ([1; 4000], fixture.content());
        there[1000..3000].fill(0);
        // Where only the padding of the block did not fit, it failed and is there.
        assert!(content == there || done.is_err() && content == [1; 4000], "{room} bytes of room");
    }
}

fn write_ones(fixture: &Fixture) {
    let file = open(&fixture.process(), Path::new(NAME));
    file.write_at(&[1; 4000], 0).unwrap();
    file.close().unwrap();
}

/// Offsets and sizes past 2^63-1 are EFBIG, before a byte is stored; reading there is the end of
/// the file.
#[test]
fn offsets_do_not_overflow() {
    let fixture = Fixture::new();
    let file = open(&fixture.process(), Path::new(NAME));
    file.write_at(b"data", 0).unwrap();
    for offset in [i64::MAX as u64, 1 << 63, u64::MAX - 3, u64::MAX] {
        assert_eq!(file.write_at(b"xxxxxxxx", offset).unwrap_err().errno(), Errno::FBIG);
        assert_eq!(file.read_at(&mut [0; 8], offset).unwrap(), 0);
        assert_eq!(file.next_data(offset).unwrap(), None);
    }
    assert_eq!(file.set_len(1 << 63).unwrap_err().errno(), Errno::FBIG);
    file.zero(0, u64::MAX).unwrap();
    assert_eq!(file.extents(0, u64::MAX).unwrap(), []);
    file.close().unwrap();
    assert_eq!(fixture.content(), [0; 4]);
}

/// Files in /dev/shm.
struct Dir(PathBuf);

impl Dir {
    fn new() -> Dir {
        Dir(fresh_dir())
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn containers(root: &Path) -> usize {
    let shards = std::fs::read_dir(root.join(".plfs")).into_iter().flatten();
    shards.map(|shard| std::fs::read_dir(shard.unwrap().path()).unwrap().count()).sum()
}

/// A name or path that is too long is ENAMETOOLONG, on the real file system and in memory, and
/// leaves no container behind.
#[test]
fn a_path_too_long_is_refused() {
    let dir = Dir::new();
    let fixture = Fixture::new();
    for (plfs, root) in
        [(Plfs::posix(Config::shared()), dir.0.clone()), (fixture.process(), "/m".into())]
    {
        for path in [root.join("x".repeat(256)), root.join("y/".repeat(2500))] {
            assert_eq!(
                plfs.open(&path, OpenOptions::create()).unwrap_err().errno(),
                Errno::NAMETOOLONG
            );
            assert!(plfs.stat(&path, Links::Follow).is_err());
        }
    }
    assert_eq!(containers(&dir.0), 0);
    assert_eq!(fixture.files(""), Vec::<PathBuf>::new());
}

/// Many processes create the same name at once without O_EXCL: all get the same file, and nobody's
/// bytes are lost. (In the original a race of two creators left 54 of 300 files wrong without an
/// error.)
#[test]
fn creators_that_race_share_one_file() {
    let dir = Dir::new();
    for round in 0..20 {
        let path = dir.0.join(format!("f{round}"));
        std::thread::scope(|scope| {
            for i in 0..6u64 {
                let path = &path;
                scope.spawn(move || {
                    let shared_memory = (i % 2 == 0).then(|| "/dev/shm".into());
                    let file =
                        open(&Plfs::posix(Config { shared_memory, ..Config::shared() }), path);
                    file.write_at(&[i as u8 + 1; 100], i * 100).unwrap();
                    file.close().unwrap();
                });
            }
        });
        let expected: Vec<u8> = (0..600).map(|i| (i / 100) as u8 + 1).collect();
        assert_eq!(content(&Plfs::posix(Config::shared()), &path), expected);
    }
    assert_eq!(containers(&dir.0), 20);
}

/// Runs test `name` of this program in a process of its own, which sees `variable` set.
fn child(name: &str, variable: &str, value: &Path) {
    let program = std::env::current_exe().unwrap();
    let output = Command::new(program)
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(variable, value)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// A process with few descriptors reads a file of many data logs, which is no reason to fail (the
/// original died with EMFILE at 1,100 writers); when it opens too many files it gets EMFILE, loses
/// nothing, and goes on once it has closed some.
#[test]
fn descriptors_that_run_out_lose_nothing() {
    const VARIABLE: &str = "PLFS_TEST_FEW_DESCRIPTORS";
    let Some(root) = std::env::var_os(VARIABLE).map(PathBuf::from) else {
        let dir = Dir::new();
        let config = Config { shared_memory: None, streams: 1, ..Config::shared() };
        let plfs: Vec<Plfs> = (0..150).map(|_| Plfs::posix(config.clone())).collect();
        let files: Vec<File> = plfs.iter().map(|plfs| open(plfs, &dir.0.join("many"))).collect();
        for (i, file) in files.iter().enumerate() {
            file.write_at(&[i as u8; 10], i as u64 * 10).unwrap();
        }
        files.into_iter().for_each(|file| file.close().unwrap());
        child("descriptors_that_run_out_lose_nothing", VARIABLE, &dir.0);
        return;
    };
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let few = rustix::process::Rlimit { current: Some(60), ..limit };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, few).unwrap();
    let config = Config { shared_memory: None, ..Config::shared() };
    let plfs = Plfs::new(Arc::new(PosixStore::new()), config);
    let expected: Vec<u8> = (0..1500).map(|i| (i / 10) as u8).collect();
    let file = open(&plfs, &root.join("many"));
    let mut bytes = vec![0; 1500];
    for _ in 0..3 {
        assert_eq!(file.read_at(&mut bytes, 0).unwrap(), 1500);
        assert_eq!(bytes, expected);
    }
    file.close().unwrap();
    let (mut files, mut written) = (HashMap::new(), 0u32);
    let error = (0..200).find_map(|i| {
        let path = root.join(format!("f{i}"));
        let file = match plfs.open(&path, OpenOptions::create()) {
            Ok(Opened::Logical(file)) => file,
            Ok(Opened::Plain(_)) => panic!("plain"),
            Err(error) => return Some(error),
        };
        let wrote = file.write_at(b"kept", 0).and_then(|_| file.commit());
        written += u32::from(wrote.is_ok());
        files.insert(path, (file, wrote.is_ok()));
        wrote.err()
    });
    assert_eq!(error.expect("there are too few for 200 files").errno(), Errno::MFILE);
    assert!(written > 3, "{written}");
    let paths: Vec<(PathBuf, bool)> =
        files.into_iter().map(|(path, (file, ok))| (path, ok && file.close().is_ok())).collect();
    for (path, _) in paths.iter().filter(|(_, ok)| *ok) {
        assert_eq!(content(&plfs, path), b"kept");
    }
    let file = open(&plfs, &root.join("after"));
    file.write_at(b"works", 0).unwrap();
    file.close().unwrap();
    assert_eq!(content(&plfs, &root.join("after")), b"works");
}

/// The storage is full in the middle of an append: its place at the end of the file stayed taken,
/// and the next append left a hole.
#[test]
fn an_append_that_fails_leaves_no_gap() {
    let fixture = Fixture::new();
    let file = open(&fixture.process(), Path::new(NAME));
    assert_eq!(file.append(b"first").unwrap(), (0, 5));
    file.commit().unwrap();
    let large = vec![7; 300_000];
    fixture.faults.fail_matching(".data", Op::WriteAt, Errno::NOSPC);
    assert_eq!(file.append(&large).unwrap_err().errno(), Errno::NOSPC);
    fixture.faults.reset();
    assert_eq!(file.append(b"second").unwrap(), (5, 6));
}

/// A truncate fails at any of its calls on the store, or its process dies there. The next append of
/// the node goes where the logs say that the file ends, whether they have the truncate or not.
#[test]
fn a_truncate_that_fails_leaves_appends_no_gap() {
    let (mut points, mut done) = (0, [false; 2]);
    for (is_kill, size) in [(false, 4), (false, 0), (true, 4), (true, 0)] {
        for n in 1.. {
            let node = Scratch::new();
            let fixture = Fixture { config: node.config(), ..Fixture::new() };
            let healthy = Plfs::new(Arc::new(fixture.memory.clone()), fixture.config.clone());
            let other = open(&healthy, Path::new(NAME));
            assert_eq!(other.append(b"1111").unwrap(), (0, 4));
            other.commit().unwrap();
            let cutter = fixture.process();
            let file = open(&cutter, Path::new(NAME));
            assert_eq!(file.append(b"2222").unwrap(), (4, 4));
            file.commit().unwrap();
            fixture.faults.reset();
            if is_kill {
                fixture.faults.kill_at(n)
            } else {
                fixture.faults.fail_at(n, Errno::IO)
            }
            let cut = file.set_len(size);
            if fixture.faults.calls() < n {
                cut.unwrap();
                break;
            }
            points += 1;
            if !is_kill {
                fixture.faults.reset();
            }
            drop((file, cutter));
            other.append(b"3333").unwrap();
            other.close().unwrap();
            let seen = fixture.content();
            let is_cut = seen.len() < 12;
            assert!(is_cut || cut.is_err());
            done[usize::from(is_cut)] = true;
            let before = if is_cut { &b"1111"[..size as usize] } else { b"11112222" };
            assert_eq!(seen, [before, b"3333"].concat(), "call {n}, {cut:?}");
        }
    }
    assert_eq!(done, [true; 2], "some truncates fail before they count, some after");
    explored(points, "faults in a truncate beside an append");
}

/// Room is reserved where there is none for the record that says so. Nothing is lost by that, but
/// each later call on the file failed, until all of the process had closed it.
#[test]
fn room_that_cannot_be_reserved_is_refused_and_nothing_else() {
    for errno in [Errno::NOSPC, Errno::DQUOT, Errno::IO] {
        let fixture = Fixture::new();
        let file = open(&fixture.process(), Path::new(NAME));
        file.write_at(b"old", 0).unwrap();
        file.commit().unwrap();
        fixture.faults.fail_matching("index", Op::WriteAt, errno);
        assert_eq!(file.allocate(0, 100, Size::Grows).unwrap_err().errno(), errno);
        assert_eq!(file.len().unwrap(), 3);
        fixture.faults.reset();
        file.write_at(b"new", 0).unwrap();
        file.commit().unwrap();
        file.allocate(0, 100, Size::Grows).unwrap();
        file.close().unwrap();
        let seen = fixture.content();
        assert_eq!((seen.len(), &seen[..3]), (100, &b"new"[..]));
    }
}
