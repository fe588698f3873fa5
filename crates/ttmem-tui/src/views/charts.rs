//! View 2: memory and sensors over time, each with its own scale, all with the same time axis.

mod layout;
mod series_chart;
mod strips;

use super::Scene;
use crate::canvas::{Canvas, split_rows};
use crate::data::Series;
use crate::plot::{Span, draw_plot};
use crate::ui::{List, Target};
use layout::{
    ALL_CHARTS, MEMORY_CHARTS, MIN_CHART, MIN_FRAMED_CHART, SENSOR_CHARTS, SIDE_BY_SIDE, arrange,
    best_arrangement, device_grid, edge,
};
use ratatui::layout::Rect;
use series_chart::{SeriesChart, format_value};
use ttmem_core::snapshot::Device;
use ttmem_render::device::index_and_board;
use ttmem_render::format::percent;

const MEMORY: [Series; 2] = [Series::Dram, Series::L1];
const SENSORS: [Series; 3] = [Series::Temperature, Series::Power, Series::Clock];

impl Scene<'_> {
    pub(super) fn draw_charts(&mut self, canvas: &mut Canvas, area: Rect) {
        let snapshot = self.data.snapshot.clone();
        let (plots, axis) = split_rows(area, area.height.saturating_sub(1));
        let span = Span { end: snapshot.at, seconds: self.ui.window_seconds() };
        let count = snapshot.devices.len();
        if count == 0 {
            canvas.write(area, 2, 1, super::NO_DEVICE, self.ui.theme.faint);
            return;
        }
        if self.ui.single {
            if let Some(device) = self.ui.selected_device(&snapshot) {
                self.draw_single_device(canvas, plots, axis, device, span);
            }
            self.pages.push((List::Devices, 0, 1));
            return;
        }
        let cursor = self.ui.list_state(List::Devices).cursor;
        let Some((columns, rows)) = device_grid(u16::try_from(count).unwrap_or(u16::MAX), plots) else {
            return self.draw_strips(canvas, plots, axis, span);
        };
        for (n, device) in snapshot.devices.iter().enumerate() {
            let (column, row) = (n as u16 % columns, n as u16 / columns);
            let (left, right) = (edge(column, columns, plots.width), edge(column + 1, columns, plots.width));
            let (top, bottom) = (edge(row, rows, plots.height), edge(row + 1, rows, plots.height));
            let cell =
                Rect { x: plots.x + left, y: plots.y + top, width: right - left, height: bottom - top };
            let inside = canvas.draw_frame(cell, &index_and_board(device), n == cursor);
            let drawn = self.draw_device_charts(canvas, inside, device, span);
            if row == 0 {
                self.draw_time_axes(canvas, axis, &drawn);
            }
            canvas.add_target(cell, Target::Row(List::Devices, n));
        }
        self.pages.push((List::Devices, 0, usize::from(columns)));
    }

    /// Arrangements of memory or of sensors, for an area without space for both.
    fn small_arrangements(&self) -> &'static [&'static [&'static [Series]]] {
        if self.ui.sensors { &SENSOR_CHARTS } else { &MEMORY_CHARTS }
    }

    /// Draws the charts of a device: memory and sensors if both fit. Returns the plots at the bottom, for their time axes.
    pub(super) fn draw_device_charts(
        &self,
        canvas: &mut Canvas,
        area: Rect,
        device: &Device,
        span: Span,
    ) -> Vec<Rect> {
        let small = self.small_arrangements();
        let charts = best_arrangement(&ALL_CHARTS, area, MIN_CHART)
            .or_else(|| best_arrangement(small, area, MIN_CHART))
            .unwrap_or_else(|| arrange(&[&small[0][0][..1]], area));
        for &(series, area) in &charts {
            let chart = self.series_chart(canvas, device, series, span);
            let (legend, plot) = split_rows(area, 1);
            self.draw_legend(canvas, legend, &chart);
            let plot = Rect { x: plot.x + 1, width: plot.width.saturating_sub(2), ..plot };
            if chart.samples.is_empty() {
                canvas.write_cut(plot, 0, 0, plot.width, chart.empty_text(), self.ui.theme.faint);
            }
            draw_plot(canvas, plot, span, &chart.plot());
        }
        let lowest = charts.into_iter().map(|it| it.1).filter(|it| it.bottom() == area.bottom());
        lowest.map(|it| Rect { x: it.x + 1, width: it.width.saturating_sub(2), ..it }).collect()
    }

    /// Draws the symbol, the current value and the scale of a chart, as much as fits: the value comes first.
    fn draw_legend(&self, canvas: &mut Canvas, area: Rect, chart: &SeriesChart) {
        let mut x = 1;
        if let Some(symbol) = chart.pattern().symbol(canvas) {
            canvas.put(area, x, 0, symbol, chart.style);
            x += 2;
        }
        let room = usize::from(area.width.saturating_sub(x));
        let scale = chart.scale();
        let short = match chart.share {
            Some(share) => format!("{} {}", chart.short_title(), percent(Some(share))),
            None => format!("{} {}", chart.short_title(), chart.now),
        };
        let long = match chart.share {
            Some(share) => format!("{} {} {}", chart.short_title(), chart.now, percent(Some(share))),
            None => short.clone(),
        };
        let without_unit = scale.split(' ').next().unwrap_or_default();
        let fits = |(text, scale): &(&str, &str)| 2 + text.chars().count() + scale.chars().count() <= room;
        let variants = [(&long[..], &scale[..]), (&short, &scale), (&short, without_unit)];
        let (text, scale) = variants.into_iter().find(fits).unwrap_or((&short, ""));
        canvas.write(area, x, 0, text, chart.style);
        if !chart.samples.is_empty() {
            canvas.write_right(area, 0, 0, area.width.saturating_sub(1), scale, self.ui.theme.faint);
        }
    }

    /// Draws faint horizontal lines at shares of the height.
    fn draw_grid_lines(&self, canvas: &mut Canvas, plot: Rect, shares: &[f64]) {
        for share in shares {
            let y = (f64::from(plot.height.saturating_sub(1)) * (1.0 - share)).round() as u16;
            for x in (0..plot.width).step_by(4).filter(|_| *share > 0.0 && *share < 1.0) {
                canvas.put(plot, x, y, '·', self.ui.theme.empty);
            }
        }
    }

    /// Draws one device on the whole screen: each chart in a frame, with a labelled axis.
    fn draw_single_device(&self, canvas: &mut Canvas, area: Rect, axis: Rect, device: &Device, span: Span) {
        const LABELS: u16 = 11;
        let theme = &self.ui.theme;
        let charts = best_arrangement(&SIDE_BY_SIDE, area, MIN_FRAMED_CHART)
            .unwrap_or_else(|| arrange(self.small_arrangements()[0], area));
        let mut plots = Vec::new();
        for (series, area) in charts {
            let chart = self.series_chart(canvas, device, series, span);
            let symbol = chart.pattern().symbol(canvas);
            let symbol = symbol.map_or_else(String::new, |symbol| format!("{symbol} "));
            let title = format!("{symbol}{} of {}", chart.title(), index_and_board(device));
            let inside = canvas.draw_frame(area, &title, true);
            let value = match chart.share {
                Some(share) => format!("{} {}", chart.now, percent(Some(share))),
                None => chart.now.clone(),
            };
            canvas.write_top_right(area, &value, chart.style);
            let plot = Rect { x: inside.x + LABELS, width: inside.width.saturating_sub(LABELS), ..inside };
            let shares: &[f64] =
                if plot.height >= 8 { &[1.0, 0.75, 0.5, 0.25, 0.0] } else { &[1.0, 0.5, 0.0] };
            let shares = if chart.samples.is_empty() { &[] } else { shares };
            self.draw_grid_lines(canvas, plot, shares);
            for share in shares {
                let y = (f64::from(plot.height.saturating_sub(1)) * (1.0 - share)).round() as u16;
                let label = format_value(series, (chart.top as f64 * share) as u64);
                canvas.write_right(inside, 0, y, LABELS - 1, &label, theme.faint);
            }
            if chart.samples.is_empty() {
                canvas.write_cut(plot, 1, plot.height / 2, plot.width, chart.empty_text(), theme.faint);
            }
            draw_plot(canvas, plot, span, &chart.plot());
            plots.push(plot);
        }
        plots.retain(|it| it.bottom() + 1 == area.bottom());
        self.draw_time_axes(canvas, axis, &plots);
    }

    /// Draws a time axis below each of these plots.
    fn draw_time_axes(&self, canvas: &mut Canvas, area: Rect, plots: &[Rect]) {
        for plot in plots {
            self.draw_time_axis(canvas, area, plot.x.saturating_sub(area.x), plot.width);
        }
    }

    fn draw_time_axis(&self, canvas: &mut Canvas, area: Rect, x: u16, width: u16) {
        let seconds = self.ui.window_seconds();
        let ticks = match width {
            0..8 => return,
            8..16 => 1,
            16..36 => 2,
            _ => 4,
        };
        for n in 0..=ticks {
            let at = x + (u32::from(width) * n / ticks) as u16;
            let ago = seconds * u64::from(ticks - n) / u64::from(ticks);
            let text = if n == ticks { "now".to_owned() } else { format_duration(ago) };
            let len = text.chars().count() as u16;
            let at = if n == 0 {
                at
            } else if n == ticks {
                at.saturating_sub(len)
            } else {
                at.saturating_sub(len / 2)
            };
            canvas.write(area, at, 0, &text, self.ui.theme.faint);
        }
    }
}

/// A duration without rounding, in its two largest units: `45s`, `3m45s`, `2h15m`.
fn format_duration(seconds: u64) -> String {
    let parts = [(seconds / 3600, 'h'), (seconds / 60 % 60, 'm'), (seconds % 60, 's')];
    let largest = parts.into_iter().skip_while(|it| it.0 == 0).take(2).filter(|it| it.0 > 0);
    largest.map(|(n, unit)| format!("{n}{unit}")).collect::<Vec<_>>().concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_not_rounded() {
        let labels = |seconds: u64| [4, 3, 2, 1].map(|n| format_duration(seconds * n / 4)).join(" ");
        assert_eq!(labels(60), "1m 45s 30s 15s");
        assert_eq!(labels(300), "5m 3m45s 2m30s 1m15s");
        assert_eq!(labels(900), "15m 11m15s 7m30s 3m45s");
        assert_eq!(labels(10_800), "3h 2h15m 1h30m 45m");
        assert_eq!(labels(86_400), "24h 18h 12h 6h");
    }
}
