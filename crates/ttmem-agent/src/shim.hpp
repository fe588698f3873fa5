// All calls into the runtime. Exceptions meant for the workload reach the workload; exceptions of the agent's own queries end
// here. The shim does not allocate, print or keep state; Rust decides what the answers mean.
//
// The functions are listed in `runtime.def` and looked up at run time (`runtime.rs`), as is the C++ library that `try` needs:
// the one that the runtime uses. Linking another one would load it into every preloaded process.

#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <initializer_list>

#define SHARED __attribute__((visibility("hidden")))

// The runtime's functions, by their index in `ttmem_calls`.
enum Call : uint32_t {
#define CALL(call, need, result, parameters, symbol) call,
#define ADDRESS(call, need, symbol) call,
#include "runtime.def"
    CALLS,
};

// The functions that every event calls are in one cache line.
constexpr bool is_in_first_line(Call call) { return call < 64 / sizeof(void *); }
static_assert(is_in_first_line(ALLOCATE) && is_in_first_line(DEALLOCATE) && is_in_first_line(BUFFER_TYPE) &&
              is_in_first_line(BUFFER_LAYOUT) && is_in_first_line(BUFFER_SIZE) && is_in_first_line(BUFFER_PAGE_SIZE) &&
              is_in_first_line(BUFFER_ADDRESS),
              "what every event calls comes first in runtime.def");

// An object of the runtime, which Rust keeps as a number.
using Object = void *;

// Constants that Rust has as well.
#define CONSTANT(name, value) constexpr uint32_t name = value;
#include "shared.def"

// Offsets of fields of a program's parts that no runtime exports a function for; -1: unknown.
struct ProgramLayout {
    int32_t scratchpads;
    int32_t scratchpad;
    int32_t dfb_cores;
    int32_t dfb_entries;
    int32_t dfb_borrows;
    int32_t dfb_borrowed;
    int32_t dfb_addresses;
};

// Offsets in `Buffer` of fields that a runtime exports no function for; -1: unknown.
struct BufferLayout {
    int32_t device;
    int32_t size;
    int32_t kind;
    int32_t layout;
    int32_t has_shard_spec;
};

// Facts about a buffer.
struct BufferFacts {
    uint64_t address;
    uint64_t requested;
    uint64_t page_size;
    uint32_t kind;
    uint32_t known;  // INTERLEAVED: Rust computes what follows; CORES; PER_CORE; the layout
    uint64_t aligned_page_size;
    uint64_t aligned_size_per_bank;
    uint64_t occupied;
    uint64_t cores[4];  // a bit for each, as `y * 16 + x`
};

// Facts about the place of an allocation, and its tensor.
struct SiteFacts {
    uint64_t caller;  // the line that called the runtime, if it was not Python; 0: unknown
    uint32_t purpose;
    uint32_t data_type;  // unknown ones are larger than any number
    uint32_t layout;
    uint32_t rank;  // number of dimensions, plus 1; 0: no tensor
    uint32_t dimensions[MOST_DIMENSIONS];
};

// Facts about a chip; unknown ones are 0.
struct ChipFacts {
    uint64_t unique_id;
    uint64_t board_id;
    uint32_t index;
    uint32_t arch;
    uint32_t harvested_cores;  // bits of the mask
    uint32_t harvested_dram;
    uint32_t known;
    uint32_t remote;
    char pci[16];
};

// The banks of one space.
struct BankFacts {
    uint64_t banks;
    uint64_t bytes;
};

// An allocator's own statistics of one space, per bank.
struct RuntimeStatistics {
    uint64_t allocatable;
    uint64_t allocated;
    uint64_t free;
    uint64_t largest_free;
};

// One core of a buffer with per-core addresses.
struct CoreAddress {
    uint64_t core;  // `y * 16 + x`
    uint64_t address;
};

// Memory of a program on its cores: a circular buffer, a dataflow buffer or a scratchpad.
struct Part {
    uint64_t address;
    uint64_t bytes;  // on each core
    uint32_t space;
    uint32_t view;
    uint64_t cores[4];  // a bit for each, as `y * 16 + x`
};

// The addresses of a program's views.
struct ViewFacts {
    uint64_t addresses[2];  // packed, if there are few enough
    uint64_t fingerprint;   // of their addresses and sizes; 0: there are none
};

// The device and the queue that a program runs on.
struct ProgramTarget {
    void *device;  // a mesh or a chip; null: unknown
    void *range;   // of the mesh; null: all of it
    uint32_t mesh; // the mesh's number, if the device is a mesh
    uint32_t queue;
    bool is_mesh;
    bool placed;   // whether all parts of the program have addresses
};

// The text of an exception of the runtime.
struct CaughtText {
    const char *text;  // null: unknown
    char *longer;      // the text that it shall have; null: as it is. Rust makes and drops it
};

