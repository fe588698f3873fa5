// Hooks and queries of the runtime's programs, their parts, and traces.

#include "shim.hpp"

namespace {

uint32_t mesh_id(void *device) noexcept {
    try {
        return has(MESH_ID) && is_a(device, MESH_VTABLE) ? call<MESH_ID>(device) : 0;
    } catch (...) {
        return 0;
    }
}

uint32_t mesh_impl_id(void *impl) noexcept {
    try {
        return call<MESH_IMPL_ID>(impl);
    } catch (...) {
        return 0;
    }
}

void report_trace(uint32_t step, void *impl, uint32_t trace, uint8_t queue) noexcept {
    if (has(MESH_IMPL_ID)) ttmem_agent_trace(step, mesh_impl_id(impl), trace, queue, impl);
}

constexpr uint64_t NO_PROGRAM = ~uint64_t{0};

uint64_t program_id(const void *program) noexcept {
    try {
        return program != nullptr ? call<PROGRAM_ID>(program) : NO_PROGRAM;
    } catch (...) {
        return NO_PROGRAM;
    }
}

// A `Program` is a pointer to its implementation.
void report_class(void *program, uint32_t kind) {
    if (program == nullptr || !exists(PROGRAM_ID)) return;
    auto impl = at<void *>(program, 0);
    if (impl != nullptr) ttmem_agent_program_class(program_id(impl), kind);
}

// The workload that this thread finalises.
thread_local void *workload __attribute__((tls_model("initial-exec")));

// The mesh that this thread last finalised a workload for.
thread_local void *finalized_for __attribute__((tls_model("initial-exec")));

// The program that this thread finalised last.
thread_local void *finalized_last __attribute__((tls_model("initial-exec")));

// Whether the layout of a workload's map of programs is confirmed: a finalised program was found in it. Until then no program
// from it is queried.
bool programs_found;

class WorkloadScope {
    void *before = workload;

public:
    explicit WorkloadScope(void *impl) { workload = impl; }
    ~WorkloadScope() { workload = before; }
};

// Offsets in the nodes of a workload's map of programs: the range of the mesh, and the program, a pointer to its implementation.
constexpr int32_t NODE_RANGE = 8, NODE_PROGRAM = 248;

HashMap *programs_of(void *of) noexcept {
    try {
        return has(WORKLOAD_PROGRAMS) ? call<WORKLOAD_PROGRAMS>(of) : nullptr;
    } catch (...) {
        return nullptr;
    }
}

// Calls `visit` with each program of a workload and its range of the mesh, until it returns false. Returns whether there is a
// map of programs.
template <typename Visit>
bool for_each_program(void *of, Visit visit) {
    auto programs = programs_of(of);
    if (programs == nullptr) return false;
    size_t left = programs->len;
    for (auto node = programs->nodes(); node != nullptr && left > 0; node = node->next, left--) {
        auto program = at<void *>(node, NODE_PROGRAM);
        if (program != nullptr && !visit(program, reinterpret_cast<char *>(node) + NODE_RANGE)) break;
    }
    return true;
}

// Whether a workload's map contains the program that this thread finalised last.
bool find_finalized(void *of) {
    bool found = false;
    for_each_program(of, [&](void *program, void *) {
        found = program == finalized_last;
        return !found;
    });
    if (found) __atomic_store_n(&programs_found, true, __ATOMIC_RELAXED);
    return found;
}

// Where a queue dispatches to. It has its mesh and its number after its vtable pointer; a mesh that it has just finalised for
// is certain.
ProgramTarget target_of(void *queue) {
    ProgramTarget target = {};
    target.device = finalized_for != nullptr ? finalized_for : at<void *>(queue, 8);
    target.queue = at<uint32_t>(queue, 16) & 0xff;
    target.is_mesh = target.device != nullptr && is_a(target.device, MESH_VTABLE);
    target.mesh = target.is_mesh ? mesh_id(target.device) : 0;
    target.placed = true;
    return target;
}

// The range of the mesh of a program of this thread's workload.
void *range_of(void *program) {
    void *found = nullptr;
    if (workload == nullptr) return found;
    // A `MeshWorkload` is a pointer to its implementation.
    bool searched = for_each_program(&workload, [&](void *other, void *range) {
        if (other == program) found = range;
        return found == nullptr;
    });
    if (found != nullptr) {
        __atomic_store_n(&programs_found, true, __ATOMIC_RELAXED);
    } else if (searched) {
        disable_call(WORKLOAD_PROGRAMS);
    }
    return found;
}

// Collects places of a program's dataflow buffers.
class Notes {
    uint64_t program;
    Part parts[64];
    size_t len = 0;
    bool reported = false;

public:
    explicit Notes(uint64_t program) : program(program) {}

