//! How a path ends, which `Path` does not keep: it takes `a/.` and `a/` for `a`

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What a path ends in (path_resolution(7)). All but a name ask for a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// A name: `a/b`.
    Name,
    /// A name and slashes: `a/b/`. With O_CREAT open(2) says EISDIR, whatever is there.
    Slash,
    /// `.`, with slashes or without; or nothing but slashes.
    Dot,
    /// `..`, with slashes or without.
    Parent,
}

impl Ending {
    /// Of a path by its text.
    pub fn of(path: &Path) -> Ending {
        let bytes = path.as_os_str().as_bytes();
        let end = bytes.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
        match bytes[..end].rsplit(|byte| *byte == b'/').next() {
            None | Some(b"" | b".") => Ending::Dot,
            Some(b"..") => Ending::Parent,
            Some(_) if end < bytes.len() => Ending::Slash,
            Some(_) => Ending::Name,
        }
    }

    /// Of a path that ends so and leads by links to `end`: what the path asks for goes first.
    pub fn behind_links(self, end: &Path) -> Ending {
        match self {
            Ending::Name => Ending::of(end),
            asked => asked,
        }
    }

    /// Whether what has such a path has to be a directory.
    pub fn is_for_directory(self) -> bool {
        self != Ending::Name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_ends_as_its_text_says() {
        let ends = |path| Ending::of(Path::new(path));
        for path in ["a", "/a", "a/b", "a/.b", "a/b.", "a/..b", "..."] {
            assert_eq!(ends(path), Ending::Name, "{path}");
        }
        for path in ["a/", "/a//", "a/b/", "../a/"] {
            assert_eq!(ends(path), Ending::Slash, "{path}");
        }
        for path in ["", "/", "//", ".", "a/.", "./", "a/.//"] {
            assert_eq!(ends(path), Ending::Dot, "{path}");
        }
        for path in ["..", "a/..", "/..", "a/..//"] {
            assert_eq!(ends(path), Ending::Parent, "{path}");
        }
    }
}
