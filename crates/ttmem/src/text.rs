//! The style of pages: width, bars, colours, characters.

use std::io::IsTerminal;
use ttmem_core::snapshot::{Severity, Tracking};
use ttmem_render::figure::{Level, ascii};
pub(crate) use ttmem_render::figure::{NOT_KNOWN as UNKNOWN, cut, plain, ranges, size, wrapped};
use ttmem_render::{Part, Tone};

/// The width of a page that goes into a pipe.
const PIPED: usize = 100;
/// No page is made narrower than this: a narrower terminal wraps its lines.
const NARROWEST: usize = 60;

/// Readings above this share of their limit are yellow.
const NEAR: f64 = 0.9;

const RED: &str = "31";
const GREEN: &str = "32";
const YELLOW: &str = "33";
const CYAN: &str = "36";
const FAINT: &str = "2";
const BOLD: &str = "1";

/// How to draw.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    pub(crate) ascii: bool,
    pub(crate) colour: bool,
    pub(crate) width: usize,
    /// Lines that a terminal shows at once.
    pub(crate) height: Option<usize>,
}

impl Style {
    /// Colours only on a terminal, and only without `NO_COLOR`.
    pub(crate) fn new(ascii: bool) -> Self {
        let set = |name: &str| std::env::var(name).ok().filter(|it| !it.is_empty());
        let out = std::io::stdout();
        let terminal = rustix::termios::tcgetwinsize(&out).ok().filter(|_| out.is_terminal());
        let number = |name: &str| set(name).and_then(|it| it.parse().ok()).filter(|&it: &usize| it > 0);
        let columns = terminal.map(|it| usize::from(it.ws_col)).filter(|&it| it > 0);
        Self {
            ascii,
            colour: out.is_terminal()
                && set("NO_COLOR").is_none()
                && set("TERM").is_none_or(|it| it != "dumb"),
            width: number("COLUMNS").or(columns).unwrap_or(PIPED).max(NARROWEST),
            height: terminal.map(|it| usize::from(it.ws_row)).filter(|&it| it > 0),
        }
    }

    /// A bar of `width` cells, in brackets.
    pub(crate) fn bar(self, used: u64, total: u64, width: usize) -> String {
        // Something of nothing is more than none.
        let share = if total == 0 { used.min(1) as f64 * f64::EPSILON } else { used as f64 / total as f64 };
        format!("[{}]", self.meter(Some(share), width))
    }

    /// A bar of `width` cells; blank if it is not known how full it is.
    pub(crate) fn meter(self, share: Option<f64>, width: usize) -> String {
        let Some(share) = share else { return " ".repeat(width) };
        let mut full = (share * width as f64).round().min(width as f64) as usize;
        if share > 0.0 {
            full = full.max(1);
        }
        let (on, off) = if self.ascii { ("#", "-") } else { ("█", "░") };
        let bar = format!("{}{}", on.repeat(full), off.repeat(width - full));
        self.paint(&bar, level(share))
    }

    pub(crate) fn paint(self, text: &str, colour: &str) -> String {
        if self.colour && !text.is_empty() { format!("\x1b[{colour}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// A part of a table.
    pub(crate) fn part(self, part: Part<'_>) -> String {
        match part {
            Part::Title(text) => self.paint(text, BOLD),
            Part::Meter(share, width) => self.meter(share, width),
            Part::Text(text, tone) => match colour(tone) {
                Some(colour) => self.paint(text, colour),
                None => text.to_owned(),
            },
        }
    }

    /// Replaces what ASCII lacks.
    pub(crate) fn finish(self, text: String) -> String {
        if !self.ascii {
            return text;
        }
        text.chars().map(ascii).collect()
    }
}

fn level(share: f64) -> &'static str {
    match Level::of(share) {
        Level::Full => RED,
        Level::High => YELLOW,
        Level::Low => GREEN,
    }
}

/// The colour of a severity.
pub(crate) fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => RED,
        Severity::Warning => YELLOW,
        Severity::Info => CYAN,
    }
}

fn colour(tone: Tone) -> Option<&'static str> {
    match tone {
        Tone::Faint => Some(FAINT),
        Tone::Good | Tone::Tracking(Tracking::Audited) => Some(GREEN),
        Tone::Warn | Tone::Tracking(Tracking::Untracked | Tracking::Partial) => Some(YELLOW),
        Tone::Bad | Tone::Tracking(Tracking::Drift) => Some(RED),
        Tone::Level(share) => Some(level(share)).filter(|_| Level::of(share) != Level::Low),
        Tone::Against(now, Some(limit)) if now >= limit => Some(RED),
        Tone::Against(now, Some(limit)) if now >= NEAR * limit => Some(YELLOW),
        Tone::Severity(it) => Some(severity(it)),
        Tone::Plain | Tone::Against(..) | Tone::Tracking(_) | Tone::Space(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_fill_with_use_and_show_the_least_bit() {
        let style = Style { ascii: true, colour: false, width: 100, height: None };
        assert_eq!(style.bar(0, 100, 10), "[----------]");
        assert_eq!(style.bar(1, 1000, 10), "[#---------]");
        assert_eq!(style.bar(50, 100, 10), "[#####-----]");
        assert_eq!(style.bar(500, 100, 10), "[##########]");
        assert_eq!(style.bar(5, 0, 10), "[#---------]");
        assert_eq!(style.meter(None, 4), "    ", "an unknown share is no empty bar");
    }
}
