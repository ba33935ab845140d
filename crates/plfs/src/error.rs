//! What can go wrong, and the one table of error numbers.

use std::path::{Path, PathBuf};

use plfs_format::{Bad, Uuid, name};

use crate::store::Errno;

/// What a PLFS call gives.
pub type Result<T> = std::result::Result<T, Error>;

/// Everything that a PLFS call can fail with. Each variant carries what a person needs to act.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The storage refused a call.
    #[error("cannot {op} {}: {}", path.display(), in_words(path, *errno))]
    Io {
        /// What was attempted, as words that follow "cannot".
        op: &'static str,
        /// On which backend path.
        path: PathBuf,
        /// What the storage said.
        errno: Errno,
    },
    /// PLFS will not do it, or cannot, for a reason of its own.
    #[error("cannot {op} {}: {why}", path.display())]
    Refused {
        /// What was attempted, as words that follow "cannot".
        op: &'static str,
        /// On which backend path.
        path: PathBuf,
        /// A sentence: the reason, and what to do.
        why: &'static str,
        /// What doors say of it.
        errno: Errno,
    },
    /// The bytes of a data log that an index record promises could not be had.
    #[error("data is missing: {} has {found_bytes} of {wanted_bytes} bytes at offset {at_bytes} ({}); run `plfs check` on the file", path.display(), in_words(path, *errno))]
    MissingData {
        /// The data log.
        path: PathBuf,
        /// Where in the data log.
        at_bytes: u64,
        /// Bytes that the index promises.
        wanted_bytes: u64,
        /// Bytes that are there.
        found_bytes: u64,
        /// What the storage said.
        errno: Errno,
    },
    /// Bytes contradict FORMAT.md.
    #[error("{} is damaged: {bad}", path.display())]
    Corrupt {
        /// The damaged file.
        path: PathBuf,
        /// Where and how.
        bad: Bad,
    },
    /// The bytes are whole and say something that only a later version of the format knows.
    #[error("{} needs a newer PLFS: {bad}", path.display())]
    NeedsNewer {
        /// The file.
        path: PathBuf,
        /// Where and what.
        bad: Bad,
    },
    /// Data lies on a backend that the root's table does not have.
    #[error("data lies on backend {id:04x}, but {} is missing: put it back, with the path of the directory whose .plfs/identity fits", table.display())]
    UnknownBackend {
        /// The backend.
        id: u16,
        /// Its entry in the table.
        table: PathBuf,
    },
    /// A backend is not where the root's table says.
    #[error("backend {id:04x} is not at {}: is its file system mounted? if it has moved: `plfs backend move`, or correct the path in {}", path.display(), table.display())]
    MissingBackend {
        /// The backend.
        id: u16,
        /// Its entry in the table.
        table: PathBuf,
        /// Where it should be.
        path: PathBuf,
    },
    /// Where a backend should be is another one.
    #[error("{} is another backend than {id:04x}: its .plfs/identity is not that in {}; correct the path there, or mount the right file system",
        path.display(), table.display())]
    WrongBackend {
        /// The backend.
        id: u16,
        /// Its entry in the table.
        table: PathBuf,
        /// Where it should be.
        path: PathBuf,
    },
    /// A part of a file lies on a backend that cannot be had.
    #[error("bytes {from} to {to} of the file are unreachable: {why}")]
    Unreachable {
        /// The first byte of the file that was asked for and is there.
        from: u64,
        /// One past the last.
        to: u64,
        /// What is wrong with the backend.
        why: Box<Error>,
    },
    /// A path names something that is not a PLFS file.
    #[error("{} is not a PLFS file", path.display())]
    NotAContainer {
        /// The path.
        path: PathBuf,
    },
    /// The file was written by a newer PLFS.
    #[error("{} has format version {major} with features {features:#x}; this PLFS reads version 1: use a newer PLFS", path.display())]
    UnknownFormat {
        /// The file.
        path: PathBuf,
        /// Its major version.
        major: u16,
        /// Its incompatible features.
        features: u64,
    },
    /// The name exists, its container does not.
    #[error("the data of {} is not here: container {uuid} is in no .plfs above it, nor at {}; was it moved or copied without PLFS?", name.display(), made_at(looked).display())]
    MissingContainer {
        /// The name.
        name: PathBuf,
        /// The container's identity.
        uuid: Uuid,
        /// Where it was looked for; last, if at all, where it was made.
        looked: Vec<PathBuf>,
    },
    /// The name was copied without PLFS, its container was not, and that is not what it was.
    #[error("{} was copied without PLFS and has no data of its own, and the file that it was copied from, in {}, has changed since or was open then: read that one, and copy with `plfs cp`, `plfs export` or under `plfs run`", name.display(), root.display())]
    StaleStub {
        /// The copy.
        name: PathBuf,
        /// Where its container is.
        root: PathBuf,
    },
    /// The clients of a file system do not see at once what another one did there.
    #[error(
        "{} is on {kind}, where a client does not see at once what another one writes: two of them \
         would lose each other's bytes, so PLFS writes nothing there (files there can be read). \
         Use a file system whose clients agree, as CephFS, Lustre, GPFS or a local one, or, if \
         this machine alone writes these files, set PLFS_CLOSE_TO_OPEN=one-node", path.display()
    )]
    CloseToOpen {
        /// The root, or the backend.
        path: PathBuf,
        /// The file system's type.
        kind: String,
    },
    /// The file system cannot have what each file of PLFS needs.
    #[error(
        "the file system at {} has no {what}, which each PLFS file needs: use a directory on \
         another one (ext4, XFS, tmpfs, CephFS and Lustre have them; FAT, exFAT and object stores \
         do not)", path.display()
    )]
    Unfit {
        /// Where it was asked for.
        path: PathBuf,
        /// "hard links between directories", "symbolic links", "permissions".
        what: &'static str,
    },
    /// All files have moved out of a pack, and it was removed, since somebody found it.
    #[error("the pack of {} was removed, and its files are ordinary ones now: open the file again", dir.display())]
    PackGone {
        /// Its directory.
        dir: PathBuf,
        /// Device and inode that its name had.
        identity: (u64, u64),
    },
    /// Others have declared this node dead, and go on without it.
    #[error(
        "this node was declared dead while it wrote to {} (log set {set:08x} is fenced: `plfs check --clear-marks` was run, or a host of the same name was started): what it wrote \
         since its last commit is lost; close the file and open it again", path.display()
    )]
    Fenced {
        /// The container.
        path: PathBuf,
        /// The log set that was the node's.
        set: u32,
    },
    /// An earlier write failed after the call that made it had returned; the handle refuses to go
    /// on, because bytes are lost.
    #[error("an earlier write to this file failed, and its bytes are lost: {first}")]
    Poisoned {
        /// The first failure.
        first: Box<Error>,
    },
    /// The caller asked for something impossible.
    #[error("{what}")]
    Invalid {
        /// What is wrong with the request.
        what: &'static str,
        /// Its error number.
        errno: Errno,
    },
}

