//! Random operations of many processes on several nodes, compared with the reference model of
//! `plfs-testkit`.
//!
//! `PLFS_MODEL_STEPS=1000000` runs a million steps instead of a few; `PLFS_SEED` starts at that
//! seed instead of a fresh one. A failure prints the seed and the shortest list of steps found that
//! still fails.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use plfs::store::{self, Links, Open, PosixStore, Size, Store, StoreFile};
use plfs::{Config, File, OpenOptions, Opened, Plfs, Workload};
use plfs_format::clock::{BYTES, Clock, Covers};
use plfs_testkit::{
    MemStore, Rng, Step, World, an_hour_ahead, explored, rounds, seed, shrink, steps,
};

use crate::scratch::fresh_dir;

/// Steps of one episode; each starts in an empty directory.
const EPISODE: usize = 150;

/// A directory in memory that goes away with the test.
struct Dir(PathBuf);

impl Dir {
    fn new() -> Dir {
        Dir(fresh_dir())
    }

    fn sub(&self, name: &str) -> PathBuf {
        let dir = self.0.join(name);
        std::fs::create_dir_all(&dir).unwrap();
        dir
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Two nodes whose processes share memory, and one whose processes do not. Small streams and
/// buffers, so that their edges are met.
fn nodes(shm: &Dir, seed: u64, workload: Workload) -> Vec<Config> {
    let mut rng = Rng::new(!seed);
    let mut config = |shared: Option<&str>| Config {
        streams: rng.pick(&[1, 2, 8]),
        buffer_bytes: rng.pick(&[8 << 10, 64 << 10, 64 << 20]),
        segment_bytes: rng.pick(&[64 << 10, 256 << 10, 1 << 40]),
        asked_names: rng.pick(&[0, 3, 130]),
        compact_bytes: rng.pick(&[0, 8 << 10, 64 << 20]),
        shared_memory: shared.map(|name| shm.sub(name)),
        workload,
        ..Config::shared()
    };
    vec![config(Some("node0")), config(Some("node1")), config(None)]
}

fn world(seed: u64, shm: &Dir, workload: Workload) -> World {
    let (store, root): (Arc<dyn Store>, PathBuf) = if seed.is_multiple_of(2) {
        (Arc::new(PosixStore::new()), shm.sub("root"))
    } else {
        let memory = MemStore::new();
        memory.mkdir(Path::new("/m"), 0o755).unwrap();
        // Storage of one machine, or of several.
        let memory = if seed % 4 == 1 { memory } else { memory.shared() };
        (Arc::new(memory), "/m".into())
    };
    World::new(store, &root, nodes(shm, seed, workload), &[0, 0, 1, 2, 2])
}

fn episode(seed: u64, steps: &[Step], workload: Workload) -> Result<(), String> {
    let shm = Dir::new();
    let outcome = catch_unwind(AssertUnwindSafe(|| world(seed, &shm, workload).run(steps)));
    outcome.unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .cloned()
            .or(panic.downcast_ref::<&str>().map(|text| text.to_string()));
        Err(format!("panic: {}", text.unwrap_or_default()))
    })
}

/// Whatever several processes of several nodes do, each sees its own writes at once and others'
/// commits when it looks; and when all have looked, all agree for ever.
#[test]
fn random_steps_agree_with_the_model() {
    random_steps(rounds("PLFS_MODEL_STEPS", 20_000), Workload::Shared);
}

/// The same of files that are plain until somebody says that they are shared, in the middle of what
/// others do.
#[test]
fn random_steps_agree_with_the_model_where_files_are_born_plain() {
    random_steps(rounds("PLFS_MODEL_STEPS", 20_000), Workload::Auto);
}

