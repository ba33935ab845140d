//! L1: plfsrc: settings in a file, for whom variables are too much trouble. YAML. Pure: paths are
//! words, and no file is read.
//!
//! A wrong file is an error with file, line, column and the mend, and no part of it is used. The
//! form of the original PLFS (a list of maps) is understood; keys of it that mean nothing any more
//! are warnings.
#![forbid(unsafe_code)]

mod original;
mod tree;

use std::ffi::OsString;
use std::fmt;
use std::path::{Component, Path, PathBuf};

use plfs_format::layout::Workload;
use plfs_format::superblock::{BACKENDS_MAX, STREAMS_MAX};

use tree::{At, Entry, Node, What, parse};

/// Files that include each other. The original had no limit and ran out of stack.
const INCLUDES_MAX: usize = 8;
/// Files that are included in all. 256: more directories than anyone has.
const INCLUDED_MAX: usize = 256;

/// The settings: each is the variable of its name in capitals behind `PLFS_` (TUNING.md).
pub const SETTINGS: [&str; 12] = [
    "streams",
    "buffer_bytes",
    "index_bytes",
    "segment_bytes",
    "sync_on_close",
    "compact_bytes",
    "shared_memory",
    "close_to_open",
    "placement",
    "rates",
    "deadline_s",
    "expected_bytes",
];

/// A place in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub file: PathBuf,
    /// Line, from 1 on.
    pub line: usize,
    /// Column, from 1 on, in characters.
    pub column: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file.display(), self.line, self.column)
    }
}

/// What is wrong at a place, and the mend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where.
    pub place: Place,
    /// What.
    pub text: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.text)
    }
}

/// A value, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given<T> {
    /// The value.
    pub value: T,
    /// Where.
    pub place: Place,
}

/// A managed directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Managed {
    /// Absolute path.
    pub directory: Given<PathBuf>,
    /// What its files are used for.
    pub workload: Option<Given<Workload>>,
    /// Data logs of a node for a new file.
    pub streams: Option<Given<u16>>,
    /// More backends for the data of new files. Absolute paths.
    pub backends: Option<Given<Vec<PathBuf>>>,
}

/// What a file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plfsrc {
    /// The file.
    pub file: PathBuf,
    /// It has the form of the original.
    pub is_original: bool,
    /// Settings by name, as text that is not checked yet.
    pub settings: Vec<(&'static str, Given<String>)>,
    /// Managed directories.
    pub managed: Vec<Managed>,
    /// What is not used, and why.
    pub warnings: Vec<Problem>,
}

/// Gives the bytes of a file that another includes; `None` if there is none.
pub type Include<'a> = dyn FnMut(&Path) -> Result<Option<Vec<u8>>, String> + 'a;

impl Plfsrc {
    /// What a text says that includes no other files.
    pub fn parse(path: &Path, text: &[u8]) -> Result<Plfsrc, Problem> {
        Plfsrc::parse_with(path, text, &mut |_| Ok(None))
    }

    /// What the text of the file at `path` says, and the files that it includes, which only the
    /// form of the original can. `path` is for places, and relative includes begin in its
    /// directory. `include` is called for each include, at most eight deep, and bounds the length
    /// of what it gives; its error, and a file that is not there, are problems of the line that
    /// includes.
    pub fn parse_with(
        path: &Path,
        text: &[u8],
        include: &mut Include<'_>,
    ) -> Result<Plfsrc, Problem> {
        let found = Plfsrc {
            file: path.to_path_buf(),
            is_original: false,
            settings: Vec::new(),
            managed: Vec::new(),
            warnings: Vec::new(),
        };
        let mut reader = Reader { file: path.to_path_buf(), depth: 0, included: 0, found, include };
        reader.text(text)?;
        Ok(reader.found)
    }

