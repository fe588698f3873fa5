//! Tracks an untouched tt-metal. Loaded with `LD_PRELOAD`, it stands in for the functions in which the runtime's
//! allocators change, calls the real ones, and publishes what happened in the process's segment.
//!
//! * `lib` has the names that the dynamic linker binds the runtime to;
//! * the shim (`shim.cpp`, and `shim_programs.cpp` for programs) is what is bound: it calls through, and asks the runtime what
//!   it needs to know;
//! * `runtime` finds the runtime's functions: one table, in which a version may lack what it lacks;
//! * `agent` gives it meaning; `allocators` knows the runtime's allocators and their chips;
//! * `programs` knows the runtime's programs and what they keep, `traces` which of them a replay leaves behind;
//! * `audit` asks the allocators for their own figures, from a thread of its own;
//! * `others` has those keep quiet who are told by hand in the same process.
//!
//! In a process that never loads the runtime none of it ever runs: there is no constructor, no thread, no file.
//!
//! | variable | means |
//! |---|---|
//! | `TTMEM=0` | call through, and do nothing else |
//!
//! The others are those of `ttmem-client`.
#![allow(unsafe_code)]

mod agent;
mod allocators;
mod audit;
mod flight;
mod others;
mod programs;
mod runtime;
mod shim;
mod traces;

use core::ffi::c_void;

type Pointer = *mut c_void;

/// A name that the runtime calls, and the shim's function behind it. The frame between them has nothing to unwind, so that
/// what the runtime throws passes through it.
macro_rules! stand_in {
    ($($name:ident: $symbol:literal => $hook:ident($($argument:ident: $kind:ty),*) $(-> $result:ty)?;)*) => {$(
        /// Stands in for a function of the runtime.
        ///
        /// # Safety
        ///
        /// Only the runtime may call it, as it calls its own.
        #[unsafe(export_name = $symbol)]
        pub unsafe extern "C-unwind" fn $name($($argument: $kind),*) $(-> $result)? {
            unsafe extern "C-unwind" {
                fn $hook($($argument: $kind),*) $(-> $result)?;
            }
            // SAFETY: the arguments are the runtime's own, passed on as they came.
            unsafe { $hook($($argument),*) }
        }
    )*};
}

/// As the C++ library passes a span.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Span {
    begin: Pointer,
    len: usize,
}

