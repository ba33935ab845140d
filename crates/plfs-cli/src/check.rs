//! `plfs check`.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use indicatif::{ProgressBar, ProgressStyle};
use plfs_core::store::{Errno, Kind, Links};
use plfs_core::{Cleared, Health, Lost, Plfs, Report, Severity, Workload, decision_of};
use serde::Serialize;

use crate::copy::{Held, is_unfinished, killed};
use crate::mount::behind;
use crate::out::{self, Fail, JsonPath, Out, absolute, count, say, several, show};

#[derive(Serialize)]
struct Finding {
    severity: &'static str,
    path: JsonPath,
    at_bytes: u64,
    what: String,
}

#[derive(Serialize)]
struct Kept {
    entry: JsonPath,
    from: JsonPath,
    why: String,
    bytes: u64,
    since: i64,
}

#[derive(Serialize)]
struct Answer {
    health: &'static str,
    names: Vec<JsonPath>,
    uuid: Option<String>,
    container: JsonPath,
    size: Option<u64>,
    findings: Vec<Finding>,
    lost_and_found: Vec<Kept>,
    done: Vec<String>,
}

fn word(health: Health) -> &'static str {
    match health {
        Health::Healthy => "healthy",
        Health::Busy => "busy",
        Health::Torn => "torn",
        Health::Garbage => "garbage",
        Health::Unknown => "unknown",
        Health::Corrupt => "corrupt",
    }
}

fn label(severity: Severity) -> &'static str {
    match severity {
        Severity::Note => "note",
        Severity::Garbage => "garbage",
        Severity::Busy => "busy",
        Severity::Torn => "torn",
        Severity::Unknown => "unknown",
        Severity::Corrupt => "corrupt",
    }
}

/// What to do besides checking. Ages are in seconds: what is younger stays.
#[derive(Clone, Copy, Debug, Default)]
pub struct Work {
    /// Repair garbage of this age.
    pub repair: Option<u64>,
    /// End the tenancies of writers that are not alive on this host.
    pub clear_marks: bool,
    /// Put back what repairs took out.
    pub undo: bool,
    /// Remove what repairs took out, of this age, for ever.
    pub discard: Option<u64>,
}

