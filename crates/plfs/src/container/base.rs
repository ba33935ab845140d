//! A plain file that becomes a container (FORMAT.md section 11, docs/decisions/0013).
//!
//! The file keeps its inode and its names. Its attribute says, once and for ever, of which
//! container it is the `base`, or that it stays plain. The decision comes first; what it promises
//! is built afterwards, by any writer, and until it is whole the file is plain for all.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use plfs_format::attribute::{self, Decision};
use plfs_format::name::Name;
use plfs_format::summary::Summary;
use plfs_format::superblock::{FILE_BYTES, SuperError, Superblock};
use plfs_format::{Bad, Uuid, name, summary};

use super::attributes::{dir_mode, follow_base};
use super::clock::{wall_clock, wall_clock_at, write_clock};
use super::create::{make_dir, new_uuid, plan};
use super::directory::Layouts;
use super::layout::{Container, WRITTEN_TO, container_dir, places};
use crate::config::Config;
use crate::error::{At, Error, Result};
use crate::store::machine::random_u64;
use crate::store::{self, Errno, Keep, Kind, Links, Open, Stat, Store, StoreFile, Time};
use crate::sync::{Arc, thread};

/// What is written in place gets its modification time from a clock that ticks: 10 ms, the longest
/// tick of Linux (CONFIG_HZ=100). Of a clock that this machine reads it is behind what it says now.
const TICK_NS: i128 = 10_000_000;

/// How long who waits for the clock sleeps at a time: 1 ms.
const WAIT_NS: i128 = 1_000_000;

/// How long somebody who makes a container whole waits for one who truncates in place: for a
/// truncate of a long file, which takes the time to free it.
const GATE_TRIES: u32 = 100;

/// How often who cannot make a container where it was decided looks for its base, every 5 ms: ten
/// times as long as a CephFS takes to make the directory and the link.
const BASE_TRIES: u32 = 100;

/// A container whose directory is older is not being made any more: a second.
const MAKING_NS: u128 = 1_000_000_000;

/// What the attribute of a plain file says; `None` if nothing is decided.
///
/// What somebody else decides later is not seen in this answer. One call.
pub fn look(file: &dyn StoreFile) -> store::Result<Option<Decision>> {
    match file.attribute(attribute::NAME) {
        Ok(None) | Err(Errno::OPNOTSUPP) => Ok(None),
        // What this version does not understand stays as it is.
        Ok(Some(text)) => Ok(Some(
            Decision::decode(&text).unwrap_or_else(|| Decision::Plain("by a newer PLFS".into())),
        )),
        Err(errno) => Err(errno),
    }
}

/// What is decided of the regular file that `path` leads to, for who tells people. Nothing of a
/// file that may not be read.
pub fn decision_of(store: &dyn Store, path: &Path) -> Result<Option<Decision>> {
    let look = || look(store.open(path, Open::READ.briefly())?.as_ref());
    match look() {
        Err(Errno::ACCESS | Errno::PERM) => Ok(None),
        other => other.at("read the attribute user.plfs of", path),
    }
}

/// Decides that the file stays plain, unless something is decided already. Gives what is decided.
pub fn pin(file: &dyn StoreFile, why: &str) -> store::Result<Decision> {
    decide(file, Decision::Plain(why.into()))
}

fn decide(file: &dyn StoreFile, wanted: Decision) -> store::Result<Decision> {
    match file.set_new_attribute(attribute::NAME, &wanted.encode()) {
        Ok(()) => Ok(wanted),
        Err(Errno::EXIST) => look(file)?.ok_or(Errno::IO),
        Err(errno) => Err(errno),
    }
}

/// Whether somebody began to make a container of the file, who may have died. One call.
pub fn is_begun(file: &dyn StoreFile, stat: &Stat) -> bool {
    matches!(look(file), Ok(Some(Decision::Container { ino, .. })) if ino == stat.ino)
}

