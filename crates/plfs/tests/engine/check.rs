//! `plfs check`: every kind of damage is found and named, healthy containers are never blamed,
//! repairs lose nothing. On real files in memory, damaged with std::fs.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use plfs::store::{Links, PosixStore, Store};
use plfs::{Cleared, Config, File, Health, OpenOptions, Opened, Plfs, Report, Severity};
use plfs_format::mark::Mark;

use crate::scratch::fresh_dir;

struct Fixture {
    root: PathBuf,
    config: Config,
}

impl Fixture {
    fn new() -> Fixture {
        let root = fresh_dir();
        Fixture { root, config: Config::shared() }
    }

    /// Another process, as far as one process can play it.
    fn process(&self) -> Plfs {
        Plfs::posix(self.config.clone())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::new(PosixStore::new())
    }

    fn dir(&self, name: &str) -> PathBuf {
        self.process().container(&self.path(name)).unwrap().unwrap().0.dir.to_path_buf()
    }

    fn check(&self, name: &str) -> Report {
        plfs::check_name(&self.store(), &self.path(name), &[])
    }

    fn tree(&self) -> Vec<Report> {
        plfs::check_tree(&self.store(), &self.root, &[], |_| {}).unwrap()
    }

    fn repair(&self, report: &Report, min_age_s: u64) -> Vec<String> {
        plfs::repair(&self.store(), &self.config, report, min_age_s).unwrap()
    }

    /// A file of several blocks: `blocks` commits of `per` writes each.
    fn write(&self, name: &str, blocks: u64, per: u64) {
        let plfs = self.process();
        let file = open(&plfs, &self.path(name));
        for block in 0..blocks {
            for i in 0..per {
                // Lengths that never fold.
                file.write_at(
                    &vec![b'a' + block as u8; 10 + (i * i % 7) as usize],
                    (block * per + i) * 100 + i * i,
                )
                .unwrap();
            }
            file.commit().unwrap();
        }
        file.close().unwrap();
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

fn open(plfs: &Plfs, path: &Path) -> File {
    match plfs.open(path, OpenOptions::create()).unwrap() {
        Opened::Logical(file) => file,
        Opened::Plain(_) => panic!("{} is plain", path.display()),
    }
}

/// Paths in a container that end so, largest files first.
fn files(dir: &Path, end: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut todo = vec![dir.to_path_buf()];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            match entry.file_type().unwrap().is_dir() {
                true => todo.push(entry.path()),
                false if entry.path().to_string_lossy().ends_with(end) => found.push(entry.path()),
                false => {}
            }
        }
    }
    found.sort_by_key(|path| std::cmp::Reverse(fs::metadata(path).unwrap().len()));
    found
}

/// Runs `test` with the file's bytes changed, and changes them back. The file's directory and times
/// stay as they are.
fn with_bytes(path: &Path, change: impl FnOnce(&mut Vec<u8>), test: impl FnOnce()) {
    let before = fs::read(path).unwrap();
    let mut bytes = before.clone();
    change(&mut bytes);
    let put = |bytes: &[u8]| {
        let file = fs::OpenOptions::new().write(true).open(path).unwrap();
        file.set_len(bytes.len() as u64).unwrap();
        file.write_all_at(bytes, 0).unwrap();
    };
    put(&bytes);
    test();
    put(&before);
}

fn flipped(bit: usize) -> impl FnOnce(&mut Vec<u8>) {
    move |bytes| bytes[bit / 8] ^= 1 << (bit % 8)
}

fn worst(report: &Report) -> Option<Severity> {
    report.findings.iter().map(|finding| finding.severity).max()
}

