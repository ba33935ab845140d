//! What all records of one file say together.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::convert::Infallible;

use plfs_format::name::SegmentRef;
use plfs_format::pack::{Attributes, FileId, Piece, Place, Record, When, pieces_in_record};

use crate::pieces::Pieces;
use crate::shown::{Extent, Shown};

/// Bytes that were written, and where they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write {
    /// Offset in the file.
    pub logical: u64,
    /// Bytes, at least 1.
    pub length: u32,
    /// The segment that has them.
    pub segment: SegmentRef,
    /// Offset there.
    pub physical: u64,
    /// Orders it.
    pub place: Place,
    /// CRC-32C of all its bytes.
    pub crc: u32,
    /// The boot that may have lost them; 0: they are there.
    pub doubt: u64,
}

impl Write {
    pub(crate) fn of(piece: &Piece, set: u32, segment: SegmentRef, doubt: u64) -> Write {
        let Piece { logical, physical, stamp, length, crc } = *piece;
        Write { logical, length, segment, physical, place: Place { stamp, set }, crc, doubt }
    }

    fn end(&self) -> u64 {
        self.logical + u64::from(self.length)
    }
}

/// What was said last, and where.
type Register<T> = Option<(Place, T)>;

/// The join of records of a file: of all that a reader has, or of a part of them, to be
/// [joined](FileState::join) with others. The order of joins does not matter, nor does repetition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileState {
    /// Its creation was seen, or a tree has it.
    pub is_created: bool,
    /// It was removed.
    pub is_gone: bool,
    /// Its name, since when.
    pub home: Register<Box<[u8]>>,
    /// Names that it had before: where a tree may have it.
    pub former: Vec<Box<[u8]>>,
    /// Mode, user and group at creation.
    born: (u32, u32, u32),
    rare: Option<Box<Rare>>,
    writes: Pieces,
    /// Ascending by place, and so by size: one that is earlier and not smaller says nothing.
    cuts: Vec<(Place, u64)>,
    size: u64,
    /// Log sets that have writes of it, perhaps of some that do not show any more.
    sets: Vec<u32>,
    /// One of its writes is in doubt.
    is_in_doubt: bool,
    /// Writes that were left when they were pruned last.
    pruned: usize,
}

/// What few files have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Rare {
    mode: Register<u32>,
    uid: Register<u32>,
    gid: Register<u32>,
    mtime: Register<When>,
    atime: Register<When>,
}

fn set<T>(register: &mut Register<T>, place: Place, value: T) {
    if register.as_ref().is_none_or(|(known, _)| *known < place) {
        *register = Some((place, value));
    }
}

fn merge<T>(register: &mut Register<T>, other: Register<T>) {
    if let Some((place, value)) = other {
        set(register, place, value);
    }
}

/// The time of a stamp: 2^-16 milliseconds since 1970.
fn time_of(stamp: u64) -> When {
    let (ms, part) = (stamp >> 16, stamp & 0xffff);
    let nsec = (ms % 1000) * 1_000_000 + part * 1_000_000 / 65_536;
    When { sec: (ms / 1000) as i64, nsec: nsec as u32 }
}

impl FileState {
    /// A file that a tree has.
    pub(crate) fn of_tree() -> FileState {
        FileState { is_created: true, ..FileState::default() }
    }

    /// A file that is gone.
    pub(crate) fn gone() -> FileState {
        FileState { is_gone: true, ..FileState::default() }
    }

    /// Adds a record of the file that says more than that it is gone. `own_boot`: data of that boot
    /// is not in doubt for who asks.
    pub fn add(&mut self, segments: &[SegmentRef], record: &Record, own_boot: u64) {
        match record {
            Record::File { id, bound, mode, uid, gid, name, former } => {
                let (id, bound, mode, uid, gid) = (*id, *bound, *mode, *uid, *gid);
                self.add_name(NameRecord { id, bound, mode, uid, gid, name, former });
            }
            Record::Write { set, boot, segment, pieces, .. } => {
                let doubt = if *boot == own_boot { 0 } else { *boot };
                self.add_pieces(segments[usize::from(*segment)], *set, doubt, pieces);
            }
            Record::Cut { place, size, .. } => self.add_cut(*place, *size),
            Record::Attributes { place, set, .. } => self.add_attributes(*place, *set),
            Record::Gone { .. } | Record::Clear { .. } | Record::ById { .. } => {}
        }
    }

