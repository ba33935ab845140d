//! The daemon: mounts, reports that it is up, serves requests, and unmounts on a signal.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fuser::{Config, MountOption, Session, SessionACL};
use log::LevelFilter;
use plfs_core::store::{Errno, PosixStore, Store};
use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::process::{Pid, PidfdFlags, Resource};
use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::creds;
use crate::fs::Door;
use crate::fuse::{Fuse, MAX_WRITE_BYTES};
use crate::status::{Journal, JsonPath, MOUNT_ATTRIBUTE, Status, journal};
use crate::store::Root;

/// The line that the daemon sends to its parent when the mount is up.
const READY: &[u8] = b"ready\n";
/// How long an unmount waits for the daemon to commit and end.
const END_WAIT: Duration = Duration::from_secs(60);
/// How long a remount waits for the last close of files to reach the daemon.
const REMOUNT_WAIT: Duration = Duration::from_secs(2);

/// What to mount, where and how.
#[derive(Clone, Debug)]
pub struct Request {
    /// Where.
    pub mountpoint: PathBuf,
    /// The backends: the first is shown, data of new files goes to all. Empty: the mount point's
    /// own directory.
    pub backends: Vec<PathBuf>,
    /// Options, separated by commas, as of `mount -o`; may be several texts.
    pub options: Vec<String>,
}

/// Options of a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// For the kernel.
    kernel: Vec<MountOption>,
    /// More backends.
    backends: Vec<PathBuf>,
    /// What is logged.
    level: LevelFilter,
    fixed: Fixed,
}

/// Options that a remount cannot change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fixed {
    /// Other users than the one who mounts.
    allow_other: bool,
    /// Threads that serve requests.
    threads: usize,
    /// Milliseconds for which the kernel may believe names and attributes.
    ttl_ms: u64,
    /// Access lists count.
    acl: bool,
    /// The kernel may use plain files by itself.
    passthrough: bool,
}

impl Default for Fixed {
    fn default() -> Fixed {
        let threads = std::thread::available_parallelism().map_or(4, |n| n.get() * 2).clamp(4, 16);
        Fixed { allow_other: creds::is_root(), threads, ttl_ms: 1000, acl: true, passthrough: true }
    }
}

impl Fixed {
    /// The name of the first option that differs.
    fn difference(&self, other: &Fixed) -> Option<&'static str> {
        let differs = [
            ("allow_other", self.allow_other != other.allow_other),
            ("threads", self.threads != other.threads),
            ("timeout", self.ttl_ms != other.ttl_ms),
            ("acl", self.acl != other.acl),
            ("nopassthrough", self.passthrough != other.passthrough),
        ];
        differs.into_iter().find(|(_, differs)| *differs).map(|(name, _)| name)
    }
}

impl Options {
    /// Reads the texts of `-o`. An unknown option is an error that says so.
    pub fn parse(texts: &[String]) -> Result<Options, String> {
        Options::parse_onto(Fixed::default(), LevelFilter::Info, texts)
    }

