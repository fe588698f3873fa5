//! Call sites: which line of the program allocates, by which operation, and which tensor. A place that was seen before costs its walk
//! and one cache line; a new one is defined.
//!
//! With native stacks, the frames of the native stack come first, and those of the interpreter where it runs them (`unwind`).
//!
//! Names of native addresses are looked up by the agent's own thread: that takes the loader's lock, for which a hook must not wait.
#![allow(unsafe_code)]

pub(crate) mod mixed;

use crate::agent::tracker;
use crate::flight;
use crate::modules;
use crate::native::{self, Address};
use crate::python::{self, Frame, MAX_FRAMES, MAX_TEXT, Python, Walk};
use crate::shim::{
    PURPOSE_KERNELS, PURPOSE_RAW, PURPOSE_SEMAPHORE, PURPOSE_TENSOR, PURPOSE_TRACE, SiteFacts,
    ttmem_dispatcher,
};
use crate::tracks;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use ttmem_client::agent::{self, SiteParts, generation, hash};
use ttmem_client::{DataType, Purpose, SiteNumber, Tensor, TensorLayout};

/// Places that are remembered. They are in groups of a cache line, of which a lookup reads one.
const PLACES: usize = 1 << 16;
const GROUP: usize = 8;
/// Bits of a remembered number; above them is a part of the key.
const NUMBER_BITS: u32 = 24;
/// Frames of a stack if `TTMEM_STACKS` does not say how many.
const DEFAULT_STACK: usize = 32;

const _: () = assert!(
    PURPOSE_TENSOR == Purpose::Tensor as u32
        && PURPOSE_SEMAPHORE == Purpose::Semaphore as u32
        && PURPOSE_KERNELS == Purpose::Kernels as u32
        && PURPOSE_TRACE == Purpose::Trace as u32
        && PURPOSE_RAW == Purpose::Raw as u32
);

/// What was defined for a key. Zeros: nothing. A forked child starts with zeros: its definitions are its own.
struct Numbers(AtomicPtr<[AtomicU64; PLACES]>);

static SITES: Numbers = Numbers(AtomicPtr::new(ptr::null_mut()));
static FRAMES: Numbers = Numbers(AtomicPtr::new(ptr::null_mut()));

impl Numbers {
    fn group(&self, key: u64) -> Option<&'static [AtomicU64]> {
        let mut table = self.0.load(Ordering::Acquire);
        if table.is_null() {
            flight::map_zeroed(&self.0);
            table = self.0.load(Ordering::Acquire);
        }
        let first = (key as usize % (PLACES / GROUP)) * GROUP;
        // SAFETY: null, or a mapping that is never unmapped and valid as zeros.
        unsafe { table.as_ref() }.map(|words| &words[first..first + GROUP])
    }

    /// The number of a key, and if there is none, of what `define` defines.
    #[inline]
    fn find_or_define(&self, key: u64, define: impl FnOnce() -> u32) -> u32 {
        let Some(group) = self.group(key) else { return define() };
        let tag = key >> NUMBER_BITS;
        for word in group {
            let word = word.load(Ordering::Relaxed);
            if word >> NUMBER_BITS == tag {
                return word as u32 & ((1 << NUMBER_BITS) - 1);
            }
        }
        let number = define();
        if number < 1 << NUMBER_BITS && tag != 0 {
            let vacant = group.iter().find(|word| word.load(Ordering::Relaxed) == 0);
            // Without a vacant place, another key is forgotten, and defined again when it is next used: that finds its number.
            let place = vacant.unwrap_or(&group[(key >> 60) as usize % GROUP]);
            place.store(tag << NUMBER_BITS | u64::from(number), Ordering::Relaxed);
        }
        number
    }
}

/// Frames that are recorded of each call site: 0: none; 1: the line; more: the stack, with native frames if `NATIVE` is added.
static FRAMES_KEPT: AtomicUsize = AtomicUsize::new(1);
const NATIVE: usize = 1 << 16;

