//! The layout of a directory (FORMAT.md section 1): how new files in it are laid out. A small text
//! that people may edit.

use crate::Bad;
use crate::backend::{once, read};
use crate::name;
use crate::superblock::{BACKENDS_MAX, STREAMS_MAX};

const MAGIC: &[u8] = b"plfs-layout ";

/// What the files of a directory are used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Plain until a second writer comes.
    Auto,
    /// Many writers for each file: a container from the beginning.
    Shared,
    /// One writer for each file, spread over the backends.
    Flat,
    /// Very many small files, packed.
    Small,
}

impl Workload {
    /// All, in the order in which they are explained.
    pub const ALL: [Workload; 4] =
        [Workload::Auto, Workload::Shared, Workload::Flat, Workload::Small];

    /// The word in a layout.
    pub fn word(self) -> &'static str {
        match self {
            Workload::Auto => "auto",
            Workload::Shared => "shared",
            Workload::Flat => "flat",
            Workload::Small => "small",
        }
    }

    /// The workload with this word.
    pub fn parse(word: &[u8]) -> Option<Workload> {
        Workload::ALL.into_iter().find(|workload| workload.word().as_bytes() == word)
    }
}

/// By what a writer chooses between the storage targets of a file (docs/decisions/0028).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// By what was measured of them.
    #[default]
    Measured,
    /// All of them, as much to each.
    Equal,
    /// The fastest up to the first cliff, as much to each.
    Cliff,
}

impl Placement {
    /// All, in the order in which they are explained.
    pub const ALL: [Placement; 3] = [Placement::Measured, Placement::Equal, Placement::Cliff];

    /// The word in a layout.
    pub fn word(self) -> &'static str {
        match self {
            Placement::Measured => "measured",
            Placement::Equal => "equal",
            Placement::Cliff => "cliff",
        }
    }

    /// The placement with this word.
    pub fn parse(word: &[u8]) -> Option<Placement> {
        Placement::ALL.into_iter().find(|placement| placement.word().as_bytes() == word)
    }
}

/// The backends that new files use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backends {
    /// The root and all that its table has.
    All,
    /// These, by their ids in the table of the root, where 0 is the root itself: 1 to 256, each
    /// once.
    Listed(Vec<u16>),
}

impl Backends {
    /// The words in a layout.
    pub fn words(&self) -> String {
        match self {
            Backends::All => "all".into(),
            Backends::Listed(ids) => {
                ids.iter().map(|id| name::backend(*id)).collect::<Vec<_>>().join(" ")
            }
        }
    }

    fn parse(words: &[u8]) -> Option<Backends> {
        if words == b"all" {
            return Some(Backends::All);
        }
        let mut ids = Vec::new();
        for word in words.split(|byte| *byte == b' ') {
            let id = match word {
                b"0000" => 0,
                word => name::parse_backend(std::str::from_utf8(word).ok()?)?,
            };
            if ids.contains(&id) || ids.len() == BACKENDS_MAX {
                return None;
            }
            ids.push(id);
        }
        Some(Backends::Listed(ids))
    }
}

/// What one directory says. What it does not say comes from the directories above.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// What its files are used for.
    pub workload: Option<Workload>,
    /// Data logs of a node for each file.
    pub streams: Option<u16>,
    /// Where data goes.
    pub backends: Option<Backends>,
    /// By what writers choose between those.
    pub placement: Option<Placement>,
}

impl Layout {
    /// The bytes of the file. Errors if a number is out of its range.
    pub fn encode(&self) -> Result<Vec<u8>, Bad> {
        let mut text = String::from("plfs-layout 1\n");
        let mut line = |key: &str, value: Option<String>| {
            if let Some(value) = value {
                text.extend([key, " ", &value, "\n"]);
            }
        };
        line("workload", self.workload.map(|workload| workload.word().into()));
        line("streams", self.streams.map(|streams| streams.to_string()));
        line("backends", self.backends.as_ref().map(Backends::words));
        line("placement", self.placement.map(|placement| placement.word().into()));
        Layout::decode(text.as_bytes()).map(|_| text.into_bytes())
    }

    /// What such a file says.
    pub fn decode(text: &[u8]) -> Result<Layout, Bad> {
        let mut layout = Layout::default();
        read(text, MAGIC, |key, value| match key {
            b"workload" => once(&mut layout.workload, Workload::parse(value)),
            b"streams" => once(&mut layout.streams, parse_streams(value)),
            b"backends" => once(&mut layout.backends, Backends::parse(value)),
            b"placement" => once(&mut layout.placement, Placement::parse(value)),
            // What it may mean would be lost on every new file.
            _ => Err("a key is none of workload, streams, backends and placement"),
        })?;
        Ok(layout)
    }
}

