//! Places that others can write to: no link is followed in them, and what is open there is found
//! whatever is renamed above.

use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;

use super::*;

/// Each kind of store, and a directory in it.
fn stores() -> Vec<(&'static str, Arc<dyn Store>, Option<Scratch>)> {
    let scratch = || Some(Scratch::below(&std::env::temp_dir()));
    vec![
        ("openat2", Arc::new(PosixStore::new()), scratch()),
        ("by parts", Arc::new(PosixStore::without_openat2()), scratch()),
        ("memory", Arc::new(MemStore::new()), None),
    ]
}

/// A reader on CephFS sent 28 lookups of path parts, one request each, because every file of a
/// container was looked up from the root of the file system. And who renamed a directory above a
/// file that was open lost what was written and not committed yet: only opens and stats went by the
/// descriptor.
#[test]
fn what_lies_in_a_place_is_found_by_its_descriptor() {
    for (kind, far, scratch) in stores() {
        let Some(scratch) = scratch else { continue };
        eprintln!("  {kind}");
        let (root, moved) = (scratch.0.join("root"), scratch.0.join("moved"));
        let (dir, now) = (root.join("top/dir"), moved.join("top/dir"));
        make_dirs(&*far, &dir.join("sub"));
        put(&*far, &dir.join("f"), b"abc");
        put(&*far, &root.join("top/dir2"), b"beside");
        put(&*far, &root.join("other"), b"outside");
        let near =
            far.inside(vec![Place { root: root.clone(), dir: dir.clone() }], Keep::Now).unwrap();
        assert_eq!(get(&*near, &root.join("top/dir2")), b"beside");
        far.rename(&root, &moved).unwrap();
        assert_eq!(get(&*near, &dir.join("f")), b"abc");
        put(&*near, &dir.join("g"), b"new");
        assert_eq!(get(&*far, &now.join("g")), b"new");
        put(&*near, &dir.join("sub/deep"), b"deep");
        assert_eq!(get(&*far, &now.join("sub/deep")), b"deep");
        assert_eq!(near.stat(&dir, Links::Follow).unwrap(), far.stat(&now, Links::Follow).unwrap());
        assert_eq!(names(&*near, &dir), set(&["f", "g", "sub"]));
        near.mkdir(&dir.join("new"), 0o700).unwrap();
        near.rename(&dir.join("new"), &dir.join("sub/new")).unwrap();
        near.link(&dir.join("f"), &dir.join("sub/link")).unwrap();
        near.chmod(&dir.join("f"), 0o640).unwrap();
        near.chmod(&dir, 0o750).unwrap();
        near.chown(&dir, None, None, Links::Stay).unwrap();
        let time = Some(Time { sec: 1 << 28, nsec: 7 });
        near.set_times(&dir, None, time).unwrap();
        near.set_times(&dir.join("sub/link"), None, time).unwrap();
        assert_eq!(Some(far.stat(&now, Links::Follow).unwrap().mtime), time);
        let stat = far.stat(&now.join("f"), Links::Follow).unwrap();
        assert_eq!((stat.mode, stat.nlink, Some(stat.mtime)), (0o640, 2, time));
        // What is made durable is the directories above where they are now.
        dir.ancestors().take(3).for_each(|dir| near.sync_dir(dir).unwrap());
        // What lies beside it, as another container does, is found by the way up; what lies beside
        // that is looked for where it was.
        assert_eq!(get(&*near, &root.join("top/dir2")), b"beside");
        assert_eq!(near.stat(&root.join("other"), Links::Follow), Err(Errno::NOENT));
        near.rmdir(&dir.join("sub/new")).unwrap();
        for name in ["f", "g", "sub/deep", "sub/link"] {
            near.unlink(&dir.join(name)).unwrap();
        }
        near.rmdir(&dir.join("sub")).unwrap();
        far.rmdir(&now).unwrap();
        assert_eq!(near.stat(&dir, Links::Follow), Err(Errno::NOENT));
    }
}

