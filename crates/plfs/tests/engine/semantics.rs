//! What one program, and several, see of a logical file. Each test runs on real files in memory
//! (/dev/shm) and on the memory store.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use plfs::store::{Errno, Links, Open, PosixStore, Store, Time};
use plfs::{Access, Config, File, OpenOptions, Opened, Plfs};
use plfs_testkit::MemStore;

use crate::scratch::fresh_dir;

struct Fixture {
    store: Arc<dyn Store>,
    root: PathBuf,
    config: Config,
}

impl Fixture {
    /// Another process, as far as one process can play it: a table of open files of its own.
    fn process(&self) -> Plfs {
        Plfs::new(self.store.clone(), self.config.clone())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.root);
    }
}

fn on_each_fixture(test: impl Fn(&Fixture)) {
    let root = fresh_dir();
    test(&Fixture { store: Arc::new(PosixStore::new()), root, config: Config::shared() });
    let memory = MemStore::new();
    memory.mkdir(Path::new("/m"), 0o755).unwrap();
    let config = Config { shared_memory: None, ..Config::shared() };
    test(&Fixture { store: Arc::new(memory), root: "/m".into(), config });
}

fn containers(fixture: &Fixture) -> usize {
    let shards = fixture.store.list(&fixture.path(".plfs")).unwrap();
    shards
        .iter()
        .map(|shard| fixture.store.list(&fixture.path(".plfs").join(&shard.name)).unwrap().len())
        .sum()
}

fn open(plfs: &Plfs, path: &Path, options: OpenOptions) -> File {
    match plfs.open(path, options).unwrap() {
        Opened::Logical(file) => file,
        Opened::Plain(_) => panic!("{} is plain", path.display()),
    }
}

fn create(plfs: &Plfs, path: &Path) -> File {
    open(plfs, path, OpenOptions::create())
}

fn read(plfs: &Plfs, path: &Path) -> Vec<u8> {
    let file = open(plfs, path, OpenOptions::read());
    let mut bytes = vec![0xee; 1 << 20];
    let n = file.read_at(&mut bytes, 0).unwrap();
    bytes.truncate(n);
    bytes
}

#[test]
fn own_writes_are_visible_at_once() {
    on_each_fixture(|fixture| {
        let plfs = fixture.process();
        let file = create(&plfs, &fixture.path("f"));
        file.write_at(b"ccc", 20).unwrap();
        file.write_at(b"aaa", 0).unwrap();
        file.write_at(b"bbb", 10).unwrap();
        let mut buf = [9; 30];
        assert_eq!(file.read_at(&mut buf, 0).unwrap(), 23);
        assert_eq!(&buf[..23], b"aaa\0\0\0\0\0\0\0bbb\0\0\0\0\0\0\0ccc");
        file.write_at(b"XY", 1).unwrap();
        assert_eq!(file.read_at(&mut buf[..4], 0).unwrap(), 4);
        assert_eq!(&buf[..4], b"aXY\0");
        assert_eq!(file.len().unwrap(), 23);
        file.close().unwrap();
        assert_eq!(
            read(&fixture.process(), &fixture.path("f")),
            b"aXY\0\0\0\0\0\0\0bbb\0\0\0\0\0\0\0ccc"
        );
        assert!(plfs.stat(&fixture.path("f"), Links::Follow).unwrap().totals.unwrap().from_summary);
    });
}

