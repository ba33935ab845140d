//! Checking what names lead to: one name, or all names and all containers of the roots below a
//! directory.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use plfs_format::Uuid;
use plfs_format::name::{self, Name};
use plfs_format::superblock::{FILE_BYTES, SuperError, Superblock};

use super::super::marks::lives_by_mark;
use super::{Report, Severity, check};
use crate::container::{Container, check_layout, check_table, in_roots, read_name, root_of};
use crate::error::{At, Error, Result, in_words};
use crate::store::{self, Errno, Kind, Links, LockKind, Open, Stat, Store};
use crate::sync::Arc;

/// Checks the file that `path` names, links followed.
pub fn check_name(store: &Arc<dyn Store>, path: &Path, mounts: &[PathBuf]) -> Report {
    let mut report =
        Report { dir: path.to_path_buf(), names: vec![path.to_path_buf()], ..Report::default() };
    let read = (|| {
        let stat = store.stat(path, Links::Follow).at("stat", path)?;
        let file = store.open(path, Open::READ).at("open", path)?;
        let Some((superblock, _)) = read_name(file.as_ref(), &stat, path)? else {
            return Err(Error::NotAContainer { path: path.to_path_buf() });
        };
        let container = Container::locate(store.clone(), superblock, path, &stat, mounts)?;
        Ok((container, stat))
    })();
    match read {
        Ok((container, stat)) => {
            report = check(&container);
            report.names = vec![path.to_path_buf()];
            if (stat.dev, stat.ino) != container.identity {
                report.copies.push(path.to_path_buf());
                report.find(Severity::Note, path, 0, COPY);
            }
        }
        Err(error) => report.fail(path, &error),
    }
    report
}

const COPY: &str = "this name is a copy that was made without PLFS; it reads the same data, and \
                    removing it does not remove the data";

/// Checks all that is at or below directory `top`: the containers of all roots in it, garbage
/// included, all names, and what directories say of their new files. `progress` hears of each
/// container before it is checked.
///
/// Costs a stat of every file. Other file systems mounted below are left out.
pub fn check_tree(
    store: &Arc<dyn Store>,
    top: &Path,
    mounts: &[PathBuf],
    mut progress: impl FnMut(&Path),
) -> Result<Vec<Report>> {
    let dev = store.stat(top, Links::Follow).at("stat", top)?.dev;
    let mut walk = Walk::default();
    let mut todo = vec![top.to_path_buf()];
    while let Some(dir) = todo.pop() {
        let entries = match store.list(&dir) {
            Ok(entries) => entries,
            Err(errno) if dir == top => return Err(errno).at("list", &dir),
            // Removed since, or not ours to look into.
            Err(Errno::NOENT) => continue,
            Err(errno) => {
                let mut report = Report { dir: dir.clone(), ..Report::default() };
                report.find(
                    Severity::Unknown,
                    &dir,
                    0,
                    format!("cannot list it: {}", in_words(&dir, errno)),
                );
                walk.others.push(report);
                continue;
            }
        };
        for entry in entries {
            let path = dir.join(&entry.name);
            let Ok(stat) = store.stat(&path, Links::Stay) else { continue };
            match stat.kind {
                Kind::Dir if stat.dev != dev => {}
                Kind::Dir if entry.name == name::ROOT_DIR => walk.roots.push(dir.clone()),
                Kind::Dir => todo.push(path),
                _ if entry.name == name::LAYOUT => {
                    if let Err(error) = check_layout(&**store, &dir, mounts) {
                        let mut report = Report { dir: dir.clone(), ..Report::default() };
                        report.fail(&path, &error);
                        walk.others.push(report);
                    }
                }
                Kind::File if stat.len == FILE_BYTES as u64 => walk.name(store, path, &stat),
                _ => {}
            }
        }
    }
    walk.roots.sort();
    let mut reports = std::mem::take(&mut walk.others);
    for root in &walk.roots {
        check_root(store, root, &mut walk.by_inode, &walk.by_uuid, &mut progress, &mut reports);
    }
    // A backend of a container of another root in this tree.
    let has_super =
        |report: &Report| store.stat(&report.dir.join(name::SUPER), Links::Stay).is_ok();
    let rooted: HashSet<Uuid> = reports
        .iter()
        .filter(|report| !report.nameless && has_super(report))
        .filter_map(|report| report.uuid)
        .collect();
    reports.retain(|report| {
        !report.nameless || !report.uuid.is_some_and(|uuid| rooted.contains(&uuid))
    });
    // Names whose containers lie elsewhere, or nowhere.
    let mut rest: Vec<PathBuf> = walk.by_inode.into_values().flatten().collect();
    rest.sort();
    for path in rest {
        let uuid = walk.uuids.get(&path);
        if !reports.iter().any(|report| {
            uuid.is_some_and(|uuid| report.uuid == Some(*uuid)) && report.copies.contains(&path)
        }) {
            progress(&path);
            reports.push(check_name(store, &path, mounts));
        }
    }
    Ok(reports)
}

