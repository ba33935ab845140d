//! What happened, told to people.

use std::fmt::Write;

use crate::state::{Pc, State};
use crate::steps::{Action, Role, Way};
use crate::world::World;

/// Tells a path: a line for each step.
pub fn story(world: &World, path: Vec<(State, Option<Action>)>) -> String {
    let mut text = String::new();
    let mut number = 0;
    for pair in path.windows(2) {
        if let Some(action) = pair[0].1 {
            number += 1;
            let what = sentence(world, &pair[0].0, action, &pair[1].0);
            let _ = writeln!(text, "{number:4}. {what}");
        }
    }
    text
}

/// One step, with what came of it.
fn sentence(world: &World, before: &State, action: Action, after: &State) -> String {
    let who = |p: u8| format!("process {p} (node {})", world.node(p));
    match action {
        Action::Start(p, Role::Write) => format!("{} starts, to write", who(p)),
        Action::Start(p, Role::Reap) => format!("{} starts, and reaps", who(p)),
        Action::Start(p, Role::Remove) => format!("{} starts, to remove a set", who(p)),
        Action::Start(p, Role::Read) => format!("{} starts, to read", who(p)),
        Action::Kill(p) => format!("{} is KILLED", who(p)),
        Action::Tear(p) => format!("{} is KILLED in the middle of its append", who(p)),
        Action::Fork(p, child) => format!("{} forks process {child}", who(p)),
        Action::Reboot(host) => format!("host {host} is REBOOTED"),
        Action::Fence(set) => format!("a person FENCES set {set}"),
        Action::Stranger(node) => format!("a stranger REMOVES the page of node {node}"),
        Action::Step(p, way) => format!("{} {}", who(p), step(before, p, way, after)),
    }
}

