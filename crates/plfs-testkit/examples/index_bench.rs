//! What `bench/index.py` runs: each command is a process of its own, so that times are those of a
//! fresh process and memory is its own. Prints one line of JSON. Beside each time is
//! what the processors worked for it (cpu), all threads together: on a machine that others use,
//! too, that is the one that can be compared.
//!
//! ```text
//! index_bench make FILE CASE RANKS_PER_NODE [SEED]
//!     index logs of CASE (IndexCase::parse); with SEED the ranks of a node race
//! index_bench empty FILE
//!     a file without a byte
//! index_bench merge FILE
//!     load and write the flat index, as plfs flatten does
//! index_bench read FILE SECONDS
//!     open, look bytes at random offsets up, say how much memory that took
//! index_bench extents FILE
//!     count the visible extents
//! index_bench btree|vec CASE RECORDS SECONDS
//!     the same lookups in a map of all pieces, or in a sorted array of them; the first RECORDS, in
//!     time
//! ```

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use plfs::{Config, File, OpenOptions, Opened, Plfs};
use plfs_index::Found;
use plfs_testkit::Rng;
use plfs_testkit::index_cases::{IndexCase, Turns, write_index_logs};
use rustix::time::{ClockId, clock_gettime};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse::<u64>().unwrap_or_else(|_| usage());
    let case = |text: &str| IndexCase::parse(text).unwrap_or_else(|| usage());
    match *args.as_slice() {
        ["make", file, text, ranks] => {
            make(Path::new(file), &case(text), number(ranks), Turns::Lockstep)
        }
        ["make", file, text, ranks, seed] => {
            make(Path::new(file), &case(text), number(ranks), Turns::Racing(number(seed)))
        }
        ["empty", file] => open(Path::new(file), OpenOptions::create()).close().expect("close"),
        ["merge", file] => merge(Path::new(file)),
        ["read", file, seconds] => read(Path::new(file), Duration::from_secs(number(seconds))),
        ["extents", file] => extents(Path::new(file)),
        ["btree", text, records, seconds] => {
            btree(&case(text), number(records), Duration::from_secs(number(seconds)))
        }
        ["vec", text, records, seconds] => {
            vec(&case(text), number(records), Duration::from_secs(number(seconds)))
        }
        _ => usage(),
    }
}

fn usage() -> ! {
    eprintln!("usage: see the head of crates/plfs-testkit/examples/index_bench.rs");
    std::process::exit(2);
}

fn plfs() -> Plfs {
    Plfs::posix(Config { shared_memory: None, ..Config::shared() })
}

fn open(path: &Path, options: OpenOptions) -> File {
    match plfs().open(path, options) {
        Ok(Opened::Logical(file)) => file,
        Ok(Opened::Plain(_)) => panic!("{} is not a PLFS file", path.display()),
        Err(error) => panic!("{error}"),
    }
}

/// A line of /proc/self/status, in MiB: VmRSS, VmHWM (the largest VmRSS so far), RssAnon (without
/// maps of files).
fn memory_mib(field: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("read /proc/self/status");
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let kib = line
        .and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok())
        .expect("memory in /proc/self/status");
    kib / 1024.0
}

/// A start, on the wall and on the processors.
struct Timer(Instant, f64);

impl Timer {
    fn start() -> Timer {
        Timer(Instant::now(), Timer::cpu())
    }

    fn wall_s(&self) -> f64 {
        self.0.elapsed().as_secs_f64()
    }

    fn cpu_s(&self) -> f64 {
        Timer::cpu() - self.1
    }

    fn cpu() -> f64 {
        let now = clock_gettime(ClockId::ProcessCPUTime);
        now.tv_sec as f64 + now.tv_nsec as f64 * 1e-9
    }
}

fn make(file: &Path, case: &IndexCase, ranks_per_node: u64, turns: Turns) {
    open(file, OpenOptions::create()).close().expect("create the file");
    let (container, _) =
        plfs().container(file).expect("find the container").expect("the file is a PLFS file");
    let timer = Timer::start();
    let made = write_index_logs(&container, case, ranks_per_node.max(1) as u32, turns, |_| {});
    println!(
        "{{\"writes\": {}, \"records\": {}, \"log_bytes\": {}, \"logs\": {}, \"make_s\": {:.3}}}",
        made.writes,
        made.records,
        made.log_bytes,
        made.logs,
        timer.wall_s()
    );
}

