//! Tables: columns of fixed width, dropped whole where there is no room for them; a row that is chosen; an order.

use crate::canvas::{Canvas, wrap};
use crate::ui::{List, Place, Target};
use ratatui::layout::Rect;
use ratatui::style::Modifier;
use ttmem_render::{Cell, Column, Head, Kind};

/// What a table is sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sorting {
    /// By name; `None`: as it is by itself.
    pub(crate) column: Option<&'static str>,
    pub(crate) reversed: bool,
}

/// A table to be drawn.
pub(crate) struct Table<'a, K: Kind> {
    pub(crate) list: List,
    pub(crate) columns: &'static [Column<K>],
    pub(crate) place: &'a Place,
    /// Rows there are.
    pub(crate) count: usize,
    /// Whether keys move in it.
    pub(crate) focused: bool,
    /// Keys of columns that would be empty.
    pub(crate) hidden: &'a [&'static str],
    /// The column whose texts take as many lines as they need.
    pub(crate) wrapped: Option<&'static str>,
    /// A column, and what is drawn before its text in each row.
    pub(crate) branches: Option<(&'static str, &'a [String])>,
}

/// Columns that fit: their number and width.
fn fit(columns: &[Head], hidden: &[&str], sorted: Option<&str>, width: u16) -> Vec<(usize, u16)> {
    let shown = columns.iter().enumerate().filter(|(_, it)| !hidden.contains(&it.key));
    let mut kept: Vec<(usize, u16)> = shown.map(|(at, it)| (at, it.width)).collect();
    let needed = |kept: &[(usize, u16)]| -> u32 {
        kept.iter().map(|&(_, width)| u32::from(width) + 1).sum::<u32>().saturating_sub(1)
    };
    while needed(&kept) > u32::from(width) {
        let droppable = kept.iter().enumerate().filter(|(_, it)| columns[it.0].drop > 0);
        // What a table is sorted by goes last.
        let rank = |it: &(usize, u16)| (Some(columns[it.0].key) != sorted, columns[it.0].drop);
        let Some((at, _)) = droppable.max_by_key(|(_, it)| rank(it)) else { break };
        kept.remove(at);
    }
    let mut spare = u32::from(width).saturating_sub(needed(&kept));
    // Everybody who wants grows step by step, so that none starves.
    while spare > 0 {
        let mut grew = false;
        for (at, now) in &mut kept {
            let column = &columns[*at];
            if spare > 0 && *now < column.width + column.grows {
                *now += 1;
                spare -= 1;
                grew = true;
            }
        }
        if !grew {
            break;
        }
    }
    kept
}

impl<K: Kind> Table<'_, K> {
    /// Draws it, with a header; returns the first row on the screen and how many fit.
    pub(crate) fn draw<'r>(
        &self,
        canvas: &mut Canvas,
        area: Rect,
        row: impl Fn(usize) -> Option<K::Row<'r>>,
    ) -> (usize, usize) {
        let heads: Vec<Head> = self.columns.iter().map(|column| column.head).collect();
        let fitting = fit(&heads, self.hidden, self.place.sort.column, area.width);
        let theme = canvas.theme;
        let mut x = 0;
        for &(at, width) in &fitting {
            let head = &heads[at];
            let sorted = head.sorts && self.place.sort.column == Some(head.key);
            let mark = if self.place.sort.reversed { "▴" } else { "▾" };
            let title = if sorted { format!("{}{mark}", head.title) } else { head.title.to_owned() };
            let style = if sorted { theme.accent.add_modifier(Modifier::BOLD) } else { theme.header };
            if head.right {
                canvas.right(area, x, 0, width, &title, style);
            } else {
                canvas.cut(area, x, 0, width, &title, style);
            }
            if head.sorts {
                let place = Rect { x: area.x.saturating_add(x), width, height: 1, ..area };
                canvas.target(place, Target::Header(self.list, head.key));
            }
            x = x.saturating_add(width + 1);
        }
        let room = usize::from(area.height.saturating_sub(1));
        let wrapped = fitting.iter().find(|(at, _)| Some(heads[*at].key) == self.wrapped).copied();
        let lines = |row: &K::Row<'_>| -> Vec<String> {
            let Some((at, width)) = wrapped else { return vec![String::new()] };
            match self.columns[at].cell(row).0 {
                Cell::Text(text) => wrap(&text, usize::from(width).max(1)),
                Cell::Meter(_) => vec![String::new()],
            }
        };
        let offset = match wrapped {
            None => first_row(self.place, self.count, room),
            Some(_) => {
                first_wrapped(self.place, self.count, room, |at| row(at).map_or(1, |it| lines(&it).len()))
            }
        };
        let (mut y, mut at) = (1, offset);
        while at < self.count && usize::from(y) <= room {
            let row = row(at);
            let texts = row.as_ref().map(&lines).unwrap_or_default();
            let height = (texts.len().max(1) as u16).min(area.height - y);
            let whole = Rect { y: area.y.saturating_add(y), height, ..area };
            if let Some(row) = row {
                let mut x = 0;
                for &(column, width) in &fitting {
                    let (cell, tone) = self.columns[column].cell(&row);
                    let style = theme.tone(tone);
                    let mut inset = 0;
                    if let Some((_, all)) = self.branches.filter(|(key, _)| *key == heads[column].key) {
                        let branch = all.get(at).map_or("", String::as_str);
                        inset = (branch.chars().count() as u16).min(width);
                        canvas.cut(area, x, y, width, branch, theme.faint);
                    }
                    match cell {
                        Cell::Text(_) if wrapped.is_some_and(|it| it.0 == column) => {
                            for (n, line) in texts.iter().enumerate().take(usize::from(height)) {
                                canvas.cut(area, x, y + n as u16, width, line, style);
                            }
                        }
                        Cell::Text(text) if heads[column].right => {
                            canvas.right(area, x, y, width, &text, style);
                        }
                        Cell::Text(text) => canvas.cut(area, x + inset, y, width - inset, &text, style),
                        Cell::Meter(share) => canvas.meter(area, x, y, width, share, style),
                    }
                    x = x.saturating_add(width + 1);
                }
            }
            if at == self.place.cursor {
                let style = if self.focused { theme.selected } else { theme.selected_elsewhere };
                canvas.tint(whole, style);
            }
            canvas.target(whole, Target::Row(self.list, at));
            (y, at) = (y + height, at + 1);
        }
        // Where rows differ in height, a page is what is on the screen.
        (offset, if wrapped.is_some() { at - offset } else { room })
    }
}

