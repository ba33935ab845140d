//! Processes that load an index together, or write one together at close: the parts merged are what
//! one process would have loaded.

use std::path::Path;
use std::sync::Arc;

use plfs::store::{Open, Store};
use plfs::{Config, File, OpenOptions, Opened, Plfs, Standing};
use plfs_testkit::{MemStore, Rng, seeds};

const NAME: &str = "/m/f";

struct Fixture(MemStore);

impl Fixture {
    fn new() -> Fixture {
        let memory = MemStore::new();
        memory.mkdir(Path::new("/m"), 0o755).unwrap();
        Fixture(memory)
    }

    /// Without shared memory every process is a node of its own.
    fn process(&self) -> Plfs {
        Plfs::new(Arc::new(self.0.clone()), Config { shared_memory: None, ..Config::shared() })
    }
}

fn open(plfs: &Plfs) -> File {
    match plfs.open(Path::new(NAME), OpenOptions::create()).unwrap() {
        Opened::Logical(file) => file,
        Opened::Plain(_) => panic!("a plain file"),
    }
}

fn content(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; file.len().unwrap() as usize];
    let n = file.read_at(&mut bytes, 0).unwrap();
    assert_eq!(n, bytes.len());
    bytes
}

/// Random overwrites and a truncate by several nodes, some committed before a flat index and some
/// after; any number of parts, merged in any order.
#[test]
fn parts_merged_are_the_whole() {
    for seed in seeds(40) {
        let (fixture, mut rng) = (Fixture::new(), Rng::new(seed));
        for round in 0..3 {
            let processes: Vec<Plfs> = (0..4).map(|_| fixture.process()).collect();
            let files: Vec<File> = processes.iter().map(open).collect();
            for _ in 0..40 {
                let file = &files[rng.below(4) as usize];
                let (at, len) = (rng.below(500), 1 + rng.below(60));
                file.write_at(&vec![1 + rng.below(255) as u8; len as usize], at).unwrap();
                match rng.below(20) {
                    0 => file.set_len(rng.below(400)).unwrap(),
                    1..4 => file.commit().unwrap(),
                    _ => {}
                }
            }
            drop(files);
            if round == 0 && rng.one_in(2) {
                fixture.process().flatten(Path::new(NAME)).unwrap();
            }
        }
        let (one, two) = (fixture.process(), fixture.process());
        let mut whole = content(&open(&one));
        let file = open(&two);
        let parts_n = 1 + rng.below(6) as u32;
        let mut parts: Vec<Vec<u8>> =
            (0..parts_n).map(|part| file.index_part(part, parts_n).unwrap().0).collect();
        let turn = rng.below(u64::from(parts_n)) as usize;
        parts.rotate_left(turn);
        let slices: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        // In two steps, as node leaders do.
        let (first, rest) = slices.split_at(slices.len() / 2);
        let (first, rest) = (file.index_merge(first).unwrap(), file.index_merge(rest).unwrap());
        let merged = file.index_merge(&[&first, &rest]).unwrap();
        file.index_use(Arc::new(merged.clone())).unwrap();
        assert_eq!(content(&file), whole, "seed {seed}, {parts_n} parts");
        // Own writes and others' commits go on top; the last truncate may have left less than that.
        whole.resize(whole.len().max(3), 0);
        file.write_at(b"own", 3).unwrap();
        let other = open(&one);
        other.write_at(b"other", 600).unwrap();
        other.commit().unwrap();
        assert_eq!(&content(&file)[..6], [&whole[..3], b"own"].concat());
        file.refresh().unwrap();
        assert_eq!(&content(&file)[600..], b"other");
        // It will do as the flat index, too.
        file.index_store(&merged).unwrap();
        drop((file, other));
        let last = open(&fixture.process()).with_index(|index| index.flat().0).unwrap();
        assert!(last);
        let after = content(&open(&fixture.process()));
        assert_eq!(
            (&after[..3], &after[3..6], &after[600..]),
            (&whole[..3], b"own".as_slice(), b"other".as_slice()),
            "seed {seed}"
        );
    }
}