    bool is_empty() const { return len == 0 && !reported; }

    // The cores of a place, to which the caller adds some.
    uint64_t *cores_at(uint64_t address, uint64_t bytes) {
        size_t n = 0;
        while (n < len && (parts[n].address != address || parts[n].bytes != bytes)) n++;
        if (n == len) {
            if (len == sizeof parts / sizeof *parts) {
                report();
                n = 0;
            }
            parts[n] = Part{address, bytes, PART_DFB, 0, {}};
            len++;
        }
        return parts[n].cores;
    }

    // The first report replaces those of earlier placements.
    void report() {
        if (len > 0) ttmem_agent_dfbs(program, parts, len, reported);
        reported = true;
        len = 0;
    }
};

thread_local Notes *notes __attribute__((tls_model("initial-exec")));

class NotesScope {
    Notes *before = notes;

public:
    explicit NotesScope(Notes *to) { notes = to; }
    ~NotesScope() { notes = before; }
};

// Calls `visit` with each circular buffer of a program, until it returns false: then the layout of core sets is another one, and
// circular buffers are not read again.
template <typename Visit>
void for_each_cb(void *program, Visit visit) {
    if (!has(PROGRAM_CBS) || !has(CB_CORES) || !has(CB_SIZE) || !has(CB_GLOBAL) || !has(CB_ADDRESS)) return;
    // Shared pointers. A `CircularBuffer` is a pointer to its implementation.
    auto buffers = call<PROGRAM_CBS>(program);
    if (buffers.len > 65536) return disable_call(PROGRAM_CBS);
    for (size_t n = 0; n < buffers.len; n++) {
        void *buffer = static_cast<void **>(buffers.begin)[2 * n];
        if (buffer != nullptr && !visit(buffer)) return disable_call(CB_CORES);
    }
}

// Calls `visit` with each dataflow buffer of a program, until it returns false: then their layout is another one, and they are
// not read again. Returns whether all were visited.
template <typename Visit>
bool for_each_dfb(void *program, Visit visit) {
    if (ttmem_program_layout.dfb_cores < 0 || !has(PROGRAM_DFBS)) return false;
    auto buffers = call<PROGRAM_DFBS>(program);
    bool plausible = buffers->holds(2 * sizeof(void *), 65536);
    for (size_t n = 0; plausible && n < buffers->len(2 * sizeof(void *)); n++) {
        auto buffer = reinterpret_cast<const char **>(buffers->begin)[2 * n];
        plausible = buffer == nullptr || visit(buffer);
    }
    if (!plausible) disable_call(PROGRAM_DFBS);
    return plausible;
}

// Whether a dataflow buffer borrows a buffer; above 1: implausible.
uint8_t borrows(const char *buffer) { return at<uint8_t>(buffer, ttmem_program_layout.dfb_borrows); }

// The bytes of a dataflow buffer on each core: the number of its entries, and their size.
uint64_t dfb_bytes(const char *buffer) {
    auto entries = at<uint64_t>(buffer, ttmem_program_layout.dfb_entries);
    return (entries & 0xffffffff) * (entries >> 32);
}

// Reads the size, the address and the cores of a dataflow buffer. False: they are implausible.
bool read_dfb(const char *buffer, Part *part) {
    const ProgramLayout &layout = ttmem_program_layout;
    *part = {};
    part->space = PART_DFB;
    part->view = borrows(buffer);
    part->bytes = dfb_bytes(buffer);
    if (part->view > 1 || !add_ranges(part->cores, buffer + layout.dfb_cores)) return false;
    if (part->view) {
        part->address = at<uint32_t>(buffer, layout.dfb_borrowed);
    } else {
        // A map from each core to a number and the address, which is the same on all of them.
        auto addresses = reinterpret_cast<const HashMap *>(buffer + layout.dfb_addresses);
        auto first = addresses->nodes();
        if (first == nullptr) return count_cores(part->cores) == 0;
        if (addresses->len < count_cores(part->cores)) return false;
        part->address = at<uint32_t>(first, 32);
    }
    return part->bytes < (1 << 21) && part->address < (1 << 21);
}

// Reports where a program's own dataflow buffers are. False: that is unknown.
bool report_dfbs(void *program, uint64_t id) noexcept {
    try {
        Notes own(id);
        bool all = for_each_dfb(program, [&](const char *buffer) {
            if (borrows(buffer) == 1) return true;
            Part part;
            if (!read_dfb(buffer, &part)) return false;
            uint64_t *cores = own.cores_at(part.address, part.bytes);
            for (size_t n = 0; n < 4; n++) cores[n] |= part.cores[n];
            return true;
        });
        if (all) own.report();
        return all;
    } catch (...) {
        return false;
    }
}

struct Text {
    char *begin;
    size_t len;
    char inside[16];

