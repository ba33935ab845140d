//! Where random tests start, and what they covered.

use std::fs::OpenOptions;
use std::hash::{BuildHasher, RandomState};
use std::io::Write;
use std::ops::Range;
use std::sync::OnceLock;

/// What all random tests of this process start from: `PLFS_SEED`, or else a fresh number below
/// 2^32. Each call prints it, so that it is in the output of whatever test fails.
///
/// # Panics
/// If `PLFS_SEED` is no number.
pub fn seed() -> u64 {
    static SEED: OnceLock<u64> = OnceLock::new();
    let seed = *SEED.get_or_init(|| match std::env::var("PLFS_SEED") {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("PLFS_SEED={text} is not a number")),
        // The keys of a hash map are random.
        Err(_) => RandomState::new().hash_one(0) >> 32,
    });
    println!("PLFS_SEED={seed} makes the random tests the same again");
    seed
}

/// `rounds` seeds, other ones in each run.
pub fn seeds(rounds: u64) -> Range<u64> {
    let first = seed();
    first..first + rounds
}

/// Of what is tried at many points, every fifth one, by the seed; all if `T_FULL=1`. A run of
/// `tests/run` is a part of what many runs cover.
pub fn in_turn(points: impl Iterator<Item = u64>) -> impl Iterator<Item = u64> {
    let is_full = std::env::var_os("T_FULL").is_some_and(|full| full == "1");
    let first = seed();
    points.filter(move |point| is_full || point.wrapping_add(first).is_multiple_of(5))
}

/// How many rounds a test runs: what this variable says, or `default`.
///
/// # Panics
/// If the variable is no number.
pub fn rounds(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| {
        text.parse().unwrap_or_else(|_| panic!("{variable}={text} is not a number"))
    })
}

/// Notes that a test covered `n` of `what` ("power losses"); `tests/run` prints the sums over all
/// suites. `PLFS_EXPLORED` is the file that takes the notes; without it, and for 0, nothing
/// happens.
///
/// # Panics
/// If the file cannot be written.
pub fn explored(n: u64, what: &str) {
    let Some(path) = std::env::var_os("PLFS_EXPLORED").filter(|_| n > 0) else { return };
    // One call for the line, so that those of several processes do not mix.
    let line = format!("{n} {what}\n");
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        .and_then(|mut file| file.write_all(line.as_bytes()))
        .expect("PLFS_EXPLORED can be written");
}
