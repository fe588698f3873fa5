//! Charts: a figure over time, the newest at the right. Each column has the lowest and the highest of its stretch of time,
//! so that no peak is lost, and stays empty where nobody looked.

use crate::canvas::Canvas;
use jiff::Timestamp;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ttmem_core::snapshot::Sample;

/// One figure over time.
pub(crate) struct Line<'a> {
    pub(crate) samples: &'a [Sample],
    /// What is at the top.
    pub(crate) top: u64,
    pub(crate) style: Style,
    /// What it is drawn with where there is nothing but ASCII.
    pub(crate) mark: char,
}

/// The stretch of time that is shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) end: Timestamp,
    pub(crate) seconds: u64,
}

/// A sample counts as what was so until the next one, unless that is later than this many times the usual: then nobody
/// looked in between.
const LOOKED_AWAY: i64 = 15_000;

impl Span {
    /// The lowest and highest value of each of `columns` equal stretches, oldest first. The borders lie at round times, so
    /// that a column does not change any more once it is full.
    fn columns(self, samples: &[Sample], columns: usize) -> Vec<Option<(u64, u64)>> {
        let mut found = vec![None; columns];
        if columns == 0 {
            return found;
        }
        let step = ((self.seconds * 1000) as i64 / columns as i64).max(1);
        let newest = self.end.as_millisecond().div_euclid(step);
        let at = |time: Timestamp| {
            let back = newest - time.as_millisecond().div_euclid(step);
            usize::try_from(columns as i64 - 1 - back).ok()
        };
        let oldest = self.end.as_millisecond() - step * columns as i64;
        // One more, for what was so at the beginning.
        let first = samples.partition_point(|it| it.at.as_millisecond() < oldest).saturating_sub(1);
        let mut widen = |column: usize, low: u64, high: u64| {
            if let Some(found) = found.get_mut(column) {
                let (l, h) = found.unwrap_or((low, high));
                *found = Some((l.min(low), h.max(high)));
            }
        };
        for (n, sample) in samples.iter().enumerate().skip(first) {
            let next = samples.get(n + 1).map_or(self.end, |next| next.at);
            let until = next
                .as_millisecond()
                .min(sample.at.as_millisecond().saturating_add(LOOKED_AWAY.max(2 * step)));
            let until = Timestamp::from_millisecond(until).unwrap_or(next);
            let (from, to) = (at(sample.at), at(until));
            if let Some(from) = from {
                widen(from, sample.min_bytes, sample.max_bytes);
            }
            let Some(to) = to.filter(|_| sample.at <= self.end) else { continue };
            for column in from.map_or(0, |from| from + 1)..=to.min(columns - 1) {
                widen(column, sample.mean_bytes, sample.mean_bytes);
            }
        }
        found
    }
}

/// Dots of a braille character, by column and row.
const DOTS: [[u32; 4]; 2] = [[0x01, 0x02, 0x04, 0x40], [0x08, 0x10, 0x20, 0x80]];

/// Draws lines over each other, the last one on top.
pub(crate) fn draw(canvas: &mut Canvas, area: Rect, span: Span, lines: &[Line]) {
    if area.width == 0 || area.height == 0 {
        return;
    }
    if canvas.ascii {
        return draw_plain(canvas, area, span, lines);
    }
    let (wide, high) = (usize::from(area.width) * 2, usize::from(area.height) * 4);
    let mut dots: Vec<(u32, Style)> =
        vec![(0, Style::new()); usize::from(area.width) * usize::from(area.height)];
    for line in lines {
        for_each_run(line, span, wide, high, |x, low, high_row| {
            for row in low..=high_row {
                let y = high - 1 - row;
                let cell = &mut dots[y / 4 * usize::from(area.width) + x / 2];
                cell.0 |= DOTS[x % 2][y % 4];
                cell.1 = line.style;
            }
        });
    }
    for (n, (bits, style)) in dots.into_iter().enumerate() {
        if let Some(c) = char::from_u32(0x2800 + bits).filter(|_| bits > 0) {
            let (x, y) = (n % usize::from(area.width), n / usize::from(area.width));
            canvas.put(area, x as u16, y as u16, c, style);
        }
    }
}

