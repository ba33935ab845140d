//! What a measurement was made on.

use std::hash::{BuildHasher, RandomState};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use serde::Serialize;

#[derive(Serialize)]
pub struct Machine {
    pub name: String,
    pub processors: usize,
    pub kernel: String,
    /// Of this measurement, UTC.
    pub time: String,
}

impl Machine {
    pub fn new() -> Machine {
        let uname = rustix::system::uname();
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Machine {
            name: uname.nodename().to_string_lossy().into_owned(),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: uname.release().to_string_lossy().into_owned(),
            time: crate::out::time(now.map_or(0, |now| now.as_secs() as i64), 0),
        }
    }
}

/// Any number.
pub fn random() -> u32 {
    RandomState::new().hash_one(std::process::id()) as u32
}

/// Two for each rank.
pub fn allow_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// The type of the file system that a real path is on.
pub fn file_system(real: &Path) -> String {
    let mounts = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    let mut best: Option<(usize, String)> = None;
    for line in mounts.split(|byte| *byte == b'\n') {
        let mut words = line.split(|byte| *byte == b' ');
        let (Some(at), Some(kind)) =
            (words.nth(4).map(path), words.skip_while(|word| *word != b"-").nth(1))
        else {
            continue;
        };
        // Of two at one place the later counts.
        let length = at.as_os_str().len();
        if real.starts_with(&at) && best.as_ref().is_none_or(|(other, _)| length >= *other) {
            best = Some((length, String::from_utf8_lossy(kind).into_owned()));
        }
    }
    best.map_or_else(|| "unknown".into(), |(_, kind)| kind)
}

/// A path of mountinfo, in which blanks and the like are octal.
fn path(word: &[u8]) -> PathBuf {
    let mut plain = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((first, more)) = rest.split_first() {
        let octal = more
            .get(..3)
            .filter(|_| *first == b'\\')
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        plain.push(octal.unwrap_or(*first));
        rest = if octal.is_some() { &more[3..] } else { more };
    }
    PathBuf::from(std::ffi::OsString::from_vec(plain))
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn paths_of_mountinfo() {
        assert_eq!(path(b"/a\\040b\\134c").as_os_str().as_bytes(), b"/a b\\c");
        assert_eq!(path(b"/a\\").as_os_str().as_bytes(), b"/a\\");
    }
}
