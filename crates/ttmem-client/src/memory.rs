//! Memory straight from the kernel. Nothing here uses the process's own allocator: an event must not allocate, and a
//! child made by a bare `clone` may have inherited that allocator locked.
#![allow(unsafe_code)]

use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::ptr::{self, NonNull};
use core::sync::atomic::AtomicU64;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use zerocopy::FromZeros;

/// An array of zeros that costs memory only where it is touched.
pub(crate) struct Array<T> {
    base: NonNull<T>,
    len: usize,
    _owned: PhantomData<T>,
}

// SAFETY: it owns its memory, as a `Vec` does.
unsafe impl<T: Send> Send for Array<T> {}

impl<T: FromZeros + Copy> Array<T> {
    /// `None`: the kernel has no room.
    pub(crate) fn new(len: usize) -> Option<Self> {
        let bytes = len.checked_mul(size_of::<T>())?.max(1);
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new private mapping, at an address of the kernel's choice, disturbs nobody.
        let base =
            unsafe { mmap_anonymous(ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, flags) }
                .ok()?;
        Some(Self { base: NonNull::new(base.cast())?, len, _owned: PhantomData })
    }

    /// Asks for large pages: a map that is probed everywhere misses fewer address translations.
    pub(crate) fn advise_huge(&self) {
        // SAFETY: the range is our own mapping, and the advice changes nothing but speed.
        let _ =
            unsafe { madvise(self.base.as_ptr().cast(), self.len * size_of::<T>(), Advice::LinuxHugepage) };
    }
}

impl<T> Array<T> {
    /// Has a value brought near, for it will be wanted soon.
    #[inline]
    pub(crate) fn prefetch(&self, index: usize) {
        if let Some(value) = self.get(index) {
            prefetch(ptr::from_ref(value));
        }
    }
}

/// Has what is at an address brought near, if anything is.
#[inline]
pub(crate) fn prefetch<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint about an address, which need not be valid; it changes nothing but speed.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

impl<T> Deref for Array<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the mapping has `len` values; zeros are values of `T` (`new` asks for `FromZeros`).
        unsafe { core::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }
}

impl<T> DerefMut for Array<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and `self` is borrowed alone.
        unsafe { core::slice::from_raw_parts_mut(self.base.as_ptr(), self.len) }
    }
}

impl<T> Drop for Array<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nobody borrows it any more.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), (self.len * size_of::<T>()).max(1)) };
    }
}

/// Has a cache line brought near that will be written to later.
#[inline]
pub(crate) fn expect_write<T>(line: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint about an address that is mapped; it changes nothing but speed.
    unsafe {
        core::arch::asm!("prefetchw [{}]", in(reg) line, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}

/// What a forked child must find at zero, however it was made: the kernel wipes this page on `fork` and `clone`.
#[repr(C)]
pub(crate) struct Guard {
    /// Who is inside: a number of the thread, or 0.
    pub(crate) owner: AtomicU64,
    /// The process that this memory belongs to; 0 in a child that has not noticed yet.
    pub(crate) pid: AtomicU64,
    /// Whether the kernel does not wipe the page, so that `pid` must be compared with the real one.
    pub(crate) look: AtomicU64,
}

impl Guard {
    /// A guard for ever: it is never given back, since a thread may be about to look at it.
    pub(crate) fn new() -> Option<&'static Self> {
        let bytes = rustix::param::page_size();
        let array = Array::<u64>::new(bytes / size_of::<u64>())?;
        let base = array.base.as_ptr();
        core::mem::forget(array);
        // SAFETY: the page is ours, large enough and aligned for a `Guard`, zeros are one, and it is never unmapped.
        let guard = unsafe { &*base.cast::<Self>() };
        // SAFETY: the range is our own mapping. In this process it changes nothing.
        let wiped = unsafe { madvise(base.cast(), bytes, Advice::LinuxWipeOnFork) };
        if wiped.is_err() {
            // Kernels before 4.14, and a few sandboxes.
            guard.look.store(1, core::sync::atomic::Ordering::Relaxed);
        }
        Some(guard)
    }
}
