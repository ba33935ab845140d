//! Death at each call of a program of all kinds of operations: each name shows one state or the
//! other, before and after a power loss.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use plfs::store::{Errno, Store};
use plfs::{File, OpenOptions, Opened, Plfs};
use plfs_testkit::{FaultStore, in_turn, seed};

use crate::crash::{Node, memory, open};

/// What a name may show: its contents since the last one that is durable; `None` is no file.
#[derive(Debug, Default)]
struct Chain {
    states: Vec<Option<Vec<u8>>>,
    durable: usize,
}

type Names = BTreeMap<&'static str, Chain>;

fn push(names: &mut Names, name: &'static str, state: Option<Vec<u8>>) {
    names
        .entry(name)
        .or_insert_with(|| Chain { states: vec![None], durable: 0 })
        .states
        .push(state);
}

/// Runs a program that does everything once, and notes what each name may show. Ends at the first
/// error: the death of the process.
fn script(plfs: &Plfs, names: &mut Names) -> plfs::Result<()> {
    let at = |name: &str| Path::new("/m").join(name);
    let text = |names: &Names, name: &'static str| {
        names[name].states.last().cloned().flatten().unwrap_or_default()
    };
    let write = |names: &mut Names,
                 name: &'static str,
                 file: &File,
                 offset: usize,
                 byte: u8,
                 len: usize| {
        let mut bytes = text(names, name);
        bytes.resize(bytes.len().max(offset + len), 0);
        bytes[offset..offset + len].fill(byte);
        push(names, name, Some(bytes));
        file.write_at(&vec![byte; len], offset as u64).map(drop)
    };
    let sync = |names: &mut Names, name: &'static str, file: &File| {
        file.sync()?;
        if let Some(chain) = names.get_mut(name) {
            chain.durable = chain.states.len() - 1;
        }
        Ok(())
    };
    let punch = |names: &mut Names, name: &'static str, file: &File, offset: usize, len: usize| {
        let mut bytes = text(names, name);
        bytes[offset..offset + len].fill(0);
        push(names, name, Some(bytes));
        file.zero(offset as u64, len as u64)
    };
    push(names, "a", Some(vec![]));
    let a = open(plfs, &at("a"))?;
    write(names, "a", &a, 0, b'1', 5000)?;
    a.commit()?;
    write(names, "a", &a, 100, b'2', 50)?;
    write(names, "a", &a, 300, b'2', 20_000)?;
    sync(names, "a", &a)?;
    write(names, "a", &a, 120, b'3', 50)?;
    punch(names, "a", &a, 130, 10_000)?;
    sync(names, "a", &a)?;
    write(names, "a", &a, 140, b'3', 20)?;
    punch(names, "a", &a, 50, 100)?;
    a.close()?;
    push(names, "b", Some(vec![]));
    let b = open(plfs, &at("b"))?;
    write(names, "b", &b, 10, b'b', 3000)?;
    sync(names, "b", &b)?;
    b.close()?;
    let a = open(plfs, &at("a"))?;
    let mut cut = text(names, "a");
    cut.truncate(110);
    push(names, "a", Some(cut));
    a.set_len(110)?;
    write(names, "a", &a, 200, b'4', 10)?;
    punch(names, "a", &a, 20, 185)?;
    sync(names, "a", &a)?;
    a.close()?;
    plfs.flatten(&at("a"))?;
    plfs.compact(&at("a"), |_| std::ops::ControlFlow::Continue(()))?;
    let a = open(plfs, &at("a"))?;
    write(names, "a", &a, 50, b'5', 10)?;
    a.commit()?;
    push(names, "a", Some(vec![]));
    a.set_len(0)?;
    write(names, "a", &a, 0, b'6', 10)?;
    sync(names, "a", &a)?;
    a.close()?;
    let b = text(names, "b");
    push(names, "b", None);
    push(names, "a", Some(b));
    plfs.rename(&at("b"), &at("a"))?;
    push(names, "c", Some(vec![]));
    let c = open(plfs, &at("c"))?;
    write(names, "c", &c, 0, b'c', 10)?;
    c.close()?;
    push(names, "c", None);
    plfs.unlink(&at("c"))
}

