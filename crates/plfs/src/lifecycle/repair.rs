//! The repairs that lose nothing: what they could not account for is moved, never removed.

use std::path::{Path, PathBuf};

use plfs_format::name::{self, Name};
use plfs_format::superblock::{FILE_BYTES, SuperError, Superblock};
use plfs_format::{Uuid, summary};

use super::check::{
    FlatState, Promised, Report, Severity, check_index_log, examine, read_flat, uuid_of,
};
use super::lost::take_out;
use super::marks::{end_if_dead, end_the_dead, open_marks};
use super::remove::{if_nameless, remove_container, remove_gone, remove_tree};
use crate::catalog::{open_super, write_summary};
use crate::config::Config;
use crate::container::{Container, base, in_roots, read_name, root_of};
use crate::error::{At, Error, Result};
use crate::log::{self, Piece};
use crate::store::machine::random_u64;
use crate::store::{self, Errno, Kind, Links, Open, Stat, Store};
use crate::sync::Arc;
use crate::write::Identity;

/// Bytes that are copied at once.
const COPIED_BYTES: usize = 1 << 20;

/// Puts right what `report` found. Removes caches and what was never finished: stale, damaged and
/// unfinished flat indexes, log sets that a later truncate or compaction made dead, containers
/// without a name and without a byte of data. Moves all else that is garbage to lost+found, from
/// where [`put_back`](super::put_back) brings it: containers without a name, data to which no
/// record points. Writes a missing summary. Gives what it did, in words.
///
/// Where index logs are missing or damaged, nobody can tell which data belongs to what they said:
/// then data stays where it is, and so do the flat index and a summary that counts more
/// records than there are. Putting the index logs back makes the file whole.
///
/// A container that was a plain file before goes only when its base has no other name and nobody
/// has it open: the base is the user's file.
///
/// Gives a superblock to whose name a program without PLFS has written its bytes and its length
/// again, however new that is: writers change neither. What was written goes to lost+found.
///
/// Leaves alone what changed within `min_age_s` seconds: it may be a file that is being made; and a
/// container whose data on other backends is that of its [original](Container::original).
/// Leaves containers that are open for writing alone, unless all who had them open have certainly
/// died on this host: then it ends their tenancies first.
pub fn repair(
    store: &Arc<dyn Store>,
    config: &Config,
    report: &Report,
    min_age_s: u64,
) -> Result<Vec<String>> {
    let now = store::Time::now().sec.cast_unsigned();
    let is_old = |time: store::Time| {
        u64::try_from(time.sec).is_ok_and(|sec| sec.saturating_add(min_age_s) <= now)
    };
    let mut done = Vec::new();
    let store = &in_roots(store, [root_of(&report.dir)]);
    let super_path = report.dir.join(name::SUPER);
    if report.nameless {
        // The names of one that was a plain file are links of its base.
        let age = store
            .stat(&report.dir.join(name::BASE), Links::Stay)
            .or_else(|_| store.stat(&super_path, Links::Stay))
            .or_else(|_| store.stat(&report.dir, Links::Stay));
        if age.is_ok_and(|stat| is_old(stat.ctime)) && report.copies.is_empty() {
            take_nameless(store, config, report, &mut done)?;
        }
        return Ok(done);
    }
    take_out_written(store.as_ref(), &report.dir, &mut done)?;
    let Some(container) = readable(store, &report.dir)? else { return Ok(done) };
    if container.original().is_some() {
        return Ok(done);
    }
    // A repair that died is among them.
    end_the_dead(&container, config, &container.list()?)?;
    if !open_marks(&container)?.is_empty() {
        return Ok(done);
    }
    // Anew: what a mark hid that a repair left behind is not in the report.
    let (report, accounts) = examine(&container);
    let is_accounted = !accounts.is_unread && !accounts.is_short;
    let garbage = report.findings.iter().filter(|finding| finding.severity >= Severity::Garbage);
    for finding in garbage {
        let path = &finding.path;
        let Some(file) = path.file_name().and_then(|file| file.to_str()) else { continue };
        let old = store
            .stat(path, Links::Stay)
            .is_ok_and(|stat| is_old(stat.mtime) && is_old(stat.ctime));
        match Name::parse(file) {
            Some(Name::Tmp) if old => remove_file(store.as_ref(), path, &mut done)?,
            Some(Name::Gone(set)) if is_dead(&container, set)? => {
                remove_gone(&container, set)?;
                done.push(removed(path));
            }
            Some(Name::Gone(_)) => {
                let entry = take_out(
                    store.as_ref(),
                    &container.dir,
                    &container.dir,
                    path,
                    "it was a log set on its way out, and nothing says that all of it was dead",
                )?;
                done.push(moved(path, &entry));
            }
            // It may be all that is left of what index logs said.
            Some(Name::Flat)
                if is_accounted
                    && (!matches!(read_flat(&container)?.0, FlatState::Used(_))
                        || finding.severity == Severity::Corrupt) =>
            {
                remove_file(store.as_ref(), path, &mut done)?;
            }
            None if is_accounted
                && name::parse_data_log(file).is_some()
                && finding.severity == Severity::Garbage
                && old =>
            {
                if let Some(entry) = take_unrecorded(&container, path)? {
                    done.push(moved(path, &entry));
                }
            }
            _ => {}
        }
    }
    let lacks_summary = report.findings.iter().any(|finding| {
        finding.path == super_path
            && finding.at_bytes == summary::OFFSET
            && finding.severity == Severity::Garbage
    });
    // Removing anything made the old one void. One that counts more than there is stays: it is what
    // says so.
    let wrote = (lacks_summary || !done.is_empty()) && !accounts.is_short && sum_up(&container)?;
    if wrote && lacks_summary {
        done.push(format!("wrote the summary in {}", super_path.display()));
    }
    Ok(done)
}

