//! Who owns a log set: the protocol of docs/decisions/0009-ownership.md as a model that is
//! explored exhaustively. It is the specification that the engine is checked against. The module
//! [`plain`] has a second protocol.
//!
//! * `state`: what there is. Shared storage, pages of shared memory, processes.
//! * `steps`: what may happen. A step is one system call on what others see, and what the process
//!   does by itself beside it. A kill, a fence, a reboot may come between any two steps.
//! * `properties`: what must hold in each state.
//! * `story`: what happened, told to people.
//!
//! A [`World`] bounds an exploration: how many nodes, processes, sets, kills, fences and so on. In
//! these bounds all interleavings are explored. A [`Fault`] breaks the protocol on purpose, to
//! show that the properties see it.
//!
//! **What is assumed.** Each call on the storage is atomic and seen by all clients at once (what a
//! client's cache answers is not modelled: the look for the mark must reach the storage); a call
//! is executed once, but for symlink, which may be repeated; nobody loses power, so what was
//! written is there; a lock lives as long as its open file description.
//!
//! **What is merged.** Taking a lock and the one call after it, and giving it back and the one
//! call before it: nobody can see the difference. Lists of the container are atomic, but the
//! choice that is made from a list is old when it is used.
#![forbid(unsafe_code)]

pub mod plain;

mod properties;
mod state;
mod steps;
mod story;
mod world;

pub use state::{Budget, State};
pub use steps::Action;
pub use story::story;
pub use world::{Fault, World};

impl stateright::Model for World {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![self.start()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.possible(state, actions);
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        self.act(&mut next, action);
        next.tidy();
        Some(next)
    }

    fn properties(&self) -> Vec<stateright::Property<World>> {
        properties::all()
    }
}
