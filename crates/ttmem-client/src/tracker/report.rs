//! Reports: buffers, programs, traces, and the runtime's own statistics.

use super::{ProgramGuard, Tracker};
use crate::agent;
use crate::types::{
    AllocatorNumber, AuditMark, Buffer, Kernel, Placement, Program, Result, Statistics, identifying_record,
};
use crate::writer::Writer;
use core::ptr;
use ttmem_types::{FailureKind, Fault, Space};
use ttmem_wire::ViewAddresses;
use ttmem_wire::failure::Failure;

/// Spaces that are searched for a buffer by its address alone.
pub(crate) const SEARCHED_SPACES: [Space; 5] =
    [Space::Dram, Space::L1, Space::L1Small, Space::Trace, Space::Host];

/// Buffers.
impl Tracker {
    /// Reports an allocated buffer.
    ///
    /// ```
    /// # use ttmem_client::{Buffer, Fault, Options, Space, Tracker};
    /// # let tracker = Tracker::new(&Options::default());
    /// let device = tracker.define_devices(&[0])?;
    /// let buffer = Buffer::new(device, Space::Dram, 0x10_0000, 4096);
    /// tracker.alloc(&buffer)?;
    /// // The address was allocated already: the free was missed.
    /// assert_eq!(tracker.alloc(&buffer), Err(Fault::StillHeld));
    /// # Ok::<(), ttmem_client::Fault>(())
    /// ```
    #[inline]
    pub fn alloc(&self, buffer: &Buffer) -> Result {
        #[cold]
        fn alloc_unusual(writer: &mut Writer, buffer: &Buffer) -> Result {
            if buffer.space.is_program() {
                return Err(Fault::WrongSpace);
            }
            writer.allocate(buffer.space, &buffer.record())
        }
        self.event(0, |writer| match writer.allocate_usual(buffer) {
            Some(sequence) => Ok(sequence),
            None => alloc_unusual(writer, buffer),
        })
    }

    /// Reports a freed buffer.
    ///
    /// ```
    /// # use ttmem_client::{Buffer, Fault, Options, Space, Tracker};
    /// # let tracker = Tracker::new(&Options::default());
    /// let device = tracker.define_devices(&[0])?;
    /// tracker.alloc(&Buffer::new(device, Space::Dram, 0x10_0000, 4096))?;
    /// tracker.free(device, Space::Dram, 0x10_0000)?;
    /// assert_eq!(tracker.free(device, Space::Dram, 0x10_0000), Err(Fault::DoubleFree));
    /// # Ok::<(), ttmem_client::Fault>(())
    /// ```
    #[inline]
    pub fn free(&self, allocator: AllocatorNumber, space: Space, address: u64) -> Result {
        #[cold]
        fn free_unusual(
            writer: &mut Writer,
            allocator: AllocatorNumber,
            space: Space,
            address: u64,
        ) -> Result {
            writer.free(&[space], &identifying_record(allocator, space, address))
        }
        self.event(0, |writer| match writer.free_usual(allocator.0, space, address) {
            Some(sequence) => Ok(sequence),
            None => free_unusual(writer, allocator, space, address),
        })
    }

    /// Reports a freed buffer in [`Space::L1Core`]. Other cores may have other buffers at its address, so all fields count.
    ///
    /// ```
    /// # use ttmem_client::{Buffer, CoreRange, Options, Space, Tracker};
    /// # let tracker = Tracker::new(&Options::default());
    /// let device = tracker.define_devices(&[0])?;
    /// let cores = tracker.define_cores(&[CoreRange::single(2, 3)])?;
    /// let buffer = Buffer::new(device, Space::L1Core, 0x2_0000, 4096).cores(cores);
    /// tracker.alloc(&buffer)?;
    /// tracker.free_on_cores(&buffer)?;
    /// # Ok::<(), ttmem_client::Fault>(())
    /// ```
    pub fn free_on_cores(&self, buffer: &Buffer) -> Result {
        self.event(0, |writer| writer.free(&[buffer.space], &buffer.record()))
    }

    /// Reports a freed buffer of which only the address is known: every space is searched.
    ///
    /// ```
    /// # use ttmem_client::{Buffer, Options, Space, Tracker};
    /// # let tracker = Tracker::new(&Options::default());
    /// let device = tracker.define_devices(&[0])?;
    /// tracker.alloc(&Buffer::new(device, Space::L1, 0x2_0000, 4096))?;
    /// tracker.free_anywhere(device, 0x2_0000)?;
    /// # Ok::<(), ttmem_client::Fault>(())
    /// ```
    pub fn free_anywhere(&self, allocator: AllocatorNumber, address: u64) -> Result {
        self.event(0, |writer| {
            writer.free(&SEARCHED_SPACES, &identifying_record(allocator, Space::Dram, address))
        })
    }

