//! What load costs: how much of its rate a target keeps while several streams write to it.

/// Streams besides the first with which a target keeps half of its rate.
///
/// Fitted to the four published points of PLFS with a log a rank at which targets are the limit
/// (512 to 4,096 ranks, see [`crate::published`]); 7.5 to 9 keep all of them within 23 %.
pub const HALF_AT_OTHERS: f64 = 8.0;

/// Streams beyond which more cost nothing more: each piece is moved to by itself then. It is the
/// load of the worst target in the published runs; what was not seen is not made worse.
pub const STREAMS_WORST: f64 = 35.0;

/// The part of its rate that a target keeps with so many streams: 1 for one, half for 9, a
/// nineteenth for 35 and more. All streams together get it.
///
/// A target that serves streams in turn moves between them. More streams are more moves for each
/// byte, as the memory in which it collects a stream's bytes is shared by all, and each move costs
/// more, as shorter pieces fill fewer rows of the disks: so the loss grows with the square. CONT
/// says that three streams or more on a target cost noticeably; this says 1.5 % for two, 6 % for
/// three, 12 % for four. With a loss that grows in proportion the best fit misses a published
/// point by a third.
///
/// `streams` less than 1 counts as 1.
pub fn efficiency(streams: f64) -> f64 {
    let others = (streams.clamp(1.0, STREAMS_WORST) - 1.0) / HALF_AT_OTHERS;
    1.0 / (1.0 + others * others)
}

/// How many streams of others would explain that one stream gets this part of what a target gives
/// to one that is alone: 0 for 1 and more. What else makes a target slow counts as well: it is the
/// number that has this effect.
///
/// `part` is above 0; less than 1e-18, and what is no number, counts as 1e-18.
pub fn others(part: f64) -> f64 {
    let part = if part > 1e-18 { part.min(1.0) } else { 1e-18 };
    // One stream of m gets this part.
    let gets = |streams: f64| efficiency(streams) / streams;
    if part <= gets(STREAMS_WORST) {
        return efficiency(STREAMS_WORST) / part - 1.0;
    }
    // It falls with m, so m is between one that gets more and one that gets less.
    let (mut few, mut many) = (1.0, STREAMS_WORST);
    for _ in 0..40 {
        let middle = (few + many) / 2.0;
        if gets(middle) > part {
            few = middle;
        } else {
            many = middle;
        }
    }
    few - 1.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_streams_keep_less() {
        for (streams, kept) in [(0.0, 1.0), (1.0, 1.0), (2.0, 0.985), (3.0, 0.941), (4.0, 0.877)] {
            assert!((efficiency(streams) - kept).abs() < 0.0005, "{streams}");
        }
        assert_eq!(efficiency(9.0), 0.5);
        assert_eq!((1.0 / efficiency(35.0), efficiency(1e9)), (19.0625, efficiency(35.0)));
    }

    #[test]
    fn others_explain_what_is_missing() {
        assert_eq!((others(1.0), others(7.0)), (0.0, 0.0));
        for streams in [1.0, 2.0, 3.5, 34.9, 35.0, 40.0, 1e6] {
            let found = others(efficiency(streams) / streams);
            assert!((found - (streams - 1.0)).abs() < 1e-6 * streams, "{streams} {found}");
        }
        for part in [0.0, -1.0, f64::NAN, f64::MIN_POSITIVE] {
            assert!((others(part) * 19.0625e-18 - 1.0).abs() < 1e-6, "{part} {}", others(part));
        }
    }
}
