//! What changes the names and attributes of files and directories: unlink, rename, rmdir, chmod,
//! chown, times, truncate; and what becomes of a container whose last name goes.

use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use plfs_format::attribute::Decision;
use plfs_format::name;
use plfs_format::superblock::Superblock;

use super::{OpenOptions, Opened, Plfs, may_be_logical};
use crate::autocommit::Autocommit as _;
use crate::container::{self, Container, base};
use crate::error::{At, Error, Result};
use crate::file::Access;
use crate::lifecycle;
use crate::packs::Wanted;
use crate::spread::How;
use crate::store::machine::{OpenDir, boot_time_ns, fd_path, random_u64};
use crate::store::{Errno, Kind, Links, Open, Time};
use crate::sync::atomic::Ordering;
use crate::sync::{Weak, lock};

/// How long a directory is believed to have containers, or none: 100 ms, in which a program that
/// removes many files removes some ten thousand.
const BARREN_NS: u64 = 100_000_000;
/// Directories that are remembered. 1,024: some 200 kB.
const BARREN_MAX: usize = 1024;

/// ENOENT for the name of a pack, which has all files of its directory, and for what lies beside
/// one: a mount says of them that they are not there.
fn must_not_be_of_pack(path: &Path, op: &'static str) -> Result<()> {
    match path.file_name() {
        Some(name) if container::is_of_pack(name) => Err(Errno::NOENT).at(op, path),
        _ => Ok(()),
    }
}

impl Plfs {
    /// [`Plfs::container_behind`] for who changes or removes the file and need not read it. Only
    /// who may read a file finds its container, but its owner may always let himself; others get
    /// what chmod(2) has for them (EPERM).
    pub fn container_to_change(
        &self,
        path: &Path,
        links: Links,
    ) -> Result<Option<(Container, Superblock)>> {
        self.let_in(path, links, || self.container_behind(path, links))
    }

    /// Does what needs to read the file. Its owner lets himself in for it if he may not.
    fn let_in<T>(&self, path: &Path, links: Links, act: impl Fn() -> Result<T>) -> Result<T> {
        match act() {
            Err(denied @ Error::Io { errno: Errno::ACCESS, .. }) => {
                let store = &self.process.store;
                let reached = store.reach(path, links).at("open", path)?;
                let stat = match &reached {
                    Some(file) => file.stat(),
                    None => store.stat(path, links),
                };
                let mode = stat.at("stat", path)?.mode;
                // Another file may have the name meanwhile: it keeps its mode.
                let fd = reached.as_ref().and_then(|file| file.fd());
                let of_fd = fd.map(|fd| PathBuf::from(fd_path(fd.as_raw_fd())));
                let it = of_fd.as_deref().unwrap_or(path);
                match store.chmod(it, mode | 0o400) {
                    // There is no /proc.
                    Err(Errno::NOENT | Errno::NOTDIR) if of_fd.is_some() => return Err(denied),
                    other => other.at("set the mode of", path)?,
                }
                let done = act();
                store.chmod(it, mode).at("set the mode of", path)?;
                done
            }
            other => other,
        }
    }

    /// The container of a name that is about to be removed, for [`Plfs::drop_container`]; `None`
    /// for other files. Costs nothing where there are no containers: then and now somebody looks.
    ///
    /// If this process has it open it holds it from now on, and not only when the name is gone:
    /// another process that closes it then, as a child of this one, would take the data away.
    pub fn container_to_remove(&self, path: &Path) -> Option<(Container, Superblock)> {
        if self.is_barren(path) {
            return None;
        }
        // A name that cannot be understood can still be removed; what it leaves is garbage for
        // `check`.
        let find = || self.container_named(path, Links::Stay);
        let found = self.let_in(path, Links::Stay, find).unwrap_or(None)?;
        let open = lock(&self.process.open).get(&found.0.identity).and_then(Weak::upgrade);
        if let Some(open) = open {
            // Who closes it meanwhile is the last to use it all the same.
            let committing = open.committing().clone();
            let alone = lock(&committing);
            open.container.open_now();
            let _ = open.hold();
            drop(open);
            drop(alone);
        }
        Some(found)
    }

    /// Counts when this process made a container, or began to use one that was a plain file: what
    /// is known of barren directories is void then.
    pub fn made(&self) -> u64 {
        self.made.load(Ordering::Acquire) + self.process.based.load(Ordering::Acquire)
    }

    pub(super) fn made_one(&self) {
        self.made.fetch_add(1, Ordering::AcqRel);
        lock(&self.barren).clear();
    }

