//! Which stream a writer's next region is in, where a file has several storage targets: one on the
//! target from which it expects most, by what the node has measured (docs/decisions/0026).
//!
//! A writer goes on where it is as long as nobody shares that target with it and no other one
//! promises twice as much. So equal targets have a writer each, and one that is slow has none as
//! long as others have room. Where there are more targets than writers, one that has given its own
//! as much as can be under way *visits* an idle one: it puts a MiB there, and goes back.

use std::path::PathBuf;

use plfs_format::layout::Placement;

use super::flusher::{THREADS, jobs_at};
use super::policy;
use crate::container::Container;
use crate::error::Result;
use crate::store::rates::{Known, Rates, Seat, Target};
use crate::sync::Arc;

/// Streams that a writer chooses from, the first ones of a file.
const STREAMS: u16 = 64;
/// Bytes that are given to the storage at once, and waited for while the next ones are on their
/// way: what a page cache takes in says nothing of the storage. 1 MiB: a tenth of a second on a
/// target of 10 MB/s, and no more than that is known late.
pub(super) const PACE: u64 = 1 << 20;
/// Another target must promise so many times as much before a region is left.
const LEAVES_FOR: f64 = 2.0;
/// Targets that promise so much of the best are as good, for who shares his.
const AS_GOOD: f64 = 0.7;

/// A stream that a region can be in.
#[derive(Clone, Debug)]
pub(super) struct Choice {
    pub stream: u16,
    target: Target,
}

/// What one writer knows of its targets.
#[derive(Debug)]
pub(super) struct Steering {
    seat: Seat,
    placement: Placement,
    /// Bytes of regions that it took of each stream.
    given: Vec<u64>,
    /// Where it is now, and from what it could choose then.
    choices: Vec<Choice>,
    now: Option<Choice>,
    /// How many regions it took of each stream.
    taken: [u32; STREAMS as usize],
    /// Written and not given to the storage: which segment, and from where to where.
    gathered: Option<(u32, u64, u64)>,
    /// All targets of the file that take something.
    targets: Arc<[Target]>,
}

/// The streams of a file that lie on different targets, by what rates of those are known by; of
/// several on one target the writer's own, or the first. Those that are given up only if there are
/// no others.
pub(super) fn choices(
    rates: &Rates,
    container: &Container,
    own: u16,
    key_of: impl Fn(u16) -> Result<Option<PathBuf>>,
) -> Result<Vec<Choice>> {
    let (mut choices, mut fenced): (Vec<Choice>, Vec<Choice>) = (Vec::new(), Vec::new());
    let streams = container.superblock.streams.min(STREAMS);
    for stream in [own].into_iter().filter(|own| *own < streams).chain(0..streams) {
        let Some(key) = key_of(stream)? else { continue };
        // Where nothing can be known of one, streams are taken by turns.
        let Some(target) = rates.target(&key) else {
            return Ok(Vec::new());
        };
        let these = if rates.is_fenced(target) { &mut fenced } else { &mut choices };
        if !these.iter().any(|known| known.target == target) {
            these.push(Choice { stream, target });
        }
    }
    Ok(if choices.is_empty() { fenced } else { choices })
}

impl Steering {
    pub(super) fn new(rates: &Arc<Rates>, placement: Placement) -> Steering {
        Steering {
            seat: rates.sit(),
            placement,
            given: Vec::new(),
            choices: Vec::new(),
            now: None,
            taken: [0; STREAMS as usize],
            gathered: None,
            targets: Arc::default(),
        }
    }

    pub(super) fn rates(&self) -> &Arc<Rates> {
        self.seat.rates()
    }

