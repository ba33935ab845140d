//! L5: how fast the storage targets of a tree are: measured now, by a probe, and as the writers of
//! this node have found them (docs/decisions/0028). And the choice between targets by who puts
//! whole files on them (docs/decisions/0027).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use plfs_format::backend::State;
use plfs_format::name;
use plfs_placement::choose::{Measurement, Policy, Work, choose};

use crate::config::Config;
use crate::container::{Table, find_root, in_roots, path_of};
use crate::error::{Error, Result};
use crate::store::probe::{Appends, Limits, PIECE, appends};
use crate::store::rates::Rates;
use crate::store::site::{EVERY_NS, merge};
use crate::store::{Directories, Errno, Kind, Latencies, Links, Probe, Store, TargetProvider};
use crate::sync::plain::atomic::{AtomicBool, Ordering};
use crate::sync::plain::mpsc::{Receiver, RecvTimeoutError, channel};
use crate::sync::{Arc, Mutex, OfProcess, lock, spawn_for_ever, thread};

/// How long somebody waits beyond the time of a probe, for an append that does not end. Who waits
/// for the probe of another process waits as long: that one began first.
const GRACE: Duration = Duration::from_secs(1);
/// What tells the end of a wait takes a moment.
const SAID: Duration = Duration::from_millis(100);
/// Targets inside a directory that are asked: a node keeps the rates of 64.
const INSIDE_MAX: usize = 48;
/// What is known for longer is measured anew before a choice that no later measurement corrects:
/// the time in which it loses half of its weight for writers, too.
const RECENT: Duration = Duration::from_secs(30);
/// As long as such a probe lasts: every 30 s it is 1 % of a job's time.
const CHOICE_TIME: Duration = Duration::from_millis(300);
/// And what it writes at most, to each.
const CHOICE_BYTES: u64 = 8 << 20;
/// What a probe writes if nobody says how much: 32 pieces.
const PROBE_BYTES: u64 = 16 << 20;
/// A probe for a new file writes one byte for so many of the file: less than 1 % of its time, with
/// what others take that are slower.
const PROBED_PART: u64 = 128;
/// What is said of a file of rates that cannot be read at this moment.
const SILENT: &str = "it does not answer";
/// How often who waits for the probe of another process looks.
const LOOKS: Duration = Duration::from_millis(10);

/// A place that can be slow by itself.
#[derive(Clone, Debug)]
pub struct TargetPlace {
    /// The backend of the root that it is; 0 is the root itself. `None`: a directory that is none.
    pub backend: Option<u16>,
    /// The root whose table has the backend.
    pub root: Option<PathBuf>,
    /// Its directory.
    pub path: PathBuf,
    /// By what rates of it are known: the directory, unless it is one of several targets inside.
    pub key: PathBuf,
    /// The number of a target inside the directory.
    pub inside: Option<u16>,
    /// Why nothing can be said of it: there is none. Whether a backend is there is asked by who
    /// probes it, in a thread: that may take for ever.
    pub missing: Option<Error>,
}

/// What is known of a target.
#[derive(Clone, Debug, Default)]
pub struct TargetKnown {
    /// Bytes per second of all who write there together; `None`: nobody has measured it.
    pub bytes_s: Option<f64>,
    /// How old that is, nanoseconds.
    pub age_ns: u64,
    /// Bytes of which it is known, since the node was started.
    pub bytes: u64,
    /// Writers of the node that are there now.
    pub writers: usize,
    /// For how long it has been given up, nanoseconds, because an append there did not end.
    pub given_up_ns: Option<u64>,
    /// What appends of the last minutes took.
    pub appends: Option<Latencies>,
    /// The last probe.
    pub probe: Option<Probe>,
}

/// Whether somebody has measured it a moment ago.
fn is_recent(known: &TargetKnown) -> bool {
    known.bytes_s.is_some() && u128::from(known.age_ns) < RECENT.as_nanos()
}

/// What came of the probe of a target.
#[derive(Clone, Debug)]
pub enum Probed {
    /// This process measured it.
    Measured(Probe),
    /// Another process of the node did, meanwhile.
    ByAnother(Probe),
    /// It could not be measured.
    Failed(Error),
}

