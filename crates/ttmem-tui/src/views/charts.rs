//! View 2: usage over time, a chart for each chip, all with the same time axis.

use super::Scene;
use crate::canvas::{Canvas, split_rows};
use crate::chart::{self, Line, Span};
use crate::ui::{List, Target};
use ratatui::layout::Rect;
use ratatui::style::Style;
use ttmem_core::snapshot::{Device, History, Sample, Total};
use ttmem_render::device::number_and_board as name;
use ttmem_render::figure::{DASH, GIB, MIB, age, bytes_or, percent, share, size};

/// A chart smaller than this, frame included, says less than a line.
const LEAST: (u16, u16) = (26, 7);
/// A line for a chip is not narrower than this.
const STRIP: u16 = 38;

/// Columns and rows of charts: as large as they can be, without holes where that is possible.
fn grid(count: u16, area: Rect) -> Option<(u16, u16)> {
    let fits = |columns: u16| {
        let rows = count.div_ceil(columns);
        let (width, height) = (area.width / columns, area.height / rows);
        (width >= LEAST.0 && height >= LEAST.1).then(|| {
            let holes = columns * rows - count;
            // Three or four times as wide as high reads best: a character is twice as high as it is wide.
            let shape = (f64::from(width) / f64::from(height) / 4.0).ln().abs();
            (shape + f64::from(holes) * 0.8, columns, rows)
        })
    };
    let all = (1..=count.max(1)).filter_map(fits);
    all.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, columns, rows)| (columns, rows))
}

/// What of a memory is shown over time.
pub(super) struct Series<'a> {
    pub(super) title: &'static str,
    samples: &'a [Sample],
    total: Option<&'a Total>,
    top: u64,
    pub(super) style: Style,
    mark: char,
    unit: u64,
    places: usize,
}

impl Series<'_> {
    fn line(&self) -> Line<'_> {
        Line { samples: self.samples, top: self.top, style: self.style, mark: self.mark }
    }

    pub(super) fn share(&self) -> Option<f64> {
        self.total.and_then(|it| share(it.used_bytes, it.capacity_bytes))
    }
}