#[test]
fn healthy_files_are_not_blamed() {
    let mut fixture = Fixture::new();
    fixture.config.backends = vec![fixture.path("other")];
    fs::create_dir(fixture.path("other")).unwrap();
    open(&fixture.process(), &fixture.path("empty")).close().unwrap();
    fixture.write("one", 1, 1);
    fixture.write("many", 5, 40);
    // Taken over, overwritten, cut, extended, cut to nothing and written again.
    for size in [7, 5000, 0] {
        fixture.write("cut", 2, 30);
        fixture.process().truncate(&fixture.path("cut"), size).unwrap();
    }
    fixture.write("cut", 1, 3);
    fixture.write("nothing", 1, 3);
    fixture.process().truncate(&fixture.path("nothing"), 0).unwrap();
    fixture.write("flat", 3, 30);
    fixture.process().flatten(&fixture.path("flat")).unwrap();
    fixture.write("flat and more", 3, 30);
    fixture.process().flatten(&fixture.path("flat and more")).unwrap();
    fixture.write("flat and more", 1, 30);
    // Two processes at once, each with a set of its own.
    let alone = Config { shared_memory: None, ..fixture.config.clone() };
    let (a, b) = (Plfs::posix(alone.clone()), Plfs::posix(alone));
    let (one, two) = (open(&a, &fixture.path("two sets")), open(&b, &fixture.path("two sets")));
    one.write_at(b"one", 0).unwrap();
    two.write_at(b"two", 3).unwrap();
    one.close().unwrap();
    two.close().unwrap();
    fs::hard_link(fixture.path("one"), fixture.path("second name")).unwrap();
    for name in [
        "empty",
        "one",
        "many",
        "cut",
        "nothing",
        "flat",
        "flat and more",
        "two sets",
        "second name",
    ] {
        let report = fixture.check(name);
        assert_eq!(
            (report.health(), worst(&report)),
            (Health::Healthy, None),
            "{name}: {:?}",
            report.findings
        );
    }
    let reports = fixture.tree();
    // The other backend lies in the tree too: its parts are told from garbage.
    assert_eq!(reports.iter().filter(|report| !report.names.is_empty()).count(), 8, "{reports:#?}");
    for report in &reports {
        assert!(
            report.health() == Health::Healthy && worst(report) <= Some(Severity::Note),
            "{report:?}"
        );
        assert_eq!(fixture.repair(report, 0), [""; 0], "nothing to repair");
    }
    assert_eq!(
        fixture.process().stat(&fixture.path("many"), Links::Follow).unwrap().totals.unwrap().size,
        open(&fixture.process(), &fixture.path("many")).len().unwrap()
    );
}

#[test]
fn a_file_that_is_being_written_is_busy() {
    let fixture = Fixture::new();
    let plfs = fixture.process();
    let file = open(&plfs, &fixture.path("f"));
    for i in 0..100 {
        file.write_at(b"abc", i * 10).unwrap();
        file.commit().unwrap();
        let report = fixture.check("f");
        assert_eq!(
            (report.health(), worst(&report)),
            (Health::Busy, Some(Severity::Busy)),
            "{:?}",
            report.findings
        );
    }
    let (container, _) = plfs.container(&fixture.path("f")).unwrap().unwrap();
    let marks = plfs::open_marks(&container).unwrap();
    assert_eq!((marks.len(), marks[0].pid), (1, std::process::id()));
    assert!(
        matches!(plfs::clear_marks(&container, &fixture.config).unwrap()[..], [Cleared::Alive(_)]),
        "this process lives"
    );
    assert_eq!(fixture.repair(&fixture.check("f"), 0), [""; 0]);
    file.close().unwrap();
    assert_eq!(fixture.check("f").health(), Health::Healthy);
}

#[test]
fn every_flipped_bit_of_an_index_log_is_found() {
    let fixture = Fixture::new();
    fixture.write("f", 3, 3);
    let log = files(&fixture.dir("f"), "index").remove(0);
    let bytes = fs::read(&log).unwrap();
    let mut at = 0;
    while at < bytes.len() {
        let payload = u32::from_le_bytes(bytes[at + 12..at + 16].try_into().unwrap()) as usize;
        for bit in at * 8..(at + 64 + payload) * 8 {
            with_bytes(&log, flipped(bit), || {
                let report = fixture.check("f");
                assert_eq!(report.health(), Health::Corrupt, "bit {bit}: {report:?}");
                let found = report.findings.iter().any(|finding| {
                    finding.path == log
                        && finding.at_bytes == at as u64
                        && finding.severity == Severity::Corrupt
                });
                assert!(found, "bit {bit} of the block at {at}: {:?}", report.findings);
            });
        }
        at = (at + 64 + payload).next_multiple_of(64);
    }
    assert_eq!(fixture.check("f").health(), Health::Healthy);
}

