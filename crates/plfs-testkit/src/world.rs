//! Runs steps on PLFS and on the model side by side.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use plfs::store::{Errno, Links, Store};
use plfs::{Access, Config, File, OpenOptions, Opened, Plfs, Workload, Writers};

use crate::model::byte_of;
use crate::{Eyes, FileModel, Step, Who};

/// What went wrong, in words.
pub type Outcome = std::result::Result<(), String>;

/// Pieces of a file.
type Content = Vec<(u64, Vec<u8>)>;

/// Names in a world.
const NAMES: u8 = 3;
/// Handles that may be open at once.
const HANDLES: usize = 7;
/// Records of one file after which all must agree: keeps the model fast.
const UNSETTLED: usize = 120;

struct Process {
    plfs: Plfs,
    who: Who,
}

struct Handle {
    process: usize,
    file: u32,
    name: u8,
    write: bool,
    wrote: bool,
    open: File,
}

/// Processes of several nodes, the files that they share, and the model of those.
pub struct World {
    store: Arc<dyn Store>,
    root: PathBuf,
    nodes: Vec<Config>,
    processes: Vec<Process>,
    handles: Vec<Handle>,
    names: BTreeMap<u8, u32>,
    files: BTreeMap<u32, FileModel>,
    now: u64,
    next: u32,
}

fn at<T>(result: plfs::Result<T>, what: impl FnOnce() -> String) -> std::result::Result<T, String> {
    result.map_err(|error| format!("{}: {error}", what()))
}

impl World {
    /// An empty world below `root`, a directory of `store`, with a process for each of `places`,
    /// which name one of `nodes`.
    pub fn new(store: Arc<dyn Store>, root: &Path, nodes: Vec<Config>, places: &[u32]) -> World {
        let mut world = World {
            store,
            root: root.to_path_buf(),
            nodes,
            processes: Vec::new(),
            handles: Vec::new(),
            names: BTreeMap::new(),
            files: BTreeMap::new(),
            now: 1,
            next: 1,
        };
        for node in places {
            let process = world.process(*node);
            world.processes.push(process);
        }
        world
    }

    fn process(&mut self, node: u32) -> Process {
        let config = self.nodes[node as usize % self.nodes.len()].clone();
        // Without shared memory each process is like a node of its own.
        let node = if config.shared_memory.is_some() { node } else { 1000 + self.next };
        self.next += 1;
        Process {
            plfs: Plfs::new(self.store.clone(), config),
            who: Who { process: self.next, node },
        }
    }

    /// Whether files are born plain.
    fn may_be_plain(&self) -> bool {
        self.nodes.iter().any(|config| config.workload == Workload::Auto)
    }

    fn path(&self, name: u8) -> PathBuf {
        self.root.join(format!("f{name}"))
    }

    fn model(&mut self, file: u32) -> &mut FileModel {
        self.files.entry(file).or_default()
    }

    fn tick(&mut self) -> u64 {
        self.now += 1;
        self.now
    }

    /// Runs all steps, then lets all agree and close, and compares once more.
    pub fn run(&mut self, steps: &[Step]) -> Outcome {
        for (i, step) in steps.iter().enumerate() {
            self.step(*step).map_err(|why| format!("step {i}, {step:?}: {why}"))?;
        }
        self.agree().map_err(|why| format!("at the end: {why}"))?;
        while !self.handles.is_empty() {
            self.close(0).map_err(|why| format!("at the end: {why}"))?;
        }
        for name in 0..NAMES {
            self.stat(0, name).map_err(|why| format!("after the end: {why}"))?;
        }
        self.agree().map_err(|why| format!("after the end: {why}"))
    }