#[test]
fn commits_of_others_are_seen_by_open_and_refresh() {
    on_each_fixture(|fixture| {
        let (one, two) = (fixture.process(), fixture.process());
        let writer = create(&one, &fixture.path("f"));
        writer.write_at(b"first", 0).unwrap();
        writer.commit().unwrap();
        let reader = open(&two, &fixture.path("f"), OpenOptions::read());
        let mut buf = [0; 16];
        assert_eq!(reader.read_at(&mut buf, 0).unwrap(), 5);
        writer.write_at(b"second", 0).unwrap();
        writer.sync().unwrap();
        assert_eq!(reader.len().unwrap(), 6);
        reader.refresh().unwrap();
        assert_eq!(reader.read_at(&mut buf, 0).unwrap(), 6);
        assert_eq!(&buf[..6], b"second");
        writer.write_at(b"!", 6).unwrap();
        writer.commit().unwrap();
        assert_eq!(reader.read_at(&mut buf, 6).unwrap(), 1, "a read at the end looks again");
        // An MPI's own MPI_File_sync is an fsync at each rank; sync, barrier, sync must do.
        writer.write_at(b"thirds", 0).unwrap();
        writer.commit().unwrap();
        reader.sync().unwrap();
        assert_eq!(reader.read_at(&mut buf, 0).unwrap(), 7);
        assert_eq!(&buf[..7], b"thirds!");
    });
}

#[test]
fn overlaps_look_the_same_to_every_process() {
    on_each_fixture(|fixture| {
        let (one, two) = (fixture.process(), fixture.process());
        let (a, b) = (create(&one, &fixture.path("f")), create(&two, &fixture.path("f")));
        a.write_at(b"aaaa", 0).unwrap();
        b.write_at(b"bbbb", 2).unwrap();
        b.commit().unwrap();
        a.commit().unwrap();
        let seen = read(&one, &fixture.path("f"));
        assert!(
            seen == b"aabbbb" || seen == b"aaaabb" && fixture.config.shared_memory.is_none(),
            "{seen:?}"
        );
        for plfs in [&two, &fixture.process()] {
            assert_eq!(read(plfs, &fixture.path("f")), seen);
        }
        a.close().unwrap();
        b.close().unwrap();
        let totals = one.stat(&fixture.path("f"), Links::Follow).unwrap().totals.unwrap();
        assert!(totals.from_summary, "the last closer leaves a summary");
        assert_eq!(totals.size, 6);
    });
}

#[test]
fn truncate_cuts_and_extends() {
    on_each_fixture(|fixture| {
        let plfs = fixture.process();
        let file = create(&plfs, &fixture.path("f"));
        file.write_at(b"0123456789", 0).unwrap();
        file.set_len(4).unwrap();
        assert_eq!(file.len().unwrap(), 4);
        file.set_len(8).unwrap();
        assert_eq!(read(&plfs, &fixture.path("f")), b"0123\0\0\0\0");
        file.write_at(b"x", 9).unwrap();
        assert_eq!(read(&plfs, &fixture.path("f")), b"0123\0\0\0\0\0x");
        file.close().unwrap();
        assert_eq!(read(&fixture.process(), &fixture.path("f")), b"0123\0\0\0\0\0x");
        let again = open(
            &plfs,
            &fixture.path("f"),
            OpenOptions { truncate: true, ..OpenOptions::create() },
        );
        assert_eq!(again.len().unwrap(), 0);
        again.write_at(b"new", 0).unwrap();
        again.close().unwrap();
        assert_eq!(read(&plfs, &fixture.path("f")), b"new");
        let totals = plfs.stat(&fixture.path("f"), Links::Follow).unwrap().totals.unwrap();
        assert_eq!(totals.log_sets, 1, "the logs of the old content are gone");
    });
}

#[test]
fn rename_replaces_and_removes_what_was_there() {
    on_each_fixture(|fixture| {
        let plfs = fixture.process();
        for (name, text) in [("a", "new"), ("b", "old")] {
            let file = create(&plfs, &fixture.path(name));
            file.write_at(text.as_bytes(), 0).unwrap();
            file.close().unwrap();
        }
        let open_a = open(&plfs, &fixture.path("a"), OpenOptions::read());
        plfs.rename(&fixture.path("a"), &fixture.path("b")).unwrap();
        assert_eq!(read(&plfs, &fixture.path("b")), b"new");
        assert!(plfs.stat(&fixture.path("a"), Links::Follow).is_err());
        let mut buf = [0; 3];
        assert_eq!(open_a.read_at(&mut buf, 0).unwrap(), 3, "an open handle follows the rename");
        drop(open_a);
        plfs.unlink(&fixture.path("b")).unwrap();
        assert_eq!(containers(fixture), 0);
    });
}

