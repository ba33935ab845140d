//! What may happen. `World::act` is the protocol: for each place where a process can stand, what
//! its next step does.
//!
//! A step has one call on what others see at most. What is in the page and what only this process
//! knows may be used beside it, under the page's lock.

use crate::state::{Ack, Block, Mark, Page, Pc, Proc, Set, State, bit};
use crate::world::{Fault, World};

/// What a new process is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Joins, commits, leaves.
    Write,
    /// Joins some other file on this host, and reaps while it is at it.
    Reap,
    /// Compacts or truncates: removes a set.
    Remove,
    /// Lists and reads.
    Read,
}

/// How a step goes, where it can go in more than one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The only way.
    Plain,
    /// The storage has done it, but says EEXIST.
    Repeated,
    /// Choose this set.
    Choose(u8),
    /// Choose this number for a new set.
    New(u8),
    /// Leave, instead of the next commit.
    Leave,
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
    /// kill -9 in the middle of the append of a block.
    Tear(u8),
    /// A process forks; the child gets the second slot.
    Fork(u8, u8),
    /// A host goes down and comes up again.
    Reboot(u8),
    /// A person fences a set.
    Fence(u8),
    /// Somebody removes the file of a node's page.
    Stranger(u8),
}

/// Commits that a slot can number.
const COMMITS_OF_SLOT: u8 = 4;

impl World {
    /// All that may happen next.
    pub fn possible(&self, s: &State, actions: &mut Vec<Action>) {
        let b = &s.budget;
        for p in 0..s.procs.len() as u8 {
            let proc = &s.procs[p as usize];
            if proc.pc == Pc::Idle {
                // Descriptions are named by slots: no second one while a child has the first. And
                // what is alike is tried once.
                if has_heirs(s, p) || self.is_like_one_before(s, p) {
                    continue;
                }
                if b.writers > 0 && proc.made + b.commits <= COMMITS_OF_SLOT {
                    actions.push(Action::Start(p, Role::Write));
                }
                let roles = [(b.reapers, Role::Reap), (b.removers, Role::Remove)];
                for (left, role) in roles.into_iter().chain([(b.readers, Role::Read)]) {
                    if left > 0 {
                        actions.push(Action::Start(p, role));
                    }
                }
                continue;
            }
            self.ways(s, p, actions);
            if b.kills > 0 {
                actions.push(Action::Kill(p));
                if matches!(proc.pc, Pc::Block { .. }) {
                    actions.push(Action::Tear(p));
                }
            }
            if b.forks > 0 && proc.page.is_some() {
                let free = (0..s.procs.len() as u8).find(|&child| {
                    let slot = &s.procs[child as usize];
                    slot.pc == Pc::Idle && self.node(child) == self.node(p)
                });
                actions.extend(free.map(|child| Action::Fork(p, child)));
            }
        }
        for host in 0..s.boots.len() as u8 {
            let runs = |p: u8| self.host(p) == host && s.procs[p as usize].pc != Pc::Idle;
            let pages = |node: usize| self.hosts[node] == host && s.names[node].is_some();
            let any = (0..s.procs.len() as u8).any(runs) || (0..s.names.len()).any(pages);
            if b.reboots > 0 && any {
                actions.push(Action::Reboot(host));
            }
        }
        if b.fences > 0 {
            let open = |set: &u8| s.sets[*set as usize].open.is_some();
            actions.extend((0..s.sets.len() as u8).filter(open).map(Action::Fence));
        }
        if b.strangers > 0 {
            let named = |node: &u8| s.names[*node as usize].is_some();
            actions.extend((0..s.names.len() as u8).filter(named).map(Action::Stranger));
        }
    }

