//! Open marks: who holds a container, and what becomes of the marks of who is dead
//! (docs/decisions/0009).

use std::path::Path;

use plfs_format::mark::Mark;
use plfs_format::name::{self, Name};

use super::check::examine;
use super::repair::sum_up;
use crate::config::Config;
use crate::container::{self, Container};
use crate::error::{At, Result};
use crate::log::{self, Carried};
use crate::store::machine::{ProcessFacts, boot_time_ns, is_dead, random_u64, start_of_process};
use crate::store::shm::{SharedPage, directory_identity};
use crate::store::{Errno, Links, Open, Store};
use crate::sync::Arc;

/// Pages that a process looks at in any case when it looks for those of the dead: a look costs four
/// system calls.
const REAP_LEAST: usize = 8;
/// How long it goes on. 2 ms: some 100 pages.
const REAP_NS: u64 = 2_000_000;
/// Marks that a closer looks at for the same reason: a look costs a system call on the storage and
/// two elsewhere.
pub(crate) const LOOK_MAX: usize = 8;

/// What became of an open mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cleared {
    /// Its owner's processes lived on this host and are dead; it was removed.
    Removed(OpenMark),
    /// It was fenced: nobody will append to its log set again. Its owner, should it live, gets an
    /// error.
    Fenced(OpenMark),
    /// Its owner lives on this host; nothing was done.
    Alive(OpenMark),
}

/// Ends the tenancies of owners that crashed, and writes the summary if no owner is left. Marks
/// whose owners live on this host stay.
///
/// An owner that lives on another host after all loses what it has not committed, and is told so
/// (ESTALE); what it has committed stays.
pub fn clear_marks(container: &Container, config: &Config) -> Result<Vec<Cleared>> {
    let mut cleared = Vec::new();
    for mark in open_marks(container)? {
        cleared.push(match life(container, config.shared_memory.as_deref(), &mark)? {
            Life::Lives => Cleared::Alive(mark),
            Life::Ended | Life::Unknown => end(container, config, mark)?,
        });
    }
    let none_is_left = cleared.iter().all(|mark| !matches!(mark, Cleared::Alive(_)));
    // A summary that counts more than the logs have is what says that logs are missing.
    if !cleared.is_empty() && none_is_left && !examine(container).1.is_short {
        sum_up(container)?;
    }
    Ok(cleared)
}

/// Ends the tenancies of owners that certainly have died: on this host, or before it was started
/// the last time. Looks at a few marks only. Whether it ended one.
pub(crate) fn end_the_dead(container: &Container, config: &Config, names: &[Name]) -> Result<bool> {
    let mut ended = false;
    let sets = names
        .iter()
        .filter_map(|name| if let Name::OpenMark(set) = name { Some(*set) } else { None });
    for set in sets.take(LOOK_MAX) {
        ended |= end_if_dead(container, config, set)?;
    }
    Ok(ended)
}

/// Ends the tenancy of this user's processes of this node, if all are dead.
pub(crate) fn end_node(container: &Container, config: &Config) -> Result<bool> {
    let Some(dir) = &config.shared_memory else { return Ok(false) };
    let user = container.store.user();
    let path = log::page_path_of(container, dir, user);
    if log::carry_left(container)? == Carried::InLogsAsLast {
        return Ok(true);
    }
    log::reclaim(container.store.as_ref(), &path, user, Some(container))
}

/// [`end_the_dead`] for one log set.
pub(super) fn end_if_dead(container: &Container, config: &Config, set: u32) -> Result<bool> {
    let Some(mark) = read_mark(container, set)? else { return Ok(false) };
    let is_dead = life(container, config.shared_memory.as_deref(), &mark)? == Life::Ended;
    Ok(is_dead && !matches!(end(container, config, mark)?, Cleared::Alive(_)))
}

