//! What a process costs the storage must not depend on how many nodes use the file: counted in
//! calls on the store, because times on a busy machine say nothing.

use std::path::Path;
use std::sync::Arc;

use plfs::store::{Links, Store};
use plfs::{Config, File, OpenOptions, Opened, Plfs};
use plfs_testkit::{FaultStore, MemStore};

/// Nodes: enough that a call for each other node would show.
const NODES: usize = 400;

fn open(plfs: &Plfs) -> File {
    match plfs.open(Path::new("/m/f"), OpenOptions::create()).unwrap() {
        Opened::Logical(file) => file,
        Opened::Plain(_) => panic!("it is plain"),
    }
}

/// Each node's first write opened every other node's index log: 10,000 nodes were 10^8 opens. The
/// first write and sync of the last node, and its close, cost as many calls as the first one's, but
/// that a crowd has a clock to read.
#[test]
fn the_last_of_many_nodes_costs_what_the_first_one_did() {
    let memory = MemStore::new();
    memory.mkdir(Path::new("/m"), 0o755).unwrap();
    many_nodes(memory, 1);
}

/// The same on storage that machines share, where no wall clock helps: the node that finds more log
/// sets than it would ask makes the file's clock say what all have to start behind, and pays for it
/// once. The nodes that were there before learn of it at their next commit.
#[test]
fn the_last_of_many_machines_costs_what_the_first_one_did() {
    let memory = MemStore::new();
    memory.mkdir(Path::new("/m"), 0o755).unwrap();
    many_nodes(memory.shared(), 8);
}

/// `more`: calls that the last one may make besides.
fn many_nodes(memory: MemStore, more: u64) {
    let counted = FaultStore::new(Arc::new(memory));
    // Without shared memory each process is a node of its own.
    let config = Config { shared_memory: None, ..Config::shared() };
    let (mut nodes, mut joins) = (Vec::new(), Vec::new());
    for i in 0..NODES as u64 {
        let before = counted.calls();
        let plfs = Plfs::new(Arc::new(counted.clone()), config.clone());
        let file = open(&plfs);
        file.write_at(&[1; 100], i * 100).unwrap();
        file.sync().unwrap();
        joins.push(counted.calls() - before);
        nodes.push((plfs, file));
    }
    // The first one makes the file.
    let (second, last) = (joins[1], joins[NODES - 1]);
    assert!(
        last <= second + more,
        "the second node's first write and sync cost {second} calls, the last one's {last}"
    );
    assert!(second <= 60, "{second} calls: {joins:?}");
    let mut leaves = Vec::new();
    let (_, reader) = nodes.pop().unwrap();
    for (_, file) in nodes {
        let before = counted.calls();
        file.close().unwrap();
        leaves.push(counted.calls() - before);
    }
    assert!(
        leaves[NODES - 2] <= leaves[0] + more,
        "the first close cost {} calls, the last one's {}",
        leaves[0],
        leaves[NODES - 2]
    );
    reader.close().unwrap();
    let plfs = Plfs::new(Arc::new(counted), config);
    assert_eq!(plfs.stat(Path::new("/m/f"), Links::Follow).unwrap().stat.len, NODES as u64 * 100);
}

/// Processes of one node share a page and a log set: who joins it makes fewer calls than who founds
/// one. The last process of the last node makes as many as the second of the first node, to join
/// and to leave.
#[test]
fn the_last_process_of_the_last_node_costs_what_the_second_one_did() {
    for (is_shared, more, ask) in [(false, 1, 0), (true, 8, 4)] {
        let memory = MemStore::new();
        memory.mkdir(Path::new("/m"), 0o755).unwrap();
        many_processes(if is_shared { memory.shared() } else { memory }, more, ask);
    }
}

