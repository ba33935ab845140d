//! `plfs bench`: ranks, which are processes, write pieces and read what others wrote; the parent
//! has them all begin each step at once, and takes its time from then until the last is done.

mod machine;
mod mpi;
mod rank;
mod report;

use std::io::{BufRead, BufReader, Write};
use std::ops::Range;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use plfs_core::store::Links;
use plfs_core::{Config, Plfs};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use crate::out::{self, Fail, Out, show};
use crate::{BenchFlags, copy, mount, remove, run};
pub use rank::rank;
use rank::{Answer, Spec, Step};

/// How the directory begins that is made for the files; the seed is behind.
const NAME: &str = "plfs-bench.";
/// Each rank has one or two in memory.
const PIECE_MAX: u64 = 1 << 30;
/// How long a signal may wait.
const LOOK: Duration = Duration::from_millis(50);
/// How long a launcher of MPI may take to end its ranks.
const ENDS: Duration = Duration::from_secs(10);
/// Between writing and reading on several directories: what one client did is shown by all others
/// by then, also names, which kernels believe for a second.
const SETTLES: Duration = Duration::from_secs(1);

/// Who writes what where.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum, Serialize, Deserialize)]
pub enum Pattern {
    /// One file; piece k of rank i is the (k * N + i)th
    #[serde(rename = "n1-strided")]
    N1Strided,
    /// One file; each rank has a range of it
    #[serde(rename = "n1-segmented")]
    N1Segmented,
    /// One file, in which ranks take turns with blocks of pieces (--block)
    #[serde(rename = "n1-block")]
    N1Block,
    /// A file for each rank
    #[serde(rename = "nn")]
    Nn,
    /// A file for each piece: created, written and closed; then stat and read
    #[value(name = "1n")]
    #[serde(rename = "1n")]
    OneN,
}

/// How ranks reach the files.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Door {
    /// The engine of PLFS in the rank itself, as plfs import uses it
    Api,
    /// Calls of libc, as programs make them under plfs run
    Posix,
    /// MPI-IO, as programs use it under plfs run: the ranks are compiled with mpicc and started by
    /// mpiexec
    Mpi,
    /// MPI-IO without PLFS, to compare with
    MpiDirect,
    /// Calls of libc in directories of a plfs mount
    Fuse,
    /// Calls of libc without PLFS, to compare with
    Direct,
}

impl Door {
    /// Whether PLFS is in the ranks' own processes.
    fn is_managed(self) -> bool {
        matches!(self, Door::Api | Door::Posix | Door::Mpi)
    }
}

/// The size of a piece on the command line.
pub fn piece(text: &str) -> Result<u64, String> {
    let n = out::bytes(text)?;
    match n {
        1..=PIECE_MAX => Ok(n),
        _ => Err("a piece has 1 byte to 1G".into()),
    }
}

/// A step that all ranks have done.
struct Phase {
    step: Step,
    /// From the word to begin to the last answer.
    seconds: f64,
    answers: Vec<Answer>,
}

pub fn bench(out: &mut Out, flags: &BenchFlags) -> Result<(), Fail> {
    let stop = out::stop()?;
    let all = flags.procs.checked_mul(flags.count).and_then(|n| n.checked_mul(flags.size));
    if all.is_none_or(|all| all > i64::MAX as u64) {
        return Err(Fail::Exit(2, "--procs x --count x --size is 2^63 bytes or more".into()));
    }
    let seed = flags.seed.unwrap_or_else(machine::random);
    let mut place = Place::new(flags, seed)?;
    let done = place.make(flags).and_then(|(same, ready)| {
        let spec = Spec {
            pattern: flags.pattern,
            rank: 0,
            procs: flags.procs,
            size: flags.size,
            count: flags.count,
            block: flags.block,
            seed,
            engine: flags.door == Door::Api,
            sync: flags.sync,
            verify: flags.verify,
            same,
        };
        let mut ranks = match flags.door {
            Door::Mpi | Door::MpiDirect => {
                Ranks::start_mpi(&spec, flags, &place.work, ready.as_ref())?
            }
            door => Ranks::start(&spec, door, &place.work, ready.as_ref())?,
        };
        let phases = measure(&mut ranks, flags, &stop)?;
        ranks.finish(&stop)?;
        Ok((spec, phases, place.workload(flags.door)))
    });
    // What failed is more than that something of it is left.
    let removed = if flags.keep || flags.read_only { Ok(()) } else { place.remove(done.is_err()) };
    let (spec, phases, workload) = done?;
    removed?;
    report::report(out, flags, &report::Measured { spec, phases, workload, place: &place })
}

