//! `plfs model simulate --plot`: bandwidth against ranks, both logarithmic, as SVG. No I/O.

use plfs_placement::published;
use plfs_placement::simulate::Strategy;

use super::{Named, STRATEGIES, Table, whole};
use crate::out::count;
use crate::svg::{self, Area, PLOT, SIZE, escape, line, short};

/// Marks of the axis of ranks that have room beside each other.
const MARKS_MAX: f64 = 12.0;
/// Where the legend begins.
const LEGEND: f64 = PLOT.left + PLOT.width + 20.0;

/// What a picture shows: powers of two of ranks, powers of ten of MB/s.
struct View {
    ranks: (f64, f64),
    mb_s: (f64, f64),
}

impl View {
    fn new(table: &Table) -> View {
        let ranks = || table.rows.iter().map(|(ranks, _)| f64::from(*ranks).log2());
        let mb_s = || {
            let cells = table.rows.iter().flat_map(|(_, cells)| cells);
            cells.flat_map(|cell| [Some(cell.mb_s()), cell.published_mb_s]).flatten()
        };
        let low = ranks().fold(f64::INFINITY, f64::min).floor();
        let high = ranks().fold(0.0, f64::max).ceil().max(low + 1.0);
        let least = mb_s().fold(f64::INFINITY, f64::min).log10().floor();
        let most = mb_s().fold(f64::NEG_INFINITY, f64::max).log10().ceil().max(least + 1.0);
        View { ranks: (low, high), mb_s: (least, most) }
    }

    fn x(&self, ranks: u32) -> f64 {
        let part = (f64::from(ranks).log2() - self.ranks.0) / (self.ranks.1 - self.ranks.0);
        PLOT.left + PLOT.width * part
    }

    fn y(&self, mb_s: f64) -> f64 {
        let part = (mb_s.log10() - self.mb_s.0) / (self.mb_s.1 - self.mb_s.0);
        PLOT.top + PLOT.height * (1.0 - part)
    }
}

