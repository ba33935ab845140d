//! `-r`: directories with all that is in them.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use indicatif::{ProgressBar, ProgressStyle};
use plfs_core::Plfs;
use plfs_core::store::{Errno, Kind, Links, Stat};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps};

use super::{Job, What, exists, is_managed, is_unfinished, open};
use crate::out::{Fail, absolute, several, show};

/// A directory that is copied. What cannot be copied of it is told, and the rest goes on.
pub struct Tree<'a> {
    job: Job<'a>,
    bar: ProgressBar,
    /// Device and inode of the directory that is copied to: it may lie in the other one.
    made: Option<(u64, u64)>,
    files: u64,
    failed: bool,
}

impl<'a> Tree<'a> {
    pub fn of(job: Job<'a>) -> Tree<'a> {
        let style = "{spinner} {msg}, {binary_bytes}, {binary_bytes_per_sec}";
        let bar = match std::io::stderr().is_terminal() {
            true => ProgressBar::new_spinner().with_style(
                ProgressStyle::with_template(style)
                    .unwrap_or_else(|_| ProgressStyle::default_spinner()),
            ),
            false => ProgressBar::hidden(),
        };
        bar.set_message(several(0, "file"));
        let job = Job { bar: Some(bar.clone()), ..job };
        Tree { job, bar, made: None, files: 0, failed: false }
    }

    pub fn copy(mut self, src: &Path, dst: &Path) -> Result<(), Fail> {
        let full = absolute(src)?;
        if real(dst).starts_with(real(&full)) {
            return Err(Fail::Say(format!("cannot copy {} into itself, {}", show(src), show(dst))));
        }
        let done = self.directory(&full, dst);
        self.bar.finish_and_clear();
        if self.is_stopped() {
            let files = several(self.files, "file");
            return Err(Fail::Say(format!("interrupted; copied {files}, each of them whole")));
        }
        done?;
        if self.failed { Err(Fail::Printed) } else { Ok(()) }
    }

    fn is_stopped(&self) -> bool {
        self.job.stop.load(Ordering::Relaxed)
    }

    fn directory(&mut self, src: &Path, dst: &Path) -> Result<(), Fail> {
        let plfs = self.job.plfs;
        let stat = plfs.stat(src, Links::Follow)?.stat;
        let mut entries = plfs.list(src).map_err(|error| Fail::on("list", src, error.errno()))?;
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        let is_new = match plfs.mkdir(dst, 0o700) {
            Ok(()) => true,
            Err(error) if error.errno() == Errno::EXIST => match plfs.stat(dst, Links::Stay) {
                Ok(found) if found.stat.kind == Kind::Dir => false,
                _ => return Err(Fail::Say(format!("{} exists and is no directory", show(dst)))),
            },
            Err(error) => return Err(Fail::on("create", dst, error.errno())),
        };
        if self.made.is_none() {
            let made = plfs.stat(dst, Links::Stay)?.stat;
            self.made = Some((made.dev, made.ino));
            self.make_root(dst)?;
        }
        let logical = self.job.is_logical(&dst.join("file"));
        for entry in entries.iter().filter(|entry| !is_unfinished(&entry.name)) {
            let (from, to) = (src.join(&entry.name), dst.join(&entry.name));
            let done = self.entry(&from, &to, logical).map_err(|fail| naming(fail, &from, &to));
            if self.is_stopped() {
                break;
            }
            if let Err(fail) = done {
                self.failed = true;
                self.bar.suspend(|| fail.report(self.job.name()));
            }
        }
        if is_new { attributes(plfs, dst, &stat) } else { Ok(()) }
    }

    /// What is imported to where no root is has one root, not one in each directory.
    fn make_root(&self, dst: &Path) -> Result<(), Fail> {
        let (plfs, inside) = (self.job.plfs, dst.join("file"));
        if self.job.what != What::Import || is_managed(plfs, &inside) {
            return Ok(());
        }
        let backends = plfs.config().backends_of(&inside);
        Ok(plfs_core::prepare(plfs.store(), plfs.config(), &[dst], backends)?)
    }

    fn entry(&mut self, src: &Path, dst: &Path, logical: bool) -> Result<(), Fail> {
        let plfs = self.job.plfs;
        let stat = plfs.stat(src, Links::Stay)?.stat;
        match stat.kind {
            Kind::Dir if self.made == Some((stat.dev, stat.ino)) => {
                Err(Fail::Say(format!("{} is what is copied to; left out", show(src))))
            }
            Kind::Dir => self.directory(src, dst),
            Kind::File => {
                let len = self.job.file(open(plfs, src)?, src, dst, logical)?;
                self.files += 1;
                self.job.done += len;
                self.bar.set_message(several(self.files, "file"));
                self.bar.set_position(self.job.done);
                Ok(())
            }
            Kind::Symlink => self.link(src, dst, &stat),
            Kind::Other => {
                Err(Fail::Say(format!("{} is no file, directory or link; left out", show(src))))
            }
        }
    }

    fn link(&self, src: &Path, dst: &Path, stat: &Stat) -> Result<(), Fail> {
        let plfs = self.job.plfs;
        let text = plfs.readlink(src)?;
        let mut made = plfs.symlink(&text, dst);
        if self.job.force && matches!(&made, Err(error) if error.errno() == Errno::EXIST) {
            plfs.unlink(dst).map_err(|error| Fail::on("replace", dst, error.errno()))?;
            made = plfs.symlink(&text, dst);
        }
        made.map_err(|error| match error.errno() {
            Errno::EXIST => exists(dst),
            errno => Fail::on("create", dst, errno),
        })?;
        if rustix::process::geteuid().is_root() {
            plfs.chown(dst, Some(stat.uid), Some(stat.gid), Links::Stay)?;
        }
        let time =
            |at: plfs_core::store::Time| Timespec { tv_sec: at.sec, tv_nsec: at.nsec.into() };
        let times =
            Timestamps { last_access: time(stat.atime), last_modification: time(stat.mtime) };
        let place = plfs.placed(dst, Links::Stay)?;
        rustix::fs::utimensat(CWD, &*place, &times, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|errno| Fail::on("set the times of", dst, errno))
    }
}

/// The same failure, which names one of the two files in any case: not only a part of a container.
fn naming(fail: Fail, from: &Path, to: &Path) -> Fail {
    match fail {
        Fail::Say(text) if !text.contains(&show(from)) && !text.contains(&show(to)) => {
            Fail::Say(format!("{}: {text}", show(from)))
        }
        other => other,
    }
}

/// Gives a new directory the attributes of its original.
fn attributes(plfs: &Plfs, dst: &Path, stat: &Stat) -> Result<(), Fail> {
    if rustix::process::geteuid().is_root() {
        plfs.chown(dst, Some(stat.uid), Some(stat.gid), Links::Stay)?;
    }
    // What it has from the directory above (set-group-id) stays.
    let inherited = plfs.stat(dst, Links::Stay)?.stat.mode & 0o7000;
    plfs.chmod(dst, inherited | stat.mode & 0o777)?;
    Ok(plfs.set_times(dst, Some(stat.atime), Some(stat.mtime))?)
}

/// A path without links, as far as it exists.
fn real(path: &Path) -> PathBuf {
    let found = path.ancestors().find_map(|up| {
        let rest = path.strip_prefix(up).ok()?;
        Some(std::fs::canonicalize(up).ok()?.join(rest))
    });
    found.unwrap_or_else(|| path.to_path_buf())
}
