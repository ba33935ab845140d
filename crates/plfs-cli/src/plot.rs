//! `plfs map --plot`: a picture of which writer wrote which offsets when, as SVG. No I/O.
//!
//! An index is a trace of writes that costs nothing: a record has the stamp of its first piece, its
//! block the stamp of the commit, and a writer has one record under way at a time. So a record was
//! written between its stamp and the earlier of its block's and the writer's next one; the times of
//! its pieces in between are not recorded, and the picture assumes an equal pace.
//!
//! Few pieces are drawn one by one, many as the line of their run, very many as a grid of cells
//! that each have the colour of one of their writers. The picture needs no font, script or other
//! file, and has at most some [`SHAPES_MAX`] elements.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt::Write;

use indicatif::BinaryBytes;
use plfs_core::index::Run;
use plfs_core::{RecordKind, Records, WrittenBy};

use crate::out::{count, time};
use crate::svg::{self, Area, PLOT, SIZE, escape, line, short};

/// A cell of the grid, pixels: 185 x 125 cells, which is a picture of at most some 400 KB.
const CELL: f64 = 4.0;
/// Pieces or runs up to which each is drawn. Viewers are slow with more.
const SHAPES_MAX: u64 = 2000;
/// Writers, hosts or log sets up to which each has a colour of its own, and lines of the legend:
/// more colours cannot be distinguished.
const COLOURS_MAX: usize = svg::COLOURS.len();
/// For more: between these, in order.
const RAMP: [(f64, f64, f64); 5] = [
    (68.0, 30.0, 120.0),
    (50.0, 100.0, 180.0),
    (30.0, 160.0, 140.0),
    (150.0, 190.0, 50.0),
    (240.0, 140.0, 30.0),
];
/// Colours that are made of the ramp.
const RAMP_STEPS: usize = 32;
const TRUNCATES_MAX: usize = 50;
/// Pixels of a colour, where lines of several colours lie on each other.
const STRIPE: usize = 8;
const STRIPE_WIDTH: f64 = 3.0;

/// A run and when it was written, in stamps, as far as that is known.
struct Span {
    run: Run,
    begin: f64,
    end: f64,
    group: usize,
    who: Option<u32>,
}