    /// Whether no file at `path`, below a managed directory, had a container when somebody looked,
    /// not long ago. What is made meanwhile by another process, and loses its name meanwhile, is
    /// garbage for `check`.
    pub fn is_barren(&self, path: &Path) -> bool {
        let Some(dir) = path.parent().filter(|_| self.is_mounted(path)) else { return false };
        let now = boot_time_ns();
        if let Some((then, is_barren)) = lock(&self.barren).get(dir)
            && now.saturating_sub(*then) < BARREN_NS
        {
            return *is_barren;
        }
        let store = self.process.store.as_ref();
        let has_containers = |dir: &Path| match store.list(&dir.join(name::ROOT_DIR)) {
            Err(Errno::NOENT | Errno::NOTDIR) => false,
            Err(_) => true,
            Ok(entries) => entries.iter().any(|entry| entry.name.len() == 2),
        };
        let Ok(root) = self.root_for(path) else { return false };
        let up_to_root = |dir: &&Path| dir.starts_with(&root);
        let is_barren = !dir.ancestors().take_while(up_to_root).any(has_containers);
        let mut barren = lock(&self.barren);
        barren.put(dir.to_path_buf(), (now, is_barren));
        if barren.len() > BARREN_MAX {
            barren.pop_lru();
        }
        is_barren
    }

    /// Removes a name of any file. The container goes with the last name, as soon as nobody has it
    /// open.
    ///
    /// Of a name that a pack and an ordinary file have both go.
    pub fn unlink(&self, path: &Path) -> Result<()> {
        self.unlink_at(None, path)
    }

    /// [`Plfs::unlink`] of a name in a directory that is open as `dir`, if that is given: `path`
    /// leads through it. In a pack that costs storage that travels nothing most of the time, and
    /// without `dir` a stat.
    pub fn unlink_at(&self, dir: Option<OpenDir>, path: &Path) -> Result<()> {
        must_not_be_of_pack(path, "remove")?;
        if self.unlink_flat(path)? {
            return Ok(());
        }
        let packed = self.beside_unpack(|| {
            if let Some(done) = self.unlink_changing(path)? {
                return Ok(Some(done));
            }
            let found = self.in_pack(path, Wanted::Change(dir))?;
            found.map(|(pack, name)| self.unlink_packed(&pack, name, path)).transpose()
        })?;
        if packed.is_some() {
            return Ok(());
        }
        let container = self.container_to_remove(path);
        self.process.store.unlink(path).at("remove", path)?;
        self.drop_container(container)
    }

    /// Removes an empty directory. One that has nothing but its layout is empty.
    pub fn rmdir(&self, path: &Path) -> Result<()> {
        if self.rmdir_flat(path)? {
            return Ok(());
        }
        match self.process.store.rmdir(path) {
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            other => return other.at("remove the directory", path),
        }
        let store = &self.process.store;
        let mut entries = store.list(path).at("list", path)?;
        let is_own =
            |name: &std::ffi::OsStr| container::is_layout(name) || container::is_of_pack(name);
        if !entries.iter().all(|entry| is_own(&entry.name)) {
            return store.rmdir(path).at("remove the directory", path);
        }
        self.remove_pack(path)?;
        entries.retain(|entry| container::is_layout(&entry.name));
        let layout = path.join(name::LAYOUT);
        // Beside the directory until that is gone: somebody may make a file in it meanwhile, and
        // then it has its layout still.
        let aside = path.with_file_name(format!("{}{:016x}", name::LAYOUT_TMP, random_u64()));
        let mut is_aside = false;
        for file in entries.into_iter().map(|entry| path.join(entry.name)) {
            match file == layout {
                true => {
                    store.rename(&file, &aside).at("rename", &file)?;
                    is_aside = true;
                }
                false => store.unlink(&file).at("remove", &file)?,
            }
        }
        let removed = store.rmdir(path).at("remove the directory", path);
        if is_aside {
            match removed.is_ok() {
                true => store.unlink(&aside).at("remove", &aside)?,
                false => store.rename(&aside, &layout).at("rename", &aside)?,
            }
        }
        removed
    }

