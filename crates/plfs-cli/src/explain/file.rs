//! `plfs explain`: what is known of a file's storage targets, what follows from that, and what was
//! written where.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use plfs_core::store::read_site;
use plfs_core::{
    Container, OpenOptions, Opened, Placement, Plfs, RecordKind, Records, StreamAt, TargetKnown,
    known_of,
};
use plfs_placement::choose::{self, Decision, Measurement, Policy, Prediction, Work};
use serde::Serialize;

use crate::mount::behind;
use crate::out::{self, Fail, JsonPath, Out, absolute, in_bytes, say, several, show, time};
use crate::probe::{Found, mb_s, short};

/// What a new stream costs, seconds (docs/decisions/0025).
const CREATE_S: f64 = 1.1e-3;

#[derive(Serialize)]
struct Explained {
    path: JsonPath,
    size: u64,
    placement: &'static str,
    /// What says the placement: file, or a setting.
    placement_from: String,
    targets: Vec<Target>,
    decision: Option<Decided>,
    /// Why there is no decision.
    #[serde(skip_serializing_if = "Option::is_none")]
    undecided: Option<String>,
    /// Bytes that writers gave to the storage, by the index.
    written_bytes: u64,
    streams: Vec<Stream>,
    /// What the site's file of rates says, if the settings name one that can be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    site: Option<Vec<Site>>,
}

/// What other nodes have said of a target.
#[derive(Serialize)]
struct Site {
    path: JsonPath,
    bytes_s: f64,
    median_s: Option<f64>,
    p99_s: Option<f64>,
    seen: String,
    host: String,
}

#[derive(Serialize)]
struct Target {
    id: String,
    path: Option<JsonPath>,
    bytes_s: Option<f64>,
    age_s: Option<f64>,
    measured_bytes: u64,
    writers: usize,
    /// For how long it has been given up, because an append there did not end.
    #[serde(skip_serializing_if = "Option::is_none")]
    given_up_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    appends: Option<Appends>,
    #[serde(skip_serializing_if = "Option::is_none")]
    probe: Option<Found>,
    /// The targets inside the backend that have been measured.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    inside: Vec<Inside>,
    /// What it got of the file.
    written_bytes: u64,
    /// That part of all.
    share: f64,
    /// What it was to get.
    #[serde(skip_serializing_if = "Option::is_none")]
    decided_share: Option<f64>,
}

#[derive(Serialize)]
struct Inside {
    target: JsonPath,
    bytes_s: f64,
    age_s: f64,
}

#[derive(Serialize)]
struct Appends {
    median_s: f64,
    p99_s: f64,
    count: u64,
}

#[derive(Serialize)]
struct Decided {
    streams: usize,
    text: String,
    predicted_s: f64,
    predicted_bytes_s: f64,
    load: f64,
    /// Ids of targets that get nothing.
    left_out: Vec<String>,
}

#[derive(Serialize)]
struct Stream {
    set: String,
    stream: u16,
    segments: u32,
    /// The backend; none for what the file had when it was a plain one.
    target: Option<String>,
    bytes: u64,
}

