//! Plots of a figure over time, the newest at the right, filled from zero. Each column shows the highest value of its
//! period, so that no peak is lost, and is empty where there is no sample.

use crate::canvas::Canvas;
use jiff::Timestamp;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ttmem_core::snapshot::Sample;

/// A figure over time, and how to plot it.
pub(crate) struct Plot<'a> {
    pub(crate) samples: &'a [Sample],
    /// The value at the top.
    pub(crate) top: u64,
    pub(crate) style: Style,
    pub(crate) pattern: Pattern,
}

/// What distinguishes a plot from others without colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    /// The character of the upper edge in ASCII.
    pub(crate) edge: char,
    /// The dots of a filled braille character.
    pub(crate) fill: u32,
}

/// All dots of a braille character.
const SOLID: u32 = 0xff;

impl Pattern {
    /// The dots of a filled character: all if colours distinguish plots.
    fn dots(self, canvas: &Canvas) -> u32 {
        if canvas.theme.coloured { SOLID } else { self.fill }
    }

    /// The character of the plot in a legend; `None` if colours distinguish plots.
    pub(crate) fn symbol(self, canvas: &Canvas) -> Option<char> {
        match (canvas.ascii, canvas.theme.coloured) {
            (true, _) => Some(self.edge),
            (false, false) => braille(self.fill),
            (false, true) => None,
        }
    }
}

/// The braille character with these dots.
fn braille(dots: u32) -> Option<char> {
    char::from_u32(0x2800 + dots)
}

/// The time span of a plot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) end: Timestamp,
    pub(crate) seconds: u64,
}

/// A sample counts until the next one, but no longer than this.
const SAMPLE_VALID_MS: i64 = 15_000;

impl Span {
    /// The oldest time of the span.
    pub(crate) fn begin(self) -> Timestamp {
        let ago = jiff::SignedDuration::from_secs(self.seconds as i64);
        self.end.checked_sub(ago).unwrap_or(Timestamp::MIN)
    }

