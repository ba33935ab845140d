//! What a stranger to the code found in data that may be lost (docs/decisions/0011): readers of
//! other machines, and blocks that lie.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use plfs::store::{Open, Store};
use plfs::{Config, File, OpenOptions, Opened, Plfs};
use plfs_format::index_log::{Append, Record, Repeat, RunRecord, align_up, encode_block};
use plfs_format::name::{self, SegmentRef};
use plfs_testkit::{MemStore, thread_cpu_time};

use crate::scratch::{Scratch, open};

fn elsewhere(memory: &MemStore) -> Plfs {
    Plfs::new(Arc::new(memory.elsewhere()), Config { shared_memory: None, ..Config::shared() })
}

fn open_to_read(plfs: &Plfs, path: &Path) -> File {
    match plfs.open(path, OpenOptions::read()).unwrap() {
        Opened::Logical(file) => file,
        Opened::Plain(_) => panic!("{} is plain", path.display()),
    }
}

/// S6, S14. A reader on another machine knew a block that lay over nothing. Its data was synced
/// then, and overwritten without a sync, and the power of the writer's machine was cut. Whoever
/// came then read what was synced; the reader that had been there believed the newer block, because
/// what it had known in doubt did not count as something older, and gave zeros.
#[test]
fn what_was_synced_after_a_reader_came_is_not_hidden_by_lost_data() {
    let (dir, memory, path) = (Scratch::new(), MemStore::new(), Path::new("/f"));
    let plfs = Plfs::new(Arc::new(memory.clone()), dir.config());
    let file = open(&plfs, path);
    file.write_at(&[b'o'; 9_000], 0).unwrap();
    file.commit().unwrap();
    let (reader, mut bytes) = (open_to_read(&elsewhere(&memory), path), [0; 9_000]);
    assert_eq!(reader.read_at(&mut bytes, 0).unwrap(), 9_000);
    assert_eq!(bytes, [b'o'; 9_000]);
    file.sync().unwrap();
    file.write_at(&[b'n'; 9_000], 0).unwrap();
    file.commit().unwrap();
    let new = file.extents(0, 1).unwrap()[0].clone();
    let log = memory.open(&new.data_log, Open::READ_WRITE).unwrap();
    log.write_at(&[0; 9_000], new.physical).unwrap();
    let other = open_to_read(&elsewhere(&memory), path);
    assert_eq!(other.read_at(&mut bytes, 0).unwrap(), 9_000);
    assert_eq!(bytes[0] as char, 'o', "who comes now");
    reader.refresh().unwrap();
    assert_eq!(reader.read_at(&mut bytes, 0).unwrap(), 9_000);
    assert_eq!(bytes[0] as char, 'o', "who was there");
}

fn append(memory: &MemStore, file: &File, set: u32, segments: &[SegmentRef], records: &[Record]) {
    let path = file.container().unwrap().path(&name::index_log(set));
    let log = memory.open(&path, Open::READ_WRITE).unwrap();
    let offset = align_up(log.stat().unwrap().len);
    let at = Append { offset, stamp: u64::MAX / 2, durable: 0, is_data_durable: false };
    let block = encode_block(file.container().unwrap().log_id(set), at, segments, records).unwrap();
    log.write_at(&block, offset).unwrap();
}

fn set_of(file: &File) -> u32 {
    file.container()
        .unwrap()
        .list()
        .unwrap()
        .into_iter()
        .find_map(|name| if let name::Name::LogSet(set) = name { Some(set) } else { None })
        .unwrap()
}

/// A block in doubt says that its data lies in a log set that never was there. A reader took that
/// for a log set that was removed while it read, and began anew for ever.
#[test]
fn a_segment_of_a_set_that_is_not_there_hangs_nobody() {
    let (dir, memory, path) = (Scratch::new(), MemStore::new(), Path::new("/f"));
    let plfs = Plfs::new(Arc::new(memory.clone()), dir.config());
    let file = open(&plfs, path);
    file.write_at(&[b'o'; 9_000], 0).unwrap();
    file.sync().unwrap();
    let set = set_of(&file);
    let at = SegmentRef { set: !set, stream: 0, segment: 0, backend: 0 };
    let records = [
        Record::Sums { segment: 0, boot: 5, physical: 0, length: 100, unit: 100, sums: vec![1] },
        Record::Run(RunRecord {
            logical: 0,
            length: 100,
            stride: 0,
            count: 1,
            segment: 0,
            physical: 0,
            writer: 0,
            stamp: u64::MAX / 2,
            repeat: [Repeat::ONCE; 2],
        }),
    ];
    append(&memory, &file, set, &[at], &records);
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let reader = open_to_read(&elsewhere(&memory), path);
        let mut bytes = [0; 100];
        let _ = tell.send(reader.read_at(&mut bytes, 0).map(|_| bytes[0]));
    });
    let read = told.recv_timeout(Duration::from_secs(10)).expect("it hangs");
    assert_eq!(read.ok(), Some(b'o'));
}

