//! Counts the bytes that definitions take.

use super::{KnownSite, Stack};
use crate::input::Frame;
use crate::state::ENTRY_BYTES;
use std::collections::BTreeMap;

/// A definition, of which the bytes are counted.
pub(super) trait Counted {
    /// Bytes of its texts and lists.
    fn text_bytes(&self) -> usize;
}

impl Counted for String {
    fn text_bytes(&self) -> usize {
        self.len()
    }
}

impl Counted for Frame {
    fn text_bytes(&self) -> usize {
        self.function.len()
    }
}

impl Counted for Stack {
    fn text_bytes(&self) -> usize {
        size_of_val(self.frames.as_slice())
    }
}

impl Counted for KnownSite {
    fn text_bytes(&self) -> usize {
        let names = [&self.name, &self.program].into_iter().flatten().map(String::len);
        // A site has more fields than the others.
        size_of::<Self>() + self.site.text.len() + names.sum::<usize>()
    }
}

pub(super) fn bytes_of(definition: &impl Counted) -> u64 {
    ENTRY_BYTES + definition.text_bytes() as u64
}

pub(super) fn sum_bytes(all: &BTreeMap<u32, impl Counted>) -> u64 {
    all.values().map(bytes_of).sum()
}

/// Adds or replaces a definition and counts its bytes. Returns whether there was one, or `None` if it was refused.
pub(super) fn insert<T: Counted>(
    all: &mut BTreeMap<u32, T>,
    number: u32,
    value: T,
    limit: usize,
    bytes: &mut u64,
) -> Option<bool> {
    let replaced = all.get(&number).map(bytes_of);
    let new = bytes_of(&value);
    let fits = match replaced {
        None => all.len() < limit,
        Some(replaced) => limit > 0 || new <= replaced,
    };
    if !fits {
        return None;
    }
    *bytes = *bytes + new - replaced.unwrap_or(0);
    all.insert(number, value);
    Some(replaced.is_some())
}
