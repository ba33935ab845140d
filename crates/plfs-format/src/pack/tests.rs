use super::tree::{self, BlockRef};
use super::*;
use crate::index_log::{Append, At, LogId, block_at};
use crate::{Bad, MAX_OFFSET, Uuid, crc};

const LOG: LogId = LogId { uuid: Uuid([3; 16]), set: 0x0bad_cafe };
const SEGMENT: SegmentRef = SegmentRef { set: 0x0bad_cafe, stream: 1, segment: 2, backend: 3 };

/// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn place(&mut self) -> Place {
        Place { stamp: 1 + self.below(1 << 40), set: self.next() as u32 }
    }

    fn name(&mut self) -> Box<[u8]> {
        let n = [1, 8, 16, 255][self.below(4) as usize];
        (0..n)
            .map(|_| [b'x', 0xff, b'.', b'\n', 0x80][self.below(5) as usize])
            .chain([b'z'])
            .skip(1)
            .collect()
    }

    fn option<T>(&mut self, some: impl FnOnce(&mut Chance) -> T) -> Option<T> {
        if self.below(2) == 0 { Some(some(self)) } else { None }
    }

    fn when(&mut self) -> When {
        When { sec: self.next() as i64, nsec: self.below(1_000_000_000) as u32 }
    }

    fn record(&mut self) -> Record {
        let id = self.place();
        match self.below(6) {
            0 => {
                let created = self.below(2) == 0;
                let bound = Place { stamp: id.stamp + 1, ..self.place() };
                Record::File {
                    id,
                    bound: if created { id } else { bound },
                    mode: self.below(0o10000) as u32,
                    uid: self.next() as u32,
                    gid: self.next() as u32,
                    name: self.name(),
                    former: if created { Box::default() } else { self.name() },
                }
            }
            1 => {
                let n = [1, 1, 1, 2, PIECES_MAX as u64][self.below(5) as usize];
                let piece = |chance: &mut Chance| Piece {
                    logical: chance.next() >> 2,
                    physical: chance.next() >> 2,
                    stamp: chance.below(1 << 40),
                    length: 1 + chance.below(u32::MAX.into()) as u32,
                    crc: chance.next() as u32,
                };
                Record::Write {
                    id,
                    set: self.next() as u32,
                    boot: self.option(Chance::next).unwrap_or(0),
                    segment: 0,
                    pieces: (0..n).map(|_| piece(self)).collect(),
                }
            }
            2 => Record::Cut { id, place: self.place(), size: self.next() >> 1 },
            3 => {
                let set = Attributes {
                    mode: Some(self.below(0o10000) as u32),
                    uid: self.option(|chance| chance.next() as u32),
                    gid: self.option(|chance| chance.next() as u32),
                    mtime: self.option(Chance::when),
                    atime: self.option(Chance::when),
                };
                Record::Attributes { id, place: self.place(), set }
            }
            4 => {
                let n = [1, 2, GONE_MAX as u64][self.below(3) as usize];
                Record::Gone { ids: (0..n).map(|_| self.place()).collect() }
            }
            _ => Record::Clear { stamp: self.below(1 << 40) },
        }
    }
}

fn encode(records: &[Record]) -> Vec<u8> {
    let append = Append { offset: 640, stamp: u64::MAX, ..Append::default() };
    encode_block(LOG, append, &[SEGMENT], records).unwrap()
}

fn decode(bytes: &[u8]) -> Option<Result<Block, Bad>> {
    match block_at(LOG, 640, bytes) {
        At::Block(header) => Some(decode_block(header, 640, bytes)),
        At::Nothing => None,
    }
}

#[test]
fn records_are_read_as_they_were_written() {
    for seed in 0..2000 {
        let mut chance = Chance(seed);
        let records: Vec<Record> = (0..chance.below(20)).map(|_| chance.record()).collect();
        let block = decode(&encode(&records)).unwrap().unwrap();
        assert_eq!((block.segments, block.records), (vec![SEGMENT], records), "{seed}");
        let of_leaf =
            |record: &Record| !matches!(record, Record::Gone { .. } | Record::Clear { .. });
        let mut records: Vec<Record> =
            (0..chance.below(20)).map(|_| chance.record()).filter(of_leaf).collect();
        records.push(Record::ById { id: chance.place(), name: chance.name() });
        records.push(Record::ById { id: chance.place(), name: Box::default() });
        let leaf = tree::encode_leaf(&[SEGMENT], &records).unwrap();
        assert_eq!(tree::decode_leaf(&leaf, 128, u64::MAX).unwrap(), (vec![SEGMENT], records));
    }
}

