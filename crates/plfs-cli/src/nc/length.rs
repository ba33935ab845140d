//! Is what the header of a file says explained by the bytes that are there? PnetCDF leaves a file
//! as long as what was written of it, so one may be shorter than its header says; but a record
//! that is counted has a byte at least, and nothing ends inside of a number.

use super::header::{CDF5, Header, padded, size_of};
use crate::out::{count, several};

/// Names of variables that one line has.
const NAMES: usize = 3;

/// What is wrong for sure, and what may be so.
#[derive(Debug, PartialEq)]
pub enum Verdict {
    Explained,
    Note(String),
    Fault(String),
}

/// The variable whose size in the header is not that of its dimensions, and these two sizes.
fn unequal(header: &Header) -> Option<(String, u64, u64)> {
    header.vars.iter().find_map(|var| {
        let bytes = header.bytes_of(var).unwrap_or(u64::MAX);
        // What has no room in CDF-1 and CDF-2 is written as some largest number.
        let is_unsaid = header.version != CDF5 && padded(bytes) > i32::MAX as u64;
        let is_equal = is_unsaid || [bytes, padded(bytes)].contains(&var.size);
        (!is_equal).then(|| (var.name(), bytes, var.size))
    })
}

fn unequal_sizes(header: &Header) -> Option<String> {
    let (name, bytes, size) = unequal(header)?;
    Some(format!(
        "its header is damaged: the variable {name} has {bytes} bytes by its dimensions, and \
         {size} by its size"
    ))
}

/// What is wrong with a header that counts records and has no variable with records.
pub fn no_records(header: &Header) -> String {
    format!(
        "its header is damaged: it says {}, and no variable has records",
        several(header.records, "record")
    )
}

/// Partitions are as long as their headers say once the dataset is closed.
pub fn of_partition(header: &Header, length: u64) -> Option<String> {
    if header.records > 0 && !header.has_records() {
        return Some(no_records(header));
    }
    if let Some(text) = unequal_sizes(header).or_else(|| too_many_records(header, length)) {
        return Some(text);
    }
    match header.end() {
        None => Some("its header is damaged".into()),
        Some(end) if length < end => Some(format!("it is truncated: {length} of {end} bytes")),
        _ => None,
    }
}

/// Of a master of `length` bytes, in which only variables that `is_whole` have data.
pub fn of_master(header: &Header, is_whole: impl Fn(usize) -> bool, length: u64) -> Verdict {
    if let Some(text) = unequal_sizes(header).or_else(|| too_many_records(header, length)) {
        return Verdict::Fault(text);
    }
    let Some(end) = header.end_of(&is_whole) else {
        return Verdict::Fault("its header is damaged".into());
    };
    if length >= end {
        return Verdict::Explained;
    }
    let whole = |id: &usize| is_whole(*id);
    if let Some(id) = (0..header.vars.len()).filter(whole).find(|id| is_torn(header, *id, length)) {
        return Verdict::Fault(format!(
            "it is truncated: it has {} of {end} bytes, and ends inside of a number of the \
             variable {}; put a complete copy there",
            length,
            header.vars[id].name()
        ));
    }
    let lacking = (0..header.vars.len())
        .filter(whole)
        .filter(|id| header.end_of(|other| other == *id).is_some_and(|end| end > length));
    Verdict::Note(format!(
        "it has {length} of {end} bytes; what is missing is of {}. Nobody has written it, or the \
         file was truncated, which cannot be told apart; plfs nc merge takes zeros",
        names(header, &lacking.collect::<Vec<_>>())
    ))
}

/// A count of records that the file has no room for.
fn too_many_records(header: &Header, length: u64) -> Option<String> {
    let there = header.records_within(length)?;
    (header.records > there).then(|| {
        format!(
            "its header says {}, and in its {length} bytes there {} {}: it is truncated, or the \
             number in its bytes 4 to {} is damaged",
            several(header.records, "record"),
            if there == 1 { "is" } else { "are" },
            count(there),
            if header.version == CDF5 { 11 } else { 7 }
        )
    })
}

/// Does a file of `length` bytes end inside of a number of this variable?
fn is_torn(header: &Header, id: usize, length: u64) -> bool {
    let var = &header.vars[id];
    let (Some(bytes), Some(behind)) = (header.bytes_of(var), length.checked_sub(var.begin)) else {
        return false;
    };
    let at = match header.record_bytes() {
        Some(step) if header.is_record(var) && step > 0 => behind % step,
        _ => behind,
    };
    at < bytes && !at.is_multiple_of(size_of(var.kind).max(1))
}

