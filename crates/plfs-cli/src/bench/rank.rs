//! A rank of `plfs bench`: a process that does a step when the parent says so, and tells how long
//! it took. Steps come as bytes on standard input, after one line that says what it is to do.

use std::fs;
use std::io::{self, BufRead, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use plfs_core::store::Links;
use plfs_core::{Access, File, OpenOptions, Plfs};
use serde::{Deserialize, Serialize};

use super::Pattern;
use crate::out::{self, Fail, show, without_numbers};

/// What a rank is told.
#[derive(Clone, Serialize, Deserialize)]
pub struct Spec {
    pub pattern: Pattern,
    pub rank: u64,
    pub procs: u64,
    /// Bytes of a piece.
    pub size: u64,
    /// Pieces of a rank.
    pub count: u64,
    /// Pieces of a block (n1-block).
    pub block: u64,
    pub seed: u32,
    /// Through the engine rather than libc.
    pub engine: bool,
    pub sync: bool,
    pub verify: bool,
    /// All directories show the same files.
    pub same: bool,
}

impl Spec {
    /// Who wrote what this rank reads: on several directories, another client.
    pub fn partner(&self) -> u64 {
        (self.rank + self.procs / 2) % self.procs
    }

    /// Where a piece of a rank lies in its file.
    pub fn offset(&self, rank: u64, piece: u64) -> u64 {
        let Spec { procs, count, block, size, .. } = *self;
        let nth = match self.pattern {
            Pattern::N1Strided => piece * procs + rank,
            Pattern::N1Segmented => rank * count + piece,
            Pattern::N1Block => {
                let first = piece - piece % block;
                // The last block may be shorter.
                first * procs + rank * block.min(count - first) + piece % block
            }
            Pattern::Nn => piece,
            Pattern::OneN => 0,
        };
        nth * size
    }

    fn name(&self, rank: u64, piece: u64) -> String {
        match self.pattern {
            Pattern::Nn => format!("rank.{rank}"),
            Pattern::OneN => format!("rank.{rank}.{piece}"),
            _ => "shared".into(),
        }
    }
}

/// What a rank can be told to do; rank_mpi.c has the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Make contents; not measured.
    Contents,
    Open,
    Write,
    Close,
    /// Make what is to be found; not measured.
    Expected,
    ReadOpen,
    Read,
    ReadClose,
    /// Make, write and close files (1n).
    Create,
    Stat,
    /// Open, read and close files.
    ReadFiles,
}

impl Step {
    const ALL: [Step; 11] = [
        Step::Contents,
        Step::Open,
        Step::Write,
        Step::Close,
        Step::Expected,
        Step::ReadOpen,
        Step::Read,
        Step::ReadClose,
        Step::Create,
        Step::Stat,
        Step::ReadFiles,
    ];

    pub fn byte(self) -> u8 {
        self as u8
    }

    fn of(byte: u8) -> Option<Step> {
        Step::ALL.get(usize::from(byte)).copied()
    }

    /// In tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Step::Contents | Step::Expected => "prepare",
            Step::Open => "open",
            Step::Write => "write",
            Step::Close => "close",
            Step::ReadOpen => "read_open",
            Step::Read | Step::ReadFiles => "read",
            Step::ReadClose => "read_close",
            Step::Create => "create",
            Step::Stat => "stat",
        }
    }
}

/// What a rank says when it has done a step.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct Answer {
    pub seconds: f64,
    pub bytes: u64,
    pub files: u64,
    pub pid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// `plfs bench-rank DIR...`, which nobody calls but `plfs bench`.