/// The targets of the tree that `dir` is in: the root and its backends that take new data. `dir`
/// itself if it is in none.
pub fn targets_of(store: &Arc<dyn Store>, config: &Config, dir: &Path) -> Result<Vec<TargetPlace>> {
    let root = find_root(store.as_ref(), &dir.join("name"), &config.mounts)?;
    let alone = |path: &Path| {
        let (path, key) = (path.to_path_buf(), path.to_path_buf());
        vec![TargetPlace { backend: None, root: None, path, key, inside: None, missing: None }]
    };
    let is_root = store
        .stat(&root.join(name::ROOT_DIR), Links::Stay)
        .is_ok_and(|stat| stat.kind == Kind::Dir);
    if !is_root {
        return Ok(divided(store.as_ref(), alone(dir)));
    }
    let view = in_roots(store, [root.as_path()]);
    let dev = store.stat(&root, Links::Follow).map_or(0, |stat| stat.dev);
    let table = Table { store: view.as_ref(), root: &root, dev };
    let mut found = alone(&root);
    found[0].backend = Some(0);
    for id in table.all()? {
        let (path, missing) = match table.read_entry(id) {
            Ok((backend, _)) if backend.state != State::Active => continue,
            Ok((backend, _)) => (path_of(&backend), None),
            Err(error) => (table.entry(id), Some(error)),
        };
        let key = path.clone();
        let (backend, root) = (Some(id), Some(root.clone()));
        found.push(TargetPlace { backend, root, path, key, inside: None, missing });
    }
    Ok(divided(store.as_ref(), found))
}

/// A directory that has several targets is each of these, up to as many as a node keeps rates of.
fn divided(store: &dyn Store, places: Vec<TargetPlace>) -> Vec<TargetPlace> {
    let parts = places.iter().map(|place| (place.path.clone(), store.targets(&place.path)));
    let directories = Directories::new(parts.collect());
    let mut all: Vec<TargetPlace> = Vec::new();
    for target in directories.targets() {
        let Some((dir, provider, number)) = directories.part_of(target.number) else { continue };
        let Some(place) = places.iter().find(|place| place.path == dir) else { continue };
        let is_divided = provider.targets().len() > 1;
        let is_one_of_many = is_divided && all.len() >= INSIDE_MAX;
        // Two directories on one file system have the same targets.
        if is_one_of_many || all.iter().any(|known| known.key == target.key) {
            continue;
        }
        let inside = is_divided.then_some(number);
        all.push(TargetPlace { key: target.key.clone(), inside, ..place.clone() });
    }
    all
}

/// What this node knows of targets with these keys, in their order. Nothing where processes share
/// no memory.
pub fn known_of(store: &dyn Store, config: &Config, keys: &[PathBuf]) -> Vec<TargetKnown> {
    let rates = config.shared_memory.as_deref().and_then(|dir| Rates::of(dir, store.user()));
    let known = keys.iter().map(|key| {
        let Some(rates) = &rates else { return TargetKnown::default() };
        let Some(target) = rates.find(key) else { return TargetKnown::default() };
        let rate = rates.rate(target);
        TargetKnown {
            bytes_s: rate.map(|(rate, _)| rate),
            age_ns: rate.map_or(0, |(_, age)| age),
            bytes: rates.bytes(target),
            writers: rates.writers_of(target),
            given_up_ns: rates.given_up_for(target),
            appends: rates.latencies(target),
            probe: rates.probe(target),
        }
    });
    known.collect()
}

/// Which of these directories should get a file each that are alike in size: places in `dirs`,
/// ascending, and bytes per second that one writer more gets in each; `None`: it cannot be
/// measured. As many as the rule of the paper says ([`Policy::Cliff`]), or the `wanted` fastest. If
/// nothing can be measured it is all, or the first. Those of which nobody has measured anything in
/// the last 30 s are probed, which takes 0.3 s; a second more if one has stalled.
pub fn choose_dirs(
    store: &Arc<dyn Store>,
    config: &Config,
    dirs: &[PathBuf],
    wanted: Option<usize>,
) -> (Vec<usize>, Vec<Option<f64>>) {
    let place = |dir: &PathBuf| {
        let (path, key) = (dir.clone(), dir.clone());
        TargetPlace { backend: None, root: None, path, key, inside: None, missing: None }
    };
    let places: Vec<_> = dirs.iter().map(place).collect();
    // What is wrong with the file of the site is told by commands.
    let _ = tell_site(store, config, &places);
    let known = known_of(store.as_ref(), config, dirs);
    let mut expected: Vec<_> = known
        .iter()
        .map(|one| one.bytes_s.filter(|_| is_recent(one)))
        .zip(&known)
        .map(|(bytes_s, one)| bytes_s.map(|bytes_s| bytes_s / (one.writers + 1) as f64))
        .collect();
    let (at, old): (Vec<_>, Vec<_>) =
        places.into_iter().enumerate().filter(|(i, _)| expected[*i].is_none()).unzip();
    for (i, probed) in
        at.into_iter().zip(probe(store, config, &old, Some(CHOICE_BYTES), CHOICE_TIME))
    {
        expected[i] = match probed {
            Probed::Measured(found) | Probed::ByAnother(found) => {
                Some(found.bytes_s / (known[i].writers + 1) as f64)
            }
            Probed::Failed(_) => None,
        };
    }
    (chosen(&expected, wanted), expected)
}