    void free() {
        if (begin != inside) call<FREE_MEMORY>(begin);
    }
};

// Calls `visit` with each kernel on the cores that programs run on.
template <typename Visit>
void for_each_kernel(void *program, Visit visit) {
    if (!has(PROGRAM_KERNELS)) return;
    auto kernels = call<PROGRAM_KERNELS>(program, 0);
    size_t left = kernels->len;
    for (auto node = kernels->nodes(); node != nullptr && left > 0; node = node->next, left--) {
        if (auto kernel = at<void *>(node, 16)) visit(kernel);
    }
}

// Adds a kernel's name to a program's, unless it is there already.
void add_name(ProgramFacts *facts, void *kernel) {
    Text name = {};
    call<KERNEL_NAME>(&name, kernel);
    if (name.begin == nullptr || name.len > 4096) {
        disable_call(KERNEL_NAME);  // and leak the result, whose layout is unknown
        return;
    }
    size_t at = 0;
    bool known = false;
    while (at < facts->name_len && !known) {
        size_t end = at;
        while (end < facts->name_len && facts->name[end] != '+') end++;
        known = end - at == name.len && __builtin_memcmp(facts->name + at, name.begin, name.len) == 0;
        at = end + 1;
    }
    size_t room = sizeof facts->name - facts->name_len;
    if (!known && name.len > 0 && name.len + 1 < room) {
        if (facts->name_len > 0) facts->name[facts->name_len++] = '+';
        __builtin_memcpy(facts->name + facts->name_len, name.begin, name.len);
        facts->name_len += static_cast<uint32_t>(name.len);
    }
    name.free();
}

// The mesh or the chip of a program.
ProgramTarget target_on(void *device) {
    ProgramTarget target = {};
    target.device = device;
    target.is_mesh = is_a(device, MESH_VTABLE);
    target.mesh = mesh_id(device);
    return target;
}

// Reports that the runtime refused a program, with the exception that is being handled. `placed`: its parts have addresses.
void report_refused(void *program, const void *device, bool placed) noexcept {
    if (!exists(PROGRAM_ID)) return;
    ProgramTarget target = target_on(const_cast<void *>(device));
    target.placed = placed;
    uint64_t id = program_id(program);
    Caught().report([&](const CaughtText *text) { ttmem_agent_program_refused(program, id, &target, text); });
}

}  // namespace

