//! What load costs: how much of its rate a target keeps while several streams write to it.

/// Streams besides the first with which a target keeps half of its rate.
///
/// Fitted to the four published points of PLFS with a log a rank at which targets are the limit
/// (512 to 4,096 ranks, see [`crate::published`]); 7.5 to 9 keep all of them within 23 %.
pub const HALF_AT_OTHERS: f64 = 8.0;

/// The part of its rate that a target keeps with so many streams: 1 for one, half for 9, 0.0039
/// for 129. All streams together get it.
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
    let others = (streams - 1.0).max(0.0) / HALF_AT_OTHERS;
    1.0 / (1.0 + others * others)
}

/// How many streams of others would explain that one stream gets this part of what a target gives
/// to one that is alone: 0 for 1 and more. What else makes a target slow counts as well: it is the
/// number that has this effect.
///
/// `part` is above 0; less than 1e-18, and what is no number, counts as 1e-18.
pub fn others(part: f64) -> f64 {
    let part = if part > 1e-18 { part.min(1.0) } else { 1e-18 };
    let inverse = 1.0 / part;
    // A stream of m gets efficiency(m) / m. So m (1 + ((m - 1) / 8)^2) is the inverse of its part:
    // a curve that bends upwards, on which Newton's steps from above never go too far. Both bounds
    // are above: each leaves out a factor or a term that is not below 1 or 0.
    let mut streams = inverse.min(1.0 + HALF_AT_OTHERS * (inverse / HALF_AT_OTHERS).cbrt());
    for _ in 0..64 {
        let others = (streams - 1.0) / HALF_AT_OTHERS;
        let value = streams * (1.0 + others * others) - inverse;
        let step = value / (1.0 + others * others + 2.0 * streams * others / HALF_AT_OTHERS);
        streams -= step;
        if step <= 1e-12 * streams {
            break;
        }
    }
    (streams - 1.0).max(0.0)
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
        // What a node each of 1,048,576 ranks would do to 480 targets, without turns.
        assert!((1.0 / efficiency(32768.0 / 480.0) - 71.7).abs() < 0.05);
    }

    #[test]
    fn others_explain_what_is_missing() {
        assert_eq!((others(1.0), others(7.0)), (0.0, 0.0));
        for streams in [1.0, 2.0, 3.5, 40.0, 1e6] {
            let found = others(efficiency(streams) / streams);
            assert!((found - (streams - 1.0)).abs() < 1e-6 * streams, "{streams} {found}");
        }
        for part in [0.0, -1.0, f64::NAN, f64::MIN_POSITIVE] {
            assert!((others(part) / 4e6 - 1.0).abs() < 0.01, "{part} {}", others(part));
        }
    }
}
