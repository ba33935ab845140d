//! Explores "plain until shared" in several worlds, and shows that each fault is found.
//!
//! `PLFS_SEED`, `PLFS_MODEL_DEPTH` and `PLFS_EXPLORED` are those of `explore.rs`.

mod search;

use plfs_model::plain::{Budget, Fault, World, story};
use search::Protocol;

const QUIET: Budget = Budget {
    writers: 2,
    readers: 0,
    mappers: 0,
    collectors: 0,
    writes: 3,
    cuts: 0,
    reads: 0,
    late: 0,
    compactions: 0,
    kills: 0,
    power_cuts: 0,
    renames: 0,
    unlinks: 0,
    links: 0,
};

const TWO_NODES: World = World {
    name: "two nodes write one byte",
    nodes: &[0, 1],
    skew: 0,
    bytes: 1,
    own_bytes: false,
    budget: Budget { writers: 3, writes: 4, ..QUIET },
    fault: None,
};

const TWO_BYTES: World = World {
    name: "two nodes write two bytes, a truncate",
    bytes: 2,
    own_bytes: true,
    budget: Budget { cuts: 1, ..QUIET },
    ..TWO_NODES
};

const CUTS: World = World {
    name: "two nodes write and truncate",
    budget: Budget { writes: 2, cuts: 2, ..QUIET },
    ..TWO_NODES
};

const THREE_CUT: World = World {
    name: "three nodes write two bytes, a truncate",
    nodes: &[0, 1, 2],
    bytes: 2,
    own_bytes: true,
    budget: Budget { writers: 3, writes: 2, cuts: 1, ..QUIET },
    ..TWO_NODES
};

const ONE_NODE: World = World {
    name: "two processes of a node and one of another write",
    nodes: &[0, 0, 1],
    budget: Budget { writers: 3, ..QUIET },
    ..TWO_NODES
};

const SKEW: World = World {
    name: "the same, and the other node's clock is ahead",
    skew: 8,
    budget: Budget { writers: 3, ..QUIET },
    ..ONE_NODE
};

const SKEW_CUT: World = World {
    name: "a clock is ahead, a truncate",
    skew: 8,
    budget: Budget { cuts: 1, reads: 1, ..QUIET },
    ..TWO_NODES
};

const READERS: World = World {
    name: "readers that have the file open",
    nodes: &[0, 1, 1],
    budget: Budget { readers: 1, writes: 2, reads: 2, ..QUIET },
    ..TWO_NODES
};

const KILLS: World =
    World { name: "two kills", budget: Budget { writers: 4, kills: 2, ..QUIET }, ..TWO_NODES };

const COLLECT: World = World {
    name: "a kill, and somebody removes what is in vain",
    nodes: &[0, 1, 1],
    budget: Budget { writers: 3, writes: 2, collectors: 1, kills: 1, ..QUIET },
    ..TWO_NODES
};

const NAMES: World = World {
    name: "another file is renamed over the name, or it is removed, or there are two",
    budget: Budget { renames: 1, unlinks: 1, links: 1, writes: 2, kills: 1, ..QUIET },
    ..TWO_NODES
};

const MAPS: World = World {
    name: "a process maps the file",
    nodes: &[0, 1, 1],
    budget: Budget { mappers: 1, writes: 2, reads: 1, kills: 1, ..QUIET },
    ..TWO_NODES
};

const POWER: World = World {
    name: "the power is cut",
    budget: Budget { writes: 4, power_cuts: 1, ..QUIET },
    ..TWO_NODES
};

const POWER_CUT: World = World {
    name: "the power is cut, a truncate",
    budget: Budget { writes: 2, cuts: 1, power_cuts: 1, ..QUIET },
    ..TWO_NODES
};

const COMPACT: World = World {
    name: "a compaction",
    nodes: &[0, 1, 1],
    budget: Budget { writers: 3, compactions: 1, ..QUIET },
    ..TWO_NODES
};

const CUT_KILL: World = World {
    name: "a truncate and a kill",
    budget: Budget { writers: 3, writes: 2, cuts: 1, kills: 1, ..QUIET },
    ..TWO_NODES
};

const LATE: World = World {
    name: "a writer in place promotes, when it has already written",
    budget: Budget { cuts: 1, late: 1, kills: 1, writes: 2, ..QUIET },
    ..TWO_NODES
};

/// A truncate in place, and who writes in place on the node whose clock is ahead.
const SKEW_ONE_NODE_CUT: World = World {
    name: "two processes of a node and one of another, a clock is ahead, a truncate",
    budget: Budget { writers: 3, writes: 2, cuts: 1, ..QUIET },
    ..SKEW
};

const WORLDS: [World; 18] = [
    TWO_NODES,
    TWO_BYTES,
    CUTS,
    THREE_CUT,
    ONE_NODE,
    SKEW,
    SKEW_CUT,
    READERS,
    KILLS,
    COLLECT,
    NAMES,
    MAPS,
    POWER,
    POWER_CUT,
    COMPACT,
    CUT_KILL,
    LATE,
    SKEW_ONE_NODE_CUT,
];

const FAULTS: [(Fault, World); 21] = [
    (Fault::NoAdoption, TWO_NODES),
    (Fault::AdoptAsNew, TWO_NODES),
    (Fault::AdoptWithoutSync, POWER),
    (Fault::CommitWithoutLook, TWO_NODES),
    (Fault::AcquireWithoutLook, READERS),
    (Fault::CutWithoutLook, CUTS),
    (Fault::NoGate, THREE_CUT),
    (Fault::NoFlag, SKEW),
    (Fault::NoFloor, SKEW),
    (Fault::DecideByLook, TWO_NODES),
    (Fault::EarlyRecords, TWO_NODES),
    (Fault::HalfIsWhole, KILLS),
    (Fault::SwapByRename, NAMES),
    (Fault::SwapByExchange, NAMES),
    (Fault::PinInTable, MAPS),
    (Fault::SyncLogOnly, POWER),
    (Fault::CompactUnproved, COMPACT),
    (Fault::CollectByLook, COLLECT),
    (Fault::CollectBySuperblock, COLLECT),
    (Fault::NoAdoption, CUTS),
    (Fault::NoGate, SKEW_ONE_NODE_CUT),
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
                    Budget { writes: b.writes + n, ..b },
                    Budget { cuts: b.cuts + n, ..b },
                    Budget { reads: b.reads + n, ..b },
                    Budget { kills: b.kills + n, ..b },
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
fn plain_until_shared_holds_and_each_fault_in_it_is_found() {
    let protocol = Protocol {
        what: "\"plain until shared\"",
        sizes: "3 nodes x 1 process, 2 nodes x 2 and less",
        name: |world: &World| world.name,
        story,
    };
    let faults = FAULTS.map(|(fault, world)| (fault, world.with(fault)));
    protocol.holds_and_shows(WORLDS.len(), &worlds(), &faults);
}
