//! On which backend a segment lies: the processes of a node share streams, so they agree, by one
//! word of the page for each stream (docs/decisions/0018).
//!
//! The word has the last segment of the stream that was decided, and its backend. It is decided
//! once, by one compare-and-swap, by who has reserved a region in it and finds that it is not. So
//! segments of one number are one file, also where a process has another opinion of which backends
//! have room. Who has a region in a segment before that takes another one: it cannot know where
//! that segment is.

use std::path::PathBuf;

use plfs_format::index_log::SEGMENT_MAX;
use plfs_format::name::{self, SegmentRef};

use super::LogSet;
use super::page::{PLACES, TAILS, pack_tail, too_long, unpack_tail};
use crate::container::Container;
use crate::error::Result;
use crate::store::{Errno, Links, TARGET_MAX};
use crate::sync::plain::atomic::Ordering;

/// A word of [`PLACES`]; 0: no segment was decided.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct PlaceOf {
    pub(super) segment: u32,
    pub(super) backend: u16,
    /// The target inside the backend, where it has several: its number. `None` also where nobody
    /// has said it, as after a takeover.
    pub(super) target: Option<u16>,
}

impl PlaceOf {
    const DECIDED: u64 = 1 << 63;

    pub(super) fn unpack(word: u64) -> Option<PlaceOf> {
        (word & PlaceOf::DECIDED != 0).then(|| PlaceOf {
            segment: (word >> 16) as u32,
            backend: word as u16,
            target: ((word >> 48) as u16 & 0x7fff).checked_sub(1),
        })
    }

    pub(super) fn pack(self) -> u64 {
        let target = self.target.filter(|target| *target < TARGET_MAX).map_or(0, |it| it + 1);
        PlaceOf::DECIDED
            | u64::from(target) << 48
            | u64::from(self.segment) << 16
            | u64::from(self.backend)
    }
}

impl LogSet {
    /// Where segment `segment` of a stream is, in which the caller has reserved a region: on the
    /// backend that `choose` gives, and the target of that, unless a process of the node has
    /// decided it before. `None`: a later segment was decided before this one.
    pub fn place(
        &self,
        stream: u16,
        segment: u32,
        choose: impl FnOnce() -> Result<(u16, Option<u16>)>,
    ) -> Result<Option<(SegmentRef, Option<u16>)>> {
        let at = |PlaceOf { backend, target, .. }: PlaceOf| {
            (SegmentRef { set: self.set, stream, segment, backend }, target)
        };
        let word = &self.shared.words()[PLACES + stream as usize];
        let (mut now, mut choose, mut chosen) =
            (word.load(Ordering::SeqCst), Some(choose), (0, None));
        loop {
            match PlaceOf::unpack(now) {
                Some(place) if place.segment == segment => return Ok(Some(at(place))),
                Some(place) if place.segment > segment => return Ok(None),
                _ => {}
            }
            if let Some(choose) = choose.take() {
                chosen = choose()?;
            }
            let mine = PlaceOf { segment, backend: chosen.0, target: chosen.1 };
            match word.compare_exchange(now, mine.pack(), Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return Ok(Some(at(mine))),
                Err(other) => now = other,
            }
        }
    }

    /// The backend of the last segment of a stream, and the target of that, if one was decided. One
    /// load.
    pub fn place_now(&self, stream: u16) -> Option<(u16, Option<u16>)> {
        let word = self.shared.words()[PLACES + stream as usize].load(Ordering::SeqCst);
        PlaceOf::unpack(word).map(|place| (place.backend, place.target))
    }

    /// Ends segment `segment` of a stream, if it is the last: regions that are reserved from now on
    /// are in later ones.
    pub fn leave_segment(&self, stream: u16, segment: u32) -> Result<()> {
        if segment == SEGMENT_MAX {
            return Err(too_long());
        }
        let tail = &self.shared.words()[TAILS + stream as usize];
        let next = pack_tail((segment + 1, 0)).ok_or_else(too_long)?;
        let mut now = tail.load(Ordering::Relaxed);
        while unpack_tail(now).0 <= segment {
            match tail.compare_exchange_weak(now, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => break,
                Err(other) => now = other,
            }
        }
        Ok(())
    }
}

/// Where a segment is that some process of the node may have made, by the word of its stream;
/// `None`: nobody has. Costs nothing if it is the last of its stream, a stat for each backend
/// otherwise.
pub(super) fn find_segment(
    container: &Container,
    at: impl Fn(u16) -> SegmentRef,
    place: Option<PlaceOf>,
) -> Result<Option<(u16, PathBuf)>> {
    let segment = at(0).segment;
    match place {
        Some(PlaceOf { segment: last, backend, .. }) if last == segment => {
            Ok(Some((backend, container.segment_path(&at(backend))?)))
        }
        Some(PlaceOf { segment: last, .. }) if last > segment => find(container, at),
        // Who writes to it decides it first.
        _ => Ok(None),
    }
}

/// The backend that has a segment. An error if none has it and one is not there.
fn find(container: &Container, at: impl Fn(u16) -> SegmentRef) -> Result<Option<(u16, PathBuf)>> {
    let mut missing = None;
    for backend in container.backends()? {
        let path = match container.backend_dir(backend) {
            Ok(dir) => dir.join(name::data_log(&at(backend))),
            Err(error) => {
                // One that the file does not list is seldom of it.
                if container.superblock.backends.contains(&backend) {
                    missing = missing.or(Some(error));
                }
                continue;
            }
        };
        match container.store.stat(&path, Links::Stay) {
            Ok(_) => return Ok(Some((backend, path))),
            Err(Errno::NOENT | Errno::NOTDIR) => {}
            // Whoever opens it says what is wrong.
            Err(_) => return Ok(Some((backend, path))),
        }
    }
    missing.map_or(Ok(None), Err)
}