    /// [`Options::parse`] with other values for what the texts do not say.
    fn parse_onto(fixed: Fixed, level: LevelFilter, texts: &[String]) -> Result<Options, String> {
        let remount = is_remount(texts);
        let mut options = Options { kernel: Vec::new(), backends: Vec::new(), level, fixed };
        for option in words(texts) {
            let (name, value) =
                option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value)));
            let number = |least: f64, most: f64| {
                let value = value
                    .and_then(|value| value.parse::<f64>().ok())
                    .filter(|value| (least..=most).contains(value));
                value.ok_or_else(|| {
                    format!("option {option}: {name} takes a number from {least} to {most}")
                })
            };
            let flag = match name {
                "ro" => Some(MountOption::RO),
                "rw" => Some(MountOption::RW),
                "dev" => Some(MountOption::Dev),
                "nodev" => Some(MountOption::NoDev),
                "suid" => Some(MountOption::Suid),
                "nosuid" => Some(MountOption::NoSuid),
                "exec" => Some(MountOption::Exec),
                "noexec" => Some(MountOption::NoExec),
                "atime" => Some(MountOption::Atime),
                "noatime" => Some(MountOption::NoAtime),
                "dirsync" => Some(MountOption::DirSync),
                "sync" => Some(MountOption::Sync),
                "async" => Some(MountOption::Async),
                _ => None,
            };
            match (name, flag) {
                (_, Some(flag)) => options.kernel.push(flag),
                ("backend", _) => options.backends.push(
                    value
                        .filter(|path| !path.is_empty())
                        .ok_or("option backend takes a directory")?
                        .into(),
                ),
                ("allow_other", _) => options.fixed.allow_other = true,
                ("threads", _) => options.fixed.threads = number(1.0, 256.0)? as usize,
                ("timeout", _) => options.fixed.ttl_ms = (number(0.0, 86400.0)? * 1000.0) as u64,
                ("noacl", _) => options.fixed.acl = false,
                ("acl", _) => options.fixed.acl = true,
                ("nopassthrough", _) => options.fixed.passthrough = false,
                ("log", _) => {
                    let level = value.and_then(|value| value.parse().ok());
                    options.level = level.ok_or_else(|| {
                        format!("option {option}: log takes error, warn, info, debug or trace")
                    })?;
                }
                // What is for mount(8), systemd or libfuse, or is always so.
                (
                    "defaults"
                    | "auto"
                    | "noauto"
                    | "nofail"
                    | "user"
                    | "users"
                    | "nouser"
                    | "owner"
                    | "group"
                    | "_netdev"
                    | "default_permissions"
                    | "fsname"
                    | "subtype"
                    | "relatime"
                    | "remount",
                    _,
                ) => {}
                // Options of the kernel's mount table, which mount(8) passes again.
                (
                    "user_id" | "group_id" | "max_read" | "nodiratime" | "diratime" | "strictatime",
                    _,
                ) if remount => {}
                (name, _) if name.starts_with("x-") || name.starts_with("comment") => {}
                _ => {
                    return Err(format!(
                        "option {option} is not known; `plfs mount --help` lists the options"
                    ));
                }
            }
        }
        Ok(options)
    }
}

/// The options in some texts.
fn words(texts: &[String]) -> impl Iterator<Item = &str> {
    texts.iter().flat_map(|text| text.split(',')).map(str::trim).filter(|option| !option.is_empty())
}

/// Whether these options ask for changes to a mount that is there.
pub fn is_remount(texts: &[String]) -> bool {
    words(texts).any(|word| word == "remount")
}

/// Mounts and serves until it is unmounted. `ready` is called when the mount is up.
pub fn serve(request: &Request, ready: impl FnOnce() -> std::io::Result<()>) -> Result<(), String> {
    let options = Options::parse(&request.options)?;
    Journal::start(options.level);
    let config = plfs_core::Config::from_env()?;
    let mountpoint = mountpoint_of(request)?;
    let backends =
        backends_of(request, &mountpoint, options.backends.iter().chain(&config.backends))?;
    prepare_process();
    let roots = backends
        .iter()
        .map(|backend| Ok(Root::new(backend.clone(), open_root(backend)?)))
        .collect::<Result<Vec<_>, String>>()?;
    let backend = backends[0].clone();
    let others = others(&backends, &mountpoint, &config);
    let door = Door::new(roots, others, config, Duration::from_millis(options.fixed.ttl_ms))
        .map_err(|errno| format!("cannot use {}: {errno}", backend.display()))?;
    if !options.kernel.contains(&MountOption::RO) {
        door.prepare().map_err(|(_, text)| text)?;
    }
    let door = Arc::new(door);
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let status = Status {
        mountpoint: JsonPath::of(&mountpoint),
        backends: backends.into_iter().map(JsonPath).collect(),
        pid: std::process::id(),
        uid: rustix::process::geteuid().as_raw(),
        version: env!("CARGO_PKG_VERSION").to_string(),
        since_s: since.as_secs(),
        threads: options.fixed.threads,
        fixed: Some(options.fixed.clone()),
        open: 0,
        inodes: 0,
        level: String::new(),
    };
    let notifier = Arc::new(OnceLock::new());
    let fuse = Fuse {
        door: door.clone(),
        notifier: notifier.clone(),
        status: Arc::new(status),
        passthrough: AtomicBool::new(options.fixed.passthrough),
        acl: options.fixed.acl,
    };
    let mut config = Config::default();
    // In /proc/mounts a comma ends an option.
    let source = backend.to_string_lossy().replace(',', "_");
    config.mount_options = vec![
        MountOption::FSName(source),
        // Not Subtype, which the FUSE library leaves out when root mounts.
        MountOption::CUSTOM("subtype=plfs".into()),
        MountOption::DefaultPermissions,
    ];
    config.mount_options.extend(options.kernel);
    config.acl = if options.fixed.allow_other { SessionACL::All } else { SessionACL::Owner };
    config.n_threads = Some(options.fixed.threads);
    config.clone_fd = creds::is_root();
    let session = Session::new(fuse, &mountpoint, &config)
        .map_err(|error| cannot_mount(&mountpoint, &error))?;
    let _ = notifier.set(session.notifier());
    read_ahead(&mountpoint);
    watch_signals(mountpoint.clone(), door)
        .map_err(|error| format!("cannot wait for signals: {error}"))?;
    ready().map_err(|error| format!("cannot report that the mount is up: {error}"))?;
    log::info!("mounted {} on {}", backend.display(), mountpoint.display());
    tell_systemd();
    let ended = session.run();
    log::info!("unmounted {}", mountpoint.display());
    ended.map_err(|error| format!("the mount on {} ended: {error}", mountpoint.display()))
}

