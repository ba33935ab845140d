//! A column: many numbers in as few bits as the largest needs (FORMAT.md section 6).

use crate::Bad;
use crate::bytes::Fields;

/// Bytes in front of a column's base and fields: bits in the lowest seven bits, shift in the next
/// five, bytes of the base in the last four.
const HEADER_BYTES: usize = 2;
/// The largest shift.
const SHIFT_MAX: u32 = 31;

/// Where a column lies in some bytes. Value i is `base + (field i << shift)`, wrapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Column {
    base: u64,
    bits: u8,
    shift: u8,
    at: usize,
}

impl Column {
    /// Appends `values` as a column: 2 to 10 bytes, and for each the bits of the largest difference
    /// to the least value, without the zeros that all differences end in.
    pub fn write(values: &[u64], out: &mut Vec<u8>) {
        let base = values.iter().copied().min().unwrap_or(0);
        let all = values.iter().fold(0, |all, value| all | (value - base));
        let shift = if all == 0 { 0 } else { all.trailing_zeros().min(SHIFT_MAX) };
        let bits = 64 - (all >> shift).leading_zeros();
        let base_bytes = (64 - base.leading_zeros()).div_ceil(8);
        out.extend_from_slice(&((bits | shift << 7 | base_bytes << 12) as u16).to_le_bytes());
        out.extend_from_slice(&base.to_le_bytes()[..base_bytes as usize]);
        if bits == 0 {
            return;
        }
        let (mut held, mut filled) = (0u128, 0);
        for value in values {
            held |= u128::from((value - base) >> shift) << filled;
            filled += bits;
            while filled >= 64 {
                out.extend_from_slice(&(held as u64).to_le_bytes());
                held >>= 64;
                filled -= 64;
            }
        }
        out.extend_from_slice(&(held as u64).to_le_bytes()[..filled.div_ceil(8) as usize]);
    }

    /// Finds a column of `count` values at `at` of `bytes`, and moves `at` behind it.
    pub fn read(bytes: &[u8], at: &mut usize, count: usize) -> Result<Column, Bad> {
        let bad = |at: usize, what| Err(Bad::new(at as u64, what));
        let Some(header) = at.checked_add(HEADER_BYTES).and_then(|end| bytes.get(*at..end)) else {
            return bad(*at, "the bytes end inside a column");
        };
        let header = Fields(header).u16(0);
        let (bits, shift, base_bytes) =
            ((header & 127) as u8, (header >> 7 & 31) as u8, usize::from(header >> 12));
        if bits + shift > 64 || base_bytes > 8 {
            return bad(*at, "a column's fields are wider than 64 bits");
        }
        let fields = *at + HEADER_BYTES + base_bytes;
        let Some(low) = bytes.get(*at + HEADER_BYTES..fields) else {
            return bad(*at, "the bytes end inside a column");
        };
        let mut base = [0; 8];
        base[..base_bytes].copy_from_slice(low);
        let base = u64::from_le_bytes(base);
        let end = count
            .checked_mul(usize::from(bits))
            .and_then(|all| fields.checked_add(all.div_ceil(8)));
        match end {
            Some(end) if end <= bytes.len() => *at = end,
            _ => return bad(*at, "a column goes on behind the end"),
        }
        Ok(Column { base, bits, shift, at: fields })
    }

    /// Value `i` of the column, which lies in `bytes`. `i` is below the count; what lies there else
    /// is any number, but no panic.
    #[inline]
    pub fn get(&self, bytes: &[u8], i: usize) -> u64 {
        if self.bits == 0 {
            return self.base;
        }
        let bit = i * usize::from(self.bits);
        let (at, skip) = (self.at + bit / 8, (bit % 8) as u32);
        let field = match bytes.get(at..at + 8) {
            Some(word) if skip + u32::from(self.bits) <= 64 => {
                let mut all = [0; 8];
                all.copy_from_slice(word);
                u64::from_le_bytes(all) >> skip
            }
            _ => {
                let mut all = [0; 16];
                let rest = bytes.get(at..).unwrap_or_default();
                let n = rest.len().min(9);
                all[..n].copy_from_slice(&rest[..n]);
                (u128::from_le_bytes(all) >> skip) as u64
            }
        };
        self.base.wrapping_add((field & (u64::MAX >> (64 - u32::from(self.bits)))) << self.shift)
    }

    /// Whether all values are the same.
    pub fn is_constant(&self) -> bool {
        self.bits == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(values: &[u64]) -> usize {
        let mut out = vec![7; 3];
        Column::write(values, &mut out);
        let bytes = out.len();
        out.extend_from_slice(&[0xff; 2]);
        let mut at = 3;
        let column = Column::read(&out, &mut at, values.len()).unwrap();
        assert_eq!(at, bytes);
        let got: Vec<u64> = (0..values.len()).map(|i| column.get(&out, i)).collect();
        assert_eq!(got, values);
        for short in 0..bytes {
            assert!(
                Column::read(&out[..short], &mut 3, values.len()).is_err(),
                "{short} of {bytes}"
            );
        }
        bytes - 3
    }

    #[test]
    fn values_come_back_in_the_fewest_bits() {
        assert_eq!(round(&[]), 2);
        assert_eq!(round(&[5, 5, 5]), 3);
        assert_eq!(round(&[8, 16, 24, 8]), 3 + 1, "two bits each, shifted by three");
        assert_eq!(round(&[0, u64::MAX]), 2 + 16);
        assert_eq!(round(&[0, 1 << 63]), 2 + 9, "the shift has an end");
        assert_eq!(round(&[u64::MAX, 1 << 56]), 2 + 8 + 16);
        let mut x = 1u64;
        for bits in 1..=64 {
            for n in [1, 2, 7, 128] {
                let values: Vec<u64> = (0..n)
                    .map(|_| {
                        x = x
                            .wrapping_mul(6_364_136_223_846_793_005)
                            .wrapping_add(1_442_695_040_888_963_407);
                        x >> (64 - bits)
                    })
                    .collect();
                assert!(round(&values) <= 10 + (n as usize * bits).div_ceil(8));
            }
        }
    }

    #[test]
    fn hostile_columns_are_refused() {
        for header in [65u16, 64 | 1 << 7, 34 | 31 << 7, 1 | 9 << 12, u16::MAX] {
            let mut bytes = vec![0; 100];
            bytes[..2].copy_from_slice(&header.to_le_bytes());
            assert!(Column::read(&bytes, &mut 0, 1).is_err());
        }
        let mut bytes = vec![0; 100];
        bytes[0] = 64;
        assert!(Column::read(&bytes, &mut 0, usize::MAX).is_err());
        assert!(Column::read(&bytes, &mut { usize::MAX }, 0).is_err());
    }
}