    /// Adds a record of kind file.
    pub fn add_name(&mut self, record: NameRecord<'_>) {
        self.is_created |= record.bound == record.id;
        self.born = (record.mode, record.uid, record.gid);
        if !record.former.is_empty() {
            self.add_former(record.former);
        }
        self.set_home(record.bound, record.name.into());
    }

    /// The name since `place`, unless a later one is known.
    fn set_home(&mut self, place: Place, name: Box<[u8]>) {
        match &mut self.home {
            Some((known, _)) if *known >= place => self.add_former(&name),
            home => {
                if let Some((_, old)) = home.replace((place, name)) {
                    self.add_former(&old);
                }
            }
        }
    }

    fn add_former(&mut self, name: &[u8]) {
        let is_home = self.home.as_ref().is_some_and(|(_, home)| **home == *name);
        if !is_home && !self.former.iter().any(|known| **known == *name) {
            self.former.push(name.into());
        }
    }

    /// Adds pieces of a record of kind write.
    pub fn add_pieces(&mut self, segment: SegmentRef, set: u32, doubt: u64, pieces: &[Piece]) {
        for piece in pieces {
            self.add_write(Write::of(piece, set, segment, doubt));
        }
    }

    fn add_write(&mut self, write: Write) {
        if !self.writes.add(write) {
            return;
        }
        [write.place.set, write.segment.set].into_iter().for_each(|set| self.add_set(set));
        self.is_in_doubt |= write.doubt != 0;
        self.size = self.size.max(self.end_of(&write));
        if self.writes.len() >= 2 * self.pruned.max(8) {
            self.prune();
        }
    }

    fn add_set(&mut self, set: u32) {
        if !self.sets.contains(&set) {
            self.sets.push(set);
        }
    }

    /// Adds a record of kind cut.
    pub fn add_cut(&mut self, place: Place, size: u64) {
        let at = self.cuts.partition_point(|(known, _)| *known < place);
        if self.cuts.get(at).is_some_and(|(_, other)| *other <= size) {
            return;
        }
        // Its place may be the latest of all that changed the content: see `touched`.
        let is_last = self.touched().is_none_or(|last| last < place);
        let from = self.cuts[..at].partition_point(|(_, other)| *other < size);
        let to = at + usize::from(self.cuts.get(at).is_some_and(|(known, _)| *known == place));
        self.cuts.splice(from..to, [(place, size)]);
        self.size = if is_last { size } else { self.size_of_all() };
    }

    /// Adds a record of kind attributes.
    pub fn add_attributes(&mut self, place: Place, to: Attributes) {
        let rare = self.rare.get_or_insert_default();
        let some = |value: Option<u32>| value.map(|value| (place, value));
        merge(&mut rare.mode, some(to.mode));
        merge(&mut rare.uid, some(to.uid));
        merge(&mut rare.gid, some(to.gid));
        merge(&mut rare.mtime, to.mtime.map(|time| (place, time)));
        merge(&mut rare.atime, to.atime.map(|time| (place, time)));
    }

    /// Adds all that `other` knows of the same file.
    pub fn join(&mut self, other: FileState) {
        if other.home.is_some() {
            self.born = other.born;
        }
        self.is_created |= other.is_created;
        self.is_gone |= other.is_gone;
        other.former.iter().for_each(|name| self.add_former(name));
        if let Some((place, name)) = other.home {
            self.set_home(place, name);
        }
        // What was not the name a moment ago may be it now.
        if let Some((_, home)) = &self.home {
            self.former.retain(|name| name != home);
        }
        if let Some(rare) = other.rare {
            let own = self.rare.get_or_insert_default();
            merge(&mut own.mode, rare.mode);
            merge(&mut own.uid, rare.uid);
            merge(&mut own.gid, rare.gid);
            merge(&mut own.mtime, rare.mtime);
            merge(&mut own.atime, rare.atime);
        }
        other.cuts.into_iter().for_each(|(place, size)| self.add_cut(place, size));
        self.is_in_doubt |= other.is_in_doubt;
        let mut fewer = other.writes;
        if fewer.len() > self.writes.len() {
            std::mem::swap(&mut fewer, &mut self.writes);
            (self.pruned, self.size) = (other.pruned, self.size_of_all());
            other.sets.into_iter().for_each(|set| self.add_set(set));
        }
        fewer.iter().for_each(|write| self.add_write(*write));
    }

