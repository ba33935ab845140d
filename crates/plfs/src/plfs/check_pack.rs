//! What a check says of packs: whether their files can be read, and what is beside them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use plfs_format::pack;

use super::Plfs;
use crate::container;
use crate::error::Result;
use crate::lifecycle::{Report, Severity};
use crate::pack::{Pack, PackOpen, PackOptions};
use crate::store::Links;

/// Bytes that are read at once, 1 MiB.
const READ_BYTES: usize = 1 << 20;
/// Names that are taken at once.
const NAMES: usize = 4096;

impl Plfs {
    /// Reads all that the pack of a directory has, and looks for ordinary files that it hides and
    /// for what commands that were killed left; `None` if there is no pack.
    pub fn check_pack(&self, dir: &Path) -> Option<Report> {
        let path = dir.join(pack::NAME);
        let mut report =
            Report { dir: path.clone(), names: vec![path.clone()], ..Report::default() };
        let (store, config) = (&self.process.store, &self.process.config);
        match Pack::find(store, config, dir, PackOptions::default()) {
            Ok(None) => return None,
            Err(error) => report.fail(&path, &error),
            Ok(Some(pack)) => {
                report.dir = pack.container().dir.to_path_buf();
                report.uuid = Some(pack.container().superblock.uuid);
                if let Err(error) = self.look_through(&pack, dir, &mut report) {
                    report.fail(&path, &error);
                }
            }
        }
        Some(report)
    }

    fn look_through(&self, pack: &Pack, dir: &Path, report: &mut Report) -> Result<()> {
        if pack.is_written()? {
            report.find(Severity::Busy, dir, 0, "a process has its pack open for writing");
        }
        let store = &self.process.store;
        let (mut after, mut buffer) = (Vec::new(), vec![0; READ_BYTES]);
        loop {
            let names = pack.list(&after, NAMES)?;
            let Some((last, _)) = names.last() else { break };
            after = last.to_vec();
            for (name, stat) in names {
                let path = dir.join(OsStr::from_bytes(&name));
                let mut read = || -> Result<()> {
                    let file = pack.open_file(&name, PackOpen::default())?;
                    // Not the holes: a file of a few bytes may be 2^63 long.
                    for (from, length) in pack.data_of(&file)? {
                        let (mut at, end) = (from, (from + length).min(stat.size));
                        while at < end {
                            let most = (end - at).min(READ_BYTES as u64) as usize;
                            match pack.read_at(&file, &mut buffer[..most], at)? {
                                0 => break,
                                n => at += n as u64,
                            }
                        }
                    }
                    Ok(())
                };
                match read() {
                    Err(error) if error.errno() == crate::store::Errno::NOENT => {}
                    Err(error) => report.find(Severity::Corrupt, &path, 0, error.to_string()),
                    Ok(()) => {}
                }
                if store.stat(&path, Links::Stay).is_ok() {
                    let what = "it is in the pack, and an ordinary file has the same name and is \
                                not seen: move that away, by a program without PLFS";
                    report.find(Severity::Garbage, path, 0, what);
                }
            }
        }
        let name = dir.join(pack::NAME);
        if store.stat(&name, Links::Stay).is_ok_and(|stat| stat.mode & pack::CHANGING != 0) {
            let what = "files move into the pack or out of it; if nobody does that any more it was \
                        killed: `plfs pack` or `plfs unpack` of the directory goes on";
            report.find(Severity::Garbage, name, 0, what);
        }
        for entry in store.list(dir).unwrap_or_default() {
            if container::is_of_pack(&entry.name) && entry.name != pack::NAME {
                let what = "a command was killed while it moved files; `plfs pack` or `plfs \
                            unpack` of the directory goes on";
                report.find(Severity::Garbage, dir.join(entry.name), 0, what);
            }
        }
        Ok(())
    }
}
