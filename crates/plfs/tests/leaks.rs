//! What a process that lives long keeps of files that are gone. An allocator counts what is in use.

mod common {
    pub mod counting;
}

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use plfs::store::{PosixStore, Store};
use plfs::{Config, File, OpenOptions, Opened, Plfs};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use common::counting;

/// Logs of closed files stay open, an eighth as many as the process may have files: few.
fn process(store: Arc<dyn Store>) -> Plfs {
    let few = Rlimit { current: Some(256), ..getrlimit(Resource::Nofile) };
    setrlimit(Resource::Nofile, few).unwrap();
    Plfs::new(store, Config { shared_memory: None, ..Config::shared() })
}

fn open(plfs: &Plfs, path: &Path) -> File {
    match plfs.open(path, OpenOptions::create()).unwrap() {
        Opened::Logical(file) => file,
        Opened::Plain(_) => panic!("{} is plain", path.display()),
    }
}

/// A process created files and closed them, as a daemon does that unpacks archives: for each it
/// kept a weak reference for ever, and with it the 1.3 KiB of the file's state. A million
/// files were 1.3 GB. Here 10,000 files come and go, and ten more stay open all the time.
#[test]
fn created_and_closed_files_leave_nothing_in_memory() {
    let _alone = counting::alone();
    // Real files: the store in memory remembers what a crash would bring back.
    let root = std::path::PathBuf::from(format!("/dev/shm/plfs-leaks-{}", std::process::id()));
    std::fs::create_dir(&root).unwrap();
    let plfs = process(Arc::new(PosixStore::new()));
    let kept: Vec<File> = (0..10).map(|i| open(&plfs, &root.join(format!("kept{i}")))).collect();
    let churn = |files: u32| {
        for _ in 0..files {
            let path = root.join("f");
            open(&plfs, &path).close().unwrap();
            plfs.unlink(&path).unwrap();
        }
    };
    churn(500);
    let before = counting::bytes_in_use();
    churn(10_000);
    let grown = counting::bytes_in_use().saturating_sub(before);
    assert!(grown < 1 << 20, "{grown} bytes for 10,000 files that are gone");
    kept.into_iter().for_each(|file| file.close().unwrap());
    std::fs::remove_dir_all(&root).unwrap();
}

/// The same for files that are written and stay, as an archive's do: of each the process remembers
/// that it is not durable yet, which is some 100 bytes, and for 65,536 of them only. What the
/// background commit has of them goes when it looks, within seconds.
#[test]
fn written_files_that_stay_leave_next_to_nothing_in_memory() {
    let _alone = counting::alone();
    let root = std::path::PathBuf::from(format!("/dev/shm/plfs-leaks-w-{}", std::process::id()));
    std::fs::create_dir(&root).unwrap();
    let plfs = process(Arc::new(PosixStore::new()));
    let unpack = |files: std::ops::Range<u32>| {
        for i in files {
            let file = open(&plfs, &root.join(format!("f{i}")));
            file.write_at(b"x", 0).unwrap();
            file.close().unwrap();
        }
    };
    unpack(0..500);
    let before = counting::bytes_in_use();
    unpack(500..5500);
    let grown = || counting::bytes_in_use().saturating_sub(before);
    let begun = Instant::now();
    while grown() >= 5000 * 300 && begun.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(grown() < 5000 * 300, "{} bytes for 5,000 files that are closed", grown());
    std::fs::remove_dir_all(&root).unwrap();
}
