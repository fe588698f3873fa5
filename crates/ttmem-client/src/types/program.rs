//! Programs, and what they register on their cores.

use super::{AllocatorNumber, CoresNumber, SiteNumber, identifying_record};
use ttmem_types::{KernelClass, Space, Uncertainty};
use ttmem_wire::record::{Record, flags};

/// A program that runs on some cores.
///
/// ```
/// use ttmem_client::{CoreRange, Options, Program, Tracker};
///
/// let tracker = Tracker::new(&Options::default());
/// let device = tracker.define_devices(&[0])?;
/// let cores = tracker.define_cores(&[CoreRange::new((0, 0), (7, 7))])?;
/// let program = tracker.start_program(&Program::new(device, 7).cores(cores))?;
/// tracker.dispatch(device, program.number())?;
/// # Ok::<(), ttmem_client::Fault>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Program {
    /// Allocator of its device or mesh.
    pub allocator: AllocatorNumber,
    /// Number chosen by the caller, not 0.
    pub number: u32,
    /// Core set it runs on; unknown: the cores of what it registers.
    pub cores: CoresNumber,
    /// Class.
    pub class: KernelClass,
    /// Short description, as a call site.
    pub site: SiteNumber,
}

impl Program {
    /// Returns an application program whose other properties are unknown.
    ///
    /// ```
    /// # use ttmem_client::{AllocatorNumber, KernelClass, Program};
    /// assert_eq!(Program::new(AllocatorNumber::new(1), 7).class, KernelClass::Application);
    /// ```
    #[inline]
    pub const fn new(allocator: AllocatorNumber, number: u32) -> Self {
        let class = KernelClass::Application;
        Self { allocator, number, cores: CoresNumber::NONE, class, site: SiteNumber(0) }
    }

    setters! {
        "Program::new(AllocatorNumber::new(1), 7)";
        /// Sets the core set that the program runs on.
        cores: CoresNumber = "CoresNumber::new(1)";
        /// Sets the class.
        class: KernelClass = "KernelClass::Fabric";
        /// Sets the description, a call site.
        site: SiteNumber = "SiteNumber::new(1)";
    }
}

/// Memory of a program on each core of a set: a circular buffer, a dataflow buffer or a scratchpad.
///
/// ```
/// use ttmem_client::{CoreRange, Options, Placement, Program, Space, Tracker};
///
/// let tracker = Tracker::new(&Options::default());
/// let device = tracker.define_devices(&[0])?;
/// let cores = tracker.define_cores(&[CoreRange::new((0, 0), (7, 7))])?;
/// let program = tracker.start_program(&Program::new(device, 7).cores(cores))?;
/// let cb = Placement::new(device, program.number(), Space::Cb, 0x2_0000, 4096).cores(cores);
/// tracker.place(&cb)?;
/// # Ok::<(), ttmem_client::Fault>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Placement {
    /// Allocator of the program's device or mesh.
    pub allocator: AllocatorNumber,
    /// Program number chosen by the caller; 0: none, and then residency is unknown.
    pub program: u32,
    /// [`Space::Cb`], [`Space::Dfb`] or [`Space::Scratch`].
    pub space: Space,
    /// Address on each core; if it is unplaced, a number that distinguishes it from others.
    pub address: u64,
    /// Bytes on each core.
    pub bytes: u64,
    /// Core set.
    pub cores: CoresNumber,
    /// Whether it is a view of a buffer; the buffer is counted.
    pub view: bool,
    /// Whether its address is unknown.
    pub unplaced: bool,
    /// Whether its size is an estimate.
    pub estimated: bool,
    /// Whether dispatches of its program are not reported, so that its residency is unknown.
    pub unfollowed: bool,
    /// Number of equal parts that the program has there, such as views of one buffer.
    pub copies: u32,
}

impl Placement {
    /// Returns memory of a program whose other properties are unknown.
    ///
    /// ```
    /// # use ttmem_client::{AllocatorNumber, CoresNumber, Placement, Space};
    /// let cb = Placement::new(AllocatorNumber::new(1), 7, Space::Cb, 0x2_0000, 4096);
    /// assert_eq!(cb.cores, CoresNumber::NONE);
    /// ```
    #[inline]
    pub const fn new(
        allocator: AllocatorNumber,
        program: u32,
        space: Space,
        address: u64,
        bytes: u64,
    ) -> Self {
        let cores = CoresNumber::NONE;
        let (view, unplaced, estimated, unfollowed) = (false, false, false, false);
        let copies = 1;
        Self {
            allocator,
            program,
            space,
            address,
            bytes,
            cores,
            view,
            unplaced,
            estimated,
            unfollowed,
            copies,
        }
    }

