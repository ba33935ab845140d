//! What kind of program a file is, and whether a preloaded library can help it.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use object::elf;
use object::read::elf::{ElfFile32, ElfFile64, FileHeader, ProgramHeader};
use object::{Architecture, Object, ObjectSection, ObjectSymbol, ReadCache};

/// Facts of a program or library that decide whether and how PLFS sees its calls.
#[derive(Debug, Default)]
pub struct Program {
    /// Whether it is built for this machine.
    pub native: bool,
    /// The dynamic linker; `None` for static programs and for libraries.
    pub interpreter: Option<String>,
    /// Whether it is a shared library, which names no dynamic linker.
    pub library: bool,
    /// Made by the Go compiler.
    pub go: bool,
    /// Functions that it takes from other libraries.
    pub imports: Vec<String>,
    /// Libraries that it needs.
    pub needed: Vec<String>,
    /// System call instructions in its own code, by a search that finds the usual forms.
    pub syscalls: usize,
}

/// What a file is to exec(2).
#[derive(Debug)]
pub enum Kind {
    /// A program or library.
    Elf(Program),
    /// A text that this interpreter runs.
    Script(PathBuf),
    /// Neither, or unreadable: exec(2) decides.
    Other,
}

/// Looks at a file. `deep` also reads its symbols and code.
pub fn look(path: &Path, deep: bool) -> Kind {
    let Ok(mut file) = std::fs::File::open(path) else { return Kind::Other };
    let mut start = Vec::new();
    if file.by_ref().take(512).read_to_end(&mut start).is_err() {
        return Kind::Other;
    }
    if let Some(line) = start.strip_prefix(b"#!") {
        let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let mut words = line
            .split(|byte| byte.is_ascii_whitespace())
            .filter(|word| !word.is_empty())
            .map(OsStr::from_bytes)
            .map(Path::new);
        return match (
            words.next(),
            words.find(|word| !word.as_os_str().as_bytes().starts_with(b"-")),
        ) {
            // env searches the PATH for its argument.
            (Some(env), Some(program)) if env.file_name() == Some(OsStr::new("env")) => {
                find(program).map_or(Kind::Other, Kind::Script)
            }
            (Some(interpreter), _) => Kind::Script(interpreter.to_path_buf()),
            (None, _) => Kind::Other,
        };
    }
    match start.get(..5) {
        Some(b"\x7fELF\x02") => elf64(file, deep).map_or(Kind::Other, Kind::Elf),
        Some(b"\x7fELF\x01") => {
            let cache = ReadCache::new(file);
            let dynamic = ElfFile32::<object::Endianness, _>::parse(&cache).is_ok_and(|elf| {
                elf.elf_program_headers()
                    .iter()
                    .any(|header| header.p_type(elf.endian()) == elf::PT_INTERP)
            });
            Kind::Elf(Program {
                native: false,
                interpreter: dynamic.then(|| "of another machine".into()),
                ..Program::default()
            })
        }
        _ => Kind::Other,
    }
}

fn elf64(file: std::fs::File, deep: bool) -> object::Result<Program> {
    let cache = ReadCache::new(file);
    let elf = ElfFile64::<object::Endianness, _>::parse(&cache)?;
    let endian = elf.endian();
    let mut program = Program { native: elf.architecture() == MACHINE, ..Program::default() };
    for header in elf.elf_program_headers() {
        if let Some(interpreter) = header.interpreter(endian, &cache)? {
            program.interpreter = Some(String::from_utf8_lossy(interpreter).into_owned());
        }
    }
    program.go = elf
        .sections()
        .any(|section| matches!(section.name(), Ok(".go.buildinfo" | ".note.go.buildid")));
    let table = elf.elf_dynamic_table()?;
    let named = table.iter().any(|entry| entry.tag == elf::DT_SONAME);
    let dynamic = elf.elf_header().e_type(endian) == elf::ET_DYN;
    let pie =
        table.iter().any(|entry| entry.tag == elf::DT_FLAGS_1 && entry.val & elf::DF_1_PIE.0 != 0);
    program.library =
        program.interpreter.is_none() && dynamic && (named || !pie) && !table.is_empty();
    if deep {
        program.imports = elf
            .dynamic_symbols()
            .filter(|symbol| symbol.is_undefined())
            .filter_map(|symbol| symbol.name().ok().map(String::from))
            .collect();
        program.imports.sort();
        program.imports.dedup();
        program.needed = elf
            .import_libraries()?
            .filter_map(|library| {
                library.ok().map(|library| String::from_utf8_lossy(library.name()).into_owned())
            })
            .collect();
        for section in elf.sections().filter(|section| section.kind() == object::SectionKind::Text)
        {
            program.syscalls += own_syscalls(section.data()?);
        }
    }
    Ok(program)
}

#[cfg(target_arch = "x86_64")]
const MACHINE: Architecture = Architecture::X86_64;
#[cfg(target_arch = "aarch64")]
const MACHINE: Architecture = Architecture::Aarch64;

