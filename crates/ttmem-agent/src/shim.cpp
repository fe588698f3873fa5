// Every call into the runtime. Whatever the runtime throws at the workload reaches the workload; whatever it throws at
// us ends here. Nothing here allocates, prints or remembers; what the answers mean is decided in Rust.
//
// The functions are found at run time (`runtime.rs`). So is the C++ library behind `try`: the one the runtime uses.
// Linking another one would load it into every process that is watched.

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <initializer_list>

#define SHARED __attribute__((visibility("hidden")))

// As `Call` in runtime.rs.
enum Call : uint32_t {
    // What every event needs is one cache line.
    ALLOCATE,
    DEALLOCATE,
    BUFFER_TYPE,
    BUFFER_LAYOUT,
    BUFFER_SIZE,
    BUFFER_PAGE_SIZE,
    BUFFER_ADDRESS,
    DEALLOCATE_ALL,
    CLEAR,
    DESTROY,
    MIRROR,
    UNMIRROR,
    OVERRIDE_STATE,
    SHRINK,
    RESET_SIZE,
    MESH_ALLOCATOR,
    DEVICE_ALLOCATOR,
    STATISTICS,
    NUM_BANKS,
    BANK_SIZE,
    BASE_ADDRESS,
    ALIGNMENT,
    WORKER_L1_SIZE,
    BUFFER_NUM_PAGES,
    BUFFER_ALIGNED_PAGE_SIZE,
    BUFFER_ALIGNED_SIZE,
    BUFFER_ALIGNED_SIZE_PER_BANK,
    BUFFER_NUM_CORES,
    BUFFER_HAS_SHARD_SPEC,
    BUFFER_SHARD_SPEC,
    BUFFER_DEVICE,
    BUFFER_IS_DRAM,
    BUFFER_IS_PER_CORE,
    BUFFER_CORE_ADDRESSES,
    MESH_DEVICE_IDS,
    MESH_ID,
    MESH_VTABLE,
    DEVICE_VTABLE,
    CONTEXT_EXISTS,
    CONTEXT,
    CONTEXT_CLUSTER,
    CLUSTER_DESCRIPTOR,
    CHIP_UNIQUE_IDS,
    CHIP_ARCH,
    CHIP_BOARD_ID,
    CHIP_HARVESTING,
    CHIPS_WITH_MMIO,
    CHIP_PCI,
    BLOCK_TABLE,
    FINALIZE_PROGRAMS,
    FINALIZE_WORKLOAD,
    ENQUEUE,
    END_PROGRAM,
    PLACE_DFBS,
    MARK_ADDRESS,
    UNPLACE_CBS,
    RESIZE_DFBS,
    MESH_CLOSE,
    TRACE_BEGIN,
    TRACE_END,
    TRACE_REPLAY,
    TRACE_RELEASE,
    FABRIC_PROGRAM,
    FABRIC_PROGRAM_BEFORE,
    DISPATCH_PROGRAM,
    PROGRAM_ID,
    PROGRAM_CBS,
    CB_CORES,
    CB_SIZE,
    CB_GLOBAL,
    CB_ADDRESS,
    PROGRAM_DFBS,
    PROGRAM_CONFIG_SIZE,
    PROGRAM_GROUPS,
    PROGRAM_KERNELS,
    KERNEL_NAME,
    KERNEL_CORES,
    COMPUTE_KERNEL,
    PLACE_SCRATCHPADS,
    WORKLOAD_PROGRAMS,
    MESH_VIEW,
    VIEW_DEVICES,
    MESH_IMPL_ID,
    MESH_IMPL_CHIPS,
    MESH_GRID,
    DEVICE_GRID,
    MOST_UNRESERVED,
    FREE_MEMORY,
    CALLS,
};

// Where a program's parts keep what its runtime has no exported function for; as in runtime.rs.
struct ProgramLayout {
    int32_t scratchpads;
    int32_t scratchpad;
    int32_t dfb_cores;
    int32_t dfb_entries;
    int32_t dfb_borrows;
    int32_t dfb_borrowed;
};

// Where a `Buffer` keeps what its runtime has no exported function for; -1: nowhere we know.
struct Layout {
    int32_t device;
    int32_t size;
    int32_t type;
    int32_t layout;
    int32_t has_shard_spec;
};

struct Facts {
    uint64_t address;
    uint64_t requested;
    uint64_t page_size;
    uint32_t type;
    uint32_t known;  // bit 0: not sharded, and all that follows is left to be worked out; 1: the cores; 2: per core;
                     // from 8 on: the runtime's number of its layout, and 1
    uint64_t aligned_page_size;
    uint64_t aligned_size_per_bank;
    uint64_t occupied;
    uint64_t cores[4];  // a bit for each, as `y * 16 + x`
};

constexpr uint32_t INTERLEAVED = 1, CORES = 2, PER_CORE = 4, LAYOUT_SHIFT = 8;

struct ChipFacts {
    uint64_t unique_id;
    uint64_t board_id;
    uint32_t index;
    uint32_t arch;
    uint32_t harvested_cores;  // of the mask
    uint32_t harvested_dram;
    uint32_t known;  // bit 0 id, 1 arch, 2 board, 3 harvesting, 4 remote
    uint32_t remote;
    char pci[16];
};

struct BankFacts {
    uint64_t banks;
    uint64_t bytes;
};

struct Statistics {
    uint64_t allocatable;
    uint64_t allocated;
    uint64_t free;
    uint64_t largest_free;
};

// What a program keeps on its cores; as in shim.rs.
struct Part {
    uint64_t address;
    uint64_t bytes;  // on each core
    uint32_t space;
    uint32_t view;
    uint64_t cores[4];  // a bit for each, as `y * 16 + x`
};

constexpr uint32_t PART_CB = 0, PART_DFB = 1, PART_SCRATCH = 2;

// Where a program runs; as in shim.rs.
struct Where {
    void *device;  // a mesh or a chip; null: not known
    void *range;   // of the mesh; null: all of it
    uint32_t mesh; // the mesh's number, if it is one
    uint32_t queue;
    bool is_mesh;
    bool placed;   // whether everything that it keeps has its place
};

struct ProgramFacts {
    uint32_t kernel_bytes;  // code, arguments and semaphores, on each core
    uint32_t name_len;
    uint64_t cores[4];
    char name[192];
};

// As in flight.rs. More threads than there are lines share a counter.
constexpr uint32_t FLIGHT_LINES = 1000;

struct Page {
    uint32_t enrolled;
    uint32_t others;
    struct {
        alignas(64) uint32_t under_way;
    } lines[FLIGHT_LINES];
};

