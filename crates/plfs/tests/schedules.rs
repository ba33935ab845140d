//! Schedules of threads, explored: which of several threads goes on at each lock, atomic and call
//! on the store is decided by a seed. What SEMANTICS says must hold in each of them.
//!
//! Runs in a build of its own, in which `crates/plfs/src/sync.rs` has the locks of the crate
//! `shuttle`: `tests/run schedules`. `PLFS_SCHEDULES=100000` explores so many for each test,
//! `PLFS_SEED` begins at that seed instead of a fresh one. Half are random walks; the other half
//! give threads priorities that change at a few moments (PCT), which finds what needs few changes.

use std::any::Any;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use plfs::store::{self, Errno, Keep, Links, Open, Place, Size, Stat, Store, StoreFile};
use plfs::{Config, File, OpenOptions, Opened, Plfs};
use plfs_testkit::{FaultStore, MemStore, Op, explored, rounds, seed};
use shuttle::scheduler::{PctScheduler, RandomScheduler, RoundRobinScheduler, Scheduler};
use shuttle::thread;

const PATH: &str = "/m/f";

/// One more than the changes of priority in a PCT schedule. 3: few bugs need more than two
/// (Burckhardt and others, "A Randomized Scheduler with Probabilistic Guarantees of Finding Bugs",
/// 2010).
const DEPTH: usize = 3;

/// Explores schedules of `test`; a failure says by which seed it is found again.
fn explore(test: impl Fn() + Send + Sync + 'static) {
    explore_one_of(1, test);
}

/// [`explore`] for a test that has so many cases.
fn explore_one_of(cases: u64, test: impl Fn() + Send + Sync + 'static) {
    let (number, seed) = (rounds("PLFS_SCHEDULES", 200) / cases, seed());
    let test = Arc::new(test);
    // What a process asks for once and then knows is no part of the schedules that follow, so that
    // they do not depend on what ran before.
    run(RoundRobinScheduler::new(1), &test);
    run(RandomScheduler::new_from_seed(seed, number as usize / 2), &test);
    run(PctScheduler::new_from_seed(seed, DEPTH, number as usize / 2), &test);
    explored(number / 2 * 2, "schedules of threads");
}

fn run(scheduler: impl Scheduler + 'static, test: &Arc<impl Fn() + Send + Sync + 'static>) {
    let mut config = shuttle::Config::new();
    config.stack_size = 1 << 20;
    config.max_steps = shuttle::MaxSteps::FailAfter(200_000);
    config.failure_persistence = shuttle::FailurePersistence::None;
    config.silence_warnings = true;
    let (test, done) = (test.clone(), Arc::new(AtomicU64::new(0)));
    let count = done.clone();
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        shuttle::Runner::new(scheduler, config).run(move || {
            count.fetch_add(1, Ordering::Relaxed);
            test();
        })
    }));
    if let Err(panic) = outcome {
        println!("in schedule {} of this seed", done.load(Ordering::Relaxed));
        resume_unwind(panic);
    }
}

/// Another thread may come before each call on what is in it.
#[derive(Debug)]
struct Step<T: ?Sized>(Arc<T>);

impl<T: ?Sized> Deref for Step<T> {
    type Target = T;

    fn deref(&self) -> &T {
        shuttle::sync::atomic::AtomicBool::new(false).load(Ordering::Relaxed);
        &self.0
    }
}

#[derive(Debug)]
struct Stepping {
    inner: Step<dyn Store>,
    local: bool,
}

impl Store for Stepping {
    fn open(&self, path: &Path, how: Open) -> store::Result<Arc<dyn StoreFile>> {
        Ok(Arc::new(SteppingFile(Step(self.inner.open(path, how)?))))
    }
    fn stat(&self, path: &Path, links: Links) -> store::Result<Stat> {
        self.inner.stat(path, links)
    }
    fn list(&self, path: &Path) -> store::Result<Vec<store::Entry>> {
        self.inner.list(path)
    }
    plfs_testkit::delegate_names!(inner);
    fn inside(&self, places: Vec<Place>, keep: Keep) -> Option<Arc<dyn Store>> {
        let inner = Step(self.inner.inside(places, keep)?);
        Some(Arc::new(Stepping { inner, local: self.local }))
    }
    fn is_local(&self, _path: &Path) -> bool {
        self.local
    }
    fn boot(&self, path: &Path) -> Option<u64> {
        self.inner.boot(path)
    }
}

