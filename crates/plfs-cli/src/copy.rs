//! `plfs cat`, `cp`, `import`, `export`: bytes from one file to another, of either kind.
//!
//! A copy is made under a name of its own (`.plfs-copy-*`) beside the one that it gets when it is
//! complete. Its maker holds a lock on it: without one it was left by a copy that was killed, and
//! the next copy to the same name removes it, as does `plfs check --repair`.

mod tree;

use std::collections::HashMap;
use std::ffi::OsStr;
use std::hash::{Hash, Hasher};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use indicatif::ProgressBar;
use plfs_core::store::{Errno, Kind, Links, LockKind, Open, Stat, StoreFile, Time, write_full};
use plfs_core::{Access, Extent, File, OpenOptions, Opened, Plfs};
use rustix::fs::SeekFrom;

use crate::CopyFlags;
use crate::mount::behind;
use crate::out::{self, Fail, Out, absolute, progress, show};
use tree::Tree;

/// Bytes moved at once: large enough that storage sees large requests, small enough for any
/// machine.
const STEP: usize = 8 << 20;
/// Pieces at least this long are copied by copy_file_range; shorter ones are faster gathered into
/// one write.
const CLONE_MIN: u64 = 1 << 20;
/// Holes shorter than a block of most file systems cannot be kept, so they are written.
const HOLE_MIN: u64 = 4096;
/// Pieces that are looked up at once, at most: some 10 MB.
pub const PIECES: u64 = 1 << 16;
/// More names than it takes to find one on a backend of 256.
const TMP_TRIES: usize = 4096;
/// How the names of unfinished copies begin.
const UNFINISHED: &str = ".plfs-copy-";
/// A file of a pack has no file that could be locked, and at most 1 MiB: a minute after the last
/// write to it nobody makes it any more.
const PACKED_OLD_NS: i128 = 60_000_000_000;

pub fn cat(out: &mut Out, from: u64, length: Option<u64>, files: &[PathBuf]) -> Result<(), Fail> {
    let plfs = out::plfs()?;
    let mut buf = vec![0; 1 << 20];
    for path in files {
        let file = open(&plfs, path)?.file();
        let (mut at, mut left) = (from, length.unwrap_or(u64::MAX));
        while left > 0 {
            let want = buf.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let n = file.read_at(&mut buf[..want], at)?;
            if n == 0 {
                break;
            }
            out.bytes(&buf[..n])?;
            (at, left) = (at + n as u64, left - n as u64);
        }
        if file.lacks_logs()? {
            return Err(lacks(path, ""));
        }
    }
    Ok(())
}

/// Not all of the file is there, and nothing in what was read says so.
fn lacks(path: &Path, then: &str) -> Fail {
    Fail::Say(format!(
        "{}: what its last close counted is not all there: index logs are lost, or power was cut \
         before they were durable (`plfs check` says more){then}",
        show(path)
    ))
}

fn open(plfs: &Plfs, path: &Path) -> Result<Opened, Fail> {
    Ok(plfs.open(&absolute(path)?, OpenOptions::read())?)
}

/// The commands that copy.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum What {
    Cp,
    Import,
    Export,
}

pub fn copy(what: What, flags: &CopyFlags) -> Result<(), Fail> {
    let plfs = out::plfs()?;
    let (src, force, stop) = (&flags.src, flags.force, &*out::stop()?);
    let job = Job { plfs: &plfs, what, force, stop, bar: None, done: 0 };
    if flags.recursive && is_dir(&plfs, src)? {
        return Tree::of(job).copy(src, &target(src, &flags.dst, true)?);
    }
    // In a mount it is plain; in one over its own directory nothing else can be seen.
    let at = behind(absolute(src)?);
    let is_seen = at.is_ok();
    let from = match (what, at) {
        (What::Export, Ok(at)) => plfs.open(&at, OpenOptions::read())?,
        _ => open(&plfs, src)?,
    };
    if what == What::Export && is_seen && matches!(&from, Opened::Plain(file) if !file.is_packed())
    {
        let hint = "is not a PLFS file; `plfs cp` copies any file";
        return Err(Fail::Say(format!("{} {hint}", show(src))));
    }
    let dst = target(src, &flags.dst, false)?;
    job.file(from, src, &dst, job.is_logical(&dst)).map(drop)
}

