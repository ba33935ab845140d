//! The environment by which the settings of a process go
//!
//! They are read when something of PLFS is used for the first time. In a program that was started
//! with the preload library that is the first file, and by then the program may have emptied its
//! environment, as daemons do. So what is missing then counts as it was at the start.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use crate::sync::OnceLock;

static AT_START: OnceLock<Vec<(OsString, OsString)>> = OnceLock::new();

/// Begins what this library reads.
const NAMES: [&[u8]; 3] = [b"PLFS", b"HOME=", b"LD_PRELOAD="];

/// Keeps of the environment at the start of the process, a word `NAME=value` each, what settings
/// are read from. The first call counts.
pub fn keep<'a>(words: impl Iterator<Item = &'a [u8]>) {
    let text = |bytes| OsStr::from_bytes(bytes).to_owned();
    AT_START.get_or_init(|| {
        words
            .filter(|word| NAMES.iter().any(|name| word.starts_with(name)))
            .filter_map(|word| {
                let at = word.iter().position(|byte| *byte == b'=')?;
                Some((text(&word[..at]), text(&word[at + 1..])))
            })
            .collect()
    });
}

/// The value of a variable now; that of the start, if there is none any more.
pub fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).or_else(|| {
        let (_, value) = AT_START.get()?.iter().find(|(kept, _)| kept == name)?;
        Some(value.clone())
    })
}
