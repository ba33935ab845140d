//! Man pages, made from the same flags and texts as `--help`.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

/// Writes a page for `command` and for each of its subcommands to `dir`.
pub fn pages(command: Command, dir: &Path) -> io::Result<()> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    tree(&command, dir)
}

fn tree(command: &Command, dir: &Path) -> io::Result<()> {
    page(command, dir)?;
    shown(command).try_for_each(|command| tree(command, dir))
}

/// The subcommands that users are to see.
fn shown(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|command| !command.is_hide_set())
}

fn about(command: &Command) -> String {
    command.get_about().map(ToString::to_string).unwrap_or_default()
}

fn page(command: &Command, dir: &Path) -> io::Result<()> {
    let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
    // What stands below the flags in `--help` has its own headings.
    let below = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let man = Man::new(command.clone())
        .title(name.to_uppercase())
        .manual("PLFS")
        .source(concat!("plfs ", env!("CARGO_PKG_VERSION")));
    let mut out = BufWriter::new(File::create(dir.join(format!("{name}.1")))?);
    man.render_title(&mut out)?;
    let mut head = Roff::new();
    head.control("SH", ["NAME"])
        .text([roman(format!("{name} - {}", about(command)))])
        .control("SH", ["SYNOPSIS"]);
    let usage = command.clone().render_usage().to_string();
    let (program, arguments) =
        usage.trim_start_matches("Usage: ").split_at(command.get_bin_name().unwrap_or(&name).len());
    head.text([bold(program), roman(arguments)]).to_writer(&mut out)?;
    man.render_description_section(&mut out)?;
    man.render_options_section(&mut out)?;
    if command.has_subcommands() {
        let mut list = Roff::new();
        list.control("SH", ["COMMANDS"]);
        for command in shown(command) {
            list.control("TP", [])
                .text([bold(format!("{name}-{}(1)", command.get_name()))])
                .text([roman(about(command))]);
        }
        list.to_writer(&mut out)?;
    }
    for part in below.split("\n\n").filter(|part| !part.is_empty()) {
        let (heading, lines) = part.split_once(":\n").unwrap_or(("Notes", part));
        let heading = if heading == "Example" { "Examples" } else { heading };
        let mut section = Roff::new();
        section.control("SH", [heading.to_uppercase().as_str()]).control("nf", []);
        lines.lines().for_each(|line| {
            section.text([roman(line.strip_prefix("  ").unwrap_or(line))]);
        });
        section.control("fi", []).to_writer(&mut out)?;
    }
    if name != "plfs" {
        Roff::new()
            .control("SH", ["SEE ALSO"])
            .text([bold("plfs"), roman("(1)")])
            .to_writer(&mut out)?;
    }
    out.flush()
}