    /// Reports an allocation that failed for lack of memory, and the largest free block in a bank if it is known.
    ///
    /// ```
    /// # use ttmem_client::{Buffer, Options, Space, Tracker};
    /// # let tracker = Tracker::new(&Options::default().folder("/nonexistent"));
    /// let device = tracker.define_devices(&[0])?;
    /// tracker.report_out_of_memory(&Buffer::new(device, Space::Dram, 0, 512 << 20), Some(38 << 20))?;
    /// # Ok::<(), ttmem_client::Fault>(())
    /// ```
    pub fn report_out_of_memory(&self, buffer: &Buffer, largest_free_per_bank: Option<u64>) -> Result {
        let failure = Failure {
            requested: buffer.requested,
            needed: buffer.bytes_per_bank,
            available: largest_free_per_bank,
            site: buffer.site.0,
            ..Failure::new(FailureKind::OutOfMemory, Some(buffer.space), buffer.allocator.0)
        };
        self.event(0, |writer| writer.fail(&failure))
    }
}

/// Marks.
impl Tracker {
    /// Marks a moment of the program, such as the end of a step, with its number. If the agent tracks this process, the mark is among its
    /// events.
    ///
    /// ```
    /// # use ttmem_client::{Options, Tracker};
    /// # let tracker = Tracker::new(&Options::default());
    /// for step in 0..3 {
    ///     tracker.mark("step", Some(step))?;
    /// }
    /// # Ok::<(), ttmem_client::Fault>(())
    /// ```
    pub fn mark(&self, name: &str, number: Option<u64>) -> Result {
        let sequence = agent::mark(self, name, number)?;
        if sequence.is_none() && ptr::eq(self, Self::global()) {
            agent::mark_in_agent(name, number);
        }
        Ok(sequence.unwrap_or(0))
    }
}

