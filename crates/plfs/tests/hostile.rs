//! Containers whose bytes lie: random and altered superblocks, index logs and flat indexes, with
//! right checksums too. Whatever they say, PLFS does not panic, reads nothing but the container's
//! own files, and takes memory in proportion to what is there.

mod common {
    pub mod counting;
}

use std::path::{Path, PathBuf};
use std::sync::Arc;

use plfs::store::{Errno, Kind, Links, Open, Size, Store, write_full};
use plfs::{Config, Error, OpenOptions, Opened, Plfs, Severity, records, repair};
use plfs_testkit::{FaultStore, MemStore, Op, Rng, explored, seeds};

use common::counting;

/// What one look at a hostile container may take. Everything in it is a few KB; a read of 100,000
/// bytes and its read-ahead are all that is asked for.
const MEMORY_MAX: usize = 32 << 20;

const NAME: &str = "/m/f";
const SECRET: &str = "/m/secret";

struct Fixture {
    memory: MemStore,
    faults: FaultStore,
    config: Config,
    container: PathBuf,
}

fn open(plfs: &Plfs, path: &str) -> plfs::File {
    match plfs.open(Path::new(path), OpenOptions::create()).unwrap() {
        Opened::Logical(file) => file,
        Opened::Plain(_) => panic!("{path} is plain"),
    }
}

impl Fixture {
    /// A file of two log sets with patterns, overwrites and truncates, a flat index of most of it,
    /// and beside it one that is nobody's business.
    fn new() -> Fixture {
        let memory = MemStore::new();
        memory.mkdir(Path::new("/m"), 0o755).unwrap();
        let faults = FaultStore::new(Arc::new(memory.clone()));
        let config = Config { shared_memory: None, ..Config::shared() };
        let plfs = |_| Plfs::new(Arc::new(memory.clone()), config.clone());
        let (one, two) = (plfs(1), plfs(2));
        let secret = open(&one, SECRET);
        secret.write_at(&[b'S'; 5000], 0).unwrap();
        secret.close().unwrap();
        let (a, b) = (open(&one, NAME), open(&two, NAME));
        for i in 0..40 {
            a.write_at(&[b'a'; 20], i * 50).unwrap();
            b.write_at(&[b'b'; 30], i * i * 7 % 2000).unwrap();
        }
        a.commit().unwrap();
        b.set_len(1500).unwrap();
        one.flatten(Path::new(NAME)).unwrap();
        for i in 0..20 {
            a.write_at(&[b'c'; 10], 3000 - i * 17).unwrap();
        }
        a.close().unwrap();
        b.close().unwrap();
        let container = one.container(Path::new(NAME)).unwrap().unwrap().0.dir.clone();
        Fixture { memory, faults, config, container: container.to_path_buf() }
    }

    fn find(&self, end: &str) -> Vec<PathBuf> {
        let (mut found, mut todo) = (Vec::new(), vec![self.container.clone()]);
        while let Some(dir) = todo.pop() {
            for entry in self.memory.list(&dir).unwrap() {
                let path = dir.join(entry.name);
                match self.memory.stat(&path, Links::Stay).unwrap().kind {
                    Kind::Dir => todo.push(path),
                    _ if path.to_string_lossy().ends_with(end) => found.push(path),
                    _ => {}
                }
            }
        }
        found.sort();
        found
    }

    fn bytes(&self, path: &Path) -> Vec<u8> {
        let file = self.memory.open(path, Open::READ).unwrap();
        let mut bytes = vec![0; file.stat().unwrap().len as usize];
        file.read_at(&mut bytes, 0).unwrap();
        bytes
    }

    fn put(&self, path: &Path, bytes: &[u8]) {
        let file = self.memory.open(path, Open::READ_WRITE).unwrap();
        file.set_len(0).unwrap();
        write_full(file.as_ref(), bytes, 0).unwrap();
    }

