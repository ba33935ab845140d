//! A directory whose files move into its pack or out of it, while programs use it: `plfs pack` and
//! `plfs unpack`.
//!
//! A bit in the mode of the pack's name says so ([`pack::CHANGING`]), which each call asks for
//! anyway. Then an ordinary file comes before one of the pack with the same name, so that one link
//! or unlink moves a file; and who makes a name go, or opens a file for writing, waits for who
//! moves some at that moment. While files move out nobody writes the pack
//! ([`Pack::is_leaving`](crate::pack::Pack)): what is to be written moves out before.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use plfs_format::pack;

use super::Plfs;
use super::small::{Packs, parts, temporary};
use crate::error::{At, Error, Result};
use crate::file::Packed;
use crate::pack::{Pack, PackOpen, PackStat};
use crate::packs::{OpenPack, Wanted};
use crate::spread::Turn;
use crate::store::{Errno, Kind, Links, Open};
use crate::sync::Arc;

impl Plfs {
    /// The pack of the directory of `path`, if its files move at this time.
    /// Of one that was found a moment ago they do not: they wait longer before they begin.
    pub(super) fn changing<'a>(&self, path: &'a Path, wanted: Wanted) -> Result<Option<Packs<'a>>> {
        let Some((dir, name)) = parts(path) else { return Ok(None) };
        Ok(self.find_pack(dir, wanted)?.filter(|pack| pack.is_changing()).map(|pack| (pack, name)))
    }

    /// Whether the files of the directory of `path` move into its pack, or out of it, at this time:
    /// then [`Plfs::unlink`] and [`Plfs::rename`] are for its ordinary files as well.
    pub fn is_changing(&self, path: &Path) -> Result<bool> {
        Ok(self.changing(path, Wanted::Know)?.is_some())
    }

    /// What the pack has by the name `path`, if that is what the name shows.
    pub fn shown_in(&self, pack: &OpenPack, path: &Path) -> Result<Option<PackStat>> {
        let Some((_, name)) = parts(path) else { return Ok(None) };
        let shown = || {
            if pack.is_changing() {
                match self.process.store.stat(path, Links::Stay) {
                    Ok(_) => return Ok(None),
                    // It may have moved a moment ago, on another node.
                    Err(Errno::NOENT) => pack.refresh()?,
                    Err(errno) => return Err(errno).at("stat", path),
                }
            }
            stat_in(pack, name)
        };
        match shown() {
            Err(Error::PackGone { .. }) => Ok(None),
            other => other,
        }
    }

    /// Until this is dropped nobody moves files of the directory into its pack, or out of it.
    /// `None`: it has no pack, or there are no locks.
    pub(super) fn turn(&self, dir: &Path) -> Result<Option<Turn>> {
        let (store, path) = (self.process.store.as_ref(), dir.join(pack::NAME));
        loop {
            let file = match store.open(&path, Open::READ_WRITE.briefly()) {
                Err(Errno::NOENT) => return Ok(None),
                // Who may not write the pack makes no name go.
                Err(Errno::ACCESS | Errno::PERM | Errno::ROFS) => return Ok(None),
                other => other.at("open", &path)?,
            };
            let Some(turn) = Turn::wait_for(file.clone(), &path)? else { return Ok(None) };
            let of = file.stat().at("stat", &path)?;
            match store.stat(&path, Links::Stay) {
                Ok(now) if (now.dev, now.ino) == (of.dev, of.ino) => return Ok(Some(turn)),
                _ => {}
            }
        }
    }

    /// Somebody is about to write, or to change, the file at `path`: he waits for who moves it, and
    /// moves it out himself if no file of the pack is written any more.
    pub(super) fn before_write(&self, path: &Path) -> Result<()> {
        let Some((dir, _)) = parts(path) else { return Ok(()) };
        let _turn = self.turn(dir)?;
        if let Some((pack, name)) = self.changing(path, Wanted::Change(None))?
            && pack.is_leaving()?
            && let Some(stat) = self.shown_in(&pack, path)?
        {
            self.bring_out_one(&pack, name, &stat, path)?;
        }
        Ok(())
    }

    /// For who has his turn.
    fn bring_out_one(
        &self,
        pack: &Arc<OpenPack>,
        name: &[u8],
        stat: &PackStat,
        path: &Path,
    ) -> Result<()> {
        pack.changes();
        let (store, dir) = (&self.process.store, pack.dir());
        let tmp = temporary(&dir);
        let file = pack.open_file(name, PackOpen::default())?;
        let made = self.write_out(&Packed::new(pack.clone(), file), stat, &tmp, path);
        let _ = store.unlink(&tmp);
        made?;
        store.sync_dir(&dir).at("sync", &dir)?;
        pack.unlink_if(name, stat).map(drop)
    }

    /// Takes a name out of the pack, whatever has it there.
    pub(super) fn take_out_of(&self, pack: &Arc<OpenPack>, name: &[u8]) -> Result<bool> {
        pack.refresh()?;
        if stat_in(pack, name)?.is_none() {
            return Ok(false);
        }
        pack.changes();
        take_out(pack, name).map(|()| true)
    }

    /// [`Plfs::unlink`] in a directory whose files move; `None` elsewhere.
    pub(super) fn unlink_changing(&self, path: &Path) -> Result<Option<()>> {
        let Some((pack, _)) = self.changing(path, Wanted::Know)? else { return Ok(None) };
        let _turn = self.turn(&pack.dir())?;
        let Some((pack, name)) = self.changing(path, Wanted::Change(None))? else {
            return Ok(None);
        };
        let ordinary = self.process.store.stat(path, Links::Stay);
        if ordinary.is_ok_and(|stat| stat.kind == Kind::Dir) {
            return Err(Errno::ISDIR).at("remove", path);
        }
        // Gone from the pack first: nothing comes to light that was hidden.
        let was_packed = self.take_out_of(&pack, name)?;
        match ordinary {
            Err(Errno::NOENT) if was_packed => Ok(Some(())),
            Err(errno) => Err(errno).at("remove", path),
            Ok(_) => {
                let container = self.container_to_remove(path);
                self.process.store.unlink(path).at("remove", path)?;
                self.drop_container(container).map(Some)
            }
        }
    }

    /// [`Plfs::rename`] where the files of one of the directories move; `None` elsewhere.
    pub(super) fn rename_changing(&self, from: &Path, to: &Path) -> Result<Option<()>> {
        let changing = |wanted| Ok((self.changing(from, wanted)?, self.changing(to, wanted)?));
        let (source, target) = changing(Wanted::Know)?;
        if source.is_none() && target.is_none() {
            return Ok(None);
        }
        let dir_of = |of: &Option<Packs<'_>>| of.as_ref().map(|(pack, _)| pack.dir());
        let mut dirs: Vec<_> = [dir_of(&source), dir_of(&target)].into_iter().flatten().collect();
        // In one order, so that two do not wait for each other.
        dirs.sort();
        dirs.dedup();
        let _turns = dirs.iter().map(|dir| self.turn(dir)).collect::<Result<Vec<_>>>()?;
        let (source, target) = changing(Wanted::Change(None))?;
        if source.is_none() && target.is_none() {
            return Ok(None);
        }
        let store = self.process.store.as_ref();
        if let Some((pack, name)) = &source {
            match self.shown_in(pack, from)? {
                Some(stat) if pack.is_leaving()? => self.bring_out_one(pack, name, &stat, from)?,
                // As ever.
                Some(_) => return self.rename_packed(from, to),
                None => {}
            }
        }
        let moved = store.stat(from, Links::Stay).at("rename", from)?;
        if let Some((pack, _)) = &target
            && moved.kind == Kind::Dir
            && self.shown_in(pack, to)?.is_some()
        {
            return Err(Errno::NOTDIR).at("rename", to);
        }
        if let Some((pack, name)) = &source {
            // Hidden until now.
            self.take_out_of(pack, name)?;
        }
        if let Some((pack, name)) = &target
            && stat_in(pack, name)?.is_some()
        {
            self.make_durable(from, true)?;
        }
        self.rename_with(from, to, || store.rename(from, to).at("rename", from))?;
        if let Some((pack, name)) = &target {
            store.sync_dir(to.parent().unwrap_or(to)).at("sync", to)?;
            self.take_out_of(pack, name)?;
        }
        Ok(Some(()))
    }
}

/// Takes a name out of a pack, also if others change it meanwhile.
pub(super) fn take_out(pack: &Pack, name: &[u8]) -> Result<()> {
    while let Some(stat) = stat_in(pack, name)? {
        pack.unlink_if(name, &stat)?;
    }
    Ok(())
}

pub(super) fn stat_in(pack: &Pack, name: &[u8]) -> Result<Option<PackStat>> {
    match pack.stat(name) {
        Ok(stat) => Ok(Some(stat)),
        Err(error) if error.errno() == Errno::NOENT => Ok(None),
        Err(error) => Err(error),
    }
}

/// The path of a name in the directory of a pack.
pub(super) fn path_in(dir: &Path, name: &[u8]) -> std::path::PathBuf {
    dir.join(OsStr::from_bytes(name))
}