/// A file's identity on its file system.
type Inode = (u64, u64);
/// Names by the superblock that they are.
type ByInode = HashMap<Inode, Vec<PathBuf>>;
/// Names by the container that they name.
type ByUuid = HashMap<Uuid, Vec<(PathBuf, Inode)>>;

#[derive(Default)]
struct Walk {
    roots: Vec<PathBuf>,
    by_inode: ByInode,
    by_uuid: ByUuid,
    uuids: HashMap<PathBuf, Uuid>,
    others: Vec<Report>,
}

impl Walk {
    fn name(&mut self, store: &Arc<dyn Store>, path: PathBuf, stat: &Stat) {
        let read = store
            .open(&path, Open::READ)
            .at("open", &path)
            .and_then(|file| read_name(file.as_ref(), stat, &path));
        match read {
            Ok(None) => return,
            Ok(Some((superblock, _))) => {
                self.by_uuid
                    .entry(superblock.uuid)
                    .or_default()
                    .push((path.clone(), (stat.dev, stat.ino)));
                self.uuids.insert(path.clone(), superblock.uuid);
            }
            // Damaged or unreadable: still a name, of its inode.
            Err(_) => {}
        }
        self.by_inode.entry((stat.dev, stat.ino)).or_default().push(path);
    }
}

fn check_root(
    store: &Arc<dyn Store>,
    root: &Path,
    by_inode: &mut ByInode,
    by_uuid: &ByUuid,
    progress: &mut impl FnMut(&Path),
    reports: &mut Vec<Report>,
) {
    let top = root.join(name::ROOT_DIR);
    let store = &in_roots(store, [root]);
    let mut stray = Report { dir: top.clone(), ..Report::default() };
    let is_hex = |name: &OsStr, digits: usize| {
        name.to_str().is_some_and(|name| {
            name.len() == digits && name.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
        })
    };
    let mut list = |dir: &Path, digits: usize| -> Vec<PathBuf> {
        let mut entries = match store.list(dir) {
            Ok(entries) => entries,
            Err(Errno::NOENT) => Vec::new(),
            Err(errno) => {
                stray.find(
                    Severity::Unknown,
                    dir,
                    0,
                    format!("cannot list it: {}", in_words(dir, errno)),
                );
                Vec::new()
            }
        };
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        let (ours, others): (Vec<_>, Vec<_>) =
            entries.into_iter().partition(|entry| is_hex(&entry.name, digits));
        let is_ours = |name: &OsStr| {
            name == name::BACKENDS || name == name::IDENTITY || name == name::LOST_AND_FOUND
        };
        let strange = others.iter().filter(|entry| digits != 2 || !is_ours(&entry.name));
        strange.for_each(|entry| {
            stray.find(Severity::Note, dir.join(&entry.name), 0, "not PLFS's: ignored")
        });
        ours.iter().map(|entry| dir.join(&entry.name)).collect()
    };
    let dirs: Vec<PathBuf> = list(&top, 2).iter().flat_map(|shard| list(shard, 30)).collect();
    for dir in dirs {
        progress(&dir);
        let mut report = check_dir(store, &dir);
        if let Ok(stat) = store.stat(&dir.join(name::SUPER), Links::Stay) {
            report.names = by_inode.remove(&(stat.dev, stat.ino)).unwrap_or_default();
            report.names.sort();
            let copies = report
                .uuid
                .and_then(|uuid| by_uuid.get(&uuid))
                .into_iter()
                .flatten()
                .filter(|(_, inode)| *inode != (stat.dev, stat.ino));
            report.copies = copies.map(|(path, _)| path.clone()).collect();
            for copy in report.copies.clone() {
                report.find(Severity::Note, copy, 0, COPY);
            }
            if report.nameless && !report.copies.is_empty() {
                report.nameless = false;
                report.findings.retain(|finding| finding.what != NAMELESS);
                report.find(
                    Severity::Note,
                    &dir,
                    0,
                    "the directory was copied without its hard links: names and data no longer \
                     hang together, but both are kept",
                );
            }
        }
        reports.push(report);
    }
    for error in check_table(store.as_ref(), root) {
        stray.fail(&top, &error);
    }
    match crate::lifecycle::lost::list(store.as_ref(), &top) {
        // What is of a container of this root stands in its report.
        Ok(all) => {
            stray.lost = all
                .into_iter()
                .filter(|lost| !reports.iter().any(|report| report.lost.contains(lost)))
                .collect()
        }
        Err(error) => stray.fail(&top.join(name::LOST_AND_FOUND), &error),
    }
    if !stray.findings.is_empty() || !stray.lost.is_empty() {
        reports.push(stray);
    }
}