/// The bytes that the document shows, field by field.
#[test]
fn records_lie_as_in_the_document() {
    let id = Place { stamp: 0x0102_0304_0506_0708, set: 0x1112_1314 };
    let bound = Place { stamp: 0x2122_2324_2526_2728, set: 0x3132_3334 };
    let file = Record::File {
        id,
        bound,
        mode: 0o644,
        uid: 5,
        gid: 6,
        name: (*b"new").into(),
        former: (*b"formerly").into(),
    };
    let mut out = Vec::new();
    encode_records(&[file], &mut out).unwrap();
    assert_eq!(out.len(), 64);
    assert_eq!(out[..8], [16, 8, 0, 0, 0, 0, 0, 0]);
    assert_eq!(out[8..16], id.stamp.to_le_bytes());
    assert_eq!(out[16..24], [0x14, 0x13, 0x12, 0x11, 0xa4, 1, 0, 0]);
    assert_eq!(out[24..32], bound.stamp.to_le_bytes());
    assert_eq!(out[32..48], [0x34, 0x33, 0x32, 0x31, 5, 0, 0, 0, 6, 0, 0, 0, 3, 0, 8, 0]);
    assert_eq!(out[48..], *b"newformerly\0\0\0\0\0");
    let piece = Piece { logical: 1, physical: 2, stamp: 3, length: 4, crc: 5 };
    let write = Record::Write { id, set: 7, boot: 8, segment: 9, pieces: vec![piece] };
    let mut out = Vec::new();
    encode_records(&[write], &mut out).unwrap();
    assert_eq!(out[..8], [17, 8, 9, 0, 1, 0, 0, 0]);
    let fields: [u64; 5] = [8, 1, 2, 3, 4 | 5 << 32];
    assert_eq!(out[20..24], [7, 0, 0, 0]);
    for (i, field) in fields.iter().enumerate() {
        assert_eq!(out[24 + 8 * i..32 + 8 * i], field.to_le_bytes());
    }
    let sizes = [
        (Record::Cut { id, place: bound, size: 0 }, 40),
        (
            Record::Attributes {
                id,
                place: bound,
                set: Attributes { mode: Some(0), ..Attributes::default() },
            },
            72,
        ),
        (Record::Gone { ids: vec![id; 3] }, 56),
        (Record::ById { id, name: (*b"x").into() }, 32),
        (Record::Clear { stamp: 1 }, 16),
    ];
    for (record, bytes) in sizes {
        let mut out = Vec::new();
        encode_records(&[record], &mut out).unwrap();
        assert_eq!(out.len(), bytes);
    }
}

#[test]
fn what_no_file_can_be_is_not_written() {
    let id = Place { stamp: 5, set: 1 };
    let file = |name: &[u8], former: &[u8], bound: u64| Record::File {
        id,
        bound: Place { stamp: bound, set: 1 },
        mode: 0,
        uid: 0,
        gid: 0,
        name: name.into(),
        former: former.into(),
    };
    let good = Piece { logical: 0, physical: 0, stamp: 0, length: 1, crc: 0 };
    let write = |pieces| Record::Write { id, set: 1, boot: 0, segment: 0, pieces };
    let attributes = |set| Record::Attributes { id, place: id, set };
    let none = Attributes::default();
    for record in [
        file(b"", b"", 5),
        file(b".", b"", 5),
        file(b"..", b"", 5),
        file(b"a/b", b"", 5),
        file(b"a\0b", b"", 5),
        file(&[b'x'; 256], b"", 5),
        file(b"a", b"b", 5),
        file(b"a", b"", 6),
        file(b"a", b"/", 6),
        file(b"a", b"b", 4),
        write(vec![]),
        write(vec![good; PIECES_MAX + 1]),
        write(vec![Piece { length: 0, ..good }]),
        write(vec![Piece { logical: MAX_OFFSET, ..good }]),
        write(vec![Piece { physical: u64::MAX, ..good }]),
        Record::Cut { id, place: id, size: MAX_OFFSET + 1 },
        attributes(none),
        attributes(Attributes { mode: Some(0o10000), ..none }),
        attributes(Attributes { mtime: Some(When { sec: 0, nsec: 1_000_000_000 }), ..none }),
        Record::Gone { ids: vec![] },
        Record::Gone { ids: vec![id; GONE_MAX + 1] },
        Record::ById { id, name: (*b"a/b").into() },
    ] {
        assert!(
            encode_records(std::slice::from_ref(&record), &mut Vec::new()).is_err(),
            "{record:?}"
        );
    }
    assert!((1..=255).all(|n| is_name(&vec![0xff; n])));
}

