//! What may happen. `World::act` is the protocol: for each place where a process can stand, what
//! its next step does.

use super::state::{
    BASE, BYTES, Container, Content, DIRECTORY, Deed, Fact, NO_CONTAINER, Name, On, Op, Pc, Proc,
    Record, Role, Run, Said, State, WHOLE, What, bit,
};
use super::world::{Fault, World};

/// How a step goes, where it can go in more than one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The only way.
    Plain,
    /// The writer has a reason to promote.
    Promote,
    /// The next call of the program.
    Call(Deed),
    /// The program closes the file, which is a commit, and ends.
    Close,
    /// The process compacts.
    Compact,
}

/// What a power cut leaves of that which nobody has synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    pub bytes: bool,
    pub attribute: bool,
    pub container: bool,
    pub log: bool,
}

/// Something happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A process starts.
    Start(u8, Role),
    /// A process does its next step.
    Step(u8, Way),
    /// kill -9.
    Kill(u8),
    /// The power of all nodes is cut.
    PowerCut(Left),
    /// Another file is renamed over the name.
    Rename,
    /// The name is removed.
    Unlink,
    /// P gets a second name.
    SecondName,
}

impl World {
    /// All that may happen next.
    pub fn possible(&self, s: &State, actions: &mut Vec<Action>) {
        let b = &s.budget;
        for p in 0..s.procs.len() as u8 {
            let proc = &s.procs[p as usize];
            if proc.pc != Pc::Idle {
                self.ways(s, p, actions);
                if b.kills > 0 {
                    actions.push(Action::Kill(p));
                }
                continue;
            }
            // What is alike is tried once: slots of one node; and nodes, while nothing happened.
            let like = |q: u8| {
                s.procs[q as usize].pc == Pc::Idle
                    && (self.node(q) == self.node(p) || s.budget == self.budget && self.skew == 0)
            };
            if (0..p).any(like) {
                continue;
            }
            let roles = [(b.writers, Role::Write), (b.readers, Role::Read), (b.mappers, Role::Map)];
            for (left, role) in roles.into_iter().chain([(b.collectors, Role::Collect)]) {
                let needs = role == Role::Collect && s.containers.is_empty();
                if left > 0 && !needs {
                    actions.push(Action::Start(p, role));
                }
            }
        }
        if b.power_cuts > 0 {
            for left in 0..16_u8 {
                let [bytes, attribute, container, log] = [1, 2, 4, 8].map(|bit| left & bit != 0);
                actions.push(Action::PowerCut(Left { bytes, attribute, container, log }));
            }
        }
        if b.renames > 0 {
            actions.push(Action::Rename);
        }
        if b.unlinks > 0 && s.name != Name::Nothing {
            actions.push(Action::Unlink);
        }
        if b.links > 0 && s.name == Name::P && !s.second_name {
            actions.push(Action::SecondName);
        }
    }

    /// The ways in which a process can do its next step.
    fn ways(&self, s: &State, p: u8, actions: &mut Vec<Action>) {
        let proc = &s.procs[p as usize];
        let mut way = |way| actions.push(Action::Step(p, way));
        match proc.pc {
            Pc::Enter => {
                // A second writer of the node promotes. On another node there may be a reason.
                let others = (0..s.procs.len() as u8).any(|q| {
                    let other = &s.procs[q as usize];
                    q != p && self.node(q) == self.node(p) && writes(other) && entered(other)
                });
                if !others {
                    way(Way::Plain);
                }
                way(Way::Promote);
            }
            Pc::Ready => {
                let b = &s.budget;
                if proc.role != Role::Read {
                    for at in (0..self.bytes).filter(|at| !self.own_bytes || p % 2 == *at) {
                        if b.writes > 0 {
                            way(Way::Call(Deed::Write(at)));
                        }
                    }
                    if b.cuts > 0 && proc.role == Role::Write {
                        way(Way::Call(Deed::Cut));
                    }
                    if proc.owes != 0 {
                        way(Way::Call(Deed::Commit { sync: false }));
                        if b.power_cuts > 0 {
                            way(Way::Call(Deed::Commit { sync: true }));
                        }
                    }
                    if b.late > 0 && proc.on == On::Plain {
                        way(Way::Promote);
                    }
                    if b.compactions > 0 && self.may_compact(s, p) {
                        way(Way::Compact);
                    }
                }
                for at in 0..self.bytes {
                    if b.reads > 0 && proc.role != Role::Map {
                        way(Way::Call(Deed::Read(at)));
                    }
                }
                if proc.owes == 0 {
                    way(Way::Close);
                }
            }
            // The gate of P is shut: somebody is truncating it in place.
            Pc::Superblock { .. } | Pc::Look(Deed::Cut) if s.gate.is_some() => {}
            _ => way(Way::Plain),
        }
    }