/// As [`first_row`], where rows take several lines.
fn first_wrapped(place: &Place, count: usize, room: usize, height: impl Fn(usize) -> usize) -> usize {
    if count == 0 {
        return 0;
    }
    let cursor = place.cursor.min(count - 1);
    let wanted = place.offset.min(cursor);
    let (mut first, mut used) = (cursor, height(cursor));
    while first > wanted && used + height(first - 1) <= room {
        first -= 1;
        used += height(first);
    }
    // Nothing is blank below the last row while there are rows above.
    let mut rest = cursor + 1..count;
    while used <= room && !rest.is_empty() {
        used += rest.next().map_or(0, &height);
    }
    while first > 0 && used + height(first - 1) <= room {
        first -= 1;
        used += height(first);
    }
    first
}

/// Where the screen begins: where it began, unless the cursor is not on it then.
pub(crate) fn first_row(place: &Place, count: usize, page: usize) -> usize {
    let cursor = place.cursor.min(count.saturating_sub(1));
    let latest = count.saturating_sub(page);
    let offset = place.offset.min(latest);
    if page == 0 {
        offset
    } else if cursor < offset {
        cursor
    } else if cursor >= offset + page {
        cursor + 1 - page
    } else {
        offset
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_dropped_whole_and_the_rest_grows() {
        let head = |key, width, grows, drop| {
            let (right, sorts) = (false, true);
            Head { key, title: key, width, grows, drop, right, sorts }
        };
        let columns = [head("a", 5, 0, 0), head("b", 10, 5, 0), head("c", 10, 0, 2), head("d", 4, 0, 1)];
        assert_eq!(fit(&columns, &[], None, 32), [(0, 5), (1, 10), (2, 10), (3, 4)]);
        assert_eq!(fit(&columns, &[], None, 31), [(0, 5), (1, 15), (3, 4)]);
        assert_eq!(fit(&columns, &[], None, 20), [(0, 5), (1, 14)]);
        assert_eq!(fit(&columns, &[], None, 3), [(0, 5), (1, 10)], "what is never dropped is clipped");
        assert_eq!(
            fit(&columns, &[], Some("c"), 31),
            [(0, 5), (1, 14), (2, 10)],
            "what it is sorted by stays"
        );
        assert_eq!(fit(&columns, &["b"], None, 21), [(0, 5), (2, 10), (3, 4)]);
        assert_eq!(fit(&columns, &[], None, 100), [(0, 5), (1, 15), (2, 10), (3, 4)]);
    }

    #[test]
    fn rows_of_several_lines_keep_the_cursor_on_the_screen() {
        let place = |cursor, offset| Place { cursor, offset, ..Place::default() };
        let height = |row: usize| 1 + row % 2 * 2;
        assert_eq!(first_wrapped(&place(0, 0), 0, 10, height), 0);
        assert_eq!(first_wrapped(&place(2, 0), 10, 5, height), 0, "1, 3 and 1 lines");
        assert_eq!(first_wrapped(&place(3, 0), 10, 5, height), 2, "3 lines more");
        assert_eq!(first_wrapped(&place(1, 3), 10, 5, height), 1);
        assert_eq!(first_wrapped(&place(9, 9), 10, 10, height), 6, "the last rows fill the screen");
        assert_eq!(first_wrapped(&place(3, 3), 10, 1, height), 3, "a row that does not fit");
    }

    #[test]
    fn the_screen_moves_no_more_than_it_must() {
        let place = |cursor, offset| Place { cursor, offset, ..Place::default() };
        assert_eq!(first_row(&place(5, 0), 100, 10), 0);
        assert_eq!(first_row(&place(10, 0), 100, 10), 1);
        assert_eq!(first_row(&place(3, 5), 100, 10), 3);
        assert_eq!(first_row(&place(99, 95), 100, 10), 90);
        assert_eq!(first_row(&place(7, 3), 4, 10), 0);
        assert_eq!(first_row(&place(7, 3), 0, 0), 0);
    }
}
