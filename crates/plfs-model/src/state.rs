//! What there is: the container on shared storage, the pages in the memory of nodes, the processes.
//!
//! Everything is small numbers, so that a state is cheap to copy and to compare. Fields marked
//! *ghost* are seen by the properties only; no step of the protocol reads them.

use std::hash::{Hash, Hasher};

/// Identifies a tenancy. The real ones are random; here each is new. 0: none.
pub type Nonce = u8;

/// Identifies a commit: four for each process slot.
pub type Commit = u8;

/// A set of commits, a bit each.
pub type Commits = u32;

/// `SET.open`: a symbolic link whose text says whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mark {
    /// The tenancy.
    pub nonce: Nonce,
    /// The directory of shared memory that the maker uses (a node; the node knows its host).
    pub node: u8,
    /// Boot of the host.
    pub boot: u8,
    /// The process that made it, while it lives: process id and start time tell.
    pub founder: Option<u8>,
}

/// A block of an index log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Block {
    /// Ghost: the tenancy of the writer.
    pub nonce: Nonce,
    /// What it commits. None: its writer was killed in the middle (torn).
    pub commit: Option<Commit>,
}

/// One log set number: its names in the container's directory, and its logs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Set {
    /// `SET.open`.
    pub open: Option<Mark>,
    /// `SET.fenced`.
    pub fenced: bool,
    /// The directory `SET` is there. A process that has it open goes on with what it opened, so
    /// each directory has a generation.
    pub dir: bool,
    /// How many directories of this number were removed.
    pub generation: u8,
    /// The index log: a block for each place.
    pub log: Vec<Block>,
    /// A stream: what lies in each region. None: nobody wrote there (a hole in the file).
    pub data: Vec<Option<Commit>>,
}

/// A page of shared memory. It is an inode: who has it mapped keeps it when its name is removed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Page {
    /// The set and the tenancy that the page belongs to. None: nobody has founded yet.
    pub names: Option<(u8, Nonce)>,
    /// The next region of the stream.
    pub tail: u8,
    /// Whose open file description has the page's lock. A description is named by the process
    /// that opened it; forked children share it.
    pub lock: Option<u8>,
    /// Descriptions that have the lock that says "alive", a bit each.
    pub alive: u8,
}

/// Where a process stands. Each state is the next thing that it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pc {
    /// There is no process: not started yet, ended, or killed.
    Idle,
    /// A child that has the parent's descriptors and has not closed them yet.
    ForkDrop,

    /// Join: open the page, or make it.
    JoinOpen,
    /// Join: take the page's lock, look that the name still leads to the page, be alive.
    JoinLock,
    /// Join: does the mark have the nonce that the page has?
    JoinLook,

    /// Found: list the container and choose a number.
    FoundList,
    /// Found: make the mark.
    FoundMark { set: u8, new: bool },
    /// Found: the storage said that the mark exists. Is it ours?
    FoundReadBack { set: u8, new: bool },
    /// Found: is there a `SET.fenced`?
    FoundLook { set: u8, new: bool },
    /// Found: make the directory, or look whether the logs are whole and how long they are.
    FoundLogs { set: u8, new: bool },
    /// Found: it is not to be had; remove our mark.
    FoundUndo { set: u8 },
    /// Found: write set, nonce and tails to the page.
    FoundPage { set: u8, generation: u8, tail: u8 },

    /// A member: the next commit, or leave.
    Ready,
    /// Commit: write the data to the region.
    Write { region: u8 },
    /// Commit: take the page's lock and look how long the index log is.
    Append { region: u8 },
    /// Commit: write the block there and give the lock back.
    Block { region: u8, at: u8 },
    /// Commit: look for the mark. `late` (ghost): when the block was written, it was gone.
    Look { region: u8, at: u8, late: bool },
    /// A commit failed: the node was fenced.
    Poisoned,

    /// Leave, as the last of the node: remove the mark.
    LeaveMark,
    /// Leave: remove the page.
    LeavePage { owes_summary: bool },

    /// Last closer: set the time of the directory.
    SumToken { list: u8 },
    /// Last closer: list; give up if there is a mark.
    SumList { token: u8 },
    /// Last closer: read the next log of the list.
    SumRead { token: u8, list: u8, covers: Commits },
    /// Last closer: write the summary.
    SumWrite { token: u8, covers: Commits },

    /// Reclaim: take the lock of a page in which nobody lives.
    ReapLock,
    /// Reclaim: does the mark have the page's nonce?
    ReapLook,
    /// Reclaim: remove the mark.
    ReapMark,
    /// Reclaim: remove the page.
    ReapPage,
    /// Orphans: read the next mark.
    Scan { set: u8 },
    /// Orphans: the founder is dead. Does the page here name the tenancy?
    ScanPage { set: u8, nonce: Nonce },
    /// Orphans: no page names it. Is it still there?
    ScanAgain { set: u8, nonce: Nonce },
    /// Orphans: rename the mark to `SET.fenced`.
    ScanFence { set: u8 },

    /// Remove: list the container and choose a set.
    RemList,
    /// Remove: make the mark, for a set that is not fenced.
    RemMark { set: u8 },
    /// Remove: is it fenced, is it still there?
    RemLook { set: u8 },
    /// Remove: read what the logs have (a compactor copies it).
    RemRead { set: u8, owned: bool },
    /// Remove: rename the directory to `SET.gone`.
    RemGone { set: u8, owned: bool, seen: Commits },
    /// Remove: remove our mark.
    RemUnmark { set: u8 },
    /// Remove: remove the mark of a fence (a fault: the protocol keeps it).
    RemUnfence { set: u8 },

    /// Read: look at the time of the directory. All that was acknowledged by now must be seen.
    ReadTime,
    /// Read: the summary. `must` (ghost) is what was acknowledged when the read began.
    ReadSummary { time: u8, must: Commits },
    /// Read: the next log of the list.
    ReadLog { list: u8, must: Commits, seen: Commits },
}