    /// Nobody else has P open for writing. A lease says so, where there are leases.
    fn may_compact(&self, s: &State, p: u8) -> bool {
        let harmless = |other: &Proc| {
            let in_place = matches!(other.on, On::Plain | On::Pinned);
            !writes(other) || self.has(Fault::CompactUnproved) && in_place
        };
        matches!(s.procs[p as usize].on, On::Log(_))
            && s.procs[p as usize].pending.is_empty()
            && (0..s.procs.len()).all(|q| q == p as usize || harmless(&s.procs[q]))
    }

    /// Does it.
    pub fn act(&self, s: &mut State, action: Action) {
        match action {
            Action::Start(p, role) => {
                let b = &mut s.budget;
                let (left, pc) = match role {
                    Role::Write => (&mut b.writers, Pc::Open),
                    Role::Read => (&mut b.readers, Pc::Open),
                    Role::Map => (&mut b.mappers, Pc::Open),
                    Role::Collect => (&mut b.collectors, Pc::Judge { id: 0 }),
                };
                *left -= 1;
                let proc = &mut s.procs[p as usize];
                (proc.pc, proc.role) = (pc, role);
            }
            Action::Step(p, way) => self.step(s, p, way),
            Action::Kill(p) => {
                s.budget.kills -= 1;
                self.end(s, p);
            }
            Action::PowerCut(left) => {
                s.budget.power_cuts -= 1;
                self.cut_power(s, left);
            }
            Action::Rename => {
                s.budget.renames -= 1;
                (s.name, s.put) = (Name::Third, Name::Third);
            }
            Action::Unlink => {
                s.budget.unlinks -= 1;
                (s.name, s.put) = (Name::Nothing, Name::Nothing);
            }
            Action::SecondName => {
                s.budget.links -= 1;
                s.second_name = true;
            }
        }
    }

