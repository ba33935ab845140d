//! Plain files, and what becomes of them (SEMANTICS.md S33 to S38, docs/decisions/0013): each
//! promise in a few steps. `model.rs` takes random ones.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use plfs::store::{Errno, Links, LockKind, Open, PosixStore, Size, Store, StoreFile, Time};
use plfs::{
    Config, Decision, File, Health, OpenOptions, Opened, Plfs, Severity, Workload, Writers,
    decision_of,
};
use plfs_testkit::{FaultStore, MemStore, Op, delegate_file};

use crate::scratch::Scratch;

const SEVERAL: OpenOptions = OpenOptions {
    access: plfs::Access { read: true, write: true },
    create: false,
    exclusive: false,
    truncate: false,
    mode: 0o644,
    writers: Writers::Several,
};

/// A directory whose files are born plain, on a real file system.
struct Place {
    scratch: Scratch,
}

impl Place {
    fn new() -> Place {
        let place = Place { scratch: Scratch::new() };
        fs::create_dir(place.root()).unwrap();
        place
    }

    fn root(&self) -> PathBuf {
        self.scratch.0.join("root")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }

    /// Another process, as far as one process can play it.
    fn process(&self) -> Plfs {
        Plfs::posix(Config { workload: Workload::Auto, ..self.scratch.config() })
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::new(PosixStore::new())
    }

    fn create(&self, name: &str, bytes: &[u8]) -> File {
        let file = plain(self.process().open(&self.path(name), OpenOptions::create()).unwrap());
        file.write_at(bytes, 0).unwrap();
        file
    }

    /// Opens the file as one of several who will write it.
    fn promote(&self, name: &str) -> File {
        logical(self.process().open(&self.path(name), SEVERAL).unwrap())
    }

    /// A file that was plain and has a container, with `new` from byte 3 on.
    fn promoted(&self, name: &str, old: &[u8], new: &[u8]) -> PathBuf {
        self.create(name, old).close().unwrap();
        let file = self.promote(name);
        file.write_at(new, 3).unwrap();
        let dir = file.container().unwrap().dir.to_path_buf();
        file.close().unwrap();
        dir
    }

    /// Decides that the file has a container, and dies.
    fn begin(&self, name: &str) {
        let decided = Decision::Container {
            uuid: plfs_format::Uuid([0x5a; 16]),
            ino: fs::metadata(self.path(name)).unwrap().ino(),
            root: self.root().into_os_string().into_encoded_bytes(),
        };
        let file = self.store().open(&self.path(name), Open::READ_WRITE).unwrap();
        file.set_new_attribute("user.plfs", &decided.encode()).unwrap();
    }

    fn read(&self, name: &str) -> Vec<u8> {
        read(&self.process(), &self.path(name))
    }

    fn tree(&self) -> Vec<plfs::Report> {
        plfs::check_tree(&self.store(), &self.root(), &[], |_| {}).unwrap()
    }

    fn only(&self) -> plfs::Report {
        let mut all = self.tree();
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0)
    }

    fn repair(&self) -> Vec<String> {
        plfs::repair(&self.store(), &Config::shared(), &self.only(), 0).unwrap()
    }
}

fn plain(opened: Opened) -> File {
    match opened {
        Opened::Plain(file) if file.is_plain() => file,
        _ => panic!("it is not plain"),
    }
}

fn logical(opened: Opened) -> File {
    match opened {
        Opened::Logical(file) => file,
        Opened::Plain(_) => panic!("it is plain"),
    }
}

fn read(plfs: &Plfs, path: &Path) -> Vec<u8> {
    let file = plfs.open(path, OpenOptions::read()).unwrap().file();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    assert_eq!(file.read_at(&mut bytes, 0).unwrap(), bytes.len());
    bytes
}

fn worst(report: &plfs::Report) -> Severity {
    report.findings.iter().map(|finding| finding.severity).max().unwrap_or(Severity::Note)
}

fn copy_attribute(store: &dyn Store, from: &Path, to: &Path) {
    let text = store.open(from, Open::READ).unwrap().attribute("user.plfs").unwrap().unwrap();
    store.open(to, Open::READ_WRITE).unwrap().set_new_attribute("user.plfs", &text).unwrap();
}

/// S34. On storage that several nodes share, a young file's second writer is enough.
#[test]
fn a_second_writer_promotes_the_file_and_both_find_their_bytes() {
    let store: Arc<dyn Store> = Arc::new(MemStore::new().shared());
    store.mkdir(Path::new("/m"), 0o755).unwrap();
    let node = || {
        let config = Config { workload: Workload::Auto, shared_memory: None, ..Config::shared() };
        Plfs::new(store.clone(), config)
    };
    let (here, there, path) = (node(), node(), Path::new("/m/f"));
    let first = plain(here.open(path, OpenOptions::create()).unwrap());
    first.write_at(b"aaaa", 0).unwrap();
    let before = store.stat(path, Links::Stay).unwrap();
    // The store's clock counts calls.
    store.set_times(path, None, Some(Time::now())).unwrap();
    let options = OpenOptions { writers: Writers::Unknown, ..SEVERAL };
    let second = logical(there.open(path, options).unwrap());
    second.write_at(b"bb", 2).unwrap();
    second.close().unwrap();
    // It has not noticed; the close does.
    first.write_at(b"cc", 6).unwrap();
    first.close().unwrap();
    assert_eq!(read(&node(), path), b"aabb\0\0cc");
    // The name leads to the same inode, and programs without PLFS see what was written in place.
    let after = store.stat(path, Links::Stay).unwrap();
    assert_eq!((after.ino, after.nlink, after.len), (before.ino, 2, 8));
    let mut bytes = [0; 8];
    store.open(path, Open::READ).unwrap().read_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"aaaa\0\0cc");
    assert_eq!(node().stat(path, Links::Stay).unwrap().stat.nlink, 1);
}

/// S34. A file of more than 1 MiB is promoted if it was made a moment ago. CephFS by ceph-fuse does
/// not say when: there every second file of eight writers stayed plain, as the first of them had
/// written more before the second came. But the node knows what its processes made.
#[test]
fn a_long_file_that_this_node_has_made_is_promoted_also_where_nothing_tells_its_age() {
    let (scratch, memory) = (Scratch::new(), MemStore::new().shared());
    memory.mkdir(Path::new("/m"), 0o755).unwrap();
    let store: Arc<dyn Store> = Arc::new(memory);
    let process = || {
        let config = Config { workload: Workload::Auto, ..scratch.config() };
        Plfs::new(store.clone(), config)
    };
    let long = vec![7; 2 << 20];
    let options = OpenOptions { writers: Writers::Unknown, ..SEVERAL };
    let come_second = |path| {
        // The store's clock counts calls.
        store.set_times(path, None, Some(Time::now())).unwrap();
        process().open(path, options).unwrap()
    };
    let (ours, theirs) = (Path::new("/m/ours"), Path::new("/m/theirs"));
    let first = plain(process().open(ours, OpenOptions::create()).unwrap());
    first.write_at(&long, 0).unwrap();
    let second = logical(come_second(ours));
    second.write_at(b"new", 3).unwrap();
    second.close().unwrap();
    first.close().unwrap();
    assert_eq!(&read(&process(), ours)[..8], [7, 7, 7, b'n', b'e', b'w', 7, 7]);
    let file = store.open(theirs, Open::create(0o644)).unwrap();
    plfs::store::write_full(file.as_ref(), &long, 0).unwrap();
    plain(come_second(theirs)).close().unwrap();
}