/// Programs and traces.
impl Tracker {
    /// Reports a program that is built or rebuilt, and returns a guard that ends the program when it is dropped. What the program
    /// had registered is removed; what it registers follows.
    ///
    /// ```
    /// # use ttmem_client::{Options, Placement, Program, Space, Tracker};
    /// # let tracker = Tracker::new(&Options::default());
    /// let device = tracker.define_devices(&[0])?;
    /// let program = tracker.start_program(&Program::new(device, 7))?;
    /// tracker.place(&Placement::new(device, program.number(), Space::Cb, 0x2_0000, 4096))?;
    /// tracker.dispatch(device, program.number())?;
    /// program.end()?;
    /// # Ok::<(), ttmem_client::Fault>(())
    /// ```
    pub fn start_program(&self, program: &Program) -> Result<ProgramGuard<'_>> {
        ProgramGuard::start(self, program)
    }

    /// Reports a program that is built or rebuilt, which lasts until [`Tracker::end_program`]. For callers that keep numbers only;
    /// see [`Tracker::start_program`].
    ///
    /// ```
    /// # use ttmem_client::{Options, Program, Tracker};
    /// # let tracker = Tracker::new(&Options::default());
    /// let device = tracker.define_devices(&[0])?;
    /// tracker.build_program(&Program::new(device, 7))?;
    /// tracker.end_program(device, 7)?;
    /// # Ok::<(), ttmem_client::Fault>(())
    /// ```
    pub fn build_program(&self, program: &Program) -> Result {
        self.event(0, |writer| writer.build_program(program, ViewAddresses::default()))
    }

    /// Begins a program; what it registers follows. The name may be empty. Without this call, a program begins when it first
    /// registers memory.
    ///
    /// ```
    /// # use ttmem_client::{Options, Tracker};
    /// # let tracker = Tracker::new(&Options::default());
    /// let device = tracker.define_devices(&[0])?;
    /// tracker.begin_program(device, 7, "matmul")?;
    /// tracker.end_program(device, 7)?;
    /// # Ok::<(), ttmem_client::Fault>(())
    /// ```
    pub fn begin_program(&self, allocator: AllocatorNumber, program: u32, name: &str) -> Result {
        self.event(0, |writer| writer.begin_program(allocator.0, program, name))
    }

    /// Reports a dispatch: the program's memory becomes resident and replaces what was resident on its cores.
    ///
    /// ```
    /// # use ttmem_client::{Fault, Options, Tracker};
    /// # let tracker = Tracker::new(&Options::default());
    /// let device = tracker.define_devices(&[0])?;
    /// assert_eq!(tracker.dispatch(device, 7), Err(Fault::UnknownProgram));
    /// tracker.begin_program(device, 7, "matmul")?;
    /// tracker.dispatch(device, 7)?;
    /// # Ok::<(), ttmem_client::Fault>(())
    /// ```
    pub fn dispatch(&self, allocator: AllocatorNumber, program: u32) -> Result {
        let mut unknown_slot = u32::MAX;
        crate::agent::dispatch(self, allocator, program, &mut unknown_slot, None)
    }

    /// Ends a program and removes everything it registered.
    ///
    /// ```
    /// # use ttmem_client::{Fault, Options, Tracker};
    /// # let tracker = Tracker::new(&Options::default());
    /// let device = tracker.define_devices(&[0])?;
    /// tracker.begin_program(device, 7, "matmul")?;
    /// tracker.end_program(device, 7)?;
    /// assert_eq!(tracker.end_program(device, 7), Err(Fault::UnknownProgram));
    /// # Ok::<(), ttmem_client::Fault>(())
    /// ```
    pub fn end_program(&self, allocator: AllocatorNumber, program: u32) -> Result {
        self.event(0, |writer| writer.end_program(allocator.0, program))
    }

    /// Registers memory of a program on its cores.
    ///
    /// ```
    /// # use ttmem_client::{Options, Placement, Space, Tracker};
    /// # let tracker = Tracker::new(&Options::default());
    /// let device = tracker.define_devices(&[0])?;
    /// tracker.place(&Placement::new(device, 7, Space::Cb, 0x2_0000, 4096))?;
    /// # Ok::<(), ttmem_client::Fault>(())
    /// ```
    pub fn place(&self, placement: &Placement) -> Result {
        self.event(0, |writer| match placement.record() {
            Some(record) => writer.allocate(placement.space, &record),
            None => Err(Fault::WrongSpace),
        })
    }

    /// Removes memory that a program registered.
    ///
    /// ```
    /// # use ttmem_client::{Options, Placement, Space, Tracker};
    /// # let tracker = Tracker::new(&Options::default());
    /// let device = tracker.define_devices(&[0])?;
    /// let cb = Placement::new(device, 7, Space::Cb, 0x2_0000, 4096);
    /// tracker.place(&cb)?;
    /// tracker.displace(&cb)?;
    /// # Ok::<(), ttmem_client::Fault>(())
    /// ```
    pub fn displace(&self, placement: &Placement) -> Result {
        self.event(0, |writer| match placement.record() {
            Some(record) => writer.free(&[placement.space], &record),
            None => Err(Fault::WrongSpace),
        })
    }

    /// Registers a kernel of a program.
    ///
    /// ```
    /// # use ttmem_client::{Kernel, Options, Tracker};
    /// # let tracker = Tracker::new(&Options::default());
    /// let device = tracker.define_devices(&[0])?;
    /// tracker.load_kernel(&Kernel::new(device, 7, 1, 12_544))?;
    /// # Ok::<(), ttmem_client::Fault>(())
    /// ```
    pub fn load_kernel(&self, kernel: &Kernel) -> Result {
        self.event(0, |writer| writer.allocate(Space::Kernel, &kernel.record()))
    }

    /// Removes a kernel of a program.
    ///
    /// ```
    /// # use ttmem_client::{Kernel, Options, Tracker};
    /// # let tracker = Tracker::new(&Options::default());
    /// let device = tracker.define_devices(&[0])?;
    /// tracker.load_kernel(&Kernel::new(device, 7, 1, 12_544))?;
    /// tracker.unload_kernel(device, 1)?;
    /// # Ok::<(), ttmem_client::Fault>(())
    /// ```
    pub fn unload_kernel(&self, allocator: AllocatorNumber, id: u64) -> Result {
        self.event(0, |writer| {
            writer.free(&[Space::Kernel], &identifying_record(allocator, Space::Kernel, id))
        })
    }

    /// Reports a captured trace of so many dispatches.
    ///
    /// ```
    /// # use ttmem_client::{Options, Tracker};
    /// # let tracker = Tracker::new(&Options::default());
    /// let device = tracker.define_devices(&[0])?;
    /// tracker.capture_trace(device, 1, 10)?;
    /// tracker.replay_trace(device, 1)?;
    /// tracker.release_trace(device, 1)?;
    /// # Ok::<(), ttmem_client::Fault>(())
    /// ```
    pub fn capture_trace(&self, allocator: AllocatorNumber, trace: u32, dispatches: u64) -> Result {
        self.event(0, |writer| writer.capture_or_replay_trace(allocator.0, trace, dispatches))
    }

    /// Reports the replay of a trace. The caller reports as dispatches what is resident after it.
    ///
    /// ```
    /// # use ttmem_client::{Options, Tracker};
    /// # let tracker = Tracker::new(&Options::default());
    /// let device = tracker.define_devices(&[0])?;
    /// tracker.begin_program(device, 7, "matmul")?;
    /// tracker.capture_trace(device, 1, 10)?;
    /// tracker.replay_trace(device, 1)?;
    /// tracker.dispatch(device, 7)?;
    /// # Ok::<(), ttmem_client::Fault>(())
    /// ```
    pub fn replay_trace(&self, allocator: AllocatorNumber, trace: u32) -> Result {
        self.event(0, |writer| writer.capture_or_replay_trace(allocator.0, trace, 0))
    }

    /// Reports that a trace was released.
    ///
    /// ```
    /// # use ttmem_client::{Fault, Options, Tracker};
    /// # let tracker = Tracker::new(&Options::default());
    /// let device = tracker.define_devices(&[0])?;
    /// tracker.capture_trace(device, 1, 10)?;
    /// tracker.release_trace(device, 1)?;
    /// assert!(tracker.release_trace(device, 1).is_err());
    /// # Ok::<(), ttmem_client::Fault>(())
    /// ```
    pub fn release_trace(&self, allocator: AllocatorNumber, trace: u32) -> Result {
        self.event(0, |writer| writer.release_trace(allocator.0, trace))
    }
}

