//! Draws a terminal's screen as SVG. Text is text; lines, blocks and dots are paths, since fonts leave gaps between them.

use std::collections::BTreeMap;
use std::fmt::Write;
use ttmem_testkit::terminal::{Cell, Color, Screen};

/// Size of a character's cell, in whole numbers, so that there is no seam between two.
const CELL: (u32, u32) = (9, 18);
const MARGIN: u32 = 14;
const FONT: &str =
    "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono','Liberation Mono',monospace";
const FONT_SIZE: f64 = 14.6;
/// Distance from a cell's top to the baseline.
const BASE: f64 = 13.5;

type Rgb = (u8, u8, u8);
const BACK: Rgb = (0x12, 0x14, 0x1a);
const TEXT: Rgb = (0xd4, 0xd7, 0xdd);
/// The first sixteen colours, which differ between terminals.
const SIXTEEN: [Rgb; 16] = [
    (0x12, 0x14, 0x1a),
    (0xe0, 0x6c, 0x75),
    (0x98, 0xc3, 0x79),
    (0xe5, 0xc0, 0x7b),
    (0x61, 0xaf, 0xef),
    (0xc6, 0x78, 0xdd),
    (0x56, 0xb6, 0xc2),
    (0xd4, 0xd7, 0xdd),
    (0x5c, 0x63, 0x70),
    (0xff, 0x7b, 0x85),
    (0xb5, 0xe8, 0x90),
    (0xff, 0xd7, 0x8a),
    (0x7c, 0xc4, 0xff),
    (0xdd, 0x90, 0xf5),
    (0x6f, 0xd6, 0xe2),
    (0xff, 0xff, 0xff),
];

fn rgb(color: Color, otherwise: Rgb) -> Rgb {
    match color {
        Color::Default => otherwise,
        Color::Rgb(r, g, b) => (r, g, b),
        Color::Idx(n @ 0..=15) => SIXTEEN[usize::from(n)],
        Color::Idx(n @ 16..=231) => {
            let level = |it: u8| if it == 0 { 0 } else { 55 + 40 * it };
            let n = n - 16;
            (level(n / 36), level(n / 6 % 6), level(n % 6))
        }
        Color::Idx(n) => {
            let level = 8 + 10 * (n - 232);
            (level, level, level)
        }
    }
}

/// Colours and attributes of a cell.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Style {
    fore: Rgb,
    back: Rgb,
    bold: bool,
    underlined: bool,
}

fn style_of(cell: &Cell) -> Style {
    let (mut fore, mut back) = (rgb(cell.fgcolor(), TEXT), rgb(cell.bgcolor(), BACK));
    if cell.inverse() {
        std::mem::swap(&mut fore, &mut back);
    }
    if cell.dim() {
        let mix = |a: u8, b: u8| ((u16::from(a) * 6 + u16::from(b) * 4) / 10) as u8;
        fore = (mix(fore.0, back.0), mix(fore.1, back.1), mix(fore.2, back.2));
    }
    Style { fore, back, bold: cell.bold(), underlined: cell.underline() }
}

/// Paths of one colour: areas and lines.
#[derive(Default)]
struct Paths {
    areas: String,
    lines: String,
}

/// Text in one style.
struct Run {
    x: u32,
    y: u32,
    cells: u32,
    style: Style,
    text: String,
}

