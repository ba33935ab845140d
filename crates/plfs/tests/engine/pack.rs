//! Packs: what processes of several nodes see of one directory of small files; deaths, power cuts
//! and faults at each call.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use plfs::pack::{Attributes, FileId, Pack, PackFile, PackOpen, PackOptions};
use plfs::store::{Errno, Store};
use plfs::{Backends, Config, Layout, Plfs};
use plfs_format::mark::Mark;
use plfs_testkit::{Fault, FaultStore, MemStore, Op, Rng, rounds, seeds};

use crate::scratch::fresh_dir;

/// A directory for the shared memory of a node; a new one is a node that has started again.
pub struct Node(pub PathBuf);

impl Node {
    pub fn new() -> Node {
        Node(fresh_dir())
    }

    fn config(&self) -> Arc<Config> {
        Arc::new(Config { shared_memory: Some(self.0.clone()), streams: 2, ..Config::shared() })
    }

    pub fn open(&self, store: &MemStore, options: PackOptions) -> Pack {
        let store: Arc<dyn Store> = Arc::new(store.clone());
        Pack::open(&store, &self.config(), Path::new("/m"), options).unwrap()
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

/// Looks at all logs at each call.
pub const AT_ONCE: PackOptions =
    PackOptions { look_every: Duration::ZERO, batch: false, hold: None };
/// Looks when it is told to.
const NEVER: PackOptions =
    PackOptions { look_every: Duration::from_secs(3600), batch: false, hold: None };
/// Nothing goes to the storage by itself.
pub const LONG: Duration = Duration::from_secs(3600);
pub const CREATE: PackOpen =
    PackOpen { create: true, exclusive: false, truncate: false, mode: 0o640, uid: 7, gid: 8 };
pub const OPEN: PackOpen = PackOpen { create: false, ..CREATE };
const EXCLUSIVE: PackOpen = PackOpen { exclusive: true, ..CREATE };

pub fn content(pack: &Pack, name: &[u8]) -> plfs::Result<Vec<u8>> {
    let file = pack.open_file(name, OPEN)?;
    let mut bytes = vec![0xee; pack.stat(name)?.size as usize + 10];
    let n = pack.read_at(&file, &mut bytes, 0)?;
    bytes.truncate(n);
    Ok(bytes)
}

fn put(pack: &Pack, name: &[u8], bytes: &[u8]) -> plfs::Result<PackFile> {
    let file = pack.open_file(name, CREATE)?;
    assert_eq!(pack.write_at(&file, bytes, 0)?, bytes.len());
    Ok(file)
}

pub fn names(pack: &Pack) -> Vec<Vec<u8>> {
    pack.list(b"", usize::MAX).unwrap().into_iter().map(|(name, _)| name.to_vec()).collect()
}

pub fn errno<T: std::fmt::Debug>(result: plfs::Result<T>) -> Errno {
    result.unwrap_err().errno()
}

#[test]
fn small_files_are_there_for_processes_of_all_nodes() {
    let (memory, here, there) = (memory(), Node::new(), Node::new());
    let one = here.open(&memory, NEVER);
    let two = here.open(&memory, NEVER);
    let far = there.open(&memory, NEVER);
    let names_of = [b"a".as_slice(), b"\xff\xfe", &[b'x'; 255]];
    for name in names_of {
        put(&one, name, name).unwrap();
        // The name at once, the bytes with the commit.
        assert_eq!(two.stat(name).unwrap().size, 0);
        assert_eq!(content(&one, name).unwrap(), name);
    }
    one.commit().unwrap();
    for name in names_of {
        assert_eq!(content(&two, name).unwrap(), name);
        let stat = two.stat(name).unwrap();
        assert_eq!((stat.mode, stat.uid, stat.gid, stat.size), (0o640, 7, 8, name.len() as u64));
    }
    // Another node looks when it is time, or when it is told to.
    assert_eq!(content(&far, b"a").unwrap(), b"a");
    put(&one, b"later", b"!").unwrap();
    one.commit().unwrap();
    assert_eq!(errno(far.stat(b"later")), Errno::NOENT);
    far.refresh().unwrap();
    assert_eq!(content(&far, b"later").unwrap(), b"!");
    let mut all: Vec<Vec<u8>> = names_of.iter().map(|name| name.to_vec()).collect();
    all.insert(1, b"later".to_vec());
    all.sort();
    assert_eq!(names(&far), all);
    for name in [b"".as_slice(), b".", b"..", b"a/b", b"a\0"] {
        assert_eq!(errno(one.open_file(name, CREATE)), Errno::INVAL);
    }
    assert_eq!(errno(one.open_file(&[b'x'; 256], CREATE)), Errno::NAMETOOLONG);
    for pack in [one, two, far] {
        pack.close().unwrap();
    }
}

#[test]
fn an_exclusive_creation_has_one_winner_in_a_node() {
    let (memory, node) = (memory(), Node::new());
    let packs: Vec<Pack> = (0..4).map(|_| node.open(&memory, NEVER)).collect();
    for n in 0..20 {
        let name = format!("f{n}").into_bytes();
        let won: Vec<_> = std::thread::scope(|scope| {
            let all: Vec<_> = packs
                .iter()
                .map(|pack| scope.spawn(|| pack.open_file(&name, EXCLUSIVE).map(|file| file.id())))
                .collect();
            all.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(won.iter().filter(|won| won.is_ok()).count(), 1, "{won:?}");
        let ids: Vec<FileId> =
            packs.iter().map(|pack| pack.open_file(&name, CREATE).unwrap().id()).collect();
        assert!(ids.iter().all(|id| *id == ids[0]));
    }
}

/// Two nodes that have not seen each other make a file of one name. All agree on one; the other is
/// hidden, and does not come back when the name goes.
#[test]
fn of_two_files_of_one_name_all_show_the_later() {
    let (memory, here, there) = (memory(), Node::new(), Node::new());
    let (one, two) = (here.open(&memory, NEVER), there.open(&memory, NEVER));
    for pack in [&one, &two] {
        put(pack, b"other", b"").unwrap();
    }
    let first = one.open_file(b"f", EXCLUSIVE).unwrap();
    let second = two.open_file(b"f", EXCLUSIVE).unwrap();
    assert!(first.id() < second.id());
    one.write_at(&first, b"one", 0).unwrap();
    two.write_at(&second, b"two", 0).unwrap();
    for pack in [&one, &two] {
        pack.commit().unwrap();
    }
    for pack in [&one, &two] {
        pack.refresh().unwrap();
        assert_eq!(content(pack, b"f").unwrap(), b"two");
    }
    assert!(!one.is_shown(&first).unwrap() && two.is_shown(&second).unwrap());
    one.rename(b"f", b"g").unwrap();
    two.refresh().unwrap();
    for pack in [&one, &two] {
        assert_eq!(names(pack), [b"g".as_slice(), b"other"]);
        assert_eq!(content(pack, b"g").unwrap(), b"two");
    }
}

/// Who removes a file that he has seen does not remove one that he has not, whatever the clocks
/// say.
#[test]
fn a_removal_leaves_what_it_has_not_seen() {
    let (memory, here, there) = (memory(), Node::new(), Node::new());
    let (one, two) = (here.open(&memory, NEVER), there.open(&memory, NEVER));
    put(&one, b"f", b"old").unwrap();
    one.commit().unwrap();
    plfs_testkit::an_hour_ahead(&here.0);
    two.refresh().unwrap();
    two.unlink(b"f").unwrap();
    put(&two, b"f", b"new").unwrap();
    two.commit().unwrap();
    one.unlink(b"f").unwrap();
    for pack in [&one, &two] {
        pack.refresh().unwrap();
        assert_eq!(content(pack, b"f").unwrap(), b"new");
    }
}

/// A node renames a file, another writes to it, and neither has seen the other: the file has the
/// new name and the new bytes. Also when the tree was made in between.
#[test]
fn a_write_finds_a_file_that_was_renamed() {
    for fold in [false, true] {
        let (memory, here, there) = (memory(), Node::new(), Node::new());
        let (one, two) = (here.open(&memory, NEVER), there.open(&memory, NEVER));
        put(&one, b"f", b"old!").unwrap();
        one.commit().unwrap();
        two.refresh().unwrap();
        let file = two.open_file(b"f", OPEN).unwrap();
        one.rename(b"f", b"g").unwrap();
        if fold {
            one.fold().unwrap();
        }
        two.write_at(&file, b"new", 0).unwrap();
        two.commit().unwrap();
        for pack in [&one, &two] {
            pack.refresh().unwrap();
            assert_eq!(names(pack), [b"g"]);
            assert_eq!(content(pack, b"g").unwrap(), b"new!");
        }
        let late = Node::new().open(&memory, NEVER);
        assert_eq!(content(&late, b"g").unwrap(), b"new!");
    }
}

#[test]
fn an_open_file_that_is_removed_can_be_read() {
    let (memory, here, there) = (memory(), Node::new(), Node::new());
    let (one, two) = (here.open(&memory, AT_ONCE), there.open(&memory, AT_ONCE));
    put(&one, b"f", b"kept").unwrap();
    one.commit().unwrap();
    let file = two.open_file(b"f", OPEN).unwrap();
    one.unlink(b"f").unwrap();
    one.fold().unwrap();
    two.refresh().unwrap();
    assert_eq!(errno(two.stat(b"f")), Errno::NOENT);
    let mut bytes = [0; 4];
    for _ in 0..2 {
        assert_eq!(two.read_at(&file, &mut bytes, 0).unwrap(), 4);
        assert_eq!(&bytes, b"kept");
        two.fold().unwrap();
    }
    assert!(!two.is_shown(&file).unwrap());
}

#[test]
fn a_compaction_frees_what_is_dead_and_nothing_else() {
    let (memory, here, there) = (memory(), Node::new(), Node::new());
    let (one, two) = (here.open(&memory, NEVER), there.open(&memory, NEVER));
    for n in 0..200 {
        put(&one, format!("f{n:03}").as_bytes(), &[n as u8; 3000]).unwrap();
    }
    one.commit().unwrap();
    for n in 0..150 {
        one.unlink(format!("f{n:03}").as_bytes()).unwrap();
    }
    one.rename(b"f150", b"a").unwrap();
    let file = one.open_file(b"a", OPEN).unwrap();
    one.set_len(&file, 5000).unwrap();
    one.write_at(&file, b"hello", 4000).unwrap();
    let set = Attributes { mode: Some(0o400), ..Attributes::default() };
    one.set_attributes(&file, set).unwrap();
    one.commit().unwrap();
    let before = one.list(b"", usize::MAX).unwrap();
    let all: Vec<Vec<u8>> = before.iter().map(|(name, _)| content(&one, name).unwrap()).collect();
    // Somebody else writes.
    put(&two, b"busy", b"").unwrap();
    assert_eq!(errno(one.compact()), Errno::BUSY);
    two.unlink(b"busy").unwrap();
    two.leave().unwrap();
    let reader = there.open(&memory, NEVER);
    assert_eq!(content(&reader, b"f199").unwrap(), [199; 3000]);
    one.compact().unwrap();
    let usage = one.usage().unwrap();
    assert_eq!(usage.live_bytes, 49 * 3000 + 3005);
    assert!(usage.stored_bytes < 200_000, "{usage:?}");
    let late = there.open(&memory, NEVER);
    two.refresh().unwrap();
    for pack in [&one, &two, &reader, &late] {
        for ((name, stat), bytes) in before.iter().zip(&all) {
            assert_eq!(&content(pack, name).unwrap(), bytes);
            assert_eq!(pack.stat(name).unwrap(), *stat);
        }
        assert_eq!(pack.list(b"", usize::MAX).unwrap(), before);
    }
    put(&two, b"goes on", b"!").unwrap();
    two.commit().unwrap();
    one.refresh().unwrap();
    assert_eq!(content(&one, b"goes on").unwrap(), b"!");
}

#[test]
fn appends_of_a_node_do_not_overlap() {
    let (memory, node) = (memory(), Node::new());
    let packs: Vec<Pack> = (0..3).map(|_| node.open(&memory, NEVER)).collect();
    put(&packs[0], b"f", b"").unwrap();
    std::thread::scope(|scope| {
        for (n, pack) in packs.iter().enumerate() {
            scope.spawn(move || {
                let file = pack.open_file(b"f", CREATE).unwrap();
                for _ in 0..40 {
                    let n = [n as u8; 7];
                    assert_eq!(pack.append(&file, &n).unwrap().1, 7);
                }
            });
        }
    });
    let all = content(&packs[0], b"f").unwrap();
    assert_eq!(all.len(), 3 * 40 * 7);
    for piece in all.chunks(7) {
        assert!(piece.iter().all(|byte| *byte == piece[0]), "{piece:?}");
    }
}

/// A file, and what it had: the first is what is certain, later ones may be there or not.
#[derive(Clone, Debug, Default)]
struct Versions {
    /// The first version is certain; else the file was never made certain.
    is_certain: bool,
    all: Vec<Vec<u8>>,
}

impl Versions {
    fn is_allowed(&self, at: usize, byte: Option<u8>) -> bool {
        // What was never certain may be anything: what it was, zero, or missing.
        if !self.is_certain || at >= self.all[0].len() {
            return true;
        }
        byte.is_some_and(|byte| self.all.iter().any(|version| version.get(at) == Some(&byte)))
    }

    fn settle(&mut self) {
        self.all.drain(..self.all.len() - 1);
        self.is_certain = true;
    }
}

/// What may be in a directory after a death: for each name the files that it may show.
#[derive(Clone, Debug, Default)]
struct Possible {
    names: BTreeMap<Vec<u8>, Vec<Option<usize>>>,
    files: Vec<Versions>,
}

impl Possible {
    fn now(&self, name: &[u8]) -> Option<usize> {
        self.names.get(name).and_then(|all| *all.last().unwrap())
    }

    fn show(&mut self, name: &[u8], file: Option<usize>) {
        self.names.entry(name.to_vec()).or_insert_with(|| vec![None]).push(file);
    }

    /// Everything is certain.
    fn settle(&mut self) {
        for all in self.names.values_mut() {
            all.drain(..all.len() - 1);
        }
        self.files.iter_mut().for_each(Versions::settle);
    }

    /// A rename makes what it moves certain.
    fn settle_file(&mut self, file: usize) {
        self.files[file].settle();
    }

    fn check(&self, pack: &Pack, what: &str) {
        let listed = names(pack);
        for (name, all) in &self.names {
            let shown = pack.open_file(name, OPEN);
            assert_eq!(shown.is_ok(), listed.contains(name), "{what}: {name:?}");
            let file = match shown {
                Ok(file) => file,
                Err(error) => {
                    assert_eq!(error.errno(), Errno::NOENT, "{what}: {name:?}");
                    assert!(all.contains(&None), "{what}: {name:?} is gone: {all:?}");
                    continue;
                }
            };
            let size = pack.stat(name).unwrap().size as usize;
            let mut whole = vec![0; size];
            let bytes: Vec<Option<u8>> = match pack.read_at(&file, &mut whole, 0) {
                Ok(n) if n == size => whole.into_iter().map(Some).collect(),
                // Some of it is missing.
                _ => (0..size)
                    .map(|at| {
                        let mut byte = [0];
                        let read = pack.read_at(&file, &mut byte, at as u64).ok();
                        (read == Some(1)).then_some(byte[0])
                    })
                    .collect(),
            };
            let fits = |file: &Option<usize>| {
                let Some(versions) = file.map(|file| &self.files[file]) else { return false };
                let lengths = || versions.all.iter().map(Vec::len);
                let low = if versions.is_certain { lengths().min() } else { Some(0) };
                (low..=lengths().max()).contains(&Some(size))
                    && bytes.iter().enumerate().all(|(at, byte)| versions.is_allowed(at, *byte))
            };
            assert!(
                all.iter().any(fits),
                "{what}: {name:?} has {bytes:?}, may be {all:?} of {:?}",
                self.files
            );
        }
        assert!(listed.iter().all(|name| self.names.contains_key(name)), "{what}: {listed:?}");
    }
}

/// What is certain after a death.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Death {
    /// Of processes: what was committed.
    OfProcesses,
    /// Of power: what was synced.
    OfPower,
}

/// Two processes of a node do `steps` things; the store ends at call `kill`, if that comes. Gives
/// what may be there, and the number of calls.
fn live(memory: &MemStore, node: &Node, seed: u64, kill: u64, death: Death) -> (Possible, u64) {
    let fault = FaultStore::new(Arc::new(memory.clone()));
    let store: Arc<dyn Store> = Arc::new(fault.clone());
    let mut rng = Rng::new(seed);
    let mut possible = Possible::default();
    fault.kill_at(kill);
    let (batch, hold) = (rng.one_in(2), rng.one_in(2).then_some(LONG));
    let options = PackOptions { batch, hold, ..AT_ONCE };
    let opened: plfs::Result<Vec<Pack>> =
        (0..2).map(|_| Pack::open(&store, &node.config(), Path::new("/m"), options)).collect();
    let Ok(packs) = opened else { return (possible, fault.calls()) };
    for _ in 0..14 {
        if act(&packs, &mut rng, &mut possible, death).is_err() {
            break;
        }
    }
    // Killed before they leave: what they have said is in the node's memory, perhaps.
    if kill < u64::MAX && rng.one_in(2) {
        fault.kill_at(1);
    }
    for pack in packs {
        let _ = pack.close();
    }
    (possible, fault.calls())
}

/// One thing that one of the processes does. What it begins is possible; what it ends is certain,
/// as far as that kind of death lets it.
fn act(packs: &[Pack], rng: &mut Rng, possible: &mut Possible, death: Death) -> plfs::Result<()> {
    let pack = rng.pick(&[&packs[0], &packs[1]]);
    let name = format!("f{}", rng.below(4)).into_bytes();
    let bytes = vec![1 + rng.next_u64() as u8 % 200; 1 + rng.below(300) as usize];
    let there = possible.now(&name);
    match rng.below(10) {
        0..=3 => {
            let file = match there {
                Some(file) => file,
                None => {
                    possible.files.push(Versions { is_certain: false, all: vec![vec![]] });
                    possible.show(&name, Some(possible.files.len() - 1));
                    possible.files.len() - 1
                }
            };
            let mut new = possible.files[file].all.last().unwrap().clone();
            new.resize(new.len().max(bytes.len()), 0);
            new[..bytes.len()].copy_from_slice(&bytes);
            possible.files[file].all.push(new);
            let open = pack.open_file(&name, CREATE)?;
            pack.write_at(&open, &bytes, 0)?;
        }
        4 => {
            let Some(file) = there else { return Ok(()) };
            let mut new = possible.files[file].all.last().unwrap().clone();
            new.extend(&bytes);
            possible.files[file].all.push(new);
            let open = pack.open_file(&name, OPEN)?;
            pack.append(&open, &bytes)?;
        }
        5 => {
            if there.is_some() {
                possible.show(&name, None);
                pack.unlink(&name)?;
            }
        }
        6..=7 => {
            let to = format!("f{}", rng.below(4)).into_bytes();
            let Some(file) = there.filter(|_| name != to) else { return Ok(()) };
            let replaces = possible.now(&to).is_some();
            possible.show(&name, None);
            possible.show(&to, Some(file));
            pack.rename(&name, &to)?;
            if replaces {
                possible.settle_file(file);
            }
        }
        8 => {
            pack.commit()?;
            pack.fold()?;
            if rng.one_in(2) {
                for pack in packs {
                    pack.leave()?;
                }
                pack.compact()?;
            }
        }
        _ => {
            for pack in packs {
                pack.sync()?;
            }
            possible.settle();
        }
    }
    pack.commit()?;
    if death == Death::OfProcesses {
        possible.settle();
    }
    Ok(())
}

/// Goes on where others have died.
fn goes_on(memory: &MemStore, node: &Node, possible: &Possible, what: &str) {
    goes_on_after(memory, node, possible, false, what);
}

/// The same where perhaps a sync has failed: its log set is not durable, and every later sync and
/// fold that is about it says so (docs/decisions/0011).
fn goes_on_after(
    memory: &MemStore,
    node: &Node,
    possible: &Possible,
    a_sync_failed: bool,
    what: &str,
) {
    let packs = [node.open(memory, AT_ONCE), Node::new().open(memory, AT_ONCE)];
    let done_or_told = |done: plfs::Result<()>| match done {
        Err(error) if a_sync_failed && error.errno() == Errno::IO => {
            assert!(error.to_string().contains("an earlier sync"), "{what}: {error}");
        }
        done => done.unwrap(),
    };
    packs.iter().for_each(|pack| possible.check(pack, what));
    for pack in &packs {
        put(pack, b"new", b"after").unwrap();
        done_or_told(pack.sync());
        assert_eq!(content(pack, b"new").unwrap(), b"after", "{what}");
    }
    done_or_told(packs[0].fold().map(drop));
    let mut possible = possible.clone();
    possible.files.push(Versions { is_certain: true, all: vec![b"after".to_vec()] });
    possible.show(b"new", Some(possible.files.len() - 1));
    for pack in &packs {
        pack.refresh().unwrap();
        possible.check(pack, what);
    }
    for pack in packs {
        pack.close().unwrap();
    }
}

#[test]
fn what_was_committed_outlives_its_process() {
    for seed in seeds(rounds("PLFS_PACK_DEATHS", 3)) {
        let calls = live(&memory(), &Node::new(), seed, u64::MAX, Death::OfProcesses).1;
        for kill in (1 + seed % 3..=calls).step_by(3) {
            let (memory, node) = (memory(), Node::new());
            let (possible, _) = live(&memory, &node, seed, kill, Death::OfProcesses);
            goes_on(&memory, &node, &possible, &format!("seed {seed}, call {kill} of {calls}"));
        }
    }
}

#[test]
fn what_was_synced_outlives_a_power_cut() {
    for seed in seeds(rounds("PLFS_PACK_DEATHS", 3)) {
        let calls = live(&memory(), &Node::new(), seed, u64::MAX, Death::OfPower).1;
        for kill in (1 + seed % 3..=calls).step_by(3) {
            let memory = memory();
            let (possible, _) = live(&memory, &Node::new(), seed, kill, Death::OfPower);
            for luck in 0..4 {
                let left = match luck {
                    0 => memory.crash(),
                    luck => memory.crash_with(seed ^ kill << 8 ^ luck << 32),
                };
                let what = format!("seed {seed}, call {kill} of {calls}, luck {luck}");
                goes_on(&left, &Node::new(), &possible, &what);
            }
        }
    }
}

/// A call of the store fails, and nothing else: what a pack says it has done it has done, and a
/// process that goes on, or comes anew, finds that.
#[test]
fn a_call_that_fails_is_told_or_does_no_harm() {
    for seed in seeds(rounds("PLFS_PACK_DEATHS", 3)) {
        let calls = live(&memory(), &Node::new(), seed, u64::MAX, Death::OfProcesses).1;
        let mut at = 1 + seed % 5;
        while at <= calls {
            let (memory, node) = (memory(), Node::new());
            let fault = FaultStore::new(Arc::new(memory.clone()));
            let store: Arc<dyn Store> = Arc::new(fault.clone());
            let (mut rng, mut possible) = (Rng::new(seed), Possible::default());
            fault.fail_at(at, rng.pick(&[Errno::IO, Errno::NOSPC]));
            let (batch, hold) = (rng.one_in(2), rng.one_in(2).then_some(LONG));
            let options = PackOptions { batch, hold, ..AT_ONCE };
            let opened: plfs::Result<Vec<Pack>> = (0..2)
                .map(|_| Pack::open(&store, &node.config(), Path::new("/m"), options))
                .collect();
            if let Ok(packs) = opened {
                for _ in 0..14 {
                    // What has failed is possible from then on, whatever comes after it.
                    if act(&packs, &mut rng, &mut possible, Death::OfProcesses).is_err() {
                        break;
                    }
                }
            }
            let is_sync = |op| matches!(op, Op::SyncData | Op::SyncDir);
            let a_sync_failed =
                fault.log().iter().any(|call| call.error.is_some() && is_sync(call.op));
            let what = format!("seed {seed}, call {at} of {calls}");
            goes_on_after(&memory, &node, &possible, a_sync_failed, &what);
            at += 3 + seed % 3;
        }
    }
}

/// What 1,000 files of 1 KiB cost: the table of docs/decisions/0019.
#[test]
fn a_thousand_files_cost_few_calls() {
    for (how, batch, every, hold, most) in [
        ("exclusive", false, 1, None, [1_000, 2_000, 0]),
        ("commit each", true, 1, None, [1_000, 1_000, 0]),
        ("batches of 64", true, 64, None, [20, 17, 0]),
        ("exclusive, held", false, 1, Some(LONG), [3, 2, 0]),
    ] {
        let (memory, node) = (memory().shared(), Node::new());
        let fault = FaultStore::new(Arc::new(memory.clone()));
        let store: Arc<dyn Store> = Arc::new(fault.clone());
        let options = PackOptions { batch, hold, ..NEVER };
        let pack = Pack::open(&store, &node.config(), Path::new("/m"), options).unwrap();
        put(&pack, b"first", b"joins").unwrap();
        pack.commit().unwrap();
        fault.reset();
        let create = if how.starts_with("exclusive") { EXCLUSIVE } else { CREATE };
        for n in 0..1_000 {
            let file = pack.open_file(format!("rank.{n:010}").as_bytes(), create).unwrap();
            pack.write_at(&file, &[7; 1024], 0).unwrap();
            if n % every == every - 1 {
                pack.commit().unwrap();
            }
        }
        pack.commit().unwrap();
        pack.carry(Duration::ZERO).unwrap();
        let log = fault.log();
        let count = |op: Op, end: &str| {
            let is = |path: &Path| path.to_string_lossy().ends_with(end);
            log.iter().filter(|call| call.op == op && is(&call.path)).count() as u64
        };
        let data = count(Op::WriteAt, ".data");
        let (blocks, lengths) = (count(Op::WriteAt, "index"), count(Op::FileStat, "index"));
        let rest = log.len() as u64 - data - blocks - lengths;
        let length = memory_length(&pack);
        println!("{how}: {data} data, {blocks} blocks, {lengths} lengths, {rest} others, {length}");
        assert!([data, blocks, lengths].iter().zip(most).all(|(n, most)| *n <= most + 1), "{how}");
        assert!(rest < 12, "{how}: {rest} others");
        fault.reset();
        // Another node stats and reads all.
        let far = Node::new();
        let options = PackOptions { batch, ..NEVER };
        let reader = Pack::open(&store, &far.config(), Path::new("/m"), options).unwrap();
        let all = reader.list(b"", usize::MAX).unwrap();
        assert_eq!(all.len(), 1_001);
        let listed = fault.calls();
        assert!(listed < 30, "{how}: {listed} calls for a list");
        for (name, stat) in &all[1..] {
            assert_eq!((stat.size, content(&reader, name).unwrap()), (1024, vec![7; 1024]));
        }
        assert!(fault.calls() - listed < 1_010, "{how}: {} calls to read", fault.calls() - listed);
    }
}

/// Bytes of the index log of the only log set.
fn memory_length(pack: &Pack) -> u64 {
    let container = pack.container();
    let sets = container.list().unwrap();
    let set = sets.iter().find_map(|name| match name {
        plfs_format::name::Name::LogSet(set) => Some(*set),
        _ => None,
    });
    let path = container.path(&plfs_format::name::index_log(set.unwrap()));
    container.store.stat(&path, plfs::store::Links::Stay).unwrap().len
}

/// Many files, by two nodes, before and behind a tree: all are listed, in order, and found.
#[test]
fn a_large_directory_is_listed_in_order() {
    let files = rounds("PLFS_PACK_FILES", 3_000);
    let scratch = std::env::temp_dir().join(format!("plfs-pack-{}", std::process::id()));
    std::fs::create_dir_all(&scratch).unwrap();
    let (here, there) = (Node::new(), Node::new());
    let store: Arc<dyn Store> = Arc::new(plfs::store::PosixStore::new());
    let options = PackOptions { batch: true, ..NEVER };
    let open = |node: &Node| Pack::open(&store, &node.config(), &scratch, options).unwrap();
    let begun = std::time::Instant::now();
    let packs = [open(&here), open(&there)];
    for n in 0..files {
        let pack = &packs[(n % 2) as usize];
        let name = format!("{:08}", n * 7_919 % files);
        let file = pack.open_file(name.as_bytes(), CREATE).unwrap();
        pack.write_at(&file, name.as_bytes(), 0).unwrap();
        if n % 128 > 125 {
            pack.commit().unwrap();
        }
    }
    for pack in packs {
        pack.close().unwrap();
    }
    println!("{files} files made in {:?}", begun.elapsed());
    for folded in [false, true] {
        let begun = std::time::Instant::now();
        let pack = open(&here);
        let (mut after, mut seen) = (Vec::new(), 0);
        loop {
            let some = pack.list(&after, 1_000).unwrap();
            for (name, stat) in &some {
                assert_eq!(**name, *format!("{seen:08}").as_bytes());
                assert_eq!(stat.size, 8);
                seen += 1;
            }
            let Some((last, _)) = some.last() else { break };
            after = last.to_vec();
        }
        assert_eq!(seen, files);
        println!("listed in {:?}, folded: {folded}", begun.elapsed());
        for n in (0..files).step_by(files as usize / 100) {
            let name = format!("{n:08}");
            assert_eq!(content(&pack, name.as_bytes()).unwrap(), name.as_bytes());
        }
        let begun = std::time::Instant::now();
        pack.fold().unwrap();
        println!("folded in {:?}", begun.elapsed());
        pack.close().unwrap();
    }
    std::fs::remove_dir_all(&scratch).unwrap();
}

/// Tools that know files only say that they do not know a pack, and a repair takes nothing of it.
#[test]
fn a_repair_leaves_a_pack_alone() {
    let (memory, node) = (memory(), Node::new());
    let store: Arc<dyn Store> = Arc::new(memory.clone());
    let pack = node.open(&memory, NEVER);
    put(&pack, b"f", b"kept").unwrap();
    pack.fold().unwrap();
    pack.close().unwrap();
    let reports = plfs::check_tree(&store, Path::new("/m"), &[], |_| {}).unwrap();
    assert!(!reports.is_empty());
    for report in &reports {
        assert_eq!(plfs::repair(&store, &node.config(), report, 0).unwrap(), [""; 0]);
    }
    let after = plfs::check_tree(&store, Path::new("/m"), &[], |_| {}).unwrap();
    assert_eq!(after.len(), reports.len());
    assert_eq!(content(&Node::new().open(&memory, NEVER), b"f").unwrap(), b"kept");
    // Nor does anybody open it as a file.
    let plfs = plfs::Plfs::new(store, (*node.config()).clone());
    let name = Path::new("/m").join(".plfs-pack");
    assert_eq!(errno(plfs.open(&name, plfs::OpenOptions::read())), Errno::OPNOTSUPP);
}

/// Any bytes of the tree and of the logs may be others: calls give errors or what is there, and
/// never panic. A damaged tree is done without.
#[test]
fn damaged_packs_are_refused_or_read_from_their_logs() {
    let (memory, node) = (memory(), Node::new());
    let store: Arc<dyn Store> = Arc::new(memory.clone());
    let pack = node.open(&memory, NEVER);
    for n in 0..300 {
        put(&pack, format!("f{n:03}").as_bytes(), &[n as u8; 100]).unwrap();
    }
    pack.fold().unwrap();
    let names_path = pack.container().path(plfs_format::name::NAMES);
    let set = pack.container().list().unwrap().into_iter().find_map(|name| match name {
        plfs_format::name::Name::LogSet(set) => Some(set),
        _ => None,
    });
    let log_path = pack.container().path(&plfs_format::name::index_log(set.unwrap()));
    pack.close().unwrap();
    let mut rng = Rng::new(plfs_testkit::seed());
    for round in 0..120 {
        let path = if round % 4 == 0 { &log_path } else { &names_path };
        let file = store.open(path, plfs::store::Open::READ_WRITE).unwrap();
        let length = file.stat().unwrap().len;
        let at = rng.below(length);
        let mut byte = [0];
        file.read_at(&mut byte, at).unwrap();
        let hurt = [byte[0] ^ (1 << rng.below(8))];
        file.write_at(&hurt, at).unwrap();
        let late = Node::new();
        let pack = late.open(&memory, NEVER);
        let all = pack.list(b"", usize::MAX);
        let one = content(&pack, b"f123");
        if path == &names_path {
            assert_eq!(all.unwrap().len(), 300, "byte {at} of the tree");
            assert_eq!(one.unwrap(), [123; 100], "byte {at} of the tree");
        } else if let Ok(all) = all {
            // What a tree covers nobody reads in the log.
            assert_eq!((all.len(), one.unwrap()), (300, vec![123; 100]), "byte {at} of the log");
        }
        file.write_at(&byte, at).unwrap();
    }
}

/// The processes of a node say things to each other that the storage does not have yet: names and
/// bytes, to those that write as to those that only look. Other nodes see it when it is carried.
#[test]
fn what_is_held_is_seen_in_the_node_at_once_and_elsewhere_when_it_is_carried() {
    let (memory, here, there) = (memory(), Node::new(), Node::new());
    let held = PackOptions { hold: Some(LONG), ..AT_ONCE };
    let [one, two, looks] = [(); 3].map(|()| here.open(&memory, held));
    let far = there.open(&memory, AT_ONCE);
    put(&two, b"b", b"joins").unwrap();
    for n in 0..50 {
        let (name, text) = (format!("f{n}").into_bytes(), format!("text of {n}").into_bytes());
        put(&one, &name, &text).unwrap();
        assert_eq!(errno(two.open_file(&name, EXCLUSIVE)), Errno::EXIST);
        one.commit().unwrap();
        for pack in [&one, &two, &looks] {
            assert_eq!(content(pack, &name).unwrap(), text);
        }
        assert_eq!(errno(far.stat(&name)), Errno::NOENT);
    }
    two.unlink(b"f7").unwrap();
    one.rename(b"f8", b"f9").unwrap();
    let all = names(&one);
    assert_eq!(all.len(), 49);
    assert!(names(&looks) == all && names(&two) == all);
    // Who is not the one that said it carries it, too.
    two.carry(Duration::ZERO).unwrap();
    assert_eq!(names(&far), all);
    assert_eq!(content(&far, b"f9").unwrap(), b"text of 8");
    for pack in [&one, &two, &looks] {
        assert_eq!(content(pack, b"f9").unwrap(), b"text of 8");
    }
    // What is older than it may be goes with the next call.
    let hasty = here.open(&memory, PackOptions { hold: Some(Duration::ZERO), ..AT_ONCE });
    put(&one, b"old", b"1").unwrap();
    one.commit().unwrap();
    put(&hasty, b"new", b"2").unwrap();
    assert_eq!(content(&far, b"old").unwrap(), b"1");
    // Who leaves leaves nothing behind that others would have to think of.
    put(&one, b"last", b"3").unwrap();
    one.close().unwrap();
    assert_eq!(content(&far, b"last").unwrap(), b"3");
}

/// All processes of a node are killed when they have said something and nobody has carried it: who
/// of the node looks next, or comes to write, finds all of it, and so do other nodes then.
#[test]
fn what_was_held_outlives_all_processes_of_its_node() {
    for writes in [false, true] {
        let (memory, node) = (memory(), Node::new());
        let held = PackOptions { hold: Some(LONG), ..AT_ONCE };
        let fault = FaultStore::new(Arc::new(memory.clone()));
        let store: Arc<dyn Store> = Arc::new(fault.clone());
        let open = || Pack::open(&store, &node.config(), Path::new("/m"), held).unwrap();
        let (one, two) = (open(), open());
        for pack in [&one, &two] {
            put(pack, b"first", b"x").unwrap();
            pack.commit().unwrap();
        }
        one.sync().unwrap();
        for n in 0..200 {
            put(if n % 2 == 0 { &one } else { &two }, format!("f{n}").as_bytes(), &[7; 900])
                .unwrap();
            one.commit().unwrap();
            two.commit().unwrap();
        }
        fault.kill_at(1);
        drop((one, two));
        let far = Node::new().open(&memory, AT_ONCE);
        assert_eq!(names(&far), [b"first"]);
        let heir = node.open(&memory, held);
        if writes {
            put(&heir, b"f0", b"!").unwrap();
            heir.sync().unwrap();
        } else {
            assert_eq!(names(&heir).len(), 201);
        }
        assert_eq!(names(&far).len(), 201);
        for n in 1..200 {
            assert_eq!(content(&far, format!("f{n}").as_bytes()).unwrap(), [7; 900]);
        }
    }
}

/// The same where the data log lies on another backend: only the next writer carried it, and a
/// check said EXDEV.
#[test]
fn what_was_held_for_another_backend_is_carried_by_who_looks() {
    let (memory, node) = (memory(), Node::new());
    memory.mkdir(Path::new("/n"), 0o755).unwrap();
    memory.sync_dir(Path::new("/")).unwrap();
    let (store, root): (Arc<dyn Store>, _) = (Arc::new(memory.clone()), Path::new("/m"));
    let plfs = Plfs::new(store.clone(), Config::clone(&node.config()));
    let id = plfs::add_backend(&store, &node.config(), root, Path::new("/n")).unwrap().unwrap();
    let layout = Layout { backends: Some(Backends::Listed(vec![id])), ..Layout::default() };
    plfs.set_directory_layout(root, Some(&layout)).unwrap();
    let fault = FaultStore::new(store);
    let held = PackOptions { hold: Some(LONG), ..AT_ONCE };
    let faulty: Arc<dyn Store> = Arc::new(fault.clone());
    let one = Pack::open(&faulty, &node.config(), root, held).unwrap();
    for n in 0..100 {
        put(&one, format!("f{n}").as_bytes(), &[7; 900]).unwrap();
        one.commit().unwrap();
    }
    fault.kill_at(1);
    let dir = one.container().dir.clone();
    drop(one);
    // Its mark says that this process lives.
    for entry in memory.list(&dir).unwrap() {
        let path = dir.join(&entry.name);
        if entry.name.to_string_lossy().ends_with(".open") {
            let mark = Mark::parse(memory.readlink(&path).unwrap().to_str().unwrap()).unwrap();
            memory.unlink(&path).unwrap();
            let dead = Mark { start: mark.start ^ 1, place: 0, ..mark };
            memory.symlink(Path::new(&dead.text()), &path).unwrap();
        }
    }
    let far = Node::new().open(&memory, AT_ONCE);
    assert_eq!(names(&far), [b""; 0]);
    let report = plfs.check_pack(root).unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    assert_eq!(names(&far).len(), 100);
    for n in 0..100 {
        assert_eq!(content(&far, format!("f{n}").as_bytes()).unwrap(), [7; 900]);
    }
}

/// A store that is full, or fails, when the tray is carried: what was said stays, is seen in the
/// node, and goes there when it can; until then who says more is told, and who syncs.
#[test]
fn what_the_store_does_not_take_stays_and_is_told() {
    for wanted in [Errno::NOSPC, Errno::IO, Errno::DQUOT] {
        let (memory, here, there) = (memory(), Node::new(), Node::new());
        let held = PackOptions { hold: Some(LONG), ..AT_ONCE };
        let fault = FaultStore::new(Arc::new(memory.clone()));
        let store: Arc<dyn Store> = Arc::new(fault.clone());
        let open = || Pack::open(&store, &here.config(), Path::new("/m"), held).unwrap();
        let [one, two] = [(); 2].map(|()| open());
        let far = there.open(&memory, AT_ONCE);
        put(&two, b"b", b"").unwrap();
        put(&one, b"a", b"1").unwrap();
        one.commit().unwrap();
        one.sync().unwrap();
        put(&one, b"c", b"2").unwrap();
        one.commit().unwrap();
        fault.fail_matching("/", Op::WriteAt, wanted);
        // Said before it was known that the store takes nothing.
        assert_eq!(errno(two.carry(Duration::ZERO)), wanted);
        for pack in [&one, &two] {
            assert_eq!(content(pack, b"c").unwrap(), b"2");
            assert_eq!(errno(put(pack, b"d", b"3")), wanted);
            assert_eq!(errno(pack.stat(b"d")), Errno::NOENT);
            assert_eq!(errno(pack.sync()), wanted);
        }
        assert_eq!(errno(far.stat(b"c")), Errno::NOENT);
        fault.reset();
        // Nothing was lost that a call had taken, so nobody has failed for good.
        put(&one, b"d", b"4").unwrap();
        one.sync().unwrap();
        assert_eq!(names(&far), [b"a", b"b", b"c", b"d"]);
        assert_eq!(content(&far, b"c").unwrap(), b"2");
    }
}

/// A pack rests when nobody has called for a second. One that could not commit what it had left all
/// the same: what was written was gone, and its sync said that all is well.
#[test]
fn who_could_not_commit_does_not_rest() {
    for bytes in [20_000, 300_000] {
        let (memory, here, there) = (memory(), Node::new(), Node::new());
        let held = PackOptions { hold: Some(LONG), ..AT_ONCE };
        let fault = FaultStore::new(Arc::new(memory.clone()));
        let store: Arc<dyn Store> = Arc::new(fault.clone());
        let pack = Pack::open(&store, &here.config(), Path::new("/m"), held).unwrap();
        put(&pack, b"a", b"there").unwrap();
        pack.sync().unwrap();
        let file = pack.open_file(b"a", OPEN).unwrap();
        let text = vec![b'x'; bytes];
        fault.fail_matching("/", Op::WriteAt, Errno::NOSPC);
        if pack.write_at(&file, &text, 5).is_err() {
            continue;
        }
        assert_eq!(errno(pack.rest()), Errno::NOSPC);
        assert_eq!(errno(pack.leave()), Errno::NOSPC);
        assert_eq!(errno(pack.sync()), Errno::NOSPC);
        fault.reset();
        pack.sync().unwrap();
        pack.rest().unwrap();
        let far = there.open(&memory, AT_ONCE);
        assert_eq!(content(&far, b"a").unwrap()[5..], text);
    }
}

/// A page that a version without trays has made has none, and those who come say all at once.
#[test]
fn a_page_of_an_old_version_has_no_tray() {
    let (memory, node) = (memory(), Node::new());
    let held = PackOptions { hold: Some(LONG), ..AT_ONCE };
    let one = node.open(&memory, held);
    let page = node.0.join(format!("plfs-{}-{}", memory.user(), one.container().key()));
    std::fs::write(&page, []).unwrap();
    std::fs::set_permissions(&page, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let far = Node::new().open(&memory, AT_ONCE);
    put(&one, b"a", b"1").unwrap();
    one.commit().unwrap();
    assert_eq!(std::fs::metadata(&page).unwrap().len(), 8192);
    assert_eq!(content(&far, b"a").unwrap(), b"1");
}

/// All processes of a node were killed, and the storage cannot be reached when the next one comes:
/// a ceph-fuse that has died, a directory with another mode. That was taken for a mark that is not
/// the page's, so the page went, and with it files that had been closed.
#[test]
fn what_was_held_waits_for_storage_that_cannot_be_reached() {
    for wanted in [Errno::NOTCONN, Errno::ACCESS, Errno::IO, Errno::STALE] {
        let (memory, node) = (memory(), Node::new());
        let held = PackOptions { hold: Some(LONG), ..AT_ONCE };
        let fault = FaultStore::new(Arc::new(memory.clone()));
        let open = |store: &FaultStore| {
            let store: Arc<dyn Store> = Arc::new(store.clone());
            Pack::open(&store, &node.config(), Path::new("/m"), held).unwrap()
        };
        let one = open(&fault);
        put(&one, b"a", b"closed").unwrap();
        one.commit().unwrap();
        fault.kill_at(1);
        drop(one);
        let away = FaultStore::new(Arc::new(memory.clone()));
        let next = open(&away);
        away.fail_matching(".open", Op::Readlink, wanted);
        let _ = next.stat(b"a");
        drop(next);
        assert_eq!(content(&node.open(&memory, held), b"a").unwrap(), b"closed", "{wanted}");
    }
}

/// After a fold all is read anew. Where that failed, for want of a descriptor say, nobody was told,
/// and for a second files of other nodes were not there: who created one hid it.
#[test]
fn who_could_not_read_all_anew_takes_no_file_for_missing() {
    let (memory, here, there) = (memory(), Node::new(), Node::new());
    let far = there.open(&memory, AT_ONCE);
    put(&far, b"a", b"there").unwrap();
    far.close().unwrap();
    let fault = FaultStore::new(Arc::new(memory.clone()));
    let store: Arc<dyn Store> = Arc::new(fault.clone());
    let pack = Pack::open(&store, &here.config(), Path::new("/m"), NEVER).unwrap();
    put(&pack, b"b", b"here").unwrap();
    pack.commit().unwrap();
    let from_now = fault.clone();
    fault.before("flat", Op::Rename, move || {
        from_now.fail_matching("/index", None, Errno::MFILE);
    });
    assert_eq!(errno(pack.fold()), Errno::MFILE);
    assert_eq!(errno(pack.stat(b"a")), Errno::MFILE);
    assert_eq!(errno(pack.open_file(b"a", CREATE)), Errno::MFILE);
    fault.reset();
    let file = pack.open_file(b"a", CREATE).unwrap();
    assert_eq!(pack.stat_file(&file).unwrap().size, 5);
    assert_eq!(content(&pack, b"a").unwrap(), b"there");
    assert_eq!(content(&pack, b"b").unwrap(), b"here");
}

/// There is no descriptor for some calls, from any call on. What failed has changed nothing, or all
/// that it should; later calls go on, and others see what this process sees.
#[test]
fn what_finds_no_descriptor_is_done_by_the_next_call_of_a_pack() {
    let mut failed = 0;
    let holds = [None, Some(LONG)].map(|hold| PackOptions { hold, ..AT_ONCE });
    for (options, calls) in holds.into_iter().flat_map(|held| [1, 3, u64::MAX].map(|n| (held, n))) {
        for n in 1.. {
            let (memory, node) = (memory(), Node::new());
            let first = node.open(&memory, AT_ONCE);
            put(&first, b"a", b"old").unwrap();
            put(&first, b"b", b"old").unwrap();
            first.close().unwrap();
            let fault = FaultStore::new(Arc::new(memory.clone()));
            let store: Arc<dyn Store> = Arc::new(fault.clone());
            let pack = Pack::open(&store, &node.config(), Path::new("/m"), options).unwrap();
            fault.inject(Fault::NoDescriptor { n, calls });
            let done = [
                put(&pack, b"c", b"new").and_then(|_| pack.commit()),
                pack.rename(b"a", b"d"),
                pack.open_file(b"b", CREATE).and_then(|file| pack.set_len(&file, 1)),
                put(&pack, b"e", b"new").map(drop),
                pack.sync(),
                pack.unlink(b"b"),
            ];
            let struck = fault.log().iter().any(|call| call.error == Some(Errno::MFILE));
            fault.reset();
            let what = format!("{options:?}, {calls} calls from the {n}th on: {done:?}");
            failed += done.iter().filter(|done| done.is_err()).count();
            for (nth, name, bytes) in [(0, b"c", b"new"), (1, b"d", b"old"), (3, b"e", b"new")] {
                let is_there = content(&pack, name).is_ok_and(|found| found == bytes);
                assert!(is_there || done[nth].is_err(), "{what}");
            }
            let is_there = |name: &[u8]| pack.stat(name).is_ok();
            assert_eq!(is_there(b"a"), done[1].is_err(), "{what}");
            assert_eq!(is_there(b"b"), done[5].is_err(), "{what}");
            if done[5].is_err() {
                let size = if done[2].is_ok() { 1 } else { 3 };
                assert_eq!(pack.stat(b"b").unwrap().size, size, "{what}");
            }
            put(&pack, b"f", b"new").expect(&what);
            pack.commit().expect(&what);
            pack.sync().expect(&what);
            let all = names(&pack);
            let bytes: Vec<_> = all.iter().map(|name| content(&pack, name).unwrap()).collect();
            pack.close().expect(&what);
            let next = Node::new().open(&memory, AT_ONCE);
            assert_eq!(names(&next), all, "{what}");
            let found: Vec<_> = all.iter().map(|name| content(&next, name).unwrap()).collect();
            assert_eq!(found, bytes, "{what}");
            if !struck {
                break;
            }
        }
    }
    assert!(failed > 100, "{failed}");
}

/// A process has left a pack, as each does that is quiet for a second. A sync of it that failed
/// forgot which logs it was about: the next one said that all is well, and had synced nothing. And
/// logs that the process may not open any more were left out.
#[test]
fn a_sync_that_failed_after_a_pack_was_left_is_done_by_the_next() {
    for (op, wanted) in [(Op::Open, Errno::MFILE), (Op::Open, Errno::ACCESS)] {
        let (memory, node) = (memory(), Node::new());
        let fault = FaultStore::new(Arc::new(memory.clone()));
        let store: Arc<dyn Store> = Arc::new(fault.clone());
        let pack = Pack::open(&store, &node.config(), Path::new("/m"), AT_ONCE).unwrap();
        put(&pack, b"a", b"synced").unwrap();
        pack.leave().unwrap();
        fault.fail_matching("/index", op, wanted);
        assert_eq!(errno(pack.sync()), wanted);
        fault.reset();
        pack.sync().unwrap();
        let left = Node::new().open(&memory.crash(), AT_ONCE);
        assert_eq!(content(&left, b"a").unwrap(), b"synced");
    }
}

/// Who folds may not open the logs of another user. What lay below data that was not durable was
/// left out of the tree all the same: after a power cut what had been synced was gone.
#[test]
fn a_tree_does_not_vouch_for_logs_that_could_not_be_synced() {
    let (memory, here, there) = (memory(), Node::new(), Node::new());
    let far = there.open(&memory, AT_ONCE);
    let file = put(&far, b"a", &[b'o'; 5000]).unwrap();
    far.sync().unwrap();
    far.write_at(&file, &[b'n'; 5000], 0).unwrap();
    far.commit().unwrap();
    let fault = FaultStore::new(Arc::new(memory.clone()));
    let store: Arc<dyn Store> = Arc::new(fault.clone());
    let pack = Pack::open(&store, &here.config(), Path::new("/m"), AT_ONCE).unwrap();
    fault.fail_matching(".data", Op::Open, Errno::ACCESS);
    let folded = pack.fold();
    fault.reset();
    assert_eq!(errno(folded), Errno::ACCESS);
    let left = Node::new().open(&memory.crash(), AT_ONCE);
    assert_eq!(content(&left, b"a").unwrap(), [b'o'; 5000]);
    pack.fold().unwrap();
    let left = Node::new().open(&memory.crash(), AT_ONCE);
    assert_eq!(content(&left, b"a").unwrap(), [b'n'; 5000]);
}

/// A process had looked into its node's tray as a guest, and the node left the pack. Then another
/// process of the node wrote to it and left, and the first one compacted: by the page that it knew,
/// nothing had come behind what the tree has, and the files of the other one were gone.
#[test]
fn a_compaction_by_who_was_a_guest_of_its_node_loses_nothing() {
    let (memory, here) = (memory(), Node::new());
    let held = || here.open(&memory, PackOptions { hold: Some(LONG), ..AT_ONCE });
    let (guest, member) = (held(), held());
    put(&member, b"first", b"1").unwrap();
    member.commit().unwrap();
    assert_eq!(names(&guest), [b"first"]);
    member.carry(Duration::ZERO).unwrap();
    member.fold().unwrap();
    member.leave().unwrap();
    let other = held();
    put(&other, b"later", b"2").unwrap();
    other.close().unwrap();
    guest.compact().unwrap();
    assert_eq!(names(&guest), [b"first".as_slice(), b"later"]);
    assert_eq!(content(&guest, b"later").unwrap(), b"2");
}

/// The index log of a node was lost. A compaction said that all before it counts no more: when the
/// log was put back its files were not there.
#[test]
fn a_lost_index_log_does_not_cost_the_files_of_a_pack() {
    let (memory, here, there) = (memory(), Node::new(), Node::new());
    let far = there.open(&memory, AT_ONCE);
    put(&far, b"a", b"there").unwrap();
    far.close().unwrap();
    let dir = here.open(&memory, AT_ONCE).container().dir.clone();
    let is_set = |name: &std::ffi::OsStr| name.len() == 8;
    let entries = memory.list(&dir).unwrap();
    let set = entries.iter().find(|entry| is_set(&entry.name)).unwrap().name.clone();
    let index = dir.join(set).join("index");
    memory.rename(&index, Path::new("/m/saved")).unwrap();
    let pack = here.open(&memory, AT_ONCE);
    put(&pack, b"b", b"here").unwrap();
    pack.commit().unwrap();
    assert_eq!(errno(pack.compact()), Errno::IO);
    pack.close().unwrap();
    memory.rename(Path::new("/m/saved"), &index).unwrap();
    let pack = here.open(&memory, AT_ONCE);
    assert_eq!(content(&pack, b"a").unwrap(), b"there");
    pack.compact().unwrap();
    assert_eq!(content(&pack, b"a").unwrap(), b"there");
    assert_eq!(content(&pack, b"b").unwrap(), b"here");
}
