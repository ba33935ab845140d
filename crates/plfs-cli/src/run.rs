//! `plfs run`: names the managed directories and the libraries to load in the environment, and
//! becomes the program. `plfs version`.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use plfs_core::config::join_paths;
use plfs_core::plfsrc;
use plfs_core::store::{Kind, Links, PosixStore, Store};
use plfs_core::{Config, Plfs};

use crate::out::{Fail, JsonPath, Out, absolute, show, without_numbers};
use crate::{config, elf};

/// The managed directory if none is named.
const DEFAULT_DIR: &str = "plfs.d";

/// Says where that is to be, to the library that makes it when a program makes something in it
/// (crates/plfs-capi/src/default_dir.rs).
const DEFAULT_DIR_VARIABLE: &str = "PLFS_DEFAULT_DIR";

pub fn run(
    managed: &[PathBuf],
    backends: &[PathBuf],
    partition: Option<u32>,
    command: &[OsString],
) -> Result<(), Fail> {
    let wrong = |text| Fail::Exit(2, text);
    let plfsrc = plfsrc::find().map_err(wrong)?;
    let config = Config::from_env_and(plfsrc.as_ref()).map_err(wrong)?;
    let preload = preload()?;
    if let Some(hint) = hint(Path::new(&command[0])) {
        return Err(Fail::Exit(2, hint));
    }
    if let Some(path) = elf::find(Path::new(&command[0]))
        && let Some(why) = elf::refusal(&path)
    {
        return Err(Fail::Exit(2, format!("{} {why}", show(&path))));
    }
    let waiting = waiting_dir(managed, &config, backends)?;
    let mut made = None;
    let managed = match managed {
        [] if !config.mounts.is_empty() => {
            let mounts = config.mounts.iter().filter(|dir| Some(*dir) != waiting.as_ref());
            mounts.map(|dir| (config::named_by(&config, dir), dir.clone())).collect()
        }
        [] if waiting.is_some() => Vec::new(),
        [] => {
            made = default_dir()?;
            vec![("--mount".into(), PathBuf::from(DEFAULT_DIR))]
        }
        given => given.iter().map(|dir| ("--mount".into(), dir.clone())).collect::<Vec<_>>(),
    };
    let ready = Managed::prepare(&config, &managed, backends)?;
    if let Some(plfsrc) = &plfsrc {
        config::warn_of_run(plfsrc, &config);
    }
    let mut program = std::process::Command::new(&command[0]);
    program.args(&command[1..]);
    ready.tell(&mut program, waiting.as_deref());
    load(&mut program, &preload);
    if let Some(parts) = partition {
        if beside(&preload, NETCDF).is_none() {
            let text = "--partition: PLFS was built without PnetCDF; install that (Debian: \
                        libpnetcdf-dev) and build PLFS again";
            return Err(Fail::Exit(2, text.into()));
        }
        let parts = if parts == 0 { "yes".to_owned() } else { parts.to_string() };
        program.env("PLFS_NC_PARTITION", parts);
    }
    carry(&mut program);
    // What a job before this one has left, if it was killed.
    Plfs::posix(config.clone()).reap();
    let error = program.exec();
    // There was no program that could have made a file.
    if let Some(dir) = made {
        let _ = std::fs::remove_dir(dir.join(".plfs")).and_then(|()| std::fs::remove_dir(&dir));
    }
    let code = if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 };
    Err(Fail::Exit(code, format!("cannot run {}: {error}", show(Path::new(&command[0])))))
}

/// Managed directories and backends that are ready for a program.
pub struct Managed {
    /// As named, and their real paths.
    pub paths: Vec<PathBuf>,
    backends: Vec<PathBuf>,
}