    /// Renames any file or directory; replaces atomically.
    pub fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        must_not_be_of_pack(from, "rename")?;
        super::must_be_no_layout(to)?;
        if self.rename_flat(from, to, How::Rename)? {
            return Ok(());
        }
        let packed = self.beside_unpack(|| match self.rename_changing(from, to)? {
            None => self.rename_packed(from, to),
            done => Ok(done),
        })?;
        if packed.is_some() {
            return Ok(());
        }
        self.rename_with(from, to, || self.process.store.rename(from, to).at("rename", from))
    }

    /// Whether the data of what `path` names would stay behind if only that were moved elsewhere:
    /// it is a name of a container or of a pack, or a directory with one in it that is not a root
    /// of its own. What may be one counts. Costs a stat of each file, until one is found.
    pub fn leaves_data(&self, path: &Path) -> Result<bool> {
        let store = &self.process.store;
        let stat = match store.stat(path, Links::Stay) {
            Err(Errno::NOENT) => return Ok(false),
            other => other.at("stat", path)?,
        };
        if stat.kind != Kind::Dir {
            return Ok(may_be_logical(&stat) && !matches!(self.is_logical(path), Ok(false)));
        }
        let entries = store.list(path).at("list", path)?;
        if entries.iter().any(|entry| entry.name == name::ROOT_DIR) {
            return Ok(false);
        }
        for entry in entries.iter().filter(|entry| entry.kind != Some(Kind::Symlink)) {
            if self.leaves_data(&path.join(&entry.name))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Runs `rename`, which replaces `to`, and removes the container of what was there if it lost
    /// its last name.
    ///
    /// A file that replaces another is made durable first: a rename is often durable before the
    /// data of what it renames, and after a power cut the name would show neither the old file
    /// nor the new one. ext4 does the same (auto_da_alloc).
    pub fn rename_with<T>(
        &self,
        from: &Path,
        to: &Path,
        rename: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let found = self.container_to_change(to, Links::Stay);
        // What cannot be looked at may be one: then it goes by its name only.
        let may_be_logical = !matches!(found, Ok(None));
        let replaced = found.unwrap_or(None);
        let stat = self.process.store.stat(to, Links::Stay);
        if replaced.is_some() || stat.is_ok_and(|stat| stat.kind == Kind::File) {
            self.make_durable(from, may_be_logical)?;
        }
        let done = rename()?;
        self.forget_packs_seen();
        if replaced.is_some() {
            // A power cut may undo a rename that is not durable: then the name must still find what
            // it had.
            let dir = to.parent().unwrap_or(Path::new("/"));
            self.process.store.sync_dir(dir).at("sync", dir)?;
        }
        self.drop_container(replaced)?;
        Ok(done)
    }

    /// Makes a logical file durable, with what this process has written to it; a plain one only if
    /// it `replaces` a logical one: else it is the file system that promises something or not.
    /// Nothing for a file of another user that may not be read.
    pub(super) fn make_durable(&self, path: &Path, replaces: bool) -> Result<()> {
        let store = &self.process.store;
        let sync = || match self.container_behind(path, Links::Stay) {
            // Whether it has bytes that are not durable nobody can tell now.
            Err(error @ Error::Io { .. })
                if !matches!(error.errno(), Errno::NOENT | Errno::NOTDIR | Errno::LOOP) =>
            {
                Err(error)
            }
            // The rename says what is wrong; and a damaged file can be renamed.
            Err(_) => Ok(()),
            Ok(Some(_)) => match self.open(path, OpenOptions::read())? {
                Opened::Logical(file) => file.sync().and(file.close()),
                Opened::Plain(_) => Ok(()),
            },
            Ok(None)
                if replaces
                    && store.stat(path, Links::Stay).at("stat", path)?.kind == Kind::File =>
            {
                store.open(path, Open::READ).and_then(|file| file.sync_data()).at("sync", path)
            }
            Ok(None) => Ok(()),
        };
        match self.let_in(path, Links::Stay, sync) {
            Err(error) if matches!(error.errno(), Errno::ACCESS | Errno::PERM) => Ok(()),
            other => other,
        }
    }

    /// After one of the container's names is gone: removes it if that was the last. For doors that
    /// unlink on their own.
    pub fn drop_container(&self, container: Option<(Container, Superblock)>) -> Result<()> {
        let Some((container, _)) = container else { return Ok(()) };
        lock(&self.known).pop(&container.identity);
        let open = lock(&self.process.open).get(&container.identity).and_then(Weak::upgrade);
        if let Some(open) = open {
            open.nameless.store(true, Ordering::Release);
            open.container.open_now();
            // Others of the node may close it before this process has read anything. If they have,
            // the next read says so.
            let _ = open.hold();
            return Ok(());
        }
        if container.superblock.has_base && self.process.in_place.has(container.identity) {
            // They look again now, and the last of them takes the container away.
            self.process.based.fetch_add(1, Ordering::AcqRel);
            return Ok(());
        }
        let shared_memory = self.process.config.shared_memory.as_deref();
        match container.store.stat(&container.inode_path(), Links::Stay) {
            Ok(stat) if stat.nlink > 1 => Ok(()),
            // Whoever may remove a name in a directory need not be the file's owner.
            Ok(owner) => {
                let owned = container.as_owner(owner.uid, owner.gid);
                let container = owned.as_ref().unwrap_or(&container);
                lifecycle::remove_nameless(container, shared_memory).map(drop)
            }
            Err(_) => lifecycle::remove_if_nameless(&container, shared_memory).map(drop),
        }
    }

    /// Sets permission bits of any file or directory.
    pub fn chmod(&self, path: &Path, mode: u32) -> Result<()> {
        let of_dir = |path: &Path| self.process.store.chmod(path, mode).at("set the mode of", path);
        if self.change_flat(path, of_dir)? {
            return Ok(());
        }
        if let Some(done) = self.at_place(path, Links::Follow, |path| self.chmod(path, mode))? {
            return Ok(done);
        }
        if let Some(file) = self.open_packed(path, OpenOptions::create())? {
            return file.chmod(mode);
        }
        match self.container_to_change(path, Links::Follow)? {
            Some((container, _)) => container::chmod(&container, mode),
            None => {
                self.process.store.chmod(path, mode).at("set the mode of", path)?;
                self.inode_has_changed(path, Links::Follow)
            }
        }
    }

    /// [`crate::File::inode_has_changed`] of what is named `path`.
    pub fn inode_has_changed(&self, path: &Path, links: Links) -> Result<()> {
        let store = self.process.store.as_ref();
        let stat = store.stat(path, links).at("stat", path)?;
        if stat.kind != Kind::File || stat.nlink <= 1 {
            return Ok(());
        }
        let find = || self.container_to_change(path, links);
        let is_begun = || match base::decision_of(store, path) {
            Ok(Some(Decision::Container { ino, .. })) => ino == stat.ino,
            _ => false,
        };
        let follow = |(container, _): (Container, _)| container::follow_base(&container, None);
        match base::when_made(find, is_begun).and_then(|found| found.map_or(Ok(()), follow)) {
            // Who has taken his own right to look leaves it to who makes the container.
            Err(error) if matches!(error.errno(), Errno::ACCESS | Errno::PERM) => Ok(()),
            other => other,
        }
    }

    /// Sets owner and group of any file or directory; `None` leaves one as it is.
    pub fn chown(
        &self,
        path: &Path,
        uid: Option<u32>,
        gid: Option<u32>,
        links: Links,
    ) -> Result<()> {
        let of_dir = |path: &Path| {
            self.process.store.chown(path, uid, gid, links).at("set the owner of", path)
        };
        if self.change_flat(path, of_dir)? {
            return Ok(());
        }
        let of_file = |path: &Path| self.chown(path, uid, gid, links);
        if let Some(done) = self.at_place(path, links, of_file)? {
            return Ok(done);
        }
        if let Some(file) = self.open_packed(path, OpenOptions::create())? {
            return file.chown(uid, gid);
        }
        match self.container_to_change(path, links)? {
            Some((container, _)) => {
                let open =
                    lock(&self.process.open).get(&container.identity).and_then(Weak::upgrade);
                match open {
                    Some(open) => open.chown_by(&container, uid, gid),
                    None => container::chown(&container, uid, gid),
                }
            }
            None => {
                self.process.store.chown(path, uid, gid, links).at("set the owner of", path)?;
                self.inode_has_changed(path, links)
            }
        }
    }

    /// Sets times of any file or directory; `None` leaves one as it is. They stay until data is
    /// written.
    pub fn set_times(&self, path: &Path, atime: Option<Time>, mtime: Option<Time>) -> Result<()> {
        let of_file = |path: &Path| self.set_times(path, atime, mtime);
        if let Some(done) = self.at_place(path, Links::Follow, of_file)? {
            return Ok(done);
        }
        if let Some(file) = self.open_packed(path, OpenOptions::create())? {
            return file.set_times(atime, mtime);
        }
        let stat = self.process.store.stat(path, Links::Follow).at("stat", path)?;
        if let Some(open) =
            lock(&self.process.open).get(&(stat.dev, stat.ino)).and_then(Weak::upgrade)
        {
            open.times_were_set();
        }
        self.process.store.set_times(path, atime, mtime).at("set the times of", path)
    }

    /// Sets the size of a file.
    pub fn truncate(&self, path: &Path, size: u64) -> Result<()> {
        let options =
            OpenOptions { access: Access { read: false, write: true }, ..OpenOptions::read() };
        let file = self.open(path, options)?.file();
        file.set_len(size)?;
        // Nothing was written but the cut, and that is in the logs.
        Error::unless_passing(file.close())
    }
}
