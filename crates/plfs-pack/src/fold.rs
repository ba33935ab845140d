//! A new tree, of the old one and what logs have said since.

use std::collections::BTreeMap;

use plfs_format::Bad;
use plfs_format::pack::tree::Header;

use crate::names::{Base, Names};
use crate::tree::{Builder, Entry, Facts};

/// What came of a fold.
#[derive(Clone, Debug)]
pub struct Folded {
    /// The header, which belongs in front of the blocks.
    pub header: Header,
    /// Bytes of the pieces of all files that are there.
    pub stored_bytes: u64,
}

/// Merges `names` into what `base` has; blocks go to `put`, in order. One pass, and no more memory
/// than `names` takes.
///
/// `facts.covers` says for each log set how far its log was read when [`Names::mark`] was called;
/// after that all logs were read once more. So a record in `names` of a file that nobody knows is
/// of one that was removed and forgotten: its writer had seen the creation. And of a file whose
/// creation will be read again its end is kept.
///
/// Logs are read one after the other while others append, so of two names that a file got since
/// the first may be missing and the second be there. The second does not say where `base` has the
/// file; it stays there, and both records are read again, as neither is covered.
///
/// Make the data of [`Names::unsynced`] durable first.
pub fn fold<B: Base, E: From<Bad> + From<B::Error>>(
    names: &Names,
    base: &mut B,
    facts: &Facts,
    put: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<Folded, E> {
    let mut builder = Builder::new(facts.block_bytes, put);
    let mut by_id = BTreeMap::new();
    let mut key = vec![0];
    while let Some((next, entries)) = base.behind(&key, false)? {
        if next[0] != 0 {
            break;
        }
        for entry in entries {
            let Entry::ById(id, name) = entry else { continue };
            // The creation of one that is gone is covered by now.
            if !name.is_empty() {
                by_id.insert(id, Some(name));
            }
        }
        key = next;
    }
    for (id, state) in names.all() {
        if state.is_gone {
            by_id.remove(id);
            if names.is_fresh(*id) {
                by_id.insert(*id, None);
            }
            continue;
        }
        let is_renamed = state.home.as_ref().is_some_and(|(place, _)| place != id);
        if is_renamed || by_id.contains_key(id) {
            let hint = by_id.get(id).cloned().flatten();
            let state = names.by_id(*id, hint.as_deref(), base)?;
            if let Some((_, name)) = state.home.filter(|_| state.is_created && !state.is_gone) {
                by_id.insert(*id, Some(name));
            }
        }
    }
    for (id, name) in by_id {
        builder.push(&Entry::ById(id, name.unwrap_or_default()))?;
    }
    let (mut key, mut inclusive, mut stored_bytes) = (vec![1], true, 0);
    loop {
        let below = base.behind(&key, inclusive)?;
        let above = names.name_behind(&key, inclusive);
        let (name, entries) = match (below, above) {
            (None, None) => break,
            (Some((name, entries)), None) => (name, entries),
            (Some((name, entries)), Some(above)) if *above >= *name => (name, entries),
            (_, Some(above)) => (above.to_vec(), Vec::new()),
        };
        let mut found = names.out_of_reach(&entries, base)?;
        found.extend(names.with_name(&name, entries, base)?);
        found.sort_by_key(|(id, _)| *id);
        for (id, state) in found {
            stored_bytes += state.writes().map(|write| u64::from(write.length)).sum::<u64>();
            builder.push(&Entry::File(id, state))?;
        }
        (key, inclusive) = (name, false);
    }
    Ok(Folded { header: builder.finish(facts)?, stored_bytes })
}
