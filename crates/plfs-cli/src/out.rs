//! What all commands share: how they print, how they fail, how they name files.

use std::io::{BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use indicatif::{ProgressBar, ProgressStyle};
use plfs_core::store::{Errno, Links, Stat};
use plfs_core::{Config, Plfs};
pub use plfs_fuse::JsonPath;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Shorter work ends before a progress bar can be read.
const PROGRESS_MIN: u64 = 256 << 20;

/// Why a command ends early.
pub enum Fail {
    /// A sentence for people; exit status 1.
    Say(String),
    /// A sentence about how the command was used, or a program that cannot be run: with its own
    /// exit status.
    Exit(u8, String),
    /// Standard output was closed by its reader. Nothing is printed; exit status 141, as of a
    /// program that SIGPIPE ends.
    Pipe,
    /// The errors were printed already; exit status 1.
    Printed,
}

impl Fail {
    /// "cannot OP PATH: why".
    pub fn on(op: &str, path: &Path, why: impl std::fmt::Display) -> Fail {
        Fail::Say(format!("cannot {op} {}: {why}", show(path)))
    }

    /// Prints the one line and gives the exit status.
    pub fn report(self, command: &str) -> ExitCode {
        match self {
            Fail::Say(text) => {
                say(command, &text);
                ExitCode::from(1)
            }
            Fail::Exit(code, text) => {
                say(command, &text);
                ExitCode::from(code)
            }
            Fail::Pipe => ExitCode::from(141),
            Fail::Printed => ExitCode::from(1),
        }
    }
}

/// One line on standard error; errors of writing it are ignored.
pub fn say(command: &str, text: &str) {
    let text = without_numbers(text).replace('\n', "\\n");
    let _ = writeln!(std::io::stderr(), "plfs: {command}: {text}");
}

/// A sentence without the numbers of errors, as " (os error 2)": their words are there.
pub fn without_numbers(text: &str) -> String {
    let mut parts = text.split(" (os error ");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once(')') {
            Some((number, rest)) if number.bytes().all(|byte| byte.is_ascii_digit()) => {
                plain += rest;
            }
            _ => plain = plain + " (os error " + part,
        }
    }
    plain
}

impl From<plfs_core::Error> for Fail {
    fn from(error: plfs_core::Error) -> Fail {
        Fail::Say(error.to_string())
    }
}

impl From<std::io::Error> for Fail {
    fn from(error: std::io::Error) -> Fail {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => Fail::Pipe,
            _ => Fail::Say(format!("cannot write to standard output: {error}")),
        }
    }
}

/// The signal that has asked the command to end; 0 if none has.
static SIGNAL: LazyLock<Arc<AtomicUsize>> = LazyLock::new(Arc::default);

/// True from the first signal on that asks the command to end, which then does not end it. Signals
/// that the command was started to ignore, as by nohup, stay ignored.
pub fn stop() -> Result<Arc<AtomicBool>, Fail> {
    let stop = Arc::new(AtomicBool::new(false));
    let ignored = ignored_signals();
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        if ignored >> (signal - 1) & 1 == 1 {
            continue;
        }
        signal_hook::flag::register_usize(signal, SIGNAL.clone(), signal as usize)
            .and_then(|_| signal_hook::flag::register(signal, stop.clone()))
            .map_err(|error| Fail::Say(format!("cannot wait for signals: {error}")))?;
    }
    // One that came between the two.
    if SIGNAL.load(Ordering::Relaxed) != 0 {
        stop.store(true, Ordering::Relaxed);
    }
    Ok(stop)
}

/// The set of signals that this process ignores, the first in the lowest bit.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let set = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0)
}

/// Ends a command that failed after a signal as that signal would have: who waits for it, as a
/// shell with a loop, knows then that it was interrupted.
pub fn die_by_signal() {
    if let Ok(signal @ 1..) = i32::try_from(SIGNAL.load(Ordering::Relaxed)) {
        let _ = signal_hook::low_level::emulate_default_handler(signal);
    }
}

/// Standard output, buffered; a closed pipe is an error, not a panic.
pub struct Out(BufWriter<std::io::Stdout>);

impl Out {
    pub fn new() -> Out {
        Out(BufWriter::with_capacity(1 << 16, std::io::stdout()))
    }

    pub fn line(&mut self, text: impl std::fmt::Display) -> Result<(), Fail> {
        Ok(writeln!(self.0, "{text}")?)
    }

    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), Fail> {
        Ok(self.0.write_all(bytes)?)
    }

    pub fn json(&mut self, value: &impl serde::Serialize) -> Result<(), Fail> {
        serde_json::to_writer_pretty(&mut self.0, value).map_err(std::io::Error::from)?;
        self.line("")
    }

    pub fn end(&mut self) -> Result<(), Fail> {
        Ok(self.0.flush()?)
    }
}

/// PLFS as the environment configures it.
pub fn plfs() -> Result<Plfs, Fail> {
    Config::from_env().map(Plfs::posix).map_err(|text| Fail::Exit(2, text))
}

/// Writes a picture to a file. Refuses a PLFS file: the picture would take the place of what leads
/// to its data.
pub fn picture(plfs: &Plfs, target: &Path, svg: &str) -> Result<(), Fail> {
    let full = absolute(target)?;
    let is_ours = plfs.packed_stat(&full)?.is_some()
        || match plfs.container_behind(&full, Links::Follow) {
            Ok(found) => found.is_some(),
            Err(error) => return Err(Fail::on("write", target, error)),
        };
    match is_ours {
        false => std::fs::write(target, svg).map_err(|error| Fail::on("write", target, error)),
        true => Err(Fail::on("write", target, "it is a PLFS file; name another for the picture")),
    }
}

