//! The superblock file (FORMAT.md section 2).

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::layout::Placement;
use crate::name::Uuid;
use crate::{Bad, crc};

/// Length of a superblock file in bytes: a prime just below a page, so that a stat shows almost
/// surely whether a file can be a name.
pub const FILE_BYTES: usize = 4093;
/// Bytes that never change after creation; the CRC covers them from 76 on.
pub const FIXED_BYTES: usize = 3072;
/// What a person sees who opens a name without PLFS. 63 characters and a line feed.
pub const BANNER: &str = "PLFS container: read this file with PLFS, e.g. plfs cat FILE";
/// First bytes of the binary part; the line ends show damage by text-mode copies, as in PNG.
pub const MAGIC: [u8; 8] = *b"\x89PLFS\r\n\x1a";
/// Offset of [`MAGIC`].
pub const MAGIC_AT: usize = 64;
/// The major version that this crate writes and the only one that it reads.
pub const MAJOR: u16 = 1;
/// Incompatible feature: the container has a `base`, and names are links of that (section 11).
const FEATURE_BASE: u64 = 1;
/// Incompatible features of a file that is not a pack that this crate knows.
pub const KNOWN_FEATURES: u64 = FEATURE_BASE;
/// The incompatible feature of a pack.
pub const PACK_FEATURE: u64 = 1 << 2;
/// Compatible features, two bits: by what writers choose between targets. 0: the settings of each
/// say it; else one more than the place in this table.
const PLACEMENTS: [Placement; 3] = [Placement::Measured, Placement::Equal, Placement::Cliff];
const PLACEMENT_BITS: u64 = 3;
/// Streams a log set may have at most: two hex digits.
pub const STREAMS_MAX: u16 = 256;
/// Backends that the new log sets of a file may use at most.
pub const BACKENDS_MAX: usize = 256;
/// A segment is not made longer than this, whatever a superblock says: a stream's end is kept as a
/// number of 32 bits, in units of 4 KiB, which leaves as much again for one write.
pub const SEGMENT_BYTES_MAX: u64 = 1 << 43;
/// The list of backends begins here.
const LIST_AT: usize = MAGIC_AT + size_of::<RawSuperblock>();
/// Bytes of the root's path at most, so that it has room behind the longest list.
const ROOT_BYTES_MAX: usize = BOOT_AT - LIST_AT - 2 * BACKENDS_MAX - 2;
/// Where the creator's machine and its time are.
const BOOT_AT: usize = FIXED_BYTES - 16;
/// Where the inode number is, unless the root's path reaches so far.
const INODE_AT: usize = BOOT_AT - 8;
/// What the CRC covers begins here.
const SUMMED_AT: usize = 76;
const WORKLOAD_SHARED: u16 = 1;
const WORKLOAD_PACK: u16 = 3;
const NAMES_HARD_LINKS: u16 = 1;

/// Bytes 64 to 153.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawSuperblock {
    magic: [u8; 8],
    crc: U32,
    major: U16,
    minor: U16,
    incompatible: U64,
    compatible: U64,
    uuid: [u8; 16],
    created_ns: U64,
    mode: U32,
    uid: U32,
    gid: U32,
    workload: U16,
    streams: U16,
    zero: U16,
    names: U16,
    more_zero: U32,
    segment_bytes: U64,
    backends: U16,
}

/// What a superblock says. Immutable once its file has a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Identity; names the container's directory.
    pub uuid: Uuid,
    /// Creation time, nanoseconds since 1970 UTC.
    pub created_ns: u64,
    /// First eight bytes of the boot id of the creator's machine; 0: unknown.
    pub boot: u64,
    /// Time since that machine was started, at creation, nanoseconds.
    pub created_boot_ns: u64,
    /// Permission bits at creation; the inode has today's.
    pub mode: u32,
    /// Owner at creation.
    pub uid: u32,
    /// Group at creation.
    pub gid: u32,
    /// The file was a plain file before: its inode is `base` in the container (section 11).
    pub has_base: bool,
    /// Data logs per log set at most, 1 to 256.
    pub streams: u16,
    /// Length past which a stream goes on to its next segment.
    pub segment_bytes: u64,
    /// Ids of the backends that new log sets of this file use: 1 to 256. 0 is the root, usually
    /// the first.
    pub backends: Vec<u16>,
    /// By what writers choose between targets; `None`: their settings say it.
    pub placement: Option<Placement>,
    /// Absolute path of the root at creation, a hint only.
    pub root: Vec<u8>,
    /// Number, at creation, of the inode that names are links of; 0: not recorded. In a copy of the
    /// container it is another.
    pub inode: u64,
}