fn seal(bytes: &mut [u8]) {
    let end = 64 + u32::from_le_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]) as usize;
    let sum = crc(&bytes[64..end]);
    bytes[8..12].copy_from_slice(&sum.to_le_bytes());
    let sum = crc(&bytes[8..64]);
    bytes[4..8].copy_from_slice(&sum.to_le_bytes());
}

/// Any byte of a block may be any other, with right checksums: decoding gives an error or records
/// that can be written again, and takes no more memory than the bytes.
#[test]
fn hostile_blocks_with_right_checksums_do_no_harm() {
    let (mut refused, mut read) = (0, 0);
    for seed in 0..20_000 {
        let mut chance = Chance(seed);
        let records: Vec<Record> = (0..1 + chance.below(3)).map(|_| chance.record()).collect();
        let mut bytes = encode(&records);
        let end = 64 + u32::from_le_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]) as usize;
        for _ in 0..1 + chance.below(4) {
            // The fields of the header that a checksum of its own guards, and the payload.
            let at = [52, 53, 56, 40, 58][chance.below(5) as usize];
            let at =
                if chance.below(4) == 0 { at } else { 64 + chance.below(end as u64 - 64) as usize };
            bytes[at] = [0, 1, 0xff, chance.next() as u8][chance.below(4) as usize];
        }
        seal(&mut bytes);
        match decode(&bytes).expect("the block is whole") {
            Ok(block) => {
                encode_records(&block.records, &mut Vec::new()).unwrap();
                read += 1;
            }
            Err(_) => refused += 1,
        }
    }
    assert!(refused > 5000 && read > 500, "{refused} refused, {read} read");
    for seed in 0..2000 {
        let mut chance = Chance(seed);
        let mut bytes = vec![0; chance.below(300) as usize];
        bytes
            .iter_mut()
            .for_each(|byte| *byte = [0, 0, 1, chance.next() as u8][chance.below(4) as usize]);
        let _ = tree::decode_leaf(&bytes, 128, u64::MAX);
        let _ = tree::decode_inner(&bytes, 1 << 30, 1 << 40);
        let _ = tree::Header::decode(&bytes, LOG.uuid, 1 << 40);
    }
}

#[test]
fn a_record_of_a_later_version_is_told_from_damage() {
    let mut bytes = encode(&[Record::Clear { stamp: 1 }]);
    bytes[64 + 16] = 23;
    seal(&mut bytes);
    assert!(decode(&bytes).unwrap().unwrap_err().newer);
    bytes[64 + 16] = 1;
    seal(&mut bytes);
    assert!(!decode(&bytes).unwrap().unwrap_err().newer);
    bytes[64 + 16] = 200;
    seal(&mut bytes);
    assert_eq!(decode(&bytes).unwrap().unwrap().records, []);
}

/// A block whose last bytes are zeros would pass for one that a crash has cut.
#[test]
fn damage_to_a_whole_block_is_not_taken_for_a_cut() {
    for seed in 0..200 {
        let mut chance = Chance(seed);
        let mut bytes = encode(&[chance.record()]);
        let end = 64 + u32::from_le_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]) as usize;
        bytes[end - 20] ^= 1;
        assert_eq!(block_at(LOG, 640, &bytes), At::Nothing);
        // Whole sectors of zeros are what a power cut leaves.
        let is_long = end > 512;
        assert!(is_long || !crate::index_log::is_torn(LOG, 640, &bytes, end as u64), "{seed}");
    }
}

