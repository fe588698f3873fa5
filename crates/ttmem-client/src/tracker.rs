//! The tracker: on or off, one thread at a time, and never another process's.
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

/// Looks at the lock before the processor is given away.
const SPINS: u32 = 200;
/// A thread that cannot get in for so long gives up: whoever is inside will not come out.
const PATIENCE_NS: u64 = 10_000_000_000;

/// How events leave the process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// In a segment.
    #[default]
    Segment,
    /// By messages to an old server on this socket.
    Legacy(String),
}

/// How a tracker is set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Where segments go. It must be in memory: a `tmpfs`.
    pub folder: String,
    /// A group that may read the segment, too.
    pub group: Option<u32>,
    /// Who writes, for people: `ttmem-agent 0.1.0`.
    pub writer: String,
    /// The runtime that is tracked, for people: `ttnn 0.81.1`.
    pub runtime: String,
    /// How events leave the process.
    pub transport: Transport,
    /// Where to say what goes wrong: `stderr` or a file. Nothing is printed otherwise.
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
    /// What the environment asks for; `None`: not to track.
    pub fn from_env() -> Option<Self> {
        let get = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let on = |name: &str| get(name).is_some_and(|value| value != "0");
        (on("TTMEM") || on("TT_ALLOC_TRACKING_ENABLED")).then(Self::as_env_says)
    }

    /// How the environment would have it, for those who track whether it asks for that or not.
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
            // As above; nobody answers at an empty one.
            if path.len() <= 107 {
                text.push(format_args!("{path}"));
            }
            settings.legacy = Some(text);
        }
        settings
    }
}

/// Where a buffer may lie of which only the address is known.
pub(crate) const BUFFERS: [Space; 5] = [Space::Dram, Space::L1, Space::L1Small, Space::Trace, Space::Host];

/// What `Tracker::guard` is before anybody asked the environment.
const NOT_ASKED: *mut Guard = ptr::without_provenance_mut(1);

