//! The index against a map of bytes that is obviously right: each byte knows its segment and
//! physical offset, records are replayed in order.

use std::sync::Arc;
use std::time::Instant;

use plfs_format::flat_index::{
    self, Axis, Blocks, Covered, Extent, FlatIndex, NewShape, Segment, Truncate,
};
use plfs_format::name::SegmentRef;
use plfs_index::{
    Base, Bulk, Entry, ExtentMap, Folder, Found, HOLE, Numbers, Order, Overlaps, Run,
};

/// One record of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Item {
    Run(Run),
    Truncate(u64),
}
use proptest::prelude::*;
use zerocopy::IntoBytes;

/// A place for each byte, None for a hole; as long as the file.
type Bytes = Vec<Option<(u32, u64)>>;

/// Replays one record: FORMAT.md section 4 in a few lines.
fn replay(file: &mut Bytes, item: &Item) {
    match *item {
        Item::Truncate(size) => file.resize(size as usize, None),
        Item::Run(r) => {
            file.resize(file.len().max(r.end() as usize), None);
            if r.segment == HOLE {
                return file[r.logical as usize..r.end() as usize].fill(None);
            }
            for i in 0..u64::from(r.count) {
                let at = (r.logical as i64 + i as i64 * r.stride) as usize;
                for j in 0..r.length {
                    file[at + j as usize] = Some((r.segment, r.physical + i * r.length + j));
                }
            }
        }
    }
}

/// The file after all records, replayed in their order.
fn model(records: &[(Item, Order)]) -> Bytes {
    let mut sorted = records.to_vec();
    sorted.sort_by_key(|r| r.1);
    let mut file = Bytes::new();
    for (item, _) in &sorted {
        replay(&mut file, item);
    }
    file
}

/// What a lookup must find: the longest pieces that continue logically and physically.
fn pieces(file: &Bytes, from: u64, to: u64) -> Vec<Found> {
    let mut out: Vec<Found> = Vec::new();
    for at in from..to.min(file.len() as u64) {
        let Some((segment, physical)) = file[at as usize] else { continue };
        match out.last_mut() {
            Some(f)
                if f.logical + f.length == at
                    && f.segment == segment
                    && f.physical + f.length == physical =>
            {
                f.length += 1
            }
            _ => out.push(Found { logical: at, length: 1, segment, physical }),
        }
    }
    out
}

fn insert(map: &mut ExtentMap, item: &Item, order: Order) {
    match *item {
        Item::Run(run) => map.insert(run, order),
        Item::Truncate(size) => map.insert_truncate(order, size),
    }
}

fn all(map: &ExtentMap) -> Vec<(Run, Order)> {
    let mut all = Vec::new();
    map.for_each(|run, order| all.push((run, order)));
    all
}

/// Compares size, holes, data and one lookup of everything.
fn check_whole(map: &ExtentMap, file: &Bytes) {
    let size = file.len() as u64;
    assert_eq!(map.eof(), size, "size of {map:?}");
    let mut out = Vec::new();
    map.lookup(0, u64::MAX, &mut out);
    assert_eq!(out, pieces(file, 0, size), "{map:?} {:?}", all(map));
}

/// Compares everything, at all offsets.
fn check(map: &ExtentMap, file: &Bytes) {
    check_whole(map, file);
    let size = file.len() as u64;
    let mut out = Vec::new();
    for from in 0..size + 2 {
        for to in [from, from + 1, from + 3, from + 10, size / 2] {
            map.lookup(from, to, &mut out);
            assert_eq!(out, pieces(file, from, to), "[{from}, {to})");
        }
        for stride in 1..12 {
            let Some(mut row) = map.row(from, from + 1, stride) else { continue };
            let mut at = from;
            loop {
                let piece = row.piece;
                assert!(piece.logical <= at && at < piece.logical + piece.length);
                map.lookup(piece.logical, piece.logical + piece.length, &mut out);
                assert_eq!(out, [piece], "row from {from} by {stride} in {map:?}");
                at += stride;
                if !row.next_has(at, at + 1) {
                    break;
                }
                row.advance();
            }
        }
        let next = |hole: bool| (from..size).find(|&at| file[at as usize].is_none() == hole);
        assert_eq!(map.next_data(from), next(false), "data from {from} in {map:?}");
        let hole = (from < size).then(|| next(true).unwrap_or(size));
        assert_eq!(map.next_hole(from), hole, "hole from {from} in {map:?}");
    }
}

/// The p-th order: both fields matter.
fn nth(p: usize) -> Order {
    Order { stamp: 1 + p as u64 / 4, set: SETS[p % 4] }
}

/// Log sets.
const SETS: [u32; 4] = [3, 70, 900, 4_000_000_000];

const FILE: u64 = 72;

fn runs() -> impl Strategy<Value = Run> {
    let one = (0..FILE, 1..7u64, 1..6u32, any::<bool>(), 0..8u64, 0..3u32, 0..60u64);
    one.prop_map(|(at, length, count, backwards, gap, segment, physical)| {
        let step = length + gap;
        let length = length.min(FILE - at);
        let room = if backwards { at / step } else { (FILE - at - length) / step };
        let count = u64::from(count).min(room + 1) as u32;
        let stride = if count == 1 { 0 } else { step as i64 * if backwards { -1 } else { 1 } };
        let run = Run { logical: at, length, stride, count, segment, physical };
        assert!(run.is_valid());
        run
    })
}

