//! The layout of charts: devices in a grid, and the charts of a device in columns.

use super::{MEMORY, SENSORS};
use crate::data::Series;
use ratatui::layout::Rect;

/// The smallest frame of a device's charts. If frames do not fit, each device has one line.
const MIN_FRAME: (u16, u16) = (26, 7);
/// The smallest chart: its legend, and one row.
pub(super) const MIN_CHART: (u16, u16) = (20, 2);
/// The smallest chart with a frame and labels of its own.
pub(super) const MIN_FRAMED_CHART: (u16, u16) = (32, 5);

/// Arrangements of all charts of a device. An arrangement is a list of columns.
pub(super) const ALL_CHARTS: [&[&[Series]]; 3] = [
    &[&Series::ALL],
    SIDE_BY_SIDE[0],
    &[&[Series::Dram], &[Series::L1], &[Series::Temperature], &[Series::Power], &[Series::Clock]],
];
/// The arrangement with memory on the left and sensors on the right.
pub(super) const SIDE_BY_SIDE: [&[&[Series]]; 1] = [&[&MEMORY, &SENSORS]];
/// Arrangements of memory alone.
pub(super) const MEMORY_CHARTS: [&[&[Series]]; 2] = [&[&MEMORY], &[&[Series::Dram], &[Series::L1]]];
/// Arrangements of sensors alone.
pub(super) const SENSOR_CHARTS: [&[&[Series]]; 2] =
    [&[&SENSORS], &[&[Series::Temperature], &[Series::Power], &[Series::Clock]]];

/// Columns and rows of a grid of devices, with large cells and few empty ones; `None` if cells would be too small.
pub(super) fn device_grid(count: u16, area: Rect) -> Option<(u16, u16)> {
    let rate = |columns: u16| {
        let rows = count.div_ceil(columns);
        let (width, height) = (area.width / columns, area.height / rows);
        (width >= MIN_FRAME.0 && height >= MIN_FRAME.1).then(|| {
            let empty_cells = columns * rows - count;
            // Best are cells four times as wide as high: a character is twice as high as it is wide.
            let shape = (f64::from(width) / f64::from(height) / 4.0).ln().abs();
            (shape + f64::from(empty_cells) * 0.8, columns, rows)
        })
    };
    let grids = (1..=count.max(1)).filter_map(rate);
    grids.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, columns, rows)| (columns, rows))
}

/// The charts of the arrangement with the best shapes, each with its area; `None` if charts would be smaller than `min` in
/// all arrangements.
pub(super) fn best_arrangement(
    arrangements: &[&[&[Series]]],
    area: Rect,
    min: (u16, u16),
) -> Option<Vec<(Series, Rect)>> {
    let rate = |columns: &&[&[Series]]| {
        let charts = arrange(columns, area);
        let fits = charts.iter().all(|(_, it)| it.width >= min.0 && it.height >= min.1);
        let shape = |it: &Rect| (f64::from(it.width) / f64::from(it.height.max(1)) / 5.0).ln().abs();
        let worst = charts.iter().map(|(_, it)| shape(it)).fold(0.0, f64::max);
        fits.then_some((worst, charts))
    };
    arrangements.iter().filter_map(rate).min_by(|a, b| a.0.total_cmp(&b.0)).map(|it| it.1)
}

/// The charts of an arrangement, each with its area.
pub(super) fn arrange(columns: &[&[Series]], area: Rect) -> Vec<(Series, Rect)> {
    let count = columns.len() as u16;
    let mut charts = Vec::new();
    for (n, column) in columns.iter().enumerate() {
        let n = n as u16;
        // If memory is beside sensors, it gets three fifths of the width.
        let (left, right) = match (columns, n) {
            ([a, b], 0) if a.len() != b.len() => (0, area.width * 3 / 5),
            ([a, b], 1) if a.len() != b.len() => (area.width * 3 / 5, area.width),
            _ => (edge(n, count, area.width), edge(n + 1, count, area.width)),
        };
        for (row, &series) in column.iter().enumerate() {
            let (row, rows) = (row as u16, column.len() as u16);
            let (top, bottom) = (edge(row, rows, area.height), edge(row + 1, rows, area.height));
            let cell = Rect { x: area.x + left, y: area.y + top, width: right - left, height: bottom - top };
            charts.push((series, cell));
        }
    }
    charts
}

/// The start of part `n` of `count` parts of a length. The remainder of the division is distributed.
pub(super) fn edge(n: u16, count: u16, length: u16) -> u16 {
    (u32::from(n) * u32::from(length) / u32::from(count)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grids_fill_the_screen() {
        let area = |width, height| Rect::new(0, 0, width, height);
        assert_eq!(device_grid(1, area(80, 20)), Some((1, 1)));
        let (columns, rows) = device_grid(8, area(120, 36)).unwrap();
        assert_eq!(columns * rows, 8);
        assert_eq!(device_grid(32, area(80, 20)), None, "a line each");
        let (columns, rows) = device_grid(32, area(200, 56)).unwrap();
        assert_eq!(columns * rows, 32);
        for count in 1..=64 {
            for (width, height) in [(80, 20), (120, 36), (200, 56), (300, 98)] {
                if let Some((columns, rows)) = device_grid(count, area(width, height)) {
                    assert!(
                        columns * rows >= count
                            && width / columns >= MIN_FRAME.0
                            && height / rows >= MIN_FRAME.1
                    );
                }
            }
        }
    }

    #[test]
    fn charts_fill_the_area_of_their_device() {
        for (width, height) in [(24, 5), (28, 16), (48, 5), (98, 30), (200, 50)] {
            let area = Rect::new(3, 2, width, height);
            for arrangements in [&ALL_CHARTS[..], &MEMORY_CHARTS, &SENSOR_CHARTS] {
                let Some(charts) = best_arrangement(arrangements, area, MIN_CHART) else { continue };
                let covered: u32 = charts.iter().map(|(_, it)| it.area()).sum();
                assert_eq!(covered, area.area(), "{} charts in {width} x {height}", charts.len());
                assert!(charts.iter().all(|(_, it)| it.width >= MIN_CHART.0 && it.height >= MIN_CHART.1));
            }
        }
        let smallest = Rect::new(0, 0, MIN_FRAME.0 - 2, MIN_FRAME.1 - 2);
        assert_eq!(best_arrangement(&ALL_CHARTS, smallest, MIN_CHART), None);
        assert!(best_arrangement(&MEMORY_CHARTS, smallest, MIN_CHART).is_some());
    }
}
