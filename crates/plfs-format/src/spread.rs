//! Directories of the workload flat (FORMAT.md section 13): where the names of a directory are, and
//! where a name is that does not lie where its hash says.

use crate::backend::{once, read};
use crate::name::{self, Uuid};
use crate::superblock::BACKENDS_MAX;
use crate::{Bad, fnv_1a};

/// Name of the directory in a root or backend that has shadows and slots.
pub const DIR: &str = "spread";
/// Start of the name of a map in its directory; its number follows, as eight hex digits.
pub const MAP: &str = ".plfs-spread.";
/// Start of the name of one that is being written.
pub const MAP_TMP: &str = ".plfs-spread.tmp.";
/// Name, beside [`DIR`] in a root, of the file whose lock those have who move a directory of a flat
/// one to another.
pub const TREE_LOCK: &str = "spread.tree";
/// Name, beside [`DIR`], of the file whose lock those have who take a link to a slot away, or put
/// something in its place.
pub const LINKS_LOCK: &str = "spread.links";
/// Name, beside [`DIR`] in a root, of the file whose lock those have who hold a file in an aside.
pub const DRAIN_LOCK: &str = "spread.drain";
/// Start of the name, beside [`DIR`], of a copy of a file that has no name yet.
pub const COPY: &str = "spread.copy.";
/// Start of the name of one that is being made.
pub const LOCK_TMP: &str = "spread.tmp.";
/// The one name that a slot can have.
pub const ENTRY: &str = "e";

const MAGIC: &[u8] = b"plfs-spread ";
const LINK: &[u8] = b"/.plfs-spread/link/";
const MOVED: &[u8] = b"/.plfs-spread/moved/";

/// Where the names of a directory are: each in one of these shadows, by its hash.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Map {
    /// The backend and the name of each shadow.
    pub shadows: Vec<(u16, Uuid)>,
    /// The shadows whose names move to another backend, ascending.
    pub moves: Vec<Move>,
    /// Where a name is while its file is moved from a backend that is drained: beside its place.
    pub asides: Vec<(u16, Uuid)>,
}

/// A shadow whose names move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// Which one.
    pub index: usize,
    /// Its names are there, or not yet: then none is made until they are to go to the other one.
    pub stage: Stage,
    /// The backend of the other shadow.
    pub backend: u16,
    /// Its name.
    pub shadow: Uuid,
}

/// What the other shadow of a [`Move`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The one to which the names will go.
    To,
    /// The one from which they come. A name is there if it is not in the shadow itself.
    From,
}

/// What a symbolic link in a shadow or slot says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// It is a program's symbolic link with this text.
    Text(Vec<u8>),
    /// The name is in a slot.
    Moved(Moved),
}

/// Where a name is that was given to something on another backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// The backend of what was given the name.
    pub backend: u16,
    /// The slot there in which it is from the moment on when it has the name.
    pub slot: Uuid,
    /// The slot, on the backend of the link, in which the name is until then.
    pub aside: Uuid,
}

