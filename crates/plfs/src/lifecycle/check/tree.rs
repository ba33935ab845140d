//! Checking what names lead to: one name, or all names and all containers of the roots below a
//! directory.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use plfs_format::Uuid;
use plfs_format::attribute::Decision;
use plfs_format::name::{self, Name};
use plfs_format::spread;
use plfs_format::superblock::{FILE_BYTES, SuperError, Superblock};

use super::super::marks::lives_by_mark;
use super::super::remove::is_open_as_plain;
use super::super::repair::{in_dir, second_copy, unread};
use super::{Report, Severity, check};
use crate::catalog::is_as_summed;
use crate::container::{
    Container, WRITTEN_TO, base, check_layout, check_table, in_roots, read_name,
};
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
        if let Some((superblock, summary)) = read_name(file.as_ref(), &stat, path)? {
            let container = Container::locate(store.clone(), superblock, path, &stat, mounts)?;
            // What cannot be looked at is in the report.
            let changed = container.is_copied_away(path, &stat)
                && !is_as_summed(&container, &summary).unwrap_or(true);
            return Ok(Seen::Container(container, stat, changed));
        }
        let attribute = (stat.kind == Kind::File).then(|| base::look(file.as_ref()));
        let Some(decision) = attribute.transpose().at("read user.plfs of", path)?.flatten() else {
            return Err(Error::NotAContainer { path: path.to_path_buf() });
        };
        let found = base::find_decided(store, &decision, &stat, path, mounts)?;
        Ok(found.map_or(Seen::Plain(in_words_of(&decision, &stat)), |(container, _)| {
            Seen::Container(container, stat, false)
        }))
    })();
    match read {
        Ok(Seen::Plain(what)) => report.find(Severity::Note, path, 0, what),
        Ok(Seen::Container(container, stat, changed)) => {
            report = check(&container);
            report.names = vec![path.to_path_buf()];
            if (stat.dev, stat.ino) != container.identity {
                report.copies.push(path.to_path_buf());
                let has_data =
                    path.ancestors().any(|dir| container.dir.starts_with(dir.join(name::ROOT_DIR)));
                match has_data {
                    true => report.find(Severity::Note, path, 0, COPY),
                    false => {
                        report.find(Severity::Unknown, path, 0, stub_of(&container.dir, changed));
                    }
                }
            }
        }
        Err(error) => {
            report.fail(path, &error);
            // A repair needs to know where it is.
            if let Some(container) = written_to(store, path, mounts) {
                report.dir = container.dir.to_path_buf();
                report.uuid = Some(container.superblock.uuid);
            }
        }
    }
    report
}

/// The container of a name that was written to without PLFS.
fn written_to(store: &Arc<dyn Store>, path: &Path, mounts: &[PathBuf]) -> Option<Container> {
    let stat = store.stat(path, Links::Follow).ok()?;
    let own = || {
        let (mut bytes, file) = (vec![0; FILE_BYTES], store.open(path, Open::READ).ok()?);
        let n = store::read_full(file.as_ref(), &mut bytes, 0).ok()?;
        bytes.truncate(n);
        Some(bytes)
    };
    let file = second_copy(store.as_ref(), path, stat.ino).or_else(own)?;
    let superblock = Superblock::decode(&file).ok()?;
    let found = Container::locate(store.clone(), superblock, path, &stat, mounts).ok()?;
    (found.identity == (stat.dev, stat.ino)).then_some(found)
}

/// What a name leads to.
enum Seen {
    /// And whether it is a copy of the name of something that has changed since.
    Container(Container, Stat, bool),
    Plain(String),
}

/// What is decided of a file that is plain.
fn in_words_of(decision: &Decision, stat: &Stat) -> String {
    match decision {
        Decision::Plain(why) => format!("it is a plain file, and stays so: {why}"),
        Decision::Container { ino, .. } if *ino != stat.ino => {
            "it is a plain file: a copy of one that has a container".into()
        }
        Decision::Superblock(_) => "it is a plain file: a copy of the name of one that is none".into(),
        Decision::Container { .. } => {
            "it is a plain file. It was to become a container, and is not: its maker died, or power \
             was cut; the next one who finds that others write it goes on"
                .into()
        }
    }
}

/// Of a copy whose container no root above it has: what is removed there is gone here.
fn stub_of(dir: &Path, changed: bool) -> String {
    let reads = match changed {
        false => "can be read as long as what is there does not change",
        true => "cannot be read, as what is there has changed since",
    };
    format!(
        "stub of {}: no data is here. It was copied or moved without PLFS, and {reads}; copy with \
         `plfs cp`, `plfs export` or under `plfs run`",
        dir.display()
    )
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
    check_all(store, top, mounts, &mut progress)
}

