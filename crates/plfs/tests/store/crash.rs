//! What the store in memory loses in a crash.

use super::random::tree;
use super::*;

#[test]
fn a_crash_loses_names_and_bytes_that_were_not_synced() {
    let store = MemStore::new();
    let root = Path::new("/");
    let file = store.open(Path::new("/f"), Open::create_new(0o600)).unwrap();
    write_full(&*file, b"synced", 0).unwrap();
    file.sync_data().unwrap();
    write_full(&*file, b"SY", 0).unwrap();
    write_full(&*file, b" and not", 6).unwrap();
    assert_eq!(names(&store.crash(), root), set(&[]));
    store.sync_dir(root).unwrap();
    let crashed = store.crash();
    assert_eq!(get(&crashed, Path::new("/f")), b"synced");
    // The old store and its files go on, apart from the new one.
    put(&crashed, Path::new("/f"), b"other!");
    assert_eq!(content(&*file), b"SYnced and not");
    file.sync_data().unwrap();
    assert_eq!(get(&store.crash(), Path::new("/f")), b"SYnced and not");
    assert_eq!(get(&crashed, Path::new("/f")), b"other!");
    // What survived is durable in the new store.
    assert_eq!(get(&store.crash().crash(), Path::new("/f")), b"SYnced and not");
    // A name that is durable without any sync of the file leads to nothing.
    put(&store, Path::new("/g"), b"lost");
    store.sync_dir(root).unwrap();
    assert_eq!(get(&store.crash(), Path::new("/g")), b"");
    // A shorter length is as volatile as a longer one.
    file.set_len(3).unwrap();
    file.set_len(8).unwrap();
    assert_eq!(get(&store.crash(), Path::new("/f")), b"SYnced and not");
    file.sync_data().unwrap();
    assert_eq!(get(&store.crash(), Path::new("/f")), b"SYn\0\0\0\0\0");
}

#[test]
fn a_crash_brings_removed_names_back() {
    let store = MemStore::new();
    let root = Path::new("/");
    make_dirs(&store, Path::new("/d/e"));
    put(&store, Path::new("/d/e/f"), b"1");
    put(&store, Path::new("/g"), b"2");
    for path in ["/d/e/f", "/g"] {
        store.open(Path::new(path), Open::READ).unwrap().sync_data().unwrap();
    }
    for path in ["/", "/d", "/d/e"] {
        store.sync_dir(Path::new(path)).unwrap();
    }
    store.unlink(Path::new("/d/e/f")).unwrap();
    store.rmdir(Path::new("/d/e")).unwrap();
    store.rmdir(Path::new("/d")).unwrap();
    store.link(Path::new("/g"), Path::new("/h")).unwrap();
    store.rename(Path::new("/g"), Path::new("/i")).unwrap();
    let crashed = store.crash();
    assert_eq!(get(&crashed, Path::new("/d/e/f")), b"1");
    assert_eq!(names(&crashed, root), set(&["d", "g"]));
    assert_eq!(crashed.stat(Path::new("/g"), Links::Follow).unwrap().nlink, 1);
    assert_eq!(crashed.stat(root, Links::Follow).unwrap().nlink, 3);
    store.sync_dir(root).unwrap();
    assert_eq!(names(&store.crash(), root), set(&["h", "i"]));
    assert_eq!(store.crash().stat(Path::new("/h"), Links::Follow).unwrap().nlink, 2);
    // A removed file that a program holds open is gone all the same.
    let file = store.open(Path::new("/h"), Open::READ).unwrap();
    store.unlink(Path::new("/h")).unwrap();
    store.unlink(Path::new("/i")).unwrap();
    store.sync_dir(root).unwrap();
    assert_eq!(names(&store.crash(), root), set(&[]));
    assert_eq!(content(&*file), b"2");
}

#[test]
fn a_crash_takes_each_directory_for_itself() {
    let store = MemStore::new();
    make_dirs(&store, Path::new("/a/sub"));
    make_dirs(&store, Path::new("/b"));
    put(&store, Path::new("/a/f"), b"");
    put(&store, Path::new("/a/sub/g"), b"");
    for path in ["/", "/a", "/b", "/a/sub"] {
        store.sync_dir(Path::new(path)).unwrap();
    }
    store.rename(Path::new("/a/f"), Path::new("/b/f")).unwrap();
    store.rename(Path::new("/a/sub"), Path::new("/b/sub")).unwrap();
    assert_eq!(names(&store.crash(), Path::new("/a")), set(&["f", "sub"]));
    let target_first = {
        store.sync_dir(Path::new("/b")).unwrap();
        store.crash()
    };
    // The file has two names; the directory cannot, and has the new one.
    assert_eq!(names(&target_first, Path::new("/a")), set(&["f"]));
    assert_eq!(names(&target_first, Path::new("/b")), set(&["f", "sub"]));
    assert_eq!(target_first.stat(Path::new("/b/f"), Links::Follow).unwrap().nlink, 2);
    assert_eq!(names(&target_first, Path::new("/b/sub/../sub")), set(&["g"]));
    store.sync_dir(Path::new("/a")).unwrap();
    assert_eq!(names(&store.crash(), Path::new("/a")), set(&[]));
    // A directory moved into one that is lost stays where it was.
    make_dirs(&store, Path::new("/new"));
    store.rename(Path::new("/b/sub"), Path::new("/new/sub")).unwrap();
    store.sync_dir(Path::new("/new")).unwrap();
    assert_eq!(names(&store.crash(), Path::new("/")), set(&["a", "b"]));
    assert_eq!(names(&store.crash(), Path::new("/b/sub")), set(&["g"]));
}