fn draw_plain(canvas: &mut Canvas, area: Rect, span: Span, lines: &[Line]) {
    let (wide, high) = (usize::from(area.width), usize::from(area.height));
    for line in lines {
        for_each_run(line, span, wide, high, |x, low, high_row| {
            for row in low..=high_row {
                canvas.put(area, x as u16, (high - 1 - row) as u16, line.mark, line.style);
            }
        });
    }
}

/// The same in one line: the highest of each column, in eighths.
pub(crate) fn spark(canvas: &mut Canvas, area: Rect, span: Span, line: &Line) {
    const EIGHTHS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    const PLAIN: [char; 8] = ['_', '_', '.', '-', '=', '+', '*', '#'];
    let glyphs = if canvas.ascii { PLAIN } else { EIGHTHS };
    for (x, column) in span.columns(line.samples, usize::from(area.width)).into_iter().enumerate() {
        if let Some((_, high)) = column {
            let share = high as f64 / line.top.max(1) as f64;
            let step = ((share * 8.0).ceil() as usize).clamp(1, 8) - 1;
            canvas.put(area, x as u16, 0, glyphs[step], line.style);
        }
    }
}

/// Tells for each column which rows it fills, from below: those of its own values, joined to the column before.
fn for_each_run(line: &Line, span: Span, wide: usize, high: usize, mut run: impl FnMut(usize, usize, usize)) {
    let row = |bytes: u64| {
        let share = bytes as f64 / line.top.max(1) as f64;
        ((share * (high - 1) as f64).round() as usize).min(high - 1)
    };
    let mut before: Option<(usize, usize)> = None;
    for (x, column) in span.columns(line.samples, wide).into_iter().enumerate() {
        let rows = column.map(|(low, high)| (row(low), row(high)));
        if let Some((low, high)) = rows {
            // Up to the next row of the column before, so that steps are lines and not dots.
            let (from, to) = match before {
                Some((_, top)) if top < low => (top + 1, high),
                Some((bottom, _)) if bottom > high => (low, bottom - 1),
                _ => (low, high),
            };
            run(x, from, to);
        }
        before = rows;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(ms: i64, bytes: u64) -> Sample {
        let at = Timestamp::from_millisecond(ms).unwrap();
        Sample { at, min_bytes: bytes, mean_bytes: bytes, max_bytes: bytes }
    }

    fn span(end_ms: i64, seconds: u64) -> Span {
        Span { end: Timestamp::from_millisecond(end_ms).unwrap(), seconds }
    }

    #[test]
    fn columns_hold_extremes_and_what_stays_so() {
        let samples = [sample(1000, 5), sample(2100, 50), sample(2200, 1), sample(2900, 7)];
        let found = span(5999, 6).columns(&samples, 6);
        assert_eq!(found, [None, Some((5, 5)), Some((1, 50)), Some((7, 7)), Some((7, 7)), Some((7, 7))]);
    }

    #[test]
    fn nothing_is_drawn_where_nobody_looked() {
        let samples = [sample(1000, 5), sample(50_000, 6)];
        let found = span(59_999, 60).columns(&samples, 60);
        assert_eq!(found[1], Some((5, 5)));
        assert_eq!((found[16], found[18], found[49], found[50]), (Some((5, 5)), None, None, Some((6, 6))));
    }

    #[test]
    fn a_full_column_stays_as_it_is_while_time_goes_on() {
        let samples: Vec<Sample> = (0..100).map(|n| sample(n * 500, n as u64)).collect();
        let early = span(40_100, 20).columns(&samples[..81], 20);
        let later = span(40_900, 20).columns(&samples[..82], 20);
        assert_eq!(early[..19], later[..19]);
        let next = span(41_000, 20).columns(&samples[..83], 20);
        assert_eq!(early[1..19], next[..18]);
    }

    #[test]
    fn odd_times_draw_nothing_and_break_nothing() {
        let samples = [sample(i64::from(i32::MAX), 5), sample(10, 3)];
        assert_eq!(span(100, 60).columns(&samples, 0), []);
        let _ = span(100, 60).columns(&samples, 7);
        let _ = Span { end: Timestamp::MAX, seconds: 86_400 }.columns(&samples, 7);
        let _ = Span { end: Timestamp::MIN, seconds: 86_400 }.columns(&samples, 7);
    }
}