struct alignas(64) State {
    uint32_t mode;    // 0: not asked yet; 1: at work; 2: only calls through; 3: the same, for a while
    uint32_t hybrid;  // whether buffers may have an address on each core
    uint32_t generation;  // changes when this process turns out to be a child: who was enrolled was so in the parent
    uint32_t events;
    Page *page;  // in memory that a forked child finds at zero
};

// What the agent wants to know. None of these fails or throws.
extern "C" {
void ttmem_agent_start() noexcept;
void ttmem_agent_allocated(void *allocator, void *buffer, const Facts *facts) noexcept;
void ttmem_agent_failed(void *allocator, void *buffer, const Facts *facts) noexcept;
void ttmem_agent_unknown(void *allocator) noexcept;
void ttmem_agent_freeing(void *allocator, void *buffer, const Facts *facts) noexcept;
void ttmem_agent_cleared(void *allocator) noexcept;
void ttmem_agent_gone(void *allocator) noexcept;
void ttmem_agent_mirrored(void *allocator, uint64_t address, uint64_t bytes) noexcept;
void ttmem_agent_unmirroring(void *allocator, uint64_t address) noexcept;
void ttmem_agent_overridden(void *allocator) noexcept;
void ttmem_agent_resized(void *allocator) noexcept;
void ttmem_agent_met(void *allocator, void *device, bool mesh) noexcept;
void ttmem_agent_spent(uint64_t ns) noexcept;
void ttmem_agent_built(void *program, uint64_t id, const Where *where) noexcept;
void ttmem_agent_dispatching(uint64_t id) noexcept;
void ttmem_agent_dispatched(void *program, uint64_t id, const Where *where) noexcept;
void ttmem_agent_program_gone(uint64_t id) noexcept;
void ttmem_agent_program_changed(uint64_t id) noexcept;
void ttmem_agent_program_class(uint64_t id, uint32_t kind) noexcept;
void ttmem_agent_dfbs(uint64_t id, const Part *parts, size_t len, bool more) noexcept;
void ttmem_agent_mesh_closed(uint32_t mesh) noexcept;
void ttmem_agent_trace(uint32_t step, uint32_t mesh, uint32_t trace, uint32_t queue, void *impl) noexcept;

// Set once by `ttmem_agent_start`.
SHARED __attribute__((aligned(64))) void *ttmem_calls[CALLS];
SHARED Layout ttmem_layout = {-1, -1, -1, -1, -1};
SHARED ProgramLayout ttmem_program_layout = {-1, -1, -1, -1, -1, -1};
// What every event looks at.
SHARED State ttmem_state;

// The runtime's C++ library.
SHARED void *ttmem_cxx_personality;
SHARED void *ttmem_cxx_begin_catch;
SHARED void *ttmem_cxx_end_catch;
SHARED void *ttmem_cxx_rethrow;
SHARED void *ttmem_cxx_call_unexpected;
}

// What the compiler's `try`, `catch` and `throw` call. They jump on, so that whoever is called sees the caller's frame.
#define JUMP(symbol, target)                                                                                    \
    __asm__(".text\n.globl " symbol "\n.hidden " symbol "\n.type " symbol ", @function\n" symbol ":\n endbr64\n" \
            " jmp *" target "(%rip)\n.size " symbol ", . - " symbol "\n")
JUMP("__gxx_personality_v0", "ttmem_cxx_personality");
JUMP("__cxa_begin_catch", "ttmem_cxx_begin_catch");
JUMP("__cxa_end_catch", "ttmem_cxx_end_catch");
JUMP("__cxa_rethrow", "ttmem_cxx_rethrow");
JUMP("__cxa_call_unexpected", "ttmem_cxx_call_unexpected");
JUMP("_ZSt9terminatev", "ttmem_cxx_call_unexpected");

namespace {

template <typename R, typename... A>
R call(Call which, A... arguments) {
    return reinterpret_cast<R (*)(A...)>(ttmem_calls[which])(arguments...);
}

// Calls that gave nonsense. Where they lead stays known: another thread may be about to go there.
bool given_up[CALLS];

bool has(Call which) { return ttmem_calls[which] != nullptr && !__atomic_load_n(&given_up[which], __ATOMIC_RELAXED); }

// A call that gave nonsense once is not made again.
void give_up(Call which) { __atomic_store_n(&given_up[which], true, __ATOMIC_RELAXED); }

bool at_work() {
    uint32_t mode = __atomic_load_n(&ttmem_state.mode, __ATOMIC_ACQUIRE);
    if (__builtin_expect(mode == 0, 0)) {
        ttmem_agent_start();
        mode = __atomic_load_n(&ttmem_state.mode, __ATOMIC_ACQUIRE);
    }
    return mode == 1;
}

// From before the allocator changes until that is on record, or the other way round. Each thread has a line of its own
// and only stores to it: between that and the change there is always a lock taken, the allocator's or the tracker's,
// which orders the two for whoever looks.
class Flight {
    uint32_t *under_way;

    static uint32_t *enroll() {
        static thread_local uint32_t *own __attribute__((tls_model("initial-exec")));
        static thread_local uint32_t since __attribute__((tls_model("initial-exec")));
        // It is never 0 in a process that is at work.
        uint32_t generation = __atomic_load_n(&ttmem_state.generation, __ATOMIC_RELAXED);
        if (__builtin_expect(since != generation, 0)) {
            uint32_t line = __atomic_fetch_add(&ttmem_state.page->enrolled, 1, __ATOMIC_RELAXED);
            own = line < FLIGHT_LINES ? &ttmem_state.page->lines[line].under_way : nullptr;
            since = generation;
        }
        return own;
    }

public:
    Flight() : under_way(enroll()) {
        if (__builtin_expect(under_way == nullptr, 0)) {
            __atomic_fetch_add(&ttmem_state.page->others, 1, __ATOMIC_SEQ_CST);
        } else {
            __atomic_store_n(under_way, *under_way + 1, __ATOMIC_RELEASE);
        }
    }

    ~Flight() {
        if (__builtin_expect(under_way == nullptr, 0)) {
            __atomic_fetch_sub(&ttmem_state.page->others, 1, __ATOMIC_SEQ_CST);
        } else {
            __atomic_store_n(under_way, *under_way - 1, __ATOMIC_RELEASE);
        }
    }
};

// One event in 64 is timed, and stands for all of them.
class Meter {
    static constexpr uint32_t EVERY = 64;
    uint64_t begun = 0;

public:
    static uint64_t now() {
        timespec at;
        clock_gettime(CLOCK_MONOTONIC, &at);
        return static_cast<uint64_t>(at.tv_sec) * 1000000000u + static_cast<uint64_t>(at.tv_nsec);
    }

