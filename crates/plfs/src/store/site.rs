//! A file of the site in which nodes tell each other how fast storage targets are, if somebody asks
//! for it (docs/decisions/0028). Advice: what is wrong with it costs nobody a write.
//!
//! It is text: the line `plfs-rates 1`; a line for each target with bytes per second, median and 99
//! % of what appends took (us), bytes, when (seconds since 1970), host and directory, in the last
//! two of which what is not a printable character of ASCII, a blank or `%` is `%XX`; and the line
//! `sum XXXXXXXX` of all before it. It is replaced as a whole. Of two nodes that do so at once one
//! is forgotten, until it comes again.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use super::machine::host_name;
use super::rates::Rates;
use super::{
    Errno, Kind, Latencies, Links, LockKind, Open, PosixStore, Store, Time, read_full, write_full,
};
use crate::sync::{Arc, plain, spawn_for_ever, thread};

const MAGIC: &str = "plfs-rates ";
const VERSION: &str = "1";
/// Longer files are refused. 1 MiB: some 8,000 targets.
const BYTES_MAX: u64 = 1 << 20;
/// A node looks after the file so often at most.
pub(crate) const EVERY_NS: u64 = 5_000_000_000;
/// Lines that are older go. An hour: 2^-120 of a weight is left.
const OLD_S: i64 = 3600;
/// Clocks of nodes may differ by so much.
const AHEAD_S: i64 = 60;
/// What was measured loses half of its weight in this time, as in the page of rates.
const HALF_S: f64 = 30.0;

/// What is known of a target.
#[derive(Clone, Debug, PartialEq)]
pub struct SiteRate {
    /// Bytes per second.
    pub bytes_s: f64,
    /// What appends took, if anybody counted.
    pub appends: Option<Latencies>,
    /// Bytes of which that is known.
    pub bytes: u64,
    /// When that was, seconds since 1970.
    pub seen_s: i64,
    /// The node that said it last.
    pub host: String,
}

/// What such a file says, by directory.
pub type SiteRates = BTreeMap<PathBuf, SiteRate>;

/// Why a file is not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SiteRefused {
    /// It is none of ours, or of a newer version: it stays as it is.
    Strange(String),
    /// It is ours and damaged, or somebody has written nonsense to it: it is made anew.
    Damaged(String),
    /// It cannot be read or written.
    Unreachable(Errno),
}

impl std::fmt::Display for SiteRefused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SiteRefused::Strange(why) | SiteRefused::Damaged(why) => f.write_str(why),
            SiteRefused::Unreachable(errno) => errno.fmt(f),
        }
    }
}

/// What the file says; nothing if there is none.
pub fn read_site(path: &Path) -> Result<SiteRates, SiteRefused> {
    let store = PosixStore::new();
    let stat = match store.stat(path, Links::Follow) {
        Err(Errno::NOENT) => return Ok(SiteRates::new()),
        other => other.map_err(SiteRefused::Unreachable)?,
    };
    // A pipe would never end.
    if stat.kind != Kind::File || stat.len > BYTES_MAX {
        return Err(SiteRefused::Strange("it is no file of rates".into()));
    }
    let file = store.open(path, Open::READ.briefly()).map_err(SiteRefused::Unreachable)?;
    let mut text = vec![0; BYTES_MAX as usize];
    let n = read_full(file.as_ref(), &mut text, 0).map_err(SiteRefused::Unreachable)?;
    decode(&text[..n], Time::now().sec)
}

