//! `plfs model`: what jobs do to targets, computed by plfs-placement: the same code that is to
//! choose targets for new files.

mod plot;

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use plfs_placement::equations::{self, Contention};
use plfs_placement::published::{self, MB};
use plfs_placement::simulate::{Job, Limit, Outcome, Strategy, System, published_mb_s, simulate};
use serde::Serialize;

use crate::ModelCommand;
use crate::out::{self, Fail, Out, count, show};

/// Targets of the file system that the simulation knows.
pub const TARGETS: u32 = published::TARGETS;

/// A strategy: what people write, and what stands above a column.
#[derive(Clone, Copy)]
struct Named {
    strategy: Strategy,
    name: &'static str,
    title: &'static str,
}

const STRATEGIES: [Named; 5] = [
    named(Strategy::SharedDefault, "shared-default", "shared, default"),
    named(Strategy::SharedTuned, "shared-tuned", "shared, tuned"),
    named(Strategy::FilePerRank, "n-n", "N-N"),
    named(Strategy::LogPerRank, "log-per-rank", "log per rank"),
    named(Strategy::Streams, "streams", "streams"),
];

const fn named(strategy: Strategy, name: &'static str, title: &'static str) -> Named {
    Named { strategy, name, title }
}

/// The names of the strategies, for the command line.
pub fn names() -> PossibleValuesParser {
    PossibleValuesParser::new(STRATEGIES.map(|named| named.name))
}

pub fn model(out: &mut Out, what: ModelCommand) -> Result<(), Fail> {
    match what {
        ModelCommand::Contention { targets, request, jobs, json } => {
            let requests = requests(request, jobs)?;
            let rows = equations::jobs(targets, &requests).map_err(wrong)?;
            contention(out, Whose::Jobs, &rows, json)
        }
        ModelCommand::Plfs { targets, ranks, json } => {
            let rows: Result<Vec<_>, _> =
                ranks.into_iter().map(|ranks| equations::log_per_rank(targets, ranks)).collect();
            contention(out, Whose::Ranks, &rows.map_err(wrong)?, json)
        }
        ModelCommand::Simulate {
            ranks,
            targets,
            stragglers,
            bytes,
            network,
            strategy,
            json,
            plot,
        } => {
            let network_bytes_s = network.map(|mb_s| mb_s * MB as f64);
            let system = System { targets, stragglers, network_bytes_s };
            let table = Table::new(system, bytes, ranks, &strategy)?;
            if let Some(target) = plot {
                draw(out, &table, target, json)?;
            }
            if json { table.json(out) } else { table.print(out) }
        }
    }
}

/// A question that makes no sense.
fn wrong(error: plfs_placement::Error) -> Fail {
    Fail::Exit(2, error.to_string())
}

/// What each job asks for.
fn requests(mut request: Vec<u32>, jobs: Option<u32>) -> Result<Vec<u32>, Fail> {
    match (request.len(), jobs) {
        (1, jobs) => request.resize(jobs.unwrap_or(1) as usize, request[0]),
        (several, Some(jobs)) if jobs as usize != several => {
            return Err(Fail::Exit(
                2,
                format!("{several} requests and {jobs} jobs: leave --jobs out, or one request"),
            ));
        }
        _ => {}
    }
    Ok(request)
}

/// A line of `plfs model contention`, or of `plfs model plfs`, whose "jobs" are ranks.
#[derive(Serialize)]
struct Line {
    #[serde(skip_serializing_if = "Option::is_none")]
    jobs: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ranks: Option<u32>,
    inuse: f64,
    req: u64,
    load: f64,
}

#[derive(Clone, Copy, PartialEq)]
enum Whose {
    Jobs,
    Ranks,
}

fn contention(out: &mut Out, whose: Whose, rows: &[Contention], json: bool) -> Result<(), Fail> {
    let of = |one| whose == one;
    if !json {
        let whose = if of(Whose::Jobs) { "jobs" } else { "ranks" };
        out.line(format_args!(
            "{whose:>10}  {:>10}  {:>10}  {:>7}",
            "in use", "asked for", "load"
        ))?;
    }
    for &Contention { jobs, in_use: inuse, requested: req, load } in rows {
        if json {
            let (ranks, jobs) = (of(Whose::Ranks).then_some(jobs), of(Whose::Jobs).then_some(jobs));
            one_line(out, &Line { jobs, ranks, inuse, req, load })?;
        } else {
            out.line(format_args!("{jobs:>10}  {inuse:>10.2}  {req:>10}  {load:>7.2}"))?;
        }
    }
    Ok(())
}

fn one_line(out: &mut Out, value: &impl Serialize) -> Result<(), Fail> {
    out.line(serde_json::to_string(value).map_err(std::io::Error::from)?)
}

/// What was simulated: a row for each number of ranks, a column for each strategy.
struct Table {
    system: System,
    bytes_a_rank: u64,
    columns: Vec<Named>,
    rows: Vec<(u32, Vec<Cell>)>,
}

