//! What `plfs bench` prints. MB are 1,000,000 bytes.

use std::collections::BTreeMap;

use serde::Serialize;

use super::machine::{self, Machine};
use super::rank::{Answer, Spec, Step};
use super::{Door, Pattern, Phase, Place};
use crate::BenchFlags;
use crate::out::{Fail, JsonPath, Out, count, in_bytes, several, show};

pub struct Measured<'a> {
    pub spec: Spec,
    pub phases: Vec<Phase>,
    pub workload: Option<String>,
    pub place: &'a Place,
}

#[derive(Serialize)]
struct Bench {
    pattern: Pattern,
    door: Door,
    procs: u64,
    size_bytes: u64,
    count: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    block_pieces: Option<u64>,
    seed: u32,
    fsync: bool,
    verified: bool,
    version: &'static str,
    /// auto, shared, small or flat; none where PLFS is not in the ranks.
    workload: Option<String>,
    machine: Machine,
    dirs: Vec<Dir>,
    /// All directories show the same files.
    same_files: bool,
    bytes_written: u64,
    bytes_read: u64,
    files: u64,
    /// Of opening, writing and closing together; none if it was only read.
    write_mb_s: Option<f64>,
    /// Of opening, reading and closing together.
    read_mb_s: f64,
    phases: Vec<Row>,
    ranks: Vec<Rank>,
}

#[derive(Serialize)]
struct Dir {
    path: JsonPath,
    file_system: String,
}

#[derive(Serialize)]
struct Row {
    phase: &'static str,
    /// From the word to begin until the last rank was done.
    seconds: f64,
    /// What the slowest rank took by its own clock.
    slowest_rank_s: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    mb_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    files_s: Option<f64>,
}

#[derive(Serialize)]
struct Rank {
    rank: usize,
    pid: u32,
    dir: JsonPath,
    bytes_written: u64,
    bytes_read: u64,
    files: u64,
    /// By phase.
    seconds: BTreeMap<&'static str, f64>,
}

fn writes(step: Step) -> bool {
    matches!(step, Step::Write | Step::Create)
}

fn reads(step: Step) -> bool {
    matches!(step, Step::Read | Step::ReadFiles)
}

fn is_of_writing(step: Step) -> bool {
    matches!(step, Step::Open | Step::Write | Step::Close | Step::Create)
}

fn is_of_reading(step: Step) -> bool {
    matches!(step, Step::ReadOpen | Step::Read | Step::ReadClose | Step::ReadFiles)
}

impl Measured<'_> {
    fn sum<T: std::iter::Sum>(&self, of: fn(Step) -> bool, what: impl Fn(&Phase) -> T) -> T {
        self.phases.iter().filter(|phase| of(phase.step)).map(what).sum()
    }

    fn bytes(&self, of: fn(Step) -> bool) -> u64 {
        self.sum(of, |phase| phase.answers.iter().map(|answer| answer.bytes).sum::<u64>())
    }

    fn seconds(&self, of: fn(Step) -> bool) -> f64 {
        self.sum(of, |phase| phase.seconds)
    }

    fn rows(&self) -> Vec<Row> {
        let row = |phase: &Phase| {
            let (step, seconds) = (phase.step, phase.seconds);
            let bytes: u64 = phase.answers.iter().map(|answer| answer.bytes).sum();
            let files: u64 = phase.answers.iter().map(|answer| answer.files).sum();
            let is_1n = self.spec.pattern == Pattern::OneN;
            Row {
                phase: step.name(),
                seconds,
                slowest_rank_s: phase.answers.iter().fold(0.0, |max, a| a.seconds.max(max)),
                mb_s: (bytes > 0).then(|| mb_s(bytes, seconds)),
                files_s: is_1n.then(|| files as f64 / seconds),
            }
        };
        self.phases.iter().map(row).collect()
    }

    fn ranks(&self) -> Vec<Rank> {
        let rank = |(rank, answer): (usize, &Answer)| {
            let bytes = |of: fn(Step) -> bool| self.sum(of, |phase| phase.answers[rank].bytes);
            let dirs = &self.place.dirs;
            Rank {
                rank,
                pid: answer.pid,
                dir: JsonPath::of(&dirs[rank % dirs.len()].0),
                bytes_written: bytes(writes),
                bytes_read: bytes(reads),
                files: self.sum(reads, |phase| phase.answers[rank].files),
                seconds: (self.phases.iter())
                    .map(|phase| (phase.step.name(), phase.answers[rank].seconds))
                    .collect(),
            }
        };
        let answers = self.phases.first().map_or(&[][..], |phase| &phase.answers);
        answers.iter().enumerate().map(rank).collect()
    }

    fn files(&self) -> u64 {
        let Spec { pattern, procs, count, .. } = self.spec;
        match pattern {
            Pattern::Nn => procs,
            Pattern::OneN => procs * count,
            _ => 1,
        }
    }
}