fn merge(file: &Path) {
    let timer = Timer::start();
    let made = plfs().flatten(file).expect("flatten");
    println!(
        "{{\"merge_s\": {:.3}, \"merge_cpu_s\": {:.3}, \"peak_mib\": {:.1}, \"entries\": {}, \
         \"flat_bytes\": {}}}",
        timer.wall_s(),
        timer.cpu_s(),
        memory_mib("VmHWM"),
        made.entries,
        made.bytes
    );
}

/// Lookups between two looks at the clock.
const BATCH: u64 = 256;

/// What a time of lookups came to.
struct Rates {
    wall: f64,
    cpu: f64,
    /// The part of the offsets that were no holes.
    hits: f64,
}

/// Calls `lookup(offset)` for that time, offsets below `size` at random.
fn lookups(size: u64, time: Duration, mut lookup: impl FnMut(u64) -> bool) -> Rates {
    let (mut rng, mut done, mut found) = (Rng::new(11), 0, 0u64);
    let timer = Timer::start();
    while timer.wall_s() < time.as_secs_f64() {
        for _ in 0..BATCH {
            found += u64::from(lookup(rng.below(size)));
        }
        done += BATCH;
    }
    let done = done as f64;
    Rates { wall: done / timer.wall_s(), cpu: done / timer.cpu_s(), hits: found as f64 / done }
}

/// Opening counts until the first lookup is answered: what an index puts off until then is a part
/// of it.
fn read(path: &Path, time: Duration) {
    let timer = Timer::start();
    let file = open(path, OpenOptions::read());
    let mut found: Vec<Found> = Vec::new();
    let size = file
        .with_index(|index| (index.lookup(0, 1, &mut found), index.eof()).1)
        .expect("load the index");
    let (open_ms, open_cpu_ms) = (timer.wall_s() * 1e3, timer.cpu_s() * 1e3);
    // As `File::read_at` looks up: the index, once it is there, for a range.
    let lookup = |offset: u64| {
        file.with_index(|index| index.lookup(offset, offset + 1, &mut found)).expect("the index");
        !found.is_empty()
    };
    let rates = if size > 0 {
        lookups(size, time, lookup)
    } else {
        Rates { wall: 0.0, cpu: 0.0, hits: 0.0 }
    };
    println!(
        "{{\"open_ms\": {open_ms:.3}, \"open_cpu_ms\": {open_cpu_ms:.3}, \"lookups_s\": {:.0}, \
         \"lookups_cpu_s\": {:.0}, \"hits\": {:.4}, \"rss_mib\": {:.2}, \"anon_mib\": {:.2}}}",
        rates.wall,
        rates.cpu,
        rates.hits,
        memory_mib("VmRSS"),
        memory_mib("RssAnon")
    );
}

/// Extents that a program would see in a map of the whole file: neighbours that continue each other
/// in a data log are one.
fn extents(path: &Path) {
    const WINDOW: u64 = 1 << 20;
    let file = open(path, OpenOptions::read());
    let (mut count, mut last, mut found) = (0u64, None::<Found>, Vec::new());
    file.with_index(|index| {
        for from in (0..index.eof()).step_by(WINDOW as usize) {
            index.lookup(from, from + WINDOW, &mut found);
            for piece in &found {
                let goes_on = |last: Found| {
                    last.logical + last.length == piece.logical
                        && last.segment == piece.segment
                        && last.physical + last.length == piece.physical
                };
                count += u64::from(!last.is_some_and(goes_on));
                last = Some(*piece);
            }
        }
    })
    .expect("load the index");
    println!("{{\"extents\": {count}}}");
}

/// The pieces of a case in time, as many rounds as stay within `records`: offset, length, writer,
/// place in the writer's log.
fn pieces(case: &IndexCase, records: u64, mut visit: impl FnMut(u64, u64, u32, u64)) {
    let writers = case.writers();
    let rounds = (0..writers).map(|writer| case.pieces(writer)).max().unwrap_or(0);
    let mut logs = vec![0; writers as usize];
    let mut left = records;
    for round in 0..rounds {
        for writer in (0..writers).filter(|writer| round < case.pieces(*writer)) {
            if left == 0 {
                return;
            }
            left -= 1;
            let (offset, length) = case.piece(writer, round);
            visit(offset, length, writer, logs[writer as usize]);
            logs[writer as usize] += length;
        }
    }
}

