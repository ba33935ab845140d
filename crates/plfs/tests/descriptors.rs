//! What open files cost in descriptors, and what happens when there are none left. Each test lowers
//! the limit of a process of its own.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use plfs::store::{
    Entry, Errno, Keep, Links, Open, Place, PosixStore, Result, Stat, Store, StoreFile,
};
use plfs::{Config, File, OpenOptions, Opened, Plfs};
use plfs_testkit::{FaultStore, Op, delegate_names, explored};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const VARIABLE: &str = "PLFS_TEST_DESCRIPTORS";

/// Runs `body` in a process of test `name` that may have `limit` files open. It gets a directory.
fn with_limit(name: &str, limit: u64, body: impl FnOnce(&Path)) {
    if let Some(dir) = std::env::var_os(VARIABLE) {
        let allowed = Rlimit { current: Some(limit), ..getrlimit(Resource::Nofile) };
        setrlimit(Resource::Nofile, allowed).unwrap();
        return body(Path::new(&dir));
    }
    let dir = PathBuf::from(format!("/dev/shm/plfs-descriptors-{}-{name}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(VARIABLE, &dir)
        .output()
        .unwrap();
    fs::remove_dir_all(&dir).unwrap();
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Descriptors of this process.
fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count() - 1
}

fn process() -> Plfs {
    Plfs::posix(Config::shared())
}

fn open(plfs: &Plfs, path: &Path) -> File {
    match plfs.open(path, OpenOptions::create()).unwrap() {
        Opened::Logical(file) => file,
        Opened::Plain(_) => panic!("{} is plain", path.display()),
    }
}

fn content(plfs: &Plfs, path: &Path, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    assert_eq!(open(plfs, path).read_at(&mut bytes, 0).unwrap(), length);
    bytes
}

/// A file of `logs` data logs, 10 bytes in each.
fn file_of_many_logs(path: &Path, logs: usize) {
    // At the same time, so that each has a log set of its own.
    let config = Config { shared_memory: None, streams: 1, ..Config::shared() };
    let plfs: Vec<Plfs> = (0..logs).map(|_| Plfs::posix(config.clone())).collect();
    let files: Vec<File> = plfs.iter().map(|plfs| open(plfs, path)).collect();
    for (i, file) in files.iter().enumerate() {
        file.write_at(&[i as u8; 10], i as u64 * 10).unwrap();
        file.commit().unwrap();
    }
    files.into_iter().for_each(|file| file.close().unwrap());
}

/// A file that was open for writing took five or six descriptors: a process with the usual limit of
/// 1,024 could have some 170. Now it takes two, its container's directory and the page that it
/// shares with the node; logs are kept open in common.
#[test]
fn four_hundred_files_are_written_below_the_usual_limit() {
    with_limit("four_hundred_files_are_written_below_the_usual_limit", 1024, |dir| {
        const FILES: usize = 400;
        const CACHED: usize = 1024 / 8;
        let (plfs, before) = (process(), descriptors());
        let path = |i: usize| dir.join(format!("f{i}"));
        let files: Vec<File> = (0..FILES).map(|i| open(&plfs, &path(i))).collect();
        let mut expected = vec![Vec::new(); FILES];
        for round in 0..3u8 {
            for (i, (file, expected)) in files.iter().zip(&mut expected).enumerate() {
                // Short ones are buffered, long ones go to the log at once.
                for length in [64, 20_000] {
                    let bytes = vec![round ^ i as u8; length];
                    file.write_at(&bytes, expected.len() as u64).unwrap();
                    expected.extend(bytes);
                }
                match i % 3 {
                    0 => file.sync().unwrap(),
                    _ => file.commit().unwrap(),
                }
            }
            let open = descriptors();
            assert!(open <= before + 2 * FILES + CACHED, "{open}, {before} of them before");
            // The program can still open what it wants.
            let others: Vec<_> = (0..64).map(|_| fs::File::open("/dev/null").unwrap()).collect();
            drop(others);
            for (file, expected) in files.iter().zip(&expected) {
                let mut bytes = vec![0; expected.len()];
                assert_eq!(file.read_at(&mut bytes, 0).unwrap(), expected.len());
                assert!(bytes == *expected);
            }
        }
        files.into_iter().for_each(|file| file.close().unwrap());
        assert!(descriptors() <= before + CACHED);
        let other = process();
        for (i, expected) in expected.iter().enumerate() {
            assert!(content(&other, &path(i), expected.len()) == *expected, "f{i}");
        }
        drop((plfs, other));
    });
}

/// Each file that was read kept up to 64 data logs open.
#[test]
fn many_files_of_many_logs_are_read_with_few_descriptors() {
    with_limit("many_files_of_many_logs_are_read_with_few_descriptors", 256, |dir| {
        const LOGS: usize = 40;
        let path = |i: usize| dir.join(format!("f{i}"));
        (0..10).for_each(|i| file_of_many_logs(&path(i), LOGS));
        let (plfs, before) = (process(), descriptors());
        let files: Vec<File> = (0..10).map(|i| open(&plfs, &path(i))).collect();
        let expected: Vec<u8> = (0..LOGS * 10).map(|i| (i / 10) as u8).collect();
        for _ in 0..3 {
            for file in &files {
                let mut bytes = vec![0; expected.len()];
                assert_eq!(file.read_at(&mut bytes, 0).unwrap(), expected.len());
                assert_eq!(bytes, expected);
            }
            let open = descriptors();
            assert!(open <= before + 2 * files.len() + 256 / 8, "{open}, {before} before");
        }
    });
}

/// A reader that went through more data logs than stay open closed all of them, those too that it
/// read all the time, and opened them again one by one.
#[test]
fn a_data_log_that_is_read_often_stays_open() {
    with_limit("a_data_log_that_is_read_often_stays_open", 512, |dir| {
        const LOGS: usize = 100;
        let path = dir.join("f");
        file_of_many_logs(&path, LOGS);
        let store = FaultStore::new(Arc::new(PosixStore::new()));
        let plfs = Plfs::new(Arc::new(store.clone()), Config::shared());
        let file = open(&plfs, &path);
        let opens = || {
            let is_log = |path: &Path| path.extension().is_some_and(|end| end == "data");
            store.log().iter().filter(|call| call.op == Op::Open && is_log(&call.path)).count()
        };
        let mut bytes = [0; 10];
        for i in 1..LOGS as u64 {
            for offset in [0, i * 10] {
                assert_eq!(file.read_at(&mut bytes, offset).unwrap(), 10);
                assert_eq!(bytes, [(offset / 10) as u8; 10]);
            }
        }
        assert_eq!(opens(), LOGS, "the first of 100 data logs was opened more than once");
    });
}

/// A program that has used up its descriptors goes on with the files that it has open: that their
/// logs were closed to make room is no reason to fail where a plain file would not.
#[test]
fn who_has_no_descriptors_left_writes_and_syncs_open_files() {
    with_limit("who_has_no_descriptors_left_writes_and_syncs_open_files", 256, |dir| {
        let plfs = process();
        let path = |i: usize| dir.join(format!("f{i}"));
        let files: Vec<File> = (0..60).map(|i| open(&plfs, &path(i))).collect();
        for file in &files {
            file.write_at(b"some", 0).unwrap();
            file.commit().unwrap();
        }
        let (mut taken, mut more) = (Vec::new(), Vec::new());
        let mut take = || match fs::File::open("/dev/null") {
            Ok(file) => {
                taken.push(file);
                true
            }
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(Errno::MFILE.raw_os_error()));
                false
            }
        };
        // By plain files and by ours, to the last.
        let mut take_ours = || match plfs.open(&path(more.len() + 60), OpenOptions::create()) {
            Ok(Opened::Logical(file)) => {
                more.push(file);
                true
            }
            Ok(Opened::Plain(_)) => panic!("it is plain"),
            Err(error) => {
                assert_eq!(error.errno(), Errno::MFILE);
                false
            }
        };
        while take() || take_ours() {}
        while take() {}
        for _ in 0..2 {
            for file in &files {
                file.write_at(b"more", 4).unwrap();
                file.commit().unwrap();
                file.write_at(&[7; 20_000], 8).unwrap();
                file.sync().unwrap();
            }
        }
        // Whatever becomes free is taken at once, again and again.
        for _ in 0..1000 {
            take_ours();
            while take() {}
        }
        for file in &files {
            file.write_at(b"last", 20_008).unwrap();
            file.write_at(&[8; 20_000], 20_012).unwrap();
            file.commit().unwrap();
        }
        drop(taken);
        files.into_iter().for_each(|file| file.close().unwrap());
        for i in 0..60 {
            let bytes = content(&plfs, &path(i), 40_012);
            assert!(bytes.starts_with(b"somemore") && bytes[8..20_008] == [7; 20_000], "f{i}");
            assert!(bytes[20_008..].starts_with(b"last") && bytes[20_012..] == [8; 20_000]);
        }
    });
}