/// Draws a screen.
pub(super) fn write(screen: &Screen) -> String {
    let (rows, columns) = (u32::from(screen.size().0.get()), u32::from(screen.size().1.get()));
    let (width, height) = (columns * CELL.0 + 2 * MARGIN, rows * CELL.1 + 2 * MARGIN);
    let mut backs: BTreeMap<Rgb, String> = BTreeMap::new();
    let mut drawn: BTreeMap<Rgb, Paths> = BTreeMap::new();
    let mut runs: Vec<Run> = Vec::new();
    for row in 0..rows {
        let mut open = false;
        for column in 0..columns {
            let Some(cell) = screen.cell(row as u16, column as u16) else { continue };
            let (x, y) = (MARGIN + column * CELL.0, MARGIN + row * CELL.1);
            let (style, text) = (style_of(cell), cell.contents());
            if style.back != BACK {
                let path = backs.entry(style.back).or_default();
                let _ = write!(path, "M{x} {y}h{}v{}h-{}z", CELL.0, CELL.1, CELL.0);
            }
            let c = text.chars().next().unwrap_or(' ');
            if c == ' ' || draw(c, x, y, drawn.entry(style.fore).or_default()) {
                open = false;
                continue;
            }
            let cells = if cell.is_wide() { 2 } else { 1 };
            match runs.last_mut().filter(|run| open && run.style == style) {
                Some(run) => {
                    run.text.push_str(text);
                    run.cells += cells;
                }
                None => runs.push(Run { x, y, cells, style, text: text.to_owned() }),
            }
            open = true;
        }
    }
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" font-family=\"{FONT}\" font-size=\"{FONT_SIZE}\">\n\
         <rect width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"{}\"/>\n",
        hex(BACK)
    );
    for (color, path) in &backs {
        let _ = writeln!(svg, "<path fill=\"{}\" shape-rendering=\"crispEdges\" d=\"{path}\"/>", hex(*color));
    }
    for (color, Paths { areas, lines }) in &drawn {
        if !areas.is_empty() {
            let _ = writeln!(svg, "<path fill=\"{}\" d=\"{areas}\"/>", hex(*color));
        }
        if !lines.is_empty() {
            let _ = writeln!(svg, "<path fill=\"none\" stroke=\"{}\" d=\"{lines}\"/>", hex(*color));
        }
    }
    for run in &runs {
        let _ = write!(
            svg,
            "<text x=\"{}\" y=\"{}\" textLength=\"{}\" lengthAdjust=\"spacingAndGlyphs\" fill=\"{}\"",
            run.x,
            f64::from(run.y) + BASE,
            run.cells * CELL.0,
            hex(run.style.fore)
        );
        svg.push_str(if run.style.bold { " font-weight=\"bold\"" } else { "" });
        svg.push_str(if run.style.underlined { " text-decoration=\"underline\"" } else { "" });
        let _ = writeln!(svg, ">{}</text>", escaped(&run.text));
    }
    svg.push_str("</svg>\n");
    svg
}