/// S33. Nothing of PLFS is in the way of a file with one writer.
#[test]
fn a_file_with_one_writer_is_an_ordinary_file() {
    let place = Place::new();
    let file = place.create("f", b"abc");
    assert_eq!(fs::read(place.path("f")).unwrap(), b"abc");
    assert_eq!(file.len().unwrap(), 3);
    file.close().unwrap();
    assert!(!place.path(".plfs").exists());
    assert_eq!(fs::metadata(place.path("f")).unwrap().nlink(), 1);
    assert_eq!(decision_of(place.store().as_ref(), &place.path("f")).unwrap(), None);
    // Whoever comes after it was closed on this node is alone again.
    plain(place.process().open(&place.path("f"), OpenOptions::create()).unwrap()).close().unwrap();
}

/// Who maps, inherits or appends to a file decides first that it stays plain. Somebody had decided
/// that it has a container, and was killed before there was one: this was taken for a success, and
/// what was written in place afterwards disappeared once the container was whole.
#[test]
fn who_pins_a_file_whose_promoter_was_killed_finishes_the_container() {
    let place = Place::new();
    let file = place.create("f", b"aaaa");
    place.begin("f");
    assert!(!file.pin("mapped for writing").unwrap(), "it is to have a container");
    assert!(!file.is_plain());
    file.write_at(b"bb", 2).unwrap();
    file.close().unwrap();
    place.promote("f").close().unwrap();
    assert_eq!(place.read("f"), b"aabb");
}

/// S39. Who did not own the file took it for plain, and wrote in place what disappeared below the
/// logs as soon as its owner finished the container.
#[test]
fn who_may_not_finish_a_container_is_refused() {
    let place = Place::new();
    place.create("f", b"aaaa").close().unwrap();
    let other = Arc::new(FaultStore::new(place.store()).acting_as(5002));
    let config = Config { workload: Workload::Auto, ..place.scratch.config() };
    let other = plain(Plfs::new(other, config).open(&place.path("f"), SEVERAL).unwrap());
    place.begin("f");
    assert_eq!(other.pin("mapped for writing").unwrap_err().errno(), Errno::BUSY);
    place.promote("f").close().unwrap();
    assert!(!other.pin("mapped for writing").unwrap());
    other.write_at(b"bb", 2).unwrap();
    other.close().unwrap();
    assert_eq!(place.read("f"), b"aabb");
}

/// Whoever could not look whether a file has a container, because no descriptor was left, took it
/// for plain: he read what it was before, and wrote below what others had written.
#[test]
fn who_cannot_look_for_a_container_does_not_take_the_file_for_plain() {
    let place = Place::new();
    place.promoted("f", b"aaaa", b"bb");
    let store = FaultStore::new(place.store());
    let config = Config { workload: Workload::Auto, ..place.scratch.config() };
    let process = Plfs::new(Arc::new(store.clone()), config);
    for errno in [Errno::MFILE, Errno::IO, Errno::ACCESS] {
        store.fail_matching("/base", Op::Stat, errno);
        let opened = process.open(&place.path("f"), OpenOptions::create());
        assert_eq!(opened.unwrap_err().errno(), errno);
        store.reset();
    }
    assert_eq!(read(&process, &place.path("f")), b"aaabb");
}

/// In a copy of a tree, whoever could not look for a file's container, because no descriptor was
/// left, went on to that of the original.
#[test]
fn who_cannot_look_for_a_copied_container_does_not_take_the_original() {
    let place = Place::new();
    let config = Config { workload: Workload::Shared, ..place.scratch.config() };
    let write = |path: &Path, bytes: &[u8]| {
        let opened = Plfs::posix(config.clone()).open(path, OpenOptions::create()).unwrap();
        let file = logical(opened);
        file.write_at(bytes, 0).unwrap();
        file.close().unwrap();
    };
    fs::create_dir(place.root().join(".plfs")).unwrap();
    write(&place.path("f"), b"original");
    let copy = place.root().with_file_name("copy");
    let copied = Command::new("cp").arg("-a").arg(place.root()).arg(&copy).status().unwrap();
    assert!(copied.success());
    write(&copy.join("f"), b"the copy");
    assert_eq!(place.read("f"), b"original");
    let store = FaultStore::new(place.store());
    let process = Plfs::new(Arc::new(store.clone()), config.clone());
    store.fail_matching("copy/.plfs/", Op::Stat, Errno::MFILE);
    let opened = process.open(&copy.join("f"), OpenOptions::read());
    assert_eq!(opened.unwrap_err().errno(), Errno::MFILE);
    store.reset();
    assert_eq!(read(&process, &copy.join("f")), b"the copy");
}

/// A promoter's stamps begin 10 ms behind the file's modification time, which ticks. They lay in
/// the future: what was written in place in these 10 ms, later, was hidden by them.
#[test]
fn what_is_written_in_place_after_a_promoters_write_is_newer() {
    let place = Place::new();
    let alone = || {
        let config = Config { shared_memory: None, ..place.scratch.config() };
        Plfs::posix(Config { workload: Workload::Auto, ..config })
    };
    let first = plain(alone().open(&place.path("f"), OpenOptions::create()).unwrap());
    first.write_at(b"aaaa", 0).unwrap();
    let second = logical(alone().open(&place.path("f"), SEVERAL).unwrap());
    second.write_at(b"bbb", 0).unwrap();
    second.commit().unwrap();
    first.write_at(b"cc", 0).unwrap();
    first.close().unwrap();
    second.close().unwrap();
    assert_eq!(place.read("f"), b"ccba");
}