/// The real store, as one on which writes travel; closing a data log says that the quota is used up
/// as long as `is_full`.
#[derive(Clone, Debug)]
struct Remote {
    inner: Arc<dyn Store>,
    is_full: Arc<AtomicBool>,
}

#[derive(Debug)]
struct RemoteFile {
    inner: Arc<dyn StoreFile>,
    is_full: Arc<AtomicBool>,
    is_log: bool,
}

impl Store for Remote {
    fn open(&self, path: &Path, how: Open) -> Result<Arc<dyn StoreFile>> {
        Ok(Arc::new(RemoteFile {
            inner: self.inner.open(path, how)?,
            is_full: self.is_full.clone(),
            is_log: how.write && path.extension().is_some_and(|end| end == "data"),
        }))
    }
    fn stat(&self, path: &Path, links: Links) -> Result<Stat> {
        self.inner.stat(path, links)
    }
    fn list(&self, path: &Path) -> Result<Vec<Entry>> {
        self.inner.list(path)
    }
    delegate_names!(inner);
    fn kept_dir(&self) -> Option<Result<Arc<dyn StoreFile>>> {
        self.inner.kept_dir()
    }
    fn is_local(&self, _path: &Path) -> bool {
        false
    }
    fn boot(&self, path: &Path) -> Option<u64> {
        self.inner.boot(path)
    }
    fn inside(&self, places: Vec<Place>, keep: Keep) -> Option<Arc<dyn Store>> {
        Some(Arc::new(Remote { inner: self.inner.inside(places, keep)?, ..self.clone() }))
    }
}

