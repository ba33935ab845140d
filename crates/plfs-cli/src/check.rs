//! `plfs check`.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use indicatif::{ProgressBar, ProgressStyle};
use plfs_core::store::Kind;
use plfs_core::{Cleared, Health, Plfs, Report, Severity};
use serde::Serialize;

use crate::out::{self, Fail, Out, absolute, count, say, show};

#[derive(Serialize)]
struct Finding {
    severity: &'static str,
    path: String,
    at_bytes: u64,
    what: String,
}

#[derive(Serialize)]
struct Answer {
    health: &'static str,
    names: Vec<String>,
    uuid: Option<String>,
    container: String,
    size: Option<u64>,
    findings: Vec<Finding>,
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

/// `repair`: the youngest age of garbage that goes, in seconds; `None` changes nothing.
pub fn check(out: &mut Out, json: bool, repair: Option<u64>, clear_marks: bool, paths: &[PathBuf]) -> Result<(), Fail> {
    let plfs = out::plfs()?;
    let (mut answers, mut counts, mut failed, mut trees) = (Vec::new(), [0u64; 6], false, false);
    for path in paths {
        let full = absolute(path)?;
        let is_dir = match plfs.store().stat(&full, true) {
            Ok(stat) => stat.kind == Kind::Dir,
            Err(errno) => {
                failed = true;
                say("check", &format!("cannot look at {}: {errno}", show(path)));
                continue;
            }
        };
        trees |= is_dir;
        let reports = match look(&plfs, &full, is_dir) {
            Ok(reports) => reports,
            Err(error) => {
                failed = true;
                say("check", &error.to_string());
                continue;
            }
        };
        for report in reports {
            let (report, done) = put_right(&plfs, report, repair, clear_marks);
            let health = report.health();
            failed |= matches!(health, Health::Corrupt | Health::Unknown);
            counts[health as usize] += 1;
            if json {
                answers.push(answer(&report, done));
            } else if !is_dir || health != Health::Healthy || !done.is_empty() || report.findings.iter().any(|finding| finding.severity > Severity::Note) {
                print(out, &report, &done, (&full, path))?;
            }
        }
    }
    if json {
        out.json(&answers)?;
    } else if trees {
        let all = [Health::Healthy, Health::Busy, Health::Torn, Health::Garbage, Health::Unknown, Health::Corrupt];
        let parts: Vec<String> =
            all.iter().filter(|health| counts[**health as usize] > 0).map(|health| format!("{} {}", count(counts[*health as usize]), word(*health))).collect();
        out.line(if parts.is_empty() { "there are no PLFS files".into() } else { parts.join(", ") })?;
    }
    if failed { out.end().and(Err(Fail::Said)) } else { Ok(()) }
}

fn look(plfs: &Plfs, full: &Path, is_dir: bool) -> plfs_core::Result<Vec<Report>> {
    if !is_dir {
        return Ok(vec![plfs_core::check_name(plfs.store(), full, &plfs.config().mounts)]);
    }
    let bar = match std::io::stderr().is_terminal() {
        true => ProgressBar::new_spinner()
            .with_style(ProgressStyle::with_template("{spinner} {human_pos} checked").unwrap_or_else(|_| ProgressStyle::default_spinner())),
        false => ProgressBar::hidden(),
    };
    let reports = plfs_core::check_tree(plfs.store(), full, &plfs.config().mounts, |_| bar.inc(1));
    bar.finish_and_clear();
    reports
}

/// Repairs what may be repaired and looks again. What cannot be done is said and left.
fn put_right(plfs: &Plfs, report: Report, repair: Option<u64>, clear_marks: bool) -> (Report, Vec<String>) {
    let mut done = Vec::new();
    if clear_marks
        && let Some(name) = report.names.first()
        && let Ok(Some((container, _))) = plfs.container_behind(name, true)
    {
        match plfs_core::clear_marks(&container, plfs.config()) {
            Ok(marks) => {
                for mark in marks {
                    match mark {
                        Cleared::Removed(mark) => {
                            done.push(format!("removed the open mark of host {}, process {} (log set {:08x})", mark.host, mark.pid, mark.set))
                        }
                        Cleared::Fenced(mark) => done.push(format!(
                            "fenced log set {:08x} of host {}, process {}: nobody appends to it again; should that process live after all, it gets an error",
                            mark.set, mark.host, mark.pid
                        )),
                        Cleared::Alive(mark) => say(
                            "check",
                            &format!(
                                "{}: the writer on this host lives (process {} or one that it shares log set {:08x} with); its mark stays",
                                show(name),
                                mark.pid,
                                mark.set
                            ),
                        ),
                    }
                }
            }
            Err(error) => say("check", &error.to_string()),
        }
    }
    if let Some(min_age_s) = repair {
        // Clearing marks may have made more to repair.
        let now = if done.is_empty() { None } else { report.names.first().map(|name| plfs_core::check_name(plfs.store(), name, &plfs.config().mounts)) };
        match plfs_core::repair(plfs.store(), plfs.config(), now.as_ref().unwrap_or(&report), min_age_s) {
            Ok(more) => done.extend(more),
            Err(error) => say("check", &error.to_string()),
        }
    }
    let report = match report.names.first() {
        Some(name) if !done.is_empty() => Report { names: report.names.clone(), ..plfs_core::check_name(plfs.store(), name, &plfs.config().mounts) },
        _ => report,
    };
    (report, done)
}

fn answer(report: &Report, done: Vec<String>) -> Answer {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    Answer {
        health: word(report.health()),
        names: report.names.iter().map(|name| text(name)).collect(),
        uuid: report.uuid.map(|uuid| uuid.to_string()),
        container: text(&report.dir),
        size: report.totals.map(|totals| totals.size),
        findings: report
            .findings
            .iter()
            .map(|finding| Finding { severity: label(finding.severity), path: text(&finding.path), at_bytes: finding.at_bytes, what: finding.what.clone() })
            .collect(),
        done,
    }
}

/// The last argument: the absolute form of a path, and the path as the user knows it.
fn print(out: &mut Out, report: &Report, done: &[String], (full, path): (&Path, &Path)) -> Result<(), Fail> {
    let shown = report.names.first().unwrap_or(&report.dir);
    let shown = match shown.strip_prefix(full) {
        Ok(rest) if rest.as_os_str().is_empty() => path.to_path_buf(),
        Ok(rest) => path.join(rest),
        Err(_) => shown.clone(),
    };
    out.line(format_args!("{}: {}", show(&shown), word(report.health())))?;
    for finding in &report.findings {
        // Paths inside of the container are short; the container is named by `plfs stat`.
        let path = finding.path.strip_prefix(&report.dir).ok().filter(|path| !path.as_os_str().is_empty()).unwrap_or(&finding.path);
        let at = if finding.at_bytes > 0 { format!(" at byte {}", finding.at_bytes) } else { String::new() };
        out.line(format_args!("  {:8} {}{at}: {}", label(finding.severity), show(path), finding.what))?;
    }
    done.iter().try_for_each(|done| out.line(format_args!("  done     {done}")))
}