#[test]
fn an_unlinked_file_lives_until_it_is_closed() {
    on_each_fixture(|fixture| {
        let (one, two) = (fixture.process(), fixture.process());
        let file = create(&one, &fixture.path("f"));
        file.write_at(b"still here", 0).unwrap();
        file.commit().unwrap();
        two.unlink(&fixture.path("f")).unwrap();
        let mut buf = [0; 10];
        assert_eq!(file.read_at(&mut buf, 0).unwrap(), 10);
        assert_eq!(file.stat().unwrap().nlink, 0);
        file.close().unwrap();
        assert_eq!(containers(fixture), 0);
    });
}

#[test]
fn exclusive_creation_has_one_winner() {
    on_each_fixture(|fixture| {
        let plfs = fixture.process();
        let exclusive = OpenOptions { exclusive: true, ..OpenOptions::create() };
        open(&plfs, &fixture.path("f"), exclusive).close().unwrap();
        assert_eq!(plfs.open(&fixture.path("f"), exclusive).unwrap_err().errno(), Errno::EXIST);
        let winners: u32 = std::thread::scope(|scope| {
            let tries: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        u32::from(fixture.process().open(&fixture.path("g"), exclusive).is_ok())
                    })
                })
                .collect();
            tries.into_iter().map(|t| t.join().unwrap()).sum()
        });
        assert_eq!(winners, 1);
        assert_eq!(containers(fixture), 2);
    });
}

#[test]
fn many_reopenings_leave_one_log_set() {
    on_each_fixture(|fixture| {
        for i in 0..50u8 {
            let plfs = fixture.process();
            let file = create(&plfs, &fixture.path("f"));
            let (at, n) = file.append(&[i]).unwrap();
            assert_eq!((at, n), (i as u64, 1));
            file.close().unwrap();
        }
        assert_eq!(read(&fixture.process(), &fixture.path("f")), (0..50).collect::<Vec<u8>>());
        assert_eq!(
            fixture
                .process()
                .stat(&fixture.path("f"), Links::Follow)
                .unwrap()
                .totals
                .unwrap()
                .log_sets,
            1
        );
    });
}

#[test]
fn a_million_strided_writes_are_one_record() {
    on_each_fixture(|fixture| {
        let plfs = fixture.process();
        let file = create(&plfs, &fixture.path("f"));
        let piece = [7; 16];
        for i in 0..1_000_000u64 {
            file.write_at(&piece, i * 64).unwrap();
        }
        file.close().unwrap();
        let totals = plfs.stat(&fixture.path("f"), Links::Follow).unwrap().totals.unwrap();
        assert!(totals.index_bytes <= 4096, "{totals:?}");
        assert_eq!(totals.size, 999_999 * 64 + 16);
    });
}

#[test]
fn a_flat_index_answers_the_same_and_follows_later_writes() {
    on_each_fixture(|fixture| {
        let plfs = fixture.process();
        let file = create(&plfs, &fixture.path("f"));
        for i in (0..1000u64).rev() {
            file.write_at(&i.to_le_bytes(), i * i % 5000).unwrap();
        }
        file.close().unwrap();
        let before = read(&fixture.process(), &fixture.path("f"));
        plfs.flatten(&fixture.path("f")).unwrap();
        let reader = open(&fixture.process(), &fixture.path("f"), OpenOptions::read());
        assert!(reader.with_index(|index| index.flat().0).unwrap());
        assert_eq!(read(&fixture.process(), &fixture.path("f")), before);
        let file = create(&plfs, &fixture.path("f"));
        file.write_at(b"later", 100).unwrap();
        file.close().unwrap();
        let after = read(&fixture.process(), &fixture.path("f"));
        assert_eq!(&after[100..105], b"later");
        assert_eq!(after[105..], before[105..]);
    });
}