impl Error {
    /// The error number that doors return: the one table.
    pub fn errno(&self) -> Errno {
        match self {
            Error::Io { errno, .. }
            | Error::Invalid { errno, .. }
            | Error::Refused { errno, .. } => *errno,
            Error::MissingData { .. } | Error::Corrupt { .. } => Errno::IO,
            Error::UnknownBackend { .. }
            | Error::MissingBackend { .. }
            | Error::WrongBackend { .. } => Errno::IO,
            Error::NotAContainer { .. } => Errno::MEDIUMTYPE,
            Error::UnknownFormat { .. }
            | Error::NeedsNewer { .. }
            | Error::CloseToOpen { .. }
            | Error::Unfit { .. } => Errno::OPNOTSUPP,
            Error::MissingContainer { .. }
            | Error::StaleStub { .. }
            | Error::PackGone { .. }
            | Error::Fenced { .. } => Errno::STALE,
            Error::Unreachable { why, .. } => why.errno(),
            Error::Poisoned { first } => first.errno(),
        }
    }

    /// Whether it says nothing of the file: descriptors, memory or time were short.
    pub fn is_of_the_moment(&self) -> bool {
        is_of_the_moment(self.errno())
    }

    /// What is wrong with a backend, for who wanted these bytes of a file.
    pub(crate) fn of_range(self, from: u64, length: u64) -> Error {
        match self {
            Error::UnknownBackend { .. }
            | Error::MissingBackend { .. }
            | Error::WrongBackend { .. } => {
                Error::Unreachable { from, to: from + length, why: Box::new(self) }
            }
            other => other,
        }
    }

    /// How many of the bytes that were to be read of a data log are there.
    pub(crate) fn found_bytes(&self) -> usize {
        match self {
            Error::MissingData { found_bytes, .. } => *found_bytes as usize,
            _ => 0,
        }
    }

