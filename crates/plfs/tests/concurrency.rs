//! Threads and processes that use one file at once: nobody waits for ever, nothing is lost, and
//! memory and the number of logs stay bounded.

mod common {
    pub mod scratch;
}

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use plfs::store::{
    Bytes, Entry, Links, LockKind, Open, PosixStore, Result, Size, Stat, Store, StoreFile,
};
use plfs::{Config, File, Plfs};
use plfs_testkit::{FaultStore, MemStore, Op, Rng, rounds};

use common::scratch::{Scratch, open};

/// How many files of containers have names with this end.
fn files(dir: &Scratch, end: &str) -> usize {
    fn count(dir: &Path, end: &str) -> usize {
        let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
        entries
            .map(|path| {
                if path.is_dir() {
                    count(&path, end)
                } else {
                    usize::from(path.to_string_lossy().ends_with(end))
                }
            })
            .sum()
    }
    count(&dir.0.join(".plfs"), end)
}

/// Ends the program if `run` takes longer than a deadlock would be forgiven.
fn in_time<T>(run: impl FnOnce() -> T) -> T {
    let done = Arc::new(AtomicBool::new(false));
    let seen = done.clone();
    std::thread::spawn(move || {
        for _ in 0..1200 {
            std::thread::sleep(Duration::from_millis(100));
            if seen.load(Ordering::Relaxed) {
                return;
            }
        }
        eprintln!("deadlock: two minutes are over");
        std::process::abort();
    });
    let result = run();
    done.store(true, Ordering::Relaxed);
    result
}

/// The background commit came between the two looks of a stat: at the logs, which did not have the
/// last writes yet, and at the end of what is not committed, which was none any more. The size went
/// back to that of the last commit for this one call (SEMANTICS S4); fsx saw it once in half a
/// million operations.
#[test]
fn a_commit_does_not_take_the_size_back() {
    in_time(|| {
        let dir = Scratch::new();
        let plfs = Plfs::new(Arc::new(MemStore::new()), dir.config());
        let (file, ended) = (open(&plfs, Path::new("/f")), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    file.commit().unwrap();
                }
            });
            let wrong = (1..rounds("PLFS_RACES", 5_000)).find(|size| {
                assert_eq!(file.write_at(b"x", size - 1).unwrap(), 1);
                file.len().unwrap() != *size
            });
            ended.store(true, Ordering::Relaxed);
            assert_eq!(wrong, None);
        });
    });
}

/// A truncate forgot how far its process had written only after its commit: what another thread
/// wrote in between, behind the truncate, was not in the size until the next commit (SEMANTICS S4).
#[test]
fn a_truncate_does_not_hide_what_is_written_behind_it() {
    in_time(|| {
        let (dir, store) = (Scratch::new(), FaultStore::new(Arc::new(MemStore::new())));
        let plfs = Plfs::new(Arc::new(store.clone()), dir.config());
        let path = Path::new("/f");
        let file = Arc::new(open(&plfs, path));
        assert_eq!(file.write_at(&[1; 10], 0).unwrap(), 10);
        // A truncate to nothing makes its name durable once it is committed.
        let other = file.clone();
        store.before("super", Op::SyncData, move || {
            assert_eq!(other.write_at(&[2; 1000], 0).unwrap(), 1000)
        });
        file.set_len(0).unwrap();
        assert_eq!(file.len().unwrap(), 1000);
    });
}

