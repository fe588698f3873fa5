//! Tables: columns of fixed width, dropped whole where there is no room for them; a row that is chosen; an order.

use crate::canvas::Canvas;
use crate::ui::{List, Place, Target};
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};

/// A column.
#[derive(Debug)]
pub(crate) struct Column {
    /// For settings and the menu of orders.
    pub(crate) name: &'static str,
    /// With its unit.
    pub(crate) title: &'static str,
    pub(crate) width: u16,
    /// So much wider it may be where there is room.
    pub(crate) grows: u16,
    /// Dropped in this order where there is no room, the highest first; 0: never.
    pub(crate) drop: u8,
    /// Figures.
    pub(crate) right: bool,
    /// Whether the table can be sorted by it.
    pub(crate) sorts: bool,
}

impl Column {
    pub(crate) const fn text(name: &'static str, title: &'static str, width: u16) -> Self {
        Self { name, title, width, grows: 0, drop: 0, right: false, sorts: true }
    }

    pub(crate) const fn figure(name: &'static str, title: &'static str, width: u16) -> Self {
        Self { right: true, ..Self::text(name, title, width) }
    }

    pub(crate) const fn drop(self, drop: u8) -> Self {
        Self { drop, ..self }
    }

    pub(crate) const fn grows(self, grows: u16) -> Self {
        Self { grows, ..self }
    }

    pub(crate) const fn unsorted(self) -> Self {
        Self { sorts: false, ..self }
    }
}

/// What a table is sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sorting {
    /// By number; `None`: as it is by itself.
    pub(crate) column: Option<usize>,
    pub(crate) reversed: bool,
}

/// What is in a row's column.
#[derive(Clone, Debug)]
pub(crate) enum Cell {
    Text(String, Style),
    Meter(Option<f64>, Style),
}

impl Cell {
    pub(crate) fn new(text: impl Into<String>, style: Style) -> Self {
        Self::Text(text.into(), style)
    }
}

/// A table to be drawn.
pub(crate) struct Table<'a> {
    pub(crate) list: List,
    pub(crate) columns: &'a [Column],
    pub(crate) place: &'a Place,
    /// Rows there are.
    pub(crate) count: usize,
    /// Whether keys move in it.
    pub(crate) focused: bool,
    /// Columns, by name, that would be empty.
    pub(crate) hidden: &'a [&'static str],
}

/// Columns that fit: their number and width.
fn fit(columns: &[Column], hidden: &[&str], width: u16) -> Vec<(usize, u16)> {
    let shown = columns.iter().enumerate().filter(|(_, it)| !hidden.contains(&it.name));
    let mut kept: Vec<(usize, u16)> = shown.map(|(at, it)| (at, it.width)).collect();
    let needed = |kept: &[(usize, u16)]| -> u32 {
        kept.iter().map(|&(_, width)| u32::from(width) + 1).sum::<u32>().saturating_sub(1)
    };
    while needed(&kept) > u32::from(width) {
        let droppable = kept.iter().enumerate().filter(|(_, it)| columns[it.0].drop > 0);
        let Some((at, _)) = droppable.max_by_key(|(_, it)| columns[it.0].drop) else { break };
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

impl Table<'_> {
    /// Draws it, with a header; returns the first row on the screen and how many fit.
    pub(crate) fn draw(
        &self,
        canvas: &mut Canvas,
        area: Rect,
        mut row: impl FnMut(usize, &mut Canvas) -> Vec<Cell>,
    ) -> (usize, usize) {
        let fitting = fit(self.columns, self.hidden, area.width);
        let theme = canvas.theme;
        let mut x = 0;
        for &(at, width) in &fitting {
            let column = &self.columns[at];
            let sorted = self.place.sort.column == Some(at);
            let mark = if self.place.sort.reversed { "▴" } else { "▾" };
            let title = if sorted { format!("{}{mark}", column.title) } else { column.title.to_owned() };
            let style = if sorted { theme.accent.add_modifier(Modifier::BOLD) } else { theme.header };
            if column.right {
                canvas.right(area, x, 0, width, &title, style);
            } else {
                canvas.cut(area, x, 0, width, &title, style);
            }
            if column.sorts {
                let head = Rect { x: area.x.saturating_add(x), width, height: 1, ..area };
                canvas.target(head, Target::Header(self.list, at));
            }
            x = x.saturating_add(width + 1);
        }
        let page = usize::from(area.height.saturating_sub(1));
        let offset = first_row(self.place, self.count, page);
        for (line, at) in (offset..self.count).take(page).enumerate() {
            let y = line as u16 + 1;
            let whole = Rect { y: area.y.saturating_add(y), height: 1, ..area };
            let cells = row(at, canvas);
            let mut x = 0;
            for &(column, width) in &fitting {
                match cells.get(column) {
                    Some(Cell::Text(text, style)) if self.columns[column].right => {
                        canvas.right(area, x, y, width, text, *style);
                    }
                    Some(Cell::Text(text, style)) => canvas.cut(area, x, y, width, text, *style),
                    Some(Cell::Meter(share, style)) => canvas.meter(area, x, y, width, *share, *style),
                    None => {}
                }
                x = x.saturating_add(width + 1);
            }
            if at == self.place.cursor {
                let style = if self.focused { theme.selected } else { theme.selected_elsewhere };
                canvas.tint(whole, style);
            }
            canvas.target(whole, Target::Row(self.list, at));
        }
        (offset, page)
    }
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
        let columns = [
            Column::figure("a", "A", 5),
            Column::text("b", "B", 10).grows(5),
            Column::text("c", "C", 10).drop(2),
            Column::text("d", "D", 4).drop(1),
        ];
        assert_eq!(fit(&columns, &[], 32), [(0, 5), (1, 10), (2, 10), (3, 4)]);
        assert_eq!(fit(&columns, &[], 31), [(0, 5), (1, 15), (3, 4)]);
        assert_eq!(fit(&columns, &[], 20), [(0, 5), (1, 14)]);
        assert_eq!(fit(&columns, &[], 3), [(0, 5), (1, 10)], "what is never dropped is clipped");
        assert_eq!(fit(&columns, &[], 100), [(0, 5), (1, 15), (2, 10), (3, 4)]);
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