    /// The protocol.
    fn step(&self, s: &mut State, p: u8, way: Way) {
        let i = p as usize;
        let node = self.node(p);
        let pc = s.procs[i].pc;
        s.procs[i].pc = match pc {
            Pc::Idle => Pc::Idle,

            // ---- open ----
            Pc::Open => {
                self.sees(s, p);
                match s.name {
                    Name::P => Pc::Stat,
                    Name::Super(id) => Pc::Attach { id },
                    Name::Third | Name::Nothing => return self.end(s, p),
                }
            }
            // With one link P is the base of nothing, whatever its attribute says.
            Pc::Stat if s.links() > 1 => Pc::Attribute,
            Pc::Stat => self.plain(s, p),
            Pc::Attribute => match (self.looks(s), s.procs[i].role) {
                (Some(id), _) => Pc::Attach { id },
                (None, _) => self.plain(s, p),
            },
            Pc::Enter if way == Way::Promote => Pc::Claim,
            Pc::Enter => Pc::Ready,

            // ---- promote ----
            Pc::Claim => match s.said {
                Said::Nothing if self.has(Fault::DecideByLook) => Pc::ClaimSet,
                Said::Nothing => claim(s),
                Said::Container(id) => Pc::Directory { id },
                // It stays plain.
                Said::Pin => Pc::Ready,
            },
            Pc::ClaimSet => claim(s),
            Pc::Directory { id } if self.has(Fault::EarlyRecords) => Pc::Attach { id },
            Pc::Directory { id } => {
                let built = &mut s.containers[id as usize].built;
                *built = (*built).max(DIRECTORY);
                Pc::Link { id }
            }
            Pc::Link { id } => match s.containers[id as usize].built {
                // A collector took the directory for garbage.
                NO_CONTAINER => Pc::Directory { id },
                // An inode without a name cannot be linked: the file is this process's alone.
                DIRECTORY if s.links() == 0 => Pc::Ready,
                _ => {
                    let built = &mut s.containers[id as usize].built;
                    *built = (*built).max(BASE);
                    Pc::Superblock { id }
                }
            },
            Pc::Superblock { id } => {
                let mtime = if self.has(Fault::NoFloor) { 0 } else { s.mtime };
                let container = &mut s.containers[id as usize];
                if container.built < BASE {
                    Pc::Directory { id }
                } else {
                    // All records are behind what P's time says of those who write in place.
                    if container.built < WHOLE && self.skew != 0 {
                        container.clock = mtime;
                    }
                    container.built = WHOLE;
                    if self.has(Fault::SwapByRename) || self.has(Fault::SwapByExchange) {
                        Pc::SwapCheck { id }
                    } else {
                        Pc::Attach { id }
                    }
                }
            }
            Pc::SwapCheck { id } if s.name != Name::P => Pc::Attach { id },
            Pc::SwapCheck { id } if self.has(Fault::SwapByExchange) => Pc::SwapExchange { id },
            Pc::SwapCheck { id } => Pc::SwapRename { id },
            Pc::SwapRename { id } => {
                s.name = Name::Super(id);
                Pc::Attach { id }
            }
            Pc::SwapExchange { id } => {
                let got = std::mem::replace(&mut s.name, Name::Super(id));
                Pc::SwapVerify { id, got }
            }
            Pc::SwapVerify { id, got: Name::P | Name::Nothing } => Pc::Attach { id },
            Pc::SwapVerify { id, got } => {
                s.name = got;
                Pc::Attach { id }
            }
            Pc::Attach { id } => {
                self.attach(s, p, id);
                Pc::Ready
            }

            // ---- pin ----
            Pc::Pin => match s.said {
                Said::Nothing | Said::Pin => {
                    if !self.has(Fault::PinInTable) {
                        s.said = Said::Pin;
                    }
                    s.procs[i].on = On::Pinned;
                    Pc::Ready
                }
                // Shared maps of a container are refused; appends go to its logs.
                Said::Container(id) => Pc::Directory { id },
            },

            // ---- calls of the program ----
            Pc::Ready => match way {
                Way::Call(deed) => self.begin(s, p, deed),
                Way::Promote => {
                    s.budget.late -= 1;
                    Pc::Claim
                }
                Way::Compact => {
                    s.budget.compactions -= 1;
                    let On::Log(id) = s.procs[i].on else { return };
                    let stamp = self.stamp(s, p);
                    let read = std::array::from_fn(|at| s.merged(id, &[], at as u8));
                    // Who comes from now on is behind both stamps of the compaction.
                    self.stamp(s, p);
                    s.containers[id as usize].clock = s.clocks[node];
                    Pc::Compact { id, stamp, read, len: self.bytes }
                }
                _ => {
                    return self.end(s, p);
                }
            },
            Pc::Look(deed) => {
                match self.looks(s) {
                    Some(id) => self.attach(s, p, id),
                    // No container becomes whole before the truncate is over.
                    None if deed == Deed::Cut && !self.has(Fault::NoGate) => s.gate = Some(p),
                    None => {}
                }
                Pc::Do(deed)
            }
            Pc::Do(deed) => self.act_on(s, p, deed),

            // ---- compact ----
            Pc::Compact { id, stamp, read, len } => {
                let container = &mut s.containers[id as usize];
                container.log.retain(|record| record.stamp > stamp);
                let cut = Record { stamp, op: 0, what: What::Cut, durable: true };
                container.log.push(cut);
                for at in (0..len).filter(|at| read[*at as usize] != 0) {
                    let (op, what) = (read[at as usize], What::Byte(at));
                    container.log.push(Record { stamp: stamp + 1, op, what, durable: true });
                }
                container.log.sort();
                Pc::Ready
            }

            // ---- collect ----
            Pc::Judge { id } => match s.containers.get(id as usize) {
                None => return self.end(s, p),
                Some(container) => {
                    // Feature bit 0: the names are links of the base, not of the superblock.
                    let by_super = self.has(Fault::CollectBySuperblock) && container.built == WHOLE;
                    match container.built {
                        DIRECTORY => Pc::Remove { id },
                        _ if by_super => Pc::Remove { id },
                        _ => Pc::Judge { id: id + 1 },
                    }
                }
            },
            Pc::Remove { id } => {
                // rmdir: it fails if there is a base by now.
                let container = &mut s.containers[id as usize];
                let all = self.has(Fault::CollectByLook) || self.has(Fault::CollectBySuperblock);
                if all || container.built == DIRECTORY {
                    *container = Container::default();
                }
                Pc::Judge { id: id + 1 }
            }
        };
    }