/// Lets the kernel read as much ahead as a request holds. What it takes of a file system's own wish
/// is 128 KiB at most; more is set by root only, for the mount's device.
fn read_ahead(mountpoint: &Path) {
    let Some(mount) = mounts().into_iter().rfind(|mount| mount.mountpoint == mountpoint) else {
        return;
    };
    let path = format!("/sys/class/bdi/{}/read_ahead_kb", mount.device);
    if let Err(error) = std::fs::write(&path, (MAX_WRITE_BYTES >> 10).to_string()) {
        log::debug!("the kernel reads 128 KiB ahead: {path}: {error}");
    }
}

fn cannot_mount(mountpoint: &Path, error: &std::io::Error) -> String {
    let hint = match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => {
            "; is the fuse module loaded (modprobe fuse), and does /dev/fuse exist?"
        }
        Some(libc::EACCES | libc::EPERM) => {
            "; mount as root, or let users use /dev/fuse and install fusermount3"
        }
        _ => "",
    };
    // What fusermount3 says ends a line.
    format!("cannot mount on {}: {}{hint}", mountpoint.display(), error.to_string().trim_end())
}

/// The real path of the mount point, after all checks of it.
fn mountpoint_of(request: &Request) -> Result<PathBuf, String> {
    let shown = request.mountpoint.display();
    // The path alone can still be looked up when the daemon is dead.
    let mountpoint = match std::fs::metadata(&request.mountpoint)
        .and_then(|_| std::fs::canonicalize(&request.mountpoint))
    {
        Ok(path) => path,
        Err(error) if error.raw_os_error() == Some(libc::ENOTCONN) => {
            return Err(format!(
                "{shown} is a mount whose daemon has ended; run `plfs umount {shown}`, then mount \
                 again"
            ));
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(format!(
                "{shown}: there is no such directory; create it first: mkdir -p {shown}"
            ));
        }
        Err(error) => return Err(format!("{shown}: {error}")),
    };
    if !mountpoint.is_dir() {
        return Err(format!("{shown} is not a directory"));
    }
    if mounts().iter().any(|mount| mount.mountpoint == mountpoint) {
        return Err(format!("{shown} is a PLFS mount already; `plfs umount {shown}` ends it"));
    }
    Ok(mountpoint)
}

/// The real paths of the backends: those of the request, the mount point's own directory if there
/// is none, and `more`.
fn backends_of<'a>(
    request: &'a Request,
    mountpoint: &'a PathBuf,
    more: impl Iterator<Item = &'a PathBuf>,
) -> Result<Vec<PathBuf>, String> {
    let own = request.backends.is_empty().then_some(mountpoint);
    let mut backends = Vec::new();
    for given in own.into_iter().chain(&request.backends).chain(more) {
        let shown = given.display();
        let backend = std::fs::canonicalize(given)
            .map_err(|error| format!("backend {shown}: {error}; is its file system mounted?"))?;
        if !backend.is_dir() {
            return Err(format!("backend {shown} is not a directory"));
        }
        if backends.contains(&backend) {
            return Err(format!("backend {shown} is given twice"));
        }
        backends.push(backend);
    }
    if let Some(covered) = backends[1..].iter().find(|backend| backend.starts_with(mountpoint)) {
        return Err(format!(
            "backend {} would lie below the mount, where other doors of PLFS do not find it",
            covered.display()
        ));
    }
    if *mountpoint != backends[0] && mountpoint.starts_with(&backends[0]) {
        return Err(format!(
            "{} lies in its own backend {}: the mount would contain itself; mount elsewhere, or \
             on the backend itself",
            request.mountpoint.display(),
            backends[0].display()
        ));
    }
    Ok(backends)
}

