//! The store in memory.

use super::*;

#[test]
fn mem_files_may_be_as_long_as_offsets_go() {
    let store = MemStore::new();
    let file = store.open(Path::new("/f"), Open::create_new(0o600)).unwrap();
    write_full(&*file, b"far", 1 << 60).unwrap();
    let mut buf = [1; 8];
    assert_eq!(file.read_at(&mut buf, (1 << 60) - 3), Ok(6));
    assert_eq!(&buf[..6], b"\0\0\0far");
    assert_eq!(file.stat().unwrap().len, (1 << 60) + 3);
    assert_eq!(file.stat().unwrap().blocks, 8);
    assert_eq!(file.map().err(), Some(Errno::NOMEM));
    let max = i64::MAX as u64;
    assert_eq!(file.write_at(b"ab", max - 1), Ok(1));
    assert_eq!(file.write_at(b"b", max), Err(Errno::FBIG));
    assert_eq!(file.stat().unwrap().len, max);
    file.sync_data().unwrap();
    store.sync_dir(Path::new("/")).unwrap();
    for seed in 0..10 {
        assert_eq!(store.crash_with(seed).stat(Path::new("/f"), Links::Follow).unwrap().len, max);
    }
}

#[test]
fn mem_store_serves_many_threads() {
    let store = MemStore::new();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let store = &store;
            scope.spawn(move || {
                let shared = store.open(Path::new("/shared"), Open::create(0o600)).unwrap();
                for n in 0..200u64 {
                    write_full(&*shared, &[thread as u8 + 1; 100], (n * 4 + thread) * 100).unwrap();
                    let path = PathBuf::from(format!("/{thread}-{n}"));
                    put(store, &path, b"x");
                    store.rename(&path, Path::new("/last")).unwrap();
                }
            });
        }
    });
    assert_eq!(names(&store, Path::new("/")), set(&["last", "shared"]));
    let expected: Vec<u8> = (0..800).flat_map(|n| [n as u8 % 4 + 1; 100]).collect();
    assert_eq!(get(&store, Path::new("/shared")), expected);
}
