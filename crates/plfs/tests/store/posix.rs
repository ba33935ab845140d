//! The real file system.

use super::*;

#[test]
fn descriptors_that_plfs_keeps_are_high_and_known() {
    let scratch = Scratch::below(&std::env::temp_dir());
    let limit =
        rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    let base = (limit / 2).clamp(64, 1024) as i32;
    let file = PosixStore::new().open(&scratch.0.join("f"), Open::create_new(0o600)).unwrap();
    let number = file.fd().unwrap().as_raw_fd();
    assert!(number >= base, "{number} < {base}");
    assert!(PosixStore::owns_fd(number));
    // Another test may get the number at once, so look at all but the last of many.
    let many: Vec<_> = (0..50)
        .map(|_| PosixStore::new().open(&scratch.0.join("f"), Open::READ).unwrap())
        .collect();
    let numbers: BTreeSet<i32> = many.iter().map(|file| file.fd().unwrap().as_raw_fd()).collect();
    assert_eq!(numbers.len(), 50);
    assert!(numbers.iter().all(|&number| PosixStore::owns_fd(number)));
    drop(many);
    assert!(numbers.iter().filter(|&&number| PosixStore::owns_fd(number)).count() < 50);
    for strange in [-1, 0, 1, 2, 131_071, 131_072, i32::MAX, i32::MIN] {
        assert!(!PosixStore::owns_fd(strange), "{strange}");
    }
}

/// A program had closed its standard error, and one of its threads went on to write there. For as
/// long as a close summed up a file, number 2 was the superblock: the program's messages took the
/// file's place.
#[test]
fn descriptors_that_are_written_are_high_however_brief() {
    let scratch = Scratch::below(&std::env::temp_dir());
    for how in [Open::create(0o600), Open::READ_WRITE] {
        let file = PosixStore::new().open(&scratch.0.join("f"), how.briefly()).unwrap();
        assert!(PosixStore::owns_fd(file.fd().unwrap().as_raw_fd()));
    }
}

#[test]
fn descriptors_for_the_program_are_its_own() {
    let scratch = Scratch::below(&std::env::temp_dir());
    let path = scratch.0.join("f");
    let file = PosixFile::open(&path, Open::create_new(0o600)).unwrap();
    let number = file.as_fd().as_raw_fd();
    assert!(!PosixStore::owns_fd(number));
    file.write_at(b"abc", 0).unwrap();
    let fd = file.into_fd();
    assert_eq!(fd.as_raw_fd(), number);
    let file = PosixFile::from_fd(fd);
    assert!(!PosixStore::owns_fd(number));
    assert_eq!(content(&file), b"abc");
}

#[test]
fn local_file_systems_are_known() {
    let store = PosixStore::new();
    if let Some(base) = shm() {
        assert!(store.is_local(base));
        assert!(store.is_local(&base.join("not/yet/there")));
    }
    assert!(!store.is_local(Path::new("/proc")));
    assert!(MemStore::new().is_local(Path::new("/")));
}

/// Locks of the real store exclude other processes and vanish with them. The other process is this
/// test program, asked to run `lock_helper` alone.
#[test]
fn posix_locks_exclude_other_processes() {
    let scratch = Scratch::below(&std::env::temp_dir());
    let path = scratch.0.join("f");
    let file = PosixStore::new().open(&path, Open::create_new(0o600)).unwrap();
    let other = |exclusive: &str| {
        let program = std::env::current_exe().unwrap();
        let output = Command::new(program)
            .args(["--exact", "posix::lock_helper", "--nocapture", "--test-threads=1"])
            .env("PLFS_TEST_LOCK", &path)
            .env("PLFS_TEST_LOCK_EXCLUSIVE", exclusive)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let got =
            text.split("lock granted: ").nth(1).unwrap_or_else(|| panic!("no answer in {text:?}"));
        got.starts_with("true")
    };
    assert!(other("1"));
    assert!(file.try_lock(LockKind::Shared).unwrap());
    assert!(other("0"));
    assert!(!other("1"));
    assert!(file.try_lock(LockKind::Exclusive).unwrap());
    assert!(!other("0"));
    drop(file);
    assert!(other("1"));
}

#[test]
fn lock_helper() {
    let Some(path) = std::env::var_os("PLFS_TEST_LOCK") else { return };
    let kind = match std::env::var("PLFS_TEST_LOCK_EXCLUSIVE").unwrap() == "1" {
        true => LockKind::Exclusive,
        false => LockKind::Shared,
    };
    let file = PosixStore::new().open(Path::new(&path), Open::READ_WRITE).unwrap();
    println!("lock granted: {}", file.try_lock(kind).unwrap());
}