/// The directories, and what is made in them.
struct Place {
    /// As given, and their real paths.
    dirs: Vec<(PathBuf, PathBuf)>,
    /// In each of them: where the files are.
    work: Vec<PathBuf>,
    /// Those of them that this command has made.
    made: Vec<PathBuf>,
    /// With which names are looked at and removed; `None`: libc's calls.
    plfs: Option<Plfs>,
    config: Config,
}

impl Place {
    /// Nothing is made yet: says what is wrong with a directory.
    fn new(flags: &BenchFlags, seed: u32) -> Result<Place, Fail> {
        let wrong = |text| Fail::Exit(2, text);
        let config = Config::from_env().map_err(wrong)?;
        let plfs = Plfs::posix(config.clone());
        let mut dirs = Vec::new();
        for dir in &flags.dir {
            let (real, given) = run::directory("--dir", dir)?;
            let (shown, mount) = (show(dir), mount::mount_of(&real));
            let at = mount.as_ref().map(|(at, _)| show(at)).unwrap_or_default();
            match (flags.door, mount.is_some()) {
                (Door::Fuse, false) => {
                    return Err(wrong(format!(
                        "--dir {shown} is not in a mount of PLFS: `plfs mount MOUNTPOINT --backend \
                         {shown}` makes one, whose directories --door fuse takes"
                    )));
                }
                (Door::Direct | Door::MpiDirect, true) => {
                    return Err(wrong(format!(
                        "--dir {shown} is in the mount {at} of PLFS: name another, or say --door \
                         fuse"
                    )));
                }
                (Door::Api | Door::Posix | Door::Mpi, true) => {
                    return Err(wrong(format!(
                        "--dir {shown} is in the mount {at} of PLFS: say --door fuse, or name a \
                         directory outside"
                    )));
                }
                (Door::Direct | Door::MpiDirect, false)
                    if [&given, &real]
                        .iter()
                        .any(|dir| copy::is_managed(&plfs, &dir.join("f"))) =>
                {
                    return Err(wrong(format!(
                        "--dir {shown} is managed by PLFS: name another for --door direct, or say \
                         --door posix"
                    )));
                }
                _ => dirs.push((given, real)),
            }
        }
        let name = format!("{NAME}{seed}");
        let work = dirs.iter().map(|(given, _)| given.join(&name)).collect();
        let plfs = flags.door.is_managed().then_some(plfs);
        Ok(Place { dirs, work, made: Vec::new(), plfs, config })
    }

    fn is_there(&self, path: &Path) -> bool {
        match &self.plfs {
            Some(plfs) => plfs.stat(path, Links::Stay).is_ok(),
            None => path.symlink_metadata().is_ok(),
        }
    }

    fn mkdir(&self, path: &Path) -> Result<(), Fail> {
        let made = match &self.plfs {
            Some(plfs) => plfs.mkdir(path, 0o777).map_err(|error| error.errno().into()),
            None => std::fs::create_dir(path),
        };
        let dir = path.parent().unwrap_or(path);
        made.map_err(|error: std::io::Error| Fail::on("make a directory in", dir, error))
    }

