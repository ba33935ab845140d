//! Which targets a new file is written to, and how much of it to each.
//!
//! The input is what was measured of the targets and what is to be written; the answer, a
//! [`Decision`], has the numbers that led to it, so that a person can be shown them. One stream
//! goes to each chosen target, so the file's own streams never meet: their load is 1. What other
//! jobs do is in the measurements, because a target was as slow as they made it; how many they are
//! is estimated for the report.

use std::collections::HashSet;
use std::fmt;

use crate::{Error, load};

/// A relative slope of the aggregate bandwidth below which [`Policy::Cliff`] cuts: PART, -15 %. A
/// gentle decline is kept, a cliff is cut.
pub const CLIFF: f64 = -0.15;

/// The weight of the fastest target: so large that rounding others to whole numbers shows nowhere,
/// so small that its product with 2^64 bytes fits into 126 bits.
const WEIGHT_MAX: f64 = (1u64 << 62) as f64;

/// What is known of a target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measurement {
    /// Which, by the caller's numbering.
    pub target: u32,
    /// What one stream got there, with all that others did meanwhile; bytes per second.
    pub bandwidth_bytes_s: f64,
    /// Streams of other jobs that were seen there, if anybody looked.
    pub others: Option<u32>,
}

/// How targets are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The rule of PART: the fastest targets up to where the aggregate bandwidth of equal shares
    /// falls by more than 15 % with one target more ([`CLIFF`]); equal shares.
    Cliff,
    /// All targets, equal shares.
    Equal,
    /// Ours: shares proportional to bandwidth, so that all targets end together and none needs to
    /// be left out because it is slow; as many of the fastest as make the predicted time shortest.
    Proportional,
}

/// What is to be written, and what is between it and the targets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    /// Bytes: 1 and more.
    pub bytes: u64,
    /// What those that write can send together, bytes per second; None: more than targets take.
    pub send_bytes_s: Option<f64>,
    /// Seconds that one stream more costs to create. Streams are created one after the other.
    pub create_s: f64,
    /// Seconds that one stream more costs in the index: to write it, and for readers to open it.
    pub index_s: f64,
}

/// A target that was chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// What was known of it.
    pub measured: Measurement,
    /// What it gets: 1 and more.
    pub bytes: u64,
    /// How many streams others have there: as many as were seen, else as many as explain that it
    /// is slower than the fastest ([`load::others`]).
    pub others: f64,
}

/// What a decision is expected to cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// Seconds until all is written, from when the streams are there.
    pub transfer_s: f64,
    /// Seconds to create the streams.
    pub create_s: f64,
    /// Seconds for the index.
    pub index_s: f64,
    /// Streams of a chosen target on average, our one and those of others.
    pub load: f64,
}

impl Prediction {
    /// Seconds in all.
    pub fn total_s(&self) -> f64 {
        self.transfer_s + self.create_s + self.index_s
    }
}

/// Why the targets are these.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reason {
    /// [`Policy::Cliff`]: one target more would have changed the aggregate bandwidth by this.
    Cut {
        /// The relative slope, below [`CLIFF`].
        slope: f64,
    },
    /// [`Policy::Cliff`]: no slope is below the threshold.
    NoCliff {
        /// The steepest.
        slope: f64,
    },
    /// [`Policy::Equal`]: it takes all.
    All,
    /// [`Policy::Proportional`]: the predicted time is the shortest.
    Shortest {
        /// Seconds with one stream less; None if there is but one.
        one_less_s: Option<f64>,
        /// Seconds with one stream more; None if no target is left, or no byte for it.
        one_more_s: Option<f64>,
    },
}

/// What was decided, and the numbers that decided it.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// By which policy.
    pub policy: Policy,
    /// For what.
    pub work: Work,
    /// The chosen targets, the fastest first; their bytes are all that is to be written.
    pub chosen: Vec<Share>,
    /// The others, the fastest first.
    pub left_out: Vec<Measurement>,
    /// What it is expected to cost.
    pub predicted: Prediction,
    /// Why.
    pub reason: Reason,
}

