//! Why a cluster descriptor is refused.

use super::{MAX_CHIPS, MAX_TEXT};

/// Why a cluster descriptor is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TopologyError {
    /// It is longer than any descriptor.
    #[error("descriptor of {len} bytes, more than {MAX_TEXT}")]
    TooLong {
        /// Its length in bytes.
        len: usize,
    },
    /// It is not YAML, or nested too deeply.
    #[error("line {line}: {reason}")]
    Yaml {
        /// Where.
        line: usize,
        /// The parser's message.
        reason: String,
    },
    /// It has anchors or aliases, which no descriptor needs and which could expand without bound.
    #[error("line {line}: anchors and aliases are not read")]
    Anchor {
        /// Where.
        line: usize,
    },
    /// Another document follows.
    #[error("line {line}: a second document")]
    SecondDocument {
        /// Where.
        line: usize,
    },
    /// A required section is missing.
    #[error("no key {key}")]
    NoKey {
        /// Its key.
        key: &'static str,
    },
    /// The descriptor has no chips.
    #[error("no chips in arch")]
    NoChips,
    /// A required entry is missing.
    #[error("line {line}: {path}: no {missing}")]
    Missing {
        /// Where the part begins that lacks it.
        line: usize,
        /// The part that lacks it.
        path: String,
        /// The missing entry.
        missing: &'static str,
    },
    /// A value is not of the expected kind.
    #[error("line {line}: {path}: {found} instead of {wanted}")]
    Value {
        /// Where.
        line: usize,
        /// The entry.
        path: String,
        /// Its value.
        found: String,
        /// What was expected.
        wanted: &'static str,
    },
    /// An entry occurs twice.
    #[error("line {line}: {path} for the second time")]
    Duplicate {
        /// Where the second one is.
        line: usize,
        /// The entry.
        path: String,
    },
    /// A section has a chip that is missing in the section that must list it.
    #[error("line {line}: {section}: chip {chip} is not in {missing_in}")]
    UnlistedChip {
        /// Where.
        line: usize,
        /// The section that has it.
        section: &'static str,
        /// The chip.
        chip: u32,
        /// The section that lacks it.
        missing_in: &'static str,
    },
    /// Two chips share a value that must be unique.
    #[error("line {line}: {section}: chip {chip} has {value}, as chip {other}")]
    NotUnique {
        /// Where.
        line: usize,
        /// The section.
        section: &'static str,
        /// One of the chips.
        chip: u32,
        /// The other chip.
        other: u32,
        /// The value.
        value: String,
    },
    /// More chips than any machine has.
    #[error("line {line}: {path}: more than {MAX_CHIPS} chips")]
    TooManyChips {
        /// Where.
        line: usize,
        /// The section.
        path: String,
    },
}

pub(super) type Result<T> = std::result::Result<T, TopologyError>;
