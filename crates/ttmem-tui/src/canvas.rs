//! The one way to put something on the screen. Everything is relative to an area and clipped to it, and other people's
//! names cannot move a column: what is not one column wide is not shown as it is.

use crate::theme::{Part, Theme};
use crate::ui::Target;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ttmem_render::figure::{ascii, one_column};

/// A screen that is being drawn, and where on it one can click.
pub(crate) struct Canvas<'a> {
    buffer: &'a mut Buffer,
    pub(crate) theme: &'a Theme,
    /// No character beyond ASCII.
    pub(crate) ascii: bool,
    pub(crate) targets: Vec<(Rect, Target)>,
}

impl<'a> Canvas<'a> {
    pub(crate) fn new(buffer: &'a mut Buffer, theme: &'a Theme, ascii: bool) -> Self {
        Self { buffer, theme, ascii, targets: Vec::new() }
    }

    pub(crate) fn area(&self) -> Rect {
        self.buffer.area
    }

    /// Writes text at a place of an area; returns the column behind it.
    pub(crate) fn text(&mut self, area: Rect, x: u16, y: u16, text: &str, style: Style) -> u16 {
        let area = area.intersection(self.buffer.area);
        if y >= area.height {
            return x;
        }
        let mut column = x;
        for c in text.chars() {
            if column >= area.width {
                break;
            }
            if self.is_left_out(c) {
                continue;
            }
            self.cell(area, column, y, c, style);
            column += 1;
        }
        column
    }

    /// The same, cut to `width` columns, which shows.
    pub(crate) fn cut(&mut self, area: Rect, x: u16, y: u16, width: u16, text: &str, style: Style) {
        let room = usize::from(width.min(area.width.saturating_sub(x)));
        if text.chars().nth(room).is_none() {
            self.text(area, x, y, text, style);
            return;
        }
        let shown: String =
            text.chars().take(room.saturating_sub(1)).chain((room > 0).then_some('…')).collect();
        self.text(area, x, y, &shown, style);
    }

    /// The same, up to a column. A figure too long for its place shows its most significant digits, and that it was cut.
    pub(crate) fn right(&mut self, area: Rect, x: u16, y: u16, width: u16, text: &str, style: Style) {
        let shown = text.chars().filter(|&c| !self.is_left_out(c));
        let len = shown.count().min(usize::from(u16::MAX)) as u16;
        if len > width {
            return self.cut(area, x, y, width, text, style);
        }
        self.text(area, x.saturating_add(width - len), y, text, style);
    }

    fn cell(&mut self, area: Rect, x: u16, y: u16, c: char, style: Style) {
        let (Some(x), Some(y)) = (area.x.checked_add(x), area.y.checked_add(y)) else { return };
        let Some(cell) = self.buffer.cell_mut((x, y)) else { return };
        let c = one_column(c);
        cell.set_char(if self.ascii { ascii(c) } else { c }).set_style(style);
    }

    /// ASCII has no such sign, and C says enough.
    fn is_left_out(&self, c: char) -> bool {
        self.ascii && c == '°'
    }

    /// One character.
    pub(crate) fn put(&mut self, area: Rect, x: u16, y: u16, c: char, style: Style) {
        let area = area.intersection(self.buffer.area);
        if x < area.width && y < area.height {
            self.cell(area, x, y, c, style);
        }
    }

    /// Styles an area, over what is there.
    pub(crate) fn tint(&mut self, area: Rect, style: Style) {
        self.buffer.set_style(area.intersection(self.buffer.area), style);
    }

    /// Makes an area blank.
    pub(crate) fn clear(&mut self, area: Rect) {
        let area = area.intersection(self.buffer.area);
        for position in area.positions() {
            if let Some(cell) = self.buffer.cell_mut(position) {
                cell.reset();
            }
        }
    }

    /// Where a click means something; the newest of several at a place counts.
    pub(crate) fn target(&mut self, area: Rect, target: Target) {
        self.targets.push((area.intersection(self.buffer.area), target));
    }

    /// A frame with its title in the line; returns what is inside.
    pub(crate) fn frame(&mut self, area: Rect, title: &str, focused: bool) -> Rect {
        let (line, name) = if focused {
            (self.theme.accent, self.theme.title)
        } else {
            (self.theme.frame, self.theme.faint)
        };
        let (w, h) = (area.width, area.height);
        if w < 2 || h < 2 {
            return Rect { width: 0, height: 0, ..area };
        }
        for x in 1..w - 1 {
            self.put(area, x, 0, '─', line);
            self.put(area, x, h - 1, '─', line);
        }
        for y in 1..h - 1 {
            self.put(area, 0, y, '│', line);
            self.put(area, w - 1, y, '│', line);
        }
        for (x, y, c) in [(0, 0, '╭'), (w - 1, 0, '╮'), (0, h - 1, '╰'), (w - 1, h - 1, '╯')] {
            self.put(area, x, y, c, line);
        }
        if !title.is_empty() && w > 6 {
            self.cut(area, 2, 0, w - 4, &format!(" {title} "), name);
        }
        inner(area)
    }

