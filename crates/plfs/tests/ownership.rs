//! Who owns a log set (docs/decisions/0009): killed jobs, cleared marks, removed pages. Nobody's
//! acknowledged bytes are lost, and nobody has to clean up by hand on the host where the dead
//! lived.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use plfs::store::{Errno, Links, LockKind, PosixStore, Store};
use plfs::{Cleared, Config, File, OpenOptions, Opened, Placement, Plfs};
use plfs_format::mark::Mark;
use plfs_testkit::{FaultStore, Op};

/// Tells a child of this test what to do: FILE SHM OFFSET BYTE.
const CHILD: &str = "PLFS_TEST_OWNER";

/// A directory of a test, which runs alone: a child that another test starts holds, until it is
/// another program, the locks that this process has.
struct Dir(PathBuf, #[allow(dead_code, reason = "held for its drop")] MutexGuard<'static, ()>);

impl Dir {
    fn new() -> Dir {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = PathBuf::from(format!("/dev/shm/plfs-owner-{}-{number}", std::process::id()));
        for node in ["a", "b", "c"] {
            std::fs::create_dir_all(dir.join(node)).unwrap();
        }
        Dir(dir, alone)
    }

    fn file(&self) -> PathBuf {
        self.0.join("f")
    }

    fn config(&self, node: &str) -> Config {
        Config { shared_memory: Some(self.0.join(node)), streams: 1, ..Config::shared() }
    }

    fn process(&self, node: &str) -> Plfs {
        Plfs::posix(self.config(node))
    }

    /// A process of `node` that writes 5,000 bytes at `offset`, syncs, and waits for its death.
    fn writer(&self, test: &str, node: &str, offset: u64, byte: u8) -> Child {
        let what =
            format!("{} {} {offset} {byte}", self.file().display(), self.0.join(node).display());
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", test, "--test-threads=1", "--nocapture"]).env(CHILD, what);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains("synced")), "the writer died early");
        child
    }

    /// What ends in `end` in the container.
    fn names(&self, end: &str) -> usize {
        let (container, _) = self.process("c").container(&self.file()).unwrap().unwrap();
        let names =
            std::fs::read_dir(&container.dir).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().ends_with(end)).count()
    }

    fn pages(&self, node: &str) -> Vec<PathBuf> {
        let entries =
            std::fs::read_dir(self.0.join(node)).unwrap().map(|entry| entry.unwrap().path());
        // Journals lie beside them, with one part more in their names.
        let is_page = |path: &PathBuf| {
            path.file_name().unwrap().to_str().unwrap().split('-').count() == 5
                && path.metadata().unwrap().len() >= 4096
        };
        entries.filter(is_page).collect()
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The child's side of [`Dir::writer`]; false in the test itself.
fn is_writer() -> bool {
    let Ok(what) = std::env::var(CHILD) else { return false };
    let words: Vec<&str> = what.split(' ').collect();
    let config = Config { shared_memory: Some(words[1].into()), streams: 1, ..Config::shared() };
    let plfs = Plfs::posix(config);
    let file = open(&plfs, Path::new(words[0]));
    let (offset, byte): (u64, u8) = (words[2].parse().unwrap(), words[3].parse().unwrap());
    file.write_at(&[byte; 5000], offset).unwrap();
    file.sync().unwrap();
    println!("synced");
    std::thread::sleep(std::time::Duration::from_secs(100));
    true
}

fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

fn open(plfs: &Plfs, path: &Path) -> File {
    match plfs.open(path, OpenOptions::create()).unwrap() {
        Opened::Logical(file) => file,
        Opened::Plain(_) => panic!("it is plain"),
    }
}

fn has(file: &File, offset: u64, byte: u8) -> bool {
    let mut bytes = [0; 5000];
    file.read_at(&mut bytes, offset).unwrap() == 5000 && bytes == [byte; 5000]
}

/// The writers of two nodes were killed and their marks cleared. One node went on with the log set
/// that its page named, the other one took the same set over: both appended to it, and 20,000
/// synced bytes were wrong.
#[test]
fn two_nodes_whose_writers_were_killed_never_share_a_log_set() {
    if is_writer() {
        return;
    }
    const TEST: &str = "two_nodes_whose_writers_were_killed_never_share_a_log_set";
    for order in [["a", "b"], ["b", "a"]] {
        let dir = Dir::new();
        let (a, b) = (dir.writer(TEST, "a", 0, 1), dir.writer(TEST, "b", 10_000, 2));
        kill(a);
        kill(b);
        let reader = dir.process("c");
        let (container, _) = reader.container(&dir.file()).unwrap().unwrap();
        let cleared = plfs::clear_marks(&container, &dir.config("c")).unwrap();
        assert_eq!(cleared.len(), 2);
        assert!(cleared.iter().all(|mark| matches!(mark, Cleared::Fenced(_))), "{cleared:?}");
        let nodes: Vec<Plfs> = order.iter().map(|node| dir.process(node)).collect();
        let files: Vec<File> = nodes.iter().map(|plfs| open(plfs, &dir.file())).collect();
        for round in 0..3 {
            for (i, file) in files.iter().enumerate() {
                file.write_at(&[10 + i as u8; 5000], 20_000 + i as u64 * 20_000 + round * 5_000)
                    .unwrap();
                file.sync().unwrap();
            }
        }
        files.into_iter().for_each(|file| file.close().unwrap());
        let file = open(&reader, &dir.file());
        let expect = [(0, 1), (10_000, 2), (20_000, 10), (30_000, 10), (40_000, 11), (50_000, 11)];
        assert!(expect.iter().all(|(offset, byte)| has(&file, *offset, *byte)));
        assert_eq!(dir.names(".open"), 0);
    }
}

/// The marks of killed processes stayed for ever: no summary, no take-over, no compaction, and each
/// stat went through all logs. Now the next process of the node goes on with the dead ones' set.
#[test]
fn the_next_process_of_a_node_is_the_heir_of_the_dead() {
    if is_writer() {
        return;
    }
    let dir = Dir::new();
    for round in 0..3 {
        kill(dir.writer(
            "the_next_process_of_a_node_is_the_heir_of_the_dead",
            "a",
            round * 5000,
            1 + round as u8,
        ));
    }
    assert_eq!((dir.names(".open"), dir.pages("a").len()), (1, 1));
    let plfs = dir.process("a");
    let file = open(&plfs, &dir.file());
    file.write_at(&[9; 5000], 15_000).unwrap();
    file.close().unwrap();
    assert_eq!((dir.names(".open"), dir.names(".fenced"), dir.pages("a").len()), (0, 0, 0));
    let totals = plfs.stat(&dir.file(), Links::Follow).unwrap().totals.unwrap();
    assert!(totals.from_summary && totals.log_sets == 1, "{totals:?}");
    let file = open(&plfs, &dir.file());
    assert!(
        [(0, 1), (5_000, 2), (10_000, 3), (15_000, 9)]
            .iter()
            .all(|(offset, byte)| has(&file, *offset, *byte))
    );
}

/// A writer was killed while a storage target had not answered it: what it had given to that one,
/// and what it had not given to another one yet, is in its journal, wherever it was to go.
#[test]
fn an_heir_has_what_hung_when_its_writer_was_killed() {
    const PIECE: usize = 64 << 10;
    let config = |dir: &Path, memory: &Path, deadline: Duration| Config {
        backends: vec![dir.join("b")],
        streams: 2,
        placement: Placement::Equal,
        deadline: Some(deadline),
        compact_bytes: 0,
        shared_memory: Some(memory.to_path_buf()),
        ..Config::shared()
    };
    let piece = |i: u64| [i.to_le_bytes().to_vec(), vec![(i * 31) as u8; PIECE - 8]].concat();
    if let Ok(what) = std::env::var(CHILD) {
        let words: Vec<&str> = what.split(' ').collect();
        let dir = Path::new(words[0]);
        let faults = FaultStore::new(Arc::new(PosixStore::new()));
        let _hanging = faults.hang("/b/.plfs", &[Op::WriteAt], 4);
        let deadline = Duration::from_millis(words[2].parse().unwrap());
        let plfs = Plfs::new(Arc::new(faults), config(dir, Path::new(words[1]), deadline));
        let file = open(&plfs, &dir.join("f"));
        for i in 0.. {
            file.write_at(&piece(i), i * PIECE as u64).unwrap();
            // From the moment on that the call returns it counts.
            println!("wrote {i}");
        }
    }
    // It waits for the target; and has left it.
    for (ms, last) in [(100_000, 0), (200, 700)] {
        let dir = Dir::new();
        let (memory, name) = (dir.0.join("a"), dir.0.file_name().unwrap());
        // In memory nobody chooses between targets.
        let disk = std::env::temp_dir().join(name);
        std::fs::create_dir_all(disk.join("b")).unwrap();
        if PosixStore::new().boot(&disk).is_none() {
            println!("skipped: {} is in memory", disk.display());
            return std::fs::remove_dir_all(&disk).unwrap();
        }
        let test = "an_heir_has_what_hung_when_its_writer_was_killed";
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", test, "--test-threads=1", "--nocapture"])
            .env(CHILD, format!("{} {} {ms}", disk.display(), memory.display()));
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (tell, hear) = std::sync::mpsc::channel();
        let reader = std::thread::spawn(move || {
            while let Some(Ok(line)) = lines.next() {
                if let Some((_, i)) = line.split_once("wrote ") {
                    let _ = tell.send(i.parse::<u64>().unwrap());
                }
            }
        });
        let mut wrote = 0;
        while let Ok(i) = hear.recv_timeout(Duration::from_secs(2)) {
            wrote = i;
            if last > 0 && i > last {
                break;
            }
        }
        kill(child);
        reader.join().unwrap();
        wrote = hear.try_iter().last().unwrap_or(wrote);
        let plfs = Plfs::posix(config(&disk, &memory, Duration::from_secs(30)));
        let file = open(&plfs, &disk.join("f"));
        let mut got = vec![0; PIECE];
        for i in 0..=wrote {
            assert_eq!(file.read_at(&mut got, i * PIECE as u64).unwrap(), PIECE, "{i} of {wrote}");
            assert!(got == piece(i), "piece {i} of {wrote}");
        }
        assert!(wrote > 4, "{wrote}");
        file.close().unwrap();
        std::fs::remove_dir_all(&disk).unwrap();
    }
}

/// Nobody opens the file of a killed job again: its mark and its page go with the next job of the
/// node that opens anything for writing.
#[test]
fn what_a_killed_job_left_goes_when_the_next_job_comes() {
    if is_writer() {
        return;
    }
    let dir = Dir::new();
    kill(dir.writer("what_a_killed_job_left_goes_when_the_next_job_comes", "a", 0, 1));
    assert_eq!((dir.names(".open"), dir.pages("a").len()), (1, 1));
    let plfs = dir.process("a");
    open(&plfs, &dir.0.join("other")).close().unwrap();
    assert_eq!((dir.names(".open"), dir.pages("a").len()), (0, 0));
    assert!(has(&open(&plfs, &dir.file()), 0, 1));
}

/// A host went down under its writers and came up again: its memory is empty, and no page names
/// their marks, which stayed for ever. They say in which boot they were made, and of which machine:
/// the last one on that machine to close the file ends them. Of other machines it knows nothing.
#[test]
fn marks_from_before_the_host_was_started_again_are_ended() {
    for (boot, machine, is_ended) in [(1, 0, true), (1, 1, false)] {
        let dir = Dir::new();
        let plfs = dir.process("a");
        let file = open(&plfs, &dir.file());
        file.write_at(&[1; 5000], 0).unwrap();
        file.sync().unwrap();
        let container = file.container().unwrap().dir.clone();
        let mut inside = std::fs::read_dir(&container).unwrap().map(|entry| entry.unwrap().path());
        let mark = inside.find(|path| path.extension().is_some_and(|end| end == "open")).unwrap();
        let text = std::fs::read_link(&mark).unwrap();
        let ours = Mark::parse(text.to_str().unwrap()).unwrap();
        assert!(ours.boot != 0, "{ours:?}");
        if ours.machine == 0 {
            eprintln!("this machine has no id");
            return;
        }
        file.close().unwrap();
        // What the one that went down has left: a log set with the mark of an owner that was a
        // process of some other number, in a boot before this one.
        let theirs = Mark {
            nonce: ours.nonce ^ 1,
            boot: ours.boot ^ boot,
            machine: ours.machine ^ machine,
            start: ours.start ^ 1,
            ..ours
        };
        std::os::unix::fs::symlink(theirs.text(), &mark).unwrap();
        let plfs = dir.process("a");
        let file = open(&plfs, &dir.file());
        file.write_at(&[2; 5000], 5000).unwrap();
        file.close().unwrap();
        let is_as_it_was =
            std::fs::read_link(&mark).is_ok_and(|text| text == Path::new(&theirs.text()));
        let context = format!("boot {boot}, machine {machine}: {:?}", dir.names(".open"));
        assert_eq!(is_as_it_was, !is_ended, "{context}");
        let totals = plfs.stat(&dir.file(), Links::Follow).unwrap().totals.unwrap();
        assert_eq!(totals.from_summary, is_ended, "{context}");
        let file = open(&plfs, &dir.file());
        assert!([(0, 1), (5000, 2)].iter().all(|(offset, byte)| has(&file, *offset, *byte)));
    }
}

/// A job's page was removed while it ran (RemoveIPC of systemd), and then the job was killed: no
/// page names its mark. The last one of the node to close the file ends that tenancy. One that
/// meets elsewhere does not: it cannot know who else shares the dead one's page.
#[test]
fn the_last_closer_ends_the_tenancies_that_nobody_can_inherit() {
    if is_writer() {
        return;
    }
    const TEST: &str = "the_last_closer_ends_the_tenancies_that_nobody_can_inherit";
    let dir = Dir::new();
    let lives = dir.writer(TEST, "a", 0, 1);
    dir.pages("a").iter().for_each(|page| std::fs::remove_file(page).unwrap());
    let write = |node: &str, offset: u64, byte: u8| {
        let plfs = dir.process(node);
        let file = open(&plfs, &dir.file());
        file.write_at(&[byte; 5000], offset).unwrap();
        file.close().unwrap();
        (dir.names(".open"), dir.names(".fenced"))
    };
    assert_eq!(write("a", 10_000, 2), (1, 0), "it lives");
    kill(lives);
    assert_eq!(write("b", 15_000, 3), (1, 0), "b meets elsewhere");
    assert_eq!(write("a", 20_000, 4), (0, 1));
    let plfs = dir.process("a");
    assert!(plfs.stat(&dir.file(), Links::Follow).unwrap().totals.unwrap().from_summary);
    let file = open(&plfs, &dir.file());
    assert!(
        [(0, 1), (10_000, 2), (15_000, 3), (20_000, 4)]
            .iter()
            .all(|(offset, byte)| has(&file, *offset, *byte))
    );
}

/// A person says that a node is dead, and it is not. It gets an error at its next commit, what it
/// had committed stays, and nobody else is disturbed: neither those who come after it on its own
/// node nor a compaction.
#[test]
fn a_node_that_is_wrongly_declared_dead_is_told() {
    let dir = Dir::new();
    let (alive, other) = (dir.process("a"), dir.process("a"));
    let file = open(&alive, &dir.file());
    file.write_at(&[1; 5000], 0).unwrap();
    file.sync().unwrap();
    fence(&dir);
    file.write_at(&[2; 5000], 5_000).unwrap();
    let error = file.sync().unwrap_err();
    assert_eq!(error.errno(), Errno::STALE);
    assert!(error.to_string().contains("declared dead"), "{error}");
    assert_eq!(file.write_at(b"x", 0).unwrap_err().errno(), Errno::STALE, "and at each later call");
    // Others of its node meet elsewhere, and do not use the numbers that it still has.
    let late = open(&other, &dir.file());
    late.write_at(&[3; 5000], 10_000).unwrap();
    late.sync().unwrap();
    assert_eq!(file.close().unwrap_err().errno(), Errno::STALE);
    late.write_at(&[4; 5000], 15_000).unwrap();
    late.close().unwrap();
    dir.process("b").compact(&dir.file(), |_| std::ops::ControlFlow::Continue(())).unwrap();
    let file = open(&dir.process("b"), &dir.file());
    assert!(
        [(0, 1), (10_000, 3), (15_000, 4)].iter().all(|(offset, byte)| has(&file, *offset, *byte))
    );
    assert_eq!(
        (dir.names(".open"), dir.names(".fenced")),
        (0, 1),
        "that it is fenced is never forgotten"
    );
}

/// Renames the mark, as `check --clear-marks` on another host does.
fn fence(dir: &Dir) {
    let (container, _) = dir.process("c").container(&dir.file()).unwrap().unwrap();
    for entry in std::fs::read_dir(&container.dir).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|end| end == "open") {
            std::fs::rename(&path, path.with_extension("fenced")).unwrap();
        }
    }
}