/// Records what a process holds. Methods may be called from any thread; while tracking is off they do nothing.
pub struct Tracker {
    /// Null: off. [`NOT_ASKED`]: the first use asks the environment.
    guard: AtomicPtr<Guard>,
    writer: UnsafeCell<Option<Writer>>,
    /// Events that found the door shut.
    shut_out: AtomicU64,
    /// A thread that did not come out in time: nobody waits for it again.
    stuck: AtomicU64,
    /// Where slots are, or were: only ever to be fetched, never to be read.
    table: AtomicPtr<crate::segment::Line>,
    /// The guard of a tracker that was closed, for the next time.
    spare: AtomicPtr<Guard>,
    /// The agent is at work in this process.
    yielded: AtomicBool,
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

/// A number that no other thread of this process has, without a system call.
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
    /// The process's tracker. It is on if the environment says so; see the crate's documentation.
    pub fn global() -> &'static Self {
        &GLOBAL
    }

    /// A tracker that is off.
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
        }
    }

    /// A tracker of its own, which is on.
    pub fn new(options: &Options) -> Self {
        let tracker = Self::off();
        tracker.enable(options);
        tracker
    }

    /// Switches tracking on, if it is not. Nothing is made before the first event.
    pub fn enable(&self, options: &Options) {
        if let Some(to) = &options.log {
            log::begin(to);
        }
        let known = self.guard.load(Ordering::Acquire);
        if !known.is_null() && known != NOT_ASKED {
            return;
        }
        let spare = self.spare.swap(ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: guards are never given back.
        let Some(guard) = (unsafe { spare.as_ref() }).or_else(Guard::new) else { return };
        let me = me();
        // Nobody comes in before the writer is there. Whoever is still inside, since before it was closed, comes out.
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
        // SAFETY: we are inside, by the guard that everybody uses from now on.
        unsafe { *self.writer.get() = Writer::new(&options.settings()) };
        guard.owner.store(0, Ordering::Release);
    }

    /// Switches the process's tracker on, if it is not, unless the agent is at work in this process: then what is told by
    /// hand would count twice. It goes off when the agent begins. Returns whether it is on.
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
        // It may have begun since it was asked, and found nothing to close.
        if GLOBAL.yielded.load(Ordering::SeqCst) {
            withdraw();
            return false;
        }
        GLOBAL.is_on()
    }

    /// Whether events are recorded.
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
            // Only the process's own tracker asks.
            Some(options) => {
                Self::enable_beside_agent(&options);
            }
            None => self.forget_environment(),
        }
        let guard = self.guard.load(Ordering::Acquire);
        // SAFETY: as above.
        if guard.is_null() || guard == NOT_ASKED { None } else { Some(unsafe { &*guard }) }
    }

    /// Nobody asks the environment any more: what is not on is off.
    fn forget_environment(&self) {
        let null = ptr::null_mut();
        let _ = self.guard.compare_exchange(NOT_ASKED, null, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Runs something with the writer, one thread at a time. `off` is what it gives while tracking is off.
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
        // SAFETY: our number stands in the guard that counts, so nobody else touches the writer until it is taken out.
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

    /// Whether tracking is off, which is all that an event costs then.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a call would cost more than the load")]
    fn is_off(&self) -> bool {
        self.guard.load(Ordering::Relaxed).is_null()
    }

    /// The same for events, which count what was shut out before.
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

    // What there is.

    /// Defines a chip. The same one again gets the same number.
    pub fn chip(&self, chip: &Chip<'_>) -> Result<ChipNumber> {
        self.event(ChipNumber(0), |writer| writer.define_chip(&chip.wire()).map(ChipNumber))
    }

    /// Defines an allocator: of a device, a mesh, a submesh. What it hands out is held by all of `chips`, in one record.
    pub fn allocator(&self, chips: &[ChipNumber], banks: &[Banks]) -> Result<AllocatorNumber> {
        self.event(AllocatorNumber(0), |writer| {
            writer.define_allocator(banks, chips.iter().map(|chip| chip.0)).map(AllocatorNumber)
        })
    }

    /// The allocator is closed; everything it handed out is free.
    pub fn close_allocator(&self, allocator: AllocatorNumber) -> Result {
        self.event(0, |writer| writer.close_allocator(allocator.0))
    }

    /// Everything that the allocator handed out is free; the allocator goes on.
    pub fn clear_allocator(&self, allocator: AllocatorNumber) -> Result {
        self.event(0, |writer| writer.clear_allocator(allocator.0))
    }

    /// The allocator that stands for a device, or the devices of a mesh, of which only the numbers are known: the same ones
    /// again are the same allocator. What it hands out is held by all of them; what it charges for it is not known.
    pub fn devices(&self, devices: &[u32]) -> Result<AllocatorNumber> {
        self.event(AllocatorNumber(0), |writer| writer.devices(devices).map(AllocatorNumber))
    }

    /// Defines a set of cores: rectangles of columns and rows up to 15. The same one again gets the same number.
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

    /// The same, by a bit for each core: `x` of row `y` is bit `16 * y + x`, the lowest of the first word being 0.
    pub fn core_set(&self, cores: [u64; 4]) -> Result<CoresNumber> {
        self.event(CoresNumber(0), |writer| writer.define_cores(cores).map(CoresNumber))
    }

    /// An open allocator's spaces became larger or smaller. What it holds stays.
    pub fn resize(&self, allocator: AllocatorNumber, banks: &[Banks]) -> Result<()> {
        self.event((), |writer| writer.resize_allocator(allocator.0, banks))
    }

    /// Defines a call site, as `model.py:42 forward`. The same one again gets the same number.
    pub fn site(&self, site: &str) -> Result<SiteNumber> {
        self.event(SiteNumber(0), |writer| writer.define_site(site).map(SiteNumber))
    }

    // What happens.

    /// A buffer is held from now on.
    #[inline]
    pub fn alloc(&self, buffer: &Buffer) -> Result {
        self.event(0, |writer| {
            if buffer.space.is_program() {
                return Err(Fault::WrongSpace);
            }
            writer.allocate(buffer.space, &buffer.record())
        })
    }

    /// A buffer is free.
    #[inline]
    pub fn free(&self, allocator: AllocatorNumber, space: Space, address: u64) -> Result {
        self.event(0, |writer| writer.free(&[space], &named(allocator, space, address)))
    }

    /// Whether a buffer is held at an address.
    pub fn is_held(&self, allocator: AllocatorNumber, space: Space, address: u64) -> bool {
        self.event(false, |writer| Ok(writer.is_held(allocator.0, space, address))).unwrap_or(false)
    }

    /// A buffer in [`Space::L1Core`] is free. Others may lie at its address on other cores: all of it must be said.
    pub fn free_on_cores(&self, buffer: &Buffer) -> Result {
        self.event(0, |writer| writer.free(&[buffer.space], &buffer.record()))
    }

    /// A buffer is free, and the caller knows its address only: it is looked for in every space.
    pub fn free_anywhere(&self, allocator: AllocatorNumber, address: u64) -> Result {
        self.event(0, |writer| writer.free(&BUFFERS, &named(allocator, Space::Dram, address)))
    }

    /// An allocation failed for want of memory; `largest_free_per_bank` is the largest free block in a bank, if known.
    pub fn out_of_memory(&self, buffer: &Buffer, largest_free_per_bank: Option<u64>) -> Result {
        self.event(0, |writer| writer.out_of_memory(buffer, largest_free_per_bank))
    }

    /// A program begins: what it registers follows. Names may be empty. A program begins by itself with the first thing
    /// it registers.
    pub fn begin_program(&self, allocator: AllocatorNumber, program: u32, name: &str) -> Result {
        self.event(0, |writer| writer.begin_program(allocator.0, program, name))
    }

    /// A program is built, or built anew: what it registers follows, and what it had registered before is gone.
    pub fn program(&self, program: &Program) -> Result {
        self.event(0, |writer| writer.build_program(program))
    }

    /// A program was dispatched: what it registered is resident from now on, and what was there before is not.
    pub fn dispatch(&self, allocator: AllocatorNumber, program: u32) -> Result {
        let mut nowhere = u32::MAX;
        self.dispatch_again(allocator, program, &mut nowhere)
    }

    /// The same, for those who keep what `hint` is set to for the next time: then the program need not be looked for.
    pub fn dispatch_again(&self, allocator: AllocatorNumber, program: u32, hint: &mut u32) -> Result {
        self.event(0, |writer| {
            self.table.store(writer.table().cast_mut(), Ordering::Relaxed);
            writer.dispatch(allocator.0, program, hint)
        })
    }

    /// A dispatch with this hint will follow: what it needs may be fetched meanwhile, and what the caller needs, too.
    #[inline]
    pub fn expect_dispatch(&self, hint: u32, besides: *const u8) {
        crate::memory::prefetch(besides);
        let table = self.table.load(Ordering::Relaxed);
        if !table.is_null() {
            crate::memory::prefetch(table.wrapping_add(hint as usize));
        }
    }

    /// A program ended, and everything it registered with it.
    pub fn end_program(&self, allocator: AllocatorNumber, program: u32) -> Result {
        self.event(0, |writer| writer.end_program(allocator.0, program))
    }

    /// A program keeps something on its cores.
    pub fn place(&self, placement: &Placement) -> Result {
        self.event(0, |writer| match placement.record() {
            Some(record) => writer.allocate(placement.space, &record),
            None => Err(Fault::WrongSpace),
        })
    }

    /// It does not any more.
    pub fn displace(&self, placement: &Placement) -> Result {
        self.event(0, |writer| match placement.record() {
            Some(record) => writer.free(&[placement.space], &record),
            None => Err(Fault::WrongSpace),
        })
    }

    /// A program has a kernel.
    pub fn load_kernel(&self, kernel: &Kernel) -> Result {
        self.event(0, |writer| writer.allocate(Space::Kernel, &kernel.record()))
    }

    /// It does not any more.
    pub fn unload_kernel(&self, allocator: AllocatorNumber, id: u64) -> Result {
        self.event(0, |writer| writer.free(&[Space::Kernel], &named(allocator, Space::Kernel, id)))
    }

    /// A trace of so many dispatches was captured.
    pub fn trace(&self, allocator: AllocatorNumber, trace: u32, dispatches: u64) -> Result {
        self.event(0, |writer| writer.trace(allocator.0, trace, dispatches))
    }

    /// It was replayed. What is resident after that is the caller's to say, by what it dispatches.
    pub fn replay_trace(&self, allocator: AllocatorNumber, trace: u32) -> Result {
        self.event(0, |writer| writer.trace(allocator.0, trace, 0))
    }

    /// It was released.
    pub fn end_trace(&self, allocator: AllocatorNumber, trace: u32) -> Result {
        self.event(0, |writer| writer.end_trace(allocator.0, trace))
    }

    // How it compares.

    /// To be called before the allocator's statistics are taken.
    pub fn before_audit(&self) -> Result<Mark> {
        self.event(Mark(0), |writer| Ok(Mark(writer.changes())))
    }

    /// The allocator's own statistics. If nothing was held or freed since `mark`, a difference means something. Without
    /// a mark it does not: the caller knows that something was on its way.
    pub fn audit(
        &self,
        mark: Option<Mark>,
        allocator: AllocatorNumber,
        space: Space,
        it: Statistics,
    ) -> Result {
        self.event(0, |writer| writer.audit(mark.map(|mark| mark.0), allocator.0, space, it))
    }

    /// The most that was charged at once, since the beginning or [`Tracker::reset_peak`].
    pub fn peak(&self, allocator: AllocatorNumber, space: Space) -> Result {
        self.event(0, |writer| writer.peak(allocator.0, space))
    }

    /// Lets the peak begin anew, at what is charged now.
    pub fn reset_peak(&self, allocator: AllocatorNumber, space: Space) -> Result {
        self.event(0, |writer| writer.reset_peak(allocator.0, space))
    }

    // How it goes.

    /// Says which of the hooks that were wanted took, a bit each. What they are is between the writer and its readers.
    pub fn hooks(&self, taken: u64, wanted: u64) {
        let _ = self.event((), |writer| {
            writer.set_hooks([taken, wanted]);
            Ok(())
        });
    }

    /// Something happened that the caller has no room to follow: figures are not exact from now on.
    pub fn lost(&self) {
        let _ = self.event((), |writer| {
            writer.count_lost(1);
            Ok(())
        });
    }

    /// Says what tracking has cost this process, in nanoseconds of processor time.
    pub fn cost(&self, ns: u64) {
        let _ = self.event((), |writer| {
            writer.set_cost(ns);
            Ok(())
        });
    }

    /// Makes good what could not be done before: a segment that found no room, or whose file was removed, is tried again;
    /// a table that could not grow may; an old server is told what waits. Shows readers that the process is well.
    pub fn refresh(&self) {
        let _ = self.event((), |writer| {
            writer.refresh();
            Ok(())
        });
    }

    /// Whether a reader has rung since the last time this was asked: it would like to see an audit. Readers ring by setting
    /// the segment's time of modification.
    pub fn is_rung(&self) -> bool {
        self.event(false, |writer| Ok(writer.is_rung())).unwrap_or(false)
    }

    /// How tracking is going.
    pub fn status(&self) -> Status {
        let mut status = self.event(Status::default(), |writer| Ok(writer.status())).unwrap_or_default();
        if self.yielded.load(Ordering::Relaxed) {
            status.reason = Some("the agent tracks this process".to_owned());
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
