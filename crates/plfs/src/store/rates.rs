//! How fast storage targets are, as a user's processes on this node have measured it, and which of
//! them writes to which now: a page in shared memory (docs/decisions/0026). All of it is a hint: it
//! decides where bytes go, never what they are. So races, processes that die and numbers that
//! somebody has scribbled there cost time at most.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use plfs_format::fnv_1a;

use super::history::{History, Latencies, Probe, Turn};
use super::machine::boot_time_ns;
use super::shm::{SharedPage, WORDS};
use super::writers::{is_of_the_dead, me};
use crate::sync::plain::atomic::Ordering;
use crate::sync::{Arc, OfProcess, plain};

// Words of a target: a number of it, bytes per second, when that was measured (boot time, ns), and
// the bytes that were written there.
const TARGET: usize = 4;
pub(super) const TARGETS: usize = 64;
const RATE: usize = 1;
const SEEN: usize = 2;
const BYTES: usize = 3;
// Words of a seat: whose it is, and which target he writes to (its place and one; 0: none).
const SEAT: usize = 2;
const SEATS_FROM: usize = TARGET * TARGETS;
const SEATS: usize = 256;
/// When somebody merged the site-wide file last (boot time, ns).
const MERGED: usize = SEATS_FROM + SEAT * SEATS;
/// A word for each target: since when it is given up (boot time, ns); 0: it is not.
const FENCES_FROM: usize = MERGED + 1;
const _: () = assert!(FENCES_FROM + TARGETS <= WORDS);

/// What was measured loses half of its weight in this time, against what the fastest target does: a
/// target that was slow is tried again.
const HALF_NS: f64 = 30e9;
/// So long is measured at once. 200 ms: storage that is limited to a rate, and most that has a
/// cache, takes much at once and then nothing for a tenth of a second; a MiB alone was between 12
/// and 320 MB/s on targets of 42 MB/s, and what came within 100 ms 21 to 50, as two threads write.
pub(crate) const WINDOW: Duration = Duration::from_millis(200);
/// The weight of a new measurement: they differ by a factor of two on targets that are alike. So
/// much in a [`WINDOW`], however many writers measured in it.
const NEW: f64 = 0.3;
/// Before so many bytes were measured a target is taken for [`DOUBTED`] of the fastest at least:
/// two measurements, because the first may have met somebody's sync.
const SURE_BYTES: u64 = 2 << 20;
const DOUBTED: f64 = 0.6;
/// Bit of a rate that a probe of less than a [`WINDOW`] found: a guess, as on targets that were
/// alike such probes differed by a factor of twelve, and were 50 times what the targets took for
/// longer. People are shown it; a writer goes by what was measured, and takes its place.
const GUESS: u64 = 1;
/// A target of which nobody has heard for so long makes room for another one. A minute: what was
/// measured then has a quarter of its weight.
const FORGOTTEN_NS: u64 = 60_000_000_000;
/// A target that was given up is tried again after this time, if what hangs there has not come back
/// before, nor a probe. Ten minutes: with a deadline of 30 s who tries it loses a twentieth of his
/// time at most.
const FENCED_NS: u64 = 600_000_000_000;

/// The page of one user.
#[derive(Debug)]
pub(crate) struct Rates {
    page: SharedPage,
    history: Option<History>,
}

/// A target's place in the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target(usize);

/// The sign of one writer. Dropping it gives it up.
#[derive(Debug)]
pub(crate) struct Seat {
    rates: Arc<Rates>,
    /// Its first word; `None`: all are taken.
    at: Option<usize>,
    me: u64,
}

/// What is known of a target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Known {
    /// Bytes per second that one writer more gets there; `None`: nobody has measured it.
    pub expected: Option<f64>,
    /// Who writes there now, but the caller.
    pub others: usize,
}

