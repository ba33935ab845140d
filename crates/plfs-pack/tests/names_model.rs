//! Nodes that make, write, rename and remove files of one pack, each by what it has seen; readers
//! that hear of it in any order, twice, with trees in between. All say the same as FORMAT.md
//! section 12 does, read word by word.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use plfs_format::name::SegmentRef;
use plfs_format::pack::tree::{HEADER_BYTES, Header};
use plfs_format::pack::{Attributes, FileId, Piece, Place, Record, When};
use plfs_format::{Bad, Uuid};
use plfs_pack::tree::{Cursor, Entry, Facts, Keyed, Node, get};
use plfs_pack::{Base, FileState, Names, NoBase, fold};
use plfs_testkit::{Rng, explored, rounds, seeds};

const UUID: Uuid = Uuid([9; 16]);

#[derive(Clone, Debug)]
struct Block {
    stamp: u64,
    segment: SegmentRef,
    records: Vec<Record>,
}

/// A tree in memory.
#[derive(Clone, Debug)]
struct Tree {
    header: Header,
    covers: BTreeMap<u32, usize>,
    bytes: Arc<Vec<u8>>,
}

#[derive(Debug)]
struct Damaged(#[allow(dead_code, reason = "shown")] Bad);

impl From<Bad> for Damaged {
    fn from(bad: Bad) -> Damaged {
        Damaged(bad)
    }
}

impl From<Infallible> for Damaged {
    fn from(never: Infallible) -> Damaged {
        match never {}
    }
}

impl Tree {
    fn fetch(
        &self,
        levels: u32,
        block: plfs_format::pack::tree::BlockRef,
    ) -> Result<Arc<Node>, Damaged> {
        let at = block.at as usize;
        let bytes = &self.bytes[at..at + block.bytes as usize];
        Ok(Arc::new(Node::decode(&self.header, levels, block, bytes)?))
    }
}

/// A tree, or nothing yet.
#[derive(Clone, Debug, Default)]
struct Below(Option<Tree>);

impl Base for Below {
    type Error = Damaged;

    fn at(&mut self, key: &[u8]) -> Result<Vec<Entry>, Damaged> {
        match &self.0 {
            Some(tree) => get(&tree.header, key, &mut |levels, block| tree.fetch(levels, block)),
            None => NoBase.at(key).map_err(Damaged::from),
        }
    }

    fn behind(&mut self, key: &[u8], inclusive: bool) -> Result<Option<Keyed>, Damaged> {
        let Some(tree) = &self.0 else { return Ok(None) };
        let fetch = &mut |levels, block| tree.fetch(levels, block);
        let mut cursor = Cursor::from(&tree.header, key, fetch)?;
        match cursor.next(fetch)? {
            Some((found, _)) if found == key && !inclusive => cursor.next(fetch),
            other => Ok(other),
        }
    }
}

fn shuffle(sets: &mut [u32], rng: &mut Rng) {
    for i in (1..sets.len()).rev() {
        sets.swap(i, rng.below(i as u64 + 1) as usize);
    }
}

/// Someone who reads logs: what he knows, over a tree, and how far he has read.
#[derive(Clone, Debug, Default)]
struct Reader {
    names: Names,
    below: Below,
    read: BTreeMap<u32, usize>,
    stamp: u64,
}

impl Reader {
    /// Reads some blocks of the logs, or all.
    fn look(&mut self, logs: &BTreeMap<u32, Vec<Block>>, rng: &mut Rng, all: bool) {
        let mut sets: Vec<u32> = logs.keys().copied().collect();
        shuffle(&mut sets, rng);
        for set in sets {
            let log = &logs[&set];
            let from = *self.read.get(&set).unwrap_or(&0);
            let to = if all {
                log.len()
            } else {
                from + rng.below((log.len() - from + 1) as u64) as usize
            };
            for block in &log[from..to] {
                self.names.apply(&[block.segment], &block.records, 0);
                self.stamp = self.stamp.max(block.stamp);
            }
            self.read.insert(set, to);
        }
    }

    /// Reads all of one log.
    fn read(&mut self, set: u32, log: &[Block]) {
        let from = *self.read.get(&set).unwrap_or(&0);
        for block in &log[from..] {
            self.names.apply(&[block.segment], &block.records, 0);
            self.stamp = self.stamp.max(block.stamp);
        }
        self.read.insert(set, log.len());
    }

    /// Makes a tree of all that is known, and begins anew with it.
    fn fold(&mut self, covers: &BTreeMap<u32, usize>, rng: &mut Rng) {
        let facts = Facts {
            uuid: UUID,
            stamp: self.stamp,
            clear: 0,
            covers: covers.iter().map(|(set, n)| (*set, *n as u64)).collect(),
            block_bytes: rng.pick(&[1, 200, 1000, 0]),
        };
        let mut bytes = vec![0; HEADER_BYTES];
        let folded = fold(&self.names, &mut self.below, &facts, |block| {
            bytes.extend_from_slice(block);
            Ok::<(), Damaged>(())
        })
        .unwrap();
        let head = folded.header.encode();
        bytes[..HEADER_BYTES].copy_from_slice(&head);
        let header = Header::decode(&bytes, UUID, bytes.len() as u64).unwrap();
        self.open(Tree { header, covers: covers.clone(), bytes: Arc::new(bytes) });
    }

    fn open(&mut self, tree: Tree) {
        self.read = tree.covers.clone();
        self.stamp = tree.header.stamp;
        self.names = Names::default();
        self.below = Below(Some(tree));
    }
}

/// A node: what it has seen, its clock, and its log.
struct Writer {
    set: u32,
    reader: Reader,
    clock: u64,
    skew: u64,
}

impl Writer {
    fn tick(&mut self, now: u64) -> Place {
        self.clock = (self.clock + 1).max(self.reader.stamp + 1).max(now + self.skew);
        Place { stamp: self.clock, set: self.set }
    }
}

struct World {
    logs: BTreeMap<u32, Vec<Block>>,
    nodes: Vec<Writer>,
    trees: Vec<Tree>,
    physical: u64,
}

fn name_of(n: u64) -> Box<[u8]> {
    match n {
        0 => vec![1].into(),
        1 => vec![0xff; 255].into(),
        2 => (*b"\xff").into(),
        n => format!("file{n}").into_bytes().into(),
    }
}

/// What the document says of all records, as a map.
struct Literal {
    files: HashMap<FileId, Vec<(SegmentRef, Record)>>,
    gone: BTreeSet<FileId>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Shown {
    id: FileId,
    attributes: (u32, u32, u32, When, When),
    size: u64,
    bytes: Vec<Option<(SegmentRef, u64)>>,
}

impl Literal {
    fn of(logs: &BTreeMap<u32, Vec<Block>>) -> Literal {
        let mut literal = Literal { files: HashMap::new(), gone: BTreeSet::new() };
        for block in logs.values().flatten() {
            for record in &block.records {
                let id = match record {
                    Record::File { id, .. }
                    | Record::Write { id, .. }
                    | Record::Cut { id, .. }
                    | Record::Attributes { id, .. } => *id,
                    Record::Gone { ids } => {
                        literal.gone.extend(ids);
                        continue;
                    }
                    _ => unreachable!(),
                };
                literal.files.entry(id).or_default().push((block.segment, record.clone()));
            }
        }
        literal
    }

    fn home(&self, id: FileId) -> Option<(Place, Box<[u8]>)> {
        let records = self.files.get(&id)?;
        let names = records.iter().filter_map(|(_, record)| match record {
            Record::File { bound, name, .. } => Some((*bound, name.clone())),
            _ => None,
        });
        let names: Vec<_> = names.collect();
        names.iter().any(|(bound, _)| *bound == id).then(|| names.into_iter().max())?
    }

    fn names(&self) -> BTreeMap<Box<[u8]>, Vec<FileId>> {
        let mut names = BTreeMap::<Box<[u8]>, Vec<(Place, FileId)>>::new();
        for id in self.files.keys().filter(|id| !self.gone.contains(id)) {
            if let Some((bound, name)) = self.home(*id) {
                names.entry(name).or_default().push((bound, *id));
            }
        }
        let by_place = |mut ids: Vec<(Place, FileId)>| {
            ids.sort_unstable();
            ids.into_iter().rev().map(|(_, id)| id).collect()
        };
        names.into_iter().map(|(name, ids)| (name, by_place(ids))).collect()
    }

    fn shown(&self, id: FileId) -> Shown {
        let records = &self.files[&id];
        let (mut numbers, mut times) = ([(Place::default(), 0); 3], [(Place::default(), None); 2]);
        let mut cuts = Vec::new();
        for (_, record) in records {
            match record {
                Record::File { mode, uid, gid, .. } => {
                    for (known, value) in numbers.iter_mut().zip([mode, uid, gid]) {
                        if known.0 == Place::default() {
                            known.1 = *value;
                        }
                    }
                }
                Record::Attributes { place, set, .. } => {
                    for (known, value) in numbers.iter_mut().zip([set.mode, set.uid, set.gid]) {
                        if let Some(value) = value.filter(|_| *place > known.0) {
                            *known = (*place, value);
                        }
                    }
                    for (known, value) in times.iter_mut().zip([set.mtime, set.atime]) {
                        if value.is_some() && *place > known.0 {
                            *known = (*place, value);
                        }
                    }
                }
                Record::Cut { place, size, .. } => cuts.push((*place, *size)),
                _ => {}
            }
        }
        let clip = |place: Place| {
            cuts.iter()
                .filter(|(cut, _)| *cut > place)
                .map(|(_, size)| *size)
                .min()
                .unwrap_or(u64::MAX)
        };
        let mut touched = cuts.iter().map(|(place, _)| *place).max().unwrap_or(id).max(id);
        let mut size =
            cuts.iter().map(|(place, size)| (*size).min(clip(*place))).max().unwrap_or(0);
        let mut bytes = Vec::<(Place, Option<(SegmentRef, u64)>)>::new();
        for (segment, record) in records {
            let Record::Write { set, pieces, .. } = record else { continue };
            for piece in pieces {
                let place = Place { stamp: piece.stamp, set: *set };
                touched = touched.max(place);
                let end = (piece.logical + u64::from(piece.length)).min(clip(place));
                size = size.max(end);
                for at in piece.logical..end {
                    let i = at as usize;
                    bytes.resize(bytes.len().max(i + 1), (Place::default(), None));
                    if bytes[i].0 < place {
                        bytes[i] = (place, Some((*segment, piece.physical + at - piece.logical)));
                    }
                }
            }
        }
        bytes.resize(size as usize, (Place::default(), None));
        let auto = {
            let (ms, part) = (touched.stamp >> 16, touched.stamp & 0xffff);
            When {
                sec: (ms / 1000) as i64,
                nsec: (ms % 1000 * 1_000_000 + part * 1_000_000 / 65_536) as u32,
            }
        };
        let mtime = match times[0] {
            (place, Some(time)) if place > touched => time,
            _ => auto,
        };
        Shown {
            id,
            attributes: (
                numbers[0].1,
                numbers[1].1,
                numbers[2].1,
                mtime,
                times[1].1.unwrap_or(mtime),
            ),
            size,
            bytes: bytes.into_iter().map(|(_, at)| at).collect(),
        }
    }
}

fn shown(id: FileId, state: &FileState) -> Shown {
    let mut bytes = vec![None; state.size() as usize];
    let extents = state.extents(|_| Ok::<bool, Infallible>(true)).unwrap();
    let mut end = 0;
    for extent in extents {
        assert!(extent.logical >= end && extent.length > 0, "{extent:?}");
        end = extent.logical + extent.length;
        for at in 0..extent.length {
            bytes[(extent.logical + at) as usize] = Some((extent.segment, extent.physical + at));
        }
    }
    let attributes = (state.mode(), state.uid(), state.gid(), state.mtime(id), state.atime(id));
    Shown { id, attributes, size: state.size(), bytes }
}

/// That a reader who has heard all says what the document says.
fn compare(reader: &Reader, literal: &Literal, what: &str) {
    let names = literal.names();
    let mut below = reader.below.clone();
    let mut after = Vec::new();
    let mut listed = Vec::new();
    while let Some((name, (id, state))) = reader.names.next(&after, &mut below).unwrap() {
        assert_eq!(shown(id, &state), literal.shown(id), "{what}: {name:?} in a list");
        listed.push((name.clone().into_boxed_slice(), id));
        after = name;
    }
    let expected: Vec<_> = names.iter().map(|(name, ids)| (name.clone(), ids[0])).collect();
    assert_eq!(listed, expected, "{what}: the list");
    for n in 0..9 {
        let name = name_of(n);
        let found = reader.names.lookup(&name, &mut below).unwrap();
        let ids: Vec<FileId> = found.iter().map(|(id, _)| *id).collect();
        assert_eq!(ids, names.get(&name).cloned().unwrap_or_default(), "{what}: {name:?}");
        for (id, state) in found {
            assert_eq!(shown(id, &state), literal.shown(id), "{what}: {name:?}");
            let again = reader.names.by_id(id, Some(&name), &mut below).unwrap();
            assert_eq!(shown(id, &again), literal.shown(id), "{what}: {name:?} by id");
        }
    }
}

impl World {
    fn new(rng: &mut Rng) -> World {
        let node = |set: u32, rng: &mut Rng| Writer {
            set,
            reader: Reader::default(),
            clock: 0,
            skew: rng.pick(&[0, 0, 3_600_000 << 16]),
        };
        let nodes: Vec<Writer> = (1..=3).map(|set| node(set, rng)).collect();
        let logs = nodes.iter().map(|node| (node.set, Vec::new())).collect();
        World { logs, nodes, trees: Vec::new(), physical: 0 }
    }

    /// A fold by a node, while others go on.
    fn fold(&mut self, who: usize, now: u64, rng: &mut Rng) {
        let mut reader = std::mem::take(&mut self.nodes[who].reader);
        let covers = reader.read.clone();
        reader.names.mark();
        let mut sets: Vec<u32> = self.logs.keys().copied().collect();
        shuffle(&mut sets, rng);
        for set in sets {
            reader.read(set, &self.logs[&set]);
            for _ in 0..rng.below(6) {
                self.step(Some(who), now, rng);
            }
        }
        reader.fold(&covers, rng);
        self.trees.extend(reader.below.0.clone());
        reader.look(&self.logs, rng, true);
        self.nodes[who].reader = reader;
    }

    /// Something that a node does; none but files if `but` is in a fold, nor does that one.
    fn step(&mut self, but: Option<usize>, now: u64, rng: &mut Rng) {
        let who = rng.below(self.nodes.len() as u64) as usize;
        let node = &mut self.nodes[who];
        match rng.below(14) {
            _ if but == Some(who) => return,
            0 => return node.reader.look(&self.logs, rng, false),
            1 => return node.reader.look(&self.logs, rng, true),
            2 if but.is_none() => return self.fold(who, now, rng),
            3 if !self.trees.is_empty() => {
                // A process that starts anew, with some tree that was made.
                let tree = self.trees[rng.below(self.trees.len() as u64) as usize].clone();
                node.reader = Reader::default();
                node.reader.open(tree);
                return node.reader.look(&self.logs, rng, true);
            }
            _ => {}
        }
        let (name, to) = (name_of(rng.below(9)), name_of(rng.below(9)));
        let mut below = node.reader.below.clone();
        let found = node.reader.names.lookup(&name, &mut below).unwrap();
        let place = node.tick(now);
        let mut records = Vec::new();
        match (found.first(), rng.below(10)) {
            (None, _) => records.push(Record::File {
                id: place,
                bound: place,
                mode: 0o600 + rng.below(8) as u32,
                uid: 1,
                gid: 2,
                name,
                former: Box::default(),
            }),
            (Some(_), 0..=1) => {
                records.push(Record::Gone { ids: found.iter().map(|(id, _)| *id).collect() });
            }
            (Some((id, state)), 2..=3) if name != to => {
                let mut gone: Vec<FileId> = found[1..].iter().map(|(id, _)| *id).collect();
                let there = node.reader.names.lookup(&to, &mut below).unwrap();
                gone.extend(there.iter().map(|(id, _)| *id));
                let (mode, uid, gid) = (0o600, 1, 2);
                let mode = state
                    .records(*id, |_| 0)
                    .iter()
                    .find_map(|record| match record {
                        Record::File { mode, .. } => Some(*mode),
                        _ => None,
                    })
                    .unwrap_or(mode);
                records.push(Record::File {
                    id: *id,
                    bound: place,
                    mode,
                    uid,
                    gid,
                    name: to,
                    former: name,
                });
                if !gone.is_empty() {
                    records.push(Record::Gone { ids: gone });
                }
            }
            (Some((id, _)), 4) => {
                records.push(Record::Cut { id: *id, place, size: rng.below(60) });
            }
            (Some((id, _)), 5) => {
                let when = When { sec: rng.below(9) as i64, nsec: 5 };
                let set = Attributes {
                    mode: Some(rng.below(0o777) as u32),
                    uid: rng.one_in(2).then_some(7),
                    mtime: rng.one_in(2).then_some(when),
                    atime: rng.one_in(2).then_some(when),
                    ..Attributes::default()
                };
                records.push(Record::Attributes { id: *id, place, set });
            }
            (Some((id, _)), _) => {
                let piece = |stamp: u64, rng: &mut Rng, physical: &mut u64| {
                    let length = 1 + rng.below(20) as u32;
                    *physical += u64::from(length);
                    let physical = *physical - u64::from(length);
                    Piece { logical: rng.below(50), physical, stamp, length, crc: 0 }
                };
                let first = piece(place.stamp, rng, &mut self.physical);
                let second = node.tick(now);
                let second = piece(second.stamp, rng, &mut self.physical);
                records.push(Record::Write {
                    id: *id,
                    set: node.set,
                    boot: 0,
                    segment: 0,
                    pieces: vec![first, second],
                });
            }
        }
        let stamp = node.tick(now).stamp;
        let segment = SegmentRef { set: node.set, stream: 0, segment: 0, backend: 0 };
        let log = self.logs.get_mut(&node.set).unwrap();
        node.reader.names.apply(&[segment], &records, 0);
        log.push(Block { stamp, segment, records });
        // A node reads its own log as it goes; other blocks in it are its own too.
        node.reader.stamp = node.reader.stamp.max(stamp);
    }
}

#[test]
fn readers_say_what_the_document_says() {
    let rounds = rounds("PLFS_PACK_ROUNDS", 100);
    for seed in seeds(rounds) {
        let mut rng = Rng::new(seed);
        let mut world = World::new(&mut rng);
        let steps = 20 + rng.below(200);
        for now in 0..steps {
            world.step(None, now << 16, &mut rng);
        }
        let literal = Literal::of(&world.logs);
        let mut fresh = Reader::default();
        fresh.look(&world.logs, &mut rng, true);
        compare(&fresh, &literal, &format!("seed {seed}, without a tree"));
        for (n, tree) in world.trees.iter().enumerate() {
            let mut reader = Reader::default();
            reader.open(tree.clone());
            reader.look(&world.logs, &mut rng, true);
            compare(&reader, &literal, &format!("seed {seed}, tree {n}"));
            // Read again, in another order: nothing changes.
            reader.read.clear();
            reader.look(&world.logs, &mut rng, true);
            compare(&reader, &literal, &format!("seed {seed}, tree {n}, twice"));
            let covers = reader.read.clone();
            reader.names.mark();
            reader.fold(&covers, &mut rng);
            compare(&reader, &literal, &format!("seed {seed}, tree {n}, folded"));
        }
        for node in &mut world.nodes {
            node.reader.look(&world.logs, &mut rng, true);
            compare(&node.reader, &literal, &format!("seed {seed}, node {}", node.set));
        }
    }
    explored(rounds, "rounds of nodes that share a pack");
}

/// Two nodes rename a file, the second what the first has renamed, while a third makes a tree: it
/// has read the log of the first before, and that of the second after. The second name says that
/// the file had the first, under which no tree has it. The file was not in the tree, and as its
/// creation was covered it was gone for good.
#[test]
fn a_file_that_is_renamed_twice_while_a_tree_is_made_stays() {
    let mut rng = Rng::new(1);
    let segment = |set: u32| SegmentRef { set, stream: 0, segment: 0, backend: 0 };
    let id = Place { stamp: 10, set: 1 };
    let file = |bound: Place, name: &[u8], former: &[u8]| {
        let (name, former) = (name.into(), former.into());
        vec![Record::File { id, bound, mode: 0o644, uid: 1, gid: 2, name, former }]
    };
    let block = |set, stamp, records| Block { stamp, segment: segment(set), records };
    let piece = Piece { logical: 0, physical: 0, stamp: 11, length: 5, crc: 0 };
    let write = Record::Write { id, set: 1, boot: 0, segment: 0, pieces: vec![piece] };
    let created = [file(id, b"e", b""), vec![write]].concat();
    let mut logs = BTreeMap::from([(1, vec![block(1, 12, created)]), (2, Vec::new())]);
    let mut folder = Reader::default();
    folder.look(&logs, &mut rng, true);
    folder.fold(&BTreeMap::from([(1, 1), (2, 0)]), &mut rng);
    let covers = folder.read.clone();
    folder.names.mark();
    folder.read(1, &logs[&1]);
    let rename = file(Place { stamp: 20, set: 1 }, b"f", b"e");
    logs.get_mut(&1).unwrap().push(block(1, 21, rename));
    let rename = file(Place { stamp: 30, set: 2 }, b"d", b"f");
    logs.get_mut(&2).unwrap().push(block(2, 31, rename));
    folder.read(2, &logs[&2]);
    folder.fold(&covers, &mut rng);
    folder.read.clone_from(&covers);
    folder.look(&logs, &mut rng, true);
    compare(&folder, &Literal::of(&logs), "the tree");
    assert!(folder.names.lookup(b"d", &mut folder.below).unwrap().len() == 1);
}

/// A process knows its pieces before a commit says them again. Each of 4,096 that were said again
/// looked for what is hidden, which looked at each pair of pieces: 45 s for a commit, though
/// nothing had come. 4,096 is what waits for a commit at most, so it met every file that is written
/// here and there.
#[test]
fn pieces_that_are_said_again_cost_nothing() {
    let (pieces, length) = (1 << 12, 20);
    let segment = SegmentRef { set: 1, stream: 0, segment: 0, backend: 0 };
    let piece = |n: u64| Piece {
        logical: (n * 7919 % pieces) * 32,
        physical: n * 20,
        stamp: n + 1,
        length,
        crc: 0,
    };
    let mut file = FileState::default();
    let all: Vec<Piece> = (0..pieces).map(piece).collect();
    let begun = Instant::now();
    file.add_pieces(segment, 1, 0, &all);
    file.add_pieces(segment, 1, 0, &all);
    assert_eq!(file.pieces() as u64, pieces);
    assert!(begun.elapsed() < Duration::from_secs(10), "took {:?}", begun.elapsed());
}