fn random_steps(total: u64, workload: Workload) {
    let first = seed();
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get() as u64).min(8);
    let episodes = total.div_ceil(EPISODE as u64);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                for seed in (first..first + episodes).filter(|seed| seed % threads == thread) {
                    let list = steps(&mut Rng::new(seed), EPISODE);
                    let Err(why) = episode(seed, &list, workload) else { continue };
                    let short = shrink(&list, 2000, |list| episode(seed, list, workload).is_err());
                    let (last, lines) = (
                        episode(seed, &short, workload).err(),
                        short.iter().map(|step| format!("    {step:?},\n")).collect::<String>(),
                    );
                    panic!(
                        "seed {seed}: {why}\nshortest list found, with {}:\n{lines}",
                        last.unwrap_or_default()
                    );
                }
            });
        }
    });
    explored(episodes * EPISODE as u64, "steps against the model");
}

/// A process replaced a file that it had open by a rename, and left its log sets, as before it
/// starts a program. Most of the file was dead, so it was compacted, and with no name left the
/// compaction took the container away: the next write was ENOENT (seed 3015245879).
#[test]
fn who_leaves_a_file_without_a_name_keeps_it() {
    let memory: Arc<dyn Store> = Arc::new(MemStore::new().shared());
    memory.mkdir(Path::new("/m"), 0o755).unwrap();
    let config = Config { shared_memory: None, asked_names: 0, ..Config::shared() };
    let plfs = Plfs::new(memory, config);
    let (path, other) = (Path::new("/m/f"), Path::new("/m/g"));
    open(&plfs, other).close().unwrap();
    let file = open(&plfs, path);
    file.write_at(&[1; 100_000], 0).unwrap();
    file.set_len(10).unwrap();
    plfs.rename(other, path).unwrap();
    plfs.leave_all().unwrap();
    file.write_at(&[2; 10], 10).unwrap();
    file.commit().unwrap();
    let mut bytes = [0; 30];
    assert_eq!(file.read_at(&mut bytes, 0).unwrap(), 20);
    assert_eq!(bytes[..20], [[1; 10], [2; 10]].concat());
    let dir = file.container().unwrap().dir.clone();
    file.close().unwrap();
    assert!(plfs.store().stat(&dir, plfs::store::Links::Stay).is_err(), "its data goes with it");
}

fn open(plfs: &Plfs, path: &Path) -> File {
    match plfs.open(path, OpenOptions::create()).unwrap() {
        Opened::Logical(file) => file,
        Opened::Plain(_) => panic!("{} is plain", path.display()),
    }
}

fn node() -> (Dir, Config, PathBuf) {
    let dir = Dir::new();
    let config = Config { shared_memory: Some(dir.sub("node")), ..Config::shared() };
    let path = dir.sub("root").join("f");
    (dir, config, path)
}

fn content(config: &Config, path: &Path) -> Vec<u8> {
    read_all(&Plfs::posix(config.clone()), path)
}

fn read_all(plfs: &Plfs, path: &Path) -> Vec<u8> {
    let mut bytes = vec![0xee; 1 << 16];
    let n = open(plfs, path).read_at(&mut bytes, 0).unwrap();
    bytes.truncate(n);
    bytes
}

/// A strided writer's last piece is short, as the tail of most arrays is. Its stamp was put off,
/// because it might have become a whole piece of the run, and was taken at the commit: so it won
/// over what another process of the node wrote there in between. Every record takes its stamp when
/// its first piece is written.
#[test]
fn a_short_last_piece_is_as_old_as_its_write() {
    let (_dir, config, path) = node();
    let (one, two) = (Plfs::posix(config.clone()), Plfs::posix(config.clone()));
    let (a, b) = (open(&one, &path), open(&two, &path));
    for i in 0..4 {
        a.write_at(&b"oldoldoldo"[..if i < 3 { 10 } else { 5 }], i * 20).unwrap();
    }
    b.write_at(b"newer", 60).unwrap();
    b.commit().unwrap();
    a.commit().unwrap();
    assert_eq!(&content(&config, &path)[60..], b"newer");
}