    /// The stream for the next region. `None`: there is nothing to choose.
    pub(super) fn choose(&mut self, choices: Vec<Choice>) -> Option<u16> {
        let known = self.seat.look(&choices.iter().map(|one| one.target).collect::<Vec<_>>());
        let here = self.now.as_ref().and_then(|now| {
            choices.iter().position(|one| (one.stream, one.target) == (now.stream, now.target))
        });
        let taken = |i: usize| self.taken[usize::from(choices[i].stream)];
        let given = |i: usize| self.given(choices[i].stream);
        let may = policy::candidates(self.placement, &known, self.given.iter().sum());
        let chosen = match self.placement {
            Placement::Measured => {
                let among: Vec<Known> = may.iter().map(|i| known[*i]).collect();
                let here = here.and_then(|here| may.iter().position(|i| *i == here));
                may[best(&among, here, |i| taken(may[i]))?]
            }
            Placement::Equal | Placement::Cliff => policy::least_given(&may, given)?,
        };
        let now = choices[chosen].clone();
        self.taken[usize::from(now.stream)] += 1;
        self.seat.move_to(now.target);
        let stream = now.stream;
        (self.choices, self.now) = (choices, Some(now));
        Some(stream)
    }

    /// Takes note of a region of a stream that it has got.
    pub(super) fn gave(&mut self, stream: u16, bytes: u64) {
        let stream = usize::from(stream);
        if self.given.len() <= stream {
            self.given.resize(stream + 1, 0);
        }
        self.given[stream] += bytes;
    }

    fn given(&self, stream: u16) -> u64 {
        self.given.get(usize::from(stream)).copied().unwrap_or(0)
    }

    /// Whether the rest of the region is better left: another target promises far more. Equal
    /// shares are equal whatever is promised.
    pub(super) fn should_leave(&self) -> bool {
        if self.is_fenced_here() {
            return true;
        }
        if self.placement != Placement::Measured {
            return false;
        }
        let Some(now) = &self.now else { return false };
        let targets: Vec<_> = self.choices.iter().map(|one| one.target).collect();
        let known = self.seat.look(&targets);
        let Some(here) = self.choices.iter().position(|one| one.target == now.target) else {
            return false;
        };
        let best = known.iter().filter_map(|one| one.expected).fold(0.0, f64::max);
        known[here].expected.is_some_and(|here| here * LEAVES_FOR < best)
    }

    /// The stream of an idle target, for who has given his own as much as it can have under way:
    /// nobody has a seat there, this process has no bytes on their way to it, and it promises no
    /// less than half as much as the own, or nobody has measured it.
    pub(super) fn visit(&mut self) -> Option<u16> {
        let now = self.now.as_ref().filter(|_| self.placement == Placement::Measured)?;
        if jobs_at(now.target) < THREADS {
            return None;
        }
        let known = self.seat.look(&self.choices.iter().map(|one| one.target).collect::<Vec<_>>());
        let here = self.choices.iter().position(|one| one.target == now.target)?;
        let own = known[here].expected? * (known[here].others as f64 + 1.0);
        let is_idle = |i: &usize| {
            let (one, target) = (known[*i], self.choices[*i].target);
            target != now.target
                && one.others == 0
                && one.expected.is_none_or(|it| it * LEAVES_FOR >= own)
                && jobs_at(target) == 0
                && !self.rates().is_fenced(target)
        };
        let taken = |i: &usize| self.taken[usize::from(self.choices[*i].stream)];
        let idle = (0..known.len()).filter(is_idle).min_by_key(taken)?;
        let stream = self.choices[idle].stream;
        self.taken[usize::from(stream)] += 1;
        Some(stream)
    }

    /// Takes note that `length` bytes at `offset` of a segment are on their way into the page
    /// cache. Gives what of the segment is to be given to the storage then, and waited for: from,
    /// and how much.
    pub(super) fn gather(&mut self, segment: u32, offset: u64, length: u64) -> Option<(u64, u64)> {
        let end = offset + length;
        let gathered = match self.gathered.take() {
            Some((of, from, to)) if (of, to) == (segment, offset) => (of, from, end),
            // What is left of another place is as nothing.
            _ => (segment, offset, end),
        };
        if gathered.2 - gathered.1 >= PACE {
            return Some((gathered.1, gathered.2 - gathered.1));
        }
        self.gathered = Some(gathered);
        None
    }

    /// Says which targets take something, by what rates of them are known.
    pub(super) fn know_targets(&mut self, keys: &[PathBuf]) {
        let rates = self.rates();
        self.targets = keys.iter().filter_map(|key| rates.target(key)).collect();
    }

    pub(super) fn targets(&self) -> &Arc<[Target]> {
        &self.targets
    }

