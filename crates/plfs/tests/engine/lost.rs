//! What `plfs check --repair` takes out of a container is in lost+found, and comes back from there
//! byte for byte: for each kind of damage, whoever dies at whatever call, on a full device, beside
//! another repair, and whatever somebody planted.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use plfs::store::{Errno, PosixStore, Store};
use plfs::{Config, File, Health, Lost, OpenOptions, Opened, Plfs, Report};
use plfs_format::mark::Mark;
use plfs_testkit::{FaultStore, Op, in_turn};

use crate::scratch::fresh_dir;

struct Fixture {
    root: PathBuf,
    config: Config,
    store: FaultStore,
}

/// Files of a tree with their bytes, without caches and what repairs may write anew: flat indexes
/// and the second part of superblocks.
type Tree = BTreeMap<PathBuf, Vec<u8>>;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Damage {
    /// Data to which no record points.
    Unrecorded,
    /// A container without a name, on one or two backends.
    Nameless,
    /// A log set on its way out of which nothing says that it is dead.
    Gone,
}

const ALL: [Damage; 3] = [Damage::Unrecorded, Damage::Nameless, Damage::Gone];

fn open(plfs: &Plfs, path: &Path) -> File {
    match plfs.open(path, OpenOptions::create()).unwrap() {
        Opened::Logical(file) => file,
        Opened::Plain(_) => panic!("{} is plain", path.display()),
    }
}

impl Fixture {
    fn new() -> Fixture {
        let root = fresh_dir();
        fs::create_dir_all(root.join("other")).unwrap();
        let config = Config {
            backends: vec![root.join("other")],
            shared_memory: None,
            streams: 2,
            ..Config::shared()
        };
        Fixture { root, config, store: FaultStore::new(Arc::new(PosixStore::new())) }
    }

    fn with(damage: Damage) -> Fixture {
        let fixture = Fixture::new();
        for name in ["f", "kept"] {
            // Two writers at once: two log sets, with data on both backends.
            let (one, two) =
                (Plfs::posix(fixture.config.clone()), Plfs::posix(fixture.config.clone()));
            let (a, b) =
                (open(&one, &fixture.root.join(name)), open(&two, &fixture.root.join(name)));
            for i in 0..20 {
                a.write_at(&[b'a' + i as u8; 50], i * 100).unwrap();
                b.write_at(&[b'A' + i as u8; 50], i * 100 + 50).unwrap();
            }
            a.close().unwrap();
            b.close().unwrap();
        }
        let dir = fixture.dir();
        let set = fs::read_dir(&dir)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .find(|path| path.is_dir())
            .unwrap();
        match damage {
            Damage::Unrecorded => {
                fs::write(set.join("01.00000003.data"), [7; 5000]).unwrap();
                // The log set's part on the other backend.
                let other =
                    fixture.root.join("other").join(set.strip_prefix(&fixture.root).unwrap());
                fs::create_dir_all(&other).unwrap();
                fs::write(other.join("00.00000004.data"), [8; 6000]).unwrap();
            }
            Damage::Nameless => fs::remove_file(fixture.root.join("f")).unwrap(),
            Damage::Gone => fs::rename(&set, set.with_extension("gone")).unwrap(),
        }
        fixture
    }

    fn dir(&self) -> PathBuf {
        Plfs::posix(self.config.clone())
            .container(&self.root.join("f"))
            .unwrap()
            .unwrap()
            .0
            .dir
            .to_path_buf()
    }

    fn arc(&self) -> Arc<dyn Store> {
        Arc::new(self.store.clone())
    }

    fn reports(&self) -> Vec<Report> {
        plfs::check_tree(&(Arc::new(PosixStore::new()) as Arc<dyn Store>), &self.root, &[], |_| {})
            .unwrap()
    }

    /// All repairs, as `plfs check --repair` makes them.
    fn repair(&self) -> plfs::Result<Vec<String>> {
        let done: plfs::Result<Vec<Vec<String>>> = self
            .reports()
            .iter()
            .map(|report| plfs::repair(&self.arc(), &self.config, report, 0))
            .collect();
        Ok(done?.concat())
    }

