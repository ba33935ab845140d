//! Where a new segment lies, and making it.

use std::path::{Path, PathBuf};

use plfs_format::name::{self, SegmentRef};

use super::{DataLog, Segment, Steers};
use crate::container::{Container, dir_mode, make_dir};
use crate::error::{At, Error, Result};
use crate::log::flusher::given_up;
use crate::log::log_set::{FileName, open_to_readers};
use crate::log::policy;
use crate::store::{self, CachedFile, Links, Open, StorageTarget, TargetProvider};
use crate::sync::Arc;

impl DataLog {
    /// The backends that may get a new segment of a stream, the first choice first.
    pub(super) fn backends(&self, stream: u16) -> Result<Vec<u16>> {
        let Some(only) = &self.only else {
            let mut ids = self.container.targets(self.set.id(), stream)?;
            ids.retain(|id| !self.lost.contains(id));
            return Ok(ids);
        };
        let (turn, mut ids) = (u64::from(self.set.id()) + u64::from(stream), only.clone());
        let first = (turn % (ids.len() as u64).max(1)) as usize;
        ids.rotate_left(first);
        Ok(ids)
    }

    /// The backend for a new segment of a stream, and the target of that, if it has several:
    /// another one for each segment.
    pub(super) fn choose(&self, stream: u16, segment: u32) -> Result<(u16, Option<u16>)> {
        let backend = self.choose_backend(stream)?;
        let provider = self.provider(backend)?;
        let targets = provider.targets();
        if targets.len() < 2 {
            return Ok((backend, None));
        }
        let is_open = |one: &&StorageTarget| !self.is_fenced(&one.key);
        let mut may: Vec<&StorageTarget> = targets.iter().filter(is_open).collect();
        if may.is_empty() {
            may = targets.iter().collect();
        }
        let rate_of = |one: &&StorageTarget| match &self.steering {
            Steers::Yes(steering) => {
                let rates = steering.rates();
                rates.find(&one.key).and_then(|at| rates.measured(at)).map(|(rate, _)| rate)
            }
            _ => None,
        };
        let known: Vec<Option<f64>> = may.iter().map(rate_of).collect();
        let (container, set) = (&self.container, self.set.id());
        let turn = usize::from(stream) + segment as usize;
        let chosen = policy::spread(container.placement, &known, set, turn);
        Ok((backend, may.get(chosen).map(|one| one.number)))
    }

    /// What of a backend's storage can be slow by itself.
    pub(super) fn provider(&self, backend: u16) -> Result<Arc<dyn TargetProvider>> {
        Ok(self.container.store.targets(&self.container.backend_root(backend)?))
    }

    /// By what the rates of a target are known.
    pub(super) fn key(&self, backend: u16, target: Option<u16>) -> Result<PathBuf> {
        if let Some(number) = target {
            let provider = self.provider(backend)?;
            if let Some(target) = provider.targets().iter().find(|one| one.number == number) {
                return Ok(target.key.clone());
            }
        }
        self.container.backend_root(backend)
    }

    /// The backend for a new segment of a stream.
    fn choose_backend(&self, stream: u16) -> Result<u16> {
        let ids = self.backends(stream)?;
        let [first, _, ..] = ids[..] else { return Ok(ids.first().copied().unwrap_or(0)) };
        // What is full takes what nothing else does, and so does what was given up.
        let mut may: Vec<u16> = ids.iter().copied().filter(|id| !self.full.contains(id)).collect();
        let open: Vec<u16> = may.iter().copied().filter(|id| !self.is_given_up(*id)).collect();
        if !open.is_empty() {
            may = open;
        }
        let any = may.first().copied().unwrap_or(first);
        let has_room = |id: &u16| {
            let (container, id) = (self.container.clone(), *id);
            let Ok((key, _)) = container.backend_entry(id) else { return container.has_room(id) };
            let asked = ("look for room at", key.as_path());
            self.in_time(&key, asked, move || Ok(container.has_room(id))).unwrap_or(false)
        };
        Ok(may.into_iter().find(has_room).unwrap_or(any))
    }