/// 200,000 pieces that hardly fold, read without a flat index: packed as they are read, in memory
/// or, if that is not wanted, in a file that nobody finds.
#[test]
fn a_long_index_is_packed_and_may_lie_in_a_file() {
    on_each_fixture(|fixture| {
        let plfs = fixture.process();
        let file = create(&plfs, &fixture.path("f"));
        let pieces = 200_000u64;
        let at =
            |i: u64| i * 7919 % pieces * 10 + (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60) % 3;
        for i in 0..pieces {
            file.write_at(&i.to_le_bytes()[..7], at(i)).unwrap();
            if i == pieces / 2 {
                file.commit().unwrap();
            }
        }
        file.commit().unwrap();
        for index_bytes in [1 << 30, 0] {
            let reader =
                Plfs::new(fixture.store.clone(), Config { index_bytes, ..fixture.config.clone() });
            let reader = open(&reader, &fixture.path("f"), OpenOptions::read());
            let bytes = reader
                .with_index(|index| {
                    (index.extents().heap_bytes(), index.extents().base().unwrap().file_bytes())
                })
                .unwrap();
            assert!(bytes.0 < 1 << 16 && bytes.1 < 20 * pieces as usize, "{bytes:?}");
            for i in (0..pieces).step_by(997) {
                let mut piece = [0; 7];
                reader.read_at(&mut piece, at(i)).unwrap();
                assert_eq!(piece, i.to_le_bytes()[..7]);
            }
            // What comes later lies above it.
            file.write_at(b"later", 100).unwrap();
            file.commit().unwrap();
            reader.refresh().unwrap();
            let mut piece = [0; 5];
            reader.read_at(&mut piece, 100).unwrap();
            assert_eq!(&piece, b"later");
        }
    });
}

/// Few records that are many runs: the limit for what a flat index may become again counted them
/// against the records, and the file could not be flattened.
#[test]
fn many_rows_of_few_nests_flatten() {
    on_each_fixture(|fixture| {
        let plfs = fixture.process();
        let file = create(&plfs, &fixture.path("f"));
        let rows = 120_000u64;
        for i in 0..rows * 3 {
            file.write_at(&[i as u8], i / 3 * 64 + i % 3 * 8).unwrap();
        }
        file.close().unwrap();
        let totals = plfs.stat(&fixture.path("f"), Links::Follow).unwrap().totals.unwrap();
        assert!(totals.records < 10, "{totals:?}");
        let flattened = plfs.flatten(&fixture.path("f")).unwrap();
        assert!(flattened.bytes < 1000, "{flattened:?}");
        let reader = open(&fixture.process(), &fixture.path("f"), OpenOptions::read());
        for i in (0..rows * 3).step_by(997) {
            let mut byte = [0];
            reader.read_at(&mut byte, i / 3 * 64 + i % 3 * 8).unwrap();
            assert_eq!(byte, [i as u8]);
        }
    });
}

#[test]
fn sparse_files_reach_to_the_last_offset() {
    on_each_fixture(|fixture| {
        let plfs = fixture.process();
        let file = create(&plfs, &fixture.path("f"));
        let last = i64::MAX as u64 - 1;
        assert_eq!(file.write_at(b"zz", last).unwrap(), 1, "cut at the largest offset");
        assert_eq!(file.write_at(b"z", last + 1).unwrap_err().errno(), Errno::FBIG);
        assert_eq!(file.len().unwrap(), i64::MAX as u64);
        let mut buf = [1; 4];
        assert_eq!(file.read_at(&mut buf, last - 3).unwrap(), 4);
        assert_eq!(buf, [0, 0, 0, b'z']);
        assert_eq!(file.next_data(5).unwrap(), Some(last));
        assert_eq!(file.next_hole(5).unwrap(), 5);
        file.set_len(3).unwrap();
        assert_eq!(file.len().unwrap(), 3);
    });
}

