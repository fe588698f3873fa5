//! JSON that is safe to print: characters that could change how a terminal shows other text are written as escapes.

use serde::Serialize;
use std::fmt::Write;
use std::io;
use ttmem_core::is_unprintable;

/// The first character that JSON need not escape although it is unprintable.
const DELETE: u8 = 0x7f;

/// Serialises a value as one line of JSON.
pub fn to_vec(value: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    write(value, &mut bytes)?;
    Ok(bytes)
}

/// Appends a value as one line of JSON.
pub fn write(value: &impl Serialize, bytes: &mut Vec<u8>) -> serde_json::Result<()> {
    let begin = bytes.len();
    serde_json::to_writer(&mut *bytes, value)?;
    escape(bytes, begin);
    Ok(())
}

/// Writes a value as one line of JSON, without keeping it.
pub fn write_to(value: &impl Serialize, to: &mut dyn io::Write) -> serde_json::Result<()> {
    serde_json::to_writer(Escaping(to), value)
}

/// Escapes what is written. Whole characters must be written at a time, as serialisers do.
struct Escaping<'a>(&'a mut dyn io::Write);

impl io::Write for Escaping<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.iter().all(|&byte| byte < DELETE) {
            return self.0.write(bytes);
        }
        let mut escaped = bytes.to_vec();
        escape(&mut escaped, 0);
        self.0.write_all(&escaped)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Writes unprintable characters of JSON from `begin` on as escapes, which changes no value. Only strings can have such characters:
/// line breaks between values stay.
pub fn escape(bytes: &mut Vec<u8>, begin: usize) {
    if bytes[begin..].iter().all(|&byte| byte < DELETE) {
        return;
    }
    let rest = bytes.split_off(begin);
    let mut text = String::with_capacity(rest.len() + 64);
    for c in String::from_utf8_lossy(&rest).chars() {
        if u32::from(c) >= u32::from(DELETE) && is_unprintable(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing to a String cannot fail.
                let _ = write!(text, "\\u{unit:04x}");
            }
        } else {
            text.push(c);
        }
    }
    bytes.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unprintable_characters_are_escaped_without_loss() {
        let all: String = (0..=0x10_ffff).filter_map(char::from_u32).collect();
        let json = to_vec(&all).unwrap();
        let text = std::str::from_utf8(&json).unwrap();
        assert!(!text.chars().any(is_unprintable));
        assert_eq!(serde_json::from_slice::<String>(&json).unwrap(), all);
        assert!(text.contains('漢') && text.contains("\\u202e") && text.contains("\\udb40\\udc01"));
        let mut pretty = b"{\n  \"a\": \"\xc2\x9b\"\n}".to_vec();
        escape(&mut pretty, 0);
        assert_eq!(pretty, b"{\n  \"a\": \"\\u009b\"\n}");
    }
}