    Meter() {
        uint32_t event = __atomic_load_n(&ttmem_state.events, __ATOMIC_RELAXED);
        __atomic_store_n(&ttmem_state.events, event + 1, __ATOMIC_RELAXED);
        // Not the first one: it defines an allocator, once.
        if (__builtin_expect(event % EVERY == EVERY / 2, 0)) {
            begun = now();
        }
    }

    void stop() const {
        if (__builtin_expect(begun != 0, 0)) {
            ttmem_agent_spent((now() - begun) * EVERY);
        }
    }
};

template <typename T>
T at(const void *base, int32_t offset) {
    T value;
    __builtin_memcpy(&value, static_cast<const char *>(base) + offset, sizeof value);
    return value;
}

// Layouts of the C++ library's own, which it has promised not to change.
struct Vector {
    char *begin, *end, *room;

    bool holds(size_t unit, size_t most) const {
        if (begin > end || end > room) return false;
        size_t bytes = static_cast<size_t>(end - begin);
        return bytes % unit == 0 && bytes / unit <= most && (begin != nullptr || room == nullptr);
    }

    size_t len(size_t unit) const { return static_cast<size_t>(end - begin) / unit; }
};

struct HashMap {
    void *buckets;
    size_t bucket_count;
    struct Node {
        Node *next;
    } *first;
    size_t len;
    float load;