/// The picture of a table that has a row at least.
pub fn draw(table: &Table) -> String {
    let view = View::new(table);
    let mut svg = String::new();
    svg::begin(&mut svg, "bandwidth against ranks, as plfs model predicts it");
    line(
        &mut svg,
        format_args!(
            r#"<text x="{}" y="26" font-size="17" font-weight="bold">How fast a job writes, by how its data is laid out</text>"#,
            PLOT.left
        ),
    );
    line(
        &mut svg,
        format_args!(
            r##"<text x="{}" y="46" fill="#666">{}</text>"##,
            PLOT.left,
            escape(&table.facts())
        ),
    );
    axes(&mut svg, &view);
    let mut y = PLOT.top + 10.0;
    for (column, named) in table.columns.iter().enumerate() {
        curve(&mut svg, &view, table, column);
        let text = format!(r#"<text x="{}" y="{y}">{}</text>"#, LEGEND + 28.0, named.title);
        let (colour, width) = stroke(named.strategy);
        line(
            &mut svg,
            format_args!(
                r#"<path d="M{LEGEND} {:.1}h20" stroke="{colour}" stroke-width="{width}"/>{text}"#,
                y - 4.0
            ),
        );
        y += 20.0;
    }
    if table.has_published() {
        line(
            &mut svg,
            format_args!(
                r##"<circle cx="{}" cy="{}" r="5" fill="#fff" stroke="#333" stroke-width="2"/><text x="{}" y="{}">measured (2015)</text>"##,
                LEGEND + 10.0,
                y + 2.0,
                LEGEND + 28.0,
                y + 6.0
            ),
        );
    }
    let network = match table.system.network_bytes_s {
        None => " What lies between clients and targets has no limit here.",
        Some(_) => "",
    };
    line(
        &mut svg,
        format_args!(
            r##"<text x="{}" y="{}" font-size="11" fill="#888">Lines: a model fitted to what was measured on {} targets. streams: predicted, not measured.{network}</text>"##,
            PLOT.left,
            SIZE.1 - 12.0,
            published::TARGETS
        ),
    );
    svg.push_str("</svg>\n");
    svg
}

/// The colour and the width of a strategy's line.
fn stroke(strategy: Strategy) -> (&'static str, u32) {
    // It has them also in a picture without the others. N-N and a log a rank lie on each other
    // nearly everywhere.
    let place = STRATEGIES.iter().position(|named| named.strategy == strategy).unwrap_or(0);
    (svg::COLOURS[place], if strategy == Strategy::FilePerRank { 6 } else { 2 })
}

/// What is predicted for a strategy, as a line, and what was published, as circles.
fn curve(svg: &mut String, view: &View, table: &Table, column: usize) {
    let Named { strategy, name, .. } = table.columns[column];
    let (colour, width) = stroke(strategy);
    let points = || table.rows.iter().map(|(ranks, cells)| (*ranks, &cells[column]));
    let path: Vec<String> = points()
        .map(|(ranks, cell)| format!("{:.1} {:.1}", view.x(ranks), view.y(cell.mb_s())))
        .collect();
    line(
        svg,
        format_args!(
            r#"<path d="M{}" fill="none" stroke="{colour}" stroke-width="{width}"/>"#,
            path.join("L")
        ),
    );
    let circle = |svg: &mut String, ranks: u32, mb_s: f64, look: String, what: &str| {
        line(
            svg,
            format_args!(
                r#"<circle cx="{:.1}" cy="{:.1}" {look}><title>{what}: {} ranks, {} MB/s</title></circle>"#,
                view.x(ranks),
                view.y(mb_s),
                count(ranks.into()),
                whole(mb_s)
            ),
        );
    };
    for (ranks, cell) in points() {
        circle(svg, ranks, cell.mb_s(), format!(r#"r="2.5" fill="{colour}""#), name);
        if let Some(theirs) = cell.published_mb_s {
            let look = format!(
                r##"r="5" fill="#fff" fill-opacity="0.6" stroke="{colour}" stroke-width="2""##
            );
            circle(svg, ranks, theirs, look, &format!("{name}, measured"));
        }
    }
}

fn axes(svg: &mut String, view: &View) {
    let Area { left, top, width, height } = PLOT;
    let bottom = top + height;
    let (low, high) = (view.ranks.0 as u32, view.ranks.1 as u32);
    let step = (f64::from(high - low) / MARKS_MAX).ceil() as usize;
    for power in (low..=high).step_by(step.max(1)) {
        let x = view.x(1 << power);
        line(
            svg,
            format_args!(
                r##"<path d="M{x:.1} {top}v{height}" stroke="#eee"/><text x="{x:.1}" y="{}" text-anchor="middle">{}</text>"##,
                bottom + 18.0,
                count(1 << power)
            ),
        );
    }
    for power in view.mb_s.0 as i32..=view.mb_s.1 as i32 {
        let decade = 10f64.powi(power);
        let digits: &[f64] = if power < view.mb_s.1 as i32 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        for digit in digits {
            let mb_s = decade * digit;
            let y = view.y(mb_s);
            line(
                svg,
                format_args!(
                    r##"<path d="M{left} {y:.1}h{width}" stroke="#eee"/><text x="{:.1}" y="{:.1}" text-anchor="end">{}</text>"##,
                    left - 8.0,
                    y + 4.0,
                    if mb_s < 10.0 { short(mb_s) } else { whole(mb_s) }
                ),
            );
        }
    }
    svg::axes(svg, "ranks", "bandwidth, MB/s");
}

#[cfg(test)]
mod tests {
    use plfs_placement::simulate::System;

    use super::*;

    /// One row, one column, and bandwidths far below 1 MB/s.
    #[test]
    fn odd_tables_have_a_picture() {
        for (targets, bytes, ranks, names) in [
            (480, 400 << 20, vec![], vec![]),
            (1, 1, vec![1], vec!["streams".to_string()]),
            (7, 1, vec![3, 1 << 24], vec![]),
            (100_000, u64::MAX >> 24, vec![1 << 24], vec!["shared-tuned".to_string()]),
        ] {
            let system = System { targets, stragglers: 1, network_bytes_s: None };
            let Ok(table) = Table::new(system, bytes, ranks, &names) else { panic!() };
            let svg = draw(&table);
            assert!(svg.len() < 30_000 && !svg.contains("NaN") && !svg.contains("inf"), "{svg}");
            let curves = svg.matches(r##"fill="none" stroke="#"##).count() - 1;
            assert_eq!(curves, table.columns.len(), "{svg}");
        }
    }
}
