// The stand-in; see runtime.hpp. Functions that the agent replaces are called as the real library calls them: from another
// function, through the PLT.

#include "programs.hpp"

#include <pthread.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <new>
#include <utility>

#ifdef __SANITIZE_THREAD__
// The sanitizer cannot see how the agent orders queries with the creation and destruction of allocators. The address
// sanitizer checks that order.
extern "C" void __tsan_acquire(void *);
extern "C" void __tsan_release(void *);
#else
#define __tsan_acquire(it) static_cast<void>(it)
#define __tsan_release(it) static_cast<void>(it)
#endif

namespace internal_state {
Misbehaviour misbehaviour;

void throw_if_requested(const char *function) {
    if (!std::strcmp(misbehaviour.throwing.load(), function)) throw tt::Fatal{-1, function};
    if (!std::strcmp(misbehaviour.refusing.load(), function)) throw std::runtime_error(misbehaviour.refusal.load());
}
bool is_garbage(const char *what) { return !std::strcmp(misbehaviour.garbage.load(), what); }
}  // namespace internal_state

namespace {
// Lives while an allocator is queried.
struct QueryScope {
    void *allocator;
    explicit QueryScope(const void *allocator) : allocator(const_cast<void *>(allocator)) { __tsan_acquire(this->allocator); }
    ~QueryScope() { __tsan_release(allocator); }
};

thread_local Failure next;

// A Wormhole's banks, their base addresses, and the units of allocation.
constexpr uint32_t DRAM_BANKS = 12, L1_BANKS = 64, UNIT = 32, PAGE_UNIT_L1 = 16;
constexpr uint64_t DRAM_BASE = 1048640, DRAM_BYTES = 1 << 30, TRACE_BYTES = 16384;
constexpr uint64_t L1_END = 1499136;
using internal_state::L1_BASE, internal_state::misbehaviour, internal_state::throw_if_requested;

uint64_t round_up(uint64_t bytes, uint64_t unit) { return (bytes + unit - 1) / unit * unit; }

// Fails as requested for this thread, if `when` is the time for it.
void fail(Failure::When when) {
    if (when == Failure::ALLOCATE) throw_if_requested("allocate_buffer");
    if (next.kind == Failure::NONE || next.when != when) return;
    Failure failure = std::exchange(next, Failure{});
    switch (failure.kind) {
        case Failure::FATAL: throw tt::Fatal{failure.value, "injected"};
        case Failure::BAD_ALLOC: throw std::bad_alloc();
        case Failure::INT: throw failure.value;
        case Failure::THREAD_EXIT: pthread_exit(nullptr);
        case Failure::PROCESS_EXIT:
            // Until an audit waits for the lock that is held here.
            while (misbehaviour.queries == misbehaviour.answered_queries) {
            }
            std::exit(failure.value);
        case Failure::PARK:
            misbehaviour.parking++;
            misbehaviour.parked.wait(true);
            throw tt::Fatal{failure.value, "was parked"};
        case Failure::NONE: break;
    }
}
}  // namespace

