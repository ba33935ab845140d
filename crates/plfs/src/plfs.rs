//! L6: the file system as programs see it: paths to files. Keeps the table of open files, so that
//! all handles of a process on one file agree.

mod changing;
mod check_pack;
mod find;
mod in_place;
mod names;
mod repack;
mod small;
mod spread;

pub use in_place::is_too_long_to_promote;
pub use repack::{REPACK_SETTLES, Repacked};
pub use small::Small;
pub use spread::{Place, link_text_of};

use std::hash::BuildHasherDefault;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use lru::LruCache;
use plfs_format::layout::{Layout, Workload};
use plfs_format::summary::Summary;
use plfs_format::superblock::{FILE_BYTES, Superblock};

use find::KnownName;

use crate::catalog::{self, Flattened, Totals, flatten};
use crate::compact::{self, Compacted, Usage};
use crate::config::{Config, is_at_or_below, is_built};
use crate::container::{self, Container, DirTurn, DirectoryLayout};
use crate::error::{At, Error, Result};
use crate::file::{Access, File};
use crate::lifecycle;
use crate::log::{self, Durability};
use crate::logical::LogicalFile;
use crate::packs::OpenPack;
use crate::plain::PlainFile;
use crate::probe::measure_for_new;
use crate::process::{Mixer, OpenFiles, Process};
use crate::spread as spread_names;
use crate::store::writers::forget_process;
use crate::store::{Errno, Kind, Links, Number, Open, PosixStore, Stat, Store, StoreFile};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Arc, Mutex, Weak, lock};

/// How to open a file, as `open(2)`'s flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenOptions {
    /// Read and write access.
    pub access: Access,
    /// Create it if it is missing.
    pub create: bool,
    /// With `create`: it must be missing.
    pub exclusive: bool,
    /// Cut to 0 bytes.
    pub truncate: bool,
    /// Permission bits of a new file, cut by the umask.
    pub mode: u32,
    /// What the caller knows of who else will write it.
    pub writers: Writers,
}

/// Who will write a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Writers {
    /// Nobody knows: the file's directory and what happens decide.
    #[default]
    Unknown,
    /// Several processes: a container is made at once where there can be one.
    Several,
}

impl OpenOptions {
    /// Open for reading.
    pub fn read() -> OpenOptions {
        OpenOptions {
            access: Access { read: true, write: false },
            create: false,
            exclusive: false,
            truncate: false,
            mode: 0o666,
            writers: Writers::Unknown,
        }
    }

    /// Open for reading and writing, created if missing.
    pub fn create() -> OpenOptions {
        OpenOptions {
            access: Access { read: true, write: true },
            create: true,
            ..OpenOptions::read()
        }
    }
}

/// What becomes of the file by which a name was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameFile {
    /// The process has it open as long as the logical file, as a program that was given its
    /// descriptor.
    Stays,
    /// It is closed at any time.
    Closes,
}

/// What a path turned out to be.
#[derive(Debug)]
pub enum Opened {
    /// A file with a container.
    Logical(File),
    /// Some other file. If it is a regular one, it may become one with a container: calls on the
    /// handle go to that from then on.
    Plain(File),
}

impl Opened {
    /// The handle, whatever it is on.
    pub fn file(self) -> File {
        match self {
            Opened::Logical(file) | Opened::Plain(file) => file,
        }
    }
}

/// What `stat` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStat {
    /// Sizes and link count are the logical file's if it is one.
    pub stat: Stat,
    /// Totals of its container, if it is a logical file.
    pub totals: Option<Totals>,
}

/// PLFS in one process. Paths are absolute.
#[derive(Debug)]
pub struct Plfs {
    process: Arc<Process>,
    /// Plain files that are open for writing.
    plain: Mutex<OpenFiles<PlainFile>>,
    known: Mutex<LruCache<(u64, u64), KnownName, BuildHasherDefault<Mixer>>>,
    /// Directories, and when somebody looked whether there are containers (see
    /// [`Plfs::container_to_remove`]); true: none.
    barren: Mutex<LruCache<PathBuf, (u64, bool)>>,
    /// See [`Plfs::made`].
    made: AtomicU64,
    /// It has looked for what killed jobs left on this node.
    reaped: AtomicBool,
}

