//! Streams follow the storage (docs/decisions/0026): a writer that has several targets leaves one
//! that is slow, and its bytes are there whichever it took.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use plfs::store::{Errno, Store};
use plfs::{CloseToOpen, Config, Placement, Plfs};
use plfs_testkit::{Call, CloseToOpenStore, FaultStore, MemStore, Op};

use super::scratch::{Scratch, open};

const MIB: usize = 1 << 20;

/// Writes 48 MiB where writes to `slow` take 100 ms more each, of 1 MiB; gives how many bytes went
/// there, and how many to the other target.
fn writes_to(slow: &str, placement: Placement) -> (usize, usize) {
    let scratch = Scratch::new();
    let memory = MemStore::new();
    for dir in ["/m", "/n"] {
        memory.mkdir(Path::new(dir), 0o755).unwrap();
    }
    let faults = FaultStore::new(Arc::new(CloseToOpenStore::new(Arc::new(memory))));
    for _ in 0..200 {
        faults.before(slow, Op::WriteAt, || std::thread::sleep(Duration::from_millis(100)));
    }
    let config = Config {
        backends: vec![PathBuf::from("/n")],
        buffer_bytes: 2 * MIB,
        close_to_open: CloseToOpen::OneNode,
        placement,
        ..scratch.config()
    };
    let plfs = Plfs::new(Arc::new(faults.clone()), config);
    let path = Path::new("/m/f");
    let file = open(&plfs, path);
    let piece = |i: usize| -> Vec<u8> { (0..64 << 10).map(|j| (i * 31 + j) as u8).collect() };
    let pieces = 48 * MIB / (64 << 10);
    for i in 0..pieces {
        file.write_at(&piece(i), (i * (64 << 10)) as u64).unwrap();
    }
    file.sync().unwrap();
    file.close().unwrap();
    let file = open(&plfs, path);
    let mut got = vec![0; 64 << 10];
    for i in 0..pieces {
        assert_eq!(file.read_at(&mut got, (i * (64 << 10)) as u64).unwrap(), got.len());
        assert!(got == piece(i), "piece {i}");
    }
    let log = faults.log();
    let writes = || log.iter().filter(|call| call.op == Op::WriteAt);
    let all: usize = writes().map(|call| call.len).sum();
    let there = writes().filter(|call| call.path.starts_with(slow)).map(|call| call.len).sum();
    (there, all - there)
}

#[test]
fn a_writer_leaves_a_target_that_is_slow() {
    for slow in ["/m/.plfs", "/n/.plfs"] {
        let (there, elsewhere) = writes_to(slow, Placement::Measured);
        assert!(there + elsewhere >= 48 * MIB, "{there}, {elsewhere}");
        assert!(there <= 12 * MIB, "{there} bytes went to {slow}, {elsewhere} elsewhere");
    }
}

#[test]
fn equal_shares_are_equal_however_slow_a_target_is() {
    let (there, elsewhere) = writes_to("/n/.plfs", Placement::Equal);
    assert!(there.abs_diff(elsewhere) <= 10 * MIB, "{there}, {elsewhere}");
}

/// A small file costs no probe, and nothing else for the sake of targets: one write of its bytes to
/// one of them, no wait, and no more calls than a file without backends, but for those that look
/// whether there is room and whether something lies there.
#[test]
fn a_small_file_costs_no_call_for_targets() {
    let scratch = Scratch::new();
    let memory = MemStore::new();
    for dir in ["/m", "/n", "/n/.plfs"] {
        memory.mkdir(Path::new(dir), 0o1777).unwrap();
    }
    let faults = FaultStore::new(Arc::new(memory));
    let fewest_calls = |backends: Vec<PathBuf>| {
        let config = Config { backends, compact_bytes: 0, ..scratch.config() };
        let plfs = Plfs::new(Arc::new(faults.clone()), config);
        let calls = (0..9).map(|i| {
            let path = PathBuf::from(format!("/m/f{i}"));
            faults.reset();
            let file = open(&plfs, &path);
            file.write_at(&[1; 1024], 0).unwrap();
            file.close().unwrap();
            let log = faults.log();
            let of = |op: Op| log.iter().filter(move |call| call.op == op);
            let is_data = |path: &Path| path.extension().is_some_and(|it| it == "data");
            let written: Vec<_> = of(Op::WriteAt).filter(|call| is_data(&call.path)).collect();
            assert!(matches!(written[..], [call] if call.len == 1024), "{written:?}");
            assert_eq!(of(Op::WriteBack).count(), 0);
            plfs.unlink(&path).unwrap();
            log.len()
        });
        calls.min().unwrap()
    };
    let (one, two) = (fewest_calls(vec![]), fewest_calls(vec![PathBuf::from("/n")]));
    assert!(two <= one + 2, "{one} calls on one target, {two} on one of two");
}

