//! What a second reader who had not written a line of it found: each was lost, wrong, an error, or
//! cost what it should not before it was mended.

mod common {
    pub mod scratch;
}

use std::path::{Path, PathBuf};
use std::sync::Arc;

use plfs::store::{Errno, Links, Open, PosixStore, Store};
use plfs::{Config, File, Health, OpenOptions, Opened, Plfs};
use plfs_format::index_log::{Append, Record, Repeat, RunRecord, align_up, encode_block};
use plfs_format::name::{self, SegmentRef};
use plfs_testkit::{FaultStore, MemStore, Op, thread_cpu_time};

use common::scratch::{Scratch, open};

fn alone(memory: MemStore) -> Plfs {
    Plfs::new(Arc::new(memory), Config { shared_memory: None, ..Config::shared() })
}

fn open_to_read(plfs: &Plfs, path: &Path) -> File {
    match plfs.open(path, OpenOptions::read()).unwrap() {
        Opened::Logical(file) => file,
        Opened::Plain(_) => panic!("{} is plain", path.display()),
    }
}

fn set_of(file: &File) -> u32 {
    let names = file.container().unwrap().list().unwrap();
    names
        .into_iter()
        .find_map(|name| if let name::Name::LogSet(set) = name { Some(set) } else { None })
        .unwrap()
}

/// S12, S14, S15. `b` commits and closes; the disk loses its bytes in a sync of `a`, which is told.
/// When `a` had closed, nobody remembered: that a sync failed was a word of a page that goes with
/// its last process. The next sync of `b` said that its bytes are durable (the kernel tells a
/// failure once), and its block's `durable` took the doubt from them: after a power cut they hid
/// what was synced.
#[test]
fn a_sync_that_failed_is_not_forgotten_by_the_next_tenancy() {
    let (dir, mem) = (Scratch::new(), MemStore::new());
    let store = FaultStore::new(Arc::new(mem.clone()));
    let path = Path::new("/f");
    let config = || Config { streams: 1, ..dir.config() };
    let a = Plfs::new(Arc::new(store.clone()), config());
    let b = Plfs::new(Arc::new(store.clone()), config());
    let fb = open(&b, path);
    fb.write_at(&[b'o'; 5000], 0).unwrap();
    fb.sync().unwrap();
    fb.write_at(&[b'n'; 5000], 0).unwrap();
    fb.commit().unwrap();
    let new = fb.extents(0, 1).unwrap()[0].clone();
    fb.close().unwrap();
    let fa = open(&a, path);
    fa.write_at(&[b'a'; 5000], 5000).unwrap();
    store.fail_matching(".data", Op::SyncData, Errno::IO);
    assert!(fa.sync().is_err());
    assert!(fa.close().is_err());
    // Linux: the pages are clean now, and the error was reported; fsync of a descriptor that is
    // opened from now on says 0.
    store.reset();
    let fb = open(&b, path);
    fb.write_at(b"x", 20_000).unwrap();
    let synced = fb.sync();
    // The first block of a tenancy has no `durable`, the second has.
    fb.write_at(b"y", 30_000).unwrap();
    let synced = synced.and(fb.sync());
    // The power is cut: the pages of the failed sync have never been written.
    let left = mem.crash();
    let log = left.open(&new.data_log, Open::READ_WRITE).unwrap();
    log.write_at(&[0; 5000], new.physical).unwrap();
    let mut bytes = [b'?'; 1];
    let read = open_to_read(&alone(left), path).read_at(&mut bytes, 0);
    assert!(
        synced.is_err() && matches!(bytes[0], b'o' | b'n'),
        "sync says {synced:?}; a byte that was synced reads {read:?} {bytes:?}"
    );
}

/// S12, S15. The same for the index log, and within a tenancy: only a failed sync of data was
/// remembered. `b` has closed what it wrote; `a` syncs, and the index log's pages are lost; `b`
/// opens the file again, and its sync, by a descriptor that the kernel tells nothing, said 0.
#[test]
fn a_sync_of_the_index_that_failed_fails_for_all_whose_blocks_it_took() {
    let (dir, store) = (Scratch::new(), FaultStore::new(Arc::new(MemStore::new())));
    let path = Path::new("/f");
    let config = || Config { streams: 1, ..dir.config() };
    let a = Plfs::new(Arc::new(store.clone()), config());
    let b = Plfs::new(Arc::new(store.clone()), config());
    let fa = open(&a, path);
    fa.write_at(&[1; 5000], 0).unwrap();
    let fb = open(&b, path);
    fb.write_at(&[2; 5000], 5000).unwrap();
    fb.close().unwrap();
    store.fail_matching("index", Op::SyncData, Errno::IO);
    assert!(fa.sync().is_err());
    store.reset();
    let fb = open(&b, path);
    assert!(fb.sync().is_err(), "the sync says that a lost index block is durable");
}