#[derive(Debug)]
struct SteppingFile(Step<dyn StoreFile>);

impl StoreFile for SteppingFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> store::Result<usize> {
        self.0.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> store::Result<usize> {
        self.0.write_at(buf, offset)
    }
    plfs_testkit::delegate_file!(0);
}

fn memory() -> MemStore {
    let memory = MemStore::new();
    memory.mkdir(Path::new("/m"), 0o755).unwrap();
    memory.sync_dir(Path::new("/")).unwrap();
    memory
}

/// One log, and buffers of 32 KiB.
fn config() -> Config {
    Config { streams: 1, buffer_bytes: 64 << 10, shared_memory: None, ..Config::shared() }
}

fn process(store: Arc<dyn Store>, local: bool) -> Arc<Plfs> {
    Arc::new(Plfs::new(Arc::new(Stepping { inner: Step(store), local }), config()))
}

fn open(plfs: &Plfs) -> File {
    match plfs.open(Path::new(PATH), OpenOptions::create()).unwrap() {
        Opened::Logical(file) => file,
        Opened::Plain(_) => panic!("it is plain"),
    }
}

fn read(file: &File, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let n = file.read_at(&mut bytes, offset).unwrap();
    bytes.truncate(n);
    bytes
}

/// What a process that comes later finds.
fn content(store: &MemStore) -> Vec<u8> {
    let plfs = Plfs::new(Arc::new(store.clone()), config());
    let Opened::Logical(file) = plfs.open(Path::new(PATH), OpenOptions::read()).unwrap() else {
        panic!("it is plain")
    };
    read(&file, 0, 1 << 20)
}

/// Names in the container that end so.
fn names(store: &MemStore, end: &str) -> usize {
    let mut todo = vec![PathBuf::from("/m/.plfs")];
    let mut found = 0;
    while let Some(dir) = todo.pop() {
        for entry in store.list(&dir).unwrap() {
            found += usize::from(entry.name.to_string_lossy().ends_with(end));
            if entry.kind == Some(store::Kind::Dir) {
                todo.push(dir.join(&entry.name));
            }
        }
    }
    found
}

/// Runs the threads, and gives on what one of them panicked with.
fn together(threads: Vec<Box<dyn FnOnce() + Send>>) {
    let threads: Vec<_> = threads.into_iter().map(thread::spawn).collect();
    let panics: Vec<Box<dyn Any + Send>> =
        threads.into_iter().filter_map(|thread| thread.join().err()).collect();
    if let Some(panic) = panics.into_iter().next() {
        resume_unwind(panic);
    }
}

/// S1, S12: each thread sees what it wrote, and what it wrote before it synced survives a power
/// cut, whatever the other two write and sync meanwhile.
#[test]
fn threads_write_and_sync_one_file() {
    explore(|| {
        let memory = memory();
        let plfs = process(Arc::new(memory.clone()), true);
        let file = Arc::new(open(&plfs));
        let writer = |at: u64, byte: u8| {
            let (file, memory) = (file.clone(), memory.clone());
            Box::new(move || {
                for round in 1..3u8 {
                    file.write_at(&[byte + round; 100], at).unwrap();
                    assert_eq!(read(&file, at, 100), [byte + round; 100]);
                    file.sync().unwrap();
                    let after = content(&memory.crash());
                    assert_eq!(after[at as usize..][..100], [byte + round; 100]);
                }
            }) as Box<dyn FnOnce() + Send>
        };
        let syncer = file.clone();
        together(vec![writer(0, 10), writer(100, 20), Box::new(move || syncer.sync().unwrap())]);
        let mut expect = vec![12; 100];
        expect.extend([22; 100]);
        assert_eq!(read(&file, 0, 1000), expect);
        drop(file);
        assert_eq!(content(&memory), expect);
        assert_eq!(names(&memory, ".open"), 0);
    });
}