fn is_dir(plfs: &Plfs, path: &Path) -> Result<bool, Fail> {
    let found = plfs.stat(&absolute(path)?, Links::Follow);
    Ok(path.is_dir() || found.is_ok_and(|found| found.stat.kind == Kind::Dir))
}

/// The file to make: `dst`, or in the directory `dst` a file of the same name. Links are followed,
/// so that -f replaces what they lead to. Of a tree that has no name, as `.`, the directory itself.
fn target(src: &Path, dst: &Path, is_tree: bool) -> Result<PathBuf, Fail> {
    let dst = match (is_dir(&out::plfs()?, dst)?, src.file_name()) {
        (true, Some(name)) => dst.join(name),
        (true, None) if !is_tree => {
            return Err(Fail::Say(format!("{} is a directory; name a file", show(src))));
        }
        _ => dst.to_path_buf(),
    };
    let dst = std::fs::canonicalize(&dst).or_else(|_| absolute(&dst))?;
    match dst.components().any(|part| part.as_os_str() == ".plfs") {
        true => Err(Fail::Say(format!("{} is in .plfs, where containers are", show(&dst)))),
        false => Ok(dst),
    }
}

/// What is asked for, for each file.
#[derive(Clone)]
struct Job<'a> {
    plfs: &'a Plfs,
    what: What,
    force: bool,
    stop: &'a AtomicBool,
    /// Of a tree; a single file has one of its own.
    bar: Option<ProgressBar>,
    /// Bytes of the tree before this file.
    done: u64,
}

impl Job<'_> {
    /// The name of the command.
    fn name(&self) -> &'static str {
        match self.what {
            What::Cp => "cp",
            What::Import => "import",
            What::Export => "export",
        }
    }

    /// Whether what is made at `dst` is to be a PLFS file.
    fn is_logical(&self, dst: &Path) -> bool {
        self.what == What::Import || (self.what == What::Cp && is_managed(self.plfs, dst))
    }

    /// Copies a file. Gives its length.
    fn file(&self, from: Opened, src: &Path, dst: &Path, logical: bool) -> Result<u64, Fail> {
        let plfs = self.plfs;
        let (Opened::Logical(file) | Opened::Plain(file)) = &from;
        let stat = file.stat()?;
        if stat.kind != Kind::File {
            let hint = if stat.kind == Kind::Dir { "; copy it with -r" } else { "" };
            return Err(Fail::Say(format!("{} is not a regular file{hint}", show(src))));
        }
        if !self.force && plfs.stat(dst, Links::Stay).is_ok() {
            return Err(exists(dst));
        }
        let new = New::begin(plfs, dst, logical)?;
        let tmp = new.tmp.clone();
        let made = self
            .fill(&from, &stat, new, src, dst)
            .and_then(|held| go_on(self.stop).map(|()| held))
            .and_then(|_held| appear(plfs, &tmp, dst, self.force));
        if made.is_err() {
            let _ = plfs.unlink(&tmp);
        }
        made.map(|()| stat.len)
    }
}

/// Whether new files at `dst` become PLFS files.
pub fn is_managed(plfs: &Plfs, dst: &Path) -> bool {
    let marked = |dir: &Path| {
        plfs.store().stat(&dir.join(".plfs"), Links::Stay).is_ok_and(|stat| stat.kind == Kind::Dir)
    };
    plfs.is_mounted(dst) || dst.ancestors().skip(1).any(marked)
}

/// An error once a signal has asked the command to end: what there is so far is removed.
fn go_on(stop: &AtomicBool) -> Result<(), Fail> {
    match stop.load(Ordering::Relaxed) {
        true => Err(Fail::Say("interrupted; nothing was copied".into())),
        false => Ok(()),
    }
}

fn was_cut(src: &Path) -> Fail {
    Fail::Say(format!("{} was cut while it was copied; nothing was copied", show(src)))
}

fn exists(dst: &Path) -> Fail {
    Fail::Say(format!("{} exists; replace it with -f", show(dst)))
}

