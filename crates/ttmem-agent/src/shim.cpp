// The runtime's allocators, buffers and chips.

#include "shim.hpp"

extern "C" {
SHARED __attribute__((aligned(64))) void *ttmem_calls[CALLS];
SHARED Layout ttmem_layout = {-1, -1, -1, -1, -1};
SHARED ProgramLayout ttmem_program_layout = {-1, -1, -1, -1, -1, -1};
SHARED State ttmem_state;

// The runtime's C++ library.
SHARED void *ttmem_cxx_personality;
SHARED void *ttmem_cxx_begin_catch;
SHARED void *ttmem_cxx_end_catch;
SHARED void *ttmem_cxx_rethrow;
SHARED void *ttmem_cxx_call_unexpected;
}

SHARED bool ttmem_given_up[CALLS];

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
