//! A storage target that does not answer (docs/decisions/0029): its bytes go to another one, and no
//! call waits for it for ever.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use plfs::store::{Errno, Store};
use plfs::{
    Backends, CloseToOpen, Config, File, Layout, OpenOptions, Opened, Placement, Plfs, known_of,
};
use plfs_testkit::{FaultStore, MemStore, Op};

use super::scratch::{Scratch, open};

const PIECE: usize = 64 << 10;
const DEADLINE: Duration = Duration::from_millis(300);
/// What no run takes unless it waits for a target that hangs.
const LONG: Duration = Duration::from_secs(20);
/// Data logs on the second of the two targets; the first has the index log as well.
const SECOND: &str = "/n/.plfs";
/// Those of a [`Fixture::process_with_two_for_data`] are on the second, and on this one.
const THIRD: &str = "/o/.plfs";
/// What moves bytes of data logs.
const APPENDS: [Op; 2] = [Op::WriteAt, Op::WriteBack];

struct Fixture {
    scratch: Scratch,
    memory: MemStore,
    faults: FaultStore,
}

impl Fixture {
    /// A root and another backend, near (in a page cache) or far.
    fn new(is_far: bool) -> Fixture {
        let mut memory = MemStore::new();
        for dir in ["/m", "/n"] {
            memory.mkdir(Path::new(dir), 0o755).unwrap();
        }
        if is_far {
            memory = memory.shared();
        }
        let faults = FaultStore::new(Arc::new(memory.clone()));
        let fixture = Fixture { scratch: Scratch::new(), memory, faults };
        // Both become backends.
        fixture.process().create(Path::new("/m/first"), OpenOptions::create()).unwrap();
        fixture
    }

    fn config(&self) -> Config {
        Config {
            backends: vec![PathBuf::from("/n")],
            close_to_open: CloseToOpen::OneNode,
            // All targets get regions, whatever was measured.
            placement: Placement::Equal,
            deadline: Some(DEADLINE),
            compact_bytes: 0,
            ..self.scratch.config()
        }
    }

    fn process(&self) -> Plfs {
        Plfs::new(Arc::new(self.faults.clone()), self.config())
    }

    /// One whose files have their data on two backends, and the index logs on the root.
    fn process_with_two_for_data(&self) -> Plfs {
        for dir in ["/o", THIRD] {
            self.memory.mkdir(Path::new(dir), 0o1777).unwrap();
        }
        let backends = ["/n", "/o"].map(PathBuf::from).to_vec();
        let config = Config { backends, ..self.config() };
        let plfs = Plfs::new(Arc::new(self.faults.clone()), config);
        plfs.create(Path::new("/m/second"), OpenOptions::create()).unwrap();
        let layout = Layout { backends: Some(Backends::Listed(vec![1, 2])), ..Layout::default() };
        plfs.set_directory_layout(Path::new("/m"), Some(&layout)).unwrap();
        plfs
    }

    /// Somebody who has nothing of all that in memory, and meets no fault.
    fn reads(&self, path: &str, pieces: usize, turn: usize) {
        let config = Config { shared_memory: None, ..self.config() };
        let plfs = Plfs::new(Arc::new(self.memory.clone()), config);
        let Opened::Logical(file) = plfs.open(Path::new(path), OpenOptions::read()).unwrap() else {
            panic!("it is plain");
        };
        assert_eq!(file.len().unwrap(), (pieces * PIECE) as u64);
        let mut got = vec![0; PIECE];
        for i in 0..pieces {
            assert_eq!(file.read_at(&mut got, (i * PIECE) as u64).unwrap(), PIECE);
            assert!(got == piece(i, turn), "piece {i} of {path}");
        }
    }

    /// Appends below `path` hang: who writes `/m/f` waits until they go on, and all is there.
    fn is_waited_for(&self, path: &str, file: File) {
        let hanging = self.faults.hang(path, &APPENDS, 4);
        let writer = std::thread::spawn(move || {
            write(&file, 0..PIECES, 0);
            file.close().unwrap();
        });
        until(|| hanging.waiting() > 0);
        std::thread::sleep(4 * DEADLINE);
        assert!(!writer.is_finished());
        drop(hanging);
        writer.join().unwrap();
        self.reads("/m/f", PIECES, 0);
    }

    /// How many calls of these kinds there were on the second target.
    fn calls_there(&self, ops: &[Op]) -> usize {
        let log = self.faults.log();
        log.iter().filter(|call| ops.contains(&call.op) && call.path.starts_with(SECOND)).count()
    }
}

fn piece(i: usize, turn: usize) -> Vec<u8> {
    let mut piece = vec![(i * 31 + turn * 7) as u8; PIECE];
    piece[..8].copy_from_slice(&((i + turn) as u64).to_le_bytes());
    piece
}

fn write(file: &File, pieces: std::ops::Range<usize>, turn: usize) {
    for i in pieces {
        assert_eq!(file.write_at(&piece(i, turn), (i * PIECE) as u64).unwrap(), PIECE);
    }
}

