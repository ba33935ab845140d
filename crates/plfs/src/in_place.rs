//! L5: which files this process has open as plain ones, where nobody else can tell: on file systems
//! that are not local. Whoever removes the container of a file leaves it to them.

use std::collections::HashMap;

use crate::sync::{Arc, Mutex, lock};

/// Handles on plain files, by device and inode.
#[derive(Debug, Default)]
pub(crate) struct InPlace(Mutex<HashMap<(u64, u64), usize>>);

/// One of them, until it is dropped.
#[derive(Debug)]
pub(crate) struct Here {
    all: Arc<InPlace>,
    file: (u64, u64),
}

impl InPlace {
    /// Counts one more handle on a file.
    pub(crate) fn enter(self: &Arc<Self>, file: (u64, u64)) -> Here {
        *lock(&self.0).entry(file).or_default() += 1;
        Here { all: self.clone(), file }
    }

    /// Whether there is a handle on the file.
    pub(crate) fn has(&self, file: (u64, u64)) -> bool {
        lock(&self.0).contains_key(&file)
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        let mut all = lock(&self.all.0);
        if let Some(count) = all.get_mut(&self.file) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.file);
            }
        }
    }
}
