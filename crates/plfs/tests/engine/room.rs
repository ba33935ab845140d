//! Where data goes when a backend has no room (docs/decisions/0018): to another one, and nothing
//! that was acknowledged is lost.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use plfs::store::{Errno, Store};
use plfs::{Backends, Config, File, Layout, OpenOptions, Opened, Plfs};
use plfs_testkit::{Fault, FaultStore, MemStore, Op, Rng, seed};

const NAME: &str = "/m/f";

struct Fixture {
    memory: MemStore,
    faults: FaultStore,
}

impl Fixture {
    fn new() -> Fixture {
        let memory = MemStore::new();
        for dir in ["/m", "/n", "/o"] {
            memory.mkdir(Path::new(dir), 0o755).unwrap();
        }
        memory.sync_dir(Path::new("/")).unwrap();
        // Both become backends.
        let first = process(Arc::new(memory.clone()));
        first.create(Path::new("/m/first"), OpenOptions::create()).unwrap();
        Fixture { faults: FaultStore::new(Arc::new(memory.clone())), memory }
    }

    /// Where writes travel, threads write the buffers.
    fn far() -> Fixture {
        let near = Fixture::new();
        let memory = near.memory.shared();
        Fixture { faults: FaultStore::new(Arc::new(memory.clone())), memory }
    }

    fn process(&self) -> Plfs {
        process(Arc::new(self.faults.clone()))
    }

    fn content(&self) -> Vec<u8> {
        let file = open(&process(Arc::new(self.memory.clone())));
        let mut bytes = vec![0xee; file.len().unwrap() as usize];
        assert_eq!(file.read_at(&mut bytes, 0).unwrap(), bytes.len());
        bytes
    }

    /// The backends on which the file has data.
    fn places(&self) -> Vec<String> {
        let file = open(&process(Arc::new(self.memory.clone())));
        let mut places: Vec<String> = file
            .extents(0, u64::MAX)
            .unwrap()
            .iter()
            .map(|extent| extent.data_log.iter().nth(1).unwrap().to_string_lossy().into_owned())
            .collect();
        places.sort();
        places.dedup();
        places
    }
}

fn process(store: Arc<dyn Store>) -> Plfs {
    let config = Config {
        shared_memory: None,
        streams: 1,
        backends: ["/n", "/o"].map(PathBuf::from).to_vec(),
        ..Config::shared()
    };
    Plfs::new(store, config)
}

fn open(plfs: &Plfs) -> File {
    match plfs.open(Path::new(NAME), OpenOptions::create()).unwrap() {
        Opened::Logical(file) => file,
        Opened::Plain(_) => panic!("it is plain"),
    }
}

/// One or two of three backends have no room from some moment on, whichever these are: every write
/// is taken whole, and the file is what was written. Small writes, large ones, patterns and
/// appends; where threads write the buffers, too.
#[test]
fn a_stream_goes_on_where_there_is_room() {
    let first = seed();
    for round in 0..60 {
        let mut rng = Rng::new(first + round);
        let fixture = if round % 3 == 2 { Fixture::far() } else { Fixture::new() };
        let plfs = fixture.process();
        let mut full = vec!["/n/", "/o/"];
        if rng.one_in(2) {
            let layout =
                Layout { backends: Some(Backends::Listed(vec![1, 2])), ..Layout::default() };
            plfs.set_directory_layout(Path::new("/m"), Some(&layout)).unwrap();
            full.remove(rng.below(2) as usize);
        }
        let file = open(&plfs);
        for part in full {
            match rng.one_in(4) {
                true => fixture.faults.fail_matching(part, Op::Mkdir, Errno::DQUOT),
                false => {
                    let bytes = [0, 1, 70_000, 300_000, 5_000_000][rng.below(5) as usize];
                    fixture.faults.full_below(part, bytes);
                }
            }
        }
        let mut expect: Vec<u8> = Vec::new();
        for turn in 0..40u8 {
            let len = [1, 700, 47_001, 150_000, 300_000, 900_000][rng.below(6) as usize];
            let bytes = vec![turn + 1; len];
            let at = rng.below(3_000_000) as usize;
            let put = |expect: &mut Vec<u8>, at: usize, bytes: &[u8]| {
                expect.resize(expect.len().max(at + bytes.len()), 0);
                expect[at..at + bytes.len()].copy_from_slice(bytes);
            };
            match rng.below(4) {
                0 => {
                    let (offset, n) = file.append(&bytes).unwrap();
                    assert_eq!(n, len, "seed {}, turn {turn}", first + round);
                    put(&mut expect, offset as usize, &bytes);
                }
                1 if len % 100 == 0 => {
                    let n = file.write_strided(&bytes, 100, 130, at as u64).unwrap();
                    assert_eq!(n, len, "seed {}, turn {turn}", first + round);
                    for (i, piece) in bytes.chunks(100).enumerate() {
                        put(&mut expect, at + i * 130, piece);
                    }
                }
                _ => {
                    let n = file.write_at(&bytes, at as u64).unwrap();
                    assert_eq!(n, len, "seed {}, turn {turn}", first + round);
                    put(&mut expect, at, &bytes);
                }
            }
            if rng.one_in(8) {
                file.commit().unwrap();
            }
            if rng.one_in(8) {
                let mut own = vec![0; expect.len()];
                assert_eq!(file.read_at(&mut own, 0).unwrap(), expect.len());
                assert!(own == expect, "seed {}, turn {turn}", first + round);
            }
        }
        file.sync().unwrap();
        file.close().unwrap();
        assert!(fixture.content() == expect, "seed {}: {:?}", first + round, fixture.places());
    }
}

