//! Where one writer's bytes go in its stream: the rules, without I/O. The engine follows them, and
//! so does whoever makes index logs without writing data (`plfs_testkit::index_cases`).
//!
//! A stream belongs to all processes of a node. A writer takes a *region* of it, which it then
//! fills alone; each region is twice as long as the one before. Where regions lie decides what
//! index records look like, because a run ends where its bytes do not go on in the segment.

use plfs_format::index_log::SEGMENT_MAX;
use plfs_format::superblock::SEGMENT_BYTES_MAX;

/// Regions start at multiples of this: a page of every common file system.
pub const REGION_ALIGN: u64 = 4096;
/// First region of a writer. 64 KiB: a small file takes no more.
const REGION_FIRST_BYTES: u64 = 64 << 10;
/// Largest region. 32 MiB: a writer of 4 GiB beside others leaves some 130 records.
const REGION_MAX_BYTES: u64 = 32 << 20;

/// The regions of one writer.
#[derive(Clone, Copy, Debug)]
pub struct Regions {
    current: Option<Region>,
    /// Length of the next region.
    bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Region {
    segment: u32,
    next: u64,
    end: u64,
}

impl Default for Regions {
    fn default() -> Regions {
        Regions { current: None, bytes: REGION_FIRST_BYTES }
    }
}

impl Regions {
    /// Those of a writer whose next region has so many bytes.
    pub fn of(bytes: u64) -> Regions {
        Regions { current: None, bytes }
    }

    /// Places `bytes` in one piece behind what the region in use has, if there is room.
    #[inline]
    pub fn place_in_current(&mut self, bytes: u64) -> Option<(u32, u64)> {
        let region = self.current.as_mut().filter(|region| region.end - region.next >= bytes)?;
        region.next += bytes;
        Some((region.segment, region.next - bytes))
    }

    /// Gives up what is left of the region in use: the next bytes get another one.
    pub fn leave(&mut self) {
        self.current = None;
    }

