//! The flat index below an index: reads it, tells whether it fits the logs, and takes it into use.

use std::collections::BTreeSet;

use plfs_format::Bad;
use plfs_format::flat_index::{self, FlatIndex};
use plfs_format::index_log::align_up;
use plfs_format::name::{self, Name, SegmentRef};
use plfs_index::{Base, ExtentMap};

use super::{Index, Scanned};
use crate::container::{Container, log_sets};
use crate::error::{At, Result};
use crate::store::{self, Bytes, Errno, Links, Open, StoreFile};
use crate::sync::Arc;

/// Bytes up to which a flat index is read whole. 4 MiB: more than a million irregular pieces, a
/// millisecond.
const FLAT_WHOLE_BYTES: u64 = 4 << 20;
/// Bytes of a flat index in front of its blocks at most: 15 million patterns. What has more is not
/// used.
const FLAT_HEAD_BYTES: u64 = 1 << 30;
/// Bytes of it that are read at once.
const FLAT_PIECE_BYTES: usize = 4 << 20;

/// A flat index in use.
#[derive(Debug)]
pub(crate) struct Flat {
    /// [`flat_index::FlatIndex::id`].
    pub(super) id: u32,
    /// How far each index log is in it.
    pub(super) covered: Vec<(u32, u64)>,
}

/// Which flat index is the right one.
#[derive(Clone, Copy)]
pub(super) enum Expect<'a> {
    /// The one that the summary names.
    Id(u32),
    /// One that fits the logs, which are among these names.
    Logs(&'a [Name]),
    /// One that fits this log, which alone matters.
    Log(u32),
}

/// Why a flat index does not fit.
#[derive(Debug)]
pub(super) enum Unfit {
    /// It has more of a log than is left of that.
    Outlived(String),
    /// Anything else.
    Other(String),
}

impl Index {
    /// The flat index if it fits the log of `set`, whatever became of the others; else an empty
    /// one. `None` if it has more than is left of the log, or nobody can tell now.
    pub(crate) fn flat_for(container: &Container, set: u32) -> Option<Index> {
        let mut index = Index::default();
        match index.load_flat(container, Expect::Log(set)) {
            Ok(Ok(())) => Some(index),
            Ok(Err(Unfit::Outlived(_))) | Err(_) => None,
            Ok(Err(Unfit::Other(_))) => Some(Index::default()),
        }
    }

    /// [`Index::use_flat`] of the file.
    pub(super) fn load_flat(
        &mut self,
        container: &Container,
        expect: Expect,
    ) -> Result<std::result::Result<(), Unfit>> {
        let path = container.path(name::FLAT);
        match container.store.open(&path, Open::READ) {
            Ok(file) => match read_flat(container, file).at("read", &path)? {
                Ok(base) => Ok(self.use_base(container, base, expect)),
                Err(bad) => Ok(Err(Unfit::Other(format!("it is damaged {bad}")))),
            },
            Err(Errno::NOENT) => Ok(Err(Unfit::Other("it was just removed".into()))),
            Err(Errno::ACCESS | Errno::PERM) => {
                Ok(Err(Unfit::Other("this user may not read it".into())))
            }
            Err(errno) => Err(errno).at("open", &path),
        }
    }

    /// Begins with a flat index, or says why it does not fit.
    pub(super) fn use_flat(
        &mut self,
        container: &Container,
        bytes: Bytes,
        expect: Expect,
    ) -> std::result::Result<(), Unfit> {
        let damaged = |bad| Unfit::Other(format!("it is damaged {bad}"));
        let flat =
            flat_index::decode((*bytes).as_ref(), &container.superblock.uuid).map_err(damaged)?;
        self.use_base(container, Base::new(bytes, flat), expect)
    }

