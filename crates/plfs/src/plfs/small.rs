//! Files of packs by their paths: opened, made, moved out. What names and attributes need is here,
//! too; `names` has it from here.
//!
//! Beside a pack there may be ordinary files. A name that both have is the pack's; who creates one
//! is told of either. So nothing is hidden but by who does not know of the pack, and `check` names
//! that.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::iter;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use plfs_format::layout::Workload;
use plfs_format::pack;

use super::{OpenOptions, Plfs};
use crate::container;
use crate::error::{At, Error, Result};
use crate::file::{Access, File, Packed};
use crate::log::Durability;
use crate::pack::{FileId, Pack, PackOpen, PackOptions, PackStat, Since};
use crate::packs::{OpenPack, PackPlace, StandIn, Wanted};
use crate::process::Process;
use crate::store::machine::{group, random_u64, umask};
use crate::store::{Entry, Errno, Kind, Links, Open, Stat, Store};
use crate::sync::Arc;

/// Bytes that are copied at once when a file moves out. 1 MiB, which is about all.
const COPY_BYTES: usize = 1 << 20;

/// A file that is larger when it is first looked at has holes, which a copy would fill: it stays.
/// 64 MiB.
const MOVED_MAX: u64 = 64 << 20;

/// Symbolic links that lead to each other at most, as Linux has it (path_resolution(7)).
const LINKS_MAX: usize = 40;

/// A name of a pack.
pub(super) type Packs<'a> = (Arc<OpenPack>, &'a [u8]);

/// A name of a pack, or one that a new file of it gets: see [`Plfs::small`].
#[derive(Debug)]
pub struct Small<'a> {
    pack: Arc<OpenPack>,
    name: &'a [u8],
    path: &'a Path,
    stat: Option<PackStat>,
    /// Of [`Pack::since`], before somebody looked for an ordinary file.
    since: Option<Since>,
}

impl Small<'_> {
    /// What it is; `None`: it is new.
    pub fn stat(&self) -> Option<PackStat> {
        self.stat
    }

    /// A file in memory that stands for the pack's name, to be opened again by its descriptor:
    /// that costs the storage nothing. `None`: there is none.
    pub fn stand_in(&self) -> Option<Arc<StandIn>> {
        self.pack.stand_in()
    }

    /// The name of the pack, whose inode stands for all its files.
    pub fn pack_name(&self) -> PathBuf {
        self.pack.dir().join(pack::NAME)
    }
}

