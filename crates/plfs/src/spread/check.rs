//! What a check says of flat directories: names that a rename left half way, shadows and slots that
//! nothing leads to, backends that are not there.
//!
//! A repair does what the next change of a name would do, and removes what is empty: whoever uses
//! that at the same moment begins anew, as the protocol has it. What has something in it stays: it
//! may be of another root that has the same backend.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use plfs_format::spread::{self as format, Target};
use plfs_format::superblock::FILE_BYTES;

use super::{Dir, Found, Names, is_full, is_gone};
use crate::container::{Table, is_hidden};
use crate::error::{At, Error, Result};
use crate::lifecycle::{Report, Severity};
use crate::store::{Errno, Kind, Links, Stat, Time};
use crate::sync::Arc;

/// What a check has found.
#[derive(Debug, Default)]
pub struct FlatReport {
    /// One for each directory or root with something to say.
    pub reports: Vec<(Report, Vec<String>)>,
    /// Files that may have containers, as they lie on the storage.
    pub files: Vec<PathBuf>,
}

/// What a walk has come to.
#[derive(Default)]
pub(crate) struct Walked {
    reached: HashSet<PathBuf>,
    /// The outermost flat directories, each with its path.
    tops: Vec<(PathBuf, Arc<Dir>)>,
    /// Something could not be looked into, so that what was not reached may be in use.
    is_partial: bool,
    pub(crate) found: FlatReport,
}

impl Walked {
    pub(crate) fn fail(&mut self, path: &Path, error: &Error) {
        let mut report = Report { dir: path.to_path_buf(), ..Report::default() };
        report.fail(path, error);
        self.is_partial = true;
        self.found.reports.push((report, Vec::new()));
    }
}