/// Linux tells of an error in a write that a page cache had taken once: to who waits for it, and
/// not to who opens the file then and syncs it. What a writer heard while it waited was thrown
/// away, and fsync said that all is well.
#[test]
fn what_is_heard_while_waiting_for_a_target_fails_the_sync() {
    let scratch = Scratch::new();
    let memory = MemStore::new();
    for dir in ["/m", "/n"] {
        memory.mkdir(Path::new(dir), 0o755).unwrap();
    }
    let faults = FaultStore::new(Arc::new(memory));
    let config = Config { backends: vec![PathBuf::from("/n")], ..scratch.config() };
    let plfs = Plfs::new(Arc::new(faults.clone()), config);
    let file = open(&plfs, Path::new("/m/f"));
    file.write_at(&vec![1; 64 << 10], 0).unwrap();
    file.sync().unwrap();
    faults.fail_matching("/.plfs/", Op::WriteBack, Errno::IO);
    for i in 1..64 {
        file.write_at(&vec![1; 64 << 10], i * (64 << 10)).unwrap();
    }
    assert!(faults.calls_of(Op::WriteBack) > 0, "nothing was waited for");
    faults.reset();
    assert_eq!(file.sync().unwrap_err().errno(), Errno::IO);
    assert_eq!(file.sync().unwrap_err().errno(), Errno::IO);
}

/// A sync of data on eight targets took as long as all of them together: each was asked when the
/// one before had finished.
#[test]
fn a_sync_has_all_targets_work_at_the_same_time() {
    let scratch = Scratch::new();
    let memory = MemStore::new();
    let dirs: Vec<PathBuf> = (0..4).map(|i| PathBuf::from(format!("/m{i}"))).collect();
    for dir in &dirs {
        memory.mkdir(dir, 0o755).unwrap();
    }
    let faults = FaultStore::new(Arc::new(memory));
    let config = Config { backends: dirs[1..].to_vec(), streams: 4, ..scratch.config() };
    let process = |_| Plfs::new(Arc::new(faults.clone()), config.clone());
    let all: Vec<Plfs> = (0..4).map(process).collect();
    let files: Vec<_> = all.iter().map(|plfs| open(plfs, Path::new("/m0/f"))).collect();
    let piece = vec![7; 64 << 10];
    for i in 0..256 {
        files[i % 4].write_at(&piece, (i * piece.len()) as u64).unwrap();
    }
    files.iter().for_each(|file| file.commit().unwrap());
    faults.reset();
    files[0].sync().unwrap();
    let log = faults.log();
    let of_data = |op: Op| {
        let is_it = move |call: &Call| {
            call.op == op && call.path.extension().is_some_and(|it| it == "data")
        };
        log.iter().enumerate().filter(move |(_, call)| is_it(call)).map(|(at, _)| at)
    };
    let (begun, synced) = (of_data(Op::WriteBack).count(), of_data(Op::SyncData).count());
    assert!(begun >= 2 && synced >= begun, "{begun} were begun, {synced} synced");
    assert!(of_data(Op::WriteBack).max() < of_data(Op::SyncData).min(), "one after the other");
}
