//! What tools ask a container: is it healthy and where not, who holds it, what do its records say; and the repairs that lose nothing.
//!
//! Checking changes nothing and needs no lock: it may run beside writers. It reads every index log and asks every data log its length, but reads no data: data has no
//! checksums. All damage becomes [`Finding`]s; only bugs panic.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use plfs_format::index_log::{Block, LogId, Record, align_up, decode_block};
use plfs_format::name::{self, Name, SegmentRef};
use plfs_format::superblock::{FILE_BYTES, SuperError, Superblock};
use plfs_format::{Uuid, flat_index, summary, summary::Summary};
use zerocopy::FromBytes;

use super::layout::{Container, read_name};
use super::remove::remove_if_nameless;
use super::totals::{Totalizer, Totals, open_super, write_summary};
use crate::config::Config;
use crate::error::{At, Error, Result};
use crate::index::{Entry, Run};
use crate::log;
use crate::store::{self, Errno, Kind, Open, Stat, Store};

/// How bad a finding is, mild ones first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Worth knowing; nothing is lost and nothing needs doing.
    Note,
    /// What a crash left behind; [`repair`] can remove it or put it right.
    Garbage,
    /// A writer holds the file, or crashed with it.
    Busy,
    /// An append that a crash cut. Nobody was promised its bytes.
    Torn,
    /// Cannot be judged: a newer format, or no permission.
    Unknown,
    /// Bytes contradict the format, or promised bytes are missing.
    Corrupt,
}

/// Something that a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The file.
    pub path: PathBuf,
    /// Where in it.
    pub at_bytes: u64,
    /// What is there, in words.
    pub what: String,
    /// How bad it is.
    pub severity: Severity,
}

/// The verdict on a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// All is as FORMAT.md says, and all promised bytes can be there.
    Healthy,
    /// Healthy, and somebody may be writing.
    Busy,
    /// Healthy but for an append that a crash cut.
    Torn,
    /// It has no name and nobody holds it.
    Garbage,
    /// It could not be judged.
    Unknown,
    /// Bytes are lost or wrong.
    Corrupt,
}

/// What a check of one container found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The container's directory; for a name whose container could not be found, the name.
    pub dir: PathBuf,
    /// Its identity, as far as known.
    pub uuid: Option<Uuid>,
    /// Names that were seen.
    pub names: Vec<PathBuf>,
    /// Names of the same identity that are not its inode: copies made without PLFS.
    pub copies: Vec<PathBuf>,
    /// Whether it has no name at all.
    pub nameless: bool,
    /// What the logs add up to, if they could be read.
    pub totals: Option<Totals>,
    /// Everything worth saying.
    pub findings: Vec<Finding>,
}

impl Report {
    fn find(&mut self, severity: Severity, path: impl Into<PathBuf>, at_bytes: u64, what: impl Into<String>) {
        self.findings.push(Finding { path: path.into(), at_bytes, what: what.into(), severity });
    }

    fn fail(&mut self, path: &Path, error: &Error) {
        match error {
            Error::Corrupt { path, bad } => self.find(Severity::Corrupt, path, bad.at_bytes, bad.what),
            Error::UnknownFormat { path, .. } => self.find(Severity::Unknown, path, 76, error.to_string()),
            Error::MissingContainer { name, .. } => self.find(Severity::Corrupt, name, 0, error.to_string()),
            _ => self.find(Severity::Unknown, path, 0, format!("{error}")),
        }
    }

    /// The verdict.
    pub fn health(&self) -> Health {
        let worst = self.findings.iter().map(|finding| finding.severity).max().unwrap_or(Severity::Note);
        match worst {
            _ if self.nameless && worst != Severity::Busy && worst != Severity::Unknown => Health::Garbage,
            Severity::Corrupt => Health::Corrupt,
            Severity::Unknown => Health::Unknown,
            Severity::Torn => Health::Torn,
            Severity::Busy => Health::Busy,
            Severity::Garbage | Severity::Note => Health::Healthy,
        }
    }
}

/// Checks one container. Costs a read of its index logs and a stat of each data log.
pub fn check(container: &Container) -> Report {
    let mut report = Report::default();
    // Logs come and go under a check when somebody opens or truncates the file. What was seen counts if nothing changed meanwhile.
    for _ in 0..4 {
        let before = moment(container);
        report = check_once(container);
        if before.is_some() && before == moment(container) {
            break;
        }
    }
    report.findings.sort_by(|a, b| b.severity.cmp(&a.severity).then_with(|| a.path.cmp(&b.path)).then(a.at_bytes.cmp(&b.at_bytes)));
    report
}

/// What tells that a container's set of files stayed the same.
fn moment(container: &Container) -> Option<(store::Time, store::Time)> {
    let stat = container.store.stat(&container.dir, true).ok()?;
    Some((stat.mtime, stat.ctime))
}