/// What `find` finds of a container once it is made, if somebody is at it by `is_begun`: waits for
/// him, 64 ms at most. It takes him 1 ms where nobody disturbs him; with eight writers on two
/// processors, all of which wrote in place or made it as well, it took 12; and its sync waits for a
/// disk that has much to write.
///
/// Who has changed mode or owner of a file, and took it for plain, needs that: who makes it links
/// the base before he looks at these, and again when it is whole; but he can only follow if the
/// file is still his. One with a single link needs nothing.
pub fn when_made<T>(
    find: impl Fn() -> Result<Option<T>>,
    is_begun: impl Fn() -> bool,
) -> Result<Option<T>> {
    // No longer at a time than it takes: who oversleeps leaves his processor idle.
    let pauses_us = [250; 8].into_iter().chain([1000; 62]);
    for pause_us in pauses_us {
        let found = find()?;
        if found.is_some() || !is_begun() {
            return Ok(found);
        }
        thread::sleep(Duration::from_micros(pause_us));
    }
    find()
}

/// The container whose base is `file`, a plain file with stat `stat` that was opened as `path`, and
/// the summary in its superblock. `None`: it is plain, for now or for ever.
///
/// One call for a file about which nothing is decided; else a lookup of the container's directory,
/// a stat and a read. [`Error::MissingContainer`] if it has one, which is not found.
pub fn find(
    store: &Arc<dyn Store>,
    file: &dyn StoreFile,
    stat: &Stat,
    path: &Path,
    mounts: &[PathBuf],
) -> Result<Option<(Container, Option<Summary>)>> {
    match look(file) {
        Ok(Some(decision)) => find_decided(store, &decision, stat, path, mounts),
        Ok(None) => Ok(None),
        // Who may not read the attribute may not read the file.
        Err(Errno::ACCESS | Errno::PERM) => Ok(None),
        Err(errno) => Err(errno).at("read the attribute user.plfs of", path),
    }
}

/// Corrupt if `file`, a name with this `superblock`, was made as that of another container: a
/// program without PLFS has copied a name over it. One call, if the superblock is a copy.
pub fn must_be_its_own(
    file: &dyn StoreFile,
    superblock: &Superblock,
    stat: &Stat,
    path: &Path,
) -> Result<()> {
    let is_copy = superblock.inode != stat.ino && stat.nlink > 1;
    let decision = if is_copy { look(file).unwrap_or(None) } else { None };
    let made_as = decision.and_then(|decision| decision.superblock_of(stat.ino));
    match made_as.as_deref().map(Superblock::decode) {
        Some(Ok(own)) if own.uuid != superblock.uuid => {
            Err(Error::of_bytes(path, Bad::new(0, WRITTEN_TO)))
        }
        _ => Ok(()),
    }
}

/// [`find`] for who has looked.
pub fn find_decided(
    store: &Arc<dyn Store>,
    decision: &Decision,
    stat: &Stat,
    path: &Path,
    mounts: &[PathBuf],
) -> Result<Option<(Container, Option<Summary>)>> {
    if decision.superblock_of(stat.ino).is_some() {
        return Err(Error::of_bytes(path, Bad::new(0, WRITTEN_TO)));
    }
    let Decision::Container { uuid, ino, root } = decision else { return Ok(None) };
    // A copy of the file, with its attributes. In a copy of the whole tree it may be the base of
    // the copied container, which is its own then.
    let is_copy = *ino != stat.ino;
    if is_copy && stat.nlink <= 1 {
        return Ok(None);
    }
    let recorded = Path::new(OsStr::from_bytes(root));
    let above_mount = mounts.iter().map(PathBuf::as_path).filter(|mount| path.starts_with(mount));
    let (mut looked, mut unknown) = (Vec::<PathBuf>::new(), None);
    for root in above_mount.chain(path.ancestors().skip(1)).chain([recorded]) {
        let dir = container_dir(root, *uuid);
        if looked.contains(&dir) {
            continue;
        }
        match open_whole(store, root, *uuid, stat) {
            Ok(Some(found)) => return Ok(Some(found)),
            Ok(None) => {}
            // Where a copy comes from its container is not.
            Err(_) if is_copy && root == recorded => {}
            // Another of these may have it.
            Err(error) => drop(unknown.get_or_insert(error)),
        }
        looked.push(dir);
    }
    // What was written to the container would be hidden, or come to lie over what is written now.
    if let Some(error) = unknown {
        return Err(error);
    }
    let is_root = |root: &Path| {
        let found = store.stat(&root.join(name::ROOT_DIR), Links::Stay);
        found.is_ok_and(|stat| stat.kind == Kind::Dir)
    };
    // It was never made whole; or power was cut before anybody had synced what is in it.
    let is_begun = || looked.iter().any(|dir| has_base(store.as_ref(), dir, stat));
    if is_copy || stat.nlink <= 1 || is_root(recorded) || is_begun() {
        return Ok(None);
    }
    Err(Error::MissingContainer { name: path.to_path_buf(), uuid: *uuid, looked })
}

