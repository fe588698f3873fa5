//! Helper processes with a tracker, as those of [`crate::puppet`] have a client of the old protocol.
//!
//! [`crate::helper`] starts and controls them. The requests are served here, those about the process itself in
//! `lifecycle`.
#![allow(unsafe_code)]
#![allow(
    clippy::unnecessary_wraps,
    clippy::unused_self,
    clippy::needless_pass_by_value,
    reason = "requests are dispatched to functions of one form"
)]

mod lifecycle;

use crate::helper::{self, Helper, Role};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::process::ExitStatus;
use std::time::{Duration, Instant};
use ttmem_client::compat::AllocationClient;
use ttmem_client::{
    AllocatorNumber, Banks, Buffer, BufferType, Chip, CoreRange, CoresNumber, Kernel, Placement, Program,
    Result, Space, Tracker,
};

/// Banks of DRAM of a producer's chip.
pub const BANKS: u64 = 12;
/// Begin of the kernel config buffer in each core of [`Producer::define_grid`].
pub const KERNEL_CONFIG: u64 = 0x8000;
/// End of the kernel config buffer; L1 can be used from here.
pub const UNRESERVED: u64 = 0x1_8000;
/// Begin of `L1_SMALL`.
pub const L1_SMALL: u64 = 0x15_0000;
/// End of L1.
pub const L1_END: u64 = 0x16_0000;

/// A rectangle of cores by two of its corners, each column and row.
pub type Corners = [(u8, u8); 2];

/// A kind of memory that a program can hold on its cores.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Held {
    /// A circular buffer.
    Cb,
    /// A circular buffer in the memory of an L1 buffer.
    View,
    /// A dataflow buffer.
    Dfb,
    /// A scratchpad.
    Scratch,
}

/// How a child process is created.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Fork {
    /// By the C library, which runs fork handlers.
    WithHandlers,
    /// By the system call, so that no fork handler runs.
    WithoutHandlers,
}

/// The tracker's status; see [`ttmem_client::Status`].
#[derive(Debug, Serialize, Deserialize)]
pub struct Status {
    /// The segment's file name, or empty.
    pub segment: String,
    /// Why there is no segment, or a smaller one.
    pub reason: String,
    /// Live allocations.
    pub live: u64,
    /// Live allocations that did not fit the table.
    pub unlisted: u64,
    /// Events that could not be recorded.
    pub lost: u64,
    /// Messages that wait for an old server.
    pub queued: u64,
}

/// Result of allocations in a signal handler.
#[derive(Debug, Serialize, Deserialize)]
pub struct Interrupted {
    /// Calls of the handler.
    pub calls: u64,
    /// Live allocations at the end.
    pub live: u64,
    /// Allocations that were lost.
    pub lost: u64,
}

/// A helper process with a tracker.
pub struct Producer {
    helper: Helper,
    /// The process's pid, in the test's namespace.
    pub pid: u32,
}

impl Producer {
    /// Starts a process whose segment goes into a folder, and defines one chip with an allocator.
    pub fn new(folder: &Path) -> Self {
        let mut producer = Self::start_through(&[], &[("TTMEM_SHM_DIR", folder.to_str().unwrap())]);
        producer.define(1);
        producer
    }

    /// Starts a process through another program, such as `["setpriv", "--reuid", "65534"]`, with more environment.
    pub fn start_through(through: &[&str], env: &[(&str, &str)]) -> Self {
        Self::start_copy(&std::env::current_exe().unwrap(), through, env)
    }

    /// Starts a process from a copy of the test binary.
    pub fn start_copy(exe: &Path, through: &[&str], env: &[(&str, &str)]) -> Self {
        let helper = Helper::start(exe, through, &Role::Producer, env);
        let pid = helper.pid();
        Self { helper, pid }
    }

    /// Sends a request that the tracker may refuse; the error is the name of the tracker's error.
    pub fn attempt<T: DeserializeOwned>(&mut self, request: &Request) -> std::result::Result<T, String> {
        self.helper.attempt(request)
    }

    /// Sends a request that the tracker must refuse; returns the name of the tracker's error.
    pub fn refusal(&mut self, request: &Request) -> String {
        self.attempt::<serde_json::Value>(request).unwrap_err()
    }

    /// Kills the process with SIGKILL, and waits until it is reaped.
    pub fn kill(&mut self) {
        self.helper.kill();
    }

    /// Makes the process exit by itself while `threads` threads report, and waits until it has.
    pub fn exit_cleanly(&mut self, threads: u64) {
        self.exit(threads);
        self.helper.wait();
    }

    /// Makes the process exit without exit handlers; returns its exit status and standard error.
    pub fn quit(mut self) -> (ExitStatus, String) {
        self.helper.quit()
    }
}

