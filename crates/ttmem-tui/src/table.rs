//! Tables with a header and a cursor. Columns that do not fit are dropped as a whole.

use crate::canvas::{Canvas, wrap};
use crate::ui::{List, ListState, Target};
use ratatui::layout::Rect;
use ratatui::style::Modifier;
use ttmem_render::{Cell, Column, Header, RowKind};

/// The sort order of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SortOrder {
    /// Key of the column; `None` if the table cannot be sorted.
    pub(crate) column: Option<&'static str>,
    pub(crate) reversed: bool,
}

/// A table to draw.
pub(crate) struct Table<'a, K: RowKind> {
    pub(crate) list: List,
    pub(crate) columns: &'static [Column<K>],
    pub(crate) state: &'a ListState,
    /// Number of rows.
    pub(crate) count: usize,
    /// Whether keys move its cursor.
    pub(crate) focused: bool,
    /// Keys of columns to hide because they would be empty.
    pub(crate) hidden: &'a [&'static str],
    /// Key of the column whose texts are wrapped.
    pub(crate) wrapped: Option<&'static str>,
    /// Key of the column with the branches of a tree, and the branches of each row.
    pub(crate) branches: Option<(&'static str, &'a [String])>,
}

/// Selects the columns that fit; returns their numbers and widths.
fn fit_columns(columns: &[Header], hidden: &[&str], sorted: Option<&str>, width: u16) -> Vec<(usize, u16)> {
    let candidates = columns.iter().enumerate().filter(|(_, it)| !hidden.contains(&it.key));
    let mut kept: Vec<(usize, u16)> = candidates.map(|(at, it)| (at, it.width)).collect();
    let needed = |kept: &[(usize, u16)]| -> u32 {
        kept.iter().map(|&(_, width)| u32::from(width) + 1).sum::<u32>().saturating_sub(1)
    };
    while needed(&kept) > u32::from(width) {
        let droppable = kept.iter().enumerate().filter(|(_, it)| columns[it.0].drop > 0);
        // The column that the table is sorted by is dropped last.
        let rank = |it: &(usize, u16)| (Some(columns[it.0].key) != sorted, columns[it.0].drop);
        let Some((at, _)) = droppable.max_by_key(|(_, it)| rank(it)) else { break };
        kept.remove(at);
    }
    let mut spare = u32::from(width).saturating_sub(needed(&kept));
    // Columns grow in turns, so that all of them get a share.
    while spare > 0 {
        let mut has_grown = false;
        for (at, now) in &mut kept {
            let column = &columns[*at];
            if spare > 0 && *now < column.width + column.growth {
                *now += 1;
                spare -= 1;
                has_grown = true;
            }
        }
        if !has_grown {
            break;
        }
    }
    kept
}

impl<K: RowKind> Table<'_, K> {
    /// Draws the table; returns the first row on the screen and the number of rows of a page.
    pub(crate) fn draw<'r>(
        &self,
        canvas: &mut Canvas,
        area: Rect,
        row: impl Fn(usize) -> Option<K::Row<'r>>,
    ) -> (usize, usize) {
        let headers: Vec<Header> = self.columns.iter().map(|column| column.header).collect();
        let fitting = fit_columns(&headers, self.hidden, self.state.sort.column, area.width);
        self.draw_header(canvas, area, &headers, &fitting);
        let theme = canvas.theme;
        let room = usize::from(area.height.saturating_sub(1));
        let wrapped = fitting.iter().find(|(at, _)| Some(headers[*at].key) == self.wrapped).copied();
        let lines = |row: &K::Row<'_>| -> Vec<String> {
            let Some((at, width)) = wrapped else { return vec![String::new()] };
            match self.columns[at].cell(row).0 {
                Cell::Text(text) => wrap(&text, usize::from(width).max(1)),
                Cell::Meter(_) => vec![String::new()],
            }
        };
        let offset = match wrapped {
            None => first_row(self.state, self.count, room),
            Some(_) => {
                let height = |at| row(at).map_or(1, |row| lines(&row).len());
                first_wrapped_row(self.state, self.count, room, height)
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
                    if let Some((_, branches)) = self.branches.filter(|(key, _)| *key == headers[column].key)
                    {
                        let branch = branches.get(at).map_or("", String::as_str);
                        inset = (branch.chars().count() as u16).min(width);
                        canvas.write_cut(area, x, y, width, branch, theme.faint);
                    }
                    match cell {
                        Cell::Text(_) if wrapped.is_some_and(|it| it.0 == column) => {
                            for (n, line) in texts.iter().enumerate().take(usize::from(height)) {
                                canvas.write_cut(area, x, y + n as u16, width, line, style);
                            }
                        }
                        Cell::Text(text) if headers[column].align_right => {
                            canvas.write_right(area, x, y, width, &text, style);
                        }
                        Cell::Text(text) => canvas.write_cut(area, x + inset, y, width - inset, &text, style),
                        Cell::Meter(share) => canvas.draw_meter(area, x, y, width, share, style),
                    }
                    x = x.saturating_add(width + 1);
                }
            }
            if at == self.state.cursor {
                let style = if self.focused { theme.selected } else { theme.selected_elsewhere };
                canvas.set_style(whole, style);
            }
            canvas.add_target(whole, Target::Row(self.list, at));
            (y, at) = (y + height, at + 1);
        }
        // Where rows differ in height, a page is the rows on the screen.
        (offset, if wrapped.is_some() { at - offset } else { room })
    }

    fn draw_header(&self, canvas: &mut Canvas, area: Rect, headers: &[Header], fitting: &[(usize, u16)]) {
        let (theme, sort) = (canvas.theme, self.state.sort);
        let mut x = 0;
        for &(at, width) in fitting {
            let header = &headers[at];
            let is_sorted = header.sortable && sort.column == Some(header.key);
            let mark = if sort.reversed { "▴" } else { "▾" };
            let title = if is_sorted { format!("{}{mark}", header.title) } else { header.title.to_owned() };
            let style = if is_sorted { theme.accent.add_modifier(Modifier::BOLD) } else { theme.header };
            if header.align_right {
                canvas.write_right(area, x, 0, width, &title, style);
            } else {
                canvas.write_cut(area, x, 0, width, &title, style);
            }
            if header.sortable {
                let cell = Rect { x: area.x.saturating_add(x), width, height: 1, ..area };
                canvas.add_target(cell, Target::Header(self.list, header.key));
            }
            x = x.saturating_add(width + 1);
        }
    }
}

