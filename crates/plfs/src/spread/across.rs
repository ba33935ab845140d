//! Names across backends: a link at the place, and the slots that it leads to.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use plfs_format::spread::{self as format, Moved, Target};

use super::turn::Turn;
use super::{Base, Dir, Found, How, Names, Spot, Via, is_full, is_gone, new_uuid};
use crate::error::{At, Result};
use crate::store::{Errno, Kind, Links};

impl Names<'_> {
    /// Removes what a name was before it was what is in `slot`.
    pub(super) fn drop_aside(
        &self,
        dir: &Dir,
        base: &Base,
        aside: &Path,
        slot: &Path,
    ) -> Result<()> {
        match self.store.rmdir(aside) {
            Ok(()) => return Ok(()),
            Err(errno) if is_gone(errno) => return Ok(()),
            Err(errno) if is_full(errno) => {}
            Err(errno) => return Err(errno).at("remove", aside),
        }
        // After a power cut the name must be one or the other.
        match self.store.sync_dir(slot) {
            // What was in it has gone on, and whoever did that has done this before.
            Err(errno) if is_gone(errno) => return Ok(()),
            other => other.at("sync", slot)?,
        }
        let old = Spot { path: aside.join(format::ENTRY), base: base.clone() };
        let found = self.look(dir, old.clone(), true)?;
        if found.stat.is_some() && !found.is_dir() {
            self.remove_gone(found.path())?;
        }
        self.tidy(dir, &found.via)?;
        match self.store.rmdir(aside) {
            Err(errno) if !is_gone(errno) && !is_full(errno) => Err(errno).at("remove", aside),
            _ => Ok(()),
        }
    }

    pub(super) fn remove_gone(&self, path: &Path) -> Result<()> {
        match (self.remove)(path) {
            Err(error) if is_gone(error.errno()) => Ok(()),
            other => other,
        }
    }

    /// Takes away the slots that led to what is gone, and the links to them.
    pub(super) fn tidy(&self, dir: &Dir, via: &[Via]) -> Result<()> {
        for Via { at, moved } in via.iter().rev() {
            let slot = self.base(dir, moved.backend, false)?.at(&moved.slot);
            let slots = [(slot, moved.backend), (at.base.at(&moved.aside), at.base.backend)];
            for (slot, backend) in slots {
                match self.store.rmdir(&slot) {
                    Ok(()) => {}
                    // And not away with its backend: then the link is all there is of the name.
                    Err(errno) if is_gone(errno) => drop(self.base(dir, backend, true)?),
                    // Somebody uses it again.
                    Err(errno) if is_full(errno) => return Ok(()),
                    Err(errno) => return Err(errno).at("remove", &slot),
                }
            }
            self.retire(dir, at, moved)?;
        }
        Ok(())
    }

    /// Removes a link both of whose slots are gone.
    ///
    /// Others may have done so, and something else may have the name by now: of those who do this,
    /// or put something in the place of a link, one at a time does it. A rename that has looked at
    /// the name before there was a link does not wait, so what is taken away is looked at.
    pub(super) fn retire(&self, dir: &Dir, at: &Spot, moved: &Moved) -> Result<()> {
        let _turn = match at.path.parent().is_some_and(|shadow| dir.has_shadow(shadow)) {
            true => self.turn(&at.base.path, format::LINKS_LOCK)?,
            // In a slot nothing else comes.
            false => None,
        };
        if !self.leads(at, moved) {
            return Ok(());
        }
        let out = at.base.at(&new_uuid());
        match self.store.rename(&at.path, &out) {
            Err(errno) if is_gone(errno) => return Ok(()),
            other => other.at("rename", &at.path)?,
        }
        if self.leads(&Spot { path: out.clone(), base: at.base.clone() }, moved) {
            return match self.store.unlink(&out) {
                // Who drains the backend took it for one that a death has left.
                Err(errno) if is_gone(errno) => Ok(()),
                other => other.at("remove", &out),
            };
        }
        match self.store.stat(&out, Links::Stay).at("stat", &out)?.kind {
            Kind::Dir => self.store.rename(&out, &at.path).at("rename", &out),
            _ => {
                self.store.link(&out, &at.path).at("put back", &out)?;
                self.store.unlink(&out).at("remove", &out)
            }
        }
    }

    /// The turn to put something at a place where a link is, if that is there still; `None`: it is
    /// not. Where no link is nobody waits.
    pub(super) fn turn_at(&self, place: &Spot, target: &Found) -> Result<Option<Option<Turn>>> {
        let Some(Via { at, moved }) = target.via.first() else { return Ok(Some(None)) };
        let turn = self.turn(&place.base.path, format::LINKS_LOCK)?;
        Ok(self.leads(at, moved).then_some(turn))
    }

    /// Gives what is at `source` the name whose place, on another backend, is `place`. False:
    /// others were there, to be looked at again.
    ///
    /// The name is a link to a slot that is empty, and so what it was before, until one rename (or
    /// link) puts the source into the slot. Who cannot wait for that takes the slot away.
    pub(super) fn move_across(
        &self,
        dir: &Dir,
        source: &Found,
        place: &Spot,
        target: &Found,
        how: How,
    ) -> Result<bool> {
        let store = self.store;
        let mut like = store.stat(&dir.home, Links::Follow).at("stat", &dir.home)?;
        let is_sticky = like.mode & 0o1000 != 0;
        if is_sticky {
            // Who may rename or remove it there is its owner, also if root has done this.
            match store.stat(source.path(), Links::Stay) {
                Err(errno) if is_gone(errno) => return Ok(false),
                other => {
                    let of = other.at("stat", source.path())?;
                    (like.uid, like.gid) = (of.uid, of.gid);
                }
            }
        }
        let (from, to) = (&source.spot.base, &place.base);
        let moved = Moved { backend: from.backend, slot: new_uuid(), aside: new_uuid() };
        let text = PathBuf::from(OsString::from_vec(Target::Moved(moved).encode()));
        let slot = self.make(from, &moved.slot, &like)?;
        let aside = self.make(to, &moved.aside, &like)?;
        let (entry, old) = (slot.join(format::ENTRY), aside.join(format::ENTRY));
        let via = [Via { at: place.clone(), moved }];
        let led = (|| {
            if target.stat.is_none() && !is_sticky {
                return store.symlink(&text, &place.path).at("create", &place.path);
            }
            if target.stat.is_some() {
                store.link(&place.path, &old).at("link", &place.path)?;
                // A power cut must not keep the link below and lose what it leads to.
                store.sync_dir(&aside).at("sync", &aside)?;
                store.sync_dir(&to.path).at("sync", &to.path)?;
            }
            let tmp = to.at(&new_uuid());
            store.symlink(&text, &tmp).at("create", &tmp)?;
            let put = self.give(&tmp, &like).and_then(|()| match target.stat {
                None => store.link(&tmp, &place.path).at("create", &place.path),
                Some(_) => match self.turn_at(place, target)? {
                    Some(_turn) => store.rename(&tmp, &place.path).at("rename", &tmp),
                    None => Err(Errno::EXIST).at("rename", &tmp),
                },
            });
            if put.is_err() || target.stat.is_none() {
                let _ = store.unlink(&tmp);
            }
            put
        })();
        if let Err(error) = led {
            let _ = store.unlink(&old);
            let _ = (store.rmdir(&slot), store.rmdir(&aside));
            return match error.errno() {
                Errno::EXIST => Ok(false),
                _ => Err(error),
            };
        }
        // Before the source loses its name the new one must be there, whatever happens.
        for dir in [Some(to.path.as_path()), Some(&from.path), place.path.parent()] {
            let Some(dir) = dir else { continue };
            store.sync_dir(dir).at("sync", dir)?;
        }
        let put = match how {
            How::Rename => store.rename(source.path(), &entry),
            How::Link => store.link(source.path(), &entry),
        };
        if let Err(errno) = put {
            let _ = store.rmdir(&slot);
            if target.stat.is_none() {
                self.tidy(dir, &via)?;
            }
            return match is_gone(errno) {
                // The source, or the slot.
                true => Ok(false),
                false => Err(errno).at("rename", source.path()),
            };
        }
        for dir in [Some(slot.as_path()), source.path().parent()] {
            let Some(dir) = dir else { continue };
            match store.sync_dir(dir) {
                // It was renamed again.
                Err(errno) if !is_gone(errno) => return Err(errno).at("sync", dir),
                _ => {}
            }
        }
        self.drop_aside(dir, to, &aside, &slot)?;
        Ok(true)
    }
}
