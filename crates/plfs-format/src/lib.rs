//! L0: the container format of `docs/FORMAT.md`: bytes to structs and back. No I/O, no clock, no
//! paths on disk.
//!
//! Each module is one section of the document: [`name`], [`mark`], [`backend`] and [`layout`] (1),
//! [`superblock`] (2), [`index_log`] (3), [`clock`] (4), [`summary`] (5), [`flat_index`] and
//! [`column`] (6), [`attribute`] (11), [`pack`] (12), [`spread`] (13). Decoders accept any bytes:
//! they never panic, never allocate more than their input justifies, and say with [`Bad`] where and
//! why bytes contradict the document.
#![forbid(unsafe_code)]

pub mod attribute;
pub mod backend;
mod bytes;
pub mod clock;
pub mod column;
pub mod flat_index;
pub mod index_log;
pub mod layout;
pub mod mark;
pub mod name;
pub mod pack;
pub mod spread;
mod sum;
pub mod summary;
pub mod superblock;

pub use name::Uuid;
pub(crate) use sum::crc;
pub use sum::{fnv_1a, sum, sum_of_both, sum_on};

/// Bytes that contradict the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bad {
    /// Offset of the contradiction in the decoded bytes.
    pub at_bytes: u64,
    /// What was expected there.
    pub what: &'static str,
    /// The bytes are whole and say something that only a later version of the format knows.
    pub newer: bool,
}

impl Bad {
    /// Damage, or bytes that nobody should have written.
    pub const fn new(at_bytes: u64, what: &'static str) -> Bad {
        Bad { at_bytes, what, newer: false }
    }

    /// Something that a later version may have written (FORMAT.md section 9).
    pub const fn newer(at_bytes: u64, what: &'static str) -> Bad {
        Bad { at_bytes, what, newer: true }
    }
}

impl std::fmt::Display for Bad {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "at byte {}: {}", self.at_bytes, self.what)
    }
}

impl std::error::Error for Bad {}

/// The largest size and offset of a logical file: 2^63-1, the largest `off_t`.
pub const MAX_OFFSET: u64 = i64::MAX as u64;
