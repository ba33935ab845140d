//! Little-endian fields at fixed offsets. Callers check lengths first: every `get` takes a slice
//! known to be long enough.

/// Reads fields of a fixed layout.
pub(crate) struct Fields<'a>(pub &'a [u8]);

impl Fields<'_> {
    fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut out = [0; N];
        out.copy_from_slice(&self.0[at..at + N]);
        out
    }
    pub fn u16(&self, at: usize) -> u16 {
        u16::from_le_bytes(self.array(at))
    }
    pub fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.array(at))
    }
    pub fn u64(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.array(at))
    }
    pub fn i64(&self, at: usize) -> i64 {
        i64::from_le_bytes(self.array(at))
    }
}

/// Writes `value` at `at`.
pub(crate) fn put(out: &mut [u8], at: usize, value: &[u8]) {
    out[at..at + value.len()].copy_from_slice(value);
}