impl Names<'_> {
    /// Looks at all names below a flat directory. `repairs`: decides what is half done.
    pub(crate) fn walk(&self, top: &Path, dir: Arc<Dir>, repairs: bool, walked: &mut Walked) {
        let mut report =
            Report { dir: top.to_path_buf(), names: vec![top.to_path_buf()], ..Report::default() };
        walked.tops.push((top.to_path_buf(), dir.clone()));
        let (mut todo, mut done) = (vec![(top.to_path_buf(), dir)], Vec::new());
        while let Some((shown, dir)) = todo.pop() {
            let mut seen = HashSet::new();
            for (base, shadow) in dir.shadows() {
                if !seen.insert(shadow.clone()) {
                    continue;
                }
                walked.reached.insert(shadow.clone());
                let entries = match self.store.list(&shadow) {
                    Ok(entries) => entries,
                    Err(errno) => {
                        let there = match is_gone(errno) {
                            true => self.must_be_there(&dir, base),
                            false => Err(Error::Io { op: "list", path: shadow.clone(), errno }),
                        };
                        if let Err(error) = there {
                            walked.is_partial = true;
                            report.fail(&shadow, &error);
                        }
                        continue;
                    }
                };
                for entry in entries {
                    let (name, lies) = (shown.join(&entry.name), shadow.join(&entry.name));
                    let is_at = |spot: &super::Spot| spot.path == lies;
                    if !is_at(&dir.place(&entry.name))
                        && !dir.old_place(&entry.name).as_ref().is_some_and(is_at)
                        && !dir.aside_places(&entry.name).any(|spot| is_at(&spot))
                    {
                        let what = "nobody looks for it here: its name has another place";
                        report.find(Severity::Garbage, &lies, 0, what);
                        continue;
                    }
                    let mut look = || -> Result<Option<Found>> {
                        let found = self.look_name(&dir, &entry.name, false)?;
                        let Some(what) = self.half_done(&dir, &found, walked)? else {
                            return Ok(Some(found));
                        };
                        if !repairs {
                            report.find(Severity::Garbage, &name, 0, what);
                            return Ok(Some(found));
                        }
                        let found = self.look_name(&dir, &entry.name, true)?;
                        if found.stat.is_none() {
                            self.tidy(&dir, &found.via)?;
                        }
                        done.push(format!("{}: ended a rename that had died", name.display()));
                        Ok(Some(found))
                    };
                    match look() {
                        Ok(Some(Found { spot, stat: Some(stat), link: None, .. })) => {
                            match stat.kind {
                                Kind::Dir => match self.load_in(&dir, spot.path) {
                                    Ok(below) => todo.push((name, below)),
                                    Err(error) if is_gone(error.errno()) => {}
                                    Err(error) => {
                                        walked.is_partial = true;
                                        report.fail(&name, &error);
                                    }
                                },
                                Kind::File if stat.nlink > 1 || stat.len == FILE_BYTES as u64 => {
                                    walked.found.files.push(spot.path)
                                }
                                _ => {}
                            }
                        }
                        Ok(_) => {}
                        Err(error) => {
                            walked.is_partial = true;
                            report.fail(&name, &error);
                        }
                    }
                }
            }
        }
        if !report.findings.is_empty() || !done.is_empty() {
            walked.found.reports.push((report, done));
        }
    }

    /// What is not done of the renames that led to a name. Notes their slots.
    fn half_done(
        &self,
        dir: &Dir,
        found: &Found,
        walked: &mut Walked,
    ) -> Result<Option<&'static str>> {
        let mut what = None;
        for via in &found.via {
            let slot = self.base(dir, via.moved.backend, false)?.at(&via.moved.slot);
            let aside = via.at.base.at(&via.moved.aside);
            let is_there = |path: &Path| self.store.stat(path, Links::Stay).is_ok();
            let is_in = |slot: &Path| is_there(&slot.join(format::ENTRY));
            match (is_in(&slot), is_in(&aside)) {
                (true, _) if is_there(&aside) => {
                    what = Some("a rename has died before it removed what the name was before");
                }
                (false, true) if is_there(&slot) => {
                    what = Some("a rename to this name has died; it is what it was");
                }
                (false, false) if found.stat.is_none() => {
                    what = Some("a change of this name has died; there is nothing");
                }
                _ => {}
            }
            walked.reached.extend([slot, aside]);
        }
        Ok(what)
    }

    /// Looks at what the backends of a root have for flat directories, all of which `walked` has
    /// seen. With `min_age_s` removes what is empty and older.
    pub(crate) fn unreached(&self, root: &Path, min_age_s: Option<u64>, walked: &mut Walked) {
        let mut report = Report { dir: root.join(name_of_all()), ..Report::default() };
        let mut done = Vec::new();
        let dev = self.store.stat(root, Links::Follow).map_or(0, |stat| stat.dev);
        let table = Table { store: self.store, root, dev };
        let mut unreached = Vec::new();
        let in_use = table.in_use().unwrap_or_else(|error| {
            report.fail(root, &error);
            Vec::new()
        });
        for id in std::iter::once(0).chain(in_use) {
            let backend = match id {
                0 => Ok(root.to_path_buf()),
                id => table.find_again(id),
            };
            let all = match backend {
                Ok(backend) => backend.join(name_of_all()),
                Err(error) => {
                    report.fail(root, &error);
                    continue;
                }
            };
            let entries = match self.store.list(&all) {
                Err(Errno::NOENT) => continue,
                other => other.at("list", &all).unwrap_or_else(|error| {
                    report.fail(&all, &error);
                    Vec::new()
                }),
            };
            for entry in entries {
                let path = all.join(&entry.name);
                if walked.reached.contains(&path) || is_hidden(&entry.name) {
                    continue;
                }
                unreached.push(path);
            }
        }
        let lost = self.lost(&table, &unreached);
        for home in lost.rings(&unreached) {
            let repaired = match min_age_s {
                Some(_) => self.bring_back(&home, &table, &unreached, walked),
                None => Ok(None),
            };
            match repaired {
                Ok(Some(name)) => done.push(format!(
                    "{}: put there {}, which lay in itself",
                    name.display(),
                    home.display()
                )),
                Ok(None) => report.find(
                    Severity::Corrupt,
                    &home,
                    0,
                    "this directory lies in itself, where nobody finds it and what it has: with \
                     --repair it gets a name in a flat directory",
                ),
                Err(error) => report.fail(&home, &error),
            }
        }
        for path in unreached {
            // What is in others is found with them.
            let Ok(stat) = self.store.stat(&path, Links::Stay) else { continue };
            if lost.above.contains_key(&path) {
                continue;
            }
            let is_old = min_age_s.is_some_and(|age| is_older(&stat, age));
            self.one_unreached(&table, &path, &stat, is_old, &mut report, &mut done);
        }
        if walked.is_partial && !report.findings.is_empty() {
            let what = "not all names could be looked at: what follows may be in use";
            report.findings.insert(
                0,
                crate::lifecycle::Finding {
                    path: report.dir.clone(),
                    at_bytes: 0,
                    what: what.into(),
                    severity: Severity::Note,
                },
            );
        }
        if !report.findings.is_empty() || !done.is_empty() {
            walked.found.reports.push((report, done));
        }
    }

    /// What shadows and slots that nothing leads to have in them of each other.
    fn lost(&self, table: &Table<'_>, unreached: &[PathBuf]) -> Lost {
        let all_of = |backend: u16| {
            let root = match backend {
                0 => Ok(table.root.to_path_buf()),
                id => table.find_again(id),
            };
            root.map(|root| root.join(name_of_all()))
        };
        let mut lost = Lost::default();
        for path in unreached {
            for entry in self.store.list(path).unwrap_or_default() {
                let at = path.join(&entry.name);
                let Ok(stat) = self.store.stat(&at, Links::Stay) else { continue };
                match stat.kind {
                    Kind::Dir => {
                        let Ok((_, map)) = self.read_map(&at) else { continue };
                        for (backend, shadow) in map.all() {
                            if let Ok(all) = all_of(backend) {
                                let shadow = all.join(format::hex(&shadow));
                                lost.homes.insert(shadow.clone(), at.clone());
                                lost.above.insert(shadow, path.clone());
                            }
                        }
                    }
                    Kind::Symlink => {
                        let Ok(text) = self.store.readlink(&at) else { continue };
                        let Target::Moved(moved) =
                            Target::decode(&text.into_os_string().into_vec())
                        else {
                            continue;
                        };
                        if let Ok(all) = all_of(moved.backend) {
                            lost.above.insert(all.join(format::hex(&moved.slot)), path.clone());
                        }
                        let aside = path.with_file_name(format::hex(&moved.aside));
                        lost.above.insert(aside, path.clone());
                    }
                    _ => {}
                }
            }
        }
        lost
    }

    /// Gives a directory that lies in itself a name in a flat one, which is the result; `None`:
    /// there is none on its backend. A directory has one place only, so no root leads to it.
    fn bring_back(
        &self,
        home: &Path,
        table: &Table<'_>,
        unreached: &[PathBuf],
        walked: &Walked,
    ) -> Result<Option<PathBuf>> {
        let base = table.root.join(name_of_all());
        let _turn = self.turn(&base, format::TREE_LOCK)?;
        // Somebody may have moved one of them.
        if !self.lost(table, unreached).rings(unreached).iter().any(|ring| ring == home) {
            return Ok(None);
        }
        let all = home.ancestors().nth(2);
        for (top, dir) in walked.tops.iter().filter(|(_, dir)| dir.root == table.root) {
            let Some(dir) = self.dir_with_shadows(top)?.filter(|now| now.id == dir.id) else {
                continue;
            };
            if !dir.bases.iter().any(|base| Some(base.path.as_path()) == all) {
                continue;
            }
            // As many names as it takes until one has its place there.
            for i in 0..100_000 {
                let name = format!("lost+found.{i}");
                let place = dir.place(OsStr::new(&name));
                if Some(place.base.path.as_path()) == all
                    && self.store.stat(&place.path, Links::Stay).is_err_and(is_gone)
                {
                    self.store.rename(home, &place.path).at("rename", home)?;
                    for dir in [place.path.parent(), home.parent()].into_iter().flatten() {
                        self.store.sync_dir(dir).at("sync", dir)?;
                    }
                    self.cache.forget();
                    return Ok(Some(top.join(name)));
                }
            }
        }
        Ok(None)
    }

    fn one_unreached(
        &self,
        table: &Table<'_>,
        path: &Path,
        stat: &Stat,
        may_remove: bool,
        report: &mut Report,
        done: &mut Vec<String>,
    ) {
        let removed = || format!("removed {}, to which nothing led", path.display());
        if stat.kind == Kind::Dir {
            let names = match self.store.list(path) {
                Ok(names) => names,
                Err(errno) if is_gone(errno) => return,
                Err(_) => Vec::new(),
            };
            if names.is_empty() {
                match may_remove.then(|| self.store.rmdir(path)) {
                    Some(Ok(())) => done.push(removed()),
                    Some(Err(errno)) if is_gone(errno) || is_full(errno) => {}
                    _ => report.find(
                        Severity::Garbage,
                        path,
                        0,
                        "it is empty, and nothing leads to it",
                    ),
                }
                return;
            }
            let what = match names.as_slice() {
                [one] if one.name == OsStr::new(format::ENTRY) => {
                    "nothing leads to it, and it has a file, e: one that a rename has replaced \
                     and that its death left, or one of another root that has this backend. See \
                     what it is, and move it where you want it, or remove it"
                }
                _ => {
                    "nothing leads to it, and it has names: those of a directory whose map is \
                     gone, or of another root that has this backend. They are whole; move them \
                     where you want them"
                }
            };
            report.find(Severity::Garbage, path, 0, what);
            return;
        }
        // A link that was to be put at a name, or was taken from one.
        let text = self.store.readlink(path).map(|text| text.into_os_string().into_vec());
        let leads_nowhere = text.is_ok_and(|text| match Target::decode(&text) {
            Target::Text(_) => false,
            Target::Moved(moved) => {
                let base = match moved.backend {
                    0 => Ok(table.root.to_path_buf()),
                    id => table.find_again(id),
                };
                let gone = |path: PathBuf| self.store.stat(&path, Links::Stay).is_err_and(is_gone);
                let beside = |hex| path.with_file_name(hex);
                base.is_ok_and(|base| {
                    gone(base.join(name_of_all()).join(format::hex(&moved.slot)))
                        && gone(beside(format::hex(&moved.aside)))
                })
            }
        });
        match leads_nowhere {
            true if may_remove && self.store.unlink(path).is_ok() => done.push(removed()),
            true => report.find(Severity::Garbage, path, 0, "a rename that has died left it"),
            false => report.find(
                Severity::Garbage,
                path,
                0,
                "a change of a name has died while it had this in hand: see what it is, and move \
                 it where you want it, or remove it",
            ),
        }
    }
}

