//! One list of behaviours, which every store must show alike; then what is special to each.

mod behaviours;
mod crash;
mod inside;
mod memory;
mod posix;
mod random;

use std::collections::BTreeSet;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use plfs::store::{
    Errno, Keep, Kind, Links, LockKind, Open, Place, PosixFile, PosixStore, Store, StoreFile, Time,
    read_full, write_full,
};
use plfs_testkit::{FaultStore, MemStore, seeds};

/// A directory of the real file system that vanishes with the value.
struct Scratch(PathBuf);

impl Scratch {
    fn below(base: &Path) -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "plfs-store-test-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        // Without symbolic links on the way, so that the path means the same in a store that has
        // only this directory.
        let path = std::fs::canonicalize(base).unwrap().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn shm() -> Option<&'static Path> {
    let path = Path::new("/dev/shm");
    if !path.is_dir() {
        eprintln!("skipped: no /dev/shm here");
        return None;
    }
    Some(path)
}

fn make_dirs(store: &dyn Store, path: &Path) {
    if let Some(parent) = path.parent() {
        make_dirs(store, parent);
        match store.mkdir(path, 0o755) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => panic!("mkdir {}: {errno}", path.display()),
        }
    }
}

fn put(store: &dyn Store, path: &Path, bytes: &[u8]) {
    let file = store.open(path, Open::create(0o644)).unwrap();
    write_full(&*file, bytes, 0).unwrap();
}

fn get(store: &dyn Store, path: &Path) -> Vec<u8> {
    content(&*store.open(path, Open::READ).unwrap())
}

fn content(file: &dyn StoreFile) -> Vec<u8> {
    let mut bytes = vec![0xaa; file.stat().unwrap().len as usize + 3];
    let n = read_full(file, &mut bytes, 0).unwrap();
    assert_eq!(n, bytes.len() - 3);
    bytes.truncate(n);
    bytes
}

fn names(store: &dyn Store, path: &Path) -> BTreeSet<String> {
    store.list(path).unwrap().into_iter().map(|entry| entry.name.into_string().unwrap()).collect()
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| name.to_string()).collect()
}

/// The list. Each behaviour gets a store and an empty directory in it.
macro_rules! behaviours {
    ($($name:ident),* $(,)?) => {
        const BEHAVIOURS: &[(&str, fn(&dyn Store, &Path))] =
            &[$((stringify!($name), behaviours::$name)),*];
    };
}

behaviours![
    files_are_created_opened_and_refused,
    bytes_are_read_back_with_zeros_in_holes,
    the_length_can_be_set,
    opens_allow_only_what_they_asked_for,
    maps_show_the_whole_file,
    directories_are_made_listed_and_removed,
    directories_get_their_mode_less_the_umask,
    all_files_of_a_directory_are_removed_but_one,
    names_and_links_count_and_files_outlive_them,
    symlinks_are_followed_or_not,
    symlink_loops_and_long_chains_end,
    renames_replace_atomically_or_refuse,
    renames_move_directories,
    missing_paths_and_wrong_kinds_have_their_errors,
    odd_paths_mean_what_posix_says,
    modes_and_owners_are_set,
    times_are_set_exactly_and_move_forward,
    syncs_succeed,
    there_is_room,
    locks_belong_to_the_open_file,
];

fn run_all(store: &dyn Store, root: &Path) {
    make_dirs(store, root);
    for (name, behaviour) in BEHAVIOURS {
        eprintln!("  {name}");
        let dir = root.join(name);
        store.mkdir(&dir, 0o755).unwrap();
        behaviour(store, &dir);
    }
}

#[test]
fn posix_store_in_the_temporary_directory() {
    let scratch = Scratch::below(&std::env::temp_dir());
    run_all(&PosixStore::new(), &scratch.0);
}

#[test]
fn posix_store_in_shared_memory() {
    let Some(base) = shm() else { return };
    let scratch = Scratch::below(base);
    run_all(&PosixStore::new(), &scratch.0);
}

/// Behaviours of paths that lead over links or say `..` or end with a slash: what lies inside a
/// container has none of them.
const OUTSIDE_ONLY: &[&str] = &[
    "symlinks_are_followed_or_not",
    "symlink_loops_and_long_chains_end",
    "odd_paths_mean_what_posix_says",
    "renames_move_directories",
    "modes_and_owners_are_set",
];

/// The list in views that follow no links, with and without a descriptor.
fn run_all_inside(store: &dyn Store, root: &Path) {
    make_dirs(store, &root.join("top"));
    for keep in [Keep::Nothing, Keep::WhenUsed, Keep::Now, Keep::ToHold] {
        for (name, behaviour) in BEHAVIOURS.iter().filter(|(name, _)| !OUTSIDE_ONLY.contains(name))
        {
            eprintln!("  {keep:?}: {name}");
            let dir = root.join("top").join(format!("{keep:?}-{name}"));
            let view = store
                .inside(vec![Place { root: root.to_path_buf(), dir: dir.clone() }], keep)
                .unwrap();
            view.mkdir(&dir, 0o755).unwrap();
            behaviour(&*view, &dir);
        }
    }
}

#[test]
fn posix_store_inside_a_place() {
    let scratch = Scratch::below(&std::env::temp_dir());
    run_all_inside(&PosixStore::new(), &scratch.0);
}

#[test]
fn posix_store_inside_a_place_without_openat2() {
    let scratch = Scratch::below(&std::env::temp_dir());
    run_all_inside(&PosixStore::without_openat2(), &scratch.0);
}

#[test]
fn mem_store_inside_a_place() {
    run_all_inside(&MemStore::new(), Path::new("/some/where"));
}

#[test]
fn fault_store_inside_a_place() {
    run_all_inside(&FaultStore::new(Arc::new(MemStore::new())), Path::new("/some/where"));
}

#[test]
fn mem_store() {
    run_all(&MemStore::new(), Path::new("/some/where"));
}

#[test]
fn fault_store_without_faults() {
    let store = FaultStore::new(Arc::new(MemStore::new()));
    run_all(&store, Path::new("/some/where"));
    assert!(store.calls() > 100);
}

/// What survives a crash after everything was synced behaves like any other store.
#[test]
fn mem_store_after_a_crash() {
    let store = MemStore::new();
    put(&store, Path::new("/unsynced"), b"x");
    run_all(&store.crash(), Path::new("/some/where"));
}
