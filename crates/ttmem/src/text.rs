//! How figures look: sizes, bars, colours.

use std::io::IsTerminal;
pub(crate) use ttmem_core::words::{ranges, size};
use unicode_width::UnicodeWidthChar;

/// What is not known.
pub(crate) const UNKNOWN: &str = "N/A";

/// Text of others, made harmless for a terminal and kept on its line: controls, and marks that turn the writing direction, are
/// not shown as they are.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.width().is_none_or(|width| width == 0) { '?' } else { c }).collect()
}

/// Cuts text to `width` columns, and shows that it did.
pub(crate) fn cut(text: &str, width: usize) -> String {
    // Other people's names may hold anything. A terminal must not act on it, and columns must stay where they are: what
    // has no width (controls, marks that turn the writing direction) or two is not shown as it is.
    let clean: Vec<char> = text.chars().map(|c| if c.width() == Some(1) { c } else { '?' }).collect();
    if clean.len() <= width {
        clean.into_iter().collect()
    } else {
        clean.into_iter().take(width.saturating_sub(1)).chain(['…']).collect()
    }
}

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
        let colour = if share >= 0.9 {
            "31"
        } else if share >= 0.75 {
            "33"
        } else {
            "32"
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
        let plain = |c: char| match c {
            '│' => '|',
            '─' => '-',
            '┌' | '┐' | '└' | '┘' | '├' | '┤' | '┬' | '┴' | '┼' => '+',
            '…' => '~',
            '°' => ' ',
            '⚠' => '!',
            c if c.is_ascii() => c,
            _ => '?',
        };
        text.chars().map(plain).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_reach_the_terminal_raw() {
        assert_eq!(cut("evil\x1b[2Jname", 40), "evil?[2Jname");
        assert_eq!(cut("python", 4), "pyt…");
        assert_eq!(cut("a\u{202e}b\u{200b}c漢", 40), "a?b?c?");
    }

    #[test]
    fn text_that_is_not_cut_is_harmless_as_well() {
        assert_eq!(plain("a\x1b]0;x\x07b\0c\nd\u{9b}e\u{202e}f"), "a?]0;x?b?c?d?e?f");
        assert_eq!(plain("Größe 漢"), "Größe 漢");
    }

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
