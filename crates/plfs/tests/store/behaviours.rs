//! The behaviours of the list: each gets a store and an empty directory in it.

use super::*;

pub fn files_are_created_opened_and_refused(store: &dyn Store, dir: &Path) {
    let path = dir.join("f");
    assert_eq!(store.open(&path, Open::READ).unwrap_err(), Errno::NOENT);
    let file = store.open(&path, Open::create_new(0o640)).unwrap();
    let stat = file.stat().unwrap();
    assert_eq!((stat.kind, stat.len, stat.nlink, stat.mode & !0o077), (Kind::File, 0, 1, 0o600));
    assert_eq!(store.stat(&path, Links::Follow).unwrap(), stat);
    assert_eq!(store.open(&path, Open::create_new(0o640)).unwrap_err(), Errno::EXIST);
    store.open(&path, Open::create(0o640)).unwrap();
    store.open(&path, Open::READ_WRITE).unwrap();
    assert_eq!(names(store, dir), set(&["f"]));
    // Without `create`, `exclusive` means nothing.
    store.open(&path, Open { exclusive: true, ..Open::READ }).unwrap();
    if let Some(fd) = file.fd() {
        assert!(rustix::io::fcntl_getfd(fd).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
    }
}

pub fn bytes_are_read_back_with_zeros_in_holes(store: &dyn Store, dir: &Path) {
    let file = store.open(&dir.join("f"), Open::create_new(0o600)).unwrap();
    let data: Vec<u8> = (0..20_000u32).map(|n| n as u8 | 1).collect();
    write_full(&*file, &data, 10_001).unwrap();
    write_full(&*file, b"abc", 3).unwrap();
    let mut expected = vec![0; 10_001];
    expected[3..6].copy_from_slice(b"abc");
    expected.extend_from_slice(&data);
    assert_eq!(content(&*file), expected);
    write_full(&*file, b"xyz", 12_287).unwrap();
    expected[12_287..12_290].copy_from_slice(b"xyz");
    assert_eq!(content(&*file), expected);
    let mut buf = [7; 10];
    assert_eq!(file.read_at(&mut buf, 29_996), Ok(5));
    assert_eq!((&buf[..5], &buf[5..]), (&expected[29_996..], &[7; 5][..]));
    assert_eq!(file.read_at(&mut buf, 30_001), Ok(0));
    assert_eq!(file.read_at(&mut buf, 1 << 40), Ok(0));
    assert_eq!(file.read_at(&mut [], 0), Ok(0));
    assert_eq!(file.write_at(&[], 1 << 40), Ok(0));
    assert_eq!(file.stat().unwrap().len, 30_001);
    assert_eq!(file.read_at(&mut buf, u64::MAX), Err(Errno::INVAL));
    assert_eq!(file.write_at(b"x", u64::MAX), Err(Errno::INVAL));
    // A hole costs nothing.
    write_full(&*file, b"end", 1 << 40).unwrap();
    assert_eq!(file.read_at(&mut buf, (1 << 40) - 2), Ok(5));
    assert_eq!(&buf[..5], b"\0\0end");
    assert!(file.stat().unwrap().blocks < 1000);
}

pub fn all_files_of_a_directory_are_removed_but_one(store: &dyn Store, dir: &Path) {
    for name in ["a", "b", "super"] {
        put(store, &dir.join(name), b"x");
    }
    store.mkdir(&dir.join("d"), 0o755).unwrap();
    put(store, &dir.join("d/inside"), b"x");
    store.symlink(&dir.join("d"), &dir.join("link")).unwrap();
    let left = store.unlink_files(dir, "super").unwrap();
    let left: BTreeSet<String> =
        left.into_iter().map(|entry| entry.name.into_string().unwrap()).collect();
    assert_eq!(left, set(&["d", "super"]));
    assert_eq!(names(store, dir), left);
    assert_eq!(names(store, &dir.join("d")), set(&["inside"]));
    assert_eq!(store.unlink_files(&dir.join("no"), "x").unwrap_err(), Errno::NOENT);
    assert_eq!(store.unlink_files(&dir.join("super"), "x").unwrap_err(), Errno::NOTDIR);
}

pub fn the_length_can_be_set(store: &dyn Store, dir: &Path) {
    let file = store.open(&dir.join("f"), Open::create_new(0o600)).unwrap();
    write_full(&*file, &[1; 9000], 0).unwrap();
    file.set_len(8193).unwrap();
    file.set_len(4097).unwrap();
    file.set_len(9000).unwrap();
    let mut expected = vec![1; 4097];
    expected.resize(9000, 0);
    assert_eq!(content(&*file), expected);
    file.set_len(4096).unwrap();
    file.set_len(4098).unwrap();
    expected.truncate(4098);
    expected[4096] = 0;
    assert_eq!(content(&*file), expected);
    file.set_len(0).unwrap();
    assert_eq!(content(&*file), b"");
    assert_eq!(file.set_len(u64::MAX), Err(Errno::INVAL));
    file.set_len(1 << 40).unwrap();
    assert_eq!(file.stat().unwrap().len, 1 << 40);
}

pub fn opens_allow_only_what_they_asked_for(store: &dyn Store, dir: &Path) {
    let path = dir.join("f");
    put(store, &path, b"abc");
    let reader = store.open(&path, Open::READ).unwrap();
    assert_eq!(reader.write_at(b"x", 0), Err(Errno::BADF));
    assert_eq!(reader.set_len(0), Err(Errno::INVAL));
    let writer = store.open(&path, Open { read: false, ..Open::READ_WRITE }).unwrap();
    assert_eq!(writer.read_at(&mut [0], 0), Err(Errno::BADF));
    assert_eq!(writer.map().err(), Some(Errno::ACCESS));
    writer.write_at(b"x", 0).unwrap();
    assert_eq!(content(&*reader), b"xbc");
}

pub fn maps_show_the_whole_file(store: &dyn Store, dir: &Path) {
    let path = dir.join("f");
    let file = store.open(&path, Open::create_new(0o600)).unwrap();
    assert_eq!((*file.map().unwrap()).as_ref(), b"");
    write_full(&*file, &[5; 5000], 0).unwrap();
    let map = file.map().unwrap();
    drop(file);
    store.unlink(&path).unwrap();
    assert_eq!((*map).as_ref(), [5; 5000]);
}

pub fn directories_are_made_listed_and_removed(store: &dyn Store, dir: &Path) {
    let sub = dir.join("sub");
    store.mkdir(&sub, 0o700).unwrap();
    assert_eq!(store.mkdir(&sub, 0o700), Err(Errno::EXIST));
    assert_eq!(store.stat(&sub, Links::Follow).unwrap().kind, Kind::Dir);
    assert_eq!(names(store, &sub), set(&[]));
    let many: BTreeSet<String> =
        (0..1500).map(|n| format!("a-rather-long-name-to-fill-buffers-{n:05}")).collect();
    for name in &many {
        store.open(&sub.join(name), Open::create_new(0o600)).unwrap();
    }
    assert_eq!(names(store, &sub), many);
    assert_eq!(store.rmdir(&sub), Err(Errno::NOTEMPTY));
    for name in &many {
        store.unlink(&sub.join(name)).unwrap();
    }
    put(store, &sub.join("file"), b"");
    store.mkdir(&sub.join("dir"), 0o700).unwrap();
    store.symlink(Path::new("x"), &sub.join("link")).unwrap();
    for entry in store.list(&sub).unwrap() {
        let kind = store.stat(&sub.join(&entry.name), Links::Stay).unwrap().kind;
        assert_eq!(entry.kind.unwrap_or(kind), kind);
    }
    for name in ["file", "link"] {
        assert_eq!(store.rmdir(&sub.join(name)), Err(Errno::NOTDIR));
        store.unlink(&sub.join(name)).unwrap();
    }
    assert_eq!(store.unlink(&sub.join("dir")), Err(Errno::ISDIR));
    store.rmdir(&sub.join("dir")).unwrap();
    store.rmdir(&sub).unwrap();
    assert_eq!(store.list(&sub), Err(Errno::NOENT));
    assert_eq!(store.rmdir(&sub), Err(Errno::NOENT));
}

pub fn directories_get_their_mode_less_the_umask(store: &dyn Store, dir: &Path) {
    for mode in [0o700, 0o777, 0o1777, 0o000] {
        let path = dir.join(format!("{mode:o}"));
        store.mkdir(&path, mode).unwrap();
        assert_eq!(store.stat(&path, Links::Follow).unwrap().mode, mode & !0o022);
    }
}

pub fn names_and_links_count_and_files_outlive_them(store: &dyn Store, dir: &Path) {
    let (a, b) = (dir.join("a"), dir.join("b"));
    let file = store.open(&a, Open::create_new(0o600)).unwrap();
    store.link(&a, &b).unwrap();
    assert_eq!(store.link(&a, &b), Err(Errno::EXIST));
    assert_eq!(store.link(&dir.join("missing"), &dir.join("c")), Err(Errno::NOENT));
    assert_eq!(store.link(dir, &dir.join("c")), Err(Errno::PERM));
    assert_eq!(
        store.stat(&a, Links::Follow).unwrap().ino,
        store.stat(&b, Links::Follow).unwrap().ino
    );
    assert_eq!(file.stat().unwrap().nlink, 2);
    put(store, &b, b"through b");
    assert_eq!(content(&*file), b"through b");
    store.unlink(&a).unwrap();
    store.unlink(&b).unwrap();
    assert_eq!(store.unlink(&b), Err(Errno::NOENT));
    assert_eq!(file.stat().unwrap().nlink, 0);
    file.write_at(b"T", 0).unwrap();
    assert_eq!(content(&*file), b"Through b");
    put(store, &a, b"another");
    assert_eq!(content(&*file), b"Through b");
    assert_ne!(store.stat(&a, Links::Follow).unwrap().ino, file.stat().unwrap().ino);
    // A link to a link, not to what it leads to; and none over a dangling one.
    store.symlink(Path::new("nowhere"), &dir.join("s")).unwrap();
    store.link(&dir.join("s"), &dir.join("t")).unwrap();
    assert_eq!(store.readlink(&dir.join("t")).unwrap(), Path::new("nowhere"));
    assert_eq!(store.stat(&dir.join("t"), Links::Stay).unwrap().nlink, 2);
    assert_eq!(store.link(&a, &dir.join("s")), Err(Errno::EXIST));
    store.mkdir(&dir.join("d"), 0o700).unwrap();
    store.mkdir(&dir.join("d/e"), 0o700).unwrap();
    assert_eq!(store.link(&dir.join("s"), &dir.join("d/e/s")), Ok(()));
}

pub fn symlinks_are_followed_or_not(store: &dyn Store, dir: &Path) {
    let (target, link) = (dir.join("target"), dir.join("link"));
    store.symlink(Path::new("target"), &link).unwrap();
    assert_eq!(store.symlink(Path::new("x"), &link), Err(Errno::EXIST));
    assert_eq!(store.symlink(Path::new(""), &dir.join("empty")), Err(Errno::NOENT));
    assert_eq!(store.readlink(&link).unwrap(), Path::new("target"));
    assert_eq!(store.stat(&link, Links::Follow), Err(Errno::NOENT));
    let stat = store.stat(&link, Links::Stay).unwrap();
    assert_eq!((stat.kind, stat.len, stat.mode), (Kind::Symlink, 6, 0o777));
    assert_eq!(store.open(&link, Open::READ).unwrap_err(), Errno::NOENT);
    assert_eq!(store.open(&link, Open::create_new(0o600)).unwrap_err(), Errno::EXIST);
    assert_eq!(store.mkdir(&link, 0o700), Err(Errno::EXIST));
    put(store, &link, b"through the link");
    assert_eq!(get(store, &target), b"through the link");
    assert_eq!(store.readlink(&target), Err(Errno::INVAL));
    store.mkdir(&dir.join("d"), 0o700).unwrap();
    store.symlink(&dir.join("d"), &dir.join("abs")).unwrap();
    store.symlink(Path::new("../abs"), &dir.join("d/up")).unwrap();
    put(store, &dir.join("d/up/up/up/f"), b"deep");
    assert_eq!(get(store, &dir.join("d/f")), b"deep");
    assert_eq!(
        store.stat(&dir.join("d/up/.."), Links::Stay).unwrap().ino,
        store.stat(dir, Links::Follow).unwrap().ino
    );
    assert_eq!(names(store, &dir.join("abs")), set(&["up", "f"]));
    assert_eq!(store.rmdir(&dir.join("abs")), Err(Errno::NOTDIR));
    store.unlink(&dir.join("abs")).unwrap();
    assert_eq!(names(store, &dir.join("d")), set(&["up", "f"]));
}

pub fn symlink_loops_and_long_chains_end(store: &dyn Store, dir: &Path) {
    store.symlink(Path::new("b"), &dir.join("a")).unwrap();
    store.symlink(Path::new("a"), &dir.join("b")).unwrap();
    assert_eq!(store.stat(&dir.join("a"), Links::Follow), Err(Errno::LOOP));
    assert_eq!(store.open(&dir.join("a"), Open::create(0o600)).unwrap_err(), Errno::LOOP);
    assert_eq!(store.stat(&dir.join("a/x"), Links::Stay), Err(Errno::LOOP));
    put(store, &dir.join("0"), b"end");
    for n in 1..=41 {
        store.symlink(Path::new(&format!("{}", n - 1)), &dir.join(n.to_string())).unwrap();
    }
    assert_eq!(get(store, &dir.join("40")), b"end");
    assert_eq!(store.open(&dir.join("41"), Open::READ).unwrap_err(), Errno::LOOP);
}

pub fn renames_replace_atomically_or_refuse(store: &dyn Store, dir: &Path) {
    let path = |name: &str| dir.join(name);
    put(store, &path("a"), b"a");
    put(store, &path("b"), b"b");
    let old = store.open(&path("b"), Open::READ).unwrap();
    store.rename(&path("a"), &path("b")).unwrap();
    assert_eq!(get(store, &path("b")), b"a");
    assert_eq!(content(&*old), b"b");
    assert_eq!(old.stat().unwrap().nlink, 0);
    assert_eq!(store.rename(&path("a"), &path("b")), Err(Errno::NOENT));
    assert_eq!(store.rename(&path("b"), &path("none/b")), Err(Errno::NOENT));
    assert_eq!(store.rename(&path("b"), &path("b")), Ok(()));
    // Two names of one file: nothing happens, both stay.
    store.link(&path("b"), &path("c")).unwrap();
    store.rename(&path("b"), &path("c")).unwrap();
    store.unlink(&path("b")).unwrap();
    store.mkdir(&path("d"), 0o700).unwrap();
    store.mkdir(&path("e"), 0o700).unwrap();
    put(store, &path("e/x"), b"x");
    assert_eq!(store.rename(&path("c"), &path("d")), Err(Errno::ISDIR));
    assert_eq!(store.rename(&path("d"), &path("c")), Err(Errno::NOTDIR));
    assert_eq!(store.rename(&path("d"), &path("e")), Err(Errno::NOTEMPTY));
    assert_eq!(store.rename(&path("e"), &path("d")), Ok(()));
    assert_eq!(names(store, dir), set(&["c", "d"]));
    // The link itself moves, and is replaced itself.
    store.symlink(Path::new("c"), &path("s")).unwrap();
    store.rename(&path("s"), &path("t")).unwrap();
    assert_eq!(store.readlink(&path("t")).unwrap(), Path::new("c"));
    store.rename(&path("c"), &path("t")).unwrap();
    assert_eq!(store.stat(&path("t"), Links::Stay).unwrap().kind, Kind::File);
}

pub fn renames_move_directories(store: &dyn Store, dir: &Path) {
    let path = |name: &str| dir.join(name);
    make_dirs(store, &path("a/b/c"));
    assert_eq!(store.rename(&path("a"), &path("a/b/d")), Err(Errno::INVAL));
    assert_eq!(store.rename(&path("a"), &path("a/d")), Err(Errno::INVAL));
    assert_eq!(store.rename(&path("a/b/c"), &path("a")), Err(Errno::NOTEMPTY));
    put(store, &path("a/b/f"), b"f");
    assert_eq!(store.rename(&path("a/b/f"), &path("a")), Err(Errno::NOTEMPTY));
    store.rename(&path("a/b"), &path("b")).unwrap();
    assert_eq!(get(store, &path("b/c/../f")), b"f");
    assert_eq!(
        store.stat(&path("b/.."), Links::Follow).unwrap().ino,
        store.stat(dir, Links::Follow).unwrap().ino
    );
    assert_eq!(names(store, &path("a")), set(&[]));
    assert_eq!(names(store, dir), set(&["a", "b"]));
}

pub fn missing_paths_and_wrong_kinds_have_their_errors(store: &dyn Store, dir: &Path) {
    let file = dir.join("f");
    put(store, &file, b"");
    for (below, errno) in [(dir.join("none/x"), Errno::NOENT), (file.join("x"), Errno::NOTDIR)] {
        assert_eq!(store.open(&below, Open::create(0o600)).unwrap_err(), errno);
        assert_eq!(store.stat(&below, Links::Follow), Err(errno));
        assert_eq!(store.list(&below), Err(errno));
        assert_eq!(store.mkdir(&below, 0o700), Err(errno));
        assert_eq!(store.rmdir(&below), Err(errno));
        assert_eq!(store.unlink(&below), Err(errno));
        assert_eq!(store.rename(&below, &file), Err(errno));
        assert_eq!(store.rename(&file, &below), Err(errno));
        assert_eq!(store.link(&below, &dir.join("l")), Err(errno));
        assert_eq!(store.link(&file, &below), Err(errno));
        assert_eq!(store.symlink(Path::new("x"), &below), Err(errno));
        assert_eq!(store.readlink(&below), Err(errno));
        assert_eq!(store.chmod(&below, 0o600), Err(errno));
        assert_eq!(store.chown(&below, None, None, Links::Follow), Err(errno));
        assert_eq!(store.set_times(&below, None, None), Err(errno));
        assert_eq!(store.set_times(&below, Some(Time::default()), None), Err(errno));
        assert_eq!(store.sync_dir(&below), Err(errno));
        assert_eq!(store.space(&below), Err(errno));
    }
    assert_eq!(store.list(&file), Err(Errno::NOTDIR));
    assert_eq!(store.sync_dir(&file), Err(Errno::NOTDIR));
    assert_eq!(store.open(dir, Open::READ_WRITE).unwrap_err(), Errno::ISDIR);
    assert_eq!(store.open(dir, Open::create(0o600)).unwrap_err(), Errno::ISDIR);
    assert_eq!(store.open(dir, Open::create_new(0o600)).unwrap_err(), Errno::EXIST);
    let opened = store.open(dir, Open::READ).unwrap();
    assert_eq!(opened.stat().unwrap().kind, Kind::Dir);
    assert_eq!(opened.read_at(&mut [0; 10], 0), Err(Errno::ISDIR));
}

pub fn odd_paths_mean_what_posix_says(store: &dyn Store, dir: &Path) {
    let path = |name: &str| PathBuf::from(format!("{}/{name}", dir.display()));
    put(store, &path("f"), b"f");
    assert_eq!(store.stat(Path::new(""), Links::Follow), Err(Errno::NOENT));
    assert_eq!(store.stat(&path("f/"), Links::Follow), Err(Errno::NOTDIR));
    assert_eq!(store.stat(&path("f/."), Links::Follow), Err(Errno::NOTDIR));
    assert_eq!(store.stat(&path("none/.."), Links::Follow), Err(Errno::NOENT));
    assert_eq!(store.stat(&path("f/.."), Links::Follow), Err(Errno::NOTDIR));
    assert_eq!(get(store, &path(".//./f")), b"f");
    assert_eq!(store.open(&path("none/"), Open::create(0o600)).unwrap_err(), Errno::ISDIR);
    assert_eq!(store.rename(&path("f"), &path("g/")), Err(Errno::NOTDIR));
    store.mkdir(&path("d/"), 0o700).unwrap();
    store.rename(&path("d/"), &path("e/")).unwrap();
    assert_eq!(store.rename(&path("e/."), &path("g")), Err(Errno::BUSY));
    assert_eq!(store.rmdir(&path("e/.")), Err(Errno::INVAL));
    assert_eq!(store.rmdir(&path("e/..")), Err(Errno::NOTEMPTY));
    assert_eq!(store.mkdir(&path("."), 0o700), Err(Errno::EXIST));
    assert_eq!(
        store.stat(Path::new("/.."), Links::Follow).unwrap().ino,
        store.stat(Path::new("/"), Links::Follow).unwrap().ino
    );
    assert_eq!(store.rmdir(Path::new("/")), Err(Errno::BUSY));
    let long = "n".repeat(255);
    put(store, &path(&long), b"");
    assert_eq!(
        store.open(&path(&format!("{long}n")), Open::create(0o600)).unwrap_err(),
        Errno::NAMETOOLONG
    );
    assert_eq!(store.stat(&path(&"x/".repeat(2500)), Links::Follow), Err(Errno::NAMETOOLONG));
    assert_eq!(store.stat(&path("a\0b"), Links::Follow), Err(Errno::INVAL));
    store.rmdir(&path("e/")).unwrap();
}

pub fn modes_and_owners_are_set(store: &dyn Store, dir: &Path) {
    let (file, link) = (dir.join("f"), dir.join("l"));
    put(store, &file, b"");
    store.symlink(Path::new("f"), &link).unwrap();
    store.chmod(&link, 0o4751).unwrap();
    assert_eq!(store.stat(&file, Links::Follow).unwrap().mode, 0o4751);
    store.chmod(&link, 0o640).unwrap();
    let before = store.stat(&file, Links::Follow).unwrap();
    store.chown(&file, Some(before.uid), None, Links::Follow).unwrap();
    store.chown(&file, None, Some(before.gid), Links::Follow).unwrap();
    if before.uid != 0 {
        eprintln!("skipped: giving files away, only root may");
        return;
    }
    store.chown(&link, Some(77), Some(88), Links::Follow).unwrap();
    store.chown(&link, Some(99), None, Links::Stay).unwrap();
    store.chown(&link, None, None, Links::Follow).unwrap();
    let (stat, lstat) =
        (store.stat(&file, Links::Follow).unwrap(), store.stat(&link, Links::Stay).unwrap());
    assert_eq!((stat.uid, stat.gid, stat.mode), (77, 88, 0o640));
    assert_eq!((lstat.uid, lstat.gid), (99, before.gid));
}

pub fn times_are_set_exactly_and_move_forward(store: &dyn Store, dir: &Path) {
    let path = dir.join("f");
    put(store, &path, b"");
    let (a, m) =
        (Time { sec: 1_234_567_890, nsec: 123_456_789 }, Time { sec: -5, nsec: 999_999_999 });
    store.set_times(&path, Some(a), Some(m)).unwrap();
    let stat = store.stat(&path, Links::Follow).unwrap();
    assert_eq!((stat.atime, stat.mtime), (a, m));
    store.set_times(&path, None, Some(a)).unwrap();
    store.set_times(&path, None, None).unwrap();
    assert_eq!(store.stat(&path, Links::Follow).unwrap().mtime, a);
    store.set_times(&path, Some(m), None).unwrap();
    let stat = store.stat(&path, Links::Follow).unwrap();
    assert_eq!((stat.atime, stat.mtime), (m, a));
    for nsec in [1_000_000_000, (1 << 30) - 1, (1 << 30) - 2] {
        assert_eq!(store.set_times(&path, Some(Time { sec: 0, nsec }), None), Err(Errno::INVAL));
    }
    store.set_times(dir, Some(m), Some(m)).unwrap();
    store.set_times(&path, Some(m), Some(m)).unwrap();
    put(store, &path, b"new");
    assert!(store.stat(&path, Links::Follow).unwrap().mtime > m);
    assert_eq!(store.stat(dir, Links::Follow).unwrap().mtime, m);
    put(store, &dir.join("g"), b"");
    assert!(store.stat(dir, Links::Follow).unwrap().mtime > m);
}

pub fn syncs_succeed(store: &dyn Store, dir: &Path) {
    let file = store.open(&dir.join("f"), Open::create_new(0o600)).unwrap();
    write_full(&*file, b"abc", 0).unwrap();
    file.sync_data().unwrap();
    store.open(&dir.join("f"), Open::READ).unwrap().sync_data().unwrap();
    store.sync_dir(dir).unwrap();
    assert_eq!(content(&*file), b"abc");
}

pub fn there_is_room(store: &dyn Store, dir: &Path) {
    let space = store.space(dir).unwrap();
    assert!(space.available > 0 && space.total >= space.available);
}

pub fn locks_belong_to_the_open_file(store: &dyn Store, dir: &Path) {
    let path = dir.join("f");
    put(store, &path, b"");
    store.mkdir(&dir.join("d"), 0o700).unwrap();
    for path in [&path, &dir.join("d")] {
        let a = store.open(path, Open::READ).unwrap();
        let b = store.open(path, Open::READ).unwrap();
        assert_eq!(a.try_lock(LockKind::Exclusive), Ok(true));
        assert_eq!(a.try_lock(LockKind::Exclusive), Ok(true));
        assert_eq!(b.try_lock(LockKind::Exclusive), Ok(false));
        assert_eq!(b.try_lock(LockKind::Shared), Ok(false));
        assert_eq!(a.try_lock(LockKind::Shared), Ok(true));
        assert_eq!(b.try_lock(LockKind::Shared), Ok(true));
        // The failed attempt loses what a held.
        assert_eq!(a.try_lock(LockKind::Exclusive), Ok(false));
        assert_eq!(b.try_lock(LockKind::Exclusive), Ok(true));
        drop(b);
        assert_eq!(a.try_lock(LockKind::Exclusive), Ok(true));
    }
}
