//! A handle on a file of a pack. When the file has grown too large for a pack it moves out, and the
//! handle goes on with the file of its own.
//!
//! All handles of a process on one file have to be one for that, as those of a mount are: another
//! handle stays with what is removed. Who has written through one is told.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use super::File;
use crate::error::{At, Result};
use crate::pack::{Attributes, PackFile, PackStat, When};
use crate::packs::OpenPack;
use crate::store::{Errno, Kind, Links, Size, Stat, Time};
use crate::sync::{Arc, PoisonError, RwLock};

/// Zeros that are written at once. 64 KiB: files of packs are small.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

#[derive(Debug)]
pub(crate) struct Packed {
    pub(crate) pack: Arc<OpenPack>,
    pub(crate) file: PackFile,
    own: RwLock<Option<Box<File>>>,
}

impl Packed {
    pub(crate) fn new(pack: Arc<OpenPack>, file: PackFile) -> Packed {
        pack.open_handle();
        Packed { pack, file, own: RwLock::new(None) }
    }

    /// Does it to the file of its own, if there is one, else to the one in the pack. It does not
    /// move meanwhile.
    fn on<T>(
        &self,
        own: impl FnOnce(&File) -> Result<T>,
        packed: impl FnOnce(&Packed) -> Result<T>,
    ) -> Result<T> {
        match &*self.own.read().unwrap_or_else(PoisonError::into_inner) {
            Some(file) => own(file),
            None => packed(self),
        }
    }

    /// [`Packed::on`] for what changes the file.
    fn change<T>(
        &self,
        own: impl FnOnce(&File) -> Result<T>,
        packed: impl FnOnce(&Packed) -> Result<T>,
    ) -> Result<T> {
        self.on(own, |this| {
            this.pack.changes();
            packed(this)
        })
    }

    /// Moves the file out, if `make` makes one of its own. Nobody reads or writes meanwhile.
    /// Whether it is out.
    pub(crate) fn move_out(
        &self,
        make: impl FnOnce(&Packed) -> Result<Option<File>>,
    ) -> Result<bool> {
        let mut own = self.own.write().unwrap_or_else(PoisonError::into_inner);
        if own.is_none() {
            *own = make(self)?.map(Box::new);
        }
        Ok(own.is_some())
    }

    /// Whether it is out.
    pub(crate) fn is_out(&self) -> bool {
        self.own.read().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// What the pack says of it.
    pub(crate) fn pack_stat(&self) -> Result<PackStat> {
        self.pack.stat_file(&self.file)
    }

    pub(super) fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        match &*self.own.read().unwrap_or_else(PoisonError::into_inner) {
            Some(file) => file.read_at(buf, offset),
            None => self.pack.read_at(&self.file, buf, offset),
        }
    }

    pub(super) fn write_at(&self, buf: &[u8], offset: u64) -> Result<usize> {
        let own = |file: &File| file.write_at(buf, offset);
        self.change(own, |this| this.pack.write_at(&this.file, buf, offset))
    }

    pub(super) fn append(&self, buf: &[u8]) -> Result<(u64, usize)> {
        self.change(|file| file.append(buf), |this| this.pack.append(&this.file, buf))
    }

    pub(crate) fn set_len(&self, size: u64) -> Result<()> {
        self.change(|file| file.set_len(size), |this| this.pack.set_len(&this.file, size))
    }

    /// A pack reserves no room.
    pub(super) fn allocate(&self, offset: u64, length: u64, size: Size) -> Result<()> {
        let own = |file: &File| file.allocate(offset, length, size);
        self.change(own, |this| {
            let end = offset.saturating_add(length);
            match size == Size::Grows && this.pack_stat()?.size < end {
                true => this.pack.set_len(&this.file, end),
                false => Ok(()),
            }
        })
    }

