//! `plfs pack` and `plfs unpack`.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use indicatif::{ProgressBar, ProgressStyle};
use plfs_core::{Plfs, REPACK_SETTLES, Repacked};
use serde::Serialize;

use crate::out::{self, Fail, JsonPath, Out, absolute, say, several, show};

/// A file that was not moved.
#[derive(Serialize)]
struct Stays {
    name: JsonPath,
    why: String,
}

#[derive(Serialize)]
struct Answer {
    directory: JsonPath,
    files: u64,
    bytes: u64,
    stay: Vec<Stays>,
}

/// Moves the small files of directories into their packs.
pub fn pack(out: &mut Out, shows: bool, json: bool, dirs: &[PathBuf]) -> Result<(), Fail> {
    each(out, dirs, json, "packed", |plfs, dir| {
        moved(shows, |told| plfs.pack_dir(dir, REPACK_SETTLES, told))
    })
}

/// Moves all files of directories out of their packs, which go.
pub fn unpack(out: &mut Out, shows: bool, json: bool, dirs: &[PathBuf]) -> Result<(), Fail> {
    each(out, dirs, json, "unpacked", |plfs, dir| {
        moved(shows, |told| plfs.unpack_dir(dir, REPACK_SETTLES, told))
    })
}

fn each(
    out: &mut Out,
    dirs: &[PathBuf],
    json: bool,
    word: &str,
    act: impl Fn(&Plfs, &Path) -> Result<Repacked, Fail>,
) -> Result<(), Fail> {
    let plfs = out::plfs()?;
    let (mut answers, mut failed) = (Vec::new(), false);
    for dir in dirs {
        let full = absolute(dir)?;
        if !std::fs::metadata(&full).map_err(|error| Fail::on("use", dir, error))?.is_dir() {
            return Err(Fail::Exit(2, format!("{} is not a directory", show(dir))));
        }
        let done = act(&plfs, &full)?;
        failed |= !done.left.is_empty();
        if !json {
            for (name, why) in &done.left {
                say(word, &format!("{} stays: {why}", show(&dir.join(name))));
            }
            out.line(format_args!(
                "{}: {word} {}, {}",
                show(dir),
                several(done.files, "file"),
                several(done.bytes, "byte")
            ))?;
        }
        answers.push(Answer {
            directory: JsonPath::of(dir),
            files: done.files,
            bytes: done.bytes,
            stay: done
                .left
                .into_iter()
                .map(|(name, why)| Stays { name: JsonPath::of(name), why })
                .collect(),
        });
    }
    if json {
        out.json(&answers)?;
    }
    if failed { out.end().and(Err(Fail::Printed)) } else { Ok(()) }
}

/// Runs `act`, which a signal ends between two files, and shows how far it is.
fn moved(
    shows: bool,
    act: impl FnOnce(&mut dyn FnMut(&Repacked) -> ControlFlow<()>) -> plfs_core::Result<Repacked>,
) -> Result<Repacked, Fail> {
    let stop = out::stop()?;
    let bar = match shows {
        true => ProgressBar::new_spinner().with_style(
            ProgressStyle::with_template("{spinner} {human_pos} moved")
                .unwrap_or_else(|_| ProgressStyle::default_spinner()),
        ),
        false => ProgressBar::hidden(),
    };
    let done = act(&mut |done| {
        bar.set_position(done.files);
        match stop.load(Ordering::Relaxed) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    });
    bar.finish_and_clear();
    let done = done?;
    match stop.load(Ordering::Relaxed) {
        true => Err(Fail::Say(format!(
            "interrupted after {}; run it again to go on",
            several(done.files, "file")
        ))),
        false => Ok(done),
    }
}