pub fn file(out: &mut Out, json: bool, path: &Path) -> Result<(), Fail> {
    let plfs = out::plfs()?;
    let full = behind(absolute(path)?)?;
    let not_ours = || Fail::Say(format!("{} is not a PLFS file", show(path)));
    let opened = plfs
        .open(&full, OpenOptions::read())
        .map_err(|error| out::or_absent(&plfs, &full, error))?;
    let Opened::Logical(file) = &opened else { return Err(not_ours()) };
    let container = file.container().ok_or_else(not_ours)?;
    let records = plfs_core::records(container)?;
    let wrote = wrote(&records);
    let mut ids: Vec<u16> = container.superblock.backends.clone();
    ids.extend(wrote.keys().filter_map(|(_, _, backend)| *backend));
    ids.sort_unstable();
    ids.dedup();
    let dirs: Vec<Option<PathBuf>> =
        ids.iter().map(|id| container.backend_root(*id).ok()).collect();
    let asked: Vec<PathBuf> = dirs.iter().map(|dir| dir.clone().unwrap_or_default()).collect();
    let known = known_of(plfs.store().as_ref(), plfs.config(), &asked);
    let size = file.len()?;
    let written: u64 = wrote.values().map(|(bytes, _)| bytes).sum();
    let decision = decide(container, &ids, &known, size);
    let of_id = |id: u16| -> u64 {
        let there = wrote.iter().filter(|((.., backend), _)| *backend == Some(id));
        there.map(|(_, (bytes, _))| bytes).sum()
    };
    let decided_share = |id: u16| {
        let decision = decision.as_ref().ok()?;
        let share = decision.chosen.iter().find(|share| share.measured.target == u32::from(id));
        Some(share.map_or(0.0, |share| part(share.bytes, decision.work.bytes)))
    };
    let targets = ids.iter().zip(&dirs).zip(&known).map(|((id, dir), known)| Target {
        id: format!("{id:04x}"),
        path: dir.as_ref().map(JsonPath::of),
        bytes_s: known.bytes_s,
        age_s: known.bytes_s.map(|_| known.age_ns as f64 / 1e9),
        measured_bytes: known.bytes,
        writers: known.writers,
        given_up_s: known.given_up_ns.map(|ns| ns as f64 / 1e9),
        appends: known.appends.map(|appends| Appends {
            median_s: appends.median_s,
            p99_s: appends.most_s,
            count: appends.appends,
        }),
        probe: known.probe.as_ref().map(Found::new),
        inside: dir.as_ref().map_or(Vec::new(), |dir| inside(&plfs, dir)),
        written_bytes: of_id(*id),
        share: part(of_id(*id), written),
        decided_share: decided_share(*id),
    });
    let site = plfs.config().rates.as_ref().and_then(|path| site(path, &asked));
    let explained = Explained {
        site,
        path: JsonPath::of(path),
        size,
        placement: container.placement.word(),
        placement_from: match container.superblock.placement {
            Some(_) => "the file".into(),
            None => plfs.config().origin_of("placement"),
        },
        targets: targets.collect(),
        undecided: decision.as_ref().err().cloned(),
        decision: decision.ok().map(|decision| Decided::new(&decision)),
        written_bytes: written,
        streams: wrote
            .iter()
            .map(|((set, stream, backend), (bytes, segments))| Stream {
                set: format!("{set:08x}"),
                stream: *stream,
                segments: *segments,
                target: backend.map(|id| format!("{id:04x}")),
                bytes: *bytes,
            })
            .collect(),
    };
    if json { out.json(&explained) } else { print(out, &explained) }
}

/// What is known of the targets inside a directory, if it has several.
fn inside(plfs: &Plfs, dir: &Path) -> Vec<Inside> {
    let provider = plfs.store().targets(dir);
    if provider.targets().len() < 2 {
        return Vec::new();
    }
    let keys: Vec<PathBuf> = provider.targets().iter().map(|one| one.key.clone()).collect();
    let known = known_of(plfs.store().as_ref(), plfs.config(), &keys);
    let measured = keys.iter().zip(known).filter_map(|(key, known)| {
        let age_s = known.age_ns as f64 / 1e9;
        Some(Inside { target: JsonPath::of(key), bytes_s: known.bytes_s?, age_s })
    });
    measured.collect()
}

/// What the site's file says of these directories; a line if it cannot be used.
fn site(path: &Path, dirs: &[PathBuf]) -> Option<Vec<Site>> {
    match read_site(path) {
        Ok(rates) => {
            let of_dirs = rates.into_iter().filter(|(dir, _)| dirs.contains(dir));
            let site = of_dirs.map(|(dir, one)| Site {
                path: JsonPath::of(dir),
                bytes_s: one.bytes_s,
                median_s: one.appends.map(|appends| appends.median_s),
                p99_s: one.appends.map(|appends| appends.most_s),
                seen: time(one.seen_s, 0),
                host: one.host,
            });
            Some(site.collect())
        }
        Err(why) => {
            let path = show(path);
            say("explain", &format!("warning: the file of rates {path} is not used: {why}"));
            None
        }
    }
}

fn part(bytes: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { bytes as f64 / of as f64 }
}

/// Log set, stream and backend: bytes that were written there, and in how many data logs.
type Wrote = BTreeMap<(u32, u16, Option<u16>), (u64, u32)>;

fn wrote(records: &Records) -> Wrote {
    let mut wrote = Wrote::new();
    let key = |at: &StreamAt| (at.set, at.stream, at.backend);
    for at in &records.streams {
        wrote.entry(key(at)).or_default().1 += 1;
    }
    for record in &records.records {
        if let RecordKind::Run(run) = &record.said
            && let Some(at) = records.streams.get(run.segment as usize)
        {
            let bytes = &mut wrote.entry(key(at)).or_default().0;
            *bytes = bytes.saturating_add(run.bytes());
        }
    }
    wrote
}