    // The first node, or none if this is something else.
    Node *nodes() const { return load == 1.0f && bucket_count > 0 && len < 65536 ? first : nullptr; }
};

struct Span {
    void *begin;
    size_t len;
};

struct Xy {
    uint64_t x, y;
};

struct CoreRange {
    Xy from, to;
};

struct OptionalU32 {
    uint32_t value;
    bool has;
};

void add_core(uint64_t *cores, uint64_t x, uint64_t y) {
    if (x < 16 && y < 16) {
        cores[y / 4] |= uint64_t{1} << (y % 4 * 16 + x);
    }
}

void add_range(uint64_t *cores, const CoreRange &range) {
    for (uint64_t y = range.from.y; y <= range.to.y && y < 16; y++) {
        for (uint64_t x = range.from.x; x <= range.to.x && x < 16; x++) add_core(cores, x, y);
    }
}

// Of a set of ranges, which is a vector and nothing else. False: it is something else.
bool add_ranges(uint64_t *cores, const void *set) {
    auto ranges = static_cast<const Vector *>(set);
    if (!ranges->holds(sizeof(CoreRange), 4096)) return false;
    for (size_t n = 0; n < ranges->len(sizeof(CoreRange)); n++) {
        add_range(cores, reinterpret_cast<const CoreRange *>(ranges->begin)[n]);
    }
    return true;
}

// The cores of a shard grid, of which only the first `most` are used.
void read_grid(void *buffer, Facts *facts, uint32_t most) {
    // A ShardSpecBuffer begins with its grid, which is a vector and nothing else; behind it are the shard's shape and
    // the order of the cores.
    struct {
        Vector ranges;
        uint32_t shape[2];
        uint32_t column_major;
        char rest[512];
    } spec;
    __builtin_memset(&spec, 0, sizeof spec);
    call<void *, void *, const void *>(BUFFER_SHARD_SPEC, &spec, buffer);
    if (!spec.ranges.holds(sizeof(CoreRange), 256) || spec.column_major > 1) {
        give_up(BUFFER_SHARD_SPEC);  // and leak it: what it is, is not known
        return;
    }
    uint32_t found = 0;
    for (size_t n = 0; n < spec.ranges.len(sizeof(CoreRange)); n++) {
        auto range = at<CoreRange>(spec.ranges.begin, static_cast<int32_t>(n * sizeof(CoreRange)));
        if (range.to.x > 255 || range.to.y > 255 || range.from.x > range.to.x || range.from.y > range.to.y) break;
        uint64_t wide = range.to.x - range.from.x + 1, high = range.to.y - range.from.y + 1;
        for (uint64_t core = 0; core < wide * high && found < most; core++, found++) {
            uint64_t x = spec.column_major ? core / high : core % wide;
            uint64_t y = spec.column_major ? core % high : core / wide;
            add_core(facts->cores, range.from.x + x, range.from.y + y);
        }
    }
    if (found == most) facts->known |= CORES;
    if (spec.ranges.begin != nullptr) {
        call<void, void *>(FREE_MEMORY, spec.ranges.begin);
    }
}

constexpr uint32_t DRAM = 0, TRACE = 4, TYPES = 5;

// Whether a buffer looks as we think it does: what lies there must be what the functions say that there are.
bool is_laid_out(void *buffer) {
    if (ttmem_layout.type < 0) return false;
    uint64_t pages = call<uint32_t, const void *>(BUFFER_NUM_PAGES, buffer);
    uint32_t type = at<uint32_t>(buffer, ttmem_layout.type);
    return type < TYPES &&
           at<uint64_t>(buffer, ttmem_layout.size) == pages * call<uint64_t, const void *>(BUFFER_PAGE_SIZE, buffer) &&
           has(BUFFER_IS_DRAM) && call<bool, const void *>(BUFFER_IS_DRAM, buffer) == (type == DRAM || type == TRACE);
}

// `TYPES`: not known.
uint32_t type_of(void *buffer) {
    if (has(BUFFER_TYPE)) return call<uint32_t, const void *>(BUFFER_TYPE, buffer);
    return is_laid_out(buffer) ? at<uint32_t>(buffer, ttmem_layout.type) : TYPES;
}

// 8: not known.
uint32_t layout_of(void *buffer) {
    if (has(BUFFER_LAYOUT)) return call<uint32_t, const void *>(BUFFER_LAYOUT, buffer);
    return is_laid_out(buffer) ? at<uint32_t>(buffer, ttmem_layout.layout) : 8;
}

bool is_per_core(void *buffer) {
    return ttmem_state.hybrid && has(BUFFER_IS_PER_CORE) && call<bool, const void *>(BUFFER_IS_PER_CORE, buffer);
}

// What the runtime says of a buffer. False: it would not.
bool read_buffer(void *buffer, Facts *facts) noexcept {
    try {
        facts->type = type_of(buffer);
        facts->known = 0;
        // Most are not sharded, and asking the runtime to work out their sizes takes longer than all the rest.
        uint32_t layout = layout_of(buffer);
        if (layout == 0 && has(BUFFER_SIZE)) {
            facts->requested = call<uint64_t, const void *>(BUFFER_SIZE, buffer);
            facts->page_size = call<uint64_t, const void *>(BUFFER_PAGE_SIZE, buffer);
            facts->known = INTERLEAVED | 1 << LAYOUT_SHIFT;
            return facts->type < TYPES && facts->page_size > 0;
        }
        if (layout < 8) facts->known = (layout + 1) << LAYOUT_SHIFT;
        __builtin_memset(facts->cores, 0, sizeof facts->cores);
        facts->aligned_size_per_bank = call<uint64_t, const void *>(BUFFER_ALIGNED_SIZE_PER_BANK, buffer);
        facts->aligned_page_size = call<uint64_t, const void *>(BUFFER_ALIGNED_PAGE_SIZE, buffer);
        facts->occupied = call<uint64_t, const void *>(BUFFER_ALIGNED_SIZE, buffer);
        if (has(BUFFER_SIZE)) {
            facts->requested = call<uint64_t, const void *>(BUFFER_SIZE, buffer);
        } else {
            facts->requested = call<uint64_t, const void *>(BUFFER_PAGE_SIZE, buffer) *
                               call<uint32_t, const void *>(BUFFER_NUM_PAGES, buffer);
        }
        if (is_per_core(buffer)) facts->known |= PER_CORE;
        auto cores = call<OptionalU32, const void *>(BUFFER_NUM_CORES, buffer);
        if (cores.has && has(BUFFER_SHARD_SPEC)) {
            bool spec = has(BUFFER_HAS_SHARD_SPEC) ? call<bool, const void *>(BUFFER_HAS_SHARD_SPEC, buffer)
                        : is_laid_out(buffer) && at<uint8_t>(buffer, ttmem_layout.has_shard_spec) == 1;
            if (spec) read_grid(buffer, facts, cores.value);
        }
        return facts->type < TYPES;
    } catch (...) {
        return false;
    }
}

// What must be known before it is freed. False: the runtime would not say.
bool read_place(void *buffer, Facts *facts) noexcept {
    try {
        facts->type = type_of(buffer);
        facts->known = is_per_core(buffer) ? PER_CORE : 0;
        facts->address = call<uint32_t, const void *>(BUFFER_ADDRESS, buffer);
        return facts->type < TYPES;
    } catch (...) {
        return false;
    }
}

void *device_of(void *buffer) noexcept {
    try {
        if (has(BUFFER_DEVICE)) return call<void *, const void *>(BUFFER_DEVICE, buffer);
        return is_laid_out(buffer) ? at<void *>(buffer, ttmem_layout.device) : nullptr;
    } catch (...) {
        return nullptr;
    }
}

bool is_a(void *device, Call vtable) {
    return device != nullptr && has(vtable) && at<char *>(device, 0) == static_cast<char *>(ttmem_calls[vtable]) + 2 * sizeof(void *);
}

// The chips that a mesh lists.
size_t chip_list(Call which, void *mesh, uint32_t *out, size_t room) noexcept {
    try {
        Vector ids = {};
        call<void *, void *, const void *>(which, &ids, mesh);
        if (!ids.holds(sizeof(uint32_t), 4096)) {
            give_up(which);
            return 0;
        }
        size_t len = ids.len(sizeof(uint32_t));
        for (size_t n = 0; n < len && n < room; n++) {
            out[n] = at<uint32_t>(ids.begin, static_cast<int32_t>(n * sizeof(uint32_t)));
        }
        if (ids.begin != nullptr) call<void, void *>(FREE_MEMORY, ids.begin);
        return len < room ? len : room;
    } catch (...) {
        return 0;
    }
}

uint32_t mesh_id(void *device) noexcept {
    try {
        return has(MESH_ID) && is_a(device, MESH_VTABLE) ? call<uint32_t, const void *>(MESH_ID, device) : 0;
    } catch (...) {
        return 0;
    }
}

uint32_t mesh_impl_id(void *impl) noexcept {
    try {
        return call<uint32_t, const void *>(MESH_IMPL_ID, impl);
    } catch (...) {
        return 0;
    }
}

constexpr uint32_t TRACE_BEGUN = 0, TRACE_CAPTURED = 1, TRACE_REPLAYED = 2, TRACE_RELEASED = 3;
constexpr uint32_t CLASS_FABRIC = 1, CLASS_DISPATCH = 2;

void tell_trace(uint32_t step, void *impl, uint32_t trace, uint8_t queue) noexcept {
    if (has(MESH_IMPL_ID)) ttmem_agent_trace(step, mesh_impl_id(impl), trace, queue, impl);
}

constexpr uint64_t NO_PROGRAM = ~uint64_t{0};

uint64_t program_id(const void *program) noexcept {
    try {
        return program != nullptr ? call<uint64_t, const void *>(PROGRAM_ID, program) : NO_PROGRAM;
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

void find_program(const void *range) {
    if (range != nullptr) {
        __atomic_store_n(&programs_found, true, __ATOMIC_RELAXED);
    } else if (workload != nullptr) {
        give_up(WORKLOAD_PROGRAMS);
    }
}

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
        return has(WORKLOAD_PROGRAMS) ? call<HashMap *, void *>(WORKLOAD_PROGRAMS, of) : nullptr;
    } catch (...) {
        return nullptr;
    }
}

template <typename Tell>
void each_program(void *of, Tell tell) {
    auto programs = programs_of(of);
    if (programs == nullptr) return;
    size_t left = programs->len;
    for (auto node = programs->nodes(); node != nullptr && left > 0; node = node->next, left--) {
        auto program = at<void *>(node, NODE_PROGRAM);
        if (program != nullptr && !tell(program, reinterpret_cast<char *>(node) + NODE_RANGE)) return;
    }
}

// The part of the mesh that a program of this thread's workload is for.
void *range_of(void *program) {
    void *found = nullptr;
    if (workload == nullptr) return found;
    // What others see of a workload is a pointer to it.
    each_program(&workload, [&](void *other, void *range) {
        if (other == program) found = range;
        return found == nullptr;
    });
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
        if (begin != inside) call<void, void *>(FREE_MEMORY, begin);
    }
};

// Tells of each kernel on the cores that programs run on.
template <typename Tell>
void each_kernel(void *program, Tell tell) {
    if (!has(PROGRAM_KERNELS)) return;
    auto kernels = call<HashMap *, void *, uint32_t>(PROGRAM_KERNELS, program, 0);
    size_t left = kernels->len;
    for (auto node = kernels->nodes(); node != nullptr && left > 0; node = node->next, left--) {
        if (auto kernel = at<void *>(node, 16)) tell(kernel);
    }
}