/// The other backends of the first one's table: names of flat directories may be there.
fn others(given: &[PathBuf], mountpoint: &Path, config: &plfs_core::Config) -> Vec<Root> {
    let store: Arc<dyn Store> = Arc::new(PosixStore::new());
    // It has none yet, or not for us.
    let dirs = plfs_core::backend_dirs(&store, config, &given[0]).unwrap_or_default();
    let real = dirs.iter().filter_map(|dir| Some((dir, std::fs::canonicalize(dir).ok()?)));
    let is_other = |(_, real): &(&PathBuf, PathBuf)| {
        !given.contains(real) && (real == mountpoint || !real.starts_with(mountpoint))
    };
    let open = |(dir, _): (&PathBuf, PathBuf)| match open_root(dir) {
        Ok(fd) => Some(Root::new(dir.clone(), fd)),
        Err(text) => {
            log::warn!("{text}");
            None
        }
    };
    real.filter(is_other).filter_map(open).collect()
}

/// What the daemon needs: no mask of its own, no groups, as many descriptors as it may have.
fn prepare_process() {
    rustix::process::umask(Mode::empty());
    if creds::is_root() {
        // Workers get the callers' groups when they need them.
        let _ = rustix::thread::set_thread_groups(&[]);
    }
    let mut limit = rustix::process::getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = rustix::process::setrlimit(Resource::Nofile, limit);
    let _ = std::env::set_current_dir("/");
}

fn open_root(backend: &Path) -> Result<std::os::fd::OwnedFd, String> {
    let cannot = |errno: Errno| format!("cannot open {}: {errno}", backend.display());
    let fd = rustix::fs::open(
        backend,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .map_err(cannot)?;
    // Above the low numbers, to be recognised in /proc.
    rustix::io::fcntl_dupfd_cloexec(&fd, 10).map_err(cannot)
}

/// The first signal unmounts; open files stay usable until they are closed. The second ends the
/// daemon, after a commit.
fn watch_signals(mountpoint: PathBuf, door: Arc<Door>) -> std::io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    let run = move || {
        let mut asked = false;
        for _ in signals.forever() {
            if std::mem::replace(&mut asked, true) {
                log::warn!("second signal to end: open files are committed and closed");
                door.end();
                std::process::exit(1);
            }
            log::info!("signal to end: unmounting {}", mountpoint.display());
            if let Err(error) = detach(&mountpoint, false) {
                log::warn!(
                    "{} is in use ({error}): it goes from the tree now, and the daemon when the \
                     last file is closed",
                    mountpoint.display()
                );
                if let Err(error) = door.plfs.commit_all() {
                    log::error!("{error}");
                }
                if let Err(error) = detach(&mountpoint, true) {
                    log::error!("cannot unmount {}: {error}", mountpoint.display());
                }
            }
        }
    };
    std::thread::Builder::new().name("plfs-signal".into()).spawn(run).map(drop)
}

fn tell_systemd() {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram};
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let address = match path.as_encoded_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&path),
    };
    let told =
        address.and_then(|address| UnixDatagram::unbound()?.send_to_addr(b"READY=1", &address));
    if let Err(error) = told {
        log::warn!("cannot report to systemd that the mount is up: {error}");
    }
}

/// Starts the daemon: this program again, with `arguments`, which must come to [`serve_as_daemon`].
/// Returns when the mount is up; otherwise the daemon has printed the reason.
pub fn start(arguments: &[std::ffi::OsString]) -> Result<(), String> {
    let cannot = |error: std::io::Error| format!("cannot start the daemon: {error}");
    let mut daemon = Command::new("/proc/self/exe")
        .arg0("plfs")
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(cannot)?;
    let mut said = Vec::new();
    if let Some(mut from) = daemon.stdout.take() {
        from.read_to_end(&mut said).map_err(cannot)?;
    }
    if said == READY {
        return Ok(());
    }
    match daemon.wait() {
        Ok(status) if status.code().is_some() => Err(String::new()),
        Ok(status) => Err(format!("the daemon died: {status}")),
        Err(error) => Err(cannot(error)),
    }
}

