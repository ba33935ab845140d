//! `.plfs/lost+found`: what repairs take out of containers, until somebody puts it back or discards
//! it.
//!
//! Each thing has a directory of its own, an *entry*, with a text `note` that says where it came
//! from and why, and the thing itself as `kept`. Both come and go by renames and links on
//! one file system, and the note is durable before the thing moves: whoever dies in between leaves
//! the thing in one of its two places, and the same call completes what was begun. Other
//! backends have a `lost+found` of their own.
//!
//! `.plfs` belongs to all users, so anybody can plant an entry. A note is believed only if it names
//! a place that a container has, and its entry belongs to somebody who may write there.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use plfs_format::Uuid;
use plfs_format::name::{self, Name};

use super::check::uuid_of;
use super::remove::remove_tree;
use super::repair::{clear_dead_mark, own_set};
use crate::container::{Container, in_roots, make_shared, root_of};
use crate::error::{At, Error, Result};
use crate::store::machine::{host_name, random_u64};
use crate::store::{self, Errno, Kind, Links, Open, Store, Time};
use crate::sync::Arc;

const NOTE: &str = "note";
const KEPT: &str = "kept";
/// More than any note has.
const NOTE_MAX: usize = 16 << 10;

/// Something that a repair took out of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Its entry in `lost+found`.
    pub dir: PathBuf,
    /// Where it was.
    pub from: PathBuf,
    /// The container that it is of.
    pub uuid: Uuid,
    /// Why it was taken out.
    pub why: String,
    /// Bytes of its files; 0 too for an entry in which nothing is, because the repair did not come
    /// to its end.
    pub bytes: u64,
    /// When it was taken out.
    pub since: Time,
    /// The container's directory on its root backend.
    container: PathBuf,
}

/// The `.plfs` of a backend, by a container's directory there.
fn top_of(container_dir: &Path) -> Option<&Path> {
    container_dir.parent()?.parent()
}

/// Moves `item`, which lies in (or is) the container's directory `dir` on some backend, to that
/// backend's lost+found. Gives the entry. The caller keeps writers away.
///
/// Durable on return. If it fails, the item is where it was, or, if only making that durable
/// failed, in its entry.
pub(super) fn take_out(
    store: &dyn Store,
    container: &Path,
    dir: &Path,
    item: &Path,
    why: &str,
) -> Result<PathBuf> {
    let top = top_of(dir).unwrap_or(dir);
    let all = top.join(name::LOST_AND_FOUND);
    make_shared(store, &all)?;
    must_be_dir(store, &all)?;
    let owner = store.stat(item, Links::Stay).at("stat", item)?;
    let from = item.strip_prefix(top).unwrap_or(item);
    let uuid = uuid_of(dir).unwrap_or_default();
    let entry = all.join(format!("{uuid}.{}.{:08x}", Time::now().sec, random_u64() as u32));
    store.mkdir(&entry, 0o700).at("create", &entry)?;
    let moved = write_note(store, container, &entry, from, why).and_then(|()| {
        if store.user() == 0 {
            for path in [entry.join(NOTE), entry.clone()] {
                store
                    .chown(&path, Some(owner.uid), Some(owner.gid), Links::Stay)
                    .at("set the owner of", &path)?;
            }
        }
        store.sync_dir(&entry).at("sync", &entry)?;
        store.sync_dir(&all).at("sync", &all)?;
        store.rename(item, &entry.join(KEPT)).at("move", item)
    });
    if let Err(error) = moved {
        // Nothing is in it. Who cannot remove it leaves an entry that says so.
        let _ = remove_entry(store, &entry);
        return Err(error);
    }
    let above = item.parent().unwrap_or(top);
    store.sync_dir(&entry).at("sync", &entry)?;
    store.sync_dir(above).at("sync", above)?;
    Ok(entry)
}

fn write_note(
    store: &dyn Store,
    container: &Path,
    entry: &Path,
    from: &Path,
    why: &str,
) -> Result<()> {
    let path = entry.join(NOTE);
    let host = host_name().to_string_lossy().into_owned();
    let mut text = format!(
        "plfs check --repair took this out of a file, because {why}.\nfrom {}\ncontainer ",
        from.display()
    )
    .into_bytes();
    text.extend(on_a_line(container));
    text.extend(
        format!(
            "\nwhy {why}\nsince {}\nhost {host}\nuid {}\n\nIt lies here as \"{KEPT}\" until one of \
             these is run:\nplfs check --undo \"{entry}\"       puts it back where it was\nplfs \
             check --discard \"{entry}\"    removes it for ever\n",
            Time::now().sec,
            store.user(),
            entry = entry.display(),
        )
        .into_bytes(),
    );
    let file = store.open(&path, Open::create_new(0o600)).at("create", &path)?;
    store::write_full(file.as_ref(), &text, 0).at("write", &path)?;
    file.sync_data().at("sync", &path)
}