/// S2, S10. A process had a plain file open twice, and closed the handle that it had opened last.
/// From then on it handed nothing over by itself: what it wrote in place beside a node that had
/// made a container of the file stayed below that node's older bytes when it committed all, forked
/// or ended.
#[test]
fn what_is_written_in_place_is_committed_though_another_handle_was_closed() {
    let place = Place::new();
    let alone = || {
        let config = Config { shared_memory: None, ..place.scratch.config() };
        Plfs::posix(Config { workload: Workload::Auto, ..config })
    };
    for ends in [Plfs::commit_all, Plfs::before_fork, Plfs::exit] {
        let process = alone();
        let first = plain(process.open(&place.path("f"), OpenOptions::create()).unwrap());
        first.write_at(b"aaaa", 0).unwrap();
        plain(process.open(&place.path("f"), OpenOptions::create()).unwrap()).close().unwrap();
        let second = logical(alone().open(&place.path("f"), SEVERAL).unwrap());
        second.write_at(b"bbb", 0).unwrap();
        second.commit().unwrap();
        first.write_at(b"cc", 0).unwrap();
        ends(&process).unwrap();
        assert_eq!(read(&alone(), &place.path("f")), b"ccba");
        first.close().unwrap();
        second.close().unwrap();
        fs::remove_file(place.path("f")).unwrap();
    }
}

/// S24. Who reserved room in place looked for a container first, but not under the gate: the room
/// was then behind the base of one that was made in between, and the file as short as before.
#[test]
fn room_that_is_reserved_in_place_counts_beside_a_promoter() {
    let place = Arc::new(Place::new());
    let store = FaultStore::new(place.store());
    let config = Config { workload: Workload::Auto, shared_memory: None, ..place.scratch.config() };
    let process = Plfs::new(Arc::new(store.clone()), config);
    let first = plain(process.open(&place.path("f"), OpenOptions::create()).unwrap());
    first.write_at(b"aaaa", 0).unwrap();
    let (made, is_made) = mpsc::channel();
    let others = place.clone();
    store.before("/f", Op::Allocate, move || {
        let promoter = thread::spawn(move || others.promote("f").close().unwrap());
        // It waits for the gate, for longer than this.
        thread::sleep(Duration::from_millis(30));
        made.send(promoter).unwrap();
    });
    first.allocate(0, 50, Size::Grows).unwrap();
    is_made.recv().unwrap().join().unwrap();
    first.close().unwrap();
    let second = logical(place.process().open(&place.path("f"), SEVERAL).unwrap());
    assert_eq!(second.len().unwrap(), 50);
}

/// S36. A promoter takes the file's modification time into the clock of the container. Behind a
/// time that was set into the future its stamps lay there, too, and what others wrote in place
/// later was hidden by what it wrote.
#[test]
fn a_file_whose_time_lies_ahead_stays_plain() {
    let place = Place::new();
    let first = place.create("f", b"aaaa");
    let hour = Time { sec: Time::now().sec + 3600, nsec: 0 };
    place.store().set_times(&place.path("f"), None, Some(hour)).unwrap();
    let second = plain(place.process().open(&place.path("f"), SEVERAL).unwrap());
    second.write_at(b"bbb", 0).unwrap();
    second.close().unwrap();
    first.write_at(b"c", 0).unwrap();
    first.close().unwrap();
    assert_eq!(fs::read(place.path("f")).unwrap(), b"cbba");
    // That write has set the time: now it can be promoted.
    place.promote("f").close().unwrap();
    assert_eq!(place.read("f"), b"cbba");
}

/// S36. Who may write a file and not read it cannot ask it for its attribute: he would never learn
/// of a container, and go on below its logs.
#[test]
fn a_file_that_its_writers_may_not_read_stays_plain() {
    let place = Place::new();
    place.create("f", b"abc").close().unwrap();
    for mode in [0o620, 0o602, 0o222] {
        place.store().chmod(&place.path("f"), mode).unwrap();
        plain(place.process().open(&place.path("f"), SEVERAL).unwrap()).close().unwrap();
    }
    for mode in [0o640, 0o664, 0o600] {
        place.store().chmod(&place.path("f"), mode).unwrap();
        place.promote("f").close().unwrap();
    }
}

/// S36. The right to read a file was taken away from a process that wrote it in place. Its looks
/// failed, it took the file for a plain one, and what it wrote lay below the logs of others: a
/// commit that said yes, and lost it.
#[test]
fn who_may_not_look_any_more_is_told() {
    let place = Place::new();
    let store = FaultStore::new(place.store());
    let config = Config { workload: Workload::Auto, shared_memory: None, ..place.scratch.config() };
    let process = Plfs::new(Arc::new(store.clone()), config);
    let first = plain(process.open(&place.path("f"), OpenOptions::create()).unwrap());
    first.write_at(b"aaaa", 0).unwrap();
    let second = place.promote("f");
    second.write_at(b"bb", 0).unwrap();
    second.close().unwrap();
    store.fail_matching("/f", Op::Attribute, Errno::ACCESS);
    first.write_at(b"c", 3).unwrap();
    assert_eq!(first.commit().unwrap_err().errno(), Errno::ACCESS);
    // As soon as it may read the file again nothing is missing.
    store.reset();
    first.close().unwrap();
    assert_eq!(place.read("f"), b"bbac");
    // A file without a container is as it was.
    let alone = plain(process.open(&place.path("g"), OpenOptions::create()).unwrap());
    store.fail_matching("/g", Op::Attribute, Errno::ACCESS);
    alone.write_at(b"abc", 0).unwrap();
    alone.close().unwrap();
    assert_eq!(place.read("g"), b"abc");
}

/// S35. A truncate of who has not noticed is one of the container.
#[test]
fn truncates_cut_the_file_wherever_its_bytes_are() {
    let place = Place::new();
    let first = place.create("f", b"abcdef");
    first.set_len(4).unwrap();
    assert_eq!(fs::read(place.path("f")).unwrap(), b"abcd");
    let second = place.promote("f");
    second.write_at(b"XYZ", 3).unwrap();
    second.commit().unwrap();
    first.set_len(5).unwrap();
    assert!(!first.is_plain());
    first.close().unwrap();
    second.refresh().unwrap();
    assert_eq!(second.len().unwrap(), 5);
    second.close().unwrap();
    assert_eq!(place.read("f"), b"abcXY");
    place.process().truncate(&place.path("f"), 0).unwrap();
    assert_eq!(place.read("f"), b"");
    // What is longer than the base was cut with all that lies below.
    place.process().truncate(&place.path("f"), 3).unwrap();
    assert_eq!(place.read("f"), [0; 3]);
}

/// An open file that is something else from its next [`StoreFile::try_gate`] on.
#[derive(Debug)]
struct Replaced {
    inner: Arc<dyn StoreFile>,
    is_due: mpsc::Sender<()>,
    is_done: Mutex<mpsc::Receiver<()>>,
}

