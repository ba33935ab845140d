//! What the attribute `user.plfs` of a file says (FORMAT.md section 11).

use crate::name::Uuid;
use crate::superblock;

/// The attribute. It is set once, and never changed or removed.
pub const NAME: &str = "user.plfs";
/// It is never longer: a number, a uuid, an inode number and a path of 4,096 bytes.
pub const BYTES_MAX: usize = 4096 + 128;

/// What is decided of a file, once and for ever.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It stays plain. Why, for people.
    Plain(String),
    /// It is the base of this container, as soon as that is whole.
    Container {
        /// The container.
        uuid: Uuid,
        /// The inode number of the file: in a copy of the file, which has the attribute as well, it
        /// is another, and the attribute says nothing.
        ino: u64,
        /// The root in which the container is, a hint.
        root: Vec<u8>,
    },
    /// It is a superblock, of which this is the [copy](superblock::copy_of), whatever it holds now.
    /// Of another inode than the copy has it says nothing.
    Superblock(Vec<u8>),
}

impl Decision {
    /// For the inode with number `ino`: the superblock file that it was made as.
    pub fn superblock_of(&self, ino: u64) -> Option<Vec<u8>> {
        let Decision::Superblock(copy) = self else { return None };
        let file = superblock::of_copy(copy)?;
        (superblock::inode_of(&file) == ino).then_some(file)
    }

    /// The attribute's bytes.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Decision::Plain(why) => format!("plfs 1 p {why}").into_bytes(),
            Decision::Container { uuid, ino, root } => {
                [format!("plfs 1 c {uuid} {ino} ").as_bytes(), root].concat()
            }
            Decision::Superblock(copy) => [b"plfs 1 s ", copy.as_slice()].concat(),
        }
    }

    /// Reads it. `None`: it says nothing that this version knows, so nobody promotes the file, nor
    /// finds a container.
    pub fn decode(text: &[u8]) -> Option<Decision> {
        if let Some(why) = text.strip_prefix(b"plfs 1 p ") {
            return Some(Decision::Plain(String::from_utf8_lossy(why).into_owned()));
        }
        if let Some(copy) = text.strip_prefix(b"plfs 1 s ") {
            return superblock::of_copy(copy).map(|_| Decision::Superblock(copy.to_vec()));
        }
        let mut parts = text.strip_prefix(b"plfs 1 c ")?.splitn(3, |byte| *byte == b' ');
        let (uuid, ino, root) = (parts.next()?, parts.next()?, parts.next()?);
        let mut id = [0; 16];
        if uuid.len() != 2 * id.len() {
            return None;
        }
        for (byte, digits) in id.iter_mut().zip(uuid.chunks(2)) {
            let is_digit = |digit: &u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
            let digits =
                std::str::from_utf8(digits).ok().filter(|_| digits.iter().all(is_digit))?;
            *byte = u8::from_str_radix(digits, 16).ok()?;
        }
        let number =
            std::str::from_utf8(ino).ok().filter(|_| ino.iter().all(u8::is_ascii_digit))?;
        let is_root = root.first() == Some(&b'/') && root.len() <= 4096 && !root.contains(&0);
        is_root.then_some(())?;
        Some(Decision::Container { uuid: Uuid(id), ino: number.parse().ok()?, root: root.to_vec() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_print_and_parse() {
        let pin = Decision::Plain("opened with O_APPEND".into());
        assert_eq!(pin.encode(), b"plfs 1 p opened with O_APPEND");
        let container =
            Decision::Container { uuid: Uuid([0xa5; 16]), ino: 77, root: b"/a b".to_vec() };
        assert_eq!(container.encode(), b"plfs 1 c a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5 77 /a b");
        for decision in [pin, container] {
            assert_eq!(Decision::decode(&decision.encode()), Some(decision));
        }
    }

    #[test]
    fn what_says_nothing_decides_nothing() {
        for text in [
            "",
            "plfs 1 c",
            "plfs 2 p x",
            "plfs 1 c a5 77 /a",
            "plfs 1 c a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5A5 77 /a",
            "plfs 1 c a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5 7x /a",
            "plfs 1 c a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5 -7 /a",
            "plfs 1 c a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5 99999999999999999999 /a",
            "plfs 1 c a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5 77 a",
            "plfs 1 c a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5 77",
            "plfs 1 s ",
            "plfs 1 s a copy of nothing, which is longer than 24 bytes",
        ] {
            assert_eq!(Decision::decode(text.as_bytes()), None, "{text}");
        }
    }
}
