//! `plfs`: the command line of PLFS. The flags of all commands are the table below; each command is
//! a module that uses the public names of the core.
#![forbid(unsafe_code)]

mod backend;
mod bench;
mod check;
mod compact;
mod config;
mod copy;
mod doctor;
mod elf;
mod explain;
mod layout;
mod list;
mod man;
mod map;
mod model;
mod mount;
mod nc;
mod out;
mod pack;
mod patterns;
mod plot;
mod probe;
mod remove;
mod run;
mod stat;
mod svg;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::Resettable;
use clap::{CommandFactory, Parser, Subcommand};

use out::{Fail, Out};

/// Shared files become logs that storage likes.
///
/// PLFS lets many processes write one file at the speed of a file each, without changing the
/// program. Start with `plfs run`.
#[derive(Parser)]
#[command(
    name = "plfs",
    version,
    max_term_width = 100,
    after_help = "Example:\n  plfs run -- mpiexec -n 8 ./app      files that app creates in \
                  ./plfs.d go through PLFS"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// One place says what each command takes; completions and man pages are made from it.
#[derive(Subcommand)]
enum Command {
    /// Run a program so that files which it creates in managed directories become PLFS files
    ///
    /// Nothing needs to be configured. --mount names a managed directory; without it the variable
    /// PLFS_MOUNTS does, without both a plfsrc (see plfs-config), and without all it is ./plfs.d:
    /// if that is missing it is made when the program makes something in it, enters it or asks
    /// whether it is there. Files in
    /// other directories are untouched, but for PLFS files, which the program sees with their
    /// logical contents wherever they are. Signals and the exit status are the program's own.
    ///
    /// Programs that are static, written in Go, for musl, or set-user-id load no library before
    /// libc, and need `plfs mount`; `plfs run` refuses them and says so, and so it is, but for
    /// set-user-id programs, where a program that it runs starts them. PLFS_CHILDREN=any lets it.
    #[command(after_help = "Examples:\n  plfs run -- dd if=/dev/zero of=plfs.d/f bs=1M \
                            count=10\n  plfs run --mount /scratch/out -- mpiexec -n 64 \
                            ./simulation /scratch/out/checkpoint\n  plfs run --partition=8 -- \
                            mpiexec -n 64 ./simulation out.nc      with PnetCDF")]
    Run {
        /// A managed directory: its new files, at any depth, become PLFS files; must exist; may be
        /// given several times
        #[arg(short, long = "mount", value_name = "DIR")]
        managed: Vec<PathBuf>,
        /// Directory on other storage over which the data of new files is spread as well; may be
        /// given several times
        #[arg(long, value_name = "DIR")]
        backend: Vec<PathBuf>,
        /// NetCDF datasets that the program creates with PnetCDF are partitioned: arrays are cut
        /// into K files, each a NetCDF file of its own. Without K the hints of the program say how
        /// many, or it is four
        #[arg(long, value_name = "K", num_args = 0..=1, require_equals = true,
              default_missing_value = "0", value_parser = clap::value_parser!(u32).range(0..=1000))]
        partition: Option<u32>,
        /// The program and its arguments
        #[arg(
            trailing_var_arg = true,
            allow_hyphen_values = true,
            required = true,
            value_name = "COMMAND"
        )]
        command: Vec<OsString>,
    },
    /// Show a directory through FUSE, with its PLFS files as ordinary files, to every program
    ///
    /// Files that are created in the mount become PLFS files. Programs see each other's writes when
    /// write returns. The command ends when the mount is up; a daemon serves it until `plfs
    /// umount`. Mounted by root, it is for all users, each with their own rights; mounted by a
    /// user, for that user.
    ///
    /// With several backends the first is shown, and the data of new files is spread over all. All
    /// nodes must see them at the same paths.
    #[command(
        after_help = "Mount options:\n  ro, nosuid, nodev, noexec, noatime     and their opposites\n  backend=DIR       one more backend, as --backend\n  allow_other       for all users, as root's mounts are\n  noacl             no access lists\n  nopassthrough     also plain and exported files through the daemon\n  threads=N         threads of the daemon, 1 to 256 (twice the processors, 4 to 16)\n  timeout=SECONDS   how long the kernel believes names and attributes (1)\n  log=LEVEL         error, warn, info, debug or trace; to syslog, or to standard error with --foreground\n  remount           give a mount that is there other options of the first line, or another log\n\nExamples:\n  plfs mount /mnt/ckpt --backend /scratch/ckpt\n  plfs mount /scratch/ckpt                      over the directory itself\n  plfs mount /mnt/ckpt --backend /scratch1/ckpt --backend /scratch2/ckpt\n  mount -t fuse.plfs /scratch/ckpt /mnt/ckpt    needs mount.fuse.plfs, a link to plfs, in /sbin; or the package fuse3\n  mount -o remount,ro /mnt/ckpt\n  /scratch/ckpt /mnt/ckpt fuse.plfs defaults,_netdev 0 0      in /etc/fstab"
    )]
    Mount {
        /// The directory to show, the mount point's own if not given; may be given several times:
        /// data goes to the others, too
        #[arg(long, value_name = "DIR")]
        backend: Vec<PathBuf>,
        /// Mount options, separated by commas; may be given several times
        #[arg(short, long = "options", value_name = "OPTIONS")]
        options: Vec<String>,
        /// Stay in the foreground, and log to standard error
        #[arg(short, long)]
        foreground: bool,
        /// Be the daemon that the command starts
        #[arg(long, hide = true, conflicts_with = "foreground")]
        daemon: bool,
        /// Do nothing: mount --fake
        #[arg(long, hide = true)]
        fake: bool,
        /// Where
        #[arg(value_name = "MOUNTPOINT")]
        mountpoint: PathBuf,
    },
    /// Unmount, and wait until all is committed
    #[command(after_help = "Example:\n  plfs umount /mnt/ckpt")]
    Umount {
        /// Do it while files are open: they stay usable until they are closed
        #[arg(short, long)]
        lazy: bool,
        /// Where
        #[arg(required = true, value_name = "MOUNTPOINT")]
        mountpoints: Vec<PathBuf>,
    },
    /// Show the latest lines that the daemon of a mount has logged
    #[command(after_help = "Examples:\n  plfs log /mnt/ckpt\n  plfs log --level debug /mnt/ckpt")]
    Log {
        /// From now on log this: error, warn, info, debug or trace
        #[arg(long, value_name = "LEVEL")]
        level: Option<String>,
        /// The mount; all mounts if none
        #[arg(value_name = "MOUNTPOINT")]
        mountpoint: Option<PathBuf>,
    },
    /// List files with their logical sizes
    ///
    /// With --long the first word says what a file is: plfs, promoted (plain before, and of which
    /// programs without PLFS see the beginning), plain, pinned (a plain file that stays plain:
    /// `plfs stat` says why), or packed (in the pack of its directory).
    #[command(
        disable_help_flag = true,
        after_help = "Examples:\n  plfs ls -l plfs.d\n  plfs ls -lhR plfs.d"
    )]
    Ls {
        /// Mode, links, owner, size and time of each
        #[arg(short, long)]
        long: bool,
        /// Also names that begin with a dot; never PLFS's own
        #[arg(short, long)]
        all: bool,
        /// Also what is in the directories below, each with its path
        #[arg(short = 'R', long)]
        recursive: bool,
        /// Sizes in powers of 1,024, such as 1.1K, 234M, 2.0G
        #[arg(short = 'h', long = "human-readable")]
        human: bool,
        /// Print help
        #[arg(long, action = clap::ArgAction::Help)]
        help: Option<bool>,
        /// An array with an object for each file; a path that is not UTF-8 is {"base64": "..."}
        #[arg(long)]
        json: bool,
        /// Directories and files; the current directory if none
        #[arg(value_name = "DIR|FILE", default_value = ".")]
        paths: Vec<PathBuf>,
    },
    /// Say how new files of a directory are laid out, or show it
    ///
    /// A layout is recorded in the directory, goes with it wherever it is moved or copied, and
    /// holds for all programs and nodes, for the directory and those below it that say nothing
    /// else.
    /// It goes before environment variables and plfsrc. Files that are there stay as they are;
    /// other processes know a new layout within a second.
    ///
    /// If neither the directory nor one above it has a .plfs, the directory gets one.
    #[command(
        after_help = "Examples:\n  plfs layout plfs.d                        what holds, and \
                            where it comes from\n  plfs layout --streams 2 plfs.d/many\n  plfs \
                            layout --backends all plfs.d/large   over all backends of the \
                            root\n  plfs layout --backends 0000,/scratch2/out plfs.d/large\n  \
                            plfs layout --inherit plfs.d/many         what the directory above \
                            says again\n  plfs layout --workload flat plfs.d/many      \
                            names on all backends of the root"
    )]
    Layout {
        /// What the files are used for: auto (plain files until a second process opens them for
        /// writing), shared, small (very many small files, kept together in one container), or flat
        /// (names spread over the backends of the root, for an empty directory in which many
        /// processes make very many files; each backend must be there)
        #[arg(long, value_name = "WORKLOAD")]
        workload: Option<String>,
        /// Data logs that the processes of a node share for a file, 1 to 256
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
        streams: Option<u16>,
        /// Where data goes: all backends of the root (all), or ids as in .plfs/backends of the root
        /// (0000 is the root itself) and directories, separated by commas. A directory that the
        /// root does not know is added to its backends: it needs a .plfs (mkdir -m 1777 DIR/.plfs),
        /// and must be at the same path on all nodes
        #[arg(long, value_name = "ID|DIR|all", value_delimiter = ',')]
        backends: Vec<String>,
        /// By what writers choose between the backends: measured (by what the node knows of their
        /// speed), equal (all of them, as much to each), or cliff (the fastest ones up to where the
        /// next is far slower, as much to each)
        #[arg(long, value_name = "POLICY", value_parser = ["measured", "equal", "cliff"])]
        placement: Option<String>,
        /// Say nothing any more: what the directory above says counts again
        #[arg(long)]
        inherit: bool,
        /// An object
        #[arg(long)]
        json: bool,
        /// The directory
        #[arg(value_name = "DIR")]
        dir: PathBuf,
    },
    /// Add, move, drain and remove backends while they are in use
    ///
    /// A backend is a directory, perhaps on other storage, over which the data of files is spread.
    /// The root has a table of them (.plfs/backends); 0000 is the root itself. Which of them new
    /// files use say plfs-layout and PLFS_BACKENDS.
    ///
    /// To take one out of use: drain it, until nothing is left there, then rm. Files can be read
    /// and written all the time.
    #[command(after_help = "Examples:\n  plfs backend add plfs.d /scratch2/out          prints \
                            its id\n  plfs backend status plfs.d\n  plfs backend drain plfs.d \
                            0001\n  plfs backend rm plfs.d 0001")]
    Backend {
        #[command(subcommand)]
        what: BackendCommand,
    },
    /// Check, show and migrate plfsrc, the file of settings
    ///
    /// A plfsrc is optional. It is YAML in $PLFSRC, ~/.plfsrc or /etc/plfsrc; the first that exists
    /// counts, and PLFSRC set to nothing means none. Environment variables go before it, and the
    /// layouts that directories have (plfs-layout) before both.
    #[command(after_help = "Example of a plfsrc:\n  settings:                  # as the \
                            variables PLFS_STREAMS and so on\n    streams: 4\n    buffer_bytes: \
                            256M\n  managed:                   # what plfs run takes without \
                            --mount\n    - directory: /scratch/out\n      workload: shared\n      \
                            streams: 2\n      backends: [/scratch2/out, /scratch3/out]")]
    Config {
        #[command(subcommand)]
        what: ConfigCommand,
    },
    /// Show what a file consists of: size, container, logs, writers
    ///
    /// Of a directory: how new files in it are laid out, and what says so.
    #[command(after_help = "Examples:\n  plfs stat plfs.d/checkpoint\n  plfs stat --mounts")]
    Stat {
        /// The mounts of this machine instead, and whether their daemons answer
        #[arg(long, conflicts_with = "files")]
        mounts: bool,
        /// An object for one file, an array of objects for several; a path that is not UTF-8 is
        /// {"base64": "..."}
        #[arg(long)]
        json: bool,
        /// PLFS files, or directories
        #[arg(required_unless_present = "mounts", value_name = "FILE|DIR")]
        files: Vec<PathBuf>,
    },
    /// Show who wrote what where
    ///
    /// First the patterns: what each writer wrote, overwritten or not, in the order of its writing;
    /// what is contiguous counts as one piece. Then the pieces that a reader sees, in the order of
    /// the file, each with its data log, the offset there, and its writer; holes are left out. With
    /// --patterns only the patterns. With --records: every index record, in the order that decides
    /// overlaps.
    ///
    /// With --plot: a picture of which writer wrote which offsets when, overwritten or not. A
    /// record has the time of its first piece, its block the time when all of them were written; a
    /// record is also complete when its writer begins the next. The pieces in between are drawn at
    /// an equal pace. Reads are not recorded.
    #[command(after_help = "Examples:\n  plfs map --patterns plfs.d/checkpoint\n  plfs map \
                            plfs.d/checkpoint --to 1000000\n  plfs map --records \
                            plfs.d/checkpoint\n  plfs map --plot checkpoint.svg plfs.d/checkpoint")]
    Map {
        /// An object with arrays of writers with their patterns and of pieces, or of records
        #[arg(long, conflicts_with = "plot")]
        json: bool,
        /// First byte
        #[arg(long, value_name = "N", default_value_t = 0, value_parser = out::bytes)]
        from: u64,
        /// One past the last byte; the end of the file if not given
        #[arg(long, value_name = "N", value_parser = out::bytes)]
        to: Option<u64>,
        /// Only the patterns, not the pieces
        #[arg(long, conflicts_with_all = ["records", "plot"])]
        patterns: bool,
        /// How many writers to show the patterns of, and how many patterns of each
        #[arg(long, value_name = "N", default_value_t = 24, conflicts_with_all = ["records", "plot"])]
        limit: usize,
        /// Index records as they were written instead of what is visible
        #[arg(long, conflicts_with = "plot")]
        records: bool,
        /// Write a picture into SVG: time to the right, offsets upwards, a colour for each writer,
        /// or for each node or log set if there are many
        #[arg(long, value_name = "SVG")]
        plot: Option<PathBuf>,
        /// A PLFS file
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Write files to standard output, byte for byte
    #[command(after_help = "Example:\n  plfs cat plfs.d/checkpoint | md5sum")]
    Cat {
        /// Offset of the first byte
        #[arg(long, value_name = "N", default_value_t = 0, value_parser = out::bytes)]
        from: u64,
        /// Number of bytes at most
        #[arg(long, value_name = "N", value_parser = out::bytes)]
        length: Option<u64>,
        /// Files
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// Copy a file; the copy is a PLFS file if its directory is managed
    ///
    /// Holes, mode and times are kept. The name appears when the file is complete, never before;
    /// if the command is interrupted, nothing is left of it. If it is killed, the next copy to the
    /// same name removes what is left, or plfs-check with --repair.
    ///
    /// A directory is managed if it or one above it has a .plfs, or PLFS_MOUNTS names it.
    #[command(
        after_help = "Examples:\n  plfs cp plfs.d/checkpoint plfs.d/checkpoint.old\n  plfs cp -r plfs.d/run1 plfs.d/run2"
    )]
    Cp(CopyFlags),
    /// Make a PLFS file of a plain one
    ///
    /// As plfs-cp, but the copy is a PLFS file wherever it is.
    #[command(
        after_help = "Examples:\n  plfs import input.dat plfs.d/input.dat\n  plfs import -r \
                            inputs plfs.d"
    )]
    Import(CopyFlags),
    /// Make a plain file of a PLFS file
    ///
    /// Holes, mode and times are kept. Large pieces are copied by the storage itself where it can
    /// (copy_file_range). The name appears when the file is complete and on storage, never before.
    /// Of a tree (-r) files that are no PLFS files are copied as they are.
    #[command(
        after_help = "Examples:\n  plfs export plfs.d/checkpoint /archive/checkpoint\n  plfs \
                            export -r plfs.d /archive/run1"
    )]
    Export(CopyFlags),
    /// Merge the index logs of files, so that opening them for reading costs little
    #[command(after_help = "Example:\n  plfs flatten plfs.d/checkpoint")]
    Flatten {
        /// PLFS files
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// Free the bytes of files that were overwritten or cut
    ///
    /// Copies what a file has to new logs, in order, and removes the old ones. The name, times and
    /// mode stay; readers that have the file open are not disturbed, and writers may come while it
    /// runs; a file that is open for writing already is refused. Until it is done it takes room for
    /// a second copy. If it is interrupted, the file stays as it was.
    #[command(after_help = "Examples:\n  plfs compact plfs.d/checkpoint\n  plfs compact \
                            --dry-run plfs.d/*        only says what it would free")]
    Compact {
        /// Only say how much is dead
        #[arg(short = 'n', long)]
        dry_run: bool,
        /// Rewrite files of which less is dead, or nothing. Their bytes are in order afterwards,
        /// which makes reading from the beginning fast
        #[arg(long)]
        force: bool,
        /// Leave files alone of which less is dead
        #[arg(long, value_name = "PERCENT", default_value_t = 10, value_parser = clap::value_parser!(u8).range(0..=100))]
        at_least: u8,
        /// An array with an object for each file; a path that is not UTF-8 is {"base64": "..."}
        #[arg(long)]
        json: bool,
        /// PLFS files, or directories that have packs
        #[arg(required = true, value_name = "FILE|DIR")]
        files: Vec<PathBuf>,
    },
    /// Say whether files are healthy, and where not
    ///
    /// healthy: nothing is wrong. busy: a process has it open for writing, or died with it open.
    /// torn: a crash cut an append before it was committed; nothing committed is lost. corrupt:
    /// bytes contradict the format, or committed bytes are missing. garbage: a crash left what no
    /// file uses. unknown: made by a newer PLFS.
    ///
    /// The exit status is 1 if anything is corrupt or unknown, or what was asked for could not be
    /// done, else 0. Without --repair, --undo, --discard and --clear-marks nothing is changed.
    ///
    /// --repair first removes the open marks of writers that died on this host, or before it was
    /// started the last time: at most 8 of a file in one run. A file that is still open for writing
    /// then is left as it is; --clear-marks ends writers of hosts that do not come back.
    ///
    /// --repair removes only what is known to be of no use. All else that is garbage it moves to
    /// .plfs/lost+found of the same file system; check lists what lies there. Where an index log is
    /// missing or damaged it leaves the data in place: put the index log back, from a copy, and the
    /// file is whole.
    ///
    /// Of flat directories (plfs-layout) below a directory it looks at all names, and for what lies
    /// on the backends and nothing leads to. --repair ends renames that died, and removes what is
    /// empty; what has files stays where it is.
    ///
    /// What a killed plfs-cp, -import or -export has left (.plfs-copy-*) counts as garbage.
    /// --repair removes it.
    #[command(after_help = "Examples:\n  plfs check plfs.d/checkpoint\n  plfs check --repair \
                            plfs.d        also removes what crashes left behind\n  plfs \
                            check --undo plfs.d          puts back what repairs moved to \
                            lost+found\n  plfs check --discard plfs.d       removes that for ever")]
    Check {
        /// An array with an object for each container
        #[arg(long)]
        json: bool,
        /// Remove the open marks of writers that died on this host, move garbage (containers
        /// without names, data without records) to lost+found, remove unfinished and stale flat
        /// indexes, and write missing summaries
        #[arg(long)]
        repair: bool,
        /// Put back what repairs moved to lost+found: of these files, of all below a directory, or
        /// one thing in lost+found
        #[arg(long, conflicts_with = "repair")]
        undo: bool,
        /// Remove what repairs moved to lost+found, for ever
        #[arg(long, conflicts_with_all = ["repair", "undo"])]
        discard: bool,
        /// Remove the open marks of all writers but those that live on this host. For hosts that
        /// do not come back: a writer that lives on another host loses what it has not committed,
        /// and its next commit fails with ESTALE
        #[arg(long)]
        clear_marks: bool,
        /// With --repair: leave garbage alone that is younger, because it may be a file that is
        /// being created right now. With --discard: keep what was moved since
        #[arg(long, value_name = "SECONDS", default_value_t = 60)]
        min_age: u64,
        /// Files, or directories: then all files below, and all containers of a root
        #[arg(required = true, value_name = "PATH")]
        paths: Vec<PathBuf>,
    },
    /// Remove files with their data, also damaged ones
    #[command(after_help = "Example:\n  plfs rm -r plfs.d/old")]
    Rm {
        /// Also directories, with all that is in them
        #[arg(short, long)]
        recursive: bool,
        /// Ignore names that do not exist
        #[arg(short, long)]
        force: bool,
        /// What to remove
        #[arg(required = true, value_name = "PATH")]
        paths: Vec<PathBuf>,
    },
    /// Move the small files of directories into their packs
    ///
    /// A pack has the small files of one directory in one container: 10 million of them cost the
    /// storage a few files. Programs see them as ordinary files, under plfs-run and in a mount
    /// (plfs-mount).
    ///
    /// New files of the directory go to its pack from then on (plfs-layout). A file is on storage
    /// in the pack before its plain name goes: whatever ends the command loses nothing, and to run
    /// it again goes on. Programs may use the files meanwhile, through PLFS; it takes some seconds
    /// more than the copies, until all know of the pack. Files that are open, have several names,
    /// an access list or extended attributes, are larger than 1 MiB or no regular files stay as
    /// they are, are named, and make the exit status 1. Directories below are left alone.
    #[command(after_help = "Examples:\n  plfs pack plfs.d/thumbnails\n  plfs layout --workload \
                            small plfs.d/new        for a directory that is still empty")]
    Pack {
        /// Show how many files have been moved
        #[arg(long)]
        progress: bool,
        /// An array with an object for each directory
        #[arg(long)]
        json: bool,
        /// Directories
        #[arg(required = true, value_name = "DIR")]
        dirs: Vec<PathBuf>,
    },
    /// Move all files of directories out of their packs
    ///
    /// Afterwards the directory is an ordinary one with ordinary files, and there is no pack; its
    /// workload is auto, if it was small. Whatever ends the command loses nothing, and to run it
    /// again goes on. Programs may use the files meanwhile, through PLFS. It is refused, and all is
    /// as it was, if a process goes on writing files of the pack that it has open for more than ten
    /// seconds.
    #[command(after_help = "Example:\n  plfs unpack plfs.d/thumbnails")]
    Unpack {
        /// Show how many files have been moved
        #[arg(long)]
        progress: bool,
        /// An array with an object for each directory
        #[arg(long)]
        json: bool,
        /// Directories
        #[arg(required = true, value_name = "DIR")]
        dirs: Vec<PathBuf>,
    },
    /// Say what of this machine and of a directory's storage PLFS can use, and what to do else
    ///
    /// Tries hard links, locks and attributes with a file of its own, which it removes. Exit status
    /// 1 if something is broken without which PLFS does not work there. It looks at one machine:
    /// run it on a node of the job.
    #[command(after_help = "Examples:\n  plfs doctor /scratch/out\n  srun -N 4 plfs doctor \
                            --json /scratch/out")]
    Doctor {
        /// An object
        #[arg(long)]
        json: bool,
        /// A directory in which programs are to make files
        #[arg(value_name = "DIR", default_value = ".")]
        dir: PathBuf,
    },
    /// Measure how fast processes write and read in the patterns of parallel jobs
    ///
    /// Ranks, which are processes, write pieces and read what another rank wrote. They begin each
    /// phase together; its seconds are those until the last is done. MB are 1,000,000 bytes. Files
    /// lie in a directory DIR/plfs-bench.SEED, which is removed at the end, also if a rank fails.
    ///
    /// Rank i works in the directory i mod M of M, and reads what rank i + N/2 wrote: with mount
    /// points of several clients, what no cache of its own has. A second passes between writing and
    /// reading on several directories. On one, reads are as fast as memory.
    #[command(after_help = "Examples:\n  plfs bench --pattern n1-strided --dir plfs.d\n  plfs \
                            bench --pattern n1-strided --dir /scratch/out --door direct     to \
                            compare with\n  plfs bench --pattern nn --dir /scratch/out --door \
                            mpi --mpiexec 'srun -N 2'\n  plfs bench --pattern 1n --procs 8 \
                            --size 1K --dir /mnt/c1/d,/mnt/c2/d --verify --json")]
    Bench(BenchFlags),
    /// Be a rank of `plfs bench`
    #[command(hide = true)]
    BenchRank {
        /// Where the files are
        #[arg(value_name = "DIR")]
        dirs: Vec<PathBuf>,
    },
    /// Predict what jobs do to the storage targets that they share, and how long they write
    ///
    /// A target is what can be slow by itself: a storage target of a parallel file system, or a
    /// backend. Its load is how many jobs or streams write to it at once. Nothing is measured or
    /// written; the same question has the same answer everywhere. docs/TUNING.md says how to read
    /// the tables, and what they do not know.
    #[command(
        after_help = "Examples:\n  plfs model contention --targets 480 --request 160 --jobs \
                            10\n  plfs model plfs --targets 480 --ranks 512,4096\n  plfs model \
                            simulate --plot model.svg"
    )]
    Model {
        #[command(subcommand)]
        what: ModelCommand,
    },
    /// Measure how fast the storage targets of a directory take data, and tell the writers
    ///
    /// A target is a backend of the tree that DIR is in, the root included; a directory that is in
    /// no tree is one by itself. It appends to a file without a name on each, all at the same time,
    /// with O_DIRECT, so that the storage takes the data and not a page cache; where the file
    /// system has no O_DIRECT it writes and syncs, and says so. MB are 1,000,000 bytes.
    ///
    /// The writers of this user on this node begin with what was found, if it took 0.2 s: less says
    /// little, as storage takes some MiB at once. Of several commands that probe the same target at
    /// the same time one does, and the others wait for it. A target that cannot be measured has a
    /// line that says why, and the exit status is 1.
    #[command(after_help = "Examples:\n  plfs probe plfs.d\n  plfs probe --size 64M --time 10 \
                            --json /scratch1 /scratch2\n  srun -N 4 plfs probe plfs.d     \
                            before a job, on each node")]
    Probe {
        /// Bytes for each target, at most; 16M if not given, and these again and again for 0.2 s
        #[arg(long, value_name = "BYTES", value_parser = probe::size)]
        size: Option<u64>,
        /// How long it may take, seconds; up to 3600
        #[arg(long, value_name = "S", default_value = "2", value_parser = probe::seconds)]
        time: f64,
        /// An object with an array of targets
        #[arg(long)]
        json: bool,
        /// Directories; the current one if none
        #[arg(value_name = "DIR", default_value = ".")]
        dirs: Vec<PathBuf>,
    },
    /// Look at partitioned NetCDF datasets, and make plain files of them
    ///
    /// Of a dataset that a program has created with PnetCDF under `plfs run --partition`, or with
    /// the hint nc_partitioning_enabled, arrays are cut into several files beside the one that has
    /// the name, the master. Each is a NetCDF file of its own. Programs under plfs-run that use
    /// PnetCDF see the dataset as one; these commands need neither MPI nor PnetCDF.
    #[command(
        after_help = "Examples:\n  plfs nc ls out.nc\n  plfs nc check out.nc\n  plfs nc merge \
                            out.nc /archive/out.nc"
    )]
    Nc {
        #[command(subcommand)]
        what: NcCommand,
    },
    /// Print the version
    Version {
        /// An object with version, format and where the libraries are
        #[arg(long)]
        json: bool,
    },
    /// Show what is known of a file's storage targets, what follows from it, and what was written
    ///
    /// measured: how fast this node has found each target, and when. decision: what the file's
    /// placement (plfs-layout) makes of that for as many bytes as the file has, and how long that
    /// should take. written: how many bytes each target and each stream have got, by the index,
    /// overwritten ones included.
    ///
    /// What is known may have changed since the file was written. plfs-probe measures again.
    #[command(after_help = "Examples:\n  plfs explain plfs.d/checkpoint\n  plfs explain --json \
                            plfs.d/checkpoint")]
    Explain {
        /// An object
        #[arg(long)]
        json: bool,
        /// A PLFS file
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Show which file calls of a program PLFS handles
    ///
    /// covered: PLFS handles the call. passed: the C library's own is right on PLFS files. missed:
    /// it is wrong or incomplete on them.
    #[command(after_help = "Example:\n  plfs explain-calls /usr/bin/rsync")]
    ExplainCalls {
        /// An object with an array of calls
        #[arg(long)]
        json: bool,
        /// A program, by path or as the shell would find it, or a shared library
        #[arg(value_name = "BINARY")]
        binary: PathBuf,
    },
    /// Print completions for a shell
    #[command(after_help = "Example:\n  plfs completions bash > \
                            ~/.local/share/bash-completion/completions/plfs")]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the man pages into a directory
    #[command(hide = true)]
    Man {
        /// The directory
        dir: PathBuf,
    },
}

#[derive(Subcommand)]
enum BackendCommand {
    /// Make a directory a backend of a root, and print its id
    ///
    /// It must be at the same path on all nodes. It gets a .plfs if it has none: be sure that its
    /// file system is mounted. One that was drained or removed takes data again.
    #[command(after_help = "Example:\n  plfs backend add plfs.d /scratch2/out")]
    Add {
        /// The directory that has the names
        #[arg(value_name = "ROOT")]
        root: PathBuf,
        /// The directory that is to be a backend
        #[arg(value_name = "DIR")]
        dir: PathBuf,
    },
    /// Show the backends of a root: where they are, whether they are there, what lies there
    ///
    /// state: active; draining, it takes nothing new; gone, it is out of use. where: there;
    /// missing, its file system may not be mounted; wrong, another backend is there. Looks at all
    /// files of the root. Where names of flat directories (plfs-layout) are it says so.
    #[command(after_help = "Example:\n  plfs backend status plfs.d")]
    Status {
        /// An array with an object for each
        #[arg(long)]
        json: bool,
        /// The directory that has the names
        #[arg(value_name = "ROOT")]
        root: PathBuf,
    },
    /// Say where a backend is now, after its directory was moved or is mounted elsewhere
    ///
    /// Refuses a directory that is another backend. Programs that have files open go on.
    #[command(after_help = "Example:\n  plfs backend move plfs.d 0001 /mnt/new/out")]
    Move {
        /// The directory that has the names
        #[arg(value_name = "ROOT")]
        root: PathBuf,
        /// The backend
        #[arg(value_name = "ID", value_parser = backend::id)]
        id: u16,
        /// Where it is
        #[arg(value_name = "DIR")]
        dir: PathBuf,
    },
    /// Move all data from a backend to others
    ///
    /// From now on the backend takes nothing new. Each file that has data there is copied as a
    /// whole to other backends, and what it had is removed then; readers go on. Until that it takes
    /// room for a second copy of one file at a time.
    ///
    /// A file that is open for writing cannot be moved. Such files are named, and the exit status
    /// is 1: run the command again when they are closed. It goes on where it ended, also if it was
    /// interrupted or killed.
    ///
    /// Names of flat directories (plfs-layout) are moved with their files. Who makes a name there
    /// may wait a second, once. What cannot be moved is named: a file that is open, has several
    /// names or is shared, and a directory in a flat one. Copy it, and remove the old one.
    #[command(after_help = "Examples:\n  plfs backend drain plfs.d 0001\n  plfs backend drain \
                            --to 0002,0003 plfs.d 0001")]
    Drain {
        /// Where the data goes: ids, 0000 is the root; separated by commas. If none is given: to
        /// the active backends of each file, else those of the root, else the root itself
        #[arg(long, value_name = "ID", value_delimiter = ',', value_parser = backend::id)]
        to: Vec<u16>,
        /// The directory that has the names
        #[arg(value_name = "ROOT")]
        root: PathBuf,
        /// The backend
        #[arg(value_name = "ID", value_parser = backend::id)]
        id: u16,
    },
    /// Take a drained backend out of use
    ///
    /// Refuses if anything is there. The directory stays; its id is never given to another one.
    #[command(after_help = "Example:\n  plfs backend rm plfs.d 0001")]
    Rm {
        /// The directory that has the names
        #[arg(value_name = "ROOT")]
        root: PathBuf,
        /// The backend
        #[arg(value_name = "ID", value_parser = backend::id)]
        id: u16,
    },
}

#[derive(Subcommand)]
enum ConfigCommand {
    /// Say what is wrong with a plfsrc, where, and what to write instead
    ///
    /// Exit status 1 if it cannot be used. Warnings are of what it has to no effect, of directories
    /// that are not there, and of directories whose layout says something else.
    #[command(after_help = "Example:\n  plfs config check ~/.plfsrc")]
    Check {
        /// The file; the one that counts if not given
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
    },
    /// Show what counts for a process that is started now, and what says so
    #[command(after_help = "Example:\n  PLFS_STREAMS=2 plfs config show")]
    Show {
        /// An object
        #[arg(long)]
        json: bool,
    },
    /// Print a plfsrc of today for one of the original PLFS
    ///
    /// What means nothing any more becomes a comment that says why.
    #[command(after_help = "Example:\n  plfs config migrate /etc/plfsrc.old > ~/.plfsrc")]
    Migrate {
        /// The old file
        #[arg(value_name = "OLD")]
        old: PathBuf,
    },
}

#[derive(Subcommand)]
enum NcCommand {
    /// Show the partitions of datasets, and which variables are cut along what
    #[command(after_help = "Example:\n  plfs nc ls out.nc")]
    Ls {
        /// An object for each dataset
        #[arg(long)]
        json: bool,
        /// Masters of partitioned datasets
        #[arg(value_name = "FILE", required = true)]
        files: Vec<PathBuf>,
    },
    /// Say whether all partitions are there, whole, and of the same run as the master
    ///
    /// A line for each fault; exit status 1 if there is one. A note is no fault: a master that is
    /// shorter than its header says was truncated, or nobody has written the variables that it
    /// names, which PnetCDF leaves away; the file does not tell.
    #[command(after_help = "Example:\n  plfs nc check out.nc")]
    Check {
        /// An object for each dataset
        #[arg(long)]
        json: bool,
        /// Masters of partitioned datasets
        #[arg(value_name = "FILE", required = true)]
        files: Vec<PathBuf>,
    },
    /// Make one plain NetCDF file of a partitioned dataset
    ///
    /// It has the format of the master, or the next one if it does not fit into that. Memory is
    /// bounded, whatever the size; the file has its name when it is complete. Nothing is made of a
    /// dataset that plfs nc check finds faults with; its notes are printed, and what they say is
    /// missing is zeros.
    #[command(after_help = "Example:\n  plfs nc merge out.nc /archive/out.nc")]
    Merge {
        /// Replace what is there
        #[arg(short, long)]
        force: bool,
        /// The master of a partitioned dataset
        #[arg(value_name = "FILE")]
        src: PathBuf,
        /// The file to make
        #[arg(value_name = "DST")]
        dst: PathBuf,
    },
}

#[derive(Subcommand)]
enum ModelCommand {
    /// Show how many targets jobs use that take them at random, and how many jobs a target has
    ///
    /// A line for each number of jobs: how many targets have a job, how many were asked for, and
    /// the load, which is how many jobs a target in use has on average. Three jobs on a target
    /// cost each of them noticeably.
    #[command(
        after_help = "Examples:\n  plfs model contention --targets 480 --request 160 --jobs \
                            10\n  plfs model contention --targets 480 --request 160,64,64     \
                            jobs of different sizes, one after the other"
    )]
    Contention {
        /// How many targets there are
        #[arg(long, value_name = "D", value_parser = clap::value_parser!(u32).range(1..))]
        targets: u32,
        /// How many of them each job asks for; several, separated by commas: the first job, the
        /// second, and so on
        #[arg(long, value_name = "R", required = true, value_delimiter = ',')]
        request: Vec<u32>,
        /// How many jobs; 1 if not given, and as many as there are requests if these are several
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
        jobs: Option<u32>,
        /// An object on a line for each number of jobs
        #[arg(long)]
        json: bool,
    },
    /// Show the load that one job makes for itself if each rank has a log, as in the first PLFS
    ///
    /// Each log lies on two targets at random, whatever lies there already. PLFS of today has logs
    /// for a node, not for a rank: this is what logs for ranks did.
    #[command(after_help = "Example:\n  plfs model plfs --targets 480 --ranks 512,688,2048,4096")]
    Plfs {
        /// How many targets there are
        #[arg(long, value_name = "D", value_parser = clap::value_parser!(u32).range(1..))]
        targets: u32,
        /// How many ranks the job has; several, separated by commas: a line for each
        #[arg(long, value_name = "N", required = true, value_delimiter = ',',
              value_parser = clap::value_parser!(u32).range(1..))]
        ranks: Vec<u32>,
        /// An object on a line for each number of ranks
        #[arg(long)]
        json: bool,
    },
    /// Predict how fast a job writes, by how its data is laid out over targets
    ///
    /// shared-default: one file over two targets, as the file system lays it out. shared-tuned: one
    /// file over 160 targets. n-n: a file for each rank, over two targets at random. log-per-rank:
    /// the first PLFS. streams: one stream on each target that is worth it, with a share of the
    /// data by its bandwidth; what PLFS is to do, and not a measurement.
    ///
    /// Targets, clients and the cost of load are those of the file system of 480 targets on which
    /// Wright and Jarvis measured (2015). Without flags it shows the ranks that they had, and in
    /// brackets what they measured. Nothing between clients and targets has a limit unless
    /// --network gives one.
    #[command(after_help = "Examples:\n  plfs model simulate\n  plfs model simulate --plot \
                            model.svg --ranks 16,64,256,1024,4096,16384,65536\n  plfs model \
                            simulate --targets 156 --stragglers 12 --strategy \
                            shared-tuned,streams")]
    Simulate {
        /// How many ranks; several, separated by commas: a line for each. As published if not given
        #[arg(long, value_name = "N", value_delimiter = ',',
              value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
        ranks: Vec<u32>,
        /// How many targets there are
        #[arg(long, value_name = "D", default_value_t = model::TARGETS,
              value_parser = clap::value_parser!(u32).range(1..=100_000))]
        targets: u32,
        /// How many of them have a tenth of the bandwidth
        #[arg(long, value_name = "N", default_value_t = 0)]
        stragglers: u32,
        /// What each rank writes
        #[arg(long, value_name = "SIZE", default_value = "400M", value_parser = out::bytes)]
        bytes: u64,
        /// What all targets together can take, MB/s
        #[arg(long, value_name = "MB")]
        network: Option<f64>,
        /// How data is laid out; several, separated by commas. All if not given
        #[arg(long, value_name = "STRATEGY", value_delimiter = ',', value_parser = model::names())]
        strategy: Vec<String>,
        /// An object on a line for each number of ranks and strategy
        #[arg(long)]
        json: bool,
        /// Also draw a picture into FILE, as SVG: bandwidth against ranks, and what was published
        #[arg(long, value_name = "FILE")]
        plot: Option<PathBuf>,
    },
}

#[derive(clap::Args)]
struct BenchFlags {
    /// Who writes what
    #[arg(long)]
    pattern: bench::Pattern,
    /// How ranks reach the files
    #[arg(long, default_value = "posix")]
    door: bench::Door,
    /// How many ranks: processes on this machine
    #[arg(long, value_name = "N", default_value_t = 4,
          value_parser = clap::value_parser!(u64).range(1..=4096))]
    procs: u64,
    /// Bytes of a piece, up to 1G
    #[arg(long, value_name = "BYTES", default_value = "47001", value_parser = bench::piece)]
    size: u64,
    /// Pieces of each rank
    #[arg(long, value_name = "K", default_value_t = 1000,
          value_parser = clap::value_parser!(u64).range(1..))]
    count: u64,
    /// Pieces of a block of n1-block; a last one may have fewer
    #[arg(long, value_name = "PIECES", default_value_t = 16,
          value_parser = clap::value_parser!(u64).range(1..))]
    block: u64,
    /// Where; several, separated by commas: mount points of one directory, each a client of its
    /// own, which ranks take in turn. For nn and 1n they may be different directories
    #[arg(long, value_name = "DIR", required = true, value_delimiter = ',')]
    dir: Vec<PathBuf>,
    /// Compare every byte that is read; its time is part of the time of reading
    #[arg(long)]
    verify: bool,
    /// fsync before each close of what was written
    #[arg(long)]
    sync: bool,
    /// What contents depend on, as bench prints it; any if not given
    #[arg(long, value_name = "N")]
    seed: Option<u32>,
    /// Leave the files, in DIR/plfs-bench.SEED
    #[arg(long)]
    keep: bool,
    /// Only read what --keep has left, with the same flags, and leave it
    #[arg(long, requires = "seed")]
    read_only: bool,
    /// What compiles the ranks of --door mpi and mpi-direct, in $TMPDIR or /tmp: all nodes must see
    /// that
    #[arg(long, value_name = "COMMAND", default_value = "mpicc")]
    mpicc: String,
    /// What starts them: a command to which -n and their number are added
    #[arg(long, value_name = "COMMAND", default_value = "mpiexec")]
    mpiexec: String,
    /// An object, with the times of each rank
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct CopyFlags {
    /// Replace what is there
    #[arg(short, long)]
    force: bool,
    /// Also a directory, with all that is in it: files, directories, and symbolic links as links,
    /// with modes and times. SRC itself may be a link to one. What cannot be copied is named, the
    /// rest goes on, and the exit status is 1
    #[arg(short, long, short_alias = 'R')]
    recursive: bool,
    /// The file to read
    #[arg(value_name = "SRC")]
    src: PathBuf,
    /// The file to make, or a directory for a file of the same name
    #[arg(value_name = "DST")]
    dst: PathBuf,
}

fn main() -> ExitCode {
    plfs_core::store::PosixStore::keep_fd_numbers();
    let cli = match mount::as_helper(std::env::args_os()) {
        Some(arguments) => Cli::parse_from(arguments),
        None => Cli::parse(),
    };
    let mut out = Out::new();
    let (name, done) = match cli.command {
        Command::Run { managed, backend, partition, command } => {
            ("run", run::run(&managed, &backend, partition, &command))
        }
        Command::Ls { long, all, recursive, human, json, paths, .. } => {
            let wanted = list::Wanted { long, all, recursive, human, json };
            ("ls", list::ls(&mut out, &wanted, &paths))
        }
        Command::Mount { fake: true, .. } => ("mount", Ok(())),
        Command::Mount { backend, options, foreground, daemon, mountpoint, .. } => {
            ("mount", mount::mount(mountpoint, backend, options, foreground, daemon))
        }
        Command::Umount { lazy, mountpoints } => ("umount", mount::umount(&mountpoints, lazy)),
        Command::Log { level, mountpoint } => {
            ("log", mount::log(&mut out, level.as_deref(), mountpoint))
        }
        Command::Backend { what } => ("backend", backend::backend(&mut out, what)),
        Command::Config { what } => (
            "config",
            match what {
                ConfigCommand::Check { file } => config::check(&mut out, file.as_deref()),
                ConfigCommand::Show { json } => config::show(&mut out, json),
                ConfigCommand::Migrate { old } => config::migrate(&mut out, &old),
            },
        ),
        Command::Layout { workload, streams, backends, placement, inherit, json, dir } => {
            let wanted = layout::Wanted { workload, streams, backends, placement, inherit };
            ("layout", layout::layout(&mut out, &dir, &wanted, json))
        }
        Command::Stat { mounts: true, json, .. } => ("stat", mount::list(&mut out, json)),
        Command::Stat { json, files, .. } => ("stat", stat::stat(&mut out, json, &files)),
        Command::Map { json, from, to, patterns, limit, records, plot, file } => (
            "map",
            map::map(
                &mut out,
                &map::Wanted { json, from, to, patterns, records, limit, plot },
                &file,
            ),
        ),
        Command::Cat { from, length, files } => ("cat", copy::cat(&mut out, from, length, &files)),
        Command::Cp(flags) => ("cp", copy::copy(copy::What::Cp, &flags)),
        Command::Import(flags) => ("import", copy::copy(copy::What::Import, &flags)),
        Command::Export(flags) => ("export", copy::copy(copy::What::Export, &flags)),
        Command::Flatten { files } => ("flatten", stat::flatten(&mut out, &files)),
        Command::Compact { dry_run, force, at_least, json, files } => (
            "compact",
            compact::compact(&mut out, &compact::Wanted { dry_run, force, at_least, json }, &files),
        ),
        Command::Check { json, repair, undo, discard, clear_marks, min_age, paths } => {
            let work = check::Work {
                repair: repair.then_some(min_age),
                clear_marks,
                undo,
                discard: discard.then_some(min_age),
            };
            ("check", check::check(&mut out, json, work, &paths))
        }
        Command::Rm { recursive, force, paths } => ("rm", remove::rm(&paths, recursive, force)),
        Command::Pack { progress, json, dirs } => {
            ("pack", pack::pack(&mut out, progress, json, &dirs))
        }
        Command::Unpack { progress, json, dirs } => {
            ("unpack", pack::unpack(&mut out, progress, json, &dirs))
        }
        Command::Bench(flags) => ("bench", bench::bench(&mut out, &flags)),
        Command::BenchRank { dirs } => ("bench", bench::rank(dirs)),
        Command::Doctor { json, dir } => ("doctor", doctor::doctor(&mut out, &dir, json)),
        Command::Model { what } => ("model", model::model(&mut out, what)),
        Command::Nc { what } => ("nc", nc::nc(&mut out, what)),
        Command::Version { json } => ("version", run::version(&mut out, json)),
        Command::Probe { size, time, json, dirs } => {
            ("probe", probe::probe(&mut out, &probe::Wanted { size, time, json }, &dirs))
        }
        Command::Explain { json, file } => ("explain", explain::file(&mut out, json, &file)),
        Command::ExplainCalls { json, binary } => {
            ("explain-calls", explain::explain(&mut out, json, &binary))
        }
        Command::Completions { shell } => ("completions", completions(&mut out, shell)),
        Command::Man { dir } => (
            "man",
            man::pages(Cli::command(), &dir)
                .map_err(|error| Fail::on("write man pages to", &dir, error)),
        ),
    };
    let done = done.and_then(|()| out.end());
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(fail) => {
            let code = fail.report(name);
            let _ = out.end();
            out::die_by_signal();
            code
        }
    }
}

fn completions(out: &mut Out, shell: clap_complete::Shell) -> Result<(), Fail> {
    // Into memory first: the generator panics when a pipe breaks.
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut shown(&Cli::command()), "plfs", &mut text);
    out.bytes(&text)
}

/// A command without what is hidden in it, which generators of completions do not leave out.
fn shown(command: &clap::Command) -> clap::Command {
    let about = command.get_about().cloned().unwrap_or_default();
    let version = command.get_version().map(ToOwned::to_owned);
    clap::Command::new(command.get_name().to_owned())
        .about(about)
        .version(version.map_or(Resettable::Reset, |version| Resettable::Value(version.into())))
        .disable_help_flag(command.is_disable_help_flag_set())
        .args(command.get_arguments().filter(|arg| !arg.is_hide_set()))
        .subcommands(command.get_subcommands().filter(|one| !one.is_hide_set()).map(shown))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_table_of_flags_is_sound() {
        use clap::CommandFactory;
        super::Cli::command().debug_assert();
    }
}