    /// Does everything that reads a container. No call may panic, read what is not the container's,
    /// ask for much, or show a byte of another file.
    fn look(&self, story: &dyn std::fmt::Display) {
        self.faults.reset();
        let store: Arc<dyn Store> = Arc::new(self.faults.clone());
        let plfs = Plfs::new(store.clone(), self.config.clone());
        let memory = counting::watch();
        clear(story, plfs.stat(Path::new(NAME), Links::Follow));
        if let Some(Opened::Logical(file)) =
            clear(story, plfs.open(Path::new(NAME), OpenOptions::read()))
        {
            let mut bytes = vec![0; 100_000];
            for offset in [0, 700, 2990, 1 << 40, i64::MAX as u64 - 50_000] {
                let reads = [
                    file.read_at(&mut bytes, offset),
                    file.read_strided(&mut bytes[..1000], 10, 25, offset),
                ];
                if reads
                    .into_iter()
                    .filter_map(|read| clear(story, read))
                    .max()
                    .is_some_and(|n| bytes[..n].contains(&b'S'))
                {
                    panic!("{story}: a byte of another file");
                }
            }
            clear(story, file.len());
            clear(story, file.next_data(10));
            clear(story, file.next_hole(10));
            clear(story, file.extents(0, 3000));
            clear(story, records(file.container().unwrap()));
            clear(story, file.close());
        }
        let report = plfs::check_name(&store, Path::new(NAME), &[]);
        let _ = report.health();
        let took = memory.most();
        assert!(took < MEMORY_MAX, "{story}: {took} bytes of memory");
        for call in
            self.faults.log().iter().filter(|call| call.op == Op::ReadAt || call.op == Op::Map)
        {
            // By its own name or the superblock's, or below a container of the same name on
            // whatever backend.
            let own = call.path == Path::new(NAME)
                || call.path.starts_with("/m/.plfs/backends")
                || call
                    .path
                    .to_string_lossy()
                    .contains(&*self.container.file_name().unwrap().to_string_lossy());
            assert!(own, "{story}: {call}");
            assert!(call.len <= 16 << 20, "{story}: {call}");
        }
    }
}

/// What a call gave, if it worked. An error must be about the bytes, and name a file: never what
/// the storage said to a path, a length or an offset that they made up.
fn clear<T>(story: &dyn std::fmt::Display, result: plfs::Result<T>) -> Option<T> {
    let error = match result {
        Ok(value) => return Some(value),
        Err(error) => error,
    };
    let inner = if let Error::Unreachable { why, .. } = &error { why } else { &error };
    let about_bytes = matches!(
        inner,
        Error::Corrupt { .. }
            | Error::MissingData { .. }
            | Error::NotAContainer { .. }
            | Error::UnknownFormat { .. }
            | Error::NeedsNewer { .. }
            | Error::MissingContainer { .. }
            | Error::UnknownBackend { .. }
    );
    assert!(about_bytes && error.to_string().contains("/m/"), "{story}: {error:?}");
    None
}

fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc: u32, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 }
        })
    })
}

fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

fn get_u32(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize
}

/// Changes a few places of `bytes[range]`: to random bytes, to numbers that overflow, to others'
/// bytes.
fn alter(rng: &mut Rng, bytes: &mut [u8], range: std::ops::Range<usize>) {
    for _ in 0..1 + rng.below(4) {
        let at = range.start + rng.below(range.len() as u64) as usize;
        let aligned = at & !7;
        match rng.below(6) {
            0 => bytes[at] ^= 1 << rng.below(8),
            1 => bytes[at] = rng.next_u64() as u8,
            2 if range.contains(&(aligned + 7)) && aligned >= range.start => {
                let extreme = rng.pick(&[
                    u64::MAX,
                    1 << 63,
                    i64::MAX as u64,
                    0,
                    1,
                    u64::from(u32::MAX),
                    (1 << 63) - 51,
                    1 << 40,
                ]);
                bytes[aligned..aligned + 8].copy_from_slice(&extreme.to_le_bytes());
            }
            3 if range.contains(&((at & !3) + 3)) && at & !3 >= range.start => {
                put_u32(bytes, at & !3, rng.pick(&[u32::MAX, 0x8000_0000, 65_535, 0, 1 << 24]))
            }
            4 => {
                let n = (range.end - at).min(1 + rng.below(40) as usize);
                rng.fill(&mut bytes[at..at + n]);
            }
            _ => {
                let (from, n) =
                    (range.start + rng.below(range.len() as u64) as usize, rng.below(60) as usize);
                let n = n.min(range.end - at).min(range.end - from);
                bytes.copy_within(from..from + n, at);
            }
        }
    }
}

