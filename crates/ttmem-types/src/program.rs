//! Numbers of programs.
//!
//! In records, 0 means that there is no program. A runtime counts its programs from 0: that first one has the last key.

/// The key in records of the program that its runtime gives this number.
#[inline]
pub const fn program_key(number: u32) -> u32 {
    if number == 0 { u32::MAX } else { number }
}

/// The runtime's number of the program with this key.
#[inline]
pub const fn program_number(key: u32) -> u32 {
    if key == u32::MAX { 0 } else { key }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_a_key_that_is_not_none() {
        for number in [0, 1, 7, u32::MAX - 1] {
            assert_ne!(program_key(number), 0);
            assert_eq!(program_number(program_key(number)), number);
        }
    }
}
