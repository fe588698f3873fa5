//! Figures of fixed width. The unit is the column's and is said once, in its header; what is not known is a dash.

use jiff::Timestamp;
use ttmem_core::words::size;

/// What is not known.
pub(crate) const UNKNOWN: &str = "—";

pub(crate) const KIB: u64 = 1 << 10;
pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const GIB: u64 = 1 << 30;

/// `bytes` in `unit`s with so many places. What is there but too little to see is not shown as nothing.
pub(crate) fn bytes(bytes: u64, unit: u64, places: usize) -> String {
    let value = bytes as f64 / unit as f64;
    let least = 0.1f64.powi(places as i32);
    if bytes > 0 && value < least / 2.0 {
        return format!("<{least:.places$}");
    }
    format!("{value:.places$}")
}

/// The same, of what may not be known.
pub(crate) fn bytes_or(value: Option<u64>, unit: u64, places: usize) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), |value| bytes(value, unit, places))
}

/// The same, with a mark if it is an estimate.
pub(crate) fn about(is_estimate: bool, figure: String) -> String {
    if is_estimate { format!("~{figure}") } else { figure }
}

/// A program's number in five columns. Of long ones the end tells one from another.
pub(crate) fn program_number(id: u32) -> String {
    if id > 99_999 { format!("…{:04}", id % 10_000) } else { id.to_string() }
}

/// A reading with so many places.
pub(crate) fn reading(value: Option<f64>, places: usize) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), |value| format!("{value:.places$}"))
}

/// A share of something, if that has a size.
pub(crate) fn share(used: u64, total: Option<u64>) -> Option<f64> {
    total.filter(|&total| total > 0).map(|total| used as f64 / total as f64)
}

/// As `41.5 %`: six columns. More than all of it is no share of anything.
pub(crate) fn percent(share: Option<f64>) -> String {
    match share {
        None => UNKNOWN.to_owned(),
        Some(share) if share > 1.0 => ">100 %".to_owned(),
        Some(share) => format!("{:.1} %", share * 100.0),
    }
}

/// A stretch of time, in four columns or so: `0.4s`, `12s`, `3m`, `5h`, `2d`.
pub(crate) fn age(seconds: f64) -> String {
    match seconds {
        s if s < 9.95 => format!("{:.1}s", s.max(0.0)),
        s if s < 99.5 => format!("{s:.0}s"),
        s if s < 5970.0 => format!("{:.0}m", s / 60.0),
        s if s < 172_800.0 => format!("{:.0}h", s / 3600.0),
        s => format!("{:.0}d", (s / 86_400.0).min(99_999.0)),
    }
}

/// How long ago that was.
pub(crate) fn since(then: Timestamp, now: Timestamp) -> String {
    age(now.duration_since(then).as_secs_f64())
}

/// A number in at most five columns: `12345`, `1.2M`.
pub(crate) fn count(n: u64) -> String {
    match n {
        0..=99_999 => n.to_string(),
        100_000..=999_999 => format!("{}k", n / 1000),
        1_000_000..=999_949_999 => format!("{:.1}M", n as f64 / 1e6),
        _ => format!("{:.0}G", n as f64 / 1e9),
    }
}

/// A rate of bytes, in words: for details, where there is room for a unit.
pub(crate) fn rate(bytes_per_second: Option<f64>) -> String {
    bytes_per_second.map_or_else(|| UNKNOWN.to_owned(), |rate| format!("{}/s", size(rate.max(0.0) as u64)))
}

/// `1 core`, `2 cores`.
pub(crate) fn counted(n: u64, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_is_not_nothing_and_unknown_is_neither() {
        assert_eq!(bytes(0, GIB, 2), "0.00");
        assert_eq!(bytes(2048, GIB, 2), "<0.01");
        assert_eq!(bytes(12 * GIB, GIB, 2), "12.00");
        assert_eq!(bytes_or(None, GIB, 2), "—");
        assert_eq!(bytes(u64::MAX, KIB, 1), "18014398509481984.0");
        assert_eq!(percent(None), "—");
        assert_eq!(percent(Some(0.4151)), "41.5 %");
        assert_eq!(percent(Some(1.2)), ">100 %");
        assert_eq!(share(1, Some(0)), None);
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
            assert_eq!(count(n), text);
        }
    }
}
