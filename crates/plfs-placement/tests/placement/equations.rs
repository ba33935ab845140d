//! The tables of the paper to the last printed digit, and what holds for all jobs.

use plfs_placement::Error;
use plfs_placement::equations::{self, Contention, alike, log_per_rank};
use proptest::prelude::*;

fn printed(rows: &[Contention]) -> (Vec<String>, Vec<String>) {
    rows.iter().map(|row| (format!("{:.2}", row.in_use), format!("{:.2}", row.load))).unzip()
}

/// The paper's own table says 2.78 for eight jobs of 160, and the equations say 1280 / 461.27 =
/// 2.7749.
#[test]
fn tables_of_contention() {
    for (request, in_use, load) in [
        (
            160,
            "160.00 266.67 337.78 385.19 416.79 437.86 451.91 461.27 467.51 471.68",
            "1.00 1.20 1.42 1.66 1.92 2.19 2.48 2.77 3.08 3.39",
        ),
        (
            64,
            "64.00 119.47 167.54 209.20 245.31 276.60 303.72 327.22 347.59 365.25",
            "1.00 1.07 1.15 1.22 1.30 1.39 1.48 1.56 1.66 1.75",
        ),
    ] {
        let rows = equations::jobs(480, &[request; 10]).unwrap();
        let (used, loads) = printed(&rows);
        assert_eq!((used.join(" "), loads.join(" ")), (in_use.into(), load.into()));
        for (jobs, row) in (1..).zip(&rows) {
            assert_eq!((row.jobs, row.requested), (jobs, u64::from(request * jobs)));
            let closed = alike(480, request, jobs).unwrap();
            assert!((closed.in_use - row.in_use).abs() < 1e-9, "{closed:?} {row:?}");
        }
    }
}

#[test]
fn loads_of_a_log_per_rank() {
    for (ranks, load) in [(512, "2.42"), (688, "3.04"), (2048, "8.53"), (4096, "17.07")] {
        assert_eq!(format!("{:.2}", log_per_rank(480, ranks).unwrap().load), load);
    }
    // As printed, with one digit and none.
    assert_eq!(format!("{:.1}", log_per_rank(480, 512).unwrap().load), "2.4");
    assert_eq!(format!("{:.0}", log_per_rank(480, 688).unwrap().load), "3");
}

/// Jobs of 160, 64 and 480 targets: computed by hand.
#[test]
fn jobs_of_different_sizes() {
    let rows = equations::jobs(480, &[160, 64, 480]).unwrap();
    assert_eq!(printed(&rows).0, ["160.00", "202.67", "480.00"]);
    assert_eq!((rows[2].requested, format!("{:.3}", rows[2].load).as_str()), (704, "1.467"));
}

#[test]
fn requests_that_make_no_sense_are_refused() {
    for (targets, requests, error) in [
        (0, &[1][..], Error::NoTargets),
        (4, &[], Error::NoJobs),
        (4, &[4, 0], Error::Request { request: 0, targets: 4 }),
        (4, &[4, 5], Error::Request { request: 5, targets: 4 }),
    ] {
        assert_eq!(equations::jobs(targets, requests), Err(error));
    }
    assert_eq!(alike(4, 4, 0), Err(Error::NoJobs));
    assert_eq!(log_per_rank(1, 4), Err(Error::Request { request: 2, targets: 1 }));
    assert_eq!(log_per_rank(1, 4).unwrap_err().to_string(), "a job cannot ask for 2 of 1 targets");
}

fn holds(row: &Contention, targets: u32) {
    assert!(row.load >= 1.0 && row.in_use > 0.0, "{row:?}");
    assert!(row.in_use <= f64::from(targets) && row.in_use <= row.requested as f64, "{row:?}");
    assert_eq!(row.load, row.requested as f64 / row.in_use);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Nobody uses more than there is; each job more uses more and makes more load; the order of
    /// jobs changes nothing at the end.
    #[test]
    fn jobs_of_any_sizes(
        targets in 1..=100_000u32,
        parts in prop::collection::vec(0.0..1.0f64, 1..60),
    ) {
        let request = |part: &f64| 1 + (part * f64::from(targets - 1)) as u32;
        let mut requests: Vec<u32> = parts.iter().map(request).collect();
        let rows = equations::jobs(targets, &requests).unwrap();
        rows.iter().for_each(|row| holds(row, targets));
        for pair in rows.windows(2) {
            prop_assert!(pair[1].in_use >= pair[0].in_use * (1.0 - 1e-12), "{pair:?}");
        }
        requests.reverse();
        let (one, other) = (rows[rows.len() - 1], equations::jobs(targets, &requests).unwrap());
        let other = other[other.len() - 1];
        prop_assert!((one.in_use / other.in_use - 1.0).abs() < 1e-9, "{one:?} {other:?}");
        prop_assert_eq!(one.requested, other.requested);
    }

    /// Equation (2) is (1) for jobs that are alike, and load grows with them.
    #[test]
    fn jobs_that_are_alike(targets in 1..=10_000u32, part in 0.0..1.0f64, jobs in 1..=100u32) {
        let request = 1 + (part * f64::from(targets - 1)) as u32;
        let one_by_one = equations::jobs(targets, &vec![request; jobs as usize]).unwrap();
        for (n, row) in (1..).zip(&one_by_one) {
            let at_once = alike(targets, request, n).unwrap();
            holds(&at_once, targets);
            prop_assert!((at_once.in_use / row.in_use - 1.0).abs() < 1e-9, "{at_once:?} {row:?}");
        }
        for pair in one_by_one.windows(2) {
            prop_assert!(pair[1].load >= pair[0].load * (1.0 - 1e-12), "{pair:?}");
        }
    }
}
