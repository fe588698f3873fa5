//! Numbers of what a tracker defined: plain values that can be copied, stored, and passed to other languages.

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
    /// Returns the chip with a number that the tracker returned before.
    ///
    /// ```
    /// # use ttmem_client::ChipNumber;
    /// assert_eq!(ChipNumber::new(3).get(), 3);
    /// ```
    #[inline]
    pub const fn new(number: u16) -> Self {
        Self(number)
    }

    /// Returns the number of the chip; 0: none.
    ///
    /// ```
    /// # use ttmem_client::ChipNumber;
    /// assert_eq!(ChipNumber::default().get(), 0);
    /// ```
    #[inline]
    pub const fn get(self) -> u16 {
        self.0
    }
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
    /// Returns the allocator with a number that the tracker returned before.
    ///
    /// ```
    /// # use ttmem_client::AllocatorNumber;
    /// assert_eq!(AllocatorNumber::new(3).get(), 3);
    /// ```
    #[inline]
    pub const fn new(number: u16) -> Self {
        Self(number)
    }

    /// Returns the number of the allocator; 0: none.
    ///
    /// ```
    /// # use ttmem_client::AllocatorNumber;
    /// assert_eq!(AllocatorNumber::default().get(), 0);
    /// ```
    #[inline]
    pub const fn get(self) -> u16 {
        self.0
    }
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

    /// Returns the core set with a number that the tracker returned before.
    ///
    /// ```
    /// # use ttmem_client::CoresNumber;
    /// assert_eq!(CoresNumber::new(3).get(), 3);
    /// ```
    #[inline]
    pub const fn new(number: u16) -> Self {
        Self(number)
    }

    /// Returns the number of the core set; 0: none.
    ///
    /// ```
    /// # use ttmem_client::CoresNumber;
    /// assert_eq!(CoresNumber::default().get(), 0);
    /// ```
    #[inline]
    pub const fn get(self) -> u16 {
        self.0
    }
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
    /// Returns the call site with a number that the tracker returned before.
    ///
    /// ```
    /// # use ttmem_client::SiteNumber;
    /// assert_eq!(SiteNumber::new(3).get(), 3);
    /// ```
    #[inline]
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Returns the number of the call site; 0: none.
    ///
    /// ```
    /// # use ttmem_client::SiteNumber;
    /// assert_eq!(SiteNumber::default().get(), 0);
    /// ```
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }
}
