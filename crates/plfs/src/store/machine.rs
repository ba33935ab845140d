//! What a process asks its machine besides files: randomness and a name.

use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::path::{Path, PathBuf};

use super::posix::PosixStore;
use super::{Errno, Open, Store, Time};
use crate::sync::plain::atomic::{AtomicU32, Ordering};
use crate::sync::plain::{Mutex, lock};
use crate::sync::{self, OnceLock};

/// Random bytes from the kernel.
pub(crate) fn fill_random(bytes: &mut [u8]) {
    if sync::fill_by_run(bytes) {
        return;
    }
    let mut done = 0;
    while done < bytes.len() {
        match rustix::rand::getrandom(&mut bytes[done..], rustix::rand::GetRandomFlags::empty()) {
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            // A kernel without getrandom(2) is older than Rust supports; the hasher's keys are
            // random as well.
            Err(_) => {
                use std::hash::{BuildHasher, Hasher};
                for byte in &mut bytes[done..] {
                    *byte = std::hash::RandomState::new().build_hasher().finish() as u8;
                }
                return;
            }
        }
    }
}

/// A random number.
pub(crate) fn random_u64() -> u64 {
    let mut bytes = [0; 8];
    fill_random(&mut bytes);
    u64::from_le_bytes(bytes)
}

/// Where /proc has what this process has open and how it sees the machine. `/proc/self` is that of
/// the first thread, which has none of it once main has left by pthread_exit, while others go on.
/// Before Linux 3.17 there is nothing else that lasts as long as a thread.
pub fn own_proc() -> &'static CStr {
    const THREAD: u32 = 1;
    const PROCESS: u32 = 2;
    static WHICH: AtomicU32 = AtomicU32::new(0);
    let mut which = WHICH.load(Ordering::Relaxed);
    if which == 0 {
        let access = rustix::fs::access(c"/proc/thread-self", rustix::fs::Access::EXISTS);
        which = if access.is_ok() { THREAD } else { PROCESS };
        WHICH.store(which, Ordering::Relaxed);
    }
    if which == THREAD { c"/proc/thread-self" } else { c"/proc/self" }
}

pub(in crate::store) fn in_own_proc(name: &str) -> String {
    format!("{}/{name}", own_proc().to_string_lossy())
}

/// A path that leads to what is open as `fd`, on any thread.
pub fn fd_path(fd: RawFd) -> String {
    format!("{}/fd/{fd}", own_proc().to_string_lossy())
}

/// The group that new files get.
pub(crate) fn group() -> u32 {
    rustix::process::getegid().as_raw()
}

/// [`umask`] was not told.
const NOT_TOLD: u32 = u32::MAX;
/// Who tells of changes has not said what it is.
const NOT_ASKED: u32 = u32::MAX - 1;

static TOLD: AtomicU32 = AtomicU32::new(NOT_TOLD);

/// The umask is this from now on; `None`: as it is. For who tells of each change. Else it is asked
/// for each new file, which costs a read in /proc: umask(2) tells it only by setting it.
pub fn tell_umask(umask: Option<u32>) {
    TOLD.store(umask.unwrap_or(NOT_ASKED), Ordering::Release);
}

/// Permission bits that new files do not get. 0 if nobody knows (Linux before 4.7).
pub(crate) fn umask() -> u32 {
    let told = TOLD.load(Ordering::Acquire);
    if told < NOT_ASKED {
        return told;
    }
    let status = read_small(&in_own_proc("status"));
    let said = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    let umask = said.and_then(|said| u32::from_str_radix(said.trim(), 8).ok()).unwrap_or(0);
    // Unless it was told meanwhile.
    let _ = TOLD.compare_exchange(NOT_ASKED, umask, Ordering::AcqRel, Ordering::Acquire);
    umask
}

/// The name of this host.
pub(crate) fn host_name() -> CString {
    rustix::system::uname().nodename().to_owned()
}

/// What tells this process from all others, on whatever host, as open marks have it. All are 0 if
/// unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProcessFacts {
    /// The lower half of [`boot_id`].
    pub(crate) boot: u32,
    /// The machine it runs on, by /etc/machine-id and host name: machines that were cloned share
    /// the one, but not the other.
    pub(crate) machine: u32,
    /// Inode of its pid namespace.
    pub(crate) pid_namespace: u32,
    /// When it started, in clock ticks since boot.
    pub(crate) start: u32,
}

impl ProcessFacts {
    /// This process's. Two small reads of /proc, once in a process.
    pub(crate) fn of_this_process() -> ProcessFacts {
        static KNOWN: Mutex<Option<(u32, ProcessFacts)>> = Mutex::new(None);
        let (mut known, pid) = (lock(&KNOWN), std::process::id());
        match *known {
            Some((of, facts)) if of == pid => facts,
            // The child of a fork is another one.
            _ => {
                let facts = ProcessFacts {
                    boot: boot_id() as u32,
                    machine: machine(),
                    pid_namespace: pid_namespace() as u32,
                    // Of the process, and there as long as it: that of a thread is another one.
                    start: start_of("/proc/self/stat"),
                };
                *known = Some((pid, facts));
                facts
            }
        }
    }
}

fn machine() -> u32 {
    static MACHINE: OnceLock<u32> = OnceLock::new();
    *MACHINE.get_or_init(|| match first_digits("/etc/machine-id") {
        0 => 0,
        id => (plfs_format::sum(&[&id.to_le_bytes(), host_name().to_bytes()].concat())).max(1),
    })
}

/// First eight bytes of the boot id of this host; 0: unknown.
pub(crate) fn boot_id() -> u64 {
    static ID: OnceLock<u64> = OnceLock::new();
    *ID.get_or_init(|| first_digits("/proc/sys/kernel/random/boot_id"))
}

