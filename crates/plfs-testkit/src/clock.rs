//! Nodes whose clocks disagree.

use std::path::Path;

/// Sets the clock that the processes of the node that meets in directory `node` share an hour
/// ahead, for a file that some process of the node has open for writing.
pub fn an_hour_ahead(node: &Path) {
    let now =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis()
            as u64;
    let pages = std::fs::read_dir(node).unwrap().map(|entry| entry.unwrap().path());
    let page = pages
        .into_iter()
        // Journals lie beside them, with one part more in their names.
        .find(|path| {
            path.file_name().unwrap().to_str().unwrap().split('-').count() == 5
                && path.metadata().unwrap().len() >= 4096
        })
        .expect("the node has a shared page");
    let page = std::fs::OpenOptions::new().write(true).open(page).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&page, &((now + 3_600_000) << 16).to_le_bytes(), 8)
        .unwrap();
}
