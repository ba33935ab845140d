//! What appends to storage targets took, and what the last probe of each found: a second page of
//! shared memory beside that of rates (docs/decisions/0028). As there all of it is a hint.
//!
//! Latencies are counted in 32 buckets, each 1.68 times as long as the one before, from 16 us to
//! more than four minutes. The counts halve every 30 s, as the weight of a rate does.

use std::path::Path;

use super::machine::boot_time_ns;
use super::rates::TARGETS;
use super::shm::{SharedPage, WORDS};
use super::writers::{is_of_the_dead, me};
use crate::sync::Word;
use crate::sync::plain::atomic::Ordering;

// Words of a target: its number, as in the page of rates; of the last probe when it ended (boot
// time, ns), what it found (bytes per second), how many bytes it wrote, who it was and how (see
// `Probe`), and the latencies of its appends; who probes now; when the counts were halved; and the
// counts, four in a word.
const TARGET: usize = 16;
const PROBED: usize = 1;
const PROBE_RATE: usize = 2;
const PROBE_BYTES: usize = 3;
const PROBE_WHO: usize = 4;
const PROBE_TOOK: usize = 5;
const SEAT: usize = 6;
const HALVED: usize = 7;
const COUNTS: usize = 8;
const BUCKETS: usize = 32;
const _: () = assert!(TARGET * TARGETS <= WORDS && COUNTS + BUCKETS / 4 == TARGET);

/// The shortest bucket ends here. 16 us: a write that a page cache took.
const FIRST_NS: f64 = 16e3;
/// A bucket is 2 to this power as long as the one before.
const STEP_LOG2: f64 = 0.75;
/// The counts halve in this time, and where one of them reaches [`COUNT_MAX`].
const HALF_NS: u64 = 30_000_000_000;
/// A count has 16 bits; half of that, so that those who add at once spill nothing.
const COUNT_MAX: u64 = 0x8000;
/// The highest bit of each count, and all the others.
const OTHERS: u64 = 0x7fff_7fff_7fff_7fff;

/// How long appends took, quantiles of those of some minutes; factors of 1.3 are noise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Latencies {
    /// Half of them took less, seconds.
    pub median_s: f64,
    /// 99 of 100 took less, seconds.
    pub most_s: f64,
    /// How many are counted.
    pub appends: u64,
}

/// What a probe found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Probe {
    /// Bytes per second.
    pub bytes_s: f64,
    /// Bytes that it wrote.
    pub bytes: u64,
    /// Half of its appends took less, seconds.
    pub median_s: f64,
    /// 99 of 100 took less, seconds.
    pub most_s: f64,
    /// The process that did it, on this node.
    pub pid: u32,
    /// Whether it went by the page cache, with a sync of each append.
    pub cached: bool,
    /// How long ago it ended, nanoseconds.
    pub age_ns: u64,
}

/// The page of one user.
#[derive(Debug)]
pub(crate) struct History {
    page: SharedPage,
}

/// The right to probe a target, of one process of the node at a time. Dropping it gives it up; of
/// the dead it is taken.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    words: &'a [Word],
    me: u64,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let order = Ordering::Relaxed;
        let _ = self.words[SEAT].compare_exchange(self.me, 0, order, order);
    }
}

impl History {
    /// The page in a directory of shared memory, made if it is not there.
    pub(super) fn of(dir: &Path, uid: u32) -> Option<History> {
        let page = SharedPage::join(&dir.join(format!("plfs-history-{uid}")), uid).ok()?;
        Some(History { page })
    }

    /// The words of the target with this place and number. What another one left there goes.
    fn words(&self, (place, number): (usize, u64)) -> &[Word] {
        let words = &self.page.words()[place * TARGET..][..TARGET];
        if words[0].load(Ordering::Relaxed) != number {
            words[0].store(number, Ordering::Relaxed);
            words[1..].iter().for_each(|word| word.store(0, Ordering::Relaxed));
        }
        words
    }