impl Managed {
    /// Makes directories ready, each with what has named it, so that an error can say it.
    pub fn prepare(
        config: &Config,
        dirs: &[(String, PathBuf)],
        backends: &[PathBuf],
    ) -> Result<Managed, Fail> {
        let roots = dirs
            .iter()
            .map(|(flag, dir)| directory(flag, dir))
            .collect::<Result<Vec<_>, Fail>>()?;
        let (mut paths, mut others) = (Vec::new(), Vec::new());
        for backend in backends {
            add(&mut others, directory("--backend", backend)?.0);
        }
        let store: Arc<dyn Store> = Arc::new(PosixStore::new());
        // Those that share their backends at once: a backend without a .plfs is a new one only if
        // none of its roots has one.
        let mut groups: Vec<(&[PathBuf], Vec<&Path>)> = Vec::new();
        for (real, given) in &roots {
            let used = match others.as_slice() {
                [] => config.backends_of(&given.join("file")),
                given => given,
            };
            match groups.iter_mut().find(|(backends, _)| *backends == used) {
                Some((_, reals)) => reals.push(real),
                None => groups.push((used, vec![real])),
            }
        }
        for (used, reals) in groups {
            match plfs_core::prepare(&store, config, &reals, used) {
                // What is there can be read.
                Err(error @ plfs_core::Error::CloseToOpen { .. }) => {
                    eprintln!("plfs: warning: {}", without_numbers(&error.to_string()));
                }
                other => other.map_err(|error| Fail::Exit(2, error.to_string()))?,
            }
        }
        for (real, given) in roots {
            add(&mut paths, real);
            add(&mut paths, given);
        }
        Ok(Managed { paths, backends: others })
    }

    /// Says them to a program, in variables; also the directory that is to be made when it makes
    /// something there.
    pub fn tell(&self, program: &mut std::process::Command, waiting: Option<&Path>) {
        match waiting {
            Some(dir) => program.env(DEFAULT_DIR_VARIABLE, dir),
            None => program.env_remove(DEFAULT_DIR_VARIABLE),
        };
        let mut paths = Vec::from_iter(waiting.map(Path::to_path_buf));
        self.paths.iter().for_each(|path| add(&mut paths, path.clone()));
        program.env("PLFS_MOUNTS", join_paths(paths.iter().map(PathBuf::as_path)));
        if !self.backends.is_empty() {
            program.env("PLFS_BACKENDS", join_paths(self.backends.iter().map(PathBuf::as_path)));
        }
    }
}

/// Has a program load the libraries.
pub fn load(program: &mut std::process::Command, preload: &Path) {
    let mut libraries = std::env::var_os("LD_PRELOAD").unwrap_or_default();
    for library in [beside(preload, NETCDF), mpi(preload)].into_iter().flatten() {
        libraries = prepend(&library, &libraries);
    }
    program.env("LD_PRELOAD", prepend(preload, &libraries));
    program.env(TSAN_OPTIONS, in_front(&std::env::var_os(TSAN_OPTIONS).unwrap_or_default()));
}

/// What ThreadSanitizer in a program goes by. The preload library tells it the same by a function
/// (preload/init.c), which one that is linked to the program does not find.
const TSAN_OPTIONS: &str = "TSAN_OPTIONS";

/// What ThreadSanitizer has to know of PLFS, in front of what `asked` says: the last word counts,
/// so that stays as it is.
fn in_front(asked: &OsStr) -> OsString {
    const OURS: &str = "ignore_noninstrumented_modules=1:die_after_fork=0";
    if asked.as_bytes().starts_with(OURS.as_bytes()) {
        return asked.to_owned();
    }
    let mut all = OsString::from(OURS);
    if !asked.is_empty() {
        all.push(":");
        all.push(asked);
    }
    all
}

/// The daemons by which launchers of MPI jobs start processes on other nodes, each behind the
/// variable that says how it is started: Open MPI 4, and Open MPI 5 (PRRTE). They hand on no
/// environment but their own settings; so each is started with what of PLFS is in this one. Not by
/// `mca_base_env_list`, beside which `mpiexec -x` is an error.
const DAEMONS: [(&str, &str); 2] =
    [("OMPI_MCA_orte_launch_agent", "orted"), ("PRTE_MCA_prte_launch_agent", "prted")];

