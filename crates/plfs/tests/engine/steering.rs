//! Streams follow the storage (docs/decisions/0026): a writer that has several targets leaves one
//! that is slow, and its bytes are there whichever it took.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Barrier, LazyLock, Mutex};
use std::time::Duration;

use plfs::store::{
    self, Entry, Errno, Links, Open, Stat, StorageTarget, Store, StoreFile, TargetProvider,
};
use plfs::{CloseToOpen, Config, Placement, Plfs};
use plfs_testkit::{CloseToOpenStore, FaultStore, MemStore, Op};

use super::scratch::{Scratch, open};

const MIB: usize = 1 << 20;

/// A store in memory with these directories, which counts calls and fails on demand.
fn with_dirs(dirs: &[&str]) -> FaultStore {
    let memory = MemStore::new();
    for dir in dirs {
        memory.mkdir(Path::new(dir), 0o755).unwrap();
    }
    FaultStore::new(Arc::new(memory))
}

/// The bytes of piece `i` of a file, at most 1 MiB. Of one buffer: tests are compiled without
/// optimisation, and to make each byte took longer than all else.
fn piece(i: usize, length: usize) -> &'static [u8] {
    static BYTES: LazyLock<Vec<u8>> = LazyLock::new(|| (0..=255).cycle().take(MIB + 256).collect());
    &BYTES[i * 31 % 256..][..length]
}

