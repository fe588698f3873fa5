//! The runtime as we know it: which functions, by which names, and what a version keeps where. One table; a function that
//! a runtime does not have is a call that is not made.
#![allow(unsafe_code)]

use core::ffi::{CStr, c_int, c_void};
use core::ptr;
use core::sync::atomic::Ordering;
use std::ffi::CString;
use std::path::{Path, PathBuf};
use ttmem_wire::hooks::Hook;

/// What we call or look at, in the order of `Call` in shim.hpp. The first are those that we stand in for.
const NAMES: [(&CStr, Need); 88] = [
    // What every event needs.
    (c"_ZN2tt8tt_metal13AllocatorImpl15allocate_bufferEPNS0_6BufferE", Need::Hook(Hook::Allocate)),
    (c"_ZN2tt8tt_metal13AllocatorImpl17deallocate_bufferEPNS0_6BufferE", Need::Hook(Hook::Deallocate)),
    (c"_ZNK2tt8tt_metal6Buffer11buffer_typeEv", Need::Nice),
    (c"_ZNK2tt8tt_metal6Buffer13buffer_layoutEv", Need::Nice),
    (c"_ZNK2tt8tt_metal6Buffer4sizeEv", Need::Nice),
    (c"_ZNK2tt8tt_metal6Buffer9page_sizeEv", Need::Hook(Hook::Buffers)),
    (c"_ZNK2tt8tt_metal6Buffer7addressEv", Need::Hook(Hook::Buffers)),
    // AllocatorImpl: what else changes it.
    (c"_ZN2tt8tt_metal13AllocatorImpl18deallocate_buffersEv", Need::Hook(Hook::DeallocateAll)),
    (c"_ZN2tt8tt_metal13AllocatorImpl5clearEv", Need::Hook(Hook::Clear)),
    (c"_ZN2tt8tt_metal13AllocatorImplD2Ev", Need::Hook(Hook::Destroy)),
    (c"_ZN2tt8tt_metal13AllocatorImpl26mirror_lockstep_allocationEmm", Need::Newer(Hook::Mirror)),
    (c"_ZN2tt8tt_metal13AllocatorImpl28unmirror_lockstep_allocationEm", Need::Newer(Hook::Unmirror)),
    (c"_ZN2tt8tt_metal13AllocatorImpl14override_stateERKNS0_14AllocatorStateE", Need::Hook(Hook::Override)),
    (c"_ZN2tt8tt_metal13AllocatorImpl21shrink_allocator_sizeERKNS0_10BufferTypeEmb", Need::Hook(Hook::Resize)),
    (c"_ZN2tt8tt_metal13AllocatorImpl20reset_allocator_sizeERKNS0_10BufferTypeE", Need::Hook(Hook::Resize)),
    // Devices and meshes: when one gets its allocator.
    (c"_ZN2tt8tt_metal16SubDeviceManagerC1EPNS0_7IDeviceEOSt10unique_ptrINS0_13AllocatorImplESt14default_deleteIS5_EESt4spanIKNS0_9SubDeviceELm18446744073709551615EE", Need::Hook(Hook::MeshOpen)),
    (c"_ZN2tt8tt_metal6Device20initialize_allocatorEmmmSt4spanIKjLm18446744073709551615EE", Need::Hook(Hook::DeviceOpen)),
    // AllocatorImpl: what it says.
    (c"_ZNK2tt8tt_metal13AllocatorImpl14get_statisticsERKNS0_10BufferTypeE", Need::Hook(Hook::Statistics)),
    (c"_ZNK2tt8tt_metal13AllocatorImpl13get_num_banksERKNS0_10BufferTypeE", Need::Hook(Hook::Banks)),
    (c"_ZNK2tt8tt_metal13AllocatorImpl13get_bank_sizeERKNS0_10BufferTypeE", Need::Hook(Hook::Banks)),
    (c"_ZNK2tt8tt_metal13AllocatorImpl23get_base_allocator_addrERKNS0_10HalMemTypeE", Need::Hook(Hook::Banks)),
    (c"_ZNK2tt8tt_metal13AllocatorImpl13get_alignmentENS0_10BufferTypeE", Need::Hook(Hook::Banks)),
    (c"_ZNK2tt8tt_metal13AllocatorImpl18get_worker_l1_sizeEv", Need::Nice),
    // Buffer.
    (c"_ZNK2tt8tt_metal6Buffer9num_pagesEv", Need::Hook(Hook::Buffers)),
    (c"_ZNK2tt8tt_metal6Buffer17aligned_page_sizeEv", Need::Hook(Hook::Buffers)),
    (c"_ZNK2tt8tt_metal6Buffer12aligned_sizeEv", Need::Hook(Hook::Buffers)),
    (c"_ZNK2tt8tt_metal6Buffer21aligned_size_per_bankEv", Need::Hook(Hook::Buffers)),
    (c"_ZNK2tt8tt_metal6Buffer9num_coresEv", Need::Hook(Hook::Buffers)),
    (c"_ZNK2tt8tt_metal6Buffer14has_shard_specEv", Need::Nice),
    (c"_ZNK2tt8tt_metal6Buffer10shard_specEv", Need::Hook(Hook::Shards)),
    (c"_ZNK2tt8tt_metal6Buffer6deviceEv", Need::Nice),
    (c"_ZNK2tt8tt_metal6Buffer7is_dramEv", Need::Nice),
    (c"_ZN2tt8tt_metal12experimental19per_core_allocation22is_per_core_allocationERKNS0_6BufferE", Need::Newer(Hook::PerCore)),
    (c"_ZN2tt8tt_metal12experimental19per_core_allocation22get_per_core_addressesERKNS0_6BufferE", Need::Newer(Hook::PerCore)),
    // Who the chips are.
    (c"_ZNK2tt8tt_metal11distributed10MeshDevice14get_device_idsEv", Need::Hook(Hook::Chips)),
    (c"_ZNK2tt8tt_metal11distributed10MeshDevice2idEv", Need::Hook(Hook::Chips)),
    (c"_ZTVN2tt8tt_metal11distributed10MeshDeviceE", Need::Hook(Hook::Chips)),
    (c"_ZTVN2tt8tt_metal6DeviceE", Need::Hook(Hook::Chips)),
    (c"_ZN2tt8tt_metal12MetalContext15instance_existsEN4ttsl10StrongTypeIiNS0_12ContextIdTagEEE", Need::Nice),
    (c"_ZN2tt8tt_metal12MetalContext8instanceEN4ttsl10StrongTypeIiNS0_12ContextIdTagEEE", Need::Hook(Hook::Identity)),
    (c"_ZN2tt8tt_metal12MetalContext11get_clusterEv", Need::Hook(Hook::Identity)),
    (c"_ZNK2tt7Cluster16get_cluster_descEv", Need::Hook(Hook::Identity)),
    (c"_ZNK2tt3umd17ClusterDescriptor19get_chip_unique_idsEv", Need::Hook(Hook::Identity)),
    (c"_ZNK2tt3umd17ClusterDescriptor8get_archEi", Need::Hook(Hook::Identity)),
    (c"_ZNK2tt3umd17ClusterDescriptor21get_board_id_for_chipEi", Need::Hook(Hook::Identity)),
    (c"_ZNK2tt3umd17ClusterDescriptor20get_harvesting_masksEi", Need::Hook(Hook::Identity)),
    (c"_ZNK2tt3umd17ClusterDescriptor19get_chips_with_mmioEv", Need::Nice),
    (c"_ZNK2tt3umd17ClusterDescriptor17get_chip_pci_bdfsB5cxx11Ev", Need::Nice),
    // What an allocator has handed out, block by block.
    (c"_ZNK2tt8tt_metal13AllocatorImpl22get_memory_block_tableB5cxx11ERKNS0_10BufferTypeE", Need::Hook(Hook::Override)),
    // Programs: what is built, dispatched, destroyed.
    (c"_ZN2tt8tt_metal6detail11ProgramImpl24finalize_program_offsetsEN4ttsl10StrongTypeIiNS0_12ContextIdTagEEEPNS0_7IDeviceERKSt8functionIFRSt13unordered_mapIjSt10shared_ptrINS0_6KernelEESt4hashIjESt8equal_toIjESaISt4pairIKjSD_EEEjEERKS9_IFRSt6vectorISB_INS0_11KernelGroupEESaISU_EEjEERKS9_IFRKSS_INS0_9SemaphoreESaIS12_EEvEESt4spanIPS2_Lm18446744073709551615EE", Need::Hook(Hook::Programs)),
    (c"_ZN2tt8tt_metal11distributed16MeshWorkloadImpl16finalize_offsetsEPNS1_10MeshDeviceE", Need::Hook(Hook::Programs)),
    (c"_ZN2tt8tt_metal11distributed19EnqueueMeshWorkloadERNS1_16MeshCommandQueueERNS1_12MeshWorkloadEb", Need::Hook(Hook::Dispatch)),
    (c"_ZN2tt8tt_metal6detail11ProgramImplD1Ev", Need::Hook(Hook::Programs)),
    (c"_ZN2tt8tt_metal6detail11ProgramImpl25allocate_dataflow_buffersEPKNS0_7IDeviceE", Need::Newer(Hook::DataflowBuffers)),
    (c"_ZN2tt8tt_metal6detail11ProgramImpl23CircularBufferAllocator12mark_addressEmmm", Need::Newer(Hook::DataflowBuffers)),
    (c"_ZN2tt8tt_metal6detail11ProgramImpl37invalidate_circular_buffer_allocationEv", Need::Hook(Hook::CircularBuffers)),
    (c"_ZN2tt8tt_metal6detail11ProgramImpl24apply_dfb_size_overridesERKSt6vectorINS2_15DfbSizeOverrideESaIS4_EE", Need::Nice),
    (c"_ZN2tt8tt_metal11distributed14MeshDeviceImpl10close_implEPNS1_10MeshDeviceE", Need::Hook(Hook::Programs)),
    (c"_ZN2tt8tt_metal11distributed14MeshDeviceImpl16begin_mesh_traceEhRKN4ttsl10StrongTypeIjNS1_14MeshTraceIdTagEEE", Need::Hook(Hook::Traces)),
    (c"_ZN2tt8tt_metal11distributed14MeshDeviceImpl14end_mesh_traceEhRKN4ttsl10StrongTypeIjNS1_14MeshTraceIdTagEEE", Need::Hook(Hook::Traces)),
    (c"_ZN2tt8tt_metal11distributed14MeshDeviceImpl17replay_mesh_traceEhRKN4ttsl10StrongTypeIjNS1_14MeshTraceIdTagEEEb", Need::Hook(Hook::Traces)),
    (c"_ZN2tt8tt_metal11distributed10MeshDevice18release_mesh_traceERKN4ttsl10StrongTypeIjNS1_14MeshTraceIdTagEEE", Need::Hook(Hook::Traces)),
    (c"_ZN2tt9tt_fabric36create_and_compile_tt_fabric_programERNS0_13FabricContextENS_8CoreTypeEPNS_8tt_metal7IDeviceE", Need::Nice),
    (c"_ZN2tt9tt_fabric36create_and_compile_tt_fabric_programEPNS_8tt_metal7IDeviceE", Need::Nice),
    (c"_ZN2tt8tt_metal6detail19ProgramCompileGroup11add_programEPNS0_7IDeviceESt10unique_ptrINS0_7ProgramESt14default_deleteIS6_EE", Need::Nice),
    // What a program says.
    (c"_ZNK2tt8tt_metal6detail11ProgramImpl6get_idEv", Need::Hook(Hook::Programs)),
    (c"_ZNK2tt8tt_metal6detail11ProgramImpl16circular_buffersEv", Need::Hook(Hook::CircularBuffers)),
    (c"_ZNK2tt8tt_metal14CircularBuffer11core_rangesEv", Need::Hook(Hook::CircularBuffers)),
    (c"_ZNK2tt8tt_metal14CircularBuffer4sizeEv", Need::Hook(Hook::CircularBuffers)),
    (c"_ZNK2tt8tt_metal14CircularBuffer18globally_allocatedEv", Need::Hook(Hook::CircularBuffers)),
    (c"_ZNK2tt8tt_metal18CircularBufferImpl7addressEv", Need::Hook(Hook::CircularBuffers)),
    (c"_ZNK2tt8tt_metal6detail11ProgramImpl16dataflow_buffersEv", Need::Nice),
    (c"_ZN2tt8tt_metal6detail11ProgramImpl23get_program_config_sizeEj", Need::Hook(Hook::Kernels)),
    (c"_ZN2tt8tt_metal6detail11ProgramImpl17get_kernel_groupsEj", Need::Hook(Hook::Kernels)),
    (c"_ZN2tt8tt_metal6detail11ProgramImpl11get_kernelsEj", Need::Hook(Hook::Kernels)),
    (c"_ZNK2tt8tt_metal6Kernel4nameB5cxx11Ev", Need::Hook(Hook::Kernels)),
    (c"_ZNK2tt8tt_metal6Kernel18logical_corerangesEv", Need::Hook(Hook::Kernels)),
    (c"_ZTVN2tt8tt_metal13ComputeKernelE", Need::Nice),
    (c"_ZN2tt8tt_metal6detail11ProgramImpl20allocate_scratchpadsEPKNS0_7IDeviceE", Need::Newer(Hook::Scratchpads)),
    // Where it runs.
    (c"_ZN2tt8tt_metal11distributed12MeshWorkload12get_programsEv", Need::Hook(Hook::Dispatch)),
    (c"_ZNK2tt8tt_metal11distributed10MeshDevice8get_viewEv", Need::Hook(Hook::Programs)),
    (c"_ZNK2tt8tt_metal11distributed14MeshDeviceView11get_devicesERKNS1_19MeshCoordinateRangeE", Need::Hook(Hook::Programs)),
    (c"_ZNK2tt8tt_metal11distributed14MeshDeviceImpl2idEv", Need::Hook(Hook::Traces)),
    (c"_ZNK2tt8tt_metal11distributed14MeshDeviceImpl14get_device_idsEv", Need::Hook(Hook::Traces)),
    (c"_ZNK2tt8tt_metal11distributed10MeshDevice30compute_with_storage_grid_sizeEv", Need::Hook(Hook::Cores)),
    (c"_ZNK2tt8tt_metal6Device30compute_with_storage_grid_sizeEv", Need::Nice),
    (c"_ZN2tt8tt_metal3hal33get_max_worker_l1_unreserved_sizeEv", Need::Hook(Hook::Cores)),
    // What frees the memory of answers.
    (DELETE, Need::Hook(Hook::Shards)),
];