/// S12: a write that skips the buffer is under way, without a lock, while another thread syncs. It
/// counted as not durable before it was there: that sync took it for its own, and the writer's sync
/// made durable what points to it, and not the bytes.
#[test]
fn a_large_write_meets_a_sync() {
    explore(|| {
        let memory = memory();
        let plfs = process(Arc::new(memory.clone()), true);
        let file = Arc::new(open(&plfs));
        file.write_at(&[1; 100], 0).unwrap();
        let (writer, syncer, cut) = (file.clone(), file.clone(), memory.clone());
        together(vec![
            Box::new(move || {
                writer.write_at(&[2; 40 << 10], 100).unwrap();
                writer.sync().unwrap();
                assert_eq!(content(&cut.crash())[100..], [2; 40 << 10]);
            }),
            Box::new(move || syncer.sync().unwrap()),
        ]);
        drop(file);
        assert_eq!(content(&memory).len(), 100 + (40 << 10));
    });
}

/// S7, S20: a write and a truncate of two threads come one after the other, for all and for ever,
/// and what is written after the truncate is there.
#[test]
fn a_write_meets_a_truncate() {
    explore(|| {
        let memory = memory();
        let plfs = process(Arc::new(memory.clone()), true);
        let file = Arc::new(open(&plfs));
        file.write_at(&[1; 100], 0).unwrap();
        let (writer, cutter) = (file.clone(), file.clone());
        together(vec![
            Box::new(move || {
                writer.write_at(&[2; 50], 50).unwrap();
            }),
            Box::new(move || {
                cutter.set_len(60).unwrap();
                cutter.write_at(&[3; 10], 0).unwrap();
                assert_eq!(read(&cutter, 0, 10), [3; 10]);
            }),
        ]);
        let seen = read(&file, 0, 1000);
        assert_eq!(seen[..10], [3; 10]);
        assert_eq!(seen[10..50], [1; 40]);
        // The write is whole, or cut at 60.
        assert_eq!(seen[50..60], [2; 10]);
        assert!(seen.len() == 60 || seen.len() == 100 && seen[60..] == [2; 40], "{}", seen.len());
        assert_eq!(file.len().unwrap(), seen.len() as u64);
        drop(file);
        assert_eq!(content(&memory), seen);
    });
}

/// A truncate took what was written until then into the logs, and then its place in the order; a
/// write of another thread could come between. If that began a record, the next write behind it,
/// which came after the truncate and went on with the record, was cut with it (S7). And until the
/// next commit the file was as long as if nothing had been cut.
#[test]
fn a_truncate_cuts_nothing_that_is_written_after_it() {
    explore(|| {
        let memory = memory();
        let plfs = process(Arc::new(memory.clone()), true);
        let file = Arc::new(open(&plfs));
        let (writer, cutter) = (file.clone(), file.clone());
        together(vec![
            Box::new(move || {
                writer.write_at(&[1; 10], 60).unwrap();
            }),
            Box::new(move || cutter.set_len(50).unwrap()),
        ]);
        // No read, which would end the record.
        let cut = match file.len().unwrap() {
            50 => true,
            70 => false,
            len => panic!("{len} bytes"),
        };
        file.write_at(&[2; 10], 70).unwrap();
        assert_eq!(read(&file, 60, 1000)[..10], if cut { [0; 10] } else { [1; 10] });
        assert_eq!(read(&file, 70, 1000), [2; 10]);
        drop(file);
        assert_eq!(content(&memory)[70..], [2; 10]);
    });
}