    /// Whether one of them is not given up.
    pub(super) fn has_open_target(&self) -> bool {
        self.rates().is_one_open(&self.targets, None)
    }

    /// The same of those but one.
    pub(super) fn has_other(&self, than: Target) -> bool {
        self.rates().is_one_open(&self.targets, Some(than))
    }

    /// Whether the target where the writer is was given up.
    pub(super) fn is_fenced_here(&self) -> bool {
        self.now.as_ref().is_some_and(|now| self.rates().is_fenced(now.target))
    }
}

/// Which of the targets: where the writer is, until that was measured; then one that nobody has
/// measured and nobody writes to. Once all were: where the writer is, if nobody shares that and
/// none is far better; else the one that promises most, and of those that promise as much the one
/// with the fewest writers, and that it has `taken` least often. What nobody has measured is taken
/// for as fast as the fastest.
fn best(known: &[Known], here: Option<usize>, taken: impl Fn(usize) -> u32) -> Option<usize> {
    let writers = |one: &Known| one.others as f64 + 1.0;
    let fastest = known.iter().filter_map(|one| Some(one.expected? * writers(one)));
    // Without any measurement it is the less the more are there.
    let fastest = fastest.reduce(f64::max).unwrap_or(1.0);
    let promise = |i: usize| known[i].expected.unwrap_or(fastest / writers(&known[i]));
    let best = (0..known.len()).map(promise).fold(0.0, f64::max);
    if let Some(here) = here {
        if known[here].expected.is_none() {
            return Some(here);
        }
        let is_new = |i: &usize| known[*i].expected.is_none() && known[*i].others == 0;
        if let Some(new) = (0..known.len()).find(is_new) {
            return Some(new);
        }
    }
    if let Some(here) = here
        && known[here].others == 0
        && promise(here) * LEAVES_FOR >= best
    {
        return Some(here);
    }
    let as_good = (0..known.len()).filter(|i| promise(*i) >= AS_GOOD * best);
    as_good.min_by_key(|i| (known[*i].others, taken(*i)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(expected: f64, others: usize) -> Known {
        Known { expected: (expected > 0.0).then_some(expected), others }
    }

    #[test]
    fn a_writer_stays_where_it_is_alone_and_well() {
        let all = [known(40.0, 0), known(41.0, 0), known(4.0, 0)];
        assert_eq!(best(&all, Some(0), |_| 9), Some(0));
        assert_eq!(best(&all, Some(2), |_| 0), Some(0));
        assert_eq!(best(&[known(25.0, 0), known(41.0, 0)], Some(0), |_| 0), Some(0));
        // Somebody has come: the other one is better, and else they take turns.
        let all = [known(20.0, 1), known(40.0, 0)];
        assert_eq!(best(&all, Some(0), |_| 0), Some(1));
        let all = [known(20.0, 1), known(20.0, 1)];
        assert_eq!(best(&all, Some(0), |i| [5, 4][i]), Some(1));
        assert_eq!(best(&all, Some(0), |i| [4, 5][i]), Some(0));
        // Sixty-four on eight went where they had been least often, all to the same one.
        let all = [known(4.4, 8), known(5.0, 7), known(4.9, 7)];
        assert_eq!(best(&all, Some(0), |i| [0, 2, 1][i]), Some(2));
        assert_eq!(best(&[], None, |_| 0), None);
    }

    #[test]
    fn what_nobody_has_measured_is_tried() {
        assert_eq!(best(&[known(0.0, 1), known(0.0, 0)], None, |_| 0), Some(1));
        assert_eq!(best(&[known(10.0, 1), known(0.0, 0)], Some(0), |_| 0), Some(1));
        // By who has measured where he is, and not by all at once.
        assert_eq!(best(&[known(40.0, 0), known(0.0, 0)], Some(0), |_| 0), Some(1));
        assert_eq!(best(&[known(40.0, 0), known(0.0, 1)], Some(0), |_| 0), Some(0));
        assert_eq!(best(&[known(0.0, 0), known(0.0, 0)], Some(0), |_| 5), Some(0));
        assert_eq!(best(&[known(40.0, 0), known(0.0, 3)], None, |_| 0), Some(0));
    }
}
