//! `plfs compact`.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use plfs_core::pack::PackUsage;
use plfs_core::{Plfs, Usage};
use serde::Serialize;

use crate::mount::behind;
use crate::out::{self, Fail, JsonPath, Out, in_bytes, progress, say, several, show, size};

/// When to compact.
pub struct Wanted {
    pub dry_run: bool,
    pub force: bool,
    /// Least share of dead bytes, percent.
    pub at_least: u8,
    pub json: bool,
}

#[derive(Serialize)]
struct Answer {
    path: JsonPath,
    live_bytes: u64,
    stored_bytes: u64,
    dead_bytes: u64,
    compacted: bool,
    freed_bytes: u64,
    error: Option<String>,
}

pub fn compact(out: &mut Out, wanted: &Wanted, files: &[PathBuf]) -> Result<(), Fail> {
    let plfs = out::plfs()?;
    // An interrupted compaction removes its copy and its open mark.
    let stop = out::stop()?;
    let mut answers = Vec::new();
    for path in files {
        let done = one(&plfs, wanted, path, &stop);
        match &done {
            Ok(_) if wanted.json => {}
            Ok(answer) => out.line(in_words(wanted, path, answer))?,
            Err(error) => say("compact", &format!("{}: {error}", show(path))),
        }
        answers.push(done.unwrap_or_else(|error| Answer {
            path: JsonPath::of(path),
            live_bytes: 0,
            stored_bytes: 0,
            dead_bytes: 0,
            compacted: false,
            freed_bytes: 0,
            error: Some(out::without_numbers(&error.to_string())),
        }));
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    if wanted.json {
        out.json(&answers)?;
    }
    let rest = files.len() - answers.len();
    if rest > 0 {
        let rest = several(rest as u64, "more file");
        say("compact", &format!("interrupted: {rest} left as before"));
    }
    match rest > 0 || answers.iter().any(|answer| answer.error.is_some()) {
        true => out.end().and(Err(Fail::Printed)),
        false => Ok(()),
    }
}

fn one(
    plfs: &Plfs,
    wanted: &Wanted,
    path: &Path,
    stop: &AtomicBool,
) -> Result<Answer, plfs_core::Error> {
    let full = behind(std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf()))?;
    let pack = plfs.pack(&full)?;
    let usage = match &pack {
        Some(pack) => {
            let PackUsage { stored_bytes, live_bytes } = pack.usage()?;
            Usage { stored_bytes, live_bytes }
        }
        None => plfs.usage(&full).map_err(|error| out::or_absent(plfs, &full, error))?,
    };
    let Usage { stored_bytes, live_bytes } = usage;
    let worth = wanted.force
        || (usage.dead_bytes() > 0
            && u128::from(usage.dead_bytes()) * 100
                >= u128::from(stored_bytes) * u128::from(wanted.at_least));
    let mut answer = Answer {
        path: JsonPath::of(path),
        live_bytes,
        stored_bytes,
        dead_bytes: usage.dead_bytes(),
        compacted: false,
        freed_bytes: 0,
        error: None,
    };
    if let Some(pack) = pack.filter(|_| worth && !wanted.dry_run) {
        pack.compact()?;
        let left = pack.usage()?.stored_bytes;
        (answer.compacted, answer.freed_bytes) = (true, stored_bytes.saturating_sub(left));
    } else if worth && !wanted.dry_run {
        let bar = progress(live_bytes);
        let done = plfs.compact(&full, |copied| {
            bar.set_position(copied);
            if stop.load(Ordering::Relaxed) {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        bar.finish_and_clear();
        let done = done?;
        (answer.compacted, answer.freed_bytes) =
            (true, done.stored_before.saturating_sub(done.stored_after));
    }
    Ok(answer)
}

fn in_words(wanted: &Wanted, path: &Path, answer: &Answer) -> String {
    let (path, stored, dead) = (show(path), in_bytes(answer.stored_bytes), size(answer.dead_bytes));
    let percent = u128::from(answer.dead_bytes) * 100 / u128::from(answer.stored_bytes.max(1));
    match answer {
        Answer { compacted: true, freed_bytes, .. } => {
            format!("{path}: freed {} of {stored}", size(*freed_bytes))
        }
        _ if wanted.dry_run => format!(
            "{path}: {dead} of {stored} are dead ({percent} %); compacting copies {}",
            in_bytes(answer.live_bytes)
        ),
        _ => format!(
            "{path}: left alone: {dead} of {stored} are dead ({percent} %); see --at-least \
             and --force"
        ),
    }
}
