//! `plfs nc`: partitioned NetCDF datasets (docs/FORMAT.md section 14), without MPI or PnetCDF.

use std::fs::{File, OpenOptions};
use std::io::{BufReader, BufWriter, ErrorKind, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use indicatif::ProgressBar;

use crate::NcCommand;
use crate::out::{self, Fail, JsonPath, Out, count, in_bytes, say, several, show};
use header::{Header, Variable, name_of};
use length::Verdict;

mod header;
mod length;

/// Attributes of the layout, of the master and of a variable that is cut.
const OF_VARIABLES: [&str; 4] = ["num_partitions", "ndims_org", "dimids_org", "partition_dim"];

/// What all buffers of a merge have together.
const BUFFERS: usize = 64 << 20;

pub fn nc(out: &mut Out, what: NcCommand) -> Result<(), Fail> {
    match what {
        NcCommand::Ls { json, files } => each(&files, |file| ls(out, file, json)),
        NcCommand::Check { json, files } => each(&files, |file| check(out, file, json)),
        NcCommand::Merge { force, src, dst } => merge(&src, &dst, force),
    }
}

/// All of them, also if some fail.
fn each(files: &[PathBuf], mut work: impl FnMut(&Path) -> Result<(), Fail>) -> Result<(), Fail> {
    let mut failed = false;
    for file in files {
        match work(file) {
            Ok(()) => {}
            Err(Fail::Say(text)) => {
                say("nc", &text);
                failed = true;
            }
            Err(Fail::Printed) => failed = true,
            Err(other) => return Err(other),
        }
    }
    if failed { Err(Fail::Printed) } else { Ok(()) }
}

/// A variable that is cut.
struct Cut {
    id: usize,
    dims: Vec<usize>,
    /// Along which of them, into how many.
    dim: usize,
    parts: usize,
}

impl Cut {
    /// The part [low, low + length) of a dimension that partition k has.
    fn part(&self, length: u64, k: usize) -> (u64, u64) {
        let bound = |k: u64| (u128::from(length) * u128::from(k) / self.parts as u128) as u64;
        (bound(k as u64), bound(k as u64 + 1) - bound(k as u64))
    }
}

struct Partition {
    path: PathBuf,
    found: Result<(File, Header), String>,
}

#[derive(Default)]
struct Findings {
    faults: Vec<String>,
    /// What a dataset that is as it should be can have, too.
    notes: Vec<String>,
}

struct Dataset {
    path: PathBuf,
    file: File,
    master: Header,
    run: String,
    cuts: Vec<Cut>,
    partitions: Vec<Partition>,
}

fn open(path: &Path) -> Result<(File, Header), String> {
    let file = open_file(path)?;
    let header = Header::read(BufReader::new(&file))?;
    Ok((file, header))
}

/// Opens a regular file, without waiting for who might write to a FIFO.
fn open_file(path: &Path) -> Result<File, String> {
    let other = "it is no regular file; put back the file that belongs there";
    let now = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    match OpenOptions::new().read(true).custom_flags(now).open(path) {
        Ok(file) => match file.metadata() {
            Ok(found) if found.is_file() => Ok(file),
            Ok(_) => Err(other.into()),
            Err(error) => Err(out::without_numbers(&error.to_string())),
        },
        Err(error) if error.kind() == ErrorKind::NotFound => Err("it is missing".into()),
        // A socket.
        Err(_) if path.metadata().is_ok_and(|found| !found.is_file()) => Err(other.into()),
        Err(error) => Err(out::without_numbers(&error.to_string())),
    }
}

impl Dataset {
    fn open(path: &Path) -> Result<Dataset, Fail> {
        let wrong = |why: String| Fail::on("read", path, why);
        let (file, master) = open(path).map_err(wrong)?;
        let run = master.attribute("partition_run").and_then(header::Attribute::text);
        let Some(run) = run else {
            let text = match master.attribute("partition_index") {
                Some(_) => "it is a partition; name the master",
                None => "it is a NetCDF file that is not partitioned",
            };
            return Err(wrong(text.into()));
        };
        let mut partitions = Vec::new();
        while let Some(name) = master
            .attribute(&format!("partition_{}", partitions.len()))
            .and_then(header::Attribute::text)
        {
            let path = path.parent().unwrap_or(Path::new("")).join(name);
            partitions.push(Partition { found: open(&path), path });
        }
        let cuts = master
            .vars
            .iter()
            .enumerate()
            .filter(|(_, var)| var.dims.is_empty() && var.attribute(OF_VARIABLES[0]).is_some())
            .map(|(id, var)| {
                cut(&master, id, var, partitions.len()).ok_or_else(|| {
                    wrong(format!(
                        "what it says of the partitioned variable {} is damaged",
                        var.name()
                    ))
                })
            })
            .collect::<Result<_, _>>()?;
        Ok(Dataset { path: path.to_owned(), file, master, run, cuts, partitions })
    }

    /// The number that variable `cut` has in partition k.
    fn id_in(&self, cut: &Cut, k: usize) -> usize {
        self.cuts.iter().filter(|other| other.id < cut.id && k < other.parts).count()
    }

    fn is_record(&self, cut: &Cut) -> bool {
        self.master.dims[cut.dims[0]].length == 0
    }

    /// The most records that any of its files has; the number of one that has no record variables
    /// says nothing.
    fn records(&self) -> u64 {
        let headers = self.partitions.iter().filter_map(|p| p.found.as_ref().ok());
        let headers = headers.map(|(_, header)| header).chain([&self.master]);
        headers
            .filter(|header| header.has_records())
            .map(|header| header.records)
            .max()
            .unwrap_or(0)
    }

    /// The header of the dataset in one file.
    fn merged(&self) -> Header {
        let mut header = self.master.clone();
        header.records = self.records();
        header.attributes.retain(|attribute| {
            let name = String::from_utf8_lossy(&attribute.name).into_owned();
            name.strip_prefix("partition_").is_none_or(|rest| {
                rest != "run" && (rest.is_empty() || !rest.bytes().all(|b| b.is_ascii_digit()))
            })
        });
        for cut in &self.cuts {
            let var = &mut header.vars[cut.id];
            var.dims.clone_from(&cut.dims);
            var.attributes.retain(|attribute| !OF_VARIABLES.iter().any(|name| attribute.is(name)));
        }
        header
    }

    /// What is wrong, and what may be so, a line each.
    fn findings(&self) -> Findings {
        let mut findings = Findings::default();
        match self.verdict_on_master() {
            Verdict::Explained => {}
            Verdict::Note(text) => findings.notes.push(format!("the master: {text}")),
            Verdict::Fault(text) => findings.faults.push(format!("the master: {text}")),
        }
        let is_sound = findings.faults.is_empty();
        let (faults, records) = self.faults_of_partitions();
        findings.faults.extend(faults);
        if let (true, Some(most)) = (is_sound, records.iter().max()) {
            self.compare_records(*most, &mut findings);
        }
        findings
    }

    fn verdict_on_master(&self) -> Verdict {
        let length = match self.file.metadata() {
            Ok(metadata) => metadata.len(),
            Err(error) => return Verdict::Fault(out::without_numbers(&error.to_string())),
        };
        let has_records = self.master.has_records() || self.cuts.iter().any(|c| self.is_record(c));
        if self.master.records > 0 && !has_records {
            return Verdict::Fault(length::no_records(&self.master));
        }
        let is_whole = |id| self.cuts.iter().all(|cut| cut.id != id);
        length::of_master(&self.master, is_whole, length)
    }

    /// The master's number of records and that of the partitions, of which the largest is `most`.
    fn compare_records(&self, most: u64, findings: &mut Findings) {
        let said = self.master.records;
        let numbers =
            format!("the master says {}, the partitions {}", several(said, "record"), count(most));
        if said > most {
            findings.faults.push(format!(
                "{numbers}: the program that wrote them did not close the dataset, or one of these \
                 numbers is damaged"
            ));
        }
        if said >= most || !self.master.has_records() {
            return;
        }
        let length = self.file.metadata().map_or(0, |metadata| metadata.len());
        match self.master.records_within(length) {
            Some(there) if there > said => findings.faults.push(format!(
                "{numbers}, but the master's {length} bytes have {}: the program that wrote them \
                 did not close the dataset, or the master's number is damaged",
                count(there)
            )),
            _ => findings.notes.push(format!(
                "{numbers}: nobody has written the others of the variables that are whole; plfs \
                 nc merge takes zeros"
            )),
        }
    }

    /// What is wrong with partitions, and how many records those have that have record variables.
    fn faults_of_partitions(&self) -> (Vec<String>, Vec<u64>) {
        let mut faults = Vec::new();
        let mut records = Vec::new();
        for (k, partition) in self.partitions.iter().enumerate() {
            let mut fault = |text: String| {
                faults.push(format!("partition {k}, {}: {text}", show(&partition.path)));
            };
            let (file, header) = match &partition.found {
                Ok(found) => found,
                Err(why) => {
                    fault(why.clone());
                    continue;
                }
            };
            let run = header.attribute("partition_run").and_then(header::Attribute::text);
            let index = header.attribute("partition_index").and_then(header::Attribute::numbers);
            match (run, index) {
                (Some(run), _) if run != self.run => {
                    fault(format!("it is of another run ({run}) than the master ({})", self.run));
                    continue;
                }
                (Some(_), Some(index)) if index == [k as i64] => {}
                (Some(_), Some(index)) if index.len() == 1 => {
                    fault(format!("it is partition {}", index[0]));
                    continue;
                }
                _ => {
                    fault("it is a NetCDF file, but no partition".into());
                    continue;
                }
            }
            let mut has_records = false;
            for cut in self.cuts.iter().filter(|cut| k < cut.parts) {
                has_records |= self.is_record(cut);
                if !self.is_there(cut, k, header) {
                    let name = self.master.vars[cut.id].name();
                    fault(format!("it does not have the variable {name} as the master says"));
                }
            }
            if has_records {
                records.push(header.records);
            }
            match file.metadata() {
                Ok(metadata) => {
                    length::of_partition(header, metadata.len()).into_iter().for_each(&mut fault);
                }
                Err(error) => fault(out::without_numbers(&error.to_string())),
            }
        }
        if let (Some(least), Some(most)) = (records.iter().min(), records.iter().max())
            && least != most
        {
            faults.push(format!(
                "partitions have {least} to {most} records: the program that wrote them did not \
                 close the dataset"
            ));
        }
        (faults, records)
    }

    /// Does partition k have its part of a variable?
    fn is_there(&self, cut: &Cut, k: usize, header: &Header) -> bool {
        let master = &self.master.vars[cut.id];
        let Some(var) = header.vars.get(self.id_in(cut, k)) else { return false };
        let same = |d: usize, dim: &usize| {
            let expected = self.master.dims[cut.dims[d]].length;
            let part = if d == cut.dim { cut.part(expected, k).1 } else { expected };
            header.dims[*dim].length == part
        };
        let (low, length) = cut.part(self.master.dims[cut.dims[cut.dim]].length, k);
        let range = var.attributes.iter().find(|attribute| attribute.name.starts_with(b"range"));
        var.name == master.name
            && var.kind == master.kind
            && var.dims.len() == cut.dims.len()
            && var.dims.iter().enumerate().all(|(d, dim)| same(d, dim))
            && range.and_then(header::Attribute::numbers)
                == Some(vec![low as i64, (low + length) as i64 - 1])
    }
}

/// What the attributes of a variable say, if they can be right.
fn cut(master: &Header, id: usize, var: &Variable, partitions: usize) -> Option<Cut> {
    let numbers = |name| var.attribute(name)?.numbers();
    let one = |name| usize::try_from(*numbers(name)?.first()?).ok();
    let (parts, dim) = (one("num_partitions")?, one("partition_dim")?);
    let dims = numbers("dimids_org")?.into_iter().map(|dim| usize::try_from(dim).ok());
    let dims = dims.collect::<Option<Vec<_>>>()?;
    let is_sound = (1..=partitions).contains(&parts)
        && one("ndims_org")? == dims.len()
        && dim < dims.len()
        && dims.iter().all(|dim| *dim < master.dims.len())
        && dims.iter().skip(1).all(|dim| master.dims[*dim].length > 0)
        && master.dims[dims[dim]].length >= parts as u64;
    is_sound.then_some(Cut { id, dims, dim, parts })
}

#[derive(serde::Serialize)]
struct Listed {
    path: JsonPath,
    format: String,
    run: String,
    records: u64,
    partitions: Vec<ListedPartition>,
    variables: Vec<ListedVariable>,
}

#[derive(serde::Serialize)]
struct ListedPartition {
    path: JsonPath,
    /// Missing if it cannot be read.
    bytes: Option<u64>,
}

#[derive(serde::Serialize)]
struct ListedVariable {
    name: String,
    r#type: &'static str,
    dimensions: Vec<String>,
    lengths: Vec<u64>,
    /// Missing if the variable is whole.
    partitioned_along: Option<String>,
    partitions: Option<usize>,
}

fn ls(out: &mut Out, path: &Path, json: bool) -> Result<(), Fail> {
    let dataset = Dataset::open(path)?;
    let merged = dataset.merged();
    let name = |dim: &usize| String::from_utf8_lossy(&merged.dims[*dim].name).into_owned();
    let length = |dim: &usize| match merged.dims[*dim].length {
        0 => merged.records,
        length => length,
    };
    let variables = merged.vars.iter().enumerate().map(|(id, var)| {
        let cut = dataset.cuts.iter().find(|cut| cut.id == id);
        ListedVariable {
            name: var.name(),
            r#type: name_of(var.kind),
            dimensions: var.dims.iter().map(name).collect(),
            lengths: var.dims.iter().map(length).collect(),
            partitioned_along: cut.map(|cut| name(&cut.dims[cut.dim])),
            partitions: cut.map(|cut| cut.parts),
        }
    });
    let bytes = |p: &Partition| Some(p.found.as_ref().ok()?.0.metadata().ok()?.len());
    let listed = Listed {
        path: JsonPath::of(path),
        format: format!("CDF-{}", merged.version),
        run: dataset.run.clone(),
        records: merged.records,
        partitions: dataset
            .partitions
            .iter()
            .map(|p| ListedPartition { path: JsonPath::of(&p.path), bytes: bytes(p) })
            .collect(),
        variables: variables.collect(),
    };
    if json {
        return out.json(&listed);
    }
    let parts = several(dataset.partitions.len() as u64, "partition");
    out.line(format_args!("{}  {}, {parts}, run {}", show(path), listed.format, listed.run))?;
    for (k, partition) in dataset.partitions.iter().enumerate() {
        let size = bytes(partition).map_or("cannot be read".into(), in_bytes);
        out.line(format_args!("  {k}  {}  {size}", show(&partition.path)))?;
    }
    for var in &listed.variables {
        let dims = var.dimensions.iter().zip(&var.lengths);
        let dims = dims.map(|(name, length)| format!("{name}={length}")).collect::<Vec<_>>();
        let how = match (&var.partitioned_along, var.partitions) {
            (Some(dim), Some(parts)) => format!("along {dim} in {}", count(parts as u64)),
            _ => "whole".into(),
        };
        out.line(format_args!("  {} {}({})  {how}", var.r#type, var.name, dims.join(", ")))?;
    }
    Ok(())
}

#[derive(serde::Serialize)]
struct Checked {
    path: JsonPath,
    faults: Vec<String>,
    notes: Vec<String>,
}

fn check(out: &mut Out, path: &Path, json: bool) -> Result<(), Fail> {
    let Findings { faults, notes } = Dataset::open(path)?.findings();
    let is_sound = faults.is_empty();
    if json {
        out.json(&Checked { path: JsonPath::of(path), faults, notes })?;
    } else {
        for fault in faults {
            out.line(format_args!("{}: {fault}", show(path)))?;
        }
        for note in notes {
            out.line(format_args!("{}: note: {note}", show(path)))?;
        }
        if is_sound {
            out.line(format_args!("{}: sound", show(path)))?;
        }
    }
    if is_sound { Ok(()) } else { Err(Fail::Printed) }
}

/// A file of which pieces are read in order, many of them small.
struct Window<'a> {
    file: &'a File,
    path: &'a Path,
    room: usize,
    start: u64,
    bytes: Vec<u8>,
}

impl<'a> Window<'a> {
    fn new(file: &'a File, path: &'a Path, room: usize) -> Window<'a> {
        Window { file, path, room, start: 0, bytes: Vec::new() }
    }

    /// Bytes [at, at + n) go to `to`; those behind the end are zeros.
    fn copy(&mut self, mut at: u64, mut n: u64, to: &mut Target) -> Result<(), Fail> {
        while n > 0 {
            let behind = at.checked_sub(self.start).filter(|skip| *skip < self.bytes.len() as u64);
            let Some(skip) = behind else {
                self.fill(at)?;
                continue;
            };
            let have = &self.bytes[skip as usize..];
            let take = have.len().min(usize::try_from(n).unwrap_or(usize::MAX));
            to.write(&have[..take])?;
            at += take as u64;
            n -= take as u64;
        }
        Ok(())
    }

    fn fill(&mut self, at: u64) -> Result<(), Fail> {
        self.start = at;
        self.bytes.clear();
        self.bytes.resize(self.room, 0);
        let mut have = 0;
        while have < self.room {
            match self.file.read_at(&mut self.bytes[have..], at + have as u64) {
                Ok(0) => break,
                Ok(n) => have += n,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Fail::on("read", self.path, error)),
            }
        }
        Ok(())
    }
}

