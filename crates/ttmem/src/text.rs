//! How pages look: bars, colours, characters.

use std::io::IsTerminal;
use ttmem_render::figure::{Level, ascii};
pub(crate) use ttmem_render::figure::{NOT_KNOWN as UNKNOWN, cut, plain, ranges, size};

/// How to draw.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    pub(crate) ascii: bool,
    pub(crate) colour: bool,
}

impl Style {
    /// Colours only on a terminal, and only if nobody asked for none.
    pub(crate) fn new(ascii: bool) -> Self {
        let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self { ascii, colour: std::io::stdout().is_terminal() && !no_colour && !dumb }
    }

    /// A bar of `width` cells.
    pub(crate) fn bar(self, used: u64, total: u64, width: usize) -> String {
        let share = if total == 0 { 0.0 } else { used as f64 / total as f64 };
        let mut full = (share * width as f64).round().min(width as f64) as usize;
        if used > 0 {
            full = full.max(1);
        }
        let (on, off) = if self.ascii { ("#", "-") } else { ("█", "░") };
        let bar = format!("{}{}", on.repeat(full), off.repeat(width - full));
        let colour = match Level::of(share) {
            Level::Full => "31",
            Level::High => "33",
            Level::Low => "32",
        };
        format!("[{}]", self.paint(&bar, colour))
    }

    pub(crate) fn paint(self, text: &str, colour: &str) -> String {
        if self.colour { format!("\x1b[{colour}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// Replaces what ASCII lacks.
    pub(crate) fn finish(self, text: String) -> String {
        if !self.ascii {
            return text;
        }
        text.chars().map(ascii).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_fill_with_use_and_show_the_least_bit() {
        let style = Style { ascii: true, colour: false };
        assert_eq!(style.bar(0, 100, 10), "[----------]");
        assert_eq!(style.bar(1, 1000, 10), "[#---------]");
        assert_eq!(style.bar(50, 100, 10), "[#####-----]");
        assert_eq!(style.bar(500, 100, 10), "[##########]");
        assert_eq!(style.bar(5, 0, 10), "[#---------]");
    }
}
