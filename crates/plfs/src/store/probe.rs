//! A probe of one directory's storage: appends to a file without a name, by O_DIRECT, so that it is
//! the storage that takes them and no page cache (docs/decisions/0028).

use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::retry_on_intr;

use super::limit::size_limit;
use super::machine::random_u64;
use super::posix::BareFd;
use super::rates::WINDOW;
use super::{Errno, Open, Result, Store, TargetProvider};
use crate::sync::plain::atomic::{AtomicU64, Ordering};

/// Bytes of an append. 512 KiB: what fills a request of disks and of network file systems, and
/// small enough that a second of a slow target has several.
pub(crate) const PIECE: usize = 512 << 10;
/// O_DIRECT wants memory, offset and length at multiples of the storage's block, 4 KiB at most.
const ALIGNED: usize = 4096;
/// Names of files that cannot be made without one, for the moment until they are removed.
const NAMED: &str = ".plfs-probe.";

/// How much a probe appends to each of its targets.
#[derive(Debug)]
pub(crate) struct Limits {
    /// Bytes.
    bytes: u64,
    /// So long they are written again and again.
    at_least: Duration,
    /// How long that may take.
    pub time: Duration,
    /// How long it may take since one target got all its bytes, nanoseconds.
    since_first: Option<AtomicU64>,
}

impl Limits {
    /// Up to `bytes`, for `time` at most.
    pub(crate) fn new(bytes: u64, time: Duration) -> Limits {
        Limits { bytes, at_least: Duration::ZERO, time, since_first: None }
    }

    /// The same, but the bytes are written again and again until the [`WINDOW`] is over.
    pub(crate) fn for_a_window(bytes: u64, time: Duration) -> Limits {
        Limits { at_least: WINDOW, ..Limits::new(bytes, time) }
    }

    /// The same, but nobody takes longer than the fastest one and a quarter of that: what is slower
    /// is known well enough then.
    pub(crate) fn of_fastest(bytes: u64, time: Duration) -> Limits {
        Limits { since_first: Some(AtomicU64::new(u64::MAX)), ..Limits::new(bytes, time) }
    }

    fn is_over(&self, took: Duration) -> bool {
        let first = self.since_first.as_ref().map_or(u64::MAX, |ns| ns.load(Ordering::Relaxed));
        took >= self.time || took.as_nanos() >= u128::from(first)
    }

    fn has_all(&self, took: Duration) {
        if let Some(first) = &self.since_first {
            let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
            first.fetch_min(ns.saturating_add(ns / 4), Ordering::Relaxed);
        }
    }
}

/// What the appends of a probe did.
#[derive(Clone, Debug)]
pub(crate) struct Appends {
    /// Bytes that the storage has.
    pub bytes: u64,
    /// What they took, without making the file.
    pub took: Duration,
    /// Each append.
    pub each: Vec<Duration>,
    /// The file system refuses O_DIRECT: each append is a write and a sync.
    pub cached: bool,
}

/// A target inside a directory, and who can make files on it.
pub(crate) type Inside<'a> = (&'a dyn Store, &'a dyn TargetProvider, u16);

/// Appends within `limits` to a file in `dir`, `on` a target inside it if one is given: it ends
/// after the first append that ends later. The file has no name; where that
/// cannot be it has one for a moment, which the next probe removes if this one was killed in it.
///
/// Errors are what the storage said: NOSPC, ROFS, ACCESS and the like.
pub(crate) fn appends(dir: &Path, on: Option<Inside<'_>>, limits: &Limits) -> Result<Appends> {
    super::learn_size_limit();
    let size = limits.bytes.min(size_limit()).clamp(1, u64::MAX / 2);
    reap(dir);
    let memory = vec![0x5a; PIECE + ALIGNED];
    let skew = memory.as_ptr().align_offset(ALIGNED).min(ALIGNED);
    let piece = &memory[skew..skew + PIECE];
    match open(dir, on, OFlags::DIRECT).and_then(|file| run(&file, piece, size, limits, false)) {
        // The file system has no O_DIRECT, or wants more than we know.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => {
            run(&open(dir, on, OFlags::empty())?, piece, size, limits, true)
        }
        other => other,
    }
}

fn run(file: &BareFd, piece: &[u8], size: u64, limits: &Limits, cached: bool) -> Result<Appends> {
    let begun = Instant::now();
    let mut done = Appends { bytes: 0, took: Duration::ZERO, each: Vec::new(), cached };
    // Whole blocks, whatever was asked for.
    let size = size.next_multiple_of(ALIGNED as u64);
    let is_done = |done: &Appends| done.bytes >= size && done.took >= limits.at_least;
    while !is_done(&done) && !limits.is_over(done.took) {
        let offset = done.bytes % size;
        let part = &piece[..usize::try_from(size - offset).unwrap_or(PIECE).min(PIECE)];
        let before = done.took;
        let n = retry_on_intr(|| rustix::io::pwrite(file.as_fd(), part, offset))?;
        if n == 0 {
            return Err(Errno::NOSPC);
        }
        if cached {
            retry_on_intr(|| rustix::fs::fdatasync(file.as_fd()))?;
        }
        done.bytes += n as u64;
        done.took = begun.elapsed();
        done.each.push(done.took - before);
        if n < part.len() && n % ALIGNED != 0 {
            // The last block of a file system that is nearly full.
            return Err(Errno::NOSPC);
        }
    }
    if done.bytes >= size {
        limits.has_all(done.took);
    }
    Ok(done)
}

