//! What a process says of a pack: joining the node's log set, blocks, commits and syncs, leaving.

use std::time::{Duration, Instant};

use plfs_format::name::SegmentRef;
use plfs_format::pack::Record;

use super::index::{Node, PackIndex, complete};
use super::writer::{OWNED, Writer};
use super::{Pack, State, data_log};
use crate::catalog;
use crate::error::{Error, Result};
use crate::log::{CommitHorizon, Durability, LogSet, Wanted};
use crate::store::Errno;
use crate::sync::atomic::Ordering;
use crate::sync::{Arc, lock};
use crate::write::Identity;

/// A block before it is appended: its segments and records, and what else the builder gives.
type Built<T> = (Vec<SegmentRef>, Vec<Record>, T);

impl Pack {
    /// Makes all that this process did visible to others: to those of the node at once, to other
    /// nodes when they look. Not forced to storage. Costs at most two appends.
    pub fn commit(&self) -> Result<()> {
        self.commit_locked(&mut lock(&self.state), Durability::Visible)
    }

    /// Makes all that this process did visible and durable, with all files that it did it to.
    pub fn sync(&self) -> Result<()> {
        self.commit_locked(&mut lock(&self.state), Durability::Durable)
    }

    /// Makes the sorted tree of all that is committed, durably: who opens the pack then reads that.
    pub fn fold(&self) -> Result<()> {
        let state = &mut *lock(&self.state);
        self.commit_locked(state, Durability::Visible)?;
        self.fold_locked(state)
    }

    /// Commits, and leaves the node's log set. The next call that writes joins again. Of one that
    /// has failed, and was told so, nothing is left; it leaves all the same.
    pub fn leave(&self) -> Result<()> {
        self.leave_locked(&mut lock(&self.state))
    }

    /// [`Pack::leave`] for who has nothing to say and waits for nobody. One that has failed stays,
    /// so that the next call is told; and who has said what the storage does not take.
    pub fn rest(&self) -> Result<()> {
        let state = &mut *lock(&self.state);
        let Some(writer) = &state.writer else { return Ok(()) };
        writer.check()?;
        self.leave_locked(state)
    }

    /// In the child of a fork: the parent's place among the node's writers is not its own.
    pub fn forget_writer(&self) {
        let state = &mut *lock(&self.state);
        self.is_guest(state);
        let Some(writer) = state.writer.take() else { return };
        if writer.has_waiting() {
            // The bytes of these records are in the parent's memory, if anywhere.
            state.index.is_whole = false;
        }
        if writer.unsynced != 0 {
            state.others.insert(writer.set.id());
        }
    }

    /// Whether a call has failed so that later ones that write do.
    pub fn has_failed(&self) -> bool {
        lock(&self.state).writer.as_ref().is_some_and(|writer| writer.check().is_err())
    }

    pub(super) fn leave_locked(&self, state: &mut State) -> Result<()> {
        if state.writer.is_none() {
            return Ok(());
        }
        let promise = Durability::on_close(&self.config);
        let mut done = self.commit_locked(state, promise);
        if let Some(writer) = &state.writer
            && writer.check().is_ok()
        {
            // The others may have nobody who does it soon.
            done = done.and_then(|()| writer.set.carry());
            // What could not be said or carried is here still: who does it later, or is told, has
            // to be here, too. Of a process that ends the next one takes it over.
            done.clone()?;
        }
        if done.is_ok() && state.index.is_fold_due() {
            // A tree is a cache: who may not write one leaves it to others.
            let _ = self.fold_locked(state);
        }
        if let Some(writer) = &mut state.writer
            && done.is_ok()
        {
            // Then bytes of files that were closed are lost: it stays, so that later calls say so.
            writer
                .data
                .close()
                .and_then(|()| writer.set.close_index())
                .map_err(|error| writer.poison_unless_passing(error))?;
        }
        self.is_guest(state);
        let Some(writer) = state.writer.take() else { return done };
        let Writer { set, data, unsynced, .. } = writer;
        if unsynced != 0 {
            state.others.insert(set.id());
        }
        drop(data);
        match Arc::into_inner(set) {
            Some(set) => done.and(set.leave().map(drop)),
            None => done,
        }
    }