/// Shadows and slots that nothing leads to.
#[derive(Default)]
struct Lost {
    /// The one in which the directory or the link is that leads to one.
    above: HashMap<PathBuf, PathBuf>,
    /// The directory whose shadow one is.
    homes: HashMap<PathBuf, PathBuf>,
}

impl Lost {
    /// A directory of each ring: those that lie in each other, or one that lies in itself.
    fn rings(&self, unreached: &[PathBuf]) -> Vec<PathBuf> {
        let (mut found, mut done) = (Vec::new(), HashSet::<&PathBuf>::new());
        for path in unreached {
            let (mut at, mut way) = (path, Vec::new());
            while done.insert(at) {
                way.push(at);
                match self.above.get(at) {
                    Some(above) => at = above,
                    None => break,
                }
            }
            if let Some(begin) = way.iter().position(|one| *one == at)
                && self.above.contains_key(at)
            {
                found.extend(way[begin..].iter().filter_map(|one| self.homes.get(*one)).min());
            }
        }
        found.into_iter().cloned().collect()
    }
}

fn is_older(stat: &Stat, age_s: u64) -> bool {
    let since = stat.ctime.sec.max(stat.mtime.sec);
    Time::now().sec.saturating_sub(since) >= i64::try_from(age_s).unwrap_or(i64::MAX)
}

fn name_of_all() -> PathBuf {
    Path::new(plfs_format::name::ROOT_DIR).join(format::DIR)
}
