//! Packs: processes of several nodes on one directory of small files, beside a map in memory.

use std::collections::BTreeMap;
use std::time::Duration;

use plfs::pack::{Attributes, Pack, PackFile, PackOpen, PackOptions, When};
use plfs::store::Errno;
use plfs_testkit::{MemStore, Rng, explored, rounds, seeds};

use crate::pack::{AT_ONCE, CREATE, LONG, Node, OPEN, content, errno, memory, names};

/// What the map in memory has of a file.
#[derive(Clone, Debug, Default)]
struct Plain {
    committed: Vec<u8>,
    /// What a process has written and not committed.
    pending: Option<(usize, Vec<u8>)>,
    mode: u32,
    mtime: Option<When>,
}

impl Plain {
    fn seen_by(&self, process: usize) -> &Vec<u8> {
        match &self.pending {
            Some((who, bytes)) if *who == process => bytes,
            _ => &self.committed,
        }
    }

    fn commit(&mut self) {
        if let Some((_, bytes)) = self.pending.take() {
            self.committed = bytes;
        }
    }
}

struct Process {
    pack: Pack,
    node: usize,
    handles: Vec<(PackFile, usize)>,
}

struct World {
    memory: MemStore,
    nodes: Vec<Node>,
    processes: Vec<Process>,
    files: Vec<Plain>,
    names: BTreeMap<Vec<u8>, usize>,
    is_ahead: bool,
    /// What is said waits in the memory of its node, until a process of another one is next.
    holds: bool,
}

impl World {
    fn new(rng: &mut Rng) -> World {
        let memory = if rng.one_in(2) { memory().shared() } else { memory() };
        let nodes: Vec<Node> = (0..2).map(|_| Node::new()).collect();
        let holds = rng.one_in(2);
        let options = PackOptions { hold: holds.then_some(LONG), ..AT_ONCE };
        let process = |node: usize| Process {
            pack: nodes[node].open(&memory, options),
            node,
            handles: Vec::new(),
        };
        let processes = [0, 0, 1].map(process).into();
        World {
            memory,
            nodes,
            processes,
            files: Vec::new(),
            names: BTreeMap::new(),
            is_ahead: false,
            holds,
        }
    }

    fn name(rng: &mut Rng) -> Vec<u8> {
        match rng.below(8) {
            0 => vec![0xff; 255],
            1 => b"\x01".to_vec(),
            n => format!("f{n}").into_bytes(),
        }
    }

    /// Whoever has written to a file commits before another touches it.
    fn settle(&mut self, file: usize, but: usize) {
        let Some((who, _)) = self.files[file].pending else { return };
        if who != but {
            self.commit(who, false);
            self.processes[who].pack.carry(Duration::ZERO).unwrap();
        }
    }

    fn commit(&mut self, who: usize, sync: bool) {
        let pack = &self.processes[who].pack;
        if sync { pack.sync() } else { pack.commit() }.unwrap();
        for file in &mut self.files {
            if matches!(file.pending, Some((other, _)) if other == who) {
                file.commit();
            }
        }
    }

    /// What processes of other nodes hold goes to the storage.
    fn carry(&self, but: usize) {
        let others = self.processes.iter().filter(|process| process.node != but);
        others.for_each(|process| process.pack.carry(Duration::ZERO).unwrap());
    }

    fn handle(&mut self, who: usize, rng: &mut Rng) -> Option<usize> {
        let n = self.processes[who].handles.len() as u64;
        (n > 0).then(|| rng.below(n) as usize)
    }

