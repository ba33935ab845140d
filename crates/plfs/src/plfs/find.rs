//! From names and descriptors to containers, and what a stat says.

use std::path::Path;

use plfs_format::summary::Summary;
use plfs_format::superblock::Superblock;

use super::{FileStat, Plfs, may_be_logical, packed_stat};
use crate::catalog::Totalizer;
use crate::container::{self, Container, base};
use crate::error::{At, Error, Result};
use crate::file::logical_stat;
use crate::log;
use crate::packs::Wanted;
use crate::process::Process;
use crate::store::{Errno, Kind, Links, Open, Stat, StoreFile, Time};
use crate::sync::{Arc, Weak, lock};

/// What a name's superblock file said when it was last read.
#[derive(Clone, Debug)]
pub(super) struct KnownName {
    ctime: Time,
    container: Arc<Container>,
    summary: Option<Summary>,
}

/// Names that are remembered, those that were looked at last. 32,768: some 60 MB, and a directory
/// of that many files is listed without reading one twice.
const KNOWN_MAX: usize = 32_768;

impl Plfs {
    /// Container and summary of a superblock file with stat `stat`; `file` is opened only if they
    /// are not remembered. `None`: some other file.
    pub(super) fn container_of(
        &self,
        path: &Path,
        stat: &Stat,
        file: impl FnOnce() -> Result<Arc<dyn StoreFile>>,
    ) -> Result<Option<(Arc<Container>, Option<Summary>)>> {
        if let Some(known) = self.remembered_at(path, stat) {
            return Ok(Some(known));
        }
        self.find_behind(file()?.as_ref(), stat, path)
    }

    /// Container and summary of a file with stat `stat`, by its bytes or its attribute. `None`:
    /// some other file.
    pub(super) fn find_behind(
        &self,
        file: &dyn StoreFile,
        stat: &Stat,
        path: &Path,
    ) -> Result<Option<(Arc<Container>, Option<Summary>)>> {
        if let Some((superblock, summary)) = container::read_name(file, stat, path)? {
            base::must_be_its_own(file, &superblock, stat, path)?;
            let found = self.find_container(path, stat, superblock, &summary)?;
            return Ok(Some((found, summary)));
        }
        // With one link it may have lost its name: then that is `base`.
        if stat.kind != Kind::File {
            return Ok(None);
        }
        let Process { store, config, .. } = self.process.as_ref();
        let found = base::find(store, file, stat, path, &config.mounts)?;
        Ok(found.map(|(container, summary)| (Arc::new(container.configured(config)), summary)))
    }

    /// The container of a superblock file that was read, which is remembered from now on.
    pub(super) fn find_container(
        &self,
        path: &Path,
        stat: &Stat,
        superblock: Superblock,
        summary: &Option<Summary>,
    ) -> Result<Arc<Container>> {
        let Process { store, config, .. } = self.process.as_ref();
        let found = Container::locate(store.clone(), superblock, path, stat, &config.mounts)?;
        let container = Arc::new(found.configured(config));
        if stat.ctime.is_long_past() {
            // Without a descriptor, which is for files that are open.
            let known = KnownName {
                ctime: stat.ctime,
                container: Arc::new(container.through(self.process.store.clone()).remembered()),
                summary: summary.clone(),
            };
            let mut all = lock(&self.known);
            all.put((stat.dev, stat.ino), known);
            if all.len() > KNOWN_MAX {
                all.pop_lru();
            }
        }
        Ok(container)
    }

    /// Stat; logical files have their logical size. Reads no index log if the file is closed
    /// everywhere.
    pub fn stat(&self, path: &Path, links: Links) -> Result<FileStat> {
        if let Some(stat) = self.stat_flat(path, links)? {
            return Ok(stat);
        }
        if let Some((pack, name)) = self.in_pack(path, Wanted::Know)? {
            return packed_stat(&pack, name);
        }
        match self.process.store.stat(path, links) {
            Ok(stat) => self.resolve(path, stat),
            Err(errno) => match self.behind_links(errno, path, links)? {
                Some((_, stat)) => Ok(FileStat { stat, totals: None }),
                None => Err(errno).at("stat", path),
            },
        }
    }

    /// Turns a store's stat of `path` into the logical file's, if it is one. Costs nothing for
    /// files of other lengths than a superblock's.
    pub fn resolve(&self, path: &Path, stat: Stat) -> Result<FileStat> {
        self.resolve_via(path, path, stat)
    }

    /// [`Plfs::resolve`] for who would have to find out the path, and need not: `None` if the file
    /// is open or was not seen before.
    pub fn resolve_known(&self, stat: &Stat) -> Option<Result<FileStat>> {
        let key = (stat.dev, stat.ino);
        if lock(&self.process.open).get(&key).is_some_and(|open| open.strong_count() > 0) {
            return None;
        }
        let (container, summary) = self.remembered(stat)?;
        let totals = Totalizer::new(summary).look(&container);
        Some(totals.map(|totals| FileStat {
            stat: logical_stat(*stat, totals.size, totals.stored_bytes),
            totals: Some(totals),
        }))
    }