/// Has the processes that the program starts on other nodes load the libraries, too. MPICH's Hydra
/// and srun hand on the environment by themselves, Intel MPI's Hydra if it is told to.
pub fn carry(program: &mut std::process::Command) {
    let is_ours = |name: &OsStr| {
        let name = name.as_bytes();
        let loads = name == b"LD_PRELOAD" || name == TSAN_OPTIONS.as_bytes();
        loads || name.starts_with(b"PLFS_") && name != b"PLFS_FLAT_CWD"
    };
    let mut words: BTreeMap<OsString, OsString> =
        std::env::vars_os().filter(|(name, _)| is_ours(name)).collect();
    for (name, value) in program.get_envs().filter(|(name, _)| is_ours(name)) {
        match value {
            Some(value) => words.insert(name.to_owned(), value.to_owned()),
            None => words.remove(name),
        };
    }
    let Some(words) = words
        .iter()
        .map(|(name, value)| Some(format!("{}={}", name.to_str()?, value.to_str()?)))
        .collect::<Option<Vec<_>>>()
    else {
        return;
    };
    let command =
        format!("env {}", words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "));
    for (variable, daemon) in DAEMONS {
        // Somebody else's is left alone; that of a `plfs run` around this one is not.
        let old = std::env::var(variable).unwrap_or_default();
        if old.is_empty() || old.starts_with("env ") && old.contains("PLFS_MOUNTS=") {
            program.env(variable, format!("{command} {daemon}"));
        }
    }
    if std::env::var_os("I_MPI_HYDRA_ENV").is_none() {
        program.env("I_MPI_HYDRA_ENV", "all");
    }
}

/// As a shell takes it for one word, which ssh runs; what needs no quotes has none, for launchers
/// without a shell.
fn quoted(word: &str) -> String {
    match word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_=./:,+@%-".contains(&byte)) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// What was meant by words of which the first is no program.
fn hint(program: &Path) -> Option<String> {
    let shown = show(program);
    if shown.starts_with('-') {
        return Some(format!(
            "there is no option {shown}: plfs run [--mount DIR] [--backend DIR] -- COMMAND"
        ));
    }
    let is_dir = PosixStore::new().stat(program, Links::Follow).is_ok_and(|s| s.kind == Kind::Dir);
    let is_one = is_dir && (shown.contains('/') || elf::find(program).is_none());
    is_one.then(|| {
        format!("{shown} is a directory: plfs run --mount {shown} -- COMMAND takes it as managed")
    })
}

fn add(paths: &mut Vec<PathBuf>, path: PathBuf) {
    if !paths.contains(&path) {
        paths.push(path);
    }
}

/// The managed directory that nobody has named, if it is to be made only when a program makes
/// something in it. With backends it is made at once, as what is wrong with those is told here.
fn waiting_dir(
    managed: &[PathBuf],
    config: &Config,
    backends: &[PathBuf],
) -> Result<Option<PathBuf>, Fail> {
    if !managed.is_empty() {
        return Ok(None);
    }
    let dir = match config.mounts.is_empty() {
        true => absolute(Path::new(DEFAULT_DIR))?,
        // Of a `plfs run` around this one.
        false => match std::env::var_os(DEFAULT_DIR_VARIABLE).map(PathBuf::from) {
            Some(dir) if config.mounts.contains(&dir) => dir,
            _ => return Ok(None),
        },
    };
    // By system call: where this is a program of another `plfs run` to ask would be to make it.
    let is_there = PosixStore::new().stat(&dir, Links::Stay).is_ok();
    let has_backends = !backends.is_empty() || !config.backends_of(&dir.join("file")).is_empty();
    Ok(Some(dir).filter(|_| !is_there && !has_backends))
}

/// Makes the managed directory that nobody has named. Gives it if it was not there.
fn default_dir() -> Result<Option<PathBuf>, Fail> {
    let dir = PathBuf::from(DEFAULT_DIR);
    match std::fs::create_dir(&dir) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(Fail::Say(format!(
            "cannot create the directory {DEFAULT_DIR} here: {error}; name another with --mount \
             DIR"
        ))),
        made => Ok(made.is_ok().then_some(dir)),
    }
}

/// The real path of a directory that must exist, and the path as given, absolute.
pub fn directory(flag: &str, dir: &Path) -> Result<(PathBuf, PathBuf), Fail> {
    let shown = show(dir);
    let real = std::fs::canonicalize(dir).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Fail::Exit(
            2,
            format!(
                "{flag} {shown}: there is no such directory; create it first: mkdir -p {shown}"
            ),
        ),
        _ => Fail::Exit(2, format!("{flag} {shown}: {error}")),
    })?;
    if !real.is_dir() {
        return Err(Fail::Exit(
            2,
            format!(
                "{flag} {shown}: this is not a directory; name the directory in which the program \
                 makes its files"
            ),
        ));
    }
    Ok((real, absolute(dir)?))
}

