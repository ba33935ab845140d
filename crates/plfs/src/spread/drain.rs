//! Names and their files move away from a backend that is drained, under those who use them
//! (docs/decisions/0022).

use std::collections::{BTreeMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use plfs_format::attribute::{self, Decision};
use plfs_format::name;
use plfs_format::spread::{self as format, Map, Move, Stage, Target};

use super::map::exchange;
use super::turn::Turn;
use super::{Base, Dir, Found, How, Names, Spot, TRIES, is_full, is_gone, new_uuid};
use crate::error::{At, Error, Result};
use crate::store::machine::boot_time_ns;
use crate::store::{self, Errno, Kind, Links, Open, Stat, StoreFile, Time};
use crate::sync::{Arc, thread};

/// How long who makes a name waits for the next map before he puts it himself: the drain has died.
/// It stands for [`SETTLES`](crate::SETTLES) otherwise.
const CLOSED_NS: u64 = 3_000_000_000;
/// How often he looks.
const CLOSED_LOOK: Duration = Duration::from_millis(2);
/// A file that was changed so short a time ago may be changed again without a sign of that.
const TICK: Duration = Duration::from_millis(20);
/// How often a name is moved that others change meanwhile.
const MOVES: usize = 10;
/// Bytes that are copied at once. 4 MiB.
const COPY_BYTES: usize = 4 << 20;

/// What is drained, and how.
pub(crate) struct Drain<'a> {
    /// The ids of the backend.
    pub(crate) ids: &'a [u16],
    /// Backends that get the names; none: those that take new ones.
    pub(crate) to: &'a [u16],
    /// Whether somebody may have the file open but us.
    pub(crate) is_in_use: &'a dyn Fn(&dyn StoreFile, &Stat, &Path) -> bool,
    /// Whether the file has a container.
    pub(crate) is_shared: &'a dyn Fn(&Path, &Stat) -> Result<bool>,
}

/// What became of a name.
pub(crate) enum Moved {
    /// It is not on the backend.
    Elsewhere,
    /// It was, and so many bytes of it were copied.
    Away(u64),
    /// It is, and has so many bytes there.
    Stays(u64, Error),
}

impl Drain<'_> {
    fn is_on(&self, base: &Base) -> bool {
        self.ids.contains(&base.backend)
    }
}

