//! The sorted tree of a pack: how it is searched and gone through, and how it is made, block by
//! block, in one pass.

use std::collections::HashMap;
use std::sync::Arc;

use plfs_format::name::SegmentRef;
use plfs_format::pack::tree::{
    BlockRef, HEADER_BYTES, Header, decode_inner, decode_leaf, encode_covers, encode_inner,
    encode_leaf, key_by_id,
};
use plfs_format::pack::{FileId, Record};
use plfs_format::{Bad, Uuid, sum};

use crate::FileState;
use crate::file::NameRecord;

/// Length at which a block ends. 8 KiB: some 60 files, which are decoded in some 10 us where one is
/// looked up; a read that costs a disk little more than
/// one of 4 KiB; four levels have 10 million files.
const BLOCK_BYTES: usize = 8 << 10;

/// What the tree has under a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A file that has the key as its name.
    File(FileId, FileState),
    /// Where a file is that was renamed; empty: it is gone.
    ById(FileId, Box<[u8]>),
}

impl Entry {
    fn key(&self) -> Vec<u8> {
        match self {
            Entry::File(_, state) => {
                state.home.as_ref().map_or(Vec::new(), |(_, name)| name.to_vec())
            }
            Entry::ById(id, _) => key_by_id(*id),
        }
    }

    fn id(&self) -> FileId {
        match self {
            Entry::File(id, _) | Entry::ById(id, _) => *id,
        }
    }
}

/// A key, and all that is under it.
pub type Keyed = (Vec<u8>, Vec<Entry>);
/// Children of an inner block, with the first key in each.
type Children = Vec<(Vec<u8>, BlockRef)>;

/// A block, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// Children and the first key in each.
    Inner(Children),
    /// Entries with their keys, ascending.
    Leaf(Vec<(Vec<u8>, Entry)>),
}

impl Node {
    /// Decodes a block of a tree, `levels` above the leaves. An error: the tree is damaged.
    pub fn decode(
        header: &Header,
        levels: u32,
        block: BlockRef,
        bytes: &[u8],
    ) -> Result<Node, Bad> {
        let bad = |what| Err(Bad::new(block.at, what));
        if !block.fits(bytes) {
            return bad("the checksum of a block of the names does not match");
        }
        if levels > 0 {
            return decode_inner(bytes, block.at, header.length).map(Node::Inner);
        }
        let (segments, records) = decode_leaf(bytes, block.at, header.stamp)?;
        let mut entries: Vec<(Vec<u8>, Entry)> = Vec::new();
        for record in records {
            if let Record::File { id, bound, mode, uid, gid, name, former } = record {
                let mut state = FileState::of_tree();
                let (name, former) = (&*name, &*former);
                state.add_name(NameRecord { id, bound, mode, uid, gid, name, former });
                entries.push((name.to_vec(), Entry::File(id, state)));
                continue;
            }
            if let Record::ById { id, name } = record {
                entries.push((key_by_id(id), Entry::ById(id, name)));
                continue;
            }
            let Some((_, Entry::File(of, state))) = entries.last_mut() else {
                return bad("a leaf of the names does not begin with a file");
            };
            let id = match &record {
                Record::Write { id, .. }
                | Record::Cut { id, .. }
                | Record::Attributes { id, .. } => *id,
                _ => return bad("a leaf of the names has a record of another kind"),
            };
            if id != *of {
                return bad("a record in the names is not behind its file");
            }
            match record {
                Record::Write { set, boot, segment, pieces, .. } => {
                    state.add_pieces(segments[usize::from(segment)], set, boot, &pieces);
                }
                Record::Cut { place, size, .. } => state.add_cut(place, size),
                Record::Attributes { place, set, .. } => state.add_attributes(place, set),
                _ => {}
            }
        }
        let place = |(key, entry): &(Vec<u8>, Entry)| (key.clone(), entry.id());
        if entries.windows(2).any(|pair| place(&pair[0]) >= place(&pair[1])) {
            return bad("the entries of a leaf of the names do not ascend");
        }
        Ok(Node::Leaf(entries))
    }
}

/// Fetches a block, so many levels above the leaves.
pub type Fetch<'a, E> = &'a mut dyn FnMut(u32, BlockRef) -> Result<Arc<Node>, E>;

