//! File systems that are not fit for PLFS (docs/decisions/0014): those whose clients do not see at
//! once what others do are refused with a sentence, because two nodes would lose bytes there, and
//! one node may use them; those without hard links are refused, too.

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use plfs::store::{self, Errno, Links, Open, Store, StoreFile};
use plfs::{CloseToOpen, Config, Error, File, OpenOptions, Opened, Plfs};
use plfs_testkit::{
    CloseToOpenStore, FaultStore, MemStore, Op, Rng, World, explored, rounds, seeds, shrink, steps,
};

const PATH: &str = "/m/f";

/// A directory in memory where the processes of a node meet.
struct Node(PathBuf);

impl Node {
    fn new() -> Node {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = PathBuf::from(format!("/dev/shm/plfs-cto-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Node(dir)
    }

    fn config(&self, close_to_open: CloseToOpen) -> Config {
        Config { shared_memory: Some(self.0.clone()), close_to_open, ..Config::shared() }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn server() -> Arc<dyn Store> {
    let memory = MemStore::new();
    memory.mkdir(Path::new("/m"), 0o755).unwrap();
    Arc::new(memory)
}

fn open_with(plfs: &Plfs, options: OpenOptions) -> plfs::Result<File> {
    match plfs.open(Path::new(PATH), options)? {
        Opened::Logical(file) => Ok(file),
        Opened::Plain(_) => panic!("it is plain"),
    }
}

fn open(plfs: &Plfs) -> File {
    open_with(plfs, OpenOptions::create()).unwrap()
}

fn content(plfs: &Plfs) -> Vec<u8> {
    let mut bytes = vec![0; 1 << 16];
    let n = open_with(plfs, OpenOptions::read()).unwrap().read_at(&mut bytes, 0).unwrap();
    bytes.truncate(n);
    bytes
}

fn is_refused<T>(done: plfs::Result<T>) {
    let error = done.err().expect("it is refused");
    assert!(matches!(error, Error::CloseToOpen { .. }), "{error}");
    assert_eq!(error.errno(), Errno::OPNOTSUPP);
    let text = error.to_string();
    assert!(text.contains("is on nfs") && text.contains("PLFS_CLOSE_TO_OPEN=one-node"), "{text}");
}

/// The first engine wrote to NFS, and nobody knew what it promised there.
#[test]
fn nothing_is_written_where_clients_do_not_agree() {
    let (node, server) = (Node::new(), server());
    let refuses = node.config(CloseToOpen::Refuse);
    let client: Arc<dyn Store> = Arc::new(CloseToOpenStore::new(server.clone()));
    let plfs = Plfs::new(client.clone(), refuses.clone());
    is_refused(open_with(&plfs, OpenOptions::create()));
    is_refused(plfs::prepare(&client, &refuses, &[Path::new("/m")], &[]));
    assert!(server.list(Path::new("/m")).unwrap().is_empty());

    // Made where it may be made, and then seen through a client that caches.
    let file = open(&Plfs::new(server.clone(), refuses.clone()));
    file.write_at(b"written elsewhere", 0).unwrap();
    file.close().unwrap();
    let client: Arc<dyn Store> = Arc::new(CloseToOpenStore::new(server.clone()));
    let plfs = Plfs::new(client.clone(), refuses.clone());
    assert_eq!(content(&plfs), b"written elsewhere");
    let write = OpenOptions::create();
    is_refused(open_with(&plfs, OpenOptions { create: false, ..write }));
    is_refused(open_with(&plfs, OpenOptions { truncate: true, ..write }));
    // A descriptor that a program inherits is adopted for writing, whatever it was opened for.
    let name = client.open(Path::new(PATH), Open::READ).unwrap();
    let file = plfs.adopt(name.as_ref(), Path::new(PATH), write.access).unwrap().unwrap();
    is_refused(file.write_at(b"x", 0));
    is_refused(file.set_len(0));
    assert_eq!(content(&plfs), b"written elsewhere");
    drop((file, name));
    is_refused(plfs.compact(Path::new(PATH), |_| ControlFlow::Continue(())));
    assert_eq!(plfs.stat(Path::new(PATH), Links::Follow).unwrap().stat.len, 17);
    assert_eq!(content(&Plfs::new(server, refuses)), b"written elsewhere");
}

/// A store of which one directory is on NFS.
#[derive(Debug)]
struct PartlyNfs {
    inner: Arc<dyn Store>,
}

impl Store for PartlyNfs {
    fn open(&self, path: &Path, how: Open) -> store::Result<Arc<dyn StoreFile>> {
        self.inner.open(path, how)
    }
    fn stat(&self, path: &Path, links: Links) -> store::Result<store::Stat> {
        self.inner.stat(path, links)
    }
    fn list(&self, path: &Path) -> store::Result<Vec<store::Entry>> {
        self.inner.list(path)
    }
    plfs_testkit::delegate_names!(inner);
    fn is_local(&self, path: &Path) -> bool {
        !path.starts_with("/nfs")
    }
    fn boot(&self, path: &Path) -> Option<u64> {
        self.inner.boot(path)
    }
    fn close_to_open(&self, path: &Path) -> Option<String> {
        path.starts_with("/nfs").then(|| "nfs".into())
    }
}

/// A backend counts like the root: bytes that another node's client does not see are no bytes.
#[test]
fn a_backend_where_clients_do_not_agree_is_refused() {
    let (node, server) = (Node::new(), server());
    for dir in ["/nfs", "/nfs/.plfs"] {
        server.mkdir(Path::new(dir), 0o777).unwrap();
    }
    let with = |close_to_open| {
        let backends = vec!["/nfs".into()];
        let config = Config { backends, streams: 2, ..node.config(close_to_open) };
        Plfs::new(Arc::new(PartlyNfs { inner: server.clone() }), config)
    };
    is_refused(open_with(&with(CloseToOpen::Refuse), OpenOptions::create()));
    let file = open(&with(CloseToOpen::OneNode));
    file.write_at(b"on both", 0).unwrap();
    file.close().unwrap();
    let plfs = with(CloseToOpen::Refuse);
    assert_eq!(content(&plfs), b"on both");
    is_refused(open_with(&plfs, OpenOptions { create: false, ..OpenOptions::create() }));
}

/// Why they are refused. Each half of the test is what the other would be if clients agreed.
#[test]
fn two_nodes_would_lose_what_they_were_told_is_safe() {
    for agree in [true, false] {
        let (nodes, server) = ([Node::new(), Node::new()], server());
        let [one, two] = [0, 1].map(|i| {
            let store: Arc<dyn Store> = match agree {
                true => server.clone(),
                false => Arc::new(CloseToOpenStore::new(server.clone())),
            };
            Plfs::new(store, nodes[i].config(CloseToOpen::OneNode))
        });
        let writer = open(&one);
        writer.write_at(b"first", 0).unwrap();
        writer.sync().unwrap();
        assert_eq!(content(&two), b"first");

        // Another node's log set is in no listing that was made before (S2).
        let other = Node::new();
        let three = Plfs::new(server.clone(), other.config(CloseToOpen::OneNode));
        let later = open(&three);
        later.write_at(b"later", 0).unwrap();
        later.close().unwrap();
        assert_eq!(content(&two), if agree { b"later" } else { b"first" });

        // A writer that was declared dead is told that its bytes are durable (S27), in a log that
        // is not there any more.
        let (container, _) = two.container(Path::new(PATH)).unwrap().unwrap();
        let store = two.store();
        for entry in store.list(&container.dir).unwrap() {
            let mark = container.dir.join(entry.name);
            if mark.extension().is_some_and(|end| end == "open") {
                store.rename(&mark, &mark.with_extension("fenced")).unwrap();
            }
        }
        two.compact(Path::new(PATH), |_| ControlFlow::Continue(())).unwrap();
        writer.write_at(b"final", 0).unwrap();
        let told = writer.sync();
        let fresh = Plfs::new(server, nodes[1].config(CloseToOpen::Refuse));
        match agree {
            true => assert_eq!(told.unwrap_err().errno(), Errno::STALE),
            false => told.unwrap(),
        }
        assert_ne!(content(&fresh), b"final");
    }
}

/// One client sees what it did itself, whatever it caches: its processes do what the model does.
/// `PLFS_CLOSE_TO_OPEN_ROUNDS`: how many times.
#[test]
fn one_node_agrees_with_the_model() {
    const STEPS: usize = 150;
    let (node, number) = (Node::new(), rounds("PLFS_CLOSE_TO_OPEN_ROUNDS", 100));
    let episode = |seed: u64, list: &[plfs_testkit::Step]| {
        let shared = node.0.join(seed.to_string());
        std::fs::create_dir_all(&shared).unwrap();
        let mut rng = Rng::new(!seed);
        let config = Config {
            streams: rng.pick(&[1, 2, 8]),
            buffer_bytes: rng.pick(&[8 << 10, 64 << 10, 64 << 20]),
            segment_bytes: rng.pick(&[64 << 10, 1 << 40]),
            compact_bytes: rng.pick(&[0, 8 << 10]),
            shared_memory: Some(shared.clone()),
            close_to_open: CloseToOpen::OneNode,
            ..Config::shared()
        };
        let store = Arc::new(CloseToOpenStore::new(server()));
        let run = || World::new(store, Path::new("/m"), vec![config], &[0, 0, 0, 0]).run(list);
        let outcome = catch_unwind(AssertUnwindSafe(run));
        let _ = std::fs::remove_dir_all(&shared);
        outcome.unwrap_or_else(|_| Err("panic".into()))
    };
    for seed in seeds(number) {
        let list = steps(&mut Rng::new(seed), STEPS);
        let Err(why) = episode(seed, &list) else { continue };
        let short = shrink(&list, 2000, |list| episode(seed, list).is_err());
        panic!("seed {seed}: {why}\nshortest list found: {short:#?}\n{:?}", episode(seed, &short));
    }
    explored(number * STEPS as u64, "steps through a client that caches");
}

/// FAT, and object stores behind FUSE: link(2) gives one of these. A directory that takes no new
/// names gives EPERM as well, and that is what the program is told.
#[test]
fn a_file_system_without_hard_links_is_refused_with_a_sentence() {
    let node = Node::new();
    for errno in [Errno::PERM, Errno::OPNOTSUPP, Errno::NOSYS, Errno::XDEV] {
        for path in ["", PATH] {
            let (server, path) = (server(), path.to_string());
            let store = FaultStore::new(server.clone());
            store.fail_matching(&path, Op::Link, errno);
            let plfs = Plfs::new(Arc::new(store), node.config(CloseToOpen::Refuse));
            let error = open_with(&plfs, OpenOptions::create()).unwrap_err();
            let is_no_links = matches!(error, Error::Unfit { .. });
            assert_eq!(is_no_links, path.is_empty() || errno == Errno::XDEV, "{error}");
            assert_eq!(error.errno(), if is_no_links { Errno::OPNOTSUPP } else { errno });
            assert_eq!(error.to_string().contains("hard links"), is_no_links, "{error}");
            let shards = server.list(Path::new("/m/.plfs")).unwrap();
            for shard in shards {
                let dir = Path::new("/m/.plfs").join(shard.name);
                assert!(server.list(&dir).unwrap().is_empty(), "a container is left");
            }
        }
    }
}

/// exFAT behind FUSE: the mode of a new `.plfs` could not be set, and the program was told that an
/// operation is not permitted.
#[test]
fn a_file_system_without_permissions_is_refused_with_a_sentence() {
    let (node, server) = (Node::new(), server());
    let store = FaultStore::new(server.clone());
    store.fail_matching(".plfs", Op::Chmod, Errno::PERM);
    let plfs = Plfs::new(Arc::new(store), node.config(CloseToOpen::Refuse));
    for _ in 0..2 {
        let error = open_with(&plfs, OpenOptions::create()).unwrap_err();
        assert_eq!(error.errno(), Errno::OPNOTSUPP);
        assert!(
            error.to_string().contains("no permissions, which each PLFS file needs"),
            "{error}"
        );
        assert!(server.list(Path::new("/m")).unwrap().is_empty(), "nothing is left");
    }
}