/// What is said of the workload flat, which is no matter of new files alone.
const NOT_BUILT: &str = "an empty directory is made flat, by `plfs layout --workload flat` or \
                         plfs_make_flat()";

/// Whether a file with this stat can have a container: it has the length of a superblock, or a
/// second name, which may be in one.
pub fn may_be_logical(stat: &Stat) -> bool {
    stat.kind == Kind::File && (stat.len == FILE_BYTES as u64 || stat.nlink > 1)
}

/// A file below a layout's name belongs to the directory, not to programs.
fn must_be_no_layout(path: &Path) -> Result<()> {
    match path.file_name() {
        Some(name) if container::is_layout(name) => {
            Err(Errno::PERM).at("create (`plfs layout` makes it)", path)
        }
        Some(name) if container::is_of_pack(name) => {
            Err(Errno::PERM).at("create (it is for the directory's pack)", path)
        }
        _ => Ok(()),
    }
}

fn packed_stat(pack: &OpenPack, name: &[u8]) -> Result<FileStat> {
    let stat = pack.stat(name)?.stat(pack.container().identity);
    Ok(FileStat { stat, totals: None })
}

/// A name that was copied without PLFS, and its container was not, reads what is there as long as
/// that is what it was. To write there would be to write to the original.
fn must_be_as_copied(
    container: &Container,
    summary: &Option<Summary>,
    path: &Path,
    stat: &Stat,
    access: Access,
) -> Result<()> {
    if !container.is_copied_away(path, stat) {
        return Ok(());
    }
    if access.write {
        let why = "it was copied without PLFS and has no data of its own; to write there would be \
                   to write to what it was copied from";
        return Err(Error::refused(Errno::ROFS, "write to", path, why));
    }
    match catalog::is_as_summed(container, summary)? {
        true => Ok(()),
        false => {
            Err(Error::StaleStub { name: path.to_path_buf(), root: container.root().to_path_buf() })
        }
    }
}

impl Plfs {
    /// PLFS on a store.
    pub fn new(store: Arc<dyn Store>, config: Config) -> Plfs {
        Plfs {
            process: Arc::new(Process::new(store, Arc::new(config))),
            plain: Mutex::default(),
            known: Mutex::new(LruCache::unbounded_with_hasher(BuildHasherDefault::default())),
            barren: Mutex::new(LruCache::unbounded()),
            made: AtomicU64::new(0),
            reaped: AtomicBool::new(false),
        }
    }

    /// PLFS on this machine's file systems.
    pub fn posix(config: Config) -> Plfs {
        Plfs::new(Arc::new(PosixStore::new()), config)
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.process.store
    }

    /// The settings.
    pub fn config(&self) -> &Config {
        &self.process.config
    }

    /// Whether this machine is the only client of the file system `dev`, on which `path` is. Asked
    /// once for each.
    pub fn is_local(&self, dev: u64, path: &Path) -> bool {
        self.process.is_local(dev, path)
    }

    /// Whether the process has used a container with a base: then handles and descriptors that it
    /// has on plain files may be on one.
    pub fn uses_bases(&self) -> bool {
        self.process.based.load(Ordering::Acquire) != 0
    }

    /// Whether the process has a file open whose container has this inode as its base.
    pub fn has_base(&self, dev: u64, ino: u64) -> bool {
        let file = || lock(&self.process.open).get(&(dev, ino)).and_then(Weak::upgrade);
        self.uses_bases() && file().is_some_and(|file| file.container.superblock.has_base)
    }

    /// Whether the process has looked at a file on this file system.
    pub fn knows_device(&self, dev: u64) -> bool {
        self.process.knows_device(dev)
    }

    /// Whether new files at `path` become containers by configuration: it lies below a mount, or in
    /// a shadow of a flat directory.
    pub fn is_mounted(&self, path: &Path) -> bool {
        let mounts = &self.process.config.mounts;
        mounts.iter().any(|mount| is_at_or_below(path, mount) && path != mount)
            || spread_names::is_in_shadow(path)
    }