/// What the storage says of a name, which in a flat directory lies elsewhere.
pub fn stored(plfs: &Plfs, full: &Path, links: Links) -> plfs_core::Result<Stat> {
    let place = plfs.placed(full, links)?;
    let stat = plfs.store().stat(&place, links);
    stat.map_err(|errno| plfs_core::Error::Io { op: "stat", path: full.to_path_buf(), errno })
}

/// That a file is not there is more than that it is no PLFS file.
pub fn or_absent(plfs: &Plfs, full: &Path, error: plfs_core::Error) -> plfs_core::Error {
    match (&error, plfs.stat(full, Links::Follow)) {
        (plfs_core::Error::NotAContainer { .. }, Err(absent)) if absent.errno() == Errno::NOENT => {
            absent
        }
        _ => error,
    }
}

/// The absolute form of a path; links stay.
pub fn absolute(path: &Path) -> Result<PathBuf, Fail> {
    std::path::absolute(path).map_err(|error| Fail::on("use the path", path, error))
}

/// A path on one line: control characters are escaped.
pub fn show(path: &Path) -> String {
    let text = path.to_string_lossy();
    match text.chars().any(char::is_control) {
        true => text
            .chars()
            .flat_map(
                |c| if c.is_control() { c.escape_default().collect::<Vec<_>>() } else { vec![c] },
            )
            .collect(),
        false => text.into_owned(),
    }
}

/// Bytes for people: exact below 10 KiB, else also in the unit that fits.
pub fn size(bytes: u64) -> String {
    if bytes < 10 << 10 {
        count(bytes)
    } else {
        format!("{} ({})", count(bytes), indicatif::BinaryBytes(bytes))
    }
}

/// A number with separators.
pub fn count(n: u64) -> String {
    indicatif::HumanCount(n).to_string()
}

/// So many of a thing, in words.
pub fn several(n: u64, what: &str) -> String {
    match (n, what.strip_suffix('y')) {
        (1, _) => format!("1 {what}"),
        (_, Some(stem)) => format!("{} {stem}ies", count(n)),
        (_, None) => format!("{} {what}s", count(n)),
    }
}

/// [`size`] with its noun.
pub fn in_bytes(bytes: u64) -> String {
    format!("{} byte{}", size(bytes), if bytes == 1 { "" } else { "s" })
}

/// A bar for work on so many bytes, if it is long and somebody watches.
pub fn progress(bytes: u64) -> ProgressBar {
    if bytes < PROGRESS_MIN || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template(
        "{bar:40} {percent:>3} % of {binary_total_bytes}, {binary_bytes_per_sec}, {eta} left",
    );
    ProgressBar::new(bytes).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// A time in UTC.
pub fn time(sec: i64, nsec: u32) -> String {
    let at = u64::try_from(sec)
        .ok()
        .and_then(|sec| std::time::UNIX_EPOCH.checked_add(std::time::Duration::new(sec, nsec)));
    // The formatter takes four-digit years.
    at.filter(|_| sec < 253_402_300_800).map_or_else(
        || format!("{sec} s since 1970"),
        |at| humantime::format_rfc3339_seconds(at).to_string(),
    )
}

/// A number of bytes on the command line: digits, perhaps K, M, G, T or P for powers of 1,024.
pub fn bytes(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text} is not a number of bytes, such as 4096, 64K or 10M");
    let (digits, shift) = match text.strip_suffix(|c: char| c.is_ascii_alphabetic()) {
        Some(digits) => (
            digits,
            10 * (1 + "KMGTP"
                .find(text[digits.len()..].to_ascii_uppercase().as_str())
                .ok_or_else(wrong)?),
        ),
        None => (text, 0),
    };
    let n: u64 = digits.parse().map_err(|_| wrong())?;
    n.checked_mul(1 << shift).ok_or_else(|| format!("{text} is more than 2^64 bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_bytes() {
        assert_eq!((bytes("0"), bytes("64K"), bytes("3p")), (Ok(0), Ok(65536), Ok(3 << 50)));
        for wrong in ["", "K", "1KB", "-1", "1 K", "1x", "99999999P", "1é"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn plurals() {
        assert_eq!(
            (several(1, "entry"), several(0, "entry")),
            ("1 entry".into(), "0 entries".into())
        );
        assert_eq!((in_bytes(1), in_bytes(2)), ("1 byte".into(), "2 bytes".into()));
    }

    #[test]
    fn times_at_the_edges() {
        assert_eq!(time(0, 0), "1970-01-01T00:00:00Z");
        for sec in [-1, i64::MIN, i64::MAX, 253_402_300_800] {
            assert_eq!(time(sec, 0), format!("{sec} s since 1970"));
        }
    }

    #[test]
    fn sentences_without_numbers() {
        for (text, want) in [
            (
                "cannot open f: No such file or directory (os error 2)",
                "cannot open f: No such file or directory",
            ),
            ("a (os error 2); b (os error 13): c", "a; b: c"),
            ("nothing", "nothing"),
            ("named (os error x) f", "named (os error x) f"),
            ("cut (os error 1", "cut (os error 1"),
        ] {
            assert_eq!(without_numbers(text), want);
        }
    }

    #[test]
    fn one_line_for_a_path() {
        assert_eq!(show(Path::new("a\nb c")), "a\\nb c");
    }
}
