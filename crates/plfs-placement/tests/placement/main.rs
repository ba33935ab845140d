//! The equations, the choice and the simulation.

mod choose;
mod equations;
mod simulate;
