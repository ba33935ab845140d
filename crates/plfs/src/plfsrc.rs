//! The plfsrc of a process: `$PLFSRC`, `~/.plfsrc` or `/etc/plfsrc`; the first that exists counts.
//!
//! What is in it is plfs-rc's, which reads no files. They are read here, with the store's calls,
//! because a preloaded library has no others.

use std::path::{Path, PathBuf};

pub use plfs_rc::{Given, Managed, Place, Plfsrc, Problem, SETTINGS};

use crate::environment;
use crate::store::{self, Errno, Kind, Links, Open, PosixStore, Store};

/// Longer files are refused. 64 KiB: some 500 directories.
const BYTES_MAX: u64 = 64 << 10;

/// The file that counts for this process, if there is one. At most three looks at files that are
/// not there.
pub fn find() -> Result<Option<Plfsrc>, String> {
    let var = |name| environment::variable(name).map(PathBuf::from);
    match var("PLFSRC") {
        Some(path) if path.as_os_str().is_empty() => return Ok(None),
        Some(path) if !path.is_absolute() => {
            return Err(format!("PLFSRC={} is not an absolute path", path.display()));
        }
        Some(path) => {
            return match load(&path)? {
                None => Err(format!(
                    "PLFSRC={}: there is no such file; unset PLFSRC, or set it to nothing to use \
                     no plfsrc",
                    path.display()
                )),
                found => Ok(found),
            };
        }
        None => {}
    }
    let own = var("HOME").filter(|home| home.is_absolute()).map(|home| home.join(".plfsrc"));
    for path in own.into_iter().chain([PathBuf::from("/etc/plfsrc")]) {
        match load(&path) {
            Ok(None) => {}
            // A program that has changed its user, and whose HOME is still that of the first one.
            Err(_) if is_out_of_reach(&path) => {}
            found => return found,
        }
    }
    Ok(None)
}

/// Whether this process may not enter the directory of the file.
fn is_out_of_reach(path: &Path) -> bool {
    PosixStore::new().stat(path, Links::Follow).is_err_and(|errno| errno == Errno::ACCESS)
}

/// Reads a file; `None` if there is none.
pub fn load(path: &Path) -> Result<Option<Plfsrc>, String> {
    let Some(text) = read(path)? else { return Ok(None) };
    Plfsrc::parse_with(path, &text, &mut |path| read(path))
        .map(Some)
        .map_err(|problem| problem.to_string())
}

/// The bytes of a file; `None` if there is none.
fn read(path: &Path) -> Result<Option<Vec<u8>>, String> {
    let cannot = |what: &str| format!("cannot read {}: {what}", path.display());
    let store = PosixStore::new();
    match store.stat(path, Links::Follow) {
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        // A pipe would never end.
        Ok(stat) if stat.kind != Kind::File => return Err(cannot("it is not a regular file")),
        Ok(stat) if stat.len > BYTES_MAX => {
            return Err(cannot("it is longer than 64 KiB, which no plfsrc is"));
        }
        Ok(_) => {}
        Err(errno) => return Err(cannot(&errno.to_string())),
    }
    let file =
        store.open(path, Open::READ.briefly()).map_err(|errno| cannot(&errno.to_string()))?;
    let mut bytes = vec![0; BYTES_MAX as usize];
    let n = store::read_full(file.as_ref(), &mut bytes, 0)
        .map_err(|errno| cannot(&errno.to_string()))?;
    bytes.truncate(n);
    Ok(Some(bytes))
}
