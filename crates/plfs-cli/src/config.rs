//! `plfs config`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use plfs_core::plfsrc::{self, Managed, Plfsrc, SETTINGS};
use plfs_core::{Backends, Config, Plfs, is_setting};
use serde::Serialize;

use crate::layout::Shown;
use crate::out::{Fail, JsonPath, Out, absolute, show as shown};

/// What names a managed directory, for a sentence that begins with it.
pub fn named_by(config: &Config, dir: &Path) -> String {
    let rule = config.managed.iter().find(|managed| managed.directory.value == dir);
    rule.map_or("PLFS_MOUNTS".into(), |managed| managed.directory.place.to_string())
}

/// What the layouts of managed directories say otherwise than plfsrc: a sentence for each, with
/// both places.
fn contradictions(config: &Config) -> Vec<String> {
    let plfs = Plfs::posix(Config::default());
    let mut found = Vec::new();
    for Managed { directory, workload, streams, backends } in &config.managed {
        let dir = &directory.value;
        let layout = match plfs.own_layout(dir) {
            Ok(Some(layout)) => layout,
            Ok(None) => continue,
            Err(error) => {
                found.push(format!("{}: {error}", directory.place));
                continue;
            }
        };
        let file = dir.join(plfs_core::LAYOUT_NAME);
        let mut differ = |place: &dyn std::fmt::Display, name, ours: String, theirs: String| {
            found.push(format!(
                "{place}: {name} {ours}, but {} says {name} {theirs}, which counts; make both the \
                 same, or remove one",
                shown(&file)
            ));
        };
        if let (Some(ours), Some(theirs)) = (streams, layout.streams)
            && ours.value != theirs
        {
            differ(&ours.place, "streams", ours.value.to_string(), theirs.to_string());
        }
        if let (Some(ours), Some(theirs)) = (workload, layout.workload)
            && ours.value != theirs
        {
            differ(&ours.place, "workload", ours.value.word().into(), theirs.word().into());
        }
        // `all` has those of plfsrc, once they are used.
        if let (Some(ours), Some(theirs @ Backends::Listed(_))) = (backends, layout.backends) {
            let paths: Vec<String> = ours.value.iter().map(|dir| shown(dir)).collect();
            differ(&ours.place, "backends", paths.join(", "), theirs.words());
        }
    }
    // A directory that is named by a link is there twice.
    found.dedup();
    found
}

/// What `plfs run` says before the program begins.
pub fn warn_of_run(plfsrc: &Plfsrc, config: &Config) {
    if !plfsrc.warnings.is_empty() {
        eprintln!(
            "plfs: warning: {}: {} lines have no effect; `plfs config check` shows them",
            shown(&plfsrc.file),
            plfsrc.warnings.len()
        );
    }
    contradictions(config).iter().for_each(|text| eprintln!("plfs: warning: {text}"));
}

pub fn check(out: &mut Out, file: Option<&Path>) -> Result<(), Fail> {
    let found = match file {
        None => plfsrc::find().map_err(Fail::Say)?,
        Some(path) => {
            let found = plfsrc::load(&absolute(path)?).map_err(Fail::Say)?;
            if found.is_none() {
                return Err(Fail::on("read", path, "there is no such file"));
            }
            found
        }
    };
    let Some(plfsrc) = found else {
        return out.line("there is no plfsrc, and none is needed");
    };
    let mut config = Config::default();
    config.take(&plfsrc).map_err(Fail::Say)?;
    for warning in &plfsrc.warnings {
        out.line(format_args!("warning: {warning}"))?;
    }
    for Managed { directory, backends, .. } in &plfsrc.managed {
        let backends = backends.iter().flat_map(|it| it.value.iter().map(|dir| (dir, &it.place)));
        for (dir, place) in backends.chain([(&directory.value, &directory.place)]) {
            if !dir.is_dir() {
                out.line(format_args!(
                    "warning: {place}: there is no directory {0}; mkdir -p {0}, or mount it",
                    shown(dir)
                ))?;
            }
        }
    }
    for text in contradictions(&config) {
        out.line(format_args!("warning: {text}"))?;
    }
    let form = if plfsrc.is_original {
        "; it has the form of the original PLFS: `plfs config migrate` prints one of today"
    } else {
        ""
    };
    out.line(format_args!(
        "{}: {} settings, {} managed directories{form}",
        shown(&plfsrc.file),
        plfsrc.settings.len(),
        plfsrc.managed.len()
    ))
}

#[derive(Serialize)]
struct Setting {
    value: String,
    from: String,
}

#[derive(Serialize)]
struct ManagedDir {
    from: String,
    layout: Shown,
}

#[derive(Serialize)]
struct Effective {
    plfsrc: Option<JsonPath>,
    settings: BTreeMap<&'static str, Setting>,
    managed: Vec<ManagedDir>,
    backends: Vec<JsonPath>,
    warnings: Vec<String>,
}

pub fn show(out: &mut Out, json: bool) -> Result<(), Fail> {
    let plfsrc = plfsrc::find().map_err(Fail::Say)?;
    let config = Config::from_env_and(plfsrc.as_ref()).map_err(Fail::Say)?;
    let mut warnings: Vec<String> =
        plfsrc.iter().flat_map(|plfsrc| plfsrc.warnings.iter().map(ToString::to_string)).collect();
    warnings.extend(contradictions(&config));
    let setting =
        |name| (name, Setting { value: config.value_of(name), from: config.origin_of(name) });
    let plfs = Plfs::posix(config.clone());
    let managed = config.mounts.iter().map(|dir| {
        Ok(ManagedDir { from: named_by(&config, dir), layout: Shown::new(&plfs, dir)? })
    });
    let effective = Effective {
        settings: SETTINGS.into_iter().map(setting).collect(),
        managed: managed.collect::<Result<_, plfs_core::Error>>()?,
        backends: config.backends.iter().map(JsonPath::of).collect(),
        plfsrc: plfsrc.map(|plfsrc| JsonPath::of(&plfsrc.file)),
        warnings,
    };
    if json {
        return out.json(&effective);
    }
    let file = effective.plfsrc.as_ref().map_or("none".into(), |file| shown(&file.0));
    out.line(format_args!("{:>14}  {file}", "plfsrc"))?;
    for name in SETTINGS {
        if let Some(Setting { value, from }) = effective.settings.get(name) {
            let value = if value.is_empty() { "none" } else { value.as_str() };
            out.line(format_args!("{name:>14}  {value}  ({from})"))?;
        }
    }
    for dir in &config.backends {
        out.line(format_args!("{:>14}  {}  (PLFS_BACKENDS)", "backend", shown(dir)))?;
    }
    for (dir, ManagedDir { from, layout }) in config.mounts.iter().zip(&effective.managed) {
        out.line(format_args!("{:>14}  {}  ({from})", "managed", shown(dir)))?;
        layout.print(out)?;
    }
    effective.warnings.iter().try_for_each(|text| out.line(format_args!("warning: {text}")))
}

pub fn migrate(out: &mut Out, old: &Path) -> Result<(), Fail> {
    let path: PathBuf = absolute(old)?;
    let Some(plfsrc) = plfsrc::load(&path).map_err(Fail::Say)? else {
        return Err(Fail::on("read", old, "there is no such file"));
    };
    out.line(format_args!("# From {} by plfs config migrate.", shown(old)))?;
    if plfsrc.is_original {
        out.line(
            "# The names of files lie in the directory itself now, data there and on the \
             backends. Files that\n# the original PLFS wrote cannot be read by this one.",
        )?;
    }
    let text = plfsrc.modern(is_setting);
    out.bytes(text.as_bytes())
}