pub fn check(out: &mut Out, json: bool, work: Work, paths: &[PathBuf]) -> Result<(), Fail> {
    let plfs = out::plfs()?;
    let (mut answers, mut counts, mut failed, mut trees) = (Vec::new(), [0u64; 6], false, false);
    let (mut kept, mut kept_bytes) = (0u64, 0u64);
    for path in paths {
        let mut full = behind(absolute(path)?)?;
        if matches!(plfs.packed_stat(&full), Ok(Some(_))) {
            // What there is to check of a file of a pack is the pack.
            full.set_file_name(plfs_core::PACK_NAME);
        }
        let is_dir = match out::stored(&plfs, &full, Links::Follow) {
            Ok(stat) => stat.kind == Kind::Dir,
            Err(error) => {
                failed = true;
                say("check", &format!("cannot look at {}: {}", show(path), error.errno()));
                continue;
            }
        };
        // In a flat directory.
        if !is_dir && let Ok(std::borrow::Cow::Owned(place)) = plfs.placed(&full, Links::Follow) {
            full = place;
        }
        let mut copies = Vec::new();
        if !work.undo && work.discard.is_none() {
            killed_copies(&plfs, &full, is_dir, &mut copies);
        }
        for (report, _held) in &copies {
            let mut did = Vec::new();
            if work.repair.is_none() {
                counts[Health::Garbage as usize] += 1;
            } else if let Err(error) = plfs.unlink(&report.dir) {
                failed = true;
                say("check", &error.to_string());
            } else {
                let was = "which a copy that was killed had left";
                did.push(format!("removed {}, {was}", show(&report.dir)));
            }
            match json {
                true => answers.push(answer(report, did)),
                false => print(out, report, &did, (&full, path))?,
            }
        }
        if copies.iter().any(|(report, _)| report.dir == full) {
            continue;
        }
        let entry = plfs_core::lost_at(plfs.store(), &full);
        let entry_is_none = entry.is_none();
        trees |= is_dir && entry_is_none;
        let reports = match entry {
            // The path is an entry of lost+found.
            Some(lost) => {
                Ok(vec![Report { dir: full.clone(), lost: vec![lost], ..Report::default() }])
            }
            None => look(&plfs, &full, is_dir),
        };
        let mut reports = match reports {
            Ok(reports) => reports,
            Err(error) => {
                failed = true;
                say("check", &error.to_string());
                continue;
            }
        };
        // They have been told.
        let is_told = |name: &PathBuf| copies.iter().any(|(copy, _)| copy.dir == *name);
        reports.retain(|report| report.names.is_empty() || !report.names.iter().all(is_told));
        if is_dir && entry_is_none {
            match plfs.check_flat(&full, work.repair) {
                Ok(flat) => {
                    for (report, mut did) in flat.reports {
                        let health = report.health();
                        failed |= matches!(health, Health::Corrupt | Health::Unknown);
                        if json {
                            answers.push(answer(&report, std::mem::take(&mut did)));
                        } else {
                            print(out, &report, &did, (&full, path))?;
                        }
                    }
                    reports.extend(elsewhere(&plfs, &full, &flat.files));
                }
                Err(error) => {
                    failed = true;
                    say("check", &error.to_string());
                }
            }
        }
        let mut done = Vec::new();
        if work.undo || work.discard.is_some() {
            let all: Vec<Lost> =
                reports.iter().flat_map(|report| report.lost.iter().cloned()).collect();
            for lost in all {
                match settle(&plfs, &lost, work) {
                    Ok(Some(what)) => done.push(what),
                    Ok(None) => {}
                    Err(error) => {
                        failed = true;
                        say("check", &error.to_string());
                    }
                }
            }
            if plfs.store().stat(&full, Links::Follow).is_ok()
                && plfs_core::lost_at(plfs.store(), &full).is_none()
                && let Ok(now) = look(&plfs, &full, is_dir)
            {
                reports = now;
            } else {
                reports.clear();
            }
            if !json {
                done.iter().try_for_each(|done| out.line(done))?;
            }
        }
        for report in reports {
            let work = if report.names.iter().any(|name| is_pack(name)) {
                // A repair knows nothing of packs.
                Work::default()
            } else {
                work
            };
            let (report, mut did) =
                put_right(&plfs, report, work.repair, work.clear_marks, &mut failed);
            let health = report.health();
            failed |= matches!(health, Health::Corrupt | Health::Unknown);
            // What was taken out of a container that is gone has a report without a container.
            let is_container =
                report.uuid.is_some() || !report.names.is_empty() || !report.findings.is_empty();
            counts[health as usize] += u64::from(is_container);
            kept += report.lost.len() as u64;
            kept_bytes += report.lost.iter().map(|lost| lost.bytes).sum::<u64>();
            if json {
                did.append(&mut done);
                answers.push(answer(&report, did));
            } else if !is_dir
                || health != Health::Healthy
                || !did.is_empty()
                || !report.lost.is_empty()
                || report.findings.iter().any(|finding| finding.severity > Severity::Note)
            {
                print(out, &report, &did, (&full, path))?;
            }
        }
        if json && !done.is_empty() {
            // What was done left nothing to report on.
            answers.push(answer(&Report { dir: full, ..Report::default() }, done));
        }
    }
    if json {
        out.json(&answers)?;
    } else if trees {
        let all = [
            Health::Healthy,
            Health::Busy,
            Health::Torn,
            Health::Garbage,
            Health::Unknown,
            Health::Corrupt,
        ];
        let mut parts: Vec<String> = all
            .iter()
            .filter(|health| counts[**health as usize] > 0)
            .map(|health| format!("{} {}", count(counts[*health as usize]), word(*health)))
            .collect();
        if parts.is_empty() {
            parts.push("there are no PLFS files".into());
        }
        if kept > 0 {
            parts.push(format!("{} in lost+found ({})", count(kept), several(kept_bytes, "byte")));
        }
        out.line(parts.join(", "))?;
    }
    if failed { out.end().and(Err(Fail::Printed)) } else { Ok(()) }
}

