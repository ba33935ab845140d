//! What a power loss leaves of a store in memory.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{
    Body, Content, Dir, MemStore, NEXT_DEV, Names, Node, PAGE, PAGE_BYTES, Pages, ROOT, Tree, cut,
    put,
};
use crate::{Rng, explored};

/// What a device writes whole or not at all when power is cut (FORMAT.md section 3, "Torn tails").
const SECTOR: u64 = 512;
/// What a file's length on its way to another one is a multiple of.
const WORD: u64 = 8;

impl MemStore {
    /// What a power loss now would leave at the least, as a new store of its own: of each file the
    /// bytes and length of its last `sync_data`, of each directory the names of its last
    /// `sync_dir`. This store and its open files go on undisturbed.
    pub fn crash(&self) -> MemStore {
        explored(1, "power losses");
        self.after(self.lock().after_crash(None, false))
    }

    /// As [`MemStore::crash`], but of what was not synced, some made it, in any order, as `seed`
    /// decides:
    ///
    /// * Each creation, rename and removal of a name is kept or lost.
    /// * Each page written is as written, as it was, as it was with the changed bytes zeroed, or
    ///   torn: as written up to some sector of 512 bytes and as it was from there.
    /// * A file's length is the old, the new, or between, at some word of 8 bytes.
    /// * Each attribute is there or not.
    pub fn crash_with(&self, seed: u64) -> MemStore {
        explored(1, "power losses");
        self.after(self.lock().after_crash(Some(seed), self.writes_over))
    }

    fn after(&self, tree: Tree) -> MemStore {
        let MemStore { is_shared, writes_over, .. } = *self;
        MemStore { is_shared, writes_over, ..MemStore::of(tree) }
    }
}

impl Tree {
    fn after_crash(&self, seed: Option<u64>, writes_over: bool) -> Tree {
        let mut new = Tree {
            dev: NEXT_DEV.fetch_add(1, Ordering::Relaxed),
            nodes: HashMap::new(),
            next_ino: self.next_ino,
            next_change: 0,
            next_open: 0,
            ticks: self.ticks,
        };
        new.nodes.insert(ROOT, self.node_after_crash(ROOT, ROOT, seed, writes_over));
        new.node_mut(ROOT).names = 1;
        let mut todo = VecDeque::from([ROOT]);
        let mut elsewhere = VecDeque::new();
        loop {
            while let Some(parent) = todo.pop_front() {
                let Body::Dir(dir) = &self.node(parent).body else { continue };
                for (name, ino) in dir.names_after_crash(seed) {
                    match &self.node(ino).body {
                        // Moved from here to another directory: only if it does not turn up there.
                        Body::Dir(child) if child.parent != parent => {
                            elsewhere.push_back((parent, name, ino))
                        }
                        _ => self.save_name(
                            &mut new,
                            &mut todo,
                            parent,
                            name,
                            ino,
                            (seed, writes_over),
                        ),
                    }
                }
            }
            let Some((parent, name, ino)) = elsewhere.pop_front() else { return new };
            self.save_name(&mut new, &mut todo, parent, name, ino, (seed, writes_over));
        }
    }

    /// Gives `ino` a name in the store after the crash.
    fn save_name(
        &self,
        new: &mut Tree,
        todo: &mut VecDeque<u64>,
        parent: u64,
        name: OsString,
        ino: u64,
        (seed, writes_over): (Option<u64>, bool),
    ) {
        let is_dir = self.node(ino).is_dir();
        if is_dir && new.nodes.contains_key(&ino) {
            return;
        }
        let node = new
            .nodes
            .entry(ino)
            .or_insert_with(|| self.node_after_crash(ino, parent, seed, writes_over));
        node.names += 1;
        node.kept += 1;
        if is_dir {
            todo.push_back(ino);
        }
        if let Ok(dir) = new.dir_mut(parent) {
            dir.names.insert(name.clone(), ino);
            dir.saved.insert(name, ino);
            dir.subdirs += u64::from(is_dir);
        }
    }