#[test]
fn every_cut_of_an_index_log_is_found() {
    let fixture = Fixture::new();
    fixture.write("f", 3, 5);
    let log = files(&fixture.dir("f"), "index").remove(0);
    let whole = fs::metadata(&log).unwrap().len() as usize;
    let last = {
        let bytes = fs::read(&log).unwrap();
        (0..whole).step_by(64).rfind(|&at| &bytes[at..at + 4] == b"PLIX").unwrap()
    };
    for len in 0..whole - 64 {
        with_bytes(
            &log,
            |bytes| bytes.truncate(len),
            || {
                assert_eq!(
                    fixture.check("f").health(),
                    Health::Corrupt,
                    "{len} of {whole}: the summary knows of more"
                )
            },
        );
    }
    // Without a summary a cut is what a crash in an append leaves.
    let super_file = fixture.dir("f").join("super");
    with_bytes(
        &super_file,
        |bytes| bytes[3072..3200].fill(0),
        || {
            for len in last + 1..whole - 63 {
                with_bytes(
                    &log,
                    |bytes| bytes.truncate(len),
                    || {
                        let report = fixture.check("f");
                        assert_eq!(
                            report.health(),
                            Health::Torn,
                            "{len} of {whole}: {:?}",
                            report.findings
                        );
                        assert!(
                            report
                                .findings
                                .iter()
                                .any(|finding| finding.at_bytes == last as u64
                                    && finding.path == log)
                        );
                    },
                );
            }
        },
    );
}

#[test]
fn torn_appends_in_front_of_others_are_notes() {
    let fixture = Fixture::new();
    fixture.write("f", 2, 30);
    let log = files(&fixture.dir("f"), "index").remove(0);
    let bytes = fs::read(&log).unwrap();
    let last = (0..bytes.len()).step_by(64).rfind(|&at| &bytes[at..at + 4] == b"PLIX").unwrap();
    for cut in [1, 3, 20, 63, 64, 65, 100, 500, 1000] {
        // A writer dies in an append; another one goes on behind it.
        let fixture = Fixture::new();
        fixture.write("f", 2, 30);
        let log = files(&fixture.dir("f"), "index").remove(0);
        let mut torn = fs::read(&log).unwrap();
        let at = torn.len();
        let mut block = torn[last..].to_vec();
        block[32..40].copy_from_slice(&(at as u64).to_le_bytes());
        let crc = crc32c(&block[8..64]);
        block[4..8].copy_from_slice(&crc.to_le_bytes());
        torn.extend_from_slice(&block[..cut]);
        fs::write(&log, &torn).unwrap();
        assert!(
            matches!(fixture.check("f").health(), Health::Torn | Health::Corrupt),
            "the summary knows of fewer bytes"
        );
        fixture.write("f", 1, 2);
        let report = fixture.check("f");
        assert_eq!(
            (report.health(), worst(&report)),
            (Health::Healthy, Some(Severity::Note)),
            "cut after {cut}: {:?}",
            report.findings
        );
        assert_eq!(report.findings[0].at_bytes, at as u64);
    }
    // A power cut: pages of zeros.
    with_bytes(
        &log,
        |bytes| bytes.extend_from_slice(&[0; 4096]),
        || assert!(worst(&fixture.check("f")).is_some()),
    );
}