/// The picture of these bytes as SVG, and a few words about it.
pub fn draw(all: &Records, name: &str, len: u64, from: u64, to: Option<u64>) -> (String, String) {
    let base = all.records.first().map_or(0, |record| record.stamp);
    let groups = Groups::new(all);
    let spans = spans(all, base, &groups, from, to.unwrap_or(u64::MAX));
    let truncates: Vec<(f64, u64)> = all
        .records
        .iter()
        .filter_map(|record| match record.said {
            RecordKind::Truncate(size) => Some((record.stamp.saturating_sub(base) as f64, size)),
            RecordKind::Run(_) | RecordKind::Hole { .. } => None,
        })
        .collect();
    // From the first to the last write in sight, so that a part of a file fills the picture as
    // well.
    let marks = truncates.iter().map(|(at, _)| *at).filter(|_| (from, to) == (0, None));
    let start =
        spans.iter().map(|span| span.begin).chain(marks.clone()).fold(f64::INFINITY, f64::min);
    let start = if start.is_finite() { start } else { 0.0 };
    let end = spans.iter().map(|span| span.end).chain(marks).fold(start + 64.0, f64::max);
    let top = to
        .unwrap_or_else(|| spans.iter().map(|span| span.run.end()).max().unwrap_or(len))
        .max(from.saturating_add(1));
    // Far offsets that are near each other are one number here.
    let view =
        View { start, end, from: from as f64, to: (top as f64).max((from as f64).next_up()) };

    let mut svg = String::new();
    svg::begin(&mut svg, &format!("{}: who wrote which offsets when", escape(name)));
    let pieces = spans.iter().fold(0u64, |sum, span| sum.saturating_add(span.run.count.into()));
    let bytes = spans.iter().fold(0u64, |sum, span| sum.saturating_add(span.run.bytes()));
    line(
        &mut svg,
        format_args!(
            r#"<text x="{}" y="26" font-size="17" font-weight="bold">{}</text>"#,
            PLOT.left,
            escape(&shortened(name, 70))
        ),
    );
    let who: HashSet<Option<u32>> = spans.iter().map(|span| span.who).collect();
    let who: HashSet<Option<&WrittenBy>> =
        who.into_iter().map(|who| who.and_then(|who| all.writers.get(who as usize))).collect();
    let writers = match who.len() {
        1 => "1 writer".into(),
        n => format!("{} writers", count(n as u64)),
    };
    let since = time((base_ns(base, start) / 1_000_000_000) as i64, 0);
    let facts = format!(
        "{}; {writers} wrote {} pieces, {}, from {since} on",
        BinaryBytes(len),
        count(pieces),
        BinaryBytes(bytes)
    );
    line(
        &mut svg,
        format_args!(r##"<text x="{}" y="46" fill="#666">{}</text>"##, PLOT.left, escape(&facts)),
    );
    axes(&mut svg, &view);
    let how = if pieces <= SHAPES_MAX {
        each(&mut svg, all, &spans, &view, &groups, true);
        "each piece"
    } else if spans.len() as u64 <= SHAPES_MAX {
        each(&mut svg, all, &spans, &view, &groups, false);
        "each run, from its first piece to its last"
    } else {
        cells(&mut svg, &spans, &view, &groups);
        "cells, each in the colour of one of its writers"
    };
    for (at, size) in
        truncates.iter().filter(|(at, _)| (view.start..=view.end).contains(at)).take(TRUNCATES_MAX)
    {
        let x = view.x(*at);
        line(
            &mut svg,
            format_args!(
                r##"<path d="M{x:.1} {}v{}" stroke="#c00" stroke-dasharray="4 3"><title>truncate to {} bytes</title></path>"##,
                PLOT.top,
                PLOT.height,
                count(*size)
            ),
        );
    }
    legend(&mut svg, &groups, !truncates.is_empty());
    let note = format!(
        "Drawn: {how}. A record tells when it began and by when it was complete; between, an \
         equal pace is assumed."
    );
    line(
        &mut svg,
        format_args!(
            r##"<text x="{}" y="{}" font-size="11" fill="#888">{note}</text>"##,
            PLOT.left,
            SIZE.1 - 12.0
        ),
    );
    svg.push_str("</svg>\n");
    (svg, format!("{} pieces of {writers}; drawn: {how}", count(pieces)))
}

fn base_ns(base: u64, offset: f64) -> u128 {
    ((u128::from(base) + offset.max(0.0) as u128) * 1_000_000) >> 16
}

fn shortened(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        Some(_) => text.chars().take(max - 1).chain(['…']).collect(),
        None => text.to_string(),
    }
}

fn person(all: &Records, who: Option<u32>) -> String {
    who.and_then(|who| all.writers.get(who as usize))
        .map_or_else(|| "unknown".into(), |by| format!("{}:{}", by.host, by.pid))
}

/// The runs in sight with their times; those of a nest share its time.
fn spans(all: &Records, base: u64, groups: &Groups, from: u64, to: u64) -> Vec<Span> {
    let mut next: HashMap<(u32, Option<u32>), u64> = HashMap::new();
    let mut spans = Vec::new();
    for nest in all.records.chunk_by(|a, b| (a.stamp, a.set) == (b.stamp, b.set)).rev() {
        let record = &nest[0];
        let begun = next.insert((record.set, record.writer), record.stamp);
        let end = begun.unwrap_or(u64::MAX).min(record.committed).max(record.stamp);
        let (begin, end) =
            (record.stamp.saturating_sub(base) as f64, end.saturating_sub(base) as f64);
        let at = |i: usize| begin + (end - begin) * i as f64 / nest.len() as f64;
        for (i, record) in nest.iter().enumerate().rev() {
            if let RecordKind::Run(run) = record.said
                && run.first() < to
                && from < run.end()
            {
                spans.push(Span {
                    run,
                    begin: at(i),
                    end: at(i + 1),
                    group: groups.of(record.writer, record.set),
                    who: record.writer,
                });
            }
        }
    }
    spans.reverse();
    spans
}

/// Which records have a colour in common.
struct Groups {
    title: &'static str,
    names: Vec<String>,
    by_writer: Vec<usize>,
    by_set: Option<HashMap<u32, usize>>,
    unknown: usize,
}

