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
    let config = Config { shared_memory: None, ..Config::default() };
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
