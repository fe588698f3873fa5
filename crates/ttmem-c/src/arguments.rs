//! Checks of arguments: pointers may be null or misaligned, and numbers may have any value.
#![allow(unsafe_code)]

use crate::types::{ttmem_core_range, ttmem_flag};
use core::ffi::{CStr, c_char};
use ttmem_client::{AllocatorNumber, Arch, CoreRange, Fault, KernelClass, Layout, Purpose, Space};

/// A checked argument, or the error to return.
pub(crate) type Checked<T> = Result<T, Fault>;

/// Returns what a pointer points to.
///
/// # Safety
///
/// The pointer is null or misaligned, which is checked, or points to a `T` that does not change during the call.
#[inline]
pub(crate) unsafe fn pointee<'a, T>(pointer: *const T) -> Checked<&'a T> {
    if pointer.is_null() {
        return Err(Fault::Null);
    }
    if !pointer.is_aligned() {
        return Err(Fault::BadValue);
    }
    // SAFETY: the pointer is checked as far as possible; the rest is the caller's promise.
    Ok(unsafe { &*pointer })
}

/// Returns an array of the given length.
///
/// # Safety
///
/// As for [`pointee`], for each element.
pub(crate) unsafe fn slice<'a, T>(pointer: *const T, count: usize) -> Checked<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    if pointer.is_null() {
        return Err(Fault::Null);
    }
    if !pointer.is_aligned() || count > crate::MAX_ELEMENTS {
        return Err(Fault::BadValue);
    }
    // SAFETY: the pointer is checked as far as possible; the rest is the caller's promise.
    Ok(unsafe { core::slice::from_raw_parts(pointer, count) })
}

/// Returns zero-terminated text; null is empty.
///
/// # Safety
///
/// The pointer is null, or the text is zero-terminated.
pub(crate) unsafe fn text<'a>(pointer: *const c_char) -> Checked<&'a str> {
    if pointer.is_null() {
        return Ok("");
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(pointer) }.to_str().map_err(|_| Fault::NotUtf8)
}

/// Copies text into a fixed, zero-terminated field; what does not fit is cut.
pub(crate) fn fixed_text<const N: usize>(text: Option<&str>) -> [c_char; N] {
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
pub(crate) fn definition_number(given: i32) -> u16 {
    u16::try_from(given).unwrap_or(0)
}

/// Converts the number of an allocator. An error code that was passed on means none.
#[inline]
pub(crate) fn allocator_of(given: i32) -> AllocatorNumber {
    AllocatorNumber::new(definition_number(given))
}

#[inline]
pub(crate) fn device_number(given: i32) -> Checked<u32> {
    u32::try_from(given).map_err(|_| Fault::UnknownChip)
}

/// Checks that no device number is negative.
pub(crate) fn device_numbers(given: &[i32]) -> Checked<&[u32]> {
    if given.iter().any(|&device| device < 0) {
        return Err(Fault::UnknownChip);
    }
    // SAFETY: `i32` and `u32` have the same size and alignment, and every bit pattern is valid.
    Ok(unsafe { core::slice::from_raw_parts(given.as_ptr().cast(), given.len()) })
}

#[inline]
pub(crate) fn space_of(given: u32) -> Checked<Space> {
    byte(given).and_then(Space::from_number).ok_or(Fault::WrongSpace)
}

#[inline]
pub(crate) fn layout_of(given: u32, flags: u32) -> Checked<Layout> {
    let layout = byte(given).and_then(Layout::from_number).filter(|layout| !layout.is_alias());
    let layout = layout.ok_or(Fault::BadValue)?;
    Ok(if flags & ttmem_flag::Mirror as u32 != 0 { Layout::Mirror } else { layout })
}

pub(crate) fn arch_of(given: u32) -> Checked<Option<Arch>> {
    match given {
        0 => Ok(None),
        given => byte(given).and_then(Arch::from_number).map(Some).ok_or(Fault::BadValue),
    }
}

pub(crate) fn class_of(given: u32) -> Checked<KernelClass> {
    byte(given).and_then(KernelClass::from_number).ok_or(Fault::BadValue)
}

pub(crate) fn purpose_of(given: u32) -> Checked<Purpose> {
    byte(given).and_then(Purpose::from_number).ok_or(Fault::BadValue)
}

/// Returns what a name means; null and empty: unknown.
///
/// # Safety
///
/// As for [`text`].
pub(crate) unsafe fn name_of<T>(
    pointer: *const c_char,
    meaning: impl FnOnce(&str) -> Option<T>,
) -> Checked<Option<T>> {
    // SAFETY: the caller's promise.
    match unsafe { text(pointer) }? {
        "" => Ok(None),
        name => meaning(name).map(Some).ok_or(Fault::BadValue),
    }
}

#[inline]
pub(crate) fn byte(given: u32) -> Option<u8> {
    u8::try_from(given).ok()
}

pub(crate) fn range_of(given: ttmem_core_range) -> Checked<CoreRange> {
    let coordinate = |value: u32| byte(value).filter(|&value| value < 16).ok_or(Fault::BadValue);
    let from = (coordinate(given.x0)?, coordinate(given.y0)?);
    let to = (coordinate(given.x1)?, coordinate(given.y1)?);
    // An inverted range would have no cores.
    if from.0 > to.0 || from.1 > to.1 {
        return Err(Fault::BadValue);
    }
    Ok(CoreRange::new(from, to))
}
