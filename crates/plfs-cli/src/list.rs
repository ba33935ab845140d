//! `plfs ls`.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use plfs_core::store::{Kind, Links};
use plfs_core::{Decision, FileStat, Plfs, decision_of};
use serde::Serialize;

use crate::out::{self, Fail, JsonPath, Out, absolute, say, show, time};

#[derive(Serialize)]
struct Item {
    path: JsonPath,
    #[serde(rename = "type")]
    kind: &'static str,
    plfs: bool,
    size: u64,
    mode: String,
    nlink: u64,
    uid: u32,
    gid: u32,
    mtime: String,
    /// Of a PLFS file that was a plain one before: bytes that programs without PLFS see.
    #[serde(skip_serializing_if = "Option::is_none")]
    base_bytes: Option<u64>,
    /// Of a plain file that stays plain: why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pinned: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// It is in the pack of its directory.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    packed: bool,
    /// An ordinary file has the same name, and is not seen.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    hides: bool,
}

pub struct Wanted {
    pub long: bool,
    pub all: bool,
    pub recursive: bool,
    pub human: bool,
    pub json: bool,
}

pub fn ls(out: &mut Out, wanted: &Wanted, paths: &[PathBuf]) -> Result<(), Fail> {
    let plfs = out::plfs()?;
    let (mut items, mut failed) = (Vec::new(), false);
    // Costs an open of each file.
    let decided = |full: &Path, one: Item| match wanted.long || wanted.json {
        true => decided(&plfs, full, one),
        false => one,
    };
    for path in paths {
        let full = absolute(path)?;
        match plfs.stat(&full, Links::Follow) {
            Err(error) => {
                failed = true;
                say("ls", &error.to_string());
            }
            Ok(found) if found.stat.kind != Kind::Dir => {
                items.push(decided(&full, item(path, found)));
            }
            Ok(_) => {
                let mut todo = vec![(full, path.clone())];
                while let Some((dir, path)) = todo.pop() {
                    let mut entries = match plfs.list(&dir) {
                        Ok(entries) => entries,
                        Err(error) => {
                            failed = true;
                            say("ls", &format!("cannot list {}: {}", show(&path), error.errno()));
                            continue;
                        }
                    };
                    entries.retain(|entry| wanted.all || !entry.name.as_bytes().starts_with(b"."));
                    entries.sort_by(|a, b| a.name.cmp(&b.name));
                    let mut below = Vec::new();
                    for entry in &entries {
                        let shown = match path == Path::new(".") {
                            true => PathBuf::from(&entry.name),
                            false => path.join(&entry.name),
                        };
                        let full = dir.join(&entry.name);
                        let (one, error) = entry_of(&plfs, &full, &shown);
                        if let Some(error) = error {
                            failed = true;
                            say("ls", &error);
                        }
                        let Some(one) = one else { continue };
                        if wanted.recursive && one.kind == "directory" {
                            below.push((full.clone(), shown));
                        }
                        items.push(decided(&full, one));
                    }
                    todo.extend(below.into_iter().rev());
                }
            }
        }
    }
    if wanted.json {
        out.json(&items)?;
    } else {
        print(out, wanted, &items)?;
    }
    if failed { out.end().and(Err(Fail::Printed)) } else { Ok(()) }
}

/// A directory's entry; one whose container is damaged or gone is listed as the storage sees it.
fn entry_of(plfs: &Plfs, full: &Path, shown: &Path) -> (Option<Item>, Option<String>) {
    match plfs.stat(full, Links::Stay) {
        Ok(found) => (Some(item(shown, found)), None),
        Err(error) => match plfs.store().stat(full, Links::Stay) {
            Ok(stat) => (
                Some(Item {
                    error: Some(out::without_numbers(&error.to_string())),
                    ..item(shown, FileStat { stat, totals: None })
                }),
                Some(error.to_string()),
            ),
            Err(_) => (None, Some(error.to_string())),
        },
    }
}

