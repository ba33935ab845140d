//! `plfs mount`, `umount`, `log`, and `stat --mounts`; also what mount(8) calls as mount.fuse.plfs.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use plfs_core::store::Errno;
use plfs_fuse::mount::{self, Mounted, Request};
use plfs_fuse::{JsonPath, LOG_ATTRIBUTE, Status};
use rustix::fs::{Mode, OFlags};
use serde::Serialize;

use crate::out::{Fail, Out, count, show, time};

pub fn mount(
    mountpoint: PathBuf,
    backends: Vec<PathBuf>,
    options: Vec<String>,
    foreground: bool,
    daemon: bool,
) -> Result<(), Fail> {
    if mount::is_remount(&options) {
        return mount::remount(&mountpoint, &options).map_err(Fail::Say);
    }
    let request = Request { mountpoint, backends, options };
    let done = if foreground {
        mount::serve(&request, || Ok(()))
    } else if daemon {
        mount::serve_as_daemon(&request)
    } else {
        let mut arguments: Vec<OsString> = vec!["mount".into(), "--daemon".into()];
        for backend in request.backends {
            arguments.extend(["--backend".into(), backend.into()]);
        }
        for option in request.options {
            arguments.extend(["-o".into(), option.into()]);
        }
        arguments.extend(["--".into(), request.mountpoint.into()]);
        mount::start(&arguments)
    };
    // An empty text: the daemon has printed it.
    done.map_err(|text| if text.is_empty() { Fail::Printed } else { Fail::Say(text) })
}

/// What the backend calls the file or directory at `full` in a mount, after what was written to it
/// there is committed. Any other path as it is.
pub fn behind(full: PathBuf) -> plfs_core::Result<PathBuf> {
    let how = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let Ok(real) = std::fs::canonicalize(&full) else { return Ok(full) };
    let Some((mountpoint, status)) = mount_of(&real) else { return Ok(full) };
    let (Some(backend), Ok(rest)) = (status.backends.first(), real.strip_prefix(mountpoint)) else {
        return Ok(full);
    };
    if backend.0.starts_with(mountpoint) {
        return Err(plfs_core::Error::Invalid {
            what: "this is in a mount over its own directory, which hides what the files consist \
                   of: look before `plfs mount` or after `plfs umount`",
            errno: Errno::OPNOTSUPP,
        });
    }
    if let Ok(file) = rustix::fs::open(&real, how, Mode::empty()) {
        // Who cannot commit it looks at what is there.
        let _ = rustix::fs::fsync(file);
    }
    Ok(backend.0.join(rest))
}

/// The mount of PLFS that a real path is in, and what its daemon says.
pub fn mount_of(real: &Path) -> Option<(&Path, Status)> {
    const FUSE: i64 = 0x6573_5546;
    let of = rustix::fs::statfs(real).ok()?;
    if of.f_type != FUSE {
        return None;
    }
    real.ancestors().find_map(|dir| Some((dir, mount::status(dir).ok()?)))
}

/// `mount.fuse.plfs SOURCE MOUNTPOINT [-sfnv] [-o OPTIONS]`, as mount(8) calls it, or `plfs /SOURCE
/// MOUNTPOINT -o OPTIONS`, as mount.fuse3 of libfuse does where mount(8) has found that instead; in
/// the words of `plfs mount`. `None` if this program was not called so.
pub fn as_helper(mut arguments: impl Iterator<Item = OsString>) -> Option<Vec<OsString>> {
    let name = PathBuf::from(arguments.next()?);
    let ours = name.file_name()?.to_string_lossy().starts_with("mount.");
    let mut arguments = arguments.peekable();
    if !ours && !arguments.peek()?.as_encoded_bytes().starts_with(b"/") {
        return None;
    }
    let (mut places, mut words) = (Vec::new(), vec![OsString::from("plfs"), "mount".into()]);
    while let Some(argument) = arguments.next() {
        match argument.to_str() {
            Some("-o") if ours => words.extend([argument, arguments.next().unwrap_or_default()]),
            // mount.fuse3 adds these two whether or not somebody asked for them.
            Some("-o") => {
                let options = arguments.next().unwrap_or_default().to_string_lossy().into_owned();
                let options: Vec<_> = options
                    .split(',')
                    .filter(|option| !matches!(*option, "dev" | "suid"))
                    .collect();
                words.extend([argument, options.join(",").into()]);
            }
            // The type, which is PLFS's, and verbose, sloppy, no mtab: ignored.
            Some("-t") => drop(arguments.next()),
            // Everything except the mount itself.
            Some(flags) if flags.starts_with('-') && flags.contains('f') => {
                words.push("--fake".into())
            }
            Some(flags) if flags.starts_with('-') => {}
            _ => places.push(argument),
        }
    }
    let mut places = places.into_iter();
    // A remount ignores the source.
    let options: Vec<String> =
        words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    if let Some(source) = places.next()
        && !mount::is_remount(&options)
    {
        words.extend(["--backend".into(), source]);
    }
    words.push("--".into());
    words.extend(places);
    Some(words)
}