    fn lost(&self) -> Vec<Lost> {
        let store: Arc<dyn Store> = Arc::new(PosixStore::new());
        ["", "other"]
            .iter()
            .flat_map(|backend| plfs::lost_and_found(&store, &self.root.join(backend)).unwrap())
            .collect()
    }

    fn undo(&self) -> plfs::Result<()> {
        self.lost().iter().try_for_each(|lost| plfs::put_back(&self.arc(), lost))
    }

    fn tree(&self) -> Tree {
        let (mut tree, mut todo) = (Tree::new(), vec![self.root.clone()]);
        while let Some(dir) = todo.pop() {
            for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
                let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
                match entry.file_type().unwrap().is_dir() {
                    _ if name == "lost+found" => {}
                    true => todo.push(path),
                    false if name.starts_with("flat") => {}
                    // Says that nobody goes on with a log set: what remains of a repair that died.
                    false if name.ends_with(".fenced") => {}
                    false if entry.file_type().unwrap().is_symlink() => {
                        tree.insert(
                            path.strip_prefix(&self.root).unwrap().to_path_buf(),
                            Vec::new(),
                        );
                    }
                    false => {
                        let mut bytes = fs::read(&path).unwrap();
                        if bytes.len() == plfs::SUPERBLOCK_BYTES {
                            bytes.truncate(3072);
                        }
                        tree.insert(path.strip_prefix(&self.root).unwrap().to_path_buf(), bytes);
                    }
                }
            }
        }
        tree
    }

    /// Makes open marks those of a process that is not there any more, as if this one had died.
    fn die(&self) {
        let mut todo = vec![self.root.join(".plfs")];
        while let Some(dir) = todo.pop() {
            for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
                let path = entry.path();
                if entry.file_type().unwrap().is_dir() {
                    todo.push(path);
                } else if path.extension().is_some_and(|kind| kind == "open") {
                    let mark =
                        Mark::parse(fs::read_link(&path).unwrap().to_str().unwrap()).unwrap();
                    fs::remove_file(&path).unwrap();
                    symlink(Mark { start: mark.start + 1, ..mark }.text(), path).unwrap();
                }
            }
        }
    }

    /// The bytes of all logs, wherever they are.
    fn logs(&self) -> Vec<Vec<u8>> {
        let (mut logs, mut todo) = (Vec::new(), vec![self.root.clone()]);
        while let Some(dir) = todo.pop() {
            for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
                let name = entry.file_name().to_string_lossy().into_owned();
                match entry.file_type().unwrap().is_dir() {
                    true => todo.push(entry.path()),
                    false
                        if name.ends_with(".data")
                            || name == "index"
                            || name == "kept"
                                && !entry.path().parent().unwrap().ends_with("plfs") =>
                    {
                        // A data log with two names for a moment counts once.
                        let bytes = fs::read(entry.path()).unwrap();
                        if entry.metadata().unwrap().nlink() == 1 || name != "kept" {
                            logs.push(bytes);
                        }
                    }
                    false => {}
                }
            }
        }
        logs.retain(|log| log.len() != plfs::SUPERBLOCK_BYTES);
        logs.sort();
        logs
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

/// A superblock that was written to got its bytes again from its second copy, which has no summary.
/// That a lost index log had counted nobody knew from then on: the file was healthy, and empty.
#[test]
fn a_repaired_superblock_counts_what_was_there_at_the_last_close() {
    let fixture = Fixture::with(Damage::Unrecorded);
    let (dir, name) = (fixture.dir(), fixture.root.join("f"));
    let read = || {
        let file = open(&Plfs::posix(fixture.config.clone()), &name);
        let mut bytes = vec![0; 5000];
        let n = file.read_at(&mut bytes, 0).unwrap();
        bytes[..n].to_vec()
    };
    let before = read();
    let sets = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path().join("index"));
    let indexes: Vec<PathBuf> = sets.filter(|path| path.exists()).collect();
    assert_eq!(indexes.len(), 2);
    let kept: Vec<Vec<u8>> = indexes.iter().map(|path| fs::read(path).unwrap()).collect();
    indexes.iter().for_each(|path| fs::write(path, "").unwrap());
    let super_path = dir.join("super");
    let mut bytes = fs::read(&super_path).unwrap();
    bytes[2725] ^= 1;
    fs::write(&super_path, &bytes).unwrap();
    let health = || plfs::check_name(&fixture.arc(), &name, &[]).health();
    assert_eq!(health(), Health::Corrupt);
    fixture.repair().unwrap();
    assert_eq!(health(), Health::Corrupt, "nothing is lost");
    let is_data = |lost: &Lost| lost.from.extension().is_some_and(|kind| kind == "data");
    assert!(!fixture.lost().iter().any(is_data), "{:?}", fixture.lost());
    indexes.iter().zip(&kept).for_each(|(path, bytes)| fs::write(path, bytes).unwrap());
    assert!(read() == before);
    fixture.repair().unwrap();
    assert_eq!(health(), Health::Healthy);
}