/// Few shapes, so that runs meet others on their lattice.
fn lattice_runs() -> impl Strategy<Value = Run> {
    (0..3u64, 0..9u64, 1..9u64, 0..2u64, any::<bool>(), 0..60u64).prop_map(
        |(phase, from, count, wide, backwards, physical)| {
            let count = count.min(9 - from);
            let at = |k: u64| phase + k * 8;
            let (logical, stride) =
                if backwards { (at(from + count - 1), -8) } else { (at(from), 8) };
            Run {
                logical,
                length: 2 + wide,
                stride: if count == 1 { 0 } else { stride },
                count: count as u32,
                segment: 0,
                physical,
            }
        },
    )
}

fn items() -> impl Strategy<Value = Item> {
    prop_oneof![
        6 => runs().prop_map(Item::Run),
        4 => lattice_runs().prop_map(Item::Run),
        2 => (0..FILE, 1..30u64, 0..60u64).prop_map(|(at, n, physical)| {
            Item::Run(Run::single(at, n.min(FILE - at), 1, physical))
        }),
        2 => (0..FILE, 1..30u64).prop_map(|(at, n)| Item::Run(Run::hole(at, n.min(FILE - at)))),
        1 => (0..FILE + 9).prop_map(Item::Truncate),
    ]
}

/// What else happens between inserts.
#[derive(Clone, Copy, Debug)]
enum Step {
    Insert,
    Twice,
    Extend,
    Compact,
    Reopen,
    Check,
}

fn steps() -> impl Strategy<Value = Step> {
    use Step::*;
    prop_oneof![
        20 => Just(Insert),
        1 => Just(Twice),
        2 => Just(Extend),
        1 => Just(Compact),
        1 => Just(Reopen),
        1 => Just(Check)
    ]
}

/// Numbers of segments that the histories use.
const SEGMENTS: usize = 16;

/// Writes what a map and many records make as a flat index, and opens that; segments keep their
/// numbers or get others, as `renumbered` says.
fn reopen_with(map: &ExtentMap, bulks: Vec<Bulk>, settled: bool) -> (ExtentMap, Vec<u32>) {
    let segments = (0..SEGMENTS as u32).collect::<Vec<_>>();
    let set_of: Vec<u32> = (0..SEGMENTS as u32).map(|segment| segment % 4).collect();
    let numbers = Numbers { set_of: &set_of, sets: &SETS };
    let newest = bulks.iter().map(Bulk::newest).max().unwrap_or(0);
    let mut whole = ExtentMap::new();
    map.truncates().iter().for_each(|(order, size)| whole.insert_truncate(*order, *size));
    let is_bulky = !bulks.is_empty();
    let image = map
        .image(bulks.into_iter().map(|bulk| (bulk, segments.clone())).collect(), &numbers, settled)
        .unwrap();
    let uuid = plfs_format::Uuid([7; 16]);
    let max_stamp = map.max_stamp().max(newest);
    let segment = |old: &u32| Segment {
        at: SegmentRef {
            set: SETS[set_of[*old as usize] as usize],
            stream: 0,
            segment: *old,
            backend: 0,
        },
        bytes: 99,
    };
    let flat = FlatIndex {
        uuid,
        size: map.eof(),
        max_stamp,
        floor: if settled { max_stamp } else { map.base().map_or(0, |base| base.flat().floor) },
        covered: SETS.iter().map(|set| Covered { set: *set, from: 0, bytes: 0 }).collect(),
        segments: image.segments.iter().map(segment).collect(),
        truncates: if settled {
            Vec::new()
        } else {
            map.truncates()
                .iter()
                .map(|(order, size)| Truncate { stamp: order.stamp, set: order.set, size: *size })
                .collect()
        },
        ..FlatIndex::default()
    };
    let bytes = flat_index::encode(&flat, &image.shapes, image.entries.as_bytes(), &image.blocks);
    let flat = flat_index::decode(&bytes, &uuid).unwrap();
    let base = Base::new(Arc::new(bytes), flat);
    base.check().unwrap();
    let again = ExtentMap::with_base(base);
    (if is_bulky { again.grown() } else { again }, image.segments)
}

fn reopen(map: &ExtentMap) -> ExtentMap {
    let (again, segments) = reopen_with(map, Vec::new(), false);
    assert!(segments.is_sorted());
    assert_eq!(again.eof(), map.eof());
    again
}

/// Compares a settled flat index of the map, whose segments have other numbers, with the bytes.
fn check_settled(map: &ExtentMap, file: &Bytes) {
    let (settled, segments) = reopen_with(map, Vec::new(), true);
    let renumbered: Bytes = file
        .iter()
        .map(|byte| {
            byte.map(|(segment, physical)| {
                (segments.iter().position(|old| *old == segment).unwrap() as u32, physical)
            })
        })
        .collect();
    check(&settled, &renumbered);
    // And again, from the settled one.
    let (settled, again) = reopen_with(&settled, Vec::new(), true);
    let renumbered: Bytes = renumbered
        .iter()
        .map(|byte| {
            byte.map(|(segment, physical)| {
                (again.iter().position(|old| *old == segment).unwrap() as u32, physical)
            })
        })
        .collect();
    check(&settled, &renumbered);
}

