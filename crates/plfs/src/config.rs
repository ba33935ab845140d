//! Settings: all have defaults, none is needed. What must outlive a process is recorded in the
//! container instead.

use std::ffi::OsStr;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use plfs_format::layout::{Placement, Workload};
use plfs_format::superblock::{SEGMENT_BYTES_MAX, STREAMS_MAX};

use crate::environment;
use crate::plfsrc::{self, Given, Managed, Place, Plfsrc, SETTINGS};
use crate::store::{Open, PosixStore, Store, fd_path};

/// [`Config::index_bytes`] unless somebody says otherwise: 20 M irregular pieces.
pub(crate) const INDEX_BYTES: u64 = 256 << 20;

/// [`Config::deadline`] unless somebody says otherwise.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// The one table of which workloads this version has.
const BUILT: [(Workload, bool); 4] = [
    (Workload::Auto, true),
    (Workload::Shared, true),
    (Workload::Flat, false),
    (Workload::Small, true),
];

/// Whether this version can make files for this workload.
pub fn is_built(workload: Workload) -> bool {
    BUILT.contains(&(workload, true))
}

/// Whether a process may be told so. Of a small directory all processes have to know.
pub fn is_setting(workload: Workload) -> bool {
    is_built(workload) && workload != Workload::Small
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

/// How this process uses PLFS. [`Config::from_env`] reads plfsrc and the `PLFS_*` variables that
/// TUNING.md lists.
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
    /// By what writers choose between storage targets, where the file does not say it.
    pub placement: Placement,
    /// A file of the site in which nodes tell each other how fast targets are. `None`: each finds
    /// out by itself.
    pub rates: Option<PathBuf>,
    /// An append to a storage target that takes longer is given up, where there is another target,
    /// and its bytes are written there. `None`: never. 30 s: as long as Linux gives a disk for a
    /// command (/sys/block/*/device/timeout). Nothing is lost by giving up too early, so there is
    /// no reason to wait for a server that fails over.
    pub deadline: Option<Duration>,
    /// Bytes that a new file is to get, from all its writers. 0: nobody knows. If it has several
    /// storage targets, and nothing recent is known of one, a 128th of this measures that when
    /// the file is made.
    pub expected_bytes: u64,
    /// What new files are for, where neither their directory nor plfsrc says it.
    pub workload: Workload,
    /// What plfsrc says of directories; what variables say is taken out.
    pub managed: Vec<Managed>,
    /// The settings that plfsrc gives, and no variable, and where they stand.
    pub given: Vec<(&'static str, Place)>,
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
            placement: Placement::Measured,
            rates: None,
            deadline: Some(DEADLINE),
            expected_bytes: 0,
            workload: Workload::Auto,
            managed: Vec::new(),
            given: Vec::new(),
        }
    }
}

impl Config {
    /// Defaults, but for the workload: each new file becomes a container at once.
    pub fn shared() -> Config {
        Config { workload: Workload::Shared, ..Config::default() }
    }

    /// Defaults, changed by plfsrc (see [`plfsrc::find`]), and then by `PLFS_MOUNTS`,
    /// `PLFS_BACKENDS` (paths, separated by `:`; a `:` or `\` inside a path is written after a
    /// `\`), `PLFS_STREAMS`, `PLFS_BUFFER_BYTES`, `PLFS_INDEX_BYTES`, `PLFS_SEGMENT_BYTES`,
    /// `PLFS_SYNC_ON_CLOSE` (1 or 0), `PLFS_COMPACT_BYTES`, `PLFS_SHARED_MEMORY` (a directory, or
    /// empty for none), `PLFS_CLOSE_TO_OPEN` (`refuse` or `one-node`), `PLFS_PLACEMENT`
    /// (`measured`, `equal` or `cliff`), `PLFS_RATES` (a file, or empty for none),
    /// `PLFS_DEADLINE_S` (seconds, 0 for none) and `PLFS_EXPECTED_BYTES` (0 for unknown).
    ///
    /// A value that is none of these, or not a number in its range, is an error that names the
    /// variable, or file, line and column: silently using another would be worse.
    pub fn from_env() -> Result<Config, String> {
        Config::from_env_and(plfsrc::find()?.as_ref())
    }