/// A name beside `dst` for the unfinished copy; the same each time, so that the next copy finds
/// what a killed one has left. It does not contain the name of `dst`, which may have the greatest
/// length already.
fn temporary(dst: &Path, nth: usize) -> PathBuf {
    let mut hasher = std::hash::DefaultHasher::new();
    (dst.file_name(), nth).hash(&mut hasher);
    dst.with_file_name(format!("{UNFINISHED}{:016x}", hasher.finish()))
}

/// Whether a directory entry is an unfinished copy.
pub fn is_unfinished(name: &OsStr) -> bool {
    name.as_bytes().starts_with(UNFINISHED.as_bytes())
}

/// The unfinished copy at `path`, if whoever made it was killed: nobody takes it for his as long as
/// this is kept. `None` too where nobody can tell: locks may be those of one machine only.
pub fn killed(plfs: &Plfs, path: &Path) -> Option<Held> {
    if let Ok(Some(stat)) = plfs.packed_stat(path) {
        let old = Time::now().ns() - stat.mtime.ns() > PACKED_OLD_NS;
        return old.then_some(Held { _file: None });
    }
    let place = plfs.placed(path, Links::Stay).ok()?;
    let file = plfs.store().open(&place, Open::READ).ok()?;
    let tells = plfs.store().is_local(&place) || file.locks_are_shared();
    if tells { Held::on(plfs, path, file) } else { None }
}

/// Who makes an unfinished copy has this lock on its file.
pub struct Held {
    /// None of a file in a pack.
    _file: Option<Arc<dyn StoreFile>>,
}

impl Held {
    /// `None` if somebody else has it, or `file` is no longer what is at `path`.
    fn on(plfs: &Plfs, path: &Path, file: Arc<dyn StoreFile>) -> Option<Held> {
        let is_ours = file.try_lock(LockKind::Exclusive).unwrap_or(false);
        let (own, now) = (file.stat().ok()?, out::stored(plfs, path, Links::Stay).ok()?);
        let is_there = (own.dev, own.ino) == (now.dev, now.ino);
        (is_ours && is_there).then_some(Held { _file: Some(file) })
    }
}

/// A new file that nobody sees as yet.
struct New {
    tmp: PathBuf,
    to: Target,
    held: Held,
}

impl New {
    fn begin(plfs: &Plfs, dst: &Path, logical: bool) -> Result<New, Fail> {
        for nth in 0..2 * TMP_TRIES {
            let tmp = temporary(dst, nth);
            // In a flat directory a rename to another backend costs each lookup from then on.
            if nth < TMP_TRIES && !plfs.is_beside(&tmp, dst)? {
                continue;
            }
            let mut made = create(plfs, &tmp, logical);
            if matches!(&made, Err(error) if error.errno() == Errno::EXIST)
                && let Some(_held) = killed(plfs, &tmp)
                && plfs.unlink(&tmp).is_ok()
            {
                made = create(plfs, &tmp, logical);
            }
            let held = match &made {
                Ok((_, None)) => Some(Held { _file: None }),
                Ok((_, Some(name))) => Held::on(plfs, &tmp, name.clone()),
                Err(_) => None,
            };
            match (made, held) {
                (Ok((to, _)), Some(held)) => return Ok(New { tmp, to, held }),
                // Another copy to this name is going on, or somebody took this one for dead.
                (Ok(_), None) => {}
                (Err(error), _) if error.errno() == Errno::EXIST => {}
                // Its path is that of the unfinished copy.
                (Err(plfs_core::Error::Io { errno, .. }), _) => {
                    return Err(Fail::on("create", dst, errno));
                }
                (Err(other), _) => return Err(other.into()),
            }
        }
        Err(Fail::on("create", dst, Errno::BUSY))
    }
}