#[test]
fn chance_never_touches_what_was_synced() {
    let store = MemStore::new();
    let file = store.open(Path::new("/f"), Open::create_new(0o600)).unwrap();
    let synced: Vec<u8> = (0..10_000u32).map(|n| n as u8 | 1).collect();
    write_full(&*file, &synced, 0).unwrap();
    file.sync_data().unwrap();
    store.sync_dir(Path::new("/")).unwrap();
    let appended = [0xee; 9000];
    write_full(&*file, &appended, synced.len() as u64).unwrap();
    let mut lengths = BTreeSet::new();
    let (mut whole, mut zeros, mut torn) = (0, 0, 0);
    for seed in 0..200 {
        let crashed = store.crash_with(seed);
        assert_eq!(tree(&crashed, Path::new("/")), tree(&store.crash_with(seed), Path::new("/")));
        let bytes = get(&crashed, Path::new("/f"));
        assert_eq!(bytes[..synced.len()], synced);
        let tail = &bytes[synced.len()..];
        assert!(tail.iter().all(|&byte| byte == 0 || byte == 0xee));
        lengths.insert(bytes.len());
        whole += usize::from(tail == appended);
        zeros += usize::from(tail.contains(&0));
        torn += usize::from(tail.windows(2).any(|pair| pair == [0xee, 0] || pair == [0, 0xee]));
    }
    assert!(lengths.contains(&10_000) && lengths.contains(&19_000) && lengths.len() > 30);
    assert!(whole > 0 && zeros > 20 && torn > 20, "{whole} {zeros} {torn}");
}

#[test]
fn chance_lets_overwritten_pages_be_old_new_zero_or_torn() {
    let store = MemStore::new();
    let file = store.open(Path::new("/f"), Open::create_new(0o600)).unwrap();
    write_full(&*file, &[1; 8192], 0).unwrap();
    file.sync_data().unwrap();
    store.sync_dir(Path::new("/")).unwrap();
    write_full(&*file, &[2; 4000], 100).unwrap();
    let mut seen = BTreeSet::new();
    for seed in 0..100 {
        let bytes = get(&store.crash_with(seed), Path::new("/f"));
        assert_eq!(bytes.len(), 8192);
        assert!(bytes[..100].iter().chain(&bytes[4100..]).all(|&byte| byte == 1));
        let kinds: BTreeSet<u8> = bytes[100..4096].iter().copied().collect();
        seen.insert(kinds);
    }
    let expected: BTreeSet<BTreeSet<u8>> = [&[0][..], &[1], &[2], &[1, 2]]
        .iter()
        .map(|kinds| kinds.iter().copied().collect())
        .collect();
    assert_eq!(seen, expected);
}

#[test]
fn chance_keeps_or_loses_each_change_of_a_name() {
    let store = MemStore::new();
    let root = Path::new("/");
    put(&store, Path::new("/old"), b"");
    put(&store, Path::new("/gone"), b"");
    store.sync_dir(root).unwrap();
    store.rename(Path::new("/old"), Path::new("/new")).unwrap();
    store.unlink(Path::new("/gone")).unwrap();
    store.mkdir(Path::new("/dir"), 0o700).unwrap();
    let seen: BTreeSet<BTreeSet<String>> =
        (0..200).map(|seed| names(&store.crash_with(seed), root)).collect();
    // Three changes; the rename as one, so there is always exactly one of its names.
    assert_eq!(seen.len(), 8);
    assert!(seen.iter().all(|names| names.contains("old") != names.contains("new")));
}

#[test]
fn chance_may_undo_a_truncation_but_not_half_of_it() {
    let store = MemStore::new();
    let file = store.open(Path::new("/f"), Open::create_new(0o600)).unwrap();
    write_full(&*file, &[1; 20_000], 0).unwrap();
    file.sync_data().unwrap();
    store.sync_dir(Path::new("/")).unwrap();
    file.set_len(5000).unwrap();
    let mut lengths = BTreeSet::new();
    for seed in 0..100 {
        let bytes = get(&store.crash_with(seed), Path::new("/f"));
        assert!(bytes.len() >= 5000 && bytes.iter().all(|&byte| byte == 1));
        lengths.insert(bytes.len());
    }
    assert!(lengths.contains(&5000) && lengths.contains(&20_000));
}