/// What the scan of all index logs gave.
#[derive(Default)]
struct Promised {
    /// Largest physical end in each segment, and the index log and block that says so.
    ends: BTreeMap<SegmentRef, (u64, PathBuf, u64)>,
    records: u64,
    emptied: bool,
    /// Valid ends of blocks by set.
    block_ends: HashMap<u32, HashSet<u64>>,
}

fn check_once(container: &Container) -> Report {
    let mut report = Report { dir: container.dir.clone(), uuid: Some(container.superblock.uuid), ..Report::default() };
    let names = match container.list() {
        Ok(names) => names,
        Err(error) => {
            report.fail(&container.dir, &error);
            return report;
        }
    };
    let is_open = |set: u32| names.contains(&Name::OpenMark(set));
    for name in &names {
        if let Name::OpenMark(set) = *name {
            match read_mark(container, set) {
                Ok(Some(mark)) => report.find(Severity::Busy, container.path(&name::open_mark(set)), 0, said(&mark)),
                Ok(None) => {}
                Err(error) => report.fail(&container.dir, &error),
            }
        }
    }
    let mut promised = Promised::default();
    for name in &names {
        if let Name::LogSet(set) = *name {
            check_index_log(container, set, is_open(set), &mut promised, &mut report);
        }
    }
    check_data(container, &names, &promised, &mut report);
    check_flat(container, &names, &promised, &mut report);
    check_summary(container, &names, &promised, &mut report);
    report
}

fn said(mark: &OpenMark) -> String {
    match mark.host.as_str() {
        "" => "a log set has an owner: a writer, or one that crashed".into(),
        host => format!("open by a writer on host {host} (process {}, user {}), or left by one that crashed", mark.pid, mark.uid),
    }
}

fn check_index_log(container: &Container, set: u32, open: bool, promised: &mut Promised, report: &mut Report) {
    let path = container.path(&name::index_log(set));
    let log_id = container.log_id(set);
    let bytes = match log::read_index_log_from(container, set, 0) {
        Ok(bytes) => bytes,
        Err(error) => return report.fail(&path, &error),
    };
    let (mut end, mut last_hlc, mut gaps) = (0u64, 0, Vec::new());
    let ends = promised.block_ends.entry(set).or_default();
    let scanned = log::scan(log_id, 0, &bytes, |offset, header, at| {
        if offset > end {
            gaps.push((end, offset));
        }
        end = offset + header.block_bytes;
        ends.insert(end);
        if header.hlc <= last_hlc {
            report.find(Severity::Corrupt, &path, offset, "a block is not younger than the one before it");
        }
        last_hlc = header.hlc;
        promised.records += u64::from(header.records);
        match decode_block(log_id, header, offset, at) {
            Ok(block) => promise(&block, offset, &path, &mut promised.ends, &mut promised.emptied),
            Err(bad) => report.find(Severity::Corrupt, &path, bad.at_bytes, bad.what),
        }
        Ok(())
    });
    if let Err(error) = scanned {
        report.fail(&path, &error);
    }
    for (from, to) in gaps {
        judge(log_id, &path, from, &bytes[from as usize..to as usize], Some(to), report);
    }
    if end < bytes.len() as u64 {
        let mut tail = Report::default();
        judge(log_id, &path, end, &bytes[end as usize..], None, &mut tail);
        for finding in tail.findings {
            report.findings.push(match finding.severity {
                Severity::Torn if open => {
                    Finding { severity: Severity::Note, what: "an append that is being written, or was cut by a crash".into(), ..finding }
                }
                _ => finding,
            });
        }
    }
}

/// Notes what a block's runs promise about segments.
fn promise(block: &Block, offset: u64, path: &Path, ends: &mut BTreeMap<SegmentRef, (u64, PathBuf, u64)>, emptied: &mut bool) {
    for (_, record) in &block.records {
        match record {
            Record::Run { segment, physical, length, count, .. } => {
                // Decoding has checked that neither overflows and that the segment is listed.
                let end = physical + length * u64::from(*count);
                let known = ends.entry(block.segments[usize::from(*segment)]).or_insert_with(|| (0, path.to_path_buf(), offset));
                if known.0 < end {
                    *known = (end, path.to_path_buf(), offset);
                }
            }
            Record::Truncate { size, .. } => *emptied |= *size == 0,
            Record::Writer { .. } => {}
        }
    }
}

/// Reports bytes that are no valid block, between two blocks or (`next` is `None`) at the end.
fn judge(log: LogId, path: &Path, offset: u64, region: &[u8], next: Option<u64>, report: &mut Report) {
    for (at, len, torn) in log::judge(log, offset, region) {
        if !torn {
            report.find(Severity::Corrupt, path, at, format!("a block of {len} bytes is damaged; the writes that it recorded are lost"));
        } else if next.is_some() {
            report.find(Severity::Note, path, at, format!("{len} bytes of an append that a crash cut; skipped, nobody was promised them"));
        } else {
            report.find(Severity::Torn, path, at, format!("{len} bytes of an append that a crash cut; nobody was promised them"));
        }
    }
}