helper::requests!(Producer, Process {
    /// Does nothing: a reply shows that the process is alive.
    Ping: ping() -> ();
    /// Defines chips and one allocator over all of them; returns the allocator's number.
    Define: define(chips: u64) -> u64;
    /// Defines chips with a grid of cores, and one allocator over all of them; returns the allocator's number.
    DefineGrid: define_grid(chips: u64, columns: u8, rows: u8) -> u64;
    /// Allocates a buffer in DRAM; returns the event's sequence number, as every request that is an event does.
    Alloc: alloc(address: u64, bytes: u64) -> u64;
    /// Frees a buffer in DRAM.
    Free: free(address: u64) -> u64;
    /// Allocates a buffer in L1, with `bytes` on each of its cores: all cores, unless corners are given.
    AllocL1: alloc_l1(address: u64, bytes: u64, corners: Option<Corners>) -> u64;
    /// Allocates a buffer in `L1_SMALL` of all cores.
    AllocL1Small: alloc_l1_small(address: u64, bytes: u64) -> u64;
    /// Allocates a buffer in L1 that only its own cores have.
    AllocL1Core: alloc_l1_core(address: u64, bytes: u64, corners: Corners) -> u64;
    /// Reports that an allocation of DRAM failed, and the largest free block if it is known.
    OutOfMemory: out_of_memory(bytes: u64, largest_free: Option<u64>) -> u64;
    /// Marks a moment.
    Mark: mark(name: String, number: Option<u64>) -> u64;
    /// Allocates buffers of a size in DRAM, one after the other from [`FLOOD`] on.
    Flood: flood(count: u64, bytes: u64) -> ();
    /// Allocates and frees in one thread.
    Churn: churn(rounds: u64) -> ();
    /// Allocates and frees `events` times in all, about `per_second` times a second, in batches of 100.
    Pace: pace(events: u64, per_second: u64) -> ();
    /// Allocates and frees in several threads, each with its own addresses.
    Storm: storm(threads: u64, rounds: u64) -> ();
    /// Begins a program with a name.
    BeginProgram: begin_program(program: u32, name: String) -> u64;
    /// Defines a program's cores.
    Program: program(program: u32, corners: Corners) -> u64;
    /// Places a circular buffer of a program on four cores.
    Place: place(program: u32, address: u64, bytes: u64) -> u64;
    /// Places memory of a program, with `bytes` on each core.
    Hold: hold(program: u32, held: Held, address: u64, bytes: u64, corners: Corners) -> u64;
    /// Loads a kernel of a program, with `bytes` on each core.
    LoadKernel: load_kernel(program: u32, kernel: u64, bytes: u64, corners: Corners) -> u64;
    /// Dispatches a program.
    Dispatch: dispatch(program: u32) -> u64;
    /// Ends a program.
    EndProgram: end_program(program: u32) -> u64;
    /// Captures a trace with a number of dispatches.
    Trace: trace(trace: u32, dispatches: u64) -> u64;
    /// Replays a trace.
    ReplayTrace: replay_trace(trace: u32) -> u64;
    /// Releases a trace.
    EndTrace: end_trace(trace: u32) -> u64;
    /// Reports an allocation in DRAM by device number only.
    Report: report(device: u32, address: u64, bytes: u64) -> u64;
    /// Reports the free of a buffer in DRAM by device number only.
    ReportFree: report_free(device: u32, address: u64) -> u64;
    /// Defines a call site; returns its number.
    Site: site(site: String) -> u64;
    /// Returns the peak of DRAM.
    Peak: peak() -> u64;
    /// Resets the peak of DRAM to what is allocated now.
    ResetPeak: reset_peak() -> u64;
    /// Makes the tracker do what is pending: try again to create a segment, send queued messages.
    Refresh: refresh() -> ();
    /// Returns the tracker's status.
    Status: status() -> Status;
    /// Closes the allocator.
    CloseAllocator: close_allocator() -> u64;
    /// Closes the tracker.
    CloseTracker: close_tracker() -> ();
    /// Creates children that keep running; each holds a buffer, and tries to free one that the parent holds. Returns their
    /// pids.
    Children: children(how: Fork, count: u64, held_by_parent: u64) -> Vec<i32>;
    /// Kills children and waits until they are reaped.
    Reap: reap(pids: Vec<i32>) -> ();
    /// Exits, as a program that returns from `main`, while `threads` threads report.
    Exit: exit(threads: u64) -> ();
    /// Creates a child that exits, as a program that returns from `main`, and waits for it; it may allocate before.
    ExitInChild: exit_in_child(allocates: bool) -> ();
    /// Runs another program to its end.
    Spawn: spawn() -> ();
    /// Becomes another program with exec.
    Exec: exec() -> ();
    /// Closes all descriptors, as programs do that become daemons.
    CloseDescriptors: close_descriptors() -> ();
    /// Opens the workload's own files, with numbers that closed descriptors had.
    OpenFiles: open_files() -> ();
    /// Writes to these files; returns whether they contain what was written.
    FilesAreIntact: files_are_intact() -> bool;
    /// Allocates and frees while a signal handler interrupts that to allocate, too.
    Interrupt: interrupt(rounds: u64) -> Interrupted;
});

