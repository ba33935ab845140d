//! The index logs that the writers of a case leave. Everything that this crate knows of the
//! engine's index is in this file.
//!
//! What decides their content is the engine's own: the folder, the rules for regions, the making of
//! blocks. Replaced are the processes, by turns; the shared page, by the tails of the streams and a
//! clock; and the data, by nothing: no segment exists. `tests/index_cases.rs` compares the records
//! with those of real writers.
//!
//! Not imitated is the commit that the engine makes on its own a second after a write: these
//! programs commit at close, or when a writer has too many records.

use std::convert::Infallible;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use plfs::Container;
use plfs::store::{self, Open};
use plfs_format::index_log::{Append, Record, align_up, encode_block};
use plfs_format::name::{self, SegmentRef};
use plfs_index::{BLOCK_RECORDS, Folder, PENDING_RECORDS, Regions, block_of, next_region};

use super::IndexCase;
use crate::Rng;

/// In which order the writers of a node write. Writers of several nodes meet only in time.
#[derive(Clone, Copy, Debug)]
pub enum Turns {
    /// All write their first piece, by rank, then all their second.
    Lockstep,
    /// The same, but for each piece in an order of chance that the seed decides.
    Racing(u64),
}

/// What [`write_index_logs`] made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Pieces written.
    pub writes: u64,
    /// Records in the logs, of all kinds.
    pub records: u64,
    /// Bytes of the logs.
    pub log_bytes: u64,
    /// Number of logs.
    pub logs: u32,
}

/// A piece, and where it would lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Who wrote it.
    pub writer: u32,
    /// The number of the piece among the writer's.
    pub piece: u64,
    /// Where in the file.
    pub offset: u64,
    /// How long.
    pub length: u64,
    /// In which segment.
    pub at: SegmentRef,
    /// Where in the segment.
    pub physical: u64,
    /// When: no two have the same, and the larger wins a byte.
    pub time: u64,
}

/// The time of the first write as a stamp (FORMAT.md section 4), in 2025.
const START: u64 = 1_750_000_000_000 << 16;
/// From a write to the next, of all nodes: a microsecond. More than the stamps that a write and a
/// commit can take, so that stamps rise in the order of writes.
const STEP: u64 = 64;

/// Writes the index logs of `case` into `container`, as if its writers had been `ranks_per_node`
/// processes on each node, and had all closed the file. Calls `placed` for each piece, from several
/// threads.
///
/// Costs some 30 ns a write, on as many cores as there are; holds the logs of one node a core in
/// memory. Panics if the store fails.
pub fn write_index_logs(
    container: &Container,
    case: &IndexCase,
    ranks_per_node: u32,
    turns: Turns,
    placed: impl Fn(Placed) + Sync,
) -> Written {
    let (next, total) = (AtomicU32::new(0), Mutex::new(Written::default()));
    let nodes = case.writers().div_ceil(ranks_per_node);
    let rounds = (0..case.writers()).map(|writer| case.pieces(writer)).max().unwrap_or(0);
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get()).min(nodes as usize);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let node = next.fetch_add(1, Ordering::Relaxed);
                    if node >= nodes {
                        break;
                    }
                    let ranks =
                        node * ranks_per_node..((node + 1) * ranks_per_node).min(case.writers());
                    let written =
                        Node::new(container, node, ranks).run(case, rounds, turns, &placed);
                    let mut total = total.lock().expect("no thread panicked");
                    total.writes += written.writes;
                    total.records += written.records;
                    total.log_bytes += written.log_bytes;
                    total.logs += written.logs;
                }
            });
        }
    });
    total.into_inner().expect("no thread panicked")
}

/// One node: its log set, what its processes share, and they themselves.
struct Node<'a> {
    container: &'a Container,
    node: u32,
    set: u32,
    tails: Vec<(u32, u64)>,
    /// The last stamp.
    clock: u64,
    log: Vec<u8>,
    ranks: Vec<Rank>,
    written: Written,
}

struct Rank {
    rank: u32,
    pieces: u64,
    stream: u16,
    regions: Regions,
    segments: Vec<SegmentRef>,
    folder: Folder,
    announced: bool,
}

fn tick(clock: &mut u64, wall: u64) -> u64 {
    *clock = wall.max(*clock + 1);
    *clock
}

