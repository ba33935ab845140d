//! `plfs map`: who wrote what where: as patterns, as pieces, as records, as a picture.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

use plfs_core::{Extent, File, OpenOptions, Opened, RecordKind, Records, WrittenBy};
use serde::ser::{Error as _, SerializeSeq};
use serde::{Serialize, Serializer};

use crate::copy::PIECES;
use crate::mount::behind;
use crate::out::{self, Fail, JsonPath, Out, absolute, in_bytes, several, show, time};
use crate::patterns::{self, ByWriter, Line};
use crate::plot;

/// What to show of which bytes.
pub struct Wanted {
    pub json: bool,
    pub from: u64,
    pub to: Option<u64>,
    pub patterns: bool,
    pub records: bool,
    /// Writers, and lines of each, to show the patterns of.
    pub limit: usize,
    pub plot: Option<PathBuf>,
}

#[derive(Serialize)]
struct Piece<'a> {
    logical: u64,
    length: u64,
    data_log: JsonPath,
    physical: u64,
    #[serde(flatten)]
    writer: Writer<'a>,
}

#[derive(Default, Serialize)]
struct Writer<'a> {
    host: Option<&'a str>,
    pid: Option<u32>,
    uid: Option<u32>,
}

impl<'a> Writer<'a> {
    fn new(writer: Option<&'a WrittenBy>) -> Writer<'a> {
        writer
            .map(|by| Writer { host: Some(&by.host), pid: Some(by.pid), uid: Some(by.uid) })
            .unwrap_or_default()
    }
}

impl std::fmt::Display for Writer<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.host, self.pid) {
            (Some(host), Some(pid)) => write!(f, "{host}:{pid}"),
            _ => f.write_str("unknown"),
        }
    }
}

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Record<'a> {
    Run {
        stamp: u64,
        set: String,
        logical: u64,
        length: u64,
        stride: i64,
        count: u32,
        data_log: JsonPath,
        physical: u64,
        #[serde(flatten)]
        writer: Writer<'a>,
    },
    Hole {
        stamp: u64,
        set: String,
        logical: u64,
        length: u64,
        #[serde(flatten)]
        writer: Writer<'a>,
    },
    Truncate {
        stamp: u64,
        set: String,
        size: u64,
    },
}

/// The patterns of one writer.
#[derive(Serialize)]
struct Patterns<'a> {
    #[serde(flatten)]
    writer: Writer<'a>,
    pieces: u64,
    bytes: u64,
    first_stamp: u64,
    last_stamp: u64,
    patterns: Vec<AsPattern>,
    more_patterns: usize,
}

#[derive(Serialize)]
struct AsPattern {
    pieces: u64,
    bytes: u64,
    #[serde(flatten)]
    rule: Rule,
    text: String,
}

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Rule {
    Regular { logical: u64, length: u64, levels: Vec<Level> },
    Irregular { times: u64, shortest: u64, longest: u64, levels: Vec<Level>, from: u64, to: u64 },
}

#[derive(Serialize)]
struct Level {
    count: u64,
    stride: i64,
}

impl<'a> Patterns<'a> {
    fn new(writer: &ByWriter<'a>, limit: usize) -> Patterns<'a> {
        let levels = |levels: &[patterns::Level]| {
            levels.iter().map(|level| Level { count: level.count, stride: level.stride }).collect()
        };
        let rule = |line: &Line| match line {
            Line::Regular(pattern) => Rule::Regular {
                logical: pattern.first,
                length: pattern.length,
                levels: levels(&pattern.levels),
            },
            Line::Irregular { shape, times, shortest, longest, from, to, .. } => Rule::Irregular {
                times: *times,
                shortest: *shortest,
                longest: *longest,
                levels: levels(&shape.levels),
                from: *from,
                to: *to,
            },
        };
        let as_pattern = |line: &Line| AsPattern {
            pieces: line.pieces(),
            bytes: line.bytes(),
            rule: rule(line),
            text: line.to_string(),
        };
        Patterns {
            writer: Writer::new(writer.who),
            pieces: writer.pieces,
            bytes: writer.bytes,
            first_stamp: writer.begun,
            last_stamp: writer.committed,
            patterns: writer.lines.iter().take(limit).map(as_pattern).collect(),
            more_patterns: writer.lines.len().saturating_sub(limit),
        }
    }
}

#[derive(Serialize)]
struct Map<'a> {
    path: JsonPath,
    size: u64,
    container: JsonPath,
    #[serde(skip_serializing_if = "Option::is_none")]
    writers: Option<Vec<Patterns<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    more_writers: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extents: Option<Pieces<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    records: Option<Vec<Record<'a>>>,
}