/// S12, S15. The same of a sync by who has no writer, and of one who comes while nobody has the
/// file open; and in the same boot what the disk lost shows the older bytes, which were synced.
#[test]
fn a_sync_that_failed_without_a_writer_is_not_forgotten() {
    let (dir, mem) = (Scratch::new(), MemStore::new());
    let store = FaultStore::new(Arc::new(mem.clone()));
    let path = Path::new("/f");
    let plfs = || Plfs::new(Arc::new(store.clone()), Config { streams: 1, ..dir.config() });
    let (a, b) = (plfs(), plfs());
    let file = open(&a, path);
    file.write_at(&[b'o'; 5000], 0).unwrap();
    file.sync().unwrap();
    file.write_at(&[b'n'; 5000], 0).unwrap();
    file.commit().unwrap();
    let new = file.extents(0, 1).unwrap()[0].clone();
    let set = set_of(&file);
    file.close().unwrap();
    let file = open(&b, path);
    store.fail_matching(".data", Op::SyncData, Errno::IO);
    assert_eq!(file.sync().unwrap_err().errno(), Errno::IO);
    store.reset();
    assert_eq!(file.sync().unwrap_err().errno(), Errno::IO);
    file.close().unwrap();
    assert_eq!(open(&a, path).sync().unwrap_err().errno(), Errno::IO);
    // The page is clean, and goes: what the disk has comes back.
    let log = mem.open(&new.data_log, Open::READ_WRITE).unwrap();
    log.write_at(&[0; 5000], new.physical).unwrap();
    let mut bytes = [b'?'; 1];
    assert_eq!(open_to_read(&plfs(), path).read_at(&mut bytes, 0).unwrap(), 1);
    assert_eq!(bytes, *b"o");
    assert_eq!(a.compact(path, go_on).unwrap_err().errno(), Errno::IO);
    let file = open(&a, path);
    file.write_at(b"x", 0).unwrap();
    file.commit().unwrap();
    assert!(
        file.container().unwrap().list().unwrap().len() > 4,
        "a log set of its own beside {set}"
    );
    file.set_len(0).unwrap();
    file.write_at(b"y", 0).unwrap();
    file.sync().unwrap();
}

/// S12. What makes the file's name durable failed, and was told once: the next sync said that all
/// is durable, and a power cut left no file.
#[test]
fn a_sync_of_the_name_that_failed_is_not_forgotten() {
    for is_writer in [true, false] {
        let (dir, mem) = (Scratch::new(), MemStore::new());
        let store = FaultStore::new(Arc::new(mem));
        let path = Path::new("/f");
        let plfs = || Plfs::new(Arc::new(store.clone()), dir.config());
        let (a, b) = (plfs(), plfs());
        let mut file = open(&a, path);
        file.write_at(b"x", 0).unwrap();
        if !is_writer {
            file.close().unwrap();
            file = open(&a, path);
        }
        store.fail_matching("super", Op::SyncData, Errno::IO);
        assert_eq!(file.sync().unwrap_err().errno(), Errno::IO);
        store.reset();
        for sync in [file.sync(), open(&b, path).sync()] {
            assert_eq!(sync.unwrap_err().errno(), Errno::IO, "{is_writer}");
        }
    }
}