    /// Permission bits.
    pub fn mode(&self) -> u32 {
        let set = self.rare.as_ref().and_then(|rare| rare.mode);
        set.map_or(self.born.0, |(_, mode)| mode)
    }

    /// Owner.
    pub fn uid(&self) -> u32 {
        let set = self.rare.as_ref().and_then(|rare| rare.uid);
        set.map_or(self.born.1, |(_, uid)| uid)
    }

    /// Group.
    pub fn gid(&self) -> u32 {
        let set = self.rare.as_ref().and_then(|rare| rare.gid);
        set.map_or(self.born.2, |(_, gid)| gid)
    }

    /// The place of the last change of bytes or size; `None`: it never had any.
    pub fn touched(&self) -> Option<Place> {
        let write = self.writes.last().map(|write| write.place);
        write.max(self.cuts.last().map(|(place, _)| *place))
    }

    /// Modification time of the file `id`.
    pub fn mtime(&self, id: FileId) -> When {
        let touched = self.touched().unwrap_or(id);
        match self.rare.as_ref().and_then(|rare| rare.mtime) {
            Some((place, time)) if place > touched => time,
            _ => time_of(touched.stamp),
        }
    }

    /// Access time of the file `id`.
    pub fn atime(&self, id: FileId) -> When {
        let set = self.rare.as_ref().and_then(|rare| rare.atime);
        set.map_or_else(|| self.mtime(id), |(_, time)| time)
    }

    /// When anything of the file `id` changed last.
    pub fn ctime(&self, id: FileId) -> When {
        let mut last = self.touched().unwrap_or(id).max(id);
        last = last.max(self.home.as_ref().map_or(id, |(place, _)| *place));
        if let Some(rare) = &self.rare {
            let numbers = [&rare.mode, &rare.uid, &rare.gid].map(|set| set.map(|(place, _)| place));
            let times = [&rare.mtime, &rare.atime].map(|set| set.map(|(place, _)| place));
            last = numbers.into_iter().chain(times).flatten().fold(last, Place::max);
        }
        time_of(last.stamp)
    }

    /// The smallest size of a cut behind `place`: what was written there is cut to it.
    fn clip(&self, place: Place) -> u64 {
        let later = self.cuts.partition_point(|(cut, _)| *cut <= place);
        self.cuts.get(later).map_or(u64::MAX, |(_, size)| *size)
    }

    /// Up to where a write may show.
    pub(crate) fn end_of(&self, write: &Write) -> u64 {
        write.end().min(self.clip(write.place))
    }

    fn size_of_all(&self) -> u64 {
        let writes = self.writes.iter().map(|write| self.end_of(write));
        writes.chain(self.cuts.last().map(|(_, size)| *size)).max().unwrap_or(0)
    }

    /// Size in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// All that was written and may show.
    pub fn writes(&self) -> impl Iterator<Item = &Write> {
        self.writes.iter()
    }

    /// How many writes may show.
    pub fn pieces(&self) -> usize {
        self.writes.len()
    }

    /// Log sets that have bytes of it, or records of them.
    pub fn sets(&self) -> &[u32] {
        &self.sets
    }

