//! L5: which log sets this process wrote to, and closed without making them durable.
//!
//! A sync makes durable all that the process wrote to the file before (SEMANTICS S12), also in
//! sessions that are over, perhaps in another log set.

use std::num::NonZeroUsize;

use lru::LruCache;

use crate::catalog;
use crate::container::Container;
use crate::error::Result;
use crate::sync::{Mutex, lock};

/// Files that are remembered: 65,536, some 6 MB. For files that are older a sync makes all log sets
/// durable.
const FILES_MAX: NonZeroUsize = NonZeroUsize::new(65_536).unwrap();

/// Log sets by file that are not durable.
#[derive(Debug)]
pub(crate) struct Sessions(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    unsynced: LruCache<(u64, u64), Vec<u32>>,
    /// Some file has been forgotten.
    forgot: bool,
}

impl Default for Sessions {
    fn default() -> Sessions {
        Sessions(Mutex::new(Inner { unsynced: LruCache::unbounded(), forgot: false }))
    }
}

impl Sessions {
    /// Takes note of a log set that this process leaves before all that it wrote there is durable.
    pub(crate) fn leave_unsynced(&self, container: &Container, set: u32) {
        let mut inner = lock(&self.0);
        let sets = inner.unsynced.get_or_insert_mut(container.identity, Vec::new);
        if !sets.contains(&set) {
            sets.push(set);
        }
        if inner.unsynced.len() > FILES_MAX.get() {
            inner.unsynced.pop_lru();
            inner.forgot = true;
        }
    }

    /// Whether an earlier session left this log set before all that it wrote there was durable.
    pub(crate) fn left(&self, container: &Container, set: u32) -> bool {
        lock(&self.0).unsynced.peek(&container.identity).is_some_and(|sets| sets.contains(&set))
    }

    /// Makes what earlier sessions left durable, except in the log set `own`, which its owner
    /// syncs. Costs nothing if they left nothing.
    pub(crate) fn sync(&self, container: &Container, own: Option<u32>) -> Result<()> {
        let (sets, forgot) = {
            let inner = lock(&self.0);
            (inner.unsynced.peek(&container.identity).cloned(), inner.forgot)
        };
        match &sets {
            Some(sets) => {
                for set in sets.iter().filter(|set| Some(**set) != own) {
                    catalog::sync_logs(container, Some(*set))?;
                }
            }
            None if forgot => catalog::sync_logs(container, None)?,
            None => return Ok(()),
        }
        let mut inner = lock(&self.0);
        // Another thread may have left a set meanwhile.
        if inner.unsynced.peek(&container.identity) == sets.as_ref() {
            inner.unsynced.pop(&container.identity);
        }
        Ok(())
    }
}
