//! A directory for the shared memory and real files of one test, and files in it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use plfs::{Config, File, OpenOptions, Opened, Plfs};

/// A new directory in memory, which is whoever's it is to remove.
pub fn fresh_dir() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let dir = PathBuf::from(format!(
        "/dev/shm/plfs-test-{}-{}",
        std::process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    ));
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

/// A directory in memory, `shm` in it for the pages of a node. Removed when it is dropped.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new() -> Scratch {
        let dir = fresh_dir();
        std::fs::create_dir(dir.join("shm")).unwrap();
        Scratch(dir)
    }

    /// Processes with this configuration are on one node.
    pub fn config(&self) -> Config {
        Config { shared_memory: Some(self.0.join("shm")), ..Config::shared() }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Opens a PLFS file, or makes it.
pub fn open(plfs: &Plfs, path: &Path) -> File {
    match plfs.open(path, OpenOptions::create()).unwrap() {
        Opened::Logical(file) => file,
        Opened::Plain(_) => panic!("{} is plain", path.display()),
    }
}