impl StoreFile for Replaced {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> plfs::store::Result<usize> {
        self.inner.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> plfs::store::Result<usize> {
        self.inner.write_at(buf, offset)
    }
    fn stat(&self) -> plfs::store::Result<plfs::store::Stat> {
        self.inner.stat()
    }
    fn set_len(&self, _: u64) -> plfs::store::Result<()> {
        Err(Errno::BADF)
    }
    fn sync_data(&self) -> plfs::store::Result<()> {
        self.inner.sync_data()
    }
    fn attribute(&self, name: &str) -> plfs::store::Result<Option<Vec<u8>>> {
        self.inner.attribute(name)
    }
    fn try_gate(&self) -> plfs::store::Result<bool> {
        self.is_due.send(()).unwrap();
        self.is_done.lock().unwrap().recv().unwrap();
        Err(Errno::BADF)
    }
    fn try_lock(&self, kind: LockKind) -> plfs::store::Result<bool> {
        self.inner.try_lock(kind)
    }
    fn map(&self) -> plfs::store::Result<plfs::store::Bytes> {
        self.inner.map()
    }
}

/// Two threads of a program: while one cuts a file the other passes its descriptor on, finds that
/// the file has a container by now, and puts a descriptor there that can only read. The cut failed
/// with EBADF.
#[test]
fn a_cut_whose_descriptor_is_replaced_goes_on_in_the_container() {
    let place = Place::new();
    place.create("f", b"abcdef").close().unwrap();
    let (plfs, path) = (place.process(), place.path("f"));
    let inner = place.store().open(&path, Open::READ_WRITE).unwrap();
    let (is_due, due) = mpsc::channel();
    let (done, is_done) = mpsc::channel();
    let stat = inner.stat().unwrap();
    let file = Arc::new(Replaced { inner, is_due, is_done: Mutex::new(is_done) });
    let options = OpenOptions { writers: Writers::Unknown, ..SEVERAL };
    let cut = plain(plfs.opened_plain(file, &stat, &path, options).unwrap());
    let passed = plain(plfs.open(&path, options).unwrap());
    thread::scope(|scope| {
        let cut = scope.spawn(move || {
            cut.set_len(4).unwrap();
            assert!(!cut.is_plain());
            cut.close().unwrap();
        });
        due.recv().unwrap();
        place.promote("f").close().unwrap();
        assert!(!passed.pin("passed on").unwrap());
        done.send(()).unwrap();
        cut.join().unwrap();
    });
    passed.close().unwrap();
    assert_eq!(place.read("f"), b"abcd");
}

/// An open file whose writes wait.
#[derive(Debug)]
struct Slow {
    inner: Arc<dyn StoreFile>,
    is_due: mpsc::Sender<()>,
    goes_on: Mutex<mpsc::Receiver<()>>,
}

impl StoreFile for Slow {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> plfs::store::Result<usize> {
        self.inner.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> plfs::store::Result<usize> {
        self.is_due.send(()).unwrap();
        self.goes_on.lock().unwrap().recv().unwrap();
        self.inner.write_at(buf, offset)
    }
    delegate_file!(inner);
}

/// A thread writes through the number of a descriptor, and another one is about to close that, or
/// to put another file there. It waited for nothing: the write went to whatever came to be there.
#[test]
fn a_descriptor_stays_as_long_as_a_write_uses_it() {
    let place = Place::new();
    place.create("f", b"abcdef").close().unwrap();
    let (plfs, path) = (place.process(), place.path("f"));
    let open = || place.store().open(&path, Open::READ_WRITE).unwrap();
    let (is_due, due) = mpsc::channel();
    let (go_on, goes_on) = mpsc::channel();
    let lent = Arc::new(Slow { inner: open(), is_due, goes_on: Mutex::new(goes_on) });
    let options = OpenOptions { writers: Writers::Unknown, ..SEVERAL };
    let stat = lent.stat().unwrap();
    let file = plain(plfs.opened_plain(lent, &stat, &path, options).unwrap());
    thread::scope(|scope| {
        let write = scope.spawn(|| file.write_at(b"XY", 2).unwrap());
        due.recv().unwrap();
        let close = scope.spawn(|| drop(file.replace_open(open())));
        thread::sleep(Duration::from_millis(20));
        assert!(!close.is_finished());
        go_on.send(()).unwrap();
        write.join().unwrap();
        close.join().unwrap();
    });
    file.close().unwrap();
    assert_eq!(place.read("f"), b"abXYef");
}

/// S35. A process wrote in place, another one cut the file there, and a third one made a container
/// of it. The first handed over what had been cut, and the file was as long as before.
#[test]
fn what_was_cut_in_place_is_not_handed_over() {
    let place = Place::new();
    let first = place.create("f", b"abcdef");
    let second = plain(place.process().open(&place.path("f"), OpenOptions::create()).unwrap());
    second.set_len(2).unwrap();
    let third = place.promote("f");
    first.close().unwrap();
    second.close().unwrap();
    third.refresh().unwrap();
    assert_eq!(third.len().unwrap(), 2);
    third.close().unwrap();
    assert_eq!(place.read("f"), b"ab");
}

/// S35. A file got a container, and was cut there. A process of another node that had not noticed
/// made a hole in place, to the end that the base still had: the file had that length again.
#[test]
fn a_hole_of_who_has_not_noticed_ends_where_the_file_was_cut() {
    let place = Place::new();
    let apart = Config { shared_memory: None, workload: Workload::Auto, ..place.scratch.config() };
    let apart = Plfs::posix(apart);
    let first = plain(apart.open(&place.path("f"), OpenOptions::create()).unwrap());
    first.write_at(b"abcdef", 0).unwrap();
    let second = place.promote("f");
    second.set_len(4).unwrap();
    first.zero(2, 4).unwrap();
    first.close().unwrap();
    second.refresh().unwrap();
    assert_eq!(second.len().unwrap(), 4);
    second.close().unwrap();
    assert_eq!(place.read("f"), b"ab\0\0");
}

/// A flat index of a promoted file has what the plain file below the logs shows, and leaves out
/// what hides it. So it counts only as long as that keeps its length: what is written in place
/// later lies below a truncate and a hole that nobody would find in it.
#[test]
fn a_flat_index_has_the_base_as_it_was() {
    let place = Place::new();
    let first = place.create("f", b"aaaaaaaa");
    let second = place.promote("f");
    second.write_at(b"bb", 2).unwrap();
    second.write_at(b"bb", 100).unwrap();
    second.zero(4, 2).unwrap();
    second.set_len(7).unwrap();
    second.set_len(10).unwrap();
    second.write_at(b"bb", 4000).unwrap();
    second.set_len(10).unwrap();
    second.close().unwrap();
    place.process().flatten(&place.path("f")).unwrap();
    let uses_flat = |file: &File| file.with_index(|index| index.flat().0).unwrap();
    let reader = logical(place.process().open(&place.path("f"), OpenOptions::read()).unwrap());
    let read_all = |file: &File| {
        let mut bytes = [1; 12];
        let n = file.read_at(&mut bytes, 0).unwrap();
        bytes[..n].to_vec()
    };
    assert_eq!(read_all(&reader), b"aabb\0\0a\0\0\0");
    assert!(uses_flat(&reader));
    // The base grows under a truncate that the flat index does not have any more.
    let base = place.store().open(&place.path("f"), Open::READ_WRITE).unwrap();
    base.write_at(b"cccc", 8).unwrap();
    let late = logical(place.process().open(&place.path("f"), OpenOptions::read()).unwrap());
    assert_eq!(read_all(&late), b"aabb\0\0a\0\0\0");
    assert!(!uses_flat(&late));
    reader.refresh().unwrap();
    assert_eq!(read_all(&reader), b"aabb\0\0a\0\0\0");
    assert!(!uses_flat(&reader));
    // Who has not noticed comes after all that, and counts.
    first.write_at(b"d", 11).unwrap();
    first.close().unwrap();
    late.refresh().unwrap();
    assert_eq!(read_all(&late), b"aabb\0\0a\0\0\0\0d");
    assert_eq!(place.read("f"), b"aabb\0\0a\0\0\0\0d");
    place.process().flatten(&place.path("f")).unwrap();
    assert_eq!(place.read("f"), b"aabb\0\0a\0\0\0\0d");
}

/// An empty base counts as a data log. A summary that had forgotten it was taken for damage.
#[test]
fn a_file_that_was_empty_when_it_was_shared_is_healthy() {
    let place = Place::new();
    place.create("f", b"").close().unwrap();
    let file = place.promote("f");
    file.write_at(b"abc", 0).unwrap();
    file.close().unwrap();
    let report = place.only();
    assert_eq!(report.health(), Health::Healthy, "{:?}", report.findings);
    assert_eq!(place.read("f"), b"abc");
}

/// S36. What PLFS would not see pins a file; who comes later does not promote it.
#[test]
fn a_pinned_file_stays_plain_and_says_why() {
    let place = Place::new();
    let file = place.create("f", b"abc");
    assert!(file.pin("mapped").unwrap());
    let other = plain(place.process().open(&place.path("f"), SEVERAL).unwrap());
    other.write_at(b"X", 1).unwrap();
    assert_eq!(fs::read(place.path("f")).unwrap(), b"aXc");
    let why = decision_of(place.store().as_ref(), &place.path("f")).unwrap();
    assert_eq!(why, Some(Decision::Plain("mapped".into())));
    let report = plfs::check_name(&place.store(), &place.path("f"), &[]);
    assert_eq!(report.health(), Health::Healthy);
    assert!(report.findings[0].what.ends_with("mapped"), "{report:?}");
    // One that has a container has it for ever.
    place.promoted("g", b"abc", b"def");
    let file = place.process().open(&place.path("g"), SEVERAL).unwrap().file();
    assert!(!file.pin("mapped").unwrap());
}

/// S37. The attribute of a copy speaks of another inode.
#[test]
fn a_copy_with_its_attribute_is_plain() {
    let place = Place::new();
    place.promoted("f", b"abc", b"def");
    fs::write(place.path("g"), place.read("f")).unwrap();
    copy_attribute(place.store().as_ref(), &place.path("f"), &place.path("g"));
    for name in ["g", "h"] {
        let file = plain(place.process().open(&place.path("g"), SEVERAL).unwrap());
        file.write_at(name.as_bytes(), 0).unwrap();
        file.close().unwrap();
        // With two names as well.
        let _ = fs::hard_link(place.path("g"), place.path("h"));
    }
    assert_eq!(fs::read(place.path("g")).unwrap(), b"hbcdef");
    assert_eq!(place.read("f"), b"abcdef");
    assert!(place.tree().iter().all(|report| report.health() == Health::Healthy));
}

/// S37. A copy of the whole tree, with hard links and attributes, has the container with it.
#[test]
fn a_copy_of_the_tree_has_the_files_as_they_are() {
    let place = Place::new();
    let dir = place.promoted("f", b"abc", b"def");
    let copy = place.scratch.0.join("copy");
    let inside = copy.join(dir.strip_prefix(place.root()).unwrap());
    let mut todo = vec![(dir.clone(), inside.clone())];
    while let Some((from, to)) = todo.pop() {
        fs::create_dir_all(&to).unwrap();
        for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
            let to = to.join(entry.file_name());
            match entry.file_type().unwrap().is_dir() {
                true => todo.push((entry.path(), to)),
                false => drop(fs::copy(entry.path(), to).unwrap()),
            }
        }
    }
    let check = || plfs::check_tree(&place.store(), &copy, &[], |_| {}).unwrap();
    // Without links and attributes the names show what the file was: nobody can know more.
    fs::copy(place.path("f"), copy.join("f")).unwrap();
    assert_eq!(check()[0].health(), Health::Unknown);
    fs::remove_file(copy.join("f")).unwrap();
    fs::hard_link(inside.join("base"), copy.join("f")).unwrap();
    assert_eq!(check()[0].health(), Health::Unknown);
    assert_eq!(read(&place.process(), &copy.join("f")), b"abc");
    copy_attribute(place.store().as_ref(), &place.path("f"), &copy.join("f"));
    assert_eq!(check()[0].health(), Health::Healthy, "{:?}", check());
    assert_eq!(check()[0].names, [copy.join("f")]);
    assert_eq!(read(&place.process(), &copy.join("f")), b"abcdef");
    let file = place.process().open(&copy.join("f"), SEVERAL).unwrap().file();
    file.write_at(b"X", 0).unwrap();
    file.close().unwrap();
    assert_eq!(read(&place.process(), &copy.join("f")), b"Xbcdef");
    assert_eq!(place.read("f"), b"abcdef");
}

/// The inode of a file that was plain is its base: by that it is the original, wherever it is, or a
/// copy, which leaves what is on backends alone.
#[test]
fn a_copy_of_the_tree_leaves_the_backends_to_the_original() {
    let place = Place::new();
    let [backend, copy, moved] =
        ["backend", "copy", "moved"].map(|name| place.scratch.0.join(name));
    fs::create_dir(&backend).unwrap();
    let config = place.scratch.config();
    let id = plfs::add_backend(&place.store(), &config, &place.root(), &backend).unwrap();
    assert_eq!(id, Some(1));
    fs::write(place.path(".plfs-layout"), "plfs-layout 1\nbackends 0001\n").unwrap();
    place.promoted("f", b"abc", b"def");
    let copied = Command::new("cp").arg("-a").args([&place.root(), &copy]).status().unwrap();
    assert!(copied.success());
    let write = |root: &Path| {
        let file = place.process().open(&root.join("f"), SEVERAL)?.file();
        assert!(file.container().is_some());
        file.write_at(b"X", 0)?;
        file.close()
    };
    assert_eq!(write(&copy).unwrap_err().errno(), Errno::ROFS);
    place.process().unlink(&copy.join("f")).unwrap();
    fs::rename(place.root(), &moved).unwrap();
    fs::rename(&copy, place.root()).unwrap();
    write(&moved).unwrap();
    assert_eq!(read(&place.process(), &moved.join("f")), b"Xbcdef");
}

/// S38. Names are the file system's own.
#[test]
fn a_file_open_in_place_outlives_its_name() {
    let place = Place::new();
    let first = place.create("f", b"abc");
    fs::write(place.path("g"), b"other").unwrap();
    place.process().rename(&place.path("g"), &place.path("f")).unwrap();
    first.write_at(b"XX", 1).unwrap();
    let mut bytes = [0; 3];
    assert_eq!(first.read_at(&mut bytes, 0).unwrap(), 3);
    assert_eq!(&bytes, b"aXX");
    first.close().unwrap();
    assert_eq!(place.read("f"), b"other");
    // And one that others made a container of meanwhile.
    let first = place.create("h", b"abc");
    let second = place.promote("h");
    second.write_at(b"def", 3).unwrap();
    second.close().unwrap();
    place.process().unlink(&place.path("h")).unwrap();
    first.write_at(b"X", 0).unwrap();
    first.refresh().unwrap();
    let mut bytes = [0; 6];
    assert_eq!(first.read_at(&mut bytes, 0).unwrap(), 6);
    assert_eq!(&bytes, b"Xbcdef");
    first.close().unwrap();
    assert!(place.tree().is_empty(), "{:?}", place.tree());
}

/// S38. Who removed the last name and had no descriptor left to look whether somebody has the file
/// open in place took the container away.
#[test]
fn who_cannot_look_whether_a_file_is_open_in_place_leaves_its_container() {
    let place = Place::new();
    let first = place.create("h", b"abc");
    let second = place.promote("h");
    second.write_at(b"def", 3).unwrap();
    second.close().unwrap();
    let store = FaultStore::new(place.store());
    store.fail_matching("/base", Op::Open, Errno::MFILE);
    let config = Config { workload: Workload::Auto, ..place.scratch.config() };
    Plfs::new(Arc::new(store), config).unlink(&place.path("h")).unwrap();
    first.write_at(b"X", 0).unwrap();
    first.refresh().unwrap();
    let mut bytes = [0; 6];
    assert_eq!(first.read_at(&mut bytes, 0).unwrap(), 6);
    assert_eq!(&bytes, b"Xbcdef");
    first.close().unwrap();
    assert!(place.tree().is_empty(), "{:?}", place.tree());
}

/// S38. On storage that nodes share, who removed the last name of a promoted file asked the node's
/// table for writers in place, and not for those of its own number: these went on with what was in
/// place, and a truncate in the container was undone. (Random steps, seed 758515027.) Of who only
/// reads the table knows nothing: that is ESTALE, and no old bytes.
#[test]
fn a_writer_in_place_keeps_the_container_on_shared_storage() {
    for writes in [true, false] {
        let store: Arc<dyn Store> = Arc::new(MemStore::new().shared());
        store.mkdir(Path::new("/m"), 0o755).unwrap();
        let (scratch, there, path) = (Scratch::new(), Scratch::new(), Path::new("/m/f"));
        let process = |node: &Scratch| {
            Plfs::new(store.clone(), Config { workload: Workload::Auto, ..node.config() })
        };
        let (one, two, far) = (process(&scratch), process(&scratch), process(&there));
        plain(one.open(path, OpenOptions::create()).unwrap()).write_at(b"in place", 0).unwrap();
        let how = if writes { OpenOptions::create() } else { OpenOptions::read() };
        let mine = plain(one.open(path, how).unwrap());
        let theirs = logical(far.open(path, SEVERAL).unwrap());
        theirs.set_len(3).unwrap();
        theirs.close().unwrap();
        two.unlink(path).unwrap();
        let mut bytes = [0; 9];
        match mine.read_at(&mut bytes, 0) {
            Ok(n) if writes => assert_eq!(&bytes[..n], b"in "),
            Err(error) if !writes => assert_eq!(error.errno(), plfs::store::Errno::STALE),
            other => panic!("writes: {writes}, {other:?}"),
        }
    }
}

/// S17. A process has read a file while it was plain. It went on in the container at a commit, and
/// held that at its next read only: when the name went before that, and then the last writer, the
/// data went, too. (Random steps, seed 2070633343.)
#[test]
fn who_has_read_the_plain_file_keeps_the_container() {
    let store: Arc<dyn Store> = Arc::new(MemStore::new().shared());
    store.mkdir(Path::new("/m"), 0o755).unwrap();
    let (scratch, path) = (Scratch::new(), Path::new("/m/f"));
    let process =
        || Plfs::new(store.clone(), Config { workload: Workload::Auto, ..scratch.config() });
    let (one, two, three) = (process(), process(), process());
    let first = plain(one.open(path, OpenOptions::create()).unwrap());
    first.write_at(b"kept", 0).unwrap();
    first.close().unwrap();
    let mut byte = [0];
    let reader = plain(two.open(path, OpenOptions::read()).unwrap());
    assert_eq!(reader.read_at(&mut byte, 0).unwrap(), 1);
    let writer = logical(one.open(path, SEVERAL).unwrap());
    writer.write_at(b"K", 0).unwrap();
    writer.commit().unwrap();
    reader.commit().unwrap();
    assert!(!reader.is_plain());
    three.unlink(path).unwrap();
    writer.close().unwrap();
    assert_eq!((reader.read_at(&mut byte, 0).unwrap(), byte), (1, *b"K"));
}

/// S13. A file without bytes was opened to be truncated, and then through a second handle, which
/// wrote. The close of the first committed nothing, as there had been nothing to cut, where that of
/// a container does. (Random steps, seed 1471519199.)
#[test]
fn the_close_of_a_truncating_open_commits_what_the_process_wrote() {
    for (workload, writers) in [
        (Workload::Auto, Writers::Unknown),
        (Workload::Auto, Writers::Several),
        (Workload::Shared, Writers::Unknown),
    ] {
        let place = Place::new();
        let process = || Plfs::posix(Config { workload, ..place.scratch.config() });
        let (one, two) = (process(), process());
        let path = place.path("f");
        let open = |options| match one.open(&path, options).unwrap() {
            Opened::Logical(file) | Opened::Plain(file) => file,
        };
        open(OpenOptions::create()).close().unwrap();
        let first = open(OpenOptions { truncate: true, writers, ..OpenOptions::create() });
        let second = open(SEVERAL);
        second.write_at(b"bytes", 0).unwrap();
        first.close().unwrap();
        assert_eq!(two.stat(&path, Links::Follow).unwrap().stat.len, 5, "{workload:?} {writers:?}");
        second.close().unwrap();
    }
}

/// S36. A second name may be in a directory that PLFS knows nothing of.
#[test]
fn a_hard_linked_plain_file_stays_plain() {
    let place = Place::new();
    place.create("f", b"abc").close().unwrap();
    fs::hard_link(place.path("f"), place.path("g")).unwrap();
    plain(place.process().open(&place.path("f"), SEVERAL).unwrap()).close().unwrap();
    assert!(!place.path(".plfs").exists());
}

/// S36. Only the owner of a file can make a container of it.
#[test]
fn a_file_of_another_user_stays_plain() {
    let store: Arc<dyn Store> = Arc::new(MemStore::new());
    store.mkdir(Path::new("/m"), 0o755).unwrap();
    let path = Path::new("/m/f");
    let config = Config { workload: Workload::Auto, shared_memory: None, ..Config::shared() };
    let plfs = Plfs::new(store.clone(), config);
    plain(plfs.open(path, OpenOptions::create()).unwrap()).close().unwrap();
    let uid = store.stat(path, Links::Stay).unwrap().uid + 1;
    store.chown(path, Some(uid), None, Links::Stay).unwrap();
    store.chmod(path, 0o666).unwrap();
    plain(plfs.open(path, SEVERAL).unwrap()).close().unwrap();
    assert_eq!(decision_of(store.as_ref(), path).unwrap(), None);
}

/// S19. Whoever wrote a file, set its times and closed it, as `cp -p` does, got those of the close,
/// if another process had made a container of it between.
#[test]
fn times_that_were_set_in_place_stay_beside_a_promoter() {
    let place = Place::new();
    let path = place.path("f");
    let file = place.create("f", b"abc");
    let past = Time { sec: 1_000_000, nsec: 7 };
    place.store().set_times(&path, Some(past), Some(past)).unwrap();
    let other = place.promote("f");
    file.close().unwrap();
    other.close().unwrap();
    let stat = fs::metadata(&path).unwrap();
    assert_eq!((stat.mtime(), stat.mtime_nsec()), (1_000_000, 7));
    assert_eq!(place.read("f"), b"abc");
}

/// Whoever locked a record by a descriptor for reading got EBADF while another process made a
/// container of the file: he tried to finish it, and can not.
#[test]
fn who_only_reads_waits_for_who_makes_the_container() {
    let place = Place::new();
    place.create("f", b"aaaa").close().unwrap();
    let reader = plain(place.process().open(&place.path("f"), OpenOptions::read()).unwrap());
    place.begin("f");
    assert_eq!(reader.pin("record locks").unwrap_err().errno(), Errno::BUSY);
    thread::scope(|scope| {
        let maker = scope.spawn(|| {
            thread::sleep(Duration::from_millis(20));
            place.promote("f").close().unwrap();
        });
        assert!(!reader.pin("record locks").unwrap(), "it has a container");
        maker.join().unwrap();
    });
}

/// S36. The container kept out whom the list of the file let in.
#[test]
fn a_file_with_an_access_list_stays_plain() {
    // Version 2; user rw-, user 5002 rw-, group r--, mask rw-, others r-- (acl_to_xattr(3)).
    let entries: [(u16, u16, u32); 5] =
        [(1, 6, !0), (2, 6, 5002), (4, 4, !0), (0x10, 6, !0), (0x20, 4, !0)];
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, rights, id) in entries {
        list.extend([tag.to_le_bytes(), rights.to_le_bytes()].concat());
        list.extend(id.to_le_bytes());
    }
    let place = Place::new();
    place.create("f", b"abc").close().unwrap();
    let name = place.store().open(&place.path("f"), Open::READ_WRITE).unwrap();
    match name.set_new_attribute("system.posix_acl_access", &list) {
        Err(Errno::OPNOTSUPP) => {
            return println!("skipped: {} has no access lists", place.root().display());
        }
        other => other.unwrap(),
    }
    plain(place.process().open(&place.path("f"), SEVERAL).unwrap()).close().unwrap();
    assert!(!place.path(".plfs").exists());
}