/// S12. The sign that a sync failed finds no room: the next sync of the same process said that all
/// is well.
#[test]
fn a_sync_that_failed_on_a_full_disk_is_not_forgotten_by_who_was_told() {
    let (dir, mem) = (Scratch::new(), MemStore::new());
    let store = FaultStore::new(Arc::new(mem));
    let plfs = || Plfs::new(Arc::new(store.clone()), Config { streams: 1, ..dir.config() });
    let (a, b) = (plfs(), plfs());
    for (path, is_writer) in [(Path::new("/f"), true), (Path::new("/g"), false)] {
        let mut file = open(&a, path);
        file.write_at(b"x", 0).unwrap();
        if !is_writer {
            file.close().unwrap();
            file = open(&a, path);
        }
        store.fail_matching(".data", Op::SyncData, Errno::IO);
        store.fail_matching(".unsynced", Op::Symlink, Errno::NOSPC);
        assert_eq!(file.sync().unwrap_err().errno(), Errno::IO);
        store.reset();
        assert_eq!(file.sync().unwrap_err().errno(), Errno::IO);
        let _ = file.close();
        assert_eq!(open(&a, path).sync().unwrap_err().errno(), Errno::IO);
        // Who wrote the file leaves it to others as its last act, which needs no room.
        if is_writer {
            assert_eq!(open(&b, path).sync().unwrap_err().errno(), Errno::IO);
        }
    }
}