impl Names<'_> {
    /// What a name is, wherever it may be as long as a backend of the directory is drained.
    pub(super) fn look_name(&self, dir: &Dir, name: &OsStr, settle: bool) -> Result<Found> {
        let place = dir.place(name);
        if !dir.is_drained() {
            return self.look(dir, place, settle);
        }
        for _ in 0..TRIES {
            let here = self.look(dir, place.clone(), settle)?;
            if here.stat.is_some() {
                if settle && !self.drop_hidden(dir, name)? {
                    continue;
                }
                return Ok(here);
            }
            // A rename to this name that is not done is begun anew.
            if settle {
                self.tidy(dir, &here.via)?;
            }
            let old = dir.old_place(name);
            if let Some(old) = &old {
                let found = self.look(dir, old.clone(), settle)?;
                if found.stat.is_some() {
                    // Who put it back has died before he was done: both are one file.
                    if settle && let Some((aside, _)) = self.find_aside(dir, name)? {
                        self.settle_aside(dir, name, &aside)?;
                        continue;
                    }
                    return Ok(Found { is_old: true, ..found });
                }
                self.must_have_shadow(dir, old)?;
                if settle {
                    self.tidy(dir, &found.via)?;
                }
            }
            if let Some((aside, stat)) = self.find_aside(dir, name)? {
                match self.settle_aside(dir, name, &aside) {
                    Ok(()) => continue,
                    // Who may not change it reads it where it is.
                    Err(error)
                        if !settle
                            && matches!(
                                error.errno(),
                                Errno::ACCESS | Errno::PERM | Errno::ROFS
                            ) =>
                    {
                        return Ok(self.in_aside(aside, stat));
                    }
                    Err(error) => return Err(error),
                }
            }
            // It may have gone from one to the other between the looks.
            let is_back = match &old {
                Some(old) => self.look(dir, old.clone(), false)?.stat.is_some(),
                None => false,
            };
            if is_back || self.look(dir, place.clone(), false)?.stat.is_some() {
                continue;
            }
            return Ok(here);
        }
        Err(Errno::BUSY).at("look up", &place.path)
    }

    /// Nothing was found in a shadow or aside: an error if that is not there because its backend is
    /// not.
    fn must_have_shadow(&self, dir: &Dir, spot: &Spot) -> Result<()> {
        let shadow = spot.path.parent().unwrap_or(&dir.home);
        match self.store.stat(shadow, Links::Stay) {
            Ok(_) => Ok(()),
            Err(errno) if is_gone(errno) => self.must_be_there(dir, &spot.base),
            Err(errno) => Err(errno).at("stat", shadow),
        }
    }

    fn find_aside(&self, dir: &Dir, name: &OsStr) -> Result<Option<(Spot, Stat)>> {
        for aside in dir.aside_places(name) {
            match self.store.stat(&aside.path, Links::Stay) {
                Ok(stat) => return Ok(Some((aside, stat))),
                Err(errno) if is_gone(errno) => self.must_have_shadow(dir, &aside)?,
                Err(errno) => return Err(errno).at("stat", &aside.path),
            }
        }
        Ok(None)
    }

    fn in_aside(&self, spot: Spot, stat: Stat) -> Found {
        let text = self.store.readlink(&spot.path).ok();
        let link = text.map(|text| match Target::decode(&text.into_os_string().into_vec()) {
            Target::Text(text) => text,
            Target::Moved(_) => Vec::new(),
        });
        Found { spot, stat: Some(stat), link, via: Vec::new(), is_old: true }
    }

    /// Nobody else moves files through asides of the root meanwhile.
    fn drain_turn(&self, dir: &Dir) -> Result<Option<Turn>> {
        let base = dir.root.join(name::ROOT_DIR).join(format::DIR);
        self.turn(&base, format::DRAIN_LOCK)
    }

    /// Who drains has died with a name in an aside, or is about to be done with it.
    fn settle_aside(&self, dir: &Dir, name: &OsStr, aside: &Spot) -> Result<()> {
        let _turn = self.drain_turn(dir)?;
        match self.store.stat(&aside.path, Links::Stay) {
            Err(errno) if is_gone(errno) => Ok(()),
            Err(errno) => Err(errno).at("stat", &aside.path),
            Ok(_) => self.put_back(dir, name, aside),
        }
    }

    /// For who has the turn: what is in an aside goes where it was, unless its name has got the
    /// copy, or something newer.
    fn put_back(&self, dir: &Dir, name: &OsStr, aside: &Spot) -> Result<()> {
        let (store, place) = (self.store, dir.place(name));
        for _ in 0..TRIES {
            let here = self.look(dir, place.clone(), true)?;
            if here.stat.is_some() {
                self.sync_shadow(dir, &place)?;
                return self.remove_gone(&aside.path);
            }
            self.tidy(dir, &here.via)?;
            if let Some(old) = dir.old_place(name) {
                let found = self.look(dir, old.clone(), true)?;
                let held = store.stat(&aside.path, Links::Stay).at("stat", &aside.path)?;
                match found.stat {
                    // Who did this before has died.
                    Some(stat) if (stat.dev, stat.ino) == (held.dev, held.ino) => {
                        self.sync_shadow(dir, &found.spot)?;
                        return store.unlink(&aside.path).at("remove", &aside.path);
                    }
                    // Never over another one.
                    Some(_) => return Err(Errno::EXIST).at("put back", &aside.path),
                    None => self.tidy(dir, &found.via)?,
                }
                match store.link(&aside.path, &old.path) {
                    Ok(()) => {
                        // A power cut must not take both.
                        self.sync_shadow(dir, &old)?;
                        return store.unlink(&aside.path).at("remove", &aside.path);
                    }
                    Err(Errno::EXIST) => continue,
                    // The shadow had no names left, and is gone.
                    Err(errno) if is_gone(errno) => {}
                    Err(errno) => return Err(errno).at("put back", &aside.path),
                }
            }
            let source = Found {
                spot: aside.clone(),
                stat: None,
                link: None,
                via: Vec::new(),
                is_old: true,
            };
            let is_done = match aside.base == place.base {
                true => match store.link(&aside.path, &place.path) {
                    Ok(()) => {
                        self.sync_shadow(dir, &place)?;
                        store.unlink(&aside.path).at("remove", &aside.path)?;
                        true
                    }
                    Err(Errno::EXIST) => false,
                    Err(errno) => return Err(errno).at("put back", &aside.path),
                },
                false => self.move_across(dir, &source, &place, &here.hidden(), How::Rename)?,
            };
            if is_done {
                return Ok(());
            }
        }
        Err(Errno::BUSY).at("put back", &aside.path)
    }

    /// A name that has something else at its place comes to light nowhere else. False: it is not at
    /// its place any more.
    pub(super) fn drop_hidden(&self, dir: &Dir, name: &OsStr) -> Result<bool> {
        let places = || dir.old_place(name).into_iter().chain(dir.aside_places(name));
        let mut is_hidden = false;
        for spot in places() {
            match self.store.stat(&spot.path, Links::Stay) {
                Ok(_) => is_hidden = true,
                Err(errno) if is_gone(errno) => {}
                Err(errno) => return Err(errno).at("stat", &spot.path),
            }
        }
        if !is_hidden {
            return Ok(true);
        }
        let _turn = self.drain_turn(dir)?;
        let place = dir.place(name);
        if self.look(dir, place.clone(), false)?.stat.is_none() {
            return Ok(false);
        }
        // A power cut must not take both.
        self.sync_shadow(dir, &place)?;
        for spot in places() {
            let found = self.look(dir, spot, true)?;
            if found.stat.is_some() && !found.is_dir() {
                self.remove_gone(found.path())?;
            }
            self.tidy(dir, &found.via)?;
        }
        Ok(true)
    }

    fn sync_shadow(&self, dir: &Dir, spot: &Spot) -> Result<()> {
        let shadow = spot.path.parent().unwrap_or(&dir.home);
        self.store.sync_dir(shadow).at("sync", shadow)
    }

    /// Waits until names are made at a place again.
    pub(super) fn wait_for_map(&self, dir: &Dir) -> Result<()> {
        let begun = boot_time_ns();
        loop {
            thread::sleep(CLOSED_LOOK);
            self.cache.forget();
            match self.last_map(&dir.home) {
                Ok(number) if number == dir.number => {}
                Err(error) if !is_gone(error.errno()) => return Err(error),
                _ => return Ok(()),
            }
            if boot_time_ns().saturating_sub(begun) > CLOSED_NS {
                return self.open_new_shadows(dir).map(drop);
            }
        }
    }

    /// Puts the map by which names are made in the new shadows, once all know that they are not to
    /// be made in the old ones. False: others have put one.
    pub(crate) fn open_new_shadows(&self, dir: &Dir) -> Result<bool> {
        let (number, mut map) = self.read_map(&dir.home)?;
        let Map { shadows, moves, .. } = &mut map;
        let mut any = false;
        for of in moves.iter_mut().filter(|of| of.stage == Stage::To) {
            exchange(shadows, of);
            of.stage = Stage::From;
            any = true;
        }
        self.cache.forget();
        Ok(!any || self.publish(dir, number, &map)?)
    }

    /// The directory and all below it, each with the path that programs know it by, and whether
    /// anything of it is on the backend.
    pub(crate) fn all_below(
        &self,
        top: &Path,
        dir: Arc<Dir>,
        drain: &Drain<'_>,
    ) -> Result<Vec<(PathBuf, Arc<Dir>, bool)>> {
        let (mut todo, mut all) = (vec![(top.to_path_buf(), dir)], Vec::new());
        let mut seen = HashSet::new();
        while let Some((shown, dir)) = todo.pop() {
            if !seen.insert(dir.id) {
                continue;
            }
            let mut is_there = dir.shadows().any(|(base, _)| drain.is_on(base));
            for (name, kind) in self.names_of(&dir)? {
                if matches!(kind, Some(Kind::File | Kind::Other)) {
                    continue;
                }
                let found = self.look_name(&dir, &name, false)?;
                is_there |= found.stat.is_some() && drain.is_on(&found.spot.base);
                if found.is_dir() {
                    match self.load_in(&dir, found.spot.path) {
                        Ok(below) => todo.push((shown.join(&name), below)),
                        Err(error) if is_gone(error.errno()) => {}
                        Err(error) => return Err(error),
                    }
                }
            }
            all.push((shown, dir, is_there));
        }
        Ok(all)
    }

    fn names_of(&self, dir: &Dir) -> Result<BTreeMap<OsString, Option<Kind>>> {
        let mut names = BTreeMap::new();
        for (base, shadow) in dir.shadows() {
            match self.store.list(&shadow) {
                Err(errno) if is_gone(errno) => self.must_be_there(dir, base)?,
                other => {
                    let entries = other.at("list", &shadow)?;
                    names.extend(entries.into_iter().map(|entry| (entry.name, entry.kind)));
                }
            }
        }
        Ok(names)
    }

    /// Puts the map that says where the names will go, and where a file is while it moves. Whether
    /// there may be somebody who does not know it yet.
    pub(crate) fn begin_to_drain(&self, dir: &Dir, drain: &Drain<'_>) -> Result<bool> {
        for _ in 0..TRIES {
            let (number, mut map) = self.read_map(&dir.home)?;
            let mut made = Vec::new();
            let wanted = self.plan(dir, drain, &mut map, &mut made);
            let is_put = match &wanted {
                Ok((_, true)) if number.is_some() => self.publish(dir, number, &map),
                _ => Ok(true),
            };
            if !matches!(is_put, Ok(true)) || wanted.is_err() {
                for path in &made {
                    let _ = self.store.rmdir(path);
                }
            }
            self.cache.forget();
            let (waits, _) = wanted?;
            if is_put? {
                return Ok(waits);
            }
        }
        Err(Errno::BUSY).at("change the map of", &dir.home)
    }

    /// Adds to a map what moves from the backend. Whether all have to know that before it does, and
    /// whether it is another map.
    fn plan(
        &self,
        dir: &Dir,
        drain: &Drain<'_>,
        map: &mut Map,
        made: &mut Vec<PathBuf>,
    ) -> Result<(bool, bool)> {
        let like = self.store.stat(&dir.home, Links::Follow).at("stat", &dir.home)?;
        let (mut waits, mut is_new) = (false, false);
        let mut make = |backend: u16| -> Result<_> {
            let (base, shadow) = (self.base(dir, backend, true)?, new_uuid());
            made.push(self.make(&base, &shadow, &like)?);
            self.sync_above(&base)?;
            Ok((backend, shadow))
        };
        for index in 0..map.shadows.len() {
            let from = map.shadows[index].0;
            match map.moves.iter().find(|of| of.index == index) {
                _ if !drain.ids.contains(&from) => {}
                Some(of) => waits |= of.stage == Stage::To,
                None => {
                    let to = match drain.to {
                        [] => self.one_that_stays(dir, from, index)?,
                        to => to[index % to.len()],
                    };
                    if drain.ids.contains(&to) {
                        return Err(Errno::BUSY).at("drain (it takes new names)", &dir.home);
                    }
                    let (backend, shadow) = make(to)?;
                    map.moves.push(Move { index, stage: Stage::To, backend, shadow });
                    (waits, is_new) = (true, true);
                }
            }
        }
        map.moves.sort_by_key(|of| of.index);
        for id in drain.ids {
            let base = self.base(dir, *id, true)?;
            let is_there = |(backend, aside): &(u16, _)| {
                *backend != *id || self.store.stat(&base.at(aside), Links::Stay).is_ok()
            };
            let before = map.asides.len();
            map.asides.retain(is_there);
            is_new |= map.asides.len() != before;
            if !map.asides.iter().any(|(backend, _)| backend == id) {
                map.asides.push(make(*id)?);
                is_new = true;
            }
        }
        // An aside alone is said by one map only.
        let is_known = map.moves.iter().any(|of| drain.ids.contains(&of.backend));
        Ok((waits || is_new || !is_known, is_new))
    }

    /// The directory as it is now.
    pub(crate) fn again(&self, dir: &Dir) -> Result<Arc<Dir>> {
        let Dir { home, above, root, dev, backends, .. } = dir;
        self.load(home.clone(), above.clone(), root, *dev, backends.clone())
    }

    /// The names of a directory, and how many bytes each has on the backend.
    pub(crate) fn names_on(&self, dir: &Dir, drain: &Drain<'_>) -> Result<Vec<(OsString, u64)>> {
        let mut names = Vec::new();
        for (name, _) in self.names_of(dir)? {
            let found = self.look_name(dir, &name, false)?;
            let Some(stat) = found.stat else { continue };
            match drain.is_on(&found.spot.base) {
                true if stat.kind == Kind::File => names.push((name, stat.len)),
                true => names.push((name, 0)),
                false if found.via.iter().any(|via| drain.is_on(&via.at.base)) => {
                    names.push((name, 0));
                }
                false => {}
            }
        }
        Ok(names)
    }

    /// Moves a name from the backend. `progress` is told the bytes that were copied; an error of
    /// its own ends the copy.
    pub(crate) fn drain_name(
        &self,
        dir: &Dir,
        name: &OsStr,
        drain: &Drain<'_>,
        progress: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<Moved> {
        for _ in 0..MOVES {
            let found = self.look_name(dir, name, true)?;
            let Some(stat) = found.stat else { return Ok(Moved::Elsewhere) };
            let stays = |errno, why| {
                let error = Error::refused(errno, "move", found.path(), why);
                Ok(Moved::Stays(if stat.kind == Kind::File { stat.len } else { 0 }, error))
            };
            if drain.is_on(&dir.place(name).base) {
                return stays(
                    Errno::BUSY,
                    "names still come to this backend from another one: drain that first",
                );
            }
            if !drain.is_on(&found.spot.base) {
                let is_old = |old: Spot| found.is_old && drain.is_on(&old.base);
                if !dir.old_place(name).is_some_and(is_old) {
                    return Ok(Moved::Elsewhere);
                }
                match self.relink(dir, name, &found)? {
                    true => return Ok(Moved::Away(0)),
                    false => continue,
                }
            }
            let moved = match (stat.kind, &found.link) {
                (Kind::Symlink, Some(text)) => {
                    let text = OsString::from_vec(Target::Text(text.clone()).encode());
                    self.drain_link(dir, name, &found, &stat, Path::new(&text))?
                }
                (Kind::File, _) if (drain.is_shared)(found.path(), &stat)? => {
                    return stays(
                        Errno::BUSY,
                        "several processes have written it, so it is a container there: copy it to \
                         a new file (`plfs cp`), and remove it",
                    );
                }
                (Kind::File, _) if stat.nlink > 1 => {
                    return stays(Errno::BUSY, "it has several names: copy it, and remove them");
                }
                (Kind::File, _) => {
                    // Which a change of anything moves, and a program cannot set.
                    if Time::now().ns() - stat.ctime.ns() < TICK.as_nanos() as i128 {
                        thread::sleep(TICK);
                        let now = self.store.stat(found.path(), Links::Stay);
                        if !now.is_ok_and(|now| what(&now) == what(&stat)) {
                            continue;
                        }
                    }
                    self.drain_file(dir, name, &found, &stat, drain, progress)?
                }
                (Kind::Dir, _) => {
                    return stays(
                        Errno::BUSY,
                        "it is a directory in a flat one: copy it to a new one, and remove it",
                    );
                }
                _ => return stays(Errno::BUSY, "it is no file: make it anew, and remove it"),
            };
            match moved {
                Is::Moved(bytes) => return Ok(Moved::Away(bytes)),
                Is::InUse => return stays(Errno::BUSY, "it is open, or was written a moment ago"),
                Is::Another => {}
            }
        }
        Err(Errno::BUSY).at("move", &dir.place(name).path)
    }

    /// A name that a link in an old shadow leads to, on another backend, gets one at its place.
    /// False: others were there.
    fn relink(&self, dir: &Dir, name: &OsStr, found: &Found) -> Result<bool> {
        let (store, place) = (self.store, dir.place(name));
        let is_done = match found.spot.base == place.base {
            false => {
                let nothing = Found {
                    spot: place.clone(),
                    stat: None,
                    link: None,
                    via: Vec::new(),
                    is_old: false,
                };
                self.move_across(dir, found, &place, &nothing, How::Rename)?
            }
            // A directory has one name, and nothing is there that it could replace.
            true if found.is_dir() => match store.rename(found.path(), &place.path) {
                Err(errno) if is_gone(errno) || is_full(errno) || errno == Errno::NOTDIR => false,
                other => other.at("rename", found.path()).map(|()| true)?,
            },
            true => match store.link(found.path(), &place.path) {
                Err(errno) if is_gone(errno) || errno == Errno::EXIST => false,
                other => {
                    other.at("link", found.path())?;
                    self.sync_shadow(dir, &place)?;
                    // By another name of it: what it is stays.
                    match store.unlink(found.path()) {
                        Err(errno) if !is_gone(errno) => {
                            return Err(errno).at("remove", found.path());
                        }
                        _ => {}
                    }
                    // A slot that nothing leads to must not have it again after a power cut.
                    let slot = found.path().parent().unwrap_or(&dir.home);
                    match store.sync_dir(slot) {
                        Err(errno) if !is_gone(errno) => return Err(errno).at("sync", slot),
                        _ => true,
                    }
                }
            },
        };
        if is_done {
            self.sync_shadow(dir, &place)?;
            self.tidy(dir, &found.via)?;
        }
        Ok(is_done)
    }

    fn drain_link(
        &self,
        dir: &Dir,
        name: &OsStr,
        found: &Found,
        stat: &Stat,
        text: &Path,
    ) -> Result<Is> {
        let store = self.store;
        let copy = self.new_copy(&dir.place(name).base);
        store.symlink(text, &copy).at("make the link", &copy)?;
        let made = store.stat(&copy, Links::Stay).at("stat", &copy);
        let owned = made.and_then(|made| match (made.uid, made.gid) == (stat.uid, stat.gid) {
            true => Ok(()),
            false => store
                .chown(&copy, Some(stat.uid), Some(stat.gid), Links::Stay)
                .at("set the owner of", &copy),
        });
        let moved = owned.and_then(|()| {
            self.exchange(dir, name, found, &copy, &mut |now| {
                (now.dev, now.ino, now.uid, now.gid) == (stat.dev, stat.ino, stat.uid, stat.gid)
            })
        });
        let _ = store.unlink(&copy);
        moved
    }

    fn drain_file(
        &self,
        dir: &Dir,
        name: &OsStr,
        found: &Found,
        stat: &Stat,
        drain: &Drain<'_>,
        progress: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<Is> {
        let (store, path) = (self.store, found.path());
        let file = match store.open(path, Open::READ) {
            Err(errno) if is_gone(errno) => return Ok(Is::Another),
            other => other.at("open", path)?,
        };
        if what(&file.stat().at("stat", path)?) != what(stat) {
            return Ok(Is::Another);
        }
        // Somebody is about to make it a container.
        let decided = file.attribute(attribute::NAME).ok().flatten();
        let decided = decided.and_then(|text| Decision::decode(&text));
        let is_decided =
            matches!(decided, Some(Decision::Container { ino, .. }) if ino == stat.ino);
        if is_decided || (drain.is_in_use)(file.as_ref(), stat, path) {
            return Ok(Is::InUse);
        }
        let copy = self.new_copy(&dir.place(name).base);
        let made = store.open(&copy, Open::create_new(0o600)).at("create", &copy)?;
        let moved = (|| {
            // As long as it is locked nobody takes it for one of a drain that has died.
            if !made.try_gate().unwrap_or(true) {
                return Ok(Is::Another);
            }
            copy_file(file.as_ref(), made.as_ref(), (path, &copy), stat.len, progress)?;
            store
                .chown(&copy, Some(stat.uid), Some(stat.gid), Links::Stay)
                .at("set the owner of", &copy)?;
            store.chmod(&copy, stat.mode & 0o7777).at("set the mode of", &copy)?;
            store::copy_attributes(file.as_ref(), made.as_ref()).at("copy attributes to", &copy)?;
            store
                .set_times(&copy, Some(stat.atime), Some(stat.mtime))
                .at("set the times of", &copy)?;
            made.sync_all().at("sync", &copy)?;
            self.exchange(dir, name, found, &copy, &mut |now| {
                what(now) == what(stat) && !(drain.is_in_use)(file.as_ref(), stat, path)
            })
        })();
        let _ = store.unlink(&copy);
        made.leave_gate();
        Ok(match moved? {
            Is::Moved(_) => Is::Moved(stat.len),
            other => other,
        })
    }

    /// Gives a name to the copy of what has it, if that is still there, unchanged, and `is_same`.
    fn exchange(
        &self,
        dir: &Dir,
        name: &OsStr,
        found: &Found,
        copy: &Path,
        is_same: &mut dyn FnMut(&Stat) -> bool,
    ) -> Result<Is> {
        let (store, place) = (self.store, dir.place(name));
        let mut asides = dir.aside_places(name);
        let Some(aside) = asides.find(|aside| aside.base.backend == found.spot.base.backend) else {
            return Err(Errno::BUSY).at("find an aside for", found.path());
        };
        let _turn = self.drain_turn(dir)?;
        // What a drain left that died belongs there.
        if store.stat(&aside.path, Links::Stay).is_ok() {
            return Ok(Is::Another);
        }
        // The rename itself moves this time. What it says besides the others: attributes, or bytes
        // that were written by who has set the time of modification back.
        let now = store.stat(found.path(), Links::Stay);
        if !now.is_ok_and(|now| found.stat.is_some_and(|stat| stat.ctime == now.ctime)) {
            return Ok(Is::Another);
        }
        match store.rename(found.path(), &aside.path) {
            Err(errno) if is_gone(errno) => return Ok(Is::Another),
            other => other.at("rename", found.path())?,
        }
        let now = store.stat(&aside.path, Links::Stay).at("stat", &aside.path)?;
        if !is_same(&now) {
            self.put_back(dir, name, &aside)?;
            return Ok(Is::InUse);
        }
        // A slot that nothing leads to any more must not have it again after a power cut.
        if !found.via.is_empty() {
            for dir in [found.path().parent(), aside.path.parent()].into_iter().flatten() {
                match store.sync_dir(dir) {
                    Err(errno) if !is_gone(errno) => return Err(errno).at("sync", dir),
                    _ => {}
                }
            }
        }
        for _ in 0..TRIES {
            match store.link(copy, &place.path) {
                Ok(()) => break,
                Err(Errno::EXIST) => {
                    // A link that led to what is in the aside now; or something newer.
                    let here = self.look(dir, place.clone(), true)?;
                    if here.stat.is_some() {
                        break;
                    }
                    self.tidy(dir, &here.via)?;
                }
                Err(errno) => {
                    self.put_back(dir, name, &aside)?;
                    return match is_gone(errno) {
                        // The copy, which another drain took for one of the dead.
                        true => Ok(Is::Another),
                        false => Err(errno).at("link", &place.path),
                    };
                }
            }
        }
        // Once its name is durable the old one goes.
        self.put_back(dir, name, &aside)?;
        self.tidy(dir, &found.via)?;
        Ok(Is::Moved(0))
    }

    fn new_copy(&self, base: &Base) -> PathBuf {
        base.path.with_file_name(format!("{}{}", format::COPY, format::hex(&new_uuid())))
    }

    /// Removes copies that a drain has left that died.
    pub(crate) fn remove_copies(&self, dir: &Dir) -> Result<()> {
        let (store, mut done) = (self.store, HashSet::new());
        for base in &dir.bases {
            let plfs = base.path.parent().unwrap_or(&base.path);
            if !done.insert(plfs) {
                continue;
            }
            for entry in store.list(plfs).at("list", plfs)? {
                if !entry.name.as_encoded_bytes().starts_with(format::COPY.as_bytes()) {
                    continue;
                }
                let path = plfs.join(&entry.name);
                if entry.kind == Some(Kind::File) {
                    let Ok(file) = store.open(&path, Open::READ_WRITE.briefly()) else { continue };
                    if !file.try_gate().unwrap_or(false) {
                        continue;
                    }
                    file.leave_gate();
                }
                let _ = store.unlink(&path);
            }
        }
        Ok(())
    }

    /// Removes what nothing leads to of what the backend has for flat directories, but `kept`.
    pub(crate) fn sweep(&self, dir: &Dir, spread: &Path, kept: &HashSet<PathBuf>) {
        for entry in self.store.list(spread).unwrap_or_default() {
            let path = spread.join(entry.name);
            if kept.contains(&path) {
                continue;
            }
            let Ok(text) = self.store.readlink(&path) else {
                // A slot. Who is about to use it begins anew.
                let _ = self.store.rmdir(&path);
                continue;
            };
            // A link that was to be taken away, or put at a name.
            let Target::Moved(moved) = Target::decode(&text.into_os_string().into_vec()) else {
                continue;
            };
            let aside = spread.join(format::hex(&moved.aside));
            let is_empty = |slot: &Path| match self.store.rmdir(slot) {
                Ok(()) => true,
                Err(errno) => is_gone(errno),
            };
            if let Ok(base) = self.base(dir, moved.backend, true)
                && is_empty(&base.at(&moved.slot))
                && is_empty(&aside)
                && self.base(dir, moved.backend, true).is_ok()
            {
                let _ = self.store.unlink(&path);
            }
        }
    }

    /// An error where others do not hear of locks.
    pub(crate) fn must_have_locks(&self, root: &Path) -> Result<()> {
        let base = root.join(name::ROOT_DIR).join(format::DIR);
        let turn = self.turn(&base, format::DRAIN_LOCK)?;
        match turn.is_some_and(|turn| turn.0.locks_are_shared()) {
            true => Ok(()),
            false => Err(Error::refused(
                Errno::NOLCK,
                "drain flat directories of",
                root,
                "names are moved where all nodes know of locks: see flock in the options of the \
                 file system that the root is on",
            )),
        }
    }

    /// Takes the old shadows and the asides of a directory away, if nothing is in them, and puts
    /// the map that says so.
    pub(crate) fn end_drain(&self, dir: &Dir, drain: &Drain<'_>) -> Result<()> {
        for _ in 0..TRIES {
            let (number, mut map) = self.read_map(&dir.home)?;
            let is_of = |backend: &u16| drain.ids.contains(backend);
            let old = map.moves.iter().filter(|of| is_of(&of.backend) && of.stage == Stage::From);
            let old = old.map(|of| (of.backend, of.shadow));
            let asides = map.asides.iter().filter(|(backend, _)| is_of(backend)).copied();
            // An aside is of use as long as there are names in the shadow.
            let (old, asides): (Vec<_>, Vec<_>) = (old.collect(), asides.collect());
            if old.is_empty() && asides.is_empty() {
                return Ok(());
            }
            let paths = |of: &[(u16, _)]| -> Result<Vec<PathBuf>> {
                let path =
                    |(backend, uuid): &(u16, _)| Ok(self.base(dir, *backend, true)?.at(uuid));
                of.iter().map(path).collect()
            };
            let (old, asides) = (paths(&old)?, paths(&asides)?);
            let mut is_used = false;
            for path in asides.iter().chain(&old) {
                let entries = match self.store.list(path) {
                    Err(errno) if is_gone(errno) => continue,
                    other => other.at("list", path)?,
                };
                for entry in entries {
                    // What is hidden goes, and what was left in an aside goes back.
                    let now = self.again(dir)?;
                    let found = self.look_name(&now, &entry.name, true)?;
                    is_used |= found.is_old;
                }
            }
            if is_used {
                return Ok(());
            }
            for path in asides.iter().chain(&old) {
                // What was taken out must not be there again when no map says so any more.
                match self.store.sync_dir(path) {
                    Err(errno) if !is_gone(errno) => return Err(errno).at("sync", path),
                    _ => {}
                }
                match self.store.rmdir(path) {
                    Err(errno) if is_full(errno) => return Ok(()),
                    Err(errno) if !is_gone(errno) => return Err(errno).at("remove", path),
                    _ => {}
                }
            }
            // Gone, and not away with their backend.
            for id in drain.ids {
                self.base(dir, *id, true)?;
            }
            map.moves.retain(|of| !(is_of(&of.backend) && of.stage == Stage::From));
            map.asides.retain(|(backend, _)| !is_of(backend));
            self.cache.forget();
            if self.publish(dir, number, &map)? {
                return Ok(());
            }
        }
        Err(Errno::BUSY).at("change the map of", &dir.home)
    }
}

/// What must not change of a file while it is copied.
fn what(stat: &Stat) -> (u64, u64, u64, u64, u32, u32, u32, Time) {
    let Stat { dev, ino, len, nlink, mode, uid, gid, mtime, .. } = *stat;
    (dev, ino, len, nlink, mode, uid, gid, mtime)
}

/// What a file is that was to be moved.
enum Is {
    /// Elsewhere, after so many bytes were copied.
    Moved(u64),
    /// In use.
    InUse,
    /// Not what it was when it was looked at.
    Another,
}

fn copy_file(
    from: &dyn StoreFile,
    to: &dyn StoreFile,
    (path, copy): (&Path, &Path),
    len: u64,
    progress: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<()> {
    let (mut buffer, mut at) = (vec![0; COPY_BYTES.min(len as usize)], 0);
    while let Some(data) = if at < len { from.next_data(at).at("read", path)? } else { None } {
        let end = from.next_hole(data).at("read", path)?.min(len);
        at = data;
        while at < end {
            let part = &mut buffer[..COPY_BYTES.min((end - at) as usize)];
            let n = store::read_full(from, part, at).at("read", path)?;
            if n == 0 {
                break;
            }
            store::write_full(to, &part[..n], at).at("write", copy)?;
            at += n as u64;
            progress(at)?;
        }
        if at < end {
            break;
        }
    }
    match to.stat().at("stat", copy)?.len < len {
        true => to.set_len(len).at("set the length of", copy),
        false => Ok(()),
    }
}
