// The runtime's programs, what they keep, and traces.

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

void tell_trace(uint32_t step, void *impl, uint32_t trace, uint8_t queue) noexcept {
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

// What others see of a program is a pointer to it.
void tell_class(void *program, uint32_t kind) {
    if (program == nullptr || !has(PROGRAM_ID)) return;
    auto behind = at<void *>(program, 0);
    if (behind != nullptr) ttmem_agent_program_class(program_id(behind), kind);
}

// The workload that this thread is finalising.
thread_local void *workload __attribute__((tls_model("initial-exec")));

// The mesh that this thread last finalised a workload for.
thread_local void *finalized_for __attribute__((tls_model("initial-exec")));

// The program that this thread finalised last.
thread_local void *finalized_last __attribute__((tls_model("initial-exec")));

// Whether a workload's programs are where we think: one that was finalised was found there. Until then none is asked.
bool programs_found;

class Within {
    void *before = workload;

public:
    explicit Within(void *impl) { workload = impl; }
    ~Within() { workload = before; }
};

// A workload's programs, each with the part of the mesh that it is for. They are in a map, whose nodes hold a range and then
// the program, which is a pointer to what we know it by. `tell` returns whether to go on.
constexpr int32_t NODE_RANGE = 8, NODE_PROGRAM = 248;

HashMap *programs_of(void *of) noexcept {
    try {
        return has(WORKLOAD_PROGRAMS) ? call<WORKLOAD_PROGRAMS>(of) : nullptr;
    } catch (...) {
        return nullptr;
    }
}

// Returns whether there was a map to look into.
template <typename Tell>
bool each_program(void *of, Tell tell) {
    auto programs = programs_of(of);
    if (programs == nullptr) return false;
    size_t left = programs->len;
    for (auto node = programs->nodes(); node != nullptr && left > 0; node = node->next, left--) {
        auto program = at<void *>(node, NODE_PROGRAM);
        if (program != nullptr && !tell(program, reinterpret_cast<char *>(node) + NODE_RANGE)) break;
    }
    return true;
}

// The part of the mesh that a program of this thread's workload is for.
void *range_of(void *program) {
    void *found = nullptr;
    if (workload == nullptr) return found;
    // What others see of a workload is a pointer to it.
    bool looked = each_program(&workload, [&](void *other, void *range) {
        if (other == program) found = range;
        return found == nullptr;
    });
    if (found != nullptr) {
        __atomic_store_n(&programs_found, true, __ATOMIC_RELAXED);
    } else if (looked) {
        give_up(WORKLOAD_PROGRAMS);
    }
    return found;
}

// Where this thread's dataflow buffers are put, range by range of cores.
class Notes {
    uint64_t program;
    Part parts[64];
    size_t len = 0;
    bool told = false;

public:
    explicit Notes(uint64_t program) : program(program) {}

    void add(const CoreRange &range, uint64_t address, uint64_t bytes) {
        size_t n = 0;
        while (n < len && (parts[n].address != address || parts[n].bytes != bytes)) n++;
        if (n == len) {
            if (len == sizeof parts / sizeof *parts) {
                tell();
                n = 0;
            }
            parts[n] = Part{address, bytes, PART_DFB, 0, {}};
            len++;
        }
        add_range(parts[n].cores, range);
    }

    // What was told before is replaced by the first that is told.
    void tell() {
        if (len > 0) ttmem_agent_dfbs(program, parts, len, told);
        told = true;
        len = 0;
    }
};

thread_local Notes *notes __attribute__((tls_model("initial-exec")));

class Noting {
    Notes *before = notes;

public:
    explicit Noting(Notes *to) { notes = to; }
    ~Noting() { notes = before; }
};

struct Text {
    char *begin;
    size_t len;
    char inside[16];

    void free() {
        if (begin != inside) call<FREE_MEMORY>(begin);
    }
};

// Tells of each kernel on the cores that programs run on.
template <typename Tell>
void each_kernel(void *program, Tell tell) {
    if (!has(PROGRAM_KERNELS)) return;
    auto kernels = call<PROGRAM_KERNELS>(program, 0);
    size_t left = kernels->len;
    for (auto node = kernels->nodes(); node != nullptr && left > 0; node = node->next, left--) {
        if (auto kernel = at<void *>(node, 16)) tell(kernel);
    }
}

// Adds a kernel's name to a program's, unless it is there already.
void add_name(ProgramFacts *facts, void *kernel) {
    Text name = {};
    call<KERNEL_NAME>(&name, kernel);
    if (name.begin == nullptr || name.len > 4096) {
        give_up(KERNEL_NAME);  // and leak it: what it is, is not known
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

}  // namespace

extern "C" {

// Programs. One is built when its offsets are finalised: then all that it keeps has its place, if that was for a workload.

SHARED uint32_t ttmem_hook_finalize_programs(
    int context, void *device, void *kernels, void *groups, void *semaphores, Span programs) {
    bool working = at_work();
    uint32_t result = call<FINALIZE_PROGRAMS>(context, device, kernels, groups, semaphores, programs);
    if (!working || !has(PROGRAM_ID)) return result;
    uint64_t begun = Meter::now();
    Where where = {};
    where.device = device;
    where.is_mesh = is_a(device, MESH_VTABLE);
    where.mesh = mesh_id(device);
    where.placed = workload != nullptr;
    auto list = static_cast<void **>(programs.begin);
    for (size_t n = 0; n < programs.len && n < 65536; n++) {
        if (list[n] == nullptr) continue;
        where.range = range_of(list[n]);
        finalized_last = list[n];
        ttmem_agent_built(list[n], program_id(list[n]), &where);
    }
    ttmem_agent_spent(Meter::now() - begun);
    return result;
}

SHARED void ttmem_hook_finalize_workload(void *impl, void *mesh) {
    if (!at_work()) return call<FINALIZE_WORKLOAD>(impl, mesh);
    Within within(impl);
    finalized_for = mesh;
    call<FINALIZE_WORKLOAD>(impl, mesh);
}

SHARED void ttmem_hook_enqueue(void *queue, void *of, bool blocking) {
    if (!at_work() || !has(PROGRAM_ID)) return call<ENQUEUE>(queue, of, blocking);
    bool found = __atomic_load_n(&programs_found, __ATOMIC_RELAXED);
    if (found) {
        each_program(of, [](void *program, void *) {
            ttmem_agent_dispatching(program_id(program));
            return true;
        });
    }
    finalized_for = nullptr;
    call<ENQUEUE>(queue, of, blocking);
    Meter meter;
    if (!found) {
        each_program(of, [&](void *program, void *) {
            found = program == finalized_last;
            return !found;
        });
        if (found) __atomic_store_n(&programs_found, true, __ATOMIC_RELAXED);
        if (!__atomic_load_n(&programs_found, __ATOMIC_RELAXED)) return;
    }
    Where where = {};
    // A queue has its mesh and its number behind its table of functions. But what it has just worked for is certain.
    where.device = finalized_for != nullptr ? finalized_for : at<void *>(queue, 8);
    where.queue = at<uint32_t>(queue, 16) & 0xff;
    where.is_mesh = where.device != nullptr && is_a(where.device, MESH_VTABLE);
    where.mesh = where.is_mesh ? mesh_id(where.device) : 0;
    where.placed = true;
    each_program(of, [&](void *program, void *range) {
        where.range = range;
        ttmem_agent_dispatched(program, program_id(program), &where);
        return true;
    });
    meter.stop();
}

SHARED void ttmem_hook_end_program(void *program) {
    if (at_work() && has(PROGRAM_ID)) ttmem_agent_program_gone(program_id(program));
    call<END_PROGRAM>(program);
}

// No function names a dataflow buffer's place but the one that marks it as taken, on one range of cores after the other.
SHARED void ttmem_hook_place_dfbs(void *program, const void *device) {
    if (!at_work() || !has(PROGRAM_ID)) return call<PLACE_DFBS>(program, device);
    Notes noted(program_id(program));
    {
        Noting noting(&noted);
        call<PLACE_DFBS>(program, device);
    }
    noted.tell();
}

SHARED void ttmem_hook_mark_address(void *taken, uint64_t address, uint64_t bytes, uint64_t base) {
    at_work();  // whatever of the runtime is called first, what it leads to must be known
    call<MARK_ADDRESS>(taken, address, bytes, base);
    if (notes != nullptr) notes->add(at<CoreRange>(taken, 0), address, bytes);
}

SHARED void ttmem_hook_unplace_cbs(void *program) {
    if (at_work() && has(PROGRAM_ID)) ttmem_agent_program_changed(program_id(program));
    call<UNPLACE_CBS>(program);
}

SHARED void ttmem_hook_resize_dfbs(void *program, void *sizes) {
    auto list = static_cast<Vector *>(sizes);
    if (at_work() && list->begin != list->end && has(PROGRAM_ID)) ttmem_agent_program_changed(program_id(program));
    call<RESIZE_DFBS>(program, sizes);
}

SHARED void ttmem_hook_mesh_close(void *impl, void *mesh) {
    // Programs live on in their cache, but not on a device.
    if (at_work()) ttmem_agent_mesh_closed(has(MESH_IMPL_ID) ? mesh_impl_id(impl) : mesh_id(mesh));
    call<MESH_CLOSE>(impl, mesh);
}

SHARED void ttmem_hook_trace_begin(void *impl, uint8_t queue, const uint32_t *trace) {
    bool working = at_work();
    call<TRACE_BEGIN>(impl, queue, trace);
    if (working) tell_trace(TRACE_BEGUN, impl, *trace, queue);
}

SHARED void ttmem_hook_trace_end(void *impl, uint8_t queue, const uint32_t *trace) {
    uint32_t id = *trace;
    if (!at_work()) return call<TRACE_END>(impl, queue, trace);
    try {
        call<TRACE_END>(impl, queue, trace);
    } catch (...) {
        // There was no room for it. The queue has stopped capturing all the same.
        tell_trace(TRACE_RELEASED, impl, id, queue);
        throw;
    }
    tell_trace(TRACE_CAPTURED, impl, id, queue);
}

SHARED void ttmem_hook_trace_replay(void *impl, uint8_t queue, const uint32_t *trace, bool blocking) {
    uint32_t id = *trace;
    bool working = at_work();
    call<TRACE_REPLAY>(impl, queue, trace, blocking);
    if (working) tell_trace(TRACE_REPLAYED, impl, id, queue);
}

SHARED void ttmem_hook_trace_release(void *mesh, const uint32_t *trace) {
    uint32_t id = *trace;
    bool working = at_work();
    uint32_t number = working ? mesh_id(mesh) : 0;
    call<TRACE_RELEASE>(mesh, trace);
    if (working) ttmem_agent_trace(TRACE_RELEASED, number, id, 0, nullptr);
}

// The runtime's own programs are known by who makes them.

SHARED void *ttmem_hook_fabric_program(void **made, void *context, int type, void *device) {
    bool working = at_work();
    void *result = call<FABRIC_PROGRAM>(made, context, type, device);
    if (working) tell_class(*made, CLASS_FABRIC);
    return result;
}

SHARED void *ttmem_hook_fabric_program_before(void **made, void *device) {
    bool working = at_work();
    void *result = call<FABRIC_PROGRAM_BEFORE>(made, device);
    if (working) tell_class(*made, CLASS_FABRIC);
    return result;
}

SHARED void ttmem_hook_dispatch_program(void *group, void *device, void **program) {
    if (at_work()) tell_class(*program, CLASS_DISPATCH);
    call<DISPATCH_PROGRAM>(group, device, program);
}

// Queries from Rust.

// What a program is, apart from what it keeps.
SHARED bool ttmem_program(Object program, ProgramFacts *out) noexcept {
    __builtin_memset(out, 0, sizeof *out);
    try {
        if (has(PROGRAM_CONFIG_SIZE)) {
            out->kernel_bytes = *call<PROGRAM_CONFIG_SIZE>(program, 0);
        }
        if (has(PROGRAM_GROUPS)) {
            // Pointers that are shared, to groups that begin with a number and their cores.
            auto groups = call<PROGRAM_GROUPS>(program, 0);
            if (!groups->holds(2 * sizeof(void *), 65536)) return false;
            for (size_t n = 0; n < groups->len(2 * sizeof(void *)); n++) {
                auto group = reinterpret_cast<char **>(groups->begin)[2 * n];
                if (group != nullptr && !add_ranges(out->cores, group + 8)) give_up(PROGRAM_GROUPS);
            }
        }
        // What it computes says most of what it is.
        for (bool computes : {true, false}) {
            each_kernel(program, [&](void *kernel) {
                if (has(KERNEL_NAME) && is_a(kernel, COMPUTE_KERNEL) == computes) add_name(out, kernel);
            });
        }
        return true;
    } catch (...) {
        return false;
    }
}

// Passes what a program keeps in circular buffers, all of it or only views, and in scratchpads to `sink`. What borrows a buffer
// is a view, too.
SHARED bool ttmem_parts(Object program, bool only_views, PartSink sink, void *to) noexcept {
    try {
        if (has(PROGRAM_CBS) && has(CB_CORES) && has(CB_SIZE) && has(CB_GLOBAL) && has(CB_ADDRESS)) {
            // Pointers that are shared. What others see of a circular buffer is a pointer to it.
            auto buffers = call<PROGRAM_CBS>(program);
            if (buffers.len > 65536) give_up(PROGRAM_CBS);
            for (size_t n = 0; has(PROGRAM_CBS) && has(CB_CORES) && n < buffers.len; n++) {
                void *buffer = static_cast<void **>(buffers.begin)[2 * n];
                if (buffer == nullptr) continue;
                Part part = {};
                part.space = PART_CB;
                part.view = call<CB_GLOBAL>(&buffer);
                if (only_views && !part.view) continue;
                part.address = call<CB_ADDRESS>(buffer);
                part.bytes = call<CB_SIZE>(&buffer);
                if (!add_ranges(part.cores, call<CB_CORES>(&buffer))) {
                    give_up(CB_CORES);
                    break;
                }
                sink(to, &part);
            }
        }
        // Most dataflow buffers are noted when they get their place; these have none of their own.
        if (ttmem_program_layout.dfb_cores >= 0 && has(PROGRAM_DFBS)) {
            auto buffers = call<PROGRAM_DFBS>(program);
            if (!buffers->holds(2 * sizeof(void *), 65536)) give_up(PROGRAM_DFBS);
            for (size_t n = 0; has(PROGRAM_DFBS) && n < buffers->len(2 * sizeof(void *)); n++) {
                auto buffer = reinterpret_cast<char **>(buffers->begin)[2 * n];
                if (buffer == nullptr) continue;
                auto borrows = at<uint8_t>(buffer, ttmem_program_layout.dfb_borrows);
                if (borrows == 0) continue;
                auto entries = at<uint64_t>(buffer, ttmem_program_layout.dfb_entries);
                Part part = {};
                part.space = PART_DFB;
                part.view = 1;
                part.bytes = (entries & 0xffffffff) * (entries >> 32);
                part.address = at<uint32_t>(buffer, ttmem_program_layout.dfb_borrowed);
                if (borrows > 1 || part.bytes >= (1 << 21) || part.address >= (1 << 21) ||
                    !add_ranges(part.cores, buffer + ttmem_program_layout.dfb_cores)) {
                    give_up(PROGRAM_DFBS);
                    break;
                }
                sink(to, &part);
            }
        }
        int32_t list = ttmem_program_layout.scratchpads, unit = ttmem_program_layout.scratchpad;
        if (only_views || list < 0 || !has(PLACE_SCRATCHPADS) || !has(KERNEL_CORES)) return true;
        each_kernel(program, [&](void *kernel) {
            auto pads = at<Vector>(kernel, list);
            if (!pads.holds(static_cast<size_t>(unit), 256)) return give_up(PLACE_SCRATCHPADS);
            for (char *pad = pads.begin; pad < pads.end; pad += unit) {
                // A name, a size and an address.
                Part part = {};
                part.space = PART_SCRATCH;
                part.bytes = at<uint32_t>(pad, 32);
                part.address = at<uint32_t>(pad, 40);
                Vector ranges = {};
                call<KERNEL_CORES>(&ranges, kernel);
                bool right = add_ranges(part.cores, &ranges) && part.address % 16 == 0 && part.address < (1 << 21) &&
                             part.bytes > 0 && part.bytes < (1 << 21);
                if (ranges.begin != nullptr && ranges.holds(sizeof(CoreRange), 4096)) {
                    call<FREE_MEMORY>(ranges.begin);
                }
                if (!right) return give_up(PLACE_SCRATCHPADS);
                sink(to, &part);
            }
        });
        return true;
    } catch (...) {
        return false;
    }
}

// The chips that a program is for. Returns how many there are, 0 if that is not known.
SHARED size_t ttmem_chips_of(Object device, Object range, uint32_t *out, size_t room) noexcept {
    if (range == nullptr || !is_a(device, MESH_VTABLE) || !has(MESH_VIEW) || !has(VIEW_DEVICES)) return ttmem_chips(device, out, room);
    try {
        Vector devices = {};
        void *view = call<MESH_VIEW>(device);
        call<VIEW_DEVICES>(&devices, view, range);
        if (!devices.holds(sizeof(void *), 4096)) {
            give_up(VIEW_DEVICES);
            return 0;
        }
        size_t found = 0;
        for (size_t n = 0; n < devices.len(sizeof(void *)) && found < room; n++) {
            // One of another host is not ours to count.
            auto chip = reinterpret_cast<void **>(devices.begin)[n];
            if (chip != nullptr) found += ttmem_chips(chip, out + found, 1);
        }
        if (devices.begin != nullptr) call<FREE_MEMORY>(devices.begin);
        return found;
    } catch (...) {
        return 0;
    }
}

// The chips of a mesh, by what is behind it.
SHARED size_t ttmem_impl_chips(Object impl, uint32_t *out, size_t room) noexcept {
    return has(MESH_IMPL_CHIPS) ? chip_list<MESH_IMPL_CHIPS>(impl, out, room) : 0;
}
}