impl<'a> Node<'a> {
    fn new(container: &'a Container, node: u32, ranks: std::ops::Range<u32>) -> Node<'a> {
        let streams = container.superblock.streams;
        let rank = |(turn, rank): (usize, u32)| Rank {
            rank,
            pieces: 0,
            stream: (turn % usize::from(streams)) as u16,
            regions: Regions::default(),
            segments: Vec::new(),
            folder: Folder::new(),
            announced: false,
        };
        Node {
            container,
            node,
            // Different for each node, and as good as random.
            set: (node ^ 0x5bd1_e995).wrapping_mul(0x9e37_79b1),
            tails: vec![(0, 0); streams.into()],
            clock: START,
            log: Vec::new(),
            ranks: ranks.enumerate().map(rank).collect(),
            written: Written::default(),
        }
    }

    fn run(
        mut self,
        case: &IndexCase,
        rounds: u64,
        turns: Turns,
        placed: &impl Fn(Placed),
    ) -> Written {
        let (writers, first) =
            (u64::from(case.writers()), u64::from(self.ranks.first().map_or(0, |rank| rank.rank)));
        self.ranks.iter_mut().for_each(|rank| rank.pieces = case.pieces(rank.rank));
        let mut order: Vec<usize> = (0..self.ranks.len()).collect();
        let mut rng = match turns {
            Turns::Lockstep => None,
            Turns::Racing(seed) => Some(Rng::new(seed ^ u64::from(self.set))),
        };
        for round in 0..rounds {
            if let Some(rng) = &mut rng {
                (1..order.len()).for_each(|i| order.swap(i, rng.below(i as u64 + 1) as usize));
            }
            for (turn, &i) in order.iter().enumerate() {
                if round < self.ranks[i].pieces {
                    let wall = START + STEP * (round * writers + first + turn as u64);
                    let (offset, length) = case.piece(self.ranks[i].rank, round);
                    let (at, physical) = self.write(i, offset, length, wall);
                    placed(Placed {
                        writer: self.ranks[i].rank,
                        piece: round,
                        offset,
                        length,
                        at,
                        physical,
                        time: wall,
                    });
                }
            }
        }
        for i in 0..self.ranks.len() {
            self.commit(i, START + STEP * (rounds * writers + first + i as u64));
        }
        if !self.log.is_empty() {
            let (store, dir) =
                (&self.container.store, self.container.path(&name::log_set(self.set)));
            store.mkdir(&dir, 0o755).expect("make the log set");
            let file = store
                .open(&self.container.path(&name::index_log(self.set)), Open::create_new(0o644))
                .expect("create the index log");
            store::write_full(file.as_ref(), &self.log, 0).expect("write the index log");
            (self.written.logs, self.written.log_bytes) = (1, self.log.len() as u64);
        }
        self.written
    }

    /// What `Writer::write` does, but for the bytes.
    fn write(&mut self, i: usize, offset: u64, length: u64, wall: u64) -> (SegmentRef, u64) {
        let Rank { regions, segments, folder, stream, .. } = &mut self.ranks[i];
        let (container, set, tail) =
            (self.container, self.set, &mut self.tails[usize::from(*stream)]);
        let reserve = |bytes: u64| {
            let (segment, offset) = next_region(*tail, bytes, container.superblock.segment_bytes);
            *tail = (segment, offset + bytes);
            let at = SegmentRef {
                set,
                stream: *stream,
                segment,
                backend: container.backend_of(set, *stream),
            };
            let number = segments.iter().rposition(|other| *other == at).unwrap_or_else(|| {
                segments.push(at);
                segments.len() - 1
            });
            Ok::<_, Infallible>((number as u32, offset))
        };
        let Ok((segment, physical)) = regions.place(length, u64::MAX, reserve);
        folder.push(offset, length, segment, physical, || tick(&mut self.clock, wall));
        self.written.writes += 1;
        let at = segments[segment as usize];
        if folder.len() >= PENDING_RECORDS {
            self.commit(i, wall);
        }
        (at, physical)
    }

    /// What `Writer::commit` does.
    fn commit(&mut self, i: usize, wall: u64) {
        let Rank { rank, segments, folder, announced, .. } = &mut self.ranks[i];
        let writer = rank.wrapping_mul(0x85eb_ca6b) ^ 0x27d4_eb2f;
        let runs = folder.take(|| tick(&mut self.clock, wall));
        for runs in runs.chunks(BLOCK_RECORDS) {
            let (used, mut records) = block_of(segments, runs, writer);
            if !std::mem::replace(announced, true) {
                let host = format!("node{:06}", self.node);
                records.insert(
                    0,
                    Record::Writer {
                        writer,
                        pid: 1000 + *rank,
                        uid: 1000,
                        attached_ns: (START >> 16) * 1_000_000,
                        boot_id: 0,
                        host,
                    },
                );
            }
            let offset = align_up(self.log.len() as u64);
            self.log.resize(offset as usize, 0);
            let append = Append { offset, stamp: tick(&mut self.clock, wall), ..Append::default() };
            let block = encode_block(self.container.log_id(self.set), append, &used, &records)
                .expect("a block within its bounds");
            self.log.extend_from_slice(&block);
            self.written.records += records.len() as u64;
        }
    }
}