fn run_steps(steps: &[(Step, Item, u16)], buffer: usize) {
    // The order of records has nothing to do with the order they come in.
    let mut by_key: Vec<usize> = (0..steps.len()).collect();
    by_key.sort_by_key(|&i| (steps[i].2, i));
    let mut rank = vec![0; steps.len()];
    for (p, &i) in by_key.iter().enumerate() {
        rank[i] = p;
    }
    let mut map = ExtentMap::with_buffer(buffer);
    let mut records: Vec<(Item, Order)> = Vec::new();
    let mut batch = Vec::new();
    for (i, (step, item, _)) in steps.iter().enumerate() {
        let order = nth(rank[i]);
        records.push((*item, order));
        match (step, item) {
            (Step::Extend, Item::Run(run)) => batch.push((*run, order)),
            _ => insert(&mut map, item, order),
        }
        match step {
            Step::Insert | Step::Extend => continue,
            Step::Twice => insert(&mut map, item, order),
            Step::Compact => drop(map.compact()),
            Step::Reopen => map = reopen(&map),
            Step::Check => {}
        }
        map.extend(batch.drain(..));
        check_whole(&map, &model(&records));
    }
    map.extend(batch);
    let file = model(&records);
    check(&map, &file);
    assert_eq!(map.max_stamp(), records.iter().map(|r| r.1.stamp).max().unwrap_or(0));
    map.compact();
    check(&map, &file);
    check(&reopen(&map), &file);
    check_settled(&map, &file);
    // All at once.
    let mut empty = ExtentMap::new();
    let mut bulks = [Bulk::default(), Bulk::default()];
    for (i, (item, order)) in records.iter().enumerate() {
        match item {
            Item::Run(run) => bulks[i % 2].push(*run, *order),
            Item::Truncate(size) => empty.insert_truncate(*order, *size),
        }
    }
    let (bulky, _) = reopen_with(&empty, bulks.into(), false);
    check(&bulky, &file);
    check_settled(&bulky, &file);
}