/// S19, S23. Who changes a file that he owns and may not read lets himself in for a moment. Another
/// file that got the name in that moment got its mode.
#[test]
fn who_lets_himself_in_changes_no_file_that_gets_the_name_meanwhile() {
    use std::os::unix::fs::PermissionsExt;
    let dir = Scratch::new();
    let store = FaultStore::new(Arc::new(PosixStore::new()));
    let plfs = Plfs::new(Arc::new(store.clone()), dir.config());
    let [path, second, other] = ["unreadable", "second", "other"].map(|name| dir.0.join(name));
    for (path, mode) in [(&path, 0o200), (&other, 0o640)] {
        std::fs::write(path, "text").unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    std::fs::hard_link(&path, &second).unwrap();
    store.fail_matching("unreadable", Op::Open, Errno::ACCESS);
    let (from, to) = (other.clone(), path.clone());
    store.before("", Op::Chmod, move || std::fs::rename(from, to).unwrap());
    // The one that has the name now is no file of PLFS.
    assert!(plfs.container_to_change(&path, Links::Stay).unwrap().is_none());
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert!(!other.exists());
    assert_eq!((mode(&path), mode(&second)), (0o640, 0o200));
}

fn go_on(_: u64) -> std::ops::ControlFlow<()> {
    std::ops::ControlFlow::Continue(())
}

/// S15: "makes every later call on the file in this process fail, with the first cause". Reads went
/// on, and gave what was there before; and so did large writes on a network file system.
#[test]
fn what_is_lost_fails_every_later_call() {
    // A local file system; the index log finds no room.
    let (dir, store) = (Scratch::new(), FaultStore::new(Arc::new(MemStore::new())));
    let plfs = Plfs::new(Arc::new(store.clone()), dir.config());
    let file = open(&plfs, Path::new("/f"));
    file.write_at(&[9; 5000], 0).unwrap();
    file.sync().unwrap();
    file.write_at(&[1; 6000], 0).unwrap();
    store.fail_matching("index", Op::WriteAt, Errno::NOSPC);
    assert!(file.commit().is_err());
    store.reset();
    assert!(file.write_at(&[1; 10], 0).is_err());
    let mut bytes = [0; 10];
    let read = file.read_at(&mut bytes, 0).map(|n| (n, bytes));
    // A network one; a thread finds no room. Large writes go beside the threads.
    let (dir, store) = (Scratch::new(), FaultStore::new(Arc::new(MemStore::new().shared())));
    let plfs = Plfs::new(Arc::new(store.clone()), dir.config());
    let file = open(&plfs, Path::new("/f"));
    store.fail_matching(".data", Op::WriteAt, Errno::NOSPC);
    // A thread may have failed before the last of them, which is told then.
    (0..5).for_each(|i| drop(file.write_at(&vec![1; 1 << 20], i << 20)));
    std::thread::sleep(std::time::Duration::from_millis(300));
    store.reset();
    let large = file.write_at(&vec![1; 5 << 20], 10 << 20);
    assert!(read.is_err() && large.is_err(), "a read: {read:?}; a large write: {large:?}");
}

fn at_of(set: u32) -> SegmentRef {
    SegmentRef { set, stream: 0, segment: 0, backend: 0 }
}

/// `nests` records of `rows` runs of two pieces each, with these stamps.
fn nests(rows: u32, stamps: impl Iterator<Item = u64>) -> Vec<Record> {
    let nest = |(i, stamp): (usize, u64)| {
        Record::Run(RunRecord {
            logical: 10 * i as u64,
            length: 1,
            stride: 2,
            count: 2,
            segment: 0,
            physical: 0,
            writer: 0,
            stamp,
            repeat: [Repeat { stride: 10_000, count: rows }, Repeat::ONCE],
        })
    };
    stamps.enumerate().map(nest).collect()
}

/// Appends blocks to the index log of `file`, which nobody else appends to.
fn append(memory: &MemStore, file: &File, blocks: &[Vec<Record>]) -> u64 {
    let set = set_of(file);
    let path = file.container().unwrap().path(&name::index_log(set));
    let log = memory.open(&path, Open::READ_WRITE).unwrap();
    for (i, records) in blocks.iter().enumerate() {
        let offset = align_up(log.stat().unwrap().len);
        let stamp = u64::MAX / 2 + i as u64;
        let append = Append { offset, stamp, durable: 0, is_data_durable: false };
        let id = file.container().unwrap().log_id(set);
        let block = encode_block(id, append, &[at_of(set)], records).unwrap();
        log.write_at(&block, offset).unwrap();
    }
    log.stat().unwrap().len
}

/// Runs in doubt that do not come in the order of their stamps were put into their place in a list
/// one by one: the square of their number. 16 nests (1.4 KiB) were 40 TB to move in memory.
#[test]
fn what_runs_in_doubt_cost_does_not_depend_on_their_order() {
    let look = |is_descending: bool| {
        let (dir, memory, path) = (Scratch::new(), MemStore::new(), Path::new("/f"));
        let plfs = Plfs::new(Arc::new(memory.clone()), dir.config());
        let file = open(&plfs, path);
        file.write_at(&[b'o'; 9_000], 1 << 40).unwrap();
        file.sync().unwrap();
        let sums =
            Record::Sums { segment: 0, boot: 5, physical: 0, length: 1, unit: 1, sums: vec![1] };
        let stamps = (0..3).map(|i| u64::MAX / 4 + if is_descending { 3 - i } else { i });
        let mut records = vec![sums];
        records.extend(nests(1 << 14, stamps));
        let bytes = append(&memory, &file, &[records]);
        let mut byte = [0; 1];
        let begun = thread_cpu_time();
        let read = open_to_read(&alone(memory.elsewhere()), path).read_at(&mut byte, 1 << 40);
        let took = thread_cpu_time() - begun;
        eprintln!("{bytes} bytes of index log, descending {is_descending}: {took:?} {read:?}");
        took
    };
    let least = |is_descending| (0..2).map(|_| look(is_descending)).min().unwrap();
    let (up, down) = (least(false), least(true));
    assert!(down < 5 * up, "ascending {up:?}, descending {down:?}");
}

/// The same without hostile bytes: two nodes write one file in pieces without a pattern, and do not
/// sync; a third one reads it. All that it does not have of the same boot is in doubt.
#[test]
fn a_reader_elsewhere_pays_for_each_record_once() {
    let look = |pieces: u64| {
        // Nodes of one boot, which nobody knows of who reads elsewhere.
        let memory = MemStore::new().shared();
        let path = Path::new("/f");
        let nodes: Vec<(Scratch, Plfs)> = (0..2)
            .map(|_| {
                let dir = Scratch::new();
                let plfs = Plfs::new(Arc::new(memory.clone()), dir.config());
                (dir, plfs)
            })
            .collect();
        let files: Vec<File> = nodes.iter().map(|(_, plfs)| open(plfs, path)).collect();
        // In turn, so that the stamps are; no two pieces touch or overlap, and there is no pattern.
        let mut rng = plfs_testkit::Rng::new(7);
        let mut places: Vec<u64> = (0..pieces).collect();
        (1..places.len()).for_each(|i| places.swap(i, rng.below(i as u64 + 1) as usize));
        for place in places {
            for (node, file) in files.iter().enumerate() {
                let at = (place * 2 + node as u64) * 100;
                file.write_at(&[1; 10], at).unwrap();
            }
        }
        files.iter().for_each(|file| file.commit().unwrap());
        let reader = Plfs::new(
            Arc::new(memory.elsewhere()),
            Config { shared_memory: None, ..Config::shared() },
        );
        let mut byte = [0; 1];
        let begun = thread_cpu_time();
        assert_eq!(open_to_read(&reader, path).read_at(&mut byte, 0).unwrap(), 1);
        let took = thread_cpu_time() - begun;
        eprintln!("{} records of two nodes: the first read took {took:?}", 2 * pieces);
        took
    };
    // The machine has others to serve.
    let least = |pieces| (0..2).map(|_| look(pieces)).min().unwrap();
    let (few, many) = (least(10_007), least(80_021));
    assert!(many < 20 * few, "8 times as many records: {few:?}, {many:?}");
}

/// A block of 48 bytes for each 64 KiB of data to read, however little data there is: the sums of a
/// block in doubt may be of the same bytes over and over, and all were looked at. 16 MiB of index
/// log beside a sparse file of 4 GiB were 2^50 bytes to read, at the first read of one byte.
#[test]
fn sums_of_the_same_bytes_cost_what_the_bytes_cost() {
    const DATA: u64 = 4 << 20;
    const SUMS: usize = 200;
    let (dir, memory, path) = (Scratch::new(), MemStore::new(), Path::new("/f"));
    let plfs = Plfs::new(Arc::new(memory.clone()), dir.config());
    let file = open(&plfs, path);
    file.write_at(&vec![b'o'; DATA as usize], 0).unwrap();
    file.sync().unwrap();
    let set = set_of(&file);
    let at = SegmentRef { set, stream: 0, segment: 0, backend: 0 };
    let sums = Record::Sums {
        segment: 0,
        boot: 5,
        physical: 0,
        length: DATA,
        unit: u32::MAX,
        sums: vec![1],
    };
    let mut records = vec![sums; SUMS];
    records.push(Record::Run(RunRecord {
        logical: 0,
        length: DATA,
        stride: 0,
        count: 1,
        segment: 0,
        physical: 0,
        writer: 0,
        stamp: u64::MAX / 2,
        repeat: [Repeat::ONCE; 2],
    }));
    let log = memory
        .open(&file.container().unwrap().path(&name::index_log(set)), Open::READ_WRITE)
        .unwrap();
    let offset = align_up(log.stat().unwrap().len);
    let append = Append { offset, stamp: u64::MAX / 2, durable: 0, is_data_durable: false };
    let block =
        encode_block(file.container().unwrap().log_id(set), append, &[at], &records).unwrap();
    log.write_at(&block, offset).unwrap();
    let there = DATA + log.stat().unwrap().len;
    let store = FaultStore::new(Arc::new(memory.elsewhere()));
    let reader =
        Plfs::new(Arc::new(store.clone()), Config { shared_memory: None, ..Config::shared() });
    let mut bytes = [0; 1];
    let begun = std::time::Instant::now();
    let _ = open_to_read(&reader, path).read_at(&mut bytes, 0);
    let took = begun.elapsed();
    let read: u64 =
        store.log().iter().filter(|call| call.op == Op::ReadAt).map(|call| call.len as u64).sum();
    assert!(
        read <= 4 * there,
        "a block of {} bytes and {DATA} bytes of data: {read} bytes were read, {took:?}",
        block.len()
    );
}

/// A store with the root /m and the backend /n, and a process that makes files of one stream there.
fn with_a_backend(dir: &Scratch) -> (MemStore, FaultStore, Plfs) {
    let memory = MemStore::new();
    for dir in ["/m", "/n"] {
        memory.mkdir(Path::new(dir), 0o755).unwrap();
    }
    memory.mkdir(Path::new("/n/.plfs"), 0o1777).unwrap();
    let store = FaultStore::new(Arc::new(memory.clone()));
    let config = Config { backends: vec![PathBuf::from("/n")], streams: 1, ..dir.config() };
    let plfs = Plfs::new(Arc::new(store.clone()), config);
    (memory, store, plfs)
}

/// Whether a data log was made durable since call number `since`.
fn has_synced_data(store: &FaultStore, since: u64) -> bool {
    store.log()[since as usize..].iter().any(|call| {
        call.op == Op::SyncData
            && call.error.is_none()
            && call.path.to_string_lossy().ends_with(".data")
    })
}

/// S12. A backend is moved, and the table says so, while a program has a file open on it, whose
/// descriptor goes on working. A sync did not find the data log at the old place, took it for one
/// that nobody has made yet, and said that all is durable.
#[test]
fn a_sync_finds_a_backend_that_has_moved_or_fails() {
    let dir = Scratch::new();
    let (memory, store, plfs) = with_a_backend(&dir);
    // Both on /m/.. and /n: look for one whose data is on /n.
    let file = (0..64)
        .find_map(|i| {
            let file = open(&plfs, Path::new(&format!("/m/f{i}")));
            file.write_at(&[1; 100], 0).unwrap();
            file.sync().unwrap();
            let log = file.extents(0, 1).unwrap()[0].data_log.clone();
            log.starts_with("/n").then_some(file)
        })
        .expect("a file with its data on /n");
    file.write_at(&[2; 100], 0).unwrap();
    memory.rename(Path::new("/n"), Path::new("/moved")).unwrap();
    let entry = Path::new("/m/.plfs/backends/0001");
    let table = memory.open(entry, Open::READ_WRITE).unwrap();
    let mut text = vec![0; table.stat().unwrap().len as usize];
    table.read_at(&mut text, 0).unwrap();
    let text = String::from_utf8(text).unwrap().replace("path /n\n", "path /moved\n");
    let new = memory.open(Path::new("/m/.plfs/backends/new"), Open::create(0o644)).unwrap();
    new.write_at(text.as_bytes(), 0).unwrap();
    memory.rename(Path::new("/m/.plfs/backends/new"), entry).unwrap();
    assert!(memory.stat(Path::new("/n"), Links::Stay).is_err());
    let before = store.calls();
    let synced = file.sync();
    let is_synced = has_synced_data(&store, before);
    let calls: Vec<String> = store.log()[before as usize..]
        .iter()
        .filter(|call| call.path.to_string_lossy().contains(".data"))
        .map(ToString::to_string)
        .collect();
    assert!(
        synced.is_err() || is_synced,
        "sync says {synced:?}, and made no data durable: {calls:#?}"
    );
}

/// The same for what was closed before (`catalog::sync_logs`): a backend that is not there any more
/// was passed over.
#[test]
fn a_sync_of_what_was_closed_finds_a_backend_that_has_moved_or_fails() {
    let dir = Scratch::new();
    let (memory, store, plfs) = with_a_backend(&dir);
    let path = (0..64)
        .find_map(|i| {
            let path = PathBuf::from(format!("/m/f{i}"));
            let file = open(&plfs, &path);
            file.write_at(&[1; 100], 0).unwrap();
            file.commit().unwrap();
            let log = file.extents(0, 1).unwrap()[0].data_log.clone();
            file.close().unwrap();
            log.starts_with("/n").then_some(path)
        })
        .expect("a file with its data on /n");
    // Unmounted, say: nothing of it is there now.
    memory.rename(Path::new("/n"), Path::new("/moved")).unwrap();
    let before = store.calls();
    let file = open(&plfs, &path);
    let synced = file.sync();
    let is_synced = has_synced_data(&store, before);
    assert!(synced.is_err() || is_synced, "sync says {synced:?}, and made no data durable");
}

/// S12, S32. A backend had no room, so the stream went on on another one, and the file was closed.
/// A sync of a later session looked for the logs where streams lie that found room, and missed
/// nothing when the backend that has this one was not there.
#[test]
fn a_sync_of_what_was_closed_misses_the_backend_that_took_what_found_no_room() {
    let dir = Scratch::new();
    let (memory, store, plfs) = with_a_backend(&dir);
    let path = (0..64)
        .find_map(|i| {
            let path = PathBuf::from(format!("/m/f{i}"));
            let file = open(&plfs, &path);
            let full = store.clone();
            store.before(".data", Op::Open, move || full.fail_at(1, Errno::NOSPC));
            file.write_at(&[1; 100], 0).unwrap();
            file.commit().unwrap();
            let log = file.extents(0, 1).unwrap()[0].data_log.clone();
            file.close().unwrap();
            log.starts_with("/n").then_some(path)
        })
        .expect("a file with its data on /n");
    memory.rename(Path::new("/n"), Path::new("/moved")).unwrap();
    let before = store.calls();
    let file = open(&plfs, &path);
    let synced = file.sync();
    let is_synced = has_synced_data(&store, before);
    assert!(synced.is_err() || is_synced, "sync says {synced:?}, and made no data durable");
}

/// S23, S30: an rmdir that failed had taken the directory's layout away, if a file was made in
/// between: what was made there from then on was laid out otherwise, and nobody was told.
#[test]
fn an_rmdir_that_fails_leaves_the_layout() {
    let dir = Scratch::new();
    let memory = MemStore::new();
    memory.mkdir(Path::new("/m"), 0o755).unwrap();
    memory.mkdir(Path::new("/m/d"), 0o755).unwrap();
    let store = FaultStore::new(Arc::new(memory.clone()));
    let config = Config { mounts: vec![PathBuf::from("/m")], ..dir.config() };
    let plfs = Plfs::new(Arc::new(store.clone()), config.clone());
    let layout = plfs_format::layout::Layout { streams: Some(3), ..Default::default() };
    plfs.set_directory_layout(Path::new("/m/d"), Some(&layout)).unwrap();
    let other = Plfs::new(Arc::new(memory.clone()), config);
    store.before(".plfs-layout", Op::Rename, move || {
        open(&other, Path::new("/m/d/f")).close().unwrap();
    });
    assert!(plfs.rmdir(Path::new("/m/d")).is_err());
    assert_eq!(plfs.own_layout(Path::new("/m/d")).unwrap(), Some(layout));
}

const CHILD: &str = "STRANGER2_CHILD";

/// S27: who ended the tenancy of a process that was killed looked at its mark, removed it with its
/// page, and then renamed what had that name: by then the mark of the next process of the node, who
/// has taken the set over as the sentence says, lives, and lost what it wrote: ESTALE, without a
/// person's word.
#[test]
fn who_comes_after_a_killed_writer_is_not_fenced_by_who_ends_it() {
    if let Ok(words) = std::env::var(CHILD) {
        let (path, shm) = words.split_once(' ').unwrap();
        let config = Config { shared_memory: Some(shm.into()), ..Config::shared() };
        let file = open(&Plfs::posix(config), Path::new(path));
        file.write_at(b"dead", 0).unwrap();
        file.commit().unwrap();
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)
            .unwrap();
    }
    let dir = Scratch::new();
    let path = dir.0.join("f");
    let killed = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "who_comes_after_a_killed_writer_is_not_fenced_by_who_ends_it"])
        .env(CHILD, format!("{} {}", path.display(), dir.0.join("shm").display()))
        .output()
        .unwrap();
    assert!(!killed.status.success());
    let store = FaultStore::new(Arc::new(plfs::store::PosixStore::new()));
    let ender = Plfs::new(Arc::new(store.clone()), dir.config());
    let (tell, told) = std::sync::mpsc::channel();
    let (config, name) = (dir.config(), path.clone());
    let come = move || {
        let file = open(&Plfs::posix(config), &name);
        file.write_at(b"live", 4).unwrap();
        tell.send(file).unwrap();
    };
    store.before(".open", Op::Rename, come.clone());
    let _ = ender.compact(&path, |_| std::ops::ControlFlow::Continue(()));
    let file = told.try_recv().unwrap_or_else(|_| {
        // Nothing was renamed.
        come();
        told.recv().unwrap()
    });
    file.commit().expect("a process that lives, on the same host, was declared dead");
}