impl StoreFile for RemoteFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        self.inner.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<usize> {
        self.inner.write_at(buf, offset)
    }
    fn flush(&self) -> Result<()> {
        match self.is_log && self.is_full.load(Ordering::Relaxed) {
            true => Err(Errno::DQUOT),
            false => self.inner.flush(),
        }
    }
    plfs_testkit::delegate_file!(inner);
    fn fd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        self.inner.fd()
    }
}

/// A program that has closed its standard input and error printed into its own data: where the
/// limit leaves no room for numbers of ours, logs and the superblock had those two.
#[test]
fn what_is_printed_to_a_closed_standard_error_goes_to_no_file_of_ours() {
    with_limit("what_is_printed_to_a_closed_standard_error_goes_to_no_file_of_ours", 40, |dir| {
        let plfs = process();
        for standard in [0, 2] {
            // SAFETY: nothing of this process uses it afterwards but what prints, which fails.
            unsafe { rustix::io::close(standard) };
        }
        let print = || {
            for standard in [0, 2] {
                // SAFETY: whether it is open is asked here.
                let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(standard) };
                assert_eq!(rustix::io::pwrite(fd, b"error", 0), Err(rustix::io::Errno::BADF));
            }
        };
        let path = dir.join("f");
        let file = open(&plfs, &path);
        print();
        for i in 0..40 {
            file.write_at(&[b'd'; 10], i * 10).unwrap();
            print();
        }
        file.sync().unwrap();
        print();
        let other = open(&plfs, &path);
        let mut bytes = [0; 400];
        assert_eq!(other.read_at(&mut bytes, 0).unwrap(), 400);
        print();
        file.close().unwrap();
        other.close().unwrap();
        print();
        assert_eq!(content(&plfs, &path, 400), [b'd'; 400]);
    });
}