/// Reads from the environment what is recorded of call sites, and looks up the interpreter, which takes the loader's lock. Called when
/// the agent starts.
pub(crate) fn configure() {
    let _ = python::find();
    let is_off = agent::variable("TTMEM_SITES").is_some_and(|value| value == "0");
    let stacks = agent::variable("TTMEM_STACKS").filter(|value| value != "0");
    let native = stacks.as_deref().and_then(|stacks| stacks.strip_prefix("native"));
    let count = |frames: &str| frames.parse().unwrap_or(DEFAULT_STACK);
    match native {
        _ if is_off => keep_frames(0),
        Some(frames) => keep_native_frames(count(frames.trim_start_matches(','))),
        None => keep_frames(stacks.map_or(1, |frames| count(&frames)).max(1)),
    }
}

/// Sets how many frames are recorded of each call site, native ones as well as others. Where the C library cannot find their modules,
/// there are no native ones.
pub(crate) fn keep_native_frames(count: usize) {
    let native = if modules::configure(python::find().map(Python::address)) { NATIVE } else { 0 };
    FRAMES_KEPT.store(count.clamp(2, MAX_FRAMES) | native, Ordering::Relaxed);
}

/// Sets how many frames are recorded of each call site.
pub(crate) fn keep_frames(count: usize) {
    FRAMES_KEPT.store(count.min(MAX_FRAMES), Ordering::Relaxed);
}

#[inline]
fn frames_kept() -> usize {
    FRAMES_KEPT.load(Ordering::Relaxed)
}

/// The call site of an allocation.
#[inline]
pub(crate) fn of_allocation(facts: &SiteFacts) -> SiteNumber {
    if frames_kept() == 0 {
        return SiteNumber::default();
    }
    let track = tracks::current();
    let mut key = u64::from(track) << 40 | u64::from(facts.purpose) << 32 | u64::from(facts.rank) << 24;
    key |= u64::from(facts.data_type) << 16 | u64::from(facts.layout) << 8;
    for pair in facts.shape().chunks(2) {
        let second = pair.get(1).copied().unwrap_or(0);
        key = hash(key, u64::from(pair[0]) << 32 | u64::from(second), 5);
    }
    find(key, facts.caller, || SiteParts {
        purpose: Purpose::from_number(facts.purpose as u8).unwrap_or_default(),
        tensor: facts.tensor(),
        track,
        ..SiteParts::default()
    })
}

/// The caller of the dispatch that is running; 0: none is.
fn dispatcher() -> u64 {
    // SAFETY: the shim returns a variable of this thread.
    unsafe { ttmem_dispatcher() }
}

/// Whether the calling thread is in a dispatch.
pub(crate) fn is_dispatching() -> bool {
    dispatcher() != 0
}

/// The call site of a program: its device operation, its kernels and the line. The operation is known while it is dispatched.
pub(crate) fn of_program(kernels: &str) -> SiteNumber {
    let (caller, is_wanted) = (dispatcher(), frames_kept() > 0);
    let op = if is_wanted && caller != 0 { native::number_of(Address::Operation(caller)) } else { 0 };
    let key = kernels.bytes().fold(u64::from(op), |sum, byte| hash(sum, u64::from(byte), 6));
    let parts = || SiteParts { op, text: kernels, ..SiteParts::default() };
    if is_wanted { find(key, 0, parts) } else { find_native(key, 0, parts) }
}

/// Whether the calling thread works for a Python thread: it has no frames of its own.
pub(crate) fn is_worker() -> bool {
    !is_dispatching() && python::find().is_some_and(|python| python.walk::<1>(1).is_none())
}

/// The call site of a program or trace that the runtime refuses: the line, and the operation as the program calls it.
pub(crate) fn of_refused_program() -> SiteNumber {
    if frames_kept() == 0 {
        return SiteNumber::default();
    }
    find(0, dispatcher(), SiteParts::default)
}

/// The number of the place where the calling thread is, for what `key` and `parts` describe.
#[inline]
fn find<'a>(key: u64, caller: u64, parts: impl FnOnce() -> SiteParts<'a>) -> SiteNumber {
    let kept = frames_kept();
    if kept & NATIVE != 0 {
        return mixed::find(kept & !NATIVE, key, caller, parts);
    }
    match python::find() {
        None => find_native(key, caller, parts),
        Some(python) if kept == 1 => find_from(python, python.walk::<1>(1), key, caller, parts),
        Some(python) => find_from(python, python.walk::<MAX_FRAMES>(kept), key, caller, parts),
    }
}

