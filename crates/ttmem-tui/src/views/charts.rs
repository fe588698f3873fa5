//! View 2: memory and sensors over time, each with its own scale, all with the same time axis.

use super::Scene;
use crate::canvas::{Canvas, split_rows};
use crate::chart::{self, Line, Span};
use crate::shown::{SENSOR_PARTS, Series};
use crate::ui::{List, Target};
use ratatui::layout::Rect;
use ratatui::style::Style;
use ttmem_core::snapshot::{Device, Sample};
use ttmem_render::device::{dram_capacity, l1_capacity, number_and_board as name};
use ttmem_render::figure::{DASH, percent, share, size};

/// The smallest frame of a device's charts; below that each device is one line.
const LEAST: (u16, u16) = (26, 7);
/// The smallest chart: its legend, and one row.
const LEAST_CHART: (u16, u16) = (20, 2);
/// The smallest chart with a frame and labels of its own.
const LEAST_FRAMED: (u16, u16) = (32, 5);
/// A line for a device is not narrower than this.
const STRIP: u16 = 38;

const MEMORY: [Series; 2] = [Series::Dram, Series::L1];
const SENSORS: [Series; 3] = [Series::Temperature, Series::Power, Series::Clock];

/// Arrangements of a device's charts in columns: of all, of memory, of sensors.
const ALL_CHARTS: [&[&[Series]]; 3] = [
    &[&Series::ALL],
    &[&MEMORY, &SENSORS],
    &[&[Series::Dram], &[Series::L1], &[Series::Temperature], &[Series::Power], &[Series::Clock]],
];
const MEMORY_CHARTS: [&[&[Series]]; 2] = [&[&MEMORY], &[&[Series::Dram], &[Series::L1]]];
const SENSOR_CHARTS: [&[&[Series]]; 2] =
    [&[&SENSORS], &[&[Series::Temperature], &[Series::Power], &[Series::Clock]]];

/// Columns and rows of devices: as large as they can be, without holes where that is possible.
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

/// The charts of a device in columns, each with its place. Of several arrangements the one with the best shape is taken;
/// `None`: none leaves each chart as much as `least`.
fn places(arrangements: &[&[&[Series]]], area: Rect, least: (u16, u16)) -> Option<Vec<(Series, Rect)>> {
    let fit = |columns: &&[&[Series]]| {
        let all = arranged(columns, area);
        let fits = all.iter().all(|(_, it)| it.width >= least.0 && it.height >= least.1);
        let shape = |it: &Rect| (f64::from(it.width) / f64::from(it.height.max(1)) / 5.0).ln().abs();
        let worst = all.iter().map(|(_, it)| shape(it)).fold(0.0, f64::max);
        fits.then_some((worst, all))
    };
    arrangements.iter().filter_map(fit).min_by(|a, b| a.0.total_cmp(&b.0)).map(|it| it.1)
}

fn arranged(columns: &[&[Series]], area: Rect) -> Vec<(Series, Rect)> {
    let count = columns.len() as u16;
    let mut all = Vec::new();
    for (n, column) in columns.iter().enumerate() {
        let n = n as u16;
        // Of memory and sensors beside each other, memory gets three fifths.
        let (left, right) = match (columns, n) {
            ([a, b], 0) if a.len() != b.len() => (0, area.width * 3 / 5),
            ([a, b], 1) if a.len() != b.len() => (area.width * 3 / 5, area.width),
            _ => (edge(n, count, area.width), edge(n + 1, count, area.width)),
        };
        for (row, &series) in column.iter().enumerate() {
            let (row, rows) = (row as u16, column.len() as u16);
            let (top, bottom) = (edge(row, rows, area.height), edge(row + 1, rows, area.height));
            let place = Rect { x: area.x + left, y: area.y + top, width: right - left, height: bottom - top };
            all.push((series, place));
        }
    }
    all
}

/// Where part `n` of `of` begins: what is left over by the division is shared out.
fn edge(n: u16, of: u16, room: u16) -> u16 {
    (u32::from(n) * u32::from(room) / u32::from(of)) as u16
}

/// The next round number: 1, 2 or 5 and zeros.
fn round_up(value: u64) -> u64 {
    let mut step = 1u64;
    while step.saturating_mul(10) < value {
        step = step.saturating_mul(10);
    }
    [1, 2, 5, 10].map(|it| step.saturating_mul(it)).into_iter().find(|&it| it >= value).unwrap_or(value)
}

