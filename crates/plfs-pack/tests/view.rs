//! An open file is kept up to date record by record. It shows what all that was said of it shows,
//! read byte by byte.

use std::convert::Infallible;

use plfs_format::name::SegmentRef;
use plfs_format::pack::{Piece, Place, Record};
use plfs_pack::{View, Write};
use plfs_testkit::{Rng, explored, rounds, seeds};

const SET: u32 = 1;
const ID: Place = Place { stamp: 1, set: SET };
const SEGMENT: SegmentRef = SegmentRef { set: SET, stream: 0, segment: 0, backend: 0 };
const END: u64 = 80;

/// The data of every third write in doubt is not what it was.
fn is_sound(crc: u32) -> bool {
    !crc.is_multiple_of(3)
}

/// Where each byte of the file is, and its size.
fn shown(said: &[Record]) -> (Vec<Option<u64>>, u64) {
    let cuts = said.iter().filter_map(|record| match record {
        Record::Cut { place, size, .. } => Some((place.stamp, *size)),
        _ => None,
    });
    let cuts: Vec<(u64, u64)> = cuts.collect();
    let clip = |stamp| cuts.iter().filter(|(cut, _)| *cut > stamp).map(|(_, size)| *size).min();
    let end_of = |piece: &Piece| {
        let end = piece.logical + u64::from(piece.length);
        clip(piece.stamp).map_or(end, |clip| clip.min(end))
    };
    let mut writes = Vec::new();
    for record in said {
        let Record::Write { boot, pieces, .. } = record else { continue };
        writes.extend(pieces.iter().map(|piece| (*piece, *boot)));
    }
    writes.sort_by_key(|(piece, _)| (piece.stamp, piece.length));
    let mut bytes = vec![None; END as usize];
    for (i, (piece, boot)) in writes.iter().enumerate() {
        let range = |piece: &Piece| piece.logical..end_of(piece);
        let (mine, older) =
            (range(piece), writes[..i].iter().filter(|(o, _)| o.stamp < piece.stamp));
        let is_over = older.into_iter().any(|(other, _)| {
            let other = range(other);
            other.start.max(mine.start) < other.end.min(mine.end)
        });
        if *boot != 0 && is_over && !is_sound(piece.crc) {
            continue;
        }
        for at in mine {
            bytes[at as usize] = Some(piece.physical + at - piece.logical);
        }
    }
    let of_writes = writes.iter().map(|(piece, _)| end_of(piece));
    let of_cuts =
        cuts.iter().map(|(stamp, size)| clip(*stamp).map_or(*size, |clip| clip.min(*size)));
    let size = of_writes.chain(of_cuts).max().unwrap_or(0);
    (bytes, size)
}

#[test]
fn what_an_open_file_shows_is_what_was_said_of_it() {
    let rounds = rounds("PLFS_PACK_ROUNDS", 300);
    for seed in seeds(rounds) {
        let mut rng = Rng::new(seed);
        let (mut view, mut said) = (View::default(), Vec::<Record>::new());
        let (has_doubt, in_order) = (rng.one_in(2), rng.one_in(2));
        for n in 2..rng.below(150) + 3 {
            // A stamp of its own for each, in the order in which they come or not.
            let stamp = if in_order { n } else { n ^ rng.pick(&[0, 0, 0x100, 0x200]) };
            let (physical, crc) = (n * 1000, rng.below(100) as u32);
            let (logical, length) = (rng.below(END / 2), rng.below(END / 2) as u32 + 1);
            let boot = if has_doubt && rng.one_in(3) { 77 } else { 0 };
            let piece = Piece { logical, physical, stamp, length, crc };
            let record = match rng.below(10) {
                0 => Record::Cut { id: ID, place: Place { stamp, set: SET }, size: rng.below(END) },
                1 if !said.is_empty() => said[rng.below(said.len() as u64) as usize].clone(),
                _ => Record::Write { id: ID, set: SET, boot, segment: 0, pieces: vec![piece] },
            };
            view.add(&[SEGMENT], &record, 1);
            said.push(record);
            if rng.one_in(2) {
                let sound = |write: &Write| Ok::<bool, Infallible>(is_sound(write.crc));
                let mut bytes = vec![None; END as usize];
                let Ok(now) = view.shown(sound);
                for extent in now.all() {
                    for at in 0..extent.length {
                        bytes[(extent.logical + at) as usize] = Some(extent.physical + at);
                    }
                }
                // What is asked of a part of it is what it has there.
                let (from, to) = (rng.below(END), rng.below(END));
                let part: Vec<_> = now.within(from, to).collect();
                let has_part =
                    |e: &plfs_pack::Extent| e.logical < to && e.logical + e.length > from;
                assert_eq!(
                    part,
                    now.all().filter(|e| from < to && has_part(e)).collect::<Vec<_>>()
                );
                assert_eq!((bytes, view.state().size()), shown(&said), "seed {seed}: {said:#?}");
            }
        }
    }
    explored(rounds, "open files of packs");
}
