//! The status and the log of a running mount; both can be read as attributes of its root.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::ffi::CString;
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use log::{Level, LevelFilter, Log, Metadata, Record};
use serde::{Deserialize, Serialize};

use crate::inode::lock;

/// Attribute of the root: the mount's status, as JSON.
pub const MOUNT_ATTRIBUTE: &str = "user.plfs.mount";
/// Attribute of the root: the latest lines of the log.
pub const LOG_ATTRIBUTE: &str = "user.plfs.log";
/// Attribute of the root: what is logged; can be set.
pub const LEVEL_ATTRIBUTE: &str = "user.plfs.level";
/// Lines of the log that are kept for `plfs log`.
const KEPT_LINES: usize = 400;
/// Linux gives no attribute that is longer (XATTR_SIZE_MAX).
const ATTRIBUTE_BYTES_MAX: usize = 64 << 10;

/// A path in JSON: a string, or what is not UTF-8 as `{"base64": "..."}` (RFC 4648), so that no
/// name reads as another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Text", try_from = "Text")]
pub struct JsonPath(pub PathBuf);

impl JsonPath {
    /// That of this path.
    pub fn of(path: impl AsRef<Path>) -> JsonPath {
        JsonPath(path.as_ref().to_path_buf())
    }
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Text {
    Utf8(String),
    Other { base64: String },
}

impl From<JsonPath> for Text {
    fn from(path: JsonPath) -> Text {
        match path.0.into_os_string().into_string() {
            Ok(text) => Text::Utf8(text),
            Err(other) => Text::Other { base64: STANDARD.encode(other.as_bytes()) },
        }
    }
}

impl TryFrom<Text> for JsonPath {
    type Error = base64::DecodeError;

    fn try_from(text: Text) -> Result<JsonPath, base64::DecodeError> {
        Ok(JsonPath(match text {
            Text::Utf8(text) => text.into(),
            Text::Other { base64 } => OsString::from_vec(STANDARD.decode(base64)?).into(),
        }))
    }
}

/// What a mount is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Status {
    /// Where it is mounted.
    pub mountpoint: JsonPath,
    /// What it shows.
    pub backends: Vec<JsonPath>,
    /// The daemon.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
    /// Version of PLFS.
    pub version: String,
    /// Seconds since 1970 at which it was mounted.
    pub since_s: u64,
    /// Threads that serve requests.
    pub threads: usize,
    /// What it was started with; none if the daemon is of an earlier version.
    #[serde(default)]
    pub fixed: Option<crate::mount::Fixed>,
    /// Open files and directories.
    #[serde(default)]
    pub open: u64,
    /// Inodes that the kernel knows.
    #[serde(default)]
    pub inodes: u64,
    /// What is logged.
    #[serde(default)]
    pub level: String,
}

/// The daemon's log.
#[derive(Debug)]
pub struct Journal {
    lines: Mutex<VecDeque<String>>,
    to_syslog: AtomicBool,
}

/// The one of this process.
pub fn journal() -> &'static Journal {
    static JOURNAL: OnceLock<Journal> = OnceLock::new();
    JOURNAL.get_or_init(|| Journal { lines: Mutex::default(), to_syslog: AtomicBool::new(false) })
}

/// The daemon's name in syslog, which keeps the pointer.
static NAME: &std::ffi::CStr = c"plfs";

impl Journal {
    /// Logs to standard error from now on.
    pub fn start(level: LevelFilter) {
        // Only a second start can fail, and changes nothing.
        let _ = log::set_logger(journal());
        log::set_max_level(level);
    }

    /// From now on to syslog: standard error is about to be closed.
    pub fn use_syslog(&self) {
        // SAFETY: the name lives for ever, as openlog(3) demands.
        unsafe { libc::openlog(NAME.as_ptr(), libc::LOG_PID | libc::LOG_NDELAY, libc::LOG_DAEMON) };
        self.to_syslog.store(true, Ordering::Release);
    }

    /// The latest lines, as many as fit into an attribute.
    pub fn tail(&self) -> String {
        let lines = lock(&self.lines);
        let mut room = ATTRIBUTE_BYTES_MAX;
        let fit = lines.iter().rev().take_while(|line| {
            let fits = room > line.len();
            room = room.saturating_sub(line.len() + 1);
            fits
        });
        let from = lines.len() - fit.count();
        lines.iter().skip(from).fold(String::new(), |text, line| text + line + "\n")
    }
}

impl Log for Journal {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // Of the FUSE library only warnings and errors: it logs every request.
        metadata.level() <= log::max_level()
            && (metadata.level() <= Level::Warn || !metadata.target().starts_with("fuser"))
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let text = record.args().to_string().replace('\n', "\\n");
        // When a mount has ended, the FUSE library unmounts it once more, and warns that it is not
        // there.
        if record.target().starts_with("fuser")
            && text
                == format!(
                    "Failed to umount filesystem: {}",
                    std::io::Error::from_raw_os_error(libc::EINVAL)
                )
        {
            return;
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        {
            let mut lines = lock(&self.lines);
            if lines.len() >= KEPT_LINES {
                lines.pop_front();
            }
            lines.push_back(format!(
                "{}.{:03} {} {text}",
                now.as_secs(),
                now.subsec_millis(),
                record.level()
            ));
        }
        let priority = match record.level() {
            Level::Error => libc::LOG_ERR,
            Level::Warn => libc::LOG_WARNING,
            Level::Info => libc::LOG_INFO,
            Level::Debug | Level::Trace => libc::LOG_DEBUG,
        };
        if !self.to_syslog.load(Ordering::Acquire) {
            // Errors of writing the log are ignored.
            let _ = match std::env::var_os("JOURNAL_STREAM") {
                // systemd reads the number in front as the priority.
                Some(_) => writeln!(std::io::stderr(), "<{priority}>{text}"),
                None => writeln!(
                    std::io::stderr(),
                    "plfs: {}: {text}",
                    record.level().as_str().to_lowercase()
                ),
            };
        } else if let Ok(text) = CString::new(text.replace('\0', "\\0")) {
            // SAFETY: the format takes one string, which is one and lives until the call returns.
            unsafe { libc::syslog(priority, c"%s".as_ptr(), text.as_ptr()) };
        }
    }

    fn flush(&self) {}
}