/// S29 where writes travel: an open file took four descriptors there when it was written, two when
/// it was read. The two more were a sign for who removes the file, and its directory a second time.
#[test]
fn on_a_network_file_system_an_open_file_takes_no_more() {
    with_limit("on_a_network_file_system_an_open_file_takes_no_more", 256, |dir| {
        const FILES: usize = 20;
        const CACHED: usize = 256 / 8;
        let is_full = Arc::new(AtomicBool::new(false));
        let store = Remote { inner: Arc::new(PosixStore::new()), is_full };
        let plfs = Plfs::new(Arc::new(store), Config::shared());
        let path = |i: usize| dir.join(format!("f{i}"));
        let before = descriptors();
        let files: Vec<File> = (0..FILES).map(|i| open(&plfs, &path(i))).collect();
        for file in &files {
            file.write_at(&[1; 100], 0).unwrap();
            file.sync().unwrap();
        }
        let written = descriptors();
        assert!(written <= before + 2 * FILES + CACHED, "{written}, {before} of them before");
        files.into_iter().for_each(|file| file.close().unwrap());
        let before = descriptors();
        let files: Vec<File> = (0..FILES).map(|i| open(&plfs, &path(i))).collect();
        for file in &files {
            assert_eq!(file.read_at(&mut [0; 100], 0).unwrap(), 100);
        }
        let read = descriptors();
        assert!(read <= before + FILES + CACHED, "{read}, {before} of them before");
    });
}

/// S17 where writes travel, within a node: who has a file open goes on with it though another
/// process removes its last name. What says that somebody has it takes no descriptor.
#[test]
fn on_a_network_file_system_an_open_file_outlives_its_name() {
    with_limit("on_a_network_file_system_an_open_file_outlives_its_name", 256, |dir| {
        let is_full = Arc::new(AtomicBool::new(false));
        let store = Arc::new(Remote { inner: Arc::new(PosixStore::new()), is_full });
        let process = || Plfs::new(store.clone(), Config::shared());
        let (ours, theirs, path) = (process(), process(), dir.join("f"));
        let file = open(&ours, &path);
        file.write_at(&[1; 100], 0).unwrap();
        file.close().unwrap();
        let file = open(&ours, &path);
        assert_eq!(file.read_at(&mut [0; 100], 0).unwrap(), 100);
        let log = file.extents(0, 100).unwrap()[0].data_log.clone();
        theirs.unlink(&path).unwrap();
        assert!(log.exists());
        let mut bytes = [0; 100];
        assert_eq!(file.read_at(&mut bytes, 0).unwrap(), 100);
        assert_eq!(bytes, [1; 100]);
        file.close().unwrap();
        assert!(!log.exists());
    });
}

/// On a network file system close says what became of earlier writes. It says so too of a log that
/// is closed because others are open: the writer is told, though nothing that it does itself fails.
#[test]
fn what_closing_a_log_between_two_uses_says_is_not_lost() {
    with_limit("what_closing_a_log_between_two_uses_says_is_not_lost", 256, |dir| {
        for sync in [false, true] {
            let is_full = Arc::new(AtomicBool::new(false));
            let store = Remote { inner: Arc::new(PosixStore::new()), is_full: is_full.clone() };
            let plfs = Plfs::new(Arc::new(store), Config::shared());
            let path = |name: &str, i: usize| dir.join(format!("{name}{i}{sync}"));
            let file = open(&plfs, &path("f", 0));
            file.write_at(&[1; 100], 0).unwrap();
            file.commit().unwrap();
            is_full.store(true, Ordering::Relaxed);
            // 32 logs may be open.
            let others: Vec<File> = (0..25).map(|i| open(&plfs, &path("g", i))).collect();
            for file in &others {
                file.write_at(&[2; 100], 0).unwrap();
                file.commit().unwrap();
            }
            is_full.store(false, Ordering::Relaxed);
            let told = if sync { file.sync() } else { file.commit() };
            let closed = file.close();
            assert_eq!(told.and(closed).unwrap_err().errno(), Errno::DQUOT, "sync: {sync}");
            // Some of them lost their logs as well.
            others.into_iter().for_each(|file| drop(file.close()));
        }
    });
}