pub fn rank(dirs: Vec<PathBuf>) -> Result<(), Fail> {
    use rustix::process::Signal;
    let gone = || Fail::Say("this is a part of `plfs bench`".into());
    // Without the parent nobody wants to know.
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::TERM));
    let mut input = io::stdin().lock();
    let mut line = String::new();
    input.read_line(&mut line).map_err(|_| gone())?;
    let spec: Spec = serde_json::from_str(&line).map_err(|_| gone())?;
    let plfs = if spec.engine { Some(out::plfs()?) } else { None };
    let mut rank = Rank { spec, dirs, plfs, open: None, contents: None, buf: Vec::new() };
    let mut byte = [0];
    while input.read(&mut byte).map_err(|_| gone())? == 1 {
        let step = Step::of(byte[0]).ok_or_else(gone)?;
        let begun = Instant::now();
        let done = rank.step(step);
        let seconds = begun.elapsed().as_secs_f64();
        let answer = match done {
            Ok((bytes, files)) => {
                let pid = std::process::id();
                Answer { seconds, bytes, files, pid, error: None }
            }
            Err(text) => Answer { error: Some(text), ..Answer::default() },
        };
        let mut text = serde_json::to_vec(&answer).map_err(|_| gone())?;
        text.push(b'\n');
        let mut out = io::stdout().lock();
        out.write_all(&text).and_then(|()| out.flush())?;
    }
    rank.plfs.map_or(Ok(()), |plfs| Ok(plfs.exit()?))
}

enum Handle {
    Plain(fs::File),
    Engine(File),
}

struct Rank {
    spec: Spec,
    dirs: Vec<PathBuf>,
    /// None: libc's calls, whoever serves them.
    plfs: Option<Plfs>,
    open: Option<(PathBuf, Handle)>,
    contents: Option<Contents>,
    buf: Vec<u8>,
}

type Done<T = ()> = Result<T, String>;

fn failed(what: &str, path: &Path, why: impl std::fmt::Display) -> String {
    format!("cannot {what} {}: {}", show(path), without_numbers(&why.to_string()))
}

impl Rank {
    /// Bytes and files that were written, read or looked at.
    fn step(&mut self, step: Step) -> Done<(u64, u64)> {
        let Spec { rank, count, size, sync, .. } = self.spec;
        let (all, from) = (count * size, self.spec.partner());
        match step {
            Step::Contents => self.contents = Some(Contents::new(&self.spec, rank)?),
            Step::Expected => {
                self.contents = None;
                self.buf = room(size)?;
                if self.spec.verify {
                    self.contents = Some(Contents::new(&self.spec, from)?);
                }
            }
            Step::Open => self.open = Some(self.handle(rank, 0, true)?),
            Step::ReadOpen => self.open = Some(self.handle(from, 0, false)?),
            Step::Write => {
                let opened = self.open.take().ok_or("nothing is open")?;
                for piece in 0..count {
                    self.write(&opened, piece)?;
                }
                self.open = Some(opened);
                return Ok((all, 1));
            }
            Step::Read => {
                let opened = self.open.take().ok_or("nothing is open")?;
                for piece in 0..count {
                    self.read(&opened, from, piece)?;
                }
                self.open = Some(opened);
                return Ok((all, 1));
            }
            Step::Close => close(self.open.take().ok_or("nothing is open")?, sync)?,
            Step::ReadClose => close(self.open.take().ok_or("nothing is open")?, false)?,
            Step::Create => {
                for piece in 0..count {
                    let opened = self.handle(rank, piece, true)?;
                    self.write(&opened, piece)?;
                    close(opened, sync)?;
                }
                return Ok((all, count));
            }
            Step::Stat => {
                for piece in 0..count {
                    self.stat(&self.path(from, piece, from))?;
                }
                return Ok((0, count));
            }
            Step::ReadFiles => {
                for piece in 0..count {
                    let opened = self.handle(from, piece, false)?;
                    self.read(&opened, from, piece)?;
                    close(opened, false)?;
                }
                return Ok((all, count));
            }
        }
        Ok((0, 0))
    }

    /// A file of `owner` as this rank names it.
    fn path(&self, owner: u64, piece: u64, made_by: u64) -> PathBuf {
        let who = if self.spec.same { self.spec.rank } else { made_by };
        let dir = &self.dirs[(who % self.dirs.len() as u64) as usize];
        dir.join(self.spec.name(owner, piece))
    }

