//! YAML as a tree whose every part knows its line and column. Pure.
//!
//! What configuration needs no more than an attacker does is refused: anchors and aliases (a text
//! of a kilobyte that means a gigabyte), tags, several documents, keys that are there twice.

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span};

/// A line and a column, from 1 on. Columns count characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    /// Line.
    pub line: usize,
    /// Column.
    pub column: usize,
}

/// A part of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Where it begins.
    pub at: At,
    /// What it is.
    pub what: What,
}

/// What a part of the tree is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// Nothing, `~` or `null`.
    Null,
    /// Text; whoever wants a number reads it as one.
    Text(String),
    /// A list.
    List(Vec<Node>),
    /// Keys with values, in their order. No key is there twice.
    Map(Vec<Entry>),
}

/// A key and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// Where the key begins.
    pub at: At,
    /// The value.
    pub value: Node,
}

/// Lists and maps in each other. Configuration has four; the parser's and our own stack are short.
const DEPTH_MAX: usize = 16;

/// A list or a map that has not ended.
enum Open {
    List(At, Vec<Node>),
    Map(At, Vec<Entry>, Option<(String, At)>),
}

/// What is wrong, and where.
pub type Wrong = (At, String);

/// The tree of a text.
pub fn parse(text: &str) -> Result<Node, Wrong> {
    let (mut open, mut root) = (Vec::<Open>::new(), None);
    for event in Parser::new_from_str(text) {
        let (event, span) = event
            .map_err(|error| (at(error.marker()), format!("this is no YAML: {}", error.info())))?;
        let Span { start, .. } = span;
        let here = at(&start);
        let node = match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => continue,
            Event::DocumentStart(_) if root.is_none() => continue,
            Event::DocumentStart(_) => {
                return Err((here, "a second document begins; remove it and the --- line".into()));
            }
            Event::Alias(_) => {
                return Err((here, "aliases (*name) are not understood; write the value".into()));
            }
            Event::Scalar(_, _, anchor, ref tag)
            | Event::SequenceStart(anchor, ref tag)
            | Event::MappingStart(anchor, ref tag)
                if anchor != 0 || tag.is_some() =>
            {
                return Err((
                    here,
                    "anchors (&name) and tags (!name) are not understood; remove it".into(),
                ));
            }
            Event::Scalar(text, style, ..) => {
                let is_plain = style == ScalarStyle::Plain;
                let what = match text.as_ref() {
                    "" | "~" | "null" if is_plain => What::Null,
                    text => What::Text(text.to_string()),
                };
                Node { at: here, what }
            }
            Event::SequenceStart(..) | Event::MappingStart(..) if open.len() == DEPTH_MAX => {
                return Err((here, "lists and maps lie too deep in each other".into()));
            }
            Event::SequenceStart(..) => {
                open.push(Open::List(here, Vec::new()));
                continue;
            }
            Event::MappingStart(..) => {
                open.push(Open::Map(here, Vec::new(), None));
                continue;
            }
            Event::SequenceEnd | Event::MappingEnd => match open.pop() {
                Some(Open::List(at, nodes)) => Node { at, what: What::List(nodes) },
                Some(Open::Map(at, entries, _)) => Node { at, what: What::Map(entries) },
                // INVARIANT: the parser ends only what it has begun.
                None => continue,
            },
        };
        match open.last_mut() {
            None => root = Some(node),
            Some(Open::List(_, nodes)) => nodes.push(node),
            Some(Open::Map(_, entries, key)) => match key.take() {
                Some((key, at)) => entries.push(Entry { key, at, value: node }),
                None => *key = Some(key_of(node, entries)?),
            },
        }
    }
    Ok(root.unwrap_or(Node { at: At { line: 1, column: 1 }, what: What::Null }))
}

fn key_of(node: Node, entries: &[Entry]) -> Result<(String, At), Wrong> {
    let What::Text(key) = node.what else {
        return Err((node.at, "a key must be a word".into()));
    };
    match entries.iter().find(|entry| entry.key == key) {
        Some(first) => Err((
            node.at,
            format!("{key} is there twice, first on line {}; remove one", first.at.line),
        )),
        None => Ok((key, node.at)),
    }
}

fn at(marker: &Marker) -> At {
    At { line: marker.line().max(1), column: marker.col() + 1 }
}