/// S27: "one that opens any file for writing there ends what is left of killed jobs". It looked at
/// the first 8 pages of the directory, which on tmpfs are the newest: beside a process that has 8
/// files open that it opened later, the pages and marks of the dead stayed for ever.
#[test]
fn what_a_killed_job_left_goes_beside_many_open_files() {
    if let Ok(words) = std::env::var(CHILD) {
        let (path, shm) = words.split_once(' ').unwrap();
        let config = Config { shared_memory: Some(shm.into()), ..Config::shared() };
        let file = open(&Plfs::posix(config), Path::new(path));
        file.write_at(b"dead", 0).unwrap();
        file.commit().unwrap();
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)
            .unwrap();
    }
    let dir = Scratch::new();
    let pages = || -> Vec<std::ffi::OsString> {
        std::fs::read_dir(dir.0.join("shm")).unwrap().map(|at| at.unwrap().file_name()).collect()
    };
    let lives = Plfs::posix(dir.config());
    let file = |name: &str| {
        let file = open(&lives, &dir.0.join(name));
        file.write_at(b"live", 0).unwrap();
        file
    };
    let _first = file("first");
    let before = pages();
    let killed = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "what_a_killed_job_left_goes_beside_many_open_files"])
        .env(CHILD, format!("{} {}", dir.0.join("f").display(), dir.0.join("shm").display()))
        .output()
        .unwrap();
    assert!(!killed.status.success());
    let is_page = |page: &std::ffi::OsString| !page.to_string_lossy().contains("turn");
    let dead: Vec<_> =
        pages().into_iter().filter(|page| is_page(page) && !before.contains(page)).collect();
    assert!(!dead.is_empty());
    let _more: Vec<File> = (0..8).map(|i| file(&format!("more{i}"))).collect();
    for i in 0..20 {
        let next = Plfs::posix(dir.config());
        open(&next, &dir.0.join(format!("next{i}"))).close().unwrap();
    }
    let left: Vec<_> = pages().into_iter().filter(|page| dead.contains(page)).collect();
    assert!(left.is_empty(), "there after 20 processes: {left:?}");
}

