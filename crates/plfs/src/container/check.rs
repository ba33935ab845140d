//! What tools ask a container: is it healthy, who holds it, what do its records say.

use plfs_format::flat_index;
use plfs_format::name::{self, Name};

use super::layout::Container;
use crate::error::{At, Result};
use crate::store::{self, Errno, Open};

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
    let path = container.path(name::FLAT);
    let bytes = match container.store.open(&path, Open::READ) {
        Ok(file) => file.map().at("map", &path)?,
        Err(Errno::NOENT) => return Ok(FlatState::None),
        Err(errno) => return Err(errno).at("open", &path),
    };
    let flat = match flat_index::decode((*bytes).as_ref(), &container.superblock.uuid) {
        Ok(flat) => flat,
        Err(bad) => return Ok(FlatState::Damaged(bad.to_string())),
    };
    for covered in &flat.covered {
        let log = container.path(&name::index_log(covered.set));
        let len = match container.store.stat(&log, true) {
            Ok(stat) => stat.len,
            Err(Errno::NOENT) => 0,
            Err(errno) => return Err(errno).at("stat", &log),
        };
        if len < covered.bytes {
            return Ok(FlatState::Stale(format!("it covers {} bytes of {}, which has {len}", covered.bytes, name::index_log(covered.set))));
        }
    }
    Ok(FlatState::Used)
}
