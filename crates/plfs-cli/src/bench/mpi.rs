//! Ranks that use MPI-IO: a program in C, compiled with the MPI of the site.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::machine;
use super::rank::Spec;
use crate::out::{Fail, show};

const SOURCE: &str = include_str!("rank_mpi.c");

/// The program, which is removed when this is dropped.
pub struct Program {
    dir: PathBuf,
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

impl Program {
    /// Compiles it with `mpicc`, a command with its first arguments, in the directory for files
    /// that do not stay.
    pub fn compile(mpicc: &str) -> Result<Program, Fail> {
        let name = format!("plfs-bench.{}.{}", std::process::id(), machine::random());
        let dir = std::env::temp_dir().join(name);
        let made = std::fs::create_dir(&dir);
        made.map_err(|why| Fail::on("make a directory for the ranks", &dir, why))?;
        let program = Program { dir };
        let source = program.dir.join("rank_mpi.c");
        std::fs::write(&source, SOURCE).map_err(|why| Fail::on("write", &source, why))?;
        let mut compiler = words(mpicc)?;
        compiler.args(["-O2", "-w", "-o"]).arg(program.path()).arg(&source);
        let done = compiler.output().map_err(|why| {
            Fail::Say(format!(
                "cannot run {mpicc}, with which --door mpi compiles its ranks: {why}; install an \
                 MPI, or name its compiler: --mpicc"
            ))
        })?;
        match done.status.success() {
            true => Ok(program),
            false => {
                let said = String::from_utf8_lossy(&done.stderr);
                Err(Fail::Say(format!("{mpicc} cannot compile the ranks: {}", said.trim_end())))
            }
        }
    }

    fn path(&self) -> PathBuf {
        self.dir.join("rank_mpi")
    }

    /// What starts the ranks with `mpiexec`, a command with its first arguments.
    pub fn command(&self, mpiexec: &str, spec: &Spec, work: &[PathBuf]) -> Result<Command, Fail> {
        let pattern = serde_json::to_value(spec.pattern).unwrap_or_default();
        let Spec { procs, size, count, block, seed, .. } = *spec;
        let mut command = words(mpiexec)?;
        command.args(["-n", &procs.to_string()]).arg(self.path());
        command.arg(pattern.as_str().unwrap_or_default());
        command.args([size, count, block, seed.into()].map(|n| n.to_string()));
        command.args([spec.sync, spec.verify, spec.same].map(|yes| u8::from(yes).to_string()));
        command.args(work);
        Ok(command)
    }
}

fn words(text: &str) -> Result<Command, Fail> {
    let mut words = text.split_whitespace();
    let Some(first) = words.next() else {
        return Err(Fail::Exit(2, "--mpicc and --mpiexec name a command".into()));
    };
    let mut command = Command::new(first);
    command.args(words);
    Ok(command)
}

/// What it means that it cannot be started.
pub fn cannot_start(mpiexec: &str, why: &dyn std::fmt::Display) -> Fail {
    Fail::Say(format!(
        "cannot run {}, which starts the ranks of --door mpi: {why}; name another: --mpiexec",
        show(Path::new(mpiexec))
    ))
}