    /// Zeros, as far as the file reaches.
    pub(super) fn zero(&self, offset: u64, length: u64) -> Result<()> {
        let own = |file: &File| file.zero(offset, length);
        self.change(own, |this| {
            let end = offset.saturating_add(length).min(this.pack_stat()?.size);
            let mut at = offset;
            while at < end {
                let n = ZEROS.len().min((end - at) as usize);
                match this.pack.write_at(&this.file, &ZEROS[..n], at)? {
                    0 => break,
                    n => at += n as u64,
                }
            }
            Ok(())
        })
    }

    /// After a commit of what was written: ESTALE if another process has moved the file out. Then
    /// it is in what is removed. Costs nothing for a file that is not removed.
    fn must_be_here(&self) -> Result<()> {
        let Some(name) = self.pack.name_of_gone(&self.file)? else { return Ok(()) };
        let path = self.pack.dir().join(OsStr::from_bytes(&name));
        match self.pack.container().store.stat(&path, Links::Stay) {
            Ok(stat) if stat.kind == Kind::File => {
                Err(Errno::STALE).at("write (another process moved it out of its pack)", &path)
            }
            _ => Ok(()),
        }
    }

    pub(super) fn commit(&self, wrote: bool) -> Result<()> {
        self.on(File::commit, |this| {
            this.pack.commit()?;
            // Who asks for it, and does not close, wants it seen by other nodes.
            this.pack.carry(Duration::ZERO)?;
            if wrote { this.must_be_here() } else { Ok(()) }
        })
    }

    pub(super) fn commit_as_close(&self, wrote: bool) -> Result<()> {
        self.on(File::commit, |this| {
            this.pack.commit()?;
            if wrote { this.must_be_here() } else { Ok(()) }
        })
    }

    pub(super) fn sync(&self, wrote: bool) -> Result<()> {
        self.on(File::sync, |this| {
            this.pack.sync()?;
            this.pack.refresh()?;
            if wrote { this.must_be_here() } else { Ok(()) }
        })
    }

    pub(super) fn refresh(&self) -> Result<()> {
        self.on(File::refresh, |this| this.pack.refresh())
    }

    pub(super) fn stat(&self) -> Result<Stat> {
        let of = self.pack.container().identity;
        self.on(File::stat, |this| Ok(this.pack_stat()?.stat(of)))
    }

    /// Where it is it has no holes that are known.
    pub(super) fn next_data(&self, from: u64) -> Result<Option<u64>> {
        let own = |file: &File| file.next_data(from);
        self.on(own, |this| Ok((from < this.pack_stat()?.size).then_some(from)))
    }

    pub(super) fn next_hole(&self, from: u64) -> Result<u64> {
        let own = |file: &File| file.next_hole(from);
        self.on(own, |this| Ok(this.pack_stat()?.size.max(from)))
    }

    pub(super) fn set_times(&self, atime: Option<Time>, mtime: Option<Time>) -> Result<()> {
        let when = |time: Time| When { sec: time.sec, nsec: time.nsec };
        let (set_atime, set_mtime) = (atime.map(when), mtime.map(when));
        let set = Attributes { atime: set_atime, mtime: set_mtime, ..Attributes::default() };
        let own = |file: &File| file.set_times(atime, mtime);
        self.change(own, |this| this.pack.set_attributes(&this.file, set))
    }

    pub(super) fn chmod(&self, mode: u32) -> Result<()> {
        let set = Attributes { mode: Some(mode & 0o7777), ..Attributes::default() };
        self.change(|file| file.chmod(mode), |this| this.pack.set_attributes(&this.file, set))
    }

    pub(super) fn chown(&self, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        let set = Attributes { uid, gid, ..Attributes::default() };
        self.change(|file| file.chown(uid, gid), |this| this.pack.set_attributes(&this.file, set))
    }

    /// Closes it: what was `wrote` is committed.
    pub(super) fn end(mut self, wrote: bool) -> Result<()> {
        match self.own.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            Some(file) => file.close(),
            None if wrote => {
                match self.pack.config().sync_on_close {
                    true => self.pack.sync()?,
                    false => self.pack.commit()?,
                }
                self.must_be_here()
            }
            None => Ok(()),
        }
    }
}

impl Drop for Packed {
    fn drop(&mut self) {
        self.pack.close_handle();
    }
}
