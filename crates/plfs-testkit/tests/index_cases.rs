//! The index logs that the test kit makes: the engine finds in them what was written, and they are
//! what real writers leave.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use plfs::store::Store;
use plfs::{Config, Container, File, OpenOptions, Opened, Plfs, RecordKind};
use plfs_format::name::SegmentRef;
use plfs_index::{Found, Run};
use plfs_testkit::index_cases::{IndexCase, Placed, Turns, Written, write_index_logs};
use plfs_testkit::{MemStore, Rng};

const NAME: &str = "/m/f";

fn memory() -> Plfs {
    let memory = MemStore::new();
    memory.mkdir(Path::new("/m"), 0o755).unwrap();
    Plfs::new(Arc::new(memory), Config { shared_memory: None, ..Config::shared() })
}

fn open(plfs: &Plfs, path: &Path, options: OpenOptions) -> File {
    match plfs.open(path, options).unwrap() {
        Opened::Logical(file) => file,
        Opened::Plain(_) => panic!("a plain file"),
    }
}

fn container(plfs: &Plfs, path: &Path) -> Container {
    open(plfs, path, OpenOptions::create()).close().unwrap();
    plfs.container(path).unwrap().unwrap().0
}

/// Makes the logs of a case in a new container, and says where each piece lies.
fn make(
    plfs: &Plfs,
    case: &IndexCase,
    ranks_per_node: u32,
    turns: Turns,
) -> (Written, Vec<Placed>) {
    let all = Mutex::new(Vec::new());
    let written = write_index_logs(
        &container(plfs, Path::new(NAME)),
        case,
        ranks_per_node,
        turns,
        |placed| all.lock().unwrap().push(placed),
    );
    (written, all.into_inner().unwrap())
}

/// What the file's bytes are, by looking at every piece.
struct Naive<'a>(&'a [Placed]);

impl Naive<'_> {
    fn last(&self, offset: u64) -> Option<&Placed> {
        self.0
            .iter()
            .filter(|p| p.offset <= offset && offset < p.offset + p.length)
            .max_by_key(|p| p.time)
    }

    fn place(&self, offset: u64) -> Option<(SegmentRef, u64)> {
        self.last(offset).map(|p| (p.at, p.physical + offset - p.offset))
    }

    fn size(&self) -> u64 {
        self.0.iter().map(|p| p.offset + p.length).max().unwrap_or(0)
    }
}

/// Looks random ranges up as a read does; all bytes near the ends of what is found, and some
/// between, must be where the last writer put them.
fn compare(plfs: &Plfs, all: &[Placed], lookups: u64, seed: u64) {
    let (naive, mut rng) = (Naive(all), Rng::new(seed));
    let file = open(plfs, Path::new(NAME), OpenOptions::read());
    assert_eq!(file.len().unwrap(), naive.size());
    let longest = all.iter().map(|p| p.length).max().unwrap_or(1);
    for _ in 0..lookups {
        let from = rng.below(naive.size());
        let to = (from + 1 + rng.below(2 * longest)).min(naive.size());
        let mut found: Vec<Found> = Vec::new();
        let places = file
            .with_index(|index| {
                index.lookup(from, to, &mut found);
                found.iter().map(|f| index.segment(f.segment)).collect::<Vec<_>>()
            })
            .unwrap();
        let mut at = from;
        for (piece, segment) in found.iter().zip(places) {
            assert!(
                piece.length > 0 && piece.logical >= at && piece.logical + piece.length <= to,
                "{found:?}"
            );
            if piece.logical > at {
                assert_eq!(
                    [naive.place(at), naive.place(piece.logical - 1)],
                    [None, None],
                    "a hole"
                );
            }
            let last = piece.length - 1;
            for skip in [0, last / 2, last] {
                let expected = naive.place(piece.logical + skip);
                assert_eq!(
                    segment.map(|at| (at, piece.physical + skip)),
                    expected,
                    "byte {} of {piece:?}",
                    piece.logical + skip
                );
            }
            at = piece.logical + piece.length;
        }
        if at < to {
            assert_eq!([naive.place(at), naive.place(to - 1)], [None, None], "a hole at the end");
        }
    }
}

fn check(text: &str, ranks_per_node: u32, lookups: u64) {
    let case = IndexCase::parse(text).unwrap();
    for turns in [Turns::Lockstep, Turns::Racing(5)] {
        let plfs = memory();
        let (written, all) = make(&plfs, &case, ranks_per_node, turns);
        assert_eq!((written.writes, all.len() as u64), (case.writes(), case.writes()));
        assert_eq!(u64::from(written.logs), u64::from(case.writers().div_ceil(ranks_per_node)));
        if !case.overlaps() || matches!(turns, Turns::Lockstep) {
            let (naive, mut rng) = (Naive(&all), Rng::new(3));
            for _ in 0..lookups / 10 {
                let offset = rng.below(naive.size());
                assert_eq!(
                    case.last_writer(offset),
                    naive.last(offset).map(|p| (p.writer, p.piece)),
                    "{text} {offset}"
                );
            }
        }
        compare(&plfs, &all, lookups, 7);
        plfs.flatten(Path::new(NAME)).unwrap();
        compare(&plfs, &all, lookups, 8);
    }
}