fn mb_s(bytes: u64, seconds: f64) -> f64 {
    bytes as f64 / 1e6 / seconds
}

pub fn report(out: &mut Out, flags: &BenchFlags, measured: &Measured) -> Result<(), Fail> {
    let Spec { pattern, procs, size, count, seed, same, .. } = measured.spec;
    let dir = |(given, real): &(std::path::PathBuf, std::path::PathBuf)| Dir {
        path: JsonPath::of(given),
        file_system: machine::file_system(real),
    };
    let (written, read) = (measured.bytes(writes), measured.bytes(reads));
    let bench = Bench {
        pattern,
        door: flags.door,
        procs,
        size_bytes: size,
        count,
        block_pieces: (pattern == Pattern::N1Block).then_some(measured.spec.block),
        seed,
        fsync: flags.sync,
        verified: flags.verify,
        version: env!("CARGO_PKG_VERSION"),
        workload: measured.workload.clone(),
        machine: Machine::new(),
        dirs: measured.place.dirs.iter().map(dir).collect(),
        same_files: same,
        bytes_written: written,
        bytes_read: read,
        files: measured.files(),
        write_mb_s: (written > 0).then(|| mb_s(written, measured.seconds(is_of_writing))),
        read_mb_s: mb_s(read, measured.seconds(is_of_reading)),
        phases: measured.rows(),
        ranks: measured.ranks(),
    };
    if flags.json { out.json(&bench) } else { print(out, &bench, measured) }
}

fn word(value: &impl Serialize) -> String {
    let value = serde_json::to_value(value).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}

fn print(out: &mut Out, bench: &Bench, measured: &Measured) -> Result<(), Fail> {
    out.line(format_args!(
        "{} by {}: {}, {} of {} each, {} in all",
        word(&bench.pattern),
        word(&bench.door),
        several(bench.procs, "rank"),
        several(bench.count, "piece"),
        in_bytes(bench.size_bytes),
        in_bytes(bench.bytes_read)
    ))?;
    let dirs: Vec<String> = (measured.place.dirs.iter().zip(&bench.dirs))
        .map(|((given, _), dir)| format!("{} ({})", show(given), dir.file_system))
        .collect();
    let workload = bench.workload.as_ref().map(|word| format!(", workload {word}"));
    out.line(format_args!(
        "{} ({}), Linux {}, plfs {}, {}{}, seed {}, {}, {}, {}",
        bench.machine.name,
        several(bench.machine.processors as u64, "processor"),
        bench.machine.kernel,
        bench.version,
        dirs.join(", "),
        workload.unwrap_or_default(),
        bench.seed,
        if bench.fsync { "with fsync" } else { "without fsync" },
        if bench.verified { "every byte verified" } else { "not verified" },
        bench.machine.time
    ))?;
    let is_1n = bench.phases.iter().any(|row| row.files_s.is_some());
    out.line(format_args!(
        "\n{:<20} {:>10}  {:>12}  {:>10}{}",
        "phase",
        "seconds",
        "slowest rank",
        "MB/s",
        if is_1n { "     files/s" } else { "" }
    ))?;
    let rate = |rate: Option<f64>| rate.map_or(String::new(), number);
    let line = |out: &mut Out, row: &Row| {
        let text = format!(
            "{:<20} {:>10.6}  {:>12.6}  {:>10}  {:>10}",
            row.phase.replace('_', " "),
            row.seconds,
            row.slowest_rank_s,
            rate(row.mb_s),
            rate(row.files_s)
        );
        out.line(text.trim_end())
    };
    let sum = |out: &mut Out, what: &str, of: fn(Step) -> bool, mb_s: f64| {
        let seconds = measured.seconds(of);
        out.line(format_args!("{what:<20} {seconds:>10.6}  {:>12}  {:>10}", "", number(mb_s)))
    };
    for (row, phase) in bench.phases.iter().zip(&measured.phases) {
        line(out, row)?;
        match (phase.step, bench.write_mb_s) {
            (Step::Close, Some(mb_s)) => sum(out, "open, write, close", is_of_writing, mb_s)?,
            (Step::ReadClose, _) => sum(out, "open, read, close", is_of_reading, bench.read_mb_s)?,
            _ => {}
        }
    }
    Ok(())
}

/// A rate: with decimals where they tell something.
fn number(n: f64) -> String {
    if n < 100.0 { format!("{n:.2}") } else { count(n.round() as u64) }
}