    /// Starting a process here is the same as starting it in a slot before: another that was used
    /// as little on the same node; or any node, if nothing has happened yet and nodes are alike.
    fn is_like_one_before(&self, s: &State, p: u8) -> bool {
        let slot = &s.procs[p as usize];
        let alike = |q: u8| {
            self.node(q) == self.node(p) && s.procs[q as usize] == *slot && !has_heirs(s, q)
        };
        let nodes_are_alike = || {
            let slots = |node: u8| self.nodes.iter().filter(|n| **n == node).count();
            s.boots.len() == self.hosts.len()
                && (1..s.boots.len() as u8).all(|n| slots(n) == slots(0))
        };
        let nothing_yet = s.budget == self.budget;
        slot.made == 0 && (0..p).any(alike) || nothing_yet && self.node(p) > 0 && nodes_are_alike()
    }

    /// The ways in which a process can do its next step; none while it waits for a lock.
    pub fn ways(&self, s: &State, p: u8, actions: &mut Vec<Action>) {
        let proc = &s.procs[p as usize];
        let mut way = |way| actions.push(Action::Step(p, way));
        let locked = |page: Option<u8>| page.is_some_and(|id| s.pages[id as usize].lock.is_some());
        let named = s.names[self.node(p) as usize];
        match proc.pc {
            Pc::FoundList => {
                let free = |set: &&Set| set.open.is_none();
                let numbers = s.sets.iter().enumerate().filter(|(_, set)| free(set));
                let mut none = true;
                for (number, set) in numbers.clone() {
                    if set.dir && (!set.fenced || self.has(Fault::OwnFenced)) {
                        way(Way::Choose(number as u8));
                        none = false;
                    }
                }
                // New numbers are alike: the first one stands for all.
                let mut unused = numbers.filter(|(_, set)| !set.dir && !set.fenced);
                if let Some((number, _)) = unused.next() {
                    way(Way::New(number as u8));
                    none = false;
                }
                // Numbers do not run out in the real world; here the process gives up.
                if none {
                    way(Way::Leave);
                }
            }
            Pc::FoundMark { set, .. } => {
                way(Way::Plain);
                if s.budget.retries > 0 && s.sets[set as usize].open.is_none() {
                    way(Way::Repeated);
                }
            }
            Pc::Ready => {
                if proc.left > 0 {
                    way(Way::Plain);
                }
                if !locked(proc.page) {
                    way(Way::Leave);
                }
            }
            Pc::RemList => {
                let mut none = true;
                for (number, set) in s.sets.iter().enumerate() {
                    if set.dir && (set.fenced || set.open.is_none()) {
                        way(Way::Choose(number as u8));
                        none = false;
                    }
                }
                if none {
                    way(Way::Leave);
                }
            }
            Pc::JoinLock | Pc::Append { .. } | Pc::Poisoned if locked(proc.page) => {}
            Pc::ReapLock | Pc::ScanPage { .. } if locked(named) => {}
            _ => way(Way::Plain),
        }
    }

    /// Does it.
    pub fn act(&self, s: &mut State, action: Action) {
        match action {
            Action::Start(p, role) => {
                let b = &mut s.budget;
                let (left, pc) = match role {
                    Role::Write => (&mut b.writers, Pc::JoinOpen),
                    Role::Reap => (&mut b.reapers, Pc::ReapLock),
                    Role::Remove => (&mut b.removers, Pc::RemList),
                    Role::Read => (&mut b.readers, Pc::ReadTime),
                };
                *left -= 1;
                let proc = &mut s.procs[p as usize];
                (proc.pc, proc.left) = (pc, if role == Role::Write { b.commits } else { 0 });
            }
            Action::Step(p, way) => self.step(s, p, way),
            Action::Kill(p) => {
                s.budget.kills -= 1;
                die(s, p);
            }
            Action::Tear(p) => {
                s.budget.kills -= 1;
                if let Pc::Block { at, .. } = s.procs[p as usize].pc {
                    write_block(s, p, at, None);
                }
                die(s, p);
            }
            Action::Fork(p, child) => {
                s.budget.forks -= 1;
                let page = s.procs[p as usize].page;
                let child = &mut s.procs[child as usize];
                (child.pc, child.inherits) = (Pc::ForkDrop, page.map(|page| (page, p)));
            }
            Action::Reboot(host) => {
                s.budget.reboots -= 1;
                s.boots[host as usize] += 1;
                for p in 0..s.procs.len() as u8 {
                    if self.host(p) == host {
                        die(s, p);
                    }
                }
                for (node, page) in s.names.iter_mut().enumerate() {
                    if self.hosts[node] == host {
                        *page = None;
                    }
                }
            }
            Action::Fence(set) => {
                s.budget.fences -= 1;
                fence(s, set);
            }
            Action::Stranger(node) => {
                s.budget.strangers -= 1;
                let name = &mut s.names[node as usize];
                match *name {
                    // Who comes now locks another file.
                    Some(page) if self.has(Fault::LockIsAFile) => {
                        s.pages[page as usize].lock = None;
                    }
                    _ => *name = None,
                }
            }
        }
    }

