//! Values that end what they stand for when they are dropped.

use super::Tracker;
use crate::types::{AllocatorNumber, Banks, ChipNumber, Program, Result};
use crate::writer::Writer;
use core::sync::atomic::Ordering;
use ttmem_wire::ViewAddresses;

/// An open allocator, which is closed when this value is dropped: its allocations count as freed.
///
/// If the tracker was closed meanwhile, or in a forked child, dropping it does nothing.
///
/// ```
/// use ttmem_client::{Banks, Buffer, Chip, Options, Space, Tracker};
///
/// let tracker = Tracker::new(&Options::default());
/// let chip = tracker.define_chip(&Chip::default().unique_id(0x1234))?;
/// {
///     let device = tracker.open_allocator(&[chip], &[Banks::new(Space::Dram, 12, 0, 1 << 30)])?;
///     tracker.alloc(&Buffer::new(device.number(), Space::Dram, 0x10_0000, 4096))?;
///     assert_eq!(tracker.status().live, 1);
/// }
/// assert_eq!(tracker.status().live, 0);
/// # Ok::<(), ttmem_client::Fault>(())
/// ```
#[derive(Debug)]
#[must_use = "the allocator is closed when this value is dropped"]
pub struct AllocatorGuard<'t> {
    tracker: &'t Tracker,
    number: AllocatorNumber,
    generation: u64,
}

impl<'t> AllocatorGuard<'t> {
    pub(super) fn open(tracker: &'t Tracker, chips: &[ChipNumber], banks: &[Banks]) -> Result<Self> {
        let (number, generation) = tracker.event((0, 0), |writer| {
            let number = writer.define_allocator(banks, chips.iter().map(|chip| chip.0))?;
            Ok((number, tracker.generation.load(Ordering::Relaxed)))
        })?;
        Ok(Self { tracker, number: AllocatorNumber(number), generation })
    }

    /// Returns the number of the allocator, for reports.
    ///
    /// ```
    /// # use ttmem_client::{AllocatorNumber, Chip, Options, Tracker};
    /// # let tracker = Tracker::new(&Options::default());
    /// # let chip = tracker.define_chip(&Chip::default())?;
    /// let device = tracker.open_allocator(&[chip], &[])?;
    /// assert_ne!(device.number(), AllocatorNumber::default());
    /// # Ok::<(), ttmem_client::Fault>(())
    /// ```
    #[inline]
    pub fn number(&self) -> AllocatorNumber {
        self.number
    }

    /// Closes the allocator and frees all of its allocations.
    ///
    /// ```
    /// # use ttmem_client::{Chip, Options, Tracker};
    /// # let tracker = Tracker::new(&Options::default());
    /// # let chip = tracker.define_chip(&Chip::default())?;
    /// let device = tracker.open_allocator(&[chip], &[])?;
    /// device.close()?;
    /// # Ok::<(), ttmem_client::Fault>(())
    /// ```
    pub fn close(mut self) -> Result {
        self.release()
    }

    fn release(&mut self) -> Result {
        let number = core::mem::take(&mut self.number);
        self.tracker.end_own(self.generation, number, |writer| writer.close_allocator(number.0))
    }
}

impl Drop for AllocatorGuard<'_> {
    fn drop(&mut self) {
        let _ = self.release();
    }
}

/// A program, which ends when this value is dropped: what it registered is removed.
///
/// If the tracker was closed meanwhile, or in a forked child, dropping it does nothing.
///
/// ```
/// use ttmem_client::{Options, Placement, Program, Space, Tracker};
///
/// let tracker = Tracker::new(&Options::default());
/// let device = tracker.define_devices(&[0])?;
/// {
///     let program = tracker.start_program(&Program::new(device, 7))?;
///     tracker.place(&Placement::new(device, program.number(), Space::Cb, 0x2_0000, 4096))?;
///     tracker.dispatch(device, program.number())?;
///     assert_eq!(tracker.status().live, 1);
/// }
/// assert_eq!(tracker.status().live, 0);
/// # Ok::<(), ttmem_client::Fault>(())
/// ```
#[derive(Debug)]
#[must_use = "the program ends when this value is dropped"]
pub struct ProgramGuard<'t> {
    tracker: &'t Tracker,
    allocator: AllocatorNumber,
    number: u32,
    generation: u64,
}

impl<'t> ProgramGuard<'t> {
    pub(super) fn start(tracker: &'t Tracker, program: &Program) -> Result<Self> {
        let Program { allocator, number, .. } = *program;
        let none = (AllocatorNumber(0), 0);
        let (allocator, generation) = tracker.event(none, |writer| {
            writer.build_program(program, ViewAddresses::default())?;
            Ok((allocator, tracker.generation.load(Ordering::Relaxed)))
        })?;
        Ok(Self { tracker, allocator, number, generation })
    }

    /// Returns the number of the program, for reports.
    ///
    /// ```
    /// # use ttmem_client::{Options, Program, Tracker};
    /// # let tracker = Tracker::new(&Options::default());
    /// # let device = tracker.define_devices(&[0])?;
    /// let program = tracker.start_program(&Program::new(device, 7))?;
    /// assert_eq!(program.number(), 7);
    /// # Ok::<(), ttmem_client::Fault>(())
    /// ```
    #[inline]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Ends the program and removes everything it registered.
    ///
    /// ```
    /// # use ttmem_client::{Options, Program, Tracker};
    /// # let tracker = Tracker::new(&Options::default());
    /// # let device = tracker.define_devices(&[0])?;
    /// let program = tracker.start_program(&Program::new(device, 7))?;
    /// program.end()?;
    /// # Ok::<(), ttmem_client::Fault>(())
    /// ```
    pub fn end(mut self) -> Result {
        self.release()
    }

    fn release(&mut self) -> Result {
        let (allocator, number) = (core::mem::take(&mut self.allocator), self.number);
        self.tracker.end_own(self.generation, allocator, |writer| writer.end_program(allocator.0, number))
    }
}

impl Drop for ProgramGuard<'_> {
    fn drop(&mut self) {
        let _ = self.release();
    }
}

impl Tracker {
    /// Runs `end` for a guard of this generation. An allocator of 0 means that the guard was made while tracking was off, or that
    /// it was released before.
    fn end_own(
        &self,
        generation: u64,
        allocator: AllocatorNumber,
        end: impl FnOnce(&mut Writer) -> Result,
    ) -> Result {
        if allocator == AllocatorNumber::default() {
            return Ok(0);
        }
        self.event(
            0,
            |writer| {
                if self.generation.load(Ordering::Relaxed) == generation { end(writer) } else { Ok(0) }
            },
        )
    }
}