fn check_data(container: &Container, names: &[Name], promised: &Promised, report: &mut Report) {
    for (at, (end, index, block)) in &promised.ends {
        let path = container.segment_path(at);
        let found = match container.store.stat(&path, true) {
            Ok(stat) => stat.len,
            Err(Errno::NOENT | Errno::NOTDIR) => 0,
            Err(errno) => {
                report.find(Severity::Unknown, &path, 0, format!("cannot look at it: {errno}"));
                continue;
            }
        };
        // A truncate to nothing removes index logs before data logs: a promise counts while its log is there.
        if found < *end && container.store.stat(index, true).is_ok() {
            let what = format!("{} bytes are missing: the block at {block} of {} has records up to {end}", end - found, index.display());
            report.find(Severity::Corrupt, &path, found, what);
        }
    }
    for (at, len) in data_logs(container, names, report) {
        if len > 0 && !promised.ends.contains_key(&at) && !names.contains(&Name::OpenMark(at.set)) {
            report.find(
                Severity::Garbage,
                container.segment_path(&at),
                0,
                format!("{len} bytes to which no record points: a writer died before it committed them"),
            );
        }
    }
}

/// All data logs with their lengths.
fn data_logs(container: &Container, names: &[Name], report: &mut Report) -> Vec<(SegmentRef, u64)> {
    let mut logs = Vec::new();
    for backend in 0..container.superblock.backends.len() as u16 {
        let dir = container.backend_dir(backend);
        let sets: Vec<u32> = match backend {
            0 => names.iter().filter_map(|name| if let Name::LogSet(set) = name { Some(*set) } else { None }).collect(),
            _ => match container.store.list(&dir) {
                Ok(entries) => entries
                    .iter()
                    .filter_map(|entry| entry.name.to_str().and_then(Name::parse))
                    .filter_map(|name| if let Name::LogSet(set) = name { Some(set) } else { None })
                    .collect(),
                Err(Errno::NOENT) => Vec::new(),
                Err(errno) => {
                    report.find(Severity::Unknown, &dir, 0, format!("cannot list it: {errno}"));
                    continue;
                }
            },
        };
        for set in sets {
            let set_dir = dir.join(name::log_set(set));
            match container.store.list(&set_dir) {
                Ok(entries) => logs.extend(entries.iter().filter_map(|entry| {
                    let (stream, segment) = name::parse_data_log(entry.name.to_str()?)?;
                    Some((SegmentRef { set, stream, segment, backend }, container.store.stat(&set_dir.join(&entry.name), true).ok()?.len))
                })),
                Err(Errno::NOENT | Errno::NOTDIR) => {}
                Err(errno) => report.find(Severity::Unknown, &set_dir, 0, format!("cannot list it: {errno}")),
            }
        }
    }
    logs
}

fn check_flat(container: &Container, names: &[Name], promised: &Promised, report: &mut Report) {
    if names.contains(&Name::Flat) {
        let path = container.path(name::FLAT);
        match read_flat(container) {
            Ok((FlatState::Damaged(why), _)) => report.find(Severity::Corrupt, &path, 0, format!("the flat index is damaged {why}; readers do without it")),
            Ok((FlatState::Stale(why), _)) => report.find(Severity::Garbage, &path, 0, format!("the flat index is stale: {why}; readers do without it")),
            Ok((FlatState::Used, Some((flat, bytes)))) => {
                let entries = (*bytes).as_ref().get(flat.entries_at..).and_then(|bytes| <[Entry]>::ref_from_bytes(bytes).ok()).unwrap_or_default();
                if let Some(i) = entries.iter().position(|entry| !entry.is_sound() || entry.run().segment as usize >= flat.segments.len()) {
                    report.find(
                        Severity::Corrupt,
                        &path,
                        (flat.entries_at + i * size_of::<Entry>()) as u64,
                        "an entry of the flat index contradicts the format",
                    );
                }
                for covered in &flat.covered {
                    if covered.bytes > 0 && !promised.block_ends.get(&covered.set).is_some_and(|ends| ends.contains(&align_up(covered.bytes))) {
                        let what = format!(
                            "the flat index covers {} bytes of {}, where no block ends: it was made for other bytes",
                            covered.bytes,
                            name::index_log(covered.set)
                        );
                        report.find(Severity::Corrupt, &path, 0, what);
                    }
                }
            }
            Ok(_) => {}
            Err(error) => report.fail(&path, &error),
        }
    }
    if names.contains(&Name::FlatTmp) {
        for entry in container.store.list(&container.dir).unwrap_or_default() {
            if entry.name.to_str().and_then(Name::parse) == Some(Name::FlatTmp) {
                report.find(Severity::Garbage, container.dir.join(entry.name), 0, "a flat index that was never finished, or is being written now");
            }
        }
    }
}