/// What SEEK_DATA and SEEK_HOLE say of the whole file: where data begins and ends.
fn data_of(file: &File) -> Vec<(u64, u64)> {
    let (mut parts, mut at) = (Vec::new(), 0);
    while let Some(from) = file.next_data(at).unwrap() {
        at = file.next_hole(from).unwrap();
        parts.push((from, at));
    }
    parts
}

/// Where bytes are not 0.
fn not_zero(bytes: &[u8]) -> Vec<(u64, u64)> {
    let mut parts: Vec<(u64, u64)> = Vec::new();
    for at in (0..bytes.len() as u64).filter(|at| bytes[*at as usize] != 0) {
        match parts.last_mut() {
            Some((_, end)) if *end == at => *end += 1,
            _ => parts.push((at, at + 1)),
        }
    }
    parts
}

/// Holes over buffered bytes, over parts of patterns, over other processes' bytes, under later
/// ones, past the end: all see the same bytes, and data where they are, before and after
/// a commit, a flat index, a compaction.
#[test]
fn what_is_punched_is_a_hole_for_all() {
    on_each_fixture(|fixture| {
        let (one, two) = (fixture.process(), fixture.process());
        let path = fixture.path("f");
        let (a, b) = (create(&one, &path), create(&two, &path));
        let mut expect = vec![0; 100_000];
        let ones = vec![1; 50 * 1000];
        a.write_strided(&ones, 500, 1000, 0).unwrap();
        (0..100).for_each(|i| expect[i * 1000..][..500].fill(1));
        a.write_at(&[2; 300], 99_700).unwrap();
        expect[99_700..].fill(2);
        a.zero(10_200, 30_000).unwrap();
        expect[10_200..40_200].fill(0);
        a.write_at(&[3; 100], 20_000).unwrap();
        expect[20_000..20_100].fill(3);
        a.zero(99_900, u64::MAX).unwrap();
        expect[99_900..].fill(0);
        a.zero(100_000, 5).unwrap();
        let check = |file: &File, expect: &[u8], when: &str| {
            let mut bytes = vec![0xee; 200_000];
            assert_eq!(
                (file.read_at(&mut bytes, 0).unwrap(), file.len().unwrap()),
                (expect.len(), expect.len() as u64),
                "{when}"
            );
            assert!(bytes[..expect.len()] == *expect, "{when}");
            assert_eq!(data_of(file), not_zero(expect), "{when}");
        };
        check(&a, &expect, "own, at once");
        a.commit().unwrap();
        b.refresh().unwrap();
        check(&b, &expect, "another's");
        b.write_at(&[4; 700], 60_100).unwrap();
        b.zero(60_300, 300).unwrap();
        b.zero(60_600, 100).unwrap();
        expect[60_100..60_800].fill(4);
        expect[60_300..60_700].fill(0);
        b.commit().unwrap();
        a.refresh().unwrap();
        check(&a, &expect, "in turns");
        two.flatten(&path).unwrap();
        check(
            &create(&fixture.process(), &path),
            &expect,
            "flattened while it is open for writing",
        );
        b.set_len(60_500).unwrap();
        b.set_len(90_000).unwrap();
        expect.truncate(60_500);
        expect.resize(90_000, 0);
        [a, b].into_iter().for_each(|file| file.close().unwrap());
        check(&create(&fixture.process(), &path), &expect, "cut");
        one.flatten(&path).unwrap();
        check(&create(&fixture.process(), &path), &expect, "flattened");
        one.compact(&path, |_| std::ops::ControlFlow::Continue(())).unwrap();
        check(&create(&fixture.process(), &path), &expect, "compacted");
        let report = plfs::check_name(&fixture.store, &path, &[]);
        assert_eq!(report.health(), plfs::Health::Healthy, "{report:?}");
    });
}

