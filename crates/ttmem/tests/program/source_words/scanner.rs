//! Divides a source file into comments and identifiers. Strings are skipped.

use std::path::Path;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Language {
    Rust,
    /// C, C++, and tables that C++ includes.
    C,
    Python,
}

impl Language {
    /// The language of a file, by its extension.
    pub(super) fn of(path: &str) -> Option<Self> {
        match Path::new(path).extension()?.to_str()? {
            "rs" => Some(Self::Rust),
            "c" | "cpp" | "h" | "hpp" | "def" => Some(Self::C),
            "py" | "pyi" => Some(Self::Python),
            _ => None,
        }
    }
}

/// A comment: a block, a docstring, or line comments of one kind on adjacent lines.
pub(super) struct Comment {
    pub(super) line: usize,
    /// Whether it documents an item. C has no such comments, so there all that have a line of their own do.
    pub(super) is_doc: bool,
    /// The text without markers of line comments.
    pub(super) text: String,
}

pub(super) struct Identifier<'a> {
    pub(super) line: usize,
    pub(super) name: &'a str,
    pub(super) is_function: bool,
}

/// Scans a source file.
pub(super) fn scan(language: Language, text: &str) -> (Vec<Comment>, Vec<Identifier<'_>>) {
    let mut scanner = Scanner::new(language, text);
    while scanner.at < text.len() {
        scanner.step();
    }
    (scanner.comments, scanner.identifiers)
}

struct Scanner<'a> {
    language: Language,
    text: &'a str,
    at: usize,
    line: usize,
    /// Whether there is code before on this line.
    has_code: bool,
    /// Open brackets.
    depth: usize,
    /// Marker and last line of the line comment before, if the next line may continue it.
    open: Option<(&'static str, usize)>,
    comments: Vec<Comment>,
    identifiers: Vec<Identifier<'a>>,
}

impl<'a> Scanner<'a> {
    fn new(language: Language, text: &'a str) -> Self {
        Self {
            language,
            text,
            at: 0,
            line: 1,
            has_code: false,
            depth: 0,
            open: None,
            comments: Vec::new(),
            identifiers: Vec::new(),
        }
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// Moves on, and returns what was passed.
    fn take(&mut self, len: usize) -> &'a str {
        let taken = &self.rest()[..len];
        self.at += len;
        self.line += taken.matches('\n').count();
        taken
    }

    fn step(&mut self) {
        let rest = self.rest();
        let first = rest.chars().next().unwrap_or('\n');
        if first == '\n' {
            self.has_code = false;
            self.take(1);
        } else if first.is_whitespace() {
            self.take(first.len_utf8());
        } else if let Some(marker) = self.line_comment() {
            self.take_line_comment(marker);
        } else if self.language != Language::Python && rest.starts_with("/*") {
            self.take_block_comment();
        } else if let Some(len) = self.string() {
            self.take_string(len);
        } else {
            self.has_code = true;
            self.open = None;
            self.take_code(first);
        }
    }