/// Makes the file, and gives what its name is on the storage, unless that is in a pack.
fn create(
    plfs: &Plfs,
    tmp: &Path,
    logical: bool,
) -> plfs_core::Result<(Target, Option<Arc<dyn StoreFile>>)> {
    let io = |errno| plfs_core::Error::Io { op: "create", path: tmp.to_path_buf(), errno };
    let is_flat = is_flat(plfs, tmp)?;
    if !logical && !is_flat {
        let file = plfs.store().open(tmp, Open::create_new(0o600)).map_err(io)?;
        return Ok((Target::Plain(file.clone()), Some(file)));
    }
    let options = OpenOptions {
        access: Access { read: true, write: true },
        create: true,
        exclusive: true,
        mode: 0o600,
        ..OpenOptions::read()
    };
    let (file, name) = match plfs.is_born_packed(tmp)? {
        // There a file is plain until several processes write it.
        _ if is_flat => {
            let file = plfs.open(tmp, options)?.file();
            let name = match file.plain_file() {
                Some(plain) => plain,
                None => {
                    plfs.store().open(&plfs.placed(tmp, Links::Stay)?, Open::READ).map_err(io)?
                }
            };
            (file, Some(name))
        }
        true => {
            let user = rustix::process::geteuid().as_raw();
            let group = rustix::process::getegid().as_raw();
            (plfs.create_packed(tmp, options, (user, group))?, None)
        }
        false => {
            let (file, name) = plfs.create_with_name(tmp, options)?;
            (file, Some(name))
        }
    };
    Ok((Target::Logical(Box::new(file)), name))
}

impl Job<'_> {
    /// Makes contents and attributes of the new file, and makes it durable.
    fn fill(
        &self,
        from: &Opened,
        stat: &Stat,
        new: New,
        src: &Path,
        dst: &Path,
    ) -> Result<Held, Fail> {
        let New { tmp, to, held } = new;
        let (plfs, tmp) = (self.plfs, &*tmp);
        let bar = self.bar.clone().unwrap_or_else(|| progress(stat.len));
        let (buf, logs, done, stop) = (Vec::new(), HashMap::new(), self.done, self.stop);
        let mut copy = Copy { to: &to, src, dst, buf, logs, direct: true, bar, done, stop };
        let mut len = stat.len;
        match from {
            Opened::Logical(file) => copy.logical(file, len)?,
            Opened::Plain(file) => match file.plain_file() {
                Some(plain) => len = copy.plain(plain.as_ref(), len)?,
                // It became a shared one meanwhile.
                None if file.is_packed() => copy.packed(file, len)?,
                None => copy.logical(file, len)?,
            },
        }
        if self.bar.is_none() {
            copy.bar.finish_and_clear();
        }
        // Zeros would stand for what was there.
        let (Opened::Logical(file) | Opened::Plain(file)) = from;
        if file.stat()?.len < stat.len {
            return Err(was_cut(src));
        }
        if file.lacks_logs()? {
            return Err(lacks(src, "; nothing was copied; `plfs cat` gives what is left"));
        }
        let failed = |errno: Errno| Fail::on("write", dst, errno);
        let (uid, gid) =
            rustix::process::geteuid().is_root().then_some((stat.uid, stat.gid)).unzip();
        match to {
            Target::Logical(file) => {
                file.set_len(len)?;
                file.sync()?;
                file.close()?;
                if uid.is_some() {
                    plfs.chown(tmp, uid, gid, Links::Stay)?;
                }
                plfs.chmod(tmp, stat.mode & 0o777)?;
                plfs.set_times(tmp, Some(stat.atime), Some(stat.mtime))?;
            }
            Target::Plain(file) => {
                file.set_len(len).map_err(failed)?;
                if uid.is_some() {
                    plfs.store().chown(tmp, uid, gid, Links::Stay).map_err(failed)?;
                }
                plfs.store().chmod(tmp, stat.mode & 0o777).map_err(failed)?;
                plfs.store().set_times(tmp, Some(stat.atime), Some(stat.mtime)).map_err(failed)?;
                let fd = file.fd().ok_or_else(|| failed(Errno::BADF))?;
                rustix::fs::fsync(fd).map_err(failed)?;
            }
        }
        Ok(held)
    }
}

/// Whether the directory of `dst` spreads its names.
fn is_flat(plfs: &Plfs, dst: &Path) -> plfs_core::Result<bool> {
    plfs.is_flat(dst.parent().unwrap_or(Path::new("/")))
}

