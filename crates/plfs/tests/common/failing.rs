//! A store that fails on demand, and what a healthy process reads of it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use plfs::store::{Links, Store};
use plfs::{Config, Plfs};
use plfs_testkit::{FaultStore, MemStore};

use super::scratch::open;

/// A store that fails on demand, in memory; every process has a log set of its own.
pub struct Fixture {
    pub memory: MemStore,
    pub faults: FaultStore,
    pub config: Config,
}

pub const NAME: &str = "/m/f";

impl Fixture {
    pub fn new() -> Fixture {
        Fixture::on(MemStore::new())
    }

    pub fn on(memory: MemStore) -> Fixture {
        for dir in ["/m", "/n"] {
            memory.mkdir(Path::new(dir), 0o755).unwrap();
        }
        let faults = FaultStore::new(Arc::new(memory.clone()));
        Fixture { memory, faults, config: Config { shared_memory: None, ..Config::shared() } }
    }

    /// A process whose storage may fail.
    pub fn process(&self) -> Plfs {
        Plfs::new(Arc::new(self.faults.clone()), self.config.clone())
    }

    /// What a healthy process reads.
    pub fn content(&self) -> Vec<u8> {
        content(&Plfs::new(Arc::new(self.memory.clone()), self.config.clone()), Path::new(NAME))
    }

    pub fn files(&self, end: &str) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut todo = vec![PathBuf::from("/m/.plfs"), PathBuf::from("/n/.plfs")];
        while let Some(dir) = todo.pop() {
            for entry in self.memory.list(&dir).unwrap_or_default() {
                let path = dir.join(entry.name);
                match self.memory.stat(&path, Links::Stay).unwrap().kind {
                    plfs::store::Kind::Dir => todo.push(path),
                    _ if path.to_string_lossy().ends_with(end) => found.push(path),
                    _ => {}
                }
            }
        }
        found.sort();
        found
    }
}

pub fn content(plfs: &Plfs, path: &Path) -> Vec<u8> {
    let file = open(plfs, path);
    let mut bytes = vec![0xee; file.len().unwrap() as usize];
    let n = file.read_at(&mut bytes, 0).unwrap();
    bytes.truncate(n);
    bytes
}