    /// The protocol.
    fn step(&self, s: &mut State, p: u8, way: Way) {
        let i = p as usize;
        let node = self.node(p) as usize;
        let pc = s.procs[i].pc;
        let next = match pc {
            Pc::Idle => Pc::Idle,
            Pc::ForkDrop => {
                if let (true, Some((page, of))) =
                    (self.has(Fault::ChildUnlocks), s.procs[i].inherits)
                {
                    unlock(s, page, of);
                    s.pages[page as usize].alive &= !(1 << of);
                }
                return end(s, p);
            }

            // ---- join ----
            Pc::JoinOpen => {
                let page = s.names[node].unwrap_or_else(|| {
                    s.pages.push(Page::default());
                    s.pages.len() as u8 - 1
                });
                s.names[node] = Some(page);
                s.procs[i].page = Some(page);
                Pc::JoinLock
            }
            Pc::JoinLock => {
                let page = page_of(s, p);
                if s.names[node] != Some(page) {
                    s.procs[i].page = None;
                    Pc::JoinOpen
                } else {
                    let shared = &mut s.pages[page as usize];
                    shared.lock = Some(p);
                    shared.alive |= 1 << p;
                    if shared.names.is_some() { Pc::JoinLook } else { Pc::FoundList }
                }
            }
            Pc::JoinLook => {
                let page = page_of(s, p);
                let (set, nonce) = s.pages[page as usize].names.unwrap_or_default();
                let open = &s.sets[set as usize].open;
                if let (true, Some(mark)) = (self.has(Fault::JoinByName), open) {
                    let nonce = mark.nonce;
                    s.pages[page as usize].names = Some((set, nonce));
                    self.become_member(s, p, set, nonce)
                } else if s.mark_is(set, nonce) {
                    self.become_member(s, p, set, nonce)
                } else if self.has(Fault::PageServesTwo) {
                    Pc::FoundList
                } else {
                    // A page serves one tenancy. Who is still there keeps the old one.
                    let_go(s, p);
                    s.names[node] = None;
                    Pc::JoinOpen
                }
            }

            // ---- found, under the page's lock ----
            Pc::FoundList => match way {
                Way::Choose(set) if self.has(Fault::LengthFirst) => {
                    s.procs[i].length = s.sets[set as usize].data.len() as u8;
                    Pc::FoundMark { set, new: false }
                }
                Way::Choose(set) => Pc::FoundMark { set, new: false },
                Way::New(set) => Pc::FoundMark { set, new: true },
                _ => return end_session(s, p),
            },
            Pc::FoundMark { set, new } => {
                s.last_nonce += 1;
                s.procs[i].nonce = s.last_nonce;
                if s.sets[set as usize].open.is_some() {
                    Pc::FoundReadBack { set, new }
                } else {
                    self.make_mark(s, p, set);
                    if way == Way::Repeated {
                        s.budget.retries -= 1;
                        Pc::FoundReadBack { set, new }
                    } else {
                        Pc::FoundLook { set, new }
                    }
                }
            }
            Pc::FoundReadBack { set, new } => {
                if s.mark_is(set, s.procs[i].nonce) {
                    Pc::FoundLook { set, new }
                } else {
                    Pc::FoundList
                }
            }
            Pc::FoundLook { set, new } => {
                let look = !self.has(Fault::OwnByOldList) && !self.has(Fault::OwnFenced);
                if look && s.sets[set as usize].fenced {
                    Pc::FoundUndo { set }
                } else {
                    Pc::FoundLogs { set, new }
                }
            }
            Pc::FoundLogs { set, new } => {
                let proc = &mut s.procs[i];
                let there = &mut s.sets[set as usize];
                if there.dir == new {
                    // A collision of numbers, or it was removed since the list.
                    Pc::FoundUndo { set }
                } else {
                    (there.dir, s.time) = (true, if new { 0 } else { s.time });
                    let mut tail = there.data.len() as u8;
                    if self.has(Fault::LengthFirst) && !new {
                        tail = proc.length;
                    }
                    proc.length = 0;
                    Pc::FoundPage { set, generation: there.generation, tail }
                }
            }
            Pc::FoundUndo { set } => {
                unlink_mark(s, set);
                s.procs[i].length = 0;
                Pc::FoundList
            }
            Pc::FoundPage { set, generation, tail } => {
                let page = page_of(s, p) as usize;
                let nonce = s.procs[i].nonce;
                (s.pages[page].names, s.pages[page].tail) = (Some((set, nonce)), tail);
                unlock(s, page as u8, p);
                (s.procs[i].set, s.procs[i].generation) = (set, generation);
                Pc::Ready
            }

            // ---- commit ----
            Pc::Ready if way == Way::Leave => return self.leave(s, p),
            Pc::Ready => {
                let page = page_of(s, p) as usize;
                let region = s.pages[page].tail;
                s.pages[page].tail += 1;
                s.procs[i].left -= 1;
                Pc::Write { region }
            }
            Pc::Write { region } => {
                let proc = &s.procs[i];
                let commit = commit_of(p, proc);
                let set = &mut s.sets[proc.set as usize];
                if set.dir && set.generation == proc.generation {
                    if set.data.len() <= region as usize {
                        set.data.resize(region as usize + 1, None);
                    }
                    set.data[region as usize] = Some(commit);
                }
                if self.has(Fault::LookFirst) {
                    Pc::Look { region, at: 0, late: false }
                } else {
                    Pc::Append { region }
                }
            }
            Pc::Append { region } => {
                let page = page_of(s, p) as usize;
                s.pages[page].lock = Some(p);
                let proc = &s.procs[i];
                Pc::Block { region, at: s.sets[proc.set as usize].log.len() as u8 }
            }
            Pc::Block { region, at } => {
                let commit = commit_of(p, &s.procs[i]);
                write_block(s, p, at, Some(commit));
                unlock(s, page_of(s, p), p);
                let late = !s.mark_is(s.procs[i].set, s.procs[i].nonce);
                if self.has(Fault::LookFirst) {
                    acknowledge(s, p, region, at, late)
                } else {
                    Pc::Look { region, at, late }
                }
            }
            Pc::Look { region, at, late } => {
                let (set, nonce) = (s.procs[i].set, s.procs[i].nonce);
                let any = self.has(Fault::LookByName) && s.sets[set as usize].open.is_some();
                if !any && !s.mark_is(set, nonce) {
                    s.procs[i].made += 1;
                    Pc::Poisoned
                } else if self.has(Fault::LookFirst) {
                    Pc::Append { region }
                } else {
                    acknowledge(s, p, region, at, late)
                }
            }
            Pc::Poisoned => return self.leave(s, p),

            // ---- leave, under the page's lock, as the last ----
            Pc::LeaveMark => {
                let owes_summary = unlink_mark(s, s.procs[i].set);
                Pc::LeavePage { owes_summary }
            }
            Pc::LeavePage { owes_summary } => {
                // A stranger may have removed the page, and others have made another.
                if s.names[node] == s.procs[i].page {
                    s.names[node] = None;
                }
                let_go(s, p);
                if !(owes_summary && s.budget.summaries) {
                    return end(s, p);
                }
                if self.has(Fault::ListFirst) {
                    Pc::SumList { token: 0 }
                } else {
                    Pc::SumToken { list: 0 }
                }
            }

            // ---- the last closer's summary ----
            Pc::SumToken { list } => {
                s.last_token += 1;
                s.time = s.last_token;
                if self.has(Fault::ListFirst) {
                    Pc::SumRead { token: s.time, list, covers: 0 }
                } else {
                    Pc::SumList { token: s.time }
                }
            }
            Pc::SumList { .. } if s.sets.iter().any(|set| set.open.is_some()) => return end(s, p),
            Pc::SumList { .. } if self.has(Fault::ListFirst) => Pc::SumToken { list: s.listed() },
            Pc::SumList { token } => Pc::SumRead { token, list: s.listed(), covers: 0 },
            Pc::SumRead { token, list: 0, covers } => Pc::SumWrite { token, covers },
            Pc::SumRead { token, list, covers } => {
                let set = list.trailing_zeros() as u8;
                let (list, covers) = (list & (list - 1), covers | s.logged(set));
                Pc::SumRead { token, list, covers }
            }
            Pc::SumWrite { token, covers } => {
                s.summary = Some((token, covers));
                return end(s, p);
            }

            // ---- reclaim ----
            Pc::ReapLock => match s.names[node] {
                Some(page) if s.pages[page as usize].alive == 0 => {
                    s.pages[page as usize].lock = Some(p);
                    s.procs[i].page = Some(page);
                    match s.pages[page as usize].names {
                        Some(_) => Pc::ReapLook,
                        None => Pc::ReapPage,
                    }
                }
                _ => Pc::Scan { set: 0 },
            },
            Pc::ReapLook => {
                let (set, nonce) = s.pages[page_of(s, p) as usize].names.unwrap_or_default();
                if s.mark_is(set, nonce) || self.has(Fault::ReclaimByName) {
                    Pc::ReapMark
                } else {
                    Pc::ReapPage
                }
            }
            Pc::ReapMark => {
                let (set, _) = s.pages[page_of(s, p) as usize].names.unwrap_or_default();
                unlink_mark(s, set);
                Pc::ReapPage
            }
            Pc::ReapPage => {
                if s.names[node] == s.procs[i].page {
                    s.names[node] = None;
                }
                let_go(s, p);
                Pc::Scan { set: 0 }
            }

            // ---- orphans: marks of this host that no page names ----
            Pc::Scan { set } => {
                let Some(there) = s.sets.get(set as usize) else { return end(s, p) };
                let boot = s.boots[self.host(p) as usize];
                match there.open {
                    Some(mark) if self.hosts[mark.node as usize] != self.host(p) => {
                        Pc::Scan { set: set + 1 }
                    }
                    Some(mark) if mark.boot != boot => Pc::ScanFence { set },
                    Some(mark)
                        if mark.node as usize == node
                            && mark.founder.is_none()
                            && !self.has(Fault::OrphansStay) =>
                    {
                        Pc::ScanPage { set, nonce: mark.nonce }
                    }
                    _ => Pc::Scan { set: set + 1 },
                }
            }
            Pc::ScanPage { set, nonce } => {
                let names = s.names[node].and_then(|page| s.pages[page as usize].names);
                if names == Some((set, nonce)) {
                    Pc::Scan { set: set + 1 }
                } else if self.has(Fault::OrphanByOneLook) {
                    Pc::ScanFence { set }
                } else {
                    Pc::ScanAgain { set, nonce }
                }
            }
            // Who leaves removes the mark before the page. So if it is there now, there was no page
            // before; and who is dead makes none.
            Pc::ScanAgain { set, nonce } if s.mark_is(set, nonce) => Pc::ScanFence { set },
            Pc::ScanAgain { set, .. } => Pc::Scan { set: set + 1 },
            Pc::ScanFence { set } => {
                fence(s, set);
                Pc::Scan { set: set + 1 }
            }

            // ---- remove ----
            Pc::RemList => match way {
                Way::Choose(set) if s.sets[set as usize].fenced => {
                    Pc::RemRead { set, owned: false }
                }
                Way::Choose(set) => Pc::RemMark { set },
                _ => return end(s, p),
            },
            Pc::RemMark { set } => {
                if s.sets[set as usize].open.is_some() {
                    return end(s, p);
                }
                s.last_nonce += 1;
                s.procs[i].nonce = s.last_nonce;
                self.make_mark(s, p, set);
                Pc::RemLook { set }
            }
            Pc::RemLook { set } => {
                let there = &s.sets[set as usize];
                if there.fenced || !there.dir {
                    Pc::RemUnmark { set }
                } else {
                    Pc::RemRead { set, owned: true }
                }
            }
            Pc::RemRead { set, owned } => Pc::RemGone { set, owned, seen: s.logged(set) },
            Pc::RemGone { set, owned, seen } => {
                let there = &mut s.sets[set as usize];
                if there.dir {
                    let (open, fenced) = (there.open, there.fenced);
                    let generation = there.generation + 1;
                    *there = Set { open, fenced, generation, ..Set::default() };
                    s.time = 0;
                    s.dropped |= seen;
                    s.acked.retain(|ack| bit(ack.commit) & seen == 0);
                }
                match owned {
                    true => Pc::RemUnmark { set },
                    false if self.has(Fault::ForgetFence) => Pc::RemUnfence { set },
                    false => return end(s, p),
                }
            }
            Pc::RemUnmark { set } => {
                unlink_mark(s, set);
                return end(s, p);
            }
            Pc::RemUnfence { set } => {
                (s.sets[set as usize].fenced, s.time) = (false, 0);
                return end(s, p);
            }

            // ---- read ----
            Pc::ReadTime => Pc::ReadSummary { time: s.time, must: s.acked_commits() },
            Pc::ReadSummary { time, must } => match s.summary {
                Some((token, covers)) if time != 0 && token == time => {
                    s.missed |= must & !covers & !s.dropped != 0;
                    return end(s, p);
                }
                _ => Pc::ReadLog { list: s.listed(), must, seen: 0 },
            },
            Pc::ReadLog { list: 0, must, seen } => {
                s.missed |= must & !seen & !s.dropped != 0;
                return end(s, p);
            }
            Pc::ReadLog { list, must, seen } => {
                let set = list.trailing_zeros() as u8;
                Pc::ReadLog { list: list & (list - 1), must, seen: seen | s.logged(set) }
            }
        };
        s.procs[i].pc = next;
    }

