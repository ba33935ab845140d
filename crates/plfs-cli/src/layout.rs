//! `plfs layout`, and what `plfs stat` says of directories.

use std::path::{Path, PathBuf};

use plfs_core::store::{Errno, PosixStore, Store};
use plfs_core::{Backends, DirectoryLayout, Layout, Plfs, Said, Workload, is_built};
use serde::Serialize;

use crate::out::{self, Fail, JsonPath, Out, absolute, show};

/// What to set.
pub struct Wanted {
    pub workload: Option<String>,
    pub streams: Option<u16>,
    pub backends: Vec<String>,
    pub inherit: bool,
}

/// What holds for new files, and where that comes from.
#[derive(Serialize)]
pub struct Value {
    value: String,
    from: String,
}

/// What the new files of a directory are laid out by.
#[derive(Serialize)]
pub struct Shown {
    path: JsonPath,
    root: JsonPath,
    workload: Value,
    streams: Value,
    backends: Value,
}

impl Shown {
    pub fn new(plfs: &Plfs, dir: &Path) -> Result<Shown, plfs_core::Error> {
        let full = std::path::absolute(dir).unwrap_or_else(|_| dir.to_path_buf());
        let DirectoryLayout { root, workload, streams, backends } = plfs.directory_layout(&full)?;
        let (config, file) = (plfs.config(), full.join("file"));
        let others = || {
            let dirs = config.backends_of(&file).iter().map(|dir| show(dir));
            [show(&root)].into_iter().chain(dirs).collect::<Vec<_>>().join(" ")
        };
        Ok(Shown {
            path: JsonPath::of(dir),
            workload: Value::new(
                workload.map(|said| (said.value.word().into(), said.by)),
                || config.workload_of(&file).word().into(),
                || config.origin_for("workload", &file),
            ),
            streams: Value::new(
                streams.map(|said| (said.value.to_string(), said.by)),
                || config.streams_of(&file).to_string(),
                || config.origin_for("streams", &file),
            ),
            backends: Value::new(
                backends.map(|Said { value, by }| (value.words(), by)),
                others,
                || config.origin_for("backends", &file),
            ),
            root: JsonPath::of(root),
        })
    }

    /// One line for each of the three, with `name` before the first.
    pub fn print(&self, out: &mut Out) -> Result<(), Fail> {
        let Shown { workload, streams, backends, .. } = self;
        for (name, Value { value, from }) in
            [("workload", workload), ("streams", streams), ("backends", backends)]
        {
            out.line(format_args!("{name:>14}  {value}  ({})", show(Path::new(from))))?;
        }
        Ok(())
    }

    /// The same on one line.
    pub fn line(&self) -> String {
        let part = |name, value: &Value| format!("{name} {} ({})", value.value, value.from);
        [
            part("workload", &self.workload),
            part("streams", &self.streams),
            part("backends", &self.backends),
        ]
        .join(", ")
    }
}

impl Value {
    fn new(
        said: Option<(String, PathBuf)>,
        value: impl FnOnce() -> String,
        from: impl FnOnce() -> String,
    ) -> Value {
        match said {
            Some((value, by)) => Value {
                value,
                from: by.join(plfs_core::LAYOUT_NAME).to_string_lossy().into_owned(),
            },
            None => Value { value: value(), from: from() },
        }
    }
}

pub fn layout(out: &mut Out, dir: &Path, wanted: &Wanted, json: bool) -> Result<(), Fail> {
    let plfs = out::plfs()?;
    let full = absolute(dir)?;
    if !std::fs::metadata(&full).map_err(|error| Fail::on("use", dir, error))?.is_dir() {
        return Err(Fail::Exit(2, format!("{} is not a directory", show(dir))));
    }
    let sets = wanted.workload.is_some() || wanted.streams.is_some() || !wanted.backends.is_empty();
    if wanted.inherit {
        plfs.set_directory_layout(&full, None)?;
    }
    if sets {
        let mut layout = plfs.own_layout(&full)?.unwrap_or_default();
        if let Some(word) = &wanted.workload {
            layout.workload = Some(workload(word)?);
        }
        layout.streams = wanted.streams.or(layout.streams);
        if !wanted.backends.is_empty() {
            layout.backends = Some(backends(&plfs, &full, &wanted.backends)?);
        }
        set(&plfs, dir, &full, &layout)?;
    }
    let shown = Shown::new(&plfs, dir)?;
    match json {
        true => out.json(&shown),
        false => {
            out.line(format_args!("{:>14}  {}", "directory", show(dir)))?;
            out.line(format_args!("{:>14}  {}", "root", show(&shown.root.0)))?;
            shown.print(out)
        }
    }
}

fn set(plfs: &Plfs, dir: &Path, full: &Path, layout: &Layout) -> Result<(), Fail> {
    match plfs.set_directory_layout(full, Some(layout)) {
        // A mount shows no layouts; what it shows has them.
        Err(error) if error.errno() == Errno::PERM => Err(Fail::Say(format!(
            "{error}; if {} is in a mount of PLFS, name the directory in its backend",
            show(dir)
        ))),
        other => Ok(other?),
    }
}

fn workload(word: &str) -> Result<Workload, Fail> {
    let found = Workload::parse(word.as_bytes())
        .ok_or_else(|| Fail::Exit(2, format!("--workload {word}: there is no such workload")))?;
    match is_built(found) {
        true => Ok(found),
        false => Err(Fail::Exit(
            2,
            format!("--workload {word}: not in this version, which has auto, shared and small"),
        )),
    }
}

/// Ids, directories, which get one if they have none, or `all`.
fn backends(plfs: &Plfs, dir: &Path, words: &[String]) -> Result<Backends, Fail> {
    if words == ["all"] {
        return Ok(Backends::All);
    }
    let root = plfs.directory_layout(dir)?.root;
    let mut ids = Vec::new();
    for word in words {
        let id = match word.contains('/') {
            true => {
                let backend = std::fs::canonicalize(word)
                    .map_err(|error| Fail::on("use the backend", Path::new(word), error))?;
                let is_root = std::fs::canonicalize(&root).is_ok_and(|root| root == backend);
                let store: std::sync::Arc<dyn Store> = std::sync::Arc::new(PosixStore::new());
                match is_root {
                    true => 0,
                    false => plfs_core::add_backend(&store, plfs.config(), &root, &backend)?
                        .ok_or_else(|| {
                            Fail::Say(format!("{word} takes no new data: it is being drained"))
                        })?,
                }
            }
            false => match word.len() == 4 && word.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                true => u16::from_str_radix(word, 16).unwrap_or(u16::MAX),
                false => {
                    return Err(Fail::Exit(
                        2,
                        format!(
                            "--backends {word}: this is none of: all; the id of a backend, four \
                             hex digits as in .plfs/backends of the root; a directory, with a / \
                             in its path"
                        ),
                    ));
                }
            },
        };
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    Ok(Backends::Listed(ids))
}