namespace tt {
namespace umd {
ClusterDescriptor::ClusterDescriptor() {
    for (int chip = 0; chip < 32; chip++) ids[chip] = 0x5717d100u + static_cast<uint64_t>(chip);
    for (int chip = 0; chip < 32; chip += 2) {
        local[chip] = chip / 2;
        pci[chip] = "0000:0" + std::to_string(chip % 10) + ":00.0";
    }
}
const std::unordered_map<int, uint64_t> &ClusterDescriptor::get_chip_unique_ids() const { return ids; }
int ClusterDescriptor::get_arch(int) const { return throw_if_requested(__func__), 2; }
uint64_t ClusterDescriptor::get_board_id_for_chip(int chip) const {
    if (chip >= 32) throw Fatal{chip, "no board"};
    return uint64_t{0x14} << 36;
}
HarvestingMasks ClusterDescriptor::get_harvesting_masks(int) const { return {3, 0, 0, 0, 0}; }
const std::unordered_map<int, int> &ClusterDescriptor::get_chips_with_mmio() const { return local; }
const std::unordered_map<int, std::string> &ClusterDescriptor::get_chip_pci_bdfs() const { return pci; }
}  // namespace umd

umd::ClusterDescriptor *Cluster::get_cluster_desc() const {
    static umd::ClusterDescriptor descriptor;
    return &descriptor;
}

namespace tt_metal {
bool MetalContext::instance_exists(ContextId) { return true; }
MetalContext &MetalContext::instance(ContextId) {
    static MetalContext context;
    return context;
}
Cluster &MetalContext::get_cluster() {
    static Cluster cluster;
    return cluster;
}

Device::Device(int chip) : chip(chip) {}
Device::~Device() = default;
int Device::arch() const { return 2; }
xy_pair Device::compute_with_storage_grid_size() const { return {8, 8}; }
std::unique_ptr<AllocatorImpl> Device::initialize_allocator(size_t l1_small, size_t, size_t, std::span<const uint32_t> remap) {
    if (remap.size() != 3 || remap[2] != 7) throw Fatal{1, "the span did not arrive"};
    // Not of the derived class, so that another destructor is called.
    return std::make_unique<AllocatorImpl>(l1_small);
}

SubDeviceManager::SubDeviceManager(IDevice *device, std::unique_ptr<AllocatorImpl> &&allocator, std::span<const SubDevice> subs)
    : own(std::move(allocator)) {
    if (device == nullptr || subs.size() != 2) throw Fatal{2, "the arguments did not arrive"};
}
SubDeviceManager::~SubDeviceManager() {
    own->deallocate_buffers();
    own->clear();
}

namespace distributed {
MeshDevice::MeshDevice(std::vector<int> chips) : pimpl(std::make_unique<MeshDeviceImpl>(chips)) {
    for (int chip : chips) view.all.push_back(devices.emplace_back(std::make_unique<Device>(chip)).get());
}
MeshDevice::~MeshDevice() { pimpl->close_impl(this); }
int MeshDevice::arch() const { return 2; }
int MeshDevice::id() const { return pimpl->id(); }
std::vector<int> MeshDevice::get_device_ids() const { return throw_if_requested(__func__), pimpl->get_device_ids(); }
const MeshDeviceView &MeshDevice::get_view() const { return throw_if_requested(__func__), view; }
xy_pair MeshDevice::compute_with_storage_grid_size() const { return throw_if_requested(__func__), xy_pair{8, 8}; }
void MeshDevice::release_mesh_trace(const MeshTraceId &) { throw_if_requested(__func__); }
void MeshDevice::close() {
    pimpl->close_impl(this);
    another.reset();
    manager.reset();
}

std::vector<IDevice *> MeshDeviceView::get_devices(const MeshCoordinateRange &range) const {
    throw_if_requested(__func__);
    if (range.first > range.last || range.last >= all.size()) throw Fatal{12, "no such chips"};
    return {all.begin() + static_cast<ptrdiff_t>(range.first), all.begin() + static_cast<ptrdiff_t>(range.last) + 1};
}

MeshDeviceImpl::MeshDeviceImpl(std::vector<int> chips) : chips(std::move(chips)) {
    static std::atomic<int> numbers = 1000;
    number = numbers++;
}
int MeshDeviceImpl::id() const { return throw_if_requested(__func__), number; }
std::vector<int> MeshDeviceImpl::get_device_ids() const { return chips; }
bool MeshDeviceImpl::close_impl(MeshDevice *) { return true; }
void MeshDeviceImpl::begin_mesh_trace(uint8_t, const MeshTraceId &) { throw_if_requested(__func__); }
void MeshDeviceImpl::end_mesh_trace(uint8_t, const MeshTraceId &) { throw_if_requested(__func__); }
void MeshDeviceImpl::replay_mesh_trace(uint8_t, const MeshTraceId &, bool) { throw_if_requested(__func__); }
}  // namespace distributed

Buffer::Buffer(IDevice *device, AllocatorImpl *allocator, const Plan &plan)
    : device_(device), size_(plan.page * plan.pages), type_(plan.type),
      layout_(plan.cores ? BufferLayout::HEIGHT_SHARDED : BufferLayout::INTERLEAVED), allocator_(allocator),
      page_(plan.page), shards(plan.shards), cores(plan.cores), per_core(plan.per_core) {
#ifndef MOVED
    static_assert(offsetof(Buffer, device_) == 16 && offsetof(Buffer, size_) == 24 && offsetof(Buffer, type_) == 32);
    static_assert(offsetof(Buffer, layout_) == 36 && offsetof(Buffer, shards) + sizeof(ShardSpecBuffer) == 152);
#endif
    std::memset(unused, 0xee, sizeof unused);
}
Buffer::~Buffer() = default;
void Buffer::allocate() {
    address_ = allocator_->allocate_buffer(this);
    status = 1;
}
void Buffer::deallocate() {
    if (status != 1) return;
    allocator_->deallocate_buffer(this);
    status = 2;
}
uint64_t Buffer::per_bank(uint64_t alignment) const {
    bool sharded = cores && *cores > 0;
    uint64_t banks = sharded ? *cores : allocator_->banks(type_), pages = page_ ? size_ / page_ : 0;
    return (pages + banks - 1) / banks * round_up(page_, alignment);
}

namespace {
uint64_t reported_size(uint64_t bytes) { return misbehaviour.huge ? ~bytes : bytes; }
uint64_t page_unit(BufferType type) { return type == BufferType::L1 || type == BufferType::L1_SMALL ? PAGE_UNIT_L1 : UNIT; }
}  // namespace

uint32_t Buffer::address() const {
    throw_if_requested(__func__);
    if (status == 0) throw Fatal{3, "not allocated"};
    return static_cast<uint32_t>(address_);
}
uint64_t Buffer::page_size() const { return throw_if_requested(__func__), page_; }
uint32_t Buffer::num_pages() const { return static_cast<uint32_t>(page_ ? size_ / page_ : 0); }
uint64_t Buffer::aligned_page_size() const { return throw_if_requested(__func__), reported_size(round_up(page_, page_unit(type_))); }
uint64_t Buffer::aligned_size() const { return reported_size(num_pages() * round_up(page_, page_unit(type_))); }
#ifndef BROKEN
uint64_t Buffer::aligned_size_per_bank() const { return throw_if_requested(__func__), reported_size(per_bank(page_unit(type_))); }
#endif
std::optional<uint32_t> Buffer::num_cores() const { return throw_if_requested(__func__), cores; }
ShardSpecBuffer Buffer::shard_spec() const {
    throw_if_requested(__func__);
    if (!shards) throw Fatal{4, "not sharded"};
    ShardSpecBuffer spec = *shards;
    if (misbehaviour.torn) spec.orientation = 77;
    return spec;
}
bool Buffer::is_dram() const { return type_ == BufferType::DRAM || type_ == BufferType::TRACE; }
#ifndef OLD
BufferType Buffer::buffer_type() const { return throw_if_requested(__func__), type_; }
BufferLayout Buffer::buffer_layout() const { return throw_if_requested(__func__), layout_; }
uint64_t Buffer::size() const { return throw_if_requested(__func__), reported_size(size_); }
bool Buffer::has_shard_spec() const { return shards.has_value(); }
IDevice *Buffer::device() const { return throw_if_requested(__func__), device_; }

namespace experimental::per_core_allocation {
bool is_per_core_allocation(const Buffer &buffer) { return buffer.per_core; }
const std::unordered_map<xy_pair, uint64_t, HashXy> &get_per_core_addresses(const Buffer &buffer) {
    return throw_if_requested(__func__), buffer.core_addresses;
}
}  // namespace experimental::per_core_allocation
#endif

// First fit, from below or from above.
std::optional<uint64_t> Space::take(uint64_t bytes, bool from_below) {
    std::optional<uint64_t> found;
    uint64_t at = begin;
    auto check_gap = [&](uint64_t until) {
        if (until - at >= bytes && !(from_below && found)) found = from_below ? at : until - bytes;
    };
    for (auto [block, len] : blocks) {
        check_gap(block);
        at = block + len;
    }
    check_gap(end);
    if (found) blocks[*found] = bytes;
    return found;
}

Statistics Space::statistics() const {
    Statistics result = {end - begin, 0, 0, 0};
    uint64_t at = begin;
    for (auto [block, len] : blocks) {
        result.allocated += len;
        result.largest_free = std::max<size_t>(result.largest_free, block - at);
        at = block + len;
    }
    result.largest_free = std::max<size_t>(result.largest_free, end - at);
    result.free = result.allocatable - result.allocated;
    return result;
}

AllocatorImpl::AllocatorImpl(uint64_t l1_small) {
    uint64_t dram = DRAM_BYTES - DRAM_BASE - TRACE_BYTES, l1 = L1_END - L1_BASE - l1_small;
    spaces[BufferType::DRAM] = {DRAM_BANKS, DRAM_BASE, 0, dram, {}};
    spaces[BufferType::TRACE] = {DRAM_BANKS, DRAM_BASE + dram, 0, TRACE_BYTES, {}};
    spaces[BufferType::L1] = {L1_BANKS, L1_BASE, 0, l1, {}};
    spaces[BufferType::L1_SMALL] = {l1_small ? L1_BANKS : 0, L1_END - l1_small, 0, l1_small, {}};
    __tsan_release(this);
}
AllocatorImpl::~AllocatorImpl() { __tsan_acquire(this); }
L1BankingAllocator::~L1BankingAllocator() = default;

uint64_t AllocatorImpl::allocate_buffer(Buffer *buffer) {
    if (next.kind == Failure::PARK) fail(Failure::ALLOCATE);
    std::lock_guard lock(mutex);
    fail(Failure::ALLOCATE);
    // In HYBRID mode, pages of L1 begin at a multiple of the unit.
    static const bool hybrid = std::getenv("TT_METAL_ALLOCATOR_MODE_HYBRID") != nullptr;
    uint64_t page = hybrid && buffer->type_ == BufferType::L1 ? UNIT : page_unit(buffer->type_);
    uint64_t bytes = round_up(std::max<uint64_t>(buffer->per_bank(page), UNIT), UNIT);
    if (buffer->per_core) {
        // In separate lists, which the statistics leave out; every second core has another address.
        uint64_t lowest = L1_BASE + per_core_taken;
        per_core_taken += 2 * bytes;
        for (const CoreRange &range : buffer->shards->grid.ranges) {
            for (size_t x = range.from.x; x <= range.to.x; x++) {
                for (size_t y = range.from.y; y <= range.to.y; y++) buffer->core_addresses[{x, y}] = lowest + x % 2 * bytes;
            }
        }
        return lowest;
    }
    Space &space = spaces.at(buffer->type_);
    auto taken = space.take(bytes, page_unit(buffer->type_) == UNIT);
    if (!taken) throw Fatal{static_cast<int>(buffer->type_), "out of memory"};
    return space.base + *taken;
}

void AllocatorImpl::deallocate_buffer(Buffer *buffer) {
    std::lock_guard lock(mutex);
    fail(Failure::BEFORE_FREE);
    Space &space = spaces.at(buffer->type_);
    if (!buffer->per_core) space.blocks.erase(buffer->address_ - space.base);
    fail(Failure::AFTER_FREE);
}

void AllocatorImpl::deallocate_buffers() {
    std::lock_guard lock(mutex);
    for (auto &[type, space] : spaces) space.blocks.clear();
}

void AllocatorImpl::clear() {
    std::lock_guard lock(mutex);
    for (auto &[type, space] : spaces) {
        space.blocks.clear();
        space.begin = 0;
    }
}

#ifndef OLD
void AllocatorImpl::mirror_lockstep_allocation(uint64_t address, uint64_t bytes) {
    std::lock_guard lock(mutex);
    Space &space = spaces.at(BufferType::L1);
    space.blocks.try_emplace(address - space.base, round_up(std::max<uint64_t>(bytes, UNIT), UNIT));
}
void AllocatorImpl::unmirror_lockstep_allocation(uint64_t address) {
    std::lock_guard lock(mutex);
    Space &space = spaces.at(BufferType::L1);
    space.blocks.erase(address - space.base);
}
#endif

void AllocatorImpl::override_state(const AllocatorState &state) {
    std::lock_guard lock(mutex);
    for (auto &[type, space] : spaces) {
        space.blocks.clear();
        auto regions = state.regions.find(type);
        if (regions == state.regions.end()) continue;
        for (auto [at, bytes] : regions->second) space.blocks[at] = bytes;
    }
}

void AllocatorImpl::shrink_allocator_size(const BufferType &type, uint64_t bytes, bool from_below) {
    std::lock_guard lock(mutex);
    Space &space = spaces.at(type);
    if (!from_below || space.begin + bytes > (space.blocks.empty() ? space.end : space.blocks.begin()->first)) {
        throw Fatal{5, "cannot shrink"};
    }
    space.begin += bytes;
}
void AllocatorImpl::reset_allocator_size(const BufferType &type) {
    std::lock_guard lock(mutex);
    spaces.at(type).begin = 0;
}

Statistics AllocatorImpl::get_statistics(const BufferType &type) const {
    QueryScope scope{this};
    throw_if_requested(__func__);
    misbehaviour.queries++;
    std::lock_guard lock(mutex);
    misbehaviour.answered_queries++;
    if (misbehaviour.nonsense) return {1, 2, 3, 4};
    return spaces.at(type).statistics();
}
uint32_t AllocatorImpl::get_num_banks(const BufferType &type) const {
    QueryScope scope{this};
    return throw_if_requested(__func__), spaces.at(type).banks;
}
uint64_t AllocatorImpl::get_bank_size(const BufferType &type) const {
    QueryScope scope{this};
    throw_if_requested(__func__);
    std::lock_guard lock(mutex);
    return spaces.at(type).end - spaces.at(type).begin;
}
uint64_t AllocatorImpl::get_base_allocator_addr(const HalMemType &memory) const {
    return throw_if_requested(__func__), memory == HalMemType::L1 ? L1_BASE : DRAM_BASE;
}
uint32_t AllocatorImpl::get_alignment(BufferType type) const {
    return throw_if_requested(__func__), static_cast<uint32_t>(page_unit(type));
}
uint64_t AllocatorImpl::get_worker_l1_size() const { return throw_if_requested(__func__), L1_END; }
std::vector<std::unordered_map<std::string, std::string>> AllocatorImpl::get_memory_block_table(const BufferType &type) const {
    throw_if_requested(__func__);
    std::lock_guard lock(mutex);
    std::vector<std::unordered_map<std::string, std::string>> table;
    for (auto [at, bytes] : spaces.at(type).blocks) {
        // The last value is too long for a string without allocated memory.
        table.push_back({{"address", std::to_string(at)}, {"size", std::to_string(bytes)}, {"allocated", "yes"},
            {"blockID", "a name that is longer than fits " + std::to_string(at)}});
    }
    table.push_back({{"address", "4096"}, {"size", "64"}, {"allocated", "no"}});
    return table;
}

Statistics AllocatorImpl::truth(BufferType type) const {
    std::lock_guard lock(mutex);
    return spaces.at(type).statistics();
}
}  // namespace tt_metal
}  // namespace tt