    /// Counts an append that took so long.
    pub(super) fn note(&self, target: (usize, u64), ns: u64) {
        let words = self.words(target);
        fade(words);
        let bucket = bucket_of(ns);
        let (word, shift) = (&words[COUNTS + bucket / 4], 16 * (bucket % 4));
        let before = word.fetch_add(1 << shift, Ordering::Relaxed);
        if (before >> shift) & 0xffff >= COUNT_MAX {
            halve(words, 1);
        }
    }

    /// What the counts say; `None` if there are none.
    pub(super) fn latencies(&self, target: (usize, u64)) -> Option<Latencies> {
        let words = self.words(target);
        fade(words);
        let counts: [u64; BUCKETS] = std::array::from_fn(|bucket| {
            let word = words[COUNTS + bucket / 4].load(Ordering::Relaxed);
            (word >> (16 * (bucket % 4))) & 0xffff
        });
        let appends = counts.iter().sum();
        let quantile = |part: f64| {
            let mut left = (appends as f64 * part).ceil().max(1.0);
            for (bucket, count) in counts.iter().enumerate() {
                left -= *count as f64;
                if left <= 0.0 {
                    return middle_of(bucket) / 1e9;
                }
            }
            0.0
        };
        (appends > 0).then(|| Latencies {
            median_s: quantile(0.5),
            most_s: quantile(0.99),
            appends,
        })
    }

    /// Takes note of a probe of this process.
    pub(super) fn book(&self, target: (usize, u64), probe: &Probe) {
        let words = self.words(target);
        let put = |word: usize, value| words[word].store(value, Ordering::Relaxed);
        // Microseconds: an hour fits.
        let micros = |s: f64| (s * 1e6).clamp(0.0, f64::from(u32::MAX)) as u64;
        put(PROBE_RATE, probe.bytes_s.to_bits());
        put(PROBE_BYTES, probe.bytes);
        put(PROBE_WHO, u64::from(probe.cached) << 32 | u64::from(probe.pid));
        put(PROBE_TOOK, micros(probe.median_s) << 32 | micros(probe.most_s));
        put(PROBED, boot_time_ns().max(1));
    }

    /// The last probe of a target, if there was one since the machine was started.
    pub(super) fn probe(&self, target: (usize, u64)) -> Option<Probe> {
        let words = self.words(target);
        let word = |word: usize| words[word].load(Ordering::Relaxed);
        let (ended, bytes_s) = (word(PROBED), f64::from_bits(word(PROBE_RATE)));
        let (who, took) = (word(PROBE_WHO), word(PROBE_TOOK));
        (ended > 0 && (1.0..=1e15).contains(&bytes_s)).then(|| Probe {
            bytes_s,
            bytes: word(PROBE_BYTES),
            median_s: (took >> 32) as f64 / 1e6,
            most_s: f64::from(took as u32) / 1e6,
            pid: who as u32,
            cached: who >> 32 & 1 == 1,
            age_ns: boot_time_ns().saturating_sub(ended),
        })
    }

    /// The turn to probe a target; `None`: a process that lives has it.
    pub(super) fn turn(&self, target: (usize, u64)) -> Option<Turn<'_>> {
        let (words, me) = (self.words(target), me());
        let owner = words[SEAT].load(Ordering::Relaxed);
        if owner != 0 && !is_of_the_dead(owner) {
            return None;
        }
        let order = Ordering::Relaxed;
        words[SEAT].compare_exchange(owner, me, order, order).ok()?;
        Some(Turn { words, me })
    }
}

/// Halves the counts as often as they should have been.
fn fade(words: &[Word]) {
    let (now, last) = (boot_time_ns().max(1), words[HALVED].load(Ordering::Relaxed));
    let times = now.saturating_sub(last) / HALF_NS;
    if last != 0 && times == 0 {
        return;
    }
    let order = Ordering::Relaxed;
    // One of those who find it does it.
    if words[HALVED].compare_exchange(last, now, order, order).is_ok() && last != 0 {
        halve(words, times);
    }
}