#[test]
fn strided_pieces_are_found() {
    check("strided:130:40:4701", 64, 1500);
    check("strided:9:300:1001", 1, 1500);
}

#[test]
fn blocks_of_a_cube_are_found() {
    check("block3d:4:32:8", 64, 1500);
    check("block3d:2:64:40", 3, 1500);
}

#[test]
fn cells_of_an_irregular_map_are_found() {
    check("irregular:6000:24", 1, 1500);
    check("irregular:6000:24", 8, 1500);
}

#[test]
fn the_last_of_random_overwrites_is_found() {
    check("overwrites:4000:1048576:8", 64, 1500);
    check("overwrites:4000:65536:8", 3, 500);
}

#[test]
fn a_writer_with_too_many_records_commits_in_between() {
    let plfs = memory();
    let case = IndexCase::parse("irregular:200000:2").unwrap();
    let (written, _) = make(&plfs, &case, 1, Turns::Lockstep);
    let records =
        plfs::records(&plfs.container(Path::new(NAME)).unwrap().unwrap().0).unwrap().records;
    assert!(
        written.records > 2 * 65_536 && records.len() as u64 == written.records - 2,
        "{written:?}"
    );
}

/// The runs of each writer, by the offset of its first one.
type RunsByWriter = BTreeMap<u64, Vec<(PathBuf, Run)>>;

/// What index records say, without what differs from run to run: for each writer its runs in order,
/// with the stream and segment that they lie in.
fn said(container: &Container) -> RunsByWriter {
    let all = plfs::records(container).unwrap();
    let mut by_writer: HashMap<Option<u32>, Vec<_>> = HashMap::new();
    for record in &all.records {
        let RecordKind::Run(run) = record.said else { panic!("a truncate") };
        let log = Path::new(all.data_logs[run.segment as usize].file_name().unwrap());
        by_writer
            .entry(record.writer)
            .or_default()
            .push((log.to_path_buf(), Run { segment: 0, ..run }));
    }
    by_writer.into_values().map(|runs| (runs[0].1.logical, runs)).collect()
}

/// Real writers, who share a node's streams, against the same pieces made by the test kit. Slow
/// machines have another chance: a second after its first write a file is committed, which ends
/// runs.
#[test]
fn real_writers_leave_the_same_records() {
    let base = std::env::temp_dir().join(format!("plfs-index-cases-{}", std::process::id()));
    for text in [
        "strided:12:60:47001",
        "strided:3:900:1001",
        "block3d:2:64:16",
        "irregular:3000:10",
        "overwrites:1500:1000000:9",
    ] {
        let case = IndexCase::parse(text).unwrap();
        let plfs = memory();
        make(&plfs, &case, 64, Turns::Lockstep);
        let expected = said(&plfs.container(Path::new(NAME)).unwrap().unwrap().0);
        let mut tries = (0..20).filter_map(|_| {
            let _ = std::fs::remove_dir_all(&base);
            std::fs::create_dir_all(&base).unwrap();
            really_write(&case, &base)
        });
        assert_eq!(
            tries.next().expect("one of twenty takes less than a second"),
            expected,
            "{text}"
        );
    }
    std::fs::remove_dir_all(&base).unwrap();
}

fn really_write(case: &IndexCase, base: &Path) -> Option<RunsByWriter> {
    let path = base.join("f");
    let ranks: Vec<Plfs> = (0..case.writers())
        .map(|_| {
            Plfs::posix(Config { shared_memory: Some(base.to_path_buf()), ..Config::shared() })
        })
        .collect();
    let files: Vec<File> =
        ranks.iter().map(|plfs| open(plfs, &path, OpenOptions::create())).collect();
    let bytes = vec![1; 100_000];
    let start = Instant::now();
    for piece in 0..case.pieces(0) + 1 {
        for (rank, file) in
            files.iter().enumerate().filter(|(rank, _)| piece < case.pieces(*rank as u32))
        {
            let (offset, length) = case.piece(rank as u32, piece);
            file.write_at(&bytes[..length as usize], offset).unwrap();
        }
    }
    files.iter().for_each(|file| file.commit().unwrap());
    let fast = start.elapsed() < Duration::from_millis(900);
    files.into_iter().for_each(|file| file.close().unwrap());
    fast.then(|| said(&ranks[0].container(&path).unwrap().unwrap().0))
}
