//! The layers of the engine (docs/ARCHITECTURE.md, "Layers"): each module uses only what is below
//! it, and only the store asks the system for anything.
//!
//! This reads the source as text. What it cannot follow, a `use crate::{…}` of several modules or a
//! name of the crate's root, it refuses.

use std::fs;
use std::path::{Path, PathBuf};

/// The modules of this crate, the lowest first. A module may use those in the rows above its own,
/// not those beside it.
const LAYERS: &[&[&str]] = &[
    &["sync"],
    &["ending", "environment"],
    &["store"],
    &["plfsrc"],
    &["config", "error"],
    &["container"],
    &["log"],
    &["catalog", "read", "write"],
    &["lifecycle"],
    &["autocommit", "compact", "in_place", "pack", "sessions"],
    &["federation", "probe", "spread"],
    &["logical", "packs"],
    &["process"],
    &["plain"],
    &["file"],
    &["plfs"],
];

/// The only files that may use rustix: the system calls, and the error numbers and the clock that
/// all have from the store.
const SYSTEM: &[&str] = &[
    "store/beneath.rs",
    "store/limit.rs",
    "store/locked_memory.rs",
    "store/machine.rs",
    "store/mod.rs",
    "store/posix.rs",
    "store/posix/calls.rs",
    "store/posix/fd.rs",
    "store/posix/file.rs",
    "store/posix/file_system.rs",
    "store/probe.rs",
    "store/shm.rs",
];

/// What pure crates do without: files, time, and all that is outside of the process.
const OUTSIDE: &[&str] = &[
    "rustix",
    "libc::",
    "std::env",
    "std::fs",
    "std::io",
    "std::net",
    "std::os",
    "std::path",
    "std::process",
    "std::thread::s",
    "std::time",
];

/// A line of code.
struct Line {
    /// File and number, to be clicked at.
    place: String,
    /// Without its comment.
    code: String,
    /// How many modules it is in, those in its file included.
    depth: usize,
    /// It is in a module of its file: a unit test.
    inner: bool,
}

/// All files below `src` with their paths in it, and all their lines that are not comments.
fn sources(src: &Path) -> Vec<(String, Vec<Line>)> {
    let (mut todo, mut files) = (vec![src.to_path_buf()], Vec::new());
    while let Some(path) = todo.pop() {
        if path.is_dir() {
            todo.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let name = path.strip_prefix(src).unwrap().to_str().unwrap().to_string();
            files.push((name, lines(&path, src)));
        }
    }
    files.sort_by(|a, b| a.0.cmp(&b.0));
    assert!(!files.is_empty(), "no source in {}", src.display());
    files
}

fn lines(path: &Path, src: &Path) -> Vec<Line> {
    let name = path.strip_prefix(src).unwrap();
    let is_root = name == Path::new("lib.rs");
    let is_mod = name.file_name().is_some_and(|file| file == "mod.rs");
    let module = name.components().count() - usize::from(is_root || is_mod);
    let (mut inner, mut all) = (false, Vec::new());
    for (n, line) in fs::read_to_string(path).unwrap().lines().enumerate() {
        let code = line.split("//").next().unwrap_or_default().to_string();
        // In this workspace an inner module is the last thing in its file.
        let words = code.trim_start().trim_start_matches("pub ");
        inner |= words.starts_with("mod ") && words.ends_with('{');
        let place = format!("{}:{}", path.display(), n + 1);
        all.push(Line { place, code, depth: module + usize::from(inner), inner });
    }
    all
}

/// What follows `crate::`, or as many `super::` as lead to the crate's root, in a line.
fn from_root(line: &Line) -> Vec<String> {
    let climb = "super::".repeat(line.depth);
    let starts = ["crate::", climb.as_str()].into_iter().filter(|start| !start.is_empty());
    let mut found = Vec::new();
    for start in starts {
        for (at, _) in line.code.match_indices(start) {
            let before = line.code[..at].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '$' || c == ':') {
                continue;
            }
            let after = &line.code[at + start.len()..];
            let end = after.find(|c: char| !c.is_alphanumeric() && c != '_');
            let word = &after[..end.unwrap_or(after.len())];
            found.push(if word.is_empty() { after.to_string() } else { word.to_string() });
        }
    }
    found
}

fn level(module: &str) -> Option<usize> {
    LAYERS.iter().position(|row| row.contains(&module))
}