/// What copies that were killed have left at or below `full`, each with its lock. Other file
/// systems are left out.
fn killed_copies(plfs: &Plfs, full: &Path, is_dir: bool, found: &mut Vec<(Report, Held)>) {
    if full.file_name().is_some_and(is_unfinished)
        && !is_dir
        && let Some(held) = killed(plfs, full)
    {
        let finding = plfs_core::Finding {
            path: full.to_path_buf(),
            at_bytes: 0,
            what: "a copy that was killed has left it; --repair removes it".into(),
            severity: Severity::Garbage,
        };
        let (dir, names, findings) = (full.to_path_buf(), vec![full.to_path_buf()], vec![finding]);
        found.push((Report { dir, names, findings, nameless: true, ..Report::default() }, held));
    }
    let dev = |path: &Path| out::stored(plfs, path, Links::Stay).map(|stat| (stat.dev, stat.kind));
    let own = if is_dir { out::stored(plfs, full, Links::Follow) } else { return };
    for entry in plfs.list(full).unwrap_or_default() {
        let path = full.join(&entry.name);
        let is_below = matches!(entry.kind, Some(Kind::Dir) | None)
            && matches!((dev(&path), &own), (Ok((dev, Kind::Dir)), Ok(own)) if dev == own.dev);
        if is_below || is_unfinished(&entry.name) {
            killed_copies(plfs, &path, is_below, found);
        }
    }
}

/// Puts back or discards something in lost+found. Gives what was done, in words; `None` if it is
/// too young.
fn settle(plfs: &Plfs, lost: &Lost, work: Work) -> plfs_core::Result<Option<String>> {
    if work.undo {
        plfs_core::put_back(plfs.store(), lost)?;
        return Ok(Some(format!("put back {}", show(&lost.from))));
    }
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |now| now.as_secs());
    let age_s = now.saturating_sub(u64::try_from(lost.since.sec).unwrap_or(0));
    if work.discard.is_none_or(|min_age_s| age_s < min_age_s) {
        return Ok(None);
    }
    plfs_core::discard(plfs.store(), lost)?;
    Ok(Some(format!(
        "discarded {} ({} of {})",
        show(&lost.dir),
        several(lost.bytes, "byte"),
        show(&lost.from)
    )))
}

fn look(plfs: &Plfs, full: &Path, is_dir: bool) -> plfs_core::Result<Vec<Report>> {
    plfs.commit_what_the_dead_left();
    if !is_dir && is_plain(plfs, full) {
        let what = "it is a plain file, until several processes write it";
        let finding = plfs_core::Finding {
            path: full.to_path_buf(),
            at_bytes: 0,
            what: what.into(),
            severity: Severity::Note,
        };
        let names = vec![full.to_path_buf()];
        let dir = full.to_path_buf();
        return Ok(vec![Report { dir, names, findings: vec![finding], ..Report::default() }]);
    }
    if !is_dir && is_pack(full) {
        return Ok(full.parent().and_then(|dir| plfs.check_pack(dir)).into_iter().collect());
    }
    if !is_dir {
        return Ok(vec![plfs_core::check_name(plfs.store(), full, &plfs.config().mounts)]);
    }
    let bar = match std::io::stderr().is_terminal() {
        true => ProgressBar::new_spinner().with_style(
            ProgressStyle::with_template("{spinner} {human_pos} checked")
                .unwrap_or_else(|_| ProgressStyle::default_spinner()),
        ),
        false => ProgressBar::hidden(),
    };
    if matches!(plfs.placed(full, Links::Follow), Ok(std::borrow::Cow::Owned(_))) {
        // Its names are looked at as those of all flat directories are.
        return Ok(Vec::new());
    }
    let reports = plfs_core::check_tree(plfs.store(), full, &plfs.config().mounts, |_| bar.inc(1));
    bar.finish_and_clear();
    reports.map(|reports| with_packs(plfs, reports))
}

