//! The sorted tree of a pack, block by block, from its file.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use lru::LruCache;
use plfs_format::name;
use plfs_format::pack::tree::{BlockRef, COVER_BYTES, HEADER_BYTES, Header, decode_covers};
use plfs_pack::Base;
use plfs_pack::tree::{Cursor, Entry, Keyed, Node, get};

use crate::container::Container;
use crate::error::{At, Error, Result};
use crate::store::{self, Errno, Open, StoreFile};
use crate::sync::Arc;

/// Blocks that are kept decoded. 512: 8 KiB each, some 20 MB as they lie in memory; the inner
/// blocks of 10 million files are 900, of which a process uses few at a time.
const KEPT: NonZeroUsize = NonZeroUsize::new(512).unwrap();

/// Covers that are read at most: one for each log set that a pack ever had since its last
/// compaction.
const COVERS_MAX: u32 = 1 << 22;

/// A tree that is open.
pub(super) struct Tree {
    file: Arc<dyn StoreFile>,
    path: PathBuf,
    pub header: Header,
    /// Of each log set, up to where its log is in here.
    pub covers: Vec<(u32, u64)>,
    kept: LruCache<u64, Arc<Node>>,
}

impl Tree {
    /// The tree of a pack. `None`: there is none, or none that this version can use.
    pub fn open(container: &Container) -> Result<Option<Tree>> {
        let path = container.path(name::NAMES);
        let file = match container.store.open(&path, Open::READ) {
            Err(Errno::NOENT) => return Ok(None),
            other => other.at("open", &path)?,
        };
        let length = file.stat().at("stat", &path)?.len;
        let mut bytes = [0; HEADER_BYTES];
        let n = store::read_full(file.as_ref(), &mut bytes, 0).at("read", &path)?;
        let Ok(header) = Header::decode(&bytes[..n], container.superblock.uuid, length) else {
            return Ok(None);
        };
        if header.covers > COVERS_MAX {
            return Ok(None);
        }
        // They are in the file, whose length is what it is.
        let mut bytes = vec![0; header.covers as usize * COVER_BYTES];
        let n = store::read_full(file.as_ref(), &mut bytes, header.covers_at).at("read", &path)?;
        let Ok(covers) = decode_covers(&header, &bytes[..n]) else { return Ok(None) };
        Ok(Some(Tree { file, path, header, covers, kept: LruCache::new(KEPT) }))
    }

    /// Whether an error says that the tree is damaged: then the logs know.
    pub fn is_damage(error: &Error) -> bool {
        let is_tree = |path: &Path| path.file_name().is_some_and(|file| file == name::NAMES);
        match error {
            Error::Corrupt { path, .. } | Error::NeedsNewer { path, .. } => is_tree(path),
            _ => false,
        }
    }

    fn fetch(&mut self, levels: u32, block: BlockRef) -> Result<Arc<Node>> {
        if let Some(node) = self.kept.get(&block.at) {
            return Ok(node.clone());
        }
        let mut bytes = vec![0; block.bytes as usize];
        let n =
            store::read_full(self.file.as_ref(), &mut bytes, block.at).at("read", &self.path)?;
        let node = Node::decode(&self.header, levels, block, &bytes[..n])
            .map_err(|bad| Error::of_bytes(&self.path, bad))?;
        let node = Arc::new(node);
        self.kept.put(block.at, node.clone());
        Ok(node)
    }
}

/// A tree, or nothing.
pub(super) struct Below<'a>(pub Option<&'a mut Tree>);

impl Base for Below<'_> {
    type Error = Error;

    fn at(&mut self, key: &[u8]) -> Result<Vec<Entry>> {
        let Some(tree) = &mut self.0 else { return Ok(Vec::new()) };
        let header = tree.header.clone();
        get(&header, key, &mut |levels, block| tree.fetch(levels, block))
    }

    fn behind(&mut self, key: &[u8], inclusive: bool) -> Result<Option<Keyed>> {
        let Some(tree) = &mut self.0 else { return Ok(None) };
        let header = tree.header.clone();
        let fetch = &mut |levels, block| tree.fetch(levels, block);
        let mut cursor = Cursor::from(&header, key, fetch)?;
        match cursor.next(fetch)? {
            Some((found, _)) if found == key && !inclusive => cursor.next(fetch),
            other => Ok(other),
        }
    }
}
