//! `plfs probe`, and what is said of targets.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use plfs_core::store::{PosixStore, Probe, Store};
use plfs_core::{Config, Error, Probed, TargetPlace, targets_of};
use serde::Serialize;

use crate::out::{self, Fail, JsonPath, Out, say, several, show, time};

/// How to probe.
pub struct Wanted {
    pub size: Option<u64>,
    pub time: f64,
    pub json: bool,
}

/// Bytes for a target, on the command line.
pub fn size(text: &str) -> Result<u64, String> {
    match out::bytes(text)? {
        0 => Err("0 bytes measure nothing".into()),
        bytes => Ok(bytes),
    }
}

/// Seconds, on the command line.
pub fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|s: &f64| *s > 0.0 && *s <= 3600.0);
    seconds.ok_or_else(|| format!("{text} is not a number of seconds, above 0 and up to 3600"))
}

/// What a probe found of a target.
#[derive(Serialize)]
pub struct Found {
    bytes_s: f64,
    bytes: u64,
    median_s: f64,
    p99_s: f64,
    /// Whether it went by the page cache, with a sync of each append.
    cached: bool,
    measured: String,
    by: By,
}

#[derive(Serialize)]
struct By {
    host: String,
    pid: u32,
}

impl Found {
    pub fn new(probe: &Probe) -> Found {
        let Probe { bytes_s, bytes, median_s, most_s, pid, cached, age_ns } = *probe;
        let ended = SystemTime::now() - Duration::from_nanos(age_ns);
        let sec = ended.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64);
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let by = By { host, pid };
        Found { bytes_s, bytes, median_s, p99_s: most_s, cached, measured: time(sec, 0), by }
    }

    /// The same in a line.
    pub fn words(&self) -> String {
        format!(
            "probed {}: {} MB/s, median {}, 99 % {}",
            self.measured,
            mb_s(self.bytes_s),
            short(self.median_s),
            short(self.p99_s)
        )
    }
}

#[derive(Serialize)]
struct Row {
    /// The backend of the root that it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    path: JsonPath,
    /// A target inside the directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<JsonPath>,
    /// Another process measured it, and this one waited for that.
    shared: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    found: Option<Found>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

#[derive(Serialize)]
struct Answer {
    seconds: f64,
    targets: Vec<Row>,
}

impl Row {
    fn new(place: &TargetPlace, probed: Result<(&Probe, bool), String>) -> Row {
        let (found, shared, error) = match probed {
            Ok((probe, shared)) => (Some(Found::new(probe)), shared, None),
            Err(error) => (None, false, Some(out::without_numbers(&error))),
        };
        let id = place.backend.map(|id| format!("{id:04x}"));
        let target = place.inside.map(|_| JsonPath::of(&place.key));
        Row { id, path: JsonPath::of(&place.path), target, shared, found, error }
    }
}

/// Bandwidth for people.
pub fn mb_s(bytes_s: f64) -> String {
    let mb_s = bytes_s / 1e6;
    if mb_s < 100.0 { format!("{mb_s:.1}") } else { format!("{mb_s:.0}") }
}

/// A short time for people.
pub fn short(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{:.0} us", s * 1e6),
        s if s < 1.0 => format!("{:.1} ms", s * 1e3),
        s => format!("{s:.1} s"),
    }
}

/// The targets of the trees that these directories are in, each once.
fn places(store: &Arc<dyn Store>, config: &Config, dirs: &[PathBuf]) -> Vec<TargetPlace> {
    let mut places: Vec<TargetPlace> = Vec::new();
    for dir in dirs {
        let of_dir = match std::fs::canonicalize(dir) {
            Ok(full) => targets_of(store, config, &full),
            Err(why) => Err(Error::Io {
                op: "use",
                path: dir.clone(),
                errno: plfs_core::store::Errno::from_io_error(&why)
                    .unwrap_or(plfs_core::store::Errno::IO),
            }),
        };
        let of_dir = of_dir.unwrap_or_else(|error| {
            let (path, key) = (dir.clone(), dir.clone());
            let missing = Some(error);
            vec![TargetPlace { backend: None, root: None, path, key, inside: None, missing }]
        });
        for place in of_dir {
            if !places.iter().any(|known| known.key == place.key) {
                places.push(place);
            }
        }
    }
    places
}

pub fn probe(out: &mut Out, wanted: &Wanted, dirs: &[PathBuf]) -> Result<(), Fail> {
    let config = Config::from_env().map_err(|text| Fail::Exit(2, text))?;
    let store: Arc<dyn Store> = Arc::new(PosixStore::new());
    let begun = std::time::Instant::now();
    let places = places(&store, &config, dirs);
    let limit = Duration::from_secs_f64(wanted.time);
    let probed = plfs_core::probe(&store, &config, &places, wanted.size, limit);
    let seconds = begun.elapsed().as_secs_f64();
    let rows: Vec<Row> = places
        .iter()
        .zip(&probed)
        .map(|(place, probed)| match probed {
            Probed::Measured(probe) => Row::new(place, Ok((probe, false))),
            Probed::ByAnother(probe) => Row::new(place, Ok((probe, true))),
            Probed::Failed(error) => Row::new(place, Err(error.to_string())),
        })
        .collect();
    if let Err(why) = plfs_core::tell_site(&store, &config, &places) {
        say("probe", &format!("warning: {why}"));
    }
    let has_failed = rows.iter().any(|row| row.error.is_some());
    let answer = Answer { seconds, targets: rows };
    match wanted.json {
        true => out.json(&answer)?,
        false => print(out, &answer)?,
    }
    match has_failed {
        true => Err(Fail::Printed),
        false => Ok(()),
    }
}

fn print(out: &mut Out, answer: &Answer) -> Result<(), Fail> {
    let name = |row: &Row| match &row.id {
        Some(id) => format!("{id}  {}", show(&row.target.as_ref().unwrap_or(&row.path).0)),
        None => show(&row.target.as_ref().unwrap_or(&row.path).0),
    };
    let width = answer.targets.iter().map(|row| name(row).len()).max().unwrap_or(0).max(6);
    out.line(format_args!(
        "{:width$}  {:>9}  {:>9}  {:>9}  measured",
        "target", "MB/s", "median", "99 %"
    ))?;
    for row in &answer.targets {
        let name = name(row);
        let Some(found) = &row.found else {
            let why = row.error.as_deref().unwrap_or_default();
            out.line(format_args!("{name:width$}  not measured: {why}"))?;
            say("probe", why);
            continue;
        };
        let how =
            if found.cached { "by writes and syncs: no O_DIRECT there" } else { "by O_DIRECT" };
        let who = match row.shared {
            true => format!("by process {} meanwhile", found.by.pid),
            false => format!("by process {}", found.by.pid),
        };
        out.line(format_args!(
            "{name:width$}  {:>9}  {:>9}  {:>9}  {} {who} of {}, {} {how}",
            mb_s(found.bytes_s),
            short(found.median_s),
            short(found.p99_s),
            found.measured,
            found.by.host,
            out::in_bytes(found.bytes),
        ))?;
    }
    let targets = several(answer.targets.len() as u64, "target");
    out.line(format_args!("{targets} in {:.2} s", answer.seconds))
}