    /// [`Config::from_env`] with what a certain plfsrc says, or none.
    pub fn from_env_and(plfsrc: Option<&Plfsrc>) -> Result<Config, String> {
        let mut config = Config::default();
        if let Some(plfsrc) = plfsrc {
            config.take(plfsrc)?;
        }
        let var = environment::variable;
        if let Some(paths) = var("PLFS_MOUNTS") {
            config.mounts = split_paths(&paths);
        }
        if let Some(paths) = var("PLFS_BACKENDS") {
            config.backends = split_paths(&paths);
            config.managed.iter_mut().for_each(|managed| managed.backends = None);
        }
        for name in SETTINGS {
            let variable = variable_of(name);
            let Some(text) = var(&variable) else { continue };
            config
                .set(name, &text)
                .map_err(|wrong| format!("{variable}={} {wrong}", text.to_string_lossy()))?;
            config.given.retain(|(given, _)| *given != name);
            if name == "streams" {
                config.managed.iter_mut().for_each(|managed| managed.streams = None);
            }
        }
        if let Some(text) = var("PLFS_WORKLOAD") {
            let workload = Workload::parse(text.as_encoded_bytes()).filter(|w| is_setting(*w));
            config.workload = workload.ok_or_else(|| {
                format!("PLFS_WORKLOAD={} is neither auto nor shared", text.to_string_lossy())
            })?;
            config.managed.iter_mut().for_each(|managed| managed.workload = None);
        }
        for path in config.mounts.iter().chain(&config.backends) {
            if !path.is_absolute() {
                return Err(format!(
                    "PLFS_MOUNTS and PLFS_BACKENDS need absolute paths, not {}",
                    path.display()
                ));
            }
        }
        config.add_real_paths();
        Ok(config)
    }

    /// What a plfsrc says. An error says where it is wrong.
    pub fn take(&mut self, plfsrc: &Plfsrc) -> Result<(), String> {
        for (name, Given { value, place }) in &plfsrc.settings {
            self.set(name, OsStr::new(value))
                .map_err(|wrong| format!("{place}: {name}: {value} {wrong}"))?;
            self.given.push((*name, place.clone()));
        }
        for managed in &plfsrc.managed {
            if let Some(Given { value, place }) = &managed.workload
                && !is_setting(*value)
            {
                return Err(format!(
                    "{place}: the workload {} cannot be set here; write auto or shared, or remove \
                     the line; `plfs layout` makes a directory small",
                    value.word()
                ));
            }
            self.mounts.push(managed.directory.value.clone());
            self.managed.push(managed.clone());
        }
        Ok(())
    }

    /// Sets one of [`SETTINGS`]. An error continues a sentence that ends with the value.
    fn set(&mut self, name: &str, text: &OsStr) -> Result<(), String> {
        let number = |min, max| number(text, min, max);
        match name {
            "streams" => self.streams = number(1, STREAMS_MAX.into())? as u16,
            "buffer_bytes" => self.buffer_bytes = number(1 << 16, 1 << 40)? as usize,
            "index_bytes" => self.index_bytes = number(0, 1 << 46)?,
            "segment_bytes" => self.segment_bytes = number(1 << 16, SEGMENT_BYTES_MAX)?,
            "sync_on_close" => self.sync_on_close = number(0, 1)? == 1,
            "compact_bytes" => self.compact_bytes = number(0, 1 << 46)?,
            "shared_memory" => {
                self.shared_memory = (!text.is_empty()).then(|| PathBuf::from(text));
            }
            "close_to_open" => {
                self.close_to_open = match text.to_str() {
                    Some("refuse") => CloseToOpen::Refuse,
                    Some("one-node") => CloseToOpen::OneNode,
                    _ => return Err("is neither refuse nor one-node".into()),
                }
            }
            "placement" => {
                self.placement = Placement::parse(text.as_encoded_bytes())
                    .ok_or("is none of measured, equal and cliff")?;
            }
            "rates" if text.is_empty() => self.rates = None,
            "rates" => {
                let file = PathBuf::from(text);
                if !file.is_absolute() {
                    return Err("is not an absolute path".into());
                }
                self.rates = Some(file);
            }
            "deadline_s" => {
                let seconds = number(0, 86_400)?;
                self.deadline = (seconds > 0).then(|| Duration::from_secs(seconds));
            }
            "expected_bytes" => self.expected_bytes = number(0, 1 << 60)?,
            // INVARIANT: all of the table are above.
            _ => return Err("is the value of no setting".into()),
        }
        Ok(())
    }

    /// Adds the real paths of managed directories that are named by a link, as which programs may
    /// see them: rules hold for both. Only those are asked for that this process has as mounts; the
    /// others may be on file systems that are far away.
    fn add_real_paths(&mut self) {
        let store = PosixStore::new();
        let real = |dir: &Path| {
            let open = store.open(dir, Open::READ.briefly()).ok()?;
            let fd = open.fd()?.as_raw_fd();
            store.readlink(&PathBuf::from(fd_path(fd))).ok()
        };
        let mut more = Vec::new();
        for managed in &self.managed {
            let dir = &managed.directory.value;
            if self.mounts.contains(dir)
                && let Some(real) = real(dir)
                && !self.managed.iter().any(|other| other.directory.value == real)
            {
                let mut same = managed.clone();
                same.directory.value = real;
                more.push(same);
            }
        }
        for managed in more {
            let dir = managed.directory.value.clone();
            if !self.mounts.contains(&dir) {
                self.mounts.push(dir);
            }
            self.managed.push(managed);
        }
    }