/// One thread writes, another one lets the process leave its log sets, as `utime`, `sync`,
/// `posix_spawn` and `exec` of a program do: to leave was to commit, then to take the writer, and
/// what was written in between was dropped with it. Writes had returned, and fsync and close
/// returned 0.
#[test]
fn what_is_written_while_another_thread_leaves_is_not_lost() {
    for appends in [false, true] {
        in_time(move || {
            let dir = Scratch::new();
            let plfs = Plfs::new(Arc::new(MemStore::new()), dir.config());
            let (file, ended) = (open(&plfs, Path::new("/f")), AtomicBool::new(false));
            let left = AtomicU64::new(0);
            let record = |i: u64| [1 + (i % 250) as u8; 8];
            // Writes are so fast that another thread may leave but a few times beside them: each
            // of many times it meets some.
            const LEAVES: u64 = 3_000;
            const WRITES: u64 = 5_000;
            let mut writes = 0;
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !ended.load(Ordering::Relaxed) {
                        plfs.leave_all().unwrap();
                        left.fetch_add(1, Ordering::Relaxed);
                    }
                });
                while left.load(Ordering::Relaxed) < LEAVES || writes < WRITES {
                    for _ in 0..8 {
                        let bytes = record(writes);
                        match appends {
                            true => assert_eq!(file.append(&bytes).unwrap(), (writes * 8, 8)),
                            false => assert_eq!(file.write_at(&bytes, writes * 8).unwrap(), 8),
                        }
                        writes += 1;
                    }
                    std::thread::yield_now();
                }
                ended.store(true, Ordering::Relaxed);
            });
            file.sync().unwrap();
            let mut bytes = vec![0; writes as usize * 8];
            assert_eq!(file.read_at(&mut bytes, 0).unwrap(), bytes.len());
            let lost = bytes.chunks(8).zip(0..).filter(|(chunk, i)| *chunk != record(*i)).count();
            assert_eq!(lost, 0, "of {writes}, appended: {appends}");
        });
    }
}

/// One thread makes the file longer (fallocate), another one lets the process leave its log sets:
/// the writer that was to say it could go in between, the call returned 0, and the file was as
/// short as before.
#[test]
fn a_file_that_is_made_longer_while_another_thread_leaves_is_longer() {
    in_time(|| {
        let dir = Scratch::new();
        let plfs = Plfs::new(Arc::new(MemStore::new()), dir.config());
        let (file, ended) = (open(&plfs, Path::new("/f")), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    plfs.leave_all().unwrap();
                }
            });
            let short = (1..=rounds("PLFS_RACES", 5_000)).find(|size| {
                file.allocate(0, *size, Size::Grows).unwrap();
                file.len().unwrap() != *size
            });
            ended.store(true, Ordering::Relaxed);
            assert_eq!(short, None);
        });
    });
}

/// A commit held the index and the writer through its syncs: one thread's fsync stopped all reads
/// and writes of the file, in a mount for everybody.
#[test]
fn a_sync_stops_neither_readers_nor_writers() {
    in_time(|| {
        let (dir, store) = (Scratch::new(), FaultStore::new(Arc::new(MemStore::new())));
        let plfs = Plfs::new(Arc::new(store.clone()), dir.config());
        let file = Arc::new(open(&plfs, Path::new("/f")));
        file.write_at(b"first", 0).unwrap();
        let mut seen = 0;
        for (path, byte) in [(".data", b'a'), ("index", b'b')] {
            let other = file.clone();
            // A lock that the sync held would wait for itself here.
            store.before(path, Op::SyncData, move || {
                assert_eq!(other.write_at(&[byte; 10], 100).unwrap(), 10);
                let mut bytes = [0; 10];
                assert_eq!(other.read_at(&mut bytes, 100).unwrap(), 10);
                assert_eq!(bytes, [byte; 10]);
                assert_eq!(other.len().unwrap(), 110);
            });
            file.write_at(b"more", 50).unwrap();
            file.sync().unwrap();
            let mut bytes = [0; 10];
            assert_eq!(file.read_at(&mut bytes, 100).unwrap(), 10);
            seen += usize::from(bytes == [byte; 10]);
        }
        assert_eq!(seen, 2);
    });
}

