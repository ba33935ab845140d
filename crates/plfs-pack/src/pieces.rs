//! The writes of a file, in order, so that a copy of the file shares them.

use std::sync::Arc;

use plfs_format::pack::Place;

use crate::Write;

/// Writes that are shared at once. 64, some 5 kB: what one more costs a file that somebody else has
/// a copy of; the copy costs a count for each 64.
const CHUNK: usize = 64;

/// Writes by place, and where they begin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pieces {
    /// None is empty.
    chunks: Vec<Arc<Vec<Write>>>,
    count: usize,
}

fn key(write: &Write) -> (Place, u64) {
    (write.place, write.logical)
}

impl Pieces {
    pub fn len(&self) -> usize {
        self.count
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Write> {
        self.chunks.iter().flat_map(|chunk| chunk.iter())
    }

    /// The one with the latest place.
    pub fn last(&self) -> Option<&Write> {
        self.chunks.last().and_then(|chunk| chunk.last())
    }

    /// Adds one, or makes one longer that is known: whether anything changed.
    pub fn add(&mut self, write: Write) -> bool {
        let behind = self
            .chunks
            .partition_point(|chunk| chunk.last().is_some_and(|last| key(last) < key(&write)));
        let Some(chunk) = self.chunks.get_mut(behind) else {
            self.push(write);
            return true;
        };
        match chunk.binary_search_by_key(&key(&write), key) {
            // It went on before it was committed.
            Ok(at) if chunk[at].length < write.length => Arc::make_mut(chunk)[at] = write,
            Ok(_) => return false,
            Err(at) => {
                let chunk = Arc::make_mut(chunk);
                chunk.insert(at, write);
                self.count += 1;
                if chunk.len() > CHUNK {
                    let half = Arc::new(chunk.split_off(CHUNK / 2));
                    self.chunks.insert(behind + 1, half);
                }
            }
        }
        true
    }

    /// Adds one behind all others.
    fn push(&mut self, write: Write) {
        self.count += 1;
        match self.chunks.last_mut() {
            Some(chunk) if chunk.len() < CHUNK => Arc::make_mut(chunk).push(write),
            // Most files have one piece.
            _ => self.chunks.push(Arc::new(vec![write])),
        }
    }

    /// Keeps those for which `is_kept` says so.
    pub fn retain(&mut self, mut is_kept: impl FnMut(&Write) -> bool) {
        let old = std::mem::take(self);
        old.iter().filter(|write| is_kept(write)).for_each(|write| self.push(*write));
    }
}