/// One node synced, another wrote over it and did not, and then power was cut. Which of both is
/// there can only be told by who has the logs of both: parts say that they may not be merged. Where
/// nobody ever synced they may.
#[test]
fn parts_that_a_power_cut_made_doubtful_are_not_merged_with_durable_ones() {
    let (mut refused, mut merged) = (0, 0);
    for (seed, synced) in seeds(60).flat_map(|seed| [(seed, false), (seed, true)]) {
        let fixture = Fixture::new();
        fixture.0.sync_dir(Path::new("/")).unwrap();
        let (one, two) = (fixture.process(), fixture.process());
        let (old, new) = (open(&one), open(&two));
        old.write_at(&[b'o'; 9000], 0).unwrap();
        if synced {
            old.sync().unwrap();
        }
        new.write_at(&[b'n'; 9000], 3000).unwrap();
        new.commit().unwrap();
        // Index logs and all names are on the disk, by luck; the data is as it comes.
        let (container, _) = one.container(Path::new(NAME)).unwrap().unwrap();
        for entry in fixture.0.list(&container.dir).unwrap() {
            let dir = container.dir.join(&entry.name);
            if let Ok(index) = fixture.0.open(&dir.join("index"), Open::READ) {
                index.sync_data().unwrap();
                fixture.0.sync_dir(&dir).unwrap();
            }
        }
        fixture.0.open(Path::new(NAME), Open::READ).unwrap().sync_data().unwrap();
        container.dir.ancestors().for_each(|dir| fixture.0.sync_dir(dir).unwrap());
        let after = Fixture(fixture.0.crash_with(seed));
        let plfs = after.process();
        let Ok(Opened::Logical(file)) = plfs.open(Path::new(NAME), OpenOptions::read()) else {
            assert!(!synced, "seed {seed}");
            continue;
        };
        let Ok(parts) = (0..2).map(|part| file.index_part(part, 2)).collect::<Result<Vec<_>, _>>()
        else {
            continue;
        };
        let all = Standing {
            is_doubtful: parts.iter().any(|(_, standing)| standing.is_doubtful),
            is_durable: parts.iter().any(|(_, standing)| standing.is_durable),
        };
        assert!(synced || !all.is_durable, "seed {seed}");
        if all.may_merge() {
            merged += u32::from(all.is_doubtful);
            continue;
        }
        refused += 1;
        let (whole, standing) = file.index_part(0, 1).unwrap();
        assert!(standing.may_merge());
        file.index_use(Arc::new(whole)).unwrap();
        let mut bytes = [0; 9000];
        assert_eq!(file.read_at(&mut bytes, 0).unwrap(), 9000, "seed {seed}");
        assert!(bytes.iter().all(|byte| matches!(byte, b'o' | b'n')), "seed {seed}");
        assert!(bytes[..3000].iter().all(|byte| *byte == b'o'), "seed {seed}");
    }
    assert!(refused > 5 && merged > 5, "refused {refused}, merged {merged}");
}

