//! What tools ask a container: is it healthy and where not, what do its records say.
//!
//! Checking changes nothing and needs no lock: it may run beside writers. It reads every index log
//! and asks every data log its length. Data it reads only where a power cut may have taken some
//! that lies over older bytes: no other has checksums. All damage becomes [`Finding`]s; only bugs
//! panic.

mod records;
mod tree;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};

use plfs_format::flat_index::Covered;
use plfs_format::index_log::{Block, Record, align_up, decode_block};
use plfs_format::name::{self, BACKEND_MAX, Name, SegmentRef};
use plfs_format::{Bad, Uuid, flat_index, summary, summary::Summary};
use plfs_index::Base;

use super::lost::{self, Lost};
use super::marks::{OpenMark, read_mark};
use super::unreachable::unreachable;
use crate::catalog::{Doubts, Durable, Index, Purpose, Recount, Totalizer, Totals};
use crate::container::{Container, log_sets, read_clock};
use crate::error::{At, Error, Result, in_words};
use crate::log::{self, Piece};
use crate::store::{self, Errno, Links, Open};
use crate::sync::Arc;

pub use records::{IndexRecord, RecordKind, Records, StreamAt, WrittenBy, records};
pub(crate) use tree::uuid_of;
pub use tree::{check_name, check_tree};

/// How bad a finding is, mild ones first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Worth knowing; nothing is lost and nothing needs doing.
    Note,
    /// What a crash left behind; [`repair`](super::repair()) can remove it or put it right.
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
    /// What repairs took out of it.
    pub lost: Vec<Lost>,
}

impl Report {
    pub(crate) fn find(
        &mut self,
        severity: Severity,
        path: impl Into<PathBuf>,
        at_bytes: u64,
        what: impl Into<String>,
    ) {
        self.findings.push(Finding { path: path.into(), at_bytes, what: what.into(), severity });
    }

    pub(crate) fn fail(&mut self, path: &Path, error: &Error) {
        match error {
            Error::Corrupt { path, bad } => {
                self.find(Severity::Corrupt, path, bad.at_bytes, bad.what)
            }
            Error::UnknownFormat { path, .. } => {
                self.find(Severity::Unknown, path, 76, error.to_string())
            }
            Error::NeedsNewer { path, bad } => self.find(
                Severity::Unknown,
                path,
                bad.at_bytes,
                format!("this needs a newer PLFS: {}", bad.what),
            ),
            Error::UnknownBackend { table, .. }
            | Error::MissingBackend { table, .. }
            | Error::WrongBackend { table, .. } => {
                self.find(Severity::Unknown, table, 0, error.to_string());
            }
            Error::MissingContainer { name, .. } => {
                self.find(Severity::Corrupt, name, 0, error.to_string())
            }
            _ => self.find(Severity::Unknown, path, 0, format!("{error}")),
        }
    }