impl Plfs {
    /// The name `path` in the pack of its directory; with `create` also if it is in none and a new
    /// file goes there, whose pack is made if there is none. `None`: an ordinary file, or nothing.
    /// `writes`: it is to be written.
    ///
    /// Costs a stat in a directory with a pack, and another one with `create`; where storage
    /// travels hardly any (docs/decisions/0023), but for a file that is there and is to be written.
    pub fn small<'a>(
        &self,
        path: &'a Path,
        create: bool,
        writes: bool,
    ) -> Result<Option<Small<'a>>> {
        let Some((dir, name)) = parts(path) else { return Ok(None) };
        let wanted = if create { Wanted::Make } else { Wanted::Know };
        let mut pack = self.find_pack(dir, wanted)?;
        if writes && let Some(known) = &pack {
            // What is there is not written because of what was seen a moment ago.
            if self.shown_in(known, path)?.is_some() {
                pack = self.pack(dir)?;
            }
            if pack.as_ref().is_some_and(|pack| pack.is_changing()) {
                self.before_write(path)?;
                pack = self.pack(dir)?;
            }
        }
        if let Some(known) = &pack
            && let Some(stat) = self.shown_in(known, path)?
        {
            let stat = Some(stat);
            return Ok(pack.map(|pack| Small { pack, name, path, stat, since: None }));
        }
        // A layout that cannot be read refuses new files only, and where they are made.
        if !create || !matches!(self.is_born_packed(path), Ok(true)) {
            return Ok(None);
        }
        super::must_be_no_layout(path)?;
        let since = match self.look_beside(pack.as_deref(), (dir, name), path) {
            Err(error) if error.errno() == Errno::EXIST => return Ok(None),
            other => other?,
        };
        let pack = pack.map_or_else(|| self.make_pack(dir), Ok)?;
        if pack.is_changing() && pack.is_leaving()? {
            return Ok(None);
        }
        Ok(Some(Small { pack, name, path, stat: None, since }))
    }

    /// For who is about to make a file of the pack: EEXIST if there is an ordinary one, as it was a
    /// moment ago or is now, or anything else. Gives [`Pack::since`] before the look.
    fn look_beside(
        &self,
        pack: Option<&OpenPack>,
        (dir, name): (&Path, &[u8]),
        path: &Path,
    ) -> Result<Option<Since>> {
        let store = self.process.store.as_ref();
        if let Some(seen) = pack.and_then(|pack| pack.has_not(store, dir, name)) {
            return Ok(Some(seen));
        }
        let since = pack.and_then(|pack| pack.since());
        self.is_free(path).map(|()| since)
    }

    /// EEXIST if there is an ordinary file, or anything else.
    fn is_free(&self, path: &Path) -> Result<()> {
        match self.process.store.stat(path, Links::Stay) {
            Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(errno).at("create", path),
            Ok(_) => Err(Errno::EXIST).at("create", path),
        }
    }

    /// For who has just made something at `path` that is no file of a pack. If the pack of the
    /// directory has the name meanwhile, it goes again: EEXIST. Processes that make files there
    /// after this find it.
    pub fn made_beside(&self, path: &Path) -> Result<()> {
        let Some((dir, name)) = parts(path) else { return Ok(()) };
        let Some(pack) = self.pack(dir)? else { return Ok(()) };
        pack.changes();
        // Who may not write the pack has looked before.
        if pack.may_be_beside(name).unwrap_or(true) {
            return Ok(());
        }
        let store = &self.process.store;
        let gone = match store.stat(path, Links::Stay) {
            Ok(stat) if stat.kind == Kind::Dir => store.rmdir(path),
            // The bytes have another name.
            Ok(stat) if stat.kind != Kind::File || stat.nlink > 1 => store.unlink(path),
            _ => return Ok(()),
        };
        match gone {
            Ok(()) | Err(Errno::NOENT) => Err(Errno::EXIST).at("make", path),
            // Somebody has put something in there.
            Err(_) => Ok(()),
        }
    }

    /// Opens or creates what [`Plfs::small`] found. A new file belongs to this process's user, and
    /// to the group that the kernel would give it; the umask cuts its mode.
    pub fn open_small(&self, small: Small<'_>, options: OpenOptions) -> Result<File> {
        let Small { pack, name, path, stat, since } = small;
        // As Linux has it, also of a file that is opened for reading.
        let truncate = options.truncate;
        let mut how = PackOpen { truncate, ..PackOpen::default() };
        if options.create {
            let store = &self.process.store;
            let of_dir = pack.group_of_new(|dir| {
                let stat = store.stat(dir, Links::Follow).at("stat", dir)?;
                Ok((stat.mode & 0o2000 != 0).then_some(stat.gid))
            })?;
            (how.create, how.exclusive) = (true, options.exclusive);
            (how.mode, how.uid) = (options.mode & !umask(), store.user());
            how.gid = of_dir.unwrap_or_else(group);
        }
        if truncate || stat.is_none() {
            pack.changes();
        }
        let file = pack.open_file_beside(name, how, (since, &|| self.is_free(path)))?;
        Ok(File::of_pack(Packed::new(pack, file), path.to_path_buf(), options.access))
    }

    /// A handle on the file of a pack that another program of the node had open, and handed over:
    /// by the place of the pack, the file's id and a name that it had. ENOENT if the pack is not
    /// there any more.
    pub fn open_inherited(
        &self,
        place: &PackPlace,
        (id, name): (FileId, &[u8]),
        access: Access,
    ) -> Result<File> {
        let dir = &place.dir;
        let pack = self.pack(dir)?.filter(|pack| pack.container().identity == place.identity);
        let pack = match pack {
            // The directory was renamed.
            None => {
                let Process { packs, store, config, .. } = &*self.process;
                packs.find_by_container(store, config, place)?
            }
            pack => pack,
        };
        let pack = pack.map_or_else(|| Err(Errno::NOENT).at("open the pack of", dir), Ok)?;
        let file = pack.open_id(id, name)?;
        let path = pack.dir().join(OsStr::from_bytes(name));
        Ok(File::of_pack(Packed::new(pack, file), path, access))
    }

    /// Another handle on the file of a pack that a handle is on, which is cut if `options` say so.
    pub fn open_again(&self, file: &File, options: OpenOptions) -> Result<Option<File>> {
        let Some(packed) = file.packed() else { return Ok(None) };
        let (pack, path) = (packed.pack.clone(), file.path().to_path_buf());
        let again = pack.open_id(packed.file.id(), packed.file.name())?;
        let again = Packed::new(pack, again);
        // As Linux has it, also of a file that is opened for reading.
        if options.truncate {
            again.set_len(0)?;
        }
        Ok(Some(File::of_pack(again, path, options.access)))
    }

    /// The name of a pack that `path` is, or that symbolic links there lead to if `links` says so,
    /// and what it is. The links cost a call each.
    pub fn packed_behind(&self, path: &Path, links: Links) -> Result<Option<(PathBuf, Stat)>> {
        let (path, stat) = self.behind(path, links)?;
        Ok(stat.map(|stat| (path, stat)))
    }

    /// Where links at `path` lead, if `links` says that they are followed, and what a pack has
    /// there; the last of them is not followed that leads to nothing.
    pub fn behind(&self, path: &Path, links: Links) -> Result<(PathBuf, Option<Stat>)> {
        let mut path = path.to_path_buf();
        for _ in 0..LINKS_MAX {
            if let Some((dir, _)) = parts(&path)
                && let Some(pack) = self.find_pack(dir, Wanted::Know)?
                && let Some(stat) = self.shown_in(&pack, &path)?
            {
                return Ok((path, Some(stat.stat(pack.container().identity))));
            }
            let Links::Follow = links else { break };
            let Some(target) = self.target_of(&path) else { break };
            path = target;
        }
        Ok((path, None))
    }

    /// What a symbolic link leads to in the end, where nothing is. `None`: `path` is no link. Costs
    /// a call for each link.
    pub fn end_of_links(&self, path: &Path) -> Option<PathBuf> {
        let target_of = |link: &PathBuf| self.target_of(link);
        iter::successors(self.target_of(path), target_of).take(LINKS_MAX).last()
    }

    /// What one symbolic link leads to.
    pub(super) fn target_of(&self, link: &Path) -> Option<PathBuf> {
        let target = self.process.store.readlink(link).ok()?;
        Some(link.parent().unwrap_or(Path::new("/")).join(target))
    }

    /// [`Plfs::packed_behind`] where the file system has given `errno`: nothing but for ENOENT.
    pub(super) fn behind_links(
        &self,
        errno: Errno,
        path: &Path,
        links: Links,
    ) -> Result<Option<(PathBuf, Stat)>> {
        match errno {
            Errno::NOENT => self.packed_behind(path, links),
            _ => Ok(None),
        }
    }

    /// What `act` gives, which changes what a path leads to. If a pack that it found is removed
    /// before it comes to that, it has changed nothing, and begins anew.
    pub(super) fn beside_unpack<T>(&self, mut act: impl FnMut() -> Result<T>) -> Result<T> {
        loop {
            match act() {
                Err(error) if self.forgets_gone(&error) => {}
                other => return other,
            }
        }
    }

    /// Whether a call failed because the pack that it found was removed: then that is not found
    /// again.
    pub fn forgets_gone(&self, error: &Error) -> bool {
        let Error::PackGone { identity, .. } = error else { return false };
        self.process.packs.give_up(*identity);
        true
    }

    /// Whether the process has found a pack yet.
    pub fn knows_packs(&self) -> bool {
        self.process.packs.any()
    }

    /// A directory may have another name: what was [seen](OpenPack::has_not) a moment ago is not
    /// believed.
    pub fn forget_packs_seen(&self) {
        if self.knows_packs() {
            self.process.packs.forget_dirs();
        }
    }

    /// The pack of the directory `dir`, if it has one. Costs a stat; for a directory that had none
    /// a moment ago, and is not for small files, nothing.
    pub fn pack(&self, dir: &Path) -> Result<Option<Arc<OpenPack>>> {
        self.find_pack(dir, Wanted::Change(None))
    }

    pub(super) fn find_pack(&self, dir: &Path, wanted: Wanted) -> Result<Option<Arc<OpenPack>>> {
        let gets_one = || matches!(self.workload_of(&dir.join("file")), Ok(Workload::Small));
        let Process { packs, store, config, .. } = &*self.process;
        packs.find(store, config, (dir, wanted), gets_one)
    }

    /// [`Plfs::pack`], as it was a tenth of a second ago at most, for who wants to know names.
    pub fn pack_as_seen(&self, dir: &Path) -> Result<Option<Arc<OpenPack>>> {
        self.find_pack(dir, Wanted::Know)
    }

    /// The pack of a directory for a new file; made if there is none. It belongs to the directory's
    /// owner.
    pub fn make_pack(&self, dir: &Path) -> Result<Arc<OpenPack>> {
        if let Some(found) = self.find_pack(dir, Wanted::Make)? {
            return Ok(found);
        }
        let store = &self.process.store;
        let of_dir = store.stat(dir, Links::Follow).at("stat", dir)?;
        let of_owner = store.for_owner(of_dir.uid, of_dir.gid);
        let store = of_owner.as_ref().unwrap_or(store);
        let made = Pack::open(store, &self.process.config, dir, PackOptions::default())?;
        drop(made);
        self.process.packs.forget_dirs();
        self.pack(dir)?.map_or_else(|| Err(Errno::NOENT).at("open the pack of", dir), Ok)
    }

    /// The pack that has the name `path`.
    pub(super) fn in_pack<'a>(&self, path: &'a Path, wanted: Wanted) -> Result<Option<Packs<'a>>> {
        let Some((dir, name)) = parts(path) else { return Ok(None) };
        let Some(pack) = self.find_pack(dir, wanted)? else { return Ok(None) };
        Ok(self.shown_in(&pack, path)?.map(|_| (pack, name)))
    }

    /// What a name of a pack is; `None` for others.
    pub fn packed_stat(&self, path: &Path) -> Result<Option<PackStat>> {
        let Some((dir, _)) = parts(path) else { return Ok(None) };
        self.find_pack(dir, Wanted::Know)?.map_or(Ok(None), |pack| self.shown_in(&pack, path))
    }

    /// A handle on the file of a pack with this path; `None` if it is none.
    pub fn open_packed(&self, path: &Path, options: OpenOptions) -> Result<Option<File>> {
        self.beside_unpack(|| {
            if options.access.write && self.is_changing(path)? {
                self.before_write(path)?;
            }
            let wanted = if options.access.write { Wanted::Change(None) } else { Wanted::Know };
            let found = self.in_pack(path, wanted)?;
            found.map(|found| self.open_in(found, path, options)).transpose()
        })
    }

    fn open_in(&self, (pack, name): Packs<'_>, path: &Path, options: OpenOptions) -> Result<File> {
        if options.create && options.exclusive {
            return Err(Errno::EXIST).at("create", path);
        }
        let truncate = options.truncate && options.access.write;
        if truncate {
            pack.changes();
        }
        let file = pack.open_file(name, PackOpen { truncate, ..PackOpen::default() })?;
        Ok(File::of_pack(Packed::new(pack, file), path.to_path_buf(), options.access))
    }

    /// Creates a file at `path` in the pack of its directory, which is made if there is none. Mode
    /// and owner as they shall be.
    ///
    /// EEXIST if there is another kind of file; with `exclusive` if there is anything.
    pub fn create_packed(&self, path: &Path, options: OpenOptions, of: (u32, u32)) -> Result<File> {
        self.beside_unpack(|| self.create_in_pack(path, options, of))
    }

    fn create_in_pack(
        &self,
        path: &Path,
        options: OpenOptions,
        (uid, gid): (u32, u32),
    ) -> Result<File> {
        super::must_be_no_layout(path)?;
        let Some((dir, name)) = parts(path) else { return Err(Errno::ISDIR).at("create", path) };
        if name.len() > pack::NAME_MAX {
            return Err(Errno::NAMETOOLONG).at("create", path);
        }
        let mut pack = self.make_pack(dir)?;
        if !options.exclusive && self.shown_in(&pack, path)?.is_some() {
            // What is there is not cut because of what was seen a moment ago.
            pack = self.pack(dir)?.map_or_else(|| self.make_pack(dir), Ok)?;
        }
        let since = self.look_beside(Some(&*pack), (dir, name), path)?;
        pack.changes();
        let how = PackOpen {
            create: true,
            exclusive: options.exclusive,
            truncate: options.truncate && options.access.write,
            mode: options.mode,
            uid,
            gid,
        };
        let file = pack.open_file_beside(name, how, (since, &|| self.is_free(path)))?;
        Ok(File::of_pack(Packed::new(pack, file), path.to_path_buf(), options.access))
    }

    /// Whether a new file at `path` goes to the pack of its directory.
    pub fn is_born_packed(&self, path: &Path) -> Result<bool> {
        Ok(self.workload_of(path)? == Workload::Small)
    }

    /// The names in a directory that programs see, those of its pack as well, each once.
    pub fn list(&self, dir: &Path) -> Result<Vec<Entry>> {
        if let Some(entries) = self.list_flat(dir)? {
            return Ok(entries);
        }
        loop {
            let Some(pack) = self.pack(dir)? else { return self.list_ordinary(dir) };
            match self.list_with(&pack, dir) {
                // It was unpacked meanwhile.
                Err(_) if !self.has_pack(dir, &pack)? => {}
                other => return other,
            }
        }
    }

    fn list_ordinary(&self, dir: &Path) -> Result<Vec<Entry>> {
        let mut entries = self.process.store.list(dir).at("list", dir)?;
        entries.retain(|entry| !container::is_hidden(&entry.name));
        Ok(entries)
    }

    fn list_with(&self, pack: &OpenPack, dir: &Path) -> Result<Vec<Entry>> {
        let _turn = match pack.is_changing() {
            true => self.turn(dir)?,
            false => None,
        };
        // In this order: a file that outgrows its pack is outside before it is gone from there.
        let mut names = pack.list(b"", usize::MAX)?;
        let mut entries = self.list_ordinary(dir)?;
        if pack.is_changing() {
            let ordinary: HashSet<&[u8]> = entries.iter().map(|e| e.name.as_bytes()).collect();
            names.retain(|(name, _)| !ordinary.contains(&**name));
        }
        let is_packed = |entry: &Entry| {
            let name = entry.name.as_bytes();
            names.binary_search_by(|(packed, _)| packed.as_ref().cmp(name)).is_ok()
        };
        entries.retain(|entry| !is_packed(entry));
        let of_pack = pack.container().identity;
        entries.extend(names.drain(..).map(|(name, stat)| Entry {
            name: OsString::from_vec(name.into_vec()),
            kind: Some(Kind::File),
            ino: stat.ino(of_pack),
        }));
        Ok(entries)
    }

    /// Moves a file that has grown too large for its pack out, if this node alone has written it
    /// and no other process of it does: to an ordinary file with the same name, owner, mode and
    /// times. The handle goes on with that. Durable on return. Whether it is out.
    ///
    /// Whatever ends it leaves the file in the pack or outside; where both are, they are the same.
    /// A name that an ordinary file has already keeps its file in the pack, and so does a pack
    /// whose directory has been renamed since it was found.
    pub fn move_out(&self, file: &File) -> Result<bool> {
        let Some(packed) = file.packed() else { return Ok(false) };
        if packed.is_out() || !packed.pack.outgrown(&packed.file)? {
            return Ok(packed.is_out());
        }
        packed.move_out(|packed| {
            packed.pack.commit()?;
            let Some(name) = packed.pack.name_of(&packed.file)? else { return Ok(None) };
            let (dir, stat) = (packed.pack.dir(), packed.pack_stat()?);
            if stat.size > MOVED_MAX || !self.has_pack(&dir, &packed.pack)? {
                return Ok(None);
            }
            let (path, tmp) = (dir.join(OsStr::from_bytes(&name)), temporary(&dir));
            let made = self.write_out(packed, &stat, &tmp, &path);
            let is_out = match made {
                Ok(false) => Ok(false),
                made => made.and_then(|_| {
                    packed.pack.makes_beside()?;
                    self.process.store.sync_dir(&dir).at("sync", &dir)?;
                    // Behind the sync: a name that is there after a power cut has its bytes.
                    Ok(self.has_pack(&dir, &packed.pack)? && packed.pack.unlink_if(&name, &stat)?)
                }),
            };
            let is_in = match &is_out {
                Ok(is_out) => !is_out,
                // What failed may have been behind the removal.
                Err(_) => matches!(packed.pack.name_of(&packed.file), Ok(Some(_))),
            };
            if is_in {
                self.take_copy_away(&tmp, &path);
            }
            let _ = self.process.store.unlink(&tmp);
            match is_out? {
                true => {
                    packed.pack.sync()?;
                    self.open_own(&path).map(Some)
                }
                false => Ok(None),
            }
        })
    }

    /// Whether a directory has this pack now.
    fn has_pack(&self, dir: &Path, pack: &OpenPack) -> Result<bool> {
        let name = dir.join(pack::NAME);
        match self.process.store.stat(&name, Links::Stay) {
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(false),
            other => {
                let of = other.at("stat", &name)?;
                Ok((of.dev, of.ino) == pack.container().identity)
            }
        }
    }

    /// Takes the name `path` from the copy of a file that stays in its pack, unless somebody has
    /// put another file there meanwhile.
    fn take_copy_away(&self, tmp: &Path, path: &Path) {
        let store = &self.process.store;
        let identity = |path| store.stat(path, Links::Stay).map(|stat| (stat.dev, stat.ino));
        if let Ok(copy) = identity(tmp)
            && identity(path) == Ok(copy)
        {
            let _ = store.unlink(path);
        }
    }

    /// Copies a file of a pack to `tmp`, durably, and gives it the name `path` as well, which the
    /// caller makes durable. False if there is something.
    pub(super) fn write_out(
        &self,
        packed: &Packed,
        stat: &PackStat,
        tmp: &Path,
        path: &Path,
    ) -> Result<bool> {
        let store = self.process.store.as_ref();
        let file = store.open(tmp, Open::create_new(0o600)).at("create", tmp)?;
        let mut buffer = vec![0; COPY_BYTES];
        let mut at = 0;
        while at < stat.size {
            let n = packed.pack.read_at(&packed.file, &mut buffer, at)?;
            if n == 0 {
                break;
            }
            crate::store::write_full(file.as_ref(), &buffer[..n], at).at("write", tmp)?;
            at += n as u64;
        }
        file.set_len(stat.size).at("set the size of", tmp)?;
        attributes(store, tmp, stat)?;
        file.sync_all().at("sync", tmp)?;
        match store.link(tmp, path) {
            Err(Errno::EXIST) => Ok(false),
            other => other.at("create", path).map(|()| true),
        }
    }

    fn open_own(&self, path: &Path) -> Result<File> {
        let access = Access { read: true, write: true };
        let options = OpenOptions { access, ..OpenOptions::read() };
        let file = self.process.store.open(path, Open::READ_WRITE).at("open", path)?;
        let stat = file.stat().at("stat", path)?;
        Ok(self.created_plain(file, &stat, path, options))
    }

    /// Removes the pack of a directory, which has to be empty. ENOTEMPTY if it is not, EBUSY if
    /// another process writes it.
    pub fn remove_pack(&self, dir: &Path) -> Result<()> {
        self.take_pack(dir, |pack| {
            pack.refresh()?;
            match pack.list(b"", 1)?.is_empty() {
                true => Ok(()),
                false => Err(Errno::NOTEMPTY).at("remove the pack of", dir),
            }
        })
    }

    /// Removes the pack of a directory with all its files, for who removes the directory: it costs
    /// the same however many there are. EBUSY if another process writes it.
    pub fn remove_packed(&self, dir: &Path) -> Result<()> {
        self.take_pack(dir, |_| Ok(()))
    }

    fn take_pack(&self, dir: &Path, may_go: impl Fn(&OpenPack) -> Result<()>) -> Result<()> {
        self.take_back(dir)?;
        let Some(pack) = self.pack(dir)? else { return Ok(()) };
        let check = || {
            may_go(&pack)?;
            match pack.is_written()? {
                true => Err(Errno::BUSY).at("remove the pack of", dir),
                false => Ok(()),
            }
        };
        pack.leave()?;
        check()?;
        let (store, name) = (&self.process.store, dir.join(pack::NAME));
        // Beside the name: who comes finds no pack. Who came before has made a file, or has not.
        let aside = temporary(dir);
        store.rename(&name, &aside).at("rename", &name)?;
        pack.ring();
        if let Err(error) = check() {
            store.link(&aside, &name).at("rename", &aside)?;
            store.unlink(&aside).at("remove", &aside)?;
            return Err(error);
        }
        self.process.packs.give_up(pack.container().identity);
        self.process.packs.forget_dirs();
        store.unlink(&aside).at("remove", &aside)?;
        pack.went()
    }

    /// What processes that were killed left beside a pack: a pack that was about to be removed gets
    /// its name back, copies of files that were moving out go. The files are in the pack, or
    /// outside.
    pub(super) fn take_back(&self, dir: &Path) -> Result<()> {
        let store = &self.process.store;
        // Who moves a file out has his turn as long as there is a copy.
        let _turn = self.turn(dir)?;
        let prefix = format!("{}.", pack::NAME);
        for entry in store.list(dir).at("list", dir)? {
            let (path, name) = (dir.join(&entry.name), dir.join(pack::NAME));
            if !entry.name.as_bytes().starts_with(prefix.as_bytes()) {
                continue;
            }
            match store.stat(&path, Links::Stay) {
                Ok(stat) if stat.kind != Kind::File => {}
                Ok(_) if container::is_pack_at(store.as_ref(), &path) => {
                    if store.stat(&name, Links::Stay) == Err(Errno::NOENT) {
                        store.rename(&path, &name).at("rename", &path)?;
                        self.process.packs.forget_dirs();
                    }
                }
                Ok(_) => store.unlink(&path).at("remove", &path)?,
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// [`Plfs::unlink`] of a name of a pack.
    pub(super) fn unlink_packed(
        &self,
        pack: &Arc<OpenPack>,
        name: &[u8],
        path: &Path,
    ) -> Result<()> {
        pack.changes();
        pack.unlink(name)?;
        // One that it hid goes with it: the name is gone when this returns.
        let dir = path.parent().unwrap_or(path);
        let seen = pack.has_not(self.process.store.as_ref(), dir, name);
        if let Some((then, now)) = seen.zip(pack.since())
            && then.has_same_names(now)
        {
            return Ok(());
        }
        match self.process.store.stat(path, Links::Stay) {
            Ok(stat) if stat.kind != Kind::Dir => {
                let container = self.container_to_remove(path);
                self.process.store.unlink(path).at("remove", path)?;
                self.drop_container(container)
            }
            _ => Ok(()),
        }
    }

    /// [`Plfs::rename`] where a name is in a pack; `None` elsewhere. EXDEV out of a pack.
    ///
    /// What an ordinary file replaces goes from the pack behind the rename: whatever comes in
    /// between, the name shows the old file or the new one.
    pub(super) fn rename_packed(&self, from: &Path, to: &Path) -> Result<Option<()>> {
        let in_pack = |path| self.in_pack(path, Wanted::Change(None));
        let (source, target) = (in_pack(from)?, in_pack(to)?);
        match (source, target) {
            (None, None) => Ok(None),
            (None, Some((pack, name))) => {
                if self.process.store.stat(from, Links::Stay).at("rename", from)?.kind == Kind::Dir
                {
                    return Err(Errno::NOTDIR).at("rename", to);
                }
                // What the pack has goes behind the rename.
                self.make_durable(from, true)?;
                let rename = || self.process.store.rename(from, to).at("rename", from);
                self.rename_with(from, to, rename)?;
                self.process.store.sync_dir(to.parent().unwrap_or(to)).at("sync", to)?;
                pack.changes();
                pack.unlink(name).map(Some)
            }
            (Some((pack, name)), _) => {
                // The directory may be named by another path, through a link.
                let same = |dir: &Path| -> Result<bool> {
                    Ok(Some(dir) == from.parent()
                        || self.pack(dir)?.is_some_and(|other| {
                            other.container().identity == pack.container().identity
                        }))
                };
                let is_same = to.parent().map(same).transpose()? == Some(true);
                let Some(new) = to.file_name().filter(|_| is_same) else {
                    return Err(Errno::XDEV).at("rename", from);
                };
                super::must_be_no_layout(to)?;
                let ordinary = self.process.store.stat(to, Links::Stay).ok();
                if ordinary.is_some_and(|stat| stat.kind == Kind::Dir) {
                    return Err(Errno::ISDIR).at("rename", to);
                }
                pack.changes();
                pack.rename(name, new.as_bytes())?;
                if ordinary.is_some() {
                    let container = self.container_to_remove(to);
                    self.process.store.unlink(to).at("remove", to)?;
                    self.drop_container(container)?;
                }
                Ok(Some(()))
            }
        }
    }

    /// Commits all packs that the process has open, or makes all durable.
    pub(super) fn commit_packs(&self, promise: Durability) -> Result<()> {
        let commit = |pack: Arc<OpenPack>| match promise {
            Durability::Visible => pack.commit(),
            Durability::Durable => pack.sync(),
        };
        let told = self.process.packs.tell_all();
        self.process.packs.all().into_iter().map(commit).fold(told, Result::and)
    }

    /// Commits all packs and leaves their log sets.
    pub(super) fn leave_packs(&self) -> Result<()> {
        let packs = self.process.packs.all().into_iter();
        packs.map(|pack| pack.leave()).fold(Ok(()), Result::and)
    }
}

/// Gives a file the attributes that one of a pack has.
pub(super) fn attributes(store: &dyn Store, path: &Path, stat: &PackStat) -> Result<()> {
    let now = store.stat(path, Links::Stay).at("stat", path)?;
    if (now.uid, now.gid) != (stat.uid, stat.gid) {
        let done = store.chown(path, Some(stat.uid), Some(stat.gid), Links::Stay);
        done.at("set the owner of", path)?;
    }
    store.chmod(path, stat.mode).at("set the mode of", path)?;
    store.set_times(path, Some(stat.atime), Some(stat.mtime)).at("set the times of", path)
}

/// A name beside a pack that no program sees.
pub(super) fn temporary(dir: &Path) -> PathBuf {
    dir.join(format!("{}.{:016x}", pack::NAME, random_u64()))
}

pub(super) fn parts(path: &Path) -> Option<(&Path, &[u8])> {
    let is_own = |name: &OsStr| container::is_layout(name) || container::is_of_pack(name);
    let name = path.file_name().filter(|name| !is_own(name))?;
    Some((path.parent()?, name.as_bytes()))
}