/// 128 processes of a node sync the same file at once: they share an index log, and each waited for
/// its own sync of it. Now one does it for all who have appended, here while the first is at it:
/// two syncs. The data that each of them has given to the store is durable by then, and nobody
/// makes it so again.
#[test]
fn processes_that_sync_at_once_share_the_syncs_of_the_index() {
    const RANKS: u64 = 128;
    in_time(|| {
        let (dir, memory) = (Scratch::new(), MemStore::new());
        let streams = u64::from(dir.config().streams);
        let seen =
            Arc::new(Seen { appends_awaited: RANKS, node: dir.0.join("shm"), ..Seen::default() });
        let slow = |_| SlowSync { inner: memory.clone(), seen: seen.clone() };
        let ranks: Vec<Plfs> =
            (0..RANKS).map(slow).map(|store| Plfs::new(Arc::new(store), dir.config())).collect();
        let files: Vec<File> = ranks.iter().map(|plfs| open(plfs, Path::new("/f"))).collect();
        let barrier = &Barrier::new(RANKS as usize);
        std::thread::scope(|scope| {
            for (i, file) in files.iter().enumerate() {
                scope.spawn(move || {
                    barrier.wait();
                    file.write_at(&[1; 100], i as u64 * 100).unwrap();
                    file.sync().unwrap();
                });
            }
        });
        let count = |of: &AtomicU64| of.load(Ordering::SeqCst);
        assert_eq!(count(&seen.index_syncs), 2, "syncs of the index log");
        let data_syncs = count(&seen.data_syncs);
        assert!((1..=RANKS * streams).contains(&data_syncs), "{data_syncs} syncs of data");
        assert_eq!(data_syncs, count(&seen.data_syncs_before), "when all had appended");
        assert_eq!(
            Plfs::new(Arc::new(memory), dir.config())
                .stat(Path::new("/f"), Links::Follow)
                .unwrap()
                .stat
                .len,
            RANKS * 100
        );
    });
}

/// What the processes of a node have asked their stores for.
#[derive(Debug, Default)]
struct Seen {
    /// The first sync of the index log takes until there are so many.
    appends_awaited: u64,
    /// The directory of the page.
    node: PathBuf,
    appends: AtomicU64,
    index_syncs: AtomicU64,
    data_syncs: AtomicU64,
    /// [`Seen::data_syncs`] at the end of the first sync of the index log.
    data_syncs_before: AtomicU64,
}

