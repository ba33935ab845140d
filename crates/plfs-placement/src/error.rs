//! What can be wrong with what is asked.

use std::fmt;

/// Why there is no answer: what was asked makes no sense, and what of it.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Error {
    /// There is not one target.
    NoTargets,
    /// There is not one job, or rank.
    NoJobs,
    /// There is nothing to write.
    NoBytes,
    /// More than 2^64 bytes.
    TooManyBytes {
        /// Ranks that write.
        ranks: u32,
        /// What each of them writes.
        bytes_a_rank: u64,
    },
    /// A job asks for no target, or for more than there are.
    Request {
        /// What it asks for.
        request: u32,
        /// How many there are.
        targets: u32,
    },
    /// More targets are slow than there are.
    Stragglers {
        /// How many are slow.
        stragglers: u32,
        /// How many there are.
        targets: u32,
    },
    /// A target has a bandwidth that is zero, negative, infinite or no number.
    Bandwidth {
        /// The target.
        target: u32,
        /// Its bandwidth, bytes per second.
        bytes_s: f64,
    },
    /// A target was measured twice.
    Twice {
        /// The target.
        target: u32,
    },
    /// A bandwidth of what is between is zero, negative or no number.
    Between {
        /// Whose.
        what: &'static str,
        /// Bytes per second.
        bytes_s: f64,
    },
    /// A cost is negative, infinite or no number.
    Cost {
        /// Of what.
        what: &'static str,
        /// Seconds.
        seconds: f64,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Error::NoTargets => f.write_str("there is no target"),
            Error::NoJobs => f.write_str("nobody writes: there is no job, or no rank"),
            Error::NoBytes => f.write_str("there is nothing to write: zero bytes"),
            Error::TooManyBytes { ranks, bytes_a_rank } => {
                write!(f, "{ranks} ranks of {bytes_a_rank} bytes write more than 2^64 bytes")
            }
            Error::Request { request, targets } => {
                write!(f, "a job cannot ask for {request} of {targets} targets")
            }
            Error::Stragglers { stragglers, targets } => {
                write!(f, "{stragglers} of {targets} targets cannot be slow")
            }
            Error::Bandwidth { target, bytes_s } => {
                write!(f, "target {target} has a bandwidth of {bytes_s} bytes a second")
            }
            Error::Twice { target } => write!(f, "target {target} was measured twice"),
            Error::Between { what, bytes_s } => {
                write!(f, "{what} cannot have a bandwidth of {bytes_s} bytes a second")
            }
            Error::Cost { what, seconds } => write!(f, "{what} cannot cost {seconds} seconds"),
        }
    }
}

impl std::error::Error for Error {}