/// S11: appends of two threads never overlap and leave no gap.
#[test]
fn appends_meet_appends() {
    explore(|| {
        let memory = memory();
        let plfs = process(Arc::new(memory.clone()), true);
        let file = Arc::new(open(&plfs));
        let appender = |byte: u8, len: usize| {
            let file = file.clone();
            Box::new(move || {
                for _ in 0..2 {
                    let (at, n) = file.append(&vec![byte; len]).unwrap();
                    assert_eq!(n, len);
                    assert_eq!(read(&file, at, len), vec![byte; len]);
                }
            }) as Box<dyn FnOnce() + Send>
        };
        together(vec![appender(1, 3), appender(2, 5)]);
        drop(file);
        let seen = content(&memory);
        assert_eq!(seen.len(), 16);
        assert_eq!(seen.iter().filter(|byte| **byte == 1).count(), 6);
        assert_eq!(seen.iter().filter(|byte| **byte == 2).count(), 10);
    });
}

/// S3, S13: the thread that commits what nobody commits meets the last close, and all is there
/// afterwards.
#[test]
fn a_background_commit_meets_the_last_close() {
    explore(|| {
        let memory = memory();
        let plfs = process(Arc::new(memory.clone()), true);
        for round in 0..3u8 {
            let file = open(&plfs);
            file.write_at(&[round + 1; 10], u64::from(round) * 5).unwrap();
            thread::yield_now();
            file.write_at(&[9; 1], 30 + u64::from(round)).unwrap();
            file.close().unwrap();
            let seen = content(&memory);
            assert_eq!(seen[usize::from(round) * 5..][..10], [round + 1; 10]);
            assert_eq!(seen.len(), 31 + usize::from(round));
            assert_eq!(names(&memory, ".open"), 0);
        }
    });
}

/// S15: a sync while background threads write, and one of their writes fails: it says so, or what
/// was written before it is durable; and from the first error on all calls fail.
#[test]
fn a_sync_meets_a_background_write_that_fails() {
    explore(|| {
        let memory = memory();
        let faults = FaultStore::new(Arc::new(memory.clone()));
        let plfs = process(Arc::new(faults.clone()), false);
        let file = Arc::new(open(&plfs));
        file.write_at(&[1; 100], 0).unwrap();
        file.sync().unwrap();
        faults.full_after(70 << 10);
        let (writer, syncer, cut) = (file.clone(), file.clone(), memory.clone());
        together(vec![
            Box::new(move || {
                let (mut written, mut failed) = (0, false);
                for i in 0..4u64 {
                    match writer.write_at(&[2; 30 << 10], 100 + i * (30 << 10)) {
                        Ok(n) => {
                            assert!(!failed, "a write succeeds after one that failed");
                            written += n;
                        }
                        Err(error) => {
                            assert_eq!(error.errno(), Errno::NOSPC);
                            failed = true;
                        }
                    }
                }
                match writer.sync() {
                    Ok(()) => {
                        assert!(!failed);
                        let after = content(&cut.crash());
                        assert_eq!(after[100..][..written], vec![2; written]);
                    }
                    Err(error) => assert_eq!(error.errno(), Errno::NOSPC),
                }
            }),
            Box::new(move || {
                if let Err(error) = syncer.sync() {
                    assert_eq!(error.errno(), Errno::NOSPC);
                    assert!(syncer.sync().is_err(), "a sync succeeds after one that failed");
                }
            }),
        ]);
        assert!(file.sync().is_err(), "120 KiB went into 70");
        drop(file);
        assert_eq!(content(&memory.crash())[..100], [1; 100]);
    });
}

/// S1, S13, S26: the last close of one thread meets an open of another, which writes as well.
#[test]
fn the_last_close_meets_an_open() {
    explore(|| {
        let memory = memory();
        let plfs = process(Arc::new(memory.clone()), true);
        let first = open(&plfs);
        first.write_at(&[1; 10], 0).unwrap();
        let (other, end) = (plfs.clone(), memory.clone());
        together(vec![
            Box::new(move || {
                first.write_at(&[2; 10], 10).unwrap();
                first.close().unwrap();
                assert_eq!(content(&end)[..20], [[1; 10], [2; 10]].concat());
            }),
            Box::new(move || {
                let second = open(&other);
                second.write_at(&[3; 10], 20).unwrap();
                assert_eq!(read(&second, 20, 10), [3; 10]);
                second.close().unwrap();
            }),
        ]);
        assert_eq!(content(&memory), [[1; 10], [2; 10], [3; 10]].concat());
        assert_eq!(names(&memory, ".open"), 0);
    });
}