// Facts about a program, without its parts.
struct ProgramFacts {
    uint32_t kernel_bytes;  // code, arguments and semaphores, on each core
    uint32_t name_len;
    uint64_t cores[4];
    char name[192];
};

// A thread's count of its active hooks.
struct alignas(64) Line {
    uint32_t under_way;
};

// State that is zero in a forked child. The shim uses the first two fields and the lines.
struct Page {
    uint32_t enrolled;
    uint32_t others;
    uint32_t initialized;
    uint32_t thread;
    uint32_t starting;
    uint32_t adding;
    uint32_t auditing;
    uint32_t programs;
    uint32_t mirroring;
    uint32_t naming;
    Line lines[FLIGHT_LINES];
};

struct alignas(64) State {
    uint32_t mode;    // NOT_STARTED, ACTIVE, PASS_THROUGH, PAUSED
    uint32_t hybrid;  // whether buffers may have per-core addresses
    uint32_t generation;  // changes in a forked child, where no thread is enrolled yet
    uint32_t events;
    Page *page;
};

// Types of the C++ library, whose layouts are part of its stable ABI.
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

    // The first node; null if this is no hash map.
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

// Prototypes of all that is defined in one language and used in the other, and checks of the structs above.
#define STRUCT(owner, bytes) static_assert(sizeof(owner) == bytes, #owner " has not the size in shared.def");
#define FIELD(owner, field, offset, bytes)                                           \
    static_assert(offsetof(owner, field) == offset && sizeof(owner::field) == bytes, \
                  #owner "::" #field " is not where shared.def says");
#define VARIABLE(type, name) extern SHARED type name;
#define SINK(name, parameters) using name = void(*) parameters noexcept;
#define SHIM(result, name, parameters) SHARED result name parameters noexcept;
// Hidden, although Rust defines them, so the linker exports none of them and calls are direct.
#define AGENT(module, result, name, parameters) SHARED result name parameters noexcept;
extern "C" {
#include "shared.def"
}

// What a thread is doing, for the call sites of its allocations.
struct ThreadState {
    const void *spec;  // of the tensor that it allocates
    void *caller;      // of the runtime's function that allocates, which may call others
    void *dispatcher;  // the caller of the dispatch that is running
    uint32_t purpose;  // of the buffer that it allocates, if that is known; else 0
};

extern "C" SHARED __thread ThreadState ttmem_thread __attribute__((tls_model("initial-exec")));

// Sets a variable of the thread until the end of a call.
template <typename T>
class Scoped {
    T *place;
    T before;

public:
    Scoped(T *place, T value) : place(place), before(*place) { *place = value; }
    ~Scoped() { *place = before; }
    Scoped(const Scoped &) = delete;
};

// The type of each call, and the prototypes of the hooks.
template <Call>
struct Signature;
#define HOOK(call, need, result, hook, parameters, symbol) \
    extern "C" SHARED result hook parameters;              \
    CALL(call, need, result, parameters, symbol)
#define CALL(call, need, result, parameters, symbol) \
    template <>                                      \
    struct Signature<call> {                         \
        using Type = result parameters;              \
    };
#include "runtime.def"

// Set once by `ttmem_agent_start`.
extern "C" SHARED void *ttmem_calls[CALLS];

// Calls whose results were implausible. Their addresses stay in `ttmem_calls`: another thread may be about to call them.
extern SHARED bool ttmem_disabled_calls[CALLS];

// Helpers of both parts of the shim, each of which has its own copy.
namespace {

template <Call which, typename... A>
auto call(A... arguments) {
    return reinterpret_cast<typename Signature<which>::Type *>(ttmem_calls[which])(arguments...);
}

// Whether a function exists. That is enough for functions whose results cannot be implausible.
[[maybe_unused]] bool exists(Call which) { return ttmem_calls[which] != nullptr; }

[[maybe_unused]] bool has(Call which) {
    return ttmem_calls[which] != nullptr && !__atomic_load_n(&ttmem_disabled_calls[which], __ATOMIC_RELAXED);
}

// Stops further calls of a function whose result was implausible, and reports its hook as missing.
[[maybe_unused]] void disable_call(Call which) {
    if (!__atomic_exchange_n(&ttmem_disabled_calls[which], true, __ATOMIC_RELAXED)) ttmem_agent_disabled(which);
}

[[maybe_unused]] bool is_active() {
    uint32_t mode = __atomic_load_n(&ttmem_state.mode, __ATOMIC_ACQUIRE);
    if (__builtin_expect(mode == NOT_STARTED, 0)) {
        ttmem_agent_start();
        mode = __atomic_load_n(&ttmem_state.mode, __ATOMIC_ACQUIRE);
    }
    return mode == ACTIVE;
}

// Marks the time between a change of an allocator and its record, in either order. Each thread has a line of its own and only
// stores to it: between the store and the change a lock is always taken, the allocator's or the tracker's, which orders the
// two for readers.
class Flight {
    uint32_t *under_way;

    static uint32_t *enroll() {
        static thread_local uint32_t *own __attribute__((tls_model("initial-exec")));
        static thread_local uint32_t since __attribute__((tls_model("initial-exec")));
        // The generation is never 0 in a process that is tracked.
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

// Measures one event in 64, which stands for all of them.
class Meter {
    static constexpr uint32_t EVERY = 64;
    uint64_t start = 0;

public:
    static uint64_t now() {
        timespec at;
        clock_gettime(CLOCK_MONOTONIC, &at);
        return static_cast<uint64_t>(at.tv_sec) * 1000000000u + static_cast<uint64_t>(at.tv_nsec);
    }

    Meter() {
        uint32_t event = __atomic_load_n(&ttmem_state.events, __ATOMIC_RELAXED);
        __atomic_store_n(&ttmem_state.events, event + 1, __ATOMIC_RELAXED);
        // Never the first event: that one defines an allocator.
        if (__builtin_expect(event % EVERY == EVERY / 2, 0)) {
            start = now();
        }
    }

    void stop() const {
        if (__builtin_expect(start != 0, 0)) {
            ttmem_agent_spent((now() - start) * EVERY);
        }
    }
};

template <typename T>
T at(const void *base, int32_t offset) {
    T value;
    __builtin_memcpy(&value, static_cast<const char *>(base) + offset, sizeof value);
    return value;
}

// The exception that is being handled, if it is a `std::runtime_error`: all failures of the runtime are. Passes its text to Rust,
// which may extend it.
class Caught {
    void *error = nullptr;  // a `std::exception_ptr`

public:
    Caught() noexcept {
        if (!exists(CURRENT_EXCEPTION) || !exists(RELEASE_EXCEPTION) || !exists(EXCEPTION_TYPE)) return;
        // A `std::type_info`: its name is behind its vtable.
        const void *type = call<EXCEPTION_TYPE>();
        if (type == nullptr || __builtin_strcmp(at<const char *>(type, 8), "St13runtime_error") != 0) return;
        call<CURRENT_EXCEPTION>(&error);
    }

    template <typename Report>
    void report(Report pass) noexcept {
        CaughtText text = {};
        // `what` is the third virtual function, after both destructors.
        if (error != nullptr) text.text = at<const char *(**)(const void *)>(error, 0)[2](error);
        pass(&text);
        if (text.longer == nullptr) return;
        try {
            if (exists(MAKE_ERROR) && exists(ASSIGN_ERROR) && exists(DROP_ERROR)) {
                alignas(16) char longer[64];
                call<MAKE_ERROR>(longer, text.longer);
                call<ASSIGN_ERROR>(error, longer);
                call<DROP_ERROR>(longer);
            }
        } catch (...) {
            // Without memory for a longer text, it stays as it is.
        }
        ttmem_agent_drop_text(&text);
    }

    ~Caught() {
        if (error != nullptr) call<RELEASE_EXCEPTION>(&error);
    }
    Caught(const Caught &) = delete;
};

[[maybe_unused]] void add_core(uint64_t *cores, uint64_t x, uint64_t y) {
    if (x < 16 && y < 16) {
        cores[y / 4] |= uint64_t{1} << (y % 4 * 16 + x);
    }
}

[[maybe_unused]] void add_range(uint64_t *cores, const CoreRange &range) {
    if (range.from.x > range.to.x || range.from.x > 15) return;
    uint64_t last = range.to.x < 15 ? range.to.x : 15;
    uint64_t row = (uint64_t{2} << last) - (uint64_t{1} << range.from.x);
    for (uint64_t y = range.from.y; y <= range.to.y && y < 16; y++) cores[y / 4] |= row << (y % 4 * 16);
}

[[maybe_unused]] uint32_t count_cores(const uint64_t *cores) {
    int count = 0;
    for (size_t n = 0; n < 4; n++) count += __builtin_popcountll(cores[n]);
    return static_cast<uint32_t>(count);
}

// Adds the cores of a `CoreRangeSet`, which consists of a vector. False: this is no such vector.
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

// Reads the chips of a mesh with one of the runtime's functions.
template <Call which>
size_t read_chips(void *mesh, uint32_t *out, size_t room) noexcept {
    try {
        Vector ids = {};
        call<which>(&ids, mesh);
        if (!ids.holds(sizeof(uint32_t), 4096)) {
            disable_call(which);
            return 0;
        }
        size_t len = ids.len(sizeof(uint32_t));
        for (size_t n = 0; n < len && n < room; n++) {
            out[n] = at<uint32_t>(ids.begin, static_cast<int32_t>(n * sizeof(uint32_t)));
        }
        if (ids.begin != nullptr) call<FREE_MEMORY>(ids.begin);
        return len < room ? len : room;
    } catch (...) {
        return 0;
    }
}

}  // namespace
