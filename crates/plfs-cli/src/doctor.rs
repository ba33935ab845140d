//! `plfs doctor`: what of this machine and of a directory's storage PLFS can use, and what to do
//! about the rest.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use plfs_core::Config;
use plfs_core::store::{Errno, LockKind, Open, PosixStore, Store};
use rustix::fs::{Mode, OFlags, ResolveFlags, XattrFlags};
use serde::Serialize;

use crate::out::{Fail, JsonPath, Out, absolute, count, show, size, without_numbers};
use crate::run;

/// Shared memory below which many files at once may find no room: a file that is written takes
/// 8 KiB of it, a directory of small files 520 KiB.
const MEMORY_MIN: u64 = 16 << 20;

/// Descriptors below which a program with many files may find none. 1,024 is what most systems
/// give.
const DESCRIPTORS_MIN: u64 = 1024;

/// Clocks further apart than this many seconds are worth a word. No byte depends on them; a file
/// whose time lies in the future stays plain until then (SEMANTICS S36).
const SKEW_S: f64 = 1.0;

/// What is tried lies in a file of this name, with the process's number behind.
const PROBE: &str = ".plfs-doctor.";

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Ok,
    /// PLFS works, but something of it does not, or is slower.
    Limited,
    /// PLFS does not work.
    Broken,
}

#[derive(Serialize)]
struct Finding {
    what: &'static str,
    verdict: Verdict,
    found: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<&'static str>,
}

impl Finding {
    fn ok(what: &'static str, found: impl AsRef<str>) -> Finding {
        let found = without_numbers(found.as_ref());
        Finding { what, verdict: Verdict::Ok, found, advice: None }
    }

    fn limited(what: &'static str, found: impl AsRef<str>, advice: &'static str) -> Finding {
        Finding { verdict: Verdict::Limited, advice: Some(advice), ..Finding::ok(what, found) }
    }

    fn broken(what: &'static str, found: impl AsRef<str>, advice: &'static str) -> Finding {
        Finding { verdict: Verdict::Broken, ..Finding::limited(what, found, advice) }
    }
}

#[derive(Serialize)]
struct Answer {
    version: &'static str,
    directory: JsonPath,
    findings: Vec<Finding>,
}

pub fn doctor(out: &mut Out, dir: &Path, json: bool) -> Result<(), Fail> {
    let full = absolute(dir)?;
    let mut findings = vec![kernel(), descriptors()];
    findings.extend(programs());
    let config = match Config::from_env() {
        Ok(config) => config,
        Err(text) => {
            let advice = "mend it, or take it away; `plfs config check` says more";
            findings.push(Finding::broken("settings", text, advice));
            Config::default()
        }
    };
    findings.push(memory(&config));
    findings.push(fuse());
    findings.extend(storage(&config, &full));
    findings.extend(backends(&config, &full));
    let is_broken = findings.iter().any(|finding| finding.verdict == Verdict::Broken);
    let answer =
        Answer { version: env!("CARGO_PKG_VERSION"), directory: JsonPath::of(&full), findings };
    if json {
        out.json(&answer)?;
    } else {
        print(out, &answer)?;
    }
    if is_broken { Err(Fail::Printed) } else { Ok(()) }
}

fn print(out: &mut Out, answer: &Answer) -> Result<(), Fail> {
    for Finding { what, verdict, found, advice } in &answer.findings {
        let word = match verdict {
            Verdict::Ok => "ok",
            Verdict::Limited => "limited",
            Verdict::Broken => "BROKEN",
        };
        out.line(format_args!("{word:8} {what:15} {}", found.replace('\n', " ")))?;
        if let Some(advice) = advice {
            out.line(format_args!("{:24} {advice}", ""))?;
        }
    }
    Ok(())
}

fn kernel() -> Finding {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let beneath = rustix::fs::openat2(
        rustix::fs::CWD,
        "/",
        OFlags::PATH | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::NO_SYMLINKS,
    );
    match beneath {
        Ok(_) => Finding::ok("kernel", format!("Linux {release}")),
        Err(_) => Finding::limited(
            "kernel",
            format!("Linux {release}, without openat2"),
            "each lookup in a container takes a call for each directory; 5.6 and later have it, \
             if no sandbox forbids it",
        ),
    }
}

