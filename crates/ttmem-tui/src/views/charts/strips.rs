//! Charts of many devices: one line for each.

use super::{MEMORY, SENSORS};
use crate::canvas::{Canvas, split_rows};
use crate::data::Series;
use crate::plot::{Span, draw_sparkline};
use crate::table::first_row;
use crate::ui::{List, Target};
use crate::views::Scene;
use ratatui::layout::Rect;
use ttmem_core::snapshot::Device;
use ttmem_render::format::DASH;

/// The smallest width of a device's line.
const MIN_WIDTH: u16 = 38;

impl Scene<'_> {
    /// Draws a line for each device; one for memory and one for sensors if both fit.
    pub(super) fn draw_strips(&mut self, canvas: &mut Canvas, plots: Rect, axis: Rect, span: Span) {
        let count = self.data.snapshot.devices.len();
        let rows = usize::from(plots.height).max(1);
        if 2 * count < rows {
            let (above, below) = split_rows(plots, count as u16 + 1);
            let (memory, memory_axis) = split_rows(above, count as u16);
            self.draw_strip_block(canvas, memory, memory_axis, span, &MEMORY);
            self.draw_strip_block(canvas, below, axis, span, &SENSORS);
            self.pages.push((List::Devices, 0, count));
            return;
        }
        let series: &[Series] = if self.ui.sensors { &SENSORS } else { &MEMORY };
        let (offset, page) = self.draw_strip_block(canvas, plots, axis, span, series);
        self.pages.push((List::Devices, offset, page));
    }

    /// Draws the lines of some series, with their time axis. Returns the first device and the number of devices of a page.
    fn draw_strip_block(
        &self,
        canvas: &mut Canvas,
        plots: Rect,
        axis: Rect,
        span: Span,
        series: &[Series],
    ) -> (usize, usize) {
        let snapshot = &self.data.snapshot;
        let (count, state) = (snapshot.devices.len(), self.ui.list_state(List::Devices));
        // Lines are in as many columns as it takes to show all devices, if these fit.
        let rows = usize::from(plots.height).max(1);
        let columns = count.div_ceil(rows).clamp(1, usize::from(plots.width / MIN_WIDTH).max(1));
        let width = plots.width / columns as u16;
        let page = rows * columns;
        let offset = first_row(state, count, page);
        let mut scales = Vec::new();
        for (at, (n, device)) in snapshot.devices.iter().enumerate().skip(offset).take(page).enumerate() {
            let (column, row) = ((at / rows) as u16, (at % rows) as u16);
            let line = Rect { x: plots.x + column * width, y: plots.y + row, width, height: 1 };
            let is_selected = n == state.cursor;
            let (areas, texts) = self.draw_strip(canvas, line, device, span, (is_selected, series));
            if at == 0 {
                self.draw_time_axes(canvas, axis, &areas[..1]);
                scales = texts;
            }
            canvas.add_target(line, Target::Row(List::Devices, n));
        }
        let mut text = scales.join(", ");
        if page < count {
            text = format!("{text}; devices {}-{} of {count}", offset + 1, (offset + page).min(count));
        }
        canvas.write_right(axis, 0, 0, axis.width.saturating_sub(1), &text, self.ui.theme.faint);
        (offset, page)
    }

    /// Draws the line of a device. Returns the areas of its plots, and the meaning of their letters and heights.
    fn draw_strip(
        &self,
        canvas: &mut Canvas,
        area: Rect,
        device: &Device,
        span: Span,
        (is_selected, series): (bool, &[Series]),
    ) -> (Vec<Rect>, Vec<String>) {
        /// The value after a plot, and a gap.
        const VALUE_WIDTH: u16 = 8;
        let theme = &self.ui.theme;
        canvas.write_right(area, 0, 0, 4, &device.index.to_string(), theme.text);
        if is_selected {
            canvas.set_style(Rect { width: 4, ..area }, theme.selected);
        }
        let part = area.width.saturating_sub(6) / series.len() as u16;
        // The letter before a plot, and a gap if there is room.
        let letter = if part < 20 { 1 } else { 2 };
        let (mut areas, mut scales) = (Vec::new(), Vec::new());
        for (n, &series) in series.iter().enumerate() {
            let chart = self.series_chart(canvas, device, series, span);
            let x = 5 + n as u16 * part;
            canvas.write(area, x, 0, chart.letter(), chart.style);
            let width = part.saturating_sub(letter + VALUE_WIDTH);
            let plot = Rect { x: area.x + x + letter, width, ..area };
            draw_sparkline(canvas, plot, span, &chart.plot());
            let at = x + letter + width;
            let (value, style) = match (chart.share, series) {
                (Some(share), _) => (format!("{:.0}%", share.min(9.99) * 100.0), theme.level(share)),
                (None, Series::Dram | Series::L1) => (DASH.to_owned(), theme.faint),
                (None, _) => (chart.now.replace(' ', ""), theme.text),
            };
            canvas.write_right(area, at, 0, VALUE_WIDTH - 1, &value, style);
            areas.push(plot);
            scales.push(format!("{}: {} {}", chart.letter(), chart.short_title(), chart.scale()));
        }
        (areas, scales)
    }
}