/// systemd removes a user's shared memory when the last session ends (RemoveIPC), though jobs go
/// on. The next process of the node found no page and a mark of its own node's set.
#[test]
fn a_page_that_was_removed_under_its_users_costs_a_log_set() {
    let dir = Dir::new();
    let (first, second) = (dir.process("a"), dir.process("a"));
    let one = open(&first, &dir.file());
    one.write_at(&[1; 5000], 0).unwrap();
    dir.pages("a").iter().for_each(|page| std::fs::remove_file(page).unwrap());
    let two = open(&second, &dir.file());
    two.write_at(&[2; 5000], 5_000).unwrap();
    two.sync().unwrap();
    one.sync().unwrap();
    one.write_at(&[3; 5000], 10_000).unwrap();
    one.close().unwrap();
    assert_eq!(dir.pages("a").len(), 1, "the second one's page is not the first one's");
    two.write_at(&[4; 5000], 15_000).unwrap();
    two.close().unwrap();
    let file = open(&dir.process("b"), &dir.file());
    assert!(
        [(0, 1), (5_000, 2), (10_000, 3), (15_000, 4)]
            .iter()
            .all(|(offset, byte)| has(&file, *offset, *byte))
    );
    assert_eq!((dir.names(".open"), dir.pages("a").len()), (0, 0));
}