fn descriptors() -> Finding {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    match limit {
        Some(limit) if limit < DESCRIPTORS_MIN => Finding::limited(
            "descriptors",
            format!("{} for a process", count(limit)),
            "a program with many files may find none left: `ulimit -n 4096`",
        ),
        limit => Finding::ok(
            "descriptors",
            limit.map_or("no limit".into(), |limit| format!("{} for a process", count(limit))),
        ),
    }
}

/// The libraries that `plfs run` loads.
fn programs() -> Vec<Finding> {
    let preload = match run::preload() {
        Ok(preload) => preload,
        Err(Fail::Say(text)) => {
            return vec![Finding::broken("plfs run", text, "programs cannot be run until then")];
        }
        Err(_) => return Vec::new(),
    };
    let mpi = match run::mpi_adapters(&preload).as_slice() {
        [] => Finding::limited(
            "MPI-IO",
            "no adapter is installed",
            "programs with MPI work through their file calls; build PLFS where mpicc is for more",
        ),
        names => Finding::ok("MPI-IO", format!("for {}", names.join(", "))),
    };
    vec![Finding::ok("plfs run", show(&preload)), mpi]
}

/// Where the processes of this machine meet.
fn memory(config: &Config) -> Finding {
    let advice = "each process writes logs of its own there, and a file that many processes write \
                  has many; mount a tmpfs at /dev/shm, or name a directory of one in \
                  PLFS_SHARED_MEMORY";
    let Some(dir) = &config.shared_memory else {
        return Finding::limited("shared memory", "PLFS_SHARED_MEMORY says none", advice);
    };
    let store = PosixStore::new();
    let space = match store.space(dir) {
        Ok(space) => space,
        Err(errno) => {
            let found = format!("{}: {}", show(dir), why(errno));
            return Finding::limited("shared memory", found, advice);
        }
    };
    let found = format!("{}, {} free", show(dir), size(space.available));
    if let Err(error) = Probe::new(dir) {
        return Finding::limited("shared memory", format!("{}: {error}", show(dir)), advice);
    }
    if space.available < MEMORY_MIN {
        let advice = "files that find no room get logs of their own: remove what is not needed, or \
                      make it larger";
        return Finding::limited("shared memory", found, advice);
    }
    Finding::ok("shared memory", found)
}