/// A hole hides what is older and comes later: what a process of the node wrote before and commits
/// after. What it writes after wins.
#[test]
fn a_hole_has_its_place_among_the_writes_of_a_node() {
    on_each_fixture(|fixture| {
        let (one, two) = (fixture.process(), fixture.process());
        let (a, b) = (create(&one, &fixture.path("f")), create(&two, &fixture.path("f")));
        a.write_at(&[1; 100], 0).unwrap();
        a.commit().unwrap();
        b.refresh().unwrap();
        b.write_at(&[2; 50], 0).unwrap();
        a.zero(10, 80).unwrap();
        b.write_at(&[3; 10], 40).unwrap();
        a.commit().unwrap();
        one.flatten(&fixture.path("f")).unwrap();
        b.commit().unwrap();
        let mut expect = [0; 100];
        expect[..10].fill(2);
        expect[40..50].fill(3);
        expect[90..].fill(1);
        if fixture.config.shared_memory.is_some() {
            assert_eq!(read(&fixture.process(), &fixture.path("f")), expect);
        }
        drop((a, b));
        if fixture.config.shared_memory.is_some() {
            assert_eq!(read(&fixture.process(), &fixture.path("f")), expect);
        }
    });
}

/// The end of what a process wrote and has not committed was taken for the size; a hole up to there
/// made the file as long again, though another process had cut it.
#[test]
fn a_hole_brings_nothing_back_that_another_process_cut() {
    on_each_fixture(|fixture| {
        let (one, two) = (fixture.process(), fixture.process());
        let (a, b) = (create(&one, &fixture.path("f")), create(&two, &fixture.path("f")));
        a.write_at(&[1; 100], 0).unwrap();
        b.set_len(10).unwrap();
        a.zero(5, 60).unwrap();
        a.close().unwrap();
        b.close().unwrap();
        if fixture.config.shared_memory.is_some() {
            assert_eq!(
                read(&fixture.process(), &fixture.path("f")),
                [1, 1, 1, 1, 1, 0, 0, 0, 0, 0]
            );
        }
        assert_eq!(read(&fixture.process(), &fixture.path("f")).len(), 10);
    });
}

/// A flat index needs no hole where nothing older lies below; a hole that hides a part of a pattern
/// is there, and the next flat index drops it with what it hid.
#[test]
fn a_flat_index_has_only_holes_that_hide_something() {
    on_each_fixture(|fixture| {
        let (plfs, path) = (fixture.process(), fixture.path("f"));
        let kept = |steps: &dyn Fn(&File)| {
            let file = create(&plfs, &path);
            file.set_len(0).unwrap();
            steps(&file);
            file.close().unwrap();
            plfs.flatten(&path).unwrap().entries
        };
        let zeros = |file: &File| (0..100).for_each(|i| file.zero(i * 1000, 400).unwrap());
        assert_eq!(kept(&|file| file.set_len(200_000).unwrap()), 0);
        assert_eq!(
            kept(&|file| {
                file.set_len(200_000).unwrap();
                zeros(file);
            }),
            0
        );
        assert_eq!(
            kept(&|file| {
                assert_eq!(file.write_at(&[1; 50_000], 0).unwrap(), 50_000);
                file.zero(10_000, 10_000).unwrap();
                file.zero(30_000, 50_000).unwrap();
            }),
            2
        );
        let strided = |file: &File| {
            assert_eq!(file.write_strided(&[1; 50_000], 500, 1000, 0).unwrap(), 50_000)
        };
        assert_eq!(kept(&strided), 1);
        assert_eq!(
            kept(&|file| {
                strided(file);
                file.zero(10_300, 5_000).unwrap();
            }),
            2
        );
        assert_eq!(
            kept(&|file| {
                file.set_len(100_000).unwrap();
                file.zero(10_300, 5_000).unwrap();
                strided(file);
            }),
            1,
            "the hole is older"
        );
        assert_eq!(
            kept(&|file| {
                strided(file);
                file.zero(0, u64::MAX).unwrap();
            }),
            0,
            "all of the pattern is hidden"
        );
    });
}