    fn step(&mut self, rng: &mut Rng) {
        let who = rng.below(3) as usize;
        self.carry(self.processes[who].node);
        let name = World::name(rng);
        let there = self.names.get(&name).copied();
        match rng.below(40) {
            0..=7 => {
                let how = PackOpen {
                    create: !rng.one_in(4),
                    exclusive: rng.one_in(4),
                    truncate: rng.one_in(5),
                    ..CREATE
                };
                if let Some(file) = there
                    && how.truncate
                {
                    self.settle(file, 9);
                }
                let opened = self.processes[who].pack.open_file(&name, how);
                let file = match (there, how.create, how.exclusive) {
                    (None, false, _) => return assert_eq!(errno(opened), Errno::NOENT),
                    (Some(_), true, true) => return assert_eq!(errno(opened), Errno::EXIST),
                    (Some(file), ..) => {
                        if how.truncate {
                            self.files[file].committed.clear();
                            self.files[file].mtime = None;
                            // A cut commits.
                            self.commit(who, false);
                        }
                        file
                    }
                    (None, ..) => {
                        self.files.push(Plain { mode: 0o640, ..Plain::default() });
                        self.names.insert(name, self.files.len() - 1);
                        self.files.len() - 1
                    }
                };
                self.processes[who].handles.push((opened.unwrap(), file));
            }
            8..=15 => {
                let Some(handle) = self.handle(who, rng) else { return };
                let file = self.processes[who].handles[handle].1;
                self.settle(file, who);
                let most = rng.pick(&[40, 40, 40, 40, 40, 40, 9000]);
                let mut bytes = vec![0; 1 + rng.below(most) as usize];
                rng.fill(&mut bytes);
                let size = self.files[file].seen_by(who).len() as u64;
                let offset = if rng.one_in(2) { size } else { rng.below(100) };
                let Process { pack, handles, .. } = &self.processes[who];
                let n = pack.write_at(&handles[handle].0, &bytes, offset).unwrap();
                assert_eq!(n, bytes.len());
                let mut now = self.files[file].seen_by(who).clone();
                let end = offset as usize + bytes.len();
                now.resize(now.len().max(end), 0);
                now[offset as usize..end].copy_from_slice(&bytes);
                self.files[file].pending = Some((who, now));
                self.files[file].mtime = None;
            }
            16..=17 => {
                let Some(handle) = self.handle(who, rng) else { return };
                let file = self.processes[who].handles[handle].1;
                self.settle(file, 9);
                let bytes = vec![rng.next_u64() as u8; 1 + rng.below(30) as usize];
                let Process { pack, handles, .. } = &self.processes[who];
                let at = pack.append(&handles[handle].0, &bytes).unwrap();
                assert_eq!(at, (self.files[file].committed.len() as u64, bytes.len()));
                self.files[file].committed.extend(bytes);
                self.files[file].mtime = None;
                self.commit(who, false);
            }
            18..=19 => {
                let Some(handle) = self.handle(who, rng) else { return };
                let file = self.processes[who].handles[handle].1;
                self.settle(file, 9);
                let size = rng.below(120);
                let Process { pack, handles, .. } = &self.processes[who];
                pack.set_len(&handles[handle].0, size).unwrap();
                self.files[file].committed.resize(size as usize, 0);
                self.files[file].mtime = None;
                self.commit(who, false);
            }
            20 => {
                let Some(handle) = self.handle(who, rng) else { return };
                let file = self.processes[who].handles[handle].1;
                self.settle(file, 9);
                let mode = rng.below(0o1000) as u32;
                let mtime = rng.one_in(2).then_some(When { sec: -5, nsec: 6 });
                let set = Attributes { mode: Some(mode), mtime, ..Attributes::default() };
                let Process { pack, handles, .. } = &self.processes[who];
                pack.set_attributes(&handles[handle].0, set).unwrap();
                self.files[file].mode = mode;
                self.files[file].mtime = mtime.or(self.files[file].mtime);
                self.commit(who, false);
            }
            21..=26 => {
                let Some(handle) = self.handle(who, rng) else { return };
                let Process { pack, handles, .. } = &self.processes[who];
                let (handle, file) = &handles[handle];
                let expected = self.files[*file].seen_by(who);
                let offset = rng.below(100);
                let mut bytes = vec![0xee; 1 + rng.below(200) as usize];
                let n = pack.read_at(handle, &mut bytes, offset).unwrap();
                let rest = expected.get(offset as usize..).unwrap_or_default();
                let rest = &rest[..rest.len().min(bytes.len())];
                assert_eq!(&bytes[..n], rest, "at {offset}");
            }
            27..=28 => {
                let done = self.processes[who].pack.unlink(&name);
                match self.names.remove(&name) {
                    Some(_) => done.unwrap(),
                    None => assert_eq!(errno(done), Errno::NOENT),
                }
            }
            29..=31 => {
                let to = World::name(rng);
                let done = self.processes[who].pack.rename(&name, &to);
                let Some(file) = there else { return assert_eq!(errno(done), Errno::NOENT) };
                done.unwrap();
                if name != to {
                    self.names.remove(&name);
                    if self.names.insert(to, file).is_some() {
                        // It was made durable first.
                        self.commit(who, false);
                    }
                }
            }
            32 => self.commit(who, rng.one_in(2)),
            33 => {
                self.commit(who, false);
                self.processes[who].pack.fold().unwrap();
            }
            34 => {
                self.commit(who, false);
                self.processes[who].pack.leave().unwrap();
            }
            35 => {
                self.commit(who, false);
                let node = self.processes[who].node;
                let options = PackOptions { hold: self.holds.then_some(LONG), ..AT_ONCE };
                let pack = self.nodes[node].open(&self.memory, options);
                let old = std::mem::replace(
                    &mut self.processes[who],
                    Process { pack, node, handles: Vec::new() },
                );
                old.pack.close().unwrap();
            }
            36 if !self.is_ahead => {
                // Once: it sets the clock, which must not go back.
                // The node's processes have the page as long as one of them writes.
                self.processes[0].pack.open_file(b"f2", OPEN).map(drop).unwrap_or(());
                if plfs_testkit::shared_page(&self.nodes[0].0).is_some() {
                    self.is_ahead = true;
                    plfs_testkit::an_hour_ahead(&self.nodes[0].0);
                }
            }
            37 if rng.one_in(4) => {
                for other in 0..self.processes.len() {
                    self.commit(other, false);
                    self.processes[other].pack.leave().unwrap();
                    // The bytes of those that are removed go.
                    let shown: Vec<usize> = self.names.values().copied().collect();
                    self.processes[other].handles.retain(|(_, file)| shown.contains(file));
                }
                self.processes[who].pack.compact().unwrap();
                // Who has not seen it when a file goes cannot read that any more.
                self.processes.iter().for_each(|process| drop(names(&process.pack)));
            }
            _ => self.compare(who),
        }
    }