    /// Places `bytes` in one piece: behind what the region has, or in a new one. Gives segment and
    /// offset. A new region is used up to `limit` of the segment, where `bytes` have room.
    ///
    /// `reserve(n)` takes a region of n bytes, a multiple of [`REGION_ALIGN`], and says in which
    /// segment, by any number, and at what offset. If it fails, the region in use stays.
    pub fn place<E>(
        &mut self,
        bytes: u64,
        limit: u64,
        reserve: impl FnOnce(u64) -> Result<(u32, u64), E>,
    ) -> Result<(u32, u64), E> {
        if let Some(placed) = self.place_in_current(bytes) {
            return Ok(placed);
        }
        let most = limit - limit % REGION_ALIGN;
        let want = self.bytes.min(most).max(bytes).next_multiple_of(REGION_ALIGN);
        self.bytes = (self.bytes * 2).min(REGION_MAX_BYTES);
        let (segment, offset) = reserve(want)?;
        // A writer that has its stream to itself gets neighbouring regions and goes on without a
        // gap: its records keep folding.
        let next = match &self.current {
            Some(region) if (region.segment, region.end) == (segment, offset) => region.next,
            _ => offset,
        };
        let end = (offset + want).min(limit).max(next + bytes);
        self.current = Some(Region { segment, next: next + bytes, end });
        Ok((segment, next))
    }
}

/// Where `bytes` go in a stream whose last region ends at `offset` of `segment`: there, or at the
/// beginning of the next segment if this one would become longer than `segment_bytes`, or than
/// [`SEGMENT_BYTES_MAX`]. The last segment that has a name takes all the rest.
pub fn next_region((segment, offset): (u32, u64), bytes: u64, segment_bytes: u64) -> (u32, u64) {
    let is_full = offset > 0 && offset.saturating_add(bytes) > segment_bytes.min(SEGMENT_BYTES_MAX);
    if is_full && segment < SEGMENT_MAX { (segment + 1, 0) } else { (segment, offset) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stream that only the caller and whoever takes `between` use.
    fn stream(tail: &mut u64, between: u64) -> impl FnMut(u64) -> Result<(u32, u64), ()> {
        move |want| {
            assert!(want > 0 && want % REGION_ALIGN == 0);
            let at = *tail;
            *tail += want + between;
            Ok((0, at))
        }
    }

    #[test]
    fn alone_in_a_stream_bytes_have_no_gaps() {
        let (mut regions, mut tail, mut end) = (Regions::default(), 0, 0);
        for bytes in [1, 47_001, 47_001, 100_000, 3, 64 << 20, 1].repeat(3) {
            assert_eq!(regions.place(bytes, u64::MAX, stream(&mut tail, 0)), Ok((0, end)));
            end += bytes;
        }
        assert!(end <= tail && tail <= end + REGION_MAX_BYTES);
    }

    #[test]
    fn regions_double_up_to_a_limit_and_hold_whole_pieces() {
        let (mut regions, mut tail, mut sizes) = (Regions::default(), 0, Vec::new());
        let mut last = 0;
        for _ in 0..20_000 {
            let mut reserve = stream(&mut tail, REGION_ALIGN);
            let (_, at) = regions
                .place(47_001, u64::MAX, |want| {
                    sizes.push(want);
                    reserve(want)
                })
                .unwrap();
            assert!(at >= last, "pieces of one writer overlap");
            last = at + 47_001;
        }
        assert_eq!(sizes[..4], [64 << 10, 128 << 10, 256 << 10, 512 << 10]);
        assert!(sizes.iter().skip(9).all(|size| *size == 32 << 20), "{sizes:?}");
    }

    #[test]
    fn a_write_longer_than_a_region_gets_one_of_its_own_length() {
        let (mut regions, mut tail) = (Regions::default(), 0);
        assert_eq!(regions.place(100_001, u64::MAX, stream(&mut tail, 0)), Ok((0, 0)));
        assert_eq!(tail, 102_400);
        // Its rest serves the next one.
        assert_eq!(regions.place(2_399, u64::MAX, stream(&mut tail, 0)), Ok((0, 100_001)));
        assert_eq!(tail, 102_400);
    }

    #[test]
    fn a_reservation_that_fails_leaves_the_region_in_use() {
        let (mut regions, mut tail) = (Regions::default(), 0);
        assert_eq!(regions.place(60_000, u64::MAX, stream(&mut tail, 0)), Ok((0, 0)));
        assert_eq!(regions.place(10_000, u64::MAX, |_| Err("no room")), Err("no room"));
        assert_eq!(regions.place::<()>(5_000, u64::MAX, |_| panic!("it fits")), Ok((0, 60_000)));
    }

    #[test]
    fn another_segment_begins_another_region() {
        let mut regions = Regions::default();
        assert_eq!(regions.place::<()>(60_000, u64::MAX, |_| Ok((4, 0))), Ok((4, 0)));
        // Where the region ended, but in another segment.
        assert_eq!(regions.place::<()>(60_000, u64::MAX, |_| Ok((5, 64 << 10))), Ok((5, 64 << 10)));
    }

    #[test]
    fn nothing_is_placed_past_the_limit() {
        for limit in [4096, 100_000, 1 << 20, 33 << 20] {
            let (mut regions, mut tail) = (Regions::default(), (0, 0));
            for bytes in [1, 4096, 3000, limit / 2, limit, 1, limit - 1, 1, 7].repeat(50) {
                let (segment, at) = regions
                    .place(bytes, limit, |want| {
                        let (segment, at) = next_region(tail, want, limit);
                        tail = (segment, at + want);
                        Ok::<_, ()>((segment, at))
                    })
                    .unwrap();
                assert!(segment <= tail.0 && at + bytes <= limit, "{segment} {at} {bytes}");
            }
        }
    }

    #[test]
    fn streams_go_on_in_the_next_segment() {
        assert_eq!(next_region((7, 0), 100, 50), (7, 0), "an empty segment takes anything");
        assert_eq!(next_region((7, 50), 50, 100), (7, 50));
        assert_eq!(next_region((7, 51), 50, 100), (8, 0));
        assert_eq!(next_region((SEGMENT_MAX, 51), 50, 100), (SEGMENT_MAX, 51));
        assert_eq!(next_region((7, SEGMENT_BYTES_MAX), 1, u64::MAX), (8, 0));
    }
}
