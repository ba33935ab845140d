//! Which bytes of a file lie on backends that are not there.

use std::collections::BTreeMap;

use plfs_index::Found;

use crate::catalog::Index;
use crate::container::Container;
use crate::error::{Error, Result};

/// Ranges that are told of one backend. A file may have millions of pieces there.
const RANGES_MAX: usize = 16;
/// Bytes of the file that are looked up at once.
const WINDOW_BYTES: u64 = 64 << 20;

/// What of a file cannot be read, because a backend is not there.
#[derive(Clone, Debug)]
pub struct Unreachable {
    /// The backend.
    pub backend: u16,
    /// What is wrong with it.
    pub why: Error,
    /// How many bytes of the file are there.
    pub bytes: u64,
    /// Where they are, ascending, from and to: the first ones.
    pub ranges: Vec<(u64, u64)>,
    /// Whether there are more ranges.
    pub has_more: bool,
}

impl Unreachable {
    /// The ranges in words: "bytes 0 to 10, 20 to 30 and more".
    pub fn in_words(&self) -> String {
        let ranges: Vec<String> =
            self.ranges.iter().map(|(from, to)| format!("{from} to {to}")).collect();
        let more = if self.has_more { " and more" } else { "" };
        format!("{} bytes of the file are there: {}{more}", self.bytes, ranges.join(", "))
    }

    fn add(&mut self, piece: &Found) {
        let end = piece.logical + piece.length;
        self.bytes += piece.length;
        let told = self.ranges.len();
        match self.ranges.last_mut() {
            Some((_, to)) if *to == piece.logical && !self.has_more => *to = end,
            _ if told < RANGES_MAX => self.ranges.push((piece.logical, end)),
            _ => self.has_more = true,
        }
    }
}

/// What of the file lies on backends that are not there. Costs a look at each backend; and if one
/// is not there, the index.
pub fn unreachable(container: &Container) -> Result<Vec<Unreachable>> {
    let mut missing = BTreeMap::new();
    for backend in container.backends()? {
        if let Err(why) = container.backend_dir_again(backend) {
            let (bytes, ranges, has_more) = (0, Vec::new(), false);
            missing.insert(backend, Unreachable { backend, why, bytes, ranges, has_more });
        }
    }
    if missing.is_empty() {
        return Ok(Vec::new());
    }
    let mut index = Index::load(container)?;
    // An id that the table does not have.
    for at in index.segments() {
        if !missing.contains_key(&at.backend)
            && let Err(why) = container.backend_dir(at.backend)
        {
            let (backend, bytes, ranges, has_more) = (at.backend, 0, Vec::new(), false);
            missing.insert(backend, Unreachable { backend, why, bytes, ranges, has_more });
        }
    }
    let (mut at, mut pieces) = (0, Vec::new());
    while let Some(from) = index.next_data(at) {
        let to = from.saturating_add(WINDOW_BYTES).min(index.eof());
        if from >= to {
            break;
        }
        index.lookup(from, to, &mut pieces);
        if let Some(why) = index.is_broken() {
            index.rebuild_from_logs(container, why)?;
            at = 0;
            missing.values_mut().for_each(|found| (found.bytes, found.ranges) = (0, Vec::new()));
            continue;
        }
        for piece in &pieces {
            let backend = index.segment(piece.segment).map(|at| at.backend);
            if let Some(found) = backend.and_then(|backend| missing.get_mut(&backend)) {
                found.add(piece);
            }
        }
        at = to;
    }
    Ok(missing.into_values().filter(|found| found.bytes > 0).collect())
}
