//! The style of pages: width, bars, colours, characters.

use rustix::fd::AsFd;
use std::io::IsTerminal;
use ttmem_core::snapshot::{Severity, Tracking};
use ttmem_render::format::{Level, to_ascii};
pub(crate) use ttmem_render::format::{UNKNOWN, ranges, sanitize, size, truncate, wrap};
use ttmem_render::{Line, PageCell, Tone};

/// The width of a page that is written to a pipe.
const PIPE_WIDTH: usize = 100;
/// The smallest width of a page; a narrower terminal wraps lines.
const MIN_WIDTH: usize = 60;

/// Readings from this share of their limit are yellow.
const NEAR_LIMIT: f64 = 0.9;

const RED: &str = "31";
const GREEN: &str = "32";
const YELLOW: &str = "33";
const CYAN: &str = "36";
const FAINT: &str = "2";
const BOLD: &str = "1";

/// The style of a page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    pub(crate) ascii: bool,
    pub(crate) colour: bool,
    pub(crate) width: usize,
    /// The width of lists: in a pipe, names are not cut.
    pub(crate) list_width: usize,
    /// Number of lines of the terminal.
    pub(crate) height: Option<usize>,
}

impl Style {
    /// Creates the style of standard output. Colours are used on a terminal only, and without `NO_COLOR`.
    pub(crate) fn new(ascii: bool) -> Self {
        Self::of(&std::io::stdout(), ascii)
    }

    /// Creates the style of standard error.
    pub(crate) fn of_errors(ascii: bool) -> Self {
        Self::of(&std::io::stderr(), ascii)
    }

    fn of(out: &(impl IsTerminal + AsFd), ascii: bool) -> Self {
        let set = |name: &str| std::env::var(name).ok().filter(|it| !it.is_empty());
        let terminal = rustix::termios::tcgetwinsize(out).ok().filter(|_| out.is_terminal());
        let number = |name: &str| set(name).and_then(|it| it.parse().ok()).filter(|&it: &usize| it > 0);
        let columns = terminal.map(|it| usize::from(it.ws_col)).filter(|&it| it > 0);
        let width = number("COLUMNS").or(columns).map(|it| it.max(MIN_WIDTH));
        Self {
            ascii,
            colour: out.is_terminal()
                && set("NO_COLOR").is_none()
                && set("TERM").is_none_or(|it| it != "dumb"),
            width: width.unwrap_or(PIPE_WIDTH),
            list_width: width.unwrap_or(usize::MAX),
            height: terminal.map(|it| usize::from(it.ws_row)).filter(|&it| it > 0),
        }
    }

    /// A bar of `width` characters, in brackets.
    pub(crate) fn bar(self, used: u64, total: u64, width: usize) -> String {
        // Without a capacity, any use is the smallest share.
        let share = if total == 0 { used.min(1) as f64 * f64::EPSILON } else { used as f64 / total as f64 };
        format!("[{}]", self.meter(Some(share), width))
    }

    /// A bar of `width` characters; blank if the share is unknown.
    pub(crate) fn meter(self, share: Option<f64>, width: usize) -> String {
        let Some(share) = share else { return " ".repeat(width) };
        let mut full = (share * width as f64).round().min(width as f64) as usize;
        if share > 0.0 {
            full = full.max(1);
        }
        let (on, off) = if self.ascii { ("#", "-") } else { ("█", "░") };
        let bar = format!("{}{}", on.repeat(full), off.repeat(width - full));
        self.paint(&bar, level_colour(share))
    }

    pub(crate) fn paint(self, text: &str, colour: &str) -> String {
        if self.colour && !text.is_empty() { format!("\x1b[{colour}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// Text in bold type.
    pub(crate) fn bold(self, text: &str) -> String {
        self.paint(text, BOLD)
    }

    /// Adds colours to a cell of a table.
    pub(crate) fn paint_cell(self, cell: PageCell<'_>) -> String {
        match cell {
            PageCell::Title(text) => self.paint(text, BOLD),
            PageCell::Meter(share, width) => self.meter(share, width),
            PageCell::Text(text, tone) => match tone_colour(tone) {
                Some(colour) => self.paint(text, colour),
                None => text.to_owned(),
            },
        }
    }

    /// Puts lines together, titles in bold type and the others in the colour of their tone.
    pub(crate) fn format_page(self, lines: Vec<Line>) -> String {
        let line = |line: Line| match tone_colour(line.tone) {
            _ if line.is_title => self.bold(&line.text),
            Some(colour) => self.paint(&line.text, colour),
            None => line.text,
        };
        self.encode(lines.into_iter().map(|it| line(it) + "\n").collect())
    }

    /// Replaces characters that are not ASCII, if only those are wanted.
    pub(crate) fn encode(self, text: String) -> String {
        if !self.ascii {
            return text;
        }
        text.chars().map(to_ascii).collect()
    }
}

fn level_colour(share: f64) -> &'static str {
    match Level::of(share) {
        Level::Full => RED,
        Level::High => YELLOW,
        Level::Low => GREEN,
    }
}

/// The colour of a severity.
pub(crate) fn severity_colour(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => RED,
        Severity::Warning => YELLOW,
        Severity::Info => CYAN,
    }
}

fn tone_colour(tone: Tone) -> Option<&'static str> {
    match tone {
        Tone::Faint => Some(FAINT),
        Tone::Good | Tone::Tracking(Tracking::Audited) => Some(GREEN),
        Tone::Warn | Tone::Tracking(Tracking::Untracked | Tracking::Partial) => Some(YELLOW),
        Tone::Bad | Tone::Tracking(Tracking::Drift) => Some(RED),
        Tone::Level(share) => Some(level_colour(share)).filter(|_| Level::of(share) != Level::Low),
        Tone::Reading(now, Some(limit)) if now >= limit => Some(RED),
        Tone::Reading(now, Some(limit)) if now >= NEAR_LIMIT * limit => Some(YELLOW),
        Tone::Severity(severity) => Some(severity_colour(severity)),
        Tone::Plain | Tone::Reading(..) | Tone::Tracking(_) | Tone::Space(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_show_the_smallest_share() {
        let style = Style { ascii: true, colour: false, width: 100, list_width: 100, height: None };
        assert_eq!(style.bar(0, 100, 10), "[----------]");
        assert_eq!(style.bar(1, 1000, 10), "[#---------]");
        assert_eq!(style.bar(50, 100, 10), "[#####-----]");
        assert_eq!(style.bar(500, 100, 10), "[##########]");
        assert_eq!(style.bar(5, 0, 10), "[#---------]");
        assert_eq!(style.meter(None, 4), "    ", "an unknown share is blank");
    }
}
