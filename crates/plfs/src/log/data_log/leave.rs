//! Targets that take nothing more: full ones, those that refuse, and those that give no answer.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use plfs_format::name::SegmentRef;

use super::{DataLog, Steers, TRIES};
use crate::error::{Error, Result};
use crate::log::flusher::{aside, given_up, looks_every};
use crate::store::Errno;
use crate::store::machine::boot_time_ns;
use crate::store::rates::{self, Rates};
use crate::sync::Arc;

/// For how long nobody looks for another backend after all had no room: each look makes a segment
/// on each of them, and a program that finds no room may try again at once.
const REST_NS: u64 = 1_000_000_000;

impl DataLog {
    /// Ends a segment whose backend has no room, for the whole node, if there may be room on
    /// another one. If not it stays, and so does what the caller has for it.
    pub fn leave_full(&mut self, segment: u32) -> bool {
        self.leave_place(self.segments[segment as usize].at)
    }

    /// The same for a segment whose backend has refused something by this error: also one that
    /// gives no answer.
    pub(super) fn leave(&mut self, at: SegmentRef, error: &Error) -> bool {
        if !error.is_given_up() {
            return self.leave_place(at);
        }
        self.learn_others();
        let Steers::Yes(steering) = &self.steering else { return false };
        let left =
            steering.has_open_target() && self.set.leave_segment(at.stream, at.segment).is_ok();
        if left {
            self.leave_region();
        }
        left
    }

    /// Whether bytes that met this error may go to another target.
    pub(super) fn may_go_elsewhere(&self, error: &Error) -> bool {
        error.is_given_up() || error.is_refused(matches!(self.steering, Steers::Yes(_)))
    }

    fn leave_place(&mut self, at: SegmentRef) -> bool {
        if boot_time_ns() < self.rests_until {
            return false;
        }
        // The next segment of a stream is on another target of the backend, if that has several.
        self.full_targets += 1;
        let targets = self.provider(at.backend).map_or(1, |it| it.targets().len().min(TRIES));
        if targets <= self.full_targets && !self.full.contains(&at.backend) {
            self.full.push(at.backend);
        }
        let left = targets > self.full_targets
            || self
                .backends(at.stream)
                .is_ok_and(|ids| ids.iter().any(|id| !self.full.contains(id)));
        if !left || self.set.leave_segment(at.stream, at.segment).is_err() {
            self.full.clear();
            self.full_targets = 0;
            self.rests_until = boot_time_ns() + REST_NS;
            return false;
        }
        self.leave_region();
        true
    }

    /// Takes note of the targets that take something: those that are drained, or full, do not.
    pub(super) fn learn_others(&mut self) {
        if !matches!(self.steering, Steers::Yes(_)) {
            return;
        }
        let Ok(ids) = self.backends(self.stream) else { return };
        let takes = |id: &u16| !self.full.contains(id);
        let keys: Vec<PathBuf> = ids
            .into_iter()
            .filter(takes)
            .filter_map(|id| self.provider(id).ok())
            .flat_map(|it| it.targets().iter().map(|one| one.key.clone()).collect::<Vec<_>>())
            .collect();
        let Steers::Yes(steering) = &mut self.steering else { return };
        steering.know_targets(&keys);
    }

    /// Whether the target with this key was given up.
    pub(super) fn is_fenced(&self, key: &Path) -> bool {
        let Steers::Yes(steering) = &self.steering else { return false };
        let rates = steering.rates();
        rates.find(key).is_some_and(|target| rates.is_fenced(target))
    }

    /// When something that a target does not do is given up.
    pub(super) fn deadline(&self) -> Option<Duration> {
        match self.steering {
            Steers::Yes(_) => self.container.deadline,
            _ => None,
        }
    }

    /// The same, and the target's sign, where there is another one: given up or not.
    pub(super) fn deadline_at(&self, key: &Path) -> Option<(Duration, Arc<Rates>, rates::Target)> {
        let Steers::Yes(steering) = &self.steering else { return None };
        let (deadline, rates) = (self.container.deadline?, steering.rates());
        let target = rates.target(key)?;
        let is_one_of_several = steering.targets().iter().any(|one| *one != target);
        is_one_of_several.then(|| (deadline, rates.clone(), target))
    }

    /// Whether there is another target than this, and it is not given up.
    fn has_other(&self, than: rates::Target) -> bool {
        matches!(&self.steering, Steers::Yes(steering) if steering.has_other(than))
    }

    /// What `call` gives, which asks the target with this key; an error if that takes too long and
    /// there is another one that takes the bytes. Where all others were given up it waits, until
    /// one of them answers.
    pub(super) fn in_time<T: Send + 'static>(
        &self,
        key: &Path,
        (op, path): (&'static str, &Path),
        call: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let Some((deadline, rates, target)) = self.deadline_at(key) else { return call() };
        if rates.is_fenced(target) && self.has_other(target) {
            return Err(given_up(op, path));
        }
        let (begun, sign) = (Instant::now(), rates.clone());
        let call = move || {
            let done = call();
            // It was given up for this. That something is not there is an answer, too.
            let answers = done.as_ref().map_or_else(|it| it.errno() == Errno::NOENT, |_| true);
            if answers && begun.elapsed() >= deadline {
                sign.unfence(target);
            }
            done
        };
        let is_over = || begun.elapsed() >= deadline && self.has_other(target);
        aside(call).wait(looks_every(deadline), is_over).unwrap_or_else(|| {
            rates.fence(target);
            Err(given_up(op, path))
        })
    }

    /// Whether a target was given up, and there is another one.
    pub(super) fn is_left(&self, key: &Path) -> bool {
        let is_left = |(_, rates, target): (_, Arc<Rates>, _)| {
            rates.is_fenced(target) && self.has_other(target)
        };
        self.deadline_at(key).is_some_and(is_left)
    }
}