    /// The mark has the page's nonce: the process is a member.
    fn become_member(&self, s: &mut State, p: u8, set: u8, nonce: u8) -> Pc {
        unlock(s, page_of(s, p), p);
        let generation = s.sets[set as usize].generation;
        let proc = &mut s.procs[p as usize];
        (proc.set, proc.nonce, proc.generation) = (set, nonce, generation);
        Pc::Ready
    }

    fn make_mark(&self, s: &mut State, p: u8, set: u8) {
        let boot = s.boots[self.host(p) as usize];
        let nonce = s.procs[p as usize].nonce;
        s.sets[set as usize].open =
            Some(Mark { nonce, node: self.node(p), boot, founder: Some(p) });
        s.time = 0;
    }

    /// Takes the page's lock and stops being alive. The last one goes on, with the lock.
    fn leave(&self, s: &mut State, p: u8) {
        let page = page_of(s, p) as usize;
        let others = s.pages[page].alive & !(1 << p);
        if others != 0 {
            return end_session(s, p);
        }
        s.pages[page].lock = Some(p);
        if self.has(Fault::LeaveUnlocked) {
            unlock(s, page as u8, p);
        }
        s.procs[p as usize].pc = Pc::LeaveMark;
    }
}

/// A child has a description that was opened in this slot.
fn has_heirs(s: &State, p: u8) -> bool {
    s.procs.iter().any(|child| child.inherits.is_some_and(|(_, of)| of == p))
}

