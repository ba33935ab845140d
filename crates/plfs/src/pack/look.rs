//! What others have said of a pack: when a process looks, and what it then knows.

use std::time::Instant;

use plfs_format::name::SegmentRef;
use plfs_format::pack::Record;
use plfs_pack::Found;

use super::index::{Node, PackIndex};
use super::{Pack, State};
use crate::error::{Error, Result};
use crate::lifecycle;
use crate::log::{NodeLog, node_log};
use crate::store::{Errno, Links};
use crate::sync::lock;

impl Pack {
    /// Looks for what others have committed until now.
    pub fn refresh(&self) -> Result<()> {
        self.look(&mut lock(&self.state))
    }

    /// Reads the logs of other nodes if the last look is old, and that of the own node.
    pub(super) fn look_if_due(&self, state: &mut State) -> Result<()> {
        let is_fresh = |looked: Instant| looked.elapsed() < self.options.look_every;
        match state.index.is_whole && state.looked.is_some_and(is_fresh) {
            true => self.look_at_node(state),
            false => self.look(state),
        }
    }

    pub(super) fn look(&self, state: &mut State) -> Result<()> {
        self.look_at_all(state).map_err(|error| self.perhaps_gone(error))
    }

    /// What an error says if it is that the whole pack was removed.
    pub(super) fn perhaps_gone(&self, error: Error) -> Error {
        let container = &self.container;
        let is_gone = || container.store.stat(&container.dir, Links::Stay) == Err(Errno::NOENT);
        match error.errno() == Errno::NOENT && is_gone() {
            true => Error::PackGone { dir: self.dir(), identity: container.identity },
            false => error,
        }
    }

    fn look_at_all(&self, state: &mut State) -> Result<()> {
        // Before: what comes while logs are read is perhaps not read.
        let rings = self.bell.rings();
        let node_end = state.writer.as_ref().map(|writer| writer.set.index_end());
        let mut of_node = self.seen_of_node(state);
        if let Node::Guest(log) = &state.index.node
            && log.is_left()
        {
            // Who cannot carry it reads it there.
            let _ = lifecycle::end_node(&self.container, &self.config);
            of_node = self.seen_of_node(state);
        }
        match state.index.is_whole {
            false => state.index.load()?,
            true => state.index.look()?,
        }
        state.looked = Some(Instant::now());
        (state.rings, state.seen_of_node) = (rings, of_node);
        if let (Some(writer), Some(end)) = (&mut state.writer, node_end) {
            writer.node_end = end;
            writer.seal_all();
        }
        self.heed(state);
        Ok(())
    }

    pub(super) fn seen_of_node(&self, state: &mut State) -> Option<(u32, u64)> {
        if state.writer.is_some() {
            return None;
        }
        let log = node_log(&self.container, &self.config);
        let end = log.as_ref().map(NodeLog::end);
        state.index.node = log.map_or(Node::Nobody, Node::Guest);
        end
    }

    /// Reads what processes of the node have appended. Costs a look at a shared word if they have
    /// not.
    pub(super) fn look_at_node(&self, state: &mut State) -> Result<()> {
        if let Some(writer) = &mut state.writer {
            let end = writer.set.index_end();
            if end == writer.node_end {
                return Ok(());
            }
            writer.node_end = end;
            writer.seal_all();
            state.index.look_at_log(writer.set.id())?;
        } else {
            let rings = self.bell.rings();
            if rings.is_some() && rings == state.rings {
                return Ok(());
            }
            let seen = self.seen_of_node(state);
            let same = |one: Option<(u32, u64)>| one.map(|(set, _)| set);
            match seen {
                _ if rings.is_none() && seen == state.seen_of_node => return Ok(()),
                Some((set, _)) if same(seen) == same(state.seen_of_node) => {
                    state.index.look_at_log(set)?;
                }
                // Those who wrote have left, and others may have come: it can be in any log.
                _ => return self.look(state),
            }
            (state.rings, state.seen_of_node) = (rings, seen);
        }
        self.heed(state);
        Ok(())
    }

    /// What is said from now on is behind all that was seen.
    pub(super) fn heed(&self, state: &mut State) {
        if let Some(writer) = &state.writer {
            writer.set.observe(state.index.max_stamp);
        }
        self.add_again(state);
    }

    /// Adds what waits to what was read, if all was read anew.
    pub(super) fn add_again(&self, state: &mut State) {
        if state.added != state.index.generation {
            state.added = state.index.generation;
            if let Some(writer) = &state.writer {
                let (segments, records) = writer.records(self.boot);
                state.index.add(&segments, &records);
            }
        }
    }

    pub(super) fn added(&self, state: &mut State, segments: &[SegmentRef], records: &[Record]) {
        state.index.add(segments, records);
    }

    /// What `ask` finds. If the tree turns out to be damaged, all is read from the logs first.
    pub(super) fn ask<T>(
        &self,
        state: &mut State,
        mut ask: impl FnMut(&mut PackIndex) -> Result<T>,
    ) -> Result<T> {
        match ask(&mut state.index) {
            Err(error) if state.index.doubt_tree(&error) => {
                state.index.load()?;
                self.add_again(state);
                ask(&mut state.index)
            }
            other => other,
        }
    }

    pub(super) fn lookup(&self, state: &mut State, name: &[u8]) -> Result<Vec<Found>> {
        self.ask(state, |index| index.lookup(name))
    }
}
