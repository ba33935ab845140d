//! A file that somebody has open: what is known of it, and what of it shows, kept up to date record
//! by record. So a read or a write costs what it touches, however many pieces the file has.

use plfs_format::name::SegmentRef;
use plfs_format::pack::{Place, Record};

use crate::{FileState, Shown, Write};

/// What is known of an open file.
#[derive(Clone, Debug, Default)]
pub struct View {
    state: FileState,
    /// What shows; `None`: nobody has asked since it had to be found anew.
    shown: Option<Shown>,
}

impl View {
    /// A file of which this is known.
    pub fn of(state: FileState) -> View {
        View { state, shown: None }
    }

    /// The join of all that is known.
    pub fn state(&self) -> &FileState {
        &self.state
    }

    /// The file is removed.
    pub fn remove(&mut self) {
        self.state.is_gone = true;
    }

    /// Adds a record of the file: see [`FileState::add`].
    pub fn add(&mut self, segments: &[SegmentRef], record: &Record, own_boot: u64) {
        let before = self.state.touched();
        self.state.add(segments, record, own_boot);
        let Some(shown) = &mut self.shown else { return };
        match record {
            Record::Write { set, boot, segment, pieces, .. } => {
                let is_later = |stamp| Some(Place { stamp, set: *set }) >= before;
                // Which of the writes in doubt are asked whether they are sound depends on what is
                // older than they are.
                let is_sure = [0, own_boot].contains(boot);
                if self.state.is_in_doubt()
                    && !(is_sure && pieces.iter().all(|piece| is_later(piece.stamp)))
                {
                    self.shown = None;
                    return;
                }
                for piece in pieces {
                    let write = Write::of(piece, *set, segments[usize::from(*segment)], 0);
                    shown.paint(&write, self.state.end_of(&write));
                }
            }
            Record::Cut { .. } if self.state.is_in_doubt() => self.shown = None,
            Record::Cut { place, size, .. } => shown.cut(*place, *size),
            _ => {}
        }
    }

    /// The bytes that show: see [`FileState::extents`].
    pub fn shown<E>(
        &mut self,
        is_sound: impl FnMut(&Write) -> Result<bool, E>,
    ) -> Result<&Shown, E> {
        let shown = match self.shown.take() {
            Some(shown) => shown,
            None => self.state.shown(is_sound)?,
        };
        Ok(self.shown.insert(shown))
    }
}
