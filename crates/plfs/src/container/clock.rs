//! `clock`: a stamp that whoever comes next starts behind (FORMAT.md section 4).

use std::time::{Duration, Instant};

use plfs_format::clock::{self, Clock, Covers};
use plfs_format::name;

use super::create::put_file;
use super::layout::Container;
use crate::error::{At, Error, Result};
use crate::store::machine::{CLOCKS_APART_NS, boot_id, clocks, random_u64};
use crate::store::{self, Errno, Kind, Links, LockKind, Open, Stat, StoreFile, Time};
use crate::sync::thread;

/// How long somebody waits for others who set a clock that does not cover all commits: each holds
/// it for some microseconds.
const WAIT: Duration = Duration::from_secs(30);

/// How far a setter of a clock that covers all commits goes ahead of the wall clock: 1 s. So a
/// crowd of nodes that close at once sets it once a second, and the others find it far enough.
const AHEAD: u64 = 1000 << 16;
/// How far it goes ahead of a stamp that is later than that: 16 us, less than any write and sync,
/// so that clock and stamps do not drive each other into the future.
const LITTLE: u64 = 1 << 10;

const NOTHING: Clock = Clock { stamp: 0, covers: Covers::Some };

/// What the clock says; stamp 0 if there is none. To be asked after the creation of an open mark.
/// Corrupt if a power cut tore it: then only the logs know.
pub fn read_clock(container: &Container) -> Result<Clock> {
    let path = container.path(name::CLOCK);
    match container.store.open(&path, Open::READ.briefly()) {
        Err(Errno::NOENT) => Ok(NOTHING),
        other => read(other.at("open", &path)?.as_ref(), container),
    }
}

fn read(file: &dyn StoreFile, container: &Container) -> Result<Clock> {
    let path = container.path(name::CLOCK);
    if !container.local {
        file.forget_cached();
    }
    let mut bytes = [0; clock::BYTES];
    let n = store::read_full(file, &mut bytes, 0).at("read", &path)?;
    Clock::decode(&bytes[..n]).map_err(|bad| Error::of_bytes(&path, bad))
}

/// Sets the stamp, unless it is larger already, and with `durable` durably. One setter at a time
/// has a lock on the file, so it never goes back.
pub fn write_clock(container: &Container, stamp: u64, durable: bool) -> Result<()> {
    let (store, path) = (&container.store, container.path(name::CLOCK));
    let file = match store.open(&path, Open::create(0o666).briefly()) {
        // Another user's, who has a strict umask: in its place, with what it says at least.
        Err(Errno::ACCESS | Errno::PERM) => {
            let stamp = stamp.max(read_clock(container).map_or(0, |clock| clock.stamp));
            // Without a lock on what it replaces: it cannot vouch for all commits.
            let bytes = Clock { stamp, covers: Covers::Some }.encode();
            return put_file(container, name::CLOCK, name::CLOCK_TMP, &bytes, durable);
        }
        other => other.at("create", &path)?,
    };
    open_to_all(file.as_ref(), container)?;
    wait_for_lock(file.as_ref(), container, WAIT, || None::<()>)?;
    // A new one is empty, and one that a power cut tore says nothing.
    let there = read(file.as_ref(), container).unwrap_or(NOTHING);
    if there.stamp < stamp {
        let bytes = Clock { stamp, ..there }.encode();
        store::write_full(file.as_ref(), &bytes, 0).at("write", &path)?;
    }
    if durable {
        sync(file.as_ref(), container)?;
    }
    Ok(())
}

/// The wall clock as a stamp (FORMAT.md section 4).
pub fn wall_clock() -> u64 {
    wall_clock_at(Time::now().ns())
}

/// A time, in nanoseconds since 1970, as a stamp. 0 for times before.
pub fn wall_clock_at(ns: i128) -> u64 {
    // Without a division of 128 bits, which would be a fortieth of a short write.
    let ns = ns.clamp(0, u64::MAX.into()) as u64;
    ((ns / 1_000_000) << 16) + ((ns % 1_000_000) << 16) / 1_000_000
}

/// Sees to it that a clock which covers all commits, or is about to, covers `stamp`: gives how far
/// it does. Durable on return. Costs an open and a read, and once a second for all nodes together a
/// lock, a write and a sync.
pub fn raise_clock(container: &Container, stamp: u64) -> Result<u64> {
    let path = container.path(name::CLOCK);
    let how = Open::READ_WRITE.briefly();
    let file = container.store.open(&path, how).at("open", &path)?;
    let far_enough = || {
        let there = read(file.as_ref(), container).ok().map(|clock| clock.stamp);
        there.filter(|there| *there >= stamp)
    };
    if let Some(there) = wait_for_lock(file.as_ref(), container, Duration::MAX, far_enough)? {
        return Ok(there);
    }
    // One that a power cut tore covers nothing any more: who comes next has to ask the logs.
    let torn = Clock { stamp: 0, covers: Covers::Begun };
    let there = read(file.as_ref(), container).unwrap_or(torn);
    if there.stamp >= stamp {
        return Ok(there.stamp);
    }
    // Who goes by it is ahead of it at once, and raises it again: so that does not take it into the
    // future.
    let ahead = wall_clock().saturating_add(AHEAD).max(stamp.saturating_add(LITTLE));
    let now = Clock { stamp: ahead, ..there };
    store::write_full(file.as_ref(), &now.encode(), 0).at("write", &path)?;
    file.sync_data().at("sync", &path)?;
    Ok(now.stamp)
}

