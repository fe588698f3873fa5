//! Reads YAML event by event, with the position for error messages.

use super::MAX_CHIPS;
use super::error::{Result, TopologyError};
use super::sections::Section;
use granit_parser::{Event, Parser, ScalarStyle, StrInput};
use std::borrow::Cow;
use std::fmt::{Display, Write as _};

/// Deepest nesting; descriptors have five levels.
const MAX_DEPTH: usize = 32;

/// Parses a number as descriptors write it. One that begins with 0 is refused: some readers take it as octal.
pub(super) fn parse_number(text: &str) -> Option<u64> {
    let (digits, radix) = match text.strip_prefix("0x") {
        Some(hex) => (hex, 16),
        None if text.len() > 1 && text.starts_with('0') => return None,
        None => (text, 10),
    };
    // `from_str_radix` accepts a sign.
    let plain = digits.chars().all(|c| c.is_digit(radix));
    if plain { u64::from_str_radix(digits, radix).ok() } else { None }
}

/// A part of a text: a value, or the start or end of a list, map or document.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Item<'text> {
    Scalar(Cow<'text, str>),
    /// `null`, or no value.
    Null,
    List,
    Map,
    End,
    DocumentStart,
    StreamEnd,
}

impl Item<'_> {
    /// Its name in error messages. A value is quoted, escaped and truncated.
    fn name(&self) -> String {
        match self {
            Self::Scalar(text) => {
                let shown: String = text.chars().take(40).collect();
                let more = if shown.len() < text.len() { "..." } else { "" };
                format!("{shown:?}{more}")
            }
            Self::List => "a list".to_owned(),
            Self::Map => "a map".to_owned(),
            Self::Null | Self::End | Self::DocumentStart | Self::StreamEnd => "nothing".to_owned(),
        }
    }
}

/// Reads a text and keeps the position in it.
pub(super) struct YamlReader<'text> {
    parser: Parser<'text, StrInput<'text>>,
    /// The line of the last item.
    pub(super) line: usize,
    /// The path to the last item, for errors: `harvesting: chip 3`.
    pub(super) path: String,
}

impl<'text> YamlReader<'text> {
    pub(super) fn new(text: &'text str) -> Self {
        let options = granit_parser::options! {
            emit_comments: false,
            flow_nesting_limit: MAX_DEPTH,
            block_nesting_limit: MAX_DEPTH,
        };
        Self { parser: Parser::new_from_str_with_options(text, options), line: 1, path: String::new() }
    }