impl Scene<'_> {
    pub(super) fn series<'a>(&'a self, canvas: &Canvas, device: &'a Device) -> [Series<'a>; 2] {
        const NOTHING: &History = &History { dram_total: Vec::new(), l1_total: Vec::new() };
        let history = self.shown.history.of(&device.id).unwrap_or(NOTHING);
        let capacity = device.capacity;
        let top = |samples: &[Sample], total: Option<&Total>, capacity: Option<u64>| {
            let all = total.and_then(|it| it.capacity_bytes).or(capacity);
            let highest = || samples.iter().map(|it| it.max_bytes).max().unwrap_or(0).max(1);
            // Of what has no known size, the highest there was is the top.
            if self.ui.scaled { highest() } else { all.filter(|&it| it > 0).unwrap_or_else(highest) }
        };
        let (dram, l1) = (device.usage.dram_total.as_ref(), device.usage.l1_total.as_ref());
        // Of what nobody ever told anything, nothing is drawn: a line at 0 would be a figure.
        let told = |samples: &'a [Sample], total: Option<&Total>| -> &'a [Sample] {
            let nothing = total.is_none() && samples.iter().all(|it| it.max_bytes == 0);
            if nothing { &[] } else { samples }
        };
        let theme = canvas.theme;
        [
            Series {
                title: "DRAM",
                samples: told(&history.dram_total, dram),
                total: dram,
                top: top(&history.dram_total, dram, capacity.map(|it| it.dram_bytes)),
                style: theme.dram,
                mark: '#',
                unit: GIB,
                places: 2,
            },
            Series {
                title: "L1",
                samples: told(&history.l1_total, l1),
                total: l1,
                top: top(&history.l1_total, l1, capacity.map(|it| it.l1_bytes)),
                style: theme.l1,
                mark: '*',
                unit: MIB,
                places: 1,
            },
        ]
    }

    pub(super) fn charts(&mut self, canvas: &mut Canvas, area: Rect) {
        let snapshot = self.shown.snapshot.clone();
        let (plots, axis) = split_rows(area, area.height.saturating_sub(1));
        let span = Span { end: snapshot.at, seconds: self.ui.window_seconds() };
        let count = snapshot.devices.len();
        if count == 0 {
            canvas.text(area, 2, 1, "No device, so nothing to draw.", self.ui.theme.faint);
            return;
        }
        if self.ui.single {
            if let Some(device) = self.ui.chip(&snapshot) {
                self.alone(canvas, plots, device, span);
            }
            self.time_axis(canvas, axis, 8, axis.width.saturating_sub(10));
            self.pages.push((List::Devices, 0, 1));
            return;
        }
        let place = self.ui.place(List::Devices);
        let shown = u16::try_from(count).unwrap_or(u16::MAX);
        if let Some((columns, rows)) = grid(shown, plots) {
            let width = plots.width / columns;
            for (n, device) in snapshot.devices.iter().enumerate() {
                let (column, row) = (n as u16 % columns, n as u16 / columns);
                // What is left over by the division is shared out.
                let edge =
                    |n: u16, of: u16, room: u16| (u32::from(n) * u32::from(room) / u32::from(of)) as u16;
                let (left, right) =
                    (edge(column, columns, plots.width), edge(column + 1, columns, plots.width));
                let (top, bottom) = (edge(row, rows, plots.height), edge(row + 1, rows, plots.height));
                let cell =
                    Rect { x: plots.x + left, y: plots.y + top, width: right - left, height: bottom - top };
                self.cell(canvas, cell, device, span, n == place.cursor);
                canvas.target(cell, Target::Row(List::Devices, n));
            }
            self.time_axis(canvas, axis, 1, width.saturating_sub(2));
            self.pages.push((List::Devices, 0, usize::from(columns)));
        } else {
            // So many beside each other that all are seen, if that can be.
            let rows = usize::from(plots.height).max(1);
            let columns = count.div_ceil(rows).clamp(1, usize::from(plots.width / STRIP).max(1));
            let width = plots.width / columns as u16;
            let page = rows * columns;
            let offset = crate::table::first_row(place, count, page);
            for (at, (n, device)) in snapshot.devices.iter().enumerate().skip(offset).take(page).enumerate() {
                let (column, row) = ((at / rows) as u16, (at % rows) as u16);
                let line = Rect { x: plots.x + column * width, y: plots.y + row, width, height: 1 };
                self.strip(canvas, line, device, span, n == place.cursor);
                canvas.target(line, Target::Row(List::Devices, n));
            }
            let half = width.saturating_sub(6) / 2;
            self.time_axis(canvas, axis, 5, half.saturating_sub(8));
            let mut text = "D: DRAM, L: L1".to_owned();
            if page < count {
                text = format!("{text}; chips {}-{} of {count}", offset + 1, (offset + page).min(count));
            }
            canvas.right(axis, 0, 0, axis.width.saturating_sub(1), &text, self.ui.theme.faint);
            self.pages.push((List::Devices, offset, page));
        }
    }

    /// One chip's chart.
    fn cell(&self, canvas: &mut Canvas, area: Rect, device: &Device, span: Span, chosen: bool) {
        let inside = canvas.frame(area, &name(device), chosen);
        let series = self.series(canvas, device);
        // The legend is the uppermost line: values first, then shares, if there is room.
        let (legend, plot) = split_rows(inside, 1);
        let long = series.each_ref().map(|it| {
            let used = bytes_or(it.total.map(|it| it.used_bytes), it.unit, it.places);
            let unit = if it.unit == GIB { "GiB" } else { "MiB" };
            format!("{} {used} {unit} {}", it.title, percent(it.share()))
        });
        let fits = long.iter().map(|it| it.chars().count() + 2).sum::<usize>() < usize::from(inside.width);
        let mut x = 1;
        for (it, long) in series.iter().zip(&long) {
            let short = format!("{} {}", it.title, percent(it.share()));
            x = canvas.text(legend, x, 0, if fits { long } else { &short }, it.style) + 2;
        }
        self.plot(canvas, plot, span, &series);
    }

    /// Both memories in one plot, with what its height means.
    pub(super) fn plot(&self, canvas: &mut Canvas, plot: Rect, span: Span, series: &[Series<'_>; 2]) {
        if series.iter().all(|it| it.samples.is_empty()) {
            canvas.text(plot, 1, 0, "nothing was seen yet", self.ui.theme.faint);
            return;
        }
        self.scale(canvas, plot, series);
        chart::draw(canvas, plot, span, &[series[0].line(), series[1].line()]);
    }

    /// What the height means, at the oldest end, where a line is last to come.
    fn scale(&self, canvas: &mut Canvas, plot: Rect, series: &[Series<'_>; 2]) {
        let whole = |it: &Series<'_>| {
            !self.ui.scaled && it.total.is_none_or(|it| it.capacity_bytes.is_some_and(|bytes| bytes > 0))
        };
        if series.iter().all(whole) {
            return self.percents(canvas, plot);
        }
        self.lines_at(canvas, plot, &[0.5]);
        let tops: Vec<String> = series.iter().map(|it| size(it.top)).collect();
        canvas.text(plot, 1, 0, &tops.join(", "), self.ui.theme.faint);
    }

    /// A height of 100 %, and the half of it.
    fn percents(&self, canvas: &mut Canvas, plot: Rect) {
        self.lines_at(canvas, plot, &[0.5]);
        canvas.text(plot, 1, 0, "100 %", self.ui.theme.faint);
        if plot.height >= 6 {
            let half = (f64::from(plot.height - 1) * 0.5).round() as u16;
            canvas.text(plot, 1, half, " 50 %", self.ui.theme.faint);
        }
    }

    /// Faint lines at shares of the height.
    fn lines_at(&self, canvas: &mut Canvas, plot: Rect, shares: &[f64]) {
        for share in shares {
            let y = (f64::from(plot.height.saturating_sub(1)) * (1.0 - share)).round() as u16;
            for x in (0..plot.width).step_by(4) {
                canvas.put(plot, x, y, '·', self.ui.theme.empty);
            }
        }
    }

    /// One chip on all of the screen: DRAM above, L1 below, each with its scale.
    fn alone(&self, canvas: &mut Canvas, area: Rect, device: &Device, span: Span) {
        let theme = &self.ui.theme;
        let (above, below) = split_rows(area, area.height / 2);
        for (area, it) in [above, below].into_iter().zip(self.series(canvas, device)) {
            let title = format!("{} of {}", it.title, name(device));
            let inside = canvas.frame(area, &title, true);
            let used = it.total.map_or_else(|| DASH.to_owned(), |it| size(it.used_bytes));
            let of = it.total.and_then(|it| it.capacity_bytes).map_or_else(|| DASH.to_owned(), size);
            canvas.corner(area, &format!("{used} of {of}  {}", percent(it.share())), it.style);
            let scale = 9;
            let plot = Rect { x: inside.x + scale, width: inside.width.saturating_sub(scale), ..inside };
            self.lines_at(canvas, plot, &[0.25, 0.5, 0.75]);
            for share in [1.0, 0.75, 0.5, 0.25, 0.0] {
                let y = (f64::from(plot.height.saturating_sub(1)) * (1.0 - share)).round() as u16;
                let label = if self.ui.scaled || it.total.is_none_or(|it| it.capacity_bytes.is_none()) {
                    size((it.top as f64 * share) as u64)
                } else {
                    format!("{:.0} %", share * 100.0)
                };
                canvas.right(inside, 0, y, scale - 1, &label, theme.faint);
            }
            chart::draw(canvas, plot, span, &[it.line()]);
        }
    }

    /// One chip in a line.
    fn strip(&self, canvas: &mut Canvas, area: Rect, device: &Device, span: Span, chosen: bool) {
        let theme = &self.ui.theme;
        canvas.right(area, 0, 0, 4, &device.index.to_string(), theme.text);
        if chosen {
            canvas.tint(Rect { width: 4, ..area }, theme.selected);
        }
        let half = area.width.saturating_sub(6) / 2;
        for (n, it) in self.series(canvas, device).into_iter().enumerate() {
            let x = 5 + n as u16 * half;
            let plot = Rect { x: area.x + x, width: half.saturating_sub(8), ..area };
            chart::spark(canvas, plot, span, &it.line());
            let letter = if n == 0 { 'D' } else { 'L' };
            let share =
                it.share().map_or_else(|| DASH.to_owned(), |it| format!("{:.0}%", it.min(9.99) * 100.0));
            let at = x + half.saturating_sub(8);
            canvas.put(area, at, 0, letter, it.style);
            canvas.right(area, at + 1, 0, 5, &share, it.share().map_or(theme.faint, |it| theme.level(it)));
        }
    }

    /// How long ago what is above was; and since when there is something to be seen.
    fn time_axis(&self, canvas: &mut Canvas, area: Rect, x: u16, width: u16) {
        let theme = &self.ui.theme;
        let seconds = self.ui.window_seconds();
        let ticks = match width {
            0..8 => return,
            8..16 => 1,
            16..40 => 2,
            _ => 4,
        };
        for n in 0..=ticks {
            let at = x + (u32::from(width) * n / ticks) as u16;
            let ago = seconds as f64 * f64::from(ticks - n) / f64::from(ticks);
            let text = if n == ticks { "now".to_owned() } else { age(ago).replace(".0", "") };
            let wide = text.chars().count() as u16;
            let at = if n == 0 {
                at
            } else if n == ticks {
                at.saturating_sub(wide)
            } else {
                at.saturating_sub(wide / 2)
            };
            canvas.text(area, at, 0, &text, theme.faint);
        }
        let text = format!("last {}", age(seconds as f64));
        if area.width > x + width + 30 {
            canvas.right(area, 0, 0, area.width.saturating_sub(1), &text, theme.faint);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charts_fill_the_screen_and_leave_no_holes() {
        let area = |width, height| Rect::new(0, 0, width, height);
        assert_eq!(grid(1, area(80, 20)), Some((1, 1)));
        let (columns, rows) = grid(8, area(120, 36)).unwrap();
        assert_eq!(columns * rows, 8);
        assert_eq!(grid(32, area(80, 20)), None, "a line each");
        let (columns, rows) = grid(32, area(200, 56)).unwrap();
        assert_eq!(columns * rows, 32);
        for count in 1..=64 {
            for (width, height) in [(80, 20), (120, 36), (200, 56), (300, 98)] {
                if let Some((columns, rows)) = grid(count, area(width, height)) {
                    assert!(
                        columns * rows >= count && width / columns >= LEAST.0 && height / rows >= LEAST.1
                    );
                }
            }
        }
    }
}
