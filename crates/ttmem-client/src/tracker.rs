//! The tracker: enabled or disabled, locked for one thread at a time, and separate in each forked process.
#![allow(unsafe_code)]

use crate::beside;
use crate::identity;
use crate::log;
use crate::memory::Guard;
use crate::text::Text;
use crate::types::{
    AllocatorNumber, Banks, Buffer, Chip, ChipNumber, CoreRange, CoresNumber, Fault, Kernel, Mark, Placement,
    Program, Result, SiteNumber, Space, Statistics, Status, named,
};
use crate::writer::{Settings, Writer};
use core::cell::UnsafeCell;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering, fence};
use rustix::time::ClockId;

/// Attempts to take the lock before the processor is yielded.
const SPINS: u32 = 200;
/// A thread that cannot take the lock for so long gives up: its owner is stuck.
const PATIENCE_NS: u64 = 10_000_000_000;

/// How events leave the process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// Through a segment.
    #[default]
    Segment,
    /// As messages to an old server on this socket.
    Legacy(String),
}

/// Settings of a tracker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Folder for segments. It must be in memory: a `tmpfs`.
    pub folder: String,
    /// Group that may read the segment.
    pub group: Option<u32>,
    /// Name of the writer, for display: `ttmem-agent 0.1.0`.
    pub writer: String,
    /// Name of the tracked runtime, for display: `ttnn 0.81.1`.
    pub runtime: String,
    /// How events leave the process.
    pub transport: Transport,
    /// Where to log problems: `stderr` or a file. Nothing is logged otherwise.
    pub log: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            folder: "/dev/shm".to_owned(),
            group: None,
            writer: concat!("ttmem-client ", env!("CARGO_PKG_VERSION")).to_owned(),
            runtime: String::new(),
            transport: Transport::Segment,
            log: None,
        }
    }
}

impl Options {
    /// Settings of the environment; `None` if it does not enable tracking.
    pub fn from_env() -> Option<Self> {
        let get = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let on = |name: &str| get(name).is_some_and(|value| value != "0");
        (on("TTMEM") || on("TT_ALLOC_TRACKING_ENABLED")).then(Self::as_env_says)
    }

    /// Settings of the environment, whether it enables tracking or not.
    pub fn as_env_says() -> Self {
        let get = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let mut options = Self::default();
        if let Some(folder) = get("TTMEM_SHM_DIR") {
            options.folder = folder;
        }
        options.group = get("TTMEM_GROUP").and_then(|group| group.parse().ok());
        options.log = get("TTMEM_LOG");
        if get("TTMEM_TRANSPORT").is_some_and(|value| value == "legacy") {
            let path = get("TTMEM_LEGACY_SOCKET");
            let path = path.unwrap_or_else(|| ttmem_wire::legacy::SOCKET_PATH.to_owned());
            options.transport = Transport::Legacy(path);
        }
        options
    }

    fn settings(&self) -> Settings {
        let mut settings = Settings {
            folder: Text::new(),
            group: self.group,
            writer: Text::new(),
            runtime: Text::new(),
            hooks: [0; 2],
            legacy: None,
        };
        // A path that is too long would be another one if it were cut.
        if self.folder.len() <= 200 {
            settings.folder.push(format_args!("{}", self.folder));
        }
        settings.writer.push(format_args!("{}", self.writer));
        settings.runtime.push(format_args!("{}", self.runtime));
        if let Transport::Legacy(path) = &self.transport {
            let mut text = Text::new();
            // As above; an empty path cannot be connected to.
            if path.len() <= 107 {
                text.push(format_args!("{path}"));
            }
            settings.legacy = Some(text);
        }
        settings
    }
}

/// Spaces that are searched for a buffer by its address alone.
pub(crate) const BUFFERS: [Space; 5] = [Space::Dram, Space::L1, Space::L1Small, Space::Trace, Space::Host];

/// Value of `Tracker::guard` before the environment is read.
const NOT_ASKED: *mut Guard = ptr::without_provenance_mut(1);

