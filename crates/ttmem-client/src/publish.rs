//! The order in which words become visible. A reader copies them in any order, at any time, and even after this process
//! was killed between two of them; the models in `ttmem-loom` compile this file with loom's atomics and try every order.
//!
//! One event is: `begin`, the record by `put`, `settle`, slots and rows by `put` and `clear`, `finish`.

pub(crate) use crate::atomic::{AtomicU64, Ordering, fence};

/// Says which event comes before any of its words is stored: whoever sees one of them will see this, too.
#[inline]
pub(crate) fn begin(begun: &AtomicU64, sequence: u64) {
    begun.store(sequence, Ordering::Relaxed);
    fence(Ordering::Release);
}

/// Stores words whose first is a sequence number: it comes last, so that whoever sees it sees the others.
#[inline]
pub(crate) fn put<const N: usize>(place: &[AtomicU64; N], words: &[u64; N]) {
    for n in 1..N {
        place[n].store(words[n], Ordering::Relaxed);
    }
    place[0].store(words[0], Ordering::Release);
}

/// Replaces words that start with a sequence number and that no record repeats. A reader that reads the same sequence number
/// twice has read the words that belong to it.
pub(crate) fn replace<const N: usize>(place: &[AtomicU64; N], words: &[u64; N]) {
    place[0].store(0, Ordering::Relaxed);
    fence(Ordering::Release);
    put(place, words);
}

/// From here on table and rows change: whoever sees a change will see the whole record, too.
#[inline]
pub(crate) fn settle() {
    fence(Ordering::Release);
}

/// Marks a slot as free.
#[inline]
pub(crate) fn clear<const N: usize>(place: &[AtomicU64; N]) {
    place[0].store(0, Ordering::Relaxed);
}

/// Says that the event is done.
#[inline]
pub(crate) fn finish(applied: &AtomicU64, sequence: u64) {
    applied.store(sequence, Ordering::Release);
}
