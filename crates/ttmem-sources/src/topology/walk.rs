//! Goes through a text of YAML step by step, and knows where it is.

use super::{MAX_CHIPS, Result, Section, TopologyError};
use granit_parser::{Event, Parser, ScalarStyle, StrInput};
use std::borrow::Cow;
use std::fmt::{Display, Write as _};

/// Deepest nesting; descriptors have five levels.
const MAX_DEPTH: usize = 32;

/// A number as descriptors write it. One that begins with 0 is octal to some readers and decimal to others.
pub(super) fn number(text: &str) -> Option<u64> {
    let (digits, radix) = match text.strip_prefix("0x") {
        Some(hex) => (hex, 16),
        None if text.len() > 1 && text.starts_with('0') => return None,
        None => (text, 10),
    };
    // Rust would take a sign.
    let plain = digits.chars().all(|c| c.is_digit(radix));
    if plain { u64::from_str_radix(digits, radix).ok() } else { None }
}

/// A step through a text: values, and where lists and maps begin and end.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Item<'text> {
    Scalar(Cow<'text, str>),
    /// A value that is not there, or `null`.
    Nothing,
    List,
    Map,
    End,
    Document,
    Over,
}

impl Item<'_> {
    /// For errors. A value comes from the file: it is quoted, escaped and cut.
    fn name(&self) -> String {
        match self {
            Self::Scalar(text) => {
                let shown: String = text.chars().take(40).collect();
                let more = if shown.len() < text.len() { "..." } else { "" };
                format!("{shown:?}{more}")
            }
            Self::List => "a list".to_owned(),
            Self::Map => "a map".to_owned(),
            Self::Nothing | Self::End | Self::Document | Self::Over => "nothing".to_owned(),
        }
    }
}

/// Goes through a text, and knows where it is.
pub(super) struct Walk<'text> {
    parser: Parser<'text, StrInput<'text>>,
    /// Of the last item.
    pub(super) line: usize,
    /// For errors: `harvesting: chip 3`.
    pub(super) place: String,
}

impl<'text> Walk<'text> {
    pub(super) fn new(text: &'text str) -> Self {
        let options = granit_parser::options! {
            emit_comments: false,
            flow_nesting_limit: MAX_DEPTH,
            block_nesting_limit: MAX_DEPTH,
        };
        Self { parser: Parser::new_from_str_with_options(text, options), line: 1, place: String::new() }
    }

