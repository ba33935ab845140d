//! Plain until shared: the protocol of docs/decisions/0013-plain-until-shared.md as a model that
//! is explored exhaustively. A file is born as an ordinary inode P that its writers write in
//! place; an extended attribute of P decides, once, that it has a container from now on.
//!
//! * `state`: what there is. The inode P, its name, containers, processes; and the history of what
//!   was written, as the properties need it.
//! * `steps`: what may happen. A step is one system call on what others see. A kill, a power cut, a
//!   rename of another file over the name may come between any two steps.
//! * `properties`: what must hold in each state.
//! * `story`: what happened, told to people.
//!
//! A [`World`] bounds an exploration. A [`Fault`] breaks the protocol on purpose, to show that the
//! properties see it.
//!
//! **What is assumed.** Each call on the storage is atomic and seen by all clients at once, so what
//! the kernels of two nodes write in place is as on one machine. Who may append to which log is
//! settled by the other model of this crate: here a block is appended in one step. A truncate goes
//! to 0. Clocks are right, but in worlds with a `skew`: there only what was seen must be older
//! (S8, S9), elsewhere what ended earlier, too (S10). A power cut stops all nodes at once, and
//! keeps or loses P's bytes, the attribute, the container's names and the logs, each as a whole.
//!
//! **What is merged.** A look at the attribute and the reading of the container's logs, since an
//! attribute never changes again; the parts of a commit to a log.

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
        Some(next)
    }

    fn properties(&self) -> Vec<stateright::Property<World>> {
        properties::all()
    }
}
