//! Pages of text: paragraphs and short lists, for a terminal or a pipe.

use crate::Tone;
use crate::format::{self, sanitize};
use std::fmt::Write as _;

/// Column of rows.
const INDENT: usize = 2;

/// A line of a page.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Its text.
    pub text: String,
    /// Its tone.
    pub tone: Tone,
    /// Whether it is the title of what follows.
    pub is_title: bool,
}

/// A page that is being written.
pub(crate) struct TextPage {
    pub(crate) lines: Vec<Line>,
    width: usize,
}

impl TextPage {
    /// A page without lines, wrapped at `width` columns.
    pub(crate) fn new(width: usize) -> Self {
        Self { lines: Vec::new(), width }
    }

    fn push(&mut self, text: String, tone: Tone, is_title: bool) {
        self.lines.push(Line { text, tone, is_title });
    }

    pub(crate) fn blank(&mut self) {
        self.push(String::new(), Tone::Plain, false);
    }

    pub(crate) fn paragraph(&mut self, text: &str, tone: Tone) {
        for line in format::wrap(&sanitize(text), self.width) {
            self.push(line, tone, false);
        }
    }

    pub(crate) fn title(&mut self, text: &str) {
        for line in format::wrap(&sanitize(text), self.width) {
            self.push(line, Tone::Plain, true);
        }
    }

    /// A title and aligned rows. The last column is a text, the others are numbers.
    pub(crate) fn list(&mut self, title: &str, header: &[&str], rows: &[Vec<String>], more: u64) {
        self.blank();
        self.title(title);
        let header: Vec<String> = header.iter().map(|&it| it.to_owned()).collect();
        let all: Vec<&Vec<String>> = [&header].into_iter().chain(rows).collect();
        let columns = header.len();
        let width = |n: usize| all.iter().map(|row| row[n].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns).map(width).collect();
        // A column without a text in any row is left out.
        let is_shown = |n: usize| rows.iter().any(|row| !row[n].is_empty());
        for (number, row) in all.iter().enumerate().filter(|_| !rows.is_empty()) {
            let mut line = " ".repeat(INDENT);
            for n in (0..columns).filter(|&n| is_shown(n)) {
                let text = sanitize(&row[n]);
                if n + 1 == columns {
                    line.push_str(&text);
                } else {
                    let _ = write!(line, "{text:>width$}  ", width = widths[n]);
                }
            }
            let tone = if number == 0 { Tone::Faint } else { Tone::Plain };
            self.push(line.trim_end().to_owned(), tone, false);
        }
        if more > 0 {
            self.push(format!("{}{more} more", " ".repeat(INDENT)), Tone::Faint, false);
        }
    }
}