#[test]
fn a_block_that_contradicts_the_format_is_corrupt() {
    let fixture = Fixture::new();
    fixture.write("f", 1, 3);
    let log = files(&fixture.dir("f"), "index").remove(0);
    with_bytes(
        &log,
        |bytes| {
            bytes[40..48].fill(0); // eof below the runs' ends
            let crc = crc32c(&bytes[8..64]);
            bytes[4..8].copy_from_slice(&crc.to_le_bytes());
        },
        || {
            let report = fixture.check("f");
            assert_eq!(report.health(), Health::Corrupt);
            assert!(
                report
                    .findings
                    .iter()
                    .any(|finding| finding.path == log && finding.what.contains("range")),
                "{:?}",
                report.findings
            );
        },
    );
}

/// The checksum as FORMAT.md describes it, written anew.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 }
        })
    })
}

#[test]
fn missing_data_is_found() {
    let fixture = Fixture::new();
    fixture.write("f", 2, 10);
    let log = files(&fixture.dir("f"), ".data").remove(0);
    let used = fixture.check("f").totals.unwrap().stored_bytes;
    for len in [0, 1, used - 1] {
        with_bytes(
            &log,
            |bytes| bytes.truncate(len as usize),
            || {
                let report = fixture.check("f");
                assert_eq!(report.health(), Health::Corrupt);
                let finding = &report.findings[0];
                assert_eq!((&finding.path, finding.at_bytes), (&log, len), "{finding:?}");
                assert!(
                    finding.what.starts_with(&format!("{} bytes are missing", used - len)),
                    "{finding:?}"
                );
            },
        );
    }
    fs::remove_file(&log).unwrap();
    assert_eq!(fixture.check("f").findings[0].path, log);
}

#[test]
fn lost_index_logs_are_found() {
    let fixture = Fixture::new();
    fixture.write("f", 2, 10);
    fixture.write("g", 2, 10);
    fixture.write("h", 2, 10);
    fs::remove_file(files(&fixture.dir("f"), "index").remove(0)).unwrap();
    let report = fixture.check("f");
    assert_eq!(report.health(), Health::Corrupt, "{report:?}");
    fs::remove_dir_all(files(&fixture.dir("g"), "index")[0].parent().unwrap()).unwrap();
    let report = fixture.check("g");
    assert_eq!(report.health(), Health::Corrupt, "{report:?}");
    fs::remove_dir_all(fixture.dir("h")).unwrap();
    let report = fixture.check("h");
    assert_eq!(report.health(), Health::Corrupt, "{report:?}");
    assert!(
        fixture.tree()
            .iter()
            .any(|report| report.names == [fixture.path("h")] && report.health() == Health::Corrupt)
    );
}

#[test]
fn every_flipped_bit_of_a_superblock_is_found() {
    let fixture = Fixture::new();
    fixture.write("f", 1, 1);
    let (before, path) = (content(&fixture, "f"), fixture.dir("f").join("super"));
    for bit in (64 * 8..200 * 8).chain((200..3072).step_by(13).map(|byte| byte * 8 + byte % 8)) {
        with_bytes(&path, flipped(bit), || {
            let report = fixture.check("f");
            assert!(
                matches!(report.health(), Health::Corrupt | Health::Unknown),
                "bit {bit}: {report:?}"
            );
            let reports = fixture.tree();
            assert!(
                reports.iter().any(|report| report.dir == path.parent().unwrap()
                    && report.health() == Health::Corrupt),
                "bit {bit}: {reports:?}"
            );
            // It is mended from the second copy; the others would be in the same way.
            if bit % 61 == 0 {
                for report in &reports {
                    fixture.repair(report, 0);
                }
                assert_eq!(content(&fixture, "f"), before, "bit {bit}");
                assert_eq!(fixture.check("f").health(), Health::Healthy, "bit {bit}");
                for lost in plfs::lost_and_found(&fixture.store(), &fixture.root).unwrap() {
                    plfs::discard(&fixture.store(), &lost).unwrap();
                }
            }
        });
    }
    with_bytes(
        &path,
        |bytes| bytes.truncate(100),
        || assert!(fixture.tree().iter().any(|report| report.health() == Health::Corrupt)),
    );
    with_bytes(
        &path,
        |bytes| {
            bytes[76] = 2;
            let crc = crc32c(&bytes[76..3072]);
            bytes[72..76].copy_from_slice(&crc.to_le_bytes());
        },
        || {
            assert_eq!(fixture.check("f").health(), Health::Unknown);
            assert!(fixture.check("f").findings[0].what.contains("version 2"));
            assert!(fixture.tree().iter().all(|report| report.health() == Health::Unknown));
        },
    );
    assert_eq!(fixture.check("f").health(), Health::Healthy);
}