    /// The rule of plfsrc for a new file at `path`: that of the innermost managed directory.
    fn rule_for(&self, path: &Path) -> Option<&Managed> {
        let above = self.managed.iter().filter(|managed| {
            is_at_or_below(path, &managed.directory.value) && path != managed.directory.value
        });
        above.max_by_key(|managed| managed.directory.value.as_os_str().len())
    }

    /// Streams of a new file at `path`, if its directory does not say.
    pub fn streams_of(&self, path: &Path) -> u16 {
        let rule = self.rule_for(path).and_then(|rule| rule.streams.as_ref());
        rule.map_or(self.streams, |given| given.value)
    }

    /// What a new file at `path` is for, if its directory does not say.
    pub fn workload_of(&self, path: &Path) -> Workload {
        let rule = self.rule_for(path).and_then(|rule| rule.workload.as_ref());
        rule.map_or(self.workload, |given| given.value)
    }

    /// More backends for a new file at `path`, if its directory does not say.
    pub fn backends_of(&self, path: &Path) -> &[PathBuf] {
        let rule = self.rule_for(path).and_then(|rule| rule.backends.as_ref());
        rule.map_or(&self.backends, |given| &given.value)
    }

    /// What says `streams`, `backends` or `workload` for a new file at `path`, if its directory
    /// does not: a variable, a place in plfsrc, or "default".
    pub fn origin_for(&self, name: &str, path: &Path) -> String {
        let rule = self.rule_for(path);
        let place = match name {
            "streams" => rule.and_then(|rule| rule.streams.as_ref()).map(|given| &given.place),
            "backends" => rule.and_then(|rule| rule.backends.as_ref()).map(|given| &given.place),
            "workload" => rule.and_then(|rule| rule.workload.as_ref()).map(|given| &given.place),
            _ => None,
        };
        place.map_or_else(|| self.origin_of(name), Place::to_string)
    }

    /// What says a setting: a variable, a place in plfsrc, or "default".
    pub fn origin_of(&self, name: &str) -> String {
        if let Some((_, place)) = self.given.iter().find(|(given, _)| *given == name) {
            return place.to_string();
        }
        let variable = variable_of(name);
        if environment::variable(&variable).is_some() { variable } else { "default".into() }
    }

    /// The value of one of [`SETTINGS`], as text that [`Config::from_env`] reads.
    pub fn value_of(&self, name: &str) -> String {
        match name {
            "streams" => self.streams.to_string(),
            "buffer_bytes" => self.buffer_bytes.to_string(),
            "index_bytes" => self.index_bytes.to_string(),
            "segment_bytes" => self.segment_bytes.to_string(),
            "sync_on_close" => u8::from(self.sync_on_close).to_string(),
            "compact_bytes" => self.compact_bytes.to_string(),
            "shared_memory" => self
                .shared_memory
                .as_ref()
                .map_or(String::new(), |dir| dir.to_string_lossy().into_owned()),
            "close_to_open" => match self.close_to_open {
                CloseToOpen::Refuse => "refuse".into(),
                CloseToOpen::OneNode => "one-node".into(),
            },
            "placement" => self.placement.word().into(),
            "rates" => self
                .rates
                .as_ref()
                .map_or(String::new(), |file| file.to_string_lossy().into_owned()),
            "deadline_s" => self.deadline.map_or(0, |deadline| deadline.as_secs()).to_string(),
            "expected_bytes" => self.expected_bytes.to_string(),
            _ => String::new(),
        }
    }
}

/// The managed directories of this process without the rest: `PLFS_MOUNTS`, else what plfsrc says.
/// None if that is wrong; whoever uses PLFS hears of it from [`Config::from_env`].
pub fn managed_dirs() -> Vec<PathBuf> {
    match environment::variable("PLFS_MOUNTS") {
        Some(list) => split_paths(&list),
        None => Config::from_env().map(|config| config.mounts).unwrap_or_default(),
    }
}

/// The variable of a setting.
pub fn variable_of(name: &str) -> String {
    format!("PLFS_{}", name.to_uppercase())
}

fn number(text: &OsStr, min: u64, max: u64) -> Result<u64, String> {
    let value = text.to_str().and_then(|text| text.trim().parse().ok());
    value
        .filter(|n| (min..=max).contains(n))
        .ok_or_else(|| format!("is not a number from {min} to {max}"))
}

/// Whether `path` is `dir` or lies below it, by their texts: what is written in another way, as
/// with two slashes, is compared part by part, which costs ten times as much.
pub(crate) fn is_at_or_below(path: &Path, dir: &Path) -> bool {
    let (text, dir_text) = (path.as_os_str().as_bytes(), dir.as_os_str().as_bytes());
    let rest = text.strip_prefix(dir_text);
    rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'/') || path.starts_with(dir)
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