/// Records the device memory of a process. Methods may be called from any thread; while tracking is off they do nothing.
pub struct Tracker {
    /// Null: off. [`NOT_ASKED`]: the first use reads the environment.
    guard: AtomicPtr<Guard>,
    writer: UnsafeCell<Option<Writer>>,
    /// Reports that could not take the lock.
    shut_out: AtomicU64,
    /// Thread that kept the lock too long: no other thread waits for it again.
    stuck: AtomicU64,
    /// Address of the slots, possibly outdated: only prefetched, never read.
    table: AtomicPtr<crate::segment::Line>,
    /// Guard of a closed tracker, for reuse.
    spare: AtomicPtr<Guard>,
    /// Whether the agent tracks this process instead.
    yielded: AtomicBool,
    /// Whether the process exits: a segment that is created now would stay.
    ended: AtomicBool,
}

// SAFETY: `writer` is touched only by the thread whose number stands in the guard.
unsafe impl Sync for Tracker {}

static GLOBAL: Tracker = Tracker::behind(NOT_ASKED);

/// Ends the process's tracker when the process exits. The loader calls what is in this section after exit handlers and
/// destructors of C++ objects, which still close devices and free what is on them; a handler of our own would be called
/// before most of them.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = end_global;

extern "C" fn end_global() {
    GLOBAL.end();
}

/// Returns a number that is unique to this thread, without a system call.
#[inline]
fn me() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        let me: u64;
        // A thread-local variable would do, too, but in a shared library it costs a call.
        // SAFETY: by the processor's ABI the first word of a thread's own block is its address. It is only read.
        unsafe {
            core::arch::asm!("mov {}, fs:0", out(reg) me, options(nostack, pure, readonly, preserves_flags));
        }
        me
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        std::thread_local! {
            static ME: u8 = const { 0 };
        }
        ME.with(|me| ptr::from_ref(me).addr() as u64)
    }
}

impl Default for Tracker {
    fn default() -> Self {
        Self::off()
    }
}