/// Gives the complete file its name.
fn appear(plfs: &Plfs, tmp: &Path, dst: &Path, force: bool) -> Result<(), Fail> {
    let store = plfs.store();
    if is_flat(plfs, dst)? {
        if force {
            plfs.rename(tmp, dst).map_err(|error| Fail::on("replace", dst, error.errno()))?;
        } else {
            match plfs.link(tmp, dst) {
                Err(error) if error.errno() == Errno::EXIST => return Err(exists(dst)),
                Err(error) => return Err(Fail::on("create", dst, error.errno())),
                Ok(()) => plfs.unlink(tmp)?,
            }
        }
        let place = plfs.placed(dst, Links::Stay)?;
        let shadow = place.parent().unwrap_or(Path::new("/"));
        return store.sync_dir(shadow).map_err(|errno| Fail::on("sync", shadow, errno));
    }
    if plfs.packed_stat(tmp)?.is_some() {
        // A pack has no links; of two that do this at once one may replace the other's.
        if !force && plfs.stat(dst, Links::Stay).is_ok() {
            return Err(exists(dst));
        }
        plfs.rename(tmp, dst).map_err(|error| Fail::on("replace", dst, error.errno()))?;
        if let Some(pack) = dst.parent().map(|dir| plfs.pack(dir)).transpose()?.flatten() {
            pack.sync()?;
        }
        return Ok(());
    }
    if force {
        plfs.rename(tmp, dst).map_err(|error| Fail::on("replace", dst, error.errno()))?;
    } else {
        // link(2) fails if the name exists, on every file system that has links.
        match store.link(tmp, dst) {
            Ok(()) => store.unlink(tmp).map_err(|errno| Fail::on("remove", tmp, errno))?,
            Err(Errno::EXIST) => return Err(exists(dst)),
            Err(Errno::PERM | Errno::OPNOTSUPP | Errno::MLINK) => plfs.rename(tmp, dst)?,
            Err(errno) => return Err(Fail::on("create", dst, errno)),
        }
    }
    match store.sync_dir(dst.parent().unwrap_or(Path::new("/"))) {
        Ok(()) | Err(Errno::ACCESS | Errno::PERM) => Ok(()),
        Err(errno) => Err(Fail::on("sync the directory of", dst, errno)),
    }
}

enum Target {
    Logical(Box<File>),
    Plain(Arc<dyn StoreFile>),
}

struct Copy<'a> {
    to: &'a Target,
    src: &'a Path,
    dst: &'a Path,
    buf: Vec<u8>,
    /// Data logs that the storage copies from.
    logs: HashMap<PathBuf, Arc<dyn StoreFile>>,
    /// Whether to use copy_file_range: true until it fails.
    direct: bool,
    bar: ProgressBar,
    /// Bytes that the bar counts before this file.
    done: u64,
    stop: &'a AtomicBool,
}