fn check_summary(container: &Container, names: &[Name], promised: &Promised, report: &mut Report) {
    let path = container.path(name::SUPER);
    let found = match Totalizer::default().look(container) {
        Ok(totals) => totals,
        Err(error) => return report.fail(&container.dir, &error),
    };
    report.totals = Some(found);
    if names.iter().any(|name| matches!(name, Name::OpenMark(_))) {
        return;
    }
    let read = container.store.open(&path, Open::READ).and_then(|file| {
        let mut bytes = [0; summary::BYTES];
        store::read_full(file.as_ref(), &mut bytes, summary::OFFSET).map(|_| bytes)
    });
    let bytes = match read {
        Ok(bytes) => bytes,
        Err(errno) => return report.find(Severity::Unknown, &path, summary::OFFSET, format!("cannot read the summary: {errno}")),
    };
    let Some(summary) = Summary::decode(&bytes, &container.superblock.uuid) else {
        if found.log_sets == 0 {
            return;
        }
        let what = if bytes.iter().all(|byte| *byte == 0) { "there is no summary" } else { "the summary is damaged" };
        return report.find(Severity::Garbage, &path, summary::OFFSET, format!("{what}; sizes come from the index logs"));
    };
    let valid = container.store.stat(&container.dir, true).is_ok_and(|dir| dir.mtime == store::Time { sec: summary.token_sec, nsec: summary.token_nsec });
    let then = (summary.size, summary.records, summary.index_bytes, summary.data_logs, summary.stored_bytes);
    let now = (found.size, found.records, found.index_bytes, found.data_logs, found.stored_bytes);
    if valid && then != now {
        let what = format!(
            "at the last close there were {} bytes, {} records in {} bytes of index, {} data logs; now there are {} bytes, {} records in {}, {} data logs",
            then.0, then.1, then.2, then.3, now.0, now.1, now.2, now.3
        );
        report.find(Severity::Corrupt, &path, summary::OFFSET, what);
    } else if !valid && summary.records > promised.records && !promised.emptied {
        let what = format!("an earlier summary counted {} records, now there are {}: index logs have disappeared", summary.records, promised.records);
        report.find(Severity::Corrupt, &path, summary::OFFSET, what);
    } else if !valid {
        report.find(
            Severity::Garbage,
            &path,
            summary::OFFSET,
            "the summary is void: a writer crashed, or somebody changed the container; sizes come from the index logs",
        );
    }
}