fn removed(path: &Path) -> String {
    format!("removed {}", path.display())
}

fn moved(path: &Path, entry: &Path) -> String {
    format!(
        "moved {} to {} (--undo puts it back, --discard removes it for ever)",
        path.display(),
        entry.display()
    )
}

fn remove_file(store: &dyn Store, path: &Path, done: &mut Vec<String>) -> Result<()> {
    match store.unlink(path) {
        Ok(()) => done.push(removed(path)),
        Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno).at("remove", path),
    }
    Ok(())
}

/// Whether all of a log set on its way out is dead: it can be read, and another one has a truncate
/// to nothing that is younger.
fn is_dead(container: &Container, set: u32) -> Result<bool> {
    let gone = container.path(&name::gone(set));
    // A link that somebody planted has no data, and goes by itself.
    if container.store.stat(&gone, Links::Stay).is_ok_and(|stat| stat.kind == Kind::Symlink) {
        return Ok(true);
    }
    let path = gone.join("index");
    let (mut youngest, mut is_whole) = (0, true);
    let scanned = log::scan_pieces_at(container, &path, set, 0, |_, piece| {
        match piece {
            Piece::Block(header, _) => youngest = youngest.max(header.stamp),
            Piece::Gap { torn, .. } => is_whole &= torn,
            Piece::Refused(_) => is_whole = false,
        }
        Ok(())
    });
    let scanned = match scanned {
        Err(error) if error.errno() == Errno::LOOP => return Ok(false),
        other => other?,
    };
    let mut promised = Promised::default();
    for name in container.list()? {
        if let Name::LogSet(set) = name {
            check_index_log(container, set, false, &mut promised, &mut Report::default());
        }
    }
    Ok(scanned.is_some() && is_whole && youngest < promised.recount.emptied())
}

/// Removes log sets on their way out that are dead for sure: what somebody could not remove who
/// died, or to whom a backend was not there.
pub(crate) fn remove_what_has_gone(container: &Container) -> Result<()> {
    for name in container.list()? {
        if let Name::Gone(set) = name
            && is_dead(container, set)?
        {
            remove_gone(container, set)?;
        }
    }
    Ok(())
}

/// The superblock file that the one at `path`, of inode `ino`, was made as.
pub(super) fn second_copy(store: &dyn Store, path: &Path, ino: u64) -> Option<Vec<u8>> {
    base::decision_of(store, path).ok()??.superblock_of(ino)
}

