// Hooks and queries of the runtime's allocators, buffers and chips.

#include "shim.hpp"

extern "C" {
SHARED __attribute__((aligned(64))) void *ttmem_calls[CALLS];
SHARED BufferLayout ttmem_layout = {-1, -1, -1, -1, -1};
SHARED ProgramLayout ttmem_program_layout = {-1, -1, -1, -1, -1, -1, -1};
SHARED State ttmem_state;
SHARED __thread ThreadState ttmem_thread;
}

SHARED bool ttmem_disabled_calls[CALLS];

// The functions that `try`, `catch` and `throw` compile to. Each jumps to the C++ library's, so that this one sees its caller's
// frame.
#define JUMP(symbol, target)                                                                                    \
    __asm__(".text\n.globl " symbol "\n.hidden " symbol "\n.type " symbol ", @function\n" symbol ":\n endbr64\n" \
            " jmp *" target "(%rip)\n.size " symbol ", . - " symbol "\n");
#define CXX(variable, symbol)                     \
    extern "C" SHARED void *ttmem_cxx_##variable; \
    void *ttmem_cxx_##variable;                   \
    JUMP(symbol, "ttmem_cxx_" #variable)
#include "runtime.def"
JUMP("__cxa_call_unexpected", "ttmem_cxx_terminate")

namespace {

// Reads the cores of a shard grid, of which only the first `most` are used.
void read_grid(void *buffer, BufferFacts *facts, uint32_t most) {
    // A ShardSpecBuffer begins with its grid, which consists of a vector; then come the shard's shape and the order of the
    // cores.
    struct {
        Vector ranges;
        uint32_t shape[2];
        uint32_t column_major;
        char rest[512];
    } spec;
    spec.ranges = {};
    spec.column_major = 0;
    call<BUFFER_SHARD_SPEC>(&spec, buffer);
    if (!spec.ranges.holds(sizeof(CoreRange), 256) || spec.column_major > 1) {
        disable_call(BUFFER_SHARD_SPEC);  // and leak the result, whose layout is unknown
        return;
    }
    uint32_t found = 0;
    for (size_t n = 0; n < spec.ranges.len(sizeof(CoreRange)); n++) {
        auto range = at<CoreRange>(spec.ranges.begin, static_cast<int32_t>(n * sizeof(CoreRange)));
        if (range.to.x > 255 || range.to.y > 255 || range.from.x > range.to.x || range.from.y > range.to.y) break;
        uint64_t wide = range.to.x - range.from.x + 1, high = range.to.y - range.from.y + 1;
        if (wide * high <= most - found) {
            add_range(facts->cores, range);
            found += static_cast<uint32_t>(wide * high);
            continue;
        }
        for (uint64_t core = 0; core < wide * high && found < most; core++, found++) {
            uint64_t x = spec.column_major ? core / high : core % wide;
            uint64_t y = spec.column_major ? core % high : core / wide;
            add_core(facts->cores, range.from.x + x, range.from.y + y);
        }
    }
    if (found == most) facts->known |= CORES;
    if (spec.ranges.begin != nullptr) {
        call<FREE_MEMORY>(spec.ranges.begin);
    }
}

// End of the runtime's numbers of spaces.
constexpr uint32_t TYPES = 5;

// Whether `ttmem_layout` fits a buffer: its fields must equal what the exported functions return.
bool has_known_layout(void *buffer) {
    if (ttmem_layout.kind < 0) return false;
    uint64_t pages = call<BUFFER_NUM_PAGES>(buffer);
    uint32_t type = at<uint32_t>(buffer, ttmem_layout.kind);
    return type < TYPES &&
           at<uint64_t>(buffer, ttmem_layout.size) == pages * call<BUFFER_PAGE_SIZE>(buffer) &&
           has(BUFFER_IS_DRAM) && call<BUFFER_IS_DRAM>(buffer) == (type == DRAM || type == TRACE);
}

// The buffer's type; `TYPES`: unknown.
uint32_t type_of(void *buffer) {
    if (exists(BUFFER_TYPE)) return call<BUFFER_TYPE>(buffer);
    return has_known_layout(buffer) ? at<uint32_t>(buffer, ttmem_layout.kind) : TYPES;
}

// The buffer's layout; 8: unknown.
uint32_t layout_of(void *buffer) {
    if (exists(BUFFER_LAYOUT)) return call<BUFFER_LAYOUT>(buffer);
    return has_known_layout(buffer) ? at<uint32_t>(buffer, ttmem_layout.layout) : 8;
}

bool is_per_core(void *buffer) {
    return ttmem_state.hybrid && has(BUFFER_IS_PER_CORE) && call<BUFFER_IS_PER_CORE>(buffer);
}

// Queries the runtime about a buffer. False: there was no usable answer.
bool read_buffer(void *buffer, BufferFacts *facts) noexcept {
    try {
        facts->kind = type_of(buffer);
        facts->known = 0;
        // Most buffers are not sharded, and the runtime's computation of their sizes takes longer than all the rest.
        uint32_t layout = layout_of(buffer);
        if (layout == 0 && exists(BUFFER_SIZE)) {
            facts->requested = call<BUFFER_SIZE>(buffer);
            facts->page_size = call<BUFFER_PAGE_SIZE>(buffer);
            facts->known = INTERLEAVED | 1 << LAYOUT_SHIFT;
            return facts->kind < TYPES && facts->page_size > 0;
        }
        if (layout < 8) facts->known = (layout + 1) << LAYOUT_SHIFT;
        __builtin_memset(facts->cores, 0, sizeof facts->cores);
        facts->aligned_size_per_bank = call<BUFFER_ALIGNED_SIZE_PER_BANK>(buffer);
        facts->aligned_page_size = call<BUFFER_ALIGNED_PAGE_SIZE>(buffer);
        facts->occupied = call<BUFFER_ALIGNED_SIZE>(buffer);
        if (exists(BUFFER_SIZE)) {
            facts->requested = call<BUFFER_SIZE>(buffer);
        } else {
            facts->requested = call<BUFFER_PAGE_SIZE>(buffer) * call<BUFFER_NUM_PAGES>(buffer);
        }
        if (is_per_core(buffer)) facts->known |= PER_CORE;
        auto cores = call<BUFFER_NUM_CORES>(buffer);
        if (cores.has && has(BUFFER_SHARD_SPEC)) {
            bool spec = has(BUFFER_HAS_SHARD_SPEC) ? call<BUFFER_HAS_SHARD_SPEC>(buffer)
                        : has_known_layout(buffer) && at<uint8_t>(buffer, ttmem_layout.has_shard_spec) == 1;
            if (spec) read_grid(buffer, facts, cores.value);
        }
        return facts->kind < TYPES;
    } catch (...) {
        return false;
    }
}

// Reads what identifies a buffer, before it is freed. False: there was no usable answer.
bool read_address(void *buffer, BufferFacts *facts) noexcept {
    try {
        facts->kind = type_of(buffer);
        facts->known = is_per_core(buffer) ? PER_CORE : 0;
        facts->address = call<BUFFER_ADDRESS>(buffer);
        return facts->kind < TYPES;
    } catch (...) {
        return false;
    }
}

// Offset in `TensorSpec` of its `TensorLayout`. The spec begins with the shape: a pointer to the dimensions and their number.
constexpr int32_t SPEC_LAYOUT = 0x38;

// Reads what a buffer is for, and its tensor.
void read_site(uint32_t kind, SiteFacts *site) noexcept {
    const ThreadState &thread = ttmem_thread;
    site->caller = reinterpret_cast<uint64_t>(thread.caller);
    site->purpose = PURPOSE_RAW;
    site->data_type = site->layout = ~uint32_t{0};
    site->rank = 0;
    if (thread.spec == nullptr) {
        if (thread.purpose != 0) {
            site->purpose = thread.purpose;
        } else if (kind == TRACE) {
            site->purpose = PURPOSE_TRACE;
        } else if (thread.dispatcher != nullptr) {
            site->purpose = PURPOSE_KERNELS;
        }
        return;
    }
    site->purpose = PURPOSE_TENSOR;
    if (!has(SHAPE_RANK) || !has(TENSOR_DATA_TYPE) || !has(TENSOR_LAYOUT)) return;
    try {
        // Shapes of less than four dimensions have ones in front.
        auto dimensions = at<const uint32_t *>(thread.spec, 0);
        uint64_t all = at<uint32_t>(thread.spec, 8), rank = call<SHAPE_RANK>(thread.spec);
        auto layout = static_cast<const char *>(thread.spec) + SPEC_LAYOUT;
        uint32_t data_type = call<TENSOR_DATA_TYPE>(layout), order = call<TENSOR_LAYOUT>(layout);
        if (rank > all || all > 64 || data_type > 64 || order > 8 || dimensions == nullptr) return disable_call(SHAPE_RANK);
        uint64_t kept = rank < MOST_DIMENSIONS ? rank : MOST_DIMENSIONS;
        for (uint64_t n = 0; n < kept; n++) site->dimensions[n] = dimensions[all - kept + n];
        site->data_type = data_type;
        site->layout = order;
        site->rank = static_cast<uint32_t>(kept + 1);
    } catch (...) {
    }
}

// Keeps other threads from changing mirrors between the runtime's change of one and its record.
class MirrorLock {
    bool held = ttmem_agent_lock_mirrors();

public:
    ~MirrorLock() {
        if (held) ttmem_agent_unlock_mirrors();
    }
};

void *device_of(void *buffer) noexcept {
    try {
        if (has(BUFFER_DEVICE)) return call<BUFFER_DEVICE>(buffer);
        return has_known_layout(buffer) ? at<void *>(buffer, ttmem_layout.device) : nullptr;
    } catch (...) {
        return nullptr;
    }
}

}  // namespace

// The hooks. Frees are recorded before they happen and allocations after, so that no other thread's allocation of the
// same address comes between.
extern "C" {

SHARED uint64_t ttmem_hook_allocate(void *allocator, void *buffer) {
    if (!is_active()) return call<ALLOCATE>(allocator, buffer);
    Flight flight;
    BufferFacts facts;
    uint64_t address;
    try {
        address = call<ALLOCATE>(allocator, buffer);
    } catch (...) {
        if (read_buffer(buffer, &facts)) {
            SiteFacts site;
            read_site(facts.kind, &site);
            Caught().report([&](const CaughtText *text) { ttmem_agent_failed(allocator, buffer, &facts, &site, text); });
        }
        throw;
    }
    Meter meter;
    if (read_buffer(buffer, &facts)) {
        facts.address = address;
        SiteFacts site;
        read_site(facts.kind, &site);
        ttmem_agent_allocated(allocator, buffer, &facts, &site);
    } else {
        ttmem_agent_unknown(allocator);
    }
    meter.stop();
    return address;
}

SHARED void ttmem_hook_deallocate(void *allocator, void *buffer) {
    if (!is_active()) return call<DEALLOCATE>(allocator, buffer);
    Flight flight;
    Meter meter;
    BufferFacts facts;
    bool known = read_address(buffer, &facts);
    if (known && (facts.known & PER_CORE)) known = read_buffer(buffer, &facts);
    if (known) {
        ttmem_agent_freeing(allocator, buffer, &facts);
    } else {
        ttmem_agent_unknown(allocator);
    }
    meter.stop();
    try {
        call<DEALLOCATE>(allocator, buffer);
    } catch (...) {
        // The buffer is still allocated. It is queried again, so that frees that succeed need not keep its facts.
        uint64_t address = known ? facts.address : 0;
        if (known && read_buffer(buffer, &facts)) {
            facts.address = address;
            SiteFacts site;
            read_site(facts.kind, &site);
            ttmem_agent_allocated(allocator, buffer, &facts, &site);
        }
        throw;
    }
}

SHARED void ttmem_hook_deallocate_all(void *allocator) {
    if (!is_active()) return call<DEALLOCATE_ALL>(allocator);
    Flight flight;
    ttmem_agent_cleared(allocator);
    call<DEALLOCATE_ALL>(allocator);
}

SHARED void ttmem_hook_clear(void *allocator) {
    if (!is_active()) return call<CLEAR>(allocator);
    Flight flight;
    ttmem_agent_cleared(allocator);
    call<CLEAR>(allocator);
    ttmem_agent_resized(allocator);  // clearing undoes shrinking
}

SHARED void ttmem_hook_destroy(void *allocator) {
    if (is_active()) ttmem_agent_destroyed(allocator);
    call<DESTROY>(allocator);
}

SHARED void ttmem_hook_mirror(void *allocator, uint64_t address, uint64_t bytes) {
    if (!is_active()) return call<MIRROR>(allocator, address, bytes);
    Flight flight;
    MirrorLock lock;
    call<MIRROR>(allocator, address, bytes);
    ttmem_agent_mirrored(allocator, address, bytes);
}

SHARED void ttmem_hook_unmirror(void *allocator, uint64_t address) {
    if (!is_active()) return call<UNMIRROR>(allocator, address);
    Flight flight;
    MirrorLock lock;
    ttmem_agent_unmirroring(allocator, address);
    call<UNMIRROR>(allocator, address);
}

SHARED void ttmem_hook_override_state(void *allocator, const void *state) {
    if (!is_active()) return call<OVERRIDE_STATE>(allocator, state);
    Flight flight;
    call<OVERRIDE_STATE>(allocator, state);
    ttmem_agent_overridden(allocator);
}

SHARED void ttmem_hook_shrink(void *allocator, const void *type, uint64_t bytes, bool bottom_up) {
    if (!is_active()) return call<SHRINK>(allocator, type, bytes, bottom_up);
    Flight flight;
    call<SHRINK>(allocator, type, bytes, bottom_up);
    ttmem_agent_resized(allocator);
}

SHARED void ttmem_hook_reset_size(void *allocator, const void *type) {
    if (!is_active()) return call<RESET_SIZE>(allocator, type);
    Flight flight;
    call<RESET_SIZE>(allocator, type);
    ttmem_agent_resized(allocator);
}

// A mesh, or a device of an older runtime, receives its allocator.
SHARED void ttmem_hook_mesh_allocator(void *manager, void *device, void **allocator, void *subs, size_t subs_len) {
    void *received = allocator != nullptr ? *allocator : nullptr;
    bool active = is_active();
    call<MESH_ALLOCATOR>(manager, device, allocator, subs, subs_len);
    if (active && received != nullptr) ttmem_agent_created(received, device, true);
}

SHARED void *ttmem_hook_device_allocator(
    void **made, void *device, uint64_t l1_small, uint64_t trace, uint64_t l1_base, Span remap) {
    bool active = is_active();
    void *result = call<DEVICE_ALLOCATOR>(made, device, l1_small, trace, l1_base, remap);
    if (active && *made != nullptr) ttmem_agent_created(*made, device, false);
    return result;
}

// Functions that say what a buffer is for, and who asked for it: the outermost of them counts.

#define CALLER (ttmem_thread.caller != nullptr ? ttmem_thread.caller : __builtin_return_address(0))

SHARED void *ttmem_hook_tensor_buffer(void *made, void *mesh, const void *spec) {
    is_active();  // starts the agent if this is the first hook
    Scoped<void *> caller(&ttmem_thread.caller, CALLER);
    Scoped<const void *> scope(&ttmem_thread.spec, spec);
    return call<TENSOR_BUFFER>(made, mesh, spec);
}

SHARED void *ttmem_hook_mesh_buffer(void *made, const void *config, const void *local, void *mesh, Span address) {
    is_active();
    Scoped<void *> caller(&ttmem_thread.caller, CALLER);
    return call<MESH_BUFFER>(made, config, local, mesh, address);
}

SHARED void ttmem_hook_semaphore(void *semaphore, uint64_t value, uint32_t kind, Span address) {
    is_active();
    Scoped<void *> caller(&ttmem_thread.caller, CALLER);
    Scoped<uint32_t> purpose(&ttmem_thread.purpose, PURPOSE_SEMAPHORE);
    call<SEMAPHORE>(semaphore, value, kind, address);
}

// Queries from Rust.

SHARED uint64_t ttmem_dispatcher() noexcept { return reinterpret_cast<uint64_t>(ttmem_thread.dispatcher); }

SHARED bool ttmem_statistics(Object allocator, uint64_t kind, RuntimeStatistics *out) noexcept {
    if (!has(STATISTICS)) return false;
    struct {
        RuntimeStatistics known;
        Vector blocks;  // of runtimes up to 0.67
        char rest[512];
    } answer;
    __builtin_memset(&answer, 0, sizeof answer);
    try {
        call<STATISTICS>(&answer, allocator, &kind);
    } catch (...) {
        return false;
    }
    *out = answer.known;
    if (answer.blocks.begin != nullptr && answer.blocks.holds(4, size_t{1} << 32)) {
        call<FREE_MEMORY>(answer.blocks.begin);
    }
    bool plausible = out->allocated + out->free == out->allocatable && out->largest_free <= out->free;
    if (!plausible) disable_call(STATISTICS);
    return plausible;
}

SHARED bool ttmem_bank(Object allocator, uint64_t kind, BankFacts *out) noexcept {
    if (!has(NUM_BANKS) || !has(BANK_SIZE)) return false;
    try {
        out->banks = call<NUM_BANKS>(allocator, &kind);
        out->bytes = call<BANK_SIZE>(allocator, &kind);
        return true;
    } catch (...) {
        return false;
    }
}

SHARED bool ttmem_base(Object allocator, uint64_t memory, uint64_t *out) noexcept {
    if (!has(BASE_ADDRESS)) return false;
    try {
        *out = call<BASE_ADDRESS>(allocator, &memory);
        return true;
    } catch (...) {
        return false;
    }
}

SHARED bool ttmem_alignment(Object allocator, uint32_t kind, uint32_t *out) noexcept {
    if (!has(ALIGNMENT)) return false;
    try {
        *out = call<ALIGNMENT>(allocator, kind);
        return *out > 0 && (*out & (*out - 1)) == 0;
    } catch (...) {
        return false;
    }
}

SHARED uint64_t ttmem_worker_l1(Object allocator) noexcept {
    if (!has(WORKER_L1_SIZE)) return 0;
    try {
        return call<WORKER_L1_SIZE>(allocator);
    } catch (...) {
        return 0;
    }
}

// The chips of a device or a mesh. Returns their number, 0 if unknown.
SHARED size_t ttmem_chips(Object device, uint32_t *out, size_t room) noexcept {
    try {
        if (is_a(device, MESH_VTABLE) && has(MESH_DEVICE_IDS)) {
            return read_chips<MESH_DEVICE_IDS>(device, out, room);
        }
        if (is_a(device, DEVICE_VTABLE) && has(MESH_VTABLE) && has(MESH_ID)) {
            // Both implement one interface: `id` has the same slot in the mesh's vtable and in the device's.
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

SHARED Object ttmem_device_of(Object buffer) noexcept { return device_of(buffer); }

// Reads one chip's entries of the cluster descriptor.
SHARED void ttmem_chip(uint32_t index, ChipFacts *out) noexcept {
    __builtin_memset(out, 0, sizeof *out);
    out->index = index;
    try {
        if (!has(CONTEXT) || !has(CONTEXT_CLUSTER) || !has(CLUSTER_DESCRIPTOR)) return;
        if (has(CONTEXT_EXISTS) && !call<CONTEXT_EXISTS>(0)) return;
        void *context = call<CONTEXT>(0);
        void *cluster = call<CONTEXT_CLUSTER>(context);
        void *descriptor = call<CLUSTER_DESCRIPTOR>(cluster);
        if (descriptor == nullptr) return;
        int chip = static_cast<int>(index);
        if (has(CHIP_UNIQUE_IDS)) {
            auto ids = call<CHIP_UNIQUE_IDS>(descriptor);
            size_t left = ids->len;
            for (auto node = ids->nodes(); node != nullptr && left > 0; node = node->next, left--) {
                if (at<int>(node, 8) == chip) out->unique_id = at<uint64_t>(node, 16);
            }
        }
        if (has(CHIP_ARCH)) {
            out->arch = call<CHIP_ARCH>(descriptor, chip);
            out->known |= KNOWS_ARCH;
        }
        if (has(CHIP_HARVESTING)) {
            uint64_t masks[16] = {};
            call<CHIP_HARVESTING>(masks, descriptor, chip);
            out->harvested_cores = static_cast<uint32_t>(__builtin_popcountll(masks[0]));
            out->harvested_dram = static_cast<uint32_t>(__builtin_popcountll(masks[1]));
            out->known |= KNOWS_HARVESTING;
        }
        if (has(CHIPS_WITH_MMIO)) {
            auto local = call<CHIPS_WITH_MMIO>(descriptor);
            size_t left = local->len;
            if (local->nodes() != nullptr) {
                out->remote = 1;
                out->known |= KNOWS_REMOTE;
            }
            for (auto node = local->nodes(); node != nullptr && left > 0; node = node->next, left--) {
                if (at<int>(node, 8) == chip) out->remote = 0;
            }
        }
        if (has(CHIP_PCI)) {
            // From chip to text, which is a pointer and a length.
            auto addresses = call<CHIP_PCI>(descriptor);
            size_t left = addresses->len;
            for (auto node = addresses->nodes(); node != nullptr && left > 0; node = node->next, left--) {
                if (at<int>(node, 8) != chip) continue;
                auto text = at<const char *>(node, 16);
                auto len = at<size_t>(node, 24);
                if (len < sizeof out->pci) __builtin_memcpy(out->pci, text, len);
            }
        }
        // Last, since it throws if there is no board.
        if (has(CHIP_BOARD_ID)) {
            out->board_id = call<CHIP_BOARD_ID>(descriptor, chip);
            out->known |= KNOWS_BOARD;
        }
    } catch (...) {
    }
}

// Passes each allocated block to `sink`. The runtime returns a vector of maps from text to text, which is read and freed here.
SHARED bool ttmem_blocks(Object allocator, uint64_t kind, BlockSink sink, void *to) noexcept {
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
        call<BLOCK_TABLE>(&table, allocator, &kind);
    } catch (...) {
        return false;
    }
    bool plausible = table.holds(sizeof(Block), size_t{1} << 24);
    for (size_t n = 0; plausible && n < table.len(sizeof(Block)); n++) {
        auto block = reinterpret_cast<Block *>(table.begin) + n;
        uint64_t address = 0, size = 0;
        bool allocated = false;
        for (auto node = block->map.nodes(); node != nullptr;) {
            auto entry = reinterpret_cast<Entry *>(node);
            if (entry->name.is("address")) address = entry->value.number();
            if (entry->name.is("size")) size = entry->value.number();
            if (entry->name.is("allocated")) allocated = entry->value.is("yes");
            for (Text *text : {&entry->name, &entry->value}) {
                if (text->begin != text->inside) call<FREE_MEMORY>(text->begin);
            }
            node = node->next;
            call<FREE_MEMORY>(entry);
        }
        if (block->map.buckets != &block->single) call<FREE_MEMORY>(block->map.buckets);
        if (allocated && size > 0) sink(to, address, size);
    }
    if (plausible && table.begin != nullptr) call<FREE_MEMORY>(table.begin);
    if (!plausible) disable_call(BLOCK_TABLE);
    return plausible;
}

// The addresses of a buffer with per-core addresses. Returns the number of cores.
SHARED size_t ttmem_core_addresses(Object buffer, CoreAddress *out, size_t room) noexcept {
    if (!has(BUFFER_CORE_ADDRESSES)) return 0;
    try {
        auto addresses = call<BUFFER_CORE_ADDRESSES>(buffer);
        size_t found = 0, left = addresses->len;
        for (auto node = addresses->nodes(); node != nullptr && left > 0 && found < room; node = node->next, left--) {
            auto core = at<Xy>(node, 8);
            if (core.x > 15 || core.y > 15) continue;
            out[found] = {core.y * 16 + core.x, at<uint64_t>(node, 24)};
            found++;
        }
        return found;
    } catch (...) {
        return 0;
    }
}

// The grid of cores, and the largest part of a core's L1 that can be unreserved. Unknown values are not written.
SHARED void ttmem_cores(Object device, uint32_t *columns, uint32_t *rows, uint64_t *most_unreserved) noexcept {
    try {
        Xy grid = {};
        if (is_a(device, MESH_VTABLE) && has(MESH_GRID)) {
            grid = call<MESH_GRID>(device);
        } else if (is_a(device, DEVICE_VTABLE) && has(DEVICE_GRID)) {
            grid = call<DEVICE_GRID>(device);
        }
        if (grid.x <= 16 && grid.y <= 16) {
            *columns = static_cast<uint32_t>(grid.x);
            *rows = static_cast<uint32_t>(grid.y);
        }
        if (has(MOST_UNRESERVED)) *most_unreserved = call<MOST_UNRESERVED>();
    } catch (...) {
    }
}
}