/// So many nodes that those who come then hold the container by their marks.
const CROWD: u64 = 70;

/// Nodes of this process that write the file, 100 bytes each, and have it open.
fn crowd(dir: &Dir) -> Vec<(Plfs, File)> {
    let node = |i: u64| {
        let name = format!("node{i}");
        std::fs::create_dir_all(dir.0.join(&name)).unwrap();
        let plfs = dir.process(&name);
        let file = open(&plfs, &dir.file());
        file.write_at(&[i as u8; 100], i * 100).unwrap();
        file.commit().unwrap();
        (plfs, file)
    };
    (0..CROWD).map(node).collect()
}

/// Whether no process has a lock on the container.
fn is_unlocked(container: &plfs::Container) -> bool {
    container
        .store
        .open(&container.dir, plfs::store::Open::READ)
        .unwrap()
        .try_lock(LockKind::Exclusive)
        .unwrap()
}

/// The last of ten thousand nodes of one machine paid 6 ms for its first write, where the first
/// paid half a millisecond: Linux walked the list of all their locks at each close of a descriptor
/// of the container's directory. So who comes to a crowd has no lock, and its mark keeps the data
/// of a file whose last name goes.
#[test]
fn in_a_crowd_a_mark_keeps_the_data() {
    let dir = Dir::new();
    let mut nodes = crowd(&dir);
    let (plfs, last) = nodes.pop().unwrap();
    drop(nodes);
    let other = dir.process("a");
    let (container, _) = other.container(&dir.file()).unwrap().unwrap();
    assert!(is_unlocked(&container), "the last one has a lock");
    other.unlink(&dir.file()).unwrap();
    let mut bytes = [0; 100];
    for i in 0..CROWD {
        assert_eq!(last.read_at(&mut bytes, i * 100).unwrap(), 100);
        assert_eq!(bytes, [i as u8; 100]);
    }
    assert!(is_unlocked(&container), "it took a lock to read");
    // Without its mark it needs one.
    plfs.leave_all().unwrap();
    assert!(!is_unlocked(&container), "it left its log set and has the file open");
    assert_eq!(last.read_at(&mut bytes, 0).unwrap(), 100);
    last.close().unwrap();
    assert!(!container.dir.exists(), "nobody removed it");
}