/// What is wrong with a line of `module`.
fn climbs(module: &str, own: usize, line: &Line) -> Vec<String> {
    let wrong = |used: &String| match level(used) {
        _ if used == module => None,
        Some(other) if other < own => None,
        Some(_) => Some(format!("{}: {module} uses {used}, which is not below it", line.place)),
        None => Some(format!("{}: name the module of `{used}`, one in a line", line.place)),
    };
    from_root(line).iter().filter_map(wrong).collect()
}

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn assert_none(wrong: &[String]) {
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

#[test]
fn modules_use_only_what_is_below_them() {
    let (mut wrong, mut seen) = (Vec::new(), Vec::new());
    for (name, lines) in sources(&crates().join("plfs/src")) {
        // The root gathers the public names of all.
        if name == "lib.rs" {
            continue;
        }
        let module = name.split(['/', '.']).next().unwrap().to_string();
        match level(&module) {
            Some(own) => wrong.extend(lines.iter().flat_map(|line| climbs(&module, own, line))),
            None => wrong.push(format!("{name}: {module} has no place in LAYERS")),
        }
        seen.push(module);
    }
    let gone = LAYERS.concat().into_iter().filter(|module| !seen.iter().any(|it| it == module));
    wrong.extend(gone.map(|module| format!("LAYERS has {module}, which is no module")));
    assert_none(&wrong);
}

#[test]
fn only_the_store_asks_the_system() {
    let mut wrong = Vec::new();
    for (name, lines) in sources(&crates().join("plfs/src")) {
        let is_store = SYSTEM.contains(&name.as_str());
        // Unit tests may make a directory for themselves.
        for line in lines.iter().filter(|line| !line.inner) {
            let calls =
                ["std::fs", "libc::", "SystemTime"].iter().any(|call| line.code.contains(call));
            if calls || (!is_store && line.code.contains("rustix")) {
                wrong.push(format!(
                    "{}: only the store asks the system: {}",
                    line.place,
                    line.code.trim()
                ));
            }
        }
    }
    assert_none(&wrong);
}

/// Locks, atomics and threads are those of `sync`: a schedule that another build explores there
/// leaves nothing out.
#[test]
fn locks_and_threads_come_from_one_module() {
    let mut wrong = Vec::new();
    for (name, lines) in sources(&crates().join("plfs/src")) {
        for line in lines.iter().filter(|_| name != "sync.rs") {
            if ["std::sync", "std::thread", "core::sync"].iter().any(|it| line.code.contains(it)) {
                wrong.push(format!(
                    "{}: take it from crate::sync: {}",
                    line.place,
                    line.code.trim()
                ));
            }
        }
    }
    assert_none(&wrong);
}

#[test]
fn pure_crates_know_nothing_outside() {
    let mut wrong = Vec::new();
    for (name, needs, knows) in [
        ("plfs-format", &["base64", "crc-fast", "zerocopy"][..], &[][..]),
        ("plfs-index", &["plfs-format", "zerocopy"], &[]),
        ("plfs-pack", &["plfs-format"], &[]),
        ("plfs-placement", &[], &[]),
        // A plfsrc names directories.
        ("plfs-rc", &["plfs-format", "saphyr-parser"], &["std::path"]),
    ] {
        let path = crates().join(name);
        let outside: Vec<_> = OUTSIDE.iter().filter(|word| !knows.contains(*word)).collect();
        // A file of unit tests may look at a clock.
        for (_, lines) in
            sources(&path.join("src")).iter().filter(|(file, _)| !file.ends_with("tests.rs"))
        {
            for line in
                lines.iter().filter(|line| outside.iter().any(|word| line.code.contains(**word)))
            {
                wrong.push(format!("{}: {name} is pure: {}", line.place, line.code.trim()));
            }
        }
        let manifest = fs::read_to_string(path.join("Cargo.toml")).unwrap();
        let after = manifest.split("[dependencies]\n").nth(1).unwrap();
        for line in after.lines().take_while(|line| !line.starts_with('[') && !line.is_empty()) {
            if !needs.contains(&line.split(['.', ' ', '=']).next().unwrap()) {
                wrong
                    .push(format!("{}: {name} is pure: {line}", path.join("Cargo.toml").display()));
            }
        }
        let root = fs::read_to_string(path.join("src/lib.rs")).unwrap();
        assert!(root.contains("#![forbid(unsafe_code)]"), "{name} has unsafe code");
    }
    assert_none(&wrong);
}

/// The other tests find nothing in a tree that is right. This one shows that they would.
#[test]
fn arrows_that_go_up_are_found() {
    let line =
        |code: &str, depth| Line { place: "x.rs:1".into(), code: code.into(), depth, inner: false };
    let own = level("log").unwrap();
    for (code, depth, count) in [
        ("use crate::container::Container;", 2, 0),
        ("use crate::log::scan;", 2, 0),
        ("use crate::store::{self, Open};", 2, 0),
        ("use super::index_log::scan;", 2, 0),
        ("use other_crate::catalog::Index;", 2, 0),
        ("use crate::catalog::Index;", 2, 1),
        ("pub(in crate::log) fn f(a: crate::store::Time, b: &crate::catalog::Index) {}", 2, 1),
        ("use super::super::catalog::Index;", 2, 1),
        ("use super::catalog::Index;", 1, 1),
        ("use crate::{catalog, store};", 2, 1),
        ("use crate::Config;", 2, 1),
    ] {
        assert_eq!(climbs("log", own, &line(code, depth)).len(), count, "{code}");
    }
}
