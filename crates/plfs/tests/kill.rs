//! Writers that really die: processes killed with SIGKILL at random moments lose nothing that a
//! write has returned for, and hinder nobody.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use plfs::store::{Links, PosixStore};
use plfs::{Config, File, Health, OpenOptions, Opened, Plfs};
use plfs_testkit::{Rng, byte_of, explored, rounds, seed};

const VARIABLE: &str = "PLFS_TEST_KILL";
const WRITERS: u64 = 3;
/// Writers take turns with blocks of this length.
const BLOCK: u64 = 1000;
const BLOCKS: u64 = 120;

fn open(plfs: &Plfs, path: &Path) -> File {
    match plfs.open(path, OpenOptions::create()).unwrap() {
        Opened::Logical(file) => file,
        Opened::Plain(_) => panic!("{} is plain", path.display()),
    }
}

/// The child: writes its blocks in order and at random, syncs now and then, and notes each step in
/// a plain file: what it is about to write, and what it has written.
fn write_until_killed(dir: &Path, writer: u64, round: u64) -> ! {
    let mut rng = Rng::new(seed() ^ (round * 100 + writer));
    let mut note = std::fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(dir.join(format!("notes.{writer}")))
        .unwrap();
    let plfs = Plfs::posix(Config { shared_memory: Some(dir.join("shm")), ..Config::shared() });
    let mut file = open(&plfs, &dir.join("f"));
    println!("writing");
    for step in 0u64.. {
        let block = if rng.one_in(3) { rng.below(BLOCKS) } else { step % BLOCKS };
        let (from, seed) = (rng.below(BLOCK), rng.next_u64() as u32);
        let len = 1 + rng.below(BLOCK - from);
        let offset = (block * WRITERS + writer) * BLOCK + from;
        note.write_all(format!("write {offset} {len} {seed}\n").as_bytes()).unwrap();
        let bytes: Vec<u8> = (0..len).map(|i| byte_of(seed, i)).collect();
        assert_eq!(file.write_at(&bytes, offset).unwrap() as u64, len);
        note.write_all(b"written\n").unwrap();
        match rng.below(40) {
            0..=2 => {
                file.sync().unwrap();
            }
            3 => {
                file.read_at(&mut [0; 100], rng.below(100_000)).unwrap();
            }
            4 => {
                file.close().unwrap();
                file = open(&plfs, &dir.join("f"));
            }
            _ => {}
        }
    }
    unreachable!()
}

/// What the notes of a writer say that a byte may be: the value written last, or that of the write
/// under way. How many writes had returned.
fn take_notes(dir: &Path, writer: u64, bytes: &mut [Vec<u8>]) -> usize {
    let path = dir.join(format!("notes.{writer}"));
    let Ok(notes) = std::fs::File::open(&path) else { return 0 };
    let (mut under_way, mut written) = ((0u64, 0u64), 0);
    for line in BufReader::new(notes).lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["write", offset, len, seed] => {
                let (offset, len, seed): (u64, u64, u32) =
                    (offset.parse().unwrap(), len.parse().unwrap(), seed.parse().unwrap());
                for (i, values) in (0..len).zip(&mut bytes[offset as usize..]) {
                    if values.is_empty() {
                        values.push(0);
                    }
                    values.push(byte_of(seed, i));
                }
                under_way = (offset, len);
            }
            ["written"] => {
                written += 1;
                let (offset, len) = under_way;
                for values in &mut bytes[offset as usize..][..len as usize] {
                    values.drain(..values.len() - 1);
                }
            }
            // The last line may be cut off.
            _ => {}
        }
    }
    std::fs::remove_file(path).unwrap();
    written
}

/// Whose block a byte is in.
fn writer_of(at: u64) -> u64 {
    at / BLOCK % WRITERS
}

/// Reads what these writers have written, and compares.
fn must_have(file: &File, known: &mut [Vec<u8>], of: impl Fn(u64) -> bool, round: u64) {
    let mut content = vec![0xee; known.len()];
    let n = file.read_at(&mut content, 0).unwrap();
    content[n..].fill(0);
    for (at, (value, values)) in content.into_iter().zip(known).enumerate() {
        if values.is_empty() || !of(writer_of(at as u64)) {
            continue;
        }
        assert!(
            values.contains(&value),
            "round {round}: byte {at} of {n} is {value}, expected one of {values:?}"
        );
        // It has been read: it stays.
        values.clear();
        values.push(value);
    }
}