/// Checks the file that `path` names, links followed.
pub fn check_name(store: &Arc<dyn Store>, path: &Path, mounts: &[PathBuf]) -> Report {
    let mut report = Report { dir: path.to_path_buf(), names: vec![path.to_path_buf()], ..Report::default() };
    let read = (|| {
        let stat = store.stat(path, true).at("stat", path)?;
        let file = store.open(path, Open::READ).at("open", path)?;
        let Some((superblock, _)) = read_name(file.as_ref(), &stat, path)? else { return Err(Error::NotAContainer { path: path.to_path_buf() }) };
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

const COPY: &str = "this name is a copy that was made without PLFS; it reads the same data, and removing it does not remove the data";

/// Checks all that is at or below directory `top`: the containers of all roots in it, garbage included, and all names. `progress` hears of each container before it is checked.
///
/// Costs a stat of every file. Other file systems mounted below are left out.
pub fn check_tree(store: &Arc<dyn Store>, top: &Path, mounts: &[PathBuf], mut progress: impl FnMut(&Path)) -> Result<Vec<Report>> {
    let dev = store.stat(top, true).at("stat", top)?.dev;
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
                report.find(Severity::Unknown, &dir, 0, format!("cannot list it: {errno}"));
                walk.others.push(report);
                continue;
            }
        };
        for entry in entries {
            let path = dir.join(&entry.name);
            let Ok(stat) = store.stat(&path, false) else { continue };
            match stat.kind {
                Kind::Dir if stat.dev != dev => {}
                Kind::Dir if entry.name == name::ROOT_DIR => walk.roots.push(dir.clone()),
                Kind::Dir => todo.push(path),
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
    let rooted: HashSet<Uuid> = reports.iter().filter(|report| !report.nameless).filter_map(|report| report.uuid).collect();
    reports.retain(|report| !report.nameless || !report.uuid.is_some_and(|uuid| rooted.contains(&uuid)));
    // Names whose containers lie elsewhere, or nowhere.
    let mut rest: Vec<PathBuf> = walk.by_inode.into_values().flatten().collect();
    rest.sort();
    for path in rest {
        let uuid = walk.uuids.get(&path);
        if !reports.iter().any(|report| uuid.is_some_and(|uuid| report.uuid == Some(*uuid)) && report.copies.contains(&path)) {
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
        let read = store.open(&path, Open::READ).at("open", &path).and_then(|file| read_name(file.as_ref(), stat, &path));
        match read {
            Ok(None) => return,
            Ok(Some((superblock, _))) => {
                self.by_uuid.entry(superblock.uuid).or_default().push((path.clone(), (stat.dev, stat.ino)));
                self.uuids.insert(path.clone(), superblock.uuid);
            }
            // Damaged or unreadable: still a name, of its inode.
            Err(_) => {}
        }
        self.by_inode.entry((stat.dev, stat.ino)).or_default().push(path);
    }
}

fn check_root(store: &Arc<dyn Store>, root: &Path, by_inode: &mut ByInode, by_uuid: &ByUuid, progress: &mut impl FnMut(&Path), reports: &mut Vec<Report>) {
    let top = root.join(name::ROOT_DIR);
    let mut stray = Report { dir: top.clone(), ..Report::default() };
    let is_hex = |name: &std::ffi::OsStr, digits: usize| {
        name.to_str().is_some_and(|name| name.len() == digits && name.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')))
    };
    let mut list = |dir: &Path, digits: usize| -> Vec<PathBuf> {
        let mut entries = match store.list(dir) {
            Ok(entries) => entries,
            Err(Errno::NOENT) => Vec::new(),
            Err(errno) => {
                stray.find(Severity::Unknown, dir, 0, format!("cannot list it: {errno}"));
                Vec::new()
            }
        };
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        let (ours, others): (Vec<_>, Vec<_>) = entries.into_iter().partition(|entry| is_hex(&entry.name, digits));
        others.iter().for_each(|entry| stray.find(Severity::Note, dir.join(&entry.name), 0, "not PLFS's: ignored"));
        ours.iter().map(|entry| dir.join(&entry.name)).collect()
    };
    let dirs: Vec<PathBuf> = list(&top, 2).iter().flat_map(|shard| list(shard, 30)).collect();
    for dir in dirs {
        progress(&dir);
        let mut report = check_dir(store, &dir);
        if let Ok(stat) = store.stat(&dir.join(name::SUPER), false) {
            report.names = by_inode.remove(&(stat.dev, stat.ino)).unwrap_or_default();
            report.names.sort();
            let copies = report.uuid.and_then(|uuid| by_uuid.get(&uuid)).into_iter().flatten().filter(|(_, inode)| *inode != (stat.dev, stat.ino));
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
                    "the directory was copied without its hard links: names and data no longer hang together, but both are kept",
                );
            }
        }
        reports.push(report);
    }
    if !stray.findings.is_empty() {
        reports.push(stray);
    }
}

const NAMELESS: &str = "the container has no name: a crash left it";

/// Checks the container whose directory is `dir`.
fn check_dir(store: &Arc<dyn Store>, dir: &Path) -> Report {
    let mut report = Report { dir: dir.to_path_buf(), uuid: uuid_of(dir), ..Report::default() };
    let path = dir.join(name::SUPER);
    let stat = match store.stat(&path, false) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => {
            no_super(store, dir, &mut report);
            return report;
        }
        Err(errno) => {
            report.find(Severity::Unknown, &path, 0, format!("cannot look at it: {errno}"));
            return report;
        }
    };
    let read = store.open(&path, Open::READ).at("open", &path).and_then(|file| {
        let mut bytes = vec![0; FILE_BYTES + 1];
        let n = store::read_full(file.as_ref(), &mut bytes, 0).at("read", &path)?;
        bytes.truncate(n);
        Ok(bytes)
    });
    match read.map(|bytes| (Superblock::decode(&bytes), bytes.len())) {
        Err(error) => report.fail(&path, &error),
        Ok((Err(SuperError::Unknown { major, features }), _)) => report.fail(&path, &Error::UnknownFormat { path: path.clone(), major, features }),
        Ok((Err(SuperError::Bad(bad)), _)) => report.find(Severity::Corrupt, &path, bad.at_bytes, bad.what),
        Ok((Err(SuperError::NotASuperblock), len)) => report.find(Severity::Corrupt, &path, 0, format!("this is no superblock ({len} bytes)")),
        Ok((Ok(superblock), len)) => {
            let uuid = superblock.uuid;
            match Container::locate(store.clone(), superblock, &path, &stat, &[]) {
                Ok(container) if container.dir == dir => report = check(&container),
                _ => report.find(Severity::Corrupt, &path, 96, format!("the superblock is of container {uuid}")),
            }
            if len != FILE_BYTES {
                report.find(Severity::Corrupt, &path, len as u64, format!("the superblock file has another length than {FILE_BYTES}"));
            }
        }
    }
    if stat.nlink <= 1 {
        match store.open(dir, Open::READ).and_then(|dir| dir.try_lock(true)) {
            Ok(true) => {
                report.nameless = true;
                report.find(Severity::Garbage, dir, 0, NAMELESS);
            }
            Ok(false) => report.find(Severity::Busy, dir, 0, "the container has no name; a process still has it open, or is making it"),
            Err(errno) => report.find(Severity::Unknown, dir, 0, format!("cannot lock it: {errno}")),
        }
    }
    report
}

/// A container's directory without a superblock: not finished, or a part of a container whose root is elsewhere, or one that lost it.
fn no_super(store: &Arc<dyn Store>, dir: &Path, report: &mut Report) {
    let entries = store.list(dir).unwrap_or_default();
    let sets: Vec<PathBuf> =
        entries.iter().filter(|entry| matches!(entry.name.to_str().and_then(Name::parse), Some(Name::LogSet(_)))).map(|entry| dir.join(&entry.name)).collect();
    if sets.iter().any(|set| store.stat(&set.join("index"), true).is_ok()) {
        report.find(Severity::Corrupt, dir.join(name::SUPER), 0, "the superblock is missing; logs are there");
    } else if sets.iter().any(|set| store.list(set).is_ok_and(|entries| !entries.is_empty())) {
        report.find(Severity::Note, dir, 0, "data logs of a container whose root is another directory: this is one of its backends");
    } else {
        report.nameless = true;
        report.find(Severity::Garbage, dir, 0, NAMELESS);
    }
}

fn uuid_of(dir: &Path) -> Option<Uuid> {
    let hex = format!("{}{}", dir.parent()?.file_name()?.to_str()?, dir.file_name()?.to_str()?);
    let mut uuid = [0; 16];
    for (i, byte) in uuid.iter_mut().enumerate() {
        *byte = u8::from_str_radix(hex.get(2 * i..2 * i + 2)?, 16).ok()?;
    }
    (hex.len() == 32).then_some(Uuid(uuid))
}

/// Puts right what `report` found as far as nothing can be lost by it: removes a nameless container that nobody holds, unfinished, stale and damaged flat indexes, data to which no
/// record points, and writes a missing summary. Gives what it did, in words.
///
/// Leaves alone what changed within `min_age_s` seconds: it may be a file that is being made. Leaves containers that are open for writing alone.
pub fn repair(store: &Arc<dyn Store>, config: &Config, report: &Report, min_age_s: u64) -> Result<Vec<String>> {
    let now = crate::file::now_ns() / 1_000_000_000;
    let is_old = |time: store::Time| u64::try_from(time.sec).is_ok_and(|sec| sec.saturating_add(min_age_s) <= now);
    let mut done = Vec::new();
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
        let old = store.stat(&finding.path, false).is_ok_and(|stat| is_old(stat.mtime) && is_old(stat.ctime));
        let removed = match Name::parse(file) {
            Some(Name::FlatTmp) if old => store.unlink(&finding.path),
            Some(Name::Flat) if !matches!(flat_state(&container)?, FlatState::Used) || finding.severity == Severity::Corrupt => store.unlink(&finding.path),
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
fn sum_up(container: &Container) -> Result<bool> {
    let path = container.path(name::SUPER);
    let before = container.store.stat(&path, false).at("stat", &path)?;
    let wrote = write_summary(container, open_super(container)?.as_ref(), &container.list()?)?;
    container.store.set_times(&path, Some(before.atime), Some(before.mtime)).at("set the times of", &path)?;
    Ok(wrote)
}

/// Removes a container without a name, whatever its superblock says. Whether it did.
fn remove_nameless(store: &Arc<dyn Store>, config: &Config, report: &Report) -> Result<bool> {
    let shared_memory = config.shared_memory.as_deref();
    if let Some(container) = readable(store, &report.dir)? {
        return remove_if_nameless(&container, shared_memory);
    }
    let path = report.dir.join(name::SUPER);
    match (store.stat(&path, false), report.uuid) {
        (Ok(stat), Some(uuid)) => {
            // What it says is lost, and with it the places of other backends; what lies here can go.
            let superblock = Superblock { uuid, created_ns: 0, mode: 0, uid: 0, gid: 0, streams: 1, segment_bytes: 0, backends: vec![Vec::new()] };
            remove_if_nameless(&Container::locate(store.clone(), superblock, &path, &stat, &[])?, shared_memory)
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
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(errno).at("open", &path),
    };
    let Ok(Some((superblock, _))) = read_name(file.as_ref(), &stat, &path) else { return Ok(None) };
    let located = Container::locate(store.clone(), superblock, &path, &stat, &[]).ok();
    Ok(located.filter(|container| container.dir == dir))
}

/// Removes a data log to which no record points. Owns its log set meanwhile, so that no writer takes the set over and points to it.
fn remove_unrecorded(container: &Container, path: &Path) -> Result<bool> {
    let store = &container.store;
    let set = path.parent().and_then(Path::file_name).and_then(|set| set.to_str()).and_then(Name::parse);
    let Some(Name::LogSet(set)) = set else { return Ok(false) };
    let mark = container.path(&name::open_mark(set));
    match store.open(&mark, Open::create_new(0o644)) {
        Ok(_) => {}
        Err(Errno::EXIST) => return Ok(false),
        Err(errno) => return Err(errno).at("create", &mark),
    }
    let removed = (|| {
        let mut promised = Promised::default();
        check_index_log(container, set, false, &mut promised, &mut Report::default());
        if promised.ends.keys().any(|at| container.segment_path(at) == path) {
            return Ok(false);
        }
        store.unlink(path).at("remove", path).map(|()| true)
    })();
    store.unlink(&mark).at("remove", &mark)?;
    removed
}

/// What became of an open mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cleared {
    /// It was removed.
    Removed(OpenMark),
    /// Its owner lives on this host; nothing was done.
    Alive(OpenMark),
}

/// Removes the open marks of owners that crashed, and writes the summary if none is left. Marks whose owners live on this host stay.
///
/// Must not be called while a writer of the file lives on another host: it would go on writing a log set that a third one takes over.
pub fn clear_marks(container: &Container, config: &Config) -> Result<Vec<Cleared>> {
    let mut cleared = Vec::new();
    for mark in open_marks(container)? {
        if is_alive(container, config, &mark)? {
            cleared.push(Cleared::Alive(mark));
            continue;
        }
        let path = container.path(&name::open_mark(mark.set));
        match container.store.unlink(&path) {
            Ok(()) | Err(Errno::NOENT) => cleared.push(Cleared::Removed(mark)),
            Err(errno) => return Err(errno).at("remove", &path),
        }
    }
    if !cleared.is_empty() && cleared.iter().all(|mark| matches!(mark, Cleared::Removed(_))) {
        sum_up(container)?;
    }
    Ok(cleared)
}

/// Whether a process of this host certainly or possibly still owns the mark's log set.
fn is_alive(container: &Container, config: &Config, mark: &OpenMark) -> Result<bool> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    if mark.host != host {
        return Ok(false);
    }
    if container.store.stat(Path::new(&format!("/proc/{}", mark.pid)), true).is_ok() {
        return Ok(true);
    }
    // The founder may be gone while others of the node go on: they hold the shared page.
    let Some(dir) = &config.shared_memory else { return Ok(false) };
    let page = dir.join(format!("plfs-{}-{:x}-{}", mark.uid, container.identity.0, container.superblock.uuid));
    let mut short = page.clone().into_os_string();
    short.push(".lock");
    let open = |path: &Path| match container.store.open(path, Open::READ) {
        Ok(file) => Ok(Some(file)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno).at("open", path),
    };
    let short = PathBuf::from(short);
    let (Some(mutex), Some(alive)) = (open(&short)?, open(&page)?) else { return Ok(false) };
    // With the short lock held, nobody mistakes our look at the other one for a process.
    for _ in 0..1000 {
        if mutex.try_lock(true).at("lock", &short)? {
            return Ok(!alive.try_lock(true).at("lock", &page)?);
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    Ok(true)
}

/// A mark of an owner that may append.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenMark {
    /// Log set.
    pub set: u32,
    /// Host of the process that founded or took over the set; empty if the mark does not say.
    pub host: String,
    /// Its process id; 0 if the mark does not say.
    pub pid: u32,
    /// Its user id.
    pub uid: u32,
    /// When it attached, nanoseconds since 1970 UTC.
    pub attached_ns: u64,
}

/// The open marks of a container.
pub fn open_marks(container: &Container) -> Result<Vec<OpenMark>> {
    let mut marks = Vec::new();
    for name in container.list()? {
        let Name::OpenMark(set) = name else { continue };
        marks.extend(read_mark(container, set)?);
    }
    marks.sort_by_key(|mark| mark.set);
    Ok(marks)
}

fn read_mark(container: &Container, set: u32) -> Result<Option<OpenMark>> {
    let path = container.path(&name::open_mark(set));
    let mut text = [0; 1024];
    let n = match container.store.open(&path, Open::READ) {
        Ok(file) => store::read_full(file.as_ref(), &mut text, 0).at("read", &path)?,
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::ACCESS | Errno::PERM) => 0,
        Err(errno) => return Err(errno).at("open", &path),
    };
    let text = String::from_utf8_lossy(&text[..n]).into_owned();
    let field = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')).unwrap_or_default();
    Ok(Some(OpenMark {
        set,
        host: field("host").to_string(),
        pid: field("pid").parse().unwrap_or(0),
        uid: field("uid").parse().unwrap_or(0),
        attached_ns: field("attached_ns").parse().unwrap_or(0),
    }))
}

/// Whether a reader uses the flat index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FlatState {
    /// There is none.
    None,
    /// It fits.
    Used,
    /// It covers more than the index logs have: made for other logs.
    Stale(String),
    /// Its bytes contradict the format.
    Damaged(String),
}

/// Looks at the flat index without loading the index logs.
pub fn flat_state(container: &Container) -> Result<FlatState> {
    Ok(read_flat(container)?.0)
}

fn read_flat(container: &Container) -> Result<(FlatState, Option<(flat_index::FlatIndex, store::Bytes)>)> {
    let path = container.path(name::FLAT);
    let bytes = match container.store.open(&path, Open::READ) {
        Ok(file) => file.map().at("map", &path)?,
        Err(Errno::NOENT) => return Ok((FlatState::None, None)),
        Err(errno) => return Err(errno).at("open", &path),
    };
    let flat = match flat_index::decode((*bytes).as_ref(), &container.superblock.uuid) {
        Ok(flat) => flat,
        Err(bad) => return Ok((FlatState::Damaged(bad.to_string()), None)),
    };
    for covered in &flat.covered {
        let log = container.path(&name::index_log(covered.set));
        let len = match container.store.stat(&log, true) {
            Ok(stat) => stat.len,
            Err(Errno::NOENT | Errno::NOTDIR) => 0,
            Err(errno) => return Err(errno).at("stat", &log),
        };
        if len < covered.bytes {
            let why = format!("it covers {} bytes of {}, which has {len}", covered.bytes, name::index_log(covered.set));
            return Ok((FlatState::Stale(why), None));
        }
    }
    Ok((FlatState::Used, Some((flat, bytes))))
}

/// Who wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenBy {
    /// Host.
    pub host: String,
    /// Process id there.
    pub pid: u32,
    /// User id.
    pub uid: u32,
}

/// What a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// These bytes are there; `segment` counts in [`Records::data_logs`].
    Run(Run),
    /// The size became this.
    Truncate(u64),
}