/// A path on one line of a note: a line feed in it is `\n` there, and a backslash two.
fn on_a_line(path: &Path) -> Vec<u8> {
    let bytes = path.as_os_str().as_bytes().iter();
    bytes
        .flat_map(|byte| match byte {
            b'\n' => b"\\n",
            b'\\' => b"\\\\",
            byte => std::slice::from_ref(byte),
        })
        .copied()
        .collect()
}

/// The path that stands so on a line.
fn off_a_line(line: &[u8]) -> PathBuf {
    let (mut path, mut bytes) = (Vec::new(), line.iter().copied());
    while let Some(byte) = bytes.next() {
        path.push(match byte {
            b'\\' if bytes.next() == Some(b'n') => b'\n',
            byte => byte,
        });
    }
    OsString::from_vec(path).into()
}

/// Removes an entry in which nothing is kept.
fn remove_entry(store: &dyn Store, entry: &Path) -> Result<()> {
    match store.unlink(&entry.join(NOTE)) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno).at("remove", &entry.join(NOTE)),
    }
    match store.rmdir(entry) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno).at("remove", entry),
    }
}

/// Refuses what is no directory, and a link to one above all: anybody can plant it, and what is
/// moved through it leaves the tree.
fn must_be_dir(store: &dyn Store, path: &Path) -> Result<()> {
    let stat = store.stat(path, Links::Stay).at("stat", path)?;
    let why = match stat.kind {
        Kind::Dir if stat.mode & 0o022 != 0 && stat.mode & 0o1000 == 0 => {
            "others can take things out of it (chmod +t helps)"
        }
        Kind::Dir => return Ok(()),
        Kind::Symlink => "it is a symbolic link (remove it)",
        Kind::File | Kind::Other => "it is no directory (remove it)",
    };
    Err(Error::refused(Errno::NOTDIR, "use", path, why))
}

/// What was taken out of a container, on all backends where it has something of its
/// [own](Container::own_dirs). Nothing if they cannot be looked at.
pub(super) fn lost_of(container: &Container) -> Vec<Lost> {
    let mut all = Vec::new();
    for dir in container.own_dirs().unwrap_or_default() {
        if let Some(top) = top_of(&dir) {
            all.extend(
                list(container.store.as_ref(), top)
                    .unwrap_or_default()
                    .into_iter()
                    .filter(|lost| lost.uuid == container.superblock.uuid),
            );
        }
    }
    all
}

/// What lies in the lost+found of `root`, of whatever container.
pub fn lost_and_found(store: &Arc<dyn Store>, root: &Path) -> Result<Vec<Lost>> {
    list(in_roots(store, [root]).as_ref(), &root.join(name::ROOT_DIR))
}

/// The entry at `dir`; `None` if it is none that a repair made.
pub fn lost_at(store: &Arc<dyn Store>, dir: &Path) -> Option<Lost> {
    let store = in_roots(store, [root_of(dir)]);
    must_be_dir(store.as_ref(), dir.parent()?).ok()?;
    read_entry(store.as_ref(), dir)
}

pub(super) fn list(store: &dyn Store, top: &Path) -> Result<Vec<Lost>> {
    let all = top.join(name::LOST_AND_FOUND);
    match store.stat(&all, Links::Stay) {
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(Vec::new()),
        Err(errno) => return Err(errno).at("stat", &all),
        Ok(_) => must_be_dir(store, &all)?,
    }
    let mut entries = store.list(&all).at("list", &all)?;
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(entries.iter().filter_map(|entry| read_entry(store, &all.join(&entry.name))).collect())
}

