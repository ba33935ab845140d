//! The bounds of an exploration, and the faults that can be put in.

use crate::state::{Budget, Pc, Proc, Set, State};

/// Who is there, and what may happen.
#[derive(Clone, Copy, Debug)]
pub struct World {
    /// What the world is about.
    pub name: &'static str,
    /// For each node (a directory of shared memory), its host.
    pub hosts: &'static [u8],
    /// For each slot of a process, its node.
    pub nodes: &'static [u8],
    /// Numbers that a log set can have.
    pub sets: u8,
    /// What may happen, and how often.
    pub budget: Budget,
    /// What is wrong.
    pub fault: Option<Fault>,
}

/// A mistake in the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Join: any mark of the set's name counts as ours.
    JoinByName,
    /// Commit: the look for the mark comes before the append.
    LookFirst,
    /// Commit: the look takes any mark for ours (a stat of the name, not a readlink).
    LookByName,
    /// Found: fenced sets are taken over.
    OwnFenced,
    /// Found: whether a set is fenced is known from the list only, not looked up again by the
    /// owner.
    OwnByOldList,
    /// Found: the logs are looked at before they are owned.
    LengthFirst,
    /// Found: a page whose tenancy was fenced is used for the next one.
    PageServesTwo,
    /// Join: the page's lock is a file of its own, and a stranger removes that one only.
    LockIsAFile,
    /// Leave: the mark is removed after the page's lock was given back.
    LeaveUnlocked,
    /// Reclaim: the mark is removed without a look at its nonce.
    ReclaimByName,
    /// Reclaim: marks that no page names stay.
    OrphansStay,
    /// Reclaim: whether a mark that no page names is still there is not looked at again.
    OrphanByOneLook,
    /// Remove: the name of a fence goes with its set.
    ForgetFence,
    /// Fork: the child unlocks what it has inherited, instead of closing it.
    ChildUnlocks,
    /// Summary: marks are looked for before the token is taken.
    ListFirst,
}

impl World {
    /// The first state.
    pub fn start(&self) -> State {
        let hosts = self.hosts.iter().max().map_or(0, |last| *last as usize + 1);
        let nobody = Proc {
            pc: Pc::Idle,
            page: None,
            inherits: None,
            set: 0,
            nonce: 0,
            generation: 0,
            length: 0,
            left: 0,
            made: 0,
        };
        State {
            sets: vec![Set::default(); self.sets as usize],
            time: 0,
            summary: None,
            boots: vec![0; hosts],
            names: vec![None; self.hosts.len()],
            pages: Vec::new(),
            procs: vec![nobody; self.nodes.len()],
            budget: self.budget,
            last_nonce: 0,
            last_token: 0,
            acked: Vec::new(),
            dropped: 0,
            overwrote: false,
            late_ack: false,
            missed: false,
        }
    }

    /// The node of a process.
    pub fn node(&self, p: u8) -> u8 {
        self.nodes[p as usize]
    }

    /// The host of a process.
    pub fn host(&self, p: u8) -> u8 {
        self.hosts[self.node(p) as usize]
    }

    /// Has this fault.
    pub fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    /// The same world with a fault.
    pub fn with(self, fault: Fault) -> World {
        World { fault: Some(fault), ..self }
    }
}
