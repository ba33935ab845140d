//! How an index is loaded and follows what others commit: which logs are read, whether a flat index
//! is used, and what a summary spares.

use plfs_format::name::{self, Name};
use plfs_format::summary::Summary;

use super::flat::{Expect, Unfit};
use super::{Fault, Index, Undurable};
use crate::catalog::totals::{carry_left, list_with_what_was_left};
use crate::container::{Container, log_sets};
use crate::error::{Error, Result};
use crate::store::{Errno, Links, Time};
use crate::sync::Arc;

/// How an index came to its flat index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Source {
    /// By a look at all logs.
    #[default]
    Logs,
    /// By the word of a summary: no log was looked at.
    Summary,
}

/// What an index is loaded for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To read by.
    #[default]
    Reading,
    /// For a flat index, which outlasts this boot of the machine.
    Lasting,
}

impl Index {
    /// Reads the flat index if it fits, and all index logs as far as it does not cover them.
    pub fn load(container: &Container) -> Result<Index> {
        loop {
            let names = list_with_what_was_left(container)?;
            let mut index = Index::begin(container, &names)?;
            if index.finish(container, &names)? {
                return Ok(index);
            }
        }
    }

    /// [`Index::load`] for a flat index.
    pub(crate) fn load_to_last(container: &Container) -> Result<Index> {
        loop {
            let names = list_with_what_was_left(container)?;
            let mut index = Index::begin(container, &names)?.lasting();
            if index.finish(container, &names)? {
                return Ok(index);
            }
        }
    }

    /// What it loads from now on is for a flat index: so it looks whether all that would be in
    /// there can be believed when power has been cut.
    pub(crate) fn lasting(self) -> Index {
        Index { purpose: Purpose::Lasting, ..self }
    }

    /// Reads all index logs and no flat index, for this reason.
    pub fn load_logs(container: &Container, why: &str) -> Result<Index> {
        loop {
            let names = list_with_what_was_left(container)?;
            let mut index = Index { flat_ignored: Some(why.into()), ..Index::default() };
            if index.finish(container, &names)? {
                return Ok(index);
            }
        }
    }

    /// [`Index::load`] by who has a summary that counted a moment ago, if there is one: if it names
    /// the flat index, nothing else is looked at. Costs a call and a read then.
    pub fn load_summed_up(container: &Container, settled: Option<Summary>) -> Result<Index> {
        match Index::load_settled(container, settled)? {
            Some(index) => Ok(index),
            None => Index::load(container),
        }
    }

    /// The index by the word of a summary that counted a moment ago, if that names a flat index and
    /// there it is: no log is looked at.
    pub(crate) fn load_settled(
        container: &Container,
        settled: Option<Summary>,
    ) -> Result<Option<Index>> {
        let Some(summary) = settled.filter(|summary| summary.flat != 0) else { return Ok(None) };
        let mut index =
            Index { token: Some(token_of(&summary)), source: Source::Summary, ..Index::default() };
        let named = Expect::Id(summary.flat);
        let whole = match summary.flat_index {
            short if short.is_empty() => index.load_flat(container, named)?,
            short => index.use_flat(container, Arc::new(short), named),
        };
        Ok(whole.is_ok().then_some(index))
    }

    /// Bytes of index logs that a reader has to read because no flat index has them.
    pub(crate) fn pending_bytes(container: &Container, settled: Option<Summary>) -> Result<u64> {
        if container.superblock.has_base || Index::load_settled(container, settled)?.is_some() {
            // Those of a file that was a plain one are not loaded together.
            return Ok(0);
        }
        let names = list_with_what_was_left(container)?;
        Ok(Index::begin(container, &names)?.unread_bytes(container, &names))
    }

    /// The index without the tails of the logs: [`Index::finish`] reads them.
    pub(crate) fn begin(container: &Container, names: &[Name]) -> Result<Index> {
        let mut index = Index::default();
        if names.contains(&Name::Flat)
            && let Err(why) = index.load_flat(container, Expect::Logs(names))?
        {
            let (Unfit::Outlived(why) | Unfit::Other(why)) = why;
            index = Index { flat_ignored: Some(why), ..Index::default() };
        }
        Ok(index)
    }

    /// A share of the index, for processes that load it together: every `parts`-th index log from
    /// the `part`-th on, past what the flat index covers; part 0 has that too. [`Index::merge`] of
    /// all parts is what [`Index::load`] gives.
    pub(crate) fn load_part(
        container: &Container,
        settled: Option<Summary>,
        part: u32,
        parts: u32,
    ) -> Result<Index> {
        if let Some(index) = Index::load_settled(container, settled)? {
            return Ok(if part == 0 { index } else { Index::default() });
        }
        let names = container.list()?;
        let share: Vec<Name> = log_sets(&names)
            .into_iter()
            .skip(part as usize)
            .step_by(parts as usize)
            .map(Name::LogSet)
            .chain(failed_among(&names))
            .collect();
        Index::begin(container, &names)?.tails(container, &share, part == 0)
    }

