// Every call into the runtime. Whatever the runtime throws at the workload reaches the workload; whatever it throws at
// us ends here. Nothing here allocates, prints or remembers; what the answers mean is decided in Rust.
//
// The functions are found at run time (`runtime.rs`). So is the C++ library behind `try`: the one the runtime uses.
// Linking another one would load it into every process that is watched.

#pragma once

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
extern SHARED void *ttmem_calls[CALLS];
extern SHARED Layout ttmem_layout;
extern SHARED ProgramLayout ttmem_program_layout;
// What every event looks at.
extern SHARED State ttmem_state;

// The chips of a device or a mesh. Returns how many there are, 0 if that is not known.
SHARED size_t ttmem_chips(void *device, uint32_t *out, size_t room) noexcept;
}

// Calls that gave nonsense. Where they lead stays known: another thread may be about to go there.
extern SHARED bool ttmem_given_up[CALLS];

// What both parts of the shim are made of; each has its own, but for what is remembered.
namespace {

template <typename R, typename... A>
R call(Call which, A... arguments) {
    return reinterpret_cast<R (*)(A...)>(ttmem_calls[which])(arguments...);
}

[[maybe_unused]] bool has(Call which) {
    return ttmem_calls[which] != nullptr && !__atomic_load_n(&ttmem_given_up[which], __ATOMIC_RELAXED);
}

// A call that gave nonsense once is not made again.
[[maybe_unused]] void give_up(Call which) { __atomic_store_n(&ttmem_given_up[which], true, __ATOMIC_RELAXED); }

[[maybe_unused]] bool at_work() {
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

[[maybe_unused]] void add_core(uint64_t *cores, uint64_t x, uint64_t y) {
    if (x < 16 && y < 16) {
        cores[y / 4] |= uint64_t{1} << (y % 4 * 16 + x);
    }
}

[[maybe_unused]] void add_range(uint64_t *cores, const CoreRange &range) {
    for (uint64_t y = range.from.y; y <= range.to.y && y < 16; y++) {
        for (uint64_t x = range.from.x; x <= range.to.x && x < 16; x++) add_core(cores, x, y);
    }
}

// Of a set of ranges, which is a vector and nothing else. False: it is something else.
[[maybe_unused]] bool add_ranges(uint64_t *cores, const void *set) {
    auto ranges = static_cast<const Vector *>(set);
    if (!ranges->holds(sizeof(CoreRange), 4096)) return false;
    for (size_t n = 0; n < ranges->len(sizeof(CoreRange)); n++) {
        add_range(cores, reinterpret_cast<const CoreRange *>(ranges->begin)[n]);
    }
    return true;
}

[[maybe_unused]] bool is_a(void *device, Call vtable) {
    return device != nullptr && has(vtable) &&
           at<char *>(device, 0) == static_cast<char *>(ttmem_calls[vtable]) + 2 * sizeof(void *);
}

// The chips that a mesh lists.
[[maybe_unused]] size_t chip_list(Call which, void *mesh, uint32_t *out, size_t room) noexcept {
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

}  // namespace