    /// Whether all targets of a backend are given up.
    pub(super) fn is_given_up(&self, backend: u16) -> bool {
        matches!(self.steering, Steers::Yes(_))
            && self
                .provider(backend)
                .is_ok_and(|it| it.targets().iter().all(|target| self.is_fenced(&target.key)))
    }

    pub(super) fn segment(&mut self, at: SegmentRef, target: Option<u16>) -> Result<u32> {
        // Data without an index log says that this is lost. What is in the way here is so for the
        // first append, too, which tells.
        let _ = self.set.index();
        let op = "create the data log";
        if self.lost.contains(&at.backend) {
            return Err(given_up(op, &self.container.backend_entry(at.backend)?.0));
        }
        let key: Arc<Path> = self.key(at.backend, target)?.into();
        let path = self.container.segment_path(&at)?;
        let create = |makes_dirs| {
            let container = self.container.clone();
            self.in_time(&key, (op, &path), move || create(&container, at, target, makes_dirs))
        };
        let (path, file) = match create(false) {
            Err(Error::Io { errno: store::Errno::NOENT, .. }) if at.backend > 0 => {
                self.set.keep_index()?;
                create(true)?
            }
            other => other?,
        };
        self.segments.push(Segment {
            at,
            path: path.into(),
            key,
            file,
            dirty: false,
            has_bytes: false,
            file_name: FileName::New,
        });
        Ok(self.segments.len() as u32 - 1)
    }
}

/// Makes the file of a segment, or opens it: where, and how to reach it.
fn create(
    container: &Container,
    at: SegmentRef,
    target: Option<u16>,
    makes_dirs: bool,
) -> Result<(PathBuf, Arc<CachedFile>)> {
    let path = match makes_dirs {
        true => make_backend_dirs(container, &at)?.join(name::data_log(&at)),
        false => container.segment_path(&at)?,
    };
    let file = CachedFile::for_writing(container.local);
    let (store, how) = (container.store.as_ref(), Open::create(0o644));
    let provider = store.targets(&container.backend_root(at.backend)?);
    let opened = file.get_or_open(|_| match (target, provider.targets()) {
        (Some(on), _) => provider.create(store, &path, how, on),
        (None, [only]) => provider.create(store, &path, how, only.number),
        // It is there, and nobody knows any more on which target.
        (None, _) => store.open(&path, how),
    });
    let stat = opened.at("create the data log", &path)?.stat();
    open_to_readers(container, &path, stat, 0o644)?;
    Ok((path, file))
}

/// The root backend has the container's directory and the log set's; others get them with the first
/// segment, behind [`LogSet::keep_index`]. Gives the container's directory there.
fn make_backend_dirs(container: &Container, at: &SegmentRef) -> Result<PathBuf> {
    let store = container.store.as_ref();
    // Is it there? Logs that began anew in the place of a file system that is not mounted would
    // be in the way of those in it.
    let dir = container.backend_dir_again(at.backend)?;
    let root = dir.ancestors().nth(3).unwrap_or(&dir);
    let inode = container.inode_path();
    match make_dir(store, root, &dir, 0o700) {
        Err(error) if error.errno() != store::Errno::EXIST => return Err(error),
        Err(_) => {}
        // The file's mode of now, not of its creation; and of after, if it changes meanwhile:
        // who changes it finds the directory.
        Ok(()) => {
            let mode = || Ok(dir_mode(store.stat(&inode, Links::Stay).at("stat", &inode)?.mode));
            let (mut now, mut set) = (mode()?, None);
            while set != Some(now) {
                store.chmod(&dir, now).at("set the mode of", &dir)?;
                (set, now) = (Some(now), mode()?);
            }
        }
    }
    let set = dir.join(name::log_set(at.set));
    match store.mkdir(&set, 0o755) {
        Ok(()) => open_to_readers(container, &set, store.stat(&set, Links::Stay), 0o755)?,
        Err(store::Errno::EXIST) => {}
        Err(errno) => return Err(errno).at("create", &set),
    }
    Ok(dir)
}