/// S26: leaving all files (utime, posix_spawn, exec) meets writes; nothing is lost, and each write
/// is seen at once by who wrote it.
#[test]
fn leaving_meets_a_write() {
    explore(|| {
        let memory = memory();
        let plfs = process(Arc::new(memory.clone()), true);
        let file = Arc::new(open(&plfs));
        let (writer, leaver) = (file.clone(), plfs.clone());
        together(vec![
            Box::new(move || {
                for i in 0..3u8 {
                    writer.write_at(&[i + 1; 10], u64::from(i) * 10).unwrap();
                    assert_eq!(read(&writer, u64::from(i) * 10, 10), [i + 1; 10]);
                }
            }),
            Box::new(move || {
                leaver.leave_all().unwrap();
                leaver.leave_all().unwrap();
            }),
        ]);
        drop(file);
        assert_eq!(content(&memory), [[1; 10], [2; 10], [3; 10]].concat());
        assert_eq!(names(&memory, ".open"), 0);
    });
}

/// S11: who appends while others truncate, as programs do that rotate logs by copying and cutting
/// them. An append took its place at the old end and came behind the truncate in the order: a gap
/// of zeros. In one process, and in two that share a page.
#[test]
fn appends_meet_truncates() {
    let of_two = |is_apart: bool| {
        explore_one_of(2, move || {
            let (memory, node) = (memory(), Node::new());
            let first = node.process(&memory);
            let second = if is_apart { node.process(&memory) } else { first.clone() };
            let appender = |plfs: &Arc<Plfs>, byte: u8| {
                let file = open(plfs);
                Box::new(move || {
                    for _ in 0..2 {
                        file.append(&[byte; 4]).unwrap();
                    }
                    file.close().unwrap();
                }) as Box<dyn FnOnce() + Send>
            };
            let cutter = open(&second);
            let cut = Box::new(move || {
                cutter.set_len(0).unwrap();
                cutter.append(&[3; 4]).unwrap();
                cutter.close().unwrap();
            });
            together(vec![appender(&first, 1), appender(&second, 2), cut]);
            let seen = content(&memory);
            assert_eq!(seen.iter().filter(|byte| **byte == 3).count(), 4, "{seen:?}");
            let is_whole = |record: &[u8]| record.len() == 4 && record[0] != 0;
            assert!(seen.chunks(4).all(is_whole), "{seen:?}");
        });
    };
    of_two(false);
    of_two(true);
}

/// S11: a write at an offset and an append behind it, while others truncate. The write could get
/// its place in the order from behind the truncate, which then took the end of file back: the
/// append went over it. Or it went on with a record from before the truncate, and was cut though it
/// came later.
#[test]
fn writes_and_appends_meet_truncates() {
    let of_two = |is_apart: bool, to: u64| {
        explore_one_of(4, move || {
            let (memory, node) = (memory(), Node::new());
            let first = node.process(&memory);
            let second = if is_apart { node.process(&memory) } else { first.clone() };
            let (file, cutter) = (open(&first), open(&second));
            // Four of the program's own, so that the next write goes on with them.
            file.write_at(&[1; 4], 0).unwrap();
            let write = Box::new(move || {
                file.write_at(&[2; 4], 4).unwrap();
                file.append(&[3; 4]).unwrap();
                file.close().unwrap();
            });
            let cut = Box::new(move || {
                cutter.set_len(to).unwrap();
                cutter.append(&[4; 4]).unwrap();
                cutter.close().unwrap();
            });
            together(vec![write, cut]);
            let seen: Vec<u8> = content(&memory).into_iter().step_by(4).collect();
            let begin: &[u8] = if to == 0 { &[] } else { &[1] };
            // The truncate before the write, between it and the append, or behind both.
            let gap = if to == 0 { vec![0, 2] } else { vec![1, 2] };
            let may = [
                [gap.as_slice(), &[3, 4]].concat(),
                [gap.as_slice(), &[4, 3]].concat(),
                // The cutter's append before the write, which is at an offset.
                [begin, if to == 0 { &[4, 2, 3] } else { &[2, 3] }].concat(),
                [begin, &[3, 4]].concat(),
                [begin, &[4, 3]].concat(),
                [begin, &[4]].concat(),
            ];
            assert!(may.contains(&seen), "{seen:?}, cut to {to}, apart: {is_apart}");
        });
    };
    for to in [0, 4] {
        of_two(false, to);
        of_two(true, to);
    }
}