extern "C" {

// Programs. A program is built when its offsets are finalised: then all its parts have addresses, if that was for a workload.

SHARED uint32_t ttmem_hook_finalize_programs(
    int context, void *device, void *kernels, void *groups, void *semaphores, Span programs) {
    if (!is_active()) return call<FINALIZE_PROGRAMS>(context, device, kernels, groups, semaphores, programs);
    auto list = static_cast<void **>(programs.begin);
    uint32_t result;
    try {
        result = call<FINALIZE_PROGRAMS>(context, device, kernels, groups, semaphores, programs);
    } catch (...) {
        // Which one of several did not fit is unknown.
        report_refused(programs.len == 1 ? list[0] : nullptr, device, false);
        throw;
    }
    if (!exists(PROGRAM_ID)) return result;
    uint64_t start = Meter::now();
    ProgramTarget target = target_on(device);
    target.placed = workload != nullptr;
    for (size_t n = 0; n < programs.len && n < 65536; n++) {
        if (list[n] == nullptr) continue;
        target.range = range_of(list[n]);
        finalized_last = list[n];
        ttmem_agent_built(list[n], program_id(list[n]), &target);
    }
    ttmem_agent_spent(Meter::now() - start);
    return result;
}

SHARED void ttmem_hook_finalize_workload(void *impl, void *mesh) {
    if (!is_active()) return call<FINALIZE_WORKLOAD>(impl, mesh);
    WorkloadScope scope(impl);
    finalized_for = mesh;
    call<FINALIZE_WORKLOAD>(impl, mesh);
}

SHARED void ttmem_hook_enqueue(void *queue, void *of, bool blocking) {
    if (!is_active() || !exists(PROGRAM_ID)) return call<ENQUEUE>(queue, of, blocking);
    finalized_for = nullptr;
    Scoped<void *> dispatcher(&ttmem_thread.dispatcher, __builtin_return_address(0));
    try {
        call<ENQUEUE>(queue, of, blocking);
    } catch (...) {
        // Programs are compiled in other threads, which do not know the line that dispatches.
        Caught().report([](const CaughtText *text) { ttmem_agent_dispatch_refused(text); });
        throw;
    }
    Meter meter;
    if (!__atomic_load_n(&programs_found, __ATOMIC_RELAXED) && !find_finalized(of)) return;
    ProgramTarget target = {};
    for_each_program(of, [&](void *program, void *range) {
        uint64_t id = program_id(program);
        if (!ttmem_agent_dispatched_again(id)) {
            if (!target.placed) target = target_of(queue);
            target.range = range;
            ttmem_agent_dispatched(program, id, &target);
        }
        return true;
    });
    meter.stop();
}

SHARED void ttmem_hook_end_program(void *program) {
    if (is_active() && exists(PROGRAM_ID)) ttmem_agent_program_destroyed(program_id(program));
    call<END_PROGRAM>(program);
}

// The runtime marks the address of a dataflow buffer as taken on every range of cores that shares a core with it, so on more
// cores than it has. Where the layout of a dataflow buffer is unknown, these ranges are the best answer.
SHARED void ttmem_hook_place_dfbs(void *program, const void *device) {
    if (!is_active() || !exists(PROGRAM_ID)) return call<PLACE_DFBS>(program, device);
    uint64_t id = program_id(program);
    Notes marked(id);
    {
        NotesScope scope(&marked);
        call<PLACE_DFBS>(program, device);
    }
    // Nothing is marked if they were placed before.
    if (!marked.is_empty() && !report_dfbs(program, id)) marked.report();
}

SHARED void ttmem_hook_mark_address(void *taken, uint64_t address, uint64_t bytes, uint64_t base) {
    is_active();  // starts the agent if this is the first hook: the next line needs the runtime's functions
    call<MARK_ADDRESS>(taken, address, bytes, base);
    if (notes != nullptr) add_range(notes->cores_at(address, bytes), at<CoreRange>(taken, 0));
}

// The runtime checks before each dispatch that the memory of a program is below all buffers and within L1.
SHARED void ttmem_hook_check_cbs(void *program, const void *device) {
    if (!is_active()) return call<CHECK_CBS>(program, device);
    try {
        call<CHECK_CBS>(program, device);
    } catch (...) {
        report_refused(program, device, true);
        throw;
    }
}

SHARED void ttmem_hook_check_dfbs(void *program, const void *device) {
    if (!is_active()) return call<CHECK_DFBS>(program, device);
    try {
        call<CHECK_DFBS>(program, device);
    } catch (...) {
        report_refused(program, device, true);
        throw;
    }
}

SHARED void ttmem_hook_unplace_cbs(void *program) {
    if (is_active() && exists(PROGRAM_ID)) ttmem_agent_program_changed(program_id(program));
    call<UNPLACE_CBS>(program);
}

SHARED void ttmem_hook_resize_dfbs(void *program, void *sizes) {
    auto list = static_cast<Vector *>(sizes);
    if (is_active() && list->begin != list->end && exists(PROGRAM_ID)) ttmem_agent_program_changed(program_id(program));
    call<RESIZE_DFBS>(program, sizes);
}

SHARED void ttmem_hook_mesh_close(void *impl, void *mesh) {
    // Programs stay in their cache, but are no longer on a device.
    if (is_active()) ttmem_agent_mesh_closed(has(MESH_IMPL_ID) ? mesh_impl_id(impl) : mesh_id(mesh));
    call<MESH_CLOSE>(impl, mesh);
}

SHARED void ttmem_hook_trace_begin(void *impl, uint8_t queue, const uint32_t *trace) {
    bool active = is_active();
    call<TRACE_BEGIN>(impl, queue, trace);
    if (active) report_trace(TRACE_BEGUN, impl, *trace, queue);
}

SHARED void ttmem_hook_trace_end(void *impl, uint8_t queue, const uint32_t *trace) {
    uint32_t id = *trace;
    if (!is_active()) return call<TRACE_END>(impl, queue, trace);
    // A runtime without a region for traces takes their memory from DRAM.
    Scoped<uint32_t> purpose(&ttmem_thread.purpose, PURPOSE_TRACE);
    try {
        call<TRACE_END>(impl, queue, trace);
    } catch (...) {
        // The trace did not fit. The queue has stopped capturing all the same.
        report_trace(TRACE_RELEASED, impl, id, queue);
        if (has(MESH_IMPL_ID)) {
            uint32_t mesh = mesh_impl_id(impl);
            Caught().report([&](const CaughtText *text) { ttmem_agent_trace_refused(mesh, impl, text); });
        }
        throw;
    }
    report_trace(TRACE_CAPTURED, impl, id, queue);
}

SHARED void ttmem_hook_trace_replay(void *impl, uint8_t queue, const uint32_t *trace, bool blocking) {
    uint32_t id = *trace;
    bool active = is_active();
    call<TRACE_REPLAY>(impl, queue, trace, blocking);
    if (active) report_trace(TRACE_REPLAYED, impl, id, queue);
}

SHARED void ttmem_hook_trace_release(void *mesh, const uint32_t *trace) {
    uint32_t id = *trace;
    bool active = is_active();
    uint32_t number = active ? mesh_id(mesh) : 0;
    call<TRACE_RELEASE>(mesh, trace);
    if (active) ttmem_agent_trace(TRACE_RELEASED, number, id, 0, nullptr);
}

// The runtime's own programs are recognised by the function that creates them.

SHARED void *ttmem_hook_fabric_program(void **made, void *context, int type, void *device) {
    bool active = is_active();
    void *result = call<FABRIC_PROGRAM>(made, context, type, device);
    if (active) report_class(*made, CLASS_FABRIC);
    return result;
}

SHARED void *ttmem_hook_fabric_program_before(void **made, void *device) {
    bool active = is_active();
    void *result = call<FABRIC_PROGRAM_BEFORE>(made, device);
    if (active) report_class(*made, CLASS_FABRIC);
    return result;
}

SHARED void ttmem_hook_dispatch_program(void *group, void *device, void **program) {
    if (is_active()) report_class(*program, CLASS_DISPATCH);
    call<DISPATCH_PROGRAM>(group, device, program);
}

// Queries from Rust.

// Reads facts about a program, without its parts.
SHARED bool ttmem_program(Object program, ProgramFacts *out) noexcept {
    __builtin_memset(out, 0, sizeof *out);
    try {
        if (has(PROGRAM_CONFIG_SIZE)) {
            out->kernel_bytes = *call<PROGRAM_CONFIG_SIZE>(program, 0);
        }
        if (has(PROGRAM_GROUPS)) {
            // Shared pointers to groups, which begin with a number and their cores.
            auto groups = call<PROGRAM_GROUPS>(program, 0);
            if (!groups->holds(2 * sizeof(void *), 65536)) {
                disable_call(PROGRAM_GROUPS);
                return false;
            }
            for (size_t n = 0; n < groups->len(2 * sizeof(void *)); n++) {
                auto group = reinterpret_cast<char **>(groups->begin)[2 * n];
                if (group != nullptr && !add_ranges(out->cores, group + 8)) disable_call(PROGRAM_GROUPS);
            }
        }
        // Compute kernels first: their names say most about a program.
        for (bool computes : {true, false}) {
            for_each_kernel(program, [&](void *kernel) {
                if (has(KERNEL_NAME) && is_a(kernel, COMPUTE_KERNEL) == computes) add_name(out, kernel);
            });
        }
        return true;
    } catch (...) {
        return false;
    }
}

// Passes a program's parts to `sink`: its circular buffers, dataflow buffers that borrow a buffer, and its scratchpads. The
// order of views is that of `ttmem_views`.
SHARED bool ttmem_parts(Object program, PartSink sink, void *to) noexcept {
    try {
        for_each_cb(program, [&](void *buffer) {
            Part part = {};
            part.space = PART_CB;
            part.view = call<CB_GLOBAL>(&buffer);
            part.address = call<CB_ADDRESS>(buffer);
            part.bytes = call<CB_SIZE>(&buffer);
            if (!add_ranges(part.cores, call<CB_CORES>(&buffer))) return false;
            sink(to, &part);
            return true;
        });
        // Other dataflow buffers are noted when they are placed; those that borrow a buffer are not placed.
        for_each_dfb(program, [&](const char *buffer) {
            Part part;
            if (borrows(buffer) == 0) return true;
            if (!read_dfb(buffer, &part)) return false;
            sink(to, &part);
            return true;
        });
        int32_t list = ttmem_program_layout.scratchpads, unit = ttmem_program_layout.scratchpad;
        if (list < 0 || !has(PLACE_SCRATCHPADS) || !has(KERNEL_CORES)) return true;
        for_each_kernel(program, [&](void *kernel) {
            auto pads = at<Vector>(kernel, list);
            if (!pads.holds(static_cast<size_t>(unit), 256)) return disable_call(PLACE_SCRATCHPADS);
            for (char *pad = pads.begin; pad < pads.end; pad += unit) {
                // A name, a size and an address.
                Part part = {};
                part.space = PART_SCRATCH;
                part.bytes = at<uint32_t>(pad, 32);
                part.address = at<uint32_t>(pad, 40);
                Vector ranges = {};
                call<KERNEL_CORES>(&ranges, kernel);
                bool plausible = add_ranges(part.cores, &ranges) && part.address % 16 == 0 && part.address < (1 << 21) &&
                                 part.bytes > 0 && part.bytes < (1 << 21);
                if (ranges.begin != nullptr && ranges.holds(sizeof(CoreRange), 4096)) {
                    call<FREE_MEMORY>(ranges.begin);
                }
                if (!plausible) return disable_call(PLACE_SCRATCHPADS);
                sink(to, &part);
            }
        });
        return true;
    } catch (...) {
        return false;
    }
}

// Reads the addresses of a program's views: circular buffers and dataflow buffers that lie in a buffer, whose addresses may
// differ at every dispatch. False: there are too many to be packed, or their addresses are unusual.
SHARED bool ttmem_views(Object program, ViewFacts *out) noexcept {
    unsigned __int128 packed = 0;
    uint64_t fingerprint = 0;
    uint32_t count = 0;
    bool fits = true;
    auto add = [&](uint64_t address, uint64_t bytes) {
        fits = fits && count < MOST_VIEWS && address % VIEW_UNIT == 0 && address / VIEW_UNIT - 1 < (1 << VIEW_BITS) - 1;
        if (fits) packed |= static_cast<unsigned __int128>(address / VIEW_UNIT) << (VIEW_BITS * count);
        fingerprint = (((fingerprint ^ address) * 0x9e3779b97f4a7c15) ^ bytes) * 0x9e3779b97f4a7c15 | 1;
        count++;
    };
    try {
        for_each_cb(program, [&](void *buffer) {
            if (call<CB_GLOBAL>(&buffer)) add(call<CB_ADDRESS>(buffer), call<CB_SIZE>(&buffer));
            return true;
        });
        for_each_dfb(program, [&](const char *buffer) {
            if (borrows(buffer) > 1) return false;
            if (borrows(buffer) == 1) add(at<uint32_t>(buffer, ttmem_program_layout.dfb_borrowed), dfb_bytes(buffer));
            return true;
        });
    } catch (...) {
        fits = false;
    }
    *out = {{static_cast<uint64_t>(packed), static_cast<uint64_t>(packed >> 64)}, fingerprint};
    return fits;
}

// The chips in a range of a mesh. Returns their number, 0 if unknown.
SHARED size_t ttmem_chips_of(Object device, Object range, uint32_t *out, size_t room) noexcept {
    if (range == nullptr || !is_a(device, MESH_VTABLE) || !has(MESH_VIEW) || !has(VIEW_DEVICES)) return ttmem_chips(device, out, room);
    try {
        Vector devices = {};
        void *view = call<MESH_VIEW>(device);
        call<VIEW_DEVICES>(&devices, view, range);
        if (!devices.holds(sizeof(void *), 4096)) {
            disable_call(VIEW_DEVICES);
            return 0;
        }
        size_t found = 0;
        for (size_t n = 0; n < devices.len(sizeof(void *)) && found < room; n++) {
            // Null: a chip of another host.
            auto chip = reinterpret_cast<void **>(devices.begin)[n];
            if (chip != nullptr) found += ttmem_chips(chip, out + found, 1);
        }
        if (devices.begin != nullptr) call<FREE_MEMORY>(devices.begin);
        return found;
    } catch (...) {
        return 0;
    }
}

// The chips of a mesh, by its implementation object.
SHARED size_t ttmem_impl_chips(Object impl, uint32_t *out, size_t room) noexcept {
    return has(MESH_IMPL_CHIPS) ? read_chips<MESH_IMPL_CHIPS>(impl, out, room) : 0;
}
}