/// Everything inside a container was reached by its path: a symbolic link in the place of a
/// directory or a file led any call out of the tree, a recursive removal by an administrator above
/// all.
#[test]
fn no_call_follows_a_link_in_a_place() {
    for (kind, far, scratch) in stores() {
        for keep in [Keep::Nothing, Keep::WhenUsed, Keep::Now, Keep::ToHold] {
            for depth in 0..3 {
                eprintln!("  {kind}, {keep:?}, depth {depth}");
                let root = scratch
                    .as_ref()
                    .map_or(PathBuf::from("/some/where"), |scratch| scratch.0.clone())
                    .join(format!("{keep:?}{depth}"));
                let victim = root.join("victim");
                make_dirs(&*far, &victim.join("a/b/dir"));
                put(&*far, &victim.join("a/b/f"), b"precious");
                put(&*far, &victim.join("f"), b"precious");
                let before = far.stat(&victim.join("a/b/f"), Links::Follow).unwrap();
                let mode = far.stat(&victim.join("a/b/dir"), Links::Follow).unwrap().mode;
                // The link is the first, the second or the third directory of root/a/b/...
                let linked =
                    [root.join("top"), root.join("top/a"), root.join("top/a/b")][depth].clone();
                make_dirs(&*far, linked.parent().unwrap());
                let target = [victim.clone(), victim.join("a"), victim.join("a/b")][depth].clone();
                far.symlink(&target, &linked).unwrap();
                let dir = root.join("top/a");
                let view = far.inside(vec![Place { root: root.clone(), dir }], keep).unwrap();
                let at = |name: &str| root.join("top/a/b").join(name);
                let refused = Some(Errno::LOOP);
                for how in
                    [Open::READ, Open::READ_WRITE, Open::create(0o600), Open::create_new(0o600)]
                {
                    assert_eq!(view.open(&at("f"), how).err(), refused);
                    assert_eq!(view.open(&at("new"), how).err(), refused);
                }
                assert_eq!(view.stat(&at("f"), Links::Follow).err(), refused);
                assert_eq!(view.stat(&at("f"), Links::Stay).err(), refused);
                assert_eq!(view.list(&at("dir")).err(), refused);
                assert_eq!(view.list(&linked).err(), refused);
                assert_eq!(view.stat(&linked, Links::Follow).err(), refused);
                assert_eq!(view.mkdir(&at("new"), 0o700).err(), refused);
                assert_eq!(view.rmdir(&at("dir")).err(), refused);
                assert_eq!(view.unlink(&at("f")).err(), refused);
                assert_eq!(view.rename(&at("f"), &at("g")).err(), refused);
                assert_eq!(view.rename(&victim.join("f"), &at("g")).err(), refused);
                assert_eq!(view.link(&at("f"), &root.join("g")).err(), refused);
                assert_eq!(view.link(&victim.join("f"), &at("g")).err(), refused);
                assert_eq!(view.symlink(Path::new("f"), &at("g")).err(), refused);
                assert_eq!(view.readlink(&at("f")).err(), refused);
                assert_eq!(view.chmod(&at("dir"), 0).err(), refused);
                assert_eq!(view.chmod(&linked, 0).err(), refused);
                assert_eq!(view.chown(&at("f"), Some(1), None, Links::Follow).err(), refused);
                assert_eq!(
                    view.set_times(&at("f"), None, Some(Time { sec: 1, nsec: 1 })).err(),
                    refused
                );
                assert_eq!(view.sync_dir(&at("dir")).err(), refused);
                assert_eq!(view.sync_dir(&linked).err(), refused);
                // Nothing of it has changed; the link itself can go.
                let after = far.stat(&victim.join("a/b/f"), Links::Follow).unwrap();
                assert_eq!(
                    (after.ctime, after.nlink, after.mtime),
                    (before.ctime, before.nlink, before.mtime)
                );
                assert_eq!(far.stat(&victim.join("a/b/dir"), Links::Follow).unwrap().mode, mode);
                assert_eq!(names(&*far, &victim.join("a/b")), set(&["dir", "f"]));
                assert_eq!(view.stat(&linked, Links::Stay).unwrap().kind, Kind::Symlink);
                view.unlink(&linked).unwrap();
                assert_eq!(get(&*far, &victim.join("a/b/f")), b"precious");
            }
        }
    }
}

