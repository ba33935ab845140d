//! What a reader who had not written a line of it found in ownership and durability: each was lost,
//! wrong or an error before it was mended.

mod common {
    pub mod scratch;
}

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use plfs::store::{Entry, Errno, Links, Open, Result, Size, Stat, Store, StoreFile};
use plfs::{Config, File, OpenOptions, Opened, Plfs};
use plfs_testkit::{FaultStore, MemStore, Op};

use common::scratch::{Scratch, open};

fn content(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; file.len().unwrap() as usize];
    let n = file.read_at(&mut bytes, 0).unwrap();
    bytes.truncate(n);
    bytes
}

/// Does something in a thread of its own that begins just before that call; gives what came of it.
fn meanwhile<T: Send + 'static>(
    store: &FaultStore,
    path: &str,
    op: Op,
    run: impl FnOnce() -> T + Send + 'static,
) -> mpsc::Receiver<T> {
    let (done, come) = mpsc::channel();
    store.before(path, op, move || {
        let thread = std::thread::spawn(move || done.send(run()));
        // It goes on alone, or waits for what is under way here.
        let until = Instant::now() + Duration::from_millis(100);
        while !thread.is_finished() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    come
}

/// This program where every user can execute it. Another process copies it: a child that another
/// test starts would have the copy open for writing, and it could not be executed (ETXTBSY).
fn copy_of_this(dir: &Scratch) -> PathBuf {
    let exe = dir.0.join("exe");
    let mut copy = std::process::Command::new("cp");
    assert!(copy.arg(std::env::current_exe().unwrap()).arg(&exe).status().unwrap().success());
    std::fs::set_permissions(&exe, std::fs::Permissions::from_mode(0o755)).unwrap();
    exe
}

/// S11. A process comes and appends while another of the node is in the sync of a truncate to 0.
#[test]
fn an_append_beside_a_truncate_is_not_overwritten_by_the_next_append() {
    let (dir, store) = (Scratch::new(), FaultStore::new(Arc::new(MemStore::new())));
    let path = Path::new("/f");
    let cutter = Plfs::new(Arc::new(store.clone()), dir.config());
    let logger = Plfs::new(Arc::new(store.clone()), dir.config());
    let file = open(&cutter, path);
    file.append(&[b'o'; 10]).unwrap();
    file.commit().unwrap();
    let first = meanwhile(&store, "super", Op::SyncData, move || {
        let f = open(&logger, Path::new("/f"));
        let at = f.append(b"aaaa").unwrap();
        eprintln!("first append at {at:?}");
        f
    });
    file.set_len(0).unwrap();
    let f = first.recv().expect("the hook ran");
    eprintln!("second append at {:?}", f.append(b"bbbb").unwrap());
    f.sync().unwrap();
    assert_eq!(String::from_utf8_lossy(&content(&f)), "aaaabbbb");
}

/// S11. One who has the file open for long appends a line in that time, then goes on.
#[test]
fn an_append_beside_a_truncate_is_not_reached_by_later_ones() {
    let (dir, store) = (Scratch::new(), FaultStore::new(Arc::new(MemStore::new())));
    let path = Path::new("/f");
    let cutter = Plfs::new(Arc::new(store.clone()), dir.config());
    let logger = Plfs::new(Arc::new(store.clone()), dir.config());
    let file = open(&cutter, path);
    let log = Arc::new(open(&logger, path));
    log.append(&[b'o'; 10]).unwrap();
    log.commit().unwrap();
    let log2 = log.clone();
    let first = meanwhile(&store, "super", Op::SyncData, move || {
        eprintln!("in the window at {:?}", log2.append(b"aaaa").unwrap());
    });
    file.set_len(0).unwrap();
    first.recv().expect("the hook ran");
    for _ in 0..5 {
        eprintln!("later at {:?}", log.append(b"bbbb").unwrap());
    }
    log.sync().unwrap();
    let got = content(&log);
    assert_eq!(
        got.iter().filter(|b| **b == b'a').count(),
        4,
        "{:?}",
        String::from_utf8_lossy(&got)
    );
    assert_eq!(
        got.iter().filter(|b| **b == b'b').count(),
        20,
        "{:?}",
        String::from_utf8_lossy(&got)
    );
}

/// S12. What was closed without a sync, then a session in which a write failed with ENOSPC, then a
/// sync that says 0.
#[test]
fn a_sync_after_a_write_that_failed_makes_earlier_sessions_durable() {
    let (dir, mem) = (Scratch::new(), MemStore::new());
    let store = FaultStore::new(Arc::new(mem.clone()));
    let path = Path::new("/f");
    let plfs = Plfs::new(Arc::new(store.clone()), dir.config());
    let file = open(&plfs, path);
    file.write_at(&[7; 5000], 0).unwrap();
    file.close().unwrap();
    let file = open(&plfs, path);
    store.fail_matching(".data", Op::WriteAt, Errno::NOSPC);
    assert!(file.write_at(&[1; 300_000], 10_000).is_err());
    file.sync().unwrap();
    let after =
        Plfs::new(Arc::new(mem.crash()), Config { shared_memory: None, ..Config::shared() });
    let file = open(&after, path);
    assert_eq!(content(&file), vec![7; 5000]);
}

/// S12, S15. The disk loses what two processes of a node wrote; the kernel tells the first who
/// syncs, and who opens a file later is told nothing.
#[test]
fn a_sync_that_failed_for_one_process_fails_for_all_whose_bytes_it_took() {
    let (dir, store) = (Scratch::new(), FaultStore::new(Arc::new(MemStore::new())));
    let path = Path::new("/f");
    let config = || Config { streams: 1, ..dir.config() };
    let a = Plfs::new(Arc::new(store.clone()), config());
    let b = Plfs::new(Arc::new(store.clone()), config());
    let (fa, fb) = (open(&a, path), open(&b, path));
    fb.write_at(&[2; 5000], 5000).unwrap();
    fb.commit().unwrap();
    fa.write_at(&[1; 5000], 0).unwrap();
    store.fail_matching(".data", Op::SyncData, Errno::IO);
    assert!(fa.sync().is_err());
    // Linux: the pages are clean now, and the error was reported; fsync of a descriptor that is
    // opened from now on says 0.
    store.reset();
    assert!(fb.sync().is_err(), "the sync says that lost bytes are durable");
}

const CHILD: &str = "STRANGER_CHILD";

/// Two users of one host have the file open; of the first user the founder has left and another
/// process goes on. The other user's close fails.
#[test]
fn who_closes_beside_another_users_writers_is_told_no_error() {
    use std::io::{BufRead, Write};
    use std::os::unix::process::CommandExt;
    if let Ok(what) = std::env::var(CHILD) {
        let words: Vec<&str> = what.split(' ').collect();
        let config = Config { shared_memory: Some(words[1].into()), ..Config::shared() };
        let plfs = Plfs::posix(config);
        let file = open(&plfs, Path::new(words[0]));
        file.write_at(words[2].as_bytes(), 0).unwrap();
        println!("\nwritten");
        std::io::stdin().lock().read_line(&mut String::new()).unwrap();
        println!("\nclosed {:?}", file.close());
        return;
    }
    let dir = Scratch::new();
    for d in [dir.0.clone(), dir.0.join("shm")] {
        std::fs::set_permissions(&d, std::fs::Permissions::from_mode(0o777)).unwrap();
    }
    let exe = copy_of_this(&dir);
    rustix::process::umask(rustix::fs::Mode::empty());
    let start = |uid: u32, name: &str| {
        let mut c = std::process::Command::new(&exe);
        c.args([
            "--exact",
            "who_closes_beside_another_users_writers_is_told_no_error",
            "--test-threads=1",
            "--nocapture",
        ]);
        c.env(
            CHILD,
            format!("{} {} {name}", dir.0.join("f").display(), dir.0.join("shm").display()),
        )
        .uid(uid)
        .gid(5000);
        let mut c = c
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = std::io::BufReader::new(c.stdout.take().unwrap()).lines();
        assert!(lines.any(|l| l.unwrap().contains("written")));
        (c, lines)
    };
    let (mut a1, mut l1) = start(5001, "one");
    let (mut a2, _l2) = start(5001, "two");
    let (mut b, mut lb) = start(5002, "three");
    a1.stdin.take().unwrap().write_all(b"\n").unwrap();
    eprintln!("a1 {:?}", l1.find(|l| l.as_ref().unwrap().contains("closed")));
    a1.wait().unwrap();
    b.stdin.take().unwrap().write_all(b"\n").unwrap();
    let said = lb.find(|l| l.as_ref().unwrap().contains("closed")).unwrap().unwrap();
    b.wait().unwrap();
    drop(a2.stdin.take());
    let _ = a2.wait();
    assert!(said.contains("Ok"), "{said}");
}

/// S8. An ext4 that its host exports: the host calls it local, made the file and goes by its clock;
/// an NFS client whose clock is ahead has written.
#[test]
fn the_host_of_an_exported_file_system_wins_over_what_it_has_seen() {
    let (dir, mem) = (Scratch::new(), MemStore::new());
    std::fs::create_dir_all(dir.0.join("b")).unwrap();
    let path = Path::new("/f");
    let host = Plfs::new(Arc::new(mem.clone()), dir.config());
    open(&host, path).close().unwrap();
    let client = Plfs::new(
        Arc::new(mem.shared()),
        Config { shared_memory: Some(dir.0.join("b")), ..Config::shared() },
    );
    let f = open(&client, path);
    f.write_at(b"....", 0).unwrap();
    plfs_testkit::an_hour_ahead(&dir.0.join("b"));
    f.write_at(b"cccc", 0).unwrap();
    f.commit().unwrap();
    let f2 = open(&host, path);
    assert_eq!(content(&f2), b"cccc");
    f2.write_at(b"hhhh", 0).unwrap();
    f2.sync().unwrap();
    let c = Plfs::new(Arc::new(mem.clone()), Config { shared_memory: None, ..Config::shared() });
    assert_eq!(String::from_utf8_lossy(&content(&open(&c, path))), "hhhh");
}

/// A person fences the mark of a founder between its making and the founder's look for the fence.
#[test]
fn a_founder_whose_mark_is_fenced_at_once_founds_another_set() {
    let (dir, mem) = (Scratch::new(), MemStore::new());
    let store = FaultStore::new(Arc::new(mem.clone()));
    let path = Path::new("/f");
    let a = Plfs::new(Arc::new(store.clone()), dir.config());
    let f = open(&a, path);
    let place = f.container().unwrap().dir.clone();
    let m = mem.clone();
    store.before(".fenced", Op::Stat, move || {
        for e in m.list(&place).unwrap() {
            let n = e.name.to_str().unwrap().to_string();
            if let Some(set) = n.strip_suffix(".open") {
                m.rename(&place.join(&n), &place.join(format!("{set}.fenced"))).unwrap();
            }
        }
    });
    f.write_at(b"abcd", 0).unwrap();
}

/// /proc is mounted with hidepid=2, as on many clusters: what another user cannot see is taken for
/// dead.
#[test]
fn who_cannot_be_seen_is_not_dead() {
    use std::io::{BufRead, Write};
    use std::os::unix::process::CommandExt;
    const NAME: &str = "who_cannot_be_seen_is_not_dead";
    if let Ok(what) = std::env::var(CHILD) {
        let words: Vec<&str> = what.split(' ').collect();
        let plfs = Plfs::posix(Config { shared_memory: None, ..Config::shared() });
        let file = open(&plfs, Path::new(words[0]));
        file.write_at(words[2].as_bytes(), 0).unwrap();
        file.commit().unwrap();
        println!("\nwritten");
        std::io::stdin().lock().read_line(&mut String::new()).unwrap();
        let wrote = file.write_at(b"more", 100).and_then(|_| file.commit());
        println!("\nclosed {wrote:?} {:?}", file.close());
        return;
    }
    if std::env::var("STRANGER_NS").is_err() {
        let me = std::env::current_exe().unwrap();
        let line = format!(
            "mount -t proc -o hidepid=2 proc /proc && STRANGER_NS=1 exec {} --exact {NAME} \
             --nocapture",
            me.display()
        );
        assert!(
            std::process::Command::new("unshare")
                .args(["-m", "sh", "-c", &line])
                .status()
                .unwrap()
                .success()
        );
        return;
    }
    let dir = Scratch::new();
    std::fs::set_permissions(&dir.0, std::fs::Permissions::from_mode(0o777)).unwrap();
    let exe = copy_of_this(&dir);
    rustix::process::umask(rustix::fs::Mode::empty());
    let start = |uid: u32, name: &str| {
        let mut c = std::process::Command::new(&exe);
        c.args(["--exact", NAME, "--test-threads=1", "--nocapture"]);
        c.env(CHILD, format!("{} - {name}", dir.0.join("f").display())).uid(uid).gid(uid);
        let mut c = c
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = std::io::BufReader::new(c.stdout.take().unwrap()).lines();
        assert!(lines.any(|l| l.unwrap().contains("written")));
        (c, lines)
    };
    let (mut a, mut la) = start(5001, "one");
    let (mut b, mut lb) = start(5002, "two");
    b.stdin.take().unwrap().write_all(b"\n").unwrap();
    eprintln!("b {:?}", lb.find(|l| l.as_ref().unwrap().contains("closed")));
    b.wait().unwrap();
    a.stdin.take().unwrap().write_all(b"\n").unwrap();
    let said = la.find(|l| l.as_ref().unwrap().contains("closed")).unwrap().unwrap();
    a.wait().unwrap();
    assert!(!said.contains("Err"), "{said}");
}

/// S12. A sync that cannot open the logs says 0.
#[test]
fn a_sync_that_cannot_open_the_logs_of_an_earlier_session_fails() {
    for (what, op, errno) in [
        (".data", Op::Open, Errno::MFILE),
        ("index", Op::Open, Errno::IO),
        ("/f", Op::Stat, Errno::IO),
    ] {
        let (dir, mem) = (Scratch::new(), MemStore::new());
        let store = FaultStore::new(Arc::new(mem.clone()));
        let path = Path::new("/f");
        let plfs = Plfs::new(Arc::new(store.clone()), dir.config());
        let file = open(&plfs, path);
        file.write_at(&[7; 5000], 0).unwrap();
        file.close().unwrap();
        let file = open(&plfs, path);
        store.fail_matching(what, op, errno);
        let said = file.sync();
        let after =
            Plfs::new(Arc::new(mem.crash()), Config { shared_memory: None, ..Config::shared() });
        let there = match after.open(path, OpenOptions::read()) {
            Ok(Opened::Logical(f)) => {
                let mut b = vec![0; 5000];
                f.read_at(&mut b, 0).is_ok_and(|n| n == 5000) && b == [7; 5000]
            }
            _ => false,
        };
        eprintln!("{what} {errno:?}: {said:?}, there: {there}");
        assert!(said.is_err() || there, "{what}: sync said Ok and the bytes are gone");
    }
}

/// Another user, who may write the file, writes and closes it.
#[test]
fn another_user_closes_without_an_error() {
    use std::os::unix::process::CommandExt;
    const NAME: &str = "another_user_closes_without_an_error";
    if let Ok(what) = std::env::var(CHILD) {
        let plfs = Plfs::posix(Config { shared_memory: None, ..Config::shared() });
        let file = open(&plfs, Path::new(&what));
        file.write_at(b"abc", 0).unwrap();
        println!("\nclosed {:?}", file.close());
        return;
    }
    let dir = Scratch::new();
    std::fs::set_permissions(&dir.0, std::fs::Permissions::from_mode(0o777)).unwrap();
    let exe = copy_of_this(&dir);
    rustix::process::umask(rustix::fs::Mode::empty());
    for uid in [5001u32, 5002] {
        let mut c = std::process::Command::new(&exe);
        c.args(["--exact", NAME, "--test-threads=1", "--nocapture"])
            .env(CHILD, dir.0.join("f"))
            .uid(uid)
            .gid(uid);
        let out = c.output().unwrap();
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(text.contains("closed Ok"), "{uid}: {text}");
    }
}

/// A failed append gave back what another had, if a cut came between and both had one length; or
/// what another had written at an offset in its place. It takes no place now.
#[test]
fn a_failed_append_takes_no_place() {
    let (dir, mem) = (Scratch::new(), MemStore::new());
    let store = FaultStore::new(Arc::new(mem.clone()));
    let path = Path::new("/f");
    // Buffers of 16 KiB: what is longer goes to the store at once.
    let config = Config { buffer_bytes: 32 << 10, ..dir.config() };
    let a = Plfs::new(Arc::new(store.clone()), config.clone());
    let b = Arc::new(Plfs::new(Arc::new(mem.clone()), config));
    let fa = open(&a, path);
    let fb = Arc::new(open(&b, path));
    fb.write_at(b"x", 0).unwrap();
    fb.set_len(0).unwrap();
    let (fb2, fb3) = (fb.clone(), fb.clone());
    store.fail_matching(".data", Op::WriteAt, Errno::NOSPC);
    store.before(".data", Op::WriteAt, move || {
        fb2.set_len(0).unwrap();
        assert_eq!(fb2.append(&[b'b'; 20_000]).unwrap(), (0, 20_000));
    });
    assert_eq!(fa.append(&[b'a'; 20_000]).unwrap_err().errno(), Errno::NOSPC);
    assert_eq!(fb.append(b"tail").unwrap(), (20_000, 4));
    // A short one.
    store.reset();
    store.short_write_at(1, 4096);
    store.full_after(4096);
    store.before(".data", Op::WriteAt, move || {
        assert_eq!(fb3.write_at(&[b'c'; 10], 30_000).unwrap(), 10);
    });
    assert_eq!(fa.append(&[b'a'; 20_000]).unwrap(), (30_010, 4096));
    assert_eq!(fb.append(b"end").unwrap(), (34_106, 3));
}

/// Another node cuts the file, which a process that has it open notices when it appends: then its
/// end of file was taken back below what it had written since, and the append went over that.
#[test]
fn an_append_does_not_go_over_what_was_written_since_another_node_cut_the_file() {
    let (dir, mem) = (Scratch::new(), MemStore::new());
    let path = Path::new("/f");
    let (here, there) = two_nodes(&dir, &mem);
    let (mine, other) = (open(&here, path), open(&there, path));
    assert_eq!(mine.append(&[1; 10]).unwrap(), (0, 10));
    mine.commit().unwrap();
    other.set_len(0).unwrap();
    mine.write_at(&[2; 100], 0).unwrap();
    assert_eq!(mine.append(&[3]).unwrap(), (100, 1));
    // With nothing written since, it follows.
    other.set_len(0).unwrap();
    assert_eq!(mine.append(&[4]).unwrap(), (0, 1));
}

/// Processes of two nodes.
fn two_nodes(dir: &Scratch, mem: &MemStore) -> (Plfs, Plfs) {
    let alone = Config { shared_memory: None, ..Config::shared() };
    (Plfs::new(Arc::new(mem.clone()), dir.config()), Plfs::new(Arc::new(mem.clone()), alone))
}

/// An fsync is an acquire: who appends after it goes behind what others had committed before. It
/// told the next read only: processes of two nodes that took turns, each with an fsync before and
/// behind its line, wrote their lines over each other's.
#[test]
fn an_append_after_a_sync_goes_behind_what_another_node_had_committed() {
    let (dir, mem) = (Scratch::new(), MemStore::new());
    let path = Path::new("/f");
    let (here, there) = two_nodes(&dir, &mem);
    let (mine, other) = (open(&here, path), open(&there, path));
    for turn in 0..5 {
        for (i, file) in [&mine, &other].into_iter().enumerate() {
            file.sync().unwrap();
            assert_eq!(file.append(&[1; 10]).unwrap().0, 10 * (2 * turn + i as u64));
            file.sync().unwrap();
        }
    }
}

/// What one process has written and not committed another of its node cuts. Its stat gave the old
/// size until the next commit, and then another, though its reads had ended where the cut was.
#[test]
fn a_cut_by_another_process_of_the_node_is_in_the_size_at_once() {
    let (dir, mem) = (Scratch::new(), MemStore::new());
    let path = Path::new("/f");
    let process = || Plfs::new(Arc::new(mem.clone()), dir.config());
    let (a, b) = (process(), process());
    let (fa, fb) = (open(&a, path), open(&b, path));
    fa.write_at(&[1; 1000], 0).unwrap();
    fb.set_len(10).unwrap();
    assert_eq!(fa.len().unwrap(), 10);
    fa.write_at(&[2; 10], 20).unwrap();
    assert_eq!(fa.len().unwrap(), 30);
}

/// A truncate whose sync fails has cut the file all the same; another node that appends was not
/// told by the time of the container's directory, and went on at the old end.
#[test]
fn a_truncate_that_fails_in_its_sync_is_followed_by_appends() {
    let (dir, mem) = (Scratch::new(), MemStore::new());
    let store = FaultStore::new(Arc::new(mem.clone()));
    let path = Path::new("/f");
    let here = Plfs::new(Arc::new(store.clone()), dir.config());
    let there =
        Plfs::new(Arc::new(mem.clone()), Config { shared_memory: None, ..Config::shared() });
    let (mine, other) = (open(&here, path), open(&there, path));
    mine.write_at(&[1; 4], 0).unwrap();
    mine.commit().unwrap();
    assert_eq!(other.append(&[2; 4]).unwrap(), (4, 4));
    other.commit().unwrap();
    // It has seen what its own first append changed.
    assert_eq!(other.append(&[2; 4]).unwrap(), (8, 4));
    other.commit().unwrap();
    store.fail_matching("index", Op::SyncData, Errno::IO);
    assert_eq!(mine.set_len(0).unwrap_err().errno(), Errno::IO);
    assert_eq!(other.append(&[3; 4]).unwrap(), (0, 4));
}

/// S8. The clock was set ahead after the file was made, A wrote and closed, and it was set back to
/// where it should be: there is no `clock`, and the superblock sees nothing. (The state is
/// made with a page's clock and by taking the file `clock` away.)
#[test]
fn a_clock_that_was_ahead_for_a_while_does_not_hide_later_writes() {
    let (dir, mem) = (Scratch::new(), MemStore::new());
    let store = FaultStore::new(Arc::new(mem.clone()));
    let path = Path::new("/f");
    let a = Plfs::new(Arc::new(store.clone()), dir.config());
    let b = Plfs::new(
        Arc::new(store.acting_as(5002)),
        Config { shared_memory: None, ..Config::shared() },
    );
    let fa = open(&a, path);
    fa.write_at(b"....", 0).unwrap();
    plfs_testkit::an_hour_ahead(&dir.0.join("shm"));
    fa.write_at(b"aaaa", 0).unwrap();
    fa.commit().unwrap();
    mem.unlink(&fa.container().unwrap().dir.join("clock")).unwrap();
    fa.close().unwrap();
    let fb = open(&b, path);
    assert_eq!(content(&fb), b"aaaa");
    fb.write_at(b"bbbb", 0).unwrap();
    fb.close().unwrap();
    let c = Plfs::new(Arc::new(mem.clone()), Config { shared_memory: None, ..Config::shared() });
    assert_eq!(String::from_utf8_lossy(&content(&open(&c, path))), "bbbb");
}

/// A store of somebody with umask 077.
#[derive(Debug)]
struct Strict {
    inner: MemStore,
}
impl Store for Strict {
    plfs_testkit::delegate_names!(inner);
    fn open(&self, path: &Path, how: Open) -> Result<Arc<dyn StoreFile>> {
        self.inner.open(path, Open { mode: how.mode & 0o700, ..how })
    }
    fn stat(&self, path: &Path, links: Links) -> Result<Stat> {
        self.inner.stat(path, links)
    }
    fn list(&self, path: &Path) -> Result<Vec<Entry>> {
        self.inner.list(path)
    }
    fn is_local(&self, path: &Path) -> bool {
        self.inner.is_local(path)
    }
    fn boot(&self, path: &Path) -> Option<u64> {
        self.inner.boot(path)
    }
}

/// Somebody with umask 077 wrote a file that all may read and write. The flat index of the close
/// and the clock of a compaction were readable for nobody else: others could not read the file any
/// more, or not write it. Who may only read it does not set its clock.
#[test]
fn a_strict_umask_keeps_nobody_out_of_what_a_close_leaves() {
    let (dir, mem) = (Scratch::new(), MemStore::new());
    let path = Path::new("/f");
    let plfs = Plfs::new(Arc::new(Strict { inner: mem.clone() }), dir.config());
    let file = open(&plfs, path);
    for i in 0..2_000u64 {
        file.write_at(b"x", i * i % 100_003 * 2).unwrap();
    }
    let inside = file.container().unwrap().dir.clone();
    file.close().unwrap();
    plfs.chmod(path, 0o666).unwrap();
    plfs.compact(path, |_| std::ops::ControlFlow::Continue(())).unwrap();
    plfs.flatten(path).unwrap();
    let mode = |name: &str| mem.stat(&inside.join(name), Links::Stay).unwrap().mode & 0o666;
    assert_eq!((mode("flat"), mode("clock")), (0o644, 0o666));
    plfs.chmod(path, 0o644).unwrap();
    assert_eq!((mode("flat"), mode("clock")), (0o644, 0o644));
}

/// A flat index that this user may not read is one that cannot be used: the logs say the same.
#[test]
fn a_flat_index_that_may_not_be_read_is_done_without() {
    let (dir, mem) = (Scratch::new(), MemStore::new());
    let store = FaultStore::new(Arc::new(mem.clone()));
    let path = Path::new("/f");
    let plfs = Plfs::new(Arc::new(store.clone()), dir.config());
    let file = open(&plfs, path);
    for i in 0..2_000u64 {
        file.write_at(b"x", i * i % 100_003 * 2).unwrap();
    }
    let flat = file.container().unwrap().dir.join("flat");
    let all = content(&file);
    file.close().unwrap();
    plfs.flatten(path).unwrap();
    mem.stat(&flat, Links::Stay).unwrap();
    for _ in 0..3 {
        store.fail_matching("/flat", Op::Open, Errno::ACCESS);
    }
    let file = open(&plfs, path);
    assert!(content(&file) == all);
}

/// Room that is reserved makes a file longer and cuts nothing (SEMANTICS S24). It was said by a
/// truncate with a stamp of its own: what a process of another node had written behind it, and
/// committed and synced afterwards, was cut.
#[test]
fn room_for_a_file_cuts_nothing_that_another_node_has_written() {
    let (dir, mem) = (Scratch::new(), MemStore::new());
    let path = Path::new("/f");
    let (here, there) = two_nodes(&dir, &mem);
    let (mine, other) = (open(&here, path), open(&there, path));
    for turn in 0..3 {
        other.set_len(turn).unwrap();
        mine.refresh().unwrap();
        mine.write_at(b"mine", 500).unwrap();
        other.allocate(0, 100, Size::Grows).unwrap();
        assert_eq!(other.len().unwrap(), 100);
        mine.sync().unwrap();
        for file in [&mine, &other] {
            file.refresh().unwrap();
            let mut bytes = [0; 4];
            assert_eq!((file.len().unwrap(), file.read_at(&mut bytes, 500).unwrap()), (504, 4));
            assert_eq!(&bytes, b"mine");
        }
    }
}

/// A file is at least as long as the room that was reserved. It was not if the node took it for
/// longer already: because another node had cut it, and a process of this one written since; or
/// because a process had written behind that, which was killed before it committed.
#[test]
fn room_for_a_file_is_there_whatever_the_node_takes_its_end_for() {
    let (dir, mem) = (Scratch::new(), MemStore::new());
    let path = Path::new("/f");
    let process = || Plfs::new(Arc::new(mem.clone()), dir.config());
    let (here, beside) = (process(), process());
    let there =
        Plfs::new(Arc::new(mem.clone()), Config { shared_memory: None, ..Config::shared() });
    let (mine, other) = (open(&here, path), open(&there, path));
    mine.write_at(&[1], 1000).unwrap();
    mine.commit().unwrap();
    other.set_len(200).unwrap();
    mine.refresh().unwrap();
    mine.write_at(&[1], 300).unwrap();
    mine.commit().unwrap();
    mine.allocate(0, 600, Size::Grows).unwrap();
    assert_eq!((mine.len().unwrap(), other.len().unwrap()), (600, 600));

    let neighbour = open(&beside, path);
    neighbour.write_at(&[2], 5000).unwrap();
    mine.allocate(0, 800, Size::Grows).unwrap();
    assert_eq!(mine.len().unwrap(), 800);
    neighbour.commit().unwrap();
    assert_eq!((mine.len().unwrap(), other.len().unwrap()), (5001, 5001));
}
