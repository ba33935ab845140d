//! Choosing targets: the rule of the paper on the shape of its example, what holds for all
//! measurements, and what is refused.

use plfs_placement::choose::{CLIFF, Decision, Measurement, Policy, Reason, Work, choose};
use proptest::prelude::*;

const MB: f64 = 1e6;
const POLICIES: [Policy; 3] = [Policy::Cliff, Policy::Equal, Policy::Proportional];
const WORK: Work = Work { bytes: 1 << 40, send_bytes_s: None, create_s: 0.0, index_s: 0.0 };

fn measured(bandwidths: &[f64]) -> Vec<Measurement> {
    (0..)
        .zip(bandwidths)
        .map(|(target, &bandwidth_bytes_s)| Measurement { target, bandwidth_bytes_s, others: None })
        .collect()
}

fn chosen(policy: Policy, bandwidths: &[f64]) -> Decision {
    choose(policy, &measured(bandwidths), &WORK).unwrap()
}

fn gb_s(decision: &Decision) -> f64 {
    decision.work.bytes as f64 / decision.predicted.transfer_s / 1e9
}

/// 156 targets as in the paper: 144 around 300 MB/s, from 200 to 400, and 12 stragglers below 50.
fn example() -> Vec<f64> {
    let healthy = (0..144).map(|i| (200.0 + 200.0 * f64::from(i) / 143.0) * MB);
    let slow = (0..12).map(|i| (30.0 + f64::from(i) * 1.5) * MB);
    // The slow ones lie among the others.
    let mut all: Vec<f64> = healthy.chain(slow).collect();
    all.rotate_left(70);
    all
}

#[test]
fn the_rule_keeps_healthy_targets_and_cuts_stragglers() {
    let decision = chosen(Policy::Cliff, &example());
    assert_eq!((decision.chosen.len(), decision.left_out.len()), (144, 12));
    assert!(decision.left_out.iter().all(|one| one.bandwidth_bytes_s < 50.0 * MB));
    // From 144 x 200 to 145 x 46.5.
    let Reason::Cut { slope } = decision.reason else { panic!("{decision:?}") };
    assert!((slope - (145.0 * 46.5 / (144.0 * 200.0) - 1.0)).abs() < 1e-9, "{slope}");
    assert!((gb_s(&decision) - 28.8).abs() < 0.01);
    assert_eq!(
        decision.to_string(),
        "144 of 156 targets, 38.177 s predicted: one more would change the bandwidth of all by \
         -76.6 %"
    );
}

#[test]
fn policies_on_the_example() {
    // Equal shares wait for the slowest: 156 x 30.
    let equal = chosen(Policy::Equal, &example());
    assert_eq!((equal.chosen.len(), equal.reason), (156, Reason::All));
    assert!((gb_s(&equal) - 4.68).abs() < 0.01);
    // 144 x 300 and 12 x 38.25: no target needs to be left out.
    let ours = chosen(Policy::Proportional, &example());
    assert_eq!(ours.chosen.len(), 156);
    assert!((gb_s(&ours) - 43.659).abs() < 0.001);
}

/// If all are alike the rule keeps all, and a gentle decline as well.
#[test]
fn the_rule_cuts_cliffs_only() {
    let alike = chosen(Policy::Cliff, &[100.0 * MB; 40]);
    assert_eq!((alike.chosen.len(), alike.reason), (40, Reason::NoCliff { slope: 0.0 }));
    let gentle: Vec<f64> = (0..40).map(|i| 100.0 * MB * 0.9f64.powi(i)).collect();
    assert_eq!(chosen(Policy::Cliff, &gentle).chosen.len(), 40);
    // From 4 x 100 to 5 x 68 is -15 %, which is kept; to 5 x 67.9 it is less.
    for (last, kept) in [(68.0, 5), (67.9, 4)] {
        let decision = chosen(Policy::Cliff, &[100.0, 100.0, 100.0, 100.0, last]);
        assert_eq!(decision.chosen.len(), kept, "{:?} {CLIFF}", decision.reason);
    }
    // A cliff hides what is behind it: the walk ends there.
    assert_eq!(chosen(Policy::Cliff, &[100.0, 10.0, 10.0, 10.0]).chosen.len(), 1);
}

#[test]
fn as_many_streams_as_pay() {
    let bandwidths = [100.0 * MB; 16];
    let decide = |work: Work| choose(Policy::Proportional, &measured(&bandwidths), &work).unwrap();
    let work = Work { bytes: 1_000_000_000, ..WORK };
    assert_eq!(decide(work).chosen.len(), 16);
    // 10 s / k + 0.4 s k is least at 5.
    let decision = decide(Work { create_s: 0.3, index_s: 0.1, ..work });
    assert_eq!(decision.chosen.len(), 5);
    assert!((decision.predicted.total_s() - 4.0).abs() < 1e-9);
    let Reason::Shortest { one_less_s: Some(less), one_more_s: Some(more) } = decision.reason
    else {
        panic!("{decision:?}")
    };
    assert!((less - 4.1).abs() < 1e-9 && (more - (10.0 / 6.0 + 2.4)).abs() < 1e-9);
    assert_eq!(
        decision.to_string(),
        "5 of 16 targets, 4.000 s predicted; one less: 4.100 s; one more: 4.067 s"
    );
    // Who sends 350 MB/s needs no fifth.
    assert_eq!(decide(Work { send_bytes_s: Some(350.0 * MB), ..work }).chosen.len(), 4);
    // No stream without a byte.
    assert_eq!(decide(Work { bytes: 3, ..work }).chosen.len(), 3);
}

