//! Numbers of what a tracker defined: plain values that can be copied, stored, and passed to other languages.

/// Declares the constructor and the getter of a number type, each with an example in its documentation.
macro_rules! number {
    ($type:literal, $repr:ty, $item:literal) => {
        #[doc = concat!("Returns the ", $item, " with a number that the tracker returned before.")]
        ///
        /// ```
        #[doc = concat!("# use ttmem_client::", $type, ";")]
        #[doc = concat!("assert_eq!(", $type, "::new(3).get(), 3);")]
        /// ```
        #[inline]
        pub const fn new(number: $repr) -> Self {
            Self(number)
        }

        #[doc = concat!("Returns the number of the ", $item, "; 0: none.")]
        ///
        /// ```
        #[doc = concat!("# use ttmem_client::", $type, ";")]
        #[doc = concat!("assert_eq!(", $type, "::default().get(), 0);")]
        /// ```
        #[inline]
        pub const fn get(self) -> $repr {
            self.0
        }
    };
}

/// Number of a defined chip; the default is none.
///
/// ```
/// use ttmem_client::{Chip, ChipNumber, Options, Tracker};
///
/// let tracker = Tracker::new(&Options::default());
/// let chip = tracker.define_chip(&Chip::default().unique_id(0x1234))?;
/// assert_ne!(chip, ChipNumber::default());
/// # Ok::<(), ttmem_client::Fault>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ChipNumber(pub(crate) u16);

impl ChipNumber {
    number!("ChipNumber", u16, "chip");
}

/// Number of a defined allocator; the default is none.
///
/// ```
/// use ttmem_client::{AllocatorNumber, Options, Tracker};
///
/// let tracker = Tracker::new(&Options::default());
/// let device = tracker.define_devices(&[0])?;
/// assert_ne!(device, AllocatorNumber::default());
/// # Ok::<(), ttmem_client::Fault>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AllocatorNumber(pub(crate) u16);

impl AllocatorNumber {
    number!("AllocatorNumber", u16, "allocator");
}

/// Number of a defined core set; the default is unknown cores.
///
/// ```
/// use ttmem_client::{CoreRange, CoresNumber, Options, Tracker};
///
/// let tracker = Tracker::new(&Options::default());
/// let cores = tracker.define_cores(&[CoreRange::new((0, 0), (7, 7))])?;
/// assert_ne!(cores, CoresNumber::NONE);
/// # Ok::<(), ttmem_client::Fault>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CoresNumber(pub(crate) u16);

impl CoresNumber {
    /// Unknown cores.
    pub const NONE: Self = Self(0);

    number!("CoresNumber", u16, "core set");
}

/// Number of a defined call site; the default is an unknown call site.
///
/// ```
/// use ttmem_client::{Options, SiteNumber, Tracker};
///
/// let tracker = Tracker::new(&Options::default());
/// let site = tracker.define_site("model.py:42 forward")?;
/// assert_ne!(site, SiteNumber::default());
/// # Ok::<(), ttmem_client::Fault>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SiteNumber(pub(crate) u32);

impl SiteNumber {
    number!("SiteNumber", u32, "call site");
}