/// The child of a fork has the descriptors of its parent, but not its mark: what the parent has
/// open is locked before it forks, also where it joins a crowd meanwhile.
#[test]
fn in_a_crowd_a_child_has_a_lock() {
    let dir = Dir::new();
    let mut nodes = crowd(&dir);
    let (plfs, _last) = nodes.pop().unwrap();
    let came = dir.process("b");
    let later = open(&came, &dir.file());
    let mut byte = [0];
    assert_eq!(later.read_at(&mut byte, 0).unwrap(), 1);
    drop(nodes);
    let (container, _) = plfs.container(&dir.file()).unwrap().unwrap();
    came.before_fork().unwrap();
    later.write_at(&[1], 0).unwrap();
    assert!(!is_unlocked(&container), "it joined after a fork, and let go of what its child has");
    later.close().unwrap();
    assert!(is_unlocked(&container));
    plfs.before_fork().unwrap();
    assert!(!is_unlocked(&container), "its child has nothing");
}

/// The marks of who was killed keep nothing.
#[test]
fn in_a_crowd_the_dead_do_not_keep_the_data() {
    if is_writer() {
        return;
    }
    let dir = Dir::new();
    let nodes = crowd(&dir);
    let mut child = dir.writer("in_a_crowd_the_dead_do_not_keep_the_data", "a", CROWD * 100, b'x');
    drop(nodes);
    let other = dir.process("a");
    let (container, _) = other.container(&dir.file()).unwrap().unwrap();
    assert!(is_unlocked(&container), "it has a lock, and this test proves nothing");
    child.kill().unwrap();
    child.wait().unwrap();
    other.unlink(&dir.file()).unwrap();
    assert!(!container.dir.exists(), "the mark of a dead process keeps it");
}

