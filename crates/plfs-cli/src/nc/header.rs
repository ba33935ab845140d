//! The header of a NetCDF file of the classic formats, CDF-1, CDF-2 and CDF-5: bytes to structs and
//! back. Numbers are big-endian, names and values are padded to four bytes.

use std::io::Read;

/// Classic formats by their version byte.
pub const CDF1: u8 = 1;
pub const CDF2: u8 = 2;
pub const CDF5: u8 = 5;

const DIMENSIONS: u32 = 10;
const VARIABLES: u32 = 11;
const ATTRIBUTES: u32 = 12;

/// A header may be large, but not what no file has: attributes hold texts, not data.
const MOST: u64 = 1 << 30;

#[derive(Clone, Debug, PartialEq)]
pub struct Attribute {
    pub name: Vec<u8>,
    pub kind: u32,
    /// Elements of `kind`; without padding.
    pub value: Vec<u8>,
}

impl Attribute {
    pub fn is(&self, name: &str) -> bool {
        self.name == name.as_bytes()
    }

    /// A text, or numbers as such.
    pub fn text(&self) -> Option<String> {
        (self.kind == 2).then(|| String::from_utf8_lossy(&self.value).into_owned())
    }

    pub fn numbers(&self) -> Option<Vec<i64>> {
        let int = |bytes: &[u8]| Some(i64::from(i32::from_be_bytes(bytes.try_into().ok()?)));
        let long = |bytes: &[u8]| Some(i64::from_be_bytes(bytes.try_into().ok()?));
        match self.kind {
            4 => self.value.chunks(4).map(int).collect(),
            10 => self.value.chunks(8).map(long).collect(),
            _ => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Dimension {
    pub name: Vec<u8>,
    /// 0: unlimited.
    pub length: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Variable {
    pub name: Vec<u8>,
    pub dims: Vec<usize>,
    pub attributes: Vec<Attribute>,
    pub kind: u32,
    /// Bytes, of a record variable those of a record, with padding: as the header says it. What
    /// [`Header::bytes_of`] gives is right.
    pub size: u64,
    pub begin: u64,
}

impl Variable {
    pub fn attribute(&self, name: &str) -> Option<&Attribute> {
        self.attributes.iter().find(|attribute| attribute.is(name))
    }

    pub fn name(&self) -> String {
        String::from_utf8_lossy(&self.name).into_owned()
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Header {
    pub version: u8,
    pub records: u64,
    pub dims: Vec<Dimension>,
    pub attributes: Vec<Attribute>,
    pub vars: Vec<Variable>,
}

/// Bytes of an element, by the number of its type; 0 if there is none.
pub fn size_of(kind: u32) -> u64 {
    match kind {
        1 | 2 | 7 => 1,
        3 | 8 => 2,
        4 | 5 | 9 => 4,
        6 | 10 | 11 => 8,
        _ => 0,
    }
}

pub fn name_of(kind: u32) -> &'static str {
    const NAMES: [&str; 12] = [
        "?", "byte", "char", "short", "int", "float", "double", "ubyte", "ushort", "uint", "int64",
        "uint64",
    ];
    NAMES.get(kind as usize).copied().unwrap_or("?")
}

pub fn padded(bytes: u64) -> u64 {
    bytes.div_ceil(4).saturating_mul(4)
}

struct Source<R> {
    from: R,
    version: u8,
    left: u64,
}

impl<R: Read> Source<R> {
    fn bytes(&mut self, n: u64) -> Result<Vec<u8>, String> {
        self.left = self.left.checked_sub(n).ok_or("its header says that it is larger than any")?;
        let mut bytes = Vec::new();
        // What is not there is not allocated either.
        match self.from.by_ref().take(n).read_to_end(&mut bytes) {
            Ok(read) if read as u64 == n => Ok(bytes),
            Ok(_) => Err("it ends in its header".into()),
            Err(error) => Err(error.to_string()),
        }
    }

    fn u32(&mut self) -> Result<u32, String> {
        let bytes = self.bytes(4)?;
        Ok(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    fn u64(&mut self) -> Result<u64, String> {
        let bytes = self.bytes(8)?;
        Ok(u64::from_be_bytes(bytes.try_into().map_err(|_| "it ends in its header")?))
    }

    /// A count or a length.
    fn number(&mut self) -> Result<u64, String> {
        if self.version == CDF5 { self.u64() } else { Ok(u64::from(self.u32()?)) }
    }

    fn padded(&mut self, n: u64) -> Result<Vec<u8>, String> {
        let mut bytes = self.bytes(padded(n))?;
        bytes.truncate(n as usize);
        Ok(bytes)
    }

    fn name(&mut self) -> Result<Vec<u8>, String> {
        let n = self.number()?;
        self.padded(n)
    }

    /// How many elements a list has.
    fn list(&mut self, tag: u32) -> Result<u64, String> {
        match (self.u32()?, self.number()?) {
            (0, 0) => Ok(0),
            (found, n) if found == tag => Ok(n),
            _ => Err("its header is damaged".into()),
        }
    }

    fn attributes(&mut self) -> Result<Vec<Attribute>, String> {
        let mut list = Vec::new();
        for _ in 0..self.list(ATTRIBUTES)? {
            let (name, kind, n) = (self.name()?, self.u32()?, self.number()?);
            let bytes = n.checked_mul(size_of(kind)).filter(|_| size_of(kind) > 0);
            let value = self.padded(bytes.ok_or("an attribute has no known type")?)?;
            list.push(Attribute { name, kind, value });
        }
        Ok(list)
    }

    fn dims(&mut self) -> Result<Vec<Dimension>, String> {
        let mut list = Vec::new();
        for _ in 0..self.list(DIMENSIONS)? {
            list.push(Dimension { name: self.name()?, length: self.number()? });
        }
        Ok(list)
    }

    fn vars(&mut self, ndims: usize) -> Result<Vec<Variable>, String> {
        let mut list = Vec::new();
        for _ in 0..self.list(VARIABLES)? {
            let name = self.name()?;
            let mut dims = Vec::new();
            for _ in 0..self.number()? {
                let dim = self.number()? as usize;
                dims.push(Some(dim).filter(|dim| *dim < ndims).ok_or("a dimension is not there")?);
            }
            let (attributes, kind) = (self.attributes()?, self.u32()?);
            if size_of(kind) == 0 {
                return Err("a variable has no known type".into());
            }
            let size = self.number()?;
            let begin = if self.version == CDF1 { u64::from(self.u32()?) } else { self.u64()? };
            list.push(Variable { name, dims, attributes, kind, size, begin });
        }
        Ok(list)
    }
}

impl Header {
    pub fn read(from: impl Read) -> Result<Header, String> {
        let mut source = Source { from, version: CDF1, left: MOST };
        let magic = source.bytes(4).map_err(|_| "it is no NetCDF file of a classic format")?;
        let version = magic[3];
        if &magic[..3] != b"CDF" || ![CDF1, CDF2, CDF5].contains(&version) {
            return Err("it is no NetCDF file of a classic format".into());
        }
        source.version = version;
        let (records, dims, attributes) = (source.number()?, source.dims()?, source.attributes()?);
        let vars = source.vars(dims.len())?;
        let header = Header { version, records, dims, attributes, vars };
        let unlimited = header.dims.iter().filter(|dim| dim.length == 0).count();
        let misplaced =
            |var: &Variable| var.dims.iter().skip(1).any(|dim| header.dims[*dim].length == 0);
        if unlimited > 1 || header.vars.iter().any(misplaced) {
            return Err("its dimensions are damaged".into());
        }
        Ok(header)
    }

    pub fn attribute(&self, name: &str) -> Option<&Attribute> {
        self.attributes.iter().find(|attribute| attribute.is(name))
    }

    pub fn is_record(&self, var: &Variable) -> bool {
        var.dims.first().is_some_and(|dim| self.dims[*dim].length == 0)
    }

    /// Bytes of a variable, of a record variable those of a record; without padding.
    pub fn bytes_of(&self, var: &Variable) -> Option<u64> {
        let lengths = var.dims.iter().map(|dim| self.dims[*dim].length);
        lengths.skip(usize::from(self.is_record(var))).try_fold(size_of(var.kind), u64::checked_mul)
    }

    /// Bytes from one record to the next; one variable alone is not padded.
    pub fn record_bytes(&self) -> Option<u64> {
        let of = |var: &&Variable| self.is_record(var);
        match self.vars.iter().filter(of).collect::<Vec<_>>().as_slice() {
            [var] => self.bytes_of(var),
            vars => {
                vars.iter().try_fold(0u64, |sum, var| sum.checked_add(padded(self.bytes_of(var)?)))
            }
        }
    }

    pub fn has_records(&self) -> bool {
        self.vars.iter().any(|var| self.is_record(var))
    }

    /// Of how many records a file of `length` bytes has something.
    pub fn records_within(&self, length: u64) -> Option<u64> {
        let records = self.vars.iter().filter(|var| self.is_record(var));
        let begin = records.map(|var| var.begin).min()?;
        let step = self.record_bytes().filter(|step| *step > 0)?;
        Some(length.saturating_sub(begin).div_ceil(step))
    }

    /// Where the data ends.
    pub fn end(&self) -> Option<u64> {
        self.end_of(|_| true)
    }

    /// Where the data of some variables ends.
    pub fn end_of(&self, is_counted: impl Fn(usize) -> bool) -> Option<u64> {
        let mut end = 0;
        for (_, var) in self.vars.iter().enumerate().filter(|(id, _)| is_counted(*id)) {
            let bytes = self.bytes_of(var)?;
            let last = match (self.is_record(var), self.records) {
                (true, 0) => continue,
                (true, n) => self.record_bytes()?.checked_mul(n - 1)?.checked_add(var.begin)?,
                (false, _) => var.begin,
            };
            end = end.max(last.checked_add(bytes)?);
        }
        Some(end)
    }

    /// Gives the variables their places behind the header, and takes the version that has room for
    /// them, this one or a higher one. Gives where the records begin.
    pub fn place(&mut self) -> Option<u64> {
        loop {
            let mut at = padded(self.encode().len() as u64);
            let mut is_large = false;
            for pass in [false, true] {
                for i in 0..self.vars.len() {
                    let bytes = self.bytes_of(&self.vars[i])?;
                    if self.is_record(&self.vars[i]) != pass {
                        continue;
                    }
                    (self.vars[i].size, self.vars[i].begin) = (padded(bytes), at);
                    at = at.checked_add(padded(bytes))?;
                    is_large |= bytes > u64::from(u32::MAX) - 3;
                }
            }
            let far = self.vars.iter().map(|var| var.begin).max().unwrap_or(0);
            let needed = match (is_large, far > i32::MAX as u64) {
                (true, _) => CDF5,
                (false, true) => CDF2,
                (false, false) => CDF1,
            };
            let many = self.records > u64::from(u32::MAX) - 1;
            if self.version >= needed && (!many || self.version == CDF5) {
                let records = self.vars.iter().filter(|var| self.is_record(var));
                return Some(records.map(|var| var.begin).min().unwrap_or(at));
            }
            self.version = if many { CDF5 } else { needed };
        }
    }

    fn number(&self, out: &mut Vec<u8>, n: u64) {
        match self.version {
            CDF5 => out.extend(n.to_be_bytes()),
            // A size that has no room is written as the largest number; readers compute it.
            _ => out.extend(u32::try_from(n).unwrap_or(u32::MAX).to_be_bytes()),
        }
    }

    fn list(&self, out: &mut Vec<u8>, tag: u32, n: usize) {
        out.extend(if n == 0 { 0 } else { tag }.to_be_bytes());
        self.number(out, n as u64);
    }

    fn padded(&self, out: &mut Vec<u8>, bytes: &[u8]) {
        out.extend(bytes);
        out.resize(padded(out.len() as u64) as usize, 0);
    }

    fn name(&self, out: &mut Vec<u8>, name: &[u8]) {
        self.number(out, name.len() as u64);
        self.padded(out, name);
    }

    fn put_attributes(&self, out: &mut Vec<u8>, list: &[Attribute]) {
        self.list(out, ATTRIBUTES, list.len());
        for attribute in list {
            self.name(out, &attribute.name);
            out.extend(attribute.kind.to_be_bytes());
            self.number(out, attribute.value.len() as u64 / size_of(attribute.kind).max(1));
            self.padded(out, &attribute.value);
        }
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![b'C', b'D', b'F', self.version];
        self.number(&mut out, self.records);
        self.list(&mut out, DIMENSIONS, self.dims.len());
        for dim in &self.dims {
            self.name(&mut out, &dim.name);
            self.number(&mut out, dim.length);
        }
        self.put_attributes(&mut out, &self.attributes);
        self.list(&mut out, VARIABLES, self.vars.len());
        for var in &self.vars {
            self.name(&mut out, &var.name);
            self.number(&mut out, var.dims.len() as u64);
            for dim in &var.dims {
                self.number(&mut out, *dim as u64);
            }
            self.put_attributes(&mut out, &var.attributes);
            out.extend(var.kind.to_be_bytes());
            self.number(&mut out, padded(self.bytes_of(var).unwrap_or(0)));
            match self.version {
                CDF1 => out.extend((var.begin as u32).to_be_bytes()),
                _ => out.extend(var.begin.to_be_bytes()),
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(version: u8) -> Header {
        let dim = |name: &str, length| Dimension { name: name.into(), length };
        let units = Attribute { name: b"units".to_vec(), kind: 2, value: b"m/s".to_vec() };
        let range =
            Attribute { name: b"range".to_vec(), kind: 4, value: vec![0, 0, 0, 1, 0, 0, 0, 9] };
        let var = |name: &str, dims: &[usize], kind| Variable {
            name: name.into(),
            dims: dims.to_vec(),
            attributes: vec![units.clone(), range.clone()],
            kind,
            size: 0,
            begin: 0,
        };
        Header {
            version,
            records: 3,
            dims: vec![dim("time", 0), dim("y", 5), dim("x", 7)],
            attributes: vec![units.clone()],
            vars: vec![var("u", &[0, 1, 2], 6), var("mask", &[1, 2], 1), var("t", &[0], 3)],
        }
    }

    #[test]
    fn what_is_written_is_read() {
        for version in [CDF1, CDF2, CDF5] {
            let mut header = sample(version);
            let records = header.place().unwrap();
            assert_eq!(header.version, version);
            assert_eq!(Header::read(header.encode().as_slice()).unwrap(), header);
            // The fixed variable is first: 35 bytes, padded.
            assert_eq!(records, header.vars[1].begin + 36);
            assert_eq!(header.record_bytes(), Some(5 * 7 * 8 + 4));
            assert_eq!(header.end(), Some(header.vars[2].begin + 2 * 284 + 2));
            assert_eq!(header.vars[0].attributes[1].numbers(), Some(vec![1, 9]));
        }
    }

    #[test]
    fn a_variable_that_is_too_large_for_a_format_takes_the_next() {
        let mut header = sample(CDF1);
        header.dims[1].length = 300_000_000;
        header.place().unwrap();
        assert_eq!(header.version, CDF5);
        let mut header = sample(CDF1);
        header.dims[1].length = 40_000_000;
        header.vars.push(Variable { name: b"v".to_vec(), ..header.vars[0].clone() });
        header.place().unwrap();
        assert_eq!(header.version, CDF2);
    }

    #[test]
    fn damaged_bytes_are_an_error_and_nothing_worse() {
        let mut state = 7u64;
        let mut next = |n: usize| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as usize % n
        };
        for round in 0..20_000 {
            let mut header = sample([CDF1, CDF2, CDF5][round % 3]);
            header.place().unwrap();
            let mut bytes = header.encode();
            for _ in 0..1 + next(4) {
                let at = next(bytes.len());
                bytes[at] = [0, 1, 0x7f, 0x80, 0xff, next(256) as u8][next(6)];
            }
            bytes.truncate(bytes.len() - next(8));
            if let Ok(header) = Header::read(bytes.as_slice()) {
                let _ = (header.end(), header.record_bytes(), header.encode());
            }
        }
    }
}