/// A last link is refused, or acted on itself, never followed.
#[test]
fn a_link_in_a_place_of_a_file_is_not_followed() {
    for (kind, far, scratch) in stores() {
        for keep in [Keep::Nothing, Keep::WhenUsed, Keep::Now, Keep::ToHold] {
            for deep in [false, true] {
                eprintln!("  {kind}, {keep:?}, {deep}");
                let root = scratch
                    .as_ref()
                    .map_or(PathBuf::from("/some/where"), |scratch| scratch.0.clone())
                    .join(format!("{keep:?}{deep}"));
                let (dir, victim) = (root.join("top/dir"), root.join("victim"));
                make_dirs(&*far, &dir.join("sub"));
                put(&*far, &victim, b"precious");
                let before = far.stat(&victim, Links::Follow).unwrap();
                let view =
                    far.inside(vec![Place { root: root.clone(), dir: dir.clone() }], keep).unwrap();
                let link = if deep { dir.join("sub/link") } else { dir.join("link") };
                view.symlink(&victim, &link).unwrap();
                let refused = Some(Errno::LOOP);
                for how in [Open::READ, Open::READ_WRITE, Open::create(0o600)] {
                    assert_eq!(view.open(&link, how).err(), refused);
                }
                assert_eq!(view.open(&link, Open::create_new(0o600)).err(), Some(Errno::EXIST));
                assert_eq!(view.stat(&link, Links::Follow).err(), refused);
                assert_eq!(view.stat(&link, Links::Stay).unwrap().kind, Kind::Symlink);
                assert_eq!(view.chmod(&link, 0).err(), refused);
                assert_eq!(view.chown(&link, Some(1), Some(1), Links::Follow).err(), refused);
                view.set_times(&link, None, Some(Time { sec: 1, nsec: 1 })).unwrap();
                assert_eq!(view.readlink(&link).unwrap(), victim);
                // A link whose target is not there creates nothing.
                view.unlink(&link).unwrap();
                view.symlink(&root.join("new"), &link).unwrap();
                assert_eq!(view.open(&link, Open::create(0o600)).err(), refused);
                assert_eq!(far.stat(&root.join("new"), Links::Stay).err(), Some(Errno::NOENT));
                // A rename replaces it.
                put(&*view, &dir.join("tmp"), b"ours");
                view.rename(&dir.join("tmp"), &link).unwrap();
                assert_eq!(get(&*view, &link), b"ours");
                assert_eq!(far.stat(&victim, Links::Follow).unwrap(), before);
                assert_eq!(get(&*far, &victim), b"precious");
            }
        }
    }
}

/// Links in the path of the root are what its user wants: only what lies below it is not followed.
#[test]
fn links_in_the_path_of_a_root_are_followed() {
    for (kind, far, scratch) in stores() {
        for keep in [Keep::Nothing, Keep::WhenUsed, Keep::Now, Keep::ToHold] {
            eprintln!("  {kind}, {keep:?}");
            let base = scratch
                .as_ref()
                .map_or(PathBuf::from("/some/where"), |scratch| scratch.0.clone())
                .join(format!("{keep:?}"));
            make_dirs(&*far, &base.join("real/root/top/dir"));
            far.symlink(&base.join("real"), &base.join("link")).unwrap();
            let root = base.join("link/root");
            let dir = root.join("top/dir");
            let view = far.inside(vec![Place { root, dir: dir.clone() }], keep).unwrap();
            put(&*view, &dir.join("f"), b"abc");
            view.mkdir(&dir.join("sub"), 0o700).unwrap();
            assert_eq!(get(&*far, &base.join("real/root/top/dir/f")), b"abc");
            assert_eq!(names(&*view, &dir), set(&["f", "sub"]));
            far.symlink(&base, &base.join("real/root/top/dir/out")).unwrap();
            assert_eq!(view.list(&dir.join("out")).err(), Some(Errno::LOOP));
        }
    }
}

/// No look comes before a call: a thread that swaps a directory for a link, and back, as fast as it
/// can, gets nothing out of the place.
#[test]
fn a_link_that_is_swapped_in_meanwhile_is_not_followed() {
    use std::sync::atomic::AtomicBool;
    for (kind, far, scratch) in stores() {
        let Some(scratch) = scratch else { continue };
        eprintln!("  {kind}");
        let root = scratch.0.clone();
        let (dir, victim) = (root.join("top/dir"), root.join("victim"));
        make_dirs(&*far, &dir.join("sub/inner"));
        make_dirs(&*far, &victim.join("inner"));
        put(&*far, &victim.join("f"), b"precious");
        far.symlink(&victim, &dir.join("link")).unwrap();
        let view =
            far.inside(vec![Place { root: root.clone(), dir: dir.clone() }], Keep::Now).unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    // The three names turn: "sub" is the directory, then the link.
                    std::fs::rename(dir.join("sub"), dir.join("away")).unwrap();
                    std::fs::rename(dir.join("link"), dir.join("sub")).unwrap();
                    std::fs::rename(dir.join("sub"), dir.join("link")).unwrap();
                    std::fs::rename(dir.join("away"), dir.join("sub")).unwrap();
                }
            });
            for i in 0..3000 {
                let at = |name: &str| dir.join("sub").join(name);
                let _ = view.unlink(&at("f"));
                let _ = view.open(&at(&format!("new{i}")), Open::create(0o600));
                let _ = view.mkdir(&at(&format!("dir{i}")), 0o700);
                let _ = view.rmdir(&at("inner"));
                let _ = view.mkdir(&at("inner"), 0o700);
                let _ = view.chmod(&at("inner"), 0o701);
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert_eq!(names(&*far, &victim), set(&["f", "inner"]), "{kind}");
        assert_eq!(far.stat(&victim.join("inner"), Links::Follow).unwrap().mode, 0o755, "{kind}");
    }
}