/// Whoever declared it dead summed the file up, and then it appended, before it was told. The
/// summary still counted, so the size that stat gave was not what readers found, and `check` called
/// the file corrupt.
#[test]
fn who_was_wrongly_declared_dead_leaves_a_healthy_file() {
    let dir = Dir::new();
    let alive = dir.process("a");
    let file = open(&alive, &dir.file());
    file.write_at(&[1; 5000], 0).unwrap();
    file.sync().unwrap();
    fence(&dir);
    let other = dir.process("b");
    let (container, _) = other.container(&dir.file()).unwrap().unwrap();
    plfs::repair(other.store(), &dir.config("b"), &plfs::check(&container), 0).unwrap();
    assert_eq!(plfs::check(&container).findings, [], "there is a summary");
    file.write_at(&[2; 5000], 5_000).unwrap();
    assert_eq!(file.sync().unwrap_err().errno(), Errno::STALE);
    let report = plfs::check(&container);
    assert_eq!(report.health(), plfs::Health::Healthy, "{:?}", report.findings);
    let size = other.stat(&dir.file(), Links::Stay).unwrap().stat.len;
    assert_eq!(size, open(&dir.process("c"), &dir.file()).len().unwrap());
}

/// A user put a page of his own into shared memory that names another user's tenancy: its nonce is
/// there for all to read. The next program of root ended that tenancy as its heir. Another node
/// took the log set over while its owner went on: both appended to it, and synced bytes were lost.
#[test]
fn a_page_ends_no_tenancy_of_another_user() {
    let dir = Dir::new();
    let plfs = dir.process("a");
    let file = open(&plfs, &dir.file());
    file.write_at(&[1; 5000], 0).unwrap();
    let container = file.container().unwrap().dir.clone();
    let mark = Mark { nonce: 7, uid: 12_345, ..Mark::default() };
    std::os::unix::fs::symlink(mark.text(), container.join("0badcafe.open")).unwrap();
    // As crates/plfs/src/log/log_set/page.rs has it: set, nonce, directory.
    let mut words = vec![0; 1024];
    (words[0], words[6]) = (1 << 32 | 0x0bad_cafe, mark.nonce);
    let path = container.as_os_str().as_encoded_bytes();
    words[832] = path.len() as u64;
    for (word, bytes) in words[833..].iter_mut().zip(path.chunks(8)) {
        let mut value = [0; 8];
        value[..bytes.len()].copy_from_slice(bytes);
        *word = u64::from_le_bytes(value);
    }
    let bytes: Vec<u8> = words.iter().flat_map(|word: &u64| word.to_le_bytes()).collect();
    // Of a container that is not there.
    let own = dir.pages("a")[0].to_str().unwrap().to_owned();
    let page = PathBuf::from(format!("{}{:032x}", &own[..own.len() - 32], 1));
    std::fs::write(&page, bytes).unwrap();
    std::fs::set_permissions(&page, std::fs::Permissions::from_mode(0o600)).unwrap();
    open(&dir.process("a"), &dir.0.join("other")).close().unwrap();
    assert!(!page.exists(), "a page that nobody lives in goes");
    assert_eq!(dir.names(".open"), 2, "the mark is not its user's");
}