/// A process opens the file again, which makes it see what others committed, and goes on with the
/// pattern that it was writing. What it writes now is younger than what it could see: the pattern
/// must have ended at the open (docs/decisions/0003).
#[test]
fn what_is_written_after_an_open_is_younger_than_what_was_committed_before_it() {
    let (_dir, config, path) = node();
    let (one, two) = (Plfs::posix(config.clone()), Plfs::posix(config.clone()));
    let (a, b) = (open(&one, &path), open(&two, &path));
    for i in 0..3 {
        a.write_at(b"a", i * 10).unwrap();
    }
    b.write_at(b"b", 30).unwrap();
    b.commit().unwrap();
    let again = open(&one, &path);
    again.write_at(b"a", 30).unwrap();
    again.commit().unwrap();
    assert_eq!(content(&config, &path)[30], b'a');
}

/// A node whose clock is an hour ahead cuts a file, and a process of another node sees that, and
/// writes: its stamp comes right behind the cut's, where the first node's fallocate has its own. It
/// must not cut what was written, whichever of the two log sets has the larger number.
#[test]
fn room_that_is_reserved_behind_a_cut_of_the_future_cuts_nothing() {
    for _ in 0..12 {
        let (dir, config, path) = node();
        let ahead = Config { shared_memory: Some(dir.sub("ahead")), ..Config::shared() };
        let (one, two) = (Plfs::posix(config.clone()), Plfs::posix(ahead.clone()));
        let (mine, theirs) = (open(&one, &path), open(&two, &path));
        theirs.write_at(b"first", 0).unwrap();
        an_hour_ahead(&dir.sub("ahead"));
        theirs.set_len(1).unwrap();
        theirs.commit().unwrap();
        mine.refresh().unwrap();
        mine.write_at(b"mine", 500).unwrap();
        for size in [50, 100] {
            theirs.allocate(0, size, Size::Grows).unwrap();
            assert_eq!(theirs.len().unwrap(), size);
        }
        mine.sync().unwrap();
        for config in [&config, &ahead] {
            let now = content(config, &path);
            assert_eq!((now.len(), &now[500..]), (504, &b"mine"[..]));
        }
        // And what is written behind a cut of one's own.
        theirs.set_len(0).unwrap();
        theirs.write_at(b"theirs", 500).unwrap();
        theirs.allocate(0, 100, Size::Grows).unwrap();
        theirs.commit().unwrap();
        assert_eq!(&content(&ahead, &path)[500..], b"theirs");
    }
}

/// A node whose clock is an hour ahead writes and commits; a process of another node looks, and
/// then writes the same bytes: it wins, however it looked, and whether or not it was writing
/// already. In the original the wall clock decided, and a clock 5 s ahead won for 5 s.
/// (SEMANTICS.md S8)
#[test]
fn what_is_written_after_something_was_seen_wins_whatever_the_clocks_say() {
    for (created, wrote, how) in (0..16).map(|case| (case % 2 == 0, case / 2 % 2 == 0, case / 4)) {
        let (dir, config, path) = node();
        let ahead = Config { shared_memory: Some(dir.sub("ahead")), ..Config::shared() };
        let (one, two) = (Plfs::posix(config.clone()), Plfs::posix(ahead.clone()));
        if !created {
            open(&Plfs::posix(config.clone()), &path).close().unwrap();
        }
        let mine = open(&one, &path);
        if wrote {
            mine.write_at(b"mine", 100).unwrap();
        }
        let theirs = open(&two, &path);
        theirs.write_at(b"first", 200).unwrap();
        an_hour_ahead(&dir.sub("ahead"));
        theirs.write_at(b"theirs", 0).unwrap();
        theirs.commit().unwrap();
        let mine = match how {
            0 => open(&one, &path),
            1 => {
                mine.refresh().unwrap();
                mine
            }
            2 => {
                mine.read_at(&mut [0; 10], 1000).unwrap();
                mine
            }
            _ => {
                mine.sync().unwrap();
                mine
            }
        };
        mine.write_at(b"mine", 0).unwrap();
        mine.commit().unwrap();
        assert_eq!(
            &content(&config, &path)[..6],
            b"miners",
            "created {created}, wrote {wrote}, looked {how}"
        );
        assert_eq!(&content(&ahead, &path)[..6], b"miners");
    }
}