/// What nodes gather at a collective close covers all logs: the last one to close has nothing left
/// to read, and the next to open looks at nothing else.
#[test]
fn what_the_nodes_gather_is_complete() {
    let fixture = Fixture::new();
    for round in 0..3u8 {
        let processes: Vec<Plfs> = (0..4).map(|_| fixture.process()).collect();
        let files: Vec<File> = processes.iter().map(open).collect();
        for i in 0..100u64 {
            files[(i % 4) as usize].write_at(&[round + i as u8; 47], i * 47).unwrap();
        }
        files.iter().for_each(|file| file.sync().unwrap());
        let parts: Vec<Vec<u8>> =
            files.iter().enumerate().map(|(i, file)| file.index_own(i == 0).unwrap().0).collect();
        let merged =
            files[0].index_merge(&parts.iter().map(Vec::as_slice).collect::<Vec<_>>()).unwrap();
        files[0].index_store(&merged).unwrap();
        drop(files);
        let plfs = fixture.process();
        let file = open(&plfs);
        assert!(file.with_index(|index| index.flat().0).unwrap());
        let expect: Vec<u8> = (0..100u8).flat_map(|i| [round + i; 47]).collect();
        assert_eq!(content(&file), expect);
        let report = plfs::check_name(&(Arc::new(fixture.0.clone()) as _), Path::new(NAME), &[]);
        assert_eq!(report.health(), plfs::Health::Healthy, "{report:#?}");
    }
}

/// Gathers the index of these files, one of each node, as a collective close does. Whether it is
/// stored; if not, the last closer decides.
fn gather(files: &[File]) -> bool {
    let parts: Result<Vec<_>, _> =
        files.iter().enumerate().map(|(i, file)| file.index_own(i == 0)).collect();
    let Ok(parts) = parts else { return false };
    let is_doubtful = parts.iter().any(|(_, standing)| standing.is_doubtful);
    let bytes: Vec<&[u8]> = parts.iter().map(|(bytes, _)| bytes.as_slice()).collect();
    if !is_doubtful {
        let merged = files[0].index_merge(&bytes).unwrap();
        return files[0].index_store(&merged).is_ok();
    }
    // In two steps, as node leaders do.
    let (first, rest) = bytes.split_at(bytes.len() / 2);
    let merged = [first, rest].map(|parts| files[0].index_merge_apart(parts));
    let [Ok(first), Ok(rest)] = merged else { return false };
    let Ok(merged) = files[0].index_merge_apart(&[&first, &rest]) else { return false };
    files[0].index_store(&merged).is_ok()
}

/// A checkpoint that is closed without a sync, as most are: its data is not durable, and each part
/// of its index was refused for that, so no index was ever stored at a collective close. Parts of
/// what nodes wrote beside each other can be merged: nothing older lies below.
#[test]
fn what_is_not_durable_is_gathered_if_nothing_lies_below() {
    let write = |files: &[File], value: u8| {
        for i in 0..400u64 {
            files[(i % 4) as usize].write_at(&[value.wrapping_add(i as u8); 47], i * 47).unwrap();
        }
        files.iter().for_each(|file| file.commit().unwrap());
    };
    let fixture = Fixture::new();
    let processes: Vec<Plfs> = (0..4).map(|_| fixture.process()).collect();
    let files: Vec<File> = processes.iter().map(open).collect();
    write(&files, 0);
    assert!(files.iter().all(|file| file.index_own(false).unwrap().1.is_doubtful));
    assert!(gather(&files));
    let is_whole = |file: &File| file.with_index(|index| index.flat().0).unwrap();
    let expect: Vec<u8> = (0..400u64).flat_map(|i| [i as u8; 47]).collect();
    let plfs = fixture.process();
    assert!(is_whole(&open(&plfs)));
    assert_eq!(content(&open(&plfs)), expect);
    drop(files);
    let files: Vec<File> = processes.iter().map(open).collect();
    write(&files, 1);
    assert!(!gather(&files), "it lies over what the index has");
    files.iter().for_each(|file| file.sync().unwrap());
    assert!(gather(&files), "it is durable");
    drop(files);

    // Two have written the same byte; one has written a byte twice.
    for (at, len) in [(2, 1), (5, 1)] {
        let fixture = Fixture::new();
        let processes: Vec<Plfs> = (0..2).map(|_| fixture.process()).collect();
        let files: Vec<File> = processes.iter().map(open).collect();
        files[0].write_at(b"aaa", 0).unwrap();
        files[1].write_at(b"bbb", 3).unwrap();
        assert!(files.iter().all(|file| file.commit().is_ok()));
        files[1].write_at(&b"b"[..len], at).unwrap();
        files[1].commit().unwrap();
        assert!(!gather(&files), "{at}");
    }
}