fn page_of(s: &State, p: u8) -> u8 {
    // INVARIANT: only those who have a page come to a step that uses it.
    s.procs[p as usize].page.expect("a process without a page")
}

fn commit_of(p: u8, proc: &Proc) -> u8 {
    p * COMMITS_OF_SLOT + proc.made
}

/// Appends a block where the log ended when the writer looked.
fn write_block(s: &mut State, p: u8, at: u8, commit: Option<u8>) {
    let proc = &s.procs[p as usize];
    let set = &mut s.sets[proc.set as usize];
    if !set.dir || set.generation != proc.generation {
        // Into a directory that was removed: nobody sees it.
        return;
    }
    let block = Block { nonce: proc.nonce, commit };
    if let Some(there) = set.log.get_mut(at as usize) {
        *there = block;
        s.overwrote = true;
    } else {
        set.log.push(block);
    }
}

fn acknowledge(s: &mut State, p: u8, region: u8, at: u8, late: bool) -> Pc {
    let proc = &mut s.procs[p as usize];
    let commit = commit_of(p, proc);
    proc.made += 1;
    if s.dropped & bit(commit) == 0 {
        s.acked.push(Ack { commit, set: proc.set, at, region });
        s.acked.sort();
    }
    s.late_ack |= late;
    Pc::Ready
}

