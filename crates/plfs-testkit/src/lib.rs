//! Reference model, operations and failing stores for testing PLFS.
//!
//! Random tests make a list of [`Step`]s ([`steps`]), run it on PLFS and on the model at once
//! ([`World`]), and when they differ look for a short list that still does ([`shrink`]). They start
//! from a fresh [`seed`] and say what they [`explored`]. [`FaultStore`] fails on demand;
//! [`MemStore`] lives in memory and can forget what was not synced; a [`CloseToOpenStore`] is a
//! client that caches as NFS's may. [`index_cases`] makes the index
//! logs of files that are too large to write.
#![forbid(unsafe_code)]

mod clock;
mod close_to_open;
mod delegate;
mod explore;
mod fault;
pub mod index_cases;
mod mem;
mod model;
mod rng;
mod step;
mod world;

pub use clock::{an_hour_ahead, shared_page, thread_cpu_time};
pub use close_to_open::CloseToOpenStore;
pub use explore::{explored, in_turn, rounds, seed, seeds};
pub use fault::{Call, Fault, FaultStore, Hanging, Op};
pub use mem::MemStore;
pub use model::{Eyes, FileModel, Sparse, Values, Who, ZEROS, byte_of};
pub use rng::Rng;
pub use step::{Step, shrink, steps};
pub use world::{Outcome, World};
