//! Calls of the old allocation client, which knows devices by number and has no banks or programs.

use crate::arguments::{byte, class_of, device_number};
use crate::report;
use ttmem_client::compat::AllocationClient;
use ttmem_client::{BufferType, Fault, Tracker};

#[inline]
fn client(tracker: &Tracker) -> AllocationClient<'_> {
    AllocationClient::new(tracker)
}

/// Reports a buffer allocated on a device; `buffer_type` is a `ttmem_buffer_type`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn ttmem_report_allocation(
    device: i32,
    size: u64,
    buffer_type: u32,
    address: u64,
) -> i32 {
    report(|tracker| {
        let kind = byte(buffer_type).and_then(BufferType::from_number).ok_or(Fault::WrongSpace)?;
        client(tracker).report_allocation(&[device_number(device)?], size, kind, address)
    })
}

/// Reports a buffer freed on a device.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn ttmem_report_deallocation(device: i32, address: u64) -> i32 {
    report(|tracker| client(tracker).report_deallocation(&[device_number(device)?], address))
}

/// Registers a circular buffer; `size` is per core, and the cores are unknown.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn ttmem_report_cb_allocation(device: i32, size: u64, address: u64) -> i32 {
    report(|tracker| client(tracker).report_cb_allocation(&[device_number(device)?], size, address))
}

/// Removes a circular buffer. Several may share an address, so the size counts.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn ttmem_report_cb_deallocation(device: i32, size: u64, address: u64) -> i32 {
    report(|tracker| client(tracker).report_cb_deallocation(&[device_number(device)?], size, address))
}

/// Registers a kernel; `size` is the total over its cores, `kind` a `ttmem_kernel_class`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn ttmem_report_kernel_load(device: i32, size: u64, id: u64, kind: u32) -> i32 {
    report(|tracker| client(tracker).report_kernel_load(&[device_number(device)?], size, id, class_of(kind)?))
}

/// Removes a kernel.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn ttmem_report_kernel_unload(device: i32, id: u64) -> i32 {
    report(|tracker| client(tracker).report_kernel_unload(&[device_number(device)?], id))
}