    /// What is remembered of the file at `path`, if its root is still above it: a rename of a
    /// directory changes no time of the files below, and another container, even a copy, may lie
    /// where this one was.
    pub(super) fn remembered_at(
        &self,
        path: &Path,
        stat: &Stat,
    ) -> Option<(Arc<Container>, Option<Summary>)> {
        self.remembered(stat).filter(|(known, _)| known.is_below_root(path))
    }

    pub(super) fn remembered(&self, stat: &Stat) -> Option<(Arc<Container>, Option<Summary>)> {
        let mut known = lock(&self.known);
        let known = known.get(&(stat.dev, stat.ino)).filter(|known| known.ctime == stat.ctime)?;
        Some((known.container.clone(), known.summary.clone()))
    }

    /// [`Plfs::resolve`] of a file that is opened as `path` and whose directory is that of `at`:
    /// `fd_path` and what that links to.
    pub fn resolve_via(&self, path: &Path, at: &Path, stat: Stat) -> Result<FileStat> {
        let plain = FileStat { stat, totals: None };
        if !may_be_logical(&stat) {
            return Ok(plain);
        }
        let key = (stat.dev, stat.ino);
        let open = lock(&self.process.open).get(&key).and_then(Weak::upgrade);
        if let Some(logical) = open {
            let (size, totals) = logical.size()?;
            return Ok(FileStat {
                stat: logical_stat(
                    self.process.store.stat(path, Links::Follow).unwrap_or(stat),
                    size,
                    totals.stored_bytes,
                ),
                totals: Some(totals),
            });
        }
        let (container, summary) = match self.container_of(at, &stat, || {
            self.process.store.open(path, Open::READ.briefly()).at("open", path)
        }) {
            Ok(Some(known)) => known,
            Ok(None) => return Ok(plain),
            // Who may not read the file cannot learn its size; it is still a file.
            Err(Error::Io { errno: Errno::ACCESS | Errno::PERM, .. }) => return Ok(plain),
            Err(error) => return Err(error),
        };
        let totals = Totalizer::new(summary).look(&container)?;
        Ok(FileStat {
            stat: logical_stat(stat, totals.size, totals.stored_bytes),
            totals: Some(totals),
        })
    }

    /// The container that `path` names; `None` for other files and for nothing.
    pub fn container(&self, path: &Path) -> Result<Option<(Container, Superblock)>> {
        self.container_behind(path, Links::Stay)
    }

    /// Whether `path` leads to a PLFS file, going by the superblock alone. Costs an open, a stat
    /// and, if it has the length of one, a read. The error of a damaged one says that it is one.
    pub fn is_logical(&self, path: &Path) -> Result<bool> {
        let file = self.process.store.open(path, Open::READ.briefly()).at("open", path)?;
        let stat = file.stat().at("stat", path)?;
        Ok(self.find_behind(file.as_ref(), &stat, path)?.is_some())
    }

    /// The container that `path` names, or with [`Links::Follow`] what its symbolic links lead to.
    pub fn container_behind(
        &self,
        path: &Path,
        links: Links,
    ) -> Result<Option<(Container, Superblock)>> {
        let found = self.container_named(path, links)?;
        // For tools, which look at the logs.
        if let Some((container, _)) = &found {
            log::carry_left(container)?;
        }
        Ok(found)
    }

    /// [`Plfs::container_behind`], without what dead processes have left for its logs.
    pub(super) fn container_named(
        &self,
        path: &Path,
        links: Links,
    ) -> Result<Option<(Container, Superblock)>> {
        let path = &*match self.placed(path, links) {
            Err(error) if error.errno() == Errno::NOENT => return Ok(None),
            other => other?,
        };
        let stat = match self.process.store.stat(path, links) {
            Ok(stat) if may_be_logical(&stat) => stat,
            _ => return Ok(None),
        };
        let file = self.process.store.open(path, Open::READ.briefly()).at("open", path)?;
        let Some((superblock, _)) = container::read_name(file.as_ref(), &stat, path)? else {
            let found = self.find_behind(file.as_ref(), &stat, path)?;
            let view = |container: Arc<Container>| {
                let superblock = container.superblock.clone();
                (container.through(container.store.clone()), superblock)
            };
            return Ok(found.map(|(container, _)| view(container)));
        };
        let Process { store, config, .. } = self.process.as_ref();
        let (store, read) = (store.clone(), superblock.clone());
        let found = Container::locate(store, read, path, &stat, &config.mounts)?;
        Ok(Some((found.configured(config), superblock)))
    }
}