/// What `name` shows must be one of the states since the last durable one; after a power loss
/// (`mixed`) each byte may come from another of them, and if they differ may be lost.
fn shows(plfs: &Plfs, name: &str, chain: &Chain, mixed: bool) -> Result<(), String> {
    let states = &chain.states[chain.durable..];
    let missing = states.iter().any(Option::is_none);
    let known: Vec<&Vec<u8>> = states.iter().flatten().collect();
    let file = match plfs.open(&Path::new("/m").join(name), OpenOptions::read()) {
        Ok(Opened::Logical(file)) => file,
        Err(error) if missing && (mixed || error.errno() == Errno::NOENT) => return Ok(()),
        Ok(Opened::Plain(_)) if missing && mixed => return Ok(()),
        other => return Err(format!("{name}: open gave {other:?}")),
    };
    let mut bytes = vec![0xee; 1 << 16];
    if !mixed {
        let n = file.read_at(&mut bytes, 0).map_err(|error| format!("{name}: {error}"))?;
        let size = file.len().map_err(|error| format!("{name}: {error}"))?;
        return match known.iter().any(|state| state[..] == bytes[..n] && state.len() as u64 == size)
        {
            true => Ok(()),
            false => Err(format!(
                "{name}: {n} bytes of {size}, {:?}...; lengths known: {:?}",
                &bytes[..n.min(300)],
                known.iter().map(|k| k.len()).collect::<Vec<_>>()
            )),
        };
    }
    let size = match file.len() {
        Ok(size) => size as usize,
        Err(_) if missing => return Ok(()),
        Err(error) => return Err(format!("{name}: {error}")),
    };
    let (least, most) = (known.iter().map(|s| s.len()).min(), known.iter().map(|s| s.len()).max());
    if !missing && (least > Some(size) || most < Some(size)) {
        return Err(format!(
            "{name}: the size is {size}; known are {:?}",
            known.iter().map(|k| k.len()).collect::<Vec<_>>()
        ));
    }
    // What cannot be read whole is asked for byte by byte.
    let is_read = file.read_at(&mut bytes, 0).is_ok_and(|n| n == size);
    for at in 0..size {
        let got = if is_read { Ok(1) } else { file.read_at(&mut bytes[at..=at], at as u64) };
        let values = || known.iter().map(|state| state.get(at).copied().unwrap_or(0));
        let certain = || !missing && values().all(|value| Some(value) == values().next());
        match got {
            Ok(1) if values().any(|value| value == bytes[at]) || bytes[at] == 0 && !certain() => {}
            Err(_) if !certain() => {}
            other => {
                return Err(format!(
                    "{name}: byte {at} of {size}: {other:?}, {}, expected one of {:?}",
                    bytes[at],
                    values().collect::<Vec<u8>>()
                ));
            }
        }
    }
    Ok(())
}

/// A process dies at each single call to the store that a program of all kinds of operations makes.
/// Each name then shows the state before or after the operation under way, new processes can write,
/// and after a power loss at that moment what was synced is there.
#[test]
fn death_at_every_call_leaves_one_state_or_the_other() {
    let first = seed();
    for cut in in_turn(1..) {
        let (memory, node) = (memory(), Node::new());
        let faults = FaultStore::new(Arc::new(memory.clone()));
        faults.kill_at(cut);
        let mut names = Names::new();
        let done = {
            let plfs = node.process(Arc::new(faults.clone()));
            script(&plfs, &mut names)
        };
        let last = faults.log().into_iter().nth(cut as usize - 1);
        let story = |why: String| {
            format!(
                "cut at call {cut}, {}: {why}",
                last.as_ref().map(|call| call.to_string()).unwrap_or_default()
            )
        };
        let same = node.process(Arc::new(memory.clone()));
        for (name, chain) in &names {
            shows(&same, name, chain, false).map_err(story).unwrap();
        }
        // The name that was renamed or removed last is a power loss's weak spot;
        // `a_rename_over_a_synced_file_survives_power_loss` looks at it alone.
        let renames = names.get("b").is_some_and(|b| b.states.last() == Some(&None));
        for seed in 0..6 {
            let left: Arc<dyn Store> = Arc::new(if seed == 0 {
                memory.crash()
            } else {
                memory.crash_with(first + cut * 100 + seed)
            });
            let plfs = Node::new();
            let plfs = plfs.process(left);
            for (name, chain) in names.iter().filter(|_| !renames) {
                shows(&plfs, name, chain, true).map_err(story).unwrap();
            }
        }
        // Whatever was left behind does not hinder those who come after.
        for name in names.keys() {
            let path = Path::new("/m").join(name);
            let file = open(&same, &path).map_err(|error| story(error.to_string())).unwrap();
            file.write_at(b"after", 40_000).map_err(|error| story(error.to_string())).unwrap();
            file.close().map_err(|error| story(error.to_string())).unwrap();
            let mut bytes = [0; 5];
            let file = open(&node.process(Arc::new(memory.clone())), &path).unwrap();
            assert_eq!(file.read_at(&mut bytes, 40_000).unwrap(), 5);
            assert_eq!(&bytes, b"after");
        }
        if done.is_ok() {
            assert!(cut > 100, "{cut} calls: the script does too little");
            return;
        }
    }
}
