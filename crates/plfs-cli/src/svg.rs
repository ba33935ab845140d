//! What pictures have in common: their size, their colours, and how text gets into SVG. No I/O.

use std::fmt::Write;

/// Width and height of a picture, and where the plot is in it, in pixels.
pub const SIZE: (f64, f64) = (1080.0, 640.0);
pub const PLOT: Area = Area { left: 92.0, top: 64.0, width: 740.0, height: 500.0 };
/// Distinguishable with most forms of colour blindness (after Paul Tol's notes on colour schemes).
pub const COLOURS: [&str; 12] = [
    "#4477aa", "#ee6677", "#228833", "#ccaa22", "#66ccee", "#aa3377", "#ee8833", "#332288",
    "#88bb44", "#885533", "#777788", "#117766",
];

pub struct Area {
    pub left: f64,
    pub top: f64,
    pub width: f64,
    pub height: f64,
}

/// The head of a picture with this title, which is escaped already, and its background.
pub fn begin(svg: &mut String, title: &str) {
    let (width, height) = SIZE;
    line(
        svg,
        format_args!(
            r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" font-family="sans-serif" font-size="12" fill="#333">"##
        ),
    );
    line(svg, format_args!("<title>{title}</title>"));
    line(svg, format_args!(r##"<rect width="{width}" height="{height}" fill="#fff"/>"##));
}

pub fn line(svg: &mut String, text: std::fmt::Arguments) {
    // Writing to a string cannot fail.
    let _ = writeln!(svg, "{text}");
}

/// The two axes of the plot, and what they say.
pub fn axes(svg: &mut String, across: &str, up: &str) {
    let Area { left, top, width, height } = PLOT;
    let (right, bottom) = (left + width, top + height);
    line(
        svg,
        format_args!(r##"<path d="M{left} {top}V{bottom}H{right}" fill="none" stroke="#888"/>"##),
    );
    line(
        svg,
        format_args!(
            r#"<text x="{}" y="{}" text-anchor="middle">{across}</text>"#,
            left + width / 2.0,
            bottom + 38.0
        ),
    );
    let middle = top + height / 2.0;
    line(
        svg,
        format_args!(
            r#"<text x="22" y="{middle}" text-anchor="middle" transform="rotate(-90 22 {middle})">{up}</text>"#
        ),
    );
}

/// What may stand in SVG's text.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            // Not allowed in XML, not even escaped.
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// A number as short as it can be.
pub fn short(value: f64) -> String {
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_numbers() {
        assert_eq!([0.25, 3.0, 0.0, 0.1 + 0.2].map(short), ["0.25", "3", "0", "0.3"]);
    }

    #[test]
    fn what_xml_forbids_is_escaped() {
        assert_eq!(escape("a<b> & \"c\"\n"), "a&lt;b&gt; &amp; &quot;c&quot;\u{fffd}");
    }
}
