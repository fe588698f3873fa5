//! The chart of one series of a device: its samples, scale and texts.

use super::MEMORY;
use crate::canvas::Canvas;
use crate::data::{SENSOR_PARTS, Series};
use crate::plot::{Pattern, Plot, Span};
use crate::views::Scene;
use ratatui::style::Style;
use ttmem_core::snapshot::{Device, Sample};
use ttmem_render::device::{dram_capacity, l1_capacity};
use ttmem_render::format::{DASH, share, size};

/// A series of a device, with its scale.
pub(super) struct SeriesChart<'a> {
    series: Series,
    pub(super) samples: &'a [Sample],
    /// The current value, with its unit.
    pub(super) now: String,
    /// The share of the memory that is in use.
    pub(super) share: Option<f64>,
    /// The value at the top.
    pub(super) top: u64,
    pub(super) style: Style,
}

impl SeriesChart<'_> {
    pub(super) fn title(&self) -> &'static str {
        match self.series {
            Series::Dram => "DRAM",
            Series::L1 => "L1",
            Series::Temperature => "Temperature",
            Series::Power => "Power",
            Series::Clock => "Clock",
        }
    }

    pub(super) fn short_title(&self) -> &'static str {
        if self.series == Series::Temperature { "Temp" } else { self.title() }
    }

    pub(super) fn letter(&self) -> &'static str {
        &self.title()[..1]
    }

    pub(super) fn pattern(&self) -> Pattern {
        // Solid, chequered, vertical lines, horizontal lines, dots.
        let (edge, fill) = match self.series {
            Series::Dram => ('#', 0xff),
            Series::L1 => ('*', 0x95),
            Series::Temperature => ('t', 0x47),
            Series::Power => ('w', 0xd2),
            Series::Clock => ('c', 0x41),
        };
        Pattern { edge, fill }
    }

    pub(super) fn plot(&self) -> Plot<'_> {
        Plot { samples: self.samples, top: self.top, style: self.style, pattern: self.pattern() }
    }

    /// The text of a chart without samples.
    pub(super) fn empty_text(&self) -> &'static str {
        if MEMORY.contains(&self.series) { "no data" } else { "no sensor data" }
    }

    /// The range of the vertical axis: `0–12.0 GiB`.
    pub(super) fn scale(&self) -> String {
        format!("0–{}", format_value(self.series, self.top))
    }
}

impl Scene<'_> {
    pub(super) fn series_chart<'a>(
        &'a self,
        canvas: &Canvas,
        device: &'a Device,
        series: Series,
        span: Span,
    ) -> SeriesChart<'a> {
        let samples = self.data.history.samples(&device.id, series);
        let total = match series {
            Series::Dram => device.usage.dram_total.as_ref(),
            Series::L1 => device.usage.l1_total.as_ref(),
            _ => None,
        };
        let sensors = device.sensors.as_ref();
        let parts = |value: f64| (value * SENSOR_PARTS).max(0.0) as u64;
        let (now, limit) = match series {
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
        // If no process ever reported memory, the chart is empty instead of a line at 0.
        let is_memory = MEMORY.contains(&series);
        let is_unknown = is_memory && total.is_none() && samples.iter().all(|it| it.max_bytes == 0);
        let samples = if is_unknown { &[] } else { samples };
        let highest = samples[first.min(samples.len())..].iter().map(|it| it.max_bytes).max();
        let highest = highest.max(now).unwrap_or(0).max(1);
        let top = match limit.filter(|&limit| limit > 0 && !self.ui.scaled) {
            Some(limit) => limit.max(if is_memory { 0 } else { highest }),
            None if is_memory || self.ui.scaled => highest,
            None => round_up(highest),
        };
        SeriesChart {
            series,
            samples,
            now: now.map_or_else(|| DASH.to_owned(), |value| format_value(series, value)),
            share: total.and_then(|it| share(it.used_bytes, limit)),
            top,
            style: canvas.theme.series(series),
        }
    }
}

/// A value of a series, with its unit.
pub(super) fn format_value(series: Series, value: u64) -> String {
    let reading = |unit: &str| {
        let value = value as f64 / SENSOR_PARTS;
        let decimals = usize::from(value < 10.0 && value.fract() != 0.0);
        format!("{value:.decimals$} {unit}")
    };
    match series {
        Series::Dram | Series::L1 => size(value),
        Series::Temperature => reading("°C"),
        Series::Power => reading("W"),
        Series::Clock => reading("MHz"),
    }
}

/// The next round number: 1, 2 or 5 and zeros.
fn round_up(value: u64) -> u64 {
    let mut step = 1u64;
    while step.saturating_mul(10) < value {
        step = step.saturating_mul(10);
    }
    [1, 2, 5, 10].map(|it| step.saturating_mul(it)).into_iter().find(|&it| it >= value).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_end_at_round_numbers() {
        for (value, top) in
            [(1, 1), (3, 5), (1_000_000, 1_000_000), (1_000_001, 2_000_000), (51_500, 100_000)]
        {
            assert_eq!(round_up(value), top);
        }
        assert_eq!(round_up(u64::MAX), u64::MAX);
        assert_eq!(format_value(Series::Temperature, 51_500), "52 °C");
        assert_eq!(format_value(Series::Clock, 1_000_000), "1000 MHz");
        assert_eq!(format_value(Series::Power, 2_500), "2.5 W");
    }
}
