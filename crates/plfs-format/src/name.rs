//! Names of the files inside a container (FORMAT.md section 1): print and parse.

use std::fmt;

/// Name of the directory that marks a root and holds its containers.
pub const ROOT_DIR: &str = ".plfs";
/// Name of the directory below it with the table of backends.
pub const BACKENDS: &str = "backends";
/// Start of the name of an entry of that table that is being written.
pub const BACKEND_TMP: &str = "tmp.";
/// Name of the file there that says which backend this is.
pub const IDENTITY: &str = "identity";
/// Start of the name of one that is being written.
pub const IDENTITY_TMP: &str = "identity.tmp.";
/// Name of the directory in the root directory that has what repairs took out of containers.
pub const LOST_AND_FOUND: &str = "lost+found";
/// Name of the file in a directory of programs that says how new files there are laid out.
pub const LAYOUT: &str = ".plfs-layout";
/// Start of the name of one that is being written.
pub const LAYOUT_TMP: &str = ".plfs-layout.";
/// Name of the superblock inside a container.
pub const SUPER: &str = "super";
/// Name of the flat index.
pub const FLAT: &str = "flat";
/// Name of the sorted tree of a pack.
pub const NAMES: &str = "names";
/// Start of the name of a flat index, or a tree, that is being written.
pub const FLAT_TMP: &str = "flat.tmp.";
/// Name of the file with the stamp that the next owners start behind.
pub const CLOCK: &str = "clock";
/// Start of the name of one that is being written.
pub const CLOCK_TMP: &str = "clock.tmp.";
/// Name of the file that carries applications' record locks.
pub const LOCK: &str = "lock";
/// Name that the inode of a file has in its container if it was a plain file before (section 11).
pub const BASE: &str = "base";
/// Start of the name of a superblock that is being written for such a container.
pub const SUPER_TMP: &str = "super.tmp.";

/// Identity of a container: 16 random bytes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// The first eight bytes as a number: binds index blocks and summaries to their container.
    pub fn low(&self) -> u64 {
        let mut low = [0; 8];
        low.copy_from_slice(&self.0[..8]);
        u64::from_le_bytes(low)
    }

    /// Directory of the container below the root directory: `("3f", "9c…")`.
    pub fn dirs(&self) -> (String, String) {
        (digits_of(&self.0[..1]), digits_of(&self.0[1..]))
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&digits_of(&self.0))
    }
}

/// Two digits for each byte: names of directories are made for each stat of a file.
fn digits_of(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble & 15)]);
    let mut digits = String::with_capacity(2 * bytes.len());
    digits.extend(bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(*byte)]));
    digits
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Where a piece of data lies: one segment of one stream of one log set, on one backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SegmentRef {
    /// Log set.
    pub set: u32,
    /// Stream of the log set.
    pub stream: u16,
    /// Segment of the stream.
    pub segment: u32,
    /// Id of the backend, by the root's table; 0 is the root.
    pub backend: u16,
}

impl SegmentRef {
    /// The plain file that became a container: what it has lies at its logical offset. In a block
    /// it is a reference of kind 1, whose other fields are 0; here it has the one id that no
    /// backend can have.
    pub const BASE: SegmentRef =
        SegmentRef { set: 0, stream: 0, segment: 0, backend: BACKEND_MAX + 1 };
}

/// A file or directory in a container, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Name {
    /// `super`
    Super,
    /// `SET.open`: the set has an owner.
    OpenMark(u32),
    /// `SET.fenced`: the set's owner was declared dead; nobody owns it again.
    Fenced(u32),
    /// `SET.unsynced`: a sync of the set failed; nobody owns it again.
    Unsynced(u32),
    /// `SET`: the directory of a log set.
    LogSet(u32),
    /// `flat`
    Flat,
    /// `flat.tmp.…`, `clock.tmp.…`, `super.tmp.…`: not finished, or being written now.
    Tmp,
    /// `base`
    Base,
    /// `clock`
    Clock,
    /// `SET.gone`: a log set on its way out.
    Gone(u32),
    /// `lock`
    Lock,
}

impl Name {
    /// Parses a name; `None` for names that the format does not know.
    pub fn parse(name: &str) -> Option<Name> {
        match name {
            SUPER => Some(Name::Super),
            FLAT => Some(Name::Flat),
            LOCK => Some(Name::Lock),
            CLOCK => Some(Name::Clock),
            BASE => Some(Name::Base),
            _ if [FLAT_TMP, CLOCK_TMP, SUPER_TMP].iter().any(|tmp| name.starts_with(tmp)) => {
                Some(Name::Tmp)
            }
            _ => match name.split_once('.') {
                Some((set, "open")) => hex(set, 8).map(Name::OpenMark),
                Some((set, "fenced")) => hex(set, 8).map(Name::Fenced),
                Some((set, "unsynced")) => hex(set, 8).map(Name::Unsynced),
                Some((set, "gone")) => hex(set, 8).map(Name::Gone),
                Some(_) => None,
                None => hex(name, 8).map(Name::LogSet),
            },
        }
    }
}

