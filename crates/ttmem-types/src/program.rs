//! Keys of programs in records.
//!
//! In records, 0 means that there is no program. A runtime counts its programs from 0, so its first one has the last key.

/// Returns the key in records of the program with this number in its runtime.
#[inline]
pub const fn program_key(number: u32) -> u32 {
    if number == 0 { u32::MAX } else { number }
}

/// Returns the number in its runtime of the program with this key.
#[inline]
pub const fn program_number(key: u32) -> u32 {
    if key == u32::MAX { 0 } else { key }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_a_nonzero_key() {
        for number in [0, 1, 7, u32::MAX - 1] {
            assert_ne!(program_key(number), 0);
            assert_eq!(program_number(program_key(number)), number);
        }
    }
}