/// Index logs that were lost were no hindrance: the data that they alone knew was removed as
/// garbage, a summary of nothing was written, and the file was healthy. Putting the index log
/// back did not help any more.
#[test]
fn a_lost_index_log_does_not_cost_the_data() {
    for flattens in [false, true] {
        let fixture = Fixture::with(Damage::Unrecorded);
        let plfs = Plfs::posix(fixture.config.clone());
        if flattens {
            plfs.flatten(&fixture.root.join("f")).unwrap();
        }
        let read = || {
            let file = open(&Plfs::posix(fixture.config.clone()), &fixture.root.join("f"));
            let mut bytes = vec![0; 5000];
            let n = file.read_at(&mut bytes, 0).unwrap();
            bytes[..n].to_vec()
        };
        let lacks = || {
            let file = open(&Plfs::posix(fixture.config.clone()), &fixture.root.join("f"));
            file.lacks_logs().unwrap()
        };
        let before = read();
        assert!(!lacks());
        let (tree, dir) = (fixture.tree(), fixture.dir());
        let indexes: Vec<PathBuf> = tree
            .keys()
            .filter(|path| path.ends_with("index") && fixture.root.join(path).starts_with(&dir))
            .cloned()
            .collect();
        assert_eq!(indexes.len(), 2);
        for lost in [&indexes[..1], &indexes[..]] {
            for (i, index) in lost.iter().enumerate() {
                fs::rename(fixture.root.join(index), fixture.root.join(format!("saved{i}")))
                    .unwrap();
            }
            for _ in 0..3 {
                fixture.repair().unwrap();
                let report = plfs::check_name(&fixture.arc(), &fixture.root.join("f"), &[]);
                assert_eq!(report.health(), Health::Corrupt, "promised bytes are gone: {report:?}");
                // Anything that changes the directory makes the summary void: it still counts more
                // than there is.
                fs::write(dir.join("stranger"), "").unwrap();
                fs::remove_file(dir.join("stranger")).unwrap();
            }
            assert!(
                fixture.lost().is_empty(),
                "data moved away from where the index log would find it"
            );
            // Who copied the file had less of it, with success.
            assert!(lacks());
            assert_eq!(
                dir.join("flat").exists(),
                flattens,
                "the flat index may be all that is left"
            );
            assert!(
                plfs.compact(&fixture.root.join("f"), |_| std::ops::ControlFlow::Continue(()))
                    .is_err(),
                "compacted without the lost bytes"
            );
            for (i, index) in lost.iter().enumerate() {
                fs::rename(fixture.root.join(format!("saved{i}")), fixture.root.join(index))
                    .unwrap();
            }
            assert!(fixture.tree() == tree && read() == before && !lacks());
            fixture.repair().unwrap();
            assert_eq!(
                plfs::check_name(&fixture.arc(), &fixture.root.join("f"), &[]).health(),
                Health::Healthy
            );
            fixture.undo().unwrap();
        }
    }
}

