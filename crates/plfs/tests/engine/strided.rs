//! Strided calls: many pieces of one length in one call, against the same bytes written piece by
//! piece.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use plfs::index::Run;
use plfs::store::{Errno, PosixStore, Store};
use plfs::{Access, Config, File, OpenOptions, Opened, Plfs, RecordKind, records};
use plfs_testkit::{FaultStore, MemStore, Op, Rng, seeds};

fn open(plfs: &Plfs, path: &Path) -> File {
    match plfs.open(path, OpenOptions::create()).unwrap() {
        Opened::Logical(file) => file,
        Opened::Plain(_) => panic!("{} is plain", path.display()),
    }
}

fn memory(config: Config) -> (MemStore, Config, PathBuf) {
    let memory = MemStore::new();
    memory.mkdir(Path::new("/m"), 0o755).unwrap();
    (memory, Config { shared_memory: None, ..config }, "/m/f".into())
}

fn runs(file: &File) -> Vec<Run> {
    file.commit().unwrap();
    let all = records(file.container().unwrap()).unwrap().records;
    all.into_iter()
        .filter_map(|record| if let RecordKind::Run(run) = record.said { Some(run) } else { None })
        .collect()
}

/// Offset of piece `i`.
fn at(offset: u64, stride: i64, i: usize) -> usize {
    (offset as i64 + stride * i as i64) as usize
}

#[test]
fn strided_calls_agree_with_bytes() {
    for seed in seeds(40) {
        let mut rng = Rng::new(seed);
        let (store, config, path) = memory(Config {
            streams: 1 + rng.below(2) as u16,
            buffer_bytes: rng.pick(&[8 << 10, 64 << 20]),
            segment_bytes: rng.pick(&[64 << 10, 1 << 40]),
            ..Config::shared()
        });
        let process = || Plfs::new(Arc::new(store.clone()), config.clone());
        let (mut writer, mut truth) = (open(&process(), &path), Vec::new());
        for step in 0..60u8 {
            let length =
                if rng.one_in(8) { 1 + rng.below(3000) } else { 1 + rng.below(60) } as usize;
            let count = 1 + rng.below(40) as usize;
            let gap = rng.pick(&[0, 1, 7, 4096]) + length as i64;
            let reach = gap * count as i64;
            let (stride, offset) = if rng.one_in(3) {
                (-gap, reach as u64 + rng.below(2000))
            } else {
                (gap, rng.below(4000))
            };
            let bytes: Vec<u8> =
                (0..length * count).map(|i| (i as u8).wrapping_mul(7) ^ step | 1).collect();
            // The second call goes on with the pattern of the first.
            let half = rng.below(count as u64 + 1) as usize;
            let next = at(offset, stride, half) as u64;
            assert_eq!(
                writer.write_strided(&bytes[..half * length], length, stride, offset).unwrap(),
                half * length
            );
            assert_eq!(
                writer.write_strided(&bytes[half * length..], length, stride, next).unwrap(),
                (count - half) * length
            );
            for (i, piece) in bytes.chunks(length).enumerate() {
                let at = at(offset, stride, i);
                truth.resize(truth.len().max(at + length), 0);
                truth[at..at + length].copy_from_slice(piece);
            }
            if rng.one_in(5) {
                writer.close().unwrap();
                writer = open(&process(), &path);
            }
            // Others' shapes: what a call reads stops at the first piece that the file does not
            // fill.
            let (length, count) = (1 + rng.below(80) as usize, 1 + rng.below(50) as usize);
            let stride = rng.pick(&[1, -1]) * (length as i64 + rng.below(200) as i64);
            let offset =
                if stride < 0 { stride.unsigned_abs() * count as u64 } else { 0 } + rng.below(6000);
            let mut expected = Vec::new();
            for i in 0..count {
                let from = at(offset, stride, i).min(truth.len());
                let to = (at(offset, stride, i) + length).min(truth.len());
                expected.extend_from_slice(&truth[from..to]);
                if to - from < length {
                    break;
                }
            }
            let mut buf = vec![0xee; length * count];
            let n = writer.read_strided(&mut buf, length, stride, offset).unwrap();
            assert_eq!(buf[..n], expected, "seed {seed} step {step}");
        }
        writer.close().unwrap();
        let mut back = vec![0xee; truth.len() + 1];
        assert_eq!(open(&process(), &path).read_at(&mut back, 0).unwrap(), truth.len());
        assert_eq!(back[..truth.len()], truth, "seed {seed}");
    }
}