fn hex((r, g, b): Rgb) -> String {
    format!("#{r:02x}{g:02x}{b:02x}")
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // XML cannot contain these.
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// Directions of a line-drawing character: left, right, up, down.
fn arms(c: char) -> Option<[bool; 4]> {
    Some(match c {
        '─' => [true, true, false, false],
        '│' => [false, false, true, true],
        '┌' => [false, true, false, true],
        '┐' => [true, false, false, true],
        '└' => [false, true, true, false],
        '┘' => [true, false, true, false],
        '├' => [false, true, true, true],
        '┤' => [true, false, true, true],
        '┬' => [true, true, false, true],
        '┴' => [true, true, true, false],
        '┼' => [true; 4],
        _ => return None,
    })
}

/// Draws a character that is not text. Returns false for text.
fn draw(c: char, x: u32, y: u32, into: &mut Paths) -> bool {
    let (wide, high) = (f64::from(CELL.0), f64::from(CELL.1));
    let (x, y) = (f64::from(x), f64::from(y));
    // The middle of a pixel, so that a line is one pixel wide.
    let (mx, my) = (x + (wide / 2.0).floor() + 0.5, y + high / 2.0 + 0.5);
    let (right, below) = (x + wide, y + high);
    let mut area = |x: f64, y: f64, wide: f64, high: f64| {
        let _ = write!(into.areas, "M{x} {y}h{wide}v{high}h-{wide}z");
    };
    let (eighth_wide, eighth_high) = (wide / 8.0, high / 8.0);
    match c {
        '█' => area(x, y, wide, high),
        '▀' => area(x, y, wide, high / 2.0),
        '▐' => area(x + wide / 2.0, y, wide / 2.0, high),
        '▔' => area(x, y, wide, eighth_high),
        '▕' => area(x + wide - eighth_wide, y, eighth_wide, high),
        // Bars consist of these: thick lines, or the first half of one.
        '━' => area(x, my - 2.5, wide, 5.0),
        '╸' => area(x, my - 2.5, wide / 2.0, 5.0),
        '┃' => area(mx - 2.0, y, 4.0, high),
        // One eighth to seven, from below.
        '\u{2581}'..='\u{2587}' => {
            let up = f64::from(c as u32 - 0x2580) * eighth_high;
            area(x, below - up, wide, up);
        }
        // Seven eighths to one, from the left.
        '\u{2589}'..='\u{258f}' => area(x, y, f64::from(0x2590 - c as u32) * eighth_wide, high),
        // Shades: lines of dots.
        '░' | '▒' | '▓' => {
            let dense = match c {
                '░' => 1.0,
                '▒' => 1.5,
                _ => 2.2,
            };
            for row in 0..6 {
                for column in 0..3 {
                    let shift = if row % 2 == 0 { 0.0 } else { 1.5 };
                    area(x + f64::from(column) * 3.0 + shift, y + f64::from(row) * 3.0, dense, dense);
                }
            }
        }
        // Two columns of four dots.
        '\u{2800}'..='\u{28ff}' => {
            let bits = c as u32 - 0x2800;
            for (bit, column, row) in
                [(0, 0, 0), (1, 0, 1), (2, 0, 2), (3, 1, 0), (4, 1, 1), (5, 1, 2), (6, 0, 3), (7, 1, 3)]
            {
                if bits >> bit & 1 == 1 {
                    let at = |n: i32, step: f64| (f64::from(n) + 0.5) * step - 1.1;
                    area(x + at(column, wide / 2.0), y + at(row, high / 4.0), 2.2, 2.2);
                }
            }
        }
        '╭' | '╮' | '╰' | '╯' => {
            let to_x = if matches!(c, '╭' | '╰') { right } else { x };
            let to_y = if matches!(c, '╭' | '╮') { below } else { y };
            let _ = write!(into.lines, "M{to_x} {my}Q{mx} {my} {mx} {to_y}");
        }
        '┄' | '┈' | '╌' => {
            let _ = write!(into.lines, "M{} {my}h2M{} {my}h2", x + 1.0, x + 5.5);
        }
        _ => {
            let Some([to_left, to_right, up, down]) = arms(c) else { return false };
            if to_left || to_right {
                let (from, to) = (if to_left { x } else { mx }, if to_right { right } else { mx });
                let _ = write!(into.lines, "M{from} {my}H{to}");
            }
            if up || down {
                let (from, to) = (if up { y } else { my }, if down { below } else { my });
                let _ = write!(into.lines, "M{mx} {from}V{to}");
            }
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use ttmem_testkit::terminal::Parser;

    fn screen(bytes: &str) -> Screen {
        let mut parser = Parser::new(24.try_into().unwrap(), 80.try_into().unwrap(), 0);
        parser.process(bytes.as_bytes());
        parser.screen().clone()
    }

    fn texts(svg: &str) -> Vec<String> {
        let document = roxmltree::Document::parse(svg).unwrap();
        let texts = document.descendants().filter(|it| it.has_tag_name("text"));
        texts.map(|it| it.text().unwrap_or("").to_owned()).collect()
    }

    #[test]
    fn any_name_is_well_formed() {
        let svg = write(&screen("</text><script>alert('x')&amp;\"]]>"));
        assert_eq!(texts(&svg), ["</text><script>alert('x')&amp;\"]]>"]);
        assert_eq!(escaped("a\u{0}\u{1b}\u{ffff}b"), "a\u{fffd}\u{fffd}\u{fffd}b");
        // All characters that a terminal can show.
        let all: String = (0x20..0x3000).filter_map(char::from_u32).collect();
        roxmltree::Document::parse(&write(&screen(&all))).unwrap();
    }

    #[test]
    fn lines_blocks_and_dots_are_drawn() {
        let svg = write(&screen("╭─╮│┄█▇▉░⣿\x1b[31mred\x1b[0m and \x1b[1;7mturned"));
        assert_eq!(texts(&svg), ["red", "and", "turned"]);
        assert!(
            svg.contains(&format!("fill=\"{}\"", hex(SIXTEEN[1]))) && svg.contains("font-weight=\"bold\"")
        );
    }
}
