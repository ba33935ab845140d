//! Lengths that lie, on real files: what is on disk never says how much memory or time a reader
//! takes, and a file that is cut while it is used kills nobody.

mod common {
    pub mod counting;
}

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, MutexGuard};
use std::time::Instant;

use plfs::store::{Links, PosixStore, Store};
use plfs::{Config, File, OpenOptions, Opened, Plfs};

use common::counting;

struct Fixture {
    root: PathBuf,
    plfs: Plfs,
    _alone: MutexGuard<'static, ()>,
}

impl Fixture {
    fn new() -> Fixture {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let alone = counting::alone();
        let root = PathBuf::from(format!(
            "/dev/shm/plfs-lengths-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        ));
        fs::create_dir(&root).unwrap();
        Fixture {
            root,
            plfs: Plfs::posix(Config { shared_memory: None, ..Config::shared() }),
            _alone: alone,
        }
    }

    fn path(&self) -> PathBuf {
        self.root.join("f")
    }

    fn open(&self) -> File {
        match self.plfs.open(&self.path(), OpenOptions::create()).unwrap() {
            Opened::Logical(file) => file,
            Opened::Plain(_) => panic!("it is plain"),
        }
    }

    fn dir(&self) -> PathBuf {
        self.plfs.container(&self.path()).unwrap().unwrap().0.dir.to_path_buf()
    }

    /// Voids the summary, so that readers look at the logs.
    fn touch(&self) {
        let stranger = self.dir().join("stranger");
        fs::write(&stranger, "").unwrap();
        fs::remove_file(stranger).unwrap();
    }

    /// Does all that reads a container: little memory, little time, and the right bytes.
    fn look(&self, expect: &[u8]) {
        let (start, memory) = (Instant::now(), counting::watch());
        self.plfs.stat(&self.path(), Links::Follow).unwrap();
        let file = self.open();
        let mut bytes = vec![0; expect.len() + 10];
        assert_eq!(file.read_at(&mut bytes, 0).unwrap(), expect.len());
        assert_eq!(&bytes[..expect.len()], expect);
        file.close().unwrap();
        let store: Arc<dyn Store> = Arc::new(PosixStore::new());
        let report = plfs::check_name(&store, &self.path(), &[]);
        assert!(!report.findings.is_empty(), "{report:?}");
        plfs::records(self.open().container().unwrap()).unwrap();
        let took = memory.most();
        assert!(took < 100 << 20, "{took} bytes of memory");
        assert!(start.elapsed().as_secs() < 60, "{:?}", start.elapsed());
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

fn find(dir: &Path, name: &str) -> PathBuf {
    fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path().join(name))
        .find(|path| path.exists())
        .unwrap()
}

fn set_len(path: &Path, len: u64) {
    fs::OpenOptions::new().write(true).open(path).unwrap().set_len(len).unwrap();
}

fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc: u32, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 }
        })
    })
}

/// An index log that somebody made 15 TiB long aborted every program that looked at the file: it
/// was read into memory of that length.
#[test]
fn a_sparse_index_log_takes_no_memory() {
    let fixture = Fixture::new();
    let file = fixture.open();
    file.write_at(b"hello", 0).unwrap();
    file.close().unwrap();
    set_len(&find(&fixture.dir(), "index"), 1 << 43);
    fixture.touch();
    fixture.look(b"hello");
    // Another writer goes on beside it.
    let file = fixture.open();
    file.write_at(b" again", 5).unwrap();
    file.close().unwrap();
    fixture.look(b"hello again");
}

/// A flat index whose header has a right checksum and says that its tables are terabytes.
#[test]
fn a_sparse_flat_index_takes_no_memory() {
    let fixture = Fixture::new();
    let file = fixture.open();
    file.write_at(b"hello", 0).unwrap();
    file.close().unwrap();
    fixture.plfs.flatten(&fixture.path()).unwrap();
    let flat = fixture.dir().join("flat");
    let whole = fs::read(&flat).unwrap();
    for (field, says) in
        [(112, 1u64 << 42), (112, 1 << 29), (80, 1 << 29), (72, (1 << 29) / 72), (104, 1 << 42)]
    {
        let mut bytes = whole.clone();
        let was = u64::from_le_bytes(bytes[field..field + 8].try_into().unwrap());
        bytes[field..field + 8].copy_from_slice(&says.to_le_bytes());
        let sum = crc32c(&bytes[12..128]);
        bytes[8..12].copy_from_slice(&sum.to_le_bytes());
        fs::write(&flat, &bytes).unwrap();
        let unit = if field == 72 { 72 } else { 1 };
        set_len(&flat, whole.len() as u64 + (says - was) * unit);
        fixture.touch();
        fixture.look(b"hello");
    }
}

/// Readers mapped the flat index: who cut it, on whatever node, killed all that used it (SIGBUS), a
/// mount's daemon with all its programs. Now it is damaged, and readers go to the logs.
#[test]
fn a_flat_index_that_is_cut_while_it_is_used_kills_nobody() {
    const PIECES: u64 = 2_200_000;
    let fixture = Fixture::new();
    let file = fixture.open();
    let at = |i: u64| i * 16 + i * i * 7 % 11;
    for i in 0..PIECES {
        file.write_at(&[i as u8; 5][..1 + (i * i % 5) as usize], at(i)).unwrap();
    }
    file.close().unwrap();
    fixture.plfs.flatten(&fixture.path()).unwrap();
    let flat = fixture.dir().join("flat");
    let len = fs::metadata(&flat).unwrap().len();
    assert!(len > 4 << 20, "{len} bytes are read whole");
    let byte = |file: &File, i: u64| {
        let mut byte = [0];
        file.read_at(&mut byte, at(i)).map(|n| (n, byte[0]))
    };
    for cut in [len - 1, len / 2, 100, 0] {
        let whole = fs::read(&flat).unwrap();
        let plfs = Plfs::posix(Config { shared_memory: None, ..Config::shared() });
        let Opened::Logical(file) = plfs.open(&fixture.path(), OpenOptions::read()).unwrap() else {
            panic!()
        };
        for i in (0..PIECES).step_by(100_003) {
            assert_eq!(byte(&file, i).unwrap(), (1, i as u8));
        }
        set_len(&flat, cut);
        for i in (0..PIECES).step_by(7_919).chain([PIECES - 1]) {
            assert_eq!(byte(&file, i).unwrap(), (1, i as u8), "cut to {cut}");
        }
        let file = fs::OpenOptions::new().write(true).open(&flat).unwrap();
        file.set_len(len).unwrap();
        file.write_all_at(&whole, 0).unwrap();
    }
}
