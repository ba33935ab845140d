//! Makes the sorted tree: a file of its own, put in the place of the old one when it is whole.

use std::collections::BTreeSet;

use plfs_format::Bad;
use plfs_format::name;
use plfs_format::pack::tree::HEADER_BYTES;
use plfs_pack::tree::Facts;

use super::index::{Node, PackIndex};
use super::tree::Below;
use super::{Pack, State};
use crate::catalog;
use crate::error::{At, Error, Result};
use crate::store::machine::random_u64;
use crate::store::{self, Open};

/// Bytes that are written at once. 1 MiB: some 30 blocks.
const WRITE_BYTES: usize = 1 << 20;

/// What keeps a fold from going on.
enum Stop {
    Failed(Error),
    /// What is to be written contradicts the document.
    Bad(Bad),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Failed(error)
    }
}

impl From<Bad> for Stop {
    fn from(bad: Bad) -> Stop {
        Stop::Bad(bad)
    }
}

impl PackIndex {
    /// Whether so much has come since the last fold that one pays.
    pub fn is_fold_due(&self) -> bool {
        let in_tree = self.tree.as_ref().map_or(0, |tree| tree.header.files);
        plfs_pack::is_fold_due(self.names.len() as u64, in_tree)
    }
}

impl Pack {
    /// Makes a tree. Nothing of this process may wait.
    pub(super) fn fold_locked(&self, state: &mut State) -> Result<()> {
        if state.looked.is_none() {
            self.look(state)?;
        }
        // Who reads the tree goes on where the logs were read to before the last look: see
        // `plfs_pack::fold`.
        let (covers, generation) = (state.index.read.clone(), state.index.generation);
        state.index.names.mark();
        self.look(state)?;
        let covers = match state.index.generation == generation {
            true => covers,
            // All was read anew; everything is as new as can be.
            false => return Ok(()),
        };
        // A tree says of no log more than the storage has.
        match &state.index.node {
            Node::Member(set) => set.carry()?,
            Node::Guest(log) if !log.is_carried() => return Ok(()),
            _ => {}
        }
        // What lies below data of this boot may be left out, and in the tree it is not in doubt.
        let sets: BTreeSet<u32> = state.index.names.unsynced().map(|segment| segment.set).collect();
        for set in &sets {
            catalog::sync_logs(&self.container, Some(*set))?;
        }
        let path = self.container.path(&format!("{}{:08x}", name::FLAT_TMP, random_u64() as u32));
        let written = self.write_tree(state, covers, &path);
        if written.is_err() {
            let _ = self.container.store.unlink(&path);
        }
        written?;
        state.index.load()?;
        self.heed(state);
        Ok(())
    }

    fn write_tree(
        &self,
        state: &mut State,
        covers: std::collections::HashMap<u32, u64>,
        path: &std::path::Path,
    ) -> Result<()> {
        let store = &self.container.store;
        let file = store.open(path, Open::create_new(0o644)).at("create", path)?;
        if file.stat().at("stat", path)?.mode & 0o044 != 0o044 {
            store.chmod(path, 0o644).at("set the mode of", path)?;
        }
        let mut covers: Vec<(u32, u64)> = covers.into_iter().collect();
        covers.sort_unstable();
        let facts = Facts {
            uuid: self.container.superblock.uuid,
            stamp: state.index.max_stamp,
            clear: state.index.clear,
            covers,
            block_bytes: 0,
        };
        let (mut buffer, mut at) = (Vec::new(), HEADER_BYTES as u64);
        let mut flush = |buffer: &mut Vec<u8>| -> Result<()> {
            store::write_full(file.as_ref(), buffer, at).at("write", path)?;
            at += buffer.len() as u64;
            buffer.clear();
            Ok(())
        };
        let PackIndex { names, tree, .. } = &mut state.index;
        let folded = plfs_pack::fold(names, &mut Below(tree.as_mut()), &facts, |block| {
            buffer.extend_from_slice(block);
            match buffer.len() >= WRITE_BYTES {
                true => flush(&mut buffer).map_err(Stop::Failed),
                false => Ok(()),
            }
        });
        let folded = folded.map_err(|stop| match stop {
            Stop::Failed(error) => error,
            Stop::Bad(bad) => Error::of_bytes(path, bad),
        })?;
        flush(&mut buffer)?;
        store::write_full(file.as_ref(), &folded.header.encode(), 0).at("write", path)?;
        file.sync_data().at("sync", path)?;
        store.rename(path, &self.container.path(name::NAMES)).at("rename", path)?;
        store.sync_dir(&self.container.dir).at("sync", &self.container.dir)
    }
}