/// The address of the first buffer of [`Producer::flood`].
pub const FLOOD: u64 = 1 << 32;

/// The helper process's side.
pub(crate) struct Process {
    tracker: &'static Tracker,
    allocator: AllocatorNumber,
    files: Vec<std::fs::File>,
}

impl Process {
    pub(crate) fn new() -> Self {
        // Rust's runtime ignores SIGPIPE; programs in other languages do not.
        // SAFETY: nothing here relies on the handler that is replaced.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        Self { tracker: Tracker::global(), allocator: AllocatorNumber::new(0), files: Vec::new() }
    }

    /// Another handle to the tracker and the allocator, for another thread.
    fn clone_for_thread(&self) -> Self {
        Self { tracker: self.tracker, allocator: self.allocator, files: Vec::new() }
    }

    fn cores(&self, [from, to]: Corners) -> CoresNumber {
        self.tracker.define_cores(&[CoreRange::new(from, to)]).unwrap()
    }

    fn ping(&self) -> Result<()> {
        Ok(())
    }

    fn define(&mut self, chips: u64) -> Result {
        let chip = |n| Chip::default().unique_id(0x100 + n).index(n as u32);
        let chips: Vec<_> = (0..chips).map(|n| self.tracker.define_chip(&chip(n)).unwrap()).collect();
        let banks = [Banks::new(Space::Dram, BANKS as u16, 0, 1 << 40)];
        self.allocator = self.tracker.define_allocator(&chips, &banks)?;
        Ok(self.allocator.get().into())
    }

    fn define_grid(&mut self, chips: u64, columns: u8, rows: u8) -> Result {
        let cores = u32::from(columns) * u32::from(rows);
        let chip = |index| {
            Chip::default()
                .unique_id(0x100 + index)
                .index(index as u32)
                .dram_bytes(12 << 30)
                .cores(cores)
                .l1_bytes_per_core(L1_END)
                .kernel_config(KERNEL_CONFIG as u32)
                .unreserved(UNRESERVED as u32)
                .grid((columns, rows))
        };
        let chips: Vec<_> = (0..chips).map(|n| self.tracker.define_chip(&chip(n)).unwrap()).collect();
        let banks = [
            Banks::new(Space::Dram, BANKS as u16, 0, 1 << 40),
            Banks::new(Space::L1, cores as u16, UNRESERVED, L1_SMALL - UNRESERVED),
            Banks::new(Space::L1Small, cores as u16, L1_SMALL, L1_END - L1_SMALL),
        ];
        self.allocator = self.tracker.define_allocator(&chips, &banks)?;
        Ok(self.allocator.get().into())
    }

    fn alloc(&self, address: u64, bytes: u64) -> Result {
        let buffer = Buffer::new(self.allocator, Space::Dram, address, bytes);
        let bytes_per_bank = bytes.div_ceil(BANKS);
        self.tracker.alloc(&buffer.bytes_per_bank(bytes_per_bank).occupied(bytes))
    }

    fn free(&self, address: u64) -> Result {
        self.tracker.free(self.allocator, Space::Dram, address)
    }

    fn alloc_l1(&self, address: u64, bytes: u64, corners: Option<Corners>) -> Result {
        self.alloc_on_cores(Space::L1, address, bytes, corners)
    }

    fn alloc_l1_small(&self, address: u64, bytes: u64) -> Result {
        self.alloc_on_cores(Space::L1Small, address, bytes, None)
    }

    fn alloc_l1_core(&self, address: u64, bytes: u64, corners: Corners) -> Result {
        self.alloc_on_cores(Space::L1Core, address, bytes, Some(corners))
    }

    fn alloc_on_cores(&self, space: Space, address: u64, bytes: u64, corners: Option<Corners>) -> Result {
        let cores = corners.map_or(CoresNumber::NONE, |corners| self.cores(corners));
        let buffer = Buffer::new(self.allocator, space, address, bytes);
        self.tracker.alloc(&buffer.bytes_per_bank(bytes).occupied(bytes).cores(cores))
    }

    fn out_of_memory(&self, bytes: u64, largest_free: Option<u64>) -> Result {
        self.tracker.report_out_of_memory(&Buffer::new(self.allocator, Space::Dram, 0, bytes), largest_free)
    }