impl Rates {
    /// The page in a directory of shared memory, made if it is not there; `None` if it cannot be
    /// used. Some ten system calls, once in the life of a process.
    pub(crate) fn of(dir: &Path, uid: u32) -> Option<Arc<Rates>> {
        type All = plain::Mutex<Vec<(PathBuf, u32, Option<Arc<Rates>>)>>;
        static ALL: OfProcess<All> = OfProcess::new();
        // Explored schedules have no time of their own.
        if cfg!(feature = "shuttle") {
            return None;
        }
        let mut all = plain::lock(ALL.get(Default::default));
        if let Some((.., rates)) = all.iter().find(|(of, user, _)| of == dir && *user == uid) {
            return rates.clone();
        }
        let page = SharedPage::join(&dir.join(format!("plfs-targets-{uid}")), uid);
        let history = |_: &SharedPage| History::of(dir, uid);
        let rates = page.ok().map(|page| Arc::new(Rates { history: history(&page), page }));
        all.push((dir.to_path_buf(), uid, rates.clone()));
        rates
    }

    /// The target with this key, which is a directory or what its provider says. `None` if the page
    /// is full of targets of which somebody has heard of late.
    pub(crate) fn target(&self, key: &Path) -> Option<Target> {
        let (key, words) = (number_of(key), self.page.words());
        let free = (0..TARGETS).map(|i| (key as usize).wrapping_add(i) % TARGETS).find(|at| {
            let word = &words[at * TARGET];
            match word.load(Ordering::Relaxed) {
                0 => self.take(*at, 0, key) || word.load(Ordering::Relaxed) == key,
                other => other == key,
            }
        });
        free.or_else(|| self.take_oldest(key)).map(Target)
    }