/// Decimal digits, the first not 0.
fn parse_streams(text: &[u8]) -> Option<u16> {
    let digits = std::str::from_utf8(text).ok().filter(|_| matches!(text, [b'1'..=b'9', ..]))?;
    if !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    digits.parse().ok().filter(|streams| (1..=STREAMS_MAX).contains(streams))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Layout {
        Layout {
            workload: Some(Workload::Shared),
            streams: Some(4),
            backends: Some(Backends::Listed(vec![0, 1, 0xfffe])),
            placement: Some(Placement::Cliff),
        }
    }

    #[test]
    fn a_layout_is_what_the_document_shows() {
        let text = b"plfs-layout 1\nworkload shared\nstreams 4\nbackends 0000 0001 fffe\n\
            placement cliff\n";
        assert_eq!(sample().encode().unwrap(), text);
        assert_eq!(Layout::default().encode().unwrap(), b"plfs-layout 1\n");
        for workload in Workload::ALL.map(Some).into_iter().chain([None]) {
            for streams in [None, Some(1), Some(256)] {
                for backends in
                    [None, Some(Backends::All), Some(Backends::Listed((0..256).collect()))]
                {
                    for placement in Placement::ALL.map(Some).into_iter().chain([None]) {
                        let backends = backends.clone();
                        let layout = Layout { workload, streams, backends, placement };
                        assert_eq!(Layout::decode(&layout.encode().unwrap()), Ok(layout));
                    }
                }
            }
        }
        let reordered = b"plfs-layout 1\nbackends all\nworkload small\n";
        assert_eq!(
            Layout::decode(reordered),
            Ok(Layout {
                workload: Some(Workload::Small),
                backends: Some(Backends::All),
                ..Layout::default()
            })
        );
    }

    #[test]
    fn other_texts_are_refused() {
        for (streams, ids) in
            [(0, vec![0]), (257, vec![0]), (1, vec![]), (1, vec![1, 1]), (1, (0..257).collect())]
        {
            let wrong = Layout {
                streams: Some(streams),
                backends: Some(Backends::Listed(ids)),
                ..Layout::default()
            };
            assert!(wrong.encode().is_err(), "{wrong:?}");
        }
        let good = String::from_utf8(sample().encode().unwrap()).unwrap();
        let changes = [
            ("plfs-layout 1", "plfs-layout"),
            ("plfs-layout 1", "plfs-backend 1"),
            ("plfs-layout 1", "\u{89}PLFS"),
            ("workload shared", "workload Shared"),
            ("workload shared", "workload shared "),
            ("workload shared", "workload  shared"),
            ("workload shared", "workload "),
            ("workload shared", "workload n-1"),
            ("workload", "Workload"),
            ("workload", "stripes"),
            ("streams 4", "streams 0"),
            ("streams 4", "streams 04"),
            ("streams 4", "streams +4"),
            ("streams 4", "streams -4"),
            ("streams 4", "streams 257"),
            ("streams 4", "streams 99999999999999999999"),
            ("streams 4", "streams 4\nstreams 4"),
            ("streams 4", "streams"),
            ("streams 4\n", "streams 4\n\n"),
            ("0000", "0"),
            ("0000", "all"),
            ("0000", "0001"),
            ("fffe", "ffff"),
            ("fffe", "FFFE"),
            ("fffe", "fffe "),
            ("fffe\n", "fffe\r\n"),
            ("cliff", "cliffs"),
            ("cliff\n", "cliff"),
            ("placement cliff", "placement cliff\nplacement cliff"),
        ];
        for (from, to) in changes {
            let text = good.replacen(from, to, 1);
            assert!(
                text != good && Layout::decode(text.as_bytes()).is_err_and(|bad| !bad.newer),
                "{text}"
            );
        }
        let newer = good.replacen("plfs-layout 1", "plfs-layout 2", 1);
        assert!(Layout::decode(newer.as_bytes()).is_err_and(|bad| bad.newer));
        assert!(Layout::decode(b"").is_err() && Layout::decode(&[b'a'; 9000]).is_err());
        // A text that was cut at the end of a line is whole: it is written to one side and renamed.
        for cut in (0..good.len()).filter(|cut| *cut == 0 || good.as_bytes()[cut - 1] != b'\n') {
            assert!(Layout::decode(&good.as_bytes()[..cut]).is_err(), "{cut}");
        }
    }
}