    /// P is plain, for somebody who has just opened it.
    fn plain(&self, s: &mut State, p: u8) -> Pc {
        let proc = &mut s.procs[p as usize];
        proc.on = On::Plain;
        match proc.role {
            Role::Write => Pc::Enter,
            Role::Map => Pc::Pin,
            _ => Pc::Ready,
        }
    }

    /// What the attribute says, and the container: does it serve?
    fn looks(&self, s: &State) -> Option<u8> {
        match s.said {
            Said::Container(id)
                if self.has(Fault::HalfIsWhole) || self.has(Fault::EarlyRecords) =>
            {
                Some(id)
            }
            _ => s.promoted(),
        }
    }

    /// A call begins.
    fn begin(&self, s: &mut State, p: u8, deed: Deed) -> Pc {
        let i = p as usize;
        match deed {
            Deed::Write(at) => {
                s.budget.writes -= 1;
                self.new_op(s, p, What::Byte(at));
            }
            Deed::Cut => {
                s.budget.cuts -= 1;
                self.new_op(s, p, What::Cut);
            }
            Deed::Read(_) => {
                s.budget.reads -= 1;
                self.sees(s, p);
            }
            _ => {}
        }
        let looks = match deed {
            _ if s.procs[i].on != On::Plain => false,
            Deed::Write(_) => s.flags[self.node(p)] && !self.has(Fault::NoFlag),
            Deed::Cut => !self.has(Fault::CutWithoutLook),
            Deed::Commit { .. } => !self.has(Fault::CommitWithoutLook),
            Deed::Read(_) => !self.has(Fault::AcquireWithoutLook),
        };
        if looks { Pc::Look(deed) } else { Pc::Do(deed) }
    }