/// What the original kept in memory for a piece: 48 bytes. (`ContainerEntry` of plfs-core: logical
/// and physical offset, length, two times, writer and log.)
#[derive(Clone, Copy)]
#[repr(C)]
struct Record {
    logical: u64,
    length: u64,
    physical: u64,
    begun: u64,
    ended: u64,
    writer: u32,
    log: u32,
}

/// Offset to (end, writer, place in its log). A new piece cuts those that it covers.
#[derive(Default)]
struct Extents(BTreeMap<u64, (u64, u32, u64)>);

impl Extents {
    fn insert(&mut self, offset: u64, length: u64, writer: u32, physical: u64) {
        let end = offset + length;
        if let Some((&start, &(old_end, old_writer, old_physical))) =
            self.0.range(..offset).next_back()
            && old_end > offset
        {
            self.0.insert(start, (offset, old_writer, old_physical));
            if old_end > end {
                self.0.insert(end, (old_end, old_writer, old_physical + (end - start)));
            }
        }
        while let Some((&start, &(old_end, old_writer, old_physical))) =
            self.0.range(offset..end).next()
        {
            self.0.remove(&start);
            if old_end > end {
                self.0.insert(end, (old_end, old_writer, old_physical + (end - start)));
            }
        }
        self.0.insert(offset, (end, writer, physical));
    }

    fn of(case: &IndexCase, records: u64) -> (Extents, u64) {
        let (mut map, mut count) = (Extents::default(), 0);
        pieces(case, records, |offset, length, writer, physical| {
            map.insert(offset, length, writer, physical);
            count += 1;
        });
        (map, count)
    }
}

fn report(
    pieces: u64,
    kept: usize,
    build: &Timer,
    before_mib: f64,
    size: u64,
    time: Duration,
    lookup: impl FnMut(u64) -> bool,
) {
    let (build_s, build_cpu_s, rss_mib) =
        (build.wall_s(), build.cpu_s(), memory_mib("VmRSS") - before_mib);
    let Rates { wall, cpu, hits } = lookups(size, time, lookup);
    println!(
        "{{\"pieces\": {pieces}, \"extents\": {kept}, \"build_s\": {build_s:.3}, \"build_cpu_s\": \
         {build_cpu_s:.3}, \"lookups_s\": {wall:.0}, \"lookups_cpu_s\": {cpu:.0}, \"hits\": \
         {hits:.4}, \"rss_mib\": {rss_mib:.1}}}"
    );
}

fn btree(case: &IndexCase, records: u64, time: Duration) {
    let (timer, before_mib) = (Timer::start(), memory_mib("VmRSS"));
    let (map, count) = Extents::of(case, records);
    let size = map.0.last_key_value().map_or(1, |(_, last)| last.0);
    report(count, map.0.len(), &timer, before_mib, size, time, |offset| {
        let piece = map.0.range(..=offset).next_back().filter(|(_, piece)| offset < piece.0);
        std::hint::black_box(piece).is_some()
    });
}

fn vec(case: &IndexCase, records: u64, time: Duration) {
    let (timer, before_mib) = (Timer::start(), memory_mib("VmRSS"));
    let record = |logical, length, writer, physical| Record {
        logical,
        length,
        physical,
        begun: 0,
        ended: 0,
        writer,
        log: writer / 64,
    };
    let (mut all, mut count) = (
        Vec::with_capacity(if case.overlaps() { 0 } else { records.min(case.writes()) as usize }),
        0,
    );
    if case.overlaps() {
        let (map, written) = Extents::of(case, records);
        all.extend(
            map.0.iter().map(|(offset, piece)| record(*offset, piece.0 - offset, piece.1, piece.2)),
        );
        count = written;
    } else {
        pieces(case, records, |offset, length, writer, physical| {
            all.push(record(offset, length, writer, physical));
            count += 1;
        });
        all.sort_unstable_by_key(|record| record.logical);
    }
    let size = all.last().map_or(1, |last| last.logical + last.length);
    report(count, all.len(), &timer, before_mib, size, time, |offset| {
        let at = all.partition_point(|record| record.logical <= offset);
        let piece = at
            .checked_sub(1)
            .map(|at| all[at])
            .filter(|record| offset < record.logical + record.length);
        std::hint::black_box(piece).is_some()
    });
}