    /// Puts a target in a place of the page, if `before` is there.
    fn take(&self, at: usize, before: u64, key: u64) -> bool {
        let words = &self.page.words()[at * TARGET..][..TARGET];
        let is_ours =
            words[0].compare_exchange(before, key, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if is_ours {
            words[RATE].store(0, Ordering::Relaxed);
            words[BYTES].store(0, Ordering::Relaxed);
            words[SEEN].store(boot_time_ns(), Ordering::Relaxed);
            self.unfence(Target(at));
        }
        is_ours
    }

    /// Forgets the target of which nobody has heard for the longest time, for this one. Who still
    /// goes by its place takes the new one for it, until his next region.
    fn take_oldest(&self, key: u64) -> Option<usize> {
        let words = self.page.words();
        let seen = |at: usize| words[at * TARGET + SEEN].load(Ordering::Relaxed);
        let is_idle = |at: &usize| self.writers_of(Target(*at)) == 0;
        let oldest = (0..TARGETS).filter(is_idle).min_by_key(|at| seen(*at))?;
        let is_old = boot_time_ns().saturating_sub(seen(oldest)) >= FORGOTTEN_NS;
        let before = words[oldest * TARGET].load(Ordering::Relaxed);
        (is_old && self.take(oldest, before, key)).then_some(oldest)
    }

    /// The target with this key, if it is in the page.
    pub(crate) fn find(&self, key: &Path) -> Option<Target> {
        let (key, words) = (number_of(key), self.page.words());
        for at in (0..TARGETS).map(|i| (key as usize).wrapping_add(i) % TARGETS) {
            match words[at * TARGET].load(Ordering::Relaxed) {
                0 => return None,
                found if found == key => return Some(Target(at)),
                _ => {}
            }
        }
        None
    }

    /// Takes note that a target has got so many bytes more; gives how many that are of all writers,
    /// since the page is there.
    pub(crate) fn got(&self, target: Target, bytes: u64) -> u64 {
        let word = &self.page.words()[target.0 * TARGET + BYTES];
        word.fetch_add(bytes, Ordering::Relaxed).wrapping_add(bytes)
    }

    /// Takes note that a target took so many bytes a second at least, in the last [`WINDOW`].
    pub(crate) fn note(&self, target: Target, bytes_s: f64) {
        let words = &self.page.words()[target.0 * TARGET..][..TARGET];
        let rate = match self.measured(target) {
            Some((before, age)) => {
                let windows = (age as f64 / WINDOW.as_nanos() as f64).min(1.0);
                let kept = (1.0 - NEW).powf(windows);
                (1.0 - kept) * bytes_s + kept * before
            }
            None => bytes_s,
        };
        words[RATE].store(bits_of(rate), Ordering::Relaxed);
        words[SEEN].store(boot_time_ns(), Ordering::Relaxed);
    }

    /// Says that an append to a target has not ended in time: who chooses keeps off it for a while.
    pub(crate) fn fence(&self, target: Target) {
        self.page.words()[FENCES_FROM + target.0].store(boot_time_ns().max(1), Ordering::Relaxed);
    }

    /// The target answers.
    pub(crate) fn unfence(&self, target: Target) {
        self.page.words()[FENCES_FROM + target.0].store(0, Ordering::Relaxed);
    }

    /// For how long a target has been given up, in ns; `None`: it is not.
    pub(crate) fn given_up_for(&self, target: Target) -> Option<u64> {
        let since = self.page.words()[FENCES_FROM + target.0].load(Ordering::Relaxed);
        // What somebody has scribbled there is of no time that was.
        let age = boot_time_ns().checked_sub(since)?;
        (since != 0 && age < FENCED_NS).then_some(age)
    }

    /// Whether a target is given up.
    pub(crate) fn is_fenced(&self, target: Target) -> bool {
        self.given_up_for(target).is_some()
    }

    /// Whether one of these targets, but perhaps one, is not given up.
    pub(crate) fn is_one_open(&self, targets: &[Target], but: Option<Target>) -> bool {
        targets.iter().any(|target| Some(*target) != but && !self.is_fenced(*target))
    }

    /// Takes note of how long an append to a target took.
    pub(crate) fn took(&self, target: Target, time: Duration) {
        if let Some(history) = &self.history {
            history.note(self.number(target), time.as_nanos() as u64);
        }
    }

    /// Takes note of what a probe of this process found in so much time. It goes before what was
    /// known, unless that was measured and this is a guess.
    pub(crate) fn book(&self, target: Target, probe: &Probe, took: Duration) {
        let words = &self.page.words()[target.0 * TARGET..][..TARGET];
        words[BYTES].fetch_add(probe.bytes, Ordering::Relaxed);
        if took >= WINDOW {
            self.learn(target, probe.bytes_s, 0, 0);
        } else if self.measured(target).is_none() {
            words[RATE].store(bits_of(probe.bytes_s) | GUESS, Ordering::Relaxed);
            words[SEEN].store(boot_time_ns().max(1), Ordering::Relaxed);
        }
        self.unfence(target);
        if let Some(history) = &self.history {
            history.book(self.number(target), probe);
        }
    }

    /// Takes note of what somebody else measured by so many bytes, `age_ns` ago.
    pub(crate) fn learn(&self, target: Target, bytes_s: f64, bytes: u64, age_ns: u64) {
        let words = &self.page.words()[target.0 * TARGET..][..TARGET];
        // No sum: who hears of it again has not measured it again.
        words[BYTES].fetch_max(bytes, Ordering::Relaxed);
        words[RATE].store(bits_of(bytes_s), Ordering::Relaxed);
        let seen = boot_time_ns().saturating_sub(age_ns).max(1);
        words[SEEN].store(seen, Ordering::Relaxed);
    }

    /// The last probe of a target.
    pub(crate) fn probe(&self, target: Target) -> Option<Probe> {
        self.history.as_ref()?.probe(self.number(target))
    }

    /// How long appends to a target took of late.
    pub(crate) fn latencies(&self, target: Target) -> Option<Latencies> {
        self.history.as_ref()?.latencies(self.number(target))
    }

    /// The turn to probe a target. `Err`: a process that lives has it. `Ok(None)`: nobody can know.
    pub(crate) fn turn(&self, target: Target) -> Result<Option<Turn<'_>>, ()> {
        match &self.history {
            Some(history) => history.turn(self.number(target)).map(Some).ok_or(()),
            None => Ok(None),
        }
    }

    /// Who writes to a target now.
    pub(crate) fn writers_of(&self, target: Target) -> usize {
        self.writers(target, |_| true)
    }