struct Target<'a> {
    file: BufWriter<&'a File>,
    path: &'a Path,
    at: u64,
    bar: ProgressBar,
    stop: &'a std::sync::atomic::AtomicBool,
}

impl Target<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<(), Fail> {
        self.file.write_all(bytes).map_err(|error| Fail::on("write", self.path, error))?;
        self.at += bytes.len() as u64;
        if self.stop.load(Ordering::Relaxed) {
            return Err(Fail::Say("ended by a signal; nothing was made".into()));
        }
        self.bar.set_position(self.at);
        Ok(())
    }

    fn pad(&mut self, to: u64) -> Result<(), Fail> {
        while self.at < to {
            self.write(&[0; 4][..(to - self.at).min(4) as usize])?;
        }
        Ok(())
    }
}

fn merge(src: &Path, dst: &Path, force: bool) -> Result<(), Fail> {
    let dataset = Dataset::open(src)?;
    let Findings { faults, notes } = dataset.findings();
    for fault in &faults {
        say("nc", &format!("{}: {fault}", show(src)));
    }
    if !faults.is_empty() {
        return Err(Fail::Printed);
    }
    for note in &notes {
        say("nc", &format!("{}: note: {note}", show(src)));
    }
    let mut header = dataset.merged();
    let unsound = || Fail::on("read", src, "its header is damaged");
    let records_at = header.place().ok_or_else(unsound)?;
    if header.version != dataset.master.version {
        say(
            "nc",
            &format!(
                "note: in one file it does not fit into CDF-{}; {} is CDF-{}",
                dataset.master.version,
                show(dst),
                header.version
            ),
        );
    }
    let (temporary, file) = create(dst, force)?;
    let stop = out::stop()?;
    let done = write(&dataset, &header, records_at, &temporary, &file, &stop).and_then(|()| {
        file.sync_all().map_err(|error| Fail::on("write", dst, error))?;
        // In one step; without --force the name must still be free.
        let made = match force {
            true => std::fs::rename(&temporary, dst),
            false => std::fs::hard_link(&temporary, dst),
        };
        made.map_err(|error| Fail::on("create", dst, error))
    });
    let _ = std::fs::remove_file(&temporary);
    done
}