pub fn map(out: &mut Out, wanted: &Wanted, path: &Path) -> Result<(), Fail> {
    let plfs = out::plfs()?;
    let opened = plfs.open(&behind(absolute(path)?)?, OpenOptions::read())?;
    let Opened::Logical(file) = &opened else {
        return Err(Fail::Say(format!("{} is not a PLFS file", show(path))));
    };
    let container =
        file.container().ok_or_else(|| Fail::Say(format!("{} is not a PLFS file", show(path))))?;
    let len = file.len()?;
    let all = plfs_core::records(container)?;
    if let Some(target) = &wanted.plot {
        let name = show(path.file_name().map_or(path, Path::new));
        let (svg, drawn) = plot::draw(&all, &name, len, wanted.from, wanted.to);
        out::picture(&plfs, target, &svg)?;
        return out.line(format_args!("{}: {drawn}", show(target)));
    }
    let (from, to) = (wanted.from, wanted.to.unwrap_or(len).min(len));
    let within = || all.records.iter().filter(|record| reaches(&record.said, from, to));
    let writers = if wanted.records { Vec::new() } else { patterns::by_writer(&all, within()) };
    if wanted.json {
        let mut map = Map {
            path: JsonPath::of(path),
            size: len,
            container: JsonPath::of(&container.dir),
            writers: None,
            more_writers: None,
            extents: None,
            records: None,
        };
        if wanted.records {
            map.records = Some(within().map(|record| as_json(&all, record)).collect());
            return out.json(&map);
        }
        map.writers = Some(
            writers
                .iter()
                .take(wanted.limit)
                .map(|writer| Patterns::new(writer, wanted.limit))
                .collect(),
        );
        map.more_writers = Some(writers.len().saturating_sub(wanted.limit));
        if !wanted.patterns {
            let owners = Owners::new(&all);
            let (range, failed) = ((from, to), RefCell::default());
            map.extents = Some(Pieces { file, owners, range, failed });
        }
        let printed = out.json(&map);
        let failed = map.extents.and_then(|pieces| pieces.failed.into_inner());
        return failed.map_or(printed, Err);
    }
    out.line(format_args!(
        "{}: {}; data logs in {}",
        show(path),
        several(len, "byte"),
        show(&container.dir)
    ))?;
    if wanted.records {
        return print_records(out, file, &all, from, to);
    }
    print_patterns(out, &writers, wanted.limit)?;
    if wanted.patterns {
        return Ok(());
    }
    let owners = Owners::new(&all);
    let mut pieces = 0u64;
    out.line(format_args!(
        "\n{:>16} {:>14}  {:26} {:>14}  writer",
        "offset", "bytes", "data log", "at"
    ))?;
    visible(file, from, to, |extent| {
        pieces += 1;
        let writer = Writer::new(owners.of(&extent));
        let log = shorten(file, &extent.data_log);
        out.line(format_args!(
            "{:>16} {:>14}  {log:26} {:>14}  {writer}",
            extent.logical, extent.length, extent.physical
        ))
    })?;
    out.line(several(pieces, "piece"))
}

