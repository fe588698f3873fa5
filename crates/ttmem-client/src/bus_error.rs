//! Survives that another program truncates the segment's file. Access beyond the end of a mapped file is a bus error (`SIGBUS`), which
//! ends the process. Nothing prevents that in advance: seals are for files without a name, and neither locked nor allocated pages
//! stay when a file is truncated. To check before each event would cost a system call.
//!
//! So there is a handler. At a bus error in a mapping of ours it maps private memory there, from that page on. It passes every other
//! one on to the action that the process had before. If the program sets a handler of its own later, it replaces this one, as it
//! would replace any.
#![allow(unsafe_code)]

use core::ffi::{c_char, c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};
use rustix::fd::BorrowedFd;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

/// Most mapped files of a process that are protected.
const CAPACITY: usize = 32;
/// Value of `base` while an entry is filled.
const RESERVED: usize = 1;
/// Value of `replaced_from` while nothing was replaced.
const NOTHING: usize = usize::MAX;

static MAPPINGS: [Mapping; CAPACITY] = [const { Mapping::new() }; CAPACITY];

/// A mapping of a file. The handler reads these while other threads change them.
struct Mapping {
    /// 0: there is none.
    base: AtomicUsize,
    /// Bytes of address space.
    reserved: AtomicUsize,
    /// Bytes that the file should have.
    bytes: AtomicUsize,
    fd: AtomicI32,
    /// Device and inode of the file.
    file: [AtomicU64; 2],
    /// Offset from which on private memory replaces the file.
    replaced_from: AtomicUsize,
}

impl Mapping {
    const fn new() -> Self {
        Self {
            base: AtomicUsize::new(0),
            reserved: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            fd: AtomicI32::new(-1),
            file: [const { AtomicU64::new(0) }; 2],
            replaced_from: AtomicUsize::new(NOTHING),
        }
    }

    fn base(&self) -> Option<usize> {
        Some(self.base.load(Ordering::Acquire)).filter(|&base| base > RESERVED)
    }

    /// Maps private memory from the page of an address on. Returns whether the address is in this mapping, and can be used now.
    fn replace_at(&self, address: usize) -> bool {
        let Some(base) = self.base() else { return false };
        let offset = address.wrapping_sub(base);
        offset < self.reserved.load(Ordering::Relaxed) && self.replace_from(base, offset)
    }

    fn replace_from(&self, base: usize, offset: usize) -> bool {
        let from = offset & !(rustix::param::page_size() - 1);
        let len = self.reserved.load(Ordering::Relaxed) - from;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE;
        // SAFETY: the range is in our own mapping, whose words are atomic and may have any value.
        let mapped =
            unsafe { mmap_anonymous(ptr::with_exposed_provenance_mut(base + from), len, access, flags) };
        if mapped.is_ok() {
            self.replaced_from.fetch_min(from, Ordering::Relaxed);
        }
        mapped.is_ok()
    }

    /// Maps private memory where the file has become shorter. Returns whether it had to.
    fn replace_missing(&self) -> bool {
        let (Some(base), fd) = (self.base(), self.fd.load(Ordering::Relaxed)) else { return false };
        // SAFETY: the descriptor is only used during this call; if the program closed it, that is an error value.
        let Ok(stat) = rustix::fs::fstat(unsafe { BorrowedFd::borrow_raw(fd) }) else { return false };
        let [device, inode] = self.file.each_ref().map(|id| id.load(Ordering::Relaxed));
        let end = (stat.st_size as usize).next_multiple_of(rustix::param::page_size());
        (stat.st_dev, stat.st_ino) == (device, inode)
            && end < self.bytes.load(Ordering::Relaxed)
            && end < self.replaced_from.load(Ordering::Relaxed)
            && self.replace_from(base, end)
    }
}

