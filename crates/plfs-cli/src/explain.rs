//! `plfs explain-calls`: what of a program's file calls PLFS sees, by the call table of the preload
//! library. `plfs explain` is in [`file`](self::file()).

mod file;

use std::path::Path;

use serde::Serialize;

use crate::elf::{self, Kind, Program};
use crate::out::{Fail, JsonPath, Out, show};

pub use file::file;

/// The call table: "wrap NAME note", "pass NAME reason", "miss NAME reason".
const TABLE: &str = include_str!("../../../preload/calls.def");

#[derive(Serialize)]
struct Call {
    call: &'static str,
    verdict: &'static str,
    note: &'static str,
}

#[derive(Serialize)]
struct Explained {
    path: JsonPath,
    /// Why `plfs run` refuses it.
    refused: Option<String>,
    calls: Vec<Call>,
    own_syscalls: usize,
    needs: Vec<String>,
}

fn table() -> impl Iterator<Item = Call> {
    TABLE.lines().filter_map(|line| {
        let mut words = line.splitn(3, ' ');
        let verdict = match words.next()? {
            "wrap" => "covered",
            "pass" => "passed",
            "miss" => "missed",
            _ => return None,
        };
        Some(Call { call: words.next()?, verdict, note: words.next().unwrap_or_default() })
    })
}

pub fn explain(out: &mut Out, json: bool, binary: &Path) -> Result<(), Fail> {
    let mut path = match binary.exists() {
        true => binary.to_path_buf(),
        false => elf::find(binary)
            .filter(|path| path.exists())
            .ok_or_else(|| Fail::Say(format!("there is no program {}", show(binary))))?,
    };
    let mut scripts = Vec::new();
    let program = loop {
        match elf::look(&path, true) {
            Kind::Elf(program) => break program,
            Kind::Script(interpreter) if scripts.len() < 5 => {
                scripts.push(std::mem::replace(&mut path, interpreter))
            }
            _ => {
                return Err(Fail::Say(format!(
                    "{} is neither a program nor a script",
                    show(&path)
                )));
            }
        }
    };
    let imported =
        |call: &Call| program.imports.binary_search_by(|name| name.as_str().cmp(call.call)).is_ok();
    let explained = Explained {
        path: JsonPath::of(&path),
        refused: elf::refusal(&path).map(|why| format!("{} {why}", show(&path))),
        calls: table().filter(imported).collect(),
        own_syscalls: program.syscalls,
        needs: program.needed.clone(),
    };
    if json {
        return out.json(&explained);
    }
    for script in scripts {
        out.line(format_args!(
            "{} is a script; this is about its interpreter {}.",
            show(&script),
            show(&path)
        ))?;
    }
    print(out, &path, &program, &explained)
}

fn print(out: &mut Out, path: &Path, program: &Program, explained: &Explained) -> Result<(), Fail> {
    match &explained.refused {
        Some(why) => out.line(format_args!("not possible: {why}."))?,
        None => out.line(format_args!(
            "{}: {}",
            show(path),
            if program.library { "a library" } else { "`plfs run` can help this program" }
        ))?,
    }
    for (verdict, meaning) in [
        ("missed", "wrong or incomplete on PLFS files"),
        ("covered", "handled by PLFS"),
        ("passed", "the system's call is right on PLFS files"),
    ] {
        let calls: Vec<&Call> =
            explained.calls.iter().filter(|call| call.verdict == verdict).collect();
        out.line(format_args!("\n{verdict}: {} calls ({meaning})", calls.len()))?;
        for call in calls {
            match call.note {
                "" => out.line(format_args!("  {}", call.call))?,
                note => out.line(format_args!("  {:24} {note}", call.call))?,
            }
        }
    }
    if explained.own_syscalls > 0 {
        let n = explained.own_syscalls;
        out.line(format_args!(
            "\nIt seems to have {n} system call instruction{} of its own. What they do to files, \
             PLFS cannot see.",
            if n == 1 { "" } else { "s" }
        ))?;
    }
    let known = |name: &&String| {
        !["libc.so", "libm.so", "ld-linux", "libpthread.so", "libdl.so", "librt.so", "libgcc_s.so"]
            .iter()
            .any(|start| name.starts_with(start))
    };
    let others: Vec<&str> = explained.needs.iter().filter(known).map(String::as_str).collect();
    if !others.is_empty() {
        out.line(format_args!(
            "\nLibraries that it loads may make calls of their own; ask for each: {}",
            others.join(" ")
        ))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_table_is_read_whole() {
        let lines =
            super::TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).count();
        assert_eq!(super::table().count(), lines);
        assert!(super::table().any(|call| call.call == "openat" && call.verdict == "covered"));
        assert!(super::table().all(|call| call.verdict != "missed" || !call.note.is_empty()));
    }
}
