//! What happened, told to people.

use std::fmt::Write;

use super::state::{Deed, On, Pc, Role, Said, State};
use super::steps::{Action, Way};
use super::world::World;

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
    if let Some((last, _)) = path.last() {
        let found: Vec<_> = (0..world.bytes).map(|at| last.found(at)).collect();
        let _ = writeln!(text, "      who opens the file now finds the writes {found:?}");
    }
    text
}

/// One step, with what came of it.
fn sentence(world: &World, before: &State, action: Action, after: &State) -> String {
    let who = |p: u8| format!("process {p} (node {})", world.node(p));
    match action {
        Action::Start(p, Role::Write) => format!("{} starts, to write", who(p)),
        Action::Start(p, Role::Read) => format!("{} starts, to read", who(p)),
        Action::Start(p, Role::Map) => format!("{} starts, to map the file", who(p)),
        Action::Start(p, Role::Collect) => format!("{} starts, to remove what is in vain", who(p)),
        Action::Kill(p) => format!("{} is KILLED", who(p)),
        Action::PowerCut(left) => format!("the POWER is cut; what is left: {left:?}"),
        Action::Rename => "another file is RENAMED over the name".into(),
        Action::Unlink => "the name is REMOVED".into(),
        Action::SecondName => "the file gets a second name".into(),
        Action::Step(p, way) => format!("{} {}", who(p), step(before, p, way, after)),
    }
}

fn step(before: &State, p: u8, way: Way, after: &State) -> String {
    let was = &before.procs[p as usize];
    let is = &after.procs[p as usize];
    let attribute = match before.said {
        Said::Nothing => "P has no attribute".into(),
        Said::Container(id) => {
            let built = before.containers[id as usize].built;
            format!("P's attribute names container {id}, which has {built} of its 3 parts")
        }
        Said::Pin => "P is pinned".to_string(),
    };
    match was.pc {
        Pc::Idle => "is not there".into(),
        Pc::Open => format!("opens the name, which is {:?}", before.name),
        Pc::Stat => format!("finds {} links", before.links()),
        Pc::Attribute => format!("looks: {attribute}"),
        Pc::Enter if way == Way::Promote => "enters the table, and wants to promote".into(),
        Pc::Enter => "enters the table, and stays plain".into(),
        Pc::Claim => format!("sets the attribute: {attribute}"),
        Pc::ClaimSet => "sets the attribute, whatever it was".into(),
        Pc::Directory { id } => format!("makes the directory of container {id}"),
        Pc::Link { id } => format!("links P into container {id}"),
        Pc::Superblock { id } => format!("makes the superblock of container {id}"),
        Pc::SwapCheck { .. } => format!("sees that the name is {:?}", before.name),
        Pc::SwapRename { .. } => format!("renames the superblock over {:?}", before.name),
        Pc::SwapExchange { .. } => format!("exchanges the superblock and {:?}", before.name),
        Pc::SwapVerify { got, .. } => {
            format!("sees that it got {got:?}; the name is {:?}", after.name)
        }
        Pc::Attach { id } => format!("loads container {id}"),
        Pc::Pin if is.on == On::Pinned => "pins the file".into(),
        Pc::Pin => format!("cannot pin: {attribute}"),
        Pc::Ready => match way {
            Way::Call(Deed::Write(at)) => format!("begins write {} of byte {at}", is.op),
            Way::Call(Deed::Cut) => format!("begins truncate {}", is.op),
            Way::Call(Deed::Commit { sync: true }) => "begins a sync".into(),
            Way::Call(Deed::Commit { .. }) => "begins a commit".into(),
            Way::Call(Deed::Read(at)) => format!("acquires, to read byte {at}"),
            Way::Compact => "reads all, to compact".into(),
            _ => "closes and ends".into(),
        },
        Pc::Look(_) => format!("looks: {attribute}"),
        Pc::Do(deed) => {
            let place = match was.on {
                On::Log(id) => format!("in container {id}"),
                _ => "in place".into(),
            };
            match deed {
                Deed::Write(at) => format!("writes byte {at} {place}: write {}", was.op),
                Deed::Cut => format!("truncates {place}: truncate {}", was.op),
                Deed::Commit { sync: true } => format!("has SYNCED {place}"),
                Deed::Commit { .. } => format!("has COMMITTED {place}"),
                Deed::Read(at) => format!("reads byte {at} {place}"),
            }
        }
        Pc::Compact { .. } => "has compacted".into(),
        Pc::Judge { id } => format!("looks at container {id}"),
        Pc::Remove { id } => format!("removes container {id}, if it can"),
    }
}
