//! A client of a network file system that serves old bytes of a superblock from its page cache, for
//! ever, as ceph-fuse does: answers are right all the same, and cost what they cost others.

use std::collections::{HashMap, hash_map::Entry};
use std::path::Path;
use std::sync::{Arc, Mutex};

use plfs::store::{self, Links, Open, Result, Stat, Store, StoreFile};
use plfs::{Config, File, OpenOptions, Opened, Plfs};
use plfs_format::superblock::FILE_BYTES;
use plfs_testkit::{FaultStore, MemStore, Op, Rng, seeds};

type Cache = Arc<Mutex<HashMap<u64, Vec<u8>>>>;

/// One client: what it has read of a superblock, it never reads again, unless it is told to forget.
#[derive(Debug)]
struct Client {
    inner: FaultStore,
    cache: Cache,
}

#[derive(Debug)]
struct ClientFile {
    inner: Arc<dyn StoreFile>,
    cache: Cache,
}

impl Client {
    fn new(memory: &MemStore) -> Arc<Client> {
        Arc::new(Client {
            inner: FaultStore::new(Arc::new(memory.clone())),
            cache: Cache::default(),
        })
    }

    fn process(self: &Arc<Client>) -> Plfs {
        Plfs::new(self.clone(), Config { shared_memory: None, ..Config::shared() })
    }
}

impl Store for Client {
    fn open(&self, path: &Path, how: Open) -> Result<Arc<dyn StoreFile>> {
        Ok(Arc::new(ClientFile { inner: self.inner.open(path, how)?, cache: self.cache.clone() }))
    }
    fn stat(&self, path: &Path, links: Links) -> Result<Stat> {
        self.inner.stat(path, links)
    }
    fn list(&self, path: &Path) -> Result<Vec<store::Entry>> {
        self.inner.list(path)
    }
    plfs_testkit::delegate_names!(inner);
    fn is_local(&self, _path: &Path) -> bool {
        false
    }
    fn boot(&self, path: &Path) -> Option<u64> {
        self.inner.boot(path)
    }
}

impl StoreFile for ClientFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        let mut cache = self.cache.lock().unwrap();
        let stat = self.inner.stat()?;
        if stat.len != FILE_BYTES as u64 {
            return self.inner.read_at(buf, offset);
        }
        if let Entry::Vacant(place) = cache.entry(stat.ino) {
            let mut bytes = vec![0; FILE_BYTES];
            self.inner.read_at(&mut bytes, 0)?;
            place.insert(bytes);
        }
        let bytes = cache[&stat.ino].get(offset as usize..).unwrap_or(&[]);
        let n = bytes.len().min(buf.len());
        buf[..n].copy_from_slice(&bytes[..n]);
        Ok(n)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<usize> {
        let n = self.inner.write_at(buf, offset)?;
        if let Some(bytes) = self.cache.lock().unwrap().get_mut(&self.inner.stat()?.ino) {
            bytes[offset as usize..][..n].copy_from_slice(&buf[..n]);
        }
        Ok(n)
    }
    plfs_testkit::delegate_file!(inner);
    fn forget_cached(&self) {
        self.cache.lock().unwrap().remove(&self.inner.stat().unwrap().ino);
    }
}

fn open(plfs: &Plfs) -> File {
    match plfs.open(Path::new("/m/f"), OpenOptions::create()).unwrap() {
        Opened::Logical(file) => file,
        Opened::Plain(_) => panic!("it is plain"),
    }
}

fn read(plfs: &Plfs) -> Vec<u8> {
    let file = open(plfs);
    let mut bytes = vec![0xee; 1 << 16];
    let n = file.read_at(&mut bytes, 0).unwrap();
    assert_eq!(file.len().unwrap(), n as u64);
    bytes.truncate(n);
    bytes
}

fn storage() -> MemStore {
    let memory = MemStore::new();
    memory.mkdir(Path::new("/m"), 0o755).unwrap();
    memory
}

/// Two clients wrote, and the one that closed last wrote the summary. The other has the superblock
/// in its page cache as it was when the file was new: it reads that again rather than all logs. (On
/// CephFS every second client listed, opened and read all log sets.)
#[test]
fn a_client_with_an_old_superblock_reads_it_again_and_no_log() {
    let memory = storage();
    let (last, old) = (Client::new(&memory), Client::new(&memory));
    let (one, two) = (open(&last.process()), open(&old.process()));
    one.write_at(b"aaaa", 0).unwrap();
    two.write_at(b"bbbb", 4).unwrap();
    two.close().unwrap();
    one.close().unwrap();
    for round in 0..3 {
        // A name is remembered by a process while it does not change; a new one has to look.
        let plfs = old.process();
        let before = old.inner.log().len();
        assert_eq!(read(&plfs), b"aaaabbbb");
        let calls = old.inner.log()[before..].to_vec();
        let of = |op: Op, end: &str| {
            calls
                .iter()
                .filter(|call| call.op == op && call.path.to_string_lossy().ends_with(end))
                .count()
        };
        assert_eq!(
            calls.iter().filter(|call| call.op == Op::List).count(),
            0,
            "round {round}: {calls:?}"
        );
        assert_eq!(of(Op::Open, "/index") + of(Op::Stat, "/index"), 0, "round {round}");
        assert_eq!(
            of(Op::Open, "/super"),
            usize::from(round == 0),
            "what was read again is what the cache has now"
        );
        assert!(plfs.stat(Path::new("/m/f"), Links::Follow).unwrap().totals.unwrap().from_summary);
    }
}