/// The first row on the screen where rows take several lines: see [`first_row`].
fn first_wrapped_row(state: &ListState, count: usize, room: usize, height: impl Fn(usize) -> usize) -> usize {
    if count == 0 {
        return 0;
    }
    let cursor = state.cursor.min(count - 1);
    let wanted = state.offset.min(cursor);
    let (mut first, mut used) = (cursor, height(cursor));
    while first > wanted && used + height(first - 1) <= room {
        first -= 1;
        used += height(first);
    }
    // The screen is filled: no blank lines below the last row while there are rows above.
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

/// The first row on the screen: the one before, unless the cursor would be off the screen.
pub(crate) fn first_row(state: &ListState, count: usize, page: usize) -> usize {
    let cursor = state.cursor.min(count.saturating_sub(1));
    let latest = count.saturating_sub(page);
    let offset = state.offset.min(latest);
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
        let header = |key, width, growth, drop| {
            let (align_right, sortable) = (false, true);
            Header { key, title: key, width, growth, drop, align_right, sortable }
        };
        let columns =
            [header("a", 5, 0, 0), header("b", 10, 5, 0), header("c", 10, 0, 2), header("d", 4, 0, 1)];
        assert_eq!(fit_columns(&columns, &[], None, 32), [(0, 5), (1, 10), (2, 10), (3, 4)]);
        assert_eq!(fit_columns(&columns, &[], None, 31), [(0, 5), (1, 15), (3, 4)]);
        assert_eq!(fit_columns(&columns, &[], None, 20), [(0, 5), (1, 14)]);
        assert_eq!(
            fit_columns(&columns, &[], None, 3),
            [(0, 5), (1, 10)],
            "columns that are never dropped are clipped"
        );
        assert_eq!(
            fit_columns(&columns, &[], Some("c"), 31),
            [(0, 5), (1, 14), (2, 10)],
            "the column that it is sorted by stays"
        );
        assert_eq!(fit_columns(&columns, &["b"], None, 21), [(0, 5), (2, 10), (3, 4)]);
        assert_eq!(fit_columns(&columns, &[], None, 100), [(0, 5), (1, 15), (2, 10), (3, 4)]);
    }

    #[test]
    fn wrapped_rows_keep_the_cursor_on_the_screen() {
        let state = |cursor, offset| ListState { cursor, offset, ..ListState::default() };
        let height = |row: usize| 1 + row % 2 * 2;
        assert_eq!(first_wrapped_row(&state(0, 0), 0, 10, height), 0);
        assert_eq!(first_wrapped_row(&state(2, 0), 10, 5, height), 0, "1, 3 and 1 lines");
        assert_eq!(first_wrapped_row(&state(3, 0), 10, 5, height), 2, "3 lines more");
        assert_eq!(first_wrapped_row(&state(1, 3), 10, 5, height), 1);
        assert_eq!(first_wrapped_row(&state(9, 9), 10, 10, height), 6, "the last rows fill the screen");
        assert_eq!(first_wrapped_row(&state(3, 3), 10, 1, height), 3, "a row that does not fit");
    }

    #[test]
    fn screen_scrolls_no_more_than_needed() {
        let state = |cursor, offset| ListState { cursor, offset, ..ListState::default() };
        assert_eq!(first_row(&state(5, 0), 100, 10), 0);
        assert_eq!(first_row(&state(10, 0), 100, 10), 1);
        assert_eq!(first_row(&state(3, 5), 100, 10), 3);
        assert_eq!(first_row(&state(99, 95), 100, 10), 90);
        assert_eq!(first_row(&state(7, 3), 4, 10), 0);
        assert_eq!(first_row(&state(7, 3), 0, 0), 0);
    }
}