/// Counts system call instructions whose surroundings make chance unlikely: a number is loaded just
/// before, or the result is compared with -4096 just after.
#[cfg(target_arch = "x86_64")]
fn own_syscalls(code: &[u8]) -> usize {
    let loads = |before: &[u8]| {
        before.len() >= 5
            && before[before.len() - 5] == 0xb8
            && before[before.len() - 2..] == [0, 0]
    };
    let compares = |after: &[u8]| {
        after.starts_with(&[0x48, 0x3d, 0, 0xf0]) || after.starts_with(&[0x48, 0x3d, 1, 0xf0])
    };
    (0..code.len().saturating_sub(1))
        .filter(|&i| {
            code[i..i + 2] == [0x0f, 0x05] && (loads(&code[..i]) || compares(&code[i + 2..]))
        })
        .count()
}

/// Counts `svc #0`.
#[cfg(target_arch = "aarch64")]
fn own_syscalls(code: &[u8]) -> usize {
    code.chunks_exact(4).filter(|word| **word == [0x01, 0, 0, 0xd4]).count()
}

/// The file that a command name means, as execvp(3) looks for it.
pub fn find(command: &Path) -> Option<PathBuf> {
    if command.as_os_str().as_bytes().contains(&b'/') {
        return Some(command.to_path_buf());
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    let runs = |file: &PathBuf| {
        std::fs::metadata(file).is_ok_and(|stat| stat.is_file() && stat.mode() & 0o111 != 0)
    };
    std::env::split_paths(&path).map(|dir| dir.join(command)).find(runs)
}

/// Why `plfs run` cannot help a program, and what to do instead: words that follow its name. `None`
/// if it can.
pub fn refusal(path: &Path) -> Option<String> {
    let mut path = path.to_path_buf();
    // The kernel follows interpreters of interpreters a few times, and refuses deeper ones.
    for _ in 0..5 {
        if let Some(why) = secure(&path) {
            return Some(why);
        }
        match look(&path, false) {
            Kind::Elf(program) => return refusal_of(&program),
            Kind::Script(interpreter) => path = interpreter,
            Kind::Other => return None,
        }
    }
    None
}

const INSTEAD: &str = "Show it the directory with `plfs mount`, or let it write outside of \
                       managed directories and move the file with `plfs import` and `plfs export`";

/// [`refusal`] by the program's build alone.
pub fn refusal_of(program: &Program) -> Option<String> {
    let musl =
        program.interpreter.as_ref().is_some_and(|interpreter| interpreter.contains("ld-musl"));
    let why = match program {
        Program { native: false, .. } => {
            "is built for another kind of machine than PLFS (32 bits?), so it cannot load PLFS's \
             library"
        }
        Program { go: true, .. } => {
            "is a Go program: it makes its system calls without the C library, so PLFS cannot catch \
             them"
        }
        Program { library: false, interpreter: None, .. } => {
            "is a static program: it loads no libraries, so PLFS cannot catch its calls. Link it \
             dynamically if you can"
        }
        _ if musl => {
            "is built for the C library musl, which cannot load PLFS's library. Build it for glibc \
             if you can"
        }
        _ => return None,
    };
    Some(format!("{why}. {INSTEAD}"))
}

/// Programs that get rights from their file lose `LD_PRELOAD`.
fn secure(path: &Path) -> Option<String> {
    let stat = std::fs::metadata(path).ok()?;
    let user = stat.mode() & 0o4000 != 0 && stat.uid() != rustix::process::getuid().as_raw();
    let group = stat.mode() & 0o2010 == 0o2010 && stat.gid() != rustix::process::getgid().as_raw();
    let capable = rustix::fs::getxattr(path, c"security.capability", &mut [0u8; 64][..]).is_ok()
        && !rustix::process::getuid().is_root();
    (user || group || capable).then(|| {
        format!(
            "gets rights from its file (set-user-id, set-group-id or capabilities), so the system \
             refuses to load other libraries into it. Run it as the user who has the rights. \
             {INSTEAD}"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_test_is_a_program_that_can_be_helped() {
        let Kind::Elf(program) = look(&std::env::current_exe().unwrap(), true) else {
            panic!("not an ELF file")
        };
        assert!(
            program.native && !program.go && !program.library && program.interpreter.is_some(),
            "{program:?}"
        );
        assert!(
            program.imports.iter().any(|name| name == "write")
                && program.needed.iter().any(|name| name.starts_with("libc.so"))
        );
        assert_eq!(refusal_of(&program), None);
    }

    #[test]
    fn each_kind_of_program_gets_its_own_reason() {
        let good = || Program {
            native: true,
            interpreter: Some("/lib64/ld-linux-x86-64.so.2".into()),
            ..Program::default()
        };
        let says = |program: Program, word: &str| {
            assert!(refusal_of(&program).is_some_and(|why| why.contains(word)), "{word}")
        };
        says(Program { interpreter: None, ..good() }, "static");
        says(Program { go: true, ..good() }, "Go program");
        says(Program { native: false, ..good() }, "another kind of machine");
        says(Program { interpreter: Some("/lib/ld-musl-x86_64.so.1".into()), ..good() }, "musl");
        assert_eq!(refusal_of(&Program { library: true, interpreter: None, ..good() }), None);
    }
}