    fn use_base(
        &mut self,
        container: &Container,
        base: Base,
        expect: Expect,
    ) -> std::result::Result<(), Unfit> {
        let flat = base.flat();
        if flat.covered.iter().any(|covered| covered.from != 0) {
            return Err(Unfit::Other("it is a part of one".into()));
        }
        if matches!(expect, Expect::Id(id) if id != flat.id) {
            return Err(Unfit::Other("the summary means another".into()));
        }
        let had = base_len_of(flat);
        if container.base_len().ok().flatten().is_some_and(|len| len != had) {
            return Err(Unfit::Other(format!(
                "it is stale: the plain file below the logs had {had} bytes"
            )));
        }
        let listed =
            if let Expect::Logs(names) = expect { log_sets(names) } else { BTreeSet::new() };
        for covered in flat.covered.iter().filter(|covered| covered.bytes > 0) {
            let length = match expect {
                Expect::Log(set) if covered.set != set => continue,
                Expect::Id(_) => covered.bytes,
                Expect::Logs(_) if !listed.contains(&covered.set) => {
                    return Err(Unfit::Other(format!(
                        "it is stale: log set {:08x} is gone",
                        covered.set
                    )));
                }
                Expect::Logs(_) | Expect::Log(_) => {
                    let path = container.path(&name::index_log(covered.set));
                    let length =
                        container.store.stat(&path, Links::Follow).map_or(0, |stat| stat.len);
                    if length < covered.bytes {
                        return Err(Unfit::Outlived(format!(
                            "it is stale: it covers {} bytes of {}, which has {length}",
                            covered.bytes,
                            path.display()
                        )));
                    }
                    length
                }
            };
            self.scanned
                .insert(covered.set, Scanned { from: 0, end: align_up(covered.bytes), length });
        }
        self.take_flat(base);
        Ok(())
    }

    /// Uses a decoded flat index where it lies.
    pub(super) fn take_flat(&mut self, base: Base) {
        let flat = base.flat();
        (self.segments, self.ends) =
            flat.segments.iter().map(|segment| (segment.at, segment.bytes)).unzip();
        self.numbers.clear();
        (self.max_stamp, self.records) = (flat.max_stamp, flat.records);
        (self.floor, self.may_lack_cut) = (flat.floor, flat.may_lack_cut);
        self.base_len = base_len_of(flat);
        self.flat = Some(Flat {
            id: flat.id,
            covered: flat.covered.iter().map(|covered| (covered.set, covered.bytes)).collect(),
        });
        self.extents = ExtentMap::with_base(base);
        self.occupied = None;
    }
}

/// Bytes that the plain file below the logs had when the flat index was made; 0 if there is none.
fn base_len_of(flat: &FlatIndex) -> u64 {
    flat.segments
        .iter()
        .find(|segment| segment.at == SegmentRef::BASE)
        .map_or(0, |segment| segment.bytes)
}

/// The flat index in `file`, or why it is none. A short one is read whole; of a long one all but
/// the blocks, which are read when they are asked for. What it says of lengths takes no more memory
/// than there are bytes: a hole in front of the blocks is damage.
pub(crate) fn read_flat(
    container: &Container,
    file: Arc<dyn StoreFile>,
) -> store::Result<std::result::Result<Base, Bad>> {
    let uuid = &container.superblock.uuid;
    let length = file.stat()?.len;
    let mut bytes = vec![0; flat_index::HEADER_BYTES];
    let n = store::read_full(file.as_ref(), &mut bytes, 0)?;
    bytes.truncate(n);
    let bad = |at_bytes, what| Ok(Err(Bad::new(at_bytes, what)));
    if length > FLAT_WHOLE_BYTES
        && let Err(error) = flat_index::check_header(&bytes, uuid)
    {
        return Ok(Err(error));
    }
    let head = match flat_index::head_bytes(&bytes) {
        _ if length <= FLAT_WHOLE_BYTES => length,
        Some(head) if head <= length.min(FLAT_HEAD_BYTES) => head,
        _ => {
            return bad(
                72,
                "the file's length does not match its header, or its tables and entries are \
                 longer than any can be used",
            );
        }
    };
    while (bytes.len() as u64) < head {
        let at = bytes.len();
        if file.next_data(at as u64)?.is_none_or(|data| data > at as u64) {
            return bad(at as u64, "there is a hole in it");
        }
        let more = FLAT_PIECE_BYTES.min((head - at as u64) as usize);
        bytes.reserve_exact(more);
        bytes.resize(at + more, 0);
        let n = store::read_full(file.as_ref(), &mut bytes[at..], at as u64)?;
        if n < more {
            return bad((at + n) as u64, "it became shorter while it was read");
        }
    }
    let flat = match flat_index::decode_head(&bytes, length, uuid) {
        Ok(flat) => flat,
        Err(bad) => return Ok(Err(bad)),
    };
    let bytes: Bytes = Arc::new(bytes);
    if head == length {
        return Ok(Ok(Base::new(bytes, flat)));
    }
    let read = move |offset: u64, length: usize| {
        let mut bytes = vec![0; length];
        let n = store::read_full(file.as_ref(), &mut bytes, offset).ok()?;
        bytes.truncate(n);
        Some(bytes)
    };
    Ok(Ok(Base::in_file(bytes, Box::new(read), length, flat)))
}