    /// The verdict.
    pub fn health(&self) -> Health {
        let worst =
            self.findings.iter().map(|finding| finding.severity).max().unwrap_or(Severity::Note);
        match worst {
            _ if self.nameless && worst != Severity::Busy && worst != Severity::Unknown => {
                Health::Garbage
            }
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
    // Logs come and go under a check when somebody opens or truncates the file. What was seen
    // counts if nothing changed meanwhile.
    for _ in 0..4 {
        let before = moment(container);
        report = examine(container).0;
        if before.is_some() && before == moment(container) {
            break;
        }
    }
    report.lost = lost::lost_of(container);
    report.findings.sort_by(|a, b| {
        b.severity
            .cmp(&a.severity)
            .then_with(|| a.path.cmp(&b.path))
            .then(a.at_bytes.cmp(&b.at_bytes))
    });
    report
}

/// Notes where older bytes show because a power cut took newer ones.
fn note_taken(container: &Container, report: &mut Report) {
    // What is in the way of loading it has been found.
    let Ok(index) = Index::load(container) else { return };
    for taken in index.taken().iter().take(PIECES_MAX) {
        let Ok(path) = container.segment_path(&taken.at) else { continue };
        let what = format!(
            "{} bytes were lost when power was cut, before anybody had synced them (the block at \
             {} of {}): at {} the file has what was there before",
            taken.length,
            taken.block,
            container.path(&name::index_log(taken.set)).display(),
            taken.logical,
        );
        report.find(Severity::Note, path, taken.physical, what);
    }
}

/// What tells that a container's set of files stayed the same.
fn moment(container: &Container) -> Option<(store::Time, store::Time)> {
    let stat = container.store.stat(&container.dir, Links::Follow).ok()?;
    Some((stat.mtime, stat.ctime))
}

/// For each segment the largest physical end, and the index log and block that says so.
type Ends = BTreeMap<SegmentRef, (u64, PathBuf, u64)>;

/// What the scan of all index logs gave.
#[derive(Default)]
pub(super) struct Promised {
    /// Largest physical end in each segment, and the index log and block that says so.
    pub(super) ends: Ends,
    /// The same of blocks whose data a power cut may have taken.
    doubted: Ends,
    /// What there is of the records that the summary counts.
    pub(super) recount: Recount,
    /// Valid ends of blocks by set.
    block_ends: HashMap<u32, HashSet<u64>>,
    /// Log sets without an index log.
    pub(super) missing: HashSet<u32>,
    /// Some index log is damaged, or could not be read.
    pub(super) is_damaged: bool,
}

impl Promised {
    /// Whether a record points to bytes of a segment.
    pub(super) fn has(&self, (set, stream, segment): Segment) -> bool {
        let at = |backend| SegmentRef { set, stream, segment, backend };
        let is_in = |ends: &Ends| ends.range(at(0)..=at(BACKEND_MAX)).next().is_some();
        is_in(&self.ends) || is_in(&self.doubted)
    }
}

/// What may be done to files of a container to which no record points.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Accounts {
    /// There may be records that nobody can read: an index log is damaged, or data logs have none.
    pub is_unread: bool,
    /// The summary, void or not, counts more records than there are: index logs are lost.
    pub is_short: bool,
}

/// Whether index logs are lost, going by the summary.
pub(crate) fn has_lost_records(container: &Container) -> bool {
    // Writers that come and go meanwhile can make it look so.
    (0..4).any(|_| {
        let before = moment(container);
        examine(container).1.is_short && before.is_some() && before == moment(container)
    }) && examine(container).1.is_short
}

/// [`check`] at one moment.
pub(crate) fn examine(container: &Container) -> (Report, Accounts) {
    let mut report = Report {
        dir: container.dir.to_path_buf(),
        uuid: Some(container.superblock.uuid),
        ..Report::default()
    };
    // Before the logs, which only grow, so that it never counts what was appended after they were
    // read.
    let summary = read_summary(container);
    let listed = match container.list() {
        Ok(names) => names,
        Err(error) => {
            report.fail(&container.dir, &error);
            return (report, Accounts { is_unread: true, is_short: false });
        }
    };
    let names: BTreeSet<Name> = listed.iter().copied().collect();
    let is_open = |set: u32| names.contains(&Name::OpenMark(set));
    for name in &names {
        if let Name::OpenMark(set) = *name {
            match read_mark(container, set) {
                Ok(Some(mark)) => report.find(
                    Severity::Busy,
                    container.path(&name::open_mark(set)),
                    0,
                    said(&mark),
                ),
                Ok(None) => {}
                Err(error) => report.fail(&container.dir, &error),
            }
        }
    }
    let decoded =
        summary.as_ref().ok().and_then(|bytes| Summary::decode(bytes, &container.superblock.uuid));
    let mut promised = Promised { recount: Recount::of(decoded.as_ref()), ..Promised::default() };
    for set in log_sets(&names) {
        check_index_log(container, set, is_open(set), &mut promised, &mut report);
    }
    let is_unread = !check_data(container, &names, &promised, &mut report);
    match container.base_len() {
        Ok(Some(len)) => report.find(Severity::Note, container.path(name::BASE), 0, was_plain(len)),
        Ok(None) => {}
        Err(error) => report.fail(&container.dir, &error),
    }
    // Readers go by it, and need no log.
    let is_whole = (promised.is_damaged || !promised.missing.is_empty()) && is_whole(container);
    if is_whole {
        report.find(Severity::Note, container.dir.as_ref(), 0, STILL_WHOLE);
    }
    check_flat(container, &names, &promised, is_whole, &mut report);
    check_leavings(container, &names, &mut report);
    let is_short = !check_summary(container, &listed, summary, &promised, &mut report);
    if !promised.doubted.is_empty() {
        note_taken(container, &mut report);
    }
    (report, Accounts { is_unread, is_short })
}

const STILL_WHOLE: &str = "the flat index of the last close is there and has all that index logs \
                           had: everything can be read until somebody writes; copy the file now \
                           (`plfs cp`, `plfs export`)";

/// Whether readers have the whole index without a look at the logs.
fn is_whole(container: &Container) -> bool {
    let settled = Totalizer::default().settled(container).ok().flatten();
    Index::load_settled(container, settled).is_ok_and(|index| index.is_some())
}

fn several(n: u64, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

fn was_plain(len: u64) -> String {
    format!(
        "it was a plain file before: programs without PLFS see these {len} bytes, and not what was \
         written since"
    )
}

fn said(mark: &OpenMark) -> String {
    match mark.host.as_str() {
        "" => "a log set has an owner: a writer, or one that crashed".into(),
        host => format!(
            "open by a writer on host {host} (process {}, user {}), or left by one that crashed",
            mark.pid, mark.uid
        ),
    }
}

/// Pieces of one index log that are told one by one. A log may be full of them.
const PIECES_MAX: usize = 1000;

pub(super) fn check_index_log(
    container: &Container,
    set: u32,
    open: bool,
    promised: &mut Promised,
    report: &mut Report,
) {
    let path = container.path(&name::index_log(set));
    let (mut last_stamp, mut gaps, mut left_out, mut is_whole) = (0, Vec::new(), 0u64, true);
    let ends = promised.block_ends.entry(set).or_default();
    let doubts = Doubts::of(container, Purpose::Reading);
    let failed = container.path(&name::unsynced_mark(set));
    let has_failed = container.store.stat(&failed, Links::Stay).is_ok();
    let (mut durable, mut doubted) = (Durable::default(), Vec::new());
    let scanned = log::scan_pieces(container, set, 0, |offset, piece| {
        match piece {
            Piece::Block(header, bytes) => {
                for gap in gaps.drain(..) {
                    tell_gap(gap, true, open, &path, report);
                }
                ends.insert(offset + header.block_bytes);
                if header.stamp <= last_stamp {
                    report.find(
                        Severity::Corrupt,
                        &path,
                        offset,
                        "a block is not younger than the one before it",
                    );
                }
                last_stamp = header.stamp;
                promised.recount.push(&header);
                match decode_block(header, offset, bytes) {
                    Ok(block) => {
                        durable.push(&block);
                        promised.recount.push_truncates(&block);
                        match doubts.about(&block, has_failed) {
                            Some(boot) => {
                                let mut ends = Ends::new();
                                promise(&block, offset, &path, &mut ends);
                                doubted.push((boot, offset, ends));
                            }
                            None => promise(&block, offset, &path, &mut promised.ends),
                        }
                    }
                    Err(bad) => {
                        is_whole = false;
                        report.fail(&path, &Error::of_bytes(&path, bad));
                    }
                }
            }
            Piece::Gap { torn, .. } if gaps.len() >= PIECES_MAX => {
                is_whole &= torn;
                left_out += 1;
            }
            Piece::Gap { bytes, torn } => {
                is_whole &= torn;
                gaps.push((offset, bytes, torn));
            }
            Piece::Refused(why) => {
                is_whole = false;
                report.find(Severity::Corrupt, &path, offset, why);
            }
        }
        Ok(())
    });
    for (boot, offset, ends) in doubted {
        let known = match durable.has(boot, offset) {
            true => &mut promised.ends,
            false => &mut promised.doubted,
        };
        for (at, end) in ends {
            let known = known.entry(at).or_default();
            if known.0 < end.0 {
                *known = end;
            }
        }
    }
    for gap in gaps {
        tell_gap(gap, false, open, &path, report);
    }
    if left_out > 0 {
        let severity = if is_whole { Severity::Torn } else { Severity::Corrupt };
        report.find(severity, &path, 0, format!("{left_out} more pieces that are no blocks"));
    }
    match scanned {
        Ok(Some(_)) => {}
        Ok(None) => drop(promised.missing.insert(set)),
        Err(error) => {
            is_whole = false;
            report.fail(&path, &error);
        }
    }
    promised.is_damaged |= !is_whole;
}

/// Reports bytes that are no valid block: offset, length, whether a crash tore them. Between two
/// blocks (`is_followed`) or at the end of a log that may be `open`.
fn tell_gap(
    (at, len, torn): (u64, u64, bool),
    is_followed: bool,
    open: bool,
    path: &Path,
    report: &mut Report,
) {
    let cut = format!("{len} bytes of an append that a crash cut");
    match (torn, is_followed, open) {
        (false, ..) => report.find(
            Severity::Corrupt,
            path,
            at,
            format!("a block of {len} bytes is damaged; the writes that it recorded are lost"),
        ),
        (true, true, _) => report.find(
            Severity::Note,
            path,
            at,
            format!("{cut}; skipped, nobody was promised them"),
        ),
        (true, false, true) => report.find(
            Severity::Note,
            path,
            at,
            "an append that is being written, or was cut by a crash",
        ),
        (true, false, false) => {
            report.find(Severity::Torn, path, at, format!("{cut}; nobody was promised them"))
        }
    }
}

/// Notes what a block's runs promise about segments.
fn promise(block: &Block, offset: u64, path: &Path, ends: &mut Ends) {
    for (_, record) in &block.records {
        let Record::Run(run) = record else { continue };
        let end = run.physical_end();
        let known = ends
            .entry(block.segments[usize::from(run.segment)])
            .or_insert_with(|| (0, path.to_path_buf(), offset));
        if known.0 < end {
            *known = (end, path.to_path_buf(), offset);
        }
    }
}

/// Gives whether all that could point to data logs was read.
fn check_data(
    container: &Container,
    names: &BTreeSet<Name>,
    promised: &Promised,
    report: &mut Report,
) -> bool {
    let (mut lost_backends, mut is_lost) = (BTreeSet::new(), false);
    let all = promised.ends.iter().map(|entry| (true, entry));
    let all = all.chain(promised.doubted.iter().map(|entry| (false, entry)));
    for (is_promised, (at, (end, index, block))) in all {
        // What a process has found once may not be there any more.
        let found = container.segment_path(at).and_then(|path| {
            match container.store.stat(&path, Links::Follow) {
                Err(Errno::NOENT | Errno::NOTDIR) if at.backend > 0 => {
                    Ok(container.backend_dir_again(at.backend)?.join(name::data_log(at)))
                }
                _ => Ok(path),
            }
        });
        let path = match found {
            Ok(path) => path,
            Err(error) => {
                if lost_backends.insert(at.backend) {
                    report.fail(&container.dir, &error);
                    is_lost = true;
                }
                continue;
            }
        };
        let found = match container.store.stat(&path, Links::Follow) {
            Ok(stat) => stat.len,
            Err(Errno::NOENT | Errno::NOTDIR) => 0,
            Err(errno) => {
                report.find(
                    Severity::Unknown,
                    &path,
                    0,
                    format!("cannot look at it: {}", in_words(&path, errno)),
                );
                continue;
            }
        };
        if *at == SegmentRef::BASE {
            if found < *end {
                let what = format!(
                    "a program without PLFS cut it: up to {end} what was written in place reads \
                     as zeros (the block at {block} of {})",
                    index.display()
                );
                report.find(Severity::Note, &path, found, what);
            }
            continue;
        }
        // A truncate to nothing removes index logs before data logs: a promise counts while its log
        // is there.
        if found < *end && container.store.stat(index, Links::Follow).is_ok() {
            let what = format!(
                "{} bytes are missing: the block at {block} of {} has records up to {end}",
                end - found,
                index.display()
            );
            match is_promised {
                true => report.find(Severity::Corrupt, &path, found, what),
                false => report.find(
                    Severity::Note,
                    &path,
                    found,
                    format!("{what}; nobody had synced them when power was cut"),
                ),
            }
        }
    }
    // What is in the way of loading the index has been found.
    if is_lost && let Ok(all) = unreachable(container) {
        for found in all {
            let what = format!("backend {:04x} is not there: {}", found.backend, found.in_words());
            let from = found.ranges.first().map_or(0, |(from, _)| *from);
            report.find(Severity::Unknown, container.dir.as_ref(), from, what);
        }
    }
    let mut is_unread = promised.is_damaged;
    for (at, path, len) in data_logs(container, names, report) {
        let set = at.0;
        let is_going = names.contains(&Name::Gone(set)) && !names.contains(&Name::LogSet(set));
        if len == 0 || is_going || promised.has(at) || names.contains(&Name::OpenMark(set)) {
            continue;
        }
        let has_no_index = promised.missing.contains(&set) || !names.contains(&Name::LogSet(set));
        is_unread |= has_no_index;
        let what = match (has_no_index, promised.is_damaged) {
            (true, _) => {
                "bytes without an index log that says what they are: a writer died before it \
                 committed them, or the index log is lost; a repair leaves them here"
            }
            (_, true) => {
                "bytes to which no record points that can be read; a repair leaves them here"
            }
            _ => "bytes to which no record points: a writer died before it committed them",
        };
        report.find(Severity::Garbage, path, 0, format!("{len} {what}"));
    }
    !is_unread
}

/// Log set, stream and segment: what names a segment, wherever it is. Two ids of backends may lead
/// to one directory.
pub(super) type Segment = (u32, u16, u32);

/// All data logs with their paths and lengths.
fn data_logs(
    container: &Container,
    names: &BTreeSet<Name>,
    report: &mut Report,
) -> Vec<(Segment, PathBuf, u64)> {
    let mut logs = Vec::new();
    let dirs = container.backend_dirs().unwrap_or_else(|error| {
        report.fail(&container.dir, &error);
        vec![container.dir.to_path_buf()]
    });
    for dir in dirs {
        let sets = match *dir == *container.dir {
            true => log_sets(names),
            false => match container.store.list(&dir) {
                Ok(entries) => {
                    let names = entries.iter().filter_map(|entry| entry.name.to_str());
                    log_sets(names.filter_map(Name::parse))
                }
                Err(Errno::NOENT) => BTreeSet::new(),
                Err(errno) => {
                    report.find(
                        Severity::Unknown,
                        &dir,
                        0,
                        format!("cannot list it: {}", in_words(&dir, errno)),
                    );
                    continue;
                }
            },
        };
        for set in sets {
            let set_dir = dir.join(name::log_set(set));
            match container.store.list(&set_dir) {
                Ok(entries) => logs.extend(entries.iter().filter_map(|entry| {
                    let (stream, segment) = name::parse_data_log(entry.name.to_str()?)?;
                    let path = set_dir.join(&entry.name);
                    let len = container.store.stat(&path, Links::Follow).ok()?.len;
                    Some(((set, stream, segment), path, len))
                })),
                Err(Errno::NOENT | Errno::NOTDIR) => {}
                Err(errno) => report.find(
                    Severity::Unknown,
                    &set_dir,
                    0,
                    format!("cannot list it: {}", in_words(&set_dir, errno)),
                ),
            }
        }
    }
    logs
}

fn check_flat(
    container: &Container,
    names: &BTreeSet<Name>,
    promised: &Promised,
    is_whole: bool,
    report: &mut Report,
) {
    if names.contains(&Name::Flat) {
        let path = container.path(name::FLAT);
        match read_flat(container) {
            Ok((FlatState::Damaged(why), _)) => report.find(
                Severity::Corrupt,
                &path,
                0,
                format!("the flat index is damaged {why}; readers do without it"),
            ),
            // It is what the logs had before they were lost.
            Ok((FlatState::Stale(_), _)) if is_whole => {}
            Ok((FlatState::Stale(why), _)) => report.find(
                Severity::Garbage,
                &path,
                0,
                format!("the flat index is stale: {why}; readers do without it"),
            ),
            Ok((FlatState::Used(_), Some(base))) => {
                if let Err(bad) = contradiction(&base, promised) {
                    report.find(Severity::Corrupt, &path, bad.0, bad.1);
                }
            }
            Ok(_) => {}
            Err(error) => report.fail(&path, &error),
        }
    }
}

/// Where a decoded flat index contradicts the format or the index logs, and how.
fn contradiction(base: &Base, promised: &Promised) -> std::result::Result<(), (u64, String)> {
    base.check().map_err(|bad| (bad.at_bytes, format!("{}; readers do without it", bad.what)))?;
    let block_ends = |set, bytes: u64| {
        promised.block_ends.get(&set).is_some_and(|ends| ends.contains(&align_up(bytes)))
    };
    match base
        .flat()
        .covered
        .iter()
        .find(|covered| covered.bytes > 0 && !block_ends(covered.set, covered.bytes))
    {
        Some(Covered { set, bytes, .. }) => Err((
            0,
            format!(
                "the flat index covers {bytes} bytes of {}, where no block ends: it was made for \
                 other bytes",
                name::index_log(*set)
            ),
        )),
        None => Ok(()),
    }
}

/// What a crash left of something that replaces or removes a file.
fn check_leavings(container: &Container, names: &BTreeSet<Name>, report: &mut Report) {
    if names.contains(&Name::Tmp) {
        for entry in container.store.list(&container.dir).unwrap_or_default() {
            if entry.name.to_str().and_then(Name::parse) == Some(Name::Tmp) {
                report.find(
                    Severity::Garbage,
                    container.dir.join(entry.name),
                    0,
                    "a file that was never finished, or is being written now",
                );
            }
        }
    }
    for name in names {
        if let Name::Unsynced(set) = name
            && names.contains(&Name::LogSet(*set))
        {
            report.find(
                Severity::Note,
                container.path(&name::unsynced_mark(*set)),
                0,
                "a sync of this log set failed: some of its data may be lost",
            );
        }
        if let Name::Gone(set) = name {
            report.find(
                Severity::Garbage,
                container.path(&name::gone(*set)),
                0,
                "a log set that was being removed",
            );
        }
    }
    if names.contains(&Name::Clock)
        && let Err(error) = read_clock(container)
    {
        let path = container.path(name::CLOCK);
        match error {
            Error::Corrupt { bad, .. } => report.find(
                Severity::Note,
                path,
                bad.at_bytes,
                format!("{}: a power cut tore it; the next writer asks the index logs", bad.what),
            ),
            error => report.fail(&path, &error),
        }
    }
}

/// Summary and flat index behind it, as they are stored.
type SummaryBytes = [u8; summary::BYTES + summary::FLAT_BYTES];

fn read_summary(container: &Container) -> store::Result<SummaryBytes> {
    let file = container.store.open(&container.path(name::SUPER), Open::READ)?;
    let mut bytes = [0; summary::BYTES + summary::FLAT_BYTES];
    store::read_full(file.as_ref(), &mut bytes, summary::OFFSET).map(|_| bytes)
}

/// Gives whether the logs have all the records that the summary counts.
fn check_summary(
    container: &Container,
    names: &[Name],
    read: store::Result<SummaryBytes>,
    promised: &Promised,
    report: &mut Report,
) -> bool {
    let path = container.path(name::SUPER);
    let found = match Totalizer::default().look_at_logs(container, names) {
        Ok(totals) => totals,
        Err(error) => {
            report.fail(&container.dir, &error);
            return false;
        }
    };
    report.totals = Some(found);
    let bytes = match read {
        Ok(bytes) => bytes,
        Err(errno) => {
            report.find(
                Severity::Unknown,
                &path,
                summary::OFFSET,
                format!("cannot read the summary: {}", in_words(&path, errno)),
            );
            return true;
        }
    };
    let is_open = names.iter().any(|name| matches!(name, Name::OpenMark(_)));
    let Some(summary) = Summary::decode(&bytes, &container.superblock.uuid) else {
        if found.log_sets == 0 || is_open {
            return true;
        }
        let what = if bytes[..summary::BYTES].iter().all(|byte| *byte == 0) {
            "there is no summary"
        } else {
            "the summary is damaged"
        };
        report.find(
            Severity::Garbage,
            &path,
            summary::OFFSET,
            format!("{what}; sizes come from the index logs"),
        );
        return true;
    };
    let is_short = promised.recount.is_short_of(&summary);
    if is_open {
        return !is_short;
    }
    let valid = container.store.stat(&container.dir, Links::Follow).is_ok_and(|dir| {
        dir.mtime == store::Time { sec: summary.token_sec, nsec: summary.token_nsec }
    });
    // A base may change without PLFS; and who still writes it in place changes no time of the
    // directory.
    let of_logs = |bytes| if container.superblock.has_base { 0 } else { bytes };
    let then = (
        of_logs(summary.size),
        summary.records,
        summary.index_bytes,
        summary.data_logs,
        of_logs(summary.stored_bytes),
    );
    let now = (
        of_logs(found.size),
        found.records,
        found.index_bytes,
        found.data_logs,
        of_logs(found.stored_bytes),
    );
    let short = match summary.flat_index.is_empty() {
        false if valid => flat_state_of_file(container, Arc::new(summary.flat_index))
            .map_err(|error| (0, error.to_string()))
            .and_then(|(state, base)| match (state, base) {
                (FlatState::Used(_), Some(base)) => contradiction(&base, promised),
                (FlatState::Stale(why) | FlatState::Damaged(why), _) => {
                    Err((0, format!("the flat index is damaged {why}; readers do without it")))
                }
                _ => Ok(()),
            }),
        _ => Ok(()),
    };
    if let Err((at_bytes, what)) = short {
        // Written over together with the summary.
        report.find(
            Severity::Garbage,
            &path,
            summary::FLAT_OFFSET + at_bytes,
            format!("behind the summary: {what}"),
        );
    }
    if valid && then != now {
        let what = format!(
            "at the last close there were {}, {} in {} of index, {}; now there are {}, {} in {}, {}",
            several(summary.size, "byte"),
            several(then.1, "record"),
            several(then.2, "byte"),
            several(then.3.into(), "data log"),
            several(found.size, "byte"),
            several(now.1, "record"),
            now.2,
            several(now.3.into(), "data log"),
        );
        report.find(Severity::Corrupt, &path, summary::OFFSET, what);
    } else if !valid && is_short {
        let what = format!(
            "an earlier summary counted {} records, of which there are {} now: index logs have \
             disappeared",
            summary.records,
            promised.recount.records()
        );
        report.find(Severity::Corrupt, &path, summary::OFFSET, what);
    } else if !valid {
        report.find(
            Severity::Garbage,
            &path,
            summary::OFFSET,
            "the summary is void: a writer crashed, or somebody changed the container; sizes come \
             from the index logs",
        );
    }
    !is_short
}

/// Whether a reader uses the flat index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FlatState {
    /// There is none.
    None,
    /// It fits.
    Used(FlatTotals),
    /// It covers more than the index logs have, made for other logs.
    Stale(String),
    /// Its bytes contradict the format.
    Damaged(String),
}

/// What a flat index that fits holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlatTotals {
    /// Its length, bytes.
    pub bytes: u64,
    /// Whether it lies behind the summary in the superblock file, not in a file of its own.
    pub in_superblock: bool,
    /// Index records that were merged into it, of all kinds.
    pub records: u64,
    /// Entries: runs, and patterns across writers.
    pub entries: u64,
    /// Extents in packed blocks: what has no pattern.
    pub extents: u64,
    /// Shapes that entries have.
    pub shapes: u64,
    /// Orders up to this stamp have been left out; 0: none.
    pub floor: u64,
}