stand_in! {
    allocate: "_ZN2tt8tt_metal13AllocatorImpl15allocate_bufferEPNS0_6BufferE"
        => ttmem_hook_allocate(allocator: Pointer, buffer: Pointer) -> u64;
    deallocate: "_ZN2tt8tt_metal13AllocatorImpl17deallocate_bufferEPNS0_6BufferE"
        => ttmem_hook_deallocate(allocator: Pointer, buffer: Pointer);
    deallocate_all: "_ZN2tt8tt_metal13AllocatorImpl18deallocate_buffersEv"
        => ttmem_hook_deallocate_all(allocator: Pointer);
    clear: "_ZN2tt8tt_metal13AllocatorImpl5clearEv" => ttmem_hook_clear(allocator: Pointer);
    destroy: "_ZN2tt8tt_metal13AllocatorImplD2Ev" => ttmem_hook_destroy(allocator: Pointer);
    destroy_complete: "_ZN2tt8tt_metal13AllocatorImplD1Ev" => ttmem_hook_destroy(allocator: Pointer);
    mirror: "_ZN2tt8tt_metal13AllocatorImpl26mirror_lockstep_allocationEmm"
        => ttmem_hook_mirror(allocator: Pointer, address: u64, bytes: u64);
    unmirror: "_ZN2tt8tt_metal13AllocatorImpl28unmirror_lockstep_allocationEm"
        => ttmem_hook_unmirror(allocator: Pointer, address: u64);
    override_state: "_ZN2tt8tt_metal13AllocatorImpl14override_stateERKNS0_14AllocatorStateE"
        => ttmem_hook_override_state(allocator: Pointer, state: Pointer);
    shrink: "_ZN2tt8tt_metal13AllocatorImpl21shrink_allocator_sizeERKNS0_10BufferTypeEmb"
        => ttmem_hook_shrink(allocator: Pointer, kind: Pointer, bytes: u64, bottom_up: bool);
    reset_size: "_ZN2tt8tt_metal13AllocatorImpl20reset_allocator_sizeERKNS0_10BufferTypeE"
        => ttmem_hook_reset_size(allocator: Pointer, kind: Pointer);
    mesh_allocator: "_ZN2tt8tt_metal16SubDeviceManagerC1EPNS0_7IDeviceEOSt10unique_ptrINS0_13AllocatorImplESt14default_deleteIS5_EESt4spanIKNS0_9SubDeviceELm18446744073709551615EE"
        => ttmem_hook_mesh_allocator(manager: Pointer, device: Pointer, allocator: Pointer, subs: Pointer, len: usize);
    finalize_programs: "_ZN2tt8tt_metal6detail11ProgramImpl24finalize_program_offsetsEN4ttsl10StrongTypeIiNS0_12ContextIdTagEEEPNS0_7IDeviceERKSt8functionIFRSt13unordered_mapIjSt10shared_ptrINS0_6KernelEESt4hashIjESt8equal_toIjESaISt4pairIKjSD_EEEjEERKS9_IFRSt6vectorISB_INS0_11KernelGroupEESaISU_EEjEERKS9_IFRKSS_INS0_9SemaphoreESaIS12_EEvEESt4spanIPS2_Lm18446744073709551615EE"
        => ttmem_hook_finalize_programs(
            context: i32, device: Pointer, kernels: Pointer, groups: Pointer, semaphores: Pointer, programs: Span) -> u32;
    finalize_workload: "_ZN2tt8tt_metal11distributed16MeshWorkloadImpl16finalize_offsetsEPNS1_10MeshDeviceE"
        => ttmem_hook_finalize_workload(workload: Pointer, mesh: Pointer);
    enqueue: "_ZN2tt8tt_metal11distributed19EnqueueMeshWorkloadERNS1_16MeshCommandQueueERNS1_12MeshWorkloadEb"
        => ttmem_hook_enqueue(queue: Pointer, workload: Pointer, blocking: bool);
    end_program: "_ZN2tt8tt_metal6detail11ProgramImplD1Ev" => ttmem_hook_end_program(program: Pointer);
    place_dfbs: "_ZN2tt8tt_metal6detail11ProgramImpl25allocate_dataflow_buffersEPKNS0_7IDeviceE"
        => ttmem_hook_place_dfbs(program: Pointer, device: Pointer);
    mark_address: "_ZN2tt8tt_metal6detail11ProgramImpl23CircularBufferAllocator12mark_addressEmmm"
        => ttmem_hook_mark_address(taken: Pointer, address: u64, bytes: u64, base: u64);
    unplace_cbs: "_ZN2tt8tt_metal6detail11ProgramImpl37invalidate_circular_buffer_allocationEv"
        => ttmem_hook_unplace_cbs(program: Pointer);
    resize_dfbs: "_ZN2tt8tt_metal6detail11ProgramImpl24apply_dfb_size_overridesERKSt6vectorINS2_15DfbSizeOverrideESaIS4_EE"
        => ttmem_hook_resize_dfbs(program: Pointer, sizes: Pointer);
    mesh_close: "_ZN2tt8tt_metal11distributed14MeshDeviceImpl10close_implEPNS1_10MeshDeviceE"
        => ttmem_hook_mesh_close(behind: Pointer, mesh: Pointer);
    trace_begin: "_ZN2tt8tt_metal11distributed14MeshDeviceImpl16begin_mesh_traceEhRKN4ttsl10StrongTypeIjNS1_14MeshTraceIdTagEEE"
        => ttmem_hook_trace_begin(behind: Pointer, queue: u8, trace: Pointer);
    trace_end: "_ZN2tt8tt_metal11distributed14MeshDeviceImpl14end_mesh_traceEhRKN4ttsl10StrongTypeIjNS1_14MeshTraceIdTagEEE"
        => ttmem_hook_trace_end(behind: Pointer, queue: u8, trace: Pointer);
    trace_replay: "_ZN2tt8tt_metal11distributed14MeshDeviceImpl17replay_mesh_traceEhRKN4ttsl10StrongTypeIjNS1_14MeshTraceIdTagEEEb"
        => ttmem_hook_trace_replay(behind: Pointer, queue: u8, trace: Pointer, blocking: bool);
    trace_release: "_ZN2tt8tt_metal11distributed10MeshDevice18release_mesh_traceERKN4ttsl10StrongTypeIjNS1_14MeshTraceIdTagEEE"
        => ttmem_hook_trace_release(mesh: Pointer, trace: Pointer);
    fabric_program: "_ZN2tt9tt_fabric36create_and_compile_tt_fabric_programERNS0_13FabricContextENS_8CoreTypeEPNS_8tt_metal7IDeviceE"
        => ttmem_hook_fabric_program(made: Pointer, context: Pointer, kind: i32, device: Pointer) -> Pointer;
    fabric_program_before: "_ZN2tt9tt_fabric36create_and_compile_tt_fabric_programEPNS_8tt_metal7IDeviceE"
        => ttmem_hook_fabric_program_before(made: Pointer, device: Pointer) -> Pointer;
    dispatch_program: "_ZN2tt8tt_metal6detail19ProgramCompileGroup11add_programEPNS0_7IDeviceESt10unique_ptrINS0_7ProgramESt14default_deleteIS6_EE"
        => ttmem_hook_dispatch_program(group: Pointer, device: Pointer, program: Pointer);
    device_allocator: "_ZN2tt8tt_metal6Device20initialize_allocatorEmmmSt4spanIKjLm18446744073709551615EE"
        => ttmem_hook_device_allocator(
            made: Pointer, device: Pointer, l1_small: u64, trace: u64, l1_base: u64, remap: Span) -> Pointer;
}