const DELETE: &CStr = c"_ZdlPv";

/// How much depends on a function.
#[derive(Clone, Copy)]
enum Need {
    /// What is known as this hook is not whole without it.
    Hook(Hook),
    /// The same, but runtimes without it have nothing that it would be needed for.
    Newer(Hook),
    /// There is another way.
    Nice,
}

/// Where `Buffer` keeps what a runtime exports no function for; -1: it exports one, or we do not know.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct BufferLayout {
    device: i32,
    size: i32,
    kind: i32,
    layout: i32,
    has_shard_spec: i32,
}

/// Runtimes that have functions for everything.
const EXPORTED: BufferLayout =
    BufferLayout { device: -1, size: -1, kind: -1, layout: -1, has_shard_spec: -1 };
/// Runtimes until 0.79, which kept these in line; checked against the functions there are before it is believed.
const IN_LINE: BufferLayout =
    BufferLayout { device: 16, size: 24, kind: 32, layout: 36, has_shard_spec: 152 };

/// Where a program's parts keep what no runtime has a function for; -1: we do not know.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ProgramLayout {
    /// The list of scratchpads in `Kernel`, and what one takes there.
    scratchpads: i32,
    scratchpad: i32,
    /// In `DataflowBufferImpl`: its cores, the size and number of its entries, whether it borrows a buffer, and where that is.
    dfb_cores: i32,
    dfb_entries: i32,
    dfb_borrows: i32,
    dfb_borrowed: i32,
}