    fn handle(&self, owner: u64, piece: u64, write: bool) -> Done<(PathBuf, Handle)> {
        let path = self.path(owner, piece, owner);
        let what = if write { "create" } else { "open" };
        let handle = match (&self.plfs, write) {
            (None, true) => fs::OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(false)
                .open(&path)
                .map(Handle::Plain)
                .map_err(|error| failed(what, &path, error))?,
            (None, false) => fs::File::open(&path)
                .map(Handle::Plain)
                .map_err(|error| failed(what, &path, error))?,
            (Some(plfs), write) => {
                let access = Access { read: !write, write };
                let options = OpenOptions { access, create: write, ..OpenOptions::read() };
                let opened = plfs.open(&path, options).map_err(|error| error.to_string())?;
                Handle::Engine(opened.file())
            }
        };
        Ok((path, handle))
    }

    fn write(&mut self, (path, handle): &(PathBuf, Handle), piece: u64) -> Done {
        let at = self.spec.offset(self.spec.rank, piece);
        let contents = self.contents.as_mut().ok_or("nothing to write")?;
        contents.piece(piece, |bytes| match handle {
            Handle::Plain(file) => {
                file.write_all_at(bytes, at).map_err(|error| failed("write", path, error))
            }
            Handle::Engine(file) => {
                let mut done = 0;
                while done < bytes.len() {
                    match file.write_at(&bytes[done..], at + done as u64) {
                        Ok(0) => return Err(failed("write", path, "no room")),
                        Ok(more) => done += more,
                        Err(error) => return Err(error.to_string()),
                    }
                }
                Ok(())
            }
        })
    }

    fn read(&mut self, (path, handle): &(PathBuf, Handle), owner: u64, piece: u64) -> Done {
        let at = self.spec.offset(owner, piece);
        let mut done = 0;
        while done < self.buf.len() {
            let (rest, from) = (&mut self.buf[done..], at + done as u64);
            let more = match handle {
                Handle::Plain(file) => match file.read_at(rest, from) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    other => other.map_err(|error| failed("read", path, error))?,
                },
                Handle::Engine(file) => {
                    file.read_at(rest, from).map_err(|error| error.to_string())?
                }
            };
            if more == 0 {
                let (end, want) = (from, at + self.buf.len() as u64);
                let why = format!("it ends at byte {end}, and rank {owner} wrote up to {want}");
                return Err(failed("read", path, why));
            }
            done += more;
        }
        let Some(contents) = &mut self.contents else { return Ok(()) };
        let buf = &self.buf;
        let differs = contents.piece(piece, |want| {
            let at =
                if buf == want { None } else { want.iter().zip(buf).position(|(w, b)| w != b) };
            at.map(|i| (i, want[i], buf[i]))
        });
        match differs {
            None => Ok(()),
            Some((i, want, found)) => Err(format!(
                "{}: byte {} is wrong: wanted 0x{want:02x}, found 0x{found:02x} (byte {i} of piece \
                 {piece} of rank {owner})",
                show(path),
                at + i as u64
            )),
        }
    }

    fn stat(&self, path: &Path) -> Done {
        let len = match &self.plfs {
            None => fs::metadata(path).map_err(|error| failed("stat", path, error))?.len(),
            Some(plfs) => {
                plfs.stat(path, Links::Follow).map_err(|error| error.to_string())?.stat.len
            }
        };
        match len == self.spec.size {
            true => Ok(()),
            false => Err(format!("{} has {len} bytes, not {}", show(path), self.spec.size)),
        }
    }
}

/// Errors of libc's close are not seen: Rust's library keeps them to itself. What they tell of
/// shows when the bytes are read.
fn close((path, handle): (PathBuf, Handle), sync: bool) -> Done {
    match handle {
        Handle::Plain(file) => match sync {
            true => file.sync_all().map_err(|error| failed("sync", &path, error)),
            false => Ok(()),
        },
        Handle::Engine(file) => {
            if sync {
                file.sync().map_err(|error| error.to_string())?;
            }
            file.close().map_err(|error| error.to_string())
        }
    }
}