/// Puts a superblock right, if a program without PLFS has written to the file's name, or cut it:
/// gives it its bytes again, as far as there is a second copy, and its length. What was written is
/// moved to lost+found.
fn take_out_written(store: &dyn Store, dir: &Path, done: &mut Vec<String>) -> Result<()> {
    let path = dir.join(name::SUPER);
    let (Ok(file), length) = (store.open(&path, Open::READ_WRITE), FILE_BYTES as u64) else {
        return Ok(());
    };
    let mut bytes = vec![0; FILE_BYTES];
    let n = store::read_full(file.as_ref(), &mut bytes, 0).at("read", &path)?;
    let stat = file.stat().at("stat", &path)?;
    let uuid = uuid_of(dir);
    let is_of = |superblock: &Superblock| uuid == Some(superblock.uuid);
    let (from, copy) = match Superblock::decode(&bytes[..n]) {
        Ok(superblock) if is_of(&superblock) && stat.len == length => return Ok(()),
        Ok(superblock) if is_of(&superblock) => (length, None),
        Err(SuperError::Bad(bad)) if bad.newer => return Ok(()),
        Err(SuperError::Unknown { .. }) => return Ok(()),
        // That of another one, too: its name was copied over this one.
        Ok(_) | Err(SuperError::NotASuperblock | SuperError::Bad(_)) => {
            match second_copy(store, &path, stat.ino) {
                Some(copy) => (0, Some(copy)),
                None => return Ok(()),
            }
        }
    };
    // What the last close has counted says whether index logs are lost.
    let counted = bytes
        .get(summary::OFFSET as usize..n)
        .filter(|bytes| uuid.is_some_and(|uuid| summary::Summary::decode(bytes, &uuid).is_some()));
    let copy = copy.map(|mut copy| {
        if let Some(counted) = counted {
            copy.truncate(summary::OFFSET as usize);
            copy.extend(counted);
        }
        copy
    });
    let restore = || {
        if let Some(copy) = &copy {
            store::write_full(file.as_ref(), copy, 0).at("write", &path)?;
        }
        file.set_len(length).at("set the length of", &path)?;
        file.sync_all().at("sync", &path)
    };
    if stat.len <= from {
        restore()?;
        let what = if copy.is_some() { "bytes and its length" } else { "length" };
        done.push(format!("gave {} its {what} again", path.display()));
        return Ok(());
    }
    // It stays in the superblock's file until it is safe.
    let tmp = dir.join(format!("{}{:08x}", name::SUPER_TMP, random_u64() as u32));
    let kept = store.open(&tmp, Open::create_new(0o600)).at("create", &tmp)?;
    let (mut at, mut buf) = (from, vec![0; COPIED_BYTES]);
    loop {
        let n = store::read_full(file.as_ref(), &mut buf, at).at("read", &path)?;
        if n == 0 {
            break;
        }
        store::write_full(kept.as_ref(), &buf[..n], at - from).at("write", &tmp)?;
        at += n as u64;
    }
    kept.sync_all().at("sync", &tmp)?;
    let entry =
        take_out(store, dir, dir, &tmp, "a program without PLFS wrote it to the file's name")?;
    restore()?;
    done.push(format!(
        "moved the {} bytes that a program without PLFS wrote to the file's name to {}",
        at - from,
        entry.display()
    ));
    Ok(())
}

/// Writes the summary; the file's times stay.
pub(crate) fn sum_up(container: &Container) -> Result<bool> {
    let path = container.path(name::SUPER);
    let before = container.store.stat(&path, Links::Stay).at("stat", &path)?;
    let wrote = write_summary(container, open_super(container)?.as_ref(), &container.list()?)?;
    container
        .store
        .set_times(&path, Some(before.atime), Some(before.mtime))
        .at("set the times of", &path)?;
    Ok(wrote.is_some())
}