/// What a container is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// One file.
    Shared,
    /// The small files of a directory (FORMAT.md section 12).
    Pack,
}

impl Form {
    fn workload(self) -> u16 {
        match self {
            Form::Shared => WORKLOAD_SHARED,
            Form::Pack => WORKLOAD_PACK,
        }
    }

    fn features(self) -> u64 {
        match self {
            Form::Shared => 0,
            Form::Pack => PACK_FEATURE,
        }
    }
}

/// Why bytes are no superblock that we can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SuperError {
    /// No magic: some other file.
    NotASuperblock,
    /// Made by a newer PLFS: major version and incompatible features found.
    Unknown {
        /// Major version found.
        major: u16,
        /// Incompatible features found.
        features: u64,
    },
    /// A superblock, damaged.
    Bad(Bad),
}

/// True if the file starts like a superblock. Needs the first 72 bytes.
pub fn has_magic(start: &[u8]) -> bool {
    start.get(MAGIC_AT..MAGIC_AT + 8) == Some(&MAGIC)
}

/// The second copy of a superblock `file`, of [`FIXED_BYTES`] at least: what is fixed of it,
/// without the banner and without the zeros before its last 24 bytes (FORMAT.md section 2).
pub fn copy_of(file: &[u8]) -> Vec<u8> {
    let (head, tail) = file[MAGIC_AT..FIXED_BYTES].split_at(INODE_AT - MAGIC_AT);
    let end = head.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    [&head[..end], tail].concat()
}

/// The superblock file of which this is the [copy](copy_of), with an empty summary. `None`: it is
/// none, or damaged.
pub fn of_copy(copy: &[u8]) -> Option<Vec<u8>> {
    let (head, tail) = copy.split_last_chunk::<{ FIXED_BYTES - INODE_AT }>()?;
    let mut file = vec![0; FILE_BYTES];
    file[..MAGIC_AT].copy_from_slice(banner().as_bytes());
    file[MAGIC_AT..INODE_AT].get_mut(..head.len())?.copy_from_slice(head);
    file[INODE_AT..FIXED_BYTES].copy_from_slice(tail);
    let sum = file[MAGIC_AT + 8..SUMMED_AT].first_chunk()?;
    let is_whole = u32::from_le_bytes(*sum) == crc(&file[SUMMED_AT..FIXED_BYTES]);
    (has_magic(&file) && is_whole).then_some(file)
}