fn fuse() -> Finding {
    let advice = "`plfs mount` cannot be used; `plfs run` does not need it. Install the package \
                  fuse3, and load the module: modprobe fuse";
    let device = Path::new("/dev/fuse");
    if !fs::metadata(device).is_ok_and(|device| device.file_type().is_char_device()) {
        return Finding::limited("plfs mount", "there is no /dev/fuse", advice);
    }
    if let Err(error) = OpenOptions::new().read(true).write(true).open(device) {
        return Finding::limited("plfs mount", format!("/dev/fuse: {error}"), advice);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let helper =
        std::env::split_paths(&path).map(|dir| dir.join("fusermount3")).find(|path| path.exists());
    match helper {
        _ if rustix::process::geteuid().is_root() => Finding::ok("plfs mount", "as root"),
        Some(helper) => Finding::ok("plfs mount", format!("by {}", show(&helper))),
        None => Finding::limited("plfs mount", "no fusermount3 in PATH", advice),
    }
}

/// A file that is there while somebody tries what can be done with it.
struct Probe {
    path: PathBuf,
    file: File,
}

impl Probe {
    fn new(dir: &Path) -> std::io::Result<Probe> {
        let path = dir.join(format!("{PROBE}{}", std::process::id()));
        let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
        let written = file.write_all(b"plfs doctor");
        let probe = Probe { path, file };
        written.map(|()| probe)
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn storage(config: &Config, dir: &Path) -> Vec<Finding> {
    let store = PosixStore::new();
    let what = "directory";
    let probe = match Probe::new(dir) {
        Ok(probe) => probe,
        Err(error) => {
            let found = format!("{}: {error}", show(dir));
            let advice = "name one in which you may make files: plfs doctor DIR";
            return vec![Finding::broken(what, found, advice)];
        }
    };
    let kind = match store.is_local(dir) {
        true => "of this machine",
        false => "storage that machines may share",
    };
    let free =
        store.space(dir).map_or(String::new(), |space| format!(", {} free", size(space.available)));
    let mut found = vec![match store.close_to_open(dir) {
        None => Finding::ok(what, format!("{}: {kind}{free}", show(dir))),
        Some(name) if config.close_to_open == plfs_core::CloseToOpen::OneNode => Finding::ok(
            what,
            format!("{}: {name}, which one machine alone writes (PLFS_CLOSE_TO_OPEN)", show(dir)),
        ),
        Some(name) => Finding::broken(
            what,
            format!("{}: {name}, whose clients do not see at once what others did", show(dir)),
            "files there are read, and not written; if one machine alone writes them, set \
             PLFS_CLOSE_TO_OPEN=one-node",
        ),
    }];
    found.push(links(&probe));
    found.push(locks(&store, &probe));
    found.push(attributes(&probe));
    found.extend(clock(&probe));
    found
}

fn links(probe: &Probe) -> Finding {
    let mut other = probe.path.clone().into_os_string();
    other.push(".link");
    let linked = fs::hard_link(&probe.path, &other);
    let _ = fs::remove_file(&other);
    match linked {
        Ok(()) => Finding::ok("hard links", "work"),
        Err(error) => Finding::broken(
            "hard links",
            error.to_string(),
            "the names of shared files are hard links: keep them on a file system that has them",
        ),
    }
}

fn locks(store: &PosixStore, probe: &Probe) -> Finding {
    let advice = "what keeps two commands from repairing or compacting one file at a time does \
                  not work: mount it with locks (Lustre: -o flock)";
    let lock = || -> Result<[bool; 2], Errno> {
        let one = store.open(&probe.path, Open::READ)?;
        let other = store.open(&probe.path, Open::READ)?;
        Ok([one.try_lock(LockKind::Exclusive)?, other.try_lock(LockKind::Exclusive)?])
    };
    match lock() {
        Ok([true, false]) => Finding::ok("locks", "work"),
        Ok(_) => Finding::limited("locks", "two can have one at a time", advice),
        Err(errno) => Finding::limited("locks", why(errno), advice),
    }
}

fn attributes(probe: &Probe) -> Finding {
    match rustix::fs::fsetxattr(&probe.file, "user.plfs.doctor", b"1", XattrFlags::empty()) {
        Ok(()) => Finding::ok("attributes", "work (user.*)"),
        Err(errno) => Finding::limited(
            "attributes",
            format!("user.*: {}", why(errno)),
            "a plain file that several write stays plain, and is as slow as without PLFS: \
             `plfs layout --workload shared DIR` makes logs of new files from the start",
        ),
    }
}

/// How far the clock of the storage is from this machine's.
fn clock(probe: &Probe) -> Option<Finding> {
    let mtime = probe.file.metadata().ok()?;
    let theirs = mtime.mtime() as f64 + mtime.mtime_nsec() as f64 / 1e9;
    let ours = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs_f64();
    let ahead = theirs - ours;
    Some(match ahead.abs() > SKEW_S {
        false => Finding::ok("clock", "the storage has the time of this machine"),
        true => Finding::limited(
            "clock",
            format!(
                "the storage is {:.1} s {}",
                ahead.abs(),
                if ahead > 0.0 { "ahead" } else { "behind" }
            ),
            "no byte depends on it, but a file whose time lies in the future stays plain until \
             then: run NTP on both",
        ),
    })
}

/// The backends of the root that a directory is in.
fn backends(config: &Config, dir: &Path) -> Vec<Finding> {
    let store: std::sync::Arc<dyn Store> = std::sync::Arc::new(PosixStore::new());
    let Some(root) = dir.ancestors().find(|dir| dir.join(".plfs").is_dir()) else {
        return Vec::new();
    };
    let advice = "mount it, or say where it is now: plfs backend move";
    match plfs_core::backends(&store, config, root) {
        Ok(rows) => rows
            .into_iter()
            .filter(|row| row.id > 0)
            .map(|row| match row.presence {
                plfs_core::Presence::There => {
                    Finding::ok("backend", format!("{:04x} {}", row.id, show(&row.path)))
                }
                plfs_core::Presence::Not(error) => {
                    Finding::broken("backend", error.to_string(), advice)
                }
            })
            .collect(),
        Err(error) => vec![Finding::broken("backends", error.to_string(), "plfs check says more")],
    }
}

fn why(errno: Errno) -> String {
    std::io::Error::from(errno).to_string()
}