/// Makes the clock cover all commits, if it does not: `newest` is asked for the largest stamp in
/// all logs, after everybody who commits has been told. `None` where one machine's locks are not
/// seen by others, or this user may not do it. Durable on return.
pub fn cover_all(
    container: &Container,
    newest: impl FnOnce() -> Result<u64>,
) -> Result<Option<Clock>> {
    let path = container.path(name::CLOCK);
    let file = match container.store.open(&path, Open::create(0o666).briefly()) {
        Err(Errno::ACCESS | Errno::PERM | Errno::ROFS) => return Ok(None),
        other => other.at("create", &path)?,
    };
    if !open_to_all(file.as_ref(), container)? || !file.locks_are_shared() {
        return Ok(None);
    }
    let covers_all = || read(file.as_ref(), container).ok().filter(|c| c.covers == Covers::All);
    let done = wait_for_lock(file.as_ref(), container, Duration::MAX, covers_all)?;
    if let Some(clock) = done.or_else(covers_all) {
        return Ok(Some(clock));
    }
    let there = read(file.as_ref(), container).unwrap_or(NOTHING);
    let set = |clock: Clock| {
        store::write_full(file.as_ref(), &clock.encode(), 0).at("write", &path)?;
        sync(file.as_ref(), container)
    };
    set(Clock { covers: Covers::Begun, ..there })?;
    let stamp = newest()?.max(there.stamp).saturating_add(AHEAD);
    let clock = Clock { stamp, covers: Covers::All };
    set(clock)?;
    Ok(Some(clock))
}

/// Whom the container's directory lets in has to read it, and who may add logs there to raise it; a
/// strict umask must not say otherwise. Nobody else: who sets it decides which writes win. False if
/// this user may not see to that.
fn open_to_all(file: &dyn StoreFile, container: &Container) -> Result<bool> {
    let path = container.path(name::CLOCK);
    follow_dir(container, &file.stat().at("stat", &path)?)
}

/// Lets those raise the clock, if there is one, whom the container's directory lets add logs now.
pub(super) fn follow(container: &Container) -> Result<()> {
    let path = container.path(name::CLOCK);
    match container.store.stat(&path, Links::Stay) {
        Ok(stat) if stat.kind == Kind::File => follow_dir(container, &stat).map(drop),
        Ok(_) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno).at("stat", &path),
    }
}

fn follow_dir(container: &Container, clock: &Stat) -> Result<bool> {
    let (store, path) = (&container.store, container.path(name::CLOCK));
    let dir = store.stat(&container.dir, Links::Stay).at("stat", &container.dir)?;
    // Root may have made it.
    let is_owners = clock.uid == dir.uid
        || store.chown(&path, Some(dir.uid), Some(dir.gid), Links::Stay).is_ok();
    let mode = if is_owners && dir.mode & 0o022 == 0 { 0o644 } else { 0o666 };
    Ok(clock.mode & 0o777 == mode || store.chmod(&path, mode).is_ok() || clock.mode & mode == mode)
}

fn sync(file: &dyn StoreFile, container: &Container) -> Result<()> {
    file.sync_data().at("sync", &container.path(name::CLOCK))?;
    container.store.sync_dir(&container.dir).at("sync", &container.dir)
}

/// Waits for the lock of the clock: `None`, or what `done` gives, if it gives something before.
/// BUSY after `most`.
///
/// A commit that raises a clock waits as long as it takes: somebody may be reading ten thousand
/// logs, and its bytes would be lost if it gave up. The kernel takes the lock of who dies.
fn wait_for_lock<T>(
    file: &dyn StoreFile,
    container: &Container,
    most: Duration,
    done: impl Fn() -> Option<T>,
) -> Result<Option<T>> {
    let path = container.path(name::CLOCK);
    let begun = Instant::now();
    loop {
        if let Some(done) = done() {
            return Ok(Some(done));
        }
        if file.try_lock(LockKind::Exclusive).at("lock", &path)? {
            return Ok(None);
        }
        if begun.elapsed() > most {
            return Err(Error::refused(
                Errno::BUSY,
                "lock",
                &path,
                "another process has had the lock for half a minute",
            ));
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Whether the wall clock of this machine is one that all who write the file go by, and has not
/// been set back since the file was made: then whoever comes has a later time than what was
/// committed before, or finds it in [`read_clock`], and need not ask the logs. One stat.
pub(crate) fn goes_by_wall_clock(container: &Container) -> Result<bool> {
    let made = &container.superblock;
    let now = clocks();
    // All this holds for the machine that has the file system for itself, as long as it runs.
    let is_same_clock = container.local && made.boot != 0 && made.boot == boot_id();
    let started = now.wall.ns() - i128::from(now.boot_ns) + i128::from(CLOCKS_APART_NS);
    let was_set_back = started < i128::from(made.created_ns) - i128::from(made.created_boot_ns);
    Ok(is_same_clock && !was_set_back && container.time()?.ns() <= now.wall.ns())
}

/// Moves the time of the container's directory to now, for those who look at it to learn that
/// something happened. Best effort.
pub(crate) fn touch_dir(container: &Container) {
    let store = &container.store;
    if store.set_times(&container.dir, None, Some(Time::now())).is_err() {
        // Only the owner may set times; whoever may write makes a name, and takes it away again.
        let name = container.path(&format!("{}{:08x}", name::CLOCK_TMP, random_u64() as u32));
        if store.open(&name, Open::create_new(0o600)).is_ok() {
            let _ = store.unlink(&name);
        }
    }
}