#[test]
fn damaged_summaries_are_found_and_written_anew() {
    let fixture = Fixture::new();
    fixture.write("f", 1, 1);
    let path = fixture.dir("f").join("super");
    let mtime = fs::metadata(&path).unwrap().mtime();
    for byte in 3072..3200 {
        with_bytes(&path, flipped(byte * 8), || {
            let report = fixture.check("f");
            assert_eq!(
                (report.health(), worst(&report)),
                (Health::Healthy, Some(Severity::Garbage)),
                "byte {byte}: {report:?}"
            );
        });
    }
    fs::write(fixture.dir("f").join("stranger"), "").unwrap();
    let report = fixture.check("f");
    assert_eq!(worst(&report), Some(Severity::Garbage), "void: {report:?}");
    assert_eq!(fixture.repair(&report, 3600).len(), 1);
    assert_eq!(worst(&fixture.check("f")), None);
    assert!(
        fixture
            .process()
            .stat(&fixture.path("f"), Links::Follow)
            .unwrap()
            .totals
            .unwrap()
            .from_summary
    );
    assert!((fs::metadata(&path).unwrap().mtime() - mtime).abs() < 60, "the file's time stays");
}

#[test]
fn damaged_and_stale_flat_indexes_are_found_and_removed() {
    let fixture = Fixture::new();
    fixture.write("f", 3, 5);
    fixture.process().flatten(&fixture.path("f")).unwrap();
    let flat = fixture.dir("f").join("flat");
    let bytes = fs::read(&flat).unwrap();
    for bit in (0..bytes.len() * 8).step_by(5) {
        with_bytes(&flat, flipped(bit), || {
            let report = fixture.check("f");
            assert!(
                report.health() == Health::Corrupt && report.findings[0].path == flat,
                "bit {bit}: {report:?}"
            );
        });
    }
    with_bytes(
        &flat,
        |bytes| bytes.truncate(50),
        || assert_eq!(fixture.check("f").health(), Health::Corrupt),
    );
    assert_eq!(fixture.check("f").health(), Health::Healthy);
    // It covers a block that is not there: of a log that was put back from an older copy, say.
    let log = files(&fixture.dir("f"), "index").remove(0);
    with_bytes(
        &log,
        |bytes| bytes.truncate(bytes.len() / 2 / 64 * 64),
        || {
            assert!(
                fixture
                    .check("f")
                    .findings
                    .iter()
                    .any(|finding| finding.path == flat && finding.what.contains("stale"))
            );
        },
    );
    with_bytes(&flat, flipped(1000), || ());
    let damaged = fs::OpenOptions::new().write(true).open(&flat).unwrap();
    damaged.write_all_at(&[!bytes[200]], 200).unwrap();
    fs::write(fixture.dir("f").join("flat.tmp.01234567"), "half").unwrap();
    let report = fixture.check("f");
    assert_eq!(
        fixture.repair(&report, 3600).iter().filter(|done| done.contains("flat.tmp")).count(),
        0,
        "it may be being written now"
    );
    let report = fixture.check("f");
    fixture.repair(&report, 0);
    assert!(!flat.exists() && !fixture.dir("f").join("flat.tmp.01234567").exists());
    assert_eq!(worst(&fixture.check("f")), None);
}