// Adds a kernel's name to a program's, unless it is there already.
void add_name(ProgramFacts *facts, void *kernel) {
    Text name = {};
    call<void *, void *, const void *>(KERNEL_NAME, &name, kernel);
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

// The hooks. Frees are recorded before they happen and allocations after, so that no other thread's allocation of the
// same address comes between.
extern "C" {

SHARED uint64_t ttmem_hook_allocate(void *allocator, void *buffer) {
    if (!at_work()) return call<uint64_t, void *, void *>(ALLOCATE, allocator, buffer);
    Flight flight;
    Facts facts;
    uint64_t address;
    try {
        address = call<uint64_t, void *, void *>(ALLOCATE, allocator, buffer);
    } catch (...) {
        if (read_buffer(buffer, &facts)) ttmem_agent_failed(allocator, buffer, &facts);
        throw;
    }
    Meter meter;
    if (read_buffer(buffer, &facts)) {
        facts.address = address;
        ttmem_agent_allocated(allocator, buffer, &facts);
    } else {
        ttmem_agent_unknown(allocator);
    }
    meter.stop();
    return address;
}

SHARED void ttmem_hook_deallocate(void *allocator, void *buffer) {
    if (!at_work()) return call<void, void *, void *>(DEALLOCATE, allocator, buffer);
    Flight flight;
    Meter meter;
    Facts facts;
    bool known = read_place(buffer, &facts);
    if (known && (facts.known & PER_CORE)) known = read_buffer(buffer, &facts);
    if (known) {
        ttmem_agent_freeing(allocator, buffer, &facts);
    } else {
        ttmem_agent_unknown(allocator);
    }
    meter.stop();
    try {
        call<void, void *, void *>(DEALLOCATE, allocator, buffer);
    } catch (...) {
        // It is still held, then. What that was is asked again: it cost nothing to forget it.
        uint64_t address = known ? facts.address : 0;
        if (known && read_buffer(buffer, &facts)) {
            facts.address = address;
            ttmem_agent_allocated(allocator, buffer, &facts);
        }
        throw;
    }
}

SHARED void ttmem_hook_deallocate_all(void *allocator) {
    if (!at_work()) return call<void, void *>(DEALLOCATE_ALL, allocator);
    Flight flight;
    ttmem_agent_cleared(allocator);
    call<void, void *>(DEALLOCATE_ALL, allocator);
}

SHARED void ttmem_hook_clear(void *allocator) {
    if (!at_work()) return call<void, void *>(CLEAR, allocator);
    Flight flight;
    ttmem_agent_cleared(allocator);
    call<void, void *>(CLEAR, allocator);
    ttmem_agent_resized(allocator);  // it has back what it was shrunk by
}

SHARED void ttmem_hook_destroy(void *allocator) {
    if (at_work()) ttmem_agent_gone(allocator);
    call<void, void *>(DESTROY, allocator);
}

SHARED void ttmem_hook_mirror(void *allocator, uint64_t address, uint64_t bytes) {
    if (!at_work()) return call<void, void *, uint64_t, uint64_t>(MIRROR, allocator, address, bytes);
    Flight flight;
    call<void, void *, uint64_t, uint64_t>(MIRROR, allocator, address, bytes);
    ttmem_agent_mirrored(allocator, address, bytes);
}

SHARED void ttmem_hook_unmirror(void *allocator, uint64_t address) {
    if (!at_work()) return call<void, void *, uint64_t>(UNMIRROR, allocator, address);
    Flight flight;
    ttmem_agent_unmirroring(allocator, address);
    call<void, void *, uint64_t>(UNMIRROR, allocator, address);
}

SHARED void ttmem_hook_override_state(void *allocator, const void *state) {
    if (!at_work()) return call<void, void *, const void *>(OVERRIDE_STATE, allocator, state);
    Flight flight;
    call<void, void *, const void *>(OVERRIDE_STATE, allocator, state);
    ttmem_agent_overridden(allocator);
}

SHARED void ttmem_hook_shrink(void *allocator, const void *type, uint64_t bytes, bool bottom_up) {
    if (!at_work()) return call<void, void *, const void *, uint64_t, bool>(SHRINK, allocator, type, bytes, bottom_up);
    Flight flight;
    call<void, void *, const void *, uint64_t, bool>(SHRINK, allocator, type, bytes, bottom_up);
    ttmem_agent_resized(allocator);
}

SHARED void ttmem_hook_reset_size(void *allocator, const void *type) {
    if (!at_work()) return call<void, void *, const void *>(RESET_SIZE, allocator, type);
    Flight flight;
    call<void, void *, const void *>(RESET_SIZE, allocator, type);
    ttmem_agent_resized(allocator);
}

// A mesh, or a device of an older runtime, is given its allocator.
SHARED void ttmem_hook_mesh_allocator(void *tracker, void *device, void **allocator, void *subs, size_t subs_len) {
    void *given = allocator != nullptr ? *allocator : nullptr;
    bool working = at_work();
    call<void, void *, void *, void **, void *, size_t>(MESH_ALLOCATOR, tracker, device, allocator, subs, subs_len);
    if (working && given != nullptr) ttmem_agent_met(given, device, true);
}

SHARED void *ttmem_hook_device_allocator(
    void **made, void *device, uint64_t l1_small, uint64_t trace, uint64_t l1_base, Span remap) {
    bool working = at_work();
    void *result = call<void *, void **, void *, uint64_t, uint64_t, uint64_t, Span>(
        DEVICE_ALLOCATOR, made, device, l1_small, trace, l1_base, remap);
    if (working && *made != nullptr) ttmem_agent_met(*made, device, false);
    return result;
}

// Programs. One is built when its offsets are finalised: then all that it keeps has its place, if that was for a workload.

SHARED uint32_t ttmem_hook_finalize_programs(
    int context, void *device, void *kernels, void *groups, void *semaphores, Span programs) {
    bool working = at_work();
    uint32_t result = call<uint32_t, int, void *, void *, void *, void *, Span>(
        FINALIZE_PROGRAMS, context, device, kernels, groups, semaphores, programs);
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
        find_program(where.range);
        finalized_last = list[n];
        ttmem_agent_built(list[n], program_id(list[n]), &where);
    }
    ttmem_agent_spent(Meter::now() - begun);
    return result;
}

SHARED void ttmem_hook_finalize_workload(void *impl, void *mesh) {
    if (!at_work()) return call<void, void *, void *>(FINALIZE_WORKLOAD, impl, mesh);
    Within within(impl);
    finalized_for = mesh;
    call<void, void *, void *>(FINALIZE_WORKLOAD, impl, mesh);
}

SHARED void ttmem_hook_enqueue(void *queue, void *of, bool blocking) {
    if (!at_work() || !has(PROGRAM_ID)) return call<void, void *, void *, bool>(ENQUEUE, queue, of, blocking);
    bool found = __atomic_load_n(&programs_found, __ATOMIC_RELAXED);
    if (found) {
        each_program(of, [](void *program, void *) {
            ttmem_agent_dispatching(program_id(program));
            return true;
        });
    }
    finalized_for = nullptr;
    call<void, void *, void *, bool>(ENQUEUE, queue, of, blocking);
    Meter meter;
    if (!found) {
        each_program(of, [&](void *program, void *range) {
            found = program == finalized_last;
            if (found) find_program(range);
            return !found;
        });
        if (!found && !__atomic_load_n(&programs_found, __ATOMIC_RELAXED)) return;
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
    call<void, void *>(END_PROGRAM, program);
}

// No function names a dataflow buffer's place but the one that marks it as taken, on one range of cores after the other.
SHARED void ttmem_hook_place_dfbs(void *program, const void *device) {
    if (!at_work() || !has(PROGRAM_ID)) return call<void, void *, const void *>(PLACE_DFBS, program, device);
    Notes noted(program_id(program));
    {
        Noting noting(&noted);
        call<void, void *, const void *>(PLACE_DFBS, program, device);
    }
    noted.tell();
}

SHARED void ttmem_hook_mark_address(void *taken, uint64_t address, uint64_t bytes, uint64_t base) {
    at_work();  // whatever of the runtime is called first, what it leads to must be known
    call<void, void *, uint64_t, uint64_t, uint64_t>(MARK_ADDRESS, taken, address, bytes, base);
    if (notes != nullptr) notes->add(at<CoreRange>(taken, 0), address, bytes);
}

SHARED void ttmem_hook_unplace_cbs(void *program) {
    if (at_work() && has(PROGRAM_ID)) ttmem_agent_program_changed(program_id(program));
    call<void, void *>(UNPLACE_CBS, program);
}

SHARED void ttmem_hook_resize_dfbs(void *program, void *sizes) {
    auto list = static_cast<Vector *>(sizes);
    if (at_work() && list->begin != list->end && has(PROGRAM_ID)) ttmem_agent_program_changed(program_id(program));
    call<void, void *, void *>(RESIZE_DFBS, program, sizes);
}

SHARED void ttmem_hook_mesh_close(void *impl, void *mesh) {
    // Programs live on in their cache, but not on a device.
    if (at_work()) ttmem_agent_mesh_closed(has(MESH_IMPL_ID) ? mesh_impl_id(impl) : mesh_id(mesh));
    call<void, void *, void *>(MESH_CLOSE, impl, mesh);
}

SHARED void ttmem_hook_trace_begin(void *impl, uint8_t queue, const uint32_t *trace) {
    bool working = at_work();
    call<void, void *, uint8_t, const uint32_t *>(TRACE_BEGIN, impl, queue, trace);
    if (working) tell_trace(TRACE_BEGUN, impl, *trace, queue);
}

SHARED void ttmem_hook_trace_end(void *impl, uint8_t queue, const uint32_t *trace) {
    uint32_t id = *trace;
    if (!at_work()) return call<void, void *, uint8_t, const uint32_t *>(TRACE_END, impl, queue, trace);
    try {
        call<void, void *, uint8_t, const uint32_t *>(TRACE_END, impl, queue, trace);
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
    call<void, void *, uint8_t, const uint32_t *, bool>(TRACE_REPLAY, impl, queue, trace, blocking);
    if (working) tell_trace(TRACE_REPLAYED, impl, id, queue);
}

SHARED void ttmem_hook_trace_release(void *mesh, const uint32_t *trace) {
    uint32_t id = *trace;
    bool working = at_work();
    uint32_t number = working ? mesh_id(mesh) : 0;
    call<void, void *, const uint32_t *>(TRACE_RELEASE, mesh, trace);
    if (working) ttmem_agent_trace(TRACE_RELEASED, number, id, 0, nullptr);
}

// The runtime's own programs are known by who makes them.

SHARED void *ttmem_hook_fabric_program(void **made, void *context, int type, void *device) {
    bool working = at_work();
    void *result = call<void *, void **, void *, int, void *>(FABRIC_PROGRAM, made, context, type, device);
    if (working) tell_class(*made, CLASS_FABRIC);
    return result;
}

SHARED void *ttmem_hook_fabric_program_before(void **made, void *device) {
    bool working = at_work();
    void *result = call<void *, void **, void *>(FABRIC_PROGRAM_BEFORE, made, device);
    if (working) tell_class(*made, CLASS_FABRIC);
    return result;
}

SHARED void ttmem_hook_dispatch_program(void *group, void *device, void **program) {
    if (at_work()) tell_class(*program, CLASS_DISPATCH);
    call<void, void *, void *, void **>(DISPATCH_PROGRAM, group, device, program);
}

// Questions from Rust. False: no answer, or none that can be right.

SHARED bool ttmem_statistics(const void *allocator, uint64_t type, Statistics *out) noexcept {
    if (!has(STATISTICS)) return false;
    struct {
        Statistics known;
        Vector blocks;  // of runtimes until 0.67
        char rest[512];
    } answer;
    __builtin_memset(&answer, 0, sizeof answer);
    try {
        call<void *, void *, const void *, const void *>(STATISTICS, &answer, allocator, &type);
    } catch (...) {
        return false;
    }
    *out = answer.known;
    if (answer.blocks.begin != nullptr && answer.blocks.holds(4, size_t{1} << 32)) {
        call<void, void *>(FREE_MEMORY, answer.blocks.begin);
    }
    bool plausible = out->allocated + out->free == out->allocatable && out->largest_free <= out->free;
    if (!plausible) give_up(STATISTICS);
    return plausible;
}

SHARED bool ttmem_bank(const void *allocator, uint64_t type, BankFacts *out) noexcept {
    if (!has(NUM_BANKS) || !has(BANK_SIZE)) return false;
    try {
        out->banks = call<uint32_t, const void *, const void *>(NUM_BANKS, allocator, &type);
        out->bytes = call<uint64_t, const void *, const void *>(BANK_SIZE, allocator, &type);
        return true;
    } catch (...) {
        return false;
    }
}

SHARED bool ttmem_base(const void *allocator, uint64_t memory, uint64_t *out) noexcept {
    if (!has(BASE_ADDRESS)) return false;
    try {
        *out = call<uint64_t, const void *, const void *>(BASE_ADDRESS, allocator, &memory);
        return true;
    } catch (...) {
        return false;
    }
}

SHARED bool ttmem_alignment(const void *allocator, uint32_t type, uint32_t *out) noexcept {
    if (!has(ALIGNMENT)) return false;
    try {
        *out = call<uint32_t, const void *, uint32_t>(ALIGNMENT, allocator, type);
        return *out > 0 && (*out & (*out - 1)) == 0;
    } catch (...) {
        return false;
    }
}

SHARED uint64_t ttmem_worker_l1(const void *allocator) noexcept {
    if (!has(WORKER_L1_SIZE)) return 0;
    try {
        return call<uint64_t, const void *>(WORKER_L1_SIZE, allocator);
    } catch (...) {
        return 0;
    }
}

// The chips of a device or a mesh. Returns how many there are, 0 if that is not known.
SHARED size_t ttmem_chips(void *device, uint32_t *out, size_t room) noexcept {
    try {
        if (is_a(device, MESH_VTABLE) && has(MESH_DEVICE_IDS)) {
            return chip_list(MESH_DEVICE_IDS, device, out, room);
        }
        if (is_a(device, DEVICE_VTABLE) && has(MESH_VTABLE) && has(MESH_ID)) {
            // Both implement one interface: the place of `id` in the mesh's table is its place in the device's.
            auto mesh = static_cast<void **>(ttmem_calls[MESH_VTABLE]) + 2;
            auto own = static_cast<void **>(ttmem_calls[DEVICE_VTABLE]) + 2;
            for (size_t slot = 0; slot < 64 && room > 0; slot++) {
                if (mesh[slot] == ttmem_calls[MESH_ID]) {
                    out[0] = static_cast<uint32_t>(reinterpret_cast<int (*)(const void *)>(own[slot])(device));
                    return 1;
                }
            }
        }
        return 0;
    } catch (...) {
        return 0;
    }
}

SHARED void *ttmem_device_of(void *buffer) noexcept { return device_of(buffer); }

// What the driver's description says of one chip.
SHARED void ttmem_chip(uint32_t index, ChipFacts *out) noexcept {
    __builtin_memset(out, 0, sizeof *out);
    out->index = index;
    try {
        if (!has(CONTEXT) || !has(CONTEXT_CLUSTER) || !has(CLUSTER_DESCRIPTOR)) return;
        if (has(CONTEXT_EXISTS) && !call<bool, int>(CONTEXT_EXISTS, 0)) return;
        void *context = call<void *, int>(CONTEXT, 0);
        void *cluster = call<void *, void *>(CONTEXT_CLUSTER, context);
        void *descriptor = call<void *, const void *>(CLUSTER_DESCRIPTOR, cluster);
        if (descriptor == nullptr) return;
        int chip = static_cast<int>(index);
        if (has(CHIP_UNIQUE_IDS)) {
            auto ids = call<HashMap *, const void *>(CHIP_UNIQUE_IDS, descriptor);
            size_t left = ids->len;
            for (auto node = ids->nodes(); node != nullptr && left > 0; node = node->next, left--) {
                if (at<int>(node, 8) == chip) {
                    out->unique_id = at<uint64_t>(node, 16);
                    out->known |= 1;
                }
            }
        }
        if (has(CHIP_ARCH)) {
            out->arch = call<uint32_t, const void *, int>(CHIP_ARCH, descriptor, chip);
            out->known |= 2;
        }
        if (has(CHIP_HARVESTING)) {
            uint64_t masks[16] = {};
            call<void *, void *, const void *, int>(CHIP_HARVESTING, masks, descriptor, chip);
            out->harvested_cores = static_cast<uint32_t>(__builtin_popcountll(masks[0]));
            out->harvested_dram = static_cast<uint32_t>(__builtin_popcountll(masks[1]));
            out->known |= 8;
        }
        if (has(CHIPS_WITH_MMIO)) {
            auto local = call<HashMap *, const void *>(CHIPS_WITH_MMIO, descriptor);
            size_t left = local->len;
            if (local->nodes() != nullptr) {
                out->remote = 1;
                out->known |= 16;
            }
            for (auto node = local->nodes(); node != nullptr && left > 0; node = node->next, left--) {
                if (at<int>(node, 8) == chip) out->remote = 0;
            }
        }
        if (has(CHIP_PCI)) {
            // Chip and text, which is a pointer and a length.
            auto addresses = call<HashMap *, const void *>(CHIP_PCI, descriptor);
            size_t left = addresses->len;
            for (auto node = addresses->nodes(); node != nullptr && left > 0; node = node->next, left--) {
                if (at<int>(node, 8) != chip) continue;
                auto text = at<const char *>(node, 16);
                auto len = at<size_t>(node, 24);
                if (len < sizeof out->pci) __builtin_memcpy(out->pci, text, len);
            }
        }
        // This one throws where there is no board, so it is last.
        if (has(CHIP_BOARD_ID)) {
            out->board_id = call<uint64_t, const void *, int>(CHIP_BOARD_ID, descriptor, chip);
            out->known |= 4;
        }
    } catch (...) {
    }
}

// Tells of each block that an allocator has handed out. The runtime answers with a vector of maps from text to text, which
// is taken apart here. False: it would not, or with something else.
SHARED bool ttmem_blocks(
    const void *allocator, uint64_t type, void (*tell)(void *, uint64_t, uint64_t) noexcept, void *to) noexcept {
    struct Text {
        const char *begin;
        size_t len;
        char inside[16];

        bool is(const char *name) const { return len == __builtin_strlen(name) && !__builtin_memcmp(begin, name, len); }
        uint64_t number() const {
            uint64_t value = 0;
            for (size_t n = 0; n < len && begin[n] >= '0' && begin[n] <= '9'; n++) value = value * 10 + (begin[n] - '0');
            return value;
        }
    };
    struct Entry {
        HashMap::Node *next;
        Text name, value;
    };
    struct Block {
        HashMap map;
        uint64_t next_resize;
        void *single;
    };
    if (!has(BLOCK_TABLE)) return false;
    Vector table = {};
    try {
        call<void *, void *, const void *, const void *>(BLOCK_TABLE, &table, allocator, &type);
    } catch (...) {
        return false;
    }
    bool right = table.holds(sizeof(Block), size_t{1} << 24);
    for (size_t n = 0; right && n < table.len(sizeof(Block)); n++) {
        auto block = reinterpret_cast<Block *>(table.begin) + n;
        uint64_t address = 0, size = 0;
        bool taken = false;
        for (auto node = block->map.nodes(); node != nullptr;) {
            auto entry = reinterpret_cast<Entry *>(node);
            if (entry->name.is("address")) address = entry->value.number();
            if (entry->name.is("size")) size = entry->value.number();
            if (entry->name.is("allocated")) taken = entry->value.is("yes");
            for (Text *text : {&entry->name, &entry->value}) {
                if (text->begin != text->inside) call<void, const void *>(FREE_MEMORY, text->begin);
            }
            node = node->next;
            call<void, void *>(FREE_MEMORY, entry);
        }
        if (block->map.buckets != &block->single) call<void, void *>(FREE_MEMORY, block->map.buckets);
        if (taken && size > 0) tell(to, address, size);
    }
    if (right && table.begin != nullptr) call<void, void *>(FREE_MEMORY, table.begin);
    if (!right) give_up(BLOCK_TABLE);
    return right;
}

// The addresses of a buffer that has one on each core. Returns how many cores there are.
SHARED size_t ttmem_core_addresses(void *buffer, uint64_t (*out)[2], size_t room) noexcept {
    if (!has(BUFFER_CORE_ADDRESSES)) return 0;
    try {
        auto addresses = call<HashMap *, const void *>(BUFFER_CORE_ADDRESSES, buffer);
        size_t found = 0, left = addresses->len;
        for (auto node = addresses->nodes(); node != nullptr && left > 0 && found < room; node = node->next, left--) {
            auto core = at<Xy>(node, 8);
            if (core.x > 15 || core.y > 15) continue;
            out[found][0] = core.y * 16 + core.x;
            out[found][1] = at<uint64_t>(node, 24);
            found++;
        }
        return found;
    } catch (...) {
        return 0;
    }
}

// What a program is, apart from what it keeps.
SHARED bool ttmem_program(void *program, ProgramFacts *out) noexcept {
    __builtin_memset(out, 0, sizeof *out);
    try {
        if (has(PROGRAM_CONFIG_SIZE)) {
            out->kernel_bytes = *call<uint32_t *, void *, uint32_t>(PROGRAM_CONFIG_SIZE, program, 0);
        }
        if (has(PROGRAM_GROUPS)) {
            // Pointers that are shared, to groups that begin with a number and their cores.
            auto groups = call<Vector *, void *, uint32_t>(PROGRAM_GROUPS, program, 0);
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

// Tells of what a program keeps in circular buffers, all of it or only views, and in scratchpads.
// What borrows a buffer is a view, too.
SHARED bool ttmem_parts(void *program, bool only_views, void (*tell)(void *, const Part *) noexcept, void *to) noexcept {
    try {
        if (has(PROGRAM_CBS) && has(CB_CORES) && has(CB_SIZE) && has(CB_GLOBAL) && has(CB_ADDRESS)) {
            // Pointers that are shared. What others see of a circular buffer is a pointer to it.
            auto buffers = call<Span, const void *>(PROGRAM_CBS, program);
            if (buffers.len > 65536) give_up(PROGRAM_CBS);
            for (size_t n = 0; has(PROGRAM_CBS) && has(CB_CORES) && n < buffers.len; n++) {
                void *buffer = static_cast<void **>(buffers.begin)[2 * n];
                if (buffer == nullptr) continue;
                Part part = {};
                part.space = PART_CB;
                part.view = call<bool, const void *>(CB_GLOBAL, &buffer);
                if (only_views && !part.view) continue;
                part.address = call<uint32_t, const void *>(CB_ADDRESS, buffer);
                part.bytes = call<uint32_t, const void *>(CB_SIZE, &buffer);
                if (!add_ranges(part.cores, call<void *, const void *>(CB_CORES, &buffer))) {
                    give_up(CB_CORES);
                    break;
                }
                tell(to, &part);
            }
        }
        // Most dataflow buffers are noted when they get their place; these have none of their own.
        if (ttmem_program_layout.dfb_cores >= 0 && has(PROGRAM_DFBS)) {
            auto buffers = call<Vector *, const void *>(PROGRAM_DFBS, program);
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
                tell(to, &part);
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
                call<void *, void *, const void *>(KERNEL_CORES, &ranges, kernel);
                bool right = add_ranges(part.cores, &ranges) && part.address % 16 == 0 && part.address < (1 << 21) &&
                             part.bytes > 0 && part.bytes < (1 << 21);
                if (ranges.begin != nullptr && ranges.holds(sizeof(CoreRange), 4096)) {
                    call<void, void *>(FREE_MEMORY, ranges.begin);
                }
                if (!right) return give_up(PLACE_SCRATCHPADS);
                tell(to, &part);
            }
        });
        return true;
    } catch (...) {
        return false;
    }
}

// The chips that a program is for. Returns how many there are, 0 if that is not known.
SHARED size_t ttmem_chips_of(void *device, void *range, uint32_t *out, size_t room) noexcept {
    if (range == nullptr || !is_a(device, MESH_VTABLE) || !has(MESH_VIEW) || !has(VIEW_DEVICES)) return ttmem_chips(device, out, room);
    try {
        Vector devices = {};
        void *view = call<void *, const void *>(MESH_VIEW, device);
        call<void *, void *, const void *, const void *>(VIEW_DEVICES, &devices, view, range);
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
        if (devices.begin != nullptr) call<void, void *>(FREE_MEMORY, devices.begin);
        return found;
    } catch (...) {
        return 0;
    }
}

// The chips of a mesh, by what is behind it.
SHARED size_t ttmem_impl_chips(void *impl, uint32_t *out, size_t room) noexcept {
    return has(MESH_IMPL_CHIPS) ? chip_list(MESH_IMPL_CHIPS, impl, out, room) : 0;
}

// How a core's L1 is divided, and how many cores there are. What is not known stays as it is.
SHARED void ttmem_cores(void *device, uint32_t *columns, uint32_t *rows, uint64_t *most_unreserved) noexcept {
    try {
        Xy grid = {};
        if (is_a(device, MESH_VTABLE) && has(MESH_GRID)) {
            grid = call<Xy, const void *>(MESH_GRID, device);
        } else if (is_a(device, DEVICE_VTABLE) && has(DEVICE_GRID)) {
            grid = call<Xy, const void *>(DEVICE_GRID, device);
        }
        if (grid.x <= 16 && grid.y <= 16) {
            *columns = static_cast<uint32_t>(grid.x);
            *rows = static_cast<uint32_t>(grid.y);
        }
        if (has(MOST_UNRESERVED)) *most_unreserved = call<uint32_t>(MOST_UNRESERVED);
    } catch (...) {
    }
}
}