#[test]
fn access_modes_are_kept() {
    on_each_fixture(|fixture| {
        let plfs = fixture.process();
        create(&plfs, &fixture.path("f")).close().unwrap();
        let reader = open(&plfs, &fixture.path("f"), OpenOptions::read());
        assert_eq!(reader.write_at(b"x", 0).unwrap_err().errno(), Errno::BADF);
        let writer = open(
            &plfs,
            &fixture.path("f"),
            OpenOptions { access: Access { read: false, write: true }, ..OpenOptions::read() },
        );
        assert_eq!(writer.read_at(&mut [0], 0).unwrap_err().errno(), Errno::BADF);
    });
}

#[test]
fn a_plain_file_stays_plain() {
    on_each_fixture(|fixture| {
        let path = fixture.path("plain");
        let file = fixture.store.open(&path, Open::create(0o644)).unwrap();
        file.write_at(&[1; 4093], 0).unwrap();
        assert!(matches!(
            fixture.process().open(&path, OpenOptions::create()).unwrap(),
            Opened::Plain(_)
        ));
        assert!(fixture.process().stat(&path, Links::Follow).unwrap().totals.is_none());
    });
}

#[test]
fn times_stay_as_set_and_move_with_writes() {
    on_each_fixture(|fixture| {
        let plfs = fixture.process();
        let file = create(&plfs, &fixture.path("f"));
        file.write_at(b"x", 0).unwrap();
        let old = plfs::store::Time { sec: 1_000_000, nsec: 5 };
        file.set_times(Some(old), Some(old)).unwrap();
        file.close().unwrap();
        assert_eq!(
            plfs.stat(&fixture.path("f"), Links::Follow).unwrap().stat.mtime,
            old,
            "cp -p keeps the time"
        );
        let file = create(&plfs, &fixture.path("f"));
        file.write_at(b"y", 0).unwrap();
        file.close().unwrap();
        assert!(plfs.stat(&fixture.path("f"), Links::Follow).unwrap().stat.mtime > old);
    });
}

/// Two processes of a node write the same bytes one after the other, agree on it without telling
/// PLFS, and commit in the other order: what HDF5 does with its superblock. Ordering by commit gave
/// the older bytes back.
#[test]
fn processes_of_a_node_are_ordered_as_they_wrote() {
    on_each_fixture(|fixture| {
        if fixture.config.shared_memory.is_none() {
            return;
        }
        let (one, two) = (fixture.process(), fixture.process());
        let (a, b) = (create(&one, &fixture.path("f")), create(&two, &fixture.path("f")));
        a.write_at(b"older", 0).unwrap();
        b.write_at(b"newer", 0).unwrap();
        b.commit().unwrap();
        a.commit().unwrap();
        assert_eq!(read(&fixture.process(), &fixture.path("f")), b"newer");
        a.write_at(b"again", 0).unwrap();
        a.close().unwrap();
        b.close().unwrap();
        assert_eq!(read(&fixture.process(), &fixture.path("f")), b"again");
    });
}

/// `cp -r` of a root copies superblocks instead of linking to them. Opening such a file, or
/// removing one of several copies of its name, took the container with it: its superblock had no
/// other link.
#[test]
fn copies_of_names_never_take_the_data_with_them() {
    on_each_fixture(|fixture| {
        let file = create(&fixture.process(), &fixture.path("f"));
        file.write_at(b"precious", 0).unwrap();
        file.close().unwrap();
        let mut superblock = vec![0; plfs::SUPERBLOCK_BYTES];
        fixture
            .store
            .open(&fixture.path("f"), Open::READ)
            .unwrap()
            .read_at(&mut superblock, 0)
            .unwrap();
        for copy in ["copy1", "copy2"] {
            fixture
                .store
                .open(&fixture.path(copy), Open::create_new(0o644))
                .unwrap()
                .write_at(&superblock, 0)
                .unwrap();
        }
        fixture.store.unlink(&fixture.path("f")).unwrap();
        assert_eq!(read(&fixture.process(), &fixture.path("copy1")), b"precious");
        fixture.process().unlink(&fixture.path("copy1")).unwrap();
        let writer = create(&fixture.process(), &fixture.path("copy2"));
        writer.write_at(b"P", 0).unwrap();
        writer.close().unwrap();
        assert_eq!(read(&fixture.process(), &fixture.path("copy2")), b"Precious");
    });
}