/// Time since this machine was started, nanoseconds; it goes on while the machine sleeps, and
/// nobody sets it.
pub(crate) fn boot_time_ns() -> u64 {
    if let Some(ns) = sync::time_of_run_ns() {
        return ns;
    }
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    (now.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(now.tv_nsec as u64)
}

/// What the clocks of a machine say at one moment.
pub(crate) struct Clocks {
    pub wall: Time,
    /// [`boot_time_ns`].
    pub boot_ns: u64,
}

/// How far [`Clocks`] may be apart: 10 us, less than any write and sync takes. Three looks take
/// 0.1 us.
pub(crate) const CLOCKS_APART_NS: u64 = 10_000;

/// Both clocks, [`CLOCKS_APART_NS`] apart at most: a thread that loses its processor between the
/// looks looks again. On a machine where that happens each time the time since the start is too
/// late, so that the wall clock seems to have been set back.
pub(crate) fn clocks() -> Clocks {
    const TRIES: usize = 10;
    let mut tries = 0;
    loop {
        let before = boot_time_ns();
        let wall = Time::now();
        let boot_ns = boot_time_ns();
        tries += 1;
        if boot_ns - before <= CLOCKS_APART_NS || tries == TRIES {
            return Clocks { wall, boot_ns };
        }
    }
}

fn first_digits(path: &str) -> u64 {
    let text = read_small(path);
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).take(16).collect();
    u64::from_str_radix(&digits, 16).unwrap_or(0)
}

/// Whether there certainly is no process `pid` in this process's namespace.
pub(crate) fn is_dead(pid: u32) -> bool {
    let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) else {
        return false;
    };
    let is_our_proc =
        read_small("/proc/self/stat").split(' ').next().and_then(|own| own.parse().ok())
            == Some(std::process::id());
    is_our_proc && rustix::process::test_kill_process(pid) == Err(Errno::SRCH)
}

/// Whether process `pid` of a pid namespace is certainly dead, and its parent knows. One system
/// call; nobody can tell of other namespaces.
pub(crate) fn has_ended(pid: u32, namespace: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    namespace == ProcessFacts::of_this_process().pid_namespace
        && pid.is_some_and(|pid| rustix::process::test_kill_process(pid) == Err(Errno::SRCH))
}

/// When process `pid` of this process's namespace started; 0 if there is none.
pub(crate) fn start_of_process(pid: u32) -> u32 {
    start_of(&format!("/proc/{pid}/stat"))
}

/// Inode of this process's pid namespace; 0: unknown.
fn pid_namespace() -> u64 {
    let link = rustix::fs::readlink("/proc/self/ns/pid", Vec::new()).ok();
    let text = link.as_ref().and_then(|link| link.to_str().ok()).unwrap_or_default();
    text.trim_start_matches("pid:[").trim_end_matches(']').parse().unwrap_or(0)
}

/// The 22nd field, counted behind the name of the program, which may have blanks. In a time
/// namespace it is off by what the boot time is there; the same process must be the same for all.
fn start_of(stat: &str) -> u32 {
    let text = read_small(stat);
    text.rsplit_once(')')
        .and_then(|(_, rest)| rest.split_ascii_whitespace().nth(19)?.parse::<u64>().ok())
        .map_or(0, |start| start.wrapping_sub(boot_offset_ticks()) as u32)
}

/// Ticks of /proc in a second: USER_HZ of the kernel, 100 on x86 and ARM.
const USER_HZ: u64 = 100;

/// By how much boot times are later in this process's time namespace, in the ticks of /proc.
fn boot_offset_ticks() -> u64 {
    static TICKS: OnceLock<u64> = OnceLock::new();
    *TICKS.get_or_init(|| {
        // Not below /proc/thread-self; and here threads have all that processes have.
        let thread = rustix::thread::gettid().as_raw_nonzero();
        let seconds = read_small(&format!("/proc/{thread}/timens_offsets"))
            .lines()
            .filter_map(|line| line.strip_prefix("boottime"))
            .find_map(|rest| rest.split_ascii_whitespace().next()?.parse::<i64>().ok())
            .unwrap_or(0);
        (seconds as u64).wrapping_mul(USER_HZ)
    })
}

/// A directory that is open: it is the same one whatever its name is by now.
#[derive(Debug, Clone, Copy)]
pub struct OpenDir(RawFd);

impl OpenDir {
    /// The descriptor stays open as long as this is used.
    pub fn of(fd: BorrowedFd<'_>) -> OpenDir {
        OpenDir(fd.as_raw_fd())
    }

    /// Mount and inode, by three calls in /proc and none on the storage. `None`: an older kernel
    /// than Linux 5.14 does not say it, or there is no /proc.
    pub(crate) fn identity(self) -> Option<(u64, u64)> {
        let text = read_small(&in_own_proc(&format!("fdinfo/{}", self.0)));
        let field =
            |name| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        Some((field("mnt_id:")?, field("ino:")?))
    }

    /// A path that leads to it as long as it is open.
    pub(crate) fn path(self) -> PathBuf {
        PathBuf::from(fd_path(self.0))
    }
}

/// The first KiB of a file of /proc; empty if it cannot be read.
fn read_small(path: &str) -> String {
    let read = || -> super::Result<String> {
        // At a number that is PLFS's for a moment, not one of the program's.
        let file = PosixStore::new().open(Path::new(path), Open::READ.briefly())?;
        let mut bytes = [0; 1024];
        // One read gives all of so short a file.
        let n = file.read_at(&mut bytes, 0)?;
        Ok(String::from_utf8_lossy(&bytes[..n]).into_owned())
    };
    read().unwrap_or_default()
}