/// On a network file system the last close says what became of earlier writes, which had succeeded:
/// the quota is full. Close of the file dropped that, and returned 0 for bytes that were lost.
#[test]
fn what_the_last_close_of_a_log_says_is_not_lost() {
    with_limit("what_the_last_close_of_a_log_says_is_not_lost", 256, |dir| {
        for length in [100, 100_000] {
            let is_full = Arc::new(AtomicBool::new(false));
            let store = Remote { inner: Arc::new(PosixStore::new()), is_full: is_full.clone() };
            let plfs = Plfs::new(Arc::new(store), Config::shared());
            let file = open(&plfs, &dir.join(format!("f{length}")));
            file.write_at(&vec![1; length], 0).unwrap();
            file.commit().unwrap();
            is_full.store(true, Ordering::Relaxed);
            assert_eq!(file.close().unwrap_err().errno(), Errno::DQUOT);
        }
    });
}

/// What is opened again is the log that was closed, or the writer gets an error: bytes must not go
/// to a file that no record points to.
#[test]
fn a_log_that_is_not_the_same_any_more_is_not_written() {
    with_limit("a_log_that_is_not_the_same_any_more_is_not_written", 256, |dir| {
        for is_replaced in [false, true] {
            let plfs = process();
            let path = |name: &str, i: usize| dir.join(format!("{name}{i}{is_replaced}"));
            let file = open(&plfs, &path("f", 0));
            file.write_at(&[1; 20_000], 0).unwrap();
            file.commit().unwrap();
            let log = file.extents(0, 100).unwrap()[0].data_log.clone();
            let others: Vec<File> = (0..25).map(|i| open(&plfs, &path("g", i))).collect();
            for file in &others {
                file.write_at(&[2; 100], 0).unwrap();
                file.commit().unwrap();
            }
            let was = fs::metadata(&log).unwrap();
            fs::rename(&log, log.with_extension("away")).unwrap();
            if is_replaced {
                fs::write(&log, b"another").unwrap();
                assert_ne!(fs::metadata(&log).unwrap().ino(), was.ino());
            }
            let error = file.write_at(&[3; 20_000], 20_000).unwrap_err();
            let expected = if is_replaced { Errno::STALE } else { Errno::NOENT };
            assert_eq!(error.errno(), expected, "{error}");
            assert!(error.to_string().contains("open the data log again"), "{error}");
            if is_replaced {
                assert_eq!(fs::read(&log).unwrap(), b"another");
            }
            fs::rename(log.with_extension("away"), &log).unwrap();
            file.write_at(&[3; 20_000], 20_000).unwrap();
            file.close().unwrap();
            assert_eq!(content(&plfs, &path("f", 0), 40_000)[20_000..], [3; 20_000]);
        }
    });
}

