//! `plfs layout`, and what `plfs stat` says of directories.

use std::path::{Path, PathBuf};

use plfs_core::store::{Errno, Kind, Links, PosixStore, Store};
use plfs_core::{
    Backends, DirectoryLayout, Layout, Placement, Plfs, SETTLES, Setting, Workload, is_built,
    is_hidden, is_map,
};
use serde::Serialize;

use crate::out::{self, Fail, JsonPath, Out, absolute, show};

/// What to set.
pub struct Wanted {
    pub workload: Option<String>,
    pub streams: Option<u16>,
    pub backends: Vec<String>,
    pub placement: Option<String>,
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
    placement: Value,
    /// Of a flat directory: where its names are.
    #[serde(skip_serializing_if = "Option::is_none")]
    names: Option<Vec<Names>>,
}

/// A backend that has names of a flat directory.
#[derive(Serialize)]
pub struct Names {
    id: String,
    path: JsonPath,
}

impl Shown {
    pub fn new(plfs: &Plfs, dir: &Path) -> Result<Shown, plfs_core::Error> {
        let full = std::path::absolute(dir).unwrap_or_else(|_| dir.to_path_buf());
        let DirectoryLayout { root, workload, streams, backends, placement } =
            plfs.directory_layout(&full)?;
        let (config, file) = (plfs.config(), full.join("file"));
        let others = || {
            let dirs = config.backends_of(&file).iter().map(|dir| show(dir));
            [show(&root)].into_iter().chain(dirs).collect::<Vec<_>>().join(" ")
        };
        let names = match &workload {
            Some(said) if said.value == Workload::Flat => {
                let layout = Layout {
                    backends: backends.as_ref().map(|said| said.value.clone()),
                    ..Layout::default()
                };
                let found = plfs.backends_of_names(&full, &layout)?;
                let of = |(id, path)| Names { id: format!("{id:04x}"), path: JsonPath::of(path) };
                Some(found.into_iter().map(of).collect())
            }
            _ => None,
        };
        Ok(Shown {
            names,
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
                backends.map(|Setting { value, by }| (value.words(), by)),
                others,
                || config.origin_for("backends", &file),
            ),
            placement: Value::new(
                placement.map(|said| (said.value.word().into(), said.by)),
                || config.placement.word().into(),
                || config.origin_of("placement"),
            ),
            root: JsonPath::of(root),
        })
    }

    /// One line for each of the four, with `name` before the first.
    pub fn print(&self, out: &mut Out) -> Result<(), Fail> {
        let Shown { workload, streams, backends, placement, .. } = self;
        for (name, Value { value, from }) in [
            ("workload", workload),
            ("streams", streams),
            ("backends", backends),
            ("placement", placement),
        ] {
            out.line(format_args!("{name:>14}  {value}  ({})", show(Path::new(from))))?;
        }
        for Names { id, path } in self.names.iter().flatten() {
            out.line(format_args!("{:>14}  {id}  {}", "names", show(&path.0)))?;
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
            part("placement", &self.placement),
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
    let found = plfs.stat(&full, Links::Follow);
    if found.map_err(|error| Fail::on("use", dir, error.errno()))?.stat.kind != Kind::Dir {
        return Err(Fail::Exit(2, format!("{} is not a directory", show(dir))));
    }
    let sets = wanted.workload.is_some()
        || wanted.streams.is_some()
        || wanted.placement.is_some()
        || !wanted.backends.is_empty();
    // One that cannot be read is none; to set one says so.
    let is_flat = |plfs: &Plfs| {
        let own = plfs.own_layout(&full).ok().flatten();
        own.is_some_and(|own| own.workload == Some(Workload::Flat))
    };
    // Two that set one thing each would both keep the other as it was.
    let turn = if sets || wanted.inherit { plfs.layout_turn(&full)? } else { None };
    let was_flat = (sets || wanted.inherit) && is_flat(&plfs);
    if wanted.inherit {
        plfs.set_directory_layout(&full, None)?;
    }
    if sets {
        let mut layout = plfs.own_layout(&full)?.unwrap_or_default();
        if let Some(word) = &wanted.workload {
            layout.workload = Some(workload(word)?);
        }
        layout.streams = wanted.streams.or(layout.streams);
        if let Some(word) = &wanted.placement {
            layout.placement = Placement::parse(word.as_bytes());
        }
        if !wanted.backends.is_empty() {
            layout.backends = Some(backends(&plfs, &full, &wanted.backends)?);
        }
        let becomes_flat = layout.workload == Some(Workload::Flat) && !was_flat;
        if becomes_flat {
            must_have_backends(&plfs, dir, &full, &layout)?;
        }
        set(&plfs, dir, &full, &layout)?;
        drop(turn);
        if becomes_flat {
            nothing_has_come(&plfs, dir, &full)?;
        }
    }
    if was_flat && !is_flat(&plfs) {
        nothing_is_spread(&plfs, dir, &full)?;
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
    let set = match layout.workload {
        Some(Workload::Flat) => plfs.make_flat(full, layout),
        _ => plfs.set_directory_layout(full, Some(layout)),
    };
    match set {
        // A mount shows no layouts; what it shows has them.
        Err(error) if error.errno() == Errno::PERM => Err(Fail::Say(format!(
            "{error}; if {} is in a mount of PLFS, name the directory in its backend",
            show(dir)
        ))),
        other => Ok(other?),
    }
}

/// Names are spread over several backends, and each must be there.
fn must_have_backends(plfs: &Plfs, dir: &Path, full: &Path, layout: &Layout) -> Result<(), Fail> {
    let backends = plfs.backends_of_names(full, layout)?;
    match backends.len() {
        0 | 1 => {
            let root = plfs.directory_layout(full)?.root;
            Err(Fail::Say(format!(
                "{} would have all its names on one backend: add others with `plfs backend add {} \
                 DIR`, and name at least two if you name any",
                show(dir),
                show(&root)
            )))
        }
        _ => Ok(()),
    }
}

/// Who has looked a moment ago makes files in the directory itself, where they are not seen.
fn nothing_has_come(plfs: &Plfs, dir: &Path, full: &Path) -> Result<(), Fail> {
    std::thread::sleep(SETTLES);
    let entries = plfs.store().list(full).map_err(|errno| Fail::on("list", dir, errno))?;
    let strange = entries.iter().find(|entry| !is_hidden(&entry.name));
    strange.map_or(Ok(()), |entry| {
        Err(Fail::Say(format!(
            "{} was made in {} while that became flat, and is not seen there: move it away, and \
             back by the C API, `plfs cp` or a mount",
            show(Path::new(&entry.name)),
            show(dir)
        )))
    })
}

/// Who has looked a moment ago spreads the names of new files, which are not seen.
fn nothing_is_spread(plfs: &Plfs, dir: &Path, full: &Path) -> Result<(), Fail> {
    std::thread::sleep(SETTLES);
    let entries = plfs.store().list(full).map_err(|errno| Fail::on("list", dir, errno))?;
    match entries.iter().any(|entry| is_map(&entry.name)) {
        false => Ok(()),
        true => Err(Fail::Say(format!(
            "files were made in {} while that became an ordinary directory, and are not seen: \
             `plfs layout --workload flat` shows them again",
            show(dir)
        ))),
    }
}

fn workload(word: &str) -> Result<Workload, Fail> {
    let found = Workload::parse(word.as_bytes())
        .ok_or_else(|| Fail::Exit(2, format!("--workload {word}: there is no such workload")))?;
    match is_built(found) || found == Workload::Flat {
        true => Ok(found),
        false => Err(Fail::Exit(2, format!("--workload {word}: not in this version"))),
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