/// Writes 48 MiB where writes to `slow` take 300 ms more each, of 1 MiB; gives how many bytes went
/// there, and how many to the other target.
fn writes_to(slow: &str, placement: Placement) -> (usize, usize) {
    let scratch = Scratch::new();
    let memory = MemStore::new();
    for dir in ["/m", "/n"] {
        memory.mkdir(Path::new(dir), 0o755).unwrap();
    }
    let faults = FaultStore::new(Arc::new(CloseToOpenStore::new(Arc::new(memory))));
    for _ in 0..200 {
        faults.before(slow, Op::WriteAt, || std::thread::sleep(Duration::from_millis(300)));
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
    let pieces = 48 * MIB / (64 << 10);
    for i in 0..pieces {
        file.write_at(piece(i, 64 << 10), (i * (64 << 10)) as u64).unwrap();
    }
    file.sync().unwrap();
    file.close().unwrap();
    let file = open(&plfs, path);
    let mut got = vec![0; 64 << 10];
    for i in 0..pieces {
        assert_eq!(file.read_at(&mut got, (i * (64 << 10)) as u64).unwrap(), got.len());
        assert!(got == piece(i, 64 << 10), "piece {i}");
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
        let calls = (0..30).map(|i| {
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

/// Parts of a visit are waited for, however short. A short file whose regions are on several
/// targets, as equal shares are, is not a visit: it was once, and its close waited for each.
#[test]
fn a_short_file_on_several_targets_waits_for_none() {
    let scratch = Scratch::new();
    let faults = with_dirs(&["/m", "/n"]);
    let config = Config {
        backends: vec![PathBuf::from("/n")],
        placement: Placement::Equal,
        ..scratch.config()
    };
    let file = open(&Plfs::new(Arc::new(faults.clone()), config), Path::new("/m/f"));
    for i in 0..60 {
        file.write_at(&[7; 10_000], i * 10_000).unwrap();
    }
    file.close().unwrap();
    let data = |dir: &str| {
        let is_data = |path: &Path| path.starts_with(dir) && path.extension().is_some();
        faults.log().iter().any(|call| call.op == Op::WriteAt && is_data(&call.path))
    };
    assert!(data("/m") && data("/n"), "{:?}", faults.log());
    assert_eq!(faults.calls_of(Op::WriteBack), 0);
}

/// Linux tells of an error in a write that a page cache had taken once: to who waits for it, and
/// not to who opens the file then and syncs it. What a writer heard while it waited was thrown
/// away, and fsync said that all is well.
#[test]
fn what_is_heard_while_waiting_for_a_target_fails_the_sync() {
    let scratch = Scratch::new();
    let faults = with_dirs(&["/m", "/n"]);
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

/// Storage that is limited to a rate takes some MiB at once and then nothing for a tenth of a
/// second. Each MiB was measured alone, so equal targets seemed to differ by a factor of 25, and
/// writers went to and fro between them: eight on eight targets got half of what those can take.
#[test]
fn a_writer_stays_on_one_of_equal_targets_that_take_much_at_once() {
    for targets in [["/m/.plfs", "/n/.plfs"], ["/n/.plfs", "/m/.plfs"]] {
        let scratch = Scratch::new();
        let faults = with_dirs(&["/m", "/n"]);
        for (path, four) in targets.into_iter().zip([[5, 0, 0, 95], [0, 100, 0, 0]]) {
            // Each MiB is given to the storage, and waited for when the next one was. Whoever comes
            // while it takes nothing waits, too.
            let storage = Arc::new(Mutex::new(()));
            for ms in [four; 32].concat().into_iter().flat_map(|ms| [0, ms]) {
                let storage = storage.clone();
                faults.before(path, Op::WriteBack, move || {
                    let _alone = storage.lock().unwrap();
                    std::thread::sleep(Duration::from_millis(ms));
                });
            }
        }
        let config = Config { backends: vec![PathBuf::from("/n")], ..scratch.config() };
        let process = || Plfs::new(Arc::new(faults.clone()), config.clone());
        let file = open(&process(), Path::new("/m/f"));
        file.write_at(&vec![1; MIB], 0).unwrap();
        // The other one is not idle, or it would be visited.
        let other = open(&process(), Path::new("/m/other"));
        other.write_at(&vec![1; MIB], 0).unwrap();
        for i in 1..96 {
            file.write_at(&vec![1; MIB], i * MIB as u64).unwrap();
        }
        file.close().unwrap();
        let log = faults.log();
        let data = log.iter().filter(|call| call.op == Op::WriteAt && call.len >= MIB / 2);
        let on: Vec<bool> = data.map(|call| call.path.starts_with("/n")).collect();
        let moves = on.windows(2).filter(|pair| pair[0] != pair[1]).count();
        // What nobody has measured is tried once. Where other programs want the processors, too, a
        // measurement can be wrong, and then the next one tells.
        assert!(on.len() > 80 && moves <= 3, "{moves} moves among {} writes", on.len());
    }
}

/// A process that was left alone by the others, or began alone, had one of eight targets write at a
/// time. It visits those that are idle once its own has as much as it can have under way; what
/// finds no room there, or is refused with EIO, goes elsewhere, and nobody is told.
#[test]
fn a_writer_visits_idle_targets() {
    for refuses in [None, Some(Errno::NOSPC), Some(Errno::IO)] {
        let scratch = Scratch::new();
        let faults = with_dirs(&["/m", "/n", "/o"]);
        for _ in 0..200 {
            let slowly = || std::thread::sleep(Duration::from_millis(10));
            let all = ["/m/.plfs", "/n/.plfs", "/o/.plfs"];
            all.into_iter().for_each(|there| faults.before(there, Op::WriteBack, slowly));
        }
        let backends = vec![PathBuf::from("/n"), PathBuf::from("/o")];
        let plfs = || {
            let config = Config { backends: backends.clone(), streams: 3, ..scratch.config() };
            Plfs::new(Arc::new(faults.clone()), config)
        };
        let file = open(&plfs(), Path::new("/m/f"));
        let pieces = if refuses.is_some() { 24 } else { 64 } * MIB / 47_001;
        for i in 0..pieces {
            if let Some(errno) = refuses
                && i % (pieces / 8) == 0
            {
                for there in ["/n/.plfs", "/o/.plfs"] {
                    faults.fail_matching(there, Op::WriteAt, errno);
                }
            }
            file.write_at(piece(i, 47_001), (i * 47_001) as u64).unwrap();
            // As a program that computes its pieces: others are written meanwhile.
            std::thread::sleep(Duration::from_micros(500));
        }
        file.sync().unwrap();
        file.close().unwrap();
        let log = faults.log();
        let on = |dir: &str| -> usize {
            let data =
                log.iter().filter(|call| call.op == Op::WriteAt && call.path.starts_with(dir));
            data.map(|call| call.len).sum()
        };
        let on = ["/m", "/n", "/o"].map(on);
        assert!(refuses.is_some() || on.iter().all(|bytes| *bytes > 2 * MIB), "{on:?}");
        let file = open(&plfs(), Path::new("/m/f"));
        for i in 0..pieces {
            let mut got = vec![0; 47_001];
            assert_eq!(file.read_at(&mut got, (i * 47_001) as u64).unwrap(), got.len());
            assert!(got == piece(i, 47_001), "piece {i}, {refuses:?}");
        }
    }
}

/// Nobody had measured a backend that refused each data log with EIO, so it was tried first, and
/// the write was an error though the others had room.
#[test]
fn a_backend_where_no_data_log_can_be_made_is_left() {
    for errno in [Errno::IO, Errno::ROFS, Errno::STALE] {
        let scratch = Scratch::new();
        let faults = with_dirs(&["/m", "/n", "/o"]);
        let backends = vec![PathBuf::from("/n"), PathBuf::from("/o")];
        let config = Config { backends, streams: 3, ..scratch.config() };
        let process = |_| Plfs::new(Arc::new(faults.clone()), config.clone());
        let path = Path::new("/m/f");
        // Each of three processes begins on a backend of its own.
        let files: Vec<_> = (0..3).map(process).map(|plfs| open(&plfs, path)).collect();
        for sick in ["/n/", "/o/"] {
            faults.fail_matching(sick, Op::Open, errno);
            faults.fail_matching(sick, Op::Mkdir, errno);
        }
        for (i, file) in files.iter().enumerate() {
            for piece in 0..40 {
                let at = (i * 40 + piece) * 47_001;
                file.write_at(&[1 + i as u8; 47_001], at as u64).unwrap();
            }
            file.sync().unwrap();
        }
        files.into_iter().for_each(|file| file.close().unwrap());
        assert!(
            faults.log().iter().any(|call| call.op == Op::Mkdir && call.path.starts_with("/n"))
        );
        let file = open(&process(0), path);
        for i in 0..3 {
            let (len, mut got) = (40 * 47_001, vec![0; 40 * 47_001]);
            assert_eq!(file.read_at(&mut got, (i * len) as u64).unwrap(), len);
            assert!(got.iter().all(|byte| *byte == 1 + i as u8), "{i}, {errno:?}");
        }
    }
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
    // Each waits until another one has begun.
    let barrier = Arc::new(Barrier::new(2));
    for _ in 0..2 {
        let barrier = barrier.clone();
        faults.before(".data", Op::SyncData, move || {
            barrier.wait();
        });
    }
    files[0].sync().unwrap();
    assert!(faults.calls_of(Op::SyncData) >= 3, "{:?}", faults.log());
}

/// The four targets of a directory, one of which may be full: the first that is asked.
#[derive(Debug)]
struct Four {
    targets: Vec<StorageTarget>,
    has_full_one: bool,
    full: Mutex<Option<u16>>,
    made: Mutex<Vec<(PathBuf, u16)>>,
}

impl Four {
    fn new(has_full_one: bool) -> Arc<Four> {
        let target = |number| StorageTarget { number, key: format!("four:/{number}").into() };
        Arc::new(Four {
            targets: (0..4).map(target).collect(),
            has_full_one,
            full: Mutex::default(),
            made: Mutex::default(),
        })
    }
}

impl TargetProvider for Four {
    fn kind(&self) -> &'static str {
        "four"
    }

    fn targets(&self) -> &[StorageTarget] {
        &self.targets
    }

    fn create(
        &self,
        store: &dyn Store,
        path: &Path,
        how: Open,
        on: u16,
    ) -> store::Result<Arc<dyn StoreFile>> {
        if self.has_full_one && *self.full.lock().unwrap().get_or_insert(on) == on {
            return Err(Errno::NOSPC);
        }
        self.made.lock().unwrap().push((path.to_path_buf(), on));
        store.open(path, how)
    }
}

/// A store each of whose directories has these targets.
#[derive(Debug)]
struct Divided {
    inner: MemStore,
    provider: Arc<Four>,
}

impl Store for Divided {
    plfs_testkit::delegate_names!(inner);
    fn open(&self, path: &Path, how: Open) -> store::Result<Arc<dyn StoreFile>> {
        self.inner.open(path, how)
    }
    fn stat(&self, path: &Path, links: Links) -> store::Result<Stat> {
        self.inner.stat(path, links)
    }
    fn list(&self, path: &Path) -> store::Result<Vec<Entry>> {
        self.inner.list(path)
    }
    fn is_local(&self, path: &Path) -> bool {
        self.inner.is_local(path)
    }
    fn boot(&self, path: &Path) -> Option<u64> {
        self.inner.boot(path)
    }
    fn targets(&self, _: &Path) -> Arc<dyn TargetProvider> {
        self.provider.clone()
    }
}

/// Writes a file of 80 MiB and reads it back; gives where the provider made its data logs.
fn made_on_targets_of(provider: &Arc<Four>) -> Vec<(PathBuf, u16)> {
    let scratch = Scratch::new();
    let inner = MemStore::new();
    inner.mkdir(Path::new("/m"), 0o755).unwrap();
    let store: Arc<dyn Store> = Arc::new(Divided { inner, provider: provider.clone() });
    let config = Config { placement: Placement::Equal, ..scratch.config() };
    let plfs = Plfs::new(store, config);
    let path = Path::new("/m/f");
    let file = open(&plfs, path);
    for i in 0..80 {
        file.write_at(piece(i, MIB), (i * MIB) as u64).unwrap();
    }
    file.sync().unwrap();
    file.close().unwrap();
    let file = open(&plfs, path);
    let mut got = vec![0; MIB];
    for i in 0..80 {
        assert_eq!(file.read_at(&mut got, (i * MIB) as u64).unwrap(), got.len());
        assert!(got == piece(i, MIB), "piece {i}");
    }
    provider.made.lock().unwrap().clone()
}

/// The engine asks the provider to make the data log of a stream on a target, each on another one
/// as long as there are as many, and once.
#[test]
fn data_logs_are_made_on_targets_of_the_provider() {
    let made = made_on_targets_of(&Four::new(false));
    assert!(made.iter().all(|(path, _)| path.extension().is_some_and(|it| it == "data")));
    let mut targets: Vec<u16> = made.iter().map(|(_, on)| *on).collect();
    targets.sort_unstable();
    // Equal shares of a file that is long enough go to all.
    assert_eq!(targets, [0, 1, 2, 3], "{made:?}");
}

/// What finds no room on a target inside a backend goes to another one of it.
#[test]
fn a_full_target_of_a_backend_is_left_for_another() {
    let provider = Four::new(true);
    let made = made_on_targets_of(&provider);
    let full = provider.full.lock().unwrap().unwrap();
    assert!(!made.is_empty() && made.iter().all(|(_, on)| *on != full), "{full} {made:?}");
}