    /// The same as a modern file, with what is not used as comments: warnings, and workloads that
    /// `is_setting` says no to.
    pub fn modern(&self, is_setting: impl Fn(Workload) -> bool) -> String {
        let mut text = String::new();
        for warning in &self.warnings {
            text.push_str(&format!("# line {}: {}\n", warning.place.line, warning.text));
        }
        if !self.settings.is_empty() {
            text.push_str("settings:\n");
        }
        for (key, Given { value, .. }) in &self.settings {
            text.push_str(&format!("  {key}: {}\n", quoted(value)));
        }
        text.push_str(if self.managed.is_empty() { "managed: []\n" } else { "managed:\n" });
        let path = |path: &Path| quoted(&path.to_string_lossy());
        for Managed { directory, workload, streams, backends } in &self.managed {
            text.push_str(&format!("  - directory: {}\n", path(&directory.value)));
            if let Some(workload) = workload {
                let word = workload.value.word();
                text.push_str(&match is_setting(workload.value) {
                    true => format!("    workload: {word}\n"),
                    false => format!("    # workload: {word} cannot be set here\n"),
                });
            }
            if let Some(streams) = streams {
                text.push_str(&format!("    streams: {}\n", streams.value));
            }
            if let Some(Given { value, .. }) = backends.as_ref().filter(|it| !it.value.is_empty()) {
                text.push_str("    backends:\n");
                value.iter().for_each(|dir| text.push_str(&format!("      - {}\n", path(dir))));
            }
        }
        text
    }
}

/// A scalar of YAML that is read as this text whatever is in it.
fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    let begins = |c: char| c.is_ascii_alphanumeric() || c == '/';
    if text.starts_with(begins) && text.chars().all(is_plain) && text != "null" {
        return text.into();
    }
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() || c == '\u{feff}' => {
                out.push_str(&format!("\\U{:08x}", u32::from(c)));
            }
            c => out.push(c),
        }
    }
    out + "\""
}

/// Reads a file and what it includes.
struct Reader<'a> {
    file: PathBuf,
    depth: usize,
    included: usize,
    found: Plfsrc,
    include: &'a mut Include<'a>,
}

type Done<T = ()> = Result<T, Problem>;