/// Learns from the file what is newer than what this node knows of these directories, and puts in
/// what the node knows.
pub(crate) fn merge(rates: &Rates, path: &Path, dirs: &[PathBuf]) -> Result<(), SiteRefused> {
    let (mut site, refused) = match read_site(path) {
        Ok(site) => (site, None),
        Err(damaged @ SiteRefused::Damaged(_)) => (SiteRates::new(), Some(damaged)),
        Err(refused) => return Err(refused),
    };
    let now = Time::now().sec;
    for dir in dirs {
        let Some(target) = rates.target(dir) else { continue };
        let ours = rates.measured(target).map(|(rate, age)| (rate, age as f64 / 1e9));
        let theirs = site.get(dir).map(|one| (one.bytes_s, (now - one.seen_s).max(0) as f64));
        match (ours, theirs) {
            (None, None) => {}
            (ours, Some((rate, age))) if ours.is_none_or(|(_, ours)| age + 1.0 < ours) => {
                let bytes = site.get(dir).map_or(0, |one| one.bytes);
                rates.learn(target, rate, bytes, (age * 1e9) as u64);
            }
            (Some((rate, age)), theirs) => {
                let weight = |age: f64| (-age / HALF_S).exp2().max(1e-30);
                let bytes_s = theirs.map_or(rate, |(other, of)| {
                    (rate * weight(age) + other * weight(of)) / (weight(age) + weight(of))
                });
                let one = SiteRate {
                    bytes_s,
                    appends: rates.latencies(target),
                    bytes: rates.bytes(target),
                    seen_s: now - age as i64,
                    host: host_name().to_string_lossy().into_owned(),
                };
                site.insert(dir.clone(), one);
            }
            (None, Some(_)) => {}
        }
    }
    write(path, &encode(&site)).map_err(SiteRefused::Unreachable)?;
    refused.map_or(Ok(()), Err)
}

fn write(path: &Path, text: &[u8]) -> Result<(), Errno> {
    let store = PosixStore::new();
    // A link stays one. Who has led here by forty of them has led in a circle.
    let mut real = path.to_path_buf();
    for _ in 0..40 {
        let Ok(to) = store.readlink(&real) else { break };
        real = real.parent().map_or_else(|| to.clone(), |dir| dir.join(&to));
    }
    let path = &real;
    // One name for a user and a node, so that processes which end in the middle leave one at most.
    let mut tmp = path.as_os_str().to_owned();
    tmp.push(format!(".{}.{}", host_name().to_string_lossy(), store.user()));
    let tmp = PathBuf::from(tmp);
    // The mode of the one that is there: who may write it says its owner.
    let mode = store.stat(path, Links::Follow).map(|stat| stat.mode);
    let file = store.open(&tmp, Open::create(mode.unwrap_or(0o644)))?;
    if !file.try_lock(LockKind::Exclusive)? {
        // Another process of the node does it.
        return Ok(());
    }
    let of = |stat: super::Stat| (stat.dev, stat.ino);
    if store.stat(&tmp, Links::Stay).map(of) != file.stat().map(of) {
        // It has just done it.
        return Ok(());
    }
    // The umask is this process's.
    if let Ok(mode) = mode {
        store.chmod(&tmp, mode & 0o7777)?;
    }
    let written = file.set_len(0).and_then(|()| write_full(file.as_ref(), text, 0));
    let done = written.and_then(|()| store.rename(&tmp, path));
    if done.is_err() {
        let _ = store.unlink(&tmp);
    }
    done
}

fn encode(site: &SiteRates) -> Vec<u8> {
    let mut text = format!("{MAGIC}{VERSION}\n");
    for (dir, one) in site {
        let SiteRate { bytes_s, appends, bytes, seen_s, host } = one;
        let (median, most) = appends.map_or((0.0, 0.0), |one| (one.median_s, one.most_s));
        let (median, most) = ((median * 1e6) as u64, (most * 1e6) as u64);
        let count = appends.map_or(0, |one| one.appends);
        let (host, dir) = (escaped(host.as_bytes()), escaped(dir.as_os_str().as_bytes()));
        text += &format!("{bytes_s:.0} {median} {most} {count} {bytes} {seen_s} {host} {dir}\n");
    }
    text += &format!("sum {:08x}\n", plfs_format::sum(text.as_bytes()));
    text.into_bytes()
}