    fn step(&mut self, step: Step) -> Outcome {
        self.tick();
        match step {
            Step::Open { process, name, create, exclusive, write, truncate } => {
                if self.handles.len() >= HANDLES {
                    self.close(usize::from(process) % HANDLES)?;
                }
                self.open(
                    usize::from(process) % self.processes.len(),
                    name % NAMES,
                    create,
                    exclusive,
                    write,
                    truncate,
                )
            }
            Step::Rename { process, from, to } => {
                self.rename(usize::from(process) % self.processes.len(), from % NAMES, to % NAMES)
            }
            Step::Unlink { process, name } => {
                self.unlink(usize::from(process) % self.processes.len(), name % NAMES)
            }
            Step::Stat { process, name } => {
                self.stat(usize::from(process) % self.processes.len(), name % NAMES)
            }
            Step::Flatten { process, name } => {
                let (process, name) = (usize::from(process) % self.processes.len(), name % NAMES);
                if self.names.contains_key(&name) {
                    match self.processes[process].plfs.flatten(&self.path(name)) {
                        Err(_) if self.may_be_plain() => {}
                        other => at(other, || "flatten".into()).map(drop)?,
                    }
                }
                Ok(())
            }
            Step::Compact { process, name } => {
                let (process, name) = (usize::from(process) % self.processes.len(), name % NAMES);
                if self.names.contains_key(&name) {
                    match self.processes[process]
                        .plfs
                        .compact(&self.path(name), |_| ControlFlow::Continue(()))
                    {
                        Err(error) if error.errno() == Errno::BUSY => {}
                        Err(plfs::Error::NotAContainer { .. }) if self.may_be_plain() => {}
                        other => at(other, || "compact".into()).map(drop)?,
                    }
                }
                Ok(())
            }
            Step::Leave { process } => {
                let process = usize::from(process) % self.processes.len();
                at(self.processes[process].plfs.leave_all(), || "leave".into())?;
                let (who, now) = (self.processes[process].who, self.now);
                let mut files: Vec<u32> = self
                    .handles
                    .iter()
                    .filter(|handle| handle.process == process)
                    .map(|handle| handle.file)
                    .collect();
                files.dedup();
                for file in files {
                    self.model(file).leave(who, now);
                }
                Ok(())
            }
            Step::Replace { process } => {
                let process = usize::from(process) % self.processes.len();
                while let Some(i) = self.handles.iter().position(|handle| handle.process == process)
                {
                    self.close(i)?;
                }
                let node = self.processes[process].who.node;
                self.processes[process] = self.process(node);
                Ok(())
            }
            Step::Agree => self.agree(),
            Step::Write { handle, .. }
            | Step::Append { handle, .. }
            | Step::Read { handle, .. }
            | Step::Truncate { handle, .. }
            | Step::Zero { handle, .. }
            | Step::Commit { handle, .. }
            | Step::Len { handle }
            | Step::Refresh { handle }
            | Step::Close { handle }
            | Step::Reopen { handle } => {
                if self.handles.is_empty() {
                    return self.open(
                        usize::from(handle) % self.processes.len(),
                        handle % NAMES,
                        true,
                        false,
                        true,
                        false,
                    );
                }
                let handle = usize::from(handle) % self.handles.len();
                self.on_handle(handle, step)?;
                let file = self.handles.get(handle).map(|handle| handle.file);
                match file {
                    Some(file) if self.model(file).unsettled() > UNSETTLED => self.agree(),
                    _ => Ok(()),
                }
            }
        }
    }