    /// What the index log of `set` has past the flat index; `with_base` adds the flat index. EAGAIN
    /// if what is not durable lies over something older, or a power cut may have taken some of it.
    pub(crate) fn load_own(
        container: &Container,
        set: Option<u32>,
        with_base: bool,
    ) -> Result<Index> {
        let names = container.list()?;
        let own: Vec<Name> =
            set.map(Name::LogSet).into_iter().chain(failed_among(&names)).collect();
        let own = Index::begin(container, &names)?.lasting().tails(container, &own, with_base)?;
        if own.undurable == Undurable::OverOlder || own.unproven.records() > 0 {
            return Err(Error::invalid(
                Errno::AGAIN,
                "data of this part of the index may not be durable: who closes last decides",
            ));
        }
        Ok(own)
    }

    fn tails(mut self, container: &Container, names: &[Name], with_base: bool) -> Result<Index> {
        if container.superblock.has_base {
            return Err(Error::invalid(
                Errno::AGAIN,
                "the file was a plain one before, which parts of an index cannot say",
            ));
        }
        if !with_base {
            self = Index { scanned: self.scanned, purpose: self.purpose, ..Index::default() };
            let sets = log_sets(names);
            self.scanned.retain(|set, _| sets.contains(set));
            self.scanned.values_mut().for_each(|log| log.from = log.end);
        }
        match self.read_logs(container, names)? {
            true => Ok(self),
            false => Err(Error::invalid(
                Errno::AGAIN,
                "the parts of the index do not follow each other: logs were removed meanwhile",
            )),
        }
    }

    /// Reads the tails of the logs. False as from [`Index::read_logs`].
    pub(crate) fn finish(&mut self, container: &Container, names: &[Name]) -> Result<bool> {
        // First, because what lies over it in doubt gives way to it.
        self.follow_base(container)?;
        let mut is_whole = self.read_logs(container, names)?;
        if is_whole
            && matches!(self.fault, Some(Fault::Damaged | Fault::Overtaken | Fault::BaseChanged))
        {
            *self = Index {
                flat_ignored: self.is_broken().map(Into::into),
                purpose: self.purpose,
                ..Index::default()
            };
            self.follow_base(container)?;
            is_whole = self.read_logs(container, names)?;
        }
        if self.flat.is_none() {
            // One sorted level: lookups in what was loaded search one tree.
            self.extents.compact();
        }
        Ok(is_whole)
    }

    /// Reads what others committed since the last look. Costs one stat if nobody came; else a
    /// listing, unless the one before still counts, and a look at each index log; reads only what
    /// is new. True if it had to begin anew: then writes of this process that are in no log must be
    /// added again.
    pub fn refresh(&mut self, container: &Container) -> Result<bool> {
        self.follow_base(container)?;
        if let Some(why) = self.is_broken() {
            return self.rebuild_from_logs(container, why).map(|()| true);
        }
        let time = container.time()?;
        if self.token == Some(time) {
            return Ok(false);
        }
        self.token = None;
        let mut names = container.list_at(time)?;
        if carry_left(container, &names)? {
            names = container.list()?.into();
        }
        if self.source == Source::Summary
            || !self.has_all(&names)
            || !self.read_logs(container, &names)?
        {
            // Logs were removed, after a truncate to nothing or by a compaction: what we knew may
            // be gone. Or nobody has looked whether they are there.
            let generation = self.generation;
            *self = Index { generation: generation + 1, ..Index::load(container)? };
            return Ok(true);
        }
        match self.is_broken() {
            Some(why) => self.rebuild_from_logs(container, why).map(|()| true),
            None => Ok(false),
        }
    }

    /// [`Index::load_logs`] in place; writes of this process that are in no log must be added
    /// again.
    pub fn rebuild_from_logs(&mut self, container: &Container, why: &str) -> Result<()> {
        let generation = self.generation;
        *self = Index { generation: generation + 1, ..Index::load_logs(container, why)? };
        Ok(())
    }

    /// Whether all logs that were read are there still.
    pub(crate) fn has_all(&self, names: &[Name]) -> bool {
        let sets = log_sets(names);
        self.scanned.keys().all(|set| sets.contains(set))
    }

    /// Bytes of index logs that have not been read.
    pub(crate) fn unread_bytes(&self, container: &Container, names: &[Name]) -> u64 {
        let unread = |name: &Name| match name {
            Name::LogSet(set) => {
                let length = container
                    .store
                    .stat(&container.path(&name::index_log(*set)), Links::Follow)
                    .map_or(0, |stat| stat.len);
                length.saturating_sub(self.scanned.get(set).map_or(0, |log| log.end))
            }
            _ => 0,
        };
        names.iter().map(unread).sum()
    }
}

/// What says of log sets that a sync of them failed.
fn failed_among(names: &[Name]) -> impl Iterator<Item = Name> + '_ {
    names.iter().copied().filter(|name| matches!(name, Name::Unsynced(_)))
}

pub(super) fn token_of(summary: &Summary) -> Time {
    Time { sec: summary.token_sec, nsec: summary.token_nsec }
}