    /// The marker of the line comment that begins here.
    fn line_comment(&self) -> Option<&'static str> {
        let markers: &[&str] = match self.language {
            Language::Python => &["#"],
            Language::C => &["//"],
            Language::Rust => &["////", "///", "//!", "//"],
        };
        markers.iter().find(|marker| self.rest().starts_with(**marker)).copied()
    }

    fn take_line_comment(&mut self, marker: &'static str) {
        let line = self.line;
        let len = self.rest().find('\n').unwrap_or(self.rest().len());
        let text = &self.take(len)[marker.len()..];
        if self.open.is_some_and(|open| open == (marker, line - 1)) {
            let last = self.comments.last_mut().expect("an open comment is the last one");
            last.text.push('\n');
            last.text.push_str(text);
        } else {
            let is_doc = match self.language {
                Language::Rust => matches!(marker, "///" | "//!"),
                Language::C => !self.has_code,
                Language::Python => false,
            };
            self.comments.push(Comment { line, is_doc, text: text.to_owned() });
        }
        self.open = Some((marker, line));
    }

    fn take_block_comment(&mut self) {
        let (line, rest) = (self.line, self.rest());
        let mut depth = 0;
        let mut len = 0;
        loop {
            let here = &rest[len..];
            if here.starts_with("/*") && (depth == 0 || self.language == Language::Rust) {
                depth += 1;
                len += 2;
            } else if here.starts_with("*/") {
                depth -= 1;
                len += 2;
            } else {
                len += here.chars().next().map_or(0, char::len_utf8);
            }
            if depth == 0 || len >= rest.len() {
                break;
            }
        }
        let text = self.take(len).to_owned();
        let is_doc = match self.language {
            Language::Rust => text.starts_with("/**") && text != "/**/",
            _ => !self.has_code,
        };
        self.comments.push(Comment { line, is_doc, text });
        self.open = None;
    }

    /// Length of the string or character literal that begins here.
    fn string(&self) -> Option<usize> {
        let rest = self.rest();
        let letters = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
        let (prefix, quoted) = rest.split_at(letters);
        match self.language {
            Language::Rust if prefix.is_empty() && quoted.starts_with('\'') => character(quoted),
            Language::Rust if ["r", "br", "cr"].contains(&prefix) => {
                let hashes = quoted.find(|c| c != '#')?;
                let end = format!("\"{}", &quoted[..hashes]);
                let inside = quoted[hashes..].strip_prefix('"')?;
                Some(letters + hashes + 1 + inside.find(&end)? + end.len())
            }
            Language::Rust if ["", "b", "c"].contains(&prefix) => Some(letters + closing(quoted, "\"")?),
            Language::C if prefix == "R" => {
                let delimiter = quoted.strip_prefix('"')?.split('(').next()?;
                let end = format!("){delimiter}\"");
                Some(letters + quoted.find(&end)? + end.len())
            }
            Language::C if prefix.is_empty() && quoted.starts_with('\'') => {
                closing(quoted, "'").filter(|len| !quoted[..*len].contains('\n'))
            }
            Language::C if ["", "L", "U", "u"].contains(&prefix) => Some(letters + closing(quoted, "\"")?),
            Language::Python if prefix.len() <= 2 && prefix.chars().all(|c| "rbfuRBFU".contains(c)) => {
                let quotes = ["\"\"\"", "'''", "\"", "'"];
                let quote = quotes.into_iter().find(|quote| quoted.starts_with(quote))?;
                Some(letters + closing(quoted, quote)?)
            }
            _ => None,
        }
    }

    /// Skips a string, unless it is a docstring: one that is a statement.
    fn take_string(&mut self, len: usize) {
        let line = self.line;
        let is_statement = self.language == Language::Python && !self.has_code && self.depth == 0;
        let text = self.take(len);
        if is_statement {
            let text = text.trim_matches(|c: char| "\"'rbfuRBFU".contains(c)).to_owned();
            self.comments.push(Comment { line, is_doc: true, text });
        }
        self.has_code = true;
        self.open = None;
    }

    fn take_code(&mut self, first: char) {
        let rest = self.rest();
        if first.is_alphabetic() || first == '_' {
            let len = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            let before = self.text[..self.at].trim_end();
            let is_function = match self.language {
                Language::Rust => before.ends_with("fn"),
                Language::Python => before.ends_with("def"),
                Language::C => rest[len..].trim_start().starts_with('('),
            };
            let line = self.line;
            let name = self.take(len);
            self.identifiers.push(Identifier { line, name, is_function });
        } else if first.is_ascii_digit() {
            // A quote within a number separates digits in C++.
            let is_part =
                |c: char| c.is_alphanumeric() || c == '_' || c == '\'' && self.language == Language::C;
            let len = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
            self.take(len);
        } else {
            match first {
                '(' | '[' | '{' => self.depth += 1,
                ')' | ']' | '}' => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
            self.take(first.len_utf8());
        }
    }
}

/// Length of a string that begins with a quote and ends with the same one.
fn closing(text: &str, quote: &str) -> Option<usize> {
    let mut at = text.strip_prefix(quote).map(|_| quote.len())?;
    loop {
        let rest = &text[at..];
        if rest.starts_with(quote) {
            return Some(at + quote.len());
        }
        let mut characters = rest.chars();
        let c = characters.next()?;
        at += c.len_utf8();
        if c == '\\' {
            at += characters.next()?.len_utf8();
        }
    }
}

/// Length of a character literal of Rust; `None` for a lifetime.
fn character(text: &str) -> Option<usize> {
    let mut characters = text.char_indices().skip(1);
    if characters.next()?.1 == '\\' {
        return closing(text, "'");
    }
    characters.next().filter(|(_, c)| *c == '\'').map(|(at, _)| at + 1)
}
