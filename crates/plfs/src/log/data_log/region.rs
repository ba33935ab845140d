//! The regions that a writer takes, one after the other: of its own stream, or of those that
//! [`Steering`] chooses, and visits to idle targets.

use plfs_format::name::SegmentRef;
use plfs_index::Regions;

use super::{DataLog, Segment, Steers, TRIES, Travel};
use crate::error::{Error, Result};
use crate::log::flusher::{aside, given_up};
use crate::log::steering::{self, PACE, Steering};
use crate::store;
use crate::store::rates::Rates;
use crate::store::site::look_after;

/// A region on an idle target, after which the writer goes back.
pub(super) struct Visit {
    pub(super) stream: u16,
    /// The region was taken.
    has_begun: bool,
    /// What it goes back to.
    home: Regions,
}

/// On a local file system with several targets: as much as is given to the storage at once, and no
/// write on the caller's thread, which might wait for ever.
fn steered(travel: Travel) -> Travel {
    let most = travel.buffer_bytes.max(PACE as usize);
    Travel { direct_bytes: usize::MAX, buffer_bytes: most, behind: true }
}

impl DataLog {
    /// Leaves the rest of the region if another target promises far more, or this one is given up;
    /// else visits one that is idle, if this one has all that it can have under way.
    pub(super) fn reconsider(&mut self) {
        let Steers::Yes(steering) = &mut self.steering else { return };
        if (self.in_flight.take_measured() || steering.is_fenced_here()) && steering.should_leave()
        {
            self.leave_region();
        } else if self.visit.is_none()
            && !self.stays_home
            && let Some(stream) = steering.visit()
            && self.takes_new(stream)
        {
            let home =
                std::mem::replace(&mut self.regions, Regions::of(self.travel.buffer_bytes as u64));
            self.visit = Some(Visit { stream, has_begun: false, home });
        }
    }

    /// Whether the backend where a stream is now is neither drained nor full.
    fn takes_new(&self, stream: u16) -> bool {
        self.set.place_now(stream).is_none_or(|(backend, _)| {
            !self.full.contains(&backend)
                && self.backends(self.stream).is_ok_and(|active| active.contains(&backend))
        })
    }

    /// Ends a visit, and gives up what is left of the region at home.
    pub(super) fn leave_region(&mut self) {
        self.go_home();
        self.regions.leave();
    }

    fn go_home(&mut self) {
        if let Some(visit) = self.visit.take() {
            self.regions = visit.home;
        }
    }

    /// Whether a backend has several targets.
    fn is_divided(&self) -> bool {
        let several = |id: &u16| self.provider(*id).is_ok_and(|it| it.targets().len() > 1);
        self.container.superblock.backends.iter().any(several)
    }

    /// Whether there is another target for what finds no room.
    pub(super) fn has_choice(&self) -> bool {
        self.only.as_ref().unwrap_or(&self.container.superblock.backends).len() > 1
            || self.is_divided()
    }

    pub(super) fn reserve(&mut self, bytes: u64) -> Result<(u32, u64)> {
        if let Some(placed) = self.regions.place_in_current(bytes) {
            return Ok(placed);
        }
        if self.visit.as_ref().is_some_and(|visit| visit.has_begun) {
            self.go_home();
            return self.reserve(bytes);
        }
        let limit = store::size_limit();
        if bytes > limit {
            return Err(Error::too_long());
        }
        let mut tries = 0..TRIES;
        loop {
            let (mut regions, mut refused) = (self.regions, None);
            let placed = regions.place(bytes, limit, |want| self.region(want, limit, &mut refused));
            self.regions = regions;
            match (placed, refused) {
                (Err(error), Some(at))
                    if self.may_go_elsewhere(&error)
                        && tries.next().is_some()
                        && self.leave(at, &error) => {}
                // Home has room.
                (Err(_), _) if self.visit.is_some() => {
                    self.stays_home = true;
                    self.go_home();
                    return self.reserve(bytes);
                }
                (placed, _) => return placed,
            }
        }
    }

    /// The stream for the next region: where there are several targets, on the one that promises
    /// most.
    fn steer(&mut self) -> u16 {
        self.learn_targets();
        self.learn_others();
        let Steers::Yes(steering) = &self.steering else { return self.stream };
        let Ok(active) = self.backends(self.stream) else { return self.stream };
        let key_of = |stream| {
            let (backend, target) = match self.set.place_now(stream) {
                Some(place) => place,
                None => self.choose(stream, 0)?,
            };
            // One that is drained takes nothing more, and one that is full has no room.
            let takes = active.contains(&backend) && !self.full.contains(&backend);
            if takes { self.key(backend, target).map(Some) } else { Ok(None) }
        };
        let choices = steering::choices(steering.rates(), &self.container, self.stream, key_of);
        let Steers::Yes(steering) = &mut self.steering else { return self.stream };
        choices.ok().and_then(|choices| steering.choose(choices)).unwrap_or(self.stream)
    }

