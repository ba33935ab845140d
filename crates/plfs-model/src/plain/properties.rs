//! What must hold in each state, and what must happen in some.

use stateright::Property;

use super::state::{Name, On, Pc, Said, State, WHOLE, What, bit};
use super::world::World;

/// All properties.
pub fn all() -> Vec<Property<World>> {
    vec![
        // S2, S8, S10, S14: whoever opens the name finds, of each byte, what was committed last or
        // something later. After kills and power cuts that is so without anybody's recovery.
        Property::always(
            "who opens the file finds what was committed",
            |world: &World, s: &State| {
                let own = matches!(s.name, Name::P | Name::Super(_));
                !own || (0..world.bytes).all(|at| s.fits(at, s.found(at), s.committed))
            },
        ),
        // S1, S2, S7: so does who has it open, and sees its own writes.
        Property::always("an acquire finds what was committed, and own writes", |_, s: &State| {
            !s.stale
        }),
        // S20: there is a moment at which the truncate took place.
        Property::always(
            "a truncate cuts all that was before something that it cut",
            |w: &World, s: &State| {
                let ended = s.all().filter(|op| s.committed & bit(*op) != 0);
                let mut cuts = ended.filter(|op| s.fact(*op).what == What::Cut);
                cuts.all(|cut| (0..w.bytes).all(|at| survives_rightly(s, cut, s.found(at))))
            },
        ),
        Property::always("no other file at the name is replaced", |_, s: &State| match s.put {
            Name::P => matches!(s.name, Name::P | Name::Super(_)),
            put => s.name == put,
        }),
        Property::always("a file has one container", |_, s: &State| {
            s.procs.iter().all(|proc| match proc.on {
                On::Log(id) => s.said == Said::Container(id),
                _ => true,
            })
        }),
        Property::always("records are in containers that serve", |_, s: &State| {
            s.containers
                .iter()
                .all(|container| container.log.is_empty() || container.built == WHOLE)
        }),
        Property::always("a pinned file has no container", |_, s: &State| {
            let pinned = s.procs.iter().any(|proc| proc.on == On::Pinned);
            !(pinned && s.procs.iter().any(|proc| matches!(proc.on, On::Log(_))))
        }),
        Property::sometimes("a writer in place notices, and adopts", |_, s: &State| {
            s.containers.iter().any(|container| {
                container.log.iter().any(|record| matches!(record.what, What::Base(_)))
            })
        }),
        Property::sometimes("an adopted byte hides a record", |_, s: &State| {
            s.containers.iter().any(|container| {
                container.log.windows(2).any(|pair| match (pair[0].what, pair[1].what) {
                    (What::Byte(below), What::Base(above)) => below == above,
                    _ => false,
                })
            })
        }),
        Property::sometimes("a record hides what was written in place", |_, s: &State| {
            s.promoted().is_some_and(|id| {
                s.p.bytes[0] != 0
                    && s.committed & bit(s.p.bytes[0]) != 0
                    && s.found(0) != s.p.bytes[0]
                    && s.containers[id as usize].log.iter().all(|record| record.what != What::Cut)
            })
        }),
        Property::sometimes("what a killed promoter began is finished", |w: &World, s: &State| {
            s.budget.kills < w.budget.kills
                && s.procs.iter().any(|proc| matches!(proc.pc, Pc::Superblock { .. }))
        }),
        Property::sometimes("a file with two names is promoted", |_, s: &State| {
            s.second_name && s.promoted().is_some()
        }),
        Property::sometimes("a pin wins over a promotion", |_, s: &State| {
            s.said == Said::Pin && s.procs.iter().any(|proc| proc.pc == Pc::Claim)
        }),
        Property::sometimes("a promotion wins over a pin", |_, s: &State| {
            matches!(s.said, Said::Container(_)) && s.procs.iter().any(|proc| proc.pc == Pc::Pin)
        }),
        Property::sometimes("a promoter waits for a truncate in place", |_, s: &State| {
            s.gate.is_some() && s.procs.iter().any(|proc| matches!(proc.pc, Pc::Superblock { .. }))
        }),
        Property::sometimes(
            "the power is cut, and synced records are there",
            |w: &World, s: &State| {
                s.budget.power_cuts < w.budget.power_cuts
                    && s.containers.iter().any(|container| !container.log.is_empty())
            },
        ),
        Property::sometimes("a compaction is complete", |w: &World, s: &State| {
            s.budget.compactions < w.budget.compactions
                && s.containers.iter().any(|container| container.log.iter().any(|r| r.op == 0))
        }),
    ]
}

/// Something is there after a truncate that is over. So it was not before anything that the
/// truncate cut.
fn survives_rightly(s: &State, cut: u8, there: u8) -> bool {
    let fact = s.fact(cut);
    there == 0
        || s.all()
            .filter(|op| fact.cut & bit(*op) != 0)
            .all(|gone| s.fact(gone).before & bit(there) == 0)
}
