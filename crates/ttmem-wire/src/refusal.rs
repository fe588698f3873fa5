//! The figures in the texts of the runtime's exceptions about memory.

use ttmem_types::{FailureKind, Space};

/// A request that the runtime refused, with the figures of its exception. A number of 0 is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Why the runtime refused.
    pub kind: FailureKind,
    /// Of program memory, the space of the parts that did not fit.
    pub space: Option<Space>,
    /// Bytes that were requested, or the end of a program's memory.
    pub needed: u64,
    /// Largest free block, lowest address of an L1 buffer, or bytes of what the request exceeds.
    pub available: Option<u64>,
    /// Free bytes in a bank.
    pub free: Option<u64>,
    /// Cores of the program, a bit for each: core `x` of row `y` is bit `16 y + x`.
    pub cores: [u64; 4],
}

impl Refusal {
    /// Returns the figures in the text of an exception; `None`: it is about something else.
    pub fn parse(text: &str) -> Option<Self> {
        let number = |before: &str| number_after(text, before);
        let refusal = |kind, space, needed: Option<u64>, available| Self {
            kind,
            space,
            needed: needed.unwrap_or(0),
            available,
            free: None,
            cores: cores_in(text),
        };
        let of_program = if text.contains("dataflow buffer") { Space::Dfb } else { Space::Cb };
        Some(if text.contains("Out of Memory: ") {
            let free = number("free: ");
            let needed = number("needs to store ");
            let largest = number("largest free block: ");
            Self { free, cores: [0; 4], ..refusal(FailureKind::OutOfMemory, None, needed, largest) }
        } else if text.contains("clash with L1 buffers") {
            let (end, lowest) = (number("region ends at "), number("L1 buffer allocated at "));
            refusal(FailureKind::Clash, Some(of_program), end, lowest)
        } else if text.contains("which is beyond max L1 size") {
            let (end, size) = (number("grow to "), number("beyond max L1 size of "));
            refusal(FailureKind::BeyondL1, Some(of_program), end, size)
        } else if text.contains("too large for kernel config buffer") {
            let (bytes, size) = (number("Program size ("), number("kernel config buffer ("));
            refusal(FailureKind::KernelConfig, Some(Space::Kernel), bytes, size)
        } else if text.contains("is allocated for trace region") {
            let (bytes, size) = (number("trace buffers of size "), number("but only "));
            refusal(FailureKind::TraceRegion, Some(Space::Trace), bytes, size)
        } else if text.contains("only supports sharded allocations") {
            refusal(FailureKind::Unsupported, None, None, None)
        } else {
            return None;
        })
    }
}

/// The number after the first occurrence of some words.
fn number_after(text: &str, words: &str) -> Option<u64> {
    let rest = &text[text.find(words)? + words.len()..];
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

/// The cores in a text such as `core range [0-0 - 7-3]`, or `core range [(x=0,y=0) - (x=7,y=3)]`.
fn cores_in(text: &str) -> [u64; 4] {
    let mut cores = [0; 4];
    let Some((_, range)) = text.split_once("core range ") else { return cores };
    let Some((range, _)) = range.split_once(']') else { return cores };
    let mut numbers = range.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok());
    let ends: [Option<u64>; 4] = core::array::from_fn(|_| numbers.next());
    let [Some(left), Some(top), Some(right), Some(bottom)] = ends else { return cores };
    for y in top..=bottom.min(15) {
        for x in left..=right.min(15) {
            cores[y as usize / 4] |= 1 << (y % 4 * 16 + x);
        }
    }
    cores
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Refusal = Refusal {
        kind: FailureKind::Unsupported,
        space: None,
        needed: 0,
        available: None,
        free: None,
        cores: [0; 4],
    };

    #[test]
    fn texts_of_the_runtime_have_figures() {
        let out_of_memory = "TT_THROW @ bank_manager.cpp:439: tt::exception\ninfo:\nOut of Memory: Not enough space to allocate \
            2097152 B L1 buffer across 64 banks, where each bank needs to store 32768 B, but bank size is 1376256 B (allocated: \
            1343488 B, free: 32768 B, largest free block: 16384 B).\nbacktrace:";
        let expected = Refusal {
            kind: FailureKind::OutOfMemory,
            needed: 32768,
            available: Some(16384),
            free: Some(32768),
            ..NOTHING
        };
        assert_eq!(Refusal::parse(out_of_memory), Some(expected));
        let clash = "Statically allocated circular buffers in program 17 clash with L1 buffers on core range [(x=0,y=0) - \
            (x=7,y=1)]. L1 buffer allocated at 188416 and static circular buffer region ends at 398688";
        let expected = Refusal {
            kind: FailureKind::Clash,
            space: Some(Space::Cb),
            needed: 398_688,
            available: Some(188_416),
            cores: [0xff_00ff, 0, 0, 0],
            ..NOTHING
        };
        assert_eq!(Refusal::parse(clash), Some(expected));
        let beyond = "Statically allocated dataflow buffers on core range [1-4 - 1-4] grow to 1600000 B which is \
            beyond max L1 size of 1499136 B";
        let expected = Refusal {
            kind: FailureKind::BeyondL1,
            space: Some(Space::Dfb),
            needed: 1_600_000,
            available: Some(1_499_136),
            cores: [0, 2, 0, 0],
            ..NOTHING
        };
        assert_eq!(Refusal::parse(beyond), Some(expected));
        let config =
            "Program size (114944) too large for kernel config buffer (70656) on TENSIX, 44288 B over:";
        let expected = Refusal {
            kind: FailureKind::KernelConfig,
            space: Some(Space::Kernel),
            needed: 114_944,
            available: Some(70656),
            ..NOTHING
        };
        assert_eq!(Refusal::parse(config), Some(expected));
        let trace = "Creating trace buffers of size 8192B on MeshDevice 0, but only 4096B is allocated for trace region.";
        let expected = Refusal {
            kind: FailureKind::TraceRegion,
            space: Some(Space::Trace),
            needed: 8192,
            available: Some(4096),
            ..NOTHING
        };
        assert_eq!(Refusal::parse(trace), Some(expected));
        assert_eq!(
            Refusal::parse("L1_SMALL only supports sharded allocations, got interleaved"),
            Some(NOTHING)
        );
    }

    #[test]
    fn other_texts_are_no_refusals() {
        assert_eq!(Refusal::parse("TT_FATAL @ tensor.cpp:12: shape.rank() == 2"), None);
        assert_eq!(Refusal::parse(""), None);
        let unusual = "Out of Memory: largest free block: 99999999999999999999999 B, core range (x=, y=)";
        let figures = Refusal::parse(unusual).map(|it| (it.needed, it.available, it.cores));
        assert_eq!(figures, Some((0, None, [0; 4])));
    }
}