    /// The lowest and highest value of each of `columns` equal periods, oldest first. Periods begin at round times, so
    /// that a column does not change any more once it is complete.
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
        // One sample more, for the value at the start.
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
                .min(sample.at.as_millisecond().saturating_add(SAMPLE_VALID_MS.max(2 * step)));
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

/// The character below the upper edge in ASCII.
const FILL: char = ':';

/// Draws an area plot.
pub(crate) fn draw_plot(canvas: &mut Canvas, area: Rect, span: Span, plot: &Plot) {
    if area.width == 0 || area.height == 0 {
        return;
    }
    let (wide, high) = (usize::from(area.width), usize::from(area.height));
    let per_cell = if canvas.ascii { (1, 1) } else { (2, 4) };
    let rows = high * per_cell.1;
    let row = |bytes: u64| {
        let share = bytes as f64 / plot.top.max(1) as f64;
        ((share * (rows - 1) as f64).round() as usize).min(rows - 1)
    };
    let columns = span.columns(plot.samples, wide * per_cell.0);
    let dots = plot.pattern.dots(canvas);
    for (x, cell) in columns.chunks(per_cell.0).enumerate() {
        let tops: Vec<Option<(usize, usize)>> =
            cell.iter().map(|it| it.map(|(low, high)| (row(low), row(high)))).collect();
        for y in 0..high {
            // Rows are counted from the bottom.
            let base = (high - 1 - y) * per_cell.1;
            let glyph = if canvas.ascii {
                let Some((low, top)) = tops.first().copied().flatten().filter(|(_, top)| base <= *top) else {
                    continue;
                };
                if base >= low || base == top { plot.pattern.edge } else { FILL }
            } else {
                let mut bits = 0;
                for (column, (_, top)) in tops.iter().enumerate().filter_map(|(n, it)| Some((n, (*it)?))) {
                    let filled = (top + 1).saturating_sub(base).min(4);
                    bits |= dots & (4 - filled..4).fold(0, |bits, dot| bits | DOTS[column][dot]);
                    // The upper edge is solid in every pattern.
                    bits |=
                        top.checked_sub(base).filter(|&row| row < 4).map_or(0, |row| DOTS[column][3 - row]);
                }
                let Some(glyph) = braille(bits).filter(|_| bits > 0) else { continue };
                glyph
            };
            canvas.put(area, x as u16, y as u16, glyph, plot.style);
        }
    }
}

/// Draws a plot of one row: the highest value of each column, in eighths.
pub(crate) fn draw_sparkline(canvas: &mut Canvas, area: Rect, span: Span, plot: &Plot) {
    const EIGHTHS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    const PLAIN: [char; 8] = ['_', '_', '.', '-', '=', '+', '*', '#'];
    let glyphs = if canvas.ascii { PLAIN } else { EIGHTHS };
    for (x, column) in span.columns(plot.samples, usize::from(area.width)).into_iter().enumerate() {
        if let Some((_, high)) = column {
            let share = high as f64 / plot.top.max(1) as f64;
            let step = ((share * 8.0).ceil() as usize).clamp(1, 8) - 1;
            canvas.put(area, x as u16, 0, glyphs[step], plot.style);
        }
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
    fn columns_hold_extremes_and_repeat_the_last_value() {
        let samples = [sample(1000, 5), sample(2100, 50), sample(2200, 1), sample(2900, 7)];
        let found = span(5999, 6).columns(&samples, 6);
        assert_eq!(found, [None, Some((5, 5)), Some((1, 50)), Some((7, 7)), Some((7, 7)), Some((7, 7))]);
    }

    #[test]
    fn plots_are_filled_from_zero() {
        use crate::theme::{ColourDepth, Theme, ThemeName};
        use ratatui::buffer::Buffer;
        let samples = [sample(0, 0), sample(1000, 4), sample(2000, 8)];
        let drawn = |name: ThemeName, ascii: bool, width: u16| {
            let area = Rect::new(0, 0, width, 2);
            let (mut buffer, theme) = (Buffer::empty(area), Theme::new(name, ColourDepth::Full));
            let pattern = Pattern { edge: '#', fill: 0x47 };
            let plot = Plot { samples: &samples, top: 8, style: Style::new(), pattern };
            draw_plot(&mut Canvas::new(&mut buffer, &theme, ascii), area, span(3999, 4), &plot);
            let row = |y| (0..width).map(|x| buffer[(x, y)].symbol().to_owned()).collect::<String>();
            [row(0), row(1)]
        };
        let (dark, mono) = (ThemeName::Dark, ThemeName::Mono);
        assert_eq!(drawn(dark, true, 4), [" ###", "##::"], "the upper row begins at a half");
        assert_eq!(drawn(dark, false, 2), ["⢀⣿", "⣸⣿"]);
        assert_eq!(drawn(mono, false, 2), ["⢀⡏", "⡀⡇"], "a pattern replaces the colour");
    }

    #[test]
    fn nothing_is_drawn_without_samples() {
        let samples = [sample(1000, 5), sample(50_000, 6)];
        let found = span(59_999, 60).columns(&samples, 60);
        assert_eq!(found[1], Some((5, 5)));
        assert_eq!((found[16], found[18], found[49], found[50]), (Some((5, 5)), None, None, Some((6, 6))));
    }

    #[test]
    fn complete_columns_do_not_change() {
        let samples: Vec<Sample> = (0..100).map(|n| sample(n * 500, n as u64)).collect();
        let early = span(40_100, 20).columns(&samples[..81], 20);
        let later = span(40_900, 20).columns(&samples[..82], 20);
        assert_eq!(early[..19], later[..19]);
        let next = span(41_000, 20).columns(&samples[..83], 20);
        assert_eq!(early[1..19], next[..18]);
    }

    #[test]
    fn times_out_of_order_are_harmless() {
        let samples = [sample(i64::from(i32::MAX), 5), sample(10, 3)];
        assert_eq!(span(100, 60).columns(&samples, 0), []);
        let _ = span(100, 60).columns(&samples, 7);
        let _ = Span { end: Timestamp::MAX, seconds: 86_400 }.columns(&samples, 7);
        let _ = Span { end: Timestamp::MIN, seconds: 86_400 }.columns(&samples, 7);
    }
}