/// What a killed process had written lies in the node's memory, and the next that looks carries it
/// to the logs. Who found no descriptor to look there, beside threads that take and free them, took
/// the file for one without it, and read less than a write had returned for.
#[test]
fn what_the_dead_wrote_is_read_or_an_error_where_there_is_no_descriptor() {
    const NAME: &str = "what_the_dead_wrote_is_read_or_an_error_where_there_is_no_descriptor";
    const WRITER: &str = "PLFS_TEST_DESCRIPTORS_WRITER";
    const FILES: usize = 150;
    with_limit(NAME, 512, |dir| {
        let path = |i: usize| dir.join(format!("f{i}"));
        if std::env::var_os(WRITER).is_some() {
            let plfs = process();
            let files: Vec<File> = (0..FILES).map(|i| open(&plfs, &path(i))).collect();
            files.iter().for_each(|file| _ = file.write_at(&[7; 222], 0).unwrap());
            std::process::abort();
        }
        let killed = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", NAME, "--test-threads=1"])
            .env(WRITER, "")
            .output()
            .unwrap();
        assert!(killed.status.code().is_none(), "{killed:?}");
        let is_over = AtomicBool::new(false);
        let fill = || std::iter::from_fn(|| fs::File::open("/dev/null").ok()).collect::<Vec<_>>();
        let mut taken = fill();
        taken.truncate(taken.len() - 12);
        let read_all = || {
            let (plfs, mut read, mut refused) = (process(), 0, 0);
            for i in 0..FILES {
                for _ in 0..50 {
                    let mut bytes = [0; 300];
                    let found = plfs.open(&path(i), OpenOptions::read()).and_then(|opened| {
                        let Opened::Logical(file) = opened else { panic!("it is plain") };
                        file.read_at(&mut bytes, 0)
                    });
                    match found {
                        Ok(n) => {
                            assert_eq!(n, 222, "f{i}");
                            assert_eq!(bytes[..222], [7; 222], "f{i}");
                            read += 1;
                            break;
                        }
                        Err(error) => assert_eq!(error.errno(), Errno::MFILE, "{error}"),
                    }
                    refused += 1;
                }
            }
            (read, refused)
        };
        let (read, refused) = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    drop(fill());
                    std::thread::yield_now();
                }
            });
            let reading = scope.spawn(read_all).join();
            is_over.store(true, Ordering::Relaxed);
            reading.unwrap()
        });
        drop(taken);
        assert!(read > 0);
        explored(refused, "opens beside threads that take the descriptors");
        for i in 0..FILES {
            assert_eq!(content(&process(), &path(i), 222), [7; 222], "f{i}");
        }
    });
}

/// What a process writes is in its journal until it commits, for who comes after a SIGKILL. One
/// that found no descriptor to make it with went on without one for good, so that all which it
/// wrote between two commits went with it. A write that finds none fails now.
#[test]
fn what_is_written_where_there_are_few_descriptors_outlives_its_process() {
    const NAME: &str = "what_is_written_where_there_are_few_descriptors_outlives_its_process";
    const WRITER: &str = "PLFS_TEST_DESCRIPTORS_WRITER";
    with_limit(NAME, 512, |dir| {
        let path = |i: usize| dir.join(format!("f{i}"));
        if std::env::var_os(WRITER).is_some() {
            let (plfs, mut files) = (process(), Vec::new());
            for i in 0..100 {
                let file = open(&plfs, &path(i));
                let all = || std::iter::from_fn(|| fs::File::open("/dev/null").ok());
                let mut taken: Vec<_> = all().collect();
                taken.truncate(taken.len() - i % 10);
                match file.write_at(&[7; 222], 0) {
                    Ok(written) => print!("f{i}={written} "),
                    Err(error) => assert_eq!(error.errno(), Errno::MFILE, "{error}"),
                }
                files.push(file);
            }
            std::io::Write::flush(&mut std::io::stdout()).unwrap();
            std::process::abort();
        }
        let killed = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", NAME, "--test-threads=1", "--nocapture"])
            .env(WRITER, "")
            .output()
            .unwrap();
        assert!(killed.status.code().is_none(), "{killed:?}");
        let said = String::from_utf8(killed.stdout).unwrap();
        let written = (0..100).filter(|i| said.contains(&format!("f{i}=222 "))).collect::<Vec<_>>();
        assert!(written.len() > 20, "{said}");
        for i in written {
            assert_eq!(content(&process(), &path(i), 222), [7; 222], "f{i}");
        }
    });
}