#[test]
fn a_million_pieces_are_one_record() {
    let (store, config, path) = memory(Config::shared());
    let plfs = Plfs::new(Arc::new(store), config);
    for stride in [24, -24] {
        let file = open(&plfs, &path);
        file.set_len(0).unwrap();
        let bytes: Vec<u8> = (0..8_000_000u32).map(|i| (i >> 3) as u8).collect();
        let offset = |piece: i64| {
            if stride > 0 { (piece * stride) as u64 } else { (48_000_000 + piece * stride) as u64 }
        };
        assert_eq!(file.write_strided(&bytes, 8, stride, offset(0)).unwrap(), bytes.len());
        let one = Run {
            logical: offset(0),
            length: 8,
            stride,
            count: 1_000_000,
            segment: 0,
            physical: 0,
        };
        assert_eq!(runs(&file), [one]);
        // Calls that go on with the pattern make it longer, in whatever steps, though each is
        // larger than a region or the buffer.
        for part in [&bytes[..8], &bytes[8..80], &bytes[80..800_000], &bytes[800_000..]] {
            let done = 1_000_000 + (part.as_ptr() as usize - bytes.as_ptr() as usize) as i64 / 8;
            assert_eq!(file.write_strided(part, 8, stride, offset(done)).unwrap(), part.len());
        }
        let two = Run { logical: offset(1_000_000), physical: 8_000_000, ..one };
        assert_eq!(runs(&file), [one, two], "a commit ended the first");
        let mut back = vec![0; bytes.len()];
        assert_eq!(file.read_strided(&mut back, 8, stride, offset(0)).unwrap(), bytes.len());
        assert!(back == bytes);
        file.close().unwrap();
        plfs.unlink(&path).unwrap();
    }
}