impl Tracker {
    /// Returns the process's tracker. It is on if the environment enables it; see the crate's documentation.
    pub fn global() -> &'static Self {
        &GLOBAL
    }

    /// Returns a tracker that is off.
    pub const fn off() -> Self {
        Self::behind(ptr::null_mut())
    }

    const fn behind(guard: *mut Guard) -> Self {
        Self {
            guard: AtomicPtr::new(guard),
            writer: UnsafeCell::new(None),
            shut_out: AtomicU64::new(0),
            stuck: AtomicU64::new(0),
            table: AtomicPtr::new(ptr::null_mut()),
            spare: AtomicPtr::new(ptr::null_mut()),
            yielded: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        }
    }

    /// Returns a separate tracker, which is on.
    pub fn new(options: &Options) -> Self {
        let tracker = Self::off();
        tracker.enable(options);
        tracker
    }

    /// Enables tracking. The segment is created by the first event.
    pub fn enable(&self, options: &Options) {
        if let Some(to) = &options.log {
            log::start(to);
        }
        let known = self.guard.load(Ordering::Acquire);
        if !known.is_null() && known != NOT_ASKED || self.ended.load(Ordering::Acquire) {
            return;
        }
        let spare = self.spare.swap(ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: guards are never given back.
        let Some(guard) = (unsafe { spare.as_ref() }).or_else(Guard::new) else { return };
        let me = me();
        // No thread gets the lock before there is a writer. A thread that had it before it was closed releases it.
        while guard.owner.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed).is_err() {
            rustix::thread::sched_yield();
        }
        guard.pid.store(u64::from(identity::pid()), Ordering::Relaxed);
        let new = ptr::from_ref(guard).cast_mut();
        if self.guard.compare_exchange(known, new, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            guard.owner.store(0, Ordering::Release);
            self.spare.store(new, Ordering::Release);
            return;
        }
        // A linker takes from an archive only what is referred to.
        core::hint::black_box(&AT_EXIT);
        // SAFETY: we have the lock of the guard that all threads use from now on.
        unsafe { *self.writer.get() = Writer::new(&options.settings()) };
        guard.owner.store(0, Ordering::Release);
    }

    /// Enables the process's tracker, unless the agent tracks this process: then reports would be counted twice. It is disabled
    /// when the agent starts later. Returns whether it is on.
    pub fn enable_beside_agent(options: &Options) -> bool {
        extern "C" fn withdraw() {
            GLOBAL.yielded.store(true, Ordering::SeqCst);
            GLOBAL.forget_environment();
            GLOBAL.close();
        }
        if GLOBAL.yielded.load(Ordering::SeqCst) || beside::agent_is_at_work(withdraw) {
            withdraw();
            return false;
        }
        GLOBAL.enable(options);
        // The agent may have started meanwhile, when there was nothing to close.
        if GLOBAL.yielded.load(Ordering::SeqCst) {
            withdraw();
            return false;
        }
        GLOBAL.is_on()
    }

    /// Returns whether reports are recorded.
    pub fn is_on(&self) -> bool {
        self.find_guard().is_some()
    }

    #[inline]
    fn find_guard(&self) -> Option<&'static Guard> {
        let guard = self.guard.load(Ordering::Relaxed);
        if guard.is_null() {
            return None;
        }
        fence(Ordering::Acquire);
        if guard == NOT_ASKED {
            return self.ask();
        }
        // SAFETY: guards are never given back.
        Some(unsafe { &*guard })
    }

    #[cold]
    fn ask(&self) -> Option<&'static Guard> {
        match Options::from_env() {
            // Only the process's own tracker reads the environment.
            Some(options) => {
                Self::enable_beside_agent(&options);
            }
            None => self.forget_environment(),
        }
        let guard = self.guard.load(Ordering::Acquire);
        // SAFETY: as above.
        if guard.is_null() || guard == NOT_ASKED { None } else { Some(unsafe { &*guard }) }
    }

    /// Stops the environment from enabling this tracker.
    fn forget_environment(&self) {
        let null = ptr::null_mut();
        let _ = self.guard.compare_exchange(NOT_ASKED, null, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Runs `work` with the writer, under the lock. Returns `off` while tracking is off.
    #[inline]
    fn with<T>(&self, off: T, work: impl FnOnce(&mut Writer) -> Result<T>) -> Result<T> {
        let Some(guard) = self.find_guard() else { return Ok(off) };
        let me = me();
        if guard.owner.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.wait(guard, me)?;
        }
        // It may have been closed while we waited, and opened again behind another guard.
        if !ptr::eq(self.guard.load(Ordering::Relaxed), guard) {
            guard.owner.store(0, Ordering::Release);
            return Ok(off);
        }
        // SAFETY: this thread has the lock, so no other uses the writer until it is released.
        let writer = unsafe { &mut *self.writer.get() };
        if guard.pid.load(Ordering::Relaxed) == 0 || guard.look.load(Ordering::Relaxed) != 0 {
            self.notice_fork(guard, writer);
        }
        let done = match writer {
            Some(writer) => work(writer),
            None => Err(Fault::Lost),
        };
        guard.owner.store(0, Ordering::Release);
        done
    }

    #[cold]
    fn wait(&self, guard: &Guard, me: u64) -> Result<()> {
        let mut since = 0;
        let mut tries = 0u32;
        loop {
            let owner = guard.owner.load(Ordering::Relaxed);
            if owner == 0 && guard.owner.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                return Ok(());
            }
            tries = tries.wrapping_add(1);
            if tries % SPINS != 0 {
                core::hint::spin_loop();
                continue;
            }
            // A signal handler interrupted this very thread: it would wait for itself.
            let now = identity::now(ClockId::Monotonic);
            if since == 0 {
                since = now;
            }
            let stuck = owner != 0 && owner == self.stuck.load(Ordering::Relaxed);
            if owner == me || stuck || now.saturating_sub(since) > PATIENCE_NS {
                if owner != me {
                    self.stuck.store(owner, Ordering::Relaxed);
                }
                self.shut_out.fetch_add(1, Ordering::Relaxed);
                return Err(Fault::Lost);
            }
            rustix::thread::sched_yield();
        }
    }

    #[cold]
    fn notice_fork(&self, guard: &Guard, writer: &mut Option<Writer>) {
        let pid = u64::from(identity::pid());
        if guard.pid.load(Ordering::Relaxed) == pid {
            return;
        }
        if let Some(writer) = writer {
            writer.start_over();
        }
        self.shut_out.store(0, Ordering::Relaxed);
        guard.pid.store(pid, Ordering::Relaxed);
    }

    /// Whether tracking is off: the only cost of a report then.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a call would cost more than the load")]
    fn is_off(&self) -> bool {
        self.guard.load(Ordering::Relaxed).is_null()
    }

    /// Runs `work` as a report, and counts reports that could not take the lock before.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "so that the way out is short while tracking is off")]
    pub(crate) fn event<T>(&self, off: T, work: impl FnOnce(&mut Writer) -> Result<T>) -> Result<T> {
        if self.is_off() {
            return Ok(off);
        }
        self.record(off, work)
    }

    #[inline(never)]
    fn record<T>(&self, off: T, work: impl FnOnce(&mut Writer) -> Result<T>) -> Result<T> {
        self.with(off, |writer| {
            if self.shut_out.load(Ordering::Relaxed) != 0 {
                writer.count_lost(self.shut_out.swap(0, Ordering::Relaxed));
            }
            work(writer)
        })
    }

    // Definitions.

    /// Defines a chip. An identical definition returns the same number.
    pub fn chip(&self, chip: &Chip<'_>) -> Result<ChipNumber> {
        self.event(ChipNumber(0), |writer| writer.define_chip(&chip.wire()).map(ChipNumber))
    }

    /// Defines the allocator of a device, mesh or submesh. Each of its allocations is on all of `chips`, in one record.
    pub fn allocator(&self, chips: &[ChipNumber], banks: &[Banks]) -> Result<AllocatorNumber> {
        self.event(AllocatorNumber(0), |writer| {
            writer.define_allocator(banks, chips.iter().map(|chip| chip.0)).map(AllocatorNumber)
        })
    }

    /// Closes an allocator and frees all of its allocations.
    pub fn close_allocator(&self, allocator: AllocatorNumber) -> Result {
        self.event(0, |writer| writer.close_allocator(allocator.0))
    }

    /// Frees all allocations of an allocator, which stays open.
    pub fn clear_allocator(&self, allocator: AllocatorNumber) -> Result {
        self.event(0, |writer| writer.clear_allocator(allocator.0))
    }

    /// Defines an allocator for one or more devices that are known by number only. The same devices return the same
    /// allocator. Its allocations are on all of them; its allocated bytes are unknown.
    pub fn devices(&self, devices: &[u32]) -> Result<AllocatorNumber> {
        self.event(AllocatorNumber(0), |writer| writer.devices(devices).map(AllocatorNumber))
    }

    /// Defines a set of cores by rectangles of columns and rows up to 15. An identical set returns the same number.
    pub fn cores(&self, ranges: &[CoreRange]) -> Result<CoresNumber> {
        let mut cores = [0u64; 4];
        for range in ranges {
            for y in range.from.1..=range.to.1.min(15) {
                for x in range.from.0..=range.to.0.min(15) {
                    cores[usize::from(y) >> 2] |= 1 << ((y & 3) * 16 + x);
                }
            }
        }
        self.core_set(cores)
    }

    /// Defines a set of cores by a bitmap: core `x` of row `y` is bit `16 * y + x`, counted from the lowest of the first word.
    pub fn core_set(&self, cores: [u64; 4]) -> Result<CoresNumber> {
        self.event(CoresNumber(0), |writer| writer.define_cores(cores).map(CoresNumber))
    }

    /// Changes the sizes of an open allocator's spaces. Its allocations stay.
    pub fn resize(&self, allocator: AllocatorNumber, banks: &[Banks]) -> Result<()> {
        self.event((), |writer| writer.resize_allocator(allocator.0, banks))
    }

    /// Defines a call site, such as `model.py:42 forward`. An identical one returns the same number.
    pub fn site(&self, site: &str) -> Result<SiteNumber> {
        self.event(SiteNumber(0), |writer| writer.define_site(site).map(SiteNumber))
    }

    // Events.

    /// Reports an allocated buffer.
    #[inline]
    pub fn alloc(&self, buffer: &Buffer) -> Result {
        self.event(0, |writer| {
            if buffer.space.is_program() {
                return Err(Fault::WrongSpace);
            }
            writer.allocate(buffer.space, &buffer.record())
        })
    }

    /// Reports a freed buffer.
    #[inline]
    pub fn free(&self, allocator: AllocatorNumber, space: Space, address: u64) -> Result {
        self.event(0, |writer| writer.free(&[space], &named(allocator, space, address)))
    }

    /// Returns whether a buffer is allocated at an address.
    pub fn is_held(&self, allocator: AllocatorNumber, space: Space, address: u64) -> bool {
        self.event(false, |writer| Ok(writer.is_held(allocator.0, space, address))).unwrap_or(false)
    }

    /// Reports a freed buffer in [`Space::L1Core`]. Other cores may have other buffers at its address, so all fields count.
    pub fn free_on_cores(&self, buffer: &Buffer) -> Result {
        self.event(0, |writer| writer.free(&[buffer.space], &buffer.record()))
    }

    /// Reports a freed buffer of which only the address is known: every space is searched.
    pub fn free_anywhere(&self, allocator: AllocatorNumber, address: u64) -> Result {
        self.event(0, |writer| writer.free(&BUFFERS, &named(allocator, Space::Dram, address)))
    }

    /// Reports an allocation that failed for lack of memory, and the largest free block in a bank if it is known.
    pub fn out_of_memory(&self, buffer: &Buffer, largest_free_per_bank: Option<u64>) -> Result {
        self.event(0, |writer| writer.out_of_memory(buffer, largest_free_per_bank))
    }

    /// Begins a program; what it registers follows. The name may be empty. Without this call, a program begins with the first
    /// thing it registers.
    pub fn begin_program(&self, allocator: AllocatorNumber, program: u32, name: &str) -> Result {
        self.event(0, |writer| writer.begin_program(allocator.0, program, name))
    }

    /// Reports a program that is built or rebuilt. What it had registered is removed; what it registers follows.
    pub fn program(&self, program: &Program) -> Result {
        self.event(0, |writer| writer.build_program(program))
    }

    /// Reports a dispatch: the program's memory becomes resident and replaces what was resident on its cores.
    pub fn dispatch(&self, allocator: AllocatorNumber, program: u32) -> Result {
        let mut nowhere = u32::MAX;
        self.dispatch_again(allocator, program, &mut nowhere)
    }

    /// Reports a dispatch, with a hint that the caller keeps for the next one: then the program need not be searched.
    pub fn dispatch_again(&self, allocator: AllocatorNumber, program: u32, hint: &mut u32) -> Result {
        self.event(0, |writer| {
            self.table.store(writer.table().cast_mut(), Ordering::Relaxed);
            writer.dispatch(allocator.0, program, hint)
        })
    }

    /// Prefetches what a dispatch with this hint needs, and memory of the caller.
    #[inline]
    pub fn expect_dispatch(&self, hint: u32, besides: *const u8) {
        crate::memory::prefetch(besides);
        let table = self.table.load(Ordering::Relaxed);
        if !table.is_null() {
            crate::memory::prefetch(table.wrapping_add(hint as usize));
        }
    }

    /// Ends a program and removes everything it registered.
    pub fn end_program(&self, allocator: AllocatorNumber, program: u32) -> Result {
        self.event(0, |writer| writer.end_program(allocator.0, program))
    }

    /// Registers memory of a program on its cores.
    pub fn place(&self, placement: &Placement) -> Result {
        self.event(0, |writer| match placement.record() {
            Some(record) => writer.allocate(placement.space, &record),
            None => Err(Fault::WrongSpace),
        })
    }

    /// Removes memory that a program registered.
    pub fn displace(&self, placement: &Placement) -> Result {
        self.event(0, |writer| match placement.record() {
            Some(record) => writer.free(&[placement.space], &record),
            None => Err(Fault::WrongSpace),
        })
    }

    /// Registers a kernel of a program.
    pub fn load_kernel(&self, kernel: &Kernel) -> Result {
        self.event(0, |writer| writer.allocate(Space::Kernel, &kernel.record()))
    }

    /// Removes a kernel of a program.
    pub fn unload_kernel(&self, allocator: AllocatorNumber, id: u64) -> Result {
        self.event(0, |writer| writer.free(&[Space::Kernel], &named(allocator, Space::Kernel, id)))
    }

    /// Reports a captured trace of so many dispatches.
    pub fn trace(&self, allocator: AllocatorNumber, trace: u32, dispatches: u64) -> Result {
        self.event(0, |writer| writer.trace(allocator.0, trace, dispatches))
    }

    /// Reports the replay of a trace. The caller reports as dispatches what is resident after it.
    pub fn replay_trace(&self, allocator: AllocatorNumber, trace: u32) -> Result {
        self.event(0, |writer| writer.trace(allocator.0, trace, 0))
    }

    /// Reports that a trace was released.
    pub fn end_trace(&self, allocator: AllocatorNumber, trace: u32) -> Result {
        self.event(0, |writer| writer.end_trace(allocator.0, trace))
    }

    // How it compares.

    /// Marks the moment before an allocator's own statistics are read, for [`Tracker::audit`].
    pub fn before_audit(&self) -> Result<Mark> {
        self.event(Mark(0), |writer| Ok(Mark(writer.changes())))
    }

    /// Reports an allocator's own statistics. They are compared with what was reported if nothing was allocated or freed since
    /// `mark`; without a mark they must not be compared.
    pub fn audit(
        &self,
        mark: Option<Mark>,
        allocator: AllocatorNumber,
        space: Space,
        it: Statistics,
    ) -> Result {
        self.event(0, |writer| writer.audit(mark.map(|mark| mark.0), allocator.0, space, it))
    }

    /// Returns the peak of allocated bytes since the beginning or the last [`Tracker::reset_peak`].
    pub fn peak(&self, allocator: AllocatorNumber, space: Space) -> Result {
        self.event(0, |writer| writer.peak(allocator.0, space))
    }

    /// Resets the peak to the bytes allocated now.
    pub fn reset_peak(&self, allocator: AllocatorNumber, space: Space) -> Result {
        self.event(0, |writer| writer.reset_peak(allocator.0, space))
    }

    // Status.

    /// Publishes which of the wanted hooks were installed, one bit each. Their meaning is the writer's.
    pub fn hooks(&self, taken: u64, wanted: u64) {
        let _ = self.event((), |writer| {
            writer.set_hooks([taken, wanted]);
            Ok(())
        });
    }

    /// Counts an event that the caller could not follow: figures are not exact any more.
    pub fn lost(&self) {
        let _ = self.event((), |writer| {
            writer.count_lost(1);
            Ok(())
        });
    }

    /// Publishes the processor time that tracking has cost this process, in nanoseconds.
    pub fn cost(&self, ns: u64) {
        let _ = self.event((), |writer| {
            writer.set_cost(ns);
            Ok(())
        });
    }

    /// Retries what failed before: creates a segment that had no space or whose file was removed, lets the table grow, and
    /// sends queued messages to an old server. Updates the heartbeat.
    pub fn refresh(&self) {
        let _ = self.event((), |writer| {
            writer.refresh();
            Ok(())
        });
    }

    /// Returns whether a reader has requested an audit since the last call. Readers do so by setting the segment's time of
    /// modification.
    pub fn is_rung(&self) -> bool {
        self.event(false, |writer| Ok(writer.is_rung())).unwrap_or(false)
    }

    /// Returns the status of tracking.
    pub fn status(&self) -> Status {
        let mut status = self.event(Status::default(), |writer| Ok(writer.status())).unwrap_or_default();
        if self.yielded.load(Ordering::Relaxed) {
            status.reason = Some("agent already tracks this process".to_owned());
        }
        status
    }

    /// Ends tracking: the tracker is off, and the segment is removed unless it holds a failed allocation. The process's own
    /// tracker does this by itself when the process exits. A process that is killed leaves its segment as a crash segment.
    pub fn close(&self) {
        let _ = self.with((), |writer| {
            writer.close();
            let guard = self.guard.swap(ptr::null_mut(), Ordering::AcqRel);
            self.spare.store(guard, Ordering::Release);
            Ok(())
        });
    }

    /// Ends tracking because the process exits, while other threads may still report.
    fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.forget_environment();
        // SAFETY: guards are never given back.
        let Some(guard) = (unsafe { self.guard.load(Ordering::Acquire).as_ref() }) else { return };
        // In a forked child that reported nothing, the segment is the parent's.
        if guard.pid.load(Ordering::Relaxed) != u64::from(identity::pid()) {
            return;
        }
        let _ = self.with((), |writer| {
            writer.end();
            self.guard.store(ptr::null_mut(), Ordering::Release);
            Ok(())
        });
    }
}