/// Whoever changed the mode or the owner of a file while another process made a container of it
/// changed its inode only: the container let in whom the file had let in before, for ever.
#[test]
fn who_may_use_a_file_may_use_the_container_that_is_made_meanwhile() {
    let change: [fn(&Plfs, &File, &Path); 4] = [
        |_, file, _| file.chmod(0o666).unwrap(),
        |plfs, _, path| plfs.chmod(path, 0o666).unwrap(),
        |_, file, _| file.chown(None, Some(5002)).unwrap(),
        |plfs, _, path| plfs.chown(path, None, Some(5002), Links::Follow).unwrap(),
    ];
    let is_root = rustix::process::geteuid().is_root();
    for change in &change[..if is_root { 4 } else { 2 }] {
        let mut n = 0;
        let mut is_over = false;
        while !is_over {
            let place = Place::new();
            let path = place.path("f");
            place.create("f", b"abc").close().unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            let store = FaultStore::new(place.store());
            let config = Config { workload: Workload::Auto, ..place.scratch.config() };
            let promoter = Plfs::new(Arc::new(store.clone()), config);
            // One who took it for plain then.
            let other = place.process();
            let file = plain(other.open(&path, OpenOptions::read()).unwrap());
            let (other, file) = (Arc::new(other), Arc::new(file));
            let (by, of, at, change) = (other.clone(), file.clone(), path.clone(), *change);
            store.before_call(n, move || change(&by, &of, &at));
            let dir = match promoter.open(&path, SEVERAL).unwrap() {
                Opened::Logical(file) => file.container().unwrap().dir.to_path_buf(),
                Opened::Plain(_) => panic!("it stays plain"),
            };
            is_over = store.calls() <= n;
            if is_over {
                change(&other, &file, &path);
            }
            let (file, dir) = (fs::metadata(&path).unwrap(), fs::metadata(dir).unwrap());
            let wanted = if file.mode() & 0o777 == 0o666 { 0o777 } else { 0o700 };
            assert_eq!(dir.mode() & 0o777, wanted, "before call {n}");
            assert_eq!((dir.uid(), dir.gid()), (file.uid(), file.gid()), "before call {n}");
            n += 1;
        }
        assert!(n > 10, "{n} calls");
    }
}