    /// A copy without names yet, for directories without entries.
    fn node_after_crash(
        &self,
        ino: u64,
        parent: u64,
        seed: Option<u64>,
        writes_over: bool,
    ) -> Node {
        let old = self.node(ino);
        let body = match &old.body {
            Body::File(content) => {
                Body::File(content.after_crash(seed.map(|seed| Chance::of(seed, ino)), writes_over))
            }
            Body::Dir(_) => Body::Dir(Dir::new(parent)),
            Body::Link(target) => Body::Link(target.clone()),
        };
        let survives = |(name, (_, durable)): &(&String, &(Vec<u8>, bool))| {
            let lucky =
                |seed| Chance::of(seed, ino ^ name.len() as u64 ^ 0x5a5a_5a5a).below(2) == 0;
            *durable || seed.is_some_and(lucky)
        };
        let durable =
            |(name, (value, _)): (&String, &(Vec<u8>, bool))| (name.clone(), (value.clone(), true));
        let attributes = old.attributes.iter().filter(survives).map(durable).collect();
        Node {
            body,
            mode: old.mode,
            uid: old.uid,
            gid: old.gid,
            atime: old.atime,
            mtime: old.mtime,
            ctime: old.ctime,
            names: 0,
            kept: 0,
            opens: 0,
            locks: vec![],
            gate: None,
            attributes,
        }
    }
}

impl Dir {
    fn names_after_crash(&self, seed: Option<u64>) -> Names {
        let mut names = self.saved.clone();
        let Some(seed) = seed else { return names };
        for change in &self.changes {
            // Numbers of changes and of inodes (for file contents) must not share their luck.
            if Chance::of(!seed, change.id).below(2) == 0 {
                put(&mut names, &change.name, change.ino);
            }
        }
        names
    }
}

impl Content {
    /// What a crash leaves; all of it durable.
    fn after_crash(&self, chance: Option<Chance>, writes_over: bool) -> Content {
        let mut pages = self.saved_pages.clone();
        let mut len = self.saved_len;
        if let Some(mut chance) = chance {
            let (low, high) = (self.len.min(self.saved_len), self.len.max(self.saved_len));
            len = match chance.below(3) {
                0 => self.saved_len,
                1 => self.len,
                _ => {
                    let between = low + chance.below((high - low).saturating_add(1));
                    (between - between % WORD).clamp(low, high)
                }
            };
            for &number in &self.dirty {
                pages.insert(number, Arc::new(self.crashed_page(number, &mut chance, writes_over)));
            }
            cut(&mut pages, len);
        }
        Content {
            pages: pages.clone(),
            len,
            saved_pages: pages,
            saved_len: len,
            dirty: BTreeSet::new(),
        }
    }

    fn crashed_page(&self, number: u64, chance: &mut Chance, writes_over: bool) -> Vec<u8> {
        let padded = |pages: &Pages| {
            let mut page = pages.get(&number).map(|page| page.to_vec()).unwrap_or_default();
            page.resize(PAGE_BYTES, 0);
            page
        };
        let old = padded(&self.saved_pages);
        let mut new = padded(&self.pages);
        // If the file was shortened and that did not last, neither did the loss of the bytes
        // behind.
        let end = self.len.saturating_sub(number * PAGE).min(PAGE) as usize;
        new[end..].copy_from_slice(&old[end..]);
        let had = self.saved_len.saturating_sub(number * PAGE).min(PAGE) as usize;
        match chance.below(4) {
            0 => new,
            1 => old,
            2 if writes_over => {
                // What lay there is there still, and behind it nothing.
                let mut page = old;
                page[had..].fill(0);
                page
            }
            2 => old
                .into_iter()
                .zip(new)
                .map(|(old, new)| if old == new { old } else { 0 })
                .collect(),
            _ => {
                let tear = (chance.below(PAGE / SECTOR) * SECTOR) as usize;
                new[tear..].copy_from_slice(&old[tear..]);
                new
            }
        }
    }
}

/// Random numbers that follow from a seed.
struct Chance(Rng);

impl Chance {
    /// Numbers for the thing number `what`, independent of those for other things.
    fn of(seed: u64, what: u64) -> Chance {
        let mut rng = Rng::new(seed ^ what.wrapping_mul(0xd605_bbb5_8c8a_bb03));
        Chance(Rng::new(rng.next_u64()))
    }

    fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// From 0 to `n` - 1.
    fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }
}