/// Makes all checksums of an index log right, block after block as far as they can be found.
fn seal_index(bytes: &mut [u8]) {
    let mut at = 0;
    while at + 64 <= bytes.len() {
        let payload = get_u32(bytes, at + 12);
        if bytes[at..at + 4] == *b"PLIX" && at + 64 + payload <= bytes.len() {
            let sum = crc32c(&bytes[at + 64..at + 64 + payload]);
            put_u32(bytes, at + 8, sum);
            let sum = crc32c(&bytes[at + 8..at + 64]);
            put_u32(bytes, at + 4, sum);
            at += (64 + payload).next_multiple_of(64);
        } else {
            at += 64;
        }
    }
}

fn rounds() -> u64 {
    plfs_testkit::rounds("PLFS_HOSTILE_ROUNDS", 1000)
}

/// Superblocks altered anywhere, with checksums made right or not, cut, or random.
#[test]
fn hostile_superblocks() {
    let _alone = counting::alone();
    let fixture = Fixture::new();
    let original = fixture.bytes(Path::new(NAME));
    explored(rounds(), "hostile containers");
    for seed in seeds(rounds()) {
        let (mut rng, mut bytes) = (Rng::new(seed), original.clone());
        match rng.below(10) {
            0 => rng.fill(&mut bytes[72..3200]),
            1 => bytes.truncate(rng.below(4093) as usize),
            // The uuid stays, or it would be a name of something else.
            2..=5 => alter(&mut rng, &mut bytes, 112..400),
            6 => alter(&mut rng, &mut bytes, 3072..3200),
            _ => alter(&mut rng, &mut bytes, 64..3200),
        }
        if bytes.len() == 4093 && !rng.one_in(4) {
            let sum = crc32c(&bytes[76..3072]);
            put_u32(&mut bytes, 72, sum);
            let sum = crc32c(&bytes[3080..3200]);
            put_u32(&mut bytes, 3076, sum);
        }
        fixture.put(Path::new(NAME), &bytes);
        fixture.look(&format_args!("seed {seed}"));
    }
}

/// Index logs altered anywhere, with checksums made right or not, cut, or random.
#[test]
fn hostile_index_logs() {
    let _alone = counting::alone();
    let fixture = Fixture::new();
    fixture.memory.unlink(&fixture.find("/flat")[0]).unwrap();
    let logs: Vec<(PathBuf, Vec<u8>)> = fixture
        .find("/index")
        .into_iter()
        .map(|path| (path.clone(), fixture.bytes(&path)))
        .collect();
    explored(rounds(), "hostile containers");
    for seed in seeds(rounds()) {
        let mut rng = Rng::new(seed);
        let (path, original) = &logs[rng.below(logs.len() as u64) as usize];
        let mut bytes = original.clone();
        match rng.below(10) {
            0 => {
                let from = rng.below(bytes.len() as u64) as usize;
                rng.fill(&mut bytes[from..]);
            }
            1 => bytes.truncate(rng.below(original.len() as u64) as usize),
            // Headers.
            2 => alter(&mut rng, &mut bytes, 8..64),
            _ => {
                let all = 0..bytes.len();
                alter(&mut rng, &mut bytes, all);
            }
        }
        if !rng.one_in(4) {
            seal_index(&mut bytes);
        }
        fixture.put(path, &bytes);
        fixture.look(&format_args!("seed {seed}"));
        fixture.put(path, original);
    }
}