    setters! {
        "Placement::new(AllocatorNumber::new(1), 7, Space::Cb, 0x2_0000, 4096)";
        /// Sets the core set.
        cores: CoresNumber = "CoresNumber::new(1)";
        /// Sets whether the memory is a view of a buffer.
        view: bool = "true";
        /// Sets whether the address is unknown.
        unplaced: bool = "true";
        /// Sets whether the size is an estimate.
        estimated: bool = "true";
        /// Sets whether dispatches of the program are not reported.
        unfollowed: bool = "true";
        /// Sets the number of equal parts that the program has there.
        copies: u32 = "2";
    }

    /// Returns the record of the registration; `None` if the space is not one of programs.
    pub(crate) fn record(&self) -> Option<Record> {
        let fits = matches!(self.space, Space::Cb | Space::Dfb | Space::Scratch);
        let Self { unplaced, estimated, unfollowed, .. } = *self;
        let uncertainty = Uncertainty { unplaced, estimated, unfollowed };
        fits.then(|| Record {
            flags: (if self.view { flags::VIEW } else { 0 } | program_flags(uncertainty, self.program))
                .into(),
            cores: self.cores.0.into(),
            requested: self.bytes.into(),
            bytes_per_bank: self.bytes.into(),
            padding: self.copies.saturating_sub(1).into(),
            program: self.program.into(),
            ..identifying_record(self.allocator, self.space, self.address)
        })
    }
}

/// A kernel of a program.
///
/// ```
/// use ttmem_client::{CoreRange, Kernel, Options, Program, Tracker};
///
/// let tracker = Tracker::new(&Options::default());
/// let device = tracker.define_devices(&[0])?;
/// let cores = tracker.define_cores(&[CoreRange::new((0, 0), (7, 7))])?;
/// let program = tracker.start_program(&Program::new(device, 7).cores(cores))?;
/// tracker.load_kernel(&Kernel::new(device, program.number(), 1, 12_544).cores(cores))?;
/// tracker.unload_kernel(device, 1)?;
/// # Ok::<(), ttmem_client::Fault>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Kernel {
    /// Allocator of the program's device or mesh.
    pub allocator: AllocatorNumber,
    /// Program number chosen by the caller; 0: none, and then residency is unknown.
    pub program: u32,
    /// Id of the kernel, unique in its allocator.
    pub id: u64,
    /// Bytes on each of its cores; if the cores are unknown, in total.
    pub bytes: u64,
    /// Core set it runs on.
    pub cores: CoresNumber,
    /// Class.
    pub class: KernelClass,
    /// Whether its size is an estimate.
    pub estimated: bool,
    /// Whether dispatches of its program are not reported, so that its residency is unknown.
    pub unfollowed: bool,
}

impl Kernel {
    /// Returns a kernel of an application program whose other properties are unknown.
    ///
    /// ```
    /// # use ttmem_client::{AllocatorNumber, Kernel, KernelClass};
    /// assert_eq!(Kernel::new(AllocatorNumber::new(1), 7, 1, 12_544).class, KernelClass::Application);
    /// ```
    #[inline]
    pub const fn new(allocator: AllocatorNumber, program: u32, id: u64, bytes: u64) -> Self {
        let (cores, class) = (CoresNumber::NONE, KernelClass::Application);
        Self { allocator, program, id, bytes, cores, class, estimated: false, unfollowed: false }
    }

    setters! {
        "Kernel::new(AllocatorNumber::new(1), 7, 1, 12_544)";
        /// Sets the core set that the kernel runs on.
        cores: CoresNumber = "CoresNumber::new(1)";
        /// Sets the class.
        class: KernelClass = "KernelClass::Dispatch";
        /// Sets whether the size is an estimate.
        estimated: bool = "true";
        /// Sets whether dispatches of the program are not reported.
        unfollowed: bool = "true";
    }

    /// Returns the record of the registration.
    pub(crate) fn record(&self) -> Record {
        // Without cores, the size is the total over all of them.
        let bytes_per_bank = if self.cores == CoresNumber::NONE { 0 } else { self.bytes };
        let uncertainty =
            Uncertainty { unplaced: false, estimated: self.estimated, unfollowed: self.unfollowed };
        Record {
            flags: (flags::of_class(self.class) | program_flags(uncertainty, self.program)).into(),
            cores: self.cores.0.into(),
            requested: self.bytes.into(),
            bytes_per_bank: bytes_per_bank.into(),
            program: self.program.into(),
            ..identifying_record(self.allocator, Space::Kernel, self.id)
        }
    }
}

/// Returns the flags of program memory. Without an address or program, its residency is unknown.
fn program_flags(uncertainty: Uncertainty, program: u32) -> u16 {
    let unfollowed = uncertainty.unfollowed || uncertainty.unplaced || program == 0;
    flags::of_uncertainty(Uncertainty { unfollowed, ..uncertainty })
}