fn decode(text: &[u8], now_s: i64) -> Result<SiteRates, SiteRefused> {
    let strange = || SiteRefused::Strange("it is no file of rates".into());
    let damaged = |why: &str| SiteRefused::Damaged(format!("it is damaged: {why}"));
    let head = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    match head.strip_prefix(MAGIC.as_bytes()) {
        None => return Err(strange()),
        Some(version) if version != VERSION.as_bytes() => {
            return Err(SiteRefused::Strange("it needs a newer PLFS".into()));
        }
        Some(_) => {}
    }
    let text = std::str::from_utf8(text).map_err(|_| damaged("it is not text"))?;
    let sum = text.rfind("\nsum ").map(|at| at + 1).ok_or_else(|| damaged("it is cut off"))?;
    let said = text[sum..].strip_prefix("sum ").and_then(|rest| rest.strip_suffix('\n'));
    let is_whole = said.is_some_and(|said| {
        said.len() == 8
            && u32::from_str_radix(said, 16)
                .is_ok_and(|said| said == plfs_format::sum(&text.as_bytes()[..sum]))
    });
    if !is_whole {
        return Err(damaged("its sum is another"));
    }
    let mut site = SiteRates::new();
    for line in text[..sum].lines().skip(1) {
        let (dir, one) = decode_line(line).ok_or_else(|| damaged("a line has another form"))?;
        // What nobody can have measured, and what is of no use any more.
        let is_of_now = (now_s - OLD_S..=now_s + AHEAD_S).contains(&one.seen_s);
        if is_of_now && (1.0..=1e15).contains(&one.bytes_s) && dir.is_absolute() {
            site.insert(dir, one);
        }
    }
    Ok(site)
}

fn decode_line(line: &str) -> Option<(PathBuf, SiteRate)> {
    let words: Vec<&str> = line.split(' ').collect();
    let [bytes_s, median, most, count, bytes, seen_s, host, dir] = words[..] else { return None };
    let micros = |word: &str| Some(word.parse::<u64>().ok()? as f64 / 1e6);
    let appends = Latencies {
        median_s: micros(median)?,
        most_s: micros(most)?,
        appends: count.parse().ok()?,
    };
    let one = SiteRate {
        bytes_s: bytes_s.parse::<u64>().ok()? as f64,
        appends: (appends.appends > 0).then_some(appends),
        bytes: bytes.parse().ok()?,
        seen_s: seen_s.parse().ok()?,
        host: String::from_utf8_lossy(&plain_of(host)?).into_owned(),
    };
    Some((PathBuf::from(OsString::from_vec(plain_of(dir)?)), one))
}

fn escaped(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        match byte {
            b'!'..=b'~' if *byte != b'%' => text.push(char::from(*byte)),
            _ => text += &format!("%{byte:02X}"),
        }
    }
    text
}