    /// Whether nobody on the node has looked after the site-wide file for so long. Then the caller
    /// is to.
    pub(crate) fn is_merge_due(&self, every_ns: u64) -> bool {
        let (word, now) = (&self.page.words()[MERGED], boot_time_ns().max(1));
        let last = word.load(Ordering::Relaxed);
        let order = Ordering::Relaxed;
        (last == 0 || now.saturating_sub(last) >= every_ns)
            && word.compare_exchange(last, now, order, order).is_ok()
    }

    /// Place and number of a target.
    fn number(&self, target: Target) -> (usize, u64) {
        (target.0, self.page.words()[target.0 * TARGET].load(Ordering::Relaxed))
    }

    /// Bytes per second of a target, be it a guess, and how old that is, in ns.
    pub(crate) fn rate(&self, target: Target) -> Option<(f64, u64)> {
        let words = &self.page.words()[target.0 * TARGET..][..TARGET];
        let rate = f64::from_bits(words[RATE].load(Ordering::Relaxed));
        let age = boot_time_ns().saturating_sub(words[SEEN].load(Ordering::Relaxed));
        (1.0..=1e15).contains(&rate).then_some((rate, age))
    }

    /// The same of a target of which more is known than what a short probe found.
    pub(crate) fn measured(&self, target: Target) -> Option<(f64, u64)> {
        self.rate(target).filter(|(rate, _)| rate.to_bits() & GUESS == 0)
    }

    /// Bytes that were written to a target since the page is there.
    pub(crate) fn bytes(&self, target: Target) -> u64 {
        self.page.words()[target.0 * TARGET + BYTES].load(Ordering::Relaxed)
    }

    /// How many seats say that their writer writes there, of those that count.
    fn writers(&self, target: Target, counts: impl Fn(usize) -> bool) -> usize {
        let words = self.page.words();
        let is_there = |at: &usize| {
            let (owner, there) =
                (words[*at].load(Ordering::Relaxed), words[at + 1].load(Ordering::Relaxed));
            owner != 0 && there == target.0 as u64 + 1 && counts(*at)
        };
        seats().filter(is_there).count()
    }

    /// A seat for one more writer. Whoever is dead has none any more.
    pub(crate) fn sit(self: &Arc<Self>) -> Seat {
        let (me, words) = (me(), self.page.words());
        let becomes = |at: usize, owner, new| {
            words[at].compare_exchange(owner, new, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        };
        let mut asked = Vec::new();
        for at in seats() {
            let owner = words[at].load(Ordering::Relaxed);
            let known = asked.iter().find(|(of, _)| *of == owner).map(|(_, is_dead)| *is_dead);
            let is_dead = known.unwrap_or_else(|| {
                let is_dead = owner != me && is_of_the_dead(owner);
                asked.push((owner, is_dead));
                is_dead
            });
            if is_dead {
                becomes(at, owner, 0);
            }
        }
        let at = seats().find(|at| becomes(*at, 0, me));
        if let Some(at) = at {
            words[at + 1].store(0, Ordering::Relaxed);
        }
        Seat { rates: self.clone(), at, me }
    }
}

/// The word of a rate that is no guess.
fn bits_of(bytes_s: f64) -> u64 {
    bytes_s.clamp(1.0, 1e15).to_bits() & !GUESS
}

/// A number of a target's key, never 0.
fn number_of(key: &Path) -> u64 {
    fnv_1a(key.as_os_str().as_bytes().iter().copied()).max(1)
}

/// The first words of all seats.
fn seats() -> impl Iterator<Item = usize> {
    (0..SEATS).map(|i| SEATS_FROM + i * SEAT)
}

impl Seat {
    /// The page that it is in.
    pub(crate) fn rates(&self) -> &Arc<Rates> {
        &self.rates
    }

    /// Says that the writer writes to a target from now on.
    pub(crate) fn move_to(&self, target: Target) {
        if let Some(at) = self.at {
            self.rates.page.words()[at + 1].store(target.0 as u64 + 1, Ordering::Relaxed);
        }
    }

