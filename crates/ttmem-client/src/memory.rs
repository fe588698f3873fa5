//! Memory straight from the kernel. Nothing here uses the process's heap: an event must not allocate, and a child made by a
//! bare `clone` may have inherited a heap that is locked.
#![allow(unsafe_code)]

use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::ptr::{self, NonNull};
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
    /// Maps an array; `None` if the kernel has no memory for it.
    pub(crate) fn new(len: usize) -> Option<Self> {
        let bytes = len.checked_mul(size_of::<T>())?.max(1);
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new private mapping at an address that the kernel chooses affects no other memory.
        let base =
            unsafe { mmap_anonymous(ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, flags) }
                .ok()?;
        Some(Self { base: NonNull::new(base.cast())?, len, _owned: PhantomData })
    }

    /// Requests large pages: a map that is probed everywhere misses fewer address translations.
    pub(crate) fn advise_huge(&self) {
        // SAFETY: the range is our own mapping, and the advice changes nothing but speed.
        let _ =
            unsafe { madvise(self.base.as_ptr().cast(), self.len * size_of::<T>(), Advice::LinuxHugepage) };
    }
}

impl<T> Array<T> {
    /// Prefetches an element that will be read soon.
    #[inline]
    pub(crate) fn prefetch(&self, index: usize) {
        if let Some(value) = self.get(index) {
            prefetch(ptr::from_ref(value));
        }
    }
}

/// Prefetches what is at an address. The address need not be valid.
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
        // SAFETY: the mapping has `len` values; zeros are values of `T` (`new` requires `FromZeros`).
        unsafe { core::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }
}

impl<T> DerefMut for Array<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: the mapping has `len` values; zeros are values of `T`. `self` is borrowed alone.
        unsafe { core::slice::from_raw_parts_mut(self.base.as_ptr(), self.len) }
    }
}

impl<T> Drop for Array<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no reference to it is left.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), (self.len * size_of::<T>()).max(1)) };
    }
}

/// Prefetches a cache line that will be written later.
#[inline]
pub(crate) fn prefetch_write<T>(line: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint about an address that is mapped; it changes nothing but speed.
    unsafe {
        core::arch::asm!("prefetchw [{}]", in(reg) line, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}
