//! Makes the container that many writers leave who are all nodes of their own: one log set each, as
//! at 4,096 ranks on 4,096 nodes.
//!
//! ```text
//! cargo run --release -p plfs-testkit --example many_writers -- FILE WRITERS PIECES LENGTH
//! ```
//!
//! Writer r's piece i of LENGTH bytes is at (i * WRITERS + r) * LENGTH and has the byte r modulo
//! 251 in it. The flat index that the last one leaves is removed, so that whoever opens the file
//! has the index logs to load; `plfs flatten` brings it back. Processes of 256 writers each hold
//! their files open until all have written.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio, exit};

use plfs::{CommitHorizon, Config, File, OpenOptions, Opened, Plfs};

/// Writers of one process: 256 of some six descriptors stay below the usual limits.
const WRITERS: u64 = 256;
const CHILD: &str = "PLFS_MANY_WRITERS_FROM";

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize| args.get(i).and_then(|text| text.parse::<u64>().ok());
    let (Some(file), Some(writers), Some(pieces), Some(length)) =
        (args.first(), number(1), number(2), number(3))
    else {
        eprintln!("usage: many_writers FILE WRITERS PIECES LENGTH");
        exit(2);
    };
    match std::env::var(CHILD).ok().and_then(|from| from.parse().ok()) {
        Some(from) => {
            write(Path::new(file), from..(from + WRITERS).min(writers), writers, pieces, length)
        }
        None => run(&args, writers, Path::new(file)),
    }
}

fn run(args: &[String], writers: u64, file: &Path) {
    open(&plfs(), file).close().expect("create the file");
    let start = |from: u64| {
        let mut child = Command::new(std::env::current_exe().expect("the path of this program"));
        child
            .args(args)
            .env(CHILD, from.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("start a process of writers")
    };
    let mut children = Vec::new();
    for from in (0..writers).step_by(WRITERS as usize) {
        let mut child = start(from);
        // One after the other, which is as fast on few processors; what they leave is the same.
        let written = child
            .stdout
            .take()
            .map(BufReader::new)
            .and_then(|mut out| out.read_line(&mut String::new()).ok());
        assert!(written.is_some_and(|n| n > 0), "a process of writers failed");
        children.push(child);
    }
    // Closing their standard input lets them close.
    children.iter_mut().for_each(|child| drop(child.stdin.take()));
    for mut child in children {
        assert!(child.wait().is_ok_and(|status| status.success()), "a process of writers failed");
    }
    let (container, _) =
        plfs().container(file).expect("find the container").expect("the file is a PLFS file");
    // Changing the directory makes the summary void, too: everything has to be read.
    let _ = container.store.unlink(&container.path("flat"));
}

fn write(file: &Path, own: std::ops::Range<u64>, writers: u64, pieces: u64, length: u64) {
    let nodes: Vec<Plfs> = own.clone().map(|_| plfs()).collect();
    let files: Vec<File> = nodes.iter().map(|plfs| open(plfs, file)).collect();
    for (rank, file) in own.zip(&files) {
        // As in a parallel program, where one rank looks and tells the others.
        file.set_commit_horizon(CommitHorizon { max_stamp: 0, is_new: true });
        let bytes = vec![(rank % 251) as u8; length as usize];
        for piece in 0..pieces {
            file.write_at(&bytes, (piece * writers + rank) * length).expect("write");
        }
        file.commit().expect("commit");
    }
    println!("written");
    std::io::stdout().flush().expect("standard output");
    let _ = std::io::stdin().read_line(&mut String::new());
    files.into_iter().for_each(|file| file.close().expect("close"));
}

/// Without shared memory a process is a node.
fn plfs() -> Plfs {
    Plfs::posix(Config { shared_memory: None, ..Config::shared() })
}

fn open(plfs: &Plfs, path: &Path) -> File {
    match plfs.open(path, OpenOptions::create()) {
        Ok(Opened::Logical(file)) => file,
        Ok(Opened::Plain(_)) => panic!("{} is not a PLFS file", path.display()),
        Err(error) => panic!("{error}"),
    }
}