/// All that the tree has under `key`.
pub fn get<E>(header: &Header, key: &[u8], fetch: Fetch<'_, E>) -> Result<Vec<Entry>, E> {
    let mut cursor = Cursor::from(header, key, fetch)?;
    match cursor.next(fetch)? {
        Some((found, entries)) if found == key => Ok(entries),
        _ => Ok(Vec::new()),
    }
}

/// Goes through a tree in the order of keys. Holds a block of each level.
#[derive(Clone, Debug, Default)]
pub struct Cursor {
    /// The inner blocks on the way to the leaf, the root first, and the next child of each.
    path: Vec<(Arc<Node>, usize)>,
    leaf: Option<(Arc<Node>, usize)>,
    levels: u32,
}

impl Cursor {
    /// At the first key that is not less than `key`.
    pub fn from<E>(header: &Header, key: &[u8], fetch: Fetch<'_, E>) -> Result<Cursor, E> {
        let mut cursor = Cursor { path: Vec::new(), leaf: None, levels: header.levels };
        let Some(mut block) = header.root else { return Ok(cursor) };
        let mut levels = header.levels;
        loop {
            let node = fetch(levels, block)?;
            match node.as_ref() {
                Node::Inner(children) => {
                    // The last child that begins at or before the key.
                    let at = children
                        .partition_point(|(first, _)| first.as_slice() <= key)
                        .saturating_sub(1);
                    block = children[at].1;
                    cursor.path.push((node.clone(), at + 1));
                    levels = levels.saturating_sub(1);
                }
                Node::Leaf(entries) => {
                    let at = entries.partition_point(|(first, _)| first.as_slice() < key);
                    cursor.leaf = Some((node.clone(), at));
                    return Ok(cursor);
                }
            }
        }
    }

    /// The next key and what is under it; `None` at the end.
    pub fn next<E>(&mut self, fetch: Fetch<'_, E>) -> Result<Option<Keyed>, E> {
        loop {
            let Some((node, at)) = &mut self.leaf else { return Ok(None) };
            if let Node::Leaf(entries) = node.as_ref()
                && let Some((key, _)) = entries.get(*at)
            {
                let alike = entries[*at..].iter().take_while(|(other, _)| other == key);
                let found: Vec<Entry> = alike.map(|(_, entry)| entry.clone()).collect();
                let key = key.clone();
                *at += found.len();
                return Ok(Some((key, found)));
            }
            self.leaf = self.next_leaf(fetch)?;
        }
    }

    fn next_leaf<E>(&mut self, fetch: Fetch<'_, E>) -> Result<Option<(Arc<Node>, usize)>, E> {
        loop {
            let levels = self.levels.saturating_sub(self.path.len() as u32);
            let Some((node, at)) = self.path.last_mut() else { return Ok(None) };
            let Node::Inner(children) = node.as_ref() else { return Ok(None) };
            let Some((_, block)) = children.get(*at) else {
                self.path.pop();
                continue;
            };
            *at += 1;
            let node = fetch(levels, *block)?;
            match node.as_ref() {
                Node::Inner(_) => self.path.push((node, 0)),
                Node::Leaf(_) => return Ok(Some((node, 0))),
            }
        }
    }
}

/// Makes a tree: entries come in ascending order, blocks go to `put`, one behind the other, from
/// [`HEADER_BYTES`] on.
pub struct Builder<P> {
    put: P,
    at: u64,
    block_bytes: usize,
    leaf: Leaf,
    /// Of each level of inner blocks, the lowest first, the children that wait.
    levels: Vec<(usize, Children)>,
    files: u64,
}

#[derive(Default)]
struct Leaf {
    first: Vec<u8>,
    last: Vec<u8>,
    bytes: usize,
    segments: Vec<SegmentRef>,
    numbers: HashMap<SegmentRef, u16>,
    records: Vec<Record>,
}

/// What a tree is of.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The container.
    pub uuid: Uuid,
    /// Largest stamp of a block that was read.
    pub stamp: u64,
    /// Largest stamp of a record that clears.
    pub clear: u64,
    /// Of each log set, how far what its log says is in the tree.
    pub covers: Vec<(u32, u64)>,
    /// Length at which a block ends; 0: 8 KiB.
    pub block_bytes: usize,
}