/// `more`: calls that a late one may make besides; `ask`: what a look at an index log costs before
/// there is a clock.
fn many_processes(memory: MemStore, more: u64, ask: u64) {
    const NODES: u64 = 100;
    const PROCESSES: u64 = 8;
    let pages = std::path::PathBuf::from(format!("/dev/shm/plfs-scale-{}", std::process::id()));
    let counted = FaultStore::new(Arc::new(memory));
    let config =
        |node| Config { shared_memory: Some(pages.join(format!("{node}"))), ..Config::shared() };
    // Calls of the `i`th process of each node.
    let (mut open_files, mut joins) = (Vec::new(), vec![Vec::new(); PROCESSES as usize]);
    for node in 0..NODES {
        std::fs::create_dir_all(pages.join(format!("{node}"))).unwrap();
        for i in 0..PROCESSES {
            let before = counted.calls();
            let plfs = Plfs::new(Arc::new(counted.clone()), config(node));
            let file = open(&plfs);
            file.write_at(&[1; 100], (node * PROCESSES + i) * 100).unwrap();
            file.sync().unwrap();
            joins[i as usize].push(counted.calls() - before);
            open_files.push((plfs, file));
        }
    }
    let last = NODES as usize - 1;
    // The first one of all makes the file.
    let (founder, member) = (joins[0][1], joins[1][0]);
    assert!(member < founder, "{member} calls to join, {founder} to found: {joins:?}");
    assert!(joins[0][last] <= founder + more, "{joins:?}");
    for calls in &joins[1..] {
        assert!(calls[last] <= member + more, "{member}: {joins:?}");
    }
    // One makes the file, one its clock; before it has a clock, who comes asks some 64 index logs
    // at most.
    assert!(joins.iter().flatten().all(|calls| *calls <= founder + 14 + ask * 64), "{joins:?}");
    let plfs = Plfs::new(Arc::new(counted.clone()), config(0));
    let mut leaves = Vec::new();
    let (_, reader) = open_files.pop().unwrap();
    for (_, file) in open_files {
        let before = counted.calls();
        file.close().unwrap();
        leaves.push(counted.calls() - before);
    }
    // The last of a node gives up the set for all.
    let ends = |i: u64| leaves.iter().skip(i as usize).step_by(PROCESSES as usize).copied();
    for i in 0..PROCESSES {
        let (first, most) = (ends(i).next().unwrap(), ends(i).max().unwrap());
        assert!(most <= first + more, "{first} calls to leave became {most}: {leaves:?}");
    }
    reader.close().unwrap();
    let size = plfs.stat(Path::new("/m/f"), Links::Follow).unwrap().stat.len;
    assert_eq!(size, NODES * PROCESSES * 100);
    std::fs::remove_dir_all(&pages).unwrap();
}

/// What `n` nodes have left behind, whose last one is still there; and one that counts.
fn left_by(n: u64) -> (MemStore, (Plfs, File), FaultStore, Plfs) {
    let memory = MemStore::new();
    memory.mkdir(Path::new("/m"), 0o755).unwrap();
    let config = Config { shared_memory: None, ..Config::shared() };
    let node = |store: Arc<dyn Store>| Plfs::new(store, config.clone());
    let mut nodes: Vec<(Plfs, File)> = (0..n)
        .map(|i| {
            let plfs = node(Arc::new(memory.clone()));
            let file = open(&plfs);
            file.write_at(&[1; 100], i * 100).unwrap();
            file.commit().unwrap();
            (plfs, file)
        })
        .collect();
    let last = nodes.pop().unwrap();
    nodes.into_iter().for_each(|(_, file)| file.close().unwrap());
    let counted = FaultStore::new(Arc::new(memory.clone()));
    let plfs = node(Arc::new(counted.clone()));
    (memory, last, counted, plfs)
}

/// A stat of a file that is being written, a look of a reader at what is new, and a first write
/// that takes an old log set over asked for each pair of log sets, or went through all of them for
/// each: the calls on the store grow as the log sets do, or not at all.
#[test]
fn looks_and_takeovers_are_not_quadratic_in_log_sets() {
    let costs = |n: u64| {
        let (_memory, (_plfs, writer), counted, plfs) = left_by(n);
        let calls = |what: &mut dyn FnMut()| {
            let before = counted.calls();
            what();
            counted.calls() - before
        };
        let size = || plfs.stat(Path::new("/m/f"), Links::Follow).unwrap().stat.len;
        let stat = calls(&mut || assert_eq!(size(), n * 100));
        let reader = open(&plfs);
        let load = calls(&mut || assert_eq!(reader.read_at(&mut [0; 100], 0).unwrap(), 100));
        writer.write_at(&[2; 100], n * 100).unwrap();
        writer.commit().unwrap();
        let look = calls(&mut || {
            reader.refresh().unwrap();
            assert_eq!(reader.read_at(&mut [0; 100], n * 100).unwrap(), 100);
        });
        let first_write = calls(&mut || assert_eq!(reader.write_at(&[3; 100], 0).unwrap(), 100));
        [stat, load, look, first_write]
    };
    let (few, many) = (costs(100), costs(400));
    for (few, many) in few.into_iter().zip(many) {
        assert!(many <= 4 * few + 50, "four times the log sets: {few} calls became {many}");
    }
    let [_, _, _, first_write] = many;
    assert!(first_write <= few[3] + 50, "a first write: {few:?}, {many:?}");
}