/// A base's names are links of it, and a check blames none of them.
#[test]
fn a_container_with_a_base_is_healthy_and_keeps_its_names() {
    let place = Place::new();
    let dir = place.promoted("f", b"abc", b"def");
    fs::hard_link(place.path("f"), place.path("g")).unwrap();
    let report = place.only();
    assert_eq!((report.health(), worst(&report)), (Health::Healthy, Severity::Note));
    assert_eq!(report.names, [place.path("f"), place.path("g")]);
    assert_eq!(place.repair(), [""; 0]);
    // Who still writes in place makes it grow, and a program without PLFS may cut it.
    let size =
        |len| fs::OpenOptions::new().write(true).open(dir.join("base")).unwrap().set_len(len);
    for len in [9, 1] {
        size(len).unwrap();
        let report = plfs::check_name(&place.store(), &place.path("f"), &[]);
        assert_eq!((report.health(), worst(&report)), (Health::Healthy, Severity::Note));
    }
    assert_eq!(place.read("f"), b"a\0\0def");
    // A damaged superblock takes no names away.
    fs::write(dir.join("super"), [7; 4093]).unwrap();
    assert_eq!(place.only().health(), Health::Corrupt);
    assert_eq!(place.repair(), [""; 0]);
    assert!(dir.join("base").exists());
}

