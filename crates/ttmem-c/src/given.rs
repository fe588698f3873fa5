//! Checks of arguments: pointers may be null or misaligned, numbers may have any value.
#![allow(unsafe_code)]

use crate::types::{ttmem_core_range, ttmem_flag};
use core::ffi::{CStr, c_char};
use ttmem_client::{Arch, CoreRange, Fault, KernelClass, Layout, Space};

pub(crate) type Answer<T> = Result<T, Fault>;

/// Returns what a pointer points to.
///
/// # Safety
///
/// It is null or misaligned, which is checked, or points to a `T` that does not change during the call.
#[inline]
pub(crate) unsafe fn one<'a, T>(pointer: *const T) -> Answer<&'a T> {
    if pointer.is_null() {
        return Err(Fault::Null);
    }
    if !pointer.is_aligned() {
        return Err(Fault::BadValue);
    }
    // SAFETY: checked as far as possible, and the caller's promise for the rest.
    Ok(unsafe { &*pointer })
}

/// Returns an array of the given length.
///
/// # Safety
///
/// As for [`one`], for each of them.
pub(crate) unsafe fn slice<'a, T>(pointer: *const T, count: usize) -> Answer<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    if pointer.is_null() {
        return Err(Fault::Null);
    }
    if !pointer.is_aligned() || count > crate::MOST {
        return Err(Fault::BadValue);
    }
    // SAFETY: as above.
    Ok(unsafe { core::slice::from_raw_parts(pointer, count) })
}

/// Returns zero-terminated text; null is empty.
///
/// # Safety
///
/// It is null or zero-terminated.
pub(crate) unsafe fn text<'a>(pointer: *const c_char) -> Answer<&'a str> {
    if pointer.is_null() {
        return Ok("");
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(pointer) }.to_str().map_err(|_| Fault::NotUtf8)
}

/// Copies text into a fixed, zero-terminated field; what does not fit is cut.
pub(crate) fn room<const N: usize>(text: Option<&str>) -> [c_char; N] {
    let mut field = [0; N];
    let text = text.unwrap_or_default();
    let mut end = text.len().min(N - 1);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    for (to, from) in field.iter_mut().zip(text[..end].bytes()) {
        *to = from as c_char;
    }
    field
}

/// Converts the number of a definition. An error code that was passed on means none.
#[inline]
pub(crate) fn number(given: i32) -> u16 {
    u16::try_from(given).unwrap_or(0)
}

#[inline]
pub(crate) fn device(given: i32) -> Answer<u32> {
    u32::try_from(given).map_err(|_| Fault::UnknownChip)
}

/// Checks that no device number is negative.
pub(crate) fn devices(given: &[i32]) -> Answer<&[u32]> {
    if given.iter().any(|&it| it < 0) {
        return Err(Fault::UnknownChip);
    }
    // SAFETY: numbers of the same size, which may have any bits.
    Ok(unsafe { core::slice::from_raw_parts(given.as_ptr().cast(), given.len()) })
}

#[inline]
pub(crate) fn space_of(given: u32) -> Answer<Space> {
    small(given).and_then(Space::from_number).ok_or(Fault::WrongSpace)
}

#[inline]
pub(crate) fn layout_of(given: u32, flags: u32) -> Answer<Layout> {
    let layout = small(given).and_then(Layout::from_number).filter(|layout| !layout.is_alias());
    let layout = layout.ok_or(Fault::BadValue)?;
    Ok(if flags & ttmem_flag::Mirror as u32 != 0 { Layout::Mirror } else { layout })
}

pub(crate) fn arch_of(given: u32) -> Answer<Option<Arch>> {
    match given {
        0 => Ok(None),
        given => small(given).and_then(Arch::from_number).map(Some).ok_or(Fault::BadValue),
    }
}

pub(crate) fn class_of(given: u32) -> Answer<KernelClass> {
    small(given).and_then(KernelClass::from_number).ok_or(Fault::BadValue)
}

#[inline]
pub(crate) fn small(given: u32) -> Option<u8> {
    u8::try_from(given).ok()
}

pub(crate) fn range_of(given: ttmem_core_range) -> Answer<CoreRange> {
    let small = |value: u32| u8::try_from(value).ok().filter(|&it| it < 16).ok_or(Fault::BadValue);
    let (from, to) = ((small(given.x0)?, small(given.y0)?), (small(given.x1)?, small(given.y1)?));
    // An inverted range would have no cores.
    if from.0 > to.0 || from.1 > to.1 {
        return Err(Fault::BadValue);
    }
    Ok(CoreRange { from, to })
}