impl Groups {
    /// Writers, if they are few; else hosts or log sets, if these are few; else hosts if there are
    /// several, else writers.
    fn new(all: &Records) -> Groups {
        // A writer that only truncated is not in the picture.
        let runs = || all.records.iter().filter(|record| matches!(record.said, RecordKind::Run(_)));
        let wrote: HashSet<u32> = runs().filter_map(|record| record.writer).collect();
        let writers = || {
            all.writers
                .iter()
                .enumerate()
                .filter(|(i, _)| wrote.contains(&(*i as u32)))
                .map(|(_, by)| by)
        };
        let person = |by: &WrittenBy| (by.host.clone(), by.pid);
        let hosts: BTreeSet<&str> = writers().map(|by| by.host.as_str()).collect();
        let people: BTreeSet<(String, u32)> = writers().map(person).collect();
        let host = |writer: Option<u32>| {
            writer
                .and_then(|writer| all.writers.get(writer as usize))
                .map_or("", |by| by.host.as_str())
        };
        let sets: BTreeMap<u32, &str> =
            runs().map(|record| (record.set, host(record.writer))).collect();
        let few = |n: usize| (2..=COLOURS_MAX).contains(&n);
        let unknown = runs().any(|record| record.writer.is_none());
        let mut groups = if people.len() > COLOURS_MAX && !few(hosts.len()) && few(sets.len()) {
            let names = sets.iter().map(|(set, host)| format!("{host} {set:08x}")).collect();
            let by_set = sets.keys().enumerate().map(|(i, set)| (*set, i)).collect();
            Groups {
                title: "log set",
                names,
                by_writer: Vec::new(),
                by_set: Some(by_set),
                unknown: 0,
            }
        } else if people.len() > COLOURS_MAX && hosts.len() > 1 {
            let places: HashMap<&str, usize> =
                hosts.iter().enumerate().map(|(i, host)| (*host, i)).collect();
            let by_writer = all
                .writers
                .iter()
                .map(|by| places.get(by.host.as_str()).copied().unwrap_or(0))
                .collect();
            Groups {
                title: "host",
                names: hosts.iter().map(|host| host.to_string()).collect(),
                by_writer,
                by_set: None,
                unknown: 0,
            }
        } else {
            let places: HashMap<&(String, u32), usize> =
                people.iter().enumerate().map(|(i, who)| (who, i)).collect();
            let by_writer = all
                .writers
                .iter()
                .map(|by| places.get(&person(by)).copied().unwrap_or(0))
                .collect();
            let names = people.iter().map(|(host, pid)| format!("{host}:{pid}")).collect();
            Groups { title: "writer (host:process)", names, by_writer, by_set: None, unknown: 0 }
        };
        if unknown || groups.names.is_empty() {
            groups.unknown = groups.names.len();
            groups.names.push("unknown".into());
        }
        groups
    }

    fn of(&self, writer: Option<u32>, set: u32) -> usize {
        match &self.by_set {
            Some(by_set) => by_set.get(&set).copied().unwrap_or(self.unknown),
            None => writer
                .and_then(|writer| self.by_writer.get(writer as usize))
                .copied()
                .unwrap_or(self.unknown),
        }
    }

    /// Groups with the same number have the same colour.
    fn shade(&self, group: usize) -> usize {
        match self.names.len() {
            ..=COLOURS_MAX => group,
            n => group * (RAMP_STEPS - 1) / (n - 1),
        }
    }

    fn colour(&self, shade: usize) -> String {
        if self.names.len() <= COLOURS_MAX {
            return svg::COLOURS[shade % COLOURS_MAX].to_string();
        }
        let at = shade as f64 / (RAMP_STEPS - 1) as f64 * (RAMP.len() - 1) as f64;
        let (i, part) =
            ((at as usize).min(RAMP.len() - 2), at - at.floor().min((RAMP.len() - 2) as f64));
        let mix = |a: f64, b: f64| (a + (b - a) * part).round() as u8;
        let (a, b) = (RAMP[i], RAMP[i + 1]);
        format!("#{:02x}{:02x}{:02x}", mix(a.0, b.0), mix(a.1, b.1), mix(a.2, b.2))
    }
}

/// The part of time and file that the plot shows.
struct View {
    start: f64,
    end: f64,
    from: f64,
    to: f64,
}

impl View {
    fn x(&self, time: f64) -> f64 {
        PLOT.left + PLOT.width * ((time - self.start) / (self.end - self.start)).clamp(0.0, 1.0)
    }