/// The library that the program loads: beside this executable, the same in the build tree and where
/// it is installed.
pub fn preload() -> Result<PathBuf, Fail> {
    let path = match std::env::var_os("PLFS_PRELOAD").filter(|path| !path.is_empty()) {
        Some(path) => absolute(Path::new(&path))?,
        None => {
            let exe = std::env::current_exe().map_err(|error| {
                Fail::Say(format!(
                    "cannot find out where plfs is installed: {error}; set PLFS_PRELOAD to \
                     libplfs_preload.so"
                ))
            })?;
            exe.parent()
                .and_then(Path::parent)
                .unwrap_or(Path::new("/"))
                .join("lib/plfs/libplfs_preload.so")
        }
    };
    if !PosixStore::new().stat(&path, Links::Follow).is_ok_and(|stat| stat.kind == Kind::File) {
        return Err(Fail::Say(format!(
            "{} is missing; install PLFS with make install, or set PLFS_PRELOAD to \
             libplfs_preload.so",
            show(&path)
        )));
    }
    if path.as_os_str().as_bytes().iter().any(|byte| b" :\t\n".contains(byte)) {
        let text = "contains a space or a colon, which the dynamic linker takes for a separator; \
                    install PLFS under another prefix (make install PREFIX=DIR)";
        return Err(Fail::Say(format!("the path {} {text}", show(&path))));
    }
    Ok(path)
}

/// The library for MPI-IO, if it is installed beside `preload`. Programs without MPI never enter
/// it.
fn mpi(preload: &Path) -> Option<PathBuf> {
    beside(preload, "libplfs_mpi.so")
}

/// The library for partitioned NetCDF, which programs without PnetCDF never enter.
const NETCDF: &str = "libplfs_netcdf.so";

fn beside(preload: &Path, name: &str) -> Option<PathBuf> {
    let path = preload.with_file_name(name);
    PosixStore::new()
        .stat(&path, Links::Follow)
        .is_ok_and(|stat| stat.kind == Kind::File)
        .then_some(path)
}

/// The MPIs that the library for MPI-IO has an adapter for: each is libplfs_mpi_NAME.so beside it.
pub fn mpi_adapters(preload: &Path) -> Vec<String> {
    let Some(entries) = mpi(preload).and_then(|mpi| std::fs::read_dir(mpi.parent()?).ok()) else {
        return Vec::new();
    };
    let name = |file: std::fs::DirEntry| {
        Some(
            file.file_name()
                .to_str()?
                .strip_prefix("libplfs_mpi_")?
                .strip_suffix(".so")?
                .to_owned(),
        )
    };
    let mut names: Vec<String> = entries.flatten().filter_map(name).collect();
    names.sort();
    names
}

/// `preload` in front of what `old`, a list for `LD_PRELOAD`, has; once.
fn prepend(preload: &Path, old: &OsStr) -> OsString {
    let mut list = preload.as_os_str().to_owned();
    for other in old
        .as_bytes()
        .split(|byte| b": ".contains(byte))
        .filter(|other| !other.is_empty() && *other != preload.as_os_str().as_bytes())
    {
        list.push(":");
        list.push(OsStr::from_bytes(other));
    }
    list
}

#[derive(serde::Serialize)]
struct Version {
    version: &'static str,
    format: &'static str,
    preload: Option<JsonPath>,
    /// Adapters of the MPI-IO library, by name.
    mpi: Vec<String>,
}

pub fn version(out: &mut Out, json: bool) -> Result<(), Fail> {
    let preload = preload().ok();
    let version = Version {
        version: env!("CARGO_PKG_VERSION"),
        format: "1.0",
        mpi: preload.as_deref().map_or(Vec::new(), mpi_adapters),
        preload: preload.map(JsonPath::of),
    };
    match json {
        true => out.json(&version),
        false => {
            out.line(format_args!("plfs {}, container format {}", version.version, version.format))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_first_and_once() {
        let list = |old: &str| prepend(Path::new("/p.so"), OsStr::new(old));
        assert_eq!(
            (list(""), list("/a.so /b.so"), list("/a.so:/p.so")),
            ("/p.so".into(), "/p.so:/a.so:/b.so".into(), "/p.so:/a.so".into())
        );
    }
}
