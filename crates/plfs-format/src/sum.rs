//! CRC-32C (FORMAT.md, "CRC").

use crc_fast::{CrcAlgorithm, Digest, checksum};

/// CRC-32C of `bytes`.
pub(crate) fn crc(bytes: &[u8]) -> u32 {
    checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// CRC-32C of `bytes`, for those who want a short sum of something.
pub fn sum(bytes: &[u8]) -> u32 {
    crc(bytes)
}

/// [`sum`] of bytes that begin with some whose sum is `before` and end with these. `before` of
/// nothing is 0.
pub fn sum_on(before: u32, bytes: &[u8]) -> u32 {
    let state = u64::from(before ^ u32::MAX);
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, state);
    digest.update(bytes);
    digest.finalize() as u32
}

/// What zeros behind something do to its sum: a matrix over GF(2), by columns.
type Matrix = [u32; 32];

/// The same by the eight half bytes of a sum: a multiplication is eight loads.
type Table = [[u32; 16]; 8];

/// Tables of 2^i zero bytes.
static ZEROS: [Table; 32] = tables();

const fn times(matrix: &Matrix, vector: u32) -> u32 {
    let (mut product, mut bit) = (0, 0);
    while bit < 32 {
        product ^= matrix[bit as usize] & (vector >> bit & 1).wrapping_neg();
        bit += 1;
    }
    product
}

const fn squared(matrix: &Matrix) -> Matrix {
    let (mut square, mut bit) = ([0; 32], 0);
    while bit < 32 {
        square[bit] = times(matrix, matrix[bit]);
        bit += 1;
    }
    square
}

const fn table(matrix: &Matrix) -> Table {
    let mut table = [[0; 16]; 8];
    let mut i = 0;
    while i < 8 * 16 {
        table[i / 16][i % 16] = times(matrix, (i as u32 % 16) << (4 * (i / 16)));
        i += 1;
    }
    table
}

const fn tables() -> [Table; 32] {
    // One zero bit: a shift, and the polynomial, reflected, for the bit that falls out.
    let mut one = [0; 32];
    one[0] = 0x82f6_3b78;
    let mut bit = 1;
    while bit < 32 {
        one[bit] = 1 << (bit - 1);
        bit += 1;
    }
    let mut zeros = squared(&squared(&squared(&one)));
    let mut all = [table(&zeros); 32];
    let mut i = 1;
    while i < 32 {
        zeros = squared(&zeros);
        all[i] = table(&zeros);
        i += 1;
    }
    all
}

/// [`sum`] of bytes that begin with some whose sum is `before` and end with `bytes` ones whose sum
/// is `behind`. Some 50 ns.
pub fn sum_of_both(before: u32, behind: u32, bytes: u32) -> u32 {
    let (mut shifted, mut left) = (before, bytes);
    while left != 0 {
        let table = &ZEROS[left.trailing_zeros() as usize];
        shifted = (0..8).fold(0, |sum, i| sum ^ table[i][(shifted >> (4 * i) & 15) as usize]);
        left &= left - 1;
    }
    shifted ^ behind
}

/// FNV-1a of the bytes, 64 bits: a number that is the same in all processes and builds. No
/// protection against who wants two texts to have one.
pub fn fnv_1a(bytes: impl IntoIterator<Item = u8>) -> u64 {
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_the_format_in_one_piece_or_in_parts() {
        assert_eq!(sum(b"123456789"), 0xe306_9283);
        assert_eq!((sum(b""), sum_on(0, b""), sum_of_both(7, 0, 0)), (0, 0, 7));
        let bytes: Vec<u8> = (0..200_000u32).map(|i| (i.wrapping_mul(i) >> 7) as u8).collect();
        for at in [0, 1, 63, 64, 4095, 65_536, 199_999, 200_000] {
            let (before, behind) = bytes.split_at(at);
            assert_eq!(sum_on(sum(before), behind), sum(&bytes), "{at}");
            let both = sum_of_both(sum(before), sum(behind), behind.len() as u32);
            assert_eq!(both, sum(&bytes), "{at}");
        }
    }
}