    fn y(&self, offset: f64) -> f64 {
        PLOT.top
            + PLOT.height * (1.0 - ((offset - self.from) / (self.to - self.from)).clamp(0.0, 1.0))
    }
}

/// The smallest of 1, 2, 5, 10, … times `unit` of which at most `most` fit into `range`.
fn decimal_step(range: f64, unit: f64, most: f64) -> f64 {
    let raw = range / most / unit;
    let power = 10f64.powf(raw.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|digit| digit * power)
        .find(|step| *step >= raw * 0.999_999)
        .unwrap_or(10.0 * power)
        * unit
}

/// The smallest power of two of which at most `most` fit into `range`, at least 1.
fn binary_step(range: f64, most: f64) -> f64 {
    2f64.powf((range / most).max(1.0).log2().ceil())
}

/// The name of the unit for offsets up to this, and its bytes: parts of 2 GiB are given in MiB.
fn byte_unit(most: f64) -> (&'static str, f64) {
    let units = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let power = (0..units.len())
        .rev()
        .find(|power| most >= 4.0 * 2f64.powi(10 * *power as i32))
        .unwrap_or(0);
    (units[power], 2f64.powi(10 * power as i32))
}

/// The name of the unit for times up to this many stamps, and its stamps.
fn time_unit(most: f64) -> (&'static str, f64) {
    let ms = 65536.0;
    let units = [
        ("h", 3_600_000.0 * ms),
        ("min", 60_000.0 * ms),
        ("s", 1000.0 * ms),
        ("ms", ms),
        ("µs", ms / 1000.0),
    ];
    // Minutes and hours only where seconds have many digits.
    let fits = |(name, unit): &&(&str, f64)| {
        most >= if matches!(*name, "h" | "min") { 5.0 * unit } else { *unit }
    };
    units.iter().find(fits).copied().unwrap_or(("µs", ms / 1000.0))
}

fn axes(svg: &mut String, view: &View) {
    let Area { left, top, width, height } = PLOT;
    let bottom = top + height;
    let (unit, bytes) = byte_unit(view.to);
    let step = binary_step(view.to - view.from, 9.0);
    let first = (view.from / step).ceil();
    // Counted: a far offset and a step more may be the same number.
    for at in (0..10).map(|i| (first + f64::from(i)) * step).take_while(|at| *at <= view.to) {
        let y = view.y(at);
        line(
            svg,
            format_args!(
                r##"<path d="M{left} {y:.1}h{width}" stroke="#eee"/><text x="{:.1}" y="{:.1}" text-anchor="end">{}</text>"##,
                left - 8.0,
                y + 4.0,
                short(at / bytes)
            ),
        );
    }
    let (seconds, stamps) = time_unit(view.end - view.start);
    let step = decimal_step(view.end - view.start, stamps, 10.0);
    for i in 0..=((view.end - view.start) / step * 1.000_001) as u32 {
        let at = f64::from(i) * step;
        let x = view.x(view.start + at);
        line(
            svg,
            format_args!(
                r##"<path d="M{x:.1} {top}v{height}" stroke="#eee"/><text x="{x:.1}" y="{}" text-anchor="middle">{}</text>"##,
                bottom + 18.0,
                short(at / stamps)
            ),
        );
    }
    let across = format!("time since the first write, {seconds}");
    svg::axes(svg, &across, &format!("offset in the file, {unit}"));
}

/// Lines of several colours that would hide each other, as those of writers who take turns do: how
/// many there are, and the number of each among them.
fn stripes(spans: &[Span], view: &View, groups: &Groups) -> Vec<(usize, usize)> {
    let ends = |span: &Span| {
        let last = span.run.logical as f64 + f64::from(span.run.count - 1) * span.run.stride as f64;
        [view.x(span.begin), view.y(span.run.logical as f64), view.x(span.end), view.y(last)]
    };
    let mut bundles: Vec<([f64; 4], BTreeSet<usize>)> = Vec::new();
    let mut bundle_of = Vec::with_capacity(spans.len());
    for span in spans {
        let own = ends(span);
        let near = |(other, _): &([f64; 4], BTreeSet<usize>)| {
            own.iter().zip(other).all(|(a, b)| (a - b).abs() < STRIPE_WIDTH)
        };
        let bundle = bundles.iter().position(near).unwrap_or_else(|| {
            bundles.push((own, BTreeSet::new()));
            bundles.len() - 1
        });
        bundles[bundle].1.insert(groups.shade(span.group));
        bundle_of.push(bundle);
    }
    spans
        .iter()
        .zip(bundle_of)
        .map(|(span, bundle)| {
            (bundles[bundle].1.len(), bundles[bundle].1.range(..groups.shade(span.group)).count())
        })
        .collect()
}