    /// Opens or creates a file.
    ///
    /// Opening a file with a container costs three calls on the name and two on the container;
    /// index logs are not read before the first read. A plain file costs two calls. A file that is
    /// made for the workload auto is plain.
    pub fn open(&self, path: &Path, options: OpenOptions) -> Result<Opened> {
        if options.access.write {
            self.reap();
        }
        if let Some(opened) = self.open_flat(path, options)? {
            return Ok(opened);
        }
        let may_be_new = options.create && options.writers == Writers::Unknown;
        let writes = options.access.write || options.truncate;
        let small = self.beside_unpack(|| {
            let small = self.small(path, may_be_new, writes)?;
            small.map(|small| self.open_small(small, options)).transpose()
        })?;
        if let Some(file) = small {
            return Ok(Opened::Plain(file));
        }
        let mut lost = false;
        loop {
            if !(options.create && options.exclusive) {
                let how = Open {
                    read: options.access.read,
                    write: options.access.write,
                    ..Open::default()
                };
                match self.process.store.open(path, how) {
                    Ok(file) => return self.opened(file, path, options),
                    Err(Errno::NOENT) if options.create => {}
                    Err(errno) => {
                        return match self.behind_links(errno, path, Links::Follow)? {
                            Some((target, _)) => self.open(&target, options),
                            None => Err(errno).at("open", path),
                        };
                    }
                }
            }
            match self.create_any(path, options) {
                // Somebody was faster: theirs is the file. Or, if that cannot be opened either,
                // there is a link to nothing.
                Err(Error::Io { errno: Errno::EXIST, path: at, .. })
                    if !options.exclusive && at == path =>
                {
                    if std::mem::replace(&mut lost, true)
                        && self
                            .process
                            .store
                            .stat(path, Links::Stay)
                            .is_ok_and(|stat| stat.kind == Kind::Symlink)
                    {
                        let target = self.process.store.readlink(path).at("read the link", path)?;
                        let target = path.parent().unwrap_or(Path::new("/")).join(target);
                        return self.open(&target, options);
                    }
                }
                other => return other,
            }
        }
    }

    /// Ends what killed jobs of this user left on this node, the first time: commits what they had
    /// written, removes their marks and what they have in shared memory. Costs some 20 calls on
    /// that for each file that processes of the node write, and 2 ms at most, or eight files. For
    /// who starts a job; an [open](Plfs::open) for writing does it, too.
    pub fn reap(&self) {
        let Process { store, config, .. } = self.process.as_ref();
        if config.shared_memory.is_some() && !self.reaped.swap(true, Ordering::Relaxed) {
            lifecycle::reap(store, config);
        }
    }

    /// Commits what processes of this user on this node had written and not committed when they
    /// died, in whatever files. For who is about to look at the logs of many. Looks at all pages of
    /// shared memory; what cannot be done is left.
    pub fn commit_what_the_dead_left(&self) {
        lifecycle::carry_all_left(&self.process.store, &self.process.config);
    }

    fn opened(
        &self,
        file: Arc<dyn StoreFile>,
        path: &Path,
        options: OpenOptions,
    ) -> Result<Opened> {
        let stat = file.stat().at("stat", path)?;
        if !may_be_logical(&stat) {
            return self.opened_plain(file, &stat, path, options);
        }
        let adopted = match options.access.read {
            true => {
                self.adopt_known(file.as_ref(), NameFile::Closes, path, &stat, options.access)?
            }
            false => self.adopt(
                self.process.store.open(path, Open::READ.briefly()).at("open", path)?.as_ref(),
                path,
                options.access,
            )?,
        };
        match adopted {
            Some(logical) => {
                if options.access.write {
                    // Now rather than at the first write, which a program may not look at.
                    logical.logical().container.must_be_coherent(&self.process.config)?;
                }
                if options.truncate && options.access.write {
                    logical.set_len(0)?;
                }
                Ok(Opened::Logical(logical))
            }
            None => self.opened_plain(file, &stat, path, options),
        }
    }

    /// What a new file at `path` is for, as its directory or the settings say.
    pub fn workload_of(&self, path: &Path) -> Result<Workload> {
        if spread_names::is_own(path) {
            // In a flat directory.
            return Ok(Workload::Auto);
        }
        let Process { store, config, layouts, .. } = self.process.as_ref();
        let root = self.root_for(path)?;
        let dir = path.parent().unwrap_or(&root);
        let said = layouts.find(store.as_ref(), dir, &root)?;
        Ok(said.workload.as_ref().map_or_else(|| config.workload_of(path), |said| said.value))
    }