pub fn umount(mountpoints: &[PathBuf], lazy: bool) -> Result<(), Fail> {
    mountpoints
        .iter()
        .try_for_each(|mountpoint| mount::unmount(mountpoint, lazy))
        .map_err(Fail::Say)
}

#[derive(Serialize)]
struct Listed {
    mountpoint: JsonPath,
    source: String,
    alive: bool,
    error: Option<String>,
    status: Option<Status>,
}

pub fn list(out: &mut Out, json: bool) -> Result<(), Fail> {
    let mounts = mount::list();
    if json {
        let listed = |Mounted { mountpoint, source, status }: Mounted| {
            let error = status.as_ref().err().map(ToString::to_string);
            let mountpoint = JsonPath(mountpoint);
            Listed { mountpoint, source, alive: status.is_ok(), error, status: status.ok() }
        };
        return out.json(&mounts.into_iter().map(listed).collect::<Vec<_>>());
    }
    for Mounted { mountpoint, source, status } in mounts {
        out.line(format_args!("{} shows {source}", show(&mountpoint)))?;
        for more in status.iter().flat_map(|status| status.backends.iter().skip(1)) {
            out.line(format_args!("  and keeps data in {}", show(&more.0)))?;
        }
        match status {
            Ok(status) => {
                let since = time(status.since_s as i64, 0);
                out.line(format_args!(
                    "  process {} of user {}, plfs {}, since {since}",
                    status.pid, status.uid, status.version
                ))?;
                out.line(format_args!(
                    "  {} open, {} inodes known, {} threads, logs {}",
                    count(status.open),
                    count(status.inodes),
                    status.threads,
                    status.level
                ))?;
            }
            Err(Errno::NOTCONN) => out.line(format_args!(
                "  dead: its daemon has ended; `plfs umount {}` removes it",
                show(&mountpoint)
            ))?,
            Err(errno) => out.line(format_args!("  does not answer: {errno}"))?,
        }
    }
    Ok(())
}

pub fn log(out: &mut Out, level: Option<&str>, mountpoint: Option<PathBuf>) -> Result<(), Fail> {
    let mounts = match mountpoint {
        Some(mountpoint) => vec![mountpoint],
        None => mount::list()
            .into_iter()
            .filter(|mount| mount.status.is_ok())
            .map(|mount| mount.mountpoint)
            .collect(),
    };
    for mountpoint in mounts {
        one_log(out, level, &mountpoint)?;
    }
    Ok(())
}

fn one_log(out: &mut Out, level: Option<&str>, mountpoint: &Path) -> Result<(), Fail> {
    if let Some(level) = level {
        return mount::set_level(mountpoint, level)
            .map_err(|errno| Fail::on("set the level of", mountpoint, errno));
    }
    let text = mount::attribute(mountpoint, LOG_ATTRIBUTE).map_err(|errno| match errno {
        plfs_core::store::Errno::NODATA | plfs_core::store::Errno::OPNOTSUPP => Fail::on(
            "read the log of",
            mountpoint,
            "it is not a PLFS mount; `plfs stat --mounts` lists them",
        ),
        errno => Fail::on("read the log of", mountpoint, errno),
    })?;
    out.bytes(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn called_by_mount() {
        let helper = |words: &[&str]| {
            as_helper(words.iter().map(OsString::from)).map(|words| {
                words.into_iter().map(|word| word.into_string().unwrap()).collect::<Vec<_>>()
            })
        };
        assert_eq!((helper(&["/usr/bin/plfs", "mount"]), helper(&["plfs"])), (None, None));
        let words = helper(&["plfs", "/scratch", "/mnt", "-o", "rw,noatime,dev,suid"]).unwrap();
        assert_eq!(
            words,
            ["plfs", "mount", "-o", "rw,noatime", "--backend", "/scratch", "--", "/mnt"]
        );
        let words = helper(&[
            "/sbin/mount.fuse.plfs",
            "/scratch",
            "/mnt",
            "-n",
            "-o",
            "rw,nodev",
            "-t",
            "fuse.plfs",
        ])
        .unwrap();
        assert_eq!(
            words,
            ["plfs", "mount", "-o", "rw,nodev", "--backend", "/scratch", "--", "/mnt"]
        );
        let words =
            helper(&["/sbin/mount.fuse.plfs", "/scratch", "/mnt", "-o", "rw,remount,ro"]).unwrap();
        assert_eq!(words, ["plfs", "mount", "-o", "rw,remount,ro", "--", "/mnt"]);
    }
}
