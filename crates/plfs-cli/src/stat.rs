//! `plfs stat` and `plfs flatten`.

use std::path::{Path, PathBuf};

use plfs_core::pack::PackStat;
use plfs_core::store::{Kind, Links};
use plfs_core::{
    BackendState, Container, Decision, Error, FileStat, FlatState, FlatTotals, OpenMark, Plfs,
    Unreachable, Workload, decision_of,
};
use serde::Serialize;

use crate::layout::Shown;
use crate::mount::behind;
use crate::out::{self, Fail, JsonPath, Out, absolute, count, in_bytes, say, several, show, time};

#[derive(Serialize)]
struct Mark {
    set: String,
    host: String,
    pid: u32,
    uid: u32,
    attached: String,
}

impl From<OpenMark> for Mark {
    fn from(mark: OpenMark) -> Mark {
        let attached = time((mark.attached_ns / 1_000_000_000) as i64, 0);
        Mark {
            set: format!("{:08x}", mark.set),
            host: mark.host,
            pid: mark.pid,
            uid: mark.uid,
            attached,
        }
    }
}

/// A backend that new log sets of the file use.
#[derive(Serialize)]
struct Backend {
    id: String,
    /// active, draining or gone; unknown if the table does not say.
    state: &'static str,
    /// Where it is, if it is there.
    path: Option<JsonPath>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl Backend {
    fn new(container: &Container, id: u16) -> Backend {
        let state = container.backend_state(id);
        let found = container.backend_root(id);
        let path = found.as_ref().ok().map(JsonPath::of);
        Backend {
            id: format!("{id:04x}"),
            state: state.map_or("unknown", BackendState::word),
            path,
            // One that is out of use need not be there.
            error: found
                .err()
                .filter(|_| state != Some(BackendState::Gone))
                .map(|error| out::without_numbers(&error.to_string())),
        }
    }
}

/// What lies on a backend that is not there.
#[derive(Serialize)]
struct Missing {
    backend: String,
    error: String,
    bytes: u64,
    /// From and to, the first ones.
    ranges: Vec<(u64, u64)>,
    #[serde(skip)]
    words: String,
}

impl From<Unreachable> for Missing {
    fn from(found: Unreachable) -> Missing {
        Missing {
            backend: format!("{:04x}", found.backend),
            error: found.why.to_string(),
            bytes: found.bytes,
            words: found.in_words(),
            ranges: found.ranges,
        }
    }
}

#[derive(Serialize)]
struct Stat {
    path: JsonPath,
    size: u64,
    uuid: String,
    container: JsonPath,
    /// Of one that was a plain file before: bytes that programs without PLFS see.
    #[serde(skip_serializing_if = "Option::is_none")]
    base_bytes: Option<u64>,
    stored_bytes: u64,
    log_sets: u32,
    data_logs: u32,
    index_logs: u32,
    index_bytes: u64,
    records: u64,
    index_bytes_per_gib: Option<u64>,
    open_marks: Vec<Mark>,
    backends: Vec<Backend>,
    /// What cannot be read, because a backend is not there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unreachable: Vec<Missing>,
    mode: String,
    uid: u32,
    gid: u32,
    mtime: String,
    nlink: u64,
    flat: String,
    flat_index: Option<Flat>,
    summary: &'static str,
    /// Streams of each log set, as recorded when it was created.
    streams: u16,
    /// What new files beside it are laid out by.
    layout: Option<Shown>,
    #[serde(skip)]
    created: String,
}

/// A flat index that readers use.
#[derive(Serialize)]
struct Flat {
    bytes: u64,
    in_superblock: bool,
    bytes_per_gib: Option<u64>,
    records: u64,
    entries: u64,
    extents: u64,
    shapes: u64,
    floor: u64,
}

impl Flat {
    fn new(flat: FlatTotals, stored: u64) -> Flat {
        let FlatTotals { bytes, in_superblock, records, entries, extents, shapes, floor } = flat;
        Flat {
            bytes,
            in_superblock,
            bytes_per_gib: per_gib(bytes, stored),
            records,
            entries,
            extents,
            shapes,
            floor,
        }
    }
}

/// Bytes of index for each GiB of data; not given below 1 MiB, where it means nothing.
fn per_gib(index: u64, stored: u64) -> Option<u64> {
    (stored >= 1 << 20).then(|| (u128::from(index) << 30).div_ceil(u128::from(stored)) as u64)
}

#[derive(Serialize)]
struct Dir {
    layout: Shown,
}

/// A file that is plain, and that PLFS may make a container of, or not any more.
#[derive(Serialize)]
struct Plain {
    path: JsonPath,
    plain: bool,
    /// Why it stays plain.
    pinned: Option<String>,
    /// Of a file that is not plain: the pack that has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pack: Option<JsonPath>,
    size: u64,
    mode: String,
    uid: u32,
    gid: u32,
    mtime: String,
    nlink: u64,
}

#[derive(Serialize)]
struct Failed {
    path: JsonPath,
    error: String,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Answer {
    Stat(Box<Stat>),
    Dir(Box<Dir>),
    Plain(Plain),
    Failed(Failed),
}

pub fn stat(out: &mut Out, json: bool, files: &[PathBuf]) -> Result<(), Fail> {
    let plfs = out::plfs()?;
    let (mut answers, mut failed) = (Vec::new(), false);
    for (i, path) in files.iter().enumerate() {
        match look(&plfs, path) {
            Ok(answer) if json => answers.push(answer),
            Ok(answer) => {
                if i > 0 {
                    out.line("")?;
                }
                match answer {
                    Answer::Stat(stat) => print(out, path, &stat)?,
                    Answer::Dir(dir) => {
                        out.line(format_args!("{:>14}  {}", "directory", show(path)))?;
                        dir.layout.print(out)?;
                    }
                    Answer::Plain(plain) => print_plain(out, path, &plain)?,
                    Answer::Failed(_) => {}
                }
            }
            Err(error) => {
                failed = true;
                say("stat", &error.to_string());
                answers.push(Answer::Failed(Failed {
                    path: JsonPath::of(path),
                    error: out::without_numbers(&error.to_string()),
                }));
            }
        }
    }
    match (json, answers.as_slice()) {
        (true, [one]) => out.json(one)?,
        (true, all) => out.json(&all)?,
        (false, _) => {}
    }
    if failed { out.end().and(Err(Fail::Printed)) } else { Ok(()) }
}

fn look(plfs: &Plfs, path: &Path) -> Result<Answer, Error> {
    let full = behind(std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf()))?;
    let found = plfs.stat(&full, Links::Follow)?;
    if let Some(packed) = plfs.packed_stat(&full)? {
        return Ok(Answer::Plain(of_packed(path, &full, &packed)));
    }
    if found.stat.kind == Kind::Dir {
        return Ok(Answer::Dir(Box::new(Dir { layout: Shown::new(plfs, &full)? })));
    }
    let (Some(totals), Some((container, superblock))) =
        (found.totals, plfs.container_behind(&full, Links::Follow)?)
    else {
        return Err(match found.stat.kind {
            Kind::File => {
                let place = plfs.placed(&full, Links::Follow)?;
                let plain = of_plain(plfs, path, &place, &found)?;
                let not_ours = || Error::NotAContainer { path: path.to_path_buf() };
                return plain.map(Answer::Plain).ok_or_else(not_ours);
            }
            _ => Error::Invalid {
                what: "stat wants PLFS files and directories; this is a special file",
                errno: plfs_core::store::Errno::INVAL,
            },
        });
    };
    let (flat, flat_index) = match plfs_core::flat_state(&container)? {
        FlatState::None => ("none".into(), None),
        FlatState::Used(flat) => ("used".into(), Some(Flat::new(flat, totals.stored_bytes))),
        FlatState::Stale(why) | FlatState::Damaged(why) => (format!("ignored: {why}"), None),
    };
    let stat = found.stat;
    Ok(Answer::Stat(Box::new(Stat {
        path: JsonPath::of(path),
        size: stat.len,
        uuid: superblock.uuid.to_string(),
        container: JsonPath::of(&container.dir),
        base_bytes: container.base_len()?,
        stored_bytes: totals.stored_bytes,
        log_sets: totals.log_sets,
        data_logs: totals.data_logs,
        index_logs: index_logs(&container),
        index_bytes: totals.index_bytes,
        records: totals.records,
        index_bytes_per_gib: per_gib(totals.index_bytes, totals.stored_bytes),
        open_marks: plfs_core::open_marks(&container)?.into_iter().map(Mark::from).collect(),
        backends: superblock.backends.iter().map(|id| Backend::new(&container, *id)).collect(),
        // A file whose index cannot be read either has other troubles, which check tells.
        unreachable: plfs_core::unreachable(&container)
            .unwrap_or_default()
            .into_iter()
            .map(Missing::from)
            .collect(),
        mode: format!("{:04o}", stat.mode),
        uid: stat.uid,
        gid: stat.gid,
        mtime: time(stat.mtime.sec, stat.mtime.nsec),
        nlink: stat.nlink,
        flat,
        flat_index,
        summary: if totals.from_summary { "valid" } else { "none" },
        streams: superblock.streams,
        // Of a file in a directory that may not be looked at, or whose layout is damaged, the rest
        // is still so.
        layout: full.parent().and_then(|dir| Shown::new(plfs, dir).ok()),
        created: time((superblock.created_ns / 1_000_000_000) as i64, 0),
    })))
}

/// A file of a pack.
fn of_packed(path: &Path, full: &Path, packed: &PackStat) -> Plain {
    let pack = full.with_file_name(plfs_core::PACK_NAME);
    Plain {
        path: JsonPath::of(path),
        plain: false,
        pinned: None,
        pack: Some(JsonPath::of(pack)),
        size: packed.size,
        mode: format!("{:04o}", packed.mode),
        uid: packed.uid,
        gid: packed.gid,
        mtime: time(packed.mtime.sec, packed.mtime.nsec),
        nlink: 1,
    }
}

/// A file that was born plain, or of which something is decided; `None`: it is none of PLFS's
/// business.
fn of_plain(
    plfs: &Plfs,
    path: &Path,
    full: &Path,
    found: &FileStat,
) -> Result<Option<Plain>, Error> {
    let decision = decision_of(plfs.store().as_ref(), full)?;
    if decision.is_none() && plfs.workload_of(full)? != Workload::Auto {
        return Ok(None);
    }
    let stat = found.stat;
    Ok(Some(Plain {
        path: JsonPath::of(path),
        plain: true,
        pack: None,
        pinned: match decision {
            Some(Decision::Plain(why)) => Some(why),
            Some(Decision::Container { ino, .. }) if ino != stat.ino => {
                Some("it is a copy of a file that has a container".into())
            }
            _ => None,
        },
        size: stat.len,
        mode: format!("{:04o}", stat.mode),
        uid: stat.uid,
        gid: stat.gid,
        mtime: time(stat.mtime.sec, stat.mtime.nsec),
        nlink: stat.nlink,
    }))
}

fn print_plain(out: &mut Out, path: &Path, plain: &Plain) -> Result<(), Fail> {
    let mut field = |name: &str, value: String| out.line(format_args!("{name:>14}  {value}"));
    field("file", show(path))?;
    field("size", in_bytes(plain.size))?;
    match (&plain.pack, &plain.pinned) {
        (Some(pack), _) => field("pack", show(&pack.0))?,
        (None, None) => field("plain", "until several processes write it".into())?,
        (None, Some(why)) => field("plain", format!("for ever: {}", show(Path::new(why))))?,
    }
    field("mode", mode(&plain.mode, plain.uid, plain.gid, plain.nlink))?;
    field("modified", plain.mtime.clone())
}

fn mode(mode: &str, uid: u32, gid: u32, names: u64) -> String {
    let s = if names == 1 { "" } else { "s" };
    format!("{mode}, uid {uid}, gid {gid}, {names} name{s}")
}

/// Log sets that have an index log: one that was never written has none.
fn index_logs(container: &Container) -> u32 {
    let sets = container.store.list(&container.dir).unwrap_or_default();
    sets.iter()
        .filter(|set| {
            container
                .store
                .stat(&container.dir.join(&set.name).join("index"), Links::Follow)
                .is_ok()
        })
        .count() as u32
}

fn print(out: &mut Out, path: &Path, stat: &Stat) -> Result<(), Fail> {
    let mut field = |name: &str, value: String| out.line(format_args!("{name:>14}  {value}"));
    field("file", show(path))?;
    field("size", in_bytes(stat.size))?;
    field(
        "stored",
        format!(
            "{} in {} of {}",
            in_bytes(stat.stored_bytes),
            several(stat.data_logs.into(), "data log"),
            several(stat.log_sets.into(), "log set")
        ),
    )?;
    if let Some(bytes) = stat.base_bytes {
        field("base", format!("{} in place: it was a plain file before", in_bytes(bytes)))?;
    }
    let written = format!(
        "{} in {}, {} written",
        in_bytes(stat.index_bytes),
        several(stat.index_logs.into(), "index log"),
        several(stat.records, "record")
    );
    field("index", written)?;
    match &stat.flat_index {
        // A pattern across writers is one entry; what has no pattern is packed as extents.
        Some(flat) => {
            let place = if flat.in_superblock { " in the superblock" } else { "" };
            let kept = format!(
                "{}{place}, {} and {} kept",
                in_bytes(flat.bytes),
                several(flat.entries, "entry"),
                several(flat.extents, "extent")
            );
            field("flat index", format!("used: {kept}; {}", several(flat.shapes, "shape")))?;
        }
        None => field("flat index", stat.flat.clone())?,
    }
    if let Some(logs) = stat.index_bytes_per_gib {
        let flat = stat
            .flat_index
            .as_ref()
            .and_then(|flat| flat.bytes_per_gib)
            .map(|flat| format!(", {} in the flat index", count(flat)))
            .unwrap_or_default();
        field("index per GiB", format!("{} in index logs{flat}", several(logs, "byte")))?;
    }
    field(
        "summary",
        if stat.summary == "valid" {
            "valid".into()
        } else {
            "none: sizes come from the index logs".into()
        },
    )?;
    field("mode", mode(&stat.mode, stat.uid, stat.gid, stat.nlink))?;
    field("created", stat.created.clone())?;
    field("modified", stat.mtime.clone())?;
    field("uuid", stat.uuid.clone())?;
    field("container", show(&stat.container.0))?;
    if stat.backends.len() > 1 {
        for Backend { id, state, path, error } in &stat.backends {
            let place =
                path.as_ref().map(|path| show(&path.0)).or(error.clone()).unwrap_or_default();
            let state = if *state == "active" { String::new() } else { format!("{state}  ") };
            field("backend", format!("{id}  {state}{place}"))?;
        }
    }
    for Missing { error, words, .. } in &stat.unreachable {
        field("unreachable", format!("{words}; {error}"))?;
    }
    field("streams", format!("{} of each log set, recorded in the file", stat.streams))?;
    field(
        "beside it",
        stat.layout.as_ref().map_or(
            "a layout that cannot be read: see `plfs stat` of the directory".into(),
            |layout| format!("new files: {}", show(Path::new(&layout.line()))),
        ),
    )?;
    match stat.open_marks.as_slice() {
        [] => field("open by", "nobody".into()),
        marks => marks.iter().try_for_each(|mark| {
            field(
                "open by",
                format!(
                    "host {}, process {}, uid {}, since {} (log set {})",
                    mark.host, mark.pid, mark.uid, mark.attached, mark.set
                ),
            )
        }),
    }
}

pub fn flatten(out: &mut Out, files: &[PathBuf]) -> Result<(), Fail> {
    let plfs = out::plfs()?;
    let mut failed = false;
    for path in files {
        let full = absolute(path)?;
        let made = behind(full.clone()).and_then(|at| plfs.flatten(&at));
        match made.map_err(|error| out::or_absent(&plfs, &full, error)) {
            Ok(made) => out.line(format_args!(
                "{}: {}, {}",
                show(path),
                several(made.entries, "entry"),
                several(made.bytes, "byte")
            ))?,
            Err(error) => {
                failed = true;
                say("flatten", &error.to_string());
            }
        }
    }
    if failed { out.end().and(Err(Fail::Printed)) } else { Ok(()) }
}