/// Looks at the flat index without loading the index logs, nor an index.
pub fn flat_state(container: &Container) -> Result<FlatState> {
    if let Some(summary) =
        Totalizer::default().settled(container)?.filter(|summary| !summary.flat_index.is_empty())
        && let FlatState::Used(totals) =
            flat_state_of_file(container, Arc::new(summary.flat_index))?.0
    {
        return Ok(FlatState::Used(FlatTotals { in_superblock: true, ..totals }));
    }
    Ok(read_flat(container)?.0)
}

/// The state of the file.
pub(super) fn read_flat(container: &Container) -> Result<(FlatState, Option<Base>)> {
    let path = container.path(name::FLAT);
    match container.store.open(&path, Open::READ) {
        Ok(file) => flat_state_of_base(
            container,
            crate::catalog::read_flat(container, file).at("read", &path)?,
        ),
        Err(Errno::NOENT) => Ok((FlatState::None, None)),
        Err(errno) => Err(errno).at("open", &path),
    }
}

fn flat_state_of_file(
    container: &Container,
    bytes: store::Bytes,
) -> Result<(FlatState, Option<Base>)> {
    let flat = flat_index::decode((*bytes).as_ref(), &container.superblock.uuid)
        .map(|flat| Base::new(bytes.clone(), flat));
    flat_state_of_base(container, flat)
}

fn flat_state_of_base(
    container: &Container,
    base: std::result::Result<Base, Bad>,
) -> Result<(FlatState, Option<Base>)> {
    let base = match base {
        Ok(base) => base,
        Err(bad) => return Ok((FlatState::Damaged(bad.to_string()), None)),
    };
    let flat = base.flat();
    for covered in flat.covered.iter().filter(|covered| covered.bytes > 0) {
        let log = container.path(&name::index_log(covered.set));
        let len = match container.store.stat(&log, Links::Follow) {
            Ok(stat) => stat.len,
            Err(Errno::NOENT | Errno::NOTDIR) => 0,
            Err(errno) => return Err(errno).at("stat", &log),
        };
        if len < covered.bytes {
            let why = format!(
                "it covers {} bytes of {}, which has {len}",
                covered.bytes,
                name::index_log(covered.set)
            );
            return Ok((FlatState::Stale(why), None));
        }
    }
    let totals = FlatTotals {
        bytes: base.file_bytes() as u64,
        in_superblock: false,
        records: flat.records,
        entries: flat.entries,
        extents: flat.extents,
        shapes: flat.shapes.len() as u64,
        floor: flat.floor,
    };
    Ok((FlatState::Used(totals), Some(base)))
}