/// A user makes a mark for somebody else's log set, in a file that all may write, and a page that
/// has it and something in its tray. Root, who reaps the pages of all users, wrote that to the logs
/// of the other one.
#[test]
fn what_a_user_has_in_shared_memory_is_carried_to_his_own_logs_only() {
    if std::fs::metadata("/proc/self").unwrap().uid() != 0 {
        return;
    }
    let dir = Dir::new();
    let plfs = dir.process("a");
    let file = open(&plfs, &dir.file());
    file.write_at(&[1; 5000], 0).unwrap();
    let container = file.container().unwrap().dir.clone();
    let own = dir.pages("a")[0].to_str().unwrap().to_owned();
    file.close().unwrap();
    let is_set = |path: &PathBuf| path.join("index").exists();
    let mut inside = std::fs::read_dir(&container).unwrap().map(|entry| entry.unwrap().path());
    let set = inside.find(is_set).unwrap();
    let number = u64::from_str_radix(set.file_name().unwrap().to_str().unwrap(), 16).unwrap();
    let before = std::fs::read(set.join("index")).unwrap();
    let mark = Mark { nonce: 7, uid: 12_345, ..Mark::default() };
    std::os::unix::fs::symlink(mark.text(), set.with_extension("open")).unwrap();
    // As crates/plfs/src/log/log_set/page.rs has it: set, nonce, where the log ends and where the
    // tray begins, directory.
    let mut words = vec![0; 1024];
    (words[0], words[6], words[8], words[18]) = (1 << 32 | number, mark.nonce, 64, 0);
    let path = container.as_os_str().as_encoded_bytes();
    words[832] = path.len() as u64;
    for (word, bytes) in words[833..].iter_mut().zip(path.chunks(8)) {
        let mut value = [0; 8];
        value[..bytes.len()].copy_from_slice(bytes);
        *word = u64::from_le_bytes(value);
    }
    let mut bytes: Vec<u8> = words.iter().flat_map(|word: &u64| word.to_le_bytes()).collect();
    bytes.resize(8192 + (512 << 10), b'x');
    let page = PathBuf::from(own.replacen("plfs-0-", "plfs-12345-", 1));
    std::fs::write(&page, bytes).unwrap();
    std::fs::set_permissions(&page, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::os::unix::fs::chown(&page, Some(12_345), None).unwrap();
    open(&dir.process("a"), &dir.0.join("other")).close().unwrap();
    assert!(std::fs::read(set.join("index")).unwrap() == before);
}

/// A file of `node` below `root`, opened again by a process of its own.
fn opened(dir: &Dir, root: &str) -> (Plfs, File) {
    let plfs = dir.process("a");
    let file = open(&plfs, &dir.0.join(root).join("f"));
    (plfs, file)
}

/// A tree and its copy, which has the same uuids and lies on the same device, shared one page of
/// memory. Whoever joined by the one threw the page of the other away: an append of a third process
/// went over what a process of its node had appended and committed (S11). If the copy was made with
/// the file open, both were in one tenancy, with one end of file, and a sync of one counted for
/// both (S12).
#[test]
fn a_copy_of_a_tree_shares_no_page_with_it() {
    let dir = Dir::new();
    let roots = ["original", "closed", "open"].map(|root| dir.0.join(root));
    let copy = |to: &PathBuf| {
        assert!(Command::new("cp").arg("-a").args([&roots[0], to]).status().unwrap().success());
    };
    std::fs::create_dir(&roots[0]).unwrap();
    let (_, file) = opened(&dir, "original");
    file.append(b"base").unwrap();
    file.close().unwrap();
    copy(&roots[1]);
    let first = opened(&dir, "original");
    first.1.append(b"first").unwrap();
    first.1.commit().unwrap();
    copy(&roots[2]);
    let others = [opened(&dir, "closed"), opened(&dir, "open")];
    for (_, file) in &others {
        file.append(b"of the copy").unwrap();
        file.commit().unwrap();
    }
    let second = opened(&dir, "original");
    second.1.append(b"second").unwrap();
    first.1.append(b"third").unwrap();
    let [closed, open] = others;
    for (_, file) in [first, second, closed, open] {
        file.close().unwrap();
    }
    let read = |root| {
        let mut bytes = [0; 100];
        let n = opened(&dir, root).1.read_at(&mut bytes, 0).unwrap();
        String::from_utf8(bytes[..n].to_vec()).unwrap()
    };
    assert_eq!(read("original"), "basefirstsecondthird");
    assert_eq!(read("closed"), "baseof the copy");
    assert_eq!(read("open"), "basefirstof the copy");
}

/// A copy of a tree whose files have data on another backend. The copy's log sets and segments are
/// the original's there: `rm` in the copy removed the original's bytes, a compaction or truncate
/// would have, and a writer of each appended to one data log, over what the other had committed.
#[test]
fn a_copy_of_a_tree_does_not_touch_the_backends_of_the_original() {
    let dir = Dir::new();
    let [original, copy, backend] = ["original", "copy", "backend"].map(|name| dir.0.join(name));
    std::fs::create_dir(&original).unwrap();
    std::fs::create_dir(&backend).unwrap();
    let plfs = Plfs::posix(Config { backends: vec![backend], streams: 2, ..dir.config("a") });
    // A stream of each lies on one of two backends, by chance.
    let names: Vec<String> = (0..16).map(|i| format!("f{i}")).collect();
    for name in &names {
        let file = open(&plfs, &original.join(name));
        file.write_at(&[1; 5000], 0).unwrap();
        file.close().unwrap();
    }
    assert!(Command::new("cp").arg("-a").args([&original, &copy]).status().unwrap().success());
    let copied = |name: &String| copy.join(name);
    let written = match plfs.open(&copied(&names[0]), OpenOptions::create()) {
        Ok(Opened::Logical(file)) => file.write_at(&[2; 5000], 0).unwrap_err().errno(),
        Ok(Opened::Plain(_)) => panic!("it is plain"),
        Err(error) => error.errno(),
    };
    assert_eq!(written, Errno::ROFS);
    let compacted = plfs.compact(&copied(&names[0]), |_| std::ops::ControlFlow::Continue(()));
    assert_eq!(compacted.unwrap_err().errno(), Errno::ROFS);
    names[1..8].iter().for_each(|name| plfs.unlink(&copied(name)).unwrap());
    names[8..].iter().for_each(|name| std::fs::remove_file(copied(name)).unwrap());
    for report in plfs::check_tree(plfs.store(), &copy, &[], |_| {}).unwrap() {
        plfs::repair(plfs.store(), &dir.config("a"), &report, 0).unwrap();
    }
    let reader = Plfs::posix(dir.config("b"));
    for path in names.iter().map(|name| original.join(name)).chain([copied(&names[0])]) {
        let file = match reader.open(&path, OpenOptions::read()).unwrap() {
            Opened::Logical(file) => file,
            Opened::Plain(_) => panic!("it is plain"),
        };
        assert!(has(&file, 0, 1), "{}", path.display());
    }
    // The original is written as ever.
    open(&plfs, &original.join(&names[0])).write_at(&[3; 5000], 0).unwrap();
}

/// A root whose file `f` has all its data on another backend, a copy of the root by `cp -a`, and
/// the backend.
fn copied(dir: &Dir) -> [PathBuf; 3] {
    let roots = ["original", "copy", "backend"].map(|name| dir.0.join(name));
    make_root(dir, &roots[0], &roots[2]);
    copy_tree(&roots[0], &roots[1]);
    roots
}

fn make_root(dir: &Dir, root: &Path, backend: &Path) {
    std::fs::create_dir(root).unwrap();
    std::fs::create_dir(backend).unwrap();
    let id = plfs::add_backend(dir.process("a").store(), &dir.config("a"), root, backend);
    assert_eq!(id.unwrap(), Some(1));
    std::fs::write(root.join(".plfs-layout"), "plfs-layout 1\nbackends 0001\n").unwrap();
    write(dir, root, 1).unwrap();
}

fn copy_tree(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
}

/// Writes the file `f` of a root, as a process of its own does.
fn write(dir: &Dir, root: &Path, byte: u8) -> plfs::Result<()> {
    let file = dir.process("a").open(&root.join("f"), OpenOptions::create())?.file();
    file.write_at(&[byte; 5000], 0)?;
    file.close()
}

fn reads(dir: &Dir, root: &Path, byte: u8) -> bool {
    let file = dir.process("b").open(&root.join("f"), OpenOptions::read()).unwrap().file();
    has(&file, 0, byte)
}

/// The only container that has a directory below the `.plfs` of `root`.
fn only_container(root: &Path) -> PathBuf {
    let inside = |dir: &Path| {
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>()
    };
    let mut shards = inside(&root.join(".plfs"));
    shards.retain(|shard| shard.file_name().unwrap().len() == 2);
    let mut all = shards.iter().flat_map(|shard| inside(shard)).collect::<Vec<_>>();
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

/// A root was moved, and a copy of it stands where it was: the original was taken for the copy, and
/// its writers got EROFS.
#[test]
fn an_original_that_was_moved_is_no_copy() {
    let dir = Dir::new();
    let [original, copy, backend] = copied(&dir);
    let moved = dir.0.join("moved");
    std::fs::rename(&original, &moved).unwrap();
    std::fs::rename(&copy, &original).unwrap();
    write(&dir, &moved, 2).unwrap();
    assert!(reads(&dir, &moved, 2));
    let plfs = dir.process("a");
    plfs.chmod(&moved.join("f"), 0o600).unwrap();
    let part = only_container(&backend);
    assert_eq!(part.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    copy_tree(&moved, &copy);
    assert_eq!(write(&dir, &copy, 3).unwrap_err().errno(), Errno::ROFS);
    assert!(reads(&dir, &moved, 2));
    plfs.unlink(&moved.join("f")).unwrap();
    assert!(!part.exists());
}

/// What was restored from a backup has other inodes than superblocks record, and is written: in the
/// place of the original, and elsewhere as long as there is nothing. A copy of it is a copy.
#[test]
fn an_original_that_was_restored_is_no_copy() {
    let dir = Dir::new();
    let [original, copy, _] = copied(&dir);
    std::fs::remove_dir_all(&original).unwrap();
    write(&dir, &copy, 2).unwrap();
    assert!(reads(&dir, &copy, 2));
    // As far as one can look.
    std::os::unix::fs::symlink(&original, &original).unwrap();
    assert_eq!(write(&dir, &copy, 3).unwrap_err().errno(), Errno::ROFS);
    std::fs::remove_file(&original).unwrap();
    std::fs::rename(&copy, &original).unwrap();
    write(&dir, &original, 3).unwrap();
    copy_tree(&original, &copy);
    assert_eq!(write(&dir, &copy, 4).unwrap_err().errno(), Errno::ROFS);
    assert!(reads(&dir, &original, 3));
}

/// File systems count their inodes each for itself. A copy on another one, where it got the number
/// of the original, was taken for that.
#[test]
fn a_copy_with_the_inode_number_of_the_original_is_a_copy() {
    let dir = Dir::new();
    if std::env::var(CHILD).is_err() {
        // What is mounted goes with the process.
        let mut child = Command::new("unshare");
        child.arg("-m").arg(std::env::current_exe().unwrap()).args(["--exact", "--nocapture"]);
        child.arg("a_copy_with_the_inode_number_of_the_original_is_a_copy").env(CHILD, "mounts");
        assert!(child.status().unwrap().success());
        return;
    }
    let run = |program: &str, args: &[&str], at: &Path| {
        assert!(Command::new(program).args(args).arg(at).status().unwrap().success());
    };
    let disks = ["here", "there", "again"].map(|name| dir.0.join(name));
    for disk in &disks {
        std::fs::create_dir(disk).unwrap();
        run("mount", &["-t", "tmpfs", "none"], disk);
    }
    let [here, there, again] = &disks;
    let spend = |disk: &Path, inodes: u64| {
        (0..inodes).for_each(|i| std::fs::write(disk.join(format!("spent{i}")), "").unwrap());
    };
    let number = |root: &Path| root.join("f").metadata().unwrap().ino();
    let (original, copy) = (here.join("root"), again.join("root"));
    spend(here, 100);
    make_root(&dir, &original, &dir.0.join("backend"));
    copy_tree(&original, &there.join("root"));
    spend(again, number(&original) - number(&there.join("root")));
    copy_tree(&original, &copy);
    assert_eq!(number(&copy), number(&original));
    assert_eq!(write(&dir, &copy, 2).unwrap_err().errno(), Errno::ROFS);
    write(&dir, &original, 3).unwrap();
    assert!(reads(&dir, &original, 3));
    disks.iter().for_each(|disk| run("umount", &["-l"], disk));
}

/// A discard in a copy removed what a repair had taken out of the original, chmod and chown changed
/// the directories of the original's data, and a repair of a container whose superblock was lost in
/// the copy moved that data away.
#[test]
fn no_call_on_a_copy_reaches_the_backends_of_the_original() {
    let dir = Dir::new();
    let [original, copy, backend] = copied(&dir);
    let (plfs, config, name) = (dir.process("a"), dir.config("a"), copy.join("f"));
    let part = only_container(&backend);
    let check = |root: &Path| plfs::check_tree(plfs.store(), root, &[], |_| {}).unwrap();
    let repair = |root: &Path| {
        for report in check(root) {
            plfs::repair(plfs.store(), &config, &report, 0).unwrap();
        }
    };
    let lost = |root: &Path| check(root).into_iter().flat_map(|report| report.lost);
    let set = std::fs::read_dir(&part).unwrap().next().unwrap().unwrap().path();
    std::fs::write(set.join("00.00000009.data"), "of no record").unwrap();
    repair(&original);
    assert_eq!(lost(&original).count(), 1);
    lost(&copy).for_each(|lost| plfs::discard(plfs.store(), &lost).unwrap());
    assert_eq!(lost(&original).count(), 1);

    let before = part.metadata().unwrap();
    plfs.chmod(&name, 0o600).unwrap();
    plfs.chown(&name, Some(before.uid()), Some(before.gid()), Links::Stay).unwrap();
    let after = part.metadata().unwrap();
    assert_eq!((after.mode(), after.ctime_nsec()), (before.mode(), before.ctime_nsec()));
    assert_eq!(name.metadata().unwrap().mode() & 0o777, 0o600);

    let go_on = |_| std::ops::ControlFlow::Continue(());
    let drained = plfs::drain(plfs.store(), &config, &copy, 1, &[], go_on).unwrap();
    assert_eq!(drained.left.len(), 1);
    assert_eq!(drained.left[0].why.errno(), Errno::ROFS);
    let at_once = std::time::Duration::ZERO;
    let removed = plfs::remove_backend(plfs.store(), &config, &copy, 1, at_once);
    assert_eq!(removed.unwrap_err().errno(), Errno::BUSY);

    std::fs::write(copy.join("g"), "plain").unwrap();
    plfs.rename(&copy.join("g"), &name).unwrap();
    assert!(reads(&dir, &original, 1));
    std::fs::write(only_container(&copy).join("super"), "lost").unwrap();
    repair(&copy);
    assert!(reads(&dir, &original, 1));
    write(&dir, &original, 2).unwrap();
    assert!(reads(&dir, &original, 2));
}