/// [`serve`] without a terminal: what [`start`] starts.
pub fn serve_as_daemon(request: &Request) -> Result<(), String> {
    // For ps and pgrep; without it the name is what was executed, "exe".
    let _ = rustix::thread::set_name(c"plfs");
    serve(request, || {
        let _ = rustix::process::setsid();
        journal().use_syslog();
        std::io::stdout().write_all(READY)?;
        std::io::stdout().flush()?;
        let null = rustix::fs::open("/dev/null", OFlags::RDWR, Mode::empty())?;
        rustix::stdio::dup2_stdout(&null)?;
        rustix::stdio::dup2_stderr(&null)?;
        Ok(())
    })
}

/// One mount of PLFS on this machine.
#[derive(Clone, Debug)]
pub struct Mounted {
    /// Where.
    pub mountpoint: PathBuf,
    /// Its source in the mount table.
    pub source: String,
    /// Its daemon's answer; the errno if there is none.
    pub status: Result<Status, Errno>,
}

/// Mounts of PLFS in the kernel's table. Asks no daemon.
fn mounts() -> Vec<MountPoint> {
    let Ok(table) = std::fs::read("/proc/self/mountinfo") else { return Vec::new() };
    // A blank in a name is escaped there.
    let parse = |line: &[u8]| {
        let mut words = line.split(|byte| *byte == b' ');
        let text = |word| std::str::from_utf8(word).ok();
        let device = text(words.nth(2)?)?.to_string();
        let (mountpoint, own) = (words.nth(1)?, text(words.next()?)?);
        let mut after = words.skip_while(|word| *word != b"-").skip(1);
        let (kind, source, of_all) = (after.next()?, after.next()?, after.next()?);
        let of_all = String::from_utf8_lossy(of_all);
        let flags = flags_of(
            of_all.split(',').filter(|word| matches!(*word, "ro" | "sync" | "dirsync")),
            MountFlags::empty(),
        );
        (kind == b"fuse.plfs").then(|| MountPoint {
            mountpoint: unescape(mountpoint).into(),
            device,
            source: unescape(source).to_string_lossy().into_owned(),
            flags: flags_of(own.split(','), flags),
        })
    };
    table.split(|byte| *byte == b'\n').filter_map(parse).collect()
}

struct MountPoint {
    mountpoint: PathBuf,
    /// Major and minor number, as in /sys/class/bdi.
    device: String,
    source: String,
    flags: MountFlags,
}

/// The kernel's flags of a mount, after these options.
fn flags_of<'a>(words: impl Iterator<Item = &'a str>, before: MountFlags) -> MountFlags {
    let times = MountFlags::RELATIME | MountFlags::NOATIME | MountFlags::STRICTATIME;
    words.fold(before, |flags, word| match word {
        "ro" => flags | MountFlags::RDONLY,
        "rw" => flags - MountFlags::RDONLY,
        "nosuid" => flags | MountFlags::NOSUID,
        "suid" => flags - MountFlags::NOSUID,
        "nodev" => flags | MountFlags::NODEV,
        "dev" => flags - MountFlags::NODEV,
        "noexec" => flags | MountFlags::NOEXEC,
        "exec" => flags - MountFlags::NOEXEC,
        "noatime" => (flags - times) | MountFlags::NOATIME,
        "atime" | "relatime" => (flags - times) | MountFlags::RELATIME,
        "strictatime" => (flags - times) | MountFlags::STRICTATIME,
        "nodiratime" => flags | MountFlags::NODIRATIME,
        "diratime" => flags - MountFlags::NODIRATIME,
        "sync" => flags | MountFlags::SYNCHRONOUS,
        "async" => flags - MountFlags::SYNCHRONOUS,
        "dirsync" => flags | MountFlags::DIRSYNC,
        _ => flags,
    })
}

/// The mount table writes blanks as \040.
fn unescape(mut rest: &[u8]) -> OsString {
    let mut bytes = Vec::new();
    while let [first, after @ ..] = rest {
        let octal = after
            .get(..3)
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        match (first, octal) {
            (b'\\', Some(byte)) => (bytes.push(byte), rest = &after[3..]).0,
            _ => (bytes.push(*first), rest = after).0,
        }
    }
    OsString::from_vec(bytes)
}

