//! Short text without heap memory.

use core::fmt::{self, Write};

/// Text of at most `N` bytes; what does not fit is cut.
#[derive(Clone, Copy)]
pub(crate) struct Text<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Text<N> {
    pub(crate) const fn new() -> Self {
        Self { bytes: [0; N], len: 0 }
    }

    pub(crate) fn push(&mut self, text: fmt::Arguments<'_>) {
        // `write_str` returns no error: it cuts.
        let _ = self.write_fmt(text);
    }

    pub(crate) fn as_str(&self) -> &str {
        core::str::from_utf8(&self.bytes[..self.len]).unwrap_or_default()
    }
}

impl<const N: usize> Write for Text<N> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut end = text.len().min(N - self.len);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.bytes[self.len..self.len + end].copy_from_slice(&text.as_bytes()[..end]);
        self.len += end;
        Ok(())
    }
}