    /// What is known of these targets. Costs a look at all seats for each.
    pub(crate) fn look(&self, targets: &[Target]) -> Vec<Known> {
        let rates: Vec<_> = targets.iter().map(|target| self.rates.measured(*target)).collect();
        let best = rates.iter().flatten().map(|(rate, _)| *rate).fold(0.0, f64::max);
        let known = targets.iter().zip(&rates).map(|(target, rate)| {
            let others = self.rates.writers(*target, |at| Some(at) != self.at);
            let expected = rate.map(|(rate, age)| {
                let weight = (-(age as f64) / HALF_NS).exp2();
                let rate = rate * weight + best * (1.0 - weight);
                let is_sure = self.rates.bytes(*target) >= SURE_BYTES;
                let rate = if is_sure { rate } else { rate.max(DOUBTED * best) };
                rate / (others as f64 + 1.0)
            });
            Known { expected, others }
        });
        known.collect()
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        // In the child of a fork it is the parent's.
        if let Some(at) = self.at.filter(|_| self.me == me()) {
            let word = &self.rates.page.words()[at];
            let _ = word.compare_exchange(self.me, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::machine::random_u64;

    fn page() -> Arc<Rates> {
        let path = PathBuf::from(format!("/dev/shm/plfs-test-rates-{:016x}", random_u64()));
        let page = SharedPage::join(&path, rustix::process::geteuid().as_raw()).unwrap();
        std::fs::remove_file(&path).unwrap();
        Arc::new(Rates { page, history: None })
    }

    #[test]
    fn who_comes_expects_what_those_that_are_there_leave() {
        let rates = page();
        let [a, b] = ["/a", "/b"].map(|dir| rates.target(Path::new(dir)).unwrap());
        assert_eq!(rates.target(Path::new("/a")), Some(a));
        let (one, two) = (rates.sit(), rates.sit());
        let nothing = Known { expected: None, others: 0 };
        assert_eq!(one.look(&[a, b]), [nothing, nothing]);
        one.move_to(a);
        rates.note(a, f64::from(100 << 20));
        let known = two.look(&[a, b]);
        assert_eq!(known[1], nothing);
        assert_eq!(known[0].others, 1);
        let half = f64::from(50 << 20);
        assert!((known[0].expected.unwrap() / half - 1.0).abs() < 0.01, "{known:?}");
        // To who is there already it is all his.
        assert_eq!(one.look(&[a])[0].others, 0);
        drop(one);
        assert_eq!(two.look(&[a])[0].others, 0);
    }

    #[test]
    fn seats_of_the_dead_are_free() {
        let rates = page();
        let a = rates.target(Path::new("/a")).unwrap();
        let words = rates.page.words();
        for i in 0..SEATS {
            // No process has this number, or began then.
            words[SEATS_FROM + i * SEAT].store(u64::MAX - i as u64, Ordering::Relaxed);
            words[SEATS_FROM + i * SEAT + 1].store(1 + a.0 as u64, Ordering::Relaxed);
        }
        let seat = rates.sit();
        assert!(seat.at.is_some());
        assert_eq!(seat.look(&[a])[0].others, 0);
    }

    /// The page was full for ever once a node had seen 64 directories: from then on nobody steered.
    #[test]
    fn the_target_that_was_not_used_for_longest_makes_room() {
        let rates = page();
        let target = |i: usize| rates.target(Path::new(&format!("/{i}")));
        let all: Vec<Target> = (0..TARGETS).map(|i| target(i).unwrap()).collect();
        assert_eq!(target(TARGETS), None, "all are of now");
        let heard = |of: Target, ago_ns| {
            let seen = boot_time_ns().saturating_sub(ago_ns);
            rates.page.words()[of.0 * TARGET + SEEN].store(seen, Ordering::Relaxed);
        };
        rates.got(all[5], 10 << 20);
        rates.note(all[5], 1e7);
        rates.fence(all[5]);
        heard(all[4], 2 * FORGOTTEN_NS);
        heard(all[5], FORGOTTEN_NS);
        let seat = rates.sit();
        seat.move_to(all[4]);
        let new = target(TARGETS).unwrap();
        assert_eq!(new, all[5], "somebody writes to the oldest one");
        assert_eq!((rates.rate(new), rates.bytes(new), rates.is_fenced(new)), (None, 0, false));
        assert_eq!(target(TARGETS), Some(new));
        assert_eq!((target(4), rates.find(Path::new("/5"))), (Some(all[4]), None));
    }

    /// Eight writers of a target noted forty windows a second, and its rate was that of the last
    /// 75 ms: alike targets differed threefold, and writers moved.
    #[test]
    fn a_measurement_weighs_by_time_however_many_writers_make_it() {
        let rates = page();
        let a = rates.target(Path::new("/a")).unwrap();
        let heard = |ago: Duration| {
            let seen = boot_time_ns() - ago.as_nanos() as u64;
            rates.page.words()[a.0 * TARGET + SEEN].store(seen, Ordering::Relaxed);
        };
        let rate = || rates.rate(a).unwrap().0;
        rates.note(a, 100e6);
        heard(WINDOW);
        rates.note(a, 200e6);
        assert!((rate() / 130e6 - 1.0).abs() < 0.01, "{}", rate());
        for _ in 0..8 {
            heard(WINDOW / 8);
            rates.note(a, 30e6);
        }
        assert!((rate() / 100e6 - 1.0).abs() < 0.02, "{}", rate());
        // Of long ago it is one measurement.
        heard(10 * WINDOW);
        rates.note(a, 200e6);
        assert!((rate() / 130e6 - 1.0).abs() < 0.02, "{}", rate());
    }

    /// Storage that is limited to a rate takes some MiB at once: probes of 2 MiB differed by a
    /// factor of twelve on targets that were alike. What they found had a part in the rate for four
    /// seconds, in which writers moved: 2 GiB took 2.5 % longer than without a probe. Later it only
    /// decided where writers began, and 64 of them gave 11.7 to 13.4 % to each of eight targets:
    /// 4.7 % longer.
    #[test]
    fn writers_go_by_what_was_measured_and_by_no_short_probe() {
        let rates = page();
        let all = ["/a", "/b", "/c"].map(|dir| rates.target(Path::new(dir)).unwrap());
        let seat = rates.sit();
        let expected = || -> Vec<Option<f64>> {
            let whole = |bytes_s: f64| (bytes_s / 1e3).round() * 1e3;
            seat.look(&all).iter().map(|one| one.expected.map(whole)).collect()
        };
        let probe = |bytes_s, bytes| Probe {
            bytes_s,
            bytes,
            median_s: 0.001,
            most_s: 0.001,
            pid: 1,
            cached: false,
            age_ns: 0,
        };
        let short = WINDOW / 100;
        for (target, bytes_s) in all.iter().zip([2e9, 2e8, 1.5e9]) {
            rates.book(*target, &probe(bytes_s, 4 << 20), short);
        }
        assert_eq!(expected(), [None; 3]);
        rates.got(all[0], 8 << 20);
        rates.note(all[0], 40e6);
        assert_eq!(expected(), [Some(40e6), None, None], "the others may be as fast");
        rates.note(all[1], 4e6);
        assert_eq!(expected(), [Some(40e6), Some(4e6), None]);
        // What took long enough is a measurement, which no guess replaces.
        rates.book(all[2], &probe(4e6, 4 << 20), WINDOW);
        rates.book(all[2], &probe(9e8, 4 << 20), short);
        assert_eq!(expected(), [Some(40e6), Some(4e6), Some(4e6)]);
    }

    #[test]
    fn numbers_that_are_none_are_not_believed() {
        let rates = page();
        let a = rates.target(Path::new("/a")).unwrap();
        for bits in [u64::MAX, f64::NEG_INFINITY.to_bits(), (-1.0f64).to_bits(), 1] {
            rates.page.words()[a.0 * TARGET + RATE].store(bits, Ordering::Relaxed);
            assert_eq!(rates.rate(a), None, "{bits:x}");
        }
        rates.note(a, f64::INFINITY);
        assert!(rates.rate(a).unwrap().0 <= 1e15);
    }
}