/// Nodes write at random, some of it over what others wrote, and sync now and then; they gather the
/// index if they may, and power is cut. What was synced is there, or what was written over it.
#[test]
fn what_is_gathered_hides_nothing_that_was_synced() {
    const BYTES: usize = 60;
    let (mut stored, mut refused) = (0, 0);
    for seed in seeds(400) {
        let (fixture, mut rng) = (Fixture::new(), Rng::new(seed));
        fixture.0.sync_dir(Path::new("/")).unwrap();
        // For each byte the values that a reader may find, the newest last, and whose they are.
        let mut may_be: Vec<Vec<(u8, usize)>> = vec![Vec::new(); BYTES];
        let mut has_synced = vec![false; BYTES];
        let (mut value, mut written) = (0u8, [0; 4]);
        for _ in 0..1 + rng.below(2) {
            // The last one is not of those that gather.
            let processes: Vec<Plfs> = (0..4).map(|_| fixture.process()).collect();
            let files: Vec<File> = processes.iter().map(open).collect();
            let is_wild = rng.one_in(3);
            for i in 0..3 + rng.below(4) as usize {
                let node = if i < 3 { i } else { rng.below(4) as usize };
                let len = 1 + rng.below(2) as usize;
                let at = match is_wild || node == 3 {
                    true => rng.below((BYTES - len) as u64) as usize,
                    false => node * 20 + written[node],
                };
                written[node] += len;
                value += 1;
                files[node].write_at(&vec![value; len], at as u64).unwrap();
                if node < 3 || rng.one_in(2) {
                    files[node].commit().unwrap();
                }
                may_be[at..at + len].iter_mut().for_each(|byte| byte.push((value, node)));
            }
            match gather(&files[..3]) {
                true => stored += 1,
                false => refused += 1,
            }
            // One that has written syncs after that, as another may that opened the file since.
            for (node, file) in files.iter().enumerate().filter(|_| rng.one_in(2)) {
                file.sync().unwrap();
                for (byte, has_synced) in may_be.iter_mut().zip(&mut has_synced) {
                    if let Some(durable) = byte.iter().rposition(|(_, of)| *of == node) {
                        byte.drain(..durable);
                        *has_synced = true;
                    }
                }
            }
            // Log sets have another owner in the next round.
            may_be.iter_mut().flatten().for_each(|(_, of)| *of = usize::MAX);
            files.into_iter().for_each(|file| file.close().unwrap());
        }
        // Names and indexes are on the disk, by luck; the data is as it comes.
        let (container, _) = fixture.process().container(Path::new(NAME)).unwrap().unwrap();
        for entry in fixture.0.list(&container.dir).unwrap() {
            let path = container.dir.join(&entry.name);
            for file in [path.join("index"), path.clone()] {
                if let Ok(file) = fixture.0.open(&file, Open::READ) {
                    file.sync_data().unwrap();
                }
            }
            let _ = fixture.0.sync_dir(&path);
        }
        fixture.0.open(Path::new(NAME), Open::READ).unwrap().sync_data().unwrap();
        container.dir.ancestors().for_each(|dir| fixture.0.sync_dir(dir).unwrap());
        let after = Fixture(fixture.0.crash_with(seed));
        let Ok(Opened::Logical(file)) = after.process().open(Path::new(NAME), OpenOptions::read())
        else {
            assert!(!has_synced.contains(&true), "seed {seed}");
            continue;
        };
        for at in (0..BYTES).filter(|at| has_synced[*at]) {
            let mut byte = [0];
            assert_eq!(file.read_at(&mut byte, at as u64).unwrap(), 1, "seed {seed}: byte {at}");
            let found = may_be[at].iter().any(|(value, _)| *value == byte[0]);
            assert!(found, "seed {seed}: byte {at} is {}, not of {:?}", byte[0], may_be[at]);
        }
    }
    assert!(stored > 50 && refused > 50, "stored {stored}, refused {refused}");
}