    pub(super) fn next(&mut self) -> Result<Item<'text>> {
        loop {
            let Some(next) = self.parser.next() else { return Ok(Item::Over) };
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
                    Item::Nothing
                }
                Event::Scalar(text, ..) => Item::Scalar(text),
                Event::SequenceStart(..) => Item::List,
                Event::MappingStart(..) => Item::Map,
                Event::SequenceEnd | Event::MappingEnd | Event::DocumentEnd => Item::End,
                Event::DocumentStart(..) => Item::Document,
                Event::StreamEnd => Item::Over,
                // The stream's start, and what is no part of a document.
                _ => continue,
            });
        }
    }

    /// Names a part of the text while `f` reads it.
    pub(super) fn within<T>(
        &mut self,
        step: impl Display,
        f: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        let before = self.place.len();
        let colon = if before == 0 { "" } else { ": " };
        write!(self.place, "{colon}{step}").expect("a string takes everything");
        // An error ends the walk, so the place need not be right after one.
        let value = f(self)?;
        self.place.truncate(before);
        Ok(value)
    }

    pub(super) fn refuse(&self, found: &Item, wanted: &'static str) -> TopologyError {
        let place = if self.place.is_empty() { "descriptor".to_owned() } else { self.place.clone() };
        TopologyError::Value { line: self.line, place, found: found.name(), wanted }
    }

    pub(super) fn twice(&self) -> TopologyError {
        TopologyError::Twice { line: self.line, place: self.place.clone() }
    }

    /// Passes over a value, whatever it is.
    pub(super) fn skip(&mut self) -> Result<()> {
        let mut depth = 0_usize;
        loop {
            match self.next()? {
                Item::List | Item::Map => depth += 1,
                Item::End => depth = depth.saturating_sub(1),
                Item::Over => return Ok(()),
                Item::Scalar(_) | Item::Nothing | Item::Document => {}
            }
            if depth == 0 {
                return Ok(());
            }
        }
    }

    /// A single value, if there is one.
    pub(super) fn scalar(&mut self, wanted: &'static str) -> Result<Option<Cow<'text, str>>> {
        match self.next()? {
            Item::Scalar(text) => Ok(Some(text)),
            Item::Nothing => Ok(None),
            other => Err(self.refuse(&other, wanted)),
        }
    }

    /// A single value that `f` understands.
    pub(super) fn read<T>(&mut self, wanted: &'static str, f: impl FnOnce(&str) -> Option<T>) -> Result<T> {
        let item = self.next()?;
        let value = if let Item::Scalar(text) = &item { f(text) } else { None };
        value.ok_or_else(|| self.refuse(&item, wanted))
    }

    pub(super) fn number<T: TryFrom<u64>>(&mut self, wanted: &'static str) -> Result<T> {
        self.read(wanted, |text| T::try_from(number(text)?).ok())
    }

    /// Reads a value that must come only once.
    pub(super) fn once<T>(
        &mut self,
        slot: &mut Option<T>,
        f: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<()> {
        let value = f(self)?;
        if slot.replace(value).is_some() { Err(self.twice()) } else { Ok(()) }
    }

    pub(super) fn list(&mut self, f: impl FnMut(&mut Self, Item<'text>) -> Result<()>) -> Result<()> {
        match self.next()? {
            Item::List => self.rest_of_list(f),
            Item::Nothing => Ok(()),
            other => Err(self.refuse(&other, "a list")),
        }
    }

    pub(super) fn rest_of_list(
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

    pub(super) fn map(&mut self, f: impl FnMut(&mut Self, Cow<'text, str>) -> Result<()>) -> Result<()> {
        match self.next()? {
            Item::Map => self.rest_of_map(f),
            Item::Nothing => Ok(()),
            other => Err(self.refuse(&other, "a map")),
        }
    }

    pub(super) fn rest_of_map(
        &mut self,
        mut f: impl FnMut(&mut Self, Cow<'text, str>) -> Result<()>,
    ) -> Result<()> {
        loop {
            match self.next()? {
                Item::End => return Ok(()),
                Item::Scalar(key) => f(self, key)?,
                other => return Err(self.refuse(&other, "a key")),
            }
        }
    }

    /// A map from chips to what `f` reads.
    pub(super) fn by_chip<T>(&mut self, mut f: impl FnMut(&mut Self) -> Result<T>) -> Result<Section<T>> {
        let mut section = Section::new();
        self.map(|walk, key| walk.chip(&key, &mut section, |walk, _| f(walk)))?;
        Ok(section)
    }

    /// One chip of a section.
    pub(super) fn chip<T>(
        &mut self,
        key: &str,
        section: &mut Section<T>,
        f: impl FnOnce(&mut Self, u32) -> Result<T>,
    ) -> Result<()> {
        let Some(chip) = number(key).and_then(|chip| u32::try_from(chip).ok()) else {
            return Err(self.refuse(&Item::Scalar(key.into()), "a chip's number"));
        };
        let line = self.line;
        if section.len() >= MAX_CHIPS {
            return Err(TopologyError::TooManyChips { line, place: self.place.clone() });
        }
        self.within(format_args!("chip {chip}"), |walk| {
            if section.contains_key(&chip) {
                return Err(walk.twice());
            }
            section.insert(chip, (line, f(walk, chip)?));
            Ok(())
        })
    }
}