fn step(before: &State, p: u8, way: Way, after: &State) -> String {
    let was = &before.procs[p as usize];
    let is = &after.procs[p as usize];
    let nonce = is.nonce;
    let open = |set: u8| match before.sets[set as usize].open {
        Some(mark) => format!("{set}.open is there, of tenancy {}", mark.nonce),
        None => format!("{set}.open is not there"),
    };
    let member = |pc: &Pc| matches!(pc, Pc::Ready);
    match was.pc {
        Pc::Idle => "is not there".into(),
        Pc::ForkDrop => "gives up what it has inherited".into(),
        Pc::JoinOpen if after.pages.len() > before.pages.len() => "makes a page".into(),
        Pc::JoinOpen => "opens the page".into(),
        Pc::JoinLock => match is.pc {
            Pc::JoinOpen => "finds that its page has no name any more".into(),
            Pc::JoinLook => "has the page's lock; the page names a tenancy".into(),
            _ => "has the page's lock; the page names nothing".into(),
        },
        Pc::JoinLook => {
            let page = was.page.and_then(|page| before.pages[page as usize].names);
            let (set, names) = page.unwrap_or_default();
            let what = if member(&is.pc) { "joins" } else { "does not join" };
            format!("{what}: the page says set {set}, tenancy {names}; {}", open(set))
        }
        Pc::FoundList => match way {
            Way::Choose(set) => format!("lists the container and chooses set {set}"),
            Way::New(set) => format!("lists the container and draws the new number {set}"),
            _ => "finds no set and gives up".into(),
        },
        Pc::FoundMark { set, .. } => match (way, is.pc) {
            (Way::Repeated, _) => format!("makes {set}.open, tenancy {nonce}; is told EEXIST"),
            (_, Pc::FoundReadBack { .. }) => format!("cannot make {set}.open: it is there"),
            _ => format!("makes {set}.open, tenancy {nonce}"),
        },
        Pc::FoundReadBack { set, .. } => format!("reads it: {}", open(set)),
        Pc::FoundLook { set, .. } if before.sets[set as usize].fenced => {
            format!("looks for {set}.fenced: it is there")
        }
        Pc::FoundLook { set, .. } => format!("looks for {set}.fenced: it is not there"),
        Pc::FoundLogs { set, new: true } => format!("makes the directory of set {set}"),
        Pc::FoundLogs { set, .. } => format!("looks at the logs of set {set}"),
        Pc::FoundUndo { set } | Pc::RemUnmark { set } => format!("removes {set}.open"),
        Pc::FoundPage { set, tail, .. } => {
            format!("writes set {set}, tenancy {nonce}, tail {tail} to the page and unlocks it")
        }
        Pc::Ready if way == Way::Leave => leaves(&is.pc),
        Pc::Ready => match is.pc {
            Pc::Write { region } => format!("reserves region {region} of set {}", was.set),
            _ => "goes on".into(),
        },
        Pc::Write { region } => format!("writes data to region {region} of set {}", was.set),
        Pc::Append { .. } => match is.pc {
            Pc::Block { at, .. } => format!("has the page's lock; the index log has {at} blocks"),
            _ => "goes on".into(),
        },
        Pc::Block { at, .. } => format!("writes block {at} of set {}, and unlocks", was.set),
        Pc::Look { .. } => {
            let what = match is.pc {
                Pc::Poisoned => "FAILS",
                Pc::Append { .. } => "goes on to append",
                _ => "ACKNOWLEDGES",
            };
            format!("{what}: {}; its own tenancy is {}", open(was.set), was.nonce)
        }
        Pc::Poisoned => leaves(&is.pc),
        Pc::LeaveMark => format!("removes {}.open, to leave", was.set),
        Pc::LeavePage { .. } => "removes the page and unlocks it".into(),
        Pc::SumToken { .. } => format!("sets the directory's time to token {}", after.time),
        Pc::SumList { .. } if is.pc == Pc::Idle => "finds a mark, so it makes no summary".into(),
        Pc::SumList { .. } => "finds no mark".into(),
        Pc::SumRead { list: 0, .. } => "has read all logs".into(),
        Pc::SumRead { list, .. } => format!("reads the log of set {}", list.trailing_zeros()),
        Pc::SumWrite { token, covers } => {
            format!("writes the summary for token {token}: {} commits", covers.count_ones())
        }
        Pc::ReapLock if is.page.is_some() => "finds a page in which nobody lives".into(),
        Pc::ReapLock => "finds no page of the dead".into(),
        Pc::ReapLook => {
            let page = was.page.and_then(|page| before.pages[page as usize].names);
            let (set, names) = page.unwrap_or_default();
            format!("reads set {set}, tenancy {names} in it; {}", open(set))
        }
        Pc::ReapMark => "removes the mark".into(),
        Pc::ReapPage => "removes the page".into(),
        Pc::Scan { set } if is.pc == Pc::Scan { set: set + 1 } => {
            format!("looks at set {set}: no orphan")
        }
        Pc::Scan { set } if is.pc == Pc::Idle => format!("is done after {set} sets"),
        Pc::Scan { set } => format!("looks at set {set}: its maker is dead"),
        Pc::ScanPage { set, .. } if is.pc == (Pc::Scan { set: set + 1 }) => {
            format!("finds that the page names the tenancy of set {set}")
        }
        Pc::ScanPage { set, .. } => format!("finds that no page names the tenancy of set {set}"),
        Pc::ScanAgain { set, .. } => format!("looks at set {set} again: {}", open(set)),
        Pc::ScanFence { set } => format!("fences set {set}: {}", open(set)),
        Pc::RemList => match way {
            Way::Choose(set) => format!("lists the container and chooses set {set}"),
            _ => "finds no set to remove".into(),
        },
        Pc::RemMark { set } if is.pc == Pc::Idle => format!("cannot make {set}.open: it is there"),
        Pc::RemMark { set } => format!("makes {set}.open, tenancy {nonce}"),
        Pc::RemLook { set } => match is.pc {
            Pc::RemRead { .. } => format!("finds set {set} there and not fenced"),
            _ => format!("finds set {set} gone or fenced"),
        },
        Pc::RemRead { set, .. } => format!("reads the log of set {set}"),
        Pc::RemGone { set, .. } => format!("renames set {set} to {set}.gone"),
        Pc::RemUnfence { set } => format!("removes {set}.fenced"),
        Pc::ReadTime => format!("looks at the directory's time: {}", before.time),
        Pc::ReadSummary { .. } if is.pc == Pc::Idle => "believes the summary".into(),
        Pc::ReadSummary { .. } => "finds no summary that fits, and lists the container".into(),
        Pc::ReadLog { list: 0, .. } => "has read all logs".into(),
        Pc::ReadLog { list, .. } => format!("reads the log of set {}", list.trailing_zeros()),
    }
}

fn leaves(pc: &Pc) -> String {
    match pc {
        Pc::LeaveMark => "leaves, as the last one, and has the page's lock".into(),
        _ => "leaves; others live".into(),
    }
}