/// A file's clock that covers all commits is ahead of them, for a second. Who looked at it and
/// committed took it a second further, each time: after a thousand locked writes it was a quarter
/// of an hour ahead, and so were their stamps, which won over what other nodes wrote later (S10).
#[test]
fn who_goes_by_the_clock_of_a_file_does_not_take_it_into_the_future() {
    let (dir, memory) = (Dir::new(), MemStore::new().shared());
    memory.mkdir(Path::new("/m"), 0o755).unwrap();
    let config = Config { shared_memory: Some(dir.sub("one")), asked_names: 0, ..Config::shared() };
    let plfs = Plfs::new(Arc::new(memory.clone()), config);
    let file = open(&plfs, Path::new("/m/f"));
    for _ in 0..100 {
        file.refresh().unwrap();
        file.write_at(b"mine", 0).unwrap();
        file.commit().unwrap();
        file.refresh().unwrap();
    }
    let clock =
        memory.open(&file.container().unwrap().dir.join("clock"), store::Open::READ).unwrap();
    let mut bytes = [0; BYTES];
    clock.read_at(&mut bytes, 0).unwrap();
    let Clock { stamp, covers } = Clock::decode(&bytes).unwrap();
    assert_eq!(covers, Covers::All);
    let ahead_s = (stamp >> 16) as f64 / 1000.0 - store::Time::now().ns() as f64 / 1e9;
    assert!((-1.0..3.0).contains(&ahead_s), "{ahead_s} s ahead");
}

/// A file was cut, left by all, and merged into a flat index, which leaves orders out. Of two
/// processes of a node one had opened it before that: it read the cut in the logs, and appended.
/// The other one began with the flat index, so it knew of no cut when it said how far another node
/// had written: it was taken for somebody who had looked before the cut, and its append went over
/// what it had read (seed 2547786888).
#[test]
fn who_begins_with_a_flat_index_appends_behind_what_it_has_seen() {
    let (dir, config, path) = node();
    let elsewhere = Config { shared_memory: Some(dir.sub("elsewhere")), ..Config::shared() };
    let new = |config: &Config| Plfs::posix(config.clone());
    let (cutter, reader, other) = (new(&config), new(&config), new(&elsewhere));
    let file = open(&cutter, &path);
    file.write_at(b"long ago", 0).unwrap();
    file.set_len(4).unwrap();
    let from_logs = open(&reader, &path);
    file.close().unwrap();
    let from_flat = open(&cutter, &path);
    cutter.flatten(&path).unwrap();
    assert_eq!(from_logs.append(b"appended").unwrap(), (4, 8));
    from_logs.commit().unwrap();
    let far = open(&other, &path);
    far.write_at(b"far", 97).unwrap();
    far.commit().unwrap();
    from_flat.refresh().unwrap();
    assert_eq!(from_flat.len().unwrap(), 100);
    assert_eq!(from_flat.append(b"behind").unwrap(), (100, 6));
}