    /// This process is no member of its node from now on. What it knows may be in the tray: the
    /// next call looks for it there.
    pub(super) fn is_guest(&self, state: &mut State) {
        state.index.node = Node::Nobody;
        (state.rings, state.seen_of_node) = (None, None);
    }

    /// [`Pack::leave`] for who is done.
    pub fn close(self) -> Result<()> {
        self.leave()
    }

    pub(super) fn writer<'a>(&self, state: &'a mut State) -> Result<&'a mut Writer> {
        match &mut state.writer {
            Some(writer) => Ok(writer),
            None => Err(Error::invalid(Errno::BADF, "the pack is not open for writing")),
        }
    }

    /// Joins the node's log set, unless the process has. EBUSY if the files of the pack move out:
    /// who moves them looks for owners of log sets after he has said so, and this asks for that
    /// after it has become one.
    pub(super) fn join(&self, state: &mut State) -> Result<()> {
        let was_member = state.writer.is_some();
        self.join_as_mover(state)?;
        if was_member || !self.is_leaving()? {
            return Ok(());
        }
        self.leave_locked(state)?;
        let what = "`plfs unpack` moves the files out of its pack, or was killed: run it again";
        Err(Error::refused(Errno::BUSY, "write", &self.dir(), what))
    }

    /// [`Pack::join`] for who moves files out and writes none.
    pub fn take_part(&self) -> Result<()> {
        self.join_as_mover(&mut lock(&self.state))
    }

    pub(super) fn join_as_mover(&self, state: &mut State) -> Result<()> {
        if let Some(writer) = &state.writer {
            return writer.check();
        }
        // Behind all that was there: see FORMAT.md section 4, "Who need not ask the logs".
        self.look(state)?;
        let seen =
            CommitHorizon { max_stamp: state.index.max_stamp, is_new: state.index.read.is_empty() };
        let identity = Identity::of_this_process(self.container.store.user());
        let set = LogSet::join(
            self.container.clone(),
            &self.config,
            seen,
            Wanted::WithTray,
            || identity.mark(),
            complete,
        );
        let set = Arc::new(set.map_err(|error| self.perhaps_gone(error))?);
        let data = data_log(&self.container, &set, self.config.buffer_bytes);
        state.index.node = Node::Member(set.clone());
        state.writer = Some(Writer::new(set, data));
        self.look_at_node(state)
    }

    /// Says a record without data with the next commit, or at once. An error: it is not said.
    pub(super) fn say_soon(&self, state: &mut State, record: Record) -> Result<()> {
        if !self.options.batch {
            // What waits first: this would wait with it, if there were no descriptor, though its
            // call has failed.
            self.commit_locked(state, Durability::Visible)?;
            return self.say_now(state, |_, _| Ok((vec![record], ())));
        }
        self.writer(state)?.say(record.clone());
        self.added(state, &[], &[record]);
        Error::unless_passing(self.commit_if_crowded(state))
    }

    /// Says what `build` decides, with all records without data that wait: nobody of the node says
    /// anything meanwhile, and what they have said is known.
    pub(super) fn say_now<T>(
        &self,
        state: &mut State,
        build: impl FnOnce(&mut PackIndex, &mut Writer) -> Result<(Vec<Record>, T)>,
    ) -> Result<T> {
        let given = self.say(state, Durability::Durable, |index, writer| {
            let (new, given) = build(index, writer)?;
            let mut records = writer.records_without_data();
            records.extend(new);
            Ok((Vec::new(), records, given))
        })?;
        self.writer(state)?.is_said_without_data();
        self.must_own(state, Durability::Visible)?;
        Ok(given)
    }

    /// Appends a block to the node's log. What `build` gives is known when this returns.
    pub(super) fn say<T>(
        &self,
        state: &mut State,
        data: Durability,
        build: impl FnOnce(&mut PackIndex, &mut Writer) -> Result<Built<T>>,
    ) -> Result<T> {
        let State { index, writer, added, .. } = state;
        let Some(writer) = writer else {
            return Err(Error::invalid(Errno::BADF, "the pack is not open for writing"));
        };
        writer.check()?;
        let (set, boot) = (writer.set.clone(), self.boot);
        set.make_room(writer.block_bytes())?;
        let mut refused = None;
        let mut is_building = true;
        let done = set.append_pack(data, |log_end| {
            let build = || {
                if index.read.get(&set.id()).copied().unwrap_or(0) < log_end.offset {
                    if !index.look_at_own(set.id(), log_end)? {
                        // Nobody reads all with the lock held: the next call does.
                        return Err(Error::invalid(Errno::AGAIN, "the pack was compacted"));
                    }
                    writer.seal_all();
                    set.observe(index.max_stamp);
                    if *added != index.generation {
                        *added = index.generation;
                        let (segments, records) = writer.records(boot);
                        index.add(&segments, &records);
                    }
                }
                build(index, writer)
            };
            match build() {
                Ok((segments, records, given)) => {
                    index.add(&segments, &records);
                    is_building = false;
                    Ok((segments, records, given))
                }
                Err(error) => {
                    refused = Some(error.clone());
                    Err(error)
                }
            }
        });
        let (given, appended) = match done {
            Ok(done) => done,
            Err(error) if refused.is_some() => return Err(error),
            // Nothing was built, so nothing is known that no log has.
            Err(error) if is_building => return Err(error),
            Err(error) => return Err(writer.poison(error)),
        };
        if let Some((stamp, end)) = appended {
            index.max_stamp = index.max_stamp.max(stamp);
            index.read.insert(set.id(), end);
            (writer.node_end, writer.unsynced) = (end, end);
            self.bell.ring();
            let holds = !self.holds_nothing.load(Ordering::Relaxed)
                && !self.is_changing.load(Ordering::Acquire);
            match self.options.hold.filter(|_| holds) {
                // What the storage does not take stays, and the next call is told.
                Some(most) if set.waits_for().is_some_and(|time| time > most) => {
                    let _ = self.carry_locked(state);
                }
                Some(_) => {}
                // It stays as well.
                None => {
                    Error::unless_passing(set.carry()).map_err(|error| writer.poison(error))?;
                }
            }
        }
        Ok(given)
    }

    /// Gives to the storage what processes of the node have said of the pack, if the oldest of it
    /// has waited so long. Other nodes see it then when they look.
    pub fn carry(&self, waited: Duration) -> Result<()> {
        let state = &mut *lock(&self.state);
        match &state.writer {
            Some(writer) if writer.set.waits_for().is_some_and(|time| time >= waited) => {
                self.carry_locked(state)
            }
            _ => Ok(()),
        }
    }

    /// From now on each call that says something gives it to the storage: nobody else does.
    pub fn hold_nothing(&self) {
        self.holds_nothing.store(true, Ordering::Relaxed);
    }

    /// Whether the files of the directory move into the pack, or out of it. As long as they do each
    /// call gives what it says to the storage: who moves one, on whatever node, and has the turn to
    /// change the directory, sees all that who had it before has said.
    pub fn set_changing(&self, is_changing: bool) {
        self.is_changing.store(is_changing, Ordering::Release);
    }

    /// Whether files of the directory moved into the pack, or out of it, when its name was looked
    /// at last: then ordinary ones come first.
    pub fn is_changing(&self) -> bool {
        self.is_changing.load(Ordering::Acquire)
    }

    /// Not for a node that was declared dead: the logs are not its own any more.
    fn carry_locked(&self, state: &mut State) -> Result<()> {
        let writer = self.writer(state)?;
        writer.check()?;
        if let Err(error) = writer.set.must_have_mark() {
            return Err(writer.poison_unless_passing(error));
        }
        writer.owned = Instant::now();
        writer.set.carry()
    }

    pub(super) fn commit_if_crowded(&self, state: &mut State) -> Result<()> {
        match state.writer.as_ref().is_some_and(Writer::is_crowded) {
            true => self.commit_locked(state, Durability::Visible),
            false => Ok(()),
        }
    }

    pub(super) fn commit_locked(&self, state: &mut State, promise: Durability) -> Result<()> {
        let Some(writer) = &mut state.writer else {
            if promise == Durability::Durable && !state.others.is_empty() {
                self.sync_others(state, None)?;
                catalog::sync_names(&self.container, None, Some(&self.dir()))?;
                state.others.clear();
            }
            return Ok(());
        };
        writer.check()?;
        let set = writer.set.clone();
        if writer.has_waiting() {
            self.hand_over(state)?;
            let durable = promise == Durability::Durable;
            if durable {
                set.carry()?;
                set.sync_data().map_err(|error| self.poisoned(state, error))?;
            }
            // Held until the block is there: no sync makes it durable without its data. From a tray
            // both go at once.
            let _gate = (!durable && !set.has_tray()).then(|| set.gate()).transpose()?;
            let boot = if durable { 0 } else { self.boot };
            self.say(state, promise, |_, writer| {
                let (segments, records) = writer.records(boot);
                Ok((segments, records, ()))
            })?;
            self.writer(state)?.is_said();
        }
        if promise == Durability::Durable {
            // What the storage does not take is not lost, so that nobody has failed for good.
            set.carry()?;
            self.sync_locked(state, &set).map_err(|error| self.poisoned(state, error))?;
        }
        self.must_own(state, promise)?;
        // A tree is a cache: who may not write one leaves it to others. Another process may have
        // made one, which takes what is in memory.
        if state.index.is_fold_due() && self.look(state).is_ok() && state.index.is_fold_due() {
            let _ = self.fold_locked(state);
        }
        Ok(())
    }

    pub(super) fn poisoned(&self, state: &mut State, error: Error) -> Error {
        match &mut state.writer {
            Some(writer) => writer.poison_unless_passing(error),
            None => error,
        }
    }

    fn sync_locked(&self, state: &mut State, set: &LogSet) -> Result<()> {
        let writer = self.writer(state)?;
        if writer.unsynced != 0 {
            set.sync_index(writer.unsynced)?;
            writer.unsynced = 0;
        }
        self.sync_others(state, Some(set))?;
        set.sync_names_once(|| self.container.sync_names(None, Some(&self.dir())))?;
        state.others.clear();
        Ok(())
    }

    /// Those that fail, and those behind them, are for the next sync as well.
    fn sync_others(&self, state: &State, own: Option<&LogSet>) -> Result<()> {
        for other in &state.others {
            match own.filter(|own| own.id() == *other) {
                Some(own) => own.sync_index(u64::MAX)?,
                None => catalog::sync_logs(&self.container, Some(*other))?,
            }
        }
        Ok(())
    }

    /// That the node still owns its log set: always before a sync is called a success, and once in
    /// a while.
    fn must_own(&self, state: &mut State, promise: Durability) -> Result<()> {
        let writer = self.writer(state)?;
        if promise == Durability::Visible && writer.owned.elapsed() < OWNED {
            return Ok(());
        }
        let owned = writer.set.must_have_mark();
        let checked =
            owned.and_then(|()| writer.data.failure()).and_then(|()| writer.set.index_failure());
        match checked {
            Ok(()) => {
                writer.owned = Instant::now();
                Ok(())
            }
            // What was said is said. The next call looks.
            Err(error) if error.is_passing() && promise == Durability::Visible => Ok(()),
            Err(error) => Err(writer.poison_unless_passing(error)),
        }
    }
}
