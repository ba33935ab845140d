//! Plain files: whether a file is one, who writes it, and what a program writes in place.

use std::path::Path;

use plfs_format::attribute::Decision;
use plfs_format::layout::Workload;

use super::{OpenOptions, Opened, Plfs, Writers};
use crate::container::base;
use crate::error::Result;
use crate::file::{Access, File};
use crate::logical::LogicalFile;
use crate::plain::{Entered, PlainFile, Written};
use crate::process::Process;
use crate::store::writers::{Entry, OtherWriter};
use crate::store::{Kind, Stat, StoreFile, Time};
use crate::sync::{Arc, Weak, lock};

/// A plain file that is longer is not promoted unless its directory says that it is shared, or it
/// is new: a program without PLFS that reads it would get old bytes, and no error. 1 MiB.
const PROMOTE_BYTES: u64 = 1 << 20;
/// The same for a file that was made in the last minute, which has no old bytes: what the first
/// process of a job writes until the others have opened it, and their number is what is missing.
/// 64 MiB: 0.1 s of eight of them where two processors have more to do.
const PROMOTE_NEW_BYTES: u64 = 64 << 20;

/// Whether somebody may be writing it at this moment on another node.
pub(super) fn is_young(stat: &Stat) -> bool {
    is_of_now(stat.mtime)
}

fn is_of_now(time: Time) -> bool {
    Time::now().ns() - time.ns() < YOUNG_NS
}

/// Whether a plain file with stat `stat` is longer than any that becomes a container where nobody
/// has said `shared`: now, and from now on, as it gets no younger; unless somebody shortens it.
pub fn is_too_long_to_promote(file: &dyn StoreFile, stat: &Stat) -> bool {
    // Where the file system does not say when it was made, that was no later than its last change.
    let may_be_new = || is_of_now(file.birth().unwrap_or(stat.ctime));
    stat.len > PROMOTE_NEW_BYTES || stat.len > PROMOTE_BYTES && !may_be_new()
}

/// How long after its last write a plain file may be under way on another node: 60 s, in which the
/// processes of a job open what one of them has created.
const YOUNG_NS: i128 = 60_000_000_000;
/// The same by the clock of the node's table.
const NEW_NS: u64 = YOUNG_NS as u64;

impl Plfs {
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
        let (shared, other) = self.share_plain(stat, false);
        // What is rewritten is this process's from now on, whoever wrote it before.
        let is_kept = stat.len == 0 || !options.truncate;
        // Of one that another machine has made, which has a clock of its own, nobody knows when. It
        // is slow before it is long.
        let is_new = || {
            let writers = self.process.writers();
            writers.is_some_and(|it| it.was_made_within((stat.dev, stat.ino), NEW_NS))
                || self.process.is_local(stat.dev, path) && file.birth().is_some_and(is_of_now)
        };
        let is_short = || -> Result<bool> {
            Ok(stat.len <= PROMOTE_BYTES
                || stat.len <= PROMOTE_NEW_BYTES && is_new()
                || self.workload_of(path)? == Workload::Shared)
        };
        let is_young = || !self.process.is_local(stat.dev, path) && is_young(stat);
        let has_others = match other {
            OtherWriter::Open => true,
            OtherWriter::Closed => false,
            OtherWriter::Unknown => is_young(),
        };
        let is_several = options.writers == Writers::Several;
        let is_asked = is_kept && (is_several || has_others);
        let is_begun = is_asked && stat.nlink > 1 && base::is_begun(file.as_ref(), stat);
        if is_asked
            && (stat.nlink <= 1 || is_begun)
            && (is_several || is_begun || is_short()?)
            && let Some(logical) = self.promote(file.as_ref(), stat, path)?
        {
            let handle = File::new(logical, Arc::from(path), access);
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
    pub(super) fn share_plain(&self, stat: &Stat, has_made: bool) -> (Arc<PlainFile>, OtherWriter) {
        self.share_plain_as((stat.dev, stat.ino), None, has_made)
    }

    /// [`Plfs::share_plain`] for who may have entered the process there already.
    pub(super) fn share_plain_as(
        &self,
        key: (u64, u64),
        entry: Option<Entry>,
        has_made: bool,
    ) -> (Arc<PlainFile>, OtherWriter) {
        let mut open = lock(&self.plain);
        let writing =
            self.process.writers().zip(entry).map(|(writers, entry)| writers.writing(entry));
        // One that has gone on in a container may be of a file that was removed, whose number this
        // one has. If it is of this one, a look goes on there as well.
        let there = open.get(&key).and_then(Weak::upgrade);
        let there = there.filter(|shared| !shared.has_surely_left());
        if let Some(shared) = there {
            return (shared, OtherWriter::Closed);
        }
        let (entered, other) = match (self.process.writers(), writing) {
            (_, Some(writing)) => (Entered::As(writing), OtherWriter::Closed),
            (Some(writers), None) => {
                let (writing, other) = writers.enter(key, has_made);
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

    pub(super) fn promote(
        &self,
        file: &dyn StoreFile,
        stat: &Stat,
        path: &Path,
    ) -> Result<Option<Arc<LogicalFile>>> {
        let Process { store, config, layouts, .. } = self.process.as_ref();
        let root = self.root_for(path)?;
        // Its owner alone may, for whom a mount acts.
        let of_owner = store.for_owner(stat.uid, stat.gid);
        let store = of_owner.as_ref().unwrap_or(store);
        // Who writes it in place looks, and waits until it is made.
        let flag = || {
            self.process.writers().inspect(|writers| writers.flag((stat.dev, stat.ino)));
        };
        let made = base::promote(store, config, layouts, file, path, &root, flag)?;
        let Some((container, summary)) = made else { return Ok(None) };
        self.made_one();
        let container = Arc::new(container.configured(config).opened(stat.uid, stat.gid));
        let logical = self.process.share(container, summary, &Arc::from(path));
        // It may have been removed while it was made.
        logical.look_for_name();
        Ok(Some(logical))
    }

    /// Whether a new file at `path` is a plain one. So are those where no container can be.
    pub fn is_born_plain(&self, path: &Path, options: OpenOptions) -> Result<bool> {
        Ok(options.writers == Writers::Unknown && self.workload_of(path)? == Workload::Auto)
    }

    /// A handle on a plain file that was created a moment ago, and is open as `file`.
    pub fn created_plain(
        &self,
        file: Arc<dyn StoreFile>,
        stat: &Stat,
        path: &Path,
        options: OpenOptions,
    ) -> File {
        let (shared, _) = self.share_plain(stat, true);
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
        let (shared, _) = self.share_plain_as(identity, written.entry, false);
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
}