    /// The next item.
    pub(super) fn next(&mut self) -> Result<Item<'text>> {
        loop {
            let Some(next) = self.parser.next() else { return Ok(Item::StreamEnd) };
            let (event, span) = next.map_err(|error| TopologyError::Yaml {
                line: error.marker().line(),
                reason: error.kind().to_string(),
            })?;
            self.line = span.start.line();
            if matches!(event, Event::Alias(_)) || event.anchor_id().is_some() {
                return Err(TopologyError::Anchor { line: self.line });
            }
            return Ok(match event {
                Event::Scalar(text, ScalarStyle::Plain, ..)
                    if matches!(&*text, "" | "~" | "null" | "Null" | "NULL") =>
                {
                    Item::Null
                }
                Event::Scalar(text, ..) => Item::Scalar(text),
                Event::SequenceStart(..) => Item::List,
                Event::MappingStart(..) => Item::Map,
                Event::SequenceEnd | Event::MappingEnd | Event::DocumentEnd => Item::End,
                Event::DocumentStart(..) => Item::DocumentStart,
                Event::StreamEnd => Item::StreamEnd,
                // The stream's start, and anything outside a document.
                _ => continue,
            });
        }
    }

    /// Adds a step to the path while `f` reads that part.
    pub(super) fn within<T>(
        &mut self,
        step: impl Display,
        f: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        let before = self.path.len();
        let colon = if before == 0 { "" } else { ": " };
        write!(self.path, "{colon}{step}").expect("a string takes everything");
        // An error ends the reading, so the path is not restored after one.
        let value = f(self)?;
        self.path.truncate(before);
        Ok(value)
    }

    pub(super) fn unexpected(&self, found: &Item, wanted: &'static str) -> TopologyError {
        let path = if self.path.is_empty() { "descriptor".to_owned() } else { self.path.clone() };
        TopologyError::Value { line: self.line, path, found: found.name(), wanted }
    }

    pub(super) fn duplicate(&self) -> TopologyError {
        TopologyError::Duplicate { line: self.line, path: self.path.clone() }
    }

    /// Skips a value of any kind.
    pub(super) fn skip(&mut self) -> Result<()> {
        let mut depth = 0_usize;
        loop {
            match self.next()? {
                Item::List | Item::Map => depth += 1,
                Item::End => depth = depth.saturating_sub(1),
                Item::StreamEnd => return Ok(()),
                Item::Scalar(_) | Item::Null | Item::DocumentStart => {}
            }
            if depth == 0 {
                return Ok(());
            }
        }
    }

    /// Reads a scalar; `None` if it is null.
    pub(super) fn read_scalar(&mut self, wanted: &'static str) -> Result<Option<Cow<'text, str>>> {
        match self.next()? {
            Item::Scalar(text) => Ok(Some(text)),
            Item::Null => Ok(None),
            other => Err(self.unexpected(&other, wanted)),
        }
    }

    /// Reads a scalar that `f` parses.
    pub(super) fn parse_scalar<T>(
        &mut self,
        wanted: &'static str,
        f: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T> {
        let item = self.next()?;
        let value = if let Item::Scalar(text) = &item { f(text) } else { None };
        value.ok_or_else(|| self.unexpected(&item, wanted))
    }

    pub(super) fn read_number<T: TryFrom<u64>>(&mut self, wanted: &'static str) -> Result<T> {
        self.parse_scalar(wanted, |text| T::try_from(parse_number(text)?).ok())
    }

    /// Reads a value that may occur only once.
    pub(super) fn read_once<T>(
        &mut self,
        slot: &mut Option<T>,
        f: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<()> {
        let value = f(self)?;
        if slot.replace(value).is_some() { Err(self.duplicate()) } else { Ok(()) }
    }

    pub(super) fn read_list(&mut self, f: impl FnMut(&mut Self, Item<'text>) -> Result<()>) -> Result<()> {
        match self.next()? {
            Item::List => self.read_rest_of_list(f),
            Item::Null => Ok(()),
            other => Err(self.unexpected(&other, "a list")),
        }
    }

    pub(super) fn read_rest_of_list(
        &mut self,
        mut f: impl FnMut(&mut Self, Item<'text>) -> Result<()>,
    ) -> Result<()> {
        loop {
            match self.next()? {
                Item::End => return Ok(()),
                item => f(self, item)?,
            }
        }
    }

    pub(super) fn read_map(&mut self, f: impl FnMut(&mut Self, Cow<'text, str>) -> Result<()>) -> Result<()> {
        match self.next()? {
            Item::Map => self.read_rest_of_map(f),
            Item::Null => Ok(()),
            other => Err(self.unexpected(&other, "a map")),
        }
    }

    pub(super) fn read_rest_of_map(
        &mut self,
        mut f: impl FnMut(&mut Self, Cow<'text, str>) -> Result<()>,
    ) -> Result<()> {
        loop {
            match self.next()? {
                Item::End => return Ok(()),
                Item::Scalar(key) => f(self, key)?,
                other => return Err(self.unexpected(&other, "a key")),
            }
        }
    }

    /// Reads a map from chips to values that `f` reads.
    pub(super) fn read_by_chip<T>(
        &mut self,
        mut f: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<Section<T>> {
        let mut section = Section::new();
        self.read_map(|yaml, key| yaml.read_chip(&key, &mut section, |yaml, _| f(yaml)))?;
        Ok(section)
    }

    /// Reads the entry of one chip of a section.
    pub(super) fn read_chip<T>(
        &mut self,
        key: &str,
        section: &mut Section<T>,
        f: impl FnOnce(&mut Self, u32) -> Result<T>,
    ) -> Result<()> {
        let Some(chip) = parse_number(key).and_then(|chip| u32::try_from(chip).ok()) else {
            return Err(self.unexpected(&Item::Scalar(key.into()), "a chip's number"));
        };
        let line = self.line;
        if section.len() >= MAX_CHIPS {
            return Err(TopologyError::TooManyChips { line, path: self.path.clone() });
        }
        self.within(format_args!("chip {chip}"), |yaml| {
            if section.contains_key(&chip) {
                return Err(yaml.duplicate());
            }
            section.insert(chip, (line, f(yaml, chip)?));
            Ok(())
        })
    }
}
