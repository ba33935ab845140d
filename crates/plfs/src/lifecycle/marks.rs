//! Open marks: who holds a container, and removing those of who is dead.

use std::path::{Path, PathBuf};

use plfs_format::name::{self, Name};

use super::check::examine;
use super::repair::sum_up;
use crate::config::Config;
use crate::container::Container;
use crate::error::{At, Result};
use crate::store::machine::host_name;
use crate::store::{self, Errno, Open};

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
    let none_is_left = cleared.iter().all(|mark| matches!(mark, Cleared::Removed(_)));
    // A summary that counts more than the logs have is what says that logs are missing.
    if !cleared.is_empty() && none_is_left && !examine(container).1.is_short {
        sum_up(container)?;
    }
    Ok(cleared)
}

/// Whether a process of this host certainly or possibly still owns the mark's log set.
fn is_alive(container: &Container, config: &Config, mark: &OpenMark) -> Result<bool> {
    let host = host_name().to_string_lossy().into_owned();
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

pub(super) fn read_mark(container: &Container, set: u32) -> Result<Option<OpenMark>> {
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