/// Its last name was removed by a program without PLFS.
#[test]
fn a_base_without_another_name_is_garbage_unless_it_is_open() {
    let place = Place::new();
    let dir = place.promoted("f", b"abc", b"def");
    let open = fs::File::open(place.path("f")).unwrap();
    fs::remove_file(place.path("f")).unwrap();
    assert_eq!(place.only().health(), Health::Busy);
    assert_eq!(place.repair(), [""; 0]);
    drop(open);
    assert_eq!(place.only().health(), Health::Garbage);
    assert_eq!(place.repair().len(), 1);
    assert!(!dir.exists());
    let lost = place.only().lost.remove(0);
    plfs::put_back(&place.store(), &lost).unwrap();
    fs::hard_link(dir.join("base"), place.path("f")).unwrap();
    assert_eq!(place.only().health(), Health::Healthy);
    assert_eq!(place.read("f"), b"abcdef");
    // Power was cut between the calls that removed it.
    fs::remove_file(place.path("f")).unwrap();
    fs::remove_file(dir.join("base")).unwrap();
    assert_eq!(place.only().health(), Health::Garbage);
    assert_eq!(place.repair().len(), 1);
    assert!(!dir.exists());
}

/// Four clients of one CephFS on one machine, each mounted at a path of its own: the promoter's
/// path led the others to another client's mount, where the file is on another device. So they
/// wrote in place, in small pieces, until their first look. That took a third of the rate.
#[test]
fn a_container_is_finished_by_who_has_the_file_system_at_another_path() {
    let place = Place::new();
    let dir = place.promoted("f", b"abc", b"");
    for entry in fs::read_dir(&dir).unwrap().map(Result::unwrap) {
        match entry.file_name().to_str() {
            Some("base" | "clock") => {}
            Some("super") => fs::remove_file(entry.path()).unwrap(),
            _ => fs::remove_dir_all(entry.path()).unwrap(),
        }
    }
    let here = place.scratch.0.join("here");
    fs::rename(place.root(), &here).unwrap();
    let open = |path: &Path| place.process().open(path, SEVERAL).unwrap();
    let file = logical(open(&here.join("f")));
    file.write_at(b"X", 0).unwrap();
    file.close().unwrap();
    assert_eq!(read(&place.process(), &here.join("f")), b"Xbc");
    // The promoter died before the link: only where it began it could be made.
    fs::write(here.join("g"), b"abc").unwrap();
    let text = format!(
        "plfs 1 c {:032x} {} {}",
        7,
        fs::metadata(here.join("g")).unwrap().ino(),
        place.root().display()
    );
    let g = place.store().open(&here.join("g"), Open::READ_WRITE).unwrap();
    g.set_new_attribute("user.plfs", text.as_bytes()).unwrap();
    plain(open(&here.join("g"))).close().unwrap();
    assert!(!here.join(".plfs").join("00").exists());
}

