//! The table of backends and what a backend says of itself (FORMAT.md section 1): small texts that
//! people may edit.

use crate::Bad;

/// An entry or an identity is at most this long.
pub const BYTES_MAX: usize = 8192;
const ENTRY_MAGIC: &[u8] = b"plfs-backend ";
const IDENTITY_MAGIC: &[u8] = b"plfs-identity ";
const VERSION: &[u8] = b"1";

/// Which backend a directory is: 16 random bytes, not all zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity(pub [u8; 16]);

/// What may be done with a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// All.
    Active,
    /// Nothing new is put there.
    Draining,
    /// Nothing is there any more.
    Gone,
}

/// One entry of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    /// What its directory must say.
    pub identity: Identity,
    /// What may be done with it.
    pub state: State,
    /// Absolute path of its directory: bytes, not necessarily UTF-8.
    pub path: Vec<u8>,
}

impl State {
    /// The word in an entry.
    pub fn word(self) -> &'static str {
        match self {
            State::Active => "active",
            State::Draining => "draining",
            State::Gone => "gone",
        }
    }

    fn parse(word: &[u8]) -> Option<State> {
        [State::Active, State::Draining, State::Gone]
            .into_iter()
            .find(|state| state.word().as_bytes() == word)
    }
}

impl Identity {
    fn hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn parse(hex: &[u8]) -> Option<Identity> {
        let mut bytes = [0; 16];
        if hex.len() != 32 || !hex.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')) {
            return None;
        }
        for (byte, digits) in bytes.iter_mut().zip(hex.chunks_exact(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        }
        (bytes != [0; 16]).then_some(Identity(bytes))
    }

    /// The bytes of `.plfs/identity`.
    pub fn encode(&self) -> Vec<u8> {
        format!("plfs-identity 1\nidentity {}\n", self.hex()).into_bytes()
    }

    /// What such a file says.
    pub fn decode(text: &[u8]) -> Result<Identity, Bad> {
        let mut identity = None;
        read(text, IDENTITY_MAGIC, |key, value| match key {
            b"identity" => once(&mut identity, Identity::parse(value)),
            _ => Ok(()),
        })?;
        identity.ok_or(Bad::new(0, "the identity is missing"))
    }
}

impl Backend {
    /// The bytes of the entry. Errors if the path is not absolute, has a zero byte, or is too long.
    pub fn encode(&self) -> Result<Vec<u8>, Bad> {
        let mut text = format!(
            "plfs-backend 1\nidentity {}\nstate {}\npath ",
            self.identity.hex(),
            self.state.word()
        )
        .into_bytes();
        for byte in &self.path {
            match byte {
                b'\n' => text.extend_from_slice(b"\\n"),
                b'\\' => text.extend_from_slice(b"\\\\"),
                byte => text.push(*byte),
            }
        }
        text.push(b'\n');
        Backend::decode(&text).map(|_| text)
    }

    /// An entry that says this, and what else `text`, which is one, has: lines that this version
    /// does not know, and the order of all. Errors as [`Backend::encode`].
    pub fn amend(&self, text: &[u8]) -> Result<Vec<u8>, Bad> {
        let fresh = self.encode()?;
        let key = |line: &[u8]| line.split(|byte| *byte == b' ').next().map(<[u8]>::to_vec);
        let own: Vec<&[u8]> = fresh.split_inclusive(|byte| *byte == b'\n').collect();
        let lines = text.split_inclusive(|byte| *byte == b'\n');
        let amended: Vec<u8> = lines
            .flat_map(|line| {
                let said = own.iter().find(|own| key(own) == key(line));
                said.copied().unwrap_or(line).iter().copied()
            })
            .collect();
        Backend::decode(&amended).map(|_| amended)
    }

    /// What an entry says.
    pub fn decode(text: &[u8]) -> Result<Backend, Bad> {
        let (mut identity, mut state, mut path) = (None, None, None);
        read(text, ENTRY_MAGIC, |key, value| match key {
            b"identity" => once(&mut identity, Identity::parse(value)),
            b"state" => once(&mut state, State::parse(value)),
            b"path" => once(&mut path, parse_path(value)),
            _ => Ok(()),
        })?;
        match (identity, state, path) {
            (Some(identity), Some(state), Some(path)) => Ok(Backend { identity, state, path }),
            _ => Err(Bad::new(0, "the identity, the state or the path is missing")),
        }
    }
}

fn parse_path(text: &[u8]) -> Option<Vec<u8>> {
    let (mut path, mut bytes) = (Vec::with_capacity(text.len()), text.iter());
    while let Some(byte) = bytes.next() {
        path.push(match byte {
            b'\\' => match bytes.next()? {
                b'\\' => b'\\',
                b'n' => b'\n',
                _ => return None,
            },
            0 => return None,
            byte => *byte,
        });
    }
    path.starts_with(b"/").then_some(path)
}

/// Keeps what was found under a key, which is there once and says something.
pub(crate) fn once<T>(place: &mut Option<T>, value: Option<T>) -> Result<(), &'static str> {
    match (place.is_some(), value) {
        (true, _) => Err("a key is there twice"),
        (false, None) => Err("a value is none that its key can have"),
        (false, value) => {
            *place = value;
            Ok(())
        }
    }
}