impl Copy<'_> {
    /// Copies what is written of a PLFS file; holes stay holes.
    fn logical(&mut self, file: &File, len: u64) -> Result<(), Fail> {
        let mut at = 0;
        while let Some(start) = file.next_data(at)?.filter(|start| *start < len) {
            go_on(self.stop)?;
            let most = (start + STEP as u64).min(len);
            let (extents, end) = file.extents_some(start, most, PIECES)?;
            let mut i = 0;
            while i < extents.len() {
                let first = &extents[i];
                i += 1;
                if first.length >= CLONE_MIN && self.clone(first, file) {
                    continue;
                }
                let mut stop = first.logical + first.length;
                while let Some(next) = extents
                    .get(i)
                    .filter(|next| next.logical - stop < HOLE_MIN && next.length < CLONE_MIN)
                {
                    stop = next.logical + next.length;
                    i += 1;
                }
                self.move_all(first.logical, stop, file)?;
            }
            at = end;
            self.bar.set_position(self.done + at);
        }
        Ok(())
    }

    /// Copies a file of a pack, which is small.
    fn packed(&mut self, file: &File, len: u64) -> Result<(), Fail> {
        self.move_all(0, len, file)
    }

    /// Copies bytes `[from, to)`, which the file had. A read that ends before them tells of a cut
    /// that the length at the end does not: the file may have grown again since.
    fn move_all(&mut self, from: u64, to: u64, file: &File) -> Result<(), Fail> {
        match self.move_bytes(from, to, |buf, at| Ok(file.read_at(buf, at)?))? {
            end if end < to => Err(was_cut(self.src)),
            _ => Ok(()),
        }
    }

    /// Copies a plain file; holes stay holes where the file system can tell them. Gives its length,
    /// which is another than its size where a file system makes up what is read.
    fn plain(&mut self, file: &dyn StoreFile, len: u64) -> Result<u64, Fail> {
        let (src, mut at) = (self.src, 0);
        let mut read = |buf: &mut [u8], at| {
            file.read_at(buf, at).map_err(|errno| Fail::on("read", src, errno))
        };
        if len == 0 {
            return self.move_bytes(0, u64::MAX, read);
        }
        let seek = |to: SeekFrom| {
            file.fd().map(|fd| rustix::fs::seek(fd, to)).unwrap_or(Err(Errno::INVAL))
        };
        while at < len {
            let start = match seek(SeekFrom::Data(at)) {
                Ok(start) => start,
                Err(Errno::NXIO) => break,
                Err(_) => at,
            };
            let end = seek(SeekFrom::Hole(start)).unwrap_or(len).min(start + (64 << 20));
            let end = end.max(start + 1);
            at = self.move_bytes(start, end, &mut read)?;
            if at < end {
                return Ok(at);
            }
            self.bar.set_position(self.done + at);
        }
        Ok(len)
    }

    /// Copies bytes `[from, to)` by reading and writing; less if the source ends before. Gives
    /// where it ended.
    fn move_bytes(
        &mut self,
        mut from: u64,
        to: u64,
        mut read: impl FnMut(&mut [u8], u64) -> Result<usize, Fail>,
    ) -> Result<u64, Fail> {
        self.buf.resize(STEP, 0);
        while from < to {
            go_on(self.stop)?;
            let n = self.buf.len().min(usize::try_from(to - from).unwrap_or(usize::MAX));
            let n = read(&mut self.buf[..n], from)?;
            if n == 0 {
                break;
            }
            match self.to {
                Target::Plain(file) => write_full(file.as_ref(), &self.buf[..n], from)
                    .map_err(|errno| Fail::on("write", self.dst, errno))?,
                Target::Logical(file) => {
                    let mut done = 0;
                    while done < n {
                        match file.write_at(&self.buf[done..n], from + done as u64)? {
                            0 => return Err(Fail::on("write", self.dst, Errno::NOSPC)),
                            more => done += more,
                        }
                    }
                }
            }
            from += n as u64;
        }
        Ok(from)
    }

    /// Copies a piece from its data log to a plain file by copy_file_range. False if the storage
    /// cannot: the caller then copies it by reading and writing.
    fn clone(&mut self, piece: &Extent, file: &File) -> bool {
        let Target::Plain(to) = self.to else { return false };
        if !self.direct {
            return false;
        }
        if self.logs.len() > 256 {
            self.logs.clear();
        }
        let log = match self.logs.get(&piece.data_log) {
            Some(log) => log.clone(),
            None => match file
                .container()
                .map(|container| &container.store)
                .map_or(Err(Errno::NOENT), |store| store.open(&piece.data_log, Open::READ))
            {
                Ok(log) => self.logs.entry(piece.data_log.clone()).or_insert(log).clone(),
                Err(_) => return false,
            },
        };
        match (log.fd(), to.fd()) {
            (Some(log), Some(to)) => {
                self.direct = copy_range(log, to, piece);
                self.direct
            }
            _ => false,
        }
    }
}

fn copy_range(log: BorrowedFd<'_>, to: BorrowedFd<'_>, piece: &Extent) -> bool {
    let (mut from, mut into, mut left) = (piece.physical, piece.logical, piece.length);
    while left > 0 {
        match rustix::fs::copy_file_range(
            log,
            Some(&mut from),
            to,
            Some(&mut into),
            usize::try_from(left).unwrap_or(usize::MAX),
        ) {
            Ok(n) if n > 0 => left -= n as u64,
            Err(Errno::INTR) => {}
            _ => return false,
        }
    }
    true
}