    fn compare(&self, who: usize) {
        let pack = &self.processes[who].pack;
        assert_eq!(names(pack), self.names.keys().cloned().collect::<Vec<_>>());
        for (name, file) in &self.names {
            let expected = self.files[*file].seen_by(who);
            let stat = pack.stat(name).unwrap();
            assert_eq!(stat.size, expected.len() as u64, "{name:?}");
            assert_eq!(stat.mode, self.files[*file].mode, "{name:?}");
            if let Some(When { sec, nsec }) = self.files[*file].mtime {
                assert_eq!((stat.mtime.sec, stat.mtime.nsec), (sec, nsec), "{name:?}");
            }
            assert_eq!(&content(pack, name).unwrap(), expected, "{name:?}");
        }
    }

    fn run(&mut self, rng: &mut Rng, steps: u64) {
        for _ in 0..steps {
            self.step(rng);
        }
        for who in 0..self.processes.len() {
            self.commit(who, false);
        }
        for who in 0..self.processes.len() {
            self.carry(self.processes[who].node);
            self.compare(who);
        }
    }
}

#[test]
fn processes_of_several_nodes_agree_with_a_map() {
    let rounds = rounds("PLFS_PACK_ROUNDS", 60);
    for seed in seeds(rounds) {
        println!("seed {seed}");
        let mut rng = Rng::new(seed);
        let mut world = World::new(&mut rng);
        let steps = 20 + rng.below(150);
        world.run(&mut rng, steps);
    }
    explored(rounds, "rounds of processes on a pack");
}