/// Of files of flat directories those that have containers on other backends.
fn elsewhere(plfs: &Plfs, full: &Path, files: &[PathBuf]) -> Vec<Report> {
    let of_others = files.iter().filter(|place| !place.starts_with(full));
    let reports = of_others
        .map(|place| plfs_core::check_name(plfs.store(), place, &plfs.config().mounts))
        .filter(|report| report.uuid.is_some());
    let mut reports: Vec<Report> = reports.collect();
    // Each container once, whatever names it has.
    reports.sort_by(|a, b| a.dir.cmp(&b.dir));
    reports.dedup_by(|again, first| {
        let is_same = again.dir == first.dir;
        if is_same {
            first.names.append(&mut again.names);
        }
        is_same
    });
    reports
}

fn is_pack(name: &Path) -> bool {
    name.file_name().is_some_and(|name| name == plfs_core::PACK_NAME)
}

/// The same reports, those of packs made by who knows them.
fn with_packs(plfs: &Plfs, reports: Vec<Report>) -> Vec<Report> {
    let paths = reports.iter().flat_map(|report| {
        let findings = report.findings.iter().map(|finding| &finding.path);
        report.names.iter().chain(findings).chain([&report.dir])
    });
    let mut dirs: Vec<PathBuf> = paths
        .filter(|path| is_pack(path))
        .filter_map(|path| path.parent().map(Path::to_path_buf))
        .collect();
    dirs.sort();
    dirs.dedup();
    let packs: Vec<Report> = dirs.iter().filter_map(|dir| plfs.check_pack(dir)).collect();
    let is_of_pack = |report: &Report| {
        report.names.iter().chain([&report.dir]).any(|path| is_pack(path))
            || packs.iter().any(|pack| pack.dir == report.dir)
    };
    let others: Vec<Report> = reports.into_iter().filter(|one| !is_of_pack(one)).collect();
    others.into_iter().chain(packs).collect()
}

/// Whether a file is one that was born plain, and of which nothing is decided.
fn is_plain(plfs: &Plfs, full: &Path) -> bool {
    matches!(plfs.is_logical(full), Ok(false))
        && matches!(decision_of(plfs.store().as_ref(), full), Ok(None))
        && matches!(plfs.workload_of(full), Ok(Workload::Auto))
}

/// Repairs what may be repaired and checks again. What cannot be repaired is printed and stays, and
/// `failed` becomes true.
fn put_right(
    plfs: &Plfs,
    report: Report,
    repair: Option<u64>,
    clear_marks: bool,
    failed: &mut bool,
) -> (Report, Vec<String>) {
    let mut done = Vec::new();
    if clear_marks
        && let Some(name) = report.names.first()
        && let Ok(Some((container, _))) = plfs.container_behind(name, Links::Follow)
    {
        match plfs_core::clear_marks(&container, plfs.config()) {
            Ok(marks) => {
                for mark in marks {
                    match mark {
                        Cleared::Removed(mark) => done.push(format!(
                            "removed the open mark of host {}, process {} (log set {:08x})",
                            mark.host, mark.pid, mark.set
                        )),
                        Cleared::Fenced(mark) => done.push(format!(
                            "fenced log set {:08x} of host {}, process {}: nobody appends to it \
                             again; should that process live after all, it gets an error",
                            mark.set, mark.host, mark.pid
                        )),
                        Cleared::Alive(mark) => say(
                            "check",
                            &format!(
                                "{}: the writer on this host lives (process {} or one that it \
                                 shares log set {:08x} with); its mark stays",
                                show(name),
                                mark.pid,
                                mark.set
                            ),
                        ),
                    }
                }
            }
            Err(error) => {
                *failed = true;
                say("check", &error.to_string());
            }
        }
    }
    if let Some(min_age_s) = repair {
        // Clearing marks may have made more to repair.
        let now = if done.is_empty() {
            None
        } else {
            report
                .names
                .first()
                .map(|name| plfs_core::check_name(plfs.store(), name, &plfs.config().mounts))
        };
        match plfs_core::repair(
            plfs.store(),
            plfs.config(),
            now.as_ref().unwrap_or(&report),
            min_age_s,
        ) {
            Ok(more) => {
                done.extend(gone_marks(plfs, &report));
                done.extend(more);
            }
            Err(error) => {
                *failed = true;
                say("check", &error.to_string());
            }
        }
    }
    let report = match report.names.first() {
        Some(name) if !done.is_empty() => Report {
            names: report.names.clone(),
            ..plfs_core::check_name(plfs.store(), name, &plfs.config().mounts)
        },
        _ => report,
    };
    (report, done)
}