    /// Makes the places of the files. Gives whether all directories show the same files, and what
    /// programs are told of managed ones.
    fn make(&mut self, flags: &BenchFlags) -> Result<(bool, Option<run::Managed>), Fail> {
        let first = &self.work[0].clone();
        match (self.is_there(first), flags.read_only) {
            (true, false) => {
                let shown = show(first);
                return Err(Fail::Exit(
                    2,
                    format!(
                        "{shown} is there: a bench with this seed and --keep has left it; read it \
                         with --read-only, or remove it: plfs rm -r {shown}"
                    ),
                ));
            }
            (false, true) => {
                let text = "is not there: --read-only reads what --keep has left, by the same seed";
                return Err(Fail::Exit(2, format!("{} {text}", show(first))));
            }
            (false, false) => {
                self.mkdir(first)?;
                self.made.push(first.clone());
            }
            (true, true) => {}
        }
        let probe = |dir: &Path| dir.join(format!("probe.{}", std::process::id()));
        self.mkdir(&probe(first))?;
        let shows = self.work.iter().filter(|dir| self.is_there(&probe(dir))).count();
        let removed = match &self.plfs {
            Some(plfs) => plfs.rmdir(&probe(first)).map_err(|error| error.errno().into()),
            None => std::fs::remove_dir(probe(first)),
        };
        removed.map_err(|error: std::io::Error| Fail::on("remove", &probe(first), error))?;
        let same = shows == self.work.len();
        let is_shared = !matches!(flags.pattern, Pattern::Nn | Pattern::OneN);
        if !same && (is_shared || shows != 1) {
            let text = "do not show the same files: for one file they must be mount points of one \
                        file system, or name one";
            let text = if is_shared { text } else { "show the same files, but not all of them" };
            let names: Vec<String> = self.dirs.iter().map(|(given, _)| show(given)).collect();
            return Err(Fail::Exit(2, format!("the directories {} {text}", names.join(", "))));
        }
        if !same && !flags.read_only {
            for dir in &self.work[1..] {
                self.mkdir(dir)?;
                self.made.push(dir.clone());
            }
        }
        let managed = |dir: &PathBuf| ("--dir".to_owned(), self.root_of(dir));
        let managed: Vec<_> = self.work.iter().map(managed).collect();
        let ready = self.plfs.is_some().then(|| run::Managed::prepare(&self.config, &managed, &[]));
        Ok((same, ready.transpose()?))
    }

    /// The managed directory that a place of files is in; itself if there is none, so that all that
    /// is made goes with it.
    fn root_of(&self, work: &Path) -> PathBuf {
        let is_root = |dir: &&Path| {
            self.config.mounts.iter().any(|m| m == *dir) || dir.join(".plfs").is_dir()
        };
        work.ancestors().find(is_root).unwrap_or(work).to_path_buf()
    }

    /// What new files are for, as directories and settings say.
    fn workload(&self, door: Door) -> Option<String> {
        let plfs = self.plfs.as_ref().filter(|_| door.is_managed())?;
        Some(plfs.workload_of(&self.work[0].join("file")).ok()?.word().to_owned())
    }

    fn remove(&self, failed: bool) -> Result<(), Fail> {
        if let Some(plfs) = self.plfs.as_ref().filter(|_| failed) {
            // Of ranks that were killed.
            plfs.commit_what_the_dead_left();
            plfs.reap();
        }
        for dir in &self.made {
            let gone = match &self.plfs {
                _ if !self.is_there(dir) => Ok(()),
                Some(plfs) => remove::tree(plfs, dir).or_else(|why| {
                    // No names any more: what is left is a table of backends, or what ranks that
                    // were killed had open. Nobody else has anything in here.
                    let left = plfs.store().list(dir).unwrap_or_default();
                    if left.iter().any(|entry| !plfs_core::is_hidden(&entry.name)) {
                        return Err(why);
                    }
                    std::fs::remove_dir_all(dir).map_err(|error| error.to_string())
                }),
                None => std::fs::remove_dir_all(dir).map_err(|error| error.to_string()),
            };
            gone.map_err(|why| Fail::on("remove", dir, why))?;
        }
        Ok(())
    }
}

fn measure(ranks: &mut Ranks, flags: &BenchFlags, stop: &AtomicBool) -> Result<Vec<Phase>, Fail> {
    let (write, read): (&[Step], &[Step]) = match flags.pattern {
        Pattern::OneN => (&[Step::Create], &[Step::Stat, Step::ReadFiles]),
        _ => (
            &[Step::Open, Step::Write, Step::Close],
            &[Step::ReadOpen, Step::Read, Step::ReadClose],
        ),
    };
    let mut phases = Vec::new();
    if !flags.read_only {
        ranks.step(Step::Contents, stop)?;
        for step in write {
            phases.push(ranks.step(*step, stop)?);
        }
        if flags.dir.len() > 1 {
            std::thread::sleep(SETTLES);
        }
    }
    ranks.step(Step::Expected, stop)?;
    for step in read {
        phases.push(ranks.step(*step, stop)?);
    }
    Ok(phases)
}