fn check_all(
    store: &Arc<dyn Store>,
    top: &Path,
    mounts: &[PathBuf],
    progress: &mut dyn FnMut(&Path),
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
                Kind::Dir if entry.name == name::ROOT_DIR => {
                    walk.roots.push(dir.clone());
                    // Names of flat directories.
                    todo.push(path.join(spread::DIR));
                }
                Kind::Dir => todo.push(path),
                _ if entry.name == name::LAYOUT => {
                    if let Err(error) = check_layout(&**store, &dir, mounts) {
                        let mut report = Report { dir: dir.clone(), ..Report::default() };
                        report.fail(&path, &error);
                        walk.others.push(report);
                    }
                }
                Kind::File if stat.len == FILE_BYTES as u64 || stat.nlink > 1 => {
                    walk.name(store, path, &stat)
                }
                _ => {}
            }
        }
    }
    walk.roots.sort();
    let mut reports = std::mem::take(&mut walk.others);
    for root in &walk.roots {
        let mut found = std::mem::take(&mut walk.found);
        check_root(store, root, &mut found, progress, &mut reports);
        walk.found = found;
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
    let mut rest: Vec<PathBuf> = walk.found.by_inode.into_values().flatten().collect();
    rest.sort();
    for path in rest {
        let uuid = walk.uuids.get(&path);
        if !reports.iter().any(|report| {
            uuid.is_some_and(|uuid| report.uuid == Some(*uuid)) && report.copies.contains(&path)
        }) {
            progress(&path);
            let report = check_name(store, &path, mounts);
            let is_plain = report.uuid.is_none()
                && report.findings.iter().all(|finding| finding.severity == Severity::Note);
            if !is_plain {
                reports.push(report);
            }
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
    found: Found,
    uuids: HashMap<PathBuf, Uuid>,
    others: Vec<Report>,
}

/// Names that no container's report has yet.
#[derive(Default)]
struct Found {
    /// Superblocks and bases.
    by_inode: ByInode,
    /// Superblocks.
    by_uuid: ByUuid,
    /// Files with several names that may not be read: they may be bases.
    unread: ByInode,
}

impl Found {
    /// The names of an inode, sorted.
    fn take(&mut self, inode: &Stat) -> Vec<PathBuf> {
        let key = (inode.dev, inode.ino);
        let mut names =
            self.by_inode.remove(&key).or_else(|| self.unread.remove(&key)).unwrap_or_default();
        names.sort();
        names
    }
}

impl Walk {
    fn name(&mut self, store: &Arc<dyn Store>, path: PathBuf, stat: &Stat) {
        let inode = (stat.dev, stat.ino);
        let opened = store.open(&path, Open::READ).at("open", &path);
        let read = opened.and_then(|file| match read_name(file.as_ref(), stat, &path)? {
            None if stat.nlink > 1 => Ok((None, base::look(file.as_ref()).at("look at", &path)?)),
            read => Ok((read, None)),
        });
        match read {
            // Its container has its report, or it is plain.
            Ok((None, Some(Decision::Container { .. }))) => {}
            // Written to without PLFS: still a name, of its inode.
            Ok((None, Some(decision))) if decision.superblock_of(stat.ino).is_some() => {}
            Ok((None, _)) => return,
            Ok((Some((superblock, _)), _)) => {
                self.found.by_uuid.entry(superblock.uuid).or_default().push((path.clone(), inode));
                self.uuids.insert(path.clone(), superblock.uuid);
            }
            // Damaged or unreadable: still a name, of its inode.
            Err(_) if stat.len == FILE_BYTES as u64 => {}
            Err(_) => {
                self.found.unread.entry(inode).or_default().push(path);
                return;
            }
        }
        self.found.by_inode.entry(inode).or_default().push(path);
    }
}

fn check_root(
    store: &Arc<dyn Store>,
    root: &Path,
    found: &mut Found,
    progress: &mut dyn FnMut(&Path),
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
            name == name::BACKENDS
                || name == name::IDENTITY
                || name == name::LOST_AND_FOUND
                || name == spread::DIR
                || name == spread::TREE_LOCK
                || name == spread::LINKS_LOCK
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
        let (mut report, inode) = check_dir(store, &dir);
        if let Some(stat) = inode {
            report.names = found.take(&stat);
            let copies = report
                .uuid
                .and_then(|uuid| found.by_uuid.get(&uuid))
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

/// The name of a pack was removed or lost, by who does not know of packs.
const PACK_WITHOUT_NAME: &str = "it is a pack, the small files of a directory, and its name is \
                                 gone; to have its files again, make the name, with DIR their \
                                 directory: ln .../super DIR/.plfs-pack";

const NAMELESS: &str = "the container has no name: a crash left it";
const IN_USE: &str = "the container has no name; a process still has it open, or is making it";

/// Checks the container whose directory is `dir`. Gives the inode that its names are links of, too.
fn check_dir(store: &Arc<dyn Store>, dir: &Path) -> (Report, Option<Stat>) {
    let mut report = Report { dir: dir.to_path_buf(), uuid: uuid_of(dir), ..Report::default() };
    let path = dir.join(name::SUPER);
    let stat = match store.stat(&path, Links::Stay) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => {
            let base = no_super(store, dir, &mut report);
            return (report, base);
        }
        Err(errno) => {
            report.find(
                Severity::Unknown,
                &path,
                0,
                format!("cannot look at it: {}", in_words(&path, errno)),
            );
            return (report, None);
        }
    };
    let base = store.stat(&dir.join(name::BASE), Links::Stay).ok();
    // If nobody can read which of the two it is.
    let mut inode = base.filter(|base| base.nlink > 1 && stat.nlink <= 1).unwrap_or(stat);
    let (mut is_in_use, mut is_alone) = (false, NAMELESS);
    let read = store.open(&path, Open::READ).at("open", &path).and_then(|file| {
        let mut bytes = vec![0; FILE_BYTES + 1];
        let n = store::read_full(file.as_ref(), &mut bytes, 0).at("read", &path)?;
        bytes.truncate(n);
        Ok(bytes)
    });
    let is_pack = read.as_ref().is_ok_and(|bytes| Superblock::decode_pack(bytes).is_ok());
    match read.map(|bytes| (Superblock::decode(&bytes), bytes.len())) {
        Err(error) => report.fail(&path, &error),
        Ok((Err(SuperError::Unknown { .. }), _)) if is_pack => {
            let what = match stat.nlink {
                0 | 1 => PACK_WITHOUT_NAME,
                _ => "it is a pack, the small files of a directory: check that directory",
            };
            report.find(Severity::Unknown, &path, 0, what);
        }
        Ok((Err(SuperError::Unknown { major, features }), _)) => {
            report.fail(&path, &Error::UnknownFormat { path: path.clone(), major, features })
        }
        Ok((Err(SuperError::Bad(bad)), _)) => {
            report.find(Severity::Corrupt, &path, bad.at_bytes, bad.what)
        }
        Ok((Err(SuperError::NotASuperblock), len)) => {
            let what = match second_copy(store.as_ref(), &path, stat.ino) {
                Some(_) => WRITTEN_TO.into(),
                None => format!("this is no superblock ({len} bytes)"),
            };
            report.find(Severity::Corrupt, &path, 0, what)
        }
        Ok((Ok(superblock), len)) => {
            let uuid = superblock.uuid;
            inode = base.filter(|_| superblock.has_base).unwrap_or(stat);
            match in_dir(store, &superblock, dir, &stat) {
                Some(container) => {
                    is_in_use = lives_by_mark(&container).unwrap_or(true)
                        || inode.nlink <= 1 && is_open_as_plain(&container, None);
                    match superblock.has_base && base.is_none() {
                        true => is_alone = BASELESS,
                        false => report = check(&container),
                    }
                }
                None if second_copy(store.as_ref(), &path, stat.ino).is_some() => {
                    report.find(Severity::Corrupt, &path, 0, WRITTEN_TO)
                }
                None => report.find(
                    Severity::Corrupt,
                    &path,
                    96,
                    format!("the superblock is of container {uuid}"),
                ),
            }
            if len != FILE_BYTES {
                report.find(Severity::Corrupt, &path, len as u64, WRITTEN_TO);
            }
        }
    }
    // Who could read the superblock knows which inode it is.
    let is_base = base.filter(|base| base.ino == inode.ino && base.dev == inode.dev);
    let whose = is_base.zip(report.uuid).map(|(base, uuid)| whose(store, dir, &base, uuid));
    if inode.nlink <= 1 {
        match store.open(dir, Open::READ).and_then(|dir| dir.try_lock(LockKind::Exclusive)) {
            Ok(true) if !is_in_use => {
                report.nameless = true;
                match whose {
                    None | Some(Whose::Own) => report.find(Severity::Garbage, dir, 0, is_alone),
                    Some(_) => report.find(Severity::Unknown, dir, 0, COPIED),
                }
            }
            Ok(_) => report.find(Severity::Busy, dir, 0, IN_USE),
            Err(errno) => report.find(
                Severity::Unknown,
                dir,
                0,
                format!("cannot lock it: {}", in_words(dir, errno)),
            ),
        }
    } else if let Some(Whose::Others | Whose::Nobodys) = whose {
        // Nobody finds it. A repair does nothing while the base has other names: they are the
        // user's.
        report.nameless = true;
        match whose {
            Some(Whose::Others) => report.find(Severity::Garbage, dir, 0, OTHERS),
            _ => report.find(Severity::Unknown, dir, 0, COPIED),
        }
    }
    (report, Some(inode))
}

const BASELESS: &str = "it has no base: power was cut while it was made, or what removed it died";
const OTHERS: &str = "the file that is its base has another container, or stays plain: no name \
                      leads here. It stays as long as that file has a name";
const COPIED: &str = "no name leads here, because its base does not say that it is of this \
                      container: the tree was copied without hard links or extended attributes \
                      (then the names show what the files were while they were plain: copy it \
                      with `cp -a` or `plfs cp`), or power was cut before anybody had synced what \
                      is here";

/// What the attribute of a base says of the container in which it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Whose {
    /// It is its base.
    Own,
    /// The same, but the inode is a copy.
    Copied,
    /// Something else is decided of it.
    Others,
    /// Nothing.
    Nobodys,
}

/// Own, too, if nobody may read it.
fn whose(store: &Arc<dyn Store>, dir: &Path, stat: &Stat, uuid: Uuid) -> Whose {
    let read = store.open(&dir.join(name::BASE), Open::READ.briefly());
    match read.and_then(|base| base::look(base.as_ref())) {
        Ok(Some(Decision::Container { uuid: said, ino, .. })) if said == uuid => {
            if ino == stat.ino { Whose::Own } else { Whose::Copied }
        }
        Ok(Some(_)) => Whose::Others,
        Ok(None) => Whose::Nobodys,
        Err(_) => Whose::Own,
    }
}

/// A container's directory without a superblock, but with a base: a plain file of which a container
/// was begun.
fn not_whole(store: &Arc<dyn Store>, dir: &Path, base: &Stat, has_logs: bool, report: &mut Report) {
    let is_own = report.uuid.map(|uuid| whose(store, dir, base, uuid)) == Some(Whose::Own);
    let is_open = || {
        let unread = report.uuid.and_then(|uuid| unread(store, dir, uuid, true).ok());
        unread.is_none_or(|container| is_open_as_plain(&container, None))
    };
    match (base.nlink > 1, has_logs) {
        (false, _) if is_open() => report.find(Severity::Busy, dir, 0, IN_USE),
        (false, _) => {
            report.nameless = true;
            report.find(Severity::Garbage, dir, 0, NAMELESS);
        }
        (true, true) => report.find(
            Severity::Unknown,
            dir.join(name::SUPER),
            0,
            "the superblock is missing; logs are there. Power was cut while the container was \
             made, before anybody had synced what is in it, or somebody removed the superblock. \
             The file is a plain one: it is what its base is",
        ),
        (true, false) if is_own => report.find(
            Severity::Note,
            dir,
            0,
            "a plain file that was to become this container; the next one who finds that others \
             write it goes on",
        ),
        (true, false) => {
            let what = "the beginning of a container, to which no name leads: its file is plain";
            report.find(Severity::Note, dir, 0, what);
        }
    }
}

/// A container's directory without a superblock: not finished, or a part of a container whose root
/// is elsewhere, or one that lost it. Gives its base, if it has one.
fn no_super(store: &Arc<dyn Store>, dir: &Path, report: &mut Report) -> Option<Stat> {
    let entries = store.list(dir).unwrap_or_default();
    let sets: Vec<PathBuf> = entries
        .iter()
        .filter(|entry| matches!(entry.name.to_str().and_then(Name::parse), Some(Name::LogSet(_))))
        .map(|entry| dir.join(&entry.name))
        .collect();
    let has_logs = sets.iter().any(|set| store.stat(&set.join("index"), Links::Follow).is_ok());
    let base = store.stat(&dir.join(name::BASE), Links::Stay).ok();
    if let Some(base) = &base {
        not_whole(store, dir, base, has_logs, report);
    } else if has_logs {
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
    base
}

pub(crate) fn uuid_of(dir: &Path) -> Option<Uuid> {
    let hex = format!("{}{}", dir.parent()?.file_name()?.to_str()?, dir.file_name()?.to_str()?);
    let mut uuid = [0; 16];
    for (i, byte) in uuid.iter_mut().enumerate() {
        *byte = u8::from_str_radix(hex.get(2 * i..2 * i + 2)?, 16).ok()?;
    }
    (hex.len() == 32).then_some(Uuid(uuid))
}