/// Measures the targets of a new file before it is there, if the settings say how many bytes it
/// gets ([`Config::expected_bytes`]): those of which nobody of this node has measured anything
/// in the last 30 s, with a 128th of these bytes in all, for 0.3 s at most and no longer than the
/// fastest takes and a quarter of that; a second more if one has stalled. Nothing where that is too
/// little to measure them with. What takes less than 0.2 s says too little: there, and where
/// nothing can be measured, the writers find out with their own bytes.
///
/// Costs nothing if the file has one target or its bytes are not known, and else some lookups in
/// shared memory.
pub(crate) fn measure_for_new(
    store: &Arc<dyn Store>,
    config: &Config,
    root: &Path,
    backends: &[u16],
) {
    // When this process measured a target, whatever came of it.
    static MEASURED: Mutex<BTreeMap<PathBuf, Instant>> = Mutex::new(BTreeMap::new());
    if config.expected_bytes == 0 || config.shared_memory.is_none() {
        return;
    }
    let view = in_roots(store, [root]);
    let dev = store.stat(root, Links::Follow).map_or(0, |stat| stat.dev);
    let table = Table { store: view.as_ref(), root, dev };
    let place = |id: &u16| {
        let path = if *id > 0 { table.find(*id).ok()? } else { root.to_path_buf() };
        let (backend, key) = (Some(*id), path.clone());
        let root = (*id > 0).then(|| root.to_path_buf());
        Some(TargetPlace { backend, root, path, key, inside: None, missing: None })
    };
    let mut places = divided(store.as_ref(), backends.iter().filter_map(place).collect());
    let each = config.expected_bytes / PROBED_PART / places.len().max(1) as u64;
    if places.len() < 2 || each < PIECE as u64 {
        return;
    }
    let keep_unknown = |places: &mut Vec<TargetPlace>| {
        let keys: Vec<_> = places.iter().map(|place| place.key.clone()).collect();
        let known = known_of(store.as_ref(), config, &keys);
        let mut known = known.iter();
        places.retain(|_| known.next().is_some_and(|one| !is_recent(one)));
    };
    let is_old = |then: &Instant| then.elapsed() > RECENT;
    places.retain(|place| lock(&MEASURED).get(&place.key).is_none_or(is_old));
    keep_unknown(&mut places);
    if places.is_empty() {
        return;
    }
    // Another node may know them.
    let rates = config.shared_memory.as_deref().and_then(|dir| Rates::of(dir, store.user()));
    if rates.is_some_and(|rates| rates.is_merge_due(EVERY_NS)) {
        let _ = tell_site(store, config, &places);
        keep_unknown(&mut places);
    }
    lock(&MEASURED).extend(places.iter().map(|place| (place.key.clone(), Instant::now())));
    let limits = Limits::of_fastest(each, CHOICE_TIME);
    let _ = probe_within(store, config, &places, limits);
}

/// The places of those that are chosen, ascending.
fn chosen(expected: &[Option<f64>], wanted: Option<usize>) -> Vec<usize> {
    let measured: Vec<_> = (0..)
        .zip(expected)
        .filter_map(|(target, bytes_s)| {
            Some(Measurement { target, bandwidth_bytes_s: (*bytes_s)?, others: None })
        })
        .collect();
    let work = Work { bytes: u64::MAX, send_bytes_s: None, create_s: 0.0, index_s: 0.0 };
    let Ok(decision) = choose(Policy::Cliff, &measured, &work) else {
        return (0..wanted.unwrap_or(expected.len()).min(expected.len())).collect();
    };
    let count = wanted.unwrap_or(decision.chosen.len());
    let fastest_first = decision.chosen.iter().map(|share| &share.measured);
    let mut places: Vec<usize> = fastest_first
        .chain(&decision.left_out)
        .take(count)
        .map(|one| one.target as usize)
        .collect();
    // Those that nobody knows anything of, if there have to be so many.
    let others = (0..expected.len()).filter(|place| expected[*place].is_none());
    places.extend(others.take(wanted.unwrap_or(0).saturating_sub(places.len())));
    places.sort_unstable();
    places
}