/// Somebody flattens the file while nodes load their parts: the gap, or the double part, is
/// noticed. (Without the look, records between two flat indexes would be lost.)
#[test]
fn parts_from_before_and_after_a_flattening_do_not_mix() {
    let fixture = Fixture::new();
    let (one, two) = (fixture.process(), fixture.process());
    let (a, b) = (open(&one), open(&two));
    a.write_at(b"aaa", 0).unwrap();
    b.write_at(b"bbb", 3).unwrap();
    a.sync().unwrap();
    b.sync().unwrap();
    let (early_base, early_tail) = (a.index_own(true).unwrap().0, b.index_own(false).unwrap().0);
    fixture.process().flatten(Path::new(NAME)).unwrap();
    let (late_base, late_tail) = (a.index_own(true).unwrap().0, b.index_own(false).unwrap().0);
    let again =
        |parts: &[&[u8]]| a.index_merge(parts).unwrap_err().errno() == plfs::store::Errno::AGAIN;
    assert!(again(&[&late_base, &early_tail]));
    assert!(
        a.index_merge(&[&early_base, &early_tail]).is_ok()
            && a.index_merge(&[&late_base, &late_tail]).is_ok()
    );
    // The tail alone merges, but is no index.
    let gap = a.index_merge(&[&early_base, &late_tail]).unwrap();
    assert!(a.index_store(&gap).is_err() && a.index_use(Arc::new(gap)).is_err());
    assert_eq!(content(&a), b"aaabbb");
}

/// Damaged or foreign parts are refused, and nothing changes.
#[test]
fn a_damaged_part_is_refused() {
    let fixture = Fixture::new();
    let plfs = fixture.process();
    let file = open(&plfs);
    file.write_at(b"abc", 0).unwrap();
    file.commit().unwrap();
    let (part, _) = file.index_part(0, 1).unwrap();
    for bit in 0..part.len() * 8 {
        let mut hurt = part.clone();
        hurt[bit / 8] ^= 1 << (bit % 8);
        assert!(
            file.index_merge(&[&part, &hurt]).is_err() && file.index_store(&hurt).is_err(),
            "bit {bit}"
        );
        // Who only uses it finds damage in a block when it reads there, and reads the logs instead.
        assert!(file.index_use(Arc::new(hurt)).is_err() || content(&file) == b"abc", "bit {bit}");
    }
    assert!(file.index_part(1, 1).is_err() && file.index_part(0, 0).is_err());
    assert_eq!(content(&file), b"abc");
}

/// Of many nodes that open a file together one looks, and the others write behind what it saw
/// without opening a single index log. (Each looking at all is what the original died of.)
#[test]
fn who_is_told_does_not_look_and_still_writes_behind() {
    let fixture = Fixture::new();
    for round in 0..2u8 {
        let processes: Vec<Plfs> = (0..4).map(|_| fixture.process()).collect();
        let files: Vec<File> = processes.iter().map(open).collect();
        let seen = files[0].commit_horizon().unwrap();
        assert_eq!(seen.is_new, round == 0);
        files.iter().for_each(|file| file.set_commit_horizon(seen));
        // The same bytes by each in turn, in an order that sync and barrier would give.
        for (i, file) in files.iter().enumerate() {
            file.write_at(&[10 * round + i as u8; 8], 4 * i as u64).unwrap();
            file.commit().unwrap();
        }
        drop(files);
        let got = content(&open(&fixture.process()));
        let expect: Vec<u8> = [0, 1, 2, 3, 3].iter().flat_map(|i| [10 * round + i; 4]).collect();
        assert_eq!(got, expect, "round {round}");
    }
}