/// Several processes write one file, in a pattern and at random, and sync; one is killed at a
/// random moment and then the others, forty times. Each time every byte is there that a write has
/// returned for, synced or not, while others of the node go on and when all are dead; reading
/// works, the check finds nothing worse than a torn append or a mark, and new writers go on in the
/// same log set.
///
/// Without a journal up to 30 s of writes went with the process (issue 19).
#[test]
fn killed_writers_lose_nothing_that_was_written() {
    if let Ok(child) = std::env::var(VARIABLE) {
        let words: Vec<&str> = child.split(' ').collect();
        write_until_killed(
            Path::new(words[2]),
            words[0].parse().unwrap(),
            words[1].parse().unwrap(),
        );
    }
    let dir = PathBuf::from(format!("/dev/shm/plfs-kill-{}", std::process::id()));
    std::fs::create_dir_all(dir.join("shm")).unwrap();
    let rounds = rounds("PLFS_KILL_ROUNDS", 25);
    let config = Config { shared_memory: Some(dir.join("shm")), ..Config::shared() };
    let (mut known, mut written, mut rng) =
        (vec![Vec::new(); (BLOCKS * WRITERS * BLOCK) as usize], 0, Rng::new(seed()));
    for round in 0..rounds {
        let mut writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let mut command = Command::new(std::env::current_exe().unwrap());
                command.args([
                    "--exact",
                    "killed_writers_lose_nothing_that_was_written",
                    "--nocapture",
                    "--test-threads=1",
                ]);
                command
                    .env(VARIABLE, format!("{writer} {round} {}", dir.display()))
                    .env("PLFS_SEED", seed().to_string())
                    .stdout(Stdio::piped())
                    .spawn()
                    .unwrap()
            })
            .collect();
        for writer in &mut writers {
            let lines = BufReader::new(writer.stdout.take().unwrap()).lines();
            assert!(
                lines.map_while(Result::ok).any(|line| line.ends_with("writing")),
                "the writer died of something else"
            );
        }
        std::thread::sleep(Duration::from_micros(rng.below(30_000)));
        let plfs = Plfs::posix(config.clone());
        let first = rng.below(WRITERS);
        writers[first as usize].kill().unwrap();
        assert!(!writers[first as usize].wait().unwrap().success());
        written += take_notes(&dir, first, &mut known);
        if rng.one_in(2) {
            must_have(&open(&plfs, &dir.join("f")), &mut known, |of| of == first, round);
        }
        for writer in &mut writers {
            let _ = writer.kill();
        }
        for mut writer in writers {
            assert!(!writer.wait().unwrap().success());
        }
        written += (0..WRITERS).map(|writer| take_notes(&dir, writer, &mut known)).sum::<usize>();
        let report =
            plfs::check_name(&(std::sync::Arc::new(PosixStore::new()) as _), &dir.join("f"), &[]);
        assert!(
            matches!(report.health(), Health::Healthy | Health::Torn | Health::Busy),
            "round {round}: {report:#?}"
        );
        let file = open(&plfs, &dir.join("f"));
        must_have(&file, &mut known, |_| true, round);
        // Whoever comes next takes over, closes as the last one, and leaves the file as if nobody
        // had died.
        file.write_at(&[round as u8], 1 << 30).unwrap();
        file.close().unwrap();
        let stat = plfs.stat(&dir.join("f"), Links::Follow).unwrap();
        let totals = stat.totals.unwrap();
        // Whoever dies while it founds a log set leaves a mark, which the next process of the node
        // finds by its nonce: nobody has to clear it.
        assert!(totals.from_summary, "round {round}: {totals:?}");
        // The first three may found a set each, before they know of each other's; and one whose
        // index log is longer than 1 MiB is not taken over.
        assert!(
            u64::from(totals.log_sets) <= WRITERS + (totals.index_bytes >> 20),
            "round {round}: {totals:?}"
        );
        assert_eq!(stat.stat.len, (1 << 30) + 1);
    }
    assert!(written > 100 * rounds as usize, "{written} writes in {rounds} rounds are too few");
    explored(rounds * WRITERS, "processes killed");
    std::fs::remove_dir_all(&dir).unwrap();
}