/// Adds what is decided of a file that is or was a plain one.
fn decided(plfs: &Plfs, full: &Path, one: Item) -> Item {
    if one.kind != "file" {
        return one;
    }
    let place = plfs.placed(full, Links::Follow).unwrap_or(std::borrow::Cow::Borrowed(full));
    let full = &*place;
    if matches!(plfs.packed_stat(full), Ok(Some(_))) {
        let hides = plfs.store().stat(full, Links::Stay).is_ok();
        if hides {
            let text = "is packed, and an ordinary file has the same name and is not seen";
            say("ls", &format!("{} {text}", show(full)));
        }
        return Item { packed: true, hides, ..one };
    }
    match decision_of(plfs.store().as_ref(), full) {
        Ok(Some(Decision::Container { .. })) if one.plfs => {
            let base = plfs.store().stat(full, Links::Follow);
            Item { base_bytes: base.ok().map(|base| base.len), ..one }
        }
        Ok(Some(Decision::Plain(why))) if !one.plfs => Item { pinned: Some(why), ..one },
        _ => one,
    }
}

fn item(path: &Path, found: FileStat) -> Item {
    let stat = found.stat;
    let kind = match stat.kind {
        Kind::File => "file",
        Kind::Dir => "directory",
        Kind::Symlink => "link",
        Kind::Other => "special",
    };
    Item {
        path: JsonPath::of(path),
        kind,
        plfs: found.totals.is_some(),
        size: stat.len,
        mode: format!("{:04o}", stat.mode),
        nlink: stat.nlink,
        uid: stat.uid,
        gid: stat.gid,
        mtime: time(stat.mtime.sec, stat.mtime.nsec),
        base_bytes: None,
        pinned: None,
        error: None,
        packed: false,
        hides: false,
    }
}

fn print(out: &mut Out, wanted: &Wanted, items: &[Item]) -> Result<(), Fail> {
    let size = |item: &Item| match wanted.human {
        true => human(item.size),
        false => item.size.to_string(),
    };
    let width = items.iter().map(|item| size(item).len()).max().unwrap_or(0);
    for item in items {
        let name = show(&item.path.0);
        let slash = if item.kind == "directory" { "/" } else { "" };
        let size = size(item);
        match wanted.long {
            true => {
                let kind = match (item.plfs, item.kind) {
                    (true, _) if item.base_bytes.is_some() => "promoted",
                    (true, _) => "plfs",
                    (false, _) if item.packed => "packed",
                    (false, "file") if item.pinned.is_some() => "pinned",
                    (false, "file") if item.error.is_none() => "plain",
                    (false, kind) => kind,
                };
                out.line(format_args!(
                    "{kind:9} {} {:>3} {:>5} {:>5} {size:>width$} {} {name}{slash}",
                    item.mode, item.nlink, item.uid, item.gid, item.mtime
                ))?;
            }
            false => out.line(format_args!("{size:>width$} {name}{slash}"))?,
        }
    }
    Ok(())
}

/// A size as `ls -h` of GNU prints it: in powers of 1,024, rounded up, with one decimal below ten.
fn human(bytes: u64) -> String {
    let (mut unit, bytes) = (1, u128::from(bytes));
    for letter in ["", "K", "M", "G", "T", "P"] {
        let (whole, tenths) = (bytes.div_ceil(unit), (bytes * 10).div_ceil(unit));
        match letter {
            "" if whole < 1024 => return whole.to_string(),
            "" => {}
            _ if tenths < 100 => return format!("{}.{}{letter}", tenths / 10, tenths % 10),
            _ if whole < 1024 => return format!("{whole}{letter}"),
            _ => {}
        }
        unit <<= 10;
    }
    let tenths = (bytes * 10).div_ceil(unit);
    match tenths < 100 {
        true => format!("{}.{}E", tenths / 10, tenths % 10),
        false => format!("{}E", bytes.div_ceil(unit)),
    }
}

#[cfg(test)]
mod tests {
    use super::human;

    #[test]
    fn sizes_as_gnu_ls_prints_them() {
        for (bytes, want) in [
            (0, "0"),
            (1023, "1023"),
            (1024, "1.0K"),
            (1025, "1.1K"),
            (10_137, "9.9K"),
            (10_138, "10K"),
            (1_047_552, "1023K"),
            (1_047_553, "1.0M"),
            (u64::MAX, "16E"),
        ] {
            assert_eq!(human(bytes), want, "{bytes}");
        }
    }
}