impl Seen {
    /// Waits until all have appended, and the page says so of the last one, too: what
    /// crates/plfs/src/log/log_set/page.rs has in word 8.
    fn wait_for_appends(&self, length: impl Fn() -> u64) {
        let end_in_page = || {
            let pages = std::fs::read_dir(&self.node).unwrap();
            let pages = pages.filter_map(|entry| std::fs::read(entry.unwrap().path()).ok());
            let word = |page: Vec<u8>| Some(u64::from_le_bytes(*page.get(64..)?.first_chunk()?));
            pages.filter(|page| page.len() == 8192).filter_map(word).max().unwrap_or(0)
        };
        while self.appends.load(Ordering::SeqCst) < self.appends_awaited || end_in_page() < length()
        {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A store whose index log takes as long to become durable as the others take to append.
#[derive(Debug)]
struct SlowSync {
    inner: MemStore,
    seen: Arc<Seen>,
}

#[derive(Debug)]
struct SlowSyncFile {
    inner: Arc<dyn StoreFile>,
    is_index: bool,
    is_data: bool,
    seen: Arc<Seen>,
}

impl Store for SlowSync {
    fn open(&self, path: &Path, how: Open) -> Result<Arc<dyn StoreFile>> {
        let (is_index, inner) = (path.ends_with("index"), self.inner.open(path, how)?);
        let is_data = path.extension().is_some_and(|it| it == "data");
        Ok(Arc::new(SlowSyncFile { inner, is_index, is_data, seen: self.seen.clone() }))
    }
    fn stat(&self, path: &Path, links: Links) -> Result<Stat> {
        self.inner.stat(path, links)
    }
    fn list(&self, path: &Path) -> Result<Vec<Entry>> {
        self.inner.list(path)
    }
    plfs_testkit::delegate_names!(inner);
    fn is_local(&self, _path: &Path) -> bool {
        true
    }
    fn boot(&self, path: &Path) -> Option<u64> {
        self.inner.boot(path)
    }
}

impl StoreFile for SlowSyncFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        self.inner.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<usize> {
        let written = self.inner.write_at(buf, offset);
        self.seen.appends.fetch_add(u64::from(self.is_index), Ordering::SeqCst);
        written
    }
    fn stat(&self) -> Result<Stat> {
        self.inner.stat()
    }
    fn set_len(&self, len: u64) -> Result<()> {
        self.inner.set_len(len)
    }
    fn sync_data(&self) -> Result<()> {
        let seen = &self.seen;
        seen.data_syncs.fetch_add(u64::from(self.is_data), Ordering::SeqCst);
        if self.is_index && seen.index_syncs.fetch_add(1, Ordering::SeqCst) == 0 {
            seen.wait_for_appends(|| self.inner.stat().unwrap().len);
            let before = seen.data_syncs.load(Ordering::SeqCst);
            seen.data_syncs_before.store(before, Ordering::SeqCst);
        }
        self.inner.sync_data()
    }
    fn try_lock(&self, kind: LockKind) -> Result<bool> {
        self.inner.try_lock(kind)
    }
    fn map(&self) -> Result<Bytes> {
        self.inner.map()
    }
}

/// A commit that met a write half way had its record, but not how far it reached: that was noted
/// when the commit was over, and stayed. The size was too large as soon as another process cut the
/// file.
#[test]
fn a_commit_that_meets_a_write_leaves_no_size_behind() {
    in_time(|| {
        let (dir, store) = (Scratch::new(), FaultStore::new(Arc::new(PosixStore::new())));
        let (plfs, other) =
            (Plfs::new(Arc::new(store.clone()), dir.config()), Plfs::posix(dir.config()));
        let path = dir.0.join("f");
        let (file, committer) = (open(&plfs, &path), open(&plfs, &path));
        let committing = Arc::new(Mutex::new(None));
        let slot = committing.clone();
        store.before(".data", Op::WriteAt, move || {
            *slot.lock().unwrap() = Some(std::thread::spawn(move || committer.commit().unwrap()));
            // Until it waits for the write, which has its bytes on the way and no record yet.
            std::thread::sleep(Duration::from_millis(100));
        });
        let pieces = (1..).find(|piece| {
            assert_eq!(file.write_at(&[1; 8192], (piece - 1) * 8192).unwrap(), 8192);
            committing.lock().unwrap().is_some()
        });
        committing.lock().unwrap().take().unwrap().join().unwrap();
        let size = pieces.unwrap() * 8192;
        assert_eq!((file.len().unwrap(), open(&other, &path).len().unwrap()), (size, size));
        open(&other, &path).set_len(5).unwrap();
        assert_eq!(file.len().unwrap(), 5);
    });
}

/// The background commit held a file that its program was closing, so the last to let go was its
/// thread: close returned before the open mark was gone and the summary written, and a program that
/// ended then left the mark, as if it had been killed. One in ten checkpoints on a busy CephFS was
/// read by its index logs for that reason.
#[test]
fn a_close_is_over_when_it_returns_though_the_background_commit_looks() {
    in_time(|| {
        let (dir, store) = (Scratch::new(), FaultStore::new(Arc::new(PosixStore::new())));
        let plfs = Plfs::new(Arc::new(store.clone()), dir.config());
        let file = open(&plfs, &dir.0.join("f"));
        assert_eq!(file.write_at(b"x", 0).unwrap(), 1);
        // The background commit comes after 1 s and waits for this sync, which has the writer.
        store.before(".data", Op::SyncData, || std::thread::sleep(Duration::from_millis(1500)));
        store.before(".open", Op::Unlink, || std::thread::sleep(Duration::from_millis(300)));
        file.sync().unwrap();
        file.close().unwrap();
        assert_eq!(files(&dir, ".open"), 0);
    });
}

/// Threads write blocks of their own through one handle, through handles of their own and through
/// another process's, while others read, commit, sync, extend and flatten. All end, readers see
/// only zeros and what was written, and in the end every block is the last that its thread wrote.
/// (In the original two threads of one process corrupted 1,932 of 8,000 blocks.)
#[test]
fn threads_on_one_file_keep_their_blocks() {
    const THREADS: u64 = 6;
    const BLOCK: usize = 700;
    const BLOCKS: u64 = 60;
    in_time(|| {
        for memory in [false, true] {
            let dir = Scratch::new();
            let store: Arc<dyn Store> =
                if memory { Arc::new(MemStore::new()) } else { Arc::new(PosixStore::new()) };
            let path = if memory { PathBuf::from("/f") } else { dir.0.join("f") };
            let (one, two) =
                (Plfs::new(store.clone(), dir.config()), Plfs::new(store.clone(), dir.config()));
            let shared = open(&one, &path);
            let ended = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let writers: Vec<_> = (0..THREADS)
                    .map(|thread| {
                        let (shared, one, two, path) = (&shared, &one, &two, &path);
                        scope.spawn(move || {
                            let own = (thread % 3 > 0)
                                .then(|| open(if thread % 3 == 1 { one } else { two }, path));
                            let file = own.as_ref().unwrap_or(shared);
                            let mut rng = Rng::new(thread);
                            for turn in 0..20u8 {
                                for block in 0..BLOCKS {
                                    let at = (block * THREADS + thread) * BLOCK as u64;
                                    assert_eq!(
                                        file.write_at(&[turn + 1; BLOCK], at).unwrap(),
                                        BLOCK
                                    );
                                    if rng.one_in(50) {
                                        file.commit().unwrap();
                                    }
                                    if rng.one_in(50) {
                                        let mut bytes = [0; BLOCK];
                                        assert_eq!(file.read_at(&mut bytes, at).unwrap(), BLOCK);
                                        assert_eq!(
                                            bytes,
                                            [turn + 1; BLOCK],
                                            "own writes are seen at once"
                                        );
                                    }
                                }
                            }
                            file.commit().unwrap();
                        })
                    })
                    .collect();
                for reader in 0..2 {
                    let (shared, two, path, ended) = (&shared, &two, &path, &ended);
                    scope.spawn(move || {
                        let own = (reader > 0).then(|| open(two, path));
                        let file = own.as_ref().unwrap_or(shared);
                        let (mut rng, mut bytes) = (Rng::new(99), vec![0; 5000]);
                        while !ended.load(Ordering::Relaxed) {
                            let n = file
                                .read_at(&mut bytes, rng.below(THREADS * BLOCKS * BLOCK as u64))
                                .unwrap();
                            assert!(bytes[..n].iter().all(|byte| *byte <= 20));
                            if rng.one_in(10) {
                                file.refresh().unwrap();
                            }
                        }
                    });
                }
                let (shared, one, path, ended_here) = (&shared, &one, &path, &ended);
                scope.spawn(move || {
                    let mut size = 1 << 20;
                    while !ended_here.load(Ordering::Relaxed) {
                        size += 1;
                        shared.set_len(size).unwrap();
                        shared.sync().unwrap();
                        one.flatten(path).unwrap();
                        assert!(shared.len().unwrap() >= 1 << 20);
                    }
                });
                for writer in writers {
                    writer.join().unwrap();
                }
                ended.store(true, Ordering::Relaxed);
            });
            shared.close().unwrap();
            let file = open(&Plfs::new(store, dir.config()), &path);
            let mut bytes = vec![0; (THREADS * BLOCKS) as usize * BLOCK];
            assert_eq!(file.read_at(&mut bytes, 0).unwrap(), bytes.len());
            assert_eq!(bytes.iter().position(|byte| *byte != 20), None);
        }
    });
}