/// A stat alone is as good.
#[test]
fn a_stat_reads_an_old_superblock_again() {
    let memory = storage();
    let (last, old) = (Client::new(&memory), Client::new(&memory));
    let one = open(&last.process());
    one.write_at(b"aaaa", 0).unwrap();
    assert_eq!(read(&old.process()), b"");
    one.close().unwrap();
    let totals = old.process().stat(Path::new("/m/f"), Links::Follow).unwrap().totals.unwrap();
    assert!(totals.from_summary);
    assert_eq!(totals.size, 4);
}

/// A file that nobody has written to has no summary. It is listed once by a process that has it in
/// view, not at each stat, and who writes is seen at once. (A listing of 10,000 new files through a
/// mount opened and listed 10,000 containers each time: half of what it cost.)
#[test]
fn a_new_files_container_is_listed_once() {
    let memory = storage();
    let (writing, looking) = (Client::new(&memory), Client::new(&memory));
    open(&writing.process()).close().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(1100));
    let plfs = looking.process();
    let size = || plfs.stat(Path::new("/m/f"), Links::Follow).unwrap().totals.unwrap().size;
    for _ in 0..3 {
        assert_eq!(size(), 0);
    }
    assert_eq!(looking.inner.calls_of(Op::List), 1);
    let file = open(&writing.process());
    file.write_at(b"aaaa", 0).unwrap();
    file.commit().unwrap();
    assert_eq!(size(), 4);
    file.write_at(b"aaaa", 4).unwrap();
    file.close().unwrap();
    assert_eq!(size(), 8);
}

/// Who asks again and again for the size of a file that is being written lists its container once,
/// as long as nobody comes or goes, and opens no log that has nothing new. Both are seen.
/// (Each stat of a database in a mount listed the container and opened all index logs: nine system
/// calls of thirteen.)
#[test]
fn a_container_that_stays_as_it_is_is_listed_once() {
    let memory = storage();
    let (writing, looking) = (Client::new(&memory), FaultStore::new(Arc::new(memory.clone())));
    let file = open(&writing.process());
    file.write_at(b"aaaa", 0).unwrap();
    file.commit().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(1100));
    let plfs =
        Plfs::new(Arc::new(looking.clone()), Config { shared_memory: None, ..Config::shared() });
    let reader = open(&plfs);
    let index_opens = || {
        looking
            .log()
            .iter()
            .filter(|call| call.op == Op::Open && call.path.ends_with("index"))
            .count()
    };
    for _ in 0..3 {
        assert_eq!(reader.len().unwrap(), 4);
    }
    assert_eq!((looking.calls_of(Op::List), index_opens()), (1, 1));
    file.write_at(b"aaaa", 4).unwrap();
    file.commit().unwrap();
    assert_eq!(reader.len().unwrap(), 8);
    assert_eq!((looking.calls_of(Op::List), index_opens()), (1, 2));
    let other = open(&writing.process());
    other.write_at(b"aaaa", 8).unwrap();
    other.commit().unwrap();
    assert_eq!(reader.len().unwrap(), 12);
    other.close().unwrap();
    file.close().unwrap();
    assert_eq!(reader.len().unwrap(), 12);
}

/// While somebody writes, no summary counts, and nobody reads one again in vain.
#[test]
fn an_old_superblock_is_not_read_again_while_somebody_writes() {
    let memory = storage();
    let (writing, old) = (Client::new(&memory), Client::new(&memory));
    open(&writing.process()).close().unwrap();
    let file = open(&writing.process());
    file.write_at(b"aaaa", 0).unwrap();
    file.commit().unwrap();
    let before = old.inner.calls_of(Op::Open);
    let reader = open(&old.process());
    for _ in 0..3 {
        assert_eq!(reader.len().unwrap(), 4);
    }
    let log = old.inner.log();
    assert!(
        !log.iter().any(|call| call.op == Op::Open && call.path.ends_with("super")),
        "{} opens",
        old.inner.calls_of(Op::Open) - before
    );
}

/// Clients with caches open, write, cut, close and read in any order; who opens after a commit sees
/// it, whatever is in his cache.
#[test]
fn answers_are_right_whatever_superblock_a_client_has() {
    for seed in seeds(300) {
        let mut rng = Rng::new(seed);
        let memory = storage();
        let clients: Vec<_> = (0..3).map(|_| Client::new(&memory)).collect();
        let mut files: Vec<Option<(Plfs, File)>> = (0..3).map(|_| None).collect();
        let mut expected: Vec<u8> = Vec::new();
        for step in 0..40 {
            let i = rng.below(3) as usize;
            match (rng.below(5), &mut files[i]) {
                (0 | 1, slot @ None) => {
                    let plfs = clients[i].process();
                    let file = open(&plfs);
                    *slot = Some((plfs, file));
                }
                (0 | 1, Some((_, file))) => {
                    let (at, value) = (rng.below(200) as usize, step as u8 + 1);
                    // What was written before must have been seen, or the order is left to the
                    // clocks.
                    file.refresh().unwrap();
                    file.write_at(&[value; 20], at as u64).unwrap();
                    file.commit().unwrap();
                    expected.resize(expected.len().max(at + 20), 0);
                    expected[at..at + 20].fill(value);
                }
                (2, Some((_, file))) if rng.below(4) == 0 => {
                    let size = rng.below(200);
                    file.refresh().unwrap();
                    file.set_len(size).unwrap();
                    expected.resize(size as usize, 0);
                }
                (3, slot) => {
                    if let Some((_, file)) = slot.take() {
                        file.close().unwrap();
                    }
                }
                _ => assert_eq!(read(&clients[i].process()), expected, "seed {seed}, step {step}"),
            }
        }
    }
}
