//! Explores the worlds of a model, and searches one breadth first for the shortest story of what
//! goes wrong.

use std::collections::{BTreeSet, HashSet};
use std::fmt::Debug;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash};
use std::io::Write;
use std::time::Instant;

use stateright::{Checker, Expectation, Model};

/// States of larger worlds than those of CI, at most for each: some 10 GB.
const MOST_STATES: usize = 40_000_000;

/// How much more than its worlds a run explores. `None`: not even all of those.
pub fn depth() -> Option<u8> {
    std::env::var("PLFS_MODEL_DEPTH").ok().map(|n| n.parse().expect("a number"))
}

/// Every fifth world, which one of each five by the seed of the run: a fifth of the time, and some
/// runs in a row have likely had all.
pub fn every_fifth<M: Copy>(worlds: &[M]) -> Vec<M> {
    let seed = std::env::var("PLFS_SEED").map_or(0, |n| n.parse::<usize>().expect("a number"));
    worlds.iter().skip(seed % 5).step_by(5).copied().collect()
}

/// A protocol that a model is of.
pub struct Protocol<M: Model> {
    /// What it is called.
    pub what: &'static str,
    /// How large its worlds are.
    pub sizes: &'static str,
    /// The name of a world.
    pub name: fn(&M) -> &'static str,
    /// Tells a path.
    pub story: fn(&M, Way<M>) -> String,
}

impl<M> Protocol<M>
where
    M: Model + Clone + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Copy + Debug + PartialEq + Send + Sync,
{
    /// Panics unless the properties hold in `worlds`, as far as they are explored, each fault is
    /// found in the world that has it, and if those are all worlds, of which there are `all` or
    /// more, each property that should be met once is. Appends the line that says what was explored
    /// to the file `PLFS_EXPLORED`, if that is set.
    pub fn holds_and_shows<F: Debug>(&self, all: usize, worlds: &[M], faults: &[(F, M)]) {
        for (fault, world) in faults {
            let start = Instant::now();
            let (property, path) = shortest(world).unwrap_or_else(|| {
                panic!("{fault:?} was not found in the world \"{}\"", (self.name)(world));
            });
            let took_s = start.elapsed().as_secs_f32();
            println!("{fault:?} ({took_s:.1} s): not true any more that \"{property}\":");
            println!("{}", (self.story)(world, path));
        }

        let (mut states, mut depth, mut met) = (0, 0, BTreeSet::new());
        for world in worlds {
            let (found, deep) = self.explore(world, &mut met);
            states += found;
            depth = depth.max(deep);
        }
        let properties = worlds[0].properties();
        for property in &properties {
            let must_be_met = property.expectation == Expectation::Sometimes;
            let is_missed = must_be_met && !met.contains(property.name);
            assert!(worlds.len() < all || !is_missed, "never met: {}", property.name);
        }

        let hold = properties.iter().filter(|p| p.expectation == Expectation::Always).count();
        let faults: BTreeSet<_> = faults.iter().map(|(fault, _)| format!("{fault:?}")).collect();
        let line = format!(
            "states of {} ({} of {all} worlds: {}; depth {depth}, {hold} properties, {} mutants found)",
            self.what,
            worlds.len(),
            self.sizes,
            faults.len(),
        );
        println!("explored: {states} {line}");
        if let Some(file) = std::env::var_os("PLFS_EXPLORED") {
            let mut file =
                std::fs::OpenOptions::new().append(true).create(true).open(file).unwrap();
            writeln!(file, "{states} {line}").unwrap();
        }
    }

    /// How many states a world has, and how deep it goes; adds the properties that were met.
    fn explore(&self, world: &M, met: &mut BTreeSet<&'static str>) -> (usize, usize) {
        let start = Instant::now();
        let name = (self.name)(world);
        let checker = world.clone().checker().target_state_count(MOST_STATES).spawn_bfs().join();
        for property in world.properties() {
            if checker.discovery(property.name).is_none() {
                continue;
            }
            if property.expectation == Expectation::Always {
                // The checker's own path is not always the shortest.
                let (property, path) = shortest(world).expect("the checker has found one");
                let story = (self.story)(world, path);
                panic!("in the world \"{name}\" it is not true that {property}:\n{story}");
            }
            met.insert(property.name);
        }
        let (found, deep) = (checker.unique_state_count(), checker.max_depth());
        let all = if checker.state_count() < MOST_STATES { "" } else { " (cut off)" };
        let took_s = start.elapsed().as_secs_f32();
        println!("{found:9} states, depth {deep}, {took_s:4.1} s: {name}{all}");
        (found, deep)
    }
}

/// A step, the state that it leads to, and the place of the state before it.
struct Seen<M: Model> {
    state: M::State,
    from: Option<(usize, M::Action)>,
}

/// States, each with what happens next.
pub type Way<M> = Vec<(<M as Model>::State, Option<<M as Model>::Action>)>;

/// The shortest way to a state in which a property does not hold, and the property.
fn shortest<M>(world: &M) -> Option<(&'static str, Way<M>)>
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