/// What a child that is forked now would have of a directory.
#[allow(unsafe_code)]
fn as_in_a_child(dir: &Path) -> Vec<OwnedFd> {
    let id = |path: &Path| std::fs::metadata(path).ok().map(|stat| (stat.dev(), stat.ino()));
    std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| id(path) == id(dir))
        .map(|path| {
            let number: RawFd = path.file_name().unwrap().to_str().unwrap().parse().unwrap();
            // SAFETY: only the caller's thread opens and closes this directory.
            unsafe { BorrowedFd::borrow_raw(number) }.try_clone_to_owned().unwrap()
        })
        .collect()
}

/// An open file kept two descriptors of its container's directory: one to look names up, and one
/// for the lock that keeps the data while somebody uses it. The lock is on the first one now. It
/// goes without a call that unlocks, which would also take it from a forked child.
#[test]
fn a_directory_is_held_by_the_descriptor_that_is_kept() {
    for (kind, far, scratch) in stores() {
        let Some(scratch) = scratch else { continue };
        eprintln!("  {kind}");
        let (root, moved) = (scratch.0.join("root"), scratch.0.join("moved"));
        let (dir, now) = (root.join("top/dir"), moved.join("top/dir"));
        make_dirs(&*far, &dir);
        put(&*far, &dir.join("f"), b"abc");
        let place = || vec![Place { root: root.clone(), dir: dir.clone() }];
        for keep in [Keep::Nothing, Keep::WhenUsed, Keep::Now] {
            assert!(far.inside(place(), keep).unwrap().hold().is_none(), "{keep:?}");
        }
        // A view for the moment that becomes one that is kept, and one from the beginning.
        let brief = far.inside(place(), Keep::WhenUsed).unwrap();
        assert_eq!(get(&*brief, &dir.join("f")), b"abc");
        let views = [brief.inside(place(), Keep::ToHold), far.inside(place(), Keep::ToHold)];
        let [one, two] = views.map(Option::unwrap);
        far.rename(&root, &moved).unwrap();
        let alone = || far.open(&now, Open::READ).unwrap().try_lock(LockKind::Exclusive).unwrap();
        assert!(alone());
        for _ in 0..3 {
            let held = one.hold().unwrap().unwrap();
            assert!(one.hold().is_none(), "it has the lock already");
            assert!(!alone());
            let other = two.hold().unwrap().unwrap();
            drop(held);
            assert!(!alone(), "the other view has it still");
            assert_eq!(get(&*one, &dir.join("f")), b"abc");
            drop(other);
            assert!(alone());
        }
        let held = one.hold().unwrap().unwrap();
        let childs = as_in_a_child(&now);
        drop(held);
        assert!(!alone(), "a child has it still");
        drop(childs);
        assert!(alone());
        let lock = far.open(&now, Open::READ).unwrap();
        assert!(lock.try_lock(LockKind::Exclusive).unwrap());
        assert_eq!(one.hold().unwrap().err(), Some(Errno::AGAIN));
        drop(lock);
        assert!(one.hold().unwrap().is_ok());
    }
}

/// A writer on a network file system had its container's directory open twice: to look names up,
/// and to publish what it changed there. Now the first descriptor does both; a sync by it looks
/// nothing up.
#[test]
fn a_directory_is_published_by_the_descriptor_that_is_kept() {
    for (kind, far, scratch) in stores() {
        let Some(scratch) = scratch else { continue };
        eprintln!("  {kind}");
        let (root, moved) = (scratch.0.join("root"), scratch.0.join("moved"));
        let dir = root.join("top/dir");
        make_dirs(&*far, &dir);
        put(&*far, &dir.join("f"), b"abc");
        let place = || vec![Place { root: root.clone(), dir: dir.clone() }];
        for keep in [Keep::Nothing, Keep::WhenUsed] {
            assert!(far.inside(place(), keep).unwrap().kept_dir().is_none(), "{keep:?}");
        }
        let view = far.inside(place(), Keep::Now).unwrap();
        far.rename(&root, &moved).unwrap();
        let now = moved.join("top/dir");
        for _ in 0..3 {
            let open = view.kept_dir().unwrap().unwrap();
            assert_eq!(as_in_a_child(&now).len(), 1);
            open.sync_data().unwrap();
            assert_eq!(get(&*view, &dir.join("f")), b"abc");
        }
        let open = view.kept_dir().unwrap().unwrap();
        drop(view);
        open.sync_data().unwrap();
        assert_eq!(open.stat().unwrap().ino, far.stat(&now, Links::Stay).unwrap().ino);
        drop(open);
        assert_eq!(as_in_a_child(&now).len(), 0);
    }
}