fn halve(words: &[Word], times: u64) {
    for word in &words[COUNTS..] {
        let mut counts = word.load(Ordering::Relaxed);
        for _ in 0..times.min(16) {
            counts = (counts >> 1) & OTHERS;
        }
        word.store(counts, Ordering::Relaxed);
    }
}

fn bucket_of(ns: u64) -> usize {
    let steps = (ns as f64 / FIRST_NS).log2() / STEP_LOG2;
    // What is no number, and what is shorter, is in the first one.
    (steps.max(0.0).ceil() as usize).min(BUCKETS - 1)
}

/// The geometric mean of a bucket's ends, nanoseconds.
fn middle_of(bucket: usize) -> f64 {
    FIRST_NS * ((bucket as f64 - 0.5) * STEP_LOG2).exp2()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::machine::random_u64;

    fn page() -> History {
        let path = format!("/dev/shm/plfs-test-history-{:016x}", random_u64());
        let page = SharedPage::join(Path::new(&path), rustix::process::geteuid().as_raw()).unwrap();
        std::fs::remove_file(&path).unwrap();
        History { page }
    }

    const A: (usize, u64) = (63, 7);

    #[test]
    fn quantiles_are_those_of_the_appends() {
        let history = page();
        assert_eq!(history.latencies(A), None);
        for ms in 1..=1000 {
            history.note(A, ms * 1_000_000);
        }
        let found = history.latencies(A).unwrap();
        assert_eq!(found.appends, 1000);
        assert!((found.median_s / 0.5).log2().abs() < 0.75, "{found:?}");
        assert!((found.most_s / 0.99).log2().abs() < 0.75, "{found:?}");
        // Another target in the same place has none of that.
        assert_eq!(history.latencies((A.0, 8)), None);
        // The ends.
        for ns in [0, 1, u64::MAX] {
            history.note(A, ns);
        }
        let found = history.latencies(A).unwrap();
        assert!(found.median_s < 20e-6 && found.most_s > 100.0, "{found:?}");
    }

    #[test]
    fn counts_do_not_spill_into_each_other() {
        let history = page();
        for _ in 0..200_000 {
            history.note(A, 20_000);
        }
        let found = history.latencies(A).unwrap();
        assert!((found.median_s / 20e-6).log2().abs() < 0.75, "{found:?}");
        assert_eq!(found.median_s, found.most_s);
    }

    #[test]
    fn what_is_old_fades() {
        let history = page();
        (0..8).for_each(|_| history.note(A, 1_000_000));
        let halved = &history.page.words()[A.0 * TARGET + HALVED];
        let ago =
            |ns: u64| halved.store(boot_time_ns().saturating_sub(ns).max(1), Ordering::Relaxed);
        ago(2 * HALF_NS + 1);
        assert_eq!(history.latencies(A).unwrap().appends, 2);
        ago(100 * HALF_NS);
        assert_eq!(history.latencies(A), None);
    }

    #[test]
    fn one_probes_at_a_time_and_the_dead_do_not() {
        let history = page();
        let turn = history.turn(A).unwrap();
        assert!(history.turn(A).is_none() && history.turn((1, 9)).is_some());
        drop(turn);
        assert!(history.turn(A).is_some());
        // No process has this number, or began then.
        history.page.words()[A.0 * TARGET + SEAT].store(u64::MAX - 5, Ordering::Relaxed);
        assert!(history.turn(A).is_some());
    }

    #[test]
    fn probes_are_found_again_and_nonsense_is_not() {
        let history = page();
        let probe = Probe {
            bytes_s: 4e7,
            bytes: 1 << 24,
            median_s: 0.0125,
            most_s: 0.5,
            pid: 77,
            cached: true,
            age_ns: 0,
        };
        history.book(A, &probe);
        let found = history.probe(A).unwrap();
        assert_eq!(Probe { age_ns: 0, ..found }, probe);
        for bits in [u64::MAX, 0, (-1.0f64).to_bits()] {
            history.page.words()[A.0 * TARGET + PROBE_RATE].store(bits, Ordering::Relaxed);
            assert_eq!(history.probe(A), None);
        }
    }
}
