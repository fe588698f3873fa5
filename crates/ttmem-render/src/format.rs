//! Formats of numbers, and of untrusted text such as the names and commands of other users.

use jiff::Timestamp;
use ttmem_core::is_unprintable;
pub use ttmem_core::words::{ranges, size};
use unicode_width::UnicodeWidthChar;

/// An unknown value on pages and for scripts.
pub const UNKNOWN: &str = "N/A";
/// An unknown value on screens.
pub const DASH: &str = "—";

/// Bytes in a KiB.
pub const KIB: u64 = 1 << 10;
/// Bytes in a MiB.
pub const MIB: u64 = 1 << 20;
/// Bytes in a GiB.
pub const GIB: u64 = 1 << 30;

/// Bytes in multiples of `unit`. A figure that would round to zero is shown as `<0.01`.
pub fn scaled_bytes(bytes: u64, unit: u64, decimals: usize) -> String {
    let value = bytes as f64 / unit as f64;
    let least = 0.1f64.powi(decimals as i32);
    if bytes > 0 && value < least / 2.0 {
        return format!("<{least:.decimals$}");
    }
    format!("{value:.decimals$}")
}

/// Bytes in multiples of `unit`, or a dash if they are unknown.
pub fn scaled_bytes_or_dash(value: Option<u64>, unit: u64, decimals: usize) -> String {
    value.map_or_else(|| DASH.to_owned(), |value| scaled_bytes(value, unit, decimals))
}

/// A size in at most seven characters, as `free -h` prints it: `3.2Gi`.
pub fn short_size(bytes: u64) -> String {
    size(bytes).replace(' ', "").trim_end_matches('B').to_owned() + if bytes < KIB { "B" } else { "" }
}

/// Puts `~` before a figure that is an estimate.
pub fn mark_estimate(is_estimate: bool, figure: String) -> String {
    if is_estimate { format!("~{figure}") } else { figure }
}

/// A program id in five characters: the last digits of a long one, which distinguish it.
pub fn short_program_id(id: u32) -> String {
    if id > 99_999 { format!("…{:04}", id % 10_000) } else { id.to_string() }
}

/// The share of `total` that is used; `None` if the total is unknown or zero.
pub fn share(used: u64, total: Option<u64>) -> Option<f64> {
    total.filter(|&total| total > 0).map(|total| used as f64 / total as f64)
}

/// A share as `41.5 %`, in six characters. A share above 1 is an impossible figure, which a finding reports.
pub fn percent(share: Option<f64>) -> String {
    match share {
        None => DASH.to_owned(),
        Some(share) if share > 1.0 => ">100 %".to_owned(),
        Some(share) => format!("{:.1} %", share * 100.0),
    }
}

/// A share as `42%`, in at most five characters.
pub fn short_percent(share: f64) -> String {
    match share {
        share if share > 1.0 => ">100%".to_owned(),
        share if share > 0.0 && share < 0.005 => "<1%".to_owned(),
        share => format!("{:.0}%", share * 100.0),
    }
}

/// A duration in about four characters: `0.4s`, `12s`, `3m`, `5h`, `2d`.
pub fn age(seconds: f64) -> String {
    match seconds {
        s if s < 9.95 => format!("{:.1}s", s.max(0.0)),
        s if s < 99.5 => format!("{s:.0}s"),
        s if s < 5970.0 => format!("{:.0}m", s / 60.0),
        s if s < 172_800.0 => format!("{:.0}h", s / 3600.0),
        s => format!("{:.0}d", (s / 86_400.0).min(99_999.0)),
    }
}

/// The time from `then` to `now`.
pub fn time_since(then: Timestamp, now: Timestamp) -> String {
    age(now.duration_since(then).as_secs_f64())
}

/// A number in at most five characters: `12345`, `1.2M`.
pub fn short_count(n: u64) -> String {
    match n {
        0..=99_999 => n.to_string(),
        100_000..=999_999 => format!("{}k", n / 1000),
        1_000_000..=999_949_999 => format!("{:.1}M", n as f64 / 1e6),
        _ => format!("{:.0}G", n as f64 / 1e9),
    }
}

/// A rate with its unit, as `1.5 MiB/s`.
pub fn rate(bytes_per_second: Option<f64>) -> String {
    bytes_per_second.map_or_else(|| DASH.to_owned(), |rate| format!("{}/s", size(rate.max(0.0) as u64)))
}

/// A number with a noun: `1 core`, `2 cores`.
pub fn plural(n: u64, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

/// How full a memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Below 75 %.
    Low,
    /// From 75 %: a warning.
    High,
    /// From 90 %: critical.
    Full,
}

impl Level {
    /// The level of a share.
    pub fn of(share: f64) -> Self {
        match share {
            s if s >= 0.9 => Self::Full,
            s if s >= 0.75 => Self::High,
            _ => Self::Low,
        }
    }
}

/// A rectangle of cores: `3,0`, or from one corner to the other: `0,0-7,6`.
pub fn core_range([x, y, to_x, to_y]: [u8; 4]) -> String {
    if (x, y) == (to_x, to_y) { format!("{x},{y}") } else { format!("{x},{y}-{to_x},{to_y}") }
}

/// Number of cores in rectangles.
pub fn core_count(rectangles: &[[u8; 4]]) -> u64 {
    let side = |from: u8, to: u8| u64::from(to.saturating_sub(from)) + 1;
    rectangles.iter().map(|[x, y, to_x, to_y]| side(*x, *to_x) * side(*y, *to_y)).sum()
}

