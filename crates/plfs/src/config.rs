//! Settings: all have defaults, none is needed. What must outlive a process is recorded in the
//! container instead.

use std::path::{Path, PathBuf};

use plfs_format::layout::Workload;

/// [`Config::index_bytes`] unless somebody says otherwise: 20 M irregular pieces.
pub(crate) const INDEX_BYTES: u64 = 256 << 20;

/// The one table of which workloads this version has.
const BUILT: [(Workload, bool); 4] = [
    (Workload::Auto, false),
    (Workload::Shared, true),
    (Workload::Flat, false),
    (Workload::Small, false),
];

/// Whether this version can make files for this workload.
pub fn is_built(workload: Workload) -> bool {
    BUILT.contains(&(workload, true))
}

/// What to do where clients of a file system do not see at once what another client did (see
/// [`Store::close_to_open`](crate::store::Store::close_to_open)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CloseToOpen {
    /// Nothing is written there: EOPNOTSUPP.
    #[default]
    Refuse,
    /// Somebody answers for it that one client alone, one mount on one machine, writes files there.
    OneNode,
}

/// How this process uses PLFS. [`Config::from_env`] reads the `PLFS_*` variables that TUNING.md
/// lists.
#[derive(Clone, Debug)]
pub struct Config {
    /// Directories whose new files become containers, and roots for them. Absolute.
    pub mounts: Vec<PathBuf>,
    /// Data logs that the processes of one node share for a new file, 1 to 256. 8: enough that two
    /// running processes seldom meet on one inode lock, few enough that a file of 64 ranks is 8
    /// logs.
    pub streams: u16,
    /// Bytes of not yet written data that this process may hold, all files together. 64 MiB: 16
    /// flushes of 4 MiB.
    pub buffer_bytes: usize,
    /// Bytes of memory that the index of one file may take when it is made of index logs; a longer
    /// one lies in a file without a name below TMPDIR, which lookups read as they need it.
    /// 256 MiB: some 20 M irregular pieces. While it is made it takes twice that.
    pub index_bytes: u64,
    /// Length past which a stream of a new file goes on in its next segment. 1 TiB.
    pub segment_bytes: u64,
    /// More backends for the data of new files; the root is always the first. Absolute.
    pub backends: Vec<PathBuf>,
    /// Whether close also forces data to storage, like fsync.
    pub sync_on_close: bool,
    /// Size up to which the last writer to leave compacts a file, if its logs take this much and
    /// four times the file's size besides; 0: never. 64 MiB: a tenth of a second of copying,
    /// for each two hundred MiB that were overwritten at most.
    pub compact_bytes: u64,
    /// Names in a container up to which somebody who comes to write asks each index log what it is
    /// to start behind; where there are more, the file's clock is made to say it (FORMAT.md
    /// section 4). 130: some 64 log sets with an owner each. For files on storage that machines
    /// share.
    pub asked_names: usize,
    /// Where the processes of a node meet. `None`: every process has a log set of its own.
    pub shared_memory: Option<PathBuf>,
    /// Whether files are written on NFS and the like.
    pub close_to_open: CloseToOpen,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            mounts: Vec::new(),
            streams: 8,
            buffer_bytes: 64 << 20,
            index_bytes: INDEX_BYTES,
            segment_bytes: 1 << 40,
            backends: Vec::new(),
            sync_on_close: false,
            compact_bytes: 64 << 20,
            asked_names: 130,
            shared_memory: Some(PathBuf::from("/dev/shm")),
            close_to_open: CloseToOpen::Refuse,
        }
    }
}