/// The next writer's close wrote a summary of what was left, so that the file was healthy; and
/// whoever compacted it, or drained a backend, removed the data of the lost index log. Where there
/// was no summary, because the writers were killed, the next one began another index log in the
/// place of the lost one.
#[test]
fn the_next_close_does_not_hide_that_an_index_log_is_lost() {
    for (were_killed, is_whole_set) in [(false, false), (false, true), (true, false)] {
        let fixture = Fixture::with(Damage::Unrecorded);
        let (path, dir) = (fixture.root.join("f"), fixture.dir());
        let read = || {
            let file = open(&Plfs::posix(fixture.config.clone()), &path);
            let mut bytes = vec![0; 5000];
            let n = file.read_at(&mut bytes, 0).unwrap();
            bytes[..n].to_vec()
        };
        let mut before = read();
        if were_killed {
            let super_path = dir.join("super");
            let superblock = fs::OpenOptions::new().write(true).open(super_path).unwrap();
            superblock.write_all_at(&[0; 128], 3072).unwrap();
        }
        let set = fs::read_dir(&dir)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .find(|path| path.join("index").exists())
            .unwrap();
        let lost = if is_whole_set { set } else { set.join("index") };
        fs::rename(&lost, fixture.root.join("saved")).unwrap();
        for round in 0..3 {
            let file = open(&Plfs::posix(fixture.config.clone()), &path);
            file.write_at(&[b'0' + round; 10], 0).unwrap();
            file.close().unwrap();
            before[..10].fill(b'0' + round);
            let report = plfs::check_name(&fixture.arc(), &path, &[]);
            let is_said = report.health() == Health::Corrupt
                || report.findings.iter().any(|finding| finding.what.contains("index log is lost"));
            assert!(is_said, "{were_killed} {is_whole_set}: {report:?}");
            fixture.repair().unwrap();
            let plfs = Plfs::posix(fixture.config.clone());
            plfs.compact(&path, |_| std::ops::ControlFlow::Continue(())).unwrap_err();
        }
        assert!(!lost.exists(), "another one began in its place");
        fs::rename(fixture.root.join("saved"), &lost).unwrap();
        assert!(read() == before, "{were_killed} {is_whole_set}");
    }
}

/// Who could not read the summary from before wrote a new one, which hid that a log set was lost.
#[test]
fn a_close_that_cannot_read_the_summary_does_not_hide_that_a_log_set_is_lost() {
    let mut fixture = Fixture::new();
    fixture.config.backends.clear();
    let path = fixture.root.join("f");
    let process = || Plfs::new(fixture.arc(), fixture.config.clone());
    let both = (process(), process());
    let files = [open(&both.0, &path), open(&both.1, &path)];
    for file in &files {
        file.write_at(b"bytes", 7).unwrap();
    }
    files.into_iter().for_each(|file| file.close().unwrap());
    let sets = fs::read_dir(fixture.dir()).unwrap().map(|entry| entry.unwrap().path());
    let set = sets.into_iter().find(|path| path.join("index").exists()).unwrap();
    fs::rename(&set, fixture.root.join("saved")).unwrap();
    let file = open(&process(), &path);
    file.write_at(b"new", 0).unwrap();
    fixture.store.fail_matching("/super", Op::ReadAt, Errno::IO);
    let _ = file.close();
    fixture.store.reset();
    let report = plfs::check_name(&fixture.arc(), &path, &[]);
    let is_said = report.health() == Health::Corrupt
        || report.findings.iter().any(|finding| finding.what.contains("index log is lost"));
    assert!(is_said, "{report:?}");
}

/// Somebody who may write in the container made a link `SET.gone` beside a log set: a repair took
/// that for what is left of the set, and removed its data on the other backend.
#[test]
fn what_is_planted_beside_a_log_set_does_not_cost_its_data() {
    for is_link in [true, false] {
        let fixture = Fixture::with(Damage::Unrecorded);
        let (path, tree) = (fixture.root.join("f"), fixture.tree());
        let sets = fs::read_dir(fixture.dir()).unwrap().map(|entry| entry.unwrap().path());
        let sets: Vec<PathBuf> = sets.filter(|path| path.join("index").exists()).collect();
        for set in &sets {
            let gone = set.with_extension("gone");
            match is_link {
                true => symlink("x", gone).unwrap(),
                false => fs::create_dir(gone).unwrap(),
            }
        }
        fixture.repair().unwrap();
        let plfs = Plfs::posix(fixture.config.clone());
        let file = open(&plfs, &path);
        let mut bytes = vec![0; 5000];
        assert_eq!(file.read_at(&mut bytes, 0).unwrap(), 2000);
        let is_data = |path: &Path| path.extension().is_some_and(|kind| kind == "data");
        let left = fixture.tree();
        for path in tree.keys().filter(|path| is_data(path)) {
            let is_moved = ["01.00000003.data", "00.00000004.data"];
            let name = path.file_name().unwrap().to_str().unwrap();
            assert!(left.contains_key(path) || is_moved.contains(&name), "{}", path.display());
        }
    }
}

