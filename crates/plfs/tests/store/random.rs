//! Random calls and random crashes.

use super::*;

/// The same random calls on the memory store and on the kernel's tmpfs have the same results.
#[test]
fn mem_store_agrees_with_the_kernel_on_random_calls() {
    let Some(base) = shm() else { return };
    for seed in seeds(60) {
        let scratch = Scratch::below(base);
        let posix = PosixStore::new();
        let mem = MemStore::new();
        // Two levels, so that links to `..` lead nowhere else.
        let root = scratch.0.join("outer/inner");
        make_dirs(&mem, &root);
        make_dirs(&posix, &root);
        let mut random = Random(seed);
        let mut done = Vec::new();
        for _ in 0..400 {
            let call = random_call(&mut random, &root);
            let (real, ours) = (perform(&posix, &call), perform(&mem, &call));
            done.push(format!("{call:?} = {real}"));
            assert_eq!(
                ours,
                real,
                "seed {seed}:\n{}",
                done[done.len().saturating_sub(30)..].join("\n")
            );
        }
        assert_eq!(tree(&mem, &scratch.0), tree(&posix, &scratch.0), "seed {seed}");
    }
}

/// Whatever happened before, a crash leaves a sound tree, and one that equals the store if all was
/// synced.
#[test]
fn crashes_at_random_leave_sound_trees() {
    let root = Path::new("/outer/inner");
    for seed in seeds(60) {
        let store = MemStore::new();
        make_dirs(&store, root);
        let mut random = Random(seed);
        for _ in 0..300 {
            perform(&store, &random_call(&mut random, root));
            if random.below(4) == 0 {
                let _ = store.sync_dir(&random_path(&mut random, root));
            }
        }
        for crash in 0..5 {
            let crashed = store.crash_with(crash);
            assert_eq!(tree(&crashed, Path::new("/")), tree(&crashed.crash(), Path::new("/")));
        }
        tree(&store.crash(), Path::new("/"));
        sync_all(&store, Path::new("/"));
        let all = tree(&store, Path::new("/"));
        assert_eq!(tree(&store.crash(), Path::new("/")), all, "seed {seed}");
        assert_eq!(tree(&store.crash_with(seed), Path::new("/")), all, "seed {seed}");
    }
}

fn sync_all(store: &dyn Store, path: &Path) {
    for entry in store.list(path).unwrap() {
        let path = path.join(entry.name);
        match store.stat(&path, Links::Stay).unwrap().kind {
            Kind::Dir => sync_all(store, &path),
            Kind::File => store.open(&path, Open::READ).unwrap().sync_data().unwrap(),
            Kind::Symlink | Kind::Other => {}
        }
    }
    store.sync_dir(path).unwrap();
}

/// A linear congruential generator (Knuth, MMIX) of which the high bits are used.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

#[derive(Debug)]
enum Call {
    Create(PathBuf, bool),
    Write(PathBuf, u64, u8),
    SetLen(PathBuf, u64),
    Read(PathBuf),
    Stat(PathBuf, Links),
    List(PathBuf),
    Mkdir(PathBuf),
    Rmdir(PathBuf),
    Unlink(PathBuf),
    Rename(PathBuf, PathBuf),
    Link(PathBuf, PathBuf),
    Symlink(PathBuf, PathBuf),
    Readlink(PathBuf),
}

fn random_path(random: &mut Random, root: &Path) -> PathBuf {
    let mut path = root.as_os_str().to_owned();
    for _ in 0..=random.below(3) {
        path.push("/");
        path.push(["a", "b", "c", "a", "b", "c", "a", "b", "c", "."][random.below(10) as usize]);
    }
    if random.below(20) == 0 {
        path.push("/");
    }
    path.into()
}

fn random_call(random: &mut Random, root: &Path) -> Call {
    let one = random_path(random, root);
    match random.below(15) {
        0 => Call::Create(one, random.below(2) == 0),
        1 => Call::Write(one, random.below(20_000), random.below(256) as u8),
        2 => Call::SetLen(one, random.below(20_000)),
        3 => Call::Read(one),
        4 => Call::Stat(one, if random.below(2) == 0 { Links::Follow } else { Links::Stay }),
        5 => Call::List(one),
        6 | 7 => Call::Mkdir(one),
        8 => Call::Rmdir(one),
        9 => Call::Unlink(one),
        10 | 11 => Call::Rename(one, random_path(random, root)),
        12 => Call::Link(one, random_path(random, root)),
        13 => {
            let target = match random.below(4) {
                0 => random_path(random, root),
                1 => "../a".into(),
                2 => "b".into(),
                _ => "a/c".into(),
            };
            Call::Symlink(target, one)
        }
        _ => Call::Readlink(one),
    }
}

fn perform(store: &dyn Store, call: &Call) -> String {
    match call {
        Call::Create(path, exclusive) => format!(
            "{:?}",
            store.open(path, Open { exclusive: *exclusive, ..Open::create(0o644) }).map(drop)
        ),
        Call::Write(path, offset, byte) => {
            format!(
                "{:?}",
                store.open(path, Open::READ_WRITE).and_then(|file| write_full(
                    &*file,
                    &vec![*byte; usize::from(*byte) * 40],
                    *offset
                ))
            )
        }
        Call::SetLen(path, len) => {
            format!("{:?}", store.open(path, Open::READ_WRITE).and_then(|file| file.set_len(*len)))
        }
        Call::Read(path) => {
            let mut bytes = vec![0; 40_000];
            let read =
                store.open(path, Open::READ).and_then(|file| read_full(&*file, &mut bytes, 0));
            format!(
                "{read:?} {:x}",
                bytes
                    .iter()
                    .fold(0u64, |sum, &byte| sum.wrapping_mul(31).wrapping_add(byte.into()))
            )
        }
        Call::Stat(path, links) => {
            format!("{:?}", store.stat(path, *links).map(|stat| describe(&stat)))
        }
        Call::List(path) => {
            let listed = store.list(path).map(|entries| {
                entries
                    .into_iter()
                    .map(|entry| (entry.name, format!("{:?}", entry.kind)))
                    .collect::<BTreeSet<_>>()
            });
            format!("{listed:?}")
        }
        Call::Mkdir(path) => format!("{:?}", store.mkdir(path, 0o755)),
        Call::Rmdir(path) => format!("{:?}", store.rmdir(path)),
        Call::Unlink(path) => format!("{:?}", store.unlink(path)),
        Call::Rename(from, to) => format!("{:?}", store.rename(from, to)),
        Call::Link(from, to) => format!("{:?}", store.link(from, to)),
        Call::Symlink(target, path) => format!("{:?}", store.symlink(target, path)),
        Call::Readlink(path) => format!("{:?}", store.readlink(path)),
    }
}

fn describe(stat: &plfs::store::Stat) -> (String, u64, u64) {
    (format!("{:?}", stat.kind), stat.nlink, if stat.kind == Kind::Dir { 0 } else { stat.len })
}

/// Everything below `path`, as text.
pub fn tree(store: &dyn Store, path: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for name in names(store, path) {
        let path = path.join(name);
        let stat = store.stat(&path, Links::Stay).unwrap();
        let bytes = if stat.kind == Kind::File { get(store, &path) } else { Vec::new() };
        found.push(format!("{} {:?} {:?}", path.display(), describe(&stat), bytes));
        if stat.kind == Kind::Dir {
            found.extend(tree(store, &path));
        }
    }
    found
}