impl fmt::Display for Decision {
    /// A sentence for people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (streams, all) = (self.chosen.len(), self.chosen.len() + self.left_out.len());
        write!(f, "{streams} of {all} targets, {:.3} s predicted", self.predicted.total_s())?;
        match self.reason {
            Reason::Cut { slope } => {
                write!(f, ": one more would change the bandwidth of all by {:.1} %", slope * 100.0)
            }
            Reason::NoCliff { slope } => {
                write!(
                    f,
                    ": no target more changes the bandwidth by less than {:.1} %",
                    slope * 100.0
                )
            }
            Reason::All => f.write_str(": all, in equal shares"),
            Reason::Shortest { one_less_s, one_more_s } => {
                if let Some(seconds) = one_less_s {
                    write!(f, "; one less: {seconds:.3} s")?;
                }
                match one_more_s {
                    Some(seconds) => write!(f, "; one more: {seconds:.3} s"),
                    None => f.write_str("; no other is left"),
                }
            }
        }
    }
}

/// Chooses targets and shares. The order of the measurements has no effect: the faster target goes
/// first, and of equally fast ones that with the lower number.
///
/// Shares are whole bytes and add up to all. A faster target never gets less than a slower one. A
/// target that would get no byte is left out. Costs a sort.
///
/// # Errors
/// Says what is wrong with the input: no target, one with a bandwidth that is none or that was
/// measured twice, nothing to write, a negative cost.
pub fn choose(
    policy: Policy,
    measurements: &[Measurement],
    work: &Work,
) -> Result<Decision, Error> {
    check(measurements, work)?;
    let mut sorted = measurements.to_vec();
    sorted.sort_by(|a, b| {
        b.bandwidth_bytes_s.total_cmp(&a.bandwidth_bytes_s).then(a.target.cmp(&b.target))
    });
    // No stream without a byte.
    let most = sorted.len().min(usize::try_from(work.bytes).unwrap_or(usize::MAX));
    let bandwidths: Vec<f64> = sorted[..most].iter().map(|one| one.bandwidth_bytes_s).collect();
    let (count, reason) = match policy {
        Policy::Cliff => cliff(&bandwidths),
        Policy::Equal => (most, Reason::All),
        Policy::Proportional => shortest(&bandwidths, work),
    };
    let fastest = bandwidths[0];
    let weights: Vec<u64> = bandwidths[..count]
        .iter()
        .map(|bandwidth| match policy {
            Policy::Cliff | Policy::Equal => 1,
            Policy::Proportional => (bandwidth / fastest * WEIGHT_MAX) as u64,
        })
        .collect();
    let chosen: Vec<Share> = apportion(work.bytes, &weights)
        .into_iter()
        .zip(&sorted)
        .take_while(|(bytes, _)| *bytes > 0)
        .map(|(bytes, &measured)| Share { measured, bytes, others: others(&measured, fastest) })
        .collect();
    let left_out = sorted.split_off(chosen.len());
    let predicted = predict(policy, &chosen, work);
    Ok(Decision { policy, work: *work, chosen, left_out, predicted, reason })
}

fn check(measurements: &[Measurement], work: &Work) -> Result<(), Error> {
    if measurements.is_empty() {
        return Err(Error::NoTargets);
    }
    let mut seen = HashSet::with_capacity(measurements.len());
    for one in measurements {
        let (target, bytes_s) = (one.target, one.bandwidth_bytes_s);
        if !(bytes_s > 0.0 && bytes_s.is_finite()) {
            return Err(Error::Bandwidth { target, bytes_s });
        }
        if !seen.insert(target) {
            return Err(Error::Twice { target });
        }
    }
    if work.bytes == 0 {
        return Err(Error::NoBytes);
    }
    if let Some(bytes_s) = work.send_bytes_s
        && (bytes_s.is_nan() || bytes_s <= 0.0)
    {
        return Err(Error::Between { what: "what sends", bytes_s });
    }
    for (what, seconds) in [("a stream", work.create_s), ("an index", work.index_s)] {
        if !(seconds >= 0.0 && seconds.is_finite()) {
            return Err(Error::Cost { what, seconds });
        }
    }
    Ok(())
}