/// A damaged index block may have named any data: it stays where it is.
#[test]
fn data_stays_beside_a_damaged_index_log() {
    let fixture = Fixture::with(Damage::Unrecorded);
    let tree = fixture.tree();
    let index = tree
        .keys()
        .find(|path| path.ends_with("index") && fixture.root.join(path).starts_with(fixture.dir()))
        .unwrap();
    let mut bytes = tree[index].clone();
    bytes[100] ^= 1;
    fs::write(fixture.root.join(index), &bytes).unwrap();
    fixture.repair().unwrap();
    assert!(fixture.lost().is_empty());
    fs::write(fixture.root.join(index), &tree[index]).unwrap();
    assert!(fixture.tree() == tree);
}

#[test]
fn all_that_a_repair_takes_out_can_be_put_back() {
    for damage in ALL {
        let fixture = Fixture::with(damage);
        let before = fixture.tree();
        // The number of a log set, which is random, says on which backends its data lies.
        let nameless = || {
            fixture
                .reports()
                .iter()
                .find(|report| report.nameless)
                .and_then(|report| report.dir.file_name().map(|name| name.to_owned()))
        };
        let parts = nameless().map_or(0, |name| {
            let is_part = |path: &&PathBuf| path.components().any(|part| part.as_os_str() == name);
            let backends: std::collections::BTreeSet<bool> =
                before.keys().filter(is_part).map(|path| path.starts_with("other")).collect();
            backends.len()
        });
        let expect = match damage {
            Damage::Unrecorded => 2,
            Damage::Nameless => parts,
            Damage::Gone => 1,
        };
        let done = fixture.repair().unwrap();
        assert!(done.iter().any(|done| done.starts_with("moved")), "{damage:?}: {done:?}");
        let lost = fixture.lost();
        assert_eq!(lost.len(), expect, "{damage:?}: {lost:?}");
        for lost in &lost {
            assert!(lost.bytes > 0 && !lost.why.is_empty() && !lost.from.exists(), "{lost:?}");
            assert!(
                fixture.reports().iter().any(|report| report.lost.contains(lost)),
                "{lost:?} is not reported"
            );
            assert_eq!(plfs::lost_at(&fixture.arc(), &lost.dir).as_ref(), Some(lost));
        }
        assert!(fixture.tree() != before);
        assert!(
            fixture.repair().unwrap().iter().all(|done| !done.starts_with("moved")),
            "{damage:?}: a second repair finds nothing to move"
        );
        fixture.undo().unwrap();
        assert!(fixture.tree() == before, "{damage:?}");
        assert!(fixture.lost().is_empty());
        // And once more, to discard it.
        fixture.repair().unwrap();
        let lost = fixture.lost();
        assert!(!lost.is_empty());
        lost.iter().for_each(|lost| plfs::discard(&fixture.arc(), lost).unwrap());
        assert!(fixture.lost().is_empty() && lost.iter().all(|lost| !lost.dir.exists()));
    }
}

/// The note of a data log on another backend says where its container lies: as text that was not
/// UTF-8, or had several lines, it was another place, and nothing could be put back.
#[test]
fn what_is_of_a_container_with_an_odd_path_can_be_put_back() {
    let top = fresh_dir();
    for odd in [&b"r\xffoot"[..], b"ro\not", b"ro\\not", b"root\\", b"a\nwhy \\\\\nsince 9\n"] {
        let (root, other) = (top.join(OsStr::from_bytes(odd)), top.join("other"));
        fs::create_dir(&root).unwrap();
        fs::create_dir(&other).unwrap();
        let backends = vec![other.clone()];
        let config = Config { backends, shared_memory: None, streams: 2, ..Config::shared() };
        let plfs = Plfs::posix(config.clone());
        let file = open(&plfs, &root.join("f"));
        file.write_at(b"bytes", 0).unwrap();
        file.close().unwrap();
        let dir = plfs.container(&root.join("f")).unwrap().unwrap().0.dir.clone();
        let set = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path());
        let set = set.into_iter().find(|path| path.is_dir()).unwrap();
        let data = other.join(set.strip_prefix(&root).unwrap()).join("00.00000004.data");
        fs::create_dir_all(data.parent().unwrap()).unwrap();
        fs::write(&data, [8; 6000]).unwrap();
        let store: Arc<dyn Store> = Arc::new(PosixStore::new());
        let report = plfs::check_name(&store, &root.join("f"), &[]);
        plfs::repair(&store, &config, &report, 0).unwrap();
        let lost = plfs::lost_and_found(&store, &other).unwrap();
        assert!(lost.len() == 1 && lost[0].from == data && lost[0].why.contains("no index record"));
        assert!(!data.exists() && lost[0].since.sec > 9);
        plfs::put_back(&store, &lost[0]).unwrap();
        assert_eq!(fs::read(&data).unwrap(), [8; 6000]);
        fs::remove_dir_all(&root).unwrap();
        fs::remove_dir_all(&other).unwrap();
    }
    fs::remove_dir(top).unwrap();
}