    /// One of its writes is in doubt: what shows depends on what lies below.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.is_in_doubt
    }

    /// The bytes that show, ascending; what lies between is zero. `is_sound` is asked of a write in
    /// doubt that lies over an older one: whether its bytes fit its CRC.
    pub fn extents<E>(
        &self,
        is_sound: impl FnMut(&Write) -> Result<bool, E>,
    ) -> Result<Vec<Extent>, E> {
        Ok(self.shown(is_sound)?.all().copied().collect())
    }

    /// [`FileState::extents`], to look into.
    pub fn shown<E>(
        &self,
        mut is_sound: impl FnMut(&Write) -> Result<bool, E>,
    ) -> Result<Shown, E> {
        let mut sorted: Vec<&Write> = self.writes.iter().collect();
        sorted.sort_by_key(|write| (write.place, Reverse(write.logical)));
        // What older writes cover, if somebody asks.
        let mut older = Shown::default();
        let mut shown = Shown::default();
        for write in sorted {
            let end = self.end_of(write);
            if end <= write.logical {
                continue;
            }
            let is_over = write.doubt != 0 && older.within(write.logical, end).next().is_some();
            if self.is_in_doubt {
                older.paint(write, end);
            }
            if !is_over || is_sound(write)? {
                shown.paint(write, end);
            }
        }
        Ok(shown)
    }

    /// Forgets writes that nothing can bring back: of those below a write in doubt all may be
    /// needed.
    fn prune(&mut self) {
        self.pruned = self.writes.len();
        if self.is_in_doubt {
            return;
        }
        let Ok(shown) = self.extents(|_| Ok::<bool, Infallible>(true));
        let shown: BTreeSet<_> =
            shown.iter().map(|shown| (shown.segment, shown.physical)).collect();
        let last = self.touched();
        self.writes.retain(|write| {
            let end = write.physical + u64::from(write.length);
            // The last one says when the content changed.
            Some(write.place) == last
                || shown
                    .range((write.segment, write.physical)..(write.segment, end))
                    .next()
                    .is_some()
        });
        self.pruned = self.writes.len();
    }

    /// The file with `writes`, which are all that it shows, in the place of its own.
    pub fn copied(&self, writes: Vec<Write>) -> FileState {
        let (size, touched) = (self.size(), self.touched());
        let mut copied = FileState {
            writes: Pieces::default(),
            sets: Vec::new(),
            is_in_doubt: false,
            pruned: 0,
            ..self.clone()
        };
        copied.size = copied.size_of_all();
        writes.into_iter().for_each(|write| copied.add_write(write));
        // What does not show any more has its part in the size, and in when it changed.
        if let Some(place) =
            touched.filter(|_| copied.size() != size || copied.touched() != touched)
        {
            copied.add_cut(place, size);
        }
        copied
    }

    /// The records of the file `id`, which a tree or another log says instead of all those that
    /// were joined. `number` gives a segment its number in the table of their block.
    pub fn records(&self, id: FileId, mut number: impl FnMut(SegmentRef) -> u16) -> Vec<Record> {
        let Some((bound, name)) = &self.home else { return Vec::new() };
        let (mode, uid, gid) = self.born;
        let former = match *bound == id {
            true => Box::default(),
            false => self.former.last().unwrap_or(name).clone(),
        };
        let (bound, name) = (*bound, name.clone());
        let mut records = vec![Record::File { id, bound, mode, uid, gid, name, former }];
        if let Some(rare) = &self.rare {
            let places = [rare.mode, rare.uid, rare.gid].map(|set| set.map(|(place, _)| place));
            let times = [rare.mtime, rare.atime].map(|set| set.map(|(place, _)| place));
            let mut places: Vec<Place> = places.into_iter().chain(times).flatten().collect();
            places.sort_unstable();
            places.dedup();
            for place in places {
                fn at<T: Copy>(register: &Register<T>, place: Place) -> Option<T> {
                    register.filter(|(since, _)| *since == place).map(|(_, value)| value)
                }
                let set = Attributes {
                    mode: at(&rare.mode, place),
                    uid: at(&rare.uid, place),
                    gid: at(&rare.gid, place),
                    mtime: at(&rare.mtime, place),
                    atime: at(&rare.atime, place),
                };
                records.push(Record::Attributes { id, place, set });
            }
        }
        for (place, size) in &self.cuts {
            records.push(Record::Cut { id, place: *place, size: *size });
        }
        let mut writes: Vec<Write> = self.writes.iter().copied().collect();
        writes.sort_by_key(|write| (write.segment, write.place.set, write.doubt, write.place));
        let is_alike = |a: &Write, b: &Write| {
            (a.segment, a.place.set, a.doubt) == (b.segment, b.place.set, b.doubt)
        };
        for alike in writes.chunk_by(is_alike) {
            for part in pieces_in_record(alike) {
                let [Write { segment, place, doubt: boot, .. }, ..] = *part else { continue };
                let (set, segment) = (place.set, number(segment));
                let pieces = part.iter().map(|write| {
                    let Write { logical, length, physical, place, crc, .. } = *write;
                    Piece { logical, physical, stamp: place.stamp, length, crc }
                });
                let pieces = pieces.collect();
                records.push(Record::Write { id, set, boot, segment, pieces });
            }
        }
        records
    }
}

/// A record of kind file, by its parts.
#[derive(Clone, Copy, Debug)]
pub struct NameRecord<'a> {
    /// Which file.
    pub id: FileId,
    /// Since when it has the name.
    pub bound: Place,
    /// Mode at creation.
    pub mode: u32,
    /// Owner at creation.
    pub uid: u32,
    /// Group at creation.
    pub gid: u32,
    /// The name.
    pub name: &'a [u8],
    /// The one before; may be empty.
    pub former: &'a [u8],
}