struct Cell {
    outcome: Outcome,
    published_mb_s: Option<f64>,
}

#[derive(Serialize)]
struct AsJson {
    ranks: u32,
    targets: u32,
    strategy: &'static str,
    seconds: f64,
    mb_s: f64,
    /// Streams that targets serve at once.
    streams: u64,
    load: f64,
    load_max: f64,
    /// What takes longest.
    limit: &'static str,
    published_mb_s: Option<f64>,
}

impl Table {
    fn new(
        system: System,
        bytes_a_rank: u64,
        mut ranks: Vec<u32>,
        names: &[String],
    ) -> Result<Table, Fail> {
        if ranks.is_empty() {
            ranks = published::TABLE.iter().map(|line| line.ranks).collect();
        }
        ranks.sort_unstable();
        ranks.dedup();
        let is_wanted = |name: &str| names.is_empty() || names.iter().any(|one| one == name);
        let columns: Vec<Named> =
            STRATEGIES.into_iter().filter(|named| is_wanted(named.name)).collect();
        let cell = |ranks, strategy| {
            let job = Job { ranks, bytes_a_rank };
            simulate(&system, &job, strategy).map(|outcome| Cell {
                outcome,
                published_mb_s: published_mb_s(&system, &job, strategy),
            })
        };
        let row = |ranks| {
            let cells: Result<Vec<Cell>, _> =
                columns.iter().map(|named| cell(ranks, named.strategy)).collect();
            cells.map(|cells| (ranks, cells))
        };
        let rows: Result<Vec<_>, _> = ranks.into_iter().map(row).collect();
        Ok(Table { system, bytes_a_rank, rows: rows.map_err(wrong)?, columns })
    }

    fn print(&self, out: &mut Out) -> Result<(), Fail> {
        let titles: String =
            self.columns.iter().map(|named| format!("  {:>16}", named.title)).collect();
        out.line(format_args!("{:>10}{titles}", "ranks"))?;
        for (ranks, cells) in &self.rows {
            let cells: Vec<String> = cells
                .iter()
                .map(|cell| match cell.published_mb_s {
                    None => whole(cell.mb_s()),
                    Some(theirs) => format!("{} ({})", whole(cell.mb_s()), whole(theirs)),
                })
                .map(|text| format!("  {text:>16}"))
                .collect();
            out.line(format_args!("{:>10}{}", count((*ranks).into()), cells.concat()))?;
        }
        let in_brackets = if self.has_published() { "; in brackets what was measured" } else { "" };
        out.line(format_args!("MB/s; {}{in_brackets}", self.facts()))
    }

    fn json(&self, out: &mut Out) -> Result<(), Fail> {
        for (ranks, cells) in &self.rows {
            for (named, cell) in self.columns.iter().zip(cells) {
                let Outcome { seconds, streams, load, load_max, limit, .. } = cell.outcome;
                let row = AsJson {
                    ranks: *ranks,
                    targets: self.system.targets,
                    strategy: named.name,
                    seconds,
                    mb_s: cell.mb_s(),
                    streams,
                    load,
                    load_max,
                    limit: match limit {
                        Limit::Metadata => "metadata",
                        Limit::Clients => "clients",
                        Limit::Network => "network",
                        Limit::Targets => "targets",
                    },
                    published_mb_s: cell.published_mb_s,
                };
                one_line(out, &row)?;
            }
        }
        Ok(())
    }

    fn has_published(&self) -> bool {
        self.rows.iter().flat_map(|(_, cells)| cells).any(|cell| cell.published_mb_s.is_some())
    }

    /// What was simulated, in words.
    fn facts(&self) -> String {
        let System { targets, stragglers, network_bytes_s } = self.system;
        let mut facts = format!("{} targets", count(targets.into()));
        if stragglers > 0 {
            facts += &format!(", {} of them slow", count(stragglers.into()));
        }
        facts += &format!(", {} a rank", indicatif::BinaryBytes(self.bytes_a_rank));
        if let Some(bytes_s) = network_bytes_s {
            facts += &format!(", a network of {} MB/s", whole(bytes_s / MB as f64));
        }
        facts
    }
}

impl Cell {
    fn mb_s(&self) -> f64 {
        self.outcome.bytes_s / MB as f64
    }
}

/// MB/s as the papers print them; those that would be nothing with a digit or three.
fn whole(mb_s: f64) -> String {
    if mb_s < 10.0 { format!("{mb_s:.3}") } else { count(mb_s.round() as u64) }
}

fn draw(out: &mut Out, table: &Table, target: PathBuf, json: bool) -> Result<(), Fail> {
    out::picture(&out::plfs()?, &target, &plot::draw(table))?;
    // With --json standard output is for objects alone.
    if json { Ok(()) } else { out.line(format_args!("{}: drawn", show(&target))) }
}