/// S11: an append took its place at the end of the file, was slow, and came in the order behind a
/// write that had begun later and lies over that place: the write was acknowledged, and gone.
#[test]
fn an_append_meets_a_write_over_its_place() {
    let of_two = |is_apart: bool| {
        explore_one_of(2, move || {
            let (memory, node) = (memory(), Node::new());
            let first = node.process(&memory);
            let second = if is_apart { node.process(&memory) } else { first.clone() };
            let (appender, writer) = (open(&first), open(&second));
            writer.write_at(&[1; 4], 0).unwrap();
            writer.commit().unwrap();
            // A record that the next write goes on with.
            writer.write_at(&[2; 4], 4).unwrap();
            let append = Box::new(move || {
                appender.append(&[3; 4]).unwrap();
                appender.close().unwrap();
            });
            let write = Box::new(move || {
                writer.write_at(&[2; 8], 8).unwrap();
                writer.close().unwrap();
            });
            together(vec![append, write]);
            let seen: Vec<u8> = content(&memory).into_iter().step_by(4).collect();
            // The append before, and hidden by, the write; or behind it.
            assert!(seen == [1, 2, 2, 2] || seen == [1, 2, 2, 2, 3], "{seen:?}");
        });
    };
    of_two(false);
    of_two(true);
}

/// S11: appends beside a truncate that fails: one that had its place when the truncate began took
/// another when it had failed, and left a gap.
#[test]
fn appends_meet_a_truncate_that_fails() {
    explore(|| {
        let (memory, node) = (memory(), Node::new());
        let faults = FaultStore::new(Arc::new(memory.clone()));
        let (first, second) = (node.process(&memory), node.process_on(Arc::new(faults.clone())));
        let (appender, cutter) = (open(&first), open(&second));
        appender.append(&[1; 4]).unwrap();
        cutter.write_at(&[1; 4], 0).unwrap();
        cutter.commit().unwrap();
        faults.fail_matching("index", Op::WriteAt, Errno::NOSPC);
        let append = Box::new(move || {
            appender.append(&[2; 4]).unwrap();
            appender.append(&[3; 4]).unwrap();
            appender.close().unwrap();
        });
        let cut = Box::new(move || {
            assert_eq!(cutter.set_len(0).unwrap_err().errno(), Errno::NOSPC);
        });
        together(vec![append, cut]);
        assert_eq!(content(&memory), [[1; 4], [2; 4], [3; 4]].concat());
    });
}

/// S7, S9: two appends at once, of which the one with the earlier stamp said it later. The other
/// did not see that somebody else has appended, because the page had the largest stamp, its own; it
/// went on with its old record, and what it wrote over the place of the first append was
/// acknowledged, and gone. PLFS_SEED=2914540921 PLFS_SCHEDULES=300000 found it.
#[test]
fn two_appends_meet_and_a_write_over_one_of_them() {
    explore(|| {
        let (memory, node) = (memory(), Node::new());
        let (first, second) = (node.process(&memory), node.process(&memory));
        let (appender, writer) = (open(&first), open(&second));
        writer.write_at(&[1; 4], 0).unwrap();
        writer.commit().unwrap();
        // Known to both: the end of file.
        appender.append(&[2; 4]).unwrap();
        appender.commit().unwrap();
        // A record that the next writes go on with.
        writer.write_at(&[5; 4], 8).unwrap();
        let append = Box::new(move || {
            appender.append(&[3; 4]).unwrap();
            appender.close().unwrap();
        });
        let write = Box::new(move || {
            let (at, _) = writer.append(&[5; 4]).unwrap();
            if at == 12 {
                writer.write_at(&[5; 4], 16).unwrap();
            }
            writer.close().unwrap();
        });
        together(vec![append, write]);
        let seen: Vec<u8> = content(&memory).into_iter().step_by(4).collect();
        // The append first; the append in between, and hidden by the write; or behind it.
        assert!(
            seen == [1, 2, 5, 3, 5] || seen == [1, 2, 5, 5, 5] || seen == [1, 2, 5, 5, 5, 3],
            "{seen:?}"
        );
    });
}

