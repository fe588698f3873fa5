//! Another process with a tracker in it, as [`crate::puppet`] has a client of the old protocol.
//!
//! How the process is started and controlled is in [`crate::helper`].
#![allow(unsafe_code)]
#![allow(
    clippy::unnecessary_wraps,
    clippy::unused_self,
    clippy::needless_pass_by_value,
    reason = "requests are dispatched to functions of one form"
)]

use crate::helper::{self, Helper, Role};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::process::ExitStatus;
use ttmem_client::compat::AllocationClient;
use ttmem_client::{
    AllocatorNumber, Banks, Buffer, BufferType, Chip, CoreRange, CoresNumber, Kernel, Placement, Program,
    Result, Space, Tracker,
};

/// Banks of its DRAM.
pub const BANKS: u64 = 12;
/// Where the kernel config buffer begins in each of its cores, if those are laid out.
pub const KERNEL_CONFIG: u64 = 0x8000;
/// Where it ends, and L1 can be used.
pub const UNRESERVED: u64 = 0x1_8000;
/// Where the reserved top begins.
pub const L1_SMALL: u64 = 0x15_0000;
/// Where L1 ends.
pub const L1_END: u64 = 0x16_0000;

/// A rectangle of cores by two of its corners: column and row.
pub type Corners = [(u8, u8); 2];

/// What a program can hold on its cores.
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

/// How a child is made.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Fork {
    /// By the C library, which runs the handlers that were registered for that.
    WithHandlers,
    /// By the system call, so that no handler runs.
    WithoutHandlers,
}

/// What the tracker says of itself; see [`ttmem_client::Status`].
#[derive(Debug, Serialize, Deserialize)]
pub struct Status {
    /// The segment's file name, or nothing.
    pub segment: String,
    /// Why there is none, or a smaller one.
    pub reason: String,
    /// Live allocations.
    pub live: u64,
    /// Of these, how many did not fit the table.
    pub unlisted: u64,
    /// Events that could not be recorded.
    pub lost: u64,
    /// Messages that wait for an old server.
    pub queued: u64,
}

/// What became of allocations in a signal handler.
#[derive(Debug, Serialize, Deserialize)]
pub struct Interrupted {
    /// Calls of the handler.
    pub calls: u64,
    /// Allocations that are live at the end.
    pub live: u64,
    /// Allocations that were lost.
    pub lost: u64,
}

/// A process with a tracker, seen from the test.
pub struct Producer {
    helper: Helper,
    /// The pid of the process with the tracker in it, as seen from here.
    pub pid: u32,
}

impl Producer {
    /// Starts a process whose segment goes into a folder, and defines one chip with an allocator.
    pub fn new(folder: &Path) -> Self {
        let mut producer = Self::by(&[], &[("TTMEM_SHM_DIR", folder.to_str().unwrap())]);
        producer.define(1);
        producer
    }

    /// Starts a process through another program, as `["setpriv", "--reuid", "65534"]`, with more environment.
    pub fn by(through: &[&str], env: &[(&str, &str)]) -> Self {
        Self::of(&std::env::current_exe().unwrap(), through, env)
    }

    /// Starts a process of a copy of the test binary.
    pub fn of(exe: &Path, through: &[&str], env: &[(&str, &str)]) -> Self {
        let helper = Helper::start(exe, through, &Role::Producer, env);
        let pid = helper.pid();
        Self { helper, pid }
    }

    /// Sends a request that the tracker may refuse; the error is its name then.
    pub fn attempt<T: DeserializeOwned>(&mut self, request: &Request) -> std::result::Result<T, String> {
        self.helper.attempt(request)
    }

    /// Sends a request that the tracker must refuse; returns the name of its error.
    pub fn refusal(&mut self, request: &Request) -> String {
        self.attempt::<serde_json::Value>(request).unwrap_err()
    }

    /// kill -9, and wait until the kernel has reaped it.
    pub fn kill(&mut self) {
        self.helper.kill();
    }

    /// Has it exit by itself while so many threads report, and waits until it has.
    pub fn exit_cleanly(&mut self, threads: u64) {
        self.exit(threads);
        self.helper.wait();
    }

    /// Lets it exit without exit handlers; returns how it did and what it wrote to standard error.
    pub fn quit(mut self) -> (ExitStatus, String) {
        self.helper.quit()
    }
}