    fn on_handle(&mut self, i: usize, step: Step) -> Outcome {
        let (file, who) = (self.handles[i].file, self.processes[self.handles[i].process].who);
        match step {
            Step::Write { offset, len, stride, count, at_once, .. } => {
                if !self.handles[i].write {
                    let denied =
                        self.handles[i].open.write_at(b"x", offset).map_err(|error| error.errno());
                    return if denied == Err(Errno::BADF) {
                        Ok(())
                    } else {
                        Err(format!("{denied:?} on a handle for reading"))
                    };
                }
                let offsets = (0..i64::from(count))
                    .map_while(|piece| offset.checked_add_signed(piece * i64::from(stride)));
                let pieces: Vec<(u64, u64, u32)> =
                    offsets.map(|offset| (offset, self.tick(), self.now as u32)).collect();
                let bytes: Vec<u8> = pieces
                    .iter()
                    .flat_map(|(_, _, seed)| (0..u64::from(len)).map(|at| byte_of(*seed, at)))
                    .collect();
                if at_once && stride.unsigned_abs() >= len {
                    let n = at(
                        self.handles[i].open.write_strided(
                            &bytes,
                            len as usize,
                            i64::from(stride),
                            offset,
                        ),
                        || "write_strided".into(),
                    )?;
                    if n != bytes.len() {
                        return Err(format!("wrote {n} of {} bytes", bytes.len()));
                    }
                } else {
                    for ((offset, ..), bytes) in pieces.iter().zip(bytes.chunks(len as usize)) {
                        let n =
                            at(self.handles[i].open.write_at(bytes, *offset), || "write".into())?;
                        if n != bytes.len() {
                            return Err(format!("wrote {n} of {len} bytes"));
                        }
                    }
                }
                for (offset, now, seed) in pieces {
                    self.model(file).write(who, now, offset, u64::from(len), seed);
                }
                self.handles[i].wrote = true;
                Ok(())
            }
            Step::Append { len, .. } => {
                if !self.handles[i].write {
                    return Ok(());
                }
                let (now, seed) = (self.tick(), self.now as u32);
                let bytes: Vec<u8> = (0..u64::from(len)).map(|at| byte_of(seed, at)).collect();
                let low = self.model(file).size(Eyes::Of(who), now).0;
                let (offset, n) = at(self.handles[i].open.append(&bytes), || "append".into())?;
                // Others may have written past it, or cut it.
                if n != bytes.len()
                    || offset < low && self.model(file).size(Eyes::Now(who), now).0 >= low
                {
                    return Err(format!(
                        "appended {n} of {len} bytes at {offset}, the file had {low}"
                    ));
                }
                self.model(file).write(who, now, offset, u64::from(len), seed);
                self.handles[i].wrote = true;
                Ok(())
            }
            Step::Read { offset, len, .. } => self.read(i, offset, len as usize),
            Step::Truncate { size, .. } => {
                if !self.handles[i].write {
                    return Ok(());
                }
                at(self.handles[i].open.set_len(size), || "set_len".into())?;
                let now = self.now;
                self.model(file).truncate(who, now, size);
                self.handles[i].wrote = true;
                Ok(())
            }
            Step::Zero { offset, len, .. } => {
                if !self.handles[i].write {
                    return Ok(());
                }
                let now = self.now;
                let (low, high) = self.model(file).size(Eyes::Now(who), now);
                // Past the end there is nothing to make a hole of. Where the end is not certain,
                // nor would the hole's be.
                let end = offset.saturating_add(len);
                let asked = if low == high { len } else { end.min(low).saturating_sub(offset) };
                at(self.handles[i].open.zero(offset, asked), || "zero".into())?;
                if offset < end.min(low) {
                    self.model(file).zero(who, now, offset, end.min(low) - offset);
                }
                self.handles[i].wrote = true;
                Ok(())
            }
            Step::Commit { sync, .. } => {
                let open = &self.handles[i].open;
                at(if sync { open.sync() } else { open.commit() }, || "commit".into())?;
                let now = self.now;
                self.model(file).commit(who, now);
                Ok(())
            }
            Step::Len { .. } => {
                let n = at(self.handles[i].open.len(), || "len".into())?;
                self.check_size(file, who, n)
            }
            Step::Refresh { .. } => {
                at(self.handles[i].open.refresh(), || "refresh".into())?;
                let now = self.now;
                self.model(file).look(who, now);
                Ok(())
            }
            Step::Close { .. } => self.close(i),
            Step::Reopen { .. } => {
                let (process, name, write) =
                    (self.handles[i].process, self.handles[i].name, self.handles[i].write);
                self.close(i)?;
                self.open(process, name, true, false, write, false)
            }
            _ => Err("not a step of a handle".into()),
        }
    }

    fn check_size(&mut self, file: u32, who: Who, n: u64) -> Outcome {
        let now = self.now;
        let model = self.model(file);
        let ((low, high), own) = (model.size(Eyes::Now(who), now), model.own_end(who));
        if n < low || n > high.max(own) {
            return Err(format!("size {n}, expected {low} to {}", high.max(own)));
        }
        Ok(())
    }

    fn open(
        &mut self,
        process: usize,
        name: u8,
        create: bool,
        exclusive: bool,
        write: bool,
        truncate: bool,
    ) -> Outcome {
        let options = OpenOptions {
            access: Access { read: true, write },
            create,
            exclusive: create && exclusive,
            truncate: truncate && write,
            mode: 0o644,
            // At times somebody makes a container of a plain file.
            writers: if self.now.is_multiple_of(3) { Writers::Several } else { Writers::Unknown },
        };
        let opened = self.processes[process].plfs.open(&self.path(name), options);
        let known = self.names.get(&name).copied();
        let expected = match known {
            Some(_) if create && exclusive => Err(Errno::EXIST),
            None if !create => Err(Errno::NOENT),
            _ => Ok(()),
        };
        let open = match (opened, expected) {
            (Ok(Opened::Logical(open)), Ok(())) => open,
            (Ok(Opened::Plain(open)), Ok(())) if self.may_be_plain() => open,
            (Err(error), Err(errno)) if error.errno() == errno => return Ok(()),
            (opened, expected) => {
                return Err(format!("open gave {opened:?}, expected {expected:?}"));
            }
        };
        let file = known.unwrap_or_else(|| {
            self.next += 1;
            self.next
        });
        self.names.insert(name, file);
        // Who has not read or written yet does not keep the data when another process removes the
        // name: model.rs has a test of its own for that.
        at(open.refresh(), || "refresh".into())?;
        let (who, now) = (self.processes[process].who, self.tick());
        let model = self.model(file);
        model.look(who, now);
        let mut wrote = false;
        if truncate && write && known.is_some() {
            let now = self.tick();
            self.model(file).truncate(who, now, 0);
            wrote = true;
        }
        self.handles.push(Handle { process, file, name, write, wrote, open });
        Ok(())
    }