/// A file without its name yet.
fn create(dst: &Path, force: bool) -> Result<(PathBuf, File), Fail> {
    if !force && dst.symlink_metadata().is_ok() {
        return Err(Fail::on("create", dst, "it is there; --force replaces it"));
    }
    let name = dst.file_name().ok_or_else(|| Fail::on("create", dst, "it is no name of a file"))?;
    let mut hidden = std::ffi::OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".merge.{}", std::process::id()));
    let temporary = dst.with_file_name(hidden);
    let file = OpenOptions::new().write(true).create_new(true).open(&temporary);
    Ok((temporary, file.map_err(|error| Fail::on("create", dst, error))?))
}

fn write(
    dataset: &Dataset,
    header: &Header,
    records_at: u64,
    path: &Path,
    file: &File,
    stop: &std::sync::atomic::AtomicBool,
) -> Result<(), Fail> {
    let unsound = || Fail::on("read", &dataset.path, "its header is damaged");
    let record_bytes = header.record_bytes().ok_or_else(unsound)?;
    let all = record_bytes
        .checked_mul(header.records)
        .and_then(|records| records.checked_add(records_at))
        .ok_or_else(unsound)?;
    let bar = out::progress(all);
    let room = (BUFFERS / (dataset.partitions.len() + 1)).clamp(4 << 10, 4 << 20);
    let mut target =
        Target { file: BufWriter::with_capacity(4 << 20, file), path, at: 0, bar, stop };
    target.write(&header.encode())?;
    let mut master = Window::new(&dataset.file, &dataset.path, room);
    let mut parts = Vec::new();
    for partition in &dataset.partitions {
        let (file, header) = partition.found.as_ref().map_err(|_| unsound())?;
        let records = header.record_bytes().ok_or_else(unsound)?;
        parts.push((Window::new(file, &partition.path, room), header, records));
    }
    let records_of_master = dataset.master.record_bytes().ok_or_else(unsound)?;
    // Fixed variables, then record by record.
    for record in std::iter::once(None).chain((0..header.records).map(Some)) {
        for (id, var) in header.vars.iter().enumerate() {
            if header.is_record(var) != record.is_some() {
                continue;
            }
            let record = record.unwrap_or(0);
            let bytes = header.bytes_of(var).ok_or_else(unsound)?;
            target.pad(var.begin + record * record_bytes)?;
            let Some(cut) = dataset.cuts.iter().find(|cut| cut.id == id) else {
                let from = dataset.master.vars[id].begin + record * records_of_master;
                let is_there = !header.is_record(var) || record < dataset.master.records;
                match is_there {
                    true => master.copy(from, bytes, &mut target)?,
                    false => target.pad(target.at + bytes)?,
                }
                continue;
            };
            // The boxes before the cut dimension one after the other, of each all parts.
            let is_record = usize::from(header.is_record(var));
            let length = |d: usize| header.dims[cut.dims[d]].length;
            let outer: u64 = (is_record..cut.dim).map(length).product();
            let inner: u64 = (cut.dim + 1..cut.dims.len()).map(length).product::<u64>()
                * header::size_of(var.kind);
            for index in 0..outer {
                for (k, (window, of, records)) in parts.iter_mut().enumerate().take(cut.parts) {
                    let run = cut.part(length(cut.dim), k).1 * inner;
                    let begin = of.vars[dataset.id_in(cut, k)].begin;
                    window.copy(begin + record * *records + index * run, run, &mut target)?;
                }
            }
        }
    }
    target.pad(all)?;
    target.file.flush().map_err(|error| Fail::on("write", path, error))?;
    target.bar.finish_and_clear();
    Ok(())
}