/// The processes. They end when this is dropped, at the latest.
struct Ranks {
    all: Vec<Running>,
    /// How many ranks they are: one each, or one launcher has all.
    procs: usize,
    /// Answers, and `None` at the end of what a process says.
    heard: Receiver<(usize, Option<Answer>)>,
    /// What runs, as long as it does.
    _program: Option<mpi::Program>,
}

struct Running {
    child: Child,
    /// Of MPI, which ends its ranks if it is asked to.
    is_launcher: bool,
    /// `None`: it is to end.
    tell: Option<ChildStdin>,
    status: Option<ExitStatus>,
}

impl Ranks {
    fn start(
        spec: &Spec,
        door: Door,
        work: &[PathBuf],
        managed: Option<&run::Managed>,
    ) -> Result<Ranks, Fail> {
        let cannot = |rank: u64, error: &dyn std::fmt::Display| {
            Fail::Say(format!("cannot start rank {rank}: {error}"))
        };
        machine::allow_descriptors();
        let exe = std::env::current_exe().map_err(|error| cannot(0, &error))?;
        let preload = if door == Door::Posix { Some(run::preload()?) } else { None };
        let (say, heard) = channel();
        let procs = spec.procs as usize;
        let mut ranks = Ranks { all: Vec::new(), procs, heard, _program: None };
        for rank in 0..spec.procs {
            let mut program = Command::new(&exe);
            program.arg("bench-rank").arg("--").args(work);
            program.stdin(Stdio::piped()).stdout(Stdio::piped());
            if let Some(managed) = managed {
                managed.tell(&mut program, None);
            }
            match &preload {
                Some(preload) => run::load(&mut program, preload),
                // Not through another `plfs run`.
                None => drop(program.env_remove("LD_PRELOAD")),
            }
            let child = program.spawn().map_err(|error| cannot(rank, &error))?;
            let one = rank as usize..rank as usize + 1;
            ranks.add(child, one, &say).map_err(|error| cannot(rank, &error))?;
            let spec = Spec { rank, ..spec.clone() };
            let mut line = serde_json::to_vec(&spec).map_err(|error| cannot(rank, &error))?;
            line.push(b'\n');
            ranks.tell(rank as usize, &line);
        }
        Ok(ranks)
    }

    /// All ranks by one launcher, which rank 0 is told and heard through.
    fn start_mpi(
        spec: &Spec,
        flags: &BenchFlags,
        work: &[PathBuf],
        managed: Option<&run::Managed>,
    ) -> Result<Ranks, Fail> {
        let program = mpi::Program::compile(&flags.mpicc)?;
        let mut launcher = program.command(&flags.mpiexec, spec, work)?;
        launcher.stdin(Stdio::piped()).stdout(Stdio::piped());
        match managed {
            Some(managed) => {
                managed.tell(&mut launcher, None);
                run::load(&mut launcher, &run::preload()?);
                run::carry(&mut launcher);
            }
            None => drop(launcher.env_remove("LD_PRELOAD")),
        }
        let child = launcher.spawn().map_err(|why| mpi::cannot_start(&flags.mpiexec, &why))?;
        let (say, heard) = channel();
        let procs = spec.procs as usize;
        let mut ranks = Ranks { all: Vec::new(), procs, heard, _program: Some(program) };
        let added = ranks.add(child, 0..procs, &say);
        added.map_err(|why| mpi::cannot_start(&flags.mpiexec, &why))?;
        ranks.all[0].is_launcher = true;
        Ok(ranks)
    }

    /// A process that answers for these ranks, in turn.
    fn add(
        &mut self,
        mut child: Child,
        ranks: Range<usize>,
        say: &Sender<(usize, Option<Answer>)>,
    ) -> std::io::Result<()> {
        let (tell, answers) = (child.stdin.take(), child.stdout.take());
        self.all.push(Running { child, is_launcher: false, tell, status: None });
        let say = say.clone();
        let listen = move || answers.into_iter().for_each(|from| listen(ranks.clone(), from, &say));
        std::thread::Builder::new().stack_size(128 << 10).spawn(listen).map(drop)
    }