/// One run or truncate of an index log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexRecord {
    /// When, in units of 2^-16 ms since 1970; decides overlaps.
    pub stamp: u64,
    /// Log set: decides between equal stamps.
    pub set: u32,
    /// What it says.
    pub said: Said,
    /// Who, as a place in [`Records::writers`].
    pub writer: Option<u32>,
}

/// All records of a container.
#[derive(Clone, Debug, Default)]
pub struct Records {
    /// In the order that decides overlaps: later ones win.
    pub records: Vec<IndexRecord>,
    /// Data logs that runs name.
    pub data_logs: Vec<PathBuf>,
    /// Writers that records name.
    pub writers: Vec<WrittenBy>,
}

/// Reads every run and truncate that any writer committed, whether later ones hide it or not. Memory grows with their number.
pub fn records(container: &Container) -> Result<Records> {
    let mut all = Records::default();
    let mut numbers = HashMap::new();
    for name in container.list()? {
        let Name::LogSet(set) = name else { continue };
        let path = container.path(&name::index_log(set));
        let bytes = log::read_index_log_from(container, set, 0)?;
        let mut writers = HashMap::new();
        let mut wrote = Vec::new();
        log::scan(container.log_id(set), 0, &bytes, |offset, header, at| {
            let block = decode_block(container.log_id(set), header, offset, at).map_err(|bad| Error::Corrupt { path: path.clone(), bad })?;
            for (_, record) in block.records {
                match record {
                    Record::Run { logical, length, stride, count, segment, physical, writer, stamp } => {
                        let at = block.segments[usize::from(segment)];
                        let segment = *numbers.entry(at).or_insert_with(|| {
                            all.data_logs.push(container.segment_path(&at));
                            all.data_logs.len() as u32 - 1
                        });
                        wrote.push((all.records.len(), writer));
                        all.records.push(IndexRecord { stamp, set, said: Said::Run(Run { logical, length, stride, count, segment, physical }), writer: None });
                    }
                    Record::Truncate { size, stamp } => all.records.push(IndexRecord { stamp, set, said: Said::Truncate(size), writer: None }),
                    Record::Writer { writer, pid, uid, host, .. } => {
                        writers.insert(writer, all.writers.len() as u32);
                        all.writers.push(WrittenBy { host, pid, uid });
                    }
                }
            }
            Ok(())
        })?;
        for (i, writer) in wrote {
            all.records[i].writer = writers.get(&writer).copied();
        }
    }
    all.records.sort_by_key(|record| (record.stamp, record.set));
    Ok(all)
}
