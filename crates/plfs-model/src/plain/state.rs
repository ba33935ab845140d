//! What there is: the inode P, its name, the containers, the processes, and what was written.
//!
//! Everything is small numbers, so that a state is cheap to copy and to compare. Fields marked
//! *ghost* are seen by the properties only; no step of the protocol reads them.

/// A write or a truncate, numbered from 1 as they begin. 0: nothing was ever written.
pub type Op = u8;

/// A set of operations, a bit each.
pub type Ops = u16;

/// An operation as a set of one.
pub fn bit(op: Op) -> Ops {
    1 << op
}

/// Bytes of a file: places that an operation can write.
pub const BYTES: usize = 2;

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum What {
    /// Writes a byte; as a record: the byte lies in a log.
    Byte(u8),
    /// As a record only: the byte lies in P, which is the container's base.
    Base(u8),
    /// Truncates to 0.
    Cut,
}

/// A record of an index log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Record {
    /// Its place in the order.
    pub stamp: u8,
    pub op: Op,
    pub what: What,
    /// A power cut leaves it.
    pub durable: bool,
}

/// What an inode has, byte by byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Content {
    /// Which operation wrote the byte.
    pub bytes: [Op; BYTES],
    /// The size.
    pub len: u8,
}

/// The attribute `user.plfs` of P. It is set once, with XATTR_CREATE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Said {
    /// There is none.
    Nothing,
    /// P is the base of this container.
    Container(u8),
    /// P stays plain for ever.
    Pin,
}

/// What the name leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Name {
    /// The file of which this is about.
    P,
    /// A superblock of a container (a fault: the protocol leaves names alone).
    Super(u8),
    /// Another file that somebody renamed over the name.
    Third,
    /// There is no such name.
    Nothing,
}

/// How much of a container there is.
pub const NO_CONTAINER: u8 = 0;
/// Its directory.
pub const DIRECTORY: u8 = 1;
/// P has a second name in it, `base`.
pub const BASE: u8 = 2;
/// The superblock: the container serves.
pub const WHOLE: u8 = 3;

/// A container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Container {
    /// How much of it there is, and how much a power cut leaves.
    pub built: u8,
    pub durable: u8,
    /// The records of all logs, in order.
    pub log: Vec<Record>,
    /// Who comes starts behind this stamp.
    pub clock: u8,
}

/// What a process has open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum On {
    /// Nothing yet.
    Nothing,
    /// P, which it takes for plain.
    Plain,
    /// P, which it has pinned: others may not promote it.
    Pinned,
    /// A container.
    Log(u8),
}

/// What a process is about to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Deed {
    Write(u8),
    Cut,
    Commit {
        sync: bool,
    },
    /// Acquire, then read.
    Read(u8),
}

/// What a process is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Opens the file for writing.
    Write,
    /// Opens it for reading.
    Read,
    /// Maps it shared and writable, or has it open with O_APPEND: writes that nobody can stop.
    Map,
    /// Removes containers that are in vain.
    Collect,
}

/// Where a process stands. Each state is the next thing that it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pc {
    /// There is no process.
    Idle,
    /// Open the name.
    Open,
    /// fstat: the link count tells whether P can be a base.
    Stat,
    /// It can: what does the attribute say?
    Attribute,
    /// A writer of a plain file: enter the node's table; promote, or stay plain.
    Enter,
    /// Promote: set the attribute.
    Claim,
    /// Promote by looking and then setting (a fault).
    ClaimSet,
    /// Build: make the container's directory.
    Directory { id: u8 },
    /// Build: link P into it.
    Link { id: u8 },
    /// Build: the superblock.
    Superblock { id: u8 },
    /// Does the name still lead to P? (a fault, as the next three)
    SwapCheck { id: u8 },
    /// Rename the superblock over the name.
    SwapRename { id: u8 },
    /// Exchange the two.
    SwapExchange { id: u8 },
    /// What came back? If it is not P, exchange again.
    SwapVerify { id: u8, got: Name },
    /// Load the container.
    Attach { id: u8 },
    /// Set the attribute, to pin.
    Pin,
    /// Nothing under way.
    Ready,
    /// Look at the attribute, then do it.
    Look(Deed),
    /// Do it.
    Do(Deed),
    /// Compaction: write what was read.
    Compact { id: u8, stamp: u8, read: [Op; BYTES], len: u8 },
    /// Collect: look at a container.
    Judge { id: u8 },
    /// Collect: remove it.
    Remove { id: u8 },
}

/// A byte that a process wrote in place since it last saw that the file is plain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Run {
    pub at: u8,
    pub stamp: u8,
    pub op: Op,
}

/// A slot for a process. After a process ended another one may use the slot.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Proc {
    pub pc: Pc,
    pub role: Role,
    pub on: On,
    /// Written in place since the last look.
    pub runs: Vec<Run>,
    /// Records that are not committed.
    pub pending: Vec<Record>,
    /// The operation under way.
    pub op: Op,
    /// Ghost: done and not committed.
    pub owes: Ops,
    /// Ghost: done by this process.
    pub own: Ops,
    /// Ghost: committed when the last acquire began.
    pub seen: Ops,
}