/// All mounts of PLFS with the status from their daemons. A daemon that does not answer within two
/// seconds counts as ETIMEDOUT.
pub fn list() -> Vec<Mounted> {
    let ask = |mount: MountPoint| {
        let (send, receive) = std::sync::mpsc::channel();
        let path = mount.mountpoint.clone();
        // The receiver may have stopped waiting.
        std::thread::spawn(move || drop(send.send(status(&path))));
        let status = receive.recv_timeout(Duration::from_secs(2)).unwrap_or(Err(Errno::TIMEDOUT));
        Mounted { mountpoint: mount.mountpoint, source: mount.source, status }
    };
    mounts().into_iter().map(ask).collect()
}

/// The status of the mount at `mountpoint`, from its daemon.
pub fn status(mountpoint: &Path) -> Result<Status, Errno> {
    serde_json::from_slice(&attribute(mountpoint, MOUNT_ATTRIBUTE)?).map_err(|_| Errno::INVAL)
}

/// An attribute of a mount's root.
pub fn attribute(mountpoint: &Path, name: &str) -> Result<Vec<u8>, Errno> {
    let mut value = Vec::with_capacity(64 << 10);
    rustix::fs::getxattr(mountpoint, name, rustix::buffer::spare_capacity(&mut value))?;
    Ok(value)
}

/// Sets what a mount logs.
pub fn set_level(mountpoint: &Path, level: &str) -> Result<(), Errno> {
    rustix::fs::setxattr(
        mountpoint,
        crate::status::LEVEL_ATTRIBUTE,
        level.as_bytes(),
        rustix::fs::XattrFlags::empty(),
    )
}

fn detach(mountpoint: &Path, lazy: bool) -> Result<(), Errno> {
    let flags = if lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    match rustix::mount::unmount(mountpoint, flags) {
        Err(Errno::PERM) => {
            // Users may unmount what they mounted, through fusermount3, which is set-user-id.
            let how = if lazy { "-uz" } else { "-u" };
            let done = Command::new("fusermount3")
                .arg(how)
                .arg("--")
                .arg(mountpoint)
                .stderr(Stdio::null())
                .status();
            if done.is_ok_and(|status| status.success()) { Ok(()) } else { Err(Errno::BUSY) }
        }
        other => other,
    }
}

/// The mount at that path, which may be given in any way. Without a stat of the mount point itself:
/// its daemon may be dead.
fn find(mountpoint: &Path) -> Result<MountPoint, String> {
    let parent = mountpoint
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let full = match (std::fs::canonicalize(parent), mountpoint.file_name()) {
        (Ok(parent), Some(name)) => parent.join(name),
        _ => std::fs::canonicalize(mountpoint)
            .map_err(|error| format!("{}: {error}", mountpoint.display()))?,
    };
    let at = |path: &Path| mounts().into_iter().rfind(|mount| mount.mountpoint == path);
    let found = at(&full).or_else(|| at(&std::fs::canonicalize(&full).ok()?));
    found.ok_or_else(|| {
        format!("{} is not a PLFS mount; `plfs stat --mounts` lists them", mountpoint.display())
    })
}

/// Changes the kernel's flags of a mount (ro, nosuid, …) and what is logged. Other options cannot
/// change: another value is an error.
pub fn remount(mountpoint: &Path, texts: &[String]) -> Result<(), String> {
    let mount = find(mountpoint)?;
    let shown = mountpoint.display();
    let status = status(&mount.mountpoint)
        .map_err(|errno| format!("{shown}: its daemon does not answer: {errno}"))?;
    let level = status.level.parse().unwrap_or(LevelFilter::Info);
    let fixed = status.fixed.unwrap_or_default();
    let options = Options::parse_onto(fixed.clone(), level, texts)?;
    let backend = |given: &PathBuf| {
        status.backends.iter().any(|JsonPath(known)| {
            known == given || std::fs::canonicalize(given).is_ok_and(|given| *known == given)
        })
    };
    let differs = options
        .fixed
        .difference(&fixed)
        .or_else(|| (!options.backends.iter().all(backend)).then_some("backend"));
    if let Some(name) = differs {
        return Err(format!(
            "option {name} cannot change while {shown} is mounted; `plfs umount {shown}`, then \
             mount it again"
        ));
    }
    let flags = flags_of(words(texts), mount.flags);
    // The kernel reports the last close of a removed file to the daemon after close has returned to
    // the program, and refuses to remount until then.
    let end = Instant::now() + REMOUNT_WAIT;
    loop {
        match rustix::mount::mount_remount(&mount.mountpoint, flags, c"") {
            Ok(()) => break,
            Err(Errno::BUSY) if Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(20))
            }
            Err(Errno::BUSY) => {
                return Err(format!(
                    "{shown} has files that are open for writing; close them first (fuser -vm \
                     {shown} lists who has them)"
                ));
            }
            Err(errno) => return Err(format!("cannot remount {shown}: {errno}")),
        }
    }
    if options.level != level {
        let text = options.level.to_string().to_lowercase();
        set_level(&mount.mountpoint, &text)
            .map_err(|errno| format!("cannot set what {shown} logs: {errno}"))?;
    }
    Ok(())
}

