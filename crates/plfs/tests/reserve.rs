//! Room that is reserved beside what others do to the file (SEMANTICS S24): each cut what somebody
//! had written, or the length that he had set.

mod common {
    pub mod scratch;
}

use std::path::{Path, PathBuf};
use std::sync::{Arc, Barrier, Mutex};

use plfs::store::Size;
use plfs::{Config, Plfs};
use plfs_testkit::{FaultStore, MemStore, Op, an_hour_ahead};

use common::scratch::{Scratch, open};

const PATH: &str = "/f";

/// Two nodes of one storage. The clock of the second is set ahead by [`an_hour_ahead`] in the
/// directory that is given.
fn two_nodes(dir: &Scratch, mem: &MemStore) -> (Plfs, Plfs, PathBuf) {
    let ahead = dir.0.join("ahead");
    std::fs::create_dir(&ahead).unwrap();
    let config = Config { shared_memory: Some(ahead.clone()), ..Config::shared() };
    let process = |config| Plfs::new(Arc::new(mem.clone()), config);
    (process(dir.config()), process(config), ahead)
}

/// A thread reserves 10 bytes while another sets the length to 100: it is 100, whoever comes first.
/// The first looked at the length, and the second set it, and then the first said that the file has
/// 10 bytes from here on: a hundredth to a tenth of all times.
#[test]
fn room_beside_a_truncate_to_more_does_not_cut_it() {
    let (dir, mem) = (Scratch::new(), MemStore::new());
    let plfs = Plfs::new(Arc::new(mem.clone()), dir.config());
    let file = open(&plfs, Path::new(PATH));
    for _ in 0..2_000 {
        file.set_len(0).unwrap();
        let both = Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                both.wait();
                file.set_len(100).unwrap();
            });
            both.wait();
            file.allocate(0, 10, Size::Grows).unwrap();
        });
        assert_eq!(file.len().unwrap(), 100);
    }
}

/// Another node writes 100 bytes, cuts the file to 90 and syncs, and closes the file or not,
/// between the look at the length and the word that there is room: at any call to the storage.
#[test]
fn room_cuts_nothing_that_another_node_has_cut_to_more() {
    let ops = [Op::Stat, Op::FileStat, Op::List, Op::Open, Op::Symlink, Op::WriteAt];
    let cases = ops.into_iter().flat_map(|op| (0..4).map(move |case| (op, case)));
    for (op, closes, knows) in cases.map(|(op, case)| (op, case % 2 == 0, case / 2 == 0)) {
        let mut wrong = Vec::new();
        for nth in 0.. {
            let (dir, mem) = (Scratch::new(), MemStore::new());
            let store = FaultStore::new(Arc::new(mem.clone()));
            let here = Plfs::new(Arc::new(store.clone()), dir.config());
            let (_, there, _) = two_nodes(&dir, &mem);
            let mine = open(&here, Path::new(PATH));
            mine.refresh().unwrap();
            if knows {
                mine.write_at(&[1], 0).unwrap();
                mine.commit().unwrap();
            }
            let theirs = Arc::new(Mutex::new(None));
            let put = theirs.clone();
            (0..nth).for_each(|_| store.before("", op, || {}));
            store.before("", op, move || {
                let file = open(&there, Path::new(PATH));
                file.write_at(&[7; 100], 0).unwrap();
                file.set_len(90).unwrap();
                file.sync().unwrap();
                if closes {
                    file.close().unwrap();
                    *put.lock().unwrap() = Some((there, None));
                } else {
                    *put.lock().unwrap() = Some((there, Some(file)));
                }
            });
            mine.allocate(0, 10, Size::Grows).unwrap();
            if theirs.lock().unwrap().is_none() {
                break;
            }
            mine.sync().unwrap();
            let len = mine.len().unwrap();
            let mut bytes = [0; 100];
            let n = mine.read_at(&mut bytes, 0).unwrap();
            if len != 90 || bytes[..n] != [7; 90] {
                wrong.push((nth, len));
            }
        }
        assert!(wrong.is_empty(), "{op:?}, closes {closes}, knows {knows}: {wrong:?}");
    }
}

/// A node whose clock is ahead cuts the file; one of another node has seen that, and writes, and
/// has not committed. The first asks for room again and again, as a journal does. Each time had a
/// stamp of its own behind the cut, and 32 were left out by who had seen it.
#[test]
fn room_asked_for_a_hundred_times_behind_one_cut_cuts_nothing() {
    let (dir, mem) = (Scratch::new(), MemStore::new());
    let (here, there, ahead) = two_nodes(&dir, &mem);
    let (mine, theirs) = (open(&here, Path::new(PATH)), open(&there, Path::new(PATH)));
    theirs.write_at(b"first", 0).unwrap();
    an_hour_ahead(&ahead);
    theirs.set_len(1).unwrap();
    theirs.commit().unwrap();
    mine.refresh().unwrap();
    mine.write_at(b"mine", 500).unwrap();
    for size in 2..102 {
        theirs.allocate(0, size, Size::Grows).unwrap();
        assert_eq!(theirs.len().unwrap(), size);
    }
    mine.sync().unwrap();
    theirs.refresh().unwrap();
    let mut bytes = [0; 4];
    assert_eq!((theirs.len().unwrap(), theirs.read_at(&mut bytes, 500).unwrap()), (504, 4));
    assert_eq!(&bytes, b"mine");
}

/// The same for who comes behind the cut: no stamp was left out by who goes by the file's clock.
#[test]
fn room_behind_a_cut_of_the_future_cuts_nothing_of_who_comes_later() {
    // Which log set has the larger number is chance.
    for _ in 0..12 {
        let (dir, mem) = (Scratch::new(), MemStore::new());
        let (here, there, ahead) = two_nodes(&dir, &mem);
        let theirs = open(&there, Path::new(PATH));
        theirs.write_at(b"first", 0).unwrap();
        an_hour_ahead(&ahead);
        theirs.set_len(1).unwrap();
        theirs.commit().unwrap();
        let mine = open(&here, Path::new(PATH));
        mine.write_at(b"mine", 500).unwrap();
        for size in [50, 100, 150, 200] {
            theirs.allocate(0, size, Size::Grows).unwrap();
            assert_eq!(theirs.len().unwrap(), size);
        }
        mine.sync().unwrap();
        theirs.refresh().unwrap();
        assert_eq!(theirs.len().unwrap(), 504);
    }
}