impl Reader<'_> {
    fn place(&self, at: At) -> Place {
        Place { file: self.file.clone(), line: at.line, column: at.column }
    }

    fn wrong<T>(&self, at: At, text: impl Into<String>) -> Done<T> {
        Err(Problem { place: self.place(at), text: on_one_line(&text.into()) })
    }

    fn warn(&mut self, at: At, text: impl Into<String>) {
        let place = self.place(at);
        self.found.warnings.push(Problem { place, text: on_one_line(&text.into()) });
    }

    fn given<T>(&self, at: At, value: T) -> Given<T> {
        Given { value, place: self.place(at) }
    }

    fn text(&mut self, bytes: &[u8]) -> Done {
        let text = match std::str::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => {
                let before = &bytes[..error.valid_up_to()];
                let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
                return self.wrong(At { line, column: 1 }, "this line is not UTF-8");
            }
        };
        let root = match parse(text) {
            Ok(root) => root,
            Err((at, text)) => return self.wrong(at, text),
        };
        match root.what {
            What::Null => Ok(()),
            What::Map(entries) => self.modern(entries),
            What::List(nodes) => self.original(nodes),
            What::Text(_) => self.wrong(
                root.at,
                "this is neither keys with values (settings:, managed:) nor the list of the \
                 original PLFS",
            ),
        }
    }

    fn modern(&mut self, entries: Vec<Entry>) -> Done {
        for Entry { key, at, value } in entries {
            match (key.as_str(), value.what) {
                (_, What::Null) if matches!(key.as_str(), "settings" | "managed") => {}
                ("settings", What::Map(entries)) => self.settings(entries)?,
                ("settings", _) => return self.wrong(value.at, "settings has keys with values"),
                ("managed", What::List(nodes)) => {
                    nodes.into_iter().try_for_each(|node| self.managed(node))?;
                }
                ("managed", _) => {
                    return self
                        .wrong(value.at, "managed is a list: begin each directory with a dash");
                }
                _ => return self.unknown(&key, at, &["settings", "managed"]),
            }
        }
        Ok(())
    }

    fn unknown<T>(&self, key: &str, at: At, keys: &[&str]) -> Done<T> {
        let now = match (original::moved(key), original::obsolete(key)) {
            (Some(now), _) => format!("{key} is the original PLFS's; here it is {now}"),
            (_, Some(old)) => format!("{key} {}; remove it", old.now),
            _ => format!("there is no key {key} here; the keys are {}", keys.join(", ")),
        };
        self.wrong(at, now)
    }

    fn settings(&mut self, entries: Vec<Entry>) -> Done {
        for Entry { key, at, value } in entries {
            let Some(name) = SETTINGS.into_iter().find(|name| *name == key) else {
                return self.unknown(&key, at, &SETTINGS);
            };
            let at = value.at;
            let text = match value.what {
                What::Null if matches!(name, "shared_memory" | "rates") => String::new(),
                What::Text(text) => text,
                _ => return self.wrong(at, format!("{name} has one value")),
            };
            let text = match name {
                "sync_on_close" => match text.as_str() {
                    "true" | "yes" | "on" => "1".into(),
                    "false" | "no" | "off" => "0".into(),
                    _ => text,
                },
                name if name.ends_with("_bytes") => in_bytes(&text).unwrap_or(text),
                "shared_memory" | "rates" if !text.is_empty() => {
                    self.absolute(at, &text)?;
                    text
                }
                _ => text,
            };
            let given = self.given(at, text);
            self.found.settings.retain(|(known, _)| *known != name);
            self.found.settings.push((name, given));
        }
        Ok(())
    }

    fn managed(&mut self, node: Node) -> Done {
        let What::Map(entries) = node.what else {
            return self.wrong(node.at, "write - directory: PATH");
        };
        let (mut directory, mut workload, mut streams, mut backends) = (None, None, None, None);
        for Entry { key, at, value } in entries {
            match key.as_str() {
                "directory" => {
                    let path = self.word(&key, &value)?;
                    directory = Some(self.given(value.at, self.absolute(value.at, &path)?));
                }
                "workload" => {
                    let word = self.word(&key, &value)?;
                    workload = Some(self.workload(value.at, &word)?);
                }
                "streams" => {
                    let word = self.word(&key, &value)?;
                    let number = word.parse().ok().filter(|n| (1..=STREAMS_MAX).contains(n));
                    match number {
                        Some(number) => streams = Some(self.given(value.at, number)),
                        None => {
                            return self.wrong(
                                value.at,
                                format!("streams: {word} is not a number from 1 to {STREAMS_MAX}"),
                            );
                        }
                    }
                }
                "backends" => {
                    let at = value.at;
                    let nodes = match value.what {
                        What::List(nodes) => nodes,
                        What::Null => Vec::new(),
                        what => vec![Node { at, what }],
                    };
                    let mut dirs = Vec::new();
                    for node in nodes {
                        let path = self.word("a backend", &node)?;
                        dirs.push((node.at, self.absolute(node.at, &path)?));
                    }
                    backends = Some((at, dirs));
                }
                _ => {
                    return self.unknown(
                        &key,
                        at,
                        &["directory", "workload", "streams", "backends"],
                    );
                }
            }
        }
        let Some(directory) = directory else {
            return self.wrong(node.at, "the directory is missing: directory: PATH");
        };
        self.add(Managed { directory, workload, streams, backends: None }, backends)
    }

    /// Adds a managed directory, unless it is there already, and its backends without itself.
    fn add(&mut self, mut managed: Managed, backends: Option<(At, Vec<(At, PathBuf)>)>) -> Done {
        let dir = managed.directory.value.clone();
        if let Some(first) = self.found.managed.iter().find(|it| it.directory.value == dir) {
            let text = format!(
                "{} is managed twice, first at {}; remove one",
                dir.display(),
                first.directory.place
            );
            return Err(Problem { place: managed.directory.place, text });
        }
        if let Some((at, given)) = backends {
            let mut dirs = Vec::new();
            for (at, backend) in given {
                if backend == dir {
                    self.warn(at, "the managed directory itself is always the first backend");
                } else if dirs.contains(&backend) {
                    return self.wrong(at, format!("{} is there twice", backend.display()));
                } else {
                    dirs.push(backend);
                }
            }
            if dirs.len() >= BACKENDS_MAX {
                return self
                    .wrong(at, format!("there are more than {} backends", BACKENDS_MAX - 1));
            }
            managed.backends = Some(self.given(at, dirs));
        }
        self.found.managed.push(managed);
        Ok(())
    }

    fn word(&self, name: &str, node: &Node) -> Done<String> {
        match &node.what {
            What::Text(text) => Ok(text.clone()),
            _ => self.wrong(node.at, format!("{name} has one value")),
        }
    }

    fn absolute(&self, at: At, text: &str) -> Done<PathBuf> {
        let path = PathBuf::from(OsString::from(text));
        if !path.is_absolute() {
            return self.wrong(at, format!("{text} is not an absolute path; write it from / on"));
        }
        if text.contains('\0') || path.components().any(|part| part == Component::ParentDir) {
            return self.wrong(at, "a path with .. or a zero byte is not understood");
        }
        // Without what means nothing: // and /./ and a slash at the end.
        Ok(path.components().collect())
    }

    fn workload(&self, at: At, word: &str) -> Done<Given<Workload>> {
        match Workload::parse(word.as_bytes()) {
            Some(workload) => Ok(self.given(at, workload)),
            None => {
                let words = Workload::ALL.map(Workload::word).join(", ");
                let hint = original::workload(word)
                    .map_or(String::new(), |now| format!("; {word} of the original is {now}"));
                self.wrong(at, format!("workload {word} is none of {words}{hint}"))
            }
        }
    }

    fn original(&mut self, nodes: Vec<Node>) -> Done {
        self.found.is_original = true;
        for node in nodes {
            let What::Map(entries) = node.what else {
                return self.wrong(node.at, "write - mount_point: PATH, or the modern form");
            };
            let mount = entries.iter().any(|entry| entry.key == "mount_point");
            match mount {
                true => self.mount_point(entries)?,
                false => self.global(entries)?,
            }
        }
        Ok(())
    }

    fn global(&mut self, entries: Vec<Entry>) -> Done {
        for Entry { key, at, value } in entries {
            match (key.as_str(), value.what) {
                ("global_params", What::Map(entries)) => {
                    entries.into_iter().for_each(|entry| self.obsolete(&entry.key, entry.at));
                }
                ("global_params", What::Null) => {}
                ("include", What::Text(path)) => self.included(value.at, &path)?,
                ("global_params" | "include", _) => {
                    return self.wrong(value.at, format!("{key} has another form"));
                }
                _ => self.obsolete(&key, at),
            }
        }
        Ok(())
    }

    fn obsolete(&mut self, key: &str, at: At) {
        let text = match original::obsolete(key) {
            Some(old) => format!("{key} {}", old.now),
            None => format!(
                "{key} is no key of the original PLFS, nor one of this; the settings are {}",
                SETTINGS.join(", ")
            ),
        };
        self.warn(at, text);
    }

    fn included(&mut self, at: At, path: &str) -> Done {
        if self.depth == INCLUDES_MAX {
            return self.wrong(at, "files include each other, too deep");
        }
        // Each of a few files can include the next one thousands of times.
        if self.included == INCLUDED_MAX {
            return self.wrong(at, format!("more than {INCLUDED_MAX} files are included"));
        }
        self.included += 1;
        let path = self.file.parent().unwrap_or(Path::new("/")).join(path);
        let text = match (self.include)(&path) {
            Ok(Some(text)) => text,
            Ok(None) => {
                return self.wrong(
                    at,
                    format!("{}: there is no such file; remove the line", path.display()),
                );
            }
            Err(text) => return self.wrong(at, text),
        };
        let outer = std::mem::replace(&mut self.file, path);
        self.depth += 1;
        self.text(&text)?;
        self.depth -= 1;
        self.file = outer;
        Ok(())
    }

    fn mount_point(&mut self, entries: Vec<Entry>) -> Done {
        let (mut directory, mut workload, mut backends) = (None, None, None);
        for Entry { key, at, value } in entries {
            match key.as_str() {
                "mount_point" => {
                    let path = self.word(&key, &value)?;
                    directory = Some(self.given(value.at, self.absolute(value.at, &path)?));
                }
                "workload" => {
                    let word = self.word(&key, &value)?;
                    let now = original::workload(&word).unwrap_or(&word);
                    workload = Some(self.workload(value.at, now)?);
                }
                "backends" => backends = Some((value.at, self.original_backends(value)?)),
                _ => self.obsolete(&key, at),
            }
        }
        match directory {
            Some(directory) => {
                self.add(Managed { directory, workload, streams: None, backends: None }, backends)
            }
            // INVARIANT: whoever calls has seen the key.
            None => Ok(()),
        }
    }

    fn original_backends(&mut self, value: Node) -> Done<Vec<(At, PathBuf)>> {
        let mut dirs = Vec::new();
        match value.what {
            What::Null => {}
            What::Text(text) => {
                for one in text.split(',') {
                    dirs.push((value.at, self.location(value.at, one)?));
                }
            }
            What::List(nodes) => {
                for node in nodes {
                    match node.what {
                        What::Text(text) => dirs.push((node.at, self.location(node.at, &text)?)),
                        What::Map(entries) => {
                            for Entry { key, at, value } in entries {
                                match key.as_str() {
                                    "location" => {
                                        let text = self.word(&key, &value)?;
                                        dirs.push((value.at, self.location(value.at, &text)?));
                                    }
                                    "type" => self.warn(
                                        at,
                                        "canonical and shadow mean nothing here: all backends are \
                                         alike",
                                    ),
                                    _ => self.obsolete(&key, at),
                                }
                            }
                        }
                        _ => return self.wrong(node.at, "write - location: PATH"),
                    }
                }
            }
            What::Map(_) => return self.wrong(value.at, "backends is a list"),
        }
        Ok(dirs)
    }

    /// `posix:///path`, `posix:/path` or `/path`.
    fn location(&self, at: At, text: &str) -> Done<PathBuf> {
        let path = match text.split_once(':') {
            Some(("posix", rest)) => rest.strip_prefix("//").unwrap_or(rest),
            Some((kind, _)) if !kind.starts_with('/') => {
                return self.wrong(
                    at,
                    format!("{kind}: is no storage of this PLFS, which has directories alone"),
                );
            }
            _ => text,
        };
        self.absolute(at, path)
    }
}

/// Keys and paths may have line feeds in them; what is said of them, and the comments that are made
/// of it, must not.
fn on_one_line(text: &str) -> String {
    let escape = |c: char| match c.is_control() {
        true => c.escape_default().to_string(),
        false => c.to_string(),
    };
    text.chars().map(escape).collect()
}

/// A number with K, M, G or T behind it, as digits.
fn in_bytes(text: &str) -> Option<String> {
    let digits = text.get(..text.len().checked_sub(1)?)?;
    let shift = match text.as_bytes().last()? {
        b'K' => 10,
        b'M' => 20,
        b'G' => 30,
        b'T' => 40,
        _ => return None,
    };
    let number: u64 = digits.parse().ok()?;
    number.checked_mul(1 << shift).map(|number| number.to_string())
}

#[cfg(test)]
mod tests;