/// Two blocks of one log of which the second is not younger: nobody appends so, and which bytes won
/// would hang on who reads. The message names the log and the block.
#[test]
fn a_block_that_is_not_younger_than_the_one_before_is_refused() {
    let _alone = counting::alone();
    let fixture = Fixture::new();
    fixture.memory.unlink(&fixture.find("/flat")[0]).unwrap();
    let store: Arc<dyn Store> = Arc::new(fixture.memory.clone());
    let plfs = Plfs::new(store.clone(), fixture.config.clone());
    for (path, younger) in
        fixture.find("/index").into_iter().flat_map(|path| [(path.clone(), 0), (path, 1)])
    {
        let original = fixture.bytes(&path);
        let second = (64 + get_u32(&original, 12)).next_multiple_of(64);
        let mut bytes = original.clone();
        let stamp = u64::from_le_bytes(bytes[24..32].try_into().unwrap()) + younger;
        bytes[second + 24..second + 32].copy_from_slice(&stamp.to_le_bytes());
        // Their records are older than both.
        for block in [0, second] {
            let mut record = block + 64 + 16 * (get_u32(&bytes, block + 56) & 0xffff);
            while record < block + 64 + get_u32(&bytes, block + 12) {
                let stamp = [(1, 48), (2, 16)].into_iter().find(|(kind, _)| bytes[record] == *kind);
                stamp.iter().for_each(|(_, at)| bytes[record + at..record + at + 8].fill(0));
                record += 8 * usize::from(bytes[record + 1]);
            }
        }
        bytes.truncate((second + 64 + get_u32(&bytes, second + 12)).next_multiple_of(64));
        seal_index(&mut bytes);
        fixture.put(&path, &bytes);
        let Opened::Logical(file) = plfs.open(Path::new(NAME), OpenOptions::read()).unwrap() else {
            panic!("it is plain")
        };
        let refused =
            file.read_at(&mut [0; 10], 0).map_err(|error| (error.errno(), error.to_string()));
        let report = plfs::check_name(&store, Path::new(NAME), &[]);
        let corrupt = report.findings.iter().any(|finding| {
            finding.path == path
                && finding.at_bytes == second as u64
                && finding.severity == Severity::Corrupt
        });
        assert_eq!(
            (refused.is_err(), corrupt),
            (younger == 0, younger == 0),
            "{refused:?} {:?}",
            report.findings
        );
        if let Err((errno, text)) = refused {
            assert!(
                errno == Errno::IO
                    && text.contains("not younger")
                    && text.contains(&*path.to_string_lossy()),
                "{errno} {text}"
            );
        }
        file.close().unwrap();
        fixture.put(&path, &original);
    }
}

/// Flat indexes altered anywhere, with checksums made right or not, cut, or random.
#[test]
fn hostile_flat_indexes() {
    let _alone = counting::alone();
    let fixture = Fixture::new();
    let flat = fixture.find("/flat").remove(0);
    let original = fixture.bytes(&flat);
    explored(rounds(), "hostile containers");
    for seed in seeds(rounds()) {
        let (mut rng, mut bytes) = (Rng::new(seed), original.clone());
        match rng.below(10) {
            0 => {
                let from = 128 + rng.below(bytes.len() as u64 - 128) as usize;
                rng.fill(&mut bytes[from..]);
            }
            1 => bytes.truncate(rng.below(original.len() as u64) as usize),
            2 => alter(&mut rng, &mut bytes, 12..128),
            _ => {
                let all = 128..bytes.len();
                alter(&mut rng, &mut bytes, all);
            }
        }
        if !rng.one_in(4) {
            seal_flat(&mut bytes);
        }
        fixture.put(&flat, &bytes);
        fixture.look(&format_args!("seed {seed}"));
        fixture.put(&flat, &original);
    }
}

/// Who appends asks how long the file is, and goes on from what a flat index says there was: it
/// said 2^64 - 1 records, and the next one made the process panic.
#[test]
fn a_flat_index_of_any_number_of_records_is_no_panic() {
    let _alone = counting::alone();
    let fixture = Fixture::new();
    let flat = fixture.find("/flat").remove(0);
    let mut bytes = fixture.bytes(&flat);
    bytes[40..48].fill(0xff);
    seal_flat(&mut bytes);
    fixture.put(&flat, &bytes);
    let plfs = Plfs::new(Arc::new(fixture.memory.clone()), fixture.config.clone());
    for len in 0..3 {
        let file = open(&plfs, NAME);
        assert_eq!(file.append(b"x").unwrap(), (3010 + len, 1));
        file.close().unwrap();
    }
}

/// Makes the checksums of a flat index right, as far as its header says where they belong.
fn seal_flat(bytes: &mut [u8]) {
    if bytes.len() <= 128 {
        return;
    }
    let field = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let blocks = field(bytes, 104).min(bytes.len() as u64 - 128) as usize;
    let blocks_at = bytes.len() - blocks;
    let n = (get_u32(bytes, 88)).min((blocks_at - 128) / 16);
    for i in 0..n {
        let fence = blocks_at - 16 * (n - i);
        let start = |fence: usize| {
            if fence < blocks_at {
                get_u32(bytes, fence + 8).saturating_mul(8).min(blocks)
            } else {
                blocks
            }
        };
        let (from, to) = (start(fence), start(fence + 16));
        if from < to {
            let sum = crc32c(&bytes[blocks_at + from..blocks_at + to]);
            put_u32(bytes, fence + 12, sum);
        }
    }
    let sum = crc32c(&bytes[128..blocks_at]);
    put_u32(bytes, 12, sum);
    let sum = crc32c(&bytes[12..128]);
    put_u32(bytes, 8, sum);
}