/// A repair, or an undo, that dies at any of its calls loses nothing, and the next one completes
/// it.
#[test]
fn whoever_dies_in_a_repair_or_an_undo_loses_nothing() {
    for damage in ALL {
        let mut deaths = 0;
        for n in in_turn(1..) {
            let fixture = Fixture::with(damage);
            let (before, logs) = (fixture.tree(), fixture.logs());
            fixture.store.kill_at(n);
            let died = fixture.repair().is_err();
            fixture.store.reset();
            fixture.die();
            assert!(fixture.logs() == logs, "{damage:?}: death at call {n} of a repair lost bytes");
            fixture.repair().unwrap();
            assert!(!fixture.lost().is_empty() && fixture.logs() == logs, "{damage:?}: {n}");
            fixture.store.kill_at(n);
            let died = fixture.undo().is_err() || died;
            fixture.store.reset();
            fixture.die();
            assert!(fixture.logs() == logs, "{damage:?}: death at call {n} of an undo lost bytes");
            fixture.undo().unwrap();
            let after = fixture.tree();
            let names = |tree: &Tree| tree.keys().cloned().collect::<Vec<_>>();
            assert_eq!(names(&after), names(&before), "{damage:?}: death at call {n}");
            assert!(after == before, "{damage:?}: death at call {n}");
            assert!(fixture.lost().is_empty());
            deaths += u32::from(died);
            if !died {
                break;
            }
        }
        assert!(deaths >= 3, "{damage:?}: {deaths}");
    }
}

#[test]
fn a_full_device_and_missing_permission_leave_all_as_it_was() {
    for damage in ALL {
        let failures: [(&str, Op, Errno); 5] = [
            ("note", Op::Open, Errno::NOSPC),
            ("note", Op::WriteAt, Errno::NOSPC),
            ("lost+found", Op::Mkdir, Errno::NOSPC),
            ("lost+found", Op::Mkdir, Errno::ACCESS),
            ("kept", Op::Rename, Errno::PERM),
        ];
        for (path, op, errno) in failures {
            let fixture = Fixture::with(damage);
            let before = fixture.tree();
            fixture.store.fail_matching(path, op, errno);
            assert_eq!(fixture.repair().unwrap_err().errno(), errno, "{damage:?} {path} {op:?}");
            assert!(
                fixture.tree() == before && fixture.lost().is_empty(),
                "{damage:?} {path} {op:?}"
            );
            fixture.store.reset();
            fixture.repair().unwrap();
            let after = fixture.tree();
            for (op, errno) in [(Op::Rename, Errno::ACCESS), (Op::Link, Errno::NOSPC)] {
                fixture.store.fail_matching("kept", op, errno);
            }
            assert!(fixture.undo().is_err());
            assert!(fixture.tree() == after, "{damage:?}");
            fixture.store.reset();
            fixture.undo().unwrap();
            assert!(fixture.tree() == before);
        }
    }
}