    /// Text in the upper right corner of a frame.
    pub(crate) fn corner(&mut self, area: Rect, text: &str, style: Style) {
        self.on_edge(area, 0, text, style);
    }

    /// Text in the lower right corner of a frame.
    pub(crate) fn foot(&mut self, area: Rect, text: &str, style: Style) {
        self.on_edge(area, area.height.saturating_sub(1), text, style);
    }

    fn on_edge(&mut self, area: Rect, y: u16, text: &str, style: Style) {
        let len = text.chars().count() as u16 + 2;
        if !text.is_empty() && len + 4 <= area.width {
            self.text(area, area.width - len - 2, y, &format!(" {text} "), style);
        }
    }

    /// A bar: how much of something is used. What is there but too little to see takes one step all the same.
    pub(crate) fn meter(&mut self, area: Rect, x: u16, y: u16, width: u16, share: Option<f64>, style: Style) {
        let Some(share) = share else {
            for n in 0..width {
                self.put(area, x + n, y, '┄', self.theme.empty);
            }
            return;
        };
        // Steps of half a column.
        let steps = (share.clamp(0.0, 1.0) * f64::from(width) * 2.0).round() as u16;
        let steps = if share > 0.0 { steps.max(1) } else { 0 };
        for n in 0..width {
            let (c, style) = match steps.saturating_sub(n * 2) {
                0 => ('─', self.theme.empty),
                1 => ('╸', style),
                _ => ('━', style),
            };
            self.put(area, x.saturating_add(n), y, c, style);
        }
    }

    /// What a part of a bar is drawn with: a colour, and without colours or blocks a letter.
    pub(crate) fn part(&self, part: Part) -> (char, Style) {
        let plain = self.ascii || !self.theme.coloured;
        (if plain { part.letter() } else { '█' }, self.theme.part(part))
    }

    /// A bar of several parts of `total`, which may be unknown. A part that is too small to see takes a column if
    /// nothing else does.
    pub(crate) fn stack(
        &mut self,
        area: Rect,
        x: u16,
        y: u16,
        width: u16,
        parts: &[(u64, Part)],
        total: Option<u64>,
    ) {
        let sum: u64 = parts.iter().fold(0, |sum, part| sum.saturating_add(part.0));
        let (mut at, end) = (x, x.saturating_add(width));
        let mut before = 0u64;
        let whole = total.unwrap_or(0).max(sum).max(1);
        let largest = parts.iter().map(|part| part.0).max().unwrap_or(0);
        for &(bytes, part) in parts.iter().filter(|part| part.0 > 0) {
            let (mark, style) = self.part(part);
            before = before.saturating_add(bytes);
            let mut until =
                x.saturating_add((before as f64 / whole as f64 * f64::from(width)).round() as u16);
            if bytes == largest && at == x {
                until = until.max(x + 1);
            }
            while at < until.min(end) {
                self.put(area, at, y, mark, style);
                at += 1;
            }
        }
        let empty = if total.is_none() && sum == 0 { '┄' } else { '─' };
        while at < end {
            self.put(area, at, y, empty, self.theme.empty);
            at += 1;
        }
    }

    /// Text in as many lines as it takes; returns how many that are.
    pub(crate) fn paragraph(&mut self, area: Rect, x: u16, y: u16, text: &str, style: Style) -> u16 {
        let lines = wrap(text, usize::from(area.width.saturating_sub(x + 1)).max(1));
        for (n, line) in lines.iter().enumerate() {
            self.text(area, x, y.saturating_add(n as u16), line, style);
        }
        lines.len() as u16
    }
}

/// What is inside a frame.
pub(crate) fn inner(area: Rect) -> Rect {
    Rect {
        x: area.x.saturating_add(1),
        y: area.y.saturating_add(1),
        width: area.width.saturating_sub(2),
        height: area.height.saturating_sub(2),
    }
}

/// An area's upper rows, and the rest.
pub(crate) fn split_rows(area: Rect, rows: u16) -> (Rect, Rect) {
    let rows = rows.min(area.height);
    (
        Rect { height: rows, ..area },
        Rect { y: area.y.saturating_add(rows), height: area.height - rows, ..area },
    )
}

/// An area's left columns, and the rest.
pub(crate) fn split_columns(area: Rect, columns: u16) -> (Rect, Rect) {
    let columns = columns.min(area.width);
    (
        Rect { width: columns, ..area },
        Rect { x: area.x.saturating_add(columns), width: area.width - columns, ..area },
    )
}

/// What a single thing has to say is no book.
const MOST_LINES: usize = 200;