/// Parts of an index as another process sends them, altered: merging, using and storing them gives
/// an error or an index, and reads by that index stay in the container.
#[test]
fn hostile_index_parts() {
    let _alone = counting::alone();
    let fixture = Fixture::new();
    let plfs = Plfs::new(Arc::new(fixture.memory.clone()), fixture.config.clone());
    let file = open(&plfs, NAME);
    let parts = [0, 1].map(|part| file.index_part(part, 2).unwrap().0);
    explored(rounds(), "hostile containers");
    for seed in seeds(rounds()) {
        let mut rng = Rng::new(seed);
        let mut hurt = parts.clone();
        let bytes = &mut hurt[rng.below(2) as usize];
        let all = if rng.one_in(2) { 16..128 } else { 16..bytes.len() };
        alter(&mut rng, bytes, all);
        seal_flat(bytes);
        let memory = counting::watch();
        let merged = file.index_merge(&[&hurt[0], &hurt[1]]);
        for index in hurt.into_iter().chain(merged.ok()) {
            let reader = open(&plfs, NAME);
            if reader.index_use(Arc::new(index)).is_ok() {
                let mut buf = [0; 3000];
                let n = reader.read_at(&mut buf, 0).unwrap_or(0);
                assert!(!buf[..n].contains(&b'S'), "seed {seed}");
                let _ = (reader.len(), reader.next_hole(5), reader.extents(0, 3000));
            }
        }
        let took = memory.most();
        assert!(took < MEMORY_MAX, "seed {seed}: {took} bytes of memory");
    }
}

/// Who writes, flattens and repairs a container whose bytes lie may fail, and does not panic.
#[test]
fn hostile_containers_are_written() {
    let _alone = counting::alone();
    explored(rounds() / 5, "hostile containers");
    for seed in seeds(rounds() / 5) {
        let (fixture, mut rng) = (Fixture::new(), Rng::new(seed));
        let end = rng.pick(&["/index", "/flat", "/super"]);
        let paths = fixture.find(end);
        let path = &paths[rng.below(paths.len() as u64) as usize];
        let mut bytes = fixture.bytes(path);
        match end {
            "/super" => {
                alter(&mut rng, &mut bytes, 3072..3200);
                let sum = crc32c(&bytes[3080..3200]);
                put_u32(&mut bytes, 3076, sum);
            }
            "/flat" => {
                let all = 16..bytes.len();
                alter(&mut rng, &mut bytes, all);
                seal_flat(&mut bytes);
            }
            _ => {
                let all = 0..bytes.len();
                alter(&mut rng, &mut bytes, all);
                seal_index(&mut bytes);
            }
        }
        // The summary still counts: the directory's time is what it was.
        fixture.put(path, &bytes);
        let store: Arc<dyn Store> = Arc::new(fixture.memory.clone());
        let plfs = Plfs::new(store.clone(), fixture.config.clone());
        if let Ok(Opened::Logical(file)) =
            plfs.open(Path::new(NAME), OpenOptions { create: false, ..OpenOptions::create() })
        {
            let _ = (file.write_at(b"new", 100), file.read_at(&mut [0; 3], 100));
            let _ = (
                file.append(b"more"),
                file.sync(),
                file.set_len(2000),
                file.totals(),
                file.close(),
            );
        }
        let _ = plfs.flatten(Path::new(NAME));
        let report = plfs::check_name(&store, Path::new(NAME), &[]);
        let _ = repair(&store, &fixture.config, &report, 0);
    }
}

/// A clock says that it is the end of time, and so does the truncate of who goes by it. To reserve
/// room behind that was a panic, as no stamp comes after it.
#[test]
fn room_behind_a_cut_at_the_end_of_time() {
    let fixture = Fixture::new();
    let clock =
        plfs_format::clock::Clock { stamp: u64::MAX, covers: plfs_format::clock::Covers::Some };
    let path = fixture.container.join("clock");
    let file = fixture.memory.open(&path, Open::create(0o666)).unwrap();
    write_full(file.as_ref(), &clock.encode(), 0).unwrap();
    let plfs = Plfs::new(Arc::new(fixture.memory.clone()), fixture.config.clone());
    let file = open(&plfs, NAME);
    file.set_len(1).unwrap();
    file.allocate(0, 100, Size::Grows).unwrap();
    assert_eq!(file.len().unwrap(), 100);
}