/// Makes a character of untrusted text safe for a terminal and one column wide: `?` replaces one that is unprintable, without
/// width, or of two columns.
pub fn sanitize_char(c: char) -> char {
    if c.width() == Some(1) && !is_unprintable(c) { c } else { '?' }
}

/// Makes untrusted text safe for a terminal, and one line.
pub fn sanitize(text: &str) -> String {
    let has_width = |c: char| c.width().is_some_and(|width| width > 0);
    text.chars().map(|c| if has_width(c) && !is_unprintable(c) { c } else { '?' }).collect()
}

/// Makes untrusted text safe for a terminal and cuts it to `width` columns, with an ellipsis.
pub fn truncate(text: &str, width: usize) -> String {
    let clean = text.chars().map(sanitize_char);
    if text.chars().nth(width).is_none() {
        clean.collect()
    } else {
        clean.take(width.saturating_sub(1)).chain(['…']).collect()
    }
}

/// Breaks text into lines of up to `width` characters. A longer word has a line of its own.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("at least one");
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= width {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

/// The replacement of a character in ASCII.
pub fn to_ascii(c: char) -> char {
    match c {
        '│' | '┃' | '▏' => '|',
        '─' | '—' | '–' | '−' => '-',
        '┌' | '┐' | '└' | '┘' | '├' | '┤' | '┬' | '┴' | '┼' | '╭' | '╮' | '╰' | '╯' => {
            '+'
        }
        '━' => '=',
        '█' => '#',
        '▓' => '%',
        '▒' => ':',
        '░' | '·' | '┄' => '.',
        '…' | '±' => '~',
        '▲' | '▴' | '↑' => '^',
        '▼' | '▾' | '↓' => 'v',
        '▶' | '▸' | '→' | '►' | '╸' => '>',
        '◂' | '←' | '◄' => '<',
        '●' | '◆' => '*',
        '×' => 'x',
        '⚠' => '!',
        // The unit after it is clear enough.
        '°' => ' ',
        c if c.is_ascii() => c,
        _ => '?',
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_zero_and_unknown_figures_differ() {
        assert_eq!(scaled_bytes(0, GIB, 2), "0.00");
        assert_eq!(scaled_bytes(2048, GIB, 2), "<0.01");
        assert_eq!(scaled_bytes(12 * GIB, GIB, 2), "12.00");
        assert_eq!(scaled_bytes_or_dash(None, GIB, 2), "—");
        assert_eq!(scaled_bytes(u64::MAX, KIB, 1), "18014398509481984.0");
        assert_eq!(percent(None), "—");
        assert_eq!(percent(Some(0.4151)), "41.5 %");
        assert_eq!(percent(Some(1.2)), ">100 %");
        let short = [0.0, 0.004, 0.4151, 1.0, 1.2].map(short_percent);
        assert_eq!(short, ["0%", "<1%", "42%", "100%", ">100%"]);
        assert_eq!(share(1, Some(0)), None);
    }

    #[test]
    fn short_sizes_keep_their_unit() {
        assert_eq!(short_size(0), "0B");
        assert_eq!(short_size(1023), "1023B");
        assert_eq!(short_size(3 * GIB + GIB / 5), "3.2Gi");
        assert_eq!(short_size(1023 * MIB), "1023.0Mi");
    }

    #[test]
    fn long_text_is_wrapped_and_never_cut() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("a/very/long/path is", 6), ["a/very/long/path", "is"]);
        assert_eq!(wrap("", 6), [""]);
    }

    #[test]
    fn cut_text_is_sanitized() {
        assert_eq!(truncate("evil\x1b[2Jname", 40), "evil?[2Jname");
        assert_eq!(truncate("python", 4), "pyt…");
        assert_eq!(truncate("a\u{202e}b\u{200b}c漢", 40), "a?b?c?");
    }

    #[test]
    fn whole_text_is_sanitized() {
        assert_eq!(sanitize("a\x1b]0;x\x07b\0c\nd\u{9b}e\u{202e}f"), "a?]0;x?b?c?d?e?f");
        assert_eq!(sanitize("Größe 漢"), "Größe 漢");
        let all = (0..=0x10_ffff).filter_map(char::from_u32).collect::<String>();
        assert!(!sanitize(&all).chars().any(is_unprintable));
        // These have a width, and are no letters: a soft hyphen, an Arabic number sign, and a line separator.
        assert_eq!(sanitize("a\u{ad}b\u{600}c\u{2028}d"), "a?b?c?d");
    }

    #[test]
    fn dashes_have_ascii_replacements() {
        assert_eq!("—–−±".chars().map(to_ascii).collect::<String>(), "---~");
    }

    #[test]
    fn core_ranges_are_short_and_counted() {
        assert_eq!(core_range([3, 0, 3, 0]), "3,0");
        assert_eq!(core_range([0, 0, 7, 6]), "0,0-7,6");
        assert_eq!(core_count(&[[3, 0, 3, 0], [0, 0, 7, 6]]), 57);
    }

    #[test]
    fn ages_and_counts_stay_narrow() {
        for (seconds, text) in [
            (0.04, "0.0s"),
            (9.94, "9.9s"),
            (9.96, "10s"),
            (99.0, "99s"),
            (100.0, "2m"),
            (7200.0, "2h"),
            (1e9, "11574d"),
        ] {
            assert_eq!(age(seconds), text);
        }
        assert_eq!(age(f64::MAX), "99999d");
        assert_eq!(age(-5.0), "0.0s");
        for (n, text) in
            [(0, "0"), (99_999, "99999"), (123_456, "123k"), (1_234_567, "1.2M"), (7_000_000_000, "7G")]
        {
            assert_eq!(short_count(n), text);
        }
    }
}
