//! The tests of the engine that can share a process: no limits, masks or users of a process are
//! changed, and no program is started from the test's own. One binary, because linking each costs
//! more than most of them take.

#[path = "../common/failing.rs"]
mod failing;
#[path = "../common/scratch.rs"]
mod scratch;

mod backends;
mod check;
mod close_to_open;
mod compact;
mod crash;
mod damage;
mod death;
mod doubt;
mod federation;
mod flat;
mod hang;
mod index_parts;
mod layers;
mod layout;
mod lost;
mod model;
mod pack;
mod pack_model;
mod plain;
mod reach;
mod room;
mod semantics;
mod small;
mod stale;
mod steering;
mod strided;
