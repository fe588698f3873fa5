//! The order in which words become visible to readers. A reader copies them in any order, at any time, and even after this
//! process was killed between two of them. The models in `ttmem-loom` compile this file with loom's atomics and try every
//! order.
//!
//! One event is: `begin`, the record by `put`, `fence_record`, slots and rows by `put` and `clear`, `finish`.

pub(crate) use crate::atomic::{AtomicU64, Ordering, fence};

/// Stores the event's number before any of its words: a reader that sees one of them sees this number, too.
#[inline]
pub(crate) fn begin(begun: &AtomicU64, sequence: u64) {
    begun.store(sequence, Ordering::Relaxed);
    fence(Ordering::Release);
}

/// Stores words of which the first is a sequence number. It is stored last: a reader that sees it sees the others.
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

/// Separates the record from the changes of table and rows that follow: a reader that sees a change sees the whole record.
#[inline]
pub(crate) fn fence_record() {
    fence(Ordering::Release);
}

/// Marks a slot as free.
#[inline]
pub(crate) fn clear<const N: usize>(place: &[AtomicU64; N]) {
    place[0].store(0, Ordering::Relaxed);
}

/// Stores that all words of the event are written.
#[inline]
pub(crate) fn finish(applied: &AtomicU64, sequence: u64) {
    applied.store(sequence, Ordering::Release);
}
