//! Power loss at every moment, on a store that forgets what was not synced: what a
//! completed sync promised is there, and reading never panics.
//!
//! A power loss keeps or loses each change that was not synced, by chance (`MemStore::crash_with`).
//! So the same moment is tried with many seeds.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use plfs::store::{Errno, Links, Open, Store, read_full, write_full};
use plfs::{Config, Error, File, Finding, OpenOptions, Opened, Plfs, Severity, Workload, Writers};
use plfs_testkit::{Fault, FaultStore, MemStore, Op, Rng, ZEROS, byte_of, rounds, seeds};

use crate::scratch::fresh_dir;

/// A directory for the shared memory of a node; a new one is a node that has started again.
pub struct Node(PathBuf);

impl Node {
    pub fn new() -> Node {
        Node(fresh_dir())
    }

    pub fn process(&self, store: Arc<dyn Store>) -> Plfs {
        Plfs::new(
            store,
            Config { shared_memory: Some(self.0.clone()), streams: 2, ..Config::shared() },
        )
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A store with the directory `/m`, which lasts.
pub fn memory() -> MemStore {
    let memory = MemStore::new();
    memory.mkdir(Path::new("/m"), 0o755).unwrap();
    memory.sync_dir(Path::new("/")).unwrap();
    memory
}

pub fn open(plfs: &Plfs, path: &Path) -> plfs::Result<File> {
    match plfs.open(path, OpenOptions::create())? {
        Opened::Logical(file) => Ok(file),
        Opened::Plain(_) => panic!("{} is plain", path.display()),
    }
}

/// Bytes of the file that are compared at once.
const AT_ONCE: usize = 512;

/// Something that a process did to the one file of [`a_sync_survives_power_loss`].
#[derive(Clone, Copy, Debug)]
struct Event {
    process: usize,
    durable: bool,
    what: What,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Write { offset: u64, len: u64, seed: u32 },
    Truncate { size: u64 },
}

impl Event {
    fn at(&self, byte: u64) -> Option<u8> {
        match self.what {
            What::Write { offset, len, seed } => {
                (offset..offset + len).contains(&byte).then(|| byte_of(seed, byte - offset))
            }
            What::Truncate { size } => (byte >= size).then_some(0),
        }
    }

    /// Whether it has to do with bytes of `range`.
    fn meets(&self, range: &Range<u64>) -> bool {
        match self.what {
            What::Write { offset, len, .. } => offset < range.end && range.start < offset + len,
            What::Truncate { size } => size < range.end,
        }
    }

    fn end(&self) -> u64 {
        match self.what {
            What::Write { offset, len, .. } => offset + len,
            What::Truncate { size } => size,
        }
    }
}

/// The file's possible sizes after a power loss: what was not durable is there or not.
fn sizes(events: &[Event]) -> (u64, u64) {
    let (mut low, mut high) = (0, 0);
    for (i, event) in events.iter().enumerate() {
        let later = |durable: bool| {
            let cuts = events[i + 1..].iter().filter(move |event| event.durable || !durable);
            cuts.filter(|event| matches!(event.what, What::Truncate { .. }))
                .map(Event::end)
                .fold(event.end(), u64::min)
        };
        if event.durable {
            low = low.max(later(false));
        }
        high = high.max(later(true));
    }
    (low, high)
}

/// Puts the values that a byte may have after a power loss into `values`; gives whether it is
/// certain, because all that was ever done to it is durable.
fn may_be(events: &[Event], byte: u64, values: &mut Vec<u8>) -> bool {
    values.clear();
    let mut done = events.iter().rev().filter_map(|event| Some((event.at(byte)?, event.durable)));
    let last = done.next();
    values.extend(last.map(|(value, _)| value));
    if last.is_some_and(|(_, durable)| durable) {
        return true;
    }
    for (value, durable) in done {
        values.push(value);
        if durable {
            break;
        }
    }
    values.push(0);
    last.is_none()
}

/// Whether a byte was written and made durable, and nobody has cut it off since: then it is what
/// was made durable, or what was written later, and nothing else, whatever chance has left.
fn is_kept(events: &[Event], byte: u64) -> bool {
    let durable = events.iter().rposition(|event| event.durable && event.at(byte).is_some());
    durable.is_some_and(|durable| {
        events[durable..]
            .iter()
            .all(|event| matches!(event.what, What::Write { .. }) || event.at(byte).is_none())
    })
}

/// The bytes of `range` in pieces: what has to do with one byte of a piece has to do with all.
fn pieces(events: &[Event], range: Range<u64>) -> Vec<Range<u64>> {
    let start = |event: &Event| match event.what {
        What::Write { offset, .. } => offset,
        What::Truncate { size } => size,
    };
    let mut cuts: Vec<u64> = events
        .iter()
        .flat_map(|event| [start(event), event.end()])
        .filter(|cut| range.contains(cut))
        .chain([range.start, range.end])
        .collect();
    cuts.sort_unstable();
    cuts.dedup();
    cuts.windows(2).map(|cut| cut[0]..cut[1]).collect()
}

/// What is left of changes that were not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    /// Nothing.
    Nothing,
    /// Each is kept or lost by chance.
    Some,
}

/// Compares the file with what it may be. No byte that was ever synced is missing or zero: it is
/// what was synced, or what was written later.
fn survived(
    plfs: &Plfs,
    path: &Path,
    events: &[Event],
    born_plain: bool,
    named: bool,
    left: Left,
) -> Result<(), String> {
    let file = match plfs.open(path, OpenOptions::read()) {
        Ok(Opened::Logical(file)) => file,
        // One that was born with a container is there as a plain file only if what it says of that
        // was torn, and nobody had synced it.
        Ok(Opened::Plain(file)) if born_plain => file,
        _ if !named => return Ok(()),
        other => return Err(format!("open gave {other:?}")),
    };
    let (low, high) = sizes(events);
    // As reads see it: `the_size_fits_what_a_power_loss_left` looks at what stat says.
    let end = || match file.is_plain() {
        true => file.len(),
        false => file.with_index(|index| index.eof()),
    };
    let size = match end() {
        Ok(size) => size,
        Err(_) if !named => return Ok(()),
        Err(error) => return Err(format!("no size: {error}")),
    };
    if size < low || size > high {
        return Err(format!("the size is {size}, expected {low} to {high}"));
    }
    let mut values = Vec::new();
    for start in (0..size).step_by(AT_ONCE) {
        let here = start..size.min(start + AT_ONCE as u64);
        // Most bytes of the file are in nobody's write.
        let events: Vec<Event> =
            events.iter().filter(|event| event.meets(&here)).copied().collect();
        let mut read = [0xee; AT_ONCE];
        let read = &mut read[..(here.end - start) as usize];
        // What cannot be read whole is asked for byte by byte.
        let is_read = file.read_at(read, start).is_ok_and(|n| n == read.len());
        if events.is_empty() && is_read && read.iter().all(|read| *read == 0) {
            continue;
        }
        for piece in pieces(&events, here) {
            // Each of them has to do with all bytes of the piece.
            let done: Vec<Event> =
                events.iter().filter(|event| event.at(piece.start).is_some()).copied().collect();
            let was_synced = done.iter().any(|event| event.durable);
            let is_strict = left == Left::Nothing && was_synced || is_kept(&events, piece.start);
            let certain = may_be(&done, piece.start, &mut values);
            // The last ones, down to one that is durable.
            let earlier = done.iter().rposition(|event| event.durable).unwrap_or(0);
            let last = &done[earlier..];
            let may_be_zero = done.is_empty() || !certain && !is_strict;
            for byte in piece {
                let read = &mut read[(byte - start) as usize];
                let is_one = |event: &Event| event.at(byte) == Some(*read);
                if is_read && (may_be_zero && *read == 0 || last.iter().rev().any(is_one)) {
                    continue;
                }
                let got =
                    if is_read { Ok(1) } else { file.read_at(std::slice::from_mut(read), byte) };
                may_be(&done, byte, &mut values);
                if is_strict && !certain {
                    values.pop();
                }
                match got {
                    Ok(1) if values.contains(read) => {}
                    // The size came from a summary that outlived its logs; a read that missed their
                    // data turned to the logs, which end earlier, but not before what was synced.
                    // Then so do all reads behind it.
                    Ok(0)
                        if left == Left::Some
                            && end().is_ok_and(|now| now >= low && now <= byte) => {}
                    // Bytes that were committed and never synced may be missing (FORMAT.md section
                    // 7).
                    Err(Error::MissingData { .. }) if !(certain || is_strict) => {}
                    other => {
                        return Err(format!(
                            "byte {byte} of {size}: {other:?}, {read:#x}, expected one of \
                             {values:?} (certain: {certain})"
                        ));
                    }
                }
            }
        }
    }
    Ok(())
}

/// One run of processes of one node on one file, a power loss after `steps` steps, and then more
/// steps on what is left. Processes write to regions of their own, so that the order of their
/// writes plays no part.
///
/// With [`Left::Some`] what survives by chance stays in the file, and with it records whose data
/// did not: from then on their bytes may be missing.
fn power_loss(seed: u64, steps: usize, kind: Left, workload: Workload) -> Result<(), String> {
    let mut rng = Rng::new(seed);
    let path = PathBuf::from("/m/f");
    let mut store = memory();
    if workload == Workload::Auto {
        // Bytes of a plain file that are written over are the kernel's.
        store = store.writing_over();
    }
    let (mut events, mut named) = (Vec::<Event>::new(), false);
    let mut born_plain = None;
    for _boot in 0..3 {
        let node = Node::new();
        // What happened, for people.
        let mut log = Vec::new();
        let config = Config {
            shared_memory: Some(node.0.clone()),
            streams: 2,
            workload,
            ..Config::shared()
        };
        let process = |_| Plfs::new(Arc::new(store.clone()), config.clone());
        let processes: Vec<Plfs> = (0..2).map(process).collect();
        let mut files: Vec<Option<File>> = vec![None, None];
        for _ in 0..steps {
            let (process, action) = (rng.below(2) as usize, rng.below(13));
            log.push(format!(
                "process {process}: {}; {} events before",
                ["write", "commit", "sync", "truncate", "close", "punch"]
                    [[0, 0, 0, 0, 0, 0, 0, 1, 2, 2, 3, 4, 5][action as usize]],
                events.len()
            ));
            if files[process].is_none() {
                let mut options = OpenOptions::create();
                if workload == Workload::Auto && rng.one_in(4) {
                    options.writers = Writers::Several;
                }
                match processes[process].open(&path, options) {
                    Ok(opened) => {
                        let file = opened.file();
                        born_plain.get_or_insert(file.is_plain());
                        files[process] = Some(file);
                    }
                    // What was never synced may be half there; nobody can be asked to write to it.
                    Err(_) if !named => return Ok(()),
                    Err(error) => return Err(format!("open: {error}")),
                }
            }
            let Some(file) = &files[process] else { continue };
            let synced = |events: &mut Vec<Event>| {
                events
                    .iter_mut()
                    .filter(|event| event.process == process)
                    .for_each(|event| event.durable = true)
            };
            let mut step = || -> plfs::Result<()> {
                match action {
                    0..=6 => {
                        let most = rng.pick(&[60, 60, 60, 60, 60, 60, 60, 18_000]);
                        let len = 1 + rng.below(most);
                        let offset = rng.below(4) * 40_000
                            + process as u64 * 20_000
                            + rng.below(if len > 60 { 1000 } else { 200 });
                        let seed = rng.next_u64() as u32;
                        let bytes: Vec<u8> = (0..len).map(|i| byte_of(seed, i)).collect();
                        file.write_at(&bytes, offset)?;
                        events.push(Event {
                            process,
                            durable: false,
                            what: What::Write { offset, len, seed },
                        });
                    }
                    7 => file.commit()?,
                    8..=9 => {
                        file.sync()?;
                        if file.is_plain() {
                            // Its name is the program's own business.
                            store.sync_dir(Path::new("/m")).unwrap();
                        }
                        synced(&mut events);
                        named = true;
                    }
                    10 => {
                        let size = if rng.one_in(2) { 0 } else { rng.below(130_000) };
                        if file.len()? != size {
                            file.set_len(size)?;
                            events.push(Event {
                                process,
                                durable: false,
                                what: What::Truncate { size },
                            });
                        }
                        // What goes on after it is after it.
                        files.iter().flatten().try_for_each(File::refresh)?;
                    }
                    12 => {
                        let offset =
                            rng.below(4) * 40_000 + process as u64 * 20_000 + rng.below(200);
                        let most = rng.pick(&[60, 18_000]);
                        let len = 1 + rng.below(most);
                        file.zero(offset, len)?;
                        // A hole is in the file only, and only now this process knows what others
                        // have cut of its own writes.
                        let len = len.min(file.len()?.saturating_sub(offset));
                        if len > 0 {
                            events.push(Event {
                                process,
                                durable: false,
                                what: What::Write { offset, len, seed: ZEROS },
                            });
                        }
                    }
                    _ => {}
                }
                Ok(())
            };
            let ran = match action {
                // What was closed before it was synced is looked at by
                // `a_sync_after_a_close_makes_all_durable` alone.
                11 => {
                    events
                        .iter_mut()
                        .filter(|event| event.process == process)
                        .for_each(|event| event.process = usize::MAX);
                    files[process].take().map_or(Ok(()), File::close)
                }
                _ => step(),
            };
            match ran {
                Ok(()) => {}
                Err(_) if !named => return Ok(()),
                Err(error) => return Err(format!("before the loss: {error}")),
            }
        }
        let chance = rng.next_u64();
        let left = if kind == Left::Nothing { store.crash() } else { store.crash_with(chance) };
        // What the dying processes still do does not reach the store that is left.
        drop((files, processes));
        let after = Node::new();
        let config = Config { shared_memory: Some(after.0.clone()), ..config };
        let reader = Plfs::new(Arc::new(left.clone()), config);
        survived(&reader, &path, &events, born_plain == Some(true), named, kind)
            .map_err(|why| format!("{why}\n{log:#?}"))?;
        store = left;
        if !named {
            return Ok(());
        }
        // From now on it stays undecided which of the changes made it, but what was certain stays
        // so.
        for event in &mut events {
            event.process = usize::MAX;
        }
    }
    Ok(())
}

/// Whatever several processes wrote and synced is there after a power loss at any moment, byte for
/// byte, and the size fits; bytes that were not synced are an older or newer state, zeros, or
/// missing with an error, never something else; and all this holds again after going on with what
/// is left.
#[test]
fn a_sync_survives_power_loss() {
    synced_bytes_survive(Workload::Shared);
}

/// The same of a file that is born plain, and becomes a container at some time.
#[test]
fn a_sync_of_a_plain_file_survives_power_loss() {
    synced_bytes_survive(Workload::Auto);
}

fn synced_bytes_survive(workload: Workload) {
    for seed in seeds(rounds("PLFS_CRASH_ROUNDS", 100)) {
        let steps = 2 + (seed % 40) as usize;
        for kind in [Left::Some, Left::Nothing] {
            if let Err(why) = power_loss(seed, steps, kind, workload) {
                panic!(
                    "seed {seed}, {steps} steps before each loss, {kind:?} of what was not synced \
                     is left: {why}"
                );
            }
        }
    }
}

/// What a power loss makes of a new file at `path` that was written and synced; with data on other
/// backends too, if there are any.
fn sync_named(path: &str, backends: &[&str]) -> Vec<String> {
    let (memory, node) = (memory(), Node::new());
    for backend in backends {
        let dir = Path::new(backend);
        memory.mkdir(dir, 0o755).unwrap();
        memory.mkdir(&dir.join(".plfs"), 0o1777).unwrap();
        memory.sync_dir(dir).unwrap();
        memory.sync_dir(Path::new("/")).unwrap();
    }
    let store: Arc<dyn Store> = Arc::new(memory.clone());
    // A root above: as when a program makes a directory in its plfs.d.
    store.mkdir(Path::new("/m/.plfs"), 0o1777).unwrap();
    store.mkdir(Path::new("/m/d"), 0o755).unwrap();
    store.sync_dir(Path::new("/m")).unwrap();
    let config = Config {
        shared_memory: Some(node.0.clone()),
        backends: backends.iter().map(PathBuf::from).collect(),
        ..Config::shared()
    };
    let plfs = Plfs::new(store, config);
    let file = open(&plfs, Path::new(path)).unwrap();
    file.write_at(b"kept", 0).unwrap();
    file.sync().unwrap();
    let lost = |seed: u64| {
        let left = if seed == 0 { memory.crash() } else { memory.crash_with(seed) };
        let (plfs, mut bytes) = (Node::new().process(Arc::new(left)), [0; 4]);
        let read =
            plfs.open(Path::new(path), OpenOptions::read()).and_then(|opened| match opened {
                Opened::Logical(file) => file.read_at(&mut bytes, 0),
                Opened::Plain(_) => Ok(0),
            });
        (read.as_ref().ok() != Some(&4) || &bytes != b"kept")
            .then(|| format!("seed {seed}: {read:?} {bytes:?}"))
    };
    (0..50).filter_map(lost).collect()
}

/// The first sync of a new file makes its name durable too (SEMANTICS.md S12).
#[test]
fn a_sync_makes_the_name_durable() {
    assert_eq!(sync_named("/m/f", &[]), Vec::<String>::new());
}

/// A program writes a file and closes it, and later opens and syncs it, as sync(1) does: every byte
/// that the process wrote before is durable then (SEMANTICS.md S12).
#[test]
fn a_sync_after_a_close_makes_all_durable() {
    let (memory, node) = (memory(), Node::new());
    let (plfs, path) = (node.process(Arc::new(memory.clone())), Path::new("/m/f"));
    let file = open(&plfs, path).unwrap();
    file.write_at(b"kept", 0).unwrap();
    file.close().unwrap();
    let file = open(&plfs, path).unwrap();
    file.sync().unwrap();
    let (node, mut bytes) = (Node::new(), [0; 4]);
    let left = open(&node.process(Arc::new(memory.crash())), path).unwrap();
    assert_eq!(left.read_at(&mut bytes, 0).unwrap(), 4);
    assert_eq!(&bytes, b"kept");
}

/// A process became another user after the close, and may not open the logs that it wrote: the sync
/// skipped them and said that all is durable.
#[test]
fn a_sync_that_may_not_open_what_was_left_says_so() {
    let (memory, node) = (memory(), Node::new());
    let faults = FaultStore::new(Arc::new(memory.clone()));
    let (plfs, path) = (node.process(Arc::new(faults.clone())), Path::new("/m/f"));
    let file = open(&plfs, path).unwrap();
    file.write_at(b"kept", 0).unwrap();
    file.close().unwrap();
    let file = open(&plfs, path).unwrap();
    faults.fail_matching(".data", Op::Open, plfs::store::Errno::ACCESS);
    assert_eq!(file.sync().unwrap_err().errno(), plfs::store::Errno::ACCESS);
    faults.reset();
    file.sync().unwrap();
    let (node, mut bytes) = (Node::new(), [0; 4]);
    let left = open(&node.process(Arc::new(memory.crash())), path).unwrap();
    assert_eq!(left.read_at(&mut bytes, 0).unwrap(), 4);
    assert_eq!(&bytes, b"kept");
}

/// Who makes a flat index may not open the logs of another user. It took what it had not synced for
/// durable: after a power cut the flat index hid what was synced below data that was not there.
#[test]
fn a_flat_index_does_not_vouch_for_logs_that_could_not_be_synced() {
    let (memory, node, path) = (memory(), Node::new(), Path::new("/m/f"));
    let file = open(&node.process(Arc::new(memory.clone())), path).unwrap();
    file.write_at(&[b'o'; 5000], 0).unwrap();
    file.sync().unwrap();
    file.write_at(&[b'n'; 5000], 0).unwrap();
    file.commit().unwrap();
    let faults = FaultStore::new(Arc::new(memory.clone()));
    let other = Node::new().process(Arc::new(faults.clone()));
    faults.fail_matching(".data", Op::Open, Errno::ACCESS);
    let error = other.flatten(path).unwrap_err();
    assert_eq!(error.errno(), Errno::ACCESS);
    assert!(error.to_string().contains("another user"), "{error}");
    let (node, mut bytes) = (Node::new(), [0; 5000]);
    let left = open(&node.process(Arc::new(memory.crash())), path).unwrap();
    assert_eq!(left.read_at(&mut bytes, 0).unwrap(), 5000);
    assert_eq!(bytes, [b'o'; 5000]);
    // Who may open them makes them durable first.
    faults.reset();
    other.flatten(path).unwrap();
    let (node, left) = (Node::new(), memory.crash());
    let left = open(&node.process(Arc::new(left)), path).unwrap();
    assert_eq!(left.read_at(&mut bytes, 0).unwrap(), 5000);
    assert_eq!(bytes, [b'n'; 5000]);
}

/// A process that has written nothing calls fsync, and may not open the logs of another user, which
/// are not durable: it was told that they are.
#[test]
fn a_sync_of_who_wrote_nothing_says_what_it_may_not_open() {
    let (memory, node, path) = (memory(), Node::new(), Path::new("/m/f"));
    let file = open(&node.process(Arc::new(memory.clone())), path).unwrap();
    file.write_at(b"kept", 0).unwrap();
    file.commit().unwrap();
    let faults = FaultStore::new(Arc::new(memory.clone()));
    let (node, mut bytes) = (Node::new(), [0; 4]);
    let other = open(&node.process(Arc::new(faults.clone())), path).unwrap();
    assert_eq!(other.read_at(&mut bytes, 0).unwrap(), 4);
    faults.fail_matching(".data", Op::Open, Errno::ACCESS);
    assert_eq!(other.sync().unwrap_err().errno(), Errno::ACCESS);
    faults.reset();
    other.sync().unwrap();
    let (node, left) = (Node::new(), memory.crash());
    let left = open(&node.process(Arc::new(left)), path).unwrap();
    assert_eq!(left.read_at(&mut bytes, 0).unwrap(), 4);
    assert_eq!(&bytes, b"kept");
}

/// Bytes are synced. Then one process of a node overwrites them and commits without a sync, and
/// another one syncs something else: the index log that both share was durable then, with
/// the record of the first one, whose data was not. After a power cut the old bytes were hidden by
/// nothing: EIO, or zeros.
#[test]
fn a_sync_makes_durable_what_others_of_the_node_have_committed() {
    let (memory, node) = (memory(), Node::new());
    let path = Path::new("/m/f");
    let processes: Vec<Plfs> = (0..2).map(|_| node.process(Arc::new(memory.clone()))).collect();
    let files: Vec<File> =
        processes.iter().map(|plfs| open(plfs, path)).collect::<plfs::Result<_>>().unwrap();
    files[0].write_at(&[b'o'; 5000], 0).unwrap();
    files[0].sync().unwrap();
    files[0].write_at(&[b'n'; 5000], 0).unwrap();
    files[0].commit().unwrap();
    files[1].write_at(b"x", 6000).unwrap();
    files[1].sync().unwrap();
    let (node, mut bytes) = (Node::new(), [0; 5000]);
    let left = open(&node.process(Arc::new(memory.crash())), path).unwrap();
    assert_eq!(left.read_at(&mut bytes, 0).unwrap(), 5000);
    assert!(bytes.iter().all(|byte| *byte == b'n'), "{:?}", &bytes[..10]);
}

/// The child of a fork writes where its parent has written, and syncs: all of it is durable, though
/// the two have log sets of their own. The child had forgotten what its parent left.
#[test]
fn a_sync_of_a_child_makes_durable_what_its_parent_has_written() {
    let (memory, path) = (memory(), Path::new("/m/f"));
    let process =
        |store| Plfs::new(Arc::new(store), Config { shared_memory: None, ..Config::shared() });
    let plfs = process(memory.clone());
    let file = open(&plfs, path).unwrap();
    file.write_at(&[b'p'; 5000], 0).unwrap();
    plfs.before_fork().unwrap();
    plfs.after_fork_in_child();
    file.write_at(b"child", 5000).unwrap();
    file.sync().unwrap();
    let mut bytes = [0; 5000];
    let left = open(&process(memory.crash()), path).unwrap();
    assert_eq!(left.read_at(&mut bytes, 0).unwrap(), 5000);
    assert!(bytes.iter().all(|byte| *byte == b'p'), "{:?}", &bytes[..10]);
}

/// The same if the one who did not sync had the file open before, closed it, and the other one took
/// its log set over.
#[test]
fn a_sync_makes_durable_what_earlier_owners_of_the_log_set_have_committed() {
    let (memory, path) = (memory(), Path::new("/m/f"));
    for (byte, sync) in [(b'o', true), (b'n', false)] {
        let node = Node::new();
        let plfs = node.process(Arc::new(memory.clone()));
        let file = open(&plfs, path).unwrap();
        file.write_at(&[byte; 5000], 0).unwrap();
        if sync {
            file.sync().unwrap();
        }
        file.close().unwrap();
    }
    let node = Node::new();
    let file = open(&node.process(Arc::new(memory.clone())), path).unwrap();
    file.write_at(b"x", 6000).unwrap();
    file.sync().unwrap();
    let (node, mut bytes) = (Node::new(), [0; 5000]);
    let left = open(&node.process(Arc::new(memory.crash())), path).unwrap();
    assert_eq!(left.read_at(&mut bytes, 0).unwrap(), 5000);
    assert!(bytes.iter().all(|byte| *byte == b'n'), "{:?}", &bytes[..10]);
}

/// A large write of one thread was under way when another thread synced. That took note of the data
/// log as durable, so the first thread's own sync left its bytes to the page cache,
/// and made durable what points to them.
#[test]
fn a_sync_beside_a_write_leaves_the_write_to_the_next_sync() {
    let (memory, node) = (memory(), Node::new());
    let faults = FaultStore::new(Arc::new(memory.clone()));
    let (plfs, path) = (node.process(Arc::new(faults.clone())), Path::new("/m/f"));
    let (file, other) = (open(&plfs, path).unwrap(), open(&plfs, path).unwrap());
    file.write_at(b"first", 0).unwrap();
    file.sync().unwrap();
    let large = vec![7; 300_000];
    faults.before(".data", Op::WriteAt, move || other.sync().unwrap());
    file.write_at(&large, 1000).unwrap();
    file.sync().unwrap();
    let (node, mut bytes) = (Node::new(), vec![0; large.len()]);
    let left = open(&node.process(Arc::new(memory.crash())), path).unwrap();
    assert_eq!(left.read_at(&mut bytes, 1000).unwrap(), large.len());
    assert!(bytes == large);
}

/// A file is closed and never synced, and power is lost: the summary that the close left can
/// outlive the index log that it sums up. stat may then give a size that was never made durable, as
/// the last section of SEMANTICS.md says; every byte that was synced is there all the same.
#[test]
fn a_size_that_outlives_a_power_loss_takes_no_synced_byte() {
    let (memory, node) = (memory(), Node::new());
    let (plfs, path) = (node.process(Arc::new(memory.clone())), Path::new("/m/f"));
    let file = open(&plfs, path).unwrap();
    file.write_at(b"synced", 0).unwrap();
    file.sync().unwrap();
    file.write_at(b"not synced", 6).unwrap();
    file.close().unwrap();
    for seed in 0..200 {
        let (node, mut bytes) = (Node::new(), [0; 100]);
        let plfs = node.process(Arc::new(memory.crash_with(seed)));
        let size = plfs.stat(path, Links::Follow).unwrap().stat.len;
        let Ok(Opened::Logical(left)) = plfs.open(path, OpenOptions::read()) else {
            panic!("it is gone")
        };
        let n = left.read_at(&mut bytes, 0).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(n >= 6 && size >= 6 && &bytes[..6] == b"synced", "seed {seed}: {n} {size}");
    }
}

/// Behind bytes that were synced lie some that were not, and are lost: a read of both failed, and
/// gave none.
#[test]
fn a_read_gives_the_bytes_before_those_that_are_lost() {
    let (memory, node, path) = (memory(), Node::new(), Path::new("/m/f"));
    let plfs = node.process(Arc::new(memory.clone()));
    let file = open(&plfs, path).unwrap();
    for (at, text) in [(0, "synced"), (10, "and"), (13, "lost")] {
        file.write_at(text.as_bytes(), at).unwrap();
        file.commit().unwrap();
    }
    let last = file.extents(13, 17).unwrap()[0].clone();
    let log = memory.open(&last.data_log, Open::READ_WRITE).unwrap();
    log.set_len(last.physical + 2).unwrap();
    file.close().unwrap();
    let (left, mut bytes) = (open(&plfs, path).unwrap(), [0xee; 17]);
    assert_eq!(left.read_at(&mut bytes, 0).unwrap(), 15);
    assert_eq!(&bytes[..15], b"synced\0\0\0\0andlo");
    assert_eq!(left.read_at(&mut bytes, 15).unwrap_err().errno(), plfs::store::Errno::IO);
    assert_eq!(left.read_whole_at(&mut bytes, 0).unwrap_err().errno(), plfs::store::Errno::IO);
    assert_eq!(left.read_strided(&mut bytes[..9], 3, 5, 0).unwrap(), 9);
    assert_eq!(left.read_strided(&mut bytes[..12], 3, 5, 0).unwrap(), 9);
}

/// Bytes were committed and not synced; a power loss keeps the index block and loses the data log's
/// end. The next owner of the log set must not put other bytes where the old records still point:
/// what was lost is missing, or zeros, but never something else (FORMAT.md section 1: a byte that a
/// record points to never changes).
#[test]
fn lost_bytes_do_not_turn_into_others() {
    let (memory, path) = (memory(), Path::new("/m/f"));
    {
        let node = Node::new();
        let plfs = node.process(Arc::new(memory.clone()));
        let file = open(&plfs, path).unwrap();
        file.write_at(b"lost", 0).unwrap();
        file.close().unwrap();
    }
    let node = Node::new();
    let plfs = node.process(Arc::new(memory.clone()));
    let file = open(&plfs, path).unwrap();
    let data = file.extents(0, 4).unwrap()[0].data_log.clone();
    memory.open(&data, Open::READ_WRITE).unwrap().set_len(0).unwrap();
    file.write_at(b"other", 1000).unwrap();
    file.close().unwrap();
    let (mut bytes, file) = ([0xee; 4], open(&node.process(Arc::new(memory)), path).unwrap());
    match file.read_at(&mut bytes, 0) {
        Err(error) => assert!(error.to_string().contains("data"), "{error}"),
        Ok(n) => assert_eq!((n, &bytes), (4, &[0; 4])),
    }
}

/// The same if the name lies in a directory below the root: that directory is another one than the
/// root's.
#[test]
fn a_sync_makes_a_name_below_the_root_durable() {
    assert_eq!(sync_named("/m/d/f", &[]), Vec::<String>::new());
}

/// The same if the bytes go to another backend, where the first segment made all directories above
/// it.
#[test]
fn a_sync_makes_what_lies_on_other_backends_durable() {
    // Which backend a stream lies on depends on the random number of the log set.
    for _ in 0..8 {
        assert_eq!(sync_named("/m/f", &["/n", "/o"]), Vec::<String>::new());
    }
}

/// How checkpoints are written: to another name, synced, and renamed over the last good one. After
/// a power loss the name shows the old checkpoint or the new one: the old container must not be
/// gone while the rename may still be undone.
#[test]
fn a_rename_over_a_synced_file_survives_power_loss() {
    let (memory, node) = (memory(), Node::new());
    let plfs = node.process(Arc::new(memory.clone()));
    for (name, text) in [("final", b"old"), ("tmp", b"new")] {
        let file = open(&plfs, &Path::new("/m").join(name)).unwrap();
        file.write_at(text, 0).unwrap();
        file.sync().unwrap();
        file.close().unwrap();
    }
    plfs.rename(Path::new("/m/tmp"), Path::new("/m/final")).unwrap();
    for seed in 0..200 {
        let plfs = Node::new();
        let plfs = plfs.process(Arc::new(memory.crash_with(seed)));
        let mut bytes = [0; 3];
        let read = match plfs.open(Path::new("/m/final"), OpenOptions::read()) {
            Ok(Opened::Logical(file)) => file.read_at(&mut bytes, 0),
            other => panic!("seed {seed}: {other:?}"),
        };
        assert!(
            read.is_ok() && (&bytes == b"old" || &bytes == b"new"),
            "seed {seed}: {read:?} {bytes:?}"
        );
    }
}

/// Editors and job scripts write to another name and rename it over the old one without a sync. The
/// rename was durable and the new file's data was not: after a power cut the name showed
/// neither the old bytes nor the new ones.
#[test]
fn a_rename_over_a_file_without_a_sync_keeps_the_old_or_the_new() {
    for closed in [true, false] {
        let (memory, node) = (memory(), Node::new());
        let plfs = node.process(Arc::new(memory.clone()));
        let file = open(&plfs, Path::new("/m/final")).unwrap();
        file.write_at(b"old", 0).unwrap();
        file.sync().unwrap();
        file.close().unwrap();
        let file = open(&plfs, Path::new("/m/tmp")).unwrap();
        file.write_at(b"new", 0).unwrap();
        let file = if closed { file.close().map(|()| None).unwrap() } else { Some(file) };
        plfs.rename(Path::new("/m/tmp"), Path::new("/m/final")).unwrap();
        for seed in 0..200 {
            let left = if seed == 0 { memory.crash() } else { memory.crash_with(seed) };
            let plfs = Node::new();
            let plfs = plfs.process(Arc::new(left));
            let mut bytes = [0; 3];
            let read = match plfs.open(Path::new("/m/final"), OpenOptions::read()) {
                Ok(Opened::Logical(file)) => file.read_at(&mut bytes, 0),
                other => panic!("seed {seed}: {other:?}"),
            };
            assert!(
                read.is_ok() && (&bytes == b"old" || &bytes == b"new"),
                "closed: {closed}, seed {seed}: {read:?} {bytes:?}"
            );
        }
        drop(file);
    }
}

/// A plain file, as any program without PLFS writes it, was not made durable before it replaced a
/// file with a container, whose data went at once.
#[test]
fn a_plain_file_over_one_with_a_container_without_a_sync_keeps_the_old_or_the_new() {
    let (memory, node) = (memory(), Node::new());
    let plfs = node.process(Arc::new(memory.clone()));
    let name = Path::new("/m/final");
    let file = open(&plfs, name).unwrap();
    file.write_at(b"old", 0).unwrap();
    file.sync().unwrap();
    file.close().unwrap();
    let plain = memory.open(Path::new("/m/tmp"), Open::create(0o200)).unwrap();
    write_full(plain.as_ref(), b"new", 0).unwrap();
    drop(plain);
    plfs.rename(Path::new("/m/tmp"), name).unwrap();
    let mut were_new = 0;
    for seed in 0..200 {
        let left = if seed == 0 { memory.crash() } else { memory.crash_with(seed) };
        let plfs = Node::new().process(Arc::new(left.clone()));
        let mut bytes = [0; 3];
        match plfs.open(name, OpenOptions::read()) {
            Ok(Opened::Logical(file)) => {
                file.read_at(&mut bytes, 0).unwrap();
                assert_eq!(&bytes, b"old", "seed {seed}");
            }
            Ok(Opened::Plain(_)) => {
                let file = left.open(name, Open::READ).unwrap();
                read_full(file.as_ref(), &mut bytes, 0).unwrap();
                assert_eq!(&bytes, b"new", "seed {seed}");
                were_new += 1;
            }
            Err(error) => panic!("seed {seed}: {error}"),
        }
    }
    assert!(were_new > 0);
}

/// Makes sure that after a power cut a file has nothing but `o`, which was synced, and `n`, which
/// was not, in its first `len` bytes, whatever chance has left, and that it can be written. Says
/// how often some of each was there.
fn is_old_or_new(memory: &MemStore, path: &Path, len: usize, seeds: u64) -> (u64, u64) {
    let (mut old, mut new) = (0, 0);
    for seed in 0..seeds {
        let (node, mut bytes) = (Node::new(), vec![0; len]);
        let left: Arc<dyn Store> = Arc::new(memory.crash_with(seed));
        let report = plfs::check_name(&left, path, &[]);
        // Other tests look at what it says of summaries.
        let is_blamed = |finding: &&Finding| {
            finding.severity == Severity::Corrupt && !finding.path.ends_with("super")
        };
        assert_eq!(report.findings.iter().find(is_blamed), None, "seed {seed}");
        let file = open(&node.process(left), path).unwrap();
        let n = file.read_at(&mut bytes, 0).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert_eq!(n, len, "seed {seed}");
        let wrong = bytes.iter().position(|byte| !b"on".contains(byte));
        assert_eq!(wrong.map(|at| (at, bytes[at])), None, "seed {seed}");
        old += u64::from(bytes.contains(&b'o'));
        new += u64::from(bytes.contains(&b'n'));
        file.write_at(b"goes on", len as u64 + 10).unwrap();
        file.close().unwrap();
    }
    (old, new)
}

/// Bytes were synced, then overwritten and committed without a sync. Before power was cut the
/// kernel had written back the index block by chance, but not the data: the block hid the synced
/// bytes behind zeros, or the read failed.
#[test]
fn a_block_that_nobody_synced_does_not_hide_what_was() {
    // With one page the new bytes survive as a whole now and then.
    for len in [1_000, 100_000] {
        let (memory, path) = (memory(), Path::new("/m/f"));
        let node = Node::new();
        let plfs = node.process(Arc::new(memory.clone()));
        let file = open(&plfs, path).unwrap();
        file.write_at(&vec![b'o'; len], 0).unwrap();
        file.sync().unwrap();
        file.write_at(&vec![b'n'; len / 2], 0).unwrap();
        for at in (len / 2..len).step_by(100) {
            file.write_at(&[b'n'; 50], at as u64).unwrap();
        }
        file.commit().unwrap();
        let (old, new) = is_old_or_new(&memory, path, len, 200);
        assert!(old == 200 && (len > 4096 || new > 0), "{len}: {old} {new}");
        file.close().unwrap();
    }
}

/// The same if the file was closed: a flat index made by the close, or a summary that names it,
/// outlasts the power cut and has no sums.
#[test]
fn a_flat_index_does_not_hide_what_was_synced() {
    for flatten in [false, true] {
        let (memory, path) = (memory(), Path::new("/m/f"));
        let node = Node::new();
        let plfs = node.process(Arc::new(memory.clone()));
        for (byte, sync) in [(b'o', true), (b'n', false)] {
            let file = open(&plfs, path).unwrap();
            file.write_at(&[byte; 3_000], 0).unwrap();
            if sync {
                file.sync().unwrap();
            }
            file.close().unwrap();
        }
        if flatten {
            plfs.flatten(path).unwrap();
        }
        let (old, new) = is_old_or_new(&memory, path, 3_000, 200);
        assert!(new > 0 && (flatten || old >= 20), "{old} {new}");
    }
}

/// Sessions that open, overwrite a few of 24 slots and close, some of them with a sync: what was
/// synced is hidden neither by blocks that a power cut tore, which cross pages in logs so long, nor
/// by a flat index that a close made of data that nobody had synced.
#[test]
fn slots_that_sessions_overwrite_are_what_was_synced_or_later() {
    const SLOTS: usize = 24;
    const BYTES: usize = 100;
    for seed in seeds(rounds("PLFS_CRASH_ROUNDS", 100) / 10) {
        let mut rng = Rng::new(seed);
        let (memory, path) = (memory(), Path::new("/m/f"));
        let node = Node::new();
        let plfs = node.process(Arc::new(memory.clone()));
        // Of each slot what was written, and how many of them were synced.
        let mut written = vec![vec![0_u8]; SLOTS];
        let mut synced = [0; SLOTS];
        for session in 0..20 + rng.below(300) {
            let file = open(&plfs, path).unwrap();
            for _ in 0..1 + rng.below(3) {
                let slot = rng.below(SLOTS as u64) as usize;
                let byte = 1 + (session % 250) as u8;
                file.write_at(&[byte; BYTES], (slot * BYTES) as u64).unwrap();
                written[slot].push(byte);
            }
            if session == 0 || rng.one_in(8) {
                file.sync().unwrap();
                for (slot, written) in written.iter().enumerate() {
                    synced[slot] = written.len() - 1;
                }
            }
            file.close().unwrap();
            if !rng.one_in(10) {
                continue;
            }
            for _ in 0..4 {
                let chance = rng.next_u64();
                let left = memory.crash_with(chance);
                let node = Node::new();
                let file = open(&node.process(Arc::new(left)), path).unwrap();
                let mut whole = [0; SLOTS * BYTES];
                let read = file.read_at(&mut whole, 0).unwrap_or(0);
                for at in 0..whole.len() {
                    let slot = at / BYTES;
                    let may = &written[slot][synced[slot]..];
                    // What lies behind bytes that are lost is read by itself.
                    let one = match at < read {
                        true => Ok(1),
                        false => file.read_at(&mut whole[at..=at], at as u64),
                    };
                    let is_right = matches!(one, Ok(1)) && may.contains(&whole[at]);
                    assert!(
                        is_right || may[0] == 0,
                        "seed {seed}, session {session}, chance {chance}: byte {at} of {read}: \
                         {one:?} {}, not of {may:?}",
                        whole[at]
                    );
                }
            }
        }
    }
}

/// Whoever looked at data in doubt when no descriptor was left took it for right, and a flat index
/// said so for ever: what a power cut had taken hid what was synced.
#[test]
fn data_in_doubt_that_cannot_be_looked_at_is_not_believed() {
    let (memory, path) = (memory(), Path::new("/m/f"));
    let node = Node::new();
    let plfs = node.process(Arc::new(memory.clone()));
    let file = open(&plfs, path).unwrap();
    file.write_at(&[b'o'; 20_000], 0).unwrap();
    file.sync().unwrap();
    file.write_at(&[b'n'; 20_000], 0).unwrap();
    file.commit().unwrap();
    let mut told = 0;
    for seed in 0..100 {
        let left = memory.crash_with(seed);
        let store = FaultStore::new(Arc::new(left.clone()));
        let node = Node::new();
        let plfs = node.process(Arc::new(store.clone()));
        let file = open(&plfs, path).unwrap();
        for errno in [Errno::MFILE, Errno::IO] {
            store.fail_matching(".data", Op::Open, errno);
            if errno == Errno::MFILE {
                told += u64::from(file.read_at(&mut [0; 9], 0).is_err());
            }
            told += u64::from(plfs.flatten(path).is_err());
            store.reset();
        }
        let mut bytes = [0; 20_000];
        assert_eq!(file.read_at(&mut bytes, 0).unwrap(), 20_000);
        assert!(bytes.iter().all(|byte| b"on".contains(byte)), "seed {seed}");
        drop(file);
        is_old_or_new(&left, path, 20_000, 2);
    }
    assert!(told > 100, "{told}");
}

/// A rename over a file whose new bytes were not synced went on where nobody could look whether
/// they are in a container, because no descriptor was left.
#[test]
fn a_rename_over_a_file_that_cannot_be_looked_at_is_refused() {
    let (memory, node) = (memory(), Node::new());
    let store = FaultStore::new(Arc::new(memory.clone()));
    let plfs = node.process(Arc::new(store.clone()));
    for (name, byte) in [("/m/final", b"old"), ("/m/tmp", b"new")] {
        let file = open(&plfs, Path::new(name)).unwrap();
        file.write_at(byte, 0).unwrap();
        if byte == b"old" {
            file.sync().unwrap();
        }
        file.close().unwrap();
    }
    let other = node.process(Arc::new(store.clone()));
    store.fail_matching("/m/tmp", Op::Open, Errno::MFILE);
    let refused = other.rename(Path::new("/m/tmp"), Path::new("/m/final")).unwrap_err();
    assert_eq!(refused.errno(), Errno::MFILE);
    store.reset();
    // A plain file, over what cannot be looked at.
    let plain = memory.open(Path::new("/m/plain"), Open::create(0o600)).unwrap();
    write_full(plain.as_ref(), b"new", 0).unwrap();
    drop(plain);
    store.fail_matching("/m/final", Op::Open, Errno::MFILE);
    other.rename(Path::new("/m/plain"), Path::new("/m/final")).unwrap();
    for seed in 0..100 {
        let left = memory.crash_with(seed);
        let found =
            Node::new().process(Arc::new(left)).open(Path::new("/m/final"), OpenOptions::read());
        let file = found.unwrap().file();
        let mut bytes = [0; 3];
        assert_eq!(file.read_at(&mut bytes, 0).unwrap(), 3, "seed {seed}");
        assert!(&bytes == b"old" || &bytes == b"new", "seed {seed}: {bytes:?}");
    }
}

/// A power cut took the data of a block. After it a process went on with the log set and synced:
/// from then on its blocks said that all data before them was durable, and the zeros were believed.
#[test]
fn a_sync_after_a_power_cut_does_not_vouch_for_what_it_took() {
    let (memory, path) = (memory(), Path::new("/m/f"));
    let node = Node::new();
    let plfs = node.process(Arc::new(memory.clone()));
    let file = open(&plfs, path).unwrap();
    file.write_at(&[b'o'; 20_000], 0).unwrap();
    file.sync().unwrap();
    file.write_at(&[b'n'; 20_000], 0).unwrap();
    file.close().unwrap();
    let mut vouched = 0;
    for seed in 0..100 {
        let left = memory.crash_with(seed);
        {
            let node = Node::new();
            let file = open(&node.process(Arc::new(left.clone())), path).unwrap();
            for _ in 0..2 {
                file.write_at(b"later", 50_000).unwrap();
                file.sync().unwrap();
            }
            file.close().unwrap();
        }
        vouched += is_old_or_new(&left, path, 20_000, 3).0;
    }
    assert!(vouched > 20, "{vouched}");
}

/// A program changes bytes while it writes them, and syncs: what its block says of them need not be
/// so, and they are durable all the same.
#[test]
fn a_sync_says_that_what_was_committed_before_is_durable() {
    let (memory, path) = (memory(), Path::new("/m/f"));
    let node = Node::new();
    let plfs = node.process(Arc::new(memory.clone()));
    let file = open(&plfs, path).unwrap();
    file.write_at(&[b'o'; 5_000], 0).unwrap();
    file.sync().unwrap();
    file.write_at(&[b'n'; 5_000], 0).unwrap();
    file.commit().unwrap();
    // What reached the data log in another form than the sum is of.
    let data = file.extents(0, 1).unwrap()[0].data_log.clone();
    let physical = file.extents(0, 1).unwrap()[0].physical;
    let log = memory.open(&data, Open::READ_WRITE).unwrap();
    log.write_at(b"N", physical).unwrap();
    file.sync().unwrap();
    let (node, mut byte) = (Node::new(), [0]);
    let left = open(&node.process(Arc::new(memory.crash())), path).unwrap();
    assert_eq!((left.read_at(&mut byte, 0).unwrap(), byte), (1, *b"N"));
}

/// A reader knew a block of another machine that lay over nothing. That machine's power was cut,
/// and the data of the block was gone. Then a third machine synced what it had written before:
/// it belongs below that block, which hid it.
#[test]
fn what_comes_late_below_lost_data_is_found() {
    let (memory, path) = (memory(), Path::new("/m/f"));
    let node = Node::new();
    let made = open(&node.process(Arc::new(memory.clone())), path).unwrap();
    made.write_at(b"end", 50_000).unwrap();
    made.sync().unwrap();
    let nodes = [Node::new(), Node::new(), Node::new()];
    let [old, new] =
        [0, 1].map(|i| open(&nodes[i].process(Arc::new(memory.clone())), path).unwrap());
    old.write_at(&[b'o'; 9_000], 0).unwrap();
    new.write_at(&[b'n'; 9_000], 0).unwrap();
    new.commit().unwrap();
    let reader = open(&nodes[2].process(Arc::new(memory.elsewhere())), path);
    let (reader, mut bytes) = (reader.unwrap(), [0; 9_000]);
    assert_eq!(reader.read_at(&mut bytes, 0).unwrap(), 9_000);
    assert_eq!(bytes, [b'n'; 9_000]);
    let data = new.extents(0, 1).unwrap()[0].data_log.clone();
    memory.open(&data, Open::READ_WRITE).unwrap().set_len(4_096).unwrap();
    old.sync().unwrap();
    reader.refresh().unwrap();
    assert_eq!(reader.read_at(&mut bytes, 0).unwrap(), 9_000);
    assert_eq!(bytes, [b'o'; 9_000]);
}

/// A power cut left less of an index log than the flat index has, and the flat index could not be
/// opened by the next writer for a moment: he appended in the place of what was lost, and then the
/// flat index seemed to fit again.
#[test]
fn nobody_goes_on_with_a_log_set_whose_flat_index_cannot_be_read() {
    let (memory, path) = (memory(), Path::new("/m/f"));
    let store = FaultStore::new(Arc::new(memory.clone()));
    let process = || {
        let config = Config { shared_memory: None, ..Config::shared() };
        Plfs::new(Arc::new(store.clone()), config)
    };
    let plfs = process();
    let file = open(&plfs, path).unwrap();
    for i in 0..20 {
        file.write_at(&[b'a' + i as u8; 7], i * 10).unwrap();
        file.commit().unwrap();
    }
    file.close().unwrap();
    plfs.flatten(path).unwrap();
    let dir = plfs.container(path).unwrap().unwrap().0.dir.clone();
    let sets = || {
        let names = memory.list(&dir).unwrap().into_iter();
        names.filter(|entry| entry.name.len() == 8).map(|entry| dir.join(entry.name)).collect()
    };
    let before: Vec<PathBuf> = sets();
    let index = before[0].join("index");
    let half = memory.stat(&index, Links::Stay).unwrap().len / 128 * 64;
    memory.open(&index, Open::READ_WRITE).unwrap().set_len(half).unwrap();
    let late = process();
    store.fail_matching("/flat", Op::Open, Errno::MFILE);
    let file = open(&late, path).unwrap();
    file.write_at(b"new", 5).unwrap();
    file.commit().unwrap();
    store.reset();
    assert_eq!(memory.stat(&index, Links::Stay).unwrap().len, half);
    let after: Vec<PathBuf> = sets();
    assert_eq!((before.len(), after.len()), (1, 2));
}

/// A sync that found no descriptor, at any of its calls, made each later call on the file fail,
/// with all that had been acknowledged lost; where it was a directory that could not be opened, for
/// the whole node. Descriptors come back: the next call does what was left, and a sync that
/// succeeds then has all bytes.
#[test]
fn what_finds_no_descriptor_is_done_by_the_next_call() {
    let ops = [Op::Open, Op::SyncDir, Op::Readlink, Op::List, Op::Stat, Op::SetTimes];
    let always = |op, errno| Fault::FailMatching { path: "/m/".into(), op, errno };
    let mut faults: Vec<Fault> = ops.map(|op| always(Some(op), Errno::NFILE)).into();
    faults.extend([always(None, Errno::NFILE), always(Some(Op::Open), Errno::NOMEM)]);
    faults.extend((1..80).map(|n| Fault::FailAt { n, errno: Errno::MFILE }));
    let mut failed = 0;
    for (fault, cuts) in faults.iter().flat_map(|fault| [(fault, false), (fault, true)]) {
        let (memory, path, node) = (memory(), Path::new("/m/f"), Node::new());
        let store = FaultStore::new(Arc::new(memory.clone()));
        let file = open(&node.process(Arc::new(store.clone())), path).unwrap();
        let mut expected = b"first".to_vec();
        file.write_at(&expected, 0).unwrap();
        if cuts {
            file.sync().unwrap();
        }
        store.inject(fault.clone());
        for piece in [b"second", b"third.", b"fourth"] {
            match file.write_at(piece, expected.len() as u64) {
                Ok(taken) => expected.extend(&piece[..taken]),
                Err(_) => failed += 1,
            }
            if cuts {
                failed += u32::from(file.set_len(expected.len() as u64).is_err());
            }
            failed += u32::from(file.sync().is_err());
        }
        store.reset();
        file.write_at(b"last", expected.len() as u64).unwrap();
        expected.extend(b"last");
        let mut bytes = vec![0; expected.len()];
        assert_eq!(file.read_at(&mut bytes, 0).unwrap(), bytes.len(), "{fault:?}");
        assert_eq!(bytes, expected, "{fault:?}");
        file.sync().unwrap();
        for seed in 0..4 {
            let plfs = Node::new().process(Arc::new(memory.crash_with(seed)));
            let file = open(&plfs, path).unwrap();
            assert_eq!(file.len().unwrap(), expected.len() as u64, "{fault:?}");
            assert_eq!(file.read_at(&mut bytes, 0).unwrap(), bytes.len(), "{fault:?}");
            assert_eq!(bytes, expected, "{fault:?}");
        }
        file.close().unwrap();
        let file = open(&Node::new().process(Arc::new(memory)), path).unwrap();
        assert_eq!(file.read_at(&mut bytes, 0).unwrap(), bytes.len(), "{fault:?}");
        assert_eq!(bytes, expected, "{fault:?}");
    }
    assert!(failed > 100, "{failed}");
}

/// An open with O_TRUNC said EMFILE and had cut the file all the same: descriptors were counted
/// before, but another thread took them meanwhile. A truncate fails and changes nothing, or it has
/// cut the file, at whatever call there is no descriptor.
#[test]
fn a_cut_that_finds_no_descriptor_changes_nothing_or_is_done() {
    let path = Path::new("/m/f");
    let (mut refused, mut done) = (0, 0);
    let ways = (0..3).flat_map(|who| [0, 3].map(|size| (who, size)));
    for ((who, size), calls) in ways.flat_map(|way| [1, 3, u64::MAX].map(|calls| (way, calls))) {
        for n in 1.. {
            let (memory, node) = (memory(), Node::new());
            let store = FaultStore::new(Arc::new(memory.clone()));
            let (other, plfs) =
                (node.process(Arc::new(memory.clone())), node.process(Arc::new(store.clone())));
            let first = open(&other, path).unwrap();
            first.write_at(b"precious", 0).unwrap();
            first.close().unwrap();
            let file = (who > 0).then(|| open(&plfs, path).unwrap());
            if who == 2 {
                file.as_ref().unwrap().write_at(b"PRE", 0).unwrap();
            }
            let before = if who == 2 { b"PREcious" } else { b"precious" };
            store.inject(Fault::NoDescriptor { n, calls });
            let cut = match &file {
                Some(file) => file.set_len(size as u64),
                None => plfs.truncate(path, size as u64),
            };
            let struck = store.log().iter().any(|call| call.error == Some(Errno::MFILE));
            store.reset();
            let expected = if cut.is_ok() { &before[..size] } else { before };
            *(if cut.is_ok() { &mut done } else { &mut refused }) += 1;
            let what = format!("way {who} to {size}, {calls} calls from the {n}th on: {cut:?}");
            if let Some(file) = file {
                let mut bytes = [0; 9];
                assert_eq!(file.read_at(&mut bytes, 0).unwrap(), expected.len(), "{what}");
                file.sync().unwrap();
                file.close().unwrap();
            }
            let next = open(&Node::new().process(Arc::new(memory)), path).unwrap();
            let mut bytes = [0; 9];
            let length = next.read_at(&mut bytes, 0).unwrap();
            assert_eq!(&bytes[..length], expected, "{what}");
            if !struck {
                break;
            }
        }
    }
    assert!(refused > 50 && done > 50, "{refused} refused, {done} done");
}

/// A close that found no descriptor for what it tidies up, when its bytes were in the logs, failed
/// with EMFILE, which no close does. Now only a commit fails, and what was written before is there
/// all the same, for the node's next who opens the file.
#[test]
fn a_close_that_finds_no_descriptor_loses_nothing() {
    let path = Path::new("/m/f");
    let (mut failed, mut struck_in_all) = (0, 0);
    for (calls, bytes) in [(1, 8), (3, 8), (u64::MAX, 8), (u64::MAX, 100_000)] {
        for n in 1.. {
            let (memory, node) = (memory(), Node::new());
            let store = FaultStore::new(Arc::new(memory.clone()));
            let plfs = node.process(Arc::new(store.clone()));
            let file = open(&plfs, path).unwrap();
            let written = vec![b'w'; bytes];
            store.inject(Fault::NoDescriptor { n, calls });
            let wrote = file.write_at(&written, 0);
            let closed = file.close();
            let struck = store.log().iter().any(|call| call.error == Some(Errno::MFILE));
            store.reset();
            drop(plfs);
            let what = format!("{bytes}, {calls} calls from the {n}th on: {wrote:?} {closed:?}");
            failed += u32::from(closed.is_err());
            let next = node.process(Arc::new(memory));
            let file = open(&next, path).unwrap();
            let mut found = vec![0; bytes + 1];
            let length = file.read_at(&mut found, 0).unwrap();
            assert_eq!(found[..length], written[..wrote.unwrap_or(0)], "{what}");
            file.write_at(b"next", 0).unwrap();
            file.close().unwrap();
            if !struck {
                break;
            }
            struck_in_all += 1;
        }
    }
    assert!(failed * 3 < struck_in_all, "{failed} of {struck_in_all} closes failed");
}

/// What a process had written when it forked found no room in the logs. Its child read what had
/// been there before, and its fsync was a success.
#[test]
fn a_child_is_told_what_its_parent_could_not_commit() {
    let (memory, node) = (memory(), Node::new());
    let path = Path::new("/m/f");
    let store = FaultStore::new(Arc::new(memory.clone()));
    let plfs = node.process(Arc::new(store.clone()));
    let [file, other] = ["/m/f", "/m/g"].map(|path| open(&plfs, Path::new(path)).unwrap());
    for file in [&file, &other] {
        file.write_at(b"before", 0).unwrap();
        file.sync().unwrap();
    }
    file.write_at(b"behind", 0).unwrap();
    store.full_at("/m", 1);
    assert_eq!(plfs.before_fork().unwrap_err().errno(), Errno::NOSPC);
    // From here on it is the child.
    plfs.after_fork_in_child();
    let mut found = [0; 6];
    assert_eq!(file.read_at(&mut found, 0).unwrap_err().errno(), Errno::NOSPC);
    assert_eq!(file.len().unwrap_err().errno(), Errno::NOSPC);
    assert_eq!(file.sync().unwrap_err().errno(), Errno::NOSPC);
    // It may start a program, which makes room perhaps.
    plfs.leave_all().unwrap();
    assert_eq!(other.read_at(&mut found, 0).unwrap(), 6);
    assert_eq!(found, *b"before");
    drop((file, other));
    store.reset();
    let mut found = [0; 6];
    let file = open(&node.process(Arc::new(memory)), path).unwrap();
    assert_eq!(file.read_at(&mut found, 0).unwrap(), 6);
}

/// The logs of a writer are closed where other threads find no descriptor. When it closed its file
/// then, and found none to open them again, the close failed with EMFILE, and what was written was
/// lost. Now it is left as a process leaves it that dies: whoever opens the file next has it.
#[test]
fn a_close_that_finds_no_descriptor_for_its_logs_loses_nothing() {
    let path = Path::new("/m/f");
    let (mut failed, mut done) = (0, 0);
    for calls in [1, 2, 3, 5, u64::MAX] {
        for n in 1.. {
            let (memory, node) = (memory(), Node::new());
            let file = open(&node.process(Arc::new(memory.clone())), path).unwrap();
            file.write_at(b"abcdefgh", 0).unwrap();
            file.close().unwrap();
            let store = FaultStore::new(Arc::new(memory.clone()));
            let plfs = node.process(Arc::new(store.clone()));
            let file = open(&plfs, path).unwrap();
            // Opens no log: the commit does that.
            file.zero(0, 4).unwrap();
            store.inject(Fault::NoDescriptor { n, calls });
            let closed = file.close();
            let struck = store.log().iter().any(|call| call.error == Some(Errno::MFILE));
            let next = node.process(Arc::new(memory));
            let file = open(&next, path).unwrap();
            let mut found = [1; 9];
            let length = file.read_at(&mut found, 0).unwrap();
            let what = format!("{calls} calls from the {n}th on: {closed:?}");
            assert_eq!(found[..length], *b"\0\0\0\0efgh", "{what}");
            file.write_at(b"next", 0).unwrap();
            file.close().unwrap();
            failed += u32::from(closed.is_err());
            done += u32::from(closed.is_ok());
            // One that finds a descriptor in the end has nothing to say.
            assert!(closed.is_ok() || calls > 2, "{what}");
            if !struck {
                break;
            }
        }
    }
    assert!(failed > 0 && done > 20, "{failed} failed, {done} done");
}