    /// A call does what it is for.
    fn act_on(&self, s: &mut State, p: u8, deed: Deed) -> Pc {
        let i = p as usize;
        match (deed, s.procs[i].on) {
            (Deed::Write(at), On::Log(_)) => {
                let stamp = self.stamp(s, p);
                let proc = &mut s.procs[i];
                let (op, what) = (proc.op, What::Byte(at));
                proc.pending.push(Record { stamp, op, what, durable: false });
                self.is_done(s, p);
            }
            (Deed::Write(at), on) => {
                let stamp = self.stamp(s, p);
                let op = s.procs[i].op;
                let under = s.in_place(at);
                if under != 0 && s.promoted().is_some() {
                    let others = s.fact(under).node != self.nodes[i];
                    let over = s.fact(under).over | if others { bit(under) } else { 0 };
                    s.ops[op as usize - 1].over |= over;
                }
                s.mtime = s.mtime.max(stamp);
                s.p.bytes[at as usize] = op;
                s.p.len = s.p.len.max(at + 1);
                if on == On::Plain {
                    s.procs[i].runs.push(Run { at, stamp, op });
                }
                self.is_done(s, p);
            }
            (Deed::Cut, On::Log(id)) => {
                let stamp = self.stamp(s, p);
                let op = s.procs[i].op;
                let record = Record { stamp, op, what: What::Cut, durable: false };
                insert(s, id, record);
                return self.cut_is_done(s, p);
            }
            (Deed::Cut, _) => {
                let op = s.procs[i].op;
                let there = s.p.bytes.iter().fold(0, |all, op| all | bit(*op)) & !bit(0);
                s.ops[op as usize - 1].cut |= there;
                s.p = Content::default();
                s.gate = None;
                return self.cut_is_done(s, p);
            }
            (Deed::Commit { sync }, on) => {
                let proc = &mut s.procs[i];
                let pending = std::mem::take(&mut proc.pending);
                let owes = std::mem::take(&mut proc.owes);
                // The file is plain: what is in place is below all that logs will ever have.
                proc.runs.clear();
                let adopts = pending.iter().any(|record| matches!(record.what, What::Base(_)));
                if sync || adopts && !self.has(Fault::AdoptWithoutSync) {
                    s.p_disk = s.p;
                }
                for record in pending {
                    if let On::Log(id) = on {
                        insert(s, id, record);
                    }
                }
                if sync {
                    if let On::Log(id) = on {
                        let container = &mut s.containers[id as usize];
                        container.log.iter_mut().for_each(|record| record.durable = true);
                        if !self.has(Fault::SyncLogOnly) {
                            container.durable = container.built;
                        }
                    }
                    s.said_durable |= !self.has(Fault::SyncLogOnly);
                    s.synced |= s.procs[i].own;
                }
                s.committed |= owes;
            }
            (Deed::Read(at), on) => {
                let got = match on {
                    On::Log(id) => {
                        self.learn(s, p, id);
                        s.merged(id, &s.procs[i].pending, at)
                    }
                    _ => s.in_place(at),
                };
                let must = s.procs[i].seen | s.procs[i].own;
                s.stale |= !s.fits(at, got, must);
            }
        }
        Pc::Ready
    }

    /// The process goes on with the container. What it wrote in place since it last saw that the
    /// file is plain becomes records, with the stamps of the writes.
    fn attach(&self, s: &mut State, p: u8, id: u8) {
        self.learn(s, p, id);
        let node = self.node(p);
        s.flags[node] = true;
        let runs = std::mem::take(&mut s.procs[p as usize].runs);
        s.procs[p as usize].on = On::Log(id);
        if self.has(Fault::NoAdoption) {
            return;
        }
        for Run { at, stamp, op } in runs {
            let stamp = if self.has(Fault::AdoptAsNew) { self.stamp(s, p) } else { stamp };
            s.clocks[node] = s.clocks[node].max(stamp);
            let what = What::Base(at);
            s.procs[p as usize].pending.push(Record { stamp, op, what, durable: false });
        }
    }

    /// The node's clock sees the stamps of the container.
    fn learn(&self, s: &mut State, p: u8, id: u8) {
        let container = &s.containers[id as usize];
        let last = container.log.last().map_or(0, |record| record.stamp).max(container.clock);
        let clock = &mut s.clocks[self.node(p)];
        *clock = last.max(*clock);
    }

    /// A stamp. Who writes in place does not know the clock that the writers of logs share.
    fn stamp(&self, s: &mut State, p: u8) -> u8 {
        s.now += 1;
        let node = self.node(p);
        let wall = s.now + if node == 1 { self.skew } else { 0 };
        if !matches!(s.procs[p as usize].on, On::Log(_)) {
            return wall;
        }
        s.clocks[node] = wall.max(s.clocks[node] + 1);
        s.clocks[node]
    }