/// The rule of PART: the aggregate bandwidth of the `i` fastest with equal shares is `i` times that
/// of the slowest of them.
fn cliff(bandwidths: &[f64]) -> (usize, Reason) {
    let mut steepest = 0.0f64;
    for i in 1..bandwidths.len() {
        let (before, after) = (i as f64 * bandwidths[i - 1], (i + 1) as f64 * bandwidths[i]);
        let slope = (after - before) / before;
        if slope < CLIFF {
            return (i, Reason::Cut { slope });
        }
        steepest = steepest.min(slope);
    }
    (bandwidths.len(), Reason::NoCliff { slope: steepest })
}

/// How many of the fastest make the predicted time shortest; the fewest of those that do.
fn shortest(bandwidths: &[f64], work: &Work) -> (usize, Reason) {
    let mut together = 0.0;
    let times: Vec<f64> = (1..)
        .zip(bandwidths)
        .map(|(streams, bandwidth)| {
            together += bandwidth;
            let transfer = work.bytes as f64 / sent(together, work);
            transfer + f64::from(streams) * (work.create_s + work.index_s)
        })
        .collect();
    let mut best = 0;
    for (i, time) in times.iter().enumerate() {
        if *time < times[best] {
            best = i;
        }
    }
    let one_less_s = best.checked_sub(1).map(|i| times[i]);
    (best + 1, Reason::Shortest { one_less_s, one_more_s: times.get(best + 1).copied() })
}

/// What arrives of what targets would take.
fn sent(targets_bytes_s: f64, work: &Work) -> f64 {
    work.send_bytes_s.map_or(targets_bytes_s, |most| most.min(targets_bytes_s))
}

/// Whole parts in proportion to the weights, by largest remainder; the first of equal remainders
/// gets more. Weights fall, and the first is not 0.
fn apportion(bytes: u64, weights: &[u64]) -> Vec<u64> {
    let sum: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
    let product = |weight: u64| u128::from(bytes) * u128::from(weight);
    let mut parts: Vec<u64> =
        weights.iter().map(|weight| (product(*weight) / sum) as u64).collect();
    let missing = bytes - parts.iter().sum::<u64>();
    let mut by_remainder: Vec<usize> = (0..weights.len()).collect();
    by_remainder.sort_by_key(|i| (std::cmp::Reverse(product(weights[*i]) % sum), *i));
    // Fewer are missing than there are parts.
    by_remainder.into_iter().zip(0..missing).for_each(|(i, _)| parts[i] += 1);
    parts
}

fn others(measured: &Measurement, fastest: f64) -> f64 {
    measured.others.map_or_else(|| load::others(measured.bandwidth_bytes_s / fastest), f64::from)
}

fn predict(policy: Policy, chosen: &[Share], work: &Work) -> Prediction {
    let streams = chosen.len() as f64;
    let bandwidth = |share: &Share| share.measured.bandwidth_bytes_s;
    let together = match policy {
        // All wait for the slowest.
        Policy::Cliff | Policy::Equal => {
            streams * chosen.iter().map(bandwidth).fold(f64::INFINITY, f64::min)
        }
        Policy::Proportional => chosen.iter().map(bandwidth).sum(),
    };
    Prediction {
        transfer_s: work.bytes as f64 / sent(together, work),
        create_s: streams * work.create_s,
        index_s: streams * work.index_s,
        load: 1.0 + chosen.iter().map(|share| share.others).sum::<f64>() / streams,
    }
}
