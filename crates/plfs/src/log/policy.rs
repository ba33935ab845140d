//! Between which of its targets a writer chooses, by the rules of plfs-placement
//! (docs/decisions/0028). Given the same measurements they say the same, in every process.

use plfs_format::layout::Placement;
use plfs_placement::choose::{Measurement, Policy, Work, choose};

use crate::store::rates::Known;

/// What one stream more costs to create: 1.1 ms, as on CephFS (docs/decisions/0025).
const CREATE_S: f64 = 1.1e-3;
/// What is still to come is taken for as much as there was, and for this much at least. 64 MiB: a
/// second of a disk; with less, who begins would take one target for enough, and all the same one.
const FEW_BYTES: u64 = 64 << 20;

/// The targets that a writer should choose between which has got regions of so many bytes: places
/// in `known`, ascending; none only if there is none at all. All, as long as one of them was not
/// measured: nobody can say then what it is worth.
pub(super) fn candidates(placement: Placement, known: &[Known], bytes: u64) -> Vec<usize> {
    let all = || (0..known.len()).collect();
    let policy = match placement {
        Placement::Equal => return all(),
        Placement::Cliff => Policy::Cliff,
        Placement::Measured => Policy::Proportional,
    };
    let measured: Option<Vec<Measurement>> = (0..)
        .zip(known)
        .map(|(target, one)| {
            Some(Measurement {
                target,
                bandwidth_bytes_s: one.expected?,
                others: u32::try_from(one.others).ok(),
            })
        })
        .collect();
    let Some(measured) = measured else { return all() };
    // All who are there write as much as this one.
    let writers = 1 + known.iter().map(|one| one.others as u64).sum::<u64>();
    let work = Work {
        bytes: bytes.max(FEW_BYTES).saturating_mul(writers),
        send_bytes_s: None,
        create_s: CREATE_S,
        index_s: 0.0,
    };
    let Ok(decision) = choose(policy, &measured, &work) else { return all() };
    let mut chosen: Vec<usize> =
        decision.chosen.iter().map(|share| share.measured.target as usize).collect();
    chosen.sort_unstable();
    chosen
}

/// The first of those that have got least.
pub(super) fn least_given(may: &[usize], given: impl Fn(usize) -> u64) -> Option<usize> {
    may.iter().copied().min_by_key(|i| given(*i))
}

