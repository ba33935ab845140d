//! L1: which storage targets a job writes to, and what that costs. Pure: no I/O, no clock, no
//! paths.
//!
//! A *target* is what can be slow by itself: a backend, or a storage target inside one. A *stream*
//! is one sequence of appends to one target, and the *load* of a target is how many streams write
//! to it at once. [`equations`] says what load jobs make that choose targets at random, [`choose`]
//! takes targets by what was measured of them, and [`simulate`] predicts how long a job writes, for
//! each way to lay out its data. All three share one law of what load costs, [`load`].
//!
//! The same input gives the same answer, on every machine: nothing here is random that has not a
//! fixed seed. Wrong input is an [`Error`] that says what is wrong with it. Nothing panics.
//!
//! Sources in this crate's comments: **CONT**, Wright and Jarvis, "Quantifying the effects of
//! contention on parallel file systems" (IPDPSW 2015); **PART**, transparent partitioning of files
//! in PnetCDF with dynamic choice of servers.
#![forbid(unsafe_code)]

pub mod choose;
pub mod equations;
mod error;
pub mod load;
pub mod published;
mod random;
pub mod simulate;

pub use error::Error;