/// The second of two repairs found no container at its path and took it for empty. It removed all
/// that was in it, by a descriptor, which led to where the first one had moved it: `lost+found`.
#[test]
fn two_repairs_at_once_do_not_disturb_each_other() {
    for damage in ALL {
        for _ in 0..10 {
            let fixture = Fixture::with(damage);
            let (before, logs) = (fixture.tree(), fixture.logs());
            let reports = fixture.reports();
            let start = std::sync::Barrier::new(2);
            std::thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| {
                        start.wait();
                        // Losing the race may be an error; it is never a loss.
                        reports.iter().for_each(|report| {
                            drop(plfs::repair(&fixture.arc(), &fixture.config, report, 0))
                        });
                    });
                }
            });
            if fixture.logs() != logs {
                let all = std::process::Command::new("find").arg(&fixture.root).output().unwrap();
                panic!("{damage:?} {}", String::from_utf8_lossy(&all.stdout));
            }
            fixture.repair().unwrap();
            fixture.undo().unwrap();
            assert!(fixture.tree() == before, "{damage:?}");
        }
    }
}

/// Everybody may make things in `.plfs`: a lost+found that leads elsewhere is not used.
#[test]
fn a_planted_lost_and_found_is_refused() {
    for damage in ALL {
        let fixture = Fixture::with(damage);
        let victim = fixture.root.join("victim");
        fs::create_dir(&victim).unwrap();
        let roots = [fixture.root.join(".plfs"), fixture.root.join("other/.plfs")];
        roots.iter().for_each(|top| symlink(&victim, top.join("lost+found")).unwrap());
        let before = fixture.tree();
        let error = fixture.repair().unwrap_err();
        assert!(error.to_string().contains("symbolic link"), "{error}");
        assert!(fixture.tree() == before && fs::read_dir(&victim).unwrap().next().is_none());
        assert!(fixture.reports().iter().any(|report| {
            report.findings.iter().any(|finding| finding.what.contains("symbolic link"))
        }));
        roots.iter().for_each(|top| fs::remove_file(top.join("lost+found")).unwrap());
        for top in &roots {
            fs::write(top.join("lost+found"), "a file").unwrap();
        }
        assert!(fixture.repair().is_err());
        roots.iter().for_each(|top| fs::remove_file(top.join("lost+found")).unwrap());
        assert!(fixture.tree() == before);
    }
}

/// A note says anything: that what lies beside it belongs outside of the tree, into another user's
/// container, over what is there.
#[test]
fn a_planted_entry_is_not_put_back() {
    let fixture = Fixture::with(Damage::Unrecorded);
    fixture.repair().unwrap();
    let lost = fixture.lost().remove(0);
    let note = fs::read_to_string(lost.dir.join("note")).unwrap();
    let from = note.lines().find(|line| line.starts_with("from ")).unwrap().to_owned();
    for lie in [
        "/etc/passwd",
        "../../f",
        "00/../../f",
        "3f",
        "",
        &format!("{}/x", &from[5..]),
        &from[5..].replace(".data", ".dat"),
        &from[5..].replace("01.", "../"),
    ] {
        fs::write(lost.dir.join("note"), note.replace(&from, &format!("from {lie}"))).unwrap();
        assert!(plfs::lost_at(&fixture.arc(), &lost.dir).is_none(), "{lie}");
    }
    fs::write(lost.dir.join("note"), &note).unwrap();
    // Something else is there by now.
    fs::write(&lost.from, "new").unwrap();
    assert_eq!(plfs::put_back(&fixture.arc(), &lost).unwrap_err().errno(), Errno::EXIST);
    assert_eq!(fs::read(&lost.from).unwrap(), b"new");
    fs::remove_file(&lost.from).unwrap();
    // A writer has the log set.
    let set = lost.from.parent().unwrap().file_name().unwrap().to_string_lossy().into_owned();
    let mark = fixture.dir().join(format!("{set}.open"));
    fs::write(&mark, "host elsewhere\n").unwrap();
    assert_eq!(plfs::put_back(&fixture.arc(), &lost).unwrap_err().errno(), Errno::BUSY);
    fs::remove_file(&mark).unwrap();
    if fs::metadata(&fixture.root).unwrap().uid() == 0 {
        std::os::unix::fs::chown(&lost.dir, Some(12345), None).unwrap();
        assert_eq!(plfs::put_back(&fixture.arc(), &lost).unwrap_err().errno(), Errno::PERM);
        std::os::unix::fs::chown(&lost.dir, Some(0), None).unwrap();
    }
    assert!(!lost.from.exists());
    fixture.undo().unwrap();
}