/// S11: 32 truncates while an append is between its look at the era and its place: the word of its
/// era was that of the era of now, the append moved it, found the era over and took another place.
/// Its first one was a gap. PLFS_SEED=3553145285 PLFS_SCHEDULES=30000 found it.
#[test]
fn an_append_meets_as_many_truncates_as_there_are_words() {
    explore_one_of(2, || {
        let (memory, node) = (memory(), Node::new());
        let (first, second) = (node.process(&memory), node.process(&memory));
        let (appender, cutter) = (open(&first), open(&second));
        cutter.write_at(&[1; 4], 0).unwrap();
        cutter.commit().unwrap();
        appender.append(&[2; 4]).unwrap();
        let append = Box::new(move || {
            appender.append(&[3; 4]).unwrap();
            appender.close().unwrap();
        });
        let cut = Box::new(move || {
            for _ in 0..32 {
                cutter.set_len(4).unwrap();
            }
            cutter.close().unwrap();
        });
        together(vec![append, cut]);
        let seen: Vec<u8> = content(&memory).into_iter().step_by(4).collect();
        assert!(!seen.contains(&0), "{seen:?}");
    });
}

/// A directory of shared memory of its own: pages of schedules that failed must not be met again.
struct Node(PathBuf);

impl Node {
    fn new() -> Node {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let node =
            PathBuf::from(format!("/dev/shm/plfs-schedules-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&node).unwrap();
        Node(node)
    }

    fn process(&self, memory: &MemStore) -> Arc<Plfs> {
        self.process_on(Arc::new(memory.clone()))
    }

    fn process_on(&self, store: Arc<dyn Store>) -> Arc<Plfs> {
        let store = Stepping { inner: Step(store), local: true };
        let config = Config { shared_memory: Some(self.0.clone()), ..config() };
        Arc::new(Plfs::new(Arc::new(store), config))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// S12: two processes of a node, which share a page of memory and one index log, write and sync.
#[test]
fn processes_of_a_node_write_and_sync() {
    explore(|| {
        let (memory, node) = (memory(), Node::new());
        open(&node.process(&memory)).close().unwrap();
        let process = |at: u64, byte: u8| {
            let plfs = node.process(&memory);
            let memory = memory.clone();
            Box::new(move || {
                let file = open(&plfs);
                file.write_at(&[byte; 10], at).unwrap();
                file.sync().unwrap();
                assert_eq!(content(&memory.crash())[at as usize..][..10], [byte; 10]);
                file.close().unwrap();
            }) as Box<dyn FnOnce() + Send>
        };
        together(vec![process(0, 1), process(10, 2)]);
        assert_eq!(content(&memory), [[1; 10], [2; 10]].concat());
        assert_eq!(names(&memory, ".open"), 0);
    });
}

/// S24: room that one process asks for cuts nothing of what another writes behind it. It was a look
/// at the size and then a truncate to the end of the room: what was written in between was cut.
#[test]
fn room_for_a_file_cuts_nothing_that_is_written_behind_it() {
    explore(|| {
        let (memory, node) = (memory(), Node::new());
        open(&node.process(&memory)).close().unwrap();
        let process = |act: fn(&File)| {
            let plfs = node.process(&memory);
            Box::new(move || {
                let file = open(&plfs);
                act(&file);
                file.close().unwrap();
            }) as Box<dyn FnOnce() + Send>
        };
        together(vec![
            process(|file| file.allocate(0, 50, Size::Grows).unwrap()),
            process(|file| assert_eq!(file.write_at(&[1; 10], 90).unwrap(), 10)),
        ]);
        assert_eq!(content(&memory)[90..], [1; 10]);
    });
}
