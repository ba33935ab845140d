//! Reference model, operations and failing stores for testing PLFS.
#![forbid(unsafe_code)]

mod fault;

pub use fault::{Call, Fault, FaultStore, Op};