/// By release, as far as it was looked at: of others nothing is known.
fn program_layout(runtime: &str) -> Option<ProgramLayout> {
    let mut numbers = runtime.strip_prefix("ttnn ")?.split('.').map(str::parse::<u32>);
    let (Some(Ok(0)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else { return None };
    let (dfb_cores, dfb_entries, dfb_borrows, dfb_borrowed) = (-1, -1, -1, -1);
    let older = ProgramLayout {
        scratchpads: 0x220,
        scratchpad: 0x30,
        dfb_cores,
        dfb_entries,
        dfb_borrows,
        dfb_borrowed,
    };
    match minor {
        76..=79 => Some(older),
        80 => Some(ProgramLayout { scratchpad: 0x60, ..older }),
        81 => Some(ProgramLayout {
            scratchpads: 0x220,
            scratchpad: 0x60,
            dfb_cores: 16,
            dfb_entries: 40,
            dfb_borrows: 114,
            dfb_borrowed: 232,
        }),
        _ => None,
    }
}

unsafe extern "C" {
    static mut ttmem_calls: [*mut c_void; NAMES.len()];
    static mut ttmem_layout: BufferLayout;
    static mut ttmem_program_layout: ProgramLayout;
    static mut ttmem_cxx_personality: *mut c_void;
    static mut ttmem_cxx_begin_catch: *mut c_void;
    static mut ttmem_cxx_end_catch: *mut c_void;
    static mut ttmem_cxx_rethrow: *mut c_void;
    static mut ttmem_cxx_call_unexpected: *mut c_void;
}

/// What was found.
pub(crate) struct Found {
    /// Hooks that took, a bit each.
    pub(crate) taken: u64,
    /// Hooks that were wanted of this runtime.
    pub(crate) wanted: u64,
    /// The runtime, for people.
    pub(crate) runtime: String,
    /// Whether exceptions can be caught and passed on; if not, nothing but calling through is safe.
    pub(crate) usable: bool,
}

/// Libraries that are loaded, by path.
fn loaded() -> Vec<CString> {
    unsafe extern "C" fn note(info: *mut libc::dl_phdr_info, _: usize, list: *mut c_void) -> c_int {
        // SAFETY: the C library passes what it documents, and `list` is what `loaded` gave it.
        let (name, list) = unsafe { ((*info).dlpi_name, &mut *list.cast::<Vec<CString>>()) };
        if !name.is_null() {
            // SAFETY: a C string, for the length of this call.
            list.push(unsafe { CStr::from_ptr(name) }.to_owned());
        }
        0
    }
    let mut list = Vec::new();
    // SAFETY: `note` is called for each library, before this returns.
    unsafe { libc::dl_iterate_phdr(Some(note), ptr::from_mut(&mut list).cast()) };
    list
}

/// Finds the runtime and everything in it that we know. Python loads it with a scope of its own, so neither the global
/// scope nor the next library has its names: its own handle does. The handle is kept: an address must not outlive its code.
pub(crate) fn find() -> Found {
    let mut handles = Vec::new();
    let mut path = PathBuf::new();
    let is_runtime = |name: &CStr| {
        let file = name.to_bytes().rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        file.starts_with(b"libtt_metal.so")
    };
    for name in loaded().iter().filter(|name| is_runtime(name)) {
        // SAFETY: it is loaded already, so nothing of it runs now.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        if !handle.is_null() {
            handles.push(handle);
            path = PathBuf::from(String::from_utf8_lossy(name.to_bytes()).into_owned());
        }
    }
    // A program that contains the runtime, or one by another name.
    handles.push(libc::RTLD_NEXT);
    let look_up = |name: &CStr| {
        // SAFETY: looking up a name has no effect.
        let mut found = handles.iter().map(|&handle| unsafe { libc::dlsym(handle, name.as_ptr()) });
        found.find(|it| !it.is_null()).unwrap_or(ptr::null_mut())
    };
    // What is the language's is found as the runtime finds it: where the program has its own, that is the one.
    let look_up_bound = |name: &CStr| {
        // SAFETY: as above.
        let everybodys = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        if everybodys.is_null() { look_up(name) } else { everybodys }
    };
    let (mut taken, mut wanted) = (u64::MAX, 0);
    for (place, (name, need)) in NAMES.iter().enumerate() {
        let address = if *name == DELETE { look_up_bound(name) } else { look_up(name) };
        // SAFETY: only `ttmem_agent_start` calls this, once, before the shim reads the table.
        unsafe { ttmem_calls[place] = address };
        match need {
            Need::Hook(hook) => {
                wanted |= hook.bit();
                if address.is_null() {
                    taken &= !hook.bit();
                }
            }
            Need::Newer(hook) if !address.is_null() => wanted |= hook.bit(),
            // Half of what it takes is as good as nothing, but not the same as a runtime without.
            Need::Newer(hook) => taken &= !hook.bit(),
            Need::Nice => {}
        }
    }
    let has = |name: &CStr| NAMES.iter().any(|(known, _)| *known == name) && !look_up(name).is_null();
    let exported = has(c"_ZNK2tt8tt_metal6Buffer11buffer_typeEv");
    // SAFETY: as above.
    unsafe { ttmem_layout = if exported { EXPORTED } else { IN_LINE } };
    let cxx = [
        c"__gxx_personality_v0",
        c"__cxa_begin_catch",
        c"__cxa_end_catch",
        c"__cxa_rethrow",
        c"_ZSt9terminatev",
    ]
    .map(look_up_bound);
    // SAFETY: as above; nothing is thrown through the shim before this is done.
    unsafe {
        ttmem_cxx_personality = cxx[0];
        ttmem_cxx_begin_catch = cxx[1];
        ttmem_cxx_end_catch = cxx[2];
        ttmem_cxx_rethrow = cxx[3];
        ttmem_cxx_call_unexpected = cxx[4];
    }
    let runtime = describe(&path);
    match program_layout(&runtime) {
        // SAFETY: as above.
        Some(layout) => unsafe { ttmem_program_layout = layout },
        None => taken &= !Hook::Scratchpads.bit(),
    }
    core::sync::atomic::fence(Ordering::Release);
    let taken = taken & wanted;
    let essential = Hook::Buffers.bit() | Hook::Banks.bit();
    Found {
        taken,
        wanted,
        runtime,
        usable: cxx.iter().all(|it| !it.is_null()) && taken & essential == essential,
    }
}

/// Which package a library belongs to: pip leaves a folder named after it beside it.
fn describe(library: &Path) -> String {
    for folder in library.ancestors().skip(1).take(5) {
        let Ok(entries) = std::fs::read_dir(folder) else { continue };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let Some(name) = name.to_str().and_then(|name| name.strip_suffix(".dist-info")) else { continue };
            if let Some(version) = name.strip_prefix("ttnn-") {
                return format!("ttnn {version}");
            }
        }
    }
    "tt-metal, version not known".to_owned()
}