/// Who may write a container's directory puts pipes where logs are looked for: whoever checked the
/// file, or opened it to write or read, waited for ever.
#[test]
fn a_pipe_in_a_container_makes_nobody_wait() {
    let dir = Scratch::new();
    let (plfs, path) = (Plfs::posix(dir.config()), dir.0.join("f"));
    let file = open(&plfs, &path);
    file.write_at(&[1; 5000], 0).unwrap();
    file.close().unwrap();
    let (container, _) = plfs.container(&path).unwrap().unwrap();
    let planted = container.path(&name::index_log(0x0bad_cafe));
    std::fs::create_dir(planted.parent().unwrap()).unwrap();
    for pipe in [planted, container.path(name::FLAT), container.path(name::CLOCK)] {
        let _ = std::fs::remove_file(&pipe);
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
    }
    let (done, waits) = std::sync::mpsc::channel();
    let config = dir.config();
    std::thread::spawn(move || {
        let plfs = Plfs::posix(config);
        let report = plfs::check_name(plfs.store(), &path, &[]);
        let mut byte = [0];
        let read = plfs.open(&path, OpenOptions::read()).map(
            |file| matches!(file, Opened::Logical(file) if file.read_at(&mut byte, 0).is_ok()),
        );
        let written = plfs.open(&path, OpenOptions::create()).map(|file| match file {
            Opened::Logical(file) => {
                file.write_at(&[2; 5000], 0).and_then(|_| file.close()).is_ok()
            }
            Opened::Plain(_) => false,
        });
        done.send((report.health(), read, written)).unwrap();
    });
    let (health, ..) = waits.recv_timeout(std::time::Duration::from_secs(20)).expect("it waits");
    assert_ne!(health, plfs::Health::Healthy);
}