fn room(bytes: u64) -> Done<Vec<u8>> {
    let mut buf = Vec::new();
    let len = usize::try_from(bytes).map_err(|error| error.to_string())?;
    buf.try_reserve_exact(len).map_err(|_| format!("no memory for {bytes} bytes"))?;
    buf.resize(len, 0);
    Ok(buf)
}

/// What a rank writes: a piece is a window of random bytes at an offset that depends on its number,
/// and begins with eight bytes of its own. So a byte depends on seed, rank, piece and place, and
/// making a piece costs nothing while it is measured.
pub struct Contents {
    seed: u64,
    size: usize,
    pool: Vec<u8>,
}

/// Offsets of windows: a prime, so that no power of two repeats them.
const WINDOWS: u64 = 65_521;

impl Contents {
    pub fn new(spec: &Spec, rank: u64) -> Done<Contents> {
        let seed = mix((u64::from(spec.seed) << 32) ^ rank);
        let mut pool = room(spec.size.saturating_add(WINDOWS).next_multiple_of(8))?;
        for (nth, word) in pool.chunks_exact_mut(8).enumerate() {
            word.copy_from_slice(&mix(seed.wrapping_add(nth as u64)).to_le_bytes());
        }
        Ok(Contents { seed, size: spec.size as usize, pool })
    }

    pub fn piece<T>(&mut self, piece: u64, with: impl FnOnce(&[u8]) -> T) -> T {
        let own = mix(self.seed ^ mix(piece)).to_le_bytes();
        let at = (mix(piece) % WINDOWS) as usize;
        let window = &mut self.pool[at..at + self.size];
        let head = window.len().min(own.len());
        let mut kept = [0; 8];
        kept[..head].copy_from_slice(&window[..head]);
        window[..head].copy_from_slice(&own[..head]);
        let done = with(window);
        window[..head].copy_from_slice(&kept[..head]);
        done
    }
}

/// The finalizer of SplitMix64.
fn mix(n: u64) -> u64 {
    let n = n.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let n = (n ^ (n >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    n ^ (n >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(pattern: Pattern, procs: u64, count: u64, block: u64) -> Spec {
        Spec {
            pattern,
            rank: 0,
            procs,
            size: 10,
            count,
            block,
            seed: 1,
            engine: false,
            sync: false,
            verify: false,
            same: true,
        }
    }

    #[test]
    fn pieces_fill_a_shared_file() {
        for pattern in [Pattern::N1Strided, Pattern::N1Segmented, Pattern::N1Block] {
            for (procs, count, block) in [(1, 1, 16), (3, 10, 4), (4, 16, 4), (2, 5, 100)] {
                let spec = spec(pattern, procs, count, block);
                let mut all: Vec<u64> = (0..procs)
                    .flat_map(|rank| (0..count).map(move |piece| (rank, piece)))
                    .map(|(rank, piece)| spec.offset(rank, piece))
                    .collect();
                all.sort_unstable();
                let want: Vec<u64> = (0..procs * count).map(|nth| nth * 10).collect();
                assert_eq!(all, want, "{procs} {count} {block}");
            }
        }
    }

    #[test]
    fn contents_depend_on_all() {
        let spec = spec(Pattern::Nn, 2, 2, 1);
        let get = |seed, rank, piece| {
            let spec = Spec { seed, ..spec.clone() };
            Contents::new(&spec, rank).unwrap().piece(piece, <[u8]>::to_vec)
        };
        let all = [get(1, 0, 0), get(2, 0, 0), get(1, 1, 0), get(1, 0, 1)];
        assert_eq!(all[0], get(1, 0, 0));
        for (i, one) in all.iter().enumerate() {
            assert!(all[i + 1..].iter().all(|other| other != one));
        }
        // What one piece writes over is there again for the next.
        let mut contents = Contents::new(&spec, 0).unwrap();
        contents.piece(5, |_| ());
        assert_eq!(contents.piece(1, <[u8]>::to_vec), all[3]);
    }

    #[test]
    fn steps_by_their_bytes() {
        assert!(Step::ALL.iter().all(|step| Step::of(step.byte()) == Some(*step)));
    }
}