fn until(mut what: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !what() {
        assert!(begun.elapsed() < LONG, "it does not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// 48 MiB.
const PIECES: usize = 48 << 20 >> 16;

/// A target stalls for ever in mid-file: the file is finished on the others, whole. Nobody goes to
/// that target any more, also no other process, until it answers.
#[test]
fn a_file_is_finished_on_other_targets_when_one_hangs() {
    for (is_far, ops, n) in [
        (false, &APPENDS[..], 6),
        (false, &[Op::WriteAt][..], 1),
        (false, &[Op::WriteBack][..], 3),
        (true, &[Op::WriteAt][..], 2),
    ] {
        let fixture = Fixture::new(is_far);
        let plfs = fixture.process();
        let hanging = fixture.faults.hang(SECOND, ops, n);
        let begun = Instant::now();
        let file = open(&plfs, Path::new("/m/f"));
        write(&file, 0..PIECES, 0);
        file.close().unwrap();
        assert!(begun.elapsed() < LONG, "{:?}", begun.elapsed());
        assert!(hanging.waiting() > 0, "{is_far} {ops:?}: nothing hung");
        fixture.reads("/m/f", PIECES, 0);
        // Others know it, and so does who asks.
        let is_given_up = || {
            known_of(&fixture.memory, &fixture.config(), &["/n".into()])[0].given_up_ns.is_some()
        };
        assert!(is_given_up());
        let (before, begun) = (fixture.calls_there(&APPENDS), Instant::now());
        let other = open(&fixture.process(), Path::new("/m/g"));
        write(&other, 0..PIECES, 0);
        other.close().unwrap();
        assert_eq!(fixture.calls_there(&APPENDS), before);
        fixture.reads("/m/g", PIECES, 0);
        // It answers: it is a target as any other again.
        drop((hanging, begun));
        until(|| {
            let third = open(&fixture.process(), Path::new("/m/h"));
            write(&third, 0..PIECES, 0);
            third.close().unwrap();
            fixture.calls_there(&APPENDS) > before + 1
        });
        assert!(!is_given_up());
    }
}

/// Where only the root is in memory, which has no disk to wait for, the other targets were not
/// steered at all: who wrote waited for one that hung, for ever.
#[test]
fn a_target_that_hangs_is_given_up_also_if_the_root_is_in_memory() {
    let fixture = Fixture::new(false);
    let fixture = Fixture { faults: fixture.faults.in_memory_below("/m"), ..fixture };
    let hanging = fixture.faults.hang(SECOND, &APPENDS, 3);
    let begun = Instant::now();
    let file = open(&fixture.process(), Path::new("/m/f"));
    write(&file, 0..PIECES, 0);
    file.close().unwrap();
    assert!(begun.elapsed() < LONG, "{:?}", begun.elapsed());
    assert!(hanging.waiting() > 0, "nothing hung");
    fixture.reads("/m/f", PIECES, 0);
}

/// The append that was given up ends in the end, when its bytes have another place, the memory that
/// it writes from has held others, and the file was overwritten.
#[test]
fn a_late_return_changes_nothing() {
    for (is_far, ops) in [(false, &APPENDS[..]), (true, &[Op::WriteAt][..])] {
        let fixture = Fixture::new(is_far);
        let plfs = fixture.process();
        let hanging = fixture.faults.hang(SECOND, ops, 3);
        let file = open(&plfs, Path::new("/m/f"));
        write(&file, 0..PIECES, 0);
        file.commit().unwrap();
        fixture.reads("/m/f", PIECES, 0);
        write(&file, 0..PIECES, 1);
        assert!(hanging.waiting() > 0, "nothing hung");
        let before = fixture.faults.calls_of(Op::WriteAt);
        drop(hanging);
        until(|| fixture.faults.calls_of(Op::WriteAt) > before);
        write(&file, PIECES..PIECES + 64, 1);
        file.sync().unwrap();
        file.close().unwrap();
        fixture.reads("/m/f", PIECES + 64, 1);
    }
}

/// What a target has taken before it hung is there, but nobody knows whether it keeps it: a sync
/// says so, in time, and says which target it is. So do all later ones.
#[test]
fn a_sync_says_which_target_was_given_up() {
    let fixture = Fixture::new(false);
    let file = open(&fixture.process(), Path::new("/m/f"));
    let ops = [Op::WriteAt, Op::WriteBack, Op::SyncData];
    let hanging = fixture.faults.hang(SECOND, &ops, 8);
    write(&file, 0..PIECES, 0);
    file.commit().unwrap();
    fixture.reads("/m/f", PIECES, 0);
    let begun = Instant::now();
    let error = file.sync().unwrap_err();
    assert!(begun.elapsed() < LONG);
    assert_eq!(error.errno(), Errno::TIMEDOUT, "{error}");
    assert!(error.to_string().contains("/n/.plfs"), "{error}");
    drop(hanging);
    assert!(file.sync().is_err());
    drop(file);
    fixture.reads("/m/f", PIECES, 0);
}

/// It took nothing: all is on the others, and a sync has nothing to do with it.
#[test]
fn a_sync_succeeds_if_the_target_had_nothing() {
    let fixture = Fixture::new(false);
    let ops = [Op::WriteAt, Op::WriteBack, Op::SyncData];
    let _hanging = fixture.faults.hang(SECOND, &ops, 1);
    let file = open(&fixture.process(), Path::new("/m/f"));
    write(&file, 0..PIECES, 0);
    file.sync().unwrap();
    file.close().unwrap();
    fixture.reads("/m/f", PIECES, 0);
}

/// There is nowhere to go: it is waited for, as with a plain file, and nothing is lost.
#[test]
fn where_all_targets_hang_a_writer_waits() {
    for is_far in [false, true] {
        let fixture = Fixture::new(is_far);
        let file = open(&fixture.process(), Path::new("/m/f"));
        fixture.is_waited_for(".data", file);
    }
}

/// The other target has room for a part only: the rest waits for the one that hangs.
#[test]
fn what_finds_no_room_elsewhere_waits() {
    let fixture = Fixture::new(false);
    let plfs = fixture.process_with_two_for_data();
    // The index log has room.
    let file = open(&plfs, Path::new("/m/f"));
    let hanging = fixture.faults.hang(SECOND, &APPENDS, 4);
    fixture.faults.full_below(THIRD, 12 << 20);
    let writer = std::thread::spawn(move || {
        for i in 0..PIECES {
            // Who is told that there is no room tries again.
            while file.write_at(&piece(i, 0), (i * PIECE) as u64).is_err() {
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        file
    });
    until(|| hanging.waiting() > 0);
    std::thread::sleep(6 * DEADLINE);
    assert!(!writer.is_finished());
    drop(hanging);
    writer.join().unwrap().close().unwrap();
    fixture.reads("/m/f", PIECES, 0);
}

/// The first file on a target hangs before it is there.
#[test]
fn a_target_that_makes_no_files_is_given_up() {
    for ops in [&[Op::Open, Op::Mkdir][..], &[Op::Open][..], &[Op::Space][..]] {
        let fixture = Fixture::new(false);
        let plfs = fixture.process();
        let path = if ops.contains(&Op::Space) { "/n" } else { SECOND };
        let _hanging = fixture.faults.hang(path, ops, 1);
        let file = open(&plfs, Path::new("/m/f"));
        let begun = Instant::now();
        write(&file, 0..PIECES, 0);
        file.sync().unwrap();
        file.close().unwrap();
        assert!(begun.elapsed() < LONG);
        fixture.reads("/m/f", PIECES, 0);
    }
}

/// On a busy machine both targets were given up, one of which was only slow. So a file was made
/// without a deadline on the other one, which hung for ever, though the first had answered long
/// since.
#[test]
fn who_waits_as_all_are_given_up_goes_on_where_one_answers() {
    for (slow, dead) in [(SECOND, THIRD), (THIRD, SECOND)] {
        let fixture = Fixture::new(false);
        let plfs = fixture.process_with_two_for_data();
        let file = open(&plfs, Path::new("/m/f"));
        let ops = [Op::Open, Op::Mkdir];
        let [slow, dead] = [slow, dead].map(|path| fixture.faults.hang(path, &ops, 1));
        let writer = std::thread::spawn(move || {
            write(&file, 0..PIECES, 0);
            file.sync().unwrap();
            file.close().unwrap();
        });
        until(|| slow.waiting() > 0 && dead.waiting() > 0);
        std::thread::sleep(2 * DEADLINE);
        drop(slow);
        until(|| writer.is_finished());
        writer.join().unwrap();
        fixture.reads("/m/f", PIECES, 0);
    }
}

/// What one log has at the target that hangs keeps another one from nothing; and a process that
/// forks waits no longer.
#[test]
fn two_files_of_a_process_are_finished() {
    let fixture = Fixture::new(false);
    let plfs = fixture.process();
    let files = ["/m/f", "/m/g"].map(|path| open(&plfs, Path::new(path)));
    let hanging = fixture.faults.hang(SECOND, &APPENDS, 4);
    for i in 0..PIECES {
        files.iter().for_each(|file| write(file, i..i + 1, 0));
    }
    let begun = Instant::now();
    plfs.before_fork().unwrap();
    assert!(begun.elapsed() < LONG);
    assert!(hanging.waiting() > 0);
    for file in files {
        file.close().unwrap();
    }
    fixture.reads("/m/f", PIECES, 0);
    fixture.reads("/m/g", PIECES, 0);
}

/// Who sets no deadline waits.
#[test]
fn without_a_deadline_nothing_is_given_up() {
    let fixture = Fixture::new(false);
    let config = Config { deadline: None, ..fixture.config() };
    let plfs = Plfs::new(Arc::new(fixture.faults.clone()), config);
    let file = open(&plfs, Path::new("/m/f"));
    fixture.is_waited_for(SECOND, file);
}