/// Sixty-four writers on one node share one index log and no more data logs than the file has
/// streams; all they wrote is there.
#[test]
fn sixty_four_writers_make_few_logs() {
    let dir = Scratch::new();
    let path = dir.0.join("f");
    let all = Barrier::new(64);
    in_time(|| {
        std::thread::scope(|scope| {
            for writer in 0..64u64 {
                let (dir, path, all) = (&dir, &path, &all);
                scope.spawn(move || {
                    let file = open(&Plfs::posix(dir.config()), path);
                    for i in 0..50 {
                        file.write_at(&[writer as u8 + 1; 500], (i * 64 + writer) * 500).unwrap();
                    }
                    // All have it open at once.
                    all.wait();
                    file.close().unwrap();
                });
            }
        });
    });
    assert!(
        files(&dir, ".data") <= usize::from(Config::shared().streams),
        "{} data logs",
        files(&dir, ".data")
    );
    assert_eq!(files(&dir, "/index"), 1);
    let (file, mut bytes) = (open(&Plfs::posix(dir.config()), &path), vec![0; 64 * 50 * 500]);
    assert_eq!(file.read_at(&mut bytes, 0).unwrap(), bytes.len());
    assert_eq!(
        bytes
            .chunks(500)
            .enumerate()
            .find(|(i, chunk)| chunk.iter().any(|byte| *byte != (i % 64) as u8 + 1)),
        None
    );
}