impl Config {
    /// Defaults, changed by `PLFS_MOUNTS`, `PLFS_BACKENDS` (paths, separated by `:`; a `:` or `\`
    /// inside a path is written after a `\`), `PLFS_STREAMS`, `PLFS_BUFFER_BYTES`,
    /// `PLFS_INDEX_BYTES`, `PLFS_SEGMENT_BYTES`, `PLFS_SYNC_ON_CLOSE` (1 or 0),
    /// `PLFS_COMPACT_BYTES`, `PLFS_SHARED_MEMORY` (a directory, or empty for none) and
    /// `PLFS_CLOSE_TO_OPEN` (`refuse` or `one-node`).
    ///
    /// A value that is none of these, or not a number in its range, is an error that names the variable: silently
    /// using another would be worse.
    pub fn from_env() -> Result<Config, String> {
        let mut config = Config::default();
        let var = |name: &str| std::env::var_os(name);
        if let Some(paths) = var("PLFS_MOUNTS") {
            config.mounts = split_paths(&paths);
        }
        if let Some(paths) = var("PLFS_BACKENDS") {
            config.backends = split_paths(&paths);
        }
        config.streams = number(
            "PLFS_STREAMS",
            config.streams as u64,
            1,
            plfs_format::superblock::STREAMS_MAX as u64,
        )? as u16;
        config.buffer_bytes =
            number("PLFS_BUFFER_BYTES", config.buffer_bytes as u64, 1 << 16, 1 << 40)? as usize;
        config.index_bytes = number("PLFS_INDEX_BYTES", config.index_bytes, 0, 1 << 46)?;
        config.segment_bytes = number(
            "PLFS_SEGMENT_BYTES",
            config.segment_bytes,
            1 << 16,
            plfs_format::superblock::SEGMENT_BYTES_MAX,
        )?;
        config.sync_on_close = number("PLFS_SYNC_ON_CLOSE", 0, 0, 1)? == 1;
        config.compact_bytes = number("PLFS_COMPACT_BYTES", config.compact_bytes, 0, 1 << 46)?;
        if let Some(dir) = var("PLFS_SHARED_MEMORY") {
            config.shared_memory = (!dir.is_empty()).then(|| PathBuf::from(dir));
        }
        if let Some(text) = var("PLFS_CLOSE_TO_OPEN") {
            config.close_to_open = match text.to_str() {
                Some("refuse") => CloseToOpen::Refuse,
                Some("one-node") => CloseToOpen::OneNode,
                _ => {
                    return Err(format!(
                        "PLFS_CLOSE_TO_OPEN={} is neither refuse nor one-node",
                        text.to_string_lossy()
                    ));
                }
            };
        }
        for path in config.mounts.iter().chain(&config.backends) {
            if !path.is_absolute() {
                return Err(format!(
                    "PLFS_MOUNTS and PLFS_BACKENDS need absolute paths, not {}",
                    path.display()
                ));
            }
        }
        Ok(config)
    }
}

impl Config {
    /// Streams of a new file at `path`, if its directory does not say.
    pub fn streams_of(&self, _path: &Path) -> u16 {
        self.streams
    }

    /// More backends for a new file at `path`, if its directory does not say.
    pub fn backends_of(&self, _path: &Path) -> &[PathBuf] {
        &self.backends
    }

    /// What says `streams`, `backends` or `workload` for a new file at `path`, if its directory does
    /// not: a variable, or "default".
    pub fn origin_for(&self, name: &str, _path: &Path) -> String {
        let variable = format!("PLFS_{}", name.to_uppercase());
        if std::env::var_os(&variable).is_some() { variable } else { "default".into() }
    }
}

fn number(name: &str, default: u64, min: u64, max: u64) -> Result<u64, String> {
    let Some(text) = std::env::var_os(name) else { return Ok(default) };
    let value = text.to_str().and_then(|text| text.trim().parse().ok());
    value.filter(|n| (min..=max).contains(n)).ok_or_else(|| {
        format!("{name}={} is not a number from {min} to {max}", text.to_string_lossy())
    })
}

/// Splits a `:`-separated list of paths with `\` as escape.
pub fn split_paths(list: &std::ffi::OsStr) -> Vec<PathBuf> {
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    let mut paths = vec![Vec::new()];
    let mut escaped = false;
    for &byte in list.as_bytes() {
        match byte {
            b'\\' if !escaped => escaped = true,
            b':' if !escaped => paths.push(Vec::new()),
            _ => {
                if let Some(path) = paths.last_mut() {
                    path.push(byte);
                }
                escaped = false;
            }
        }
    }
    paths
        .into_iter()
        .filter(|path| !path.is_empty())
        .map(|path| PathBuf::from(std::ffi::OsString::from_vec(path)))
        .collect()
}

/// The inverse of [`split_paths`].
pub fn join_paths<'a>(paths: impl IntoIterator<Item = &'a std::path::Path>) -> std::ffi::OsString {
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    let mut list = Vec::new();
    for (i, path) in paths.into_iter().enumerate() {
        if i > 0 {
            list.push(b':');
        }
        for &byte in path.as_os_str().as_bytes() {
            if byte == b':' || byte == b'\\' {
                list.push(b'\\');
            }
            list.push(byte);
        }
    }
    std::ffi::OsString::from_vec(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_lists_round_trip() {
        let paths = [PathBuf::from("/a:b"), PathBuf::from("/c\\d"), PathBuf::from("/e")];
        assert_eq!(split_paths(&join_paths(paths.iter().map(PathBuf::as_path))), paths);
        assert_eq!(split_paths(std::ffi::OsStr::new("")), Vec::<PathBuf>::new());
    }
}