impl<E: From<Bad>, P: FnMut(&[u8]) -> Result<(), E>> Builder<P> {
    /// A tree without entries yet, whose blocks end at so many bytes; 0: 8 KiB.
    pub fn new(block_bytes: usize, put: P) -> Builder<P> {
        let block_bytes = if block_bytes == 0 { BLOCK_BYTES } else { block_bytes };
        let (at, leaf, levels) = (HEADER_BYTES as u64, Leaf::default(), Vec::new());
        Builder { put, at, block_bytes, leaf, levels, files: 0 }
    }

    /// Adds an entry. Keys ascend, and among those of one key the ids.
    pub fn push(&mut self, entry: &Entry) -> Result<(), E> {
        let key = entry.key();
        let many = self.leaf.segments.len() >= usize::from(u16::MAX) / 2;
        if (self.leaf.bytes >= self.block_bytes || many) && key != self.leaf.last {
            self.end_leaf()?;
        }
        let Leaf { segments, numbers, records, bytes, first, last } = &mut self.leaf;
        match entry {
            Entry::File(id, state) => {
                let number = |segment: SegmentRef| {
                    *numbers.entry(segment).or_insert_with(|| {
                        segments.push(segment);
                        (segments.len() - 1) as u16
                    })
                };
                let new = state.records(*id, number);
                // More than a record takes without its pieces; it is about where a block ends.
                *bytes += key.len() + 40 * (new.len() + state.pieces());
                records.extend(new);
                self.files += 1;
            }
            Entry::ById(id, name) => {
                records.push(Record::ById { id: *id, name: name.clone() });
                *bytes += 24 + name.len();
            }
        }
        if first.is_empty() {
            first.clone_from(&key);
        }
        *last = key;
        Ok(())
    }

    fn put(&mut self, bytes: &[u8]) -> Result<BlockRef, E> {
        let block = BlockRef { at: self.at, bytes: bytes.len() as u32, crc: sum(bytes) };
        (self.put)(bytes)?;
        self.at += bytes.len() as u64;
        Ok(block)
    }

    fn end_leaf(&mut self) -> Result<(), E> {
        let leaf = std::mem::take(&mut self.leaf);
        if leaf.records.is_empty() {
            return Ok(());
        }
        let block = self.put(&encode_leaf(&leaf.segments, &leaf.records)?)?;
        self.add_child(0, leaf.first, block)
    }

    fn add_child(&mut self, level: usize, key: Vec<u8>, block: BlockRef) -> Result<(), E> {
        if self.levels.len() == level {
            self.levels.push((0, Vec::new()));
        }
        let (bytes, children) = &mut self.levels[level];
        *bytes += 18 + key.len();
        children.push((key, block));
        if *bytes >= self.block_bytes && children.len() > 1 {
            self.end_inner(level)?;
        }
        Ok(())
    }

    fn end_inner(&mut self, level: usize) -> Result<(), E> {
        let (_, children) = std::mem::take(&mut self.levels[level]);
        let Some((first, _)) = children.first().cloned() else { return Ok(()) };
        let block = self.put(&encode_inner(&children))?;
        self.add_child(level + 1, first, block)
    }

    /// Ends it, and gives the header, which belongs at the beginning.
    pub fn finish(mut self, facts: &Facts) -> Result<Header, E> {
        self.end_leaf()?;
        let mut level = 0;
        // The highest level with one child is the root.
        while level + 1 < self.levels.len()
            || self.levels.get(level).is_some_and(|(_, children)| children.len() > 1)
        {
            self.end_inner(level)?;
            level += 1;
        }
        let root = self.levels.get(level).and_then(|(_, children)| children.first());
        let root = root.map(|(_, block)| *block);
        let covers = encode_covers(&facts.covers);
        let covers_at = self.at;
        (self.put)(&covers)?;
        Ok(Header {
            uuid: facts.uuid,
            stamp: facts.stamp,
            clear: facts.clear,
            files: self.files,
            length: covers_at + covers.len() as u64,
            root,
            levels: level as u32,
            covers: facts.covers.len() as u32,
            covers_at,
            covers_crc: sum(&covers),
        })
    }
}