/// Breaks text into lines, between words where that is possible.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    // What is indented stays so.
    let indent = text.chars().take_while(|&c| c == ' ').count();
    let indent = if indent < width { indent } else { 0 };
    let (mut lines, mut line, mut used) = (Vec::new(), " ".repeat(indent), 0);
    let width = width - indent;
    for word in text.trim_start_matches(' ').split(' ') {
        let len = word.chars().count();
        if used > 0 && used + 1 + len <= width {
            line.push(' ');
            line.push_str(word);
            used += 1 + len;
            continue;
        }
        if used > 0 {
            lines.push(std::mem::take(&mut line));
        }
        used = 0;
        // Longer than a line: broken where that ends.
        for c in word.chars() {
            if used == width {
                lines.push(std::mem::take(&mut line));
                used = 0;
            }
            line.push(c);
            used += 1;
            if lines.len() == MOST_LINES {
                return lines;
            }
        }
    }
    lines.push(line);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::theme::{Depth, ThemeName};

    fn drawn(width: u16, ascii: bool, draw: impl FnOnce(&mut Canvas, Rect)) -> String {
        let area = Rect::new(0, 0, width, 1);
        let mut buffer = Buffer::empty(area);
        let theme = Theme::new(ThemeName::Dark, Depth::Full);
        draw(&mut Canvas::new(&mut buffer, &theme, ascii), area);
        (0..width).map(|x| buffer[(x, 0)].symbol().to_owned()).collect()
    }

    #[test]
    fn nothing_leaves_its_area() {
        let part = Rect::new(2, 0, 4, 1);
        assert_eq!(drawn(8, false, |c, _| _ = c.text(part, 1, 0, "abcdef", Style::new())), "   abc  ");
        assert_eq!(drawn(8, false, |c, _| _ = c.text(part, 0, 1, "abcdef", Style::new())), "        ");
        let far = Rect::new(5, 3, 400, 100);
        assert_eq!(drawn(8, false, |c, _| _ = c.text(far, 399, 99, "abcdef", Style::new())), "        ");
    }

    #[test]
    fn other_peoples_names_keep_their_columns() {
        let evil = "a\x1b[2J漢\u{202e}b";
        assert_eq!(drawn(10, false, |c, area| _ = c.text(area, 0, 0, evil, Style::new())), "a?[2J??b  ");
        assert_eq!(drawn(6, false, |c, area| c.cut(area, 0, 0, 4, "python", Style::new())), "pyt…  ");
        assert_eq!(drawn(6, true, |c, area| c.cut(area, 0, 0, 4, "python", Style::new())), "pyt~  ");
        assert_eq!(drawn(6, false, |c, area| c.right(area, 0, 0, 5, "1.5", Style::new())), "  1.5 ");
        assert_eq!(drawn(6, false, |c, area| c.right(area, 0, 0, 5, "1234567", Style::new())), "1234… ");
    }

    #[test]
    fn bars_fill_with_use_and_show_the_least_bit() {
        let meter = |share| drawn(4, false, |c, area| c.meter(area, 0, 0, 4, share, Style::new()));
        assert_eq!(meter(Some(0.0)), "────");
        assert_eq!(meter(Some(0.001)), "╸───");
        assert_eq!(meter(Some(0.5)), "━━──");
        assert_eq!(meter(Some(7.0)), "━━━━");
        assert_eq!(meter(None), "┄┄┄┄");
        let stack =
            |parts: &[(u64, Part)], total| drawn(6, true, |c, area| c.stack(area, 0, 0, 6, parts, total));
        let (b, t) = (Part::Dram, Part::Trace);
        assert_eq!(stack(&[(3, b), (0, t), (0, t)], Some(6)), "BBB---");
        assert_eq!(stack(&[(1, b), (1, t)], Some(1000)), "B-----");
        assert_eq!(stack(&[(10, b), (1, t), (300, t)], Some(600)), "TTT---");
        assert_eq!(stack(&[(u64::MAX, b), (u64::MAX, t)], Some(0)), "BBBBBB");
        assert_eq!(stack(&[], Some(0)), "------");
        assert_eq!(stack(&[], None), "......");
    }

    #[test]
    fn lines_break_between_words() {
        assert_eq!(wrap("", 5), [""]);
        assert_eq!(wrap("ab cd ef", 5), ["ab cd", "ef"]);
        assert_eq!(wrap("  ab cd", 7), ["  ab cd"]);
        assert_eq!(wrap("       ", 5), [""]);
        assert_eq!(wrap("abcdefgh ij", 5), ["abcde", "fgh", "ij"]);
        for endless in ["x".repeat(100_000), "x ".repeat(100_000)] {
            let lines = wrap(&endless, 10);
            assert!(lines.len() <= MOST_LINES + 1 && lines.iter().all(|it| it.len() <= 10));
        }
    }
}