/// A stretch of time without rounding, in its two largest units: `45s`, `3m45s`, `2h15m`.
fn duration(seconds: u64) -> String {
    let parts = [(seconds / 3600, 'h'), (seconds / 60 % 60, 'm'), (seconds % 60, 's')];
    let shown = parts.into_iter().skip_while(|it| it.0 == 0).take(2).filter(|it| it.0 > 0);
    shown.map(|(n, unit)| format!("{n}{unit}")).collect::<Vec<_>>().concat()
}

/// One figure of a device over time, with its scale.
pub(super) struct Chart<'a> {
    series: Series,
    samples: &'a [Sample],
    /// What it is now, with its unit.
    now: String,
    /// How full the memory is.
    share: Option<f64>,
    top: u64,
    style: Style,
}

impl Chart<'_> {
    fn title(&self) -> &'static str {
        match self.series {
            Series::Dram => "DRAM",
            Series::L1 => "L1",
            Series::Temperature => "Temperature",
            Series::Power => "Power",
            Series::Clock => "Clock",
        }
    }

    fn short_title(&self) -> &'static str {
        if self.series == Series::Temperature { "Temp" } else { self.title() }
    }

    fn letter(&self) -> &'static str {
        &self.title()[..1]
    }

    fn line(&self) -> Line<'_> {
        let mark = match self.series {
            Series::Dram => '#',
            Series::L1 => '*',
            Series::Temperature => 't',
            Series::Power => 'w',
            Series::Clock => 'c',
        };
        Line { samples: self.samples, top: self.top, style: self.style, mark }
    }

    fn why_empty(&self) -> &'static str {
        if MEMORY.contains(&self.series) { "no data" } else { "no sensor data" }
    }

    /// `0–12.0 GiB`: what the height means.
    fn scale(&self) -> String {
        format!("0–{}", figure(self.series, self.top))
    }
}

/// A value of a series, with its unit.
fn figure(series: Series, value: u64) -> String {
    let reading = |unit: &str| {
        let value = value as f64 / SENSOR_PARTS;
        let places = usize::from(value < 10.0 && value.fract() != 0.0);
        format!("{value:.places$} {unit}")
    };
    match series {
        Series::Dram | Series::L1 => size(value),
        Series::Temperature => reading("°C"),
        Series::Power => reading("W"),
        Series::Clock => reading("MHz"),
    }
}

