//! How long a job writes, for each way to lay out its data: a fluid computation.
//!
//! What a job writes goes through the links of its clients and, where one is given, a network to
//! the targets, each with a rate. As long as buffers are large enough, each of these works without
//! a pause until its part is done; so a job takes as long as what takes longest, after its files
//! were created. A target with several streams serves all at the same pace at the rate that
//! [`load::efficiency`] leaves: streams that are equally long end together, so no rate changes
//! meanwhile, and the time is exact for these assumptions. Where targets are drawn at random, and
//! for rates, which differ, some draws are computed and the mean of their times is the answer.
//! Draws have fixed seeds.
//!
//! # Where the numbers are from
//! Four were fitted: [`CLIENT_BYTES_S`], [`TARGET_BYTES_S`], [`SPREAD`] and
//! [`load::HALF_AT_OTHERS`], each to another part of the published points ([`published`]), all 19
//! of which are within 23 %. Two were read off ([`RANKS_PER_CLIENT`], [`CREATE_S`]), one says where
//! the points end ([`load::STREAMS_WORST`]), the rest follows from how the layouts work.
//!
//! # What it does not know
//! Limits of servers and of the network between, unless one is given ([`System::network_bytes_s`]):
//! what it says above the published points is an upper bound. The load of other jobs, but for what
//! they did to the published points. Locks of shared files, caches of clients, reads, time spent
//! waiting for each other but at the end, what a metadata server does under load, failures.
//! [`Strategy::Streams`] is predicted from how it is designed, not from a measurement.

use crate::choose::{Measurement, Policy, Work, choose};
use crate::equations::STRIPES;
use crate::published::MB;
use crate::random::Random;
use crate::{Error, load, published};

/// Ranks behind one link. The published runs of 16 and 32 ranks are equally fast, with both layouts
/// (404 and 405, 753 and 727 MB/s), and twice as many ranks twice as fast from there on: so what
/// carries the data carries 32.
pub const RANKS_PER_CLIENT: u32 = 32;

/// What one link sends. Fitted to the points of both layouts up to 256 ranks, where links are the
/// limit.
pub const CLIENT_BYTES_S: f64 = 880.0 * MB as f64;

/// How often a byte of a shared file crosses a client's link. MPI-IO writes one in two phases: from
/// the rank that has it to the one that collects for a target, then to the target. The published
/// points have half the bandwidth of a log a rank, too.
pub const CROSSINGS_SHARED: f64 = 2.0;

/// What a target takes from one stream, on average. From the default layout, which has two targets
/// and 313 MB/s, with [`SPREAD`]: the slower of two is 8 % below the average.
pub const TARGET_BYTES_S: f64 = 170.0 * MB as f64;

/// Standard deviation of the rates of targets, of their mean. Fitted to the tuned shared file at
/// 2,048 and 4,096 ranks, which waits for the slowest of 160: 106 MB/s.
pub const SPREAD: f64 = 0.14;

/// Seconds to create a file. Measured with this project's bench on CephFS, four clients, eight
/// processes, `bench/results`, "create, write, close", direct: 1,104 us. Of what was published it
/// takes 6 % at most.
pub const CREATE_S: f64 = 0.0011;

/// Stripes of a shared file that is tuned: CONT, its best; the most that Lustre had then.
pub const STRIPES_TUNED: u32 = 160;

/// The part of its rate that a straggler has: a tenth, as in this project's tests of placement.
pub const STRAGGLER: f64 = 0.1;

/// Draws of small jobs.
const DRAWS: u64 = 64;
/// What all draws together may cost, in streams that are thrown: a tenth of a second.
const COST_MAX: u64 = 1 << 23;

/// The storage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct System {
    /// Targets: 1 and more.
    pub targets: u32,
    /// How many of them have a tenth of the rate ([`STRAGGLER`]).
    pub stragglers: u32,
    /// What all targets together can take through the network and the servers, bytes per second;
    /// None: no limit.
    pub network_bytes_s: Option<f64>,
}

/// The job: ranks that write as much each, and begin together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Job {
    /// Ranks: 1 and more.
    pub ranks: u32,
    /// Bytes that each writes: 1 and more.
    pub bytes_a_rank: u64,
}

/// How data is laid out over targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// One shared file as the file system lays it out: over [`STRIPES`] targets.
    SharedDefault,
    /// One shared file over [`STRIPES_TUNED`] targets, or all if there are fewer; for each stripe
    /// one rank collects and writes, so targets have one stream.
    SharedTuned,
    /// A file for each rank over [`STRIPES`] targets at random.
    FilePerRank,
    /// PLFS as it was: a data log and an index log for each rank, otherwise the same.
    LogPerRank,
    /// Streams follow the storage: one for each target that [`Policy::Proportional`] chooses, which
    /// knows the rates. Each client has logs of its own; where these are more than the streams,
    /// clients take turns, so that a target has one stream at any time.
    Streams,
}

