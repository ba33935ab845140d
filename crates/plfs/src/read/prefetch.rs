//! Reading ahead along the logs. A program that reads in the order in which a writer wrote moves
//! through that writer's log from front to back, whatever the logical offsets do; so each log gets
//! a window of its own, as the kernel gives one to each open file.

use plfs_index::Found;

use crate::error::Result;

/// Logs that one handle reads ahead in. 16 windows: a reader that crosses the pieces of 16 writers
/// still reads large blocks.
const WINDOWS: usize = 16;

/// Bounds of a window in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    first: usize,
    last: usize,
    /// Pieces of this length or more are read as they are.
    direct: usize,
}

/// On a local file system a read is a copy: windows save system calls only, and should stay in the
/// processor's cache.
const LOCAL: Bounds = Bounds { first: 64 << 10, last: 128 << 10, direct: 32 << 10 };
/// On a file system where a read travels the kernel reads ahead in each log as in any file that is
/// read from front to back; a window saves it the many small calls. Larger windows gained nothing
/// on CephFS (measured: 128 KiB to 2 MiB) and cost a copy out of the cache.
const REMOTE: Bounds = Bounds { first: 64 << 10, last: 256 << 10, direct: 32 << 10 };

#[derive(Debug, Default)]
struct Window {
    segment: u32,
    /// `bytes[..filled]` are the segment's bytes from `start` on.
    start: u64,
    filled: usize,
    bytes: Vec<u8>,
    /// Where the last read in this log ended.
    next: u64,
    size: usize,
    used: u64,
}

/// The windows of one handle.
#[derive(Debug)]
pub struct Prefetch {
    bounds: Bounds,
    windows: Vec<Window>,
    turn: u64,
    /// Generation of the index that the windows belong to. Bytes that no record pointed to when
    /// they were read ahead may have been written since: a changed index empties all.
    generation: u64,
}

impl Prefetch {
    /// No window yet.
    pub fn new(local: bool) -> Prefetch {
        Prefetch {
            bounds: if local { LOCAL } else { REMOTE },
            windows: Vec::new(),
            turn: 0,
            generation: 0,
        }
    }

    /// Reads one piece. `read(physical, buf)` reads from the piece's segment as much as there is;
    /// `generation` is the index's when the piece was looked up. `end` is where the segment ends as
    /// far as is known: nothing behind it is read ahead.
    pub fn read(
        &mut self,
        generation: u64,
        piece: &Found,
        end: u64,
        mut buf: &mut [u8],
        mut read: impl FnMut(u64, &mut [u8]) -> Result<usize>,
    ) -> Result<usize> {
        if buf.len() >= self.bounds.direct {
            return read(piece.physical, buf);
        }
        if self.generation != generation {
            self.windows.iter_mut().for_each(|window| window.filled = 0);
            self.generation = generation;
        }
        self.turn += 1;
        let (mut at, wanted) = (piece.physical, buf.len());
        let near = |window: &Window| {
            window.segment == piece.segment
                && (window.next == at
                    || (window.start..window.start + window.filled as u64).contains(&at))
        };
        let Some(i) = self.windows.iter().position(near) else {
            let oldest = self
                .windows
                .iter()
                .enumerate()
                .min_by_key(|(_, window)| window.used)
                .map(|(i, _)| i);
            let i = match oldest {
                Some(i) if self.windows.len() >= WINDOWS => i,
                _ => {
                    self.windows.push(Window::default());
                    self.windows.len() - 1
                }
            };
            let window = &mut self.windows[i];
            (window.segment, window.start, window.filled) = (piece.segment, at, 0);
            (window.next, window.used) = (at + wanted as u64, self.turn);
            window.size = self.bounds.first;
            return read(at, buf);
        };
        let window = &mut self.windows[i];
        window.used = self.turn;
        window.next = at + wanted as u64;
        loop {
            let have = at
                .checked_sub(window.start)
                .and_then(|skip| window.bytes[..window.filled].get(skip as usize..))
                .unwrap_or(&[]);
            let n = have.len().min(buf.len());
            buf[..n].copy_from_slice(&have[..n]);
            buf = &mut buf[n..];
            at += n as u64;
            if buf.is_empty() {
                return Ok(wanted);
            }
            window.start = at;
            // Own writes that are in no log yet lie behind the known end.
            let room =
                if at < end { usize::try_from(end - at).unwrap_or(usize::MAX) } else { usize::MAX };
            let size = window.size.min(room).max(buf.len());
            if window.bytes.len() < size {
                window.bytes.resize(size, 0);
            }
            window.filled = 0;
            let got = read(at, &mut window.bytes[..size])?;
            window.filled = got;
            window.size = (window.size * 2).min(self.bounds.last);
            if got == 0 {
                return Ok(wanted - buf.len());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequential_pieces_cost_few_reads_and_give_the_right_bytes() {
        let log: Vec<u8> = (0..1_000_000u32).map(|i| ((i * 7) >> 3) as u8).collect();
        let mut prefetch = Prefetch::new(true);
        let mut reads = 0;
        for i in 0..900 {
            let piece =
                Found { logical: i * 5000, length: 1000, segment: 3, physical: i * 1000 + 17 };
            let mut buf = [0; 1000];
            let n = prefetch.read(1, &piece, 1_000_000, &mut buf, |at, buf| {
                reads += 1;
                let n = buf.len().min(log.len() - at as usize);
                buf[..n].copy_from_slice(&log[at as usize..at as usize + n]);
                Ok(n)
            });
            assert_eq!(n.unwrap(), 1000);
            assert_eq!(buf, log[piece.physical as usize..][..1000]);
        }
        assert!(reads < 20, "{reads}");
    }

    #[test]
    fn nothing_behind_the_end_is_asked_for() {
        let mut prefetch = Prefetch::new(false);
        let mut asked = Vec::new();
        for i in 0..100 {
            let piece = Found { logical: i * 5000, length: 1000, segment: 3, physical: i * 1000 };
            let read = |at, buf: &mut [u8]| {
                asked.push(at + buf.len() as u64);
                Ok(buf.len())
            };
            assert_eq!(prefetch.read(1, &piece, 90_000, &mut [0; 1000], read).unwrap(), 1000);
        }
        assert!(asked.contains(&90_000) && asked.len() < 10, "{asked:?}");
        assert!(!asked.iter().any(|end| (90_001..91_000).contains(end)), "{asked:?}");
    }

    #[test]
    fn a_changed_index_empties_the_windows() {
        let mut prefetch = Prefetch::new(true);
        let read_one = |prefetch: &mut Prefetch, generation, physical, value: u8| {
            let mut buf = [0];
            prefetch
                .read(
                    generation,
                    &Found { logical: 0, length: 1, segment: 0, physical },
                    u64::MAX,
                    &mut buf,
                    |_, buf| {
                        buf.fill(value);
                        Ok(buf.len())
                    },
                )
                .unwrap();
            buf[0]
        };
        read_one(&mut prefetch, 1, 0, 1);
        assert_eq!(read_one(&mut prefetch, 1, 1, 1), 1);
        assert_eq!(read_one(&mut prefetch, 1, 2, 2), 1, "from the window");
        assert_eq!(read_one(&mut prefetch, 2, 3, 2), 2, "read again");
    }
}