/// Appends `bytes` to each target, all at the same time, for `time` at most, and tells the writers
/// of this node. They do not go by what takes less than 0.2 s; if `bytes` is `None`, 16 MiB are
/// written again and again until that is over. Of two processes that ask for the same target one
/// measures it, and the other waits for that, as long as a probe may take. A target that does not
/// answer is given up then: the thread that asks it stays.
pub fn probe(
    store: &Arc<dyn Store>,
    config: &Config,
    targets: &[TargetPlace],
    bytes: Option<u64>,
    time: Duration,
) -> Vec<Probed> {
    let limits = match bytes {
        Some(bytes) => Limits::new(bytes, time),
        None => Limits::for_a_window(PROBE_BYTES, time),
    };
    probe_within(store, config, targets, limits)
}

fn probe_within(
    store: &Arc<dyn Store>,
    config: &Config,
    targets: &[TargetPlace],
    limits: Limits,
) -> Vec<Probed> {
    let rates = config.shared_memory.as_deref().and_then(|dir| Rates::of(dir, store.user()));
    let limits = Arc::new(limits);
    let end = Instant::now() + limits.time + GRACE + SAID;
    let started: Vec<_> = targets
        .iter()
        .map(|place| match &place.missing {
            Some(error) => Err(error.clone()),
            None => start(store, rates.clone(), place, limits.clone()),
        })
        .collect();
    let waited = started.into_iter().zip(targets).map(|(started, place)| {
        let said = match started {
            Ok(said) => said.recv_timeout(end.saturating_duration_since(Instant::now())),
            Err(error) => return Probed::Failed(error),
        };
        match said {
            Ok(probed) => probed,
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                Probed::Failed(Error::refused(
                    Errno::TIMEDOUT,
                    "probe",
                    &place.path,
                    "the storage did not answer in time; it may have stalled",
                ))
            }
        }
    });
    waited.collect()
}

/// Merges what this node knows of the targets with the file of the site, if the settings name one;
/// within a second, or not at all, nor while this process still waits for that file. `Err`: a
/// sentence about the file.
pub fn tell_site(
    store: &Arc<dyn Store>,
    config: &Config,
    targets: &[TargetPlace],
) -> std::result::Result<(), String> {
    let Some(file) = config.rates.clone() else { return Ok(()) };
    let rates = config.shared_memory.as_deref().and_then(|dir| Rates::of(dir, store.user()));
    let Some(rates) = rates else { return Ok(()) };
    static IS_ASKED: OfProcess<AtomicBool> = OfProcess::new();
    let is_asked = IS_ASKED.get(Default::default);
    let not_used = |why: &str| format!("the file of rates {} is not used: {why}", file.display());
    if is_asked.swap(true, Ordering::Relaxed) {
        return Err(not_used(SILENT));
    }
    let dirs: Vec<PathBuf> = targets.iter().map(|place| place.key.clone()).collect();
    let (say, said) = channel();
    let of = file.clone();
    let run = move || {
        let merged = merge(&rates, &of, &dirs);
        is_asked.store(false, Ordering::Relaxed);
        drop(say.send(merged));
    };
    if !spawn_for_ever("plfs-rates", run) {
        is_asked.store(false, Ordering::Relaxed);
        return Err(not_used("there is no thread to be had"));
    }
    match said.recv_timeout(GRACE) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(refused)) => Err(not_used(&refused.to_string())),
        Err(_) => Err(not_used(SILENT)),
    }
}

fn start(
    store: &Arc<dyn Store>,
    rates: Option<Arc<Rates>>,
    place: &TargetPlace,
    limits: Arc<Limits>,
) -> Result<Receiver<Probed>> {
    let (say, said) = channel();
    let (of, store) = (place.clone(), store.clone());
    let run = move || {
        let probed = one(store.as_ref(), rates.as_deref(), &of, &limits);
        let _ = say.send(probed.unwrap_or_else(Probed::Failed));
    };
    match spawn_for_ever("plfs-probe", run) {
        true => Ok(said),
        false => {
            Err(Error::refused(Errno::AGAIN, "probe", &place.path, "there is no thread to be had"))
        }
    }
}