/// Takes out a container without a name, whatever its superblock says.
fn take_nameless(
    store: &Arc<dyn Store>,
    config: &Config,
    report: &Report,
    done: &mut Vec<String>,
) -> Result<()> {
    let path = report.dir.join(name::SUPER);
    let readable = readable(store, &report.dir)?;
    let found = store.stat(&path, Links::Stay);
    let has_base = store.stat(&report.dir.join(name::BASE), Links::Stay).is_ok();
    let container = match (readable, found, report.uuid) {
        (Some(container), ..) => container,
        // Its names would be links of either.
        (None, Ok(found), Some(_)) if has_base && found.nlink > 1 => return Ok(()),
        (None, Ok(_), Some(uuid)) => unread(store, &report.dir, uuid, has_base)?,
        (None, Err(Errno::NOENT), Some(uuid)) if has_base => {
            unread(store, &report.dir, uuid, true)?
        }
        (None, Err(Errno::NOENT), _) => {
            // Nothing but empty directories: whoever is making them begins again, or fails with an
            // error at worst.
            for entry in store.list(&report.dir).at("list", &report.dir)? {
                let inner = report.dir.join(entry.name);
                store.rmdir(&inner).at("remove", &inner)?;
            }
            store.rmdir(&report.dir).at("remove", &report.dir)?;
            done.push(removed(&report.dir));
            return Ok(());
        }
        (None, Ok(_), None) => return Ok(()),
        (None, Err(errno), _) => return Err(errno).at("stat", &path),
    };
    if_nameless(&container, config.shared_memory.as_deref(), || {
        // Another repair may have moved it meanwhile. The container's own view goes along, and
        // would empty what was kept.
        let path = container.inode_path();
        match store.stat(&path, Links::Stay) {
            Ok(stat) if (stat.dev, stat.ino) == container.identity => {}
            Ok(_) | Err(Errno::NOENT) => return Ok(()),
            Err(errno) => return Err(errno).at("stat", &path),
        }
        let dirs: Vec<PathBuf> = container.own_dirs()?.into_iter().rev().collect();
        if dirs
            .iter()
            .map(|dir| is_empty(store.as_ref(), dir))
            .collect::<Result<Vec<_>>>()?
            .into_iter()
            .all(|empty| empty)
        {
            done.push(removed(&report.dir));
            return remove_container(&container);
        }
        for dir in dirs {
            if is_empty(store.as_ref(), &dir)? && *dir != *container.dir {
                remove_tree(store.as_ref(), &dir)?;
            } else if store.stat(&dir, Links::Stay).is_ok() {
                let entry = take_out(
                    store.as_ref(),
                    &container.dir,
                    &dir,
                    &dir,
                    "it is a container without a name",
                )?;
                done.push(moved(&dir, &entry));
            }
        }
        Ok(())
    })
    .map(drop)
}

/// A container whose superblock is lost, and with it the places of other backends: what lies in
/// `dir` can go.
pub(super) fn unread(
    store: &Arc<dyn Store>,
    dir: &Path,
    uuid: Uuid,
    has_base: bool,
) -> Result<Container> {
    let superblock = Superblock {
        uuid,
        created_ns: 0,
        boot: 0,
        created_boot_ns: 0,
        mode: 0,
        uid: 0,
        gid: 0,
        has_base,
        streams: 1,
        segment_bytes: 0,
        backends: vec![0],
        placement: None,
        root: Vec::new(),
        inode: 0,
    };
    Container::in_root(store, &superblock, root_of(dir))
}

/// Whether a container's directory has nothing in it that a program wrote.
fn is_empty(store: &dyn Store, dir: &Path) -> Result<bool> {
    let entries = match store.list(dir) {
        // A link that somebody planted goes by itself.
        Err(Errno::NOENT | Errno::LOOP) => return Ok(true),
        Err(Errno::NOTDIR) => {
            return Ok(store.stat(dir, Links::Stay).at("stat", dir)?.kind == Kind::Symlink);
        }
        other => other.at("list", dir)?,
    };
    for entry in entries {
        let path = dir.join(&entry.name);
        let stat = store.stat(&path, Links::Stay).at("stat", &path)?;
        let is_empty = match (entry.name.to_str().and_then(Name::parse), stat.kind) {
            (Some(Name::Super | Name::Flat | Name::Tmp | Name::Clock | Name::Lock), Kind::File) => {
                true
            }
            (Some(Name::Base), Kind::File) => stat.len == 0,
            (Some(Name::OpenMark(_) | Name::Fenced(_) | Name::Unsynced(_)), Kind::Symlink) => true,
            (Some(Name::LogSet(_) | Name::Gone(_)), Kind::Dir) => {
                let logs = store.list(&path).at("list", &path)?;
                logs.iter().all(|log| {
                    store
                        .stat(&path.join(&log.name), Links::Stay)
                        .is_ok_and(|stat| stat.kind == Kind::File && stat.len == 0)
                })
            }
            _ => false,
        };
        if !is_empty {
            return Ok(false);
        }
    }
    Ok(true)
}