    fn create_any(&self, path: &Path, options: OpenOptions) -> Result<Opened> {
        if !self.is_born_plain(path, options)? {
            return self.create(path, options).map(Opened::Logical);
        }
        must_be_no_layout(path)?;
        let OpenOptions { access: Access { read, write }, mode, .. } = options;
        let how = Open { read, write, create: true, exclusive: true, mode, number: Number::High };
        let file = self.process.store.open(path, how).at("create", path)?;
        let stat = file.stat().at("stat", path)?;
        Ok(Opened::Plain(self.created_plain(file, &stat, path, options)))
    }

    /// Makes a new logical file. EEXIST if there is anything at `path`.
    pub fn create(&self, path: &Path, options: OpenOptions) -> Result<File> {
        self.create_with_name(path, options).map(|(file, _)| file)
    }

    /// [`Plfs::create`] that also gives the new superblock, open for reading and writing.
    pub fn create_with_name(
        &self,
        path: &Path,
        options: OpenOptions,
    ) -> Result<(File, Arc<dyn StoreFile>)> {
        must_be_no_layout(path)?;
        let make = |root: &Path| {
            container::create_laid_out(
                &self.process.store,
                &self.process.config,
                &self.process.layouts,
                root,
                path,
                options.mode,
                |planned| {
                    let Process { store, config, .. } = self.process.as_ref();
                    measure_for_new(store, config, root, &planned.backends);
                },
            )
        };
        let made = match make(&self.root_for(path)?) {
            // A directory below the root is on another file system: there the file's own directory
            // is the root.
            Err(Error::Io { errno: Errno::XDEV, .. }) => {
                make(path.parent().unwrap_or(Path::new("/")))
            }
            other => other,
        };
        let (container, creation) = made?;
        self.made_one();
        let Superblock { uid, gid, mode, .. } = container.superblock;
        let container = container.opened(uid, gid);
        let key = container.identity;
        let reopens = mode & 0o600 == 0o600;
        let path: Arc<Path> = path.into();
        let logical = LogicalFile::created(
            Arc::new(container),
            self.process.config.clone(),
            self.process.sessions.clone(),
            (!reopens).then(|| creation.clone()),
            &path,
        );
        lock(&self.process.open).insert(key, &logical);
        Ok((File::new(logical, path, options.access), creation))
    }

    /// The root that a new file at `path` would have.
    fn root_for(&self, path: &Path) -> Result<PathBuf> {
        container::find_root(self.process.store.as_ref(), path, &self.process.config.mounts)
    }

    /// What new files in the directory `dir` are laid out by, and which directories say it. Costs a
    /// stat for each directory from `dir` up to its root.
    pub fn directory_layout(&self, dir: &Path) -> Result<DirectoryLayout> {
        let root = self.root_for(&dir.join("file"))?;
        self.process.layouts.forget();
        self.process
            .layouts
            .find(self.process.store.as_ref(), dir, &root)
            .map(|found| (*found).clone())
    }

    /// What the directory `dir` says by itself; `None` if nothing.
    pub fn own_layout(&self, dir: &Path) -> Result<Option<Layout>> {
        container::own_layout(self.process.store.as_ref(), dir)
    }

    /// Waits until nobody else who asks for it changes the layout of `dir`: for who changes a part,
    /// which he reads afterwards. `None` where there are no locks. EBUSY after half a minute.
    pub fn layout_turn(&self, dir: &Path) -> Result<Option<DirTurn>> {
        container::layout_turn(self.process.store.as_ref(), dir)
    }

    /// Makes the directory `dir` say this of its new files; `None`: nothing, so that it inherits.
    /// Files that are there stay as they are. Durable on return. Other processes know it within a
    /// second.
    ///
    /// EINVAL for a workload that this version does not have. The same errors as creating a file
    /// there would give if a backend is unknown or not there.
    pub fn set_directory_layout(&self, dir: &Path, layout: Option<&Layout>) -> Result<()> {
        if let Some(layout) = layout.filter(|it| it.workload == Some(Workload::Flat))
            && is_built(Workload::Flat)
        {
            return self.make_flat(dir, layout);
        }
        self.must_not_be_flat(dir)?;
        if layout.is_some_and(|layout| layout.workload == Some(Workload::Flat)) {
            return Err(Error::invalid(Errno::INVAL, NOT_BUILT));
        }
        self.put_layout(dir, layout)
    }