#[test]
fn containers_without_names_are_garbage() {
    let fixture = Fixture::new();
    fixture.write("kept", 1, 3);
    fixture.write("lost", 1, 3);
    let lost = fixture.dir("lost");
    // Removed by a program that does not know PLFS.
    fs::remove_file(fixture.path("lost")).unwrap();
    // Crashes in the making of two more.
    let shard = lost.parent().unwrap();
    let (unfinished, empty) = (shard.join("0".repeat(30)), shard.join("1".repeat(30)));
    fs::create_dir(&unfinished).unwrap();
    fs::write(unfinished.join("super"), "").unwrap();
    fs::create_dir(&empty).unwrap();
    let garbage = |fixture: &Fixture| {
        fixture
            .tree()
            .into_iter()
            .filter(|report| report.health() == Health::Garbage)
            .collect::<Vec<_>>()
    };
    assert_eq!(garbage(&fixture).len(), 3);
    for report in garbage(&fixture) {
        assert_eq!(fixture.repair(&report, 3600), [""; 0], "too young");
    }
    for report in garbage(&fixture) {
        assert_eq!(fixture.repair(&report, 0).len(), 1);
    }
    assert!(!lost.exists() && !unfinished.exists() && !empty.exists());
    assert_eq!(fixture.check("kept").health(), Health::Healthy);
}

#[test]
fn what_is_held_open_is_not_garbage() {
    let fixture = Fixture::new();
    let plfs = fixture.process();
    let file = open(&plfs, &fixture.path("f"));
    file.write_at(b"abc", 0).unwrap();
    file.sync().unwrap();
    let dir = fixture.dir("f");
    fs::remove_file(fixture.path("f")).unwrap();
    let reports = fixture.tree();
    assert!(reports.iter().all(|report| report.health() == Health::Busy), "{reports:?}");
    reports.iter().for_each(|report| assert_eq!(fixture.repair(report, 0), [""; 0]));
    let mut bytes = [0; 3];
    assert_eq!(file.read_at(&mut bytes, 0).unwrap(), 3);
    file.close().unwrap();
    assert!(!dir.exists(), "the last to close takes it away");
}

/// `cp -r` of a root makes names and superblocks of hard links: every container looks nameless, and
/// all data would go with `--repair`.
#[test]
fn a_root_copied_without_its_links_is_not_garbage() {
    let fixture = Fixture::new();
    fixture.write("f", 1, 3);
    let copy = Fixture::new();
    let mut todo = vec![(fixture.root.clone(), copy.root.clone())];
    while let Some((from, to)) = todo.pop() {
        for entry in fs::read_dir(&from).unwrap().map(Result::unwrap) {
            let to = to.join(entry.file_name());
            match entry.file_type().unwrap().is_dir() {
                true => {
                    fs::create_dir(&to).unwrap();
                    fs::set_permissions(&to, fs::Permissions::from_mode(0o777)).unwrap();
                    todo.push((entry.path(), to));
                }
                false => drop(fs::copy(entry.path(), &to).unwrap()),
            }
        }
    }
    let reports = copy.tree();
    assert!(reports.iter().all(|report| report.health() == Health::Healthy), "{reports:?}");
    reports.iter().for_each(|report| drop(copy.repair(report, 0)));
    let file = open(&copy.process(), &copy.path("f"));
    assert!(file.len().unwrap() > 0 && file.read_at(&mut [0; 10], 0).unwrap() == 10);
}

#[test]
fn data_without_records_is_garbage() {
    let fixture = Fixture::new();
    fixture.write("f", 1, 3);
    let log = files(&fixture.dir("f"), ".data").remove(0);
    let orphan = log.with_file_name("07.00000000.data");
    fs::write(&orphan, vec![1; 5000]).unwrap();
    let report = fixture.check("f");
    assert_eq!(
        (report.health(), &report.findings[0].path),
        (Health::Healthy, &orphan),
        "{report:?}"
    );
    assert!(fixture.repair(&report, 3600).is_empty() && orphan.exists());
    fixture.repair(&report, 0);
    assert!(!orphan.exists() && log.exists());
    assert_eq!(worst(&fixture.check("f")), None);
}

