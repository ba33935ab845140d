//! The bounds of an exploration, and the faults that can be put in.

use super::state::{Budget, Content, Name, On, Pc, Proc, Role, Said, State};

/// Who is there, and what may happen.
#[derive(Clone, Copy, Debug)]
pub struct World {
    /// What the world is about.
    pub name: &'static str,
    /// For each slot of a process, its node.
    pub nodes: &'static [u8],
    /// The clock of node 1 is ahead by so much. Not 0: only what was seen must be older.
    pub skew: u8,
    /// How many bytes are written: 1 or 2.
    pub bytes: u8,
    /// Each process writes one byte only: those with an odd number the second.
    pub own_bytes: bool,
    /// What may happen, and how often.
    pub budget: Budget,
    /// What is wrong.
    pub fault: Option<Fault>,
}

/// A mistake in the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Notice: what was written in place stays below all records.
    NoAdoption,
    /// Notice: what was written in place gets its stamps when it is noticed.
    AdoptAsNew,
    /// Notice: P's bytes are not made durable before the records that point to them.
    AdoptWithoutSync,
    /// Notice: a commit does not look.
    CommitWithoutLook,
    /// Notice: an acquire does not look.
    AcquireWithoutLook,
    /// Notice: a truncate in place does not look first.
    CutWithoutLook,
    /// Notice: a container may become whole between the look of a truncate in place and the call.
    NoGate,
    /// Notice: the flag in the node's table is not looked at.
    NoFlag,
    /// Promote: the container's stamps do not begin behind P's modification time.
    NoFloor,
    /// Promote: the attribute is read and then set, without XATTR_CREATE.
    DecideByLook,
    /// Promote: the winner writes to logs before the container is whole.
    EarlyRecords,
    /// Promote: a container is taken for whole as soon as the attribute names it.
    HalfIsWhole,
    /// Promote: the superblock is renamed over the name.
    SwapByRename,
    /// Promote: the superblock and the name are exchanged, and again if it was not P.
    SwapByExchange,
    /// Pin: only the node's table knows that a file is mapped.
    PinInTable,
    /// Sync: the attribute and the container's names are not made durable.
    SyncLogOnly,
    /// Compaction: somebody may still write in place.
    CompactUnproved,
    /// Collect: a container without a base is removed with what it has by then.
    CollectByLook,
    /// Collect: a container whose superblock has no other name is in vain.
    CollectBySuperblock,
}

impl World {
    /// The first state.
    pub fn start(&self) -> State {
        let nodes = self.nodes.iter().max().map_or(0, |last| *last as usize + 1);
        let nobody = Proc {
            pc: Pc::Idle,
            role: Role::Write,
            on: On::Nothing,
            runs: Vec::new(),
            pending: Vec::new(),
            op: 0,
            owes: 0,
            own: 0,
            seen: 0,
        };
        State {
            p: Content::default(),
            p_disk: Content::default(),
            mtime: 0,
            said: Said::Nothing,
            said_durable: false,
            gate: None,
            name: Name::P,
            second_name: false,
            containers: Vec::new(),
            flags: vec![false; nodes],
            clocks: vec![0; nodes],
            now: 0,
            procs: vec![nobody; self.nodes.len()],
            budget: self.budget,
            ops: Vec::new(),
            done: 0,
            committed: 0,
            synced: 0,
            put: Name::P,
            stale: false,
        }
    }

    /// The node of a process.
    pub fn node(&self, p: u8) -> usize {
        self.nodes[p as usize] as usize
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