/// Whether somebody makes the container of the file with this stat at this moment, as far as its
/// directory says: it is there since a second at most, or not yet.
pub fn is_being_made(store: &dyn Store, decision: &Decision, stat: &Stat) -> bool {
    let Decision::Container { uuid, ino, root } = decision else { return false };
    let dir = container_dir(Path::new(OsStr::from_bytes(root)), *uuid);
    *ino == stat.ino
        && match store.stat(&dir, Links::Stay) {
            Ok(dir) => Time::now().ns().abs_diff(dir.mtime.ns()) < MAKING_NS,
            Err(_) => stat.nlink <= 1,
        }
}

/// Whether the base of the container in `dir` is the file with this stat.
fn has_base(store: &dyn Store, dir: &Path, stat: &Stat) -> bool {
    let base = store.stat(&dir.join(name::BASE), Links::Stay);
    base.is_ok_and(|base| (base.dev, base.ino) == (stat.dev, stat.ino))
}

/// The container `uuid` below `root` if its base is the file with this stat, and it is whole.
fn open_whole(
    store: &Arc<dyn Store>,
    root: &Path,
    uuid: Uuid,
    stat: &Stat,
) -> Result<Option<(Container, Option<Summary>)>> {
    let (dir, local) = (container_dir(root, uuid), store.is_local(root));
    let view = store.inside(places(root, uuid), Keep::WhenUsed).unwrap_or_else(|| store.clone());
    match view.stat(&dir.join(name::BASE), Links::Stay) {
        Ok(base) if (base.dev, base.ino) == (stat.dev, stat.ino) => {}
        // Another container, or a copy of this one.
        Ok(_) | Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        Err(errno) => return Err(errno).at("use", &dir),
    }
    let path = dir.join(name::SUPER);
    let file = match view.open(&path, Open::READ.briefly()) {
        Err(Errno::NOENT) => return Ok(None),
        other => other.at("open", &path)?,
    };
    if !local {
        file.forget_cached();
    }
    let mut bytes = [0; FILE_BYTES];
    let n = store::read_full(file.as_ref(), &mut bytes, 0).at("read", &path)?;
    let superblock = match Superblock::decode(&bytes[..n]) {
        Ok(superblock) if superblock.uuid == uuid && superblock.has_base => superblock,
        Ok(_) | Err(SuperError::NotASuperblock) => {
            let what = "it is not the superblock of the file's container";
            return Err(Error::of_bytes(&path, plfs_format::Bad::new(0, what)));
        }
        Err(SuperError::Unknown { major, features }) => {
            return Err(Error::UnknownFormat { path, major, features });
        }
        Err(SuperError::Bad(bad)) => return Err(Error::of_bytes(&path, bad)),
    };
    let summary = bytes.get(summary::OFFSET as usize..n).and_then(|b| Summary::decode(b, &uuid));
    let identity = (stat.dev, stat.ino);
    let container = Container::of_parts(view, superblock, dir, identity, local);
    Ok(Some((container, summary)))
}

/// The attribute that has a file's access list, if it has one beyond its mode (acl(5)).
const ACCESS_LIST: &str = "system.posix_acl_access";