/// The inode number in a superblock file; nonsense if the root's path has its place.
pub(crate) fn inode_of(file: &[u8]) -> u64 {
    file[INODE_AT..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

fn placement_bits(placement: Option<Placement>) -> u64 {
    let place = placement.and_then(|one| PLACEMENTS.iter().position(|known| *known == one));
    place.map_or(0, |place| place as u64 + 1)
}

fn placement_of(compatible: u64) -> Option<Placement> {
    let place = (compatible & PLACEMENT_BITS).checked_sub(1)?;
    PLACEMENTS.get(place as usize).copied()
}

fn banner() -> String {
    format!("{BANNER:<63}\n")
}

impl Superblock {
    /// The whole file, with an empty summary.
    ///
    /// Errors if there are no or too many backends, the root's path is longer than 2,388 bytes, or
    /// a number is out of range. Leaves `inode` out if the root's path needs its place.
    pub fn encode(&self) -> Result<Vec<u8>, Bad> {
        self.encode_as(Form::Shared)
    }

    /// [`Superblock::encode`] of a pack.
    pub fn encode_pack(&self) -> Result<Vec<u8>, Bad> {
        self.encode_as(Form::Pack)
    }

    fn encode_as(&self, form: Form) -> Result<Vec<u8>, Bad> {
        let mut out = vec![0; FILE_BYTES];
        let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
        if self.backends.len() > BACKENDS_MAX {
            return Err(Bad::new(LIST_AT as u64, "there are more than 256 backends"));
        }
        if self.root.len() > ROOT_BYTES_MAX {
            return Err(Bad::new(LIST_AT as u64, "the root's path is longer than 2,388 bytes"));
        }
        let raw = RawSuperblock {
            magic: MAGIC,
            crc: 0.into(),
            major: MAJOR.into(),
            minor: 0.into(),
            incompatible: (form.features() | if self.has_base { FEATURE_BASE } else { 0 }).into(),
            compatible: placement_bits(self.placement).into(),
            uuid: self.uuid.0,
            created_ns: self.created_ns.into(),
            mode: self.mode.into(),
            uid: self.uid.into(),
            gid: self.gid.into(),
            workload: form.workload().into(),
            streams: self.streams.into(),
            zero: 0.into(),
            names: NAMES_HARD_LINKS.into(),
            more_zero: 0.into(),
            segment_bytes: self.segment_bytes.into(),
            backends: (self.backends.len() as u16).into(),
        };
        put(0, banner().as_bytes());
        put(MAGIC_AT, raw.as_bytes());
        let list: Vec<u8> = self.backends.iter().flat_map(|id| id.to_le_bytes()).collect();
        put(LIST_AT, &list);
        put(LIST_AT + list.len(), &(self.root.len() as u16).to_le_bytes());
        put(LIST_AT + list.len() + 2, &self.root);
        if LIST_AT + list.len() + 2 + self.root.len() <= INODE_AT {
            put(INODE_AT, &self.inode.to_le_bytes());
        }
        put(BOOT_AT, &self.boot.to_le_bytes());
        put(BOOT_AT + 8, &self.created_boot_ns.to_le_bytes());
        let sum = crc(&out[SUMMED_AT..FIXED_BYTES]);
        out[MAGIC_AT + 8..SUMMED_AT].copy_from_slice(&sum.to_le_bytes());
        Superblock::decode_as(form, &out)
            .map_err(|_| Bad::new(0, "a field of the superblock is out of range"))?;
        Ok(out)
    }

    /// Reads a superblock from the first [`FIXED_BYTES`] bytes of its file.
    pub fn decode(file: &[u8]) -> Result<Superblock, SuperError> {
        Superblock::decode_as(Form::Shared, file)
    }

    /// Reads the superblock of a pack; any other file is [`SuperError::NotASuperblock`], or of a
    /// form that this does not know.
    pub fn decode_pack(file: &[u8]) -> Result<Superblock, SuperError> {
        Superblock::decode_as(Form::Pack, file)
    }

    fn decode_as(form: Form, file: &[u8]) -> Result<Superblock, SuperError> {
        if !has_magic(file) {
            return Err(SuperError::NotASuperblock);
        }
        let bad = |at: usize, what| Err(SuperError::Bad(Bad::new(at as u64, what)));
        let newer = |at: u64, what| Err(SuperError::Bad(Bad::newer(at, what)));
        let cut = SuperError::Bad(Bad::new(file.len() as u64, "the superblock is cut off"));
        let fixed = file.get(..FIXED_BYTES).ok_or(cut)?;
        let (raw, rest) = RawSuperblock::ref_from_prefix(&fixed[MAGIC_AT..]).map_err(|_| cut)?;
        if raw.crc != crc(&fixed[SUMMED_AT..]) {
            return bad(72, "the superblock's checksum does not match its bytes");
        }
        let (major, features) = (raw.major.get(), raw.incompatible.get());
        let known = match form {
            Form::Shared => KNOWN_FEATURES,
            Form::Pack => PACK_FEATURE,
        };
        let lacks = form.features() & !features != 0;
        if major != MAJOR || features & !known != 0 || lacks {
            return Err(SuperError::Unknown { major, features });
        }
        if raw.workload != form.workload() {
            return newer(132, "the file is kept in a form that this version does not know");
        }
        if raw.names != NAMES_HARD_LINKS {
            return newer(138, "the file has names of a kind that this version does not know");
        }
        let streams = raw.streams.get();
        if streams == 0 || streams > STREAMS_MAX {
            return bad(134, "streams is not between 1 and 256");
        }
        if raw.segment_bytes == 0 {
            return bad(144, "segment_bytes is 0");
        }
        let count = usize::from(raw.backends.get());
        if count == 0 || count > BACKENDS_MAX {
            return bad(152, "the number of backends is not between 1 and 256");
        }
        let list_cut =
            |_| SuperError::Bad(Bad::new(LIST_AT as u64, "the list of backends is cut off"));
        let (list, rest) = <[U16]>::ref_from_prefix_with_elems(rest, count)
            .map_err(|error| list_cut(error.into_src()))?;
        let (len, rest) = U16::ref_from_prefix(rest).map_err(|error| list_cut(error.into_src()))?;
        let root = rest
            .get(..len.get().into())
            .filter(|root| root.len() <= ROOT_BYTES_MAX)
            .unwrap_or_default();
        if root.first() != Some(&b'/') || root.contains(&0) {
            return bad(LIST_AT + 2 * count, "the root's path is not absolute");
        }
        if list.iter().any(|id| *id == u16::MAX) {
            return bad(LIST_AT, "there is no backend ffff");
        }
        let has_inode = LIST_AT + 2 * count + 2 + root.len() <= INODE_AT;
        let (inode, rest) = U64::ref_from_prefix(&fixed[INODE_AT..]).map_err(|_| cut)?;
        let (boot, rest) = U64::ref_from_prefix(rest).map_err(|_| cut)?;
        let (created_boot_ns, _) = U64::ref_from_prefix(rest).map_err(|_| cut)?;
        Ok(Superblock {
            uuid: Uuid(raw.uuid),
            created_ns: raw.created_ns.get(),
            boot: boot.get(),
            created_boot_ns: created_boot_ns.get(),
            mode: raw.mode.get(),
            uid: raw.uid.get(),
            gid: raw.gid.get(),
            has_base: features & FEATURE_BASE != 0,
            streams,
            segment_bytes: raw.segment_bytes.get(),
            backends: list.iter().map(|id| id.get()).collect(),
            placement: placement_of(raw.compatible.get()),
            root: root.to_vec(),
            inode: if has_inode { inode.get() } else { 0 },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Superblock {
        Superblock {
            uuid: Uuid([7; 16]),
            created_ns: 1,
            boot: 4,
            created_boot_ns: 5,
            mode: 0o640,
            uid: 2,
            gid: 3,
            has_base: false,
            streams: 8,
            segment_bytes: 1 << 40,
            backends: vec![0, 0x1f, 0xfffe],
            placement: None,
            root: b"/a".to_vec(),
            inode: 6,
        }
    }

    #[test]
    fn round_trip() {
        let file = sample().encode().unwrap();
        assert_eq!(file.len(), FILE_BYTES);
        assert_eq!(file[63], b'\n');
        assert_eq!(Superblock::decode(&file), Ok(sample()));
        assert_eq!(file[3048..3056], 6_u64.to_le_bytes());
        for placement in PLACEMENTS.map(Some) {
            let placed = Superblock { placement, ..sample() };
            assert_eq!(Superblock::decode(&placed.encode().unwrap()), Ok(placed));
        }
        let based = Superblock { has_base: true, ..sample() };
        assert_eq!(Superblock::decode(&based.encode().unwrap()), Ok(based));
    }

    #[test]
    fn a_copy_gives_the_file_back() {
        let longest =
            Superblock { root: [b"/", [b'a'; ROOT_BYTES_MAX - 1].as_slice()].concat(), ..sample() };
        for superblock in [sample(), longest] {
            for file in [superblock.encode().unwrap(), superblock.encode_pack().unwrap()] {
                let copy = copy_of(&file);
                assert_eq!(of_copy(&copy), Some(file));
                for at in 0..copy.len() {
                    let mut other = copy.clone();
                    other[at] ^= 1;
                    assert_eq!(of_copy(&other), None, "byte {at}");
                    assert_eq!(of_copy(&copy[..at]), None, "{at} bytes");
                }
            }
        }
        assert_eq!(of_copy(&[1; FILE_BYTES]), None);
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let file = sample().encode().unwrap();
        for bit in MAGIC_AT * 8..FIXED_BYTES * 8 {
            let mut hurt = file.clone();
            hurt[bit / 8] ^= 1 << (bit % 8);
            assert!(Superblock::decode(&hurt).is_err(), "bit {bit}");
        }
        for len in 0..FIXED_BYTES {
            assert!(Superblock::decode(&file[..len]).is_err());
        }
    }

    #[test]
    fn what_is_newer_is_not_damage() {
        let with = |at: usize, value: u16| {
            let mut file = sample().encode().unwrap();
            file[at..at + 2].copy_from_slice(&value.to_le_bytes());
            let sum = crc(&file[SUMMED_AT..FIXED_BYTES]);
            file[72..76].copy_from_slice(&sum.to_le_bytes());
            Superblock::decode(&file)
        };
        assert_eq!(with(76, 2), Err(SuperError::Unknown { major: 2, features: 0 }));
        assert_eq!(with(80, 3), Err(SuperError::Unknown { major: 1, features: 3 }));
        for (at, value) in [(132, 2), (132, 3), (132, 0), (138, 2), (138, 0)] {
            assert!(
                matches!(with(at, value), Err(SuperError::Bad(Bad { newer: true, .. }))),
                "{at} {value}"
            );
        }
        assert_eq!(with(78, 9), Ok(sample()), "a minor version");
        assert_eq!(with(88, 0xfffc), Ok(sample()), "compatible features");
        let placed = Superblock { placement: Some(Placement::Cliff), ..sample() };
        assert_eq!(with(88, 0xffff), Ok(placed), "and all bits of them");
        for (at, value) in [
            (134, 0),
            (134, 257),
            (152, 0),
            (152, 257),
            (154, u16::MAX),
            (160, 0),
            (160, 2405),
            (162, 0),
        ] {
            let found = with(at, value);
            assert!(
                matches!(found, Err(SuperError::Bad(Bad { newer: false, .. }))),
                "{at} {value}: {found:?}"
            );
        }
    }

    /// Paths that reach its place are older than the inode number, and stay whole.
    #[test]
    fn a_path_goes_before_the_inode_number() {
        for (bytes, inode) in [(2380, 6), (2381, 0), (2388, 0)] {
            let long = Superblock { backends: vec![1; 256], root: vec![b'/'; bytes], ..sample() };
            let decoded = Superblock::decode(&long.encode().unwrap());
            assert_eq!(decoded, Ok(Superblock { inode, ..long }), "{bytes}");
        }
    }

    #[test]
    fn too_many_backends_do_not_encode() {
        let encodes = |change: fn(&mut Superblock)| {
            let mut superblock = sample();
            change(&mut superblock);
            superblock.encode().is_ok_and(|file| Superblock::decode(&file) == Ok(superblock))
        };
        assert!(encodes(|s| (s.backends, s.root) = (vec![1; 256], vec![b'/'; 2380])));
        assert!(!encodes(|s| s.backends = vec![1; 257]));
        assert!(!encodes(|s| s.root = vec![b'/'; 2389]));
        assert!(!encodes(|s| s.root.clear()));
        assert!(!encodes(|s| s.backends.clear()));
        assert!(!encodes(|s| s.streams = 0));
        assert!(!encodes(|s| s.segment_bytes = 0));
    }
}