helper::requests!(Producer, Process {
    /// Does nothing: the process is alive if it is answered.
    Ping: ping() -> ();
    /// Defines so many chips and one allocator over all of them; returns its number.
    Define: define(chips: u64) -> u64;
    /// Defines the same with laid-out cores: chips, columns, rows.
    DefineGrid: define_grid(chips: u64, columns: u8, rows: u8) -> u64;
    /// Allocates a buffer in DRAM; returns the event's sequence number, as every request does that is an event.
    Alloc: alloc(address: u64, bytes: u64) -> u64;
    /// Frees a buffer in DRAM.
    Free: free(address: u64) -> u64;
    /// Allocates a buffer in L1, of so many bytes on each of its cores: all, unless corners are given.
    AllocL1: alloc_l1(address: u64, bytes: u64, corners: Option<Corners>) -> u64;
    /// Allocates a buffer in the small L1 region of all cores.
    AllocL1Small: alloc_l1_small(address: u64, bytes: u64) -> u64;
    /// Reports that an allocation of so many bytes of DRAM failed, and the largest free block if it is known.
    OutOfMemory: out_of_memory(bytes: u64, largest_free: Option<u64>) -> u64;
    /// Allocates so many buffers of a size in DRAM, one behind the other from [`FLOOD`] on.
    Flood: flood(count: u64, bytes: u64) -> ();
    /// Allocates and frees in one thread, so many times.
    Churn: churn(rounds: u64) -> ();
    /// Allocates and frees in so many threads, each its own addresses, so many times each.
    Storm: storm(threads: u64, rounds: u64) -> ();
    /// Begins a program under a name.
    BeginProgram: begin_program(program: u32, name: String) -> u64;
    /// Defines a program's cores.
    Program: program(program: u32, corners: Corners) -> u64;
    /// Places a circular buffer of a program on four cores.
    Place: place(program: u32, address: u64, bytes: u64) -> u64;
    /// Places what a program holds, so many bytes on each core.
    Hold: hold(program: u32, held: Held, address: u64, bytes: u64, corners: Corners) -> u64;
    /// Loads a kernel of a program, so many bytes on each core.
    LoadKernel: load_kernel(program: u32, kernel: u64, bytes: u64, corners: Corners) -> u64;
    /// Dispatches a program.
    Dispatch: dispatch(program: u32) -> u64;
    /// Ends a program.
    EndProgram: end_program(program: u32) -> u64;
    /// Captures a trace of so many dispatches.
    Trace: trace(trace: u32, dispatches: u64) -> u64;
    /// Replays a trace.
    ReplayTrace: replay_trace(trace: u32) -> u64;
    /// Releases a trace.
    EndTrace: end_trace(trace: u32) -> u64;
    /// Reports an allocation in DRAM by device number only.
    Report: report(device: u32, address: u64, bytes: u64) -> u64;
    /// Reports that it was freed.
    ReportFree: report_free(device: u32, address: u64) -> u64;
    /// Defines a call site; returns its number.
    Site: site(site: String) -> u64;
    /// Returns the peak of DRAM.
    Peak: peak() -> u64;
    /// Lets the peak of DRAM begin anew.
    ResetPeak: reset_peak() -> u64;
    /// Lets the tracker do what waits: try for a segment again, send what is queued.
    Refresh: refresh() -> ();
    /// Returns what the tracker says of itself.
    Status: status() -> Status;
    /// Closes the allocator.
    CloseAllocator: close_allocator() -> u64;
    /// Closes the tracker.
    CloseTracker: close_tracker() -> ();
    /// Makes children that stay; each holds a buffer, and tries to free one that the parent holds. Returns their pids.
    Children: children(how: Fork, count: u64, held_by_parent: u64) -> Vec<i32>;
    /// Kills children and waits until they are gone.
    Reap: reap(pids: Vec<i32>) -> ();
    /// Exits, as a program that returns from `main`, while so many threads report.
    Exit: exit(threads: u64) -> ();
    /// Makes a child that exits, as a program that returns from `main`, and waits for it; it may allocate before.
    ExitInChild: exit_in_child(allocates: bool) -> ();
    /// Runs another program to its end.
    Spawn: spawn() -> ();
    /// Goes on as another program.
    Exec: exec() -> ();
    /// Closes all descriptors, as programs do that become daemons.
    CloseDescriptors: close_descriptors() -> ();
    /// Opens files of the workload's own, where other descriptors were.
    OpenFiles: open_files() -> ();
    /// Writes to these files; returns whether they hold what was written.
    FilesAreIntact: files_are_intact() -> bool;
    /// Allocates and frees so many times while a signal handler interrupts that to allocate, too.
    Interrupt: interrupt(rounds: u64) -> Interrupted;
});

/// The address of the first buffer of [`Producer::flood`].
pub const FLOOD: u64 = 1 << 32;

/// The process itself.
pub(crate) struct Process {
    tracker: &'static Tracker,
    allocator: AllocatorNumber,
    files: Vec<std::fs::File>,
}

impl Process {
    pub(crate) fn new() -> Self {
        // As in programs that are not written in Rust.
        // SAFETY: no handler is replaced that anything here relies on.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        Self { tracker: Tracker::global(), allocator: AllocatorNumber::new(0), files: Vec::new() }
    }

