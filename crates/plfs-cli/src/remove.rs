//! `plfs rm`.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use plfs_core::store::{Errno, Keep, Kind, Links, Place};
use plfs_core::{Plfs, SETTLES, is_hidden, is_layout, is_of_pack};

use crate::out::{self, Fail, absolute, say, show};

pub fn rm(paths: &[PathBuf], recursive: bool, force: bool) -> Result<(), Fail> {
    let plfs = out::plfs()?;
    let mut failed = false;
    for path in paths {
        let full = absolute(path)?;
        let removed = match out::stored(&plfs, &full, Links::Stay).map_err(|error| error.errno()) {
            _ if ends_in_dots(path) => Err(format!("{} is not removed by this name", show(path))),
            Err(Errno::NOENT) if matches!(plfs.packed_stat(&full), Ok(Some(_))) => {
                plfs.unlink(&full).map_err(|error| error.to_string())
            }
            Err(Errno::NOENT) if force => Ok(()),
            Err(errno) => Err(format!("cannot remove {}: {errno}", show(path))),
            Ok(_) if full.file_name().is_some_and(is_layout) => Err(format!(
                "{} is the layout of its directory; `plfs layout --inherit` removes it",
                show(path)
            )),
            Ok(_) if full.file_name().is_some_and(is_of_pack) => Err(format!(
                "{} holds the small files of its directory; remove those, or the directory",
                show(path)
            )),
            Ok(_) if full.file_name().is_some_and(is_hidden) => Err(format!(
                "{} holds the data of all PLFS files beside it; remove those, or their directory",
                show(path)
            )),
            Ok(stat) if stat.kind == Kind::Dir && !recursive => {
                Err(format!("{} is a directory; remove it with -r", show(path)))
            }
            Ok(_) if full.parent().is_none() => Err("the root directory stays".into()),
            Ok(stat) if stat.kind == Kind::Dir => remove_dir(&below(&plfs, &full), &full),
            Ok(_) => plfs.unlink(&full).map_err(|error| error.to_string()),
        };
        if let Err(text) = removed {
            failed = true;
            say("rm", &text);
        }
    }
    if failed { Err(Fail::Printed) } else { Ok(()) }
}

/// Whether the last word of a path is `.` or `..`: it means what nobody has named.
fn ends_in_dots(path: &Path) -> bool {
    let words = path.as_os_str().as_bytes().rsplit(|byte| *byte == b'/');
    matches!(words.into_iter().find(|word| !word.is_empty()), Some(b"." | b".."))
}

/// Removes a directory with all that is in it.
pub fn tree(plfs: &Plfs, dir: &Path) -> Result<(), String> {
    remove_dir(&below(plfs, dir), dir)
}

/// PLFS that follows no link from `dir` on: whoever may write there could put one in a directory's
/// place meanwhile.
fn below(plfs: &Plfs, dir: &Path) -> Plfs {
    let root = dir.parent().unwrap_or(dir).to_path_buf();
    let place = Place { root, dir: dir.to_path_buf() };
    let store = plfs.store();
    let store = store.inside(vec![place], Keep::Nothing).unwrap_or_else(|| store.clone());
    Plfs::new(store, plfs.config().clone())
}

fn remove_dir(plfs: &Plfs, dir: &Path) -> Result<(), String> {
    let cannot = |path: &Path, errno: Errno| format!("cannot remove {}: {errno}", show(path));
    if plfs.is_flat(dir).map_err(|error| error.to_string())? {
        return remove_flat(plfs, dir);
    }
    let mut is_root = false;
    for entry in plfs.store().list(dir).map_err(|errno| cannot(dir, errno))? {
        let path = dir.join(&entry.name);
        if is_layout(&entry.name) || entry.name == plfs_core::PACK_NAME {
            // Goes with the directory.
            continue;
        }
        if is_hidden(&entry.name) && !is_of_pack(&entry.name) {
            is_root = true;
            continue;
        }
        match plfs.store().stat(&path, Links::Stay) {
            Ok(stat) if stat.kind == Kind::Dir => remove_dir(plfs, &path)?,
            Ok(_) => plfs.unlink(&path).map_err(|error| error.to_string())?,
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(cannot(&path, errno)),
        }
    }
    plfs.remove_packed(dir).map_err(|error| error.to_string())?;
    if is_root {
        remove_root(plfs, dir)?;
    }
    plfs.rmdir(dir).map_err(|error| error.to_string())
}

/// A directory whose names are spread.
fn remove_flat(plfs: &Plfs, dir: &Path) -> Result<(), String> {
    for entry in plfs.list(dir).map_err(|error| error.to_string())? {
        let path = dir.join(&entry.name);
        match out::stored(plfs, &path, Links::Stay) {
            Ok(stat) if stat.kind == Kind::Dir => remove_dir(plfs, &path)?,
            Ok(_) => plfs.unlink(&path).map_err(|error| error.to_string())?,
            Err(error) if error.errno() == Errno::NOENT => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    if plfs.store().stat(&dir.join(".plfs"), Links::Stay).is_ok() {
        // It is a root as well. Its shadows are in there, and go with the first.
        let _ = plfs.rmdir(dir);
        remove_root(plfs, dir)?;
    }
    plfs.rmdir(dir).map_err(|error| error.to_string())
}

/// The `.plfs` of a directory that has no names any more: what is left in it is garbage, or held
/// open.
fn remove_root(plfs: &Plfs, dir: &Path) -> Result<(), String> {
    let store = plfs.store();
    let top = dir.join(".plfs");
    // A symbolic link in its place holds no data, and is removed as a link.
    if store.stat(&top, Links::Stay).is_ok_and(|stat| stat.kind == Kind::Symlink) {
        return store
            .unlink(&top)
            .map_err(|errno| format!("cannot remove {}: {errno}", show(&top)));
    }
    for report in
        plfs_core::check_tree(store, dir, &[], |_| {}).map_err(|error| error.to_string())?
    {
        plfs_core::repair(store, plfs.config(), &report, 0).map_err(|error| error.to_string())?;
    }
    let place = Place { root: dir.to_path_buf(), dir: top.clone() };
    let store = store.inside(vec![place], Keep::Nothing).unwrap_or_else(|| store.clone());
    for shard in store.list(&top).unwrap_or_default() {
        let _ = store.rmdir(&top.join(shard.name));
    }
    if store.stat(&top.join("backends"), Links::Stay).is_ok() {
        match plfs_core::remove_table(plfs.store(), plfs.config(), dir, SETTLES) {
            Err(error) if error.errno() == Errno::NOTEMPTY => {}
            other => other.map_err(|error| error.to_string())?,
        }
    }
    match store.rmdir(&top) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(format!(
            "{}: {errno}; it has data of files that are open, or whose names are elsewhere: see \
             `plfs check`",
            show(&top)
        )),
    }
}
