//! What a random test may do, and how to choose and shorten lists of it.

use crate::Rng;

/// One operation. Numbers are taken modulo what is there at that moment, so every list of steps
/// makes sense, also one with steps left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A process opens a name.
    Open {
        /// Which process.
        process: u8,
        /// Which name.
        name: u8,
        /// Create it if it is missing.
        create: bool,
        /// With `create`: it must be missing.
        exclusive: bool,
        /// For writing too.
        write: bool,
        /// With `write`: cut it to nothing.
        truncate: bool,
    },
    /// Writes `count` pieces of `len` bytes, each `stride` further than the one before.
    Write {
        /// Which handle.
        handle: u8,
        /// Where the first piece goes.
        offset: u64,
        /// Length of a piece.
        len: u32,
        /// Distance of pieces.
        stride: i32,
        /// Number of pieces.
        count: u8,
        /// In one strided call, if they do not overlap.
        at_once: bool,
    },
    /// Writes at the end of the file.
    Append {
        /// Which handle.
        handle: u8,
        /// How much.
        len: u32,
    },
    /// Reads and compares.
    Read {
        /// Which handle.
        handle: u8,
        /// From where.
        offset: u64,
        /// How much.
        len: u32,
    },
    /// Sets the size.
    Truncate {
        /// Which handle.
        handle: u8,
        /// To what.
        size: u64,
    },
    /// Makes a part of the file a hole.
    Zero {
        /// Which handle.
        handle: u8,
        /// From where.
        offset: u64,
        /// How much.
        len: u64,
    },
    /// Commits; with `sync` durably.
    Commit {
        /// Which handle.
        handle: u8,
        /// Durably.
        sync: bool,
    },
    /// Asks the handle for the size.
    Len {
        /// Which handle.
        handle: u8,
    },
    /// Asks the path for the size.
    Stat {
        /// Which process.
        process: u8,
        /// Which name.
        name: u8,
    },
    /// Looks for others' commits.
    Refresh {
        /// Which handle.
        handle: u8,
    },
    /// Closes a handle.
    Close {
        /// Which handle.
        handle: u8,
    },
    /// Closes a handle and opens the same name again.
    Reopen {
        /// Which handle.
        handle: u8,
    },
    /// Moves a name.
    Rename {
        /// Which process.
        process: u8,
        /// Which name.
        from: u8,
        /// To which name.
        to: u8,
    },
    /// Removes a name.
    Unlink {
        /// Which process.
        process: u8,
        /// Which name.
        name: u8,
    },
    /// Makes a flat index.
    Flatten {
        /// Which process.
        process: u8,
        /// Which name.
        name: u8,
    },
    /// Copies what the file has and removes the rest; nothing where somebody writes.
    Compact {
        /// Which process.
        process: u8,
        /// Which name.
        name: u8,
    },
    /// A process gives up its log sets, as before exec.
    Leave {
        /// Which process.
        process: u8,
    },
    /// A process closes all it has open and ends; another one takes its place on the node.
    Replace {
        /// Which process.
        process: u8,
    },
    /// All commit and look, and must agree on every byte for ever.
    Agree,
}

/// `n` steps. Offsets are mostly near each other, so that writes overlap.
pub fn steps(rng: &mut Rng, n: usize) -> Vec<Step> {
    (0..n).map(|_| step(rng)).collect()
}

fn step(rng: &mut Rng) -> Step {
    let process = rng.next_u64() as u8;
    let handle = rng.next_u64() as u8;
    let name = rng.next_u64() as u8;
    match rng.below(100) {
        0..=9 => Step::Open {
            process,
            name,
            create: !rng.one_in(6),
            exclusive: rng.one_in(10),
            write: !rng.one_in(4),
            truncate: rng.one_in(12),
        },
        10..=13 => Step::Zero {
            handle,
            offset: offset(rng),
            len: if rng.one_in(10) { u64::MAX } else { 1 + rng.below(2000) },
        },
        14..=34 => {
            let len = len(rng);
            let count = if rng.one_in(3) { 2 + rng.below(8) as u8 } else { 1 };
            // Touching, apart, overlapping; forwards or back.
            let stride = rng.pick(&[1, 1, 2, 3]) * len as i32 + rng.pick(&[0, 0, 5, -1]);
            Step::Write {
                handle,
                offset: offset(rng),
                len,
                stride: if rng.one_in(4) { -stride } else { stride },
                count,
                at_once: rng.one_in(3),
            }
        }
        35..=39 => Step::Append { handle, len: len(rng) },
        40..=59 => Step::Read { handle, offset: offset(rng), len: 1 + rng.below(3000) as u32 },
        60..=64 => Step::Truncate { handle, size: if rng.one_in(5) { 0 } else { offset(rng) } },
        65..=71 => Step::Commit { handle, sync: rng.one_in(4) },
        72..=74 => Step::Len { handle },
        75..=77 => Step::Stat { process, name },
        78..=81 => Step::Refresh { handle },
        82..=85 => Step::Close { handle },
        86..=88 => Step::Reopen { handle },
        89 => Step::Rename { process, from: name, to: rng.next_u64() as u8 },
        90 => Step::Unlink { process, name },
        91 => Step::Flatten { process, name },
        92 => Step::Compact { process, name },
        93 => Step::Leave { process },
        94..=95 => Step::Replace { process },
        _ => Step::Agree,
    }
}

fn len(rng: &mut Rng) -> u32 {
    match rng.below(40) {
        // Past what is buffered on a local file system.
        0 => 32_768 + rng.below(8000) as u32,
        1..=3 => 1 + rng.below(4096) as u32,
        _ => 1 + rng.below(100) as u32,
    }
}

fn offset(rng: &mut Rng) -> u64 {
    match rng.below(30) {
        0 => (1 << 40) + rng.below(2000),
        1..=3 => rng.below(40_000),
        _ => rng.below(1500),
    }
}

/// The shortest list of steps found that still fails, by leaving out runs of steps, halves first
/// (Zeller's delta debugging). Tries `fails` at most `tries` times.
pub fn shrink<T: Clone>(
    steps: &[T],
    mut tries: usize,
    mut fails: impl FnMut(&[T]) -> bool,
) -> Vec<T> {
    let mut best = steps.to_vec();
    let mut piece = best.len().div_ceil(2);
    while piece > 0 {
        let (mut at, mut shorter) = (0, false);
        while at < best.len() {
            if tries == 0 {
                return best;
            }
            tries -= 1;
            let mut without = best[..at].to_vec();
            without.extend_from_slice(&best[(at + piece).min(best.len())..]);
            if fails(&without) {
                best = without;
                shorter = true;
            } else {
                at += piece;
            }
        }
        if !shorter || piece > 1 {
            piece /= 2;
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shrinking_finds_the_two_steps_that_matter() {
        let steps: Vec<u32> = (0..1000).collect();
        let fails = |steps: &[u32]| steps.contains(&77) && steps.contains(&901);
        assert_eq!(shrink(&steps, 10_000, fails), [77, 901]);
        assert!(shrink(&steps, 10, fails).len() < 1000);
    }
}