    fn mark(&self, name: String, number: Option<u64>) -> Result {
        self.tracker.mark(&name, number)
    }

    fn flood(&self, count: u64, bytes: u64) -> Result<()> {
        (0..count).try_for_each(|n| self.alloc(FLOOD + n * bytes, bytes).map(drop))
    }

    fn churn(&self, rounds: u64) -> Result<()> {
        for round in 0..rounds {
            let address = (1 << 45) + (round % 100) * 4096;
            self.alloc(address, 64)?;
            self.free(address)?;
        }
        Ok(())
    }

    fn pace(&self, events: u64, per_second: u64) -> Result<()> {
        const BATCH: u64 = 100;
        let begin = Instant::now();
        for batch in 0..events / BATCH {
            self.churn(BATCH / 2)?;
            let due = Duration::from_nanos((batch + 1) * BATCH * 1_000_000_000 / per_second);
            std::thread::sleep(due.saturating_sub(begin.elapsed()));
        }
        Ok(())
    }

    fn storm(&self, threads: u64, rounds: u64) -> Result<()> {
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let process = self.clone_for_thread();
                scope.spawn(move || {
                    for round in 0..rounds {
                        let address = ((thread + 1) << 40) + (round % 3) * 4096;
                        process.alloc(address, 64).unwrap();
                        process.free(address).unwrap();
                    }
                });
            }
        });
        Ok(())
    }

    fn begin_program(&self, program: u32, name: String) -> Result {
        self.tracker.begin_program(self.allocator, program, &name)
    }

    fn program(&self, program: u32, corners: Corners) -> Result {
        let program = Program::new(self.allocator, program);
        self.tracker.build_program(&program.cores(self.cores(corners)))
    }

    fn place(&self, program: u32, address: u64, bytes: u64) -> Result {
        self.hold(program, Held::Cb, address, bytes, [(0, 0), (3, 0)])
    }

    fn hold(&self, program: u32, held: Held, address: u64, bytes: u64, corners: Corners) -> Result {
        let (space, view) = match held {
            Held::Cb => (Space::Cb, false),
            Held::View => (Space::Cb, true),
            Held::Dfb => (Space::Dfb, false),
            Held::Scratch => (Space::Scratch, false),
        };
        let placed = Placement::new(self.allocator, program, space, address, bytes);
        self.tracker.place(&placed.cores(self.cores(corners)).view(view))
    }

    fn load_kernel(&self, program: u32, kernel: u64, bytes: u64, corners: Corners) -> Result {
        let kernel = Kernel::new(self.allocator, program, kernel, bytes);
        self.tracker.load_kernel(&kernel.cores(self.cores(corners)))
    }

    fn dispatch(&self, program: u32) -> Result {
        self.tracker.dispatch(self.allocator, program)
    }

    fn end_program(&self, program: u32) -> Result {
        self.tracker.end_program(self.allocator, program)
    }

    fn trace(&self, trace: u32, dispatches: u64) -> Result {
        self.tracker.capture_trace(self.allocator, trace, dispatches)
    }

    fn replay_trace(&self, trace: u32) -> Result {
        self.tracker.replay_trace(self.allocator, trace)
    }

    fn end_trace(&self, trace: u32) -> Result {
        self.tracker.release_trace(self.allocator, trace)
    }

    fn report(&self, device: u32, address: u64, bytes: u64) -> Result {
        AllocationClient::new(self.tracker).report_allocation(&[device], bytes, BufferType::Dram, address)
    }

    fn report_free(&self, device: u32, address: u64) -> Result {
        AllocationClient::new(self.tracker).report_deallocation(&[device], address)
    }

    fn site(&self, site: String) -> Result {
        self.tracker.define_site(&site).map(|number| number.get().into())
    }

    fn peak(&self) -> Result {
        self.tracker.peak(self.allocator, Space::Dram)
    }

    fn reset_peak(&self) -> Result {
        self.tracker.reset_peak(self.allocator, Space::Dram)
    }

    fn refresh(&self) -> Result<()> {
        self.tracker.refresh();
        Ok(())
    }

    fn status(&self) -> Result<Status> {
        let status = self.tracker.status();
        Ok(Status {
            segment: status.segment.unwrap_or_default(),
            reason: status.reason.unwrap_or_default(),
            live: status.live,
            unlisted: status.unlisted,
            lost: status.lost,
            queued: status.queued,
        })
    }

    fn close_allocator(&self) -> Result {
        self.tracker.close_allocator(self.allocator)
    }

    fn close_tracker(&self) -> Result<()> {
        self.tracker.close();
        Ok(())
    }
}