/// On storage that machines share nobody can go by a wall clock, and where there are many log sets
/// nobody asks each: the file's own clock says what all start behind. A node an hour ahead commits,
/// before anybody goes by that clock or afterwards; each node that comes later wins over it.
#[test]
fn who_goes_by_the_clock_of_a_file_wins_over_what_was_committed_before() {
    for (was_before, is_torn) in (0..4).map(|case| (case % 2 == 0, case / 2 == 1)) {
        let (dir, memory) = (Dir::new(), MemStore::new().shared());
        memory.mkdir(Path::new("/m"), 0o755).unwrap();
        let path = Path::new("/m/f");
        let node = |name: &str| {
            let config =
                Config { shared_memory: Some(dir.sub(name)), asked_names: 0, ..Config::shared() };
            Plfs::new(Arc::new(memory.clone()), config)
        };
        let ahead = node("ahead");
        let theirs = open(&ahead, path);
        theirs.write_at(b"theirs", 0).unwrap();
        if was_before {
            an_hour_ahead(&dir.sub("ahead"));
            theirs.write_at(b"THEIRS", 0).unwrap();
            theirs.commit().unwrap();
        }
        let second = node("second");
        let mine = open(&second, path);
        mine.write_at(b"se", 0).unwrap();
        mine.commit().unwrap();
        if !was_before {
            an_hour_ahead(&dir.sub("ahead"));
            theirs.write_at(b"THEIRS", 0).unwrap();
            theirs.commit().unwrap();
        }
        if is_torn {
            let (container, _) = second.container(path).unwrap().unwrap();
            let clock = memory.open(&container.path("clock"), Open::READ_WRITE).unwrap();
            clock.write_at(&[0; 12], 0).unwrap();
        }
        let third = node("third");
        let last = open(&third, path);
        last.write_at(b"3", 0).unwrap();
        last.commit().unwrap();
        let found = String::from_utf8(read_all(&node("reader"), path)).unwrap();
        let expected = if was_before { "3eEIRS" } else { "3HEIRS" };
        assert_eq!(found, expected, "was before: {was_before}, is torn: {is_torn}");
        let fourth = node("fourth");
        let after = open(&fourth, path);
        after.write_at(b"4", 0).unwrap();
        after.close().unwrap();
        assert_eq!(read_all(&node("reader"), path)[0], b'4');
    }
}

/// Two nodes that know only of a third one whose clock is an hour ahead take the same stamps, one
/// behind its last. Each took the other's block for its own, which it need not read, and
/// never saw what was written. (With right clocks it took two commits within 15 ns: once in some
/// hundred runs of `tests/mpi/t_index`.)
#[test]
fn a_block_of_another_node_with_the_same_stamp_is_read() {
    let (dir, config, path) = node();
    let ahead = Config { shared_memory: Some(dir.sub("ahead")), ..Config::shared() };
    let theirs = open(&Plfs::posix(ahead), &path);
    theirs.write_at(b"theirs", 0).unwrap();
    an_hour_ahead(&dir.sub("ahead"));
    theirs.write_at(b"later ", 0).unwrap();
    theirs.close().unwrap();
    let nodes = [config, Config { shared_memory: Some(dir.sub("other")), ..Config::shared() }]
        .map(Plfs::posix);
    let [one, two] = [0, 1].map(|i| open(&nodes[i], &path));
    one.write_at(b"one", 10).unwrap();
    two.write_at(b"two", 20).unwrap();
    let mut bytes = [0; 23];
    [&one, &two].iter().for_each(|file| assert!(file.read_at(&mut bytes, 0).is_ok()));
    [&one, &two].iter().for_each(|file| file.commit().unwrap());
    for file in [&one, &two] {
        file.refresh().unwrap();
        assert_eq!(file.read_at(&mut bytes, 0).unwrap(), 23);
        assert_eq!(&bytes, b"later \0\0\0\0one\0\0\0\0\0\0\0two");
    }
}

/// A process of another node has made the file longer, and this process has looked: its next append
/// goes behind what it saw, not over it.
#[test]
fn an_append_goes_behind_what_was_seen() {
    for how in 0..2 {
        let (dir, config, path) = node();
        let (one, two) = (
            Plfs::posix(config.clone()),
            Plfs::posix(Config { shared_memory: Some(dir.sub("other")), ..Config::shared() }),
        );
        let mine = open(&one, &path);
        assert_eq!(mine.append(b"one ").unwrap(), (0, 4));
        mine.commit().unwrap();
        let theirs = open(&two, &path);
        assert_eq!(theirs.append(b"two ").unwrap(), (4, 4));
        theirs.commit().unwrap();
        let mine = match how {
            0 => open(&one, &path),
            _ => {
                mine.refresh().unwrap();
                mine
            }
        };
        assert_eq!(mine.append(b"three").unwrap(), (8, 5));
        mine.commit().unwrap();
        assert_eq!(content(&config, &path), b"one two three");
    }
}

