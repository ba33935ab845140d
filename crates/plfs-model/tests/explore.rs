//! Explores the ownership protocol in several worlds, and shows that each fault is found.
//!
//! A run explores every fifth world, by its seed. `PLFS_MODEL_DEPTH=0` explores all of them, and
//! `PLFS_MODEL_DEPTH=N` each again with N more of each thing that may happen, one kind at a time
//! (minutes and gigabytes). `PLFS_EXPLORED=FILE` appends the line that says what was explored to
//! the file.

mod search;

use plfs_model::{Budget, Fault, World, story};
use search::Protocol;

const QUIET: Budget = Budget {
    writers: 2,
    commits: 1,
    reapers: 0,
    removers: 0,
    readers: 0,
    kills: 0,
    forks: 0,
    reboots: 0,
    fences: 0,
    strangers: 0,
    retries: 0,
    summaries: false,
};

const TWO_NODES: World = World {
    name: "two nodes",
    hosts: &[0, 1],
    nodes: &[0, 1],
    sets: 2,
    budget: QUIET,
    fault: None,
};

/// Two processes here, one there.
const THREE_PROCESSES: World = World { nodes: &[0, 0, 1], ..TWO_NODES };

const FENCE: World = World {
    name: "two nodes of two processes, a person fences",
    nodes: &[0, 0, 1, 1],
    budget: Budget { writers: 3, fences: 1, ..QUIET },
    ..TWO_NODES
};

const KILL: World = World {
    name: "two nodes, a kill and a fence",
    budget: Budget { writers: 3, kills: 1, fences: 1, reapers: 1, ..QUIET },
    ..TWO_NODES
};

const KILL_BESIDE: World = World {
    name: "a kill beside a live process of the node",
    budget: Budget { writers: 3, kills: 1, reapers: 1, ..QUIET },
    ..THREE_PROCESSES
};

const COMMITS: World = World {
    name: "two commits each, a kill and a fence",
    budget: Budget { commits: 2, kills: 1, fences: 1, ..QUIET },
    ..THREE_PROCESSES
};

const KILLS: World = World {
    name: "two kills",
    budget: Budget { writers: 3, kills: 2, reapers: 1, ..QUIET },
    ..TWO_NODES
};

const THREE_NODES: World = World {
    name: "three nodes, a fence",
    hosts: &[0, 1, 2],
    nodes: &[0, 1, 2],
    budget: Budget { writers: 3, fences: 1, ..QUIET },
    ..TWO_NODES
};

const THREE_NODES_KILL: World = World {
    name: "three nodes, a kill and a fence",
    budget: Budget { writers: 3, kills: 1, fences: 1, ..QUIET },
    ..THREE_NODES
};

const ONE_HOST: World = World {
    name: "two directories of shared memory on one host, a reboot",
    hosts: &[0, 0, 1],
    nodes: &[0, 1, 2],
    budget: Budget { writers: 2, reapers: 2, kills: 1, reboots: 1, ..QUIET },
    ..TWO_NODES
};

const STRANGER: World = World {
    name: "a stranger removes the page of live processes",
    budget: Budget { writers: 3, strangers: 1, ..QUIET },
    ..THREE_PROCESSES
};

const STRANGER_KILL: World = World {
    name: "a stranger removes a page, and a process is killed",
    budget: Budget { strangers: 1, kills: 1, reapers: 1, ..QUIET },
    ..THREE_PROCESSES
};

const REMOVE: World = World {
    name: "two remove sets, a person fences",
    budget: Budget { writers: 3, removers: 2, fences: 1, ..QUIET },
    ..TWO_NODES
};

const REMOVE_BESIDE: World = World {
    name: "one removes a set beside two writers, a person fences",
    nodes: &[0, 1, 1],
    budget: Budget { removers: 1, fences: 1, ..QUIET },
    ..TWO_NODES
};

const REMOVE_KILLED: World = World {
    name: "who removes a set is killed",
    budget: Budget { removers: 1, kills: 1, reapers: 1, fences: 1, ..QUIET },
    ..TWO_NODES
};

const FORK: World = World {
    name: "a process forks and is killed",
    budget: Budget { writers: 3, forks: 1, kills: 1, ..QUIET },
    ..THREE_PROCESSES
};

const SUMMARY: World = World {
    name: "last closers, readers, a fence",
    budget: Budget { writers: 3, readers: 1, fences: 1, summaries: true, ..QUIET },
    ..TWO_NODES
};

const SUMMARY_REMOVE: World = World {
    name: "last closers, readers, a set is removed, a fence",
    budget: Budget { removers: 1, readers: 1, fences: 1, summaries: true, ..QUIET },
    ..TWO_NODES
};

const RETRY: World = World {
    name: "a mark is made, and EEXIST comes back",
    budget: Budget { writers: 3, retries: 1, kills: 1, fences: 1, ..QUIET },
    ..TWO_NODES
};

const WORLDS: [World; 17] = [
    FENCE,
    KILL,
    KILL_BESIDE,
    KILLS,
    COMMITS,
    THREE_NODES,
    THREE_NODES_KILL,
    ONE_HOST,
    STRANGER,
    STRANGER_KILL,
    REMOVE,
    REMOVE_BESIDE,
    REMOVE_KILLED,
    FORK,
    SUMMARY,
    SUMMARY_REMOVE,
    RETRY,
];

const FAULTS: [(Fault, World); 15] = [
    (Fault::JoinByName, KILL),
    (Fault::LookFirst, FENCE),
    (Fault::LookByName, FENCE),
    (Fault::OwnFenced, FENCE),
    (Fault::OwnByOldList, FENCE),
    (Fault::LengthFirst, FENCE),
    (Fault::PageServesTwo, COMMITS),
    (Fault::LockIsAFile, STRANGER),
    (Fault::LeaveUnlocked, FENCE),
    (Fault::ReclaimByName, KILLS),
    (Fault::OrphansStay, KILL),
    (Fault::OrphanByOneLook, KILL_BESIDE),
    (Fault::ForgetFence, REMOVE),
    (Fault::ChildUnlocks, FORK),
    (Fault::ListFirst, SUMMARY),
];

/// The worlds of this run, as large as asked for.
fn worlds() -> Vec<World> {
    let Some(more) = search::depth() else { return search::every_fifth(&WORLDS) };
    let mut worlds = WORLDS.to_vec();
    for world in WORLDS {
        for n in 1..=more {
            let b = world.budget;
            worlds.extend(
                [
                    Budget { writers: b.writers + n, ..b },
                    Budget { commits: b.commits + n, ..b },
                    Budget { reapers: b.reapers + n, ..b },
                    Budget { kills: b.kills + n, ..b },
                    Budget { fences: b.fences + n, ..b },
                    Budget { strangers: b.strangers + n, ..b },
                ]
                .map(|budget| World { budget, ..world }),
            );
        }
    }
    worlds
}

/// The model says what the engine must do; this says that it is right, as far as it was explored,
/// and that the exploration would see it if it were wrong.
#[test]
fn the_ownership_protocol_holds_and_each_fault_in_it_is_found() {
    let protocol = Protocol {
        what: "the ownership protocol",
        sizes: "2 nodes x 2 processes, 3 nodes x 1 and less",
        name: |world: &World| world.name,
        story,
    };
    let faults = FAULTS.map(|(fault, world)| (fault, world.with(fault)));
    protocol.holds_and_shows(WORLDS.len(), &worlds(), &faults);
}