/// The open marks that `report` found and a repair has ended since, in words.
fn gone_marks(plfs: &Plfs, report: &Report) -> Vec<String> {
    let is_gone = |finding: &&plfs_core::Finding| {
        finding.severity == Severity::Busy
            && plfs.store().stat(&finding.path, Links::Stay) == Err(Errno::NOENT)
    };
    let marks =
        report.findings.iter().filter(is_gone).filter_map(|finding| finding.path.file_name());
    marks
        .map(|mark| {
            format!(
                "the open mark {} is gone: its writer died on this host, or has closed the file",
                show(Path::new(mark))
            )
        })
        .collect()
}

fn answer(report: &Report, done: Vec<String>) -> Answer {
    let text = |path: &Path| JsonPath::of(path);
    Answer {
        health: word(report.health()),
        names: report.names.iter().map(|name| text(name)).collect(),
        uuid: report.uuid.map(|uuid| uuid.to_string()),
        container: text(&report.dir),
        size: report.totals.map(|totals| totals.size),
        findings: report
            .findings
            .iter()
            .map(|finding| Finding {
                severity: label(finding.severity),
                path: text(&finding.path),
                at_bytes: finding.at_bytes,
                what: finding.what.clone(),
            })
            .collect(),
        lost_and_found: report
            .lost
            .iter()
            .map(|lost| Kept {
                entry: text(&lost.dir),
                from: text(&lost.from),
                why: lost.why.clone(),
                bytes: lost.bytes,
                since: lost.since.sec,
            })
            .collect(),
        done,
    }
}

/// The last argument: the absolute form of a path, and the path as the user knows it.
fn print(
    out: &mut Out,
    report: &Report,
    done: &[String],
    (full, path): (&Path, &Path),
) -> Result<(), Fail> {
    let shown = report.names.first().unwrap_or(&report.dir);
    let shown = match shown.strip_prefix(full) {
        Ok(rest) if rest.as_os_str().is_empty() => path.to_path_buf(),
        Ok(rest) => path.join(rest),
        Err(_) => shown.clone(),
    };
    out.line(format_args!("{}: {}", show(&shown), word(report.health())))?;
    for finding in &report.findings {
        // Paths inside of the container are short; the container is named by `plfs stat`.
        let path = finding
            .path
            .strip_prefix(&report.dir)
            .ok()
            .filter(|path| !path.as_os_str().is_empty())
            .unwrap_or(&finding.path);
        let at = if finding.at_bytes > 0 {
            format!(" at byte {}", finding.at_bytes)
        } else {
            String::new()
        };
        out.line(format_args!(
            "  {:8} {}{at}: {}",
            label(finding.severity),
            show(path),
            finding.what
        ))?;
    }
    for lost in &report.lost {
        out.line(format_args!(
            "  kept     {}: {} of {}, because {}",
            show(&lost.dir),
            several(lost.bytes, "byte"),
            show(&lost.from),
            lost.why
        ))?;
    }
    done.iter().try_for_each(|done| out.line(format_args!("  done     {done}")))
}
