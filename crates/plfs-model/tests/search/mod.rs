//! Searches a model breadth first, for the shortest story of what goes wrong.

use std::collections::HashSet;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash};

use stateright::{Expectation, Model};

/// A step, the state that it leads to, and the place of the state before it.
struct Seen<M: Model> {
    state: M::State,
    from: Option<(usize, M::Action)>,
}

/// States, each with what happens next.
pub type Way<M> = Vec<(<M as Model>::State, Option<<M as Model>::Action>)>;

/// The shortest way to a state in which a property does not hold, and the property.
pub fn shortest<M>(world: &M) -> Option<(&'static str, Way<M>)>
where
    M: Model,
    M::State: Clone + Hash,
    M::Action: Copy,
{
    let mut properties = world.properties();
    properties.retain(|property| property.expectation == Expectation::Always);
    let hash = |state: &M::State| BuildHasherDefault::<DefaultHasher>::default().hash_one(state);
    let mut seen: Vec<Seen<M>> =
        world.init_states().into_iter().map(|state| Seen { state, from: None }).collect();
    let mut hashes: HashSet<u64> = seen.iter().map(|seen| hash(&seen.state)).collect();
    let mut at = 0;
    let mut actions = Vec::new();
    while at < seen.len() {
        let state = seen[at].state.clone();
        if let Some(broken) = properties.iter().find(|p| !(p.condition)(world, &state)) {
            let mut path = vec![(state, None)];
            while let Some((before, action)) = seen[at].from {
                at = before;
                path.push((seen[at].state.clone(), Some(action)));
            }
            path.reverse();
            return Some((broken.name, path));
        }
        world.actions(&state, &mut actions);
        for action in actions.drain(..) {
            if let Some(next) = world.next_state(&state, action)
                && hashes.insert(hash(&next))
            {
                seen.push(Seen { state: next, from: Some((at, action)) });
            }
        }
        at += 1;
    }
    None
}