fn print_patterns(out: &mut Out, writers: &[ByWriter], limit: usize) -> Result<(), Fail> {
    let sum = |of: fn(&ByWriter) -> u64| writers.iter().map(of).fold(0, u64::saturating_add);
    let (pieces, bytes) = (sum(|writer| writer.pieces), sum(|writer| writer.bytes));
    out.line(format_args!(
        "{} wrote {}, {}:",
        several(writers.len() as u64, "writer"),
        several(pieces, "piece"),
        in_bytes(bytes)
    ))?;
    let (shown, more) = writers.split_at(writers.len().min(limit));
    let names: Vec<String> =
        shown.iter().map(|writer| Writer::new(writer.who).to_string()).collect();
    let width = names.iter().map(String::len).max().unwrap_or(0);
    for (writer, name) in shown.iter().zip(&names) {
        for (i, line) in writer.lines.iter().take(limit).enumerate() {
            out.line(format_args!("  {:width$}  {line}", if i == 0 { name } else { "" }))?;
        }
        if let Some(rest) = writer.lines.get(limit..).filter(|rest| !rest.is_empty()) {
            let (pieces, bytes) = rest.iter().fold((0u64, 0u64), |(pieces, bytes), line| {
                (pieces.saturating_add(line.pieces()), bytes.saturating_add(line.bytes()))
            });
            let more = several(rest.len() as u64, "more pattern");
            out.line(format_args!(
                "  {:width$}  ... {more}: {}, {}",
                "",
                several(pieces, "piece"),
                in_bytes(bytes)
            ))?;
        }
    }
    if let Some(last) = shown.last().filter(|_| !more.is_empty()) {
        let alike = if more.iter().all(|writer| writer.is_like(last)) {
            ", each like the last one, elsewhere"
        } else {
            ""
        };
        out.line(format_args!("  ... {}{alike}", several(more.len() as u64, "more writer")))?;
    }
    Ok(())
}

/// "1 writer", "2 writers".
/// Calls `visit` for the visible pieces of `[from, to)`; what is contiguous in file and log is one
/// piece.
fn visible(
    file: &File,
    from: u64,
    to: u64,
    mut visit: impl FnMut(Extent) -> Result<(), Fail>,
) -> Result<(), Fail> {
    let (mut at, mut step) = (from, 16u64 << 20);
    let mut last: Option<Extent> = None;
    while let Some(start) = file.next_data(at)?.filter(|start| *start < to) {
        let (extents, end) =
            file.extents_some(start, start.saturating_add(step).min(to), PIECES)?;
        // The windows' length follows the density of pieces, so that the number of windows does not
        // get large.
        step = (end - start).saturating_mul(4).min(1 << 50);
        for extent in extents {
            match &mut last {
                Some(last)
                    if last.logical + last.length == extent.logical
                        && last.physical + last.length == extent.physical
                        && last.data_log == extent.data_log =>
                {
                    last.length += extent.length;
                }
                _ => {
                    if let Some(done) = last.replace(extent) {
                        visit(done)?;
                    }
                }
            }
        }
        at = end;
    }
    last.map_or(Ok(()), visit)
}

/// The visible pieces, as they are found: there may be more than memory has room for.
struct Pieces<'a> {
    file: &'a File,
    owners: Owners<'a>,
    range: (u64, u64),
    /// Why they are not all.
    failed: RefCell<Option<Fail>>,
}

impl Serialize for Pieces<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut all = to.serialize_seq(None)?;
        let mut written = Ok(());
        let seen = visible(self.file, self.range.0, self.range.1, |extent| {
            let piece = Piece {
                writer: Writer::new(self.owners.of(&extent)),
                logical: extent.logical,
                length: extent.length,
                data_log: JsonPath::of(&extent.data_log),
                physical: extent.physical,
            };
            written = all.serialize_element(&piece);
            if written.is_ok() { Ok(()) } else { Err(Fail::Printed) }
        });
        written?;
        seen.map_err(|fail| {
            *self.failed.borrow_mut() = Some(fail);
            S::Error::custom("the rest cannot be read")
        })?;
        all.end()
    }
}

/// A part of a data log, by its ends, and its writer.
type Part = (u64, u64, Option<u32>);

/// Who wrote which part of which data log.
struct Owners<'a> {
    all: &'a Records,
    by_log: HashMap<&'a Path, Vec<Part>>,
}

