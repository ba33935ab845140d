//! The index of a file whose processes open and close it together: shares of it, merged, handed
//! around and stored. MPI's ranks do that.

use super::File;
use crate::catalog::{Index, Standing, store_flat};
use crate::error::{Error, Result};
use crate::log::CommitHorizon;
use crate::store::{Bytes, Errno};
use crate::sync::lock;

impl File {
    /// Bytes of index logs that a first read has to read, past what the flat index has. Costs a
    /// look at each log, not its contents.
    pub fn index_pending(&self) -> Result<u64> {
        let Some(container) = self.container() else { return Ok(0) };
        Index::pending_bytes(container, self.logical().settled()?)
    }

    /// What a process that writes must know of others' commits until now. For programs whose
    /// processes open a file together: one looks, the others are [told](File::set_commit_horizon),
    /// instead of each looking at all index logs.
    pub fn commit_horizon(&self) -> Result<CommitHorizon> {
        if self.packed.is_some() || self.plain()?.is_some() {
            return Ok(CommitHorizon { max_stamp: 0, is_new: false });
        }
        self.logical().commit_horizon()
    }

    /// This process writes behind what another process of the program has seen. Without effect once
    /// it has written.
    pub fn set_commit_horizon(&self, seen: CommitHorizon) {
        if let Some(logical) = self.logical.get() {
            *lock(&logical.given_horizon) = Some(seen);
        }
    }

    /// A share of the index for processes that load it together: every `parts`-th index log from
    /// the `part`-th on, encoded as a flat index. All of them merged are everything committed
    /// so far. They may be merged if the [`Standing`]s of all together [say
    /// so](Standing::may_merge); one part of one always.
    pub fn index_part(&self, part: u32, parts: u32) -> Result<(Vec<u8>, Standing)> {
        if part >= parts {
            return Err(Error::invalid(
                Errno::INVAL,
                "a part of an index is counted from 0 and below the number of parts",
            ));
        }
        let container = self.container_or_refuse()?;
        let mut index = Index::load_part(container, self.logical().settled()?, part, parts)?;
        let standing = if parts == 1 { Standing::default() } else { index.standing() };
        Ok((index.encode(container, false)?, standing))
    }

    /// What this node's log set has that no flat index has, encoded as one; `with_base` adds the
    /// flat index. If any part of an index that is to be stored is doubtful, all are to be merged
    /// by [`index_merge_apart`](File::index_merge_apart).
    pub fn index_own(&self, with_base: bool) -> Result<(Vec<u8>, Standing)> {
        let container = self.container_or_refuse()?;
        let set = self.logical().set_id();
        let mut index = Index::load_own(container, set, with_base)?;
        let standing = index.standing_to_last();
        Ok((index.encode(container, false)?, standing))
    }

    /// One encoded index of several.
    pub fn index_merge(&self, parts: &[&[u8]]) -> Result<Vec<u8>> {
        let container = self.container_or_refuse()?;
        Index::merge(container, parts)?.encode(container, false)
    }

    /// One encoded index of several that have no byte of the file in common. EAGAIN if they may
    /// have.
    pub fn index_merge_apart(&self, parts: &[&[u8]]) -> Result<Vec<u8>> {
        let container = self.container_or_refuse()?;
        Index::merge_apart(container, parts)?.encode(container, false)
    }

    /// Reads by this encoded index, where it lies, until others' commits are looked for.
    pub fn index_use(&self, bytes: Bytes) -> Result<()> {
        self.may_read()?;
        self.container_or_refuse()?;
        self.logical().use_index(bytes)
    }

    /// Makes an encoded index the container's flat index, atomically; not forced to storage.
    pub fn index_store(&self, bytes: &[u8]) -> Result<()> {
        self.may_write()?;
        let container = self.container_or_refuse()?;
        // What cannot be read back must not replace what can.
        let mut index = Index::merge(container, &[bytes])?;
        index.must_be_whole()?;
        let bytes = index.encode(container, true)?;
        store_flat(container, &bytes, false)
    }
}