/// Each run, with its pieces or as a line; a tooltip describes each.
fn each(
    svg: &mut String,
    all: &Records,
    spans: &[Span],
    view: &View,
    groups: &Groups,
    pieces: bool,
) {
    let stripes = if pieces { vec![(1, 0); spans.len()] } else { stripes(spans, view, groups) };
    for (span, (colours, place)) in spans.iter().zip(stripes) {
        let Span { run, begin, end, .. } = span;
        let colour = groups.colour(groups.shade(span.group));
        let mut path = String::new();
        let offset = |i: u32| run.logical as f64 + f64::from(i) * run.stride as f64;
        let time = |i: u32| begin + (end - begin) * f64::from(i) / f64::from(run.count);
        if pieces {
            for i in 0..run.count {
                let (x, y) = (view.x(time(i)), view.y(offset(i) + run.length as f64));
                let (wide, high) =
                    ((view.x(time(i + 1)) - x).max(1.5), (view.y(offset(i)) - y).max(1.5));
                let _ = write!(path, "M{x:.1} {y:.1}h{wide:.1}v{high:.1}h-{wide:.1}z");
            }
            let _ = write!(svg, r#"<path fill="{colour}" d="{path}">"#);
        } else {
            let half = run.length as f64 / 2.0;
            let (x, y, last) =
                (view.x(*begin), view.y(offset(0) + half), view.y(offset(run.count - 1) + half));
            let thick = (view.y(0.0) - view.y(run.length as f64)).clamp(1.2, 6.0);
            // A line of no length would not be seen.
            let across = view.x(*end).max(x + 1.2);
            let dashes = match colours {
                1 => String::new(),
                n => format!(
                    r#" stroke-dasharray="{STRIPE} {}" stroke-dashoffset="-{}""#,
                    STRIPE * (n - 1),
                    STRIPE * place
                ),
            };
            let thick = if colours > 1 { thick.max(STRIPE_WIDTH) } else { thick };
            let _ = write!(
                svg,
                r#"<path stroke="{colour}" stroke-width="{thick:.1}"{dashes} d="M{x:.1} {y:.1}L{across:.1} {last:.1}">"#
            );
        }
        let distance =
            if run.count > 1 { format!(", distance {} B", run.stride) } else { String::new() };
        let what = format!(
            "{}: {} x {} B at {}{distance}",
            person(all, span.who),
            count(run.count.into()),
            count(run.length),
            count(run.logical)
        );
        line(svg, format_args!("<title>{}</title></path>", escape(&what)));
    }
}

/// A grid in which each cell has the colour of one of its writers, drawn at random with a
/// probability proportional to the writer's part of the cell's bytes: a writer of most bytes
/// prevails, and where many take turns all are seen. Constant memory, whatever the number of
/// writers. One path for each colour.
fn cells(svg: &mut String, spans: &[Span], view: &View, groups: &Groups) {
    let (columns, rows) = ((PLOT.width / CELL) as usize, (PLOT.height / CELL) as usize);
    // The colour chosen so far, and the number of bytes that it was chosen from.
    let mut drawn = vec![(0usize, 0f64); columns * rows];
    // A fixed seed, so that the picture is the same each time (xorshift64).
    let mut lot = 0x9e37_79b9_7f4a_7c15u64;
    let mut lot = || {
        lot ^= lot << 13;
        lot ^= lot >> 7;
        lot ^= lot << 17;
        (lot >> 11) as f64 / (1u64 << 53) as f64
    };
    let column = |time: f64| (((view.x(time) - PLOT.left) / CELL) as usize).min(columns - 1);
    let row =
        |offset: f64| (((PLOT.top + PLOT.height - view.y(offset)) / CELL) as usize).min(rows - 1);
    for span in spans {
        let run = &span.run;
        // So many parts that each stays in a cell or two.
        let parts = u64::from(run.count).min(2 * (columns + rows) as u64);
        let shade = groups.shade(span.group);
        for part in 0..parts {
            let (first, last) = (
                part * u64::from(run.count) / parts,
                (part + 1) * u64::from(run.count) / parts - 1,
            );
            let offset = |i: u64| run.logical as f64 + i as f64 * run.stride as f64;
            let (low, high) = (
                offset(first).min(offset(last)),
                offset(first).max(offset(last)) + run.length as f64,
            );
            if high <= view.from || low >= view.to {
                continue;
            }
            let time =
                |part: u64| span.begin + (span.end - span.begin) * part as f64 / parts as f64;
            let (left, right) = (column(time(part)), column(time(part + 1)));
            let (bottom, top) = (row(low), row(high - 1.0));
            let weight = run.length as f64 * (last - first + 1) as f64
                / ((right - left + 1) * (top - bottom + 1)) as f64;
            for x in left..=right {
                for (colour, bytes) in &mut drawn[x * rows + bottom..=x * rows + top] {
                    *bytes += weight;
                    if *colour != shade && lot() * *bytes < weight {
                        *colour = shade;
                    }
                }
            }
        }
    }
    let mut paths: BTreeMap<usize, String> = BTreeMap::new();
    for y in 0..rows {
        let mut x = 0;
        while x < columns {
            let (shade, bytes) = drawn[x * rows + y];
            let same = |other: &usize| {
                bytes > 0.0 && drawn[other * rows + y].1 > 0.0 && drawn[other * rows + y].0 == shade
            };
            let run = (x..columns).take_while(same).count();
            if run > 0 {
                let (left, top, wide) = (
                    PLOT.left + x as f64 * CELL,
                    PLOT.top + PLOT.height - (y + 1) as f64 * CELL,
                    run as f64 * CELL,
                );
                let _ =
                    write!(paths.entry(shade).or_default(), "M{left} {top}h{wide}v{CELL}h-{wide}z");
            }
            x += run.max(1);
        }
    }
    for (shade, path) in paths {
        line(
            svg,
            format_args!(
                r#"<path fill="{}" shape-rendering="crispEdges" d="{path}"/>"#,
                groups.colour(shade)
            ),
        );
    }
}

fn legend(svg: &mut String, groups: &Groups, truncates: bool) {
    let (x, mut y) = (PLOT.left + PLOT.width + 20.0, PLOT.top + 10.0);
    let n = groups.names.len();
    let shown = n.min(COLOURS_MAX);
    line(svg, format_args!(r#"<text x="{x}" y="{y}" font-weight="bold">{}</text>"#, groups.title));
    for i in 0..shown {
        // Of many, some at equal distances, the first and the last among them.
        let group = if n > shown { i * (n - 1) / (shown - 1) } else { i };
        y += 20.0;
        line(
            svg,
            format_args!(
                r#"<rect x="{x}" y="{}" width="12" height="12" fill="{}"/>"#,
                y - 10.0,
                groups.colour(groups.shade(group))
            ),
        );
        line(
            svg,
            format_args!(
                r#"<text x="{}" y="{y}">{}</text>"#,
                x + 18.0,
                escape(&shortened(&groups.names[group], 28))
            ),
        );
    }
    if n > shown {
        y += 20.0;
        line(
            svg,
            format_args!(
                r##"<text x="{x}" y="{y}" fill="#666">{} of {}, by name</text>"##,
                shown,
                count(n as u64)
            ),
        );
    }
    if truncates {
        y += 26.0;
        line(
            svg,
            format_args!(
                r##"<path d="M{x} {}h12" stroke="#c00" stroke-dasharray="4 3"/><text x="{}" y="{y}">truncate</text>"##,
                y - 4.0,
                x + 18.0
            ),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plfs_core::IndexRecord;

    fn made(writers: u32, hosts: u32, runs: u32, pieces: u32) -> Records {
        let mut all = Records {
            writers: (0..writers)
                .map(|i| WrittenBy { host: format!("n<{}>", i % hosts), pid: i, uid: 0 })
                .collect(),
            ..Records::default()
        };
        for i in 0..runs * writers {
            let stride = if pieces == 1 { 0 } else { 100 };
            let run = Run {
                logical: u64::from(i) * 1000,
                length: 7,
                stride,
                count: pieces,
                segment: 0,
                physical: 0,
            };
            let stamp = (1_750_000_000_000 << 16) + u64::from(i) * 1000;
            all.records.push(IndexRecord {
                stamp,
                committed: stamp + 5000,
                set: i % writers % hosts,
                said: RecordKind::Run(run),
                writer: Some(i % writers),
            });
        }
        all
    }

    #[test]
    fn pictures_have_few_elements_and_a_size_that_does_not_grow() {
        for (writers, hosts, runs, pieces) in [
            (1, 1, 0, 1),
            (1, 1, 1, 1),
            (3, 2, 5, 10),
            (12, 3, 100, 3),
            (64, 1, 20, 100),
            (500, 500, 40, 2),
            (500, 5, 40, u32::MAX),
        ] {
            let all = made(writers, hosts, runs, pieces);
            let (svg, _) = draw(&all, "a&b", 1 << 40, 0, None);
            assert!(
                svg.matches('<').count() < 5 * SHAPES_MAX as usize,
                "{}",
                svg.matches('<').count()
            );
            assert!(svg.len() < 1 << 20, "{}", svg.len());
            assert!(
                svg.contains("a&amp;b")
                    && !svg.contains("n<0")
                    && !svg.contains("NaN")
                    && !svg.contains("inf"),
                "{svg}"
            );
        }
    }

    /// A picture of a few bytes far out took all memory, for a step that was none there.
    #[test]
    fn far_offsets_have_a_picture() {
        let mut all = made(1, 1, 1, 1);
        let RecordKind::Run(run) = &mut all.records[0].said else { panic!() };
        run.logical = 1 << 62;
        for (from, to) in
            [(1 << 62, None), ((1 << 62) + 5, Some((1 << 62) + 6)), (u64::MAX, None), (0, Some(0))]
        {
            let (svg, _) = draw(&all, "far", (1 << 62) + 7, from, to);
            assert!(svg.len() < 10_000 && !svg.contains("NaN"), "{from} {to:?} {svg}");
        }
    }

    /// A writer's record ends where its next begins or where its block was committed, whichever is
    /// earlier; runs of a nest share its time.
    #[test]
    fn times_are_those_that_are_known() {
        let mut all = made(2, 1, 2, 1);
        let base = all.records[0].stamp;
        let at = |all: &Records| {
            spans(all, base, &Groups::new(all), 0, u64::MAX)
                .iter()
                .map(|span| (span.begin, span.end))
                .collect::<Vec<_>>()
        };
        assert_eq!(at(&all), [(0.0, 2000.0), (1000.0, 3000.0), (2000.0, 7000.0), (3000.0, 8000.0)]);
        all.records[0].committed = base + 500;
        assert_eq!(at(&all)[0], (0.0, 500.0));
        let nest = vec![all.records[0]; 4];
        all.records.splice(0..1, nest);
        assert_eq!(at(&all)[..4], [(0.0, 125.0), (125.0, 250.0), (250.0, 375.0), (375.0, 500.0)]);
    }

    #[test]
    fn colours_are_of_what_is_few() {
        let title = |writers, hosts| Groups::new(&made(writers, hosts, 1, 1)).title;
        assert_eq!(
            (title(12, 12), title(13, 12), title(64, 1), title(500, 500)),
            ("writer (host:process)", "host", "writer (host:process)", "host")
        );
        let many = Groups::new(&made(64, 1, 1, 1));
        assert_eq!(
            (many.colour(many.shade(0)), many.colour(many.shade(63))),
            ("#441e78".into(), "#f08c1e".into())
        );
    }

    #[test]
    fn steps_are_round() {
        assert_eq!(
            (
                decimal_step(10.0, 1.0, 10.0),
                decimal_step(11.0, 1.0, 10.0),
                decimal_step(0.3, 0.001, 10.0)
            ),
            (1.0, 2.0, 0.05)
        );
        assert_eq!(
            (binary_step(4096.0, 8.0), binary_step(4097.0, 8.0), binary_step(3.0, 8.0)),
            (512.0, 1024.0, 1.0)
        );
        assert_eq!(
            (byte_unit(4095.0).0, byte_unit(4096.0).0, byte_unit(2f64.powi(62)).0),
            ("bytes", "KiB", "EiB")
        );
        let second = 65_536_000.0;
        assert_eq!(
            [0.5e-6, 0.01, 1.0, 200.0, 300.0, 18_000.0].map(|s| time_unit(s * second).0),
            ["µs", "ms", "s", "s", "min", "h"]
        );
    }
}
