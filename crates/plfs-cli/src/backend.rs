//! `plfs backend`.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use indicatif::ProgressBar;
use plfs_core::store::{PosixStore, Store};
use plfs_core::{BackendStatus, Config, Drained, Error, Held, Left, Presence, Progress, SETTLES};
use serde::Serialize;

use crate::BackendCommand;
use crate::out::{self, Fail, Out, absolute, count, in_bytes, progress, say, several, show};

pub fn backend(out: &mut Out, what: BackendCommand) -> Result<(), Fail> {
    let config = Config::from_env().map_err(|text| Fail::Exit(2, text))?;
    let store: Arc<dyn Store> = Arc::new(PosixStore::new());
    match what {
        BackendCommand::Add { root, dir } => {
            let id =
                plfs_core::join_backend(&store, &config, &absolute(&root)?, &directory(&dir)?)?;
            out.line(format_args!("{id:04x}"))
        }
        BackendCommand::Status { json, root } => {
            let rows = plfs_core::backends(&store, &config, &absolute(&root)?)?;
            let rows: Vec<Row> = rows.into_iter().map(Row::new).collect();
            if json { out.json(&rows) } else { print(out, &rows) }
        }
        BackendCommand::Move { root, id, dir } => {
            let (root, dir) = (absolute(&root)?, directory(&dir)?);
            plfs_core::move_backend(&store, &config, &root, id, &dir)?;
            out.line(format_args!("backend {id:04x} is at {}", show(&dir)))
        }
        BackendCommand::Drain { root, id, to } => drain(out, &store, &config, (&root, id), &to),
        BackendCommand::Rm { root, id } => {
            plfs_core::remove_backend(&store, &config, &absolute(&root)?, id, SETTLES)?;
            out.line(format_args!("backend {id:04x} is gone: nothing looks there any more"))
        }
    }
}

/// An id on the command line.
pub fn id(text: &str) -> Result<u16, String> {
    let is_id = (1..=4).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit());
    u16::from_str_radix(text, 16).ok().filter(|_| is_id).ok_or_else(|| {
        format!("{text} is no id: four hex digits, as `plfs backend status` shows them")
    })
}

/// A directory that is there, by the path that all nodes know.
fn directory(path: &Path) -> Result<PathBuf, Fail> {
    std::fs::canonicalize(path).map_err(|error| Fail::on("use the backend", path, error))
}

#[derive(Serialize)]
struct Row {
    id: String,
    path: String,
    /// active, draining or gone; unknown if the entry cannot be read.
    state: &'static str,
    /// there, missing, wrong (another backend is there) or unknown.
    presence: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    total_bytes: Option<u64>,
    free_bytes: Option<u64>,
    /// Of files of the root.
    files: u64,
    segments: u64,
    bytes: u64,
    /// Of no file of the root.
    foreign_segments: u64,
    foreign_bytes: u64,
    /// Directories that have names of flat ones.
    shadows: u64,
}

impl Row {
    fn new(row: BackendStatus) -> Row {
        let BackendStatus { id, path, state, presence, space, held, foreign, shadows } = row;
        let Held { files, segments, bytes } = held;
        Row {
            id: format!("{id:04x}"),
            path: show(&path),
            state: state.map_or("unknown", |state| state.word()),
            presence: match &presence {
                Presence::There => "there",
                Presence::Not(Error::MissingBackend { .. }) => "missing",
                Presence::Not(Error::WrongBackend { .. }) => "wrong",
                Presence::Not(_) => "unknown",
            },
            error: match presence {
                Presence::There => None,
                Presence::Not(error) => Some(out::without_numbers(&error.to_string())),
            },
            total_bytes: space.map(|space| space.total),
            free_bytes: space.map(|space| space.available),
            files,
            segments,
            bytes,
            foreign_segments: foreign.segments,
            foreign_bytes: foreign.bytes,
            shadows,
        }
    }
}

fn print(out: &mut Out, rows: &[Row]) -> Result<(), Fail> {
    out.line(format_args!(
        "{:<4}  {:<8}  {:<8}  {:>20}  {:>8}  {:>9}  {:>20}  path",
        "id", "state", "where", "free bytes", "files", "data logs", "bytes"
    ))?;
    for row in rows {
        out.line(format_args!(
            "{:<4}  {:<8}  {:<8}  {:>20}  {:>8}  {:>9}  {:>20}  {}",
            row.id,
            row.state,
            row.presence,
            row.free_bytes.map_or("-".into(), count),
            count(row.files),
            count(row.segments),
            count(row.bytes),
            row.path
        ))?;
        if let Some(error) = &row.error {
            out.line(format_args!("      {error}"))?;
        }
        if row.shadows > 0 && row.id != "0000" {
            out.line(format_args!(
                "      names of flat directories are there, or may be ({})",
                several(row.shadows, "place")
            ))?;
        }
        if row.foreign_segments > 0 {
            out.line(format_args!(
                "      {} more data logs there, {}, are of no file of this root: of another \
                 root, or of files that were removed while the backend was not there",
                count(row.foreign_segments),
                in_bytes(row.foreign_bytes)
            ))?;
        }
    }
    Ok(())
}

fn drain(
    out: &mut Out,
    store: &Arc<dyn Store>,
    config: &Config,
    (root, id): (&Path, u16),
    to: &[u16],
) -> Result<(), Fail> {
    // An interrupted drain removes its copy and its open mark.
    let stop = out::stop()?;
    let full = absolute(root)?;
    let pass = || -> Result<Drained, Fail> {
        let bar = std::cell::Cell::new(None::<ProgressBar>);
        let tell = |told: Progress| {
            let now = bar.take().unwrap_or_else(|| progress(told.all_bytes));
            now.set_position(told.done_bytes);
            bar.set(Some(now));
            match stop.load(Ordering::Relaxed) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        };
        let end = || bar.take().iter().for_each(ProgressBar::finish_and_clear);
        let done = plfs_core::drain(store, config, &full, id, to, tell);
        end();
        let mut done = done?;
        // Names of flat directories, with their files.
        let flat = out::plfs()?.drain_flat(&full, id, to, SETTLES, tell);
        end();
        let flat = flat?;
        done.files += flat.files;
        done.copied_bytes += flat.copied_bytes;
        done.left.extend(flat.left);
        Ok(done)
    };
    let begun = std::time::Instant::now();
    let first = pass()?;
    // Who began to write before and did not know yet that the backend is being drained.
    std::thread::sleep(SETTLES.saturating_sub(begun.elapsed()));
    let last = pass()?;
    let (files, copied) =
        (first.files + last.files, in_bytes(first.copied_bytes + last.copied_bytes));
    for Left { names, container, bytes, why } in &last.left {
        let names: Vec<String> = names.iter().map(|name| show(name)).collect();
        let name = if names.is_empty() { show(container) } else { names.join(", ") };
        say("backend", &format!("{name}: {} stay: {why}", in_bytes(*bytes)));
    }
    let shown = show(root);
    if last.left.is_empty() {
        return out.line(format_args!(
            "backend {id:04x} is empty: moved {}, copied {copied}; `plfs backend rm \
             {shown} {id:04x}` takes it out of use",
            several(files, "file")
        ));
    }
    out.end()?;
    Err(Fail::Say(format!(
        "backend {id:04x} still has data of {}, and {} moved; it takes nothing new: run \
         the command again when they are closed, or mended",
        several(last.left.len() as u64, "file"),
        match files {
            1 => "1 was".into(),
            n => format!("{} were", count(n)),
        }
    )))
}