/// Two processes share a stream, so that regions of one lie between those of the other: a pattern
/// that goes on in another region is another record, and nothing else makes one.
#[test]
fn a_pattern_splits_where_a_region_ends() {
    let dir = PathBuf::from(format!("/dev/shm/plfs-strided-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let config = Config { streams: 1, shared_memory: Some(dir.clone()), ..Config::shared() };
    let process = || Plfs::new(Arc::new(PosixStore::new()), config.clone());
    let (one, two) = (open(&process(), &dir.join("f")), open(&process(), &dir.join("f")));
    // A piece of both each 16 bytes, 500 pieces a call: 16 calls fill the first region of 64 KiB.
    const CALLS: u64 = 60;
    for call in 0..CALLS {
        for (file, phase) in [(&one, 0), (&two, 8)] {
            assert_eq!(
                file.write_strided(&[call as u8 + 1; 4000], 8, 16, call * 8000 + phase).unwrap(),
                4000
            );
        }
    }
    let (_, all) = (runs(&one), runs(&two));
    assert_eq!(all.iter().map(Run::bytes).sum::<u64>(), CALLS * 8000);
    let mut places: Vec<(u64, u64)> =
        all.iter().map(|run| (run.physical, run.physical + run.bytes())).collect();
    places.sort_unstable();
    assert!(
        places.windows(2).all(|pair| pair[0].1 < pair[1].0),
        "neighbours in the log would be one record: {places:?}"
    );
    assert_eq!(all.len(), 6, "regions of 64, 128 and 256 KiB for each: {all:?}");
    let mut back = vec![0; 8000 * CALLS as usize];
    one.refresh().unwrap();
    assert_eq!(one.read_at(&mut back, 0).unwrap(), back.len());
    assert!(back.iter().enumerate().all(|(i, byte)| usize::from(*byte) == i / 8000 + 1));
    drop((one, two));
    std::fs::remove_dir_all(&dir).unwrap();
}

/// The storage is full behind the first pieces and a part of one: those are written, as in a
/// contiguous write, and the next call says why no more were.
#[test]
fn what_a_full_storage_takes_is_written() {
    for (room, stride) in [(20_050, 300), (20_050, -300), (50, 300), (100, 300), (25_000, 300)] {
        // Buffers of 16 KiB: what is longer goes to the store at once.
        let (store, config, path) = memory(Config { buffer_bytes: 32 << 10, ..Config::shared() });
        let faults = FaultStore::new(Arc::new(store.clone()));
        let plfs = Plfs::new(Arc::new(faults.clone()), config.clone());
        let file = open(&plfs, &path);
        file.write_at(b"x", 0).unwrap();
        file.commit().unwrap();
        faults.full_after(room);
        let (bytes, offset): (Vec<u8>, u64) =
            ((0..40_000u32).map(|i| (i / 100 + 1) as u8).collect(), 200_000);
        assert_eq!(file.write_strided(&bytes, 100, stride, offset).unwrap(), room as usize);
        let (whole, rest) = (room as usize / 100, room as usize % 100);
        let next = at(offset, stride, whole) as u64;
        assert_eq!(
            file.write_strided(&bytes, 100, stride, next).unwrap_err().errno(),
            Errno::NOSPC
        );
        faults.reset();
        file.close().unwrap();
        let file = open(&Plfs::new(Arc::new(store), config), &path);
        let mut back = vec![0; whole * 100];
        assert_eq!(file.read_strided(&mut back, 100, stride, offset).unwrap(), whole * 100);
        assert_eq!(back, bytes[..whole * 100]);
        let mut part = vec![0; 100];
        file.read_at(&mut part, next).unwrap();
        assert_eq!(part[..rest], bytes[whole * 100..][..rest]);
        assert!(part[rest..].iter().all(|byte| *byte == 0));
        let ends = (0..whole)
            .map(|i| at(offset, stride, i) + 100)
            .chain((rest > 0).then_some(next as usize + rest));
        assert_eq!(file.len().unwrap(), ends.max().unwrap() as u64, "{room} {stride}");
    }
}

/// A piece cannot be read: those before it are given, and the call that begins there fails.
#[test]
fn what_can_be_read_before_a_failure_is_given() {
    let (store, config, path) = memory(Config::shared());
    let faults = FaultStore::new(Arc::new(store.clone()));
    let mut logs = Vec::new();
    let files = [0, 1].map(|i| {
        let file = open(&Plfs::new(Arc::new(store.clone()), config.clone()), &path);
        file.write_at(&[i + 1; 100], u64::from(i) * 300).unwrap();
        file.commit().unwrap();
        logs.push(file.extents(u64::from(i) * 300, 400).unwrap()[0].data_log.clone());
        file
    });
    faults.fail_matching(logs[1].to_str().unwrap(), Op::ReadAt, Errno::IO);
    let reader = open(&Plfs::new(Arc::new(faults), config), &path);
    let mut buf = [0; 200];
    assert_eq!(reader.read_strided(&mut buf, 100, 300, 0).unwrap(), 100);
    assert_eq!(buf[..100], [1; 100]);
    assert_eq!(reader.read_strided(&mut buf, 100, 300, 300).unwrap_err().errno(), Errno::IO);
    drop(files);
}

#[test]
fn arguments_are_checked_before_anything_is_written() {
    let (store, config, path) = memory(Config::shared());
    let plfs = Plfs::new(Arc::new(store), config);
    let file = open(&plfs, &path);
    const MAX: u64 = i64::MAX as u64;
    let call = |n: usize, length, stride, offset| {
        let wrote =
            file.write_strided(&vec![1; n], length, stride, offset).map_err(|error| error.errno());
        let read = file
            .read_strided(&mut vec![1; n], length, stride, offset)
            .map_err(|error| error.errno());
        assert!(wrote.is_ok() == read.is_ok(), "{wrote:?} {read:?}");
        wrote
    };
    for (length, stride, offset, errno) in [
        (0, 20, 0, Errno::INVAL),
        (7, 20, 0, Errno::INVAL),
        (10, 9, 0, Errno::INVAL),
        (10, 0, 0, Errno::INVAL),
        (10, -9, 500, Errno::INVAL),
        (10, -20, 19, Errno::INVAL),
        (10, i64::MIN, MAX, Errno::INVAL),
        (10, -20, MAX - 9, Errno::FBIG),
        (10, 10, MAX - 19, Errno::FBIG),
        (10, 20, MAX - 29, Errno::FBIG),
        (10, i64::MAX, 0, Errno::FBIG),
        (10, 20, u64::MAX, Errno::FBIG),
    ] {
        assert_eq!(call(20, length, stride, offset), Err(errno), "{length} {stride} {offset}");
    }
    assert_eq!(file.len().unwrap(), 0);
    assert_eq!(call(0, 0, 0, 0), Ok(0));
    assert_eq!(call(10, 10, 3, 5), Ok(10), "one piece has no stride");
    assert_eq!(call(20, 10, 20, MAX - 30), Ok(20), "to the last byte");
    assert_eq!(call(20, 10, -20, 20), Ok(20), "to the first byte");
    assert_eq!(file.len().unwrap(), MAX);
    for access in [Access { read: true, write: false }, Access { read: false, write: true }] {
        let Opened::Logical(half) =
            plfs.open(&path, OpenOptions { access, ..OpenOptions::read() }).unwrap()
        else {
            panic!("it is plain")
        };
        let denied = if access.read {
            half.write_strided(&[1; 4], 2, 5, 0)
        } else {
            half.read_strided(&mut [0; 4], 2, 5, 0)
        };
        assert_eq!(denied.unwrap_err().errno(), Errno::BADF);
    }
}