/// A record of 80 bytes stands for up to 65,536 strided runs. They were made when the record was
/// decoded: each block of 1.4 KiB took a reader 394 MB, a log of 14 KiB ended it, and `check` took
/// half a second for each.
#[test]
fn a_few_records_do_not_take_all_memory() {
    let (dir, memory, path) = (Scratch::new(), MemStore::new(), Path::new("/f"));
    let plfs = Plfs::new(Arc::new(memory.clone()), dir.config());
    let file = open(&plfs, path);
    file.write_at(&[b'o'; 9_000], 1 << 40).unwrap();
    file.sync().unwrap();
    let block = |i: u64| nests(1 << 16, (0..16).map(move |j| (1 << 40) + 16 * i + j));
    let bytes = append(&memory, &file, &(0..100).map(block).collect::<Vec<_>>());
    assert!(bytes < 200_000);
    let begun = std::time::Instant::now();
    let reader = alone(memory.elsewhere());
    let read = open_to_read(&reader, path).read_at(&mut [0], 1 << 40);
    assert_eq!(read.unwrap_err().errno(), Errno::NOMEM);
    let container = file.container().unwrap();
    assert_eq!(plfs::records(container).unwrap_err().errno(), Errno::NOMEM);
    let report = plfs::check(container);
    assert_eq!(report.health(), Health::Corrupt, "the data is not there: {:?}", report.findings);
    assert_eq!(reader.stat(path, Links::Stay).unwrap().stat.len, (1 << 40) + 9_000);
    // Four blocks of 2^20 runs are what the default allows, and were read to the end.
    assert!(begun.elapsed() < std::time::Duration::from_secs(20), "{:?}", begun.elapsed());
}