#[test]
fn marks_of_the_dead_are_cleared() {
    let fixture = Fixture::new();
    fixture.write("f", 1, 3);
    let mark = fixture.dir("f").join("0badcafe.open");
    let text =
        Mark { nonce: 1, pid: 4_194_305, start: 1, host: "elsewhere".into(), ..Mark::default() }
            .text();
    std::os::unix::fs::symlink(text, &mark).unwrap();
    let report = fixture.check("f");
    assert_eq!(report.health(), Health::Busy);
    assert!(report.findings[0].what.contains("host elsewhere (process 4194305"), "{report:?}");
    let (container, _) = fixture.process().container(&fixture.path("f")).unwrap().unwrap();
    assert!(matches!(
        plfs::clear_marks(&container, &fixture.config).unwrap()[..],
        [Cleared::Fenced(_)]
    ));
    assert!(
        mark.symlink_metadata().is_err()
            && fixture.dir("f").join("0badcafe.fenced").symlink_metadata().is_ok()
    );
    assert_eq!(worst(&fixture.check("f")), None, "the summary is there again");
    // A mark that says nothing.
    fs::write(&mark, [0xff; 3000]).unwrap();
    assert_eq!(fixture.check("f").health(), Health::Busy);
    assert!(matches!(
        plfs::clear_marks(&container, &fixture.config).unwrap()[..],
        [Cleared::Fenced(_)]
    ));
}

#[test]
fn names_that_lead_nowhere_are_named() {
    let fixture = Fixture::new();
    fixture.write("f", 1, 1);
    let elsewhere = Fixture::new();
    fs::copy(fixture.path("f"), fixture.path("copy")).unwrap();
    let report = fixture.check("copy");
    assert_eq!(
        (report.health(), worst(&report)),
        (Health::Healthy, Some(Severity::Note)),
        "{report:?}"
    );
    fs::write(fixture.path("plain"), vec![b'x'; 4093]).unwrap();
    assert_eq!(fixture.check("plain").health(), Health::Unknown);
    assert_eq!(fixture.check("absent").health(), Health::Unknown);
    assert_eq!(fixture.tree().len(), 1, "one container, with a copy");
    fs::copy(fixture.path("f"), elsewhere.path("f")).unwrap();
    fs::remove_dir_all(fixture.path(".plfs")).unwrap();
    let reports = elsewhere.tree();
    assert!(
        reports.len() == 1
            && reports[0].health() == Health::Corrupt
            && reports[0].findings[0].what.contains("is not here"),
        "{reports:?}"
    );
    fs::create_dir(fixture.path(".plfs")).unwrap();
    fs::write(fixture.path(".plfs/README"), "mine").unwrap();
    assert!(
        fixture.tree().iter().any(|report| report
            .findings
            .iter()
            .any(|finding| finding.what.contains("not PLFS's")))
    );
}

#[test]
fn records_say_who_wrote_what() {
    let fixture = Fixture::new();
    let plfs = fixture.process();
    let file = open(&plfs, &fixture.path("f"));
    for i in 0..1000 {
        file.write_at(&[b'x'; 10], i * 40).unwrap();
    }
    file.set_len(20_000).unwrap();
    file.write_at(b"end", 0).unwrap();
    file.commit().unwrap();
    let records = plfs::records(file.container().unwrap()).unwrap();
    let said: Vec<_> = records.records.iter().map(|record| record.said).collect();
    let plfs::RecordKind::Run(run) = said[0] else { panic!("{said:?}") };
    assert_eq!((run.count, run.stride, run.length), (1000, 40, 10), "{said:?}");
    assert!(matches!(said[1], plfs::RecordKind::Truncate(20_000)) && said.len() == 3);
    let by = &records.writers[records.records[0].writer.unwrap() as usize];
    assert_eq!(by.pid, std::process::id());
    assert!(records.data_logs.iter().all(|log| log.exists()));
    file.close().unwrap();
}