/// A reader of another machine that follows a writer who never syncs: each look weighed all that
/// was known against what was new, so that the looks of a long job took the square of its length.
#[test]
fn what_a_look_costs_does_not_grow_with_what_is_known() {
    const LOOKS: u64 = 4_000;
    let (dir, memory, path) = (Scratch::new(), MemStore::new(), Path::new("/f"));
    let plfs = Plfs::new(Arc::new(memory.clone()), dir.config());
    let file = open(&plfs, path);
    let reader = open_to_read(&elsewhere(&memory), path);
    let mut bytes = [0; 10];
    let mut look = |i: u64| {
        // Not one behind the other, or they would be one record.
        file.write_at(&[i as u8; 10], i * 7_919 % LOOKS * 20).unwrap();
        file.commit().unwrap();
        let begun = thread_cpu_time();
        reader.refresh().unwrap();
        assert_eq!(reader.read_at(&mut bytes, i * 7_919 % LOOKS * 20).unwrap(), 10);
        assert_eq!(bytes, [i as u8; 10]);
        thread_cpu_time() - begun
    };
    let costs: Vec<Duration> = (0..LOOKS).map(&mut look).collect();
    let median = |costs: &[Duration]| {
        let mut costs = costs.to_vec();
        costs.sort_unstable();
        costs[costs.len() / 2]
    };
    let (first, last) = (median(&costs[..400]), median(&costs[LOOKS as usize - 400..]));
    assert!(last < 5 * first, "a look took {first:?} at first and {last:?} in the end");
}

/// A pattern of 2^24 pieces of which a power cut took a part cost 33 s and 2.2 GB: each piece was
/// looked at, cut and noted by itself. What is lost is noted for each part that has a sum.
#[test]
fn what_is_lost_of_a_pattern_costs_what_its_parts_do() {
    const PIECES: u64 = 1 << 17;
    for stride in [3i64, -3] {
        let (dir, memory, path) = (Scratch::new(), MemStore::new(), Path::new("/f"));
        let plfs = Plfs::new(Arc::new(memory.clone()), dir.config());
        let file = open(&plfs, path);
        file.write_at(&vec![b'o'; (PIECES * 24) as usize], 0).unwrap();
        file.sync().unwrap();
        let place = |i: u64| if stride > 0 { i * 24 } else { (PIECES - 1 - i) * 24 };
        for i in 0..PIECES {
            file.write_at(&[b'a' + (i % 20) as u8; 8], place(i) + 5).unwrap();
        }
        file.commit().unwrap();
        let first = file.extents(place(0) + 5, place(0) + 6).unwrap()[0].clone();
        let log = memory.open(&first.data_log, Open::READ_WRITE).unwrap();
        // Each second unit of 64 KiB: 8,192 pieces.
        for unit in (0..PIECES * 8 / 65_536).step_by(2) {
            log.write_at(&[0; 65_536], first.physical + unit * 65_536).unwrap();
        }
        let reader = elsewhere(&memory);
        let read = open_to_read(&reader, path);
        let mut bytes = vec![0; (PIECES * 24) as usize];
        assert_eq!(read.read_at(&mut bytes, 0).unwrap(), bytes.len());
        let is_new = |i: u64| bytes[(place(i) + 5) as usize] == b'a' + (i % 20) as u8;
        let is_old = |i: u64| bytes[(place(i) + 5) as usize] == b'o';
        assert!((0..PIECES).all(|i| is_new(i) || is_old(i)));
        let lost = (0..PIECES).filter(|i| is_old(*i)).count() as u64;
        // The units of sums need not begin where the pattern does.
        assert!((PIECES / 2..PIECES * 3 / 4).contains(&lost), "{lost} of {PIECES} are lost");
        assert!((0..PIECES).any(is_new), "nothing is left");
        let store: Arc<dyn Store> = Arc::new(memory.elsewhere());
        let report = plfs::check_name(&store, path, &[]);
        let notes = report.findings.iter().filter(|found| found.what.contains("were lost")).count();
        assert!((1..100).contains(&notes), "{notes} notes: {:?}", report.findings.first());
    }
}