/// A file that a process has read stays readable to it when another process removes its last name.
#[test]
fn a_file_whose_name_another_process_removes_stays_readable() {
    let (_dir, config, path) = node();
    let (one, two) = (Plfs::posix(config.clone()), Plfs::posix(config.clone()));
    let a = open(&one, &path);
    a.write_at(b"kept", 0).unwrap();
    a.close().unwrap();
    let reader = open(&one, &path);
    let mut buf = [0; 4];
    reader.read_at(&mut buf[..1], 0).unwrap();
    two.unlink(&path).unwrap();
    assert_eq!(reader.read_at(&mut buf, 0).unwrap(), 4);
    assert_eq!(&buf, b"kept");
}

/// S17. A process opens a file and removes its name before it has read anything. Another process of
/// the node that had the file open closed it, and took the data away.
#[test]
fn who_removes_the_name_of_what_he_has_open_keeps_the_data() {
    let (_dir, config, path) = node();
    let (one, two) = (Plfs::posix(config.clone()), Plfs::posix(config.clone()));
    let other = open(&two, &path);
    other.write_at(b"kept", 0).unwrap();
    other.commit().unwrap();
    let mine = open(&one, &path);
    one.unlink(&path).unwrap();
    other.close().unwrap();
    let mut buf = [0; 4];
    assert_eq!(mine.read_at(&mut buf, 0).unwrap(), 4);
    assert_eq!(&buf, b"kept");
}

/// The real store, and something that happens right after the next stat of a superblock.
struct AfterStat {
    inner: PosixStore,
    act: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl std::fmt::Debug for AfterStat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AfterStat")
    }
}

impl Store for AfterStat {
    fn open(&self, path: &Path, how: Open) -> store::Result<Arc<dyn StoreFile>> {
        self.inner.open(path, how)
    }
    fn stat(&self, path: &Path, links: Links) -> store::Result<store::Stat> {
        let stat = self.inner.stat(path, links);
        let act = if path.ends_with("super") { self.act.lock().unwrap().take() } else { None };
        act.into_iter().for_each(|act| act());
        stat
    }
    fn list(&self, path: &Path) -> store::Result<Vec<store::Entry>> {
        self.inner.list(path)
    }
    plfs_testkit::delegate_names!(inner);
    fn is_local(&self, path: &Path) -> bool {
        self.inner.is_local(path)
    }
    fn boot(&self, path: &Path) -> Option<u64> {
        self.inner.boot(path)
    }
}

/// A process that had read a file closed it: it looked whether the name was gone, which it was not,
/// and then gave up its claim. In between another process removed the name, and left the
/// data to the first. Nobody removed it. (Readers in a mount, of a file that others replaced all
/// the time, left a container in some of a thousand closes.)
#[test]
fn a_file_that_loses_its_name_while_its_last_reader_closes_it_leaves_nothing() {
    let (_dir, config, path) = node();
    let store = Arc::new(AfterStat { inner: PosixStore::new(), act: Mutex::default() });
    let (one, two) = (Plfs::new(store.clone(), config.clone()), Plfs::posix(config.clone()));
    let file = open(&two, &path);
    file.write_at(b"gone", 0).unwrap();
    file.close().unwrap();
    let reader = open(&one, &path);
    reader.read_at(&mut [0; 4], 0).unwrap();
    *store.act.lock().unwrap() = Some(Box::new({
        let path = path.clone();
        move || two.unlink(&path).unwrap()
    }));
    reader.close().unwrap();
    assert!(store.act.lock().unwrap().is_none());
    let left = |shard: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_dir(shard.unwrap().path()).unwrap().count()
    };
    let root = path.parent().unwrap();
    assert_eq!(std::fs::read_dir(root.join(".plfs")).unwrap().map(left).sum::<usize>(), 0);
}
