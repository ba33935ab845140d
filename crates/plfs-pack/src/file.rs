//! What all records of one file say together.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;

use plfs_format::name::SegmentRef;
use plfs_format::pack::{Attributes, FileId, Piece, Place, Record, When, pieces_in_record};

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
    fn end(&self) -> u64 {
        self.logical + u64::from(self.length)
    }
}

/// A part of a file that shows bytes of one write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Offset in the file.
    pub logical: u64,
    /// Bytes.
    pub length: u64,
    /// Where they are.
    pub segment: SegmentRef,
    /// Offset there.
    pub physical: u64,
    /// When they were written.
    pub place: Place,
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
    /// By place, and where they begin.
    writes: Vec<Write>,
    cuts: Vec<(Place, u64)>,
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
            let Piece { logical, physical, stamp, length, crc } = *piece;
            let place = Place { stamp, set };
            self.add_write(Write { logical, length, segment, physical, place, crc, doubt });
        }
    }

    fn add_write(&mut self, write: Write) {
        let key = |write: &Write| (write.place, write.logical);
        match self.writes.binary_search_by_key(&key(&write), key) {
            // It went on before it was committed.
            Ok(at) if self.writes[at].length < write.length => self.writes[at] = write,
            Ok(_) => {}
            Err(at) => {
                self.writes.insert(at, write);
                // Only where one has come: what is said again leaves the number as it is.
                if self.writes.len() > 8 && self.writes.len().is_power_of_two() {
                    self.prune();
                }
            }
        }
    }

    /// Adds a record of kind cut.
    pub fn add_cut(&mut self, place: Place, size: u64) {
        let is_idle = |(known, other): &(Place, u64)| *known >= place && *other <= size;
        if self.cuts.iter().any(is_idle) {
            return;
        }
        // Its place may be the latest of all that changed the content: see `touched`.
        self.cuts.retain(|(known, other)| *known > place || *other < size);
        self.cuts.push((place, size));
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
        other.writes.into_iter().for_each(|write| self.add_write(write));
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
        let writes = self.writes.iter().map(|write| write.place);
        writes.chain(self.cuts.iter().map(|(place, _)| *place)).max()
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
        let later = self.cuts.iter().filter(|(cut, _)| *cut > place);
        later.map(|(_, size)| *size).min().unwrap_or(u64::MAX)
    }

    /// Size in bytes.
    pub fn size(&self) -> u64 {
        let writes = self.writes.iter().map(|write| write.end().min(self.clip(write.place)));
        let cuts = self.cuts.iter().map(|(place, size)| (*size).min(self.clip(*place)));
        writes.chain(cuts).max().unwrap_or(0)
    }

    /// All that was written and may show.
    pub fn writes(&self) -> &[Write] {
        &self.writes
    }

    /// The bytes that show, ascending; what lies between is zero. `is_sound` is asked of a write in
    /// doubt that lies over an older one: whether its bytes fit its CRC.
    pub fn extents<E>(
        &self,
        mut is_sound: impl FnMut(&Write) -> Result<bool, E>,
    ) -> Result<Vec<Extent>, E> {
        let mut sorted: Vec<(&Write, u64)> = self
            .writes
            .iter()
            .map(|write| (write, write.end().min(self.clip(write.place))))
            .filter(|(write, end)| *end > write.logical)
            .collect();
        sorted.sort_by_key(|(write, _)| Reverse(write.place));
        // Those found so far, by where they begin.
        let mut found = BTreeMap::<u64, Extent>::new();
        for (i, (write, end)) in sorted.iter().enumerate() {
            let (begin, end) = (write.logical, *end);
            let is_over =
                |(below, below_end): &(&Write, u64)| below.logical < end && *below_end > begin;
            if write.doubt != 0 && sorted[i + 1..].iter().any(is_over) && !is_sound(write)? {
                continue;
            }
            let mut at = begin;
            let mut fresh = Vec::new();
            let before = found.range(..begin).next_back().map(|(_, extent)| *extent);
            let within = found.range(begin..end).map(|(_, extent)| *extent);
            for hidden in before.into_iter().chain(within) {
                if hidden.logical > at {
                    fresh.push((at, hidden.logical));
                }
                at = at.max(hidden.logical + hidden.length);
            }
            if at < end {
                fresh.push((at, end));
            }
            for (from, to) in fresh {
                let physical = write.physical + (from - write.logical);
                let (length, segment, place) = (to - from, write.segment, write.place);
                found.insert(from, Extent { logical: from, length, segment, physical, place });
            }
        }
        Ok(found.into_values().collect())
    }

    /// Forgets writes that nothing can bring back: of those below a write in doubt all may be
    /// needed.
    fn prune(&mut self) {
        if self.writes.iter().any(|write| write.doubt != 0) {
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
    }

    /// The file with `writes`, which are all that it shows, in the place of its own.
    pub fn copied(&self, writes: Vec<Write>) -> FileState {
        let (size, touched) = (self.size(), self.touched());
        let mut copied = FileState { writes: Vec::new(), ..self.clone() };
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
        let mut writes = self.writes.clone();
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