/// Eight writers of a new file on two processors wrote 20 to 60 MiB in place while three of them
/// made its container, which took 12 ms instead of 1 then. Now they wait for it, if it is as young
/// as that, once.
#[test]
fn who_writes_in_place_waits_for_who_makes_the_container() {
    let has_waited = |name: &str| {
        let place = Place::new();
        let dir = place.promoted(name, b"abc", b"");
        let (super_block, aside) = (dir.join("super"), place.scratch.0.join("super"));
        fs::rename(&super_block, &aside).unwrap();
        let file = plain(place.process().open(&place.path(name), OpenOptions::create()).unwrap());
        file.write_at(b"X", 1).unwrap();
        let maker = thread::spawn(move || {
            thread::sleep(Duration::from_millis(4));
            fs::rename(&aside, &super_block).unwrap();
        });
        file.commit().unwrap();
        let has_waited = !file.is_plain();
        maker.join().unwrap();
        file.close().unwrap();
        assert_eq!(place.read(name), b"aXc");
        has_waited
    };
    // A machine that is busy may take longer than anybody waits.
    assert!((0..20).any(|i| has_waited(&format!("f{i}"))));
}

/// A promoter died: what it began is finished by the next one, or is nothing.
#[test]
fn a_container_that_is_not_whole_is_left_to_the_next_promoter() {
    let place = Place::new();
    let dir = place.promoted("f", b"abc", b"");
    let only = |names: &[&str]| {
        for entry in fs::read_dir(&dir).unwrap().map(Result::unwrap) {
            match entry.file_name().to_str() {
                Some(name) if names.contains(&name) => {}
                _ if entry.file_type().unwrap().is_dir() => {
                    fs::remove_dir_all(entry.path()).unwrap()
                }
                _ => fs::remove_file(entry.path()).unwrap(),
            }
        }
    };
    only(&["base", "clock"]);
    let report = place.only();
    assert_eq!((report.health(), worst(&report)), (Health::Healthy, Severity::Note));
    assert_eq!(report.names, [place.path("f")]);
    assert_eq!(place.repair(), [""; 0]);
    plain(place.process().open(&place.path("f"), OpenOptions::create()).unwrap()).close().unwrap();
    place.promote("f").close().unwrap();
    assert_eq!(place.only().health(), Health::Healthy);
    assert!(dir.join("super").exists());
    // Without a base it is an empty directory, which goes.
    only(&[]);
    assert_eq!(place.only().health(), Health::Garbage);
    assert_eq!(place.repair().len(), 1);
    assert!(!dir.exists());
    assert_eq!(place.read("f"), b"abc");
    // With logs it is not used again: nobody had synced what is in it.
    place.promote("f").close().unwrap();
    let file = place.promote("f");
    file.write_at(b"X", 0).unwrap();
    file.close().unwrap();
    fs::remove_file(dir.join("super")).unwrap();
    assert_eq!(place.only().health(), Health::Unknown);
    assert_eq!(place.repair(), [""; 0]);
    plain(place.process().open(&place.path("f"), SEVERAL).unwrap()).close().unwrap();
    assert_eq!(place.read("f"), b"abc");
    // Its file is gone.
    fs::remove_file(place.path("f")).unwrap();
    assert_eq!(place.only().health(), Health::Garbage);
    assert_eq!(place.repair().len(), 1);
    assert!(!dir.exists());
}
