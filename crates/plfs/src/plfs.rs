//! L6: the file system as programs see it: paths to files. Keeps the table of open files, so that
//! all handles of a process on one file agree.

mod changing;
mod check_pack;
mod names;
mod repack;
mod small;
mod spread;

pub use repack::{REPACK_SETTLES, Repacked};
pub use small::Small;
pub use spread::{Place, link_text_of};

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use lru::LruCache;
use plfs_format::attribute::Decision;
use plfs_format::layout::{Layout, Workload};
use plfs_format::summary::Summary;
use plfs_format::superblock::{FILE_BYTES, Superblock};

use crate::catalog::{self, Flattened, Totalizer, Totals, flatten};
use crate::compact::{self, Compacted, Usage};
use crate::config::{Config, is_at_or_below, is_built};
use crate::container::{self, Container, DirectoryLayout, base};
use crate::error::{At, Error, Result};
use crate::file::{Access, File, logical_stat};
use crate::lifecycle;
use crate::log::Durability;
use crate::logical::LogicalFile;
use crate::packs::OpenPack;
use crate::plain::{Entered, PlainFile, Written};
use crate::process::{OpenFiles, Process};
use crate::spread as spread_names;
use crate::store::writers::{Entry, OtherWriter, forget_process};
use crate::store::{Errno, Kind, Links, Open, PosixStore, Stat, Store, StoreFile, Time};
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
    known: Mutex<LruCache<(u64, u64), KnownName>>,
    /// Directories, and when somebody looked whether there are containers (see
    /// [`Plfs::container_to_remove`]); true: none.
    barren: Mutex<LruCache<PathBuf, (u64, bool)>>,
    /// See [`Plfs::made`].
    made: AtomicU64,
    /// It has looked for what killed jobs left on this node.
    reaped: AtomicBool,
}

/// What a name's superblock file said when it was last read.
#[derive(Clone, Debug)]
struct KnownName {
    ctime: Time,
    container: Arc<Container>,
    summary: Option<Summary>,
}

/// Names that are remembered, those that were looked at last. 32,768: some 60 MB, and a directory
/// of that many files is listed without reading one twice.
const KNOWN_MAX: usize = 32_768;

/// What is said of the workload flat, which is no matter of new files alone.
const NOT_BUILT: &str = "an empty directory is made flat, by `plfs layout --workload flat` or \
                         plfs_make_flat()";

/// Whether a file with this stat can have a container: it has the length of a superblock, or a
/// second name, which may be in one.
pub fn may_be_logical(stat: &Stat) -> bool {
    stat.kind == Kind::File && (stat.len == FILE_BYTES as u64 || stat.nlink > 1)
}