/// Statistics and peaks.
impl Tracker {
    /// Marks the moment before an allocator's own statistics are read, for [`Tracker::audit`].
    ///
    /// ```
    /// # use ttmem_client::{Options, Space, Statistics, Tracker};
    /// # let tracker = Tracker::new(&Options::default());
    /// let device = tracker.define_devices(&[0])?;
    /// let mark = tracker.begin_audit()?;
    /// let statistics = Statistics::default().free(1 << 30).largest_free_per_bank(1 << 30);
    /// tracker.audit(Some(mark), device, Space::Dram, statistics)?;
    /// # Ok::<(), ttmem_client::Fault>(())
    /// ```
    pub fn begin_audit(&self) -> Result<AuditMark> {
        self.event(AuditMark(0), |writer| Ok(AuditMark(writer.changes())))
    }

    /// Reports an allocator's own statistics. They are compared with what was reported if nothing was allocated or freed since
    /// `mark`; without a mark they must not be compared.
    ///
    /// ```
    /// # use ttmem_client::{Options, Space, Statistics, Tracker};
    /// # let tracker = Tracker::new(&Options::default());
    /// let device = tracker.define_devices(&[0])?;
    /// tracker.audit(None, device, Space::Dram, Statistics::default().free(1 << 30))?;
    /// # Ok::<(), ttmem_client::Fault>(())
    /// ```
    pub fn audit(
        &self,
        mark: Option<AuditMark>,
        allocator: AllocatorNumber,
        space: Space,
        statistics: Statistics,
    ) -> Result {
        self.event(0, |writer| writer.audit(mark.map(|mark| mark.0), allocator.0, space, statistics))
    }

    /// Returns the peak of allocated bytes since the beginning or the last [`Tracker::reset_peak`].
    ///
    /// ```
    /// # use ttmem_client::{Buffer, Options, Space, Tracker};
    /// # let tracker = Tracker::new(&Options::default());
    /// let device = tracker.define_devices(&[0])?;
    /// tracker.alloc(&Buffer::new(device, Space::Dram, 0x10_0000, 4096))?;
    /// tracker.free(device, Space::Dram, 0x10_0000)?;
    /// assert_eq!(tracker.peak(device, Space::Dram)?, 4096);
    /// # Ok::<(), ttmem_client::Fault>(())
    /// ```
    pub fn peak(&self, allocator: AllocatorNumber, space: Space) -> Result {
        self.event(0, |writer| writer.peak(allocator.0, space))
    }

    /// Resets the peak to the bytes allocated now.
    ///
    /// ```
    /// # use ttmem_client::{Buffer, Options, Space, Tracker};
    /// # let tracker = Tracker::new(&Options::default());
    /// let device = tracker.define_devices(&[0])?;
    /// tracker.alloc(&Buffer::new(device, Space::Dram, 0x10_0000, 4096))?;
    /// tracker.free(device, Space::Dram, 0x10_0000)?;
    /// tracker.reset_peak(device, Space::Dram)?;
    /// assert_eq!(tracker.peak(device, Space::Dram)?, 0);
    /// # Ok::<(), ttmem_client::Fault>(())
    /// ```
    pub fn reset_peak(&self, allocator: AllocatorNumber, space: Space) -> Result {
        self.event(0, |writer| writer.reset_peak(allocator.0, space))
    }
}