/// A flipped bit in the only index block made the file read as empty, without an error.
#[test]
fn a_damaged_index_block_is_an_error_and_not_a_hole() {
    on_each_fixture(|fixture| {
        let file = create(&fixture.process(), &fixture.path("f"));
        file.write_at(b"0123456789", 0).unwrap();
        let container = file.container().unwrap().dir.clone();
        file.close().unwrap();
        let set = fixture
            .store
            .list(&container)
            .unwrap()
            .into_iter()
            .find(|entry| entry.name.len() == 8)
            .unwrap();
        let index =
            fixture.store.open(&container.join(set.name).join("index"), Open::READ_WRITE).unwrap();
        // The superblock has a copy of what this log says, which counts as long as the directory
        // has the time that the last closer gave it.
        fixture.store.set_times(&container, None, Some(Time::now())).unwrap();
        for at in [0, 5, 70, 100] {
            let mut byte = [0];
            index.read_at(&mut byte, at).unwrap();
            index.write_at(&[byte[0] ^ 4], at).unwrap();
            let file = open(&fixture.process(), &fixture.path("f"), OpenOptions::read());
            let error = file.read_at(&mut [0; 10], 0).unwrap_err();
            assert_eq!(error.errno(), Errno::IO, "byte {at}");
            assert!(error.to_string().contains("/index is damaged"), "{error}");
            index.write_at(&byte, at).unwrap();
        }
        assert_eq!(read(&fixture.process(), &fixture.path("f")), b"0123456789");
    });
}

/// Another node, or another user of this one, cuts a log file, as logrotate does. Whoever appends
/// went on at the old end: a hole of the old length, and then the new lines.
#[test]
fn an_append_follows_the_truncates_of_others() {
    on_each_fixture(|fixture| {
        // Without shared memory it is a node of its own.
        let other = Plfs::new(
            fixture.store.clone(),
            Config { shared_memory: None, ..fixture.config.clone() },
        );
        append_and_cut(&fixture.process(), &other, &fixture.path("f"));
    });
}

fn append_and_cut(one: &Plfs, other: &Plfs, path: &Path) {
    let (file, cutter) = (create(one, path), create(other, path));
    assert_eq!(file.append(b"0123456789").unwrap(), (0, 10));
    file.commit().unwrap();
    for (size, committed) in [(0, true), (4, true), (0, false)] {
        cutter.set_len(size).unwrap();
        let (at, _) = file.append(b"next").unwrap();
        assert_eq!(at, size, "after a cut to {size}");
        assert_eq!(file.append(b"more").unwrap().0, size + 4);
        if committed {
            file.commit().unwrap();
            cutter.refresh().unwrap();
        }
    }
    file.commit().unwrap();
    let file = create(other, path);
    let mut bytes = [0; 100];
    assert_eq!(file.read_at(&mut bytes, 0).unwrap(), 8);
    assert_eq!(&bytes[..8], b"nextmore");
}

/// A process cut a file to the size that the commits gave it, and made no record of that: what
/// another process of the node had written and not committed, before the cut, came back with
/// its commit (SEMANTICS S9). The model found it with seed 1830310257.
#[test]
fn a_cut_to_the_committed_size_cuts_what_is_not_committed() {
    on_each_fixture(|fixture| {
        if fixture.config.shared_memory.is_none() {
            return;
        }
        let (one, other) = (fixture.process(), fixture.process());
        let (file, cutter) = (create(&one, &fixture.path("f")), create(&other, &fixture.path("f")));
        file.write_at(b"not committed", 0).unwrap();
        cutter.set_len(0).unwrap();
        file.close().unwrap();
        cutter.close().unwrap();
        assert_eq!(read(&fixture.process(), &fixture.path("f")), b"");
    });
}
