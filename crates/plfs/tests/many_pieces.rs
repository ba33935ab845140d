//! What a call on a file of a pack costs, however often the file was written before.
//!
//! Each read, write and append copied all that was known of the pieces of its file, so that 16,000
//! appends copied 128 million pieces. What is counted here is memory that is asked for, which is
//! what copies need.

mod common {
    pub mod counting;
}

use std::path::Path;
use std::sync::Arc;

use common::counting;
use plfs::Config;
use plfs::pack::{Pack, PackOpen, PackOptions};
use plfs::store::Store;
use plfs_testkit::MemStore;

fn pack() -> Pack {
    let memory = MemStore::new();
    memory.mkdir(Path::new("/m"), 0o755).unwrap();
    let store: Arc<dyn Store> = Arc::new(memory);
    let config = Arc::new(Config { shared_memory: None, ..Config::shared() });
    Pack::open(&store, &config, Path::new("/m"), PackOptions::default()).unwrap()
}

const CREATE: PackOpen =
    PackOpen { create: true, exclusive: false, truncate: false, mode: 0o640, uid: 7, gid: 8 };

/// Bytes that `n` calls ask for, each.
fn cost(n: usize, mut call: impl FnMut(usize)) -> usize {
    let before = counting::bytes_asked_for();
    (0..n).for_each(&mut call);
    (counting::bytes_asked_for() - before) / n
}

#[test]
fn a_file_of_many_pieces_costs_no_more_than_one_of_few() {
    let _alone = counting::alone();
    let mut costs = Vec::new();
    for pieces in [1_000, 16_000] {
        let pack = pack();
        let file = pack.open_file(b"appended", CREATE).unwrap();
        let append =
            cost(pieces, |i| assert_eq!(pack.append(&file, b"0123").unwrap().0, 4 * i as u64));
        // The first read finds what shows.
        let mut four = [0; 4];
        pack.read_at(&file, &mut four, 0).unwrap();
        let read = cost(1_000, |i| {
            assert_eq!(pack.read_at(&file, &mut four, 4 * (i * 7 % pieces) as u64).unwrap(), 4);
            assert_eq!(four, *b"0123");
        });
        // From the end, so that no piece goes on with the one before; and then over half of them.
        let file = pack.open_file(b"written", CREATE).unwrap();
        let write = cost(pieces, |i| {
            pack.write_at(&file, b"0123", 8 * (pieces - i) as u64).unwrap();
        });
        pack.read_at(&file, &mut four, 0).unwrap();
        let over = cost(pieces, |i| {
            pack.write_at(&file, b"89", 8 * (i * 7 % pieces) as u64 + 9).unwrap();
            pack.read_at(&file, &mut four, 8 * (i * 7 % pieces) as u64 + 8).unwrap();
        });
        let stat = cost(1_000, |_| {
            assert_eq!(pack.stat_file(&file).unwrap().size, 8 * pieces as u64 + 4);
        });
        let opened = cost(pieces, |_| {
            let file = pack.open_file(b"opened", CREATE).unwrap();
            pack.append(&file, b"0123").unwrap();
        });
        assert_eq!(pack.stat(b"opened").unwrap().size, 4 * pieces as u64);
        costs.push([append, read, write, over, stat, opened]);
        pack.close().unwrap();
    }
    println!("append, read, write, write over, stat, open and append: {costs:?} bytes a call");
    // An open shares what is known of 64 pieces at a time, with 8 bytes each.
    let shared = [0, 0, 0, 0, 0, 16_000 / 64 * 8 * 4];
    for i in 0..6 {
        assert!(costs[1][i] <= 2 * costs[0][i] + 100 + shared[i], "{costs:?}");
    }
}