/// Removes the mark, if we are the heir of its owner's page, else fences its log set: that of an
/// owner whose page nobody can find any more. By name, so what has the name must still be that
/// mark: once it goes, the next process of the node may take the set over.
fn end(container: &Container, config: &Config, mark: OpenMark) -> Result<Cleared> {
    if let Some(dir) = &config.shared_memory {
        log::carry_left(container)?;
        log::reclaim(
            container.store.as_ref(),
            &log::page_path_of(container, dir, mark.uid),
            mark.uid,
            Some(container),
        )?;
    }
    if let Some(text) = &mark.text {
        // In this order (docs/decisions/0009): whoever removes a mark removes it before the page
        // that names it. So one that is there when its page is not can only be fenced.
        if let Some(dir) = config.shared_memory.as_deref().filter(|_| text.place != 0)
            && log::names_tenancy(
                &log::page_path_of(container, dir, mark.uid),
                mark.uid,
                text.nonce,
            )?
        {
            // Somebody has joined it, or is its heir.
            return Ok(Cleared::Alive(mark));
        }
        if log::read_mark(container, mark.set)?.is_none_or(|there| there.nonce != text.nonce) {
            return Ok(Cleared::Removed(mark));
        }
    }
    let path = container.path(&name::open_mark(mark.set));
    match container.store.rename(&path, &container.path(&name::fenced_mark(mark.set))) {
        Ok(()) => Ok(Cleared::Fenced(mark)),
        Err(Errno::NOENT) => Ok(Cleared::Removed(mark)),
        Err(errno) => Err(errno).at("rename", &path),
    }
}

/// What can be known of an owner's processes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Life {
    /// One lives on this host.
    Lives,
    /// They were processes of this host, and are dead.
    Ended,
    /// They are on another host.
    Unknown,
}

fn life(container: &Container, shared_memory: Option<&Path>, mark: &OpenMark) -> Result<Life> {
    let Some(text) = &mark.text else { return Ok(Life::Unknown) };
    let ProcessFacts { boot, machine, pid_namespace, .. } = ProcessFacts::of_this_process();
    if text.boot == 0 || boot == 0 {
        return Ok(Life::Unknown);
    }
    if text.boot != boot {
        return Ok(if machine != 0 && text.machine == machine {
            Life::Ended
        } else {
            Life::Unknown
        });
    }
    if text.pid_namespace != pid_namespace || text.start == 0 {
        return Ok(Life::Unknown);
    }
    match start_of_process(text.pid) {
        start if start == text.start => return Ok(Life::Lives),
        // It may be there and hidden (hidepid), or /proc may be of another namespace than ours.
        0 if !is_dead(text.pid) => return Ok(Life::Unknown),
        _ => {}
    }
    // The founder may be gone while others of the node go on: they hold the shared page.
    if text.place != 0 {
        let Some(dir) = shared_memory else { return Ok(Life::Unknown) };
        let (dev, ino) = directory_identity(dir).at("stat", dir)?;
        if Mark::place_of(dev, ino) != text.place {
            return Ok(Life::Unknown);
        }
        match log::lives(&log::page_path_of(container, dir, mark.uid), mark.uid, text.nonce) {
            Ok(true) => return Ok(Life::Lives),
            Ok(false) => {}
            Err(error) if error.errno() == Errno::PERM => return Ok(Life::Unknown),
            Err(error) => return Err(error),
        }
    }
    // In this order (docs/decisions/0009): it may be somebody else's by now, in a tenancy that
    // began after the look at the page.
    let is_there =
        log::read_mark(container, mark.set)?.is_some_and(|there| there.nonce == text.nonce);
    Ok(if is_there { Life::Ended } else { Life::Unknown })
}

/// Whether a process may have the container open and hold it by its mark alone: see
/// [`LogSet::is_of_crowd`](log::LogSet::is_of_crowd). One stat, if the container has no clock.
pub(super) fn may_be_held_by_mark(
    container: &Container,
    shared_memory: Option<&Path>,
) -> Result<bool> {
    lives_of_crowd(container, shared_memory, |life| life != Life::Ended)
}

/// [`may_be_held_by_mark`], but certainly: the process lives.
pub(super) fn lives_by_mark(container: &Container) -> Result<bool> {
    lives_of_crowd(container, None, |life| life == Life::Lives)
}