/// The fastest target counts as alone; one with a third of its bandwidth as with nearly two others.
#[test]
fn others_are_seen_or_estimated() {
    let mut all = measured(&[300.0 * MB, 100.0 * MB, 300.0 * MB]);
    all[2].others = Some(4);
    let decision = choose(Policy::Proportional, &all, &WORK).unwrap();
    let others: Vec<(u32, f64)> =
        decision.chosen.iter().map(|share| (share.measured.target, share.others)).collect();
    assert_eq!((others[0], others[1]), ((0, 0.0), (2, 4.0)));
    assert!((others[2].1 - 1.85).abs() < 0.01, "{others:?}");
    assert!((decision.predicted.load - (3.0 + 4.0 + others[2].1) / 3.0).abs() < 1e-9);
}

#[test]
fn what_is_wrong_is_said() {
    let good = measured(&[MB, MB]);
    let with = |bandwidth| measured(&[MB, bandwidth]);
    let mut twice = good.clone();
    twice[1].target = 0;
    for (measurements, work, text) in [
        (Vec::new(), WORK, "there is no target"),
        (with(0.0), WORK, "target 1 has a bandwidth of 0 bytes a second"),
        (with(-5.0), WORK, "target 1 has a bandwidth of -5 bytes a second"),
        (with(f64::NAN), WORK, "target 1 has a bandwidth of NaN bytes a second"),
        (with(f64::INFINITY), WORK, "target 1 has a bandwidth of inf bytes a second"),
        (twice, WORK, "target 0 was measured twice"),
        (good.clone(), Work { bytes: 0, ..WORK }, "there is nothing to write: zero bytes"),
        (
            good.clone(),
            Work { send_bytes_s: Some(0.0), ..WORK },
            "what sends cannot have a bandwidth of 0 bytes a second",
        ),
        (good.clone(), Work { create_s: f64::NAN, ..WORK }, "a stream cannot cost NaN seconds"),
        (good, Work { index_s: -1.0, ..WORK }, "an index cannot cost -1 seconds"),
    ] {
        for policy in POLICIES {
            let error = choose(policy, &measurements, &work).unwrap_err();
            assert_eq!(error.to_string(), text);
        }
    }
}

/// Any bandwidths, some of them equal, over six orders of magnitude.
fn bandwidths() -> impl Strategy<Value = Vec<f64>> {
    prop::collection::vec(prop_oneof![1e3..1e9f64, Just(3e8), 2e8..4e8f64], 1..200)
}

/// From a few bytes to 16 EiB.
fn bytes() -> impl Strategy<Value = u64> {
    prop_oneof![1..1000u64, 1..u64::MAX, Just(u64::MAX)]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Shares are all that is to be written, in the order of bandwidths; nothing is lost or twice;
    /// the order of the measurements has no effect.
    #[test]
    fn shares_are_the_whole(
        (bandwidths, bytes) in (bandwidths(), bytes()),
        send in prop::option::of(1e3..1e12f64),
        (create_s, index_s) in (0.0..0.1f64, 0.0..0.1f64),
        (policy, turn) in (prop::sample::select(&POLICIES[..]), any::<usize>()),
    ) {
        let mut all = measured(&bandwidths);
        let work = Work { bytes, send_bytes_s: send, create_s, index_s };
        let decision = choose(policy, &all, &work).unwrap();
        let shares = &decision.chosen;
        prop_assert_eq!(shares.iter().map(|s| u128::from(s.bytes)).sum::<u128>(), bytes.into());
        prop_assert!(shares.iter().all(|share| share.bytes > 0 && share.others >= 0.0));
        for pair in shares.windows(2) {
            prop_assert!(pair[0].measured.bandwidth_bytes_s >= pair[1].measured.bandwidth_bytes_s);
            prop_assert!(pair[0].bytes >= pair[1].bytes, "{pair:?}");
        }
        let mut seen: Vec<u32> = shares.iter().map(|share| share.measured.target).collect();
        seen.extend(decision.left_out.iter().map(|one| one.target));
        seen.sort_unstable();
        prop_assert!(seen.into_iter().eq(0..bandwidths.len() as u32));
        prop_assert!(decision.predicted.total_s() > 0.0 && decision.predicted.load >= 1.0);
        let turn = turn % all.len();
        all.rotate_left(turn);
        prop_assert_eq!(choose(policy, &all, &work).unwrap(), decision);
    }

    /// Proportional shares are predicted to be as fast as any other policy, if a stream is free;
    /// and a target that is faster makes no job slower.
    #[test]
    fn proportional_shares_are_the_fastest(
        (bandwidths, bytes) in (bandwidths(), 1_000_000..1_000_000_000_000u64),
        (which, factor) in (any::<prop::sample::Index>(), 1.0..10.0f64),
    ) {
        let work = Work { bytes, ..WORK };
        let time = |policy, bandwidths: &[f64]| {
            choose(policy, &measured(bandwidths), &work).unwrap().predicted.total_s()
        };
        let ours = time(Policy::Proportional, &bandwidths);
        for policy in POLICIES {
            prop_assert!(ours <= time(policy, &bandwidths) * (1.0 + 1e-9), "{policy:?}");
        }
        let mut faster = bandwidths.clone();
        faster[which.index(bandwidths.len())] *= factor;
        prop_assert!(time(Policy::Proportional, &faster) <= ours * (1.0 + 1e-9));
    }
}