    fn close(&mut self, i: usize) -> Outcome {
        let i = i % self.handles.len().max(1);
        if i >= self.handles.len() {
            return Ok(());
        }
        let handle = self.handles.remove(i);
        let (file, process) = (handle.file, handle.process);
        at(handle.open.close(), || "close".into())?;
        let (who, now) = (self.processes[process].who, self.tick());
        let last = !self.handles.iter().any(|other| other.process == process && other.file == file);
        let model = self.model(file);
        if handle.wrote || last {
            model.commit(who, now);
        }
        if last {
            model.forget(who);
        }
        self.bury(file);
        Ok(())
    }

    /// Forgets a file without name and handle.
    fn bury(&mut self, file: u32) {
        if !self.names.values().any(|named| *named == file)
            && !self.handles.iter().any(|handle| handle.file == file)
        {
            self.files.remove(&file);
        }
    }

    /// On storage that machines share, whoever removes the last name of a file takes its data away
    /// under other machines, as on NFS, and under who reads it as a plain file and has not noticed
    /// that it is none any more: they close it first.
    fn close_elsewhere(&mut self, process: usize, name: u8) -> Outcome {
        let (node, file) = (self.processes[process].who.node, self.names.get(&name).copied());
        if self.store.is_local(&self.root) {
            return Ok(());
        }
        let has_container =
            self.processes[process].plfs.is_logical(&self.path(name)).unwrap_or(false);
        let is_elsewhere = |world: &World, handle: &Handle| {
            let is_unnoticed = has_container && !handle.write && handle.open.is_plain();
            let is_far = world.processes[handle.process].who.node != node;
            Some(handle.file) == file && (is_far || is_unnoticed)
        };
        while let Some(i) = self.handles.iter().position(|handle| is_elsewhere(self, handle)) {
            self.close(i)?;
        }
        Ok(())
    }

    fn rename(&mut self, process: usize, from: u8, to: u8) -> Outcome {
        if from != to && self.names.contains_key(&from) {
            self.close_elsewhere(process, to)?;
        }
        let renamed = self.processes[process]
            .plfs
            .rename(&self.path(from), &self.path(to))
            .map_err(|error| error.errno());
        let Some(file) = self.names.get(&from).copied() else {
            return if renamed == Err(Errno::NOENT) {
                Ok(())
            } else {
                Err(format!("renaming nothing gave {renamed:?}"))
            };
        };
        renamed.map_err(|errno| format!("rename: {errno}"))?;
        if from != to {
            self.names.remove(&from);
            if let Some(replaced) = self.names.insert(to, file) {
                self.bury(replaced);
            }
        }
        Ok(())
    }

    fn unlink(&mut self, process: usize, name: u8) -> Outcome {
        self.close_elsewhere(process, name)?;
        let removed =
            self.processes[process].plfs.unlink(&self.path(name)).map_err(|error| error.errno());
        match self.names.remove(&name) {
            None if removed == Err(Errno::NOENT) => Ok(()),
            Some(file) if removed.is_ok() => {
                self.bury(file);
                Ok(())
            }
            known => Err(format!("unlink gave {removed:?}; the name was {known:?}")),
        }
    }

    fn stat(&mut self, process: usize, name: u8) -> Outcome {
        let stat = self.processes[process].plfs.stat(&self.path(name), Links::Follow);
        match (self.names.get(&name).copied(), stat) {
            (None, Err(error)) if error.errno() == Errno::NOENT => Ok(()),
            (Some(file), Ok(stat)) if stat.totals.is_some() || self.may_be_plain() => {
                let who = self.processes[process].who;
                self.check_size(file, who, stat.stat.len)
            }
            (known, stat) => Err(format!("stat gave {stat:?}; the name is {known:?}")),
        }
    }