#[inline]
fn find_from<'a, const MOST: usize>(
    python: &Python,
    walk: Option<Walk<MOST>>,
    key: u64,
    caller: u64,
    parts: impl FnOnce() -> SiteParts<'a>,
) -> SiteNumber {
    let Some(walk) = walk else { return find_native(key, caller, parts) };
    let key = hash(walk.key, key, generation(tracker()));
    let number = SITES.find_or_define(key, || {
        #[cfg(any(feature = "probe", debug_assertions))]
        crate::probe::note_definition(key, python, &walk);
        define(python, &walk, &parts())
    });
    #[cfg(any(feature = "probe", debug_assertions))]
    crate::probe::note_use(key);
    SiteNumber::new(number)
}

/// A place outside of Python: the line that called the runtime's function.
fn find_native<'a>(key: u64, caller: u64, parts: impl FnOnce() -> SiteParts<'a>) -> SiteNumber {
    let key = hash(caller, key, !generation(tracker()));
    SiteNumber::new(SITES.find_or_define(key, || {
        let parts = parts();
        let frame = if caller == 0 { 0 } else { native::number_of(Address::Line(caller)) };
        let is_empty = frame == 0 && parts.purpose == Purpose::Unknown && parts.text.is_empty();
        if is_empty { 0 } else { define_site(&SiteParts { frame, ..parts }) }
    }))
}

#[cold]
fn define<const MOST: usize>(python: &Python, walk: &Walk<MOST>, parts: &SiteParts<'_>) -> u32 {
    let mut numbers = [0; MOST];
    for (number, frame) in numbers.iter_mut().zip(walk.frames()) {
        *number = find_or_define_frame(python, frame);
    }
    let numbers = &numbers[..walk.frames().len()];
    let frame = numbers.first().copied().unwrap_or(0);
    define_site(&SiteParts {
        frame,
        stack: define_stack(numbers),
        op: define_op(python, walk, parts),
        ..*parts
    })
}

fn define_op<const MOST: usize>(python: &Python, walk: &Walk<MOST>, parts: &SiteParts<'_>) -> u32 {
    let mut room = [0; MAX_TEXT];
    match python.op(walk, &mut room) {
        // A program's operation is that of the device.
        "" => parts.op,
        _ if parts.op != 0 => parts.op,
        name => agent::define_op(tracker(), name).unwrap_or(0),
    }
}

/// The number of a stack; 0: it is only one frame, or there was no space for one of its frames.
fn define_stack(frames: &[u32]) -> u32 {
    let is_known = frames.len() > 1 && !frames.contains(&0);
    if is_known { agent::define_stack(tracker(), frames).unwrap_or(0) } else { 0 }
}

fn define_site(parts: &SiteParts<'_>) -> u32 {
    agent::define_site(tracker(), parts).map_or(0, SiteNumber::get)
}

fn find_or_define_frame(python: &Python, frame: &Frame) -> u32 {
    FRAMES.find_or_define(hash(frame.key(), generation(tracker()), 7), || define_frame(python, frame))
}

fn define_frame(python: &Python, frame: &Frame) -> u32 {
    let (mut file, mut function) = ([0; MAX_TEXT], [0; MAX_TEXT]);
    let (file, function) = (python.file(frame, &mut file), python.function(frame, &mut function));
    agent::define_frame(tracker(), file, python.line(frame), 0, function).unwrap_or(0)
}

impl SiteFacts {
    fn shape(&self) -> &[u32] {
        let rank = self.rank.checked_sub(1).map_or(0, |rank| rank as usize);
        &self.dimensions[..rank.min(Tensor::MAX_RANK)]
    }

    fn tensor(&self) -> Option<Tensor> {
        let mut tensor = (self.rank > 0).then(|| Tensor::new(self.shape()))?;
        tensor.data_type = u8::try_from(self.data_type).ok().and_then(DataType::from_number);
        tensor.layout = u8::try_from(self.layout).ok().and_then(TensorLayout::from_number);
        Some(tensor)
    }
}