/// If no backend has room, what was acknowledged stays in memory and goes to whichever has room
/// first (SEMANTICS S15); nobody makes segments all the time meanwhile.
#[test]
fn what_was_acknowledged_waits_for_room_on_any_backend() {
    for freed in ["/n/", "/o/"] {
        let fixture = Fixture::new();
        let plfs = fixture.process();
        let layout = Layout { backends: Some(Backends::Listed(vec![1, 2])), ..Layout::default() };
        plfs.set_directory_layout(Path::new("/m"), Some(&layout)).unwrap();
        let file = open(&plfs);
        file.write_at(&[1; 1000], 0).unwrap();
        for part in ["/n/", "/o/"] {
            fixture.faults.full_below(part, 0);
        }
        for _ in 0..50 {
            assert_eq!(file.commit().unwrap_err().errno(), Errno::NOSPC);
        }
        assert!(file.read_at(&mut [0; 10], 0).is_err());
        let logs = fixture
            .faults
            .log()
            .iter()
            .filter(|call| call.op == Op::Open && call.path.to_string_lossy().ends_with(".data"))
            .map(|call| call.path.clone())
            .collect::<std::collections::BTreeSet<_>>();
        assert!(logs.len() <= 4, "{logs:?}");
        fixture.faults.reset();
        fixture.faults.full_below(if freed == "/n/" { "/o/" } else { "/n/" }, 0);
        // It looks elsewhere again after a second.
        std::thread::sleep(std::time::Duration::from_millis(1100));
        file.write_at(&[2; 500], 500).unwrap();
        file.sync().unwrap();
        file.close().unwrap();
        assert_eq!(fixture.content(), [[1; 500], [2; 500]].concat());
        assert_eq!(fixture.places(), [freed.trim_matches('/')]);
    }
}

/// A backend on which little is free is left out for new files, and for new streams of files that
/// list it, as long as another has more.
#[test]
fn nothing_new_is_put_where_little_is_free() {
    let fixture = Fixture::new();
    let plfs = fixture.process();
    let backends = |plfs: &Plfs| plfs.container(Path::new(NAME)).unwrap().unwrap().1.backends;
    fixture.faults.inject(Fault::Room { path: "/n".into(), available: (1 << 30) - 1 });
    // As long as a process believes what it has seen.
    std::thread::sleep(std::time::Duration::from_millis(1100));
    open(&plfs).close().unwrap();
    assert_eq!(backends(&plfs), [0, 2]);
    plfs.unlink(Path::new(NAME)).unwrap();
    // None has more: then all are as good.
    fixture.faults.inject(Fault::Room { path: "/".into(), available: 0 });
    std::thread::sleep(std::time::Duration::from_millis(1100));
    open(&plfs).close().unwrap();
    assert_eq!(backends(&plfs), [0, 1, 2]);
    fixture.faults.reset();
    fixture.faults.inject(Fault::Room { path: "/n".into(), available: 0 });
    fixture.faults.inject(Fault::Room { path: "/m".into(), available: 0 });
    std::thread::sleep(std::time::Duration::from_millis(1100));
    for turn in 1..10 {
        let file = open(&fixture.process());
        file.set_len(0).unwrap();
        file.write_at(&[turn; 100], 0).unwrap();
        file.close().unwrap();
        assert_eq!((fixture.content(), fixture.places()), (vec![turn; 100], vec!["o".to_string()]));
    }
}

/// Processes of a node share streams: when the backend of one is full for all, each finds its bytes
/// again, whoever was first to look elsewhere.
#[test]
fn processes_of_a_node_agree_where_a_stream_goes_on() {
    let shared = PathBuf::from(format!("/dev/shm/plfs-room-{}", std::process::id()));
    std::fs::create_dir_all(&shared).unwrap();
    for round in 0..10 {
        let fixture = Fixture::new();
        let config = Config {
            shared_memory: Some(shared.clone()),
            ..process(Arc::new(fixture.memory.clone())).config().clone()
        };
        let node = || Plfs::new(Arc::new(fixture.faults.clone()), config.clone());
        open(&node()).close().unwrap();
        for part in ["/n/", "/o/"] {
            fixture.faults.full_below(part, round * 30_000);
        }
        std::thread::scope(|scope| {
            for writer in 0..4u8 {
                let plfs = node();
                scope.spawn(move || {
                    let file = open(&plfs);
                    for block in 0..40u64 {
                        let at = (block * 4 + u64::from(writer)) * 5_000;
                        assert_eq!(file.write_at(&[writer + 1; 5_000], at).unwrap(), 5_000);
                        if block % 7 == 0 {
                            file.sync().unwrap();
                        }
                    }
                    file.close().unwrap();
                });
            }
        });
        let content = fixture.content();
        for (i, block) in content.chunks(5_000).enumerate() {
            assert!(block == [(i % 4) as u8 + 1; 5_000], "round {round}, block {i}");
        }
        assert_eq!(content.len(), 160 * 5_000);
        // One segment, one file.
        let store: Arc<dyn Store> = Arc::new(fixture.memory.clone());
        let mut numbers: Vec<_> = fixture
            .faults
            .log()
            .iter()
            .filter(|call| call.op == Op::WriteAt && call.error.is_none())
            .filter(|call| call.path.to_string_lossy().ends_with(".data"))
            .map(|call| call.path.clone())
            .collect();
        numbers.sort();
        numbers.dedup();
        let all = numbers.len();
        let mut names: Vec<_> =
            numbers.iter().map(|path| path.iter().rev().take(2).collect::<Vec<_>>()).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all, "{numbers:?}");
        let report = plfs::check_name(&store, Path::new(NAME), &[]);
        assert_eq!(report.health(), plfs::Health::Healthy, "{report:?}");
    }
    let _ = std::fs::remove_dir_all(&shared);
}