impl<'a> Owners<'a> {
    fn new(all: &'a Records) -> Owners<'a> {
        let mut by_log: HashMap<&Path, Vec<Part>> = HashMap::new();
        for record in &all.records {
            if let (RecordKind::Run(run), Some(log)) = (&record.said, run_log(all, &record.said)) {
                by_log.entry(log).or_default().push((
                    run.physical,
                    run.physical + run.bytes(),
                    record.writer,
                ));
            }
        }
        by_log.values_mut().for_each(|parts| parts.sort_unstable());
        Owners { all, by_log }
    }

    fn of(&self, extent: &Extent) -> Option<&'a WrittenBy> {
        let parts = self.by_log.get(extent.data_log.as_path())?;
        let (_, end, writer) = parts
            .get(parts.partition_point(|(start, ..)| *start <= extent.physical).checked_sub(1)?)?;
        self.all.writers.get((*writer).filter(|_| extent.physical < *end)? as usize)
    }
}

fn writer_of<'a>(all: &'a Records, record: &plfs_core::IndexRecord) -> Writer<'a> {
    Writer::new(record.writer.and_then(|writer| all.writers.get(writer as usize)))
}

fn run_log<'a>(all: &'a Records, said: &RecordKind) -> Option<&'a Path> {
    match said {
        RecordKind::Run(run) => all.data_logs.get(run.segment as usize).map(PathBuf::as_path),
        RecordKind::Hole { .. } | RecordKind::Truncate(_) => None,
    }
}

fn reaches(said: &RecordKind, from: u64, to: u64) -> bool {
    match said {
        RecordKind::Run(run) => run.first() < to && from < run.end(),
        RecordKind::Hole { logical, length } => *logical < to && from < logical + length,
        RecordKind::Truncate(_) => true,
    }
}

fn as_json<'a>(all: &'a Records, record: &plfs_core::IndexRecord) -> Record<'a> {
    let (stamp, set) = (record.stamp, format!("{:08x}", record.set));
    let writer = writer_of(all, record);
    match &record.said {
        RecordKind::Run(run) => Record::Run {
            stamp,
            set,
            logical: run.logical,
            length: run.length,
            stride: run.stride,
            count: run.count,
            data_log: JsonPath::of(run_log(all, &record.said).unwrap_or(Path::new(""))),
            physical: run.physical,
            writer,
        },
        RecordKind::Hole { logical, length } => {
            Record::Hole { stamp, set, logical: *logical, length: *length, writer }
        }
        RecordKind::Truncate(size) => Record::Truncate { stamp, set, size: *size },
    }
}

fn print_records(
    out: &mut Out,
    file: &File,
    all: &Records,
    from: u64,
    to: u64,
) -> Result<(), Fail> {
    for record in all.records.iter().filter(|record| reaches(&record.said, from, to)) {
        let ns = (u128::from(record.stamp) * 1_000_000) >> 16;
        let when = time((ns / 1_000_000_000) as i64, (ns % 1_000_000_000) as u32);
        let when = format!("{}.{:06}Z", when.trim_end_matches('Z'), ns % 1_000_000_000 / 1000);
        match &record.said {
            RecordKind::Truncate(size) => {
                out.line(format_args!("{when}  truncate to {size}  log set {:08x}", record.set))?
            }
            RecordKind::Run(run) => {
                let length = several(run.length, "byte");
                let pieces = match run.count {
                    1 => format!("{} at {}", length, run.logical),
                    n => format!("{n} x {length} at {} + i*{}", run.logical, run.stride),
                };
                let log =
                    run_log(all, &record.said).map(|log| shorten(file, log)).unwrap_or_default();
                out.line(format_args!(
                    "{when}  {pieces}  in {log} at {}  by {}",
                    run.physical,
                    writer_of(all, record)
                ))?;
            }
            RecordKind::Hole { logical, length } => out.line(format_args!(
                "{when}  hole of {} at {logical}  by {}",
                several(*length, "byte"),
                writer_of(all, record)
            ))?,
        }
    }
    out.line(several(all.records.len() as u64, "record"))
}

/// A data log by its path in the container's directory.
fn shorten(file: &File, log: &Path) -> String {
    let dir = file.container().map_or(Path::new("/"), |container| &container.dir);
    show(log.strip_prefix(dir).unwrap_or(log))
}