fn open(dir: &Path, on: Option<Inside<'_>>, how: OFlags) -> Result<BareFd> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC | how;
    let mode = Mode::from_raw_mode(0o600);
    let nameless = flags | OFlags::TMPFILE | OFlags::EXCL;
    // A file without a name lies where the file system puts it.
    let made = match on {
        Some(_) => Err(Errno::OPNOTSUPP),
        None => BareFd::open(|| retry_on_intr(|| rustix::fs::open(dir, nameless, mode))),
    };
    match made {
        // Old kernels take it for an open of the directory.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOSYS) => {}
        // A file system may refuse either of the two. The one with a name tells which.
        Err(Errno::INVAL) => {}
        other => return other,
    }
    let pid = std::process::id();
    let path = dir.join(format!("{NAMED}{pid}.{:08x}", random_u64() as u32));
    let named = match on {
        Some((store, provider, target)) => {
            provider.create(store, &path, Open::create(0o600), target)?;
            flags | OFlags::NOFOLLOW
        }
        None => flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW,
    };
    let opened = BareFd::open(|| retry_on_intr(|| rustix::fs::open(&path, named, mode)));
    // A file system that refuses O_DIRECT may have made the file by then.
    let _ = rustix::fs::unlinkat(CWD, &path, AtFlags::empty());
    opened
}

/// Removes what probes of this user left that were killed in the moment in which their file had a
/// name.
fn reap(dir: &Path) {
    use super::PosixStore;
    let mut found = Vec::new();
    let _ = PosixStore::new().visit(dir, &mut |entry| {
        if let Some(rest) = entry.name.to_str().and_then(|name| name.strip_prefix(NAMED)) {
            let pid = rest.split('.').next().and_then(|pid| pid.parse().ok()).unwrap_or(0);
            if super::machine::is_dead(pid) {
                found.push(dir.join(&entry.name));
            }
        }
        std::ops::ControlFlow::Continue(())
    });
    for path in found {
        let _ = rustix::fs::unlinkat(CWD, &path, AtFlags::empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Dir(std::path::PathBuf);

    impl Dir {
        fn new() -> Dir {
            let name = format!("plfs-probe-test-{:016x}", random_u64());
            let dir = std::env::temp_dir().join(name);
            std::fs::create_dir(&dir).unwrap();
            Dir(dir)
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_probe_writes_what_it_may_and_leaves_nothing() {
        let dir = Dir::new();
        // Of somebody who was killed, and of somebody who lives.
        std::fs::write(dir.0.join(".plfs-probe.4194300.0"), b"x").unwrap();
        std::fs::write(dir.0.join(".plfs-probe.1.0"), b"x").unwrap();
        for (size, bytes) in [(3 << 20, 3_u64 << 20), (1, 4096), (600 << 10, 600 << 10)] {
            let long = Duration::from_secs(10);
            let done = appends(&dir.0, None, &Limits::for_a_window(size, long)).unwrap();
            assert!(done.bytes >= bytes && done.took >= WINDOW, "{done:?}");
            let done = appends(&dir.0, None, &Limits::new(size, long)).unwrap();
            assert_eq!(
                (done.bytes, done.each.len()),
                (bytes, bytes.div_ceil(PIECE as u64) as usize)
            );
            assert!(done.each.iter().sum::<Duration>() <= done.took);
        }
        let left: Vec<_> = std::fs::read_dir(&dir.0).unwrap().flatten().collect();
        assert_eq!(left.len(), 1, "{left:?}");
        assert_eq!(left[0].file_name(), ".plfs-probe.1.0");
    }

    #[test]
    fn time_is_a_bound() {
        let dir = Dir::new();
        let begun = Instant::now();
        let done =
            appends(&dir.0, None, &Limits::new(u64::MAX / 2, Duration::from_millis(20))).unwrap();
        assert!(done.bytes > 0 && begun.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn what_the_storage_says_is_said() {
        let gone = Path::new("/dev/shm/plfs-no-such-directory");
        let one = Limits::new(1, Duration::from_secs(1));
        assert_eq!(appends(gone, None, &one).unwrap_err(), Errno::NOENT);
        assert!(appends(Path::new("/proc"), None, &one).is_err());
    }
}