    fn read(&mut self, i: usize, offset: u64, len: usize) -> Outcome {
        let (file, who, now) =
            (self.handles[i].file, self.processes[self.handles[i].process].who, self.now);
        let mut buf = vec![0xee; len];
        let n = at(self.handles[i].open.read_at(&mut buf, offset), || "read".into())?;
        let model = self.model(file);
        if n < len {
            // It has looked again.
            model.look(who, now);
        }
        let (low, high) = model.size(Eyes::Of(who), now);
        let end = offset + n as u64;
        if n > 0 && end > high || n < len && end < low {
            return Err(format!(
                "read {n} of {len} bytes at {offset}; the size is {low} to {high}"
            ));
        }
        let values = model.values(Eyes::Of(who), now, offset, n);
        compare(offset, &buf[..n], &values)
    }

    /// All processes commit and look; then all, and a new one on each node, must see the same, and
    /// what the model allows.
    fn agree(&mut self) -> Outcome {
        let now = self.tick();
        for i in 0..self.handles.len() {
            at(self.handles[i].open.commit(), || "commit".into())?;
            let (file, who) = (self.handles[i].file, self.processes[self.handles[i].process].who);
            self.model(file).commit(who, now);
        }
        let files: Vec<u32> = self.files.keys().copied().collect();
        for file in files {
            let mut ranges = self.files[&file].ranges();
            // A hole, and what lies behind the end.
            ranges.push(((1 << 41) - 5, (1 << 41) + 5));
            let mut seen: Option<(String, u64, Content)> = None;
            let mut sight = |whose: String, open: &File| -> Outcome {
                at(open.refresh(), || format!("refresh by {whose}"))?;
                let content = ranges.iter().map(|(from, to)| {
                    let mut bytes = vec![0xee; (to - from) as usize];
                    let n = at(open.read_at(&mut bytes, *from), || format!("read by {whose}"))?;
                    bytes.truncate(n);
                    Ok((*from, bytes))
                });
                let content = content.collect::<std::result::Result<Vec<_>, String>>()?;
                let size = at(open.len(), || format!("len by {whose}"))?;
                match &seen {
                    Some((first, other_size, other))
                        if *other_size != size || *other != content =>
                    {
                        let differs = content.iter().zip(other).find(|(a, b)| a != b);
                        Err(format!(
                            "{first} and {whose} disagree: sizes {other_size} and {size}, \
                             {differs:?}"
                        ))
                    }
                    Some(_) => Ok(()),
                    None => {
                        seen = Some((whose, size, content));
                        Ok(())
                    }
                }
            };
            for handle in self.handles.iter().filter(|handle| handle.file == file) {
                sight(
                    format!("process {}", self.processes[handle.process].who.process),
                    &handle.open,
                )?;
            }
            if let Some((name, _)) = self.names.iter().find(|(_, named)| **named == file) {
                let path = self.root.join(format!("f{name}"));
                for (node, config) in self.nodes.iter().enumerate() {
                    let plfs = Plfs::new(self.store.clone(), config.clone());
                    match at(plfs.open(&path, OpenOptions::read()), || {
                        format!("open by a new process of node {node}")
                    })? {
                        Opened::Logical(open) => {
                            sight(format!("a new process of node {node}"), &open)?
                        }
                        Opened::Plain(open) if self.may_be_plain() => {
                            sight(format!("a new process of node {node}"), &open)?
                        }
                        Opened::Plain(_) => {
                            return Err(format!("{} is a plain file", path.display()));
                        }
                    }
                }
            }
            let Some((_, size, content)) = seen else { continue };
            let model = &self.files[&file];
            let (low, high) = model.size(Eyes::All, now);
            if size < low || size > high {
                return Err(format!("file {file}: all see size {size}, expected {low} to {high}"));
            }
            for (offset, bytes) in &content {
                compare(*offset, bytes, &model.values(Eyes::All, now, *offset, bytes.len()))?;
            }
            self.model(file).settle(size, &content, now);
        }
        Ok(())
    }
}

fn compare(offset: u64, bytes: &[u8], values: &[crate::Values]) -> Outcome {
    match bytes.iter().zip(values).position(|(byte, values)| !values.has(*byte)) {
        Some(i) => Err(format!(
            "the byte at {} is {}, expected one of {:?}",
            offset + i as u64,
            bytes[i],
            values[i].all()
        )),
        None => Ok(()),
    }
}