    fn put_layout(&self, dir: &Path, layout: Option<&Layout>) -> Result<()> {
        self.process.spread.forget();
        let root = self.root_for(&dir.join("file"))?;
        container::set_layout(&self.process.store, &self.process.config, &root, dir, layout)?;
        self.process.layouts.forget();
        Ok(())
    }

    /// A handle on the logical file whose superblock is open as `name_file`; `None` if it is some
    /// other file. `path` leads to the container.
    pub fn adopt(
        &self,
        name_file: &dyn StoreFile,
        path: &Path,
        access: Access,
    ) -> Result<Option<File>> {
        let stat = name_file.stat().at("stat", path)?;
        self.adopt_known(name_file, NameFile::Closes, path, &stat, access)
    }

    /// [`Plfs::adopt`] by one who has the file's stat already. A name that was open before and has
    /// not changed costs one open, of its container's directory; and if its file stays open,
    /// nothing.
    pub fn adopt_known(
        &self,
        name_file: &dyn StoreFile,
        stays: NameFile,
        path: &Path,
        stat: &Stat,
        access: Access,
    ) -> Result<Option<File>> {
        let open = lock(&self.process.open).get(&(stat.dev, stat.ino)).and_then(Weak::upgrade);
        if let Some(logical) = open {
            logical.acquire();
            if stays == NameFile::Closes {
                logical.container.open_now();
            }
            return Ok(Some(File::new(logical, path.into(), access)));
        }
        let (uid, gid) = (stat.uid, stat.gid);
        let (container, summary) = match self.remembered_at(path, stat) {
            Some((known, summary)) if stays == NameFile::Stays => {
                (known.opened_later(uid, gid), summary)
            }
            Some((known, summary)) => (known.opened(uid, gid), summary),
            None => match self.find_behind(name_file, stat, path)? {
                Some((found, summary)) => {
                    must_be_as_copied(&found, &summary, path, stat, access)?;
                    (found.opened(uid, gid), summary)
                }
                None => return Ok(None),
            },
        };
        let container = Arc::new(container);
        let path: Arc<Path> = path.into();
        let logical = self.process.share(container, summary, &path);
        if stays == NameFile::Closes {
            logical.container.open_now();
        }
        if stat.nlink <= 1 {
            // Inherited without a name: only who holds it keeps it.
            logical.hold()?;
        }
        Ok(Some(File::new(logical, path, access)))
    }

    /// Makes the flat index of a logical file.
    pub fn flatten(&self, path: &Path) -> Result<Flattened> {
        let Some((container, _)) = self.container(path)? else {
            return Err(Error::NotAContainer { path: path.to_path_buf() });
        };
        let made = flatten(&container)?;
        // The new file moved the directory's time, which made the summary void.
        if let Ok(file) = catalog::open_super(&container) {
            catalog::write_summary(&container, file.as_ref(), &container.list()?)?;
        }
        Ok(made)
    }

    /// Says what a logical file takes on its backends and what it needs. Loads its index.
    pub fn usage(&self, path: &Path) -> Result<Usage> {
        let Some((container, _)) = self.container(path)? else {
            return Err(Error::NotAContainer { path: path.to_path_buf() });
        };
        compact::usage(&container)
    }

