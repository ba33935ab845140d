//! What a process is about to say of a pack, and how it says it.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use plfs_format::name::SegmentRef;
use plfs_format::pack::{FileId, Piece, Place, Record, pieces_in_record};

use crate::error::{Error, Result};
use crate::log::{DataLog, LogSet};
use crate::sync::{Arc, pause};

/// How long a commit that is no sync relies on the last look for the mark. 1 s: a node that was
/// declared dead is told so late at most (SEMANTICS S27); what it commits meanwhile is read all the
/// same.
pub(super) const OWNED: Duration = pause(Duration::from_secs(1));

/// Bytes of records that wait at most, or one record more. 64 KiB: a block of some 500 files, which
/// finds room in a tray whatever their names are.
const WAITING_BYTES: usize = 64 << 10;

/// What a record takes beside its names, and a piece.
const RECORD_BYTES: usize = 96;

/// A piece of a file that no log has yet.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    id: FileId,
    segment: SegmentRef,
    piece: Piece,
}

/// This process in its node's log set.
pub(super) struct Writer {
    pub set: Arc<LogSet>,
    pub data: DataLog,
    /// There are bytes in the data log's buffer, perhaps.
    pub is_buffered: bool,
    /// Records without data.
    said: Vec<Record>,
    pieces: Vec<Waiting>,
    /// What both take in a block, at most.
    waiting_bytes: usize,
    /// The last piece of a file, if the next may go on with it.
    last: HashMap<FileId, usize>,
    /// What [`LogSet::index_end`] was when the node's log was read last.
    pub node_end: u64,
    /// Where the last block of this process ends that may not be durable; 0: there is none.
    pub unsynced: u64,
    pub owned: Instant,
    /// When it came: what is counted in the node's page is counted since it is there.
    pub joined: Instant,
    pub poison: Option<Error>,
}

impl Writer {
    pub fn new(set: Arc<LogSet>, data: DataLog) -> Writer {
        Writer {
            set,
            data,
            is_buffered: false,
            said: Vec::new(),
            pieces: Vec::new(),
            waiting_bytes: 0,
            last: HashMap::new(),
            node_end: 0,
            unsynced: 0,
            owned: Instant::now(),
            joined: Instant::now(),
            poison: None,
        }
    }

    /// The error that made it give up.
    pub fn check(&self) -> Result<()> {
        match &self.poison {
            Some(first) => Err(Error::Poisoned { first: Box::new(first.clone()) }),
            None => Ok(()),
        }
    }

    /// For who leaves all that there is as it was, if he fails.
    pub fn poison_unless_passing(&mut self, error: Error) -> Error {
        if error.is_passing() { error } else { self.poison(error) }
    }

    pub fn poison(&mut self, error: Error) -> Error {
        self.poison.get_or_insert(error.clone());
        error
    }

    /// The next place in the order.
    pub fn place(&self) -> Place {
        Place { stamp: self.set.tick(), set: self.set.id() }
    }

    /// Takes a record without data, to be said with the next commit.
    pub fn say(&mut self, record: Record) {
        self.waiting_bytes += RECORD_BYTES
            + match &record {
                Record::File { name, former, .. } => name.len() + former.len(),
                Record::Gone { ids } => ids.len() * size_of::<FileId>(),
                _ => 0,
            };
        self.said.push(record);
    }

    /// Pieces of `id` that come later are pieces of their own.
    pub fn seal(&mut self, id: FileId) {
        self.last.remove(&id);
    }

    /// [`Writer::seal`] of all files: something new of the node was seen.
    pub fn seal_all(&mut self) {
        self.last.clear();
    }

    /// Takes bytes that are in the data log at `physical`: gives the piece that they are now a part
    /// of.
    pub fn wrote(
        &mut self,
        id: FileId,
        logical: u64,
        segment: SegmentRef,
        physical: u64,
        bytes: &[u8],
    ) -> Piece {
        if let Some(at) = self.last.get(&id)
            && let Some(known) = self.pieces.get_mut(*at)
        {
            let piece = &mut known.piece;
            let length = u64::from(piece.length);
            if known.segment == segment
                && piece.physical + length == physical
                && piece.logical + length == logical
                && let Ok(length) = u32::try_from(length + bytes.len() as u64)
            {
                (piece.length, piece.crc) = (length, plfs_format::sum_on(piece.crc, bytes));
                return *piece;
            }
        }
        let (length, crc) = (bytes.len() as u32, plfs_format::sum(bytes));
        let piece = Piece { logical, physical, stamp: self.place().stamp, length, crc };
        self.last.insert(id, self.pieces.len());
        self.pieces.push(Waiting { id, segment, piece });
        self.waiting_bytes += RECORD_BYTES;
        piece
    }

    /// Whether the byte at this place of a data log is of a piece that no log has yet.
    pub fn waits_at(&self, segment: SegmentRef, physical: u64) -> bool {
        self.pieces.iter().any(|Waiting { segment: of, piece, .. }| {
            *of == segment
                && (piece.physical..piece.physical + u64::from(piece.length)).contains(&physical)
        })
    }

    /// Whether something waits.
    pub fn has_waiting(&self) -> bool {
        !self.said.is_empty() || !self.pieces.is_empty()
    }

    /// Whether so much waits that it should be said.
    pub fn is_crowded(&self) -> bool {
        self.waiting_bytes >= WAITING_BYTES
    }

    /// Bytes that a block with all that waits, and some records more, does not exceed.
    pub fn block_bytes(&self) -> usize {
        self.waiting_bytes + WAITING_BYTES / 8
    }

    /// All that waits, as records of a block, and what segments mean in it. Data that is not
    /// durable is held by `boot`. Nothing is forgotten: see [`Writer::is_said`].
    pub fn records(&self, boot: u64) -> (Vec<SegmentRef>, Vec<Record>) {
        let mut segments = Vec::new();
        let mut by_file = BTreeMap::<(FileId, SegmentRef), Vec<Piece>>::new();
        for Waiting { id, segment, piece } in &self.pieces {
            by_file.entry((*id, *segment)).or_default().push(*piece);
        }
        let mut records = self.said.clone();
        for ((id, segment), pieces) in by_file {
            let known = segments.iter().position(|known| *known == segment);
            let number = known.unwrap_or_else(|| {
                segments.push(segment);
                segments.len() - 1
            });
            for pieces in pieces_in_record(&pieces) {
                let (pieces, set) = (pieces.to_vec(), self.set.id());
                records.push(Record::Write { id, set, boot, segment: number as u16, pieces });
            }
        }
        (segments, records)
    }

    /// Records without data that wait, for a block that is said before the data is given to the
    /// store.
    pub fn records_without_data(&self) -> Vec<Record> {
        self.said.clone()
    }

    /// A log has all records without data.
    pub fn is_said_without_data(&mut self) {
        self.said.clear();
        self.waiting_bytes = self.pieces.len() * RECORD_BYTES;
    }

    /// A log has all that waited.
    pub fn is_said(&mut self) {
        self.waiting_bytes = 0;
        self.said.clear();
        self.pieces.clear();
        self.last.clear();
    }
}