impl Scene<'_> {
    fn chart<'a>(&'a self, canvas: &Canvas, device: &'a Device, series: Series, span: Span) -> Chart<'a> {
        let samples = self.shown.history.of(&device.id, series);
        let sensors = device.sensors.as_ref();
        let parts = |value: f64| (value * SENSOR_PARTS).max(0.0) as u64;
        let total = match series {
            Series::Dram => device.usage.dram_total.as_ref(),
            Series::L1 => device.usage.l1_total.as_ref(),
            _ => None,
        };
        let (now, all) = match series {
            Series::Dram => (total.map(|it| it.used_bytes), dram_capacity(device)),
            Series::L1 => (total.map(|it| it.used_bytes), l1_capacity(device)),
            Series::Temperature => (
                sensors.and_then(|it| it.asic_celsius).map(parts),
                sensors.and_then(|it| it.limits.asic_celsius).map(parts),
            ),
            Series::Power => (
                sensors.and_then(|it| it.power_watts).map(parts),
                sensors.and_then(|it| it.limits.power_watts).map(parts),
            ),
            Series::Clock => (sensors.and_then(|it| it.aiclk_mhz).map(parts), None),
        };
        let from = span.begin();
        let first = samples.partition_point(|it| it.at < from);
        // Where no process ever reported memory, a line at 0 would be a figure.
        let is_memory = MEMORY.contains(&series);
        let unknown = is_memory && total.is_none() && samples.iter().all(|it| it.max_bytes == 0);
        let samples = if unknown { &[] } else { samples };
        let highest = samples[first.min(samples.len())..].iter().map(|it| it.max_bytes).max();
        let highest = highest.max(now).unwrap_or(0).max(1);
        let top = match all.filter(|&it| it > 0 && !self.ui.scaled) {
            Some(all) => all.max(if is_memory { 0 } else { highest }),
            None if is_memory || self.ui.scaled => highest,
            None => round_up(highest),
        };
        Chart {
            series,
            samples,
            now: now.map_or_else(|| DASH.to_owned(), |it| figure(series, it)),
            share: total.and_then(|it| share(it.used_bytes, all)),
            top,
            style: canvas.theme.series(series),
        }
    }

    pub(super) fn charts(&mut self, canvas: &mut Canvas, area: Rect) {
        let snapshot = self.shown.snapshot.clone();
        let (plots, axis) = split_rows(area, area.height.saturating_sub(1));
        let span = Span { end: snapshot.at, seconds: self.ui.window_seconds() };
        let count = snapshot.devices.len();
        if count == 0 {
            canvas.text(area, 2, 1, super::NO_DEVICE, self.ui.theme.faint);
            return;
        }
        if self.ui.single {
            if let Some(device) = self.ui.chip(&snapshot) {
                self.alone(canvas, plots, axis, device, span);
            }
            self.pages.push((List::Devices, 0, 1));
            return;
        }
        let place = self.ui.place(List::Devices);
        let shown = u16::try_from(count).unwrap_or(u16::MAX);
        if let Some((columns, rows)) = grid(shown, plots) {
            for (n, device) in snapshot.devices.iter().enumerate() {
                let (column, row) = (n as u16 % columns, n as u16 / columns);
                let (left, right) =
                    (edge(column, columns, plots.width), edge(column + 1, columns, plots.width));
                let (top, bottom) = (edge(row, rows, plots.height), edge(row + 1, rows, plots.height));
                let cell =
                    Rect { x: plots.x + left, y: plots.y + top, width: right - left, height: bottom - top };
                let inside = canvas.frame(cell, &name(device), n == place.cursor);
                let drawn = self.lanes(canvas, inside, device, span);
                if row == 0 {
                    self.time_axes(canvas, axis, &drawn);
                }
                canvas.target(cell, Target::Row(List::Devices, n));
            }
            self.pages.push((List::Devices, 0, usize::from(columns)));
        } else {
            self.strips(canvas, plots, axis, span);
        }
    }

    /// A device's charts in one frame: memory and sensors where both fit. Returns where the time runs.
    pub(super) fn lanes(&self, canvas: &mut Canvas, area: Rect, device: &Device, span: Span) -> Vec<Rect> {
        let few: &[&[&[Series]]] = if self.ui.sensors { &SENSOR_CHARTS } else { &MEMORY_CHARTS };
        let placed = places(&ALL_CHARTS, area, LEAST_CHART).or_else(|| places(few, area, LEAST_CHART));
        let placed = placed.unwrap_or_else(|| arranged(&[&few[0][0][..1]], area));
        for &(series, place) in &placed {
            let chart = self.chart(canvas, device, series, span);
            let (legend, plot) = split_rows(place, 1);
            let room = usize::from(legend.width.saturating_sub(1));
            let scale = chart.scale();
            let short = match chart.share {
                Some(share) => format!("{} {}", chart.short_title(), percent(Some(share))),
                None => format!("{} {}", chart.short_title(), chart.now),
            };
            let long = match chart.share {
                Some(share) => format!("{} {} {}", chart.short_title(), chart.now, percent(Some(share))),
                None => short.clone(),
            };
            // As much as fits: what it is now comes before what the height means.
            let bare = scale.split(' ').next().unwrap_or_default();
            let fits =
                |(text, scale): &(&str, &str)| 2 + text.chars().count() + scale.chars().count() <= room;
            let ways = [(&long[..], &scale[..]), (&short, &scale), (&short, bare)];
            let (text, scale) = ways.into_iter().find(fits).unwrap_or((&short, ""));
            canvas.text(legend, 1, 0, text, chart.style);
            if !chart.samples.is_empty() {
                canvas.right(legend, 0, 0, legend.width.saturating_sub(1), scale, self.ui.theme.faint);
            }
            let plot = Rect { x: plot.x + 1, width: plot.width.saturating_sub(2), ..plot };
            if chart.samples.is_empty() {
                canvas.cut(plot, 0, 0, plot.width, chart.why_empty(), self.ui.theme.faint);
            }
            chart::draw(canvas, plot, span, &chart.line());
        }
        let last = placed.into_iter().map(|it| it.1).filter(|it| it.bottom() == area.bottom());
        last.map(|it| Rect { x: it.x + 1, width: it.width.saturating_sub(2), ..it }).collect()
    }

    /// Faint lines at shares of the height.
    fn lines_at(&self, canvas: &mut Canvas, plot: Rect, shares: &[f64]) {
        for share in shares {
            let y = (f64::from(plot.height.saturating_sub(1)) * (1.0 - share)).round() as u16;
            for x in (0..plot.width).step_by(4).filter(|_| *share > 0.0 && *share < 1.0) {
                canvas.put(plot, x, y, '·', self.ui.theme.empty);
            }
        }
    }

    /// One device on the whole screen: each chart in a frame, with a labelled axis.
    fn alone(&self, canvas: &mut Canvas, area: Rect, axis: Rect, device: &Device, span: Span) {
        const LABELS: u16 = 11;
        let theme = &self.ui.theme;
        let few: &[&[&[Series]]] = if self.ui.sensors { &SENSOR_CHARTS } else { &MEMORY_CHARTS };
        let all = places(&ALL_CHARTS[1..2], area, LEAST_FRAMED).unwrap_or_else(|| arranged(few[0], area));
        let mut axes = Vec::new();
        for (series, area) in all {
            let chart = self.chart(canvas, device, series, span);
            let inside = canvas.frame(area, &format!("{} of {}", chart.title(), name(device)), true);
            let value = match chart.share {
                Some(share) => format!("{} {}", chart.now, percent(Some(share))),
                None => chart.now.clone(),
            };
            canvas.corner(area, &value, chart.style);
            let plot = Rect { x: inside.x + LABELS, width: inside.width.saturating_sub(LABELS), ..inside };
            let shares: &[f64] =
                if plot.height >= 8 { &[1.0, 0.75, 0.5, 0.25, 0.0] } else { &[1.0, 0.5, 0.0] };
            let shares = if chart.samples.is_empty() { &[] } else { shares };
            self.lines_at(canvas, plot, shares);
            for share in shares {
                let y = (f64::from(plot.height.saturating_sub(1)) * (1.0 - share)).round() as u16;
                let label = figure(series, (chart.top as f64 * share) as u64);
                canvas.right(inside, 0, y, LABELS - 1, &label, theme.faint);
            }
            if chart.samples.is_empty() {
                canvas.cut(plot, 1, plot.height / 2, plot.width, chart.why_empty(), theme.faint);
            }
            chart::draw(canvas, plot, span, &chart.line());
            axes.push(plot);
        }
        axes.retain(|it| it.bottom() + 1 == area.bottom());
        self.time_axes(canvas, axis, &axes);
    }

    /// Each device in a line, where there is no room for more; twice, if there is room for memory and sensors.
    fn strips(&mut self, canvas: &mut Canvas, plots: Rect, axis: Rect, span: Span) {
        let count = self.shown.snapshot.devices.len();
        let rows = usize::from(plots.height).max(1);
        if 2 * count < rows {
            let (above, below) = split_rows(plots, count as u16 + 1);
            let (memory, first_axis) = split_rows(above, count as u16);
            self.block(canvas, memory, first_axis, span, &MEMORY);
            self.block(canvas, below, axis, span, &SENSORS);
            self.pages.push((List::Devices, 0, count));
            return;
        }
        let series: &[Series] = if self.ui.sensors { &SENSORS } else { &MEMORY };
        let (offset, page) = self.block(canvas, plots, axis, span, series);
        self.pages.push((List::Devices, offset, page));
    }

    /// Lines of some series, with their time axis. Returns the first device, and how many there are.
    fn block(
        &self,
        canvas: &mut Canvas,
        plots: Rect,
        axis: Rect,
        span: Span,
        series: &[Series],
    ) -> (usize, usize) {
        let snapshot = &self.shown.snapshot;
        let (count, place) = (snapshot.devices.len(), self.ui.place(List::Devices));
        // So many beside each other that all are seen, if that can be.
        let rows = usize::from(plots.height).max(1);
        let columns = count.div_ceil(rows).clamp(1, usize::from(plots.width / STRIP).max(1));
        let width = plots.width / columns as u16;
        let page = rows * columns;
        let offset = crate::table::first_row(place, count, page);
        let mut scales = Vec::new();
        for (at, (n, device)) in snapshot.devices.iter().enumerate().skip(offset).take(page).enumerate() {
            let (column, row) = ((at / rows) as u16, (at % rows) as u16);
            let line = Rect { x: plots.x + column * width, y: plots.y + row, width, height: 1 };
            let (axes, keys) = self.strip(canvas, line, device, span, (n == place.cursor, series));
            if at == 0 {
                self.time_axes(canvas, axis, &axes[..1]);
                scales = keys;
            }
            canvas.target(line, Target::Row(List::Devices, n));
        }
        let mut text = scales.join(", ");
        if page < count {
            text = format!("{text}; devices {}-{} of {count}", offset + 1, (offset + page).min(count));
        }
        canvas.right(axis, 0, 0, axis.width.saturating_sub(1), &text, self.ui.theme.faint);
        (offset, page)
    }

    /// One device in a line. Returns where its charts are, and what their letters and heights mean.
    fn strip(
        &self,
        canvas: &mut Canvas,
        area: Rect,
        device: &Device,
        span: Span,
        (chosen, series): (bool, &[Series]),
    ) -> (Vec<Rect>, Vec<String>) {
        const VALUE: u16 = 9;
        let theme = &self.ui.theme;
        canvas.right(area, 0, 0, 4, &device.index.to_string(), theme.text);
        if chosen {
            canvas.tint(Rect { width: 4, ..area }, theme.selected);
        }
        let part = area.width.saturating_sub(6) / series.len() as u16;
        let (mut places, mut scales) = (Vec::new(), Vec::new());
        for (n, &series) in series.iter().enumerate() {
            let chart = self.chart(canvas, device, series, span);
            let x = 5 + n as u16 * part;
            let plot = Rect { x: area.x + x, width: part.saturating_sub(VALUE), ..area };
            chart::spark(canvas, plot, span, &chart.line());
            let at = x + part.saturating_sub(VALUE);
            canvas.text(area, at, 0, chart.letter(), chart.style);
            let (value, style) = match (chart.share, series) {
                (Some(share), _) => (format!("{:.0}%", share.min(9.99) * 100.0), theme.level(share)),
                (None, Series::Dram | Series::L1) => (DASH.to_owned(), theme.faint),
                (None, _) => (chart.now.replace(' ', ""), theme.text),
            };
            canvas.right(area, at + 1, 0, VALUE - 2, &value, style);
            places.push(plot);
            scales.push(format!("{}: {} {}", chart.letter(), chart.short_title(), chart.scale()));
        }
        (places, scales)
    }

    /// How long ago what is above was, below each of these.
    fn time_axes(&self, canvas: &mut Canvas, area: Rect, plots: &[Rect]) {
        for plot in plots {
            self.time_axis(canvas, area, plot.x.saturating_sub(area.x), plot.width);
        }
    }

    fn time_axis(&self, canvas: &mut Canvas, area: Rect, x: u16, width: u16) {
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
            let text = if n == ticks { "now".to_owned() } else { duration(ago) };
            let wide = text.chars().count() as u16;
            let at = if n == 0 {
                at
            } else if n == ticks {
                at.saturating_sub(wide)
            } else {
                at.saturating_sub(wide / 2)
            };
            canvas.text(area, at, 0, &text, self.ui.theme.faint);
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

    #[test]
    fn charts_of_a_device_share_its_area() {
        for (width, height) in [(24, 5), (28, 16), (48, 5), (98, 30), (200, 50)] {
            let area = Rect::new(3, 2, width, height);
            for arrangements in [&ALL_CHARTS[..], &MEMORY_CHARTS, &SENSOR_CHARTS] {
                let Some(placed) = places(arrangements, area, LEAST_CHART) else { continue };
                let covered: u32 = placed.iter().map(|(_, it)| it.area()).sum();
                assert_eq!(covered, area.area(), "{} charts in {width} x {height}", placed.len());
                assert!(placed.iter().all(|(_, it)| it.width >= LEAST_CHART.0 && it.height >= LEAST_CHART.1));
            }
        }
        let smallest = Rect::new(0, 0, LEAST.0 - 2, LEAST.1 - 2);
        assert_eq!(places(&ALL_CHARTS, smallest, LEAST_CHART), None);
        assert!(places(&MEMORY_CHARTS, smallest, LEAST_CHART).is_some());
    }

    #[test]
    fn time_is_not_rounded() {
        let labels = |seconds: u64| [4, 3, 2, 1].map(|n| duration(seconds * n / 4)).join(" ");
        assert_eq!(labels(60), "1m 45s 30s 15s");
        assert_eq!(labels(300), "5m 3m45s 2m30s 1m15s");
        assert_eq!(labels(900), "15m 11m15s 7m30s 3m45s");
        assert_eq!(labels(10_800), "3h 2h15m 1h30m 45m");
        assert_eq!(labels(86_400), "24h 18h 12h 6h");
    }

    #[test]
    fn scales_end_at_round_numbers() {
        for (value, top) in
            [(1, 1), (3, 5), (1_000_000, 1_000_000), (1_000_001, 2_000_000), (51_500, 100_000)]
        {
            assert_eq!(round_up(value), top);
        }
        assert_eq!(round_up(u64::MAX), u64::MAX);
        assert_eq!(figure(Series::Temperature, 51_500), "52 °C");
        assert_eq!(figure(Series::Clock, 1_000_000), "1000 MHz");
        assert_eq!(figure(Series::Power, 2_500), "2.5 W");
    }
}
