//! The repairs that lose nothing.

use std::path::Path;
use std::sync::Arc;

use plfs_format::name::{self, Name};
use plfs_format::summary;
use plfs_format::superblock::Superblock;

use super::check::{FlatState, Promised, Report, Severity, check_index_log, read_flat};
use super::marks::open_marks;
use super::remove::{remove_gone, remove_if_nameless};
use crate::catalog::{open_super, write_summary};
use crate::config::Config;
use crate::container::{Container, in_roots, read_name, root_of};
use crate::error::{At, Result};
use crate::log;
use crate::store::{self, Errno, Open, Store};
use crate::write::Identity;

/// Puts right what `report` found as far as nothing can be lost by it: removes a nameless container that nobody holds, unfinished, stale and damaged flat indexes, log sets on their way out, data to which no
/// record points, and writes a missing summary. Gives what it did, in words.
///
/// Leaves alone what changed within `min_age_s` seconds: it may be a file that is being made. Leaves containers that are open for writing alone.
pub fn repair(store: &Arc<dyn Store>, config: &Config, report: &Report, min_age_s: u64) -> Result<Vec<String>> {
    let now = store::Time::now().sec.cast_unsigned();
    let is_old = |time: store::Time| u64::try_from(time.sec).is_ok_and(|sec| sec.saturating_add(min_age_s) <= now);
    let mut done = Vec::new();
    let store = &in_roots(store, [root_of(&report.dir)]);
    let super_path = report.dir.join(name::SUPER);
    if report.nameless {
        let age = store.stat(&super_path, false).or_else(|_| store.stat(&report.dir, false));
        if age.is_ok_and(|stat| is_old(stat.ctime)) && report.copies.is_empty() && remove_nameless(store, config, report)? {
            done.push(format!("removed {}", report.dir.display()));
        }
        return Ok(done);
    }
    let Some(container) = readable(store, &report.dir)? else { return Ok(done) };
    if !open_marks(&container)?.is_empty() {
        return Ok(done);
    }
    let garbage = report.findings.iter().filter(|finding| finding.severity >= Severity::Garbage);
    for finding in garbage {
        let Some(file) = finding.path.file_name().and_then(|file| file.to_str()) else { continue };
        let old = container.store.stat(&finding.path, false).is_ok_and(|stat| is_old(stat.mtime) && is_old(stat.ctime));
        let removed = match Name::parse(file) {
            Some(Name::Tmp) if old => container.store.unlink(&finding.path),
            Some(Name::Gone(set)) => {
                remove_gone(&container, set)?;
                Ok(())
            }
            Some(Name::Flat) if !matches!(read_flat(&container)?.0, FlatState::Used(_)) || finding.severity == Severity::Corrupt => {
                container.store.unlink(&finding.path)
            }
            None if name::parse_data_log(file).is_some() && finding.severity == Severity::Garbage && old => match remove_unrecorded(&container, &finding.path)?
            {
                true => Ok(()),
                false => continue,
            },
            _ => continue,
        };
        match removed {
            Ok(()) => done.push(format!("removed {}", finding.path.display())),
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno).at("remove", &finding.path),
        }
    }
    let lacks_summary =
        report.findings.iter().any(|finding| finding.path == super_path && finding.at_bytes == summary::OFFSET && finding.severity == Severity::Garbage);
    // Removing anything made the old one void.
    let wrote = (lacks_summary || !done.is_empty()) && sum_up(&container)?;
    if wrote && lacks_summary {
        done.push(format!("wrote the summary in {}", super_path.display()));
    }
    Ok(done)
}

/// Writes the summary; the file's times stay.
pub(crate) fn sum_up(container: &Container) -> Result<bool> {
    let path = container.path(name::SUPER);
    let before = container.store.stat(&path, false).at("stat", &path)?;
    let wrote = write_summary(container, open_super(container)?.as_ref(), &container.list()?)?;
    container.store.set_times(&path, Some(before.atime), Some(before.mtime)).at("set the times of", &path)?;
    Ok(wrote.is_some())
}

/// Removes a container without a name, whatever its superblock says. Whether it did.
fn remove_nameless(store: &Arc<dyn Store>, config: &Config, report: &Report) -> Result<bool> {
    let shared_memory = config.shared_memory.as_deref();
    if let Some(container) = readable(store, &report.dir)? {
        return remove_if_nameless(&container, shared_memory);
    }
    let path = report.dir.join(name::SUPER);
    match (store.stat(&path, false), report.uuid) {
        (Ok(_), Some(uuid)) => {
            // What it says is lost, and with it the places of other backends; what lies here can go.
            let superblock = Superblock {
                uuid,
                created_ns: 0,
                boot: 0,
                created_boot_ns: 0,
                mode: 0,
                uid: 0,
                gid: 0,
                streams: 1,
                segment_bytes: 0,
                backends: vec![0],
                root: Vec::new(),
            };
            remove_if_nameless(&Container::in_root(store, &superblock, root_of(&report.dir))?, shared_memory)
        }
        (Err(Errno::NOENT), _) => {
            // Nothing but empty directories: whoever is making them fails with an error at worst.
            for entry in store.list(&report.dir).at("list", &report.dir)? {
                let inner = report.dir.join(entry.name);
                store.rmdir(&inner).at("remove", &inner)?;
            }
            store.rmdir(&report.dir).at("remove", &report.dir).map(|()| true)
        }
        (Ok(_), None) => Ok(false),
        (Err(errno), _) => Err(errno).at("stat", &path),
    }
}

fn readable(store: &Arc<dyn Store>, dir: &Path) -> Result<Option<Container>> {
    let path = dir.join(name::SUPER);
    let (file, stat) = match store.open(&path, Open::READ).and_then(|file| file.stat().map(|stat| (file, stat))) {
        Ok(opened) => opened,
        // Not a directory: a report on a name whose container was not found.
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        Err(errno) => return Err(errno).at("open", &path),
    };
    let Ok(Some((superblock, _))) = read_name(file.as_ref(), &stat, &path) else { return Ok(None) };
    let found = Container::in_root(store, &superblock, root_of(dir)).ok();
    Ok(found.filter(|container| container.dir == dir && container.identity == (stat.dev, stat.ino)))
}

/// Removes a data log to which no record points. Owns its log set meanwhile, so that no writer takes the set over and points to it.
fn remove_unrecorded(container: &Container, path: &Path) -> Result<bool> {
    let store = &container.store;
    let set = path.parent().and_then(Path::file_name).and_then(|set| set.to_str()).and_then(Name::parse);
    let Some(Name::LogSet(set)) = set else { return Ok(false) };
    if !log::claim(container, set, &Identity::of_this_process(store.user()).mark())? {
        return Ok(false);
    }
    let removed = (|| {
        let mut promised = Promised::default();
        check_index_log(container, set, false, &mut promised, &mut Report::default());
        let named = path.file_name().and_then(|file| file.to_str()).and_then(name::parse_data_log);
        if named.is_none_or(|(stream, segment)| promised.has((set, stream, segment))) {
            return Ok(false);
        }
        store.unlink(path).at("remove", path).map(|()| true)
    })();
    log::remove_mark(container, set)?;
    removed
}