/// A store far away, whose data logs and listings take their time. Counts the bytes that it was
/// given.
#[derive(Debug)]
struct Slow {
    inner: MemStore,
    taken: Arc<AtomicI64>,
}

#[derive(Debug)]
struct SlowFile {
    inner: Arc<dyn StoreFile>,
    taken: Option<Arc<AtomicI64>>,
}

impl Store for Slow {
    fn open(&self, path: &Path, how: Open) -> Result<Arc<dyn StoreFile>> {
        let taken = path.to_string_lossy().ends_with(".data").then(|| self.taken.clone());
        Ok(Arc::new(SlowFile { inner: self.inner.open(path, how)?, taken }))
    }
    fn stat(&self, path: &Path, links: Links) -> Result<Stat> {
        self.inner.stat(path, links)
    }
    fn list(&self, path: &Path) -> Result<Vec<Entry>> {
        let jitter = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |now| now.subsec_nanos() / 64 % 500);
        std::thread::sleep(Duration::from_micros(u64::from(jitter)));
        self.inner.list(path)
    }
    plfs_testkit::delegate_names!(inner);
    fn is_local(&self, _path: &Path) -> bool {
        false
    }
    fn boot(&self, path: &Path) -> Option<u64> {
        self.inner.boot(path)
    }
}

impl StoreFile for SlowFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        self.inner.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<usize> {
        if self.taken.is_some() {
            std::thread::sleep(Duration::from_millis(5));
        }
        let n = self.inner.write_at(buf, offset)?;
        if let Some(taken) = &self.taken {
            taken.fetch_add(n as i64, Ordering::SeqCst);
        }
        Ok(n)
    }
    plfs_testkit::delegate_file!(inner);
}

/// The most that `files` files of one process hold back with a buffer of 1 MiB on slow storage.
fn held_back(files: usize) -> i64 {
    let taken = Arc::new(AtomicI64::new(0));
    let store = Slow { inner: MemStore::new(), taken: taken.clone() };
    let plfs = Plfs::new(
        Arc::new(store),
        Config { shared_memory: None, buffer_bytes: 1 << 20, ..Config::shared() },
    );
    let files: Vec<File> =
        (0..files).map(|i| open(&plfs, &PathBuf::from(format!("/f{i}")))).collect();
    let (mut given, mut most) = (0, 0);
    for i in 0..4000u64 {
        files[i as usize % files.len()].write_at(&[7; 3000], i * 3000).unwrap();
        given += 3000;
        most = most.max(given - taken.load(Ordering::SeqCst));
    }
    files.into_iter().for_each(|file| file.close().unwrap());
    assert_eq!(taken.load(Ordering::SeqCst), given, "everything arrived");
    most
}