/// Which of the targets of a backend segment `turn` of log set `set` is put on, given their rates,
/// as far as they are known: streams of a log set on different ones, as long as there are as many,
/// and log sets on others. What is known to be half as fast as another comes after all that may be
/// as fast as that, and so on; equal shares know no such classes.
pub(super) fn spread(placement: Placement, rates: &[Option<f64>], set: u32, turn: usize) -> usize {
    let best = rates.iter().flatten().copied().fold(0.0, f64::max);
    let class = |i: &usize| match (placement, rates[*i]) {
        (Placement::Equal, _) | (_, None) => 0,
        (_, Some(rate)) => (best / rate.max(1.0)).log2().max(0.0) as u32,
    };
    // Numbers of log sets are random. This many apart, streams of different ones seldom meet.
    let first = set as usize % rates.len().max(1);
    let mut order: Vec<usize> = (0..rates.len()).map(|i| (first + i) % rates.len()).collect();
    order.sort_by_key(class);
    order.get(turn % rates.len().max(1)).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_of_a_backend_are_on_different_targets_the_fast_ones_first() {
        let mut rates = vec![None; 12];
        let places = |placement, rates: &[Option<f64>], set| -> Vec<usize> {
            (0..8).map(|turn| spread(placement, rates, set, turn)).collect()
        };
        assert_eq!(places(Placement::Measured, &rates, 7), [7, 8, 9, 10, 11, 0, 1, 2]);
        (rates[8], rates[0], rates[3]) = (Some(4e7), Some(4e6), Some(3.9e7));
        assert_eq!(places(Placement::Measured, &rates, 7), [7, 8, 9, 10, 11, 1, 2, 3]);
        assert_eq!(places(Placement::Equal, &rates, 7), [7, 8, 9, 10, 11, 0, 1, 2]);
        // More streams than targets.
        assert_eq!(places(Placement::Measured, &[None, None, None], 1), [1, 2, 0, 1, 2, 0, 1, 2]);
        assert_eq!(spread(Placement::Measured, &[], 1, 1), 0);
    }

    fn known(mb_s: &[f64]) -> Vec<Known> {
        let one = |mb_s: &f64| Known { expected: (*mb_s > 0.0).then_some(mb_s * 1e6), others: 0 };
        mb_s.iter().map(one).collect()
    }

    /// Where a writer's regions go, of 1 MiB each, given what was measured.
    fn shares(placement: Placement, known: &[Known], regions: usize) -> Vec<u64> {
        let mut given = vec![0; known.len()];
        for _ in 0..regions {
            let may = candidates(placement, known, given.iter().sum());
            let chosen = least_given(&may, |i| given[i]).unwrap();
            given[chosen] += 1 << 20;
        }
        given
    }

    #[test]
    fn equal_shares_are_equal() {
        let given = shares(Placement::Equal, &known(&[40.0, 4.0, 0.0, 400.0]), 400);
        assert_eq!(given, [100 << 20; 4]);
    }

    /// The paper's example, as a writer sees it: 144 of 156 targets get as much each, and the
    /// twelve stragglers nothing.
    #[test]
    fn the_cliff_is_where_the_paper_has_it() {
        let healthy = (0..144).map(|i| 200.0 + 200.0 * f64::from(i) / 143.0);
        let slow = (0..12).map(|i| 30.0 + f64::from(i) * 1.5);
        let mut all: Vec<f64> = healthy.chain(slow).collect();
        all.rotate_left(70);
        let given = shares(Placement::Cliff, &known(&all), 1440);
        for (mb_s, given) in all.iter().zip(given) {
            assert_eq!(given, if *mb_s < 50.0 { 0 } else { 10 << 20 }, "{mb_s}");
        }
        // As long as one was not measured nobody is left out.
        all[3] = 0.0;
        assert_eq!(candidates(Placement::Cliff, &known(&all), 0).len(), 156);
    }

    #[test]
    fn slow_targets_are_worth_a_stream_and_useless_ones_are_not() {
        let may = |all: &[f64], bytes| candidates(Placement::Measured, &known(all), bytes);
        assert_eq!(may(&[40.0, 4.0, 40.0], 0), [0, 1, 2]);
        // 1.1 ms for what saves 10 us of 34 ms.
        assert_eq!(may(&[1000.0, 0.2, 1000.0], 0), [0, 2]);
        assert_eq!(may(&[1000.0, 0.2, 1000.0], 1 << 40), [0, 1, 2]);
        assert_eq!(may(&[], 0), [0; 0]);
    }

    /// No clock, no chance, no process: the same measurements give the same choice.
    #[test]
    fn the_same_measurements_give_the_same_choice() {
        let all: Vec<f64> = (0..64).map(|i| f64::from(i * 37 % 64 + 1) * 3.0).collect();
        for placement in Placement::ALL {
            let first = shares(placement, &known(&all), 300);
            for _ in 0..3 {
                assert_eq!(shares(placement, &known(&all), 300), first, "{placement:?}");
            }
            // Nor does it matter in which order they come: each target gets what it got.
            let mut turned = all.clone();
            turned.rotate_left(11);
            let may = candidates(placement, &known(&all), 5 << 30);
            let mut other: Vec<usize> = candidates(placement, &known(&turned), 5 << 30)
                .into_iter()
                .map(|i| (i + 11) % all.len())
                .collect();
            other.sort_unstable();
            assert_eq!(may, other, "{placement:?}");
        }
    }
}