/// What takes longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Creating files.
    Metadata,
    /// The links of the clients.
    Clients,
    /// The network.
    Network,
    /// The targets.
    Targets,
}

/// What came out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// From the first create to the last byte.
    pub seconds: f64,
    /// All bytes, by these seconds.
    pub bytes_s: f64,
    /// Streams that targets serve at once.
    pub streams: u64,
    /// Streams of a target that has any, on average over targets and draws.
    pub load: f64,
    /// Streams of the target that has most, on average over draws.
    pub load_max: f64,
    /// What takes longest.
    pub limit: Limit,
}

/// What a draw gives, or the sum of several.
#[derive(Default)]
struct Draw {
    /// Until the last target is done.
    targets_s: f64,
    streams: u64,
    load: f64,
    load_max: f64,
}

impl Strategy {
    /// How often a byte crosses a client's link.
    fn crossings(self) -> f64 {
        match self {
            Strategy::SharedDefault | Strategy::SharedTuned => CROSSINGS_SHARED,
            Strategy::FilePerRank | Strategy::LogPerRank | Strategy::Streams => 1.0,
        }
    }

    /// How many files are created.
    fn files(self, ranks: u64, clients: u64, streams: u64) -> u64 {
        match self {
            Strategy::SharedDefault | Strategy::SharedTuned => 1,
            Strategy::FilePerRank => ranks,
            Strategy::LogPerRank => 2 * ranks,
            // Data logs, and an index log for each client.
            Strategy::Streams => streams.max(clients) + clients,
        }
    }

    /// What a draw costs to compute, besides the rates, in streams that are thrown.
    fn cost(self, ranks: u64, targets: u32) -> u64 {
        match self {
            Strategy::SharedDefault | Strategy::SharedTuned => 1,
            Strategy::FilePerRank | Strategy::LogPerRank => ranks * u64::from(STRIPES),
            Strategy::Streams => 128 * u64::from(targets),
        }
    }
}

/// Computes how long a job writes. A million ranks and 10,000 targets take less than a second.
///
/// # Errors
/// No target, more stragglers than targets, no rank, nothing to write, more than 2^64 bytes, or a
/// network of no bandwidth.
pub fn simulate(system: &System, job: &Job, strategy: Strategy) -> Result<Outcome, Error> {
    check(system, job)?;
    let bytes = u64::from(job.ranks)
        .checked_mul(job.bytes_a_rank)
        .ok_or(Error::TooManyBytes { ranks: job.ranks, bytes_a_rank: job.bytes_a_rank })?;
    let (ranks, clients) = (u64::from(job.ranks), job.ranks.div_ceil(RANKS_PER_CLIENT));
    let links_bytes_s = f64::from(clients) * CLIENT_BYTES_S;
    let network_bytes_s = system.network_bytes_s.unwrap_or(f64::INFINITY);
    let clients_s = bytes as f64 * strategy.crossings() / links_bytes_s;
    let network_s = bytes as f64 / network_bytes_s;

    let draws = (COST_MAX / strategy.cost(ranks, system.targets)).clamp(1, DRAWS);
    let (mut sum, mut transfer_s) = (Draw::default(), 0.0);
    for seed in 0..draws {
        let mut random = Random::new(seed);
        let rates = rates(system, &mut random);
        let draw = match strategy {
            Strategy::SharedDefault => striped(&rates, STRIPES, bytes, &mut random),
            Strategy::SharedTuned => striped(&rates, STRIPES_TUNED, bytes, &mut random),
            Strategy::FilePerRank | Strategy::LogPerRank => thrown(&rates, job, &mut random),
            Strategy::Streams => streams(&rates, bytes, links_bytes_s.min(network_bytes_s))?,
        };
        transfer_s += draw.targets_s.max(clients_s).max(network_s);
        sum.targets_s += draw.targets_s;
        sum.streams += draw.streams;
        sum.load += draw.load;
        sum.load_max += draw.load_max;
    }
    let mean = |sum: f64| sum / draws as f64;
    let streams = sum.streams.div_ceil(draws);
    let metadata_s = strategy.files(ranks, clients.into(), streams) as f64 * CREATE_S;
    let seconds = metadata_s + mean(transfer_s);
    let parts = [
        (Limit::Clients, clients_s),
        (Limit::Network, network_s),
        (Limit::Targets, mean(sum.targets_s)),
        (Limit::Metadata, metadata_s),
    ];
    let (limit, _) = parts.into_iter().fold(parts[0], |a, b| if b.1 > a.1 { b } else { a });
    Ok(Outcome {
        seconds,
        bytes_s: bytes as f64 / seconds,
        streams,
        load: mean(sum.load),
        load_max: mean(sum.load_max),
        limit,
    })
}