/// Unmounts, and waits until the daemon has committed and ended. `lazy`: also while files are open;
/// they stay usable until they are closed, and nobody waits.
pub fn unmount(mountpoint: &Path, lazy: bool) -> Result<(), String> {
    let full = find(mountpoint)?.mountpoint;
    let status = status(&full);
    let pid = status.as_ref().ok().and_then(|status| Pid::from_raw(status.pid as i32));
    // Opened before: afterwards the number may be another process's.
    let process = pid.and_then(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok());
    let dead = matches!(status, Err(Errno::NOTCONN));
    match detach(&full, lazy) {
        Ok(()) => {}
        Err(Errno::BUSY) if dead => detach(&full, true)
            .map_err(|errno| format!("cannot unmount {}: {errno}", full.display()))?,
        Err(Errno::BUSY) => {
            return Err(format!(
                "{} is in use; close the files in it (fuser -vm {0} lists who has them), or give \
                 --lazy",
                full.display()
            ));
        }
        Err(errno) => return Err(format!("cannot unmount {}: {errno}", full.display())),
    }
    if let (Some(process), false) = (process, lazy) {
        let end = Instant::now() + END_WAIT;
        let mut wait = [rustix::event::PollFd::new(&process, rustix::event::PollFlags::IN)];
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let timeout = rustix::event::Timespec {
                tv_sec: left.as_secs() as i64,
                tv_nsec: left.subsec_nanos().into(),
            };
            match rustix::event::poll(&mut wait, Some(&timeout)) {
                Err(Errno::INTR) => {}
                Ok(0) => {
                    return Err(format!(
                        "{} is unmounted, but its daemon (process {}) is still committing",
                        full.display(),
                        pid.map_or(0, |pid| pid.as_raw_pid())
                    ));
                }
                _ => break,
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_mount() {
        let parse = |text: &str| Options::parse(&[text.to_string()]);
        let some =
            parse("ro,threads=3,timeout=0.5,log=debug,x-systemd.automount,defaults,noacl").unwrap();
        assert_eq!(
            (some.fixed.threads, some.fixed.ttl_ms, some.level, some.fixed.acl),
            (3, 500, LevelFilter::Debug, false)
        );
        assert_eq!(some.kernel, [MountOption::RO]);
        for wrong in ["threads=0", "threads=x", "log=loud", "fast", "timeout"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert!(parse("").is_ok());
    }

    #[test]
    fn flags_of_a_remount() {
        let before =
            MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NOEXEC | MountFlags::RELATIME;
        assert_eq!(
            flags_of("rw,noatime,exec,threads=3".split(','), before),
            MountFlags::NOSUID | MountFlags::NOATIME
        );
        assert_eq!(
            flags_of("rw,ro,sync".split(','), MountFlags::NODEV),
            MountFlags::NODEV | MountFlags::RDONLY | MountFlags::SYNCHRONOUS
        );
        let as_mount_gives_it = ["ro,nosuid,nodev,nodiratime,relatime,remount,user_id=0,\
                                  group_id=0,default_permissions,allow_other"
            .to_string()];
        assert!(
            Options::parse(&as_mount_gives_it).is_ok()
                && Options::parse(&["user_id=0".to_string()]).is_err()
        );
    }

    #[test]
    fn blanks_in_the_mount_table() {
        assert_eq!(unescape(br"/a\040b\134c"), r"/a b\c");
        assert_eq!(unescape(b"/plain"), "/plain");
        assert_eq!(unescape(br"/a\04"), r"/a\04");
    }
}