/// Calls `each` with key and value of each line behind the first, which must be `magic` and the
/// version.
pub(crate) fn read(
    text: &[u8],
    magic: &[u8],
    mut each: impl FnMut(&[u8], &[u8]) -> Result<(), &'static str>,
) -> Result<(), Bad> {
    if text.len() > BYTES_MAX {
        return Err(Bad::new(BYTES_MAX as u64, "the text is too long"));
    }
    let mut at = 0;
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let bad = |what| Bad::new(at as u64, what);
        let line_bytes = line.len();
        let Some(line) = line.strip_suffix(b"\n") else {
            return Err(bad("the last line does not end"));
        };
        match line.strip_prefix(magic) {
            Some(version) if at == 0 && version != VERSION => {
                return Err(Bad::newer(
                    0,
                    "the first line has a version that this version does not know",
                ));
            }
            Some(_) if at == 0 => {}
            _ if at == 0 => return Err(bad("the first line is another")),
            _ => {
                let space = line
                    .iter()
                    .position(|byte| *byte == b' ')
                    .ok_or(bad("a line has no key and value"))?;
                each(&line[..space], &line[space + 1..]).map_err(bad)?;
            }
        }
        at += line_bytes;
    }
    if at == 0 { Err(Bad::new(0, "there is nothing in it")) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(path: &[u8]) -> Backend {
        Backend {
            identity: Identity(
                *b"\x00\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff",
            ),
            state: State::Active,
            path: path.to_vec(),
        }
    }

    #[test]
    fn entries_are_what_the_document_shows() {
        let text = b"plfs-backend 1\nidentity 00112233445566778899aabbccddeeff\nstate active\npath /mnt/other\n";
        assert_eq!(sample(b"/mnt/other").encode().unwrap(), text);
        assert_eq!(
            sample(b"/x").identity.encode(),
            b"plfs-identity 1\nidentity 00112233445566778899aabbccddeeff\n"
        );
        for state in [State::Active, State::Draining, State::Gone] {
            for path in [&b"/a"[..], b"/a b ", b"/line\nfeed\\", b"/\xff\xfe\r", b"/n\\n"] {
                let backend = Backend { state, ..sample(path) };
                assert_eq!(Backend::decode(&backend.encode().unwrap()), Ok(backend));
            }
        }
        let identity = sample(b"/").identity;
        assert_eq!(Identity::decode(&identity.encode()), Ok(identity));
    }

    #[test]
    fn people_may_add_and_reorder_keys() {
        let text = b"plfs-backend 1\npath /x\nnote bought in May\nstate gone\nidentity 00112233445566778899aabbccddeeff\n";
        assert_eq!(Backend::decode(text), Ok(Backend { state: State::Gone, ..sample(b"/x") }));
    }

    #[test]
    fn what_people_added_stays_when_an_entry_changes() {
        let text = b"plfs-backend 1\npath /x\nnote bought in May\nstate active\nidentity 00112233445566778899aabbccddeeff\n";
        let now = Backend { state: State::Draining, ..sample(b"/y\nz") };
        let amended = now.amend(text).unwrap();
        assert_eq!(
            String::from_utf8(amended).unwrap(),
            "plfs-backend 1\npath /y\\nz\nnote bought in May\nstate draining\nidentity \
             00112233445566778899aabbccddeeff\n"
        );
        assert!(sample(b"relative").amend(text).is_err());
    }

    #[test]
    fn other_texts_are_refused() {
        assert!(
            sample(b"relative").encode().is_err()
                && sample(b"/a\0b").encode().is_err()
                && sample(&[b'/'; 9000]).encode().is_err()
        );
        let good = String::from_utf8(sample(b"/x").encode().unwrap()).unwrap();
        let changes = [
            ("plfs-backend 1", "plfs-backend"),
            ("plfs-backend 1", "plfs-identity 1"),
            ("identity 0", "identity x"),
            ("identity 00", "identity "),
            ("00112233445566778899aabbccddeeff", "00000000000000000000000000000000"),
            ("aabbccddeeff", "AABBCCDDEEFF"),
            ("state active", "state Active"),
            ("state active\n", ""),
            ("state active\n", "state active\nstate gone\n"),
            ("state active\n", "state active\n\n"),
            ("/x", "/x\\y"),
            ("/x", "/x\\"),
            ("/x\n", "/x"),
            ("/x\n", "/x\nend"),
        ];
        for (from, to) in changes {
            let text = good.replacen(from, to, 1);
            assert!(
                text != good && Backend::decode(text.as_bytes()).is_err_and(|bad| !bad.newer),
                "{text}"
            );
        }
        let newer = good.replacen("plfs-backend 1", "plfs-backend 12", 1);
        assert!(Backend::decode(newer.as_bytes()).is_err_and(|bad| bad.newer));
        assert!(Identity::decode(b"").is_err() && Identity::decode(good.as_bytes()).is_err());
        for cut in 0..good.len() {
            assert!(Backend::decode(&good.as_bytes()[..cut]).is_err(), "{cut}");
        }
    }
}