fn plain_of(text: &str) -> Option<Vec<u8>> {
    let (mut plain, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((byte, tail)) = rest.split_first() {
        rest = tail;
        if *byte == b'%' {
            let (digits, tail) = rest.split_at_checked(2)?;
            plain.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
            rest = tail;
        } else {
            plain.push(*byte);
        }
    }
    Some(plain)
}

/// What this process looks after: a file, the rates, and the directories that it writes to.
struct Site {
    file: PathBuf,
    rates: Arc<Rates>,
    dirs: Vec<PathBuf>,
}

/// Looks after the file for these directories from now on, in a thread of its own: nobody who
/// writes waits for it.
pub(crate) fn look_after(file: &Path, rates: &Arc<Rates>, dirs: Vec<PathBuf>) {
    type All = plain::Mutex<Vec<Site>>;
    static ALL: crate::sync::OfProcess<All> = crate::sync::OfProcess::new();
    let all = ALL.get(Default::default);
    let mut sites = plain::lock(all);
    let is_first = sites.is_empty();
    match sites.iter_mut().find(|site| site.file == file && Arc::ptr_eq(&site.rates, rates)) {
        Some(site) => {
            for dir in dirs {
                if !site.dirs.contains(&dir) {
                    site.dirs.push(dir);
                }
            }
        }
        None => sites.push(Site { file: file.to_path_buf(), rates: rates.clone(), dirs }),
    }
    drop(sites);
    if is_first {
        spawn_for_ever("plfs-rates", move || {
            loop {
                let mut due = Vec::new();
                for site in plain::lock(all).iter() {
                    if site.rates.is_merge_due(EVERY_NS) {
                        due.push((site.file.clone(), site.rates.clone(), site.dirs.clone()));
                    }
                }
                for (file, rates, dirs) in due {
                    // Who asks for it with `plfs probe` or `plfs explain` is told what is wrong.
                    let _ = merge(&rates, &file, &dirs);
                }
                thread::sleep(std::time::Duration::from_nanos(EVERY_NS / 5));
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_800_000_000;

    fn sample() -> SiteRates {
        let appends = Some(Latencies { median_s: 0.0125, most_s: 1.5, appends: 7 });
        let one = |bytes_s, appends, seen_s| SiteRate {
            bytes_s,
            appends,
            bytes: 1 << 30,
            seen_s,
            host: "a node%".into(),
        };
        SiteRates::from([
            (PathBuf::from("/scratch/a b%"), one(4e7, appends, NOW)),
            (PathBuf::from(OsString::from_vec(b"/x\xff\n".to_vec())), one(1.0, None, NOW - 60)),
        ])
    }

    #[test]
    fn what_is_written_is_read() {
        assert_eq!(decode(&encode(&sample()), NOW), Ok(sample()));
        assert_eq!(decode(&encode(&SiteRates::new()), NOW), Ok(SiteRates::new()));
        // What is old goes, and so does what is of a future that no clock has.
        assert_eq!(decode(&encode(&sample()), NOW + OLD_S - 30).unwrap().len(), 1);
        assert_eq!(decode(&encode(&sample()), NOW - 90).unwrap().len(), 1);
    }

    #[test]
    fn what_is_torn_or_hostile_is_refused() {
        let text = encode(&sample());
        for cut in MAGIC.len() + 2..text.len() {
            assert!(matches!(decode(&text[..cut], NOW), Err(SiteRefused::Damaged(_))), "{cut}");
        }
        for at in MAGIC.len() + 2..text.len() {
            let mut other = text.clone();
            other[at] ^= 1;
            assert!(decode(&other, NOW).is_err(), "{at}");
        }
        for strange in [&b""[..], b"root:x:0:0", b"plfs-rates 2\n", b"plfs-rates", b"\xff\xfe"] {
            assert!(matches!(decode(strange, NOW), Err(SiteRefused::Strange(_))), "{strange:?}");
        }
        // With a sum that is right.
        let with_sum = |lines: &str| {
            let text = format!("plfs-rates 1\n{lines}");
            format!("{text}sum {:08x}\n", plfs_format::sum(text.as_bytes()))
        };
        for line in ["1 1 1 1 1 1 h", "x 1 1 1 1 1 h /d", "1 1 1 1 1 1 h /d /e", "1 1 1 1 1 1 h %"]
        {
            let text = with_sum(&format!("{line}\n"));
            assert!(matches!(decode(text.as_bytes(), NOW), Err(SiteRefused::Damaged(_))), "{line}");
        }
        // Numbers that nobody can have measured, and directories that nobody names so.
        for line in
            ["0 1 1 1 1 NOW h /d", "99999999999999999 1 1 1 1 NOW h /d", "5 1 1 1 1 NOW h d"]
        {
            let text = with_sum(&format!("{}\n", line.replace("NOW", &NOW.to_string())));
            assert_eq!(decode(text.as_bytes(), NOW), Ok(SiteRates::new()), "{line}");
        }
    }
}