/// The same as MB a second that were published, where they were: for this system and job only.
pub fn published_mb_s(system: &System, job: &Job, strategy: Strategy) -> Option<f64> {
    let theirs = System { targets: published::TARGETS, stragglers: 0, network_bytes_s: None };
    let is_theirs = *system == theirs && job.bytes_a_rank == published::BYTES_A_RANK;
    is_theirs.then(|| published::mb_s(strategy, job.ranks)).flatten()
}

fn check(system: &System, job: &Job) -> Result<(), Error> {
    let System { targets, stragglers, network_bytes_s } = *system;
    if targets == 0 {
        return Err(Error::NoTargets);
    }
    if stragglers > targets {
        return Err(Error::Stragglers { stragglers, targets });
    }
    if job.ranks == 0 {
        return Err(Error::NoJobs);
    }
    if job.bytes_a_rank == 0 {
        return Err(Error::NoBytes);
    }
    match network_bytes_s {
        Some(bytes_s) if bytes_s.is_nan() || bytes_s <= 0.0 => {
            Err(Error::Between { what: "the network", bytes_s })
        }
        _ => Ok(()),
    }
}

/// The rates of the targets, stragglers first.
fn rates(system: &System, random: &mut Random) -> Vec<f64> {
    (0..system.targets)
        .map(|target| {
            let rate = TARGET_BYTES_S * (1.0 + SPREAD * random.normal());
            if target < system.stragglers { rate * STRAGGLER } else { rate }
        })
        .collect()
}

/// A shared file over some targets at random, each with one stream.
fn striped(rates: &[f64], stripes: u32, bytes: u64, random: &mut Random) -> Draw {
    let stripes = rates.len().min(stripes as usize);
    let mut left: Vec<f64> = rates.to_vec();
    let mut slowest = f64::INFINITY;
    for _ in 0..stripes {
        let at = random.below(left.len() as u32) as usize;
        slowest = slowest.min(left.swap_remove(at));
    }
    let targets_s = bytes as f64 / stripes as f64 / slowest;
    Draw { targets_s, streams: stripes as u64, load: 1.0, load_max: 1.0 }
}

/// A file for each rank over two targets at random, or over the only one.
fn thrown(rates: &[f64], job: &Job, random: &mut Random) -> Draw {
    let targets = rates.len() as u32;
    let stripes = targets.min(STRIPES);
    let mut streams = vec![0u32; rates.len()];
    for _ in 0..job.ranks {
        let first = random.below(targets);
        streams[first as usize] += 1;
        if stripes > 1 {
            // One of the others.
            let further = 1 + u64::from(random.below(targets - 1));
            streams[((u64::from(first) + further) % u64::from(targets)) as usize] += 1;
        }
    }
    let stream_bytes = job.bytes_a_rank as f64 / f64::from(stripes);
    let (mut in_use, mut most, mut targets_s) = (0u32, 0, 0.0f64);
    for (&streams, rate) in streams.iter().zip(rates).filter(|(streams, _)| **streams > 0) {
        in_use += 1;
        most = most.max(streams);
        let load = f64::from(streams);
        targets_s = targets_s.max(load * stream_bytes / (rate * load::efficiency(load)));
    }
    let streams = u64::from(job.ranks) * u64::from(stripes);
    let load = streams as f64 / f64::from(in_use);
    Draw { targets_s, streams, load, load_max: f64::from(most) }
}

/// Streams as the default policy has them, which finds the rates as they are.
fn streams(rates: &[f64], bytes: u64, send_bytes_s: f64) -> Result<Draw, Error> {
    let measured: Vec<Measurement> = (0..)
        .zip(rates)
        .map(|(target, &bandwidth_bytes_s)| Measurement { target, bandwidth_bytes_s, others: None })
        .collect();
    let work = Work { bytes, send_bytes_s: Some(send_bytes_s), create_s: CREATE_S, index_s: 0.0 };
    let decision = choose(Policy::Proportional, &measured, &work)?;
    let targets_s = decision
        .chosen
        .iter()
        .map(|share| share.bytes as f64 / share.measured.bandwidth_bytes_s)
        .fold(0.0, f64::max);
    Ok(Draw { targets_s, streams: decision.chosen.len() as u64, load: 1.0, load_max: 1.0 })
}