/// What the file's placement makes of what is known now, for as many bytes as the file has; or why
/// that cannot be said.
fn decide(
    container: &Container,
    ids: &[u16],
    known: &[TargetKnown],
    size: u64,
) -> Result<Decision, String> {
    let listed = |id: &u16| container.superblock.backends.contains(id);
    let takes = ids.iter().zip(known).filter(|(id, _)| listed(id));
    let (mut measured, mut unknown) = (Vec::new(), 0);
    for (id, known) in takes {
        match known.bytes_s {
            // What one stream more would get.
            Some(bytes_s) => measured.push(Measurement {
                target: (*id).into(),
                bandwidth_bytes_s: bytes_s / (known.writers + 1) as f64,
                others: u32::try_from(known.writers).ok(),
            }),
            None => unknown += 1,
        }
    }
    if unknown > 0 {
        return Err(format!(
            "{} not been measured by this node: all are taken for as fast as the fastest; `plfs \
             probe` measures them",
            match unknown {
                1 => "1 target has".into(),
                n => format!("{n} targets have"),
            }
        ));
    }
    let policy = match container.placement {
        Placement::Measured => Policy::Proportional,
        Placement::Equal => Policy::Equal,
        Placement::Cliff => Policy::Cliff,
    };
    let work = Work { bytes: size, send_bytes_s: None, create_s: CREATE_S, index_s: 0.0 };
    choose::choose(policy, &measured, &work).map_err(|error| error.to_string())
}

impl Decided {
    fn new(decision: &Decision) -> Decided {
        let Prediction { load, .. } = decision.predicted;
        let seconds = decision.predicted.total_s();
        Decided {
            streams: decision.chosen.len(),
            text: decision.to_string(),
            predicted_s: seconds,
            predicted_bytes_s: decision.work.bytes as f64 / seconds.max(1e-9),
            load,
            left_out: decision.left_out.iter().map(|one| format!("{:04x}", one.target)).collect(),
        }
    }
}

fn print(out: &mut Out, explained: &Explained) -> Result<(), Fail> {
    let Explained { path, size, placement, placement_from, targets, .. } = explained;
    out.line(format_args!(
        "{}: {}, placement {placement} ({placement_from})",
        show(&path.0),
        in_bytes(*size)
    ))?;
    out.line(format_args!(
        "\n{:6} {:>9} {:>9} {:>9} {:>9} {:>8} {:>8} {:>14}  directory",
        "target", "MB/s", "median", "99 %", "age", "decided", "share", "bytes"
    ))?;
    for one in targets {
        let dash = || "-".to_string();
        let appends = one.appends.as_ref();
        out.line(format_args!(
            "{:6} {:>9} {:>9} {:>9} {:>9} {:>8} {:>8} {:>14}  {}",
            one.id,
            one.bytes_s.map_or_else(dash, mb_s),
            appends.map_or_else(dash, |appends| short(appends.median_s)),
            appends.map_or_else(dash, |appends| short(appends.p99_s)),
            one.age_s.map_or_else(dash, short),
            one.decided_share.map_or_else(dash, |share| format!("{:.1} %", share * 100.0)),
            format!("{:.1} %", one.share * 100.0),
            one.written_bytes,
            one.path.as_ref().map_or_else(|| "not there".into(), |path| show(&path.0)),
        ))?;
        for Inside { target, bytes_s, age_s } in &one.inside {
            let (target, bytes_s, age) = (show(&target.0), mb_s(*bytes_s), short(*age_s));
            out.line(format_args!("{:6} {bytes_s:>9} {:>9} {:>9} {age:>9}  {target}", "", "", ""))?;
        }
        if let Some(s) = one.given_up_s {
            let since = short(s);
            out.line(format_args!(
                "{:6} given up {since} ago: an append there took longer than deadline_s",
                ""
            ))?;
        }
        if let Some(probe) = &one.probe {
            out.line(format_args!("{:6} {}", "", probe.words()))?;
        }
    }
    for one in explained.site.iter().flatten() {
        out.line(format_args!(
            "{}: {} MB/s, {} said {}",
            show(&one.path.0),
            mb_s(one.bytes_s),
            one.host,
            one.seen
        ))?;
    }
    match (&explained.decision, &explained.undecided) {
        (Some(decided), _) => {
            out.line(format_args!("\ndecision: {}", decided.text))?;
            out.line(format_args!(
                "predicted: {} in {}, {} MB/s, load {:.2}",
                in_bytes(*size),
                short(decided.predicted_s),
                mb_s(decided.predicted_bytes_s),
                decided.load
            ))?;
        }
        (None, Some(why)) => out.line(format_args!("\nno decision: {why}"))?,
        (None, None) => {}
    }
    out.line(format_args!(
        "\nwritten: {} to {}",
        in_bytes(explained.written_bytes),
        several(explained.streams.len() as u64, "stream")
    ))?;
    for stream in &explained.streams {
        let target = stream.target.as_deref().unwrap_or("base");
        out.line(format_args!(
            "  {}.{:02x}  {target}  {:>14}  {}",
            stream.set,
            stream.stream,
            stream.bytes,
            several(stream.segments.into(), "data log")
        ))?;
    }
    Ok(())
}