/// Who knows only files refuses a pack, and the other way round.
#[test]
fn packs_and_files_are_not_taken_for_each_other() {
    use crate::superblock::{SuperError, Superblock};
    let superblock = Superblock {
        uuid: LOG.uuid,
        created_ns: 1,
        boot: 2,
        created_boot_ns: 3,
        mode: 0o700,
        uid: 4,
        gid: 5,
        has_base: false,
        streams: 6,
        segment_bytes: 7,
        backends: vec![0],
        placement: None,
        root: b"/r".to_vec(),
        inode: 8,
    };
    let (file, pack) = (superblock.encode().unwrap(), superblock.encode_pack().unwrap());
    assert_eq!(Superblock::decode(&file), Ok(superblock.clone()));
    assert_eq!(Superblock::decode_pack(&pack), Ok(superblock));
    assert_eq!(
        Superblock::decode(&pack),
        Err(SuperError::Unknown { major: 1, features: crate::superblock::PACK_FEATURE })
    );
    assert_eq!(Superblock::decode_pack(&file), Err(SuperError::Unknown { major: 1, features: 0 }));
}

#[test]
fn a_header_of_names_is_what_was_written_or_nothing() {
    let covers = tree::encode_covers(&[(7, 640), (9, 0)]);
    let header = tree::Header {
        uuid: LOG.uuid,
        stamp: 1,
        clear: 2,
        files: 3,
        length: 4096,
        root: Some(BlockRef { at: 128, bytes: 64, crc: 5 }),
        levels: 2,
        covers: 2,
        covers_at: 192,
        covers_crc: crc(&covers),
    };
    let bytes = header.encode();
    assert_eq!(bytes.len(), tree::HEADER_BYTES);
    assert_eq!(tree::Header::decode(&bytes, LOG.uuid, 4096), Ok(header.clone()));
    assert_eq!(tree::decode_covers(&header, &covers).unwrap(), [(7, 640), (9, 0)]);
    assert!(tree::decode_covers(&header, &covers[..16]).is_err());
    assert!(tree::Header::decode(&bytes, Uuid([4; 16]), 4096).is_err());
    assert!(tree::Header::decode(&bytes, LOG.uuid, 4095).is_err());
    for bit in 0..bytes.len() * 8 {
        let mut hurt = bytes.clone();
        hurt[bit / 8] ^= 1 << (bit % 8);
        assert!(tree::Header::decode(&hurt, LOG.uuid, 4096).is_err(), "bit {bit}");
    }
    for wrong in [
        tree::Header { root: Some(BlockRef { at: 4096, bytes: 8, crc: 0 }), ..header.clone() },
        tree::Header { root: Some(BlockRef { at: 0, bytes: 8, crc: 0 }), ..header.clone() },
        tree::Header { root: Some(BlockRef { at: 128, bytes: 7, crc: 0 }), ..header.clone() },
        tree::Header { covers: u32::MAX, ..header.clone() },
        tree::Header { covers_at: u64::MAX, ..header.clone() },
        tree::Header { levels: 17, ..header.clone() },
    ] {
        assert!(tree::Header::decode(&wrong.encode(), LOG.uuid, 4096).is_err());
    }
}

#[test]
fn inner_blocks_have_ascending_keys_and_children_in_front() {
    let child = |key: &[u8], at| (key.to_vec(), BlockRef { at, bytes: 64, crc: 1 });
    let good = [child(b"\x00123", 128), child(b"a", 192), child(&[0xff; 255], 256)];
    let bytes = tree::encode_inner(&good);
    assert_eq!(tree::decode_inner(&bytes, 320, 4096).unwrap(), good);
    for cut in 0..bytes.len() {
        assert!(tree::decode_inner(&bytes[..cut], 320, 4096).is_err(), "{cut}");
    }
    assert!(tree::decode_inner(&bytes, 256, 4096).is_err());
    assert!(tree::decode_inner(&bytes, 320, 300).is_err());
    for wrong in [vec![], vec![child(b"", 128)], vec![child(b"b", 128), child(b"b", 192)]] {
        assert!(tree::decode_inner(&tree::encode_inner(&wrong), 320, 4096).is_err());
    }
    assert!(
        tree::key_by_id(Place { stamp: 1, set: 2 }) < tree::key_by_id(Place { stamp: 256, set: 0 })
    );
}