/// The protection of a mapping, which ends when this is dropped.
pub(crate) struct Protection(&'static Mapping);

impl Protection {
    /// Protects a mapping of `reserved` bytes at `base`. Its file should have `bytes` bytes. `None`: there are too many already.
    pub(crate) fn new(
        base: *mut u8,
        reserved: usize,
        bytes: usize,
        fd: BorrowedFd<'_>,
        id: (u64, u64),
    ) -> Option<Self> {
        let take = |mapping: &&Mapping| {
            mapping.base.compare_exchange(0, RESERVED, Ordering::Acquire, Ordering::Relaxed).is_ok()
        };
        let mapping = MAPPINGS.iter().find(take)?;
        mapping.reserved.store(reserved, Ordering::Relaxed);
        mapping.bytes.store(bytes, Ordering::Relaxed);
        mapping.fd.store(rustix::fd::AsRawFd::as_raw_fd(&fd), Ordering::Relaxed);
        mapping.file[0].store(id.0, Ordering::Relaxed);
        mapping.file[1].store(id.1, Ordering::Relaxed);
        mapping.replaced_from.store(NOTHING, Ordering::Relaxed);
        mapping.base.store(base.expose_provenance(), Ordering::Release);
        install_handler();
        Some(Self(mapping))
    }

    /// Sets how many bytes the file should have.
    pub(crate) fn set_bytes(&self, bytes: usize) {
        self.0.bytes.store(bytes, Ordering::Relaxed);
    }

    /// Returns whether the file was truncated, after replacing what is missing.
    pub(crate) fn is_truncated(&self) -> bool {
        self.0.replace_missing() || self.0.replaced_from.load(Ordering::Relaxed) != NOTHING
    }
}

impl Drop for Protection {
    fn drop(&mut self) {
        self.0.base.store(0, Ordering::Release);
    }
}

const SIGBUS: c_int = 7;
const SA_SIGINFO: c_int = 4;
const SA_ONSTACK: c_int = 0x0800_0000;
const SA_RESTART: c_int = 0x1000_0000;
const SA_NODEFER: c_int = 0x4000_0000;
const SA_RESETHAND: c_int = c_int::MIN;
const SIG_DFL: usize = 0;
const SIG_IGN: usize = 1;

/// `struct sigaction` of the C library.
#[derive(Clone, Copy)]
#[repr(C)]
struct Action {
    handler: usize,
    mask: [u64; 16],
    flags: c_int,
    restorer: usize,
}

const DEFAULT: Action = Action { handler: SIG_DFL, mask: [0; 16], flags: 0, restorer: 0 };

/// The beginning of `siginfo_t`.
#[repr(C)]
struct SignalInfo {
    signal: c_int,
    errno: c_int,
    /// Above 0 if the kernel sent the signal.
    code: c_int,
    /// The address of the access, or the process that sent the signal.
    origin: usize,
}

unsafe extern "C" {
    // The C library's, not system calls: sanitizers and other runtimes replace them.
    fn sigaction(signal: c_int, new: *const Action, old: *mut Action) -> c_int;
    fn raise(signal: c_int) -> c_int;
    fn dladdr(address: *const c_void, info: *mut LoadedObject) -> c_int;
    fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
}

/// The action before ours. A plain store could tear under the handler, so each word is atomic.
static PREVIOUS_HANDLER: AtomicUsize = AtomicUsize::new(SIG_DFL);
static PREVIOUS_FLAGS: AtomicI32 = AtomicI32::new(0);

fn install_handler() {
    static INSTALLED: AtomicBool = AtomicBool::new(false);
    if INSTALLED.swap(true, Ordering::AcqRel) {
        return;
    }
    let keep = |previous: &Action| {
        PREVIOUS_FLAGS.store(previous.flags, Ordering::Relaxed);
        PREVIOUS_HANDLER.store(previous.handler, Ordering::Release);
    };
    let mut previous = DEFAULT;
    // SAFETY: both structs are those of the C library. The handler calls only what a signal handler may.
    unsafe {
        // Read before it is replaced: the handler may be called at once.
        if sigaction(SIGBUS, ptr::null(), &raw mut previous) != 0 {
            return;
        }
        keep(&previous);
        // The previous handler is called with the signals blocked that it wants blocked.
        let kept = SA_RESTART | if previous.handler > SIG_IGN { SA_NODEFER } else { 0 };
        let alone = if previous.handler > SIG_IGN { 0 } else { SA_NODEFER };
        let flags = SA_SIGINFO | SA_ONSTACK | alone | previous.flags & kept;
        let new = Action { handler: handle as *const () as usize, flags, ..previous };
        if sigaction(SIGBUS, &raw const new, &raw mut previous) == 0 {
            keep(&previous);
        }
    }
}

extern "C" fn handle(signal: c_int, info: *mut SignalInfo, context: *mut c_void) {
    // SAFETY: the kernel passes valid information.
    let (code, origin) = unsafe { ((*info).code, (*info).origin) };
    let is_ours = if code > 0 {
        MAPPINGS.iter().any(|mapping| mapping.replace_at(origin))
    } else {
        // A handler that the program set later passes a bus error on by raising it again, as Python's `faulthandler` does. Then the
        // address is not known, but a file has become shorter.
        origin as u32 == crate::identity::pid()
            && MAPPINGS.iter().fold(false, |any, mapping| mapping.replace_missing() | any)
    };
    if !is_ours {
        pass_on(signal, code, info, context);
    }
}

/// Does what the process would do without our handler.
fn pass_on(signal: c_int, code: c_int, info: *mut SignalInfo, context: *mut c_void) {
    let flags = PREVIOUS_FLAGS.load(Ordering::Relaxed);
    match PREVIOUS_HANDLER.load(Ordering::Acquire) {
        SIG_IGN if code <= 0 => {}
        previous @ (SIG_DFL | SIG_IGN) => {
            let action = Action { handler: previous, ..DEFAULT };
            // SAFETY: the default action ends the process. An access that failed is repeated when this returns, and a signal that
            // another process sent is sent again.
            unsafe {
                sigaction(signal, &raw const action, ptr::null_mut());
                if code <= 0 {
                    raise(signal);
                }
            }
        }
        previous => {
            if flags & SA_RESETHAND != 0 {
                // SAFETY: the handler is for one signal only.
                unsafe { sigaction(signal, &DEFAULT, ptr::null_mut()) };
            }
            let previous = ptr::with_exposed_provenance::<c_void>(previous);
            // SAFETY: the process had set this function as its handler, of the form that its flags say.
            unsafe {
                if flags & SA_SIGINFO == 0 {
                    core::mem::transmute::<*const c_void, extern "C" fn(c_int)>(previous)(signal);
                } else {
                    type Handler = extern "C" fn(c_int, *mut SignalInfo, *mut c_void);
                    core::mem::transmute::<*const c_void, Handler>(previous)(signal, info, context);
                }
            }
        }
    }
}

/// `Dl_info` of the C library.
#[repr(C)]
struct LoadedObject {
    name: *const c_char,
    base: *const c_void,
    symbol: *const c_char,
    address: *const c_void,
}

/// Keeps the library that contains this code in memory when the program unloads it: a signal handler is in it, and the agent may have
/// the address of a function.
pub(crate) fn keep_loaded() {
    const RTLD_LAZY: c_int = 1;
    const RTLD_NOLOAD: c_int = 4;
    const RTLD_NODELETE: c_int = 0x1000;
    let mut object =
        LoadedObject { name: ptr::null(), base: ptr::null(), symbol: ptr::null(), address: ptr::null() };
    // SAFETY: the struct is that of the C library. No library is loaded that was not.
    unsafe {
        if dladdr(handle as *const c_void, &raw mut object) != 0 && !object.name.is_null() {
            dlopen(object.name, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
        }
    }
}
