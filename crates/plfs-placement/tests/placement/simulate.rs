//! The simulation: the published points within a bound, and what has to hold at any size.

use std::time::Instant;

use plfs_placement::Error;
use plfs_placement::equations::log_per_rank;
use plfs_placement::published::{self, BYTES_A_RANK, MB, TABLE, TARGETS};
use plfs_placement::simulate::{Job, Limit, Outcome, Strategy, System, simulate};

const ALL: [Strategy; 5] = [
    Strategy::SharedDefault,
    Strategy::SharedTuned,
    Strategy::FilePerRank,
    Strategy::LogPerRank,
    Strategy::Streams,
];

/// The published file system.
fn run(targets: u32, ranks: u32, strategy: Strategy) -> Outcome {
    let system = System { targets, stragglers: 0, network_bytes_s: None };
    simulate(&system, &Job { ranks, bytes_a_rank: BYTES_A_RANK }, strategy).unwrap()
}

fn mb_s(ranks: u32, strategy: Strategy) -> f64 {
    run(TARGETS, ranks, strategy).bytes_s / MB as f64
}

#[test]
fn published_points_are_reproduced() {
    let mut points = 0;
    for ranks in TABLE.iter().map(|line| line.ranks) {
        for strategy in ALL {
            let Some(theirs) = published::mb_s(strategy, ranks) else { continue };
            let ours = mb_s(ranks, strategy);
            let error = ours / theirs - 1.0;
            println!("{ranks:5} {strategy:?}: {ours:.0}, published {theirs}: {error:+.3}");
            assert!(error.abs() < 0.23, "{ranks} {strategy:?} {error}");
            points += 1;
        }
    }
    assert_eq!(points, 19);
}

/// The peak of a log a rank near 512 ranks, and less than a third of it at 4,096.
#[test]
fn a_log_per_rank_collapses() {
    let at = |ranks| mb_s(ranks, Strategy::LogPerRank);
    let peak =
        [16, 32, 64, 128, 256, 512, 1024, 2048, 4096].map(at).into_iter().fold(0.0, f64::max);
    assert_eq!(peak, at(512));
    assert!(at(4096) < peak / 3.0);
    let half_way = [384, 640, 768].map(at);
    assert!(half_way.iter().all(|mb_s| *mb_s > 0.8 * peak && *mb_s < 1.1 * peak), "{half_way:?}");
    assert!(run(TARGETS, 4096, Strategy::LogPerRank).limit == Limit::Targets);
}

/// Ours is not slower than a tuned shared file, however many ranks, on few targets and on many.
#[test]
fn streams_hold_against_a_tuned_file() {
    for targets in [1, 2, 8, 160, 480, 10_000] {
        // Many targets take longer to compute.
        let step = if targets > 1000 { 4 } else { 1 };
        for ranks in (0..=20).step_by(step).map(|power| 1 << power).chain([3, 33, 688]) {
            let (ours, tuned) = (
                run(targets, ranks, Strategy::Streams),
                run(targets, ranks, Strategy::SharedTuned),
            );
            assert!(
                ours.bytes_s >= 0.9 * tuned.bytes_s,
                "{ranks} ranks on {targets}: {ours:?} {tuned:?}"
            );
            assert!(ours.load_max == 1.0 && ours.streams <= targets.into());
        }
    }
}

/// The mean load of draws is that of the equations, and the worst target has more.
#[test]
fn draws_agree_with_the_equations() {
    for ranks in [16, 512, 4096] {
        let drawn = run(480, ranks, Strategy::LogPerRank);
        let expected = log_per_rank(480, ranks).unwrap().load;
        assert!((drawn.load / expected - 1.0).abs() < 0.02, "{drawn:?} {expected}");
        assert!(drawn.load_max > expected);
    }
    // The worst of 480 targets had 35 of 8,192 streams.
    assert!((28.0..36.0).contains(&run(480, 4096, Strategy::LogPerRank).load_max));
}

/// Equal shares wait for the slowest: 12 slow ones of 156 cost a shared file ten times, streams
/// next to nothing.
#[test]
fn stragglers_cost_streams_little() {
    let job = Job { ranks: 8192, bytes_a_rank: BYTES_A_RANK };
    let with = |stragglers, strategy| {
        let system = System { targets: 156, stragglers, network_bytes_s: None };
        simulate(&system, &job, strategy).unwrap().bytes_s
    };
    assert!(with(12, Strategy::SharedTuned) < 0.13 * with(0, Strategy::SharedTuned));
    assert!(with(12, Strategy::Streams) > 0.92 * with(0, Strategy::Streams));
}

#[test]
fn a_network_limits_all() {
    let job = Job { ranks: 4096, bytes_a_rank: BYTES_A_RANK };
    let limit = 10_000.0 * MB as f64;
    let system = System { targets: 480, stragglers: 0, network_bytes_s: Some(limit) };
    for strategy in [Strategy::SharedTuned, Strategy::Streams] {
        let outcome = simulate(&system, &job, strategy).unwrap();
        assert_eq!(outcome.limit, Limit::Network);
        assert!(outcome.bytes_s <= limit && outcome.bytes_s > 0.97 * limit, "{outcome:?}");
    }
}

#[test]
fn jobs_that_make_no_sense_are_refused() {
    let system = System { targets: 4, stragglers: 0, network_bytes_s: None };
    let job = Job { ranks: 4, bytes_a_rank: 4 };
    for (system, job, error) in [
        (System { targets: 0, ..system }, job, Error::NoTargets),
        (System { stragglers: 5, ..system }, job, Error::Stragglers { stragglers: 5, targets: 4 }),
        (
            System { network_bytes_s: Some(-1.0), ..system },
            job,
            Error::Between { what: "the network", bytes_s: -1.0 },
        ),
        (system, Job { ranks: 0, ..job }, Error::NoJobs),
        (system, Job { bytes_a_rank: 0, ..job }, Error::NoBytes),
        (
            system,
            Job { bytes_a_rank: u64::MAX, ..job },
            Error::TooManyBytes { ranks: 4, bytes_a_rank: u64::MAX },
        ),
    ] {
        assert_eq!(simulate(&system, &job, Strategy::Streams), Err(error));
    }
}

/// The largest that is asked for, in seconds.
#[test]
fn a_million_ranks_take_seconds() {
    let start = Instant::now();
    for strategy in ALL {
        let outcome = run(10_000, 1 << 20, strategy);
        assert!(outcome.seconds.is_finite() && outcome.bytes_s > 0.0, "{outcome:?}");
        assert_eq!(outcome, run(10_000, 1 << 20, strategy));
    }
    assert!(start.elapsed().as_secs() < 10, "{:?}", start.elapsed());
}