/// What may still happen. Bounds the exploration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Budget {
    /// Processes that open for writing.
    pub writers: u8,
    /// Processes that open for reading.
    pub readers: u8,
    /// Processes that map the file or append to it.
    pub mappers: u8,
    /// Processes that remove what is in vain.
    pub collectors: u8,
    /// Bytes written, by all.
    pub writes: u8,
    /// Truncates, by all.
    pub cuts: u8,
    /// Acquires, each with a read, by all.
    pub reads: u8,
    /// Writers in place that promote after all.
    pub late: u8,
    /// Compactions.
    pub compactions: u8,
    /// kill -9.
    pub kills: u8,
    /// The power of all nodes is cut.
    pub power_cuts: u8,
    /// Another file is renamed over the name.
    pub renames: u8,
    /// The name is removed.
    pub unlinks: u8,
    /// P gets a second name.
    pub links: u8,
}

/// The state of the world.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// What P has.
    pub p: Content,
    /// What of it is on the disk.
    pub p_disk: Content,
    /// P's modification time: the largest clock of those who wrote in place.
    pub mtime: u8,
    /// P's attribute.
    pub said: Said,
    /// It is on the disk.
    pub said_durable: bool,
    /// Who has the lock on P under which it is truncated in place, and containers become whole.
    pub gate: Option<u8>,
    /// What the name leads to.
    pub name: Name,
    /// P has a second name.
    pub second_name: bool,
    /// The containers that somebody thought of.
    pub containers: Vec<Container>,
    /// For each node: the table says that the file is promoted.
    pub flags: Vec<bool>,
    /// For each node: the largest stamp that it has seen in the container.
    pub clocks: Vec<u8>,
    /// The time.
    pub now: u8,
    /// The slots of processes.
    pub procs: Vec<Proc>,
    /// What may still happen.
    pub budget: Budget,
    /// Ghost: what is known of each operation.
    pub ops: Vec<Fact>,
    /// Ghost: operations that have returned.
    pub done: Ops,
    /// Ghost: those whose commit has.
    pub committed: Ops,
    /// Ghost: those whose sync has.
    pub synced: Ops,
    /// Ghost: what people and other programs put at the name.
    pub put: Name,
    /// Ghost: a read showed something older than it may.
    pub stale: bool,
}

/// Ghost: what is known of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fact {
    pub what: What,
    pub node: u8,
    /// Which operations were before it: all that had returned, or (if clocks are wrong) all of them
    /// that its node knew of.
    pub before: Ops,
    /// What it cut in P.
    pub cut: Ops,
    /// What other nodes had written in place after the promotion, and it wrote over in place.
    pub over: Ops,
}

impl State {
    /// The link count of P.
    pub fn links(&self) -> usize {
        let bases = self.containers.iter().filter(|container| container.built >= BASE).count();
        bases + usize::from(self.name == Name::P) + usize::from(self.second_name)
    }

    /// What is known of an operation.
    pub fn fact(&self, op: Op) -> &Fact {
        &self.ops[op as usize - 1]
    }

    /// All operations that have begun.
    pub fn all(&self) -> impl Iterator<Item = Op> + use<> {
        1..=self.ops.len() as Op
    }

    /// Which operation's byte is at a place; 0: none, a hole or past the end. `own` are the records
    /// of a process that nobody else knows.
    pub fn merged(&self, id: u8, own: &[Record], at: u8) -> Op {
        let mut records = self.containers[id as usize].log.clone();
        records.extend(own);
        records.sort();
        for record in records.iter().rev() {
            match record.what {
                What::Byte(there) if there == at => return record.op,
                // What was cut off P in place since then reads as zeros: what is older than the
                // record is older than the truncate, too.
                What::Base(there) if there == at => return self.in_place(at),
                What::Cut => return 0,
                _ => {}
            }
        }
        self.in_place(at)
    }

    /// Which operation's byte P has.
    pub fn in_place(&self, at: u8) -> Op {
        if at < self.p.len { self.p.bytes[at as usize] } else { 0 }
    }

    /// The container that serves the file, if there is one.
    pub fn promoted(&self) -> Option<u8> {
        match self.said {
            Said::Container(id) if self.containers[id as usize].built == WHOLE => Some(id),
            _ => None,
        }
    }

    /// What somebody finds who opens the name now.
    pub fn found(&self, at: u8) -> Op {
        match (self.name, self.promoted()) {
            (Name::Super(id), _) => self.merged(id, &[], at),
            (Name::P, Some(id)) if self.links() > 1 => self.merged(id, &[], at),
            _ => self.in_place(at),
        }
    }

    /// Ghost: a read may give `got` at a place to somebody for whom `must` is there: nothing that
    /// is there was written after it.
    ///
    /// With clocks that are wrong there is an excuse. Whoever adopts a byte that others wrote over
    /// in place gives their byte its own place in the order.
    pub fn fits(&self, at: u8, got: Op, must: Ops) -> bool {
        let older = |before: Ops| {
            before & bit(got) != 0 && (got == 0 || self.fact(got).over & !before == 0)
        };
        self.all().filter(|op| must & bit(*op) != 0).all(|newer| {
            let before = self.fact(newer).before;
            match self.fact(newer).what {
                _ if got == newer => true,
                What::Cut => got == 0 || !older(before),
                What::Byte(there) if there == at && got != 0 => !older(before),
                What::Byte(there) if there == at => {
                    self.all().any(|cut| self.fact(cut).what == What::Cut && before & bit(cut) == 0)
                }
                _ => true,
            }
        })
    }
}