/// How many cases a test tries: so many, or in percent of that what `PLFS_INDEX_PERCENT` says.
fn cases(usual: u32) -> u32 {
    let percent = std::env::var("PLFS_INDEX_PERCENT").map_or(100, |n| n.parse().expect("a number"));
    usual * percent / 100
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: cases(500),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_map_agrees_with_bytes(
        steps in prop::collection::vec((steps(), items(), any::<u16>()), 0..40),
        buffer in 1..9usize,
    ) {
        run_steps(&steps, buffer);
    }

    /// Orders nearly as they come: the common case, with other paths through truncates and merges.
    #[test]
    fn the_map_agrees_with_bytes_in_order(
        steps in prop::collection::vec((steps(), items(), 0..3u16), 0..40),
        buffer in 1..9usize,
    ) {
        let steps = steps.iter().enumerate();
        let steps: Vec<_> = steps.map(|(i, s)| (s.0, s.1, i as u16 + s.2)).collect();
        run_steps(&steps, buffer);
    }

    /// Many runs of few lengths and strides: what a thousand ranks leave, at a small scale.
    #[test]
    fn interleaved_ranks_agree_with_bytes(
        shapes in prop::collection::vec(
            (0..30u64, 0..6u64, 1..8u64, any::<bool>(), 0..12u8, 0..999u64),
            60..120,
        ),
        cut in 0..400u64,
        ranges in prop::collection::vec((0..400u64, 0..80u64), 30),
    ) {
        let mut records: Vec<(Item, Order)> = Vec::new();
        for (i, &(phase, from, count, backwards, odd, physical)) in shapes.iter().enumerate() {
            let step = if odd == 0 { 17 } else { 30 };
            let length = if odd == 1 { 7 } else { 3 };
            let (low, high) = (phase + from * step, phase + (from + count - 1) * step);
            let (logical, stride) = match (count, backwards) {
                (1, _) => (if backwards { high } else { low }, 0),
                (_, true) => (high, -(step as i64)),
                (_, false) => (low, step as i64),
            };
            let count = count as u32;
            let run = Run { logical, length, stride, count, segment: 0, physical };
            // A prime above the length: each order once.
            records.push((Item::Run(run), nth(i * 127 % shapes.len())));
        }
        let mut map = ExtentMap::with_buffer(5);
        for (item, order) in &records {
            insert(&mut map, item, *order);
        }
        let look = |map: &ExtentMap, file: &Bytes| {
            check_whole(map, file);
            let mut out = Vec::new();
            for (from, length) in &ranges {
                map.lookup(*from, from + length, &mut out);
                assert_eq!(out, pieces(file, *from, from + length));
            }
        };
        look(&map, &model(&records));
        map.compact();
        look(&map, &model(&records));
        let order = nth(shapes.len() / 2);
        let truncate = (Item::Truncate(cut), Order { set: order.set + 9, ..order });
        insert(&mut map, &truncate.0, truncate.1);
        records.push(truncate);
        look(&map, &model(&records));
        look(&reopen(&map), &model(&records));
    }

    /// What ranks in turns leave folds; later records go over it, and are merged with it again and
    /// again.
    #[test]
    fn settled_indexes_agree_with_bytes_when_more_is_written(
        (nodes, streams, ranks, pieces_each, length) in
            (1..4u64, 1..4u64, 1..4u64, 1..5u64, 1..4u64),
        racing in 0..4u64,
        gap in 0..2u64,
        rounds in prop::collection::vec(prop::collection::vec(items(), 0..6), 1..4),
    ) {
        let n = nodes * streams * ranks;
        let mut file = Bytes::new();
        let mut map = ExtentMap::with_buffer(3);
        let mut stamp = 0;
        let add = |map: &mut ExtentMap, file: &mut Bytes, stamp: &mut u64, item: Item| {
            *stamp += 1;
            insert(map, &item, Order { stamp: *stamp, set: SETS[*stamp as usize % 4] });
            replay(file, &item);
        };
        for rank in 0..n {
            let at = if racing == 0 { rank } else { (rank * 7 + racing) % n };
            let segment = (at / (streams * ranks) * streams + at % streams) as u32;
            let physical = at / streams % ranks * 64;
            let stride = (n * (length + gap)) as i64;
            let run = Run {
                logical: rank * (length + gap),
                length,
                stride: if pieces_each == 1 { 0 } else { stride },
                count: pieces_each as u32,
                segment,
                physical,
            };
            add(&mut map, &mut file, &mut stamp, Item::Run(run));
        }
        // Segments keep the numbers that this list says.
        let mut names: Vec<u32> = (0..SEGMENTS as u32).collect();
        let renumbered = |file: &Bytes, names: &[u32]| -> Bytes {
            let number = |segment| names.iter().position(|old| *old == segment).unwrap() as u32;
            let byte = |(segment, physical)| (number(segment), physical);
            file.iter().map(|at| at.map(byte)).collect()
        };
        for round in &rounds {
            let (settled, segments) = reopen_with(&map, Vec::new(), true);
            names = segments.iter().map(|old| names[*old as usize]).collect();
            map = settled;
            check(&map, &renumbered(&file, &names));
            for item in round {
                let mut item = *item;
                stamp += 1;
                let order = Order { stamp, set: SETS[stamp as usize % 4] };
                replay(&mut file, &item);
                if let Item::Run(run) = &mut item
                    && run.segment != HOLE
                {
                    let number = names.iter().position(|name| *name == run.segment);
                    run.segment = number.unwrap() as u32;
                }
                insert(&mut map, &item, order);
                check_whole(&map, &renumbered(&file, &names));
            }
            check(&map, &renumbered(&file, &names));
            check(&reopen(&map), &renumbered(&file, &names));
        }
        check_settled(&map, &renumbered(&file, &names));
    }

    #[test]
    fn the_folder_agrees_with_bytes(
        writes in prop::collection::vec((0..60u64, 1..5u64, 0..12u8, 1..4u32), 0..60),
        strided in any::<bool>(),
    ) {
        let writes = writes.iter();
        let writes: Vec<_> =
            writes.map(|w| (w.0, w.1, w.2, if strided { w.3 } else { 1 })).collect();
        check_folder(&writes);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: cases(60),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn long_histories_agree_with_bytes(
        steps in prop::collection::vec((steps(), items(), any::<u16>()), 300..600),
    ) {
        run_steps(&steps, 64);
    }
}

/// Writes as (offset, length, what else, pieces).
fn check_folder(writes: &[(u64, u64, u8, u32)]) {
    let (mut folder, mut now, mut last_stamp) = (Folder::new(), 0, 0);
    let (mut truth, mut folded) = (Bytes::new(), Bytes::new());
    let (mut physical, mut segment, mut last) = (0, 0, (0, 1, 0i64));
    let mut stamp = || {
        now += 1;
        now
    };
    let mut take = |folder: &mut Folder, folded: &mut Bytes, stamp: &mut dyn FnMut() -> u64| {
        for item in folder.take(stamp) {
            assert!(
                item.each().all(|run| run.is_valid()) && item.stamp > last_stamp,
                "stamps follow the order of the records"
            );
            last_stamp = item.stamp;
            item.each().for_each(|run| replay(folded, &Item::Run(run)));
        }
        assert!(folder.is_empty());
    };
    for &(at, length, what, count) in writes {
        // Often the write continues the last one, or keeps its distance, so that much folds.
        let (at, length): (u64, u64) = match what {
            0..3 => (last.0 + last.1, length),
            3..8 => ((last.0 as i64 + last.2).max(0) as u64, last.1),
            _ => (at, length),
        };
        match what {
            7 => physical += 1,
            8 => {
                physical += 1;
                segment = u32::from(length == 1);
            }
            9 => folder.seal(&mut stamp),
            10 => {
                take(&mut folder, &mut folded, &mut stamp);
                assert_eq!(folded, truth);
            }
            _ => {}
        }
        let run = Run { logical: at, length, stride: last.2, count, segment, physical };
        let run = if count > 1 && run.is_valid() {
            run
        } else {
            Run::single(at, length, segment, physical)
        };
        replay(&mut truth, &Item::Run(run));
        folder.push_run(run, &mut stamp);
        physical += run.bytes();
        let end = (at as i64 + i64::from(run.count - 1) * run.stride) as u64;
        last = (end, length, if run.count > 1 { run.stride } else { at as i64 - last.0 as i64 });
    }
    take(&mut folder, &mut folded, &mut stamp);
    assert_eq!(folded, truth);
}

/// All runs of pieces of `lengths` bytes inside a file of `size` bytes.
fn all_runs(size: u64, lengths: std::ops::RangeInclusive<u64>, counts: u32) -> Vec<Run> {
    let mut runs = Vec::new();
    for logical in 0..size {
        for length in lengths.clone() {
            for stride in -(size as i64)..size as i64 {
                for count in 1..=counts {
                    let run = Run { logical, length, stride, count, segment: 0, physical: 0 };
                    if run.is_valid() && run.end() <= size {
                        runs.push(run);
                    }
                }
            }
        }
    }
    runs
}

/// Each pair of runs in a file of 12 bytes, alone and with a truncate between or behind, in each
/// order of arrival.
#[test]
fn all_pairs_of_runs_in_a_small_file() {
    let runs = all_runs(12, 1..=3, 3);
    assert!(runs.len() > 200, "{}", runs.len());
    let order = |stamp| Order { stamp, set: 0 };
    for (i, a) in runs.iter().enumerate() {
        for (j, b) in runs.iter().enumerate() {
            let (a, b) = (Item::Run(*a), Item::Run(Run { segment: 1, ..*b }));
            // The truncates take turns, so that each run meets each of them.
            let size = ((i + j) % 14) as u64;
            let mut records = vec![(a, order(1)), (b, order(3))];
            match (i * 7 + j) % 3 {
                0 => {}
                1 => records.push((Item::Truncate(size), order(2))),
                _ => records.push((Item::Truncate(size), order(4))),
            }
            let file = model(&records);
            let turn = (i + j) / 14 % records.len();
            records.rotate_left(turn);
            let mut map = ExtentMap::with_buffer(1 + j % 3);
            for (item, order) in &records {
                insert(&mut map, item, *order);
            }
            check_whole(&map, &file);
            map.compact();
            check_whole(&map, &file);
        }
    }
}

/// Calls `f` with each way to interleave the writers' programs: `schedule[i]` is the writer whose
/// next record is the i-th in order.
fn interleave(left: &mut [usize], schedule: &mut Vec<usize>, f: &mut impl FnMut(&[usize])) {
    let mut done = true;
    for w in 0..left.len() {
        if left[w] > 0 {
            done = false;
            left[w] -= 1;
            schedule.push(w);
            interleave(left, schedule, f);
            schedule.pop();
            left[w] += 1;
        }
    }
    if done {
        f(schedule);
    }
}

/// Three writers, each with up to four records on a file of 12 bytes, in every order that the clock
/// can give them; a reader loads log after log.
#[test]
fn all_schedules_of_three_writers() {
    let run = |logical: u64, length: u64, stride: i64, count: u32| {
        Item::Run(Run { logical, length, stride, count, segment: 0, physical: logical * 3 })
    };
    let programs: [[Vec<Item>; 3]; 4] = [
        // A strided checkpoint, written twice with other boundaries, and one writer who overwrites
        // all.
        [
            vec![run(0, 2, 4, 3), run(0, 2, 4, 2), run(8, 2, 0, 1), run(0, 2, 4, 3)],
            vec![run(2, 2, 4, 3), run(10, 2, -4, 3), run(2, 2, 0, 1), run(6, 2, 4, 2)],
            vec![run(0, 12, 0, 1), run(3, 6, 0, 1), run(0, 5, 0, 1), run(5, 7, 0, 1)],
        ],
        // Truncates between.
        [
            vec![run(0, 3, 5, 2), Item::Truncate(6), run(1, 1, 2, 5), Item::Truncate(11)],
            vec![run(11, 1, -3, 4), Item::Truncate(4), run(2, 2, 3, 3), run(0, 1, 0, 1)],
            vec![Item::Truncate(9), run(4, 8, 0, 1), run(0, 4, 4, 3), Item::Truncate(0)],
        ],
        // Backwards and dense.
        [
            vec![run(9, 3, -3, 4), run(8, 4, -4, 3), run(11, 1, -1, 12), run(0, 1, 1, 12)],
            vec![run(1, 1, 3, 3), run(2, 1, 3, 3), run(0, 1, 3, 4), run(4, 1, 3, 2)],
            vec![run(6, 2, -3, 3), run(5, 3, 4, 2), run(0, 12, 0, 1), run(3, 1, 0, 1)],
        ],
        // Fewer records.
        [
            vec![run(0, 2, 5, 2)],
            vec![Item::Truncate(3), run(1, 4, 6, 2)],
            vec![run(2, 9, 0, 1), Item::Truncate(5), run(7, 1, 2, 2)],
        ],
    ];
    let mut out = Vec::new();
    for (p, program) in programs.iter().enumerate() {
        let mut left: Vec<usize> = program.iter().map(Vec::len).collect();
        let mut n = 0usize;
        interleave(&mut left, &mut Vec::new(), &mut |schedule| {
            n += 1;
            let mut next = [0; 3];
            let mut file = Bytes::new();
            let mut logs: [Vec<(Item, Order)>; 3] = Default::default();
            for (i, &w) in schedule.iter().enumerate() {
                let mut item = program[w][next[w]];
                if let Item::Run(run) = &mut item {
                    run.segment = w as u32 * 4 + next[w] as u32;
                }
                next[w] += 1;
                replay(&mut file, &item);
                logs[w].push((item, Order { stamp: 1 + i as u64 / 2, set: SETS[i % 2] }));
            }
            let mut map = ExtentMap::with_buffer(1 + n % 5);
            for k in 0..3 {
                for (item, order) in &logs[(k + n) % 3] {
                    insert(&mut map, item, *order);
                }
            }
            if n.is_multiple_of(3) {
                map.compact();
            }
            assert_eq!(map.eof(), file.len() as u64, "program {p}, {schedule:?}");
            map.lookup(0, 12, &mut out);
            assert_eq!(out, pieces(&file, 0, 12), "program {p}, {schedule:?}");
            let (settled, segments) = reopen_with(&map, Vec::new(), true);
            assert_eq!(settled.eof(), file.len() as u64, "program {p}, {schedule:?}");
            settled.lookup(0, 12, &mut out);
            out.iter_mut().for_each(|found| found.segment = segments[found.segment as usize]);
            assert_eq!(out, pieces(&file, 0, 12), "settled, program {p}, {schedule:?}");
        });
        assert!(n >= 60);
    }
}

/// A checkpoint that is written again and again, synced at other places each time, stays a few
/// entries.
#[test]
fn repeated_strided_checkpoints_stay_small() {
    let mut map = ExtentMap::new();
    let mut folder = Folder::new();
    let (mut physical, mut stamp) = (0, 0);
    for round in 0..50u64 {
        for i in 0..5000u64 {
            folder.push(i * 640, 10, 0, physical, || 0);
            physical += 10;
            if i % (700 + 13 * round) == 0 || i == 4999 {
                for item in folder.take(|| 0) {
                    stamp += 1;
                    item.each().for_each(|run| map.insert(run, Order { stamp, set: 1 }));
                }
            }
        }
    }
    assert!(map.compact().len() <= 20, "{map:?}");
}

/// A generator without a crate, for the speed print.
struct Lcg(u64);

impl Lcg {
    fn below(&mut self, n: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((u128::from(self.0 ^ self.0 >> 32) * u128::from(n)) >> 64) as u64
    }
}

fn time_lookups(name: &str, map: &ExtentMap, size: u64) {
    let mut rng = Lcg(9);
    let mut out = Vec::new();
    let n = 1_000_000;
    let start = Instant::now();
    let mut bytes = 0;
    for _ in 0..n {
        let at = rng.below(size);
        map.lookup(at, at + 4096, &mut out);
        bytes += out.iter().map(|f| f.length).sum::<u64>();
    }
    let ns = start.elapsed().as_nanos() as f64 / f64::from(n);
    println!(
        "{name}: {ns:.0} ns a lookup, {:.2} M/s, {} MB found, {map:?}",
        1000.0 / ns,
        bytes >> 20
    );
}

/// An extent of a flat index that is a hole lies nowhere: its physical offset is its logical one,
/// or the flat index is not believed.
#[test]
fn a_hole_that_lies_somewhere_is_damage() {
    for (segment, physical, sound) in [(HOLE, 20, true), (HOLE, 0, false), (HOLE - 1, 20, false)] {
        let mut blocks = Blocks::default();
        blocks
            .push(&[Extent { logical: 20, length: 5, segment, set: 0, physical, stamp: 3 }], true)
            .unwrap();
        let flat = FlatIndex {
            size: 50,
            max_stamp: 5,
            covered: vec![Covered { set: 1, from: 0, bytes: 0 }],
            ..FlatIndex::default()
        };
        let bytes = flat_index::encode(&flat, &[], &[], &blocks);
        let flat = flat_index::decode(&bytes, &plfs_format::Uuid::default()).unwrap();
        let base = Base::new(Arc::new(bytes), flat);
        assert_eq!(base.check().is_ok(), sound);
        let (map, mut out) = (ExtentMap::with_base(base), Vec::new());
        map.lookup(0, 100, &mut out);
        assert_eq!((map.is_damaged(), out.is_empty(), map.next_data(0)), (!sound, true, None));
    }
}

/// What whoever can make right checksums says in a flat index is found, whoever goes through it:
/// lookups, or a merge, which would make an index without what it passed over.
#[test]
fn a_lie_is_found_by_all_who_come_upon_it() {
    let extent = |logical, length| Extent { logical, length, physical: 7, ..Extent::default() };
    let of_blocks = |all: &[&[Extent]]| {
        let mut blocks = Blocks::default();
        all.iter().for_each(|extents| blocks.push(extents, true).unwrap());
        (Vec::new(), blocks)
    };
    let good = Entry::new(Run::single(0, 4, 0, 0), Order::default());
    // Two pieces at 0 and 8 are what the shape says; what is beside it decided where to look, and
    // divided by nothing.
    let shaped = Entry { shape: 1.into(), end: 12.into(), max_end: 12.into(), ..good };
    let many = |entry| (vec![entry; 40], Blocks::default());
    let lies = [
        many(Entry { count: 2.into(), ..shaped }),
        many(Entry { count: 2.into(), stride: 5.into(), ..shaped }),
        (vec![Entry { end: 5.into(), max_end: 5.into(), ..good }], Blocks::default()),
        (vec![Entry { shape: 2.into(), ..good }], Blocks::default()),
        of_blocks(&[&[extent(0, 5), extent(10, 0), extent(20, 5)]]),
        of_blocks(&[&[extent(0, 5), extent(50, 5)], &[extent(20, 5)]]),
        of_blocks(&[&[extent(0, 30)], &[extent(20, 5)]]),
    ];
    let axes = vec![Axis { stride: 8, physical: 4, count: 2, ..Axis::default() }];
    let shapes = [NewShape { axes, ..NewShape::default() }];
    for (i, (entries, blocks)) in lies.iter().enumerate() {
        let map = || lying(&shapes, entries, blocks).1;
        let (looked, sought, merged) = (map(), map(), map());
        looked.lookup(0, 100, &mut Vec::new());
        assert!(looked.is_damaged(), "{i}: a lookup");
        (0..100).for_each(|from| _ = sought.next_data(from));
        assert!(sought.is_damaged(), "{i}: next_data");
        for settled in [false, true] {
            let _ = merged.image(Vec::new(), &Numbers { set_of: &[0], sets: &[1] }, settled);
            assert!(merged.is_damaged(), "{i}: an image");
        }
        let all = map();
        all.for_each(|_, _| {});
        assert!(all.is_damaged(), "{i}: for_each");
        assert!(lying(&shapes, entries, blocks).0, "{i}: check");
    }
}

/// Pieces of a shape that lie in front of the beginning of a segment, or behind the end of what one
/// can be: lookups found them, and a check called them right.
#[test]
fn a_check_finds_pieces_that_lie_nowhere() {
    let found = |axis: Axis, physicals: Vec<u64>, entry: Entry| {
        let segments = vec![0; physicals.len()];
        let shape = NewShape { axes: vec![axis], segments, physicals };
        let (is_found, map) = lying(&[shape], &[entry], &Blocks::default());
        map.lookup(0, 100, &mut Vec::new());
        assert_eq!(is_found, map.is_damaged(), "{axis:?}");
        is_found
    };
    let entry = |physical: u64| Entry {
        shape: 1.into(),
        end: 20.into(),
        max_end: 20.into(),
        ..Entry::new(Run::single(0, 4, 0, physical), Order::default())
    };
    let axis = |physical| Axis { stride: 8, physical, count: 3, ..Axis::default() };
    assert!(!found(axis(4), vec![], entry(0)));
    assert!(!found(axis(-4), vec![], entry(8)));
    assert!(found(axis(-4), vec![], entry(7)));
    let last = i64::MAX as u64 - 4;
    assert!(!found(axis(1), vec![], entry(last - 2)));
    assert!(found(axis(1), vec![], entry(last - 1)));
    let tabled = Axis { tabled: true, ..axis(0) };
    assert!(!found(tabled, vec![0, last, 9], entry(0)));
    assert!(found(tabled, vec![0, last + 1, 9], entry(0)));
}

/// Where pieces are dense a window of a lookup is short, whatever came before; where they are not
/// it is as long as it may be.
#[test]
fn a_window_has_few_pieces() {
    let run =
        Run { logical: 1 << 40, length: 1, stride: 2, count: 1 << 30, segment: 0, physical: 0 };
    let mut map = ExtentMap::new();
    map.insert(Run::single(0, 1 << 40, 1, 0), Order { stamp: 1, set: 0 });
    map.insert(run, Order { stamp: 2, set: 0 });
    for map in [&map, &reopen(&map)] {
        let (mut at, mut out, mut windows) = (0, Vec::new(), 0);
        while at < (1 << 40) + 5_000_000 {
            let to = map.window(at, map.eof(), 10_000);
            map.lookup(at, to, &mut out);
            assert!(to > at && out.len() <= 10_000, "{at} {to} {}", out.len());
            (at, windows) = (to, windows + 1);
        }
        assert!(windows < 1000, "{windows}");
        assert_eq!(map.window(7, 1 << 30, 1000), 1 << 30);
        // This looked up all of it at once.
        assert_eq!(map.next_hole(5), Some((1 << 40) + 1));
    }
}

/// A search for data looked at each piece that a hole hides. An index of 320 bytes, which fuzzing
/// found, has more of those than can be counted.
#[test]
fn data_is_found_behind_holes_that_hide_more_than_can_be_counted() {
    let mut map = ExtentMap::new();
    let order = |stamp| Order { stamp, set: 0 };
    for segment in 0..8 {
        let logical = u64::from(segment) << 20;
        let run = Run { logical, length: 1, stride: 3, count: u32::MAX, segment, physical: 0 };
        map.insert(run, order(u64::from(segment)));
    }
    let end = map.eof();
    map.insert(Run::hole(1, end / 2), order(10));
    map.insert(Run::hole(end / 2, end), order(12));
    assert_eq!((map.next_data(0), map.next_data(1)), (Some(0), None));
    // What is newer than a hole shows, unless a hole that is newer still hides it.
    map.insert(
        Run { logical: 5, length: 2, stride: 5, count: 200_000, segment: 9, physical: 0 },
        order(20),
    );
    map.insert(Run::hole(5, 900_000), order(21));
    map.insert(Run::single(70_000, 10, 9, 0), order(11));
    assert_eq!(map.next_data(1), Some(900_005));
    map.insert(Run::single(80_000, 10, 9, 0), order(22));
    assert_eq!((map.next_data(1), map.next_data(80_010)), (Some(80_000), Some(900_005)));
    assert_eq!(map.next_data(1_000_000), Some(1_000_000));
    assert_eq!(map.next_data(1_000_002), None);
}

/// Entries are found by the largest ends of those below them. Ends that are wrong hide some, which
/// a lookup cannot tell and a check did not.
#[test]
fn a_check_finds_wrong_largest_ends() {
    let entry = |i: u64, max_end: u64| Entry {
        max_end: max_end.into(),
        ..Entry::new(Run::single(i * 10, 5, 0, i * 5), Order { stamp: 1, set: 1 })
    };
    let found = |ends: [u64; 3]| {
        let entries: Vec<Entry> = (0..).zip(ends).map(|(i, end)| entry(i, end)).collect();
        lying(&[], &entries, &Blocks::default()).0
    };
    assert!(!found([5, 25, 25]));
    for ends in [[5, 15, 25], [4, 25, 25], [5, 25, 26], [5, u64::MAX, 25], [0, 0, 0]] {
        assert!(found(ends), "{ends:?}");
    }
}

/// What this thread has used of a processor, which does not depend on what else the machine does:
/// proc(5), the first field of schedstat, in ns.
fn processor_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    let ns: u64 = text.split(' ').next().unwrap().parse().unwrap();
    ns as f64 / 1e9
}

