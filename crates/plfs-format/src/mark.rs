//! The text of an open mark (FORMAT.md section 1): who owns a log set.
//!
//! The mark is a symbolic link that is read and never followed, because one call makes it,
//! exclusively and whole. Its text has at most 59 bytes: so long file systems keep it in the inode
//! (ext4), and a longer one would cost a block.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The owner of a log set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// Random number of this tenancy. The owner's processes know it from their shared page.
    pub nonce: u64,
    /// First four bytes of the boot id of the host; 0 if the founder did not know it.
    pub boot: u32,
    /// What tells this machine from others, whenever it was started: from /etc/machine-id; 0 if
    /// unknown.
    pub machine: u32,
    /// Inode of the founder's pid namespace, its lower half; 0 if unknown.
    pub pid_namespace: u32,
    /// A sum of device and inode of the directory of shared memory in which the owner's processes
    /// meet; 0: the owner is one process that shares nothing.
    pub place: u32,
    /// Process id of the founder, in its own namespace.
    pub pid: u32,
    /// When the founder started: clock ticks since boot, as in /proc/PID/stat, the lower half; 0
    /// if unknown.
    pub start: u32,
    /// User id of the founder.
    pub uid: u32,
    /// Name of the host, its first ten bytes at most; letters, digits, `-`, `_` and `.` only.
    pub host: String,
}

/// What a mark begins with: the version.
const BEGIN: char = '1';
/// What is left for the host's name.
const HOST_BYTES: usize = 10;

/// The numbers, as bytes of which a mark has the base64 form (RFC 4648, for URLs, without padding).
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    nonce: U64,
    boot: U32,
    machine: U32,
    pid_namespace: U32,
    place: U32,
    pid: U32,
    start: U32,
    uid: U32,
}

impl Mark {
    /// The name of a host as marks have it.
    pub fn host_of(name: &str) -> String {
        let is_plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        name.chars().filter(is_plain).take(HOST_BYTES).collect()
    }

    /// A sum of device and inode of a directory, never 0.
    pub fn place_of(dev: u64, ino: u64) -> u32 {
        crate::crc(&[dev.to_le_bytes(), ino.to_le_bytes()].concat()).max(1)
    }

    /// The text: at most 59 bytes, no `/`.
    pub fn text(&self) -> String {
        let raw = Raw {
            nonce: self.nonce.into(),
            boot: self.boot.into(),
            machine: self.machine.into(),
            pid_namespace: self.pid_namespace.into(),
            place: self.place.into(),
            pid: self.pid.into(),
            start: self.start.into(),
            uid: self.uid.into(),
        };
        format!("{BEGIN}{}{}", URL_SAFE_NO_PAD.encode(raw.as_bytes()), Mark::host_of(&self.host))
    }

    /// Parses a text; `None` if it is no mark of this version.
    pub fn parse(text: &str) -> Option<Mark> {
        let (numbers, host) =
            text.strip_prefix(BEGIN)?.split_at_checked(size_of::<Raw>() / 3 * 4)?;
        let bytes = URL_SAFE_NO_PAD.decode(numbers).ok()?;
        let raw = Raw::ref_from_bytes(&bytes).ok()?;
        Some(Mark {
            nonce: raw.nonce.get(),
            boot: raw.boot.get(),
            machine: raw.machine.get(),
            pid_namespace: raw.pid_namespace.get(),
            place: raw.place.get(),
            pid: raw.pid.get(),
            start: raw.start.get(),
            uid: raw.uid.get(),
            host: Mark::host_of(host),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_round_trip() {
        let mark = Mark {
            nonce: u64::MAX,
            boot: 7,
            machine: 8,
            pid_namespace: 4_026_531_836,
            place: u32::MAX,
            pid: u32::MAX,
            start: u32::MAX,
            uid: 1000,
            host: "node-12.ab".into(),
        };
        let text = mark.text();
        assert!(text.len() == 59 && !text.contains('/'), "{text}");
        assert_eq!(Mark::parse(&text), Some(mark.clone()));
        let long = Mark { host: "node-12.abcdef".into(), ..mark.clone() };
        assert_eq!(long.text(), text);
    }

    #[test]
    fn hostile_texts_are_no_marks_or_harmless_ones() {
        let good = Mark { nonce: 1, host: "h".into(), ..Mark::default() }.text();
        for text in [
            "",
            "1",
            "../../etc/passwd",
            &good[1..],
            &good[..40],
            &good.replacen("A", "*", 1),
            &format!("2{}", &good[1..]),
        ] {
            assert_eq!(Mark::parse(text), None, "{text}");
        }
        assert_eq!(Mark::parse("1ÄÄÄÄÄÄÄÄÄÄÄÄÄÄÄÄÄÄÄÄÄÄÄÄÄÄÄÄÄÄÄÄÄÄÄÄÄÄÄÄÄÄÄÄÄÄÄÄÄ"), None);
        assert_eq!(Mark::parse(&format!("{good}/../x\n")).unwrap().host, "h..x");
    }
}