pub(super) fn readable(store: &Arc<dyn Store>, dir: &Path) -> Result<Option<Container>> {
    let path = dir.join(name::SUPER);
    let (file, stat) =
        match store.open(&path, Open::READ).and_then(|file| file.stat().map(|stat| (file, stat))) {
            Ok(opened) => opened,
            // Not a directory: a report on a name whose container was not found.
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
            Err(errno) => return Err(errno).at("open", &path),
        };
    let Ok(Some((superblock, _))) = read_name(file.as_ref(), &stat, &path) else { return Ok(None) };
    Ok(in_dir(store, &superblock, dir, &stat))
}

/// The container in `dir` with this superblock, a file with stat `found` there. One without the
/// base that it should have is not read any more, but its names and its backends are known.
pub(super) fn in_dir(
    store: &Arc<dyn Store>,
    superblock: &Superblock,
    dir: &Path,
    found: &Stat,
) -> Option<Container> {
    let in_root = |superblock: &Superblock| Container::in_root(store, superblock, root_of(dir));
    let container = match in_root(superblock) {
        Err(error) if superblock.has_base && error.errno() == Errno::NOENT => {
            in_root(&Superblock { has_base: false, ..superblock.clone() })
        }
        other => other,
    };
    let container = container.ok().filter(|container| *container.dir == *dir)?;
    let is_its = container.superblock.has_base || container.identity == (found.dev, found.ino);
    is_its.then_some(container)
}

/// Moves a data log to which no record points to lost+found; `None` if there is one now. Owns its
/// log set meanwhile, so that no writer takes the set over and points to it.
fn take_unrecorded(container: &Container, path: &Path) -> Result<Option<PathBuf>> {
    let store = &container.store;
    let Some(set_dir) = path.parent() else { return Ok(None) };
    let Some(Name::LogSet(set)) =
        set_dir.file_name().and_then(|set| set.to_str()).and_then(Name::parse)
    else {
        return Ok(None);
    };
    let Some(dir) = set_dir.parent() else { return Ok(None) };
    let taken = own_set(store, &container.dir, set, || {
        let mut promised = Promised::default();
        for name in container.list()? {
            match name {
                Name::OpenMark(other) if other != set => return Ok(None),
                Name::LogSet(set) => {
                    check_index_log(container, set, false, &mut promised, &mut Report::default())
                }
                _ => {}
            }
        }
        let named = path.file_name().and_then(|file| file.to_str()).and_then(name::parse_data_log);
        let is_named = named.is_none_or(|(stream, segment)| promised.has((set, stream, segment)));
        if is_named || promised.is_damaged || promised.missing.contains(&set) {
            return Ok(None);
        }
        take_out(store.as_ref(), &container.dir, dir, path, "no index record points to its bytes")
            .map(Some)
    });
    match taken {
        Err(Error::Io { errno: Errno::BUSY | Errno::NOENT, .. }) => Ok(None),
        other => other,
    }
}

/// Runs `act` as the owner of a log set whose container lies at `dir`; EBUSY if it has an owner who
/// may live. Who dies in between leaves a mark of somebody who is dead.
pub(super) fn own_set<T>(
    store: &Arc<dyn Store>,
    dir: &Path,
    set: u32,
    act: impl FnOnce() -> Result<T>,
) -> Result<T> {
    clear_dead_mark(store, dir, set)?;
    let path = dir.join(name::open_mark(set));
    if !log::claim_in(store.as_ref(), dir, set, &Identity::of_this_process(store.user()).mark())? {
        return Err(Error::refused(
            Errno::BUSY,
            "take",
            &path,
            "it has an owner (`plfs check` says who)",
        ));
    }
    let result = act();
    match store.unlink(&path) {
        // Gone if somebody fenced the set: then nobody appends there.
        Ok(()) | Err(Errno::NOENT) => result,
        Err(errno) => result.and(Err(errno).at("remove", &path)),
    }
}

/// Ends the tenancy of a log set if its owner certainly has died, as a repair may have. One that
/// shared memory is left to who knows where.
pub(super) fn clear_dead_mark(store: &Arc<dyn Store>, dir: &Path, set: u32) -> Result<()> {
    if store.stat(&dir.join(name::open_mark(set)), Links::Stay) == Err(Errno::NOENT) {
        return Ok(());
    }
    let Some(container) = readable(store, dir)? else { return Ok(()) };
    end_if_dead(&container, &Config { shared_memory: None, ..Config::default() }, set).map(drop)
}