/// What 100,000 ranks leave that write pieces of different lengths in turns: nothing folds, all
/// interleave, and each was compared with each, which took half a minute of whoever closed last.
#[test]
fn runs_that_interleave_and_do_not_fold_cost_no_square() {
    let seconds = |count: u64| {
        let (mut logical, mut state, mut map) = (0, 1u64, ExtentMap::new());
        let runs = (0..count).map(|i| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (length, stride) = (1000 + (state >> 33) % 1000, (count * 2000) as i64);
            let run = Run { logical, length, stride, count: 20, segment: 0, physical: i * 40_000 };
            logical += length;
            (run, Order { stamp: i + 1, set: 0 })
        });
        map.extend(runs);
        let begun = processor_seconds();
        let image = map.image(Vec::new(), &Numbers { set_of: &[0], sets: &[0] }, true).unwrap();
        assert!(image.entries.len() as u64 > count / 10 * 9);
        processor_seconds() - begun
    };
    // Of ten times as many: ten times the time, or a hundred times.
    let (few, many) = (seconds(10_000), seconds(100_000));
    assert!(many < 10.0 || many < 50.0 * few, "{few} s and {many} s");
}

/// Each run was compared with the runs of each stride.
#[test]
fn many_strides_cost_no_square() {
    let (begun, mut overlaps) = (Instant::now(), Overlaps::default());
    for i in 0..100_000u64 {
        let stride = 1_000_000 + i as i64;
        let run = Run { logical: i * 20, length: 10, stride, count: 20, segment: 0, physical: 0 };
        let over = overlaps.over(&run);
        // From some hundred strides on the range that all span is the answer.
        assert!(i < 500 || over.is_some_and(|(from, _)| from == run.first()));
        overlaps.add(&run);
    }
    assert_eq!(overlaps.over(&Run::single(1 << 40, 5, 0, 0)), None);
    assert!(begun.elapsed().as_secs() < 10, "{:?}", begun.elapsed());
}

