//! The rule for making room: which neighbouring buffers of a bank to free.

use core::ops::Range;

/// Buffers to free, by their places in a list, and the free block that results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// Places of the buffers.
    pub buffers: Range<usize>,
    /// Addresses of the free block.
    pub block: Range<u64>,
    /// Bytes of the buffers.
    pub freed: u64,
}

/// Returns the neighbouring buffers with the fewest bytes whose freeing leaves a free block of `needed` bytes; `None` if the bank is
/// smaller. `buffer` returns the addresses of each of `count` buffers, which are sorted, do not overlap and are within the bank.
///
/// ```
/// # use ttmem_types::cheapest_window;
/// let buffers = [0..400, 500..510, 520..530, 600..1000];
/// let window = cheapest_window(0..1000, buffers.len(), |n| buffers[n].clone(), 150).unwrap();
/// assert_eq!((window.buffers, window.block, window.freed), (1..3, 400..600, 20));
/// ```
pub fn cheapest_window(
    bank: Range<u64>,
    count: usize,
    buffer: impl Fn(usize) -> Range<u64>,
    needed: u64,
) -> Option<Window> {
    let len = |n: usize| buffer(n).end - buffer(n).start;
    let mut best: Option<Window> = None;
    let (mut end, mut freed) = (0, 0);
    for first in 0..=count {
        if first > 0 && end >= first {
            freed -= len(first - 1);
        }
        end = end.max(first);
        let start = if first == 0 { bank.start } else { buffer(first - 1).end };
        let up_to = |end: usize| if end < count { buffer(end).start } else { bank.end };
        while up_to(end) - start < needed && end < count {
            freed += len(end);
            end += 1;
        }
        if up_to(end) - start < needed {
            break;
        }
        if best.as_ref().is_none_or(|best| freed < best.freed) {
            best = Some(Window { buffers: first..end, block: start..up_to(end), freed });
        }
    }
    best
}
