//! What a power loss leaves of a store in memory.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{
    Body, Content, Dir, MemStore, NEXT_DEV, Names, Node, PAGE, PAGE_BYTES, Pages, ROOT, Tree, cut,
    put,
};
use crate::explored;

/// What a store of memory or a device writes whole, at least, when power is cut.
const WORD: u64 = 8;

impl MemStore {
    /// What a power loss now would leave at the least, as a new store of its own: of each file the
    /// bytes and length of its last `sync_data`, of each directory the names of its last
    /// `sync_dir`. This store and its open files go on undisturbed.
    pub fn crash(&self) -> MemStore {
        explored(1, "power losses");
        self.after(self.lock().after_crash(None))
    }

    /// As [`MemStore::crash`], but of what was not synced, some made it, in any order, as `seed`
    /// decides:
    ///
    /// * Each creation, rename and removal of a name is kept or lost.
    /// * Each page written is as written, as it was, as it was with the changed bytes zeroed, or
    ///   torn: as written up to some word of 8 bytes and as it was from there. Disks tear at
    ///   sectors, and no memory stores less than a word.
    /// * A file's length is the old, the new, or between.
    pub fn crash_with(&self, seed: u64) -> MemStore {
        explored(1, "power losses");
        self.after(self.lock().after_crash(Some(seed)))
    }

    fn after(&self, tree: Tree) -> MemStore {
        MemStore { is_shared: self.is_shared, ..MemStore::of(tree) }
    }
}

impl Tree {
    fn after_crash(&self, seed: Option<u64>) -> Tree {
        let mut new = Tree {
            dev: NEXT_DEV.fetch_add(1, Ordering::Relaxed),
            nodes: HashMap::new(),
            next_ino: self.next_ino,
            next_change: 0,
            next_open: 0,
            ticks: self.ticks,
        };
        new.nodes.insert(ROOT, self.node_after_crash(ROOT, ROOT, seed));
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
                        _ => self.save_name(&mut new, &mut todo, parent, name, ino, seed),
                    }
                }
            }
            let Some((parent, name, ino)) = elsewhere.pop_front() else { return new };
            self.save_name(&mut new, &mut todo, parent, name, ino, seed);
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
        seed: Option<u64>,
    ) {
        let is_dir = self.node(ino).is_dir();
        if is_dir && new.nodes.contains_key(&ino) {
            return;
        }
        let node = new.nodes.entry(ino).or_insert_with(|| self.node_after_crash(ino, parent, seed));
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
    fn node_after_crash(&self, ino: u64, parent: u64, seed: Option<u64>) -> Node {
        let old = self.node(ino);
        let body = match &old.body {
            Body::File(content) => {
                Body::File(content.after_crash(seed.map(|seed| Chance::of(seed, ino))))
            }
            Body::Dir(_) => Body::Dir(Dir::new(parent)),
            Body::Link(target) => Body::Link(target.clone()),
        };
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
    fn after_crash(&self, chance: Option<Chance>) -> Content {
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
                pages.insert(number, Arc::new(self.crashed_page(number, &mut chance)));
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

    fn crashed_page(&self, number: u64, chance: &mut Chance) -> Vec<u8> {
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
        match chance.below(4) {
            0 => new,
            1 => old,
            2 => old
                .into_iter()
                .zip(new)
                .map(|(old, new)| if old == new { old } else { 0 })
                .collect(),
            _ => {
                let tear = (chance.below(PAGE / WORD) * WORD) as usize;
                new[tear..].copy_from_slice(&old[tear..]);
                new
            }
        }
    }
}

/// Random numbers that follow from a seed: SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
struct Chance(u64);

impl Chance {
    /// Numbers for the thing number `what`, independent of those for other things.
    fn of(seed: u64, what: u64) -> Chance {
        let mut chance = Chance(seed ^ what.wrapping_mul(0xd605_bbb5_8c8a_bb03));
        chance.0 = chance.next();
        chance
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 to `n` - 1.
    fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }
}