const NAMELESS: &str = "the container has no name: a crash left it";

/// Checks the container whose directory is `dir`.
fn check_dir(store: &Arc<dyn Store>, dir: &Path) -> Report {
    let mut report = Report { dir: dir.to_path_buf(), uuid: uuid_of(dir), ..Report::default() };
    let path = dir.join(name::SUPER);
    let stat = match store.stat(&path, Links::Stay) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => {
            no_super(store, dir, &mut report);
            return report;
        }
        Err(errno) => {
            report.find(
                Severity::Unknown,
                &path,
                0,
                format!("cannot look at it: {}", in_words(&path, errno)),
            );
            return report;
        }
    };
    let mut is_in_use_by_mark = false;
    let read = store.open(&path, Open::READ).at("open", &path).and_then(|file| {
        let mut bytes = vec![0; FILE_BYTES + 1];
        let n = store::read_full(file.as_ref(), &mut bytes, 0).at("read", &path)?;
        bytes.truncate(n);
        Ok(bytes)
    });
    match read.map(|bytes| (Superblock::decode(&bytes), bytes.len())) {
        Err(error) => report.fail(&path, &error),
        Ok((Err(SuperError::Unknown { major, features }), _)) => {
            report.fail(&path, &Error::UnknownFormat { path: path.clone(), major, features })
        }
        Ok((Err(SuperError::Bad(bad)), _)) => {
            report.find(Severity::Corrupt, &path, bad.at_bytes, bad.what)
        }
        Ok((Err(SuperError::NotASuperblock), len)) => {
            report.find(Severity::Corrupt, &path, 0, format!("this is no superblock ({len} bytes)"))
        }
        Ok((Ok(superblock), len)) => {
            let uuid = superblock.uuid;
            match Container::in_root(store, &superblock, root_of(dir)) {
                Ok(container)
                    if container.dir == dir && container.identity == (stat.dev, stat.ino) =>
                {
                    is_in_use_by_mark = lives_by_mark(&container).unwrap_or(true);
                    report = check(&container)
                }
                _ => report.find(
                    Severity::Corrupt,
                    &path,
                    96,
                    format!("the superblock is of container {uuid}"),
                ),
            }
            if len != FILE_BYTES {
                report.find(
                    Severity::Corrupt,
                    &path,
                    len as u64,
                    format!("the superblock file has another length than {FILE_BYTES}"),
                );
            }
        }
    }
    if stat.nlink <= 1 {
        match store.open(dir, Open::READ).and_then(|dir| dir.try_lock(LockKind::Exclusive)) {
            Ok(true) if !is_in_use_by_mark => {
                report.nameless = true;
                report.find(Severity::Garbage, dir, 0, NAMELESS);
            }
            Ok(_) => report.find(
                Severity::Busy,
                dir,
                0,
                "the container has no name; a process still has it open, or is making it",
            ),
            Err(errno) => report.find(
                Severity::Unknown,
                dir,
                0,
                format!("cannot lock it: {}", in_words(dir, errno)),
            ),
        }
    }
    report
}

/// A container's directory without a superblock: not finished, or a part of a container whose root
/// is elsewhere, or one that lost it.
fn no_super(store: &Arc<dyn Store>, dir: &Path, report: &mut Report) {
    let entries = store.list(dir).unwrap_or_default();
    let sets: Vec<PathBuf> = entries
        .iter()
        .filter(|entry| matches!(entry.name.to_str().and_then(Name::parse), Some(Name::LogSet(_))))
        .map(|entry| dir.join(&entry.name))
        .collect();
    if sets.iter().any(|set| store.stat(&set.join("index"), Links::Follow).is_ok()) {
        report.find(
            Severity::Corrupt,
            dir.join(name::SUPER),
            0,
            "the superblock is missing; logs are there",
        );
    } else if sets.iter().any(|set| store.list(set).is_ok_and(|entries| !entries.is_empty())) {
        report.find(
            Severity::Note,
            dir,
            0,
            "data logs of a container whose root is another directory: this is one of its backends",
        );
    } else {
        report.nameless = true;
        report.find(Severity::Garbage, dir, 0, NAMELESS);
    }
}

pub(in crate::lifecycle) fn uuid_of(dir: &Path) -> Option<Uuid> {
    let hex = format!("{}{}", dir.parent()?.file_name()?.to_str()?, dir.file_name()?.to_str()?);
    let mut uuid = [0; 16];
    for (i, byte) in uuid.iter_mut().enumerate() {
        *byte = u8::from_str_radix(hex.get(2 * i..2 * i + 2)?, 16).ok()?;
    }
    (hex.len() == 32).then_some(Uuid(uuid))
}