    /// That a process is gone is heard from its other pipe.
    fn tell(&mut self, process: usize, text: &[u8]) {
        let _ = self.all[process].tell.as_mut().map(|tell| tell.write_all(text));
    }

    /// Has all ranks do a step, and waits for the last.
    fn step(&mut self, step: Step, stop: &AtomicBool) -> Result<Phase, Fail> {
        let begun = Instant::now();
        for process in 0..self.all.len() {
            self.tell(process, &[step.byte()]);
        }
        let mut answers = vec![Answer::default(); self.procs];
        for _ in 0..self.procs {
            match self.hear(stop)? {
                (rank, Some(Answer { error: Some(text), .. })) => {
                    return Err(Fail::Say(format!("rank {rank}: {text}")));
                }
                (rank, Some(answer)) => answers[rank] = answer,
                (rank, None) => {
                    return Err(self.lost(rank, &format!("in step {}", step.name()), stop));
                }
            }
        }
        Ok(Phase { step, seconds: begun.elapsed().as_secs_f64(), answers })
    }

    fn hear(&self, stop: &AtomicBool) -> Result<(usize, Option<Answer>), Fail> {
        loop {
            if stop.load(Ordering::Relaxed) {
                return Err(interrupted());
            }
            match self.heard.recv_timeout(LOOK) {
                Ok(heard) => return Ok(heard),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Fail::Say("no rank is left".into()));
                }
            }
        }
    }

    /// Why a process has ended that should not have.
    fn lost(&mut self, rank: usize, when: &str, stop: &AtomicBool) -> Fail {
        let running = &mut self.all[rank];
        let (what, then) = match running.is_launcher {
            true => ("what starts the ranks".into(), ""),
            false => (format!("rank {rank}"), "; the others were ended"),
        };
        let status = running.wait();
        if status.and_then(|status| status.signal()).is_some() {
            // A signal of the terminal came to all.
            std::thread::sleep(LOOK);
        }
        if stop.load(Ordering::Relaxed) {
            return interrupted();
        }
        let how = match status.map(|status| (status.signal(), status.code())) {
            Some((Some(signal), _)) => format!("was killed by signal {signal}"),
            Some((_, Some(code))) => format!("ended with status {code}"),
            _ => "ended".into(),
        };
        Fail::Say(format!("{what} {how} {when}{then}"))
    }

    /// Waits until all have ended, as they do when nothing more comes.
    fn finish(&mut self, stop: &AtomicBool) -> Result<(), Fail> {
        self.all.iter_mut().for_each(|rank| rank.tell = None);
        for _ in 0..self.all.len() {
            let (rank, _) = self.hear(stop)?;
            if !self.all[rank].wait().is_some_and(|status| status.success()) {
                return Err(self.lost(rank, "at its end", stop));
            }
        }
        Ok(())
    }
}

impl Running {
    /// Asks a launcher to end its ranks, and gives it a while: killed it would leave them.
    fn end(&mut self) {
        self.tell = None;
        let Some(pid) = Pid::from_raw(self.child.id() as i32) else { return };
        let _ = kill_process(pid, Signal::TERM);
        let begun = Instant::now();
        while begun.elapsed() < ENDS && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(LOOK);
        }
    }

    fn wait(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            self.status = self.child.wait().ok();
        }
        self.status
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        for rank in self.all.iter_mut().filter(|rank| rank.status.is_none()) {
            if rank.is_launcher {
                rank.end();
            }
            let _ = rank.child.kill();
        }
        for rank in &mut self.all {
            rank.wait();
        }
    }
}

fn interrupted() -> Fail {
    Fail::Say("interrupted".into())
}

fn listen(
    ranks: Range<usize>,
    from: std::process::ChildStdout,
    say: &Sender<(usize, Option<Answer>)>,
) {
    let lines = BufReader::new(from).lines().map_while(Result::ok);
    for (rank, line) in ranks.clone().cycle().zip(lines) {
        let answer = serde_json::from_str(&line).unwrap_or_else(|_| Answer {
            error: Some(format!("it said: {line}")),
            ..Answer::default()
        });
        if say.send((rank, Some(answer))).is_err() {
            return;
        }
    }
    let _ = say.send((ranks.start, None));
}
