//! Writes plfs-capi's include/plfs.h, for programs, and include/plfs_door.h, for preload/, mpi/ and
//! netcdf/: the head from headers/, then a section for each source file. Both are committed; `make
//! headers` writes them, and `make lint` fails if they are not what the sources say.

use std::error::Error;
use std::fs;
use std::path::Path;

/// The sections of each header, in order. Those of plfs.h are in the order in which a program uses
/// them.
const HEADERS: [(&str, &[&str]); 2] = [
    (
        "plfs.h",
        &["handle", "io", "commit", "attributes", "path", "dir", "pieces", "layout", "error"],
    ),
    (
        "plfs_door.h",
        &[
            "start",
            "managed",
            "default_dir",
            "door",
            "in_place",
            "names",
            "packed",
            "room",
            "flat",
            "index",
            "targets",
        ],
    ),
];

fn main() {
    let dir = Path::new(&std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it"))
        .with_file_name("plfs-capi");
    for changed in ["src", "headers", "include", "cbindgen.toml"] {
        println!("cargo::rerun-if-changed={}", dir.join(changed).display());
    }
    for (name, sections) in HEADERS {
        write(&dir, name, sections).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

fn write(dir: &Path, name: &str, sections: &[&str]) -> Result<(), Box<dyn Error>> {
    let mut text = String::new();
    for section in sections {
        let source = dir.join("src").join(section).with_extension("rs");
        let rust = fs::read_to_string(&source)?;
        let title = rust.lines().next().and_then(|line| line.strip_prefix("//! "));
        let title = title.ok_or_else(|| format!("{} has no title", source.display()))?;
        let config = cbindgen::Config::from_file(dir.join("cbindgen.toml"))?;
        let mut declarations = Vec::new();
        cbindgen::Builder::new()
            .with_config(config)
            .with_src(&source)
            .generate()?
            .write(&mut declarations);
        text += &format!("/* --- {title} --- */\n\n{}\n", String::from_utf8(declarations)?.trim());
        text += "\n";
    }
    // What is a matter of safety to Rust is what C expects of every caller.
    let text = text.replace(" * # Safety\n", " * Requires:\n");
    let head = fs::read_to_string(dir.join("headers").join(name).with_extension("h.in"))?;
    let text = head.replace("@SECTIONS@\n", &text);
    let header = dir.join("include").join(name);
    // What depends on the header is not built again if it is the same.
    if fs::read_to_string(&header).is_ok_and(|old| old == text) {
        return Ok(());
    }
    Ok(fs::write(header, text)?)
}