/// A slot for a process. After a process ended another one may use the slot.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Proc {
    pub pc: Pc,
    /// The page that it has mapped.
    pub page: Option<u8>,
    /// What a forked child has of its parent: the page, and whose description it is.
    pub inherits: Option<(u8, u8)>,
    /// Set, nonce and generation of the directory, of a member; of a founder, its nonce.
    pub set: u8,
    pub nonce: Nonce,
    pub generation: u8,
    /// Length of the stream before it was owned; only a fault needs it.
    pub length: u8,
    /// Commits that this process still may do.
    pub left: u8,
    /// Commits of this slot so far.
    pub made: u8,
}

/// Ghost: a commit of which a process said "success".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ack {
    pub commit: Commit,
    pub set: u8,
    pub at: u8,
    pub region: u8,
}

/// What may still happen. Bounds the exploration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Budget {
    /// Processes that join, commit and leave.
    pub writers: u8,
    /// Commits of each of them, at most.
    pub commits: u8,
    /// Processes that reap what the dead of their host left.
    pub reapers: u8,
    /// Processes that compact or truncate: each removes a set.
    pub removers: u8,
    /// Processes that list and read.
    pub readers: u8,
    /// kill -9.
    pub kills: u8,
    /// A process forks.
    pub forks: u8,
    /// A host goes down and comes up again.
    pub reboots: u8,
    /// A person fences.
    pub fences: u8,
    /// Somebody removes the file of a page.
    pub strangers: u8,
    /// The storage makes a mark and says EEXIST, since the call was sent twice.
    pub retries: u8,
    /// The last closer writes a summary.
    pub summaries: bool,
}

/// The state of the world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The log sets, by number.
    pub sets: Vec<Set>,
    /// The modification time of the container's directory. 0: the present; else a token.
    pub time: u8,
    /// The summary: its token and what it covers.
    pub summary: Option<(u8, Commits)>,
    /// For each host, how often it was started.
    pub boots: Vec<u8>,
    /// For each node, the page that the name in shared memory leads to.
    pub names: Vec<Option<u8>>,
    /// The pages that somebody can reach.
    pub pages: Vec<Page>,
    /// The slots of processes.
    pub procs: Vec<Proc>,
    /// What may still happen.
    pub budget: Budget,
    /// The nonce that was given out last.
    pub last_nonce: Nonce,
    /// The token that was given out last.
    pub last_token: u8,
    /// Ghost: acknowledged, and not removed by somebody who had seen it.
    pub acked: Vec<Ack>,
    /// Ghost: removed by somebody who had seen it.
    pub dropped: Commits,
    /// Ghost: a block was written over another.
    pub overwrote: bool,
    /// Ghost: a block was acknowledged that was appended after the fence.
    pub late_ack: bool,
    /// Ghost: a reader did not see what was acknowledged before it began.
    pub missed: bool,
}

