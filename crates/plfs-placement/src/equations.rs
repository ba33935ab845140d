//! The equations (1) to (6) of CONT: what load jobs make that take targets at random.
//!
//! Of `D` targets each job asks for some, which the file system chooses at random without looking
//! at what others use. So some targets have several jobs and others none, and a target with two
//! jobs gives each half. *In use* is how many targets have at least one job, the *load* how many
//! jobs a target in use has on average.
//!
//! These are expected values, not what one draw gives. They say nothing of the worst target, which
//! a parallel job waits for: [`crate::simulate`] does.

use crate::Error;

/// Targets over which a log of the first PLFS was striped, and any file that nobody tunes: CONT,
/// equations (5) and (6).
pub const STRIPES: u32 = 2;

/// What jobs do to the targets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Contention {
    /// Jobs that write at once: 1 or more.
    pub jobs: u32,
    /// Targets that have at least one of them, on average: from 1 to all.
    pub in_use: f64,
    /// Targets that were asked for, one counted as often as it was: equation (3).
    pub requested: u64,
    /// Jobs of a target in use, on average, 1 or more: equation (4).
    pub load: f64,
}

impl Contention {
    /// Equations (3) and (4).
    fn new(jobs: u32, in_use: f64, requested: u64) -> Contention {
        // Jobs use no more than they ask for, and rounding does not either.
        let in_use = in_use.min(requested as f64);
        Contention { jobs, in_use, requested, load: requested as f64 / in_use }
    }
}

/// After the first job, after the second and so on, where each asks for its own number of targets:
/// equations (1), (3) and (4).
///
/// # Errors
/// [`Error::NoTargets`], [`Error::NoJobs`], and [`Error::Request`] where a job asks for nothing or
/// for more than there is.
pub fn jobs(targets: u32, requests: &[u32]) -> Result<Vec<Contention>, Error> {
    if requests.is_empty() {
        return Err(Error::NoJobs);
    }
    let all = f64::from(targets);
    let (mut in_use, mut requested) = (0.0, 0);
    let mut rows = Vec::with_capacity(requests.len());
    for (jobs, &request) in (1..).zip(requests) {
        check(targets, request)?;
        let asked = f64::from(request);
        in_use = (in_use + asked - in_use / all * asked).min(all);
        requested += u64::from(request);
        rows.push(Contention::new(jobs, in_use, requested));
    }
    Ok(rows)
}

/// The same for so many jobs that all ask for as much: equations (2), (3) and (4), at the cost of
/// one.
///
/// # Errors
/// As [`jobs`].
pub fn alike(targets: u32, request: u32, jobs: u32) -> Result<Contention, Error> {
    check(targets, request)?;
    if jobs == 0 {
        return Err(Error::NoJobs);
    }
    let all = f64::from(targets);
    // D - D (1 - R/D)^n, so written that it keeps its digits where R is a small part of D.
    let in_use = -all * (f64::from(jobs) * (-f64::from(request) / all).ln_1p()).exp_m1();
    Ok(Contention::new(jobs, in_use, u64::from(request) * u64::from(jobs)))
}

/// What one job does to itself in which each rank has a log over [`STRIPES`] targets, as the first
/// PLFS had: equations (5) and (6). `jobs` of the answer are ranks.
///
/// # Errors
/// As [`jobs`]; there have to be as many targets as a log has.
pub fn log_per_rank(targets: u32, ranks: u32) -> Result<Contention, Error> {
    alike(targets, STRIPES, ranks)
}

fn check(targets: u32, request: u32) -> Result<(), Error> {
    match request {
        _ if targets == 0 => Err(Error::NoTargets),
        1.. if request <= targets => Ok(()),
        _ => Err(Error::Request { request, targets }),
    }
}