/// Whether somebody may be writing it at this moment on another node.
fn is_young(stat: &Stat) -> bool {
    Time::now().ns() - stat.mtime.ns() < YOUNG_NS
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

/// A plain file that is longer is not promoted unless its directory says that it is shared: a
/// program without PLFS that reads it would get old bytes, and no error. 1 MiB.
pub const PROMOTE_BYTES: u64 = 1 << 20;
/// How long after its last write a plain file may be under way on another node: 60 s, in which the
/// processes of a job open what one of them has created.
const YOUNG_NS: i128 = 60_000_000_000;

impl Plfs {
    /// PLFS on a store.
    pub fn new(store: Arc<dyn Store>, config: Config) -> Plfs {
        Plfs {
            process: Arc::new(Process::new(store, Arc::new(config))),
            plain: Mutex::default(),
            known: Mutex::new(LruCache::unbounded()),
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
        if let Some(small) = self.small(path, may_be_new, writes)? {
            return self.open_small(small, options).map(Opened::Plain);
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

    /// Ends what killed jobs of this user left on this node, the first time.
    fn reap(&self) {
        if let Some(dir) = &self.process.config.shared_memory
            && !self.reaped.swap(true, Ordering::Relaxed)
        {
            lifecycle::reap(self.process.store.as_ref(), dir);
        }
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

    /// A handle on a plain file that is open as `file`, with stat `stat`, by a path and options of
    /// which only `create` and `exclusive` do not matter any more. One that is written by several
    /// processes, as far as this node knows, becomes a container.
    ///
    /// Costs a look into a table in memory for a file that is to be written, and a lock.
    pub fn opened_plain(
        &self,
        file: Arc<dyn StoreFile>,
        stat: &Stat,
        path: &Path,
        options: OpenOptions,
    ) -> Result<Opened> {
        let access = options.access;
        let in_place = |shared| {
            let (process, path) = (self.process.clone(), Arc::from(path));
            let identity = (stat.dev, stat.ino);
            File::in_place(process, identity, shared, file.clone(), path, access)
        };
        if stat.kind != Kind::File || !access.write {
            return Ok(Opened::Plain(in_place(None)));
        }
        let (shared, other) = self.share_plain(stat);
        // What is rewritten is this process's from now on, whoever wrote it before.
        let is_kept = stat.len == 0 || !options.truncate;
        let is_short = stat.len <= PROMOTE_BYTES || self.workload_of(path)? == Workload::Shared;
        let is_young = || !self.process.is_local(stat.dev, path) && is_young(stat);
        let has_others = match other {
            OtherWriter::Open => true,
            OtherWriter::Closed => false,
            OtherWriter::Unknown => is_young(),
        };
        if is_kept
            && (is_short && has_others || options.writers == Writers::Several)
            && (stat.nlink <= 1 || base::is_begun(file.as_ref(), stat))
            && let Some(logical) = self.promote(file.as_ref(), stat, path)?
        {
            let handle = File::new(logical, path, access);
            if options.truncate {
                handle.mark_written();
            }
            return Ok(Opened::Logical(handle));
        }
        let handle = in_place(Some(shared));
        if options.truncate {
            handle.mark_written();
            if stat.len > 0 {
                handle.set_len(0)?;
            }
        }
        Ok(Opened::Plain(handle))
    }

    /// What handles of the process on a plain file share, which the process enters in the node's
    /// table; and who else is there, unless this process is.
    fn share_plain(&self, stat: &Stat) -> (Arc<PlainFile>, OtherWriter) {
        self.share_plain_as((stat.dev, stat.ino), None)
    }

    /// [`Plfs::share_plain`] for who may have entered the process there already.
    fn share_plain_as(
        &self,
        key: (u64, u64),
        entry: Option<Entry>,
    ) -> (Arc<PlainFile>, OtherWriter) {
        let mut open = lock(&self.plain);
        let writing =
            self.process.writers().zip(entry).map(|(writers, entry)| writers.writing(entry));
        if let Some(shared) = open.get(&key).and_then(Weak::upgrade) {
            return (shared, OtherWriter::Closed);
        }
        let (entered, other) = match (self.process.writers(), writing) {
            (_, Some(writing)) => (Entered::As(writing), OtherWriter::Closed),
            (Some(writers), None) => {
                let (writing, other) = writers.enter(key);
                (writing.map_or(Entered::NoRoom, Entered::As), other)
            }
            (None, None) => (Entered::Alone, OtherWriter::Unknown),
        };
        let shared = Arc::new(PlainFile::new(key, entered));
        open.insert(key, &shared);
        (shared, other)
    }

    /// Decides that a plain file stays plain for ever, unless something else is decided of it. For
    /// who lets programs write it in a way that PLFS does not see; `why` is for people. A file that
    /// has a container already is told by its link count (see [`may_be_logical`]).
    ///
    /// False if the file has a container, or is about to get one.
    pub fn pin(&self, file: &dyn StoreFile, why: &str) -> bool {
        // Who may not may not promote it either.
        !matches!(base::pin(file, why), Ok(Decision::Container { .. }))
    }

    fn promote(
        &self,
        file: &dyn StoreFile,
        stat: &Stat,
        path: &Path,
    ) -> Result<Option<Arc<LogicalFile>>> {
        let Process { store, config, layouts, .. } = self.process.as_ref();
        let root = self.root_for(path);
        // Its owner alone may, for whom a mount acts.
        let of_owner = store.for_owner(stat.uid, stat.gid);
        let store = of_owner.as_ref().unwrap_or(store);
        let Some((mut container, summary)) =
            base::promote(store, config, layouts, file, path, &root)?
        else {
            return Ok(None);
        };
        self.made_one();
        container.index_bytes = config.index_bytes;
        let container = Arc::new(container.opened(stat.uid, stat.gid));
        Ok(Some(self.process.share(container, summary, path)))
    }

    /// What a new file at `path` is for, as its directory or the settings say.
    pub fn workload_of(&self, path: &Path) -> Result<Workload> {
        if spread_names::is_own(path) {
            // In a flat directory.
            return Ok(Workload::Auto);
        }
        let Process { store, config, layouts, .. } = self.process.as_ref();
        let root = self.root_for(path);
        let dir = path.parent().unwrap_or(&root);
        let said = layouts.find(store.as_ref(), dir, &root)?;
        Ok(said.workload.as_ref().map_or_else(|| config.workload_of(path), |said| said.value))
    }

    /// Whether a new file at `path` is a plain one. So are those where no container can be.
    pub fn is_born_plain(&self, path: &Path, options: OpenOptions) -> Result<bool> {
        Ok(options.writers == Writers::Unknown && self.workload_of(path)? == Workload::Auto)
    }

    fn create_any(&self, path: &Path, options: OpenOptions) -> Result<Opened> {
        if !self.is_born_plain(path, options)? {
            return self.create(path, options).map(Opened::Logical);
        }
        must_be_no_layout(path)?;
        let OpenOptions { access: Access { read, write }, mode, .. } = options;
        let how = Open { read, write, create: true, exclusive: true, mode, brief: false };
        let file = self.process.store.open(path, how).at("create", path)?;
        let stat = file.stat().at("stat", path)?;
        Ok(Opened::Plain(self.created_plain(file, &stat, path, options)))
    }

    /// A handle on a plain file that was created a moment ago, and is open as `file`.
    pub fn created_plain(
        &self,
        file: Arc<dyn StoreFile>,
        stat: &Stat,
        path: &Path,
        options: OpenOptions,
    ) -> File {
        let (shared, _) = self.share_plain(stat);
        let (process, path) = (self.process.clone(), Arc::from(path));
        let identity = (stat.dev, stat.ino);
        File::in_place(process, identity, Some(shared), file, path, options.access)
    }

    /// Enters the process in the node's table as a writer of a plain file that it has made, and is
    /// to write without a handle: it then does itself what a handle does, up to
    /// [`Plfs::written_in_place`] or [`Plfs::leave_in_place`]. `None`: it needs one from the
    /// beginning, as the first file of the process does. Takes no lock, and no memory.
    pub fn enter_in_place(&self, identity: (u64, u64)) -> Option<Entry> {
        let needs_handle = self.uses_bases() || self.process.config.sync_on_close;
        self.process.known_writers().filter(|_| !needs_handle)?.enter_once(identity)
    }

    /// What is not 0 once the next call of who has entered must look; as long as the process lives.
    pub fn flag_in_place(&self, entry: Entry) -> *const u64 {
        // INVARIANT: there is a table if there is an entry.
        self.process
            .known_writers()
            .map_or(std::ptr::null(), |it| it.flag_of(entry).as_ptr().cast())
    }

    /// Who has entered has looked, and closes the file.
    pub fn leave_in_place(&self, entry: Entry) {
        self.process.known_writers().inspect(|writers| writers.leave(entry));
    }

    /// A handle for who has entered, on what he has written; `file` stays open as long.
    pub fn written_in_place(
        &self,
        file: Arc<dyn StoreFile>,
        identity: (u64, u64),
        path: &Path,
        access: Access,
        written: &Written,
    ) -> File {
        let (shared, _) = self.share_plain_as(identity, written.entry);
        shared.take_over(written);
        let (process, path) = (self.process.clone(), Arc::from(path));
        let file = File::in_place(process, identity, Some(shared), file, path, access);
        if written.is_written {
            file.mark_written();
        }
        if written.must_look || self.uses_bases() {
            file.look_first();
        }
        file
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
            )
        };
        let made = match make(&self.root_for(path)) {
            // A directory below the root is on another file system: there the file's own directory
            // is the root.
            Err(Error::Io { errno: Errno::XDEV, .. }) => {
                make(path.parent().unwrap_or(Path::new("/")))
            }
            other => other,
        };
        let (container, creation) = made?;
        self.made_one();
        let Superblock { uid, gid, mode, .. } = *container.superblock;
        let container = container.opened(uid, gid);
        let key = container.identity;
        let reopens = mode & 0o600 == 0o600;
        let logical = Arc::new(LogicalFile::created(
            Arc::new(container),
            self.process.config.clone(),
            self.process.sessions.clone(),
            (!reopens).then(|| creation.clone()),
            path,
        ));
        lock(&self.process.open).insert(key, &logical);
        Ok((File::new(logical, path, options.access), creation))
    }

    /// The root that a new file at `path` would have.
    fn root_for(&self, path: &Path) -> PathBuf {
        container::find_root(self.process.store.as_ref(), path, &self.process.config.mounts)
    }

    /// What new files in the directory `dir` are laid out by, and which directories say it. Costs a
    /// stat for each directory from `dir` up to its root.
    pub fn directory_layout(&self, dir: &Path) -> Result<DirectoryLayout> {
        let root = self.root_for(&dir.join("file"));
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
        let root = self.root_for(&dir.join("file"));
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
            return Ok(Some(File::new(logical, path, access)));
        }
        let (uid, gid) = (stat.uid, stat.gid);
        let (container, summary) = match self.remembered_at(path, stat) {
            Some((known, summary)) if stays == NameFile::Stays => {
                (known.opened_later(uid, gid), summary)
            }
            Some((known, summary)) => (known.opened(uid, gid), summary),
            None => match self.find_behind(name_file, stat, path)? {
                Some((found, summary)) => (found.opened(uid, gid), summary),
                None => return Ok(None),
            },
        };
        let container = Arc::new(container);
        let logical = self.process.share(container, summary, path);
        if stays == NameFile::Closes {
            logical.container.open_now();
        }
        if stat.nlink <= 1 {
            // Inherited without a name: only who holds it keeps it.
            logical.hold()?;
        }
        Ok(Some(File::new(logical, path, access)))
    }

    /// Container and summary of a superblock file with stat `stat`; `file` is opened only if they
    /// are not remembered. `None`: some other file.
    fn container_of(
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
    fn find_behind(
        &self,
        file: &dyn StoreFile,
        stat: &Stat,
        path: &Path,
    ) -> Result<Option<(Arc<Container>, Option<Summary>)>> {
        if let Some((superblock, summary)) = container::read_name(file, stat, path)? {
            let found = self.find_container(path, stat, superblock, &summary)?;
            return Ok(Some((found, summary)));
        }
        // With one link it may have lost its name: then that is `base`.
        if stat.kind != Kind::File {
            return Ok(None);
        }
        let Process { store, config, .. } = self.process.as_ref();
        let found = base::find(store, file, stat, path, &config.mounts)?;
        Ok(found.map(|(mut container, summary)| {
            container.index_bytes = config.index_bytes;
            (Arc::new(container), summary)
        }))
    }

    /// The container of a superblock file that was read, which is remembered from now on.
    fn find_container(
        &self,
        path: &Path,
        stat: &Stat,
        superblock: Superblock,
        summary: &Option<Summary>,
    ) -> Result<Arc<Container>> {
        let mut container = Container::locate(
            self.process.store.clone(),
            superblock,
            path,
            stat,
            &self.process.config.mounts,
        )?;
        container.index_bytes = self.process.config.index_bytes;
        let container = Arc::new(container);
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
        if let Some((pack, name)) = self.in_pack(path)? {
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
    fn remembered_at(&self, path: &Path, stat: &Stat) -> Option<(Arc<Container>, Option<Summary>)> {
        self.remembered(stat).filter(|(known, _)| known.is_below_root(path))
    }

    fn remembered(&self, stat: &Stat) -> Option<(Arc<Container>, Option<Summary>)> {
        let mut known = lock(&self.known);
        let known = known.get(&(stat.dev, stat.ino)).filter(|known| known.ctime == stat.ctime)?;
        Some((known.container.clone(), known.summary.clone()))
    }

    /// [`Plfs::resolve`] of a file that is opened as `path` and whose directory is that of `at`:
    /// `/proc/self/fd/N` and what that links to.
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
                let superblock = container.superblock.as_ref().clone();
                (container.through(container.store.clone()), superblock)
            };
            return Ok(found.map(|(container, _)| view(container)));
        };
        let mut container = Container::locate(
            self.process.store.clone(),
            superblock.clone(),
            path,
            &stat,
            &self.process.config.mounts,
        )?;
        container.index_bytes = self.process.config.index_bytes;
        Ok(Some((container, superblock)))
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
        let looked = self.look_at_plain().and(self.leave_packs());
        self.all_open().into_iter().map(|file| file.leave()).fold(looked, Result::and)
    }

    /// [`Plfs::leave_all`], and gives up files that have no name any more: for a process that is
    /// about to end.
    pub fn exit(&self) -> Result<()> {
        let left = self.leave_all();
        self.all_open().into_iter().map(|file| file.remove_if_nameless()).fold(left, Result::and)
    }

    /// In a process that is about to fork: commits every open file, and sees to it that what the
    /// child inherits keeps the data of files whose last name goes.
    pub fn before_fork(&self) -> Result<()> {
        self.forget_flat();
        let looked = self.look_at_plain().and(self.leave_packs());
        self.all_open().into_iter().map(|file| file.before_fork()).fold(looked, Result::and)
    }

    /// In the child of a fork, after [`Plfs::before_fork`] in the parent: the parent's writers are
    /// not ours.
    pub fn after_fork_in_child(&self) {
        forget_process();
        self.process.packs.all().iter().for_each(|pack| pack.forget_writer());
        self.all_open().iter().for_each(|file| file.forget_writer());
        self.all_plain().iter().for_each(|file| file.forget());
    }
}