    /// The same tracker and allocator, for another thread.
    fn again(&self) -> Self {
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

    fn alloc_on_cores(&self, space: Space, address: u64, bytes: u64, corners: Option<Corners>) -> Result {
        let cores = corners.map_or(CoresNumber::NONE, |corners| self.cores(corners));
        let buffer = Buffer::new(self.allocator, space, address, bytes);
        self.tracker.alloc(&buffer.bytes_per_bank(bytes).occupied(bytes).cores(cores))
    }

    fn out_of_memory(&self, bytes: u64, largest_free: Option<u64>) -> Result {
        self.tracker.report_out_of_memory(&Buffer::new(self.allocator, Space::Dram, 0, bytes), largest_free)
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

    fn storm(&self, threads: u64, rounds: u64) -> Result<()> {
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let process = self.again();
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

    fn children(&self, how: Fork, count: u64, held_by_parent: u64) -> Result<Vec<i32>> {
        let mut pids = Vec::new();
        for n in 0..count {
            let (result, report) = rustix::pipe::pipe().unwrap();
            // SAFETY: the child uses the tracker, which is made for that, and calls that are safe after a fork.
            let pid = unsafe {
                let pid = match how {
                    Fork::WithHandlers => libc::fork(),
                    Fork::WithoutHandlers => libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) as i32,
                };
                if pid == 0 {
                    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                    let held = self.alloc(0x10_0000 + n, 100 + n).is_ok();
                    let freed = self.free(held_by_parent) == Err(ttmem_client::Fault::InheritedFree);
                    let _ = rustix::io::write(&report, &[u8::from(held) + u8::from(freed)]);
                    loop {
                        libc::pause();
                    }
                }
                pid
            };
            let mut word = [0];
            rustix::io::read(&result, &mut word).unwrap();
            assert_eq!(word, [2], "a child could not use the tracker");
            pids.push(pid);
        }
        Ok(pids)
    }

    fn reap(&self, pids: Vec<i32>) -> Result<()> {
        pids.into_iter().for_each(helper::reap);
        Ok(())
    }

    fn exit(&self, threads: u64) -> Result<()> {
        for thread in 0..threads {
            let process = self.again();
            std::thread::spawn(move || {
                while process.alloc((thread + 1) << 36, 64).and(process.free((thread + 1) << 36)).is_ok() {}
            });
        }
        helper::send(&helper::reply(Result::Ok(())));
        std::process::exit(0);
    }

    fn exit_in_child(&self, allocates: bool) -> Result<()> {
        // SAFETY: the child uses the tracker, which is made for that, and exits; this process has one thread.
        unsafe {
            match libc::fork() {
                0 => {
                    if allocates {
                        self.alloc(4096, 64).unwrap();
                    }
                    libc::exit(0);
                }
                child => assert_eq!(libc::waitpid(child, std::ptr::null_mut(), 0), child),
            }
        }
        Ok(())
    }

    fn spawn(&self) -> Result<()> {
        std::process::Command::new("true").status().unwrap();
        Ok(())
    }

    fn exec(&self) -> Result<()> {
        use std::os::unix::process::CommandExt;
        helper::send(&helper::reply(Result::Ok(())));
        panic!("{}", std::process::Command::new("sleep").arg("1000").exec());
    }

    fn close_descriptors(&self) -> Result<()> {
        for fd in 3..2000 {
            // SAFETY: that the owners of these descriptors lose them is the purpose.
            unsafe { libc::close(fd) };
        }
        Ok(())
    }

    fn open_files(&mut self) -> Result<()> {
        self.files = (0..8).map(|_| tempfile::tempfile().unwrap()).collect();
        Ok(())
    }

    fn files_are_intact(&mut self) -> Result<bool> {
        Ok(self.files.iter_mut().all(|file| {
            file.write_all(b"mine").is_ok()
                && file.seek(SeekFrom::Start(0)).is_ok()
                && std::io::read_to_string(&*file).is_ok_and(|text| text == "mine")
        }))
    }

    fn interrupt(&self, rounds: u64) -> Result<Interrupted> {
        static ALLOCATOR: std::sync::OnceLock<AllocatorNumber> = std::sync::OnceLock::new();
        static CALLS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        extern "C" fn handle(_: i32) {
            let n = CALLS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let allocator = ALLOCATOR.get().copied().unwrap();
            let process = Process { tracker: Tracker::global(), allocator, files: Vec::new() };
            let _ = process.alloc((1 << 50) + n, 1);
        }
        let _ = ALLOCATOR.set(self.allocator);
        let period = libc::timeval { tv_sec: 0, tv_usec: 100 };
        let timer = libc::itimerval { it_interval: period, it_value: period };
        let none = libc::timeval { tv_sec: 0, tv_usec: 0 };
        // SAFETY: the handler calls the tracker only.
        unsafe {
            libc::signal(libc::SIGALRM, handle as extern "C" fn(i32) as libc::sighandler_t);
            libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut());
        }
        for _ in 0..rounds {
            self.alloc(1 << 51, 64)?;
            self.free(1 << 51)?;
        }
        // SAFETY: as above.
        unsafe {
            let off = libc::itimerval { it_interval: none, it_value: none };
            libc::setitimer(libc::ITIMER_REAL, &raw const off, std::ptr::null_mut());
        }
        // The handler may have run in another thread, and may still wait for its turn there.
        std::thread::sleep(std::time::Duration::from_millis(50));
        let status = self.tracker.status();
        let calls = CALLS.load(std::sync::atomic::Ordering::Relaxed);
        Ok(Interrupted { calls, live: status.live, lost: status.lost })
    }
}