fn lives_of_crowd(
    container: &Container,
    shared_memory: Option<&Path>,
    counts: impl Fn(Life) -> bool,
) -> Result<bool> {
    let clock = container.path(name::CLOCK);
    match container.store.stat(&clock, Links::Stay) {
        Err(Errno::NOENT) => return Ok(false),
        other => other.at("stat", &clock)?,
    };
    for mark in open_marks(container)? {
        if counts(life(container, shared_memory, &mark)?) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Ends the tenancies of jobs of this user that were killed on this host: commits what they had
/// written, removes their marks, and their pages from shared memory. Looks at all pages, or as many
/// as a short time allows; each process begins somewhere else, so that none is out of sight for
/// ever.
///
/// What cannot be done is left to the next one.
pub(crate) fn reap(store: &Arc<dyn Store>, config: &Config) {
    let Some(shared_memory) = config.shared_memory.as_deref() else { return };
    let user = store.user();
    let pages = SharedPage::find(shared_memory, (user != 0).then_some(user)).unwrap_or_default();
    let first = random_u64() as usize % pages.len().max(1);
    let begun = boot_time_ns();
    for (i, (page, uid)) in pages.iter().cycle().skip(first).take(pages.len()).enumerate() {
        if i >= REAP_LEAST && boot_time_ns().saturating_sub(begun) > REAP_NS {
            break;
        }
        if *uid == user {
            let _ = carry_left_by_page(store, config, page);
        }
        let _ = log::reclaim(store.as_ref(), page, *uid, None);
    }
    log::remove_stray_journals(shared_memory, user);
}

/// Commits what dead processes of this user on this node had written, in whatever containers.
pub(crate) fn carry_all_left(store: &Arc<dyn Store>, config: &Config) {
    let Some(shared_memory) = config.shared_memory.as_deref() else { return };
    for (page, _) in SharedPage::find(shared_memory, Some(store.user())).unwrap_or_default() {
        let _ = carry_left_by_page(store, config, &page);
    }
}

/// Commits what dead processes had written to the container that a page of this user names.
fn carry_left_by_page(store: &Arc<dyn Store>, config: &Config, page: &Path) -> Result<()> {
    let Some(dir) = log::dir_with_left(page, store.user())? else { return Ok(()) };
    let path = dir.join(name::SUPER);
    let root = container::root_of(&dir);
    let view = container::in_roots(store, [root]);
    let file = view.open(&path, Open::READ.briefly()).at("open", &path)?;
    let stat = file.stat().at("stat", &path)?;
    let Some((superblock, _)) = container::read_name(file.as_ref(), &stat, &path)? else {
        return Ok(());
    };
    let container = Container::in_root(store, &superblock, root)?.configured(config);
    match log::carry_left(&container)? {
        Carried::InLogsAsLast => sum_up(&container).map(drop),
        _ => Ok(()),
    }
}

/// A mark of an owner that may append.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenMark {
    /// Log set.
    pub set: u32,
    /// Host of the process that founded or took over the set, the beginning of its name; empty if
    /// the mark does not say.
    pub host: String,
    /// Its process id; 0 if the mark does not say.
    pub pid: u32,
    /// Its user id.
    pub uid: u32,
    /// When it attached, nanoseconds since 1970 UTC.
    pub attached_ns: u64,
    /// All that the mark says; `None`: nothing that this version can read.
    pub text: Option<Mark>,
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

pub(super) fn read_mark(container: &Container, set: u32) -> Result<Option<OpenMark>> {
    let text = log::read_mark(container, set)?;
    if text.is_none()
        && container.store.stat(&container.path(&name::open_mark(set)), Links::Stay)
            == Err(Errno::NOENT)
    {
        return Ok(None);
    }
    let said = text.clone().unwrap_or_default();
    let since = container
        .store
        .stat(&container.path(&name::open_mark(set)), Links::Stay)
        .map_or(0, |stat| stat.mtime.ns());
    Ok(Some(OpenMark {
        set,
        host: said.host,
        pid: said.pid,
        uid: said.uid,
        attached_ns: u64::try_from(since).unwrap_or(0),
        text,
    }))
}