/// A commit as a set of one.
pub fn bit(commit: Commit) -> Commits {
    1 << commit
}

impl State {
    /// The mark of a set says this tenancy.
    pub fn mark_is(&self, set: u8, nonce: Nonce) -> bool {
        self.sets[set as usize].open.is_some_and(|mark| mark.nonce == nonce)
    }

    /// All that was acknowledged and not removed.
    pub fn acked_commits(&self) -> Commits {
        self.acked.iter().fold(0, |all, ack| all | bit(ack.commit))
    }

    /// What the log of a set has, whole.
    pub fn logged(&self, set: u8) -> Commits {
        let blocks = self.sets[set as usize].log.iter();
        blocks.filter_map(|block| block.commit).fold(0, |all, commit| all | bit(commit))
    }

    /// The sets whose directory is listed, a bit each.
    pub fn listed(&self) -> u8 {
        (0..self.sets.len()).filter(|&set| self.sets[set].dir).fold(0, |all, set| all | 1 << set)
    }

    /// Forgets pages that nobody can reach, and numbers the rest as they are first met. So states
    /// that differ in garbage only are one.
    pub fn tidy(&mut self) {
        let mut order: Vec<u8> = Vec::with_capacity(8);
        let named = self.names.iter().flatten();
        let mapped = self.procs.iter().filter_map(|proc| proc.page.as_ref());
        let inherited = self.procs.iter().filter_map(|proc| proc.inherits.as_ref().map(|(p, _)| p));
        for &page in named.chain(mapped).chain(inherited) {
            if !order.contains(&page) {
                order.push(page);
            }
        }
        if order.len() == self.pages.len()
            && order.iter().enumerate().all(|(i, &o)| i == o as usize)
        {
            return;
        }
        self.pages = order.iter().map(|&page| self.pages[page as usize].clone()).collect();
        let renumber = |page: &mut u8| {
            *page = order.iter().position(|old| old == page).unwrap_or_default() as u8;
        };
        self.names.iter_mut().flatten().for_each(renumber);
        for proc in &mut self.procs {
            proc.page.iter_mut().for_each(renumber);
            proc.inherits.iter_mut().for_each(|(page, _)| renumber(page));
        }
    }
}

/// States that differ in the names of tenancies only have one hash, so the exploration takes them
/// for one. (It keeps the first that it met, so stories have the names that were given.)
impl Hash for State {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let mut names = [0_u8; 256];
        let mut last = 0;
        // The nonces by the order in which they are met.
        let mut name = |nonce: Nonce| {
            let name = &mut names[nonce as usize];
            if nonce != 0 && *name == 0 {
                last += 1;
                *name = last;
            }
            *name
        };
        for Set { open, fenced, dir, generation, log, data } in &self.sets {
            open.map(|mark| Mark { nonce: name(mark.nonce), ..mark }).hash(hasher);
            (fenced, dir, generation, log.len()).hash(hasher);
            for block in log {
                Block { nonce: name(block.nonce), ..*block }.hash(hasher);
            }
            data.hash(hasher);
        }
        self.pages.len().hash(hasher);
        for Page { names, tail, lock, alive } in &self.pages {
            (names.map(|(set, nonce)| (set, name(nonce))), tail, lock, alive).hash(hasher);
        }
        for proc in &self.procs {
            let Proc { pc, page, inherits, set, nonce, generation, length, left, made } = proc;
            match *pc {
                Pc::ScanPage { set, nonce } => Pc::ScanPage { set, nonce: name(nonce) },
                Pc::ScanAgain { set, nonce } => Pc::ScanAgain { set, nonce: name(nonce) },
                pc => pc,
            }
            .hash(hasher);
            (page, inherits, set, name(*nonce), generation, length, left, made).hash(hasher);
        }
        let State { time, summary, boots, names, budget, acked, last_token, .. } = self;
        (time, summary, boots, names, budget, acked, last_token).hash(hasher);
        (self.dropped, self.overwrote, self.late_ack, self.missed).hash(hasher);
    }
}