fn read_entry(store: &dyn Store, dir: &Path) -> Option<Lost> {
    let top = dir.parent()?.parent()?;
    let note = dir.join(NOTE);
    if store.stat(dir, Links::Stay).ok()?.kind != Kind::Dir
        || store.stat(&note, Links::Stay).ok()?.kind != Kind::File
    {
        return None;
    }
    let mut text = vec![0; NOTE_MAX];
    let n = store::read_full(store.open(&note, Open::READ).ok()?.as_ref(), &mut text, 0).ok()?;
    let lines = || text[..n].split(|byte| *byte == b'\n');
    let bytes_of_field = |key: &str| {
        lines()
            .find_map(|line| line.strip_prefix(key.as_bytes())?.strip_prefix(b" "))
            .unwrap_or_default()
    };
    let field = |key: &str| String::from_utf8_lossy(bytes_of_field(key)).into_owned();
    let from = PathBuf::from(field("from"));
    let uuid = place_of(&from)?.0;
    Some(Lost {
        from: top.join(&from),
        uuid,
        why: field("why"),
        bytes: bytes_of(store, &dir.join(KEPT), 4),
        since: Time { sec: field("since").parse().unwrap_or(0), nsec: 0 },
        container: off_a_line(bytes_of_field("container")),
        dir: dir.to_path_buf(),
    })
}

/// Bytes of a file, or of all files below a directory.
fn bytes_of(store: &dyn Store, path: &Path, depth: u32) -> u64 {
    match store.stat(path, Links::Stay) {
        Ok(stat) if stat.kind == Kind::File => stat.len,
        Ok(stat) if stat.kind == Kind::Dir && depth > 0 => {
            let entries = store.list(path).unwrap_or_default();
            entries.iter().fold(0, |sum: u64, entry| {
                sum.saturating_add(bytes_of(store, &path.join(&entry.name), depth - 1))
            })
        }
        _ => 0,
    }
}

/// What repairs take out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// A container's directory.
    Container,
    /// A log set that was on its way out.
    Gone,
    /// A data log of this set.
    DataLog(u32),
    /// What a program without PLFS wrote to a name: no part of the file.
    Written,
}

/// What a path below `.plfs` names, if it is something that repairs take out. Everything else that
/// a note may say is refused here.
fn place_of(from: &Path) -> Option<(Uuid, Place)> {
    let parts: Vec<&str> = from
        .components()
        .map(|part| if let Component::Normal(part) = part { part.to_str() } else { None })
        .collect::<Option<_>>()?;
    let [shard, rest, inner @ ..] = &parts[..] else { return None };
    let hex = |part: &str, digits: usize| {
        part.len() == digits && part.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    };
    let uuid = uuid_of(&Path::new(shard).join(rest)).filter(|_| hex(shard, 2) && hex(rest, 30))?;
    let place = match inner {
        [] => Place::Container,
        [gone] => match Name::parse(gone)? {
            Name::Gone(_) => Place::Gone,
            Name::Tmp => Place::Written,
            _ => return None,
        },
        [set, log] => match (Name::parse(set)?, name::parse_data_log(log)) {
            (Name::LogSet(set), Some(_)) => Place::DataLog(set),
            _ => return None,
        },
        _ => return None,
    };
    Some((uuid, place))
}

/// Puts something back where it was. EEXIST if something else is there now, EBUSY if a writer has
/// the log set that it belongs to, EPERM if its entry belongs to a user who could not have taken it
/// out: then somebody planted it.
///
/// Durable on return. Who calls it again after it failed, or died, completes it.
pub fn put_back(store: &Arc<dyn Store>, lost: &Lost) -> Result<()> {
    let store = &in_roots(store, [root_of(&lost.dir)]);
    let all = lost.dir.parent().unwrap_or(&lost.dir);
    must_be_dir(store.as_ref(), all)?;
    let Some((_, place)) = all.parent().and_then(|top| place_of(lost.from.strip_prefix(top).ok()?))
    else {
        let why = "its note names no place of a container";
        return Err(Error::refused(Errno::INVAL, "put back", &lost.dir, why));
    };
    let kept = lost.dir.join(KEPT);
    match store.stat(&kept, Links::Stay) {
        // A repair that did not come to move it, or a call like this one that did not come to
        // remove its entry.
        Err(Errno::NOENT) => {
            if let Place::DataLog(set) = place {
                clear_dead_mark(store, container_of(store.as_ref(), lost), set)?;
            }
            return remove_entry(store.as_ref(), &lost.dir);
        }
        Err(errno) => return Err(errno).at("stat", &kept),
        Ok(_) => {}
    }
    let above = lost.from.parent().unwrap_or(&lost.from);
    if place == Place::Container {
        make_shared(store.as_ref(), above)?;
    }
    must_be_ours(store.as_ref(), lost, above, place)?;
    match place {
        Place::Container | Place::Gone => {
            match store.stat(&lost.from, Links::Stay) {
                Err(Errno::NOENT) => {}
                Ok(_) => {
                    let why = "there is another again";
                    return Err(Error::refused(Errno::EXIST, "put back", &lost.from, why));
                }
                Err(errno) => return Err(errno).at("stat", &lost.from),
            }
            store.rename(&kept, &lost.from).at("move", &kept)?;
        }
        Place::Written => {
            let why = "it was never a part of the file: copy what you want of it, and discard it";
            return Err(Error::refused(Errno::PERM, "put back", &kept, why));
        }
        Place::DataLog(set) => {
            // Whoever takes the set over goes on behind the data logs that it finds: they must not
            // come later.
            let dir = container_of(store.as_ref(), lost);
            // No link is followed from the `.plfs` on.
            let is_inside =
                top_of(dir).and_then(Path::file_name).is_some_and(|top| top == name::ROOT_DIR);
            if !is_inside
                || uuid_of(dir) != Some(lost.uuid)
                || store.stat(&dir.join(name::SUPER), Links::Stay).is_err()
            {
                let why = "its container is gone";
                return Err(Error::refused(Errno::NOENT, "put back", &lost.from, why));
            }
            own_set(store, dir, set, || {
                match store.link(&kept, &lost.from) {
                    Ok(()) => {}
                    Err(Errno::EXIST) if is_same(store.as_ref(), &kept, &lost.from) => {}
                    Err(errno) => return Err(errno).at("put back", &lost.from),
                }
                store.sync_dir(above).at("sync", above)?;
                store.unlink(&kept).at("remove", &kept)
            })?;
        }
    }
    store.sync_dir(above).at("sync", above)?;
    remove_entry(store.as_ref(), &lost.dir)
}