    /// Whether a call failed before it did anything, for what others take and give back: there was
    /// no descriptor, or no memory to open something. Nothing is lost, and it can be made again.
    /// ENOMEM of a write or a sync may be the storage's, which says it once.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Error::Io { errno: Errno::NOMEM, op, .. } => op.starts_with("open"),
            Error::Io { errno, .. } => is_of_descriptors(*errno),
            Error::Unreachable { why, .. } => why.is_passing(),
            _ => false,
        }
    }

    /// `done` of what somebody else does the next time: well if its error is a
    /// [passing](Error::is_passing) one.
    pub(crate) fn unless_passing(done: Result<()>) -> Result<()> {
        match done {
            Err(error) if error.is_passing() => Ok(()),
            done => done,
        }
    }

    /// Whether a sync failed, of which the kernel tells the next one nothing.
    pub(crate) fn is_of_sync(&self) -> bool {
        matches!(self, Error::Io { op: "sync", .. }) && !self.is_passing()
    }

    /// Whether the storage had no room.
    pub(crate) fn is_full(&self) -> bool {
        matches!(self, Error::Io { errno: Errno::NOSPC | Errno::DQUOT, .. })
    }

    /// Whether the storage has refused bytes that another target may take: it had no room, or,
    /// where writers choose between targets, it is sick.
    pub(crate) fn is_refused(&self, has_targets: bool) -> bool {
        let is_sick =
            matches!(self, Error::Io { errno: Errno::IO | Errno::ROFS | Errno::STALE, .. });
        self.is_full() || has_targets && is_sick
    }

    /// Whether the storage gave no answer in time.
    pub(crate) fn is_given_up(&self) -> bool {
        matches!(self, Error::Io { errno: Errno::TIMEDOUT, .. })
    }

    /// What a decoder said against the bytes of the file at `path`.
    pub(crate) fn of_bytes(path: &Path, bad: Bad) -> Error {
        let path = path.to_path_buf();
        if bad.newer { Error::NeedsNewer { path, bad } } else { Error::Corrupt { path, bad } }
    }

    pub(crate) fn refused(errno: Errno, op: &'static str, path: &Path, why: &'static str) -> Error {
        Error::Refused { op, path: path.to_path_buf(), why, errno }
    }

    /// A storage target that was given up does not say either whether it has what it was given.
    pub(crate) fn hangs(op: &'static str, path: &Path) -> Error {
        let why = "its storage target does not answer and was given up (deadline_s); what was \
                   written since is on other targets, but nobody knows whether this one keeps what \
                   it had taken before: see to the target, then write the file again";
        Error::refused(Errno::TIMEDOUT, op, path, why)
    }

    pub(crate) fn invalid(errno: Errno, what: &'static str) -> Error {
        Error::Invalid { what, errno }
    }

    pub(crate) fn too_far() -> Error {
        Error::invalid(Errno::FBIG, "a file ends at 2^63-1 bytes")
    }

    pub(crate) fn too_long() -> Error {
        Error::invalid(Errno::FBIG, "the write is longer than files may be (ulimit -f)")
    }
}

/// The root of the last of these container directories.
fn made_at(looked: &[PathBuf]) -> &Path {
    looked.last().and_then(|dir| dir.ancestors().nth(3)).unwrap_or(Path::new("/"))
}

/// [`Error::is_of_the_moment`] of an error number.
pub(crate) fn is_of_the_moment(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::INTR | Errno::AGAIN | Errno::TIMEDOUT
    )
}

/// Whether there was no descriptor: what was to be done was not begun, as only what opens something
/// says it.
pub(crate) fn is_of_descriptors(errno: Errno) -> bool {
    matches!(errno, Errno::MFILE | Errno::NFILE)
}

/// What an error number means for this path, in words.
pub(crate) fn in_words(path: &Path, errno: Errno) -> String {
    match errno == Errno::LOOP && path.components().any(|part| part.as_os_str() == name::ROOT_DIR) {
        true => "it is a symbolic link, or lies behind one; PLFS does not follow links inside a \
                 container"
            .into(),
        false => errno.to_string(),
    }
}

/// Adds what was attempted, and on which path, to a store's errno.
pub(crate) trait At<T> {
    /// `op` follows the word "cannot".
    fn at(self, op: &'static str, path: &Path) -> Result<T>;
}

impl<T> At<T> for crate::store::Result<T> {
    fn at(self, op: &'static str, path: &Path) -> Result<T> {
        self.map_err(|errno| Error::Io { op, path: path.to_path_buf(), errno })
    }
}