    /// An acquire begins. (Ghost, where somebody asks.)
    fn sees(&self, s: &mut State, p: u8) {
        if self.budget.reads > 0 || self.skew != 0 {
            s.procs[p as usize].seen = s.committed;
        }
    }

    /// An operation begins.
    fn new_op(&self, s: &mut State, p: u8, what: What) {
        let node = self.node(p) as u8;
        let mut before = s.done;
        if self.skew != 0 {
            let here = |op: &Op| s.fact(*op).node == node && s.done & bit(*op) != 0;
            let known =
                s.all().filter(here).fold(s.procs[p as usize].seen, |all, op| all | bit(op));
            before = s
                .all()
                .filter(|op| known & bit(*op) != 0)
                .fold(known, |all, op| all | s.fact(op).before);
        }
        s.ops.push(Fact { what, node, before: before | bit(0), cut: 0, over: 0 });
        s.procs[p as usize].op = s.ops.len() as Op;
    }

    fn is_done(&self, s: &mut State, p: u8) {
        let proc = &mut s.procs[p as usize];
        let op = std::mem::take(&mut proc.op);
        proc.owes |= bit(op);
        self.owns(proc, op);
        s.done |= bit(op);
    }

    /// Ghost, where somebody asks.
    fn owns(&self, proc: &mut Proc, op: Op) {
        if self.budget.reads > 0 || self.budget.power_cuts > 0 {
            proc.own |= bit(op);
        }
    }

    /// A truncate needs no commit.
    fn cut_is_done(&self, s: &mut State, p: u8) -> Pc {
        let proc = &mut s.procs[p as usize];
        let op = std::mem::take(&mut proc.op);
        self.owns(proc, op);
        s.done |= bit(op);
        s.committed |= bit(op);
        Pc::Ready
    }

    /// A process ends, or is killed.
    fn end(&self, s: &mut State, p: u8) {
        let role = s.procs[p as usize].role;
        s.procs[p as usize] = Proc {
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
        if s.gate == Some(p) {
            s.gate = None;
        }
        let node = self.node(p);
        let others = (0..s.procs.len() as u8)
            .any(|q| self.node(q) == node && s.procs[q as usize].pc != Pc::Idle);
        if !others && role != Role::Collect {
            (s.flags[node], s.clocks[node]) = (false, 0);
        }
    }

    /// The power goes, and comes again.
    fn cut_power(&self, s: &mut State, left: Left) {
        for p in 0..s.procs.len() as u8 {
            if s.procs[p as usize].pc != Pc::Idle {
                self.end(s, p);
            }
        }
        if !left.bytes {
            s.p = s.p_disk;
        }
        if !left.attribute && !s.said_durable {
            s.said = Said::Nothing;
        }
        for container in &mut s.containers {
            if !left.container {
                container.built = container.durable;
            }
            let names_are_there = container.built == WHOLE;
            container.log.retain(|record| names_are_there && (left.log || record.durable));
            container.log.iter_mut().for_each(|record| record.durable = true);
            container.durable = container.built;
        }
        (s.p_disk, s.said_durable) = (s.p, s.said != Said::Nothing);
        s.committed &= s.synced;
    }
}

/// Has the file open for writing.
fn writes(proc: &Proc) -> bool {
    proc.pc != Pc::Idle && matches!(proc.role, Role::Write | Role::Map)
}

/// Is in the table of its node.
fn entered(proc: &Proc) -> bool {
    !matches!(proc.pc, Pc::Open | Pc::Stat | Pc::Attribute | Pc::Enter)
}

/// Sets the attribute.
fn claim(s: &mut State) -> Pc {
    let id = s.containers.len() as u8;
    s.containers.push(Container::default());
    s.said = Said::Container(id);
    Pc::Directory { id }
}

/// Appends a record. The log is kept in the order of stamps.
fn insert(s: &mut State, id: u8, record: Record) {
    let log = &mut s.containers[id as usize].log;
    log.push(record);
    log.sort();
}

/// What `BYTES` is for: an array for each byte of a file.
const _: () = assert!(BYTES <= 8, "records number bytes with few bits");