/// The directory of the container of a data log on its root backend: the one that it lies in, if
/// that has a superblock, else the one that the note names.
fn container_of<'a>(store: &dyn Store, lost: &'a Lost) -> &'a Path {
    let own = lost.from.parent().and_then(Path::parent);
    own.filter(|dir| store.stat(&dir.join(name::SUPER), Links::Stay).is_ok())
        .unwrap_or(&lost.container)
}

fn is_same(store: &dyn Store, a: &Path, b: &Path) -> bool {
    let stat = |path| store.stat(path, Links::Stay);
    matches!((stat(a), stat(b)), (Ok(a), Ok(b)) if (a.dev, a.ino) == (b.dev, b.ino))
}

/// Refuses an entry that another user may have planted, and places that links lead to.
fn must_be_ours(store: &dyn Store, lost: &Lost, above: &Path, place: Place) -> Result<()> {
    let mut dirs = vec![above];
    if let Place::DataLog(_) = place {
        dirs.extend(above.parent());
    }
    let mut owner = None;
    for dir in dirs {
        let stat = store.stat(dir, Links::Stay).at("put it back in", dir)?;
        if stat.kind != Kind::Dir {
            return Err(Errno::NOTDIR).at("put anything back in", dir);
        }
        owner = owner.or(Some(stat.uid));
    }
    let entry = store.stat(&lost.dir, Links::Stay).at("stat", &lost.dir)?;
    let kept = store.stat(&lost.dir.join(KEPT), Links::Stay).at("stat", &lost.dir)?;
    let may = match place {
        // A whole container concerns nobody but its owner.
        Place::Container => entry.uid == 0 || entry.uid == kept.uid,
        _ => entry.uid == 0 || Some(entry.uid) == owner,
    };
    match may && (store.user() == 0 || entry.uid == 0 || entry.uid == store.user()) {
        true => Ok(()),
        false => {
            Err(Error::refused(Errno::PERM, "put back", &lost.dir, "another user owns the entry"))
        }
    }
}

/// Removes something for ever.
pub fn discard(store: &Arc<dyn Store>, lost: &Lost) -> Result<()> {
    let store = &in_roots(store, [root_of(&lost.dir)]);
    must_be_dir(store.as_ref(), lost.dir.parent().unwrap_or(&lost.dir))?;
    must_be_dir(store.as_ref(), &lost.dir)?;
    // The note goes last: it says what the rest is.
    let kept = lost.dir.join(KEPT);
    match store.stat(&kept, Links::Stay) {
        Err(Errno::NOENT) => {}
        Ok(stat) if stat.kind == Kind::Dir => remove_tree(store.as_ref(), &kept)?,
        Ok(_) => store.unlink(&kept).at("remove", &kept)?,
        Err(errno) => return Err(errno).at("stat", &kept),
    }
    remove_entry(store.as_ref(), &lost.dir)
}