    /// Frees what a logical file has had and has no more: copies what it has to new logs, in order,
    /// and removes the old ones. `progress` is told the bytes copied so far, and may end it.
    ///
    /// EBUSY if another process has it open for writing. Readers are not disturbed, writers may
    /// come meanwhile; names, times and mode stay. Until it is done it takes room for a second
    /// copy. Durable on return; whatever ends it before leaves the file as it was.
    pub fn compact(
        &self,
        path: &Path,
        mut progress: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Result<Compacted> {
        let Some((container, _)) = self.container(path)? else {
            return Err(Error::NotAContainer { path: path.to_path_buf() });
        };
        let open = lock(&self.process.open).get(&container.identity).and_then(Weak::upgrade);
        // This process's own writer makes room; its next write comes after.
        open.as_ref().map_or(Ok(()), |open| open.leave())?;
        let done = compact::compact(&Arc::new(container), &self.process.config, &mut progress);
        if let Some(open) = open {
            open.acquire();
        }
        done
    }

    /// The files with containers that the process has open.
    fn all_open(&self) -> Vec<Arc<LogicalFile>> {
        lock(&self.process.open).values().filter_map(Weak::upgrade).collect()
    }

    /// The plain files that it writes.
    fn all_plain(&self) -> Vec<Arc<PlainFile>> {
        lock(&self.plain).values().filter_map(Weak::upgrade).collect()
    }

    /// Hands over what was written in place to files that have a container by now.
    fn look_at_plain(&self) -> Result<()> {
        let files = self.all_plain().into_iter();
        files.map(|file| file.look_by_itself(&self.process)).fold(Ok(()), Result::and)
    }

    /// Commits every open file of this process. Gives the first error; the others are tried all the
    /// same.
    pub fn commit_all(&self) -> Result<()> {
        let looked = self.look_at_plain().and(self.commit_packs(Durability::Visible));
        let commit = |file: Arc<LogicalFile>| file.commit(Durability::Visible);
        self.all_open().into_iter().map(commit).fold(looked, Result::and)
    }

    /// Commits every open file and gives up its log set, as if all were closed; a later write joins
    /// again. For a process that is about to end or to become another program.
    pub fn leave_all(&self) -> Result<()> {
        self.leave_each(self.look_at_plain(), LogicalFile::leave)
    }

    /// Leaves the packs and, by `leave`, each open file, after a look at plain ones.
    fn leave_each(
        &self,
        looked: Result<()>,
        leave: impl Fn(&LogicalFile) -> Result<()>,
    ) -> Result<()> {
        let looked = looked.and(self.leave_packs());
        let left = self.all_open().iter().map(|file| leave(file)).fold(looked, Result::and);
        log::forget_spare_journals();
        left
    }

    /// [`Plfs::leave_all`], and gives up files that have no name any more: for a process that is
    /// about to end.
    pub fn exit(&self) -> Result<()> {
        // What was written to a plain file is in it.
        let looked = Error::unless_passing(self.look_at_plain());
        let left = self.leave_each(looked, LogicalFile::leave_at_end);
        // What has no name and stays `plfs check` removes.
        let removed = |file: Arc<LogicalFile>| Error::unless_passing(file.remove_if_nameless());
        self.all_open().into_iter().map(removed).fold(left, Result::and)
    }

    /// In a process that is about to start a program, which may remove the last name of a file that
    /// this one has opened: holds every open file as [`File::hold`] does, if it can.
    pub fn hold_all(&self) {
        for file in self.all_open() {
            let _ = file.hold();
        }
    }

    /// In a process that is about to fork: commits every open file, and sees to it that what the
    /// child inherits keeps the data of files whose last name goes.
    pub fn before_fork(&self) -> Result<()> {
        self.forget_flat();
        let looked = self.look_at_plain();
        let committed = self.before_fork_alone();
        looked.and(committed)
    }

    /// [`Plfs::before_fork`] again, while no other thread uses a file: what was written since,
    /// which the child would not have, or have for itself alone. Little if nothing was.
    pub fn before_fork_alone(&self) -> Result<()> {
        let noted = self.all_plain().into_iter().filter(|file| file.has_noted());
        let looked = noted.map(|file| file.look_by_itself(&self.process)).fold(Ok(()), Result::and);
        log::forget_spare_journals();
        let left = looked.and(self.leave_packs());
        self.all_open().into_iter().map(|file| file.before_fork()).fold(left, Result::and)
    }

    /// In the child of a fork, after [`Plfs::before_fork`] in the parent: the parent's writers are
    /// not ours. Of the store, [`PosixStore::release_numbers`] comes before.
    pub fn after_fork_in_child(&self) {
        forget_process();
        self.process.packs.all().iter().for_each(|pack| pack.forget_writer());
        self.all_open().iter().for_each(|file| file.forget_writer());
        self.all_plain().iter().for_each(|file| file.forget());
    }
}
