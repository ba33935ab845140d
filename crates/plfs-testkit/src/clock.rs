//! Nodes whose clocks disagree, and time that only work takes.

use std::path::{Path, PathBuf};
use std::time::Duration;

/// A page that processes of the node share, for a file or a pack. Journals lie beside pages, with
/// one part more in their names, and spare ones, with one less.
pub fn shared_page(node: &Path) -> Option<PathBuf> {
    let mut all = std::fs::read_dir(node).unwrap().map(|entry| entry.unwrap().path());
    all.find(|path| {
        path.file_name().unwrap().to_str().unwrap().split('-').count() == 5
            && path.metadata().is_ok_and(|stat| stat.len() >= 4096)
    })
}

/// Sets the clock that the processes of the node that meets in directory `node` share an hour
/// ahead, for a file that some process of the node has open for writing.
pub fn an_hour_ahead(node: &Path) {
    let now =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis()
            as u64;
    let page = shared_page(node).expect("the node has a shared page");
    let page = std::fs::OpenOptions::new().write(true).open(page).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&page, &((now + 3_600_000) << 16).to_le_bytes(), 8)
        .unwrap();
}

/// What this thread has taken of processors since it began: for tests of what a call costs on a
/// machine that has others to serve.
pub fn thread_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