/// Stream and segment of a data log, by its name in the directory of its log set:
/// `STREAM.SEGMENT.data`.
pub fn parse_data_log(name: &str) -> Option<(u16, u32)> {
    let (stream, segment) = name.strip_suffix(".data")?.split_once('.')?;
    Some((hex(stream, 2)? as u16, hex(segment, 8)?))
}

/// Id of a backend, by the name of its entry in the table: 0001 to fffe.
pub fn parse_backend(name: &str) -> Option<u16> {
    hex(name, 4).map(|id| id as u16).filter(|id| (1..=BACKEND_MAX).contains(id))
}

/// The largest id of a backend that has an entry in the table.
pub const BACKEND_MAX: u16 = 0xfffe;

/// `ID`: the entry of a backend in the table.
pub fn backend(id: u16) -> String {
    format!("{id:04x}")
}

fn hex(text: &str, digits: usize) -> Option<u32> {
    let plain =
        text.len() == digits && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    plain.then(|| u32::from_str_radix(text, 16).ok()).flatten()
}

/// `SET.open`
pub fn open_mark(set: u32) -> String {
    format!("{set:08x}.open")
}

/// `SET.fenced`
pub fn fenced_mark(set: u32) -> String {
    format!("{set:08x}.fenced")
}

/// `SET.unsynced`
pub fn unsynced_mark(set: u32) -> String {
    format!("{set:08x}.unsynced")
}

/// `SET`
pub fn log_set(set: u32) -> String {
    format!("{set:08x}")
}

/// `SET.gone`
pub fn gone(set: u32) -> String {
    format!("{set:08x}.gone")
}

/// `SET/index`
pub fn index_log(set: u32) -> String {
    format!("{set:08x}/index")
}

/// `SET/STREAM.SEGMENT.data`
pub fn data_log(at: &SegmentRef) -> String {
    format!("{:08x}/{:02x}.{:08x}.data", at.set, at.stream, at.segment)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_print_and_parse() {
        let at = SegmentRef { set: 0xbadcafe, stream: 255, segment: 0xffff_fffe, backend: 0 };
        assert_eq!(data_log(&at), "0badcafe/ff.fffffffe.data");
        assert_eq!(parse_data_log("ff.fffffffe.data"), Some((255, 0xffff_fffe)));
        assert_eq!(index_log(7), "00000007/index");
        assert_eq!(Name::parse(&log_set(7)), Some(Name::LogSet(7)));
        assert_eq!(Name::parse(&open_mark(u32::MAX)), Some(Name::OpenMark(u32::MAX)));
        assert_eq!(Name::parse(&gone(7)), Some(Name::Gone(7)));
        assert_eq!(Name::parse(&unsynced_mark(7)), Some(Name::Unsynced(7)));
        let others = [
            (SUPER, Name::Super),
            (FLAT, Name::Flat),
            ("flat.tmp.ab", Name::Tmp),
            ("clock.tmp.ab", Name::Tmp),
            (CLOCK, Name::Clock),
            (LOCK, Name::Lock),
            (BASE, Name::Base),
            ("super.tmp.ab", Name::Tmp),
        ];
        for (name, parsed) in others {
            assert_eq!(Name::parse(name), Some(parsed));
        }
    }

    #[test]
    fn other_names_are_not_ours() {
        for name in [
            "",
            ".",
            "0badcaf",
            "0BADCAFE",
            "+badcafe",
            "0badcafe.index",
            "0badcafe.open.x",
            "badcafe.gone",
            "superb",
            "clocks",
        ] {
            assert_eq!(Name::parse(name), None, "{name}");
        }
        for name in [
            "",
            "0.00000000.data",
            "00.0000.data",
            "00.00000000",
            "00.00000000.datax",
            "00.0000000g.data",
            "index",
        ] {
            assert_eq!(parse_data_log(name), None, "{name}");
        }
    }

    #[test]
    fn backends_have_ids_of_four_digits() {
        assert_eq!(
            (backend(0x1f), parse_backend("001f"), parse_backend("fffe")),
            ("001f".into(), Some(0x1f), Some(0xfffe))
        );
        for name in ["", "0000", "ffff", "1", "001F", "00001", "tmp.00000001"] {
            assert_eq!(parse_backend(name), None, "{name}");
        }
    }

    #[test]
    fn uuid_names_its_directory() {
        let uuid = Uuid(*b"\x3f\x9c\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01");
        assert_eq!(uuid.dirs(), ("3f".into(), "9c0000000000000000000000000001".into()));
        assert_eq!(uuid.low(), 0x9c3f);
    }
}