fn one(
    store: &dyn Store,
    rates: Option<&Rates>,
    place: &TargetPlace,
    limits: &Limits,
) -> Result<Probed> {
    let path = &place.path;
    if let (Some(id), Some(root)) = (place.backend, &place.root) {
        let table = Table { store, root, dev: 0 };
        let (backend, _) = table.read_entry(id)?;
        table.must_be(id, &backend, path)?;
    }
    let known = rates.and_then(|rates| Some((rates, rates.target(&place.key)?)));
    let begun = Instant::now();
    let _turn = loop {
        let Some((rates, target)) = known else { break None };
        let turn = rates.turn(target);
        let waited = begun.elapsed();
        // The other one ended while we waited.
        if let Some(probe) = rates.probe(target)
            && u128::from(probe.age_ns) < waited.as_nanos()
        {
            return Ok(Probed::ByAnother(probe));
        }
        if let Ok(turn) = turn {
            break turn;
        }
        if waited > limits.time + GRACE {
            return Err(Error::refused(
                Errno::BUSY,
                "probe",
                path,
                "another process of this node is doing so, and takes longer than this one waits",
            ));
        }
        thread::sleep(LOOKS);
    };
    let dir = path.join(name::ROOT_DIR);
    let is_dir = store.stat(&dir, Links::Stay).is_ok_and(|stat| stat.kind == Kind::Dir);
    let dir = if is_dir { dir } else { path.to_path_buf() };
    let cannot = |errno| Error::Io { op: "probe", path: path.to_path_buf(), errno };
    let provider = store.targets(path);
    let inside = place.inside.map(|number| (store, provider.as_ref(), number));
    let got = || known.map_or(0, |(rates, target)| rates.bytes(target));
    let before = got();
    let done = appends(&dir, inside, limits).map_err(cannot)?;
    let found = result(&done, got().saturating_sub(before));
    if let Some((rates, target)) = known {
        rates.book(target, &found, done.took);
    }
    Ok(Probed::Measured(found))
}

/// What appends say of a target that took so many bytes of the node's writers meanwhile.
fn result(done: &Appends, others_bytes: u64) -> Probe {
    let mut each: Vec<f64> = done.each.iter().map(Duration::as_secs_f64).collect();
    each.sort_by(f64::total_cmp);
    let quantile = |part: f64| {
        let at = (each.len() as f64 * part).ceil() as usize;
        each.get(at.saturating_sub(1)).copied().unwrap_or(0.0)
    };
    let all = done.bytes.saturating_add(others_bytes) as f64;
    Probe {
        bytes_s: (all / done.took.as_secs_f64().max(1e-9)).clamp(1.0, 1e15),
        bytes: done.bytes,
        median_s: quantile(0.5),
        most_s: quantile(0.99),
        pid: std::process::id(),
        cached: done.cached,
        age_ns: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_alike_go_to_targets_before_the_cliff() {
        let of = |mb_s: &[f64]| -> Vec<Option<f64>> {
            mb_s.iter().map(|mb_s| (*mb_s > 0.0).then_some(mb_s * 1e6)).collect()
        };
        let eight = [4.0, 40.0, 39.0, 41.0, 3.9, 40.0, 38.0, 42.0];
        assert_eq!(chosen(&of(&eight), None), [1, 2, 3, 5, 6, 7]);
        assert_eq!(chosen(&of(&eight), Some(2)), [3, 7]);
        assert_eq!(chosen(&of(&eight), Some(7)), [0, 1, 2, 3, 5, 6, 7]);
        assert_eq!(chosen(&of(&[40.0, 30.0, 35.0]), None), [0, 1, 2]);
        // One that has failed is none, as long as there are others.
        assert_eq!(chosen(&of(&[40.0, 0.0, 40.0]), None), [0, 2]);
        assert_eq!(chosen(&of(&[0.0, 0.0, 40.0]), Some(2)), [0, 2]);
        assert_eq!(chosen(&of(&[0.0, 0.0]), None), [0, 1]);
        assert_eq!(chosen(&of(&[0.0, 0.0]), Some(1)), [0]);
        assert_eq!(chosen(&[], None), [0; 0]);
    }
}
