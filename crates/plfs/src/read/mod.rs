//! L4: from a lookup's pieces to bytes in a buffer.
//!
//! [`Pieces`] remembers what was looked up; [`fetch`] zeroes holes and reads pieces; [`Prefetch`]
//! remembers how a handle moves along the logs and reads ahead where its order is the order of
//! writing; [`SegmentFiles`] keeps the logs open, but not too many.

mod pieces;
mod prefetch;
mod segments;

pub use pieces::{IndexState, Pieces};
pub use prefetch::Prefetch;
pub use segments::SegmentFiles;

use plfs_index::Found;

use crate::error::Error;

/// What keeps a read from its end.
#[derive(Debug)]
pub struct Short {
    /// Bytes that are there, from the first on.
    pub bytes: usize,
    pub error: Error,
}

impl From<Error> for Short {
    fn from(error: Error) -> Short {
        Short { bytes: 0, error }
    }
}

/// Fills `buf`, which stands for logical bytes from `offset` on, with what `pieces` say; what they
/// leave out becomes zero. [`Error::Unreachable`](crate::Error::Unreachable) if a backend is not
/// there.
pub fn fetch(
    offset: u64,
    buf: &mut [u8],
    pieces: impl IntoIterator<Item = Found>,
    mut read: impl FnMut(&Found, &mut [u8]) -> Result<(), Error>,
) -> Result<(), Short> {
    let mut at = 0;
    for piece in pieces {
        let start = (piece.logical - offset) as usize;
        let end = start + piece.length as usize;
        buf[at..start].fill(0);
        read(&piece, &mut buf[start..end]).map_err(|error| Short {
            bytes: start + error.found_bytes().min(end - start),
            error: error.of_range(piece.logical, piece.length),
        })?;
        at = end;
    }
    buf[at..].fill(0);
    Ok(())
}