/// A writer that is faster than its storage waits: it never holds back more than the configured
/// buffer.
#[test]
fn a_fast_writer_holds_back_no_more_than_its_buffer() {
    let most = in_time(|| held_back(1));
    assert!(most <= (1 << 20) + 3000, "{most} bytes held back");
    assert!(most > 100_000, "{most} bytes: it does not write behind");
}

/// The bound is the process's, all files together.
#[test]
fn many_files_hold_back_no_more_than_one_buffer() {
    let most = in_time(|| held_back(16));
    assert!(most <= (1 << 20) + 16 * 3000, "{most} bytes held back");
}

/// Eight processes append a thousand lines each to one file at once: each line is there once and
/// whole. (In the original O_APPEND lost lines.)
#[test]
fn appends_of_many_processes_lose_nothing() {
    const VARIABLE: &str = "PLFS_TEST_APPEND";
    if let Ok(child) = std::env::var(VARIABLE) {
        let (number, root) = child.split_once(' ').unwrap();
        let config =
            Config { shared_memory: Some(Path::new(root).join("shm")), ..Config::shared() };
        let file = open(&Plfs::posix(config), &Path::new(root).join("f"));
        for i in 0..1000 {
            let line = format!("process {number} line {i} {}\n", "x".repeat(i % 50));
            assert_eq!(file.append(line.as_bytes()).unwrap().1, line.len());
        }
        return file.close().unwrap();
    }
    let dir = Scratch::new();
    let children: Vec<_> = (0..8)
        .map(|i| {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", "appends_of_many_processes_lose_nothing", "--test-threads=1"]);
            command
                .env(VARIABLE, format!("{i} {}", dir.0.display()))
                .stdout(std::process::Stdio::null())
                .spawn()
                .unwrap()
        })
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let file = open(&Plfs::posix(dir.config()), &dir.0.join("f"));
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_at(&mut bytes, 0).unwrap();
    let mut lines: Vec<&str> = std::str::from_utf8(&bytes).unwrap().lines().collect();
    let mut expected: Vec<String> = (0..8)
        .flat_map(|p| {
            (0..1000).map(move |i| format!("process {p} line {i} {}", "x".repeat(i % 50)))
        })
        .collect();
    lines.sort_unstable();
    expected.sort_unstable();
    assert_eq!(lines.len(), expected.len());
    assert!(lines == expected);
}

/// Several nodes close at the same moment, and each finds that nobody is left: one of their
/// summaries counts. (On CephFS one wrote its summary over that of a later token, and every
/// reader went through the logs.)
#[test]
fn of_nodes_that_close_together_one_leaves_a_summary() {
    let memory = MemStore::new();
    memory.mkdir(Path::new("/m"), 0o755).unwrap();
    let store = || Slow { inner: memory.clone(), taken: Arc::default() };
    let node = || Plfs::new(Arc::new(store()), Config { shared_memory: None, ..Config::shared() });
    let mut without = 0;
    for round in 0..100 {
        let path = PathBuf::from(format!("/m/{round}"));
        let barrier = Barrier::new(4);
        std::thread::scope(|scope| {
            for i in 0..4u64 {
                let (plfs, path, barrier) = (node(), &path, &barrier);
                scope.spawn(move || {
                    let file = open(&plfs, path);
                    file.write_at(&[i as u8; 10], i * 10).unwrap();
                    barrier.wait();
                    file.close().unwrap();
                });
            }
        });
        let totals = node().stat(&path, Links::Follow).unwrap().totals.unwrap();
        assert_eq!((totals.size, totals.log_sets), (40, 4), "round {round}");
        without += u32::from(!totals.from_summary);
    }
    assert!(without <= 2, "{without} of 100 files have no summary");
}
