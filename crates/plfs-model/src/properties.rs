//! What must hold in each state, and what must happen in some.

use stateright::Property;

use crate::state::{Pc, State};
use crate::steps::{Action, Role};
use crate::world::World;

/// All properties.
pub fn all() -> Vec<Property<World>> {
    vec![
        // What was acknowledged stays where it was, and so do its data, until somebody who had
        // seen it removes the set.
        Property::always("acknowledged commits stay", |_, s: &State| {
            s.acked.iter().all(|ack| {
                let set = &s.sets[ack.set as usize];
                let block = set.log.get(ack.at as usize);
                let data = set.data.get(ack.region as usize);
                block.is_some_and(|block| block.commit == Some(ack.commit))
                    && data == Some(&Some(ack.commit))
            })
        }),
        Property::always("no block is written over another", |_, s: &State| !s.overwrote),
        Property::always("a set has one tenancy at a time", |_, s: &State| {
            appends_do_not_mix(s) && members_agree(s)
        }),
        Property::always("a reader sees what was acknowledged", |_, s: &State| !s.missed),
        Property::always("a summary that is believed has everything", |_, s: &State| {
            match s.summary {
                Some((token, covers)) if token == s.time => s.acked_commits() & !covers == 0,
                _ => true,
            }
        }),
        Property::always("after a fence nothing is acknowledged", |_, s: &State| !s.late_ack),
        Property::always("nobody is fenced but by a person's word", |world: &World, s: &State| {
            // A host that lost the page of live processes fences them: the error is a stranger's.
            let by_others = world.budget.fences + world.budget.strangers > 0;
            by_others || s.procs.iter().all(|proc| proc.pc != Pc::Poisoned)
        }),
        Property::always("a host clears up after its dead", clears_up),
        Property::sometimes("a fenced process gets an error", |_, s: &State| {
            s.procs.iter().any(|proc| proc.pc == Pc::Poisoned)
        }),
        Property::sometimes("a set is taken over", |_, s: &State| {
            s.sets.iter().any(|set| set.log.windows(2).any(|pair| pair[0].nonce != pair[1].nonce))
        }),
        Property::sometimes("an heir removes the mark of the dead", |_, s: &State| {
            s.procs.iter().any(|proc| proc.pc == Pc::ReapMark)
        }),
        Property::sometimes("an orphan is fenced", |_, s: &State| {
            s.procs.iter().any(|proc| matches!(proc.pc, Pc::ScanFence { .. }))
        }),
        Property::sometimes("a founder finds the set fenced after all", |_, s: &State| {
            let undoes = |pc| match pc {
                Pc::FoundUndo { set } => s.sets[set as usize].fenced,
                _ => false,
            };
            s.procs.iter().any(|proc| undoes(proc.pc))
        }),
        Property::sometimes("a fenced set is removed", |_, s: &State| {
            s.sets.iter().any(|set| set.fenced && set.generation > 0)
        }),
        Property::sometimes("a set that has commits is removed", |_, s: &State| s.dropped != 0),
        Property::sometimes("a summary with commits is believed", |_, s: &State| {
            s.summary.is_some_and(|(token, covers)| token == s.time && covers != 0)
        }),
    ]
}

/// Tenancies of a log follow each other: none appends again after the next one has begun.
fn appends_do_not_mix(s: &State) -> bool {
    s.sets.iter().all(|set| {
        let mut ended = Vec::new();
        set.log.windows(2).filter(|pair| pair[0].nonce != pair[1].nonce).all(|pair| {
            ended.push(pair[0].nonce);
            !ended.contains(&pair[1].nonce)
        })
    })
}

/// All that take themselves for members of one set have one nonce, also before they append.
fn members_agree(s: &State) -> bool {
    let member = |pc| {
        use Pc::{Append, Block, Look, Ready, Write};
        matches!(pc, Ready | Write { .. } | Append { .. } | Block { .. } | Look { .. })
    };
    let members = || s.procs.iter().filter(|proc| member(proc.pc));
    members().all(|a| {
        members().all(|b| {
            (a.set, a.generation) != (b.set, b.generation)
                || a.nonce == b.nonce
                || !s.sets[a.set as usize].dir
                || s.sets[a.set as usize].generation != a.generation
        })
    })
}

/// If all processes of a host are dead, then the next ones there, which are not disturbed, end
/// with no mark of that host.
fn clears_up(world: &World, s: &State) -> bool {
    (0..s.boots.len() as u8).all(|host| {
        let here = |p: &u8| world.host(*p) == host;
        let open = |s: &State| {
            let marks = s.sets.iter().filter_map(|set| set.open);
            marks.filter(|mark| world.hosts[mark.node as usize] == host).count()
        };
        let slots = || (0..s.procs.len() as u8).filter(here);
        if open(s) == 0 || slots().any(|p| s.procs[p as usize].pc != Pc::Idle) {
            return true;
        }
        let mut after = s.clone();
        slots().for_each(|p| run_of(world, &mut after, p, Role::Reap));
        open(&after) == 0
    })
}

/// Runs a process from its start to its end, alone. Takes the first way where there are several.
fn run_of(world: &World, s: &mut State, p: u8, role: Role) {
    s.budget.reapers += 1;
    world.act(s, Action::Start(p, role));
    let mut actions = Vec::new();
    while s.procs[p as usize].pc != Pc::Idle {
        world.ways(s, p, &mut actions);
        let Some(step) = actions.drain(..).next() else { return };
        world.act(s, step);
        s.tidy();
    }
}