namespace {
using namespace tt::tt_metal;

class RuntimeImpl final : public Runtime {
    IDevice *open_mesh(int first, int chips, uint64_t l1_small) override {
        std::vector<int> ids;
        for (int chip = 0; chip < chips; chip++) ids.push_back(first + chip);
        // Opening a chip creates an allocator that is never used.
        L1BankingAllocator unused(l1_small);
        auto mesh = std::make_unique<distributed::MeshDevice>(std::move(ids));
        static const SubDevice subs[2];
        mesh->manager =
            std::make_unique<SubDeviceManager>(mesh.get(), std::make_unique<L1BankingAllocator>(l1_small), subs);
        return mesh.release();
    }
    IDevice *open_device(int chip) override {
        auto device = std::make_unique<Device>(chip);
        static const uint32_t remap[] = {5, 6, 7};
        device->allocator = device->initialize_allocator(0, 0, 0, remap);
        return device.release();
    }
    void close(IDevice *device) override {
        if (auto mesh = dynamic_cast<distributed::MeshDevice *>(device)) mesh->close();
        delete device;
    }
    AllocatorImpl *allocator(IDevice *device) override {
        if (auto mesh = dynamic_cast<distributed::MeshDevice *>(device)) return mesh->manager->allocator();
        return static_cast<Device *>(device)->allocator.get();
    }
    Buffer *create(IDevice *device, const Plan &plan) override {
        auto buffer = std::make_unique<Buffer>(device, allocator(device), plan);
        plan.of_mesh ? allocate_for(plan, buffer.get()) : buffer->allocate();
        return buffer.release();
    }
    void destroy(Buffer *buffer, bool deallocate) override {
        if (deallocate) buffer->deallocate();
        delete buffer;
    }
    void bulk(AllocatorImpl *it, bool clear) override { clear ? it->clear() : it->deallocate_buffers(); }
    void mirror(AllocatorImpl *it, uint64_t address, uint64_t bytes) override {
#ifndef OLD
        bytes ? it->mirror_lockstep_allocation(address, bytes) : it->unmirror_lockstep_allocation(address);
#endif
    }
    void override_state(AllocatorImpl *it, const AllocatorState &state) override { it->override_state(state); }
    void shrink(AllocatorImpl *it, BufferType type, uint64_t bytes) override {
        bytes ? it->shrink_allocator_size(type, bytes, true) : it->reset_allocator_size(type);
    }
    Statistics truth(AllocatorImpl *it, BufferType type) override { return it->truth(type); }
    uint32_t banks(AllocatorImpl *it, BufferType type) override { return it->banks(type); }
    void manage(IDevice *device, bool begin) override {
        auto mesh = static_cast<distributed::MeshDevice *>(device);
        static const SubDevice subs[2];
        mesh->another.reset();
        if (!begin) return;
        mesh->another = std::make_unique<SubDeviceManager>(mesh, std::make_unique<L1BankingAllocator>(0), subs);
    }
    Programs *programs() override { return programs_instance(); }
    Misbehaviour &misbehaviour() override { return internal_state::misbehaviour; }
    Failure &next() override { return ::next; }
};
}  // namespace

extern "C" Runtime *standin() {
    static RuntimeImpl here;
    return &here;
}