/// A map on a flat index with right checksums, and whether a check finds something.
fn lying(shapes: &[NewShape], entries: &[Entry], blocks: &Blocks) -> (bool, ExtentMap) {
    let flat = FlatIndex {
        size: 100,
        max_stamp: 5,
        floor: 5,
        covered: vec![Covered { set: 1, from: 0, bytes: 0 }],
        segments: vec![Segment {
            at: SegmentRef { set: 1, stream: 0, segment: 0, backend: 0 },
            bytes: 99,
        }],
        ..FlatIndex::default()
    };
    let bytes = flat_index::encode(&flat, shapes, entries.as_bytes(), blocks);
    let flat = flat_index::decode(&bytes, &plfs_format::Uuid::default()).unwrap();
    let base = Base::new(Arc::new(bytes), flat);
    (base.check().is_err(), ExtentMap::with_base(base))
}

/// Prints speeds:
/// `cargo test --release -p plfs-index --test index_model speed -- --ignored --nocapture`.
#[test]
#[ignore = "prints speeds, tests nothing"]
fn speed() {
    let order = |stamp| Order { stamp, set: 0 };
    let mut map = ExtentMap::new();
    for rank in 0..8u64 {
        let run = Run {
            logical: rank * 47_001,
            length: 47_001,
            stride: 8 * 47_001,
            count: 1_000_000,
            segment: rank as u32,
            physical: 0,
        };
        map.insert(run, order(rank));
    }
    time_lookups("8 interleaved runs of a million pieces", &map, map.eof());
    let start = Instant::now();
    let hole = map.next_hole(0);
    println!("next_hole over 8 million pieces: {:.2} s, {hole:?}", start.elapsed().as_secs_f64());
    let mut map = ExtentMap::new();
    for rank in 0..1024u64 {
        let run = Run {
            logical: rank * 47_001,
            length: 47_001,
            stride: 1024 * 47_001,
            count: 10_000,
            segment: rank as u32,
            physical: 0,
        };
        map.insert(run, order(rank));
    }
    time_lookups("1024 interleaved runs of 10,000 pieces, as inserted", &map, map.eof());
    map.compact();
    time_lookups("1024 interleaved runs of 10,000 pieces, compact", &map, map.eof());

    let mut rng = Lcg(1);
    let n = 5_000_000u64;
    let size = n * 8192;
    let mut singles = |n: u64, size: u64| {
        (0..n)
            .map(|i| (Run::single(rng.below(size), 4096, 0, i * 4096), order(i)))
            .collect::<Vec<_>>()
    };
    let records = singles(n, size);
    let start = Instant::now();
    let mut map = ExtentMap::new();
    records.iter().for_each(|(run, order)| map.insert(*run, *order));
    println!(
        "insert: {:.0} ns each, {} MB",
        start.elapsed().as_nanos() as f64 / n as f64,
        map.heap_bytes() >> 20
    );
    time_lookups("5 M random singles, as inserted", &map, size);
    let start = Instant::now();
    map.compact();
    println!("compact: {:.2} s, {} MB", start.elapsed().as_secs_f64(), map.heap_bytes() >> 20);
    time_lookups("5 M random singles, compact", &map, size);
    let based = reopen(&map);
    time_lookups("5 M random singles, as a base", &based, size);
    drop((map, based));

    let start = Instant::now();
    let mut map = ExtentMap::new();
    map.extend(records);
    println!("extend: {:.2} s", start.elapsed().as_secs_f64());
    time_lookups("5 M random singles, extended", &map, size);

    let records = singles(n, 1 << 20);
    let start = Instant::now();
    let mut map = ExtentMap::new();
    records.iter().for_each(|(run, order)| map.insert(*run, *order));
    println!(
        "5 M random overwrites of 1 MiB: {:.0} ns each, {} KB",
        start.elapsed().as_nanos() as f64 / n as f64,
        map.heap_bytes() >> 10
    );
    time_lookups("5 M random overwrites of 1 MiB", &map, 1 << 20);

    let mut folder = Folder::new();
    let start = Instant::now();
    for i in 0..100_000_000u64 {
        folder.push(i * 64 * 47_001, 47_001, 0, i * 47_001, || 0);
    }
    println!(
        "strided push: {:.2} ns each, {} record",
        start.elapsed().as_nanos() as f64 / 1e8,
        folder.take(|| 0).len()
    );
}