fn unlock(s: &mut State, page: u8, p: u8) {
    let lock = &mut s.pages[page as usize].lock;
    if *lock == Some(p) {
        *lock = None;
    }
}

/// Gives back all that a process has of its page: unlocks, then closes. So forked children, which
/// have the same open file description, have no lock either.
fn let_go(s: &mut State, p: u8) {
    if let Some(page) = s.procs[p as usize].page.take() {
        unlock(s, page, p);
        s.pages[page as usize].alive &= !(1 << p);
    }
}

fn end_session(s: &mut State, p: u8) {
    let_go(s, p);
    end(s, p);
}

/// A process ends, whatever it has: the kernel closes its descriptors, which unlocks only what no
/// child has, too.
fn end(s: &mut State, p: u8) {
    let proc = &mut s.procs[p as usize];
    let (page, inherits) = (proc.page.take(), proc.inherits.take());
    let made = proc.made;
    // A commit that was begun has used its number up.
    let begun = matches!(
        proc.pc,
        Pc::Write { .. } | Pc::Append { .. } | Pc::Block { .. } | Pc::Look { .. }
    );
    (proc.pc, proc.set, proc.nonce, proc.generation) = (Pc::Idle, 0, 0, 0);
    (proc.left, proc.length, proc.made) = (0, 0, made + u8::from(begun));
    for set in &mut s.sets {
        if let Some(mark) = &mut set.open
            && mark.founder == Some(p)
        {
            mark.founder = None;
        }
    }
    for (page, of) in page.map(|page| (page, p)).into_iter().chain(inherits) {
        let has = |q: &Proc| q.inherits == Some((page, of));
        let parent = s.procs[of as usize].page == Some(page);
        if !parent && !s.procs.iter().any(has) {
            unlock(s, page, of);
            s.pages[page as usize].alive &= !(1 << of);
        }
    }
}

fn die(s: &mut State, p: u8) {
    if s.procs[p as usize].pc != Pc::Idle {
        end(s, p);
    }
}

/// Removes the mark by its name, whosever it is by now; true if there was one. Who does that owned
/// the mark a moment ago: so if it is another's, the set is fenced, and the other will give up.
fn unlink_mark(s: &mut State, set: u8) -> bool {
    let was = s.sets[set as usize].open.take().is_some();
    if was {
        s.time = 0;
    }
    was
}

/// Renames the mark, whosever it is by now.
fn fence(s: &mut State, set: u8) {
    if unlink_mark(s, set) {
        s.sets[set as usize].fenced = true;
    }
}
