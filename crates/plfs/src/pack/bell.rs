//! How a process that only looks at a pack hears at once of what others of its node say in it. They
//! count in a page that the user's processes share and that stays when they leave, unlike that of
//! the log set: so who hears nothing has missed nothing, and asks nobody.

use crate::config::Config;
use crate::container::Container;
use crate::store::shm::{SharedPage, WORDS};
use crate::sync::Word;
use crate::sync::plain::atomic::Ordering;

#[derive(Debug)]
pub(super) struct Bell {
    page: Option<SharedPage>,
    /// Packs that share a word hear each other's, which costs them a look.
    word: usize,
}

impl Bell {
    /// Some ten system calls. Without shared memory nobody hears anything.
    pub fn of(container: &Container, config: &Config) -> Bell {
        let user = container.store.user();
        let _acting = container.store.act();
        let page = config
            .shared_memory
            .as_deref()
            .and_then(|dir| SharedPage::join(&dir.join(format!("plfs-packs-{user}")), user).ok());
        let uuid = u128::from_le_bytes(container.superblock.uuid.0);
        Bell { page, word: (uuid % WORDS as u128) as usize }
    }

    fn count(&self) -> Option<&Word> {
        self.page.as_ref().map(|page| &page.words()[self.word])
    }

    /// Something was said that others can read.
    pub fn ring(&self) {
        if let Some(count) = self.count() {
            count.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// How often it rang; `None`: nobody knows.
    pub fn rings(&self) -> Option<u64> {
        self.count().map(|count| count.load(Ordering::SeqCst))
    }
}