/// `echo x >> file` by a program without PLFS: the file was the bytes of its superblock from then
/// on, without an error, and a repair left it so. After `echo x > file` the name was an ordinary
/// file, and the data out of reach. It is EIO now, `check` tells the file's name, and a repair
/// gives the file back, and what was written to its name.
#[test]
fn a_name_that_was_written_to_without_plfs_is_an_error_and_is_given_back() {
    let long = vec![b's'; 3 << 20];
    for case in
        ["appended", "cut", "written over", "emptied", "long", "in the middle", "of another"]
    {
        let fixture = Fixture::new();
        fixture.write("f", 2, 3);
        let (before, path) = (content(&fixture, "f"), fixture.path("f"));
        let name = fs::OpenOptions::new().write(true).open(&path).unwrap();
        match case {
            "appended" => name.write_all_at(b"stray", 4093).unwrap(),
            "cut" => name.set_len(3500).unwrap(),
            "in the middle" => name.write_all_at(b"stray", 100).unwrap(),
            // `cp other f`
            "of another" => {
                fixture.write("other", 1, 1);
                fs::copy(fixture.path("other"), &path).unwrap();
            }
            _ => {
                let bytes: &[u8] = match case {
                    "written over" => b"x\n",
                    "long" => &long,
                    _ => b"",
                };
                fs::write(&path, bytes).unwrap();
            }
        }
        for options in
            [OpenOptions::read(), OpenOptions { truncate: true, ..OpenOptions::create() }]
        {
            let error = fixture.process().open(&path, options).unwrap_err();
            assert_eq!(error.errno(), plfs::store::Errno::IO, "{case}");
            let why = error.to_string();
            assert!(case == "in the middle" || why.contains("without PLFS"), "{case}: {why}");
        }
        let reports = fixture.tree();
        let is_its = |report: &&plfs::Report| report.names == [path.clone()];
        let report = reports.iter().find(is_its).unwrap_or_else(|| panic!("{case}: {reports:?}"));
        assert_eq!(report.health(), Health::Corrupt, "{case}");
        assert!(!fixture.repair(report, 0).is_empty());
        assert_eq!(content(&fixture, "f"), before, "{case}");
        assert_eq!(fixture.check("f").health(), Health::Healthy, "{case}");
        let lost = plfs::lost_and_found(&fixture.store(), &fixture.root).unwrap();
        let kept: Vec<_> =
            lost.iter().map(|lost| fs::read(lost.dir.join("kept")).unwrap()).collect();
        match case {
            "written over" => assert_eq!(kept, [b"x\n"]),
            "long" => assert!(kept.len() == 1 && kept[0] == long),
            "in the middle" => assert_eq!(kept[0][100..105], *b"stray"),
            "appended" => {
                assert_eq!(kept, [b"stray"]);
                let error = plfs::put_back(&fixture.store(), &lost[0]).unwrap_err();
                assert!(error.to_string().contains("never a part"), "{error}");
                plfs::discard(&fixture.store(), &lost[0]).unwrap();
            }
            "of another" => assert_eq!(kept[0], fs::read(fixture.path("other")).unwrap()),
            _ => assert!(kept.is_empty()),
        }
    }
    // Somebody's own file with two names, which begins as it likes.
    let fixture = Fixture::new();
    fs::write(fixture.path("own"), b"PLFS container: ").unwrap();
    fs::hard_link(fixture.path("own"), fixture.path("too")).unwrap();
    assert!(fixture.process().open(&fixture.path("own"), OpenOptions::read()).is_ok());
}

fn content(fixture: &Fixture, name: &str) -> Vec<u8> {
    let file = open(&fixture.process(), &fixture.path(name));
    let mut bytes = vec![0; file.len().unwrap() as usize];
    assert_eq!(file.read_at(&mut bytes, 0).unwrap(), bytes.len());
    bytes
}
