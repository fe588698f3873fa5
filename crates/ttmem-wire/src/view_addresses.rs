//! The addresses of a program's views, which may differ at every dispatch, within the record of that dispatch.

use crate::record::Record;

/// Addresses of up to [`ViewAddresses::MOST`] views of a program in L1, in the fields `id` and `bytes_per_bank` of its records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct ViewAddresses([u64; 2]);

impl ViewAddresses {
    /// Most addresses.
    pub const MOST: usize = 7;
    /// Bits of one address, in units of [`ViewAddresses::UNIT`] bytes: enough for 2 MiB.
    pub const BITS: usize = 17;
    /// Every address is a multiple of this.
    pub const UNIT: u64 = 16;

    /// Returns the addresses in these words, of which the lowest bits have the first one.
    #[inline]
    pub const fn from_words(words: [u64; 2]) -> Self {
        Self(words)
    }

    /// Returns the words.
    #[inline]
    pub const fn to_words(self) -> [u64; 2] {
        self.0
    }

    /// Returns whether there is no address.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.0 == [0; 2]
    }

    fn bits(self) -> u128 {
        u128::from(self.0[0]) | u128::from(self.0[1]) << 64
    }

    /// Returns an address by the number of its view; `None` if there is none.
    pub fn get(self, number: usize) -> Option<u64> {
        let unit = self.bits() >> (number.min(Self::MOST) * Self::BITS) & ((1 << Self::BITS) - 1);
        (unit != 0 && number < Self::MOST).then_some(unit as u64 * Self::UNIT)
    }

    /// Sets the address of a view. Returns `false` if it cannot be stored.
    #[must_use]
    pub fn set(&mut self, number: usize, address: u64) -> bool {
        let unit = address / Self::UNIT;
        if number >= Self::MOST || unit == 0 || unit >> Self::BITS != 0 || address % Self::UNIT != 0 {
            return false;
        }
        let shift = number * Self::BITS;
        let bits = self.bits() & !(((1 << Self::BITS) - 1) << shift) | u128::from(unit) << shift;
        self.0 = [bits as u64, (bits >> 64) as u64];
        true
    }
}

impl Record {
    /// Returns the addresses of views in the record of a program.
    #[inline]
    pub fn view_addresses(&self) -> ViewAddresses {
        ViewAddresses([self.id.get(), self.bytes_per_bank.get()])
    }

    /// Returns the record of a program with other addresses of views.
    #[inline]
    #[must_use]
    pub fn with_view_addresses(self, addresses: ViewAddresses) -> Self {
        let [id, bytes_per_bank] = addresses.0;
        Self { id: id.into(), bytes_per_bank: bytes_per_bank.into(), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_is_stored_and_replaced() {
        let mut all = ViewAddresses::default();
        assert!(all.is_empty());
        for number in 0..ViewAddresses::MOST {
            assert_eq!(all.get(number), None);
            assert!(all.set(number, 0x1f_fff0 - 16 * number as u64));
        }
        assert!(all.set(3, 0x19d60));
        let found: Vec<_> = (0..=ViewAddresses::MOST).map(|number| all.get(number)).collect();
        let expected = [0x1f_fff0, 0x1f_ffe0, 0x1f_ffd0, 0x19d60, 0x1f_ffb0, 0x1f_ffa0, 0x1f_ff90];
        assert_eq!(found[..ViewAddresses::MOST], expected.map(Some));
        assert_eq!(found[ViewAddresses::MOST], None);
        assert_eq!(ViewAddresses::from_words(all.to_words()), all);
    }

    #[test]
    fn unsuitable_addresses_are_refused() {
        let mut all = ViewAddresses::default();
        for (number, address) in [(0, 0), (0, 8), (0, 1 << 21), (0, u64::MAX), (ViewAddresses::MOST, 16)] {
            assert!(!all.set(number, address), "{number} {address:#x}");
        }
        assert!(all.is_empty());
    }
}