fn names(header: &Header, ids: &[usize]) -> String {
    let names = ids.iter().take(NAMES).map(|id| header.vars[*id].name()).collect::<Vec<_>>();
    match ids.len().saturating_sub(NAMES) {
        0 => names.join(", "),
        more => format!("{} and {}", names.join(", "), several(more as u64, "other variable")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::header::{CDF1, Dimension, Variable};
    use super::*;

    /// `a` and `b` of 7 shorts, the first with its place in a file only, and two record variables.
    fn sample(version: u8, records: u64) -> Header {
        let dim = |name: &str, length| Dimension { name: name.into(), length };
        let var = |name: &str, dims: &[usize]| Variable {
            name: name.into(),
            dims: dims.to_vec(),
            attributes: Vec::new(),
            kind: 3,
            size: 0,
            begin: 0,
        };
        let vars = vec![var("a", &[1]), var("b", &[1]), var("r", &[0, 1]), var("s", &[0, 1])];
        let dims = vec![dim("t", 0), dim("y", 7)];
        let mut header = Header { version, records, dims, attributes: Vec::new(), vars };
        header.place().unwrap();
        header
    }

    fn is_fault(verdict: &Verdict, text: &str) -> bool {
        matches!(verdict, Verdict::Fault(found) if found.contains(text))
    }

    #[test]
    fn what_nobody_wrote_is_noted_and_half_a_number_is_a_fault() {
        let header = sample(CDF1, 0);
        let (a, b) = (header.vars[0].begin, header.vars[1].begin);
        assert_eq!(header.end(), Some(b + 14));
        let of = |length| of_master(&header, |id| id > 0, length);
        assert_eq!(of(b + 14), Verdict::Explained);
        // As PnetCDF leaves it where nobody wrote b, half of it, or nothing at all.
        for length in [a, b, b + 6] {
            let Verdict::Note(text) = of(length) else { panic!("{length}: {:?}", of(length)) };
            assert!(text.contains(&format!("it has {length} of {} bytes", b + 14)), "{text}");
            assert!(text.contains("is missing is of b."), "{text}");
        }
        assert!(is_fault(&of(b + 7), "inside of a number of the variable b"), "{:?}", of(b + 7));
        // A variable that others have needs no bytes.
        assert_eq!(of_master(&header, |id| id == 0, a + 14), Verdict::Explained);
        assert_eq!(of_master(&header, |_| false, a), Verdict::Explained);
    }

    #[test]
    fn a_record_that_is_counted_has_a_byte() {
        for version in [CDF1, CDF5] {
            let mut header = sample(version, 3);
            let begin = header.vars[2].begin;
            let of = |header: &Header, length| of_master(header, |_| true, length);
            assert_eq!(of(&header, begin + 2 * 32 + 16 + 14), Verdict::Explained);
            // Nobody wrote the last of s, or of r.
            assert!(matches!(of(&header, begin + 2 * 32 + 14), Verdict::Note(_)));
            assert!(matches!(of(&header, begin + 2 * 32 + 2), Verdict::Note(_)));
            assert!(is_fault(&of(&header, begin + 2 * 32 + 19), "number of the variable s"));
            let text = format!("its header says 3 records, and in its {} bytes", begin + 64);
            assert!(is_fault(&of(&header, begin + 64), &text), "{:?}", of(&header, begin + 64));
            assert!(is_fault(&of(&header, 8), "there are 0"));
            header.records = 255 << 56;
            assert!(is_fault(&of(&header, begin + 3 * 32), "there are 3"));
            assert!(of_partition(&header, begin + 3 * 32).unwrap().contains("there are 3"));
        }
    }

    #[test]
    fn a_length_that_its_size_does_not_have_is_a_fault() {
        let mut header = sample(CDF5, 1);
        let end = header.end().unwrap();
        assert_eq!(of_partition(&header, end), None);
        assert_eq!(
            of_partition(&header, end - 1),
            Some(format!("it is truncated: {} of {end} bytes", end - 1))
        );
        header.dims[1].length = 7 << 40;
        assert!(is_fault(&of_master(&header, |_| true, end), "bytes by its dimensions, and 16 by"));
        assert!(of_partition(&header, end).is_some());
        header.vars.clear();
        assert!(of_partition(&header, end).unwrap().contains("no variable has records"));
    }
}