    /// Finds out whether there are several targets to choose from; once.
    pub(super) fn learn_targets(&mut self) {
        if !matches!(self.steering, Steers::Unknown) {
            return;
        }
        self.steering = self.begin_steering().map_or(Steers::No, Steers::Yes);
        if let Steers::Yes(_) = &self.steering
            && !self.travel.behind
        {
            self.travel = steered(self.travel);
            let most = (self.budget_bytes / 2).max(4096);
            self.travel.buffer_bytes = self.travel.buffer_bytes.min(1 << most.ilog2());
        }
    }

    /// `None` if there is one target, or nobody can tell how fast they are.
    fn begin_steering(&mut self) -> Option<Box<Steering>> {
        let streams = self.container.superblock.streams;
        if streams < 2 || self.only.is_some() || !self.has_choice() {
            return None;
        }
        let _acting = self.container.store.act();
        let rates =
            Rates::of(self.container.shared_memory.as_deref()?, self.container.store.user())?;
        self.find_backends(&rates);
        if self.are_all_in_memory() {
            return None;
        }
        if let Some(file) = &self.container.rates {
            let backends = &self.container.superblock.backends;
            let there = backends.iter().filter(|id| !self.lost.contains(id));
            let dirs = there.filter_map(|id| self.container.backend_root(*id).ok());
            look_after(file, &rates, dirs.collect());
        }
        Some(Box::new(Steering::new(&rates, self.container.placement)))
    }

    /// Whether nothing of the file's data goes to storage that can be slow.
    fn are_all_in_memory(&self) -> bool {
        let container = &self.container;
        let is_memory = |id: &u16| {
            let dir = container.backend_root(*id);
            dir.is_ok_and(|dir| container.store.boot(&dir).is_none())
        };
        // The root is not, as a rule. That costs no call.
        let is_root_in_memory = container.local && self.sums.is_none();
        let mut there = container.superblock.backends.iter().filter(|id| !self.lost.contains(id));
        is_root_in_memory && there.all(is_memory)
    }

    /// Sees that the file's backends are there, if the process has not seen it before. Those that
    /// give no answer are as if the file had them not.
    fn find_backends(&mut self, rates: &Rates) {
        let Some(deadline) = self.container.deadline else { return };
        let ids = self.container.superblock.backends.iter().copied();
        let unseen = ids.filter_map(|id| match self.container.backend_entry(id) {
            Ok((path, false)) => Some((id, rates.target(&path)?)),
            _ => None,
        });
        let asked: Vec<_> = unseen
            .map(|(id, target)| {
                let container = self.container.clone();
                let look = move || {
                    container.backend_root(id).map(|dir| drop(container.store.targets(&dir)))
                };
                (id, target, (!rates.is_fenced(target)).then(|| aside(look)))
            })
            .collect();
        for (id, target, asked) in asked {
            // What is wrong with one that answers is an error of who needs it.
            if asked.and_then(|asked| asked.wait_for(deadline)).is_none() {
                rates.fence(target);
                self.lost.push(id);
            }
        }
        if self.lost.len() == self.container.superblock.backends.len() {
            self.lost.clear();
        }
    }

    /// A region of a stream, as [`LogSet::reserve`] gives it. If its segment cannot be made
    /// `refused` says which.
    fn region(
        &mut self,
        bytes: u64,
        limit: u64,
        refused: &mut Option<SegmentRef>,
    ) -> Result<(u32, u64)> {
        let visit = self.visit.as_mut().filter(|visit| !visit.has_begun);
        let is_visit = visit.is_some();
        let stream = match visit {
            Some(visit) => {
                visit.has_begun = true;
                visit.stream
            }
            None => self.steer(),
        };
        let (number, offset) = self.region_of(stream, bytes, limit, refused)?;
        if is_visit {
            self.visited = (number, offset..offset + bytes);
        }
        Ok((number, offset))
    }

    fn region_of(
        &mut self,
        stream: u16,
        bytes: u64,
        limit: u64,
        refused: &mut Option<SegmentRef>,
    ) -> Result<(u32, u64)> {
        loop {
            let (number, offset) = self.set.reserve(stream, bytes, limit)?;
            if let Steers::Yes(steering) = &mut self.steering {
                steering.gave(stream, bytes);
            }
            let is_it = |known: &Segment| (known.at.stream, known.at.segment) == (stream, number);
            if let Some(i) = self.segments.iter().rposition(is_it) {
                let Segment { at, key, path, .. } = &self.segments[i];
                if self.is_left(key) {
                    *refused = Some(*at);
                    return Err(given_up("write the data log", path));
                }
                return Ok((i as u32, offset));
            }
            if let Some((at, target)) =
                self.set.place(stream, number, || self.choose(stream, number))?
            {
                *refused = Some(at);
                return Ok((self.segment(at, target)?, offset));
            }
        }
    }
}
