//! The user for whom a thread acts on the backend.
//!
//! The daemon runs as root and serves many users. fsuid and fsgid belong to a thread, so a worker
//! takes the caller's for the length of a call, and the store takes the file owner's for the length
//! of one of its calls ([`crate::store`]). A thread whose fsuid is not root's has no capabilities
//! that override permissions either. The daemon of an ordinary user changes nothing, because it may
//! act for that user only.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::sync::OnceLock;

use plfs_core::store::Errno;
use rustix::process::Gid;

/// The maker of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// User of the caller's file system calls.
    pub uid: u32,
    /// Group of the caller's file system calls.
    pub gid: u32,
    /// Its thread; 0 if unknown.
    pub pid: u32,
}

thread_local! {
    /// What this thread's fsuid and fsgid are; the daemon's at first.
    static NOW: Cell<Option<(u32, u32)>> = const { Cell::new(None) };
}

/// Whether this process can act for others.
pub fn is_root() -> bool {
    static ROOT: OnceLock<bool> = OnceLock::new();
    *ROOT.get_or_init(|| rustix::process::geteuid().is_root())
}

/// Whether the daemon's own group is root's, too, so that a thread need not become root first.
fn began_as_root() -> bool {
    static ROOT: OnceLock<bool> = OnceLock::new();
    *ROOT.get_or_init(|| rustix::process::getegid().is_root())
}

/// The thread acts for somebody until this is dropped.
#[derive(Debug)]
#[must_use]
pub struct Acting {
    before: Option<(u32, u32)>,
}

impl Acting {
    /// From now on the thread's calls are those of this user and group.
    pub fn as_user(uid: u32, gid: u32) -> Acting {
        let before = NOW.get().or_else(|| began_as_root().then_some((0, 0)));
        if !is_root() || before == Some((uid, gid)) {
            return Acting { before: None };
        }
        set(uid, gid);
        Acting { before: Some(before.unwrap_or((0, 0))) }
    }

    /// From now on the thread's calls are the daemon's own.
    pub fn as_daemon() -> Acting {
        Acting::as_user(0, 0)
    }
}

impl Drop for Acting {
    fn drop(&mut self) {
        if let Some((uid, gid)) = self.before {
            set(uid, gid);
        }
    }
}

fn set(uid: u32, gid: u32) {
    NOW.set(Some((uid, gid)));
    // SAFETY: both calls take numbers and change this thread's credentials only; glibc's are the
    // bare system calls.
    unsafe {
        libc::setfsgid(gid);
        libc::setfsuid(uid);
    }
}

/// Runs `call` as the caller. If it is refused, runs it again with the caller's supplementary
/// groups. They are read from /proc, as a request does not contain them, and only then, because
/// that costs more than most calls. `call` must have no effect when it is refused.
pub fn as_caller<T>(caller: Caller, call: impl Fn() -> Result<T, Errno>) -> Result<T, Errno> {
    let _acting = Acting::as_user(caller.uid, caller.gid);
    match call() {
        Err(refused @ (Errno::ACCESS | Errno::PERM))
            if is_root() && caller.uid != 0 && caller.pid != 0 =>
        {
            match Groups::of(caller.pid) {
                Some(_groups) => call(),
                None => Err(refused),
            }
        }
        other => other,
    }
}

/// [`as_caller`], with the groups from the beginning: for calls whose effect depends on them,
/// though they succeed without.
pub fn as_caller_with_groups<T>(
    caller: Caller,
    call: impl FnOnce() -> Result<T, Errno>,
) -> Result<T, Errno> {
    let _acting = Acting::as_user(caller.uid, caller.gid);
    let _groups = (is_root() && caller.uid != 0 && caller.pid != 0).then(|| Groups::of(caller.pid));
    call()
}

/// The thread has these supplementary groups until this is dropped; then none.
struct Groups;

impl Groups {
    fn of(pid: u32) -> Option<Groups> {
        let status = {
            let _acting = Acting::as_daemon();
            std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?
        };
        let groups: Vec<Gid> = status
            .lines()
            .find_map(|line| line.strip_prefix("Groups:"))?
            .split_whitespace()
            .filter_map(|id| id.parse().ok().map(Gid::from_raw))
            .collect();
        // The bare system call: it is this thread's groups that change, not the process's.
        rustix::thread::set_thread_groups(&groups).ok()?;
        Some(Groups)
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        // Cannot fail after the call that set them: it needs the same right.
        let _ = rustix::thread::set_thread_groups(&[]);
    }
}