/// Makes `file`, a plain file with the name `path` that this user owns and has open for writing,
/// the base of a container below `root`. Gives what is decided of it: it may stay plain, by
/// somebody else's decision. Then, and where it cannot be made now (no rights, no attributes, no
/// links, a program has locked the file to its end): `None`.
///
/// A death at any point leaves a plain file, or this container; who comes next goes on. Costs some
/// twelve calls, once in the life of a file. Where another node decided, which has the file system
/// at another path, it waits for that node, for 0.5 s at most. Calls `is_decided` before it begins.
pub fn promote(
    store: &Arc<dyn Store>,
    config: &Config,
    layouts: &Layouts,
    file: &dyn StoreFile,
    path: &Path,
    root: &Path,
    is_decided: impl FnOnce(),
) -> Result<Option<(Container, Option<Summary>)>> {
    let stat = file.stat().at("stat", path)?;
    if stat.uid != store.user() || stat.kind != Kind::File {
        return Ok(None);
    }
    // These stay plain: who writes it in place could not look, or would be behind the clock of the
    // container.
    if has_writers_that_may_not_read(stat.mode) || is_ahead(stat.mtime) {
        return Ok(None);
    }
    // The mode of the container's directory would keep out whom an access list lets in.
    if file.attribute(ACCESS_LIST).is_ok_and(|list| list.is_some()) {
        return Ok(None);
    }
    // What forbids a container forbids it before it is decided.
    let planned = plan(store, config, layouts, root, path)?;
    let wanted = Decision::Container {
        uuid: new_uuid(store.as_ref(), root),
        ino: stat.ino,
        root: root.as_os_str().as_bytes().to_vec(),
    };
    let decision = match decide(file, wanted.clone()) {
        Ok(decision) => decision,
        Err(Errno::OPNOTSUPP | Errno::ACCESS | Errno::PERM | Errno::NOSPC | Errno::DQUOT) => {
            return Ok(None);
        }
        Err(errno) => return Err(errno).at("set the attribute user.plfs of", path),
    };
    let Decision::Container { uuid, ino, root: decided } = &decision else { return Ok(None) };
    if *ino != stat.ino {
        return Ok(None);
    }
    // Whoever decided may have died; or is building it at this moment, as we do.
    let decided = Path::new(OsStr::from_bytes(decided));
    let begun = match decided == root || leads_to_ancestor(store.as_ref(), decided, path) {
        true => Some(decided),
        false => wait_for_base(store.as_ref(), *uuid, &stat, path),
    };
    let Some(begun) = begun else { return Ok(None) };
    let found = match decision == wanted {
        true => {
            is_decided();
            None
        }
        false => when_made(
            || open_whole(store, begun, *uuid, &stat),
            || is_being_made(store.as_ref(), &decision, &stat),
        )?,
    };
    if found.is_some() {
        return Ok(found);
    }
    let (planned, root) = match begun == root {
        true => (planned, root),
        false => (plan(store, config, layouts, begun, path)?, begun),
    };
    let view = &store.inside(places(root, *uuid), Keep::WhenUsed).unwrap_or_else(|| store.clone());
    let superblock = planned.superblock(view, config, root, path, *uuid)?;
    let superblock = Superblock { has_base: true, ..superblock };
    match build(view, file, root, &stat, superblock) {
        Ok(applied) => {
            let found = open_whole(store, root, *uuid, &stat)?;
            if let Some((container, _)) = &found {
                follow_base(container, Some(&applied))?;
            }
            Ok(found)
        }
        // Or somebody else was faster.
        Err(error) if error.errno() == Errno::STALE => open_whole(store, root, *uuid, &stat),
        // Where no container can be, the file stays plain: slower, and right.
        Err(error)
            if matches!(
                error.errno(),
                Errno::OPNOTSUPP
                    | Errno::PERM
                    | Errno::ACCESS
                    | Errno::XDEV
                    | Errno::MLINK
                    | Errno::NOSPC
                    | Errno::DQUOT
                    | Errno::BUSY
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Whether `root` is a directory in which `path` is, by whatever name.
fn leads_to_ancestor(store: &dyn Store, root: &Path, path: &Path) -> bool {
    let identity = |dir: &Path| store.stat(dir, Links::Follow).map(|stat| (stat.dev, stat.ino));
    let Ok(wanted) = identity(root) else { return false };
    path.ancestors().skip(1).any(|dir| identity(dir) == Ok(wanted))
}

/// The directory above `path` in which somebody has begun container `uuid` of the file with this
/// stat: linked its base. A second one elsewhere would be another container of the same file.
fn wait_for_base<'a>(
    store: &dyn Store,
    uuid: Uuid,
    stat: &Stat,
    path: &'a Path,
) -> Option<&'a Path> {
    let is_begun = |root: &&Path| has_base(store, &container_dir(root, uuid), stat);
    for tries in 0..BASE_TRIES {
        if tries > 0 {
            thread::sleep(Duration::from_millis(5));
        }
        if let Some(root) = path.ancestors().skip(1).find(is_begun) {
            return Some(root);
        }
    }
    None
}

/// Whether the mode lets somebody write the file who may not read it, nor its attributes then.
fn has_writers_that_may_not_read(mode: u32) -> bool {
    (mode & 0o222) << 1 & !mode & 0o444 != 0
}

/// Whether the modification time is not that of a write until now: it was set, or comes from a
/// clock that is ahead.
fn is_ahead(mtime: Time) -> bool {
    mtime.ns() > Time::now().ns() + TICK_NS
}

/// Builds what is missing of the container. All steps can have been done by others before, or be
/// done by them at the same time. Gives the stat of the file by which users are let in.
fn build(
    store: &Arc<dyn Store>,
    file: &dyn StoreFile,
    root: &Path,
    stat: &Stat,
    mut superblock: Superblock,
) -> Result<Stat> {
    let dir = container_dir(root, superblock.uuid);
    let base = dir.join(name::BASE);
    let mut tries = 0;
    loop {
        match make_dir(store.as_ref(), root, &dir, dir_mode(stat.mode)) {
            Ok(()) => {}
            Err(error) if error.errno() != Errno::EXIST => return Err(error),
            Err(_) => must_be_begun(store.as_ref(), &dir)?,
        }
        match store.link_open(file, &base) {
            Ok(()) => break,
            Err(Errno::EXIST) => {
                let there = store.stat(&base, Links::Stay).at("stat", &base)?;
                if (there.dev, there.ino) == (stat.dev, stat.ino) {
                    break;
                }
                // A copy of the tree, in which the file is another.
                return Err(Error::refused(Errno::STALE, "make", &dir, "it has another base"));
            }
            // Somebody removes what was in vain, or the file has no name any more.
            Err(Errno::NOENT) if tries < 10 && file.stat().is_ok_and(|stat| stat.nlink > 0) => {
                tries += 1;
            }
            Err(errno) => return Err(errno).at("link the file to", &base),
        }
    }
    // After the link: what was written in place before it is older than all logs.
    let stat = file.stat().at("stat", &base)?;
    if is_ahead(stat.mtime) {
        return Err(Error::refused(Errno::BUSY, "promote", &base, "its time lies in the future"));
    }
    give(store.as_ref(), file, &dir, &stat)?;
    store.chmod(&dir, dir_mode(stat.mode)).at("set the mode of", &dir)?;
    (superblock.mode, superblock.uid, superblock.gid) = (stat.mode, stat.uid, stat.gid);
    superblock.inode = stat.ino;
    let local = store.is_local(root);
    let written = wall_clock_at(stat.mtime.ns() + if local { 0 } else { TICK_NS });
    let view =
        Container::of_parts(store.clone(), superblock, dir.clone(), (stat.dev, stat.ino), local);
    write_clock(&view, wall_clock().max(written), false)?;
    // Else its stamps would be later than those of who goes on in place after them: two ticks at
    // most, unless the clock is set back meanwhile. Where one machine has the file system, that is
    // past already, unless somebody has set the file's time.
    for _ in 0..2 * TICK_NS / WAIT_NS {
        if wall_clock() > written {
            break;
        }
        thread::sleep(std::time::Duration::from_nanos(WAIT_NS as u64));
    }
    let tmp = view.path(&format!("{}{:08x}", name::SUPER_TMP, random_u64() as u32));
    let path = view.path(name::SUPER);
    let made = (|| {
        let new = store.open(&tmp, Open::create_new(0o644)).at("create", &tmp)?;
        if new.stat().at("stat", &tmp)?.mode & 0o644 != 0o644 {
            store.chmod(&tmp, 0o644).at("set the mode of", &tmp)?;
        }
        let bytes = view.superblock.encode().map_err(|bad| Error::of_bytes(&tmp, bad))?;
        store::write_full(new.as_ref(), &bytes, 0).at("write", &tmp)?;
        // A power cut must not leave a name with nothing behind it: nobody could make the container
        // whole, and the file itself may have been synced.
        new.sync_all().at("sync", &tmp)?;
        // Nobody truncates in place between his look and the cut.
        let now = file.stat().at("stat", &base)?;
        if (now.uid, now.gid) != (stat.uid, stat.gid) {
            give(store.as_ref(), file, &dir, &now)?;
        }
        through_gate(file, &path, || match store.link(&tmp, &path) {
            Err(Errno::EXIST) => Ok(()),
            other => other.at("create", &path),
        })
    })();
    let _ = store.unlink(&tmp);
    made.map(|()| stat)
}

/// Gives the directory of a container that is being made to owner and group of the file. Who has
/// lost the file to another user, whom he cannot let in, takes away what he has made: PERM.
fn give(store: &dyn Store, file: &dyn StoreFile, dir: &Path, stat: &Stat) -> Result<()> {
    match store.chown(dir, Some(stat.uid), Some(stat.gid), Links::Stay) {
        // Nor may anybody give it to a group that is not his.
        Err(Errno::PERM) if stat.uid == store.user() => return Ok(()),
        Err(Errno::PERM) => {}
        other => return other.at("set the owner of", dir),
    }
    through_gate(file, dir, || {
        if store.stat(&dir.join(name::SUPER), Links::Stay) == Err(Errno::NOENT) {
            for name in [name::CLOCK, name::BASE] {
                let _ = store.unlink(&dir.join(name));
            }
            let _ = store.rmdir(dir);
        }
        Ok(())
    })?;
    Err(Error::refused(Errno::PERM, "promote", dir, "the file has another owner now"))
}

/// STALE if a container that is not whole has logs, or a superblock without a base: a power cut
/// took a part of it, before anybody had synced what is in the logs. The file is plain since then,
/// and what was written in place must not disappear below them.
fn must_be_begun(store: &dyn Store, dir: &Path) -> Result<()> {
    let entries = store.list(dir).at("list", dir)?;
    let names = || entries.iter().filter_map(|entry| entry.name.to_str().and_then(Name::parse));
    let has = |wanted| names().any(|name| name == wanted);
    if names().any(|name| matches!(name, Name::LogSet(_))) || has(Name::Super) && !has(Name::Base) {
        let why = "power was cut while it was made: what is in it was never synced";
        return Err(Error::refused(Errno::STALE, "use", dir, why));
    }
    Ok(())
}

/// Does `act` with the gate of `file`; BUSY if somebody keeps it shut.
pub fn through_gate<T>(
    file: &dyn StoreFile,
    path: &Path,
    act: impl FnOnce() -> Result<T>,
) -> Result<T> {
    for tries in 0.. {
        if file.try_gate().at("lock the gate of", path)? {
            break;
        }
        if tries == GATE_TRIES {
            let why = "a program has locked the file to its last byte";
            return Err(Error::refused(Errno::BUSY, "promote", path, why));
        }
        thread::sleep(std::time::Duration::from_millis(1));
    }
    let done = act();
    file.leave_gate();
    done
}