/// The name of a shadow or slot, and the digits of it in a text.
pub fn hex(uuid: &Uuid) -> String {
    uuid.0.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn parse_hex(hex: &[u8]) -> Option<Uuid> {
    let mut uuid = Uuid::default();
    if hex.len() != 32 || !hex.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    for (byte, digits) in uuid.0.iter_mut().zip(hex.chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(uuid)
}

fn parse_backend(word: &[u8]) -> Option<u16> {
    match word {
        b"0000" => Some(0),
        word => name::parse_backend(std::str::from_utf8(word).ok()?),
    }
}

/// The name of map `number`.
pub fn map_name(number: u32) -> String {
    format!("{MAP}{number:08x}")
}

/// The number in the name of a map.
pub fn parse_map_name(name: &[u8]) -> Option<u32> {
    let digits = name.strip_prefix(MAP.as_bytes()).filter(|digits| digits.len() == 8)?;
    if !digits.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

impl Map {
    /// The bytes of the file. Errors without a shadow, or with too many.
    pub fn encode(&self) -> Result<Vec<u8>, Bad> {
        let mut text = String::from("plfs-spread 1\n");
        let mut line = |key, backend: u16, shadow: &Uuid| {
            text += &format!("{key} {} {}\n", name::backend(backend), hex(shadow));
        };
        for (i, (backend, shadow)) in self.shadows.iter().enumerate() {
            line("shadow", *backend, shadow);
            for Move { stage, backend, shadow, .. } in self.moves.iter().filter(|of| of.index == i)
            {
                line(if *stage == Stage::To { "to" } else { "from" }, *backend, shadow);
            }
        }
        self.asides.iter().for_each(|(backend, aside)| line("aside", *backend, aside));
        Map::decode(text.as_bytes()).map(|_| text.into_bytes())
    }

    /// What such a file says.
    pub fn decode(text: &[u8]) -> Result<Map, Bad> {
        let mut map = Map::default();
        read(text, MAGIC, |key, value| {
            let parse = |value: &[u8]| {
                let (backend, shadow) = (value.get(..4)?, value.get(5..)?);
                let backend = parse_backend(backend).filter(|_| value[4] == b' ')?;
                Some((backend, parse_hex(shadow)?))
            };
            match key {
                b"shadow" if map.shadows.len() < BACKENDS_MAX => {
                    let mut shadow = None;
                    once(&mut shadow, parse(value))?;
                    map.shadows.extend(shadow);
                    Ok(())
                }
                b"shadow" => Err("there are too many shadows"),
                b"to" | b"from" => {
                    let index = map.shadows.len().checked_sub(1);
                    let index = index.ok_or("what moves stands behind no shadow")?;
                    if map.moves.last().is_some_and(|last| last.index == index) {
                        return Err("a shadow moves twice");
                    }
                    let stage = if key == b"to" { Stage::To } else { Stage::From };
                    let mut other = None;
                    once(&mut other, parse(value))?;
                    map.moves.extend(other.map(|(backend, shadow)| Move {
                        index,
                        stage,
                        backend,
                        shadow,
                    }));
                    Ok(())
                }
                b"aside" if map.asides.len() < BACKENDS_MAX => {
                    let mut aside = None;
                    once(&mut aside, parse(value))?;
                    map.asides.extend(aside);
                    Ok(())
                }
                _ => Err("a key is not shadow, to, from or aside"),
            }
        })?;
        match (map.shadows.is_empty(), map.moves.is_empty() || !map.asides.is_empty()) {
            (true, _) => Err(Bad::new(0, "there is no shadow")),
            (_, false) => Err(Bad::new(0, "names move, and there is no aside")),
            _ => Ok(map),
        }
    }

    /// All directories that it names.
    pub fn all(&self) -> impl Iterator<Item = (u16, Uuid)> {
        let others = self.moves.iter().map(|of| (of.backend, of.shadow));
        self.shadows.iter().copied().chain(others).chain(self.asides.iter().copied())
    }

    /// Which shadow a name is in: FNV-1a of its bytes, 64 bits, folded to 32, by their number.
    pub fn index_of(&self, name: &[u8]) -> usize {
        let hash = fnv_1a(name.iter().copied());
        ((hash >> 32 ^ hash & 0xffff_ffff) % self.shadows.len().max(1) as u64) as usize
    }
}

impl Target {
    /// The text of the symbolic link. It leads nowhere for who does not know what it is.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Target::Text(text) => [LINK, text].concat(),
            Target::Moved(Moved { backend, slot, aside }) => {
                let words = format!("{}.{}.{}", name::backend(*backend), hex(slot), hex(aside));
                [MOVED, words.as_bytes()].concat()
            }
        }
    }

    /// What a symbolic link with this text says. One that a program has put there past PLFS says
    /// what it says.
    pub fn decode(text: &[u8]) -> Target {
        let moved = |words: &[u8]| {
            let mut words = words.split(|byte| *byte == b'.');
            let moved = Moved {
                backend: parse_backend(words.next()?)?,
                slot: parse_hex(words.next()?)?,
                aside: parse_hex(words.next()?)?,
            };
            words.next().is_none().then_some(moved)
        };
        match text.strip_prefix(MOVED).and_then(moved) {
            Some(moved) => Target::Moved(moved),
            None => Target::Text(text.strip_prefix(LINK).unwrap_or(text).to_vec()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_is_what_the_document_shows() {
        let shadows = vec![(0, Uuid([0x11; 16])), (0xa, Uuid([0xff; 16]))];
        let map = Map { shadows, ..Map::default() };
        let text = format!(
            "plfs-spread 1\nshadow 0000 {}\nshadow 000a {}\n",
            "11".repeat(16),
            "ff".repeat(16)
        );
        assert_eq!(map.encode().unwrap(), text.as_bytes());
        assert_eq!(Map::decode(text.as_bytes()), Ok(map.clone()));
        for (from, to) in [
            ("spread 1", "spread"),
            ("shadow 0000", "shadow 0"),
            ("0000 ", "0000"),
            ("1111\n", "111\n"),
            ("000a", "ffff"),
            ("shadow 000a", "shadow  000a"),
            ("shadow 0000", "shade 0000"),
            ("ffff\n", "FFFF\n"),
        ] {
            let wrong = text.replacen(from, to, 1);
            assert!(Map::decode(wrong.as_bytes()).is_err_and(|bad| !bad.newer), "{wrong}");
        }
        assert!(Map::decode(b"plfs-spread 2\n").is_err_and(|bad| bad.newer));
        assert!(Map::default().encode().is_err());
        assert_eq!(
            (map_name(0x1f), parse_map_name(b".plfs-spread.0000001f")),
            (".plfs-spread.0000001f".into(), Some(0x1f))
        );
        assert_eq!(parse_map_name(b".plfs-spread.tmp.0000"), None);
        let text = text.replacen(
            "\nshadow 000a",
            &format!("\nto 0002 {}\nshadow 000a", "22".repeat(16)),
            1,
        ) + &format!("from 0003 {}\naside 0003 {}\n", "33".repeat(16), "44".repeat(16));
        let drained = Map::decode(text.as_bytes()).unwrap();
        let other =
            |index, stage, backend, byte| Move { index, stage, backend, shadow: Uuid([byte; 16]) };
        assert_eq!(drained.shadows, map.shadows);
        assert_eq!(drained.moves, [other(0, Stage::To, 2, 0x22), other(1, Stage::From, 3, 0x33)]);
        assert_eq!(drained.asides, [(3, Uuid([0x44; 16]))]);
        assert_eq!(drained.encode().unwrap(), text.as_bytes());
        for (from, to) in [
            ("aside 0003 ", "beside 0003 "),
            ("plfs-spread 1\nshadow", "plfs-spread 1\nto"),
            ("\nshadow 000a", "\nfrom 000a"),
            (&text[text.find("aside").unwrap()..], ""),
        ] {
            let wrong = text.replacen(from, to, 1);
            assert!(Map::decode(wrong.as_bytes()).is_err_and(|bad| !bad.newer), "{wrong}");
        }
        // Of all times: where names are hangs on it.
        let map = Map { shadows: vec![(0, Uuid([1; 16])); 5], ..Map::default() };
        let places = [&b"a"[..], b"b", b"ckpt.0001", b"\xff\xfe", &[b'x'; 255]];
        assert_eq!(places.map(|name| map.index_of(name)), PLACES);
    }

    const PLACES: [usize; 5] = [4, 3, 3, 3, 3];

    #[test]
    fn links_say_what_they_are() {
        for text in [&b""[..], b"a", b"/.plfs-spread/moved/x", b"/abs", &[0xff; 100]] {
            let link = Target::Text(text.to_vec());
            assert_eq!(Target::decode(&link.encode()), link);
        }
        let moved = Target::Moved(Moved { backend: 3, slot: Uuid([7; 16]), aside: Uuid([8; 16]) });
        assert_eq!(Target::decode(&moved.encode()), moved);
        assert_eq!(Target::decode(b"../foreign"), Target::Text(b"../foreign".to_vec()));
    }
}
