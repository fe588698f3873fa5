//! Drawing on the screen. All positions are relative to an area and clipped to it. Untrusted names cannot shift a column:
//! each character takes one column, and those that do not are replaced.

use crate::theme::{MemoryPart, Theme};
use crate::ui::Target;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ttmem_render::format::{sanitize_char, to_ascii};

/// A screen that is being drawn, with the targets of clicks.
pub(crate) struct Canvas<'a> {
    buffer: &'a mut Buffer,
    pub(crate) theme: &'a Theme,
    /// Draw ASCII characters only.
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

    /// Writes text; returns the column after it.
    pub(crate) fn write(&mut self, area: Rect, x: u16, y: u16, text: &str, style: Style) -> u16 {
        let area = area.intersection(self.buffer.area);
        if y >= area.height {
            return x;
        }
        let mut column = x;
        for c in text.chars() {
            if column >= area.width {
                break;
            }
            if self.is_omitted(c) {
                continue;
            }
            self.set_cell(area, column, y, c, style);
            column += 1;
        }
        column
    }

    /// Writes text, cut to `width` columns with an ellipsis.
    pub(crate) fn write_cut(&mut self, area: Rect, x: u16, y: u16, width: u16, text: &str, style: Style) {
        let room = usize::from(width.min(area.width.saturating_sub(x)));
        if text.chars().nth(room).is_none() {
            self.write(area, x, y, text, style);
            return;
        }
        let cut: String =
            text.chars().take(room.saturating_sub(1)).chain((room > 0).then_some('…')).collect();
        self.write(area, x, y, &cut, style);
    }

    /// Writes text, aligned to the right in `width` columns. A figure that is too long keeps its most significant digits.
    pub(crate) fn write_right(&mut self, area: Rect, x: u16, y: u16, width: u16, text: &str, style: Style) {
        let drawn = text.chars().filter(|&c| !self.is_omitted(c));
        let len = drawn.count().min(usize::from(u16::MAX)) as u16;
        if len > width {
            return self.write_cut(area, x, y, width, text, style);
        }
        self.write(area, x.saturating_add(width - len), y, text, style);
    }

    fn set_cell(&mut self, area: Rect, x: u16, y: u16, c: char, style: Style) {
        let (Some(x), Some(y)) = (area.x.checked_add(x), area.y.checked_add(y)) else { return };
        let Some(cell) = self.buffer.cell_mut((x, y)) else { return };
        let c = sanitize_char(c);
        cell.set_char(if self.ascii { to_ascii(c) } else { c }).set_style(style);
    }

    /// The degree sign is omitted in ASCII: the `C` after it is clear enough.
    fn is_omitted(&self, c: char) -> bool {
        self.ascii && c == '°'
    }

    /// Writes one character.
    pub(crate) fn put(&mut self, area: Rect, x: u16, y: u16, c: char, style: Style) {
        let area = area.intersection(self.buffer.area);
        if x < area.width && y < area.height {
            self.set_cell(area, x, y, c, style);
        }
    }

    /// Applies a style to an area, over its content.
    pub(crate) fn set_style(&mut self, area: Rect, style: Style) {
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

    /// Adds the target of a click. Of several at one position, the last one counts.
    pub(crate) fn add_target(&mut self, area: Rect, target: Target) {
        self.targets.push((area.intersection(self.buffer.area), target));
    }

    /// Draws a frame with a title; returns the area inside.
    pub(crate) fn draw_frame(&mut self, area: Rect, title: &str, focused: bool) -> Rect {
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
            self.write_cut(area, 2, 0, w - 4, &format!(" {title} "), name);
        }
        inner(area)
    }

    /// Writes text in the upper right corner of a frame.
    pub(crate) fn write_top_right(&mut self, area: Rect, text: &str, style: Style) {
        self.write_on_edge(area, 0, text, style);
    }

    /// Writes text in the lower right corner of a frame.
    pub(crate) fn write_bottom_right(&mut self, area: Rect, text: &str, style: Style) {
        self.write_on_edge(area, area.height.saturating_sub(1), text, style);
    }

    fn write_on_edge(&mut self, area: Rect, y: u16, text: &str, style: Style) {
        let len = text.chars().count() as u16 + 2;
        if !text.is_empty() && len + 4 <= area.width {
            self.write(area, area.width - len - 2, y, &format!(" {text} "), style);
        }
    }

    /// Draws a bar that is filled by a share. A share above zero fills at least half a column.
    pub(crate) fn draw_meter(
        &mut self,
        area: Rect,
        x: u16,
        y: u16,
        width: u16,
        share: Option<f64>,
        style: Style,
    ) {
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

    /// Character and style of a part of a bar: a coloured block, or a letter without colours or in ASCII.
    pub(crate) fn part_mark(&self, part: MemoryPart) -> (char, Style) {
        let plain = self.ascii || !self.theme.coloured;
        (if plain { part.letter() } else { '█' }, self.theme.part(part))
    }

    /// Draws a bar of several parts of `total`, which may be unknown. If all parts are too small to see, the largest one
    /// takes a column.
    pub(crate) fn draw_stack(
        &mut self,
        area: Rect,
        x: u16,
        y: u16,
        width: u16,
        parts: &[(u64, MemoryPart)],
        total: Option<u64>,
    ) {
        let sum: u64 = parts.iter().fold(0, |sum, part| sum.saturating_add(part.0));
        let (mut at, end) = (x, x.saturating_add(width));
        let mut before = 0u64;
        let whole = total.unwrap_or(0).max(sum).max(1);
        let largest = parts.iter().map(|part| part.0).max().unwrap_or(0);
        for &(bytes, part) in parts.iter().filter(|part| part.0 > 0) {
            let (mark, style) = self.part_mark(part);
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

    /// Writes text, wrapped; returns the number of lines.
    pub(crate) fn write_paragraph(&mut self, area: Rect, x: u16, y: u16, text: &str, style: Style) -> u16 {
        let lines = wrap(text, usize::from(area.width.saturating_sub(x + 1)).max(1));
        for (n, line) in lines.iter().enumerate() {
            self.write(area, x, y.saturating_add(n as u16), line, style);
        }
        lines.len() as u16
    }
}

/// The area inside a frame.
pub(crate) fn inner(area: Rect) -> Rect {
    Rect {
        x: area.x.saturating_add(1),
        y: area.y.saturating_add(1),
        width: area.width.saturating_sub(2),
        height: area.height.saturating_sub(2),
    }
}

/// Splits an area into its upper rows and the rest.
pub(crate) fn split_rows(area: Rect, rows: u16) -> (Rect, Rect) {
    let rows = rows.min(area.height);
    (
        Rect { height: rows, ..area },
        Rect { y: area.y.saturating_add(rows), height: area.height - rows, ..area },
    )
}

/// Splits an area into its left columns and the rest.
pub(crate) fn split_columns(area: Rect, columns: u16) -> (Rect, Rect) {
    let columns = columns.min(area.width);
    (
        Rect { width: columns, ..area },
        Rect { x: area.x.saturating_add(columns), width: area.width - columns, ..area },
    )
}

/// Longer texts are cut off after this many lines.
const MAX_LINES: usize = 200;

/// Breaks text into lines, between words where that is possible.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    // Indentation is kept.
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
        // A word longer than a line is broken at its end.
        for c in word.chars() {
            if used == width {
                lines.push(std::mem::take(&mut line));
                used = 0;
            }
            line.push(c);
            used += 1;
            if lines.len() == MAX_LINES {
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
    use crate::theme::{ColourDepth, ThemeName};

    fn drawn(width: u16, ascii: bool, draw: impl FnOnce(&mut Canvas, Rect)) -> String {
        let area = Rect::new(0, 0, width, 1);
        let mut buffer = Buffer::empty(area);
        let theme = Theme::new(ThemeName::Dark, ColourDepth::Full);
        draw(&mut Canvas::new(&mut buffer, &theme, ascii), area);
        (0..width).map(|x| buffer[(x, 0)].symbol().to_owned()).collect()
    }

    #[test]
    fn nothing_leaves_its_area() {
        let part = Rect::new(2, 0, 4, 1);
        assert_eq!(drawn(8, false, |c, _| _ = c.write(part, 1, 0, "abcdef", Style::new())), "   abc  ");
        assert_eq!(drawn(8, false, |c, _| _ = c.write(part, 0, 1, "abcdef", Style::new())), "        ");
        let far = Rect::new(5, 3, 400, 100);
        assert_eq!(drawn(8, false, |c, _| _ = c.write(far, 399, 99, "abcdef", Style::new())), "        ");
    }

    #[test]
    fn untrusted_names_keep_their_columns() {
        let evil = "a\x1b[2J漢\u{202e}b";
        assert_eq!(drawn(10, false, |c, area| _ = c.write(area, 0, 0, evil, Style::new())), "a?[2J??b  ");
        assert_eq!(drawn(6, false, |c, area| c.write_cut(area, 0, 0, 4, "python", Style::new())), "pyt…  ");
        assert_eq!(drawn(6, true, |c, area| c.write_cut(area, 0, 0, 4, "python", Style::new())), "pyt~  ");
        assert_eq!(drawn(6, false, |c, area| c.write_right(area, 0, 0, 5, "1.5", Style::new())), "  1.5 ");
        assert_eq!(
            drawn(6, false, |c, area| c.write_right(area, 0, 0, 5, "1234567", Style::new())),
            "1234… "
        );
    }

    #[test]
    fn bars_show_the_smallest_share() {
        let meter = |share| drawn(4, false, |c, area| c.draw_meter(area, 0, 0, 4, share, Style::new()));
        assert_eq!(meter(Some(0.0)), "────");
        assert_eq!(meter(Some(0.001)), "╸───");
        assert_eq!(meter(Some(0.5)), "━━──");
        assert_eq!(meter(Some(7.0)), "━━━━");
        assert_eq!(meter(None), "┄┄┄┄");
        let stack = |parts: &[(u64, MemoryPart)], total| {
            drawn(6, true, |c, area| c.draw_stack(area, 0, 0, 6, parts, total))
        };
        let (b, t) = (MemoryPart::Dram, MemoryPart::Trace);
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
            assert!(lines.len() <= MAX_LINES + 1 && lines.iter().all(|it| it.len() <= 10));
        }
    }
}
